"""How records are said in a few cells, and in the first lines of the screens about one thing. Pure.

A state has a sign and a word, never colour alone; ages and texts are short. The first lines say what it is, how it stands, since
when.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from textual.content import Content

from assistant.display import line, shorten
from assistant.errors import ChangesStopped, NightshiftError, Parked
from assistant.nodeset import fold
from assistant.records import Incident, IncidentState, JobState, NodeState, Risk
from assistant.tui.about_incident import IncidentSnapshot, JobSnapshot
from assistant.tui.snapshot import NodesSnapshot


class StateLook(NamedTuple):
    """How a state is shown."""

    sign: str
    """One cell, told apart without colour."""
    colour: str
    """Name of a variable of the theme; empty for plain text."""


INCIDENTS: Mapping[IncidentState, StateLook] = {
    IncidentState.OPEN: StateLook("●", "error"),
    IncidentState.DIAGNOSED: StateLook("◐", "warning"),
    IncidentState.RECOVERING: StateLook("◑", "warning"),
    IncidentState.WAITING: StateLook("?", "accent"),
    IncidentState.VERIFYING: StateLook("◕", "warning"),
    IncidentState.RECOVERED: StateLook("✓", "success"),
    IncidentState.ESCALATED: StateLook("!", "error"),
    IncidentState.CLOSED: StateLook("–", "text-muted"),
}
JOBS: Mapping[JobState, StateLook] = {
    JobState.PENDING: StateLook("·", "text-muted"),
    JobState.RUNNING: StateLook("▸", "success"),
    JobState.COMPLETED: StateLook("✓", "text-muted"),
    JobState.FAILED: StateLook("✗", "error"),
    JobState.NODE_FAIL: StateLook("✗", "error"),
    JobState.OUT_OF_MEMORY: StateLook("✗", "error"),
    JobState.TIMEOUT: StateLook("✗", "warning"),
    JobState.CANCELLED: StateLook("–", "text-muted"),
    JobState.PREEMPTED: StateLook("–", "warning"),
    JobState.UNKNOWN: StateLook("?", "warning"),
}
NODES: Mapping[NodeState, StateLook] = {
    NodeState.IDLE: StateLook("·", "text-muted"),
    NodeState.ALLOCATED: StateLook("▸", "success"),
    NodeState.DRAINING: StateLook("◐", "warning"),
    NodeState.DRAINED: StateLook("○", "warning"),
    NodeState.DOWN: StateLook("✗", "error"),
    NodeState.UNKNOWN: StateLook("?", "warning"),
}
RISKS: Mapping[Risk, tuple[str, str]] = {
    Risk.READ: ("reads only", "text-muted"),
    Risk.CHANGE: ("changes something, can be undone", "warning"),
    Risk.DISRUPT: ("ends something that runs", "error"),
}
"""What a risk means in words, and its colour."""
MODES: Mapping[str, str] = {
    "observe": "mode observe: a person says yes to what they ask for themselves, nothing else is changed",
    "propose": "mode propose: a person says yes to every change",
    "act": "mode act: what the policy allows is done at once, the rest waits for a person",
}
"""What each mode of the policy means."""
RISK_WORDS: Mapping[Risk, str] = {Risk.READ: "reads", Risk.CHANGE: "changes", Risk.DISRUPT: "ends a run"}
"""The same in a few cells."""


def about(incident: Incident) -> str:
    """Return what an incident is about."""
    if incident.job is None:
        return incident.subject
    return f"job {incident.job}" + (f" #{incident.attempt}" if incident.attempt else "")


def age(at: datetime | None, now: datetime) -> str:
    """Return how long ago a moment was, in at most four cells: `42s`, `17m`, `5h`, `12d`; empty for none."""
    if at is None:
        return ""
    seconds = abs((now - at).total_seconds())
    for unit, size, end in (("s", 1, 100), ("m", 60, 100), ("h", 3600, 48)):
        if seconds < end * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds / 86400:.0f}d"


def clock(at: datetime, now: datetime) -> str:
    """Return a moment in local time: the time of day, with the date when it was another day."""
    local, today = at.astimezone(), now.astimezone()
    return local.strftime("%H:%M:%S" if local.date() == today.date() else "%m-%d %H:%M")


def folded(nodes: Iterable[str], most: int = 3) -> str:
    """Return nodes as operators write them, cut where too many pieces are needed."""
    names = list(nodes)
    text = fold(names) if names else ""
    parts = re.split(r",(?![^\[]*\])", text)
    return line(text if len(parts) <= most else f"{','.join(parts[:most])},… ({len(names)})")


def hindrance(error: NightshiftError, otherwise: str = "") -> str:
    """Return why a change was not made: that it waits where the call and a person's yes stand, else `otherwise` and the reason."""
    state = "waits" if isinstance(error, (ChangesStopped, Parked)) else otherwise
    return f"{state}: {error}" if state else str(error)


def short(text: object, width: int) -> str:
    """Return text on one line, escaped, at most `width` characters."""
    return shorten(" ".join(filter(None, line(text).split(" "))), width)


GAP = Content("  ")


def styled(text: object, style: str = "") -> Content:
    """Return text in a style, on one line, whatever it holds."""
    return Content.styled(short(text, 400), style)


def tint(name: str) -> str:
    """Return the style of a variable of the theme; `text-muted` only says how dark a colour is that is not chosen yet."""
    return "$foreground 60%" if name == "text-muted" else f"${name}"


def incident_head(snapshot: IncidentSnapshot) -> list[Content]:
    """Return the head of an incident."""
    incident, diagnosis = snapshot.incident, snapshot.diagnosis
    look = INCIDENTS[incident.state]
    start = incident.failed_at or incident.opened
    first = [
        styled(f"{look.sign} {incident.state}", f"bold {tint(look.colour)}"),
        styled(f"incident {incident.id}", "bold"),
        styled(about(incident)),
    ]
    first += [styled(f"{age(start, snapshot.at)} ago", "$foreground 60%")]
    if snapshot.approvals:
        first.append(styled("waits for you: press a", "bold $accent"))
    second = [styled(f"noticed as {incident.kind}, not diagnosed yet", "$foreground 60%")]
    if diagnosis is not None:
        sure = f"{diagnosis.confidence:.2f} sure · {diagnosis.category} · {str(diagnosis.action).replace('_', ' ')}"
        second = [styled(diagnosis.reason, "bold $primary"), styled(sure)]
        if diagnosis.faulty_nodes:
            second.append(styled(f"to blame: {folded(diagnosis.faulty_nodes)}", "$error"))
    return [GAP.join(first), GAP.join(second), styled(" · ".join(_holders(incident, snapshot)), "$foreground 60%")]


def _holders(incident: Incident, snapshot: IncidentSnapshot) -> list[str]:
    facts = [f"opened {clock(incident.opened, snapshot.at)}"]
    if incident.closed is not None:
        facts.append(f"ended {clock(incident.closed, snapshot.at)}")
    if incident.owner:
        lease_end = f", {age(incident.lease_until, snapshot.at)} left" if incident.lease_until is not None else ""
        facts.append(f"held by {incident.owner}{lease_end}")
    elif not incident.state.ended:
        facts.append("nobody works on it now")
    if incident.playbook:
        facts.append(f"playbook {incident.playbook}")
    if incident.parent is not None:
        facts.append(f"restart of incident {incident.parent}")
    if snapshot.job is not None:
        facts.append(f"job {snapshot.job.id} {snapshot.job.state}")
    elif snapshot.job_unknown:
        facts.append("job unknown now")
    return facts


def job_head(snapshot: JobSnapshot) -> list[Content]:
    """Return the head of a job."""
    job = snapshot.job
    if job is None:
        return [styled(f"? job {snapshot.id}", "bold $warning"), styled(snapshot.unknown), Content("")]
    look = JOBS[job.state]
    first = [styled(f"{look.sign} {job.state}", f"bold {tint(look.colour)}"), styled(f"job {job.id}", "bold"), styled(job.name)]
    first += [styled(text, "$foreground 60%") for text in (job.user, job.partition, job.reason) if text]
    ended = f"exit code {job.exit_code}" if job.exit_code is not None else ""
    ended += f", signal {job.signal}" if job.signal else ""
    nodes = f"{len(job.nodes)} nodes: {folded(job.nodes, 6)}" if job.nodes else "no nodes"
    times = [
        f"{word} {clock(at, snapshot.at)} ({age(at, snapshot.at)} ago)"
        for word, at in (("submitted", job.submitted), ("started", job.started), ("ended", job.ended))
        if at is not None
    ]
    attempt = f"attempt {job.attempt + 1}" if job.attempt else ""
    log = f"log {job.log}" if job.log is not None else "where it logs is not known"
    facts = " · ".join(filter(None, (*times, attempt, ended, job.comment)))
    return [GAP.join(first), styled(f"{nodes} · {log}"), styled(facts, "$foreground 60%")]


def nodes_head(snapshot: NodesSnapshot, names: str) -> list[Content]:
    """Return the head of some nodes."""
    states = Counter(node_entry.node.state if node_entry.node is not None else NodeState.UNKNOWN for node_entry in snapshot.nodes)
    count = len(snapshot.nodes)
    first = [styled(names, "bold"), styled(f"{count:,} nodes" if count != 1 else "", "$foreground 60%")]
    first += [
        styled(f"{NODES[state].sign} {number:,} {state}", tint(NODES[state].colour)) for state, number in states.most_common()
    ]
    if snapshot.unknown:
        return [GAP.join(first), styled(snapshot.unknown, "$warning")]
    if count != 1:
        return [GAP.join(first)]
    return [GAP.join(first), *_one_node(snapshot)]


def _one_node(snapshot: NodesSnapshot) -> list[Content]:
    node_entry = snapshot.nodes[0]
    if node_entry.node is None:
        return [styled("The scheduler knows no node of this name.", "$warning")]
    facts = [part for part in (node_entry.node.partition, ", ".join(node_entry.node.features)) if part]
    facts.append(f"runs job {', '.join(node_entry.node.jobs)}" if node_entry.node.jobs else "runs no job")
    reason = node_entry.node.reason
    if node_entry.lease is not None:
        lease_end = (
            f"until {clock(node_entry.lease.until, snapshot.at)}" if node_entry.lease.until is not None else "without an end"
        )
        expiry = " (has run out)" if node_entry.lease.expired(snapshot.at) else ""
        reason = f"our cordon {lease_end}{expiry}, by {node_entry.lease.by}: {node_entry.lease.why}"
    elif reason:
        reason = f"somebody else set it aside: {reason}"
    return [styled(" · ".join(facts), "$foreground 60%"), styled(reason, "$warning")]


def agent_sentence(answers: str) -> str:
    """Return who answers, in a sentence."""
    if not answers:
        return "Waking up: you can type already."
    if answers == "words only":
        return "Without a language model: your words choose what is looked at, and every answer names its sources."
    if answers.startswith("embedded"):
        return "Without a language model: the embedded model chooses what is looked at, and every answer names its sources."
    return f"{answers} answers; what it says is checked against what was looked at."
