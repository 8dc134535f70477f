"""The ends of a job's logs, for checks that come again and again: bounded, of one attempt, and nothing while there is none."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from assistant.errors import NightshiftError, ToolError, Unavailable
from assistant.logs.attempt import STREAMS, JobLogs, LogFile, LogFileState, job_logs
from assistant.logs.combined import MAIN, names_of
from assistant.logs.declared import LogOrigin
from assistant.logs.lines import Lines
from assistant.logs.metrics import metric_points
from assistant.logs.program_logs import metric_file_points
from assistant.logs.tail import LogMark
from assistant.records import Checkpoint, Diagnosis, Evidence, Job, JobState, MetricPoint
from assistant.recover.directives import read_directives
from assistant.recover.identity import restart_of
from assistant.recover.restart import Skip
from assistant.tooling import History
from assistant.untrusted import LOOK_S, read_end_from, reading_as, within

TAIL_BYTES = 16 << 20
MOST_READ = 9
"""Logs that are read in a check: the streams of the batch script and the first ranks."""
CONSUMED = re.compile(r"iteration\s{1,16}(\d{1,15})/.{0,255}?consumed samples:\s{0,16}(\d{1,18})", re.IGNORECASE)
BATCH = re.compile(r"global[ _]batch[ _]size\W+(\d{1,12})", re.IGNORECASE)
LEAD_STEPS = 100
"""Before the step of a spike, where the checkpoint is older. Source: PaLM, arXiv 2204.02311, section 5.1: 100 steps before."""
MOST_SKIPPED_STEPS = 500
"""Behind the step of a spike. Source: PaLM, as above: skip 200 to 500 batches."""


def logs_of(job: Job, marks: Sequence[LogMark] = ()) -> JobLogs:
    """Return the logs of the last attempt of a job, looked for with its owner's rights.

    Args:
        job: With its script in `spec` where that is known.
        marks: How long files were before, from `marks_before`.

    Raises:
        Unavailable: The file system does not answer.
    """
    directive = read_directives(job.spec.script).logs if job.spec is not None else ()
    with reading_as(job.account):
        return within(LOOK_S, partial(job_logs, job, marks=marks, directive=directive), f"the logs of job {job.id}")


def marks_before(history: History, job: Job) -> list[LogMark]:
    """Return how long the logs were before a job that Nightshift submitted began, as the incident that it answers has it noted."""
    call = restart_of(history, job)
    if call is None or call.incident is None:
        return []
    return [mark for evidence in history.evidence(call.incident) if evidence.source == LOGS for mark in _marks(evidence.facts)]


LOGS = "job logs"
"""Source of the evidence that says which logs an attempt had and how long they were."""


def noted(logs: JobLogs, at: datetime) -> dict[str, object]:
    """Return facts of evidence from which `marks_before` tells how long each file was."""
    names = dict(zip((file.path for file in logs.readable), names_of(logs.readable), strict=True))
    files = [
        {
            "path": str(file.path),
            "name": names.get(file.path, ""),
            "origin": file.origin.name,
            "how": file.how,
            "state": str(file.state),
            "begin": file.begin,
            "rank": file.rank,
            "node": file.node,
            "inode": file.inode,
            "size_bytes": file.size_bytes,
        }
        for file in logs.files
    ]
    listings = [{"pattern": pattern, "inodes": list(inodes)} for pattern, inodes in logs.listings]
    return {"files": files, "at": at.isoformat(), "listings": listings}


def noted_logs(facts: Mapping[str, Any]) -> JobLogs:
    """Return the logs that evidence of `LOGS` names, as they were then; those that evidence of an older form names not at all."""
    files = []
    for row in facts.get("files", ()):
        try:
            state, origin = LogFileState(row["state"]), LogOrigin[row["origin"]]
            rank = int(row["rank"]) if row["rank"] is not None else None
            log_file = LogFile(
                Path(row["path"]), origin, str(row["how"]), state, begin=int(row["begin"]), rank=rank, node=str(row["node"])
            )
            at = datetime.fromisoformat(str(facts["at"]))
            files.append(replace(log_file, inode=int(row["inode"]), size_bytes=int(row["size_bytes"]), written=at))
        except (KeyError, TypeError, ValueError):
            continue
    return JobLogs(tuple(files))


def log_paths(evidence: Iterable[Evidence]) -> dict[str, Path]:
    """Return where the files lie that citations of an incident name: `job.log` is the name of every job's standard output."""
    paths: dict[str, Path] = {}
    for record in evidence:
        if record.source == "job log" and record.facts.get("path"):
            paths.setdefault(MAIN, Path(str(record.facts["path"])))
        for file in record.facts.get("files", ()) if record.source == LOGS else ():
            if isinstance(file, Mapping) and file.get("name") and file.get("path"):
                paths[str(file["name"])] = Path(str(file["path"]))
    return paths


_CITATION = re.compile(r"(?<![^\s\[({\"'`,;])(?P<before>[(\[{\"'`]{0,4})(?P<name>[^\s:\[({\"'`][^\s:]{0,400})(?=:\d)")
"""A file in front of the number of a line."""


class LogPlaces:
    """Writes citations of log files as their owner can open them: the whole path where a file is first named, then its name."""

    def __init__(self, paths: Mapping[str, Path]) -> None:
        """Take where each cited name lies, from `log_paths`."""
        self._paths = paths
        self._mentions: set[str] = set()

    def written(self, text: str) -> str:
        """Return a text whose citations name the owner's files; numbers of lines stay, for they are those of the files."""
        return _CITATION.sub(self._place, text) if self._paths else text

    def diagnosis(self, diagnosis: Diagnosis) -> Diagnosis:
        """Return a diagnosis for people, whose sentences and citations name the owner's files; it is shown and never kept."""
        cited = tuple(
            replace(citation, file=str(self._paths[citation.file])) if citation.file in self._paths else citation
            for citation in diagnosis.root_cause
        )
        summary, advice = self.written(diagnosis.summary), self.written(diagnosis.advice)
        return replace(diagnosis, root_cause=cited, summary=summary, advice=advice)

    def _place(self, match: re.Match[str]) -> str:
        name = match["name"]
        if name not in self._paths:
            return match[0]
        path, is_repeated = self._paths[name], name in self._mentions
        self._mentions.add(name)
        return f"{match['before']}{path.name if is_repeated else path}"


def _marks(facts: Mapping[str, Any]) -> list[LogMark]:
    try:
        at = datetime.fromisoformat(str(facts["at"]))
        return [
            *(
                LogMark(
                    str(file["path"]),
                    int(file["inode"]),
                    int(file["size_bytes"]),
                    at,
                    by_program=file.get("origin") == LogOrigin.OPEN_FILE.name,
                )
                for file in facts["files"]
                if file["inode"] or file["state"] == LogFileState.MISSING
            ),
            *(
                LogMark(str(listing["pattern"]), 0, 0, at, tuple(map(int, listing["inodes"])))
                for listing in facts.get("listings", ())
            ),
        ]
    except (KeyError, TypeError, ValueError):
        return []


def log_lines(job: Job, *, most_bytes: int = TAIL_BYTES, marks: Sequence[LogMark] = (), sure: bool = False) -> Lines:
    """Return the last lines of a job's logs, file after file; none while it has no log or it cannot be read now.

    Args:
        job: Its last attempt is meant: lines of earlier ones are left out as far as `job_logs` can tell.
        most_bytes: Of all files together.
        marks: From `marks_before`.
        sure: Whether files are left out in which lines of earlier attempts may stand.
    """
    parts = [end.text for _, end in _ends(job, most_bytes, marks, sure=sure)]
    return Lines([(1, b"".join(parts))]) if parts else Lines()


def log_parts(job: Job, *, marks: Sequence[LogMark] = (), sure: bool = False) -> list[tuple[Path, Lines]]:
    """Return the last lines of each of a job's logs that has any; none while it has no log or it cannot be read now.

    Args:
        job: Its last attempt is meant.
        marks: From `marks_before`.
        sure: Whether only lines count that are proven to be this attempt's.
    """
    return [(file.path, Lines([(1, end.text)])) for file, end in _ends(job, TAIL_BYTES, marks, sure=sure)]


def whole_lines(job: Job, marks: Sequence[LogMark] = ()) -> Lines | None:
    """Return all lines of a job's own logs, each from its beginning, file after file.

    None while there are none, where they are too long for that, and where one of them cannot be read now: the beginning may be
    what is missing.

    Args:
        job: Its last attempt is meant; files in which lines of earlier ones may stand are left out.
        marks: From `marks_before`.
    """
    try:
        files = logs_of(job, marks).sure[:MOST_READ]
    except Unavailable:
        return None
    if not files or sum(max(0, file.size_bytes - file.begin) for file in files) > TAIL_BYTES // 2:
        return None
    ends = [_end(job, file, TAIL_BYTES) for file in files]
    parts = [end.text for end in ends if end is not None and end.whole]
    return Lines([(1, b"".join(parts))]) if len(parts) == len(files) and any(parts) else None


def log_points(job: Job, *, marks: Sequence[LogMark] = (), sure: bool = False) -> list[MetricPoint]:
    """Return the metrics that the ends of a job's logs show: those of the file that shows most, else of its metric files.

    Points whose step was only counted are left out; a progress bar in another file counts for what it says of them.

    Args:
        job: Its last attempt is meant.
        marks: From `marks_before`.
        sure: Whether only lines count that are proven to be this attempt's.
    """
    parts = [end.text for _, end in _ends(job, TAIL_BYTES, marks, sure=sure)]
    by_part = [metric_points(Lines([(1, part)])) for part in parts]
    best = max(by_part, key=len, default=[])
    if any(point.counted for point in best):
        own = parts[by_part.index(best)]
        bars = [part for part in parts if part is not own and b"%|" in part]
        best = [point for point in metric_points(Lines([(1, b"".join([own, *bars]))])) if not point.counted]
    if best or job.state is JobState.PENDING:
        return best
    try:
        with reading_as(job.account):
            return within(LOOK_S, partial(metric_file_points, job), f"the metrics of job {job.id}")[0]
    except (OSError, NightshiftError):
        return []


def counted_points(job: Job, *, marks: Sequence[LogMark] = (), sure: bool = False) -> list[MetricPoint]:
    """Return the losses of the log that shows most where its lines number no step; their steps are the counts of lines alone.

    Args:
        job: Its last attempt is meant.
        marks: From `marks_before`.
        sure: Whether only lines count that are proven to be this attempt's.
    """
    return [point for point, _ in counted_lines(job, marks=marks, sure=sure)]


def counted_lines(job: Job, *, marks: Sequence[LogMark] = (), sure: bool = False) -> list[tuple[MetricPoint, str]]:
    """Return the points of `counted_points` with the texts of their lines."""
    parts = [Lines([(1, end.text)]) for _, end in _ends(job, TAIL_BYTES, marks, sure=sure)]
    by_part = [(part, metric_points(part)) for part in parts]
    part, points = max(by_part, key=lambda entry: len(entry[1]), default=(Lines(), []))
    texts = {line.number: line.text for line in part} if any(point.counted for point in points) else {}
    return [(point, texts.get(point.line, "")) for point in points if point.counted]


def _ends(job: Job, most_bytes: int, marks: Sequence[LogMark], *, sure: bool) -> list[tuple[LogFile, _End]]:
    """Return the end of each log that has any lines."""
    try:
        logs = logs_of(job, marks)
    except Unavailable:
        return []
    files = (logs.sure if sure else logs.readable)[:MOST_READ]
    own = [file for file in files if file.origin in STREAMS]
    parts = []
    for file in files:
        share = most_bytes // max(1, len(own)) if file in own else most_bytes // MOST_READ
        if (end := _end(job, file, share)) is not None and end.text:
            parts.append((file, end))
    return parts


class _End(NamedTuple):
    """The end of a log, as whole lines."""

    text: bytes
    whole: bool
    """Whether it is all that the attempt wrote into it."""


def _end(job: Job, file: LogFile, most_bytes: int) -> _End | None:
    try:
        with reading_as(job.account):
            raw, begin = within(LOOK_S, partial(read_end_from, file.path, file.begin, most_bytes), f"{file.path}")
    except (OSError, NightshiftError):
        return None
    # a read from the middle begins inside a line
    raw = raw.partition(b"\n")[2] if begin > file.begin else raw
    return _End(raw if raw.endswith(b"\n") or not raw else raw + b"\n", begin <= file.begin)


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
    nearest = min(consumed, key=lambda step_consumed: abs(step_consumed - step), default=0)
    return max(0, consumed.get(nearest, 0) + (step - nearest) * batch)


class SkipWish(NamedTuple):
    """Which data is to be left out, in steps; zeros leave nothing out."""

    first: int
    end: int
    around: int
    steps: int = 0
    """Least to be left out behind `around`."""


def window_to_skip(job: Job, wish: SkipWish, checkpoint: Checkpoint | None, reached: int | None) -> Skip | None:
    """Return the steps whose data is to be left out; None for a wish that leaves nothing out.

    Raises:
        ToolError: The window is empty.
    """
    if wish.around:
        begin = checkpoint.step + 1 if checkpoint is not None else 1
        steps_behind = max(wish.steps, min((reached or 0) - wish.around, MOST_SKIPPED_STEPS), 0)
        first, end = max(begin, wish.around - LEAD_STEPS), wish.around + steps_behind + 1
    elif wish.first:
        first, end = wish.first, wish.end
    else:
        return None
    if end <= first:
        raise ToolError(f"data cannot be left out from step {first} to step {end}: the end must lie behind")
    return Skip(first, end, samples_of((line.text for line in log_lines(job)), first, end))
