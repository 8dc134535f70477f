"""A program that ends twice with the same words of its own, numbers and all, and the same exit code: a fact for a person.

Where no rule knows the words they explain nothing by themselves, and what they name may be gone at the next start (a server that is
busy) or not (a value that is out of range): nothing is concluded from them, and no action follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from assistant.content.reasons import gives_orders
from assistant.errors import NightshiftError
from assistant.records import Diagnosis, Incident, Job
from assistant.recover.joblog import log_lines, marks_before
from assistant.redact import head_of, redact
from assistant.untrusted import reading_as

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

_EXIT = re.compile(r"^(?:\S{1,64} )?(?:srun|mpirun|prterun): error: .{0,120}?[Ee]xited with exit code (\d{1,3})\b")
_LAUNCHER = re.compile(r"^(?:\S{1,64} )?(?:srun|slurmstepd|mpirun|prterun|orted|prted)(?:\[\d+\])?: ")
_DIGITS = re.compile(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z]{2,}")
FEWEST_WORDS = 3
SIGNALLED = 128
"""Exit codes from here on tell of a signal: the program did not end itself."""
MOST_CHARACTERS, MOST_LINES, LONGEST_QUOTE = 1_000, 20_000, 240


class LastWords(NamedTuple):
    """With what a program ended itself."""

    text: str
    code: int
    line: int
    """Number of the line among those that were read, from 1."""


def last_words(texts: Iterable[str]) -> list[LastWords]:
    """Return with what each try of a log ended: the last line of its program in front of what a launcher says of the exit."""
    ends: list[LastWords] = []
    own: tuple[str, int] | None = None
    for number, text in enumerate(texts, 1):
        line = text[:MOST_CHARACTERS].strip()
        if (match := _EXIT.match(line)) is not None:
            ends += [LastWords(own[0], int(match[1]), own[1])] if own is not None else []
            own = None
        elif line and not _LAUNCHER.match(line):
            own = (line, number)
    return ends


def came_twice(before: LastWords, after: LastWords, texts: Sequence[str], times: int) -> bool:
    """Tell whether two ends are the same, by words that the program says at its end alone. Pure.

    Args:
        before: The earlier end.
        after: The later one.
        texts: All lines of both.
        times: How many ends the lines hold: a line whose form comes oftener tells of progress.
    """
    if before.text != after.text or before.code != after.code or not 0 < after.code < SIGNALLED:
        return False
    if len(_WORD.findall(after.text)) < FEWEST_WORDS:
        return False
    form = _DIGITS.sub("#", after.text)
    return sum(_DIGITS.sub("#", text[:MOST_CHARACTERS].strip()) == form for text in texts) <= times


def with_repeated_words(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return the advice on an unexplained failure with the words that two ends have in common; any other diagnosis as it is."""
    if diagnosis.reason != "unknown" or job is None or not job.state.ended or diagnosis.faulty_nodes:
        return diagnosis
    texts = _texts(engine, job)
    ends = last_words(texts)
    if len(ends) > 1 and came_twice(ends[-2], ends[-1], texts, len(ends)):
        return _with_words(diagnosis, ends[-1].text, f"two tries of job {job.id} in a row")
    before = engine.store.incident(incident.parent) if incident.parent is not None else None
    job_before = _job(engine, before.job) if before is not None and before.job not in (None, job.id) else None
    if job_before is None or not ends:
        return diagnosis
    earlier = _texts(engine, job_before)
    if (ends_before := last_words(earlier)) and came_twice(
        ends_before[-1], ends[-1], [*earlier, *texts], len(ends) + len(ends_before)
    ):
        return _with_words(diagnosis, ends[-1].text, f"job {job_before.id} and its restart, job {job.id}")
    return diagnosis


def _texts(engine: EnginePort, job: Job) -> list[str]:
    try:
        with reading_as(job.account):
            lines = log_lines(job, marks=marks_before(engine.store, job), sure=True)
            return [line.text for line in lines][-MOST_LINES:]
    except (NightshiftError, OSError):
        return []


def _job(engine: EnginePort, job_id: str | None) -> Job | None:
    try:
        return engine.scheduler.job(job_id) if job_id is not None else None
    except NightshiftError:
        return None


def _with_words(diagnosis: Diagnosis, words: str, tries: str) -> Diagnosis:
    """Return a diagnosis with the fact behind its advice; nothing else of it changes."""
    if gives_orders(words):
        return diagnosis  # a log does not tell anybody what to do
    quote = head_of(redact(words), LONGEST_QUOTE, "…")
    sentence = f'It ended twice with the same words and exit code, {tries}: "{quote}".'
    return replace(diagnosis, advice=f"{diagnosis.advice} {sentence}".strip())
