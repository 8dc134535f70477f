"""What was said before, as far as the next question may point back to it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from assistant.agent.answer import Source
from assistant.agent.chooser import intents
from assistant.agent.naming import Names
from assistant.agent.turn import Asked

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
_ABOUT = {"job": "job_status", "node": "node_state", "incident": "explain_incident"}


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

    def after(self, asked: Asked, sources: tuple[Source, ...], incidents: tuple[int, ...]) -> Dialogue:
        """Return the state when a question was answered."""
        jobs = tuple(dict.fromkeys((*filter(None, (asked.job, asked.other_job)), *self.jobs)))[:5]
        incident = asked.incident if asked.incident is not None else incidents[0] if len(set(incidents)) == 1 else self.incident
        return Dialogue(asked.intent, jobs, asked.nodes or self.nodes, incident, sources=sources)


def shown_source(question: str) -> int | None:
    """Return the number of the source that is asked for whole; None when something else is asked."""
    found = _SHOW.match(question)
    return int(found.group(1)) if found else None


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
    bare = not [word for word in rest if word.lower() not in ("job", "node", "incident", "the", "and", "for", "please", "user")]
    if not named or not (bare or (_AND.match(question) and len(rest) <= 4)):
        return None
    if before.pending:
        return before.pending
    if not before.intent:
        return None
    last = intents().get(before.intent)
    if last is not None and named in (*last.needs, *last.takes):
        return before.intent
    return _SAME.get((before.intent, named), _ABOUT[named])


def _why(before: Dialogue) -> str | None:
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
