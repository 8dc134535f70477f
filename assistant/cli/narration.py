"""What the engine tells while it works, on stderr: one line each, ids first."""

from __future__ import annotations

import logging
import sys
from typing import Any

_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


def listen(verbosity: int, *, quiet: bool) -> None:
    """Let the engine's log speak on stderr.

    Args:
        verbosity: 0 warnings, 1 each row of the flow, 2 each command.
        quiet: Only errors, whatever the verbosity.
    """
    from assistant.display import line

    class OneLine(logging.Formatter):
        """A message is one line; the lines of a traceback follow it, indented."""

        def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - its name in logging
            return line(super().formatMessage(record))

        def formatException(self, ei: Any) -> str:  # noqa: N802
            return "\n".join(f"    {line(text)}" for text in super().formatException(ei).split("\n"))

    logger = logging.getLogger("assistant")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
    logger.addHandler(handler)
    logger.setLevel(logging.ERROR if quiet else _LEVELS[min(verbosity, len(_LEVELS) - 1)])
