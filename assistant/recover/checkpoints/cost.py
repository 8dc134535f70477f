"""What a save costs a job: as its manifests say, else its metrics.jsonl, else the times in its log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from assistant.logs.phases import BEGINS, OVER, LogPhase
from assistant.logs.prefix import parse
from assistant.recover.checkpoints.interval import SaveCost
from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.checkpoints.layout import Format
from assistant.recover.checkpoints.manifest import saves_of
from assistant.untrusted import finite_number, parse_json, read_end

LEAST_S = 1e-4
"""A save that is said to take less was rounded to nothing."""
TAIL_BYTES = 8 << 20
_BEGINS = dict(BEGINS)[LogPhase.CHECKPOINT]
_OVER = OVER[LogPhase.CHECKPOINT]


def save_cost(found: Inventory | None, metrics: Path | None, log_lines: Iterable[str]) -> SaveCost | None:
    """Return what a save costs; None when nothing tells.

    Args:
        found: The job's checkpoints.
        metrics: Its metrics.jsonl.
        log_lines: Of its log.
    """
    every_s = _every(found)
    return _of_manifests(found, every_s) or _of_metrics(metrics, every_s) or _of_log(log_lines, every_s)


def _every(found: Inventory | None) -> float | None:
    times = sorted(checkpoint.saved_at for checkpoint in found.checkpoints) if found else []
    gaps = [(after - before).total_seconds() for before, after in pairwise(times)]
    return median(gaps) if gaps and median(gaps) > 0 else None


def _of_manifests(found: Inventory | None, every_s: float | None) -> SaveCost | None:
    said = [saves_of(entry) for entry in found.entries if entry.format is Format.NIGHTSHIFT] if found else []
    known = [costs for one in said if (costs := _costs(one)) is not None]
    # a wait for the save before is no cost of saving but of saving too often
    blocked = [max(LEAST_S, costs.blocked_s - costs.wait_s) for costs in known]
    if not blocked:
        return None
    persist_s = median(costs.persist_s for costs in known)
    return SaveCost(median(blocked), persist_s, every_s, f"the median of {len(blocked)} saves, from their manifests")


class _Costs(NamedTuple):
    blocked_s: float
    wait_s: float
    persist_s: float


def _costs(said: Mapping[str, Any]) -> _Costs | None:
    try:
        return _Costs(*(finite_number(said.get(name, 0.0)) for name in _Costs._fields)) if "blocked_s" in said else None
    except ValueError:
        return None


def _of_metrics(metrics: Path | None, every_s: float | None) -> SaveCost | None:
    took = [number for line in _tail(metrics) if (number := _save_s(line)) > 0]
    if not took:
        return None
    return SaveCost(median(took), 0.0, every_s, f"the median of {len(took)} saves, from metrics.jsonl")


def _of_log(log_lines: Iterable[str], every_s: float | None) -> SaveCost | None:
    took, begun = list[float](), None
    for text in log_lines:
        if "sav" not in text.lower() or not (at := parse(text).at):
            continue
        if _OVER.search(text) is None:
            begun = at if _BEGINS.search(text) else begun
        elif begun is not None:
            took.append(max(LEAST_S, (at - begun).total_seconds()))
            begun = None
    return SaveCost(median(took), 0.0, every_s, f"the median of {len(took)} saves, from the times in its log") if took else None


def _tail(path: Path | None) -> Sequence[str]:
    if path is None:
        return ()
    try:
        return read_end(path, TAIL_BYTES).raw.decode("utf-8", "replace").splitlines()
    except OSError:
        return ()


def _save_s(line: str) -> float:
    if '"save_s"' not in line:
        return 0.0
    try:
        return finite_number(parse_json(line)["save_s"])
    except (ValueError, KeyError, TypeError):
        return 0.0
