"""How commands are put together: the root group imports a module only when its command is called, and options are shared.

`nightshift --help` prints the one-line helps that stand in the table, so it starts fast; a test holds them equal to the
commands' own. Words of a command line become values without Pydantic, which newer versions of Typer load for it (90 ms a
start): only what is plainly right is taken here; anything else, and every wrong value, goes Typer's own way and gets its
messages. Versions of Typer that do not know this way are left as they are; a test of what `nightshift incidents` imports shows
when a new one goes another.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin

import typer
import typer.core
from typer.core import TyperGroup

from assistant.errors import UsageError


class _Unsure(Exception):
    """The quick way cannot read the value for sure: Typer itself has to."""


class _Quick:
    """Stands where Typer expects what turns a word into a value."""

    def __init__(self, descriptor: Any, slow: Any) -> None:
        self._descriptor = descriptor
        self._slow = slow

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value, or let Typer find it or complain."""
        try:
            if value is None:
                return () if param.multiple or param.nargs == -1 else None
            return _plain(value, self._descriptor.annotation, self._descriptor.parameter_info)
        except _Unsure:
            return self._slow(self._descriptor).coerce(value, param=param, ctx=ctx)


def quicken() -> None:
    """Let Typer go the quick way first, where this version of it has the place for that."""
    slow = getattr(typer.core, "build_runtime_param", None)
    if slow is not None and not isinstance(slow, _Builder):
        setattr(typer.core, "build_runtime_param", _Builder(slow))  # noqa: B010


class _Builder:
    """Stands where Typer expects the function that makes what coerces."""

    def __init__(self, slow: Any) -> None:
        self._slow = slow

    def __call__(self, descriptor: Any) -> _Quick:
        return _Quick(descriptor, self._slow)


def _plain(value: Any, kind: Any, info: Any) -> Any:
    if get_origin(kind) is list and isinstance(value, (list, tuple)):
        return [_plain(item, get_args(kind)[0], info) for item in value]
    if kind in (str, bool) and isinstance(value, kind):
        return value
    if kind is Path and isinstance(value, str) and not info.exists and not info.resolve_path:
        return Path(value)
    if kind is int and not isinstance(value, bool):
        return _number(value, info)
    if isinstance(kind, type) and issubclass(kind, Enum):
        member_value = value if isinstance(value, kind) else {str(member.value): member for member in kind}.get(value)
        if member_value is not None:
            return member_value
    raise _Unsure


def _number(value: Any, info: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.removeprefix("-").isdecimal():
        value = int(value)
    low, high = info.min, info.max
    if not isinstance(value, int) or (low is not None and value < low) or (high is not None and value > high):
        raise _Unsure
    return value


quicken()


class CommandEntry(NamedTuple):
    """Where a command of the root group is found."""

    place: str
    """`module:attribute` of its Typer app."""
    help: str
    """First line of its help."""
    section: str
    """Heading under which `nightshift --help` lists it."""


def app(**settings: Any) -> typer.Typer:
    """Return a Typer app with the settings that all commands share."""
    shared = {
        "rich_markup_mode": None,
        "pretty_exceptions_enable": False,
        "add_completion": False,
        "context_settings": {"help_option_names": ["-h", "--help"]},
    }
    return typer.Typer(**{**shared, **settings})


def examples(*lines: str) -> str:
    """Return the epilog that shows examples as they are, one a line."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


class LazyGroup(TyperGroup):
    """A group whose commands are in a table until one is called."""

    table: Mapping[str, CommandEntry] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names, in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and return a command; None when there is none of that name."""
        entry = self.table.get(cmd_name)
        if entry is not None and cmd_name not in self.commands:
            module, _, attribute = entry.place.partition(":")
            command = typer.main.get_command(getattr(importlib.import_module(module), attribute))
            command.name = cmd_name
            self.commands[cmd_name] = command
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments begin with.

        Raises:
            UsageError: There is none; the message has the nearest names.
        """
        if args and not args[0].startswith("-") and args[0] not in self.table and not ctx.resilient_parsing:
            near = difflib.get_close_matches(args[0], self.table, n=2)
            hint = f"; did you mean {' or '.join(near)}?" if near else "; see nightshift --help"
            raise UsageError(f"there is no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the one-line helps of the table, nothing imported."""
        for section in dict.fromkeys(entry.section for entry in self.table.values()):
            with formatter.section(section):
                formatter.write_dl([(name, entry.help) for name, entry in self.table.items() if entry.section == section])


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Approve what the policy asks about; what it forbids stays forbidden.")]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Print what would be done, and do nothing.")]
Limit = Annotated[int, typer.Option("--limit", min=1, metavar="N", help="Print at most N.")]

ChoiceValue = TypeVar("ChoiceValue")


def one_of(name: str, choices: Mapping[str, ChoiceValue], kind: str, see: str) -> ChoiceValue:
    """Return the value of a name.

    Args:
        name: As the person wrote it.
        choices: All that there is.
        kind: The word for such a thing, for the message.
        see: The command that lists them.

    Raises:
        UsageError: There is none of that name; the message has the nearest ones.
    """
    if name in choices:
        return choices[name]
    near = difflib.get_close_matches(name, choices, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known ones: {see}"
    raise UsageError(f"there is no {kind} {name!r}; {hint}")
