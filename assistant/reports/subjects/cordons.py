"""When Nightshift had nodes out of service, from the calls that the store keeps; what others drained it does not know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from assistant.records import CallStatus
from assistant.store import Store

_CORDON, _UNCORDON = "cordon_node", "uncordon_node"
_CARRIED_OUT = (CallStatus.DONE, CallStatus.UNDONE)


class Cordon(NamedTuple):
    """One time out of service."""

    begin_s: float
    """Seconds since 1970."""
    end_s: float | None
    """None where Nightshift did not put it back."""
    by: str
    why: str
    """May hold texts of logs."""

    def away_s(self, first_s: float, last_s: float) -> float:
        """Return for how many seconds it was out between two moments."""
        return max(0.0, min(last_s if self.end_s is None else self.end_s, last_s) - max(self.begin_s, first_s))


def read_cordons(store: Store, node: str) -> list[Cordon]:
    """Return the cordons of a node by Nightshift, oldest first; where others had taken it out already, there was none."""
    cordons: list[Cordon] = []
    with store.snapshot():
        for call in store.calls_on(node, (_CORDON, _UNCORDON)):
            outcome = store.outcome(call.id) if call.status in _CARRIED_OUT else None
            if outcome is None or not outcome.ok:
                continue
            at_s = outcome.at.timestamp()
            is_open = bool(cordons) and cordons[-1].end_s is None
            if call.tool == _UNCORDON and is_open:
                cordons[-1] = cordons[-1]._replace(end_s=at_s)
            elif call.tool == _CORDON and not is_open and not _left_alone(outcome.value):
                cordons.append(Cordon(at_s, None, call.by, call.why))
    return cordons


def _left_alone(value: object) -> bool:
    return isinstance(value, Mapping) and value.get("cordoned") is False
