"""What a pass makes of attempts: which left the queue by a failure, what those that run show, and what could not be seen.

What an incident covers: news about an attempt of it opens no second one. A `Trouble` says by how much it takes from a pass; a
`Remark` is worth saying although it is nobody's incident. What a look saw of a running job is an event where it is somebody's
incident, a remark where it may pass.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from assistant.records import Event, EventKind, Incident, IncidentState, Job, JobState
from assistant.watch.hang import WAITS, HangLimits, OutsideWait, Still, Suspicion
from assistant.watch.progress import PaceTrack, SaveLimits, Slow
from assistant.watch.slowdown import Slowdown, SlowNodes
from assistant.watch.view import View
from assistant.watch.witness import READ_UP_TO, Witness, proofs_of_hang, unobserved

__all__ = [
    "ADVICE",
    "HIDDEN_FAILURE",
    "OVER",
    "STANDING",
    "Attempt",
    "Extent",
    "KnownIncidents",
    "Remark",
    "Trouble",
    "about",
    "ended_badly",
    "failed_before",
    "failed_steps",
    "hang_of",
    "hidden_failure_in",
    "late_saves_of",
    "remark_on",
    "slowdown_of",
    "slowness_of",
    "spike_of",
    "wait_limit_s",
    "wait_of",
]

_HOST_NAME = re.compile(r"[A-Za-z][\w.-]{0,100}")


class Extent(StrEnum):
    """How much of the cluster a pass does not see."""

    ALL = "all"
    """The scheduler or the store: nothing can be concluded from such a pass."""
    PART = "part"
    """A log, a mount, the states of nodes, an incident that could not be worked on: all else is seen."""
    SET_ASIDE = "set aside"
    """What the site itself keeps from Nightshift, such as logs that their owners show to nobody: no fault of a pass."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that could not be seen or done."""

    about: str
    """The same for as long as the same is in trouble: `the log of job 4821`, `/lustre/project`, `incident 12`."""
    text: str
    """For people; counts in it may differ from look to look."""
    extent: Extent = Extent.PART


@dataclass(frozen=True, slots=True)
class Remark:
    """Something worth saying that is no incident: a node drained by others, a slow job that may pass, what was learned."""

    about: str
    """It is said anew only after a look at which nothing was said about the same."""
    text: str


Attempt = tuple[str, int]
"""Job id and how often it had been requeued."""

ADVICE = frozenset({EventKind.SLOW_JOB, EventKind.CHECKPOINTS_LATE})
"""About a job that goes on: it may still fail, and that is another matter."""
STANDING = frozenset({EventKind.HANG, EventKind.SLOW_JOB})
"""About a job that may go on by itself."""
OVER = (IncidentState.CLOSED, IncidentState.RECOVERED)


@dataclass(frozen=True)
class KnownIncidents:
    """The incidents about attempts of jobs."""

    by_attempt: Mapping[Attempt, tuple[Incident, ...]]
    closed_to_all: Collection[Attempt] = field(default=())
    """Attempts of which nothing at all is news."""
    unproven: Collection[int] = field(default=())
    """Incidents about hangs of which a person was asked since nothing proved them: a proof is news, and so is the job's end."""

    went_on: Collection[int] = field(default=())
    """Incidents that were closed since their job went on by itself: whatever happens to it later is news."""

    @classmethod
    def of(cls, incidents: Iterable[Incident], *, unproven: Collection[int] = (), went_on: Collection[int] = ()) -> KnownIncidents:
        """Return what is known by incidents, in any order."""
        by_attempt: dict[Attempt, list[Incident]] = {}
        for incident in incidents:
            if incident.job is not None:
                by_attempt.setdefault((incident.job, incident.attempt), []).append(incident)
        return cls({attempt: tuple(those) for attempt, those in by_attempt.items()}, unproven=unproven, went_on=went_on)

    def awaits_proof(self, job: Job) -> bool:
        """Tell whether a person was asked about the hang of an attempt, so that only what proves it is news."""
        incidents = self.by_attempt.get((job.id, job.attempt), ())
        return any(incident.id in self.unproven and _covers(incident, job, EventKind.HANG) for incident in incidents)

    def covers(self, job: Job, kind: EventKind) -> bool:
        """Tell whether an event about an attempt is no news.

        An open incident covers all: whoever works on it sees for himself. An ended one covers what it was about, and the end of the
        job with it, unless it was mere advice, or was closed because nothing had to be done, before the job ended. An incident that
        was opened before the job was submitted is about another job that had the same id.
        """
        attempt = (job.id, job.attempt)
        if attempt in self.closed_to_all:
            return True
        of_attempt = self.by_attempt.get(attempt, ())
        if kind is EventKind.JOB_ENDED:
            of_attempt = tuple(incident for incident in of_attempt if incident.id not in self.unproven)
        return any(_covers(incident, job, kind) for incident in of_attempt if incident.id not in self.went_on)

    def has_gone_on(self, job: Job) -> int:
        """Return how many incidents of an attempt were closed since it went on by itself."""
        return sum(incident.id in self.went_on for incident in self.by_attempt.get((job.id, job.attempt), ()))

    def may_go_on(self, job: Job) -> bool:
        """Tell whether an incident about an attempt stands that is closed once the job goes on by itself."""
        of_attempt = self.by_attempt.get((job.id, job.attempt), ())
        return any(
            incident.kind in STANDING and incident.state not in OVER and _covers(incident, job, EventKind.HANG)
            for incident in of_attempt
        )


def _covers(incident: Incident, job: Job, kind: EventKind) -> bool:
    if job.submitted is not None and incident.opened < job.submitted:
        return False
    if not incident.state.ended or incident.kind is kind:
        return True
    if incident.kind in ADVICE:
        return False
    if incident.state is IncidentState.CLOSED and kind is EventKind.JOB_ENDED:
        return not _is_after(job.ended, incident.closed)
    return incident.state is not IncidentState.CLOSED


def _is_after(event: datetime | None, reference: datetime | None) -> bool:
    return event is not None and reference is not None and event > reference


HIDDEN_FAILURE = "hidden_failure"
"""In the detail of an event: what the log proves of a training that failed behind exit code 0."""
_NOTICED = (JobState.FAILED, JobState.NODE_FAIL, JobState.OUT_OF_MEMORY, JobState.TIMEOUT, JobState.PREEMPTED)


def ended_badly(jobs: Sequence[Job], *, known: KnownIncidents, since: datetime, now: datetime) -> list[Event]:
    """Return an event for each attempt that failed and has no incident yet.

    Args:
        jobs: What the scheduler shows now.
        known: The incidents there are.
        since: Attempts that ended before this are history and stay untouched, but for tasks of an array that ended just before it
            while others of their array have failed since.
        now: Time of the look.

    A job that a person cancelled or that completed makes no event; one whose state is unknown makes none either. Tasks of an array
    are jobs of their own. Of a heterogeneous job the parts end together: the first one that failed speaks for all.
    """
    events: list[Event] = []
    parts: dict[Attempt, list[Job]] = {}
    for job in jobs:
        if "+" in job.id:
            parts.setdefault((job.id.partition("+")[0], job.attempt), []).append(job)

    def known_end(part: Job) -> bool:
        return known.covers(part, EventKind.JOB_ENDED)

    spoken: set[tuple[str, int]] = set()
    fresh_tasks = _failed_with_siblings(jobs, since)
    for job in jobs:
        if job.state not in _NOTICED or (_is_history(job, since) and job.id not in fresh_tasks):
            continue
        attempt_key = (job.id.partition("+")[0], job.attempt)
        if "+" in job.id and attempt_key in spoken:
            continue
        spoken.add(attempt_key)
        if known.covers(job, EventKind.JOB_ENDED) or ("+" in job.id and any(map(known_end, parts.get(attempt_key, ())))):
            continue
        detail = {
            "state": job.state.value,
            "exit_code": job.exit_code,
            "signal": job.signal,
            "name": job.name,
            "reason": job.reason,
        }
        at = min(job.ended, now) if job.ended is not None else now
        events.append(Event(EventKind.JOB_ENDED, job.id, None, at, {**about(job), **detail}, job.attempt))
    return events


def _is_history(job: Job, since: datetime) -> bool:
    """Tell whether an attempt ended before a watch began; Slurm's times are whole seconds, so its first second counts whole."""
    return job.ended is not None and job.ended < since.replace(microsecond=0)


SIBLINGS_APART = timedelta(seconds=60)
"""Within so long tasks of one array have failed together."""


def _failed_with_siblings(jobs: Sequence[Job], since: datetime) -> frozenset[str]:
    """Return the tasks of arrays that failed before a watch began, but together with siblings that failed since.

    Of one cause some tasks end a second before the first look and others behind it: whoever starts the array again has to know of
    all. A task that failed longer before than `SIBLINGS_APART` is history like any other job.
    """
    failed: dict[tuple[str, str, str], list[Job]] = {}
    for job in jobs:
        array, _, task = job.id.partition("_")
        if task.isdecimal() and job.state in _NOTICED and job.ended is not None:
            failed.setdefault((array, job.user, job.name), []).append(job)
    tasks: set[str] = set()
    for members in failed.values():
        anchors = [job.ended for job in members if job.ended is not None and not _is_history(job, since)]
        tasks |= {
            job.id
            for job in members
            if job.ended is not None and _is_history(job, since) and any(anchor - job.ended <= SIBLINGS_APART for anchor in anchors)
        }
    return frozenset(tasks)


def failed_before(jobs: Sequence[Job], *, incidents: KnownIncidents, since: datetime) -> list[Remark]:
    """Return a remark on the attempts that failed in the `LOOKED_BACK` before a watch began and have no incident.

    Nothing is done about them: whoever was there before may have seen to them. A person may ask for a diagnosis or a recovery.

    Args:
        jobs: What the scheduler shows at the first look.
        incidents: Those there are.
        since: When the watch began.
    """
    fresh_tasks = _failed_with_siblings(jobs, since)
    early = [
        job
        for job in jobs
        if job.state in _NOTICED
        and _is_history(job, since)
        and job.id not in fresh_tasks
        and job.ended is not None
        and job.ended >= since - LOOKED_BACK
        and not incidents.covers(job, EventKind.JOB_ENDED)
    ]
    if not early:
        return []
    rows = [f"{job.id} ({job.name} of {job.user}, {job.state})" for job in early[:MOST_EARLY]]
    more = f" and {len(early) - MOST_EARLY} more" if len(early) > MOST_EARLY else ""
    subject = "this job" if len(early) == 1 else f"these {len(early)} jobs"
    text = (
        f"In the {LOOKED_BACK.total_seconds() / 60:.0f} min before this watch began {subject} failed, and nothing is done about "
        f"that: {', '.join(rows)}{more}. `nightshift diagnose {early[0].id}` says why"
    )
    return [Remark("jobs that failed before the watch began", text)]


def about(job: Job) -> dict[str, Any]:
    """Return what tells two jobs apart that were given the same id: the store compares it."""
    return {"submitted": job.submitted.isoformat()} if job.submitted is not None else {}


def hidden_failure_in(events: Iterable[Event]) -> str:
    """Return what the events of an incident say of a training that failed behind exit code 0; empty where none does."""
    return next((str(event.detail[HIDDEN_FAILURE]) for event in events if event.detail.get(HIDDEN_FAILURE)), "")


LOOKED_BACK = timedelta(minutes=10)
"""Before the beginning of a watch: what failed then is told of once, and left alone."""
MOST_EARLY = 8
RESTART_S = 300.0
"""What a job takes to its first step where that was not seen."""
SUDDEN = "sudden"
"""In the detail of an event about a slow job: it became several times slower than itself, whatever blocks of its steps say."""
MOST_OTHERS = 8
TOLD_AFTER_S = 4 * 3600.0
"""After so long a person is told of a slow job even where a restart does not pay."""


def failed_steps(jobs: Sequence[Job], since: datetime) -> list[Remark]:
    """Return a remark for each job that completed although a step of it failed: its script may have meant to go on."""
    return [
        Remark(f"job {job.id}.{job.attempt} step", f"job {job.id} completed, but a step of it ended with {job.step_exit_code}")
        for job in jobs
        if job.state is JobState.COMPLETED and job.step_exit_code and job.ended is not None and job.ended >= since
    ]


def remark_on(view: View, topic: str, text: str) -> Remark:
    """Return a remark on a job; `topic` tells it from others on the same."""
    return Remark(f"job {view.job.id}.{view.job.attempt} {topic}", f"job {view.job.id} {text}")


def wait_limit_s(job: Job, line: str, jobs: Sequence[Job], limits: HangLimits) -> float:
    """Return after how long a wait is told of: soon where it names the node of a job of the same user that has ended since.

    Args:
        job: That waits.
        line: By which it says so.
        jobs: Of the cluster.
        limits: The site's.
    """
    names = {name.partition(".")[0].lower() for name in _HOST_NAME.findall(line)}
    is_lost = any(
        peer.user == job.user
        and peer.id != job.id
        and peer.ended is not None
        and (job.started is None or peer.ended >= job.started)
        and any(node.partition(".")[0].lower() in names for node in peer.nodes)
        for peer in jobs
    )
    return limits.floor_s if is_lost else limits.silent_s


def wait_of(view: View, waiting: OutsideWait, limit_s: float, now: datetime) -> Event:
    """Return the event of a job that waits and says for what: nothing proves a hang."""
    still_s = (now - waiting.since).total_seconds()
    event = hang_of(view, Suspicion(Still.NO_STEPS, waiting.since, still_s, limit_s, view.phase, certain=True), None)
    return replace(event, detail={**event.detail, "proofs": [], WAITS: waiting.line, "waits_count": waiting.count})


def hang_of(view: View, suspicion: Suspicion, witness: Witness | None) -> Event:
    """Return the event of a job that stands still."""
    job = view.job
    detail: dict[str, Any] = {
        **about(job),
        "silent_s": round(suspicion.still_s, 1),
        "step": view.last_step if view.last is not None else (view.beat.step if view.beat is not None else None),
        "how": str(suspicion.how),
        "phase": str(suspicion.phase),
        "limit_s": round(suspicion.limit_s, 1),
        "longest_s": dict(view.cadence.longest_by_phase()),
    }
    detail |= {READ_UP_TO: view.read_up_to()}
    if view.beat is not None and view.heart is not None:
        detail |= {"heartbeat": str(view.heart), "beat_step": view.beat.step}
    detail |= {"proofs": list(proofs_of_hang(suspicion, witness)), "unseen": unobserved(witness)}
    if witness is not None:
        detail |= {"vote": str(witness.vote), "witness": witness.text, "suspects": list(witness.suspects), **witness.facts}
    return Event(EventKind.HANG, job.id, None, suspicion.since, detail, job.attempt)


def spike_of(view: View, now: datetime) -> Event | None:
    """Return the event of a loss that ran away and stays away; None where there is none."""
    spike, job = view.spike, view.job
    if spike is None:
        return None
    detail = {
        **about(job),
        "step": spike.step if view.last_step is not None else None,
        "level": spike.level,
        "height": str(spike.height),
        "grad_norm_rose": spike.grad_norm_rose,
    }
    return Event(EventKind.LOSS_SPIKE, job.id, None, view.onset or now, detail, job.attempt)


def slowness_of(view: View, now: datetime, peers: Sequence[float], remarks: list[Remark]) -> Event | None:
    """Return the event of a slow job once a restart pays or a person should know; before that it is a remark."""
    slow, job = view.pace.slow(now, peers), view.job
    if slow is None:
        return None
    restart_s = _restart_s(view)
    pays = slow.worth_restarting(restart_s)
    lost_h = slow.lost_s * max(1, len(job.nodes)) / 3600
    if not pays and (now - slow.since).total_seconds() < TOLD_AFTER_S:
        text = f"is {slow.ratio:.1f} times slower than {_comparison(slow)} since {slow.since:%H:%M}"
        remarks.append(remark_on(view, "slow", text))
        return None
    detail = {
        **about(job),
        "ratio": round(slow.ratio, 2),
        "usual_s": slow.usual_s,
        "against": slow.against,
        "since": slow.since.isoformat(),
        "lost_s": round(slow.lost_s),
        "lost_node_h": round(lost_h, 2),
        "restart_s": round(restart_s),
        "restart_pays": pays,
        "step": view.last_step,
    }
    return Event(EventKind.SLOW_JOB, job.id, None, slow.since, detail, job.attempt)


def slowdown_of(view: View, slow: Slowdown, nodes: SlowNodes, slow_jobs: Sequence[str], remarks: list[Remark]) -> Event | None:
    """Return the event of a job that became several times slower, where a node of it shows why or a person should know.

    Args:
        view: Of the job.
        slow: How much slower it is, and since when.
        nodes: What its nodes show.
        slow_jobs: Jobs on other nodes that became slow about when it did: the cause is then none of a node of its.
        remarks: Get what may pass, and what is told of another job already.
    """
    job = view.job
    if not nodes.words_by_node and (not slow.worth_telling or any(job_id < job.id for job_id in slow_jobs)):
        why = f", for it changed its work ({slow.changed})" if slow.changed else ""
        if slow.changed and slow.lasted_s > view.limits.slowdown.told_s:
            view.slowdown.accept()
            view.pace = PaceTrack(view.limits.pace)  # it is to be measured by its new work
        remarks.append(remark_on(view, "slow", f"is {slow.ratio:.1f} times slower than before since {slow.since:%H:%M}{why}"))
        return None
    restart_s = _restart_s(view)
    detail = {
        **about(job),
        "ratio": round(slow.ratio, 2),
        "usual_s": slow.usual_s,
        "now_s": slow.now_s,
        "against": "itself",
        "since": slow.since.isoformat(),
        "lost_s": round(slow.lost_s),
        "lost_node_h": round(slow.lost_s * max(1, len(job.nodes)) / 3600, 2),
        "restart_s": round(restart_s),
        "restart_pays": slow.lost_s >= restart_s,
        "step": view.last_step,
        "from_step": slow.from_step if view.last_step is not None else None,
        "slowed": dict(nodes.words_by_node),
        "links": dict(nodes.links),
        "unseen": nodes.unanswered,
        "others": list(slow_jobs)[:MOST_OTHERS],
        SUDDEN: True,
    }
    return Event(EventKind.SLOW_JOB, job.id, None, slow.since, detail, job.attempt)


def _comparison(slow: Slow) -> str:
    return "before" if slow.against == "itself" else "its peers"


def _restart_s(view: View) -> float:
    """Return what a restart costs: the way to the first step, and the steps since the last checkpoint once more."""
    start_s = view.first_step_s if view.first_step_s is not None else RESTART_S
    usual = view.cadence.usual_step_s
    saves = view.saves
    since = saves.newest_step - saves.steps[-1] if saves.steps else 0
    return start_s + since * usual


def late_saves_of(view: View, limits: SaveLimits, now: datetime) -> Event | None:
    """Return the event of checkpoints that stay away; None while they come, or while the loss is off: then that is what is told."""
    late, job = view.saves.late(limits, now), view.job
    if late is None or view.loss.is_off:
        return None
    detail = {
        **about(job),
        "last_step": late.last_step,
        "every_steps": late.every_steps,
        "steps_since": late.steps_since,
        "last_at": late.last_at.isoformat(),
    }
    return Event(EventKind.CHECKPOINTS_LATE, job.id, None, now, detail, job.attempt)
