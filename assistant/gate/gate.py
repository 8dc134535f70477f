"""The one way by which anything happens: validate, decide, ask, write the intent, run, write the outcome.

What crashes between intent and outcome is *unknown*: reading calls are repeated, changing ones are looked up by the tag that they
left on the thing they change, and never repeated blindly. A step of an incident has one call: asking for it again returns its
outcome, or goes on where it stopped.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from assistant.errors import ChangesStopped, Denied, Parked, RestartPending, StoreBusy, ToolError, Unavailable, UsageError
from assistant.gate.running import ENDED, CallRunner, LastLook, stands
from assistant.gate.stops import open_if_due
from assistant.gate.targets import Preview, Reach, must_be_alone, reach_of, rendered_change, request_of, shared_arguments, undo_text
from assistant.policy import Policy, PolicyInForce
from assistant.ports import Approver
from assistant.records import Call, CallStatus, Decision, Outcome, Risk, Verdict
from assistant.redact import MASK, redact
from assistant.rendering import RenderedChange
from assistant.store import Store
from assistant.store.calls import STANDS, PastCall, command_digest
from assistant.tooling import PENDING_TAG, Context, Tool, find_tool, to_json

__all__ = ["Gate"]

MOST_ASKED = 3
"""Times that one call asks in a row because its commands change while the person thinks; after that it is refused."""

logger = logging.getLogger(__name__)


class Gate(CallRunner):
    """Makes calls, for every door, playbook and agent."""

    def __init__(
        self,
        store: Store,
        context_for: Callable[[int | None, str], Context],
        policy: Policy | PolicyInForce,
        approver: Approver,
        *,
        find: Callable[[str], Tool] = find_tool,
    ) -> None:
        """Build the gate.

        Args:
            store: Where every call is written down; its clock is the gate's.
            context_for: Gives the context of a call for its incident and tag.
            policy: What may be done; one in force is looked at anew for each decision and before each command.
            approver: Whom to ask.
            find: Gives a tool by its name.
        """
        super().__init__(store, context_for, policy, find)
        self._approver = approver
        # the agent's calls come from several threads; the cluster is changed by one at a time
        self._changing = threading.Lock()

    def stored_call(self, number: int) -> Call:
        """Return a call as it is written down, with the commands that were decided about."""
        return self._store.call(number)

    def decisions_on(self, number: int) -> list[Decision]:
        """Return the decisions on a call, oldest first."""
        return self._store.decisions(number)

    def on(self, store: Store, approver: Approver) -> Gate:
        """Return a gate like this one that writes to another store, for rehearsals."""
        return Gate(store, self._context_for, self.in_force, approver, find=self._find)

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
            return self._go_on(standing[0], checked_arguments=checked, approved_by=approved_by)
        if tool.risk is Risk.READ and incident is None:
            return self._try(tool, checked, Call(0, None, tool.name, checked, why, by, self._now(), CallStatus.INTENT))
        status = CallStatus.INTENT if tool.risk is Risk.READ else CallStatus.PENDING
        call = self._store.write_call(Call(0, incident, tool.name, checked, why, by, self._now(), status, step), kind=tool.kind)
        return self._decided(call, tool, checked, approved_by)

    def prepare(self, tool_name: str, arguments: Mapping[str, Any], *, why: str, by: str, incident: int | None = None) -> Call:
        """Write a changing call down and freeze its commands, so that a person can be shown exactly what `go_on` would run.

        Raises:
            UsageError: The tool or an argument is wrong, or the tool changes nothing.
            ToolError: What it names does not exist; the call is closed as failed.
        """
        tool = self._find(tool_name)
        if tool.risk is Risk.READ:
            raise UsageError(f"{tool_name} changes nothing: call it")
        checked = tool.checked(arguments)
        call = Call(0, incident, tool.name, checked, why, by, self._now(), CallStatus.PENDING)
        return self._prepared(self._store.write_call(call, kind=tool.kind), tool, checked)

    def prepare_undo(self, call_id: int, by: str, *, why: str = "") -> Call:
        """Write down and freeze what takes a call back, as `prepare` does; `go_on` makes it and marks the old call undone.

        Raises:
            UsageError: It cannot be taken back.
            ToolError: What it names does not exist.
        """
        call, checked = self._undoing(call_id, by, why)
        return self._prepared(call, self._find(call.tool), checked) if call.status is CallStatus.PENDING else call

    def withdraw(self, call_id: int, by: str, *, why: str = "") -> None:
        """Close a prepared call that its person does not want after all.

        One that has gone on meanwhile, that another person prepared, or that stands in the inbox is left alone.
        """
        with self._store.transaction():
            call = self._store.call(call_id)
            if call.status is CallStatus.PENDING and call.by == by and self._store.approval_of(call_id) is None:
                self._store.write_decision(call_id, Decision(Verdict.DENY, "answered", by, self._now(), why))
                self._store.move_call(call_id, CallStatus.PENDING, CallStatus.DENIED, by=by)

    def go_on(self, call_id: int, *, approved_by: str | None = None, digest: str | None = None) -> Outcome:
        """Go on with a call that was written down: after its approval, or after a crash. What an undo takes back is marked so.

        Args:
            call_id: The call.
            approved_by: The person who has said yes to its frozen commands.
            digest: Of the commands that this person was shown (`Call.digest`); needed with `approved_by`.

        Raises:
            Denied: It was refused, or the policy refuses it now.
            Parked: Nobody has answered yet, or the commands are others now and are asked about anew.
            UsageError: The person was shown other commands.
            Unavailable: Whether it took effect cannot be told now.
        """
        call = self._store.call(call_id)
        if approved_by is not None and (not call.digest or digest != call.digest):
            raise UsageError(
                f"call {call_id} would run {call.preview or 'nothing that was shown'!r}, which is not what was shown: look again"
            )
        outcome = self._go_on(call, approved_by=approved_by)
        taken_back = self._store.undoes(call_id)
        if taken_back is not None and outcome.ok and self._store.call(taken_back).status in ENDED:
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
        context = replace(self._context_for(incident, PENDING_TAG), by=by)
        reach = reach_of(checked, context.scheduler) if tool.risk > Risk.READ else None
        request = request_of(tool, by, reach, approved_by, self._cause_of(tool, incident))
        return Preview(redact(rendered_change(tool, context, checked).text), self._decide(request, reach, 0))

    def would_ask(self, tool_name: str, arguments: Mapping[str, Any], *, by: str, incident: int, step: str) -> bool:
        """Return whether a person would be asked now about a step of an incident that has no call yet; nothing is written."""
        if self._find(tool_name).risk is Risk.READ or self._store.calls(incident, step=step):
            return False
        try:
            return self.preview(tool_name, arguments, by=by, incident=incident).decision.verdict is Verdict.ASK
        except ToolError:
            return False

    def forecast(
        self, tool_name: str, arguments: Mapping[str, Any], *, by: str, incident: int, after: Sequence[str] = ()
    ) -> Decision:
        """Return what the policy would say now to a change; nothing runs, nothing is written, no command is made up.

        Args:
            tool_name: Which tool.
            arguments: Those that name its job or node; others may be left out.
            by: Who would ask.
            incident: The incident that it would be made for.
            after: Tools that would change the same things right before it: they count for the limits.

        Raises:
            ToolError: What it names does not exist.
            Unavailable: The scheduler did not answer.
        """
        tool = self._find(tool_name)
        reach = reach_of(arguments, self._context_for(incident, PENDING_TAG).scheduler)
        request = request_of(tool, by, reach, None, self._cause_of(tool, incident))
        planned_calls = [PastCall(0, self._find(name).kind, reach.counted(), self._now(), by) for name in after]
        return self._decide(request, reach, 0, planned_calls=planned_calls)

    def refusal_of(self, incident: int, step: str) -> str | None:
        """Return by which rule of the policy the call of a step was refused, and why; None where no call of it was."""
        call = next(iter(self._store.calls(incident, step=step)), None)
        last = self._store.decisions(call.id)[-1:] if call is not None and call.status is CallStatus.DENIED else []
        by_policy = bool(last) and last[0].by == "policy" and last[0].verdict is Verdict.DENY
        return f"{last[0].rule}: {last[0].why}" if by_policy else None

    def is_begun(self, incident: int, step: str) -> bool:
        """Return whether a step of an incident has a call."""
        return bool(self._store.calls(incident, step=step))

    def was_passed(self, incident: int, step: str) -> bool:
        """Return whether a later change of an incident was made while the call of a step waited."""
        calls = self._store.calls(incident)
        number = next((call.id for call in calls if call.step == step), None)
        later = [call for call in calls if number is not None and call.id > number and call.status is CallStatus.DONE]
        return any(self._find(call.tool).risk > Risk.READ for call in later)

    def resolve(self, call: Call) -> Outcome | None:
        """Find out, after a crash, what came of a call that has an intent and no outcome.

        Returns:
            Its outcome. None when it surely did not take effect and belongs to a step: calling the step again makes it.

        Raises:
            Unavailable: It cannot be told, now or at all: a person must look.
        """
        outcome = self._store.outcome(call.id)
        if outcome is not None:
            if problem := self._store.outcome_broken(call.id):
                raise Unavailable(f"the outcome of call {call.id} is not as it was written: {problem}; run nightshift audit verify")
            return outcome
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
        return self._ended(call, tool, self._interrupted(call, tool))

    def give_up(self, call: Call) -> Outcome:
        """End a call that surely did not take effect and whose step will not come again, so that it excludes no other any more.

        Raises:
            Unavailable: What it has begun cannot be taken back now.
        """
        tool = self._find(call.tool)
        return self._ended(call, tool, self._interrupted(call, tool))

    def undo(self, call_id: int, by: str, *, why: str = "", approved_by: str | None = None) -> Outcome:
        """Take a call back by the undo of its tool, which goes the same way as any call, and mark the old one undone.

        The undo gets the arguments that both tools have in common. What the old call returned under such a name counts more than
        what it was given: of a resubmission the new job is cancelled, not the old one.

        Raises:
            UsageError: The call did not end well, or its tool has no undo.
        """
        taken_back = self._go_on(self._undoing(call_id, by, why)[0], approved_by=approved_by)
        if taken_back.ok and self._store.call(call_id).status in ENDED:
            self._store.set_call_status(call_id, CallStatus.UNDONE, by=by)
        return taken_back

    def undo_text(self, call: Call) -> str:
        """Return the commands that would take a call back, empty where there are none or they cannot be told now; nothing runs."""
        tool, outcome = self._find(call.tool), self._store.outcome(call.id)
        if tool.undo is None:
            return ""
        return undo_text(self._find(tool.undo), self._context_of(call), call.arguments, outcome.value if outcome else None)

    def _undoing(self, call_id: int, by: str, why: str) -> tuple[Call, dict[str, Any]]:
        """Return the call that takes another one back, written down now if it was not, and its arguments.

        Raises:
            UsageError: The call did not end well, or its tool has no undo.
        """
        old = self._store.call(call_id)
        tool = self._find(old.tool)
        outcome = self._store.outcome(call_id)
        if tool.undo is None:
            raise UsageError(f"call {call_id} ({old.tool}) cannot be taken back: {old.tool} has no undo")
        if outcome is None or not stands(outcome):
            raise UsageError(f"call {call_id} ({old.tool}) is {old.status}: only a call that was done can be undone")
        undo = self._find(tool.undo)
        checked = undo.checked(shared_arguments(undo, old.arguments, outcome.value))
        earlier = self._store.undone_by(call_id)
        if earlier is not None and earlier.status not in (CallStatus.FAILED, CallStatus.DENIED):
            return earlier, checked
        reason = why or f"take back call {call_id}: {old.preview or old.tool}"
        call = Call(0, old.incident, undo.name, checked, reason, by, self._now(), CallStatus.PENDING)
        return self._store.write_call(call, kind=undo.kind, undoes=call_id), checked

    def _go_on(self, call: Call, *, checked_arguments: dict[str, Any] | None = None, approved_by: str | None = None) -> Outcome:
        if (outcome := self._store.outcome(call.id)) is not None:
            if problem := self._store.outcome_broken(call.id):
                raise Denied(f"{call.preview or call.tool}: audit said no to its outcome: {problem}")
            return outcome
        tool = self._find(call.tool)
        if call.status is CallStatus.INTENT:
            resolved = self.resolve(call)
            if resolved is not None:
                return resolved
        # what was checked is what counts: all of it is read from one state of the store
        with self._store.snapshot():
            call, approval, decisions = self._store.call(call.id), self._store.approval_of(call.id), self._store.decisions(call.id)
            waits = approval is not None and approval.verdict is not Verdict.DENY and approval.pending(self._now())
            vouched = approval.id if approval is not None else None
            problem = self._store.call_broken(call.id, vouched) if tool.risk > Risk.READ and not waits else None
        if approval is not None and approval.verdict is Verdict.DENY:
            why = f": {approval.answer_why}" if approval.answer_why else ""
            raise Denied(f"{call.preview or call.tool}: {approval.by} said no{why}")
        if approval is not None and waits:
            waiting = f"{call.preview or call.tool} waits for approval {approval.id}; nightshift approve {approval.id}"
            raise Parked(waiting, approval.id)
        if problem is not None:
            self._refuse_unvouched(call, tool, problem)
        if approval is not None and self._now() < approval.expires and call.digest and approval.digest == call.digest:
            approved_by = approved_by or approval.by
        for decision in decisions:
            if decision.verdict is Verdict.DENY and decision.by != "policy":
                raise Denied(f"{call.preview or call.tool}: {decision.by} said no: {decision.why}")
            if decision.rule == "approved" and approval is None:
                approved_by = approved_by or decision.by
        return self._decided(call, tool, self._runnable(call, tool, checked_arguments), approved_by)

    def _decided(self, call: Call, tool: Tool, checked: dict[str, Any], approved_by: str | None) -> Outcome:
        """Ask the policy, then a person where it says so, then run."""
        if tool.risk is Risk.READ:
            return self._run(call, tool, checked)
        context = self._context_of(call)
        for asked_count in range(MOST_ASKED):
            # the world goes on while a call waits and while a person thinks: a yes holds for the commands that it was given to
            before = call.digest
            try:
                reach = reach_of(checked, context.scheduler)
                call = self._frozen(call, rendered_change(tool, context, checked))
            except ToolError as error:
                return self._ended(call, tool, Outcome(call.id, False, None, str(error), self._now()))
            if (moot := self._moot(call, tool, checked)) is not None:
                return moot
            if before and call.digest != before:
                approved_by = None
            settled = self._settled(call, tool, checked, reach, approved_by)
            if isinstance(settled, Outcome):
                return settled
            if asked_count and approved_by:
                raise Denied(f"{call.preview}: {settled.rule} asks again although {approved_by} said yes")
            call = self._store.call(call.id)
            answer = self._approver.ask(call, settled)
            if answer.verdict is not Verdict.ALLOW:
                self._refuse(call, replace(answer, verdict=Verdict.DENY))
            approved_by = answer.by
        changed = replace(answer, verdict=Verdict.DENY, why=f"the commands were others after each of {MOST_ASKED} answers")
        return self._refuse(call, changed)

    def _prepared(self, call: Call, tool: Tool, checked: dict[str, Any]) -> Call:
        try:
            return self._frozen(call, rendered_change(tool, self._context_of(call), checked))
        except ToolError as error:
            self._ended(call, tool, Outcome(call.id, False, None, str(error), self._now()))
            raise

    def _frozen(self, call: Call, change: RenderedChange) -> Call:
        """Keep the commands of a call, unless they are the ones that are kept; then what was shown with them stays, too."""
        if call.digest and self._store.frozen_commands(call.id) == [command_digest(line) for line in change.commands]:
            return call
        return self._store.freeze(call, change.text, change.commands)

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
            except (RestartPending, StoreBusy, UsageError) as error:
                # one question costs no other its turn
                logger.warning("call=%s waits and could not be looked at: %s", call.id, error)
                continue
            ends += [moot] if moot is not None else []
        return ends

    def _moot(self, call: Call, tool: Tool, checked: dict[str, Any]) -> Outcome | None:
        """End a call that would change nothing any more: no person is asked about it, and no limit counts it."""
        if tool.standing is None or call.status is not CallStatus.PENDING:
            return None
        try:
            standing = tool.standing(self._context_of(call), **checked)
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
                look = LastLook(decision, reach, self._now())
                return self._run(call, tool, checked, lambda: self._must_still_be_allowed(call, tool, checked, approved_by, look))
        if decision.verdict is Verdict.DENY:
            self._close_refused(call, tool)
            open_if_due(self._store, self.policy)
            refusal = self._refusal(call, decision)
            verb = "stopped for now" if refusal is ChangesStopped else "refused"
            raise refusal(f"{call.preview}: {verb} by {decision.rule}: {decision.why}")
        return decision

    def _settle(self, call: Call, tool: Tool, reach: Reach, approved_by: str | None) -> Decision:
        """Decide and write the intent in one transaction, so that two processes cannot both take the last of a limit."""
        problem = self._store.changes_broken()
        with self._store.transaction():
            problem = self._store.changes_broken() if self._store.written_since_check() else problem
            request = request_of(tool, call.by, reach, approved_by, self._cause_of(tool, call.incident))
            decision = self._decide(request, reach, call.id, store_problem=problem)
            status = {Verdict.ALLOW: CallStatus.INTENT, Verdict.DENY: CallStatus.DENIED, Verdict.ASK: CallStatus.PENDING}
            if waits := decision.verdict is Verdict.DENY and self._refusal(call, decision) is ChangesStopped:
                status[Verdict.DENY] = CallStatus.PENDING
            before = self._store.call(call.id).status
            if before is not call.status:
                raise StoreBusy(f"call {call.id} is {before}: another process goes on with it; ask again later")
            if decision.verdict is Verdict.ALLOW:
                must_be_alone(self._store, call, tool.kind, reach)
            self._store.set_targets(call.id, reach.counted(), preview=call.preview)
            last = self._store.decisions(call.id)[-1:] if waits else []
            # what a call has begun is taken back before it counts as refused: a crash in between leaves an intent that comes again
            if before is CallStatus.INTENT and status[decision.verdict] is CallStatus.DENIED:
                status[Verdict.DENY] = before
            # a call that waits for a switch to be lifted is refused in every pass, and said so once
            if [(answer.rule, answer.why) for answer in last] != [(decision.rule, decision.why)]:
                self._store.write_decision(call.id, decision)
            if status[decision.verdict] is not before:
                self._store.move_call(call.id, before, status[decision.verdict])
        logger.info("incident=%s call=%s %s %s by=%s", call.incident, call.id, decision.verdict, decision.rule, decision.by)
        return decision
