"""Tell whether a program printed its ordinary output to the last line, behind lines that only their wording speaks against.

Ordinary is what it had printed in the same form before those lines: a time, a row of results, a count. Where that goes on to the
last line and nothing behind them tells of a failure, the end of the log says more than the wording.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.diagnose.facts import Facts
from assistant.diagnose.weighing.outcome import tells_failure
from assistant.logs.lines import Line
from assistant.records import Citation

MOST_OF_LINE, MOST_LINES, LEAST_LETTERS = 400, 4000, 3
_NUMBER = re.compile(r"\d+(?:[.:,]\d+)*")
_LETTER = re.compile(r"[^\W\d_]")
_FRAME = re.compile(r"^\s*(?:File \"|at \S|#\d{1,3} |\[\d{1,3}\] |@ )")


def ordinary_to_last(lines: Sequence[Citation], facts: Facts) -> bool:
    """Tell whether ordinary output stands behind all of some lines, up to the last line of the job log.

    Args:
        lines: Cited ones; of another file than the job log they are never contradicted.
        facts: Of the case.
    """
    if any(cited.file != "job.log" for cited in lines) or facts.case.job is not None:
        return False
    first, end = min(cited.line for cited in lines), max(cited.line for cited in lines)
    later_lines = [line for line in facts.between(end + 1, facts.lines_total) if len(_LETTER.findall(line.text)) >= LEAST_LETTERS]
    if not later_lines or any(tells_failure(line.text) for line in later_lines[-MOST_LINES:]) or _FRAME.match(later_lines[-1].text):
        return False
    if any(episode.last > end for episode in facts.episodes):
        return False
    before = facts.between(max(facts.progress.leg, first - MOST_LINES, 1), first - 1)
    cited_lines = {cited.line for cited in lines}
    return _form(later_lines[-1]) in {_form(line) for line in before if line.number not in cited_lines}


def _form(line: Line) -> str:
    """Return a line without its numbers."""
    return " ".join(_NUMBER.sub("0", line.text[:MOST_OF_LINE]).split())
