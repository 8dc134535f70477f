"""What an order for all but some is about: jobs at work, jobs that failed, nodes that are out, without what is spared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from assistant.agent.proposals import BY
from assistant.agent.words import NameInventory, Names
from assistant.gate import Gate

ORDER_VERBS = {"cancel": "cancel", "recover": "restart", "cordon": "drain", "uncordon": "undrain"}
_ALIVE = ("running", "pending")
_DRAINED = ("drained", "draining")


def spared_with_users(spared: Names, inventory: NameInventory) -> Names:
    """Return what is spared with the jobs of the users that are: `except carol's`."""
    if not spared.users:
        return spared
    theirs = [job for job in inventory.jobs if inventory.owners.get(job) in spared.users]
    return replace(spared, jobs=tuple(dict.fromkeys([*spared.jobs, *theirs])))


def only_thing_left(change: str, names: Names, spared: Names, inventory: NameInventory, gate: Gate) -> str | None:
    """Return the one thing that an order for all but some is about; None where there are several, or none, or that is not known.

    Args:
        change: Its intent.
        names: Of the order without what it spares: whose jobs are meant, of which time.
        spared: What it spares.
        inventory: What exists.
        gate: Tells the states of nodes.
    """
    if names.jobs or names.nodes or names.strangers or spared.strangers or inventory.unknown:
        return None
    candidates = _candidates(change, names, spared, inventory, gate)
    return candidates[0] if len(candidates) == 1 else None


def _candidates(change: str, names: Names, spared: Names, inventory: NameInventory, gate: Gate) -> Sequence[str]:
    jobs = [
        job for job in inventory.jobs if job not in spared.jobs and (not names.users or inventory.owners.get(job) in names.users)
    ]
    if change == "cancel":
        return [job for job in jobs if inventory.states.get(job) in _ALIVE]
    if change == "recover":
        failed = [job for job in inventory.failed if job in jobs]
        return _of_span(failed, names.hours, gate)
    if change != "uncordon":
        return ()
    rows = gate.call("node_states", {}, why="which nodes are out", by=BY).value or ()
    return [str(row["node"]) for row in rows if row["state"] in _DRAINED and row["node"] not in spared.nodes]


def _of_span(jobs: Sequence[str], hours: float | None, gate: Gate) -> Sequence[str]:
    """Return jobs that ended within so many hours of the newest record; all of them where no time is named."""
    if hours is None:
        return jobs
    rows = gate.call("list_jobs", {"limit": 100_000}, why="which jobs failed in that time", by=BY).value or ()
    ends = {str(row["job"]): datetime.fromisoformat(row["ended"]) for row in rows if row["ended"]}
    newest = max(ends.values(), default=None)
    return [job for job in jobs if newest is not None and job in ends and ends[job] >= newest - timedelta(hours=hours)]
