"""What a yes may be for: changes that the last answer or this conversation put before a person; and a yes that asks for more."""

from __future__ import annotations

from assistant.agent.corrections import amended_yes
from assistant.agent.dialogue import Dialogue
from assistant.agent.proposals import BY
from assistant.agent.words import NameInventory
from assistant.gate import Gate


def agreed_approvals(dialogue: Dialogue, inventory: NameInventory, gate: Gate) -> tuple[int, ...]:
    """Return what a yes may be for: approvals of the last answer, else of this conversation, else about what was spoken of."""
    last = [number for number in dialogue.approvals if number in inventory.approvals]
    own = [number for number in dialogue.proposed if number in inventory.approvals]
    if last or own:
        return tuple(last or own[-1:])
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
    agreed, spoken = agreed_approvals(dialogue, inventory, gate), dialogue.jobs[:1]
    about = [row for row in rows if row["approval"] in agreed] or [row for row in rows if row["arguments"].get("job") in spoken]
    jobs = [str(row["arguments"].get("job", "")) for row in about]
    return f"restart {jobs[0]} {wish}" if len(jobs) == 1 and jobs[0] else ""
