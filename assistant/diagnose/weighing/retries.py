"""Tell whether a log ends in attempts that go on failing: the same call tried again and again, and nothing done in between.

Each such line is called mild by its program, which goes on; that the last thing it does is to try in vain is no good end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.logs.lines import Line

LAST, FEWEST, SHARE = 12, 3, 0.6
"""Lines at the end that are looked at, attempts among them, and their share."""
MOST_OF_LINE = 500
_FAILS = r"fail\w*|errors?|time[sd]?[- ]?out\w*|\w*Timeout\w*|\w*Error|refused|unreachable|unavailable|no route|reset by peer|5\d\d"
_TRIES = r"retry(?:ing)?|retries|(?:re)?try(?:ing)? again|attempt(?:s|ing)?|tries|reconnect(?:ing)?"
_TRIES += r"|giving up|gave up|back(?:ing)?[- ]?off"
_ATTEMPT = re.compile(rf"\b(?:{_TRIES})\b.{{0,160}}\b(?:{_FAILS})\b|\b(?:{_FAILS})\b.{{0,240}}\b(?:{_TRIES})\b", re.IGNORECASE)
_SUCCEEDED = re.compile(
    r"\b(?:succe\w+|connected|recovered|resumed|restored|done|finished|complete[d]?|established|ok)\b", re.IGNORECASE
)
_REPORTS = re.compile(r"\b(?:wandb|mlflow|neptune|comet|clearml|telemetry|analytics|sentry|tensorboard)\b", re.IGNORECASE)
"""Services to which a program only reports, and without which its work goes on."""


def failing_attempts(lines: Sequence[Line], last_step: int) -> tuple[Line, ...]:
    """Return the first and the last of the attempts that a log ends in; empty where it ends in anything else.

    Args:
        lines: The end of the log, without blank lines.
        last_step: Line of the last sign of progress; 0 without any.
    """
    end = [line for line in lines[-LAST:] if line.number > last_step]
    attempts = [line for line in end if is_attempt(line.text)]
    if len(attempts) < FEWEST or len(attempts) < SHARE * len(end):
        return ()
    lines_after = [line for line in end if line.number > attempts[-1].number]
    if any(_SUCCEEDED.search(line.text[:MOST_OF_LINE]) for line in lines_after):
        return ()
    return attempts[0], attempts[-1]


def is_attempt(text: str) -> bool:
    """Tell whether a line says that an attempt failed and is, or was, made again."""
    head = text[:MOST_OF_LINE]
    return _ATTEMPT.search(head) is not None and _REPORTS.search(head) is None and _SUCCEEDED.search(head) is None
