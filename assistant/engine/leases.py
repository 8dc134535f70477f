"""Settle the cordons of ours that have run out: lifted after probes and collective test pass, renewed when they do not.

Everything goes through the gate, so the policy decides. What was tried, refused or asked for stands in the store's calls. What to
do next comes from there, so that nothing is done twice after a crash, by two processes, or pass for pass.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from assistant.display import shell_words
from assistant.errors import Denied, Parked, StoreBusy, ToolError, Unavailable
from assistant.gate import Gate
from assistant.ports import Clock, Scheduler
from assistant.records import Call, CallStatus, Event, EventKind, IncidentState, Node, NodeState, Verdict
from assistant.recover.identity import owns_cordon
from assistant.recover.leases import HOURS, MOST_RENEWALS, Lease, expired
from assistant.store import Store
from assistant.tooling import find_tool

__all__ = ["WATCH", "Ending", "Leases", "Settled"]

logger = logging.getLogger(__name__)

WATCH = "leases"
"""By whom calls are made that no person asked for."""
STEP = "settle"
"""The step of calls that were made here, by whomever: a person's own renewal counts as their decision, one from here does not."""
LIFT, RENEW = "uncordon_node", "renew_cordon"
TOOLS = ("cordon_node", LIFT, RENEW)
IN_SERVICE = (NodeState.IDLE, NodeState.ALLOCATED)
BEGUN = (CallStatus.PENDING, CallStatus.INTENT)
AGAIN = timedelta(hours=1)
"""How long an attempt on a node counts: longer than the longest test, so a call of that age is nobody's any more."""
AGAIN_AFTER_NO = timedelta(days=1)
"""The same where a person or the policy's mode said no: neither changes its mind by the hour."""
MOST_A_PASS = 4
"""Nodes that one pass of the watch settles: incidents wait meanwhile."""


class Ending(StrEnum):
    """What came of a cordon that ran out."""

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
class Settled:
    """What came of one cordon that ran out."""

    node: str
    ending: Ending
    note: str
    """Why, for people."""
    incident: int | None = None
    """The incident that hands the node to a person, when `escalated`."""


@dataclass(frozen=True)
class Leases:
    """Settles them."""

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
        found = expired(self.scheduler.nodes(), self.clock.now())
        out = [(node, own) for node, own in found if node.state not in IN_SERVICE]
        return [(node, own) for node, own in out if owns_cordon(self.store, node.name, node.reason)]

    def settle(self) -> list[Settled]:
        """Lift or renew what is due and return what came of it.

        Raises:
            Unavailable: The scheduler did not answer.
        """
        self._look_up_interrupted()
        settled: list[Settled] = []
        for node, own in self.due():
            one = self._settle(node.name, own)
            if one is not None:
                settled.append(one)
                level = logging.INFO if one.ending in (Ending.LIFTED, Ending.RENEWED) else logging.WARNING
                logger.log(level, "node=%s cordon ran out, %s: %s", one.node, one.ending, one.note)
            if self._unasked and len(settled) >= MOST_A_PASS:
                break
        return settled

    @property
    def _unasked(self) -> bool:
        return self.by == WATCH

    def _look_up_interrupted(self) -> None:
        """Find out what came of calls that a crash left open."""
        for call in self.store.calls(status=CallStatus.INTENT, step=STEP):
            if self._age(call) >= AGAIN:
                try:
                    self.gate.resolve(call)
                except (Unavailable, ToolError) as error:
                    logger.warning("call=%s still has no answer: %s", call.id, error)

    def _settle(self, node: str, own: Lease) -> Settled | None:
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
            call = last if last is not None and last.status in BEGUN else None
            if call is None and failed is None:
                why = f"its cordon ran out at {own.until:%Y-%m-%dT%H:%M:%SZ}: {own.why}"
                call = self._written(LIFT, {"node": node}, why)
        if call is None:
            return self._keep(node, failed or "")
        done = self._made(call)
        if isinstance(done, Settled):
            return done
        return self._keep(node, done) if call.tool == LIFT else Settled(node, Ending.KEPT, f"it could not be renewed: {done}")

    def _last(self, node: str, own: Lease) -> Call | None:
        """Return the newest call that lifts or renews the cordon since it ran out."""
        found = [call for call in self.store.calls_on(node, (LIFT, RENEW)) if own.until is not None and call.at >= own.until]
        return found[-1] if found else None

    def _standing(self, node: str, own: Lease) -> Settled | None:
        """Return how a node stands about which nothing is to be done now; None when something is."""
        last = self._last(node, own)
        if last is not None and last.status in BEGUN:
            approval = self.store.approval_of(last.id)
            if approval is not None and approval.pending(self.clock.now()):
                return Settled(node, Ending.WAITS, f"nightshift approve {approval.id}, or deny {approval.id}: {last.preview}")
            allowed = approval is not None and approval.verdict is Verdict.ALLOW and last.status is CallStatus.PENDING
            if self._age(last) < AGAIN and not allowed:
                return Settled(node, Ending.UNKNOWN, f"call {last.id} is being made, or was interrupted; see again in an hour")
            return None
        if not self._unasked:
            return None
        if last is not None and last.status is CallStatus.DENIED and self._age(last) < self._patience(last):
            return Settled(node, Ending.REFUSED, f"call {last.id} was refused")
        settled = last is not None and (last.status is CallStatus.DONE or last.tool == RENEW)
        if last is not None and settled and self._age(last) < AGAIN:
            return Settled(node, Ending.KEPT, f"call {last.id} was made, and the scheduler does not show it")
        return self._handed_over(node)

    def _failed_lately(self, last: Call | None) -> str | None:
        """Return why a node did not pass, where that is fresh and a crash kept the rest from being done."""
        if last is None or not self._unasked or (last.tool, last.status) != (LIFT, CallStatus.FAILED) or self._age(last) >= AGAIN:
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
        person = self.store.approval_of(denied.id) is not None or any(one.by != "policy" for one in decisions)
        return AGAIN_AFTER_NO if person or any(one.rule.startswith("mode.") for one in decisions) else AGAIN

    def _written(self, tool_name: str, arguments: dict[str, Any], why: str) -> Call:
        tool = find_tool(tool_name)
        call = Call(0, None, tool.name, tool.checked(arguments), why, self.by, self.clock.now(), CallStatus.PENDING, STEP)
        return self.store.write_call(call, kind=tool.kind)

    def _made(self, call: Call) -> Settled | str:
        """Make a call and return what came of it, or in plain words why it failed."""
        node = str(call.arguments["node"])
        try:
            outcome = self.gate.go_on(call.id)
        except Denied as error:
            return Settled(node, Ending.REFUSED, str(error))
        except Parked as error:
            return Settled(node, Ending.WAITS, str(error))
        except (Unavailable, StoreBusy) as error:
            return Settled(node, Ending.UNKNOWN, str(error))
        if not outcome.ok:
            return outcome.error
        if call.tool == RENEW:
            return Settled(node, Ending.RENEWED, call.why)
        test = outcome.value.get("test") if isinstance(outcome.value, dict) else ""
        return Settled(node, Ending.LIFTED, test or "the scheduler shows it back in service")

    def _keep(self, node: str, why: str) -> Settled:
        """Renew the cordon of a node that does not pass, or hand it to a person when that was done too often."""
        past = self.store.calls_on(node, TOOLS)
        if renewals(past) >= MOST_RENEWALS:
            return self._hand_over(node, why)
        done = self._made(self._written(RENEW, {"node": node, "hours": HOURS}, why))
        return done if isinstance(done, Settled) else Settled(node, Ending.KEPT, f"{why}; it could not be renewed: {done}")

    def _hand_over(self, node: str, why: str) -> Settled:
        note = (
            f"{node} stays out after {MOST_RENEWALS} renewals, and its cordon is not renewed any more: repair it and put it back "
            f"({shell_words(['nightshift', 'nodes', 'uncordon', node])}), or keep it out "
            f"({shell_words(['nightshift', 'nodes', 'renew', node])}). {why}"
        )
        with self.store.transaction():
            if self._handed_over(node) is not None:
                return Settled(node, Ending.KEPT, note)
            incident, new = self.store.open_incident(Event(EventKind.NODE_KEPT_OUT, None, node, self.clock.now()), by=self.by)
            if new:
                # ended in the same breath: there is no job, so nothing is to be diagnosed
                self.store.mark_stage(incident.id, "escalated")
                self.store.set_state(incident.id, IncidentState.ESCALATED, note=note, by=self.by)
        return Settled(node, Ending.ESCALATED, note, incident.id)

    def _handed_over(self, node: str) -> Settled | None:
        """Return that a person was asked to decide about a node, when nothing was done to it since."""
        done = [call.at for call in self.store.calls_on(node, TOOLS) if call.status is CallStatus.DONE]
        for incident in self.store.incidents(node=node):
            if incident.kind is EventKind.NODE_KEPT_OUT and incident.opened >= max(done, default=incident.opened):
                return Settled(node, Ending.KEPT, f"incident {incident.id}: {incident.note}", incident.id)
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
