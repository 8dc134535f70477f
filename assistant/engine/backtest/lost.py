"""How much training was lost between the last checkpoint that a log tells of and its last step."""

from __future__ import annotations

from datetime import UTC, datetime
from statistics import median

from assistant.logs.lines import Lines
from assistant.logs.metrics import metric_points
from assistant.records import Job
from assistant.recover.joblog import log_lines
from assistant.watch.progress import SaveTrack, tells_of_save

READ_BYTES = 4 << 20
"""Of the end of a log: a run that saves every few thousand steps has its last save there."""
_ANY = datetime(2000, 1, 1, tzinfo=UTC)


def lost_s(job: Job, ran_s: float) -> float | None:
    """Return the seconds of training that have to be done again; None where the log does not tell.

    Args:
        job: With the log as it lies here, not packed.
        ran_s: How long the attempt ran.
    """
    if job.log is None or job.log.suffix == ".gz":
        return None
    lines = log_lines(job, most_bytes=READ_BYTES)
    points = metric_points(lines)
    saved = _last_save(lines, {point.line: point.step for point in points})
    if len(points) < 2 or saved is None:
        return None
    steps = points[-1].step - points[0].step
    told = [point.seconds for point in points if point.seconds]
    per_step = median(told) if told else ran_s / steps if steps > 0 else 0.0
    return max(0, points[-1].step - saved) * per_step


def _last_save(lines: Lines, steps: dict[int, int]) -> int | None:
    track, step = SaveTrack(), 0
    for line in lines:
        step = steps.get(line.number, step)
        if tells_of_save(line.text):
            track.saved(line.text, step, _ANY)
    return track.steps[-1] if track.steps else None
