"""Findings from beside the job: what kernels, the scheduler and health probes say about this job and its nodes.

They outrank what the job printed about the same failure, so care is taken that they are about it: of a scheduler's log only lines
of this job or its nodes count, and a device code means what its table says. A line of `probes.log` is
`<node> <status> <probe> <weight>: <text>`. Probes look after the failure, so they tell what is broken now: that counts where they
suffice to take the node out of service, and confirms where they do not.

Kernel lines that the job itself printed are quoted lines. A health check, an epilog or `dmesg` in a batch script prints true
ones, a user's script may print old, quoted or invented ones, about any machine and any time. So they count less than the kernel's
own log, fall where that log or the job's own failure says otherwise, and never name a node unless something else about the job
fits them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from assistant.content.reasons import Role, SignatureSource
from assistant.diagnose.case import numbered
from assistant.diagnose.facts import Facts
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.readers.kernel import CodeMeaning, KernelLine, combined
from assistant.diagnose.readers.streams import expand, stamp
from assistant.diagnose.weighing.findings import (
    ENDINGS,
    HARDWARE,
    SYMPTOMS,
    Finding,
    episodes_to_weigh,
    explains,
    of_job,
    of_line,
    split,
    strongest,
    symptomatic,
)
from assistant.diagnose.weighing.retries import of_retries
from assistant.records import Citation, Job, NodeFinding
from assistant.redact import head_of
from assistant.rules.matching import groups

OF_THE_JOB = "scheduler"
"""In place of a file: the scheduler's words on why the job is in its state, as one line."""
DETECTED = timedelta(minutes=10)
"""A controller notices a dead node after its time-out, and ends the job or sets the node down, in either order."""
_DOWN = re.compile(
    r"\b(?:[Nn]odes?[ =/]|NodeName=)?(?P<node>[A-Za-z](?<![\w.-]{2})[\w.-]{0,252}+)(?<![.-]).{0,40}?"
    r"(?:not responding|setting DOWN|set to DOWN|\bDOWN\b|has failed|unexpectedly rebooted)"
)
_NODE_FAILED = re.compile(r"[Nn]ode_?(?:[Dd]own|[Ff]ail(?:ed|ure)?)\W+(?P<node>[A-Za-z][\w.-]*)")


def failed_nodes(facts: Facts) -> tuple[NodeFinding, ...]:
    """Return the one node of the job that the scheduler's records call failed; empty where they name none, or several."""
    job = facts.case.job
    if job is None:
        return ()
    node_match = _NODE_FAILED.search(job.reason)
    if node_match is not None and node_match["node"] in job.nodes:
        cited = Citation(OF_THE_JOB, 1, job.reason, "failed node")
        return (NodeFinding(node_match["node"], f"the scheduler ended the job over it: {job.reason}", (cited,)),)
    nodes: dict[str, Citation] = {}
    for line in facts.scheduler:
        match = _DOWN.search(line.text)
        if match is not None and match["node"] in job.nodes and during(line.text, job):
            nodes.setdefault(match["node"], Citation("slurmctld.log", line.number, line.text, "called down"))
    if len(nodes) != 1:
        return ()
    node, citation = next(iter(nodes.items()))
    return (NodeFinding(node, f"the scheduler says: {head_of(citation.text.strip(), 160)}", (citation,)),)


def during(text: str, job: Job) -> bool:
    """Tell whether a line of the scheduler's log may be of the time in which a job ran, or of the minutes after.

    Whether the scheduler prints local time or UTC is not said: it is outside where it is so by either.
    """
    at = stamp(text, job.ended.year if job.ended is not None else None)
    if at is None:
        return True
    for start, end in ((job.started, job.ended), (_local(job.started), _local(job.ended))):
        early = start is not None and at < start.replace(tzinfo=None)
        late = end is not None and at > end.replace(tzinfo=None) + DETECTED
        if not (early or late):
            return True
    return False


def _local(at: datetime | None) -> datetime | None:
    return at.astimezone() if at is not None else None


REASONS_OF_PROBES: Mapping[str, str] = {
    "gpu_memory": "ecc_error",
    "kernel_log": "cuda_error",
    "gpu_count": "cuda_error",
    "gpu_pcie": "cuda_error",
    "pci": "cuda_error",
    "gpu_fabric": "nvlink_error",
    "nvlink": "nvlink_error",
    "nvlink_errors": "nvlink_error",
    "infiniband": "network_error",
    "infiniband_errors": "network_error",
    "network_log": "network_error",
    "hardware_log": "node_failure",
    "amd": "cuda_error",
}
"""The reason for which what a probe found would stand; probes of load, space or time stand for none."""
_LINE = re.compile(r"(?P<node>\S+) critical (?P<probe>\w+) (?P<weight>\w+): (?P<text>.*)")
SUFFICES = "faulty"
"""In place of the weight: the node may be taken out of service for what was found."""


def as_text(checked: Mapping[str, Any]) -> str:
    """Return what `check_nodes` found as lines, the nodes in order; empty when nothing is wrong.

    Args:
        checked: Its answer.
    """
    nodes, faulty = checked.get("nodes"), set(checked.get("faulty", ()))
    lines = []
    for node, results in sorted(nodes.items()) if isinstance(nodes, Mapping) else ():
        for row in results.get("probes", ()):
            if row.get("status") not in ("critical", "warning"):
                continue
            strong = row.get("status") == "critical" and node in faulty and row.get("weight") in ("strong", "counts")
            weight = SUFFICES if strong else row.get("weight", "counts")
            text = " ".join(str(row.get("text", "")).split())
            lines.append(f"{node} {row['status']} {row.get('probe')} {weight}: {text}")
    return "\n".join(lines)


def of_probes(facts: Facts) -> Iterator[Finding]:
    """Yield what the probes say of the job's own nodes."""
    for line in numbered(facts.case.probes) if facts.case.probes else ():
        match = _LINE.fullmatch(line.text)
        reason = REASONS_OF_PROBES.get(match["probe"]) if match else None
        if match is None or reason is None or (facts.places.hosts and not facts.places.knows(match["node"])):
            continue
        suffices = match["weight"] == SUFFICES
        yield Finding(
            reason,
            Role.ROOT if suffices else Role.CONFIRMATION,
            0.85 if suffices else 0.5,
            "probes.log",
            line.number,
            line.text,
            f"probe {match['probe']}",
            host=match["node"],
            blames=suffices,
            external=True,
        )


_NODE_OF_LINE = re.compile(r"\b(?:[Nn]odes?|NodeName|NodeList|[Hh]osts?)[ =:]+([A-Za-z][\w.\[\],-]*\d[\w.\[\],-]*)")


_JOB_OF_LINE = re.compile(r"\bJob_?Id=(\d{1,18})|\bStepId=(\d{1,18})|\bJOB (\d{1,18})|\bjob[ _=](\d{3,})", re.IGNORECASE)


def external_findings(facts: Facts, knowledge: Knowledge) -> list[Finding]:
    """Return all findings of a case: the job's own, then what kernels, scheduler and probes say, each in order."""
    return [
        *of_job(facts, knowledge),
        *of_retries(facts),
        *of_kernel(facts, knowledge),
        *of_scheduler(facts, knowledge),
        *of_probes(facts),
    ]


def of_kernel(facts: Facts, knowledge: Knowledge) -> Iterator[Finding]:
    """Yield what the kernels say; a line with a device code means what the code's table says."""
    signatures, herrings, _ = split(facts.kernel_hits)
    coded = [line for line in facts.kernel if line.event is not None and line.number not in facts.foreign]
    meanings = {line.number: meaning for line, meaning in zip(coded, combined(coded, knowledge.site), strict=True)}
    for line in facts.kernel:
        if line.number in facts.foreign and line.event is not None:
            continue
        meaning = meanings.get(line.number)
        if meaning is not None and meaning.reason in knowledge.reasons:
            if meaning.reason not in knowledge.hidden:
                yield _of_code(line, meaning)
            continue
        weighed = [
            s
            for s in episodes_to_weigh(signatures.get(line.number, ()), herrings.get(line.number, ()))
            if SignatureSource.KERNEL in s.where
        ]
        for signature in strongest(weighed):
            finding = of_line(signature, line.number, line.text, facts, "dmesg.log")
            node = groups(signature, line.text).get("node")
            finding.host, finding.external, finding.rank, finding.task = node or line.host, True, None, None
            yield finding


def _of_code(line: KernelLine, meaning: CodeMeaning) -> Finding:
    return Finding(
        meaning.reason,
        meaning.role,
        meaning.weight,
        "dmesg.log",
        line.number,
        line.text,
        meaning.rule,
        host=line.host,
        blames=meaning.blames,
        action=meaning.action,
        external=True,
    )


def of_scheduler(facts: Facts, knowledge: Knowledge) -> Iterator[Finding]:
    """Yield what the scheduler says about this job and its nodes."""
    signatures, herrings, _ = split(facts.scheduler_hits)
    for line in facts.scheduler:
        weighed = [
            s
            for s in episodes_to_weigh(signatures.get(line.number, ()), herrings.get(line.number, ()))
            if SignatureSource.SCHEDULER in s.where
        ]
        if not weighed or not _ours(line.text, facts):
            continue
        for signature in strongest(weighed):
            finding = of_line(signature, line.number, line.text, facts, "slurmctld.log")
            finding.external = True
            finding.host = finding.host or _named_node(line.text, facts)
            yield finding


def _ours(text: str, facts: Facts) -> bool:
    """Tell whether a line of the scheduler's log is about this job or one of its nodes."""
    if match := _JOB_OF_LINE.search(text):
        number = next(group for group in match.groups() if group)
        return facts.job_id is not None and number == facts.job_id
    if facts.case.job is not None and not during(text, facts.case.job):
        return False
    node_match = _NODE_OF_LINE.search(text)
    if node_match is None or not facts.places.hosts:
        return node_match is None or not facts.case.has_log
    return _named_node(text, facts) is not None


def _named_node(text: str, facts: Facts) -> str | None:
    match = _NODE_OF_LINE.search(text)
    if match is None:
        return None
    hosts = expand(match.group(1).rstrip(",.:"))
    about_us = (job := _JOB_OF_LINE.search(text)) is not None and facts.job_id in job.groups()
    return next((node for node in hosts if about_us or facts.places.knows(node)), None)


_KERNEL_WORDS = re.compile(
    r"\bNVRM\b|\bS?Xid\b|\bEDAC\b|\bmce: |\[Hardware Error\]|\bkernel: |amdgpu [0-9a-f]{4}:|\bAER: |\bpcieport\b"
    r"|mlx5_core [0-9a-f]{4}:|Kernel panic|watchdog: BUG|soft lockup|\bipmi\w*\[|\bMachine [Cc]heck\b"
)
_DIED = ("Aborted", "Segm", "Bus error", "core dumped", "SIGABRT", "SIGBUS", "SIGSEGV", "SIGKILL", "Killed")
REFUTED = 0.25
UNPROVEN = 0.35
"""What is left where the job failed in a way that such a fault does not explain."""


def quoted_kernel_lines(finding: Finding) -> bool:
    """Tell whether a finding is what a kernel would say, printed by the job."""
    return finding.file == "job.log" and finding.reason in HARDWARE and bool(_KERNEL_WORDS.search(finding.text))


def weigh_quoted_lines(findings: Sequence[Finding], facts: Facts) -> None:
    """Lower what the kernels' own logs do not confirm, and what does not explain how the job failed."""
    own = [
        f for f in findings if f.file == "job.log" and not quoted_kernel_lines(f) and not symptomatic(f) and f.reason not in ENDINGS
    ]
    for finding in findings:
        if not quoted_kernel_lines(finding):
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
    hosts = {line.host.split(".")[0] for line in facts.kernel if line.host}
    about_heard = finding.host is None or finding.host.split(".")[0] in hosts
    return bool(facts.kernel) and about_heard and not any(f.reason == finding.reason and f.file == "dmesg.log" for f in findings)


def borne_out(finding: Finding, findings: Sequence[Finding], facts: Facts) -> bool:
    """Tell whether something else about the job fits a kernel's words in its output, so that they may name a node."""
    if not quoted_kernel_lines(finding):
        return True
    if _refuted(finding, findings, facts):
        return False
    if any(f.reason == finding.reason and f.file != "job.log" and f.factor > 0.1 for f in findings):
        return True
    fits = any(
        not quoted_kernel_lines(f)
        and f.factor > 0.05
        and (f.reason in HARDWARE or f.reason in SYMPTOMS or f.reason == "connection_error")
        for f in findings
    )
    died = any(exit.code is not None and exit.code not in (0, 1, 2, -15, -2) for exit in facts.exits)
    return fits or died or any(any(word in task.how for word in _DIED) for task in facts.tasks)
