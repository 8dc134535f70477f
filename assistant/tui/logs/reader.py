"""Everything about a log that may take time, on a thread of its own: opening, counting, merging, searching, following.

A viewer asks and goes on; answers come through `post`. The thread does what was asked first, then one small step of what goes on
behind, and looks for growth ten times a second. Only this thread touches the documents.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from assistant.errors import InputError
from assistant.tui.logs.browser import LogBrowser
from assistant.tui.logs.rows import LogState, News
from assistant.tui.messages import let_screens_run
from assistant.untrusted import reading_as

logger = logging.getLogger(__name__)

REPORT_S = 0.1
"""Seconds between two reports of how the log stands."""
LOOK_S = 0.1
"""Seconds between two looks for growth."""
HANG_S = 20.0
"""Seconds for one read of a log after which its file system counts as hung."""
HANG_LOOK_S = 1.0
QUIET_S = 0.3
"""Seconds after a key in which nothing is read that nobody waits for: the screen needs the interpreter."""


class LogReader:
    """Reads logs for one viewer; every method returns at once."""

    def __init__(
        self,
        sources: Sequence[Path],
        post: Callable[[News], object],
        *,
        cited: Collection[tuple[int, int]] = (),
        account: str = "",
    ) -> None:
        """Prepare; `start` begins.

        Args:
            sources: One log, or one of each rank.
            post: Is called on the reader's thread with what there is to tell.
            cited: (source, line number) of lines that are never folded away.
            account: With whose rights the logs are read; empty: with our own.
        """
        self._browser = LogBrowser(sources, cited)
        self._account = account
        self._post = post
        self._requests: deque[Callable[[], News | None]] = deque()
        self._window: tuple[int, int] | None = None
        self._wake = threading.Condition()
        self._closed = False
        self._reported = self._last_growth_at = self._touched = 0.0
        self._thread: threading.Thread | None = None
        self._busy_since: float | None = None
        """Since when one thing takes; None between two."""
        self._state: LogState | None = None
        """How the log stood when that was told last."""
        self._hang_told = False

    def start(self) -> None:
        """Begin to read."""
        let_screens_run()
        # not a worker of Textual: a file server that hangs must not keep the operator from leaving
        self._thread = threading.Thread(target=self._run, name="log-reader", daemon=True)
        self._thread.start()
        threading.Thread(target=self._watch, name="log-reader-watch", daemon=True).start()

    def close(self) -> None:
        """Stop soon and let go of the files."""
        with self._wake:
            self._closed = True
            self._wake.notify()

    def rows(self, first: int, count: int) -> None:
        """Ask for rows; a newer request replaces one that waits."""
        with self._wake:
            self._window = (first, count)
            self._wake.notify()

    def look_at(self, row: int, generation: int, *, by_hand: bool = True) -> None:
        """Say where the cursor is, so that it stays on its line when rows change.

        Args:
            row: Where it is.
            generation: Of the rows.
            by_hand: Whether a person moved it.
        """
        self._browser.cursor = (row, generation)
        if by_hand:
            self._touched = time.monotonic()

    def see(self, height: int) -> None:
        """Say how many rows the screen has."""
        self._browser.height = max(height, 1)

    def go_to(self, number: int, source: int | None = None) -> None:
        """Ask for the row of a line by its number; of the file under the cursor when none is named."""
        self._ask(lambda: self._browser.go_to(number, source))

    def search(self, pattern: str) -> None:
        """Search for a regular expression, or for the text where it is none; an empty one ends the search."""
        self._ask(lambda: self._browser.search(pattern))

    def next_found(self, *, forward: bool) -> None:
        """Ask for the row of the next line that the search matches."""
        self._ask(lambda: self._browser.next_found(forward=forward))

    def fold(self, on: bool) -> None:
        """Fold routine and repeated lines, or show all."""
        self._ask(lambda: self._browser.fold(on))

    def unfold(self, row: int, generation: int) -> None:
        """Open a fold, or close the one that was opened where the row stands."""
        self._ask(lambda: self._browser.unfold(row, generation))

    def only(self, ranks: Collection[int]) -> None:
        """Show lines of some ranks; of all when none is named."""
        self._ask(lambda: self._browser.only(frozenset(ranks)))

    def merge(self, on: bool, source: int | None = None) -> None:
        """Show all files merged, or one of them: the one under the cursor when none is named."""
        self._ask(lambda: self._browser.merge(on, source))

    def _ask(self, work: Callable[[], News | None]) -> None:
        with self._wake:
            self._requests.append(work)
            self._touched = time.monotonic()
            self._wake.notify()

    def _watch(self) -> None:
        """Say so when one read takes too long: the thread that reads cannot."""
        while not self._closed:
            with self._wake:
                self._wake.wait(HANG_LOOK_S)
            busy_since = self._busy_since
            if busy_since is None or self._hang_told or time.monotonic() - busy_since < HANG_S:
                continue
            self._hang_told = True
            text = f"{self._browser.sources[0]}: did not answer within {HANG_S:g} s: its file system hangs; Esc leaves"
            state = self._state or LogState(0, 0, self._browser.sources, 0)
            self._post(replace(state, trouble=text))

    def _run(self) -> None:
        try:
            with reading_as(self._account):
                while not self._closed:
                    self._busy_since = time.monotonic()
                    self._turn()
                    self._busy_since = None
                    self._after_hang()
        except Exception as error:  # the edge of the thread: the viewer says so instead of standing still
            logger.exception("log=%s the reader stopped", self._browser.sources)
            self._browser.trouble = f"the viewer stopped: {error!r}; leave it and open it again"
            self._report(now=True)
        finally:
            self._browser.close()

    def _turn(self) -> None:
        """Do one thing, or wait."""
        with self._wake:
            request = self._requests.popleft() if self._requests else None
            window = self._window
            if request is None:
                self._window = None
        try:
            if request is not None:
                news = request()
                self._report(now=True)  # first the rows, then which of them
                self._tell(news)
            elif window is not None:
                self._tell(self._browser.read(*window))
            else:
                self._work_in_background()
        except InputError as error:
            self._browser.trouble = str(error)
            self._report(now=True)
            self._sleep()
        except OSError as error:
            logger.debug("log=%s cannot be read", self._browser.sources, exc_info=True)
            self._browser.trouble = f"{self._browser.sources[0]}: cannot be read: {error.strerror or error}"
            self._report(now=True)
            self._sleep()

    def _after_hang(self) -> None:
        if self._hang_told:
            self._hang_told = False
            if self._state is not None:
                self._tell(self._state)

    def _work_in_background(self) -> None:
        now = time.monotonic()
        busy = self._browser.step(patient=now - self._touched < QUIET_S)
        if now - self._last_growth_at >= LOOK_S:
            self._last_growth_at = now
            self._browser.look()
        first = not self._reported
        self._report(now=False)
        if first or not busy:  # after the first report the screen is drawn before anything else
            self._sleep()

    def _sleep(self) -> None:
        with self._wake:
            if not self._requests and self._window is None and not self._closed:
                self._wake.wait(LOOK_S)

    def _report(self, *, now: bool) -> None:
        at = time.monotonic()
        if not now and at - self._reported < REPORT_S:
            return
        self._reported = at
        for news in self._browser.news():
            self._tell(news)

    def _tell(self, news: News | None) -> None:
        if isinstance(news, LogState):
            self._state = news
        if news is not None and not self._closed:
            self._post(news)
