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
    r"|\bthe (first|second|third|fourth|fifth|last|other)(?=\s*[?.!]*$)",
    re.IGNORECASE,
)
_PLACES = {"first": 0, "1st": 0, "top": 0, "newest": 0, "second": 1, "2nd": 1, "other": 1, "third": 2, "3rd": 2, "fourth": 3}
_PLACES |= {"4th": 3, "fifth": 4, "5th": 4, "last": -1, "oldest": -1}
PRECEDING = re.compile(
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
    if begins_before(names.sketch):
        return names
    if not dialogue.pending and (match := _BARE_NUMBER.match(_plain_number(names))) is not None:
        return _numbered(names, match[1], dialogue, inventory)
    if _has_names(names):
        return names
    for pattern, step in ((_NTH, 0), (PRECEDING, -1), (_FOLLOWING, 1)):
        match = pattern.search(names.masked)
        if match is None:
            continue
        if step < 0 and dialogue.step is not None and dialogue.intent in _OF_STEPS:
            continue  # the checkpoint before, see `aspects`
        kind, name = _neighbour(step, dialogue, inventory) if step else _nth(match, dialogue, inventory)
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


_OF_STEPS = frozenset({"newest_checkpoint", "checkpoints", "recover"})
_BARE_NUMBER = re.compile(
    r"^\W*(?:(?:and|or|what about|how about|what of|same for|the same for|then|now|so|but|ok|also)\b[\s,]*)*(?:the "
    r"|number |no\.? |#)*"
    r"(\d{1,7})(?: (?:then|too|as well|also|one))*\W*$",
    re.IGNORECASE,
)


def _plain_number(names: Names) -> str:
    """Return a question with its only bare number in it, where nothing else is named."""
    if names.jobs or names.nodes or names.incidents or names.strangers or len(names.numbers) > 1:
        return ""
    return names.masked.replace("{number}", names.numbers[0]) if names.numbers else names.masked


def _numbered(names: Names, number: str, dialogue: Dialogue, inventory: NameInventory) -> Names:
    """Return the names of `and 11?`: the node, or the job, of that number where one of its kind was spoken of last."""
    if dialogue.subject == "node":
        fitting = [node for node in inventory.nodes if (tail := re.search(r"(\d+)$", node)) and int(tail[1]) == int(number)]
        kind = "node"
    elif dialogue.subject == "job" and len(number) > 1 and not names.numbers:
        fitting, kind = [job for job in inventory.jobs if job.endswith(number)], "job"
    else:
        return names
    if len(fitting) != 1:
        return names
    masked = re.sub(r"\{number\}|\d+", f"{{{kind}}}", names.masked, count=1)
    return _with(replace(names, numbers=(), sketch=masked), kind, fitting[0], masked)


def _nth(match: re.Match[str], dialogue: Dialogue, inventory: NameInventory) -> tuple[str, str]:
    word = (match.group(1) or match.group(2)).lower()
    place, rows = _PLACES[word], dialogue.listed
    if word == "other":
        return _remaining_row(dialogue, inventory)
    return dialogue.listed_kind, rows[place] if rows and -len(rows) <= place < len(rows) else ""


def _remaining_row(dialogue: Dialogue, inventory: NameInventory) -> tuple[str, str]:
    """Return what `the other one` is: of a list, or of what was spoken of, the one that the last answer was not about."""
    current = {*dialogue.jobs[:1], *dialogue.nodes} if dialogue.subject != "node" else {*dialogue.nodes}
    if dialogue.subject == "incident":
        current = {str(dialogue.incident)} | {inventory.incidents.get(dialogue.incident or 0, "")}
    if dialogue.listed_kind == "incident":
        remaining = [row for row in dialogue.listed if row not in current and inventory.incidents.get(int(row), "") not in current]
    else:
        remaining = [row for row in dialogue.listed if row not in current]
    if remaining and len(remaining) < len(dialogue.listed):
        return dialogue.listed_kind, remaining[0]
    if dialogue.subject == "node" and len(dialogue.nodes) == 2:
        return "node", dialogue.nodes[1]
    if dialogue.subject == "job" and len(dialogue.jobs) > 1:
        return "job", dialogue.jobs[1]
    return (dialogue.listed_kind, dialogue.listed[1]) if len(dialogue.listed) > 1 else ("", "")


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
