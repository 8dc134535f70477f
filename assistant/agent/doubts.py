"""Where the words of a question say too little: not understood, two readings near, or a change that no verb names."""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.agent.answer import Answer, AnswerKind
from assistant.agent.chooser import IntentChoice, QuestionIntent
from assistant.agent.coverage import unknown_words
from assistant.agent.dialogue import QuestionRequest
from assistant.agent.moods import CHANGING
from assistant.agent.orders import OrderReading, fits_change
from assistant.agent.readings import LEAST, learned_stems
from assistant.agent.request_names import FAIR, MODE, NEAR, SAYS_LITTLE, SURE, missing_name, question_back, reading_text
from assistant.agent.words import NameInventory

SURE_OF_CHANGE = 0.5
_OF_NODES = re.compile(
    r"\b(?:nodes?|machines?|hosts?|servers?|box(?:es)?|capacity|cluster|partition|drain\w*|cordon\w*|offline|service|out|down|idle"
    r"|free|available|unavailable|usable|alive|up|sick|unhealthy|healthy|which|ones|others|them|those|they|slots?|room|space"
    r"|hardware|resources?)\b|^\W*why\b",
    re.IGNORECASE,
)
"""Words without which no question is answered by the list of nodes that are out."""
NOT_UNDERSTOOD = "I did not understand that. I know the jobs, nodes, logs, checkpoints and incidents of this cluster; ask: help"


def unsure_of_change(request: QuestionRequest, order: OrderReading, choices: Sequence[IntentChoice]) -> Answer | None:
    """Return the question whether a change is meant, where the verb of a sentence is none that stands for it."""
    if request.intent not in CHANGING or fits_change(order, request.intent, learned_stems(request.intent)):
        return None
    second = next((choice.intent for choice in choices[1:] if choice.intent not in SAYS_LITTLE | CHANGING), "help")
    options = (reading_text(request.intent, request), reading_text(second, request))
    verb = f"{order.verb!r} is no order that I know" if order.verb else "No change is named there that I know"
    return question_back(request, f"{verb}; nothing is proposed. Did you mean: {options[0]}? Or: {options[1]}?", options)


def asks_back(
    request: QuestionRequest, choices: Sequence[IntentChoice], inventory: NameInventory, intent: QuestionIntent
) -> Answer | None:
    """Return the question which of two readings is meant, or for a name that is missing; None where it may be answered."""
    first, second = choices[0], choices[1] if len(choices) > 1 else IntentChoice("help", 0.0)
    if request.intent == "bad_nodes" and not request.aspect and not _OF_NODES.search(f"{request.names.sketch} {request.form_text}"):
        return Answer(NOT_UNDERSTOOD, AnswerKind.UNKNOWN, MODE, "out_of_scope", round(request.confidence, 3), options=("help",))
    if first.probability < (SURE if first.intent in SAYS_LITTLE else LEAST):
        return Answer(NOT_UNDERSTOOD, AnswerKind.UNKNOWN, MODE, "out_of_scope", round(request.confidence, 3), options=("help",))
    least = SURE_OF_CHANGE if request.intent in CHANGING else FAIR
    lonely = request.intent not in CHANGING and second.probability <= first.probability * NEAR
    if first.probability < least and not lonely:
        changes = CHANGING if first.probability < SURE else frozenset()
        offered = [choice.intent for choice in choices if choice.intent not in SAYS_LITTLE | changes]
        options = tuple(reading_text(intent, request) for intent in offered[:2])
        if request.intent in CHANGING:
            return question_back(request, f"Did you mean: {options[0]}? Or: {options[1]}?", options)
        if words := unknown_words(request.names):
            text = f"Not known: nothing recorded here goes by {words}. The nearest that can be asked: {options[0]}; {options[1]}"
            return Answer(text, AnswerKind.UNKNOWN, MODE, "out_of_scope", round(request.confidence, 3), options=options)
    return missing_name(request, intent, inventory)
