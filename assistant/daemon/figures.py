"""The figures that the watch shows: which there are, and what they stand at, read from the store.

Names follow https://prometheus.io/docs/practices/naming/. A label has few values, all known beforehand: no job, no node, no user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from assistant.daemon.pass_result import Passed
from assistant.records import IncidentState
from assistant.store import Count, Store
from assistant.store.breaker import why_open
from assistant.store.deliveries import cursor_of

__all__ = ["FAMILIES", "MetricFamily", "Sort", "WatchStanding", "figures"]


class Sort(StrEnum):
    """How a figure moves."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One figure, or one for each value of its labels."""

    name: str
    """Behind `nightshift_`; a counter is shown with `_total` at its end."""
    sort: Sort
    help: str
    labels: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """Its name in Prometheus."""
        return f"nightshift_{self.name}" + ("_total" if self.sort is Sort.COUNTER else "")


FAMILIES = (
    MetricFamily("build_info", Sort.GAUGE, "1, with the version.", ("version",)),
    MetricFamily("leader", Sort.GAUGE, "Whether this watch leads (1) or stands by (0)."),
    MetricFamily("passes", Sort.COUNTER, "Passes that saw everything (whole), or not (degraded).", ("result",)),
    MetricFamily("pass_seconds", Sort.HISTOGRAM, "How long a pass of the leading watch took."),
    MetricFamily("last_pass_timestamp_seconds", Sort.GAUGE, "When the last pass of this watch began."),
    MetricFamily("last_whole_pass_timestamp_seconds", Sort.GAUGE, "When the last pass of any watch began that saw everything."),
    MetricFamily("pass_troubles", Sort.GAUGE, "What the last pass could not see or do."),
    MetricFamily("incidents_opened", Sort.COUNTER, "Incidents, by what was noticed.", ("kind",)),
    MetricFamily("incidents", Sort.COUNTER, "Incidents, by the reason first found and who found it.", ("by", "reason")),
    MetricFamily("incidents_ended", Sort.COUNTER, "Incidents that ended, by how and the reason last found.", ("reason", "state")),
    MetricFamily("incidents_open", Sort.GAUGE, "Incidents that are not over, by where they stand.", ("state",)),
    MetricFamily("incidents_unacknowledged", Sort.GAUGE, "Escalated incidents that nobody has acknowledged."),
    MetricFamily("incidents_in_flight", Sort.GAUGE, "Incidents that are being worked on right now."),
    MetricFamily("recovery_seconds", Sort.HISTOGRAM, "From a failure to the job being verified as recovered."),
    MetricFamily("actions", Sort.COUNTER, "Changes: done, failed, denied, asked about, undone.", ("kind", "outcome")),
    MetricFamily("approvals", Sort.COUNTER, "Approvals that were answered.", ("answer",)),
    MetricFamily("approvals_waiting", Sort.GAUGE, "Calls that wait for a person."),
    MetricFamily("nodes_cordoned", Sort.GAUGE, "Nodes that were taken out by Nightshift and not put back by it."),
    MetricFamily("kill_switch", Sort.GAUGE, "Whether a kill switch stops all changes."),
    MetricFamily("breaker", Sort.GAUGE, "Whether the breaker stops all changes until a person resets it."),
    MetricFamily(
        "policy_info", Sort.GAUGE, "1, with mode and digest of the policy in force; mode none where none is.", ("mode", "digest")
    ),
    MetricFamily("notices", Sort.COUNTER, "Notifications: sent, failed, held back as told lately.", ("outcome", "sink")),
    MetricFamily("notices_behind", Sort.GAUGE, "Rows of the audit that a place was not yet told of.", ("sink",)),
    MetricFamily("audit_rows", Sort.GAUGE, "Rows of the audit."),
    MetricFamily("store_bytes", Sort.GAUGE, "Size of the store's file."),
)
"""Every figure."""

_OPEN = tuple(state for state in IncidentState if not state.ended)


@dataclass(frozen=True, slots=True)
class WatchStanding:
    """What is true of this site besides the store."""

    version: str
    mode: str
    """Of the policy."""
    stopped_by: str | None
    """The kill switch that is set."""
    sinks: Sequence[str] = ()
    digest: str = ""
    """Of the policy; empty where none is in force."""


def figures(store: Store, passed: Passed, standing: WatchStanding, now: datetime) -> dict[Count, float]:
    """Return what every figure stands at, without the prefix and without `_total`.

    A watch that stands by shows only how it stands itself: what is counted in the store is shown once, by the leader.

    Raises:
        StoreError: The store cannot be read.
    """
    with store.snapshot():
        own = {**dict(_own(store, passed)), **dict(_site(standing))}
        if not passed.leads:
            return own
        none = {Count("passes", (("result", result),)): 0.0 for result in ("whole", "degraded")}
        return {
            **none,
            **store.counts(),
            **own,
            **dict(_store_figures(store, passed, now)),
            **dict(_delivery_lag(store, standing.sinks)),
        }


def _own(store: Store, passed: Passed) -> Iterator[tuple[Count, float]]:
    whole = [watch.whole_at for watch in store.watches() if watch.whole_at is not None]
    if whole:
        yield Count("last_whole_pass_timestamp_seconds"), max(whole).timestamp()
    yield Count("last_pass_timestamp_seconds"), passed.at.timestamp()
    yield Count("leader"), float(passed.leads)
    yield Count("pass_troubles"), len(passed.troubles)


def _site(standing: WatchStanding) -> Iterator[tuple[Count, float]]:
    yield Count("build_info", (("version", standing.version),)), 1.0
    yield Count("policy_info", (("digest", standing.digest), ("mode", standing.mode))), 1.0
    yield Count("kill_switch"), float(standing.stopped_by is not None)


def _store_figures(store: Store, passed: Passed, now: datetime) -> Iterator[tuple[Count, float]]:
    yield Count("incidents_in_flight"), passed.in_flight
    states = store.open_states()
    for state in _OPEN:
        yield Count("incidents_open", (("state", str(state)),)), states.get(state, 0)
    yield Count("incidents_unacknowledged"), len(store.unacknowledged())
    yield Count("approvals_waiting"), store.waiting_approvals(now)
    yield Count("nodes_cordoned"), len(store.nodes_out())
    yield Count("breaker"), float(why_open(store) is not None)
    yield Count("audit_rows"), store.newest_row()
    yield Count("store_bytes"), _size(store.path)


def _delivery_lag(store: Store, sinks: Sequence[str]) -> Iterator[tuple[Count, float]]:
    newest = store.newest_row()
    for sink in sinks:
        position = store.cursor(cursor_of(sink))
        yield Count("notices_behind", (("sink", sink),)), newest - position if position is not None else 0


def _size(path: Path) -> float:
    try:
        return float(path.stat().st_size)
    except OSError:
        return 0.0


def histogram_of(name: str, values: Mapping[Count, float]) -> tuple[list[tuple[str, float]], float]:
    """Return the buckets of a histogram, the smallest bound first, and the sum of what was observed."""
    buckets = [(dict(count.labels)["le"], value) for count, value in values.items() if count.name == f"{name}_bucket"]
    return sorted(buckets, key=lambda pair: float(pair[0])), values.get(Count(f"{name}_sum"), 0.0)
