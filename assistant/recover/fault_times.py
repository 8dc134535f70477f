"""When the hardware failed that a diagnosis names: what was saved later may hold what the faulty device computed. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from assistant.records import Checkpoint, Diagnosis

__all__ = ["fault_time", "suspect_words"]

SPOILS = re.compile(r"\bXid\b[^,]{0,60}?\b(?:48|63|64|92|94|95|140)\b|uncorrect|double.?bit|computes wrong", re.IGNORECASE)
"""What a line tells of a device whose results cannot be trusted any more. Source: NVIDIA, "Xid errors": those of its memory."""
AT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?\s?(Z|UTC|[+-]\d\d:?\d\d)")
CLOCKS_APART = timedelta(seconds=1)
"""By which the clock of a file server may be ahead of a node's."""
MOST_NAMED = 4
LONGEST = 4_000


def fault_time(diagnosis: Diagnosis | None) -> datetime | None:
    """Return when a device failed, by the kernel's lines that a diagnosis cites; None where none tells a time with its zone."""
    if diagnosis is None:
        return None
    lines = [cited.text for cited in diagnosis.root_cause]
    lines += [text for node in diagnosis.nodes for text in (node.why, *(cited.text for cited in node.citations))]
    times = [_moment(match) for line in lines if SPOILS.search(line[:LONGEST]) for match in AT.finditer(line[:LONGEST])]
    return min((time for time in times if time is not None), default=None)


def _moment(match: re.Match[str]) -> datetime | None:
    zone = "+00:00" if match[3] in ("Z", "UTC") else match[3]
    try:
        return datetime.fromisoformat(f"{match[1]}T{match[2]}{zone}").astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def suspect_words(checkpoints: Sequence[Checkpoint], fault: datetime | None) -> str:
    """Return which checkpoints were saved after a fault, and the newest whole one from before it; empty where none was.

    Args:
        checkpoints: Oldest step first, as judged.
        fault: From `fault_time`.
    """
    if fault is None:
        return ""
    later = [save for save in checkpoints if save.saved_at > fault + CLOCKS_APART]
    if not later:
        return ""
    before = [save for save in checkpoints if save.healthy and save not in later]
    names = ", ".join(save.path.name for save in later[:MOST_NAMED]) + (", …" if len(later) > MOST_NAMED else "")
    last = (
        f"the newest whole one from before it is {before[-1].path} (step {before[-1].step})" if before else "none is from before it"
    )
    return f"Saved after the fault of {fault:%H:%M:%S} UTC, and suspect: {names}; {last}."
