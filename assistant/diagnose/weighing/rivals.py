"""What else it may have been, and when somebody other than the rules is asked: rivals of an answer, and second opinions.

Rivals are the two best other explanations: first reasons that lines of the case speak for, then those that were set aside by time
or place, then what the case suggests without a line of its own. A second opinion is asked where the rules are silent or doubtful.

Where ordinary output, of a form that the program had printed before, goes on to the last line behind lines that only their wording
speaks against, and nothing there tells of a failure, the end of the log says more than the wording (`ordinary_to_last`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from assistant.content.reasons import Reason
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.streams import ended_after_failure
from assistant.diagnose.weighing.findings import EXTERNAL, ROLES, Finding, is_boot, symptomatic
from assistant.diagnose.weighing.outcome import tells_failure
from assistant.diagnose.weighing.weighing import by_reason
from assistant.logs.lines import Line
from assistant.records import Citation, Diagnosis, Rival
from assistant.redact import head_of

MOST_RIVALS = 2
RANKED = "line ranker"
"""How the rule of a citation begins that the line ranker made."""
_DATA = re.compile(r"(?<![A-Za-z])data(?:set|loader|pipes?)?\b|collat|__getitem__|sampler|tokeniz", re.IGNORECASE)
_GPU = {"nccl_timeout_error", "nccl_remote_error", "cuda_error", "hang", "nvlink_error"}
_KILLS = (-9, 137)
_FOLDERS = re.compile(r"^.*[/\\]")
_SAYS_ITSELF = frozenset(
    "file_not_found_error permission_error import_error syntax_error name_error argument_error os_error".split()
)
"""Reasons of which the message itself names what is missing or refused, wherever it was raised."""


def rivals(
    reason: str,
    strength: float,
    findings: Sequence[Finding],
    considered: Sequence[Finding],
    facts: Facts,
    reasons: Mapping[str, Reason],
    confidence: float,
) -> tuple[Rival, ...]:
    """Return at most two other explanations, the likelier first.

    Args:
        reason: The reason of the answer.
        strength: Of its best finding.
        findings: That count.
        considered: All that were looked at, also those which weighing set aside.
        facts: For what the case suggests without a line that a rule knows.
        reasons: The reasons, for their tests.
        confidence: In the answer.
    """
    by_name: dict[str, Rival] = {}
    listed = (
        *_weaker_reasons(reason, strength, findings, reasons, confidence),
        *_set_aside(reason, considered, facts, reasons, confidence),
    )
    for rival in (*listed, *_suggested(reason, facts, reasons, confidence)):
        if rival.reason != reason:
            decides = reason in reasons and reasons[reason].undecided
            by_name.setdefault(rival.reason, replace(rival, test=reasons[reason].tests[0]) if decides else rival)
        if len(by_name) == MOST_RIVALS:
            break
    return tuple(by_name.values())


def _weaker_reasons(
    verdict_reason: str, strength: float, findings: Sequence[Finding], reasons: Mapping[str, Reason], confidence: float
) -> Iterator[Rival]:
    for reason, finding in by_reason(findings).items():
        if reason == verdict_reason or reason not in reasons:
            continue
        share = min(finding.strength / max(strength, 0.01), 0.95)
        weaker = "it only follows from something else" if symptomatic(finding) else "it stands later, or weighs less"
        yield _rival(reason, min((1 - confidence) * share + 0.02, 0.6), _line(finding), finding.note or weaker, reasons)


def _set_aside(
    reason: str, considered: Sequence[Finding], facts: Facts, reasons: Mapping[str, Reason], confidence: float
) -> Iterator[Rival]:
    """Yield what weighing ruled out by time, place or other evidence, heaviest first; nothing that is surely of another time."""
    ruled = [
        f for f in considered if f.role in ROLES and f.note and f.reason != reason and f.reason in reasons and f.factor <= 0.01
    ]
    ruled = [f for f in ruled if f.file != "dmesg.log" or not (f.line in facts.foreign or is_boot(f.text))]
    for finding in sorted(ruled, key=lambda f: (-f.weight, f.file, f.line)):
        yield _rival(finding.reason, (1 - confidence) * 0.3, _line(finding), finding.note, reasons)


def _suggested(reason: str, facts: Facts, reasons: Mapping[str, Reason], confidence: float) -> Iterator[Rival]:
    """Yield what the case suggests though no rule names it."""
    share = (1 - confidence) * 0.35
    killed = next((exit.line for exit in facts.exits if exit.code in _KILLS), None)
    if killed is None:
        killed = next((task.line for task in facts.tasks if task.how.startswith("Killed")), None) if reason == "killed" else None
    if killed is not None:
        line = facts.line(killed)
        evidence = f"job.log:{killed}: {head_of(line.text.strip(), 140)}" if line is not None else f"job.log:{killed}"
        why = "no kernel in the case tells of an OOM kill" if facts.kernel else "no kernel log in the case to tell of an OOM kill"
        yield _rival("out_of_memory_error", share, evidence, why, reasons)
    for episode in facts.episodes if reason not in _SAYS_ITSELF else ():
        frames = (f for raised in episode.raised for f in raised.frames)
        frame = next((f for f in frames if _DATA.search(f"{_FOLDERS.sub('', f.file)} {f.function}")), None)
        if frame is not None:
            evidence = f"job.log:{episode.first}: the traceback passes through {frame.file} ({frame.function})"
            yield _rival("dataset_loading_error", share, evidence, f"what was raised there is a {reason}", reasons)
            break
    if reason in _GPU and not facts.kernel:
        evidence = "a broken GPU or link shows like this, and the case holds no kernel log that could tell"
        yield _rival("cuda_error", share, evidence, "the job itself prints no device error", reasons)
        yield _rival("network_error", share, evidence, "the job itself prints no link error", reasons)


def _rival(reason: str, confidence: float, evidence: str, against: str, reasons: Mapping[str, Reason]) -> Rival:
    tests = reasons[reason].tests if reason in reasons else ("Ask the owner of the job.",)
    test = next(iter(tests), "Look at the lines cited for both.")
    return Rival(reason, round(confidence, 2), evidence, against, test)


def _line(finding: Finding) -> str:
    return f"{finding.file}:{finding.line}: {head_of(finding.text.strip(), 140)}"


def rival_of_rules(diagnosis: Diagnosis, *, no_line: str) -> Rival:
    """Return the verdict of the rules as a rival of an opinion that took its place.

    Args:
        diagnosis: Of the rules.
        no_line: What is said of one that cites no line.
    """
    cited = next(iter(diagnosis.root_cause), None)
    speaks = f"{cited.file}:{cited.line}: {head_of(cited.text.strip(), 140)}" if cited is not None else no_line
    against = "nothing that the rules know holds as a cause" if diagnosis.reason == "unknown" else "the rules were in doubt"
    return Rival(
        diagnosis.reason,
        diagnosis.confidence,
        f"the {diagnosis.by} verdict; {speaks}",
        against,
        "Look at the lines cited for both.",
    )


DOUBTFUL = 0.5
"""Below this confidence a verdict of the rules is put to the others."""


class Opinion(Protocol):
    """Memory or a model: something that may know better, and says what it rests on."""

    name: str

    def ask(self, facts: Facts, diagnosis: Diagnosis) -> Diagnosis | None:
        """Return a better diagnosis than the one found, or None.

        An implementation cites lines that stand in the case, names itself in `by`, keeps what the rules found among the rivals,
        and never names a node without a line against it. It is pure: the same case gets the same answer.

        Args:
            facts: Of the case.
            diagnosis: What is known so far; its reason may be `unknown`.
        """
        ...

    def note(self, facts: Facts, diagnosis: Diagnosis) -> Diagnosis:
        """Return the final diagnosis with what it has to add: past incidents like this one. Never another reason or action."""
        ...


def doubtful(diagnosis: Diagnosis) -> bool:
    """Tell whether others should be asked."""
    return diagnosis.reason == "unknown" or diagnosis.confidence < DOUBTFUL


def contradicted(opinion: Diagnosis, facts: Facts, *, failed: bool) -> bool:
    """Tell whether the end of an attempt contradicts an opinion: that all is well, or that somebody from outside stopped it.

    It contradicts what rests on lines alone that no rule knows, too, where ordinary output stands behind them to the last line.

    Args:
        opinion: What somebody other than the rules makes of it.
        facts: Of the case.
        failed: Whether the scheduler saw it fail, or its last words tell of a failure.
    """
    if opinion.reason == "no_failure":
        return failed
    lines = opinion.root_cause
    if not failed and lines and all(cited.rule.startswith(RANKED) for cited in lines) and ordinary_to_last(lines, facts):
        return True
    return opinion.reason in EXTERNAL and bool(lines) and all(ended_after_failure(line, facts.tasks) for line in lines)


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
