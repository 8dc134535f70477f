"""Wait for what an app shows, not for time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Input

from assistant.ports import JumpingClock
from assistant.tui.screens.consent import ConsentScreen

PATIENCE_S = 20.0
PAUSE_S = 3.0
"""Longer than any pause that a dialog waits for."""


async def until(pilot: Pilot[Any], holds: Callable[[], object], what: str = "") -> None:
    """Let the app work until something holds; fail with `what` when it does not come."""
    for _ in range(int(PATIENCE_S / 0.02)):
        if holds():
            await pilot.pause()
            return
        await pilot.pause(0.02)
    raise AssertionError(f"waited {PATIENCE_S:g} s in vain: {what or holds}")


async def seen(pilot: Pilot[Any], dialog: type[Screen[Any]], clock: JumpingClock) -> None:
    """Wait until a dialog is drawn, and look at it for longer than it ignores answers."""
    await until(pilot, lambda: isinstance(pilot.app.screen, dialog), dialog.__name__)
    screen = pilot.app.screen
    if isinstance(screen, ConsentScreen):
        await until(pilot, lambda: screen.guard.is_drawn, "the dialog to be drawn")
        clock.sleep(PAUSE_S)


async def deliberately(pilot: Pilot[Any], dialog: type[Screen[Any]], key: str, clock: JumpingClock, *, name: str = "") -> None:
    """Answer a dialog as a person does who means it: look, press one key, wait; type the name that it asks for, and Enter."""
    await seen(pilot, dialog, clock)
    screen = pilot.app.screen
    assert isinstance(screen, ConsentScreen)
    await pilot.press(key)
    await until(pilot, lambda: screen.guard.pending, f"{key} to be taken: {screen.hinted}")
    clock.sleep(PAUSE_S)
    if not name:
        await until(pilot, lambda: screen.guard.pending is None, f"{key} to count")
        return
    await until(pilot, lambda: isinstance(screen.focused, Input), "the field for the name")
    for character in name:
        await pilot.press(character)
        clock.sleep(0.1)
    await pilot.press("enter")
    await until(pilot, lambda: screen.guard.pending, f"the name to be taken: {screen.hinted}")
    clock.sleep(PAUSE_S)
    await until(pilot, lambda: screen.guard.pending is None, "the name to count")
