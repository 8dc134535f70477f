"""How a command ends that does not end well: one line on stderr and the exit code, a traceback only into a file."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import typer

from assistant.cli.exits import Exit, Nagios
from assistant.cli.output import narrate, narrate_block, print_line
from assistant.display import block, shell_words

BAD_COMMAND_LINE: type[Exception] = typer.BadParameter.__mro__[2]
"""What the parser raises; Typer keeps the class in different places from version to version."""

_PLUGINS = {"nightshift nodes check": "NIGHTSHIFT NODES", "nightshift status": "NIGHTSHIFT STATUS"}
_GLOBAL = ("--config", "--store", "--quiet", "-q", "--verbose", "-v")


def complain(message: str, code: int) -> int:
    """Say what went wrong, in one line, and return the exit code."""
    narrate(f"nightshift: error: {message}")
    return code


def interrupted() -> int:
    """Say after Ctrl-C that all is kept."""
    narrate("nightshift: interrupted; nothing is lost: nightshift resume")
    return Exit.INTERRUPTED


def usage(error: Any) -> int:
    """Say what is wrong with the command line and where its help is.

    Returns:
        2; 3 (unknown) for `nodes check` and `status`, whose caller is a Nagios.
    """
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "nightshift"
    if type(error).__name__ == "NoArgsIsHelpError":
        narrate_block(error.format_message())
        return Exit.USAGE
    message = error.format_message().rstrip(".")
    if getattr(error, "option_name", None) in _GLOBAL:
        message = f"{error.option_name} stands before the command: nightshift {error.option_name} ..."
    code = complain(f"{message} (see {path} --help)", Exit.USAGE)
    if path in _PLUGINS:
        print_line(f"{_PLUGINS[path]} UNKNOWN - {message}")
        return Nagios.UNKNOWN
    return code


def crashed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Keep the traceback of a bug in a file and say where; the interpreter then exits with 1."""
    import traceback

    from assistant.redact import redact

    text = redact("".join(traceback.format_exception(kind, error, trace)))
    narrate(f"nightshift: bug: {kind.__name__}: {error}")
    place = _keep(text)
    narrate(f"the traceback is in {place}; please report it") if place else narrate_block(text)
    narrate("what was begun is kept: nightshift resume")


def _keep(text: str) -> Path | None:
    import os
    import tempfile

    from assistant.cli.times import now
    from assistant.errors import ConfigError
    from assistant.private_files import append_private, private_folder
    from assistant.redact import redact

    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    for folder in (home / "nightshift", Path(tempfile.gettempdir()) / f"nightshift-{os.getuid()}"):
        try:
            private_folder(folder)
            with append_private(folder / "crashes.log", encoding="utf-8", errors="backslashreplace") as log:
                log.write(f"--- {now().isoformat()} nightshift {redact(shell_words(sys.argv[1:]))}\n{block(text)}\n")
        except (OSError, ConfigError):
            continue
        return folder / "crashes.log"
    return None
