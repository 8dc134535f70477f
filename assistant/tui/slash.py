"""The commands that begin with a slash: a table, what a line means by it, and how a line may go on. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from assistant.errors import UsageError

MOST_OFFERED = 60
"""Ways to go on that are offered."""


class Takes(StrEnum):
    """What the first argument of a command names, for completion and checks."""

    NOTHING = ""
    INCIDENT = "incident"
    APPROVAL = "approval"
    JOB = "job"
    NODE = "node"
    CALL = "call"
    THEME = "theme"
    TALK = "conversation"
    TEXT = "text"


NUMBERS = frozenset({Takes.INCIDENT, Takes.APPROVAL, Takes.CALL})


@dataclass(frozen=True, slots=True)
class Command:
    """A command that begins with a slash."""

    name: str
    arguments: str
    """As help shows them; in brackets what may be left out."""
    help: str
    """One line."""
    takes: Takes = Takes.NOTHING

    @property
    def needs(self) -> int:
        """How many arguments must be there."""
        return sum(not word.startswith("[") for word in self.arguments.split())

    @property
    def most(self) -> int:
        """How many it may have; the last takes the rest of the line."""
        return len(self.arguments.split())

    @property
    def usage(self) -> str:
        """The command with its arguments, as help shows it."""
        return f"/{self.name} {self.arguments}".rstrip()


COMMANDS = (
    Command("incidents", "", "what is wrong now"),
    Command("waiting", "", "what waits for you"),
    Command("happened", "", "what happened"),
    Command("jobs", "", "the jobs"),
    Command("nodes", "", "the nodes"),
    Command("incident", "N", "open an incident", Takes.INCIDENT),
    Command("job", "ID", "open a job", Takes.JOB),
    Command("node", "NAME", "open a node", Takes.NODE),
    Command("log", "JOB", "read the log of a job", Takes.JOB),
    Command("explain", "N", "write the report of an incident here", Takes.INCIDENT),
    Command("ack", "N [NOTE]", "say that you know of an incident that was handed over", Takes.INCIDENT),
    Command("recover", "JOB", "show what brings a failed job back, and do it once you say yes", Takes.JOB),
    Command("approve", "N", "look at a change that waits, then allow it", Takes.APPROVAL),
    Command("deny", "N [WHY]", "refuse a change that waits", Takes.APPROVAL),
    Command("undo", "CALL", "show what takes a change of Nightshift back, and do it once you say yes", Takes.CALL),
    Command("stop", "[WHY]", "stop every change at once, by the kill switch; /stop --lift asks before it ends that", Takes.TEXT),
    Command("model", "", "what answers here"),
    Command("mode", "", "how far Nightshift may go"),
    Command("theme", "NAME", "other colours", Takes.THEME),
    Command("export", "[FILE]", "write this conversation as Markdown that can be shared", Takes.TEXT),
    Command("resume", "[NAME]", "go on with an earlier conversation; without a name with the one before this", Takes.TALK),
    Command("new", "[NAME]", "begin another conversation", Takes.TEXT),
    Command("clear", "", "clear the screen; the conversation is kept"),
    Command("help", "", "all keys and commands"),
    Command("quit", "", "leave; what runs goes on"),
)
"""All of them, as help lists them."""
_BY_NAME = {command.name: command for command in COMMANDS}


class TypedCommand(NamedTuple):
    """A command as it was typed."""

    command: Command
    arguments: tuple[str, ...]

    @property
    def first(self) -> str:
        """The first argument; empty where there is none."""
        return self.arguments[0] if self.arguments else ""

    @property
    def second(self) -> str:
        """The second argument; empty where there is none."""
        return self.arguments[1] if len(self.arguments) > 1 else ""


class ArgumentValue(NamedTuple):
    """Something that exists, by which an argument may be completed."""

    name: str
    about: str = ""


class CompletionOffer(NamedTuple):
    """One way in which a line may go on."""

    line: str
    """The whole line when it is taken."""
    label: str
    about: str


def is_command(text: str) -> bool:
    """Tell whether a line is a command: `/tmp/job.log is odd` is a question."""
    word = text.strip().partition(" ")[0]
    return word.startswith("/") and "/" not in word[1:]


def parse(text: str) -> TypedCommand:
    """Return the command that a line gives.

    Raises:
        UsageError: It is unknown, or an argument is missing, too many or no number; the message says how it is written.
    """
    words = text.strip()[1:].split(None, 1)
    name = words[0].lower() if words else ""
    command = _BY_NAME.get(name)
    if command is None:
        raise UsageError(_unknown(name))
    tail = words[1].strip() if len(words) > 1 else ""
    arguments = tuple(tail.split(None, command.most - 1)) if tail and command.most else ()
    if tail and not command.most:
        raise UsageError(f"/{name} takes nothing behind it; you wrote {_short(tail)!r}")
    if len(arguments) < command.needs:
        raise UsageError(
            f"/{name} needs {' and '.join(command.arguments.split()[len(arguments) : command.needs])}: {command.usage}"
        )
    if command.takes in NUMBERS:
        arguments = (_number(command, arguments[0]), *arguments[1:])
    elif arguments and command.most == 1 and command.takes is not Takes.TEXT and len(arguments[0].split()) > 1:
        raise UsageError(f"/{name} takes one {command.takes}; you wrote {_short(tail)!r}: {command.usage}")
    return TypedCommand(command, arguments)


def offers(text: str, existing: Callable[[Takes], Iterable[ArgumentValue]]) -> list[CompletionOffer]:
    """Return how a line that begins with a slash may go on, the likeliest first; none when it is no such line.

    Args:
        text: All that stands before the cursor.
        existing: Return what exists of a kind.
    """
    if not text.startswith("/") or "\n" in text or not is_command(text):
        return []
    name, space, typed = text[1:].partition(" ")
    if not space:
        return [_command_offer(command) for command in _starting(name.lower())]
    command = _BY_NAME.get(name.lower())
    if command is None or command.takes is Takes.NOTHING or " " in typed.strip() or typed != typed.strip():
        return []
    more = " " if command.most > 1 else ""
    matching = _fitting(typed, existing(command.takes))
    return [CompletionOffer(f"/{command.name} {entry.name}{more}", entry.name, entry.about) for entry in matching]


def _starting(name: str) -> Sequence[Command]:
    starts = sorted((command for command in COMMANDS if command.name.startswith(name)), key=lambda command: command.name != name)
    within = [command for command in COMMANDS if name and name in command.name and command not in starts]
    return [*starts, *within]


def _command_offer(command: Command) -> CompletionOffer:
    return CompletionOffer(f"/{command.name}{' ' if command.arguments else ''}", command.usage, command.help)


def _fitting(typed: str, existing: Iterable[ArgumentValue]) -> list[ArgumentValue]:
    """Return what begins with what was typed, then what contains it; nothing when it is whole."""
    text = typed.lower()
    starts: list[ArgumentValue] = []
    within: list[ArgumentValue] = []
    for entry in existing:
        if entry.name == typed:
            return []
        place = entry.name.lower().find(text)
        if place == 0 and len(starts) < MOST_OFFERED:
            starts.append(entry)
        elif place > 0 or (text and text in entry.about.lower()):
            within.append(entry)
    return [*starts, *within][:MOST_OFFERED]


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, _BY_NAME, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(f'/{name}' for name in near)}?" if near else "/help lists them"
    return f"there is no command /{_short(name)}; {hint}"


def _number(command: Command, text: str) -> str:
    plain = text.lstrip("#")
    if not (plain.isascii() and plain.isdigit() and len(plain) <= 15):
        raise UsageError(f"/{command.name} takes the number of the {command.takes}, not {_short(text)!r}: {command.usage}")
    return str(int(plain))


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"
