"""The two best other explanations: what speaks for each in this case, what against it, and the cheapest test that would decide.

First come reasons that lines of the case speak for, however weak; then those that were set aside by time or place, with the why;
then what the case suggests without a line of its own. A reason that nothing in the case speaks for is no rival.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from assistant.content.reasons import Reason
from assistant.diagnose.facts import Facts
from assistant.diagnose.weighing import by_reason
from assistant.diagnose.weighing.findings import ROLES, Finding, is_boot, symptomatic
from assistant.records import Rival

SHOWN = 2
_DATA = re.compile(r"(?<![A-Za-z])data(?:set|loader|pipes?)?\b|collat|__getitem__|sampler|tokeniz", re.IGNORECASE)
_GPU = {"nccl_timeout_error", "nccl_remote_error", "cuda_error", "hang", "nvlink_error"}
_KILLS = (-9, 137)
_FOLDERS = re.compile(r"^.*[/\\]")
_SAYS_ITSELF = frozenset(
    "file_not_found_error permission_error import_error syntax_error name_error argument_error os_error".split()
)
"""Reasons of which the message itself names what is missing or refused, wherever it was raised."""


def rivals(
    chosen: str,
    strength: float,
    findings: Sequence[Finding],
    considered: Sequence[Finding],
    facts: Facts,
    known: Mapping[str, Reason],
    confidence: float,
) -> tuple[Rival, ...]:
    """Return at most two other explanations, the likelier first.

    Args:
        chosen: The reason of the answer.
        strength: Of its best finding.
        findings: That count.
        considered: All that were looked at, also those which weighing set aside.
        facts: For what the case suggests without a line that a rule knows.
        known: The reasons, for their tests.
        confidence: In the answer.
    """
    found: dict[str, Rival] = {}
    listed = (*_told(chosen, strength, findings, known, confidence), *_set_aside(chosen, considered, facts, known, confidence))
    for rival in (*listed, *_suggested(chosen, facts, known, confidence)):
        if rival.reason != chosen:
            decides = chosen in known and known[chosen].undecided
            found.setdefault(rival.reason, replace(rival, test=known[chosen].tests[0]) if decides else rival)
        if len(found) == SHOWN:
            break
    return tuple(found.values())


def _told(
    chosen: str, strength: float, findings: Sequence[Finding], known: Mapping[str, Reason], confidence: float
) -> Iterator[Rival]:
    for reason, finding in by_reason(findings).items():
        if reason == chosen or reason not in known:
            continue
        share = min(finding.strength / max(strength, 0.01), 0.95)
        weaker = "it only follows from something else" if symptomatic(finding) else "it stands later, or weighs less"
        yield _rival(reason, min((1 - confidence) * share + 0.02, 0.6), _line(finding), finding.note or weaker, known)


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


def _suggested(chosen: str, facts: Facts, known: Mapping[str, Reason], confidence: float) -> Iterator[Rival]:
    """Yield what the case suggests though no rule names it."""
    share = (1 - confidence) * 0.35
    killed = next((exit.line for exit in facts.exits if exit.code in _KILLS), None)
    if killed is None:
        killed = next((task.line for task in facts.tasks if task.how.startswith("Killed")), None) if chosen == "killed" else None
    if killed is not None:
        line = facts.line(killed)
        told = f"job.log:{killed}: {line.text.strip()[:140]}" if line is not None else f"job.log:{killed}"
        why = "no kernel in the case tells of an OOM kill" if facts.kernel else "no kernel log in the case to tell of an OOM kill"
        yield _rival("out_of_memory_error", share, told, why, known)
    for episode in facts.episodes if chosen not in _SAYS_ITSELF else ():
        frames = (f for raised in episode.raised for f in raised.frames)
        frame = next((f for f in frames if _DATA.search(f"{_FOLDERS.sub('', f.file)} {f.function}")), None)
        if frame is not None:
            told = f"job.log:{episode.first}: the traceback passes through {frame.file} ({frame.function})"
            yield _rival("dataset_loading_error", share, told, f"what was raised there is a {chosen}", known)
            break
    if chosen in _GPU and not facts.kernel:
        told = "a broken GPU or link shows like this, and the case holds no kernel log that could tell"
        yield _rival("cuda_error", share, told, "the job itself prints no device error", known)
        yield _rival("network_error", share, told, "the job itself prints no link error", known)


def _rival(reason: str, confidence: float, told: str, against: str, known: Mapping[str, Reason]) -> Rival:
    tests = known[reason].tests if reason in known else ("Ask the owner of the job.",)
    test = next(iter(tests), "Look at the lines cited for both.")
    return Rival(reason, round(confidence, 2), told, against, test)


def _line(finding: Finding) -> str:
    return f"{finding.file}:{finding.line}: {finding.text.strip()[:140]}"
