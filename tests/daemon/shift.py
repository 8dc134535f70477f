"""A shift on the simulated cluster: jobs that die of what they are told to, a policy, a watch that passes every few seconds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from assistant.config import Settings, WatchSettings
from assistant.diagnose.knowledge import Knowledge
from assistant.engine import Engine
from assistant.policy import Mode, Policy, load_policy
from assistant.ports import JumpingClock, Reply
from assistant.records import Diagnosis, Incident, IncidentState, JobSpec, Node
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.store import Store
from assistant.wiring import build
from tests.scenarios.scene import ECC, START, XID

ADA = "cli:ada"
_KNOWLEDGE: list[Knowledge] = []


class RackedCluster(SimulatedCluster):
    """A cluster whose nodes say in which rack they stand."""

    per_rack: int = 0

    def _node(self, name: str) -> Node:
        node = super()._node(name)
        if not self.per_rack:
            return node
        number = int("".join(letter for letter in name if letter.isdigit()))
        return dataclasses.replace(node, features=(f"rack{(number - 1) // self.per_rack + 1}",))


class Shift:
    """A cluster, its watch, and people."""

    def __init__(self, folder: Path, *, nodes: int = 8, mode: Mode = Mode.ACT, per_rack: int = 0, **terms: Any) -> None:
        self.folder, self.clock = folder, JumpingClock(START)
        self.cluster = RackedCluster(self.clock, folder, nodes=nodes)
        self.cluster.per_rack = per_rack
        self.cluster.answers["true"] = lambda node: Reply(node, True, 0, "", "")
        self.stop_file = folder / "stop"
        self.terms: dict[str, Any] = {"mode": mode, "kill_switch": (self.stop_file,), "min_healthy_share": 0.5, **terms}
        self.submitted_at: list[float] = []
        self.engine = self.started()

    def started(self, **terms: Any) -> Engine:
        """Start Nightshift, as after a reboot, with other terms of the policy where they are given."""
        self.terms |= terms
        settings = Settings(
            state_folder=self.folder,
            store=self.folder / "nightshift.db",
            commands={"kernel_log": ("dmesg",)},
            watch=WatchSettings(poll_s=10, hang_after_s=300),
        )
        store = Store(settings.store, self.clock)
        policy: Policy = dataclasses.replace(load_policy(), **self.terms)
        engine = build(settings, clock=self.clock, scheduler=self.cluster, transport=self.cluster, policy=policy, store=store)
        if not _KNOWLEDGE:
            _KNOWLEDGE.append(engine.shipped)
        engine.__dict__["shipped"] = _KNOWLEDGE[0]
        self.engine = engine
        return engine

    @property
    def store(self) -> Store:
        return self.engine.store

    def submit(self, name: str, *runs: SimulatedRun, nodes: int = 2, said: str = "", user: str = "") -> str:
        """Submit a job whose runs are told in advance."""
        checkpoints = self.folder / "checkpoints" / name
        self.cluster.plan(name, *(dataclasses.replace(run, checkpoints=checkpoints) for run in runs))
        script = (
            f"#NIGHTSHIFT checkpoints={checkpoints} format=nightshift {said}\n"
            f"srun python train.py ${{NIGHTSHIFT_RESUME_FROM:-}} ${{NIGHTSHIFT_ARGS:-}}\n"
        )
        return self.cluster.submit(
            JobSpec(name, script, nodes=nodes, ranks_per_node=2, work_dir=self.folder / name, log="job-%j.log", user=user)
        )

    def passes(self, seconds: float, *, every: float = 10.0, until: Callable[[], bool] = lambda: False) -> list[Incident]:
        """Let time pass, with a pass of the watch every few seconds; return where the incidents stand, newest first."""
        for _ in range(round(seconds / every)):
            self.clock.sleep(every)
            self.engine.tick(owner="watch")
            if until():
                break
        return self.store.incidents()

    def play_out(self, seconds: float) -> None:
        """Let time pass, with a pass every ten seconds, every minute while no job is unfinished and no incident is open."""
        end = self.clock.now() + timedelta(seconds=seconds)
        while self.clock.now() < end:
            busy = bool(self.store.incidents(open_only=True)) or any(not job.state.ended for job in self.cluster.jobs())
            every = 10.0 if busy else 60.0
            self.passes(every, every=every)

    def until_over(self, seconds: float = 3600.0) -> list[Incident]:
        """Let time pass until nothing is unfinished."""
        return self.passes(seconds, until=lambda: bool(self.store.incidents()) and not self.store.incidents(open_only=True))

    def found(self, incident: Incident) -> Diagnosis:
        """Return the diagnosis of an incident."""
        diagnosis = self.store.diagnosis(incident.id)
        assert diagnosis is not None
        return diagnosis

    def one(self, job: str) -> Incident:
        """Return the newest incident of a job."""
        return self.store.incidents(job=job, limit=1)[0]

    @property
    def changes(self) -> list[str]:
        """What was done to the cluster, the first submissions of people left out."""
        return [change for change in self.cluster.changes if change not in self._first]

    def people_are_done(self) -> None:
        """Count only what is changed from now on."""
        self._first = tuple(self.cluster.changes)

    _first: Sequence[str] = ()


def broken_gpu(node: str, at: int = 50, **more: Any) -> SimulatedRun:
    """Return a run that meets an uncorrectable memory error of a GPU of a node: its log and the node's kernel say so."""
    return SimulatedRun(fails_at=at, lines=ECC, kernel={node: XID}, only_on=node, **more)


def states(incidents: Sequence[Incident]) -> Mapping[str | None, IncidentState]:
    """Return where the incidents of jobs stand."""
    return {incident.job: incident.state for incident in incidents}
