"""Read the logs of all jobs without ever waiting for a mount that hangs: a few threads for each root folder, and a deadline.

A read that hangs in the kernel cannot be ended. Its thread is left behind, the jobs whose logs lie there are unknown until it comes
back, and all others are looked at as ever.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from zlib import crc32

from assistant.records import Job
from assistant.untrusted import reading_as
from assistant.watch.attempts import Extent, Trouble

logger = logging.getLogger(__name__)

LANES = 4
"""Threads for one root folder: a slow file system answers several at once. A job keeps its lane, so no two read one log."""
SLICE_S, COMPUTING = 0.05, 0.5
"""How often a lane is looked at before the next one begins, and the share of such a time for which it must have used a processor
to be computing. One that waits for its disk is no reason to wait; beside one that computes another would only take the lock of the
interpreter from it."""
MOST_NAMED = 5
"""Jobs that are named of those whose logs may not be read."""
ROOT_PARTS = 3
"""Of a path that name what is mounted: `/`, `lustre`, `project`."""


class ReadableLog(Protocol):
    """A log that a thread of `Readers` reads on."""

    job: Job

    def read(self, now: datetime) -> None:
        """Read what is new; OSError where that is not possible now."""
        ...


@dataclass
class _Round:
    views: list[ReadableLog]
    read_places: set[int] = field(default_factory=set)
    failed: dict[int, Trouble] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    thread: threading.Thread | None = None
    cpu_s: float = 0.0
    """Processor time of its thread."""

    def start(self, now: datetime, name: str) -> None:
        """Begin to read."""
        self.thread = threading.Thread(target=_read, args=(self, now), daemon=True, name=name)
        self.thread.start()

    def let_compute(self, seconds: float) -> None:
        """Wait while the thread computes, for so long at most."""
        end = time.monotonic() + seconds
        while self.thread is not None and time.monotonic() < end:
            before = self.cpu_s
            self.thread.join(SLICE_S)
            if not self.thread.is_alive() or self.cpu_s - before < COMPUTING * SLICE_S:
                return


class Readers:
    """The threads that read."""

    def __init__(self, deadline_s: float = 10.0) -> None:
        """Wait so long for each root folder, at most."""
        self._deadline_s = deadline_s
        self._stuck: dict[tuple[str, int], _Round] = {}
        self._denied: set[str] = set()

    def read(self, views: Iterable[ReadableLog], now: datetime) -> tuple[list[ReadableLog], list[Trouble]]:
        """Return the views that were read, and what could not be.

        Logs that their owners show to nobody are set aside: they would be a trouble for ever, and a new one with each such job.
        """
        by_lane: dict[tuple[str, int], list[ReadableLog]] = {}
        for view in views:
            by_lane.setdefault((_root(view.job), crc32(view.job.id.encode()) % LANES), []).append(view)
        trouble: list[Trouble] = []
        denied: set[str] = set()
        rounds: list[tuple[tuple[str, int], _Round]] = []
        end = time.monotonic() + self._deadline_s
        for (root, lane), those in by_lane.items():
            stuck = self._stuck.get((root, lane))
            if stuck is not None and stuck.thread is not None and stuck.thread.is_alive():
                trouble.append(Trouble(_lane(root, lane), f"{root} does not answer: {len(those)} logs were not read"))
                continue
            self._stuck.pop((root, lane), None)
            reading_round = _Round(those)
            reading_round.start(now, f"logs {root}")
            reading_round.let_compute(end - time.monotonic())
            rounds.append(((root, lane), reading_round))
        read: list[ReadableLog] = []
        left_s = self._deadline_s
        for key, reading_round in rounds:
            if reading_round.thread is not None:
                reading_round.thread.join(left_s)
                if reading_round.thread.is_alive():
                    self._stuck[key], left_s = reading_round, 0.0  # the others had the same time meanwhile
                    unread_count = len(reading_round.views) - len(reading_round.read_places)
                    text = f"{key[0]} did not answer within {self._deadline_s:g} s: {unread_count} logs unread"
                    trouble.append(Trouble(_lane(*key), text))
            read += [view for place, view in enumerate(reading_round.views) if place in reading_round.read_places]
            trouble += list(reading_round.failed.values())
            denied |= reading_round.denied
        for job in sorted(denied - self._denied):
            logger.warning("job=%s its log may not be read: hangs and losses of it are not noticed", job)
        self._denied = denied
        if denied:
            jobs = ", ".join(sorted(denied)[:MOST_NAMED]) + (
                f" and {len(denied) - MOST_NAMED} more" if len(denied) > MOST_NAMED else ""
            )
            text = f"{len(denied)} logs may not be read, so no hangs and losses are noticed of jobs {jobs}"
            trouble.append(Trouble("logs shown to nobody", text, Extent.SET_ASIDE))
        return read, trouble


def _read(reading_round: _Round, now: datetime) -> None:
    for place, view in enumerate(reading_round.views):
        reading_round.cpu_s = time.thread_time()
        try:
            with reading_as(view.job.account):
                view.read(now)
        except PermissionError:  # also of a file that only we may read, and not its owner
            reading_round.denied.add(view.job.id)
            continue
        except OSError as error:
            reading_round.failed[place] = _of_log(view.job, f"its log cannot be read: {error}")
            continue
        except Exception:
            # one odd log must not blind the watch for all others
            logger.exception("job=%s its log could not be understood", view.job.id)
            reading_round.failed[place] = _of_log(view.job, "its log could not be understood")
            continue
        reading_round.read_places.add(place)


def _of_log(job: Job, why: str) -> Trouble:
    return Trouble(f"the log of job {job.id}", f"job {job.id}: {why}")


def _lane(root: str, lane: int) -> str:
    return f"{root} (lane {lane})"


def _root(job: Job) -> str:
    path = job.log or job.work_dir
    return "/".join(path.parts[:ROOT_PARTS]).replace("//", "/") if path is not None else ""
