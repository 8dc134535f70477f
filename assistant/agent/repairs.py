"""What a sentence that corrects itself means: `slips` by its numbers, else by what stands behind `no wait` or `I mean`.

What stands behind may be an order of its own, or a thing that is described. Where it is neither, nothing is proposed of what stood
before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from assistant.agent.corrections import corrected
from assistant.agent.dialogue import Dialogue
from assistant.agent.orders import OrderKind
from assistant.agent.scope import Reader, names_in
from assistant.agent.slips import Slip, SlipKind, parts_at_slip, read_slip

_POINTER = re.compile(r"\b(?:it|that|this|that one|this one)\b", re.IGNORECASE)
_IDLE = re.compile(
    r"^(?:for|to|about|that|if|but|i am|i'm|,|\W)*(?:the )?(?:trouble|bother|noise|again|late|late night|ask|asking)?\W*$",
    re.IGNORECASE,
)
UNCLEAR = (
    'That corrects itself, and which thing is meant in the end is not told: "{}". Nothing is proposed; say the order once more, '
    "with what is meant."
)


def read_repair(sentence: str, english: Callable[[str], str], read: Reader) -> Slip | None:
    """Return what a sentence that corrects itself means; None where it does not.

    Args:
        sentence: As it was typed.
        english: Returns a sentence in English.
        read: Reads an English sentence.
    """
    slip = read_slip(sentence)
    if slip is not None:
        orders = read(english(slip.before))[1].kind in (OrderKind.SERVED, OrderKind.UNSERVED)
        if slip.kind is SlipKind.MENDED or (orders and slip.kind is SlipKind.UNCLEAR):
            return slip
        return slip if orders and slip.kind is SlipKind.HOLD else None
    parts = parts_at_slip(sentence)
    if parts is None:
        return None
    before, tail = english(parts[0]), english(parts[1])
    names, order = read(before)
    if order.kind is not OrderKind.SERVED or tail.rstrip().endswith("?"):
        return None
    further_names, further_order = read(tail)
    if further_order.kind in (OrderKind.SERVED, OrderKind.UNSERVED):
        objects = sorted(names_in(names))
        if names_in(further_names) or not _POINTER.search(tail):
            return Slip(SlipKind.MENDED, parts[1], parts[0])
        if len(objects) == 1:
            return Slip(SlipKind.MENDED, _POINTER.sub(objects[0], tail, count=1), parts[0])
        return Slip(SlipKind.UNCLEAR, sentence, parts[0])
    if further_order.kind is OrderKind.HOLD:
        return Slip(SlipKind.HOLD, parts[0], parts[0]) if not names_in(further_names) - names_in(names) else None
    if text := corrected(f"no, {tail}", Dialogue(intent=order.change, order=before), lambda text: read(text)[0]):
        return Slip(SlipKind.MENDED, text, parts[0])
    return None if _IDLE.match(tail) else Slip(SlipKind.UNCLEAR, sentence, parts[0])
