"""A real slurmd dies and the program of its job lives on: nothing is started beside it, it is followed to its end or its death."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assistant.engine import Engine
from assistant.engine.ownership import owner_name
from assistant.records import Incident, IncidentState, JobSpec, JobState
from tests.live.conftest import DevCluster, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]
PROGRAM = """
import json, os, sys, time, zlib
folder, most = "FOLDER/checkpoints", STEPS
step = int(os.path.basename(sys.argv[1]).removeprefix("iter_")) if len(sys.argv) > 1 else 0
print(f"successfully loaded checkpoint from {sys.argv[1]} at iteration {step}" if step else "training ...", flush=True)
while step < most:
    time.sleep(0.3)
    step += 1
    print(f" iteration {step:8d}/ {most} | elapsed time per iteration (ms): 300.0 | lm loss: {2 + 3 / step:.6E} |", flush=True)
    with open("FOLDER/writers.txt", "a") as writers:
        writers.write(f"{os.environ['SLURM_JOB_ID']} {step}\\n")
    if step % 10 == 0:
        save = f"{folder}/iter_{step:07d}"
        os.makedirs(save, exist_ok=True)
        content = f"parameters of step {step}".encode()
        with open(f"{save}/model.bin", "wb") as file:
            file.write(content)
        files = {"model.bin": {"size": len(content), "crc32": zlib.crc32(content)}}
        about = {"format": "nightshift", "version": 1, "step": step, "world": 1, "next_sample": step, "files": files}
        with open(f"{save}/manifest.json", "w") as file:
            json.dump(about, file)
        with open(f"{folder}/latest_checkpointed_iteration.txt", "w") as file:
            file.write(str(step))
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
            f"#!/bin/bash\n#SBATCH --no-requeue\n#NIGHTSHIFT checkpoints={self.folder}/checkpoints format=nightshift\n"
            f"exec python3 -u {program} ${{NIGHTSHIFT_RESUME_FROM:-}}\n"
        )
        self.job = engine.scheduler.submit(JobSpec(name, script, nodes=1, work_dir=self.folder, options=("--no-requeue",)))
        until(lambda: (self.folder / "checkpoints" / "iter_0000010").exists(), 40)
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


@pytest.fixture
def outliving(engine: Engine, devcluster: DevCluster) -> Iterator[Callable[[str, int], Orphan]]:
    """Return what makes such a job; its node is healed behind the test, before the engine's own fixture waits for idle nodes."""
    orphans: list[Orphan] = []

    def make(name: str, steps: int) -> Orphan:
        orphans.append(Orphan(engine, devcluster, name, steps))
        return orphans[-1]

    yield make
    for orphan in orphans:
        devcluster.heal(orphan.node)


def test_a_program_that_outlives_its_job_is_left_alone_and_its_incident_settled_once_it_has_finished(
    outliving: Callable[[str, int], Orphan],
) -> None:
    orphan = outliving("orphan", 200)
    asked = orphan.reaches(IncidentState.ESCALATED, within_s=60)
    assert asked.note.startswith(f"the program of job {orphan.job} still runs on {orphan.node} (python3")
    assert "second writer" in asked.note
    assert "it saved step " in asked.note
    settled = orphan.reaches(IncidentState.CLOSED, within_s=150)
    assert "finished by itself" in settled.note
    assert (orphan.folder / "checkpoints" / "iter_0000200").exists()
    assert (orphan.jobs(), orphan.writers) == ([orphan.job], {orphan.job})


def test_once_such_a_program_has_died_its_job_is_started_again(
    outliving: Callable[[str, int], Orphan], devcluster: DevCluster
) -> None:
    orphan = outliving("orphaned", 400)
    asked = orphan.reaches(IncidentState.ESCALATED, within_s=60)
    named = re.search(r"pid (\d+)", asked.note)
    assert named is not None
    devcluster.on(orphan.node, "kill", "-9", named[1])
    until(lambda: orphan.incident() is not None and len(orphan.jobs()) == 2, 120, pause_s=0.5)
    assert orphan.writers <= set(orphan.jobs())
