"""Choose among ends of one kind that of the last start, where one file holds several starts of a program that came to nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.origin import origin_of
from assistant.diagnose.readers.tracebacks import EpisodeKind
from assistant.diagnose.weighing.findings import Finding
from assistant.records import Citation

SAME_KIND = 0.9
"""Share of the strength of a cause that the end of a later start has at least."""
_REFUSED = re.compile(r"([\w.-]{1,80}): error: ")
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
    if match := _REFUSED.match(finding.text):
        return "", match[1]
    episode = next((e for e in facts.episodes if any(raised.line == finding.line for raised in e.raised)), None)
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
