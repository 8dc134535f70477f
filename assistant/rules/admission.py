"""Prove of a learned filter that it hides nothing but the routine it was made for, before it counts.

A learned filter is held to more than a shipped one, which a person has read: it may not even match a protected line, or a line
that any signature knows, or what stands at the end of a failing log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from assistant.content.reading import Filter, filters
from assistant.content.reasons import Role, Signature, reasons
from assistant.errors import ContentError
from assistant.records import LearnedRule, RuleKind, RuleState
from assistant.rules.compiling import Expression, compiled_alone
from assistant.rules.learned import entry_of
from assistant.rules.matching import MARKS, Patterns, matches
from assistant.rules.proof import Flaw
from assistant.rules.protected import alarm_words, protected_lines
from assistant.rules.redos import RefusedPattern, shape_of

LETTERS = 4
"""Letters that a filter must ask for."""
MOST_OTHER_LINES = 3
"""Routine lines of other programs that a filter may match by chance."""
_DULL = ("", " ", "ok", "...", "hello world", "0", "12 34", "a=b", "loss nan", "lm loss: nan | grad norm: inf", "nan", "Terminated")


@dataclass(frozen=True)
class Ground:
    """What a filter is held against."""

    patterns: Patterns
    """Everything that is known, learned rules as well."""
    protected: Sequence[str]
    """Lines that tell of failures."""
    routine: Sequence[str]
    """Routine lines of many programs, each known to a filter."""
    alarms: Sequence[str]
    shown: Sequence[str] = ()
    """Lines of the log at hand that people must see: tracebacks, and what stands before the end of a failing log."""


def ground_of(
    patterns: Patterns, rules: Iterable[LearnedRule] = (), *, site: Path | None = None, shown: Iterable[str] = ()
) -> Ground:
    """Return what filters are held against.

    Args:
        patterns: Everything that is known.
        rules: Learned ones; the examples of signatures among them are protected.
        site: The site's folder.
        shown: Lines of the log at hand that must stay visible.
    """
    protected, routine = _content(site)
    learned = [line for rule in rules if rule.kind is RuleKind.SIGNATURE and rule.state.counts for line in rule.examples]
    return Ground(patterns, (*protected, *learned), routine, alarm_words(site), tuple(dict.fromkeys(shown)))


def admitted(rule: LearnedRule, lines: Sequence[str], ground: Ground) -> LearnedRule:
    """Return a filter on trial when its proof holds; else as proposed, with what the proof found.

    Args:
        rule: A filter.
        lines: That it was made for.
        ground: What it is held against.
    """
    found_flaws = flaws(rule, lines, ground)
    if not found_flaws:
        return replace(rule, state=RuleState.TRIAL)
    reason = f"{found_flaws[0].what}: {found_flaws[0].line[:200]!r}" if found_flaws[0].line else found_flaws[0].what
    more = f" (and {len(found_flaws) - 1} more)" if len(found_flaws) > 1 else ""
    return replace(rule, state=RuleState.PROPOSED, why=f"refused: {reason}{more}; {rule.why}")


def flaws(rule: LearnedRule, lines: Sequence[str], ground: Ground) -> list[Flaw]:
    """Return why a learned filter must not be used; nothing when its proof holds."""
    entry = entry_of(rule)
    if not isinstance(entry, Filter):
        raise ValueError(f"{rule.id} is a {rule.kind}, not a filter")
    if problem := _structure(entry):
        return [Flaw(entry.id, "", problem)]
    return [*_on_own_lines(entry, [*rule.examples, *lines], ground), *_on_others(entry, ground)]


def _structure(entry: Filter) -> str:
    """Return what is wrong with a pattern as such; empty when nothing is."""
    try:
        shape = shape_of(entry.pattern)
        compiled_alone(Expression(entry.id, entry.pattern, False))
    except (RefusedPattern, ContentError) as error:
        return str(error)
    if not shape.anchored:
        return "it must begin with ^, or it would look for its text anywhere in a line"
    if entry.pattern.endswith("$") or not entry.pattern.endswith(("$)", "(?:$)")):
        return "it must describe the line to its end, as ...(?:$), so that alarm words still count"
    if shape.letters < LETTERS:
        return f"it asks for {shape.letters} letters only, at least {LETTERS}: it could match anything"
    return ""


def _on_own_lines(entry: Filter, lines: Sequence[str], ground: Ground) -> list[Flaw]:
    scanned = compiled_alone(Expression(entry.id, f"^{MARKS}{entry.pattern[1:]}", False))
    found_flaws: list[Flaw] = []
    for line in dict.fromkeys(lines):
        if not matches(entry, line) or not _scans(scanned, line):
            found_flaws.append(Flaw(entry.id, line, "it does not match a line that it was made for"))
            continue
        signatures = [e.id for e in ground.patterns.match_line(line) if isinstance(e, Signature) and e.role is not Role.BENIGN]
        alarm = next((word for word in ground.alarms if word in line), None)
        if signatures:
            found_flaws.append(Flaw(entry.id, line, f"the signature {signatures[0]} knows a line that it would hide"))
        elif alarm is not None:
            found_flaws.append(Flaw(entry.id, line, f"a line that it would hide holds the alarm word {alarm!r}"))
        elif differing := [d for d in "0379" if not matches(entry, re.sub(r"\d", d, line))]:
            found_flaws.append(Flaw(entry.id, re.sub(r"\d", differing[0], line), "it cares which digits stand in a line"))
    return found_flaws


def _on_others(entry: Filter, ground: Ground) -> list[Flaw]:
    found_flaws = [
        Flaw(entry.id, line, "it matches a line that tells of a failure") for line in ground.protected if matches(entry, line)
    ]
    found_flaws += [
        Flaw(entry.id, line, "it would hide a line at the end of the log at hand") for line in ground.shown if matches(entry, line)
    ]
    found_flaws += [Flaw(entry.id, line, "it matches what says nothing") for line in _DULL if matches(entry, line)]
    example = entry.examples[0] if entry.examples else ""
    glued = [line for line in ground.protected if matches(entry, example + line)]
    found_flaws += [
        Flaw(entry.id, line, "it would hide an error printed right behind a line") for line in glued if not _alarmed(line, ground)
    ]
    routine = [line for line in ground.routine if matches(entry, line)]
    if len(routine) > MOST_OTHER_LINES:
        found_flaws.append(Flaw(entry.id, routine[0], f"it matches {len(routine)} lines of other programs as well"))
    return found_flaws


def _alarmed(line: str, ground: Ground) -> bool:
    return bool(ground.patterns.telling(line.encode("utf-8", "replace"))) or any(word in line for word in ground.alarms)


def _scans(scanned: object, line: str) -> bool:
    numbers: list[int] = []
    scanned.scan(line.encode("utf-8", "replace"), lambda number, *_: numbers.append(number))  # type: ignore[attr-defined]
    return bool(numbers)


@cache
def _content(site: Path | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return protected lines, those of herrings too because people look for them, and routine lines."""
    known_reasons = reasons(site).values()
    herrings = [line for reason in known_reasons for herring in reason.herring for line in herring.examples]
    routine = [line for entry in filters(site) for line in entry.examples]
    benign = set(routine)
    return tuple(dict.fromkeys([*protected_lines(site), *(line for line in herrings if line not in benign)])), tuple(routine)
