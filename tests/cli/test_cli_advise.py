"""`nightshift checkpoints advise`: from a real checkpoint folder and the incidents in the store to an interval."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assistant.ports import SystemClock
from assistant.records import Event, EventKind, JobSpec
from assistant.schedulers.local import LocalScheduler
from assistant.store import Store
from assistant.training.checkpoints import AsyncCheckpointer
from tests.cli.test_cli_acting import ended, scheduler

__all__ = ["scheduler"]

Run = Callable[..., Any]


@pytest.fixture
def job(scheduler: LocalScheduler, home: Path) -> str:
    with AsyncCheckpointer(home / "ckpt", metrics=None, writer="thread") as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(step, {"a": np.zeros(1000)})
            checkpoints.flush()
    return ended(scheduler, JobSpec("llm", f"#!/bin/bash\n#NIGHTSHIFT checkpoints={home / 'ckpt'}\nexit 0\n", work_dir=home))


def failures_every(store_path: Path, hours: float, job: str, attempts: int = 5) -> None:
    with Store(store_path, SystemClock()) as store:
        for attempt in range(attempts):
            at = store.clock.now() - timedelta(hours=hours * (attempts - attempt))
            store.open_incident(Event(EventKind.JOB_ENDED, job, None, at, attempt=attempt))


def test_the_interval_comes_from_manifests_and_the_failures_of_the_task(cli: Run, job: str, store_path: Path) -> None:
    cli("incidents")
    failures_every(store_path, 6.0, job)
    said = cli("checkpoints", "advise", "--job", job, "--json").objects[0]
    assert said["save"]["how"] == "the median of 3 saves, from their manifests"
    assert said["failures"]["count"] == 5
    assert said["failures"]["between_s"] == pytest.approx(6 * 3600, rel=0.01)
    assert said["young_s"] == pytest.approx((2 * said["save"]["blocked_s"] * said["failures"]["between_s"]) ** 0.5)
    assert said["gpu_hours_a_minute"] == pytest.approx(8 * 4 * 0.5 / 60, rel=0.01)
    shown = cli("checkpoints", "advise", "--job", job)
    assert shown.code == 0
    assert "5 failures of llm since" in shown.out
    assert "GPU-hours a day" in shown.out


def test_what_is_not_known_can_be_said(cli: Run, job: str) -> None:
    said = cli("checkpoints", "advise", "--job", job)
    assert said.code == 1
    assert "0 failures of its task and 0 of the cluster are too few; give it: --mtbf-hours 24" in said.err
    said = cli(
        "checkpoints", "advise", "--job", job, "--mtbf-hours", "24", "--save-seconds", "300", "--gpus-per-node", "4", "--json"
    )
    assert said.objects[0]["young_s"] == pytest.approx(7200)
    assert (said.objects[0]["gpus"], said.objects[0]["failures"]["how"]) == (4, "as --mtbf-hours says")


def test_a_job_that_tells_nothing_of_its_saves_is_an_error_with_what_to_do(cli: Run, scheduler: LocalScheduler, home: Path) -> None:
    job = ended(scheduler, JobSpec("llm", "#!/bin/bash\nexit 0\n", work_dir=home))
    said = cli("checkpoints", "advise", "--job", job, "--mtbf-hours", "24")
    assert said.code == 1
    assert "neither its checkpoints, its metrics.jsonl nor its log tell; give it: --save-seconds 12" in said.err
