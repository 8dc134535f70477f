"""The first look of the watch over 100,000 jobs: read what squeue prints, compare with what is known, begin to follow the logs.

    python -m bench.jobs [--jobs 100000] [--running 10000] [--failed 200]

squeue's text is made here; a tenth of the jobs run, most of them with a log of their own, and 200 have failed; 2,000 incidents of
earlier months are in the store. CPU and memory are those of this process, the text of squeue included. Limits: 10 s of CPU and
500 MB; every failed job has its incident after the look. A second look, when nothing happened, is told beside it.
"""

from __future__ import annotations

import argparse
import dataclasses
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

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


def main() -> int:
    """Run it, print a line, and return whether a limit was passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--running", type=int, default=10_000)
    parser.add_argument("--failed", type=int, default=200)
    asked = parser.parse_args()
    now = datetime.now(UTC)
    with tempfile.TemporaryDirectory(prefix="nightshift-jobs-") as name:
        folder = Path(name)
        cluster = Listing(SystemClock(), folder)
        settings = Settings(state_folder=folder, store=folder / "nightshift.db")
        policy = dataclasses.replace(load_policy(), mode=Mode.OBSERVE)
        engine = build(settings, scheduler=cluster, transport=cluster, policy=policy)
        remember(engine.store, now)
        cluster.text = listing(folder, cluster.marks, asked.jobs, asked.running, asked.failed, now)
        began, wall = time.process_time(), time.perf_counter()
        opened = engine.look()
        cpu_s, wall_s = time.process_time() - began, time.perf_counter() - wall
        began = time.process_time()
        again = engine.look()
        again_s = time.process_time() - began
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"first look over {asked.jobs:,} jobs: {cpu_s:.1f} s of CPU (limit {CPU_S:g}), {wall_s:.1f} s, {len(opened)} incidents "
        f"opened of {asked.failed}; the next look {again_s:.1f} s of CPU, {len(again)} opened; {peak_mb:.0f} MB at most "
        f"(limit {MEMORY_MB:.0f})"
    )
    return int(cpu_s > CPU_S or peak_mb > MEMORY_MB or len(opened) != asked.failed or bool(again))


if __name__ == "__main__":
    sys.exit(main())
