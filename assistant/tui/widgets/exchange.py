"""One question or command with all that came of it."""

from __future__ import annotations

import re
import time

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Markdown, Static
from textual.widgets.markdown import MarkdownStream

from assistant.agent.answer import Answer, AnswerKind, AnswerSource
from assistant.display import block, line
from assistant.tui.messages import OpenIncident
from assistant.tui.widgets.looked import Looked
from assistant.tui.widgets.options import Options
from assistant.tui.widgets.plain import MUTED, Plain, link
from assistant.tui.widgets.proposal import ProposalCard
from assistant.tui.widgets.spoken import Spoken

SILENT_S = 0.4
"""Seconds before it is said that the agent works."""
_CITED = re.compile(r"\[(\d{1,4})\]")


class Exchange(Vertical):
    """What was said, what was looked at for it, what came back; in that order."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__()
        self.number, self.text = number, text
        self.waits = False
        """Whether an answer is awaited."""
        self._began = 0.0
        self._thinking = Static("", markup=False, classes="thinking")
        self.reply = AnswerView()

    def compose(self) -> ComposeResult:
        """Lay it out."""
        if self.text:
            yield QuestionView(self.text)
        yield self._thinking
        yield self.reply

    def think(self) -> None:
        """Say how long the agent works, until something comes of it."""
        self.waits, self._began = True, time.monotonic()
        self.set_interval(SILENT_S, self._tick)

    def _tick(self) -> None:
        if self.waits:
            seconds = int(time.monotonic() - self._began)
            self._thinking.update(f"working… {seconds} s · Ctrl+C or Esc Esc to wait no longer")
            self._thinking.add_class("-shown")

    def _ends(self) -> None:
        self.waits = False
        self._thinking.remove_class("-shown")

    async def looked(self, source: AnswerSource, took_s: float | None = None) -> None:
        """Show a reading call."""
        await self.mount(Looked(source, took_s), before=self._thinking)

    async def drafted(self, text: str) -> None:
        """Show more of what the model says."""
        await self.reply.draft(text)

    async def told(self, answer: Answer) -> None:
        """Show the answer, and the sources of it that were not seen being read."""
        self._ends()
        numbers_shown = {widget.source.number for widget in self.query(Looked)}
        cited_numbers = {int(number) for number in _CITED.findall(answer.text)}
        for source in answer.sources:
            if source.number not in numbers_shown and (source.number in cited_numbers or not numbers_shown):
                await self.looked(source)
        await self.reply.answered(answer)

    async def failed(self, why: str, *, keep: bool = True) -> None:
        """Say why there is no answer; what the model said until then stays, as a draft."""
        self._ends()
        await self.reply.end_draft(keep=keep)
        await self.reply.mount(Static(line(why), markup=False, classes="failed"))

    async def noted(self, markdown: str) -> None:
        """Show what came of a command."""
        self._ends()
        await self.reply.mount(Spoken(markdown, classes="answer"))

    async def remarked(self, text: str) -> None:
        """Show what came of a proposal, in a conversation that is shown again."""
        await self.reply.mount(Static(line(text), markup=False, classes="note"))

    def settled(self, approval: int, text: str) -> bool:
        """Say what came of a proposal; tell whether it was one of these."""
        cards = [card for card in self.query(ProposalCard) if card.proposal.approval == approval]
        for card in cards:
            card.settled(text)
        return bool(cards)

    def open_source(self, number: int) -> bool:
        """Unfold a source; tell whether it is here."""
        for reading in self.query(Looked):
            if reading.source.number == number:
                reading.open()
                return True
        return False


# What came of a question: the draft of a model while it speaks, then the checked answer, its notes, proposals and options.

DRAFT = "draft, not held against the evidence yet"
CUT_SHORT = "the model was ended in the middle of this; it is held against nothing"


class AnswerView(Vertical):
    """An answer, or what there is of it."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: Answer | None = None
        self._draft: Spoken | None = None
        self._stream: MarkdownStream | None = None

    async def draft(self, text: str) -> None:
        """Show more of what the model says, marked as not checked."""
        if self.answer is not None:
            return
        if self._draft is None:
            self._draft = Spoken(classes="draft")
            await self.mount(Static(DRAFT, classes="draft-title"), self._draft)
            self._stream = Markdown.get_stream(self._draft)
        assert self._stream is not None
        await self._stream.write(block(text))

    async def answered(self, answer: Answer) -> None:
        """Show the checked answer instead of the draft."""
        self.answer = answer
        await self.end_draft(keep=False)
        await self.mount_all(_parts(answer))

    async def end_draft(self, *, keep: bool) -> None:
        """End the draft.

        Args:
            keep: Leave what was said so far on the screen, as a draft.
        """
        if self._stream is not None:
            await self._stream.stop()
            self._stream = None
        if self._draft is not None and not keep:
            await self.query(".draft, .draft-title").remove()
            self._draft = None


def _parts(answer: Answer) -> list[Widget]:
    by_model = answer.mode.startswith("model:")
    parts: list[Widget] = []
    if answer.begun:
        parts += [Static(CUT_SHORT, classes="draft-title"), Spoken(answer.begun, classes="draft")]
    parts.append(Spoken(answer.text, classes="answer") if by_model else Plain(answer.text, cites=True, classes="answer"))
    if answer.options:
        parts.append(Options(answer.options))
    parts += [ProposalCard(proposal) for proposal in answer.proposals]
    if answer.kind is AnswerKind.REFUSED and not answer.proposals:
        parts.append(Static("Refused.", classes="note"))
    if answer.evidence or answer.incidents:
        parts.append(Rests(answer))
    notes = [f"! {line(note)}" for note in answer.notes]
    if notes:
        parts.append(Static(block("\n".join(notes)), markup=False, classes="note"))
    return parts


# What an answer rests on in the store.


class Rests(Static):
    """Names the evidence, and leads to the incident."""

    def __init__(self, answer: Answer) -> None:
        super().__init__("", markup=False, classes="rests")
        self._answer = answer

    def on_mount(self) -> None:
        """Show it."""
        evidence = ", ".join(map(str, self._answer.evidence))
        parts = [Content.styled(line(f"evidence {evidence}"), MUTED)] if evidence else []
        parts += [link(f"incident {number}", "incident", number) for number in self._answer.incidents[:5]]
        self.update(Content.styled(" · ", MUTED).join(parts))

    def action_incident(self, number: int) -> None:
        """Open an incident."""
        self.post_message(OpenIncident(number))


# What the person said.

MOST_LINES = 12


class QuestionView(Static):
    """A question or a command, as it was typed."""

    def __init__(self, text: str) -> None:
        super().__init__("", markup=False)
        self.text = block(text)

    def on_mount(self) -> None:
        """Show it."""
        lines = self.text.split("\n")
        more = [f"… {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
        first, *further = [*lines[:MOST_LINES], *more]
        text_shown = "\n".join([first, *(f"  {text}" for text in further)])
        self.update(Content.styled("› ", "$accent bold") + Content.styled(block(text_shown), "bold"))
