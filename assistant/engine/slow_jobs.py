"""Say of a job that became several times slower: since when, from which step on, what that costs, and what its nodes show of it.

What its log says besides (errors that it caught, warnings) ended nothing: the job makes its steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from assistant.records import Action, Category, Diagnosis, Event, EventKind, Incident, Job, JobState
from assistant.watch.attempts import SUDDEN

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

__all__ = ["completed_meanwhile", "sudden_slowdown", "with_slowdown"]

MOST_NODES = 4


def sudden_slowdown(engine: Engine, incident: Incident) -> Event | None:
    """Return the event by which a job was seen to become several times slower; None for any other incident."""
    if incident.kind is not EventKind.SLOW_JOB:
        return None
    return next((event for event in reversed(engine.store.events(incident.id)) if event.detail.get(SUDDEN)), None)


def with_slowdown(engine: Engine, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return the diagnosis of a living job that became several times slower as just that; any other as it is."""
    event = sudden_slowdown(engine, incident)
    if event is None or job is None or job.state.ended or job.attempt != incident.attempt:
        return diagnosis
    slowed = _words(event.detail.get("slowed"))
    own = diagnosis.reason == "slow_job"
    return replace(
        diagnosis,
        reason="slow_job",
        category=Category.NONE,
        action=Action.CORDON_AND_RESTART if slowed else Action.NONE,
        nodes=diagnosis.nodes if own else (),
        root_cause=diagnosis.root_cause if own else (),
        rivals=(),
        summary=f"{_pace(job, event)} {slowed or _nothing(event.detail)}",
        advice=_advice(event.detail, slowed),
    )


def completed_meanwhile(engine: Engine, incident: Incident, job: Job) -> str:
    """Return that a job that became several times slower has completed by itself; empty where it has not."""
    if job.state is not JobState.COMPLETED or job.attempt != incident.attempt or sudden_slowdown(engine, incident) is None:
        return ""
    at = f" at {job.ended:%H:%M} UTC" if job.ended is not None else ""
    return f"it completed by itself{at}, slow as it was; it was left alone"


def _pace(job: Job, event: Event) -> str:
    detail = event.detail
    ratio, usual_s, now_s = (float(detail[name]) for name in ("ratio", "usual_s", "now_s"))
    since = datetime.fromisoformat(str(detail["since"]))
    at = f", behind step {detail['from_step']}" if detail.get("from_step") is not None else ""
    nodes = max(1, len(job.nodes))
    return (
        f"Job {job.id} makes its steps {ratio:.1f} times slower than before since {since:%H:%M} UTC{at}: {_seconds(now_s)} a step "
        f"instead of {_seconds(usual_s)}. Each hour of it loses {60 * (1 - usual_s / now_s):.0f} min of {nodes} "
        f"node{'s' * (nodes > 1)}."
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


def _words(words_by_node: object) -> str:
    if not isinstance(words_by_node, Mapping) or not words_by_node:
        return ""
    words = [f"{node}: {text}" for node, text in list(words_by_node.items())[:MOST_NODES]]
    more = f"; and {len(words_by_node) - MOST_NODES} more nodes" if len(words_by_node) > MOST_NODES else ""
    return f"Its hardware holds it back: {'; '.join(words)}{more}."


def _nothing(detail: Mapping[str, Any]) -> str:
    parts = ["No GPU of it is held back by heat or power, as far as its nodes answer"]
    parts += [f"not seen: {detail['unseen']}"] if detail.get("unseen") else []
    links = detail.get("links") or {}
    parts += [f"{node}: {text} (since when is not known)" for node, text in list(links.items())[:2]]
    if slow_jobs := detail.get("others"):
        parts.append(
            f"jobs {', '.join(map(str, slow_jobs))} on other nodes became slow at the same time: look at storage and network"
        )
    return f"{'; '.join(parts)}."


def _advice(detail: Mapping[str, Any], slowed: str) -> str:
    if slowed:
        return (
            "See to what holds the node back. The job goes on, slowly: a move costs the steps since its last checkpoint and a "
            "start, and is best made right behind a checkpoint."
        )
    return (
        "Look at what it reads from and writes to, at other load on its nodes, and at the time of a step of each rank. It goes on "
        "by itself; nothing that was seen says that it would be faster on other nodes."
    )
