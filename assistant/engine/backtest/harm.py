"""What a replay would have done that did harm, or no good: judged by what really came next. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from assistant.engine.backtest.accounts import NodeEvents
from assistant.engine.backtest.attempts import Attempt, failed_at_once, first_on, ran_s
from assistant.engine.backtest.replay import Decided, Replayed
from assistant.records import JobState
from assistant.recover.leases import HOURS

WELL_S = 6 * 3600.0
"""A node on which the next job ran for so long was well."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A change that might have done harm, or no good."""

    kind: str
    job: str
    node: str
    at: datetime
    reason: str
    why: str
    gpu_hours: float | None = None


@dataclass(frozen=True, slots=True)
class Drains:
    """How the nodes fared that would have been cordoned."""

    well: int
    """The next job ran well on it for hours."""
    again: int
    """The next job failed there of the node."""
    drained: int
    """It was taken out really while the cordon would have stood; known only from the events of nodes."""
    unused: int
    """Nothing began on it while the cordon would have stood: people may have taken it out as well."""
    unclear: int


def bad_restarts(attempts: Sequence[Attempt], replayed: Sequence[Replayed]) -> list[Suspect]:
    """Return the restarts whose real counterpart failed again within minutes."""
    reasons = {one.number: one.diagnosis.reason for one in replayed if one.diagnosis is not None}
    found = []
    for one in replayed:
        after = one.after
        if one.restart is None or after is None or not failed_at_once(attempts[after.number]):
            continue
        again, failed = attempts[after.number], attempts[one.number]
        of = reasons.get(after.number, "")
        of = "the same" if of and of == reasons.get(one.number) else of
        why = f"its next attempt failed within {max(1.0, ran_s(again) / 60):.0f} min" + (f" of {of}" if of else "")
        spent = ran_s(again) * (again.gpus or 0) / 3600 if again.gpus is not None else None
        found.append(Suspect("resubmit", failed.job.id, "", one.at, reasons.get(one.number, ""), why, spent))
    return found


def after_drains(
    attempts: Sequence[Attempt],
    replayed: Sequence[Replayed],
    drains: Sequence[tuple[Replayed, Decided]],
    events: NodeEvents,
) -> tuple[Drains, list[Suspect]]:
    """Return how the nodes fared that would have been cordoned, and the cordons of nodes that were well."""
    times: dict[str, list[datetime]] = {}
    for one, change in drains:
        for node in change.nodes:
            times.setdefault(node, []).append(one.at)
    first = first_on(attempts, times)
    blames = {(attempts[one.number].job.id, attempts[one.number].job.attempt): set(one.blamed) for one in replayed}
    count: Counter[str] = Counter()
    suspects = []
    for one, change in drains:
        for node in change.nodes:
            after = first.get((node, one.at))
            drained = events.taken_out(node, one.at, timedelta(hours=HOURS)) is not None
            fate = "drained" if drained else _fate(node, one.at, after, blames)
            count[fate] += 1
            if fate == "well" and after is not None:
                job, why = attempts[one.number].job, f"job {after.job.id} ran {ran_s(after) / 3600:.1f} h on it next, and well"
                reason = one.diagnosis.reason if one.diagnosis is not None else ""
                suspects.append(Suspect("cordon", job.id, node, one.at, reason, why))
    return Drains(count["well"], count["again"], count["drained"], count["unused"], count["unclear"]), suspects


def _fate(node: str, at: datetime, after: Attempt | None, blames: Mapping[tuple[str, int], set[str]]) -> str:
    started = after.job.started if after is not None else None
    if after is None or started is None or started > at + timedelta(hours=HOURS):
        return "unused"
    alone = after.job.state is JobState.NODE_FAIL and len(after.job.nodes) == 1
    if alone or node in blames.get((after.job.id, after.job.attempt), ()):
        return "again"
    return "well" if ran_s(after) >= WELL_S else "unclear"
