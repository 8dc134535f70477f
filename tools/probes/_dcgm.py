"""Results of dcgmi as JSON, read by structure: names and nesting differ from DCGM 2 to 4."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

PACKAGE = "datacenter-gpu-manager (4: datacenter-gpu-manager-4-core), with its nv-hostengine running"


def loaded(out: str) -> Any:
    """Return the JSON of an output, what stands before it passed over; None when there is none."""
    start = out.find("{")
    if start < 0:
        return None
    try:
        return json.JSONDecoder().raw_decode(out[start:])[0]
    except (ValueError, RecursionError):
        return None


def results(value: Any, name: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Yield test, GPU, status and warning of every result of a diagnostic, wherever it stands."""
    if isinstance(value, list):
        for item in value:
            yield from results(item, name)
    if not isinstance(value, dict):
        return
    own = str(value.get("name") or name)
    if isinstance(value.get("status"), str) and "results" not in value:
        said = value.get("warnings") or value.get("info") or ""
        yield own, _gpu(value), value["status"], _text(said)
    for key, item in value.items():
        if isinstance(item, (dict, list)) and key not in ("warnings", "info"):
            yield from results(item, own)


def troubles(value: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield place, verdict (Failure, Warning) and text of every trouble of a health report."""
    if isinstance(value, list):
        for item in value:
            yield from troubles(item, place)
    if not isinstance(value, dict):
        return
    if value.get("value") in ("Failure", "Warning") and place and "Overall Health" not in place:
        yield place, value["value"], _text(value.get("children", ""))
    for key, item in value.items():
        if isinstance(item, (dict, list)):
            yield from troubles(item, place if key in ("body", "children", "GPU") else (*place, str(key)))


def _gpu(result: dict[str, Any]) -> str:
    for key in ("gpu_id", "gpu_ids", "entity_id"):
        if str(result.get(key, "")) != "":
            return f"GPU {result[key]}"
    return "node"


def _text(value: Any) -> str:
    """Return all texts within a value, joined."""
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, dict):
        value = [item for key, item in value.items() if not key.startswith("error_")]
    return "; ".join(text for item in value if (text := _text(item))) if isinstance(value, list) else ""
