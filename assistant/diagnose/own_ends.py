"""Tell a rank that ended by a signal or a CUDA call of its own from the peers that lost it: it is the cause, whoever speaks first.

The first line of such a failure is most often a peer's ("remote process exited", "connection closed by peer"): it is printed at
once, and the launcher's word on the rank that died comes last. Where anything else in the case tells of a cause of its own (an
exception, a device error, a kernel's record), nothing changes: a signal may follow from that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.content.reasons import Role
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.streams import TaskExit
from assistant.diagnose.weighing.findings import ENDINGS, SYMPTOMS, Finding, symptomatic
from assistant.logs.lines import Line
from assistant.records import Action

WEIGHT = 0.88
PEER_WEIGHT = 0.35
"""What is left of what a peer says that lost it."""
CUDA_CALL = "CUDA call"
CODES = (-4, -6, -7, -8, -9, -11)
_SIGNAL = re.compile(r"Segmentation fault|Bus error|Illegal instruction|Floating point exception|Aborted|Killed")
_TORN_DOWN = re.compile(r"_step_signal: Terminating|CANCELLED AT|Force Terminated|Sending SIG(?:TERM|KILL)|forcing termination")
_MPI = re.compile(r"exited on signal (?:4|6|7|8|9|11)\b")
_MPI_ENDS = (("signal 9", "Killed"), ("signal 7", "Bus error"))
_CUDA_CALL = re.compile(r"unhandled cuda error|ncclUnhandledCudaError")
"""What NCCL says of a call on the rank's own device, and never of a peer."""
_ABORTS_ALL = re.compile(
    r"[Ww]atchdog|collective operation timeout|terminate called|SIGABRT.{0,40}NCCL|NCCL_ASYNC_ERROR"
    r"|taking the entire process down"
)
"""By which ranks abort that have lost another one, or waited too long for it."""
_OF_PEER = re.compile(
    r"closed by (?:remote )?peer|reset by peer|remote (?:process|peer|host) (?:exited|closed|died)|Broken pipe|got 0 bytes"
    r"|Connection was (?:likely )?closed|remote server shutdown|Remote operation error|Endpoint (?:is not connected|timeout)"
    r"|send failed: (?:Endpoint|Connection)|socketProgress|ncclRemoteError|Connection refused|connection (?:lost|closed|aborted)"
    r"|Remote access error|transport retry|endpoint_error|peer (?:process )?(?:is )?(?:gone|dead|died|unreachable)"
    r"|ECONNRESET|EPIPE",
    re.IGNORECASE,
)
_TRANSPORT = re.compile(r"transport retry|retry count exceeded|endpoint_error|Endpoint timeout|fatal transport", re.IGNORECASE)
"""What a transport says of itself, over which it ends its own process by SIGABRT."""
_ROOTS = {"Killed": "killed", "Bus error": "os_error"}


def prefer_own_ends(findings: list[Finding], facts: Facts) -> None:
    """Let the word on a rank that ended by a signal count as the cause where all else is what its peers say.

    One that no signature knows is added to the findings.
    """
    ends = _own_ends(facts)
    if not ends or any(_has_own_cause(finding, ends) for finding in findings):
        return
    of_peers = [finding for finding in findings if finding.line not in ends and _of_peer(finding)]
    at = [finding for finding in findings if finding.file == "job.log" and finding.line in ends and finding.role is not Role.ROOT]
    own = min(at, key=lambda finding: (finding.reason in ENDINGS, finding.reason in SYMPTOMS, finding.line), default=None)
    if not of_peers and own is not None and own.reason == "runtime_error" and _is_one_of_several(own, facts):
        own.action = Action.RESTART_SAME_NODES  # as below: nobody says why, and it had made its steps before
    if not of_peers or (own is None and any(finding.line in ends for finding in findings)):
        return
    if own is None:
        first = facts.line(min(ends))
        if first is None:
            return
        own = Finding("unknown", Role.SYMPTOM, WEIGHT, "job.log", first.number, first.text, "own_ends.signal")
        findings.append(own)
    if own.reason in ENDINGS or own.reason in SYMPTOMS:
        own.reason = _ROOTS.get(ends[own.line], "runtime_error")
    own.role, own.weight, own.factor, own.survived = Role.ROOT, max(own.weight, WEIGHT), 1.0, False
    if own.reason != "killed":
        own.action = Action.RESTART_SAME_NODES  # once: whether it comes again shows whether it is the program's
    by = f"by a {CUDA_CALL} of its own" if ends[own.line] == CUDA_CALL else "by a signal"
    for finding in of_peers:
        finding.factor *= PEER_WEIGHT
        finding.note = f"it only lost a peer that ended {by} (job.log:{own.line})"


def _is_one_of_several(own: Finding, facts: Facts) -> bool:
    """Tell whether a finding is the end of a single rank of a training that had made steps, whose other ranks lived on."""
    alone = any(task.line == own.line and len(task.tasks) == 1 for task in facts.tasks)
    lived = any(_TORN_DOWN.search(line.text) for line in facts.between(own.line + 1, facts.lines_total))
    return alone and lived and 0 < facts.progress.last_line < own.line


def _own_ends(facts: Facts) -> dict[int, str]:
    """Return the lines that say of single ranks that a signal ended them, and of which kind, before anybody ended the others."""
    last = facts.progress.last_line
    lines = facts.between(last + 1, facts.lines_total)
    torn = next((line.number for line in lines if _TORN_DOWN.search(line.text)), facts.lines_total + 1)
    aborts = any(_ABORTS_ALL.search(line.text) for line in lines)
    lost = [line for line in lines if _TRANSPORT.search(line.text)]
    ends: dict[int, str] = {}
    for task in facts.tasks:
        match = _SIGNAL.match(task.how)
        if match is None or task.line <= last or len(task.tasks) > 1:
            continue
        if (match[0] == "Killed" and task.line > torn) or (match[0] == "Aborted" and (aborts or _gave_up(task, lost))):
            continue
        ends[task.line] = match[0]
    for ended in facts.exits:
        if ended.line > last and ended.first and ended.code in CODES and not (ended.code == -6 and aborts):
            ends[ended.line] = {-9: "Killed", -7: "Bus error"}.get(ended.code, "Segmentation fault")
    for line in lines:
        if _MPI.search(line.text) and not (aborts and "signal 6" in line.text):
            ends[line.number] = next((how for word, how in _MPI_ENDS if word in line.text), "Segmentation fault")
        elif _CUDA_CALL.search(line.text):
            ends[line.number] = CUDA_CALL
    return ends


def _gave_up(task: TaskExit, lost: Sequence[Line]) -> bool:
    """Tell whether the node of a task that aborted had lost its transport before: UCX and libfabric abort over that."""
    return any(task.host and task.host in line.text and line.number < task.line for line in lost)


def _has_own_cause(finding: Finding, ends: dict[int, str]) -> bool:
    """Tell whether a finding is a cause that a signal may follow from, and no word of a peer."""
    if finding.line in ends and finding.file == "job.log":
        return False
    counts = finding.strength >= 0.5 and not symptomatic(finding) and finding.reason not in ENDINGS
    return counts and not _of_peer(finding)


def _of_peer(finding: Finding) -> bool:
    if finding.file != "job.log" or finding.reason in ENDINGS:
        return False
    texts = [finding.text, *(text for _, text in finding.more)]
    if finding.episode is not None and finding.episode.raised:
        raised = finding.episode.raised[-1]
        texts += [raised.text, *(text for _, text in raised.more)]
    return finding.reason in SYMPTOMS or any(_OF_PEER.search(text) for text in texts)
