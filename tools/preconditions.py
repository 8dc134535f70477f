"""Preconditions of a change, checked right before it: the job is the attempt meant, ours to restart, alone of its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from assistant.errors import RestartPending, ToolError, Unavailable
from assistant.records import CallStatus, EventKind, Incident, Job, JobState, run_of
from assistant.recover import runs
from assistant.recover.drivers import task_at_work, tasks_at_a_time
from assistant.recover.identity import HELD_UNKNOWN, is_claim, is_held_by, is_watchs, other_keeper, restart_of
from assistant.recover.wrong_start import TEAR_DOWN, Files, change_between, files_in, lock_after, open_in, save_after
from assistant.tooling import Context
from assistant.tools.checkpoints import search_of
from assistant.untrusted import LOOK_S as CANCEL_LOOK_S
from assistant.untrusted import reading_as, within
from assistant.watch.attempts import hidden_failure_in
from assistant.watch.witness import motion_since

LOOK_S = 1.0
HELD_AT_MOST_S = 120.0
"""For a running job to end, and for a restart of the same run to be released or withdrawn."""
UNDECIDED_AT_MOST = timedelta(minutes=30)
"""For which a watch looks again what becomes of a restart of the same run that waits held; then a person must look."""


def must_be_meant(context: Context, job: Job) -> None:
    """Make sure that a job is the attempt that the call's incident is about; a call for no incident, or on another job, passes.

    Raises:
        ToolError: The job was queued again since, or its id was given to another one.
    """
    incident = _incident(context, job)
    if incident is None:
        _must_be_the_restart(context, job)
        return
    if job.attempt != incident.attempt:
        raise ToolError(
            f"job {job.id} was queued again since: incident {incident.id} is about attempt {incident.attempt}, "
            f"this is {job.attempt}; leave it alone or look at the new attempt"
        )
    must_be_the_same_job(context, job)


def _must_be_the_restart(context: Context, job: Job) -> None:
    """Make sure that a job whose id a restart of the incident returned is that restart: ids are given again.

    Raises:
        ToolError: It is another job: of another user, name, folder or time, or without the tag of the restart.
    """
    for call in context.history.calls(context.incident):
        if call.tool != "resubmit_job":
            continue
        outcome = context.history.outcome(call.id)
        value = outcome.value if outcome is not None and isinstance(outcome.value, Mapping) else {}
        if value.get("job") != job.id:
            continue
        restart = restart_of(context.history, job)
        if restart is None or restart.id != call.id or run_of(job) not in context.history.runs_of(call.id):
            raise ToolError(
                f"job {job.id} ({job.name!r} of {job.user}) is not the one that call {call.id} submitted: another job has that id "
                "now; leave it alone"
            )


def must_be_the_same_job(context: Context, job: Job) -> None:
    """Make sure that the id of the incident's job was not given to another one; a later attempt of the same job passes.

    Raises:
        ToolError: It was.
    """
    incident = _incident(context, job)
    if incident is None or job.attempt > incident.attempt or job.submitted is None:
        return
    if job.submitted > incident.opened:
        raise ToolError(f"job {job.id} was submitted after incident {incident.id} was opened: another job has that id now")


def must_be_ours_to_restart(context: Context, job: Job) -> None:
    """Make sure, too, that nobody ended the attempt on purpose and that it did not end well meanwhile.

    Raises:
        ToolError: It completed, somebody else than this incident's own call cancelled it, the same run was submitted since, or
            Nightshift with another store looks after it.
    """
    must_be_decided_here(context, job)
    must_be_meant(context, job)
    must_have_its_turn(context, job)
    elsewhere = other_keeper(context, job)
    if elsewhere:
        raise ToolError(elsewhere)
    incident = _incident(context, job)
    if incident is None or incident.kind is EventKind.REQUESTED:
        return
    if job.state is JobState.COMPLETED and not hidden_failure_in(context.history.events(incident.id)):
        raise ToolError(f"job {job.id} completed meanwhile: there is nothing to restart")
    if job.state is JobState.CANCELLED and not _cancelled_here(context, incident, job):
        raise ToolError(f"job {job.id} was cancelled by somebody else; what a person ended is not started again")
    later = _submitted_since(context, job, job.ended or incident.opened)
    if later is not None:
        raise ToolError(f"the run of job {job.id} went on as job {later.id} since: from there it is another matter")


def must_have_its_turn(context: Context, job: Job) -> None:
    """Make sure that an array has not as many tasks at work as it may have at a time; a watch's call is put off until then.

    Raises:
        RestartPending: One is; it is looked at again.
        ToolError: One is, and a person asks.
    """

    def restarted(task: Job) -> str:
        call = restart_of(context.history, task)
        return str(call.arguments.get("job", "")) if call is not None else ""

    task = task_at_work(job, context.scheduler.user_jobs(job.user), restarted)
    if task is None:
        return
    limit = tasks_at_a_time(job)
    run = "run one at a time" if limit == 1 else f"run {limit} at a time, and so many are at work"
    words = f"tasks of the array of job {job.id} {run} (%{limit}), and job {task.id} ({task.state}) is at work"
    raise RestartPending(f"{words}: its turn comes after that") if is_watchs(context) else ToolError(f"{words}: wait for it")


def must_stand_still(context: Context, job: Job) -> None:
    """Make sure that a job which is to be ended for standing still has made no step since; any other call passes.

    Raises:
        ToolError: It has.
        Unavailable: Its logs cannot be read, so nobody can tell.
    """
    incident = _incident(context, job)
    if incident is None or incident.kind is not EventKind.HANG or job.state.ended:
        return
    events = context.history.events(incident.id)
    if not is_watchs(context) and any(event.kind is EventKind.REQUESTED for event in events):
        return  # whoever asks for it by hand has looked
    try:
        with reading_as(job.account):
            moved = within(CANCEL_LOOK_S, lambda: motion_since(job, events), f"the logs of job {job.id}")
    except OSError as error:
        raise Unavailable(f"whether job {job.id} still stands cannot be told: {error}") from error
    if moved.goes_on or moved.steps_shown:
        at = f", step {moved.step}" if moved.step is not None else ""
        raise ToolError(f"job {job.id} has written steps since it was seen to stand still{at}: it is not ended")


def must_be_alone_of_its_run(context: Context, job: Job, *, by_name: bool = False) -> None:
    """Make sure that no other job of the same run is alive or waits, held or not.

    Args:
        context: Of the call.
        job: The attempt that the call is about.
        by_name: Whether jobs of one name and work folder count as one run also where script or arguments differ, unless they are
            known to save elsewhere.

    Raises:
        ToolError: One is: two would write over each other's checkpoints.
    """
    own = runs.SaveFolders(job, context.checkpoint_folders)
    for candidate in runs.jobs_beside(context.scheduler, own):
        if candidate.id == job.id or candidate.state.ended:
            continue
        alike = (
            by_name
            and (candidate.name, candidate.work_dir) == (job.name, job.work_dir)
            and not _saves_elsewhere(context, job, candidate)
        )
        if alike or is_of_run(context, job, candidate, own):
            raise ToolError(
                f"job {candidate.id} ({candidate.state}) is of the same run as job {job.id}: a second one would write over its "
                "checkpoints; end one of the two first"
            )


def must_look_again(context: Context, claim: Job, why: str) -> None:
    """Put a watch's call off to the next pass while a held restart of the same run is neither released nor withdrawn.

    Whoever holds it releases it, and the call is refused then, or withdraws it, and the call is made. A person's own call is not
    put off: the person is told at once.

    Args:
        context: Of the call.
        claim: The held job that came first.
        why: For people.

    Raises:
        RestartPending: It is looked at again. Whatever the call has begun stands as it is.
    """
    since = context.clock.now() - claim.submitted if claim.submitted is not None else UNDECIDED_AT_MOST
    if is_watchs(context) and since < UNDECIDED_AT_MOST:
        raise RestartPending(f"{why}; it is looked at again until {UNDECIDED_AT_MOST.total_seconds() / 60:.0f} min have passed")


def must_be_decided_here(context: Context, job: Job) -> None:
    """Put a watch's restart off while another Nightshift holds the very job in the queue, about to release or to withdraw it.

    Raises:
        RestartPending: It does.
    """
    if job.requeued_held and is_claim(job) and not is_held_by(job, context.tag):
        must_look_again(context, job, f"job {job.id} was queued again by another call ({job.comment}) and waits held")


def wait_until_alone(context: Context, before: Job) -> None:
    """Wait until a job waits in the queue, held by this call, and no other of its run is there.

    A restart that was submitted held before gives way once it sees the job in the queue, or has looked before and is released; one
    that is submitted later gives way. So whatever is seen alive came first, and a held one is waited for (docs/decisions/0015).

    Raises:
        ToolError: Another job of the run is alive, or a held one stays, or somebody else holds the job now. The gate withdraws the
            job then, unless it is somebody else's hold.
        RestartPending: A held one stays, and a watch looks again; the job stays held.
    """
    ends = context.clock.ticks() + HELD_AT_MOST_S
    folders = runs.SaveFolders(before, context.checkpoint_folders)
    while True:
        listed = {candidate.id: candidate for candidate in runs.jobs_beside(context.scheduler, folders)}
        own = listed.pop(before.id, before)
        if own.state.ended and (own.attempt > before.attempt or before.requeued_held):
            raise ToolError(f"job {before.id} was queued again and ended before it was released: somebody ended it")
        rivals = [
            candidate
            for candidate in listed.values()
            if not candidate.state.ended and is_of_run(context, before, candidate, folders)
        ]
        first = next((candidate for candidate in rivals if not is_claim(candidate)), None) or next(iter(rivals), None)
        if own.held and not is_held_by(own, context.tag):
            raise ToolError(HELD_UNKNOWN.format(job=before.id))
        if own.held and first is None:
            return
        if own.held and first is not None and is_claim(first) and context.clock.ticks() >= ends:
            must_look_again(
                context, first, f"job {before.id} waits held until job {first.id} of the same run is released or withdrawn"
            )
        if (first is not None and not is_claim(first)) or context.clock.ticks() >= ends:
            obstacle = f"job {first.id} ({first.state}) is of the same run" if first is not None else f"it is {own.state}, not held"
            raise ToolError(f"job {before.id} was not queued again: {obstacle}, so it was withdrawn before it began")
        context.clock.sleep(LOOK_S)


def _submitted_since(context: Context, job: Job, since: datetime) -> Job | None:
    """Return a later job of the same run, ours or a person's, also the next link of a chain."""
    over = job if job.ended is not None else replace(job, ended=since)
    return next(runs.successor_of(context.scheduler, context.checkpoint_folders, over), None)


def is_of_run(context: Context, job: Job, candidate: Job, own: runs.SaveFolders | None = None) -> bool:
    """Return whether another job is of the same run; `assistant.recover.runs.is_of_run` says by what.

    Args:
        context: Of the call.
        job: The attempt that the call is about, with its spec where there is one.
        candidate: As a list of jobs shows it.
        own: Of the first job, where it is compared with several.

    Raises:
        Unavailable: The scheduler did not answer.
    """
    return runs.is_of_run(context.scheduler, context.checkpoint_folders, job, candidate, own=own)


def must_be_unwritten(context: Context, job: Job, before: Files | None = None) -> Files:
    """Make sure that nobody has saved where an attempt did since it ended, whoever that is and whatever the scheduler shows.

    What processes of the attempt itself may have written last is no proof: within `TEAR_DOWN` of its end a watch looks again later.

    Args:
        context: Of the call.
        job: The attempt.
        before: What an earlier look of the same call returned; None at the first.

    Returns:
        What lies in its folder now, for the next look.

    Raises:
        ToolError: Somebody has: a restart might be a second writer.
        RestartPending: Something is written there so shortly after its end that it may be its own.
        Unavailable: The storage did not answer.
    """
    incident = _incident(context, job)
    ended = job.over or (incident.failed_at or incident.opened if incident is not None else None)
    if incident is not None and incident.kind is EventKind.REQUESTED and ended is not None:
        ended = max(ended, incident.opened)  # whoever asks for a restart knows what was written before
    search = search_of(context, job)
    folder = search.inventory.folder if search.inventory is not None else search.place.folder if search.place is not None else None
    if ended is None or folder is None:
        return {}
    now = context.clock.now()
    saves = search.inventory.checkpoints if search.inventory is not None else ()
    with reading_as(job.account):
        save = save_after(job, folder, ended=ended, now=now)
        files = files_in(folder, saves) if job.dated_logs else {}
    change = change_between(before or {}, files)
    lately = job.dated_logs and now < ended + TEAR_DOWN and is_watchs(context)
    if change and lately and not save:
        raise RestartPending(f"job {job.id} is not started again yet: {change}, {now - ended} after its end; it is looked at again")
    sign = save or change or lock_after(files, ended=ended, now=now) or (open_in(folder, saves) if job.dated_logs else "")
    sign = sign or (_by_hand(context, job, ended) if incident is not None and incident.kind is not EventKind.REQUESTED else "")
    if sign:
        raise ToolError(
            f"job {job.id} is not started again: {sign}. Who writes there? A restart beside it would be a second writer; when "
            "nobody does any more, start it by hand"
        )
    return files


def _by_hand(context: Context, job: Job, ended: datetime) -> str:
    """Return which allocation of salloc or srun its owner began in the work folder of an attempt since that ended; empty: none.

    What runs in it the scheduler does not show.
    """
    for allocation in context.scheduler.user_jobs(job.user):
        is_later = allocation.state is JobState.RUNNING and allocation.started is not None and allocation.started >= ended
        if not is_later or allocation.id == job.id or job.work_dir is None or allocation.work_dir != job.work_dir:
            continue
        try:
            if context.scheduler.job(allocation.id).interactive:
                return f"{job.user} works in {job.work_dir} by hand since, in the allocation {allocation.id} ({allocation.name})"
        except ToolError:
            continue
    return ""


def _saves_elsewhere(context: Context, job: Job, candidate: Job) -> bool:
    """Return whether it is known of both jobs where they save, and that these are different folders."""
    try:
        with_spec = candidate if candidate.spec is not None else context.scheduler.job(candidate.id)
    except ToolError:
        return False
    folders = [runs.SaveFolders(entry, context.checkpoint_folders).certain for entry in (job, with_spec)]
    return None not in folders and folders[0] != folders[1]


def _incident(context: Context, job: Job) -> Incident | None:
    if context.incident is None:
        return None
    return next((incident for incident in context.history.incidents(job=job.id) if incident.id == context.incident), None)


def _cancelled_here(context: Context, incident: Incident, job: Job) -> bool:
    for call in context.history.calls(incident.id):
        if (call.tool, call.status, call.arguments.get("job")) == ("cancel_job", CallStatus.DONE, job.id):
            outcome = context.history.outcome(call.id)
            if outcome is not None and isinstance(outcome.value, Mapping) and outcome.value.get("cancelled"):
                return True
    return False
