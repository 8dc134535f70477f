"""Rules that were learned and filters that a site wrote: voted on, proven to hide no error, compiled as entries, exported as files.

Shipped filters are proven by the contract tests, those of a site when they are loaded, learned ones before they count. While a log
is scanned the same is enforced once more: a line that a signature matches is never covered, and a line with an alarm word only by
a filter that describes all of it. A learned filter is held to more than a shipped one, which a person has read: it may not even
match a protected line, or a line that any signature knows, or what stands at the end of a failing log.

Before that, several proposals of a model vote on one pattern (self-consistency): two are the same vote when they match the same of
the lines at hand, however they are written.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from assistant.content.reading import Filter, content_files, filters
from assistant.content.reasons import Role, Signature, SignatureSource, reasons
from assistant.errors import ContentError
from assistant.linear_patterns import holds, linear_pattern
from assistant.records import LearnedRule, RuleKind, RuleState
from assistant.redact import head_of
from assistant.rules.matching import MARKS, Entry, Patterns, alarm_words, describes_whole_lines, matches, protected_lines
from assistant.rules.patterns import Expression, RefusedPattern, compiled_alone, shape_of


class Flaw(NamedTuple):
    """Why a filter must not be used."""

    filter: str
    """Its id."""
    line: str
    """The line that shows it."""
    why: str


def hidden_errors(entry: Filter, lines: Iterable[str], patterns: Patterns) -> list[Flaw]:
    """Return the protected lines that the filter would hide; there must be none."""
    return [Flaw(entry.id, line, "it would hide this line") for line in lines if matches(entry, line) and patterns.hides(line)]


def swallowed_errors(entry: Filter, lines: Sequence[str]) -> list[Flaw]:
    """Return the protected lines that a filter of whole lines takes for part of its own when they are printed right behind.

    That happens: processes share a terminal, and progress bars end without a newline. Filters of another kind are held back by the
    alarm words.
    """
    if not describes_whole_lines(entry):
        return []
    glued = [example + line for example in entry.examples for line in lines]
    return [Flaw(entry.id, line, "it would hide an error behind it") for line in glued if matches(entry, line)]


def own_mistakes(entry: Filter, patterns: Patterns) -> list[Flaw]:
    """Return what is wrong with the filter's own examples: one that it does not match once, or only with certain digits."""
    found_flaws: list[Flaw] = []
    for example in entry.examples:
        if not matches(entry, example):
            found_flaws.append(Flaw(entry.id, example, "it does not match its own example"))
        elif not patterns.hides(example):
            found_flaws.append(Flaw(entry.id, example, "its example is not hidden: a signature or an alarm word matches it"))
        for digit in "0379":
            changed = re.sub(r"\d", digit, example)
            if matches(entry, example) and not matches(entry, changed):
                found_flaws.append(Flaw(entry.id, changed, "it cares which digits stand in a line"))
    return found_flaws


def prove(entries: Sequence[Filter], lines: Sequence[str], patterns: Patterns) -> None:
    """Check filters against the protected corpus.

    Raises:
        ContentError: A filter could hide an error, or does not do what its examples say.
    """
    for entry in entries:
        flaws = [*own_mistakes(entry, patterns), *hidden_errors(entry, lines, patterns), *swallowed_errors(entry, lines)]
        if flaws:
            raise ContentError(f"filter {entry.id!r} cannot be used: {flaws[0].why}: {flaws[0].line!r} ({len(flaws)} such lines)")


def entry_of(rule: LearnedRule) -> Entry:
    """Return the signature or filter that a learned rule is."""
    if rule.kind is RuleKind.FILTER:
        return Filter(rule.id, rule.pattern, rule.examples, rule.of)
    return Signature(rule.id, rule.pattern, rule.examples, where=(SignatureSource(rule.source),), weight=rule.weight)


def entries_of(rules: Iterable[LearnedRule], task: str = "") -> tuple[Entry, ...]:
    """Return the entries of the rules that count, those made for the task first, then those for any.

    Args:
        rules: In any state.
        task: Rules of other tasks are left out when it is given.
    """
    counting = [rule for rule in rules if rule.state.counts and (not task or rule.task in ("", task))]
    return tuple(entry_of(rule) for rule in sorted(counting, key=lambda rule: (rule.task == "", rule.made, rule.id)))


FILTERS = "knowledge/filters/learned.toml"


def exported(rules: Iterable[LearnedRule], site: Path | None = None) -> Mapping[str, str]:
    """Return the text of each file by its path in a site's folder.

    A file of a reason holds all that is known of the reason already, because a site's file stands in the place of the shipped one.

    Args:
        rules: Those to export.
        site: The site's folder; what it says about a reason is kept.
    """
    filters: list[LearnedRule] = []
    signatures: dict[str, list[LearnedRule]] = defaultdict(list)
    for rule in rules:
        (filters if rule.kind is RuleKind.FILTER else signatures[rule.of]).append(rule)
    files = {FILTERS: "\n".join([*_FILTER_HEAD, *(_filter(rule) for rule in filters)])} if filters else {}
    shipped = {path.stem: path for path in content_files("knowledge/reasons", site)}
    for reason, learned in sorted(signatures.items()):
        if reason in shipped:
            text = shipped[reason].read_text(encoding="utf-8").rstrip("\n")
            new = [_signature(rule) for rule in learned if f"{rule.id!r}" not in text and f'"{rule.id}"' not in text]
            files[f"knowledge/reasons/{reason}.toml"] = "\n".join([text, "", *new])
    return files


_FILTER_HEAD = ('program = "learned from logs of this site"', 'source = "nightshift rules export"', "")


def _filter(rule: LearnedRule) -> str:
    return "\n".join(["[[filter]]", *_provenance(rule), *_shared(rule), f"folds = {_quoted(rule.of)}", ""])


def _signature(rule: LearnedRule) -> str:
    where_line = f"where = [{_quoted(rule.source)}]"
    return "\n".join(["[[signature]]", *_provenance(rule), *_shared(rule), f"weight = {rule.weight!r}", where_line, ""])


def _provenance(rule: LearnedRule) -> list[str]:
    of = f" in incident {rule.incident}" if rule.incident is not None else ""
    task = f", task {rule.task}" if rule.task else ""
    provenance = f"by {rule.by}{of} on {rule.made:%Y-%m-%d}{task}; {rule.hits} hits, {rule.misses} misses; {rule.why}"
    return [f"# {' '.join(provenance.split())}"]


def _shared(rule: LearnedRule) -> list[str]:
    examples = ",\n".join(f"  {_quoted(line)}" for line in rule.examples)
    return [f"id = {_quoted(rule.id)}", f"pattern = {_quoted(rule.pattern)}", f"examples = [\n{examples},\n]"]


def _quoted(text: str) -> str:
    # a string of JSON is a basic string of TOML, but for the delete character
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


TIMES = 5
"""Proposals that are asked for."""


class PatternVote(NamedTuple):
    """The pattern that most proposals mean, and the proposals that were refused."""

    pattern: str
    """The shortest of the largest group; empty when no group has the majority."""
    votes: int
    """How many proposals mean the same as it."""
    asked: int
    refused: tuple[tuple[str, str], ...]
    """Proposals that were not counted, with why."""


class ScriptedWriter:
    """A `RuleWriter` that proposes what it was told, in turn, and then begins anew."""

    def __init__(self, proposals: Iterable[str], name: str = "scripted") -> None:
        self.name = name
        self.questions: list[tuple[str, ...]] = []
        """The lines of each question."""
        self._proposals = tuple(proposals)

    def propose(self, lines: Sequence[str]) -> str:
        """Return the next scripted proposal."""
        self.questions.append(tuple(lines))
        return self._proposals[(len(self.questions) - 1) % len(self._proposals)]


def voted(
    propose: Callable[[Sequence[str]], str], lines: Sequence[str], other_lines: Sequence[str] = (), *, times: int = TIMES
) -> PatternVote:
    """Ask several times for a pattern of some lines and return the one that more than half of the answers mean.

    A pattern that is unsafe, or does not match one of the lines, has no vote; nothing unsafe is ever run.

    Args:
        propose: Is asked; `propose` of a `RuleWriter`.
        lines: That a pattern is wanted for.
        other_lines: Lines that should not match; they tell proposals apart.
        times: How often.
    """
    groups: Mapping[frozenset[int], list[str]] = defaultdict(list)
    refused: list[tuple[str, str]] = []
    for _ in range(times):
        pattern = ended(propose(lines).strip())
        try:
            shape_of(pattern)
            covered = _covered(pattern, [*lines, *other_lines])
        except (RefusedPattern, ContentError) as error:
            refused.append((pattern, str(error)))
            continue
        if set(range(len(lines))) <= covered:
            groups[covered].append(pattern)
        else:
            refused.append((pattern, "it does not match all lines that it was asked for"))
    best = max(groups.values(), key=lambda group: (len(group), -min(map(len, group))), default=[])
    agreed = 2 * len(best) > times
    return PatternVote(min(best, key=lambda pattern: (len(pattern), pattern)) if agreed else "", len(best), times, tuple(refused))


def ended(pattern: str) -> str:
    """Return a pattern whose bare `$` at the end is `(?:$)`, so that alarm words still count."""
    return f"{pattern[:-1]}(?:$)" if pattern.endswith("$") and not pattern.endswith(r"\$") else pattern


def _covered(pattern: str, lines: Sequence[str]) -> frozenset[int]:
    marked_pattern = linear_pattern(f"^{MARKS}{pattern[1:]}" if pattern.startswith("^") else pattern, multiline=False)
    return frozenset(number for number, line in enumerate(lines) if holds(marked_pattern, line))


LETTERS = 4
"""Letters that a filter must ask for."""
MOST_OTHER_LINES = 3
"""Routine lines of other programs that a filter may match by chance."""
_DULL = ("", " ", "ok", "...", "hello world", "0", "12 34", "a=b", "loss nan", "lm loss: nan | grad norm: inf", "nan", "Terminated")


@dataclass(frozen=True)
class Ground:
    """Patterns and lines that a learned filter is checked against."""

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
    reason = f"{found_flaws[0].why}: {head_of(found_flaws[0].line, 200)!r}" if found_flaws[0].line else found_flaws[0].why
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
