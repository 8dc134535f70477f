"""What is told to a yes, to a no, and to who takes an order back: which change waits, who asked for it, and how it is answered.

A yes may be for changes that the last answer or this conversation put before a person; it may ask for more than they hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assistant.agent.answer import AnswerKind, Proposal, one_line, time_text
from assistant.agent.corrections import amended_yes
from assistant.agent.dialogue import Dialogue, QuestionTurn
from assistant.agent.proposals import BY
from assistant.agent.words import NameInventory
from assistant.gate import Gate
from assistant.store.calls import SHORT_DIGEST

MOST_WAITING = 8
UNDO_H = 168.0
"""How far back changes are looked at for one that may be taken back."""
MOST_UNDONE = 3
_REFUSES = re.compile(
    r"\b(?:refus|den(?:y|ied)|reject|declin|disallow|turn (?:it |that |this )?down|not|don'?t|no|never|veto|cancel|drop|withdraw"
    r"|revoke|remove|delete|dismiss|discard|scrap|kill|stop|close|throw)",
    re.IGNORECASE,
)
"""Words by which a sentence about an approval means a no."""
_NOT_YET = re.compile(
    r"(?:\bnot|n'?t)\b.{0,60}\b(?:yet|now|right away|today|tonight)\b|\b(?:hold off|wait(?: with)?|for now|until|before)\b",
    re.IGNORECASE,
)
"""Words by which an approval is to be left as it is: neither a yes nor a no."""
_NAMES_IT = re.compile(
    r"\b(?:approv|allow|permit|grant|confirm|den(?:y|ied)|refus|reject|declin|accept|veto|change|request|propos|sign"
    r"|consent)",
    re.I,
)
"""Words by which a sentence speaks of an approval; a bare yes does not."""


def approve(turn: QuestionTurn) -> Iterator[str]:
    """Say that approval is given elsewhere, and which change it would be for; a bare yes is for what this conversation proposed."""
    turn.kind = AnswerKind.REFUSED
    waiting = turn.look("list_approvals")
    mark, numbers = f"[{waiting.number}]", turn.request.names.approvals
    if waiting.error:
        turn.kind = AnswerKind.UNKNOWN
        yield f"What waits for a yes is not known now: {waiting.error} {mark}"
        return
    rows: Sequence[Mapping[str, Any]] = waiting.value or ()
    if not numbers and not _NAMES_IT.search(turn.request.question):
        yield "Nothing was asked in this conversation that a yes or no could be for; nothing is allowed or changed."
        yield from _waiting_told(rows, mark)
        return
    if _NOT_YET.search(turn.request.question):
        yield "Understood: nothing is allowed or refused, and it goes on waiting until somebody answers it or it expires."
        yield from _waiting_told([row for row in rows if row["approval"] in numbers] or rows, mark)
        return
    strange = [number for number in numbers if number not in [row["approval"] for row in rows]]
    if strange and len(strange) == len(numbers):
        yield f"Approval {', '.join(map(str, strange))} does not wait {mark}; nothing is allowed or refused."
        yield from _waiting_told(rows, mark)
        return
    yield "A yes or no is not given in words here, so that no text can give it. Use the command, or the buttons of the chat:"
    if not rows:
        yield f"Nothing waits for an answer now {mark}."
    for number in strange:
        yield f"Approval {number} does not wait {mark}."
    rows_meant = [row for row in rows if row["approval"] in numbers]
    for row in rows_meant or (rows if len(rows) == 1 and not numbers else ()):
        # its card stands below the answer, and is where a person answers
        turn.proposals.append(
            Proposal(
                row["tool"], row["arguments"], row["change"], row["approval"], digest=row["digest"][:SHORT_DIGEST], joined=True
            )
        )
    verb = "deny" if _REFUSES.search(turn.request.question) else "approve"
    for row in (rows_meant or rows)[:MOST_WAITING]:
        yield f"  nightshift {verb} {row['approval']}    {one_line(row['change'], 160)} {mark}"
    if rows_meant and len(rows) > len(rows_meant):
        yield from _waiting_told([row for row in rows if row not in rows_meant], mark)


def _waiting_told(rows: Sequence[Mapping[str, Any]], mark: str) -> Iterator[str]:
    for row in rows[:MOST_WAITING]:
        by_text = f" (asked for by {one_line(row['by'], 40)})" if row.get("by") else ""
        yield f"Approval {row['approval']} waits{by_text} {mark}, and is answered by its own number: {one_line(row['change'], 160)}"


def withdrawal_told(turn: QuestionTurn, proposed: Sequence[int]) -> Iterator[str]:
    """Tell what becomes of what this conversation proposed when it is taken back: a person drops it, by its number.

    Args:
        turn: In which it is taken back.
        proposed: Approvals that were asked for in this conversation and wait.
    """
    waiting = turn.look("list_approvals")
    mark, rows = f"[{waiting.number}]", waiting.value or ()
    yield "Understood: not that. Nothing was changed, and nothing new is proposed."
    for row in rows:
        if row["approval"] in proposed:
            number = row["approval"]
            yield f"Approval {number}, proposed in this conversation, was not allowed and waits until it is dropped {mark}:"
            yield f"  nightshift deny {number}    {one_line(row['change'], 200)}"
    numbers = ", ".join(str(row["approval"]) for row in rows if row["approval"] not in proposed)
    if numbers:
        yield f"Not meant, and as before: approval {numbers}, which others asked for {mark}."


def only_drain_told(dialogue: Dialogue, gate: Gate) -> str:
    """Return the node whose drain is all that can be taken back, where changes or that node were spoken of; else nothing."""
    if dialogue.intent != "changes" and not (dialogue.subject == "node" and len(dialogue.nodes) == 1):
        return ""
    rows = gate.call("recent_changes", {"hours": UNDO_H}, why="what may be taken back", by=BY).value or ()
    undoable = [row for row in rows if row["status"] == "done" and row["undo"]]
    match = re.search(r"NodeName=([\w.-]+) State=DRAIN", undoable[0]["change"]) if len(undoable) == 1 else None
    return match[1] if match is not None and (dialogue.intent == "changes" or match[1] in dialogue.nodes) else ""


def undo_told(turn: QuestionTurn) -> Iterator[str]:
    """Tell which changes may be taken back, and what each would undo; nothing is proposed where none is named."""
    source = turn.look("recent_changes", hours=UNDO_H)
    mark = f"[{source.number}]"
    if source.error:
        turn.kind = AnswerKind.UNKNOWN
        yield f"What was changed is not known now: {source.error} {mark}"
        return
    turn.kind = AnswerKind.ASKS_BACK
    rows = [row for row in source.value if row["status"] == "done" and row["undo"]]
    yield "Nothing that was proposed in this conversation waits, and nothing is proposed now."
    if not rows:
        yield f"In the last 7 days Nightshift made no change that can be taken back {mark}."
        return
    yield f"Which change is meant? Made in the last 7 days, the newest first {mark}:"
    for row in rows[:MOST_UNDONE]:
        at, about = time_text(row["at"], turn.now), f", incident {row['incident']}" if row["incident"] else ""
        yield f"  call {row['call']}, {at}: {one_line(row['change'], 160)} (by {row['by']}{about})"
        yield f"     to take it back, which asks first: nightshift undo {row['call']}"
        nodes = [node for node in turn.inventory.nodes if re.search(rf"(?<![\w-]){re.escape(node)}(?![\w-])", row["change"])]
        states = turn.look("node_states", nodes=nodes) if nodes else None
        for node in (states.value if states is not None else None) or ():
            yield f"     {node['node']} is {node['state']} now: {one_line(node.get('reason') or 'no reason is given', 160)}"


def own_waiting_told(turn: QuestionTurn, proposed: Sequence[int]) -> Iterator[str]:
    """Tell of what this conversation proposed before and that waits beside an answer to another order."""
    carded = {proposal.approval for proposal in turn.proposals}
    rows = turn.look("list_approvals").value if set(proposed) - carded else ()
    for row in rows or ():
        number = row["approval"]
        if number in proposed and number not in carded:
            yield (
                f"Approval {number}, proposed before in this conversation, still waits; to drop it: nightshift deny {number}"
                f"    {one_line(row['change'], 120)}"
            )


def agreed_approvals(dialogue: Dialogue, inventory: NameInventory, gate: Gate) -> tuple[int, ...]:
    """Return what a yes may be for: approvals of the last answer, else of this conversation, else about what was spoken of."""
    last = [number for number in dialogue.approvals if number in inventory.approvals]
    proposed = [number for number in dialogue.proposed if number in inventory.approvals]
    if last or proposed:
        return tuple(last or proposed[-1:])
    if dialogue.intent not in ("approvals", "plan", "recover", "explain_job"):
        return ()
    rows = gate.call("list_approvals", {}, why="what a yes may be for", by=BY).value or ()
    job = dialogue.jobs[0] if dialogue.jobs else ""
    about = [row for row in rows if dialogue.intent == "approvals" or (job and row["arguments"].get("job") == job)]
    return (int(about[0]["approval"]),) if len(about) == 1 else ()


def amended_order(words: str, dialogue: Dialogue, inventory: NameInventory, gate: Gate) -> str:
    """Return the order of a yes with an amendment, `yes but from 300`, about the restart that it is for; empty where it is none."""
    wish = amended_yes(words)
    rows = gate.call("list_approvals", {}, why="what a yes may be for", by=BY).value or () if wish else ()
    agreed, dialogue_jobs = agreed_approvals(dialogue, inventory, gate), dialogue.jobs[:1]
    about = [row for row in rows if row["approval"] in agreed] or [
        row for row in rows if row["arguments"].get("job") in dialogue_jobs
    ]
    jobs = [str(row["arguments"].get("job", "")) for row in about]
    return f"restart {jobs[0]} {wish}" if len(jobs) == 1 and jobs[0] else ""
