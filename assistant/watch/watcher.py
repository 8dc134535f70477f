"""One look at the whole cluster: what ended badly, hangs, lost its loss, is slow or no longer saved, and which nodes went away.

One query of the scheduler a look, and one of its nodes a minute. The state of a job's detectors belongs to one attempt and goes
with it. It is rebuilt from the end of the log when a watcher starts: a restart of Nightshift loses nothing but a little patience.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import cast

from assistant.errors import NightshiftError, Unavailable
from assistant.logs.attempt import job_logs
from assistant.logs.tail import TailPosition
from assistant.logs.templates import steady_name
from assistant.ports import Clock, Scheduler
from assistant.records import Event, EventKind, Job, JobState, Node, NodeState, tags_in
from assistant.records.jobs import MARK
from assistant.untrusted import reading_as, within
from assistant.watch.attempts import (
    Attempt,
    KnownIncidents,
    Remark,
    Trouble,
    ended_badly,
    failed_before,
    failed_steps,
    hang_of,
    late_saves_of,
    remark_on,
    slowdown_of,
    slowness_of,
    spike_of,
    wait_limit_s,
    wait_of,
)
from assistant.watch.hang import HangLimits
from assistant.watch.progress import PaceLimits, SaveLimits, SpikeLimits
from assistant.watch.readers import ReadableLog, Readers
from assistant.watch.slowdown import MOST_COMPARED, PaceLook, SlowdownLimits, SlowNodes, slowed_at_once
from assistant.watch.view import View, ViewLimits, view_of
from assistant.watch.witness import SecondLook, Witness, WitnessVote, has_lost_its_program

logger = logging.getLogger(__name__)

BACK_S = timedelta(seconds=60)
"""A scheduler that was silent may still call a job running that ended meanwhile; for so long none of its jobs counts as hanging."""
SET_S = 10.0
"""A clock that NTP disciplines drifts by less between two looks; by more somebody has set it, or the machine was asleep."""
NODES_EVERY = timedelta(seconds=60)
KEPT_RUNS = 8
"""Of each task: usual step times of runs that are over."""
MOST_TASKS = 2_000
LOOKED_FOR_AT = (timedelta(seconds=30), timedelta(minutes=5), timedelta(minutes=30))
"""After the start of a job that shows no step: its script is asked for and the files that it names are looked for."""
ASKED_A_LOOK = 5
LOGS_S = 3.0
MOST_MORE = 16
"""Logs of a job that are followed beside its main one: a thousand ranks say what the first few say."""
Task = tuple[str, str, int]


@dataclass
class _Runs:
    """Seconds of a step that runs of each task took."""

    usual: dict[Task, list[float]] = field(default_factory=dict)

    def keep(self, task: Task, usual_s: float) -> None:
        durations = self.usual.pop(task, [])
        self.usual[task] = [*durations[1 - KEPT_RUNS :], usual_s]
        while len(self.usual) > MOST_TASKS:
            del self.usual[next(iter(self.usual))]


class Watcher:
    """Looks; remembers only what it needs to tell silence and spikes from rhythm and noise."""

    def __init__(
        self,
        scheduler: Scheduler,
        clock: Clock,
        *,
        hang: HangLimits,
        spike: SpikeLimits,
        since: datetime,
        pace: PaceLimits | None = None,
        saves: SaveLimits | None = None,
        second: SecondLook | None = None,
        readers: Readers | None = None,
        store_id: str = "",
        paces: PaceLook | None = None,
    ) -> None:
        """Start watching.

        Args:
            scheduler: Asked once a look, for all jobs.
            clock: For silences.
            hang: How long a job may stand still.
            spike: When a loss counts as run away.
            since: Attempts that ended before are history.
            pace: When a job counts as slow.
            saves: When checkpoints count as late.
            second: Asks the nodes of a job that stands still before that is called a hang; None: nobody is asked.
            readers: Read the logs.
            store_id: Of the own store; tags of others are told of. Empty: nobody looks for them.
            paces: Asks the nodes of a job that became several times slower; None: nobody is asked.
        """
        self._scheduler, self._clock, self._since = scheduler, clock, since
        slow_s = (pace := pace or PaceLimits()).persist_s
        self._limits = ViewLimits(hang, spike, pace, SlowdownLimits(looked_s=slow_s / 9, told_s=slow_s / 3))
        self._paces = paces
        self._slow: list[tuple[Job, datetime]] = []
        self._saves, self._second, self._readers = saves or SaveLimits(), second, readers or Readers()
        self._views: dict[Attempt, View] = {}
        self._raised: dict[Attempt, set[EventKind]] = {}
        self._proven: set[Attempt] = set()
        self._gone_on: dict[Attempt, int] = {}
        self._nodes, self._nodes_at = NodeTrack(), since - NODES_EVERY
        self._nodes_unseen: list[Trouble] = []
        self._runs = _Runs()
        self._positions: dict[Path, TailPosition] = {}
        self._tries: dict[Attempt, int] = {}
        self._store_id = store_id
        self._remarked: frozenset[str] = frozenset()
        self._blind = False
        self._last_look: tuple[datetime, float] | None = None
        self._trusted_from: datetime | None = None
        self.jobs: Sequence[Job] = ()
        """What the scheduler showed at the last look."""
        self.trouble: tuple[Trouble, ...] = ()
        """What the last look could not see; empty when it saw all."""
        self.held_jobs: tuple[Job, ...] = ()
        """Jobs that the last look saw waiting for somebody to release them."""
        self.remarks: tuple[Remark, ...] = ()
        """What the last look found worth saying that the one before had not said."""

    def look(self, *, known: KnownIncidents | Collection[Attempt] = ()) -> list[Event]:
        """Return all new events at once; see `found`."""
        return list(self.found(known=known))

    def found(self, *, known: KnownIncidents | Collection[Attempt] = ()) -> Iterator[Event]:
        """Yield what is new as soon as it is seen: what ended before any log is read.

        An event counts as told once the next one is asked for: whoever breaks off since it could not be written down sees it again.

        Args:
            known: The incidents there are; of mere attempts nothing at all is news.

        Raises:
            Unavailable: The scheduler did not answer; nothing may be concluded.
        """
        incidents = known if isinstance(known, KnownIncidents) else KnownIncidents({}, frozenset(known))
        self.trouble, self.remarks = (), ()
        begins = not self.jobs
        now, jobs = self._now(), self._listed()
        remarks: list[Remark] = failed_before(jobs, incidents=incidents, since=self._since) if begins else []
        yield from ended_badly(jobs, known=incidents, since=self._since, now=now)
        running = {(job.id, job.attempt): job for job in jobs if job.state is JobState.RUNNING and _may_log(job)}
        remarks += failed_steps(jobs, self._since)
        self._forget(jobs, running)
        views, trouble = self._read(running, incidents, now)
        slow = [(view.job, slow.since) for view in views if (slow := view.slowdown.current(now)) is not None]
        self._slow = sorted(slow, key=lambda entry: entry[0].id)[:MOST_COMPARED]
        by_task = self._usual_by_task()
        for view in views:
            try:
                yield from self._judged(view, incidents, now, by_task, remarks)
            except (NightshiftError, ArithmeticError, LookupError, TypeError, ValueError) as error:
                # what one job wrote into its log costs no other job its look
                logger.exception("job=%s could not be judged", view.job.id)
                trouble.append(
                    Trouble(f"job {view.job.id}", f"job {view.job.id} could not be judged: {type(error).__name__}: {error}")
                )
        if self._store_id:
            remarks += stores_on_jobs(self._store_id, jobs, now)
        blind = yield from self._look_at_nodes(jobs, now, remarks)
        self.trouble = (*trouble, *blind)
        self.remarks = tuple(remark for remark in remarks if remark.about not in self._remarked)
        self._remarked = frozenset(remark.about for remark in remarks)
        for remark in self.remarks:
            logger.info("%s", remark.text)

    def _now(self) -> datetime:
        """Return the time; where it was set since the last look, all that was seen before is moved along."""
        now, ticks = self._clock.now(), self._clock.ticks()
        if self._last_look is not None:
            before, ticks_before = self._last_look
            set_by = now - before - timedelta(seconds=ticks - ticks_before)
            if abs(set_by.total_seconds()) > SET_S:
                logger.warning("the time of day was set by %+.0f s", set_by.total_seconds())
                for view in self._views.values():
                    view.shift(set_by)
                self._nodes.shift(set_by)
                self._nodes_at += set_by
                self._trusted_from = self._trusted_from + set_by if self._trusted_from is not None else None
        self._last_look = now, ticks
        return now

    def _listed(self) -> Sequence[Job]:
        """Return all jobs, and remember since when the scheduler answers again."""
        try:
            jobs = self._scheduler.jobs()
        except Unavailable:
            self._blind = True
            raise
        if self._blind:
            self._blind, self._trusted_from = False, self._clock.now() + BACK_S
        self.held_jobs = tuple(job for job in jobs if job.state is JobState.PENDING and job.held)
        self.jobs = jobs
        return jobs

    def ask_beside(self, threaded: bool) -> None:
        """Say whether a look goes on while nodes are asked; else it waits, as a single pass must: no later one hears the answer."""
        if self._second is not None:
            self._second.threaded = threaded
        if self._paces is not None:
            self._paces.threaded = threaded

    def view(self, job: str, attempt: int = 0) -> View | None:
        """Return what is remembered of a running attempt, for status and figures."""
        return self._views.get((job, attempt))

    def _forget(self, jobs: Sequence[Job], running: dict[Attempt, Job]) -> None:
        unsure = {job.id for job in jobs if job.state is JobState.UNKNOWN}
        for attempt in [attempt for attempt in self._views if attempt not in running and attempt[0] not in unsure]:
            view = self._views.pop(attempt)
            if (read := view.position()) is not None:
                self._positions[read[0]] = read[1]
                while len(self._positions) > MOST_TASKS:
                    del self._positions[next(iter(self._positions))]
            if (usual := view.pace.usual_s) is not None:
                self._runs.keep(_task(view.job), usual)
        self._tries = {attempt: tries for attempt, tries in self._tries.items() if attempt in running or attempt[0] in unsure}
        self._gone_on = {attempt: count for attempt, count in self._gone_on.items() if attempt in running or attempt[0] in unsure}
        self._proven = {attempt for attempt in self._proven if attempt in running or attempt[0] in unsure}
        self._raised = {attempt: kinds for attempt, kinds in self._raised.items() if attempt in running or attempt[0] in unsure}

    def _read(self, running: dict[Attempt, Job], incidents: KnownIncidents, now: datetime) -> tuple[list[View], list[Trouble]]:
        folders = Counter(job.work_dir for job in running.values())
        due: list[ReadableLog] = []
        for attempt, job in running.items():
            is_covered = incidents.covers(job, EventKind.HANG) and not incidents.awaits_proof(job) and not incidents.may_go_on(job)
            if attempt in incidents.closed_to_all or is_covered:
                continue
            view = self._views.get(attempt)
            if view is None or view.job.submitted != job.submitted or view.job.log != job.log:
                # the id was given to another job, or its log is another file now
                before = self._positions.pop(job.log, None) if job.log is not None else None
                view = self._views[attempt] = view_of(job, self._limits, metrics=folders[job.work_dir] == 1, before=before)
                self._raised.pop(attempt, None)
            view.job = job
            due.append(view)
        self._find_more_logs([view for view in due if isinstance(view, View)], now)
        read, trouble = self._readers.read(due, now)
        return cast("list[View]", read), trouble

    def _find_more_logs(self, views: Sequence[View], now: datetime) -> None:
        """Look for the other logs of jobs that show no step yet: a few a look, each job a few times."""
        query_count = 0
        for view in views:
            job = view.job
            tries = self._tries.get((job.id, job.attempt), 0)
            if (
                view.last is not None
                or job.started is None
                or not job.dated_logs
                or tries >= len(LOOKED_FOR_AT)
                or query_count >= ASKED_A_LOOK
            ):
                continue
            if now - job.started < LOOKED_FOR_AT[tries]:
                continue
            query_count += 1
            self._tries[job.id, job.attempt] = tries + 1
            try:
                with reading_as(job.account):
                    logs = within(LOGS_S, partial(job_logs, self._scheduler.job(job.id)), f"the logs of job {job.id}")
            except (NightshiftError, OSError) as error:
                logger.info("job=%s its other logs were not looked for: %s", job.id, error)
                continue
            view.more = tuple(file.path for file in logs.readable if file.path not in (job.log, job.error_log))[:MOST_MORE]

    def _judged(
        self,
        view: View,
        incidents: KnownIncidents,
        now: datetime,
        by_task: dict[Task, list[tuple[View, float]]],
        remarks: list[Remark],
    ) -> Iterator[Event]:
        job = view.job
        if incidents.has_gone_on(job) != self._gone_on.get((job.id, job.attempt), 0):
            self._gone_on[job.id, job.attempt] = incidents.has_gone_on(job)
            self._raised.pop((job.id, job.attempt), None)
        raised = self._raised.setdefault((job.id, job.attempt), set())
        if incidents.awaits_proof(job):
            proof = self._still(view, now, remarks, again_s=self._limits.hang.told_s)
            if proof is not None and proof.detail["proofs"] and (job.id, job.attempt) not in self._proven:
                yield proof
                self._proven.add((job.id, job.attempt))
            return
        if incidents.covers(job, EventKind.HANG):
            return  # it is read on only to see whether it moves again
        candidates = [self._still(view, now, remarks), spike_of(view, now)]
        if candidates == [None, None]:
            task = _task(job)
            peers = [usual for peer, usual in by_task.get(task, ()) if peer is not view] + self._runs.usual.get(task, [])
            sudden = view.slowdown.current(now) is not None
            slow = self._slowed_down(view, now, remarks) if sudden else slowness_of(view, now, peers, remarks)
            candidates += [slow, late_saves_of(view, self._saves, now)]
        for event in candidates:
            if event is not None and event.kind not in raised and not incidents.covers(job, event.kind):
                yield event
                raised.add(event.kind)

    def _slowed_down(self, view: View, now: datetime, remarks: list[Remark]) -> Event | None:
        """Return the event of a job that became several times slower; its nodes are asked before anybody is told."""
        slow, job = view.slowdown.current(now), view.job
        if slow is None or EventKind.SLOW_JOB in self._raised.get((job.id, job.attempt), ()):
            return None
        nodes = self._paces.ask(job, slow.since, slow.lasted_s) if self._paces is not None else SlowNodes()
        if nodes is None:
            return None  # the answer is under way
        return slowdown_of(view, slow, nodes, slowed_at_once(job, slow.since, self._slow), remarks)

    def _still(self, view: View, now: datetime, remarks: list[Remark], *, again_s: float = 0.0) -> Event | None:
        """Return the event of a job that stands still; its nodes are asked anew every `again_s` seconds, once for 0."""
        if self._trusted_from is not None and now < self._trusted_from:
            return None
        suspicion, waiting = view.suspicion(now), view.wait.waiting(now)
        if waiting is not None and (waiting.alone or suspicion is not None):
            limit_s = wait_limit_s(view.job, waiting.line, self.jobs, self._limits.hang)
            # whoever says what it waits for does not hang, whatever its GPUs do meanwhile
            return wait_of(view, waiting, limit_s, now) if (now - waiting.since).total_seconds() > limit_s else None
        if suspicion is None or (view.excused_until is not None and now < view.excused_until):
            if view.beat_at is not None and view.output_at is not None and suspicion is None:
                behind_s = (view.beat_at - view.output_at).total_seconds()
                if behind_s > self._limits.hang.silent_s:
                    remarks.append(remark_on(view, "beats only", "makes steps by its heartbeat and writes no log any more"))
            return None
        witness: Witness | None = None
        if self._second is not None:
            interval = timedelta(seconds=again_s)
            repeated = (
                replace(suspicion, since=suspicion.since + interval * ((now - suspicion.since) // interval))
                if interval
                else suspicion
            )
            witness = self._second.ask(view.job, repeated)
            if witness is None:
                return None  # the answer is under way
            if witness.vote is WitnessVote.WORKING:
                view.excused_until = now + timedelta(seconds=max(suspicion.limit_s, self._limits.hang.told_s))
                remarks.append(remark_on(view, "silent", f"is silent and at work: {witness.text}"))
                return None
        if view.serves and not has_lost_its_program(witness):
            return None  # a service that is asked nothing does nothing
        if not suspicion.certain and (witness is None or witness.vote is not WitnessVote.HUNG):
            return None
        last_words = view.wait.last_words() if not has_lost_its_program(witness) else None
        return wait_of(view, last_words, suspicion.limit_s, now) if last_words is not None else hang_of(view, suspicion, witness)

    def _usual_by_task(self) -> dict[Task, list[tuple[View, float]]]:
        by_task: dict[Task, list[tuple[View, float]]] = {}
        for view in self._views.values():
            if (usual := view.pace.usual_s) is not None:
                by_task.setdefault(_task(view.job), []).append((view, usual))
        return by_task

    def _look_at_nodes(self, jobs: Sequence[Job], now: datetime, remarks: list[Remark]) -> Generator[Event, None, list[Trouble]]:
        if now - self._nodes_at < NODES_EVERY:
            return self._nodes_unseen
        self._nodes_at, self._nodes_unseen = now, []
        try:
            nodes = self._scheduler.nodes()
        except Unavailable as error:
            self._nodes_unseen = [Trouble("states of nodes", f"the states of nodes are not known: {error}")]
            return self._nodes_unseen
        events, node_remarks = self._nodes.look(nodes, jobs, now)
        remarks += node_remarks
        self._nodes_unseen = stores_on_nodes(self._store_id, nodes) if self._store_id else []
        for event in events:
            yield event
            self._nodes.reported.update(event.detail["nodes"])
        return self._nodes_unseen


def _may_log(job: Job) -> bool:
    """Tell whether a job may have a log: one whose output is thrown away may still redirect what its steps write."""
    return job.log is not None or job.error_log is not None or bool(job.discards)


def _task(job: Job) -> Task:
    return job.user, steady_name(job.name), len(job.nodes)


# Notice nodes that go away under a running job, and that come back: by others' hands or by themselves.

FOR_SURE = timedelta(minutes=2)
"""A controller that restarts shows nodes down for a moment, and a node that dies takes its job along within that time."""


@dataclass
class NodeTrack:
    """The nodes that are away, since when, and what was said of them."""

    down: dict[str, datetime] = field(default_factory=dict)
    reported: set[str] = field(default_factory=set)
    states: dict[str, NodeState] = field(default_factory=dict)

    def shift(self, by: timedelta) -> None:
        """Move the past by what the time of day was set by."""
        self.down = {node: since + by for node, since in self.down.items()}

    def look(self, nodes: Sequence[Node], jobs: Sequence[Job], now: datetime) -> tuple[list[Event], list[Remark]]:
        """Return events for nodes that are down although a job still runs there, and remarks on all that changed.

        Nodes that went down together (a rack, a switch) make one event, about the first by name, with all in its detail. A state
        that is unknown changes nothing: neither down nor back. Whoever has told of an event adds its nodes to `reported`.

        Args:
            nodes: All of the cluster.
            jobs: All jobs.
            now: Time of the look.
        """
        running = {node: job for job in jobs if job.state is JobState.RUNNING for node in job.nodes}
        remarks: list[Remark] = []
        fresh: list[str] = []
        for node in nodes:
            before, state = self.states.get(node.name), node.state
            if state is NodeState.UNKNOWN:
                continue
            self.states[node.name] = state
            job = running.get(node.name)
            if before is not None and before is not state and (job is not None or node.name in self.reported):
                on = f", job {job.id} runs there" if job is not None else ""
                why = f" ({node.reason})" if node.reason else ""
                remarks.append(Remark(f"node {node.name} {state}", f"node {node.name}: {before} -> {state}{why}{on}"))
            if state is not NodeState.DOWN:
                self.down.pop(node.name, None)
                self.reported.discard(node.name)
                continue
            since = self.down.setdefault(node.name, now)
            if job is not None and node.name not in self.reported and now - since >= FOR_SURE:
                fresh.append(node.name)
        return ([self._event(fresh, running, {node.name: node.reason for node in nodes})] if fresh else []), remarks

    def _event(self, fresh: Sequence[str], running: Mapping[str, Job], reasons: Mapping[str, str]) -> Event:
        jobs = list(dict.fromkeys(running[name].id for name in fresh))
        detail = {"nodes": list(fresh), "jobs": jobs, "reason": reasons.get(fresh[0], "")}
        return Event(EventKind.NODE_DOWN, None, fresh[0], min(self.down[name] for name in fresh), detail)


# Other stores of Nightshift on the same cluster, by the tags that they leave on nodes and jobs.

__all__ = ["stores_on_jobs", "stores_on_nodes"]

LATELY = timedelta(hours=24)
"""Of a job: an older tag says nothing about who is at work now."""


def stores_on_nodes(own: str, nodes: Iterable[Node]) -> list[Trouble]:
    """Return a trouble for each other store whose cordons stand; only administrators write a node's reason."""
    places: dict[str, list[str]] = {}
    for node in nodes:
        for tag in tags_in(node.reason) if MARK in node.reason else ():
            if tag.store not in ("", own):
                places.setdefault(tag.store, []).append(node.name)
    return [
        Trouble(
            f"store {store}",
            f"another Nightshift (store {store}) has cordoned {', '.join(names[:5])}{' and more' if len(names) > 5 else ''}: this "
            "one leaves them alone. A cluster needs one store: stop one of the two, or uncordon what a store that is gone left",
        )
        for store, names in places.items()
    ]


def stores_on_jobs(own: str, jobs: Iterable[Job], now: datetime) -> list[Remark]:
    """Return a remark for each other store whose tag a job of the last day carries; it may be a forgery of the job's user."""
    remarks: dict[str, Remark] = {}
    for job in jobs:
        if MARK not in job.comment or job.submitted is None or now - job.submitted > LATELY:
            continue
        for tag in tags_in(job.comment):
            if tag.store not in ("", own, *remarks):
                text = f"job {job.id} of {job.user} carries the tag of another Nightshift (store {tag.store})"
                remarks[tag.store] = Remark(
                    f"store {tag.store} on jobs",
                    f"{text}: it is not restarted by this one; where no other is at work, ask {job.user}",
                )
    return list(remarks.values())
