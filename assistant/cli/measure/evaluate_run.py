"""Begin, go on with, show and clean up evaluations: settings and gate on one side, the coordinator on the other.

While one runs, a terminal shows a live table of trials by node, and anything else gets plain lines.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assistant.cli.context import Invocation
from assistant.cli.output import narrate, user
from assistant.display import line
from assistant.errors import InputError, StoreBusy, ToolError, UsageError
from assistant.evaluation.coordinator import Coordinator
from assistant.evaluation.files import Journal, RunFolder, is_held, locked, read_json, took
from assistant.evaluation.model_cache import listing, total
from assistant.evaluation.plan_inputs import Measured, Priors, estimator, planner
from assistant.evaluation.results import (
    EvaluationProgress,
    EvaluationReport,
    RunActivity,
    duration,
    markdown,
    progress_of,
    report_of,
)
from assistant.evaluation.stage import Model, mark_of
from assistant.evaluation.suite import RunSpec, load_asked, load_suite
from assistant.private_files import create_private
from assistant.records import CallStatus, JobSpec
from assistant.store.past_runs import EvaluationRun

if TYPE_CHECKING:
    from assistant.config import Settings
    from assistant.engine import Engine
    from assistant.evaluation.coordinator import Coordinator
    from assistant.gate import Gate


DEMO_CPUS = 3
"""Of each node of the demo: one for its trial, two for metrics."""


def runs(settings: Settings) -> list[EvaluationReport]:
    """Return what came of all runs, oldest first."""
    files = sorted(runs_folder(settings).glob("*/run.json"), key=lambda path: path.stat().st_mtime)
    return [report_of(path.parent) for path in files]


def begin(invocation: Invocation, wish: EvaluationRequest, *, live: bool) -> EvaluationReport:
    """Prepare a run, run it to its end, and return what came of it.

    Raises:
        UsageError: The suite, the model or the number of nodes is wrong; nothing was submitted.
        Stuck: No node was left that could evaluate.
    """
    engine = invocation.engine()
    folder = prepare(engine, invocation.settings, wish)
    invocation.say(f"run {folder.id}: what is done is kept in {folder.path}")
    return _run(invocation, engine, folder, live=live)


def resume(invocation: Invocation, run: str, *, live: bool) -> EvaluationReport:
    """Go on with a run, and return what came of it; one that is finished is only reported.

    Raises:
        UsageError: There is no such run.
        StoreBusy: Another process is at work on it.
    """
    folder = RunFolder(runs_folder(invocation.settings) / run)
    load_asked(folder)
    if Journal(folder).state.finished:
        return report_of(folder.path)
    return _run(invocation, invocation.engine(), folder, live=live)


def demo(invocation: Invocation, *, nodes: int, live: bool) -> EvaluationReport:
    """Train a tiny model, evaluate it on a scheduler of its own, and return what came of it; nothing of it is kept."""
    from assistant.evaluation.demo_model import write_demo
    from assistant.ports import SystemClock
    from assistant.schedulers.local import LocalScheduler
    from assistant.wiring import build, local_folder

    root = Path(tempfile.mkdtemp(prefix="nightshift-evaluate-"))
    try:
        evaluation = replace(invocation.settings.evaluation, folder=None, memory="", fetch="", load_s=0.5, fetch_s=1.0, poll_s=0.2)
        settings = replace(
            invocation.settings, scheduler="local", state_folder=root, store=root / "nightshift.db", evaluation=evaluation
        )
        invocation.say("training a tiny model, and making up ten datasets …")
        suite = write_demo(root / "demo")
        cluster = LocalScheduler(local_folder(settings), SystemClock(), nodes=nodes, cpus=DEMO_CPUS)
        engine = build(settings, scheduler=cluster)
        invocation.at_end.append(engine.store.close)
        folder = prepare(engine, settings, EvaluationRequest(suite, "", nodes))
        return _run(invocation, engine, folder, live=live, settings=settings)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def clean(invocation: Invocation, run: str = "") -> tuple[str, ...]:
    """End what crashed runs left and free the memory of their nodes; return the nodes that could not be reached."""
    engine, unreached = invocation.engine(), set[str]()
    root = runs_folder(invocation.settings)
    if run:
        load_asked(RunFolder(root / run))
    for path in [root / run] if run else sorted(file.parent for file in root.glob("*/run.json")):
        folder = RunFolder(path)
        if is_held(folder.lock) and not run:
            continue
        state = Journal(folder).state
        if not state.touched and not any(state.live()):
            continue
        with _locked(folder):
            settle(engine, folder)
            nodes = _coordinator(engine, folder, invocation.settings).clean()
        unreached |= set(nodes)
        note = f"; not reached: {', '.join(nodes)}" if nodes else ""
        invocation.say(f"run {folder.id}: memory of its nodes was given back{note}")
    return tuple(sorted(unreached))


def _run(
    invocation: Invocation, engine: Engine, folder: RunFolder, *, live: bool, settings: Settings | None = None
) -> EvaluationReport:

    run_settings = settings or invocation.settings
    with _locked(folder):
        settle(engine, folder)
        run = _coordinator(engine, folder, run_settings)
        try:
            with progress_display(live=live and not invocation.quiet) as look:
                run.run(poll_s=run_settings.evaluation.poll_s, look=look)
        except KeyboardInterrupt:
            invocation.say(
                f"jobs that run go on; nightshift evaluate --resume {folder.id}, or end them: --clean --resume {folder.id}"
            )
            raise
    _keep(engine, folder)
    report = report_of(folder.path)
    with create_private(folder.path / "results.md", encoding="utf-8") as file:
        file.write(markdown(report))
    if run.uncleaned:
        invocation.say(
            f"a model may still lie in the memory of {', '.join(run.uncleaned)}; free it later: nightshift evaluate --clean"
        )
    return report


@contextmanager
def _locked(folder: RunFolder) -> Iterator[None]:
    """Be the one coordinator of a run.

    Raises:
        StoreBusy: Another process is.
    """
    try:
        with locked(folder.lock, wait_s=0.0):
            yield
    except TimeoutError:
        raise StoreBusy(f"another nightshift evaluate is at work on run {folder.id}; wait for it or end it") from None


def _coordinator(engine: Engine, folder: RunFolder, settings: Settings) -> Coordinator:
    request = load_asked(folder)
    size = request.model.size_bytes or 0
    estimates = estimator(
        Priors.load(settings.content), request.datasets, past_measurements(engine), run=folder.id, model_bytes=size
    )
    gated = GatedJobs(engine.gate, folder, by=f"cli:{user()}")
    return Coordinator(
        folder, engine.scheduler, engine.clock, planner, submit=gated.submit, cancel=gated.cancel, estimator=estimates
    )


def _keep(engine: Engine, folder: RunFolder) -> None:
    """Keep what datasets took, so that the next evaluation is planned better."""
    request, now = load_asked(folder), engine.clock.now()
    metrics = {dataset.name: (read_json(folder.score(dataset.name)) or {}).get("metric_s", 0.0) for dataset in request.datasets}
    items = {dataset.name: dataset.items for dataset in request.datasets}
    rows = []
    for piece in folder.pieces():
        measured = took(folder, piece)
        if measured is None or piece.dataset not in items:
            continue
        metric_s = metrics[piece.dataset] * piece.items / items[piece.dataset]
        row = (folder.id, piece.dataset, piece.first, piece.last, measured.infer_s, metric_s)
        rows.append(EvaluationRun(*row, request.model.source, request.model.size_bytes or 0, now, measured.prepare_s))
    engine.store.keep_evaluation(rows)


# The jobs of an evaluation, handed in and ended by way of the gate: written down, within the policy, undone by `nightshift undo`.
#
# The person who typed the command has approved them.

SUBMIT, END = "submit_evaluation_job", "end_evaluation_job"


class GatedJobs:
    """Submits and ends the jobs of one run."""

    def __init__(self, gate: Gate, folder: RunFolder, *, by: str) -> None:
        """Let a person's jobs pass a gate."""
        self._gate, self._folder, self._by = gate, folder, by

    def submit(self, number: int, spec: JobSpec) -> str:
        """Hand a job in and return its id.

        Raises:
            ToolError: The scheduler refused it.
            Denied: The policy did.
        """
        node = (read_json(self._folder.job(number) / "job.json") or {}).get("node", "")
        value = self._call(SUBMIT, {"number": number, "nodes": [node] if node else []}, f"{spec.name} {number}")
        return str(value["job"])

    def cancel(self, number: int, job: str) -> None:
        """End a job.

        Raises:
            ToolError: The scheduler refused that.
            Denied: The policy did.
        """
        self._call(END, {"number": number, "job": job}, f"end job {number}")

    def _call(self, tool: str, arguments: dict[str, Any], about: str) -> dict[str, Any]:
        why = f"evaluation {self._folder.id}: {about}"
        call_arguments = {"run": str(self._folder.path), **arguments}
        outcome = self._gate.call(tool, call_arguments, why=why, by=self._by, approved_by=self._by)
        if not outcome.ok:
            raise ToolError(outcome.error)
        return dict(outcome.value)


def settle(engine: Engine, folder: RunFolder) -> None:
    """Find out what came of calls for a run that a crash cut short.

    Raises:
        Unavailable: The scheduler does not answer, so nobody can tell.
    """
    for call in engine.store.calls(status=CallStatus.INTENT):
        if call.tool in (SUBMIT, END) and call.arguments.get("run") == str(folder.path):
            engine.gate.resolve(call)


# Make a run of what a person asked for: everything that can be checked before anything is submitted is checked here.


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """What a person asked for on the command line."""

    suite: Path
    model: str
    nodes: int
    from_storage: bool = False
    retries: int = 2


def runs_folder(settings: Settings) -> Path:
    """Return the folder of all runs."""
    return (settings.evaluation.folder or settings.state_folder / "evaluations").absolute()


def prepare(engine: Engine, settings: Settings, wish: EvaluationRequest) -> RunFolder:
    """Check what was asked, write it into the folder of a new run, and return that.

    Raises:
        UsageError: Something is wrong with it.
    """
    priors = Priors.load(settings.content)
    suite = load_suite(wish.suite, {name: prior.items for name, prior in priors.by_dataset.items()})
    source = wish.model or suite.model
    if not source:
        raise UsageError(f"{wish.suite} names no model: name one with --model PATH")
    options = settings.evaluation
    size = None if options.fetch else _size(source)
    most = max(dataset.gpus for dataset in suite.datasets)
    if most > options.gpus_per_node:
        name = next(dataset.name for dataset in suite.datasets if dataset.gpus == most)
        raise UsageError(
            f"{name} needs {most} GPUs of one node; evaluation.gpus_per_node says that nodes have {options.gpus_per_node}"
        )
    nodes = [node for node in engine.scheduler.nodes() if options.partition in ("", node.partition)]
    if wish.nodes > len(nodes):
        raise UsageError(f"--nodes {wish.nodes}: the scheduler has {len(nodes)} that may be used; a run takes more when they come")
    folder = RunFolder(runs_folder(settings) / _name(suite.title, engine))
    limit = int(options.memory_limit_gib * (1 << 30)) or None
    # behind a fetch command nobody can tell whether it is still the same, so each run fetches its own
    mark = folder.id if options.fetch else mark_of(Path(source))
    place = source if options.fetch else str(Path(source).absolute())
    model = Model(place, options.fetch, size, limit, str(folder.digests), mark)
    learned = priors.learn(suite.datasets, past_measurements(engine), run=folder.id, model_bytes=size or 0)
    RunSpec(
        model,
        suite.datasets,
        learned.estimates(suite.datasets),
        memory=options.memory or _memory(engine, settings),
        nodes=wish.nodes,
        gpus_per_node=options.gpus_per_node,
        cpus_per_node=options.cpus_per_node,
        title=suite.title,
        from_storage=wish.from_storage,
        python=options.python or sys.executable,
        partition=options.partition,
        metric_partition=options.metric_partition,
        gpu_option=options.gpu_option,
        no_gpu_option=options.no_gpu_option,
        options=options.options,
        retries=wish.retries,
        load_s=options.load_s,
        fetch_s=options.fetch_s,
    ).save(folder)
    return folder


def past_measurements(engine: Engine) -> list[Measured]:
    """Return what datasets took in past evaluations."""
    return [
        Measured(
            evaluation.run,
            evaluation.dataset,
            evaluation.items,
            evaluation.infer_s,
            evaluation.metric_s,
            evaluation.prepare_s,
            evaluation.model_bytes,
        )
        for evaluation in engine.store.evaluations()
    ]


def _size(source: str) -> int:
    try:
        return total(listing(Path(source)))
    except OSError as error:
        hint = "name a file or folder that all nodes see, or set evaluation.fetch to the command that brings it"
        raise InputError(f"model {source} cannot be read: {error}; {hint}") from error


def _name(title: str, engine: Engine) -> str:
    words = re.sub(r"[^A-Za-z0-9_+-]+", "-", title).strip("-")[:60] or "run"
    return f"{words}-{engine.clock.now():%Y%m%d-%H%M%S}-{os.getpid() % 1000:03}"


def _memory(engine: Engine, settings: Settings) -> str:
    """Return the folder in a node's memory; nodes of the embedded scheduler share one memory and get a folder each."""
    own = f"/dev/shm/nightshift-{os.getuid()}"
    if engine.scheduler.name != "local":
        return own
    cluster = hashlib.blake2b(str(settings.state_folder.absolute()).encode(), digest_size=4).hexdigest()
    return f"{own}-{cluster}/{{node}}"


EVERY_S = 30.0
"""Plain lines are at least so far apart, unless a dataset was scored or given up."""
MOST_ROWS = 40


@contextmanager
def progress_display(*, live: bool) -> Iterator[Callable[[Coordinator], None] | None]:
    """Return what shows a run after each look at it; None where nothing is to be shown."""
    if not live:
        yield None
    elif sys.stderr.isatty():
        with _table() as look:
            yield look
    else:
        yield PlainLines()


class PlainLines:
    """Says what changed, a line at a time."""

    def __init__(self) -> None:
        self._last_counts = (-1, -1)
        self._at = 0.0

    def __call__(self, run: Coordinator) -> None:
        """Say how a run stands if that is new."""
        progress = progress_of(run)
        ended = (progress.scored, progress.given_up)
        if ended == self._last_counts and time.monotonic() - self._at < EVERY_S:
            return
        self._last_counts, self._at = ended, time.monotonic()
        narrate(progress.line)


@contextmanager
def _table() -> Iterator[Callable[[Coordinator], None]]:
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as screen:

        def look(run: Coordinator) -> None:
            screen.update(drawn(progress_of(run)), refresh=True)

        yield look


def drawn(progress: EvaluationProgress) -> Any:
    """Return a run as rich shows it: a line on the whole, a row for each job and each idle node."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for column in ("NODE", "JOB", "DOES", "PIECE", "SINCE"):
        table.add_column(column, no_wrap=True)
    busy = {activity.node for activity in progress.activities}
    idle = [RunActivity(node, "", 0, "idle") for node in progress.nodes if node not in busy]
    rows = sorted([*progress.activities, *idle], key=lambda activity: (activity.node, activity.number))
    for activity in rows[:MOST_ROWS]:
        label = f"{activity.kind} {activity.number}" if activity.kind else ""
        table.add_row(
            *(
                Text(line(text))
                for text in (activity.node, label, activity.work, activity.place, duration(activity.seconds) if label else "")
            )
        )
    more = [Text(line(f"and {len(rows) - MOST_ROWS} more jobs"))] if len(rows) > MOST_ROWS else []
    return Group(Text(line(progress.line), style="bold"), table, *more)
