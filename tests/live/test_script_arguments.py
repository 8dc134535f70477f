"""Jobs that go on by an argument of their own script, on real Slurm: tried in the sandbox, then submitted with exactly that."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from assistant.engine import Engine
from assistant.records import IncidentState
from tests.live.conftest import DevCluster
from tests.live.test_one_node import User, engine
from tests.live.test_strangers_queue import TIMEOUT
from tests.live.test_strangers_submission import ended, over, restarted, watched
from tests.live.test_trial_starts import digests, trials

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]
__all__ = ["engine"]

PROGRAM = """#!/usr/bin/env python3
import json, os, shutil, sys, time
cfg = json.load(open(sys.argv[2]))
for word in sys.argv[3:]:
    key, value = word.split("=", 1)
    if key not in cfg:
        sys.exit("unknown setting " + key)
    cfg[key] = value
out, n = cfg["output_dir"], 0
if cfg.get("resume_from_checkpoint"):
    state = json.load(open(os.path.join(cfg["resume_from_checkpoint"], "trainer_state.json")))
    n = state["global_step"]
elif cfg.get("overwrite_output_dir"):
    shutil.rmtree(out, ignore_errors=True)
print("begins at", n, flush=True)
while n < 120:
    n += 1
    time.sleep(0.05 if n < 46 else 0.3)
    print(f"step {n} loss {3.0 - n / 100:.4f}", flush=True)
    if n % 20 == 0:
        folder = f"{out}/checkpoint-{n}"
        os.makedirs(folder, exist_ok=True)
        open(f"{folder}/model.bin", "wb").write(os.urandom(3000))
        json.dump({"global_step": n}, open(f"{folder}/trainer_state.json", "w"))
    if n == 45 and not os.path.exists("failed"):
        open("failed", "w").close()
        raise RuntimeError(open("error.txt").read())
print("training done", flush=True)
"""
"""Installed as a command without a suffix, as tools of trainers are: it is not read."""
SETTINGS = '{\n "rate": "3e-4",\n "output_dir": "saves/small",\n "resume_from_checkpoint": null,\n "overwrite_output_dir": %s\n}\n'


@pytest.fixture
def owner(devcluster: DevCluster, tmp_path: Path) -> User:
    user = User(devcluster, devcluster.shared / tmp_path.name)
    (user.folder / "error.txt").write_text(TIMEOUT)
    (user.folder / "cfg.json").write_text(SETTINGS % "false")
    (user.folder / "trainer").write_text(PROGRAM)
    (user.folder / "trainer").chmod(0o755)
    return user


def log_of(owner: User, job: str) -> str:
    return next(owner.folder.glob(f"slurm-{job}.out")).read_text()


def previews(engine: Engine, job: str) -> str:
    calls = [call for one in engine.store.incidents(job=job) for call in engine.store.calls(one.id)]
    return "\n".join(call.preview for call in calls if call.tool == "resubmit_job")


def test_a_documented_argument_is_proven_with_the_chosen_checkpoint_and_then_submitted(engine: Engine, owner: User) -> None:
    owner.script("run.sh", "# usage: sbatch run.sh [key=value ...]", 'srun ./trainer train cfg.json "$@"')
    (owner.folder / "cfg.json").write_text(SETTINGS % "true")
    notes = "restart: sbatch run.sh resume_from_checkpoint=saves/.../checkpoint-XX  (NOT without it: it begins anew)\n"
    (owner.folder / "NOTES.txt").write_text(notes)
    first = owner.sbatch("run.sh", "rate=1e-4")
    ended(engine, first)
    incident = watched(engine, first, over, 200)
    assert incident.state is IncidentState.RECOVERED, incident.note
    [trial] = trials(engine, first)
    given = f"resume_from_checkpoint={owner.folder}/saves/small/checkpoint-40"
    assert (trial["proven"], trial["arguments"]) == ("yes", ["rate=1e-4", given]), trial
    second = restarted(engine, first)
    assert "begins at 40" in log_of(owner, second)
    ended(engine, second)
    again = engine.scheduler.job(second).spec
    assert again is not None
    assert (again.arguments, again.doubt) == (("rate=1e-4", given), "")
    assert f" rate=1e-4 {given};" in previews(engine, first), "what was approved is what ran"


def test_a_key_of_the_configuration_is_given_as_an_override_where_nothing_documents_it(engine: Engine, owner: User) -> None:
    owner.script("run.sh", "shift 0", 'srun ./trainer train "${1}" "${@:2}"')
    first = owner.sbatch("run.sh", "cfg.json")
    ended(engine, first)
    incident = watched(engine, first, over, 200)
    assert incident.state is IncidentState.RECOVERED, incident.note
    second = restarted(engine, first)
    assert "begins at 40" in log_of(owner, second)
    ended(engine, second)
    again = engine.scheduler.job(second).spec
    assert again is not None
    assert again.arguments == ("cfg.json", f"resume_from_checkpoint={owner.folder}/saves/small/checkpoint-40")


def test_what_somebody_else_wrote_is_quoted_and_not_tried_and_nothing_is_submitted(engine: Engine, owner: User) -> None:
    owner.script("run.sh", "echo with $@", "srun ./trainer train cfg.json")
    first = owner.sbatch("run.sh")
    notes = owner.folder / "NOTES.txt"
    notes.write_text("to resume: sbatch run.sh resume=saves/checkpoint-XX\n")
    os.chown(notes, 0, 0)
    ended(engine, first)
    before = digests(owner.folder)
    incident = watched(engine, first, over, 200)
    assert incident.state is IncidentState.ESCALATED, incident.note
    assert not [trial for trial in trials(engine, first) if trial.get("proven")]
    assert "NOTES.txt:1 says" in incident.note, incident.note
    assert digests(owner.folder) == before
