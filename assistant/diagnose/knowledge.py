"""What diagnosis knows, loaded together once: reasons, device codes, compiled patterns, and curves of confidence.

A curve says how often a verdict that was as sure as this one was right, on wordings that the rules had not met. The curves stand in
knowledge/calibration.toml, are monotone, and are made by `nightshift bench calibration --write`. Between two points the line is
straight; outside them it is level.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from assistant.content.reading import build, knowledge_file, read_toml
from assistant.content.reasons import Advice, Reason, advices, reasons
from assistant.errors import ContentError
from assistant.records import DecidedBy, Diagnosis, LearnedRule
from assistant.rules.learned import entries_of
from assistant.rules.loading import load_patterns
from assistant.rules.matching import Patterns

CALIBRATION_FILE = "calibration.toml"
LEAST_IN_STEP = 20
"""Cases that a step of a curve must rest on."""
PRIOR = 0.7
"""Share right that a step is drawn to, as if it had been seen in two more cases: nothing is ever certain."""
PRIOR_CASES = 2.0
Point = tuple[float, float]


@dataclass(frozen=True)
class Curves:
    """Confidence by what was computed, for each source of verdicts."""

    version: int
    made_from: str
    """Which cases, and how they were kept unseen."""
    rule: tuple[Point, ...]
    """(confidence of the rules, share right), both rising."""
    ranker: tuple[Point, ...]
    """(score of the line ranker, share right), both rising."""
    encoder: tuple[Point, ...] = ()
    """The same for the line ranker that has an encoder."""
    well: tuple[Point, ...] = ()
    """(confidence that all is well, share right), both rising, on raw logs; empty where `rule` serves for that, too."""
    well_made_from: str = ""
    alone: tuple[Point, ...] = ()
    """(share right of such scores of the line ranker, share right of its verdicts that nothing else bears out), both rising."""
    alone_made_from: str = ""

    def __post_init__(self) -> None:
        for name in ("rule", "ranker", "encoder", "well", "alone"):
            points: tuple[Point, ...] = getattr(self, name)
            if any(len(point) != 2 for point in points) or list(points) != sorted(points):
                raise ValueError(f"{name} must be pairs of numbers that rise")
            shares = [share for _, share in points]
            if shares != sorted(shares) or any(not 0 <= share <= 1 for share in shares):
                raise ValueError(f"{name}: shares must lie between 0 and 1 and never fall")


@cache
def curves(site: Path | None = None) -> Curves:
    """Return the curves, the site's where it has its own.

    Raises:
        ContentError: The file is malformed, or a curve falls.
    """
    path = knowledge_file(CALIBRATION_FILE, site)
    try:
        return build(Curves, read_toml(path), path)
    except ValueError as error:
        raise ContentError(f"{path}: {error}") from error


def calibrated(diagnosis: Diagnosis, table: Curves | None) -> Diagnosis:
    """Return a verdict of the rules with honest confidence; those of memory and models are calibrated where they are made."""
    if table is None or diagnosis.by is not DecidedBy.RULE or diagnosis.reason == "unknown":
        return diagnosis
    curve = table.well if diagnosis.reason == "no_failure" and table.well else table.rule
    return replace(diagnosis, confidence=round(share_right_at(curve, diagnosis.confidence), 2))


def in_proportion(diagnosis: Diagnosis) -> Diagnosis:
    """Return the diagnosis with no rival surer than the answer, or than what its calibrated confidence leaves over."""
    most = round(min(1.0 - diagnosis.confidence, diagnosis.confidence if diagnosis.reason != "unknown" else 1.0), 2)
    return replace(diagnosis, rivals=tuple(replace(rival, confidence=min(rival.confidence, most)) for rival in diagnosis.rivals))


def share_right_at(points: Sequence[Point], raw: float) -> float:
    """Return the share right at a computed confidence; the confidence itself where there is no curve."""
    if not points:
        return raw
    if raw <= points[0][0]:
        return points[0][1]
    for (low, share), (high, next_share) in pairwise(points):
        if raw <= high:
            return share + (next_share - share) * (raw - low) / (high - low) if high > low else next_share
    return points[-1][1]


class _Step(NamedTuple):
    total: float
    """Sum of what was computed."""
    right: float
    cases: int

    @property
    def share(self) -> float:
        return (self.right + PRIOR * PRIOR_CASES) / (self.cases + PRIOR_CASES)


def fitted(verdicts: Iterable[tuple[float, bool]], least: int = LEAST_IN_STEP) -> tuple[Point, ...]:
    """Return the rising curve nearest to what was seen: isotonic regression, steps of few cases joined.

    Args:
        verdicts: What was computed for each case, and whether it was right.
        least: Cases that a step rests on at least.
    """
    steps: list[_Step] = []
    # what was computed alike stays together: sorted by outcome it would look like a rise
    for raw, alike in groupby(sorted(verdicts), key=lambda verdict: verdict[0]):
        marks = [right for _, right in alike]
        step = _Step(raw * len(marks), sum(marks), len(marks))
        steps[-1:] = [_joined(steps[-1], step)] if steps and steps[-1].cases < least else [*steps[-1:], step]
    if len(steps) > 1 and steps[-1].cases < least:
        steps[-2:] = [_joined(steps[-2], steps[-1])]
    rising: list[_Step] = []
    for step in steps:
        rising.append(step)
        while len(rising) > 1 and rising[-2].share >= rising[-1].share:
            rising[-2:] = [_joined(rising[-2], rising[-1])]
    return tuple((round(step.total / step.cases, 4), round(step.share, 4)) for step in rising)


def _joined(lower: _Step, upper: _Step) -> _Step:
    return _Step(lower.total + upper.total, lower.right + upper.right, lower.cases + upper.cases)


@dataclass(frozen=True)
class Knowledge:
    """The shipped content with the site's over it."""

    reasons: Mapping[str, Reason]
    patterns: Patterns
    advices: tuple[Advice, ...] = ()
    """What to change by what a line says."""
    curves: Curves | None = None
    """What makes confidence honest; None leaves it as computed."""
    site: Path | None = None
    """The site's folder, for the tables of device codes; they are read when a case holds such a code."""
    hidden: frozenset[str] = frozenset()
    """Reasons that no device code may speak for: what a bench leaves out."""

    @classmethod
    def load(cls, site: Path | None = None) -> Knowledge:
        """Read and compile everything.

        Raises:
            ContentError: A file is malformed; the message names file, line and key.
        """
        return cls(reasons(site), load_patterns(site), advices(site), curves(site), site)

    def with_learned(self, rules: Iterable[LearnedRule], task: str = "") -> Knowledge:
        """Return this knowledge with learned rules on top; only those that count, of this task or any."""
        return replace(self, patterns=self.patterns.with_more(entries_of(rules, task)))
