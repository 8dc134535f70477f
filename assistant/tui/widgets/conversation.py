"""The conversation: what an empty one says, and what was asked and answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from assistant.agent.answer import Answer, AnswerSource
from assistant.display import line
from assistant.overall_state import FIRST_STEPS
from assistant.records import JobState
from assistant.tui.frame import MUTED, Plain, is_covered, link
from assistant.tui.sessions import ANNOUNCED, SessionEntry, SessionEntryKind
from assistant.tui.snapshot import OUT, ClusterSnapshot, StoreSnapshot
from assistant.tui.words import agent_sentence

if TYPE_CHECKING:
    from assistant.tui.widgets.exchange import Exchange

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
        from assistant.tui.widgets.exchange import Options

        self.post_message(Options.OptionClicked(self.examples[place]))

    def look(self) -> None:
        """Show what fits now."""
        if is_covered(self):
            return
        cluster: ClusterSnapshot | None = self.app.cluster_snapshot  # type: ignore[attr-defined]
        self.examples = examples(self.app.store_snapshot, cluster)  # type: ignore[attr-defined]
        lines = [Content.styled(INTRODUCTION, "bold"), Content.styled(line(agent_sentence(self.answers)), MUTED), Content("")]
        if cluster is not None and not cluster.configured:
            lines += [Content.styled("This is no cluster yet: three steps.", "$warning bold")]
            lines += [Content(line(f"{place}. {step}")) for place, step in enumerate(FIRST_STEPS, 1)]
            lines.append(Content(""))
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
        from assistant.tui.widgets.exchange import Exchange  # brings Markdown along: not before the first paint

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
