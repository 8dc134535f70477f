"""One question or command with all that came of it."""

from __future__ import annotations

import re
import time

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from assistant.agent.answer import Answer, Source
from assistant.display import line
from assistant.doors.chat.widgets.looked import Looked
from assistant.doors.chat.widgets.proposal import ProposalCard
from assistant.doors.chat.widgets.said import Said
from assistant.doors.chat.widgets.spoken import Spoken
from assistant.doors.chat.widgets.told import Told

SILENT_S = 0.4
"""Seconds before it is said that the agent works."""
_CITED = re.compile(r"\[(\d{1,4})\]")


class Exchange(Vertical):
    """What was said, what was looked at for it, what came back; in that order."""

    def __init__(self, number: int, said: str) -> None:
        super().__init__()
        self.number, self.text = number, said
        self.waits = False
        """Whether an answer is awaited."""
        self._began = 0.0
        self._thinking = Static("", markup=False, classes="thinking")
        self.reply = Told()

    def compose(self) -> ComposeResult:
        """Lay it out."""
        if self.text:
            yield Said(self.text)
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

    async def looked(self, source: Source, took_s: float | None = None) -> None:
        """Show a reading call."""
        await self.mount(Looked(source, took_s), before=self._thinking)

    async def drafted(self, text: str) -> None:
        """Show more of what the model says."""
        await self.reply.draft(text)

    async def told(self, answer: Answer) -> None:
        """Show the answer, and the sources of it that were not seen being read."""
        self._ends()
        seen = {one.source.number for one in self.query(Looked)}
        wanted = {int(number) for number in _CITED.findall(answer.text)}
        for source in answer.sources:
            if source.number not in seen and (source.number in wanted or not seen):
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
        mine = [card for card in self.query(ProposalCard) if card.proposal.approval == approval]
        for card in mine:
            card.settled(text)
        return bool(mine)

    def open_source(self, number: int) -> bool:
        """Unfold a source; tell whether it is here."""
        for one in self.query(Looked):
            if one.source.number == number:
                one.open()
                return True
        return False
