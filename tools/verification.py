"""See whether a restart worked: the job's steps, its loss, and whether its storage answers. All of it only looks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from assistant.accounts import Account, account_of, as_account
from assistant.errors import ToolError, Unavailable, UnreadableFile
from assistant.records import IncidentState, Job, JobState, MetricPoint, Risk
from assistant.recover.checkpoints.place import checkpoint_place
from assistant.recover.checkpoints.search import CheckpointSearch, SaveState
from assistant.recover.comparison import Comparison, aborted_at_exit, compared, saved_end, training_end
from assistant.recover.job_program import programs_of
from assistant.recover.joblog import log_lines, log_parts, log_points, marks_before
from assistant.recover.restart import live_double
from assistant.recover.resume.stages import behind_training
from assistant.recover.saved_progress import SavedProgress, by_saves, pieces_made
from assistant.recover.source.settings import repeat_problem
from assistant.recover.verify import Look, Seen, loss_seen, progress_seen
from assistant.tooling import Context, tool
from assistant.tools.checkpoints import choose_checkpoint, search_of
from assistant.tools.preconditions import is_of_run, must_be_the_same_job
from assistant.untrusted import LOOK_S, list_folder, read_start, reading_as, status_of, within

FIRST_PAUSE_S = 0.25
LONGEST_PAUSE_S = 15.0
MOST_WAITING = 500
LONGEST_TURN_S = 120.0
"""An older incident that has its answer and does not restart for so long has lost its turn."""
HIGHEST_PARTS = 2
"""`/` and the folders in it may hold mounts: that one of them stands says nothing of what was mounted below it."""
MOST_NAMES = 10_000
ENDED_BY_ITSELF = frozenset({JobState.FAILED, JobState.COMPLETED, JobState.OUT_OF_MEMORY, JobState.TIMEOUT})
"""What no scheduler queues again: one that it took away is preempted, cancelled, or lost with its node."""
DOWN_MARKER = "storage_down_until"
"""A file of this name in the checkpoint folder says until when (seconds since 1970) the storage is to be left alone."""


@tool(risk=Risk.READ)
def job_progress(context: Context, job: str, restart_step: int = 0, past_step: int = 0, timeout_s: float = 60.0) -> dict[str, Any]:
    """Tell whether a restarted job has passed the step it restarted from; `status` is past_restart_step, waiting or failed.

    Args:
        job: Scheduler job id of the restarted job.
        restart_step: Step of the checkpoint it began with.
        past_step: A later step that it must pass as well, such as the one at which the loss went off.
        timeout_s: How long to wait for an answer other than `waiting`.
    """

    def look() -> Seen:
        restarted_job = context.scheduler.job(job)
        end = training_end(line.text for line in log_lines(restarted_job)) if restarted_job.state.ended else None
        finished = end.line if end is not None else ""
        points = own_points(context, restarted_job)
        if not points and (count := _by_count(context, restarted_job, _failed_job(context), restart_step)) is not None:
            return progress_seen(restarted_job, count.began, count.after, finished=finished)
        if not points and (saved := _by_saves(context, restarted_job, restart_step)) is not None and saved.step > past_step:
            note = f"job {job} saved a whole checkpoint of step {saved.step}; its log numbers no step"
            return Seen(Look.PAST_RESTART_STEP, note, saved.step)
        if not points and not restart_step and (pieces := _pieces_made(context, restarted_job)):
            return Seen(Look.PAST_RESTART_STEP, pieces)
        stateless = not points and not restart_step and _keeps_no_state(context, restarted_job)
        at = context.clock.now() if stateless else None
        return progress_seen(restarted_job, max(restart_step, past_step), points, finished=finished, stateless_at=at)

    return {**_wait_for_verdict(context, look, timeout_s), "job": job}


def own_points(context: Context, job: Job) -> list[MetricPoint]:
    """Return the metrics that a restarted job itself logged: none of the attempt before it, whose file may have the same name."""
    return log_points(job, marks=marks_before(context.history, job), sure=True)


def _by_saves(context: Context, job: Job, chosen_step: int) -> SavedProgress | None:
    """Return how far a restarted job came by its own saves, where its log numbers no step."""
    marks, now, failed = marks_before(context.history, job), context.clock.now(), _failed_job(context)
    folders = context.checkpoint_folders
    return by_saves(job, folders, marks, context.scheduler, failed=failed or None, chosen_step=chosen_step, now=now)


def _pieces_made(context: Context, job: Job) -> str:
    return pieces_made(job, context.checkpoint_folders, context.clock.now())


def _keeps_no_state(context: Context, job: Job) -> bool:
    """Tell whether a running job without steps is known to keep no state, as a server: that it lives is all that can be seen."""
    return job.state is JobState.RUNNING and search_of(context, job).stateless


def _failed_job(context: Context) -> str:
    """Return the job that the call's incident is about; empty for none."""
    incidents = [incident for incident in context.history.incidents(limit=MOST_WAITING) if incident.id == context.incident]
    return incidents[0].job or "" if incidents else ""


def _by_count(context: Context, restarted_job: Job, before_job: str, chosen_step: int) -> Comparison | None:
    """Return what a restarted job and the one before count alike in forms of their own; None where one numbers its steps."""
    if not before_job or before_job == restarted_job.id:
        return None
    try:
        before = context.scheduler.job(before_job)
    except ToolError:
        return None
    if log_points(before):
        return None
    return compared(before, restarted_job, marks_before(context.history, restarted_job), chosen_step=chosen_step)


@tool(risk=Risk.READ)
def training_finished(context: Context, job: str) -> dict[str, Any]:
    """Tell whether the training of a job that ended is over: its log says so, and its last step was saved.

    `finished` is true only where both hold; `note` names the line. `at_exit` is the line by which its program was aborted at its
    exit, where nothing else failed behind the training.

    Args:
        job: Scheduler job id of the attempt that ended.
    """
    ended_job = context.scheduler.job(job)
    end = training_end(line.text for line in log_lines(ended_job))
    if end is None or not ended_job.state.ended:
        return {"finished": False, "note": f"the log of job {job} does not say that its training is over", "job": job}
    search = search_of(context, ended_job)
    later = behind_training(search.programs, search.place.folder) if search.place is not None else ()
    stages = search.stages
    if later or (stages is not None and stages.failed != len(stages.stages) - 1):
        stage = f"; {stages.sentence}" if stages is not None else ""
        then = f", and its script goes on with {', '.join(later)}" if later else ""
        note = f"the log of job {job} says that a training is over ({end.line}){then}{stage}"
        return {"finished": False, "note": note, "job": job}
    last = max((point.step for point in log_points(ended_job)), default=0)
    saved = "its last step is saved" if end.saved_after or _saved_step(context, job) >= last > 0 else _saved_end(ended_job, search)
    words = saved or "no checkpoint of its last step is known, so its end may be lost"
    note = f"the log of job {job} says that its training is over ({end.line}); {words}"
    logs = [[line.text for line in lines] for _, lines in log_parts(ended_job)] if saved else []
    return {"finished": bool(saved), "note": note, "job": job, "at_exit": aborted_at_exit(ended_job, logs, end.line)}


def _saved_end(job: Job, search: CheckpointSearch) -> str:
    """Return what lies there that is proven to be the end of a training; empty where nothing is, or it cannot be read."""
    saves = search.inventory
    if saves is None:
        return ""
    try:
        with reading_as(job.account):
            return within(LOOK_S, partial(saved_end, job, saves), f"{saves.folder}")
    except (Unavailable, OSError):
        return ""


def _saved_step(context: Context, job: str) -> int:
    try:
        return int(choose_checkpoint(context, job)["step"])
    except (ToolError, Unavailable):
        return 0


@tool(risk=Risk.READ)
def loss_continues(context: Context, job: str, before_job: str, restart_step: int = 0, timeout_s: float = 60.0) -> dict[str, Any]:
    """Tell whether the loss of a restarted job goes on from where it was.

    `status` is continues, jumped, unknown, waiting or failed.

    Args:
        job: Scheduler job id of the restarted job.
        before_job: Job id of the attempt before it.
        restart_step: Step of the checkpoint it began with.
        timeout_s: How long to wait for an answer other than `waiting`.
    """
    before = log_points(context.scheduler.job(before_job))

    def look() -> Seen:
        restarted_job = context.scheduler.job(job)
        own = own_points(context, restarted_job)
        count = _by_count(context, restarted_job, before_job, restart_step) if not own and not before else None
        if count is not None:
            verdict = loss_seen(count.before, count.after, restart_step=count.began, ended=restarted_job.state.ended)
        else:
            verdict = loss_seen(before, own, restart_step=restart_step, ended=restarted_job.state.ended)
            if not own and verdict.status is Look.WAITING:
                saved = _by_saves(context, restarted_job, restart_step)
                verdict = saved.loss if saved is not None else verdict
        if restarted_job.state.failed:
            return Seen(Look.FAILED, f"job {job} {restarted_job.state} under verification; {verdict.note}", verdict.step)
        if verdict.status is Look.WAITING and not own and not restart_step and not before:
            if pieces := _pieces_made(context, restarted_job):
                return Seen(Look.CONTINUES, pieces)
            if _keeps_no_state(context, restarted_job):
                return Seen(Look.CONTINUES, f"job {job} makes no steps and keeps no state")
        if verdict.status is Look.UNKNOWN and (end := training_end(line.text for line in log_lines(restarted_job))) is not None:
            return Seen(Look.CONTINUES, f"nothing was left to train: {end.line}", verdict.step)
        if (
            verdict.status is Look.UNKNOWN
            and restarted_job.state is JobState.COMPLETED
            and not restarted_job.exit_code
            and not restarted_job.signal
        ):
            # what it came to is judged by all that it shows, at the end of the playbook
            return Seen(Look.CONTINUES, f"job {job} completed with exit code 0; {verdict.note}", verdict.step)
        return verdict

    return {**_wait_for_verdict(context, look, timeout_s), "job": job}


@tool(risk=Risk.READ)
def live_run(context: Context, job: str, timeout_s: float = 0.0) -> dict[str, Any]:
    """Tell whether the run of a job is alive again: requeued by the scheduler, or submitted again by somebody.

    `status` is alive, waiting, or gone (the scheduler never brings it back); `job` is the live one's id, else empty.

    Args:
        job: Scheduler job id of the attempt that ended.
        timeout_s: How long to wait for it to come back.
    """

    def look() -> Seen:
        alive = _alive(context, job)
        if alive is not None:
            return Seen(Look.ALIVE, f"job {alive.id} is {alive.state}")
        ended_job = context.scheduler.job(job)
        if ended_job.never_requeued:
            why = "Slurm cancelled it for another and did not queue it again (PreemptMode=CANCEL, or --no-requeue)"
            why = why if ended_job.state is JobState.PREEMPTED else "it may not be requeued (--no-requeue)"
            return Seen(Look.GONE, f"job {job} does not come back by itself: {why}")
        if ended_job.state in ENDED_BY_ITSELF:
            return Seen(Look.GONE, f"job {job} does not come back by itself: the scheduler calls it {ended_job.state}")
        return Seen(Look.WAITING, f"job {job} has not come back")

    answer = _wait_for_verdict(context, look, timeout_s)
    alive = _alive(context, job) if answer["status"] == Look.ALIVE else None
    return {**answer, "job": alive.id if alive is not None else ""}


def _alive(context: Context, job_id: str) -> Job | None:
    job = context.scheduler.job(job_id)
    must_be_the_same_job(context, job)
    if not job.state.ended:
        return job
    return live_double(job, context.scheduler.user_jobs(job.user), partial(is_of_run, context))


@tool(risk=Risk.READ)
def job_ended(context: Context, job: str, timeout_s: float = 60.0) -> dict[str, Any]:
    """Tell whether a job is over, for instance after it was cancelled; `status` is ended or waiting.

    Args:
        job: Scheduler job id.
        timeout_s: How long to wait for its end.
    """

    def look() -> Seen:
        job_record = context.scheduler.job(job)
        return Seen(Look.ENDED if job_record.state.ended else Look.WAITING, f"job {job} is {job_record.state}")

    return _wait_for_verdict(context, look, timeout_s)


@tool(risk=Risk.READ)
def saved_since(context: Context, job: str, step: int | None = None, timeout_s: float = 60.0) -> dict[str, Any]:
    """Tell whether a running job has saved a checkpoint that may be loaded since a step; `status` is saved, waiting or ended.

    Where no step is known the newest one that may be loaded counts.

    Args:
        job: Scheduler job id.
        step: The step from which on a checkpoint counts.
        timeout_s: How long to wait for one.
    """

    def look() -> Seen:
        state = context.scheduler.job(job).state
        if state.ended:
            return Seen(Look.ENDED, f"job {job} is {state}")
        choice = choose_checkpoint(context, job)
        saved = bool(choice["restart_from"] and choice["path"]) and (step is None or choice["step"] >= step)
        return Seen(Look.SAVED if saved else Look.WAITING, str(choice["note"]))

    return _wait_for_verdict(context, look, timeout_s)


@tool(risk=Risk.READ)
def wait_storage(
    context: Context, job: str = "", folder: str = "", timeout_s: float = 60.0, apart_s: float = 20.0
) -> dict[str, Any]:
    """Tell whether a job's checkpoint folder can be written and read; a small file is written there and removed.

    Where a job's script takes its folder from a shell that is gone, that may be another run's: it is only listed, and the file is
    written beside the job's log.

    `status` is storage_answers or waiting. Of several incidents that wait each gets its turn, the oldest first, so that the jobs
    do not all load their checkpoints at once when the storage is back.

    Args:
        job: Scheduler job id, whose checkpoint folder is meant.
        folder: The folder itself, where no job is given.
        timeout_s: How long to wait for it to answer.
        apart_s: Seconds between the restarts of two incidents that waited.
    """
    target, listed = (Path(folder), None) if folder else _folder(context, job)
    # a job names its folder itself: as root its owner's rights must count, also for the probe that is written there
    account = account_of(context.scheduler.job(job).account) if job else None

    def look() -> Seen:
        problem = _storage_problem(context, target, account, listed) or turn_before(context, apart_s)
        return Seen(Look.WAITING, problem) if problem else Seen(Look.STORAGE_ANSWERS, f"{target} can be written and read")

    return _wait_for_verdict(context, look, timeout_s)


def turn_before(context: Context, apart_s: float) -> str:
    """Return whose turn it is before the incident that the call is made for; empty when it is its own.

    An incident that waits for a person keeps nobody waiting, and neither does one that the storage keeps waiting by itself.
    """
    if context.incident is None or apart_s <= 0:
        return ""
    now = context.clock.now()
    recent = timedelta(seconds=max(apart_s, LONGEST_TURN_S))
    for incident in reversed(context.history.incidents(limit=MOST_WAITING)):
        if incident.id == context.incident or (incident.closed is not None and now - incident.closed > recent):
            continue
        calls = context.history.calls(incident.id)
        waits = [call for call in calls if call.tool == "wait_storage"]
        if not waits:
            continue
        restarts = [call.at for call in calls if call.tool == "resubmit_job"]
        if restarts and (now - restarts[-1]).total_seconds() < apart_s:
            return f"incident {incident.id} was restarted a moment ago; one after the other"
        outcome = context.history.outcome(waits[-1].id)
        about_to = outcome is None or (isinstance(outcome.value, dict) and outcome.value.get("status") == Look.STORAGE_ANSWERS)
        in_turn = incident.id < context.incident and not restarts and incident.state is IncidentState.RECOVERING
        if about_to and in_turn and (now - waits[-1].at).total_seconds() <= LONGEST_TURN_S:
            return f"incident {incident.id} waits for longer and comes first"
    return ""


def _folder(context: Context, job_id: str) -> tuple[Path, Path | None]:
    """Return the folder of a job to write into, and one that may not be its own and is only to be listed."""
    if not job_id:
        raise ToolError("wait_storage needs a job or a folder")
    job = context.scheduler.job(job_id)
    texts = [line.text for line in log_lines(job)]
    place = checkpoint_place(job, context.checkpoint_folders, texts)
    if place is not None:
        return _lowest(context, job, place.folder), None
    place = checkpoint_place(job, context.checkpoint_folders, texts, programs_of(job))
    if place is not None and (place.stated or not repeat_problem(job)):
        return _lowest(context, job, place.folder), None
    own = job.log.parent if job.log is not None and place is not None else job.work_dir
    if own is None:
        raise ToolError(f"where job {job_id} saves is not known; name the folder")
    return own, place.folder if place is not None else None


def _lowest(context: Context, job: Job, folder: Path) -> Path:
    """Return the folder that a probe is to use, as `_lowest_existing` finds it; of storage that does not answer the probe tells."""
    try:
        with reading_as(job.account):
            return within(context.command_timeout_s, lambda: _lowest_existing(context, job, folder), f"{folder}")
    except (ToolError, Unavailable, OSError):
        return folder


def _lowest_existing(context: Context, job: Job, folder: Path) -> Path:
    """Return the lowest folder that stands of the path of one that a job has proven never to have made; any other as it is.

    A folder that saves lie in and that is missing is storage that is away, and so is one above it that holds nothing.
    """
    missing = [folder, *folder.parents][: next(at for at, place in enumerate([folder, *folder.parents]) if _is_there(place))]
    above = missing[-1].parent if missing else folder
    if not missing or len(above.parts) <= HIGHEST_PARTS or not _holds_something(above):
        return folder
    return above if search_of(context, job).state is SaveState.NEVER_SAVED else folder


def _holds_something(folder: Path) -> bool:
    try:
        return bool(list_folder(folder, MOST_NAMES))
    except UnreadableFile:
        return True  # too much to be listed


def _is_there(path: Path) -> bool:
    try:
        status_of(path)
    except FileNotFoundError:
        return False
    return True


def _storage_problem(context: Context, folder: Path, account: Account | None, listed: Path | None = None) -> str:
    """Return why a folder cannot be used now, empty when it can."""
    problems: list[str] = []

    def write_and_read() -> str:
        if listed is not None:
            with suppress(FileNotFoundError):
                next(listed.iterdir(), None)
        until = folder / DOWN_MARKER
        marker_text = read_start(until, 64).decode("utf-8", "replace").strip() if until.is_file() else ""
        if float(marker_text or 0) > context.clock.now().timestamp():
            return f"{folder}: {DOWN_MARKER} says it is not back yet"
        file = folder / f".nightshift-probe-{context.incident or 0}-{context.random.randrange(1 << 32):08x}"
        file.write_text("nightshift", encoding="utf-8")
        back = read_start(file, 64)
        file.unlink()
        return "" if back == b"nightshift" else f"{folder} gives back other bytes than were written"

    def probe() -> None:
        try:
            with as_account(account):
                problems.append(write_and_read())
        except (OSError, ValueError) as error:
            problems.append(f"{folder}: {error}")

    # A hung mount blocks for ever, in a way that no timeout of the call itself can end.
    thread = threading.Thread(target=probe, daemon=True)
    thread.start()
    thread.join(context.command_timeout_s)
    return problems[0] if problems else f"{folder} did not answer within {context.command_timeout_s:g} s"


def _wait_for_verdict(context: Context, look: Callable[[], Seen], timeout_s: float) -> dict[str, Any]:
    """Return the first verdict other than `waiting`, or the last one when the time is over."""
    end = context.clock.now() + timedelta(seconds=timeout_s)
    pause = FIRST_PAUSE_S
    while True:
        verdict = look()
        left_s = (end - context.clock.now()).total_seconds()
        if verdict.status is not Look.WAITING or left_s <= 0:
            queued = {"queued": True} if verdict.queued else {}
            return {"status": str(verdict.status), "note": verdict.note, "step": verdict.step, **queued}
        context.clock.sleep(min(pause, left_s))
        pause = min(pause * 1.5, LONGEST_PAUSE_S)
