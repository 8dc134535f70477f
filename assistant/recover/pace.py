"""How often a playbook looks while it waits, and for how long one run of it stays."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from assistant.ports import Clock
from assistant.records import Outcome

PAUSE_S = 1.0
"""Between looks that do not wait themselves, at least."""
LOOK_SHARE = 0.05
"""Of the time waited so far: the longer it lasts the rarer it looks, so that a day of looks stays a few hundred."""
RAREST_LOOK_S = 300.0


@dataclass
class Pace:
    """The pace of one run of a playbook."""

    clock: Clock
    look_s: float
    """How long one look waits inside its tool."""
    patience_s: float | None
    """How long the run may stay with a look that has to be repeated; None: until it is decided."""

    def __post_init__(self) -> None:
        self.began = self.clock.now()
        self._first_look: datetime | None = None

    def other(self) -> None:
        """Note that something else than a repeated look comes next."""
        self._first_look = None

    def next_look(self, outcome: Outcome) -> bool:
        """Wait until it is time for the next look after this one; False, without waiting, when patience does not reach so far.

        A look that was made by an earlier run and is only replayed costs no time.
        """
        now = self.clock.now()
        self._first_look = self._first_look or outcome.at
        waited_s = (outcome.at - self._first_look).total_seconds()
        wanted_s = min(waited_s * LOOK_SHARE, RAREST_LOOK_S) - self.look_s
        pause_s = max(wanted_s - (now - outcome.at).total_seconds(), 0.0)
        fresh = outcome.at >= self.began
        stayed_s = (now - self.began).total_seconds()
        if self.patience_s is not None and (pause_s or fresh) and stayed_s + pause_s >= self.patience_s:
            return False
        if fresh and (not outcome.ok or self.look_s <= 0):
            pause_s = max(pause_s, PAUSE_S)
        if pause_s:
            self.clock.sleep(pause_s)
        return True
