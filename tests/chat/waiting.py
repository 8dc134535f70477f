"""Wait for what an app shows, not for time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.pilot import Pilot

PATIENCE_S = 20.0


async def until(pilot: Pilot[Any], holds: Callable[[], object], what: str = "") -> None:
    """Let the app work until something holds; fail with `what` when it does not come."""
    for _ in range(int(PATIENCE_S / 0.02)):
        if holds():
            await pilot.pause()
            return
        await pilot.pause(0.02)
    raise AssertionError(f"waited {PATIENCE_S:g} s in vain: {what or holds}")
