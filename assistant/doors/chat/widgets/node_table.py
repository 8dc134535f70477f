"""Nodes one by one: state, whose cordon it is, jobs, and how often each was to blame."""

from __future__ import annotations

from collections import Counter

from textual.app import ComposeResult
from textual.containers import Vertical

from assistant.doors.chat.about_nodes import NodesSeen, SeenNode
from assistant.doors.chat.widgets.rows import Cell, Row, Rows
from assistant.doors.chat.words import NODES, age, short
from assistant.records import NodeState

MOST = 1_000
"""Rows; the head counts all of them."""


class NodeTable(Vertical):
    """Nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Rows(("", "node", "state", "job", "blame", "failed jobs", "of what", "set aside by", "until", "reason"))

    def compose(self) -> ComposeResult:
        """Put the table there."""
        yield self.table

    def tell(self, seen: NodesSeen) -> None:
        """Show them."""
        self.table.show([row_of(one, seen) for one in seen.nodes[:MOST]])


def row_of(one: SeenNode, seen: NodesSeen) -> Row:
    """Return a node as a row."""
    state = one.node.state if one.node is not None else NodeState.UNKNOWN
    look = NODES[state]
    told = str(state) if one.node is not None else "unknown" if seen.unknown else "no such node"
    score = one.score
    of = Counter(sighting.reason for sighting in score.blamed).most_common() if score is not None else []
    lease = one.lease
    by = f"us ({lease.by})" if lease is not None else "somebody else" if one.node is not None and one.node.reason else ""
    until = (
        "" if lease is None or lease.until is None else "ran out" if lease.expired(seen.at) else f"{age(lease.until, seen.at)} left"
    )
    reason = lease.why if lease is not None else one.node.reason if one.node is not None else ""
    return Row(
        one.name,
        (
            Cell(look.sign, look.colour),
            one.name,
            Cell(told, look.colour),
            short(", ".join(one.node.jobs), 24) if one.node is not None else "",
            Cell(
                f"{score.score:.2f}" if score is not None and score.blamed else "0",
                "warning" if score is not None and score.score else "",
            ),
            str(score.present) if score is not None else "0",
            short(", ".join(f"{reason} x {count}" if count > 1 else reason for reason, count in of), 40),
            by,
            until,
            Cell(short(reason, 160), look.colour),
        ),
    )
