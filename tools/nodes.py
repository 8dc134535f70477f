"""Look at nodes and check them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from assistant.content.devices import limits
from assistant.errors import ToolError, Unavailable
from assistant.ports import Reply
from assistant.probing import Circumstances
from assistant.records import Node, Risk
from assistant.tooling import Context, tool
from assistant.tools._gpu_faults import gpu_faults
from assistant.tools._second import seconded
from assistant.tools._slowed import bad_links, held_back
from assistant.tools.cordons import cordon_leases, cordon_node, renew_cordon, uncordon_node
from assistant.tools.probes._check import check, checked_values, parsed_time

__all__ = [
    "check_nodes",
    "cordon_leases",
    "cordon_node",
    "kernel_log",
    "node_states",
    "renew_cordon",
    "uncordon_node",
]

NO_PROGRAM = 127


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
def check_nodes(
    context: Context,
    nodes: list[str] | None = None,
    since: str = "",
    job_started: str = "",
    idle: bool = False,
    seen: list[str] | None = None,
    accused: list[str] | None = None,
) -> dict[str, Any]:
    """Run the health probes on nodes: under `nodes` a status for each (ok, warning, critical, unknown) and what each probe said.

    `gpu_faults` lists nodes where a GPU shows since the job, or since its driver was loaded, an error by which it may compute
    wrong, and `gpu_fault_words` says which: a restart after a loss that is no number stays away from them. `faulty` lists those
    whose hardware must be taken out of service: one sign for which the vendor asks that, or two critical ones of different
    witnesses. `slowed` lists those on which a job may be slow: faulty ones, and ones whose GPUs are held back now by heat or
    power; `slowed_words` says by what, and `link_words` what is wrong with links, which may have been so before.
    A node that does not answer, a program that is missing or does not end, is unknown, never bad.

    Args:
        nodes: Names of the nodes; all when not given.
        since: Time from which on kernel messages count, such as the last check; when not given one day, and never before the job.
        job_started: When the job began; a boot after that is critical.
        idle: Whether it is known that no job runs there, so that what uses the GPUs was left behind.
        seen: Identities of kernel messages that an earlier check returned as `events`; they do not count again.
        accused: Nodes that one witness speaks against; `seconded` lists those of them against which something else speaks, too.
    """
    shown: Sequence[Node] = ()
    try:
        shown = context.scheduler.nodes()
    except Unavailable:
        if nodes is None:
            raise
    busy = {node.name: bool(node.jobs) for node in shown}
    known, now = limits(context.site), context.clock.now()
    try:
        began = parsed_time(job_started, "job_started")
        circumstances = Circumstances(
            known,
            now,
            since=parsed_time(since, "since") or _window(now, began, known.node.kernel_window_h),
            job_started=began,
            busy=False if idle else None,
            seen=frozenset(seen or ()),
        )
    except ValueError as error:
        raise ToolError(str(error)) from error
    checked = check(context, list(busy) if nodes is None else nodes, circumstances, {} if idle else busy)
    slow_words = held_back(checked)
    return {
        "nodes": {node: checked_values(result) for node, result in checked.items()},
        "faulty": [node for node, result in checked.items() if result.faulty],
        "gpu_faults": list(faults := gpu_faults(checked)),
        "gpu_fault_words": "; ".join(f"{node}: {words}" for node, words in faults.items()),
        "slowed": [node for node, result in checked.items() if result.faulty or node in slow_words],
        "slowed_words": slow_words,
        "link_words": bad_links(checked),
        "seconded": [node for node in accused or () if seconded(context, node, checked, shown)],
        "events": sorted({event for result in checked.values() for event in result.events}),
    }


def _window(now: datetime, began: datetime | None, hours: float) -> datetime | None:
    """Return from when on kernel messages count where the caller names no time; None for the usual window."""
    return max(began, now - timedelta(hours=hours)) if began is not None else None


def _unknown(reply: Reply, program: str) -> str:
    """Return why a reply says nothing about the node; empty when it does."""
    if not reply.reached:
        return reply.err or "it did not answer"
    if reply.status == NO_PROGRAM:
        return f"{program} is not there"
    return f"{program} ended with status {reply.status}: {reply.err.strip()[:200]}" if reply.status else ""
