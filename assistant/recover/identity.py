"""Whose a job or a cordon is: a tag's claim, checked against the store's own rows and the scheduler's own fields.

A comment is written by whoever submits the job. What counts is what Slurm itself vouches for: the id, user, name, work folder and
time of submission of a job, and that only administrators write the reason of a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from assistant.errors import UsageError
from assistant.policy import sits_at_a_door
from assistant.records import Call, Job, JobState, hold_mark, run_of, tags_in
from assistant.tooling import Context, History

__all__ = [
    "CLOCKS_APART",
    "HELD_UNKNOWN",
    "LIVING",
    "RESTARTS",
    "is_claim",
    "is_held_by",
    "is_watchs",
    "is_withdrawn_claim",
    "other_keeper",
    "other_store",
    "owns_cordon",
    "restart_of",
]

CLOCKS_APART = timedelta(seconds=60)
"""How far the clocks of the controller and of this machine may differ."""
RESTARTS = ("resubmit_job", "requeue_ended_job")
"""Tools that start a job again."""
LEFT_BEHIND = "left_behind"
"""Key of their value: which jobs wait for the failed attempt and could not be moved to the restart."""
MOVED = "moved"
"""Key of their value: which jobs waited for the failed attempt and wait for the restart now."""
LIVING = timedelta(hours=24)
"""A store whose tag was written that lately counts as one at work."""


def restart_of(history: History, job: Job) -> Call | None:
    """Return the call of this store that submitted a job; None for a job of anybody else, whatever its comment claims.

    A call with an outcome submitted exactly the job that the outcome names. One that was interrupted submitted a job of the same
    user, name and work folder, after it was allowed.
    """
    for tag in tags_in(job.comment):
        if tag.store not in ("", history.store_id):
            continue
        call = _call(history, tag.call)
        if call is None or call.tool not in RESTARTS or (call.incident or 0) != tag.incident:
            continue
        allowed = min((one.at for one in history.decisions(call.id) if one.verdict == "allow"), default=None)
        if allowed is None or job.submitted is None or job.submitted < allowed - CLOCKS_APART:
            continue
        outcome = history.outcome(call.id)
        if outcome is not None:
            value = outcome.value if isinstance(outcome.value, Mapping) else {}
            if outcome.ok and value.get("job") == job.id and (job.attempt or job.submitted <= outcome.at + CLOCKS_APART):
                return call
            continue
        if tag.store and run_of(job) in history.runs_of(call.id):
            return call
    return None


def owns_cordon(history: History, node: str, reason: str) -> bool:
    """Return whether a call of this store wrote the reason of a node.

    A reason in the form from before stores had ids counts when a cordon of that node by that call is in this store.
    """
    tag = next(iter(tags_in(reason)), None)
    if tag is None or not reason.startswith(str(tag)) or tag.store not in ("", history.store_id):
        return False
    call = _call(history, tag.call)
    if call is None or (call.incident or 0) != tag.incident:
        return False
    return call.tool == "cordon_node" and call.arguments.get("node") == node


def other_store(history: History, text: str) -> str | None:
    """Return the id of another store that a comment or reason names; None where it names none or only this one."""
    return next((tag.store for tag in tags_in(text) if tag.store not in ("", history.store_id)), None)


def other_keeper(context: Context, job: Job) -> str:
    """Return why a job is left to another Nightshift; empty where it is not, and for a person's own call.

    The tag of another store on a job of the last day means that this store restarted it and watches it. A user who forges such a
    comment only keeps Nightshift from restarting the user's own job.
    """
    store = other_store(context.history, job.comment)
    lately = job.submitted is not None and context.clock.now() - job.submitted < LIVING
    if store is None or not lately or sits_at_a_door(context.by):
        return ""
    return (
        f"job {job.id} carries the tag of another Nightshift (store {store}), which looks after it; end one of the two watches, or "
        f"restart the job by hand: nightshift recover {job.id}"
    )


HELD_UNKNOWN = (
    "job {job} waits held, queued again under its own id, and whether Nightshift, its owner or an administrator holds it cannot be "
    "told; it is neither released nor ended: scontrol release {job}, or scancel {job}"
)
"""About a hold that carries no proof, with the id of the job."""


def is_held_by(job: Job, tag: str) -> bool:
    """Return whether a job waits held because the call with a tag has queued it again.

    Slurm refuses to queue a job again that waits already, so of all who try one succeeds; that one writes its tag and the attempt
    into the comment. A hold of before that mark, of a later attempt, or of another sort (`JobHeldUser`, `JobHeldAdmin`) is none of
    the call's.
    """
    words = job.comment.split()
    return bool(tag) and job.requeued_held and tag in words and hold_mark(job.attempt) in words


def is_watchs(context: Context) -> bool:
    """Return whether a call is made by a watch or an agent, and can so be put off; a person who makes one waits for its answer."""
    return not sits_at_a_door(context.by)


def is_claim(job: Job) -> bool:
    """Return whether a job is a restart that some store has submitted held, and neither released nor withdrawn."""
    return job.held and bool(tags_in(job.comment))


def is_withdrawn_claim(job: Job) -> bool:
    """Return whether a job is a restart that was withdrawn before it could begin: nothing of it ever ran."""
    return job.state is JobState.CANCELLED and not job.nodes and job.started is None and bool(tags_in(job.comment))


def _call(history: History, number: int) -> Call | None:
    try:
        return history.call(number)
    except UsageError:
        return None
