"""What the export of a conversation needs of the world: what came of its proposals, and a file that was not there before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assistant.doors.chat.sessions import Entry
from assistant.errors import NightshiftError, UsageError
from assistant.private_files import create_private

if TYPE_CHECKING:
    from assistant.engine import Engine


def came_of(engine: Engine, entries: Sequence[Entry]) -> Mapping[int, str]:
    """Return what came of the changes that were proposed in a conversation, by their approvals."""
    proposals = [one for entry in entries if entry.answer is not None for one in entry.answer.proposals]
    came = {}
    for approval in {one.approval for one in proposals if one.approval is not None}:
        try:
            one = engine.store.approval(approval)
            outcome = engine.store.outcome(one.call)
        except NightshiftError:
            continue
        end = "" if outcome is None else ", done" if outcome.ok else f", failed: {outcome.error}"
        if one.verdict is not None:
            why = f" ({one.answer_why})" if one.answer_why else ""
            came[approval] = f"{one.verdict} by {one.by}{why}{end}"
        else:
            came[approval] = "lapsed" if one.expired(engine.clock.now()) else "waits for a person"
    return came


def written(path: Path | None, name: str, text: str) -> Path:
    """Write a new file and return its path.

    Raises:
        UsageError: It is there already, or cannot be written.
    """
    places = (
        [path] if path is not None else [Path(f"nightshift-{name}{tail}.md") for tail in ("", *(f"-{n}" for n in range(2, 100)))]
    )
    for place in places:
        try:
            with create_private(place, "x", encoding="utf-8", errors="replace") as file:
                file.write(text)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(f"{place} cannot be written: {error.strerror or error}") from error
        return place.absolute()
    raise UsageError(f"{places[-1]} is there already; name another file: /export FILE")
