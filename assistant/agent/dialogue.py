"""A question in its conversation: the calls that are made for it, what is proposed, and what it points back to.

It points back by `it`, `its log`, `the second one`, `the one before`. What was spoken of outlives the process in the file of the
conversation, as with a language model.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from assistant.agent.answer import AnswerKind, AnswerSource, Listener, Proposal, harmless, one_line
from assistant.agent.chooser import intents
from assistant.agent.moods import CHANGING
from assistant.agent.proposals import BY, proposal_told, put_before_person
from assistant.agent.words import NameInventory, Names
from assistant.display import line
from assistant.errors import ConfigError, NightshiftError
from assistant.gate import Gate
from assistant.private_files import open_private, private_folder
from assistant.redact import head_of, redact, redact_value

MOST_VALUE = 400_000
"""Characters of one text that a source keeps."""


@dataclass(frozen=True, slots=True)
class QuestionRequest:
    """What a question came to mean."""

    intent: str
    question: str
    names: Names
    job: str = ""
    other_job: str = ""
    nodes: tuple[str, ...] = ()
    incident: int | None = None
    confidence: float = 1.0
    aspect: str = ""
    """What of the thing is asked for outright, see `aspects`; empty where the intent says it all."""
    form_text: str = ""
    """The sentence whose form the answer has: of a follow-up such as `and 11?` the one before it."""


@dataclass
class QuestionTurn:
    """Makes the calls for one question and keeps what they returned."""

    gate: Gate
    inventory: NameInventory
    request: QuestionRequest
    now: datetime
    trusted: bool = True
    """Whether the question was typed by a person; of piped text nothing is proposed."""
    sources: list[AnswerSource] = field(default_factory=list)
    proposals: list[Proposal] = field(default_factory=list)
    evidence: list[int] = field(default_factory=list)
    incidents: list[int] = field(default_factory=list)
    kind: AnswerKind = AnswerKind.ANSWER
    sources_before: int = 0
    """Sources that the conversation had already: numbers go on from there."""
    listener: Listener | None = None
    spoken_job: str = ""
    """The job that was spoken of last."""
    spoken_step: int | None = None
    """The step whose checkpoint was spoken of last."""
    listed: tuple[str, ...] = ()
    """Rows of the last list."""
    proposed: tuple[int, ...] = ()
    """Approvals of what this conversation proposed before."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """What the first sentence turned out to be about, `job` or `nodes`: it is what `it` stands for next."""
    step: int | None = None
    """The step whose checkpoint the answer is about."""

    @property
    def number(self) -> int:
        """The next source's."""
        return self.sources_before + len(self.sources) + 1

    def own_approvals(self) -> Sequence[int]:
        """Return the approvals that were asked for in this turn; those that waited before it are not among them."""
        numbers = (proposal.approval for proposal in self.proposals)
        return [number for number in numbers if number is not None and number not in self.inventory.approvals]

    def look(self, tool: str, **arguments: Any) -> AnswerSource:
        """Make a reading call and return it as a source; a failure is told by its `error`."""
        for source in self.sources:
            if (source.tool, dict(source.arguments)) == (tool, arguments):
                return source
        value, error = None, ""
        try:
            outcome = self.gate.call(tool, arguments, why=f"asked: {one_line(self.request.question, 120)}", by=BY)
            value, error = made_harmless(outcome.value) if outcome.ok else None, one_line(outcome.error, 400)
        except NightshiftError as failure:
            error = one_line(failure, 400)
        source = AnswerSource(self.number, tool, arguments, value, error)
        self.sources.append(source)
        if self.listener is not None:
            self.listener(source)
        return source

    def propose(
        self, tool: str, arguments: Mapping[str, Any], *, why: str, incident: int | None = None, instead: str = ""
    ) -> Proposal:
        """Put a change before a person, by the gate; it is never made by words alone.

        Args:
            tool: A changing tool.
            arguments: Every name among them comes from the inventory, a diagnosis or a test.
            why: For the approver.
            incident: For which it is.
            instead: The command with which a person does it.
        """
        proposal = put_before_person(self.gate, tool, arguments, why=why, incident=incident, instead=instead, trusted=self.trusted)
        if proposal.already:
            return proposal
        self.proposals.append(proposal)
        self.kind = AnswerKind.PROPOSAL if proposal.approval is not None else AnswerKind.REFUSED
        return proposal

    def propose_text(
        self, tool: str, arguments: Mapping[str, Any], *, why: str, incident: int | None = None, instead: str = ""
    ) -> str:
        """Put a change before a person, as `propose` does, and return how that is told."""
        return proposal_told(self.propose(tool, arguments, why=why, incident=incident, instead=instead))


def made_harmless(value: Any) -> Any:
    """Return a JSON value without secrets and without characters that deceive; very long texts are cut."""
    value = redact_value(value)
    return _harmless(value)


def _harmless(value: Any) -> Any:
    if isinstance(value, str):
        return harmless(head_of(value, MOST_VALUE))
    if isinstance(value, Mapping):
        return {line(key): line(redact(item)) if _is_name(key, item) else _harmless(item) for key, item in value.items()}
    return [_harmless(item) for item in value] if isinstance(value, (list, tuple)) else value


_NAMES = frozenset("by category comment file job name node note owner partition reason rule state title user why work_dir".split())
"""Keys of values that a teller puts into a sentence: a newline in one must not begin a line of the answer."""


def _is_name(key: object, value: object) -> bool:
    return key in _NAMES and isinstance(value, str) and len(value) <= MOST_VALUE


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
    approvals: tuple[int, ...] = ()
    """Changes that the last answer put before a person."""
    step: int | None = None
    """The step whose checkpoint was spoken of last."""
    sentence: str = ""
    """The last question with its names masked: `and 11?` asks the same of another thing."""
    aspect: str = ""
    """What it asked for outright."""
    proposed: tuple[int, ...] = ()
    """Approvals of changes that this conversation put before a person, oldest first; whoever else asked for them is not meant."""
    order: str = ""
    """The last words where they were an order or forbade something: what `I meant 4830` corrects."""
    question: str = ""
    """The last question as it was completed, in English with its names: what `and carol` asks of somebody else."""
    topic: str = ""
    """What an answer outright was about besides a job or a node: `approval`, `outage`."""
    about_change: str = ""
    """The last words that spoke of a change: what `if I do it anyway` is about."""

    def advance(self, turn: QuestionTurn, lines: Sequence[str]) -> Dialogue:
        """Return the state when a question was answered.

        Args:
            turn: In which it was.
            lines: Of the answer.
        """
        request, incidents = turn.request, tuple(dict.fromkeys(turn.incidents))
        kind = _LISTS.get(request.intent, "") if not request.aspect else ""
        rows = tuple(dict.fromkeys(_rows(lines, kind, turn))) if kind else ()
        alone = {kind: rows[0]} if len(rows) == 1 else {}
        incident = request.incident if request.incident is not None else incidents[0] if len(incidents) == 1 else self.incident
        about = turn.inventory.incidents.get(request.incident, "") if request.incident is not None else ""
        jobs = (turn.about.get("job", ""), request.job, request.other_job, about, alone.get("job", ""), *self.jobs)
        nodes = (
            turn.about.get("nodes", ())
            or request.nodes
            or tuple(_blamed(turn))
            or tuple(filter(None, [alone.get("node")]))
            or self.nodes
        )
        subject = next(
            (name for name in (*intents()[request.intent].needs, *intents()[request.intent].takes) if _has(request, name)), ""
        )
        subject = "job" if turn.about.get("job") else "node" if turn.about.get("nodes") else subject
        return Dialogue(
            request.intent,
            tuple(dict.fromkeys(filter(None, jobs)))[:5],
            nodes,
            incident,
            sources=tuple(turn.sources),
            subject=subject or next(iter(alone), "") or self.subject,
            listed=rows or self.listed,
            listed_kind=kind if rows else self.listed_kind,
            approvals=tuple(filter(None, (proposal.approval for proposal in turn.proposals))),
            step=_step_of(turn),
            sentence=request.form_text or request.names.sketch,
            aspect=request.aspect,
            proposed=tuple(dict.fromkeys([*self.proposed, *turn.own_approvals()])),
            order=request.question if request.intent in CHANGING else "",
            question=request.question,
            about_change=self.about_change,
        )

    def only_subject(self) -> Dialogue:
        """Return the state with nothing but what was spoken of last."""
        return Dialogue(
            jobs=self.jobs[:1] if self.subject == "job" else (),
            nodes=self.nodes if self.subject == "node" else (),
            incident=self.incident if self.subject == "incident" else None,
        )

    def spoken(self, request: QuestionRequest) -> Dialogue:
        """Return the state after an order that came to nothing: what it named is what `it` is next."""
        names = request.names
        jobs, nodes = names.jobs or tuple(filter(None, [request.job])), names.nodes or request.nodes
        incident = names.incidents[0] if names.incidents else request.incident
        subject = "job" if jobs else "node" if nodes else "incident" if incident is not None else self.subject
        return replace(
            self,
            jobs=tuple(dict.fromkeys([*jobs, *self.jobs]))[:5],
            nodes=nodes or self.nodes,
            incident=incident if incident is not None else self.incident,
            subject=subject,
            pending="",
            options=(),
            order=request.question,
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
    for row in "\n".join(lines).splitlines():
        match = _ROW.match(row)
        if match and match.group(1) in names:
            yield match.group(1)


def _step_of(turn: QuestionTurn) -> int | None:
    """Return the step whose checkpoint an answer is about: the one that it names, else the newest that may be loaded."""
    if turn.step is not None or turn.request.intent not in ("newest_checkpoint", "checkpoints", "recover"):
        return turn.step
    for source in turn.sources:
        if source.tool == "choose_checkpoint" and isinstance((source.value or {}).get("step"), int):
            return int(source.value["step"])
        if source.tool == "list_checkpoints":
            healthy = [row["step"] for row in (source.value or {}).get("checkpoints", ()) if row["healthy"]]
            return max(healthy, default=None)
    return None


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


logger = logging.getLogger(__name__)

KEPT_TALKS = 40
MOST_KEPT = 200_000
"""Characters of the sources of one conversation that are kept; what is longer is looked up again when it is asked for."""
_TABLE = "CREATE TABLE IF NOT EXISTS spoken (thread TEXT PRIMARY KEY, turn INTEGER NOT NULL, state TEXT NOT NULL)"


def recall(path: Path, thread: str) -> Dialogue:
    """Return what was spoken of in a conversation; nothing where there is none, or where it cannot be read any more."""
    if not path.exists():
        return Dialogue()
    try:
        with closing(sqlite3.connect(path, timeout=5.0)) as file:
            row = file.execute("SELECT state FROM spoken WHERE thread = ?", [thread]).fetchone()
        return _from_record(json.loads(row[0])) if row is not None else Dialogue()
    except (sqlite3.Error, ValueError, TypeError, KeyError):
        # a conversation is worth less than an answer
        return Dialogue()


def keep(path: Path, thread: str, state: Dialogue) -> None:
    """Keep what was spoken of; of all conversations the newest. Where it cannot be kept the answer was given all the same."""
    try:
        private_folder(path.parent)
        os.close(open_private(path, os.O_RDWR))
        with closing(sqlite3.connect(path, timeout=5.0)) as file, file:
            file.execute(_TABLE)
            turn = file.execute("SELECT coalesce(max(turn), 0) + 1 FROM spoken").fetchone()[0]
            file.execute("INSERT OR REPLACE INTO spoken VALUES (?, ?, ?)", [thread, turn, json.dumps(_to_record(state))])
            file.execute("DELETE FROM spoken WHERE turn <= ?", [turn - KEPT_TALKS])
    except (sqlite3.Error, OSError, ConfigError) as error:
        logger.warning("this conversation is not kept in %s: %s", path, error)


def _to_record(state: Dialogue) -> dict[str, Any]:
    record = asdict(state)
    room = MOST_KEPT
    for source in record["sources"]:
        room -= len(json.dumps(source["value"], default=str))
        if room < 0:
            source["value"], source["error"] = None, "it was too long to be kept; ask again to see it"
    return record


def _from_record(record: dict[str, Any]) -> Dialogue:
    rows: dict[str, Any] = {
        name: tuple(record[name]) for name in ("jobs", "nodes", "options", "listed", "approvals", "proposed") if name in record
    }
    sources = tuple(AnswerSource(**source) for source in record["sources"])
    fields: dict[str, Any] = {**record, **rows, "sources": sources}
    return Dialogue(**fields)
