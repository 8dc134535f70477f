"""Answers about changes: what would be done, and proposals. Words never make a change: the gate asks a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from assistant.agent.answer import Kind, Proposal, Source
from assistant.agent.phrasing import once
from assistant.agent.tell_jobs import failed
from assistant.agent.turn import Turn
from assistant.agent.wording import exact, one_line
from assistant.display import shell_words
from assistant.errors import NightshiftError
from assistant.policy import Mode
from assistant.records import Action, Risk, Verdict
from assistant.tooling import find_tool

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
        tool = find_tool(step["tool"])
        if tool.risk is Risk.READ:
            yield f"  {number}. {tool.name}: {one_line(step['why'] or tool.doc, 200)}"
            continue
        policy = f" [policy: {step['verdict']}, {step['rule']}]" if step.get("rule") else ""
        yield f"  {number}. {one_line(step.get('preview') or tool.doc.rstrip('.'), 200)}{policy}"
        if step["why"]:
            yield f"     why: {one_line(step['why'], 160)}"
    if told["advice"]:
        yield f"Advice: {once(one_line(told['advice'], 420))}"
    yield f"Nothing was done. To do it: nightshift recover {job}"


def recover(turn: Turn) -> Iterator[str]:
    """Begin the recovery of a job, as far as its playbook goes without a person; what it would change next waits for a yes."""
    job = turn.asked.job
    shown = turn.look("show_job", job=job)
    if shown.error:
        yield failed(turn, shown)
        return
    if shown.value["state"] in ("running", "pending", "completed"):
        yield f"Job {job} is {shown.value['state']} [{shown.number}]: there is nothing to bring back."
        return
    recovery = turn.recovery if isinstance(turn, RecoveringTurn) else None
    standing = recovery.standing(job) if recovery is not None else None
    if standing is not None and standing.state == "recovered":
        turn.incidents.append(standing.incident)
        yield f"Incident {standing.incident} brought job {job} back already: {one_line(standing.note, 200)} [{shown.number}]."
        yield f"To do it once more: nightshift recover {job} --again"
        return
    if standing is not None and standing.waiting and _may_be_offered(turn, standing.waiting[0].tool):
        yield from _waits(turn, standing, f"Job {job} is being brought back already")
        return
    found = turn.look("plan_recovery", job=job)
    if found.error:
        yield failed(turn, found)
        return
    yield f"Job {job}: {found.value['reason']} [{found.number}]. {one_line(found.value['summary'], 240)}"
    if found.value["action"] == Action.FIX_AND_RESUBMIT.value:
        turn.kind = Kind.REFUSED
        yield f"A restart would fail again: a person must change something first. {one_line(found.value['advice'], 300)}"
        return
    yield from _begun(turn, recovery, standing, found)


def _begun(turn: Turn, recovery: Recovery | None, standing: Begun | None, found: Source) -> Iterator[str]:
    job, plan, by_hand = turn.asked.job, found.value, f"nightshift recover {turn.asked.job}"
    change = next((step for step in plan["steps"] if find_tool(step["tool"]).risk is not Risk.READ), None)
    if change is None:
        turn.kind = Kind.REFUSED
        because = f" ({one_line(plan['note'], 300)})" if not plan["steps"] else ""
        yield f"Its playbook, {plan['playbook'] or 'none'}, changes nothing{because} [{found.number}]. By hand: {by_hand} --dry-run"
        return
    refused = change.get("verdict") == Verdict.DENY.value
    if refused or not _may_be_offered(turn, change["tool"]):
        turn.kind = Kind.REFUSED
        would = one_line(change.get("preview") or change["tool"], 200)
        why = f"the policy, in mode {turn.gate.policy.mode}, refuses it ({change.get('rule') or 'mode.observe'})"
        if not turn.trusted:
            why = "nothing is proposed because of piped text, which anybody may have written"
        yield f"Not proposed: {why}. The next step would be: {would} [{found.number}]. You can begin it yourself: {by_hand}"
        return
    # in mode act the watch takes up whatever is open, and words alone must not set it going
    if recovery is None or (standing is None and turn.gate.policy.mode_of(find_tool(change["tool"]).kind) is Mode.ACT):
        yield from _single(turn, plan, by_hand)
        return
    try:
        begun = recovery.begin(job)
    except NightshiftError as error:
        turn.kind = Kind.UNKNOWN
        yield f"The recovery could not be begun: {one_line(error, 300)}"
        return
    yield from _waits(turn, begun, f"The recovery of job {job} has begun")
    after = [one for one in plan["steps"] if find_tool(one["tool"]).risk is not Risk.READ and one["tool"] != _tool_of(begun)]
    if begun.waiting and after:
        told = [one_line(one.get("preview") or find_tool(one["tool"]).doc.rstrip("."), 160) for one in after]
        yield f"What may follow is asked about as well: {'; '.join(told)}."


def _may_be_offered(turn: Turn, tool: str) -> bool:
    return turn.trusted and turn.gate.policy.mode_of(find_tool(tool).kind) is not Mode.OBSERVE


def _tool_of(begun: Begun) -> str:
    return begun.waiting[0].tool if begun.waiting else ""


def _waits(turn: Turn, begun: Begun, what: str) -> Iterator[str]:
    """Tell where a recovery stands, and which change of it waits."""
    turn.incidents.append(begun.incident)
    if not begun.waiting:
        turn.kind = Kind.REFUSED if begun.state == "escalated" else turn.kind
        yield f"{what}: incident {begun.incident} is {begun.state}. {one_line(begun.note, 300)}"
        yield f"Nothing waits for you. The report: nightshift explain {begun.incident}"
        return
    turn.kind = Kind.PROPOSAL
    yield f"{what}; this waits for a yes or no, and nothing is changed before that (incident {begun.incident}):"
    for one in begun.waiting:
        change = exact(one.change)
        turn.proposals.append(Proposal(one.tool, {}, one.change, one.approval, digest=one.digest))
        undo = "can be taken back with nightshift undo" if one.undo else "cannot be taken back"
        yield f"  {change}\n     why: {one_line(one.why, 200)}; {undo}"
        yield f"     {_answers(one.approval, one.digest)}"


def _single(turn: Turn, plan: Mapping[str, Any], by_hand: str) -> Iterator[str]:
    """Propose to submit the job again, and nothing of the rest of the playbook."""
    blamed = [node for node in plan["nodes_to_blame"] if node in turn.known.nodes]
    arguments: dict[str, Any] = {"job": turn.asked.job, "checkpoint": "last_healthy"}
    if blamed:
        # they are named by a rule or a test, not by what somebody wrote into a log
        arguments |= {"exclude": blamed, "blamed": blamed}
    why = f"asked for: job {turn.asked.job} failed of {plan['reason']}"
    # of no incident: an approval then makes this very call, and not the next step of a playbook
    yield _proposal(turn.propose("resubmit_job", arguments, why=why, instead=by_hand))
    yield f"The whole playbook, with its tests and checks: {by_hand}"


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
        yield f"{one_line(node['node'], 80)} is {node['state']}{jobs} [{listed.number}]."
        by_hand = instead.format(node=shell_words([node["node"]]))
        yield _proposal(turn.propose(tool, {"node": node["node"], **more}, why="asked for by an operator", instead=by_hand))


def _proposal(made: Proposal) -> str:
    if made.approval is not None:
        return f"Proposed, not done: {exact(made.preview)}\n  {_answers(made.approval, made.digest)}"
    if made.why_not:
        would = f" It would be: {one_line(made.preview, 2_000)}" if made.preview else ""
        return f"Not even proposed: {made.why_not}{would}"
    return f"Done, after a person said yes: {exact(made.preview)}"


def _answers(approval: int, digest: str) -> str:
    """Return how a person answers, and the digest of the commands that they answer to."""
    return f"nightshift approve {approval}, or nightshift deny {approval}" + (f"; digest {digest}" if digest else "")


# How words begin a recovery: the playbook is worked up to its next change, and that change waits for a person.


@dataclass(frozen=True, slots=True)
class Waiting:
    """A change of a playbook that waits for a yes or no."""

    approval: int
    tool: str
    change: str
    """The exact command."""
    why: str
    undo: bool
    """Whether it can be taken back."""
    digest: str
    """Digest of the command, as far as people are shown it."""


@dataclass(frozen=True, slots=True)
class Begun:
    """Where an incident stands after its playbook was worked as far as it goes without a person."""

    incident: int
    state: str
    note: str
    waiting: tuple[Waiting, ...]


class Recovery(Protocol):
    """Works the playbook of a job; every change in it is asked about."""

    def standing(self, job: str) -> Begun | None:
        """Return where the newest incident of a job stands; None where there is none."""
        ...

    def begin(self, job: str) -> Begun:
        """Go on with the incident of a job, opened where none is open, until a change waits for a person or it ends."""
        ...


@dataclass
class RecoveringTurn(Turn):
    """A turn in which a recovery may be begun."""

    recovery: Recovery | None = None
    """None where only single changes can be proposed."""
