"""Run a playbook step by step, with the values of its arguments and the pace of its waiting.

`play` decides and does nothing: it yields the calls it wants and is sent their outcomes, so the same code runs on a cluster, in a
test and in a dry run. `run_playbook` makes the calls through the gate. A step's key is written with its call, and the gate answers
a key that was done before with the old outcome: to resume is to run again.

`{path.to.value}` is no expression: a path is looked up once, and the value is never read again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from assistant.content.playbooks import CONDITION, REFERENCE, Playbook, PlaybookEnding, Step, Verify
from assistant.errors import ChangesStopped, Denied, Parked, ToolError, Unavailable, UsageError
from assistant.ports import Clock
from assistant.records import Decision, Incident, IncidentState, Outcome, Verdict
from assistant.recover.identity import RESTARTS

SKIPPED: Mapping[str, Any] = {}
"""Value of a step that was not taken: every path into it finds nothing."""


def look_up(path: str, values: Mapping[str, Any]) -> Any:
    """Return what a path finds; None where a step was not taken or a value is not known.

    Raises:
        ToolError: The value it leads through exists and has no such key; the message lists those it has.
    """
    first, *keys = path.split(".")
    if first not in values:
        raise ToolError(f"{{{path}}} finds nothing: {first!r} is none of {', '.join(sorted(values))}")
    value: Any = values[first]
    for word in keys:
        if value is None or value is SKIPPED:
            return None
        if dataclasses.is_dataclass(value) and not isinstance(value, type) and hasattr(value, word):
            value = getattr(value, word)
        elif isinstance(value, Mapping) and word in value:
            value = value[word]
        elif isinstance(value, Sequence) and not isinstance(value, str):
            # a repeated step: the word of each of its values
            value = [item[word] for item in value if isinstance(item, Mapping) and word in item]
        else:
            hint = f"it has {', '.join(map(str, value))}" if isinstance(value, Mapping) and value else f"it is {value!r}"
            raise ToolError(f"{{{path}}} finds nothing: no {word!r} there; {hint}")
    return None if value is SKIPPED else value


def holds(condition: str, values: Mapping[str, Any]) -> bool:
    """Return whether a condition finds something: not None, empty, zero or false."""
    try:
        return bool(look_up(condition.strip("{}"), values))
    except ToolError:
        return False


def filled(arguments: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step's arguments with every path replaced; one that finds nothing leaves its argument out.

    Raises:
        ToolError: A path leads nowhere.
    """
    arguments_filled = {name: _filled(value, values) for name, value in arguments.items()}
    return {name: value for name, value in arguments_filled.items() if value is not None}


def text(template: str, values: Mapping[str, Any]) -> str:
    """Return a text with every path replaced; lists are joined by commas.

    Raises:
        ToolError: A path leads nowhere.
    """
    return REFERENCE.sub(lambda match: _as_text(look_up(match.group(1), values)), template)


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, str):
        return look_up(value[1:-1], values) if CONDITION.fullmatch(value) else text(value, values)
    if isinstance(value, Mapping):
        return filled(value, values)
    if isinstance(value, Sequence):
        items: list[Any] = []
        for item in value:
            item_value = _filled(item, values)
            spliced = isinstance(item_value, Sequence) and not isinstance(item_value, str)
            items += [part for part in (item_value if spliced else [item_value]) if part is not None and part not in items]
        return items
    return value


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)


PAUSE_S = 1.0
"""Between looks that do not wait themselves, at least."""
LOOK_SHARE = 0.05
"""Of the time waited so far: the longer it lasts the rarer it looks, so that a day of looks stays a few hundred."""
RAREST_LOOK_S = 300.0


@dataclass
class Pace:
    """The pace of one run of a playbook."""

    clock: Clock
    look_s: float
    """How long one look waits inside its tool."""
    patience_s: float | None
    """How long the run may stay with a look that has to be repeated; None: until it is decided."""

    def __post_init__(self) -> None:
        self.began = self.clock.now()
        self._first_look: datetime | None = None

    def other(self) -> None:
        """Note that something else than a repeated look comes next."""
        self._first_look = None

    def next_look(self, outcome: Outcome) -> bool:
        """Wait until it is time for the next look after this one; False, without waiting, when patience does not reach so far.

        A look that was made by an earlier run and is only replayed costs no time.
        """
        now = self.clock.now()
        self._first_look = self._first_look or outcome.at
        waited_s = (outcome.at - self._first_look).total_seconds()
        wanted_s = min(waited_s * LOOK_SHARE, RAREST_LOOK_S) - self.look_s
        pause_s = max(wanted_s - (now - outcome.at).total_seconds(), 0.0)
        fresh = outcome.at >= self.began
        stayed_s = (now - self.began).total_seconds()
        if self.patience_s is not None and (pause_s or fresh) and stayed_s + pause_s >= self.patience_s:
            return False
        if fresh and (not outcome.ok or self.look_s <= 0):
            pause_s = max(pause_s, PAUSE_S)
        if pause_s:
            self.clock.sleep(pause_s)
        return True


LOOK_S = 60.0
"""How long one look of a verify may wait inside its tool."""
ENDS_JOB = ("cancel_job",)
"""Tools that end a job which a later step is to start again."""
STATES = {
    PlaybookEnding.RECOVERED: IncidentState.RECOVERED,
    PlaybookEnding.ESCALATED: IncidentState.ESCALATED,
    PlaybookEnding.CLOSED: IncidentState.CLOSED,
}


class Gate(Protocol):
    """The part of the gate that is needed here."""

    def call(
        self,
        tool_name: str,
        arguments: Mapping[str, Any],
        *,
        why: str,
        by: str,
        incident: int | None = None,
        step: str | None = None,
    ) -> Outcome:
        """Make a call, or return the outcome of the one that was made under this step before."""
        ...

    def would_ask(self, tool_name: str, arguments: Mapping[str, Any], *, by: str, incident: int, step: str) -> bool:
        """Return whether a person would be asked now about a step that has no call yet."""
        ...

    def was_passed(self, incident: int, step: str) -> bool:
        """Return whether a later change of the incident was made while the call of a step waited."""
        ...

    def forecast(
        self, tool_name: str, arguments: Mapping[str, Any], *, by: str, incident: int, after: Sequence[str] = ()
    ) -> Decision:
        """Return what the policy would say now to a change that follows others."""
        ...

    def refusal_of(self, incident: int, step: str) -> str | None:
        """Return why the policy refused the call of a step; None where it did not."""
        ...

    def is_begun(self, incident: int, step: str) -> bool:
        """Return whether a step of an incident has a call."""
        ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """A call that a playbook wants now."""

    key: str
    """Unique within the incident: `again`, `isolate[node02]`, `progress#3`."""
    tool: str
    arguments: Mapping[str, Any]
    why: str
    looks: bool = False
    """Whether it is a look that may have to be repeated."""
    waits: bool = False
    """Whether it is a look of a step, before the verifies."""
    await_answer: bool = True
    """Whether the playbook waits where the policy asks a person about it."""
    restarts_by: str = ""
    """Tool of the later step that starts the job again; empty where no later step does."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a playbook ended, or where it stands."""

    state: IncidentState
    """recovered, escalated or closed; verifying when it is too early to tell; recovering when it must be run again later."""
    note: str
    values: Mapping[str, Any]
    """Value of every step by name."""
    step: str | None = None
    """The step that failed or waits."""
    failed_job: str | None = None
    """The restarted job, when it failed as well: it gets an incident of its own."""


def play(playbook: Playbook, values: Mapping[str, Any], *, look_s: float = LOOK_S) -> Generator[Wanted, Outcome, Ended]:
    """Yield the calls of a playbook, be sent their outcomes, return how it ended.

    Args:
        playbook: What to do.
        values: From `situation`.
        look_s: How long one look of a verify may wait; 0 looks once.
    """
    state: dict[str, Any] = dict(values)
    latest: datetime | None = None
    steps_done: list[str] = []
    for step in playbook.step:
        applies = (not step.when or holds(step.when, state)) and not any(holds(condition, state) for condition in step.unless)
        state[step.name] = SKIPPED
        if not applies:
            continue
        try:
            if step.expect:
                waited = yield from _look(step, state, latest, look_s)
                problem, state[step.name], latest = waited.problem, waited.value, waited.at
            else:
                outcomes = yield from _take(step, state, _restart_behind(playbook, step))
                problem = next((f"({step.use}) failed: {outcome.error}" for outcome in outcomes if not outcome.ok), "")
                latest = max((outcome.at for outcome in outcomes), default=latest)
                results = [outcome.value for outcome in outcomes if outcome.ok]
                state[step.name] = results if step.each else (results[0] if results else SKIPPED)
        except ToolError as error:
            return Ended(IncidentState.ESCALATED, f"step {step.name} cannot be made: {error}", state, step.name)
        if problem and not step.optional:
            return Ended(IncidentState.ESCALATED, f"step {step.name} {problem}", state, step.name)
        steps_done.append(step.name)
        if step.then is not None:
            return Ended(STATES[step.then], _said(state[step.name]) or step.why or f"ended by step {step.name}", state, step.name)
    return (yield from _verified(playbook, state, latest, look_s, steps_done))


def _verified(
    playbook: Playbook, state: dict[str, Any], since: datetime | None, look_s: float, steps_done: list[str]
) -> Generator[Wanted, Outcome, Ended]:
    """Make sure of every verify and return how the playbook ended."""
    notes = []
    for verify in playbook.verify:
        state[verify.name] = SKIPPED
        if verify.when and not holds(verify.when, state):
            continue
        try:
            waited = yield from _look(verify, state, since, look_s)
        except ToolError as error:
            return Ended(IncidentState.ESCALATED, f"verify {verify.name} cannot be made: {error}", state, verify.name)
        state[verify.name] = waited.value
        if waited.problem:
            failed_job = str(waited.value.get("job") or "") if waited.value.get("status") == "failed" else ""
            note = f"verify {verify.name} {waited.problem}"
            return Ended(IncidentState.ESCALATED, note, state, verify.name, failed_job or None)
        notes += [_said(waited.value)] if _said(waited.value) else []
    note = "; ".join(notes) or (f"done: {', '.join(steps_done)}" if steps_done else "nothing had to be done")
    return Ended(STATES[playbook.ends], note, state)


def _restart_behind(playbook: Playbook, step: Step) -> str:
    """Return the tool of the first step behind one that starts a job again; empty where there is none."""
    steps_after = playbook.step[playbook.step.index(step) + 1 :]
    return next((later.use for later in steps_after if later.use in RESTARTS), "")


def _take(step: Step, state: Mapping[str, Any], restarts_by: str) -> Generator[Wanted, Outcome, list[Outcome]]:
    """Make a step's call, or one for each of its items."""
    outcomes: list[Outcome] = []
    for call in calls_of(step, state, restarts_by):
        outcome = yield call
        outcomes.append(outcome)
        if not outcome.ok and not step.optional:
            break
    return outcomes


def calls_of(step: Step, values: Mapping[str, Any], restarts_by: str = "") -> Iterator[Wanted]:
    """Yield the call of a step, or one for each of its items.

    Raises:
        ToolError: Something that it refers to is not known.
    """
    for item in (look_up(step.each[1:-1], values) if step.each else [None]) or ():
        item_values = {**values, "item": item}
        key = f"{step.name}[{item}]" if step.each else step.name
        why = text(step.why, item_values) or f"step {step.name} of the playbook"
        yield Wanted(key, step.use, filled(step.with_, item_values), why, await_answer=step.await_answer, restarts_by=restarts_by)


class Looked(NamedTuple):
    """What came of looking again and again."""

    problem: str
    """Empty when the expected status came."""
    value: Mapping[str, Any]
    at: datetime


def _look(
    entry: Step | Verify, state: Mapping[str, Any], since: datetime | None, look_s: float
) -> Generator[Wanted, Outcome, Looked]:
    """Look until the value has the expected status, another one than `waiting`, or the time is over.

    The time counts while the job neither waits in the queue (`queued`) nor comes further (`step`).
    """
    look, latest_step = 0, -1
    left_s = entry.within_min * 60
    while True:
        look += 1
        arguments = {"timeout_s": min(look_s, left_s), **filled(entry.with_, state)}
        why = text(entry.why, state) or f"does it say {entry.expect}?"
        outcome = yield Wanted(f"{entry.name}#{look}", entry.use, arguments, why, looks=True, waits=isinstance(entry, Step))
        value = outcome.value if outcome.ok and isinstance(outcome.value, Mapping) else {}
        status = str(value.get("status", "")) if outcome.ok else "waiting"
        if status == entry.expect:
            return Looked("", value, outcome.at)
        since = outcome.at if since is None or value.get("queued") or _moves(value, latest_step) else since
        latest_step = max(latest_step, _step_of(value))
        left_s = entry.within_min * 60 - (outcome.at - since).total_seconds()
        answer = (_said(value) if outcome.ok else outcome.error) or f"says {status!r}"
        if status != "waiting":
            return Looked(f"({entry.use}): {answer}", value, outcome.at)
        if left_s <= 0:
            return Looked(f"({entry.use}): not {entry.expect} within {entry.within_min:g} min: {answer}", value, outcome.at)


def _step_of(value: Mapping[str, Any]) -> int:
    step = value.get("step")
    return step if isinstance(step, int) else -1


def _moves(value: Mapping[str, Any], latest_step: int) -> bool:
    return _step_of(value) > latest_step >= 0


def _said(value: Any) -> str:
    return str(value.get("note", "")) if isinstance(value, Mapping) else ""


def run_playbook(
    incident: Incident,
    playbook: Playbook,
    values: Mapping[str, Any],
    gate: Gate,
    clock: Clock,
    *,
    by: str | None = None,
    look_s: float = LOOK_S,
    patience_s: float | None = None,
    way: Callable[[Wanted], Wanted] = lambda call: call,
) -> Ended:
    """Run a playbook through the gate, from where it stands, as far as it comes.

    Args:
        incident: Its calls are made for it.
        playbook: What to do.
        values: From `situation`.
        gate: Makes the calls.
        clock: To know when patience is over.
        by: The person at whose request it runs now; the playbook itself when nobody asked.
        look_s: How long one look of a verify may wait.
        patience_s: After so long, return `verifying` (or `recovering`, in a step that waits); None stays until it is decided.
        way: Puts another call of the same meaning in the place of one.

    Raises:
        Parked: A call waits for an approval; run again after the answer.
    """
    by = by or f"playbook:{playbook.name}"
    running = play(playbook, values, look_s=look_s)
    pace = Pace(clock, look_s, patience_s)
    unanswered: list[Parked] = []
    wanted: Wanted | None = None
    try:
        wanted = next(running)
        while True:
            wanted = way(wanted)
            outcome = _made(gate, incident, wanted, by, clock, unanswered)
            before, wanted = wanted, running.send(outcome)
            if not (before.looks and wanted.looks and before.tool == wanted.tool):
                pace.other()
            elif not pace.next_look(outcome):
                state = IncidentState.RECOVERING if before.waits else IncidentState.VERIFYING
                return Ended(state, _said(outcome.value) or outcome.error or f"waits in {before.key}", values, before.key)
    except StopIteration as stop:
        ended: Ended = stop.value
        return ended
    except ChangesStopped as error:
        return Ended(IncidentState.RECOVERING, f"step {_key(wanted)} must wait: {error}", values, _key(wanted))
    except Denied as error:
        return Ended(IncidentState.ESCALATED, f"step {_key(wanted)} was refused: {error}", values, _key(wanted))
    except UsageError as error:
        return Ended(IncidentState.ESCALATED, f"step {_key(wanted)} is wrong in {playbook.path}: {error}", values, _key(wanted))
    except Unavailable as error:
        return Ended(IncidentState.RECOVERING, f"step {_key(wanted)} must wait: {error}", values, _key(wanted))
    finally:
        running.close()


def _made(gate: Gate, incident: Incident, call: Wanted, by: str, clock: Clock, unanswered: list[Parked]) -> Outcome:
    """Make a call; one whose step does not await its answer counts as failed while a person is asked.

    A job is not ended where the policy would not let it be started again by itself. A step that does not await its answer and is
    refused counts as failed as well where the job may be started again without it.

    Args:
        gate: Makes it.
        incident: For which.
        call: The call.
        by: Who wants it.
        clock: Of the outcome of a call that waits.
        unanswered: Questions that this run went on behind; a new one is added.

    Raises:
        Parked: A person is asked, and nothing may be done before the answer. Of two questions only the first is put.
        Denied: It was refused. What a person refuses after the playbook went on behind it ends nothing.
    """
    if unanswered and gate.would_ask(call.tool, call.arguments, by=by, incident=incident.id, step=call.key):
        raise unanswered[0]
    if call.tool in ENDS_JOB and (problem := _restart_problem(gate, incident, call, by)):
        raise Denied(problem)
    refusal = gate.refusal_of(incident.id, call.key) if not call.await_answer else None
    if refusal is not None and _may_restart(gate, incident, call, by):
        return Outcome(0, False, None, refusal, clock.now())
    try:
        return gate.call(call.tool, call.arguments, why=call.why, by=by, incident=incident.id, step=call.key)
    except Parked as parked:
        if call.await_answer:
            raise
        unanswered.append(parked)
        return Outcome(0, False, None, str(parked), clock.now())
    except Denied as error:
        if call.await_answer or isinstance(error, ChangesStopped):
            raise
        refused = gate.refusal_of(incident.id, call.key) is not None and _may_restart(gate, incident, call, by)
        if not refused and not gate.was_passed(incident.id, call.key):
            raise
        return Outcome(0, False, None, str(error), clock.now())


def _restart_problem(gate: Gate, incident: Incident, call: Wanted, by: str) -> str:
    """Return why a job is not to be ended: the policy would end it now and not let it be started again by itself."""
    if not call.restarts_by or incident.job is None or gate.is_begun(incident.id, call.key):
        return ""
    about = {"job": incident.job}
    if gate.forecast(call.tool, about, by=by, incident=incident.id).verdict is not Verdict.ALLOW:
        return ""  # whoever refuses or is asked says so
    restart = gate.forecast(call.restarts_by, about, by=by, incident=incident.id, after=[call.tool])
    if restart.verdict is Verdict.ALLOW:
        return ""
    word = "would be refused" if restart.verdict is Verdict.DENY else "would wait for a person"
    return f"job {incident.job} was not ended, for its restart {word} now ({restart.rule}: {restart.why})"


def _may_restart(gate: Gate, incident: Incident, call: Wanted, by: str) -> bool:
    """Tell whether a later step may start the job again, by itself or with a yes."""
    if not call.restarts_by or incident.job is None:
        return False
    decision = gate.forecast(call.restarts_by, {"job": incident.job}, by=by, incident=incident.id)
    return decision.verdict is not Verdict.DENY


def _key(call: Wanted | None) -> str:
    return call.key if call is not None else "?"
