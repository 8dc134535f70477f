"""Tell kernel words that stand in a job's own output: anybody's script can print them, about any machine and any time.

A health check, an epilog or `dmesg` in a batch script prints true ones, a user's script may print old, quoted or invented ones. So
they count less than the kernel's own log, fall where that log or the job's own failure says otherwise, and never name a node
unless something else about the job fits them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.diagnose.facts import Facts
from assistant.diagnose.weighing.findings import ENDINGS, HARDWARE, SYMPTOMS, Finding, explains, symptomatic

_KERNEL_WORDS = re.compile(
    r"\bNVRM\b|\bS?Xid\b|\bEDAC\b|\bmce: |\[Hardware Error\]|\bkernel: |amdgpu [0-9a-f]{4}:|\bAER: |\bpcieport\b"
    r"|mlx5_core [0-9a-f]{4}:|Kernel panic|watchdog: BUG|soft lockup|\bipmi\w*\[|\bMachine [Cc]heck\b"
)
_DIED = ("Aborted", "Segm", "Bus error", "core dumped", "SIGABRT", "SIGBUS", "SIGSEGV", "SIGKILL", "Killed")
REFUTED = 0.25
UNPROVEN = 0.35
"""What is left where the job failed in a way that such a fault does not explain."""


def hearsay(finding: Finding) -> bool:
    """Tell whether a finding is what a kernel would say, printed by the job."""
    return finding.file == "job.log" and finding.reason in HARDWARE and bool(_KERNEL_WORDS.search(finding.text))


def weigh_hearsay(findings: Sequence[Finding], facts: Facts) -> None:
    """Lower what the kernels' own logs do not confirm, and what does not explain how the job failed."""
    own = [f for f in findings if f.file == "job.log" and not hearsay(f) and not symptomatic(f) and f.reason not in ENDINGS]
    for finding in findings:
        if not hearsay(finding):
            continue
        unexplained = [f for f in own if f.strength >= 0.45 and not explains(finding.reason, f)]
        if _refuted(finding, findings, facts):
            finding.factor *= REFUTED
            finding.note = "the kernel's own log does not say it"
        elif unexplained and finding.reason != "node_failure":
            finding.factor *= UNPROVEN
            finding.note = f"printed by the job itself, and does not explain the {unexplained[0].reason}"


def _refuted(finding: Finding, findings: Sequence[Finding], facts: Facts) -> bool:
    """Tell whether the kernel that is spoken of has a log in the case, and says nothing of the kind."""
    heard = {line.host.split(".")[0] for line in facts.kernel if line.host}
    about_heard = finding.host is None or finding.host.split(".")[0] in heard
    return bool(facts.kernel) and about_heard and not any(f.reason == finding.reason and f.file == "dmesg.log" for f in findings)


def borne_out(finding: Finding, findings: Sequence[Finding], facts: Facts) -> bool:
    """Tell whether something else about the job fits a kernel's words in its output, so that they may name a node."""
    if not hearsay(finding):
        return True
    if _refuted(finding, findings, facts):
        return False
    if any(f.reason == finding.reason and f.file != "job.log" and f.factor > 0.1 for f in findings):
        return True
    fits = any(
        not hearsay(f) and f.factor > 0.05 and (f.reason in HARDWARE or f.reason in SYMPTOMS or f.reason == "connection_error")
        for f in findings
    )
    died = any(told.code is not None and told.code not in (0, 1, 2, -15, -2) for told in facts.exits)
    return fits or died or any(any(word in task.how for word in _DIED) for task in facts.tasks)
