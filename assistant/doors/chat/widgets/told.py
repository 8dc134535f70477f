"""What came of a question: the draft of a model while it speaks, then the checked answer, its notes, proposals and options."""

from __future__ import annotations

from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import Markdown, Static
from textual.widgets.markdown import MarkdownStream

from assistant.agent.answer import Answer, Kind
from assistant.display import block, line
from assistant.doors.chat.widgets.options import Options
from assistant.doors.chat.widgets.plain import Plain
from assistant.doors.chat.widgets.proposal import ProposalCard
from assistant.doors.chat.widgets.rests import Rests
from assistant.doors.chat.widgets.spoken import Spoken

DRAFT = "draft, not held against the evidence yet"
BEGUN = "the model was ended in the middle of this; it is held against nothing"


class Told(Vertical):
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
        parts += [Static(BEGUN, classes="draft-title"), Spoken(answer.begun, classes="draft")]
    parts.append(Spoken(answer.text, classes="answer") if by_model else Plain(answer.text, cites=True, classes="answer"))
    if answer.options:
        parts.append(Options(answer.options))
    parts += [ProposalCard(one) for one in answer.proposals]
    if answer.kind is Kind.REFUSED and not answer.proposals:
        parts.append(Static("Refused.", classes="note"))
    if answer.evidence or answer.incidents:
        parts.append(Rests(answer))
    notes = [f"! {line(note)}" for note in answer.notes]
    if notes:
        parts.append(Static(block("\n".join(notes)), markup=False, classes="note"))
    return parts
