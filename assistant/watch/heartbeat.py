"""Read the heartbeat of a job that has one: a small file that its training loop replaces at each step and phase.

    {"job": "4821", "attempt": 0, "step": 1200, "phase": "training", "at": "2026-01-05T02:00:00+00:00"}

`NIGHTSHIFT_HEARTBEAT` in the job's environment, `heartbeat=` in its `#NIGHTSHIFT` lines, or a line `heartbeat: PATH` of its log
name the file; else it is `heartbeat-<job>.json` in the work folder. `assistant.training.heartbeat` writes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from assistant.logs.phases import LogPhase
from assistant.records import Job
from assistant.untrusted import parse_json, read_start, whole_number

VARIABLE = "NIGHTSHIFT_HEARTBEAT"
LARGEST = 4096
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
        path_text = spec.environment.get(VARIABLE, "") or (next(filter(None, match.groups()), "") if match else "")
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
        raw = read_start(path, LARGEST + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return read_beat(raw.decode("utf-8", "replace"), job) if len(raw) <= LARGEST else None
