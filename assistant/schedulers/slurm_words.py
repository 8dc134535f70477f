"""How Slurm words the end of a job: pure functions, so that our embedded schedulers speak as the real one does.

Wordings: Slurm 23.11, src/slurmd/slurmstepd/req.c, src/srun/libsrun/launch.c and src/slurmctld/job_mgr.c. The lower-case `to` of
`DUE to SIGNAL` and the capital one elsewhere are Slurm's own.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from datetime import datetime


def stamp(at: datetime) -> str:
    """Return the local-looking time that Slurm writes, to the second."""
    return at.strftime("%Y-%m-%dT%H:%M:%S")


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the unbroken runs of sorted numbers, first and last."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def how_ended(status: int) -> str:
    """Return srun's words for one exit status; negative for a signal, as `subprocess` has it."""
    if status >= 0:
        return f"Exited with exit code {status}"
    words = {
        signal.SIGKILL: "Killed",
        signal.SIGTERM: "Terminated",
        signal.SIGABRT: "Aborted",
        signal.SIGSEGV: "Segmentation fault",
    }
    return words.get(signal.Signals(-status), signal.strsignal(-status) or f"signal {-status}")


def task_lines(ended: Mapping[int, int], placed: Mapping[int, str]) -> list[str]:
    """Return srun's line for each node and kind of end, tasks that ended well left out.

    Args:
        ended: Exit status by rank; negative for a signal.
        placed: Node by rank.
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for rank, status in ended.items():
        if status != 0:
            groups.setdefault((placed[rank], how_ended(status)), []).append(rank)
    lines = []
    for (node, words), ranks in groups.items():
        listed = ",".join(f"{a}-{b}" if b > a else f"{a}" for a, b in _runs(sorted(ranks)))
        lines.append(f"srun: error: {node}: task{'s' if len(ranks) > 1 else ''} {listed}: {words}")
    return lines


def step_cancelled(job: str, node: str, at: datetime, because: str = "") -> str:
    """Return slurmstepd's line for a step that is being ended.

    Args:
        job: Its id.
        node: The node that says so.
        at: When.
        because: `TIME LIMIT`, `PREEMPTION`, `NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS`, `TASK FAILURE`, or nothing.
    """
    return f"slurmstepd: error: *** STEP {job}.0 ON {node} CANCELLED AT {stamp(at)}{f' DUE TO {because}' if because else ''} ***"


def job_cancelled(job: str, node: str, at: datetime) -> str:
    """Return slurmstepd's line for a job that a person ended."""
    return f"slurmstepd: error: *** JOB {job} ON {node} CANCELLED AT {stamp(at)} ***"


def oom_killed(job: str, count: int) -> str:
    """Return slurmstepd's line for tasks that the kernel killed for memory."""
    events = "event" if count == 1 else "events"
    return f"slurmstepd: error: Detected {count} oom_kill {events} in StepId={job}.0. Some of the step tasks have been OOM Killed."


def controller_line(at: datetime, text: str) -> str:
    """Return a line of slurmctld.log."""
    return f"[{at.strftime('%Y-%m-%dT%H:%M:%S')}.{at.microsecond // 1000:03d}] {text}"
