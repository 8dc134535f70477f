"""The agent without a language model: the sentence chooses what is asked, names that exist fill it in, templates answer."""

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

from assistant.agent import tell_about
from assistant.agent.answer import Answer, Heard, Kind, Source
from assistant.agent.chooser import Choice, Intent, ToolChooser, WordChooser, intents, spelling
from assistant.agent.coreference import pointed, variants
from assistant.agent.dialogue import Dialogue, chosen, completed, follow_up, shown_source
from assistant.agent.entities import Names, read_names
from assistant.agent.inventory import Inventory, inventory
from assistant.agent.speech_act import CHANGING, barred, lifting
from assistant.agent.tell_changes import RecoveringTurn, Recovery
from assistant.agent.tellers import READINGS, TELLERS
from assistant.agent.turn import Asked, Turn
from assistant.agent.wording import cut, one_line, question_of
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

    def ask(self, question: str, *, trusted: bool = True, heard: Heard | None = None) -> Answer:
        """Answer a question.

        Args:
            question: As somebody wrote it.
            trusted: Whether a person typed it; for piped text nothing is proposed.
            heard: Is told of each reading call when it was made.

        Raises:
            InputError: It is empty or too long.
        """
        before = self.state
        answer = self._answer(chosen(question_of(question), before), trusted=trusted, heard=heard)
        if self._talks is not None and self.state is not before:
            keep(self._talks, self._thread, self.state)
        return answer

    def _answer(self, words: str, *, trusted: bool, heard: Heard | None) -> Answer:
        wanted = shown_source(words)
        if wanted is not None and self.state.sources:
            return self._source(wanted)
        if lifting(words):
            return Answer(NO_RULE_LIFTED.format(mode=self._gate.policy.mode), Kind.REFUSED, MODE, "refused")
        known = inventory(self._gate)
        names = pointed(read_names(words, known), self.state, known)
        meant = follow_up(words, names, self.state)
        choices = [Choice(meant, 1.0)] if meant else self._choices(names)
        asked = _filled(Asked(choices[0].intent, words, names, confidence=choices[0].probability), self.state, self._intents)
        turn = RecoveringTurn(self._gate, known, asked, self._clock.now(), trusted, heard=heard, recovery=self._recovery)
        back = self._asks_back(asked, choices, known)
        if back is not None:
            self.state = replace(self.state, pending=asked.intent if back.options[:1] != ("help",) else "", options=back.options)
            return back
        if heard is not None:
            heard("")
        lines = list(_lines(turn))
        lines += _else_meant(asked, choices) if turn.kind is Kind.ANSWER else ()
        self.state = self.state.after(turn, lines)
        return Answer(
            "\n".join(lines),
            turn.kind,
            MODE,
            asked.intent,
            round(asked.confidence, 3),
            tuple(turn.sources),
            tuple(dict.fromkeys(turn.evidence)),
            tuple(dict.fromkeys(turn.incidents)),
            tuple(turn.proposals),
            notes=tuple(note for note in known.unknown if note.partition(": ")[2] not in "\n".join(lines)),
        )

    def orders(self, names: Names) -> bool:
        """Tell whether a question may ask for a change, by its own words."""
        wishes = CHANGING | {"plan", "approve"}
        return sum(choice.probability for choice in self._choices(names) if choice.intent in wishes) >= ORDERED

    def _choices(self, names: Names) -> Sequence[Choice]:
        """Return the readings; who asks whether a node is back does not ask to put it back."""
        found, out = self._readings(names), barred(names.masked)
        left = [choice for choice in found if choice.intent not in out]
        total, kept = sum(choice.probability for choice in found), sum(choice.probability for choice in left)
        return [Choice(one.intent, min(1.0, one.probability * total / max(kept, LEAST))) for one in left] if out else found

    def _readings(self, names: Names) -> Sequence[Choice]:
        """Return the readings of all that words stand for: a bare number is a job or an incident, `it` what was spoken of."""
        plain = self._spelling.mended(names.masked)
        ways = [(plain.replace("{number}", slot), 1.0) for slot in ("{job}", "{incident}")] if names.numbers else [(plain, 1.0)]
        ways += [(self._spelling.mended(said), counts) for said, counts in variants(names, self.state)]
        best: dict[str, float] = {}
        for said, counts in ways:
            for name, probability in self._chooser.choose(said):
                best[name] = max(best.get(name, 0.0), probability * counts)
        return [Choice(name, best[name]) for name in sorted(best, key=lambda name: -best[name])]

    def _asks_back(self, asked: Asked, choices: Sequence[Choice], known: Inventory) -> Answer | None:
        first, second = choices[0], choices[1] if len(choices) > 1 else Choice("help", 0.0)
        if first.probability < (SURE if first.intent in _SAYS_LITTLE else LEAST):
            return Answer(NOT_UNDERSTOOD, Kind.UNKNOWN, MODE, "out_of_scope", round(asked.confidence, 3), options=("help",))
        least = SURE_OF_CHANGE if asked.intent in CHANGING else FAIR
        lonely = asked.intent not in CHANGING and second.probability <= first.probability * NEAR
        if first.probability < least and not lonely:
            changes = CHANGING if first.probability < SURE else frozenset()
            offered = [choice.intent for choice in choices if choice.intent not in _SAYS_LITTLE | changes]
            options = tuple(_reading(intent, asked) for intent in offered[:2])
            return _back(asked, f"Did you mean: {options[0]}? Or: {options[1]}?", options)
        return _missing(asked, self._intents[asked.intent], known)

    def _source(self, number: int) -> Answer:
        found = next((source for source in self.state.sources if source.number == number), None)
        if found is None:
            numbers = ", ".join(str(source.number) for source in self.state.sources)
            return Answer(f"The last answer has no source {number}; it has {numbers}.", Kind.UNKNOWN, MODE, "show")
        text = found.value if isinstance(found.value, str) else _pretty(found.value)
        body = cut(found.error or text, MOST_SHOWN)
        return Answer(f"[{number}] {found.call}\n{body}", Kind.ANSWER, MODE, "show", sources=(found,))


@cache
def _by_words() -> WordChooser:
    return WordChooser.load()


def _lines(turn: Turn) -> Iterator[str]:
    strangers = turn.asked.names.strangers
    needs = intents()[turn.asked.intent].needs
    lacks = ("job" in needs and not turn.asked.job) or ("node" in needs and not turn.asked.nodes)
    lacks = lacks or ("incident" in needs and turn.asked.incident is None)
    if needs.count("job") > 1:
        lacks = lacks or not turn.asked.other_job
    if strangers and (lacks or turn.asked.intent in CHANGING or turn.asked.intent in ("plan", "seen_before", "node_history")):
        for stranger in strangers:
            yield from tell_about.broken(turn, stranger)
        return
    for stranger in strangers:
        yield f"(Left out: {stranger}.)"
    yield from TELLERS[turn.asked.intent](turn)


def _else_meant(asked: Asked, choices: Sequence[Choice]) -> Iterator[str]:
    """Say what else could have been meant, where that is near."""
    others = [choice for choice in choices[1:] if choice.intent not in _SAYS_LITTLE | CHANGING]
    if choices[0].probability < SURE and others and others[0].probability > choices[0].probability * NEAR:
        yield f"(I took this for: {_reading(asked.intent, asked)}. If not, ask for instance: {_reading(others[0].intent, asked)})"


def _filled(asked: Asked, before: Dialogue, known: Mapping[str, Intent]) -> Asked:
    """Return what is asked with its names; a bare number goes where the intent needs one."""
    names, intent = asked.names, known[asked.intent]
    jobs, incidents = list(names.jobs), list(names.incidents)
    for number in names.numbers:
        if "job" in intent.needs and len(jobs) < intent.needs.count("job"):
            jobs.append(number)
        else:
            incidents.append(int(number))
    filled = replace(
        asked,
        job=jobs[0] if jobs else "",
        other_job=jobs[1] if len(jobs) > 1 else "",
        nodes=names.nodes,
        incident=incidents[0] if incidents else None,
    )
    if intent.needs.count("job") > 1 and len(jobs) == 1 and before.jobs:
        return replace(filled, other_job=next((job for job in before.jobs if job != jobs[0]), ""))
    kinds = {*intent.needs, *intent.takes}
    if not kinds or (intent.takes and (filled.job or filled.incident is not None or filled.nodes)):
        return filled
    if asked.intent in ("incidents", "node_history", "meaning") and not _points_back(asked.question):
        return filled
    added = completed(filled, names, before)
    if asked.intent in ("plan", "seen_before") and not filled.job and before.intent in ("explain_incident", "incidents"):
        return replace(filled, incident=added.incident)
    return replace(
        filled,
        job=added.job if "job" in kinds else filled.job,
        nodes=added.nodes if "node" in kinds else filled.nodes,
        incident=added.incident if "incident" in kinds and not ("job" in kinds and added.job) else filled.incident,
    )


def _points_back(question: str) -> bool:
    return bool(re.search(r"\b(?:it|its|that|this|there|them|those)\b", question.lower()))


def _missing(asked: Asked, intent: Intent, known: Inventory) -> Answer | None:
    """Return the question for a name that is missing, None when all is there."""
    if asked.names.strangers:
        return None
    if asked.intent in ("plan", "seen_before") and not asked.job and asked.incident is None:
        return _back(asked, f"Which job or incident?{_some_jobs(known)}", tuple(list(known.jobs)[-3:]))
    if "job" in intent.needs and not asked.job:
        return _back(asked, f"Which job?{_some_jobs(known)}", tuple(list(known.jobs)[-3:]))
    if intent.needs.count("job") > 1 and not asked.other_job:
        return _back(asked, f"Job {asked.job} and which other one?{_some_jobs(known)}", tuple(list(known.jobs)[-3:]))
    if "node" in intent.needs and not asked.nodes:
        some = f" For instance {known.nodes[0]}." if known.nodes else " The scheduler names no nodes."
        return _back(asked, f"Which node?{some}", known.nodes[:3])
    if "incident" in intent.needs and asked.incident is None:
        some = f" The newest is {max(known.incidents)}." if known.incidents else " There are none yet."
        return _back(asked, f"Which incident?{some}", tuple(str(number) for number in sorted(known.incidents)[-3:]))
    return None


def _some_jobs(known: Inventory) -> str:
    newest = list(known.jobs.items())[-3:]
    return (
        f" The newest: {', '.join(f'{job} ({one_line(name, 30)})' for job, name in newest)}."
        if newest
        else " The scheduler knows none."
    )


def _back(asked: Asked, text: str, options: tuple[str, ...]) -> Answer:
    return Answer(text, Kind.ASKS_BACK, MODE, asked.intent, round(asked.confidence, 3), options=options)


def _reading(intent: str, asked: Asked) -> str:
    job = asked.job or (asked.names.numbers[0] if asked.names.numbers else "JOB")
    node = asked.nodes[0] if asked.nodes else "NODE"
    incident = asked.incident if asked.incident is not None else "ID"
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
        return _read(json.loads(row[0])) if row is not None else Dialogue()
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
            file.execute("INSERT OR REPLACE INTO spoken VALUES (?, ?, ?)", [thread, turn, json.dumps(_written(state))])
            file.execute("DELETE FROM spoken WHERE turn <= ?", [turn - KEPT_TALKS])
    except (sqlite3.Error, OSError, ConfigError) as error:
        logger.warning("this conversation is not kept in %s: %s", path, error)


def _written(state: Dialogue) -> dict[str, Any]:
    told = asdict(state)
    left = MOST_KEPT
    for source in told["sources"]:
        left -= len(json.dumps(source["value"], default=str))
        if left < 0:
            source["value"], source["error"] = None, "it was too long to be kept; ask again to see it"
    return told


def _read(told: dict[str, Any]) -> Dialogue:
    rows = {name: tuple(told[name]) for name in ("jobs", "nodes", "options", "listed")}
    sources = tuple(Source(**source) for source in told["sources"])
    return Dialogue(**{**told, **rows, "sources": sources})
