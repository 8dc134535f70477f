"""Ask the entries of knowledge/advice/ what the cited lines of a case want changed, and give only what the case bears out.

Those lines that show where they were raised are asked first. Where a service answered, and what is cited came while that was
handled, its answer is asked as well. Lines of an earlier attempt in the same log fill nothing.

A step that a run had switched off (`switched_off`) explains what a later one misses: pipelines print their settings
(`"cell_type_cluster": false`, `run_umap=False`) or that a step was skipped; a message that something is missing, with all the words
of such a name, is about what that step would have made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from assistant.content.reasons import Advice
from assistant.diagnose.advice.agreement import answer_of_service, borne_out
from assistant.diagnose.advice.other_failures import ANNOUNCES, explained_by
from assistant.diagnose.advice.slots import slots_of
from assistant.diagnose.advice.standing import last_failure
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.origin import Origin, ProgramOfLog, message_of, origin_of, raised_at
from assistant.records import Action, Citation, Diagnosis

AROUND = 40
"""Lines before and behind the cited one that may fill a template."""
MESSAGE_LINES = 8
"""Of a message of several lines, those that a template may match."""
KERNEL = "dmesg.log"
"""What the kernels of the job's nodes said."""


class EntryWords(NamedTuple):
    """What advice says, and what else has to be said beside it."""

    text: str
    covers_run: bool = False
    """Whether it says what to do about the run, too, so that no sentence of the action goes before it."""
    wall: bool = False
    """Whether a restart would meet the same again."""
    quiet: bool = False
    """Whether nothing has to be changed, only another moment chosen."""
    complete: bool = False
    """Whether it has read what stands around the cited line, so that no other line has to be quoted."""


def words_of_entries(diagnosis: Diagnosis, facts: Facts, entries: Sequence[Advice], program: ProgramOfLog) -> EntryWords | None:
    """Return what the first cited line that says enough asks for; those with a traceback come first, for they say where."""
    fitting = [entry for entry in entries if diagnosis.reason in entry.reasons or not entry.reasons]
    first_slots: dict[str, str] = {}
    by_kernel = diagnosis.action is Action.CORDON_AND_RESTART and any(
        cited.file == KERNEL and cited.role == "root" for cited in diagnosis.root_cause
    )
    cited_lines = by_origin(diagnosis, facts)
    answer = answer_of_service(diagnosis.root_cause[0], facts) if diagnosis.root_cause else None
    for cited, origin in [*cited_lines, *([(answer, origin_of(answer, facts))] if answer is not None else [])]:
        if by_kernel and cited.file != KERNEL:
            continue  # what the program met behind a machine's fault: advice on code or input would lead astray
        near = _near(cited, facts)
        slots = first_slots | slots_of(diagnosis, cited, origin, facts, raised_at(cited, facts), program)
        first_slots = first_slots or {"own": slots["own"]} if "own" in slots else first_slots
        for line in message_of(cited, facts)[:MESSAGE_LINES]:
            for entry in fitting:
                if (text := entry.fill(line, near, slots)) and (text := borne_out(text, cited, facts)):
                    return EntryWords(text, entry.whole, entry.wall, entry.quiet, entry.complete)
    return None


def of_last_failure(diagnosis: Diagnosis, facts: Facts, entries: Sequence[Advice], program: ProgramOfLog) -> str:
    """Return what the last line that tells of a failure asks for, of a log of which the reason is unknown; empty where nothing."""
    line = last_failure(facts)
    if line is None:
        return ""
    cited = Citation("job.log", line.number, line.text, "")
    of_any = [entry for entry in entries if not entry.reasons]
    words = words_of_entries(replace(diagnosis, root_cause=(cited,)), facts, of_any, program)
    return f"{words.text} The log does not show whether that ended it (job.log:{line.number})." if words is not None else ""


def switched_off_before_end(facts: Facts) -> str:
    """Return which step that is switched off the last line that tells of a failure asks for; empty where none shows."""
    line = last_failure(facts)
    return switched_off(Citation("job.log", line.number, line.text, ""), facts) if line is not None else ""


def by_origin(diagnosis: Diagnosis, facts: Facts) -> list[tuple[Citation, Origin | None]]:
    """Return cited lines with where they were raised: those that only announce another exception, or show no frame, last."""
    announced = any(ANNOUNCES.search(cited.text) for cited in diagnosis.root_cause[:3])
    explained = explained_by(diagnosis.root_cause[0], facts) if diagnosis.root_cause else set()
    lines = [cited for cited in diagnosis.root_cause[: 6 if announced else 3] if cited.line not in explained]
    origins = [(cited, origin_of(cited, facts)) for cited in lines]
    built = diagnosis.reason == "called_process_error"  # the traceback is of the program that called the tool
    return sorted(origins, key=lambda pair: (ANNOUNCES.search(pair[0].text) is not None, pair[1] is None and not built))


def _near(cited: Citation, facts: Facts) -> list[str]:
    """Return the lines of the same attempt and stream around a cited one, nearest first."""
    if cited.file != "job.log":
        return [cited.text]
    stream = facts.streams.body(cited.text).stream
    earlier = facts.before_leg(cited.line)
    lines = [
        (line.number, facts.streams.body(line.text))
        for line in facts.between(max(1, cited.line - AROUND), cited.line + AROUND)
        if facts.before_leg(line.number) == earlier
    ]
    same = [(abs(number - cited.line), body.text) for number, body in lines if body.stream == stream]
    cited_text = facts.streams.body(cited.text).text.strip()
    return [cited_text, *(text for _, text in sorted(same, key=lambda pair: pair[0]))]


MOST_OF_LINE, MOST_LINES, LEAST_ALIKE = 600, 20_000, 5
"""Of the start of two words that are alike, so many letters are the same: cluster, clustering."""
_OFF = re.compile(
    r"[\"']?(?P<name>[A-Za-z][\w.-]{2,60})[\"']?\s{0,3}[:=]\s{0,3}"
    r"(?P<value>[Ff]alse|FALSE|off|no(?! such\b)|disabled|skipped|[Tt]rue)(?![\w.-])"
    r"|(?P<skipped>[A-Za-z][\w.-]{2,60}) (?:is |was )?(?:skipped|disabled|switched off|turned off)\b"
    r"|\b[Ss]kipp(?:ing|ed) (?:step |stage )?(?P<left>[A-Za-z][\w.-]{2,60})"
)
_ASKS = re.compile(
    r"require|needed|needs?\b|missing|not (?:been )?(?:found|available|present|computed|run)|does(?: not|n't) "
    r"exist|\b[Ff]irst\b|No such"
    r"|KeyError|\bno (?:entry|attribute)|AttributeError|before\b|without\b|\b[Rr]un "
)
"""Words of a message that something is missing."""
_TURNS = frozenset("skip no disable without not".split())
"""First words of a name that is switched off by being true."""
_OF_FORM = frozenset(
    "run do use enable enabled with compute is has make get calc calculate perform step stage the for of none error".split()
)
_WORD = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{2,}(?![a-z])|[a-z]{2,}|\d{2,}")


class Switch(NamedTuple):
    """A step that is switched off."""

    text: str
    words: tuple[str, ...]
    line: int


def switched_off(cited: Citation, facts: Facts) -> str:
    """Return which step that is switched off would have made what a message says is missing; empty where the log shows none."""
    if cited.file != "job.log":
        return ""
    message = " ".join(message_of(cited, facts)[:4])[:MOST_OF_LINE]
    if not _ASKS.search(message):
        return ""
    words = _words(message)
    fitting = [switch for switch in _switches(facts, cited.line) if all(_alike(word, words) for word in switch.words)]
    longest = max((len(switch.words) for switch in fitting), default=0)
    names = {switch.text: switch for switch in fitting if len(switch.words) == longest}
    if not names:
        return ""
    switch = list(names.values())[-1]
    if longest == 1 and not set(switch.words) & words:
        return ""
    return (
        f"The log says `{switch.text}` (job.log:{switch.line}), and what that step makes is missing here: switch "
        "it on, or leave out "
        "the step that asks for it. What was made before it can be kept."
    )


def _switches(facts: Facts, before: int) -> Iterator[Switch]:
    for line in facts.lines[:MOST_LINES]:
        if line.number >= before:
            return
        if line.number < facts.progress.leg or len(line.text) > 4 * MOST_OF_LINE:
            continue
        for match in _OFF.finditer(line.text[:MOST_OF_LINE]):
            name = match["name"] or match["skipped"] or match["left"]
            parts = [word.lower() for word in _WORD.findall(name)]
            off = match["value"] is None or (match["value"].lower() == "true") == (parts[:1] and parts[0] in _TURNS)
            words = tuple(word for word in parts if word not in _OF_FORM | _TURNS)
            if off and words:
                yield Switch(match[0].strip(), words, line.number)


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)}


def _alike(word: str, words: set[str]) -> bool:
    return word in words or any(
        len(word) >= LEAST_ALIKE and alike.startswith(word[: max(LEAST_ALIKE, len(word) - 3)]) for alike in words
    )
