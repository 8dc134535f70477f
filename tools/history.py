"""Read what Nightshift knows: incidents, diagnoses, approvals, changes, the ledger of nodes, and what reasons and XIDs mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from difflib import get_close_matches
from typing import Any

from assistant.content.devices import xids
from assistant.content.playbooks import playbooks
from assistant.content.reasons import reasons
from assistant.errors import ToolError, UsageError
from assistant.records import Call, CallStatus, Citation, Diagnosis, Incident, Risk
from assistant.tooling import Context, Pipeline, find_tool, tool
from assistant.tooling import found as tools

MOST_CITED = 8


@tool(risk=Risk.READ)
def list_incidents(
    context: Context,
    open_only: bool = False,
    job: str = "",
    node: str = "",
    hours: float = 0.0,
    limit: int = 50,
    unacknowledged: bool = False,
) -> list[dict[str, Any]]:
    """List incidents, newest first, each with its state and the reason that was found.

    Args:
        open_only: Only those that somebody still has to work on.
        job: Only those of this job.
        node: Only those about this node, or in which it was to blame.
        hours: Only those opened within so many hours; 0 for all.
        limit: How many at most.
        unacknowledged: Only escalated ones that nobody has acknowledged, as `nightshift status` counts them.
    """
    since = context.clock.now() - timedelta(hours=hours) if hours else None
    rows: list[dict[str, Any]] = []
    listed: Iterable[Incident]
    if unacknowledged:
        waiting = (context.history.incident(number) for number in reversed(context.history.unacknowledged()))
        listed = (incident for incident in waiting if not job or incident.job == job)
    else:
        listed = context.history.incidents(job=job or None, open_only=open_only, limit=10_000 if node or since else limit)
    for incident in listed:
        diagnosis = context.history.diagnosis(incident.id)
        blamed = diagnosis.faulty_nodes if diagnosis is not None else ()
        if (since is None or incident.opened >= since) and (not node or node in (incident.node, *blamed)):
            rows.append(_incident_values(incident, diagnosis))
    return rows[: max(0, limit)]


@tool(risk=Risk.READ)
def show_incident(context: Context, incident: int) -> dict[str, Any]:
    """Show one incident: its state, diagnosis with cited lines, evidence by its ids, what was changed, and the times.

    Args:
        incident: Its id.
    """
    try:
        record = context.history.incident(incident)
    except UsageError as error:
        raise ToolError(str(error)) from error
    diagnosis = context.history.diagnosis(incident)
    evidence = [{"id": fact.id, "source": fact.source, "at": fact.at.isoformat()} for fact in context.history.evidence(incident)]
    return {
        **_incident_values(record, diagnosis),
        "playbook": record.playbook,
        "parent": record.parent,
        "diagnosis": diagnosis_values(diagnosis) if diagnosis is not None else None,
        "evidence": evidence,
        "changes": [_change_values(context, call) for call in context.history.calls(incident) if _is_change(call)],
        "stages": {stage: at.isoformat() for stage, at in context.history.stages(incident).items()},
    }


@tool(risk=Risk.READ)
def list_approvals(context: Context) -> list[dict[str, Any]]:
    """List the calls that wait for a person's yes or no, oldest first. Nothing can be answered with it."""
    rows = []
    for question in context.history.approvals():
        call = context.history.call(question.call)
        rows.append(
            {
                "approval": question.id,
                "change": call.preview or call.tool,
                "digest": question.digest,
                "tool": call.tool,
                "arguments": dict(call.arguments),
                "why": call.why,
                "asked_because": f"{question.rule}: {question.why}",
                "by": call.by,
                "incident": call.incident,
                "asked": question.asked.isoformat(),
                "expires": question.expires.isoformat(),
            }
        )
    return rows


@tool(risk=Risk.READ)
def watch_status(context: Context) -> dict[str, Any]:
    """Tell who watches the cluster since when, its last pass, mode and policy, kill switch, breaker, and how much is open."""
    return dict(_pipeline(context).watch())


@tool(risk=Risk.READ)
def recent_changes(context: Context, hours: float = 24.0) -> list[dict[str, Any]]:
    """List what Nightshift changed, or was refused to change, newest first, each with how to take it back.

    Args:
        hours: How far back.
    """
    since = context.clock.now() - timedelta(hours=hours)
    changes = [call for call in context.history.calls() if _is_change(call) and call.at >= since]
    return [_change_values(context, call) for call in reversed(changes)]


@tool(risk=Risk.READ)
def explain_job(context: Context, job: str) -> dict[str, Any]:
    """Tell why a job failed: reason, lines that prove it, nodes to blame, rivals. From its incident, else found out now.

    Args:
        job: Scheduler job id.
    """
    incidents = context.history.incidents(job=job, limit=1)
    diagnosis = context.history.diagnosis(incidents[0].id) if incidents else None
    if diagnosis is not None:
        about = _incident_values(incidents[0], diagnosis)
        evidence = [fact.id for fact in context.history.evidence(incidents[0].id)]
        return {**about, **diagnosis_values(diagnosis), "evidence": evidence, "found": "in its incident"}
    state = context.scheduler.job(job).state
    return {
        **diagnosis_values(_pipeline(context).explain(job)),
        "job": job,
        "job_state": state.value,
        "incident": None,
        "found": "now",
    }


@tool(risk=Risk.READ)
def plan_recovery(context: Context, job: str) -> dict[str, Any]:
    """Tell what would be done about a failed job: the playbook, its steps, what the policy says. Nothing is done.

    Args:
        job: Scheduler job id.
    """
    return dict(_pipeline(context).plan(job))


@tool(risk=Risk.READ)
def node_ledger(context: Context, node: str = "", days: float = 60.0) -> list[dict[str, Any]]:
    """List how often nodes were to blame for failed jobs, worst first; a blame counts half after 14 days.

    Args:
        node: Only this one; all that were ever to blame when empty.
        days: How far back.
    """
    if not days > 0:
        raise ToolError(f"days must be above 0, not {days:g}")
    rows = [dict(row) for row in _pipeline(context).ledger(days)]
    return [row for row in rows if row["node"] == node] if node else [row for row in rows if row["blamed"]]


def diagnosis_values(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as JSON values."""
    return {
        "reason": diagnosis.reason,
        "category": diagnosis.category.value,
        "action": diagnosis.action.value,
        "confidence": diagnosis.confidence,
        "by": diagnosis.by.value,
        "summary": diagnosis.summary,
        "advice": diagnosis.advice,
        "step": diagnosis.step,
        "root_cause": [_citation_values(cited) for cited in diagnosis.root_cause[:MOST_CITED]],
        "nodes": [
            {"node": suspect.node, "why": suspect.why, "lines": [_citation_values(cited) for cited in suspect.citations[:3]]}
            for suspect in diagnosis.nodes
        ],
        "rivals": [
            {
                "reason": rival.reason,
                "confidence": rival.confidence,
                "for": rival.speaks_for,
                "against": rival.speaks_against,
                "test": rival.test,
            }
            for rival in diagnosis.rivals
        ],
        "seen_before": [
            {
                "incident": earlier.incident,
                "reason": earlier.reason,
                "similarity": round(earlier.similarity, 2),
                "shared": list(earlier.shared),
                "cure": earlier.cure,
                "at": earlier.at.isoformat(),
            }
            for earlier in diagnosis.seen_before
        ],
        "patterns": [pattern.text for pattern in diagnosis.patterns],
    }


def _citation_values(cited: Citation) -> dict[str, Any]:
    return {"file": cited.file, "line": cited.line, "text": cited.text[:400], "rule": cited.rule, "role": cited.role}


def _incident_values(incident: Incident, diagnosis: Diagnosis | None) -> dict[str, Any]:
    return {
        "incident": incident.id,
        "state": incident.state.value,
        "ended": incident.state.ended,
        "job": incident.job,
        "node": incident.node,
        "kind": incident.kind.value,
        "reason": diagnosis.reason if diagnosis is not None else None,
        "summary": diagnosis.summary if diagnosis is not None else "",
        "nodes_to_blame": list(diagnosis.faulty_nodes) if diagnosis is not None else [],
        "opened": incident.opened.isoformat(),
        "closed": incident.closed.isoformat() if incident.closed else None,
        "note": incident.note,
    }


def _is_change(call: Call) -> bool:
    tools_by_name = tools()
    return call.tool not in tools_by_name or tools_by_name[call.tool].risk is not Risk.READ


def _change_values(context: Context, call: Call) -> dict[str, Any]:
    outcome = context.history.outcome(call.id)
    undo = find_tool(call.tool).undo if call.tool in tools() else None
    error: Mapping[str, str] = {"error": outcome.error} if outcome is not None and outcome.error else {}
    return {
        "call": call.id,
        "change": call.preview or call.tool,
        "status": call.status.value,
        "why": call.why,
        "by": call.by,
        "incident": call.incident,
        "at": call.at.isoformat(),
        "undo": f"nightshift undo {call.id}" if undo and call.status is CallStatus.DONE else "",
        **error,
    }


def _pipeline(context: Context) -> Pipeline:
    if context.pipeline is None:
        raise ToolError("there is no engine here that could find that out; ask nightshift on a machine that has one")
    return context.pipeline


_XID = re.compile(r"\bs?xid\D{0,3}(\d{1,3})\b", re.IGNORECASE)
_CLOSE = 0.72


@tool(risk=Risk.READ)
def look_up(context: Context, word: str) -> dict[str, Any]:
    """Tell what a failure reason or an Xid means, what is done about it and by which playbook; without a word the reasons.

    Args:
        word: Such as `ecc_error`, `nvlink error` or `Xid 79`.
    """
    known_reasons = reasons(context.site)
    code = _XID.search(word)
    if code is not None:
        return _xid_meaning(context, int(code.group(1)))
    if not word.strip():
        return {"reasons": {name: reason.title for name, reason in known_reasons.items()}}
    name = _nearest_reason(word, list(known_reasons))
    if name is None:
        raise ToolError(f"{word!r} is no reason that is known here; known: {', '.join(known_reasons)}")
    reason = known_reasons[name]
    handled = [
        book.name
        for book in playbooks(context.site).values()
        if {name, reason.category.value, reason.action.value} & set(book.handles)
    ]
    return {
        "reason": name,
        "title": reason.title,
        "category": reason.category.value,
        "meaning": reason.meaning,
        "action": reason.action.value,
        "advice": reason.remedy,
        "playbooks": handled,
    }


def _xid_meaning(context: Context, code: int) -> dict[str, Any]:
    table = xids(context.site)
    row = table.get(code)
    if row is None:
        raise ToolError(f"Xid {code} is not in the table of Xids; known: {', '.join(str(number) for number in sorted(table))}")
    return {
        "xid": code,
        "meaning": row.meaning,
        "reason": row.reason,
        "action": row.action.value,
        "blames_node": row.blames_node,
        "nvidia": row.vendor,
        "source": row.source,
    }


def _nearest_reason(word: str, names: list[str]) -> str | None:
    term = re.sub(r"[^a-z0-9]+", "_", word.lower()).strip("_")
    if term in names:
        return term
    parts = set(term.split("_")) - {"error", "errors", "a", "an", "the"}
    holding = [name for name in names if parts and parts <= set(name.split("_"))]
    if holding:
        return min(holding, key=len)
    near = get_close_matches(term, names, n=1, cutoff=_CLOSE)
    if near:
        return near[0]
    sharing = [
        name for name in names if parts & (set(name.split("_")) - {"error", "file", "not", "found", "type", "key", "value", "name"})
    ]
    return min(sharing, key=len) if sharing else None
