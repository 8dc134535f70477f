"""What a question points back to: `it`, `its log`, `the second one`, `the one before`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from assistant.agent.dialogue import Dialogue
from assistant.agent.entities import Names
from assistant.agent.inventory import Inventory

SHORT = 6
"""Words of a question that may leave out what it is about."""
LEFT_OUT = 0.85
"""How a reading counts where no word points back."""
OTHER = 0.6
"""How one counts that takes `it` for something else than what was spoken of last."""
_KINDS = {
    "job": r"job|run|training|task",
    "node": r"node|machine|host|server",
    "incident": r"incident|case|ticket",
}
_IT = re.compile(
    r"\b(?:(its|their|his)|(?:the|this|that) (job|run|training|task|node|machine|host|server|incident|case|ticket)(?!s)"
    r"|this one|that one|it|that|this|them|they|those|these|there|he|she)\b",
    re.IGNORECASE,
)
_NTH = re.compile(
    r"\b(?:the )?(first|second|third|fourth|fifth|last|1st|2nd|3rd|4th|5th|top|newest|oldest|other)"
    r"(?: (?:one|job|run|node|machine|incident|case|entry|row|failure|of (?:them|those|these)))\b"
    r"|\bthe (first|second|third|fourth|fifth|last)(?=\s*[?.!]*$)",
    re.IGNORECASE,
)
_PLACES = {"first": 0, "1st": 0, "top": 0, "newest": 0, "second": 1, "2nd": 1, "other": 1, "third": 2, "3rd": 2, "fourth": 3}
_PLACES |= {"4th": 3, "fifth": 4, "5th": 4, "last": -1, "oldest": -1}
_BEFORE = re.compile(
    r"\b(?:the )?(?:one|job|run|incident|case|attempt) (?:right |just )?(?:before|prior|preceding)"
    r"(?: (?:it|that|this|to it|to that))?\b"
    r"|\bthe (?:previous|preceding|prior|former) (?:one|job|run|incident|case|attempt)\b|\bprevious one\b",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"\b(?:the )?(?:one|job|run|incident|case) after(?: (?:it|that|this))?\b|\bthe next (?:one|job|run|incident)\b", re.I
)


def pointed(names: Names, before: Dialogue, known: Inventory) -> Names:
    """Return the names with what `the second one` and `the one before` stand for.

    Args:
        names: Of the question.
        before: What was said.
        known: What exists.
    """
    if _named(names):
        return names
    for pattern, step in ((_NTH, 0), (_BEFORE, -1), (_AFTER, 1)):
        found = pattern.search(names.masked)
        if found is None:
            continue
        kind, name = _neighbour(step, before, known) if step else _nth(found, before)
        if name:
            masked = f"{names.masked[: found.start()]}{{{kind}}}{names.masked[found.end() :]}"
            return _with(names, kind, name, masked)
    return names


def variants(names: Names, before: Dialogue) -> Iterator[tuple[str, float]]:
    """Yield the question with what was spoken of in the place of what points back, and how much each reading counts."""
    if _named(names) or names.strangers:
        return
    found = _IT.search(names.masked)
    for number, kind in enumerate(_spoken_of(before)):
        counts = 1.0 if number == 0 else OTHER
        if found is None:
            if len(names.masked.split()) <= SHORT:
                yield f"{names.masked.rstrip('?!. ')} {{{kind}}}{'?' if '?' in names.masked else ''}", counts * LEFT_OUT
            continue
        noun = found.group(2)
        if noun and not re.fullmatch(_KINDS[kind], noun, re.IGNORECASE):
            continue
        slot = f"{{{kind}}}" + ("'s" if found.group(1) else "")
        yield f"{names.masked[: found.start()]}{slot}{names.masked[found.end() :]}", counts


def _named(names: Names) -> bool:
    return bool(names.jobs or names.nodes or names.incidents or names.numbers)


def _spoken_of(before: Dialogue) -> list[str]:
    """Return the kinds of things that were spoken of, the last first."""
    there = {"job": bool(before.jobs), "node": bool(before.nodes), "incident": before.incident is not None}
    return sorted((kind for kind, is_there in there.items() if is_there), key=lambda kind: kind != before.subject)


def _nth(found: re.Match[str], before: Dialogue) -> tuple[str, str]:
    place = _PLACES[(found.group(1) or found.group(2)).lower()]
    rows = before.listed
    return before.listed_kind, rows[place] if rows and -len(rows) <= place < len(rows) else ""


def _neighbour(step: int, before: Dialogue, known: Inventory) -> tuple[str, str]:
    """Return what comes before or after what was spoken of: of jobs one with the same name, where there is one."""
    if before.subject == "incident" and before.incident is not None:
        return "incident", _beside([str(number) for number in sorted(known.incidents)], str(before.incident), step)
    if before.subject == "node" and before.nodes:
        return "node", _beside(list(known.nodes), before.nodes[0], step)
    if not before.jobs:
        return "", ""
    job = before.jobs[0]
    same = [one for one, name in known.jobs.items() if name == known.jobs.get(job)]
    return "job", _beside(same, job, step) or _beside(list(known.jobs), job, step)


def _beside(rows: list[str], name: str, step: int) -> str:
    place = rows.index(name) + step if name in rows else -1
    return rows[place] if 0 <= place < len(rows) else ""


def _with(names: Names, kind: str, name: str, masked: str) -> Names:
    if kind == "incident":
        return replace(names, incidents=(int(name),), masked=masked)
    if kind == "node":
        return replace(names, nodes=(name,), masked=masked)
    return replace(names, jobs=(name,), masked=masked)
