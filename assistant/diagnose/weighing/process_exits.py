"""Which process ended by itself, what its shell went on with, and which peers only lost it.

A login script, a module that is loaded or a copy that misses its file may fail, with a traceback even, and the script goes on.

Ranks that do not wait for one another train on until srun has heard of an exit and has ended them. Steps behind the last words of
the task that exited by itself are theirs, and prove nothing; a process that dies of an exception may take seconds for that.

The first line of a rank that ended by a signal or a CUDA call of its own is most often a peer's ("remote process exited",
"connection closed by peer"): it is printed at once, and the launcher's word on the rank that died comes last. Where anything else
in the case tells of a cause of its own (an exception, a device error, a kernel's record), nothing changes: a signal may follow from
that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.content.reasons import Role
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.streams import TaskExit
from assistant.diagnose.readers.tracebacks import ORPHAN, OTHER_LANGUAGE, Episode, EpisodeKind
from assistant.diagnose.weighing.findings import ENDINGS, SYMPTOMS, Finding, symptomatic
from assistant.logs.lines import Line
from assistant.records import Action

LOOK_AHEAD = 400
"""Lines behind a command's error that are read for what ran next."""
FIRST_LINES = 6
"""Lines with words at the beginning of a log that may come from what runs before the program."""
VAGUE_WEIGHT = 0.5
"""Weight of an exception of which no more than its class is known."""
LINES_OF_OPENING = 10
"""Lines with words between the first line of a log and a traceback that is not of the same program."""
_TOOL = re.compile(
    r"\S{0,200}: line \d{1,6}: \S|(?:\S{0,60}/)?(?:cp|mv|rm|mkdir|rmdir|ln|ls|cat|tar|g?unzip|zip|chmod|chown|touch|rsync"
    r"|scp|find|sed|grep|awk|head|tail|source|cd|bash|sh|zsh|module|ml|export|ulimit|stat|df|du|tee|which|basename|dirname"
    r"|readlink|realpath): \S"
)
"""What a shell and its tools print of what they could not do."""
_TRACED = re.compile(r"\+{1,4} \S")
_EXCUSE = re.compile(r"\+{1,4} (?:true|:)\s*$")
"""A shell that traces its commands (`set -x`) runs the right side of `... || true`."""
_JOB_ENDED = re.compile(r"\*\*\* JOB \S+ ON \S+ CANCELLED AT")
_STEP_ENDED = re.compile(r"\*\*\* STEP \S+\.\d+ ON \S+ CANCELLED AT|^srun: Job step aborted")


def excused(line: int, facts: Facts) -> bool:
    """Tell whether a shell that traces its commands ran `|| true` right behind a line."""
    after = (entry for entry in facts.between(line + 1, line + 3) if entry.text.strip())
    first = next(after, None)
    return first is not None and _EXCUSE.match(first.text) is not None


def left_to_shell(finding: Finding, facts: Facts) -> bool:
    """Tell whether what failed is a command at the beginning of a batch script, which went on to another program.

    A traceback there is of such a command where a tool of the shell speaks behind it; that the script went on to a program of its
    own shows where the job was cancelled while a step ran, or where another program says itself why it failed.
    """
    if finding.blames or finding.external or finding.stream:
        return False
    episode = finding.episode
    first, last = (episode.first, episode.last) if episode is not None else (finding.line, finding.line)
    if episode is not None and episode.kind is not EpisodeKind.MAIN:
        return False
    if episode is None and _TOOL.match(finding.text) is None:
        return _before_all_else(finding, facts)
    after = [entry for entry in facts.between(last + 1, last + facts.look_ahead) if entry.text.strip()]
    if episode is not None and not (after and (_TOOL.match(after[0].text) or _TRACED.match(after[0].text))):
        return False
    opening = facts.between(max(1, facts.progress.leg), min(first - 1, facts.progress.leg + facts.look_ahead))
    inside = {number for earlier in facts.episodes if earlier.last < first for number in earlier.lines}
    before = [entry for entry in opening if entry.text.strip() and entry.number not in inside]
    if len(before) > FIRST_LINES:
        return False
    ended = any(_JOB_ENDED.search(entry.text) for entry in after) and any(_STEP_ENDED.search(entry.text) for entry in after)
    return ended or any(OTHER_LANGUAGE.match(entry.text) for entry in after[:LOOK_AHEAD])


def _before_all_else(finding: Finding, facts: Facts) -> bool:
    """Tell whether an exception without a traceback is the very first line, long before a program raises its own.

    A module that this program then misses may well be a consequence.
    """
    if finding.weight > VAGUE_WEIGHT or ORPHAN.match(finding.text) is None:
        return False
    if any(entry.text.strip() for entry in facts.between(1, finding.line - 1)):
        return False
    later = [episode for episode in facts.episodes if episode.kind is EpisodeKind.MAIN and episode.first > finding.line]
    words = [entry for entry in facts.between(finding.line + 1, later[-1].first) if entry.text.strip()] if later else []
    missing = bool(later) and any(raised.short in ("ModuleNotFoundError", "ImportError") for raised in later[-1].raised)
    return len(words) >= LINES_OF_OPENING and not missing


MOST_STEPS_OF_OTHERS = 20
"""Of others, between a traceback and the exit of its process: of what stands further back it went on."""


def first_task(facts: Facts) -> TaskExit | None:
    """Return what srun says of the first task of the last run that ended, where it exited by itself with a code; None else."""
    first = next(
        (task for task in facts.tasks if not facts.before_leg(task.line) and facts.later_steps(task.line) <= MOST_STEPS_OF_OTHERS),
        None,
    )
    return first if first is not None and first.by_itself and first.code and first.tasks else None


def exits_alone(episode: Episode | None, facts: Facts) -> bool:
    """Tell whether a traceback may be the last words of the task that exited first, though others have made steps behind it."""
    first = first_task(facts)
    if episode is None or episode.kind is not EpisodeKind.MAIN or first is None:
        return False
    others_ended = any(task.victim and task.line > first.line for task in facts.tasks)
    # with srun a rank is a task, unless another launcher runs below it: then it is not known whose traceback it is
    marks = {mark for mark in (episode.task, episode.rank) if mark is not None}
    own = marks <= {*first.tasks} and not _steps_of(episode, facts)
    if not others_ended or not own or facts.before_leg(episode.first) or facts.later_steps(episode.last) > MOST_STEPS_OF_OTHERS:
        return False
    later = (traceback for traceback in (*facts.episodes, *facts.cut_off) if episode.last < traceback.first < first.line)
    return not any(traceback.kind is EpisodeKind.MAIN and traceback.stream == episode.stream for traceback in later)


def _steps_of(episode: Episode, facts: Facts) -> bool:
    """Tell whether the stream of a traceback has made steps behind it; nobody can tell where lines have no marks."""
    if not episode.stream:
        return False
    lines = (facts.line(number) for number in facts.progress.lines if number > episode.last)
    return any(line is not None and facts.streams.body(line.text).stream == episode.stream for line in lines)


OWN_END_WEIGHT = 0.88
PEER_WEIGHT = 0.35
"""What is left of what a peer says that lost it."""
CUDA_CALL = "CUDA call"
SIGNAL_CODES = (-4, -6, -7, -8, -9, -11)
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
        own = Finding("unknown", Role.SYMPTOM, OWN_END_WEIGHT, "job.log", first.number, first.text, "own_ends.signal")
        findings.append(own)
    if own.reason in ENDINGS or own.reason in SYMPTOMS:
        own.reason = _ROOTS.get(ends[own.line], "runtime_error")
    own.role, own.weight, own.factor, own.survived = Role.ROOT, max(own.weight, OWN_END_WEIGHT), 1.0, False
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
        if ended.line > last and ended.first and ended.code in SIGNAL_CODES and not (ended.code == -6 and aborts):
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


_SHELL_LINE = re.compile(r": line (\d+): .*(?:command not found|No such file or directory|Permission denied|unbound variable)")


def shell_went_on(finding: Finding, facts: Facts) -> bool:
    """Tell whether a shell that could not do one command printed something of a later line of its script."""
    own = _SHELL_LINE.search(finding.text) if finding.episode is None else None
    if own is None:
        return False
    later = (re.search(r": line (\d+): ", line.text) for line in facts.between(finding.line + 1, finding.line + 40))
    return any(match is not None and int(match.group(1)) > int(own.group(1)) for match in later)
