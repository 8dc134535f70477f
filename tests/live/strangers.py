"""Training programs that know nothing of Nightshift, as users write them; each dies once, at its step 70.

They are real where the torch environment has the framework, else they write its layout byte for byte and log in its style.
"""

from __future__ import annotations

DIE = """
import os, sys, time
def die(step, at, log=None):
    if step == at and not os.path.exists("died"):
        open("died", "w").close()
        print("[rank1]:[E105 02:00:55.12 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: "
              "WorkNCCL(SeqNum=51, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600097 milliseconds "
              "before timing out.", file=log, flush=True)
        time.sleep(0.5)
        os._exit(1)
"""
HUGGINGFACE = (
    DIE
    + """
import argparse
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint
parser = argparse.ArgumentParser()
parser.add_argument("--output_dir")
parser.add_argument("--max_steps", type=int, default=80)
args = parser.parse_args()
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 1)
    def forward(self, x, labels=None):
        return {"loss": (self.layer(x).squeeze(-1) - labels).square().mean()}
class Die(TrainerCallback):
    def on_step_end(self, a, state, control, **k):
        die(state.global_step, 70)
torch.manual_seed(0)
samples = [{"x": torch.randn(16), "labels": torch.tensor(1.0)} for _ in range(64)]
training = TrainingArguments(output_dir=args.output_dir, max_steps=args.max_steps, save_steps=20, logging_steps=1, report_to=[],
                             per_device_train_batch_size=4, use_cpu=True)
trainer = Trainer(model=Model(), args=training, train_dataset=samples, callbacks=[Die()])
RESUME
print("finished at", trainer.state.global_step)
"""
)
LIGHTNING = (
    DIE
    + """
import glob
import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def training_step(self, batch, number):
        loss = self.layer(batch).square().mean()
        print(f"step {self.global_step + 1} loss {loss.item():.5f}", flush=True)
        return loss
    def on_train_batch_end(self, *a):
        die(self.global_step, 70)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)
torch.manual_seed(0)
data = torch.utils.data.DataLoader(torch.randn(64, 8), batch_size=4)
saves = ModelCheckpoint(dirpath="runs/ckpt", every_n_train_steps=20, save_top_k=-1)
trainer = L.Trainer(max_steps=80, accelerator="cpu", callbacks=[saves], logger=False, enable_progress_bar=False)
found = sorted(glob.glob("runs/ckpt/*.ckpt"), key=lambda path: int(path.split("step=")[1].split(".")[0]))
trainer.fit(Model(), data, ckpt_path=found[-1] if found else None)
print("finished at", trainer.global_step)
"""
)
ACCELERATE = (
    DIE
    + """
import torch
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
model = torch.nn.Linear(16, 1)
optimizer = torch.optim.AdamW(model.parameters())
model, optimizer = accelerator.prepare(model, optimizer)
first = 1
folders = [name for name in os.listdir("out") if name.startswith("step_")] if os.path.isdir("out") else []
if folders:
    latest = max(folders, key=lambda name: int(name.split("_")[1]))
    accelerator.print(f"Resumed from checkpoint: out/{latest}")
    accelerator.load_state(f"out/{latest}")
    first = int(latest.split("_")[1]) + 1
for step in range(first, 81):
    loss = model(torch.randn(4, 16)).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step} loss {loss.item():.5f}", flush=True)
    if step % 20 == 0:
        accelerator.save_state(f"out/step_{step}")
    die(step, 70)
print("finished")
"""
)
FSDP = (
    DIE
    + """
import re
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Linear(32, 1))
fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
optimizer = torch.optim.AdamW(model.parameters())
CKPT = os.path.join(sys.argv[1], "checkpoint")
def newest():
    steps = [int(m[1]) for name in (os.listdir(CKPT) if os.path.isdir(CKPT) else [])
             if (m := re.fullmatch(r"step-(\\d+)", name)) and os.path.exists(os.path.join(CKPT, name, ".metadata"))]
    return max(steps, default=-1)
first, step = 1, newest()
if step > 0:
    states = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
    if rank == 0:
        print(f"Loading the checkpoint from {CKPT}/step-{step}.", flush=True)
    dcp.load(states, checkpoint_id=f"{CKPT}/step-{step}")
    set_state_dict(model, optimizer, model_state_dict=states["model"], optim_state_dict=states["optimizer"])
    first = step + 1
for step in range(first, 81):
    loss = model(torch.randn(4, 32)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if rank == 0:
        print(f"step {step} loss {loss.item():.5f}", flush=True)
    if step % 20 == 0:
        model_state, optimizer_state = get_state_dict(model, optimizer)
        dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=f"{CKPT}/step-{step}")
    dist.barrier()
    if rank == 0:
        die(step, 70)
if rank == 0:
    print("finished", flush=True)
dist.destroy_process_group()
os._exit(0)  # with gloo Python's own end aborts now and then: "terminate called without an active exception"
"""
)
TORCHTITAN = FSDP.replace(
    'CKPT = os.path.join(sys.argv[1], "checkpoint")',
    """import argparse, tomllib
parser = argparse.ArgumentParser()
parser.add_argument("--job.config_file", dest="config_file")
with open(parser.parse_args().config_file, "rb") as file:
    config = tomllib.load(file)
assert config["checkpoint"]["enable"]
CKPT = os.path.join(config["job"].get("dump_folder", "./outputs"), config["checkpoint"].get("folder", "checkpoint"))""",
)
TORCHTITAN_TOML = """[job]
description = "debug model"

[training]
steps = 80

[checkpoint]
enable = true
interval = 20
"""
MEGATRON = (
    DIE
    + """
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--save")
parser.add_argument("--load", default=None)
parser.add_argument("--save-interval", type=int, default=20)
args = parser.parse_args()
model = torch.nn.Linear(16, 16)
first = 1
tracker = os.path.join(args.load, "latest_checkpointed_iteration.txt") if args.load else ""
if tracker and os.path.isfile(tracker):
    with open(tracker) as file:
        iteration = int(file.read().strip())
    name = os.path.join(args.load, f"iter_{iteration:07d}", "mp_rank_00", "model_optim_rng.pt")
    state = torch.load(name, weights_only=True)
    model.load_state_dict(state["model"])
    print(f"  successfully loaded checkpoint from {args.load} [ t 1/1, p 1/1 ] at iteration {iteration}", flush=True)
    first = iteration + 1
else:
    print("WARNING: could not find the metadata file", tracker)
    print("    will not load any checkpoints and will start from random", flush=True)
for step in range(first, 81):
    print(f" iteration {step:8d}/      80 | consumed samples: {step * 4:12d} | elapsed time per iteration (ms): 20.0 | "
          f"learning rate: 1.0E-04 | global batch size:     4 | lm loss: {2.5 + 1 / step:.6E} | loss scale: 1.0 | "
          f"grad norm: 0.500 | number of skipped iterations:   0 | number of nan iterations:   0 |", flush=True)
    time.sleep(0.02)
    if step % args.save_interval == 0:
        folder = os.path.join(args.save, f"iter_{step:07d}", "mp_rank_00")
        os.makedirs(folder)
        torch.save({"model": model.state_dict(), "iteration": step}, os.path.join(folder, "model_optim_rng.pt"))
        with open(os.path.join(args.save, "latest_checkpointed_iteration.txt"), "w") as file:
            file.write(str(step))
    die(step, 70)
"""
)
NANOGPT = (
    DIE
    + """
import torch
out_dir = "out"
init_from = "scratch"
for argument in sys.argv[1:]:
    key, value = argument.lstrip("-").split("=")
    globals()[key] = value
os.makedirs(out_dir, exist_ok=True)
model = torch.nn.Linear(16, 16)
iter_num = 0
if init_from == "scratch":
    print("Initializing a new model from scratch")
else:
    print(f"Resuming training from {out_dir}")
    checkpoint = torch.load(os.path.join(out_dir, "ckpt.pt"), weights_only=True)
    model.load_state_dict(checkpoint["model"])
    iter_num = checkpoint["iter_num"]
while iter_num <= 80:
    if iter_num % 20 == 0 and iter_num:
        torch.save({"model": model.state_dict(), "iter_num": iter_num, "config": {}}, os.path.join(out_dir, "ckpt.pt"))
        print(f"saving checkpoint to {out_dir}")
    print(f"iter {iter_num}: loss {2.5 + 1 / (iter_num + 1):.4f}, time 20.00ms, mfu -100.00%", flush=True)
    time.sleep(0.02)
    die(iter_num, 70)
    iter_num += 1
"""
)
PLAIN = (
    DIE
    + """
import torch
from pathlib import Path
saves = Path("work") / "saves"
first = 1
RESUME
for step in range(first, 81):
    print(f"step {step} loss {2.5 + 1 / step:.4f}", flush=True)
    time.sleep(0.02)
    if step % 20 == 0:
        folder = saves / f"step_{step}"
        folder.mkdir(parents=True, exist_ok=True)
        for part in ("model", "optimizer"):
            torch.save({"step": step, "weights": torch.randn(100)}, folder / f"{part}.pt")
    die(step, 70)
"""
)
COMPUTED = (
    DIE
    + """
import hashlib
import torch
from pathlib import Path
name = hashlib.sha256(b"lr=3e-4 layers=12").hexdigest()
run = Path("/".join(["ELSEWHERE", name[:8]]))
saves = run / name[8:14]
saves.mkdir(parents=True, exist_ok=True)
log = open(run / name[14:20], "a", buffering=1)
first = 1
found = sorted(saves.glob("step_*"), key=lambda path: int(path.name.split("_")[1]))
if found:
    state = torch.load(found[-1] / "model.pt", weights_only=True)
    first = state["step"] + 1
    print(f"resumed from {found[-1]}", file=log)
for step in range(first, 141):
    print(f"step {step} loss {2.5 + 1 / step:.4f}", file=log)
    time.sleep(0.3)
    if step % 20 == 0:
        folder = saves / f"step_{step}"
        folder.mkdir(parents=True, exist_ok=True)
        torch.save({"step": step, "weights": torch.randn(100)}, folder / "model.pt")
    die(step, 70, log)
print("finished", file=log)
"""
)
"""Log and checkpoints lie below ELSEWHERE, in folders whose names it computes; it runs for so long that it is looked at."""
TIMM = (
    DIE
    + """
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--resume", default="")
args = parser.parse_args()
os.makedirs("output/vit", exist_ok=True)
first, updates = 0, 10
if args.resume:
    checkpoint = torch.load(args.resume, weights_only=True)
    first = checkpoint["epoch"] + 1
    print(f"Loaded checkpoint '{args.resume}' (epoch {checkpoint['epoch']})", flush=True)
for epoch in range(first, 14):
    for update in range(updates):
        step = epoch * updates + update
        time.sleep(0.05)
        loss = 2.5 + 1 / (step + 1)
        if update % 5 == 0 or update == updates - 1:
            share = 100 * update / (updates - 1)
            print(f"Train: {epoch} [{update:>4d}/{updates} ({share:>3.0f}%)]  Loss: {loss:#.3g} ({loss:#.3g})  "
                  "Time: 0.402s,  636.82/s  (0.402s,  636.82/s)  LR: 5.000e-04  Data: 0.008 (0.011)", flush=True)
        die(step, 75)
    state = {"epoch": epoch, "arch": "vit", "state_dict": torch.randn(100), "version": 2, "metric": epoch * 6.0}
    name = f"output/vit/checkpoint-{epoch}.pth.tar"
    torch.save(state, name)
    for other in ("last", "model_best"):
        if os.path.exists(f"output/vit/{other}.pth.tar"):
            os.unlink(f"output/vit/{other}.pth.tar")
        os.link(name, f"output/vit/{other}.pth.tar")
    print(f"Current checkpoints:\\n ('{name}', {epoch * 6.0})", flush=True)
print("*** Best metric: 84.0 (epoch 13)", flush=True)
"""
)
"""Counts epochs; `last.pth.tar` and `model_best.pth.tar` are hard links, as timm makes them."""
HYDRA = (
    DIE
    + """
import yaml
import torch
config = yaml.safe_load(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "conf/config.yaml")))
for word in sys.argv[1:]:
    key, value = word.split("=", 1)
    at = config
    for part in key.split(".")[:-1]:
        at = at[part]
    at[key.split(".")[-1]] = yaml.safe_load(value)
folder = os.path.join(os.getcwd(), time.strftime("outputs/%Y-%m-%d/%H-%M-%S"), "checkpoints")
os.makedirs(folder)
step = 0
if config["ckpt_path"]:
    path = os.path.join(os.getcwd(), config["ckpt_path"])
    state = torch.load(path, weights_only=True)
    step = state["global_step"]
    print(f"Restored all states from the checkpoint at {path}", flush=True)
print(f"lr {config['model']['lr']}", flush=True)
while step < 80:
    time.sleep(0.05)
    step += 1
    epoch, place = divmod(step - 1, 40)
    if step % 5 == 0:
        print(f"Epoch {epoch}: {int((place + 1) / 40 * 100):3d}%|{'#' * (place // 4):<10}| {place + 1}/40 [00:01<00:00,  1.97it/s, "
              f"v_num=0, train/loss={2.5 + 1 / step:.3f}]", flush=True)
    if step % 20 == 0:
        name = f"{folder}/epoch={epoch}-step={step}.ckpt"
        state = {"epoch": epoch, "global_step": step, "state_dict": {"w": torch.randn(100)}, "lr_schedulers": []}
        torch.save({**state, "pytorch-lightning_version": "2.4.0", "optimizer_states": []}, name)
        if os.path.exists(f"{folder}/last.ckpt"):
            os.remove(f"{folder}/last.ckpt")
        os.link(name, f"{folder}/last.ckpt")
        print(f"val/loss reached {2.5 + 1 / step:.5f}, saving model to {name!r} as top 3", flush=True)
    die(step, 70)
print("`Trainer.fit` stopped: `max_steps=80` reached.", flush=True)
"""
)
"""Settings on the command line as Hydra takes them, a new folder at each start, and bars that start anew each epoch."""
COMPOSER = """
import os, sys, time
import torch
import yaml
config = yaml.safe_load(open(sys.argv[1]))
folder, ranks, batch = config["save_folder"], 2, 0
os.makedirs(folder, exist_ok=True)
first = not os.path.exists("lost")
latest = f"{folder}/latest-rank0.pt"
if config["autoresume"] and os.path.lexists(latest):
    states = [torch.load(f"{folder}/latest-rank{rank}.pt", weights_only=True)["state"] for rank in range(ranks)]
    loaded = [state["timestamp"]["batch"] for state in states]
    if len(set(loaded)) > 1:
        raise ValueError(f"the ranks loaded batches {loaded}")
    batch = loaded[0]
    print(f"INFO: composer.utils.checkpoint: Loading checkpoint from {latest}", flush=True)
while batch < 900:
    time.sleep(0.15 if first else 0.02)
    batch += 1
    lost = first and batch >= 74
    if lost:
        open("lost", "w").close()
    loss = float("nan") if lost else 2.5 + 1 / batch
    print(f"[batch={batch}/900]:\\n\\t Train time/batch: {batch - 1}\\n\\t Train loss/train/total: {loss:.4f}", flush=True)
    for rank in range(ranks) if batch % 10 == 0 else ():
        name = f"ep0-ba{batch}-rank{rank}.pt"
        if os.path.exists(f"{folder}/{name}"):
            raise FileExistsError(f"The checkpoint {name} already exists and save_overwrite is False")
        state = {"model": torch.randn(100), "timestamp": {"batch": batch, "epoch": 0}}
        torch.save({"state": state, "rng": []}, f"{folder}/{name}")
        os.symlink(name, f"{folder}/.link")
        os.replace(f"{folder}/.link", f"{folder}/latest-rank{rank}.pt")
print("Done.", flush=True)
"""
"""Loses its loss once, trains on and saves that; it goes on by the links of its ranks, as Composer does."""
