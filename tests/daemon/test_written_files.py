"""A silent job that still writes files of its own works, whatever its GPUs do; what helpers write beside it proves nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from assistant.engine import written_files
from assistant.engine.retry_policy import unproven_hang, working_hang
from assistant.engine.written_files import written_file
from assistant.ports import JumpingClock
from assistant.records import Event, EventKind
from assistant.store import Store
from tests.daemon.night import diagnosis
from tests.unit.logged_job import START, job_in, write

NOW = START + timedelta(minutes=10)
SILENT_SINCE = START + timedelta(minutes=8)


@pytest.fixture(autouse=True)
def fresh() -> None:
    written_files._answers.clear()


@pytest.mark.parametrize(
    ("name", "age_s", "works"),
    [
        ("preds/step-200.jsonl", 2, True),
        ("out/run1/answers.txt", 50, True),
        ("outputs/grpo/val_rollouts/step_12/rank_0/part-0.jsonl", 2, True),
        ("preds/step-200.jsonl", 200, False),  # it stands still as well
        ("slurm-812.out", 2, False),  # its own log
        ("gpu_usage.csv", 2, False),
        ("logs/dmon.log", 2, False),
        ("wandb/run-1/run.wandb", 2, False),
        ("nvidia-smi.txt", 2, False),
        (".cache/x.bin", 2, False),
    ],
)
def test_a_file_that_a_job_wrote_a_moment_ago_shows_that_it_works(name: str, age_s: int, works: bool, tmp_path: Path) -> None:
    write(tmp_path / "slurm-812.out", "step 5 loss 2\n", SILENT_SINCE)
    path = write(tmp_path / name, "x", NOW - timedelta(seconds=age_s))
    words = written_file(job_in(tmp_path), SILENT_SINCE, NOW)
    assert words == (f"{path} was written {age_s} s ago" if works else "")


def test_what_was_made_last_is_looked_at_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_files, "MOST_ENTRIES", 60)
    for number in range(40):
        write(tmp_path / f"data/shard_{number:03}/{number}/x.bin", "x", SILENT_SINCE - timedelta(days=3))
        for folder in (f"data/shard_{number:03}/{number}", f"data/shard_{number:03}", "data"):
            os.utime(tmp_path / folder, ((SILENT_SINCE - timedelta(days=3)).timestamp(),) * 2)
    path = write(tmp_path / "eval/step_12/part-0.jsonl", "x", NOW - timedelta(seconds=2))
    assert written_file(job_in(tmp_path), SILENT_SINCE, NOW) == f"{path} was written 2 s ago"


def test_a_save_that_ended_with_the_last_step_is_no_sign_of_life_behind_it(tmp_path: Path) -> None:
    write(tmp_path / "ckpt/step_5.pt", "x", SILENT_SINCE + timedelta(seconds=5))
    assert written_file(job_in(tmp_path), SILENT_SINCE, SILENT_SINCE + timedelta(seconds=40)) == ""


@pytest.mark.parametrize(
    ("proofs", "works"),
    [
        (["GPUs do nothing"], True),
        (["GPUs do nothing", "no rank moves"], True),
        (["GPUs do nothing", "a process of it is stopped while others are not"], False),
        (["ranks wait for others"], False),
    ],
)
def test_idle_gpus_prove_no_hang_of_a_job_that_writes(
    proofs: list[str], works: bool, store: Store, clock: JumpingClock, tmp_path: Path
) -> None:
    event = Event(EventKind.HANG, "812", None, clock.now(), {"name": "llm", "proofs": proofs})
    incident, _ = store.open_incident(event)
    hang = replace(diagnosis("hang", "node042"), nodes=())
    store.add_diagnosis(incident.id, hang)
    clock.sleep(90)
    job = job_in(tmp_path)
    path = write(tmp_path / "preds/step-200.jsonl", "x", clock.now() - timedelta(seconds=2))
    waits = working_hang(store, incident, hang, job, clock.now())
    assert waits.startswith(f"job 812 makes no step and works: {path} was written 2 s ago") is works
    clock.sleep(600)
    write(path, "xx", clock.now() - timedelta(seconds=2))
    assert working_hang(store, incident, hang, job, clock.now()) == ""
    assert ("It was left running, for nothing shows that it hangs" in unproven_hang(store, incident, hang, job)) is works
