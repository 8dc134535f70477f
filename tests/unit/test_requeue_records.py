"""What a requeue by the scheduler is recorded to have cost, while the log is still that of the attempt before, and afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assistant.engine.requeues import RequeueRecords
from assistant.ports import JumpingClock
from assistant.records import Job, JobState
from assistant.store import Store
from tests.unit.logged_job import START, job_in, write

AGAIN = START + timedelta(minutes=3)
"""When the second attempt begins."""


def steps(first: int, last: int) -> str:
    return "".join(f"step {step} loss {3 - step / 1000:.4f}\n" for step in range(first, last + 1))


class Night:
    """A watch of one job, whose views and scheduler show what each look is told."""

    def __init__(self, folder: Path, store: Store, clock: JumpingClock) -> None:
        self.folder, self.store, self.clock = folder, store, clock
        self.records = RequeueRecords()
        self.job: Job = job_in(folder)
        self.watched: int | None = None
        view = lambda *_: SimpleNamespace(last_step=self.watched)  # noqa: E731
        self.engine: Any = SimpleNamespace(
            store=store,
            clock=clock,
            watcher=SimpleNamespace(view=view),
            scheduler=SimpleNamespace(job=lambda _: self.job, nodes=list),
        )

    def look(self, watched: int | None, **job: Any) -> list[str]:
        """Let the watch look half a minute later, and return what is said to be lost."""
        self.clock.sleep(30)
        self.job, self.watched = replace(self.job, **job), watched
        self.records.look(self.engine, [self.job])
        incidents = self.store.incidents(job="812")
        return re.findall(r"lost: .*", incidents[0].note) if incidents else []


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    clock = JumpingClock(START)
    with Store(tmp_path / "state/s.db", clock) as store:
        write(tmp_path / "slurm-812.out", steps(1, 50), START + timedelta(minutes=2))
        made = Night(tmp_path, store, clock)
        made.look(40)
        made.look(50)
        yield made


@pytest.mark.parametrize("began", [START, AGAIN])
def test_a_log_that_is_not_cut_yet_is_no_return(night: Night, began: Any) -> None:
    assert night.look(50, attempt=1, started=began) == []
    night.clock.sleep(120)
    assert night.look(None, started=AGAIN) == []
    write(night.folder / "slurm-812.out", steps(41, 45), AGAIN + timedelta(minutes=2))
    assert night.look(45) == []
    write(night.folder / "slurm-812.out", steps(41, 53), AGAIN + timedelta(minutes=3))
    assert night.look(53) == ["lost: 10 steps, 4.0 min, 0.1 node hours"]
    assert night.look(60) == ["lost: 10 steps, 4.0 min, 0.1 node hours"]


def test_a_log_that_is_cut_after_the_watch_has_read_it_is_no_return(night: Night) -> None:
    write(night.folder / "slurm-812.out", steps(41, 43), AGAIN + timedelta(seconds=5))
    assert night.look(50, attempt=1, started=AGAIN) == []


def test_steps_behind_an_appended_logs_old_ones_are_a_return_once_they_grow(night: Night) -> None:
    write(night.folder / "slurm-812.out", steps(1, 50) + steps(41, 60), AGAIN + timedelta(minutes=2))
    night.look(50, attempt=1, started=AGAIN, appends=True)
    assert night.look(50) == []
    assert night.look(45) == []
    assert night.look(55) == ["lost: an unknown number of steps, 2.0 min, 0.1 node hours"]


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (45, "; job 812 failed before it was back at step 50"),
        (90, "; job 812 failed, and when it was back at step 50 was not noticed"),
    ],
)
def test_a_job_that_ended_between_two_looks_says_what_is_known(night: Night, last: int, said: str) -> None:
    night.look(None, attempt=1, started=AGAIN)
    write(night.folder / "slurm-812.out", steps(41, last), AGAIN + timedelta(minutes=1))
    [lost] = night.look(None, state=JobState.FAILED, ended=AGAIN + timedelta(minutes=1))
    assert lost.startswith("lost: 10 steps, ")
    assert lost.endswith(said)


def test_the_end_of_the_attempt_before_is_not_the_end_of_the_new_one(night: Night) -> None:
    assert night.look(None, attempt=1, state=JobState.NODE_FAIL, ended=AGAIN) == []
