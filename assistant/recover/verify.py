"""Decide what a restart has come to: the only place that calls one recovered. Pure.

A restart is recovered when the living job itself shows it: its own lines show training past the step where the attempt before
ended, from the checkpoint that was chosen, with a loss that goes on, and the job is still there after `CONFIRM_S`; or it completed
and its lines show so. Everything else is named as what it is. A job that waits in the queue costs no verification time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from itertools import takewhile
from statistics import median

from assistant.logs.spikes import is_no_number
from assistant.nodeset import fold
from assistant.records import Job, JobState, MetricPoint
from assistant.recover.wrong_start import LostNumbers
from assistant.watch.progress import NOT_A_NUMBER_STEPS

__all__ = [
    "CONFIRM_S",
    "Look",
    "Restart",
    "Seen",
    "Standing",
    "Verdict",
    "judge_restart",
    "loss_seen",
    "points_of_start",
    "progress_seen",
    "queue_note",
]

CONFIRM_S = 60.0
"""Seconds for which a job must still be there after it was first seen past the step where the attempt before had ended."""
CONFIRM_SHARE = 0.1
"""Of the job's time limit, where that is less: a run of a few minutes is not watched to its end."""
STATELESS_S = 300.0
"""Seconds for which a program without steps must run before it counts as brought back: that it lives is all that can be seen."""
WINDOW = re.compile(r"reservation|reserved for maintenance|ReqNodeNotAvail(?!.*UnavailableNodes:[^)\s])|maint", re.IGNORECASE)
"""Slurm's reasons for a job that waits for the end of a reservation; where they name nodes, these are down or drained."""


STEPS_OF_A_START = 3
"""Distinct steps after which nothing more is learnt of where a job began."""
SAMPLE = 10
"""Logged losses that are compared on each side."""
FEWEST = 2
"""With fewer losses after the restart it is too early to tell."""
TOLERANCE_SHARE = 0.25
"""How far the median loss may lie above the one before, as a share of it."""
NOISE_TIMES = 4.0
"""Or as a multiple of the median absolute deviation before, whichever is wider."""
BEGINNING = datetime.min.replace(tzinfo=UTC)
NO_LOSS = "the restarted job logged no loss to compare"
NEVER_A_LOSS = "its log names no loss, as that of the attempt before"


class Look(StrEnum):
    """What a look at a restarted job says; a playbook's `expect` names one of them."""

    WAITING = "waiting"
    PAST_RESTART_STEP = "past_restart_step"
    CONTINUES = "continues"
    JUMPED = "jumped"
    """The loss is not where it was: random weights, a wrong checkpoint, or bad data again."""
    FAILED = "failed"
    """The job ended again without getting there."""
    ENDED = "ended"
    ALIVE = "alive"
    """The run is pending or running again."""
    GONE = "gone"
    """The run does not come back by itself."""
    SAVED = "saved"
    """A checkpoint is there that was made since."""
    STORAGE_ANSWERS = "storage_answers"
    UNKNOWN = "unknown"
    """It cannot be told: nothing is logged to compare."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A look, and the sentence for the timeline."""

    status: Look
    note: str
    step: int | None = None
    queued: bool = False
    """Whether the job waits in the queue: that time is no time of a verification."""


class Standing(StrEnum):
    """What a restart has come to."""

    QUEUED = "queued"
    """It waits in the queue."""
    WAITS_FOR_WINDOW = "waits_for_window"
    """It waits for the end of a reservation, such as maintenance."""
    RUNNING_AGAIN = "running_again"
    """It runs, and something is still awaited."""
    RECOVERED = "recovered"
    WRONG_START = "wrong_start"
    """It runs, from another checkpoint than the one chosen or with a loss that jumped."""
    CANCELLED = "cancelled"
    """A person ended it."""
    TWO_WRITERS = "two_writers"
    """Somebody else saves into its folder at the same time."""
    ENDED_AGAIN = "ended_again"
    """It failed, ran into its limit, or completed without showing that it trained."""
    COMPLETED_UNPROVEN = "completed_unproven"
    """It completed with exit code 0, and there is nothing to read that shows what it did."""
    UNKNOWN = "unknown"
    """The scheduler does not tell."""


@dataclass(frozen=True, slots=True)
class Restart:
    """What is known of a restart, all of it read at one moment."""

    job: Job
    """As the scheduler shows it."""
    points: Sequence[MetricPoint]
    """What the job itself logged, nothing of an attempt before it."""
    before: Sequence[MetricPoint]
    """What the attempt logged that failed."""
    restart_step: int
    """Step of the checkpoint that was chosen; 0 for a start from the beginning."""
    reached_step: int | None
    """Where the attempt before ended; None when its log does not tell."""
    now: datetime
    passed_at: datetime | None = None
    """When it was first seen past that step; None when it was not yet."""
    finished: str = ""
    """The line by which its own log says that training is over."""
    load_problem: str = ""
    """How what it loaded differs from the checkpoint that was chosen; empty where it does not, or the log does not tell."""
    proof: str = ""
    """What proves that it is at a wrong start, from `proof_of_wrong_start`; empty where it is only doubted."""
    beside: str = ""
    """Who else saves into its folder since it began; empty where nobody is known to."""
    unit: str = "step"
    """What its points count, where its log numbers no step: epoch, sample, token."""
    stateless: bool = False
    """Whether its programs are known to keep no state, and neither attempt logs a step: servers."""
    pieces: str = ""
    """What it wrote of its work in pieces, where it passes over finished ones and logs no step; empty for any other."""
    hidden_failure: str = ""
    """What its log proves of a training that failed although it completed; empty where nothing does."""
    saved_step: int | None = None
    """Step of the newest whole checkpoint that it saved itself; None where none is known."""
    saved_loss: Seen | None = None
    """Of a running job whose log numbers no step and which saved a checkpoint past the chosen one: what its losses say."""
    has_lines: bool = True
    """Whether any line of its own can be read."""
    lost_numbers: LostNumbers | None = None
    """What proves that it trains on with a loss that is no number; None where nothing does."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a restart has come to, and the sentence for people."""

    standing: Standing
    note: str
    step: int | None = None
    """The last step that its own lines show."""
    passed: bool = False
    """Whether they show training past the step where the attempt before ended."""
    proof: str = ""
    """What proves a wrong start, so that the job has to be stopped; empty where a person has to judge."""
    complete: bool = False
    """Whether its lines tell all of its start that they ever will: no proof is to be awaited."""
    lost_numbers: LostNumbers | None = None
    """Where `proof` is that its loss is no number: how long that has been so."""


def judge_restart(restart: Restart) -> Verdict:
    """Return what a restart has come to."""
    job = restart.job
    points = points_of_start(restart.points)
    step = max((point.step for point in points), default=None)
    goal = max(restart.restart_step, restart.reached_step or 0)
    passed = step is not None and step > goal
    if job.state is JobState.PENDING:
        return Verdict(*queue_note(job))
    if job.state is JobState.UNKNOWN:
        return Verdict(
            Standing.UNKNOWN, f"what became of job {job.id} cannot be told now: {job.reason or 'the scheduler says nothing'}"
        )
    if job.state is JobState.CANCELLED:
        ended_by = f" by {job.ended_by}" if job.ended_by else ""
        return Verdict(Standing.CANCELLED, f"job {job.id} was cancelled{ended_by} before it was proven to go on: {_at(step)}", step)
    if job.state.ended and (job.state is not JobState.COMPLETED or job.exit_code not in (None, 0) or job.signal):
        return Verdict(Standing.ENDED_AGAIN, f"job {job.id} {job.state} before it was proven to go on: {_at(step)}", step)
    if restart.hidden_failure:
        return Verdict(Standing.ENDED_AGAIN, restart.hidden_failure, step)
    if restart.beside:
        return Verdict(Standing.TWO_WRITERS, f"two write over each other's checkpoints: {restart.beside}", step, passed)
    if restart.load_problem:
        complete = len({point.step for point in restart.points}) >= STEPS_OF_A_START
        return Verdict(Standing.WRONG_START, f"job {job.id} {restart.load_problem}", step, passed, restart.proof, complete)
    if restart.lost_numbers is not None and not job.state.ended:
        lost = restart.lost_numbers
        return Verdict(
            Standing.WRONG_START, f"job {job.id}: {lost.sentence}", step, passed, lost.sentence, complete=True, lost_numbers=lost
        )
    loss = loss_seen(restart.before, restart.points, restart_step=restart.restart_step, ended=job.state.ended)
    if loss.status is Look.JUMPED:
        return Verdict(Standing.WRONG_START, f"job {job.id}: {loss.note}", step, passed)
    if job.state is JobState.COMPLETED:
        return _completed(restart, step, goal, passed=passed)
    if restart.saved_loss is not None and not passed:
        return _saved_past(restart, restart.saved_loss)
    return _running(restart, step, goal, loss, passed=passed)


def points_of_start(points: Sequence[MetricPoint]) -> Sequence[MetricPoint]:
    """Return what an attempt logged from its first training step on.

    A step that stands alone at the beginning and above those that follow is none of its own: the best one so far, or how many are
    meant.
    """
    steps = list(dict.fromkeys(point.step for point in points[:STEPS_OF_A_START]))
    first_is_alone = len(steps) == STEPS_OF_A_START and steps[1] < steps[2] < steps[0]
    return points[1:] if first_is_alone else points


def _completed(restart: Restart, step: int | None, goal: int, *, passed: bool) -> Verdict:
    job = restart.job
    saved_step = restart.saved_step or 0
    if (passed or (step is not None and step >= goal > 0)) and step is not None and saved_step > max(step, restart.restart_step):
        # its lines count something else: epochs, batches, samples
        note = f"job {job.id} completed and saved a whole checkpoint of step {saved_step}"
        return Verdict(Standing.RECOVERED, note, saved_step, passed=True)
    if passed or (step is not None and step >= goal > 0):
        return Verdict(Standing.RECOVERED, f"job {job.id} completed at {_at(step, restart.unit)}", step, passed=True)
    if restart.finished:
        # steps below the one that it began at count something else: epochs, batches, those of another program
        step_words = (
            f"the last {restart.unit} that its lines show is {step}" if step is not None and step >= restart.restart_step else ""
        )
        step_sentence = step_words or "which step it came to is not known"
        return Verdict(
            Standing.RECOVERED,
            f"job {job.id} completed, and its log says that its training is over: {restart.finished}; {step_sentence}",
            step,
            passed=True,
        )
    if saved_step >= goal and saved_step > restart.restart_step:
        note = f"job {job.id} completed and saved a whole checkpoint of step {saved_step}"
        # steps below the one that it began at count something else
        step_words = _at(step, restart.unit) if step is not None and step > restart.restart_step else "they number no step"
        return Verdict(Standing.RECOVERED, f"{note}; its lines: {step_words}", saved_step, passed=True)
    if step is not None and step >= goal:
        return Verdict(
            Standing.RECOVERED, f"job {job.id} completed; the last {restart.unit} that its lines show is {step}", step, passed=True
        )
    if step is None and (not restart.before or (restart.reached_step is not None and restart.restart_step >= restart.reached_step)):
        return Verdict(Standing.RECOVERED, f"job {job.id} completed; its log names no step, as that of the attempt before", step)
    if step is None and not restart.has_lines:
        missing = "none of its lines can be read, so neither a step nor a loss is seen, and no newer checkpoint is known"
        return Verdict(
            Standing.COMPLETED_UNPROVEN, f"job {job.id} completed with exit code 0; that it trained is not proven: {missing}"
        )
    awaited = f"{restart.unit} {goal}, where the attempt before ended, is not among its lines ({_at(step, restart.unit)})"
    return Verdict(Standing.ENDED_AGAIN, f"job {job.id} completed, and {awaited}", step)


def _saved_past(restart: Restart, loss: Seen) -> Verdict:
    """Return what a running job has come to whose log numbers no step: its saves tell that, and its losses that it trains."""
    job = restart.job
    note = f"job {job.id} saved a whole checkpoint of step {restart.saved_step}, past all that were there"
    if loss.status is Look.JUMPED:
        return Verdict(Standing.WRONG_START, f"job {job.id}: {loss.note}", restart.saved_step, passed=True)
    awaited = [] if loss.status is Look.CONTINUES else [loss.note]
    left_s = _confirm_s(restart)
    if not awaited and (restart.passed_at is None or left_s > 0):
        awaited = [f"that it is still there in {left_s:.0f} s"]
    if awaited:
        return Verdict(Standing.RUNNING_AGAIN, f"{note}; awaits {awaited[0]}", restart.saved_step, passed=True)
    return Verdict(Standing.RECOVERED, f"{note}; {loss.note}", restart.saved_step, passed=True)


def _confirm_s(restart: Restart) -> float:
    """Return for how many seconds a job must still be there."""
    limit_s = restart.job.spec.time_limit_s if restart.job.spec is not None else None
    confirm_s = min(CONFIRM_S, limit_s * CONFIRM_SHARE) if limit_s else CONFIRM_S
    return confirm_s - ((restart.now - restart.passed_at).total_seconds() if restart.passed_at is not None else 0.0)


def _running(restart: Restart, step: int | None, goal: int, loss: Seen, *, passed: bool) -> Verdict:
    job = restart.job
    if restart.stateless:
        return _stateless(job, restart.now)
    if restart.pieces and not passed:
        left_s = _confirm_s(restart)
        if restart.passed_at is None or left_s > 0:
            awaited_words = f"{restart.pieces}; awaits that it is still there in {left_s:.0f} s"
            return Verdict(Standing.RUNNING_AGAIN, awaited_words, passed=True)
        return Verdict(Standing.RECOVERED, restart.pieces, passed=True)
    awaited = [] if passed else [f"{restart.unit} {goal + 1}"]
    compared = any(point.loss is not None for point in restart.before)
    awaited += ["a loss to compare"] if loss.status is not Look.CONTINUES and compared else []
    left_s = _confirm_s(restart)
    if not awaited and (restart.passed_at is None or left_s > 0):
        awaited = [f"that it is still there in {left_s:.0f} s"]
    job_place = f"job {job.id} is running again on {len(job.nodes)} nodes, {_at(step, restart.unit)}"
    if awaited:
        return Verdict(Standing.RUNNING_AGAIN, f"{job_place}; awaits {' and '.join(awaited)}", step, passed=passed)
    note = loss.note if compared or loss.status is Look.CONTINUES else NEVER_A_LOSS
    return Verdict(
        Standing.RECOVERED, f"job {job.id} reached {restart.unit} {step}, past {restart.unit} {goal}; {note}", step, passed=True
    )


def _stateless(job: Job, now: datetime) -> Verdict:
    lived_s = (now - job.started).total_seconds() if job.started is not None else 0.0
    sentence = f"job {job.id} is running again on {len(job.nodes)} nodes"
    if lived_s < STATELESS_S:
        return Verdict(
            Standing.RUNNING_AGAIN, f"{sentence}; it makes no steps: awaits that it is still there in {STATELESS_S - lived_s:.0f} s"
        )
    return Verdict(
        Standing.RECOVERED,
        f"{sentence} for {lived_s / 60:.0f} min; it makes no steps and keeps no state, so more than that it runs cannot be seen",
        passed=True,
    )


def _at(step: int | None, unit: str = "step") -> str:
    return f"{unit} {step}" if step is not None else f"no {unit} logged"


_WAITS = tuple(
    (re.compile(pattern, re.IGNORECASE), words)
    for pattern, words in (
        (
            "DependencyNeverSatisfied",
            "a job that it waits for has failed, so it never starts: `scontrol update JobId={job} Dependency=`",
        ),
        ("JobHeld|held state|JobHoldMaxRequeue", "it is held: `scontrol release {job}`"),
        (
            r"(?:QOS|Assoc)Max(?:Wall|Node|CPU|GRES|GPU|Mem|TRES|Billing)\w*PerJob|Partition(?:TimeLimit|NodeLimit|Config|Inactive|Down)"
            r"|BadConstraints|Invalid(?:QOS|Account)|AccountNotAllowed|QOSNotAllowed|AssocMaxWall",
            "as it was submitted it cannot start there: `scontrol show job {job}`, then change it or the limit",
        ),
        (
            r"QOS\w*Limit|QOSGrp|QOSMax|QOSUsage|Assoc(?:Grp|Max|ociation)|AssocLimit|MaxJobs|MaxSubmit",
            "a limit on running jobs is reached: it starts when others of {user} end (`squeue -u {user}`)",
        ),
        (
            "ReqNodeNotAvail|Nodes required for job|NodeDown",
            "nodes that it needs are down, drained or reserved: it starts when they are back (`sinfo -R`)",
        ),
        ("Licenses", "a licence that it asks for is in use (`scontrol show lic`)"),
    )
)
"""What a reason of Slurm for a job that waits means, and the way out; the first that fits counts.

Source: https://slurm.schedmd.com/job_reason_codes.html
"""


def _way_out(job: Job) -> str:
    """Return what a job that waits is waiting for, and what would let it begin; empty where it only has to wait for its turn."""
    words = next((wait_words for pattern, wait_words in _WAITS if pattern.search(job.reason)), "").format(
        job=job.id, user=job.user or "its user"
    )
    excluded = job.spec.exclude if job.spec is not None else ()
    if excluded and not re.search("Dependency|Held|Licenses", job.reason):
        words += (
            f"{'; ' if words else ''}it stays away from {fold(excluded)}: `scontrol update JobId={job.id} ExcNodeList=` allows them"
        )
    return f"; {words}" if words else ""


def queue_note(job: Job) -> tuple[Standing, str]:
    """Return why a pending job waits, what would let it begin, and when the scheduler expects it to."""
    expected = f", expected to start {job.expected_start:%Y-%m-%d %H:%M} UTC" if job.expected_start is not None else ""
    why = f" ({job.reason})" if job.reason else ""
    if WINDOW.search(job.reason):
        return Standing.WAITS_FOR_WINDOW, f"job {job.id} is submitted and waits for the window{why}{expected}"
    return Standing.QUEUED, f"job {job.id} waits in the queue{why}{expected}{_way_out(job)}"


def progress_seen(
    job: Job, restart_step: int, points: Sequence[MetricPoint], *, finished: str = "", stateless_at: datetime | None = None
) -> Seen:
    """Return whether the job passed the step it restarted from; one that ended badly or was cancelled has not.

    Args:
        job: The restarted job.
        restart_step: Step of its checkpoint; 0 when it began at the start.
        points: What its own log shows, in order.
        finished: The line by which its own log says that training is over; empty where none does.
        stateless_at: The time, for a job without steps whose programs keep no state; None for any other.
    """
    now, stateless = stateless_at or BEGINNING, stateless_at is not None
    verdict = judge_restart(Restart(job, points, (), restart_step, None, now=now, finished=finished, stateless=stateless))
    match verdict.standing:
        case Standing.CANCELLED | Standing.ENDED_AGAIN:
            return Seen(Look.FAILED, verdict.note, verdict.step)
        case Standing.QUEUED | Standing.WAITS_FOR_WINDOW:
            return Seen(Look.WAITING, verdict.note, verdict.step, queued=True)
    if not verdict.passed and verdict.standing is not Standing.RECOVERED:
        return Seen(Look.WAITING, verdict.note, verdict.step)
    moved = not job.state.ended and verdict.step is not None
    words = f"reached step {verdict.step}, past restart step {restart_step}" if moved else ""
    return Seen(Look.PAST_RESTART_STEP, f"job {job.id} {words}" if words else verdict.note, verdict.step)


def loss_seen(before: Sequence[MetricPoint], after: Sequence[MetricPoint], *, restart_step: int, ended: bool) -> Seen:
    """Return whether the loss goes on from where it was.

    Args:
        before: Points of the failed attempt, in order.
        after: Points of the restarted one, in order.
        restart_step: Step of the checkpoint; losses of the first attempt count only up to it, so what a spike did later does not.
        ended: Whether the restarted job is over, so that no more points will come.
    """
    old = [point.loss for point in before if point.step <= restart_step and _finite(point.loss)][-SAMPLE:]
    losses_after = [point for point in after if point.loss is not None and point.step >= restart_step]
    lost = list(takewhile(is_no_number, reversed(losses_after)))
    if lost and (ended or len(lost) >= NOT_A_NUMBER_STEPS):
        return Seen(Look.JUMPED, f"the loss at step {lost[-1].step} is no finite number, nor is one behind it", lost[-1].step)
    if lost:
        return Seen(
            Look.WAITING, f"the loss at step {lost[-1].step} is no finite number; awaits whether it stays so", lost[-1].step
        )
    numbered = [point for point in losses_after if not is_no_number(point)]  # a loss scaler skips a step or two
    if not numbered and (step := _goes_on_without(before, after, restart_step)) is not None:
        return Seen(Look.CONTINUES, f"{NEVER_A_LOSS}; it came to step {step}", step)
    if len(numbered) < (1 if ended else FEWEST):
        return Seen(Look.UNKNOWN, NO_LOSS) if ended else Seen(Look.WAITING, "too few losses logged since the restart")
    if restart_step <= 0 or not old:
        return Seen(Look.CONTINUES, "there is no earlier loss to compare with; the loss is finite", numbered[-1].step)
    usual = median(_losses(old))
    now = max(median(_losses(point.loss for point in part)) for part in (numbered[:SAMPLE], numbered[-SAMPLE:]))
    noise = median(abs(loss - usual) for loss in _losses(old))
    allowed = usual + max(abs(usual) * TOLERANCE_SHARE, NOISE_TIMES * noise)
    numbers = f"median loss {now:.4g} after the restart, {usual:.4g} before step {restart_step}"
    if now > allowed:
        return Seen(Look.JUMPED, f"{numbers}: above the {allowed:.4g} that would be normal", numbered[-1].step)
    return Seen(Look.CONTINUES, numbers, numbered[-1].step)


def _goes_on_without(before: Sequence[MetricPoint], after: Sequence[MetricPoint], restart_step: int) -> int | None:
    """Return the last step where neither attempt logs a loss, as in reinforcement learning; None where that is not sure."""
    past = [point for point in after if point.step > restart_step]
    if len(before) < FEWEST or len(past) < FEWEST or any(point.loss is not None for point in (*before, *after)):
        return None
    if all(point.grad_norm is not None and not math.isfinite(point.grad_norm) for point in past[-FEWEST:]):
        return None
    return past[-1].step


def _finite(loss: float | None) -> bool:
    return loss is not None and math.isfinite(loss)


def _losses(losses: Iterable[float | None]) -> list[float]:
    return [loss for loss in losses if loss is not None]
