"""One run of the demo: a fresh embedded cluster, a fault that lies in wait, a real job, and the engine that looks after it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from assistant.config import Settings, WatchSettings
from assistant.content.faults import Expect, Fault
from assistant.engine import Engine
from assistant.engine.lease import owner_name
from assistant.engine.times import Times, times_of
from assistant.errors import StoreError
from assistant.policy import Mode, load_policy
from assistant.ports import SystemClock
from assistant.records import Diagnosis, Incident, IncidentState, Job, JobState
from assistant.schedulers.drill import arm, demo_job
from assistant.schedulers.local import LocalScheduler
from assistant.wiring import build, local_folder

NODES = 6
"""Virtual nodes; the job takes two, so there are spares."""
STEPS = 120
"""Optimiser steps of a run, where the fault does not need more."""
POLL_S = 0.2
PATIENCE_S = 90.0
"""A run that has not ended by then is a failed rehearsal."""


@dataclass(frozen=True)
class Result:
    """How a rehearsal ended."""

    fault: str
    incident: Incident | None
    diagnosis: Diagnosis | None
    times: Times | None
    jobs: tuple[Job, ...]
    seconds: float
    """The whole run, wall time."""
    problems: tuple[str, ...]
    """What is not as the fault's file expects; empty when the rehearsal went as it should."""


class Rehearsal:
    """A cluster in a folder, with a fault armed."""

    def __init__(self, fault: Fault, folder: Path) -> None:
        """Make the cluster; nothing runs yet.

        Raises:
            StoreError: The folder holds a rehearsal already.
        """
        self.fault, self.folder, self.title = fault, folder, fault.title
        self.settings = demo_settings(folder / "state")
        if self.settings.store.exists():
            raise StoreError(f"{folder} holds an earlier rehearsal; name an empty folder, or remove it")
        clock = SystemClock()
        self.cluster = LocalScheduler(local_folder(self.settings), clock, nodes=NODES)
        policy = dataclasses.replace(load_policy(), mode=Mode.ACT, kill_switch=(folder / "stop",))
        self.engine: Engine = build(self.settings, clock=clock, scheduler=self.cluster, policy=policy, since=clock.now())
        self.steps = fault.steps or STEPS
        self.spec = demo_job(folder / "run", steps=self.steps)
        self.struck = arm(fault, self.cluster, self.spec)

    def run(self, show: Callable[[Rehearsal], None]) -> Result:
        """Submit the job and look after it until everything has ended.

        Args:
            show: Called after every look, to show what is new.
        """
        _ = self.engine.knowledge  # compiled before anything happens, as in a watchdog that has been up for a while
        began, owner = time.monotonic(), owner_name("demo")
        self.cluster.submit(self.spec)
        try:
            while time.monotonic() - began < PATIENCE_S:
                # a job that ends after the look is seen by the next one
                looked_at_its_end = self._over()
                self.engine.tick(owner=owner)
                show(self)
                if looked_at_its_end and self._over():
                    break
                time.sleep(POLL_S)
        finally:
            self._stop_everything()
        return self._result(time.monotonic() - began)

    def jobs(self) -> Sequence[Job]:
        """Return its jobs, oldest first."""
        return self.cluster.jobs()

    def close(self) -> None:
        """Close the store."""
        self.engine.store.close()

    def _over(self) -> bool:
        jobs = self.cluster.jobs()
        incidents = self.engine.store.incidents()
        return all(job.state.ended for job in jobs) and all(incident.state.ended for incident in incidents)

    def _stop_everything(self) -> None:
        for job in self.cluster.jobs():
            if not job.state.ended:
                self.cluster.cancel(job.id)

    def _result(self, seconds: float) -> Result:
        store, jobs = self.engine.store, tuple(self.cluster.jobs())
        incidents = store.incidents()
        first = incidents[-1] if incidents else None
        diagnosis = store.diagnosis(first.id) if first is not None else None
        problems = differences(self.fault.expect, self.struck, incidents, diagnosis, jobs)
        times = times_of(store, first.id) if first is not None else None
        return Result(self.fault.name, first, diagnosis, times, jobs, seconds, tuple(problems))


def demo_settings(state: Path) -> Settings:
    """Return settings for a cluster that lives in a folder and is looked at several times a second."""
    return Settings(
        scheduler="local",
        state_folder=state,
        store=state / "nightshift.db",
        commands={"kernel_log": ("cat", "kernel.log")},
        watch=WatchSettings(poll_s=POLL_S, hang_after_s=8.0, hang_factor=6.0, spike_patience_steps=8),
    )


def differences(
    expect: Expect, struck: str, incidents: list[Incident], diagnosis: Diagnosis | None, jobs: tuple[Job, ...]
) -> list[str]:
    """Return in what a rehearsal differs from what its fault's file expects, in words."""
    if not incidents or diagnosis is None:
        return ["nothing was noticed: no incident was opened"]
    nodes = tuple(struck if node == "{node}" else node for node in expect.nodes)
    final = incidents[0].state
    wanted: list[tuple[str, object, object]] = [
        ("category", expect.category, diagnosis.category),
        ("action", expect.action, diagnosis.action),
        ("nodes", nodes, diagnosis.faulty_nodes),
        ("end", expect.final, final),
        ("incidents", 1, len(incidents)),
        ("restarts", int(expect.restarted), len(jobs) - 1),
    ]
    problems = [f"{name}: wanted {_words(want)}, found {_words(found)}" for name, want, found in wanted if want != found]
    if diagnosis.reason not in (expect.reason, *expect.also):
        problems.insert(0, f"reason: wanted {expect.reason}, found {diagnosis.reason}")
    if expect.final is IncidentState.RECOVERED and jobs[-1].state is not JobState.COMPLETED:
        problems.append(f"the restarted job {jobs[-1].id} is {jobs[-1].state}, not completed")
    return problems


def _words(value: object) -> str:
    return (", ".join(map(str, value)) or "none") if isinstance(value, tuple) else str(value)
