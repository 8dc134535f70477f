"""A run that the scheduler queued again and its owner submitted once more is told of: both copies save into one folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assistant.engine.outcomes.pending_jobs import DoubledRuns
from assistant.ports import JumpingClock
from assistant.records import Event, EventKind, IncidentState, Job, JobState
from assistant.store import Store
from tests.unit.logged_job import START, job_in


class Queue:
    """A store with an incident that a requeue has settled, the requeued job, and another one of its owner."""

    def __init__(self, folder: Path, store: Store, clock: JumpingClock) -> None:
        self.store, self.clock, self.doubled = store, clock, DoubledRuns()
        script = f"#NIGHTSHIFT checkpoints={folder / 'checkpoints'}\nsrun python train.py"
        job: Job = job_in(folder, script, state=JobState.PENDING, attempt=1, nodes=(), started=None, reason="Resources")
        self.jobs = {
            "812": job,
            "813": replace(job, id="813", attempt=0, state=JobState.RUNNING, submitted=START + timedelta(minutes=5)),
        }
        scheduler = SimpleNamespace(job=lambda number: self.jobs[number])
        self.engine: Any = SimpleNamespace(store=store, clock=clock, scheduler=scheduler, checkpoint_folders={})
        event = Event(EventKind.JOB_ENDED, "812", None, clock.now(), {"submitted": START.isoformat()})
        self.incident = store.open_incident(event)[0].id
        store.set_state(self.incident, IncidentState.CLOSED, note="settled elsewhere: job 812 was queued again (attempt 1)")

    def look(self, **changes: Any) -> str:
        """Change the second job, let the watch look; return state and note of the incident."""
        self.jobs["813"] = replace(self.jobs["813"], **changes)
        self.doubled.look(self.engine, list(self.jobs.values()))
        incident = self.store.incident(self.incident)
        return f"{incident.state}: {incident.note}"


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[Queue]:
    clock = JumpingClock(START)
    with Store(tmp_path / "state/s.db", clock) as store:
        clock.sleep(60)
        yield Queue(tmp_path, store, clock)


def test_a_person_is_told_of_the_second_copy_and_which_one_may_go(queue: Queue) -> None:
    note = queue.look()
    assert note.startswith(
        "escalated: two jobs of one run: job 812 (pending) was queued again under its own id, and job 813 (running)"
    )
    assert "scancel 812 loses nothing" in note
    assert "checkpoints" in note
    assert queue.store.unacknowledged() == [queue.incident]
    assert queue.look() == note


@pytest.mark.parametrize("gone", ["812", "813"])
def test_it_is_settled_once_one_of_the_two_has_gone(gone: str, queue: Queue) -> None:
    queue.look()
    queue.jobs[gone] = replace(queue.jobs[gone], state=JobState.CANCELLED)
    queue.doubled.look(queue.engine, list(queue.jobs.values()))
    incident = queue.store.incident(queue.incident)
    left = ({"812", "813"} - {gone}).pop()
    assert (incident.state, incident.note) == (IncidentState.CLOSED, f"settled elsewhere: only job {left} of the two is left")


@pytest.mark.parametrize(
    "changes",
    [
        {"user": "grace"},
        {"work_dir": Path("/elsewhere")},
        {"submitted": START - timedelta(hours=1)},
        {"state": JobState.PENDING, "dependency": "afterany:812(unfulfilled)", "started": None},
        {"state": JobState.PENDING, "dependency": "singleton(unfulfilled)", "started": None},
        {"state": JobState.PENDING, "reason": "JobHeldUser", "started": None},
        {"state": JobState.COMPLETED},
        {"state": JobState.UNKNOWN},
    ],
    ids=lambda changes: ", ".join(map(str, changes)),
)
def test_another_job_of_its_owner_is_no_second_copy(changes: dict[str, Any], queue: Queue) -> None:
    assert queue.look(**changes).startswith("closed")


def test_a_job_that_saves_elsewhere_is_no_second_copy(queue: Queue) -> None:
    spec = queue.jobs["813"].spec
    assert spec is not None
    assert queue.look(spec=replace(spec, script=spec.script.replace("/checkpoints", "/others"))).startswith("closed")
