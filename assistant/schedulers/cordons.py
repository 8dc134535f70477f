"""The rules of cordons that both embedded schedulers keep, what people set is never touched, and how a node shows."""

from __future__ import annotations

from assistant.errors import ToolError
from assistant.records import Node, NodeState

OWN = "nightshift"
"""What the reasons of our own cordons start with."""


def must_cordon(node: str, before: str | None, reason: str) -> bool:
    """Return whether a cordon has to be written; False when that very one is there.

    Args:
        node: Its name.
        before: The reason that stands now; None when the node is not cordoned.
        reason: The one to set.

    Raises:
        ToolError: Somebody else cordoned it with another reason.
    """
    if before is None or before == reason:
        return before is None
    if not before.startswith(OWN):
        raise ToolError(f"node {node} is cordoned already by somebody else ({before!r}); their reason was left as it is")
    return True


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


def shown(name: str, partition: str, *, jobs: tuple[str, ...], cordon: str | None, down: str | None) -> Node:
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
