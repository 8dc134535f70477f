"""Check a playbook against what exists, and rehearse it on its fixtures: no call is made, nothing but the playbook is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from assistant.content.playbooks import Fixture, Playbook, Verify, handled_words
from assistant.errors import UsageError
from assistant.records import (
    Action,
    Category,
    Citation,
    DecidedBy,
    Diagnosis,
    EventKind,
    Incident,
    IncidentState,
    NodeFinding,
    Outcome,
    Risk,
)
from assistant.recover.identity import RESTARTS
from assistant.recover.playbook import ENDS_JOB, STATES, Ended, play
from assistant.recover.situation import situation
from assistant.tooling import Tool

AT = datetime(2026, 1, 1, tzinfo=UTC)
PROOF = (Citation("job.log", 1, "it failed", "invented"), Citation("dmesg.log", 1, "it is broken", "invented"))
"""Two witnesses against each node that a fixture calls faulty."""
MOST_CALLS = 200
"""A rehearsal with more is caught in a loop."""


@dataclass(frozen=True, slots=True)
class Made:
    """A call that a rehearsal came to."""

    step: str
    tool: str
    arguments: Mapping[str, Any]
    why: str


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What a playbook did in a fixture."""

    fixture: str
    calls: tuple[Made, ...]
    """A look that was repeated counts once."""
    ended: Ended
    problems: tuple[str, ...]
    """Where it differs from what the fixture says; empty when it passed."""


def check_playbook(playbook: Playbook, tools: Mapping[str, Tool], reasons: Sequence[str]) -> list[str]:
    """Return what is wrong with a playbook that its own file cannot tell, each with file, line and key.

    Args:
        playbook: As it was read.
        tools: All tools by name.
        reasons: Names of all reasons.
    """
    words = handled_words(reasons)
    problems = [
        f"{playbook.path}:1: handles: {word!r} is no reason, action or category:…" for word in playbook.handles if word not in words
    ]
    problems += [f"{playbook.path}: handles: names nothing"] * (not playbook.handles)
    problems += [f"{playbook.path}: fixture: there is none: nothing shows what it does"] * (not playbook.fixture)
    for number in range(len(playbook.entries)):
        problems += _entry_problems(playbook, number, tools)
    changing = [step.name for step in playbook.step if step.use in tools and tools[step.use].risk > Risk.READ]
    if changing and not playbook.verify:
        problems.append(f"{playbook.path}: verify: step {changing[-1]} changes something and nothing verifies it")
    problems += _blind_ends(playbook)
    problems += [
        f"{playbook.path}: fixture {fixture.name!r}: reason {fixture.reason!r} is unknown"
        for fixture in playbook.fixture
        if fixture.reason not in reasons
    ]
    return problems


def _blind_ends(playbook: Playbook) -> list[str]:
    """Return the steps that end a job before anything has asked whether it could be started again.

    One whose weights are lost has nothing to lose by its end, and its next saves replace the healthy checkpoints.
    """
    restart = next((number for number, step in enumerate(playbook.step) if step.use in RESTARTS), None)
    problems: list[str] = []
    for number, step in enumerate(playbook.step):
        if step.use not in ENDS_JOB or restart is None or number > restart:
            continue
        prospects = [
            earlier.name for earlier in playbook.step[:number] if earlier.use == "restart_prospect" and not earlier.optional
        ]
        blind = [
            earlier
            for earlier in playbook.step[:number]
            if earlier.then is not None
            and earlier.unless
            and {*earlier.unless} <= {f"{{{name}.restart_from}}" for name in prospects}
        ]
        of_lost_weights = any(step.when == f"{{{name}.lost}}" for name in prospects)
        if not blind and not of_lost_weights:
            problems.append(
                f"{playbook.path}:{playbook.line(number)}: use: {step.use} ends a job before it is known that it could be started "
                'again; before it belong a step of restart_prospect and one with unless = "{….restart_from}" and `then`'
            )
    return problems


def _entry_problems(playbook: Playbook, number: int, tools: Mapping[str, Tool]) -> list[str]:
    entry = playbook.entries[number]
    line_place = f"{playbook.path}:{playbook.line(number)}"
    tool = tools.get(entry.use)
    if tool is None:
        import difflib

        near = difflib.get_close_matches(entry.use, tools, n=1)
        return [f"{line_place}: use: tool {entry.use!r} is unknown" + (f"; did you mean {near[0]!r}?" if near else "")]
    argument_specs = tool.arguments
    problems = [
        f"{line_place}: with: {entry.use} has no argument {name!r}; known: {', '.join(argument_specs)}"
        for name in entry.with_
        if name not in argument_specs
    ]
    needed = [name for name, argument in argument_specs.items() if argument.required and name not in entry.with_]
    problems += [f"{line_place}: with: {entry.use} needs {name!r}" for name in needed]
    if isinstance(entry, Verify) or entry.expect:
        problems += [f"{line_place}: use: {entry.use} changes something; only a reading tool can be looked at"] * (
            tool.risk > Risk.READ
        )
        problems += [f"{line_place}: use: {entry.use} has no timeout_s, so it cannot be looked at"] * (
            "timeout_s" not in argument_specs
        )
    plain = {name: value for name, value in entry.with_.items() if name in argument_specs and "{" not in str(value)}
    try:
        for name, value in plain.items():
            argument_specs[name].coerced(entry.use, value)
    except UsageError as error:
        problems.append(f"{line_place}: with: {error}")
    return problems


def try_playbook(playbook: Playbook, fixture: Fixture) -> Rehearsal:
    """Rehearse a playbook in the situation of a fixture; the answers come from the fixture."""
    values = {**_situation(fixture), **{name: value for name, value in fixture.values.items() if not isinstance(value, Mapping)}}
    for name, value in fixture.values.items():
        if isinstance(value, Mapping):
            values[name] = {**values.get(name, {}), **value}
    calls: list[Made] = []
    running = play(playbook, values, look_s=0)
    expects = {entry.name: entry.expect for entry in playbook.entries if entry.expect}
    looks: dict[str, int] = {}
    try:
        call = next(running)
        for _ in range(MOST_CALLS):
            name = call.key.split("#")[0].split("[")[0]
            looks[name] = looks.get(name, -1) + 1
            if not call.looks or looks[name] == 0:
                calls.append(Made(name, call.tool, call.arguments, call.why))
            call = running.send(_answer(fixture, name, looks[name], expects.get(name, "")))
    except StopIteration as stop:
        ended: Ended = stop.value
    else:
        ended = Ended(IncidentState.ESCALATED, f"made more than {MOST_CALLS} calls", {})
    return Rehearsal(fixture.name, tuple(calls), ended, tuple(_differences(fixture, calls, ended)))


def _answer(fixture: Fixture, name: str, look: int, expect: str) -> Outcome:
    """Return what the fixture says a step answers; each look is ten minutes after the one before."""
    at = AT.replace(hour=min(23, look // 6), minute=10 * (look % 6))
    if name in fixture.fails:
        return Outcome(0, False, None, "the fixture says that it fails", at)
    value = fixture.answers.get(name, {"status": expect} if expect else {})
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping) and expect:
        value = value[min(look, len(value) - 1)]
    return Outcome(0, True, value, "", at)


def _differences(fixture: Fixture, calls: Sequence[Made], ended: Ended) -> list[str]:
    tools_called = tuple(call.tool for call in calls)
    wanted_calls = fixture.calls or ()
    differences = [f"called {', '.join(tools_called) or 'nothing'} instead of {', '.join(wanted_calls) or 'nothing'}"] * (
        tools_called != wanted_calls
    )
    if ended.state is not STATES[fixture.ends]:
        differences.append(f"ended {ended.state} instead of {fixture.ends}: {ended.note}")
    for step, expected in fixture.arguments.items():
        own = [call.arguments for call in calls if call.step == step]
        if not own:
            differences.append(f"step {step} was not taken")
        elif isinstance(expected, Mapping):
            wrong = {name: own[-1].get(name) for name, value in expected.items() if own[-1].get(name) != value}
            differences += [f"step {step} had {wrong} instead of {dict(expected)}"] * bool(wrong)
    return differences


def _situation(fixture: Fixture) -> dict[str, Any]:
    """Return the values of an invented incident of job 7 on node01 to node04."""
    action = fixture.action or Action.NONE
    nodes = tuple(NodeFinding(node, "named by its kernel", PROOF) for node in fixture.faulty_nodes)
    diagnosis = Diagnosis(
        fixture.reason,
        Category.NONE,
        action,
        0.9,
        DecidedBy.RULE,
        (),
        nodes,
        (),
        f"{fixture.reason} in a rehearsal",
        "do as it says",
    )
    incident = Incident(1, IncidentState.RECOVERING, "7", 0, None, EventKind.JOB_ENDED, AT, AT, None, None, None, None, None, "")
    values = situation(incident, diagnosis, None, now=AT)
    names = ["node01", "node02", "node03", "node04"]
    values["incident"] |= {"nodes": names}
    values["job"] = {**values["job"], "id": "7", "name": "llm", "user": "ada", "state": "failed", "nodes": names}
    values["directives"] |= {"owner": "ada"}
    return values


def rehearsed(playbook: Playbook) -> list[Rehearsal]:
    """Return the rehearsal of every fixture of a playbook that names calls."""
    return [try_playbook(playbook, fixture) for fixture in playbook.fixture if fixture.calls is not None]
