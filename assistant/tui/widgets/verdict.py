"""Why it failed: the verdict with every line, incident and figure that it rests on, each of which opens."""

from __future__ import annotations

from collections.abc import Iterator

from assistant.records import Citation, Diagnosis, Recall, Rival
from assistant.tui.about_incident import IncidentSeen
from assistant.tui.widgets.openable import Item, Openable, Part, heading, item
from assistant.tui.words import about, age

ROLES = {"root": "error", "cascade": "warning", "teardown": "dim", "benign": "dim", "recovered": "success"}
"""How the roles of lines are coloured; the word stands beside it."""


class VerdictView(Openable):
    """The verdict."""

    def __init__(self) -> None:
        super().__init__(left=16)

    def tell(self, snapshot: IncidentSeen) -> None:
        """Show it."""
        self.show(list(verdict_items(snapshot)))


def verdict_items(snapshot: IncidentSeen) -> Iterator[Item]:
    """Yield what the verdict says. Keys: `cite:N`, `node:N:M`, `nodes:NAME`, `incident:ID`, `log`, `times`, `playbook`."""
    diagnosis = snapshot.diagnosis
    if diagnosis is None:
        yield heading("No diagnosis yet")
        yield item(
            "timeline", about(snapshot.incident), f"noticed as {snapshot.incident.kind}", Part(snapshot.incident.note, "dim")
        )
        yield from _unknown(snapshot)
        return
    sure = f"{diagnosis.confidence:.2f} sure, decided by {diagnosis.by}"
    yield item("log", Part(diagnosis.reason, "bold"), diagnosis.summary, Part(sure, "dim"))
    yield item("timeline", str(snapshot.incident.state), snapshot.incident.note)
    if diagnosis.advice:
        yield item("playbook", "advice", diagnosis.advice)
    yield from _figures(snapshot, diagnosis)
    yield from _unknown(snapshot)
    yield from _cited(diagnosis)
    yield from _nodes(diagnosis)
    if diagnosis.rivals:
        yield heading("Weighed and not chosen")
        yield from (_rival(number, rival) for number, rival in enumerate(diagnosis.rivals))
    if diagnosis.seen_before:
        yield heading("Seen before")
        yield from (_recall(recall, snapshot) for recall in diagnosis.seen_before)
    yield from _related(snapshot)


def _figures(snapshot: IncidentSeen, diagnosis: Diagnosis) -> Iterator[Item]:
    steps = [f"last step {diagnosis.step:,}"] if diagnosis.step is not None else []
    steps += [f"spike from step {diagnosis.spike_step:,}"] if diagnosis.spike_step is not None else []
    steps += [f"{snapshot.times.steps_lost:,} steps lost"] if snapshot.times.steps_lost is not None else []
    steps += [f"while in {diagnosis.phase.replace('_', ' ')}"] if diagnosis.phase else []
    if steps:
        yield item("curves", "training", " · ".join(steps))


def _unknown(snapshot: IncidentSeen) -> Iterator[Item]:
    if snapshot.job_unknown:
        yield item("evidence", Part("unknown", "warning"), snapshot.job_unknown)


def _cited(diagnosis: Diagnosis) -> Iterator[Item]:
    yield heading("Lines that prove it")
    if not diagnosis.root_cause:
        yield item("evidence", "none", Part("No line was cited: the verdict rests on the evidence as a whole.", "dim"))
    for number, cited in enumerate(diagnosis.root_cause):
        yield _line(f"cite:{number}", cited)


def _line(key: str, cited: Citation) -> Item:
    about_it = (Part(cited.role, ROLES.get(cited.role, "")), Part(f" · {cited.rule}", "dim"))
    return item(key, Part(f"{cited.file}:{cited.line}", "accent"), cited.text, about_it)


def _nodes(diagnosis: Diagnosis) -> Iterator[Item]:
    if diagnosis.nodes:
        yield heading("Nodes to blame")
    for number, finding in enumerate(diagnosis.nodes):
        yield item(f"nodes:{finding.node}", Part(finding.node, "error"), finding.why)
        for place, cited in enumerate(finding.citations):
            if cited not in diagnosis.root_cause:
                yield _line(f"node:{number}:{place}", cited)
    if diagnosis.patterns:
        yield heading("Across nodes")
    for number, pattern in enumerate(diagnosis.patterns):
        odds = f"by chance {pattern.chance:.1g}" if pattern.chance is not None else ""
        incidents_text = f"incidents {', '.join(map(str, pattern.incidents))}" if pattern.incidents else ""
        yield item(
            f"pattern:{number}", str(pattern.kind), pattern.text, Part(" · ".join(filter(None, (odds, incidents_text))), "dim")
        )


def _rival(number: int, rival: Rival) -> Item:
    parts = [(Part(f"{name} ", "dim"), Part(text)) for name, text in weighed(rival) if text]
    return item(f"rival:{number}", f"{rival.confidence:.2f}", Part(rival.reason, "bold"), *parts)


def weighed(rival: Rival) -> tuple[tuple[str, str], ...]:
    """Return what speaks for an explanation, what against it, and what would decide."""
    return ("for", rival.speaks_for), ("against", rival.speaks_against), ("would decide", rival.test)


def _recall(recall: Recall, snapshot: IncidentSeen) -> Item:
    similarity_text = f"{recall.reason}, similarity {recall.similarity:.2f}, {age(recall.at, snapshot.at)} ago"
    shared = f"shares {', '.join(recall.shared)}" if recall.shared else ""
    cure = f"cured by {recall.cure}" if recall.cure else "what cured it is not known"
    return item(
        f"incident:{recall.incident}", f"incident {recall.incident}", similarity_text, Part(shared, "dim"), Part(cure, "success")
    )


def _related(snapshot: IncidentSeen) -> Iterator[Item]:
    parent = snapshot.incident.parent
    if parent is not None or snapshot.followers or snapshot.restarts:
        yield heading("Before and after")
    if parent is not None:
        yield item(f"incident:{parent}", f"incident {parent}", "this job was its restart")
    for job in snapshot.restarts:
        yield item(f"job:{job.id}", f"job {job.id}", f"the restart: {job.state}")
    for follower in snapshot.followers:
        yield item(f"incident:{follower}", f"incident {follower}", "a restart of this one failed as well")
