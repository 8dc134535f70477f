"""Which line of a runtime ended its program, and whether a crash that a shell tells of is worth one start more.

Perl prints a warning in the very form of an error. Where an error stands behind it, that ended the program; a warning that is the
last word may have been fatal, and counts.

A signal that ends a command behind work that it had done says nothing of the input: the same command had come as far before. One
start from what it saved shows whether it comes again. Before any work the build or the input is to be looked at first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.rounds import last_count
from assistant.diagnose.weighing.findings import Finding
from assistant.records import Action

SAME = frozenset(("runtime_error", "unknown"))
"""Reasons by which other lines tell of the same crash."""
PERL, SHELL_SIGNAL = "runtime_error.perl", "runtime_error.shell_signal"
CRASH = "Segmentation fault"
"""Of the signals the one that as often comes of memory as of the input; a trap for numbers comes again at the same numbers."""
WARNED, SURVIVED, MOST_BEHIND_WARNING = 0.5, 0.15, 2
"""What is left of a warning behind which the same runtime tells of an error, and of what it outlived; lines behind a warning that
show that it did."""
_OF_SCHEDULER = re.compile(r"\s*(?:srun|slurmstepd)[:\w.-]*:? |\t|\s*main::|.* called at \S+ line \d|Execution of \S+ aborted")
_WARNINGS = re.compile(
    r"^(?:Use of uninitialized value|Argument \".{0,80}\" isn't numeric|Subroutine \S{1,80} redefined"
    r"|Name \".{1,80}\" used only once"
    r"|\"my\" variable|Odd number of elements|Useless use of|Unquoted string|Deep recursion on|Wide character in|Possible "
    r"|(?:readline|print|printf|close|write)\(\) on (?:closed|unopened)|Scalar value @|substr outside of string|splice\(\) offset"
    r"|Reference found where|Exiting \w+ via|Found = in conditional|Statement unlikely|Negative repeat count)"
)


def weigh_runtime_ends(findings: Sequence[Finding], facts: Facts) -> None:
    """Lower warnings of a runtime that an error of it follows, and let a crash behind work be tried once more."""
    perl = [finding for finding in findings if finding.rule == PERL and finding.factor > 0]
    warnings = [finding for finding in perl if _WARNINGS.match(facts.streams.body(finding.text).text)]
    errors = [finding for finding in perl if finding not in warnings]
    for finding in warnings:
        if any(error.line > finding.line for error in errors):
            finding.factor *= WARNED
            finding.note = finding.note or "a warning; the program went on to an error"
    for finding in perl:
        after = facts.between(finding.line + 1, facts.lines_total)
        own = [line for line in after if line.text.strip() and not _OF_SCHEDULER.match(line.text)]
        if (finding in warnings and len(own) >= MOST_BEHIND_WARNING) or last_count(after) is not None:
            finding.factor, finding.survived = finding.factor * SURVIVED, True
            finding.note = "the program went on behind it"
    other_causes = [
        f for f in findings if f.rule != SHELL_SIGNAL and f.reason not in SAME and f.file == "job.log" and f.strength >= WARNED
    ]
    for finding in findings:
        if finding.rule == SHELL_SIGNAL and CRASH in finding.text and not other_causes and _worked_before(finding, facts):
            finding.action = Action.RESTART_SAME_NODES


def _worked_before(finding: Finding, facts: Facts) -> bool:
    return 0 < facts.progress.last_line < finding.line or last_count(facts.between(1, finding.line - 1)) is not None
