"""A loss that goes off again at once behind a restart on the same nodes: a GPU that computes wrong is as likely as a setting."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from assistant.engine.gather import ask
from assistant.errors import NightshiftError, ToolError
from assistant.nodeset import fold
from assistant.records import Action, Diagnosis, Incident, Job, MetricPoint
from assistant.recover.joblog import log_points

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

AT_ONCE = 5
"""Steps with a loss that is a number, as logged, before it goes off: fewer of them are no run of its own."""
MOST_NODES = 64


def with_repeated_spike(engine: Engine, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a spike right behind a restart after a spike with what speaks for the nodes that both ran on; any other as it is."""
    if diagnosis.reason != "loss_spike" or job is None or incident.parent is None:
        return diagnosis
    earlier, theory = engine.store.incident(incident.parent), engine.store.diagnosis(incident.parent)
    nodes = _nodes_of_both(engine, earlier, job)
    if theory is None or theory.reason != "loss_spike" or not nodes or not _is_at_once(_points(job), diagnosis.spike_step):
        return diagnosis
    arguments: dict[str, Any] = {"nodes": nodes}
    if job.started is not None:
        arguments["job_started"] = job.started.isoformat()
    checked: Mapping[str, Any] = ask(engine.store, engine.gate, incident, "check_nodes", arguments) or {}
    names = fold(nodes)
    if words := str(checked.get("gpu_fault_words") or ""):
        away = ",".join(map(str, checked.get("gpu_faults", ())))
        account = (
            f"It went off at once again on {names}, and a GPU there may compute wrong: {words}. Start it without: --exclude={away}."
        )
        return replace(diagnosis, advice=f"{account} {diagnosis.advice}")
    account = (
        f"It went off at once again behind a restart on the same nodes ({names}), where probes found nothing or could not look: "
        f"a GPU that computes wrong without a word is as likely as a setting. Start it once elsewhere from the same checkpoint "
        f"(--exclude={names}) before a setting is changed: if it holds there, test these nodes (dcgmi diag -r 3)."
    )
    return replace(diagnosis, action=Action.FIX_AND_RESUBMIT, advice=f"{account} {diagnosis.advice}")


def _nodes_of_both(engine: Engine, incident: Incident, job: Job) -> list[str]:
    try:
        job_before = engine.scheduler.job(incident.job) if incident.job is not None else None
    except ToolError:
        return []
    return [node for node in job.nodes if job_before is not None and node in job_before.nodes][:MOST_NODES]


def _points(job: Job) -> Sequence[MetricPoint]:
    try:
        return [point for point in log_points(job) if point.loss is not None]
    except (NightshiftError, OSError):
        return ()


def _is_at_once(points: Sequence[MetricPoint], spike_step: int | None) -> bool:
    """Tell whether a loss was off almost from its first step on; False where nothing is logged."""
    good = [point for point in points if math.isfinite(point.loss or 0.0) and (spike_step is None or point.step < spike_step)]
    return bool(points) and len(good) < AT_ONCE
