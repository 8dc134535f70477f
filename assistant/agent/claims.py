"""What a sentence says of one job, node or incident: its state and its reason, held against the record of that very thing.

A word may stand in what a tool returned and be false all the same: of two jobs one runs, and of the reasons in a diagnosis all but
one were weighed and not chosen. So the words that carry most are looked up in the records that name their subject.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assistant.agent.answer import AnswerSource

_STATES = {
    "running": ("running",),
    "pending": ("pending", "queued"),
    "queued": ("pending", "queued"),
    "completed": ("completed",),
    "finished": ("completed", "finished"),
    "succeeded": ("completed", "succeeded"),
    "failed": ("failed", "node_fail", "out_of_memory", "timeout", "job_ended"),
    "cancelled": ("cancelled", "canceled"),
    "preempted": ("preempted",),
    "idle": ("idle",),
    "allocated": ("allocated", "running"),
    "drained": ("drained", "drain"),
    "draining": ("draining", "drain"),
    "cordoned": ("drained", "draining", "drain", "cordon"),
    "down": ("down",),
    "healthy": ("healthy", "ok", "pass", "fit"),
    "recovered": ("recovered",),
    "escalated": ("escalated",),
    "closed": ("closed",),
    "waiting": ("waiting", "wait"),
}
"""Words for a state, and what stands in a record where they are right."""
_STATE = re.compile(rf"\b({'|'.join(_STATES)})\b", re.IGNORECASE)
_NOT = re.compile(r"\b(?:not|no|never|nor|neither|isn't|aren't|wasn't|didn't|doesn't|cannot)\b", re.IGNORECASE)
_REASON = re.compile(r"\b[a-z0-9]+(?:_[a-z0-9]+)+\b")
_WEIGHED = re.compile(
    r"\b(?:not|no|neither|weighed|rival|rather|instead|could|might|may|or|unlikely|ruled|other|considered|against|than)\b",
    re.IGNORECASE,
)
_DIAGNOSED = re.compile(r'\breason"?: "?(?!unknown|no_failure)[a-z0-9]+(?:_[a-z0-9]+)+\b')
"""A diagnosis: whoever has a reason to fail has failed."""
_NAME = re.compile(r"\b\d+(?:_\d+)?\b|\b[A-Za-z](?=[A-Za-z_.-]{0,254}\d)[\w.-]{1,255}\b")
RIVALS = ("rivals", "seen_before")
"""Parts of a diagnosis that hold other reasons than its own."""


class SourceRecords:
    """What the tools returned, by the names in it."""

    def __init__(self, sources: Sequence[AnswerSource]) -> None:
        self._by_source = [(source, list(_records(source))) for source in sources if not source.error and source.value is not None]

    def about(self, names: Sequence[str], cited: frozenset[int]) -> list[str]:
        """Return the texts of the records that name one of these; of the cited sources alone where there are some."""
        pairs = [pair for pair in self._by_source if pair[0].number in cited] or self._by_source
        texts = [text for _, records in pairs for record_names, text in records if record_names & set(names)]
        return texts or [text for source, _ in pairs for text in [_as_text(source.value)]]


def faults(sentence: str, cited: frozenset[int], records: SourceRecords, question: str) -> Iterator[str]:
    """Yield what a sentence says of the state or the reason of something that its records do not say.

    Args:
        sentence: Without its citations and quotes.
        cited: Numbers of the sources that it cites.
        records: What the tools returned.
        question: The question, small letters: what stands there may be repeated.
    """
    subjects = _NAME.findall(sentence)
    about: list[str] | None = None
    for match in _STATE.finditer(sentence):
        word = match[1].lower()
        denied = bool(_NOT.search(sentence[max(0, match.start() - 20) : match.start()]))
        about = records.about(subjects, cited) if about is None else about
        stands = any(_stands(text, word) for text in about)
        # where there is no record at all, nothing can be known
        if stands is denied and (about or not denied):
            yield f"state {match[0]!r}"
    for name in _REASON.findall(sentence):
        about = records.about(subjects, cited) if about is None else about
        if about and name not in question and not any(_has(text, name) for text in about) and not _WEIGHED.search(sentence):
            yield f"reason {name!r}"


def _stands(text: str, word: str) -> bool:
    if word == "failed" and _DIAGNOSED.search(text):
        return True
    return any(_has(text, form) for form in _STATES[word])


def _has(text: str, word: str) -> bool:
    return re.search(rf"(?<![a-z0-9_]){re.escape(word)}(?![a-z0-9_])", text) is not None


def _records(source: AnswerSource) -> Iterator[tuple[set[str], str]]:
    """Yield each object of what a tool returned, with the names that it holds itself; a call's arguments name the whole."""
    argument_names = set(_names(list(source.arguments.values())))
    if argument_names:
        yield argument_names, _as_text(source.value)
    yield from _objects(source.value)


def _objects(value: Any) -> Iterator[tuple[set[str], str]]:
    if isinstance(value, Mapping):
        own = [item for key, item in value.items() if key not in RIVALS and not isinstance(item, Mapping)]
        names = set(
            _names([item for item in own if not (isinstance(item, list) and any(isinstance(element, Mapping) for element in item))])
        )
        yield names, _as_text(value)
        for key, item in value.items():
            if key not in RIVALS:
                yield from _objects(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _objects(item)


def _names(values: Sequence[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from _names(value)
        elif isinstance(value, (str, int)) and not isinstance(value, bool) and len(str(value)) <= 64:
            yield str(value)


def _as_text(value: Any) -> str:
    """Return a value as text, without the reasons that were weighed and not chosen."""
    return json.dumps(_without(value), ensure_ascii=False, default=str).lower()


def _without(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without(item) for key, item in value.items() if key not in RIVALS}
    return [_without(item) for item in value] if isinstance(value, (list, tuple)) else value
