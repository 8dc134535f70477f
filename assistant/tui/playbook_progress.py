"""Where a playbook stands: it is played again with the outcomes that the store has, up to the first call that has none. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from assistant.content.playbooks import REFERENCE, Playbook, PlaybookLimits, Step, Verify
from assistant.errors import NightshiftError
from assistant.records import CallStatus, Diagnosis, Incident, Job, Outcome
from assistant.recover.budget import Budget

if TYPE_CHECKING:
    from assistant.engine import Engine
    from assistant.tui.about_incident import SeenCall

MOST_CALLS = 5_000
"""More than any playbook has made."""


class At(StrEnum):
    """Where a step is."""

    DONE = "done"
    FAILED = "failed"
    NOW = "now"
    """It is its turn."""
    WAITS = "waits"
    """It waits for a person's answer."""
    SKIPPED = "not taken"
    """It was not needed, or never reached."""
    NEXT = "next"


@dataclass(frozen=True, slots=True)
class SeenStep:
    """A step or verify of a playbook."""

    name: str
    tool: str
    at: At
    verify: bool
    why: str
    outcome: str
    """Outcome of the step, in short."""
    expects: str = ""
    """What it waits to be told, and how long; empty for a step that is made once."""
    calls: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Play:
    """A playbook and where it stands."""

    name: str = ""
    """Empty where there is no playbook."""
    title: str = ""
    steps: tuple[SeenStep, ...] = ()
    has_begun: bool = False
    """Whether it runs or ran; else it is the one that would be taken."""
    note: str = ""
    """Why there is none, or what else must be known."""
    limits: PlaybookLimits | None = None
    budget: Budget | None = None
    ends: str = ""
    """How it ended, or ends when all goes well."""


def play_of(engine: Engine, incident: Incident, diagnosis: Diagnosis | None, job: Job | None, calls: Sequence[SeenCall]) -> Play:
    """Return the playbook of an incident, or the one that its diagnosis would choose, and where it stands."""
    from assistant.engine.again import situation_of

    if diagnosis is None:
        return Play(note="No diagnosis yet: the playbook is chosen by it.")
    is_begun = incident.playbook is not None
    if incident.playbook is not None:
        book, why = engine.playbooks.get(incident.playbook), f"playbook {incident.playbook} is no longer there"
    else:
        book, why = engine.playbook_for(diagnosis, job)
    if book is None:
        return Play(note=why)
    changed = (
        "The file has changed since it was chosen: steps may differ."
        if is_begun and book.digest != incident.playbook_digest
        else ""
    )
    values = situation_of(engine.store, incident, diagnosis, job)
    standing = PlaybookStanding({}, None, "")
    if is_begun:
        standing = replace(stand(book, values, calls), over=incident.state.ended)
    steps = tuple(_seen_step(entry, standing, values, has_begun=is_begun) for entry in book.entries)
    budget = engine.budget(book, diagnosis, job) if book.restarts else None
    ends = standing.ended or f"ends {book.ends} when all goes well"
    return Play(book.name, book.title, steps, is_begun, changed, book.limits, budget, ends)


@dataclass(frozen=True, slots=True)
class PlaybookStanding:
    """Progress of a playbook: the calls made, the entry whose turn it is, and how it ended."""

    calls_of: Mapping[str, tuple[SeenCall, ...]]
    """Calls of each entry, by its name."""
    now: str | None
    """The entry whose turn it is; None when it has ended or cannot be told."""
    ended: str
    """How it ended; empty while it runs."""
    order: tuple[str, ...] = ()
    """Names of all entries."""
    over: bool = False
    """Whether nobody goes on with it."""


def stand(book: Playbook, values: Mapping[str, Any], calls: Sequence[SeenCall]) -> PlaybookStanding:
    """Return how far a playbook came, by playing it with the outcomes of the calls that were made."""
    from assistant.recover.playbook import play

    order = tuple(entry.name for entry in book.entries)
    by_key = {seen_call.call.step: seen_call for seen_call in calls if seen_call.call.step}
    calls_by_entry: dict[str, tuple[SeenCall, ...]] = {}
    for seen_call in calls:
        if seen_call.call.step:
            name = _entry_of(seen_call.call.step)
            calls_by_entry[name] = (*calls_by_entry.get(name, ()), seen_call)
    running = play(book, values, look_s=0)
    try:
        step = next(running)
        for _ in range(MOST_CALLS):
            recorded = by_key.get(step.key)
            if recorded is None or recorded.outcome is None:
                return PlaybookStanding(calls_by_entry, _entry_of(step.key), "", order)
            step = running.send(recorded.outcome)
    except StopIteration as stop:
        return PlaybookStanding(calls_by_entry, None, f"ended {stop.value.state}: {stop.value.note}", order)
    except NightshiftError:
        # the file is another one than the one that was played
        return PlaybookStanding(calls_by_entry, None, "", order)
    finally:
        running.close()
    return PlaybookStanding(calls_by_entry, None, "", order)


def _entry_of(key: str) -> str:
    """Return the entry of a step's key: `isolate[node02]`, `progress#3`."""
    return key.partition("[")[0].partition("#")[0]


def _seen_step(entry: Step | Verify, standing: PlaybookStanding, values: Mapping[str, Any], *, has_begun: bool) -> SeenStep:
    calls = standing.calls_of.get(entry.name, ())
    expects = f"until it says {entry.expect}, within {entry.within_min:g} min" if entry.expect else ""
    return SeenStep(
        entry.name,
        entry.use,
        _at(entry, calls, standing) if has_begun else At.NEXT,
        isinstance(entry, Verify),
        calls[-1].call.why if calls and not expects else foretold(entry.why, values),
        found_by(calls),
        expects,
        tuple(seen_call.call.id for seen_call in calls),
    )


def foretold(why: str, values: Mapping[str, Any]) -> str:
    """Return why a step would be taken, with what is known already; what an earlier step must find first is told by its name."""
    from assistant.errors import ToolError
    from assistant.recover.values import look_up

    def value_or_name(path: re.Match[str]) -> str:
        if path[1] == "item":
            return "it"
        try:
            return str(look_up(path[1], values))
        except ToolError:
            return f"({path[1].replace('.', ' ')})"

    return REFERENCE.sub(value_or_name, why)


def _at(entry: Step | Verify, calls: Sequence[SeenCall], standing: PlaybookStanding) -> At:
    status = calls[-1].call.status if calls else None
    if status is CallStatus.DENIED:
        return At.FAILED
    turn = standing.now == entry.name
    if turn and not standing.over:
        return At.WAITS if status is CallStatus.PENDING else At.NOW
    if not calls:
        return At.NEXT if not standing.over and standing.now in standing.order and _is_after(entry.name, standing) else At.SKIPPED
    if entry.expect:
        return At.DONE if _status(calls[-1].outcome) == entry.expect else At.FAILED
    return At.FAILED if turn or any(seen_call.outcome is not None and not seen_call.outcome.ok for seen_call in calls) else At.DONE


def _is_after(name: str, standing: PlaybookStanding) -> bool:
    return standing.now is not None and standing.order.index(name) > standing.order.index(standing.now)


def _status(outcome: Outcome | None) -> str:
    value = outcome.value if outcome is not None and outcome.ok else None
    return str(value.get("status", "")) if isinstance(value, Mapping) else ""


def found_by(calls: Sequence[SeenCall]) -> str:
    """Return what calls found, in a few words: the last of a verify's looks, each of a step's items."""
    findings = [_short(seen_call.outcome) for seen_call in calls if seen_call.outcome is not None]
    is_looping = (
        len({seen_call.call.step.partition("#")[0] for seen_call in calls if seen_call.call.step}) == 1 and len(findings) > 1
    )
    return f"{findings[-1]} ({len(findings)} looks)" if is_looping else "; ".join(dict.fromkeys(filter(None, findings)))


def _short(outcome: Outcome) -> str:
    if not outcome.ok:
        return outcome.error
    value = outcome.value
    if not isinstance(value, Mapping):
        return str(value)
    note = str(value.get("note") or value.get("text") or "")
    return note or ", ".join(f"{key} {item}" for key, item in value.items() if _tells(item))


def _tells(value: object) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool) and value != ""
