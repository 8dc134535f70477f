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

from assistant.agent.chooser import spelling
from assistant.agent.dialogue import QuestionTurn
from assistant.agent.words import WORDS, Names
from assistant.content.reading import build, knowledge_file, read_toml

_SPANNED = frozenset(
    {"overview", "incidents", "changes", "failed_jobs", "list_jobs", "bad_nodes", "explain_incident", "explain_job"}
)
"""Intents whose answers keep to a span of time, or are about one thing whenever it was."""
_OF_ONE_THING = frozenset(
    {"job_status", "node_state", "recover", "cancel", "cordon", "uncordon", "plan", "compare_jobs", "meaning", "help"}
)
_OF_USERS = frozenset({"failed_jobs", "list_jobs"})
_HAN = re.compile(r"[\u3400-\u9fff]")
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
            re.compile(_pattern([word.strip() for word in row.words.split(",")]), re.IGNORECASE),
            frozenset(row.intents),
            re.compile(row.line) if row.line else None,
            row.why,
        )
        for row in rows
    ]


def _pattern(words: Sequence[str]) -> str:
    """Return the pattern of words; those of a script without spaces stand anywhere."""
    spaced = "|".join(re.escape(word) for word in words if word.isascii() or not _HAN.search(word))
    unspaced = "|".join(re.escape(word) for word in words if _HAN.search(word))
    return rf"(?<![\w{{-])(?:{spaced})(?![\w}}-])" + (f"|{unspaced}" if unspaced else "")


def attributes_of(names: Names) -> list[Attribute]:
    """Return the attributes that a question names, in the words as they were typed too."""
    return asked_attributes(f"{names.sketch}\n{names.original}" if names.original else names.sketch)


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
    missing = [f"{row.name} ({row.why})" if row.why else row.name for row in attributes_of(names) if intent not in row.intents]
    missing += [bound.text for bound in names.quantities.bounds]
    missing += [names.quantities.clock[2]] if names.quantities.clock[2] else []
    missing += [names.span] if names.span and intent not in _SPANNED | _OF_ONE_THING else []
    missing += [
        f"only of {user}" for user in names.users if intent not in _OF_USERS and not names.jobs and intent not in _OF_ONE_THING
    ]
    return list(dict.fromkeys(missing))


def has_figure(names: Names) -> bool:
    """Tell whether the log of a job may hold the figure that a question names."""
    return any(row.line is not None for row in attributes_of(names))


def unknown_words(names: Names) -> str:
    """Return the words of a question that nobody here has used before, quoted; empty where there is none."""
    words = re.findall(r"(?<![{\w'])[^\W\d_]{4,}(?![}\w])", spelling().mended(names.sketch))
    strange = [word for word in dict.fromkeys(words) if word.lower() not in vocabulary()]
    return " or ".join(f"{word!r}" for word in strange[:3])


@cache
def vocabulary() -> frozenset[str]:
    """Return the words that somebody here has used in a question."""
    return frozenset(WORDS.read_text(encoding="ascii").split())


def unknown_told(names: Names) -> str:
    """Return how it is told that a question asks for nothing but what no record holds; empty where it names no such thing."""
    missing = [f"{row.name} ({row.why})" if row.why else row.name for row in attributes_of(names)]
    return f"Not known: no record here tells {', or '.join(missing)}." if missing else ""


def uncovered_told(missing: Sequence[str]) -> str:
    """Return how it is told what an answer leaves out."""
    return f"I cannot tell {', or '.join(missing)} from the records. What I can tell:"


def figures_told(turn: QuestionTurn) -> Iterator[str]:
    """Tell the last figures that a job's log has for the attributes that a question names; nothing where it names none."""
    job = turn.request.job
    for row in attributes_of(turn.request.names):
        if row.line is None or not job:
            continue
        steps = turn.request.names.quantities.steps
        figure, number = last_figure(turn, row, job, steps[0] if len(steps) == 1 else None)
        name = f"{row.name[0].upper()}{row.name[1:]}"
        if len(steps) == 1:
            at = f"at step {steps[0]}"
            figure_text = (
                f"was {figure:.6g} {at}, by its line of that step"
                if figure is not None
                else f"{at} is not known: no line of that step has it"
            )
            yield f"{name} of job {job} {figure_text} [{number}]."
        elif figure is not None:
            yield f"{name} of job {job} was {figure:.6g} in the last line of its log that has it [{number}]."
        else:
            yield f"{name} of job {job} is not known: no line of its log that could be read has it [{number}]."


def last_figure(turn: QuestionTurn, row: Attribute, job: str, step: int | None = None) -> tuple[float | None, int]:
    """Return the figure of an attribute in the last line of a job's log that has it, and the number of the source.

    Args:
        turn: Of the question.
        row: The attribute.
        job: Whose log is looked at.
        step: Only lines of this step count; all where it is None.
    """
    assert row.line is not None
    pattern = row.line.pattern if step is None else rf"(?i)\b(?:iteration|iter|step)\W{{0,12}}0*{step}\b"
    source = turn.look("search_log", job=job, pattern=pattern, most=3)
    lines = [] if source.error else str(source.value).splitlines()[1:]
    matches = [match for line in lines if (match := row.line.search(line))]
    if not matches:
        return None, source.number
    figure = next(group for group in matches[-1].groups() if group)
    try:
        return float(figure.replace(",", "").rstrip(".")), source.number
    except ValueError:
        return None, source.number
