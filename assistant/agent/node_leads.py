"""First sentences about nodes: whether one is well, how many are free or out, until when one is held; and how sources are read.

Only what the answer looked up already is used; a state that the scheduler does not know is never a no.
"""

from __future__ import annotations

import re

from assistant.agent.answer import AnswerSource, count_text, one_line, time_text
from assistant.agent.dialogue import QuestionTurn
from assistant.agent.tell_incidents import lease_end
from assistant.nodeset import fold
from assistant.records import NodeState

MOST_NAMED = 24
_COUNTED = (
    (
        r"\b(?:un(?:usable|available|healthy|reachable|schedulable)|not? (?:\w+ )?(?:usable|available|ok|okay|working"
        r"|up|healthy|in service|fine"
        r"|ready|reachable)|unable|(?:can(?:not| not|'t)|could not) (?:\w+ )?(?:use|be used|get)|out of (?:service"
        r"|order|action)|out|missing|lost"
        r"|offline|broken|bad|sick|dead|faulty|excluded)\b",
        {"draining", "drained", "down"},
        "out of service",
    ),
    (r"\b(?:down|not responding)\b", {"down"}, "down"),
    (r"\b(?:drained|draining|cordoned|drain)\b", {"drained", "draining"}, "drained"),
    (
        r"\b(?:idle|free|spare|available|left|unused|empty|unoccupied|usable|(?:can|could|may) (?:i|we|you|he|she"
        r"|they) (?:still |now )?(?:get|use|have"
        r"|grab|take|book|run|start)|to (?:use|run))\b",
        {"idle"},
        "free (idle)",
    ),
    (r"\b(?:allocated|busy|used|in use|occupied|taken|working|computing|running)\b", {"allocated"}, "in use (allocated)"),
    (r"\b(?:ok|okay|healthy|fine|up|in service|good|alive)\b", {"idle", "allocated"}, "in service"),
)
"""What is counted by the words of a question, the first that fits: `not usable` before `usable`."""
OUT = {NodeState.DRAINING.value, NodeState.DRAINED.value, NodeState.DOWN.value}


def source_of(turn: QuestionTurn, tool: str) -> AnswerSource | None:
    """Return the source of an answer that a tool gave; None where it gave none."""
    return next((source for source in turn.sources if source.tool == tool and not source.error), None)


def says(text: str, words: str) -> bool:
    """Tell whether a text holds one of some words."""
    return re.search(rf"\b(?:{words})\b", text) is not None


GOOD = "ok|okay|fine|healthy|well|good|alright|up|available|usable|in service|back|schedulable|ready|alive|sound"
BAD = "down|out|drained|draining|cordoned|broken|bad|sick|dead|unavailable|offline|faulty|unhealthy|wrong|excluded|missing"
STUCK = "stuck|hung|hang|hanging|hangs|frozen|stalled|deadlocked|moving|progressing|advancing|alive|making progress|going on"
MOVES = "moving|progressing|advancing|alive|making progress|going on"


def upper(text: str) -> str:
    """Return a text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


_MAY_USE = re.compile(
    r"\b(?:can|could|may|might|shall|should|is it (?:safe|ok|fine|possible) to|(?:safe|ok|free|good) to|able to"
    r"|allowed to) (?:i |we |it |one |you |they |be |anybody |a job )*"
    r"(?:still |again |already |now |safely |really |be )*(?:re-?use[d]?|use[d]?|get|have|take|run (?:\w+ )?on"
    r"|submit (?:\w+ )?(?:on|to)"
    r"|schedule|book|rely on|trust)\b"
)


def node_yes_no(turn: QuestionTurn, text: str) -> str:
    """Return whether a node is as the question has it."""
    source = source_of(turn, "node_states")
    if source is None or len(source.value) != 1:
        return ""
    node, mark = source.value[0], f"[{source.number}]"
    name, state = node["node"], node["state"]
    why = f", {one_line(node['reason'], 120)}" if node["reason"] else ""
    if state == NodeState.UNKNOWN.value:
        return f"Not known: the scheduler does not know the state of {name} {mark}."
    if _MAY_USE.search(text):
        if state in OUT:
            return f"No: {name} is {state}{why} {mark}."
        if node["jobs"]:
            return f"Not now: job {', '.join(node['jobs'])} runs on {name}, it is {state} {mark}."
        return f"Yes, as far as the scheduler tells: {name} is {state} and free {mark}; its health probes were not run for this."
    if says(text, "busy|used|use|running|occupied|allocated"):
        return f"{'Yes' if node['jobs'] else 'No'}: {', '.join(node['jobs']) or 'no job'} on {name}, it is {state} {mark}."
    if says(text, "idle|free|empty"):
        return f"{'Yes' if state == 'idle' else 'No'}: {name} is {state}{why} {mark}."
    wants_bad = says(text, BAD) and not says(text, GOOD)
    is_out = state in OUT
    if not wants_bad and not says(text, GOOD):
        return ""
    if is_out:
        return f"{'Yes' if wants_bad else 'No'}: {name} is {state}{why} {mark}."
    word = "No" if wants_bad else "Yes"
    return f"{word}, as far as the scheduler tells: {name} is {state} {mark}; its health probes were not run for this."


def health_yes_no(turn: QuestionTurn, text: str) -> str:
    """Return whether a node is well, by its probes."""
    source = source_of(turn, "check_nodes")
    if source is None or len(source.value["nodes"]) != 1:
        return ""
    node, health = next(iter(source.value["nodes"].items()))
    mark, status, states = f"[{source.number}]", health["status"], source_of(turn, "node_states")
    silent = [row for row in health.get("probes", ()) if row.get("status") == "unknown"]
    if states is not None and len(states.value) == 1 and states.value[0]["state"] in OUT and (words := node_yes_no(turn, text)):
        return words
    if status == "unknown" or (silent and status == "ok"):
        return f"Not known: {count_text(len(silent), 'probe')} of {node} gave no answer {mark}."
    wants_bad = says(text, f"{BAD}|error|errors|problem|problems|issue|issues|xid|xids|ecc|hot") and not says(text, GOOD)
    if status == "ok":
        return f"{'No' if wants_bad else 'Yes'}, as far as its read-only probes see: {node} {mark}."
    return f"{'Yes' if wants_bad else 'No'}: the probes of {node} say {status} {mark}."


def nodes_yes_no(turn: QuestionTurn, text: str) -> str:
    """Return whether nodes are out, or free."""
    source = source_of(turn, "node_states")
    if source is None:
        return ""
    nodes, mark = source.value, f"[{source.number}]"
    out = [node["node"] for node in nodes if node["state"] in OUT]
    strange = [node["node"] for node in nodes if node["state"] == NodeState.UNKNOWN.value]
    if says(text, "idle|free|spare|capacity|available") and not says(text, "all|every|un\\w+"):
        idle = [node["node"] for node in nodes if node["state"] == "idle"]
        return f"{'Yes' if idle else 'No'}: {len(idle)} of {len(nodes)} nodes are idle {mark}."
    wants_bad = not says(text, GOOD) or says(text, BAD)
    if out or not strange:
        word = ("Yes" if out else "No") if wants_bad else ("No" if out else "Yes")
        names = f" ({fold(out)})" if out else ""
        return f"{word}: {len(out)} of {len(nodes)} nodes {'is' if len(out) == 1 else 'are'} out of service{names} {mark}."
    return f"Not known: the scheduler does not know the state of {fold(strange)} {mark}."


def nodes_how_many(turn: QuestionTurn, text: str) -> str:
    """Return how many nodes are as the question has them, and which."""
    source = source_of(turn, "node_states")
    if source is None or says(text, "gpus?|cards?"):
        return ""
    nodes, mark = source.value, f"[{source.number}]"
    for words, state_asked, phrase in _COUNTED:
        if not re.search(words, text):
            continue
        fitting = [node["node"] for node in nodes if node["state"] in state_asked]
        names = f": {fold(fitting)}" if fitting and len(fitting) <= MOST_NAMED else ""
        verb = "is" if len(fitting) == 1 else "are"
        return f"{len(fitting)} of {len(nodes)} nodes {verb} {phrase} {mark}{names}."
    return f"{len(nodes)} nodes {mark}."


def node_person(turn: QuestionTurn, text: str) -> str:
    """Return who took nodes out, or whose job runs on one."""
    source = source_of(turn, "node_states")
    if source is None or len(source.value) != 1 or not source.value[0]["jobs"]:
        return ""
    node, mark = source.value[0], f"[{source.number}]"
    owners = dict.fromkeys(turn.inventory.owners.get(job, "") for job in node["jobs"])
    jobs = ", ".join(node["jobs"])
    return f"{', '.join(filter(None, owners)) or 'Not known'}: job {jobs} runs on {node['node']} {mark}."


def node_when(turn: QuestionTurn, text: str) -> str:
    """Return since when a node is out, or until when Nightshift holds it."""
    source, leases = source_of(turn, "node_states"), source_of(turn, "cordon_leases")
    if source is None or len(source.value) != 1:
        return ""
    node, mark = source.value[0], f"[{source.number}]"
    lease = next((row for row in (leases.value or {}).get("leases", ()) if row["node"] == node["node"]), None) if leases else None
    if (end := lease_end(node, lease, turn.now)) and says(text, "until|till|back|return|end|ends|expire|expires|long"):
        return f"{upper(end)}: so long Nightshift holds {node['node']} [{(leases or source).number}]."
    if node["state"] in OUT:
        stamp = re.search(r"@(\d{4}-\d\d-\d\dT[\d:]{5,8})", str(node["reason"]))
        if stamp:
            return f"{upper(time_text(stamp[1] + '+00:00', turn.now))}: since then {node['node']} is {node['state']} {mark}."
        return f"Not known since when: {node['node']} is {node['state']} {mark}, and the scheduler notes no time."
    return f"It is not out of service: {node['node']} is {node['state']} {mark}."
