"""How an incident ends whose job was started again, by Nightshift or by somebody else.

Whatever a playbook's own looks said, an incident is recovered only when `judge_restart` says so of the living job.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.content.playbooks import DRIVER
from assistant.diagnose.readers.runs import same_counter
from assistant.engine.intake import PASSED
from assistant.engine.outcomes.completed_jobs import failure_behind
from assistant.engine.outcomes.failed_restarts import (
    WRONG_START,
    awaits_other_incident,
    hung_again,
    is_being_stopped,
    is_losing,
    stop_wrong_start,
)
from assistant.engine.outcomes.pending_jobs import STUCK
from assistant.engine.outcomes.restart_cost import lost_words, saved_by, saved_progress
from assistant.engine.outcomes.settlement import settled_elsewhere
from assistant.engine.outcomes.waiting_clients import serves_again, with_served_address
from assistant.engine.report import COUNTED_OTHERWISE
from assistant.engine.retry_policy import MOVED
from assistant.errors import Denied, NightshiftError, Parked, ToolError
from assistant.logs.lines import Lines
from assistant.logs.tail import LogMark
from assistant.records import (
    Call,
    CallStatus,
    Checkpoint,
    Diagnosis,
    EventKind,
    Incident,
    IncidentState,
    Job,
    JobState,
    MetricPoint,
)
from assistant.recover.checkpoints.layout import counts_steps, step_in_name
from assistant.recover.checkpoints.search import search_checkpoints
from assistant.recover.comparison import Comparison, compared, training_end
from assistant.recover.drivers import never_begin
from assistant.recover.identity import LEFT_BEHIND, RESTARTS
from assistant.recover.joblog import log_lines, log_points, marks_before, whole_lines
from assistant.recover.loaded import LoadVerdict, compare_loaded, loaded_checkpoint
from assistant.recover.playbook import Ended
from assistant.recover.runs import SaveFolders, writer_beside
from assistant.recover.saved_progress import pieces_made
from assistant.recover.stages import resumption_of
from assistant.recover.verify import Restart, Standing, Verdict, judge_restart
from assistant.recover.wrong_start import proof_of_lost_numbers, proof_of_wrong_start, save_beside
from assistant.untrusted import reading_as
from assistant.watch.attempts import ADVICE, Remark

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

logger = logging.getLogger(__name__)

CLOCKS_APART = timedelta(seconds=60)
OTHER_CHECKPOINT = "did not go on from the checkpoint that was chosen"
MOVE_DEPENDENTS = "let_dependents_wait"
"""The tool that takes up what an interrupted restart left, and its step."""


class _Restarted(NamedTuple):
    job: str
    step: int
    checkpoint: str | None = None
    """Path of the one that was chosen, empty for a start from the beginning; None where that is not known."""
    call: Call | None = None
    """By which it was started; None where the restart was not ours."""
    layout: str = ""
    """Format of the checkpoint, as it was chosen; empty where that is not known."""


def verified_end(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, ended: Ended, *, by: str = "engine") -> Ended:
    """Return how a playbook ended: as recovered only where the restarted job shows it, as closed where others have settled it.

    A restart that is proven to be at a wrong start is stopped, wherever the playbook stands. An escalation names the jobs that wait
    for the failed one and never begin.

    Args:
        engine: Everything.
        incident: Whose playbook it is.
        diagnosis: Of the incident.
        ended: How the playbook ended, or where it stands.
        by: Who asks for a change that follows.

    Raises:
        Parked: A person is asked whether the restart is to be stopped.
        Unavailable: The scheduler did not answer.
    """
    proven = _end_of_restart(engine, incident, diagnosis, ended, by)
    if proven.state is not IncidentState.ESCALATED:
        return proven
    return replace(proven, note=f"{proven.note}{never_begin(engine.scheduler, incident.job, finished=bool(diagnosis.tail))}")


def _end_of_restart(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, ended: Ended, by: str) -> Ended:
    restarted = restarted_job(engine, incident, ended) if not engine.replays else None
    if restarted is not None and restarted.call is not None:
        if (stopped := _stopped_if_wrong(engine, incident, diagnosis, ended, restarted, by)) is not None:
            return stopped
        if ended.state is IncidentState.ESCALATED and (cancelled := _cancelled_by_owner(engine, restarted)):
            return replace(ended, state=IncidentState.CLOSED, note=cancelled, failed_job=None)
    if ended.state is IncidentState.ESCALATED and (settled := settled_elsewhere(engine, incident, diagnosis)):
        return replace(ended, state=IncidentState.CLOSED, note=settled)
    if ended.state is IncidentState.CLOSED and (standing := _stands_after_training(engine, incident)):
        return replace(ended, state=IncidentState.ESCALATED, note=standing)
    moving = restarted is not None and ended.state in (IncidentState.VERIFYING, IncidentState.RECOVERED)
    left_jobs = _left_behind(engine, incident, restarted, by) if restarted is not None and moving else []
    if ended.state is IncidentState.VERIFYING and restarted is not None and (stuck := _stuck(engine, restarted.job)):
        engine.store.mark_stage(incident.id, STUCK)
        return replace(ended, state=IncidentState.ESCALATED, note=f"the run does not go on: {stuck}")
    child = _own_incident(engine, incident, restarted) if restarted is not None else None
    if ended.state is IncidentState.VERIFYING and restarted is not None and (hang := hung_again(engine.store, incident, child)):
        return replace(ended, state=IncidentState.ESCALATED, note=hang, failed_job=restarted.job)
    if ended.state is not IncidentState.RECOVERED or restarted is None:
        return ended
    engine.store.mark_stage(incident.id, MOVED)
    verdict = with_served_address(engine, incident, restarted.job, verdict_on(engine, incident, diagnosis, restarted))
    if child is not None and verdict.standing is not Standing.RECOVERED:
        note = f"not recovered: {verdict.note}; incident {child.id} is about that job"
        return replace(ended, state=IncidentState.ESCALATED, note=note, failed_job=restarted.job)
    if verdict.passed and PASSED not in engine.store.stages(incident.id):
        engine.store.mark_stage(incident.id, PASSED)
    logger.info("incident=%s job=%s %s: %s", incident.id, restarted.job, verdict.standing, verdict.note)
    match verdict.standing:
        case Standing.RECOVERED:
            numbered = _numbers_steps(engine, restarted.job)
            at = (restarted.job, restarted.step, restarted.checkpoint)
            lost = lost_words(engine, incident, diagnosis, *at, by_saves=not numbered)
            engine.good_runs.remarks += [Remark(f"dependents of job {restarted.job}", job_id) for job_id in left_jobs]
            origin = f"; it went on from {Path(restarted.checkpoint).name}" if restarted.checkpoint else ""
            return replace(ended, note="; ".join([f"{verdict.note}{lost}{origin}", *left_jobs]))
        case Standing.CANCELLED if restarted.call is not None and (cancelled := _cancelled_by_owner(engine, restarted)):
            return replace(ended, state=IncidentState.CLOSED, note=cancelled)
        case Standing.COMPLETED_UNPROVEN:
            engine.good_runs.remarks.append(Remark(f"job {restarted.job} completed, not proven", verdict.note))
            return replace(ended, state=IncidentState.CLOSED, note=verdict.note)
        case Standing.TWO_WRITERS:
            note = f"not recovered: {verdict.note}; end one of the two, and see which of the saves are whole"
            return replace(ended, state=IncidentState.ESCALATED, note=note)
        case Standing.CANCELLED | Standing.WRONG_START:
            return replace(ended, state=IncidentState.ESCALATED, note=f"not recovered: {verdict.note}")
        case Standing.ENDED_AGAIN:
            return replace(ended, state=IncidentState.ESCALATED, note=f"not recovered: {verdict.note}", failed_job=restarted.job)
    return replace(ended, state=IncidentState.VERIFYING, note=verdict.note)


def _stuck(engine: EnginePort, job_id: str) -> str:
    """Return why a restarted job has not begun for too long; empty where it runs, or may begin yet."""
    job = next((listed for listed in engine.watcher.jobs if listed.id == job_id), None)
    return engine.requeues.stuck.overdue(engine, job) if job is not None else ""


def _stopped_if_wrong(
    engine: EnginePort, incident: Incident, diagnosis: Diagnosis, ended: Ended, restarted: _Restarted, by: str
) -> Ended | None:
    """Return where an incident stands whose restart has to be stopped, was, or is doubted for good; None for any other."""
    try:
        verdict = verdict_on(engine, incident, diagnosis, restarted)
        job = engine.scheduler.job(restarted.job)
    except ToolError:
        return None  # forgotten: nothing of it runs
    due, own = verdict.proof and job.state is JobState.RUNNING, _own_incident(engine, incident, restarted)
    if restarted.call is None or not (due or is_being_stopped(engine.store, incident)):
        if restarted.call is not None and ended.state is IncidentState.ESCALATED and is_losing(engine.store, job, own):
            return replace(
                ended, state=IncidentState.VERIFYING, note=f"{ended.note}; awaits whether that stays so", failed_job=None
            )
        if restarted.call is None or ended.state is not IncidentState.VERIFYING or not verdict.complete:
            return None
        engine.store.mark_stage(incident.id, WRONG_START)
        # whoever waits until it is past the step where the last attempt ended may lose each checkpoint before that
        note = f"not recovered: {verdict.note}. That is no proof: look whether it saves over the checkpoints of its run"
        return replace(ended, state=IncidentState.ESCALATED, note=f"{note}, and if it does, end it: scancel {job.id}")
    if due and (note := awaits_other_incident(verdict, own)):
        return replace(ended, state=IncidentState.VERIFYING, note=note, failed_job=None)
    return stop_wrong_start(engine, incident, ended, restarted.call, job, verdict, by)


def _cancelled_by_owner(engine: EnginePort, restarted: _Restarted) -> str:
    """Return that the owner of a restarted job ended it, which is their word; empty where it is not proven who did."""
    try:
        job = engine.scheduler.job(restarted.job)
    except ToolError:
        return ""
    if job.state is not JobState.CANCELLED or not job.user or job.ended_by != job.user:
        return ""
    points = log_points(job, marks=marks_before(engine.store, job), sure=True)
    step_words = f"at step {points[-1].step}" if points else "before it logged a step"
    note = (
        f"the restart, job {job.id}, was cancelled by its owner {job.user} {step_words}; what a person ended is not started again"
    )
    engine.good_runs.remarks.append(Remark(f"job {job.id} cancelled by its owner", note))
    return f"settled: {note}"


def _left_behind(engine: EnginePort, incident: Incident, restarted: _Restarted, by: str) -> list[str]:
    """Return which jobs wait for the failed attempt and not for its restart, also after a call of its own was to move them."""
    left_jobs = _told_left(engine, restarted.call)
    if left_jobs and restarted.call is not None and restarted.job != incident.job:
        arguments = {"job": str(restarted.call.arguments.get("job")), "restart": restarted.job}
        why = f"call {restarted.call.id} was interrupted, or could not move them, when it had started job {restarted.job}"
        try:
            moved = engine.gate.call(MOVE_DEPENDENTS, arguments, why=why, by=by, incident=incident.id, step=MOVE_DEPENDENTS)
            value = moved.value if isinstance(moved.value, Mapping) else {}
            left_jobs = [str(job_id) for job_id in value.get(LEFT_BEHIND, ())] if moved.ok else left_jobs
        except (Denied, Parked, ToolError) as error:
            logger.warning("incident=%s what waits for job %s is not moved: %s", incident.id, arguments["job"], error)
    return left_jobs


def _told_left(engine: EnginePort, call: Call | None) -> list[str]:
    outcome = engine.store.outcome(call.id) if call is not None else None
    value = outcome.value if outcome is not None and isinstance(outcome.value, Mapping) else {}
    return [str(job_id) for job_id in value.get(LEFT_BEHIND, ())]


def _stands_after_training(engine: EnginePort, incident: Incident) -> str:
    """Return that a silent job has finished its training and still holds its nodes; empty where that is not so."""
    if engine.replays or incident.kind is not EventKind.HANG or incident.job is None:
        return ""
    job = engine.scheduler.job(incident.job)
    end = training_end(line.text for line in log_lines(job)) if not job.state.ended else None
    if end is None:
        return ""
    lost = "nothing is lost by ending it" if end.saved_after else "look whether its last step is saved before it is ended"
    return (
        f"the training of job {job.id} is over ({end.line}), and it still runs and holds {len(job.nodes)} nodes: "
        f"{lost}; nothing of that training has to be restarted"
    )


def _own_incident(engine: EnginePort, incident: Incident, restarted: _Restarted) -> Incident | None:
    """Return the incident about a failure of the restarted job, None while it has none.

    One that is closed is none: it records a requeue, or what others have settled.
    """
    later = [
        candidate
        for candidate in engine.store.incidents(job=restarted.job)
        if candidate.id > incident.id and candidate.kind not in ADVICE
    ]
    later = [candidate for candidate in later if candidate.state is not IncidentState.CLOSED]
    return later[-1] if later else None


def verdict_on(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, restarted: _Restarted) -> Verdict:
    """Return what a restart has come to, by all that can be read of its job now."""
    job = engine.scheduler.job(restarted.job)
    marks = marks_before(engine.store, job)
    points = log_points(job, marks=marks, sure=True)
    before, failed = [], None
    if restarted.job != incident.job and incident.job is not None:
        try:
            failed = engine.scheduler.job(incident.job)
            before = log_points(failed) if failed.log != job.log else []
        except ToolError:
            before = []  # forgotten: its diagnosis has the step
    reached = diagnosis.step if diagnosis.step is not None else max((point.step for point in before), default=None)
    first_step, unit = restarted.step, "step"
    if not points and not before:
        lines = whole_lines(job, marks)
        if (count := _by_count(engine, incident, restarted, job, marks)) is not None:
            points, before, first_step, reached = list(count.after), list(count.before), count.began, count.reached
            unit = count.unit.partition(" ")[0].removesuffix("s") or unit
            engine.store.mark_stage(incident.id, COUNTED_OTHERWISE)
        elif (counted := _counted(engine, incident, job, lines)) is not None:
            points, reached = counted
            first_step = 0  # the step of the checkpoint may count something else
    layout, name = restarted.layout, Path(restarted.checkpoint or "").name
    if points and layout and not counts_steps(layout, name):
        first_step = max(points[0].step - 1, 0)  # an epoch or a number of saves is no step
        engine.store.mark_stage(incident.id, COUNTED_OTHERWISE)
    if diagnosis.spike_step is not None:
        before = [point for point in before if point.step < diagnosis.spike_step]
    end = training_end(line.text for line in log_lines(job)) if job.state.ended else None
    lines = whole_lines(job, marks)
    if (stage := resumption_of(job, failed, marks, _checkpoint(restarted), points)) is not None:
        lines, points, before = stage
    later = job.attempt > _attempt(incident, restarted)
    saved, saved_step = None, None
    if incident.playbook != DRIVER:
        name = Path(restarted.checkpoint or "").name
        counts = restarted.checkpoint is not None and (not restarted.layout or counts_steps(restarted.layout, name))
        saved = saved_progress(engine, job, marks, failed=incident.job, chosen_step=restarted.step) if counts else None
        saved_step = saved_by(engine, job, past=first_step)
    return judge_restart(
        Restart(
            job,
            points,
            before,
            first_step,
            reached,
            now=engine.clock.now(),
            passed_at=_confirmed_since(engine.store.stages(incident.id).get(PASSED), job),
            finished=end.line if end is not None else "",
            load_problem=_load_problem(restarted, lines, later=later),
            proof=_proof(engine, incident, restarted, lines, points, before, reached) if not later else "",
            beside=_other_writer(engine, incident, restarted, job),
            unit=unit,
            stateless=not points and not before and (_keeps_no_state(engine, job) or serves_again(engine, incident, job)),
            pieces=pieces_made(job, engine.checkpoint_folders, engine.clock.now()) if not points and not first_step else "",
            hidden_failure=failure_behind(job, engine.knowledge),
            saved_step=saved.step if saved is not None else saved_step,
            saved_loss=saved.loss if saved is not None else None,
            lost_numbers=proof_of_lost_numbers(points, before) if not later else None,
            has_lines=bool(points) or job.state is not JobState.COMPLETED or bool(log_lines(job, marks=marks)),
        )
    )


def resumed_chosen(engine: EnginePort, restarted: _Restarted) -> bool:
    """Tell whether the lines of a restart say that it went on from the checkpoint that was chosen; silence is no such word."""
    job, checkpoint = engine.scheduler.job(restarted.job), _checkpoint(restarted)
    marks = marks_before(engine.store, job)
    if checkpoint is None or resumption_of(job, None, marks, checkpoint) is not None:
        return checkpoint is not None
    lines = whole_lines(job, marks)
    return lines is not None and compare_loaded(checkpoint, loaded_checkpoint(lines)).verdict is LoadVerdict.CHOSEN


def _numbers_steps(engine: EnginePort, job_id: str) -> bool:
    try:
        job = engine.scheduler.job(job_id)
    except ToolError:
        return True
    return bool(log_points(job, marks=marks_before(engine.store, job), sure=True))


def _keeps_no_state(engine: EnginePort, job: Job) -> bool:
    """Tell whether a running job is known to keep no state, as a server does."""
    if job.state is not JobState.RUNNING:
        return False
    try:
        texts = (line.text for line in log_lines(job))
        return search_checkpoints(job, engine.checkpoint_folders, texts, now=engine.clock.now()).stateless
    except (NightshiftError, OSError):
        return False


def _other_writer(engine: EnginePort, incident: Incident, restarted: _Restarted, job: Job) -> str:
    """Return who else saves into the folder of a restart since that began, by the other jobs and by what lies there."""
    if job.state not in (JobState.RUNNING, JobState.COMPLETED):
        return ""
    now, folders = engine.clock.now(), engine.checkpoint_folders
    try:
        failed = engine.scheduler.job(incident.job) if incident.job is not None else None
    except ToolError:
        failed = None
    if failed is not None and failed.id != job.id and not failed.state.ended and failed.attempt > incident.attempt:
        return f"job {failed.id} was queued again under its own id meanwhile ({failed.state}), and saves where job {job.id} does"
    writer = writer_beside(engine.scheduler, folders, job, now=now)
    if writer is not None:
        return f"job {writer.id} of {writer.user} ({writer.state}) saves where job {job.id} does, at the same time"
    folder = Path(restarted.checkpoint).parent if restarted.checkpoint else SaveFolders(job, folders).certain
    if folder is None:
        return ""
    with reading_as(job.account):
        return save_beside(job, folder, before=failed, now=now)


def _by_count(
    engine: EnginePort, incident: Incident, restarted: _Restarted, job: Job, marks: Sequence[LogMark]
) -> Comparison | None:
    """Return what a job and the failed one count alike in forms of their own, where neither numbers a step in a known one."""
    if incident.job is None or incident.job == restarted.job:
        return None
    try:
        failed = engine.scheduler.job(incident.job)
    except ToolError:
        return None
    return compared(failed, job, marks, chosen_step=restarted.step)


def _counted(engine: EnginePort, incident: Incident, job: Job, lines: Lines | None) -> tuple[list[MetricPoint], int] | None:
    """Return what a job counts in lines of no known form, and how far the failed one had counted in lines of the same form."""
    if lines is None or incident.job is None or incident.job == job.id:
        return None
    try:
        failed = engine.scheduler.job(incident.job)
    except ToolError:
        return None
    both = same_counter(list(log_lines(failed)), list(lines)) if failed.log != job.log else None
    if both is None:
        return None
    before, after = both
    points = [MetricPoint(int(value), None, None, line) for line, value in zip(after.lines, after.values, strict=True)]
    return points, int(max(before.values))


def _attempt(incident: Incident, restarted: _Restarted) -> int:
    """Return which attempt of its job a restart is: the first of a new job, the next of one that was queued again."""
    return incident.attempt + 1 if restarted.job == incident.job else 0


def _confirmed_since(passed_at: datetime | None, job: Job) -> datetime | None:
    """Return since when the living attempt counts as confirmed: what an attempt before it has passed is no proof of this one."""
    return max(passed_at, job.started) if passed_at is not None and job.started is not None else passed_at


def _load_problem(restarted: _Restarted, lines: Lines | None, *, later: bool = False) -> str:
    """Return how what a job says that it loaded differs from the checkpoint that was chosen; empty where it does not say so.

    Args:
        restarted: The job, and what was chosen.
        lines: Of the living attempt.
        later: Whether its owner or Slurm has queued it again since: it may go on from what the restart itself has saved.
    """
    if restarted.checkpoint is None or lines is None:
        return ""
    loaded = loaded_checkpoint(lines)
    steps = [load.step for load in loaded.loads if load.step is not None]
    if later and min(steps, default=loaded.first_step or 0) >= restarted.step:
        return ""
    comparison = compare_loaded(_checkpoint(restarted), loaded)
    return f"{OTHER_CHECKPOINT}: {comparison.note}" if comparison.differs else ""


def _checkpoint(restarted: _Restarted) -> Checkpoint | None:
    """Return what a restart was to go on from; None where it was to begin at the start, or where that is not known."""
    if not restarted.checkpoint:
        return None
    path = Path(restarted.checkpoint)
    return Checkpoint(path, restarted.step, restarted.layout, 0, datetime.min.replace(tzinfo=UTC), healthy=True, problems=())


def _proof(
    engine: EnginePort,
    incident: Incident,
    restarted: _Restarted,
    lines: Lines | None,
    points: Sequence[MetricPoint],
    before: Sequence[MetricPoint],
    reached: int | None,
) -> str:
    """Return what proves that a restart is at a wrong start; empty where nothing does."""
    if lines is None or not restarted.checkpoint:
        return ""
    refused: set[int] = set()
    for call in engine.store.calls(incident.id):
        outcome = engine.store.outcome(call.id) if call.tool == "choose_checkpoint" else None
        value = outcome.value if outcome is not None and isinstance(outcome.value, Mapping) else {}
        refused |= {int(refusal["step"]) for refusal in value.get("refused", ())}
    checkpoint, loaded = _checkpoint(restarted), loaded_checkpoint(lines)
    return proof_of_wrong_start(checkpoint, loaded, points, before, reached=reached, refused=refused)


def restarted_job(engine: EnginePort, incident: Incident, ended: Ended) -> _Restarted | None:
    """Return the job that a playbook started again, or found alive, and the step it was to begin at; None where there is none."""
    for call in reversed(engine.store.calls(incident.id, status=CallStatus.DONE)):
        outcome = engine.store.outcome(call.id)
        value: Any = outcome.value if outcome is not None and outcome.ok else None
        if call.tool in RESTARTS and isinstance(value, Mapping) and value.get("job"):
            step, checkpoint = _chosen_for(engine, incident, call, value)
            return _Restarted(str(value["job"]), step, checkpoint, call, _layout_of(engine, incident, checkpoint))
    alive = [value for value in ended.values.values() if isinstance(value, Mapping) and value.get("status") == "alive"]
    return _Restarted(str(alive[-1]["job"]), 0) if alive and alive[-1].get("job") else None


def _layout_of(engine: EnginePort, incident: Incident, checkpoint: str | None) -> str:
    """Return the format of a checkpoint, as the incident's own calls have chosen it; empty where none has."""
    for choice in reversed(engine.store.calls(incident.id)) if checkpoint else ():
        outcome = engine.store.outcome(choice.id) if choice.tool == "choose_checkpoint" else None
        value = outcome.value if outcome is not None and isinstance(outcome.value, Mapping) else {}
        if value.get("path") == checkpoint:
            return str(value.get("format") or "")
    return ""


def _chosen_for(engine: EnginePort, incident: Incident, call: Call, value: Mapping[str, Any]) -> tuple[int, str | None]:
    """Return step and path of the checkpoint that a restart was to go on from, as the call was decided on.

    What the call was given counts more than what it returned: after an outage the answer is put together from what the scheduler
    still shows. The path is empty for a start from the beginning, and None where nobody knows.
    """
    path, returned = str(call.arguments.get("checkpoint") or ""), value.get("checkpoint")
    if not path.startswith("/"):
        return int(value.get("step") or 0), "" if path == "none" else None if returned is None else str(returned)
    if returned == path:
        return int(value.get("step") or 0), path
    for choice in reversed(engine.store.calls(incident.id)):
        outcome = engine.store.outcome(choice.id) if choice.tool == "choose_checkpoint" else None
        chosen_checkpoint = outcome.value if outcome is not None and isinstance(outcome.value, Mapping) else {}
        if chosen_checkpoint.get("path") == path:
            return int(chosen_checkpoint.get("step") or 0), path
    step = step_in_name(Path(path).name)
    return (step, path) if step is not None else (int(value.get("step") or 0), None)
