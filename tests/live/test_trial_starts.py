"""Trial starts on real nodes: what only a run can tell is tried in a sandbox, proves what is loaded, and changes nothing."""

from __future__ import annotations

import hashlib
import os
import pwd
from dataclasses import replace
from pathlib import Path

import pytest

from assistant.engine import Engine
from assistant.ports import Reply
from assistant.records import IncidentState
from assistant.recover.trial.judgement import TrialAnswer, trial_answer
from assistant.recover.trial.trial import trial_command
from tests.live.conftest import DevCluster
from tests.live.test_one_node import ADA, User, engine
from tests.live.test_strangers_queue import TIMEOUT
from tests.live.test_strangers_submission import ended, over, restarted, watched

pytestmark = pytest.mark.live
__all__ = ["engine"]

PICKLED = """import os, pickle
def write(path, value):
    with open(path + ".part", "wb") as file:
        pickle.dump(value, file)
    os.replace(path + ".part", path)
def read(path):
    with open(path, "rb") as file:
        return pickle.load(file)
"""
REGISTRY = """import importlib, os, time
import store
HOOKS = {}
def hook(name):
    return lambda function: HOOKS.setdefault(name, function)
@hook("warm")
def warm():
    name = os.environ.get("WARM")
    return getattr(store, "read")(name)["n"] if name else 0
n = HOOKS["warm"]()
print("begin at", n, flush=True)
while n < 120:
    n += 1
    time.sleep(0.05 if n < 46 else 0.3)
    print(f"step {n} loss {3.0 - n / 100:.4f}", flush=True)
    if n % 20 == 0:
        store.write(f"ckpt/stand_{n:04d}.bin", {"n": n, "w": b"x" * 3000})
    if n == 45 and not os.path.exists("failed"):
        open("failed", "w").close()
        raise RuntimeError(open("error.txt").read())
print("training done", flush=True)
"""
"""Its way of going on stands in a table of functions and a variable of the environment: reading alone leaves it open."""
WILD = """#!/bin/bash
rm -rf ckpt/*
echo changed > ckpt/mine
echo changed > ../outside
unshare -Urm sh -c 'mount -o remount,rw,bind "$PWD/.."; echo nested > ../outside; echo nested > ckpt/mine'
nsenter -t 1 -m true && echo REACHED
for number in 1 2 $PPID; do echo changed > /proc/$number/root$PWD/ckpt/mine; done
touch /tmp/left-behind /dev/shm/left-behind
(sleep 60; echo late > ckpt/late) &
setsid sleep 61 &
python3 -c 'import socket; socket.create_connection(("10.203.0.1", 6817), 2)' && echo CONNECTED
scontrol show config > /dev/null 2>&1 && echo REACHED
kill -9 -1
echo survived
"""


@pytest.fixture
def owner(devcluster: DevCluster, tmp_path: Path) -> User:
    user = User(devcluster, devcluster.shared / tmp_path.name)
    (user.folder / "error.txt").write_text(TIMEOUT)
    (user.folder / "store.py").write_text(PICKLED)
    (user.folder / "x.py").write_text(REGISTRY)
    (user.folder / "ckpt").mkdir()
    return user


def digests(folder: Path) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*")) if path.is_file()}


def trials(engine: Engine, job: str) -> list[dict[str, object]]:
    """Return what the trial starts of a job have found."""
    calls = [call for one in engine.store.incidents(job=job) for call in engine.store.calls(one.id) if call.tool == "trial_start"]
    outcomes = [engine.store.outcome(call.id) for call in calls]
    return [outcome.value for outcome in outcomes if outcome is not None and outcome.ok]


def test_what_reading_leaves_open_is_tried_and_then_submitted(engine: Engine, owner: User) -> None:
    owner.script("run.sh", "# go on: WARM=ckpt/stand_0040.bin sbatch run.sh", "srun python3 -u x.py")
    first = owner.sbatch("run.sh")
    ended(engine, first)
    incident = watched(engine, first, over, 120)
    assert incident.state is IncidentState.RECOVERED, incident.note
    [found] = trials(engine, first)
    assert (found["proven"], found["variable"]) == ("yes", "WARM={checkpoint}"), found
    second = restarted(engine, first)
    log = next(owner.folder.glob(f"*{second}*")).read_text()
    assert "begin at 40" in log, log[:500]


def test_a_script_that_begins_anew_is_not_started_and_loses_nothing(engine: Engine, owner: User) -> None:
    (owner.folder / "x.py").write_text(REGISTRY.replace('os.environ.get("WARM")', 'None  # "WARM"'))
    owner.script("run.sh", "rm -f ckpt/*.part", "srun python3 -u x.py")
    first = owner.sbatch("run.sh")
    ended(engine, first)
    before = digests(owner.folder / "ckpt")
    incident = watched(engine, first, over, 200)
    assert incident.state is IncidentState.ESCALATED, incident.note
    assert not any(found["proven"] for found in trials(engine, first)), "it goes on from nothing"
    assert len(before) == 2
    assert digests(owner.folder / "ckpt") == before


def tried(devcluster: DevCluster, engine: Engine, owner: User, script: str, seconds: int) -> TrialAnswer:
    """Run a script in the sandbox of a node, past the tool."""
    job = engine.scheduler.job(owner.sbatch("--hold", "run.sh"))
    assert job.spec is not None
    spec = replace(job.spec, script=script)
    command = trial_command(job, spec, uid=pwd.getpwnam(ADA).pw_uid, folder=owner.folder / "ckpt", hidden=(), seconds=seconds)
    [node] = [node.name for node in engine.scheduler.nodes()][:1]
    reply = Reply(node, True, 0, devcluster.on(node, *command), "")
    owner.cluster.run("scancel", job.id)
    return trial_answer(reply)


def test_nothing_of_a_script_leaves_the_sandbox(devcluster: DevCluster, engine: Engine, owner: User) -> None:
    for number in (20, 40):
        (owner.folder / f"ckpt/stand_{number:04d}.bin").write_bytes(b"x" * 3000)
    for path in (owner.folder / "ckpt").iterdir():
        os.chown(path, pwd.getpwnam(ADA).pw_uid, pwd.getpwnam(ADA).pw_gid)
    owner.script("run.sh", "srun python3 -u x.py")
    before = digests(devcluster.shared)
    answer = tried(devcluster, engine, owner, WILD, 8)
    assert not answer.problem, answer.problem
    text = "\n".join(answer.texts)
    assert not {"CONNECTED", "REACHED"} & set(text.split()), text
    after = {path: digest for path, digest in digests(devcluster.shared).items() if path in before or "ckpt" in path}
    assert after == before
    assert {Path(path).name for path in answer.changed} >= {"stand_0020.bin", "stand_0040.bin"}, "but what it did is seen"
    left = devcluster.on(
        "gpu001", "sh", "-c", "ls -d /tmp/left-behind /dev/shm/left-behind /tmp/nightshift-*; pgrep -f 'sleep 6[01]'; true"
    )
    assert left.strip() == "", left
