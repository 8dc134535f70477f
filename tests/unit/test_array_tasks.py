"""What tasks of an array prove about a node on whose disk several of them failed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assistant.engine.evidence import array_tasks
from assistant.engine.evidence.array_tasks import reconsidered, sibling_comparison
from assistant.engine.evidence.file_systems import DiskFault
from assistant.records import Action, Category, Citation, DecidedBy, Diagnosis, Job, JobState
from assistant.recover.situation import avoided
from tests.unit.logged_job import job_in

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
FULL = DiskFault.FULL


def task(
    number: int, node: str, state: JobState, *, seconds: int = 30, begun: int = 0, user: str = "ada", array: str = "41"
) -> Job:
    """Return a task of an array that began so many seconds after `AT` and lasted, or has run, so long."""
    started = AT + timedelta(seconds=begun)
    ended = started + timedelta(seconds=seconds) if state.ended else None
    code = {JobState.COMPLETED: 0, JobState.FAILED: 1}.get(state)
    made = job_in(Path("/shared/ada"), id=f"{array}_{number}", user=user, state=state, nodes=(node,), started=started, ended=ended)
    return replace(made, exit_code=code)


FAILED, DONE, RUNS = JobState.FAILED, JobState.COMPLETED, JobState.RUNNING
TWO_ON_N3 = (task(4, "n3", FAILED), task(9, "n3", FAILED, begun=40))


@pytest.mark.parametrize(
    ("others", "faults", "sound"),
    [
        ((TWO_ON_N3[1], task(1, "n1", DONE)), {"41_9": FULL}, ("41_1",)),
        ((TWO_ON_N3[1], task(1, "n1", RUNS)), {"41_9": FULL}, ("41_1",)),
        ((TWO_ON_N3[1], task(1, "n1", RUNS, begun=85)), {"41_9": FULL}, None),
        ((TWO_ON_N3[1], task(1, "n1", DONE), task(2, "n2", FAILED)), {"41_9": FULL, "41_2": FULL}, None),
        ((TWO_ON_N3[1], task(1, "n1", DONE), task(2, "n2", FAILED)), {"41_9": FULL}, None),
        ((TWO_ON_N3[1], task(1, "n1", DONE), task(2, "n2", FAILED)), {"41_9": FULL, "41_2": None}, ("41_1",)),
        ((task(1, "n1", DONE),), {}, None),
        ((TWO_ON_N3[1], task(1, "n3", DONE)), {"41_9": FULL}, None),
        ((TWO_ON_N3[1], task(1, "n1", DONE)), {"41_9": DiskFault.SILENT}, None),
        ((TWO_ON_N3[1], task(1, "n1", DONE, array="40")), {"41_9": FULL}, None),
        ((TWO_ON_N3[1],), {"41_9": FULL}, None),
    ],
    ids=[
        "one is done elsewhere",
        "one has run longer elsewhere",
        "one has only begun elsewhere",
        "one failed of the same elsewhere",
        "one failed elsewhere of what nobody knows yet",
        "one failed elsewhere of something else",
        "it failed alone",
        "one is done on the same node",
        "the other failed of another fault",
        "what is done is of another array",
        "nothing ran elsewhere",
    ],
)
def test_only_a_node_where_several_tasks_fail_and_none_elsewhere_is_left_out(
    others: tuple[Job, ...], faults: dict[str, DiskFault | None], sound: tuple[str, ...] | None
) -> None:
    comparison = sibling_comparison(TWO_ON_N3[0], [TWO_ON_N3[0], *others], {"41_4": FULL, **faults}, AT + timedelta(seconds=90))
    assert (comparison.sound if comparison is not None else None) == sound
    assert comparison is None or (comparison.node, comparison.failed) == ("n3", ("41_4", "41_9"))


def diagnosis_of(text: str = "OSError: [Errno 28] No space left on device") -> Diagnosis:
    return Diagnosis(
        "os_error",
        Category.SCRIPT,
        Action.FIX_AND_RESUBMIT,
        0.9,
        DecidedBy.RULE,
        (Citation("job.log", 3, text, "os_error.full"),),
        nodes=(),
        rivals=(),
        summary="OS error.",
        advice="Free space.",
    )


class Store:
    """Diagnoses of incidents, by job."""

    def __init__(self, **diagnoses: Diagnosis) -> None:
        self.of_job = {name.replace("job", ""): known for name, known in diagnoses.items()}
        self.added: list[tuple[int, Diagnosis]] = []

    def incidents(self, limit: int) -> list[Any]:
        return [SimpleNamespace(id=number, job=job) for number, job in enumerate(self.of_job, 1)]

    def diagnosis(self, incident: int) -> Diagnosis:
        return list(self.of_job.values())[incident - 1]

    def add_diagnosis(self, incident: int, diagnosis: Diagnosis) -> None:
        self.added.append((incident, diagnosis))


@pytest.mark.parametrize("text", ["OSError: [Errno 28] No space left on device", "KeyError: 'ids'"])
def test_the_restart_of_a_task_stays_away_from_the_node_that_fails_its_siblings(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store, forgotten = Store(job41_4=diagnosis_of(text), job41_9=diagnosis_of()), list[int]()
    jobs = [*TWO_ON_N3, task(1, "n1", DONE)]
    engine: Any = SimpleNamespace(
        replays=False,
        store=store,
        watcher=SimpleNamespace(jobs=jobs),
        clock=SimpleNamespace(now=lambda: AT + timedelta(seconds=90)),
        outages=SimpleNamespace(forget=forgotten.append),
    )
    monkeypatch.setattr(array_tasks, "all_states", lambda *_: ())  # no node answers
    incident: Any = SimpleNamespace(id=1, job="41_4")
    fresh = reconsidered(engine, incident, diagnosis_of(text), jobs[0])
    if "Errno 28" not in text:
        assert (fresh, store.added, forgotten) == (diagnosis_of(text), [], [])
        return
    assert (fresh.action, avoided(fresh)) == (Action.RESTART_SAME_NODES, ["n3"])
    assert "Tasks 41_4, 41_9 of the array failed so on n3; 41_1 ran on n1 without it." in fresh.advice
    assert (store.added, forgotten) == ([(1, fresh)], [1])
    again = reconsidered(engine, incident, fresh, jobs[0])
    assert (again, len(store.added)) == (fresh, 1)
