"""What a requeue by the scheduler is recorded to have cost, while the log is still that of the attempt before, and afterwards."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assistant.engine.outcomes.requeues import RequeueRecords
from assistant.ports import JumpingClock
from assistant.records import IncidentState, Job, JobSpec, JobState, Outcome
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
        self.loss: float | None = None
        view = lambda *_: SimpleNamespace(last_step=self.watched, last=SimpleNamespace(loss=self.loss))  # noqa: E731
        self.engine: Any = SimpleNamespace(
            store=store,
            clock=clock,
            replays=False,
            gate=SimpleNamespace(call=lambda *_, **__: Outcome(0, False, None, "no node answers", clock.now())),
            checkpoint_folders={},
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
    assert night.look(55) == ["lost: 2.0 min, 0.1 node hours"]


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


def test_a_job_whose_step_before_the_requeue_nobody_read_names_no_step(tmp_path: Path) -> None:
    clock = JumpingClock(START)
    with Store(tmp_path / "state/s.db", clock) as store:
        silent = Night(tmp_path, store, clock)
        silent.look(None)
        silent.look(None, attempt=1, started=AGAIN)
        [lost] = silent.look(None, state=JobState.COMPLETED, ended=AGAIN + timedelta(minutes=1))
    assert lost.endswith("; job 812 completed; which step it had reached before the requeue is not known")


def test_the_end_of_the_attempt_before_is_not_the_end_of_the_new_one(night: Night) -> None:
    assert night.look(None, attempt=1, state=JobState.NODE_FAIL, ended=AGAIN) == []


EPOCHS = "Epoch: [{}][{:2}/40]\tTime  0.500 ( 0.501)\tData  0.012 ( 0.015)\tLoss {:.4e} (6.9e+00)\tAcc@1   0.00 (  0.00)\n"


def epochs(first: int, last: int, *, loss: float = 6.9) -> str:
    return "".join(EPOCHS.format(step // 40, step % 40, loss - step / 100) for step in range(first, last + 1, 10))


def saved(night: Night, name: str = "checkpoint.pth.tar") -> None:
    """Let the run have saved one minute before the second attempt."""
    night.job = replace(night.job, spec=JobSpec("llm", f"#!/bin/bash\n#NIGHTSHIFT checkpoints={night.folder}/ckpt\n"))
    path = write(night.folder / "ckpt" / name, "", AGAIN - timedelta(minutes=1))
    path.write_bytes(b"PK\x03\x04" + bytes(4096))
    os.utime(path, ((AGAIN - timedelta(minutes=1)).timestamp(),) * 2)


@pytest.mark.parametrize("name", ["checkpoint.pth.tar", "step_40.pt"])
@pytest.mark.parametrize("lines", [epochs(0, 20), steps(1, 3), "training from scratch\n" + steps(1, 3)])
def test_a_requeue_that_begins_anew_over_what_the_run_saved_is_handed_to_a_person_at_once(
    night: Night, name: str, lines: str
) -> None:
    saved(night, name)
    night.look(50)
    night.look(None, attempt=1, started=AGAIN)
    write(night.folder / "slurm-812.out", lines, AGAIN + timedelta(minutes=1))
    night.look(20)
    [incident] = night.store.incidents(job="812")
    assert incident.state is IncidentState.ESCALATED, incident.note
    assert "it begins anew" in incident.note
    assert f"had come to step 50 and saved {name}" in incident.note
    assert "scancel 812" in incident.note
    night.look(30)
    assert night.store.incidents(job="812")[0].note == incident.note


@pytest.mark.parametrize(
    "lines",
    [
        steps(41, 44),
        "=> loaded checkpoint '{ckpt}/checkpoint.pth.tar' (epoch 1)\n" + epochs(40, 60),
        "=> loaded checkpoint '{ckpt}/checkpoint.pth.tar' (epoch 1)\n" + steps(1, 3),
        steps(1, 1),
    ],
    ids=["goes on", "loads and goes on", "loads and counts anew", "too early"],
)
def test_a_requeue_that_goes_on_or_loads_is_only_recorded(night: Night, lines: str) -> None:
    saved(night)
    night.look(50)
    night.look(None, attempt=1, started=AGAIN)
    write(night.folder / "slurm-812.out", lines.replace("{ckpt}", f"{night.folder}/ckpt"), AGAIN + timedelta(minutes=1))
    night.look(44)
    assert night.store.incidents(job="812")[0].state is IncidentState.CLOSED


def test_a_requeue_of_a_run_that_never_saved_is_only_recorded(night: Night) -> None:
    night.look(None, attempt=1, started=AGAIN)
    write(night.folder / "slurm-812.out", steps(1, 3), AGAIN + timedelta(minutes=1))
    night.look(3)
    assert night.store.incidents(job="812")[0].state is IncidentState.CLOSED


@pytest.mark.parametrize(
    ("first", "last", "anew", "state"),
    [
        (6.9, 2.1, 2.12, IncidentState.CLOSED),
        (6.9, 2.1, 6.8, IncidentState.ESCALATED),
        (2.99, 2.95, 2.98, IncidentState.ESCALATED),
        (None, None, 2.98, IncidentState.ESCALATED),
    ],
    ids=["only the counter", "the loss, too", "a loss that hardly falls", "no loss known"],
)
def test_a_counter_that_begins_anew_with_the_loss_of_the_end_is_no_new_beginning(
    night: Night, first: float | None, last: float | None, anew: float, state: IncidentState
) -> None:
    saved(night)
    night.records.attempts.clear()
    for step, loss in ((10, first), (50, last)):
        night.loss = loss
        night.look(step)
    night.look(None, attempt=1, started=AGAIN)
    lines = f"step 1 loss {anew}\nstep 2 loss {anew - 0.01}\n"
    write(night.folder / "slurm-812.out", lines, AGAIN + timedelta(minutes=1))
    night.look(3)
    assert night.store.incidents(job="812")[0].state is state, night.store.incidents(job="812")[0].note
