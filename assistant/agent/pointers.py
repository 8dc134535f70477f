"""What a question points back to: `it`, `its log`, `the second one`, `the one before` stand for names that were spoken of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from assistant.agent.dialogue import Dialogue
from assistant.agent.restart_wishes import begins_before
from assistant.agent.words import NameInventory, Names

SHORT = 6
"""Words of a question that may leave out what it is about."""
LEFT_OUT = 0.85
"""How a reading counts where no word points back."""
OTHER_WEIGHT = 0.6
"""How one counts that takes `it` for something else than what was spoken of last."""
_KINDS = {
    "job": r"job|run|training|task",
    "node": r"node|machine|host|server",
    "incident": r"incident|case|ticket",
}
_PRONOUN = re.compile(
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
_PRECEDING = re.compile(
    r"\b(?:the )?(?:one|job|run|incident|case|attempt) (?:right |just )?(?:before|prior|preceding)"
    r"(?: (?:it|that|this|to it|to that))?\b"
    r"|\bthe (?:previous|preceding|prior|former) (?:one|job|run|incident|case|attempt)\b|\bprevious one\b",
    re.IGNORECASE,
)
_FOLLOWING = re.compile(
    r"\b(?:the )?(?:one|job|run|incident|case) after(?: (?:it|that|this))?\b|\bthe next (?:one|job|run|incident)\b", re.I
)


def resolve_pointers(names: Names, dialogue: Dialogue, inventory: NameInventory) -> Names:
    """Return the names with what `the second one` and `the one before` stand for.

    Args:
        names: Of the question.
        dialogue: What was said.
        inventory: What exists.
    """
    if _has_names(names) or begins_before(names.sketch):
        return names
    for pattern, step in ((_NTH, 0), (_PRECEDING, -1), (_FOLLOWING, 1)):
        match = pattern.search(names.masked)
        if match is None:
            continue
        kind, name = _neighbour(step, dialogue, inventory) if step else _nth(match, dialogue)
        if name:
            masked = f"{names.masked[: match.start()]}{{{kind}}}{names.masked[match.end() :]}"
            return _with(names, kind, name, masked)
    return names


def variants(names: Names, dialogue: Dialogue) -> Iterator[tuple[str, float]]:
    """Yield the question with what was spoken of in the place of what points back, and how much each reading counts."""
    if _has_names(names) or names.strangers:
        return
    match = _PRONOUN.search(names.masked)
    for number, kind in enumerate(_spoken_of(dialogue)):
        counts = 1.0 if number == 0 else OTHER_WEIGHT
        if match is None:
            if len(names.masked.split()) <= SHORT:
                yield f"{names.masked.rstrip('?!. ')} {{{kind}}}{'?' if '?' in names.masked else ''}", counts * LEFT_OUT
            continue
        noun = match.group(2)
        if noun and not re.fullmatch(_KINDS[kind], noun, re.IGNORECASE):
            continue
        slot = f"{{{kind}}}" + ("'s" if match.group(1) else "")
        yield f"{names.masked[: match.start()]}{slot}{names.masked[match.end() :]}", counts


def _has_names(names: Names) -> bool:
    return bool(names.jobs or names.nodes or names.incidents or names.numbers)


def _spoken_of(dialogue: Dialogue) -> list[str]:
    """Return the kinds of things that were spoken of, the last first."""
    presence = {"job": bool(dialogue.jobs), "node": bool(dialogue.nodes), "incident": dialogue.incident is not None}
    return sorted((kind for kind, is_there in presence.items() if is_there), key=lambda kind: kind != dialogue.subject)


def _nth(match: re.Match[str], dialogue: Dialogue) -> tuple[str, str]:
    place = _PLACES[(match.group(1) or match.group(2)).lower()]
    rows = dialogue.listed
    return dialogue.listed_kind, rows[place] if rows and -len(rows) <= place < len(rows) else ""


def _neighbour(step: int, dialogue: Dialogue, inventory: NameInventory) -> tuple[str, str]:
    """Return what comes before or after what was spoken of: of jobs one with the same name, where there is one."""
    if dialogue.subject == "incident" and dialogue.incident is not None:
        return "incident", _at_step([str(number) for number in sorted(inventory.incidents)], str(dialogue.incident), step)
    if dialogue.subject == "node" and dialogue.nodes:
        return "node", _at_step(list(inventory.nodes), dialogue.nodes[0], step)
    if not dialogue.jobs:
        return "", ""
    job = dialogue.jobs[0]
    namesakes = [candidate for candidate, name in inventory.jobs.items() if name == inventory.jobs.get(job)]
    return "job", _at_step(namesakes, job, step) or _at_step(list(inventory.jobs), job, step)


def _at_step(rows: list[str], name: str, step: int) -> str:
    place = rows.index(name) + step if name in rows else -1
    return rows[place] if 0 <= place < len(rows) else ""


def _with(names: Names, kind: str, name: str, masked: str) -> Names:
    if kind == "incident":
        return replace(names, incidents=(int(name),), masked=masked)
    if kind == "node":
        return replace(names, nodes=(name,), masked=masked)
    return replace(names, jobs=(name,), masked=masked)
