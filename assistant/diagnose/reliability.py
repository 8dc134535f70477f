"""How often verdicts are right that say how sure they are, on labelled cases whose wordings are hidden from the rules.

A case is diagnosed without the signatures that have an example like one of its labelled lines: the rules then know of it only
what they knew of other wordings, as with a log that nobody has seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from assistant.content.reasons import Signature
from assistant.diagnose.case import Case, Label
from assistant.diagnose.facts import gather
from assistant.diagnose.knowledge import Curves, Knowledge, fitted, share_right_at
from assistant.diagnose.ranked import guess
from assistant.diagnose.verdict import diagnose
from assistant.llm.features import places
from assistant.llm.ranker import TrainingExample
from assistant.ports import Ranker
from assistant.rules.matching import Entry, Patterns

LIKE = 0.5
"""Share of the features of two lines that both have, from which on they count as one wording."""
FOLDS = 5
BINS = 10


class Without(Patterns):
    """Patterns of which some say nothing."""

    def __init__(self, base: Patterns, silent: frozenset[int]) -> None:
        self._whole, self._silent = base, silent
        self.kinds = base.kinds

    def entry(self, number: int) -> Entry:
        """Return the entry of a pattern number."""
        return self._whole.entry(number)

    def is_entry(self, number: int) -> bool:
        """Return whether a pattern number is no alarm word."""
        return self._whole.is_entry(number)

    def telling(self, block: bytes) -> list[int]:
        """Return pattern number and end offset, in turn, of every match that is not silenced."""
        flat = self._whole.telling(block)
        pairs = zip(flat[0::2], flat[1::2], strict=True)
        return [part for number, end in pairs if number not in self._silent for part in (number, end)]

    def routine(self, block: bytes) -> list[int]:
        """Return pattern number and end offset, in turn, of every match of a filter."""
        return self._whole.routine(block)

    def telling_digits(self, line: bytes) -> list[tuple[int, int]] | None:
        """Return where other digits might make a signature match."""
        return self._whole.telling_digits(line)


class Unseen:
    """Knowledge without the wordings of one case at a time."""

    def __init__(self, knowledge: Knowledge) -> None:
        self._knowledge = replace(knowledge, curves=None)
        patterns = knowledge.patterns
        entries = ((number, patterns.entry(number)) for number in range(len(patterns)) if patterns.is_entry(number))
        self._examples = [
            (number, set(places(line))) for number, entry in entries if isinstance(entry, Signature) for line in entry.examples
        ]

    def of(self, label: Label) -> Knowledge:
        """Return what the rules would know had nobody written down the wordings of this case."""
        marks = [found for line in labelled_texts(label) if (found := set(places(line)))]
        silent = frozenset(number for number, own in self._examples if any(alike(own, mark) for mark in marks))
        return replace(self._knowledge, patterns=Without(self._knowledge.patterns, silent))


def alike(one: set[int], other: set[int], least: float = LIKE) -> bool:
    """Tell whether two lines, as the places of their features, are one wording."""
    return bool(one) and bool(other) and len(one & other) >= least * len(one | other)


def labelled_texts(label: Label) -> Iterator[str]:
    """Yield the labelled lines of a case that hold more than a word."""
    for place in label.lines:
        file, _, number = place.rpartition(":")
        path = label.folder / file
        if path.is_file() and number.isdigit():
            lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
            if 0 < int(number) <= len(lines) and len(lines[int(number) - 1].split()) > 1:
                yield lines[int(number) - 1]


class Told(NamedTuple):
    """A verdict on a labelled case: how sure, and whether it was right."""

    raw: float
    right: bool
    reason: str


def verdicts(labels: Iterable[Label], knowledge: Knowledge, *, unseen: bool = True) -> list[Told]:
    """Return what the rules say of each case, those left out of which they say `unknown`.

    Args:
        labels: The cases.
        knowledge: The rules; their confidence is taken as computed, not calibrated.
        unseen: Whether the wordings of each case are hidden from them.

    Raises:
        InputError: A log cannot be read.
    """
    without, whole = Unseen(knowledge), replace(knowledge, curves=None)
    found = []
    for label in labels:
        given = diagnose(Case.from_path(label.folder), without.of(label) if unseen else whole)
        found.append(Told(given.confidence, given.reason in (label.reason, *label.also), given.reason))
    return found


def unseen_lessons(examples: Iterable[TrainingExample], labels: Iterable[Label], least: float = LIKE) -> list[TrainingExample]:
    """Return what a ranker may learn from that is to be judged on these cases: no line that is like a labelled one.

    Lines that speak for no reason all stay: they stand in every log.
    """
    marks = [found for label in labels for line in labelled_texts(label) if (found := set(places(line)))]
    return [one for one in examples if not one.root or not _known(set(places(one.text)), marks, least)]


def _known(own: set[int], marks: Sequence[set[int]], least: float) -> bool:
    return bool(own) and any(alike(own, mark, least) for mark in marks if least <= len(own) / len(mark) <= 1 / least)


def guesses(labels: Iterable[Label], knowledge: Knowledge, ranker: Ranker) -> list[Told]:
    """Return what the line ranker alone makes of each case whose wordings are hidden from the rules."""
    without = Unseen(knowledge)
    found = []
    for label in labels:
        made = guess(gather(Case.from_path(label.folder), without.of(label)), ranker, knowledge.reasons)
        if made is not None:
            found.append(Told(made.score, made.reason in (label.reason, *label.also), made.reason))
    return found


def held_out(told: Sequence[tuple[float, bool]]) -> list[tuple[float, bool]]:
    """Return for each case the confidence by a curve that was fitted without it, and whether the verdict was right."""
    result: list[tuple[float, bool]] = []
    for fold in range(FOLDS):
        curve = fitted(one for place, one in enumerate(told) if place % FOLDS != fold)
        result += [(share_right_at(curve, raw), right) for place, (raw, right) in enumerate(told) if place % FOLDS == fold]
    return result


class Bin(NamedTuple):
    """Verdicts that were about as sure."""

    low: float
    high: float
    cases: int
    confidence: float
    right: float


class Reliability(NamedTuple):
    """How far confidence can be believed."""

    bins: tuple[Bin, ...]
    cases: int
    right: float
    error: float
    """Mean distance between confidence and share right, over the bins (ECE)."""
    brier: float
    """Mean square of confidence minus right (1) or wrong (0)."""


def reliability(told: Sequence[tuple[float, bool]]) -> Reliability:
    """Return the table of confidence against share right."""
    bins = []
    for number in range(BINS):
        low, high = number / BINS, (number + 1) / BINS
        inside = [(sure, right) for sure, right in told if low <= sure < high or (sure >= 1 and number == BINS - 1)]
        if inside:
            mean = sum(sure for sure, _ in inside) / len(inside)
            bins.append(Bin(low, high, len(inside), mean, sum(right for _, right in inside) / len(inside)))
    cases = max(len(told), 1)
    return Reliability(
        tuple(bins),
        len(told),
        sum(right for _, right in told) / cases,
        sum(one.cases * abs(one.confidence - one.right) for one in bins) / cases,
        sum((sure - right) ** 2 for sure, right in told) / cases,
    )


def as_toml(table: Curves) -> str:
    """Return curves as the text of a calibration.toml."""
    rows = [
        "# Made by: nightshift bench calibration --write, python -m bench.raw --well; do not edit.",
        f"version = {table.version}",
    ]
    rows += [f"made_from = '{table.made_from}'", f"well_made_from = '{table.well_made_from}'"]
    for name in ("rule", "ranker", "encoder", "well"):
        points = getattr(table, name)
        rows.append(f"{name} = [\n" + "".join(f"  [{raw:.4f}, {share:.4f}],\n" for raw, share in points) + "]")
    return "\n".join(rows) + "\n"
