"""What was said before, and what a question points back to: `it`, `its log`, `the second one`, `the one before`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from assistant.agent.answer import AnswerSource
from assistant.agent.chooser import intents
from assistant.agent.entities import NameInventory, Names
from assistant.agent.turn import QuestionRequest, QuestionTurn

_AND = re.compile(r"^(?:and|also|or|what about|how about|now|same for|the same for|then)\b", re.IGNORECASE)
_WHY = re.compile(r"^(?:but |and )?(?:why|how come|what for|because of what|the reason)\s*[?!.]*$", re.IGNORECASE)
_SHOW = re.compile(
    r"^(?:show|open|print|expand)\s+(?:source\s+|me\s+)?\[?(\d{1,3})\]?\s*(?:in full|whole|fully)?[.!]?$", re.IGNORECASE
)
_INTENT_BY_KIND = {
    ("seen_before", "node"): "node_history",
    ("show_log", "node"): "kernel_log",
    ("kernel_log", "job"): "show_log",
    ("explain_incident", "job"): "explain_job",
    ("failed_jobs", "job"): "explain_job",
    ("incidents", "job"): "explain_job",
    ("overview", "job"): "explain_job",
}
"""What a question about one kind of thing becomes when the next names another."""
_NOTHING = frozenset("job run node incident inc case the and or for please pls user what about hi hey ok so now".split())
"""Words beside a name that ask for nothing by themselves."""
_ABOUT = {"job": "job_status", "node": "node_state", "incident": "explain_incident"}
_LISTS = {
    "failed_jobs": "job",
    "list_jobs": "job",
    "incidents": "incident",
    "overview": "incident",
    "seen_before": "incident",
    "bad_nodes": "node",
    "node_history": "node",
}
_ROW = re.compile(r"\s*(?:Node |node )?(\S+)\s")
_OPTION = re.compile(
    r"(?:(?:the )?(first|former|1|a|yes|yes please|yep|second|latter|other|2|b)(?: one)?|i meant the (first|second))\s*[.!?]*$",
    re.I,
)
_FIRST = frozenset({"first", "former", "1", "a", "yes", "yes please", "yep"})


@dataclass(frozen=True)
class Dialogue:
    """The state between two questions."""

    intent: str = ""
    jobs: tuple[str, ...] = ()
    """Newest first."""
    nodes: tuple[str, ...] = ()
    incident: int | None = None
    pending: str = ""
    """An intent that waits for a name: the last answer asked for it."""
    options: tuple[str, ...] = ()
    """Readings between which the last answer asked."""
    sources: tuple[AnswerSource, ...] = ()
    """Of the last answer, for `show 1`."""
    subject: str = ""
    """What the last answer was about: `job`, `node` or `incident`."""
    listed: tuple[str, ...] = ()
    """Rows of the last list, for `the second one`."""
    listed_kind: str = ""

    def advance(self, turn: QuestionTurn, lines: Sequence[str]) -> Dialogue:
        """Return the state when a question was answered.

        Args:
            turn: In which it was.
            lines: Of the answer.
        """
        request, incidents = turn.request, tuple(dict.fromkeys(turn.incidents))
        kind = _LISTS.get(request.intent, "")
        rows = tuple(_rows(lines, kind, turn)) if kind else ()
        alone = {kind: rows[0]} if len(rows) == 1 else {}
        incident = request.incident if request.incident is not None else incidents[0] if len(incidents) == 1 else self.incident
        about = turn.inventory.incidents.get(request.incident, "") if request.incident is not None else ""
        jobs = (request.job, request.other_job, about, alone.get("job", ""), *self.jobs)
        nodes = request.nodes or tuple(_blamed(turn)) or tuple(filter(None, [alone.get("node")])) or self.nodes
        subject = next(
            (name for name in (*intents()[request.intent].needs, *intents()[request.intent].takes) if _has(request, name)), ""
        )
        return Dialogue(
            request.intent,
            tuple(dict.fromkeys(filter(None, jobs)))[:5],
            nodes,
            incident,
            sources=tuple(turn.sources),
            subject=subject or next(iter(alone), "") or self.subject,
            listed=rows or self.listed,
            listed_kind=kind if rows else self.listed_kind,
        )


def _has(request: QuestionRequest, kind: str) -> bool:
    return {"job": bool(request.job), "node": bool(request.nodes), "incident": request.incident is not None}.get(kind, False)


def _rows(lines: Sequence[str], kind: str, turn: QuestionTurn) -> Iterator[str]:
    """Yield what an answer lists, in its order."""
    names = {
        "job": turn.inventory.jobs,
        "node": turn.inventory.nodes,
        "incident": [str(number) for number in turn.inventory.incidents],
    }[kind]
    for line in "\n".join(lines).splitlines():
        match = _ROW.match(line)
        if match and match.group(1) in names:
            yield match.group(1)


def _blamed(turn: QuestionTurn) -> Iterator[str]:
    """Yield the nodes to which a diagnosis of this answer gives the blame: names that a rule or a test found."""
    for source in turn.sources:
        if source.tool in ("explain_job", "show_incident") and isinstance(source.value, Mapping):
            diagnosis = source.value.get("diagnosis") or source.value
            for node in diagnosis.get("nodes") or ():
                if isinstance(node, Mapping) and node.get("node") in turn.inventory.nodes:
                    yield str(node["node"])


def shown_source(question: str) -> int | None:
    """Return the number of the source that is asked for whole; None when something else is asked."""
    match = _SHOW.match(question)
    return int(match.group(1)) if match else None


def choose_option(question: str, dialogue: Dialogue) -> str:
    """Return the reading that somebody takes when asked which of two is meant; else the question as it is."""
    match = _OPTION.fullmatch(question) if dialogue.options else None
    if match is None:
        return question
    place = 0 if (match.group(1) or match.group(2)).lower() in _FIRST else 1
    return dialogue.options[place] if place < len(dialogue.options) else question


def follow_up(question: str, names: Names, dialogue: Dialogue) -> str | None:
    """Return the intent that a short follow-up means, None for a question of its own.

    Args:
        question: As from `question_of`.
        names: What it names.
        dialogue: What was said.
    """
    if _WHY.match(question):
        return _why(dialogue)
    kind = "job" if names.jobs else "node" if names.nodes else "incident" if names.incidents or names.numbers else ""
    words = re.sub(r"\{\w+\}|\W+", " ", names.masked).split()
    bare = not [word for word in words if word.lower() not in _NOTHING]
    if bare and names.terms and not kind:
        return "meaning"
    if not kind or not (bare or (_AND.match(question) and len(words) <= 4)):
        return None
    if dialogue.pending:
        return dialogue.pending
    if bare and len(names.jobs) > 1:
        return "compare_jobs"
    if not dialogue.intent:
        return _ABOUT[kind] if bare else None
    last = intents().get(dialogue.intent)
    if last is not None and kind in (*last.needs, *last.takes):
        return dialogue.intent
    return _INTENT_BY_KIND.get((dialogue.intent, kind), _ABOUT[kind])


def _why(dialogue: Dialogue) -> str | None:
    if dialogue.intent in ("bad_nodes", "failed_jobs", "overview") and len(dialogue.listed) > 1:
        # of several things that a list names, the list itself says why
        return dialogue.intent
    if dialogue.intent in ("node_state", "bad_nodes", "check_node", "node_history") and dialogue.nodes:
        return "node_history" if dialogue.intent == "node_state" else "node_state"
    if dialogue.intent in ("explain_incident", "incidents") and dialogue.incident is not None:
        return "explain_incident"
    if dialogue.jobs:
        return "explain_job"
    return "explain_incident" if dialogue.incident is not None else None


def completed(request: QuestionRequest, names: Names, dialogue: Dialogue) -> QuestionRequest:
    """Return what is asked with the names that the question leaves out, from what was said before."""
    job = request.job or (dialogue.jobs[0] if dialogue.jobs and not names.jobs and not names.strangers else "")
    nodes = request.nodes or (dialogue.nodes if not names.strangers else ())
    incident = request.incident if request.incident is not None or names.strangers else dialogue.incident
    return replace(request, job=job, nodes=nodes, incident=incident)


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
    if _has_names(names):
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
