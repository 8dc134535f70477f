"""A job that Slurm queued again while its former program lives on, since only the daemon of the node died: a person is told."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from assistant.ports import Reply
from assistant.records import Incident, IncidentState, JobState
from assistant.records.jobs import NONE_THERE
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools import _processes
from tests.scenarios.scene import Scene
from tests.scenarios.test_outliving_programs import none, processes

NODE = "node01"
LIVING = processes((4711, "python3.11", "S"), (4700, "slurmstepd", "S"))


class Requeued:
    """A job whose node lost its daemon, that Slurm queued again, and what the node says of its processes."""

    def __init__(self, folder: Path, *, nodes: int = 8) -> None:
        self.said = LIVING
        self.scene = Scene(folder, nodes=nodes)
        self.cluster = self.scene.cluster
        run = SimulatedRun(steps=5000, checkpoints=folder / "checkpoints")
        self.cluster.plan("llm", run, run)
        typed = shlex.join(_processes.command(["1"], ""))
        self.cluster.answers[typed] = lambda node: Reply(node, True, 0, self.said if node == NODE else none(NONE_THERE), "")
        self.cluster.submit(replace(self.scene.spec))
        self.passes(6)
        self.cluster.reachable.add(NODE)
        self.cluster.set_down(NODE)
        self.cluster.set_requeued("1")

    def passes(self, number: int, *, apart_s: float = 10) -> None:
        for _ in range(number):
            self.scene.clock.sleep(apart_s)
            self.scene.engine.tick(owner="watch")

    @property
    def incident(self) -> Incident:
        """The one about the attempt that ended."""
        return next(incident for incident in self.scene.engine.store.incidents(job="1") if incident.attempt == 0)


def test_a_former_program_beside_the_next_attempt_is_told_of_and_nothing_is_ended(tmp_path: Path) -> None:
    job = Requeued(tmp_path)
    job.passes(3)
    assert job.cluster.job("1").state is JobState.RUNNING
    assert job.incident.state is IncidentState.ESCALATED, job.incident.note
    assert job.incident.note.startswith(f"a program of the attempt before still runs on {NODE} (python3.11 train.py, pid 4711)")
    assert "two write over each other's checkpoints" in job.incident.note
    assert "scancel 1" in job.incident.note
    assert job.incident.id in job.scene.engine.store.unacknowledged()
    assert not [change for change in job.cluster.changes if change.startswith(("cancel", "submit 2"))]


def test_a_job_that_still_waits_is_to_be_held(tmp_path: Path) -> None:
    job = Requeued(tmp_path, nodes=2)  # the other node alone is not enough
    job.passes(3)
    assert job.cluster.job("1").state is JobState.PENDING
    assert job.incident.state is IncidentState.ESCALATED, job.incident.note
    assert "HOLD job 1 before it begins (scontrol hold 1)" in job.incident.note


def test_it_is_settled_once_the_former_program_has_gone(tmp_path: Path) -> None:
    job = Requeued(tmp_path)
    job.passes(3)
    job.said = none(NONE_THERE)
    job.passes(5)
    assert job.incident.state is IncidentState.CLOSED
    assert job.incident.note.startswith("settled elsewhere: of the program of the attempt before"), job.incident.note


@pytest.mark.parametrize(
    "said",
    [
        none(NONE_THERE),
        none("may not be looked at"),
        processes((4700, "slurmstepd", "S")),
        processes((4711, "python3", "Z")),
    ],
    ids=["none", "not known", "only Slurm's own", "a dead one"],
)
def test_what_is_no_living_program_is_told_to_nobody(said: str, tmp_path: Path) -> None:
    job = Requeued(tmp_path)
    job.said = said
    job.passes(5)
    assert job.incident.state is IncidentState.CLOSED, job.incident.note
    assert job.scene.engine.store.unacknowledged() == []


def test_a_node_that_does_not_answer_proves_nothing(tmp_path: Path) -> None:
    job = Requeued(tmp_path)
    job.cluster.reachable.clear()
    job.passes(5)
    assert job.incident.state is IncidentState.CLOSED, job.incident.note
