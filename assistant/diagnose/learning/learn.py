"""Learn from a confirmed incident: remember it, judge the learned rules that spoke in it, and make a signature of its lines.

A new signature has to prove, before it counts, that it knows its own line and nothing else. It is then on trial. Confirmed
incidents in which it matched count for it or against it: two agreeing ones make it active, the first that disagrees retires one
on trial, and too many of them retire one that was active.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from assistant.content.reading import filters
from assistant.content.reasons import Reason, Role, Signature
from assistant.diagnose.case import Case
from assistant.diagnose.facts import Facts
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.learning.opinions import LEAST_SIMILARITY, catch_up
from assistant.diagnose.readers.candidate_lines import Words, end_of_health, message_of, pattern_of, words_kept
from assistant.diagnose.readers.exceptions import bare
from assistant.diagnose.verdict import diagnose
from assistant.errors import ContentError, InputError
from assistant.linear_patterns import LinearPattern, holds, linear_pattern
from assistant.ports import Embedder
from assistant.records import Action, Citation, LearnedRule, RuleKind, RuleState
from assistant.redact import head_of, line_texts, redact
from assistant.rules.learned import entry_of
from assistant.rules.matching import Patterns, protected_lines
from assistant.store import Memory, Store

FILES_BY_SOURCE = {"job": "job.log", "kernel": "dmesg.log", "scheduler": "slurmctld.log"}
"""Name of the file of a case by the source of a rule."""
LONGEST_PATTERN = 900
"""Characters of a pattern."""
MOST_RECHECKED = 40
"""Earlier cases that are diagnosed again for one rule."""


class KnownLine(NamedTuple):
    """A line whose meaning is known."""

    text: str
    reasons: frozenset[str]
    """Those that it speaks for; none for a line that is no failure."""
    place: str
    """Where it is known from, for people."""


def known_lines(reasons: Mapping[str, Reason], patterns: Patterns, site: Path | None = None) -> list[KnownLine]:
    """Return every line of the content whose meaning is known: examples, herrings, the protected corpus, routine lines."""
    lines: list[KnownLine] = []
    for reason in reasons.values():
        for signature in reason.signature:
            speaks = frozenset() if signature.role is Role.BENIGN else frozenset({reason.name})
            lines += [KnownLine(line, speaks, f"an example of {signature.id}") for line in signature.examples]
        lines += [KnownLine(line, frozenset(), f"the herring {entry.id}") for entry in reason.herring for line in entry.examples]
    lines += [KnownLine(line, frozenset(), f"routine of {entry.id}") for entry in filters(site) for line in entry.examples]
    for line in protected_lines(site):
        entries = [e for e in patterns.match_line(line) if isinstance(e, Signature) and not bare(e)]
        speaks = frozenset(entry.id.partition(".")[0] for entry in entries)
        if speaks:
            lines.append(KnownLine(line, speaks, "the protected corpus"))
    return lines


class Proof:
    """All that a new signature is held against."""

    def __init__(
        self, knowledge: Knowledge, lines: Sequence[KnownLine], healthy: Iterable[str], memories: Sequence[Memory]
    ) -> None:
        self._knowledge, self._lines, self._memories = knowledge, lines, memories
        self._healthy = list(healthy)

    def flaw(self, rule: LearnedRule, words: Words, facts: Facts | None) -> str:
        """Return why a rule must not be admitted, for people; empty when nothing speaks against it.

        Args:
            rule: The candidate.
            words: Those that its pattern keeps.
            facts: Of the case that it was made from, where they are there.
        """
        if not words.specific:
            return f"too few telling words: {', '.join(words.distinctive) or 'none'}"
        if len(rule.pattern) > LONGEST_PATTERN:
            return f"the pattern has {len(rule.pattern)} characters"
        try:
            compiled = linear_pattern(rule.pattern, multiline=False)
            patterns = Patterns([entry_of(rule)])
            patterns.telling_digits(b"-")  # compiles its second form as well
        except (ContentError, RecursionError) as error:
            return f"it does not compile: {error}"
        missed = next((line for line in rule.examples if not holds(compiled, line) or not patterns.match_line(line)), None)
        if missed is not None:
            return f"it does not match its own line: {head_of(missed, 120)}"
        routine = next((line for line in rule.examples if self._knowledge.patterns.hides(line)), None)
        if routine is not None:
            return f"it is a routine line: {head_of(routine, 120)}"
        return self._elsewhere(rule, compiled) or _in_health(rule, compiled, facts) or self._changes(rule, compiled)

    def _elsewhere(self, rule: LearnedRule, compiled: LinearPattern) -> str:
        for line in self._lines:
            if rule.of not in line.reasons and holds(compiled, line.text):
                return f"it matches {line.place}: {head_of(line.text, 120)}"
        healthy = next((line for line in self._healthy if holds(compiled, line)), None)
        return f"it matches a line of a healthy log: {head_of(healthy, 120)}" if healthy is not None else ""

    def _changes(self, rule: LearnedRule, compiled: LinearPattern) -> str:
        """Return which earlier case would be diagnosed in another way with this rule."""
        budget = MOST_RECHECKED
        for memory in self._memories:
            if memory.reason == rule.of or not any(
                holds(compiled, line) for line in sections(memory.text).get(FILES_BY_SOURCE[rule.source], ())
            ):
                continue
            if not budget or self._verdict(memory, rule) != self._verdict(memory, None):
                return f"it would change the verdict of incident {memory.incident} ({memory.reason})"
            budget -= 1
        return ""

    def _verdict(self, memory: Memory, rule: LearnedRule | None) -> str:
        knowledge = self._knowledge if rule is None else self._knowledge.with_learned([rule])
        with tempfile.TemporaryDirectory(prefix="nightshift-proof-") as folder:
            for name, lines in sections(memory.text).items():
                (Path(folder) / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
            try:
                return diagnose(Case.from_path(folder), knowledge).reason
            except InputError:
                return ""


def sections(text: str) -> dict[str, list[str]]:
    """Return the lines of a memory's text by the file in which they stood."""
    by_file: dict[str, list[str]] = {}
    current = FILES_BY_SOURCE["job"]
    for line in text.split("\n"):
        if line.startswith("# ") and line[2:] in FILES_BY_SOURCE.values():
            current = line[2:]
        else:
            by_file.setdefault(current, []).append(line)
    return by_file


def _in_health(rule: LearnedRule, compiled: LinearPattern, facts: Facts | None) -> str:
    if facts is None or rule.source != "job":
        return ""
    end = end_of_health(facts)
    line = next((line for line in facts.lines if line.number <= end and holds(compiled, line.text)), None)
    return f"it matches line {line.number} of this log, after which the job trained on" if line is not None else ""


def matched(rules: Iterable[LearnedRule], text: str) -> Iterator[LearnedRule]:
    """Yield the rules that match a line of a memory's text, each in the file that it is for."""
    lines = sections(text)
    for rule in rules:
        compiled = linear_pattern(rule.pattern)
        if any(holds(compiled, line) for line in lines.get(FILES_BY_SOURCE[rule.source], ())):
            yield rule


logger = logging.getLogger(__name__)

HITS_TO_ACT = 2
MISSES_PER_HIT = 1 / 3
"""More misses than this share of the hits retire an active rule."""
MOST_LINES_LEARNT = 3
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
    verdict: str = ""
    """What had been diagnosed; empty where nobody knows."""
    why: str = ""
    cure: str = ""
    nodes: tuple[str, ...] = ()
    task: str = ""


@dataclass(frozen=True)
class Taught:
    """What a confirmed incident changed: the memory of it, the signature that was learned, the rules that were judged."""

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
        lines: Sequence[KnownLine] | None = None,
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
            lines: Lines whose meaning is known; None: those of the content.
            remembers: Whether incidents are remembered.
            learns: Whether signatures are made.
        """
        self.store, self._embedder, self._knowledge, self._site = store, embedder, knowledge, site
        self.healthy = list(healthy)
        self._remembers, self._learns = remembers, learns
        self._lines = lines

    def teach(self, lesson: Lesson) -> Taught:
        """Take a lesson in; the same one again changes nothing."""
        lines = tuple(dict.fromkeys(redact(message_of(cited.text)) for cited in lesson.lines if message_of(cited.text)))[
            :MOST_LINES_LEARNT
        ]
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
        earlier = self.store.memory(lesson.incident)
        if earlier is not None and replace(memory, at=earlier.at, job=earlier.job, attempt=earlier.attempt) == earlier:
            return earlier
        return self.store.keep_memory(memory, embedder=self._embedder.name, vectors=self._embedder.embed(lines))

    def _spoke(self, lesson: Lesson, text: str) -> list[LearnedRule]:
        """Return the learned rules that matched in the case and were right, or led it astray; not those that were made from it.

        One of another reason that matched beside a right verdict did no harm: several errors often stand in one log.
        """
        other_rules = [
            rule for rule in self.store.rules(kind=RuleKind.SIGNATURE, counting=True) if rule.incident != lesson.incident
        ]
        ids = {cited.rule for cited in lesson.lines} | {rule.id for rule in matched(other_rules, text)}
        if lesson.facts is not None:
            ids |= {
                hit.entry.id for hits in (lesson.facts.hits, lesson.facts.kernel_hits, lesson.facts.scheduler_hits) for hit in hits
            }
        spoke = (rule for rule in other_rules if rule.id in ids)
        return [rule for rule in spoke if rule.of == lesson.reason or lesson.verdict in ("", rule.of)]

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
        for cited in lesson.lines[:MOST_LINES_LEARNT]:
            is_known = _knows(knowledge, lesson.reason, cited)
            if is_known:
                return None, f"{is_known} knows this line already"
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
                and near.similarity >= LEAST_SIMILARITY
                and memory.incident != lesson.incident
            ):
                like.append(memory.lines[near.line])
        if like:
            yield [message, *dict.fromkeys(line for line in like[:3] if line != message)]
        yield [message]

    def _candidate(self, lesson: Lesson, cited: Citation, lines: Sequence[str]) -> tuple[LearnedRule, Words]:
        hosts = lesson.facts.places.hosts if lesson.facts is not None else ()
        source = next((source for source, file in FILES_BY_SOURCE.items() if file == cited.file), "job")
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
        stored = self.store.add_rule(rule)
        for rule_before in self.store.rules(kind=RuleKind.SIGNATURE, counting=True):
            if (
                rule_before.id != stored.id
                and rule_before.state is RuleState.TRIAL
                and rule_before.of == stored.of
                and set(rule_before.examples) < set(stored.examples)
            ):
                self.store.move_rule(rule_before.id, RuleState.RETIRED, by=stored.by, why=f"{stored.id} is wider")
        return stored

    def _keep_refused(self, rule: LearnedRule, why: str) -> None:
        if all((rule.pattern, rule.of) != (earlier.pattern, earlier.of) for earlier in self.store.rules(kind=RuleKind.SIGNATURE)):
            self.store.add_rule(replace(rule, state=RuleState.PROPOSED, why=f"refused: {why}"))

    def _known_lines(self, knowledge: Knowledge) -> Sequence[KnownLine]:
        if self._lines is None:
            self._lines = known_lines(knowledge.reasons, knowledge.patterns, self._site)
        return self._lines


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
        if right and isinstance(entry, Signature) and any(FILES_BY_SOURCE[source] == cited.file for source in entry.where):
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


LINES_AROUND = 8
"""Lines kept before and after each cited one."""
MOST_OF_EVIDENCE = 20_000
EVIDENCE_WIDTH = 1000
"""Characters kept of one line."""


def evidence_text(facts: Facts | None, cited: Sequence[Citation]) -> str:
    """Return the cited lines with their surroundings, one section for each file that a line of it is cited of.

    Args:
        facts: Of the case; where they are missing only the cited lines are left.
        cited: In order of weight.
    """
    cited_lines: dict[str, dict[int, str]] = {}
    for citation in cited:
        cited_lines.setdefault(citation.file, {})[citation.line] = citation.text
    parts: list[str] = []
    for file, lines in cited_lines.items():
        every = _lines(facts, file) if facts is not None else {}
        around = {n: every[n] for line in lines for n in range(line - LINES_AROUND, line + LINES_AROUND + 1) if n in every}
        excerpt = line_texts(sorted({**around, **lines}), {**every, **lines}.get)
        parts += [f"# {file}", *map(_inside, excerpt.values())]
    return head_of("\n".join(parts), MOST_OF_EVIDENCE)


def _inside(line: str) -> str:
    """Return a line as it may stand in a section: none may pass for the head of another one."""
    return f"{' ' if line.startswith('# ') else ''}{head_of(line, EVIDENCE_WIDTH)}"


def _lines(facts: Facts, file: str) -> Mapping[int, str]:
    if file == "job.log":
        return {number: line.text for number, line in facts.by_number.items()}
    if file == "dmesg.log":
        return {line.number: line.text for line in facts.kernel}
    if file == "slurmctld.log":
        return {line.number: line.text for line in facts.scheduler}
    return {}
