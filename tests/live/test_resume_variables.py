"""Scripts that go on by a variable of their own, on real Slurm: a restart sets it, the next one anew, and nothing else differs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.engine import Engine
from assistant.policy import Mode
from assistant.records import IncidentState
from tests.live.conftest import DevCluster
from tests.live.test_strangers_queue import TIMEOUT
from tests.live.test_strangers_submission import Owner, ended, over, restarted, watched
from tests.live.test_wrong_starts import made_engine

pytestmark = pytest.mark.live

TRAINER = """import argparse, json, os, re, struct, sys, time
import torch

p = argparse.ArgumentParser()
p.add_argument("--out", default="ckpt")
p.add_argument("--resume_from_checkpoint", default=None)
args = p.parse_args()
def save(step):
    os.makedirs(f"{args.out}/step_{step}", exist_ok=True)
    header = json.dumps({"wte": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    with open(f"{args.out}/step_{step}/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + os.urandom(16))
    torch.save({"step": step, "job": os.environ["SLURM_JOB_ID"]}, f"{args.out}/step_{step}/state.json")
step = 0
if args.resume_from_checkpoint:
    state = torch.load(os.path.join(args.resume_from_checkpoint, "state.json"))
    step = state["step"]
    print("resuming from", args.resume_from_checkpoint, flush=True)
with open("writers.log", "a") as file:
    file.write(f"{step} {args.resume_from_checkpoint or '-'} {os.environ.get('LR', '-')}\\n")
while step < 120:
    step += 1
    time.sleep(0.05 if step < 46 else 0.4)
    print(f"step {step} loss {3.0 - step / 100:.4f}", flush=True)
    if step % 10 == 0:
        save(step)
    if step in (45, 95) and not os.path.exists(f"failed-{step}"):
        open(f"failed-{step}", "w").close()
        raise RuntimeError(open("error.txt").read())
print("training done", flush=True)
"""
TORCH = """import json
def load(path, **_):
    return json.load(open(path))
def save(value, path):
    json.dump(value, open(path, "w"))
"""
"""The two functions of it that the program calls: nodes of the test cluster have no torch."""


@pytest.fixture
def engine(devcluster: DevCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    made = made_engine(devcluster, tmp_path, monkeypatch, Mode.ACT)
    yield made
    made.store.close()
    devcluster.settle()


@pytest.fixture
def owner(devcluster: DevCluster, tmp_path: Path) -> Owner:
    user = Owner(devcluster, devcluster.shared / tmp_path.name)
    (user.folder / "error.txt").write_text(TIMEOUT)
    (user.folder / "x.py").write_text(TRAINER)
    (user.folder / "torch.py").write_text(TORCH)
    usage = "#   RESUME=ckpt/step_40 sbatch run.sh"
    user.script("run.sh", usage, 'srun python3 -u x.py --out ckpt ${RESUME:+--resume_from_checkpoint "$RESUME"}')
    return user


def begins(owner: Owner) -> list[str]:
    """Return step, checkpoint and learning rate with which each attempt began."""
    return (owner.folder / "writers.log").read_text().splitlines()


def test_a_restart_sets_the_variable_of_the_script_and_the_next_one_sets_it_anew(engine: Engine, owner: Owner) -> None:
    first = owner.sbatch("run.sh", LR="3e-4")
    ended(engine, first)
    incident = watched(engine, first, over, 90)
    assert incident.state is IncidentState.RECOVERED, incident.note
    second = restarted(engine, first)
    folder = owner.folder / "ckpt"
    assert begins(owner)[:2] == ["0 - 3e-4", f"40 {folder}/step_40 3e-4"]
    [call] = [call for call in engine.store.calls(incident.id) if call.tool == "resubmit_job"]
    assert f"RESUME={folder}/step_40" in call.preview, "what is approved and audited shows it"
    ended(engine, second)
    incident = watched(engine, second, over, 90)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert begins(owner)[2:] == [f"90 {folder}/step_90 3e-4"]


def test_a_job_that_was_resumed_from_an_older_step_does_not_fall_back_to_it(engine: Engine, owner: Owner) -> None:
    program = owner.folder / "x.py"
    program.write_text(TRAINER.replace("step < 120", "step < 25"))
    first = owner.sbatch("run.sh")
    ended(engine, first)
    program.write_text(TRAINER)
    second = owner.sbatch("run.sh", RESUME="ckpt/step_20")
    ended(engine, second)
    incident = watched(engine, second, over, 90)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert begins(owner)[:3] == ["0 - -", "20 ckpt/step_20 -", f"40 {owner.folder}/ckpt/step_40 -"]


NUMBERED = """import argparse, os, time
import torch
p = argparse.ArgumentParser()
p.add_argument("--exp", default="exp")
p.add_argument("--start-batch", type=int, default=0)
args = p.parse_args()
def restored(args):
    if args.start_batch > 0:
        name = f"{args.exp}/checkpoint-{args.start_batch}.pt"
    else:
        return 0
    state = torch.load(name)
    print("loaded", name, flush=True)
    return state["batch_idx"]
os.makedirs(args.exp, exist_ok=True)
batch = restored(args)
with open("writers.log", "a") as file:
    file.write(f"{batch} {args.start_batch}\\n")
while batch < 120:
    batch += 1
    time.sleep(0.05 if batch < 46 else 0.4)
    print(f"step {batch} loss {3.0 - batch / 100:.4f}", flush=True)
    if batch % 20 == 0:
        torch.save({"batch_idx": batch, "model": {}}, f"{args.exp}/checkpoint-{batch}.pt")
    if batch in (45, 95) and not os.path.exists(f"failed-{batch}"):
        open(f"failed-{batch}", "w").close()
        raise RuntimeError(open("error.txt").read())
print("training done", flush=True)
"""
ZIPPED = """import pickle, zipfile
def load(path, **_):
    with zipfile.ZipFile(path) as archive:
        return pickle.loads(archive.read("archive/data.pkl"))
def save(value, path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(value, 2))
        archive.writestr("archive/version", "3")
"""


def test_a_program_that_takes_a_number_goes_on_from_the_checkpoint_of_it(engine: Engine, owner: Owner) -> None:
    (owner.folder / "x.py").write_text(NUMBERED)
    (owner.folder / "torch.py").write_text(ZIPPED)
    owner.script("run.sh", "# go on with: sbatch run.sh --start-batch N", 'srun python3 -u x.py --exp exp "$@"')
    first = owner.sbatch("run.sh")
    ended(engine, first)
    incident = watched(engine, first, over, 90)
    assert incident.state is IncidentState.RECOVERED, incident.note
    second = restarted(engine, first)
    ended(engine, second)
    incident = watched(engine, second, over, 90)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert begins(owner) == ["0 0", "40 40", "80 80"]


ON_ITS_DISK = """import argparse, os, time
import torch
p = argparse.ArgumentParser()
p.add_argument("--output_dir")
args = p.parse_args()
os.makedirs(args.output_dir, exist_ok=True)
done = sorted(int(name.split("-")[1]) for name in os.listdir(args.output_dir) if name.startswith("checkpoint-"))
step = done[-1] if done else 0
with open("writers.log", "a") as file:
    file.write(f"{step}\\n")
for step in range(step + 1, 46):
    time.sleep(0.05)
    print(f"step {step} loss {3.0 - step / 100:.4f}", flush=True)
    if step % 20 == 0:
        path = f"{args.output_dir}/checkpoint-{step}"
        os.makedirs(path, exist_ok=True)
        torch.save({"step": step}, f"{path}/model.pt")
        print(f"Saved state to {path}", flush=True)
raise RuntimeError(open("error.txt").read())
"""


def test_of_checkpoints_on_the_own_disk_of_a_node_folder_and_node_are_named_and_nothing_begins_anew(
    engine: Engine, owner: Owner
) -> None:
    (owner.folder / "x.py").write_text(ON_ITS_DISK)
    (owner.folder / "torch.py").write_text(ZIPPED)
    folder = f"/scratch/{owner.folder.name}"
    owner.script("run.sh", f"OUT={folder}", 'srun python3 -u x.py --output_dir "$OUT"')
    first = owner.sbatch("run.sh")
    ended(engine, first)
    [node] = engine.scheduler.job(first).nodes
    incident = watched(engine, first, over, 90)
    assert incident.state is IncidentState.ESCALATED, incident.note
    assert f"{folder} on {node} holds checkpoint-40, checkpoint-20" in incident.note
    assert begins(owner) == ["0"]
