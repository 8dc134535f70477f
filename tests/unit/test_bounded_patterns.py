"""Patterns of content and of sites are matched in time linear in the line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from assistant.content.reading import filters
from assistant.content.reasons import Herring, Role, Signature, reasons
from assistant.errors import ContentError
from assistant.linear_patterns import holds, linear_pattern, named_groups
from assistant.rules.matching import groups, matches

KNOWN: list[Signature | Herring] = [entry for reason in reasons(None).values() for entry in reason.signature]
KNOWN += [entry for reason in reasons(None).values() for entry in reason.herring]


def test_every_shipped_pattern_is_one_that_is_matched_in_linear_time() -> None:
    assert [entry.id for entry in (*KNOWN, *filters(None)) if matches(entry, "\x01")] == []


@pytest.mark.parametrize("pattern", [r"(?:\d+[, ]*)+x", "(a+)+$", "(a|a)*b", r"(?P<node>(?:[a-z]+[0-9]*)+)!"])
def test_a_pattern_that_re_tries_in_exponential_time_ends(pattern: str) -> None:
    """In a process of its own: with `re` it would not end, and nothing could stop it."""
    program = f"from assistant.linear_patterns import *; print(holds(linear_pattern({pattern!r}), '1' * 4000 + 'a' * 4000))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() in ("True", "False")


def test_a_line_of_digits_costs_no_diagnosis() -> None:
    straggler = next(entry for entry in KNOWN if entry.id == "nccl_timeout_error.straggler_names")
    assert groups(straggler, f"rank {'1' * 4_000} x, ranks 3, 7 are missing on node07") == {"node": "node07"}


@pytest.mark.parametrize("pattern", [r"(?=a)b", r"(a)\1", "(?>a+)b", "a{1001}", "["])
def test_what_cannot_be_matched_in_linear_time_is_refused_with_a_reason(pattern: str) -> None:
    with pytest.raises(ContentError, match="write it as RE2 takes it"):
        linear_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "text", "named"),
    [
        (r"x{0,2000}(?P<a>\w+)", "xxxé7", {"a": "x"}),
        (r"[{]0,2000}(?P<a>b)", "{0,2000}b", {"a": "b"}),
        (r"\{0,2000}(?P<a>b)", "{0,2000}b", {"a": "b"}),
        (r"^(?P<a>b)$", "a\nb\nc", {"a": "b"}),
        (r"(?P<a>a)|(?P<b>b)", "b", {"b": "b"}),
        ("(?P<a>é+)", "aéé\udc80", {"a": "éé"}),
    ],
)
def test_groups_are_those_of_re(pattern: str, text: str, named: dict[str, str]) -> None:
    assert named_groups(linear_pattern(pattern), text) == named


def test_signatures_read_the_same_groups_as_re_on_their_examples() -> None:
    import re

    compared = 0
    for entry in KNOWN:
        for example in getattr(entry, "examples", ()):
            flags = re.MULTILINE | re.ASCII | (re.IGNORECASE if getattr(entry, "caseless", False) else 0)
            match = re.search(entry.pattern, example, flags)
            assert (match is not None) == holds(linear_pattern(entry.pattern, caseless=bool(flags & re.IGNORECASE)), example)
            named = {name: value for name, value in match.groupdict().items() if value is not None} if match else {}
            assert groups(entry, example) == named
            compared += bool(named)
    assert compared > 20
    assert {entry.role for entry in KNOWN if isinstance(entry, Signature)} >= {Role.ROOT, Role.SYMPTOM}
