"""Questions to the person that were looked at behind the screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.screen import Screen

from assistant.tui.screens.consent import ConsentScreen


def asked_on(screen: Screen[Any], question: ConsentScreen[bool], answered: Callable[[bool | None], None]) -> bool:
    """Put a question on the screen that it belongs to; tell whether that could be done.

    Not where the person went on to another screen meanwhile: a question that jumps under their hands is answered by accident.
    """
    if screen.app.screen is not screen:
        return False
    screen.app.push_screen(question, answered)
    return True
