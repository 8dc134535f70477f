"""Take nodes out of scheduling for a while, and put back what Nightshift took out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from assistant.content.devices import limits
from assistant.errors import ToolError
from assistant.probing import Circumstances
from assistant.records import Node, NodeState, Risk
from assistant.recover.identity import HOURS, expired, lease, ours, owns_cordon, parse
from assistant.rendering import RenderedChange
from assistant.tooling import Context, tool
from assistant.tools.collective import proven_good, reservation_lines, would_test
from assistant.tools.probes._check import check

OUT = (NodeState.DRAINING, NodeState.DRAINED)
LONGEST_H = 24.0 * 30


@tool(risk=Risk.CHANGE, kind="cordon", undo="uncordon_node")
def cordon_node(context: Context, node: str, reason: str, hours: float = HOURS) -> dict[str, Any]:
    """Take a node out of scheduling; jobs on it go on. A node that somebody took out already is left with their reason.

    The reason in the scheduler says whose it is, why, until when and by whom. When the lease runs out nothing is lifted by itself:
    the probes and a collective test then decide whether it is lifted or renewed.

    Args:
        node: Name of the node.
        reason: Why, for people.
        hours: How long the lease runs.
    """
    written = _written(context, reason, hours)
    before = known_node(context, node)
    if before.state in OUT:
        return {"node": node, "cordoned": False, "reason": written, "note": f"out of scheduling already: {before.reason}"}
    context.scheduler.cordon(node, written)
    standing = known_node(context, node).reason
    if not _same(standing.partition(" (was: ")[0], written):
        # two wrote at once: the scheduler keeps the last reason, and whose it is looks after the node
        raise ToolError(f"node {node} was taken out of scheduling by somebody else at the same moment ({standing!r})")
    return {"node": node, "cordoned": True, "reason": written, "note": ""}


@cordon_node.lookup
def cordoned(context: Context, tag: str, node: str, reason: str, hours: float = HOURS) -> dict[str, Any] | None:
    """Return the answer when the node carries this call's tag."""
    now = known_node(context, node)
    return {"node": node, "cordoned": True, "reason": now.reason, "note": ""} if tag in now.reason.split() else None


@cordon_node.stands
def cordon_stands(context: Context, node: str, reason: str, hours: float = HOURS) -> dict[str, Any] | None:
    """Return the answer when the node is out of scheduling already, by whomever: nobody needs to allow that once more."""
    now = known_node(context, node)
    if now.state not in OUT:
        return None
    written = _written(context, reason, hours)
    return {"node": node, "cordoned": False, "reason": written, "note": f"out of scheduling already: {now.reason}"}


@cordon_node.preview
def cordoning(context: Context, node: str, reason: str, hours: float = HOURS) -> RenderedChange:
    """Return the command; a node that is out of scheduling already is left alone."""
    before = known_node(context, node)
    note = f"out of scheduling already, so nothing is done: {before.reason}" if before.state in OUT else ""
    return RenderedChange(context.scheduler.command_lines("cordon", node, _written(context, reason, hours)), note)


@tool(risk=Risk.CHANGE, kind="uncordon")
def uncordon_node(context: Context, node: str, reason: str = "", force: str = "") -> dict[str, Any]:
    """Put a node back that Nightshift took out, after its probes and a collective test pass; what somebody else took out stays out.

    Kernel messages from before the cordon do not count: what they led to must be gone by now, and is looked at itself. The test
    runs with up to three idle nodes of its partition, and the node must come out good; without one of them nothing is lifted.

    Args:
        node: Name of the node.
        reason: To take back a cordon just made: the reason that it wrote. It must still stand there; nothing is tested.
        force: Why the node goes back although it does not pass; nothing is tested then.
    """
    before = known_node(context, node)
    if before.state not in OUT and not ours(before.reason):
        context.scheduler.uncordon(node)
        return {"node": node, "reason_before": before.reason}
    if reason and not _same(before.reason, reason):
        raise ToolError(f"node {node} is out of scheduling for another reason now ({before.reason!r}), so it was left alone")
    _must_own(context, before)
    test = _must_pass(context, before) if not reason and not force else ""
    context.scheduler.uncordon(node)
    return {"node": node, "reason_before": before.reason, "test": test}


@uncordon_node.lookup
def uncordoned(context: Context, tag: str, node: str, reason: str = "", force: str = "") -> dict[str, Any] | None:
    """Return the answer when the node is back in scheduling."""
    now = known_node(context, node)
    return None if now.state in OUT or ours(now.reason) else {"node": node, "reason_before": ""}


@uncordon_node.stands
def uncordon_stands(context: Context, node: str, reason: str = "", force: str = "") -> dict[str, Any] | None:
    """Return the answer when the node is in service already."""
    now = known_node(context, node)
    return None if now.state in OUT or ours(now.reason) else {"node": node, "reason_before": now.reason}


@uncordon_node.preview
def uncordoning(context: Context, node: str, reason: str = "", force: str = "") -> RenderedChange:
    """Return the commands, and which test stands before them."""
    before = known_node(context, node).reason
    foreign = " (not ours: it would be refused)" if before and not ours(before) else ""
    checks = f"; without the probes and the test: {force}" if force else ""
    commands: tuple[str, ...] = ()
    if ours(before) and not reason and not force:
        checks = f"; after its probes and {would_test(context, node)}"
        commands = reservation_lines(context)
    lines = context.scheduler.command_lines("uncordon", node)
    return RenderedChange((*commands, *lines), f"was: {before or 'not cordoned'}{foreign}{checks}")


@tool(risk=Risk.CHANGE, kind="renew")
def renew_cordon(context: Context, node: str, hours: float = HOURS) -> dict[str, Any]:
    """Give a cordon of Nightshift's own a later end; one of somebody else is left as it is.

    Args:
        node: Name of the node.
        hours: How long from now.
    """
    before = known_node(context, node)
    own = parse(before.reason)
    if own is None:
        raise ToolError(f"node {node} holds no lease of ours (reason: {before.reason or 'none'})")
    _must_own(context, before)
    written = own.renewed(context.began, _hours(hours)).render()
    context.scheduler.cordon(node, written)
    return {"node": node, "reason": written, "reason_before": before.reason}


@renew_cordon.lookup
def renewed(context: Context, tag: str, node: str, hours: float = HOURS) -> dict[str, Any] | None:
    """Return the answer when most of that time is still to come; when asked later than that it counts as not renewed."""
    now = known_node(context, node)
    own = parse(now.reason)
    if own is None or own.until is None or own.until < context.clock.now() + timedelta(hours=hours / 2):
        return None
    return {"node": node, "reason": now.reason, "reason_before": ""}


@renew_cordon.stands
def renewal_stands(context: Context, node: str, hours: float = HOURS) -> dict[str, Any] | None:
    """Return the answer when the lease runs as long already as the call would make it.

    Raises:
        ToolError: The node holds no lease of this store any more.
    """
    now = known_node(context, node)
    own = parse(now.reason)
    if own is None:
        raise ToolError(f"node {node} holds no lease of ours (reason: {now.reason or 'none'})")
    _must_own(context, now)
    if own.until is None or own.renewed(context.began, _hours(hours)).until != own.until:
        return None
    return {"node": node, "reason": now.reason, "reason_before": now.reason}


@renew_cordon.preview
def renewing(context: Context, node: str, hours: float = HOURS) -> RenderedChange:
    """Return the command; a cordon of somebody else is left as it is."""
    own = parse(known_node(context, node).reason)
    if own is None:
        return RenderedChange(note=f"node {node} holds no lease of ours: nothing is done")
    return RenderedChange(context.scheduler.command_lines("cordon", node, own.renewed(context.began, _hours(hours)).render()))


@tool(risk=Risk.READ)
def cordon_leases(context: Context) -> dict[str, Any]:
    """List the cordons of Nightshift's own with their end; under `expired` the names of those that have run out."""
    now, nodes = context.clock.now(), context.scheduler.nodes()
    nodes = [node for node in nodes if owns_cordon(context.history, node.name, node.reason)]
    leases = [(node, own) for node in nodes if (own := parse(node.reason)) is not None]
    rows = [
        {"node": node.name, "state": node.state.value, "why": own.why, "until": own.until, "by": own.by, "incident": own.incident}
        for node, own in leases
    ]
    return {"leases": rows, "expired": [node.name for node, _ in expired(nodes, now)]}


def known_node(context: Context, node: str) -> Node:
    """Return a node as the scheduler shows it.

    Raises:
        ToolError: It knows none of that name.
    """
    shown_node = next((node_entry for node_entry in context.scheduler.nodes() if node_entry.name == node), None)
    if shown_node is None:
        raise ToolError(f"node {node!r} is unknown to the {context.scheduler.name} scheduler")
    return shown_node


def _must_own(context: Context, node: Node) -> None:
    """Make sure that a call of this store took a node out of scheduling.

    Raises:
        ToolError: A person did, or Nightshift with another store.
    """
    if owns_cordon(context.history, node.name, node.reason):
        return
    by = "Nightshift with another store" if ours(node.reason) else "somebody else"
    raise ToolError(
        f"node {node.name} was taken out of scheduling by {by} ({node.reason!r}); ask them, or use the scheduler's own command: "
        f"scontrol update NodeName={node.name} State=RESUME"
    )


def _written(context: Context, reason: str, hours: float) -> str:
    return lease(context.tag, reason, context.by, context.began, _hours(hours)).render()


def _hours(hours: float) -> float:
    if not 0 < hours <= LONGEST_H:
        raise ToolError(f"a lease runs for more than 0 and at most {LONGEST_H:g} hours, not {hours:g}")
    return hours


def _same(standing: str, written: str) -> bool:
    """Return whether two reasons are of the same cordon; a renewal changes only its end."""
    # on Slurm the reason of a node that is dead as well says behind ours why
    standing = standing.partition(" (was: ")[0]
    standing_lease, written_lease = parse(standing), parse(written)
    if standing_lease is None or written_lease is None:
        return standing == written
    return (standing_lease.tag, standing_lease.why) == (written_lease.tag, written_lease.why)


def _must_pass(context: Context, node: Node) -> str:
    """Return what the collective test said of a node whose probes pass.

    Raises:
        ToolError: It does not pass.
    """
    own = parse(node.reason)
    circumstances = Circumstances(limits(context.site), context.clock.now(), since=own.set_at if own else None)
    wrong = check(context, [node.name], circumstances, {})[node.name].release_problems
    if wrong:
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise ToolError(
            f"node {node.name} does not pass its probes and stays out: {'; '.join(wrong[:3])}{more}; --force says otherwise"
        )
    return proven_good(context, node.name)
