"""The readings of a question, likeliest first: by its verb where it orders, else by the chooser, without what it cannot mean."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from assistant.agent.chooser import IntentChoice, ToolChooser, intents, spelling
from assistant.agent.dialogue import Dialogue
from assistant.agent.moods import CHANGING, excluded_intents
from assistant.agent.orders import OrderKind, OrderReading, stems_of
from assistant.agent.pointers import variants
from assistant.agent.words import Names

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
