"""Write the accounting of a made-up cluster: `python -m bench._accounting FILE JOBS [sacct|csv]`; one seed, the same rows.

Five kinds of work with the proportions of a cluster that trains language models: many short evaluations, few long pretrainings that
take most of the GPU time and are mostly cancelled. 256 nodes of 8 GPUs on paper only: nothing checks that the jobs fit.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

BEGIN_S = 1_677_600_000
"""2023-02-28 16:00 UTC."""
LENGTH_S = 184 * 86_400


class Work(NamedTuple):
    """One kind of work of the made-up cluster."""

    name: str
    share: float
    run_s: float
    """Median; durations are lognormal."""
    spread: float
    gpus: tuple[int, ...]
    completed: float
    cancelled: float
    queue_s: float


WORKS = (
    Work("eval", 0.62, 80, 1.3, (1, 1, 1, 1, 2, 4, 8), 0.62, 0.04, 20),
    Work("debug", 0.17, 60, 1.8, (1, 1, 2, 4, 8), 0.45, 0.15, 4),
    Work("sft", 0.12, 1800, 1.5, (8, 8, 16, 32, 64), 0.5, 0.15, 90),
    Work("data", 0.08, 600, 1.6, (0, 0, 0, 1), 0.8, 0.05, 10),
    Work("pretrain", 0.01, 20_000, 1.7, (64, 128, 256, 256, 512, 1024), 0.25, 0.55, 900),
)
COLUMNS = "JobID|JobName|User|Account|Partition|State|ExitCode|Submit|Start|End|NNodes|NCPUS|AllocTRES"
RELEASED = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time"


def lines(jobs: int, form: str, seed: int = 1) -> Iterator[str]:
    """Yield the lines of a file, its header first."""
    dice = random.Random(seed)
    yield COLUMNS if form == "sacct" else RELEASED
    shares = [work.share for work in WORKS]
    for number in range(jobs):
        work = dice.choices(WORKS, shares)[0]
        submit = BEGIN_S + _moment(dice, (number + dice.random()) / jobs)
        queue = int(dice.expovariate(1.0) * work.queue_s) if dice.random() < 0.7 else 0
        run = min(int(math.exp(dice.gauss(math.log(work.run_s), work.spread))), 14 * 86_400)
        gpus = dice.choice(work.gpus)
        luck = dice.random()
        user = int(abs(dice.gauss(0, 25)))
        state, status = ("COMPLETED", "0:0") if luck < work.completed else ("FAILED", f"{dice.choice((1, 1, 1, 2, 134, 139))}:0")
        if work.completed <= luck < work.completed + work.cancelled:
            state, status = f"CANCELLED by {1000 + user}", "0:15"
        elif luck > 0.985:
            state, status = dice.choice((("TIMEOUT", "0:0"), ("NODE_FAIL", "1:0"), ("OUT_OF_MEMORY", "0:125")))
        nodes, cpus = max(1, gpus // 8), max(gpus * 16, 4)
        start, end = submit + queue, submit + queue + run
        if form == "sacct":
            gres = f",gres/gpu={gpus},gres/gpu:a100={gpus}" if gpus else ""
            tres = f"billing={cpus},cpu={cpus}{gres},mem={cpus * 8}G,node={nodes}"
            partition = "debug" if work.name == "debug" else "train"
            yield (
                f"{number + 100}|{work.name}_{number % 97}|u{user:03}|team{user % 9}|{partition}|"
                f"{state}|{status}|{submit}|{start}|{end}|{nodes}|{cpus}|{tres}"
            )
        else:
            yield (
                f"{number + 100},u{user:03},{nodes},{gpus},{cpus},{work.name.capitalize()},{state.split(' ')[0]},{_stamp(submit)},"
                f"{_stamp(start)},{_stamp(end)},{run},{queue},{run * gpus:.1f}"
            )


def _moment(dice: random.Random, share: float) -> int:
    """Return when a job is submitted: more by day than by night, fewer on weekends, of China's clock."""
    day = int(share * LENGTH_S) // 86_400
    hour = dice.choices(range(24), [2, 1, 1, 1, 1, 1, 2, 3, 6, 9, 10, 9, 7, 8, 10, 10, 10, 9, 8, 8, 7, 6, 4, 3])[0]
    return day * 86_400 + hour * 3600 + dice.randrange(3600)


def _stamp(moment_s: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S+08:00", time.gmtime(moment_s + 8 * 3600))


def write(path: Path, jobs: int, form: str) -> None:
    """Write a file."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines(jobs, form))


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "sacct")
