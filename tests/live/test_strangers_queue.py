"""What others do with a run while Nightshift looks after it: chains, edited scripts, wanted nodes, requeues, terminals.

All scripts know nothing of Nightshift; the trainer saves into the folder it is told and takes its newest checkpoint by itself.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from assistant.config import WatchSettings
from assistant.engine import Engine
from assistant.policy import Mode, load_policy
from assistant.ports import SystemClock
from assistant.records import IncidentState, JobState
from assistant.recover import verify
from assistant.recover import wrong_start as second_writer
from assistant.tools import resubmit
from assistant.wiring import build
from tests.live.conftest import DevCluster, until
from tests.live.test_strangers_submission import Owner, ended, over, restarted, watched

pytestmark = pytest.mark.live

SAVING = """import argparse, glob, json, os, struct, time

p = argparse.ArgumentParser()
p.add_argument("--out", default="ckpt")
p.add_argument("--steps", type=int, default=400)
args = p.parse_args()
old = sorted(glob.glob(args.out + "/step_*/state.json"), key=os.path.getmtime)
step = json.load(open(old[-1]))["step"] if old else 0
if old:
    print("resuming from", os.path.dirname(old[-1]), flush=True)
with open("writers.log", "a") as file:
    file.write(f"{os.environ['SLURM_JOB_ID']} begins at {step} on {os.environ.get('SLURMD_NODENAME')}\\n")
while step < args.steps:
    step += 1
    time.sleep(0.1)
    print(f"step {step} loss {3.0 - step / 1000:.4f}", flush=True)
    if step % 10 == 0:
        os.makedirs(f"{args.out}/step_{step}", exist_ok=True)
        header = json.dumps({"wte": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
        with open(f"{args.out}/step_{step}/model.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header + os.urandom(16))
        json.dump({"step": step}, open(f"{args.out}/step_{step}/state.json", "w"))
        print(f"saved checkpoint to {args.out}/step_{step}", flush=True)
    if step == 25 and not os.path.exists("failed"):
        open("failed", "w").close()
        raise RuntimeError(open("error.txt").read())
print("training done", flush=True)
"""
TIMEOUT = (
    "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=51, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, "
    "Timeout(ms)=600000) ran for 600097 milliseconds before timing out."
)
ECC = "CUDA error: uncorrectable ECC error encountered"


@pytest.fixture
def engine(devcluster: DevCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(verify, "CONFIRM_S", 2.0)
    clock = SystemClock()
    settings = devcluster.settings(tmp_path, watch=WatchSettings(poll_s=1, shared_settle_s=2.0))
    policy = replace(load_policy(), mode=Mode.ACT, kill_switch=(tmp_path / "stop",))
    made = build(settings, clock=clock, policy=policy, since=clock.now())
    yield made
    made.store.close()
    devcluster.settle()


@pytest.fixture
def owner(devcluster: DevCluster, tmp_path: Path) -> Owner:
    made = Owner(devcluster, devcluster.shared / tmp_path.name)
    (made.folder / "x.py").write_text(SAVING)
    (made.folder / "error.txt").write_text(TIMEOUT)
    made.script("run.sh", "srun python3 -u x.py --out $SLURM_SUBMIT_DIR/ckpt")
    return made


def writers(owner: Owner) -> list[str]:
    file = owner.folder / "writers.log"
    return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.parametrize("kind", ["afternotok", "afterany"])
def test_a_link_that_takes_over_a_failed_job_is_left_alone(engine: Engine, owner: Owner, kind: str) -> None:
    first = owner.sbatch("-J", "t5-run:1", "run.sh")
    second = owner.sbatch("-J", "t5-run:2", f"--dependency={kind}:{first}", "run.sh")
    third = owner.sbatch("-J", "t5-run:3", f"--dependency=afternotok:{second}", "run.sh")
    ended(engine, first)
    incident = watched(engine, first, over)
    assert (incident.state, "settled elsewhere" in incident.note, second in incident.note) == (IncidentState.CLOSED, True, True)
    until(lambda: second in writers(owner), 90)
    assert writers(owner) == [first, second]
    assert engine.scheduler.job(third).reason == "Dependency"


CONTINUATIONS = ["singleton", "afterburstbuffer:{}", "afterok:{}?afternotok:{}", "afterany:{},afterok:{data}"]


@pytest.mark.parametrize("dependency", CONTINUATIONS)
def test_whatever_lets_the_same_run_begin_after_a_failed_job_is_its_recovery(engine: Engine, owner: Owner, dependency: str) -> None:
    first = owner.sbatch("-J", "chain", "run.sh")
    data = owner.sbatch("-J", "tokenize", "--wrap", "sleep 25")  # it still runs when the first job has failed
    second = owner.sbatch("-J", "chain", f"--dependency={dependency.replace('{data}', data).replace('{}', first)}", "run.sh")
    ended(engine, first)
    incident = watched(engine, first, over)
    assert (incident.state, second in incident.note) == (IncidentState.CLOSED, True), incident.note
    until(lambda: second in writers(owner), 90)
    assert writers(owner) == [first, second]


def test_what_never_begins_since_nobody_restarts_the_job_is_told_with_the_incident(engine: Engine, owner: Owner) -> None:
    first = owner.sbatch("--wrap", "sleep 2; no-such-trainer --config x.yaml")
    waiting = owner.sbatch("-J", "export", f"--dependency=afterok:{first}", "--kill-on-invalid-dep=no", "--wrap", "sleep 1")
    ended(engine, first)
    incident = watched(engine, first, over)
    assert incident.state is IncidentState.ESCALATED, incident.note
    assert f"{waiting} (export of root) wait for job {first} to end well and never begin" in incident.note


def test_what_waits_is_told_of_when_its_owner_submits_the_run_again(engine: Engine, owner: Owner) -> None:
    first = owner.sbatch("run.sh")
    waiting = owner.sbatch("-J", "export", f"--dependency=afterok:{first}", "--kill-on-invalid-dep=no", "--wrap", "sleep 1")
    ended(engine, first)
    second = owner.sbatch("run.sh")
    incident = watched(engine, first, over)
    assert (incident.state, f"JobId={waiting} Dependency=afterok:{second}" in incident.note) == (IncidentState.CLOSED, True), (
        incident.note
    )
    assert writers(owner) == [first, second]


def test_a_restart_that_was_killed_behind_the_release_still_moves_what_waits(
    engine: Engine, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = owner.sbatch("run.sh")
    waiting = owner.sbatch(f"--dependency=afterok:{first}", "--kill-on-invalid-dep=no", "--wrap", "sleep 1")
    ended(engine, first)
    with monkeypatch.context() as killed:
        killed.setattr(resubmit, "move_dependents", _killed)
        with pytest.raises(KeyboardInterrupt):
            watched(engine, first, over)
    incident = watched(engine, first, over)
    assert incident.state is IncidentState.RECOVERED, incident.note
    new = restarted(engine, first)
    assert (writers(owner), f"afterok:{new}" in engine.scheduler.job(waiting).dependency) == ([first, new], True), incident.note
    assert "still waits" not in incident.note


def _killed(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("words", [(), ("--no-requeue",)])
def test_a_job_that_slurm_cancels_for_a_stronger_one_is_submitted_again_at_once(
    engine: Engine, owner: Owner, words: tuple[str, ...]
) -> None:
    (owner.folder / "failed").touch()
    owner.cluster.run("scontrol", "update", "PartitionName=eval", "PreemptMode=CANCEL")
    try:
        first = owner.sbatch("-p", "eval", "--requeue", *words, "--exclusive", "-w", "gpu002", "run.sh")
        until(lambda: bool(writers(owner)), 30)
        strong = owner.sbatch("-p", "train", "--exclusive", "-w", "gpu002", "--wrap", "sleep 10")
        until(lambda: engine.scheduler.job(first).state is JobState.PREEMPTED, 60)
        watched(engine, first, lambda one: any(call.tool == "resubmit_job" for call in engine.store.calls(one.id)), 20)
        engine.scheduler.cancel(strong)
        incident = watched(engine, first, over)
    finally:
        owner.cluster.run("scontrol", "update", "PartitionName=eval", "PreemptMode=REQUEUE")
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert writers(owner) == [first, restarted(engine, first)]


def test_an_afterok_chain_of_three_does_not_keep_the_first_from_coming_back(engine: Engine, owner: Owner) -> None:
    first = owner.sbatch("run.sh")
    second = owner.sbatch(f"--dependency=afterok:{first}", "run.sh")
    owner.sbatch(f"--dependency=afterok:{second}", "run.sh")
    ended(engine, first)
    assert watched(engine, first, over).state is IncidentState.RECOVERED
    assert writers(owner) == [first, restarted(engine, first)]


def test_what_waits_for_a_task_of_an_array_waits_for_its_restart(engine: Engine, owner: Owner) -> None:
    owner.script("sweep.sh", "#SBATCH --array=1-2", "[ $SLURM_ARRAY_TASK_ID = 2 ] && N=60 || N=20",
                 "srun python3 -u x.py --steps $N --out $SLURM_SUBMIT_DIR/ckpt$SLURM_ARRAY_TASK_ID")  # fmt: skip
    array = owner.sbatch("sweep.sh")
    each = owner.sbatch("--array=1-2", f"--dependency=aftercorr:{array}", "--wrap", "sleep 1")
    every = owner.sbatch(f"--dependency=afterok:{array}", "--kill-on-invalid-dep=no", "--wrap", "sleep 1")
    cancelled = owner.sbatch(f"--dependency=afterok:{array}_2", "--kill-on-invalid-dep=yes", "--wrap", "sleep 1")
    ended(engine, f"{array}_2")
    incident = watched(engine, f"{array}_2", over)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert f"job {cancelled} of root was cancelled by the scheduler" in incident.note
    assert [engine.scheduler.job(one).state.failed for one in (f"{each}_2", every)] == [False, False]
    until(lambda: [engine.scheduler.job(one).state for one in (f"{each}_2", every)] == [JobState.COMPLETED] * 2, 60)
    assert engine.scheduler.job(restarted(engine, f"{array}_2")).state is JobState.COMPLETED


def test_what_waits_for_a_whole_array_waits_for_the_restarts_of_two_tasks(engine: Engine, owner: Owner) -> None:
    saving = SAVING.replace('os.path.exists("failed")', 'os.path.exists(args.out + ".failed")').replace(
        'open("failed", "w")', 'open(args.out + ".failed", "w")'
    )
    (owner.folder / "x.py").write_text(saving)
    owner.script("sweep.sh", "#SBATCH --array=1-3%2", "[ $SLURM_ARRAY_TASK_ID = 1 ] && N=20 || N=60",
                 "srun python3 -u x.py --steps $N --out $SLURM_SUBMIT_DIR/ckpt$SLURM_ARRAY_TASK_ID")  # fmt: skip
    array = owner.sbatch("sweep.sh")
    each = owner.sbatch("--array=1-3", f"--dependency=aftercorr:{array}", "--wrap", "sleep 1")
    every = owner.sbatch(f"--dependency=afterok:{array}", "--kill-on-invalid-dep=no", "--wrap", "sleep 1")
    for task in ("2", "3"):
        ended(engine, f"{array}_{task}")
    for task in ("2", "3"):
        incident = watched(engine, f"{array}_{task}", over, 120)
        assert incident.state is IncidentState.RECOVERED, incident.note
    wanted = [f"{each}_1", f"{each}_2", f"{each}_3", every]
    until(lambda: [engine.scheduler.job(one).state for one in wanted] == [JobState.COMPLETED] * 4, 90)


def test_a_requeued_job_whose_script_begins_anew_is_told_of_and_left_running(engine: Engine, owner: Owner) -> None:
    (owner.folder / "failed").touch()
    (owner.folder / "x.py").write_text(SAVING.replace("old = sorted(", "old = []\nunused = sorted("))
    owner.script("run.sh", "srun python3 -u x.py --steps 4000 --out $SLURM_SUBMIT_DIR/ckpt")  # longer than the watch may take
    first = owner.sbatch("run.sh")
    until(lambda: (owner.folder / "ckpt/step_30").exists(), 60)
    for _ in range(3):
        engine.tick(owner="test")
        time.sleep(1)
    owner.cluster.run("scontrol", "requeue", first)
    until(lambda: engine.scheduler.job(first).attempt == 1 and engine.scheduler.job(first).state is JobState.RUNNING, 90)
    incident = watched(engine, first, lambda one: one.state is IncidentState.ESCALATED, 60)
    assert "it begins anew" in incident.note, incident.note
    assert f"scancel {first}" in incident.note
    assert engine.scheduler.job(first).state is JobState.RUNNING
    assert not engine.store.calls(incident.id)
    engine.scheduler.cancel(first)


def test_what_waits_for_a_job_that_is_queued_again_under_its_own_id_begins_when_it_ends_well(engine: Engine, owner: Owner) -> None:
    owner.script("steps.sh", "srun python3 -u x.py --steps 60 --out $SLURM_SUBMIT_DIR/ckpt")
    first = owner.sbatch("-n1", "-c2", ":", "-n1", "steps.sh")
    waiting = owner.sbatch(f"--dependency=afterok:{first}", "--kill-on-invalid-dep=no", "--wrap", "sleep 1")
    ended(engine, first)
    until(lambda: engine.scheduler.job(waiting).reason == "DependencyNeverSatisfied", 30)
    incident = watched(engine, engine.scheduler.job(first).id, over)
    assert incident.state is IncidentState.RECOVERED, incident.note
    until(lambda: engine.scheduler.job(waiting).state is JobState.COMPLETED, 60)


def test_a_preempted_job_that_slurm_may_not_requeue_is_submitted_again_at_once(engine: Engine, owner: Owner) -> None:
    (owner.folder / "failed").touch()
    first = owner.sbatch("-p", "eval", "--no-requeue", "--exclusive", "-w", "gpu002", "run.sh")
    until(lambda: bool(writers(owner)), 30)
    strong = owner.sbatch("-p", "train", "--exclusive", "-w", "gpu002", "--wrap", "sleep 20")
    until(lambda: engine.scheduler.job(first).state is JobState.PREEMPTED, 60)
    watched(engine, first, lambda one: any(call.tool == "resubmit_job" for call in engine.store.calls(one.id)), 60)
    incident = watched(engine, first, over)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert writers(owner) == [first, restarted(engine, first)]
    engine.scheduler.cancel(strong)


def test_an_edited_script_of_another_name_that_saves_into_the_same_folder_goes_on_with_the_run(
    engine: Engine, owner: Owner
) -> None:
    first = owner.sbatch("run.sh")
    ended(engine, first)
    owner.script("fixed.sh", "export NCCL_IB_TIMEOUT=22", f"srun python3 -u x.py --steps 60 --out {owner.folder}/ckpt")
    fixed = owner.sbatch("-J", "lower-lr", "fixed.sh")
    ended(engine, fixed)  # even when it has ended before the watch looks
    incident = watched(engine, first, over)
    assert (incident.state, fixed in incident.note) == (IncidentState.CLOSED, True), incident.note
    assert writers(owner) == [first, fixed]


def test_a_run_with_which_a_colleague_goes_on_in_the_shared_folder_is_his(engine: Engine, owner: Owner) -> None:
    first, colleagues = colleague_goes_on(owner)
    incident = watched(engine, first, over)
    assert (incident.state, colleagues in incident.note) == (IncidentState.CLOSED, True), incident.note
    assert writers(owner) == [first, colleagues]


def test_a_folder_that_somebody_writes_whom_the_scheduler_does_not_show_is_left_alone(
    engine: Engine, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(second_writer, "TEAR_DOWN", timedelta(seconds=1))
    first = owner.sbatch("run.sh")
    ended(engine, first)
    again = (
        "import os, time\nwhile True: time.sleep(0.2); [os.utime('ckpt/step_20/' + name) for name in os.listdir('ckpt/step_20')]"
    )
    with subprocess.Popen(["python3", "-c", again], cwd=owner.folder) as by_hand:
        time.sleep(2)
        incident = watched(engine, first, over)
        by_hand.terminate()
    assert incident.state is IncidentState.ESCALATED, incident.note
    assert "step_20 was saved" in incident.note
    assert writers(owner) == [first]


def colleague_goes_on(owner: Owner) -> tuple[str, str]:
    """Let a job fail and another account submit its script again under another name; return the ids of both."""
    owner.script("run.sh", f"srun python3 -u x.py --steps 400 --out {owner.folder}/ckpt")
    (owner.folder / "ckpt").mkdir()
    for path in owner.folder.parents:
        path.chmod(path.stat().st_mode | 0o111)
    for path in (owner.folder, owner.folder / "ckpt"):
        path.chmod(0o2777)
    first = owner.sbatch("run.sh")
    until(lambda: (owner.folder / "failed").exists(), 60)
    (owner.folder / "writers.log").chmod(0o666)
    until(lambda: owner.cluster.run("squeue", "-h", "-j", first, check=False) == "", 30)
    line = f"cd {owner.folder} && sbatch --parsable -J mine-now run.sh"
    second = owner.cluster.on(owner.cluster.nodes[0], "runuser", "-u", "trainer", "--", "sh", "-c", line).strip()
    until(lambda: second in writers(owner), 30)
    return first, second


def test_a_job_that_wants_the_node_that_failed_comes_back_on_another(engine: Engine, owner: Owner) -> None:
    owner.script("pinned.sh", "#SBATCH --nodelist=gpu003 --nice=50", "#SBATCH --export=NONE", "unset SLURM_EXPORT_ENV",
                 "srun python3 -u x.py --out $PWD/ckpt")  # fmt: skip
    (owner.folder / "error.txt").write_text(ECC)
    first = owner.sbatch("pinned.sh")
    ended(engine, first)
    incident = watched(engine, first, over)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert "gpu003" not in engine.scheduler.job(restarted(engine, first)).nodes


def test_a_requeue_by_the_owner_under_verification_is_no_wrong_start(
    engine: Engine, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "CONFIRM_S", 8.0)
    first = owner.sbatch("run.sh")
    ended(engine, first)
    watched(engine, first, lambda one: one.state is IncidentState.VERIFYING and "is still there" in one.note)
    again = restarted(engine, first)
    owner.cluster.run("scontrol", "requeue", again)
    requeued = time.monotonic()
    incident = watched(engine, first, over)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert time.monotonic() - requeued > 8  # what the attempt before it had passed proves nothing of this one
    assert writers(owner) == [first, again, again]


def test_an_interactive_job_is_never_started_again_and_says_so(engine: Engine, owner: Owner) -> None:
    environment = {"SLURM_CONF": str(owner.cluster.conf), "PATH": "/usr/bin:/bin"}
    subprocess.run(
        ["srun", "-J", "by-hand", "python3", "-u", "x.py"], cwd=owner.folder, env=environment, capture_output=True, check=False
    )
    [job] = [one for one in engine.scheduler.jobs() if one.name == "by-hand"]
    incident = watched(engine, job.id, over)
    assert (incident.state, "interactive" in incident.note) == (IncidentState.ESCALATED, True), incident.note
    assert writers(owner) == [job.id]


def test_a_batch_script_in_python_comes_back_from_its_checkpoint(engine: Engine, owner: Owner) -> None:
    script = owner.folder / "train.py"
    script.write_text(f"#!/usr/bin/env python3\n#SBATCH -J py\n{SAVING}")
    first = owner.sbatch("train.py")
    ended(engine, first)
    incident = watched(engine, first, over)
    assert incident.state is IncidentState.RECOVERED, incident.note
    again = restarted(engine, first)
    assert f"{again} begins at 20" in (owner.folder / "writers.log").read_text()


def test_one_error_of_all_tasks_of_an_array_is_one_incident(engine: Engine, owner: Owner) -> None:
    owner.script("folds.sh", "#SBATCH --array=1-4", "srun python3 -c \"config = {}; config['tokenizer']\"")
    array = owner.sbatch("folds.sh")
    for task in range(1, 5):
        until(lambda task=task: engine.scheduler.job(f"{array}_{task}").state.ended, 30)  # type: ignore[misc]
    for task in range(1, 5):
        watched(engine, f"{array}_{task}", over)
    shared = [one for one in engine.store.incidents(limit=100) if one.job is None]
    assert [("tokenizer" in one.note, "4 jobs" in one.note) for one in shared] == [(True, True)]
    assert not [call for call in engine.store.calls() if call.tool == "resubmit_job"]


def test_tasks_that_failed_just_before_a_watch_began_are_started_with_their_siblings(
    devcluster: DevCluster, owner: Owner, tmp_path: Path
) -> None:
    owner.script("folds.sh", "#SBATCH --array=1-4", "[ $SLURM_ARRAY_TASK_ID -gt 2 ] && sleep 6",
                 "srun python3 -c \"config = {}; config['tokenizer']\"")  # fmt: skip
    array, clock = owner.sbatch("folds.sh"), SystemClock()
    until(lambda: "1,2" in ",".join(failed_tasks(devcluster, array)), 30)
    time.sleep(1.5)
    settings = devcluster.settings(tmp_path, watch=WatchSettings(poll_s=1, shared_settle_s=2.0))
    policy = replace(load_policy(), mode=Mode.ACT, kill_switch=(tmp_path / "stop",))
    made = build(settings, clock=clock, policy=policy, since=clock.now())
    try:
        for task in range(1, 5):
            watched(made, f"{array}_{task}", over)
        shared = [entry for entry in made.store.incidents(limit=100) if entry.job is None]
        assert len(shared) == 1
        assert "4 jobs" in shared[0].note
        assert "--array=1,2,3,4" in shared[0].note
        assert not [call for call in made.store.calls() if call.tool == "resubmit_job"]
    finally:
        made.store.close()
        devcluster.settle()


def failed_tasks(cluster: DevCluster, array: str) -> list[str]:
    rows = cluster.run("sacct", "-X", "-n", "-P", "-j", array, "-o", "JobID,State").splitlines()
    return sorted(row.split("|")[0].partition("_")[2] for row in rows if row.endswith("|FAILED"))
