"""Error counters and flaps of InfiniBand and RoCE ports, per hour: since an earlier check, or on the average since boot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from assistant.content.devices import NodeLimits
from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, merged, ok, unknown
from assistant.tools.probes._counters import Ceiling, Counter, counts, judged
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
    every = [one for port in found for one in _counters(port, circumstances.limits.node)]
    bad = merged((one.device, finding) for one in every if (finding := judged(one, circumstances)) is not None)
    return bad or [ok(f"error counters of {len(found)} ports are low ({circumstances.past.told})", len(found), unit="ports")]


def _all(reply: Reply, circumstances: Circumstances) -> Iterator[Counter]:
    for port in ports(reply) or ():
        yield from _counters(port, circumstances.limits.node)


def _counters(port: Port, limits: NodeLimits) -> Iterator[Counter]:
    device, none = f"port {port.name}", Ceiling()
    symbols, links = Ceiling(limits.symbol_errors_per_hour), Ceiling(limits.link_errors_per_hour)
    name = f"{device} symbol_error"
    yield Counter(device, name, port.count("symbol_error"), "# symbol errors", none, symbols, CABLE, averaged=True)
    for kind in LINK_ERRORS:
        yield Counter(device, f"{device} {kind}", port.count(kind), f"# {kind}", none, links, CABLE, averaged=True)
    # a port that is down is for the probe of states
    judge = port.up
    total = Ceiling(limits.flaps_warning, limits.flaps_critical) if judge else none
    hourly = Ceiling(limits.flaps_per_hour, limits.flaps_critical_per_hour) if judge else none
    flaps = port.count("link_downed") or (port.count("carrier_changes") // 2 if port.ethernet else 0)
    yield Counter(device, f"{device} flaps", flaps, "went down # times", total, hourly, CABLE, unit="times")


PROBE = infiniband_probe(
    "infiniband_errors",
    parse,
    "InfiniBand specification: 120 symbol errors an hour; flaps: limits of our own",
    counts=counts(_all),
)
