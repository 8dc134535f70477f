"""Scripts that train in several stages, and scripts that go on when their program is dead; none knows of Nightshift."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from assistant.config import Settings, SshSettings
from assistant.config.settings import WatchSettings
from assistant.engine import Engine
from assistant.engine.ownership import owner_name
from assistant.policy import KindTerms, Mode, load_policy
from assistant.records import Incident, IncidentState, JobSpec
from assistant.transports.ssh import SshTransport
from assistant.wiring import build
from tests.live.conftest import DevCluster, until
from tests.live.test_strangers_checkpoints import digests

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]
ENDED = (IncidentState.RECOVERED, IncidentState.ESCALATED, IncidentState.CLOSED)
STAGE = """
import glob, os, re, sys, time
out, base, die_at = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.makedirs(out, exist_ok=True)
step = 0
LOAD
if base != "none" and not glob.glob(base + "/step_*.pt"):
    raise FileNotFoundError(f"no base model in {base}")
while step < 80:
    step += 1
    time.sleep(0.02)
    print(f"step {step} loss {2 + 1 / step:.4f}", flush=True)
    if step % 20 == 0:
        with open(f"{out}/step_{step}.pt", "wb") as file:
            file.write(b"\\x80" + b"%09d" % step + bytes(9000))
        print(f"saved {out}/step_{step}.pt", flush=True)
    if step == die_at and not os.path.exists("died"):
        open("died", "w").close()
        raise RuntimeError("NCCL error: remote process exited or there was a network error, NCCL version 2.19.3")
print("training completed", flush=True)
"""
NEWEST = """
found = sorted(glob.glob(out + "/step_*.pt"), key=lambda path: int(re.findall(r"\\d+", path)[-1]))
if found:
    step = int(open(found[-1], "rb").read(10)[1:])
    print(f"resumed from {found[-1]} at step {step}", flush=True)
"""
FRESH, RESUMING = STAGE.replace("LOAD", ""), STAGE.replace("LOAD", NEWEST.strip())
EVALUATION = """
import os
if not os.path.exists("dpo/step_80.pt"):
    raise FileNotFoundError(2, "No such file or directory", "dpo/step_80.pt")
print("accuracy 0.51")
"""


@dataclass(frozen=True)
class Pipeline:
    """A script of several programs, and how its night has to end."""

    name: str
    command: str
    sft: str = FRESH
    ends: IncidentState = IncidentState.RECOVERED
    note: str = ""
    """What the incident's note has to say."""
    untouched: tuple[str, ...] = ("sft/step_20.pt", "sft/step_80.pt", "dpo/step_20.pt", "dpo/step_40.pt")


SFT, DPO = "python3 -u sft.py sft none 0", "python3 -u dpo.py dpo sft 50"
PIPELINES = [
    Pipeline("no-guard", f"set -e\n{SFT}\n{DPO}\npython3 eval.py", ends=IncidentState.ESCALATED, note="runs sft.py (sft) again"),
    Pipeline("marker", f"set -e\n[ -f sft/done ] || {{ {SFT}; touch sft/done; }}\n{DPO}\npython3 eval.py"),
    Pipeline("steps-that-resume", f"set -e\nsrun {SFT}\nsrun {DPO}", sft=RESUMING),
    Pipeline("functions", f"first() {{ {SFT}; }}\nsecond() {{ {DPO}; }}\nif [ ! -f sft/step_80.pt ]; then\n  first\nfi\nsecond"),
    Pipeline(
        "loop", "set -e\nfor s in sft dpo; do\n  [ -f $s/step_80.pt ] && continue\n  python3 -u $s.py $s none "
        '"$([ $s = dpo ] && echo 50 || echo 0)"\ndone',
    ),
    Pipeline(
        "first-of-a-list", "python3 -u sft.py sft none 50 && python3 -u dpo.py dpo sft 0; python3 eval.py", sft=RESUMING,
        untouched=("sft/step_20.pt", "sft/step_40.pt"),
    ),
]  # fmt: skip


@pytest.fixture
def engine(devcluster: DevCluster, tmp_path: Path) -> Iterator[Engine]:
    shipped = load_policy()
    kinds = {kind: KindTerms(takes_nodes=terms.takes_nodes, cooldown_min=0) for kind, terms in shipped.kind.items()}
    policy = replace(shipped, mode=Mode.ACT, kill_switch=(), kind=kinds, min_healthy_share=0.0)
    watch = WatchSettings(hang_after_s=12.0, hang_factor=2.0)
    settings = Settings(state_folder=tmp_path, store=tmp_path / "nightshift.db", watch=watch)
    devcluster.settle()
    with SshTransport(SshSettings(config=devcluster.ssh_config)) as transport:
        yield build(settings, scheduler=devcluster.scheduler(), transport=transport, policy=policy)
    devcluster.settle()


def worked(engine: Engine, job: str) -> Incident:
    """Let the watch work until the incident of a job has an end."""
    states: list[Incident] = []

    def looked() -> bool:
        engine.tick(owner=owner_name("test"))
        states[:] = engine.store.incidents(job=job)
        return bool(states) and states[0].state in ENDED

    until(looked, 150, pause_s=0.5)
    return states[0]


def submitted(engine: Engine, devcluster: DevCluster, name: str, command: str, **files: str) -> tuple[str, Path]:
    """Submit a script with its programs in a folder of its own; return the job and the folder."""
    folder = devcluster.shared / name
    folder.mkdir()
    for file, text in files.items():
        (folder / f"{file}.py").write_text(text)
    script = f"#!/bin/bash\n#SBATCH --nodes=1 --output=slurm-%j.out\ncd {folder}\n{command}\n"
    return engine.scheduler.submit(JobSpec(name, script, nodes=1, work_dir=folder)), folder


@pytest.mark.parametrize("pipeline", PIPELINES, ids=lambda one: one.name)
def test_a_pipeline_goes_on_in_the_stage_that_failed_and_never_over_a_finished_one(
    engine: Engine, devcluster: DevCluster, pipeline: Pipeline
) -> None:
    files = {"sft": pipeline.sft, "dpo": RESUMING, "eval": EVALUATION}
    job, folder = submitted(engine, devcluster, f"pipeline-{pipeline.name}", pipeline.command, **files)
    until(lambda: engine.scheduler.job(job).state.ended, 60)
    before = {name: (digests(folder)[f"/{name}"], (folder / name).stat().st_mtime_ns) for name in pipeline.untouched}
    incident = worked(engine, job)
    assert (incident.state, pipeline.note in incident.note) == (pipeline.ends, True), incident.note
    after = {name: (digests(folder)[f"/{name}"], (folder / name).stat().st_mtime_ns) for name in pipeline.untouched}
    assert after == before
    assert (folder / "dpo/step_80.pt").exists() is (pipeline.ends is IncidentState.RECOVERED)


@pytest.mark.parametrize(
    ("name", "tail"),
    [
        ("sleeps", "|| sleep 900"),
        ("follows", "& wait $! || tail -f /dev/null"),
        ("redirects", "> run.log 2>&1 || { sync; sleep 900; }"),
    ],
)
def test_a_program_that_died_in_a_job_that_goes_on_is_no_hang(engine: Engine, devcluster: DevCluster, name: str, tail: str) -> None:
    job, folder = submitted(engine, devcluster, f"idle-{name}", f"python3 -u train.py out none 50 {tail}", train=RESUMING)
    until((folder / "died").exists, 60)
    for path in folder.glob("out/*.pt"):  # what was written seconds ago may still be written: the wait of a real hang is cut short
        os.utime(path, (time.time() - 60,) * 2)
    incident = worked(engine, job)
    diagnosis = engine.store.diagnosis(incident.id)
    assert diagnosis is not None
    assert diagnosis.reason == "nccl_remote_error"
    assert "No program" in diagnosis.summary
    assert "holds 1 node" in diagnosis.summary
    assert incident.state is IncidentState.RECOVERED, incident.note


CAUGHT = RESUMING.replace("    if step == die_at", "    TRY\n    if step == die_at").replace(
    "TRY",
    """if step in (20, 30):
        try:
            raise OSError(5, "Input/output error", "shard_3.tar")
        except OSError:
            import traceback; traceback.print_exc(); sys.stderr.flush()""",
)


def test_a_traceback_that_the_program_outlived_is_no_failure(engine: Engine, devcluster: DevCluster) -> None:
    job, _ = submitted(engine, devcluster, "outlived", "srun python3 -u train.py out none 0", train=CAUGHT)

    def looked() -> bool:
        engine.tick(owner=owner_name("test"))
        return engine.scheduler.job(job).state.ended

    until(looked, 60, pause_s=0.5)
    engine.tick(owner=owner_name("test"))
    assert not engine.store.incidents(job=job)


def test_a_hang_behind_an_error_that_the_program_outlived_before_is_a_hang(engine: Engine, devcluster: DevCluster) -> None:
    source = CAUGHT.replace("    time.sleep(0.02)", "    time.sleep(0.02 if step != 31 else 900)")
    job, _ = submitted(engine, devcluster, "hang-behind", "srun python3 -u train.py out none 0", train=source)
    incident = worked(engine, job)
    diagnosis = engine.store.diagnosis(incident.id)
    assert diagnosis is not None
    assert diagnosis.reason == "hang"
