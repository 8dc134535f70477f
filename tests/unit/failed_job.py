"""A job that failed on a simulated cluster, with the checkpoints that it saved, for the tests of what brings it back."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from assistant.ports import JumpingClock
from assistant.records import Call, CallStatus, JobSpec, run_of
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tooling import Context
from tests.no_history import MadeCalls, NoHistory

START = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
TAG = "nightshift:teststore:3:17"


class World:
    """A cluster with one job that fails at step 50 and saves every 20 steps."""

    def __init__(self, folder: Path, *runs: SimulatedRun, script: str = "") -> None:
        self.clock = JumpingClock(START)
        self.cluster = SimulatedCluster(self.clock, folder, nodes=4)
        self.saved = folder / "ckpt"
        self.saved.mkdir()
        self.cluster.plan(
            "llm", *(replace(run, checkpoints=self.saved) for run in runs or (SimulatedRun(fails_at=50), SimulatedRun()))
        )
        script = script or f"#NIGHTSHIFT checkpoints={self.saved}\nsrun python t.py $NIGHTSHIFT_RESUME_FROM $NIGHTSHIFT_ARGS\n"
        self.spec = JobSpec("llm", script, nodes=2, work_dir=folder, comment="run 7")
        self.job = self.cluster.submit(self.spec)
        self.context = Context(self.cluster, self.cluster, self.clock, random.Random(1), self.history(), incident=3, tag=TAG)

    def history(self) -> NoHistory:
        """Return a past in which call 17 was allowed and has no outcome yet."""
        call = Call(17, 3, "resubmit_job", {"job": self.job}, "", "playbook:p", START, CallStatus.INTENT)
        return MadeCalls(call, runs={17: [run_of(self.cluster.job(self.job))]})

    def passes(self, seconds: float) -> World:
        self.clock.sleep(seconds)
        self.cluster.jobs()  # what happened meanwhile is written when somebody looks
        return self
