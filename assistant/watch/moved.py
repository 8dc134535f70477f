"""Signs that a job moves: the heartbeat file of its training loop, and what it wrote behind the place read last.

Only what was written since counts, so that the answer is the same after a restart of the watch and right before a change is made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assistant.errors import MalformedContent
from assistant.logs.lines import Line, clean
from assistant.logs.metrics import metric_points
from assistant.logs.phases import LogPhase, counts_of
from assistant.records import Event, EventKind, Job
from assistant.untrusted import parse_json, read_end_from, read_start, status_of, whole_number

READ_UP_TO = "read_up_to"
"""Key of an event's detail: bytes of each log that had been read when it was raised, by path."""
MOST_BYTES = 4 << 20
"""Of one log, from its end: newer lines tell more."""


@dataclass(frozen=True, slots=True)
class Motion:
    """What a job did since it was seen to stand still."""

    goes_on: bool = False
    """Whether it makes steps again."""
    step: int | None = None
    """The newest step beyond the one at which it stood; None where none is known by its number."""
    steps_shown: bool = False
    """Whether it wrote lines with steps since, be it of steps that it had made before."""


def motion_since(job: Job, events: Sequence[Event]) -> Motion:
    """Return what a job has done since the last event of a hang; nothing where that cannot be told.

    A step that it had shown before counts as nothing: another rank may have written it late.

    Args:
        job: As the scheduler shows it.
        events: Of the incident, oldest first.

    Raises:
        OSError: A log cannot be read now.
        Unavailable: Its storage does not answer.
    """
    hang = next((event for event in reversed(events) if event.kind is EventKind.HANG and event.attempt == job.attempt), None)
    if hang is None:
        return Motion()
    stood_at = _number(hang.detail.get("step"))
    marks: Any = hang.detail.get(READ_UP_TO)
    motion = _beaten(job, hang.detail, stood_at)
    for path, begin in marks.items() if isinstance(marks, Mapping) else ():
        motion = _joined(motion, _motion_in_log(Path(str(path)), _number(begin), stood_at))
    return motion


def _joined(first: Motion, second: Motion) -> Motion:
    steps = [motion.step for motion in (first, second) if motion.step is not None]
    return Motion(first.goes_on or second.goes_on, max(steps, default=None), first.steps_shown or second.steps_shown)


def _motion_in_log(path: Path, begin: int | None, stood_at: int | None) -> Motion:
    """Return what was written to a log behind a place; nothing where it is shorter now, so that it is another file."""
    try:
        size = status_of(path).st_size
    except (FileNotFoundError, NotADirectoryError):
        return Motion()
    if begin is None or size <= begin:
        return Motion()
    lines = [
        Line(number, clean(raw_line))
        for number, raw_line in enumerate(read_end_from(path, begin, MOST_BYTES).raw.split(b"\n")[:-1], 1)
    ]
    points = metric_points(lines)
    if not points and stood_at is None and counts_of(lines) is not None:
        return Motion(goes_on=True, steps_shown=True)
    newer = [point.step for point in points if not point.counted and (stood_at is None or point.step > stood_at)]
    counted = stood_at is None and any(point.counted for point in points)
    return Motion(bool(newer) or counted, max(newer, default=None), bool(points))


def _beaten(job: Job, detail: Mapping[str, Any], stood_at: int | None) -> Motion:
    """Return whether the heartbeat has gone on; nothing where there is none."""
    stood, path = _number(detail.get("beat_step")), detail.get("heartbeat")
    beat = last_beat(Path(str(path)), job) if path and stood is not None else None
    if beat is None or stood is None or beat.step <= max(stood, stood_at or 0):
        return Motion()
    return Motion(goes_on=True, step=beat.step, steps_shown=True)


def _number(value: object) -> int | None:
    try:
        return whole_number(value)
    except (MalformedContent, TypeError, ValueError):
        return None


# Read the heartbeat of a job that has one: a small file that its training loop replaces at each step and phase.
#
#     {"job": "4821", "attempt": 0, "step": 1200, "phase": "training", "at": "2026-01-05T02:00:00+00:00"}
#
# `NIGHTSHIFT_HEARTBEAT` in the job's environment, `heartbeat=` in its `#NIGHTSHIFT` lines, or a line `heartbeat: PATH` of its log
# name the file; else it is `heartbeat-<job>.json` in the work folder. `assistant.training.heartbeat` writes it.

HEARTBEAT_VARIABLE = "NIGHTSHIFT_HEARTBEAT"
LARGEST_HEARTBEAT = 4096
"""Bytes; a larger file is no heartbeat."""
_DIRECTIVE = re.compile(r"^\s*#\s?NIGHTSHIFT\b.*?\bheartbeat=(?:\"([^\"]+)\"|'([^']+)'|(\S+))", re.MULTILINE)
_IN_LOG = re.compile(r"(?:^|\s)heartbeat: (/\S+)\s*$")


@dataclass(frozen=True, slots=True)
class HeartbeatReading:
    """What a heartbeat says."""

    step: int
    phase: LogPhase | None
    """None where it names one that is not known."""
    stamp: str
    """What changes with every beat: compared, never computed with, since the node's clock may be wrong."""


def heartbeat_path(job: Job) -> Path | None:
    """Return where the heartbeat of a job would lie; None where that cannot be told."""
    spec, folder = job.spec, job.work_dir
    path_text = ""
    if spec is not None:
        match = _DIRECTIVE.search(spec.script)
        path_text = spec.environment.get(HEARTBEAT_VARIABLE, "") or (next(filter(None, match.groups()), "") if match else "")
    if not path_text and folder is None:
        return None
    path = Path((path_text or f"heartbeat-{job.id}.json").replace("%j", job.id))
    return path if path.is_absolute() else (folder / path if folder is not None else None)


def path_in(text: str) -> Path | None:
    """Return the path of a heartbeat that a line of a log names."""
    match = _IN_LOG.search(text) if "heartbeat: /" in text else None
    return Path(match[1]) if match else None


def read_beat(text: str, job: Job) -> HeartbeatReading | None:
    """Return what a heartbeat file says; None where it is another job's, another attempt's, or no heartbeat."""
    try:
        fields = parse_json(text)
        step, phase, at = whole_number(fields["step"]), str(fields.get("phase", "")), str(fields["at"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    if str(fields.get("job", job.id)) != job.id or fields.get("attempt", job.attempt) != job.attempt:
        return None
    return HeartbeatReading(step, LogPhase(phase) if phase in tuple(LogPhase) else None, f"{at} {step} {phase}")


def last_beat(path: Path | None, job: Job) -> HeartbeatReading | None:
    """Return the last beat of a job; None where it has no heartbeat.

    Raises:
        OSError: There is one, and it cannot be read now: that is unknown, not silent.
    """
    if path is None:
        return None
    try:
        raw = read_start(path, LARGEST_HEARTBEAT + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return read_beat(raw.decode("utf-8", "replace"), job) if len(raw) <= LARGEST_HEARTBEAT else None
