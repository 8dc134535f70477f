"""Begin, go on with and clean up evaluations: settings and gate on one side, the coordinator on the other."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from assistant.doors.cli.door import Door, user
from assistant.doors.cli.evaluate_gate import GatedJobs, settle
from assistant.doors.cli.evaluate_prepare import Wish, past, prepare, runs_folder
from assistant.errors import StoreBusy
from assistant.evaluation.asked import load_asked
from assistant.evaluation.coordinator import Coordinator
from assistant.evaluation.files import is_held, locked, read_json
from assistant.evaluation.journal import Journal
from assistant.evaluation.layout import RunFolder
from assistant.evaluation.outputs import took
from assistant.evaluation.planned import estimator, planner
from assistant.evaluation.priors import Priors
from assistant.evaluation.results import Report, markdown, report_of
from assistant.private_files import create_private
from assistant.store.evaluations import EvaluationRun

if TYPE_CHECKING:
    from assistant.config import Settings
    from assistant.engine import Engine

__all__ = ["Wish", "begin", "clean", "demo", "resume", "runs"]

DEMO_CPUS = 3
"""Of each node of the demo: one for its trial, two for metrics."""


def runs(settings: Settings) -> list[Report]:
    """Return what came of all runs, oldest first."""
    found = sorted(runs_folder(settings).glob("*/run.json"), key=lambda path: path.stat().st_mtime)
    return [report_of(path.parent) for path in found]


def begin(door: Door, wish: Wish, *, live: bool) -> Report:
    """Prepare a run, run it to its end, and return what came of it.

    Raises:
        UsageError: The suite, the model or the number of nodes is wrong; nothing was submitted.
        Stuck: No node was left that could evaluate.
    """
    engine = door.engine()
    folder = prepare(engine, door.settings, wish)
    door.say(f"run {folder.id}: what is done is kept in {folder.path}")
    return _run(door, engine, folder, live=live)


def resume(door: Door, run: str, *, live: bool) -> Report:
    """Go on with a run, and return what came of it; one that is finished is only reported.

    Raises:
        UsageError: There is no such run.
        StoreBusy: Another process is at work on it.
    """
    folder = RunFolder(runs_folder(door.settings) / run)
    load_asked(folder)
    if Journal(folder).state.finished:
        return report_of(folder.path)
    return _run(door, door.engine(), folder, live=live)


def demo(door: Door, *, nodes: int, live: bool) -> Report:
    """Train a tiny model, evaluate it on a scheduler of its own, and return what came of it; nothing of it is kept."""
    from assistant.evaluation.demo.suite import write_demo
    from assistant.ports import SystemClock
    from assistant.schedulers.local import LocalScheduler
    from assistant.wiring import build, local_folder

    root = Path(tempfile.mkdtemp(prefix="nightshift-evaluate-"))
    try:
        evaluation = replace(door.settings.evaluation, folder=None, memory="", fetch="", load_s=0.5, fetch_s=1.0, poll_s=0.2)
        settings = replace(door.settings, scheduler="local", state_folder=root, store=root / "nightshift.db", evaluation=evaluation)
        door.say("training a tiny model, and making up ten datasets …")
        suite = write_demo(root / "demo")
        cluster = LocalScheduler(local_folder(settings), SystemClock(), nodes=nodes, cpus=DEMO_CPUS)
        engine = build(settings, scheduler=cluster)
        door.at_end.append(engine.store.close)
        folder = prepare(engine, settings, Wish(suite, "", nodes))
        return _run(door, engine, folder, live=live, settings=settings)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def clean(door: Door, run: str = "") -> tuple[str, ...]:
    """End what crashed runs left and free the memory of their nodes; return the nodes that could not be reached."""
    engine, left = door.engine(), set[str]()
    root = runs_folder(door.settings)
    if run:
        load_asked(RunFolder(root / run))
    for path in [root / run] if run else sorted(one.parent for one in root.glob("*/run.json")):
        folder = RunFolder(path)
        if is_held(folder.lock) and not run:
            continue
        state = Journal(folder).state
        if not state.touched and not any(state.live()):
            continue
        with _held(folder):
            settle(engine, folder)
            found = _coordinator(engine, folder, door.settings).clean()
        left |= set(found)
        said = f"; not reached: {', '.join(found)}" if found else ""
        door.say(f"run {folder.id}: memory of its nodes was given back{said}")
    return tuple(sorted(left))


def _run(door: Door, engine: Engine, folder: RunFolder, *, live: bool, settings: Settings | None = None) -> Report:
    from assistant.doors.cli.evaluate_view import shown

    chosen = settings or door.settings
    with _held(folder):
        settle(engine, folder)
        run = _coordinator(engine, folder, chosen)
        try:
            with shown(live=live and not door.quiet) as look:
                run.run(poll_s=chosen.evaluation.poll_s, look=look)
        except KeyboardInterrupt:
            door.say(f"jobs that run go on; nightshift evaluate --resume {folder.id}, or end them: --clean --resume {folder.id}")
            raise
    _keep(engine, folder)
    report = report_of(folder.path)
    with create_private(folder.path / "results.md", encoding="utf-8") as file:
        file.write(markdown(report))
    if run.uncleaned:
        door.say(f"a model may still lie in the memory of {', '.join(run.uncleaned)}; free it later: nightshift evaluate --clean")
    return report


@contextmanager
def _held(folder: RunFolder) -> Iterator[None]:
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
    asked = load_asked(folder)
    size = asked.model.size_bytes or 0
    estimates = estimator(Priors.load(settings.content), asked.datasets, past(engine), run=folder.id, model_bytes=size)
    gated = GatedJobs(engine.gate, folder, by=f"cli:{user()}")
    return Coordinator(
        folder, engine.scheduler, engine.clock, planner, submit=gated.submit, cancel=gated.cancel, estimator=estimates
    )


def _keep(engine: Engine, folder: RunFolder) -> None:
    """Keep what datasets took, so that the next evaluation is planned better."""
    asked, now = load_asked(folder), engine.clock.now()
    metrics = {one.name: (read_json(folder.score(one.name)) or {}).get("metric_s", 0.0) for one in asked.datasets}
    items = {one.name: one.items for one in asked.datasets}
    rows = []
    for piece in folder.pieces():
        found = took(folder, piece)
        if found is None or piece.dataset not in items:
            continue
        metric_s = metrics[piece.dataset] * piece.items / items[piece.dataset]
        row = (folder.id, piece.dataset, piece.first, piece.last, found.infer_s, metric_s)
        rows.append(EvaluationRun(*row, asked.model.source, asked.model.size_bytes or 0, now, found.prepare_s))
    engine.store.keep_evaluation(rows)
