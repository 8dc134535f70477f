"""Find the error that a time limit or a cancellation hides: one rank or program failed, and nothing was done behind it any more.

The scheduler's line is the last word of such a log and true, but more time helps nobody: the error was first, and what came behind
it only waited. Proof is wanted: words of an error that nobody caught, and no progress, count or ordinary work behind it.
"""

from __future__ import annotations

import re
from datetime import timedelta

from assistant.diagnose.advice.blocks import block_of, block_text
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.origin import origin_of
from assistant.diagnose.readers.streams import stamp
from assistant.diagnose.weighing.outcome import tells_failure
from assistant.logs.lines import Line
from assistant.records import Citation, Diagnosis

MOST_BEHIND, MOST_BEFORE, MOST_OF_LINE, LEAST_BEFORE, MOST_OF_STACK = 3, 600, 400, 3, 12
"""Ordinary lines behind an error with which the run still counts as waiting, lines before the end that are looked at, characters of
a line, ordinary lines before an error that show that the run had begun, and lines of a stack."""
LEAST_WAIT = timedelta(minutes=5)
"""Between an error and the scheduler's line, where both tell their time."""
_ENDS = re.compile(
    r"\bError During Test\b|^ERROR: LoadError|\buncaught\b|terminate called|[Ss]egmentation fault|\bSIGSEGV\b|\bpanicked at\b"
    r"|\bGSL:? E(?:RROR|rror)\b|^(?:\[[\w ]{1,20}\] )?(?:[A-Z][\w.]{2,60}(?:Error|Exception)): \S|\b[Ss]topping this rank\b"
    r"|\brank \d{1,6}\b.{0,20}\b(?:ERROR|error|failed|died|aborts?)\b|[Aa]ssertion .{0,120}failed|floating.point exception"
    r"|forrtl: severe|MPI_ABORT"
)
"""What a process prints that ends by an error."""
_OF_RANK = re.compile(r"^\W{0,3}(?:ERROR|FATAL|[Ff]atal)\b")
"""The same of one rank, whose lines its label tells apart; of a whole program it may be a warning of its logger."""
_SCHEDULER = re.compile(r"slurmstepd|srun:|CANCELLED|DUE TO TIME LIMIT|^PBS:|^=>> PBS|TERM_RUNLIMIT|walltime")
_QUIET = re.compile(
    r"^\s*(?:@|\[\d{1,3}\]|at |in expression|from |#\d|File |\.{3}|\||[-=]{3,}|\S{0,4}$)|[Ss]tack ?trace|[Tt]est Summary|^\s"
)
_SET_UP = re.compile(r"\bconda|\bmamba|command not found|\bLmod\b|\bmodule\b|EnvironmentName", re.IGNORECASE)
"""What tells of a step of the batch script, behind which the program may have run all the same."""
_MILD = re.compile(r"retry|skipp|ignor|continu|recover|caught|\bWARN", re.IGNORECASE)


def hidden_error(diagnosis: Diagnosis, facts: Facts) -> Line | None:
    """Return the first line of an error behind which a run that the scheduler ended did nothing more; None where none shows."""
    if diagnosis.reason != "time_limit" or facts.combined is not None:
        return None
    end = next((cited.line for cited in diagnosis.root_cause if cited.file == "job.log"), 0)
    error: Line | None = None
    lines_behind = 0
    for line in reversed(facts.between(max(1, facts.progress.leg, end - MOST_BEFORE), end - 1)):
        text = facts.streams.body(line.text[:MOST_OF_LINE]).text
        if not text.strip() or _SCHEDULER.search(text):
            continue
        of_rank = facts.streams.body(line.text[:MOST_OF_LINE]).stream and _OF_RANK.search(text)
        if (_ENDS.search(text) or of_rank) and not _MILD.search(text) and tells_failure(text):
            error, lines_behind = line, 0
            continue
        if not _QUIET.search(text) and not any(episode.first <= line.number <= episode.last for episode in facts.episodes):
            lines_behind += 1
        if lines_behind > MOST_BEHIND:
            break
    if error is None or facts.later_steps(error.number) or _at_once(error, end, facts):
        return None
    earlier = [line for line in facts.between(max(1, facts.progress.leg), error.number - 1) if line.text.strip()]
    return error if len(earlier) >= LEAST_BEFORE and not _SET_UP.search(error.text[:MOST_OF_LINE]) else None


def _at_once(error: Line, end: int, facts: Facts) -> bool:
    """Tell whether the scheduler's line came so soon behind an error that the run had worked until then."""
    last = facts.line(end)
    first, ended = stamp(error.text[:MOST_OF_LINE]), stamp(last.text[:MOST_OF_LINE]) if last is not None else None
    return first is not None and ended is not None and timedelta() <= ended - first < LEAST_WAIT


def hidden_account(error: Line, step: str, facts: Facts) -> str:
    """Return what to do about an error that a time limit hides.

    Args:
        error: Its first line.
        step: What is to be done about it by its kind; may be empty.
        facts: Of the case.
    """
    block = block_of(error, facts)
    words = block_text(block)
    origin = origin_of(Citation("job.log", error.number, error.text, ""), facts)
    at = f", raised at {origin.place}" if origin is not None else _frame_words(error, facts)
    mend = f" {step}" if step else ""
    return (
        f"The limit is not the cause: an error came before it ({words}{at}), and nothing was done behind it any more, "
        f"so the rest only waited "
        f"until the limit. Mend that error; more time does not help.{mend} Let a rank that fails end all of them "
        f"(MPI_Abort, set -e, "
        "srun --kill-on-bad-exit=1), so that the job ends at once."
    )


_FRAME = re.compile(r"^\s*\[\d{1,3}\] (?P<function>[\w!#.]{2,80})\(")
_OF_LIBRARY = re.compile(r"\.julia/packages|error|throw|\./")


def _frame_words(error: Line, facts: Facts) -> str:
    """Return the first function of a stack without places that is not one of error handling; empty without a stack."""
    for line in facts.between(error.number + 1, error.number + MOST_OF_STACK):
        match = _FRAME.match(line.text[:MOST_OF_LINE])
        if match is not None and not _OF_LIBRARY.search(line.text[:MOST_OF_LINE]):
            return f", in {match['function']}() (job.log:{line.number})"
    return ""
