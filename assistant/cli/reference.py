"""Write docs/commands.md from the live commands: `python -m assistant.cli.reference docs/commands.md`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import typer

from assistant.cli.main import COMMANDS, root
from assistant.cli.output import HELP


class DocumentedCommand(NamedTuple):
    """A command of the live table."""

    path: str
    """`nightshift nodes check`."""
    command: Any
    """As Typer's parser has it: `help`, `epilog`, `params`."""

    @property
    def is_group(self) -> bool:
        """Whether the command has subcommands."""
        return hasattr(self.command, "commands")


def live() -> Iterator[DocumentedCommand]:
    """Yield every command and group, in the order of the table, a group before its commands."""
    group = typer.main.get_command(root)
    for name in COMMANDS:
        command = group.get_command(None, name)  # type: ignore[attr-defined]
        yield from _commands_below(f"nightshift {name}", command)


def _commands_below(path: str, command: Any) -> Iterator[DocumentedCommand]:
    yield DocumentedCommand(path, command)
    for name, inner in getattr(command, "commands", {}).items():
        yield from _commands_below(f"{path} {name}", inner)


def page() -> str:
    """Return docs/commands.md."""
    parts = [
        "# Commands",
        "This page is generated: `python -m assistant.cli.reference docs/commands.md`.",
        "Global options stand before the command: `nightshift --store FILE incidents`.",
        f"```\n{HELP}\n```",
    ]
    for command in live():
        parts += _entry(command)
    return "\n\n".join(parts) + "\n"


def _entry(command: DocumentedCommand) -> list[str]:
    depth = command.path.count(" ")
    help_text = inspect.cleandoc(command.command.help or "").partition("\f")[0].replace("\b\n", "")
    parts = [f"{'#' * (depth + 1)} `{command.path}`", help_text]
    rows = [_row(parameter) for parameter in command.command.params if not getattr(parameter, "hidden", False)]
    if rows:
        parts.append("| argument | meaning |\n|---|---|\n" + "\n".join(rows))
    if command.command.epilog:
        parts.append("```\n" + command.command.epilog.replace("\b\n", "").replace("Examples:\n", "").rstrip() + "\n```")
    return parts


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name = parameter.metavar or parameter.name.upper()
    else:
        name = ", ".join([*parameter.opts, *parameter.secondary_opts]) + (f" {parameter.metavar}" if parameter.metavar else "")
    return f"| `{name}` | {parameter.help or ''} |".replace("<", "&lt;")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
