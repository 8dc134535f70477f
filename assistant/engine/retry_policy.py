"""Whether a job is started again: its budget, its back-off, what an earlier restart refuted, as which job; and the open breaker.

While the breaker is open incidents are noticed and diagnosed, and nothing is done about them; restarts that were made before are
still verified. What piled up is not made up for at the reset: hours may lie between, and people were at work. Each case is judged
once more in the cluster as it is then: where nothing is left to be done it is closed, else it is handed to a person.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from assistant.engine.gather import keep_log_ends
from assistant.engine.intake import UNPROVEN
from assistant.engine.written_files import written_file
from assistant.errors import NightshiftError, ToolError
from assistant.gate.stops import BY as BREAKER
from assistant.ports import LimitsSubmissions, Requeues, Scheduler
from assistant.records import Diagnosis, Event, EventKind, Incident, IncidentState, Job, JobState, Verdict
from assistant.recover.directives import Budget, failing_step, fingerprint, made_progress, refuted
from assistant.recover.identity import RESTARTS
from assistant.recover.playbook import Wanted
from assistant.recover.restart import live_double
from assistant.recover.situation import situation
from assistant.recover.source.settings import repeat_problem
from assistant.redact import head_of
from assistant.store import WENT_ON, Store
from assistant.store.standing_decisions import Period, last_period, why_open
from assistant.untrusted import LOOK_S, read_end, reading_as, within
from assistant.watch.attempts import STANDING, KnownIncidents
from assistant.watch.hang import ENDING_LINES, ended_task
from assistant.watch.witness import IDLE_PROOFS

ASKS_OLD_ADDRESS = "asks_old_address"
"""Stage of an incident: its living job was proven to ask an address that it will never read anew."""
AWAITS_ITSELF = "awaits_itself"
"""Stage of an incident: its living job was proven to wait for a part of itself that has died."""
LOST_AGAIN = "lost again"
"""Stage of an incident: its restart lost its numbers at the step at which the attempt before had lost them."""
STANDS_AGAIN = "stands again"
"""Stage of an incident: its job is a restart that stands still where the attempt before had stood still."""
WORKING = "working"
"""Stage of an incident: its silent job was seen to work, and nobody is told of it yet."""
WORKS_PATIENCE = timedelta(minutes=5)
"""For so long a silent job whose ranks use the CPU is left alone behind the watch's own limit: evaluations print nothing."""
AT_WORK = "makes no step and works: "
"""In the note of a silent job that was left running since it writes files."""
MOVED = "moved"
"""Stage of an incident: its restarted job trained past the step of its checkpoint."""


WORKS = re.compile(r"\ba process of the job works on the CPU of [\w.,\[\]-]{1,400}")
"""What a second look says of a job whose ranks use the CPU; `stack_classes` words it."""
_GPUS = re.compile(r"\b\d{1,6} of \d{1,6} GPUs (?:idle|computing|spinning)\b")


def refutation(store: Store, incident: Incident, diagnosis: Diagnosis) -> str:
    """Return why a diagnosis gets no restart that an earlier restart has refuted; empty where none has."""
    before = store.incident(incident.parent) if incident.parent is not None else None
    theory = store.diagnosis(before.id) if before is not None else None
    if before is None or theory is None or before.state is not IncidentState.ESCALATED or incident.kind is EventKind.REQUESTED:
        return ""
    if MOVED in store.stages(before.id) or not refuted(theory, diagnosis):
        return ""  # a restart that trained for a while has held that far: the budget counts it
    return f"no restart is left on this theory: that of incident {before.id} rested on it and did not hold ({before.note})"


def unproven_hang(store: Store, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> str:
    """Return why a living job is not ended as hung: nothing but its silence speaks for it, or it writes; empty for any other.

    A person who asked for the recovery has looked. That it was not proven is noted: the watch goes on looking.
    """
    living = job is not None and not job.state.ended and job.attempt == incident.attempt
    if diagnosis.reason != "hang" or not living or incident.kind is EventKind.REQUESTED:
        return ""
    details = [event.detail for event in store.events(incident.id) if event.kind is EventKind.HANG]
    if {ASKS_OLD_ADDRESS, AWAITS_ITSELF} & {*store.stages(incident.id)}:
        return ""
    work_words = _writes(details, incident, job, store.clock.now())
    if any(detail.get("proofs") for detail in details) and not work_words:
        return ""
    store.mark_stage(incident.id, UNPROVEN)
    if work_words:
        return (
            f"job {incident.job} {AT_WORK}{work_words}. It was left running, for nothing shows that it hangs. Only if that stops, "
            f"and its log stands still for longer than such a phase takes, end it with `nightshift recover {incident.job}`"
        )
    if sentence := _stands_again(store, incident, diagnosis):
        store.mark_stage(incident.id, STANDS_AGAIN)
        return f"{sentence}. It was left running: look at its ranks (py-spy dump), then end it with scancel {incident.job}"
    detail = details[0] if details else {}
    missed = str(detail.get("unseen") or "")
    witness_words = f"what was seen: {detail['witness']}" if detail.get("witness") and not missed else ""
    why = f"could not be looked at: {missed}" if missed else witness_words or "neither GPUs nor stacks were looked at"
    why += f"; {detail['unrun']}" if missed and detail.get("unrun") else ""
    phase = f" in phase {detail['phase']}" if detail.get("phase") else ""
    if missed and (works := WORKS.search(str(detail.get("witness") or ""))) is not None:
        idle = _GPUS.search(str(detail["witness"]))
        return (
            f"job {incident.job} makes no step{phase} and works: {works[0]}{f', {idle[0]}' if idle is not None else ''}; {why}. "
            "It was left running, for nothing shows that it hangs. Only if its log stands still for longer than such a phase "
            f"takes, and stacks of its ranks (py-spy dump) stay the same, end it with `nightshift recover {incident.job}`"
        )
    if end := _ended_part(job):
        return (
            f"job {incident.job} makes no step, and a part of it has ended: {end!r}, the last that its log says. What lives on "
            f"likely waits for that for ever; {why}. It was left running: look whether it does, then end it with scancel "
            f"{incident.job} or `nightshift recover {incident.job}`"
        )
    return (
        f"job {incident.job} is silent{phase}, and that it hangs is not proven; {why}. It was left running: "
        f"if it does hang, end it with `nightshift recover {incident.job}`"
    )


def _ended_part(job: Job | None) -> str:
    """Return the line by which srun says that a task of a living job has ended; empty where it does not, or cannot be read."""
    if job is None or job.log is None:
        return ""
    log = job.log
    try:
        with reading_as(job.account):
            raw = within(LOOK_S, lambda: read_end(log, ENDING_BYTES).raw, str(log))
    except (NightshiftError, OSError):
        return ""
    return head_of(ended_task(raw.decode("utf-8", "replace").splitlines()[-ENDING_LINES:]), LINE_SHOWN)


ENDING_BYTES, LINE_SHOWN = 16 << 10, 200


def _stands_again(store: Store, incident: Incident, diagnosis: Diagnosis) -> str:
    """Return that a restart stands still where the attempt before had stood still, which no chance explains; empty where not so."""
    before, former_step = incident, None
    while before.parent is not None and former_step is None:  # a restart that made no step has none of its own
        before = store.incident(before.parent)
        former = store.diagnosis(before.id)
        if before.kind is not EventKind.HANG or former is None:
            return ""
        former_step = former.step
    if former_step is None or (diagnosis.step or 0) > former_step:
        return ""
    return (
        f"job {incident.job} is the restart of job {before.job}, which stood still at step {former_step}, and makes no step past "
        "that either: what comes back at the same step lies in the program or its data, and in no node. Compare what the ranks "
        "have before them there: numbers of samples or batches, the end of an epoch, who calls a collective or a barrier that "
        "others do not"
    )


def _writes(details: Sequence[Mapping[str, Any]], incident: Incident, job: Job | None, now: datetime) -> str:
    """Return which file a silent job wrote a moment ago; empty where none, or where more than idleness proves that it hangs."""
    proofs = {str(proof) for detail in details for proof in detail.get("proofs") or ()}
    if job is None or not proofs <= IDLE_PROOFS:
        return ""
    return written_file(job, incident.failed_at or incident.opened, now)


def working_hang(store: Store, incident: Incident, diagnosis: Diagnosis, job: Job | None, now: datetime) -> str:
    """Return why nobody is told of a silent job yet: its ranks use the CPU, or it writes: its phase may take that long.

    Empty where something else speaks for the hang, and when `WORKS_PATIENCE` is over.
    """
    if diagnosis.reason != "hang" or job is None or job.state.ended or incident.kind is not EventKind.HANG:
        return ""
    details = [event.detail for event in store.events(incident.id) if event.kind is EventKind.HANG]
    if now - incident.opened >= WORKS_PATIENCE:
        return ""
    works = next((match[0] for detail in details if (match := WORKS.search(str(detail.get("witness") or "")))), "")
    works = "" if any(detail.get("proofs") for detail in details) else works
    works = works or _writes(details, incident, job, now)
    if not works:
        return ""
    if _stands_again(store, incident, diagnosis):
        return ""
    store.mark_stage(incident.id, WORKING)
    minutes = WORKS_PATIENCE.total_seconds() / 60
    return f"job {incident.job} makes no step and works: {works}; a person is told when that goes on for {minutes:.0f} min"


def situation_of(store: Store, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> dict[str, Any]:
    """Return the values that playbooks read of an incident, with what the store knows of the restart before it."""
    return situation(incident, diagnosis, job, now=incident.opened, refuted=bool(refutation(store, incident, diagnosis)))


def known_incidents(store: Store) -> KnownIncidents:
    """Return which attempts have an incident already, and of which hangs a proof is still awaited."""
    incidents = store.incidents(limit=100_000)
    hangs = [
        incident
        for incident in incidents
        if incident.kind is EventKind.HANG and incident.state is IncidentState.ESCALATED and not incident.playbook
    ]
    closed = [incident for incident in incidents if incident.kind in STANDING and incident.state is IncidentState.CLOSED]
    return KnownIncidents.of(
        incidents,
        unproven=frozenset(
            incident.id for incident in hangs if UNPROVEN in store.stages(incident.id) and not _has_ended(store, incident)
        ),
        went_on=frozenset(incident.id for incident in closed if WENT_ON in store.stages(incident.id)),
    )


def _has_ended(store: Store, incident: Incident) -> bool:
    return any(event.kind is EventKind.JOB_ENDED for event in store.events(incident.id))


def proven_since(store: Store, incident: Incident, event: Event) -> Incident:
    """Take up an escalated hang again that was not proven, once a look proves it.

    Where a person has acknowledged it, it is theirs: the proof is only added to its note.

    Returns:
        The incident as it stands then; any other one as it is.
    """
    proofs = event.detail.get("proofs") if event.kind is EventKind.HANG else None
    if not proofs or incident.state is not IncidentState.ESCALATED or UNPROVEN not in store.stages(incident.id):
        return incident
    note = f"proven since: {', '.join(map(str, proofs))}"
    if incident.id in store.unacknowledged():
        store.set_state(incident.id, IncidentState.DIAGNOSED, note=f"{note}; {incident.note}")
    elif note not in incident.note:
        store.set_state(incident.id, IncidentState.ESCALATED, note=f"{note}; {incident.note}")
    return store.incident(incident.id)


def cause_key(diagnosis: Diagnosis, job: Job | None) -> str:
    """Return the key of a retry budget: the root cause within one lineage of restarts; siblings of a sweep share none."""
    own = [job.id.partition("_")[2], *(job.spec.arguments if job.spec is not None else ())] if job is not None else []
    run = f"{job.user}/{job.name}/{job.work_dir}{'/' * any(own)}{' '.join(own)}" if job is not None else "?"
    return f"{fingerprint(diagnosis)}@{run}"


def credit_progress(store: Store, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> None:
    """Forget the restarts before this attempt when it went past the step at which the one before had failed."""
    before = store.diagnosis(incident.parent) if incident.parent is not None else None
    if before is None:
        return
    cause = cause_key(before, job)
    # the job proves that the restart was made, also where a crash has kept it from being counted so far
    store.add_attempt(cause, incident=incident.parent, step=failing_step(before))
    if made_progress(failing_step(before), failing_step(diagnosis)):
        store.add_progress(cause, incident=incident.id, step=failing_step(diagnosis))


def back_off(budget: Budget, now: datetime) -> str:
    """Return the note for a restart that has to wait; empty when it need not."""
    if budget.not_before is None or budget.not_before <= now:
        return ""
    return f"backs off: {budget.why}, not before {budget.not_before:%H:%M:%S}"


def as_the_same_job(scheduler: Scheduler, request: Wanted) -> Wanted:
    """Return the call of a playbook, with a requeue in the place of a submission that could not be the same job.

    Args:
        scheduler: Says of which job it keeps too little to submit it anew, and which it cannot hand on with our rights.
        request: The call as the playbook wants it.

    Raises:
        Unavailable: The scheduler did not answer.
    """
    if request.tool != "resubmit_job" or not isinstance(scheduler, Requeues):
        return request
    try:
        job = scheduler.job(str(request.arguments.get("job", "")))
    except ToolError:
        return request
    skips = any(request.arguments.get(name) for name in ("skip_from_step", "skip_around_step"))
    limited = isinstance(scheduler, LimitsSubmissions) and job.spec is not None and scheduler.submission_problem(job.spec)
    if job.spec is None or skips or not (limited or repeat_problem(job)):
        return request
    if request.arguments.get("checkpoint") == "":
        return request  # no checkpoint may be used: a requeue would begin over those that are there
    argument_names = ("job", "checkpoint", "exclude", "blamed", "not_all_of")
    arguments = {"checkpoint": "last_healthy"} | {
        name: value for name, value in request.arguments.items() if name in argument_names
    }
    return replace(request, tool="requeue_ended_job", arguments=arguments)


def before_restart(store: Store, scheduler: Scheduler, incident: Incident, request: Wanted) -> Wanted:
    """Return the call of `as_the_same_job`; before a restart it is kept how long the logs are, to which it may append.

    Raises:
        Unavailable: The scheduler did not answer.
    """
    if request.tool in RESTARTS:
        keep_log_ends(store, scheduler, incident)
    return as_the_same_job(scheduler, request)


HELD_BY_BREAKER, TAKEN_UP_BY_PERSON = "held", "taken_up"
"""Stages of an incident: it met the open breaker; a person goes on with it all the same."""
_GOES_ON = (IncidentState.OPEN, IncidentState.VERIFYING)
"""States in which nothing is changed."""


def held_by(store: Store, incident: Incident) -> str:
    """Return the note for an incident that must wait because the breaker is open; empty when it need not."""
    why = why_open(store) if incident.state not in _GOES_ON else None
    return f"held by the breaker, open {why}; nothing is changed before a person resets it: nightshift breaker reset" if why else ""


def left_since(store: Store, incident: Incident) -> Period | None:
    """Return the time of the open breaker from which an incident is left over; None for one to go on with as usual."""
    period = last_period(store)
    if period is None or incident.state is IncidentState.VERIFYING or incident.kind in (EventKind.REQUESTED, EventKind.OUTAGE):
        return None
    stages = store.stages(incident.id)
    if TAKEN_UP_BY_PERSON in stages:
        return None
    at = incident.failed_at or incident.opened
    if period.until is None:
        # reset and opened again before anybody came to it
        return period if HELD_BY_BREAKER in stages and stages[HELD_BY_BREAKER] < period.since else None
    return period if HELD_BY_BREAKER in stages or period.since <= at < period.until else None


def state_after_reset(incident: Incident, job: Job | None, jobs: Sequence[Job]) -> tuple[IncidentState, str]:
    """Return how an incident that is left over ends, by the cluster as it is now, and the sentence for people.

    Args:
        incident: Was held.
        job: As the scheduler shows it; None when it knows it no more.
        jobs: All that the scheduler knows.
    """
    began = "was left over when the breaker was reset, and dropped: "
    if job is None:
        return IncidentState.CLOSED, f"{began}the scheduler knows job {incident.job} no more"
    if job.attempt != incident.attempt or (job.submitted is not None and job.submitted > incident.opened):
        return IncidentState.CLOSED, f"{began}job {job.id} was queued again since"
    if job.state in (JobState.COMPLETED, JobState.CANCELLED):
        return IncidentState.CLOSED, f"{began}job {job.id} {job.state} meanwhile"
    double = live_double(job, jobs)
    if double is not None:
        return IncidentState.CLOSED, f"{began}the run goes on as job {double.id}"
    word = f"is still {job.state}" if not job.state.ended else f"{job.state} and was not started again"
    return IncidentState.ESCALATED, f"{began}job {job.id} {word}. If it is to be brought back: nightshift recover {job.id}"


def deny_after_reset(store: Store, incident: Incident) -> None:
    """Deny the approvals that an incident left over from before the reset still asks for."""
    for approval in store.approvals():
        if store.call(approval.call).incident == incident.id:
            store.answer(approval.id, Verdict.DENY, BREAKER, why="the breaker had opened since")
