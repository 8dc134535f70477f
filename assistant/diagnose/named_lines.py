"""Find the lines of a case that a person means, and make sure that they stand there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from assistant.content.reasons import Role, Signature
from assistant.diagnose.facts import Facts
from assistant.diagnose.generalise import words_kept
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.telling import Told, telling
from assistant.errors import InputError
from assistant.records import Citation

_WORDS_OF_TROUBLE = """
rror ERROR ail FAIL xception atal FATAL lost refused denied abort ABORT anic expired invalid unable cannot found timed exceeded
mismatch corrupt broken killed gone
"""
_ALARMS = tuple(_WORDS_OF_TROUBLE.split())
"""Pieces of words that stand in lines of trouble."""


def cited_lines(facts: Facts, wanted: Iterable[str], rule: str) -> tuple[Citation, ...]:
    """Return the lines that a person names.

    Args:
        facts: Of the case.
        wanted: Each `file:line`, a line number of job.log, or a piece of the line itself.
        rule: What makes them count.

    Raises:
        InputError: One of them does not stand in the case.
    """
    return tuple(_cited(facts, one, rule) for one in wanted)


def guessed_line(facts: Facts, reason: str, knowledge: Knowledge) -> tuple[Citation, ...]:
    """Return the line that most likely shows a reason that nobody recognised: the first alarming one that nothing explains.

    None where every line that alarms is known to speak for another reason.
    """
    for alarmed in (True, False):
        for told in telling(facts):
            if alarmed and not any(word in told.message for word in _ALARMS):
                continue
            if words_kept([told.message]).specific and not _explained(told, reason, knowledge):
                return (told.cite("guessed: the first line that nothing explains"),)
    return ()


def _explained(told: Told, reason: str, knowledge: Knowledge) -> bool:
    """Tell whether a line is known to mean something else."""
    entries = knowledge.patterns.match_line(told.text)
    return any(not isinstance(e, Signature) or e.role is not Role.ROOT or e.id.partition(".")[0] != reason for e in entries)


def _cited(facts: Facts, wanted: str, rule: str) -> Citation:
    file, _, number = wanted.rpartition(":")
    if number.strip().isdigit() and facts.combined is not None and (at := facts.combined.line_of(file or "job.log", int(number))):
        file, number = "job.log", str(at)
    if number.strip().isdigit() and file in ("", "job.log", "dmesg.log", "slurmctld.log"):
        file, line = file or "job.log", int(number)
        text = next((text for found, text in _lines(facts, file) if found == line), None)
        if text is None:
            raise InputError(
                f"{file} of {facts.case.name} has no line {line} that is kept; wanted file:line, or a piece of the line"
            )
        return Citation(file, line, text, rule)
    if len(wanted.strip()) < 4:
        raise InputError(f"wanted file:line or a piece of a line, found {wanted!r}")
    for file in ("job.log", "dmesg.log", "slurmctld.log"):
        for line, text in _lines(facts, file):
            if wanted.strip() in text:
                return Citation(file, line, text, rule)
    raise InputError(f"no line of {facts.case.name} holds {wanted!r}")


def _lines(facts: Facts, file: str) -> Sequence[tuple[int, str]]:
    if file == "dmesg.log":
        return [(line.number, line.text) for line in facts.kernel]
    if file == "slurmctld.log":
        return [(line.number, line.text) for line in facts.scheduler]
    return [(line.number, line.text) for line in facts.lines]
