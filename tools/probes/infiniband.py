"""State and rate of InfiniBand and RoCE ports."""

from __future__ import annotations

from collections.abc import Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, merged, ok, unknown
from assistant.tools.probes._infiniband import Port, infiniband_probe, ports

CABLE = "reseat or replace cable and transceiver; look at the switch port"


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Judge each port; one that was never up since boot is taken for unused."""
    found = ports(reply)
    if found is None:
        return [unknown("the adapters could not be read")]
    if not found:
        return [ok("no InfiniBand or RoCE adapter", 0, unit="ports")]
    best: dict[tuple[str, bool], float] = {}
    for port in found:
        kind = (port.values.get("hca_type", ""), port.ethernet)
        best[kind] = max(best.get(kind, 0.0), port.rate_gb if port.up else 0.0)
    bad = [(port.name, finding) for port in found if (finding := _judge(port, best)) is not None]
    up = [port for port in found if port.up]
    if not up and not bad:
        return [Finding(Health.WARNING, f"none of {len(found)} ports is active", 0, len(found), "ports", CABLE)]
    return merged(bad) or [
        ok(f"{len(up)} of {len(found)} ports are active at up to {max(p.rate_gb for p in up):g} Gb/s", len(up), unit="ports")
    ]


def _judge(port: Port, best: dict[tuple[str, bool], float]) -> Finding | None:
    state = port.values.get("state", "").split(":")[-1].strip() or "unknown"
    physical = port.values.get("phys_state", "").split(":")[-1].strip()
    if not port.up:
        was_up = port.count("link_downed") or (port.ethernet and port.count("carrier_changes") > 1)
        if was_up:
            text = f"port {{}} is {state} ({physical or 'physical state unknown'}) and was up since boot"
            return Finding(Health.CRITICAL, text, state, "ACTIVE", "", CABLE)
        if state in ("INIT", "ARMED"):
            return Finding(
                Health.WARNING, f"port {{}} is {state}: no subnet manager?", state, "ACTIVE", "", "look at the subnet manager"
            )
        return None
    most = best[(port.values.get("hca_type", ""), port.ethernet)]
    if port.rate_gb < most:
        text = f"port {{}} runs at {port.rate_gb:g} Gb/s, others of its kind at {most:g}"
        return Finding(Health.CRITICAL, text, port.rate_gb, most, "Gb/s", CABLE)
    return None


PROBE = infiniband_probe("infiniband", parse, "arXiv 2403.07648, Table 3: Network Error; the node's other ports of the kind")
