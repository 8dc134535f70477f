"""A real slurmd dies and the program of its job lives on: nothing is started beside it, it is followed to its end or its death."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assistant.engine import Engine
from assistant.engine.lease import owner_name
from assistant.records import Incident, IncidentState, JobSpec, JobState
from tests.live.conftest import DevCluster, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]
PROGRAM = """
import json, os, sys, time
folder, most = "FOLDER/checkpoints", STEPS
os.makedirs(folder, exist_ok=True)
saved = sorted(int(name.removeprefix("step_").removesuffix(".json")) for name in os.listdir(folder) if name.endswith(".json"))
step = saved[-1] if saved else 0
print(f"resumed from {folder}/step_{step}.json" if step else "begins at step 0", flush=True)
while step < most:
    time.sleep(0.3)
    step += 1
    print(f" iteration {step:8d}/ {most} | elapsed time per iteration (ms): 300.0 | lm loss: {2 + 3 / step:.6E} |", flush=True)
    with open("FOLDER/writers.txt", "a") as writers:
        writers.write(f"{os.environ['SLURM_JOB_ID']} {step}\\n")
    if step % 10 == 0:
        with open(f"{folder}/step_{step}.tmp", "w") as file:
            json.dump({"step": step}, file)
        os.rename(f"{folder}/step_{step}.tmp", f"{folder}/step_{step}.json")
print("training finished", flush=True)
"""


class Orphan:
    """A job that saves every three seconds, whose slurmd is killed."""

    def __init__(self, engine: Engine, cluster: DevCluster, name: str, steps: int) -> None:
        self.engine, self.cluster = engine, cluster
        self.folder = cluster.shared / name
        self.folder.mkdir()
        program = self.folder / "train.py"
        program.write_text(PROGRAM.replace("FOLDER", str(self.folder)).replace("STEPS", str(steps)))
        script = (
            f"#!/bin/bash\n#SBATCH --no-requeue\n#NIGHTSHIFT checkpoints={self.folder}/checkpoints\nexec python3 -u {program}\n"
        )
        self.job = engine.scheduler.submit(JobSpec(name, script, nodes=1, work_dir=self.folder, options=("--no-requeue",)))
        until(lambda: (self.folder / "checkpoints" / "step_10.json").exists(), 40)
        self.node = engine.scheduler.job(self.job).nodes[0]
        cluster.fault(self.node, "slurmd")
        until(lambda: engine.scheduler.job(self.job).state is JobState.NODE_FAIL, 90)

    def incident(self) -> Incident | None:
        self.engine.tick(owner=owner_name("test"))
        return next(iter(self.engine.store.incidents(job=self.job)), None)

    def reaches(self, *states: IncidentState, within_s: float) -> Incident:
        """Look again and again until the incident of the job stands so."""
        found: list[Incident] = []

        def looked() -> bool:
            found[:] = [one] if (one := self.incident()) is not None else []
            return bool(found) and found[0].state in states

        until(looked, within_s, pause_s=0.5)
        return found[0]

    @property
    def writers(self) -> set[str]:
        return {line.split()[0] for line in (self.folder / "writers.txt").read_text().splitlines()}

    def jobs(self) -> list[str]:
        name = Path(self.folder).name
        return [job.id for job in self.engine.scheduler.jobs() if job.name == name]


def test_a_program_that_outlives_its_job_is_left_alone_and_its_incident_settled_once_it_has_finished(
    engine: Engine, devcluster: DevCluster
) -> None:
    orphan = Orphan(engine, devcluster, "orphan", 260)
    asked = orphan.reaches(IncidentState.ESCALATED, within_s=60)
    assert asked.note.startswith(f"the program of job {orphan.job} still runs on {orphan.node} (python3")
    assert "second writer" in asked.note
    settled = orphan.reaches(IncidentState.CLOSED, within_s=150)
    assert "finished by itself" in settled.note
    assert (orphan.folder / "checkpoints" / "step_260.json").exists()
    assert (orphan.jobs(), orphan.writers) == ([orphan.job], {orphan.job})


def test_once_such_a_program_has_died_its_job_is_started_again(engine: Engine, devcluster: DevCluster) -> None:
    orphan = Orphan(engine, devcluster, "orphaned", 400)
    asked = orphan.reaches(IncidentState.ESCALATED, within_s=60)
    named = re.search(r"pid (\d+)", asked.note)
    assert named is not None
    devcluster.on(orphan.node, "kill", "-9", named[1])
    until(lambda: orphan.incident() is not None and len(orphan.jobs()) == 2, 120, pause_s=0.5)
    assert orphan.writers <= set(orphan.jobs())
