"""Figures of the watch, read from the store and shown to Prometheus: as a textfile for node_exporter, and on an own /metrics.

Names follow https://prometheus.io/docs/practices/naming/. A label has few values, all known beforehand: no job, no node, no user.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
    start_http_server,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from assistant.daemon.pass_result import PassResult
from assistant.display import line
from assistant.errors import StoreError
from assistant.records import IncidentState
from assistant.redact import redact
from assistant.store import Count, Store
from assistant.store.standing_decisions import why_open
from assistant.store.watches import cursor_of

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer


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
    def exported_name(self) -> str:
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


def figures(store: Store, pass_result: PassResult, standing: WatchStanding, now: datetime) -> dict[Count, float]:
    """Return what every figure stands at, without the prefix and without `_total`.

    A watch that stands by shows only how it stands itself: what is counted in the store is shown once, by the leader.

    Raises:
        StoreError: The store cannot be read.
    """
    with store.snapshot():
        own = {**dict(_own(store, pass_result)), **dict(_site(standing))}
        if not pass_result.leads:
            return own
        none = {Count("passes", (("result", result),)): 0.0 for result in ("whole", "degraded")}
        return {
            **none,
            **store.counts(),
            **own,
            **dict(_store_figures(store, pass_result, now)),
            **dict(_delivery_lag(store, standing.sinks)),
        }


def _own(store: Store, pass_result: PassResult) -> Iterator[tuple[Count, float]]:
    whole = [watch.whole_at for watch in store.watches() if watch.whole_at is not None]
    if whole:
        yield Count("last_whole_pass_timestamp_seconds"), max(whole).timestamp()
    yield Count("last_pass_timestamp_seconds"), pass_result.at.timestamp()
    yield Count("leader"), float(pass_result.leads)
    yield Count("pass_troubles"), len(pass_result.troubles)


def _site(standing: WatchStanding) -> Iterator[tuple[Count, float]]:
    yield Count("build_info", (("version", standing.version),)), 1.0
    yield Count("policy_info", (("digest", standing.digest), ("mode", standing.mode))), 1.0
    yield Count("kill_switch"), float(standing.stopped_by is not None)


def _store_figures(store: Store, pass_result: PassResult, now: datetime) -> Iterator[tuple[Count, float]]:
    yield Count("incidents_in_flight"), pass_result.in_flight
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


logger = logging.getLogger(__name__)


@dataclass(eq=False)
class MetricsServer(Collector):
    """Holds the figures of the last pass; a scrape never waits for a pass or the store."""

    store: Store
    standing: Callable[[], WatchStanding]
    textfile: Path | None = None
    listen: str = ""
    """`address:port`; empty: no server."""
    _figures: Mapping[Count, float] = field(default_factory=dict, init=False)
    _server: WSGIServer | None = field(default=None, init=False)
    _serving: threading.Thread | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(self)
        if self.listen:
            for more in (ProcessCollector, PlatformCollector, GCCollector):
                more(registry=self.registry)
            self._serve()

    @property
    def port(self) -> int | None:
        """Where the server listens; None without one."""
        return self._server.server_port if self._server is not None else None

    def collect(self) -> Iterator[Metric]:
        """Yield the figures of the last pass, for the registry."""
        current = self._figures
        for family in FAMILIES:
            yield from families_of(family, current)

    def report(self, pass_result: PassResult) -> None:
        """Take the figures anew; the old ones stay when the store does not answer."""
        try:
            self._figures = figures(self.store, pass_result, self.standing(), self.store.clock.now())
            if self.textfile is not None:
                write_textfile(self.textfile, generate_latest(self.registry))
        except (StoreError, OSError) as error:
            logger.warning("metrics stay as they were: %s", error)

    def close(self) -> None:
        """Stop the server; the file stays, and its times tell how old it is."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        if self._serving is not None:
            self._serving.join(2.0)

    def _serve(self) -> None:
        host, _, port = self.listen.rpartition(":")
        try:
            self._server, self._serving = start_http_server(int(port), host.strip("[]"), self.registry)
        except OSError as error:
            logger.error("metrics.listen: nobody can be served at %s: %s; the watch goes on without", self.listen, error)


def families_of(family: MetricFamily, values: Mapping[Count, float]) -> Iterator[Metric]:
    """Yield one family of figures as Prometheus has it; nothing for a histogram without observations."""
    if family.sort is Sort.HISTOGRAM:
        buckets, total = histogram_of(family.name, values)
        if buckets:
            yield HistogramMetricFamily(family.exported_name, family.help, buckets=buckets, sum_value=total)
        return
    kind = CounterMetricFamily if family.sort is Sort.COUNTER else GaugeMetricFamily
    metric = kind(family.exported_name, family.help, labels=family.labels)
    for count, value in values.items():
        if count.name == family.name:
            metric.add_metric([line(redact(dict(count.labels)[label])) for label in family.labels], value)
    yield metric


def write_textfile(path: Path, text: bytes) -> None:
    """Replace a file in one step, readable by everybody: node_exporter runs as another user and may read at any moment.

    Raises:
        OSError: The folder does not exist or may not be written.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        new.write_bytes(text)
        new.chmod(0o644)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
