"""Weigh findings by where and when they stand: which ended the job, and which were survived.

The order of proof, strongest first: what kernels and the scheduler say of the failing time, for what the job shows; a cause in
the job's own words, the earliest that nobody survived; symptoms (NCCL texts, reset connections, signals), which name the reason
only where nothing else does; cascades of those. An error after which training went on was survived; it comes back into play only
where it is hardware evidence and nothing else explains the end.

Of runtimes other than Python's (`weigh_runtime_ends`): Perl prints a warning in the very form of an error. Where an error stands
behind it, that ended the program; a warning that is the last word may have been fatal, and counts. A signal that ends a command
behind work that it had done says nothing of the input, for the same command had come as far before: one start from what it saved
shows whether it comes again. Before any work the build or the input is to be looked at first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from assistant.content.reasons import Role
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.kernel import KernelLine
from assistant.diagnose.readers.rounds import last_count
from assistant.diagnose.readers.streams import stamp
from assistant.diagnose.readers.tracebacks import Episode, EpisodeKind
from assistant.diagnose.weighing.external_findings import weigh_quoted_lines
from assistant.diagnose.weighing.findings import (
    ENDINGS,
    HARDWARE,
    ROLES,
    SPECIFIC,
    Finding,
    booted_within,
    confirm_workers,
    explains,
    is_boot,
    role_factor,
    symptomatic,
)
from assistant.diagnose.weighing.process_exits import left_to_shell, prefer_own_ends
from assistant.diagnose.weighing.retries import USED_UP, prefer_retries
from assistant.diagnose.weighing.survival import of_warning, says_error, weigh_place
from assistant.records import Action

KERNEL_EARLY = timedelta(minutes=15)
KERNEL_HISTORY = timedelta(hours=6)
OTHER_CLOCK = timedelta(hours=30)
NEAR_END = timedelta(minutes=6)
BACK_SOON = timedelta(minutes=2)
_NODE_GONE = re.compile(
    r"\b(?:link|carrier)\b.{0,12}\b(?:down|lost)|not responding|timed out|lost connection|connection .{0,40} (?:was )?lost",
    re.IGNORECASE,
)
_BACK = re.compile(r"\b[Ll]ink\b.{0,12}\bup\b|\bOK\b|[Rr]estored|[Rr]econnected|carrier (?:acquired|on)|becomes ready")
_DEVICE = re.compile(
    r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d|(?<!\d)\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}"
    r"|\b(?:ib|eth|ens|enp|bond|mlx5_)\w+|server \S+|(?<!\S)\S{1,64}?-(?:OST|MDT)\w+"
)
TOLD_BY_TOOLS = frozenset({"os_error", "permission_error", "s3_storage_error"})
"""What a child tool prints itself before Python says no more than that it failed."""
MISSES = frozenset({"file_not_found_error", "model_loading_error", "dataset_loading_error"})
"""What a program meets that needs the output of one that has failed before it in the same script."""
_FRONT = re.compile(
    r"\b[Ss]ee (?:the )?(?:root cause|stack ?trace|errors?|exception) (?:for the root cause )?above"
    r"|See stack trace for the root cause"
)
"""Words of the front of a program whose other process failed."""
_LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python|<frozen|/bin/")
LEAST = 0.14
"""What is weaker was survived, recovered from or handled: no cause, even where nothing else is there."""
LONG_BEFORE = 25
"""Lines with words between a plain line and a traceback that show that the program lived with the first."""
FEWEST_SURVIVED = 5
"""Times that a line was survived after which the next is taken for no cause, either."""
LIVED_WITH = timedelta(hours=1)
TRAINED_ON = timedelta(minutes=20)
"""Steps this long after a kernel's message show that the job lived with it."""


def weigh(findings: Sequence[Finding], facts: Facts) -> list[Finding]:
    """Return the findings that may count, with their factors set, strongest first within the order of lines."""
    weighed = [finding for finding in findings if finding.role in ROLES]
    for finding in weighed:
        finding.factor *= role_factor(finding)
        if finding.file == "dmesg.log" and finding.host is not None and facts.places.foreign(finding.host):
            finding.factor, finding.note = 0.0, "the kernel of a node that is not of this job"
        elif finding.file == "dmesg.log" and finding.line in facts.foreign:
            finding.factor, finding.note = 0.0, "of another time, or of another job on the node"
        elif finding.rule.startswith(USED_UP):
            continue  # to stand at the end is what it was looked for by
        elif finding.file == "job.log":
            weigh_place(finding, facts)
        else:
            _weigh_time(finding, facts)
    _weigh_notices(weighed)
    confirm_workers(weighed)
    _confirm(weighed)
    weigh_quoted_lines(weighed, facts)
    _explain(weighed, facts)
    _prefer_specific(weighed)
    _leave_to_the_shell(weighed, facts)
    _prefer_told(weighed)
    _prefer_tracebacks(weighed, facts)
    _prefer_first_program(weighed, facts)
    _believe_last_exception(weighed, facts)
    prefer_own_ends(weighed, facts)
    prefer_retries(weighed, facts)
    weigh_runtime_ends(weighed, facts)
    return [finding for finding in weighed if finding.factor > 0.01]


def _weigh_notices(findings: Sequence[Finding]) -> None:
    """Lower the last line of a rule that matched over and over while the work went on: a notice that each start prints."""
    survived = Counter(f.rule for f in findings if f.survived and f.episode is None and not f.orphan)
    for finding in findings:
        is_notice = finding.episode is None and not finding.orphan and not finding.survived and not finding.blames
        if is_notice and survived[finding.rule] >= FEWEST_SURVIVED and finding.reason not in ENDINGS:
            finding.factor, finding.survived = finding.factor * 0.3, True
            finding.note = "printed before, and the work went on each time"


def _weigh_time(finding: Finding, facts: Facts) -> None:
    """Drop what a kernel or the scheduler said long before this attempt."""
    year = facts.span.end.year if facts.span.end else None
    at = _time_of(finding, year, facts)
    if is_boot(finding.text):
        if not booted_within(finding, at, facts):
            finding.factor, finding.note = 0.0, "the node booted before this attempt"
            return
        if at is not None and facts.span.start is not None:  # nothing else boots a node under a job
            finding.role, finding.factor = Role.ROOT, 1.0
    if at is None:
        _weigh_uptime(finding, facts)
        return
    latest = max((line.at for line in facts.kernel if line.at), default=at) if finding.file == "dmesg.log" else at
    start, end = facts.span
    if start is not None and end is not None and start > end:
        start = None  # the job's clock was set back: its first stamp tells nothing
    if start is not None and latest >= start and at < start - KERNEL_EARLY:
        finding.factor, finding.note = 0.0, "long before this attempt started"
    elif latest - at > KERNEL_HISTORY:
        finding.factor, finding.note = 0.0, "hours before the log ends"
    elif _came_back(finding, at, facts):
        finding.factor *= 0.1
        finding.note = "it came back within two minutes"
    elif end is not None and abs(latest - end) > OTHER_CLOCK:
        finding.factor *= 0.8
        finding.note = "by a clock that differs from the job's"
    elif _lived_with(at, end, facts) and not (latest - at <= NEAR_END and _other_zone(at, end)):
        finding.factor *= 0.3
        finding.note = "training went on after it"


def _time_of(finding: Finding, year: int | None, facts: Facts) -> datetime | None:
    """Return when a line was printed, by the job's clock as far as that is known."""
    if finding.file != "dmesg.log":
        return stamp(finding.text, year)
    place = finding.line - facts.case.kernel_from
    return facts.kernel[place].at if 0 <= place < len(facts.kernel) else None


def _weigh_uptime(finding: Finding, facts: Facts) -> None:
    """Order what a kernel says by the seconds since its boot, where it tells no other time."""
    finding.factor *= 0.9
    own = [line for line in facts.kernel if line.uptime is not None] if finding.file == "dmesg.log" else []
    at = next((line.uptime for line in own if line.number == finding.line), None)
    if at is None:
        return
    same = [line for line in own if line.host == finding.host and line.uptime is not None]
    if max(line.uptime or 0.0 for line in same) - at > KERNEL_HISTORY.total_seconds():
        finding.factor, finding.note = 0.0, "hours before the log ends"
    elif _well_again(finding, (line for line in same if (line.uptime or 0.0) - at <= BACK_SOON.total_seconds())):
        finding.factor *= 0.1
        finding.note = "it came back within two minutes"


def _came_back(finding: Finding, at: datetime, facts: Facts) -> bool:
    """Tell whether the same link, disk or server reported itself well soon after."""
    return finding.file == "dmesg.log" and _well_again(
        finding, (line for line in facts.kernel if line.at is not None and line.at - at <= BACK_SOON)
    )


def _well_again(finding: Finding, soon: Iterable[KernelLine]) -> bool:
    if not _NODE_GONE.search(finding.text):
        return False
    words = set(_DEVICE.findall(finding.text))
    return any(line.number > finding.line and _BACK.search(line.text) and words & set(_DEVICE.findall(line.text)) for line in soon)


def _other_zone(at: datetime, end: datetime | None) -> bool:
    """Tell whether a time is the job's end in another time zone: away by whole half hours, nearly."""
    if end is None:
        return False
    away = abs((end - at).total_seconds())
    off = (away + NEAR_END.total_seconds() / 2) % 1800
    return 1800 <= away <= 14 * 3600 and off <= NEAR_END.total_seconds()


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
    return next((time for line in reversed(facts.between(max(1, last - 60), last)) if (time := stamp(line.text, year))), None)


def _confirm(findings: Sequence[Finding]) -> None:
    """Let a confirmation count as a root where something it confirms stands beside it."""
    killed = any(_was_killed(finding) for finding in findings)
    for finding in findings:
        if finding.role is Role.CONFIRMATION:
            same = any(
                proof.reason == finding.reason and proof.role is not Role.CONFIRMATION and proof.factor > 0.1 for proof in findings
            )
            if same or (finding.reason == "out_of_memory_error" and killed):
                finding.factor = 0.9
            elif finding.weight >= 0.6:
                finding.factor = 0.5


def _was_killed(finding: Finding) -> bool:
    return (
        finding.reason in ("dataloader_killed", "killed")
        or "SIGKILL" in finding.text
        or "Killed" in finding.text
        or "signal 9" in finding.text
    )


def _explain(findings: Sequence[Finding], facts: Facts) -> None:
    """Raise out-of-band evidence, unless the job shows a cause of its own that it cannot explain."""
    own = [
        f
        for f in findings
        if f.file == "job.log" and not f.external and not symptomatic(f) and f.strength >= 0.5 and f.reason not in ENDINGS
    ]
    unhurt = not _hurt(findings, facts)
    for finding in findings:
        programs_own = finding.reason == "cuda_error" and not finding.blames
        if unhurt and finding.file == "dmesg.log" and (programs_own or symptomatic(finding)):
            finding.factor *= 0.1
            finding.note = "nothing in the job shows it"
        if not finding.external or symptomatic(finding) or finding.factor < 0.6:
            continue
        unexplained = [own_finding for own_finding in own if not explains(finding.reason, own_finding)]
        if unexplained and finding.reason not in ("node_failure", "out_of_memory_error"):
            finding.factor *= 0.55
            finding.note = f"does not explain the {unexplained[0].reason}"
        else:
            finding.factor += 0.45


def _hurt(findings: Sequence[Finding], facts: Facts) -> bool:
    """Tell whether the job itself shows that it failed, or shows nothing by which to tell."""
    has_error = any(f.file == "job.log" and f.strength >= 0.2 and f.reason not in ENDINGS for f in findings)
    return has_error or not facts.progress.lines or bool(facts.exits or facts.tasks)


def _prefer_specific(findings: Sequence[Finding]) -> None:
    """A named hardware fault is behind the general CUDA and network texts that its neighbours print."""
    specific = [f for f in findings if f.reason in SPECIFIC and not symptomatic(f) and f.strength >= 0.5]
    if specific:
        for finding in specific:
            finding.factor += 0.15
        memory = any(f.reason == "ecc_error" for f in specific)
        for finding in findings:
            if memory and finding.reason == "node_failure" and finding.file == "dmesg.log":
                finding.factor *= 0.7
            if finding.reason in ("cuda_error", "network_error") and not finding.external:
                finding.factor *= 0.7
                finding.note = finding.note or f"printed beside {specific[0].reason}"


def _leave_to_the_shell(findings: Sequence[Finding], facts: Facts) -> None:
    """Lower what failed before the job's own program: the shell went on to one that was ended or failed by itself."""
    for finding in findings:
        if finding.file == "job.log" and finding.reason not in ENDINGS | HARDWARE and left_to_shell(finding, facts):
            finding.factor, finding.survived = finding.factor * 0.15, True
            finding.note = "the shell went on after it to another program"


def _believe_last_exception(findings: Sequence[Finding], facts: Facts) -> None:
    """Let an exception that is mostly a consequence count where it ended the program and nothing else tells of a cause."""
    if any(finding.strength > LEAST for finding in findings):
        return
    for finding in findings:
        last = finding.episode is not None and finding.episode.kind is EpisodeKind.MAIN and not finding.survived
        if last and finding.role is Role.CASCADE and not facts.before_leg(finding.line):
            finding.factor = ROLES[Role.SYMPTOM]


def _prefer_told(findings: Sequence[Finding]) -> None:
    """Lower an exception that only says that its cause stands above, where an error of another reason does."""
    fronts = [finding for finding in findings if finding.episode is not None and _FRONT.search(finding.text)]
    for front in fronts:
        before = (f for f in findings if f.file == front.file and f.line < front.line and f not in fronts)
        if any(says_error(f.text) and not symptomatic(f) and f.strength > LEAST for f in before):
            front.factor *= 0.4
            front.note = "it only says that its cause stands above"


def _prefer_tracebacks(findings: Sequence[Finding], facts: Facts) -> None:
    """A process that died with a traceback tells more than a plain line before it, all the more than a warning long before."""
    died = {f.reason for f in findings if f.episode is not None and not symptomatic(f) and f.factor >= 0.9}
    if not died:
        return
    first = min(f.episode.first for f in findings if f.episode is not None and not symptomatic(f) and f.factor >= 0.9)
    if died == {"called_process_error"}:
        died |= TOLD_BY_TOOLS
    for finding in findings:
        plain = finding.episode is None and not finding.orphan and not finding.external and not finding.blames
        if plain and finding.reason not in died and finding.reason not in HARDWARE and finding.reason not in ENDINGS:
            # of a warning the program says itself that it goes on, and long after another line it did
            mild = finding.file == "job.log" and not says_error(finding.text) and _lines_between(finding.line, first, facts)
            finding.factor *= 0.4 if mild and (mild >= LONG_BEFORE or of_warning(finding.line, facts)) else 0.65
            finding.note = finding.note or "a plain line; a process died with another error"


def _lines_between(line: int, later: int, facts: Facts) -> int:
    """Return how many lines with words stand between two lines, at most `LONG_BEFORE`; 0 where the second is not later."""
    if later <= line:
        return 0
    words = (1 for entry in facts.between(line + 1, min(later - 1, line + 4 * LONG_BEFORE)) if entry.text.strip())
    return max(1, min(sum(words), LONG_BEFORE))


def _prefer_first_program(findings: Sequence[Finding], facts: Facts) -> None:
    """A program that misses a file behind another one that trained and died misses what that one did not leave."""
    died = [episode for episode in facts.episodes if episode.kind is EpisodeKind.MAIN and facts.progress.after(episode.last) == 0]
    for finding in findings:
        own = _main_file(finding.episode)
        if finding.reason not in MISSES or not own or finding.episode not in died:
            continue
        first = next((episode for episode in died if episode.last < finding.line and _main_file(episode) not in ("", own)), None)
        if first is not None and 0 < facts.progress.last_line < first.first:
            finding.factor *= 0.1
            finding.note = f"{own.rpartition('/')[2]} runs behind {_main_file(first).rpartition('/')[2]}, which has failed"


def _main_file(episode: Episode | None) -> str:
    """Return the program that a traceback began in; empty where that is a library's."""
    frames = episode.raised[-1].frames if episode is not None and episode.raised else []
    return frames[0].file if frames and not _LIBRARY.search(frames[0].file) else ""


def best_of(findings: Sequence[Finding]) -> Finding | None:
    """Return the cause: of those nearly as strong as the strongest, the earliest; the job log before side files."""
    counted = [finding for finding in findings if finding.strength > LEAST]
    if not counted:
        return None
    top = max(finding.strength for finding in counted)
    near = [finding for finding in counted if finding.strength >= top * 0.8 and finding.strength >= top - 0.2]
    near = [finding for finding in near if not finding.survived] or near
    external = [finding for finding in near if finding.external]
    pool = external if external and top > 1.0 else near
    return min(pool, key=lambda finding: (finding.file != pool[0].file, finding.line))


def by_reason(findings: Sequence[Finding]) -> dict[str, Finding]:
    """Return the strongest finding of each reason, strongest reason first."""
    best: dict[str, Finding] = {}
    for finding in sorted(findings, key=lambda f: -f.strength):
        best.setdefault(finding.reason, finding)
    return best


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
