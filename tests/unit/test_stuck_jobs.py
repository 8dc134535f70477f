"""A job that was to go on with a run and cannot begin is no settled matter: a person is told what it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assistant.engine.outcomes.pending_jobs import StuckJobs, patience_with
from assistant.ports import JumpingClock
from assistant.records import Event, EventKind, IncidentState, Job, JobState, Node, NodeState
from assistant.store import Store
from tests.unit.logged_job import START, job_in

PINNED = "#SBATCH --nodelist=gpu003,gpu004"
DOWN = "ReqNodeNotAvail, UnavailableNodes:gpu004"


class Queue:
    """A store with an incident that a requeue has settled, and the job in the queue."""

    def __init__(self, folder: Path, store: Store, clock: JumpingClock) -> None:
        self.store, self.clock, self.stuck = store, clock, StuckJobs()
        self.job: Job = job_in(folder, PINNED, state=JobState.PENDING, attempt=1, nodes=(), started=None)
        nodes = [Node("gpu003", NodeState.IDLE), Node("gpu004", NodeState.DOWN, reason="Not responding")]
        scheduler = SimpleNamespace(job=lambda _: self.job, nodes=lambda: nodes)
        self.engine: Any = SimpleNamespace(store=store, clock=clock, scheduler=scheduler)
        event = Event(EventKind.JOB_ENDED, "812", None, clock.now(), {"submitted": START.isoformat()})
        self.incident = store.open_incident(event)[0].id
        store.set_state(self.incident, IncidentState.CLOSED, note="settled elsewhere: job 812 was queued again (attempt 1)")

    def look(self, minutes: float, **job: Any) -> str:
        """Let time pass, then let the watch look; return state and note of the incident."""
        self.clock.sleep(minutes * 60)
        self.job = replace(self.job, **job)
        self.stuck.look(self.engine, [self.job])
        incident = self.store.incident(self.incident)
        return f"{incident.state}: {incident.note}"


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    clock = JumpingClock(START)
    with Store(tmp_path / "state/s.db", clock) as store:
        clock.sleep(60)
        yield Queue(tmp_path, store, clock)


def test_a_person_is_told_which_node_a_requeued_job_waits_for_and_what_lets_it_begin(queue: Queue) -> None:
    assert queue.look(0.1, reason=DOWN).startswith("closed")
    assert queue.look(4).startswith("closed")
    said = queue.look(1)
    assert said.startswith(
        "escalated: the run does not go on: job 812 waits in the queue (ReqNodeNotAvail, UnavailableNodes:gpu004)"
    )
    assert "node gpu004 is down (Not responding)" in said
    assert "scontrol update JobId=812 ReqNodeList=" in said
    assert queue.store.unacknowledged() == [queue.incident]


def test_it_is_settled_once_the_job_has_begun(queue: Queue) -> None:
    queue.look(0.1, reason=DOWN)
    assert queue.look(6).startswith("escalated")
    assert queue.look(6).startswith("escalated")
    said = queue.look(1, state=JobState.RUNNING, reason="", nodes=("gpu003", "gpu004"), started=queue.clock.now())
    assert said.startswith("closed: settled elsewhere: job 812 has begun since (running) on gpu[003-004]")


def test_a_reason_that_passed_begins_its_time_anew(queue: Queue) -> None:
    queue.look(0.1, reason=DOWN)
    queue.look(4, reason="Resources")
    assert queue.look(4, reason=DOWN).startswith("closed")
    assert queue.look(4).startswith("closed")
    assert queue.look(2).startswith("escalated")


def test_a_watch_that_begins_later_knows_how_long_it_has_waited(queue: Queue) -> None:
    queue.clock.sleep(3600)
    assert queue.look(0, reason=DOWN).startswith("escalated")


@pytest.mark.parametrize(
    ("reason", "minutes"),
    [
        ("DependencyNeverSatisfied", 2),
        ("JobHeldAdmin", 2),
        ("launch failed requeued held", 2),
        ("launch_failed_requeued_held", 2),
        ("BadConstraints", 2),
        ("AssocGrpGRESMinutes", 2),
        ("AssocGrpBillingMinutes", 2),
        ("QOSMaxGRESPerJob", 2),
        ("PartitionNodeLimit", 2),
        ("PartitionTimeLimit", 2),
        ("InvalidQOS", 2),
        (DOWN, 5),
        ("JobHeldUser", 5),
        ("job requeued in held state", 5),
        ("PartitionDown", 5),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", 15),
    ],
)
def test_what_does_not_pass_by_itself_is_waited_out_for_a_while(queue: Queue, reason: str, minutes: float) -> None:
    assert patience_with(replace(queue.job, reason=reason)) == timedelta(minutes=minutes)


@pytest.mark.parametrize(
    "reason",
    [
        "",
        "Resources",
        "Priority",
        "Dependency",
        "BeginTime",
        "QOSMaxJobsPerUserLimit",
        "QOSMaxCpuPerUserLimit",
        "AssocGrpCpuLimit",
        "AssocGrpGRES",
        "Licenses",
        "ReqNodeNotAvail, Reserved for maintenance",
        "Reservation",
        "JobArrayTaskLimit",
    ],
)
def test_whoever_waits_for_their_turn_is_left_to_it(queue: Queue, reason: str) -> None:
    assert patience_with(replace(queue.job, reason=reason)) is None


def test_a_restart_that_waits_to_be_released_is_no_stuck_job(queue: Queue) -> None:
    held = replace(queue.job, reason="JobHeldUser", comment="nightshift:0123456789:1:2")
    assert patience_with(held) is None


def test_jobs_of_no_incident_are_their_owners_business(queue: Queue) -> None:
    other = replace(queue.job, id="900", attempt=0, reason="BadConstraints")
    queue.clock.sleep(3600)
    queue.stuck.look(queue.engine, [other])
    assert queue.store.incident(queue.incident).state is IncidentState.CLOSED
    assert len(queue.store.incidents()) == 1


def test_a_successor_that_cannot_begin_settles_nothing(queue: Queue) -> None:
    note = "settled elsewhere: its owner submitted the run of job 812 again as job 900 (pending)"
    queue.store.set_state(queue.incident, IncidentState.CLOSED, note=note)
    other = replace(queue.job, id="900", attempt=0, reason="BadConstraints")
    queue.job = other
    queue.stuck.look(queue.engine, [other])
    queue.clock.sleep(130)
    queue.stuck.look(queue.engine, [other])
    incident = queue.store.incident(queue.incident)
    assert incident.state is IncidentState.ESCALATED
    assert "job 900 waits in the queue (BadConstraints)" in incident.note
    assert "as it was submitted it cannot start there" in incident.note
