"""Opinions where the rules are silent or doubtful: of the memory of incidents, and of a language model as the last.

Memory answers only with lines of this case that are like lines of a confirmed one: what that turned out to be, and what cured it.
Beside every other verdict it names the like ones and changes nothing.

A language model only describes: a reason from the list, numbers of lines, rivals. The lines are quoted by us from the case, so no
citation can be made up. It names no node and asks for no restart, and its confidence stays below what acts alone. What was known
before stays when the model is slow, wrong or absent, and stays a rival when it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from assistant.content.reasons import Reason
from assistant.diagnose.answer import MOST_OF_LINE, advice
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.candidate_lines import PLAIN, CandidateLine, candidate_lines, message_of, spoken_for
from assistant.diagnose.weighing.rivals import rival_of_rules
from assistant.display import shorten
from assistant.llm.embedded import words_of
from assistant.ports import Describer, Embedder
from assistant.records import Action, DecidedBy, Diagnosis, NodeFinding, Recall, Rival
from assistant.redact import head_of, redact
from assistant.store import Memory, Near, Store

MOST_LINES = 50
MOST_CHARACTERS = 300
"""Of one line for the model."""
CONFIDENCE = 0.35
"""Below what is acted on without a person; a model's own word about how sure it is says nothing."""
MOST_CITED = 4


class ModelOpinion:
    """The opinion of a language model."""

    name = "model"

    def __init__(self, describer: Callable[[], Describer | None], reasons: Callable[[], Mapping[str, Reason]]) -> None:
        """Prepare to ask; nothing is opened before.

        Args:
            describer: Gives the model; None where there is none, or where it has not shown that it is of use.
            reasons: Gives what may be named.
        """
        self._describer, self._reasons = describer, reasons

    def ask(self, facts: Facts, diagnosis: Diagnosis) -> Diagnosis | None:
        """Return what the model makes of a case in which nothing else was found."""
        if diagnosis.reason != "unknown":
            return None
        lines_read = candidate_lines(facts)[-MOST_LINES:]
        describer = self._describer() if lines_read else None
        if describer is None:
            return None
        reasons = self._reasons()
        names = [name for name, reason in reasons.items() if reason.action is not Action.NONE]
        description = describer.describe([head_of(line.text, MOST_CHARACTERS) for line in lines_read], names)
        if description is None or description.reason not in names:
            return None
        lines = [lines_read[number - 1] for number in dict.fromkeys(description.lines) if 1 <= number <= len(lines_read)]
        lines = [line for line in lines if line.text.strip()][:MOST_CITED]
        return _answer(reasons, description.reason, description.rivals, lines, diagnosis, describer.name) if lines else None

    def note(self, facts: Facts, diagnosis: Diagnosis) -> Diagnosis:
        """Return the diagnosis as it is: the model adds nothing to what others found."""
        return diagnosis


def _answer(
    reasons: Mapping[str, Reason],
    name: str,
    rival_names: tuple[str, ...],
    lines: list[CandidateLine],
    diagnosis: Diagnosis,
    model: str,
) -> Diagnosis:
    reason, first = reasons[name], lines[0]
    # what a model says alone restarts nothing and sets nothing aside
    action = reason.action if reason.action is Action.FIX_AND_RESUBMIT else Action.NONE
    thought = [
        Rival(rival, 0.1, f"{model} thought of it", "it named another reason", "Look at the lines cited.")
        for rival in dict.fromkeys(rival_names)
        if rival in reasons and rival != name
    ]
    before = Rival(
        diagnosis.reason, diagnosis.confidence, "nothing that rules, memory and ranker know holds", "", "Look at the lines cited."
    )
    return replace(
        diagnosis,
        reason=reason.name,
        category=reason.category,
        action=action,
        confidence=CONFIDENCE,
        by=DecidedBy.MODEL,
        root_cause=tuple(line.cite(f"model {model}") for line in lines),
        nodes=(),
        rivals=(before, *thought)[:3],
        summary=(
            f"{reason.title}, says the language model {model}; no rule knows the line: "
            f"{shorten(redact(first.text.strip()), MOST_OF_LINE)} ({first.file}:{first.line})."
        ),
        advice=f"Look at the lines cited before anything is done. {reason.remedy}",
    )


LEAST_SIMILARITY = 0.6
"""Similarity below which a memory is no help: of lines that are less alike, a third belong to other reasons."""
WORTH_NOTING = 0.7
SURE_SIMILARITY = 0.8
"""Similarity from which a line counts though signatures take it for something else."""
LEAST_MARGIN = 0.05
"""How much nearer than any memory of another reason the best one must be."""
MOST_NEIGHBOURS = 12
"""Nearest memories that vote."""
OVER_RULES = 0.2
"""How much surer than rules in doubt memory must be."""
MEMORIES_NAMED = 3
"""Memories that an answer names."""
MOST_CAUGHT_UP = 256
"""Memories that get vectors of this embedder in one go, when another one made theirs."""
_CURVE = ((0.6, 0.6), (0.7, 0.75), (0.8, 0.88), (1.0, 0.93))
"""Confidence by similarity: how often the nearest of 603 labelled root lines, itself left out, had the same reason."""


class Neighbour(NamedTuple):
    """A memory that is like this case, and by which line."""

    memory: Memory
    candidate: CandidateLine
    similarity: float
    line: str
    """The memory's line."""


class MemoryOpinion:
    """The second opinion of confirmed incidents."""

    name = "memory"

    def __init__(self, store: Store, embedder: Embedder, reasons: Callable[[], Mapping[str, Reason]]) -> None:
        self._store, self._embedder, self._reasons = store, embedder, reasons

    def ask(self, facts: Facts, diagnosis: Diagnosis) -> Diagnosis | None:
        """Return what the incidents like this one were, where they agree; None where none is near, or where they differ."""
        explained = spoken_for(facts)
        like = [
            neighbour
            for neighbour in self._like(candidate_lines(facts, diagnosis.root_cause), facts, LEAST_SIMILARITY)
            if not _is_explained(neighbour, explained)
        ]
        voters = [
            neighbour
            for neighbour in like
            if neighbour.memory.reason in self._reasons() and neighbour.similarity >= like[0].similarity - 3 * LEAST_MARGIN
        ]
        if not voters:
            return None
        best = voters[0]
        agreeing = [neighbour for neighbour in voters if neighbour.memory.reason == best.memory.reason]
        dissenting = [neighbour for neighbour in voters if neighbour.memory.reason != best.memory.reason]
        if dissenting and dissenting[0].similarity > best.similarity - LEAST_MARGIN:
            return None
        confidence = round(confidence_of(best.similarity) * (0.6 + 0.4 * len(agreeing) / len(voters)), 2)
        if diagnosis.reason != "unknown" and confidence <= diagnosis.confidence + OVER_RULES:
            return None
        return self._diagnosis(agreeing, dissenting, confidence, facts, diagnosis)

    def note(self, facts: Facts, diagnosis: Diagnosis) -> Diagnosis:
        """Return the diagnosis with the incidents like it; one that was of another reason, by a person's word, becomes a rival."""
        if diagnosis.seen_before or not diagnosis.root_cause:
            return diagnosis
        lines = [CandidateLine(c.file, c.line, c.text, message_of(c.text)) for c in diagnosis.root_cause]
        like = self._like(lines, facts, WORTH_NOTING)
        if not like:
            return diagnosis
        best = like[0]
        rivals = diagnosis.rivals
        if best.memory.reason != diagnosis.reason and best.memory.by.startswith("operator:"):
            rivals = (self._rival(best, diagnosis.confidence), *rivals)[:2]
        return replace(diagnosis, seen_before=tuple(map(recall_of, like[:MEMORIES_NAMED])), rivals=rivals)

    def _like(self, lines: Sequence[CandidateLine], facts: Facts, least: float) -> list[Neighbour]:
        """Return the memories that are like any of some lines, most alike first; never this very attempt."""
        if not lines or not self._store.remembers():
            return []
        catch_up(self._store, self._embedder)
        vectors = self._embedder.embed([line.message for line in lines])
        near = self._store.nearest(vectors, embedder=self._embedder.name, limit=MOST_NEIGHBOURS + 1)
        neighbours = [self._neighbour(line, lines) for line in near if line.similarity >= least]
        job = facts.case.job
        own = (job.id, job.attempt) if job is not None else None
        return [line for line in neighbours if line is not None and (line.memory.job, line.memory.attempt) != own][:MOST_NEIGHBOURS]

    def _neighbour(self, near: Near, lines: Sequence[CandidateLine]) -> Neighbour | None:
        memory = self._store.memory(near.incident)
        return None if memory is None else Neighbour(memory, lines[near.query], min(near.similarity, 1.0), memory.lines[near.line])

    def _diagnosis(
        self, agreeing: Sequence[Neighbour], dissenting: Sequence[Neighbour], confidence: float, facts: Facts, diagnosis: Diagnosis
    ) -> Diagnosis:
        best = agreeing[0]
        reason = self._reasons()[best.memory.reason]
        action = Action(best.memory.action)
        cited = {
            (neighbour.candidate.file, neighbour.candidate.line): neighbour.candidate.cite(
                f"memory of incident {neighbour.memory.incident}"
            )
            for neighbour in agreeing
        }
        nodes = _nodes(best, action, facts)
        recalls = tuple(map(recall_of, agreeing[:MEMORIES_NAMED]))
        return Diagnosis(
            reason=reason.name,
            category=reason.category,
            action=action,
            confidence=confidence,
            by=DecidedBy.MEMORY,
            root_cause=tuple(cited.values())[:3],
            nodes=nodes,
            rivals=(
                rival_of_rules(diagnosis, no_line="what the rules fall back to"),
                *(self._rival(neighbour, confidence) for neighbour in dissenting[:1]),
                *diagnosis.rivals,
            )[:2],
            summary=_summary(reason, best, recalls[0]),
            advice=advice(reason, action, nodes),
            step=diagnosis.step,
            spike_step=diagnosis.spike_step,
            seen_before=recalls,
        )

    def _rival(self, neighbour: Neighbour, confidence: float) -> Rival:
        reason = self._reasons().get(neighbour.memory.reason)
        test = next(iter(reason.tests), "") if reason is not None else ""
        return Rival(
            neighbour.memory.reason,
            round(min((1 - confidence) * neighbour.similarity + 0.05, 0.6), 2),
            f"incident {neighbour.memory.incident} was that, by {neighbour.memory.by}; "
            f"{neighbour.candidate.file}:{neighbour.candidate.line} is like its line, similarity {neighbour.similarity:.2f}",
            "a case that looks alike need not be alike",
            test or f"Compare with incident {neighbour.memory.incident}.",
        )


def recall_of(neighbour: Neighbour) -> Recall:
    """Return what is told about a memory that is like a case."""
    memory = neighbour.memory
    return Recall(
        memory.incident,
        memory.reason,
        round(neighbour.similarity, 2),
        shared_words(neighbour.candidate.message, neighbour.line),
        memory.cure,
        memory.at,
    )


def shared_words(first: str, second: str) -> tuple[str, ...]:
    """Return the words that two lines share, the telling ones first, at most six."""
    theirs = set(words_of(second))
    shared = list(dict.fromkeys(word for word in words_of(first) if word in theirs and len(word) > 2))
    return tuple(sorted(shared, key=lambda word: word in PLAIN)[:6])


def confidence_of(similarity: float) -> float:
    """Return how sure a verdict by the nearest memory is, from how near it is."""
    for (low, at_low), (high, at_high) in pairwise(_CURVE):
        if similarity <= high:
            return at_low + (at_high - at_low) * max(similarity - low, 0.0) / (high - low)
    return _CURVE[-1][1]


def catch_up(store: Store, embedder: Embedder) -> None:
    """Give memories whose vectors another embedder made vectors of this one, a bounded number at a time."""
    for memory in store.strangers(embedder.name, MOST_CAUGHT_UP):
        store.set_vectors(memory.incident, embedder=embedder.name, vectors=embedder.embed(memory.lines))


def _is_explained(neighbour: Neighbour, explained: Mapping[tuple[str, int], frozenset[str]]) -> bool:
    """Tell whether signatures know the line and what it means, which is not what memory would make of it."""
    reasons = explained.get((neighbour.candidate.file, neighbour.candidate.line), frozenset())
    return bool(reasons) and neighbour.memory.reason not in reasons and neighbour.similarity < SURE_SIMILARITY


def _nodes(best: Neighbour, action: Action, facts: Facts) -> tuple[NodeFinding, ...]:
    """Return the node whose own kernel printed the line that is alike, where the like incident was a node's fault."""
    if action is not Action.CORDON_AND_RESTART or best.candidate.file != "dmesg.log" or not best.memory.nodes:
        return ()
    host = next((line.host for line in facts.kernel if line.number == best.candidate.line), None)
    if not host:
        return ()
    why = f"its kernel printed what {best.memory.nodes[0]}'s printed in incident {best.memory.incident}"
    return (NodeFinding(host, why, (best.candidate.cite(f"memory of incident {best.memory.incident}"),)),)


def _summary(reason: Reason, best: Neighbour, recall: Recall) -> str:
    cured = f", cured by {recall.cure}" if recall.cure else ""
    shared = f", shares {', '.join(recall.shared)}" if recall.shared else ""
    text = head_of(best.candidate.text.strip(), 180)
    return (
        f"{reason.title}, seen before in incident {recall.incident}{cured}, similarity {recall.similarity:.2f}{shared}: "
        f"{text} ({best.candidate.file}:{best.candidate.line})."
    )
