"""How things stand: one judgement for the first line of the chat, its panels, the answer to "what is wrong?", and `status`.

`SystemFacts` are what is known at one moment, `judge` says what it comes to. Whatever is not known, handed to a person, stopped
or watched by nobody keeps it from being well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from assistant.records import IncidentState
from assistant.store.incidents import ACKNOWLEDGED
from assistant.store.rows import time_text
from assistant.store.standing_decisions import why_open

if TYPE_CHECKING:
    from assistant.policy import PolicyStanding
    from assistant.store import Store

__all__ = [
    "FIRST_STEPS",
    "OverallState",
    "SchedulerFacts",
    "StateLevel",
    "StateRemark",
    "StateSubject",
    "StoreFacts",
    "SystemFacts",
    "judge",
    "longest_gap",
    "read_facts",
    "span_text",
]

LATE = timedelta(seconds=30)
"""How old the scheduler's last answer may be before its age is told; the chat asks every five seconds."""
ACKNOWLEDGED_FOR = timedelta(days=7)
"""How long an escalated incident that somebody has acknowledged is named: nothing in the store tells when their work ended."""
FIRST_STEPS = (
    'Say where jobs run: scheduler = "slurm" in ~/.config/nightshift/config.toml, on a login node ("local" for this machine).',
    "See what Nightshift can do there: nightshift doctor",
    "Let it watch: nightshift watch (it changes nothing before the policy says so). To look around first: nightshift demo --chat",
)
"""From a fresh machine to a cluster that is watched."""


class StateLevel(StrEnum):
    """What it comes to, the best first."""

    WELL = "well"
    ATTENTION = "attention"
    """Somebody should look when there is time: a change waits, all changes are stopped, an incident is open."""
    UNKNOWN = "unknown"
    """Something cannot be seen now, so nobody can tell."""
    ALARM = "alarm"
    """A person is needed: nobody watches, an incident was handed over, no change is possible."""

    @property
    def rank(self) -> int:
        """Higher is worse."""
        return list(StateLevel).index(self)


class StateSubject(StrEnum):
    """What a remark is about, in the order in which remarks of one level are told."""

    STORE = "store"
    CLUSTER = "cluster"
    SCHEDULER = "scheduler"
    WATCH = "watch"
    POLICY = "policy"
    ESCALATED = "escalated"
    KILL_SWITCH = "kill_switch"
    BREAKER = "breaker"
    APPROVALS = "approvals"
    INCIDENTS = "incidents"
    ACKNOWLEDGED = "acknowledged"


_FIRST = (StateSubject.STORE, StateSubject.CLUSTER, StateSubject.SCHEDULER)
"""Without these the rest is not current: told before anything else."""


@dataclass(frozen=True, slots=True)
class StateRemark:
    """One thing that keeps it from being well."""

    level: StateLevel
    about: StateSubject
    text: str
    """A sentence without its capital and its full stop, so that several can stand in one line; names no command."""
    short: str
    """The same in a few words."""
    begins: bool = False
    """Whether it is unknown only because nothing has been read yet, as at a start."""

    @property
    def sentence(self) -> str:
        """The text as a sentence of its own."""
        return f"{self.text[:1].upper()}{self.text[1:]}{'' if self.text.endswith(('.', '!', '?')) else '.'}"


@dataclass(frozen=True, slots=True)
class OverallState:
    """What is known, judged."""

    remarks: tuple[StateRemark, ...] = ()
    """What everything else rests on first, then the worst first."""

    @property
    def level(self) -> StateLevel:
        """The worst of all remarks."""
        return max((remark.level for remark in self.remarks), key=lambda level: level.rank, default=StateLevel.WELL)

    @property
    def begins(self) -> bool:
        """Whether nothing is known to be wrong, and something has not been read yet."""
        return bool(self.remarks) and all(remark.begins for remark in self.remarks)

    @property
    def sentences(self) -> tuple[str, ...]:
        """All remarks as sentences; that nothing is wrong where there is none."""
        return tuple(remark.sentence for remark in self.remarks) or ("Nothing is wrong.",)

    def about(self, subject: StateSubject) -> StateRemark | None:
        """Return the remark about a subject, None where there is none."""
        return next((remark for remark in self.remarks if remark.about is subject), None)


@dataclass(frozen=True, slots=True)
class SchedulerFacts:
    """Whether the scheduler answers those who look."""

    answered: datetime | None = None
    """When it last did; None before the first answer."""
    trouble: str = ""
    """Why it does not now; empty while it does."""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """What store and policy say of the watch, of what stops changes, and of what is open."""

    leader: str | None = None
    """The watch that leads by a lease that holds; None where none does."""
    watch: str = ""
    """The watch that made the last pass as a leader; empty when none ever did."""
    since: datetime | None = None
    """When that watch made its first pass."""
    last_look: datetime | None = None
    """When its last pass began. A name with `pass` in it would be taken for a password where values lose their secrets."""
    last_whole_look: datetime | None = None
    """When the last pass began that saw everything; None when there was none."""
    trouble: tuple[str, ...] = ()
    """What the last pass could not see or do, as far as it is told."""
    troubles: int = 0
    """How much of that there was."""
    mode: str = ""
    """Of the policy that the leading watch held in its last pass; of the files where none leads."""
    policy: str = ""
    """Digest of that policy; empty where none is in force, and where that is not told."""
    policy_problem: str = ""
    policy_now: str = ""
    """Digest of what the files say now; empty where they are not whole, and where that is not told."""
    mode_now: str = ""
    kill_switch: str = ""
    """The switch that is set; empty for none."""
    breaker: str = ""
    """Since when and why it is open; empty when it is not."""
    open_incidents: int = 0
    unacknowledged: int = 0
    """Escalated incidents that nobody has acknowledged."""
    acknowledged: int = 0
    """Those of the last days that somebody has."""
    approvals: int = 0
    """Calls that wait for a person."""

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> StoreFacts:
        """Return the facts from their JSON values; what is not among them keeps its default."""
        facts = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
        facts |= {name: datetime.fromisoformat(facts[name]) for name in _MOMENTS if facts.get(name)}
        return cls(**{**facts, "trouble": tuple(facts.get("trouble", ()))})

    def is_watched(self, now: datetime, gap: timedelta) -> bool:
        """Tell whether a watch lives: it leads by a lease, or made a pass within a time."""
        return self.leader is not None or (self.last_look is not None and now - self.last_look <= gap)


_MOMENTS = ("since", "last_look", "last_whole_look")


@dataclass(frozen=True, slots=True)
class SystemFacts:
    """All that is judged."""

    now: datetime
    gap: timedelta
    """How long no pass may see everything."""
    store: StoreFacts | None = None
    """As it was read last; None before that."""
    store_trouble: str = ""
    """Why it cannot be read now."""
    scheduler: SchedulerFacts | None = None
    """None where whoever asks does not look at it: then a whole pass of the watch stands for its answer."""
    configured: bool = True
    """Whether anybody has said where jobs run."""


def longest_gap(poll_s: float) -> timedelta:
    """Return how long no pass of a watch may see everything, by the seconds between two of its passes."""
    return timedelta(seconds=poll_s * 3 + 60)


def judge(facts: SystemFacts) -> OverallState:
    """Return what is known, judged.

    It is well only where all of it is known, and nothing is wrong, waits, is stopped, was handed over or is watched by nobody.
    """
    order = list(StateSubject)
    remarks = sorted(
        _remarks(facts),
        key=lambda remark: (remark.about not in _FIRST, -remark.level.rank, order.index(remark.about)),
    )
    return OverallState(tuple(remarks))


def _remarks(facts: SystemFacts) -> Iterator[StateRemark]:
    if trouble := facts.store_trouble:
        # a message begins with the path, and a narrow line has room for what it says
        path, _, message = trouble.partition(": ")
        short = f"! {message if message and path.startswith('/') else trouble}"
        yield StateRemark(StateLevel.ALARM, StateSubject.STORE, f"the store cannot be read now: {trouble}", short)
    elif facts.store is None:
        yield StateRemark(
            StateLevel.UNKNOWN, StateSubject.STORE, "the store has not been read yet", "opening the store…", begins=True
        )
    if not facts.configured:
        text = "this is no cluster yet: nobody has said where jobs run"
        yield StateRemark(StateLevel.UNKNOWN, StateSubject.CLUSTER, text, "no cluster yet")
    elif facts.scheduler is not None:
        yield from _of_scheduler(facts.scheduler, facts.now)
    if facts.store is not None:
        if facts.configured:
            yield from _of_watch(facts.store, facts.now, facts.gap)
        yield from _of_policy(facts.store)
        yield from _of_cases(facts.store)


def _of_scheduler(scheduler: SchedulerFacts, now: datetime) -> Iterator[StateRemark]:
    about, level, last_answer = StateSubject.SCHEDULER, StateLevel.UNKNOWN, scheduler.answered
    if scheduler.trouble:
        since = f" since {_clock(last_answer, now)}" if last_answer is not None else ""
        yield StateRemark(level, about, f"the scheduler does not answer{since}: {scheduler.trouble}", f"! scheduler silent{since}")
    elif last_answer is None:
        yield StateRemark(level, about, "the scheduler has not answered yet", "asking the scheduler…", begins=True)
    elif now - last_answer > LATE:
        old = span_text(now - last_answer)
        yield StateRemark(level, about, f"the scheduler's last answer is {old} old", f"! scheduler's answer {old} old")


def _of_watch(store: StoreFacts, now: datetime, gap: timedelta) -> Iterator[StateRemark]:
    about, lives = StateSubject.WATCH, store.is_watched(now, gap)
    if store.last_whole_look is None:
        text = "no pass ever saw everything" if lives or store.last_look else "no pass ever saw everything: no watch ever ran"
        yield StateRemark(StateLevel.ALARM, about, text, "! watch sees only a part" if lives else "! no watch")
    elif now - store.last_whole_look > gap:
        old = span_text(now - store.last_whole_look)
        text = f"no pass saw everything for {old}{'' if lives else ': no watch is alive'}"
        yield StateRemark(StateLevel.ALARM, about, text, f"! nothing whole seen for {old}" if lives else f"! no watch for {old}")
    if store.troubles:
        first = f": {store.trouble[0]}" if store.trouble else ""
        yield StateRemark(StateLevel.ATTENTION, about, f"the last pass was degraded{first}", "watch degraded")


def _of_policy(store: StoreFacts) -> Iterator[StateRemark]:
    if store.policy_problem:
        text = f"no policy is in force, every change is refused: {store.policy_problem}"
        yield StateRemark(StateLevel.ALARM, StateSubject.POLICY, text, "! no policy in force")
    elif store.policy_now and store.policy and store.policy_now != store.policy:
        text = f"the policy was edited since the last pass: mode {store.mode_now} after {store.mode}; it is read before each change"
        yield StateRemark(StateLevel.ATTENTION, StateSubject.POLICY, text, "policy edited")
    if store.kill_switch:
        text = f"the kill switch is set: {store.kill_switch}"
        yield StateRemark(StateLevel.ATTENTION, StateSubject.KILL_SWITCH, text, "■ stopped")
    if store.breaker:
        yield StateRemark(StateLevel.ATTENTION, StateSubject.BREAKER, f"the breaker is open {store.breaker}", "! breaker open")


def _of_cases(store: StoreFacts) -> Iterator[StateRemark]:
    if count := store.unacknowledged:
        text = "1 incident needs a person" if count == 1 else f"{count} incidents need a person"
        yield StateRemark(StateLevel.ALARM, StateSubject.ESCALATED, text, f"! {count} handed over")
    if count := store.approvals:
        text = "1 change waits for a yes or no" if count == 1 else f"{count} changes wait for a yes or no"
        short = f"{count} wait{'s' * (count == 1)} for you"
        yield StateRemark(StateLevel.ATTENTION, StateSubject.APPROVALS, text, short)
    if count := store.open_incidents:
        short = f"{count} incident{'s' * (count > 1)}"
        yield StateRemark(StateLevel.ATTENTION, StateSubject.INCIDENTS, f"open incidents: {count}", short)
    if count := store.acknowledged:
        text = f"{count} incident{' is' if count == 1 else 's are'} in a person's hands"
        yield StateRemark(StateLevel.ATTENTION, StateSubject.ACKNOWLEDGED, text, f"{count} in a person's hands")


def read_facts(store: Store, policy: PolicyStanding, stopped_by: str | None, now: datetime) -> StoreFacts:
    """Return what the store says now, one state of it; nothing is written.

    Args:
        store: Of the watch.
        policy: What its files say now.
        stopped_by: The kill switch that is set, as this account sees it.
        now: The time.

    Raises:
        StoreError: The store cannot be read.
    """
    with store.snapshot():
        lease, watches = store.leader(), store.watches()
        leader = lease.owner if lease is not None and lease.until > now else None
        leading = next((watch for watch in watches if watch.owner == leader), None) or next(
            (watch for watch in watches if watch.leads), None
        )
        leads_now = leading is not None and leading.leads and leading.owner == leader
        complete_passes = [watch.whole_at for watch in watches if watch.whole_at is not None]
        needs = store.unacknowledged()
        return StoreFacts(
            leader=leader,
            watch=leading.owner if leading is not None else "",
            since=leading.began if leading is not None else None,
            last_look=leading.at if leading is not None else None,
            last_whole_look=max(complete_passes, default=None),
            trouble=leading.trouble if leading is not None else (),
            troubles=len(leading.trouble) if leading is not None else 0,
            mode=leading.mode if leads_now and leading is not None and leading.mode else policy.mode,
            policy=leading.policy if leads_now and leading is not None and leading.mode else policy.digest,
            policy_problem=policy.problem or (leading.policy_problem if leads_now and leading is not None else ""),
            policy_now=policy.digest,
            mode_now=policy.mode,
            kill_switch=stopped_by or "",
            breaker=why_open(store) or "",
            open_incidents=sum(store.open_states().values()),
            unacknowledged=len(needs),
            acknowledged=_acknowledged(store, now),
            approvals=store.waiting_approvals(now),
        )


def _acknowledged(store: Store, now: datetime) -> int:
    sql = (
        "SELECT count(*) AS many FROM incidents WHERE state = ? AND EXISTS (SELECT 1 FROM stages WHERE "
        "incident = incidents.id AND stage = ? AND at >= coalesce(incidents.closed, '') AND at > ?)"
    )
    row = store.row(sql, [str(IncidentState.ESCALATED), ACKNOWLEDGED, time_text(now - ACKNOWLEDGED_FOR)])
    return int(row["many"]) if row is not None else 0


def span_text(span: timedelta) -> str:
    """Return a span in the largest unit that keeps it above two: `90 s`, `45 min`, `20 h`, `3 d`."""
    seconds = max(0.0, span.total_seconds())
    for unit, size, end in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if seconds < end * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def _clock(at: datetime, now: datetime) -> str:
    local, today = at.astimezone(), now.astimezone()
    return local.strftime("%H:%M:%S" if local.date() == today.date() else "%m-%d %H:%M")
