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

    def tell(self, seen: IncidentSeen) -> None:
        """Show it."""
        self.show(list(verdict_items(seen)))


def verdict_items(seen: IncidentSeen) -> Iterator[Item]:
    """Yield what the verdict says. Keys: `cite:N`, `node:N:M`, `nodes:NAME`, `incident:ID`, `log`, `times`, `playbook`."""
    found = seen.diagnosis
    if found is None:
        yield heading("No diagnosis yet")
        yield item("timeline", about(seen.incident), f"noticed as {seen.incident.kind}", Part(seen.incident.note, "dim"))
        yield from _unknown(seen)
        return
    sure = f"{found.confidence:.2f} sure, decided by {found.by}"
    yield item("log", Part(found.reason, "bold"), found.summary, Part(sure, "dim"))
    yield item("timeline", str(seen.incident.state), seen.incident.note)
    if found.advice:
        yield item("playbook", "advice", found.advice)
    yield from _figures(seen, found)
    yield from _unknown(seen)
    yield from _cited(found)
    yield from _nodes(found)
    if found.rivals:
        yield heading("Weighed and not chosen")
        yield from (_rival(number, rival) for number, rival in enumerate(found.rivals))
    if found.seen_before:
        yield heading("Seen before")
        yield from (_recall(recall, seen) for recall in found.seen_before)
    yield from _related(seen)


def _figures(seen: IncidentSeen, found: Diagnosis) -> Iterator[Item]:
    steps = [f"last step {found.step:,}"] if found.step is not None else []
    steps += [f"spike from step {found.spike_step:,}"] if found.spike_step is not None else []
    steps += [f"{seen.times.steps_lost:,} steps lost"] if seen.times.steps_lost is not None else []
    steps += [f"while in {found.phase.replace('_', ' ')}"] if found.phase else []
    if steps:
        yield item("curves", "training", " · ".join(steps))


def _unknown(seen: IncidentSeen) -> Iterator[Item]:
    if seen.job_unknown:
        yield item("evidence", Part("unknown", "warning"), seen.job_unknown)


def _cited(found: Diagnosis) -> Iterator[Item]:
    yield heading("Lines that prove it")
    if not found.root_cause:
        yield item("evidence", "none", Part("No line was cited: the verdict rests on the evidence as a whole.", "dim"))
    for number, cited in enumerate(found.root_cause):
        yield _line(f"cite:{number}", cited)


def _line(key: str, cited: Citation) -> Item:
    about_it = (Part(cited.role, ROLES.get(cited.role, "")), Part(f" · {cited.rule}", "dim"))
    return item(key, Part(f"{cited.file}:{cited.line}", "accent"), cited.text, about_it)


def _nodes(found: Diagnosis) -> Iterator[Item]:
    if found.nodes:
        yield heading("Nodes to blame")
    for number, finding in enumerate(found.nodes):
        yield item(f"nodes:{finding.node}", Part(finding.node, "error"), finding.why)
        for place, cited in enumerate(finding.citations):
            if cited not in found.root_cause:
                yield _line(f"node:{number}:{place}", cited)
    if found.patterns:
        yield heading("Across nodes")
    for number, pattern in enumerate(found.patterns):
        odds = f"by chance {pattern.chance:.1g}" if pattern.chance is not None else ""
        others = f"incidents {', '.join(map(str, pattern.incidents))}" if pattern.incidents else ""
        yield item(f"pattern:{number}", str(pattern.kind), pattern.text, Part(" · ".join(filter(None, (odds, others))), "dim"))


def _rival(number: int, rival: Rival) -> Item:
    told = [(Part(f"{name} ", "dim"), Part(text)) for name, text in weighed(rival) if text]
    return item(f"rival:{number}", f"{rival.confidence:.2f}", Part(rival.reason, "bold"), *told)


def weighed(rival: Rival) -> tuple[tuple[str, str], ...]:
    """Return what speaks for an explanation, what against it, and what would decide."""
    return ("for", rival.speaks_for), ("against", rival.speaks_against), ("would decide", rival.test)


def _recall(recall: Recall, seen: IncidentSeen) -> Item:
    alike = f"{recall.reason}, similarity {recall.similarity:.2f}, {age(recall.at, seen.at)} ago"
    shared = f"shares {', '.join(recall.shared)}" if recall.shared else ""
    cure = f"cured by {recall.cure}" if recall.cure else "what cured it is not known"
    return item(f"incident:{recall.incident}", f"incident {recall.incident}", alike, Part(shared, "dim"), Part(cure, "success"))


def _related(seen: IncidentSeen) -> Iterator[Item]:
    parent = seen.incident.parent
    if parent is not None or seen.followers or seen.restarts:
        yield heading("Before and after")
    if parent is not None:
        yield item(f"incident:{parent}", f"incident {parent}", "this job was its restart")
    for job in seen.restarts:
        yield item(f"job:{job.id}", f"job {job.id}", f"the restart: {job.state}")
    for follower in seen.followers:
        yield item(f"incident:{follower}", f"incident {follower}", "a restart of this one failed as well")
