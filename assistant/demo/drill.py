"""Run one rehearsal or a row of them, and print how they ended."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from assistant.content.faults import Fault
from assistant.demo.rehearsal import Rehearsal, Result
from assistant.display import json_text, line
from assistant.engine import Engine
from assistant.engine.report import report
from assistant.logs.metrics import metric_points
from assistant.logs.tail import LogFollower
from assistant.nodeset import fold
from assistant.records import Call, Diagnosis, Job, JobState
from assistant.store import Store
from assistant.tooling import find_tool

# What a person sees of a rehearsal: a timeline that grows line by line, and the job's progress below it on a terminal.

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
        self._printed_lines: set[str] = set()
        self._followers: dict[str, LogFollower] = {}
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
        news = [item for item in _news(rehearsal) if item[0] not in self._printed_lines]
        for key, at, style, text in sorted(news, key=lambda item: item[1]):
            self._printed_lines.add(key)
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
        follower = self._followers.setdefault(job.id, LogFollower(job.log))
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


PIPED_WIDTH = 130
"""Columns where no terminal says how many it has."""


class Watched(Played, Protocol):
    """A rehearsal, here or on a cluster."""

    def run(self, show: Callable[[Any], None]) -> Result:
        """Run it to its end."""
        ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...


def run(faults: Sequence[Fault], root: Path, *, as_json: bool, whole: bool) -> list[Result]:
    """Run faults on this machine and print them.

    Args:
        faults: Which.
        root: Each gets a folder in it.
        as_json: One JSON object a rehearsal on stdout, the timeline on stderr.
        whole: Print the incident report, not only the line of the table.
    """
    made = ((fault.title, fault.name, partial(Rehearsal, fault, root / fault.name)) for fault in faults)
    return play(made, as_json=as_json, whole=whole)


def play(rehearsals: Iterable[tuple[str, str, Callable[[], Watched]]], *, as_json: bool, whole: bool) -> list[Result]:
    """Run rehearsals one after the other, print each, then the table.

    Args:
        rehearsals: Title, name, and what makes one.
        as_json: One JSON object a rehearsal on stdout, the timeline on stderr.
        whole: Print the incident reports, too.
    """
    stream = sys.stderr if as_json else sys.stdout
    console = Console(file=stream, highlight=False, width=None if stream.isatty() else PIPED_WIDTH)
    results = []
    for title, name, make in rehearsals:
        console.rule(Text(line(f"{name}: {title}")), style="dim")
        rehearsal = make()
        try:
            with Screen(console, steps=rehearsal.steps) as screen:
                result = rehearsal.run(screen)
            if whole and result.incident is not None:
                console.rule("report", style="dim")
                console.print(Markdown(report(rehearsal.engine.store, result.incident.id)))
        finally:
            rehearsal.close()
        results.append(result)
        for problem in result.problems:
            console.print(Text(line(f"not as expected: {problem}"), style="red"))
        if as_json:
            print(json_text(_plain(result)), flush=True)  # noqa: T201
    console.print(_table(results))
    return results


def _plain(result: Result) -> dict[str, Any]:
    times, diagnosis = result.times, result.diagnosis
    return {
        "schema": 1,
        "fault": result.fault,
        "as_expected": not result.problems,
        "problems": list(result.problems),
        "reason": diagnosis.reason if diagnosis else None,
        "action": str(diagnosis.action) if diagnosis else None,
        "faulty_nodes": list(diagnosis.faulty_nodes) if diagnosis else [],
        "state": str(result.incident.state) if result.incident else None,
        "restarts": len(result.jobs) - 1,
        "detect_s": times.detect_s if times else None,
        "diagnose_s": times.diagnose_s if times else None,
        "resubmit_s": times.resubmit_s if times else None,
        "recover_s": times.recover_s if times else None,
        "steps_lost": times.steps_lost if times else None,
        "seconds": round(result.seconds, 1),
    }


def _table(results: Sequence[Result]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("fault", no_wrap=True)
    table.add_column("diagnosis, then action")
    table.add_column("end", no_wrap=True)
    for column in ("detect", "diagnose", "resubmit", "recover", "lost", "run"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("")
    for result in results:
        plain = _plain(result)
        figures = [_number(plain[name]) for name in ("detect_s", "diagnose_s", "resubmit_s", "recover_s")]
        nodes = f" on {', '.join(plain['faulty_nodes'])}" if plain["faulty_nodes"] else ""
        table.add_row(
            Text(line(result.fault)),
            Text(line(f"{plain['reason'] or '-'}{nodes}, {plain['action'] or '-'}")),
            Text(line(plain["state"] or "-")),
            *figures,
            "-" if plain["steps_lost"] is None else str(plain["steps_lost"]),
            f"{result.seconds:.0f} s",
            Text("ok", style="green") if not result.problems else Text("NOT OK", style="bold red"),
        )
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
