"""Answers to orders that no change is proposed for: what was forbidden, what Nightshift does not do, and the nearest to be had."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from assistant.agent.answer import AnswerKind, AnswerSource, one_line
from assistant.agent.conditions import asked_end, condition_of, filled_slots, job_condition
from assistant.agent.dialogue import QuestionRequest, QuestionTurn
from assistant.agent.orders import HELD_OFF, ONE_AT_A_TIME, OrderKind, OrderReading
from assistant.agent.proposals import BY
from assistant.agent.verbs import nearest_for, verbs
from assistant.agent.words import Names
from assistant.gate import Gate
from assistant.nodeset import fold
from assistant.policy import Mode

MOST_WAITING = 3
MOST_OTHERS = 6
OUT = ("draining", "drained", "down")
"""States of a node out of service."""
_FORBIDDEN = {"cancel": "cancelled", "recover": "restarted", "cordon": "taken out of scheduling", "uncordon": "put back"}


def order_told(turn: QuestionTurn, reading: OrderReading) -> Iterator[str]:
    """Tell what an order was understood as, and why nothing is proposed for it."""
    yield from _forbidden(turn, reading) if reading.kind is OrderKind.HOLD else _unserved(turn, reading)


_OWNED = re.compile(
    r"\b(?:leave|let|keep|touch|cancel|kill|stop|restart|drain|except|without) (?:all |any |the |everything )?(?:of )?user\b"
    r"|\b(?:jobs?|runs?|stuff|things?|everything|all|anything) of user\b"
)


def _object_text(turn: QuestionTurn) -> str:
    """Return what the order is about, in words; empty where nothing is named."""
    request = turn.request
    parts = [f"job {job}" for job in request.names.jobs or filter(None, [request.job])]
    if nodes := request.names.nodes or request.nodes:
        parts.append(fold(nodes))
    if not parts and request.names.candidates:
        parts += [f"job {job}" for job in request.names.candidates[:MOST_OTHERS]]
    if not parts and _OWNED.search(request.names.masked):
        parts += [f"all of {user}" for user in request.names.users]
    numbers = request.names.incidents or ((request.incident,) if request.incident is not None else ())
    parts += [f"incident {number}" for number in numbers]
    return " and ".join([*parts, *(f"job or incident {number}" for number in request.names.numbers)])


def _forbidden(turn: QuestionTurn, reading: OrderReading) -> Iterator[str]:
    object_text = _object_text(turn)
    waiting = turn.look("list_approvals")
    mark = f"[{waiting.number}]"
    if object_text:
        order_text = f"is not to be {_FORBIDDEN[reading.change]}" if reading.change else "is to be left as it is"
        subject = object_text if " and " not in object_text else f"{object_text}, each"
        yield f"Understood: {subject} {order_text}. Nothing is proposed or changed for it now."
    else:
        answer_text = "that is held off" if reading.verb == HELD_OFF else "no"
        yield f"Understood: {answer_text}. Nothing is changed, and nothing new is proposed."
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


def reported_told(turn: QuestionTurn, order: str) -> Iterator[str]:
    """Tell that an order of somebody else is none, and how what it names stands."""
    object_text = _object_text(turn)
    for_it = f" for {object_text}" if object_text else ""
    yield f"That is what somebody else says, and no order of yours: nothing is proposed{for_it}."
    yield from _things_told(turn)
    yield "To order it, say it as your own words."


def not_due_told(turn: QuestionTurn, condition: str) -> Iterator[str]:
    """Tell that an order on a condition is not kept, and how what it names stands."""
    turn.kind = AnswerKind.REFUSED
    condition_text = one_line(filled_slots(condition, turn.request.names), 80)
    yield f'Not proposed: Nightshift keeps no order for later, so "{condition_text}" cannot be passed on. Say it when it is due.'
    yield from _things_told(turn)


def _things_told(turn: QuestionTurn) -> Iterator[str]:
    """Tell how the jobs and nodes that are named stand."""
    for job in turn.request.names.jobs[:MOST_WAITING]:
        status = turn.look("show_job", job=job)
        incidents = turn.look("list_incidents", job=job, open_only=True)
        if not status.error and not incidents.error:
            is_open = "an incident is open about it" if incidents.value else "no incident is open about it"
            yield f"Job {job} is {status.value['state']} [{status.number}], {is_open} [{incidents.number}]."
    nodes = turn.request.names.nodes[:MOST_WAITING]
    states = turn.look("node_states", nodes=list(nodes)) if nodes else None
    for node in (states.value if states is not None else None) or ():
        reason = f", {one_line(node['reason'], 120)}" if node["reason"] else ""
        yield f"{node['node']} is {node['state']}{reason} [{states.number if states is not None else 0}]."


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
        yield from others_told(turn, change_of_verb(reading.verb, turn.request.question), turn.request.names.users)
        yield "Name the job or the nodes, each by itself; to stop every change at once there is the kill switch."
        return
    yield f"The nearest: {nearest_for(reading.object_kind)}{_examples(turn)}."
    for stranger in turn.request.names.strangers:
        yield f"(Left out: {stranger}.)"


def change_of_verb(verb: str, sentence: str) -> str:
    """Return the change that a verb stands for where it governs all of something, by the kind of thing that is named."""
    of_nodes = re.search(r"\b(?:nodes?|machines?|hosts?|servers?)\b", sentence, re.IGNORECASE) is not None
    families = [name for name, (names, objects, _) in verbs().change.items() if verb in names]
    fitting = [name for name in families if ("node" in verbs().change[name][1]) == of_nodes]
    return next(iter([*fitting, *families]), "")


def others_told(turn: QuestionTurn, change: str, users: Sequence[str] = (), spared: Names | None = None) -> Iterator[str]:
    """Tell which things an order for all of them would be about, so that they can be named.

    Args:
        turn: Of the order.
        change: Its intent; empty where it is not known.
        users: Whose jobs are meant; all where none is named.
        spared: What is left out.
    """
    inventory, spared = turn.inventory, spared or Names()
    jobs = [job for job in inventory.jobs if job not in spared.jobs and (not users or inventory.owners.get(job) in users)]
    if change == "cancel":
        alive = [job for job in jobs if inventory.states.get(job) in ("running", "pending")]
        rows = ", ".join(f"{job} ({one_line(inventory.jobs[job], 30)}, {inventory.states[job]})" for job in alive[-MOST_OTHERS:])
        yield f"It would be {rows}; say for instance: cancel {alive[-1]}" if alive else "No such job runs or waits."
    elif change == "recover":
        failed = [job for job in inventory.failed if job in jobs][:MOST_OTHERS]
        yield (
            f"Failed, the newest first: {', '.join(failed)}; say for instance: restart {failed[0]}"
            if failed
            else "No such job failed."
        )
    elif change in ("cordon", "uncordon"):
        states = turn.look("node_states")
        out = [node for node in states.value or () if node["state"] in OUT and node["node"] not in spared.nodes]
        serving = [node for node in states.value or () if node["state"] not in OUT and node["node"] not in spared.nodes]
        if states.error:
            yield f"Which nodes those are is not known now: {states.error} [{states.number}]"
        elif change == "cordon":
            busy = [node["node"] for node in serving if node["jobs"]]
            at_work = sorted({job for node in serving for job in node["jobs"]})
            load = f", of which {fold(busy)} run {', '.join(f'job {job}' for job in at_work)}" if busy else ""
            yield f"It would be {len(serving)} nodes, {fold([node['node'] for node in serving])}{load} [{states.number}]."
        else:
            for node in out[:MOST_OTHERS]:
                why = one_line(node.get("reason") or "no reason is given", 160)
                yield f"  {node['node']} is {node['state']}: {why} [{states.number}]"


def spared_told(turn: QuestionTurn, spared: Names) -> Iterator[str]:
    """Tell what an order left out, and what waits about it."""
    request = replace(turn.request, names=spared, job="", nodes=(), incident=None)
    about = replace_turn(turn, request)
    object_text = _object_text(about)
    if not object_text:
        return
    yield f"Left as it is, as you say: {object_text}; nothing is proposed for it."
    waiting = turn.look("list_approvals")
    if not waiting.error and (rows := _about(about, waiting)):
        yield from _waiting(rows, object_text, f"[{waiting.number}]")


def replace_turn(turn: QuestionTurn, request: QuestionRequest) -> QuestionTurn:
    """Return a turn about another request, with the sources of this one."""
    return QuestionTurn(turn.gate, turn.inventory, request, turn.now, turn.trusted, sources=turn.sources)


def all_but_told(turn: QuestionTurn, change: str, spared: Names) -> Iterator[str]:
    """Ask which things are meant by an order for everything but some; nothing is proposed for them."""
    turn.kind = AnswerKind.ASKS_BACK
    users = turn.request.names.users
    yield f'Nothing is proposed yet: {ONE_AT_A_TIME}, and "{one_line(turn.request.question, 120)}" names only what is left out.'
    yield from spared_told(turn, spared)
    yield from others_told(turn, change, users, spared)
    if change == "cancel":
        yield "To stop every change of Nightshift itself there is the kill switch: /stop"


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
    """Return the refusal of an order for later or on a condition; empty where it is meant for now, or its condition holds now."""
    request = turn.request
    own = job_condition(request.question) if request.intent in ("cancel", "recover") and request.job else None
    question, names = request.question, request.names
    if own is not None:
        status = turn.look("show_job", job=request.job)
        if status.error:
            turn.kind = AnswerKind.UNKNOWN
            return f'Not proposed: whether "{one_line(own.text, 80)}" holds is not known: {status.error} [{status.number}]'
        if not own.holds(status.value["state"]):
            turn.kind = AnswerKind.REFUSED
            state = status.value["state"]
            return f'Not proposed: job {request.job} is {state} [{status.number}], so "{one_line(own.text, 80)}" speaks against it.'
        question = question.replace(own.text, " ")
        names = replace(names, sketch=_without_condition(names.sketch, own.word))
        turn.request = replace(request, names=names)
    condition = condition_of(question, names, ends=request.intent == "cordon")
    if not condition:
        return ""
    turn.kind = AnswerKind.REFUSED
    condition_text = one_line(condition, 80)
    return f'Not proposed: Nightshift keeps no order for later, so "{condition_text}" cannot be passed on. Say it when it is due.'


def _without_condition(sketch: str, word: str) -> str:
    return re.sub(rf",? ?(?:but )?(?:only )?\b{re.escape(word)}\b[^,;.!?]*", " ", sketch, count=1, flags=re.IGNORECASE)


def until_told(turn: QuestionTurn) -> str:
    """Return how the end of a cordon is taken that is named by a time; the cordon gets that end."""
    request = turn.request
    if request.intent != "cordon":
        return ""
    end = asked_end(request.question, turn.now)
    if end is not None:
        hours = round((end.at - turn.now).total_seconds() / 3600, 4)
        turn.request = replace(request, names=replace(request.names, hours=hours))
        return f'("{one_line(end.text, 80)}" is taken as {end.at:%Y-%m-%d %H:%M} UTC.)'
    condition = condition_of(request.question, request.names)
    if not condition.startswith(("until", "till", "til ")):
        return ""
    condition_text = one_line(condition, 80)
    return f'("{condition_text}" cannot be passed on: a cordon takes hours, as in "for 12 hours"; else it runs as long as usual.)'


_CHANGED_BY = {"cancel": "cancel_job", "recover": "resubmit_job", "cordon": "cordon_node", "uncordon": "uncordon_node"}


_POINTS_TO_IT = re.compile(
    r"\b(?:the|that|this|your|its) (?:\w+ )?(?:re-?start|re-?submi\w+|re-?run|re-?launch|recovery|cancel\w*|drain\w*|cordon\w*"
    r"|undrain\w*|change|proposal|request)|\b(?:waiting|proposed|suggested|planned|pending)\b",
    re.IGNORECASE,
)
"""Words that point to what waits; a bare verb does not say which thing is meant."""


def with_waiting_object(request: QuestionRequest, gate: Gate) -> QuestionRequest:
    """Return an order with the job or the node of the one change of its kind that waits already, where it points to that."""
    tool = _CHANGED_BY.get(request.intent, "")
    if not tool or request.job or request.nodes or request.names.strangers or not _POINTS_TO_IT.search(request.question):
        return request
    rows = [row for row in gate.call("list_approvals", {}, why="what it may mean", by=BY).value or () if row["tool"] == tool]
    if len(rows) != 1:
        return request
    arguments = rows[0]["arguments"]
    return replace(request, job=str(arguments.get("job", "")), nodes=tuple(filter(None, [str(arguments.get("node", ""))])))
