"""The first lines of the screens about one thing: what it is, how it stands, since when. Pure."""

from __future__ import annotations

from collections import Counter

from textual.content import Content

from assistant.records import Incident, NodeState
from assistant.tui.about_incident import IncidentSeen, JobSeen
from assistant.tui.about_nodes import NodesSeen
from assistant.tui.words import INCIDENTS, JOBS, NODES, about, age, clock, folded, short

GAP = Content("  ")


def said(text: object, style: str = "") -> Content:
    """Return text in a style, on one line, whatever it holds."""
    return Content.styled(short(text, 400), style)


def tint(name: str) -> str:
    """Return the style of a variable of the theme; `text-muted` only says how dark a colour is that is not chosen yet."""
    return "$foreground 60%" if name == "text-muted" else f"${name}"


def incident_head(seen: IncidentSeen) -> list[Content]:
    """Return the head of an incident."""
    one, found = seen.incident, seen.diagnosis
    look = INCIDENTS[one.state]
    since = one.failed_at or one.opened
    first = [said(f"{look.sign} {one.state}", f"bold {tint(look.colour)}"), said(f"incident {one.id}", "bold"), said(about(one))]
    first += [said(f"{age(since, seen.at)} ago", "$foreground 60%")]
    if seen.approvals:
        first.append(said("waits for you: press a", "bold $accent"))
    second = [said(f"noticed as {one.kind}, not diagnosed yet", "$foreground 60%")]
    if found is not None:
        sure = f"{found.confidence:.2f} sure · {found.category} · {str(found.action).replace('_', ' ')}"
        second = [said(found.reason, "bold $primary"), said(sure)]
        if found.faulty_nodes:
            second.append(said(f"to blame: {folded(found.faulty_nodes)}", "$error"))
    return [GAP.join(first), GAP.join(second), said(" · ".join(_held(one, seen)), "$foreground 60%")]


def _held(one: Incident, seen: IncidentSeen) -> list[str]:
    told = [f"opened {clock(one.opened, seen.at)}"]
    if one.closed is not None:
        told.append(f"ended {clock(one.closed, seen.at)}")
    if one.owner:
        until = f", {age(one.lease_until, seen.at)} left" if one.lease_until is not None else ""
        told.append(f"held by {one.owner}{until}")
    elif not one.state.ended:
        told.append("nobody works on it now")
    if one.playbook:
        told.append(f"playbook {one.playbook}")
    if one.parent is not None:
        told.append(f"restart of incident {one.parent}")
    if seen.job is not None:
        told.append(f"job {seen.job.id} {seen.job.state}")
    elif seen.job_unknown:
        told.append("job unknown now")
    return told


def job_head(seen: JobSeen) -> list[Content]:
    """Return the head of a job."""
    job = seen.job
    if job is None:
        return [said(f"? job {seen.id}", "bold $warning"), said(seen.unknown), Content("")]
    look = JOBS[job.state]
    first = [said(f"{look.sign} {job.state}", f"bold {tint(look.colour)}"), said(f"job {job.id}", "bold"), said(job.name)]
    first += [said(text, "$foreground 60%") for text in (job.user, job.partition, job.reason) if text]
    ended = f"exit code {job.exit_code}" if job.exit_code is not None else ""
    ended += f", signal {job.signal}" if job.signal else ""
    nodes = f"{len(job.nodes)} nodes: {folded(job.nodes, 6)}" if job.nodes else "no nodes"
    times = [
        f"{word} {clock(at, seen.at)} ({age(at, seen.at)} ago)"
        for word, at in (("submitted", job.submitted), ("started", job.started), ("ended", job.ended))
        if at is not None
    ]
    again = f"attempt {job.attempt + 1}" if job.attempt else ""
    log = f"log {job.log}" if job.log is not None else "where it logs is not known"
    facts = " · ".join(filter(None, (*times, again, ended, job.comment)))
    return [GAP.join(first), said(f"{nodes} · {log}"), said(facts, "$foreground 60%")]


def nodes_head(seen: NodesSeen, names: str) -> list[Content]:
    """Return the head of some nodes."""
    states = Counter(one.node.state if one.node is not None else NodeState.UNKNOWN for one in seen.nodes)
    count = len(seen.nodes)
    first = [said(names, "bold"), said(f"{count:,} nodes" if count != 1 else "", "$foreground 60%")]
    first += [said(f"{NODES[state].sign} {number:,} {state}", tint(NODES[state].colour)) for state, number in states.most_common()]
    if seen.unknown:
        return [GAP.join(first), said(seen.unknown, "$warning")]
    if count != 1:
        return [GAP.join(first)]
    return [GAP.join(first), *_one(seen)]


def _one(seen: NodesSeen) -> list[Content]:
    one = seen.nodes[0]
    if one.node is None:
        return [said("The scheduler knows no node of this name.", "$warning")]
    told = [part for part in (one.node.partition, ", ".join(one.node.features)) if part]
    told.append(f"runs job {', '.join(one.node.jobs)}" if one.node.jobs else "runs no job")
    reason = one.node.reason
    if one.lease is not None:
        until = f"until {clock(one.lease.until, seen.at)}" if one.lease.until is not None else "without an end"
        gone = " (has run out)" if one.lease.expired(seen.at) else ""
        reason = f"our cordon {until}{gone}, by {one.lease.by}: {one.lease.why}"
    elif reason:
        reason = f"somebody else set it aside: {reason}"
    return [said(" · ".join(told), "$foreground 60%"), said(reason, "$warning")]
