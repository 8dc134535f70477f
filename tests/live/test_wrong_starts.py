"""Restarts that come up at a wrong start although nothing foretold it, on real Slurm; the scripts know nothing of Nightshift."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from assistant.config import WatchSettings
from assistant.engine import Engine
from assistant.policy import Mode, load_policy
from assistant.ports import SystemClock
from assistant.records import Incident, IncidentState, JobState
from assistant.recover import verify
from assistant.wiring import build
from tests.live.conftest import DevCluster, until
from tests.live.test_strangers_queue import TIMEOUT
from tests.live.test_strangers_submission import Owner, ended, over, restarted, watched

pytestmark = pytest.mark.live

RUN = """import argparse, glob, json, os, signal, struct, sys, time

p = argparse.ArgumentParser()
p.add_argument("--out", default="ckpt")
p.add_argument("--steps", type=int, default=400)
args = p.parse_args()
def number(path):
    return int(path.split("step_")[1].split("/")[0])
def restore(path):
    RESTORE
def save(step):
    os.makedirs(f"{args.out}/step_{step}", exist_ok=True)
    header = json.dumps({"wte": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    with open(f"{args.out}/step_{step}/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + os.urandom(16))
    json.dump({"step": step, "job": os.environ["SLURM_JOB_ID"]}, open(f"{args.out}/step_{step}/state.json", "w"))
def on_term(*_):
    save(100000)
    sys.exit(0)
signal.signal(signal.SIGTERM, on_term)
step = 0
again = os.path.exists("failed")
old = sorted(glob.glob(args.out + "/step_*/state.json"), key=number)
START
with open("writers.log", "a") as file:
    file.write(f"{os.environ['SLURM_JOB_ID']} begins at {step}\\n")
while step < args.steps:
    step += 1
    time.sleep(0.5 if again else 0.05)
    print(f"step {step} loss {3.0 - step / 100:.4f}", flush=True)
    if step % 10 == 0:
        save(step)
    if step == 45 and not again:
        open("failed", "w").close()
        raise RuntimeError(open("error.txt").read())
print("training done", flush=True)
"""
LOAD = 'return json.load(open(path))["step"]'
BREAKS = """if again:
        raise RuntimeError("unexpected key(s) in state_dict: 'module.wte'")
    return json.load(open(path))["step"]"""
SAID = """if old:
    try:
        step = restore(old[-1])
        print("resuming from", os.path.dirname(old[-1]), flush=True)
    except RuntimeError as error:
        print(f"WARNING: {error}: training from scratch", flush=True)"""
SILENT = """if old:
    try:
        step = restore(old[-1])
    except RuntimeError:
        pass"""
OLDER = """if old:
    latest = old[-1] if not again else old[1]
    step = restore(latest)
    print("resuming from", os.path.dirname(latest), flush=True)"""
RIGHT = """if old:
    step = restore(old[-1])
    print("resuming from", os.path.dirname(old[-1]), flush=True)"""


def program(restore: str, start: str) -> str:
    """Return the trainer with one way to restore and one to begin."""
    return RUN.replace("RESTORE", restore).replace("START", start)


@pytest.fixture
def engine(devcluster: DevCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    made = made_engine(devcluster, tmp_path, monkeypatch, Mode.ACT)
    yield made
    made.store.close()
    devcluster.settle()


def made_engine(devcluster: DevCluster, folder: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode, **kinds: Mode) -> Engine:
    monkeypatch.setattr(verify, "CONFIRM_S", 2.0)
    clock = SystemClock()
    settings = devcluster.settings(folder, watch=WatchSettings(poll_s=1, shared_settle_s=2.0))
    policy = load_policy()
    terms = {name: replace(policy.kind[name], mode=kind) for name, kind in kinds.items()}
    policy = replace(policy, mode=mode, kill_switch=(folder / "stop",), kind={**policy.kind, **terms})
    return build(settings, clock=clock, policy=policy, since=clock.now())


@pytest.fixture
def owner(devcluster: DevCluster, request: pytest.FixtureRequest) -> Owner:
    made = Owner(devcluster, devcluster.shared / request.node.name[-45:].strip("[]_").replace("[", "_"))
    (made.folder / "error.txt").write_text(TIMEOUT)
    made.script("run.sh", "srun python3 -u x.py --out $SLURM_SUBMIT_DIR/ckpt")
    return made


def saved_by(owner: Owner, step: int) -> str:
    """Return which job wrote a checkpoint; empty where there is none."""
    file = owner.folder / f"ckpt/step_{step}/state.json"
    return str(json.loads(file.read_text())["job"]) if file.exists() else ""


def wrong_start(engine: Engine, owner: Owner, text: str, *words: str) -> tuple[str, str, Incident]:
    """Run a trainer that fails, let it be restarted and judged; return both jobs and the incident."""
    (owner.folder / "x.py").write_text(text)
    first = owner.sbatch(*words, "run.sh")
    ended(engine, first)
    incident = watched(engine, first, over, 90)
    return first, restarted(engine, first), incident


@pytest.mark.parametrize(
    ("restore", "start", "proof"),
    [
        (BREAKS, SAID, "training from scratch"),
        (BREAKS, SILENT, "began below the checkpoint"),
        (LOAD, OLDER, "it loaded step 20"),
    ],
    ids=["says-from-scratch", "counts-from-the-start", "loads-an-older-one"],
)
def test_a_restart_at_a_wrong_start_is_stopped_before_it_saves_over_the_run(
    engine: Engine, owner: Owner, restore: str, start: str, proof: str
) -> None:
    first, again, incident = wrong_start(engine, owner, program(restore, start))
    assert incident.state is IncidentState.ESCALATED
    assert (proof in incident.note, "it was stopped" in incident.note) == (True, True), incident.note
    assert engine.scheduler.job(again).state.ended
    assert saved_by(owner, 40) == first, "the chosen checkpoint is as it was"
    assert saved_by(owner, 100000) == "", "no SIGTERM was sent: nothing saved on its way out"
    for _ in range(5):
        engine.tick(owner="test")
    assert len((owner.folder / "writers.log").read_text().splitlines()) == 2, "it is not started again"
    assert [one.state for one in engine.store.incidents(job=again)] in ([], [IncidentState.CLOSED])
    [stop] = [call for call in engine.store.calls(incident.id) if call.tool == "stop_restart"]
    assert "--signal=KILL" in stop.preview


def test_what_was_saved_before_the_stop_is_said(engine: Engine, owner: Owner) -> None:
    text = program(BREAKS, SAID).replace("0.5 if again", "0.12 if again")
    _, again, incident = wrong_start(engine, owner, text)
    by_restart = [step for step in (10, 20, 30, 40) if saved_by(owner, step) == again]
    assert incident.state is IncidentState.ESCALATED
    assert all((f"step_{step}" in incident.note.partition("OVERWRITTEN: ")[2]) for step in by_restart), incident.note
    assert ("no checkpoint of the run was overwritten" in incident.note or "as they were" in incident.note) == (not by_restart)


def test_a_restart_at_the_right_start_is_left_alone(engine: Engine, owner: Owner) -> None:
    _, again, incident = wrong_start(engine, owner, program(LOAD, RIGHT).replace("default=400", "default=60"))
    assert incident.state is IncidentState.RECOVERED, incident.note
    until(lambda: engine.scheduler.job(again).state is JobState.COMPLETED, 60)
    assert not [call for call in engine.store.calls() if call.tool == "stop_restart"]


def test_a_stop_is_asked_about_where_the_policy_proposes(
    devcluster: DevCluster, owner: Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = made_engine(devcluster, tmp_path, monkeypatch, Mode.ACT, stop_restart=Mode.PROPOSE)
    (owner.folder / "x.py").write_text(program(BREAKS, SAID))
    first = owner.sbatch("run.sh")
    ended(engine, first)
    waiting = watched(engine, first, lambda one: one.state is IncidentState.WAITING, 90)
    [asked] = engine.store.approvals()
    assert engine.store.call(asked.call).tool == "stop_restart"
    again = restarted(engine, first)
    assert engine.scheduler.job(again).state is JobState.RUNNING
    owner.cluster.run("scontrol", "requeue", again)  # meanwhile the owner takes it into his own hands
    until(lambda: engine.scheduler.job(again).attempt == 1 and engine.scheduler.job(again).state is JobState.RUNNING, 60)
    incident = watched(engine, first, over, 30)
    assert (incident.id, incident.state) == (waiting.id, IncidentState.ESCALATED)
    assert engine.scheduler.job(again).state is JobState.RUNNING, "another attempt than the one asked about is left alone"
    engine.store.close()
    devcluster.settle()


def test_in_observe_the_stop_is_the_first_thing_that_a_person_reads(
    devcluster: DevCluster, owner: Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = made_engine(devcluster, tmp_path, monkeypatch, Mode.ACT, stop_restart=Mode.OBSERVE)
    _, again, incident = wrong_start(engine, owner, program(BREAKS, SAID))
    assert incident.note.startswith(f"STOP job {again} NOW"), incident.note
    assert "scancel" in incident.note
    assert engine.scheduler.job(again).state is JobState.RUNNING
    engine.store.close()
    devcluster.settle()


def test_a_job_queued_again_in_an_outage_is_held_against_the_choice_of_its_call(
    engine: Engine, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of the requeue is lost, the watch is killed, and meanwhile the job begins at a wrong start and saves."""
    (owner.folder / "x.py").write_text(program(BREAKS, SAID))
    owner.script("run.sh", 'srun python3 -u x.py --note "$1" --out $SLURM_SUBMIT_DIR/ckpt')
    text = (owner.folder / "x.py").read_text().replace("args = p", "p.add_argument('--note')\nargs = p")
    (owner.folder / "x.py").write_text(text)
    first = owner.sbatch("run.sh", "my run one")
    ended(engine, first)
    store = engine.store
    lost: list[int] = []

    def lose(outcome: object, **words: object) -> None:
        if not lost and store.call(outcome.call).tool == "requeue_ended_job":  # type: ignore[attr-defined]
            lost.append(outcome.call)  # type: ignore[attr-defined]
            raise KeyboardInterrupt  # as kill -9 between the release and the answer
        write(outcome, **words)  # type: ignore[arg-type]

    write = store.write_outcome
    monkeypatch.setattr(store, "write_outcome", lose)
    with pytest.raises(KeyboardInterrupt):
        watched(engine, first, over)
    monkeypatch.setattr(store, "write_outcome", write)
    log = owner.folder / f"slurm-{first}.out"
    until(
        lambda: "scratch" in log.read_text() and "step 12 " in log.read_text(), 60
    )  # it has saved step 10 over that of the run meanwhile
    # the end of the attempt that is stopped is an incident of the same job, which may be settled first
    watched(engine, first, lambda _: over(store.incidents(job=first)[-1]), 60)
    incident = store.incidents(job=first)[-1]
    assert incident.state is IncidentState.ESCALATED, incident.note
    assert "step_40" in incident.note, incident.note
    assert "it was stopped" in incident.note, incident.note
    assert "OVERWRITTEN: step_10" in incident.note, incident.note
    [value] = [store.outcome(call.id) for call in store.calls(incident.id) if call.tool == "requeue_ended_job"]
    assert value is not None
    assert value.value["checkpoint"].endswith("step_40")
    assert value.value["step"] == 40
