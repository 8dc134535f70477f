"""What the engine tells while it works, on stderr: one line each, ids first."""

from __future__ import annotations

import logging
import sys

_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


def listen(verbosity: int, *, quiet: bool) -> None:
    """Let the engine's log speak on stderr.

    Args:
        verbosity: 0 warnings, 1 each row of the flow, 2 each command.
        quiet: Only errors, whatever the verbosity.
    """
    from assistant.doors.cli.output import clean

    class Cleaned(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return clean(super().format(record))

    ours = logging.getLogger("assistant")
    for handler in list(ours.handlers):
        ours.removeHandler(handler)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Cleaned("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
    ours.addHandler(handler)
    ours.setLevel(logging.ERROR if quiet else _LEVELS[min(verbosity, len(_LEVELS) - 1)])
