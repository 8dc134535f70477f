"""Wrong starts of other shapes, right ones that look wrong, and what may come between: outages, kills, people. On real Slurm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.engine import Engine
from assistant.errors import Unavailable
from assistant.policy import Mode
from assistant.records import IncidentState, JobState
from assistant.schedulers.slurm import SlurmScheduler
from tests.live.conftest import DevCluster, until
from tests.live.test_strangers_queue import TIMEOUT
from tests.live.test_strangers_submission import Owner, ended, over, restarted, watched
from tests.live.test_wrong_starts import BREAKS, LOAD, RIGHT, SAID, SILENT, made_engine, program, saved_by, wrong_start

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


NOISE = """print("Building the dataset index from scratch", flush=True)
print("initializing 3 new embeddings from scratch", flush=True)
if old:
    step = restore(old[-1])
    print("eval: step 0 loss 2.6", flush=True)"""
ANEW = """shift = 0
if old:
    shift = restore(old[-1])"""
FALLS_BACK = """if old:
    latest = old[-1]
    if again:
        print(f"WARNING: {os.path.dirname(latest)} looks corrupted, falling back to the one before", flush=True)
        latest = old[0]
    step = restore(latest)
    print(f"Continuing training from checkpoint {os.path.dirname(latest)}, will skip trained steps", flush=True)"""
ROTATES = """import shutil
    for path in sorted(glob.glob(args.out + "/step_*"), key=os.path.getmtime)[:-3]:
        shutil.rmtree(path)
def on_term"""
BAR = """print(f"{step // 4:3d}%|##   | {step}/400 [00:01<01:00,  5.0it/s, loss={3.0 - step / 100:.4f}]", file=sys.stderr)"""


def stops(engine: Engine) -> list[str]:
    return [str(call.arguments["job"]) for call in engine.store.calls() if call.tool == "stop_restart"]


def begins(owner: Owner) -> int:
    """Return how often the trainer was started."""
    return len((owner.folder / "writers.log").read_text().splitlines())


def test_a_tracker_whose_checkpoint_is_refused_by_the_trainer(engine: Engine, owner: Owner) -> None:
    owner.script("run.sh", "srun python3 -u x.py --save $SLURM_SUBMIT_DIR/ckpt --load $SLURM_SUBMIT_DIR/ckpt")
    (owner.folder / "strict").touch()
    first, again, incident = wrong_start(engine, owner, MEGATRON)
    assert "it was stopped" in incident.note, incident.note
    assert (owner.folder / "ckpt/iter_0000040/mp_rank_00/by").read_text() == first
    assert stops(engine) == [again]


def test_a_script_that_tries_again_and_cleans_up_does_neither_after_a_stop(engine: Engine, owner: Owner) -> None:
    retry = "srun python3 -u x.py --out $SLURM_SUBMIT_DIR/ckpt && break"
    give_up = "[ -e second ] || { touch second; exit 1; }"
    owner.script("run.sh", "trap 'touch trapped' EXIT TERM", "for try in 1 2 3; do", retry, give_up, "done")
    first, again, incident = wrong_start(engine, owner, program(BREAKS, SAID))
    (owner.folder / "trapped").unlink()  # of the first attempt
    assert "it was stopped" in incident.note, incident.note
    until(lambda: owner.cluster.run("squeue", "-h", "-j", again, check=False) == "", 30)
    assert (saved_by(owner, 40), begins(owner)) == (first, 2)
    assert not (owner.folder / "trapped").exists()


def test_siblings_in_the_array_run_on(engine: Engine, owner: Owner) -> None:
    text = program(BREAKS, SAID).replace('"failed"', 'f"failed-{args.out[-1]}"')
    text = text.replace("step == 45 and", "step == 45 and args.out[-1] == '2' and")
    (owner.folder / "x.py").write_text(text.replace("0.5 if again else 0.05", "0.05 if args.out[-1] == '2' and not again else 0.5"))
    owner.script("run.sh", "#SBATCH --array=1-3", "srun python3 -u x.py --out $SLURM_SUBMIT_DIR/ckpt$SLURM_ARRAY_TASK_ID")
    array = owner.sbatch("run.sh")
    ended(engine, f"{array}_2")
    incident = watched(engine, f"{array}_2", over, 90)
    assert "it was stopped" in incident.note, incident.note
    assert [engine.scheduler.job(f"{array}_{task}").state for task in (1, 3)] == [JobState.RUNNING] * 2


def test_a_run_of_the_same_name_elsewhere_is_left_alone(engine: Engine, owner: Owner) -> None:
    other = Owner(owner.cluster, owner.folder.with_name(f"{owner.folder.name}-elsewhere"))
    (other.folder / "x.py").write_text(program(LOAD, RIGHT).replace("step == 45", "step == 4500"))
    other.script("run.sh", "srun python3 -u x.py --out $SLURM_SUBMIT_DIR/ckpt")
    beside = other.sbatch("run.sh")
    _, again, incident = wrong_start(engine, owner, program(BREAKS, SAID))
    assert "it was stopped" in incident.note
    assert stops(engine) == [again]
    assert engine.scheduler.job(beside).state in (JobState.RUNNING, JobState.COMPLETED)


def test_a_trainer_that_falls_back_by_itself_and_deletes_old_checkpoints(engine: Engine, owner: Owner) -> None:
    text = program(LOAD, FALLS_BACK).replace("0.5 if again", "0.2 if again")
    first, _, incident = wrong_start(engine, owner, text.replace("def on_term", f"    {ROTATES}", 1))
    assert "it loaded step 20" in incident.note, incident.note
    assert "it was stopped" in incident.note, incident.note
    assert saved_by(owner, 40) == first


def test_a_sparse_log_is_enough_and_what_was_written_over_is_said(engine: Engine, owner: Owner) -> None:
    text = program(BREAKS, SILENT).replace("0.5 if again", "0.2 if again")
    first, _, incident = wrong_start(
        engine, owner, text.replace('print(f"step {step} loss', 'step % 10 or print(f"step {step} loss')
    )
    assert "it was stopped" in incident.note, incident.note
    assert "OVERWRITTEN: step_10" in incident.note, incident.note
    assert saved_by(owner, 40) == first


def test_a_right_start_among_noise_recovers(engine: Engine, owner: Owner) -> None:
    _, _, incident = wrong_start(engine, owner, program(LOAD, NOISE))
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert stops(engine) == []


@pytest.mark.parametrize("kind", ["losses", "bar"])
def test_a_counter_that_begins_anew_is_asked_about_at_once_and_not_stopped(engine: Engine, owner: Owner, kind: str) -> None:
    text = program(LOAD, ANEW).replace("0.5 if again", "0.2 if again").replace("3.0 - step / 100", "3.0 - (step + shift) / 100")
    if kind == "bar":
        begin = program(BREAKS, SILENT).index('    print(f"step {step}')
        text = program(BREAKS, SILENT).replace(program(BREAKS, SILENT)[begin:].splitlines()[0], f"    {BAR}")
    _, again, incident = wrong_start(engine, owner, text)
    assert incident.state is IncidentState.ESCALATED
    assert f"end it: scancel {again}" in incident.note, incident.note
    assert stops(engine) == []
    assert engine.scheduler.job(again).state is JobState.RUNNING


def test_a_kill_switch_holds_for_a_stop_too_and_the_command_is_said_first(engine: Engine, owner: Owner, tmp_path: Path) -> None:
    slow = program(BREAKS, SAID).replace('print(f"step', 'time.sleep(1.5 if again else 0)\n    print(f"step')
    (owner.folder / "x.py").write_text(slow)
    first = owner.sbatch("run.sh")
    ended(engine, first)
    watched(engine, first, lambda one: one.state is IncidentState.VERIFYING)
    (tmp_path / "stop").touch()
    incident = watched(engine, first, over)
    again = restarted(engine, first)
    assert incident.note.startswith(f"STOP job {again} NOW"), incident.note
    assert "Not done: refused by kill_switch" in incident.note
    assert engine.scheduler.job(again).state is JobState.RUNNING


def test_a_controller_that_is_away_between_choice_and_requeue_costs_no_choice(
    engine: Engine, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    (owner.folder / "x.py").write_text(program(LOAD, RIGHT).replace("args = p", "p.add_argument('--note')\nargs = p"))
    owner.script("run.sh", 'srun python3 -u x.py --note "$1" --out $SLURM_SUBMIT_DIR/ckpt')
    first = owner.sbatch("run.sh", "my run one")
    ended(engine, first)
    give = SlurmScheduler._give
    away: list[object] = []

    def hang(self: SlurmScheduler, change: object) -> None:
        if "queue job" in change.purpose and not away:  # type: ignore[attr-defined]
            away.append(change)
            owner.cluster.fault("ctl", "hang")
        give(self, change)  # type: ignore[arg-type]

    monkeypatch.setattr(SlurmScheduler, "_give", hang)
    try:
        with pytest.raises(Unavailable):
            watched(engine, first, lambda _: False)
    finally:
        owner.cluster.heal("ctl")
    incident = watched(engine, first, over, 120)
    assert (incident.state, len(away)) == (IncidentState.RECOVERED, 1), incident.note
    [value] = [engine.store.outcome(call.id) for call in engine.store.calls(incident.id) if call.tool == "requeue_ended_job"]
    assert value is not None
    assert (value.value["step"], value.value["checkpoint"][-7:]) == (40, "step_40")


def test_a_watch_that_is_killed_in_a_stop_finds_it_done(engine: Engine, owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    (owner.folder / "x.py").write_text(program(BREAKS, SAID))
    first = owner.sbatch("run.sh")
    ended(engine, first)
    store = engine.store
    write = store.write_outcome

    def lose(outcome: object, **words: object) -> None:
        if store.call(outcome.call).tool == "stop_restart":  # type: ignore[attr-defined]
            raise KeyboardInterrupt  # as kill -9 between the command and what is written of it
        write(outcome, **words)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(store, "write_outcome", lose)
        with pytest.raises(KeyboardInterrupt):
            watched(engine, first, over, 90)
    again = restarted(engine, first)
    until(lambda: engine.scheduler.job(again).state.ended, 30)
    incident = watched(engine, first, over)
    for _ in range(5):
        engine.tick(owner="test")
    assert "it was stopped" in incident.note, incident.note
    assert (stops(engine), begins(owner)) == ([again], 2)
    assert [one.state for one in store.incidents(job=again)] in ([], [IncidentState.CLOSED])
