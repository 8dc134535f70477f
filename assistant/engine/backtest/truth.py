"""What really happened after an attempt failed: when the run was started again, by whom, and how the nodes fared. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from assistant.engine.backtest.attempts import Attempt
from assistant.records import Job, JobState

HORIZON = timedelta(days=7)
"""A submission later than that is no answer to a failure."""
NEAR = 256
"""Attempts of the same name that are looked at around a moment."""
Run = tuple[str, ...]
AT_ONCE_S = 600.0
"""An attempt that failed again within so many seconds of its start did not get anywhere."""


class Starter(StrEnum):
    """Who started a run again."""

    PERSON = "person"
    """It was submitted after the failure: by a person, or by a script of theirs."""
    QUEUED = "queued"
    """It waited in the queue already when the attempt failed: a chain of jobs."""
    SCHEDULER = "scheduler"
    """The same job was queued again."""
    NIGHTSHIFT = "nightshift"
    """Its comment says that a Nightshift submitted it."""


@dataclass(frozen=True, slots=True)
class Next:
    """The next attempt of the same run."""

    number: int
    """Place among the attempts."""
    starter: Starter
    acted_s: float
    """Seconds from the failure to the submission; 0 where it was queued before."""
    waited_s: float
    """Seconds from the failure to its start."""
    sure: bool
    """False where other attempts of the same name ran beside: then it need not have been the answer to this failure."""


class Runs:
    """The attempts of each run, in order."""

    def __init__(self, attempts: Sequence[Attempt]) -> None:
        """Group the attempts.

        Args:
            attempts: In order of their ends.
        """
        self._attempts = attempts
        self._starts: dict[Run, list[tuple[float, int]]] = {}
        self._beside: dict[Run, list[tuple[float, int]]] = {}
        for number, one in enumerate(attempts):
            began = one.job.started
            if began is not None:
                self._starts.setdefault(one.run, []).append((began.timestamp(), number))
            seen = one.job.submitted or began
            if seen is not None:
                self._beside.setdefault(one.run[:3], []).append((seen.timestamp(), number))
        for listed in (*self._starts.values(), *self._beside.values()):
            listed.sort()
        self._taken: set[int] = set()

    def next_of(self, number: int) -> Next | None:
        """Return the next attempt of the same run, None when there was none in time; each is the next of one failure only.

        Args:
            number: Place of the failed attempt; ask in order of their ends.
        """
        failed = self._attempts[number]
        ended = failed.job.ended
        if ended is None:
            return None
        starts = self._starts.get(failed.run, [])
        for place in range(bisect_left(starts, (ended.timestamp(), -1)), len(starts)):
            began, found = starts[place]
            if began - ended.timestamp() > HORIZON.total_seconds():
                return None
            if found != number and found not in self._taken:
                self._taken.add(found)
                return self._told(failed, found, ended, began - ended.timestamp())
        return None

    def _told(self, failed: Attempt, found: int, ended: datetime, waited_s: float) -> Next:
        after = self._attempts[found]
        submitted = after.job.submitted or after.job.started or ended
        acted_s = max(0.0, (submitted - ended).total_seconds())
        starter = Starter.PERSON
        if after.job.id == failed.job.id:
            starter = Starter.SCHEDULER
        elif "nightshift:" in after.job.comment:
            starter = Starter.NIGHTSHIFT
        elif submitted <= ended:
            starter = Starter.QUEUED
        beside = any(one is not failed and _ran_at(one.job, ended) for one in self._near(failed.run, found))
        return Next(found, starter, acted_s, waited_s, not beside)

    def _near(self, run: Run, number: int) -> Iterator[Attempt]:
        """Yield attempts of a run that began not long before another; of thousands of the same name the last ones do."""
        starts = self._starts[run]
        began = self._attempts[number].job.started
        place = bisect_left(starts, (began.timestamp() if began is not None else 0.0, number))
        yield from (self._attempts[n] for _, n in starts[max(0, place - NEAR) : place])

    def live(self, failed: Attempt, at: datetime) -> list[Job]:
        """Return other attempts of the same user, name and folder that waited or ran at a time, in the state that they had then."""
        found = []
        seen = self._beside.get(failed.run[:3], [])
        place = bisect_left(seen, (at.timestamp(), len(self._attempts)))
        for _, number in seen[max(0, place - NEAR) : place]:
            job = self._attempts[number].job
            if self._attempts[number] is failed or (job.ended is not None and job.ended <= at):
                continue
            state = JobState.RUNNING if job.started is not None and job.started <= at else JobState.PENDING
            found.append(replace(job, state=state, ended=None))
        return found


def _ran_at(job: Job, at: datetime) -> bool:
    return job.started is not None and job.started < at and (job.ended is None or job.ended > at)


def failed_at_once(attempt: Attempt) -> bool:
    """Whether an attempt failed within minutes of its start."""
    return attempt.job.state.failed and ran_s(attempt) <= AT_ONCE_S


def ran_s(attempt: Attempt) -> float:
    """Return how many seconds an attempt ran; 0 where that is not known."""
    started, ended = attempt.job.started, attempt.job.ended
    return max(0.0, (ended - started).total_seconds()) if started is not None and ended is not None else 0.0


def first_on(attempts: Iterable[Attempt], drains: Mapping[str, Sequence[datetime]]) -> dict[tuple[str, datetime], Attempt]:
    """Return the first attempt that began on a node after a time, for each of its times.

    Args:
        attempts: All of them, in any order.
        drains: Times by node.
    """
    found: dict[tuple[str, datetime], Attempt] = {}
    for attempt in attempts:
        started = attempt.job.started
        if started is None:
            continue
        for node in drains.keys() & set(attempt.job.nodes):
            for at in drains[node]:
                best = found.get((node, at))
                if started >= at and (best is None or best.job.started is None or started < best.job.started):
                    found[node, at] = attempt
    return found
