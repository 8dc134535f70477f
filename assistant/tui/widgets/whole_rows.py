"""The whole text of a row of the first screen's lists, whose cells cut it: copied by `y`, shown by Enter where a row leads nowhere.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from assistant.display import line, unambiguous
from assistant.nodeset import fold
from assistant.records import Job
from assistant.store import AuditRow
from assistant.tui.snapshot import ApprovalEntry, ClusterSnapshot, IncidentEntry, StoreSnapshot
from assistant.tui.widgets.happened import HappenedPanel, audit_text
from assistant.tui.widgets.panels import ApprovalsPanel, IncidentsPanel, JobsPanel
from assistant.tui.words import RISKS, about


def whole_row(panel: str, key: str, store: StoreSnapshot | None, cluster: ClusterSnapshot | None) -> str:
    """Return all that a row stands for; empty where the record is not there any more.

    Args:
        panel: Name of the panel.
        key: Of the row.
        store: The newest look at the store.
        cluster: The newest look at the scheduler.
    """
    if panel == JobsPanel.NAME:
        return _first(_job(job) for job in (cluster.jobs if cluster is not None else ()) if job.id == key)
    if store is None:
        return ""
    if panel == HappenedPanel.NAME:
        return _first(_audit(row) for row in store.happened if str(row.id) == key)
    if panel == ApprovalsPanel.NAME:
        return _first(_approval(entry) for entry in store.approvals if str(entry.approval.id) == key)
    if panel == IncidentsPanel.NAME:
        return _first(_incident(entry) for entry in store.incidents if str(entry.incident.id) == key)
    return ""


def leads_to_incident(key: str, store: StoreSnapshot | None) -> bool:
    """Tell whether a row of the audit is about an incident, which Enter opens."""
    return store is not None and any(row.incident is not None for row in store.happened if str(row.id) == key)


def _first(texts: Iterable[str]) -> str:
    return next(iter(texts), "")


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)


def _audit(row: AuditRow) -> str:
    text = audit_text(row)
    incident = f" incident {row.incident}:" if row.incident is not None else ""
    further = [row.why if row.why not in text else "", f"undo: {row.undo}" if row.undo else "", f"by {row.by}"]
    further += [f"rule {row.rule}" if row.rule else ""]
    return f"{row.at.astimezone():%Y-%m-%d %H:%M:%S}{incident} {_joined(unambiguous(text), *map(line, further))}"


def _approval(entry: ApprovalEntry) -> str:
    undo = entry.undo or "cannot be undone"
    facts = (f"why: {entry.call.why}" if entry.call.why else "", f"risk: {RISKS[entry.risk][0]}", f"undo: {undo}")
    return f"approval {entry.approval.id}: {_joined(unambiguous(entry.command), *map(line, facts))}"


def _incident(entry: IncidentEntry) -> str:
    incident = entry.incident
    reason = entry.reason or str(incident.kind)
    nodes = f"to blame: {fold(entry.nodes)}" if entry.nodes else ""
    holder = f"held by {incident.owner}" if incident.owner else ""
    return line(f"incident {incident.id}: {_joined(about(incident), str(incident.state), reason, nodes, incident.note, holder)}")


def _job(job: Job) -> str:
    nodes = f"nodes {fold(job.nodes)}" if job.nodes else "no nodes"
    log = f"log {job.log}" if job.log is not None else ""
    return line(f"job {job.id}: {_joined(job.name, str(job.state), job.user, job.partition, nodes, job.reason, log)}")
