"""Learn from a confirmed incident: remember it, judge the learned rules that spoke in it, and make a signature of its lines.

A new signature is on trial. Confirmed incidents in which it matched count for it or against it: two agreeing ones make it active,
the first that disagrees retires one on trial, and too many of them retire one that was active.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from assistant.content.reasons import Role, Signature
from assistant.diagnose.admission import FILES, Known, Proof, known_lines, matched
from assistant.diagnose.answer import evidence_text
from assistant.diagnose.facts import Facts
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.memory import LEAST, catch_up
from assistant.diagnose.readers.candidate_lines import Words, message_of, pattern_of, words_kept
from assistant.ports import Embedder
from assistant.records import Action, Citation, LearnedRule, RuleKind, RuleState
from assistant.redact import redact
from assistant.store import Memory, Store

logger = logging.getLogger(__name__)

HITS_TO_ACT = 2
MISSES_PER_HIT = 1 / 3
"""More misses than this share of the hits retire an active rule."""
LINES = 3
"""Lines of an incident that are remembered, and that may become a signature."""
_WEIGHT = {"operator": 0.85, "lesson": 0.85}
_WEIGHT_OF_OTHERS = 0.7
_WEIGHT_OF_SYMPTOMS = {"connection_error": 0.55}
"""Neighbours of any failure print such lines; below 0.6 they name the reason only where nothing else does."""


@dataclass(frozen=True)
class Lesson:
    """A confirmed incident."""

    incident: int
    reason: str
    action: Action
    lines: tuple[Citation, ...]
    """What shows the reason, the most telling first; all stand in the case."""
    by: str
    """Who confirmed it: `recovered`, `operator:alice`, `lesson:<folder>`."""
    facts: Facts | None = None
    """Of the case, where its files are still there."""
    maker: str = ""
    """Who made the diagnosis that is learned from: `operator:alice`, `memory`, `model`; empty: nothing is to be learned."""
    said: str = ""
    """What had been diagnosed; empty where nobody knows."""
    why: str = ""
    cure: str = ""
    nodes: tuple[str, ...] = ()
    task: str = ""


@dataclass(frozen=True)
class Taught:
    """What came of a lesson."""

    memory: Memory | None
    """None where no line shows the reason."""
    learned: LearnedRule | None
    refused: str
    """Why there is no new signature; empty where there is one, or none was wanted."""
    judged: tuple[LearnedRule, ...]
    """Rules that matched, as they stand now."""


class Teacher:
    """Keeps what confirmed incidents teach."""

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        knowledge: Callable[[], Knowledge],
        *,
        site: Path | None = None,
        healthy: Sequence[str] = (),
        known: Sequence[Known] | None = None,
        remembers: bool = True,
        learns: bool = True,
    ) -> None:
        """Prepare to learn.

        Args:
            store: Where memories and rules are kept.
            embedder: For memories.
            knowledge: Gives what is known now, learned rules included.
            site: The site's own content.
            healthy: Lines of healthy logs, beyond the routine lines that the content knows.
            known: Lines whose meaning is known; None: those of the content.
            remembers: Whether incidents are remembered.
            learns: Whether signatures are made.
        """
        self.store, self._embedder, self._knowledge, self._site = store, embedder, knowledge, site
        self.healthy = list(healthy)
        self._remembers, self._learns = remembers, learns
        self._known = known

    def teach(self, lesson: Lesson) -> Taught:
        """Take a lesson in; the same one again changes nothing."""
        lines = tuple(dict.fromkeys(redact(message_of(cited.text)) for cited in lesson.lines if message_of(cited.text)))[:LINES]
        text = redact(evidence_text(lesson.facts, lesson.lines))
        self._drop_outdated(lesson)
        judged = tuple(self._judge(rule, lesson) for rule in self._spoke(lesson, text))
        learned, refused = self._learn(lesson) if lesson.maker and self._learns else (None, "")
        memory = self._remember(lesson, lines, text) if lines and self._remembers else None
        return Taught(memory, learned, refused, judged)

    def forget(self, incident: int, *, by: str, why: str) -> bool:
        """Take a confirmation back: its memory counts no more, and the rules that rest on it are retired."""
        for rule in self.store.rules(kind=RuleKind.SIGNATURE, counting=True):
            if rule.incident == incident:
                self.store.move_rule(
                    rule.id, RuleState.RETIRED, by=by, why=f"the confirmation of incident {incident} was taken back: {why}"
                )
        return self.store.take_back(incident, by=by, why=why)

    def _remember(self, lesson: Lesson, lines: tuple[str, ...], text: str) -> Memory:
        memory = Memory(
            lesson.incident,
            lesson.reason,
            str(lesson.action),
            lines,
            text,
            lesson.cure,
            lesson.nodes,
            lesson.task,
            lesson.by,
            lesson.why,
            self.store.clock.now(),
        )
        known = self.store.memory(lesson.incident)
        if known is not None and replace(memory, at=known.at, job=known.job, attempt=known.attempt) == known:
            return known
        return self.store.keep_memory(memory, embedder=self._embedder.name, vectors=self._embedder.embed(lines))

    def _spoke(self, lesson: Lesson, text: str) -> list[LearnedRule]:
        """Return the learned rules that matched in the case and were right, or led it astray; not those that were made from it.

        One of another reason that matched beside a right verdict did no harm: several errors often stand in one log.
        """
        others = [rule for rule in self.store.rules(kind=RuleKind.SIGNATURE, counting=True) if rule.incident != lesson.incident]
        ids = {cited.rule for cited in lesson.lines} | {rule.id for rule in matched(others, text)}
        if lesson.facts is not None:
            ids |= {
                hit.entry.id for hits in (lesson.facts.hits, lesson.facts.kernel_hits, lesson.facts.scheduler_hits) for hit in hits
            }
        spoke = (rule for rule in others if rule.id in ids)
        return [rule for rule in spoke if rule.of == lesson.reason or lesson.said in ("", rule.of)]

    def _judge(self, rule: LearnedRule, lesson: Lesson) -> LearnedRule:
        rule = self.store.use_rule(rule.id, lesson.incident, agreed=rule.of == lesson.reason)
        state, why = next_state(rule)
        if state is rule.state:
            return rule
        logger.info("rule=%s %s after incident=%s: %s", rule.id, state, lesson.incident, why)
        return self.store.move_rule(rule.id, state, by=lesson.by, why=f"incident {lesson.incident} was {lesson.reason}: {why}")

    def _drop_outdated(self, lesson: Lesson) -> None:
        """Retire what was learned from this incident when it was thought to be something else."""
        for rule in self.store.rules(kind=RuleKind.SIGNATURE, counting=True):
            if rule.incident == lesson.incident and rule.of != lesson.reason:
                why = f"incident {lesson.incident} turned out to be {lesson.reason}"
                self.store.move_rule(rule.id, RuleState.RETIRED, by=lesson.by, why=why)

    def _learn(self, lesson: Lesson) -> tuple[LearnedRule | None, str]:
        if any(r.incident == lesson.incident and r.state.counts for r in self.store.rules(kind=RuleKind.SIGNATURE)):
            return None, "a signature was learned from this incident before"
        if lesson.reason == "unknown":
            return None, "nothing is learned for `unknown`"
        knowledge = self._knowledge()
        proof = Proof(knowledge, self._known_lines(knowledge), self.healthy, self.store.memories())
        refusals: list[str] = []
        for cited in lesson.lines[:LINES]:
            known = _knows(knowledge, lesson.reason, cited)
            if known:
                return None, f"{known} knows this line already"
            for together in self._wordings(lesson, redact(message_of(cited.text))):
                rule, words = self._candidate(lesson, cited, together)
                flaw = proof.flaw(rule, words, lesson.facts)
                if not flaw:
                    return self._admit(rule), ""
                refusals.append(flaw)
        if not refusals:
            return None, "no line of the case shows it; name one"
        self._keep_refused(rule, refusals[-1])
        return None, refusals[-1]

    def _wordings(self, lesson: Lesson, message: str) -> Iterable[list[str]]:
        """Yield the lines to make one pattern of: this one with those of like incidents of the same reason, then this one alone."""
        catch_up(self.store, self._embedder)
        like: list[str] = []
        for near in self.store.nearest(self._embedder.embed([message]), embedder=self._embedder.name, limit=8):
            memory = self.store.memory(near.incident)
            if (
                memory is not None
                and memory.reason == lesson.reason
                and near.similarity >= LEAST
                and memory.incident != lesson.incident
            ):
                like.append(memory.lines[near.line])
        if like:
            yield [message, *dict.fromkeys(line for line in like[:3] if line != message)]
        yield [message]

    def _candidate(self, lesson: Lesson, cited: Citation, lines: Sequence[str]) -> tuple[LearnedRule, Words]:
        hosts = lesson.facts.places.hosts if lesson.facts is not None else ()
        source = next((source for source, file in FILES.items() if file == cited.file), "job")
        rule = LearnedRule(
            id=self._fresh_id(lesson.reason),
            kind=RuleKind.SIGNATURE,
            pattern=pattern_of(lines, hosts=hosts),
            examples=tuple(lines),
            of=lesson.reason,
            state=RuleState.TRIAL,
            by=lesson.maker,
            why=f"incident {lesson.incident} was confirmed by {lesson.by}" + (f": {lesson.why}" if lesson.why else ""),
            made=self.store.clock.now(),
            incident=lesson.incident,
            source=source,
            weight=_WEIGHT_OF_SYMPTOMS.get(lesson.reason, _WEIGHT.get(lesson.maker.partition(":")[0], _WEIGHT_OF_OTHERS)),
        )
        return rule, words_kept(lines, hosts=hosts)

    def _fresh_id(self, reason: str) -> str:
        used = {rule.id for rule in self.store.rules()}
        return next(name for n in range(1, len(used) + 2) if (name := f"{reason}.learned-{n}") not in used)

    def _admit(self, rule: LearnedRule) -> LearnedRule:
        """Write a new signature down; those on trial that it includes are no longer needed."""
        kept = self.store.add_rule(rule)
        for other in self.store.rules(kind=RuleKind.SIGNATURE, counting=True):
            if (
                other.id != kept.id
                and other.state is RuleState.TRIAL
                and other.of == kept.of
                and set(other.examples) < set(kept.examples)
            ):
                self.store.move_rule(other.id, RuleState.RETIRED, by=kept.by, why=f"{kept.id} is wider")
        return kept

    def _keep_refused(self, rule: LearnedRule, why: str) -> None:
        if all((rule.pattern, rule.of) != (other.pattern, other.of) for other in self.store.rules(kind=RuleKind.SIGNATURE)):
            self.store.add_rule(replace(rule, state=RuleState.PROPOSED, why=f"refused: {why}"))

    def _known_lines(self, knowledge: Knowledge) -> Sequence[Known]:
        if self._known is None:
            self._known = known_lines(knowledge.reasons, knowledge.patterns, self._site)
        return self._known


def next_state(rule: LearnedRule) -> tuple[RuleState, str]:
    """Return the state that a rule should be in after what its uses showed, and why."""
    if rule.state is RuleState.TRIAL and rule.misses:
        return RuleState.RETIRED, "it was wrong while on trial"
    if rule.state is RuleState.ACTIVE and rule.misses > rule.hits * MISSES_PER_HIT:
        return RuleState.RETIRED, f"{rule.misses} misses against {rule.hits} hits"
    if rule.state is RuleState.TRIAL and rule.hits >= HITS_TO_ACT:
        return RuleState.ACTIVE, f"it was right in {rule.hits} incidents"
    return rule.state, ""


def _knows(knowledge: Knowledge, reason: str, cited: Citation) -> str:
    """Return the id of a signature that takes this line for a root of this reason already; empty where none does."""
    for entry in knowledge.patterns.match_line(cited.text):
        right = isinstance(entry, Signature) and entry.role is Role.ROOT and entry.id.partition(".")[0] == reason
        if right and isinstance(entry, Signature) and any(FILES[source] == cited.file for source in entry.where):
            return entry.id
    return ""


def as_toml(rule: LearnedRule) -> str:
    """Return a learned signature as it would stand in knowledge/reasons/<reason>.toml, for review."""
    fields: Mapping[str, object] = {"id": rule.id, "pattern": rule.pattern, "examples": list(rule.examples), "where": [rule.source]}
    lines = [
        f"# learned from incident {rule.incident} by {rule.by}; {rule.state}, {rule.hits} hits, {rule.misses} misses",
        "[[signature]]",
    ]
    lines += [f"{name} = {_toml(value)}" for name, value in fields.items()]
    return "\n".join([*lines, f"weight = {rule.weight}", ""])


def _toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    text = str(value)
    if "'" not in text and text.isprintable():
        return f"'{text}'"
    escaped = "".join(sign if sign.isprintable() and sign not in '"\\' else f"\\u{ord(sign):04x}" for sign in text)
    return f'"{escaped}"'
