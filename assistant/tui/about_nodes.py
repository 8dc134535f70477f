"""All that the chat tells about nodes, read in one go on a lane and never changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from assistant.errors import NightshiftError, Unavailable
from assistant.records import Node
from assistant.recover.leases import Lease, parse
from assistant.tui.snapshot import IncidentEntry

if TYPE_CHECKING:
    from assistant.diagnose.ledger import Score
    from assistant.engine import Engine

LEDGER_DAYS = 60
"""How far back the ledger is read, as in `nightshift nodes ledger`."""
KERNEL_LINES = 2_000


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """A node as the screen of nodes shows it."""

    name: str
    node: Node | None
    """As the scheduler shows it; None when it shows none of that name."""
    lease: Lease | None
    """Our cordon; None where there is none, or where the reason is somebody else's."""
    score: Score | None
    """Score of the node in the ledger; None for a node that was part of no failure."""


@dataclass(frozen=True, slots=True)
class NodesSnapshot:
    """Some nodes."""

    at: datetime
    nodes: tuple[NodeEntry, ...]
    incidents: tuple[IncidentEntry, ...]
    """In which they were to blame, or which are about them; newest first."""
    unknown: str = ""
    """Why the scheduler's side is not known."""


@dataclass(frozen=True, slots=True)
class ProbeRow:
    """What one probe said of one node."""

    node: str
    probe: str
    status: str
    """ok, warning, critical or unknown."""
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class HealthSnapshot:
    """What a health check said."""

    rows: tuple[ProbeRow, ...] = ()
    """Worst first."""
    faulty: tuple[str, ...] = ()
    trouble: str = ""
    """Why there is no answer."""


@dataclass(frozen=True, slots=True)
class KernelLogSnapshot:
    """The ends of kernel logs, one text with a header for each node."""

    text: str
    trouble: str = ""


def read_nodes(engine: Engine, names: Sequence[str], nodes_shown: Sequence[Node] | None, now: datetime) -> NodesSnapshot:
    """Return what is known about nodes; `known` are all nodes as the scheduler showed them last, None when it is to be asked."""
    from assistant.diagnose.ledger import scores

    unknown = ""
    if nodes_shown is None:
        try:
            nodes_shown = engine.scheduler.nodes()
        except Unavailable as error:
            nodes_shown, unknown = (), f"the scheduler does not answer: {error}"
    by_name = {node.name: node for node in nodes_shown}
    store = engine.store
    with store.snapshot():
        standing = {score.node: score for score in scores(store.sightings(now - timedelta(days=LEDGER_DAYS)), now)}
        incidents = _incidents(engine, names, standing)
    nodes = tuple(
        NodeEntry(name, node, parse(node.reason) if node is not None else None, standing.get(name))
        for name in names
        for node in (by_name.get(name),)
    )
    return NodesSnapshot(now, nodes, incidents, unknown)


def _incidents(engine: Engine, names: Sequence[str], standing: Mapping[str, Score]) -> tuple[IncidentEntry, ...]:
    store = engine.store
    numbers = {sighting.incident for name in names if name in standing for sighting in standing[name].blamed}
    for name in names[:64]:  # each is a query of its own
        numbers |= {incident.id for incident in store.incidents(node=name)}
    incidents = []
    for number in sorted(numbers, reverse=True)[:200]:
        diagnosis = store.diagnosis(number)
        reason = (diagnosis.reason, diagnosis.confidence, diagnosis.faulty_nodes) if diagnosis is not None else ("", 0.0, ())
        incidents.append(IncidentEntry(store.incident(number), *reason))
    return tuple(incidents)


def read_health(engine: Engine, names: Sequence[str], by: str) -> HealthSnapshot:
    """Return what the health probes say of nodes now, by the reading call of that name."""
    try:
        outcome = engine.gate.call("check_nodes", {"nodes": list(names)}, why="asked for in the chat", by=by)
    except NightshiftError as error:
        return HealthSnapshot(trouble=str(error))
    if not outcome.ok or not isinstance(outcome.value, Mapping):
        return HealthSnapshot(trouble=outcome.error or "the check returned nothing")
    order = ("critical", "warning", "unknown", "ok")
    rows = [
        ProbeRow(node, str(row["probe"]), str(row["status"]), str(row["text"]), str(row.get("remedy") or ""))
        for node, health in outcome.value["nodes"].items()
        for row in health["probes"]
    ]
    rows.sort(key=lambda row: order.index(row.status) if row.status in order else 0)
    return HealthSnapshot(tuple(rows), tuple(outcome.value.get("faulty", ())))


def read_kernel(engine: Engine, names: Sequence[str], by: str) -> KernelLogSnapshot:
    """Return the ends of the kernel logs of nodes, by the reading call of that name."""
    arguments = {"nodes": list(names), "lines": KERNEL_LINES}
    try:
        outcome = engine.gate.call("kernel_log", arguments, why="asked for in the chat", by=by)
    except NightshiftError as error:
        return KernelLogSnapshot("", str(error))
    if not outcome.ok or not isinstance(outcome.value, Mapping):
        return KernelLogSnapshot("", outcome.error)
    texts, silent = outcome.value.get("text", {}), outcome.value.get("unknown", {})
    text = "".join(f"# {node}\n{kernel_text or '(empty)'}\n" for node, kernel_text in texts.items())
    return KernelLogSnapshot(text, "; ".join(f"{node}: {why}" for node, why in silent.items()))
