"""A checkpoint and a choice of one, as JSON values and in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assistant.records import Checkpoint
from assistant.recover.checkpoints.inventory import Choice

MOST_TORN = 3
"""Newest checkpoints that are not whole and are named to people."""


def choice_note(choice: Choice, *, with_path: bool = False) -> str:
    """Return which checkpoint was chosen, what is not known of it, and which were refused and why."""
    words = f"checkpoint of step {choice.checkpoint.step}" if choice.checkpoint is not None else "no checkpoint"
    words += f" ({choice.checkpoint.path})" if choice.checkpoint is not None and with_path else ""
    if choice.checkpoint is not None and choice.checkpoint.unread:
        words += f", which was not judged: {choice.checkpoint.unread}; for it speaks that {', '.join(choice.checkpoint.grounds)}"
    refused = "; ".join(
        f"{checkpoint.path.name}{'' if checkpoint.undecided else ' refused:'} {checkpoint.problems[0]}"
        for checkpoint in choice.refused
    )
    return f"{words}; {refused}" if refused else words


def unusable_words(choice: Choice) -> str:
    """Return why nothing was chosen: that all are refused, that none can be judged, or that some are each."""
    undecided = sum(checkpoint.undecided for checkpoint in choice.refused)
    if not undecided:
        return "may be loaded"
    person = "; a person who knows the program says which of them is whole"
    if undecided == len(choice.refused):
        return f"can be judged{person}"
    return f"is known to be whole: {undecided} cannot be judged, {len(choice.refused) - undecided} are refused{person}"


def no_choice(choice: Choice, why: str, *, fresh: bool, notes: tuple[str, ...]) -> dict[str, Any]:
    """Return the values of a choice of nothing."""
    refused = [checkpoint_values(checkpoint) for checkpoint in choice.refused]
    note = f"{why}; {choice_note(choice)}" if refused else why
    begin = "none" if fresh else ""
    empty: dict[str, Any] = {"path": "", "step": 0, "fallback": "", "set_aside": [], "tracker": "", "tracker_text": ""}
    return {**empty, "restart_from": begin, "refused": refused, "notes": list(notes), "note": note}


def checkpoint_values(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return a checkpoint as JSON values."""
    return {
        "path": str(checkpoint.path),
        "step": checkpoint.step,
        "format": checkpoint.format,
        "size_bytes": checkpoint.size_bytes,
        "saved_at": checkpoint.saved_at.isoformat(),
        "healthy": checkpoint.healthy,
        "problems": list(checkpoint.problems),
        "unread": checkpoint.unread,
        "grounds": list(checkpoint.grounds),
        "undecided": checkpoint.undecided,
    }


def problem_words(checkpoints: Sequence[Checkpoint]) -> str:
    """Return the names of the newest of some checkpoints, each with the first of its problems."""
    return "; ".join(
        f"{checkpoint.path.name}: {checkpoint.problems[0]}" for checkpoint in checkpoints[-MOST_TORN:] if checkpoint.problems
    )
