"""Compare two attempts of a run whose logs are of no known form: by epochs, samples or tokens, else by what the first one taught.

A job may run several programs side by side, each with a log of its own: those of the first attempt that had come to their end need
not appear again; of the others the one that is furthest behind counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from assistant.logs.lines import Lines
from assistant.logs.phases import LearntSeries, learn_series, read_series
from assistant.logs.tail import LogMark
from assistant.records import Job
from assistant.recover.counted import Comparison, compared_by_count
from assistant.recover.joblog import MOST_READ, log_lines, log_parts, whole_lines

__all__ = ["AttemptLog", "compared", "compared_by_form"]

MOST_PLACES = 4
"""Places in a name where the number of a job may stand."""


@dataclass(frozen=True, slots=True)
class AttemptLog:
    """One log of an attempt."""

    path: Path
    lines: Lines


class _Pair(NamedTuple):
    before: LearntSeries
    after: LearntSeries | None


def compared(failed: Job, job: Job, marks: Sequence[LogMark], *, chosen_step: int) -> Comparison | None:
    """Return what two attempts count alike, where the logs of neither number a step in a known form; None where nothing does.

    Args:
        failed: The attempt that ended.
        job: The one that was started again; only what is proven to be its own counts.
        marks: From `marks_before`.
        chosen_step: Of the checkpoint that was chosen; 0 for a start from the beginning.
    """
    lines = whole_lines(job, marks)
    if lines is not None and (count := compared_by_count(log_lines(failed), lines, resumed=chosen_step > 0)) is not None:
        return count
    after = [AttemptLog(path, own) for path, own in log_parts(job, marks=marks, sure=True)]
    paths = {part.path for part in after}
    before = [AttemptLog(path, own) for path, own in log_parts(failed) if path not in paths]
    return compared_by_form(before, after, failed=failed, job=job, chosen_step=chosen_step)


def compared_by_form(
    before: Sequence[AttemptLog], after: Sequence[AttemptLog], *, failed: Job, job: Job, chosen_step: int
) -> Comparison | None:
    """Return how far two attempts came by the rows of one form, which the first one has taught; None where it taught none.

    Args:
        before: Logs of the attempt that ended.
        after: Logs of the next one.
        failed: The attempt that ended.
        job: The next one.
        chosen_step: Of the checkpoint that was chosen.
    """
    taught = {part.path: series for part in before if (series := learn_series(part.lines)) is not None}
    best = max(taught.values(), key=lambda series: (series.form.loss_at is not None, len(series.points)), default=None)
    if best is None:
        return None
    taught = {path: series for path, series in taught.items() if series.form.key == best.form.key}
    unfinished = {path: series for path, series in taught.items() if not series.is_over} or taught
    partners = _partners(list(taught), [part.path for part in after], failed, job)
    lines = {part.path: part.lines for part in after}
    pairs = [
        _Pair(series, read_series(lines[partners[path]], series.form) if path in partners else None)
        for path, series in unfinished.items()
        if path in partners or len(after) < MOST_READ  # of many logs some are not read
    ]
    pair = min(pairs, key=_lead, default=None)
    if pair is None:
        return None
    return _comparison(pair, chosen_step)


def _lead(pair: _Pair) -> float:
    """Return how far the later attempt is ahead of the earlier one."""
    if pair.after is None:
        return float("-inf")
    return max(point.step for point in pair.after.points) - max(point.step for point in pair.before.points)


def _comparison(pair: _Pair, chosen_step: int) -> Comparison:
    points = pair.before.points
    reached = max(point.step for point in points)
    every = (reached - points[0].step) // max(1, len(points) - 1)
    # what the log counts may be something else than the checkpoints do
    counts_alike = points[0].step <= chosen_step + every and chosen_step <= reached + every
    after = pair.after.points if pair.after is not None else ()
    return Comparison(pair.before.form.unit, points, after, reached, chosen_step if counts_alike else 0)


def _partners(before: Sequence[Path], after: Sequence[Path], failed: Job, job: Job) -> Mapping[Path, Path]:
    """Return which log of the next attempt is which of the one that ended: by its name, but for ids, nodes and times."""
    if len(before) == 1 and len(after) == 1:
        return {before[0]: after[0]}
    names = {_neutral_name(path.name, job): path for path in after}
    partners: dict[Path, Path] = {}
    for path in before:
        partner = next((names[name] for name in _renamed(_neutral_name(path.name, failed), failed, job) if name in names), None)
        if partner is None:
            like = [later for later in after if _shape(later, job) == _shape(path, failed)]
            alike = [sibling for sibling in before if _shape(sibling, failed) == _shape(path, failed)]
            partner = like[0] if len(like) == len(alike) == 1 else None
        if partner is not None:
            partners[path] = partner
    return partners


def _neutral_name(name: str, job: Job) -> str:
    for node in sorted(job.nodes, key=len, reverse=True):
        name = re.sub(rf"(?<![\w-]){re.escape(node)}(?![\w-])", "%N", name)
    return name


def _renamed(name: str, failed: Job, job: Job) -> Iterator[str]:
    """Yield a name with the id of the next job where that of the failed one stands: in all places, or in some of them."""
    yield name
    for old, new in {(failed.raw_id or failed.id, job.raw_id or job.id), (failed.id, job.id)}:
        places = [match.span() for match in re.finditer(rf"(?<!\d)0*{re.escape(old)}(?!\d)", name)][:MOST_PLACES]
        for count in range(len(places), 0, -1):
            for replaced in combinations(places, count):
                text = name
                for begin, end in reversed(replaced):
                    text = f"{text[:begin]}{new}{text[end:]}"
                yield text


def _shape(path: Path, job: Job) -> str:
    return re.sub(r"\d+", "#", _neutral_name(path.name, job))
