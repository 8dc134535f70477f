"""Find the error that a time limit or a cancellation hides: a rank, program or line of the script failed, and no work followed.

The scheduler's line is the last word of such a log and true, but more time helps nobody, and the next start meets the same: the
error was first, and what came behind it only waited. Proof is wanted: words of an error that nobody caught, and no progress, count
or ordinary work behind it (`hidden_error`); of a script that its folder to work in is not there, or that the same line fails again
and again, and no step behind it (`with_first_mend`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

from assistant.diagnose.advice.blocks import block_of, block_text
from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.origin import origin_of
from assistant.diagnose.readers.shell_errors import ShellError, ShellErrorKind, shell_error
from assistant.diagnose.readers.streams import stamp
from assistant.diagnose.weighing.outcome import tells_failure
from assistant.logs.lines import Line
from assistant.records import Action, Citation, Diagnosis

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


ENDED = frozenset({"cancelled", "time_limit"})
FEWEST, LAST_WORDS, SHOWN_OF_NAME, MOST_CITED, MOST_OF_SHELL_LINE = 2, 3, 200, 6, 600
"""Times that a line fails which show that it fails always, ordinary lines behind a failure that is still the last word, characters
of a name that are shown, lines that are cited, and characters of a line that are read."""
_SET_UP_COMMAND = re.compile(
    r"^(?:module|ml|conda|mamba|micromamba|source|activate|nvidia-smi|clear|tput|setfacl|ulimit|lscpu|free)$"
)
"""Commands of a set-up, without which the work may be done all the same."""
_OF_SCHEDULER = re.compile(r"slurmstepd|srun: |CANCELLED|DUE TO TIME LIMIT|^Killed by signal|^Terminated|^=>> PBS|^PBS:")
_DIGITS = re.compile(r"\d+")


class FailedLine(NamedTuple):
    """A line of a script that failed, as often as it did."""

    error: ShellError
    lines: tuple[Line, ...]
    """Lines of the log that say it, in order."""
    scripts: int
    """How many scripts have that line."""


def failed_line(diagnosis: Diagnosis, facts: Facts) -> FailedLine | None:
    """Return the line of a script that failed before a run was ended from outside and that explains it; None without one."""
    if diagnosis.reason not in ENDED or facts.combined is not None:
        return None
    end = next((cited.line for cited in diagnosis.root_cause if cited.file == "job.log"), facts.lines_total)
    before = facts.between(max(1, facts.progress.leg), end - 1)
    by_form: dict[tuple[ShellErrorKind, str], list[tuple[ShellError, Line]]] = {}
    for line in before:
        error = (
            shell_error(facts.streams.body(line.text).text) if ": " in line.text and len(line.text) < MOST_OF_SHELL_LINE else None
        )
        if error is not None:
            by_form.setdefault((error.kind, _DIGITS.sub("0", error.name)), []).append((error, line))
    for (kind, _), failures in sorted(by_form.items(), key=lambda item: (item[0][0] is not ShellErrorKind.FOLDER, -len(item[1]))):
        error, last = failures[0][0], failures[-1][1]
        if facts.later_steps(last.number) or (kind is ShellErrorKind.COMMAND and _SET_UP_COMMAND.match(error.name)):
            continue
        if kind is ShellErrorKind.FOLDER or len(failures) >= FEWEST or _is_last_word(last, before):
            return FailedLine(error, tuple(line for _, line in failures), len({error.script for error, _ in failures}))
    return None


def _is_last_word(failed: Line, before: Sequence[Line]) -> bool:
    """Tell whether hardly anything stands between a failure and the end."""
    later_lines = [
        line for line in before if line.number > failed.number and line.text.strip() and not _OF_SCHEDULER.search(line.text)
    ]
    return len(later_lines) < LAST_WORDS


def with_first_mend(diagnosis: Diagnosis, facts: Facts) -> Diagnosis:
    """Return a diagnosis whose advice says first what a script has to have mended; as it is where nothing failed before."""
    failed = failed_line(diagnosis, facts)
    if failed is None:
        return diagnosis
    first = failed.lines[0]
    cited = Citation("job.log", first.number, first.text, "error before the end")
    return replace(
        diagnosis,
        action=Action.FIX_AND_RESUBMIT,
        root_cause=(*diagnosis.root_cause[:1], cited, *diagnosis.root_cause[1:])[:MOST_CITED],
        advice=f"{_account(failed)} {diagnosis.advice}".strip(),
    )


def _account(failed: FailedLine) -> str:
    error, times = failed.error, len(failed.lines)
    place = f"job.log:{failed.lines[0].number}"
    span = f"{place} to {failed.lines[-1].number}, {times} times" if times > 1 else place
    scripts = f" (and of {failed.scripts - 1} other scripts)" if failed.scripts > 1 else ""
    name = cut(error.name, SHOWN_OF_NAME)
    if error.kind is ShellErrorKind.FOLDER:
        problem = "does not exist" if "ermission" not in error.why else "may not be entered"
        account = (
            f"the folder {name}, to which it changes, {problem}, so that all behind it ran in another folder ({span}). Correct "
            "the path or make the folder, and let the script end where that fails (cd ... || exit 1)"
        )
    elif error.kind is ShellErrorKind.COMMAND:
        account = (
            f"the command {name} is not found there ({span}). Load the module or the environment that has it, or give its whole "
            "path, and let the script end at the first failure (set -e)"
        )
    else:
        account = (
            f"{name}: {error.why} ({span}). Correct that path (a relative one is seen from the folder in which the job runs), and "
            "let the script end at the first failure (set -e)"
        )
    return f"First mend line {error.line} of {error.script}{scripts}: {account}; then submit it again."
