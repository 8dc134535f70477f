"""Answers to orders that no change is proposed for: what was forbidden, what Nightshift does not do, and the nearest to be had."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from assistant.agent.answer import AnswerKind, AnswerSource, one_line
from assistant.agent.dialogue import BY, QuestionRequest, QuestionTurn
from assistant.agent.orders import ONE_AT_A_TIME, OrderKind, OrderReading
from assistant.agent.restart_wishes import condition_of
from assistant.agent.verbs import nearest_for
from assistant.gate import Gate
from assistant.nodeset import fold
from assistant.policy import Mode

MOST_WAITING = 3
_FORBIDDEN = {"cancel": "cancelled", "recover": "restarted", "cordon": "taken out of scheduling", "uncordon": "put back"}


def order_told(turn: QuestionTurn, reading: OrderReading) -> Iterator[str]:
    """Tell what an order was understood as, and why nothing is proposed for it."""
    yield from _forbidden(turn, reading) if reading.kind is OrderKind.HOLD else _unserved(turn, reading)


def _object_text(turn: QuestionTurn) -> str:
    """Return what the order is about, in words; empty where nothing is named."""
    request = turn.request
    parts = [f"job {job}" for job in request.names.jobs or filter(None, [request.job])]
    if nodes := request.names.nodes or request.nodes:
        parts.append(fold(nodes))
    numbers = request.names.incidents or ((request.incident,) if request.incident is not None else ())
    parts += [f"incident {number}" for number in numbers]
    return " and ".join([*parts, *(f"job or incident {number}" for number in request.names.numbers)])


def _forbidden(turn: QuestionTurn, reading: OrderReading) -> Iterator[str]:
    object_text = _object_text(turn)
    waiting = turn.look("list_approvals")
    mark = f"[{waiting.number}]"
    if object_text:
        order_text = f"is not to be {_FORBIDDEN[reading.change]}" if reading.change else "is to be left as it is"
        yield f"Understood: {object_text} {order_text}. Nothing is proposed or changed for it now."
    else:
        yield "Understood: no. Nothing is changed, and nothing new is proposed."
    if waiting.error:
        turn.kind = AnswerKind.UNKNOWN
        yield f"What waits for a yes is not known now: {waiting.error} {mark}"
    else:
        yield from _waiting(_about(turn, waiting) if object_text else waiting.value, object_text, mark)
    if not object_text:
        return
    mode = turn.gate.policy.mode
    watch = "the watch, in mode act, goes on by its policy" if mode is Mode.ACT else f"the policy is in mode {mode}"
    entry = _protection(turn)
    yield (
        f"A sentence keeps nothing off for later: {watch}. What keeps every change off is an entry [[protected]]"
        f"{f' with {entry}' if entry else ''} in the site's policy file."
    )
    for stranger in turn.request.names.strangers:
        yield f"(Left out: {stranger}.)"


def _waiting(rows: Sequence[Mapping[str, Any]], object_text: str, mark: str) -> Iterator[str]:
    about = " for it" if object_text else ""
    if not rows:
        yield f"Nothing waits for a yes{about} {mark}."
    for row in rows[:MOST_WAITING]:
        change = one_line(row["change"], 160)
        yield f"Approval {row['approval']} still waits{about} {mark}; answer it with no on its own card: {change}"
    if len(rows) > MOST_WAITING:
        yield f"… and {len(rows) - MOST_WAITING} more wait {mark}."


def _about(turn: QuestionTurn, waiting: AnswerSource) -> list[Mapping[str, Any]]:
    """Return what waits about the things that the order names."""
    request = turn.request
    jobs = {*request.names.jobs, *request.names.numbers, request.job} - {""}
    nodes = {*(request.names.nodes or request.nodes)}
    numbers = {*request.names.incidents} or {request.incident} - {None}
    rows = []
    for row in waiting.value or ():
        arguments, incident = row["arguments"], row["incident"]
        names = {str(name) for value in arguments.values() for name in (value if isinstance(value, list) else [value])}
        of_job = turn.inventory.incidents.get(incident, "") if incident is not None else ""
        if names & (jobs | nodes) or of_job in jobs or incident in numbers:
            rows.append(row)
    return rows


def _protection(turn: QuestionTurn) -> str:
    names = turn.request.names
    nodes, jobs = names.nodes or turn.request.nodes, names.jobs or tuple(filter(None, [turn.request.job]))
    if nodes:
        return f'nodes = ["{fold(nodes)}"]'
    return f"jobs = [{', '.join(f'{job!r}' for job in jobs)}]".replace("'", '"') if jobs else ""


def _unserved(turn: QuestionTurn, reading: OrderReading) -> Iterator[str]:
    turn.kind = AnswerKind.REFUSED
    object_text = _object_text(turn)
    word = reading.object_word if reading.object_kind not in ("job", "node", "incident", "") else ""
    order_text = " ".join(filter(None, [reading.verb, word, f"({object_text})" if word and object_text else object_text]))
    yield f"No, that is not done, and nothing is proposed. Understood: {order_text}. {reading.does}."
    if reading.does == ONE_AT_A_TIME:
        yield "Name the job or the nodes, each by itself; to stop every change at once there is the kill switch."
        return
    yield f"The nearest: {nearest_for(reading.object_kind)}{_examples(turn)}."
    for stranger in turn.request.names.strangers:
        yield f"(Left out: {stranger}.)"


def _examples(turn: QuestionTurn) -> str:
    names = turn.request.names
    if nodes := names.nodes or turn.request.nodes:
        return f"; say for instance: cordon {nodes[0]}, or: check {nodes[0]}"
    if jobs := names.jobs or tuple(filter(None, [turn.request.job])):
        return f"; say for instance: status of job {jobs[0]}"
    if names.incidents:
        return f"; say for instance: explain incident {names.incidents[0]}"
    return ""


def later_told(turn: QuestionTurn) -> str:
    """Return the refusal of an order for later or on a condition; empty where it is meant for now."""
    condition = condition_of(turn.request.question, turn.request.names)
    if not condition or (turn.request.intent == "cordon" and condition.startswith(("until", "till"))):
        return ""
    turn.kind = AnswerKind.REFUSED
    condition_text = one_line(condition, 80)
    return f'Not proposed: Nightshift keeps no order for later, so "{condition_text}" cannot be passed on. Say it when it is due.'


def until_told(turn: QuestionTurn) -> str:
    """Return what is told where the end of a cordon was named by a word that is no number of hours."""
    condition = condition_of(turn.request.question, turn.request.names)
    if turn.request.intent != "cordon" or not condition.startswith(("until", "till")):
        return ""
    condition_text = one_line(condition, 80)
    return f'("{condition_text}" cannot be passed on: a cordon takes hours, as in "for 12 hours"; else it runs as long as usual.)'


_CHANGED_BY = {"cancel": "cancel_job", "recover": "resubmit_job", "cordon": "cordon_node", "uncordon": "uncordon_node"}


def with_waiting_object(request: QuestionRequest, gate: Gate) -> QuestionRequest:
    """Return an order with the job or the node of the one change of its kind that waits already, where it names none."""
    tool = _CHANGED_BY.get(request.intent, "")
    if not tool or request.job or request.nodes or request.names.strangers:
        return request
    rows = [row for row in gate.call("list_approvals", {}, why="what it may mean", by=BY).value or () if row["tool"] == tool]
    if len(rows) != 1:
        return request
    arguments = rows[0]["arguments"]
    return replace(request, job=str(arguments.get("job", "")), nodes=tuple(filter(None, [str(arguments.get("node", ""))])))
