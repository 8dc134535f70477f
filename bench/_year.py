"""Generate a year of a cluster for bench/backtest.py: what sacct says, logs of failed jobs, kernel logs, which nodes were broken.

python -m bench._year FOLDER JOBS_PER_DAY DAYS
"""

from __future__ import annotations

import heapq
import json
import random
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
NODES, GPUS = 256, 8
TASKS = 60
HEAD = "JobID|JobIDRaw|JobName|User|Partition|State|ExitCode|Submit|Start|End|NNodes|NodeList|AllocTRES|WorkDir|SubmitLine"
LOG = (
    "[rank0]: Megatron started on {nodes} nodes",
    *(
        " iteration {n:8d}/  500000 | elapsed time per iteration (ms): 10000.1 | lm loss: 2.31E+00 | grad norm: 0.3".replace(
            "{n:8d}", f"{n:8d}"
        )
        for n in range(1, 41)
    ),
    "  successfully saved checkpoint at iteration      40 to /ckpt/llm",
)


@dataclass(frozen=True)
class Death:
    """A way to fail."""

    weight: int
    state: str
    lines: tuple[str, ...]
    kernel: str = ""
    """What the kernel of the broken node says; `NODE` in lines is its name."""
    mended_h: tuple[float, float] = (0.2, 2.0)
    """After how long its user submits again, when awake."""


DEATHS = {
    "ecc_error": Death(
        12,
        "FAILED",
        (
            "[rank3]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
            "[rank0]: NCCL error: remote process exited or there was a network error",
            "srun: error: NODE: task 1: Exited with exit code 1",
        ),
        "NVRM: Xid (PCI:0000:0f:00): 48, pid=812, name=python3, DBE (double bit error) ECC error",
    ),
    "nvlink_error": Death(
        6,
        "FAILED",
        (
            "[rank5]: torch.AcceleratorError: CUDA error: an illegal instruction was encountered",
            "[rank0]: NCCL error: remote process exited or there was a network error",
        ),
        "NVRM: Xid (PCI:0000:1b:00): 74, pid=990, name=python3, NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0)",
    ),
    "node_failure": Death(6, "NODE_FAIL", ("slurmstepd: error: *** STEP ON NODE CANCELLED DUE TO NODE FAILURE ***",)),
    "s3_storage_error": Death(
        10,
        "FAILED",
        ('botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "https://minio.local:9000/ckpt/x"',),
    ),
    "out_of_memory_error": Death(
        16,
        "FAILED",
        ("[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 1 has a total capacity of 79 GiB",),
        mended_h=(0.5, 6.0),
    ),
    "type_error": Death(
        34,
        "FAILED",
        (
            "Traceback (most recent call last):",
            '  File "train.py", line 88, in step',
            "TypeError: step() missing 1 required argument: 'x'",
        ),
        mended_h=(0.3, 5.0),
    ),
    "time_limit": Death(16, "TIMEOUT", ("slurmstepd: error: *** STEP ON NODE CANCELLED DUE TO TIME LIMIT ***",)),
}


@dataclass
class Year:
    """Writes the files while it goes on."""

    folder: Path
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    free: set[str] = field(default_factory=lambda: {f"gpu{number:03}" for number in range(1, NODES + 1)})
    running: list[tuple[datetime, str]] = field(default_factory=list)
    due: list[tuple[datetime, int, int]] = field(default_factory=list)
    """When who submits what: time, task, how often it was tried already."""
    number: int = 1_000
    truth: dict[str, dict[str, str]] = field(default_factory=dict)

    def write(self, per_day: int, days: int) -> None:
        """Let so many days pass."""
        for name in ("logs", "kernel"):
            (self.folder / name).mkdir()
        end = BEGIN + timedelta(days=days)
        for _ in range(per_day * days):
            at = BEGIN + timedelta(seconds=self.chance.uniform(0, days * 86_400))
            self.due.append((at, self.chance.randrange(TASKS), 0))
        heapq.heapify(self.due)
        with (self.folder / "sacct.txt").open("w") as sacct:
            sacct.write(f"{HEAD}\n")
            while self.due:
                at, task, tried = heapq.heappop(self.due)
                if at < end and (row := self._job(at, task, tried)):
                    sacct.write(f"{row}\n")
        (self.folder / "truth.json").write_text(json.dumps(self.truth))

    def _job(self, at: datetime, task: int, tried: int) -> str:
        while self.running and self.running[0][0] <= at:
            self.free.add(heapq.heappop(self.running)[1])
        many = self.chance.choice((1, 2, 2, 4, 4, 8))
        if len(self.free) < many:
            return ""
        nodes = sorted(self.chance.sample(sorted(self.free), many))
        self.number += 1
        fails = self.chance.random() < 0.06
        name = self.chance.choices(list(DEATHS), [one.weight for one in DEATHS.values()])[0] if fails else ""
        start = at + timedelta(seconds=self.chance.uniform(5, 900))
        stop = start + timedelta(hours=self.chance.uniform(0.2, 12.0))
        broken = self._fails(name, nodes, stop, task, tried) if name else ""
        for node in nodes:
            self.free.discard(node)
            away = timedelta(hours=self.chance.uniform(24, 72)) if node == broken else timedelta()
            heapq.heappush(self.running, (stop + away, node))
        state, code = (DEATHS[name].state, "1:0") if name else ("COMPLETED", "0:0")
        user, job = f"user{task % 20:02}", f"llm-{task}"
        where = f"/home/{user}/{job}"
        line = f"sbatch --output={self.folder}/logs/slurm-%j.out {where}/train.sh"
        times = "|".join(f"{moment:%Y-%m-%dT%H:%M:%S}" for moment in (at, start, stop))
        tres = f"cpu={96 * many},gres/gpu={GPUS * many},node={many}"
        return f"{self.number}|{self.number}|{job}|{user}|gpu|{state}|{code}|{times}|{many}|{','.join(nodes)}|{tres}|{where}|{line}"

    def _fails(self, name: str, nodes: list[str], at: datetime, task: int, tried: int) -> str:
        """Write down a failure and return which node was broken."""
        death, node = DEATHS[name], self.chance.choice(nodes)
        text = "\n".join((*LOG, *death.lines)).replace("NODE", node).replace("{nodes}", str(len(nodes)))
        (self.folder / "logs" / f"slurm-{self.number}.out").write_text(f"{text}\n")
        broken = node if death.kernel or name == "node_failure" else ""
        self.truth[str(self.number)] = {"reason": name, "node": broken}
        if death.kernel:
            with (self.folder / "kernel" / f"{node}.log").open("a") as kernel:
                kernel.write(f"{at - timedelta(seconds=9):%Y-%m-%dT%H:%M:%S+00:00} {node} kernel: {death.kernel}\n")
        if tried < 3:
            again = at + timedelta(hours=self.chance.uniform(*death.mended_h))
            if not 8 <= again.hour < 20:  # nobody is there before the morning
                again = again.replace(hour=8, minute=self.chance.randrange(60)) + timedelta(days=again.hour >= 20)
            heapq.heappush(self.due, (again, task, tried + 1))
        return broken


if __name__ == "__main__":
    Year(Path(sys.argv[1])).write(int(sys.argv[2]), int(sys.argv[3]))
