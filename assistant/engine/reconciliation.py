"""Settle what earlier passes and processes left: cordons that have run out, calls without an outcome, jobs that nobody releases.

Cordons are lifted after probes and collective test pass, and renewed when they do not. A call is orphaned when its incident is
over, or it belongs to none. Everything goes through the gate, so the policy decides. What was tried, refused or asked for stands
in the store's calls: what to do next comes from there, so that nothing is done twice after a crash, by two processes, or in two
passes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from assistant.display import shell_words
from assistant.errors import Denied, Parked, StoreBusy, ToolError, Unavailable, UsageError
from assistant.gate import Gate
from assistant.ports import Clock, Scheduler
from assistant.records import (
    Call,
    CallStatus,
    Event,
    EventKind,
    IncidentState,
    Job,
    Node,
    NodeState,
    Risk,
    Verdict,
    run_of,
    tags_in,
)
from assistant.recover.identity import (
    CLOCKS_APART,
    HELD_UNKNOWN,
    HOURS,
    LIVING,
    MOST_RENEWALS,
    Lease,
    expired,
    is_claim,
    owns_cordon,
)
from assistant.store import Store
from assistant.tooling import find_tool
from assistant.watch.attempts import Trouble

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

logger = logging.getLogger(__name__)

WATCH = "leases"
"""By whom calls are made that no person asked for."""
STEP = "settle"
"""The step of calls that were made here, by whomever: a person's own renewal counts as their decision, one from here does not."""
LIFT, RENEW = "uncordon_node", "renew_cordon"
TOOLS = ("cordon_node", LIFT, RENEW)
IN_SERVICE = (NodeState.IDLE, NodeState.ALLOCATED)
UNFINISHED = (CallStatus.PENDING, CallStatus.INTENT)
RETRY_AFTER = timedelta(hours=1)
"""How long an attempt on a node counts: longer than the longest test, so a call of that age is nobody's any more."""
RETRY_AFTER_DENIAL = timedelta(days=1)
"""The same where a person or the policy's mode said no: neither changes its mind by the hour."""
MOST_A_PASS = 4
"""Nodes that one pass of the watch settles: incidents wait meanwhile."""


class CordonEnding(StrEnum):
    """How a cordon that ran out was settled."""

    LIFTED = "lifted"
    RENEWED = "renewed"
    KEPT = "kept"
    """Out, its lease stays run out: the note says why."""
    WAITS = "waits"
    """For an approval."""
    REFUSED = "refused"
    """By the policy or a person."""
    ESCALATED = "escalated"
    """Renewed so often that a person must decide; an incident says so."""
    UNKNOWN = "unknown"
    """The scheduler did not answer, or another process is at it."""


@dataclass(frozen=True, slots=True)
class SettledCordon:
    """A cordon that ran out, and how it was settled."""

    node: str
    ending: CordonEnding
    note: str
    """Why, for people."""
    incident: int | None = None
    """The incident that hands the node to a person, when `escalated`."""


@dataclass(frozen=True)
class CordonLeases:
    """Lifts or renews the cordons of this store that have run out."""

    store: Store
    gate: Gate
    scheduler: Scheduler
    clock: Clock
    by: str = WATCH
    """`WATCH`, or the person who asks: they are told of every node and nothing is put off, the watch is told only what is new."""

    def due(self) -> list[tuple[Node, Lease]]:
        """Return the nodes that are out by a cordon of this store that has run out, oldest first.

        Raises:
            Unavailable: The scheduler did not answer.
        """
        cordons = expired(self.scheduler.nodes(), self.clock.now())
        out = [(node, own) for node, own in cordons if node.state not in IN_SERVICE]
        return [(node, own) for node, own in out if owns_cordon(self.store, node.name, node.reason)]

    def settle(self) -> list[SettledCordon]:
        """Lift or renew the cordons that are due and return how each was settled.

        Raises:
            Unavailable: The scheduler did not answer.
        """
        self._look_up_interrupted()
        settled: list[SettledCordon] = []
        for node, own in self.due():
            settled_cordon = self._settle(node.name, own)
            if settled_cordon is not None:
                settled.append(settled_cordon)
                level = logging.INFO if settled_cordon.ending in (CordonEnding.LIFTED, CordonEnding.RENEWED) else logging.WARNING
                logger.log(level, "node=%s cordon ran out, %s: %s", settled_cordon.node, settled_cordon.ending, settled_cordon.note)
            if self._unasked and len(settled) >= MOST_A_PASS:
                break
        return settled

    @property
    def _unasked(self) -> bool:
        return self.by == WATCH

    def _look_up_interrupted(self) -> None:
        """Look up the outcomes of calls that a crash left open."""
        for call in self.store.calls(status=CallStatus.INTENT, step=STEP):
            if self._age(call) >= RETRY_AFTER:
                try:
                    self.gate.resolve(call)
                except (Unavailable, ToolError) as error:
                    logger.warning("call=%s still has no answer: %s", call.id, error)

    def _settle(self, node: str, own: Lease) -> SettledCordon | None:
        standing = self._standing(node, own)
        if standing is not None:
            return None if self._unasked else standing
        if self._unasked and self._limited(node):
            return None
        # in one transaction, so that of two processes the later one finds the call of the first
        with self.store.transaction():
            if self._standing(node, own) is not None:
                return None
            last = self._last(node, own)
            failed = self._failed_lately(last)
            call = last if last is not None and last.status in UNFINISHED else None
            if call is None and failed is None:
                why = f"its cordon ran out at {own.until:%Y-%m-%dT%H:%M:%SZ}: {own.why}"
                call = self._write(LIFT, {"node": node}, why)
        if call is None:
            return self._keep(node, failed or "")
        result = self._make(call)
        if isinstance(result, SettledCordon):
            return result
        return (
            self._keep(node, result)
            if call.tool == LIFT
            else SettledCordon(node, CordonEnding.KEPT, f"it could not be renewed: {result}")
        )

    def _last(self, node: str, own: Lease) -> Call | None:
        """Return the newest call that lifts or renews the cordon since it ran out."""
        calls = [call for call in self.store.calls_on(node, (LIFT, RENEW)) if own.until is not None and call.at >= own.until]
        return calls[-1] if calls else None

    def _standing(self, node: str, own: Lease) -> SettledCordon | None:
        """Return the cordon of a node as settled where nothing is to be done now; None where something is."""
        last = self._last(node, own)
        if last is not None and last.status in UNFINISHED:
            approval = self.store.approval_of(last.id)
            if approval is not None and approval.pending(self.clock.now()):
                return SettledCordon(
                    node, CordonEnding.WAITS, f"nightshift approve {approval.id}, or deny {approval.id}: {last.preview}"
                )
            allowed = approval is not None and approval.verdict is Verdict.ALLOW and last.status is CallStatus.PENDING
            if self._age(last) < RETRY_AFTER and not allowed:
                return SettledCordon(
                    node, CordonEnding.UNKNOWN, f"call {last.id} is being made, or was interrupted; see again in an hour"
                )
            return None
        if not self._unasked:
            return None
        if last is not None and last.status is CallStatus.DENIED and self._age(last) < self._patience(last):
            return SettledCordon(node, CordonEnding.REFUSED, f"call {last.id} was refused")
        settled = last is not None and (last.status is CallStatus.DONE or last.tool == RENEW)
        if last is not None and settled and self._age(last) < RETRY_AFTER:
            return SettledCordon(node, CordonEnding.KEPT, f"call {last.id} was made, and the scheduler does not show it")
        return self._handed_over(node)

    def _failed_lately(self, last: Call | None) -> str | None:
        """Return why a node did not pass, where that is fresh and a crash kept the rest from being done."""
        if (
            last is None
            or not self._unasked
            or (last.tool, last.status) != (LIFT, CallStatus.FAILED)
            or self._age(last) >= RETRY_AFTER
        ):
            return None
        outcome = self.store.outcome(last.id)
        return outcome.error if outcome is not None else None

    def _limited(self, node: str) -> bool:
        """Return whether only a limit is in the way: it has room again later, and nobody needs to be asked for that."""
        try:
            decision = self.gate.preview(LIFT, {"node": node}, by=self.by).decision
        except ToolError:
            return False
        return decision.verdict is Verdict.ASK and not decision.rule.startswith("mode.")

    def _patience(self, denied: Call) -> timedelta:
        decisions = self.store.decisions(denied.id)
        person = self.store.approval_of(denied.id) is not None or any(decision.by != "policy" for decision in decisions)
        return RETRY_AFTER_DENIAL if person or any(decision.rule.startswith("mode.") for decision in decisions) else RETRY_AFTER

    def _write(self, tool_name: str, arguments: dict[str, Any], why: str) -> Call:
        tool = find_tool(tool_name)
        call = Call(0, None, tool.name, tool.checked(arguments), why, self.by, self.clock.now(), CallStatus.PENDING, STEP)
        return self.store.write_call(call, kind=tool.kind)

    def _make(self, call: Call) -> SettledCordon | str:
        """Make a call and return how the cordon was settled, or in plain words why the call failed."""
        node = str(call.arguments["node"])
        try:
            outcome = self.gate.go_on(call.id)
        except Denied as error:
            return SettledCordon(node, CordonEnding.REFUSED, str(error))
        except Parked as error:
            return SettledCordon(node, CordonEnding.WAITS, str(error))
        except (Unavailable, StoreBusy) as error:
            return SettledCordon(node, CordonEnding.UNKNOWN, str(error))
        if not outcome.ok:
            return outcome.error
        if call.tool == RENEW:
            return SettledCordon(node, CordonEnding.RENEWED, call.why)
        test = outcome.value.get("test") if isinstance(outcome.value, dict) else ""
        return SettledCordon(node, CordonEnding.LIFTED, test or "the scheduler shows it back in service")

    def _keep(self, node: str, why: str) -> SettledCordon:
        """Renew the cordon of a node that does not pass, or hand it to a person when that was done too often."""
        past = self.store.calls_on(node, TOOLS)
        if renewals(past) >= MOST_RENEWALS:
            return self._hand_over(node, why)
        result = self._make(self._write(RENEW, {"node": node, "hours": HOURS}, why))
        return (
            result
            if isinstance(result, SettledCordon)
            else SettledCordon(node, CordonEnding.KEPT, f"{why}; it could not be renewed: {result}")
        )

    def _hand_over(self, node: str, why: str) -> SettledCordon:
        note = (
            f"{node} stays out after {MOST_RENEWALS} renewals, and its cordon is not renewed any more: repair it and put it back "
            f"({shell_words(['nightshift', 'nodes', 'uncordon', node])}), or keep it out "
            f"({shell_words(['nightshift', 'nodes', 'renew', node])}). {why}"
        )
        with self.store.transaction():
            if self._handed_over(node) is not None:
                return SettledCordon(node, CordonEnding.KEPT, note)
            incident, new = self.store.open_incident(Event(EventKind.NODE_KEPT_OUT, None, node, self.clock.now()), by=self.by)
            if new:
                # ended in the same breath: there is no job, so nothing is to be diagnosed
                self.store.mark_stage(incident.id, "escalated")
                self.store.set_state(incident.id, IncidentState.ESCALATED, note=note, by=self.by)
        return SettledCordon(node, CordonEnding.ESCALATED, note, incident.id)

    def _handed_over(self, node: str) -> SettledCordon | None:
        """Return that a person was asked to decide about a node, when nothing was done to it since."""
        call_times = [call.at for call in self.store.calls_on(node, TOOLS) if call.status is CallStatus.DONE]
        for incident in self.store.incidents(node=node):
            if incident.kind is EventKind.NODE_KEPT_OUT and incident.opened >= max(call_times, default=incident.opened):
                return SettledCordon(node, CordonEnding.KEPT, f"incident {incident.id}: {incident.note}", incident.id)
        return None

    def _age(self, call: Call) -> timedelta:
        return self.clock.now() - call.at


def renewals(past: Sequence[Call]) -> int:
    """Return how often a cordon was renewed by settling since it was set or a person last decided about it.

    Args:
        past: Calls on the node, oldest first.
    """
    count = 0
    for call in reversed(past):
        if call.status is not CallStatus.DONE:
            continue
        if (call.tool, call.step) != (RENEW, STEP):
            break
        count += 1
    return count


ORPHANED_AFTER = timedelta(minutes=10)
"""Longer than any one call takes: before that the process that makes it may still be at it."""

REQUEUES = ("requeue_job", "requeue_ended_job")
"""Tools that queue a job again under its own id."""
ENDED_CALLS = (CallStatus.DONE, CallStatus.FAILED, CallStatus.DENIED, CallStatus.UNDONE)


def reconcile_orphans(store: Store, gate: Gate, scheduler: Scheduler, held_jobs: Sequence[Job]) -> list[Trouble]:
    """Settle orphaned calls, withdraw orphaned jobs, and return the held jobs about which a person must decide."""
    settle_orphaned_calls(store, gate)
    withdraw_orphaned_jobs(store, scheduler, held_jobs)
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


def outlives_incident(engine: EnginePort, call: Call) -> bool:
    """Return whether a call of a playbook's step is still to be made once its incident has ended: the playbook did not await it."""
    if call.incident is None or call.step is None:
        return False
    incident = engine.store.incident(call.incident)
    playbook = engine.playbooks.get(incident.playbook or "") if incident.state.ended else None
    if playbook is None or playbook.digest != incident.playbook_digest:
        return False
    name = call.step.partition("[")[0]
    return any(step.name == name and not step.await_answer for step in playbook.step)


def interrupted_calls(engine: EnginePort, incident_id: int) -> list[Call]:
    """Return the calls of an incident that a crash has left open.

    A shared cause is probed without the lease of its incident: a young call of it may be under way in another thread.
    """
    calls = engine.store.calls(incident_id, status=CallStatus.INTENT)
    if engine.store.incident(incident_id).kind is not EventKind.OUTAGE:
        return list(calls)
    return [call for call in calls if engine.clock.now() - call.at >= timedelta(seconds=engine.lease_s)]


def settle_interrupted_calls(engine: EnginePort, incident_id: int) -> None:
    """Look up what came of the calls of an incident that a crash left open.

    Those of a playbook are looked up, too: a playbook that is played again need not come to the step again.

    Raises:
        Unavailable: What came of a change that no playbook made is not known, so that nothing else may be done yet.
    """
    for call in interrupted_calls(engine, incident_id):
        try:
            engine.gate.resolve(call)
        except Unavailable:
            if call.step is None and find_tool(call.tool).risk > Risk.READ:
                raise
            logger.info("incident=%s call=%s %s still has no answer", incident_id, call.id, call.tool)


def settle_orphaned_calls(store: Store, gate: Gate) -> list[Call]:
    """Look up the changing calls that were begun, have no outcome, and are nobody's any more; return those that were settled."""
    settled = []
    for call in store.calls(status=CallStatus.INTENT):
        if call.step == STEP or find_tool(call.tool).risk is Risk.READ or not _abandoned_calls(store, call):
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


def withdraw_orphaned_jobs(store: Store, scheduler: Scheduler, held_jobs: Iterable[Job]) -> list[str]:
    """Withdraw held jobs that calls of this store submitted and no call will release any more; return their ids.

    A call that was denied or failed releases nothing. One that was done has released the job that its outcome names; another one
    is left where two processes made the call and one was killed. A job that a person holds is none of these.
    """
    withdrawn = []
    for job in held_jobs:
        if not _is_orphaned(store, job):
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


def _is_orphaned(store: Store, job: Job) -> bool:
    for tag in tags_in(job.comment):
        if tag.store != store.store_id or run_of(job) not in store.runs_of(tag.call):
            continue
        call = store.call(tag.call)
        if call.tool != "resubmit_job" or (call.incident or 0) != tag.incident:
            continue
        outcome, decided = store.outcome(call.id), store.decisions(call.id)
        allowed = [decision.at for decision in decided if decision.verdict is Verdict.ALLOW]
        if call.status not in ENDED_CALLS or not allowed or job.submitted is None:
            continue
        # who copies a comment on a job of later is no stray of ours
        last = outcome.at if outcome is not None else decided[-1].at
        if not min(allowed) - CLOCKS_APART <= job.submitted <= last + CLOCKS_APART:
            continue
        value = outcome.value if outcome is not None and isinstance(outcome.value, Mapping) else {}
        return value.get("job") != job.id
    return False


def _abandoned_calls(store: Store, call: Call) -> bool:
    if call.incident is not None and not store.incident(call.incident).state.ended:
        return False
    decided = store.decisions(call.id)
    return store.clock.now() - (decided[-1].at if decided else call.at) >= ORPHANED_AFTER
