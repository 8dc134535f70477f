"""What the chat tells the terminal beside its screen: a title with the state, and by choice a bell and a desktop notification.

The title is that of the window or tab (OSC 2); the one before is put back at the end, where the terminal keeps it. A bell and a
notification (OSC 9, OSC 777) are for what needs a person, and off until the settings turn them on. Only text without control
characters gets into a sequence.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from assistant.config import ChatSettings
from assistant.display import line
from assistant.overall_state import OverallState
from assistant.tui.news import NewsEvent, events_text
from assistant.tui.words import short

BELL = "\a"
KEEP_TITLE, RESTORE_TITLE = "\x1b[22;2t", "\x1b[23;2t"
"""Source: xterm control sequences, XTWINOPS 22 and 23."""
MOST = 200
"""Characters of a title or a notification."""
MOST_REMARKS = 4
"""Of what keeps it from being well, in a title."""
_END = "\a"


def title_of(state: OverallState) -> str:
    """Return how things stand in the few words of a title."""
    if state.begins:
        return "Nightshift"
    return f"Nightshift: {', '.join(remark.short.lstrip('!■ ') for remark in state.remarks[:MOST_REMARKS]) or 'nothing is wrong'}"


def title_sequence(text: str) -> str:
    """Return what gives the terminal a title."""
    return f"\x1b]2;{_plain(text)}{_END}"


def notification_sequence(form: str, text: str, *, in_tmux: bool) -> str:
    """Return what asks the terminal for a desktop notification.

    Args:
        form: `osc9` or `osc777`; nothing comes of any other.
        text: What it says.
        in_tmux: Whether tmux is in between, which hands it on where `allow-passthrough` is on.
    """
    # a digit and a semicolon at the start of OSC 9 are other commands of some terminals, such as a progress bar
    bodies = {"osc9": f"9;Nightshift: {_plain(text)}", "osc777": f"777;notify;Nightshift;{_plain(text).replace(';', ',')}"}
    if form not in bodies:
        return ""
    sequence = f"\x1b]{bodies[form]}{_END}"
    doubled = sequence.replace("\x1b", "\x1b\x1b")
    return f"\x1bPtmux;{doubled}\x1b\\" if in_tmux else sequence


def _plain(text: str) -> str:
    return short(line(text), MOST)


class TerminalSignals:
    """Tells the terminal, through a function that writes to it."""

    def __init__(self, settings: ChatSettings, write: Callable[[str], object]) -> None:
        self._settings, self._write = settings, write
        self._title = ""

    def show(self, title: str) -> None:
        """Give the terminal a title, where it is another one than before."""
        if title != self._title:
            self._title = title
            self._write(title_sequence(title))

    def alarm(self, events: Sequence[NewsEvent]) -> None:
        """Ring and notify of events that need a person, as the settings want it."""
        bell = BELL if self._settings.bell else ""
        sequence = notification_sequence(self._settings.notify, events_text(events), in_tmux="TMUX" in os.environ)
        if bell or sequence:
            self._write(f"{bell}{sequence}")


def write_outside(sequence: str) -> None:
    """Write to the terminal while no screen is on it, before or after the chat; to nothing else than a terminal."""
    if sys.__stderr__ is not None and sys.__stderr__.isatty():
        sys.__stderr__.write(sequence)
        sys.__stderr__.flush()
