"""The end of a job's log, for checks that come again and again: bounded, and nothing at all while there is no log."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

from assistant.errors import Unavailable
from assistant.logs.lines import Lines
from assistant.logs.metrics import metric_points
from assistant.records import Job, MetricPoint
from assistant.untrusted import LOOK_S, read_end, reading_as, within

TAIL_BYTES = 16 << 20
CONSUMED = re.compile(r"iteration\s{1,16}(\d{1,15})/.{0,255}?consumed samples:\s{0,16}(\d{1,18})", re.IGNORECASE)
BATCH = re.compile(r"global[ _]batch[ _]size\W+(\d{1,12})", re.IGNORECASE)


def log_lines(job: Job, *, most_bytes: int = TAIL_BYTES) -> Lines:
    """Return the last lines of a job's log; none while it has no log or it cannot be read now."""
    if job.log is None:
        return Lines()
    try:
        with reading_as(job.account):
            raw, begin = within(LOOK_S, partial(read_end, job.log, most_bytes), f"{job.log}")
    except (OSError, Unavailable):
        return Lines()
    # A read from the middle begins inside a line.
    return Lines([(1, raw.partition(b"\n")[2] if begin else raw)])


def log_points(job: Job) -> list[MetricPoint]:
    """Return the metrics that the end of a job's log shows."""
    return metric_points(log_lines(job))


def samples_of(texts: Iterable[str], first: int, end: int) -> tuple[int, int] | None:
    """Return the samples that the steps from `first` (inclusive) to `end` (exclusive) took, None when the log does not tell.

    Exact where the log shows the samples consumed after the steps in question, else by the batch size from the nearest step.
    """
    consumed: dict[int, int] = {}
    batch = 0
    for text in texts:
        if match := CONSUMED.search(text):
            consumed[int(match.group(1))] = int(match.group(2))
        if match := BATCH.search(text):
            batch = int(match.group(1))
    begin, stop = _after(first - 1, consumed, batch), _after(end - 1, consumed, batch)
    return None if begin is None or stop is None else (begin, stop)


def _after(step: int, consumed: dict[int, int], batch: int) -> int | None:
    """Return how many samples were consumed once a step was done."""
    if step in consumed:
        return consumed[step]
    if not batch:
        return None
    nearest = min(consumed, key=lambda known: abs(known - step), default=0)
    return max(0, consumed.get(nearest, 0) + (step - nearest) * batch)
