"""Compiling, matching, and what a line of routine may hide."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.content.reading import Filter
from assistant.content.reasons import Herring, Role, Signature
from assistant.errors import ContentError
from assistant.rules.loading import load_patterns
from assistant.rules.matching import Patterns, any_digits, groups
from assistant.rules.patterns import Expression, database

XID = Signature("ecc.xid", r"Xid \([^)]*\): (?P<xid>48|63|64)\b", ("NVRM: Xid (PCI:0000): 48",))
STEP = Filter("step", r"^step \d+ loss ", ("step 1 loss 2",), "steps")
BAR = Filter("bar", r"^\d+%\|[^|\n]*\| \d+/\d+$", ("1%|x| 1/2",), "bars")


@pytest.fixture
def patterns(tmp_path: Path) -> Patterns:
    return Patterns([STEP, XID, BAR, Herring("not", "harmless", "it is", ("harmless",))], ["Traceback"], cache_folder=tmp_path)


def test_a_match_is_reported_with_its_pattern_and_end(patterns: Patterns) -> None:
    found = patterns.scan(b"a\nNVRM: Xid (PCI:0): 48\n")
    assert [(patterns.entry(number).id, end) for number, end in found] == [("ecc.xid", 23)]


def test_a_match_does_not_cross_lines(patterns: Patterns) -> None:
    assert patterns.scan(b"Xid (PCI:0):\n 48") == []


@pytest.mark.parametrize("mark", ["", "[rank3]: ", "12: ", "node-07.cluster: ", "[default0]:[rank0]: ", "[1]<stderr>:"])
def test_a_filter_sees_behind_the_marks_of_launchers(patterns: Patterns, mark: str) -> None:
    assert patterns.hides(f"{mark}step 12 loss 2.1")


@pytest.mark.parametrize(
    ("line", "hidden"),
    [
        ("step 12 loss 2.1", True),
        ("step 12 loss 2.1 NVRM: Xid (PCI:0): 48", False),
        ("step 12 loss 2.1Traceback", False),
        ("step 12 loss 2.1 harmless", True),
        ("7%|==| 3/9", True),
        ("7%|==| 3/9Oh no", False),
        ("anything else", False),
    ],
)
def test_only_routine_is_hidden(patterns: Patterns, line: str, hidden: bool) -> None:
    assert patterns.hides(line) is hidden


def test_a_benign_signature_does_not_keep_a_line_from_being_hidden(tmp_path: Path) -> None:
    benign = Signature("x.benign", "loss 2", ("loss 2",), role=Role.BENIGN)
    assert Patterns([benign, STEP], cache_folder=tmp_path).hides("step 1 loss 2")


def test_groups_are_read_again_with_re() -> None:
    assert groups(XID, "NVRM: Xid (PCI:0): 63, pid=1") == {"xid": "63"}
    assert groups(XID, "nothing") == {}


def test_match_line_gives_each_entry_once(patterns: Patterns) -> None:
    assert patterns.match_line("Xid (a): 48 Xid (b): 48") == [XID]


def test_a_refused_pattern_is_named(tmp_path: Path) -> None:
    with pytest.raises(ContentError, match=r"pattern of 'bad\.one' cannot be used"):
        Patterns([STEP, Signature("bad.one", "a(?!b)", ("a",))], cache_folder=tmp_path)


@pytest.mark.parametrize("content", [b"", b"x" * 10, b"\0" * 5000])
def test_a_damaged_cache_is_compiled_again(tmp_path: Path, content: bytes) -> None:
    wanted = [(0, Expression("a", "abc", False))]
    database(wanted, tmp_path)
    (file,) = tmp_path.glob("patterns-*.hs")
    file.write_bytes(content)
    found: list[int] = []
    database(wanted, tmp_path).scan(b"xabc", lambda number, *_: found.append(number))
    assert found == [0]


def test_an_unwritable_cache_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert Patterns([STEP], cache_folder=tmp_path / "file" / "below").hides("step 1 loss 2")


def test_a_filter_of_the_site_that_could_hide_an_error_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "knowledge" / "filters"
    folder.mkdir(parents=True)
    (folder / "site.toml").write_text(
        'program = "ours"\nsource = "site"\n[[filter]]\nid = "site.all"\n'
        'pattern = "^.{1,60}$"\nfolds = "all"\nexamples = ["hello"]\n'
    )
    with pytest.raises(ContentError, match=r"filter 'site\.all' cannot be used"):
        load_patterns(tmp_path)


def test_digits_that_could_make_a_signature_match_are_found(tmp_path: Path) -> None:
    nan = Signature("loss.nan", "nan iterations: +[1-9]", ("nan iterations: 3",))
    patterns = Patterns([nan, STEP], cache_folder=tmp_path)
    assert patterns.telling_digits(b"step 12 loss 3 | nan iterations:   0 |\n") == [(17, 36)]
    assert patterns.telling_digits(b"step 12 loss 3 | nan iterations:   4 |\n") is None


def test_several_threads_may_ask_for_the_digits_of_lines_at_once(tmp_path: Path) -> None:
    nan = Signature("loss.nan", "nan iterations: +[1-9]", ("nan iterations: 3",))
    patterns = Patterns([nan, STEP], cache_folder=tmp_path)
    line = b"step 12 loss 3 | " + b"nan iterations:   0 | " * 2_000
    with ThreadPoolExecutor(8) as pool:
        places = list(pool.map(lambda _: patterns.telling_digits(line), range(64)))
    assert all(spans == places[0] and spans for spans in places)


@given(st.from_regex(r"\A(?:exit code (?:137|[1-4]5|[^0-9x]z|1?\d{2}\b))\Z"), st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_a_loosened_pattern_matches_whatever_the_digits(text: str, digits: list[int]) -> None:
    loose = any_digits(r"exit code (?:137|[1-4]5|[^0-9x]z|1?\d{2}\b)")
    places = iter(digits * 20)
    assert re.search(loose, re.sub(r"\d", lambda _: str(next(places)), text))


@pytest.mark.parametrize(
    ("pattern", "loose"),
    [
        (r"a{3,5}7", r"a{3,5}\d"),
        ("[0-9a.-]", r"[0-9a.\d-]"),
        (r"[0-9\-]", r"[0-9\-\d]"),
        (r"(?P<x1>5)\x1b", r"(?P<x1>\d)\x1b"),
        ("[45a]", r"[45a\d]"),
        ("[^0-9:]", "[^:]"),
        ("[^0-9]", "."),
    ],
)
def test_only_what_stands_for_digits_is_loosened(pattern: str, loose: str) -> None:
    assert any_digits(pattern) == loose


def test_of_compiled_patterns_those_used_last_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assistant.rules.patterns.MOST_KEPT", 3)
    for number, word in enumerate(("one", "two", "three")):
        before = set(tmp_path.iterdir())
        database([(0, Expression("x", word, False))], tmp_path)
        (made,) = set(tmp_path.iterdir()) - before
        os.utime(made, (1_000 + number, 1_000 + number))
    database([(0, Expression("x", "one", False))], tmp_path)  # read again: now the newest
    first = max(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime)
    database([(0, Expression("x", "four", False))], tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    assert first.exists()
