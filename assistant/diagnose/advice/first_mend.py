"""Say what has to be mended first of a run that was ended from outside, where its script had failed at a line of its own before.

The ending is true, and somebody or a limit made it; but the next start meets the same line. Proof is wanted that the failure
mattered: the folder to work in is not there, or the same line fails again and again, and no step was made behind it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.shell_errors import ShellError, ShellErrorKind, shell_error
from assistant.logs.lines import Line
from assistant.records import Action, Citation, Diagnosis

ENDED = frozenset({"cancelled", "time_limit"})
FEWEST, LAST_WORDS, SHOWN_OF_NAME, MOST_CITED = 2, 3, 200, 6
"""Times that a line fails which show that it fails always, ordinary lines behind a failure that is still the last word, and
characters of a name that are shown."""
_SET_UP = re.compile(r"^(?:module|ml|conda|mamba|micromamba|source|activate|nvidia-smi|clear|tput|setfacl|ulimit|lscpu|free)$")
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
        error = shell_error(facts.streams.body(line.text).text) if ": " in line.text and len(line.text) < MOST_OF_LINE else None
        if error is not None:
            by_form.setdefault((error.kind, _DIGITS.sub("0", error.name)), []).append((error, line))
    for (kind, _), each in sorted(by_form.items(), key=lambda item: (item[0][0] is not ShellErrorKind.FOLDER, -len(item[1]))):
        error, last = each[0][0], each[-1][1]
        if facts.later_steps(last.number) or (kind is ShellErrorKind.COMMAND and _SET_UP.match(error.name)):
            continue
        if kind is ShellErrorKind.FOLDER or len(each) >= FEWEST or _is_last_word(last, before):
            return FailedLine(error, tuple(line for _, line in each), len({error.script for error, _ in each}))
    return None


MOST_OF_LINE = 600


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
    often = f"{place} to {failed.lines[-1].number}, {times} times" if times > 1 else place
    scripts = f" (and of {failed.scripts - 1} other scripts)" if failed.scripts > 1 else ""
    name = cut(error.name, SHOWN_OF_NAME)
    if error.kind is ShellErrorKind.FOLDER:
        refused = "does not exist" if "ermission" not in error.why else "may not be entered"
        account = (
            f"the folder {name}, to which it changes, {refused}, so that all behind it ran in another folder ({often}). Correct "
            "the path or make the folder, and let the script end where that fails (cd ... || exit 1)"
        )
    elif error.kind is ShellErrorKind.COMMAND:
        account = (
            f"the command {name} is not found there ({often}). Load the module or the environment that has it, or give its whole "
            "path, and let the script end at the first failure (set -e)"
        )
    else:
        account = (
            f"{name}: {error.why} ({often}). Correct that path (a relative one is seen from the folder in which the job runs), and "
            "let the script end at the first failure (set -e)"
        )
    return f"First mend line {error.line} of {error.script}{scripts}: {account}; then submit it again."
