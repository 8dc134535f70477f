"""What exists: jobs, nodes, incidents, users. A name in a question is taken only when it is one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from assistant.errors import NightshiftError
from assistant.gate import Gate

MOST_INCIDENTS = 400


@dataclass(frozen=True)
class NameInventory:
    """Everything that a question may name."""

    jobs: Mapping[str, str] = field(default_factory=dict)
    """Name by id, oldest first."""
    users: frozenset[str] = frozenset()
    nodes: tuple[str, ...] = ()
    incidents: Mapping[int, str] = field(default_factory=dict)
    """Job by id of the incident; empty for a node's."""
    approvals: tuple[int, ...] = ()
    unknown: tuple[str, ...] = ()
    """What could not be asked, and why."""

    def job_named(self, name: str) -> str | None:
        """Return the newest job of a name."""
        return next((job for job, called in reversed(list(self.jobs.items())) if called == name), None)


def read_inventory(gate: Gate, *, by: str = "agent") -> NameInventory:
    """Return what exists now; what does not answer is left out, and said."""
    missing: list[str] = []

    def ask(tool: str, **arguments: object) -> Sequence[Mapping[str, object]]:
        try:
            outcome = gate.call(tool, arguments, why="what a question may name", by=by)
        except NightshiftError as error:
            missing.append(f"{tool}: {error}")
            return ()
        if not outcome.ok:
            missing.append(f"{tool}: {outcome.error}")
        return outcome.value if outcome.ok and isinstance(outcome.value, list) else ()

    jobs = ask("list_jobs", limit=100_000)
    incidents = ask("list_incidents", limit=MOST_INCIDENTS)
    return NameInventory(
        jobs={str(job["job"]): str(job["name"]) for job in reversed(jobs)},
        users=frozenset(str(job["user"]) for job in jobs if job["user"]),
        nodes=tuple(str(node["node"]) for node in ask("node_states")),
        incidents={int(str(row["incident"])): str(row["job"] or "") for row in incidents},
        approvals=tuple(int(str(row["approval"])) for row in ask("list_approvals")),
        unknown=tuple(missing),
    )
