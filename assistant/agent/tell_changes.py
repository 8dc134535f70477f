"""Answers about changes: what would be done, and proposals. Words never make a change: the gate asks a person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from assistant.agent.answer import Kind, Proposal
from assistant.agent.tell_jobs import failed
from assistant.agent.turn import Turn
from assistant.agent.wording import one_line
from assistant.records import Action

MOST_NODES = 8
"""Proposed at once; the limits of the policy count on top."""


def plan(turn: Turn) -> Iterator[str]:
    """Tell what would be done about a job."""
    job = turn.asked.job
    if not job and turn.asked.incident is not None:
        job = turn.known.incidents.get(turn.asked.incident, "")
        if not job:
            shown = turn.look("show_incident", incident=turn.asked.incident)
            yield f"Incident {turn.asked.incident} is about no job [{shown.number}], so there is no job to bring back."
            advice = ((shown.value or {}).get("diagnosis") or {}).get("advice")
            if advice:
                yield f"Advice [{shown.number}]: {one_line(advice, 300)}"
            return
    found = turn.look("plan_recovery", job=job)
    if found.error:
        yield failed(turn, found)
        return
    told, mark = found.value, f"[{found.number}]"
    yield f"Job {job}: {told['reason']} {mark}. {one_line(told['summary'], 300)}"
    yield f"Playbook: {told['playbook'] or 'none'}; {one_line(told['note'], 300)} {mark}."
    for number, step in enumerate(told["steps"], 1):
        what = step.get("preview") or step["tool"]
        policy = f" [policy: {step['verdict']}, {step['rule']}]" if step.get("rule") else ""
        yield f"  {number}. {one_line(what, 200)}{policy}" + (f"\n     {one_line(step['why'], 160)}" if step["why"] else "")
    if told["advice"]:
        yield f"Advice: {one_line(told['advice'], 300)}"
    yield f"Nothing was done. To do it: nightshift recover {job}"


def recover(turn: Turn) -> Iterator[str]:
    """Propose to submit a job again, as its diagnosis asks."""
    job = turn.asked.job
    shown = turn.look("show_job", job=job)
    if shown.error:
        yield failed(turn, shown)
        return
    if shown.value["state"] in ("running", "pending"):
        yield f"Job {job} is {shown.value['state']} [{shown.number}]: there is nothing to bring back."
        return
    found = turn.look("explain_job", job=job)
    if found.error:
        yield failed(turn, found)
        return
    told, mark = found.value, f"[{found.number}]"
    yield f"Job {job}: {told['reason']} {mark}. {one_line(told['summary'], 240)}"
    if told["action"] == Action.FIX_AND_RESUBMIT.value:
        turn.kind = Kind.REFUSED
        yield f"A restart would fail again: a person must change something first. {one_line(told['advice'], 300)} {mark}"
        return
    blamed = [one["node"] for one in told["nodes"] if one["node"] in turn.known.nodes]
    arguments: dict[str, Any] = {"job": job, "checkpoint": "last_healthy"}
    if blamed:
        # they are named by a rule or a test, not by what somebody wrote into a log
        arguments |= {"exclude": blamed, "blamed": blamed}
    why = f"asked for: job {job} failed of {told['reason']}"
    made = turn.propose("resubmit_job", arguments, why=why, incident=told.get("incident"), instead=f"nightshift recover {job}")
    yield _proposal(made)
    yield f"The whole playbook, with its tests and checks: nightshift recover {job}"


def cordon(turn: Turn) -> Iterator[str]:
    """Propose to take nodes out."""
    yield from _each_node(turn, "cordon_node", "nightshift nodes cordon {node} --why ...", {"reason": "asked for by an operator"})


def uncordon(turn: Turn) -> Iterator[str]:
    """Propose to put nodes back."""
    yield from _each_node(turn, "uncordon_node", "nightshift nodes uncordon {node}", {})


def cancel(turn: Turn) -> Iterator[str]:
    """Propose to end a job."""
    job = turn.asked.job
    shown = turn.look("show_job", job=job)
    if shown.error:
        yield failed(turn, shown)
        return
    if shown.value["state"] not in ("running", "pending"):
        yield f"Job {job} is {shown.value['state']} already [{shown.number}]: there is nothing to cancel."
        return
    name = f"{one_line(shown.value['name'], 60)} of {shown.value['user']}, {shown.value['state']}"
    yield f"Job {job} is {name} [{shown.number}]."
    yield _proposal(turn.propose("cancel_job", {"job": job}, why="asked for by an operator", instead=f"scancel {job}"))


def approve(turn: Turn) -> Iterator[str]:
    """Say that approval is given elsewhere."""
    turn.kind = Kind.REFUSED
    waiting = turn.look("list_approvals")
    yield "A yes or no is not given in words here, so that no text can give it. Use the command, or the buttons of the chat:"
    if not waiting.value:
        yield f"Nothing waits for an answer now [{waiting.number}]."
    for one in (waiting.value or ())[:8]:
        yield f"  nightshift approve {one['approval']}    {one_line(one['change'], 160)} [{waiting.number}]"


def _each_node(turn: Turn, tool: str, instead: str, more: dict[str, Any]) -> Iterator[str]:
    nodes = turn.asked.nodes
    if len(nodes) > MOST_NODES:
        turn.kind = Kind.REFUSED
        by_hand = instead.format(node="NODES")
        yield f"{len(nodes)} nodes at once are more than the {MOST_NODES} that a sentence may propose; use the command: {by_hand}"
        return
    listed = turn.look("node_states", nodes=list(nodes))
    for node in listed.value or ():
        jobs = f", running job {', '.join(node['jobs'])}" if node["jobs"] else ""
        yield f"Node {node['node']} is {node['state']}{jobs} [{listed.number}]."
        by_hand = instead.format(node=node["node"])
        yield _proposal(turn.propose(tool, {"node": node["node"], **more}, why="asked for by an operator", instead=by_hand))


def _proposal(made: Proposal) -> str:
    if made.approval is not None:
        return f"Proposed, not done: {made.preview}\n  nightshift approve {made.approval}, or nightshift deny {made.approval}"
    if made.why_not:
        would = f" It would be: {made.preview}" if made.preview else ""
        return f"Not even proposed: {made.why_not}{would}"
    return f"Done, after a person said yes: {made.preview}"
