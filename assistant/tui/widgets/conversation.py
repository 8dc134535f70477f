"""The conversation: what an empty one says, what was asked and answered, and the prompt for questions and commands with a slash."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Static, TextArea

from assistant.agent.answer import MOST_CHARACTERS, Answer, AnswerSource
from assistant.display import line, removed
from assistant.records import JobState
from assistant.tui.commands import ArgumentValue, Takes, offers
from assistant.tui.frame import MUTED, Plain, is_covered, link
from assistant.tui.sessions import ANNOUNCED, SessionEntry, SessionEntryKind
from assistant.tui.snapshot import OUT, ClusterSnapshot, StoreSnapshot
from assistant.tui.widgets.exchange import Exchange, Options
from assistant.tui.widgets.tables import Completion
from assistant.tui.words import agent_sentence

INTRODUCTION = "Nightshift finds out why training jobs fail and brings them back."


class Welcome(Static):
    """Follows what is seen, until the first question."""

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self.answers = ""
        self.examples: tuple[str, ...] = ()
        self._lines: list[Content] = []

    def on_mount(self) -> None:
        """Follow what the backend reads."""
        self.watch(self.app, "store_snapshot", self.look, init=False)
        self.watch(self.app, "cluster_snapshot", self.look, init=False)
        self.look()

    def says(self, answers: str) -> None:
        """Say what answers questions."""
        self.answers = answers
        self.look()

    def action_ask(self, place: int) -> None:
        """Ask one of the examples."""
        self.post_message(Options.OptionClicked(self.examples[place]))

    def look(self) -> None:
        """Show what fits now."""
        if is_covered(self):
            return
        self.examples = examples(self.app.store_snapshot, self.app.cluster_snapshot)  # type: ignore[attr-defined]
        lines = [Content.styled(INTRODUCTION, "bold"), Content.styled(line(agent_sentence(self.answers)), MUTED), Content("")]
        lines += [
            Content.styled(line(f"{place + 1}  "), "$accent") + link(example, "ask", place)
            for place, example in enumerate(self.examples)
        ]
        lines += [Content(""), Content.styled("A number and Enter asks it; / lists commands, F1 keys.", MUTED)]
        if lines != self._lines:
            self._lines = lines
            self.update(Content("\n").join(lines))


def examples(store: StoreSnapshot | None, cluster: ClusterSnapshot | None) -> tuple[str, ...]:
    """Return three questions that fit what is seen now, the most pressing first."""
    questions: list[str] = []
    for entry in store.incidents if store is not None else ():
        if not entry.incident.state.ended or entry.incident.state.name == "ESCALATED":
            if entry.incident.service is not None:
                continue  # its jobs say more
            questions.append(
                f"why did job {entry.incident.job} die?" if entry.incident.job else f"what happened on node {entry.incident.node}?"
            )
            break
    if store is not None and store.approvals:
        questions.append("what waits for me?")
    out = next((node for node in cluster.nodes if node.state in OUT), None) if cluster is not None else None
    if out is not None:
        questions.append(f"why is node {out.name} out of service?")
    running = next((job for job in reversed(cluster.jobs) if job.state is JobState.RUNNING), None) if cluster is not None else None
    if running is not None:
        questions.append(f"how far is job {running.id}?")
    return tuple([*questions, "what is wrong now?", "which jobs failed today?", "which nodes are out of service?"][:3])


MOST_LAID_OUT = 24
"""Exchanges that are laid out; older ones are when somebody asks for them."""
MORE = 12


class Conversation(VerticalScroll):
    """Questions and answers, oldest first; it stays at its end while the person does not scroll up."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.welcome = Welcome()
        self._earlier = Earlier()
        self._exchanges: dict[int, Exchange] = {}
        self._entries: list[SessionEntry] = []
        """All of the conversation, laid out or not."""

    def compose(self) -> ComposeResult:
        """Begin with the welcome."""
        yield self.welcome
        yield self._earlier

    def on_mount(self) -> None:
        """Stay at the end."""
        self._earlier.show(0)
        self.anchor()

    @property
    def entries(self) -> Sequence[SessionEntry]:
        """All of the conversation, oldest first."""
        return self._entries

    @property
    def working(self) -> list[int]:
        """Questions that are not answered yet."""
        return [number for number, exchange in self._exchanges.items() if exchange.waits]

    def record(self, entry: SessionEntry) -> None:
        """Take an entry into the conversation; it is shown by other means."""
        self._entries.append(entry)

    async def show_question(self, question: int, text: str, *, asks: bool) -> None:
        """Show what the person said.

        Args:
            question: Number of the exchange.
            text: As it was typed.
            asks: Whether the agent works on it.
        """
        with self.app.batch_update():
            exchange = await self._begin(question, text)
            if asks:
                exchange.think()
            await self._prune()
        # whoever says something wants to see what comes of it, wherever they had scrolled to
        self.anchor()

    async def show_call(self, question: int, source: AnswerSource, took_s: float | None = None) -> None:
        """Show a reading call of the agent."""
        if question in self._exchanges:
            await self._exchanges[question].show_call(source, took_s)

    async def drafted(self, question: int, text: str) -> None:
        """Show more of what the model says."""
        if question in self._exchanges:
            await self._exchanges[question].drafted(text)

    async def show_answer(self, question: int, answer: Answer) -> None:
        """Show an answer."""
        if question in self._exchanges:
            with self.app.batch_update():
                await self._exchanges[question].show_answer(answer)

    async def failed(self, question: int, why: str) -> None:
        """Show why there is no answer."""
        if question in self._exchanges:
            await self._exchanges[question].failed(why)

    async def noted(self, question: int, markdown: str) -> None:
        """Show the result of a command."""
        if question not in self._exchanges:
            await self._begin(question, "")
        await self._exchanges[question].noted(markdown)

    async def announce(self, entry: SessionEntry) -> None:
        """Show events."""
        if entry.question not in self._exchanges:
            await self._begin(entry.question, "")
            await self._prune()
        await self._exchanges[entry.question].announce(entry)

    def shows_approval(self, approval: int) -> bool:
        """Tell whether a proposal of this conversation is about an approval."""
        proposals = (proposal for entry in self._entries if entry.answer is not None for proposal in entry.answer.proposals)
        return any(proposal.approval == approval for proposal in proposals)

    def settled(self, approval: int, text: str) -> int | None:
        """Say what came of a proposal; return the exchange in which it was made, None when that is not laid out."""
        return next((number for number, exchange in self._exchanges.items() if exchange.settled(approval, text)), None)

    def option_text(self, text: str) -> str:
        """Return what is meant by a number that was typed below numbered options; else the text as it is."""
        last = next((exchange for exchange in reversed(self._exchanges.values()) if not exchange.is_news), None)
        answer = last.reply.answer if last is not None else None
        spoken = any(entry.what not in ANNOUNCED for entry in self._entries)
        options = answer.options if answer is not None else () if spoken else self.welcome.examples
        if text in options or not text.isdecimal() or not 1 <= int(text) <= len(options):
            return text
        return options[int(text) - 1]

    async def replace(self, entries: Sequence[SessionEntry]) -> None:
        """Show another conversation: its last exchanges."""
        self._entries = list(entries)
        await self.clear()
        await self.show_earlier()
        self.anchor()

    async def clear(self) -> None:
        """Take everything off the screen; it can be laid out again."""
        exchanges, self._exchanges = list(self._exchanges.values()), {}
        with self.app.batch_update():
            for exchange in exchanges:
                await exchange.remove()
        self._count()

    async def on_earlier_earlier_requested(self, message: Earlier.EarlierRequested) -> None:
        """Lay out older exchanges."""
        message.stop()
        await self.show_earlier()

    async def show_earlier(self, count: int = MORE) -> None:
        """Lay out older exchanges, above those that are."""
        numbers = self._hidden()
        top = next(iter(self._exchanges.values()), None)
        newer = dict(self._exchanges)
        self._exchanges = {}
        # one layout for all of them, not one for each widget
        with self.app.batch_update():
            for number in numbers[-count:]:
                await self._lay_out(number, top)
        self._exchanges |= newer
        self._count()

    async def on_plain_cited(self, event: Plain.Cited) -> None:
        """Open the source: of the same exchange, else of the nearest before it."""
        event.stop()
        numbers = list(self._exchanges)
        nearest = next(
            (exchange.number for exchange in self._exchanges.values() if event.control in exchange.walk_children()), numbers[-1]
        )
        for number in reversed(numbers[: numbers.index(nearest) + 1]):
            if self._exchanges[number].open_source(event.number):
                return
        self.app.notify(
            line(f"Source {event.number} is not on the screen: it belongs to an earlier question."),
            severity="warning",
            markup=False,
        )

    async def _begin(self, number: int, text: str, next_exchange: Exchange | None = None) -> Exchange:
        self._exchanges[number] = exchange = Exchange(number, text)
        await self.mount(exchange, before=next_exchange)
        return exchange

    async def _lay_out(self, number: int, next_exchange: Exchange | None) -> None:
        entries = [entry for entry in self._entries if entry.question == number]
        question = next((entry.text for entry in entries if entry.what is SessionEntryKind.TYPED), "")
        exchange = await self._begin(number, question, next_exchange)
        for entry in entries:
            if entry.what is SessionEntryKind.ANSWERED and entry.answer is not None:
                await exchange.show_answer(entry.answer)
            elif entry.what is SessionEntryKind.FAILED:
                await exchange.failed(entry.text)
            elif entry.what is SessionEntryKind.NOTED:
                await exchange.noted(entry.text)
            elif entry.what is SessionEntryKind.SETTLED:
                await exchange.remarked(entry.text)
            elif entry.what in ANNOUNCED:
                await exchange.announce(entry)

    async def _prune(self) -> None:
        """Take the oldest exchanges off the screen, unless the person reads there."""
        if len(self._exchanges) <= MOST_LAID_OUT or not self.is_vertical_scroll_end:
            return
        oldest = [number for number, exchange in self._exchanges.items() if not exchange.waits][
            : len(self._exchanges) - MOST_LAID_OUT
        ]
        for number in oldest:
            await self._exchanges.pop(number).remove()
        self._count()

    def _hidden(self) -> list[int]:
        return [number for number in dict.fromkeys(entry.question for entry in self._entries) if number not in self._exchanges]

    def _count(self) -> None:
        self._earlier.show(len(self._hidden()))


# What was said before what is laid out.


class Earlier(Static):
    """Stands for exchanges that are not laid out."""

    class EarlierRequested(Message):
        """Somebody wants to see some of them."""

    def show(self, count: int) -> None:
        """Say how many there are."""
        self.display = count > 0
        self.update(link(f"… {count:,} earlier", "earlier"))

    def action_earlier(self) -> None:
        """Ask for some of the earlier exchanges."""
        self.post_message(self.EarlierRequested())


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
    ]

    class Submitted(Message):
        """The person asks something, or gives a command."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Stopped(Message):
        """The person waits no longer."""

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
        # a text area takes these keys for itself; on the first screen they lead to panels
        for key in ("f6", "f7"):
            self._bindings.key_to_bindings.pop(key, None)
        self.completion = completion
        self.values_of: Callable[[Takes], Iterable[ArgumentValue]] = nothing_known
        """Tells what exists, for completion."""
        self.history_lines: list[str] = []
        """What was typed before, oldest first."""
        self._back = 0
        self._draft = ""
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
        self.completion.show(offers(self.text, self.values_of) if at_end and len(self.text) < MOST_CHARACTERS else [])

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
        if offer is not None and (self.completion.moved or " " not in self.text) and offer.line.rstrip() != self.text.rstrip():
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
        self._back, self._draft = 0, ""
        if text:
            if self.history_lines[-1:] != [text]:
                self.history_lines.append(text)
            self.text = ""
            self.post_message(self.Submitted(text))

    def _tab(self) -> bool:
        offer = self.completion.selected_offer
        if offer is None:
            return False
        self._take(offer.line)
        return True

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
        elif self.text:
            self.text = ""
        else:
            self.post_message(self.Stopped())
