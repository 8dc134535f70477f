"""Which checkpoints stay: the last k, every n-th for ever, and always one that can be loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def to_delete(
    steps: Sequence[int], *, keep: int | None, keep_every: int, healthy: Callable[[int], bool] = lambda step: True
) -> list[int]:
    """Return the steps whose checkpoints may go, oldest first.

    Args:
        steps: All committed ones, in any order.
        keep: How many of the newest stay; None keeps all.
        keep_every: Steps that this divides stay for ever; 0: none.
        healthy: Whether a checkpoint can be loaded; when none that stays can, the newest that can stays as well. Asked of the
            newest first, until one is.
    """
    ordered = sorted(steps)
    if keep is None:
        return []
    going = [step for step in ordered[: max(0, len(ordered) - keep)] if not (keep_every and step % keep_every == 0)]
    gone = set(going)
    if going and not any(healthy(step) for step in reversed(ordered) if step not in gone):
        spared = next((step for step in reversed(going) if healthy(step)), None)
        going = [step for step in going if step != spared]
    return going
