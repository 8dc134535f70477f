"""One run of the demo, or a row of them: a fresh embedded cluster, a fault that lies in wait, a real job, the engine, a report.

The engine looks after the job while its events are printed; at the end stands how each run ended, against what was expected.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
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

from assistant.config import Settings, WatchSettings
from assistant.content.faults import Expect, Fault
from assistant.demo.job import NODES, POLL_S, STEPS, arm, demo_job
from assistant.display import json_text, line
from assistant.engine import Engine
from assistant.engine.ownership import owner_name
from assistant.engine.report import Times, report, times_of
from assistant.errors import StoreError
from assistant.logs.metrics import metric_points
from assistant.logs.tail import LogFollower
from assistant.nodeset import fold
from assistant.policy import Mode, load_policy
from assistant.ports import SystemClock
from assistant.records import Call, Diagnosis, Incident, IncidentState, Job, JobState
from assistant.schedulers.local import LocalScheduler
from assistant.store import Store
from assistant.tooling import find_tool
from assistant.wiring import build, local_folder

PATIENCE_S = 90.0
"""A run that has not ended by then is a failed rehearsal."""


@dataclass(frozen=True)
class RehearsalResult:
    """How a rehearsal ended."""

    fault: str
    incident: Incident | None
    diagnosis: Diagnosis | None
    times: Times | None
    jobs: tuple[Job, ...]
    seconds: float
    """The whole run, wall time."""
    problems: tuple[str, ...]
    """What is not as the fault's file expects; empty when the rehearsal went as it should."""


class DemoRun:
    """A cluster in a folder, with a fault armed."""

    def __init__(self, fault: Fault, folder: Path) -> None:
        """Make the cluster; nothing runs yet.

        Raises:
            StoreError: The folder holds a rehearsal already.
        """
        self.fault, self.folder, self.title = fault, folder, fault.title
        self.settings = demo_settings(folder / "state")
        if self.settings.store.exists():
            raise StoreError(f"{folder} holds an earlier rehearsal; name an empty folder, or remove it")
        clock = SystemClock()
        self.cluster = LocalScheduler(local_folder(self.settings), clock, nodes=NODES)
        policy = dataclasses.replace(load_policy(), mode=Mode.ACT, kill_switch=(folder / "stop",))
        self.engine: Engine = build(self.settings, clock=clock, scheduler=self.cluster, policy=policy, since=clock.now())
        self.steps = fault.steps or STEPS
        self.spec = demo_job(folder / "run", steps=self.steps)
        self.struck = arm(fault, self.cluster, self.spec)

    def run(self, show: Callable[[DemoRun], None]) -> RehearsalResult:
        """Submit the job and look after it until everything has ended.

        Args:
            show: Called after every look, to show what is new.
        """
        _ = self.engine.knowledge  # compiled before anything happens, as in a watchdog that has been up for a while
        began, owner = time.monotonic(), owner_name("demo")
        self.cluster.submit(self.spec)
        try:
            while time.monotonic() - began < PATIENCE_S:
                # a job that ends after the look is seen by the next one
                looked_at_its_end = self._over()
                self.engine.tick(owner=owner)
                show(self)
                if looked_at_its_end and self._over():
                    break
                time.sleep(POLL_S)
        finally:
            self._stop_everything()
        return self._result(time.monotonic() - began)

    def jobs(self) -> Sequence[Job]:
        """Return its jobs, oldest first."""
        return self.cluster.jobs()

    def close(self) -> None:
        """Close the store."""
        self.engine.store.close()

    def _over(self) -> bool:
        jobs = self.cluster.jobs()
        incidents = self.engine.store.incidents()
        return all(job.state.ended for job in jobs) and all(incident.state.ended for incident in incidents)

    def _stop_everything(self) -> None:
        for job in self.cluster.jobs():
            if not job.state.ended:
                self.cluster.cancel(job.id)

    def _result(self, seconds: float) -> RehearsalResult:
        store, jobs = self.engine.store, tuple(self.cluster.jobs())
        incidents = store.incidents()
        first = incidents[-1] if incidents else None
        diagnosis = store.diagnosis(first.id) if first is not None else None
        problems = differences(self.fault.expect, self.struck, incidents, diagnosis, jobs)
        times = times_of(store, first.id) if first is not None else None
        return RehearsalResult(self.fault.name, first, diagnosis, times, jobs, seconds, tuple(problems))


def demo_settings(state: Path) -> Settings:
    """Return settings for a cluster that lives in a folder and is looked at several times a second."""
    return Settings(
        scheduler="local",
        state_folder=state,
        store=state / "nightshift.db",
        commands={"kernel_log": ("cat", "kernel.log")},
        watch=WatchSettings(poll_s=POLL_S, hang_after_s=8.0, hang_factor=6.0, spike_patience_steps=8),
    )


def differences(
    expect: Expect, struck: str, incidents: list[Incident], diagnosis: Diagnosis | None, jobs: tuple[Job, ...]
) -> list[str]:
    """Return in what a rehearsal differs from what its fault's file expects, in words."""
    if not incidents or diagnosis is None:
        return ["nothing was noticed: no incident was opened"]
    nodes = tuple(struck if node == "{node}" else node for node in expect.nodes)
    final = incidents[0].state
    expectations: list[tuple[str, object, object]] = [
        ("category", expect.category, diagnosis.category),
        ("action", expect.action, diagnosis.action),
        ("nodes", nodes, diagnosis.faulty_nodes),
        ("end", expect.final, final),
        ("incidents", 1, len(incidents)),
        ("restarts", int(expect.restarted), len(jobs) - 1),
    ]
    problems = [
        f"{name}: wanted {_words(expected)}, found {_words(actual)}"
        for name, expected, actual in expectations
        if expected != actual
    ]
    if diagnosis.reason not in (expect.reason, *expect.also):
        problems.insert(0, f"reason: wanted {expect.reason}, found {diagnosis.reason}")
    if expect.final is IncidentState.RECOVERED and jobs[-1].state is not JobState.COMPLETED:
        problems.append(f"the restarted job {jobs[-1].id} is {jobs[-1].state}, not completed")
    return problems


def _words(value: object) -> str:
    return (", ".join(map(str, value)) or "none") if isinstance(value, tuple) else str(value)


# What a person sees of a rehearsal: a timeline that grows line by line, and the job's progress below it on a terminal.

CITED = 4
WIDEST = 150
_STYLE = {"ok": "green", "bad": "red", "note": "cyan", "act": "yellow"}


class ShownRun(Protocol):
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

    def __call__(self, rehearsal: ShownRun) -> None:
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
        head, *further_lines = text.splitlines()
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(width=9, justify="right", no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(Text(f"{seconds:.1f} s", style="dim"), Text(line(head), style=_STYLE[style]))
        for further_line in further_lines:
            grid.add_row("", Text(line(further_line), style="dim"))
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


def _news(rehearsal: ShownRun) -> Iterator[tuple[str, datetime, str, str]]:
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


def _job_news(job: Job, rehearsal: ShownRun) -> Iterator[tuple[str, datetime, str, str]]:
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
    changes, tool_name = find_tool(call.tool).risk > 0, call.tool.replace("_", " ")
    if not outcome.ok:
        yield f"call {call.id}", outcome.at, "bad", line(f"{tool_name}: {outcome.error}")
    elif changes:
        yield (
            f"call {call.id}",
            outcome.at,
            "act",
            "\n".join(filter(None, [line(f"{tool_name}: {call.preview}"), _cut(call.why)])),
        )
    elif note:
        yield f"call {call.id}", outcome.at, "note", f"{tool_name}: {_cut(note, 400)}"


def _cut(text: str, widest: int = WIDEST) -> str:
    return line(text, widest)


PIPED_WIDTH = 130
"""Columns where no terminal says how many it has."""


class PlayableRun(ShownRun, Protocol):
    """A rehearsal, here or on a cluster."""

    def run(self, show: Callable[[Any], None]) -> RehearsalResult:
        """Run the rehearsal to its end."""
        ...

    def close(self) -> None:
        """Remove the cluster and its jobs."""
        ...


def run(faults: Sequence[Fault], root: Path, *, as_json: bool, whole: bool) -> list[RehearsalResult]:
    """Run faults on this machine and print them.

    Args:
        faults: Which.
        root: Each gets a folder in it.
        as_json: One JSON object a rehearsal on stdout, the timeline on stderr.
        whole: Print the incident report, not only the line of the table.
    """
    rehearsals = ((fault.title, fault.name, partial(DemoRun, fault, root / fault.name)) for fault in faults)
    return play(rehearsals, as_json=as_json, whole=whole)


def play(rehearsals: Iterable[tuple[str, str, Callable[[], PlayableRun]]], *, as_json: bool, whole: bool) -> list[RehearsalResult]:
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


def _plain(result: RehearsalResult) -> dict[str, Any]:
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


def _table(results: Sequence[RehearsalResult]) -> Table:
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
