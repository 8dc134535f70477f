"""The answer to a sentence that is about the record itself, in any of the languages, before it is read for an order."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime

from assistant.agent.answer import Answer, AnswerKind, Listener
from assistant.agent.claims.entries import approval_asked, how_often, leave_given, when_taken, who_did
from assistant.agent.claims.lexicon import SAYS
from assistant.agent.claims.mentions import mentioned
from assistant.agent.claims.orders_weighed import conditional_drain, conditional_yes, everyday_order, known_from_incidents
from assistant.agent.claims.pasted import pasted
from assistant.agent.claims.question import RecordQuestion, RecordRule
from assistant.agent.claims.statements import confirmed, counselled, granted, spoken_claim, why_so
from assistant.agent.claims.supposed import supposed
from assistant.agent.claims.totals import totals
from assistant.agent.dialogue import Dialogue, QuestionRequest, QuestionTurn
from assistant.agent.elsewhere import elsewhere
from assistant.agent.languages.sentence import Language, language_of
from assistant.agent.words import NameInventory, read_names
from assistant.gate import Gate

INTENT = "job_status"


def _everyday(question: RecordQuestion) -> list[str]:
    """Say which jobs an order in everyday words may be about, where it is not about one."""
    if text := everyday_order(question.sentence, question.turn.inventory)[1]:
        question.turn.kind = AnswerKind.ASKS_BACK
        question.turn.look("list_jobs", limit=100_000)
    return [text] if text else []


_FIRST: tuple[RecordRule, ...] = (
    conditional_yes,
    conditional_drain,
    _everyday,
    pasted,
    supposed,
    spoken_claim,
    granted,
    approval_asked,
    totals,
)
"""The first that has an answer gives it."""
_ENTRIES: tuple[RecordRule, ...] = (leave_given, how_often, when_taken, who_did)
"""Each adds what was asked of it: `how often did it fail, and who took it out`."""
_LAST: tuple[RecordRule, ...] = (why_so, confirmed, counselled, known_from_incidents)


def record_answer(
    sentence: str, dialogue: Dialogue, inventory: NameInventory, gate: Gate, now: datetime, *, listener: Listener | None = None
) -> tuple[Answer, Dialogue] | None:
    """Return the answer and what was said; None where the sentence is no question about the record.

    Args:
        sentence: As it was typed.
        dialogue: What was said before.
        inventory: What exists.
        gate: Every call goes through it.
        now: For how long ago something was.
        listener: Is told of each reading call.
    """
    sentence = _of_another(sentence, dialogue, inventory) or sentence
    mention = mentioned(sentence, inventory)
    if mention is None or inventory.unknown or not (inventory.jobs or inventory.nodes):
        return None
    names = mention.as_names()
    jobs, nodes = names.jobs, names.nodes
    intent = "node_state" if nodes and not jobs else INTENT
    request = QuestionRequest(intent, sentence, names, job=next(iter(jobs), ""), nodes=nodes, aspect="record")
    turn = QuestionTurn(gate, inventory, request, now)
    turn.spoken_job, turn.listed = next(iter(dialogue.jobs), ""), dialogue.listed
    question = RecordQuestion(sentence, mention, dialogue, turn)
    lines = _lines(question)
    if not lines or (not (_QUOTES.search(sentence) or SAYS.search(mention.text)) and _is_elsewhere(sentence, inventory)):
        return None
    if listener is not None:
        for source in turn.sources:
            listener(source)
        listener("")
    kind = AnswerKind.UNKNOWN if lines[0].startswith("Not known") else turn.kind
    answer = Answer(
        "\n".join(lines),
        kind,
        "semantic",
        "record",
        sources=tuple(turn.sources),
        incidents=tuple(dict.fromkeys(turn.incidents)),
        proposals=tuple(turn.proposals),
    )
    turn.incidents.clear()
    return answer, replace(dialogue.advance(turn, lines), approvals=())


_BARE = re.compile(
    r"^\W*(?:(?:and|und|or|oder|what about|how about|was ist mit|那)\s*)?(?:\{(?P<kind>[jnau])\d+\}"
    r"|(?P<number>\d{1,2}))\W*(?:呢)?\W*$"
)
_TAIL = re.compile(r"(?<!\d)\d+$")
_SLOT = re.compile(r"\{([a-z])\d+\}")
_QUOTES = re.compile(r"[\"'`“„「]")
"""What is said or written in another place may be about this one."""


def _is_elsewhere(sentence: str, inventory: NameInventory) -> bool:
    """Tell whether a question names another place, cluster or system."""
    english = language_of(sentence) is Language.ENGLISH
    return bool(elsewhere(sentence, read_names(sentence, inventory), inventory, english=english))


def _of_another(sentence: str, dialogue: Dialogue, inventory: NameInventory) -> str:
    """Return the last question about the record with the thing that `and node06?` names in the place of its own."""
    if dialogue.aspect not in ("record", "taken_by"):
        return ""
    slots, mention = _SLOT.findall(dialogue.sentence), mentioned(sentence, inventory)
    match = _BARE.match(mention.text) if mention is not None else None
    if mention is None or match is None or len(slots) != 1:
        return ""
    number = int(match["number"] or 0)
    fitting = [node for node in inventory.nodes if number and (tail := _TAIL.search(node)) and int(tail.group()) == number]
    name = mention.names[0][1] if mention.names else fitting[0] if len(fitting) == 1 else ""
    kind = match["kind"] or "n"
    return _SLOT.sub(name, dialogue.sentence) if name and kind == slots[0] else ""


def _lines(question: RecordQuestion) -> list[str]:
    for rule in _FIRST:
        if lines := rule(question):
            return lines
    if lines := [line for rule in _ENTRIES for line in rule(question)]:
        return list(dict.fromkeys(lines))
    return next((lines for rule in _LAST if (lines := rule(question))), [])
