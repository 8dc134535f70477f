"""Is there a terminal to draw on?"""

from __future__ import annotations

import os
import sys

from assistant.errors import UsageError


def need_terminal() -> None:
    """Let a full-screen application go on only where there is a terminal.

    Raises:
        UsageError: Standard input or output is no terminal, or the terminal cannot move its cursor.
    """
    # Textual draws on standard error
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError(
            "the chat needs a terminal, found a pipe or a file; from scripts: nightshift ask, nightshift incidents --json; "
            "over SSH: ssh -t HOST nightshift chat"
        )
    if os.environ.get("TERM", "") in ("", "dumb"):
        raise UsageError(f"the chat needs a terminal that can move its cursor, found TERM={os.environ.get('TERM', '')!r}")
