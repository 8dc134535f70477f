"""Tell a saved state that cannot be read from data that cannot: the same words, behind a line that says what is being loaded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from assistant.content.reasons import Reason
from assistant.diagnose.answer import advice, summary
from assistant.diagnose.facts import Facts
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
    episode = next((each for each in facts.episodes if each.first <= cited.line <= each.last), None)
    end = (episode.first if episode is not None else cited.line) - 1
    lines = facts.between(max(1, facts.progress.leg, end - LINES_BEFORE), end)
    words = (facts.streams.body(line.text[:MOST_OF_LINE]).text for line in reversed(lines) if line.text.strip())
    last_words = next((text for text in words if not _LAUNCHER.match(text)), "")
    return _GOES_ON.search(last_words) is not None
