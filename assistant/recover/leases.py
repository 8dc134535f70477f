"""Drain leases: a cordon that says whose it is, why, until when, and by whom; what others wrote is never ours.

    nightshift:<store>:<incident>:<call> <reason> until=<time> by=<user>

A lease that has run out lifts nothing by itself: then the probes and a collective test decide whether it is lifted or renewed
(`engine.reconciliation`). The text is read from the scheduler, where people write too: only the exact form counts, and only of this
store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from assistant.records import Node, tags_in
from assistant.records.jobs import MARK, PATTERN

HOURS = 24.0
"""How long a lease runs when nobody says."""
LONGEST_REASON = 200
MOST_RENEWALS = 7
"""A week of renewals without a person: then one must decide about the node."""

_OURS = re.compile(rf"(?P<tag>{PATTERN}|{MARK})(?: |$)")
_END = re.compile(r"(?:^| )until=(?P<until>\S+) by=(?P<by>\S+)$")


@dataclass(frozen=True, slots=True)
class Lease:
    """A cordon of our own."""

    tag: str
    """`nightshift:<store>:<incident>:<call>`, or `nightshift:` for one that no call made."""
    why: str
    until: datetime | None
    """When it runs out; None for one written without an end."""
    by: str

    @property
    def incident(self) -> int | None:
        """The incident it was made for; None for none."""
        return next((tag.incident or None for tag in tags_in(self.tag)), None)

    @property
    def set_at(self) -> datetime | None:
        """When it was set or last renewed, if it runs as long as usual; None where that cannot be told."""
        return self.until - timedelta(hours=HOURS) if self.until else None

    def expired(self, now: datetime) -> bool:
        """Whether it has run out; one without an end never does."""
        return self.until is not None and now >= self.until

    def renewed(self, now: datetime, hours: float = HOURS) -> Lease:
        """Return the same lease with a later end; never an earlier one."""
        later = _whole(now + timedelta(hours=hours))
        return replace(self, until=max(later, self.until) if self.until else later)

    def render(self) -> str:
        """Return the reason as it stands in the scheduler."""
        end = f"until={self.until.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ} by={self.by}" if self.until else ""
        return " ".join(part for part in (self.tag, self.why, end) if part)


def lease(tag: str, why: str, by: str, now: datetime, hours: float = HOURS) -> Lease:
    """Return a new lease.

    Args:
        tag: Of the call that makes it; empty for none.
        why: For people; what would spoil the form is taken out.
        by: Who made it: `cli:alice` becomes `alice`.
        now: When it begins.
        hours: How long it runs.
    """
    plain = " ".join("".join(letter if letter.isprintable() else " " for letter in why).replace('"', "'").split())[:LONGEST_REASON]
    user = re.sub(r"[^\w.:@-]", "_", by.removeprefix("cli:")) or "unknown"
    return Lease(tag or MARK, plain, _whole(now + timedelta(hours=hours)), user)


def ours(reason: str) -> bool:
    """Return whether a reason has the form of Nightshift's own; whose store wrote it, `identity.owns_cordon` tells."""
    return _OURS.match(reason) is not None


def parse(reason: str) -> Lease | None:
    """Return the lease that a reason holds; None for a foreign one."""
    text = reason.rstrip()
    head = _OURS.match(text)
    if head is None:
        return None
    tag, why = head["tag"], text[head.end() :]
    end = _END.search(why)
    until = _time(end["until"]) if end else None
    if end is None or until is None:
        return Lease(tag, why, None, "")
    return Lease(tag, why[: end.start()], until, end["by"])


def expired(nodes: Iterable[Node], now: datetime) -> list[tuple[Node, Lease]]:
    """Return the nodes whose lease of ours has run out, oldest first."""
    found = [(node, own) for node in nodes if (own := parse(node.reason)) is not None and own.expired(now)]
    return sorted(found, key=lambda pair: pair[1].until or now)


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return found if found.tzinfo else None


def _whole(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(microsecond=0)
