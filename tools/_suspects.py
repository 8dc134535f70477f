"""Nodes that a restart stays away from although nothing has taken them out of service yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from assistant.records import JobSpec
from assistant.recover.restart import too_few_nodes
from assistant.tooling import Context

CORDON = "cordon_node"


class Suspect(NamedTuple):
    """A node and why it is suspected, for people."""

    node: str
    why: str


def suspects(context: Context) -> list[Suspect]:
    """Return the nodes whose drain waits for an answer, and those that the call's own incident blames or wanted to take out."""
    waiting = {question.call: question.id for question in context.history.approvals()}
    listed = []
    for number, approval in waiting.items():
        call = context.history.call(number)
        if call.tool == CORDON:
            why = f"its drain waits for approval {approval}, of incident {call.incident}"
            listed.append(Suspect(str(call.arguments.get("node")), why))
    if context.incident is None:
        return listed
    diagnosis = context.history.diagnosis(context.incident)
    own = f"incident {context.incident} suspects it"
    listed += [Suspect(node, own) for node in (diagnosis.faulty_nodes if diagnosis is not None else ())]
    calls = [call for call in context.history.calls(context.incident) if call.tool == CORDON]
    return [*listed, *(Suspect(str(call.arguments.get("node")), own) for call in calls)]


def away_from_suspects(context: Context, spec: JobSpec) -> JobSpec:
    """Return a planned job that stays away from every suspected node of the cluster."""
    if not (named := {one.node for one in suspects(context)} - {*spec.exclude}):
        return spec
    known = [node.name for node in context.scheduler.nodes() if node.name in named]
    return replace(spec, exclude=(*spec.exclude, *sorted(known)))


def without_nodes(context: Context, spec: JobSpec, problem: str) -> str:
    """Return why a planned job cannot be placed, with the suspects that would have made it possible."""
    listed = {one.node: one.why for one in reversed(suspects(context)) if one.node in spec.exclude}
    spared: Sequence[str] = [node for node in spec.exclude if node not in listed]
    if not listed or not problem or too_few_nodes(replace(spec, exclude=tuple(spared)), context.scheduler.nodes()):
        return problem
    return f"{problem}; left out: {'; '.join(f'{node} ({why})' for node, why in listed.items())}"
