"""How a program is told which checkpoint to load, on real Slurm, with scripts of another user that know nothing of Nightshift."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.engine import Engine
from assistant.records import IncidentState
from tests.live.conftest import DevCluster
from tests.live.test_one_node import User, engine
from tests.live.test_strangers_queue import TIMEOUT
from tests.live.test_strangers_submission import ended, over, restarted, watched
from tests.live.test_trial_starts import PICKLED

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]
__all__ = ["engine"]

LOOP = """import json, os, sys, time
import store
{begin}
print("begins at", n, flush=True)
while n < 120:
    n += 1
    time.sleep(0.05 if n < 46 else 0.3)
    print(f"step {{n}} loss {{3.0 - n / 100:.4f}}", flush=True)
    if n % 20 == 0:
        store.write(f"saves/step_{{n:04d}}.bin", {{"step": n, "w": b"x" * 3000}})
    if n == 45 and not os.path.exists("failed"):
        open("failed", "w").close()
        raise RuntimeError(open("error.txt").read())
print("training done", flush=True)
"""
BY_KEY = """settings = json.load(open(sys.argv[1]))
n = 0
if settings["restart_file"]:
    n = store.read(settings["restart_file"])["step"]"""
BY_NUMBER = """n = int(os.environ.get("RESTORE_STEP", "0"))
if n:
    n = getattr(store, "read")(os.path.join("saves", "step_%04d.bin" % n))["step"]"""


@pytest.fixture
def owner(devcluster: DevCluster, tmp_path: Path) -> User:
    user = User(devcluster, devcluster.shared / tmp_path.name)
    (user.folder / "error.txt").write_text(TIMEOUT)
    (user.folder / "store.py").write_text(PICKLED)
    (user.folder / "saves").mkdir()
    return user


def log_of(owner: User, job: str) -> str:
    return next(owner.folder.glob(f"slurm-{job}.out")).read_text()


def test_a_script_is_given_a_copy_of_its_configuration_that_names_the_checkpoint(engine: Engine, owner: User) -> None:
    (owner.folder / "x.py").write_text(LOOP.format(begin=BY_KEY))
    settings = owner.folder / "small.json"
    settings.write_text('{\n "rate": 3e-4,\n "restart_file": null\n}\n')
    settings.chmod(0o600)
    owner.script("run.sh", "conf=${1:?which settings}", 'srun python3 x.py "$conf"')
    first = owner.sbatch("run.sh", "small.json")
    ended(engine, first)
    incident = watched(engine, first, over, 200)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert "begins at 40" in log_of(owner, restarted(engine, first))
    copy = owner.folder / "small.nightshift-step40.json"
    assert copy.read_text() == f'{{\n "rate": 3e-4,\n "restart_file": "{owner.folder}/saves/step_0040.bin"\n}}\n'
    assert (copy.stat().st_uid, copy.stat().st_mode & 0o777) == (settings.stat().st_uid, 0o600)
    assert settings.read_text() == '{\n "rate": 3e-4,\n "restart_file": null\n}\n', "the original stays"
    calls = [call for one in engine.store.incidents(job=first) for call in engine.store.calls(one.id)]
    assert [call.tool for call in calls if call.tool in ("trial_start", "resubmit_job")] == ["trial_start", "resubmit_job"]
    assert any(f"copy {settings} to {copy}" in call.preview for call in calls), "and the audit shows it"


def test_a_variable_holds_the_number_of_the_checkpoint(engine: Engine, owner: User) -> None:
    (owner.folder / "x.py").write_text(LOOP.format(begin=BY_NUMBER))
    owner.script("run.sh", "PATH=/usr/local/bin:/usr/bin:/bin  # as a login shell does", "srun python3 x.py")
    first = owner.sbatch("run.sh")
    ended(engine, first)
    incident = watched(engine, first, over, 200)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert "begins at 40" in log_of(owner, restarted(engine, first))


CONFIGURATOR = """import sys
from ast import literal_eval
for arg in sys.argv[1:]:
    if "=" not in arg:
        exec(open(arg).read())
        continue
    key, val = arg[2:].split("=", 1)
    if key not in globals():
        raise ValueError(key)
    try:
        val = literal_eval(val)
    except (SyntaxError, ValueError):
        pass
    assert type(val) == type(globals()[key])
    globals()[key] = val
"""
SPOILED = """import os, time
import store
out_dir = "saves"
init_from = "scratch"  # "scratch" or "resume"
resume_ckpt = ""  # file in out_dir
exec(open("configurator.py").read())
it = 0
if init_from == "scratch":
    print("Initializing a new model", flush=True)
else:
    name = resume_ckpt or sorted(os.listdir(out_dir))[-1]
    print(f"Resuming from {out_dir}/{name}", flush=True)
    state = store.read(os.path.join(out_dir, name))
    it = state["iter_num"]
print("begins at", it, flush=True)
first = not os.path.exists("spoiled")
while it < 400:
    it += 1
    time.sleep(0.05 if it < 50 else 0.4)
    if first and it == 50:
        open("spoiled", "w").close()
    loss = float("nan") if first and it >= 50 else 3.0 - it / 1000
    print(f"iter {it}: loss {loss:.4f}, time 50.00ms", flush=True)
    if it % 20 == 0:
        store.write(os.path.join(out_dir, f"ckpt_{it:06d}.bin"), {"iter_num": it, "w": b"x" * 3000})
    if not first and it >= 140:
        break
print("training done", flush=True)
"""
"""Its loss is lost at step 50 and it trains on; the switch alone would load a checkpoint from behind that."""


def test_a_living_job_that_trains_on_without_a_loss_goes_on_by_switch_and_choice_from_before(engine: Engine, owner: User) -> None:
    (owner.folder / "configurator.py").write_text(CONFIGURATOR)
    (owner.folder / "x.py").write_text(SPOILED)
    (owner.folder / "conf.py").write_text("out_dir = 'saves'\n")
    owner.script("run.sh", "# extra arguments go to x.py: sbatch run.sh --init_from=resume", 'srun python3 x.py conf.py "$@"')
    first = owner.sbatch("run.sh")
    incident = watched(engine, first, over, 300)
    calls = [call for one in engine.store.incidents(job=first) for call in engine.store.calls(one.id)]
    done = [call.tool for call in calls if call.tool in ("trial_start", "cancel_job", "resubmit_job")]
    assert done == ["trial_start", "cancel_job", "resubmit_job"], (done, incident.note)
    assert "begins at 40" in log_of(owner, restarted(engine, first))
    assert incident.state is IncidentState.RECOVERED, incident.note
