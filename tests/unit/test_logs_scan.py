"""One pass over a log: hits, coverage, numbers and memory."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from assistant.content.reading import Filter
from assistant.content.reasons import Herring, Signature
from assistant.logs import covering, scan
from assistant.logs.compress import compress
from assistant.logs.scan import scan_log
from assistant.rules.matching import Patterns

STEP = Filter("step", r"^step +\d+ \| loss ", ("step 1 | loss 2",), "step records")
BAR = Filter("bar", r"^ *\d{1,3}%\|[^|\n]*\| \d+/\d+$", ("1%|x| 1/2",), "progress bars")
ECC = Signature("ecc", "uncorrectable ECC error", ("uncorrectable ECC error",))
NAN = Signature("nan", "nan: +[1-9]", ("nan: 1",))
HERRING = Herring("not", "loss", "it is routine", ("loss",))


@pytest.fixture(scope="module")
def patterns(tmp_path_factory: pytest.TempPathFactory) -> Patterns:
    return Patterns([STEP, BAR, ECC, NAN, HERRING], ["Traceback"], cache_folder=tmp_path_factory.mktemp("cache"))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "job.log"


def test_hits_and_coverage_carry_line_numbers(log: Path, patterns: Patterns) -> None:
    log.write_bytes(b"hello\nstep 1 | loss 2\n\nRuntimeError: uncorrectable ECC error\nstep 2 | loss 2\nend")
    scan = scan_log(log, patterns)
    assert [(hit.entry.id, hit.line) for hit in scan.hits] == [("ecc", 4)]
    assert scan.filtered == {"step": 2}
    assert list(scan.uncovered) == [1, 4, 6]
    assert (scan.lines_total, scan.size_bytes) == (6, log.stat().st_size)
    assert [line.text for line in scan.lines] == [
        "hello",
        "step 1 | loss 2",
        "",
        "RuntimeError: uncorrectable ECC error",
        "step 2 | loss 2",
        "end",
    ]


def test_an_error_behind_a_progress_bar_is_found_on_its_line(log: Path, patterns: Patterns) -> None:
    log.write_bytes(b"a\n 1%|#| 1/9\r 9%|#| 9/9\runcorrectable ECC error\nb\r\n 1%|#| 1/9\r 2%|#| 2/9\n")
    scan = scan_log(log, patterns)
    assert [(hit.line, hit.text) for hit in scan.hits] == [(2, "uncorrectable ECC error")]
    assert list(scan.uncovered) == [1, 2, 3]
    assert scan.lines[3].text == " 2%|#| 2/9"


def test_colours_do_not_hide_an_error(log: Path, patterns: Patterns) -> None:
    log.write_bytes(b"\x1b[31muncorrectable \x1b[1mECC\x1b[0m error\n")
    assert [hit.text for hit in scan_log(log, patterns).hits] == ["uncorrectable ECC error"]


def test_broken_text_is_tolerated(log: Path, patterns: Patterns) -> None:
    log.write_bytes("größer\n".encode() * 50 + b"\xff\xfe\x00 uncorrectable ECC error \xc3\n" + b"plain text\n" * 50)
    assert [hit.line for hit in scan_log(log, patterns).hits] == [51]


def test_a_line_of_ten_megabytes_breaks_nothing(log: Path, patterns: Patterns) -> None:
    log.write_bytes(b"first\n" + b"x" * 10_000_000 + b" uncorrectable ECC error\nlast\n")
    scan = scan_log(log, patterns)
    assert [hit.line for hit in scan.hits] == [2]
    assert len(scan.hits[0].text) < 20_000
    assert scan.lines_total == 3


def test_repeated_hits_are_counted_and_kept_from_both_ends(log: Path, patterns: Patterns) -> None:
    log.write_bytes(b"uncorrectable ECC error\n" * 1000)
    scan = scan_log(log, patterns)
    assert scan.hit_counts == {"ecc": 1000}
    assert [hit.line for hit in scan.hits] == [*range(1, 201), *range(951, 1001)]


def test_a_herring_on_a_routine_line_is_no_news(log: Path, patterns: Patterns) -> None:
    log.write_bytes(b"step 1 | loss 2\nloss of power\n")
    assert [(hit.entry.id, hit.line) for hit in scan_log(log, patterns).hits] == [("not", 2)]


def _random_log(seed: int) -> bytes:
    rng = random.Random(seed)
    lines: list[bytes] = []
    for step in range(20_000):
        nan = b" | nan: %d" % (rng.random() < 0.001)
        lines.append(b"step %6d | loss %.3f%s" % (step, rng.random() * 20, nan))
        if rng.random() < 0.01:
            lines.append(
                rng.choice(
                    [
                        b"",
                        b"step x",
                        b"note %d" % step,
                        b"uncorrectable ECC error",
                        b"step 1 | loss Traceback",
                        b"\xffx\r 3%|#| 3/9",
                    ]
                )
            )
    return b"\n".join(lines)


@pytest.mark.parametrize("seed", range(4))
def test_known_shapes_change_nothing_but_the_speed(
    log: Path, patterns: Patterns, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.write_bytes(_random_log(seed))
    fast = scan_log(log, patterns)
    monkeypatch.setattr(covering.Shapes, "learn", lambda *_: None)
    slow = scan_log(log, patterns)
    assert fast.hits == slow.hits
    assert (fast.filtered, fast.uncovered.runs, fast.hit_counts) == (slow.filtered, slow.uncovered.runs, slow.hit_counts)


def test_of_a_long_log_start_end_and_the_rest_of_interest_stay(
    log: Path, patterns: Patterns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "TAIL_LINES", 1000)
    monkeypatch.setattr(scan, "_TAIL_BYTES", 100_000)
    lines = [b"step %7d | loss 1.0" % step for step in range(400_000)]
    lines[200_000] = b"uncorrectable ECC error"
    log.write_bytes(b"\n".join(lines) + b"\n")
    long_scan = scan_log(log, patterns, keep_bytes=1)
    assert long_scan.lines_total == 400_000
    assert [line.number for line in long_scan.lines.window(199_000, 201_000)] == [*range(199_971, 200_032)]
    assert long_scan.lines[0].number == 1
    assert long_scan.lines.tail(1)[0].number == 400_000
    assert long_scan.lines.get(100_000) is None
    assert list(long_scan.uncovered) == [200_001]


@pytest.mark.parametrize("budget", [200, 500, 4000])
def test_compression_keeps_the_error_and_the_budget(log: Path, patterns: Patterns, budget: int) -> None:
    lines = [f"step {n} | loss 1" for n in range(1000)]
    lines[500:500] = [f"[rank{rank}]: RuntimeError: uncorrectable ECC error {rank}" for rank in range(8)]
    log.write_text("\n".join(lines))
    short = compress(scan_log(log, patterns), budget)
    assert len(short) <= budget
    assert "501  [rank0]: RuntimeError: uncorrectable ECC error 0  [×8, ranks 0-7]" in short
    assert budget < 500 or "500 lines of step records" in short
