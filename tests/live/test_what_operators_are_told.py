"""What the operator is told of jobs that hang, go on by themselves, count epochs only, or have others draw into their log."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from assistant.config import Settings, SshSettings, WatchSettings
from assistant.engine import Engine
from assistant.engine.ownership import owner_name
from assistant.engine.report import report
from assistant.policy import KindTerms, Mode, load_policy
from assistant.records import IncidentState, JobSpec, JobState
from assistant.transports.ssh import SshTransport
from assistant.wiring import build
from tests.live.conftest import DevCluster, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]
EPOCHS = """
import glob, os, re, sys, time
os.makedirs("ckpt", exist_ok=True)
found = sorted(glob.glob("ckpt/epoch_*.pt"), key=lambda path: int(re.findall(r"\\d+", path)[-1]))
epoch = 0
if found:
    epoch = int(open(found[-1], "rb").read(10)[1:])
    print(f"resumed from {found[-1]} at epoch {epoch}", flush=True)
while epoch < 9:
    epoch += 1
    print(f"Epoch {epoch}/9", flush=True)
    time.sleep(1)
    print(f"100/100 [====================] - 1s 3ms/step - loss: {0.5 + 1 / (epoch + 5):.4f} - accuracy: 0.91", flush=True)
    with open(f"ckpt/epoch_{epoch}.pt", "wb") as file:
        file.write(b"\\x80" + b"%09d" % epoch + bytes(9000))
    if epoch == 4 and not os.path.exists("died"):
        open("died", "w").close()
        print("RuntimeError: NCCL error: remote process exited or there was a network error, NCCL version 2.19.3", flush=True)
        sys.exit(1)
"""
STANDS = """
import os, sys, time
rate = float(os.environ["PEAK_RATE"])
os.makedirs("ckpt", exist_ok=True)
for step in range(1, 1000):
    time.sleep(0.2)
    print(f"step {step} loss {2 + 1 / step:.4f}", flush=True)
    if step % 20 == 0:
        with open(f"ckpt/step_{step}.pt", "wb") as file:
            file.write(b"\\x80" + b"%09d" % step + bytes(9000))
    if step == 50:
        time.sleep(SECONDS)
"""


def submitted(engine: Engine, folder: Path, source: str, *lines: str) -> str:
    folder.mkdir()
    (folder / "train.py").write_text(source)
    head = "".join(f"{line}\n" for line in lines)
    script = f"#!/bin/bash\n#SBATCH --nodes=1 --output=slurm-%j.out\n{head}cd {folder}\nsrun python3 train.py\n"
    return engine.scheduler.submit(JobSpec(folder.name, script, nodes=1, work_dir=folder))


def test_each_page_is_true_and_nothing_is_ended_that_goes_on_or_cannot_come_back(devcluster: DevCluster, tmp_path: Path) -> None:
    shipped = load_policy()
    kinds = {kind: KindTerms(takes_nodes=terms.takes_nodes, cooldown_min=0) for kind, terms in shipped.kind.items()}
    policy = replace(shipped, mode=Mode.ACT, kill_switch=(), kind=kinds, min_healthy_share=0.0)
    watch = WatchSettings(poll_s=2, hang_after_s=30)
    settings = Settings(state_folder=tmp_path, store=tmp_path / "nightshift.db", watch=watch)
    devcluster.settle()
    with SshTransport(SshSettings(config=devcluster.ssh_config)) as transport:
        engine = build(settings, scheduler=devcluster.scheduler(), transport=transport, policy=policy)
        shared = devcluster.shared
        epochs = submitted(engine, shared / "epochs", EPOCHS)
        hung = submitted(
            engine, shared / "hung", STANDS.replace("SECONDS", "900"), "export PEAK_RATE=${PEAK_RATE:-3e-4}", "#SBATCH --no-requeue"
        )
        pauses = submitted(engine, shared / "pauses", STANDS.replace("SECONDS", "75"), "export PEAK_RATE=3e-4")
        store = engine.store

        def stands(job: str) -> list[str]:
            return [f"{one.state}: {one.note}" for one in store.incidents(job=job)]

        def done() -> bool:
            engine.tick(owner=owner_name("test"))
            states = {one.job: one.state for one in reversed(store.incidents())}
            over = states.get(epochs) is IncidentState.RECOVERED and states.get(pauses) is IncidentState.CLOSED
            return over and hung in states

        try:
            until(done, 70, pause_s=1.0, state=lambda: [stands(job) for job in (epochs, hung, pauses)])
        finally:
            for one in reversed(store.incidents()):
                print(report(store, one.id))
        time.sleep(1)
        assert engine.scheduler.job(hung).state is JobState.RUNNING
        assert engine.scheduler.job(pauses).state is JobState.RUNNING
        assert re.match(r"job \d+ completed at epoch 9; lost: [\d.]+ min", store.incidents(job=epochs)[0].note)
        assert "steps lost" not in report(store, store.incidents(job=epochs)[0].id)
        assert "went on by itself: it is at step" in store.incidents(job=pauses)[0].note
    devcluster.settle()
