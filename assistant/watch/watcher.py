"""One look at the whole cluster: what ended badly, what hangs, whose loss ran away.

The state of a job's detectors belongs to one attempt and goes with it. It is rebuilt from the end of the log when a watcher starts,
so a restart of Nightshift loses nothing but a little patience.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from assistant.logs.metrics import metric_points
from assistant.logs.tail import Follower, Position
from assistant.ports import Clock, Scheduler
from assistant.records import Event, EventKind, Job, JobState, MetricPoint
from assistant.watch.hang import HangLimits, silent_too_long
from assistant.watch.loss import SpikeLimits, lasting_spike
from assistant.watch.queue import Attempt, ended_badly

logger = logging.getLogger(__name__)

KEPT_POINTS = 2000
"""Steps of each job that the spike detector sees."""
KEPT_GAPS = 500
LOOKED_BACK_BYTES = 1 << 20


@dataclass
class _View:
    """What is remembered of one running attempt."""

    follower: Follower
    points: list[MetricPoint] = field(default_factory=list)
    seen: list[tuple[int, datetime]] = field(default_factory=list)
    """Newest step at each look that brought one, and when: the log's own clock may be another."""
    gaps: list[float] = field(default_factory=list)
    last_output: datetime | None = None
    raised: set[EventKind] = field(default_factory=set)


class Watcher:
    """Looks; remembers only what it needs to tell silence and spikes from rhythm and noise."""

    def __init__(self, scheduler: Scheduler, clock: Clock, *, hang: HangLimits, spike: SpikeLimits, since: datetime) -> None:
        """Start watching.

        Args:
            scheduler: Asked once a look, for all jobs.
            clock: For silences.
            hang: How long a job may be silent.
            spike: When a loss counts as run away.
            since: Attempts that ended before are history.
        """
        self._scheduler, self._clock = scheduler, clock
        self._hang, self._spike, self._since = hang, spike, since
        self._views: dict[Attempt, _View] = {}

    def look(self, *, known: Collection[Attempt]) -> list[Event]:
        """Return what is new.

        Args:
            known: Attempts that have an incident.

        Raises:
            Unavailable: The scheduler did not answer; nothing may be concluded.
        """
        now, jobs = self._clock.now(), self._scheduler.jobs()
        events = ended_badly(jobs, known=known, since=self._since, now=now)
        running = {(job.id, job.attempt): job for job in jobs if job.state is JobState.RUNNING and job.log is not None}
        self._views = {attempt: view for attempt, view in self._views.items() if attempt in running}
        for attempt, job in running.items():
            if attempt not in known:
                events += self._look_at(job, attempt, now)
        return events

    def _look_at(self, job: Job, attempt: Attempt, now: datetime) -> list[Event]:
        log = job.log
        if log is None:
            return []
        try:
            view = self._views.setdefault(attempt, _opened(log))
            self._read(view, job, now)
        except OSError as error:
            # a log that cannot be read now is unknown, not silent
            logger.warning("job=%s log %s cannot be read: %s", job.id, job.log, error)
            return []
        found = [self._silent(view, job, now), self._ran_away(view, job, now)]
        events = [event for event in found if event is not None and event.kind not in view.raised]
        view.raised |= {event.kind for event in events}
        return events

    def _read(self, view: _View, job: Job, now: datetime) -> None:
        news = view.follower.news()
        if news.restarted:
            view.points.clear()
            view.seen.clear()
            view.gaps.clear()
        if news.lines:
            at = now
            if view.last_output is None:  # output from before this watcher began
                at = min(now, datetime.fromtimestamp(view.follower.path.stat().st_mtime, UTC))
            else:
                view.gaps = [*view.gaps[-KEPT_GAPS:], (at - view.last_output).total_seconds()]
            view.last_output = at
            points = metric_points(news.lines)
            view.points = [*view.points, *points][-KEPT_POINTS:]
            view.seen = [*view.seen[-KEPT_POINTS:], *((point.step, at) for point in points[-1:])]
        elif view.last_output is None:
            view.last_output = job.started or now

    def _silent(self, view: _View, job: Job, now: datetime) -> Event | None:
        silence = silent_too_long(now, view.last_output or now, view.gaps, self._hang)
        if silence is None:
            return None
        step = view.points[-1].step if view.points else None
        detail = {"silent_s": round(silence.total_seconds(), 1), "step": step}
        return Event(EventKind.HANG, job.id, None, now - silence, detail, job.attempt)

    def _ran_away(self, view: _View, job: Job, now: datetime) -> Event | None:
        spike = lasting_spike(view.points, self._spike)
        if spike is None:
            return None
        detail = {"step": spike.step, "level": spike.level, "height": str(spike.height)}
        onset = next((at for step, at in view.seen if step >= spike.step), now)
        return Event(EventKind.LOSS_SPIKE, job.id, None, onset, detail, job.attempt)


def _opened(log: Path) -> _View:
    """Start near the end of a log: the detectors need its last steps, not its history."""
    size = log.stat().st_size if log.exists() else 0
    return _View(Follower(log, Position(offset=max(0, size - LOOKED_BACK_BYTES))))
