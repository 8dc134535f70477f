"""What a change that waits for a yes is about, and the restart of a job that waits already: a second one is never proposed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assistant.agent.answer import AnswerSource, Proposal, command_text, harmless
from assistant.agent.dialogue import QuestionTurn
from assistant.agent.proposals import answered_by
from assistant.store.calls import SHORT_DIGEST

RESTARTS = frozenset({"resubmit_job", "requeue_job"})
"""Tools that bring a job back."""


def about_row(turn: QuestionTurn, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a change that waits is about: a job, or a node."""
    arguments, incident = row["arguments"], row["incident"]
    job = str(arguments.get("job") or "") or (turn.inventory.incidents.get(incident, "") if incident is not None else "")
    node = str(arguments.get("node") or "")
    return {"nodes": (node,)} if node else {"job": job} if job else {}


def about_waiting(turn: QuestionTurn, source: AnswerSource) -> dict[str, Any]:
    """Return what the only change that waits is about; nothing where there are several."""
    rows: Sequence[Mapping[str, Any]] = source.value or ()
    return about_row(turn, rows[0]) if len(rows) == 1 else {}


def waiting_restart(turn: QuestionTurn, job: str) -> Mapping[str, Any] | None:
    """Return the restart of a job that waits for a yes or no, whoever asked for it; None where none waits."""
    rows: Sequence[Mapping[str, Any]] = turn.look("list_approvals").value or ()
    return next((row for row in rows if row["tool"] in RESTARTS and about_row(turn, row).get("job") == job), None)


def restart_joined(turn: QuestionTurn, row: Mapping[str, Any], more: str = "") -> Iterator[str]:
    """Tell that a restart waits already, in the place of a second proposal.

    Args:
        turn: Of the order.
        row: What waits.
        more: What was asked for besides, and is not part of it; empty where nothing was.
    """
    source, job = turn.look("list_approvals"), about_row(turn, row).get("job", "")
    change, number = command_text(harmless(row["change"])), row["approval"]
    digest = str(row["digest"])[:SHORT_DIGEST]
    turn.proposals.append(Proposal(row["tool"], row["arguments"], harmless(row["change"]), number, digest=digest, joined=True))
    yield (
        f"Approval {number} waits already for a restart of job {job}, and no second one is proposed"
        f" [{source.number}]: {change} (asked for by {row['by']})."
    )
    yield f"  {answered_by(number, digest)}"
    if more:
        yield f"{more} To have it otherwise, answer approval {number} with no first, and order the restart again."
