"""Goodput: the GPU time that was allocated, divided into what was productive, what was lost and to what, and what nobody knows.

Each run's GPU time is divided in whole GPU milliseconds, so that the parts sum to the whole exactly. Nothing is guessed: where the
store does not say how much of a run that did not complete was saved, all of it is a part of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from assistant.records import EventKind
from assistant.reports.figures import BarPart, FigureTable, IntervalValue, TableColumn, UsageRemark, WaterfallPlot
from assistant.reports.reliability.runs import ENDED_WELL, JoinedRuns
from assistant.reports.statistics import Mask, share_of_weight
from assistant.reports.wording import share

if TYPE_CHECKING:
    from assistant.reports.reliability.incident_facts import IncidentFacts

MS_PER_HOUR = 3_600_000
EVALUATION = "evaluation"


class PartKind(NamedTuple):
    """A part of the GPU time."""

    key: str
    title: str
    colour: str
    meaning: str


PARTS: tuple[PartKind, ...] = (
    PartKind("beginning", "ended before its first step", "bad", "its incident says that it made no step"),
    PartKind("no_result", "evaluations that failed", "bad", "an evaluation that fails has no result"),
    PartKind("hang_unnoticed", "hang, unnoticed", "bad", "from a standstill until it was noticed"),
    PartKind("hang_person", "hang, a person was asked", "bad", "noticed, and a question waited for its answer"),
    PartKind("hang_noticed", "hang, noticed", "bad", "noticed, until the end, without waiting for a person"),
    PartKind("rollback", "rollback: steps made again", "bad", "steps lost ÷ steps made × time in which it moved"),
    PartKind("failed_open", "failed: saved work not known", "none", "how much of it a checkpoint kept is not known"),
    PartKind("limit_open", "time limit: saved work not known", "none", "met its time limit; as above"),
    PartKind("cancelled_open", "cancelled: saved work not known", "none", "cancelled or preempted; as above"),
    PartKind("state_open", "final state not known", "none", "in a state that is not known"),
    PartKind("evaluation", "evaluation", "mid", "evaluations that completed: useful, no training"),
    PartKind("productive", "productive", "ok", "completed, and what checkpoints kept of others"),
)
"""In the order of the waterfall; the last is what is left."""
PLACES = {part.key: place for place, part in enumerate(PARTS)}
BY_INCIDENTS = ("beginning", "hang_unnoticed", "hang_person", "hang_noticed", "rollback")
"""Parts that only incidents tell: without a store they are not known, not zero."""
OPEN = tuple(part.key for part in PARTS if part.colour == "none")


@dataclass(frozen=True, slots=True)
class Goodput:
    """The division of the GPU time of some runs."""

    gpu_ms: Mapping[str, int]
    """GPU milliseconds by the key of a part; all parts are there."""
    runs: Mapping[str, int]
    """How many runs have a share in each."""
    whole_ms: int
    """Of all runs, counted by themselves."""
    squares: float
    """Sum of the squares of the runs' GPU milliseconds, for intervals."""
    n: int
    """Runs with GPU time."""
    has_store: bool
    """Whether incidents were read; without them the parts of `BY_INCIDENTS` are not known."""

    def share(self, key: str, unknown: Sequence[str] = ()) -> IntervalValue | None:
        """Return the share of a part with its interval; parts that may belong to it as well raise its upper end."""
        open_ms = float(sum(self.gpu_ms[name] for name in unknown))
        return share_of_weight(float(self.gpu_ms[key]), float(self.whole_ms), self.squares, self.n, open_ms)

    @property
    def productive(self) -> IntervalValue | None:
        """Share of productive GPU time; up to its upper end, were all saved that nobody knows of."""
        return self.share("productive", OPEN)


def goodput(runs: JoinedRuns, among: Mask | None = None) -> Goodput:
    """Return where the GPU time of runs went.

    Args:
        runs: All runs.
        among: Those that count; all without it.
    """
    has_gpu_time = runs.jobs.gpu_s > 0
    if among is not None:
        has_gpu_time = has_gpu_time & among
    gpu_ms = np.zeros(runs.jobs.count, dtype=np.int64)
    gpu_ms[has_gpu_time] = np.rint(runs.jobs.gpu_s[has_gpu_time] * 1000).astype(np.int64)
    codes = part_codes(runs)
    sums = np.zeros(len(PARTS), dtype=np.int64)
    counts = np.zeros(len(PARTS), dtype=np.int64)
    divided = divisions(runs, gpu_ms)
    usual = has_gpu_time.copy()
    usual[list(divided)] = False
    np.add.at(sums, codes[usual], gpu_ms[usual])
    np.add.at(counts, codes[usual], 1)
    for place, parts in divided.items():
        if has_gpu_time[place]:
            for key, part_ms in parts.items():
                sums[PLACES[key]] += part_ms
                counts[PLACES[key]] += part_ms > 0
    weights = gpu_ms[has_gpu_time].astype(np.float64)
    return Goodput(
        {part.key: int(sums[place]) for place, part in enumerate(PARTS)},
        {part.key: int(counts[place]) for place, part in enumerate(PARTS)},
        int(gpu_ms[has_gpu_time].sum()),
        float(np.square(weights).sum()),
        int(np.count_nonzero(gpu_ms[has_gpu_time])),
        runs.has_store,
    )


def part_codes(runs: JoinedRuns) -> npt.NDArray[np.int64]:
    """Return the part that a run belongs to as a whole, by the accounting alone."""
    by = runs.jobs.by
    outcome, kinds, state = by["outcome"], by["type"], by["state"]
    evaluates = kinds.codes == (kinds.names.index(EVALUATION) if EVALUATION in kinds.names else -2)
    limit = state.codes == (state.names.index("timeout") if "timeout" in state.names else -2)
    codes = np.full(runs.jobs.count, PLACES["state_open"], dtype=np.int64)
    is_outcome = {name: outcome.codes == place for place, name in enumerate(outcome.names)}
    codes[is_outcome[ENDED_WELL]] = PLACES["productive"]
    codes[is_outcome[ENDED_WELL] & evaluates] = PLACES["evaluation"]
    codes[is_outcome["cancelled"]] = PLACES["cancelled_open"]
    codes[is_outcome["failed"]] = PLACES["failed_open"]
    codes[is_outcome["failed"] & limit] = PLACES["limit_open"]
    codes[runs.failed & evaluates & ~is_outcome[ENDED_WELL]] = PLACES["no_result"]
    return codes


def divisions(runs: JoinedRuns, gpu_ms: npt.NDArray[np.int64]) -> dict[int, dict[str, int]]:
    """Return how the GPU milliseconds of runs are divided whose incidents say more than the accounting, by their place."""
    before = {int(runs.next_place[place]): int(place) for place in np.flatnonzero(runs.next_place >= 0)} if runs.incidents else {}
    usual = part_codes(runs)
    outcome = runs.jobs.by["outcome"]
    completed = outcome.codes == outcome.names.index(ENDED_WELL)
    return {
        place: _divided(runs, place, int(gpu_ms[place]), PARTS[usual[place]].key, before.get(place))
        for place in runs.incidents
        if runs.incident[place] >= 0 and not completed[place] and runs.jobs.run_s[place] > 0
    }


def _divided(runs: JoinedRuns, place: int, whole_ms: int, usual: str, before: int | None) -> dict[str, int]:
    fact = runs.facts[runs.incident[place]]
    if not fact.diagnosed or usual == "no_result":
        return {usual: whole_ms}
    if fact.began:
        return {"beginning": whole_ms}
    run_s = float(runs.jobs.run_s[place])
    left_ms = whole_ms
    parts: dict[str, int] = {}

    def take(key: str, seconds: float) -> None:
        nonlocal left_ms
        part_ms = min(left_ms, max(0, round(whole_ms * seconds / run_s)))
        parts[key] = part_ms
        left_ms -= part_ms

    hang = _hang(runs, place)
    still_s = 0.0
    if hang is not None:
        end_s = float(runs.jobs.end_s[place])
        begin_s = max(hang.failed_s, float(runs.jobs.start_s[place]))
        noticed_s = min(max(hang.opened_s, begin_s), end_s)
        asked_s = asked_between(hang.waits, noticed_s, end_s)
        still_s = max(0.0, end_s - begin_s)
        take("hang_unnoticed", noticed_s - begin_s)
        take("hang_person", asked_s)
        take("hang_noticed", end_s - noticed_s - asked_s)
    lost_share = _lost_share(runs, fact, before)
    if lost_share is None:
        parts[usual] = parts.get(usual, 0) + left_ms
        return parts
    take("rollback", lost_share * max(0.0, run_s - still_s))
    parts["productive"] = left_ms
    return parts


def _hang(runs: JoinedRuns, place: int) -> IncidentFacts | None:
    """Return the incident of the standstill in which a run ended."""
    end_s = float(runs.jobs.end_s[place])
    facts = (runs.facts[number] for number in reversed(runs.incidents[place]))
    return next((fact for fact in facts if fact.kind is EventKind.HANG and fact.diagnosed and not fact.over_before(end_s)), None)


def asked_between(waits: Sequence[tuple[float, float]], begin_s: float, end_s: float) -> float:
    """Return for how long something was asked between two moments; questions at the same time count once."""
    total, reached_s = 0.0, begin_s
    for asked_s, answered_s in sorted(waits):
        first, last = max(asked_s, reached_s), min(answered_s, end_s)
        total += max(0.0, last - first)
        reached_s = max(reached_s, last)
    return total


def _lost_share(runs: JoinedRuns, fact: IncidentFacts, before: int | None) -> float | None:
    """Return which share of its steps a run lost; None where that is not known.

    A run that a known restart began starts at the step of that restart; one without any run before it at step 0.
    """
    lost, end_step = fact.times.steps_lost, fact.end_step
    if lost is None or end_step is None:
        return None
    if before is None:
        begin_step: int | None = 0 if fact.attempt == 0 else None
    else:
        number = runs.incident[before]
        begin_step = runs.facts[number].times.restart_step if number >= 0 else None
    if begin_step is None or end_step <= begin_step:
        return None
    return min(1.0, lost / (end_step - begin_step))


def without_store() -> UsageRemark:
    """Return the sentence for a report without incidents."""
    text = (
        "No store was read, or it has no incident of this time: what hangs, rollbacks and runs without a step cost is not known, "
        "and in no sum of what was lost."
    )
    return UsageRemark("no_store", text, "note")


def waterfall_plot(good: Goodput) -> WaterfallPlot:
    """Return the waterfall, without parts that have no time."""
    bars = [BarPart(part.title, good.gpu_ms[part.key] / MS_PER_HOUR, part.colour) for part in PARTS if good.gpu_ms[part.key]]
    whole_h = good.whole_ms / MS_PER_HOUR
    listed = "; ".join(f"{bar.name}: {share(bar.value / whole_h)}" for bar in bars) if whole_h else "No GPU time."
    bars.insert(0, BarPart("allocated", whole_h, "own"))
    return WaterfallPlot("goodput", "From allocated to productive GPU hours", "GPU h", tuple(bars), whole_h, True, listed)


_KINDS = {"bad": "lost", "none": "not known", "mid": "used", "ok": "used"}


def _columns(unit: str) -> tuple[TableColumn, ...]:
    """Return the columns of a table of parts; `unit` names what is counted, as key and title."""
    return (
        TableColumn("part", "part"),
        TableColumn("gpu_hours", "GPU hours", "GPU h"),
        TableColumn("share", "of all", "share"),
        TableColumn(unit, unit, "count"),
        TableColumn("known", "kind"),
        TableColumn("meaning", "what it is"),
    )


def waterfall_table(good: Goodput) -> FigureTable:
    """Return all parts with their intervals; those without time stand in it, too, and those that are not known without figures."""
    rows = tuple(
        (
            part.title,
            *(
                (None, None, None, "not known")
                if not good.has_store and part.key in BY_INCIDENTS
                else (good.gpu_ms[part.key] / MS_PER_HOUR, good.share(part.key), good.runs[part.key], _KINDS[part.colour])
            ),
            part.meaning,
        )
        for part in PARTS
    )
    note = (
        f"The parts sum to the {good.whole_ms / MS_PER_HOUR:,.1f} GPU hours of {good.n:,} runs with GPUs, exactly. The time of a "
        "start, of saving and of slow steps within a run that went on is in the other parts: accounting and incidents do not "
        "show it."
    )
    if not good.has_store:
        note += " Of parts without figures no incident tells: their time is in those that are not known."
    return FigureTable("goodput_parts", "Where the allocated GPU hours went", _columns("runs"), rows, note)


def parts_table(good: Goodput) -> FigureTable:
    """Return the parts of one run: its own figures, which stand for no others and so have no intervals."""
    rows = tuple(
        (part.title, part_ms / MS_PER_HOUR, part_ms / good.whole_ms, good.runs[part.key], _KINDS[part.colour], part.meaning)
        for part in PARTS
        if (part_ms := good.gpu_ms[part.key])
    )
    return FigureTable("goodput_parts", "Where its GPU hours went", _columns("attempts"), rows)
