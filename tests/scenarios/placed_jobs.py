"""Jobs that stand on a simulated cluster as a case says, with logs of their own words: chains, jobs of two users, resubmissions."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assistant.records import Job, JobSpec, JobState
from assistant.schedulers.simulated_run import SimulatedRun
from tests.scenarios.scene import Scene


def quiet(folder: Path) -> Scene:
    """Return a cluster that starts nothing by itself, with a watch that has made its first pass."""
    scene = Scene(folder, run=SimulatedRun(steps=5))
    scene.cluster._place = lambda: None  # type: ignore[method-assign]
    scene.engine.tick(owner="watch")
    return scene


def place(scene: Scene, job_id: str, script: str, **fields: Any) -> Job:
    """Put a job of ada's into the cluster that does nothing by itself; `log` is the name of its file in the work folder."""
    work = fields.pop("work_dir", scene.folder)
    log = work / fields.pop("log", f"run-{job_id}.out")
    now = scene.clock.now()
    job = Job(
        id=job_id, name="chain", user="ada", state=JobState.PENDING, partition="simulated", nodes=(), log=log, work_dir=work,
        submitted=now, started=None, ended=None, exit_code=None, signal=None, comment="",
        spec=JobSpec("chain", script, nodes=1, user="ada", work_dir=work, log=log.name), dated_logs=True,
    )  # fmt: skip
    scene.cluster._jobs[job_id] = dataclasses.replace(job, **fields)
    return scene.cluster._jobs[job_id]


def change(scene: Scene, job_id: str, **fields: Any) -> None:
    """Let something become of a job."""
    scene.cluster._jobs[job_id] = dataclasses.replace(scene.cluster._jobs[job_id], **fields)


def begin(scene: Scene, job_id: str, node: str = "node01") -> None:
    change(scene, job_id, state=JobState.RUNNING, nodes=(node,), started=scene.clock.now(), dependency="", reason="")


def end(scene: Scene, job_id: str, state: JobState = JobState.FAILED, exit_code: int = 1) -> None:
    change(scene, job_id, state=state, ended=scene.clock.now(), exit_code=exit_code)


def write(scene: Scene, job_id: str, lines: Sequence[str]) -> None:
    """Append lines to the log of a job."""
    log = scene.cluster._jobs[job_id].log
    assert log is not None
    with log.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    os.utime(log, (scene.clock.now().timestamp(),) * 2)


def ticks(scene: Scene, number: int, *, every_s: float = 10) -> None:
    for _ in range(number):
        scene.clock.sleep(every_s)
        scene.engine.tick(owner="watch")


def save(path: Path) -> None:
    """Write a file of a checkpoint that can be read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x80\x04" + bytes(4000) + b".")
