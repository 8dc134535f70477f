"""Curves of training: what a job's log or metrics.jsonl shows of its steps, with what happened marked. Read on a lane."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.errors import InputError
from assistant.records import EventKind, Job, MetricPoint
from assistant.untrusted import open_regular, read_end, reading_as, status_of

if TYPE_CHECKING:
    from assistant.tui.about_incident import IncidentSnapshot

MOST_BYTES = 12 << 20
"""Of a longer log the end is read."""
MOST_POINTS = 1_500
"""Drawn of one run and metric; of more, the lowest and the highest of each stretch."""
NO_STEPS = "its log shows no steps"
METRICS = ("loss", "grad_norm", "seconds")
TITLES = {"loss": "loss", "grad_norm": "gradient norm", "seconds": "seconds per step"}


@dataclass(frozen=True, slots=True)
class MetricRun:
    """The steps of one job."""

    name: str
    path: Path | None
    points: tuple[MetricPoint, ...] = ()
    note: str = ""
    """Why there are no points, or what is left out of them."""
    stamp: tuple[int, int, int] = (0, 0, 0)
    """Inode, size and time of the file, to know whether it must be read again."""
    read_to: int = 0
    """Bytes of the file up to which its lines were read; 0 for one that cannot be read on, such as a gzip."""
    account: str = ""
    """With whose rights the file is read."""


@dataclass(frozen=True, slots=True)
class CurveMark:
    """Something that happened at a step."""

    step: int
    label: str
    colour: str
    """Name of a variable of the theme."""

    @property
    def sign(self) -> str:
        """The letter that tells it from the others without colour."""
        return {"last checkpoint": "C"}.get(self.label, self.label[0].upper())


@dataclass(frozen=True, slots=True)
class CurvesSnapshot:
    """All that the curves of a job or an incident show."""

    runs: tuple[MetricRun, ...]
    """Oldest first: the job, then those that it was restarted as."""
    marks: tuple[CurveMark, ...] = ()

    def has(self, metric: str) -> bool:
        """Tell whether any point has a metric."""
        return any(getattr(point, metric) is not None for run in self.runs for point in run.points)

    @property
    def note(self) -> str:
        """A warning about the curves, empty where there is none."""
        return " · ".join(f"{run.name}: {run.note}" for run in self.runs if run.note)


def incident_curves(snapshot: IncidentSnapshot, previous: CurvesSnapshot | None = None) -> CurvesSnapshot:
    """Return the curves of an incident: of its job, and of its restarts; what has not changed since is not read again."""
    runs_by_path = {run.path: run for run in previous.runs} if previous is not None else {}
    first = snapshot.job
    jobs = [first] if first is not None else []
    runs = [
        job_run(job, runs_by_path)
        for job in (*jobs, *(restart for restart in snapshot.restarts if first is None or restart.id != first.id))
    ]
    if first is None:
        with reading_as(snapshot.account):
            run = _run(snapshot.incident.subject, [snapshot.log] if snapshot.log is not None else [], runs_by_path)
        runs.insert(0, replace(run, account=snapshot.account))
    return CurvesSnapshot(tuple(runs), tuple(_incident_marks(snapshot, runs[0].points)))


def job_curves(job: Job, checkpoint: int | None = None, previous: CurvesSnapshot | None = None) -> CurvesSnapshot:
    """Return the curves of a job; `checkpoint` is the step of its newest healthy one."""
    run = job_run(job, {run_before.path: run_before for run_before in previous.runs} if previous is not None else {})
    marks = [CurveMark(checkpoint, "last checkpoint", "success")] if checkpoint is not None else []
    return CurvesSnapshot((run,), (*_spike_mark(run.points, None), *marks))


def job_run(job: Job, runs_by_path: dict[Path | None, MetricRun]) -> MetricRun:
    """Return the steps of a job, of its log or else of the metrics.jsonl in its folder."""
    metrics = [job.work_dir / "metrics.jsonl"] if job.work_dir is not None else []
    with reading_as(job.account):
        run = _run(f"job {job.id}", [*([job.log] if job.log is not None else []), *metrics], runs_by_path)
    return replace(run, account=job.account)


def _run(name: str, paths: Sequence[Path], runs_by_path: dict[Path | None, MetricRun]) -> MetricRun:
    if not paths:
        return MetricRun(name, None, note="where it logs is not known")
    tried = []
    for path in paths:
        run = runs_by_path.get(path)
        tried.append(read_run(name, path) if run is None else read_on(run, path))
        if tried[-1].points:
            return tried[-1]
    return tried[0]


def read_run(name: str, path: Path) -> MetricRun:
    """Return the steps that a log or a metrics.jsonl shows; a file that cannot be read is a run without points that says why."""
    from assistant.logs.lines import Lines
    from assistant.logs.metrics import metric_points

    stamp = _stamp(path)
    try:
        raw, begin, grows = _end_of(path)
    except (OSError, InputError) as error:
        return MetricRun(name, path, note=getattr(error, "strerror", None) or str(error), stamp=stamp)
    points = tuple(metric_points(Lines([(1, raw)])))
    cut = f"the last {MOST_BYTES >> 20} MiB of {path.name}" if begin else ""
    return MetricRun(name, path, points, cut if points else NO_STEPS, stamp, begin + len(raw) if grows else 0)


def read_on(run: MetricRun, path: Path) -> MetricRun:
    """Return a run with the steps that its file got since; as it is when nothing came, read anew when the file is another one."""
    from assistant.logs.lines import Lines
    from assistant.logs.metrics import metric_points

    stamp = _stamp(path)
    if stamp == run.stamp:
        return run
    if not run.read_to or stamp[0] != run.stamp[0] or stamp[1] < run.read_to:
        return read_run(run.name, path)
    try:
        with open_regular(path) as file:
            file.seek(run.read_to)
            raw = file.read(MOST_BYTES)
    except OSError:
        return read_run(run.name, path)
    raw = raw[: raw.rfind(b"\n") + 1]
    points = (*run.points, *metric_points(Lines([(1, raw)])))
    note = "" if points and run.note == NO_STEPS else run.note
    return replace(run, points=points, note=note, stamp=stamp, read_to=run.read_to + len(raw))


class _End(NamedTuple):
    """The end of a file."""

    raw: bytes
    """Whole lines."""
    begin: int
    """Where it begins."""
    grows: bool
    """Whether more may come behind it."""


def _end_of(path: Path) -> _End:
    """Return the end of a file, from a line's beginning to a line's end."""
    from assistant.logs.reading import open_log

    with open_log(path) as stream:
        if stream.plain is not None and (end := read_end(path, MOST_BYTES)).begin:
            head, _, raw = end.raw.partition(b"\n")
            return _End(raw[: raw.rfind(b"\n") + 1], end.begin + len(head) + 1, True)
        raw = b""
        while len(raw) < MOST_BYTES and (block := stream.read(1 << 20)):
            raw += block
        whole = raw[: raw.rfind(b"\n") + 1] or raw
        return _End(whole, 0, stream.plain is not None)


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        status = status_of(path)
    except OSError:
        return (0, 0, 0)
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def _incident_marks(snapshot: IncidentSnapshot, points: Sequence[MetricPoint]) -> Iterator[CurveMark]:
    diagnosis = snapshot.diagnosis
    yield from _spike_mark(points, diagnosis.spike_step if diagnosis is not None else None)
    last = points[-1].step if points else None
    failed = diagnosis.step if diagnosis is not None and diagnosis.step is not None else last
    if failed is not None:
        word = "failed" if snapshot.incident.kind in (EventKind.JOB_ENDED, EventKind.NODE_DOWN) else "last step seen"
        yield CurveMark(failed, "hang" if snapshot.hung else word, "error")
    if snapshot.times.restart_step is not None:
        yield CurveMark(snapshot.times.restart_step, "restarted from", "success")
    elif (step := _checkpoint_step(snapshot)) is not None:
        yield CurveMark(step, "last checkpoint", "success")


def _checkpoint_step(snapshot: IncidentSnapshot) -> int | None:
    """Return the step of the checkpoint that the playbook chose."""
    for call_entry in reversed(snapshot.calls):
        value: Any = call_entry.outcome.value if call_entry.outcome is not None and call_entry.outcome.ok else None
        if call_entry.call.tool == "choose_checkpoint" and isinstance(value, dict) and value.get("path"):
            return int(value.get("step") or 0)
    return None


def _spike_mark(points: Sequence[MetricPoint], step: int | None) -> list[CurveMark]:
    from assistant.logs.spikes import find_spike

    if step is None:
        spike = find_spike(points)
        step = spike.step if spike is not None else None
    return [CurveMark(step, "spike", "warning")] if step is not None else []


def runs_of(points: Sequence[MetricPoint]) -> list[Sequence[MetricPoint]]:
    """Return the points cut where the steps went back: a line must not run backwards."""
    pieces: list[Sequence[MetricPoint]] = []
    begin = 0
    for at in range(1, len(points)):
        if points[at].step < points[at - 1].step:
            pieces.append(points[begin:at])
            begin = at
    return [*pieces, points[begin:]] if points else []


def line_of(points: Sequence[MetricPoint], metric: str, *, log: bool = False) -> tuple[list[float], list[float]]:
    """Return steps and finite values of a metric, at most about `MOST_POINTS` of them; as powers of ten for a log scale."""
    pairs = [
        (float(point.step), value) for point in points if (value := getattr(point, metric)) is not None and math.isfinite(value)
    ]
    if log:
        pairs = [(step, math.log10(value)) for step, value in pairs if value > 0]
    size = max(1, math.ceil(2 * len(pairs) / MOST_POINTS))
    if size > 1:
        stretches = [pairs[at : at + size] for at in range(0, len(pairs), size)]
        ends = [sorted({min(stretch, key=lambda pair: pair[1]), max(stretch, key=lambda pair: pair[1])}) for stretch in stretches]
        pairs = [pair for both in ends for pair in both]
    return [step for step, _ in pairs], [value for _, value in pairs]


def not_numbers(points: Sequence[MetricPoint], metric: str) -> list[int]:
    """Return the steps at which a metric was NaN or infinite."""
    return [point.step for point in points if (value := getattr(point, metric)) is not None and not math.isfinite(value)]
