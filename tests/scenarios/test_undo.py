"""What Nightshift did it can take back: the shipped tools through the gate, on the simulated cluster."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.gate import AnswersFrom, Gate
from assistant.policy import Mode, Policy
from assistant.ports import JumpingClock
from assistant.records import Event, EventKind, JobSpec
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.store import Store
from assistant.tooling import Context


@pytest.mark.parametrize(
    ("tool", "arguments", "changes"),
    [
        ("resubmit_job", {"job": "1"}, ["submit 2", "cancel 2"]),
        ("cordon_node", {"node": "node01", "reason": "ecc"}, ["cordon node01", "uncordon node01"]),
    ],
)
def test_a_change_and_its_undo_leave_the_cluster_as_it_was(
    tmp_path: Path, tool: str, arguments: dict[str, str], changes: list[str]
) -> None:
    clock = JumpingClock(datetime(2026, 3, 10, 12, 0, tzinfo=UTC))
    cluster = SimulatedCluster(clock, tmp_path)
    cluster.plan("llm", SimulatedRun(fails_at=5, lines=("RuntimeError: CUDA error",)), SimulatedRun())
    failed = cluster.submit(JobSpec("llm", "#!/bin/sh\n", work_dir=tmp_path))
    clock.sleep(3600)
    cluster.changes.clear()
    with Store(tmp_path / "s.db", clock) as store:

        def context_for(incident: int | None, tag: str) -> Context:
            return Context(cluster, cluster, clock, random.Random(0), store, incident=incident, tag=tag)

        gate = Gate(store, context_for, Policy(mode=Mode.ACT), AnswersFrom([]))
        incident, _ = store.open_incident(Event(EventKind.JOB_ENDED, failed, None, clock.now()))
        made = gate.call(tool, arguments, why="it failed", by="playbook:x", incident=incident.id, step="again")
        assert gate.undo(made.call, "cli:alice").ok
        assert cluster.changes == changes
        assert [call.status for call in store.calls()] == ["undone", "done"]
        assert store.verify() is None
