"""Tell whether a job had saved into a folder that it misses: what stood and is gone is lost, and nothing to be made. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from assistant.recover.checkpoints.place import FAILED, last_saved
from assistant.watch.progress import tells_of_save

__all__ = ["saved_into"]

_BELOW = re.compile(r"(?:/[^\s'\"`,;:)\]]{0,300})?(?=[\s'\"`,;:)\].]|$)")
_NUMBER = re.compile(r"\d+")
_STEP = re.compile(r"(?:iteration|iter|step|epoch|batch)[ :=_#-]{0,12}(\d{1,18})", re.IGNORECASE)


def saved_into(texts: Iterable[str], folder: str, missing: str) -> str:
    """Return the last line that proves that a job had saved into a folder; empty where none does.

    A save that is only announced proves nothing by itself, for it may be the one that failed: it has to be of another step than
    what is missing, or followed by one of another.

    Args:
        texts: The log before the failure, in order.
        folder: The folder in question.
        missing: The path at or below it that was not there.
    """
    proof, before = "", ("", list[str]())
    wanted = _parts(missing.removeprefix(folder))
    for text in (one[:2000] for one in texts):
        at = text.find(folder)
        if at < 0 or FAILED.search(text) or not (tells_of_save(text) or last_saved([text])):
            continue
        behind = _BELOW.match(text, at + len(folder))
        if behind is None:
            continue  # the name of another folder goes on there
        step = _STEP.search(text[:at])
        parts = [*_parts(behind[0]), *([step[1]] if step is not None else [])]
        if before[0] and _differ(before[1], parts):
            proof = before[0]
        if _differ(wanted, parts):
            proof = text
        before = (text, parts)
    return proof.strip()[:200]


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part.strip(".")]


def _differ(some: Sequence[str], others: Sequence[str]) -> bool:
    """Tell whether two paths part at names of two steps: neither may be the other one with a number of a process behind it."""
    parted = next((pair for pair in zip(some, others, strict=False) if pair[0] != pair[1]), ("", ""))
    one, other = (frozenset(int(number) for number in _NUMBER.findall(name)) for name in parted)
    return bool(one and other) and not (one <= other or other <= one)
