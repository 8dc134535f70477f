"""Say what came behind the cited failure and follows from it: a stop by the scheduler, another program of the same script."""

from __future__ import annotations

import re

from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.streams import ended_after_failure
from assistant.diagnose.readers.tracebacks import Episode, Kind
from assistant.records import Citation

MOST_OF_LINE, MOST_OF_QUOTE = 400, 120
_NOT_THERE = re.compile(r"(?:slurm_script|\.sh|\.sbatch|\.slurm): line (\d{1,6}): (.{1,80}?): command not found")
_CANCELLED = re.compile(r"\*\*\* (?:JOB|STEP) \d{2,12}\S{0,12} ON \S{1,80} CANCELLED AT \S{10,30}(?P<limit> DUE TO TIME LIMIT)?")


def ended_later(line: int, facts: Facts) -> str:
    """Return that the scheduler ended the job behind a failure, and not the program itself; empty where it did not.

    Args:
        line: Of the failure.
        facts: Of the case.
    """
    if facts.case.job is not None:
        return ""
    for end in reversed(facts.lines[-MOST_OF_LINE:]):
        match = _CANCELLED.search(end.text[:MOST_OF_LINE]) if end.number > line else None
        if match is not None and ended_after_failure(Citation("job.log", end.number, end.text[:MOST_OF_LINE], ""), facts.tasks):
            continue  # nobody did that: a task of the step had failed
        if match is not None and match["limit"]:
            return (
                f"Behind it the job ran into its time limit (job.log:{end.number}): it did not end on that error, so let it exit "
                "there (set -e in the script, no except that goes on)."
            )
        if match is not None:
            return f"Behind it the job was cancelled (job.log:{end.number}): ask its owner, too, before it is started again."
    return ""


def script_fault(line: int, facts: Facts) -> str:
    """Return a command of the batch script itself that was not there, behind a failure of its program; empty without one."""
    for end in facts.lines:
        match = _NOT_THERE.search(end.text[:MOST_OF_LINE]) if end.number > line else None
        if match is not None:
            return (
                f"The batch script has a fault of its own in line {match[1]} (job.log:{end.number}: {match[2]}: command not found)."
            )
    return ""


def failed_later(cited: Citation, facts: Facts) -> str:
    """Return that another program of the same script failed behind the cited one, for want of what that makes; or empty."""
    if cited.file != "job.log" or facts.combined is not None:
        return ""
    own = next((episode for episode in facts.episodes if episode.first <= cited.line <= episode.last), None)
    program = _program(own)
    for episode in facts.episodes:
        file = _program(episode)
        if own is None or not program or episode.first <= own.last or not file or file == program:
            continue
        raised = episode.raised[-1]
        text = cut(facts.streams.body(raised.text).text.strip(), MOST_OF_QUOTE).rstrip(".")
        name = file.rpartition("/")[2]
        return f"Behind it {name} failed, too (job.log:{raised.line}: {text}): run that again once this is mended."
    return ""


def _program(episode: Episode | None) -> str:
    """Return the file of the program whose main module a traceback begins in; empty for any other."""
    if episode is None or episode.kind is not Kind.MAIN or episode.stream or not episode.raised[-1].frames:
        return ""
    outermost = episode.raised[-1].frames[0]
    return outermost.file if outermost.function == "<module>" else ""
