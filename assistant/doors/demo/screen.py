"""What a person sees of a rehearsal: a timeline that grows line by line, and the job's progress below it on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from assistant.display import line
from assistant.engine import Engine
from assistant.logs.metrics import metric_points
from assistant.logs.tail import Follower
from assistant.nodeset import fold
from assistant.records import Call, Diagnosis, Job, JobState
from assistant.store import Store
from assistant.tooling import find_tool

CITED = 4
WIDEST = 150
_STYLE = {"ok": "green", "bad": "red", "note": "cyan", "act": "yellow"}


class Played(Protocol):
    """What a screen shows: jobs, the engine that looks after them, and what lies in wait."""

    title: str
    steps: int
    engine: Engine

    def jobs(self) -> Sequence[Job]:
        """Return its jobs, oldest first."""
        ...


class Screen:
    """Shows what is new after every look; call it with the rehearsal."""

    def __init__(self, console: Console, *, steps: int) -> None:
        """Prepare the timeline; nothing is printed yet."""
        self._console, self._steps = console, steps
        self._began: datetime | None = None
        self._shown: set[str] = set()
        self._followers: dict[str, Follower] = {}
        self._bar = Progress(TextColumn("{task.description}"), BarColumn(40), TextColumn("{task.fields[loss]}"), console=console)
        self._tasks: dict[str, int] = {}
        self._live = Live(self._bar, console=console, refresh_per_second=8, transient=True) if console.is_terminal else None

    def __enter__(self) -> Screen:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, rehearsal: Played) -> None:
        """Print what has happened since the last call."""
        news = [item for item in _news(rehearsal) if item[0] not in self._shown]
        for key, at, style, text in sorted(news, key=lambda item: item[1]):
            self._shown.add(key)
            self._print(at, style, text)
        for job in rehearsal.jobs():
            self._progress(job)

    def _print(self, at: datetime, style: str, text: str) -> None:
        self._began = self._began or at
        seconds = (at - self._began).total_seconds()
        head, *rest = text.splitlines()
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(width=9, justify="right", no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(Text(f"{seconds:.1f} s", style="dim"), Text(line(head), style=_STYLE[style]))
        for more in rest:
            grid.add_row("", Text(line(more), style="dim"))
        self._console.print(grid)

    def _progress(self, job: Job) -> None:
        if self._live is None or job.log is None:
            return
        follower = self._followers.setdefault(job.id, Follower(job.log))
        points = metric_points(follower.news().lines)
        if job.id not in self._tasks:
            self._tasks[job.id] = self._bar.add_task(f"job {job.id}", total=self._steps, loss="")
        if points:
            loss = f"step {points[-1].step}, loss {points[-1].loss:.3f}" if points[-1].loss is not None else ""
            self._bar.update(self._tasks[job.id], completed=points[-1].step, loss=escape(loss))  # type: ignore[arg-type]


def _news(rehearsal: Played) -> Iterator[tuple[str, datetime, str, str]]:
    """Yield everything that has happened, each with a key that stays the same, when, how it looks and its text."""
    store = rehearsal.engine.store
    jobs = rehearsal.jobs()
    for job in jobs:
        yield from _job_news(job, rehearsal)
    for incident in reversed(store.incidents()):
        for event in store.events(incident.id):
            yield (
                f"event {incident.id} {event.kind}",
                incident.opened,
                "bad",
                f"noticed: {event.kind}, incident {incident.id} opened",
            )
        stages, diagnosis = store.stages(incident.id), store.diagnosis(incident.id)
        if diagnosis is not None and "diagnosed" in stages:
            yield f"diagnosis {incident.id}", stages["diagnosed"], "note", _diagnosis_text(diagnosis)
        for call in store.calls(incident.id):
            yield from _call_news(store, call)
        if incident.state.ended and incident.closed is not None:
            style = "ok" if incident.state == "recovered" else "act"
            yield f"end {incident.id}", incident.closed, style, line(f"incident {incident.id} {incident.state}: {incident.note}")


def _job_news(job: Job, rehearsal: Played) -> Iterator[tuple[str, datetime, str, str]]:
    if job.started is not None and job.nodes:
        fault = f"; fault in wait: {rehearsal.title}" if job.comment == "" else ""
        yield f"start {job.id}", job.started, "note", line(f"job {job.id} ({job.name}) runs on {fold(job.nodes)}{fault}")
    if job.state.ended and job.ended is not None:
        style = "ok" if job.state is JobState.COMPLETED else "bad"
        code = f", exit status {job.exit_code}" if job.exit_code else f", signal {job.signal}" if job.signal else ""
        yield f"end of job {job.id}", job.ended, style, f"job {job.id} {job.state}{code}"


def _diagnosis_text(diagnosis: Diagnosis) -> str:
    lines = [f"diagnosed: {diagnosis.reason} ({diagnosis.category}, confidence {diagnosis.confidence:.2f}) -> {diagnosis.action}"]
    lines += [_cut(f"{cited.file}:{cited.line}: {cited.text.strip()}") for cited in diagnosis.root_cause[:CITED]]
    lines += [_cut(f"node {finding.node}: {finding.why}") for finding in diagnosis.nodes]
    lines += [_cut(f"not {rival.reason}: {rival.speaks_against}") for rival in diagnosis.rivals[:2]]
    return "\n".join(lines)


def _call_news(store: Store, call: Call) -> Iterator[tuple[str, datetime, str, str]]:
    """Show the changes, and the looks that decided something."""
    outcome = store.outcome(call.id)
    if outcome is None or call.step is None:
        return
    value = outcome.value if isinstance(outcome.value, dict) else {}
    if value.get("status") == "waiting":
        return
    note = str(value.get("note", ""))
    changes, what = find_tool(call.tool).risk > 0, call.tool.replace("_", " ")
    if not outcome.ok:
        yield f"call {call.id}", outcome.at, "bad", line(f"{what}: {outcome.error}")
    elif changes:
        yield (
            f"call {call.id}",
            outcome.at,
            "act",
            "\n".join(filter(None, [line(f"{what}: {call.preview}"), _cut(call.why)])),
        )
    elif note:
        yield f"call {call.id}", outcome.at, "note", f"{what}: {_cut(note, 400)}"


def _cut(text: str, widest: int = WIDEST) -> str:
    return line(text, widest)
