"""The commands that begin with a slash: what a line means, and how it may go on."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from assistant.errors import UsageError
from assistant.tui.commands import COMMANDS, ArgumentValue, Takes, is_command, offers, parse

THERE = {
    Takes.JOB: [
        ArgumentValue("4821", "llama-70b  failed"),
        ArgumentValue("4790", "llama-7b  running"),
        ArgumentValue("14821", "other"),
    ],
    Takes.APPROVAL: [ArgumentValue("1", "cordon node02"), ArgumentValue("12", "cordon node03")],
    Takes.NODE: [ArgumentValue("node01", "idle"), ArgumentValue("node02", "down  ECC")],
}


def known(kind: Takes) -> Iterable[ArgumentValue]:
    return THERE.get(kind, ())


@pytest.mark.parametrize(
    ("line", "name", "arguments"),
    [
        ("/incidents", "incidents", ()),
        ("  /INCIDENTS  ", "incidents", ()),
        ("/incident 3", "incident", ("3",)),
        ("/incident #3", "incident", ("3",)),
        ("/incident 007", "incident", ("7",)),
        ("/deny 2 the node is in maintenance", "deny", ("2", "the node is in maintenance")),
        ("/deny 2", "deny", ("2",)),
        ("/job 4821_3", "job", ("4821_3",)),
        ("/export my notes.md", "export", ("my notes.md",)),
        ("/new", "new", ()),
        ("/theme nightshift-light", "theme", ("nightshift-light",)),
    ],
)
def test_a_line_gives_a_command(line: str, name: str, arguments: tuple[str, ...]) -> None:
    given = parse(line)
    assert (given.command.name, given.arguments) == (name, arguments)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("/incidnet 3", "did you mean /incident"),
        ("/xyzzy", "/help lists them"),
        ("/", "/help lists them"),
        ("/incident", "needs N"),
        ("/deny", "/deny N [WHY]"),
        ("/incident three", "the number of the incident, not 'three'"),
        ("/approve 99999999999999999999", "number"),
        ("/approve ٣", "number"),
        ("/jobs 4821", "takes nothing behind it"),
        ("/job 4821 4790", "takes one job"),
    ],
)
def test_what_cannot_be_done_is_told_with_how_it_is_written(line: str, says: str) -> None:
    with pytest.raises(UsageError, match=r".") as told:
        parse(line)
    assert says in str(told.value)


@pytest.mark.parametrize(
    ("text", "commands"),
    [("/in", True), ("/incident 3", True), ("/", True), ("/tmp/job.log is odd", False), ("why did 4821 die?", False), ("", False)],
)
def test_a_path_at_the_beginning_of_a_question_is_no_command(text: str, commands: bool) -> None:
    assert is_command(text) is commands


def test_all_commands_are_offered_for_a_slash() -> None:
    assert [one.label for one in offers("/", known)] == [command.usage for command in COMMANDS]


def test_a_command_that_is_whole_stands_before_longer_ones() -> None:
    assert [one.line for one in offers("/incident", known)][:2] == ["/incident ", "/incidents"]
    assert [one.line for one in offers("/job", known)][:2] == ["/job ", "/jobs"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("/job ", ["/job 4821", "/job 4790", "/job 14821"]),
        ("/job 48", ["/job 4821", "/job 14821"]),
        ("/job 70b", ["/job 4821"]),
        ("/log 47", ["/log 4790"]),
        ("/node 02", ["/node node02"]),
        ("/node ecc", ["/node node02"]),
        ("/deny 1", []),
        ("/deny ", ["/deny 1 ", "/deny 12 "]),
        ("/deny 1 because", []),
        ("/job 4821", []),
        ("/mode ", []),
        ("/nonsense ", []),
        ("why /job ", []),
        ("/job 4\n8", []),
    ],
)
def test_arguments_are_completed_by_what_exists(text: str, lines: list[str]) -> None:
    assert [one.line for one in offers(text, known)] == lines


def test_thousands_of_names_are_cut() -> None:
    many = [ArgumentValue(f"node{number:04}") for number in range(5_000)]
    assert len(offers("/node node", lambda _: many)) == 60


def test_every_command_says_what_it_does_on_one_line() -> None:
    for command in COMMANDS:
        assert command.help
        assert "\n" not in command.help
    assert len({command.name for command in COMMANDS}) == len(COMMANDS)
