"""A cluster that shows the jobs that a test gives it, and an engine over it that changes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from assistant.config import Settings
from assistant.engine import Engine
from assistant.policy import Mode, load_policy
from assistant.ports import JumpingClock
from assistant.records import Job, JobState
from assistant.schedulers.simulated import SimulatedCluster
from assistant.wiring import build

NOON = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def job(log: Path, number: str = "7") -> Job:
    return Job(
        number, "llm", "ada", JobState.FAILED, "gpu", ("node01",), log, log.parent, NOON, NOON, NOON + timedelta(minutes=1), 1, None
    )


class Shown(SimulatedCluster):
    """A cluster that shows what it is told to."""

    shown: Sequence[Job] = ()

    def jobs(self) -> Sequence[Job]:
        return self.shown

    def job(self, job_id: str) -> Job:
        return next(one for one in self.shown if one.id == job_id)


def made_engine(folder: Path) -> Engine:
    """Return an engine on a store of its own; `scheduler` is a `Shown`."""
    clock = JumpingClock(NOON)
    cluster = Shown(clock, folder, nodes=["node01"])
    settings = Settings(state_folder=folder / "state", store=folder / "state" / "nightshift.db")
    policy = dataclasses.replace(load_policy(), mode=Mode.OBSERVE)
    return build(settings, scheduler=cluster, transport=cluster, policy=policy, clock=clock)
