"""What a command reaches the engine by: settings, store and engine, each made when first asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from assistant.doors.cli.output import narrate

if TYPE_CHECKING:
    import typer


@dataclass
class Door:
    """One run of the command line, with its global options."""

    config: Path | None = None
    """Settings file instead of the usual ones."""
    store_path: Path | None = None
    """Store instead of the configured one."""
    quiet: bool = False
    verbose: int = 0

    @cached_property
    def site(self) -> Path | None:
        """The folder with the site's own playbooks and knowledge."""
        return None

    def say(self, text: object) -> None:
        """Narrate on stderr, unless --quiet."""
        if not self.quiet:
            narrate(text)


def user() -> str:
    """Return who runs the command, for `by` of calls and approvals."""
    import getpass
    import os

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid{os.getuid()}"


def door_of(context: typer.Context) -> Door:
    """Return the door of this run."""
    return context.find_root().ensure_object(Door)
