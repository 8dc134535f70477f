"""The conversation: what was asked, what was looked at, what came of it."""

from __future__ import annotations

from textual.containers import VerticalScroll
from textual.widgets import Markdown, Static

from assistant.agent.answer import Answer, Source


class Conversation(VerticalScroll):
    """Questions and answers, oldest first."""

    def said(self, question: int, text: str) -> None:
        """Show what the person said."""
        self.mount(Static(text, markup=False, classes="said", id=f"said-{question}"))
        self.anchor()

    def looked(self, question: int, source: Source) -> None:
        """Show a reading call of the agent."""

    def drafted(self, question: int, text: str) -> None:
        """Show more of what the model says."""

    def told(self, question: int, answer: Answer) -> None:
        """Show an answer."""
        self.mount(Markdown(answer.text, classes="told"))

    def failed(self, question: int, why: str) -> None:
        """Show why there is no answer."""
        self.mount(Static(why, markup=False, classes="failed"))
