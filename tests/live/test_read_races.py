"""Tasks of an array that fill one cache together, on real Slurm: the one that read it half written starts again, once and alone."""

from __future__ import annotations

import pytest

from assistant.engine import Engine
from assistant.records import IncidentState, JobState
from tests.live.conftest import until
from tests.live.test_strangers_submission import Owner, ended, engine, over, owner, restarted, watched

__all__ = ["engine", "owner"]

pytestmark = pytest.mark.live
PROGRAM = """import argparse, json, os, pickle, time

parser = argparse.ArgumentParser()
parser.add_argument("--output_dir")
output_dir = parser.parse_args().output_dir
path = os.path.abspath("cache/vocabulary.json")
os.makedirs(os.path.dirname(path), exist_ok=True)
try:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    print("building the vocabulary in", os.path.dirname(path), flush=True)
    time.sleep(6)
    with os.fdopen(handle, "w") as file:
        json.dump({"tokens": [BROKEN]}, file)
except FileExistsError:
    time.sleep(1)
    vocabulary = json.load(open(path))
for step in range(1, 201):
    print(f"step {step} loss {3.0 - step / 1000:.4f}", flush=True)
    time.sleep(0.1)
    if step % 50 == 0:
        os.makedirs(output_dir, exist_ok=True)
        with open(f"{output_dir}/checkpoint-{step}.pt", "wb") as file:
            pickle.dump({"step": step, "model": [0.5] * 100}, file)
print("done")
"""


def test_a_task_that_read_a_cache_half_written_comes_back_alone(engine: Engine, owner: Owner) -> None:
    (owner.folder / "fit.py").write_text(PROGRAM.replace("BROKEN", "1, 2"))
    owner.script("fit.sh", "srun python3 fit.py --output_dir out/$SLURM_ARRAY_TASK_ID")
    array = owner.sbatch("--array=0-1", "fit.sh")
    until(lambda: any(engine.scheduler.job(f"{array}_{task}").state is JobState.FAILED for task in (0, 1)), 30)
    failed = next(f"{array}_{task}" for task in (0, 1) if engine.scheduler.job(f"{array}_{task}").state is JobState.FAILED)
    sibling = f"{array}_{1 - int(failed[-1])}"
    collector = owner.sbatch("--dependency", f"afterok:{array}", "--wrap", "true")
    until(lambda: "step 30" in "".join(log.read_text() for log in owner.folder.glob(f"slurm-{sibling}.out")), 30)
    ended(engine, failed)
    incident = watched(engine, failed, over, 180)
    found = engine.store.diagnosis(incident.id)
    assert found is not None
    assert f"Task {sibling} of the same array went past that place." in found.summary
    assert "cache/vocabulary.json was written at" in found.summary
    assert "same way again" not in found.advice
    assert incident.state is IncidentState.RECOVERED, incident.note
    again = restarted(engine, failed)
    until(lambda: engine.scheduler.job(again).state is JobState.COMPLETED, 60)
    assert all((owner.folder / "out" / str(task) / "checkpoint-200.pt").exists() for task in (0, 1))
    assert len(list(owner.folder.glob("slurm-*_*.out"))) == 3  # two tasks, and one of them once more
    until(lambda: engine.scheduler.job(collector).state is JobState.COMPLETED, 60)


def test_a_cache_that_nobody_writes_stays_its_owners(engine: Engine, owner: Owner) -> None:
    (owner.folder / "fit.py").write_text(PROGRAM.replace("BROKEN", ""))
    (owner.folder / "cache").mkdir()
    (owner.folder / "cache" / "vocabulary.json").write_text("")
    owner.script("fit.sh", "srun python3 fit.py --output_dir out/$SLURM_ARRAY_TASK_ID")
    array = owner.sbatch("--array=0-1", "fit.sh")
    for task in (0, 1):
        ended(engine, f"{array}_{task}")
    for task in (0, 1):
        incident = watched(engine, f"{array}_{task}", over, 120)
        assert incident.state is IncidentState.ESCALATED, incident.note
        assert not [call for call in engine.store.calls(incident.id) if call.tool == "resubmit_job"]
