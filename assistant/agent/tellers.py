"""One teller for each intent: who answers it, how it is offered when it asks back, and answers about changes and Nightshift itself.

Words never make a change: an answer says what would be done and proposes it, and the gate asks a person.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from assistant.agent import tell_approvals, tell_incidents, tell_jobs
from assistant.agent.answer import AnswerKind, AnswerSource, Proposal, command_text, one_line, without_repeats
from assistant.agent.dialogue import QuestionTurn
from assistant.agent.proposals import answered_by, joined_first
from assistant.agent.restart_wishes import restart_wish
from assistant.agent.tell_counsel import hand_of
from assistant.agent.tell_jobs import failed
from assistant.agent.tell_restarts import restart_as_asked, restart_beside, without_defaults
from assistant.agent.waiting import waiting_restart
from assistant.display import shell_words
from assistant.errors import NightshiftError
from assistant.policy import Mode
from assistant.records import Action, Risk, Verdict
from assistant.tooling import find_tool

MOST_NODES = 8
"""Proposed at once; the limits of the policy count on top."""


def plan(turn: QuestionTurn) -> Iterator[str]:
    """Tell what would be done about a job."""
    job = turn.request.job
    if not job and turn.request.incident is not None:
        job = turn.inventory.incidents.get(turn.request.incident, "")
        if not job:
            source = turn.look("show_incident", incident=turn.request.incident)
            yield f"Incident {turn.request.incident} is about no job [{source.number}], so there is no job to bring back."
            advice = ((source.value or {}).get("diagnosis") or {}).get("advice")
            if advice:
                yield f"Advice [{source.number}]: {one_line(advice, 300)}"
            return
    planned = turn.look("plan_recovery", job=job)
    if planned.error:
        yield failed(turn, planned)
        return
    recovery, mark = planned.value, f"[{planned.number}]"
    yield f"Job {job}: {one_line(recovery['summary'], 300)} {mark} ({recovery['reason']})"
    yield f"Playbook: {recovery['playbook'] or 'none'}; {one_line(recovery['note'], 300)} {mark}."
    for number, step in enumerate(recovery["steps"], 1):
        tool = find_tool(step["tool"])
        if tool.risk is Risk.READ:
            yield f"  {number}. {tool.name}: {one_line(step['why'] or tool.doc, 200)}"
            continue
        policy = f" [policy: {step['verdict']}, {step['rule']}]" if step.get("rule") else ""
        yield f"  {number}. {one_line(step.get('preview') or tool.doc.rstrip('.'), 200)}{policy}"
        if step["why"]:
            yield f"     why: {one_line(step['why'], 160)}"
    if recovery["advice"]:
        yield f"Advice: {without_repeats(one_line(recovery['advice'], 420))}"
    yield f"Nothing was done. To do it: nightshift recover {job}"


def recover(turn: QuestionTurn) -> Iterator[str]:
    """Begin the recovery of a job, as far as its playbook goes without a person; what it would change next waits for a yes."""
    job = turn.request.job
    status = turn.look("show_job", job=job)
    if status.error:
        yield failed(turn, status)
        return
    wish = without_defaults(turn, restart_wish(turn.request.names.sketch, turn.request.names))
    if (state := status.value["state"]) in ("running", "pending", "completed"):
        yield f"Job {job} is {state} [{status.number}]: there is nothing to bring back."
        return
    if state == "cancelled":
        if (waits := waiting_restart(turn, job)) is not None:
            yield from restart_beside(turn, wish, waits)
            return
        yield from restart_as_asked(turn, wish, state, None)
        return
    recovery = turn.recovery if isinstance(turn, RecoveringTurn) else None
    standing = recovery.standing(job) if recovery is not None and wish.is_plain else None
    if standing is not None and standing.state == "recovered":
        turn.incidents.append(standing.incident)
        yield f"Incident {standing.incident} brought job {job} back already: {one_line(standing.note, 200)} [{status.number}]."
        yield f"To do it once more: nightshift recover {job} --again"
        return
    if standing is not None and standing.waiting and _may_be_offered(turn, standing.waiting[0].tool):
        yield from _waits(turn, standing, f"Job {job} is being brought back already")
        return
    if (waits := waiting_restart(turn, job)) is not None:
        yield from restart_beside(turn, wish, waits)
        return
    planned = turn.look("plan_recovery", job=job)
    if planned.error:
        yield failed(turn, planned)
        return
    yield f"Job {job}: {one_line(planned.value['summary'], 240)} [{planned.number}] ({planned.value['reason']})"
    if planned.value["action"] == Action.FIX_AND_RESUBMIT.value:
        turn.kind = AnswerKind.REFUSED
        yield f"A restart would fail again: a person must change something first. {one_line(planned.value['advice'], 300)}"
        return
    if not wish.is_plain:
        yield from restart_as_asked(turn, wish, state, planned.value)
        return
    yield from _begin(turn, recovery, standing, planned)


def _begin(turn: QuestionTurn, recovery: Recovery | None, standing: RecoveryState | None, planned: AnswerSource) -> Iterator[str]:
    job, plan, by_hand = turn.request.job, planned.value, f"nightshift recover {turn.request.job}"
    change = next((step for step in plan["steps"] if find_tool(step["tool"]).risk is not Risk.READ), None)
    if change is None:
        turn.kind = AnswerKind.REFUSED
        because = f" ({one_line(plan['note'], 300)})" if not plan["steps"] else ""
        book = plan["playbook"] or "none"
        yield f"Its playbook, {book}, changes nothing{because} [{planned.number}]. By hand: {by_hand} --dry-run"
        return
    refused = change.get("verdict") == Verdict.DENY.value
    if refused or not _may_be_offered(turn, change["tool"]):
        turn.kind = AnswerKind.REFUSED
        would = one_line(change.get("preview") or change["tool"], 200)
        why = f"the policy, in mode {turn.gate.policy.mode}, refuses it ({change.get('rule') or 'mode.observe'})"
        if not turn.trusted:
            why = "nothing is proposed because of piped text, which anybody may have written"
        yield f"Not proposed: {why}. The next step would be: {would} [{planned.number}]. You can begin it yourself: {by_hand}"
        return
    # in mode act the watch takes up whatever is open, and words alone must not set it going
    if recovery is None or (standing is None and turn.gate.policy.mode_of(find_tool(change["tool"]).kind) is Mode.ACT):
        yield from _single(turn, plan, by_hand)
        return
    try:
        state = recovery.begin(job)
    except NightshiftError as error:
        turn.kind = AnswerKind.UNKNOWN
        yield f"The recovery could not be begun: {one_line(error, 300)}"
        return
    yield from _waits(turn, state, f"The recovery of job {job} has begun")
    following = [
        step for step in plan["steps"] if find_tool(step["tool"]).risk is not Risk.READ and step["tool"] != _tool_of(state)
    ]
    if state.waiting and following:
        previews = [one_line(step.get("preview") or find_tool(step["tool"]).doc.rstrip("."), 160) for step in following]
        yield f"What may follow is asked about as well: {'; '.join(previews)}."


def _may_be_offered(turn: QuestionTurn, tool: str) -> bool:
    return turn.trusted and turn.gate.policy.mode_of(find_tool(tool).kind) is not Mode.OBSERVE


def _tool_of(state: RecoveryState) -> str:
    return state.waiting[0].tool if state.waiting else ""


def _waits(turn: QuestionTurn, state: RecoveryState, heading: str) -> Iterator[str]:
    """Tell where a recovery stands, and which change of it waits."""
    turn.incidents.append(state.incident)
    if not state.waiting:
        turn.kind = AnswerKind.REFUSED if state.state == "escalated" else turn.kind
        yield f"{heading}: incident {state.incident} is {state.state}. {one_line(state.note, 300)}"
        yield f"Nothing waits for you. The report: nightshift explain {state.incident}"
        return
    turn.kind = AnswerKind.PROPOSAL
    yield f"{heading}; this waits for a yes or no, and nothing is changed before that (incident {state.incident}):"
    for pending in state.waiting:
        change = command_text(pending.change)
        turn.proposals.append(Proposal(pending.tool, {}, pending.change, pending.approval, digest=pending.digest))
        undo = "can be taken back with nightshift undo" if pending.undo else "cannot be taken back"
        yield f"  {change}\n     why: {one_line(pending.why, 200)}; {undo}"
        yield f"     {answered_by(pending.approval, pending.digest)}"


def _single(turn: QuestionTurn, plan: Mapping[str, Any], by_hand: str) -> Iterator[str]:
    """Propose to submit the job again, and nothing of the rest of the playbook."""
    blamed = [node for node in plan["nodes_to_blame"] if node in turn.inventory.nodes]
    arguments: dict[str, Any] = {"job": turn.request.job, "checkpoint": "last_healthy"}
    if blamed:
        # they are named by a rule or a test, not by what somebody wrote into a log
        arguments |= {"exclude": blamed, "blamed": blamed}
    why = f"asked for: job {turn.request.job} failed of {plan['reason']}"
    # of no incident: an approval then makes this very call, and not the next step of a playbook
    yield turn.propose_text("resubmit_job", arguments, why=why, instead=by_hand)
    yield f"The whole playbook, with its tests and checks: {by_hand}"


def cordon(turn: QuestionTurn) -> Iterator[str]:
    """Propose to take nodes out, for as long as was said."""
    more: dict[str, Any] = {"reason": "asked for by an operator"}
    more |= {"hours": turn.request.names.hours} if turn.request.names.hours else {}
    yield from _each_node(turn, "cordon_node", "nightshift nodes cordon {node} --why ...", more)


def uncordon(turn: QuestionTurn) -> Iterator[str]:
    """Propose to put nodes back, with what is recorded against them."""
    proposed = list(_each_node(turn, "uncordon_node", "nightshift nodes uncordon {node}", {}))
    waits = [text for text in proposed if text.startswith("Approval ")]
    yield from waits
    for node in turn.request.nodes[:MOST_NODES]:
        about = turn.look("list_incidents", node=node, limit=3)
        incident_texts = [f"{row['incident']} ({row['reason'] or row['kind']}, {row['state']})" for row in about.value or ()]
        if incident_texts:
            yield f"Against it: incidents {', '.join(incident_texts)} are about {node} [{about.number}], and no repair is recorded."
    yield from (text for text in proposed if text not in waits)


def cancel(turn: QuestionTurn) -> Iterator[str]:
    """Propose to end a job."""
    job = turn.request.job
    status = turn.look("show_job", job=job)
    if status.error:
        yield failed(turn, status)
        return
    if status.value["state"] not in ("running", "pending"):
        yield f"Job {job} is {status.value['state']} already [{status.number}]: there is nothing to cancel."
        return
    name = f"{one_line(status.value['name'], 60)} of {status.value['user']}, {status.value['state']}"
    text = turn.propose_text("cancel_job", {"job": job}, why="asked for by an operator", instead=f"scancel {job}")
    yield from joined_first(f"Job {job} is {name} [{status.number}].", text)


def _each_node(turn: QuestionTurn, tool: str, instead: str, more: dict[str, Any]) -> Iterator[str]:
    nodes = turn.request.nodes
    if len(nodes) > MOST_NODES:
        turn.kind = AnswerKind.REFUSED
        by_hand = instead.format(node="NODES")
        yield f"{len(nodes)} nodes at once are more than the {MOST_NODES} that a sentence may propose; use the command: {by_hand}"
        return
    listed = turn.look("node_states", nodes=list(nodes))
    for node in listed.value or ():
        jobs = f", running job {', '.join(node['jobs'])}" if node["jobs"] else ""
        why = f": {one_line(node['reason'], 160)}" if node["reason"] else ""
        name = one_line(node["node"], 80)
        about = f"{name} is {node['state']}{jobs}{why} [{listed.number}]."
        kind, hand = hand_of(str(node["reason"]))
        if tool == "uncordon_node" and kind == "person":
            about = f"No: {name} is {hand}'s drain; ask {hand}, who says when it is over{why} [{listed.number}]."
        by_hand = instead.format(node=shell_words([node["node"]]))
        text = turn.propose_text(tool, {"node": node["node"], **more}, why="asked for by an operator", instead=by_hand)
        yield from joined_first(about, text)


# How words begin a recovery: the playbook is worked up to its next change, and that change waits for a person.


@dataclass(frozen=True, slots=True)
class WaitingChange:
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
class RecoveryState:
    """Where an incident stands after its playbook was worked as far as it goes without a person."""

    incident: int
    state: str
    note: str
    waiting: tuple[WaitingChange, ...]


class Recovery(Protocol):
    """Works the playbook of a job; every change in it is asked about."""

    def standing(self, job: str) -> RecoveryState | None:
        """Return where the newest incident of a job stands; None where there is none."""
        ...

    def begin(self, job: str) -> RecoveryState:
        """Go on with the incident of a job, opened where none is open, until a change waits for a person or it ends."""
        ...


@dataclass
class RecoveringTurn(QuestionTurn):
    """A turn in which a recovery may be begun."""

    recovery: Recovery | None = None
    """None where only single changes can be proposed."""


_FILLERS = re.compile(
    r"\b(?:what|does|do|is|an?|the|mean|means|meaning|of|explain|define|describe|reason|which|playbook|handles?|for|how|you|"
    r"about|when|restart|on|and|it|serious|causes?|in|general|tell|me|please|failure|stand|stands)\b|[?.!,]",
    re.IGNORECASE,
)
EXAMPLES = (
    "what is wrong now?",
    "why did 4821 die?",
    "explain incident 3",
    "what waits for me?",
    "which nodes are cordoned, and why?",
    "show the errors in 4821",
    "newest healthy checkpoint of 4821",
    "was the failure of 4821 seen before?",
    "compare 4821 and 4790",
    "which jobs failed today?",
    "which node fails most?",
    "what would you do about 4821?",
    "restart 4821 (a proposal; a person says yes or no)",
    "what does Xid 79 mean?",
    "what did you change today?",
)


def meaning(turn: QuestionTurn) -> Iterator[str]:
    """Tell what a reason or an Xid means."""
    texts = turn.request.names.texts
    word = texts[0] if texts else " ".join(_FILLERS.sub(" ", turn.request.question).split())
    if re.search(r"\breasons\b", turn.request.question.lower()):
        word = ""
    source = turn.look("look_up", word=word)
    if source.error:
        turn.kind = AnswerKind.UNKNOWN
        yield f"{source.error} [{source.number}]"
        return
    entry, mark = source.value, f"[{source.number}]"
    if "reasons" in entry:
        yield f"{len(entry['reasons'])} reasons are known {mark}: {', '.join(entry['reasons'])}."
    elif "xid" in entry:
        node = "the node is to blame" if entry["blames_node"] else "the node is not blamed for it alone"
        yield f"Xid {entry['xid']}: {entry['meaning']} {mark}. Reason {entry['reason']}, action {entry['action']}; {node}."
        yield f"NVIDIA: {entry['nvidia']} ({entry['source']})."
    else:
        yield f"{entry['title']} ({entry['reason']}, {entry['category']}) {mark}: {one_line(entry['meaning'], 400)}"
        yield f"Action: {entry['action']}; playbooks: {', '.join(entry['playbooks']) or 'none'} {mark}."
        yield f"What to do: {one_line(entry['advice'], 400)}"


def mode(turn: QuestionTurn) -> Iterator[str]:
    """Tell what may be done here."""
    policy = turn.gate.policy
    yield "Mode semantic: no language model is used. Your words choose what is looked up; only names that exist are taken."
    yield f"The policy is in mode {policy.mode}: " + {
        "observe": "nothing is changed, and I may not even propose it; a person still can, for instance nightshift recover JOB.",
        "propose": "every change is put before a person: nightshift approvals.",
        "act": "the watch changes things within the limits of the policy; what is asked of me here is still put before a person.",
    }.get(str(policy.mode), "")
    switches = ", ".join(str(path) for path in policy.kill_switch)
    yield (
        f"While one of these files exists nothing is changed by anybody: {switches}"
        if switches
        else "No kill switch is configured."
    )
    if (breaker := turn.gate.breaker) is not None:
        yield f"The breaker is open {breaker}. Nightshift changes nothing by itself before: nightshift breaker reset"


def help_(turn: QuestionTurn) -> Iterator[str]:
    """Tell what may be asked."""
    yield "I am Nightshift, the operations assistant of this cluster, a program and no person."
    yield "I answer questions about jobs, nodes, logs, checkpoints and incidents, and propose changes. For instance:"
    yield "\n".join(f"  {example}" for example in _examples(turn))
    yield "An answer names its sources, [1]; `show 1` prints one of them whole."


def _examples(turn: QuestionTurn) -> Iterator[str]:
    """Yield the examples with what exists here, so that each of them works."""
    failed_ones = [job for job in turn.inventory.incidents.values() if job in turn.inventory.jobs]
    jobs = list(dict.fromkeys([*failed_ones, *reversed(list(turn.inventory.jobs)), "4821", "4790"]))
    incident = max(turn.inventory.incidents, default=3)
    for example in EXAMPLES:
        yield (
            example.replace("4821", "JOB")
            .replace("4790", jobs[1])
            .replace("JOB", jobs[0])
            .replace("incident 3", f"incident {incident}")
        )


def out_of_scope(turn: QuestionTurn) -> Iterator[str]:
    """Say that the question is about nothing that Nightshift knows."""
    turn.kind = AnswerKind.UNKNOWN
    yield "Nothing that is known here answers that: I know the jobs, nodes, logs and incidents of this cluster. Ask: help"


def tell_unknown(turn: QuestionTurn, complaint: str) -> Iterator[str]:
    """Tell that names are unknown."""
    turn.kind = AnswerKind.UNKNOWN
    yield f"{complaint[:1].upper()}{complaint[1:]}."


Teller = Callable[[QuestionTurn], Iterator[str]]
TELLERS: Mapping[str, Teller] = MappingProxyType(
    {
        "explain_job": tell_jobs.explain_job,
        "job_status": tell_jobs.job_status,
        "progress": tell_jobs.progress,
        "gpu_use": tell_jobs.gpu_use,
        "stacks": tell_jobs.stacks,
        "compare_jobs": tell_jobs.compare_jobs,
        "failed_jobs": tell_jobs.failed_jobs,
        "list_jobs": tell_jobs.list_jobs,
        "show_log": tell_jobs.show_log,
        "log_errors": tell_jobs.log_errors,
        "search_log": tell_jobs.search_log,
        "scheduler_log": tell_jobs.scheduler_log,
        "checkpoints": tell_jobs.checkpoints,
        "newest_checkpoint": tell_jobs.newest_checkpoint,
        "bad_nodes": tell_incidents.bad_nodes,
        "node_state": tell_incidents.node_state,
        "node_history": tell_incidents.node_history,
        "check_node": tell_incidents.check_node,
        "kernel_log": tell_incidents.kernel_log,
        "overview": tell_incidents.overview,
        "explain_incident": tell_incidents.explain_incident,
        "incidents": tell_incidents.incidents,
        "approvals": tell_incidents.approvals,
        "seen_before": tell_incidents.seen_before,
        "changes": tell_incidents.changes,
        "plan": plan,
        "recover": recover,
        "cordon": cordon,
        "uncordon": uncordon,
        "cancel": cancel,
        "approve": tell_approvals.approve,
        "meaning": meaning,
        "mode": mode,
        "help": help_,
        "out_of_scope": out_of_scope,
    }
)
READINGS: Mapping[str, str] = MappingProxyType(
    {
        "explain_job": "why did job {job} fail",
        "explain_incident": "explain incident {incident}",
        "overview": "what is wrong now",
        "approvals": "what waits for me",
        "incidents": "list incidents",
        "bad_nodes": "which nodes are out of service",
        "node_state": "status of node {node}",
        "node_history": "history of node {node}",
        "check_node": "check node {node}",
        "kernel_log": "kernel log of {node}",
        "show_log": "show the log of {job}",
        "log_errors": "show the errors in {job}",
        "search_log": 'search the log of {job} for "..."',
        "checkpoints": "checkpoints of {job}",
        "newest_checkpoint": "newest healthy checkpoint of {job}",
        "seen_before": "was the failure of {job} seen before",
        "compare_jobs": "compare two jobs",
        "failed_jobs": "which jobs failed",
        "list_jobs": "list jobs",
        "job_status": "status of job {job}",
        "progress": "how far is job {job}",
        "gpu_use": "what are the GPUs of {job} doing",
        "stacks": "where are the ranks of {job}",
        "plan": "what would you do about {job}",
        "recover": "restart job {job}",
        "cordon": "cordon node {node}",
        "uncordon": "uncordon node {node}",
        "cancel": "cancel job {job}",
        "approve": "approve a request",
        "help": "help",
        "mode": "which mode are you in",
        "scheduler_log": "scheduler log of {job}",
        "changes": "what did you change",
        "meaning": "what does ... mean",
        "out_of_scope": "something else",
    }
)
"""How a reading is offered when it asks back."""
