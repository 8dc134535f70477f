"""The rules of cordons that both embedded schedulers keep, what people set is never touched, and how a node shows."""

from __future__ import annotations

from assistant.errors import ToolError
from assistant.records import Node, NodeState, tags_in

OWN = "nightshift"
"""What the reasons of our own cordons start with."""
HELD_BY_USER = "JobHeldUser"
"""Slurm's reason of a job that was submitted held, or held by its owner."""


def must_cordon(node: str, before: str | None, reason: str) -> bool:
    """Return whether a cordon has to be written; False when that very one is there.

    Args:
        node: Its name.
        before: The reason that stands now; None when the node is not cordoned.
        reason: The one to set.

    Raises:
        ToolError: Somebody else cordoned it with another reason, or Nightshift with another store did.
    """
    if before is None or before == reason:
        return before is None
    if not before.startswith(OWN):
        raise ToolError(f"node {node} is cordoned already by somebody else ({before!r}); their reason was left as it is")
    current_store, own_store = store_in(before), store_in(reason)
    if current_store and current_store != own_store:
        raise ToolError(f"node {node} is cordoned already by Nightshift with another store ({before!r}); it was left as it is")
    return True


def store_in(reason: str) -> str:
    """Return the id of the store that a reason names; empty for none, and for the tags from before stores had ids."""
    return next((tag.store for tag in tags_in(reason)), "")


def must_uncordon(node: str, before: str | None) -> bool:
    """Return whether a cordon has to be lifted; False when there is none.

    Raises:
        ToolError: Somebody else set it.
    """
    if before is not None and not before.startswith(OWN):
        raise ToolError(
            f"node {node} was cordoned by somebody else ({before!r}); ask them, or lift it with the scheduler's own command"
        )
    return before is not None


def node_of(name: str, partition: str, *, jobs: tuple[str, ...], cordon: str | None, down: str | None) -> Node:
    """Return a node as the port shows it.

    Args:
        name: Its name.
        partition: Its partition.
        jobs: The jobs that run on it.
        cordon: The reason of its cordon.
        down: Why it is dead.
    """
    if down is not None:
        state = NodeState.DOWN
    elif cordon is not None:
        state = NodeState.DRAINING if jobs else NodeState.DRAINED
    else:
        state = NodeState.ALLOCATED if jobs else NodeState.IDLE
    return Node(name, state, partition, cordon or down or "", jobs)
