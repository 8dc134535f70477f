"""A playbook as it is written: what it is for, its steps, how it verifies, when it gives up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, Static

from assistant.content.playbooks import Playbook, Step, Verify
from assistant.display import line


class PlaybookScreen(Screen[None]):
    """Shows one playbook."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", "Back"),
        Binding("j", "scroll('down')", show=False),
        Binding("k", "scroll('up')", show=False),
    ]

    def __init__(self, playbook: Playbook) -> None:
        super().__init__()
        self.playbook = playbook

    def compose(self) -> ComposeResult:
        """Lay out the steps."""
        with VerticalScroll(id="playbook") as box:
            box.border_title = Content(line(self.playbook.name))
            yield Static(Content("\n").join(_playbook_lines(self.playbook)))
        yield Footer(show_command_palette=False)

    def action_scroll(self, direction: str) -> None:
        """Scroll."""
        box = self.query_one("#playbook", VerticalScroll)
        (box.scroll_down if direction == "down" else box.scroll_up)()


def _playbook_lines(book: Playbook) -> Iterator[Content]:
    yield Content.styled(line(book.title), "bold")
    yield _pair("handles", ", ".join((*book.handles, *map(str, book.actions))))
    yield _pair("limits", f"{book.limits.attempts} restarts for one cause within {book.limits.within_h:g} h, then a person is told")
    yield _pair("ends", str(book.ends))
    yield Content("")
    for number, step in enumerate(book.step, 1):
        yield from _step(f"{number:>2}. ", step)
    for check in book.verify:
        yield from _step(" ✓  ", check)


def _step(lead: str, step: Step | Verify) -> Iterator[Content]:
    yield (
        Content.styled(line(lead), "$accent") + Content.styled(line(step.name or step.use), "bold") + Content(line(f"  {step.use}"))
    )
    if step.why:
        yield _pair("why", step.why)
    for name, value in step.with_.items():
        yield _pair(name, str(value))
    conditions = [f"{word} {text}" for word in ("when", "unless", "each") if (text := getattr(step, word, ""))]
    if conditions:
        yield _pair("only", ", ".join(conditions))
    if step.expect:
        yield _pair("until", f"status is {step.expect}, within {step.within_min:g} min")
    yield Content("")


def _pair(name: str, text: str) -> Content:
    return Content.styled(line(f"    {name:<9}"), "$text-muted") + Content(line(text))
