"""The readings of a question, likeliest first, without what it cannot mean, and what is asked back where its words say too little.

By its verb where it orders, else by the chooser. Too little is said where nothing was understood, where two readings are near, and
where no verb names the change.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from assistant.agent.answer import Answer, AnswerKind
from assistant.agent.chooser import IntentChoice, QuestionIntent, ToolChooser, intents, spelling
from assistant.agent.coverage import unknown_words
from assistant.agent.dialogue import Dialogue, QuestionRequest
from assistant.agent.moods import CHANGING, excluded_intents
from assistant.agent.orders import OrderKind, OrderReading, fits_change, stems_of
from assistant.agent.pointers import variants
from assistant.agent.request_names import FAIR, MODE, NEAR, SAYS_LITTLE, SURE, missing_name, question_back, reading_text
from assistant.agent.words import NameInventory, Names

LEAST = 0.08
"""Below this nothing was understood."""
VERB_SAYS = 0.95
"""How sure a verb with its own kind of thing makes."""


def choices_of(names: Names, order: OrderReading, dialogue: Dialogue, chooser: ToolChooser) -> Sequence[IntentChoice]:
    """Return the readings; who asks whether a node is back does not ask to put it back."""
    readings, out = _readings(names, dialogue, chooser), excluded_intents(names.masked)
    if order.kind is OrderKind.SERVED and order.change not in out:
        # the verb and its object say more than the sentence as a whole
        return [
            IntentChoice(order.change, VERB_SAYS),
            *(row for row in readings if row.intent not in {order.change, *CHANGING}),
        ]
    remaining = [choice for choice in readings if choice.intent not in out]
    total, remaining_share = sum(choice.probability for choice in readings), sum(choice.probability for choice in remaining)
    return (
        [IntentChoice(choice.intent, min(1.0, choice.probability * total / max(remaining_share, LEAST))) for choice in remaining]
        if out
        else readings
    )


def _readings(names: Names, dialogue: Dialogue, chooser: ToolChooser) -> Sequence[IntentChoice]:
    """Return the readings of all that words stand for: a bare number is a job or an incident, `it` what was spoken of."""
    plain = spelling().mended(names.masked)
    ways = [(plain.replace("{number}", slot), 1.0) for slot in ("{job}", "{incident}")] if names.numbers else [(plain, 1.0)]
    ways += [(spelling().mended(sentence), counts) for sentence, counts in variants(names, dialogue)]
    best: dict[str, float] = {}
    for sentence, counts in ways:
        for name, probability in chooser.choose(sentence):
            best[name] = max(best.get(name, 0.0), probability * counts)
    return [IntentChoice(name, best[name]) for name in sorted(best, key=lambda name: -best[name])]


@cache
def learned_stems(intent: str) -> frozenset[str]:
    """Return the stems of the words of the known sentences that ask for an intent."""
    return stems_of(intents()[intent].says)


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
