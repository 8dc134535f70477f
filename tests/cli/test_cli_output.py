"""What commands print: clean text, strict JSON, tables that line up, times for people."""

from __future__ import annotations

import io
import json
import logging
from datetime import UTC, datetime, timedelta

import pytest

from assistant.cli import context, output
from assistant.errors import UsageError

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("dirty", "shown"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\rb\x08c\x00d", r"a\rb\x08c\x00d"),
        ("safe\u202etxt.exe", r"safe\u202etxt.exe"),
        ("job\nstate  completed", r"job\nstate  completed"),
        ("größer 损失", "größer 损失"),
    ],
)
def test_a_line_stays_one_and_cannot_steer_the_terminal(dirty: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    output.print_line(dirty)
    output.narrate(dirty)
    assert capsys.readouterr() == (f"{shown}\n", f"{shown}\n")


def test_a_block_keeps_its_lines_and_loses_its_colours(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_block("\x1b[31mred\x1b[0m\tand\r\n\x1b]0;title\x07\nlast")
    assert capsys.readouterr().out == "red\tand\n\\x1b]0;title\\x07\nlast\n"


def test_a_shell_is_offered_plain_words_only() -> None:
    offers = [("node1", "idle\nnode2"), ("node$(reboot)", ""), ("-rf", ""), ("node\n1", ""), ("x1", "")]
    assert output.completions(offers, "") == [("node1", r"idle\nnode2"), ("x1", "")]


def test_json_has_the_schema_and_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_json({"loss": float("nan"), "more": [1.5, {"x": float("inf")}]})
    assert json.loads(capsys.readouterr().out) == {"schema": 1, "loss": None, "more": [1.5, {"x": None}]}


def test_a_table_lines_up_and_has_one_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("id", "note"), [(1, "a\nb"), (22, None), (3, "宽")])
    assert capsys.readouterr().out == "ID  NOTE\n1   a\\nb\n22  -\n3   宽\n"


def test_an_empty_table_has_its_headings(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("id", "note"), [])
    assert capsys.readouterr().out == "ID  NOTE\n"


def test_pairs_leave_out_what_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_pairs([("id", 7), ("nothing", None), ("lines", ["one", "two\nthree"]), ("none", [])])
    assert capsys.readouterr().out == "id     7\nlines  one\n       two\\nthree\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s ago"), (90, "90 s ago"), (240, "4 min ago"), (7200, "2 h ago"), (200_000, "2 d ago"), (-60, "in 60 s")],
)
def test_an_age_is_said_in_one_unit(seconds: int, text: str) -> None:
    assert output.age(NOON - timedelta(seconds=seconds), NOON) == text


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2h", NOON - timedelta(hours=2)),
        ("1.5 d", NOON - timedelta(days=1.5)),
        ("90s", NOON - timedelta(seconds=90)),
        ("2026-02-01T00:00:00+00:00", datetime(2026, 2, 1, tzinfo=UTC)),
    ],
)
def test_since_takes_spans_and_dates(text: str, moment: datetime) -> None:
    assert output.since(text, NOON) == moment


@pytest.mark.parametrize("text", ["", "yesterday", "-2h", "2y", "99999999999w"])
def test_since_refuses_what_is_neither(text: str) -> None:
    with pytest.raises(UsageError, match="--since"):
        output.since(text, NOON)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variables", "stream", "text"),
    [
        ({}, Terminal(), "\x1b[31mred\x1b[0m"),
        ({}, io.StringIO(), "red"),
        ({"NO_COLOR": "1"}, Terminal(), "red"),
        ({"TERM": "dumb"}, Terminal(), "red"),
    ],
)
def test_colour_needs_a_terminal_that_wants_it(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], stream: io.StringIO, text: str
) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert output.coloured("red", "red", stream) == text


def test_a_wide_last_column_is_cut_at_the_edge_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("COLUMNS", "30")
    output.print_table(("id", "note"), [(1, "x" * 100)])
    assert [len(line) for line in terminal.getvalue().splitlines()] == [8, 30]


@pytest.mark.parametrize(
    ("verbosity", "quiet", "heard"),
    [(0, False, ["warning"]), (1, False, ["info", "warning"]), (2, False, ["debug", "info", "warning"]), (2, True, [])],
)
def test_narration_is_as_loud_as_asked_for(
    capsys: pytest.CaptureFixture[str], verbosity: int, quiet: bool, heard: list[str]
) -> None:
    context.listen(verbosity, quiet=quiet)
    speaker = logging.getLogger("assistant.somebody")
    for word in ("debug", "info", "warning"):
        getattr(speaker, word)("%s \x1b[31mfrom a log", word)
    said = capsys.readouterr().err.splitlines()
    assert [line.split()[2] for line in said] == heard
    assert all(line.endswith("from a log") for line in said)
