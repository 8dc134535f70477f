"""Weigh findings by where and when they stand: which could have ended the job, which were survived, which only follow.

The order of proof, strongest first:

1. Out-of-band evidence of the failing time (kernel, scheduler) for what the job shows: hardware, node, out of memory.
2. A cause in the job's own words: a traceback, a device error, a storage error; the earliest that nobody survived.
3. Symptoms: NCCL texts, refused and reset connections, signals. They name the reason only where nothing else does.
4. Cascades of those.

An error after which training went on was survived; it comes back into play only where it is hardware evidence and nothing else
explains the end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from assistant.content.reasons import Role
from assistant.diagnose.facts import Facts
from assistant.diagnose.findings import Finding
from assistant.diagnose.times import stamp

SYMPTOMS = frozenset({"nccl_timeout_error", "nccl_remote_error"})
"""Reasons that are never more than a symptom."""
HARDWARE = frozenset({"ecc_error", "nvlink_error", "node_failure", "network_error", "cuda_error"})
SPECIFIC = frozenset({"ecc_error", "nvlink_error", "node_failure"})
"""Hardware reasons that a more general text of the same failure often hides."""
EXTERNAL = frozenset({"preempted", "time_limit", "cancelled"})
ENDINGS = EXTERNAL | {"no_failure", "hang", "slow_job", "loss_spike", "unknown"}
"""Reasons that are told by how the job ended, not by an error; see `endings`."""
SURVIVED_STEPS = 3
"""Later steps after which an error counts as survived."""
KERNEL_EARLY = timedelta(minutes=15)
KERNEL_HISTORY = timedelta(hours=6)
LIVED_WITH = timedelta(hours=1)
TRAINED_ON = timedelta(minutes=20)
"""Steps this long after a kernel's message show that the job lived with it."""
ROLES = {Role.ROOT: 1.0, Role.SYMPTOM: 0.5, Role.CASCADE: 0.22, Role.CONFIRMATION: 0.0}
_GPU_LIKE = ("CUDA", "NCCL", "nccl", "Cuda", "cuda", "XID", "Xid", "SIGABRT", "SIGBUS", "Aborted", "AcceleratorError")


def weigh(findings: Sequence[Finding], facts: Facts) -> list[Finding]:
    """Return the findings that may count, with their factors set, strongest first within the order of lines."""
    kept = [finding for finding in findings if finding.role in ROLES]
    for finding in kept:
        finding.factor *= _role_factor(finding)
        if finding.file == "job.log":
            _weigh_place(finding, facts)
        else:
            _weigh_time(finding, facts)
    _confirm(kept)
    _explain(kept, facts)
    _prefer_specific(kept)
    _prefer_tracebacks(kept)
    return [finding for finding in kept if finding.factor > 0.01]


def _role_factor(finding: Finding) -> float:
    if finding.role is Role.ROOT and (
        finding.reason in SYMPTOMS or (finding.reason == "connection_error" and finding.weight < 0.6)
    ):
        return ROLES[Role.SYMPTOM]
    return ROLES[finding.role]


def symptomatic(finding: Finding) -> bool:
    """Tell whether a finding is no more than a symptom or cascade."""
    return _role_factor(finding) < 1.0


def _weigh_place(finding: Finding, facts: Facts) -> None:
    """Lower what was survived: training went on, or the same rank did."""
    later = facts.progress.after(finding.line)
    if finding.reason in ENDINGS:
        # a notice comes minutes ahead, and whoever watches prints between the steps
        if finding.line < facts.progress.leg or later > 20 * SURVIVED_STEPS:
            finding.factor *= 0.15
        return
    if later >= SURVIVED_STEPS:
        finding.factor *= 0.15 if not (finding.blames and finding.reason in HARDWARE) else 0.5
        finding.note = f"training went on for {later} steps after it"
        return
    episode = finding.episode
    if _handled(finding, facts):
        finding.factor *= 0.25
        finding.note = "the program says that it goes on"
    elif factor := _went_on(finding, facts):
        finding.factor *= factor
        finding.note = "the same process went on after it"
    elif episode is None and _QUOTED.search(finding.text) and not finding.orphan:
        finding.factor *= 0.5
        finding.note = "an exception that the program caught and quotes"
    elif episode is None and not finding.blames and _is_warning(finding.text):
        finding.factor *= 0.7
        finding.note = "printed as a warning"


def _is_warning(text: str) -> bool:
    head = text[:160]
    return "WARNING" in head or "Warning:" in head or "[WARN" in head or (" WARN " in head and "NCCL" not in head)


_GOES_ON = re.compile(
    r"\b(?:will (?:try again|retry)|retrying|trying again|try \d+ of \d+|continu(?:e|ing)\b|go(?:es|ing)? on\b|ignor(?:ed|ing)\b|fall(?:ing|s)? ?back|skipp?(?:ed|ing)\b|"
    r"non-?fatal|soft check|optional|best.effort|disabl(?:ed|ing)\b|offline mode|using \S+ instead|not critical|harmless|proceeding)",
    re.IGNORECASE,
)


_QUOTED = re.compile(r"(?<!^)\b[A-Z]\w*(?:Error|Exception)\((?:[\"'\[\d)]|b')|[(:] ?[A-Z]\w*(?:Error|Exception): .{0,120}\)")


def _handled(finding: Finding, facts: Facts) -> bool:
    """Tell whether the program itself says, on the line or around its traceback, that it goes on."""
    if finding.blames:
        return False
    episode = finding.episode
    if episode is None:
        return bool(_GOES_ON.search(finding.text))
    around = [*facts.between(episode.first - 1, episode.first - 1), *facts.between(episode.last + 1, episode.last + 2)]
    return any(
        _GOES_ON.search(line.text) and not _ends(line.text) and facts.streams.body(line.text).stream == episode.stream
        for line in around
    )


def _went_on(finding: Finding, facts: Facts) -> float:
    """Return a factor below 1 where the process printed ordinary lines after its error, 0 where it did not.

    A mark of the rank makes that certain. Without one the lines may be another rank's, so more are asked for and less follows.
    """
    if finding.blames:
        return 0.0
    needed, factor = (4, 0.3) if finding.rank is not None and finding.stream else (12, 0.5)
    if finding.episode is None and not finding.orphan:
        needed, factor = 2 * needed, 0.3
    ordinary, start = 0, finding.episode.last if finding.episode is not None else finding.line
    for line in facts.between(start + 1, start + 400):
        if finding.stream and facts.streams.body(line.text).stream != finding.stream:
            continue
        if _ends(line.text):
            return 0.0
        if line.text.strip() and not _troubled(line.text):
            ordinary += 1
            if ordinary >= needed:
                return factor
    return 0.0


_END_WORDS = (
    "ChildFailedError", "closing signal", "Killing subprocess", "exited with", "Exited with", "CANCELLED AT", "failed (exitcode", "Aborted", "core dumped",
    "exit code", "Terminating StepId", "Root Cause (first", "Exception ignored in", "atexit", "resource_tracker", "terminated with", "mpirun", "Killing process",
)  # fmt: skip
_TROUBLE = ("Error", "error", "ERROR", "Traceback", "  File ", "Exception", "WARN", "    ", "^^^", "fail", "frame #", "\t", "NCCL operations", "] Rank ", "[Rank ", " -> 6", " -> 2", " -> 3")


def _ends(text: str) -> bool:
    return any(word in text for word in _END_WORDS)


def _troubled(text: str) -> bool:
    return any(word in text for word in _TROUBLE)


def _weigh_time(finding: Finding, facts: Facts) -> None:
    """Drop what a kernel or the scheduler said long before this attempt."""
    year = facts.span.end.year if facts.span.end else None
    at = stamp(finding.text, year)
    if at is None:
        finding.factor *= 0.9
        return
    latest = max((line.at for line in facts.kernel if line.at), default=at) if finding.file == "dmesg.log" else at
    start, end = facts.span
    if start is not None and latest >= start and at < start - KERNEL_EARLY:
        finding.factor, finding.note = 0.0, "long before this attempt started"
    elif latest - at > KERNEL_HISTORY:
        finding.factor, finding.note = 0.0, "hours before the log ends"
    elif _lived_with(at, end, facts):
        finding.factor *= 0.3
        finding.note = "training went on after it"


def _lived_with(at: datetime, end: datetime | None, facts: Facts) -> bool:
    """Tell whether the job went on for long after a kernel's message."""
    trained = _last_trained(facts)
    if trained is not None:
        return trained - at > TRAINED_ON
    return bool(facts.progress.lines) and end is not None and end - at > LIVED_WITH


def _last_trained(facts: Facts) -> datetime | None:
    """Return when the last step was printed, as far as stamps tell."""
    last = facts.progress.last_line
    year = facts.span.end.year if facts.span.end else None
    return next((found for line in reversed(facts.between(max(1, last - 60), last)) if (found := stamp(line.text, year))), None)


def _confirm(findings: Sequence[Finding]) -> None:
    """Let a confirmation count as a root where something it confirms stands beside it."""
    killed = any(_was_killed(finding) for finding in findings)
    for finding in findings:
        if finding.role is Role.CONFIRMATION:
            same = any(
                other.reason == finding.reason and other.role is not Role.CONFIRMATION and other.factor > 0.1 for other in findings
            )
            if same or (finding.reason == "out_of_memory_error" and killed):
                finding.factor = 0.9
            elif finding.weight >= 0.6:
                finding.factor = 0.5


def _was_killed(finding: Finding) -> bool:
    return (
        finding.reason == "dataloader_killed" or "SIGKILL" in finding.text or "Killed" in finding.text or "signal 9" in finding.text
    )


def _explain(findings: Sequence[Finding], facts: Facts) -> None:
    """Raise out-of-band evidence, unless the job shows a cause of its own that it cannot explain."""
    own = [
        f
        for f in findings
        if f.file == "job.log" and not f.beside and not symptomatic(f) and f.strength >= 0.5 and f.reason not in ENDINGS
    ]
    for finding in findings:
        if not finding.beside or symptomatic(finding) or finding.factor < 0.6:
            continue
        unexplained = [other for other in own if not explains(finding.reason, other)]
        if unexplained and finding.reason not in ("node_failure", "out_of_memory_error"):
            finding.factor *= 0.55
            finding.note = f"does not explain the {unexplained[0].reason}"
        else:
            finding.factor += 0.45


def explains(reason: str, other: Finding) -> bool:
    """Tell whether a fault of this kind can make a job print that finding."""
    if other.reason == reason or other.reason in SYMPTOMS or other.reason in ("connection_error", "hang"):
        return True
    if reason in ("ecc_error", "nvlink_error", "cuda_error"):
        return other.reason in HARDWARE or any(word in other.text for word in _GPU_LIKE)
    if reason == "s3_storage_error":
        return other.reason in (
            "os_error",
            "file_not_found_error",
            "dataset_loading_error",
            "model_loading_error",
            "dataloader_killed",
            "permission_error",
        )
    if reason == "out_of_memory_error":
        return other.reason in ("dataloader_killed", "runtime_error", "cuda_error", "os_error")
    if reason == "node_failure":
        return other.reason in HARDWARE or other.reason in ("os_error", "s3_storage_error")
    if reason == "network_error":
        return other.reason in ("s3_storage_error", "network_error")
    return False


def _prefer_specific(findings: Sequence[Finding]) -> None:
    """A named hardware fault is behind the general CUDA and network texts that its neighbours print."""
    named = [f for f in findings if f.reason in SPECIFIC and not symptomatic(f) and f.strength >= 0.5]
    if named:
        for finding in named:
            finding.factor += 0.15
        memory = any(f.reason == "ecc_error" for f in named)
        for finding in findings:
            if memory and finding.reason == "node_failure" and finding.file == "dmesg.log":
                finding.factor *= 0.7
            if finding.reason in ("cuda_error", "network_error") and not finding.beside:
                finding.factor *= 0.7
                finding.note = finding.note or f"printed beside {named[0].reason}"


def _prefer_tracebacks(findings: Sequence[Finding]) -> None:
    """A process that died with a traceback tells more than a plain line before it."""
    died = {f.reason for f in findings if f.episode is not None and not symptomatic(f) and f.factor >= 0.9}
    if not died:
        return
    for finding in findings:
        plain = finding.episode is None and not finding.orphan and not finding.beside and not finding.blames
        if plain and finding.reason not in died and finding.reason not in HARDWARE and finding.reason not in ENDINGS:
            finding.factor *= 0.65
            finding.note = finding.note or "a plain line; a process died with another error"


def best_of(findings: Sequence[Finding]) -> Finding | None:
    """Return the cause: of those nearly as strong as the strongest, the earliest; the job log before side files."""
    counted = [finding for finding in findings if finding.strength > 0.05]
    if not counted:
        return None
    top = max(finding.strength for finding in counted)
    near = [finding for finding in counted if finding.strength >= top * 0.8 and finding.strength >= top - 0.2]
    beside = [finding for finding in near if finding.beside]
    pool = beside if beside and top > 1.0 else near
    return min(pool, key=lambda finding: (finding.file != pool[0].file, finding.line))


def by_reason(findings: Sequence[Finding]) -> dict[str, Finding]:
    """Return the strongest finding of each reason, strongest reason first."""
    best: dict[str, Finding] = {}
    for finding in sorted(findings, key=lambda f: -f.strength):
        best.setdefault(finding.reason, finding)
    return best
