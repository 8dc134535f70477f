"""Run a playbook step by step.

`play` decides and does nothing: it yields the calls it wants and is sent their outcomes, so the same code runs on a cluster, in a
test and in a dry run. `run_playbook` makes the calls through the gate. A step's key is written with its call, and the gate answers
a key that was done before with the old outcome: to resume is to run again.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from assistant.content.playbooks import Ending, Playbook, Step, Verify
from assistant.errors import Denied, ToolError, Unavailable, UsageError
from assistant.ports import Clock
from assistant.records import Incident, IncidentState, Outcome
from assistant.recover.values import SKIPPED, filled, holds, look_up, text

LOOK_S = 60.0
"""How long one look of a verify may wait inside its tool."""
PAUSE_S = 5.0
"""Between looks that do not wait themselves."""
STATES = {
    Ending.RECOVERED: IncidentState.RECOVERED,
    Ending.ESCALATED: IncidentState.ESCALATED,
    Ending.CLOSED: IncidentState.CLOSED,
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


@dataclass(frozen=True, slots=True)
class Wanted:
    """A call that a playbook wants now."""

    key: str
    """Unique within the incident: `again`, `isolate[node02]`, `progress#3`."""
    tool: str
    arguments: Mapping[str, Any]
    why: str
    verifies: bool = False


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
    known: dict[str, Any] = dict(values)
    latest: datetime | None = None
    done: list[str] = []
    for step in playbook.step:
        taken = (not step.when or holds(step.when, known)) and (not step.unless or not holds(step.unless, known))
        if not taken:
            known[step.name] = SKIPPED
            continue
        try:
            outcomes = yield from _take(step, known)
        except ToolError as error:
            return Ended(IncidentState.ESCALATED, f"step {step.name} cannot be made: {error}", known, step.name)
        bad = next((outcome for outcome in outcomes if not outcome.ok), None)
        if bad is not None and not step.optional:
            return Ended(IncidentState.ESCALATED, f"step {step.name} ({step.use}) failed: {bad.error}", known, step.name)
        latest = max((outcome.at for outcome in outcomes), default=latest)
        found = [outcome.value for outcome in outcomes if outcome.ok]
        known[step.name] = found if step.each else (found[0] if found else SKIPPED)
        done += [step.name] if outcomes else []
        if step.then is not None:
            return Ended(STATES[step.then], _said(known[step.name]) or step.why or f"ended by step {step.name}", known, step.name)
    for verify in playbook.verify:
        if verify.when and not holds(verify.when, known):
            continue
        ended = yield from _verify(verify, known, latest, look_s)
        if ended is not None:
            return ended
    notes = [said for verify in playbook.verify if (said := _said(known.get(verify.name)))]
    note = "; ".join(notes) or (f"done: {', '.join(done)}" if done else "nothing had to be done")
    return Ended(STATES[playbook.ends], note, known)


def _take(step: Step, known: Mapping[str, Any]) -> Generator[Wanted, Outcome, list[Outcome]]:
    """Make a step's call, or one for each of its items."""
    items = look_up(step.each[1:-1], known) if step.each else [None]
    outcomes: list[Outcome] = []
    for item in items or ():
        here = {**known, "item": item}
        key = f"{step.name}[{item}]" if step.each else step.name
        why = text(step.why, here) or f"step {step.name} of the playbook"
        outcome = yield Wanted(key, step.use, filled(step.with_, here), why)
        outcomes.append(outcome)
        if not outcome.ok and not step.optional:
            break
    return outcomes


def _verify(
    verify: Verify, known: dict[str, Any], since: datetime | None, look_s: float
) -> Generator[Wanted, Outcome, Ended | None]:
    """Look again and again until the verify says yes or no, or its time is over; return None for yes."""
    look = 0
    left_s = verify.within_min * 60
    while True:
        look += 1
        try:
            arguments = {"timeout_s": min(look_s, left_s), **filled(verify.with_, known)}
            why = text(verify.why, known) or f"does it say {verify.expect}?"
        except ToolError as error:
            return Ended(IncidentState.ESCALATED, f"verify {verify.name} cannot be made: {error}", known, verify.name)
        outcome = yield Wanted(f"{verify.name}#{look}", verify.use, arguments, why, verifies=True)
        known[verify.name] = value = outcome.value if outcome.ok and isinstance(outcome.value, Mapping) else {}
        status = str(value.get("status", "")) if outcome.ok else "waiting"
        if status == verify.expect:
            return None
        since = since or outcome.at
        left_s = verify.within_min * 60 - (outcome.at - since).total_seconds()
        said = (_said(value) if outcome.ok else outcome.error) or status
        if status != "waiting":
            failed_job = str(value.get("job") or "") or None if status == "failed" else None
            return Ended(IncidentState.ESCALATED, f"verify {verify.name}: {said}", known, verify.name, failed_job)
        if left_s <= 0:
            note = f"verify {verify.name}: not {verify.expect} within {verify.within_min:g} min: {said}"
            return Ended(IncidentState.ESCALATED, note, known, verify.name)


def _said(value: Any) -> str:
    return str(value.get("note", "")) if isinstance(value, Mapping) else ""


def run_playbook(
    incident: Incident,
    playbook: Playbook,
    values: Mapping[str, Any],
    gate: Gate,
    clock: Clock,
    *,
    look_s: float = LOOK_S,
    patience_s: float | None = None,
) -> Ended:
    """Run a playbook through the gate, from where it stands, as far as it comes.

    Args:
        incident: Its calls are made for it.
        playbook: What to do.
        values: From `situation`.
        gate: Makes the calls.
        clock: To know when patience is over.
        look_s: How long one look of a verify may wait.
        patience_s: After so long in verifying, return `verifying`; None stays until it is decided.

    Raises:
        Parked: A call waits for an approval; run again after the answer.
    """
    running = play(playbook, values, look_s=look_s)
    until = None if patience_s is None else clock.now() + timedelta(seconds=patience_s)
    wanted: Wanted | None = None
    try:
        wanted = next(running)
        while True:
            outcome = gate.call(
                wanted.tool, wanted.arguments, why=wanted.why, by=f"playbook:{playbook.name}", incident=incident.id, step=wanted.key
            )
            previous, wanted = wanted, running.send(outcome)
            if previous.verifies and wanted.verifies and until is not None and clock.now() >= until:
                note = _said(outcome.value) or "waits for the restarted job"
                return Ended(IncidentState.VERIFYING, note, values, previous.key)
            if wanted.verifies and previous.verifies and (not outcome.ok or look_s <= 0):
                clock.sleep(PAUSE_S)  # the look itself did not wait
    except StopIteration as stop:
        ended: Ended = stop.value
        return ended
    except Denied as error:
        return Ended(IncidentState.ESCALATED, f"step {_key(wanted)} was refused: {error}", values, _key(wanted))
    except UsageError as error:
        return Ended(IncidentState.ESCALATED, f"step {_key(wanted)} is wrong in {playbook.path}: {error}", values, _key(wanted))
    except Unavailable as error:
        return Ended(IncidentState.RECOVERING, f"step {_key(wanted)} must wait: {error}", values, _key(wanted))
    finally:
        running.close()


def _key(wanted: Wanted | None) -> str:
    return wanted.key if wanted is not None else "?"
