"""A large cluster for bench/watch.py: jobs share nodes, a process of its own writes their logs, and some die every minute.

python -m bench._busy_night FOLDER JOBS        the process that writes logs
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from assistant.errors import ToolError
from assistant.ports import Reply
from assistant.records import Job, JobSpec, JobState, Node, NodeState
from assistant.records.jobs import HELD_REASON
from assistant.rendering import method_lines

EVERY_S = 10.0
"""Between two steps of a job."""
LINE = (
    " [{at:%Y-%m-%d %H:%M:%S}] iteration {step:8d}/  500000 | consumed samples: {step:12d} |"
    " elapsed time per iteration (ms): 10000.1 | learning rate: 3.000E-04 | global batch size:   256 |"
    " lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: 0.321 |"
)
DEATHS = {
    "ecc": (
        "[rank3]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
        "[rank0]:[E121 ProcessGroupNCCL.cpp:1895] NCCL error: remote process exited or there was a network error",
    ),
    "oom": (
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 1 has a total capacity of 79.33 GiB",
    ),
    "bug": (
        "Traceback (most recent call last):",
        '  File "train.py", line 88, in step',
        "TypeError: step() missing 1 required argument",
    ),
    "killed": ("slurmstepd: error: *** STEP 1.0 ON node0001 CANCELLED DUE TO TIME LIMIT ***",),
}
XID = "NVRM: Xid (PCI:0000:0f:00): 48, pid=812, name=python3, DBE (double bit error) ECC error"


class BusyNight:
    """Scheduler and transport of the large cluster."""

    name = "busy"

    def __init__(self, folder: Path, *, nodes: int, jobs: int) -> None:
        """Start all jobs; their logs are written by `writer`."""
        self._chance = random.Random(1)
        self._folder = folder
        self._names = [f"node{number:04}" for number in range(1, nodes + 1)]
        self._cordons: dict[str, str] = {}
        self._kernel: dict[str, str] = {}
        self._jobs: dict[str, Job] = {}
        self.asked = 0
        """How often all jobs were listed."""
        (folder / "logs").mkdir()
        for number in range(jobs):
            at = number % nodes
            self._start(f"llm-{number}", (self._names[at], self._names[(at + 1) % nodes]))

    def _start(self, name: str, nodes: tuple[str, ...], spec: JobSpec | None = None) -> str:
        job_id, now = str(len(self._jobs) + 1), datetime.now(UTC)
        log = self._folder / "logs" / f"{job_id}.log"
        log.write_text("training ...\n")
        script = f"#NIGHTSHIFT checkpoints={self._folder}/none format=nightshift\nsrun python train.py\n"
        spec = spec or JobSpec(name, script, nodes=2, work_dir=self._folder, log=str(log))
        self._jobs[job_id] = Job(
            job_id, name, "alice", JobState.RUNNING, "train", nodes, log, self._folder, now, now, None, None, None, spec=spec
        )
        return job_id

    def die(self) -> str:
        """Let one running job die, and return its id."""
        job = self._chance.choice([job for job in self._jobs.values() if job.state is JobState.RUNNING])
        kind = self._chance.choice(list(DEATHS))
        if job.log is not None:
            with job.log.open("a") as log:
                log.writelines(f"{line}\n" for line in DEATHS[kind])
        if kind == "ecc":
            self._kernel[job.nodes[0]] = f"[{datetime.now(UTC):%a %b %e %H:%M:%S %Y}] {XID}"
        self._jobs[job.id] = replace(job, state=JobState.FAILED, ended=datetime.now(UTC), exit_code=1)
        return job.id

    def jobs(self) -> Sequence[Job]:
        """Return all jobs."""
        self.asked += 1
        return list(self._jobs.values())

    def job(self, job_id: str) -> Job:
        """Return one job."""
        if job_id not in self._jobs:
            raise ToolError(f"job {job_id} is unknown")
        return self._jobs[job_id]

    def command_lines(self, method: str, /, *arguments: Any, **named: Any) -> tuple[str, ...]:
        """Return a change in Slurm's words."""
        return method_lines(method, arguments, named)

    def submit(self, spec: JobSpec) -> str:
        """Start a job at once on two nodes that are in service."""
        free = [name for name in self._names if name not in self._cordons and name not in spec.exclude]
        job_id = self._start(spec.name, tuple(self._chance.sample(free, 2)), spec)
        self._jobs[job_id] = replace(self._jobs[job_id], comment=spec.comment)
        if spec.hold:
            self._jobs[job_id] = replace(self._jobs[job_id], state=JobState.PENDING, reason=f"{HELD_REASON}User", started=None)
        return job_id

    def user_jobs(self, user: str) -> Sequence[Job]:
        """Return the jobs of one user."""
        return [job for job in self._jobs.values() if job.user == user]

    def release(self, job_id: str) -> None:
        """Start a job that was submitted held."""
        if self._jobs[job_id].held:
            self._jobs[job_id] = replace(self._jobs[job_id], state=JobState.RUNNING, reason="", started=datetime.now(UTC))

    def withdraw(self, job_id: str) -> None:
        """End a job that still waits."""
        if self._jobs[job_id].state is JobState.PENDING:
            self._jobs[job_id] = replace(self._jobs[job_id], state=JobState.CANCELLED, ended=datetime.now(UTC))

    def cancel(self, job_id: str) -> None:
        """End a job."""
        self._jobs[job_id] = replace(self.job(job_id), state=JobState.CANCELLED, ended=datetime.now(UTC))

    def nodes(self) -> Sequence[Node]:
        """Return all nodes."""
        return [
            Node(name, NodeState.DRAINING if name in self._cordons else NodeState.ALLOCATED, "train", self._cordons.get(name, ""))
            for name in self._names
        ]

    def cordon(self, node: str, reason: str) -> None:
        """Take a node out."""
        self._cordons[node] = reason

    def uncordon(self, node: str) -> None:
        """Put a node back."""
        self._cordons.pop(node, None)

    def run(self, nodes: Sequence[str], command: Sequence[str], *, timeout_s: float) -> Mapping[str, Reply]:
        """Answer as a kernel log, or not know the program."""
        if command[0] == "dmesg":
            return {node: Reply(node, True, 0, self._kernel.get(node, ""), "") for node in nodes}
        return {node: Reply(node, True, 127, "", f"{command[0]}: command not found") for node in nodes}


class Writer:
    """The process that writes the logs, while the block runs."""

    def __init__(self, folder: Path) -> None:
        self._command = [sys.executable, "-m", "bench._busy_night", str(folder)]

    def __enter__(self) -> Writer:
        self._process = subprocess.Popen(self._command)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


def write(folder: Path) -> None:
    """Append a step to every log that nobody has ended, one tenth of them each second."""
    began, turn = time.monotonic(), 0
    ended: set[Path] = set()
    while True:
        logs = sorted((folder / "logs").glob("*.log"))
        step, at = int((time.monotonic() - began) / EVERY_S) + 1, datetime.now(UTC)
        line = LINE.format(at=at - timedelta(seconds=1), step=step, loss=2.0 + 1.0 / step)
        for log in logs[turn % 10 :: 10]:
            if log in ended:
                continue
            tail = log.read_bytes()[-300:]
            if b"rror" in tail or b"TIME LIMIT" in tail:
                ended.add(log)
                continue
            with log.open("a") as file:
                file.write(f"{line}\n")
        turn += 1
        time.sleep(max(0.0, began + turn * EVERY_S / 10 - time.monotonic()))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
