"""What the line ranker says where the rules are silent or doubtful, and how often verdicts that are so sure are right.

The ranker says which line tells the cause, and of what. It looks only at lines that nothing else explains, says how sure it is
from how often it was right when it was as sure as this, and names no node. Below the threshold it does not answer: its guess
stands first among the rivals of `unknown`.

How often a verdict is right is measured on labelled cases. A case is diagnosed without the signatures that have an example like one
of its labelled lines: the rules then know of it only what they knew of other wordings, as with a log that nobody has met.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from assistant.content.reasons import Reason, Role, Signature, reasons
from assistant.diagnose.answer import MOST_OF_LINE, advice
from assistant.diagnose.case import Case, Label
from assistant.diagnose.facts import Facts, gather
from assistant.diagnose.knowledge import Curves, Knowledge, calibrated, curves, fitted, share_right_at
from assistant.diagnose.readers.candidate_lines import CandidateLine, candidate_lines
from assistant.diagnose.readers.streams import ended_after_failure
from assistant.diagnose.verdict import diagnose
from assistant.diagnose.weighing.findings import SYMPTOMS
from assistant.diagnose.weighing.outcome import tells_failure
from assistant.diagnose.weighing.rivals import RANKED, rival_of_rules
from assistant.diagnose.weighing.weighing import KERNEL_EARLY
from assistant.diagnose.weighing.wording import Errno, errno_of, reason_by_errno, states_own_fallback
from assistant.display import shorten
from assistant.errors import ContentError
from assistant.llm import embedded
from assistant.llm.features import places
from assistant.llm.ranker import NONE, TrainingExample
from assistant.ports import LineScore, Ranker
from assistant.records import Action, DecidedBy, Diagnosis, Rival
from assistant.redact import head_of, redact
from assistant.rules.matching import Entry, Patterns

logger = logging.getLogger(__name__)

SURE_ENOUGH = 0.8
"""Calibrated confidence from which on the ranker answers by itself, whatever would be done."""
SURE_IF_HARMLESS = 0.7
"""The same where nothing would be done: a person has to change something first."""
WORTH_NAMING = 0.2
"""Calibrated confidence from which on a guess is named as a rival."""
_NEAR = 0.8
"""Share of the best score from which on an earlier line is taken for the cause."""
_SPOKEN = frozenset({Role.CASCADE, Role.TEARDOWN, Role.RECOVERED, Role.BENIGN})
"""Roles of lines that are explained: they follow from something else."""
_FOLLOWS = 0.5
"""What is left of a score that speaks for a reason that mostly follows from another."""
MOST_CITED = 3
_AGAINST_NO_NODE = {Action.CORDON_AND_RESTART: Action.RESTART_SAME_NODES}
"""What is proposed in place of an action against a node: wording alone is no proof against one."""
_STAND = frozenset({"no_failure", "hang", "slow_job", "loss_spike"})
"""Doubtful verdicts that rest on how the log ends or on its numbers: no single line outweighs that."""


@dataclass(frozen=True)
class Guess:
    """What the ranker makes of a case."""

    reason: str
    lines: tuple[CandidateLine, ...]
    """The lines that say so, the most telling first."""
    score: float
    """0..1, not yet calibrated: the higher, the more often it is right."""
    second: str = ""
    """The next best reason; empty where there is none."""
    second_score: float = 0.0
    errno: Errno | None = None
    """What the operating system answered, where the line or the one below says it: it rules over the words."""


def guess(facts: Facts, ranker: Ranker, reasons: Mapping[str, Reason]) -> Guess | None:
    """Return which reason the unexplained lines of a case speak for, and by which lines; None where none speaks for any."""
    lines = _candidates(facts)
    scored = [(line, score) for line, score in zip(lines, ranker.rank([line.message for line in lines]), strict=True) if score.root]
    by_reason: dict[str, list[tuple[float, CandidateLine]]] = {}
    for line, score in scored:
        for reason, worth in _worth(score).items():
            if reason in reasons and worth > 0:
                by_reason.setdefault(reason, []).append((worth, line))
    totals = {reason: _total([worth for worth, _ in worths]) for reason, worths in by_reason.items()}
    order = sorted(totals, key=lambda reason: (-totals[reason], reason))
    if not order:
        return None
    best, second = order[0], order[1] if len(order) > 1 else ""
    against = totals.get(second, 0.0)
    worth = totals[best] * (1.0 - 0.5 * against / totals[best])
    return Guess(best, _lines_of(by_reason[best]), round(worth, 4), second, round(against, 4))


def _candidates(facts: Facts) -> list[CandidateLine]:
    """Return the lines that may tell why, but those that something explains, and those about other times and other jobs."""
    explained = {hit.line for hit in facts.hits if isinstance(hit.entry, Signature) and hit.entry.role in _SPOKEN}
    start, job = facts.span.start, facts.case.job
    if start is None and job is not None and job.started is not None:
        start = job.started.astimezone(UTC).replace(tzinfo=None)  # no line of the job tells a time
    old = {line.number for line in facts.kernel if start is not None and line.at is not None and line.at < start - KERNEL_EARLY}
    mine = {facts.job_id, *facts.places.hosts} - {None, ""}
    foreign = {line.number for line in facts.scheduler if not any(name and name in line.text for name in mine)}
    left_out = {"job.log": explained, "dmesg.log": old, "slurmctld.log": foreign if mine else set()}
    lines = [line for line in candidate_lines(facts) if line.line not in left_out.get(line.file, ())]
    lines = [line for line in lines if line.file != "job.log" or not states_own_fallback(line.line, facts)]
    return [line for line in lines if not ended_after_failure(line, facts.tasks)]


def _worth(score: LineScore) -> dict[str, float]:
    """Return what one line is worth for each reason that it may speak for."""
    total = sum(score.reasons.values()) or 1.0
    return {
        reason: score.root * share / total * (_FOLLOWS if reason in SYMPTOMS else 1.0)
        for reason, share in list(score.reasons.items())[:5]
        if reason != NONE
    }


def _total(worths: Sequence[float]) -> float:
    """Return what several lines are worth together: the best one, and a little for each that agrees."""
    first, *weaker = sorted(worths, reverse=True)
    return min(first + 0.1 * sum(weaker[:3]), 1.0)


def _lines_of(scored: Sequence[tuple[float, CandidateLine]]) -> tuple[CandidateLine, ...]:
    """Return the lines to cite: of those nearly as telling as the best one the earliest, then the others by worth."""
    best = max(worth for worth, _ in scored)
    near = [line for worth, line in scored if worth >= _NEAR * best]
    first = min(near, key=lambda line: (line.file != near[0].file, line.line))
    further = [line for worth, line in sorted(scored, key=lambda pair: -pair[0]) if line is not first and worth >= 0.3 * best]
    return (first, *further)[:MOST_CITED]


class RankerOpinion:
    """The second opinion of the line ranker."""

    name = "ranker"

    def __init__(self, site: Path | None = None, ranker: Ranker | None = None, table: Curves | None = None) -> None:
        """Prepare to answer; nothing is read before it is asked.

        Args:
            site: Folder of the site's content, whose trained file goes before the shipped one.
            ranker: Another ranker than the one of the file.
            table: Other curves of confidence than those of the content.
        """
        self._site, self._ranker, self._table = site, ranker, table

    @cached_property
    def ranker(self) -> Ranker | None:
        """The ranker; None where its file cannot be read, which is said once."""
        if self._ranker is not None:
            return self._ranker
        try:
            return embedded.ranker(self._site)
        except ContentError as error:
            logger.warning("the line ranker is left out: %s", error)
            return None

    def ask(self, facts: Facts, diagnosis: Diagnosis) -> Diagnosis | None:
        """Return what the unexplained lines speak for: an answer where it is sure, else what was found with a guess as rival."""
        ranker = self.ranker
        if ranker is None or not (facts.lines or facts.kernel or facts.scheduler):
            return None
        reason_table = reasons(self._site)
        table = self._table or curves(self._site)
        best_guess = guess(facts, ranker, reason_table)
        errno = errno_of(best_guess.lines[0].cite(""), facts) if best_guess is not None else None
        if best_guess is not None and errno is not None:
            best_guess = replace(best_guess, reason=reason_by_errno(best_guess.reason, errno), errno=errno)
        if best_guess is None or best_guess.reason == diagnosis.reason:
            return None
        curve = table.encoder if ranker.name.startswith("encoder") else table.ranker
        sure = round(share_right_at(curve, best_guess.score), 2)
        if _outweighs(best_guess, sure, reason_table, calibrated(diagnosis, table)):
            worth = round(share_right_at(table.alone, sure), 2)
            return _answer(best_guess, worth, reason_table, diagnosis, ranker.name)
        if sure < WORTH_NAMING or not _rests_on_more(best_guess, diagnosis):
            return None
        return replace(
            diagnosis,
            rivals=(_rival(best_guess, sure, reason_table), *(r for r in diagnosis.rivals if r.reason != best_guess.reason))[:2],
        )

    def note(self, facts: Facts, diagnosis: Diagnosis) -> Diagnosis:
        """Return the diagnosis as it is: the ranker adds nothing to what others found."""
        return diagnosis


def _rests_on_more(best_guess: Guess, diagnosis: Diagnosis) -> bool:
    """Tell whether a guess rests on a line that speaks of trouble and that a rule has not taken for its answer already."""
    if diagnosis.reason == "unknown":
        return True
    cited_lines = {(cited.file, cited.line) for cited in diagnosis.root_cause}
    own = [line for line in best_guess.lines if (line.file, line.line) not in cited_lines]
    return any(line.file != "job.log" or tells_failure(line.text) for line in own)


def _outweighs(best_guess: Guess, sure: float, reasons_known: Mapping[str, Reason], diagnosis: Diagnosis) -> bool:
    """Tell whether a guess stands instead of what was found: always surer, and never against nodes or a log that is well."""
    if diagnosis.reason == "unknown":
        harmless = reasons_known[best_guess.reason].action is Action.FIX_AND_RESUBMIT
        return sure >= (SURE_IF_HARMLESS if harmless else SURE_ENOUGH)
    return sure >= SURE_ENOUGH and sure > diagnosis.confidence and not diagnosis.nodes and diagnosis.reason not in _STAND


def _answer(best_guess: Guess, sure: float, reason_table: Mapping[str, Reason], diagnosis: Diagnosis, name: str) -> Diagnosis:
    reason = reason_table[best_guess.reason]
    first = best_guess.lines[0]
    action = _AGAINST_NO_NODE.get(reason.action, reason.action)
    errno = best_guess.errno
    rests_on = f" with {errno.name} ({errno.text}, job.log:{errno.line})" if errno is not None else ""
    return Diagnosis(
        reason=reason.name,
        category=reason.category,
        action=action,
        confidence=sure,
        by=DecidedBy.MODEL,
        root_cause=tuple(line.cite(f"{RANKED} {name}") for line in best_guess.lines),
        nodes=(),
        rivals=(
            rival_of_rules(diagnosis, no_line="nothing in the case"),
            *(rival for rival in diagnosis.rivals if rival.reason != best_guess.reason),
        )[:2],
        summary=(
            f"{reason.title}{rests_on}, says the line ranker, which is right in {sure:.0%} of such cases; no rule knows the line: "
            f"{shorten(redact(first.text.strip()), MOST_OF_LINE)} ({first.file}:{first.line})."
        ),
        advice=advice(reason, action, ()),
        step=diagnosis.step,
    )


def _rival(best_guess: Guess, sure: float, reason_table: Mapping[str, Reason]) -> Rival:
    first = best_guess.lines[0]
    return Rival(
        best_guess.reason,
        min(sure, 0.6),
        f"the line ranker's guess; {first.file}:{first.line}: {head_of(first.text.strip(), 140)}",
        f"no rule knows the line, and such guesses are right in {sure:.0%} of cases",
        next(iter(reason_table[best_guess.reason].tests), "Look at the line cited."),
    )


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


class KnowledgeWithoutCase:
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
        marks = [features for line in labelled_texts(label) if (features := set(places(line)))]
        silent = frozenset(number for number, own in self._examples if any(alike(own, mark) for mark in marks))
        return replace(self._knowledge, patterns=Without(self._knowledge.patterns, silent))


def alike(first: set[int], second: set[int], least: float = LIKE) -> bool:
    """Tell whether two lines, as the places of their features, are one wording."""
    return bool(first) and bool(second) and len(first & second) >= least * len(first | second)


def labelled_texts(label: Label) -> Iterator[str]:
    """Yield the labelled lines of a case that hold more than a word."""
    for place in label.lines:
        file, _, number = place.rpartition(":")
        path = label.folder / file
        if path.is_file() and number.isdigit():
            lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
            if 0 < int(number) <= len(lines) and len(lines[int(number) - 1].split()) > 1:
                yield lines[int(number) - 1]


class LabelledVerdict(NamedTuple):
    """A verdict on a labelled case: how sure, and whether it was right."""

    raw: float
    right: bool
    reason: str


def verdicts(labels: Iterable[Label], knowledge: Knowledge, *, hide_wording: bool = True) -> list[LabelledVerdict]:
    """Return what the rules say of each case, those left out of which they say `unknown`.

    Args:
        labels: The cases.
        knowledge: The rules; their confidence is taken as computed, not calibrated.
        hide_wording: Whether the wordings of each case are hidden from them.

    Raises:
        InputError: A log cannot be read.
    """
    without, whole = KnowledgeWithoutCase(knowledge), replace(knowledge, curves=None)
    pairs = []
    for label in labels:
        diagnosis = diagnose(Case.from_path(label.folder), without.of(label) if hide_wording else whole)
        pairs.append(LabelledVerdict(diagnosis.confidence, diagnosis.reason in (label.reason, *label.also), diagnosis.reason))
    return pairs


def unseen_lessons(examples: Iterable[TrainingExample], labels: Iterable[Label], least: float = LIKE) -> list[TrainingExample]:
    """Return what a ranker may learn from that is to be judged on these cases: no line that is like a labelled one.

    Lines that speak for no reason all stay: they stand in every log.
    """
    marks = [features for label in labels for line in labelled_texts(label) if (features := set(places(line)))]
    return [example for example in examples if not example.root or not _is_known_wording(set(places(example.text)), marks, least)]


def _is_known_wording(own: set[int], marks: Sequence[set[int]], least: float) -> bool:
    return bool(own) and any(alike(own, mark, least) for mark in marks if least <= len(own) / len(mark) <= 1 / least)


def guesses(labels: Iterable[Label], knowledge: Knowledge, ranker: Ranker) -> list[LabelledVerdict]:
    """Return what the line ranker alone makes of each case whose wordings are hidden from the rules."""
    without = KnowledgeWithoutCase(knowledge)
    pairs = []
    for label in labels:
        best_guess = guess(gather(Case.from_path(label.folder), without.of(label)), ranker, knowledge.reasons)
        if best_guess is not None:
            pairs.append(LabelledVerdict(best_guess.score, best_guess.reason in (label.reason, *label.also), best_guess.reason))
    return pairs


def held_out(pairs: Sequence[tuple[float, bool]]) -> list[tuple[float, bool]]:
    """Return for each case the confidence by a curve that was fitted without it, and whether the verdict was right."""
    result: list[tuple[float, bool]] = []
    for fold in range(FOLDS):
        curve = fitted(pair for place, pair in enumerate(pairs) if place % FOLDS != fold)
        result += [(share_right_at(curve, raw), right) for place, (raw, right) in enumerate(pairs) if place % FOLDS == fold]
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


def reliability(pairs: Sequence[tuple[float, bool]]) -> Reliability:
    """Return the table of confidence against share right."""
    bins = []
    for number in range(BINS):
        low, high = number / BINS, (number + 1) / BINS
        inside = [(sure, right) for sure, right in pairs if low <= sure < high or (sure >= 1 and number == BINS - 1)]
        if inside:
            mean = sum(sure for sure, _ in inside) / len(inside)
            bins.append(Bin(low, high, len(inside), mean, sum(right for _, right in inside) / len(inside)))
    cases = max(len(pairs), 1)
    return Reliability(
        tuple(bins),
        len(pairs),
        sum(right for _, right in pairs) / cases,
        sum(each_bin.cases * abs(each_bin.confidence - each_bin.right) for each_bin in bins) / cases,
        sum((sure - right) ** 2 for sure, right in pairs) / cases,
    )


def as_toml(table: Curves) -> str:
    """Return curves as the text of a calibration.toml."""
    rows = [
        "# Made by: nightshift bench calibration --write, python -m bench.raw --well, --alone; do not edit.",
        f"version = {table.version}",
    ]
    rows += [f"made_from = '{table.made_from}'", f"well_made_from = '{table.well_made_from}'"]
    rows += [f"alone_made_from = '{table.alone_made_from}'"]
    for name in ("rule", "ranker", "encoder", "well", "alone"):
        points = getattr(table, name)
        rows.append(f"{name} = [\n" + "".join(f"  [{raw:.4f}, {share:.4f}],\n" for raw, share in points) + "]")
    return "\n".join(rows) + "\n"
