"""Count what a replay shows: how often, how many GPU-hours, what did harm or no good, what nobody can know. Pure.

Harm is judged by what really came next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from statistics import median

from assistant.engine.backtest.accounts import NodeEvents
from assistant.engine.backtest.attempts import HORIZON, Attempt, Starter, failed_at_once, first_on, ran_s
from assistant.engine.backtest.replay import Decided, Replayed
from assistant.records import Action, IncidentState, JobState, Verdict
from assistant.recover.identity import HOURS

WELL_S = 6 * 3600.0
"""A node on which the next job ran for so long was well."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A change that might have done harm, or no good."""

    kind: str
    job: str
    node: str
    at: datetime
    reason: str
    why: str
    gpu_hours: float | None = None


@dataclass(frozen=True, slots=True)
class Drains:
    """How the nodes fared that would have been cordoned."""

    well: int
    """The next job ran well on it for hours."""
    again: int
    """The next job failed there of the node."""
    drained: int
    """It was taken out really while the cordon would have stood; known only from the events of nodes."""
    unused: int
    """Nothing began on it while the cordon would have stood: people may have taken it out as well."""
    unclear: int


def bad_restarts(attempts: Sequence[Attempt], replayed: Sequence[Replayed]) -> list[Suspect]:
    """Return the restarts whose real counterpart failed again within minutes."""
    reasons = {entry.number: entry.diagnosis.reason for entry in replayed if entry.diagnosis is not None}
    suspects = []
    for entry in replayed:
        after = entry.after
        if entry.restart is None or after is None or not failed_at_once(attempts[after.number]):
            continue
        next_attempt, failed = attempts[after.number], attempts[entry.number]
        of = reasons.get(after.number, "")
        of = "the same" if of and of == reasons.get(entry.number) else of
        why = f"its next attempt failed within {max(1.0, ran_s(next_attempt) / 60):.0f} min" + (f" of {of}" if of else "")
        spent = ran_s(next_attempt) * (next_attempt.gpus or 0) / 3600 if next_attempt.gpus is not None else None
        suspects.append(Suspect("resubmit", failed.job.id, "", entry.at, reasons.get(entry.number, ""), why, spent))
    return suspects


def after_drains(
    attempts: Sequence[Attempt],
    replayed: Sequence[Replayed],
    drains: Sequence[tuple[Replayed, Decided]],
    events: NodeEvents,
) -> tuple[Drains, list[Suspect]]:
    """Return how the nodes fared that would have been cordoned, and the cordons of nodes that were well."""
    times: dict[str, list[datetime]] = {}
    for entry, change in drains:
        for node in change.nodes:
            times.setdefault(node, []).append(entry.at)
    first = first_on(attempts, times)
    blames = {(attempts[entry.number].job.id, attempts[entry.number].job.attempt): set(entry.blamed) for entry in replayed}
    count: Counter[str] = Counter()
    suspects = []
    for entry, change in drains:
        for node in change.nodes:
            after = first.get((node, entry.at))
            drained = events.taken_out(node, entry.at, timedelta(hours=HOURS)) is not None
            fate = "drained" if drained else _fate(node, entry.at, after, blames)
            count[fate] += 1
            if fate == "well" and after is not None:
                job, why = attempts[entry.number].job, f"job {after.job.id} ran {ran_s(after) / 3600:.1f} h on it next, and well"
                reason = entry.diagnosis.reason if entry.diagnosis is not None else ""
                suspects.append(Suspect("cordon", job.id, node, entry.at, reason, why))
    return Drains(count["well"], count["again"], count["drained"], count["unused"], count["unclear"]), suspects


def _fate(node: str, at: datetime, after: Attempt | None, blames: Mapping[tuple[str, int], set[str]]) -> str:
    started = after.job.started if after is not None else None
    if after is None or started is None or started > at + timedelta(hours=HOURS):
        return "unused"
    alone = after.job.state is JobState.NODE_FAIL and len(after.job.nodes) == 1
    if alone or node in blames.get((after.job.id, after.job.attempt), ()):
        return "again"
    return "well" if ran_s(after) >= WELL_S else "unclear"


LONGEST_WAIT_S = 24 * 3600.0
"""Of a wait, so much counts at most: who comes back after days may have wanted something else first."""
NIGHT = range(22, 24), range(7)
"""Hours of the day at which people sleep, in the zone of this machine."""


@dataclass(frozen=True, slots=True)
class Rate:
    """How often something would have happened."""

    count: int
    per_day: float
    per_week: float
    per_1000_jobs: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """GPU-hours between a failure and the submission that answered it."""

    answered: int
    """Failures that somebody answered with a submission, without doubt which."""
    median_min: float | None
    gpu_hours: float
    """As it was, for all of them."""
    queue_gpu_hours: float
    """From the submission to the start: nobody could have saved that."""
    restarts_alone: int
    """Of the answered ones: restarts that would have been made without a question, and whose real restart got somewhere."""
    saved_alone: float
    """GPU-hours that they would have saved."""
    restarts_asked: int
    """The same, for restarts that would have been made after a person's yes."""
    saved_asked: float
    progress_told: int
    """Failures whose logs tell their last step and their last checkpoint."""
    progress_gpu_hours: float
    """Training of these that had to be done again, with Nightshift as without."""


@dataclass
class Tally:
    """All figures of a replay."""

    first: datetime | None
    last: datetime | None
    days: float
    jobs: int
    """Attempts that ended in that time."""
    failed: int
    replayed: int
    gpu_hours_run: float
    states: Mapping[str, int]
    reasons: Mapping[str, int]
    playbooks: Mapping[str, int]
    ends: Mapping[str, int]
    restarts: Rate
    drains: Rate
    asked: Rate
    handed_over: Rate
    """Incidents that would have ended with a person, to fix or to decide."""
    changes: Mapping[str, Mapping[str, int]]
    """By action class and answer: allow, ask, deny, not_made."""
    refused_by: Mapping[str, int]
    """By rule of the policy."""
    asked_by: Mapping[str, int]
    not_made: Mapping[str, int]
    """Why a tool or a budget would have refused."""
    asked_at: tuple[int, ...]
    """Questions by hour of the day, in the zone of this machine."""
    asked_at_night: int
    asked_at_weekends: int
    waiting: Waiting
    nodes_after: Drains
    suspects: list[Suspect] = field(default_factory=list)
    repeated_nodes: Mapping[str, int] = field(default_factory=dict)
    """Nodes that were to blame more than once."""
    met_cordoned: int = 0
    """Failures of a node that an earlier cordon would have kept jobs away from."""
    unwanted: int = 0
    """Restarts of runs that nobody started again within a week."""
    unknown: Mapping[str, int] = field(default_factory=dict)


def tally(
    attempts: Sequence[Attempt],
    replayed: Sequence[Replayed],
    *,
    jobs: Iterable[Attempt],
    notice_s: float,
    answer_s: float,
    unknown: Mapping[str, int],
    events: NodeEvents | None = None,
) -> Tally:
    """Return the figures of a replay.

    Args:
        attempts: All of the history.
        replayed: What would have come of each failure.
        jobs: The attempts that ended in the time that was replayed.
        notice_s: From a failure to when it would have been noticed.
        answer_s: After which a person is taken to answer a question.
        unknown: What the reading of the files left open, by name.
        events: When nodes really were out; None where nobody knows.
    """
    ended = [entry for entry in jobs if entry.job.ended is not None]
    times = [entry.job.ended for entry in ended if entry.job.ended is not None]
    first, last = (min(times), max(times)) if times else (None, None)
    days = (last - first).total_seconds() / 86400 if first is not None and last is not None else 0.0
    changes = [(entry, change) for entry in replayed for change in entry.decided]
    made_changes = [(entry, change) for entry, change in changes if change.done]
    questions = [(entry, change) for entry, change in changes if change.verdict is Verdict.ASK]
    hours = [entry.at.astimezone() for entry, _ in questions]
    drains = [(entry, change) for entry, change in made_changes if change.kind == "cordon"]
    nodes_after, bad_drains = after_drains(attempts, replayed, drains, events or NodeEvents())
    blamed = Counter(node for entry in replayed if entry.diagnosis is not None for node in set(entry.diagnosis.faulty_nodes))
    # a few hours say nothing of a day
    rate = _Rates(max(days, 1.0), len(ended))
    late = _late(attempts)
    return Tally(
        first=first,
        last=last,
        days=round(days, 2),
        jobs=len(ended),
        failed=sum(entry.job.state.failed for entry in ended),
        replayed=len(replayed),
        gpu_hours_run=round(sum(ran_s(entry) * (entry.gpus or 0) for entry in ended) / 3600, 1),
        states=_counted(str(entry.job.state) for entry in ended),
        reasons=_counted(entry.diagnosis.reason for entry in replayed if entry.diagnosis is not None),
        playbooks=_counted(entry.playbook or "none" for entry in replayed),
        ends=_counted(str(entry.state or "error") for entry in replayed),
        restarts=rate.of(sum(change.kind == "resubmit" for _, change in made_changes)),
        drains=rate.of(len(drains)),
        asked=rate.of(len(questions)),
        handed_over=rate.of(sum(entry.state is IncidentState.ESCALATED for entry in replayed)),
        changes=_by_answer(change for _, change in changes),
        refused_by=_counted(change.rule for _, change in changes if change.verdict is Verdict.DENY and change.rule),
        asked_by=_counted(change.rule for _, change in questions),
        not_made=_counted(_why_not(entry) for entry in replayed if _why_not(entry)),
        asked_at=tuple(sum(at.hour == hour for at in hours) for hour in range(24)),
        asked_at_night=sum(any(at.hour in part for part in NIGHT) for at in hours),
        asked_at_weekends=sum(at.weekday() >= 5 for at in hours),
        waiting=_waiting(attempts, replayed, notice_s, answer_s),
        nodes_after=nodes_after,
        suspects=[*bad_drains, *bad_restarts(attempts, replayed)],
        repeated_nodes={node: count for node, count in blamed.most_common() if count > 1},
        met_cordoned=sum(bool(set(entry.already_out) & set(entry.blamed)) for entry in replayed),
        unwanted=sum(entry.restart is not None and entry.after is None and not late(entry) for entry in replayed),
        unknown={**unknown, **_unknown(attempts, ended, replayed, late)},
    )


def _late(attempts: Sequence[Attempt]) -> Callable[[Replayed], bool]:
    """Return what tells whether the history ends too early behind a failure to know what became of its run."""
    times = [at for entry in attempts for at in (entry.job.submitted, entry.job.started, entry.job.ended) if at is not None]
    newest = max(times, default=None)
    return lambda entry: newest is None or entry.at > newest - HORIZON


@dataclass(frozen=True, slots=True)
class _Rates:
    days: float
    jobs: int

    def of(self, count: int) -> Rate:
        """Return a count as rates."""
        per_day = count / self.days if self.days else 0.0
        return Rate(count, round(per_day, 2), round(7 * per_day, 2), round(1000 * count / self.jobs, 2) if self.jobs else 0.0)


def _counted(words: Iterable[str]) -> dict[str, int]:
    return dict(Counter(words).most_common())


def _by_answer(changes: Iterable[Decided]) -> dict[str, dict[str, int]]:
    by_answer: dict[str, Counter[str]] = {}
    for change in changes:
        refused = change.verdict is Verdict.DENY and change.rule
        word = "deny" if refused else str(change.verdict) if change.done else "not_made"
        by_answer.setdefault(change.kind, Counter())[word] += 1
    return {kind: dict(counts.most_common()) for kind, counts in sorted(by_answer.items())}


def _why_not(replay: Replayed) -> str:
    """Return, in few words, why a wanted restart would not have been made; empty where it was, or none was wanted."""
    change = replay.change("resubmit")
    refused = change is not None and change.verdict is Verdict.DENY and change.rule
    why = change.error if change is not None and not change.done and not refused else "" if replay.playbook else replay.note
    words = {
        "is the same run already": "the run was in the queue again already",
        "has queued it again itself": "the scheduler had queued it again",
        "nodes and": "too few usable nodes",
        "crash loop": "crash loop: the same step again",
        "no restart is left": "no restart left for this cause",
        "act=never": "the owner wants none",
        "neither cordoned nor excluded": "a node at fault could not be kept away",
    }
    return next((short for part, short in words.items() if part in why), why[:60] if why else "")


def _waiting(attempts: Sequence[Attempt], replayed: Sequence[Replayed], notice_s: float, answer_s: float) -> Waiting:
    waits, was, queue = [], 0.0, 0.0
    count = {Verdict.ALLOW: 0, Verdict.ASK: 0}
    saved = {Verdict.ALLOW: 0.0, Verdict.ASK: 0.0}
    for replay in replayed:
        after = replay.after
        if after is None or after.starter is not Starter.PERSON or not after.sure:
            continue
        gpus = attempts[replay.number].gpus or 0
        acted_s = min(after.acted_s, LONGEST_WAIT_S)
        waits.append(after.acted_s / 60)
        was += acted_s * gpus / 3600
        queue += (after.waited_s - after.acted_s) * gpus / 3600
        if replay.restart is None or not _helps(replay) or failed_at_once(attempts[after.number]):
            continue
        # a question about the cordon before it holds the restart up as well
        answer = Verdict.ASK if any(change.verdict is Verdict.ASK for change in replay.decided) else Verdict.ALLOW
        own_s = notice_s + (answer_s if answer is Verdict.ASK else 0.0)
        count[answer] += 1
        saved[answer] += max(0.0, acted_s - own_s) * gpus / 3600
    return Waiting(
        len(waits),
        round(median(waits), 1) if waits else None,
        round(was, 1),
        round(queue, 1),
        count[Verdict.ALLOW],
        round(saved[Verdict.ALLOW], 1),
        count[Verdict.ASK],
        round(saved[Verdict.ASK], 1),
        sum(replay.lost_s is not None for replay in replayed),
        round(sum((replay.lost_s or 0.0) * (attempts[replay.number].gpus or 0) for replay in replayed) / 3600, 1),
    )


def _helps(replay: Replayed) -> bool:
    """Whether a restart could have come sooner: one that waits for a service would have waited until nobody knows when."""
    return replay.diagnosis is not None and replay.diagnosis.action is not Action.WAIT_AND_RETRY


def _unknown(
    attempts: Sequence[Attempt], ended: Sequence[Attempt], replayed: Sequence[Replayed], late: Callable[[Replayed], bool]
) -> dict[str, int]:
    after = [entry.after for entry in replayed if entry.after is not None]
    unknowns = {
        "failures without a log": sum(not entry.has_log for entry in replayed),
        "failures without a kernel log": sum(not entry.has_kernel for entry in replayed),
        "failures whose reason is unknown": sum(
            entry.diagnosis is not None and entry.diagnosis.reason == "unknown" for entry in replayed
        ),
        "failures that could not be replayed": sum(entry.state is None for entry in replayed),
        "failures with no later attempt of the run within a week": sum(
            entry.after is None and not late(entry) for entry in replayed
        ),
        "failures of the last week with no later attempt of the run, so far": sum(
            entry.after is None and late(entry) for entry in replayed
        ),
        "next attempts that need not be an answer: others of that name ran beside": sum(not entry.sure for entry in after),
        "failures whose playbook tests the nodes, which the past cannot answer: drains may be more": sum(
            bool(entry.unasked) for entry in replayed
        ),
        "failed attempts whose GPUs are not told": sum(attempts[entry.number].gpus is None for entry in replayed),
        "jobs that somebody cancelled: a hang or a spike may stand behind them": sum(
            entry.job.state is JobState.CANCELLED and entry.job.started is not None for entry in ended
        ),
    }
    return {name: count for name, count in unknowns.items() if count}
