"""Feeds the conversation with events: what each look at the store shows that the one before did not, once each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from assistant.tui.news import NewsEvent, StoreMark, events_since, is_other_store, mark_of
from assistant.tui.sessions import LastUse

if TYPE_CHECKING:
    from assistant.tui.snapshot import StoreSnapshot
    from assistant.tui.talk import Talk

ALARM_PAUSE = timedelta(seconds=20)
"""Between two calls for a person."""
SAVE_S = 20.0
"""Seconds between two times at which it is written down that the chat is in use."""


class NewsFeed:
    """Compares looks at the store; its methods are called on the thread of the screens."""

    def __init__(self, talk: Talk, now: Callable[[], datetime], alarm: Callable[[Sequence[NewsEvent]], object]) -> None:
        """Wait for the first look.

        Args:
            talk: Shows and keeps what is announced.
            now: Returns the time.
            alarm: Gets the events that need a person.
        """
        self._talk, self._now, self._alarm = talk, now, alarm
        self._mark: StoreMark | None = None
        self._previous_use: LastUse | None = None
        self._newest: StoreSnapshot | None = None
        self._is_open = False
        self._postponed: list[NewsEvent] = []
        """Changes that the agent proposes while it answers: here they are on its card, from elsewhere they are news."""
        self._unsaved_use: LastUse | None = None
        self._alarmed_at: datetime | None = None

    def open(self, last_use: LastUse | None) -> None:
        """Begin, once the conversation is on the screen."""
        if not self._is_open:
            self._is_open, self._previous_use = True, last_use
            if self._newest is not None:
                self.look(self._newest)

    def look(self, snapshot: StoreSnapshot) -> None:
        """Announce what is new in a look at the store; with the first one what happened since the chat was last in use."""
        self._newest = snapshot
        if not self._is_open or not self._talk.is_there:
            return
        mark, self._mark = self._mark, mark_of(snapshot)
        if mark is None:
            use = self._previous_use
            if use is not None and not is_other_store(use.mark, snapshot):
                self._mark = mark_of(snapshot, use.mark)
                events = events_since(use.mark, snapshot)
                self._announce([event for event in events if not self._is_on_card(event)], since=use.at)
        elif not is_other_store(mark, snapshot):
            self._mark = mark_of(snapshot, mark)
            self._postponed += events_since(mark, snapshot)
            self.go_on()

    def go_on(self) -> None:
        """Announce what waits for the end of an answer, unless the answer itself shows it."""
        if not self._postponed:
            return
        from assistant.agent.proposals import BY

        busy = self._talk.working
        waiting, self._postponed = self._postponed, []
        due: list[NewsEvent] = []
        for event in waiting:
            if event.approval is None or event.by != BY:
                due.append(event)
            elif busy:
                self._postponed.append(event)
            elif not self._is_on_card(event):
                due.append(event)
        self._announce(due)

    def _is_on_card(self, event: NewsEvent) -> bool:
        """Tell whether the conversation itself shows what waits, as the agent's proposal."""
        return event.approval is not None and self._talk.shows_approval(event.approval)

    def _announce(self, events: Sequence[NewsEvent], since: datetime | None = None) -> None:
        if not events:
            return
        self._talk.announce(events, since)
        urgent = [event for event in events if event.needs_person]
        # who has just started the chat reads the summary, and a storm rings once
        if urgent and since is None and (self._alarmed_at is None or self._now() - self._alarmed_at >= ALARM_PAUSE):
            self._alarmed_at = self._now()
            self._alarm(urgent)

    def touched(self) -> None:
        """Note that a person uses the chat."""
        if self._mark is not None:
            self._unsaved_use = LastUse(self._now(), self._mark)

    def save(self) -> None:
        """Write down when the chat was last in use."""
        if self._unsaved_use is not None:
            self._talk.save_last_use(self._unsaved_use)
            self._unsaved_use = None
