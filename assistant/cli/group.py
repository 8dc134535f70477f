"""How commands are put together: the root group imports a command's module only when it is called.

`nightshift --help` prints the one-line helps that stand in the table, so it starts fast; a test holds them equal to the
commands' own.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

from assistant.cli.coercion import quicken
from assistant.errors import UsageError

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
