"""Prove of a learned signature that it knows its own line and nothing else, before it counts."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from assistant.content.reading import filters
from assistant.content.reasons import Reason, Role, Signature
from assistant.diagnose.case import Case
from assistant.diagnose.facts import Facts
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.readers.candidate_lines import Words, end_of_health
from assistant.diagnose.readers.exceptions import bare
from assistant.diagnose.verdict import diagnose
from assistant.errors import ContentError, InputError
from assistant.linear_patterns import LinearPattern, holds, linear_pattern
from assistant.records import LearnedRule
from assistant.rules.learned import entry_of
from assistant.rules.matching import Patterns, protected_lines
from assistant.store import Memory

FILES = {"job": "job.log", "kernel": "dmesg.log", "scheduler": "slurmctld.log"}
"""Name of the file of a case by the source of a rule."""
LONGEST = 900
"""Characters of a pattern."""
RECHECKED = 40
"""Earlier cases that are diagnosed again for one rule."""


class Known(NamedTuple):
    """A line whose meaning is known."""

    text: str
    reasons: frozenset[str]
    """Those that it speaks for; none for a line that is no failure."""
    where: str
    """Where it is known from, for people."""


def known_lines(reasons: Mapping[str, Reason], patterns: Patterns, site: Path | None = None) -> list[Known]:
    """Return every line of the content whose meaning is known: examples, herrings, the protected corpus, routine lines."""
    found: list[Known] = []
    for reason in reasons.values():
        for signature in reason.signature:
            speaks = frozenset() if signature.role is Role.BENIGN else frozenset({reason.name})
            found += [Known(line, speaks, f"an example of {signature.id}") for line in signature.examples]
        found += [Known(line, frozenset(), f"the herring {entry.id}") for entry in reason.herring for line in entry.examples]
    found += [Known(line, frozenset(), f"routine of {entry.id}") for entry in filters(site) for line in entry.examples]
    for line in protected_lines(site):
        known = [e for e in patterns.match_line(line) if isinstance(e, Signature) and not bare(e)]
        speaks = frozenset(entry.id.partition(".")[0] for entry in known)
        if speaks:
            found.append(Known(line, speaks, "the protected corpus"))
    return found


class Proof:
    """All that a new signature is held against."""

    def __init__(self, knowledge: Knowledge, known: Sequence[Known], healthy: Iterable[str], memories: Sequence[Memory]) -> None:
        self._knowledge, self._known, self._memories = knowledge, known, memories
        self._healthy = list(healthy)

    def flaw(self, rule: LearnedRule, words: Words, facts: Facts | None) -> str:
        """Return why a rule must not be admitted, for people; empty when nothing speaks against it.

        Args:
            rule: The candidate.
            words: Those that its pattern keeps.
            facts: Of the case that it was made from, where they are there.
        """
        if not words.specific:
            return f"too few telling words: {', '.join(words.telling) or 'none'}"
        if len(rule.pattern) > LONGEST:
            return f"the pattern has {len(rule.pattern)} characters"
        try:
            compiled = linear_pattern(rule.pattern, multiline=False)
            patterns = Patterns([entry_of(rule)])
            patterns.telling_digits(b"-")  # compiles its second form as well
        except (ContentError, RecursionError) as error:
            return f"it does not compile: {error}"
        missed = next((line for line in rule.examples if not holds(compiled, line) or not patterns.match_line(line)), None)
        if missed is not None:
            return f"it does not match its own line: {missed[:120]}"
        routine = next((line for line in rule.examples if self._knowledge.patterns.hides(line)), None)
        if routine is not None:
            return f"it is a routine line: {routine[:120]}"
        return self._elsewhere(rule, compiled) or _in_health(rule, compiled, facts) or self._changes(rule, compiled)

    def _elsewhere(self, rule: LearnedRule, compiled: LinearPattern) -> str:
        for line in self._known:
            if rule.of not in line.reasons and holds(compiled, line.text):
                return f"it matches {line.where}: {line.text[:120]}"
        healthy = next((line for line in self._healthy if holds(compiled, line)), None)
        return f"it matches a line of a healthy log: {healthy[:120]}" if healthy is not None else ""

    def _changes(self, rule: LearnedRule, compiled: LinearPattern) -> str:
        """Return which earlier case would be diagnosed in another way with this rule."""
        left = RECHECKED
        for memory in self._memories:
            if memory.reason == rule.of or not any(
                holds(compiled, line) for line in sections(memory.text).get(FILES[rule.source], ())
            ):
                continue
            if not left or self._verdict(memory, rule) != self._verdict(memory, None):
                return f"it would change the verdict of incident {memory.incident} ({memory.reason})"
            left -= 1
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
    found: dict[str, list[str]] = {}
    current = FILES["job"]
    for line in text.split("\n"):
        if line.startswith("# ") and line[2:] in FILES.values():
            current = line[2:]
        else:
            found.setdefault(current, []).append(line)
    return found


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
        if any(holds(compiled, line) for line in lines.get(FILES[rule.source], ())):
            yield rule
