"""Look at nodes, check them, and take them out of scheduling or put them back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assistant.errors import ToolError
from assistant.ports import Reply
from assistant.records import Node, NodeState, Risk
from assistant.tooling import Context, Probe, tool
from assistant.tools.probes import probes

OWN = "nightshift"
"""What the reasons of our cordons start with, so that people and we know them."""
NO_PROGRAM = 127
WORST_FIRST = ("critical", "warning", "unknown", "ok")


@tool(risk=Risk.READ)
def node_states(context: Context, nodes: list[str] | None = None) -> list[dict[str, Any]]:
    """List nodes with their state in the scheduler, why they are out, and their jobs.

    Args:
        nodes: Only these; all when not given.
    """
    shown = [node for node in context.scheduler.nodes() if nodes is None or node.name in nodes]
    return [
        {"node": node.name, "state": node.state.value, "reason": node.reason, "partition": node.partition, "jobs": list(node.jobs)}
        for node in shown
    ]


@tool(risk=Risk.READ)
def kernel_log(context: Context, nodes: list[str], lines: int = 2000) -> dict[str, Any]:
    """Show the end of the kernel log of nodes: `text` by node, and under `unknown` why a node did not answer.

    Args:
        nodes: Names of the nodes.
        lines: How many of the last lines of each.
    """
    command = context.commands.get("kernel_log")
    if command is None:
        raise ToolError("no command reads the kernel log here; set commands.kernel_log in the settings")
    replies = context.transport.run(nodes, command, timeout_s=context.command_timeout_s)
    unknown = {node: why for node, reply in replies.items() if (why := _unknown(reply, command[0]))}
    text = {node: "\n".join(reply.out.splitlines()[-lines:]) for node, reply in replies.items() if node not in unknown}
    return {"text": text, "unknown": unknown}


@tool(risk=Risk.READ)
def check_nodes(context: Context, nodes: list[str] | None = None) -> dict[str, Any]:
    """Run the health probes on nodes: under `nodes` a status for each (ok, warning, critical, unknown) and what each probe said.

    `faulty` lists those that are critical. A node that does not answer, or a program that is missing, is unknown, never bad.

    Args:
        nodes: Names of the nodes; all when not given.
    """
    chosen = nodes if nodes is not None else [node.name for node in context.scheduler.nodes()]
    found: dict[str, list[dict[str, Any]]] = {node: [] for node in chosen}
    reached = list(chosen)
    for probe in probes():
        command = context.commands.get(probe.name, probe.command)
        replies = context.transport.run(reached, command, timeout_s=context.command_timeout_s)
        for node, reply in replies.items():
            found[node].append({"probe": probe.name, **_finding(probe, reply, command[0])})
        if probe.name == "reachable":
            reached = [node for node in reached if replies[node].reached]
    checked = {node: {"status": _worst(said), "probes": said} for node, said in found.items()}
    return {"nodes": checked, "faulty": [node for node, result in checked.items() if result["status"] == "critical"]}


@tool(risk=Risk.CHANGE, kind="cordon", undo="uncordon_node")
def cordon_node(context: Context, node: str, reason: str) -> dict[str, Any]:
    """Take a node out of scheduling; jobs on it go on. A node that somebody took out already is left with their reason.

    Args:
        node: Name of the node.
        reason: Why, for people.
    """
    written = _written(context.tag, reason)
    before = _known(context, node)
    if before.state in (NodeState.DRAINING, NodeState.DRAINED):
        return {"node": node, "cordoned": False, "reason": written, "note": f"out of scheduling already: {before.reason}"}
    context.scheduler.cordon(node, written)
    return {"node": node, "cordoned": True, "reason": written, "note": ""}


@cordon_node.lookup
def cordoned(context: Context, tag: str, node: str, reason: str) -> dict[str, Any] | None:
    """Return the answer when the node carries this call's tag."""
    now = _known(context, node)
    return {"node": node, "cordoned": True, "reason": now.reason, "note": ""} if tag in now.reason.split() else None


@cordon_node.preview
def cordoning(context: Context, node: str, reason: str) -> str:
    """Return what a person would type."""
    return f'scontrol update NodeName={node} State=DRAIN Reason="{_written(context.tag, reason)}"'


@tool(risk=Risk.CHANGE, kind="uncordon")
def uncordon_node(context: Context, node: str, reason: str = "") -> dict[str, Any]:
    """Put a node back that Nightshift took out of scheduling; what somebody else took out stays out.

    Args:
        node: Name of the node.
        reason: Only when this is the whole reason that stands there now; any of ours when empty.
    """
    before = _known(context, node)
    if reason and before.reason != reason and before.state in (NodeState.DRAINING, NodeState.DRAINED, NodeState.DOWN):
        raise ToolError(f"node {node} is out of scheduling for another reason now ({before.reason!r}), so it was left alone")
    context.scheduler.uncordon(node)
    return {"node": node, "reason_before": before.reason}


@uncordon_node.lookup
def uncordoned(context: Context, tag: str, node: str, reason: str = "") -> dict[str, Any] | None:
    """Return the answer when the node is back in scheduling."""
    now = _known(context, node)
    out = now.state in (NodeState.DRAINING, NodeState.DRAINED) or now.reason.startswith(OWN)
    return None if out else {"node": node, "reason_before": ""}


@uncordon_node.preview
def uncordoning(context: Context, node: str, reason: str = "") -> str:
    """Return what a person would type."""
    return f"scontrol update NodeName={node} State=RESUME  # was: {_known(context, node).reason or 'not cordoned'}"


def _written(tag: str, reason: str) -> str:
    return f"{tag or OWN + ':'} {reason}".strip()


def _known(context: Context, node: str) -> Node:
    found = next((one for one in context.scheduler.nodes() if one.name == node), None)
    if found is None:
        raise ToolError(f"node {node!r} is unknown to the {context.scheduler.name} scheduler")
    return found


def _unknown(reply: Reply, program: str) -> str:
    """Return why a reply says nothing about the node; empty when it does."""
    if not reply.reached:
        return reply.err or "it did not answer"
    if reply.status == NO_PROGRAM:
        return f"{program} is not there"
    return f"{program} ended with status {reply.status}: {reply.err.strip()[:200]}" if reply.status else ""


def _finding(probe: Probe, reply: Reply, program: str) -> Mapping[str, Any]:
    why = _unknown(reply, program)
    return {"status": "unknown", "text": why} if why else probe.parse(reply)


def _worst(said: list[dict[str, Any]]) -> str:
    return next((status for status in WORST_FIRST if any(one["status"] == status for one in said)), "unknown")
