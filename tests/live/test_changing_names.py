"""Scripts of which each start names its run anew, on real Slurm: a restart goes on in the old run, or nothing is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.engine import Engine
from assistant.records import IncidentState
from tests.live.conftest import DevCluster
from tests.live.test_one_node import User, engine
from tests.live.test_strangers_queue import TIMEOUT
from tests.live.test_strangers_submission import ended, over, restarted, watched
from tests.live.test_trial_starts import PICKLED, digests, trials

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]
__all__ = ["engine"]

TRAINER = """import glob, os, sys, time
import store
run = NAME_OF_RUN
folder = os.path.join("runs", run, "checkpoints")
os.makedirs(folder, exist_ok=True)
saved = sorted(glob.glob(folder + "/step_*.bin"))
step = 0
if saved:
    step = store.read(saved[-1])["step"]
    print("restored", saved[-1], "of this run, step", step, flush=True)
else:
    print("no existing checkpoint of run", run, flush=True)
while step < 110:
    step += 1
    time.sleep(0.05 if step < 46 else 0.3)
    print(f"step {step} loss {3.0 - step / 100:.4f}", flush=True)
    if step % 20 == 0:
        store.write(f"{folder}/step_{step:04d}.bin", {"step": step, "w": b"x" * 3000})
    if step == 45 and not os.path.exists("failed"):
        open("failed", "w").close()
        raise RuntimeError(open("error.txt").read())
print("training done", flush=True)
"""
HEAD = "# RUN_NAME=<old run> sbatch run.sh    go on with an old run"


@pytest.fixture
def owner(devcluster: DevCluster, tmp_path: Path) -> User:
    user = User(devcluster, devcluster.shared / tmp_path.name)
    (user.folder / "error.txt").write_text(TIMEOUT)
    (user.folder / "store.py").write_text(PICKLED)
    (user.folder / "x.py").write_text(TRAINER.replace("NAME_OF_RUN", "sys.argv[1]"))
    return user


def runs(owner: User) -> list[str]:
    return sorted(path.name for path in (owner.folder / "runs").iterdir())


def test_the_variable_that_names_the_run_is_tried_and_then_submitted_with_the_old_name(engine: Engine, owner: User) -> None:
    owner.script("run.sh", HEAD, "RUN_NAME=${RUN_NAME:-gpt-$(date +%Y%m%d-%H%M%S)}", "srun python3 -u x.py $RUN_NAME")
    first = owner.sbatch("run.sh")
    ended(engine, first)
    [old] = runs(owner)
    incident = watched(engine, first, over, 120)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert runs(owner) == [old]
    [trial] = trials(engine, first)
    assert (trial["proven"], trial["variable"]) == ("yes", f"RUN_NAME={old}"), trial
    [call] = [call for call in engine.store.calls(incident.id) if call.tool == "resubmit_job"]
    assert f"RUN_NAME={old}" in call.preview, "what is approved and audited shows it"
    log = next(owner.folder.glob(f"*{restarted(engine, first)}*")).read_text()
    assert "of this run, step 40" in log, log[:500]


def test_the_argument_that_names_the_run_is_given_the_old_name(engine: Engine, owner: User) -> None:
    owner.script("run.sh", 'NAME="${1:-gpt-$(date +%s)}"', 'srun python3 -u x.py "$NAME"')
    first = owner.sbatch("run.sh")
    ended(engine, first)
    [old] = runs(owner)
    incident = watched(engine, first, over, 120)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert runs(owner) == [old]


def test_a_name_that_the_program_takes_from_its_environment_is_proven_by_a_trial(engine: Engine, owner: User) -> None:
    name = 'os.environ.get("RUN_NAME") or time.strftime("gpt-%Y%m%d-%H%M%S")'
    (owner.folder / "x.py").write_text(TRAINER.replace("NAME_OF_RUN", name))
    owner.script("run.sh", "srun python3 -u x.py")
    first = owner.sbatch("run.sh")
    ended(engine, first)
    [old] = runs(owner)
    incident = watched(engine, first, over, 200)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert runs(owner) == [old]
    assert [trial["variable"] for trial in trials(engine, first)] == [f"RUN_NAME={old}"]


def test_where_nothing_gives_the_old_name_nothing_is_started_and_the_documented_line_is_told(engine: Engine, owner: User) -> None:
    head = "# go on with an old run:  sbatch resume.sh <old run>"
    owner.script("run.sh", head, "RUN=gpt-$(date +%Y%m%d-%H%M%S)", "srun python3 -u x.py $RUN")
    first = owner.sbatch("run.sh")
    ended(engine, first)
    [old] = runs(owner)
    before = digests(owner.folder / "runs")
    incident = watched(engine, first, over, 120)
    assert incident.state is IncidentState.ESCALATED, incident.note
    assert f"sbatch resume.sh {old}" in incident.note, incident.note
    assert digests(owner.folder / "runs") == before
    assert not [call for call in engine.store.calls(incident.id) if call.tool == "resubmit_job"]
