"""What is asked about a node: since when it is out, how sure its blame is, whether it is broken, how its drain is undone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial

from assistant.agent.answer import one_line, time_text
from assistant.agent.dialogue import QuestionTurn
from assistant.agent.evidence_times import own_lines
from assistant.agent.outright.approvals import _SINCE as SINCE
from assistant.agent.outright.events import SLURM_TIME
from assistant.agent.outright.sentence import OutrightReading, OutrightSentence, Row, blame_text, blaming_incidents, node_row
from assistant.agent.tell_aspects import devices_of, title
from assistant.agent.tell_changes import OUT
from assistant.agent.tell_counsel import hand_of

WEEK_H = 168.0
_UNTIL = re.compile(r"\buntil=(\S+?)Z?(?=\s|$)")
_SURE = re.compile(
    r"\bhow (?:sure|certain|confident|convinced)\b|\b(?:are|is) you (?:\w+ )?(?:sure|certain|confident)\b"
    r"|\bhow do you know\b|\bwhat makes you (?:think|so sure)\b"
)
_BROKEN = re.compile(
    r"\b(?:is|are|was) (?:\w+ )?(?:(?:the|that|this|its|a) )?(?:gpu|card|node|hardware|machine|accelerator"
    r"|\{nd\})(?: of \{nd\}| on \{nd\}| really| now| then| actually)*"
    r" (?:dead|broken|broke|faulty|fried|defective|gone|toast|dying|bad|damaged|kaput|done for)\b"
)
_UNDO = re.compile(
    r"\b(?:how|what|(?:can|could|may) (?:i|we))\b.*\b(?:undo|un-?do|revert|reverse|roll (?:it |that )?back|take (?:it |that )?back"
    r"|get (?:it|that) back|undrain|uncordon|put (?:it|that) back)\b"
)
_BY_YOU = re.compile(
    r"^(?:or )?(?:was (?:it|that|this) you(?:r doing)?|were you (?:it|that)|did you do (?:it|that|this)|is"
    r" (?:it|that|this) you(?:r doing|r fault)?"
    r"|was (?:it|that) your (?:doing|fault)|have you done (?:it|that|this))$"
)
_PARTS = (
    r"(?:nic|network card|network adapter|psu|power supply|power|fan|disk|ssd|drive|cable|switch|port"
    r"|memory|ram|dimm|motherboard|mainboard|cpu|kernel|driver|bios|firmware|cooling|bmc)"
)
_COMPONENT = re.compile(
    r"\b(?:is|was|be|are|it) (?:it |that |this |just |maybe |perhaps |really )*(?:the |a |an |its |because"
    rf" of the )?(?P<part>{_PARTS})\b"
)
_HOW_LONG = re.compile(r"\b(?:since when|how long|when did|since what time)\b")
_ABSENT = r"\b(?:out|down|drained|gone|away|offline|cordoned|unavailable|dead|missing|failed|lost|off|broken|idle)\b"


def read_node(sentence: OutrightSentence) -> OutrightReading | None:
    """Read a question about a node, or about nodes of the last list."""
    if sentence.names.jobs or sentence.names.incidents or sentence.names.strangers:
        return None
    named_nodes = tuple(sentence.names.nodes)
    spoken = named_nodes or (tuple(sentence.dialogue.nodes) if sentence.dialogue.subject == "node" else ())
    node = named_nodes[0] if named_nodes else sentence.node
    of_list = sentence.dialogue.intent == "bad_nodes" and not sentence.dialogue.topic
    if not named_nodes and (SINCE.match(sentence.bare) or sentence.bare == "when"):
        listed = sentence.dialogue.listed if sentence.dialogue.listed_kind == "node" and of_list else ()
        nodes = tuple(listed) or spoken
        if nodes and (of_list or sentence.dialogue.subject == "node"):
            return OutrightReading(
                partial(since_told, nodes=nodes),
                "bad_nodes" if of_list else "node_state",
                nodes=nodes[:1] if not of_list else (),
                topic="node",
            )
    if named_nodes and sentence.says(_HOW_LONG) and sentence.says(_ABSENT) and len(named_nodes) <= 4:
        return OutrightReading(partial(since_told, nodes=named_nodes), "node_state", nodes=named_nodes)
    if not node:
        return None
    reading = partial(OutrightReading, intent="node_state", nodes=(node,))
    if named_nodes and sentence.says(_SURE):
        return reading(partial(certainty_told, node=node))
    if sentence.says(_BROKEN) and len(named_nodes) < 2:
        return reading(partial(broken_told, node=node))
    if sentence.says(_UNDO) and (named_nodes or sentence.says(r"\b(?:that|it|this|the (?:drain|cordon))\b")):
        return reading(partial(undo_told, node=node))
    if _BY_YOU.match(sentence.bare):
        return reading(partial(by_you_told, node=node))
    if (match := _COMPONENT.search(sentence.text)) is not None and not sentence.says(r"\bwhy\b|\bwhat is\b"):
        return reading(partial(component_told, node=node, part=match["part"]))
    return None


def read_gpu_of_job(sentence: OutrightSentence) -> OutrightReading | None:
    """Read `is the gpu dead` where a job was spoken of: the node that is blamed for it is meant."""
    if (
        sentence.names.nodes
        or not sentence.job
        or not sentence.says(_BROKEN)
        or sentence.job not in sentence.inventory.incidents.values()
    ):
        return None
    return OutrightReading(partial(broken_told, node="", job=sentence.job), "explain_job", job=sentence.job)


def since_told(turn: QuestionTurn, nodes: Sequence[str]) -> Iterator[str]:
    """Tell since when nodes are out: by the scheduler's mark, or by the change that took them out."""
    listed, changes = turn.look("node_states", nodes=list(nodes)), turn.look("recent_changes", hours=WEEK_H)
    if listed.error:
        return
    parts = [_since_text(turn, node, changes.value or ()) for node in listed.value]
    yield f"{'; '.join(parts)} [{listed.number}][{changes.number}]."
    for node in listed.value:
        if node["state"] in OUT:
            yield f"  {node['node']}  {node['state']}  {one_line(node['reason'], 160)}"


def _since_text(turn: QuestionTurn, node: Row, changes: Sequence[Row]) -> str:
    name, reason = node["node"], str(node["reason"])
    if node["state"] not in OUT:
        return f"{name} is {node['state']}, not out of service"
    if (match := SLURM_TIME.search(reason)) is not None:
        return f"{name} is {node['state']} since {time_text(f'{match[1]}+00:00', turn.now)}"
    drain = next(
        (
            row
            for row in changes
            if f"NodeName={name} " in f"{row['change']} " and "DRAIN" in row["change"] and row["status"] == "done"
        ),
        None,
    )
    if drain is not None:
        return f"{name} is {node['state']} since {time_text(drain['at'], turn.now)} (call {drain['call']}, by {drain['by']})"
    return f"{name} is {node['state']}, since when is not recorded"


def certainty_told(turn: QuestionTurn, node: str) -> Iterator[str]:
    """Tell how sure the blame of a node is, by the diagnosis that blames it."""
    rows, mark = blaming_incidents(turn, node)
    if not rows:
        row, node_mark = node_row(turn, node)
        state = f"; it is {row['state']} {node_mark}" if row is not None else ""
        yield f"Of {node} there is nothing to be sure of: no incident blames it {mark}{state}."
        return
    source = turn.look("show_incident", incident=rows[0]["incident"])
    diagnosis = (source.value or {}).get("diagnosis") or {}
    turn.incidents.append(rows[0]["incident"])
    proof = own_lines(turn, diagnosis, str(rows[0]["job"] or ""))
    lines = [f"{line['file']}:{line['line']}  {one_line(line['text'], 160)}" for line in proof[:3]]
    sure = float(diagnosis.get("confidence") or 0)
    word = "Very sure" if sure >= 0.95 else "Fairly sure" if sure >= 0.8 else "Not very sure"
    yield (
        f"{word} ({sure:.2f} of 1) that {node} is to blame for job {rows[0]['job']}: "
        f"{title(rows[0]['reason'])} [{source.number}]; {blame_text(rows)} {mark}."
    )
    yield from (f"  {line}" for line in lines)
    yield "What in it is broken is not proven by that; only a test or a repair tells. To run the health probes: check " + node


def broken_told(turn: QuestionTurn, node: str, job: str = "") -> Iterator[str]:
    """Tell whether a GPU or a node is broken, as far as incidents bear it."""
    if not node:
        incidents = turn.look("list_incidents", job=job, limit=3)
        blamed = [name for row in incidents.value or () for name in row["nodes_to_blame"]]
        if not blamed:
            first = next(iter(incidents.value or ()), None)
            if first is not None:
                yield (
                    f"Nothing recorded says so: no node is to blame for job {job} ({title(first['reason'])}) [{incidents.number}]."
                )
            return
        node = blamed[0]
    rows, mark = blaming_incidents(turn, node)
    if not rows:
        yield f"Nothing recorded says so: no incident blames {node} {mark}; its probes can tell: check {node}"
        return
    turn.about = {"nodes": (node,)}
    sources = [turn.look("show_incident", incident=row["incident"]) for row in rows[:3]]
    devices = [device for source in sources for device in devices_of((source.value or {}).get("diagnosis") or {})]
    device = f" at PCI {devices[0]}" if devices else ""
    yield (
        f"Probably, but not proven: {blame_text(rows)} {mark}, the GPU{device} of {node}; no test or repair since is recorded."
        if devices
        else f"Probably, but not proven: {node}: {blame_text(rows)} {mark}; no test or repair since is recorded."
    )
    row, node_mark = node_row(turn, node)
    if row is not None:
        yield f"{node} is {row['state']} {node_mark}. Its probes can tell more: check {node}"


def undo_told(turn: QuestionTurn, node: str) -> Iterator[str]:
    """Tell how what took a node out is taken back, and what speaks against that; nothing is ordered by the question."""
    row, node_mark = node_row(turn, node)
    if row is None:
        return
    changes = turn.look("recent_changes", hours=WEEK_H)
    undoable = next(
        (
            change
            for change in changes.value or ()
            if f"NodeName={node} " in f"{change['change']} " and change["status"] == "done" and change["undo"]
        ),
        None,
    )
    rows, mark = blaming_incidents(turn, node)
    hand, name = hand_of(str(row["reason"]))
    if undoable is not None:
        yield (
            f"With {undoable['undo']}, which takes back call {undoable['call']} ({one_line(undoable['change'], 100)}, "
            f"{time_text(undoable['at'], turn.now)}) [{changes.number}]; or order: uncordon {node}. Nothing is done by "
            "this question."
        )
    elif row["state"] not in OUT:
        yield f"There is nothing to take back: {node} is {row['state']} {node_mark}."
        return
    else:
        by = f"{name} took it out" if hand == "person" else "no change of Nightshift took it out"
        yield (
            f"{node} was not taken out by Nightshift, so nightshift undo does not help: {by}: "
            f"{one_line(row['reason'], 120)} {node_mark}. Ask there first; scontrol update NodeName={node} "
            "State=RESUME puts it back."
        )
    if rows:
        yield f"Against it: {blame_text(rows)} {mark}, and no repair is recorded."
    if (until := _UNTIL.search(str(row["reason"]))) is not None:
        yield f"It is held until {time_text(f'{until[1]}+00:00', turn.now)} {node_mark}."


def by_you_told(turn: QuestionTurn, node: str) -> Iterator[str]:
    """Tell whether Nightshift took a node out."""
    row, node_mark = node_row(turn, node)
    if row is None:
        return
    changes = turn.look("recent_changes", hours=WEEK_H)
    drains = [
        change for change in changes.value or () if f"NodeName={node} " in f"{change['change']} " and change["status"] == "done"
    ]
    hand, name = hand_of(str(row["reason"]))
    if drains or hand == "nightshift":
        at = f", {time_text(drains[0]['at'], turn.now)}, call {drains[0]['call']}" if drains else ""
        yield f"Yes: {name or 'Nightshift'} took {node} out{at} [{changes.number}]: {one_line(row['reason'], 140)} {node_mark}."
        return
    hand_text = (
        f"it was {name}"
        if hand == "person"
        else "by the scheduler's own word"
        if hand == "scheduler"
        else "who did it is not recorded"
    )
    yield (
        f"No, that was not me: no change of {node} by Nightshift is recorded in the last 7 days "
        f"[{changes.number}]; {hand_text}: {one_line(row['reason'], 140)} {node_mark}."
    )
    if hand == "scheduler":
        yield "Why is not recorded."


def component_told(turn: QuestionTurn, node: str, part: str) -> Iterator[str]:
    """Say that no record tells which part of a node failed, and what is known of it."""
    row, node_mark = node_row(turn, node)
    if row is None:
        return
    since = f": {one_line(row['reason'], 140)}" if row["reason"] else ""
    name = part.upper() if len(part) <= 4 and part not in ("fan", "disk", "port") else part
    yield f"Whether it is the {name} cannot be told: no record of {node} names that part; it is {row['state']}{since} {node_mark}."
    rows, mark = blaming_incidents(turn, node)
    yield f"{blame_text(rows)} {mark}." if rows else f"No incident is about it {mark}."


def held_until(reason: str) -> datetime | None:
    """Return until when Nightshift holds a node, by the reason on it."""
    match = _UNTIL.search(reason)
    return datetime.fromisoformat(f"{match[1]}+00:00") if match is not None else None
