"""A small world for the tests of the gate: tools of every kind on a simulated cluster."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from assistant.errors import ToolError, Unavailable, UsageError
from assistant.gate import Gate, Park
from assistant.policy import Mode, Policy, PolicyInForce
from assistant.ports import Approver, JumpingClock
from assistant.records import JobSpec, NodeState, Risk, tag_of
from assistant.rendering import RenderedChange
from assistant.schedulers.simulated import SimulatedCluster
from assistant.store import Store
from assistant.tooling import Context, Tool, tool

START = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
SPEC = JobSpec("llm-7b", "#!/bin/sh\n", user="alice")


@tool(risk=Risk.READ)
def look(context: Context, node: str = "n1") -> dict[str, bool]:
    """Say whether a node is cordoned.

    Args:
        node: Its name.
    """
    return {"cordoned": any(one.state is NodeState.DRAINED for one in context.scheduler.nodes() if one.name == node)}


@tool(risk=Risk.CHANGE, kind="cordon", undo="uncordon_node")
def cordon_node(context: Context, node: str, reason: str = "") -> dict[str, str]:
    """Take a node out.

    Args:
        node: Its name.
        reason: Why.
    """
    context.scheduler.cordon(node, f"{context.tag} {reason}")
    return {"node": node}


@cordon_node.lookup
def cordoned(context: Context, tag: str, node: str, reason: str) -> dict[str, str] | None:
    reasons = {one.name: one.reason for one in context.scheduler.nodes()}
    return {"node": node} if tag in reasons[node].split() else None


@cordon_node.preview
def cordon_preview(context: Context, node: str, reason: str) -> RenderedChange:
    return RenderedChange(context.scheduler.command_lines("cordon", node, f"{context.tag} {reason}"))


@tool(risk=Risk.CHANGE, kind="uncordon")
def uncordon_node(context: Context, node: str) -> str:
    """Put a node back.

    Args:
        node: Its name.
    """
    context.scheduler.uncordon(node)
    return node


@uncordon_node.preview
def uncordon_preview(context: Context, node: str) -> RenderedChange:
    return RenderedChange(context.scheduler.command_lines("uncordon", node))


@tool(risk=Risk.CHANGE, kind="resubmit", undo="cancel_job")
def resubmit_job(context: Context, job: str) -> dict[str, str]:
    """Submit a job again.

    Args:
        job: Its id.
    """
    return {"job": context.scheduler.submit(replace(SPEC, comment=context.tag))}


@resubmit_job.preview
def resubmit_preview(context: Context, job: str) -> RenderedChange:
    return RenderedChange(context.scheduler.command_lines("submit", replace(SPEC, comment=context.tag)))


@tool(risk=Risk.DISRUPT, kind="cancel")
def cancel_job(context: Context, job: str) -> None:
    """End a job.

    Args:
        job: Its id.
    """
    context.scheduler.cancel(job)


@cancel_job.preview
def cancel_preview(context: Context, job: str) -> RenderedChange:
    return RenderedChange(context.scheduler.command_lines("cancel", job))


@tool(risk=Risk.CHANGE, kind="cordon")
def trouble(context: Context, sort: str) -> None:
    """Fail in a chosen way.

    Args:
        sort: Which way.
    """
    raise {
        "tool": ToolError("cannot"),
        "bug": ZeroDivisionError("oops"),
        "away": Unavailable("gone"),
        "ctrl-c": KeyboardInterrupt(),
    }[sort]


TOOLS = {one.name: one for one in (look, cordon_node, uncordon_node, resubmit_job, cancel_job, trouble)}


def find(name: str) -> Tool:
    if name not in TOOLS:
        raise UsageError(f"tool {name!r} is unknown")
    return TOOLS[name]


@dataclass
class World:
    store: Store
    cluster: SimulatedCluster
    clock: JumpingClock

    def gate(self, policy: Policy | PolicyInForce | None = None, approver: Approver | None = None) -> Gate:
        acting = policy or Policy(mode=Mode.ACT)
        return Gate(self.store, self.context, acting, approver or Park(self.store, expires_after_s=3600), find=find)

    def context(self, incident: int | None, tag: str) -> Context:
        return Context(self.cluster, self.cluster, self.clock, random.Random(0), self.store, incident=incident, tag=tag)

    def reason(self, node: str = "n1") -> str:
        return next(one.reason for one in self.cluster.nodes() if one.name == node)

    def tag(self, call: int, incident: int = 1) -> str:
        return tag_of(self.store.store_id, incident, call)

    @property
    def statuses(self) -> list[str]:
        return [call.status.value for call in self.store.calls()]


CORDON: dict[str, Any] = {"why": "it broke", "by": "playbook:ecc_error", "incident": 1, "step": "aside"}
PROPOSE = Policy(mode=Mode.PROPOSE)


def cordon(gate: Gate, **more: Any) -> Any:
    return gate.call("cordon_node", {"node": "n1", "reason": "ecc"}, **{**CORDON, **more})
