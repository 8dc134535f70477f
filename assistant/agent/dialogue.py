"""What was said before, as far as the next question may point back to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from assistant.agent.answer import Source
from assistant.agent.chooser import intents
from assistant.agent.entities import Names
from assistant.agent.turn import Asked, Turn

_AND = re.compile(r"^(?:and|also|or|what about|how about|now|same for|the same for|then)\b", re.IGNORECASE)
_WHY = re.compile(r"^(?:but |and )?(?:why|how come|what for|because of what|the reason)\s*[?!.]*$", re.IGNORECASE)
_SHOW = re.compile(
    r"^(?:show|open|print|expand)\s+(?:source\s+|me\s+)?\[?(\d{1,3})\]?\s*(?:in full|whole|fully)?[.!]?$", re.IGNORECASE
)
_SAME = {
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
_CHOSEN = re.compile(
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
    sources: tuple[Source, ...] = ()
    """Of the last answer, for `show 1`."""
    subject: str = ""
    """What the last answer was about: `job`, `node` or `incident`."""
    listed: tuple[str, ...] = ()
    """Rows of the last list, for `the second one`."""
    listed_kind: str = ""

    def after(self, turn: Turn, lines: Sequence[str]) -> Dialogue:
        """Return the state when a question was answered.

        Args:
            turn: In which it was.
            lines: Of the answer.
        """
        asked, told = turn.asked, tuple(dict.fromkeys(turn.incidents))
        kind = _LISTS.get(asked.intent, "")
        rows = tuple(_rows(lines, kind, turn)) if kind else ()
        alone = {kind: rows[0]} if len(rows) == 1 else {}
        incident = asked.incident if asked.incident is not None else told[0] if len(told) == 1 else self.incident
        about = turn.known.incidents.get(asked.incident, "") if asked.incident is not None else ""
        jobs = (asked.job, asked.other_job, about, alone.get("job", ""), *self.jobs)
        nodes = asked.nodes or tuple(_blamed(turn)) or tuple(filter(None, [alone.get("node")])) or self.nodes
        subject = next((name for name in (*intents()[asked.intent].needs, *intents()[asked.intent].takes) if _has(asked, name)), "")
        return Dialogue(
            asked.intent,
            tuple(dict.fromkeys(filter(None, jobs)))[:5],
            nodes,
            incident,
            sources=tuple(turn.sources),
            subject=subject or next(iter(alone), "") or self.subject,
            listed=rows or self.listed,
            listed_kind=kind if rows else self.listed_kind,
        )


def _has(asked: Asked, kind: str) -> bool:
    return {"job": bool(asked.job), "node": bool(asked.nodes), "incident": asked.incident is not None}.get(kind, False)


def _rows(lines: Sequence[str], kind: str, turn: Turn) -> Iterator[str]:
    """Yield what an answer lists, in its order."""
    there = {"job": turn.known.jobs, "node": turn.known.nodes, "incident": [str(one) for one in turn.known.incidents]}[kind]
    for line in "\n".join(lines).splitlines():
        found = _ROW.match(line)
        if found and found.group(1) in there:
            yield found.group(1)


def _blamed(turn: Turn) -> Iterator[str]:
    """Yield the nodes to which a diagnosis of this answer gives the blame: names that a rule or a test found."""
    for source in turn.sources:
        if source.tool in ("explain_job", "show_incident") and isinstance(source.value, Mapping):
            told = source.value.get("diagnosis") or source.value
            for one in told.get("nodes") or ():
                if isinstance(one, Mapping) and one.get("node") in turn.known.nodes:
                    yield str(one["node"])


def shown_source(question: str) -> int | None:
    """Return the number of the source that is asked for whole; None when something else is asked."""
    found = _SHOW.match(question)
    return int(found.group(1)) if found else None


def chosen(question: str, before: Dialogue) -> str:
    """Return the reading that somebody takes when asked which of two is meant; else the question as it is."""
    found = _CHOSEN.fullmatch(question) if before.options else None
    if found is None:
        return question
    place = 0 if (found.group(1) or found.group(2)).lower() in _FIRST else 1
    return before.options[place] if place < len(before.options) else question


def follow_up(question: str, names: Names, before: Dialogue) -> str | None:
    """Return the intent that a short follow-up means, None for a question of its own.

    Args:
        question: As from `question_of`.
        names: What it names.
        before: What was said.
    """
    if _WHY.match(question):
        return _why(before)
    named = "job" if names.jobs else "node" if names.nodes else "incident" if names.incidents or names.numbers else ""
    rest = re.sub(r"\{\w+\}|\W+", " ", names.masked).split()
    bare = not [word for word in rest if word.lower() not in _NOTHING]
    if bare and names.terms and not named:
        return "meaning"
    if not named or not (bare or (_AND.match(question) and len(rest) <= 4)):
        return None
    if before.pending:
        return before.pending
    if bare and len(names.jobs) > 1:
        return "compare_jobs"
    if not before.intent:
        return _ABOUT[named] if bare else None
    last = intents().get(before.intent)
    if last is not None and named in (*last.needs, *last.takes):
        return before.intent
    return _SAME.get((before.intent, named), _ABOUT[named])


def _why(before: Dialogue) -> str | None:
    if before.intent in ("bad_nodes", "failed_jobs", "overview") and len(before.listed) > 1:
        # of several things that a list names, the list itself says why
        return before.intent
    if before.intent in ("node_state", "bad_nodes", "check_node", "node_history") and before.nodes:
        return "node_history" if before.intent == "node_state" else "node_state"
    if before.intent in ("explain_incident", "incidents") and before.incident is not None:
        return "explain_incident"
    if before.jobs:
        return "explain_job"
    return "explain_incident" if before.incident is not None else None


def completed(asked: Asked, names: Names, before: Dialogue) -> Asked:
    """Return what is asked with the names that the question leaves out, from what was said before."""
    job = asked.job or (before.jobs[0] if before.jobs and not names.jobs and not names.strangers else "")
    nodes = asked.nodes or (before.nodes if not names.strangers else ())
    incident = asked.incident if asked.incident is not None or names.strangers else before.incident
    return replace(asked, job=job, nodes=nodes, incident=incident)
