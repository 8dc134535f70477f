"""A question as the rules of this folder read it, what they return, and how the record of a thing is told in a few words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from assistant.agent.answer import one_line
from assistant.agent.chooser import spelling
from assistant.agent.dialogue import Dialogue, QuestionTurn
from assistant.agent.plain_english import plain_text
from assistant.agent.tell_aspects import title
from assistant.agent.words import NameInventory, Names
from assistant.nodeset import fold

Row = Mapping[str, Any]
_SHORT = (
    (re.compile(r"\bwho'?s (?=fault|problem|mistake|job|jobs|doing)"), "whose "),
    (re.compile(r"\bwho'?s\b"), "who is"),
    (re.compile(r"\b(what|how|where|when)'?s\b"), r"\1 is"),
    (re.compile(r"\bu\b"), "you"),
    (re.compile(r"\bur\b"), "your"),
    (re.compile(r"\br(?= you\b)"), "are"),
    (re.compile(r"\b(?:pls|plz|please|lol|btw|hm+)\b"), " "),
    (re.compile(r"\brn\b"), "right now"),
    (re.compile(r"\b(why|tell me|if|and) its\b"), r"\1 it is"),
    (re.compile(r"\bim\b"), "i am"),
)
_GREETING = re.compile(
    r"^\W*(?:(?:hi|hey|hello|ok|okay|so|and|but|well|then|now|also|just|oh|ah|nvm|right|good|alright)\b[\s,.!:]*)+"
)


class OutrightReading(NamedTuple):
    """What a question asks for outright, and how that is told."""

    tell: Callable[[QuestionTurn], Iterator[str]]
    """Yields the lines, that which answers first; no line where the records do not bear it."""
    intent: str
    """For what is spoken of next."""
    job: str = ""
    nodes: tuple[str, ...] = ()
    topic: str = ""
    """`approval`, `outage` or `node`: what `since when` would be about next; empty where the intent says it."""


@dataclass(frozen=True)
class OutrightSentence:
    """A question while it is read."""

    words: str
    """In English, with its names."""
    text: str
    """In small letters, with `{jb}`, `{nd}` for names, and contractions whole."""
    names: Names
    dialogue: Dialogue
    inventory: NameInventory
    now: datetime

    def says(self, pattern: re.Pattern[str] | str) -> bool:
        """Tell whether its text matches a pattern."""
        return re.search(pattern, self.text) is not None

    @property
    def bare(self) -> str:
        """Its text without greeting, `and`, stops."""
        return _GREETING.sub("", self.text).strip(" ?!.,")

    @property
    def names_nothing(self) -> bool:
        """Whether no job, node, incident or approval stands in it."""
        names = self.names
        return not (names.jobs or names.nodes or names.incidents or names.numbers or names.candidates or names.strangers)

    @property
    def job(self) -> str:
        """The job that it names, else the one that was spoken of last where that was no node."""
        if self.names.jobs:
            return self.names.jobs[0]
        if self.names.nodes or self.names.strangers or self.dialogue.subject == "node":
            return ""
        return next(iter(self.dialogue.jobs), "")

    @property
    def node(self) -> str:
        """The node that it names, else the one that was spoken of last."""
        if self.names.nodes:
            return self.names.nodes[0]
        if self.names.jobs or self.names.strangers or self.dialogue.subject != "node":
            return ""
        return next(iter(self.dialogue.nodes), "")

    @property
    def of_approval(self) -> bool:
        """Whether a change that waits was spoken of last."""
        return self.dialogue.topic == "approval" or self.dialogue.intent in ("approvals", "approve")


def outright_sentence(words: str, names: Names, dialogue: Dialogue, inventory: NameInventory, now: datetime) -> OutrightSentence:
    """Return a question for the rules to read."""
    text = plain_text(names.sketch)
    for pattern, plain in _SHORT:
        text = pattern.sub(plain, text)
    text = spelling().mended(" ".join(text.split())).lower().replace("{job}", "{jb}").replace("{node}", "{nd}")
    return OutrightSentence(words, text, names, dialogue, inventory, now)


def job_text(row: Row) -> str:
    """Return a job in a few words: `4821 (llm-7b, alice)`."""
    return f"{row['job']} ({one_line(row['name'], 40)}, {row['user']})"


def cause_text(incident: Row | None) -> str:
    """Return why a job failed, by its incident: `ECC error on node07`; empty where none says so."""
    if incident is None or not incident["reason"]:
        return ""
    on = f" on {fold(incident['nodes_to_blame'])}" if incident["nodes_to_blame"] else ""
    return f"{title(incident['reason'])}{on}"


def incidents_by_job(turn: QuestionTurn) -> tuple[Mapping[str, Row], str]:
    """Return the newest incident of each job, and the mark of the source."""
    listed = turn.look("list_incidents", limit=400)
    return {str(row["job"]): row for row in reversed(listed.value or ()) if row["job"]}, f"[{listed.number}]"


def blaming_incidents(turn: QuestionTurn, node: str) -> tuple[list[Row], str]:
    """Return the incidents that blame a node, the newest first, and the mark of the source."""
    listed = turn.look("list_incidents", limit=400)
    rows = [row for row in listed.value or () if node in row["nodes_to_blame"] or row["node"] == node]
    return rows, f"[{listed.number}]"


def blame_text(rows: Sequence[Row]) -> str:
    """Return what incidents say of the node that they blame: `2 incidents blame it (ECC error: 2026-03-01 02:00, …)`."""
    times = ", ".join(f"{datetime.fromisoformat(row['opened']):%Y-%m-%d %H:%M}" for row in rows[:4])
    count = f"{len(rows)} incident{'' if len(rows) == 1 else 's'} {'blames' if len(rows) == 1 else 'blame'}"
    return f"{count} it ({title(rows[0]['reason'])}: {times} UTC)"


def node_row(turn: QuestionTurn, node: str) -> tuple[Row | None, str]:
    """Return the record of a node, and the mark of the source."""
    listed = turn.look("node_states", nodes=[node])
    return (listed.value[0] if not listed.error and listed.value else None), f"[{listed.number}]"
