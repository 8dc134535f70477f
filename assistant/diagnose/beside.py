"""Findings from beside the job: what kernels and the scheduler say about this job and its nodes.

They outrank what the job printed about the same failure, so care is taken that they are about it: of a scheduler's log only lines
of this job or its nodes count, and a device code means what its table says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from assistant.content.reasons import SignatureSource
from assistant.diagnose.facts import Facts
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.probed import of_probes
from assistant.diagnose.readers.kernel import CodeMeaning, KernelLine, combined
from assistant.diagnose.readers.streams import expand
from assistant.diagnose.recorded import during
from assistant.diagnose.weighing.findings import Finding, episodes_to_weigh, of_job, of_line, split, strongest
from assistant.rules.matching import groups

_NODE_OF_LINE = re.compile(r"\b(?:[Nn]odes?|NodeName|NodeList|[Hh]osts?)[ =:]+([A-Za-z][\w.\[\],-]*\d[\w.\[\],-]*)")


_JOB_OF_LINE = re.compile(r"\bJob_?Id=(\d{1,18})|\bStepId=(\d{1,18})|\bJOB (\d{1,18})|\bjob[ _=](\d{3,})", re.IGNORECASE)


def find(facts: Facts, knowledge: Knowledge) -> list[Finding]:
    """Return all findings of a case: the job's own, then what kernels, scheduler and probes say, each in order."""
    return [*of_job(facts, knowledge), *of_kernel(facts, knowledge), *of_scheduler(facts, knowledge), *of_probes(facts)]


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
        kept = [
            s
            for s in episodes_to_weigh(signatures.get(line.number, ()), herrings.get(line.number, ()))
            if SignatureSource.KERNEL in s.where
        ]
        for signature in strongest(kept):
            finding = of_line(signature, line.number, line.text, facts, "dmesg.log")
            named = groups(signature, line.text).get("node")
            finding.host, finding.beside, finding.rank, finding.task = named or line.host, True, None, None
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
        beside=True,
    )


def of_scheduler(facts: Facts, knowledge: Knowledge) -> Iterator[Finding]:
    """Yield what the scheduler says about this job and its nodes."""
    signatures, herrings, _ = split(facts.scheduler_hits)
    for line in facts.scheduler:
        kept = [
            s
            for s in episodes_to_weigh(signatures.get(line.number, ()), herrings.get(line.number, ()))
            if SignatureSource.SCHEDULER in s.where
        ]
        if not kept or not _ours(line.text, facts):
            continue
        for signature in strongest(kept):
            finding = of_line(signature, line.number, line.text, facts, "slurmctld.log")
            finding.beside = True
            finding.host = finding.host or _named_node(line.text, facts)
            yield finding


def _ours(text: str, facts: Facts) -> bool:
    """Tell whether a line of the scheduler's log is about this job or one of its nodes."""
    if match := _JOB_OF_LINE.search(text):
        number = next(group for group in match.groups() if group)
        return facts.job_id is not None and number == facts.job_id
    if facts.case.job is not None and not during(text, facts.case.job):
        return False
    named = _NODE_OF_LINE.search(text)
    if named is None or not facts.places.hosts:
        return named is None or not facts.case.has_log
    return _named_node(text, facts) is not None


def _named_node(text: str, facts: Facts) -> str | None:
    match = _NODE_OF_LINE.search(text)
    if match is None:
        return None
    named = expand(match.group(1).rstrip(",.:"))
    about_us = (job := _JOB_OF_LINE.search(text)) is not None and facts.job_id in job.groups()
    return next((node for node in named if about_us or facts.places.knows(node)), None)
