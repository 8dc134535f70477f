"""Ten jobs on real Slurm that read one path: it vanishes and comes back. One incident, one message, restarts apart."""

from __future__ import annotations

import dataclasses
import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from assistant.config import WatchSettings
from assistant.daemon.notifications import notices, superseded
from assistant.engine import Engine
from assistant.engine.ownership import owner_name
from assistant.policy import Mode, load_policy
from assistant.policy.terms import ChangeLimits
from assistant.ports import SystemClock
from assistant.records import EventKind, Incident, IncidentState
from assistant.recover import verify
from assistant.watch.outages import members_of
from assistant.wiring import build
from tests.live.conftest import DevCluster, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]

JOBS = 10
APART_S = 2.0
TRAINER = """
import glob, os, sys, time
import numpy
pile, out = sys.argv[1], sys.argv[2]
os.makedirs(out, exist_ok=True)
saved = sorted(glob.glob(out + "/step_*.npz"))
step = int(numpy.load(saved[-1])["step"]) if saved else 0
print("resuming from", saved[-1] if saved else "nothing", flush=True)
while step < 100_000:
    step += 1
    with open(os.path.join(pile, sys.argv[3]), "rb") as shard:
        shard.read(16)
    print(f"step {step} loss {3.0 / (1 + step / 500):.4f}", flush=True)
    if step % 10 == 0:
        numpy.savez(f"{out}/step_{step:06}.tmp.npz", step=step)
        os.replace(f"{out}/step_{step:06}.tmp.npz", f"{out}/step_{step:06}.npz")
        print(f"saved checkpoint to {out}/step_{step:06}.npz", flush=True)
    time.sleep(0.1)
"""
"""Knows nothing of Nightshift; takes its newest checkpoint by itself."""


@pytest.fixture
def engine(devcluster: DevCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(verify, "CONFIRM_S", 5.0)
    clock = SystemClock()
    settings = devcluster.settings(tmp_path, watch=WatchSettings(shared_settle_s=10.0, shared_apart_s=APART_S))
    policy, many = load_policy(), ChangeLimits(per_hour=100, per_day=100)
    kind = {**policy.kind, "resubmit": dataclasses.replace(policy.terms("resubmit"), soft=many, hard=many)}
    policy = dataclasses.replace(policy, mode=Mode.ACT, soft=many, hard=many, kind=kind, kill_switch=(tmp_path / "stop",))
    made = build(settings, clock=clock, policy=policy, since=clock.now())
    yield made
    made.store.close()
    devcluster.settle()


def shared(engine: Engine) -> list[Incident]:
    return [one for one in engine.store.incidents(limit=100) if one.kind is EventKind.OUTAGE]


def ticked(engine: Engine, wanted: Callable[[], bool], seconds: float) -> None:
    """Make passes until something holds; fail when it does not in time."""

    def passed() -> bool:
        if not wanted():
            engine.tick(owner=owner_name("watch"))
        return wanted()

    incidents = engine.store.incidents
    until(passed, seconds, pause_s=0.5, state=lambda: [f"{one.id} {one.state}: {one.note[:200]}" for one in incidents(limit=40)])


def test_ten_jobs_that_lose_one_path_are_one_incident_and_come_back_when_it_does(devcluster: DevCluster, engine: Engine) -> None:
    home = devcluster.shared / "many"
    pile = home / "pile"
    pile.mkdir(parents=True)
    (pile / "shard.bin").write_bytes(b"x" * 64)
    (home / "train.py").write_text(TRAINER, encoding="utf-8")
    ids = []
    for number in range(JOBS):
        script = home / f"team{number}.sbatch"
        line = f"srun {sys.executable} -u {home}/train.py {pile} {home}/ckpt{number} shard.bin"
        script.write_text(f"#!/bin/bash\n#SBATCH --output=%x-%j.log\n#SBATCH --mem=100\n{line}\n", encoding="utf-8")
        ids.append(devcluster.run("sbatch", "--parsable", f"--chdir={home}", "--oversubscribe", str(script)).strip())
    until(lambda: all(list((home / f"ckpt{number}").glob("step_*.npz")) for number in range(JOBS)), 90)
    engine.tick(owner=owner_name("watch"))

    moved = pile.rename(home / "away")
    until(lambda: all(engine.scheduler.job(job).state.ended for job in ids), 60)
    ticked(engine, lambda: bool(shared(engine)), 90)
    ticked(engine, lambda: len(members_of(engine.store.events(shared(engine)[0].id))) == JOBS, 60)
    (outage,) = shared(engine)
    assert outage.service == str(pile)
    for _ in range(4):
        engine.tick(owner=owner_name("watch"))
    assert not [call for call in engine.store.calls() if call.tool in ("resubmit_job", "tell_owner")]
    rows = engine.store.audit_after(0, 100_000)
    told = [one for one in superseded(list(notices(rows, engine.store))) if one.about != "action"]
    assert [one.incident for one in told] == [outage.id]
    assert f"{JOBS} jobs failed of it" in told[0].title

    shutil.copytree(moved, pile)
    done = "resubmit_job"
    ticked(engine, lambda: sum(call.tool == done and call.status == "done" for call in engine.store.calls()) == JOBS, 180)
    times = sorted(call.at for call in engine.store.calls() if call.tool == done and call.status == "done")
    assert all((after - before).total_seconds() >= APART_S / 2 for before, after in pairwise(times)), times
    ticked(engine, lambda: shared(engine)[0].state.ended, 120)
    assert shared(engine)[0].state is IncidentState.RECOVERED, shared(engine)[0].note
    first = (home / f"team0.sbatch-{ids[0]}.log").read_text(encoding="utf-8")
    assert "FileNotFoundError" in first
    assert not [one for one in engine.store.incidents(limit=100) if one.state is IncidentState.ESCALATED]


def test_jobs_that_miss_each_their_own_shard_of_an_emptied_folder_are_one_incident(devcluster: DevCluster, engine: Engine) -> None:
    home, many = devcluster.shared / "shards", 3
    pile, away = home / "pile", home / "away"
    away.mkdir(parents=True)
    pile.mkdir()
    (home / "train.py").write_text(TRAINER, encoding="utf-8")
    ids = []
    for number in range(many):
        (pile / f"shard_{number:04}.bin").write_bytes(b"x" * 64)
        script = home / f"reader{number}.sbatch"
        line = f"srun {sys.executable} -u {home}/train.py {pile} {home}/ckpt{number} shard_{number:04}.bin"
        script.write_text(f"#!/bin/bash\n#SBATCH --output=%x-%j.log\n#SBATCH --mem=100\n{line}\n", encoding="utf-8")
        ids.append(devcluster.run("sbatch", "--parsable", f"--chdir={home}", "--oversubscribe", str(script)).strip())
    until(lambda: all(list((home / f"ckpt{number}").glob("step_*.npz")) for number in range(many)), 90)
    engine.tick(owner=owner_name("watch"))
    for shard in sorted(pile.iterdir()):
        shard.rename(away / shard.name)
    until(lambda: all(engine.scheduler.job(job).state.ended for job in ids), 60)
    ticked(engine, lambda: bool(shared(engine)), 90)
    (outage,) = shared(engine)
    assert outage.service == str(pile)
    assert all(f"shard_{number:04}.bin" in outage.note for number in range(many)), outage.note
    (pile / "README").touch()
    for _ in range(4):
        engine.tick(owner=owner_name("watch"))
    assert not [call for call in engine.store.calls() if call.tool in ("resubmit_job", "tell_owner")]
    for shard in sorted(away.iterdir()):
        shutil.copy(shard, pile)
    ticked(engine, lambda: shared(engine)[0].state.ended, 200)
    assert shared(engine)[0].state is IncidentState.RECOVERED, shared(engine)[0].note
