"""Whether a silent job still writes files of its own, such as the answers of an evaluation: then it works, whatever its GPUs do."""

from __future__ import annotations

import heapq
import os
import re
import stat
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from assistant.accounts import uid_of
from assistant.errors import InputError, NightshiftError, Unavailable
from assistant.records import Job
from assistant.recover.checkpoints.own_folders import PASSED_OVER
from assistant.recover.joblog import logs_of
from assistant.untrusted import LOOK_S, list_folder, reading_as, status_of, within

RECENT, LATE = timedelta(seconds=60), timedelta(seconds=10)
"""A file counts that was written within so long, and so long behind the last sign of the job: its last save may end behind that."""
AHEAD = timedelta(seconds=60)
"""By how much the clock of a file server may be ahead."""
MOST_ENTRIES, MOST_DEPTH, WALK_S = 4_000, 8, 4.0
LOOK_AGAIN = timedelta(seconds=15)
MOST_JOBS = 256
MONITOR = re.compile(
    r"(?:^|[._-])(?:gpus?|smi|nvidia|dmon|dcgm|mon|monitor\w*|power|usage|util\w*|sys\w*|stat|stats|status|top|mem|memory|heartbeat|alive"
    r"|watch\w*|telemetry|resources?|profil\w*|trace\w*)(?:[._-]|$)|\.(?:wandb|pid|lock|swp|sock)$",
    re.IGNORECASE,
)
"""Names of files that helpers write beside a job, which go on when it hangs."""
_answers: dict[tuple[str, int, Path | None], tuple[datetime, str]] = {}


def written_file(job: Job, since: datetime, now: datetime) -> str:
    """Return which file below its folder a silent job wrote a moment ago, for people; empty where none is seen.

    Logs of the job do not count, nor what helpers keep of the machine. It looks at most once in `LOOK_AGAIN` for each attempt.

    Args:
        job: That runs.
        since: When the job last showed that it moves.
        now: The time.
    """
    key = (job.id, job.attempt, job.work_dir)
    before = _answers.get(key)
    if before is not None and timedelta() <= now - before[0] < LOOK_AGAIN:
        return before[1]
    if len(_answers) >= MOST_JOBS:
        _answers.clear()
    try:
        with reading_as(job.account):
            words = within(LOOK_S, partial(_looked_for, job, since, now), f"the files of job {job.id}")
    except (NightshiftError, OSError):
        words = ""
    _answers[key] = (now, words)
    return words


def _looked_for(job: Job, since: datetime, now: datetime) -> str:
    try:
        logs = {file.path for file in logs_of(job).files}
    except Unavailable:
        logs = set()
    uid = uid_of(job.user)
    for path, status in _files_below(job.work_dir):
        at = datetime.fromtimestamp(status.st_mtime, UTC)
        own = uid is None or status.st_uid == uid
        if own and path not in logs and max(since + LATE, now - RECENT) <= at <= now + AHEAD:
            return f"{path} was written {max(0, round((now - at).total_seconds()))} s ago"
    return ""


def _files_below(top: Path | None) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield files with their state; folders in which something was made last come first, for the room is limited."""
    waiting = [(0.0, top, 0)] if top is not None and len(top.parts) > 2 else []
    end, budget = time.monotonic() + WALK_S, MOST_ENTRIES
    while waiting and budget > 0 and time.monotonic() < end:
        _, folder, depth = heapq.heappop(waiting)
        try:
            children = list_folder(folder, budget)
        except (InputError, OSError):
            continue
        budget -= len(children)
        for child in children:
            if PASSED_OVER.fullmatch(child.name) or MONITOR.search(child.name) or child.name.startswith("."):
                continue
            try:
                status = status_of(child)
            except (InputError, OSError):
                continue
            if stat.S_ISDIR(status.st_mode) and depth + 1 < MOST_DEPTH and not child.is_symlink():
                heapq.heappush(waiting, (-status.st_mtime, child, depth + 1))
            elif stat.S_ISREG(status.st_mode):
                yield child, status
