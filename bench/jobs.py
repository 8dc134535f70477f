"""The first look of the watch over 100,000 jobs: read what squeue prints, compare with what is known, begin to follow the logs.

    python -m bench.jobs [--jobs 100000] [--running 10000] [--failed 200] [--repeats 3]

squeue's text is made here; a tenth of the jobs run, most of them with a log of their own, and 200 have failed; 2,000 incidents of
earlier months are in the store. CPU and memory are those of this process, the text of squeue included. Limits: 10 s of CPU and
500 MB; every failed job has its incident after the look. A second look, when nothing happened, is told beside it.

Each repeat is a process of its own, and each has to keep the limits.
"""

from __future__ import annotations

import argparse
import dataclasses
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from assistant.config import Settings
from assistant.policy import Mode, load_policy
from assistant.ports import SystemClock
from assistant.records import Event, EventKind, IncidentState, Job
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.slurm_jobs import QUEUE_COLUMNS, queue_rows
from assistant.schedulers.slurm_text import Marks
from assistant.store import Store
from assistant.wiring import build
from bench.slurm import value_of

CPU_S, MEMORY_MB = 10.0, 500.0
HISTORY = 2_000
WITH_LOG = 0.8
LINE = "[2026-01-05 02:00:00] iteration {step}/ 5000 | lm loss: 2.3E+00 | grad norm: 1.0 |\n"


class Listing(SimulatedCluster):
    """A cluster whose jobs stand in a text of squeue, read anew for each look."""

    text = ""
    marks = Marks("<bench>")

    def jobs(self) -> Sequence[Job]:
        """Return what the text says."""
        listed = [row.job for row in queue_rows(self.text, self.marks)]
        self._by_id = {job.id: job for job in listed}
        return listed

    def job(self, job_id: str) -> Job:
        """Return one of the jobs of the last look."""
        return self._by_id[job_id]


def listing(folder: Path, marks: Marks, jobs: int, running: int, failed: int, now: datetime) -> str:
    """Return squeue's text, and write the logs of most jobs that run."""
    stamp = int(now.timestamp())
    rows = [list(QUEUE_COLUMNS)]
    for number in range(1, jobs + 1):
        state = "RUNNING" if number <= running else "FAILED" if number <= running + failed else "PENDING"
        own = {
            "State": state,
            "STDOUT": f"{folder}/{number % 100}/job-{number}.out",
            "WorkDir": f"{folder}/{number % 100}",
            "SubmitTime": str(stamp - 7200),
            "StartTime": "N/A" if state == "PENDING" else str(stamp - 3600),
            "EndTime": str(stamp + 5) if state == "FAILED" else "N/A",
            "UserName": "root",
        }
        rows.append([own.get(column, value_of(column, number)) for column in QUEUE_COLUMNS])
        if number <= running * WITH_LOG:
            log = folder / str(number % 100) / f"job-{number}.out"
            log.parent.mkdir(exist_ok=True)
            log.write_text("".join(LINE.format(step=step) for step in range(20)))
    return "".join(f"{marks.between.join(row)}{marks.record_end}\n" for row in rows)


def remember(store: Store, now: datetime) -> None:
    """Give the store a past: incidents that have ended."""
    for number in range(HISTORY):
        job = str(10_000_000 + number)
        incident, _ = store.open_incident(Event(EventKind.JOB_ENDED, job, None, now - timedelta(days=30), {}, 0), parent=None)
        store.set_state(incident.id, IncidentState.CLOSED, note="bench")


class LookCost(NamedTuple):
    """What the looks of one process took."""

    cpu_s: float
    wall_s: float
    again_s: float
    """CPU of the second look."""
    opened: int
    again: int
    peak_mb: float


def look_cost(jobs: int, running: int, failed: int) -> LookCost:
    """Look twice at so many jobs, in this process."""
    now = datetime.now(UTC)
    with tempfile.TemporaryDirectory(prefix="nightshift-jobs-") as name:
        folder = Path(name)
        cluster = Listing(SystemClock(), folder)
        settings = Settings(state_folder=folder, store=folder / "nightshift.db")
        policy = dataclasses.replace(load_policy(), mode=Mode.OBSERVE)
        engine = build(settings, scheduler=cluster, transport=cluster, policy=policy)
        remember(engine.store, now)
        cluster.text = listing(folder, cluster.marks, jobs, running, failed, now)
        began, wall = time.process_time(), time.perf_counter()
        opened = engine.look()
        cpu_s, wall_s = time.process_time() - began, time.perf_counter() - wall
        began = time.process_time()
        again = engine.look()
        again_s = time.process_time() - began
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return LookCost(cpu_s, wall_s, again_s, len(opened), len(again), peak_mb)


def main() -> int:
    """Run it, print a line a repeat, and return whether a limit was passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--running", type=int, default=10_000)
    parser.add_argument("--failed", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    costs: list[LookCost] = []
    for _ in range(max(1, options.repeats)):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            cost = pool.submit(look_cost, options.jobs, options.running, options.failed).result()
        costs.append(cost)
        print(
            f"first look over {options.jobs:,} jobs: {cost.cpu_s:.1f} s of CPU, {cost.wall_s:.1f} s, {cost.opened} incidents "
            f"opened of {options.failed}; the next look {cost.again_s:.1f} s of CPU, {cost.again} opened; "
            f"{cost.peak_mb:.0f} MB at most",
            flush=True,
        )
    cpu_s, peak_mb = max(cost.cpu_s for cost in costs), max(cost.peak_mb for cost in costs)
    print(f"most CPU {cpu_s:.1f} s (limit {CPU_S:g}), most memory {peak_mb:.0f} MB (limit {MEMORY_MB:.0f})")
    right = all(cost.opened == options.failed and not cost.again for cost in costs)
    return int(cpu_s > CPU_S or peak_mb > MEMORY_MB or not right)


if __name__ == "__main__":
    sys.exit(main())
