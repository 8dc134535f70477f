"""Show the figures to Prometheus: as a file for node_exporter's textfile collector, and on an own /metrics."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
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

from assistant.daemon.figures import FAMILIES, MetricFamily, Sort, WatchStanding, figures, histogram_of
from assistant.daemon.pass_result import Passed
from assistant.display import line
from assistant.errors import StoreError
from assistant.redact import redact
from assistant.store import Count, Store

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

__all__ = ["MetricsServer", "families_of", "write_textfile"]

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

    def passed(self, passed: Passed) -> None:
        """Take the figures anew; the old ones stay when the store does not answer."""
        try:
            self._figures = figures(self.store, passed, self.standing(), self.store.clock.now())
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
            yield HistogramMetricFamily(family.shown, family.help, buckets=buckets, sum_value=total)
        return
    kind = CounterMetricFamily if family.sort is Sort.COUNTER else GaugeMetricFamily
    metric = kind(family.shown, family.help, labels=family.labels)
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
