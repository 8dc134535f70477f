"""Numbers on the command line: decimal digits of ASCII from 1 to 2^63-1, or one line that says so; never a bug."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from assistant.cli.output import Exit

Run = Callable[..., Any]
COMMANDS = (
    ("approve",),
    ("deny",),
    ("undo",),
    ("explain",),
    ("incident", "show"),
    ("incident", "ack"),
    ("recover", "--incident"),
    ("audit", "show", "--incident"),
    ("audit", "show", "--after"),
    ("audit", "show", "--limit"),
    ("incidents", "--limit"),
)
REFUSED = ("1_0", "\uff11\uff12", "\u0661", "+3", " 3", "3 ", "0x1", "1e3", "", "9223372036854775808", "9" * 30, "9" * 5000)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_what_is_no_plain_number_is_refused_in_one_line(cli: Run, command: tuple[str, ...]) -> None:
    for text in (*REFUSED, *(() if "--after" in command else ("0",))):
        result = cli(*command, text)
        assert (result.code, result.out) == (Exit.USAGE, ""), text[:40]
        assert "in the digits 0 to 9, found" in result.err, text[:40]
        assert result.err.count("\n") == 1
        assert len(result.err) < 400


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_largest_number_is_taken(cli: Run, command: tuple[str, ...]) -> None:
    result = cli(*command, "9223372036854775807")
    assert "bug" not in result.err
    assert "in the digits" not in result.err


@pytest.mark.parametrize("text", ["1_0", "+3", "9" * 30])
def test_other_numbers_are_bounded_too(cli: Run, text: str) -> None:
    result = cli("logs", "tail", "-n", text, "job.log")
    assert result.code == Exit.USAGE
    assert "in the digits 0 to 9, found" in result.err
