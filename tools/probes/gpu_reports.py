"""Probes of GPUs by JSON reports: what DCGM has seen in passing, and the temperatures of AMD GPUs that rocm-smi shows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, judged, merged, ok, unknown
from assistant.tooling import Probe

DCGM_PACKAGE = "datacenter-gpu-manager (4: datacenter-gpu-manager-4-core), with its nv-hostengine running"


def json_in(out: str) -> Any:
    """Return the JSON of an output, what stands before it passed over; None when there is none."""
    start = out.find("{")
    if start < 0:
        return None
    try:
        return json.JSONDecoder().raw_decode(out[start:])[0]
    except (ValueError, RecursionError):
        return None


def diagnostic_results(value: Any, name: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Yield test, GPU, status and warning of every result of a diagnostic, wherever it stands."""
    if isinstance(value, list):
        for item in value:
            yield from diagnostic_results(item, name)
    if not isinstance(value, dict):
        return
    test = str(value.get("name") or name)
    if isinstance(value.get("status"), str) and "results" not in value:
        messages = value.get("warnings") or value.get("info") or ""
        yield test, _gpu_of_result(value), value["status"], _joined_text(messages)
    for key, item in value.items():
        if isinstance(item, (dict, list)) and key not in ("warnings", "info"):
            yield from diagnostic_results(item, test)


def health_troubles(value: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield place, verdict (Failure, Warning) and text of every trouble of a health report."""
    if isinstance(value, list):
        for item in value:
            yield from health_troubles(item, place)
    if not isinstance(value, dict):
        return
    if value.get("value") in ("Failure", "Warning") and place and "Overall Health" not in place:
        yield place, value["value"], _joined_text(value.get("children", ""))
    for key, item in value.items():
        if isinstance(item, (dict, list)):
            yield from health_troubles(item, place if key in ("body", "children", "GPU") else (*place, str(key)))


def _gpu_of_result(result: dict[str, Any]) -> str:
    for key in ("gpu_id", "gpu_ids", "entity_id"):
        if str(result.get(key, "")) != "":
            return f"GPU {result[key]}"
    return "node"


def _joined_text(value: Any) -> str:
    """Return all texts within a value, joined."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, dict):
        value = [item for key, item in value.items() if not key.startswith("error_")]
    return "; ".join(text for item in value if (text := _joined_text(item))) if isinstance(value, list) else ""


def parse_dcgm(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Read `dcgmi health -c -j`."""
    report = json_in(reply.out)
    if not isinstance(report, dict) or "Overall Health" not in reply.out:
        return [unknown("dcgmi health printed no report that can be read", "set its watches: dcgmi health -g 0 -s a")]
    troubles = []
    for place, verdict, text in health_troubles(report):
        status = Health.CRITICAL if verdict == "Failure" else Health.WARNING
        gpu = next((word for word in place if word.isdigit()), "")
        message = f"{place[-1]}: {text or verdict}"
        finding = Finding(status, f"{{}}: {message}", verdict, "Healthy", "", "dcgmi diag -r 2 when the node is drained")
        troubles.append((f"GPU {gpu}" if gpu else "node", finding))
    return merged(troubles) or [ok("DCGM says healthy", "Healthy", "Healthy")]


DCGM = Probe(
    name="dcgm",
    command=("dcgmi", "health", "-g", "0", "-c", "-j"),
    needs="dcgmi",
    parse=parse_dcgm,
    source="NVIDIA DCGM, health monitoring",
    package=DCGM_PACKAGE,
    witness="nvml",
    hardware="nvidia",
)


def parse_amd(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Read `rocm-smi --showproductname --showtemp --json`: the hottest sensor and the memory of each card."""
    report = json_in(reply.out)
    cards = {name: card for name, card in report.items() if isinstance(card, dict)} if isinstance(report, dict) else {}
    cards = {name: card for name, card in cards.items() if re.fullmatch(r"card\d+", name)}
    if not cards:
        return [unknown("rocm-smi printed no report that can be read")]
    bad = merged((name, finding) for name, card in cards.items() for finding in _judge_amd_gpu(card, circumstances))
    return bad or [ok(f"{len(cards)} AMD GPUs are not too hot", len(cards), unit="GPUs")]


def _judge_amd_gpu(card: Mapping[str, Any], circumstances: Circumstances) -> Iterator[Finding]:
    model = " ".join(str(card.get(key, "")) for key in ("Card series", "Card Series", "Card model", "Card Model"))
    limits = circumstances.limits.of(model)
    for word, subject, warning, critical in (
        ("junction", "{} is", limits.warning_c, limits.critical_c),
        ("memory", "memory of {} is", limits.memory_warning_c, limits.memory_critical_c),
    ):
        celsius = _first_number(next((value for key, value in card.items() if key.startswith("Temperature") and word in key), None))
        status = judged(celsius, warning, critical)
        if status is not Health.OK:
            limit = critical if status is Health.CRITICAL else warning
            yield Finding(
                status,
                f"{subject} at {celsius:.0f} C, limit {limit:.0f} C",
                celsius,
                limit,
                "C",
                "look at cooling",
                source=limits.source,
            )


def _first_number(value: object) -> float:
    match = re.match(r"\d+(?:\.\d+)?", str(value))
    return float(match.group()) if match else 0.0


AMD = Probe(
    name="amd",
    command=("rocm-smi", "--showproductname", "--showtemp", "--json"),
    needs="rocm-smi",
    parse=parse_amd,
    source="knowledge/limits.toml",
    package="rocm-smi-lib",
    witness="rocm",
    hardware="amd",
)
