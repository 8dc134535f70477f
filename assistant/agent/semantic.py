"""The agent without a language model: the sentence chooses what is asked, names that exist fill it in, templates answer.

Whether a sentence is an order or a question excludes what it cannot ask for, whatever its meaning seems to be.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from assistant.agent.answer import Answer, AnswerKind, AnswerSource, Listener, cut_text, one_line, question_of
from assistant.agent.chooser import IntentChoice, QuestionIntent, ToolChooser, WordChooser, intents, spelling
from assistant.agent.dialogue import (
    Dialogue,
    QuestionRequest,
    QuestionTurn,
    choose_option,
    completed,
    follow_up,
    resolve_pointers,
    shown_source,
    variants,
)
from assistant.agent.languages.sentence import known_names, read_sentence
from assistant.agent.tellers import READINGS, TELLERS, RecoveringTurn, Recovery, tell_unknown
from assistant.agent.words import NameInventory, Names, read_inventory, read_names
from assistant.errors import ConfigError
from assistant.gate import Gate
from assistant.ports import Clock
from assistant.private_files import open_private, private_folder

MODE = "semantic"
SURE = 0.42
"""Below this share of the best reading, and with a second one near, the answer says what else could have been meant."""
FAIR = 0.2
"""Below this it asks back: a wrong answer to a question costs a look, and the right one came first far more often."""
LEAST = 0.08
"""Below this nothing was understood."""
SURE_OF_CHANGE = 0.5
ORDERED = 0.15
"""Share of the readings that ask for a change, from which on a model may propose one."""
_SAYS_LITTLE = frozenset({"approve", "out_of_scope"})
"""Where words that nothing knows end up: never offered, and taken only when it is sure."""
NEAR = 0.4
"""How near the second reading must be; a lonely one is taken, but for a change."""
NOT_UNDERSTOOD = "I did not understand that. I know the jobs, nodes, logs, checkpoints and incidents of this cluster; ask: help"
NO_RULE_LIFTED = (
    "No words lift the rules: the policy is in mode {mode}, only the site's policy file changes that, and a person answers "
    "requests with nightshift approve or deny. Nothing was done. Ask for one thing by its name, or: which mode are you in"
)
MOST_SHOWN = 60_000


class SemanticAgent:
    """Answers questions one after the other."""

    def __init__(
        self,
        gate: Gate,
        clock: Clock,
        chooser: ToolChooser | None = None,
        *,
        recovery: Recovery | None = None,
        talks: Path | None = None,
        thread: str = "",
    ) -> None:
        """Begin, or go on with, a conversation.

        Args:
            gate: Every call goes through it.
            clock: For `today`.
            chooser: What chooses the tool; by words where none is given.
            recovery: Works the playbook of a job; without it only single changes are proposed.
            talks: File in which conversations are kept; None keeps nothing.
            thread: Which conversation it is.
        """
        self._recovery, self._talks, self._thread = recovery, talks, thread
        self._gate, self._clock = gate, clock
        self._chooser = chooser or _by_words()
        self._intents = intents()
        self._spelling = spelling()
        self.state = recall(talks, thread) if talks is not None else Dialogue()

    def ask(self, question: str, *, trusted: bool = True, listener: Listener | None = None) -> Answer:
        """Answer a question.

        Args:
            question: As somebody wrote it.
            trusted: Whether a person typed it; for piped text nothing is proposed.
            listener: Is told of each reading call when it was made.

        Raises:
            InputError: It is empty or too long.
        """
        dialogue = self.state
        reading = read_sentence(question_of(question), lambda: known_names(read_inventory(self._gate)))
        answer = reading.refusal(MODE) or reading.remarked(
            self._answer(choose_option(reading.english, dialogue), trusted=trusted, listener=listener)
        )
        if self._talks is not None and self.state is not dialogue:
            keep(self._talks, self._thread, self.state)
        return answer

    def _answer(self, words: str, *, trusted: bool, listener: Listener | None) -> Answer:
        number = shown_source(words)
        if number is not None and self.state.sources:
            return self._source(number)
        if lifts_rules(words):
            return Answer(NO_RULE_LIFTED.format(mode=self._gate.policy.mode), AnswerKind.REFUSED, MODE, "refused")
        inventory = read_inventory(self._gate)
        names = resolve_pointers(read_names(words, inventory), self.state, inventory)
        intent = follow_up(words, names, self.state)
        choices = [IntentChoice(intent, 1.0)] if intent else self._choices(names)
        request = _filled(
            QuestionRequest(choices[0].intent, words, names, confidence=choices[0].probability), self.state, self._intents
        )
        turn = RecoveringTurn(
            self._gate, inventory, request, self._clock.now(), trusted, listener=listener, recovery=self._recovery
        )
        back = self._asks_back(request, choices, inventory)
        if back is not None:
            self.state = replace(self.state, pending=request.intent if back.options[:1] != ("help",) else "", options=back.options)
            return back
        if listener is not None:
            listener("")
        lines = list(_lines(turn))
        lines += _else_meant(request, choices) if turn.kind is AnswerKind.ANSWER else ()
        self.state = self.state.advance(turn, lines)
        return Answer(
            "\n".join(lines),
            turn.kind,
            MODE,
            request.intent,
            round(request.confidence, 3),
            tuple(turn.sources),
            tuple(dict.fromkeys(turn.evidence)),
            tuple(dict.fromkeys(turn.incidents)),
            tuple(turn.proposals),
            notes=tuple(note for note in inventory.unknown if note.partition(": ")[2] not in "\n".join(lines)),
        )

    def orders(self, names: Names) -> bool:
        """Tell whether a question may ask for a change, by its own words."""
        wishes = CHANGING | {"plan", "approve"}
        return sum(choice.probability for choice in self._choices(names) if choice.intent in wishes) >= ORDERED

    def _choices(self, names: Names) -> Sequence[IntentChoice]:
        """Return the readings; who asks whether a node is back does not ask to put it back."""
        readings, out = self._readings(names), excluded_intents(names.masked)
        remaining = [choice for choice in readings if choice.intent not in out]
        total, remaining_share = sum(choice.probability for choice in readings), sum(choice.probability for choice in remaining)
        return (
            [
                IntentChoice(choice.intent, min(1.0, choice.probability * total / max(remaining_share, LEAST)))
                for choice in remaining
            ]
            if out
            else readings
        )

    def _readings(self, names: Names) -> Sequence[IntentChoice]:
        """Return the readings of all that words stand for: a bare number is a job or an incident, `it` what was spoken of."""
        plain = self._spelling.mended(names.masked)
        ways = [(plain.replace("{number}", slot), 1.0) for slot in ("{job}", "{incident}")] if names.numbers else [(plain, 1.0)]
        ways += [(self._spelling.mended(sentence), counts) for sentence, counts in variants(names, self.state)]
        best: dict[str, float] = {}
        for sentence, counts in ways:
            for name, probability in self._chooser.choose(sentence):
                best[name] = max(best.get(name, 0.0), probability * counts)
        return [IntentChoice(name, best[name]) for name in sorted(best, key=lambda name: -best[name])]

    def _asks_back(self, request: QuestionRequest, choices: Sequence[IntentChoice], inventory: NameInventory) -> Answer | None:
        first, second = choices[0], choices[1] if len(choices) > 1 else IntentChoice("help", 0.0)
        if first.probability < (SURE if first.intent in _SAYS_LITTLE else LEAST):
            return Answer(NOT_UNDERSTOOD, AnswerKind.UNKNOWN, MODE, "out_of_scope", round(request.confidence, 3), options=("help",))
        least = SURE_OF_CHANGE if request.intent in CHANGING else FAIR
        lonely = request.intent not in CHANGING and second.probability <= first.probability * NEAR
        if first.probability < least and not lonely:
            changes = CHANGING if first.probability < SURE else frozenset()
            offered = [choice.intent for choice in choices if choice.intent not in _SAYS_LITTLE | changes]
            options = tuple(_reading(intent, request) for intent in offered[:2])
            return _back(request, f"Did you mean: {options[0]}? Or: {options[1]}?", options)
        return _missing(request, self._intents[request.intent], inventory)

    def _source(self, number: int) -> Answer:
        cited = next((source for source in self.state.sources if source.number == number), None)
        if cited is None:
            numbers = ", ".join(str(source.number) for source in self.state.sources)
            return Answer(f"The last answer has no source {number}; it has {numbers}.", AnswerKind.UNKNOWN, MODE, "show")
        text = cited.value if isinstance(cited.value, str) else _pretty(cited.value)
        body = cut_text(cited.error or text, MOST_SHOWN)
        return Answer(f"[{number}] {cited.call}\n{body}", AnswerKind.ANSWER, MODE, "show", sources=(cited,))


@cache
def _by_words() -> WordChooser:
    return WordChooser.load()


def _lines(turn: QuestionTurn) -> Iterator[str]:
    strangers = turn.request.names.strangers
    needs = intents()[turn.request.intent].needs
    lacks = ("job" in needs and not turn.request.job) or ("node" in needs and not turn.request.nodes)
    lacks = lacks or ("incident" in needs and turn.request.incident is None)
    if needs.count("job") > 1:
        lacks = lacks or not turn.request.other_job
    if strangers and (lacks or turn.request.intent in CHANGING or turn.request.intent in ("plan", "seen_before", "node_history")):
        for stranger in strangers:
            yield from tell_unknown(turn, stranger)
        return
    for stranger in strangers:
        yield f"(Left out: {stranger}.)"
    yield from TELLERS[turn.request.intent](turn)


def _else_meant(request: QuestionRequest, choices: Sequence[IntentChoice]) -> Iterator[str]:
    """Say what else could have been meant, where that is near."""
    alternatives = [choice for choice in choices[1:] if choice.intent not in _SAYS_LITTLE | CHANGING]
    if choices[0].probability < SURE and alternatives and alternatives[0].probability > choices[0].probability * NEAR:
        nearest = _reading(alternatives[0].intent, request)
        yield f"(I took this for: {_reading(request.intent, request)}. If not, ask for instance: {nearest})"


def _filled(request: QuestionRequest, dialogue: Dialogue, intents_by_name: Mapping[str, QuestionIntent]) -> QuestionRequest:
    """Return what is asked with its names; a bare number goes where the intent needs one."""
    names, intent = request.names, intents_by_name[request.intent]
    jobs, incidents = list(names.jobs), list(names.incidents)
    for number in names.numbers:
        if "job" in intent.needs and len(jobs) < intent.needs.count("job"):
            jobs.append(number)
        else:
            incidents.append(int(number))
    filled = replace(
        request,
        job=jobs[0] if jobs else "",
        other_job=jobs[1] if len(jobs) > 1 else "",
        nodes=names.nodes,
        incident=incidents[0] if incidents else None,
    )
    if intent.needs.count("job") > 1 and len(jobs) == 1 and dialogue.jobs:
        return replace(filled, other_job=next((job for job in dialogue.jobs if job != jobs[0]), ""))
    kinds = {*intent.needs, *intent.takes}
    if not kinds or (intent.takes and (filled.job or filled.incident is not None or filled.nodes)):
        return filled
    if request.intent in ("incidents", "node_history", "meaning") and not _points_back(request.question):
        return filled
    added = completed(filled, names, dialogue)
    if request.intent in ("plan", "seen_before") and not filled.job and dialogue.intent in ("explain_incident", "incidents"):
        return replace(filled, incident=added.incident)
    return replace(
        filled,
        job=added.job if "job" in kinds else filled.job,
        nodes=added.nodes if "node" in kinds else filled.nodes,
        incident=added.incident if "incident" in kinds and not ("job" in kinds and added.job) else filled.incident,
    )


def _points_back(question: str) -> bool:
    return bool(re.search(r"\b(?:it|its|that|this|there|them|those)\b", question.lower()))


def _missing(request: QuestionRequest, intent: QuestionIntent, inventory: NameInventory) -> Answer | None:
    """Return the question for a name that is missing, None when all is there."""
    if request.names.strangers:
        return None
    if request.intent in ("plan", "seen_before") and not request.job and request.incident is None:
        return _back(request, f"Which job or incident?{_some_jobs(inventory)}", tuple(list(inventory.jobs)[-3:]))
    if "job" in intent.needs and not request.job:
        return _back(request, f"Which job?{_some_jobs(inventory)}", tuple(list(inventory.jobs)[-3:]))
    if intent.needs.count("job") > 1 and not request.other_job:
        return _back(request, f"Job {request.job} and which other one?{_some_jobs(inventory)}", tuple(list(inventory.jobs)[-3:]))
    if "node" in intent.needs and not request.nodes:
        hint = f" For instance {inventory.nodes[0]}." if inventory.nodes else " The scheduler names no nodes."
        return _back(request, f"Which node?{hint}", inventory.nodes[:3])
    if "incident" in intent.needs and request.incident is None:
        hint = f" The newest is {max(inventory.incidents)}." if inventory.incidents else " There are none yet."
        return _back(request, f"Which incident?{hint}", tuple(str(number) for number in sorted(inventory.incidents)[-3:]))
    return None


def _some_jobs(inventory: NameInventory) -> str:
    newest = list(inventory.jobs.items())[-3:]
    return (
        f" The newest: {', '.join(f'{job} ({one_line(name, 30)})' for job, name in newest)}."
        if newest
        else " The scheduler knows none."
    )


def _back(request: QuestionRequest, text: str, options: tuple[str, ...]) -> Answer:
    return Answer(text, AnswerKind.ASKS_BACK, MODE, request.intent, round(request.confidence, 3), options=options)


def _reading(intent: str, request: QuestionRequest) -> str:
    job = request.job or (request.names.numbers[0] if request.names.numbers else "JOB")
    node = request.nodes[0] if request.nodes else "NODE"
    incident = request.incident if request.incident is not None else "ID"
    return READINGS[intent].replace("{job}", job).replace("{node}", node).replace("{incident}", str(incident))


def _pretty(value: object) -> str:
    import json

    return json.dumps(value, ensure_ascii=False, indent=2)


# Conversations without a language model that outlive the process: what was spoken of, in the file of those with one.

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
    rows = {name: tuple(record[name]) for name in ("jobs", "nodes", "options", "listed")}
    sources = tuple(AnswerSource(**source) for source in record["sources"])
    return Dialogue(**{**record, **rows, "sources": sources})


CHANGING = frozenset({"recover", "cordon", "uncordon", "cancel"})
"""Intents that propose a change."""


_GREETS = r"(?:(?:please|pls|ok|okay|so|and|but|now|hi|hey|hello|also|then|well|just|sorry)\b[ ,.!]*)*"


_ASKS = re.compile(
    rf"{_GREETS}(?:(?:since|by|under|for|from|at|on|in|to|of|with|until|till|through) )?"
    r"(?:is|are|was|were|did|does|has|have|had|why|how|which|what|who|when|where|whose|whom"
    r"|do (?:i|we|you|they|the)|am i|(?:can|may|must|should|shall) (?:i|we))\b",
    re.IGNORECASE,
)


_POLITE = r"(?:(?:can|could|would|will) (?:you|we|somebody|someone)\b|would you mind|how about)"


_ORDERS = re.compile(
    rf"{_GREETS}(?:{_POLITE}|(?!(?:any|all|no|still|already)\b)\w+ (?:\w+ )?"
    r"(?:the |job |node |on )*(?:\{\w+\}|(?:it|this|that)\b)(?!\s+\w+ing))",
    re.IGNORECASE,
)
"""`restart 4821?` may be an order; `node07 again??` and `restart step for 4821?` are none."""


_RESTARTS = re.compile(
    rf"{_GREETS}(?:(?:can|could|would|will) you (?:please |kindly )?|let us |let's |i (?:want|need|would like) (?:you )?(?:to )?)?"
    r"(?:(?:re-?)?(?:start|run|launch|submit|queue|sume|cover|vive|try)|continue|bring|kick|get|put) (?:up |off )?(?:the )?"
    r"(?:job |run |training )?\{job\}(?!'s)",
    re.IGNORECASE,
)
"""An order that may name a checkpoint, and asks for none."""


_CHECKPOINTS = frozenset({"checkpoints", "newest_checkpoint", "plan"})


_RULE_WORDS = (
    r"(?:rules?|instructions?|polic(?:y|ies)|limits?|limitations?|restrictions?|guidelines?|safeguards?|safety|guard ?rails?"
    r"|prompts?|approvals?|permissions?)"
)


_LIFTS = re.compile(
    rf"\b(?:ignore|forget|disregard|bypass|circumvent|override|overrule|suspend|drop|skip)\b (?:\w+ ){{0,3}}{_RULE_WORDS}\b"
    rf"|\b(?:no|without) (?:any )?(?:more )?(?:rules|restrictions|limits|safeguards)\b.{0, 200}\b(?:apply|now|any ?more|for you)\b"
    r"|\byou(?: are|'re|r) (?:now |hereby |from now on )*(?:in (?:the )?)?(?:act|acting|admin|root|god|developer|debug|unrestricted"
    r"|unlimited|autonomous|jailbroken?|dan)\b(?: mode)?"
    r"|\b(?:enter|switch (?:yourself )?(?:in)?to|go (?:in)?to|change (?:in)?to) (?:act|admin|root|god|developer|free) mode\b"
    r"|^\W*(?:system|admin|administrator|root|developer)(?: (?:message|prompt|override|note|notice))?\s*[:>\]]",
    re.IGNORECASE,
)
"""Words that would take a rule away, or claim to speak with more authority than who asks has."""


def lifts_rules(sentence: str) -> bool:
    """Tell whether a sentence tries to talk the rules away; who asks about them does not."""
    return bool(_LIFTS.search(sentence)) and not _ASKS.match(sentence)


def excluded_intents(sentence: str) -> frozenset[str]:
    """Return the intents that a sentence cannot have: who asks whether a node is back does not ask to put it back.

    Args:
        sentence: With `{job}`, `{node}` in place of names.
    """
    marked = sentence.rstrip().endswith("?")
    if _ASKS.match(sentence) or (marked and not _ORDERS.match(sentence)):
        return CHANGING | {"approve"} if marked else CHANGING
    return _CHECKPOINTS if _RESTARTS.match(sentence) else frozenset()
