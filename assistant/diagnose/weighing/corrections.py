"""Correct a cause by what stands around its line: a saved state in place of data, the last start in place of an earlier one.

That a saved state cannot be read has the same words as that data cannot, behind a line that says what is being loaded. One file may
hold several starts of a program that came to nothing, which end by the same kind of error: the last one counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from assistant.content.reasons import Reason
from assistant.diagnose.answer import advice, summary
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.origin import origin_of
from assistant.diagnose.readers.tracebacks import EpisodeKind
from assistant.diagnose.weighing.findings import Finding
from assistant.records import Citation, Diagnosis

LOADING, OF_DATA = "model_loading_error", "dataset_loading_error"
LINES_BEFORE = 40
"""Lines before an error among which the last words of the program are looked for."""
_LAUNCHER = re.compile(r"\s*(?:srun|slurmstepd|mpirun|prterun|torchrun|W\d{4}|E\d{4})\b|.{0,200}Warning\b|\s{2,}")
MOST_OF_LINE = 600
_GOES_ON = re.compile(
    r"\b(?:[Ll]oad|[Rr]estor|[Rr]esum|[Cc]ontinu|[Rr]ead)\w{0,4}\b[^\n]{0,80}?"
    r"(?:\b|_)(?:check-?points?|ckpts?|snapshots?|global_?step|step|iter(?:ation)?|epoch)s?[-_=/]?\w{0,12}?\d",
    re.IGNORECASE,
)


def of_saved_state(diagnosis: Diagnosis, facts: Facts, reasons: Mapping[str, Reason]) -> Diagnosis:
    """Return `model_loading_error` for data that cannot be read where the program was just loading a saved state."""
    cited = diagnosis.root_cause[0] if diagnosis.root_cause else None
    reason = reasons.get(LOADING)
    if diagnosis.reason != OF_DATA or cited is None or reason is None or not _was_loading(cited, facts):
        return diagnosis
    return replace(
        diagnosis,
        reason=reason.name,
        category=reason.category,
        action=reason.action,
        summary=summary(reason, "", diagnosis.nodes, diagnosis.root_cause, facts, diagnosis.step),
        advice=advice(reason, reason.action, diagnosis.nodes),
        rivals=tuple(rival for rival in diagnosis.rivals if rival.reason != reason.name),
    )


def _was_loading(cited: Citation, facts: Facts) -> bool:
    """Tell whether the last words of a program before an error, but for those of its launcher, are that it loads a saved state."""
    if cited.file != "job.log":
        return False
    episode = next((chain for chain in facts.episodes if chain.first <= cited.line <= chain.last), None)
    end = (episode.first if episode is not None else cited.line) - 1
    lines = facts.between(max(1, facts.progress.leg, end - LINES_BEFORE), end)
    words = (facts.streams.body(line.text[:MOST_OF_LINE]).text for line in reversed(lines) if line.text.strip())
    last_words = next((text for text in words if not _LAUNCHER.match(text)), "")
    return _GOES_ON.search(last_words) is not None


SAME_KIND = 0.9
"""Share of the strength of a cause that the end of a later start has at least."""
_REFUSAL = re.compile(r"([\w.-]{1,80}): error: ")
"""How argparse ends a program."""


def of_latest_start(cause: Finding, errors: Sequence[Finding], facts: Facts) -> Finding:
    """Return the same kind of end in the last start of a program that one file holds several of, before any of which worked.

    A program ends by an exception that nobody catches and by a refused option; where the same one ends so again, otherwise
    and later in one stream, it was started anew in between.
    """
    start = _start_of(cause, facts)
    if start is None or facts.exits or facts.tasks or facts.progress.steps or facts.combined is not None:
        return cause
    later = [
        error
        for error in errors
        if error.file == cause.file
        and error.line > cause.line
        and error.strength >= cause.strength * SAME_KIND
        and error.text != cause.text
        and _start_of(error, facts) == start
    ]
    return max(later, key=lambda error: error.line, default=cause)


def _start_of(finding: Finding, facts: Facts) -> tuple[str, str] | None:
    """Return the stream and the program that ended with a finding; None where it need not have ended there."""
    if finding.file != "job.log" or facts.streams.body(finding.text).stream:
        return None
    if match := _REFUSAL.match(finding.text):
        return "", match[1]
    episode = next((e for e in facts.episodes if any(exception.line == finding.line for exception in e.raised)), None)
    if episode is None and finding.reason == "syntax_error":  # Python did not get beyond reading the program
        return (
            ("", origin.file)
            if (origin := origin_of(Citation(finding.file, finding.line, finding.text, finding.rule), facts)) is not None
            else None
        )
    if episode is None or episode.kind is not EpisodeKind.MAIN or episode.stream or episode.raised[-1].line != finding.line:
        return None
    outermost = episode.raised[-1].frames[0] if episode.raised[-1].frames else None
    return ("", outermost.file) if outermost is not None and outermost.function == "<module>" else None
