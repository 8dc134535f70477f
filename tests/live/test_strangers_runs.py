"""Jobs as users of other clusters write them: links to the newest, runs side by side, tests of files, saves on the node's disk."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from assistant.engine import Engine
from assistant.records import IncidentState, JobSpec
from tests.live.conftest import DevCluster, until
from tests.live.test_strangers_checkpoints import digests, worked

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]
TRAINER = """
import glob, os, re, sys, time
folder, link = OPTIONS
os.makedirs(folder, exist_ok=True)
def save(step):
    with open(f"{folder}/step_{step}.pt", "wb") as file:
        file.write(b"\\x80" + b"%09d" % step + bytes(9000))
    print(f"saved step_{step}.pt", flush=True)
step = 0
LOAD
while step < 80:
    step += 1
    time.sleep(0.05)
    print(f"LINE", flush=True)
    if step % 20 == 0:
        save(step)
        SAVED
    if step == 70 and not os.path.exists(f"died-{os.environ['SLURM_JOB_NAME']}"):
        open(f"died-{os.environ['SLURM_JOB_NAME']}", "w").close()
        print("RuntimeError: NCCL error: remote process exited or there was a network error, NCCL version 2.19.3", flush=True)
        sys.exit(1)
"""
NEWEST = """
found = sorted(glob.glob(folder + "/step_*.pt"), key=lambda path: int(re.findall(r"\\d+", path)[-1]))
if found:
    step = int(open(found[-1], "rb").read(10)[1:])
    print(f"resumed from {found[-1]} at step {step}", flush=True)
"""
BY_LINK = """
if os.path.islink(link):
    step = int(open(link, "rb").read(10)[1:])
    print(f"resumed from {os.path.realpath(link)} at step {step}", flush=True)
"""
SET_LINK = "os.path.islink(link) and os.unlink(link); os.symlink(f'step_{step}.pt', link)"


def trainer(options: str, load: str, *, line: str = "step {step} loss {2 + 1 / step:.4f}", saved: str = "pass") -> str:
    """Return the source of a trainer that dies once, at step 70, with checkpoints of 20, 40 and 60."""
    source = TRAINER.replace("OPTIONS", options).replace("LOAD", load.strip()).replace("LINE", line)
    return source.replace("SAVED", saved)


@dataclass(frozen=True)
class Scenario:
    """A job, what is done to its newest checkpoint, and how the night has to end."""

    name: str
    source: str
    command: str
    ends: IncidentState = IncidentState.RECOVERED
    note: str = ""
    """What the incident's note has to say."""
    damage: str = ""
    """A file that is emptied before the watch looks."""
    untouched: tuple[str, ...] = ()
    """Files that must be as they were."""
    holds: Callable[[Path], bool] = lambda _: True
    """What has to hold of the work folder in the end."""


def _link_is_set(folder: Path) -> bool:
    link = folder / "ckpt/latest"
    return link.is_symlink() and link.resolve().name == "step_80.pt" and (folder / "ckpt/nightshift-refused/step_60.pt").exists()


TESTED = """
OUT=out
if [ -f $OUT/step_60.pt ]; then
    ARGS="$OUT $OUT/step_60.pt"
else
    ARGS="$OUT none"
fi
srun python3 train.py $ARGS
"""
BY_ARGUMENT = """
def load_checkpoint(path):
    with open(path, "rb") as file:
        return int(file.read(10)[1:])
if link != "none" and os.path.isfile(link):
    step = load_checkpoint(link)
    print(f"resumed from {link} at step {step}", flush=True)
"""
ON_THE_NODE = """
D=/tmp/$SLURM_JOB_ID; mkdir -p $D/ckpt results
trap 'cp -r $D/ckpt/. results/; rm -rf $D' EXIT
cp -r results/. $D/ckpt/
python3 train.py $D/ckpt
"""
FAIRSEQ = "epoch 001: {step} / 80 loss={2 + 1 / step:.3f}, ppl=4, num_updates={step}, lr=0.0005"
PLAIN = "sys.argv[1], ''"
SCENARIOS = [
    Scenario(
        "link-to-a-torn-one", trainer("'ckpt', 'ckpt/latest'", BY_LINK, saved=SET_LINK), "srun python3 train.py",
        damage="ckpt/step_60.pt", untouched=("ckpt/step_20.pt", "ckpt/step_40.pt"), holds=_link_is_set,
    ),
    Scenario(
        "test-of-a-file", trainer("sys.argv[1:3]", BY_ARGUMENT), TESTED,
        untouched=("out/step_20.pt", "out/step_40.pt", "out/step_60.pt"),
    ),
    Scenario("fairseq-on-the-node", trainer(PLAIN, NEWEST, line=FAIRSEQ), ON_THE_NODE, untouched=("results/step_20.pt",)),
    Scenario(
        "noise-at-the-start", trainer(PLAIN, NEWEST),
        "module load cuda/12.1\nsource activate train\nsrun python3 train.py saves",
        untouched=("saves/step_20.pt", "saves/step_40.pt", "saves/step_60.pt"),
    ),
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_the_night_ends_as_an_operator_wants_it(engine: Engine, devcluster: DevCluster, scenario: Scenario) -> None:
    folder = devcluster.shared / scenario.name
    folder.mkdir()
    (folder / "train.py").write_text(scenario.source)
    script = f"#!/bin/bash\n#SBATCH --nodes=1 --output=slurm-%j.out\ncd {folder}\n{scenario.command}\n"
    job = engine.scheduler.submit(JobSpec(scenario.name, script, nodes=1, work_dir=folder))
    until(lambda: engine.scheduler.job(job).state.ended, 60)
    log = (folder / f"slurm-{job}.out").read_text()
    if scenario.damage:
        (folder / scenario.damage).write_bytes(b"")
    before = digests(folder)
    incident = worked(engine, job)
    assert incident.state is scenario.ends, f"{incident.note}\n{log[-2000:]}"
    assert scenario.note in incident.note
    jobs = [one for one in engine.scheduler.jobs() if one.name == scenario.name and one.id != job]
    assert len(jobs) == (1 if scenario.ends is IncidentState.RECOVERED else 0)
    until(lambda: all(engine.scheduler.job(one.id).state.ended for one in jobs), 60)
    after = digests(folder)
    for name in scenario.untouched:
        assert after.get(f"/{name}") == before[f"/{name}"], name
    assert scenario.holds(folder)


def test_the_run_beside_it_lends_a_job_no_checkpoint(engine: Engine, devcluster: DevCluster) -> None:
    folder = devcluster.shared / "side-by-side"
    folder.mkdir()
    (folder / "died-run-b").touch()
    (folder / "train.py").write_text(trainer("'outputs/' + time.strftime('%H-%M-%S-') + sys.argv[1], ''", ""))
    specs = [
        JobSpec(name, f"#!/bin/bash\n#SBATCH --output=%x-%j.out\npython3 train.py {name}\n", nodes=1, work_dir=folder)
        for name in ("run-a", "run-b")
    ]
    failed, other = (engine.scheduler.submit(spec) for spec in specs)
    until(lambda: all(engine.scheduler.job(one).state.ended for one in (failed, other)), 60)
    before = digests(folder)
    incident = worked(engine, failed)
    assert incident.state is IncidentState.ESCALATED
    assert "-run-b" not in incident.note.replace("in several", ""), incident.note
    assert digests(folder) == before
    assert len(engine.scheduler.jobs()) >= 2
    assert not [one for one in engine.scheduler.jobs() if one.id not in (failed, other) and one.name in ("run-a", "run-b")]


def test_a_training_that_was_over_goes_to_a_person_where_its_teardown_failed(engine: Engine, devcluster: DevCluster) -> None:
    folder = devcluster.shared / "teardown"
    folder.mkdir()
    source = trainer("'ckpt', ''", NEWEST, line="[step={step}/80,epoch=1]\\n    train/CE loss={2 + 1 / step:.4f}")
    source = source.replace("step == 70", "step == 999").replace(
        'print(f"saved step_{step}.pt"', 'print(f"Checkpoint for step {step} saved"'
    )
    (folder / "train.py").write_text(
        f"{source}\nprint('Training complete')\nraise OSError('[Errno 5] Input/output error: wandb')\n"
    )
    script = "#!/bin/bash\n#SBATCH --output=%j.log\nset -e\nsrun python3 train.py\n"
    job = engine.scheduler.submit(JobSpec("teardown", script, nodes=1, work_dir=folder))
    until(lambda: engine.scheduler.job(job).state.ended, 60)
    incident = worked(engine, job)
    assert incident.state is IncidentState.ESCALATED, incident.note
    assert "its training is over" in incident.note
    assert [one.id for one in engine.scheduler.jobs() if one.name == "teardown"] == [job]


REFUSED = """
print("Training complete", flush=True)
def upload_folder(folder):
    raise OSError("403 Forbidden: You don't have the rights to create a model under the namespace \\"lab\\".")
upload_folder("ckpt")
"""


def test_of_an_upload_that_is_refused_behind_the_training_its_owner_is_told_and_nothing_is_trained_again(
    engine: Engine, devcluster: DevCluster
) -> None:
    folder = devcluster.shared / "refused"
    folder.mkdir()
    (folder / "train.py").write_text(trainer("'ckpt', ''", NEWEST).replace("step == 70", "step == 999") + REFUSED)
    script = "#!/bin/bash\n#SBATCH --output=%j.log\nsrun python3 train.py\n"
    job = engine.scheduler.submit(JobSpec("refused", script, nodes=1, work_dir=folder))
    until(lambda: engine.scheduler.job(job).state.ended, 60)
    before = digests(folder)
    incident = worked(engine, job)
    found = engine.store.diagnosis(incident.id)
    assert found is not None
    assert incident.state is IncidentState.ESCALATED, incident.note
    assert found.summary.startswith("The training is over (Training complete"), found.summary
    assert "only the upload failed" in found.summary
    assert f"{folder}/ckpt/step_80.pt" in found.summary
    assert "Do not start the training again" in incident.note
    assert digests(folder) == before
    assert [one.id for one in engine.scheduler.jobs() if one.name == "refused"] == [job]


def test_a_report_names_the_file_system_that_is_full_though_the_error_names_no_path(engine: Engine, devcluster: DevCluster) -> None:
    folder = devcluster.shared / "full"
    folder.mkdir()
    source = trainer("'/scratch/ckpt', ''", "").replace("step == 70", "step == 999")
    source = source.replace("bytes(9000)", "bytes(9_000 if step < 40 else 90_000_000)")
    (folder / "train.py").write_text(source)
    script = f"#!/bin/bash\n#SBATCH --output=%j.log\nsrun {sys.executable} -u train.py\n"
    job = engine.scheduler.submit(JobSpec("full", script, nodes=1, work_dir=folder))
    until(lambda: engine.scheduler.job(job).state.ended, 60)
    (node,) = engine.scheduler.job(job).nodes
    try:
        incident = worked(engine, job)
    finally:
        devcluster.run("srun", "--nodelist", node, "rm", "-r", "/scratch/ckpt")
    found = engine.store.diagnosis(incident.id)
    assert found is not None
    assert found.reason == "os_error", found.summary
    assert all(word in found.summary for word in ("/scratch (tmpfs", f"of {node}", "100 %")), found.summary
    assert [one.id for one in engine.scheduler.jobs() if one.name == "full"] == [job]


SWEEP = """
import math, sys, time
rate = float(sys.argv[1])
for step in range(1, 161):
    bad = rate > 0.1 and step >= 60
    loss = math.nan if bad else 3.0 - 0.01 * step
    print(f" {step // 2:3d}%|####      | {step}/160 [00:17<02:13,  2.00it/s]", flush=True)
    print({"loss": loss, "grad_norm": 0.9 if not bad else math.nan, "learning_rate": rate * (1 - step / 160)}, flush=True)
    if step == 100 and bad:
        raise ValueError("loss is nan, stopping")
    time.sleep(0.02)
"""


def test_a_task_of_an_array_whose_rate_diverges_is_its_owners(engine: Engine, devcluster: DevCluster) -> None:
    folder = devcluster.shared / "rates"
    folder.mkdir()
    (folder / "train.py").write_text(SWEEP)
    script = "#!/bin/bash\n#SBATCH --output=%x_%a.log\nLRS=(1e-5 2e-4 5e-1)\npython3 train.py ${LRS[$SLURM_ARRAY_TASK_ID]}\n"
    (folder / "sweep.sbatch").write_text(script)
    words = (
        "sbatch",
        "--parsable",
        "--array=0-2",
        "--mem=100",
        "--oversubscribe",
        f"--chdir={folder}",
        str(folder / "sweep.sbatch"),
    )
    array = devcluster.run(*words).strip()
    until(lambda: all(engine.scheduler.job(f"{array}_{task}").state.ended for task in range(3)), 90)
    incident = worked(engine, f"{array}_2")
    assert incident.state is IncidentState.ESCALATED, incident.note
    assert f"jobs {array}_0 (6." in incident.note, incident.note
    assert "of the same sweep went past step 60" in incident.note
    assert not [call for call in engine.store.calls() if call.tool in ("resubmit_job", "cancel_job", "set_aside_checkpoints")]
