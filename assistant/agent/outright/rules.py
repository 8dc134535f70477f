"""The questions that are answered outright, by their words and the record: which rule reads them, and their answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from assistant.agent.answer import Answer, Listener
from assistant.agent.change_aspects import change_named
from assistant.agent.dialogue import Dialogue, QuestionRequest, QuestionTurn
from assistant.agent.outright.acts import read_acts
from assistant.agent.outright.approvals import read_approval, read_should_approve
from assistant.agent.outright.consequences import read_condition, read_consequence
from assistant.agent.outright.ellipses import completed_question
from assistant.agent.outright.events import read_newest_failure, read_window
from assistant.agent.outright.jobs import read_job
from assistant.agent.outright.nodes import read_gpu_of_job, read_node
from assistant.agent.outright.outage import read_outage
from assistant.agent.outright.people import read_person
from assistant.agent.outright.sentence import OutrightReading, OutrightSentence, outright_sentence
from assistant.agent.request_names import MODE
from assistant.agent.words import NameInventory, read_names
from assistant.gate import Gate

_RULES: tuple[Callable[[OutrightSentence], OutrightReading | None], ...] = (
    read_outage,
    read_condition,
    read_approval,
    read_consequence,
    read_acts,
    read_person,
    read_job,
    read_node,
    read_gpu_of_job,
    read_window,
    read_newest_failure,
    read_should_approve,
)


class OutrightAnswer(NamedTuple):
    """An answer with what is spoken of after it."""

    answer: Answer
    state: Dialogue


def spoken_before(words: str, dialogue: Dialogue, inventory: NameInventory) -> tuple[str, Dialogue]:
    """Return a follow-up as a question of its own, and the state with the change that it speaks of."""
    words = completed_question(words, dialogue, inventory)
    change = change_named(words.lower())
    return words, replace(dialogue, about_change=words.lower()) if change and change != "touch" else dialogue


def outright_answer(
    gate: Gate, words: str, inventory: NameInventory, dialogue: Dialogue, now: datetime, listener: Listener | None
) -> OutrightAnswer | None:
    """Return the answer to a question that a rule reads; None where none does, or where the records do not bear one.

    Args:
        gate: For the reading calls.
        words: In English, completed.
        inventory: What exists.
        dialogue: What was said.
        now: Of the state.
        listener: Is told of each reading call.
    """
    names = read_names(words, inventory)
    sentence = outright_sentence(words, names, dialogue, inventory, now)
    for rule in _RULES:
        reading = rule(sentence)
        if reading is None:
            continue
        request = QuestionRequest(reading.intent, words, names, job=reading.job, nodes=reading.nodes)
        turn = QuestionTurn(gate, inventory, request, now, listener=listener, proposed=dialogue.proposed)
        lines = list(reading.tell(turn))
        if not lines:
            continue
        state = replace(dialogue.advance(turn, lines), topic=reading.topic, question=words)
        answer = Answer(
            "\n".join(lines),
            turn.kind,
            MODE,
            reading.intent,
            sources=tuple(turn.sources),
            incidents=tuple(dict.fromkeys(turn.incidents)),
        )
        return OutrightAnswer(answer, state)
    return None
