"""Give the memory of nodes back when a run ends, however it ends; say plainly where that was not possible."""

from __future__ import annotations

import logging

from assistant.errors import Unavailable
from assistant.evaluation.fleet import Fleet
from assistant.evaluation.following import Follower
from assistant.evaluation.journal import CLEAN, Journal
from assistant.evaluation.submitting import Submitter
from assistant.ports import Clock, Scheduler

logger = logging.getLogger(__name__)

WAIT_S = 300.0
"""How long the last jobs, which give memory back, may wait for their nodes."""
TRIES = 3
"""Of each node."""


class Cleaner:
    """Ends what a run has going and cleans up after it."""

    def __init__(self, follower: Follower, fleet: Fleet, journal: Journal, submitter: Submitter) -> None:
        """Clean up after the run of a journal."""
        self._follower, self._fleet, self._journal, self._submitter = follower, fleet, journal, submitter
        self._tries: dict[str, int] = {}

    def clean(self, scheduler: Scheduler, clock: Clock, *, poll_s: float, wait_s: float = WAIT_S) -> tuple[str, ...]:
        """End all jobs of the run, give the memory of its nodes back, and return the nodes where that was not possible."""
        state = self._journal.state
        for note in list(state.live()):
            if note.kind != CLEAN and not self._follower.is_ending(note):
                self._follower.cancel(note)
        deadline = clock.ticks() + wait_s
        while True:
            waits = True
            try:
                self._follower.look()
                waits = self._send(self._fleet.reachable(scheduler.nodes()))
            except Unavailable as error:
                logger.warning("the scheduler does not answer: %s", error)
            live = list(state.live())
            if not state.touched and not live:
                return ()
            if clock.ticks() > deadline or not (waits or live):
                for note in live:
                    self._follower.cancel(note)
                return tuple(sorted(state.touched))
            clock.sleep(poll_s)

    def _send(self, reachable: set[str]) -> bool:
        """Submit a cleaning to each node that is free of our jobs; return whether there was one to submit."""
        state, sent = self._journal.state, False
        busy = {note.node for note in state.live()}
        for node in sorted(state.touched & reachable):
            if node not in busy and self._tries.get(node, 0) < TRIES:
                self._tries[node] = self._tries.get(node, 0) + 1
                self._submitter.clean(node)
                sent = True
        return sent
