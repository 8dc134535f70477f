"""Time to read what squeue and sacct print of 20,000 jobs, against the limit of 0.5 s each.

    python -m bench.slurm [--jobs 20000] [--runs 5]

Reading waits for nothing, so its CPU time is what a machine without other work takes; that is what the limit is held against.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

from assistant.schedulers.slurm_history import accounted_columns, accounted_rows
from assistant.schedulers.slurm_jobs import QUEUE_COLUMNS, SlurmRow, nodes_of, queue_rows
from assistant.schedulers.slurm_text import Marks

LIMIT_S = 0.5
SIZES = (1, 1, 1, 1, 2, 2, 4, 8, 16, 64)
"""Nodes of a job: many are small, some take much of the cluster."""
STATES = ("RUNNING", "PENDING", "COMPLETED", "FAILED", "CANCELLED by 2001", "NODE_FAIL", "TIMEOUT")


def value_of(column: str, number: int) -> str:
    """Return a plausible value of a column for a job."""
    first = number % 1900 + 1
    state = STATES[number % len(STATES)]
    known = {
        "JobArrayID": str(number),
        "JobID": str(number),
        "JobIDRaw": str(number),
        "State": state,
        "Name": f"llm-{number % 97}|x",
        "JobName": f"llm-{number % 97}|x",
        "NodeList": "" if state == "PENDING" else f"gpu[{first:04}-{first + SIZES[number % 10]:04},{first + 70:04}]",
        "exit_code": "256" if state == "FAILED" else "0",
        "ExitCode": "1:0" if state == "FAILED" else "0:0",
        "STDOUT": "/shared/users/somebody/runs/logs/%x-%j.out",
        "WorkDir": f"/shared/users/somebody/runs/{number % 50}",
        "Comment": "nightshift:12:345" if number % 40 == 0 else "(null)",
        "SubmitLine": "sbatch -N64 --ntasks-per-node=8 --gpus-per-node=8 -o %x-%j.out --comment mine train.sh",
        "SubmitTime": str(1795264972 + number),
        "StartTime": str(1795265972 + number),
        "EndTime": str(1795275972 + number),
    }
    return known.get(column, "N/A")


def listing(columns: Sequence[str], jobs: int, marks: Marks, *, end: str) -> str:
    """Return what the command prints."""
    rows = [list(columns), *([value_of(column, number) for column in columns] for number in range(1, jobs + 1))]
    return "".join(f"{marks.between.join(row)}{end}\n" for row in rows)


def seconds(read: Callable[[], list[SlurmRow]], runs: int, jobs: int) -> list[tuple[float, float]]:
    """Return wall and CPU time of reading a listing, fastest first; the memory of node lists is emptied before each."""
    times = []
    for _ in range(runs):
        nodes_of.cache_clear()
        began, cpu = time.perf_counter(), time.process_time()
        found = read()
        times.append((time.perf_counter() - began, time.process_time() - cpu))
        if len(found) != jobs:
            raise SystemExit(f"read {len(found)} of {jobs} jobs")
        del found
    return sorted(times)


def main() -> int:
    """Measure, print, and return 1 when a median of CPU time is over the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    marks, columns = Marks(), accounted_columns(["Restarts", "StdOut"])
    queue = listing(QUEUE_COLUMNS, options.jobs, marks, end=marks.record_end)
    accounted = listing(columns, options.jobs, marks, end="")
    slow = 0
    readers: dict[str, tuple[str, Callable[[], list[SlurmRow]]]] = {
        "squeue": (queue, lambda: queue_rows(queue, marks)),
        "sacct": (accounted, lambda: accounted_rows(accounted, marks, columns)),
    }
    for name, (text, read) in readers.items():
        times = seconds(read, options.runs, options.jobs)
        median = statistics.median(wall for wall, _ in times)
        cpu = statistics.median(cpu for _, cpu in times)
        slow += cpu > LIMIT_S
        spread = (
            f"median {median:5.2f} s (CPU {cpu:4.2f} s)  best {times[0][0]:5.2f} s  worst {times[-1][0]:5.2f} s of {options.runs}"
        )
        print(f"{name:8} {options.jobs} jobs, {len(text) / 1e6:4.1f} MB  {spread}  limit {LIMIT_S:g} s")
    return 1 if slow else 0


if __name__ == "__main__":
    raise SystemExit(main())
