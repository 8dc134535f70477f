"""What a question asks for that the answer chosen for it cannot tell: attributes, bounds, ranges of time, groups.

knowledge/attributes.toml says which answers tell which attribute. What is uncovered is said before anything else, so that an answer
to a wider question never passes for one to the question that was put.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from assistant.agent.dialogue import QuestionTurn
from assistant.agent.words import Names
from assistant.content.reading import build, knowledge_file, read_toml

_SPANNED = frozenset(
    {"overview", "incidents", "changes", "failed_jobs", "list_jobs", "bad_nodes", "explain_incident", "explain_job"}
)
"""Intents whose answers keep to a span of time, or are about one thing whenever it was."""
_OF_ONE_THING = frozenset(
    {"job_status", "node_state", "recover", "cancel", "cordon", "uncordon", "plan", "compare_jobs", "meaning", "help"}
)
_OF_USERS = frozenset({"failed_jobs", "list_jobs"})
_SAYS_NOTHING = frozenset({"help", "meaning", "out_of_scope", "mode", "approve"})


@dataclass(frozen=True)
class _Attribute:
    name: str
    words: str
    intents: tuple[str, ...] = ()
    line: str = ""
    why: str = ""


@dataclass(frozen=True)
class _AttributeFile:
    attribute: tuple[_Attribute, ...]


class Attribute(NamedTuple):
    """Something that is asked of things."""

    name: str
    pattern: re.Pattern[str]
    intents: frozenset[str]
    """Intents whose answers hold it."""
    line: re.Pattern[str] | None
    """Its figure in a line of a job's log."""
    why: str


@cache
def attributes() -> Sequence[Attribute]:
    """Return what questions ask of things."""
    path = knowledge_file("attributes.toml", None)
    rows = build(_AttributeFile, read_toml(path), path).attribute
    return [
        Attribute(
            row.name,
            re.compile(
                rf"(?<![\w{{-])(?:{'|'.join(re.escape(word.strip()) for word in row.words.split(','))})(?![\w}}-])", re.IGNORECASE
            ),
            frozenset(row.intents),
            re.compile(row.line) if row.line else None,
            row.why,
        )
        for row in rows
    ]


def asked_attributes(sentence: str) -> list[Attribute]:
    """Return the attributes that a sentence names; of two whose words overlap the one with the longer word."""
    hits = [(match.start(), match.end(), row) for row in attributes() for match in row.pattern.finditer(sentence)]
    longest = [
        row
        for start, end, row in hits
        if not any(
            other_start <= start and end <= other_end and end - start < other_end - other_start
            for other_start, other_end, _ in hits
        )
    ]
    return [row for row in attributes() if row in longest]


def uncovered(names: Names, intent: str) -> list[str]:
    """Return what a question asks for that answers of an intent do not tell, each with the reason where there is one.

    Args:
        names: Of the question.
        intent: Of the answer.
    """
    if intent in _SAYS_NOTHING:
        return []
    missing = [
        f"{row.name} ({row.why})" if row.why else row.name for row in asked_attributes(names.sketch) if intent not in row.intents
    ]
    missing += [bound.text for bound in names.quantities.bounds]
    missing += [names.quantities.clock[2]] if names.quantities.clock[2] else []
    missing += [names.span] if names.span and intent not in _SPANNED | _OF_ONE_THING else []
    missing += [
        f"only of {user}" for user in names.users if intent not in _OF_USERS and not names.jobs and intent not in _OF_ONE_THING
    ]
    return list(dict.fromkeys(missing))


def uncovered_told(missing: Sequence[str]) -> str:
    """Return how it is told what an answer leaves out."""
    return f"I cannot tell {', or '.join(missing)} from the records. What I can tell:"


def figures_told(turn: QuestionTurn) -> Iterator[str]:
    """Tell the last figures that a job's log has for the attributes that a question names; nothing where it names none."""
    job = turn.request.job
    for row in asked_attributes(turn.request.names.sketch):
        if row.line is None or not job:
            continue
        figure, number = last_figure(turn, row, job)
        name = f"{row.name[0].upper()}{row.name[1:]}"
        if figure is not None:
            yield f"{name} of job {job} was {figure:.6g} in the last line of its log that has it [{number}]."
        else:
            yield f"{name} of job {job} is not known: no line of its log that could be read has it [{number}]."


def last_figure(turn: QuestionTurn, row: Attribute, job: str) -> tuple[float | None, int]:
    """Return the figure of an attribute in the last line of a job's log that has it, and the number of the source."""
    assert row.line is not None
    source = turn.look("search_log", job=job, pattern=row.line.pattern, most=3)
    lines = [] if source.error else str(source.value).splitlines()[1:]
    matches = [match for line in lines if (match := row.line.search(line))]
    if not matches:
        return None, source.number
    figure = next(group for group in matches[-1].groups() if group)
    try:
        return float(figure.replace(",", "").rstrip(".")), source.number
    except ValueError:
        return None, source.number
