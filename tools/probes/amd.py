"""Temperatures of AMD GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, judged, merged, ok, unknown
from assistant.tooling import Probe
from assistant.tools.probes._dcgm import loaded


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Read `rocm-smi --showproductname --showtemp --json`: the hottest sensor and the memory of each card."""
    report = loaded(reply.out)
    cards = {name: card for name, card in report.items() if isinstance(card, dict)} if isinstance(report, dict) else {}
    cards = {name: card for name, card in cards.items() if re.fullmatch(r"card\d+", name)}
    if not cards:
        return [unknown("rocm-smi printed no report that can be read")]
    bad = merged((name, finding) for name, card in cards.items() for finding in _judge(card, circumstances))
    return bad or [ok(f"{len(cards)} AMD GPUs are not too hot", len(cards), unit="GPUs")]


def _judge(card: Mapping[str, Any], circumstances: Circumstances) -> Iterator[Finding]:
    model = " ".join(str(card.get(key, "")) for key in ("Card series", "Card Series", "Card model", "Card Model"))
    limits = circumstances.limits.of(model)
    for word, what, warning, critical in (
        ("junction", "{} is", limits.warning_c, limits.critical_c),
        ("memory", "memory of {} is", limits.memory_warning_c, limits.memory_critical_c),
    ):
        celsius = _number(next((value for key, value in card.items() if key.startswith("Temperature") and word in key), None))
        status = judged(celsius, warning, critical)
        if status is not Health.OK:
            limit = critical if status is Health.CRITICAL else warning
            yield Finding(
                status,
                f"{what} at {celsius:.0f} C, limit {limit:.0f} C",
                celsius,
                limit,
                "C",
                "look at cooling",
                source=limits.source,
            )


def _number(value: object) -> float:
    match = re.match(r"\d+(?:\.\d+)?", str(value))
    return float(match.group()) if match else 0.0


PROBE = Probe(
    name="amd",
    command=("rocm-smi", "--showproductname", "--showtemp", "--json"),
    needs="rocm-smi",
    parse=parse,
    source="knowledge/limits.toml",
    package="rocm-smi-lib",
    witness="rocm",
    hardware="amd",
)
