"""Ask the accounting of a live cluster, one day at a time, oldest first; days that are over are kept, so none is asked twice.

Each question is one of ended jobs of one day, and after it we rest for as long as the answer took and longer, so that the database
serves others meanwhile. A report that is broken off loses nothing: the days that it got are there for the next.
"""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from assistant.errors import Unavailable
from assistant.private_files import create_private, private_folder
from assistant.reports.sacct_rows import SLICE_MARK
from assistant.schedulers.slurm_run import CompletedCommand
from assistant.schedulers.slurm_text import Marks, accounting_records

COLUMNS = (
    *("JobIDRaw", "JobID", "User", "Account", "Partition", "State", "ExitCode", "Submit", "Start", "End", "NCPUS", "AllocTRES"),
    *("ElapsedRaw", "NodeList", "JobName", "NNodes"),
)
"""The last one, and the first, never hold a newline."""
ENDED = "BF,CA,CD,DL,F,NF,OOM,PR,RQ,TO"
"""With states of ended jobs, `--starttime` and `--endtime` are about their ends. Source: sacct(1), DEFAULT TIME WINDOW."""
DAY = timedelta(days=1)
SETTLED = timedelta(hours=6)
"""After its end a day's rows may still come: the controller hands them on late when the database was away."""
PAUSE = 4.0
"""Rest after an answer, in lengths of it: at most a fifth of the time the database works for us."""
LONGEST_PAUSE_S = 30.0


class RunsCommands(Protocol):
    """Runs a program of Slurm to its end."""

    def run(self, program: str, *words: str) -> CompletedCommand:
        """Run it."""


@dataclass(frozen=True, slots=True)
class LiveAccounting:
    """The accounting of this cluster."""

    commands: RunsCommands
    folder: Path
    """Where days are kept; only we can read it."""
    pause: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def slices(self, since: datetime, until: datetime, now: datetime, progress: Callable[[str], None]) -> Iterator[str]:
        """Yield the rows of each day, its header first, fields between `SLICE_MARK`.

        Args:
            since: The day of it is the first.
            until: The day of it is the last; a day of UTC each.
            now: Days that ended well before it are kept.
            progress: Gets a line for each day that is asked for.

        Raises:
            Unavailable: The accounting does not answer, or not wholly. The days before are kept.
        """
        private_folder(self.folder)
        for day in days(since, until):
            path = self.folder / f"{day:%Y-%m-%d}.gz"
            text = _read_day(path)
            if text is None:
                progress(f"asking for {day:%Y-%m-%d}")
                text = self._ask(day)
                if now >= day + DAY + SETTLED:
                    _keep(path, text)
            yield text

    def _ask(self, day: datetime) -> str:
        marks = Marks()
        begin, end = int(day.timestamp()), int((day + DAY).timestamp()) - 1
        asked_s = self.clock()
        # seconds since 1970: by the clock of a machine an hour may be there twice. Source: parse_time of Slurm
        window = (f"--state={ENDED}", f"--starttime=uts{begin}", f"--endtime=uts{end}")
        form = ("--parsable2", "--allocations", f"--delimiter={marks.between}", f"--format={','.join(COLUMNS)}")
        try:
            completed = self.commands.run("sacct", "--allusers", "--duplicates", *window, *form)
            if completed.status:
                raise Unavailable(f"sacct failed: {completed.error_text}")
            rows = [COLUMNS, *accounting_records(completed.out, marks, len(COLUMNS))]
        except Unavailable as error:
            raise Unavailable(f"the jobs of {day:%Y-%m-%d} are not known, those before are kept: {error}") from error
        self.pause(min(PAUSE * (self.clock() - asked_s), LONGEST_PAUSE_S))
        return "".join(f"{SLICE_MARK.join(map(_on_one_line, row))}\n" for row in rows)


def _on_one_line(text: str) -> str:
    return "".join("\ufffd" if sign < " " else sign for sign in text)


def _read_day(path: Path) -> str | None:
    """Return what is kept of a day, None where it is not there or not whole."""
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
            text = file.read()
    except (OSError, EOFError, ValueError):
        return None
    return text if text.startswith(f"{SLICE_MARK.join(COLUMNS)}\n") else None


def _keep(path: Path, text: str) -> None:
    """Keep a day; a file of that name is a whole one."""
    new = path.with_suffix(f".{os.getpid()}.new")
    with create_private(new, "wb") as file:
        file.write(gzip.compress(text.encode("utf-8"), 6, mtime=0))
    new.replace(path)


def days(since: datetime, until: datetime) -> Sequence[datetime]:
    """Return the days of UTC from one moment to another."""
    first = since.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return [first + DAY * number for number in range(max(0, -(-(until - first) // DAY)))]
