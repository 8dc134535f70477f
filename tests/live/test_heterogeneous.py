"""A heterogeneous job on real Slurm whose one component writes the checkpoints that the other one only reads."""

from __future__ import annotations

import pytest

from assistant.engine import Engine
from assistant.records import IncidentState
from assistant.schedulers.slurm import SlurmScheduler
from tests.live.test_strangers_submission import Owner, ended, engine, over, owner, restarted, watched

__all__ = ["engine", "owner"]

pytestmark = pytest.mark.live

PACE = """
import os, sys, time
from pathlib import Path


def meet(name, step):
    board = Path("board", os.environ["MEETING"])
    board.mkdir(parents=True, exist_ok=True)
    (board / f".{name}").write_text(str(step))
    os.replace(board / f".{name}", board / name)
    while True:
        try:
            if all(int((board / other).read_text()) >= step for other in ("writer", "reader")):
                return
        except (OSError, ValueError):
            pass
        time.sleep(0.02)
"""
WRITER = """
import json, os, struct, time
from pace import meet


def weights(path, step):
    raw = struct.pack("<16f", *[0.01 * (step + place) for place in range(16)])
    head = json.dumps({"w": {"dtype": "F32", "shape": [16], "data_offsets": [0, len(raw)]}}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + raw)


step = 0
os.makedirs("saves", exist_ok=True)
if os.path.islink("saves/latest"):
    step = json.load(open("saves/latest/progress.json"))["global_step"]
    print(f"going on behind {os.path.realpath('saves/latest')} (global_step {step})", flush=True)
while step < 300:
    step += 1
    meet("writer", step)
    time.sleep(0.05)
    print(f"step {step}/300 loss={3 - step / 1000:.4f}", flush=True)
    if step % 10 == 0:
        folder = f"saves/step_{step:04d}"
        os.makedirs(folder + ".part", exist_ok=True)
        weights(f"{folder}.part/weights.safetensors", step)
        json.dump({"global_step": step}, open(f"{folder}.part/progress.json", "w"))
        os.rename(folder + ".part", folder)
        os.symlink(f"step_{step:04d}", "saves/.latest")
        os.replace("saves/.latest", "saves/latest")
"""
READER = """
import json, os, sys, time
from pace import meet

step = json.load(open("saves/latest/progress.json"))["global_step"] if os.path.islink("saves/latest") else 0
print(f"serving rollouts with the weights of step {step}", flush=True)
while step < 300:
    step += 1
    meet("reader", step)
    if step == 27 and not os.path.exists("failed-before"):
        open("failed-before", "w").close()
        time.sleep(1)  # until the other component has told of this step
        print("[rank1]:[E105 02:00:55.12 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: "
              "WorkNCCL(SeqNum=51, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600097 milliseconds before "
              "timing out.", flush=True)
        sys.exit(1)
"""
SCRIPT = (
    "#SBATCH --job-name=split --nodes=1 --ntasks=1",
    "#SBATCH hetjob",
    "#SBATCH --nodes=2 --ntasks=1",
    "",
    "export MEETING=$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}",
    "",
    "srun --het-group=0 python3 -u writer.py &",
    "W=$!",
    "srun --het-group=1 python3 -u reader.py &",
    "R=$!",
    "",
    "wait -n $W $R",
    "code=$?",
    "kill $W $R 2>/dev/null",
    "wait",
    "exit $code",
)


@pytest.fixture
def split(owner: Owner) -> Owner:
    for name, text in (("pace.py", PACE), ("writer.py", WRITER), ("reader.py", READER)):
        (owner.folder / name).write_text(text)
    owner.script("split.sbatch", *SCRIPT)
    return owner


def test_all_components_come_back_together_from_the_link_that_one_of_them_writes(engine: Engine, split: Owner) -> None:
    first = split.sbatch("split.sbatch")
    ended(engine, first)
    shown = engine.scheduler.job(first)
    assert shown.spec is not None
    assert shown.spec.script == (split.folder / "split.sbatch").read_text()
    assert shown.submit_line == "sbatch --parsable split.sbatch"
    incident = watched(engine, shown.id, over)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert restarted(engine, shown.id).partition("+")[0] == first
    assert "lost: 7 steps" in incident.note
    states = split.cluster.run("squeue", "-h", "-j", first, "-O", "State:12").split()
    assert states == ["RUNNING", "RUNNING"]


def test_a_job_that_may_not_be_queued_again_is_told_with_its_command_checkpoint_and_cost(engine: Engine, split: Owner) -> None:
    split.script("split.sbatch", "#SBATCH --no-requeue", *SCRIPT)
    first = split.sbatch("split.sbatch")
    ended(engine, first)
    incident = watched(engine, engine.scheduler.job(first).id, over)
    assert incident.state is IncidentState.ESCALATED, incident.note
    assert f"job {first} is a heterogeneous job of 2 components, which have to be started together" in incident.note
    assert f"`sbatch --parsable split.sbatch` in {split.folder}" in incident.note
    assert f"from {split.folder / 'saves/step_0020'} (step 20); 7 steps, 20 to 27, are lost" in incident.note
    assert "not kept whole" not in incident.note


def test_all_components_stay_away_from_a_node_when_they_are_queued_again(engine: Engine, split: Owner) -> None:
    first = split.sbatch("split.sbatch")
    ended(engine, first)
    assert isinstance(engine.scheduler, SlurmScheduler)
    engine.scheduler.requeue(engine.scheduler.job(first).id, hold=True, exclude=(split.cluster.nodes[3],), comment="of a test")
    records = [split.cluster.run("scontrol", "show", "job", f"{first}+{part}").split() for part in (0, 1)]
    excluded = [word for record in records for word in record if word.startswith("ExcNodeList=")]
    assert excluded == [f"ExcNodeList={split.cluster.nodes[3]}"] * 2
