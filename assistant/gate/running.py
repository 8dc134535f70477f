"""Run a call that was allowed: decide once more right before each command, write the outcome, take back what did not end well."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial, wraps
from threading import Lock
from typing import Any, NoReturn, cast

from assistant.errors import ChangesStopped, CommandRefused, Denied, Fenced, PartlyMade, ToolError, Unavailable, UsageError
from assistant.gate.stops import open_if_due, recent_failures, stopped_by
from assistant.gate.targets import Reach, reach_of, request_of, undo_text
from assistant.policy import ChangeLimits, Policy, PolicyInForce, Request, Situation, decide, hourly_hard_limit
from assistant.ports import PlannedChange, PlansChanges, Scheduler
from assistant.records import Call, CallStatus, Decision, Outcome, Risk, Verdict, tag_of
from assistant.redact import MASK, head_of, redact_value
from assistant.rendering import IDLE_PARTNERS, NEW_JOB
from assistant.store import Store
from assistant.store.calls import PastCall, command_digest
from assistant.store.standing_decisions import why_open
from assistant.tooling import Context, Tool, to_json
from assistant.watch.outages import shared_by

__all__ = ["COMMANDS", "ENDED", "CallRunner", "FrozenCommands", "LastLook", "answered_cause", "guarded", "stands"]

logger = logging.getLogger(__name__)


FEW_SHOWN, MOST_SHOWN = 3, 300
"""Commands, and characters of each, that a message names of those that were given before a refused one."""
ENDED = (CallStatus.DONE, CallStatus.FAILED)
"""What a call can be of which something stands: an undo of it makes it `undone`."""
PROBE, ANSWERS = "probe_cause", "cause_answers"
"""The tool that asks whether a shared cause is there again, and its status for yes."""


def answered_cause(store: Store, incident: int | None) -> int | None:
    """Return the incident of the shared cause that an incident belongs to, if a probe of it has said that it answers again.

    Both are told by the store's own rows, never by who makes the call: an incident that nobody attached, or a cause about which
    nothing can be asked, has no part in the limits for shared causes.
    """
    parent = shared_by(store.events(incident)) if incident is not None else None
    if parent is None or store.incident(parent).state.ended:
        return None
    for call in store.calls(parent):
        outcome = store.outcome(call.id) if call.tool == PROBE else None
        value = outcome.value if outcome is not None and outcome.ok and isinstance(outcome.value, Mapping) else {}
        if value.get("status") == ANSWERS:
            return parent
    return None


def stands(outcome: Outcome) -> bool:
    """Tell whether a call left something that an undo can take back: all of it, or what was made before it was broken off."""
    return outcome.ok or outcome.value is not None


@dataclass
class LastLook:
    """The decision that allowed a call, and what it was decided on."""

    decision: Decision
    reach: Reach
    """Nodes and jobs, as the scheduler showed them."""
    at: datetime
    """When the scheduler was asked for them."""
    fresh_for: timedelta = timedelta(seconds=1)
    """How long the scheduler's answer counts as now: policy, switches, breaker and windows are looked at before each command."""
    commands: int = 0
    """How many commands of the call were let through."""
    refusal: tuple[str, str] | None = None
    """By which rule and why the last command was refused: the same refusal again is not written again."""


class CallRunner:
    """Runs calls that the policy in force allows, and writes what came of them."""

    def __init__(
        self,
        store: Store,
        context_for: Callable[[int | None, str], Context],
        policy: Policy | PolicyInForce,
        find: Callable[[str], Tool],
    ) -> None:
        """Build the runner.

        Args:
            store: Where every call is written down; its clock is the runner's.
            context_for: Gives the context of a call for its incident and tag.
            policy: What may be done; one in force is looked at anew for each decision and before each command.
            find: Gives a tool by its name.
        """
        self._store = store
        self._context_for = context_for
        self.in_force = policy if isinstance(policy, PolicyInForce) else PolicyInForce.of(policy)
        self._find = find

    @property
    def policy(self) -> Policy:
        """What may be done now; where the policy is not whole, the last whole one, and every change is refused."""
        return self.in_force.policy

    @property
    def breaker(self) -> str | None:
        """Since when and why the breaker is open, None when it is not."""
        return why_open(self._store)

    def _context_of(self, call: Call) -> Context:
        return replace(self._context_for(call.incident, self._tag(call)), by=call.by, asked=call.at)

    def _run(self, call: Call, tool: Tool, checked: dict[str, Any], check: Callable[[], None] | None = None) -> Outcome:
        try:
            outcome = self._try(tool, checked, call, check)
        except ChangesStopped:
            self._store.move_call(call.id, CallStatus.INTENT, CallStatus.PENDING)
            raise
        except Denied:
            # refused right before the first command of this process; one that was interrupted may have begun
            self._close_refused(call, tool)
            raise
        except (Unavailable, Fenced):
            # it may have taken effect: no outcome is written, `resolve` finds out, of a watch that leads no more another's
            raise
        except Exception as error:
            self._ended(call, tool, Outcome(call.id, False, None, f"{type(error).__name__}: {error}", self._now()))
            raise
        return self._ended(call, tool, outcome)

    def _refusal(self, call: Call, decision: Decision) -> type[Denied]:
        """Return how a refusal is raised: as `ChangesStopped` where a person's yes, or a step, must outlast what refuses it."""
        approval = self._store.approval_of(call.id)
        answered = approval is not None and approval.verdict is not Verdict.DENY
        stays = answered or (decision.rule in ("policy", "audit") and None not in (call.incident, call.step))
        return ChangesStopped if decision.rule in ("kill_switch", "policy", "audit") and stays else Denied

    def _try(self, tool: Tool, checked: dict[str, Any], call: Call, check: Callable[[], None] | None = None) -> Outcome:
        context = self._context_of(call)
        frozen = FrozenCommands(self._store.frozen_commands(call.id), call.preview)
        if check is not None:
            scheduler = guarded(context.scheduler, check, frozen, tag=context.tag)
            context = replace(context, scheduler=scheduler, confirm=partial(_confirm, check, frozen))
        try:
            return Outcome(call.id, True, to_json(tool.run(context, **checked)), "", self._now())
        except PartlyMade as error:
            return self._broken_off(call, tool, error, str(error))
        except CommandRefused as error:
            return Outcome(call.id, False, None, f"{error}{frozen.given_text}", self._now())
        except ToolError as error:
            return Outcome(call.id, False, None, str(error), self._now())

    def _refuse(self, call: Call, answer: Decision) -> NoReturn:
        with self._store.transaction():
            self._store.write_decision(call.id, answer)
            self._store.move_call(call.id, CallStatus.PENDING, CallStatus.DENIED, by=answer.by)
        raise Denied(f"{call.preview}: {answer.by} said no" + (f": {answer.why}" if answer.why else ""))

    def _refuse_unvouched(self, call: Call, tool: Tool, problem: str) -> NoReturn:
        """Refuse a call for which the audit does not vouch, and end it where that excludes others in vain.

        One with an intent that surely did not take effect ends only in a store that holds, as after `audit accept`: what is
        taken back then is what a person has seen. In one that was tampered with it stays, and so does what it excludes.
        """
        answer = Decision(Verdict.DENY, "audit", "audit", self._now(), f"{problem}; run nightshift audit verify")
        if call.status is CallStatus.PENDING:
            self._refuse(call, answer)
        last = self._store.decisions(call.id)[-1:]
        if [(decision.rule, decision.why) for decision in last] != [(answer.rule, answer.why)]:
            self._store.write_decision(call.id, answer)
        if self._store.changes_broken() is None:
            self._close_refused(call, tool)
        raise Denied(f"{call.preview}: audit said no: {answer.why}")

    def _runnable(self, call: Call, tool: Tool, arguments: dict[str, Any] | None) -> dict[str, Any]:
        """Return the arguments that were written down, since they are what was approved."""
        if arguments is not None and redact_value(arguments) == dict(call.arguments):
            return arguments
        if MASK in str(call.arguments):
            raise UsageError(f"call {call.id} ({call.tool}) held a secret, which is not kept: ask for it again with its arguments")
        return tool.checked(call.arguments)

    def _must_still_be_allowed(
        self, call: Call, tool: Tool, checked: Mapping[str, Any], approved_by: str | None, look: LastLook
    ) -> None:
        """Decide once more right before a command: its tool may have worked for minutes, or this process may have slept.

        Raises:
            Fenced: Another watch leads.
            Denied: It would not be allowed now, and no command was given yet.
            CommandRefused: It would not be allowed now, after a first command.
            ToolError: What it is about is gone.
        """
        self._store.must_lead()
        if self._now() - look.at >= look.fresh_for:
            look.reach = reach_of(checked, self._context_for(call.incident, self._tag(call)).scheduler)
            look.at = self._now()
        request = request_of(tool, call.by, look.reach, approved_by, self._cause_of(tool, call.incident))
        problem = self._store.mark_broken()
        # what is decided on is what was verified: both are read from one state of the store
        with self._store.snapshot():
            if problem is None and self._store.written_since_check():
                problem = self._store.changes_broken()
            decision = self._decide(request, look.reach, call.id, before=look.decision.at, store_problem=problem)
        refusal = (decision.rule, decision.why) if decision.verdict is not Verdict.ALLOW else None
        if (refusal is not None and refusal != look.refusal) or decision.policy != look.decision.policy:
            self._store.write_decision(call.id, decision)
            look.decision = replace(look.decision, policy=decision.policy)
        look.refusal = refusal
        if refusal is not None:
            why = f"{call.preview}: no longer allowed, {decision.rule}: {decision.why}; the command was not given"
            raise (CommandRefused if look.commands else self._refusal(call, decision))(why)
        look.decision = replace(decision, at=look.decision.at)
        look.commands += 1

    def _ended(self, call: Call, tool: Tool, outcome: Outcome) -> Outcome:
        if not outcome.ok:
            self._take_back(call, tool)
        undo = f"nightshift undo {call.id}" if tool.undo and stands(outcome) else ""
        if tool.undo and stands(outcome):
            commands = undo_text(self._find(tool.undo), self._context_of(call), call.arguments, outcome.value)
            undo += f": {commands}" if commands else ""
        with self._store.transaction():
            if tool.risk is Risk.READ and (first_outcome := self._store.outcome(call.id)) is not None:
                return first_outcome  # whoever settles what a crash may have left open has asked the same meanwhile
            self._store.write_outcome(outcome, undo=undo)
            self._store.withdraw_approvals(call.id, outcome.error or "the change stands already")
        if not outcome.ok and tool.risk > Risk.READ:
            open_if_due(self._store, self.policy)
        logger.info("incident=%s call=%s tool=%s ok=%s", call.incident, call.id, tool.name, outcome.ok)
        return self._store.outcome(call.id) or outcome

    def _close_refused(self, call: Call, tool: Tool) -> None:
        """Set a call that is refused to `denied`, after what an interrupted process has begun of it was taken back.

        One of which steps stand that can be taken back by an undo alone has failed, and its outcome names them.

        Raises:
            Unavailable: It cannot be told whether that was done: the call keeps its intent, and `resolve` tries again.
        """
        if self._store.call(call.id).status is CallStatus.INTENT:
            interrupted = self._interrupted(call, tool)
            if stands(interrupted):
                self._ended(call, tool, replace(interrupted, error=f"{interrupted.error}; the rest is not allowed any more"))
                return
            self._take_back(call, tool)
            self._store.move_call(call.id, CallStatus.INTENT, CallStatus.DENIED)

    def _interrupted(self, call: Call, tool: Tool) -> Outcome:
        """Return what came of a call that an interrupted process has begun and that did not take effect, with the steps that stand.

        Raises:
            Unavailable: They cannot be told now.
        """
        partly = None
        if tool.completed_part is not None:
            tag = self._tag(call)
            try:
                partly = tool.completed_part(self._context_for(call.incident, tag), tag, **tool.checked(call.arguments))
            except ToolError as error:
                return Outcome(
                    call.id, False, None, f"interrupted, and whether a part of it was made is not known: {error}", self._now()
                )
        if partly is None:
            return Outcome(call.id, False, None, "interrupted before it took effect", self._now())
        return self._broken_off(call, tool, partly, f"interrupted: {partly}")

    def _broken_off(self, call: Call, tool: Tool, partly: PartlyMade, words: str) -> Outcome:
        undo = f"; nightshift undo {call.id} takes back what was made" if tool.undo else ""
        return Outcome(call.id, False, to_json(partly.value), f"{words}{undo}", self._now())

    def _take_back(self, call: Call, tool: Tool) -> None:
        """Take back what a call has begun that did not end well.

        Raises:
            Unavailable: It cannot be told whether that was done: the call stays undecided, and `resolve` tries again.
        """
        has_begun = any(decision.verdict is Verdict.ALLOW for decision in self._store.decisions(call.id))
        if tool.take_back is None or not has_begun:
            return
        tag = self._tag(call)
        try:
            tool.take_back(replace(self._context_for(call.incident, tag), by=call.by), tag, **tool.checked(call.arguments))
        except ToolError as error:
            logger.error("incident=%s call=%s could not be taken back: %s", call.incident, call.id, error)

    def _tag(self, call: Call) -> str:
        return tag_of(self._store.store_id, call.incident, call.id)

    def _cause_of(self, tool: Tool, incident: int | None) -> int | None:
        """Return the shared cause that counts for a call; None also where the policy has no limits of its own for these."""
        has_limits = self.policy.terms(tool.kind).shared_cause != ChangeLimits()
        return answered_cause(self._store, incident) if has_limits else None

    def hourly_hard_limit(self, kind: str) -> str:
        """Return which hard limit of an hour one more change of an action class would pass now, and why; empty where none."""
        now = self._now()
        past = self._store.changes_since(now - timedelta(days=1))
        return hourly_hard_limit(kind, self.policy, Situation(now, past=past))

    def _decide(
        self,
        request: Request,
        reach: Reach | None,
        own: int,
        *,
        before: datetime | None = None,
        planned_calls: Sequence[PastCall] = (),
        store_problem: str | None = None,
    ) -> Decision:
        """Ask the policy that is in force now about a call.

        Args:
            request: The question.
            reach: What the call names; None for a reading one.
            own: Id of the call, which does not count for its own limits.
            before: Changes that were allowed later do not count: they were decided with this call counted.
            planned_calls: Changes that count as made right now, on top of those that were.
            store_problem: Why nothing may be changed by what the store holds, where that was looked at.
        """
        standing, now = self.in_force.look(), self._now()
        past = [change for change in self._store.changes_since(now - timedelta(days=1)) if change.call != own]
        past = [change for change in past if before is None or change.at <= before]
        situation = Situation(
            now,
            reach.fleet if reach else (),
            [*past, *planned_calls],
            stopped_by(standing.policy.kill_switch),
            why_open(self._store),
            reach.racks if reach else {},
            standing.problem,
            recent_failures(self._store) if request.targets.users else {},
            store_problem or self._store.mark_broken() or "",
        )
        return decide(request, standing.policy, situation)

    def _now(self) -> datetime:
        return self._store.clock.now()


# The scheduler as a changing tool gets it: each command is checked right before it is given.
#
# Whether this process still may is asked once more, and the command itself is compared with those that were frozen when the call
# was
# decided: what a person or the policy said yes to is what runs, or nothing runs.

COMMANDS = frozenset(
    {
        "submit",
        "release",
        "cancel",
        "end_at_once",
        "cordon",
        "uncordon",
        "requeue",
        "reserve",
        "unreserve",
        "move_dependent",
    }
)
"""Methods of a scheduler, and of its optional ports, that change the cluster.

Not `withdraw`: taking back a job that never began has to work also when the kill switch was set meanwhile."""


class FrozenCommands:
    """The commands of one call, each of which may be given once."""

    def __init__(self, digests: Sequence[str], rendered: str) -> None:
        """Begin with the digests of the frozen commands.

        Args:
            digests: Of the commands, as `store.calls.command_digest` makes them.
            rendered: The commands as people saw them, for messages.
        """
        self._digests, self._rendered = list(digests), rendered
        self._passed_lines: list[str] = []
        self._lock = Lock()

    @property
    def given_text(self) -> str:
        """The commands that were let through, for people, behind a semicolon; empty where none was."""
        texts = [head_of(line, MOST_SHOWN, "…") for line in self._passed_lines[:FEW_SHOWN]]
        more = f" and {len(self._passed_lines) - FEW_SHOWN} more" if len(self._passed_lines) > FEW_SHOWN else ""
        return f"; before it: {'; '.join(texts)}{more}" if texts else ""

    def holds(self, lines: Sequence[str]) -> bool:
        """Whether these commands may still be given; when they may, they are used up."""
        with self._lock:
            unused = list(self._digests)
            for line in lines:
                digest = command_digest(line)
                if digest not in unused:
                    return False
                unused.remove(digest)
            self._digests = unused
            self._passed_lines += lines
        return True

    def confirm(self, *lines: str) -> None:
        """Use up commands.

        Raises:
            CommandRefused: One of them is not what was decided on, or was given already; none is used up.
        """
        if not self.holds(lines):
            raise CommandRefused(
                f"the change is not the one that was allowed, so it was not made: allowed was {self._rendered or 'no command'!r},"
                f" now it would be {'; '.join(lines)!r}; ask for it again"
            )


def _confirm(check: Callable[[], None], frozen: FrozenCommands, *lines: str) -> None:
    """Let a change through that is no command of the scheduler, as `guarded` lets one of its commands through."""
    check()
    frozen.confirm(*lines)


def guarded(scheduler: Scheduler, check: Callable[[], None], frozen: FrozenCommands, *, tag: str) -> Scheduler:
    """Return the same scheduler, which gives only commands that were frozen, each after a `check`; what that raises stops it.

    A tool may look and compute for minutes before its command, while the world goes on, or the process sleeps.
    """
    submitted: set[str] = set()

    def passed_on(name: str) -> property:
        def get(_: object) -> Any:
            attribute = getattr(scheduler, name)
            return checked(name, attribute) if name in COMMANDS else attribute

        return property(get)

    def checked(name: str, command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def confirmed(*arguments: Any, **options: Any) -> Any:
            check()
            # the id of a job that this very call submitted was not known when its commands were frozen
            new_jobs = {job: NEW_JOB for job in arguments if isinstance(job, str) and job in submitted}
            change = _planned(scheduler, name, arguments, options, new_jobs)
            if name == "release" and not new_jobs and tag in scheduler.job(str(arguments[0])).comment.split():
                # this very call queued it again under its own id, or submitted it before it was interrupted
                if frozen.holds(change.lines):
                    return change.give()
                change = _planned(scheduler, name, arguments, options, {str(arguments[0]): NEW_JOB})
            partners = name == "reserve" and len(arguments) > 1 and [arguments[0], [IDLE_PARTNERS]]
            if not (partners and frozen.holds(scheduler.command_lines(name, *partners, **options))):
                frozen.confirm(*change.lines)
            result = change.give()
            if name == "submit":
                submitted.add(str(result))
            return result

        return confirmed

    # a class of its own, since isinstance with a port looks for methods on the class
    names = [name for name in dir(scheduler) if not name.startswith("_")]
    return cast("Scheduler", type("Guarded", (), {name: passed_on(name) for name in names})())


def _planned(
    scheduler: Scheduler, name: str, arguments: Sequence[Any], options: Mapping[str, Any], shown_as: Mapping[str, str]
) -> PlannedChange:
    """Fix the commands of a change, so that those which are compared are those which run."""
    if isinstance(scheduler, PlansChanges):
        return scheduler.planned(name, arguments, options, shown_as)
    # what is rendered from the arguments alone cannot change between comparison and command
    shown_arguments = [shown_as.get(argument, argument) if isinstance(argument, str) else argument for argument in arguments]
    return PlannedChange(
        scheduler.command_lines(name, *shown_arguments, **options), partial(getattr(scheduler, name), *arguments, **options)
    )
