"""How the watch stands, read from the store or from another host's /metrics, and what a monitoring system should make of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from assistant.display import span
from assistant.errors import Unavailable
from assistant.overall_state import OverallState, StateLevel, StateSubject, StoreFacts, SystemFacts, judge, read_facts

if TYPE_CHECKING:
    from assistant.policy import PolicyStanding
    from assistant.store import Said, Store

__all__ = ["Level", "Status", "judged", "of_store", "of_url"]

_FETCH_S = 10.0
_MOST_BYTES = 4 << 20


class Level(StrEnum):
    """What it comes to, in the words of monitoring plugins."""

    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Status:
    """How the watch stands."""

    leader: str | None
    """Who leads; None when nobody does, or where that is not told."""
    leads_since: datetime | None
    stand_by: Sequence[str] = ()
    """Other watches that passed within the last minutes."""
    last_pass: datetime | None = None
    last_whole_pass: datetime | None = None
    """When the last pass began that saw everything; None when there was none."""
    trouble: Sequence[str] = ()
    """What the last pass could not see or do."""
    troubles: int = 0
    """How much of that there was."""
    aside: Sequence[str] = ()
    """What the site keeps from Nightshift, which is no trouble."""
    remarks: Sequence[Said] = ()
    """What the watch remarked in the last hours, the newest first: of no incident, and not told by /metrics."""
    open_incidents: Mapping[str, int] | None = None
    """How many stand in each state."""
    in_flight: int = 0
    unacknowledged: Sequence[int] = ()
    """Ids of escalated incidents that nobody has acknowledged, oldest first, as far as they are told."""
    unacknowledged_count: int = 0
    acknowledged: int = 0
    """Escalated incidents of the last days that somebody has acknowledged; not told by /metrics."""
    approvals: Sequence[int] = ()
    """Ids of what waits for a person, as far as they are told."""
    approvals_waiting: int = 0
    nodes_out: Sequence[str] = ()
    """Nodes that were cordoned by Nightshift and not put back by it, as far as their names are told."""
    nodes_cordoned: int = 0
    kill_switch: str = ""
    """The switch that stops all changes; empty for none."""
    breaker: str = ""
    """Since when and why the breaker is open; empty when it is not."""
    mode: str = ""
    """Of the policy that the leading watch held in its last pass; of the files where none leads. `none`: no policy is in force."""
    policy: str = ""
    """Digest of that policy; empty where none is in force."""
    policy_problem: str = ""
    """Why the files of the policy cannot be obeyed, so that every change is refused; empty when they can."""
    policy_now: str = ""
    """Digest of what the files say now; empty where they are not whole, and where that is not told."""
    mode_now: str = ""
    source: str = ""
    """The store or the URL."""

    @property
    def facts(self) -> StoreFacts:
        """What of it is judged."""
        return StoreFacts(
            leader=self.leader,
            since=self.leads_since,
            last_look=self.last_pass,
            last_whole_look=self.last_whole_pass,
            trouble=tuple(self.trouble),
            troubles=self.troubles,
            mode=self.mode,
            policy=self.policy,
            policy_problem=self.policy_problem,
            policy_now=self.policy_now,
            mode_now=self.mode_now,
            kill_switch=self.kill_switch,
            breaker=self.breaker,
            open_incidents=sum((self.open_incidents or {}).values()),
            unacknowledged=self.unacknowledged_count,
            acknowledged=self.acknowledged,
            approvals=self.approvals_waiting,
        )


_LEVELS = {
    StateLevel.WELL: Level.OK,
    StateLevel.ATTENTION: Level.WARNING,
    StateLevel.UNKNOWN: Level.UNKNOWN,
    StateLevel.ALARM: Level.CRITICAL,
}
_AT_WORK = (StateSubject.INCIDENTS, StateSubject.ACKNOWLEDGED)
"""Told, and no reason to call anybody: Nightshift works on it, or a person does who has said so."""


def judged(status: Status, now: datetime, max_age: timedelta) -> tuple[Level, str]:
    """Return what it comes to and why, in a few words, the worst first, by the judgement that the chat shows as well.

    Critical: no pass saw everything within `max_age`, no policy is in force, or an escalated incident that nobody has
    acknowledged. Warning: the last pass was degraded, changes are stopped, the policy is another than in the last pass, or a call
    waits for a person. An incident that is worked on, by Nightshift or by whoever acknowledged it, is neither. Who leads is not
    judged: with `watch --once` nobody does between two passes.
    """
    state = judge(SystemFacts(now, max_age, store=status.facts))
    remarks = [remark for remark in state.remarks if remark.about not in _AT_WORK]
    level = _LEVELS[OverallState(tuple(remarks)).level]
    last_pass_text = f"last whole pass {_age(status, now)} ago" if status.last_whole_pass and level is not Level.CRITICAL else ""
    open_text = f"{status.facts.open_incidents} open incidents"
    in_hand = f"{status.acknowledged} acknowledged" if status.acknowledged else ""
    tail = [f"{status.leader} leads" if status.leader else "", last_pass_text, open_text, in_hand]
    texts = [f"{remark.text}{_command(remark.about, status)}" for remark in remarks]
    return level, ", ".join(part for part in (*texts, *tail) if part)


def _command(about: StateSubject, status: Status) -> str:
    """Return what a person types about a remark, behind a colon; empty where there is nothing."""
    match about:
        case StateSubject.ESCALATED if status.unacknowledged:
            return f": nightshift incident show {status.unacknowledged[0]}"
        case StateSubject.BREAKER:
            return ": nightshift breaker reset"
        case StateSubject.APPROVALS if len(status.approvals) == 1:
            return f": nightshift approve {status.approvals[0]}"
        case _:
            return ""


def figures_of(status: Status, now: datetime, max_age: timedelta) -> str:
    """Return the figures as monitoring plugins print them behind the bar."""
    age = (now - status.last_whole_pass).total_seconds() if status.last_whole_pass is not None else None
    many = sum((status.open_incidents or {}).values())
    parts = [f"whole_pass_age={age:.0f}s;;{max_age.total_seconds():.0f};0"] if age is not None else []
    parts += [f"open={many};;;0", f"unacknowledged={status.unacknowledged_count};;0;0"]
    parts += [f"approvals={status.approvals_waiting};0;;0", f"nodes_out={status.nodes_cordoned};;;0"]
    return " ".join(parts)


def of_store(store: Store, policy: PolicyStanding, stopped_by: str | None, now: datetime) -> Status:
    """Return how the watch stands by its store; nothing is written.

    Args:
        store: Of the watch.
        policy: What its files say now.
        stopped_by: The kill switch that is set, as this account sees it.
        now: The time.

    Raises:
        StoreError: The store cannot be read.
    """
    with store.snapshot():
        facts = read_facts(store, policy, stopped_by, now)
        watches = store.watches()
        own = next((watch for watch in watches if watch.owner == facts.watch), None)
        waiting = [approval.id for approval in store.approvals()]
        out, needs = store.nodes_out(), store.unacknowledged()
        return Status(
            leader=facts.leader,
            leads_since=facts.since if facts.leader == facts.watch else None,
            stand_by=[watch.owner for watch in watches if not watch.leads and now - watch.at < timedelta(minutes=2)],
            last_pass=facts.last_look,
            last_whole_pass=facts.last_whole_look,
            trouble=facts.trouble,
            troubles=facts.troubles,
            aside=store.aside(),
            remarks=store.remarks(),
            open_incidents=store.open_states(),
            in_flight=own.in_flight if own is not None else 0,
            unacknowledged=needs,
            unacknowledged_count=len(needs),
            acknowledged=facts.acknowledged,
            approvals=waiting,
            approvals_waiting=len(waiting),
            nodes_out=sorted(out),
            nodes_cordoned=len(out),
            kill_switch=facts.kill_switch,
            breaker=facts.breaker,
            mode=facts.mode,
            policy=facts.policy,
            policy_problem=facts.policy_problem,
            policy_now=facts.policy_now,
            mode_now=facts.mode_now,
            source=str(store.path),
        )


def of_url(url: str) -> Status:
    """Return how a watch stands by its /metrics, from any host.

    Raises:
        Unavailable: It does not answer, or with something else.
    """
    import urllib.request
    from http.client import HTTPException

    if not url.startswith(("http://", "https://")):
        raise Unavailable(f"{url}: is no address of metrics; write http://HOST:PORT/metrics")
    try:
        with urllib.request.urlopen(url, timeout=_FETCH_S) as reply:
            text = reply.read(_MOST_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError, HTTPException) as error:
        raise Unavailable(f"{url}: {getattr(error, 'reason', error)}; is metrics.listen set there?") from error
    return _of_metrics(text, url)


def _of_metrics(text: str, url: str) -> Status:
    from prometheus_client.parser import text_string_to_metric_families

    try:
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except (ValueError, KeyError, IndexError) as error:
        raise Unavailable(f"{url}: does not answer with metrics: {error}") from error
    values = {sample.name: sample.value for sample in samples}
    labels = {sample.name: sample.labels for sample in samples}
    if "nightshift_leader" not in values:
        raise Unavailable(f"{url}: answers, but with the metrics of something else")
    states = {
        sample.labels["state"]: int(sample.value)
        for sample in samples
        if sample.name == "nightshift_incidents_open" and sample.value
    }
    policy_labels = labels.get("nightshift_policy_info", {})
    return Status(
        leader=url if values["nightshift_leader"] else None,
        leads_since=None,
        last_pass=_moment(values.get("nightshift_last_pass_timestamp_seconds")),
        last_whole_pass=_moment(values.get("nightshift_last_whole_pass_timestamp_seconds")),
        troubles=int(values.get("nightshift_pass_troubles", 0)),
        open_incidents=states,
        in_flight=int(values.get("nightshift_incidents_in_flight", 0)),
        unacknowledged_count=int(values.get("nightshift_incidents_unacknowledged", 0)),
        approvals_waiting=int(values.get("nightshift_approvals_waiting", 0)),
        nodes_cordoned=int(values.get("nightshift_nodes_cordoned", 0)),
        kill_switch="set there" if values.get("nightshift_kill_switch") else "",
        breaker="there" if values.get("nightshift_breaker") else "",
        mode=policy_labels.get("mode", ""),
        policy=policy_labels.get("digest", ""),
        policy_problem="see `nightshift status` there" if policy_labels.get("mode") == "none" else "",
        source=url,
    )


def _moment(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def _age(status: Status, now: datetime) -> str:
    return span(max((now - status.last_whole_pass).total_seconds(), 0.0)) if status.last_whole_pass is not None else ""
