"""Each fault of the demo really ends the job as its file says, on the embedded scheduler with the real trainer."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from assistant.content.faults import Fault, faults, find_fault
from assistant.content.reading import shipped as shipped_content
from assistant.demo.job import BATCH_SIZE, arm, demo_job
from assistant.errors import ContentError, UsageError
from assistant.ports import SystemClock
from assistant.records import Job, JobSpec, JobState
from assistant.schedulers.local import LocalScheduler

NAMES = (
    "corrupt_checkpoint",
    "dataloader_killed",
    "ecc",
    "hang",
    "loss_spike",
    "nccl_timeout",
    "node_failure",
    "oom",
    "script_bug",
    "storage",
)


class Stage:
    """A cluster, a job and a fault."""

    def __init__(self, folder: Path) -> None:
        self.cluster = LocalScheduler(folder / "cluster", SystemClock())
        self.spec = demo_job(folder / "run", step_ms=1)
        self.checkpoints = folder / "run" / "checkpoints"

    def strike(self, fault: Fault) -> tuple[Job, str]:
        """Arm a fault, run the job to its end, return it with the node that was struck."""
        if fault.steps:
            self.spec = demo_job(self.checkpoints.parent, step_ms=1, steps=fault.steps)
        node = arm(fault, self.cluster, self.spec)
        return self.run(), node

    def run(self, spec: JobSpec | None = None, **environment: str) -> Job:
        """Run the job to its end."""
        spec = spec or self.spec
        return self.wait(self.cluster.submit(replace(spec, environment={**spec.environment, **environment})))

    def wait(self, job_id: str, wanted: Callable[[Job], bool] = lambda job: job.state.ended) -> Job:
        """Wait for a job."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            job = self.cluster.job(job_id)
            if wanted(job):
                return job
            time.sleep(0.05)
        raise AssertionError(f"job did not get there: {self.cluster.job(job_id)}\n{self.log(job)}")

    def log(self, job: Job) -> str:
        """Return a job's log."""
        return job.log.read_text(encoding="utf-8") if job.log is not None and job.log.exists() else ""

    def losses(self, job: Job) -> dict[int, float]:
        """Return the loss of each step."""
        found = re.findall(r"iteration +(\d+)/.*lm loss: (\S+)", self.log(job))
        return {int(step): float(loss) for step, loss in found}


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    for job in made.cluster.jobs():
        made.cluster.cancel(job.id)
    for job in made.cluster.jobs():
        made.wait(job.id)


class End(NamedTuple):
    state: JobState
    says: tuple[str, ...]
    kernel: str = ""


ENDS = {
    "ecc": End(
        JobState.FAILED,
        (r"^\[rank3\]: torch\.AcceleratorError: CUDA error: uncorrectable ECC error encountered$", "NCCL WARN socketProgress"),
        r"NVRM: Xid \(PCI:0000:0f:00\): 95, pid=\d+",
    ),
    "nccl_timeout": End(JobState.FAILED, (r"Watchdog caught collective operation timeout: WorkNCCL\(SeqNum=\d+", ": Aborted$")),
    "oom": End(JobState.FAILED, (r"^\[rank1\]: torch\.OutOfMemoryError: CUDA out of memory\.", "task.* Exited with exit code 1")),
    "dataloader_killed": End(
        JobState.FAILED,
        (r"RuntimeError: DataLoader worker \(pid \d+\) is killed by signal: Killed\.",),
        "oom-kill:constraint=CONSTRAINT_NONE",
    ),
    "node_failure": End(
        JobState.NODE_FAIL, ("^srun: error: Node failure on node02$", "DUE TO NODE FAILURE", "node02: tasks 2-3: Killed$")
    ),
    "storage": End(JobState.FAILED, (r"botocore\.exceptions\.ClientError: An error occurred \(SlowDown\)",)),
    "script_bug": End(JobState.FAILED, (r"^\[rank0\]: TypeError: unsupported operand type\(s\) for /: 'float' and 'NoneType'$",)),
    "loss_spike": End(JobState.COMPLETED, ()),
    "corrupt_checkpoint": End(JobState.FAILED, (r"node01: task 1: Killed$", "ncclRemoteError")),
}


def test_the_shipped_faults_are_those_of_the_drill() -> None:
    assert tuple(faults()) == NAMES


@pytest.mark.parametrize("name", sorted(ENDS))
def test_a_fault_really_ends_as_its_file_says(name: str, stage: Stage) -> None:
    fault = find_fault(name)
    if name == "nccl_timeout":
        fault = replace(fault, collective_timeout_s=1.0)
    job, node = stage.strike(fault)
    text = stage.log(job)
    assert job.state is ENDS[name].state, text[-3000:]
    for wanted in ENDS[name].says:
        assert re.search(wanted, text, re.MULTILINE), f"{wanted} is not in\n{text[-3000:]}"
    assert re.search(ENDS[name].kernel, (stage.cluster.node_folder(node) / "kernel.log").read_text(encoding="utf-8"))
    assert "{" not in "".join(line for line in text.splitlines() if "rank" in line and "Error" in line)


@pytest.mark.slow
def test_the_ecc_fault_cuts_the_checkpoint_and_comes_back_on_its_node_only(stage: Stage) -> None:
    _, node = stage.strike(find_fault("ecc"))
    cut, whole = stage.checkpoints / "iter_0000060", stage.checkpoints / "iter_0000040"
    assert (stage.checkpoints / "latest_checkpointed_iteration.txt").read_text(encoding="utf-8") == "60"
    assert not (cut / "manifest.json").exists()
    assert (cut / "optimizer_rank3.npz").stat().st_size < (whole / "optimizer_rank3.npz").stat().st_size
    again = stage.run(NIGHTSHIFT_RESUME_FROM=str(whole))
    assert (again.state, node in again.nodes) == (JobState.FAILED, True)
    stage.cluster.cordon(node, "nightshift: ecc")
    elsewhere = stage.run(NIGHTSHIFT_RESUME_FROM=str(whole))
    assert (elsewhere.state, node in elsewhere.nodes) == (JobState.COMPLETED, False)
    assert min(stage.losses(elsewhere)) == 41


def test_the_hang_says_nothing_and_never_ends(stage: Stage) -> None:
    arm(find_fault("hang"), stage.cluster, stage.spec)
    job_id = stage.cluster.submit(stage.spec)
    stage.wait(job_id, lambda job: 66 in stage.losses(job))
    time.sleep(1.0)
    job = stage.cluster.job(job_id)
    assert job.state is JobState.RUNNING
    assert max(stage.losses(job)) == 66
    stage.cluster.cancel(job_id)
    assert stage.wait(job_id).state is JobState.CANCELLED
    assert stage.run().state is JobState.COMPLETED


@pytest.mark.slow
def test_the_spike_stays_comes_back_and_is_gone_when_its_samples_are_skipped(stage: Stage) -> None:
    fault = find_fault("loss_spike")
    job, _ = stage.strike(fault)
    losses, before = stage.losses(job), stage.losses(job)[66]
    assert all(losses[step] > 10 * before for step in range(*fault.bad_steps))
    assert all(losses[step] > 1.5 * before for step in range(fault.bad_steps[1], 200))
    source = str(stage.checkpoints / "iter_0000060")
    first, last = ((step - 1) * BATCH_SIZE for step in fault.bad_steps)
    assert max(stage.losses(stage.run(NIGHTSHIFT_RESUME_FROM=source)).values()) > 10 * before
    skipping = stage.run(NIGHTSHIFT_RESUME_FROM=source, NIGHTSHIFT_SKIP_FROM=str(first), NIGHTSHIFT_SKIP_TO=str(last))
    assert skipping.state is JobState.COMPLETED
    assert max(stage.losses(skipping).values()) < 1.5 * before


@pytest.mark.slow
def test_the_damaged_checkpoint_looks_complete_and_kills_whoever_loads_it(stage: Stage) -> None:
    stage.strike(find_fault("corrupt_checkpoint"))
    damaged, whole = stage.checkpoints / "iter_0000060", stage.checkpoints / "iter_0000040"
    assert {path.name: path.stat().st_size for path in damaged.iterdir() if path.suffix == ".npz"} == {
        path.name: path.stat().st_size for path in whole.iterdir() if path.suffix == ".npz"
    }
    assert (damaged / "manifest.json").exists()
    loading = stage.run(NIGHTSHIFT_RESUME_FROM=str(damaged))
    assert loading.state is JobState.FAILED
    assert re.search(r"zipfile\.BadZipFile: Bad CRC-32 for file '[\w.]+\.npy'", stage.log(loading))
    assert stage.run(NIGHTSHIFT_RESUME_FROM=str(whole)).state is JobState.COMPLETED


@pytest.mark.slow
def test_a_restart_during_the_storage_outage_dies_and_one_after_it_completes(stage: Stage) -> None:
    stage.strike(replace(find_fault("storage"), outage_s=4.0))
    source = str(stage.checkpoints / "iter_0000040")
    early = stage.run(NIGHTSHIFT_RESUME_FROM=source)
    assert early.state is JobState.FAILED
    assert "when calling the GetObject operation" in stage.log(early)
    until = float((stage.checkpoints / "storage_down_until").read_text(encoding="utf-8"))
    time.sleep(max(0.0, until - time.time()))
    assert stage.run(NIGHTSHIFT_RESUME_FROM=source).state is JobState.COMPLETED


@pytest.mark.slow
def test_the_script_bug_comes_back_from_any_checkpoint(stage: Stage) -> None:
    stage.strike(find_fault("script_bug"))
    assert stage.run(NIGHTSHIFT_RESUME_FROM=str(stage.checkpoints / "iter_0000040")).state is JobState.FAILED


def test_an_unknown_fault_names_the_nearest_and_all_others() -> None:
    with pytest.raises(UsageError, match=r"fault 'ec' is unknown; did you mean 'ecc'\? known: corrupt_checkpoint, .*storage"):
        find_fault("ec")


@pytest.mark.parametrize(
    ("shipped", "changed", "message"),
    [
        ('how     = "hang"', 'how     = "explode"', r"bad\.toml:4: how: 'explode' is none of: raise"),
        ("at_step = 67", "at_stop = 67", r"bad\.toml:6: at_stop: unknown key; did you mean 'at_step'"),
        ("at_step = 67", 'at_step = "soon"', r"bad\.toml:6: at_step: must be int"),
    ],
)
def test_a_malformed_fault_names_file_line_and_key(shipped: str, changed: str, message: str, tmp_path: Path) -> None:
    text = (shipped_content("knowledge/faults") / "hang.toml").read_text(encoding="utf-8")
    assert shipped in text
    folder = tmp_path / "knowledge" / "faults"
    folder.mkdir(parents=True)
    (folder / "bad.toml").write_text(text.replace(shipped, changed), encoding="utf-8")
    with pytest.raises(ContentError, match=message):
        faults(tmp_path)


def test_a_fault_of_the_data_needs_the_steps_that_are_damaged() -> None:
    with pytest.raises(ValueError, match="bad_steps must be two steps"):
        replace(find_fault("loss_spike"), bad_steps=(5, 5))
