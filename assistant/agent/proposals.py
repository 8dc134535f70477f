"""Changes put before a person by the gate, and how each is told: by what is recorded of it, never by what was wished."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from assistant.agent.answer import Proposal, command_text, harmless, one_line
from assistant.display import line
from assistant.errors import Denied, NightshiftError, Parked
from assistant.gate import Gate
from assistant.records import Verdict
from assistant.store.calls import SHORT_DIGEST, STANDS
from assistant.tooling import find_tool

_REFUSED = "it would be refused"
"""Stands in the preview of a change that its tool would refuse as things are."""
BY = "agent"
"""In whose name the agent calls: the policy asks a person about each of its changes."""
NOBODY = frozenset({"policy", "gate", BY})
"""Who decides without a person."""
JOINED = "Approval {} waits already for this"
"""How it begins where an order joins what waits."""


def proposal_told(proposal: Proposal) -> str:
    """Return how a change is told: it waits, it is so already, it was refused, it was allowed and by whom."""
    command = command_text(proposal.preview)
    if proposal.approval is not None:
        heading = f"{JOINED.format(proposal.approval)}, and nothing new is proposed" if proposal.joined else "Proposed, not done"
        return f"{heading}: {command}\n  {answered_by(proposal.approval, proposal.digest)}"
    if proposal.why_not:
        would = f" It would be: {one_line(proposal.preview, 2_000)}" if proposal.preview else ""
        return f"Not even proposed: {proposal.why_not}{would}"
    if proposal.already:
        return f"It is so already: nothing was proposed or done, nobody is asked. It would have been: {command}"
    if proposal.allowed_by:
        return f"Done, after {proposal.allowed_by} said yes: {command}"
    return f"Done, as the policy allows it without a question: {command}"


def joined_first(about: str, text: str) -> list[str]:
    """Return what is told of the thing and of its proposal; that it waits already comes first."""
    return [text, about] if text.startswith(JOINED.partition("{")[0]) else [about, text]


def answered_by(approval: int, digest: str) -> str:
    """Return how a person answers, and the digest of the commands that they answer to."""
    return f"nightshift approve {approval}, or nightshift deny {approval}" + (f"; digest {digest}" if digest else "")


def put_before_person(
    gate: Gate, tool: str, arguments: Mapping[str, Any], *, why: str, incident: int | None, instead: str, trusted: bool
) -> Proposal:
    """Return a change as a proposal in the inbox, or refused with the reason."""
    by_hand = f" You can do it yourself: {instead}" if instead else ""
    if not trusted:
        return Proposal(
            tool,
            arguments,
            "",
            None,
            f"nothing is proposed of piped text, or of words that were not all read as an order of yours.{by_hand}",
        )
    try:
        find_tool(tool).checked(arguments)
        preview = gate.preview(tool, arguments, by=BY, incident=incident)
        if preview.decision.verdict is Verdict.DENY:
            return Proposal(
                tool, arguments, harmless(preview.text), None, f"{preview.decision.rule}: {preview.decision.why}.{by_hand}"
            )
        standing = _standing(gate, tool, arguments)
        if standing is not None:
            return replace(_waiting(gate, tool, arguments, standing), joined=True)
        if _REFUSED in preview.text:
            why_not = "it would be refused as things are, so a yes to it would come to nothing."
            return Proposal(tool, arguments, harmless(preview.text), None, why_not)
        outcome = gate.call(tool, arguments, why=why, by=BY, incident=incident)
    except Parked as parked:
        return _waiting(gate, tool, arguments, parked.approval)
    except Denied as denied:
        return Proposal(tool, arguments, "", None, f"{one_line(denied, 400)}.{by_hand}")
    except NightshiftError as error:
        return Proposal(tool, arguments, "", None, one_line(error, 400))
    # the stored command counts, not the preview, whose tag has no number yet
    call = gate.stored_call(outcome.call)
    why_not = "" if outcome.ok else one_line(outcome.error, 400)
    decisions = gate.decisions_on(outcome.call)
    already = outcome.ok and any(decision.rule == STANDS for decision in decisions)
    persons = [decision.by for decision in decisions if decision.verdict is Verdict.ALLOW and decision.by not in NOBODY]
    return Proposal(
        tool,
        arguments,
        harmless(call.preview),
        None,
        why_not,
        digest=call.digest[:SHORT_DIGEST],
        already=already,
        allowed_by="" if already else line("".join(persons[-1:])),
    )


def _waiting(gate: Gate, tool: str, arguments: Mapping[str, Any], approval: int) -> Proposal:
    """Return a change that waits in the inbox, with the commands that are stored: those are shown on its card, and run."""
    waiting = gate.call("list_approvals", {}, why="what exactly is proposed", by=BY).value
    stored = next((row for row in waiting or () if row["approval"] == approval), None)
    if stored is None:
        return Proposal(tool, arguments, "", None, f"approval {approval} was answered or withdrawn in the same moment")
    return Proposal(tool, arguments, harmless(stored["change"]), approval, digest=stored["digest"][:SHORT_DIGEST])


_TARGETS = {"cancel_job": ("job",), "cordon_node": ("node",), "uncordon_node": ("node",), "resubmit_job": ("job",)}
"""Arguments by which a change that waits already is the same, whoever asked for it."""
_EXCLUSIVE = frozenset({"cancel_job", "resubmit_job"})
"""Changes of which a second one would be made twice, with whatever other arguments: of those never two wait."""


def _standing(gate: Gate, tool: str, arguments: Mapping[str, Any]) -> int | None:
    """Return the approval of the same change where it was put before a person already, by whomever."""
    checked = find_tool(tool).checked(arguments)
    waiting = gate.call("list_approvals", {}, why="whether it is proposed already", by=BY).value
    for row in waiting or ():
        waiting_arguments = find_tool(tool).checked(row["arguments"]) if row["tool"] == tool else {}
        names = _TARGETS.get(tool, ()) if row["by"] != BY or tool in _EXCLUSIVE else tuple(checked)
        if waiting_arguments and names and all(waiting_arguments.get(name) == checked.get(name) for name in names):
            return int(row["approval"])
    return None
