"""A search that somebody typed: what it finds, what it refuses and in which words, and that no pattern makes it slow."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.errors import UsageError
from assistant.logs.declared import ANY, LOCAL, NODE, RANK, matcher
from assistant.logs.tail import matched_lines, search, typed_search
from assistant.tui.logs.rows import finder, highlighter

BLOCK = b"first\nsecond error\n\nErrors: 2\ncaf\xc3\xa9 \xff end\nlast error"


def numbers(pattern: str, block: bytes = BLOCK, *, caseless: bool = False) -> list[int]:
    return [line.number for line in matched_lines(block, typed_search(pattern, caseless=caseless), 1)]


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        *(("error", [2, 6]), ("^last", [6]), ("error$", [2, 6]), ("^$", [3]), ("", [1, 2, 3, 4, 5, 6]), ("x*", [1, 2, 3, 4, 5, 6])),
        *((r"first\nsecond", []), (r"first\s+second", []), ("[^a]error", [2, 6]), ("(?s)first.*error", []), (r"\bend\b", [5])),
        *(("caf. . end", [5]), ("é", [5]), ("(?P<a>e)(?P<b>r)", [2, 6]), ("r{2}", [2, 4, 6]), ("(?i)ERROR", [2, 4, 6])),
    ],
)
def test_a_pattern_is_one_of_lines(pattern: str, lines: list[int]) -> None:
    assert numbers(pattern) == lines


def test_a_newline_at_the_end_begins_no_line() -> None:
    assert numbers("^", b"a\nb\n") == [1, 2]
    assert numbers("^", b"") == []
    assert numbers("$", b"a\n\n") == [1, 2]


@given(
    st.lists(st.text("ab é", max_size=5), max_size=8),
    st.sampled_from(["a", "b*", "^a", "b$", "a+b", "é", "^$", " "]),
    st.booleans(),
)
def test_it_finds_the_lines_that_re_finds_one_by_one(texts: list[str], pattern: str, ended: bool) -> None:
    import re

    block = "\n".join(texts) + ("\n" if ended and texts else "")
    lines = block.removesuffix("\n").split("\n") if block else []
    wanted = [number for number, text in enumerate(lines, 1) if re.search(pattern, text)]
    assert numbers(pattern, block.encode()) == wanted


def test_lines_are_counted_across_blocks(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text("".join(f"{'x' * 100} {n}\n" for n in range(30_000)))
    found = search(path, typed_search(" 29998$", caseless=True))
    assert [(line.number, line.text[-5:]) for line in found.lines] == [(29_999, "29998")]


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        *((r"a(?=b)", r"\(\?="), (r"(?<!a)b", r"\(\?<"), (r"(a)\1", r"\\1"), ("(?>a+)b", r"\(\?>"), ("a*+b", r"\*\+")),
        *(
            ("a{1001}", "repetition size"),
            ("(a", r"missing \)"),
            ("[z-a]", "class range"),
            ("*", "no argument"),
            ("(" * 2_000, "missing"),
        ),
        *(("((a{100}){100}){100}", "repetition size"), (r"\p{Foo}", "Foo")),
    ],
)
def test_what_re2_cannot_is_refused_in_its_words(pattern: str, reason: str) -> None:
    with pytest.raises(UsageError, match=f"(?s){reason}.*no look-around"):
        typed_search(pattern, caseless=False)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|a)*b",
        "(a|aa)+$",
        r"(\w+\s?)+!",
        "(.*)(.*)(.*)(.*)(.*)x",
        "(a?){500}a{500}!",
        "(a{0,30}){30}x",
        "[ab]*a[ab]{900}c",
    ],
)
def test_no_pattern_takes_more_than_the_text_is_long(pattern: str) -> None:
    """With `re` the first ones would take years; processor time, for the machine is shared."""
    block = (b"ab" * 50 + b"a" * 200 + b"\n") * 1_000
    begin = time.process_time()
    assert numbers(pattern, block) in ([], list(range(1, 1_001)))
    assert time.process_time() - begin < 20


def test_the_chat_says_why_it_searches_for_text() -> None:
    ends, refusal = finder("ab(?=c)")
    assert "searched for as text" in refusal
    assert ends(b"ab(?=c)\nabc\n") == [8]
    assert finder("ab+c")[1] == ""


@pytest.mark.parametrize(
    ("pattern", "text", "spans"),
    [
        ("é+", "aéé é", [(1, 3), (4, 5)]),
        ("b", "abab", [(1, 2), (3, 4)]),
        ("x*", "ab", []),
        ("日", "本日\ud800日", [(1, 2), (3, 4)]),
    ],
)
def test_matches_are_marked_where_they_stand(pattern: str, text: str, spans: list[tuple[int, int]]) -> None:
    assert list(highlighter(pattern).spans(text)) == spans


@pytest.mark.timeout(20)
def test_gaps_in_the_name_of_a_log_are_matched_in_linear_time() -> None:
    """`--output=%xa%xa...` and a file of 250 times `a` took hours."""
    assert matcher(f"{ANY}a" * 100 + f"{ANY}b").values("a" * 250) is None
    assert matcher(f"{ANY}a" * 100 + ANY).values("a" * 250) == {}


@pytest.mark.parametrize(
    ("part", "name", "values"),
    [
        (f"job-{RANK}.out", "job-003.out", {"rank": "003"}),
        (f"job-{RANK}.out", "job-x.out", None),
        (f"{NODE}-{RANK}-{LOCAL}.log", "gpu-07.a-12-3.log", {"node": "gpu-07.a", "rank": "12", "local": "3"}),
        (f"{RANK}of{RANK}", "7of7", {"rank": "7"}),
        (f"{RANK}of{RANK}", "7of8", None),
        (f"a.{ANY}+(", "a.x\n+(", {}),
        (f"a\udc80{ANY}", "a\udc80b", {}),
        ("a", "aa", None),
    ],
)
def test_what_stands_in_the_gaps(part: str, name: str, values: dict[str, str] | None) -> None:
    assert matcher(part).values(name) == values
