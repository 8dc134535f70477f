"""Tell how an attempt ended where no error tells it: finished, cancelled, out of time, preempted, silent, diverged, running.

What somebody outside did to the job stands beside errors that followed from it and beside errors that made him do it. So each
ending knows the line at which it shows: errors after it are teardown, causes before it outrank it, and a person who cancelled a
job that had hung or diverged is answered with that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

from assistant.content.reasons import Role
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.streams import is_end_of_step, stamp
from assistant.diagnose.readers.tracebacks import EpisodeKind
from assistant.diagnose.weighing.external_findings import OF_THE_JOB, failed_nodes
from assistant.diagnose.weighing.findings import EXTERNAL, HARDWARE, ROLES, SYMPTOMS, Finding, symptomatic
from assistant.diagnose.weighing.loss import died_of_numbers
from assistant.diagnose.weighing.survival import SURVIVED_STEPS, cut_off
from assistant.diagnose.weighing.training_failure import ends_of_training
from assistant.logs.spikes import Spike
from assistant.records import Citation, EventKind, JobState, NodeFinding
from assistant.records.jobs import LAUNCH_FAILURE, OUTPUT_FAILED

START_ONLY = frozenset({"import_error", "argument_error", "syntax_error"})
"""Errors that a program meets when it begins, never when it is torn down."""
SILENCE = timedelta(minutes=30)
"""A job that printed nothing for this long before it was ended had hung; collectives time out after 10 to 30 minutes."""
SIGKILL = 9
KILLED_CODE = 128 + SIGKILL
"""What a shell returns of a program that SIGKILL ended."""
FEW_LINES = 60
"""Lines behind the end of a training after which something else than its end may stand still."""
SHELL_PROGRAMS = frozenset(("bash", "sh", "dash", "zsh", "ksh", "sleep", "tail", "cat", "tee", "slurmstepd"))
"""What a batch script that only waits runs."""
QUIET = timedelta(minutes=20)
"""Longer than a validation or a checkpoint takes, as a rule."""
_CLOCK = re.compile(r"(?<![\d:.-])([01]\d|2[0-3]):([0-5]\d)(?::[0-5]\d)?(?![\d:])")
_NUMERIC = re.compile(r"\bnan\b|\binf\b|loss|overflow|diverg|scale", re.IGNORECASE)
_ALARM = re.compile(
    r"\b(?:ERROR|FATAL|CRITICAL|[Ff]atal)\b"
    r"|\b(?:lost|evicted|removed|exceeded|reclaimed|is (?:down|gone)|no longer|expired|impaired)\b"
)
_STATES = {
    JobState.CANCELLED: "cancelled",
    JobState.TIMEOUT: "time_limit",
    JobState.PREEMPTED: "preempted",
    JobState.COMPLETED: "no_failure",
}


@dataclass(frozen=True, slots=True)
class Termination:
    """How an attempt of a job ended, with the lines that show it."""

    reason: str
    weight: float
    citations: tuple[Citation, ...]
    why: str
    line: int = 0
    """Line of job.log from which on errors are only teardown; 0 when there is none."""
    nodes: tuple[NodeFinding, ...] = ()
    """Nodes that the scheduler's own records name as failed."""


_NODE_SAID = "node_failure.moab"
"""The signature of a scheduler that names a failed node as the reason of what it did to a job."""


def decide(errors: Sequence[Finding], of_endings: Sequence[Finding], spike: Spike | None, facts: Facts) -> Termination | None:
    """Return the ending that explains the attempt better than its errors do, None when an error does.

    Args:
        errors: Weighed findings of errors.
        of_endings: Weighed findings of endings.
        spike: A loss spike that did not recover.
        facts: All else.
    """
    event = facts.case.event.kind if facts.case.event is not None else None
    causes = [finding for finding in errors if not symptomatic(finding) and finding.strength >= 0.3]
    if event is EventKind.SLOW_JOB and not causes:
        return Termination("slow_job", 0.75, _last_progress(facts), "a watch saw it slow down")
    if event is EventKind.LOSS_SPIKE or (spike is not None and _diverged(causes, spike)):
        return _spiked(spike, of_endings, facts)
    if (died := died_of_numbers(of_endings, causes, facts)) is not None:
        return Termination("loss_spike", died.weight, (_cite(died),), "its own numbers ended it", died.line)
    outside = _outside(of_endings, causes, errors, facts)
    if outside is not None:
        return outside if outside.reason not in ("cancelled", "time_limit") else _reacted(outside, errors, of_endings, facts)
    recorded = _recorded(causes, errors, facts)
    if recorded is not None:
        return recorded
    completed = _completed(of_endings, causes, facts)
    if completed is not None:
        return completed
    still = event is EventKind.HANG and not program_failed(errors, facts)
    if still and not program_gone(facts) and _programs_seen(facts):
        causes = [cause for cause in causes if not _outlived_before(cause, errors, facts)]
    if causes and not still:
        return None
    if still and (over := _trained_to_its_end(facts)) is not None:
        return over
    if still and program_gone(facts) and not causes:
        return Termination(
            "unknown", 0.5, _last_progress(facts), "its program has ended without a word of why, and its script still runs"
        )
    return _silent(errors, causes, of_endings, facts, watched_hang=still)


def _trained_to_its_end(facts: Facts) -> Termination | None:
    """Return that the training of a job that stands still is over, as its log says; None where much was said since.

    What stands still then is no training, and a restart would do nothing but train what is trained.
    """
    end = next(ends_of_training(facts), None)
    if end is None or end.since > FEW_LINES:
        return None
    cited = (Citation("job.log", end.line.number, end.line.text, "training over"),)
    return Termination("no_failure", 0.85, cited, "its training is over, and the job still runs", end.line.number)


def program_gone(facts: Facts) -> bool:
    """Tell whether the nodes of a job that stands still run no more than a batch script that waits."""
    event = facts.case.event
    return event is not None and event.kind is EventKind.HANG and bool(event.detail.get("gone"))


def program_failed(errors: Sequence[Finding], facts: Facts) -> bool:
    """Tell whether a job that stands still is one whose program has failed while its batch script goes on.

    So it is where its log ends with a traceback that nothing follows, where its launcher says that the process of a traceback has
    exited, or where its nodes run no program of it any more, and an error stands behind its last step. Where its nodes do run one,
    the log alone proves no end.
    """
    event = facts.case.event
    if event is None or event.kind is not EventKind.HANG:
        return False
    over = program_gone(facts) or (_died(facts) and not (_programs_seen(facts) and _may_work(facts))) or _exited(facts)
    return over and any(
        error.strength >= 0.15 and error.file == "job.log" and error.line > facts.progress.last_line for error in errors
    )


def _may_work(facts: Facts) -> bool:
    """Tell whether the program whose traceback ends the log may still run as another rank; not what only keeps a job alive."""
    files = _raising_files(facts)
    busy = {name for name in _programs(facts) if name.split(" ")[0] not in SHELL_PROGRAMS}
    return not files or any(not name.startswith("python") or " " not in name or _python_file(name) in files for name in busy)


def _exited(facts: Facts) -> bool:
    """Tell whether srun says that a process behind the last step exited by itself, and no rank of what raised there runs on.

    What is left then keeps a cluster of its own up, such as the daemons of Ray, and waits for a program that does not come back.
    """
    lines = [task.line for task in facts.tasks if task.how.startswith("Exited with exit code") and not task.victim]
    # the last step of the file that srun's words stand in: of two files without times the order of lines tells nothing
    stepped: dict[str, int] = {_file_of(line, facts): line for line in facts.progress.lines}
    lines = [line for line in lines if line > stepped.get(_file_of(line, facts), 0)]
    files = _raising_files(facts, after=facts.progress.last_line)
    return bool(lines and files) and not any(_python_file(name) in files for name in _programs(facts))


def _file_of(line: int, facts: Facts) -> str:
    return facts.combined.place(line)[0] if facts.combined is not None else ""


def _programs(facts: Facts) -> set[str]:
    """Return the names of the programs that the nodes ran when the job stood still."""
    event = facts.case.event
    return {str(name) for names in (event.detail.get("programs") or {}).values() for name in names} if event is not None else set()


def _raising_files(facts: Facts, *, after: int = 0) -> set[str]:
    """Return the names of the files that the last traceback of a program goes through; none where it stands before a line."""
    last = max(
        (episode for episode in facts.episodes if episode.kind is EpisodeKind.MAIN), key=lambda episode: episode.last, default=None
    )
    raised = last.raised if last is not None and last.first > after else ()
    return {frame.file.rpartition("/")[2] for episode in raised for frame in episode.frames}


def _python_file(name: str) -> str:
    """Return the file of a program that Python runs, also of one that is named as a module: `python3 verl.trainer.main_ppo`."""
    program = name.partition(" ")[2]
    return program if program.endswith(".py") else f"{program.rpartition('.')[2]}.py"


def _programs_seen(facts: Facts) -> bool:
    """Tell whether the nodes said what runs on them when the job stood still."""
    return facts.case.event is not None and bool(facts.case.event.detail.get("programs"))


def _outlived_before(cause: Finding, errors: Sequence[Finding], facts: Facts) -> bool:
    """Tell whether the program has trained on after the very same error before: it catches it."""
    return cause.file == "job.log" and any(
        error.reason == cause.reason
        and error.line < cause.line
        and facts.progress.after(error.line) > facts.progress.after(cause.line)
        for error in errors
        if error.file == "job.log"
    )


def _diverged(causes: Sequence[Finding], spike: Spike) -> bool:
    """Tell whether the spike is the cause: no error explains the end, or only one about the numbers themselves."""
    grave = [f for f in causes if not _NUMERIC.search(f.text) or (f.line < spike.line and f.file == "job.log")]
    return not grave or all(finding.strength < 0.5 for finding in grave)


def _spiked(spike: Spike | None, of_endings: Sequence[Finding], facts: Facts) -> Termination:
    divergences = [finding for finding in of_endings if finding.reason == "loss_spike"]
    citations = [_cite(finding) for finding in divergences[:1]]
    if spike is not None:
        logged = [facts.line(line) for line in spike.lines] if facts.metric_file == "job.log" else []
        measured = [Citation("job.log", line.number, line.text, "spike") for line in logged if line is not None]
        if facts.metric_file != "job.log":
            measured = [Citation(facts.metric_file, line, "", "spike") for line in spike.lines]
        citations = [*measured, *citations]
        at = f"step {spike.step}" if not spike.counted else f"line {spike.line}"
        if spike.no_gradients:
            why = f"each gradient norm is NaN from {at} on, so nothing is learned any more (loss {spike.height:.3g})"
            return Termination("loss_spike", spike.weight, tuple(citations), why, spike.line)
        why = (
            f"the loss left {spike.level:.3g} at {at} and did not come back (last {spike.height:.3g})"
            if not math.isnan(spike.level)
            else f"the loss is no number from {at} on, the first that is logged"
        )
        return Termination("loss_spike", spike.weight, tuple(citations), why, spike.line)
    return Termination("loss_spike", 0.7, tuple(citations), "a watch saw the loss leave its level")


def _outside(
    of_endings: Sequence[Finding], causes: Sequence[Finding], errors: Sequence[Finding], facts: Facts
) -> Termination | None:
    """Return what somebody outside did, unless a cause stands before it."""
    stops = [
        f for f in of_endings if f.reason in EXTERNAL and not symptomatic(f) and not is_end_of_step(f.text) and f.strength > 0.25
    ]
    stops.sort(key=lambda f: -f.strength)
    state = _STATES.get(facts.case.job.state) if facts.case.job is not None else None
    for finding in stops:
        if finding.reason == "cancelled" and any(c.rule == _NODE_SAID for c in causes):
            continue  # the scheduler deletes the job of a node that failed, and says so
        timed_out = finding.reason == "time_limit"
        before = [c for c in causes if c.external or (c.line < finding.line and facts.progress.after(c.line) < SURVIVED_STEPS)]
        # a job that came to its time limit was alive until then: what stood at its start did not end it
        before = [c for c in before if not timed_out or c.episode is not None or c.orphan or c.blames or c.external]
        enough = 0.6 if timed_out else 0.45
        if before and finding.file == "job.log" and max(c.strength for c in before) >= enough:
            continue
        if finding.file == "job.log" and any(c.reason in START_ONLY and c.line > finding.line and not c.survived for c in causes):
            continue  # whoever cannot import a module or does not understand his arguments has been started since
        if causes and finding.file != "job.log" and max(c.strength for c in causes) >= 0.45:
            continue
        same = sorted(
            (f for f in of_endings if f.reason == finding.reason and f.strength > 0.1),
            key=lambda f: (f.file != finding.file, f.file == "job.log" and facts.before_leg(f.line), f.line),
        )
        return Termination(
            finding.reason,
            finding.weight,
            tuple(_cite(stop) for stop in same[:4]),
            "the log says so",
            finding.line if finding.file == "job.log" else 0,
        )
    if state in EXTERNAL and not causes:
        return Termination(str(state), 0.8, (), f"the scheduler says {state}")
    weak = [f for f in of_endings if f.reason in EXTERNAL and f.role in ROLES and f.strength > 0.1 and not facts.before_leg(f.line)]
    if weak and not causes and not [e for e in errors if e.line < weak[0].line and e.strength > 0.2] and not _failed(facts):
        return Termination(
            weak[0].reason, 0.6 * weak[0].weight + 0.2, tuple(_cite(f) for f in weak[:3]), "nothing failed before it", weak[0].line
        )
    return None


def _recorded(causes: Sequence[Finding], errors: Sequence[Finding], facts: Facts) -> Termination | None:
    """Return what the scheduler alone says, where nothing else explains the end: a node failed, memory ran out, SIGKILL."""
    job = facts.case.job
    state = job.state if job is not None else None
    if state is JobState.FAILED and not facts.lines and (unopened := _unopened(facts)) is not None:
        return unopened
    if job is not None and state is JobState.FAILED and (job.signal == SIGKILL or job.exit_code == KILLED_CODE):
        silent = not causes and not errors
        why = f"the scheduler says that signal {SIGKILL} ended it, and its log does not say who sent that"
        return Termination("killed", 0.5, _last_progress(facts), why) if silent else None
    if causes or state not in (JobState.NODE_FAIL, JobState.OUT_OF_MEMORY):
        return None
    if state is JobState.OUT_OF_MEMORY:
        return Termination("out_of_memory_error", 0.75, (), "the scheduler says that it went beyond its memory")
    nodes = failed_nodes(facts)
    cited = tuple(citation for node in nodes for citation in node.citations)
    return Termination("node_failure", 0.8, cited, "the scheduler says that a node of it failed", nodes=nodes)


def _unopened(facts: Facts) -> Termination | None:
    """Return that Slurm could not open the output of a job that never ran: `JobLaunchFailure`, exit code `0:53`."""
    job = facts.case.job
    if job is None or job.signal != OUTPUT_FAILED or (job.reason and job.reason != LAUNCH_FAILURE):
        return None
    citations = (Citation(OF_THE_JOB, 1, job.reason, "launch failure"),) if job.reason else ()
    return Termination("output_file_error", 0.9, citations, "; ".join(facts.case.unread[:2]) or f"its output is {job.log}")


def _failed(facts: Facts) -> bool:
    """Tell whether a launcher reports a process of the last run that failed by itself."""
    own = [task.line for task in facts.tasks if task.by_itself]
    own += [end.line for end in facts.exits if not end.victim and end.code not in (None, -2, -15)]
    return any(not facts.before_leg(line) for line in own)


def _reacted(outside: Termination, errors: Sequence[Finding], of_endings: Sequence[Finding], facts: Facts) -> Termination | None:
    """Return what a person, or the clock, ended the job over, if that shows; None when an error before it does."""
    earlier = [
        e
        for e in errors
        if e.reason == "nccl_timeout_error" and e.role is not Role.CASCADE and e.file == "job.log" and e.line < outside.line
    ]
    if earlier:
        return None
    hung = [
        f
        for f in of_endings
        if f.reason == "hang" and f.file == "job.log" and (f.line < outside.line or not outside.line) and f.strength > 0.2
    ]
    if hung:
        return Termination(
            "hang",
            0.8,
            (*(_cite(f) for f in hung[:2]), *_last_progress(facts), *outside.citations[:1]),
            "no progress before it was ended",
            hung[0].line,
        )
    silent_for = _silence(outside.line, facts)
    if silent_for is not None and silent_for >= SILENCE:
        minutes = int(silent_for.total_seconds() // 60)
        return Termination(
            "hang",
            0.7,
            (*_last_progress(facts), *outside.citations[:2]),
            f"it had printed nothing for {minutes} minutes when it was ended",
            outside.line,
        )
    return outside


def _silence(line: int, facts: Facts) -> timedelta | None:
    """Return how long before a line the last sign of training stands."""
    ended, last = facts.line(line), facts.line(facts.progress.last_line)
    if ended is None or last is None or last.number >= line or facts.progress.learnt:
        return None
    year = facts.span.end.year if facts.span.end else None
    at_end = stamp(ended.text, year)
    at_last = next(
        (time for back in reversed(facts.between(max(1, line - 40), line - 1)) if (time := stamp(back.text, year))), None
    )
    return at_end - at_last if at_end is not None and at_last is not None else None


def _completed(of_endings: Sequence[Finding], causes: Sequence[Finding], facts: Facts) -> Termination | None:
    state = facts.case.job.state if facts.case.job is not None else None
    good_ends = [f for f in of_endings if f.reason == "no_failure" and f.file == "job.log" and not symptomatic(f)]
    good_ends = [f for f in good_ends if f.line >= facts.progress.last_line - 30 or f.weight >= 0.9]
    if not good_ends and state is not JobState.COMPLETED:
        return None
    if facts.case.job is not None and facts.case.job.ended_badly:
        return None  # what a log says of a good end is no match for a scheduler that saw a bad one
    first = min((f.line for f in good_ends), default=0)
    failed = [c for c in causes if c.strength >= 0.5 and c.file == "job.log" and (c.line < first or c.episode is not None)]
    clean = state is JobState.COMPLETED or any(_clean_exit(f.text) for f in good_ends)
    if failed and not clean:
        return None
    weight = max((f.weight for f in good_ends), default=0.8)
    return Termination(
        "no_failure", weight, tuple(_cite(f) for f in sorted(good_ends, key=lambda f: -f.weight)[:3]), "it finished", first
    )


def _clean_exit(text: str) -> bool:
    return bool(re.search(r"exit(?:ed)?(?: with)?(?: code| codes| status|_code)?s?[ :=]+0\b|COMPLETED", text))


def _silent(
    errors: Sequence[Finding], causes: Sequence[Finding], of_endings: Sequence[Finding], facts: Facts, *, watched_hang: bool
) -> Termination | None:
    """Return a hang, or that all is well, where no error explains anything."""
    hung = [f for f in of_endings if f.reason in ("hang", "slow_job") and f.strength > 0.2]
    hung = [
        f
        for f in hung
        if f.file != "job.log" or facts.progress.after(f.line) < 3 or (f.reason == "slow_job" and not symptomatic(f))
    ]
    symptoms = [e for e in errors if e.strength >= 0.15 and (not _plain(e) or e.strength >= 0.3)]
    hardware = [c for c in causes if c.reason in HARDWARE or c.external]
    if watched_hang and not hardware and not [s for s in symptoms if s.reason == "nccl_timeout_error"] and not causes:
        return Termination("hang", 0.85, (*(_cite(f) for f in hung[:2]), *_last_progress(facts)), "a watch saw no progress")
    if causes or (symptoms and not _dump_only(hung, symptoms)):
        return None
    if hung:
        first = min(hung, key=lambda f: (-f.strength, f.line))
        ordered = [first, *(f for f in hung if f is not first and f.reason == first.reason)]
        cited = [*ordered[:2], ordered[-1]] if len(ordered) > 2 else ordered
        return Termination(
            first.reason, first.weight, (*(_cite(f) for f in cited), *_last_progress(facts)), "no progress and no error", first.line
        )
    quiet = _quiet_tail(facts)
    if quiet is not None:
        minutes, watched = quiet
        return Termination(
            "hang",
            0.75,
            (*watched[:1], *_last_progress(facts), *watched[1:]),
            f"{minutes} minutes without a step, and no error",
            watched[0].line,
        )
    running = facts.case.job is not None and facts.case.job.state is JobState.RUNNING
    if facts.case.job is not None and facts.case.job.ended_badly:
        return None
    if facts.progress.lines and not facts.exits and not facts.tasks and not cut_off(facts):
        fresh = facts.lines_total - facts.progress.last_line <= 60
        if running or (fresh and not _died(facts)):
            weight = 0.75 if running else 0.3 if _alarmed(facts) else 0.65
            return Termination("no_failure", weight, _last_progress(facts), "the log ends while training goes on")
    return None


def _died(facts: Facts) -> bool:
    """Tell whether a traceback that nothing follows stands behind the last step, whatever its exception means."""
    last = max(
        (
            episode.last
            for episode in facts.episodes
            if episode.kind is EpisodeKind.MAIN and episode.first > facts.progress.last_line
        ),
        default=0,
    )
    return last > 0 and not any(line.text.strip() for line in facts.between(last + 1, facts.lines_total))


def _alarmed(facts: Facts) -> bool:
    """Tell whether something after the last step sounds like an end, in words that nothing here knows."""
    tail = facts.between(facts.progress.last_line + 1, facts.lines_total)
    return any(_ALARM.search(line.text) for line in tail[-20:])


def _plain(finding: Finding) -> bool:
    """Tell whether a finding is a plain line about software, not about a process that was killed."""
    return (
        finding.episode is None
        and not finding.orphan
        and finding.reason not in HARDWARE | SYMPTOMS | {"connection_error", "s3_storage_error", "killed"}
    )


def _quiet_tail(facts: Facts) -> tuple[int, list[Citation]] | None:
    """Return for how many minutes others printed after the last step, and their first and last line; None when that is not long."""
    if facts.progress.learnt:
        return None
    last, year = facts.progress.last_line, facts.span.end.year if facts.span.end else None
    start = next((time for line in reversed(facts.between(max(1, last - 40), last)) if (time := stamp(line.text, year))), None)
    tail = facts.between(last + 1, last + 2000)
    after = [(line, at) for line in tail if (at := stamp(line.text, year))]
    if start is not None and len(after) >= 2 and after[-1][1] - start >= QUIET:
        minutes = int((after[-1][1] - start).total_seconds() // 60)
        return minutes, [Citation("job.log", line.number, line.text, "no step since") for line, _ in (after[0], after[-1])]
    polls = [(line, int(match.group(1)) * 60 + int(match.group(2))) for line in tail if (match := _CLOCK.search(line.text[:40]))]
    minutes = sum((later - earlier) % 1440 for (_, earlier), (_, later) in pairwise(polls))
    # a clock without a date is believed only where somebody looks again and again
    if last and len(polls) >= 3 and len(polls) > len(tail) / 2 and QUIET <= timedelta(minutes=minutes) < timedelta(days=2):
        return minutes, [Citation("job.log", line.number, line.text, "no step since") for line, _ in (polls[0], polls[-1])]
    return None


def _dump_only(hung: Sequence[Finding], symptoms: Sequence[Finding]) -> bool:
    """Tell whether the symptoms are weak and stand only after the first sign of the hang."""
    return bool(hung) and all(s.strength < 0.3 and s.line > hung[0].line for s in symptoms)


def _last_progress(facts: Facts) -> tuple[Citation, ...]:
    line = facts.line(facts.progress.last_line)
    return (Citation("job.log", line.number, line.text, "last progress"),) if line is not None else ()


def _cite(finding: Finding) -> Citation:
    return Citation(finding.file, finding.line, finding.text, finding.rule)
