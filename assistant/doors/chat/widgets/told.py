"""What came of a question: the draft of a model while it speaks, then the checked answer, its notes, proposals and options."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Markdown, Static
from textual.widgets.markdown import MarkdownStream

from assistant.agent.answer import Answer, Kind
from assistant.doors.chat.messages import OpenIncident
from assistant.doors.chat.widgets.plain import MUTED, Plain, link
from assistant.doors.chat.widgets.proposal import ProposalCard
from assistant.doors.cli.output import clean

_CITED = re.compile(r"(?<!\\)\[(\d{1,4})\](?!\()")
_SOURCE = "source:"
DRAFT = "draft, not held against the evidence yet"


def parser() -> MarkdownIt:
    """Return a reader of Markdown that takes tags as text."""
    return MarkdownIt("gfm-like", {"html": False, "linkify": False})


class Spoken(Markdown):
    """Markdown of a model or of a report; a link in it opens nothing but sources."""

    def __init__(self, text: str = "", *, classes: str | None = None) -> None:
        super().__init__(
            _CITED.sub(rf"[\\[\1\\]]({_SOURCE}\1)", clean(text)), open_links=False, parser_factory=parser, classes=classes
        )

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        """Lead to a source, or show where a link leads: whoever wrote it may not send anybody anywhere."""
        event.stop()
        if event.href.startswith(_SOURCE):
            self.post_message(Plain.Cited(int(event.href.removeprefix(_SOURCE))))
        else:
            self.app.notify(clean(event.href)[:200], title="This link leads to", markup=False)


class Options(Static):
    """What the person may say instead, numbered."""

    class Chosen(Message):
        """One was clicked."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, options: tuple[str, ...]) -> None:
        super().__init__("", markup=False)
        self.options = options

    def on_mount(self) -> None:
        """Show them."""
        lines = [
            Content.styled(f"{place + 1}  ", "$accent") + link(clean(one), "choose", place)
            for place, one in enumerate(self.options)
        ]
        self.update(Content("\n").join(lines))

    def action_choose(self, place: int) -> None:
        """Say one."""
        self.post_message(self.Chosen(self.options[place]))


class Rests(Static):
    """What an answer rests on in the store."""

    def __init__(self, answer: Answer) -> None:
        super().__init__("", markup=False, classes="rests")
        self._answer = answer

    def on_mount(self) -> None:
        """Show it."""
        evidence = ", ".join(map(str, self._answer.evidence))
        parts = [Content.styled(f"evidence {evidence}", MUTED)] if evidence else []
        parts += [link(f"incident {number}", "incident", number) for number in self._answer.incidents[:5]]
        self.update(Content.styled(" · ", MUTED).join(parts))

    def action_incident(self, number: int) -> None:
        """Open an incident."""
        self.post_message(OpenIncident(number))


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
        await self._stream.write(clean(text))

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
    parts: list[Widget] = [Spoken(answer.text, classes="answer") if by_model else Plain(answer.text, cites=True, classes="answer")]
    if answer.options:
        parts.append(Options(answer.options))
    parts += [ProposalCard(one) for one in answer.proposals]
    if answer.kind is Kind.REFUSED and not answer.proposals:
        parts.append(Static("Refused.", classes="note"))
    if answer.evidence or answer.incidents:
        parts.append(Rests(answer))
    notes = [f"! {clean(note)}" for note in answer.notes]
    if notes:
        parts.append(Static("\n".join(notes), markup=False, classes="note"))
    return parts
