"""Look a second time at what a diagnosis says: no piece of a secret of the lines that it rests on is left in its sentences.

Sentences are put together of parts of lines: what a pattern took out of an address, half a message, a setting. Each part that is
only cut is cut by `redact.cuts`. But what a pattern takes out of the middle of a secret no longer says that it is one. Here the
whole lines are known, and with them what in them is secret.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from assistant.diagnose.facts import Facts
from assistant.records import Citation, Diagnosis
from assistant.redact.cuts import remains, without_remains

_LINE_REFERENCE = re.compile(r"\bjob\.log:(\d{1,12})\b")
LINES_BEFORE, LINES_AFTER, MOST_LINES = 2, 4, 60
"""Lines around one that a diagnosis names whose parts it may hold, and how many named lines are looked at."""


def without_cut_secrets(diagnosis: Diagnosis, facts: Facts) -> Diagnosis:
    """Return the diagnosis without pieces of secrets in its sentences; its citations, whole lines, are left to the doors."""
    cited = [
        *diagnosis.root_cause,
        *(citation for node in diagnosis.nodes for citation in node.citations),
        *(citation for place in diagnosis.where for citation in place.citations),
    ]
    numbers = {citation.line for citation in cited if citation.file == "job.log"}
    numbers |= {int(number) for text in _sentences(diagnosis) for number in _LINE_REFERENCE.findall(text)}
    texts = [citation.text for citation in cited if citation.file != "job.log"]
    for number in sorted(numbers)[:MOST_LINES]:
        texts += [line.text for line in facts.between(max(number - LINES_BEFORE, 1), number + LINES_AFTER)]
    nodes = {*diagnosis.faulty_nodes, *(place.node or "" for place in diagnosis.where)}
    nodes |= {node for pattern in diagnosis.patterns for node in pattern.nodes}
    nodes |= set(facts.case.job.nodes) if facts.case.job is not None else set()
    pieces = remains(dict.fromkeys(texts), nodes)
    return _cleaned(diagnosis, pieces) if pieces else diagnosis


def _sentences(diagnosis: Diagnosis) -> list[str]:
    rivals = (text for rival in diagnosis.rivals for text in (rival.speaks_for, rival.speaks_against, rival.test))
    return [diagnosis.summary, diagnosis.advice, *rivals, *(node.why for node in diagnosis.nodes)]


def _cleaned(value: Any, pieces: frozenset[str]) -> Any:
    if type(value) is str:
        return without_remains(value, pieces)
    if isinstance(value, tuple):
        return tuple(_cleaned(item, pieces) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, (type, Citation)):
        changed = {field.name: _cleaned(getattr(value, field.name), pieces) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **changed)
    return value
