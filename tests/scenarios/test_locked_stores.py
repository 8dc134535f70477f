"""A job that met somebody's lock on its store: it starts again once the lock is free, unless its own processes meet there."""

from __future__ import annotations

import shlex
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from assistant.ports import Reply
from assistant.records import Category, IncidentState
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools.locks import _PROGRAM, _TEST, LOCK_NAMES
from tests.scenarios.scene import Scene

LOCKED = (
    "Traceback (most recent call last):",
    '  File "/opt/train/trials.py", line 31, in put',
    "    store.execute(insert, row)",
    "sqlite3.OperationalError: database is locked",
)
HOLDER = "process {of} 4471 - -\tbob\tpython3 look.py\n"


@dataclass(frozen=True)
class Case:
    """For how long somebody holds the lock behind the failure, and what comes of the job."""

    held_s: float | None = 200.0
    """None: no node tells anything of locks."""
    ranks: int = 1
    shown: bool = True
    """Whether a node shows the process that holds it."""
    restarts: bool = True


CASES = {
    "held for a while by somebody": Case(),
    "held where no node that is asked shows by whom": Case(shown=False),
    "free as soon as it is looked at": Case(held_s=0.0),
    "several ranks write to it": Case(ranks=4, restarts=False),
    "no node tells": Case(held_s=None, restarts=False),
}


@pytest.mark.parametrize("name", CASES)
def test_a_lock_of_somebody_else_is_waited_for(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    store = tmp_path / "trials.db"
    with sqlite3.connect(store) as connection:
        connection.execute("create table trial (n integer)")
    saved = tmp_path / "checkpoints"
    scene = Scene(tmp_path, run=SimulatedRun(fails_at=50, lines=LOCKED))
    scene.cluster.plan("llm", SimulatedRun(fails_at=50, lines=LOCKED, checkpoints=saved), SimulatedRun(checkpoints=saved))
    asked: list[float] = []

    def answer(node: str) -> Reply:
        asked.append(scene.clock.now().timestamp())
        is_held = case.held_s is not None and asked[-1] - asked[0] < case.held_s
        state = "unknown" if case.held_s is None else "held" if is_held else "free"
        process = HOLDER.format(of="1:2") if is_held and case.shown else ""
        return Reply(node, True, 0, f"file 1:2 {store}\nlock 1:2 {state}\n{process}end\n", "")

    words = [f"{store}{ending}" for ending in LOCK_NAMES]
    scene.cluster.answers[shlex.join(("sh", "-c", _PROGRAM, "sh", _TEST, *words))] = answer
    script = scene.spec.script.replace("train.py", f"train.py --trials={store}")
    scene.cluster.submit(replace(scene.spec, nodes=1, ranks_per_node=case.ranks, script=script))
    scene.watch(1_500)
    first = scene.engine.store.incidents()[-1]
    diagnosis = scene.engine.store.diagnosis(first.id)
    assert diagnosis is not None
    assert diagnosis.reason == "os_error"
    assert not any(change.startswith("cordon") for change in scene.cluster.changes)
    if not case.restarts:
        assert first.state is IncidentState.ESCALATED
        assert scene.cluster.changes == ["submit 1"]
        assert diagnosis.category is Category.SCRIPT
        return
    assert first.state is IncidentState.RECOVERED, first.note
    assert scene.cluster.changes == ["submit 1", "submit 2"]
    assert diagnosis.category is Category.INFRASTRUCTURE
    assert str(store) in diagnosis.summary
    restarted = scene.cluster.job("2").started
    assert restarted is not None
    assert restarted.timestamp() - asked[0] >= (case.held_s or 0)
    if case.held_s and case.shown:
        assert "process 4471 (python3 look.py) of bob" in diagnosis.summary
