"""Files that others write while a job reads them, on real Slurm: a bus error waits for the writer."""

from __future__ import annotations

import time

import pytest

from assistant.engine import Engine
from assistant.engine.ownership import owner_name
from assistant.records import IncidentState, JobState
from tests.live.conftest import until
from tests.live.test_strangers_submission import Owner, ended, engine, over, owner, restarted, watched

__all__ = ["engine", "owner"]

pytestmark = pytest.mark.live
READER = """import mmap, sys, time

file = open(sys.argv[1], "rb")
held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
for step in range(1, 161):
    held[(step * 524287) % len(held)]
    print(f"step {step} loss {3.0 - step / 1000:.4f}", flush=True)
    time.sleep(0.1)
print("done")
"""
WRITER = """import sys, time

with open(sys.argv[1], "wb") as file:
    for part in range(30):
        file.write(b"x" * 262144)
        file.flush()
        time.sleep(1)
"""


def test_a_job_waits_for_the_one_that_rewrites_its_data(engine: Engine, owner: Owner) -> None:
    data = owner.folder / "tokens.bin"
    data.write_bytes(b"x" * 262144 * 30)
    (owner.folder / "read.py").write_text(READER)
    (owner.folder / "write.py").write_text(WRITER)
    owner.script("train.sh", f"srun python3 read.py {data}")
    owner.script("prepare.sh", f"python3 write.py {data}")
    first = owner.sbatch("train.sh")
    until(lambda: any("step 20" in log.read_text() for log in owner.folder.glob("slurm-*.out")), 30)
    writer = owner.sbatch("-J", "prepare", "prepare.sh")
    ended(engine, first)
    watched(engine, first, lambda incident: incident.state is IncidentState.RECOVERING and "still writes" in incident.note)
    (incident,) = engine.store.incidents(job=first)
    found = engine.store.diagnosis(incident.id)
    assert found is not None
    assert found.reason == "os_error"
    assert f"{data} of root, which the job reads, was modified" in found.summary
    assert f"job {writer} (prepare) of root" in found.summary
    while engine.scheduler.job(writer).state is JobState.RUNNING:
        engine.tick(owner=owner_name("test"))
        assert not [call for call in engine.store.calls(incident.id) if call.tool == "resubmit_job"]
        time.sleep(1)
    incident = watched(engine, first, over, 180)
    assert incident.state is IncidentState.RECOVERED, incident.note
    began, over_at = engine.scheduler.job(restarted(engine, first)).started, engine.scheduler.job(writer).ended
    assert began is not None
    assert over_at is not None
    assert began > over_at
