"""Find out what came of calls that nobody comes back to: the incident they were made for is over, or they belong to none."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from assistant.engine.leases import STEP
from assistant.errors import Denied, Parked, StoreBusy, ToolError, Unavailable, UsageError
from assistant.gate import Gate
from assistant.ports import Scheduler
from assistant.records import Call, CallStatus, Job, Risk, Verdict, run_of, tags_in
from assistant.recover.identity import CLOCKS_APART, HELD_UNKNOWN, LIVING, is_claim
from assistant.store import Store
from assistant.tooling import find_tool
from assistant.watch.attempts import Trouble

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

logger = logging.getLogger(__name__)

AGE = timedelta(minutes=10)
"""Longer than any one call takes: before that the process that makes it may still be at it."""

REQUEUES = ("requeue_job", "requeue_ended_job")
"""Tools that queue a job again under its own id."""
ENDED = (CallStatus.DONE, CallStatus.FAILED, CallStatus.DENIED, CallStatus.UNDONE)


def tidy_left_open(store: Store, gate: Gate, scheduler: Scheduler, held_jobs: Sequence[Job]) -> list[Trouble]:
    """Settle calls that were left open and held jobs that they left, and return the held jobs about which a person must decide."""
    settle_left_open(store, gate)
    withdraw_strays(store, scheduler, held_jobs)
    return unclear_holds(store, held_jobs)


def unclear_holds(store: Store, held_jobs: Iterable[Job]) -> list[Trouble]:
    """Return the jobs that wait held after a requeue of this store that failed on them lately: nobody else will release them.

    What the call could prove to be its own hold it has withdrawn, so these carry no proof whose hold it is.
    """
    requeued = {job.id: job for job in held_jobs if job.requeued_held}
    if not requeued:
        return []
    failed: dict[str, Call] = {}
    for call in store.calls(status=CallStatus.FAILED):
        outcome = store.outcome(call.id) if call.tool in REQUEUES and str(call.arguments.get("job")) in requeued else None
        if outcome is not None and store.clock.now() - outcome.at < LIVING:
            failed[str(call.arguments["job"])] = call
    return [
        Trouble(f"held job {job}", f"{HELD_UNKNOWN.format(job=job)} (call {call.id} of {call.by} failed on it)")
        for job, call in failed.items()
    ]


def outlives_incident(engine: Engine, call: Call) -> bool:
    """Return whether a call of a playbook's step is still to be made once its incident has ended: the playbook did not await it."""
    if call.incident is None or call.step is None:
        return False
    incident = engine.store.incident(call.incident)
    playbook = engine.playbooks.get(incident.playbook or "") if incident.state.ended else None
    if playbook is None or playbook.digest != incident.playbook_digest:
        return False
    name = call.step.partition("[")[0]
    return any(step.name == name and not step.await_answer for step in playbook.step)


def settle_left_open(store: Store, gate: Gate) -> list[Call]:
    """Look up the changing calls that were begun, have no outcome, and are nobody's any more; return those that were settled."""
    settled = []
    for call in store.calls(status=CallStatus.INTENT):
        if call.step == STEP or find_tool(call.tool).risk is Risk.READ or not _left(store, call):
            continue
        try:
            if call.step is None:
                gate.go_on(call.id)
            elif gate.resolve(call) is None:
                gate.give_up(call)
        except (Denied, Parked, Unavailable, UsageError, StoreBusy) as error:
            logger.warning("call=%s was begun and what came of it is not known: %s", call.id, error)
            continue
        settled.append(store.call(call.id))
    return settled


def withdraw_strays(store: Store, scheduler: Scheduler, held_jobs: Iterable[Job]) -> list[str]:
    """Withdraw held jobs that calls of this store submitted and no call will release any more; return their ids.

    A call that was denied or failed releases nothing. One that was done has released the job that its outcome names; another one
    is left where two processes made the call and one was killed. A job that a person holds is none of these.
    """
    withdrawn = []
    for job in held_jobs:
        if not _is_stray(store, job):
            continue
        try:
            if is_claim(scheduler.job(job.id)):
                scheduler.withdraw(job.id)
                withdrawn.append(job.id)
                logger.info("job=%s was submitted held by a call that ended without it; withdrawn before it began", job.id)
        except (ToolError, Unavailable) as error:
            logger.warning(
                "job=%s was submitted held by a call that ended without it and could not be withdrawn: %s", job.id, error
            )
    return withdrawn


def _is_stray(store: Store, job: Job) -> bool:
    for tag in tags_in(job.comment):
        if tag.store != store.store_id or run_of(job) not in store.runs_of(tag.call):
            continue
        call = store.call(tag.call)
        if call.tool != "resubmit_job" or (call.incident or 0) != tag.incident:
            continue
        outcome, decided = store.outcome(call.id), store.decisions(call.id)
        allowed = [decision.at for decision in decided if decision.verdict is Verdict.ALLOW]
        if call.status not in ENDED or not allowed or job.submitted is None:
            continue
        # who copies a comment on a job of later is no stray of ours
        last = outcome.at if outcome is not None else decided[-1].at
        if not min(allowed) - CLOCKS_APART <= job.submitted <= last + CLOCKS_APART:
            continue
        value = outcome.value if outcome is not None and isinstance(outcome.value, Mapping) else {}
        return value.get("job") != job.id
    return False


def _left(store: Store, call: Call) -> bool:
    if call.incident is not None and not store.incident(call.incident).state.ended:
        return False
    decided = store.decisions(call.id)
    return store.clock.now() - (decided[-1].at if decided else call.at) >= AGE
