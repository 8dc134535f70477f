"""A simulated cluster with an engine on it that can be killed between any two writes and built anew."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import Connection

from assistant.config import Settings, WatchSettings
from assistant.engine import Engine
from assistant.policy import Mode, Policy, PolicyInForce, load_policy
from assistant.ports import JumpingClock
from assistant.records import Incident, JobSpec
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.store import Store
from assistant.wiring import build

START = datetime(2026, 1, 5, 2, 0, tzinfo=UTC)
ECC = (
    "[rank3]: Traceback (most recent call last):",
    '[rank3]:   File "/opt/train/pretrain.py", line 88, in step',
    "[rank3]:     loss.backward()",
    "[rank3]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
    "[rank0]:[E105 02:01:11 ProcessGroupNCCL.cpp:1895] NCCL error: remote process exited or there was a network error",
)
XID = ("NVRM: Xid (PCI:0000:0f:00): 48, pid=812, name=python3, DBE (double bit error) ECC error",)


class Killed(BaseException):
    """The process is no more. Not an `Exception`: nothing may catch it."""


class MortalStore(Store):
    """A store whose process dies at a chosen write: right before it is committed, or right after."""

    def __init__(self, path: Path, clock: JumpingClock) -> None:
        self.writes = 0
        self.dies_at: int | None = None
        self.commits_last = False
        self._depth = 0
        self._dead = False
        super().__init__(path, clock)
        self.writes = 0

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        if self._dead:
            raise Killed
        self._depth += 1
        try:
            with super().transaction() as connection:
                yield connection
                outermost = self._depth == 1
                if outermost:
                    self.writes += 1
                self._dead = outermost and self.writes == self.dies_at
                if self._dead and not self.commits_last:
                    raise Killed
        finally:
            self._depth -= 1
        if self._dead:
            raise Killed


class Scene:
    """Two jobs' worth of nodes, a job that meets a broken GPU at step 50, and checkpoints every 20 steps."""

    def __init__(self, folder: Path, *, mode: Mode = Mode.ACT, run: SimulatedRun | None = None, nodes: int = 8) -> None:
        self.folder, self.mode = folder, mode
        self.clock = JumpingClock(START)
        self.cluster = SimulatedCluster(self.clock, folder, nodes=nodes)
        checkpoints = folder / "checkpoints"
        failing = run or SimulatedRun(
            fails_at=50, lines=ECC, kernel={"node02": XID}, only_on="node02", checkpoints=checkpoints, cut=(40,)
        )
        self.cluster.plan("llm", dataclasses.replace(failing, checkpoints=checkpoints))
        script = (
            f"#NIGHTSHIFT checkpoints={checkpoints} format=nightshift\n"
            f"srun python train.py ${{NIGHTSHIFT_RESUME_FROM:-}} ${{NIGHTSHIFT_ARGS:-}}\n"
        )
        self.spec = JobSpec("llm", script, nodes=2, ranks_per_node=2, work_dir=folder, log="job-%j.log")
        with Store(folder / "nightshift.db", self.clock) as store, store.transaction() as connection:
            # tags stand in pictures and words of the tests: the same on each run
            connection.execute("UPDATE properties SET value = 'scene00001' WHERE name = 'store_id'")
        self.engine = self.started()

    def started(self) -> Engine:
        """Start Nightshift, as after a reboot: nothing is left but the store and the cluster."""
        settings = Settings(
            state_folder=self.folder,
            store=self.folder / "nightshift.db",
            commands={"kernel_log": ("dmesg",)},
            watch=WatchSettings(poll_s=10, hang_after_s=300),
        )
        engine = build(
            settings, clock=self.clock, scheduler=self.cluster, transport=self.cluster, policy=self.policy(), store=self.store()
        )
        self.engine = engine
        return engine

    def store(self) -> MortalStore:
        return MortalStore(self.folder / "nightshift.db", self.clock)

    def policy(self) -> Policy | PolicyInForce:
        return dataclasses.replace(load_policy(), mode=self.mode, kill_switch=(self.folder / "stop",))

    @property
    def writes(self) -> int:
        """How often the engine's store has been written."""
        store = self.engine.store
        return store.writes if isinstance(store, MortalStore) else 0

    def die_at(self, write: int, *, commits_last: bool) -> None:
        """Let the process die at one of its coming writes."""
        store = self.engine.store
        if isinstance(store, MortalStore):
            store.dies_at, store.commits_last = write, commits_last

    def watch(self, seconds: float, *, every: float = 10, owner: str = "watch") -> list[Incident]:
        """Let time pass, with a pass of the watch every few seconds; return where the incidents stand."""
        passed = 0.0
        while passed < seconds:
            self.clock.sleep(every)
            passed += every
            self.engine.tick(owner=owner)
            if (found := self.engine.store.incidents()) and all(incident.state.ended for incident in found):
                break
        return self.engine.store.incidents()
