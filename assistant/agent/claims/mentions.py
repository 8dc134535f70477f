"""The things that a typed sentence names, in any of the languages, each with its place: what is said of which one.

A sentence is masked: `{j0}`, `{n1}`, `{a2}`, `{i3}`, `{k4}` stand for a job, a node, an approval, an incident and a number that
only a record of an incident may know; `{u5}` is an account.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from assistant.agent.descriptions import take_description
from assistant.agent.words import NameInventory, Names

MOST_CHARACTERS = 400
"""Of a sentence that is read here; a longer one is a log."""
_APPROVAL = re.compile(
    r"(?:\b(?:approvals?|requests?|proposals?|freigaben?|genehmigung|antrag|vorschlag|anfrage)|审批|批准|申请|提议)"
    r"\s{0,3}(?:no\.?|nr\.?|number|nummer|id|号)?\s{0,3}#?(?P<number>\d{1,6})(?![\w-])",
    re.IGNORECASE | re.ASCII,
)
_INCIDENT = re.compile(
    r"(?:\b(?:incidents?|vorfall|vorfälle|fall)|事件|故障单)\s{0,3}(?:no\.?|nr\.?|number|nummer)?\s{0,3}#?(?P<number>\d{1,6})(?![\w-])",
    re.IGNORECASE | re.ASCII,
)
_NODE_NUMBER = re.compile(
    r"(?:\b(?:nodes?|host|machine|knoten|rechner|maschine)|节点|机器)\s{1,3}#?0{0,3}(?P<number>\d{1,4})(?![\w.-])",
    re.IGNORECASE | re.ASCII,
)
_TOKEN = re.compile(r"(?<![{\w.:/-])[A-Za-z0-9][\w.-]*(?![\w}]|:\d)", re.ASCII)
_ACCOUNT = re.compile(r"(?<![{\w-])(?P<word>[A-Za-z][\w.-]*)(?:'s|')?(?![\w-])", re.ASCII)
_PARTS = re.compile(r"[,;:!?.]+(?=\s|$|[^\w]|[\u3400-\u9fff])|[，。；：！？、…]+|\s[-–—]+\s")
_SLOT = re.compile(r"\{([a-z])(\d+)\}")
JOB, NODE, APPROVAL, INCIDENT, KNOWN_ELSEWHERE, USER = "jnaiku"


@dataclass(frozen=True)
class MentionedNames:
    """A sentence with its names masked."""

    text: str
    """In small letters, with slots."""
    names: tuple[tuple[str, str], ...]
    """Kind and name of each slot, by its number."""
    described: bool = False
    """Whether a job was described and not named."""

    def of_kind(self, kind: str, text: str | None = None) -> tuple[str, ...]:
        """Return the names of a kind in a part of the text, in its order; in all of it where no part is given."""
        slots = _SLOT.findall(self.text if text is None else text)
        return tuple(dict.fromkeys(self.names[int(number)][1] for letter, number in slots if letter == kind))

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs that are named."""
        return self.of_kind(JOB)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that are named."""
        return self.of_kind(NODE)

    def as_names(self) -> Names:
        """Return the names as the tellers take them."""
        return Names(
            jobs=self.jobs,
            nodes=self.nodes,
            incidents=tuple(map(int, self.of_kind(INCIDENT))),
            approvals=tuple(map(int, self.of_kind(APPROVAL))),
            users=self.of_kind(USER),
            masked=self.text,
            sketch=self.text,
        )


def mentioned(sentence: str, inventory: NameInventory) -> MentionedNames | None:
    """Return a sentence with its names masked; None where it is too long or names a set of nodes.

    Args:
        sentence: As it was typed.
        inventory: What exists.
    """
    if len(sentence) > MOST_CHARACTERS or "[" in re.sub(r"\[rank\d+\]", "", sentence):
        return None
    names: list[tuple[str, str]] = []

    def slot(kind: str, name: str) -> str:
        names.append((kind, name))
        return f" {{{kind}{len(names) - 1}}} "

    text = sentence.replace("\u2019", "'").replace("\u2018", "'")
    text = _APPROVAL.sub(lambda match: slot(APPROVAL, str(int(match["number"]))), text)
    text = _INCIDENT.sub(lambda match: slot(INCIDENT, str(int(match["number"]))), text)
    nodes = {node.lower(): node for node in inventory.nodes}
    job_of = {name.lower(): job for job, name in inventory.jobs.items() if len(name) > 2}
    accounts = {user.lower(): user for user in inventory.users}
    lengths = {len(job) for job in inventory.jobs if job.isdecimal()}
    text = _NODE_NUMBER.sub(lambda match: _numbered(match, inventory.nodes, slot), text)

    def token(match: re.Match[str]) -> str:
        word = match.group().rstrip(".-_")
        tail, plain = match.group()[len(word) :], word.lower()
        if plain in nodes:
            return slot(NODE, nodes[plain]) + tail
        if word in inventory.jobs:
            return slot(JOB, word) + tail
        if plain in job_of:
            return slot(JOB, job_of[plain]) + tail
        return slot(KNOWN_ELSEWHERE, word) + tail if word.isdecimal() and len(word) in lengths else match.group()

    def account(match: re.Match[str]) -> str:
        user = accounts.get(match["word"].lower()) or accounts.get(match["word"].lower().removesuffix("s"))
        return slot(USER, user) if user else match.group()

    text = _TOKEN.sub(token, text)
    described = False
    if not any(kind in (JOB, NODE, APPROVAL) for kind, _ in names):
        plain, jobs = take_description(text, inventory.jobs, inventory.owners)
        if len(jobs) == 1:
            described, text = True, plain.replace("{job}", slot(JOB, jobs[0]), 1)
    text = _ACCOUNT.sub(account, text)
    return MentionedNames(" ".join(text.lower().split()), tuple(names), described)


def _numbered(match: re.Match[str], nodes: Sequence[str], slot: Callable[[str, str], str]) -> str:
    number = int(match["number"])
    fitting = [node for node in nodes if (tail := re.search(r"(?<!\d)\d+$", node)) and int(tail.group()) == number]
    return slot(NODE, fitting[0]) if len(fitting) == 1 else match.group()


def clauses_of(text: str) -> Sequence[str]:
    """Return the clauses of a masked sentence, parted at signs of punctuation and dashes."""
    return [part.strip() for part in _PARTS.split(text) if part.strip()]
