"""The one way by which anything happens: validate, decide, ask, write the intent, run, write the outcome.

What crashes between intent and outcome is *unknown*: reading calls are repeated, changing ones are looked up by the tag that they
left on the thing they change, and never repeated blindly. A step of an incident has one call: asking for it again returns its
outcome, or goes on where it stopped.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NoReturn

from assistant.errors import Denied, Fenced, Parked, StoreBusy, ToolError, Unavailable, UsageError
from assistant.gate.asking import Preview, request_of, shared_arguments, shown, stopped_by
from assistant.gate.breaker import open_if_due
from assistant.gate.exclusion import must_be_alone
from assistant.gate.guarded import guarded
from assistant.gate.targets import Reach, reach_of
from assistant.policy import Policy, Situation, decide, sits_at_a_door
from assistant.ports import Approver
from assistant.records import Call, CallStatus, Decision, Outcome, Risk, Verdict, tag_of
from assistant.redact import MASK, redact_value
from assistant.store import Store
from assistant.store.breaker import why_open
from assistant.store.calls import STANDS
from assistant.tooling import Context, Tool, find_tool, to_json

__all__ = ["Gate"]

logger = logging.getLogger(__name__)


class Gate:
    """Makes calls, for every door, playbook and agent."""

    def __init__(
        self,
        store: Store,
        context_for: Callable[[int | None, str], Context],
        policy: Policy,
        approver: Approver,
        *,
        find: Callable[[str], Tool] = find_tool,
    ) -> None:
        """Build the gate.

        Args:
            store: Where every call is written down; its clock is the gate's.
            context_for: Gives the context of a call for its incident and tag.
            policy: What may be done.
            approver: Whom to ask.
            find: Gives a tool by its name.
        """
        self._store = store
        self._context_for = context_for
        self._policy = policy
        self._approver = approver
        self._find = find
        # the agent's calls come from several threads; the cluster is changed by one at a time
        self._changing = threading.Lock()

    @property
    def policy(self) -> Policy:
        """What may be done."""
        return self._policy

    @property
    def breaker(self) -> str | None:
        """Since when and why the breaker is open, None when it is not."""
        return why_open(self._store)

    def on(self, store: Store, approver: Approver) -> Gate:
        """Return a gate like this one that writes to another store, for rehearsals."""
        return Gate(store, self._context_for, self._policy, approver, find=self._find)

    def call(
        self,
        tool_name: str,
        arguments: Mapping[str, Any],
        *,
        why: str,
        by: str,
        incident: int | None = None,
        step: str | None = None,
        approved_by: str | None = None,
    ) -> Outcome:
        """Make a call and return what came of it; a problem that the tool names is an outcome with `ok` False.

        Args:
            tool_name: Which tool.
            arguments: Text is turned into the tool's types.
            why: For people, the audit and the approver.
            by: Who asks: `cli:alice`, `playbook:ecc_error`, `agent`.
            incident: The incident that it is made for. Reading calls are written down only when they belong to one.
            step: Name of the playbook step. A step has one call: when it ended its outcome is returned and nothing runs.
            approved_by: The person who has said yes to exactly this call, for instance with `--yes`.

        Raises:
            UsageError: The tool or an argument is wrong; nothing was written.
            Denied: The policy or a person refused; written down with the preview.
            Parked: It waits for an approval.
            Unavailable: Something did not answer. A changing call that had begun stays unknown until `resolve`.
        """
        tool = self._find(tool_name)
        checked = tool.checked(arguments)
        standing = self._store.calls(incident, step=step) if step is not None and incident is not None else []
        if standing:
            return self._go_on(standing[0], given=checked, approved_by=approved_by)
        if tool.risk is Risk.READ and incident is None:
            return self._try(tool, checked, Call(0, None, tool.name, checked, why, by, self._now(), CallStatus.INTENT))
        status = CallStatus.INTENT if tool.risk is Risk.READ else CallStatus.PENDING
        call = self._store.write_call(Call(0, incident, tool.name, checked, why, by, self._now(), status, step), kind=tool.kind)
        return self._decided(call, tool, checked, approved_by)

    def go_on(self, call_id: int) -> Outcome:
        """Go on with a call that was written down: after its approval, or after a crash. What an undo takes back is marked so.

        Raises:
            Denied: It was refused, or the policy refuses it now.
            Parked: Nobody has answered yet.
            Unavailable: Whether it took effect cannot be told now.
        """
        outcome = self._go_on(self._store.call(call_id))
        taken_back = self._store.undoes(call_id)
        if taken_back is not None and outcome.ok and self._store.call(taken_back).status is CallStatus.DONE:
            self._store.set_call_status(taken_back, CallStatus.UNDONE, by=self._store.call(call_id).by)
        return outcome

    def preview(
        self, tool_name: str, arguments: Mapping[str, Any], *, by: str, incident: int | None = None, approved_by: str | None = None
    ) -> Preview:
        """Return what a call would do and what the policy says to it now; nothing runs and nothing is written.

        Raises:
            UsageError: The tool or an argument is wrong.
            ToolError: What it names does not exist.
        """
        tool = self._find(tool_name)
        checked = tool.checked(arguments)
        context = replace(self._context_for(incident, tag_of(self._store.store_id, incident, 0)), by=by)
        reach = reach_of(checked, context.scheduler) if tool.risk > Risk.READ else None
        request = request_of(tool, by, reach, approved_by)
        return Preview(shown(tool, context, checked), decide(request, self._policy, self._situation(reach, 0)))

    def resolve(self, call: Call) -> Outcome | None:
        """Find out, after a crash, what came of a call that has an intent and no outcome.

        Returns:
            Its outcome. None when it surely did not take effect and belongs to a step: calling the step again makes it.

        Raises:
            Unavailable: It cannot be told, now or at all: a person must look.
        """
        known = self._store.outcome(call.id)
        if known is not None:
            return known
        tool = self._find(call.tool)
        if tool.risk is Risk.READ:
            return self._run(call, tool, self._runnable(call, tool, None))
        if tool.find is None:
            raise Unavailable(
                f"call {call.id} ({call.preview or call.tool}) was interrupted and {call.tool} cannot look it up; "
                "see whether it happened, then close the incident"
            )
        tag = self._tag(call)
        try:
            value = tool.find(self._context_for(call.incident, tag), tag, **tool.checked(call.arguments))
        except ToolError as error:
            # what it changed is known to the scheduler no more: a person must see, and no later look would tell more
            unknown = f"interrupted, and whether it took effect cannot be told any more: {error}"
            return self._ended(call, tool, Outcome(call.id, False, None, unknown, self._now()))
        if value is not None:
            return self._ended(call, tool, Outcome(call.id, True, to_json(value), "", self._now()))
        if call.step is not None:
            return None
        return self._ended(call, tool, Outcome(call.id, False, None, "interrupted before it took effect", self._now()))

    def give_up(self, call: Call) -> Outcome:
        """End a call that surely did not take effect and whose step will not come again, so that it excludes no other any more.

        Raises:
            Unavailable: What it has begun cannot be taken back now.
        """
        return self._ended(
            call, self._find(call.tool), Outcome(call.id, False, None, "interrupted before it took effect", self._now())
        )

    def undo(self, call_id: int, by: str, *, why: str = "", approved_by: str | None = None) -> Outcome:
        """Take a call back by the undo of its tool, which goes the same way as any call, and mark the old one undone.

        The undo gets the arguments that both tools have in common. What the old call returned under such a name counts more than
        what it was given: of a resubmission the new job is cancelled, not the old one.

        Raises:
            UsageError: The call did not end well, or its tool has no undo.
        """
        old = self._store.call(call_id)
        tool = self._find(old.tool)
        outcome = self._store.outcome(call_id)
        if tool.undo is None:
            raise UsageError(f"call {call_id} ({old.tool}) cannot be taken back: {old.tool} has no undo")
        if outcome is None or old.status not in (CallStatus.DONE, CallStatus.UNDONE):
            raise UsageError(f"call {call_id} ({old.tool}) is {old.status}: only a call that was done can be undone")
        earlier = self._store.undone_by(call_id)
        if earlier is not None and earlier.status not in (CallStatus.FAILED, CallStatus.DENIED):
            taken_back = self._go_on(earlier, approved_by=approved_by)
        else:
            undo = self._find(tool.undo)
            checked = undo.checked(shared_arguments(undo, old.arguments, outcome.value))
            reason = why or f"take back call {call_id}: {old.preview or old.tool}"
            call = Call(0, old.incident, undo.name, checked, reason, by, self._now(), CallStatus.PENDING)
            written = self._store.write_call(call, kind=undo.kind, undoes=call_id)
            taken_back = self._decided(written, undo, checked, approved_by)
        if taken_back.ok and old.status is CallStatus.DONE:
            self._store.set_call_status(call_id, CallStatus.UNDONE, by=by)
        return taken_back

    def _go_on(self, call: Call, *, given: dict[str, Any] | None = None, approved_by: str | None = None) -> Outcome:
        known = self._store.outcome(call.id)
        if known is not None:
            return known
        tool = self._find(call.tool)
        if call.status is CallStatus.INTENT:
            found = self.resolve(call)
            if found is not None:
                return found
        approval = self._store.approval_of(call.id)
        if approval is not None and approval.verdict is Verdict.DENY:
            raise Denied(
                f"{call.preview or call.tool}: {approval.by} said no" + (f": {approval.answer_why}" if approval.answer_why else "")
            )
        if approval is not None and approval.pending(self._now()):
            raise Parked(
                f"{call.preview or call.tool} waits for approval {approval.id}; nightshift approve {approval.id}", approval.id
            )
        if approval is not None and self._now() < approval.expires:
            approved_by = approved_by or approval.by
        for decision in self._store.decisions(call.id):
            if decision.verdict is Verdict.DENY and decision.by != "policy":
                raise Denied(f"{call.preview or call.tool}: {decision.by} said no: {decision.why}")
            if decision.rule == "approved" and approval is None:
                approved_by = approved_by or decision.by
        return self._decided(call, tool, self._runnable(call, tool, given), approved_by)

    def _decided(self, call: Call, tool: Tool, checked: dict[str, Any], approved_by: str | None) -> Outcome:
        """Ask the policy, then a person where it says so, then run."""
        if tool.risk is Risk.READ:
            return self._run(call, tool, checked)
        try:
            context = replace(self._context_for(call.incident, self._tag(call)), by=call.by)
            reach = reach_of(checked, context.scheduler)
            call = replace(call, preview=shown(tool, context, checked))
        except ToolError as error:
            return self._ended(call, tool, Outcome(call.id, False, None, str(error), self._now()))
        if (moot := self._moot(call, tool, checked)) is not None:
            return moot
        ended = self._settled(call, tool, checked, reach, approved_by)
        if isinstance(ended, Outcome):
            return ended
        call = self._store.call(call.id)
        answer = self._approver.ask(call, ended)
        if answer.verdict is not Verdict.ALLOW:
            self._refuse(call, replace(answer, verdict=Verdict.DENY))
        # the world went on while the person was thinking
        again = self._settled(call, tool, checked, reach_of(checked, context.scheduler), answer.by)
        if isinstance(again, Outcome):
            return again
        raise Denied(f"{call.preview}: {again.rule} asks again although {answer.by} said yes")

    def review_approvals(self) -> list[Outcome]:
        """End the calls in the inbox whose job or node is gone or that would change nothing any more; withdraw their approvals.

        Raises:
            Unavailable: The scheduler did not answer: nothing may be concluded.
        """
        ends = []
        for waiting in self._store.approvals():
            call = self._store.call(waiting.call)
            tool = self._find(call.tool)
            if call.status is not CallStatus.PENDING or MASK in str(call.arguments):
                continue
            try:
                checked = tool.checked(call.arguments)
                reach_of(checked, self._context_for(call.incident, self._tag(call)).scheduler)
                moot = self._moot(call, tool, checked)
            except ToolError as error:
                moot = self._ended(call, tool, Outcome(call.id, False, None, f"withdrawn: {error}", self._now()))
            except (StoreBusy, UsageError) as error:
                # one question costs no other its turn
                logger.warning("call=%s waits and could not be looked at: %s", call.id, error)
                continue
            ends += [moot] if moot is not None else []
        return ends

    def _moot(self, call: Call, tool: Tool, checked: dict[str, Any]) -> Outcome | None:
        """End a call that would change nothing any more: nobody is asked about it, and no limit counts it."""
        if tool.standing is None or call.status is not CallStatus.PENDING:
            return None
        context = replace(self._context_for(call.incident, self._tag(call)), by=call.by)
        try:
            standing = tool.standing(context, **checked)
        except ToolError as error:
            return self._ended(call, tool, Outcome(call.id, False, None, str(error), self._now()))
        if standing is None:
            return None
        with self._store.transaction():
            if self._store.call(call.id).status is not CallStatus.PENDING:
                raise StoreBusy(f"call {call.id} is {self._store.call(call.id).status}: another process goes on with it")
            why = "the cluster is as the call would make it: nothing is changed"
            self._store.write_decision(call.id, Decision(Verdict.ALLOW, STANDS, "gate", self._now(), why))
            return self._ended(call, tool, Outcome(call.id, True, to_json(standing), "", self._now()))

    def _settled(
        self, call: Call, tool: Tool, checked: dict[str, Any], reach: Reach, approved_by: str | None
    ) -> Outcome | Decision:
        """Run the call when it is allowed; return the decision when a person must be asked.

        Raises:
            Denied: It is refused.
        """
        with self._changing:
            decision = self._settle(call, tool, reach, approved_by)
            if decision.verdict is Verdict.ALLOW:
                return self._run(call, tool, checked)
        if decision.verdict is Verdict.DENY:
            if call.status is CallStatus.INTENT:
                self._take_back(call, tool)
            open_if_due(self._store, self._policy)
            raise Denied(f"{call.preview}: refused by {decision.rule}: {decision.why}")
        return decision

    def _settle(self, call: Call, tool: Tool, reach: Reach, approved_by: str | None) -> Decision:
        """Decide and write the intent in one transaction, so that two processes cannot both take the last of a limit."""
        with self._store.transaction():
            request = request_of(tool, call.by, reach, approved_by)
            decision = decide(request, self._policy, self._situation(reach, call.id))
            status = {Verdict.ALLOW: CallStatus.INTENT, Verdict.DENY: CallStatus.DENIED, Verdict.ASK: CallStatus.PENDING}
            before = self._store.call(call.id).status
            if before is not call.status:
                raise StoreBusy(f"call {call.id} is {before}: another process goes on with it; ask again later")
            if decision.verdict is Verdict.ALLOW:
                must_be_alone(self._store, call, tool.kind, reach)
            self._store.set_targets(call.id, reach.counted(), preview=call.preview)
            self._store.write_decision(call.id, decision)
            if status[decision.verdict] is not before:
                self._store.move_call(call.id, before, status[decision.verdict])
        logger.info("incident=%s call=%s %s %s by=%s", call.incident, call.id, decision.verdict, decision.rule, decision.by)
        return decision

    def _refuse(self, call: Call, answer: Decision) -> NoReturn:
        with self._store.transaction():
            self._store.write_decision(call.id, answer)
            self._store.move_call(call.id, CallStatus.PENDING, CallStatus.DENIED, by=answer.by)
        raise Denied(f"{call.preview}: {answer.by} said no" + (f": {answer.why}" if answer.why else ""))

    def _run(self, call: Call, tool: Tool, checked: dict[str, Any]) -> Outcome:
        try:
            outcome = self._try(tool, checked, call)
        except (Unavailable, Fenced):
            # it may have taken effect: no outcome is written, `resolve` finds out, of a watch that leads no more another's
            raise
        except Exception as error:
            self._ended(call, tool, Outcome(call.id, False, None, f"{type(error).__name__}: {error}", self._now()))
            raise
        return self._ended(call, tool, outcome)

    def _try(self, tool: Tool, checked: dict[str, Any], call: Call) -> Outcome:
        context = replace(self._context_for(call.incident, self._tag(call)), by=call.by)
        if tool.risk > Risk.READ:
            context = replace(context, scheduler=guarded(context.scheduler, lambda: self._must_still_be_allowed(call.by)))
        try:
            return Outcome(call.id, True, to_json(tool.run(context, **checked)), "", self._now())
        except ToolError as error:
            return Outcome(call.id, False, None, str(error), self._now())

    def _must_still_be_allowed(self, by: str) -> None:
        """Look once more right before a command: its tool may have worked for minutes, or this process may have slept.

        Raises:
            Fenced: Another watch leads.
            ToolError: The kill switch is set, or the breaker has opened.
        """
        self._store.must_lead()
        if not sits_at_a_door(by) and (why := why_open(self._store)) is not None:
            raise ToolError(f"the breaker has opened meanwhile ({why}): the command was not given")
        stopped = stopped_by(self._policy.kill_switch)
        if stopped is not None:
            raise ToolError(f"the kill switch {stopped} was set meanwhile: the command was not given")

    def _ended(self, call: Call, tool: Tool, outcome: Outcome) -> Outcome:
        if not outcome.ok:
            self._take_back(call, tool)
        undo = f"nightshift undo {call.id}" if tool.undo and outcome.ok else ""
        with self._store.transaction():
            self._store.write_outcome(outcome, undo=undo)
            self._store.withdraw_approvals(call.id, outcome.error or "the change stands already")
        if not outcome.ok and tool.risk > Risk.READ:
            open_if_due(self._store, self._policy)
        logger.info("incident=%s call=%s tool=%s ok=%s", call.incident, call.id, tool.name, outcome.ok)
        return self._store.outcome(call.id) or outcome

    def _take_back(self, call: Call, tool: Tool) -> None:
        """Take back what a call has begun that did not end well.

        Raises:
            Unavailable: It cannot be told whether that was done: the call stays undecided, and `resolve` tries again.
        """
        if tool.take_back is None or self._store.call(call.id).status is CallStatus.PENDING:
            return  # it has not begun
        tag = self._tag(call)
        try:
            tool.take_back(replace(self._context_for(call.incident, tag), by=call.by), tag, **tool.checked(call.arguments))
        except ToolError as error:
            logger.error("incident=%s call=%s could not be taken back: %s", call.incident, call.id, error)

    def _tag(self, call: Call) -> str:
        return tag_of(self._store.store_id, call.incident, call.id)

    def _situation(self, reach: Reach | None, own: int) -> Situation:
        now = self._now()
        past = [change for change in self._store.changes_since(now - timedelta(days=1)) if change.call != own]
        stop, breaker = stopped_by(self._policy.kill_switch), why_open(self._store)
        return Situation(now, reach.fleet if reach else (), past, stop, breaker, reach.racks if reach else {})

    def _runnable(self, call: Call, tool: Tool, given: dict[str, Any] | None) -> dict[str, Any]:
        """Return the arguments that were written down, since they are what was approved."""
        if given is not None and redact_value(given) == dict(call.arguments):
            return given
        if MASK in str(call.arguments):
            raise UsageError(f"call {call.id} ({call.tool}) held a secret, which is not kept: ask for it again with its arguments")
        return tool.checked(call.arguments)

    def _now(self) -> datetime:
        return self._store.clock.now()
