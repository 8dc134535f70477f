"""The prompt for questions and commands with a slash: it completes names, searches what was typed before, and opens an editor."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea

from assistant.agent.answer import MOST_CHARACTERS
from assistant.display import removed
from assistant.tui.commands import ArgumentValue, CompletionOffer, Takes, offers
from assistant.tui.widgets.tables import Completion
from assistant.tui.words import short

TWICE_S = 1.0
"""Seconds within which a second Esc counts with the first."""


def nothing_known(_: Takes) -> Iterable[ArgumentValue]:
    """Return that nothing exists by which an argument may be completed."""
    return ()


class Prompt(TextArea):
    """Grows with what is typed; Enter hands it over."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("alt+enter,ctrl+j,shift+enter", "new_line", "New line", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("ctrl+c", "interrupt", "Stop", show=False, priority=True),
        Binding("ctrl+r", "search_history", "Search what was typed before", show=False),
        Binding("ctrl+g", "edit", "Write in $EDITOR", show=False),
        Binding("ctrl+underscore", "undo", "Undo", show=False),
    ]

    class Submitted(Message):
        """The person asks something, or gives a command."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Stopped(Message):
        """The person waits no longer."""

    class EditorWanted(Message):
        """The person wants to write in an editor."""

    class TooLong(Message):
        """More was pasted than a question can be."""

        def __init__(self, size: int) -> None:
            super().__init__()
            self.size = size

    def __init__(self, completion: Completion, *, id: str | None = None) -> None:
        """Make an empty prompt.

        Args:
            completion: Shows how the line may go on.
            id: For the style.
        """
        super().__init__(
            id=id, placeholder="Ask, or / for commands", compact=True, highlight_cursor_line=False, tab_behavior="focus"
        )
        # a text area takes these keys for itself; on the first screen they lead to panels, and Ctrl+Z suspends as in a shell
        for key in ("f6", "f7", "ctrl+z"):
            self._bindings.key_to_bindings.pop(key, None)
        self.completion = completion
        self.values_of: Callable[[Takes], Iterable[ArgumentValue]] = nothing_known
        """Tells what exists, for completion."""
        self.history_lines: list[str] = []
        """What was typed before, oldest first."""
        self._back = 0
        self._draft = ""
        self._named_in: str | None = None
        """The text whose last word Tab completes."""
        self._searched_from: str | None = None
        """What was being typed when the search in the history began; None while nothing is searched."""
        self._escaped_at = float("-inf")

    def fill(self, text: str) -> None:
        """Put a text in, to go on with."""
        self.text = text
        self.move_cursor(self.document.end)
        self.focus()

    def remember(self, lines: Sequence[str]) -> None:
        """Take over what was typed in earlier conversations."""
        self.history_lines = [*lines, *self.history_lines]

    def on_text_area_changed(self) -> None:
        """Offer how the line may go on."""
        at_end = self.cursor_location == self.document.end
        self.completion.show(self._offers() if at_end and len(self.text) < MOST_CHARACTERS else [])

    def _offers(self) -> list[CompletionOffer]:
        if self._searched_from is not None:
            return history_offers(self.text, self.history_lines)
        if self._named_in == self.text:
            return name_offers(self.text, self.values_of)
        return offers(self.text, self.values_of)

    async def _on_key(self, event: events.Key) -> None:
        acts = {
            "enter": self._enter,
            "tab": self._tab,
            "up": self._up,
            "down": self._down,
            "escape": self._escape,
        }.get(event.key)
        if acts is not None and acts():
            event.stop()
            event.prevent_default()
        elif event.key != "enter":
            await super()._on_key(event)

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.take_paste(event.text)

    def take_paste(self, text: str) -> None:
        """Insert what was pasted; a whole log is refused."""
        if len(text) > MOST_CHARACTERS:
            self.post_message(self.TooLong(len(text)))
        else:
            self.insert(removed(text))

    def _enter(self) -> bool:
        """Hand the line over; the name of a command is completed before, an argument only where the person chose one."""
        offer = self.completion.selected_offer
        if self._searched_from is not None:
            self._end_search(offer.line if offer is not None else self.text)
            return True
        wants_offer = self.completion.moved or (" " not in self.text and self.text.startswith("/"))
        if offer is not None and wants_offer and offer.line.rstrip() != self.text.rstrip():
            argument = " " in self.text
            self._take(offer.line)
            if argument or offer.line.endswith(" "):
                return True
        self.submit()
        return True

    def submit(self) -> None:
        """Hand over what was typed."""
        text = self.text.strip()
        self.completion.show([])
        self._back, self._draft, self._searched_from = 0, "", None
        if text:
            if self.history_lines[-1:] != [text]:
                self.history_lines.append(text)
            self.text = ""
            self.post_message(self.Submitted(text))

    def _tab(self) -> bool:
        """Take what is offered; else complete the name that the last word begins, as far as it is certain."""
        offer = self.completion.selected_offer
        if self._searched_from is not None:
            self._end_search(offer.line if offer is not None else self.text)
            return True
        if offer is not None:
            self._take(offer.line)
            return True
        if self.cursor_location != self.document.end:
            return False
        names_offered = name_offers(self.text, self.values_of)
        if not names_offered:
            return False
        common = common_beginning([offer.line for offer in names_offered])
        self._named_in = common if len(names_offered) > 1 else None
        if len(common) > len(self.text):
            self._take(common)
        if len(names_offered) > 1:
            self.completion.show(names_offered)
        return True

    def action_search_history(self) -> None:
        """Search what was typed before by what stands in the prompt; once more: go to an older line."""
        if self._searched_from is not None:
            self.completion.move(1)
            return
        self._searched_from = self.text
        self.completion.show(history_offers(self.text, self.history_lines))

    def _end_search(self, text: str) -> None:
        """Put a line into the prompt: Enter there hands it over."""
        self._searched_from = None
        self._take(text)
        self.completion.show([])

    def action_edit(self) -> None:
        """Write in an editor."""
        self.post_message(self.EditorWanted())

    def _take(self, line: str) -> None:
        self.text = line
        self.move_cursor(self.document.end)

    def _up(self) -> bool:
        if self.completion.is_open:
            self.completion.move(-1)
            return True
        return self.cursor_location[0] == 0 and self.navigator.is_first_wrapped_line(self.cursor_location) and self._recall(1)

    def _down(self) -> bool:
        if self.completion.is_open:
            self.completion.move(1)
            return True
        return self.cursor_at_last_line and self._back > 0 and self._recall(-1)

    def _recall(self, by: int) -> bool:
        """Show an older line, or a newer one; behind the newest stands what was being typed."""
        back = self._back + by
        if not 0 <= back <= len(self.history_lines):
            return True
        if self._back == 0:
            self._draft = self.text
        self._back = back
        self.text = self.history_lines[-back] if back else self._draft
        self.move_cursor(self.document.end)
        self.completion.show([])
        return True

    def _escape(self) -> bool:
        """Close what is offered; twice: wait no longer."""
        if self._searched_from is not None:
            self._end_search(self._searched_from)
            return True
        if self.completion.is_open:
            self.completion.show([])
            return True
        now = time.monotonic()
        if now - self._escaped_at <= TWICE_S:
            self._escaped_at = float("-inf")
            self.post_message(self.Stopped())
            return True
        self._escaped_at = now
        return False

    def action_new_line(self) -> None:
        """Begin another line."""
        self.insert("\n")

    def action_page(self, by: int) -> None:
        """Scroll the conversation."""
        talk = self.screen.query_one("#conversation")
        (talk.scroll_page_down if by > 0 else talk.scroll_page_up)()

    def action_interrupt(self) -> None:
        """Copy what is chosen; else empty the line; else wait no longer."""
        if self.selected_text:
            self.action_copy()
        elif self._searched_from is not None:
            self._end_search(self._searched_from)
        elif self.text:
            self.text = ""
        else:
            self.post_message(self.Stopped())


MOST_OFFERED = 60
"""Ways to go on that are offered."""
_LAST_WORD = re.compile(r"[\w.\-]*\Z")
_KINDS: dict[str, tuple[Takes, ...]] = {
    "job": (Takes.JOB, Takes.JOB_NAME),
    "jobs": (Takes.JOB, Takes.JOB_NAME),
    "node": (Takes.NODE,),
    "nodes": (Takes.NODE,),
    "incident": (Takes.INCIDENT,),
    "incidents": (Takes.INCIDENT,),
    "approval": (Takes.APPROVAL,),
    "user": (Takes.USER,),
    "of": (Takes.JOB, Takes.JOB_NAME, Takes.NODE, Takes.USER),
}
"""What kind of name follows a word, so that it is offered before its first letter."""
_ANY = (Takes.JOB, Takes.JOB_NAME, Takes.NODE, Takes.USER)
"""Kinds of names that are told from other words by themselves: the number of an incident is not."""


def name_offers(text: str, existing: Callable[[Takes], Iterable[ArgumentValue]]) -> list[CompletionOffer]:
    """Return the names with which the last word of a question may go on, each once; none where nothing begins like it.

    Args:
        text: All that stands before the cursor.
        existing: Return what exists of a kind.
    """
    match = _LAST_WORD.search(text)
    word = match.group() if match is not None else ""
    before = text[: len(text) - len(word)]
    words = before.split()
    kinds = _KINDS.get(words[-1].lower() if words else "", ())
    if not word and (not kinds or before.endswith(words[-1])):
        return []
    values_by_name: dict[str, ArgumentValue] = {}
    for kind in kinds or _ANY:
        for value in existing(kind):
            if value.name not in values_by_name and value.name != word and value.name.lower().startswith(word.lower()):
                values_by_name[value.name] = value
                if len(values_by_name) >= MOST_OFFERED:
                    break
    return [CompletionOffer(f"{before}{value.name}", value.name, value.about) for value in values_by_name.values()]


def history_offers(text: str, lines: Sequence[str]) -> list[CompletionOffer]:
    """Return the lines that were typed before and hold all words of a text, the newest first and each once."""
    words = text.casefold().split()
    distinct = dict.fromkeys(reversed(lines))
    matching = [line for line in distinct if all(word in line.casefold() for word in words)]
    return [
        CompletionOffer(line, short(line, 120), "" if place else "typed before: Enter takes it")
        for place, line in enumerate(matching[:MOST_OFFERED])
    ]


def common_beginning(lines: Sequence[str]) -> str:
    """Return the longest text with which all lines begin."""
    first, last = min(lines), max(lines)
    length = next((place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:length]
