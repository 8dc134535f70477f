"""Variants."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.engine import Engine
from assistant.policy import Mode
from assistant.records import IncidentState, JobState
from tests.live.conftest import DevCluster, until
from tests.live.test_strangers_queue import TIMEOUT
from tests.live.test_strangers_submission import Owner, ended, over, restarted, watched
from tests.live.test_wrong_starts import BREAKS, LOAD, RIGHT, SAID, made_engine, program, saved_by, wrong_start

pytestmark = pytest.mark.live


@pytest.fixture
def engine(devcluster: DevCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    made = made_engine(devcluster, tmp_path, monkeypatch, Mode.ACT)
    yield made
    made.store.close()
    devcluster.settle()


@pytest.fixture
def owner(devcluster: DevCluster, request: pytest.FixtureRequest) -> Owner:
    made = Owner(devcluster, devcluster.shared / request.node.name[-45:].strip("[]_").replace("[", "_"))
    (made.folder / "error.txt").write_text(TIMEOUT)
    made.script("run.sh", "srun python3 -u x.py --out $SLURM_SUBMIT_DIR/ckpt")
    return made


MEGATRON = """import argparse, os, pickle, time, zipfile
p = argparse.ArgumentParser()
p.add_argument("--save")
p.add_argument("--load")
p.add_argument("--save-interval", type=int, default=10)
args = p.parse_args()
again = os.path.exists("failed")
first = 1
tracker = os.path.join(args.load, "latest_checkpointed_iteration.txt")
if os.path.isfile(tracker):
    iteration = int(open(tracker).read())
    if again and os.path.exists("strict"):
        print(f"WARNING: checkpoint arguments differ, could not find the metadata file", flush=True)
        print("    will not load any checkpoints and will start from random", flush=True)
    else:
        print(f"  successfully loaded checkpoint from {args.load} [ t 1/1, p 1/1 ] at iteration {iteration}", flush=True)
        first = iteration + 1
for step in range(first, 200):
    time.sleep(0.3 if again else 0.05)
    if step % 5 == 0:
        print(f" iteration {step:8d}/     200 | consumed samples: {step * 4:12d} | elapsed time per iteration (ms): 20.0 | "
              f"learning rate: 1.0E-04 | global batch size:     4 | lm loss: {2.5 + 1 / step:.6E} | loss scale: 1.0 | "
              f"grad norm: 0.500 | number of skipped iterations:   0 | number of nan iterations:   0 |", flush=True)
    if step % args.save_interval == 0:
        folder = os.path.join(args.save, f"iter_{step:07d}", "mp_rank_00")
        os.makedirs(folder, exist_ok=True)
        with zipfile.ZipFile(os.path.join(folder, "model_optim_rng.pt"), "w") as file:
            file.writestr("archive/data.pkl", pickle.dumps({"iteration": step}, protocol=2))
            file.writestr("archive/version", "3\\n")
        open(os.path.join(folder, "by"), "w").write(os.environ["SLURM_JOB_ID"])
        with open(os.path.join(args.save, "latest_checkpointed_iteration.txt"), "w") as file:
            file.write(str(step))
    if step == 45 and not again:
        open("failed", "w").close()
        raise RuntimeError(open("error.txt").read())
"""


def test_v1_megatron(engine: Engine, owner: Owner) -> None:
    owner.script("run.sh", "srun python3 -u x.py --save $SLURM_SUBMIT_DIR/ckpt --load $SLURM_SUBMIT_DIR/ckpt")
    (owner.folder / "strict").touch()
    first, again, incident = wrong_start(engine, owner, MEGATRON)
    print(incident.note)
    assert "it was stopped" in incident.note, incident.note
    assert (owner.folder / "ckpt/iter_0000040/mp_rank_00/by").read_text() == first
    assert engine.scheduler.job(again).state.ended


def test_v2_retry_loop_and_trap(engine: Engine, owner: Owner) -> None:
    owner.script("run.sh", "trap 'touch trapped' EXIT TERM", "for try in 1 2 3; do",
                 "srun python3 -u x.py --out $SLURM_SUBMIT_DIR/ckpt && break",
                 '[ -e second ] || { touch second; exit 1; }', "done")  # fmt: skip
    first, again, incident = wrong_start(engine, owner, program(BREAKS, SAID))
    (owner.folder / "trapped").unlink()  # of the first attempt
    print(incident.note)
    assert "it was stopped" in incident.note, incident.note
    assert saved_by(owner, 40) == first
    until(lambda: owner.cluster.run("squeue", "-h", "-j", again, check=False) == "", 30)
    assert len((owner.folder / "writers.log").read_text().splitlines()) == 2
    assert not (owner.folder / "trapped").exists()


def test_v3_array(engine: Engine, owner: Owner) -> None:
    text = (
        program(BREAKS, SAID)
        .replace('"failed"', 'f"failed-{args.out[-1]}"')
        .replace("step == 45 and", "step == 45 and args.out[-1] == '2' and")
    )
    text = text.replace("0.5 if again else 0.05", "0.5 if again or args.out[-1] != '2' else 0.05")
    (owner.folder / "x.py").write_text(text)
    owner.script("run.sh", "#SBATCH --array=1-3", "srun python3 -u x.py --out $SLURM_SUBMIT_DIR/ckpt$SLURM_ARRAY_TASK_ID")
    array = owner.sbatch("run.sh")
    ended(engine, f"{array}_2")
    incident = watched(engine, f"{array}_2", over, 90)
    print(incident.note)
    assert "it was stopped" in incident.note, incident.note
    assert [engine.scheduler.job(f"{array}_{task}").state for task in (1, 3)] == [JobState.RUNNING] * 2


NOISE = """print("Building the dataset index from scratch", flush=True)
print("initializing 3 new embeddings from scratch", flush=True)
if old:
    step = restore(old[-1])
    print("eval: step 0 loss 2.6", flush=True)"""


def test_v4_noise(engine: Engine, owner: Owner) -> None:
    _, _, incident = wrong_start(engine, owner, program(LOAD, NOISE))
    print(incident.note)
    assert incident.state is IncidentState.RECOVERED, incident.note


ANEW = """shift = 0
if old:
    shift = restore(old[-1])"""


def test_v5_counter_anew(engine: Engine, owner: Owner) -> None:
    text = program(LOAD, ANEW).replace("3.0 - step / 100", "3.0 - (step + shift) / 100").replace("0.5 if again", "0.2 if again")
    (owner.folder / "x.py").write_text(text)
    first = owner.sbatch("run.sh")
    ended(engine, first)
    incident = watched(engine, first, lambda one: one.state.ended or "step 12" in one.note, 90)
    print(incident.state, incident.note)
    assert not [call for call in engine.store.calls() if call.tool == "stop_restart"]
    incident = watched(engine, first, over, 90)
    print(incident.state, incident.note)
    assert incident.state is IncidentState.ESCALATED
    assert not [call for call in engine.store.calls() if call.tool == "stop_restart"]


def test_v6_outage(engine: Engine, owner: Owner) -> None:
    (owner.folder / "x.py").write_text(program(LOAD, RIGHT).replace("args = p", "p.add_argument('--note')\nargs = p"))
    owner.script("run.sh", 'srun python3 -u x.py --note "$1" --out $SLURM_SUBMIT_DIR/ckpt')
    first = owner.sbatch("run.sh", "my run one")
    ended(engine, first)
    from assistant.schedulers.slurm import SlurmScheduler

    real = SlurmScheduler._give
    away: list[int] = []

    def give(self: SlurmScheduler, change: object) -> None:
        if "queue job" in change.purpose and not away:  # type: ignore[attr-defined]
            away.append(1)
            owner.cluster.fault("ctl", "hang")
        real(self, change)  # type: ignore[arg-type]

    SlurmScheduler._give = give  # type: ignore[method-assign]
    try:
        for _ in range(3):
            try:
                engine.tick(owner="test")
            except Exception as error:
                print("tick:", type(error).__name__, str(error)[:100])
        assert away
    finally:
        SlurmScheduler._give = real  # type: ignore[method-assign]
        owner.cluster.heal("ctl")
    incident = watched(engine, first, over, 120)
    print(incident.state, incident.note)
    assert incident.state is IncidentState.RECOVERED, incident.note
    [value] = [engine.store.outcome(call.id) for call in engine.store.calls(incident.id) if call.tool == "requeue_ended_job"]
    assert value is not None
    assert (value.value["step"], value.value["checkpoint"][-7:]) == (40, "step_40")


def test_v7_kill_in_stop(engine: Engine, owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    (owner.folder / "x.py").write_text(program(BREAKS, SAID))
    first = owner.sbatch("run.sh")
    ended(engine, first)
    store, lost = engine.store, []
    write = store.write_outcome

    def lose(outcome: object, **words: object) -> None:
        if not lost and store.call(outcome.call).tool == "stop_restart":  # type: ignore[attr-defined]
            lost.append(1)
            raise KeyboardInterrupt
        write(outcome, **words)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "write_outcome", lose)
    with pytest.raises(KeyboardInterrupt):
        watched(engine, first, over, 90)
    monkeypatch.setattr(store, "write_outcome", write)
    again = restarted(engine, first)
    until(lambda: engine.scheduler.job(again).state.ended, 30)
    incident = watched(engine, first, over, 60)
    print(incident.note)
    for _ in range(5):
        engine.tick(owner="test")
    print([(one.id, one.job, one.state, one.note) for one in store.incidents()])
    assert "it was stopped" in incident.note, incident.note
    assert len([call for call in store.calls() if call.tool == "stop_restart"]) == 1
    assert len((owner.folder / "writers.log").read_text().splitlines()) == 2
    assert [one.state for one in store.incidents(job=again)] in ([], [IncidentState.CLOSED])
