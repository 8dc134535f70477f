"""Restarts with what was asked for besides: a checkpoint, a step, nodes to stay away from, steps to leave out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assistant.agent.answer import AnswerKind, one_line
from assistant.agent.dialogue import QuestionTurn
from assistant.agent.restart_wishes import RestartWish
from assistant.agent.waiting import restart_joined
from assistant.nodeset import fold

CARRIED = "a restart takes a checkpoint or its step, nodes to stay away from, and steps to leave out"


@dataclass(frozen=True, slots=True)
class _Start:
    """From where a restart begins."""

    checkpoint: str
    """As the tool takes it; empty where none of that kind may be loaded."""
    text: str
    """As it is told."""
    marks: str = ""


def restart_as_asked(turn: QuestionTurn, wish: RestartWish, state: str, plan: Mapping[str, Any] | None) -> Iterator[str]:
    """Propose to submit a job again with what was asked for; where that cannot be, say so and what can.

    Args:
        turn: Of the order.
        wish: What the restart is to be given.
        state: Of the job.
        plan: Of its recovery; None for a job that was cancelled.
    """
    job = turn.request.job
    if wish.uncarried:
        turn.kind = AnswerKind.REFUSED
        yield f"Not proposed: {_quoted(wish.uncarried)} cannot be passed on; {CARRIED}. Without it, say: restart {job}"
        return
    start = _start(turn, wish)
    if not start.checkpoint:
        turn.kind = AnswerKind.REFUSED
        yield f"Not proposed: {start.text} {start.marks}".rstrip()
        return
    arguments = _arguments(turn, wish, plan)
    if isinstance(arguments, str):
        turn.kind = AnswerKind.UNKNOWN
        yield arguments
        return
    arguments = {"job": job, "checkpoint": start.checkpoint, **arguments}
    details = [start.text]
    details += [f"away from {fold(arguments['exclude'])}"] if arguments.get("exclude") else []
    details += [f"without the data of steps {wish.skip[0]} to {wish.skip[1]}"] if wish.skip else []
    was = "was cancelled; it" if state == "cancelled" else f"({plan['reason']})" if plan else ""
    yield f"Job {job} {was} would be submitted again {', '.join(details)} {start.marks}".replace("  ", " ").rstrip() + ":"
    why = f"asked for: job {job} again {', '.join(details)}"
    yield turn.propose_text("resubmit_job", arguments, why=why, instead=f"nightshift recover {job}")


def restart_beside(turn: QuestionTurn, wish: RestartWish, row: Mapping[str, Any]) -> Iterator[str]:
    """Join the restart of a job that waits already; what was asked for besides and is not part of it is said.

    Args:
        turn: Of the order.
        wish: What the restart was to be given.
        row: The approval that waits.
    """
    start = _Start("", "") if wish.uncarried else _start(turn, wish)
    if wish.uncarried or not start.checkpoint:
        # what cannot be is no reason to answer the one that waits
        yield from restart_as_asked(turn, wish, "", None)
        yield f"Approval {row['approval']} waits already for a restart of job {turn.request.job}: {one_line(row['change'], 160)}"
        return
    details = [start.text] if wish.checkpoint else []
    details += [f"away from {fold(wish.exclude)}"] if wish.exclude else []
    details += ["on other nodes"] if wish.elsewhere else []
    details += [f"without the data of steps {wish.skip[0]} to {wish.skip[1]}"] if wish.skip else []
    more = f"It may not be what you ask for: {', '.join(details)} {start.marks}".rstrip() + "." if details else ""
    yield from restart_joined(turn, row, more)


def without_defaults(turn: QuestionTurn, wish: RestartWish) -> RestartWish:
    """Return a wish without what a restart does anyway: the step of the newest whole checkpoint, away from nodes to blame."""
    if wish.is_plain or wish.uncarried or wish.elsewhere or wish.skip:
        return wish
    if wish.checkpoint == "step":
        choice = turn.look("choose_checkpoint", job=turn.request.job)
        wish = replace(wish, checkpoint="", step=None) if (choice.value or {}).get("step") == wish.step else wish
    if wish.exclude:
        planned = turn.look("plan_recovery", job=turn.request.job)
        blamed = (planned.value or {}).get("nodes_to_blame", ())
        wish = replace(wish, exclude=()) if set(wish.exclude) <= set(blamed) else wish
    return wish


def _quoted(phrases: Sequence[str]) -> str:
    return " and ".join(f'"{one_line(phrase, 80)}"' for phrase in phrases)


def _start(turn: QuestionTurn, wish: RestartWish) -> _Start:
    if wish.checkpoint == "none":
        return _Start("none", "from the beginning, without a checkpoint")
    if wish.checkpoint in ("", "newest"):
        return _Start("last_healthy", "from its newest healthy checkpoint")
    if wish.checkpoint not in ("step", "before"):
        return _Start(wish.checkpoint, f"from {one_line(wish.checkpoint, 200)}")
    source = turn.look("list_checkpoints", job=turn.request.job)
    mark = f"[{source.number}]"
    if source.error:
        return _Start("", f"which checkpoints job {turn.request.job} has is not known: {source.error}", mark)
    saved, healthy = source.value["checkpoints"], [row for row in source.value["checkpoints"] if row["healthy"]]
    if wish.checkpoint == "before":
        if len(healthy) < 2:
            steps = ", ".join(str(row["step"]) for row in healthy) or "none"
            return _Start("", f"there is no healthy checkpoint before the newest one; healthy: {steps}", mark)
        return _Start(healthy[-2]["path"], f"from step {healthy[-2]['step']}, the one before step {healthy[-1]['step']}", mark)
    row = next((row for row in saved if row["step"] == wish.step), None)
    if row is not None and row["healthy"]:
        return _Start(row["path"], f"from step {wish.step}", mark)
    below = [checkpoint["step"] for checkpoint in healthy if wish.step is not None and checkpoint["step"] <= wish.step]
    nearest = f"; the nearest healthy one before it is of step {below[-1]}" if below else "; no healthy one lies before it"
    if row is not None:
        return _Start(
            "", f"the checkpoint of step {wish.step} must not be loaded: {one_line('; '.join(row['problems']), 200)}{nearest}", mark
        )
    steps = ", ".join(str(checkpoint["step"]) for checkpoint in saved[-8:]) or "none"
    return _Start("", f"job {turn.request.job} has no checkpoint of step {wish.step}; it has: {steps}{nearest}", mark)


def _arguments(turn: QuestionTurn, wish: RestartWish, plan: Mapping[str, Any] | None) -> dict[str, Any] | str:
    blamed = [node for node in (plan or {}).get("nodes_to_blame", ()) if node in turn.inventory.nodes]
    exclude = list(dict.fromkeys([*wish.exclude, *blamed]))
    if wish.elsewhere:
        status = turn.look("show_job", job=turn.request.job)
        if status.error:
            return f"On which nodes it ran is not known: {status.error} [{status.number}]"
        exclude = list(dict.fromkeys([*exclude, *status.value["nodes"]]))
    arguments: dict[str, Any] = {"exclude": exclude} if exclude else {}
    arguments |= {"blamed": blamed} if blamed else {}
    return arguments | ({"skip_from_step": wish.skip[0], "skip_to_step": wish.skip[1]} if wish.skip else {})
