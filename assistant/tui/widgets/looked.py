"""A reading call of the agent: one line that opens to what came back."""

from __future__ import annotations

import json

from textual.content import Content
from textual.widgets import Collapsible

from assistant.agent.answer import AnswerSource
from assistant.display import line
from assistant.tui.widgets.plain import MUTED, Plain
from assistant.tui.words import short

MOST_EVIDENCE_LINES = 24


class Looked(Collapsible):
    """Folded until somebody wants to see the evidence, which is laid out only then."""

    def __init__(self, source: AnswerSource, took_s: float | None = None) -> None:
        """Show a call.

        Args:
            source: The call and what it returned.
            took_s: Seconds that it took; None where nobody measured it.
        """
        super().__init__(collapsed_symbol="▸", expanded_symbol="▾")
        self.source = source
        self._title.label = _label(source, took_s)
        self.set_class(bool(source.error), "-failed")

    def open(self) -> None:
        """Unfold, and bring it into view."""
        self.collapsed = False
        self._title.focus()

    def on_collapsible_expanded(self) -> None:
        """Lay out the evidence when it is first wanted."""
        inner = self.query_one(Collapsible.Contents)
        if not inner.children:
            inner.mount(Plain(evidence(self.source), most=MOST_EVIDENCE_LINES, classes="evidence"))


def evidence(source: AnswerSource) -> str:
    """Return what a call returned, as a person reads it."""
    if source.error:
        return f"It did not work: {source.error}"
    if isinstance(source.value, str):
        return source.value or "(nothing)"
    return json.dumps(source.value, ensure_ascii=False, indent=2, default=str)


def _label(source: AnswerSource, took_s: float | None) -> Content:
    took = "" if took_s is None else f" · {took_s * 1000:.0f} ms" if took_s < 1 else f" · {took_s:.1f} s"
    failed = " · did not work" if source.error else ""
    number = Content.styled(line(f"[{source.number}] "), "$primary")
    return number + Content(short(source.call, 110)) + Content.styled(line(took), MUTED) + Content.styled(line(failed), "$warning")
