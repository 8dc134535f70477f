"""One question or command in the conversation with its answer: text, calls that were made, changes proposed, questions back."""

from __future__ import annotations

import json
import re
import time

from markdown_it import MarkdownIt
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Button, Collapsible, Markdown, Static
from textual.widgets.markdown import MarkdownStream

from assistant.agent.answer import Answer, AnswerKind, AnswerSource, Proposal
from assistant.display import block, line, unambiguous
from assistant.tui.frame import MUTED, Plain, link
from assistant.tui.messages import OpenApproval, OpenIncident
from assistant.tui.sessions import SessionEntry
from assistant.tui.snapshot import ApprovalEntry, StoreSnapshot
from assistant.tui.widgets.news import NewsView
from assistant.tui.words import RISKS, age, short

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
        """Lay out the question and its answer."""
        if self.text:
            yield QuestionView(self.text)
        yield self._thinking
        yield self.reply

    @property
    def is_news(self) -> bool:
        """Whether it has no question, but events that the chat announces by itself."""
        return not self.text and bool(self.query(NewsView))

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

    async def show_call(self, source: AnswerSource, took_s: float | None = None) -> None:
        """Show a reading call."""
        await self.mount(SourceView(source, took_s), before=self._thinking)

    async def drafted(self, text: str) -> None:
        """Show more of what the model says."""
        await self.reply.draft(text)

    async def show_answer(self, answer: Answer) -> None:
        """Show the answer, and the sources of it that were not seen being read."""
        self._ends()
        numbers_shown = {widget.source.number for widget in self.query(SourceView)}
        cited_numbers = {int(number) for number in _CITED.findall(answer.text)}
        for source in answer.sources:
            if source.number not in numbers_shown and (source.number in cited_numbers or not numbers_shown):
                await self.show_call(source)
        await self.reply.answered(answer)

    async def failed(self, why: str, *, keep: bool = True) -> None:
        """Say why there is no answer; what the model said until then stays, as a draft."""
        self._ends()
        await self.reply.end_draft(keep=keep)
        await self.reply.mount(Static(line(why), markup=False, classes="failed"))

    async def noted(self, markdown: str) -> None:
        """Show the result of a command."""
        self._ends()
        await self.reply.mount(AnswerMarkdown(markdown, classes="answer"))

    async def announce(self, entry: SessionEntry) -> None:
        """Show events, beside those that are announced here already."""
        views = list(self.reply.query(NewsView))
        if not views:
            views = [NewsView()]
            await self.reply.mount(views[0])
        views[0].add(entry)

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
        for reading in self.query(SourceView):
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
        self._draft: AnswerMarkdown | None = None
        self._stream: MarkdownStream | None = None

    async def draft(self, text: str) -> None:
        """Show more of what the model says, marked as not checked."""
        if self.answer is not None:
            return
        if self._draft is None:
            self._draft = AnswerMarkdown(classes="draft")
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
        parts += [Static(CUT_SHORT, classes="draft-title"), AnswerMarkdown(answer.begun, classes="draft")]
    parts.append(AnswerMarkdown(answer.text, classes="answer") if by_model else Plain(answer.text, cites=True, classes="answer"))
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
        """Show the evidence and the incidents."""
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
        """Show the question."""
        lines = self.text.split("\n")
        more = [f"… {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
        first, *further = [*lines[:MOST_LINES], *more]
        text_shown = "\n".join([first, *(f"  {text}" for text in further)])
        self.update(Content.styled("› ", "$accent bold") + Content.styled(block(text_shown), "bold"))


# What the person may say instead, when the agent asks back.


class Options(Static):
    """What the person may say instead, numbered."""

    class OptionClicked(Message):
        """An option was clicked."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, options: tuple[str, ...]) -> None:
        super().__init__("", markup=False)
        self.options = options

    def on_mount(self) -> None:
        """Show the numbered options."""
        lines = [
            Content.styled(line(f"{place + 1}  "), "$accent") + link(line(option), "choose", place)
            for place, option in enumerate(self.options)
        ]
        self.update(Content("\n").join(lines))

    def action_choose(self, place: int) -> None:
        """Say an option as if it were typed."""
        self.post_message(self.OptionClicked(self.options[place]))


# Markdown of a model or of a report, in which nothing can be pressed but sources.

_SOURCE_MARK = re.compile(r"(?<!\\)\[(\d{1,4})\](?!\()")
_SOURCE = "source:"
_LEADS_TO = re.compile(rf"{_SOURCE}([0-9]{{1,4}})")


def parser() -> MarkdownIt:
    """Return a reader of Markdown that takes tags as text."""
    return MarkdownIt("gfm-like", {"html": False, "linkify": False})


class AnswerMarkdown(Markdown):
    """Markdown of a model or of a report; a link in it opens nothing but sources."""

    def __init__(self, text: str = "", *, classes: str | None = None) -> None:
        super().__init__(
            _SOURCE_MARK.sub(rf"[\\[\1\\]]({_SOURCE}\1)", block(text)), open_links=False, parser_factory=parser, classes=classes
        )

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        """Lead to a source, or show where a link leads: whoever wrote it may not send anybody anywhere."""
        event.stop()
        cited = _LEADS_TO.fullmatch(event.href)  # a model may write links of this form itself
        if cited is not None:
            self.post_message(Plain.Cited(int(cited[1])))
        else:
            self.app.notify(line(event.href, 200), title="This link leads to", markup=False)


# A reading call of the agent: one line that opens to what came back.

MOST_EVIDENCE_LINES = 24
MOST_CALL = 110
"""Characters of a call in its line; a longer one stands whole above what it returned."""


class SourceView(Collapsible):
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
        """Unfold the source, and bring it into view."""
        self.collapsed = False
        self._title.focus()

    def on_collapsible_expanded(self) -> None:
        """Lay out the evidence when it is first wanted."""
        inner = self.query_one(Collapsible.Contents)
        if not inner.children:
            call = whole_call(self.source)
            heading = f"{call}\n" if len(call) > MOST_CALL else ""
            inner.mount(Plain(f"{heading}{evidence(self.source)}", most=MOST_EVIDENCE_LINES, classes="evidence"))


def whole_call(source: AnswerSource) -> str:
    """Return a call with all of its arguments, on one line."""
    arguments = (f"{name}={json.dumps(value, ensure_ascii=False, default=str)}" for name, value in source.arguments.items())
    return f"{source.tool}({', '.join(arguments)})"


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
    return (
        number
        + Content(short(source.call, MOST_CALL))
        + Content.styled(line(took), MUTED)
        + Content.styled(line(failed), "$warning")
    )


# A change that the agent proposed: the exact command, why, what it risks, how it is taken back, and what came of it.


MOST_EDGE = 60
"""Characters of what came of a proposal at the edge of its card."""


class ProposalCard(Vertical):
    """A proposal; while it waits it can be answered from here."""

    class Refuse(Message):
        """The person wants to refuse it, and may say why."""

        def __init__(self, approval: int) -> None:
            super().__init__()
            self.approval = approval

    def __init__(self, proposal: Proposal) -> None:
        super().__init__()
        self.proposal = proposal
        self.outcome = ""
        """What the change did, or why it was not made, as text; empty while it waits."""
        self._waited = False
        self._change = Static(Content.styled(unambiguous(proposal.preview or proposal.tool), "bold"), classes="change")
        self._facts = Static("", markup=False, classes="facts")
        self._result = Static("", markup=False, classes="result")
        """Shows the outcome whole where the card's edge cuts it."""

    def compose(self) -> ComposeResult:
        """Lay out the proposal."""
        proposal = self.proposal
        yield self._change
        yield self._facts
        yield self._result
        if proposal.approval is not None:
            with Horizontal(classes="answers"):
                yield Button("Allow…", variant="warning", classes="allow", compact=True)
                yield Button("Refuse…", classes="refuse", compact=True)
                yield Button("Later", classes="later", compact=True)

    def on_mount(self) -> None:
        """Follow what becomes of the proposal."""
        proposal = self.proposal
        if proposal.approval is None:
            self.border_title = "Not proposed" if proposal.why_not else "Done"
            self._facts.update(line(proposal.why_not))
            self.add_class("-over")
            return
        self.border_title = Content(line(f"Proposed, not done · approval {proposal.approval}"))
        self.watch(self.app, "store_snapshot", self._show_state)

    def settled(self, text: str) -> None:
        """Show the outcome; the proposal cannot be answered any more."""
        self.outcome = text
        self.border_subtitle = Content(line(text, MOST_EDGE))
        self._result.update(block(text))
        self._result.set_class(len(line(text)) > MOST_EDGE, "-long")
        self.add_class("-over")

    def _show_state(self, snapshot: StoreSnapshot | None) -> None:
        if snapshot is None or self.outcome:
            return
        approval = next((candidate for candidate in snapshot.approvals if candidate.approval.id == self.proposal.approval), None)
        if approval is not None:
            self._waited = True
            # the stored command, which is the one that would run: not the agent's draft of it
            self._change.update(Content.styled(unambiguous(approval.command), "bold"))
            self._facts.update(_facts(approval, snapshot))
        elif self._waited:
            self.settled(_answer_of(self.proposal, snapshot))

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Lead to the question, to the reason of a no, or fold it away."""
        event.stop()
        approval = self.proposal.approval
        assert approval is not None
        if event.button.has_class("allow"):
            self.post_message(OpenApproval(approval))
        elif event.button.has_class("refuse"):
            self.post_message(self.Refuse(approval))
        else:
            self.add_class("-later")
            self.border_subtitle = Content(line(f"/approve {approval} when you are ready"))


def _facts(approval_entry: ApprovalEntry, approval: StoreSnapshot) -> Content:
    risk, colour = RISKS[approval_entry.risk]
    facts = (
        ("why", approval_entry.call.why or "nobody said why", ""),
        ("risk", risk, f"${colour}"),
        ("undo", approval_entry.undo or "cannot be undone", ""),
        ("asks", f"{approval_entry.call.by}; {approval_entry.approval.rule}", MUTED),
        ("left", f"{age(approval_entry.approval.expires, approval.at)}, then it lapses", MUTED),
        ("digest", approval_entry.digest, MUTED),
    )
    lines = [
        Content.styled(line(f"{name:<7}"), MUTED) + Content.styled(unambiguous(text), style) for name, text, style in facts if text
    ]
    return Content("\n").join(lines)


def _answer_of(proposal: Proposal, approval: StoreSnapshot) -> str:
    """Return who answered, by the audit as far as it is seen."""
    for row in approval.happened:
        if row.what == "approval.answered" and row.preview == proposal.preview:
            return f"{row.outcome or 'answered'} by {row.by}"
    return "answered, or lapsed"
