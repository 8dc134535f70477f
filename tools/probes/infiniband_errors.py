"""Error counters and flaps of InfiniBand and RoCE ports, per hour since boot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight, judged, merged, ok, unknown
from assistant.tools.probes._infiniband import Port, infiniband_probe, ports

CABLE = "reseat or replace cable and transceiver; compare with the switch port's counters"
LINK_ERRORS = (
    "port_rcv_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "link_error_recovery",
    "packet_seq_err",
    "local_ack_timeout_err",
)


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Judge the counters of each port."""
    found = ports(reply)
    if found is None:
        return [unknown("the adapters could not be read")]
    hours = 1.0
    if circumstances.booted is not None:
        hours = max(1.0, (circumstances.now - circumstances.booted).total_seconds() / 3600)
    bad = merged((port.name, finding) for port in found for finding in _judge(port, hours, circumstances))
    return bad or [ok(f"error counters of {len(found)} ports are low", len(found), unit="ports")]


def _judge(port: Port, hours: float, circumstances: Circumstances) -> Iterator[Finding]:
    limits = circumstances.limits.node
    symbols = port.count("symbol_error") / hours
    if symbols > limits.symbol_errors_per_hour:
        text = f"port {{}}: {symbols:.0f} symbol errors an hour"
        yield Finding(Health.WARNING, text, round(symbols, 1), limits.symbol_errors_per_hour, "errors/h", CABLE)
    for name in LINK_ERRORS:
        rate = port.count(name) / hours
        if rate > limits.link_errors_per_hour:
            text = f"port {{}}: {rate:.0f} {name} an hour"
            yield Finding(Health.WARNING, text, round(rate, 1), limits.link_errors_per_hour, "errors/h", CABLE)
    flaps = port.count("link_downed") or (port.count("carrier_changes") // 2 if port.ethernet else 0)
    status = judged(flaps, limits.flaps_warning, limits.flaps_critical)
    if status is not Health.OK and port.up:
        text = f"port {{}} went down {flaps} times since boot"
        limit = limits.flaps_critical if status is Health.CRITICAL else limits.flaps_warning
        yield Finding(status, text, flaps, limit, "times", CABLE, Weight.COUNTS)


PROBE = infiniband_probe(
    "infiniband_errors", parse, "InfiniBand specification: 120 symbol errors an hour; flaps: limits of our own"
)
