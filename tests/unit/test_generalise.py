"""Patterns made of lines: they match the next line like them, keep the telling words, and say when too few of those are left."""

from __future__ import annotations

import re
import time

import pytest

from assistant.diagnose.readers.candidate_lines import message_of, pattern_of, words_kept
from assistant.linear_patterns import holds, linear_pattern

NEXT = {
    "numbers": ("flux capacitor 7 lost its uplink after 12.5 s", "flux capacitor 1044 lost its uplink after 0.25 s"),
    "paths": ("cannot map /scratch/ada/x.bin: bad shard seal", "cannot map /lustre/b/c/y.idx: bad shard seal"),
    "addresses": ("ring broken at 0xdeadbeef on 10.1.2.3", "ring broken at 0x01 on 10.255.0.1"),
    "devices": ("0000:c1:00.0 mlx5_3 retired its last lane", "mlx5_0 retired its last lane"),
    "quotes": ("cannot open bundle 's3://a/b c' for write", "cannot open bundle 's3://zz/y c' for write"),
    "several blanks": ("12s      Warning   Evicted pod", "9s Warning Evicted pod"),
    "an underscore first": ("_pickle.UnpicklingError: invalid load key, 'v'.", "_pickle.UnpicklingError: invalid load key, 'v'."),
    "a full stop last": ("returned non-zero exit status 128.", "returned non-zero exit status 128."),
}


@pytest.mark.parametrize("name", NEXT)
def test_a_pattern_matches_its_line_and_the_next_one_like_it(name: str) -> None:
    line, following = NEXT[name]
    pattern = pattern_of([line])
    assert re.search(pattern, line)
    assert re.search(pattern, f"[rank3]: {following}")
    assert holds(linear_pattern(pattern), following)


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("OSError: [Errno 113] No route to host", "OSError: [Errno 101] No route to host"),
        ("worker left with exit code 77 twice over", "worker left with exit code 78 twice over"),
        ("flux capacitor 7 lost its uplink", "flux capacitor 7 found its uplink"),
    ],
)
def test_a_pattern_keeps_words_and_the_numbers_that_are_words(line: str, other: str) -> None:
    assert not re.search(pattern_of([line]), other)


def test_hosts_are_never_kept() -> None:
    pattern = pattern_of(["lease of login-a expired on fs1"], hosts=["login-a"])
    assert re.search(pattern, "lease of transfer.site.org expired on fs9")


def test_of_two_occurrences_what_varies_is_widened() -> None:
    lines = ["burst buffer refused commit: red token on lane", "burst buffer refused commit: blue token on lane"]
    pattern = pattern_of(lines)
    assert all(re.search(pattern, line) for line in [*lines, "burst buffer refused commit: green token on lane"])
    assert not re.search(pattern, "burst buffer accepted commit: green token on lane")
    longer = ["burst buffer refused commit", "burst buffer of ada and bob refused commit"]
    assert all(re.search(pattern_of(longer), line) for line in longer)


@pytest.mark.parametrize(
    ("line", "enough"),
    [
        ("Error: failed", False),
        ("RuntimeError: error", False),
        ("Traceback (most recent call last):", False),
        ("12 34 56", False),
        ("", False),
        ("KeyError: 'x'", False),
        ("flux capacitor 7 lost its uplink", True),
        ("ReplicaSealMismatch: shards are left over", True),
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.", True),
        ("srun: error: node02: task 1: Exited with exit code 9", False),
        ("OSError: [Errno 5] Input/output error", False),
    ],
)
def test_too_few_telling_words_are_no_pattern(line: str, enough: bool) -> None:
    assert words_kept([line]).specific is enough


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[rank3]: boom town", "boom town"),
        ("[rank1]:[E105 02:01:11.12 ProcessGroupNCCL.cpp:607] Watchdog woke", "Watchdog woke"),
        ("node7:11:12 [4] transport/nvls.cc:157 NCCL WARN gone", "NCCL WARN gone"),
        ("[Sat Sep 21 17:38:42 2024] libceph: osd14 closed", "libceph: osd14 closed"),
        ("Aug  9 19:46:31 b01-03 kernel: EDAC MC1: bad", "EDAC MC1: bad"),
        ("[812504.100000] BUG: unable", "BUG: unable"),
        ("mylib.errors.ShardPlanFault: 17 left", "mylib.errors.ShardPlanFault: 17 left"),
    ],
)
def test_the_message_is_the_line_without_its_marks(line: str, message: str) -> None:
    assert message_of(line) == message


def test_no_line_makes_a_pattern_that_takes_long() -> None:
    lines = ["a-" * 5000, "(" * 3000, "x y " * 2000, "((a+)+)+$ " * 50, "/" * 4000, "1." * 3000]
    begin = time.perf_counter()
    for line in lines:
        pattern = pattern_of([line])
        for other in lines:
            re.search(pattern, other) if pattern else None
    assert time.perf_counter() - begin < 5
