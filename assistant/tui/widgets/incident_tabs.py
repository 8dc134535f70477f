"""The tabs of an incident's screen: verdict, evidence, playbook, changes and timeline, with what can be opened in each."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from datetime import datetime

from assistant.records import CallStatus, Citation, Diagnosis, Evidence, Recall, Risk, Rival, Verdict
from assistant.redact import head_of
from assistant.tui.about_incident import At, CallEntry, IncidentSnapshot, Play, StepEntry
from assistant.tui.widgets.tables import Item, Openable, StyledText, heading, item
from assistant.tui.words import RISKS, about, age, clock

ROLES = {"root": "error", "cascade": "warning", "teardown": "dim", "benign": "dim", "recovered": "success"}
"""How the roles of lines are coloured; the word stands beside it."""


class VerdictView(Openable):
    """Show what failed, where and how sure that is."""

    def __init__(self) -> None:
        super().__init__(label_width=16)

    def tell(self, snapshot: IncidentSnapshot) -> None:
        """Show the verdict."""
        self.show(list(verdict_items(snapshot)))


def verdict_items(snapshot: IncidentSnapshot) -> Iterator[Item]:
    """Yield what the verdict says. Keys: `cite:N`, `node:N:M`, `nodes:NAME`, `incident:ID`, `log`, `times`, `playbook`."""
    diagnosis = snapshot.diagnosis
    if diagnosis is None:
        yield heading("No diagnosis yet")
        yield item(
            "timeline", about(snapshot.incident), f"noticed as {snapshot.incident.kind}", StyledText(snapshot.incident.note, "dim")
        )
        yield from _unknown(snapshot)
        return
    sure = f"{diagnosis.confidence:.2f} sure, decided by {diagnosis.by}"
    yield item("log", StyledText(diagnosis.reason, "bold"), diagnosis.summary, StyledText(sure, "dim"))
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


def _figures(snapshot: IncidentSnapshot, diagnosis: Diagnosis) -> Iterator[Item]:
    steps = [f"last step {diagnosis.step:,}"] if diagnosis.step is not None else []
    steps += [f"spike from step {diagnosis.spike_step:,}"] if diagnosis.spike_step is not None else []
    steps += [f"{snapshot.times.steps_lost:,} steps lost"] if snapshot.times.steps_lost is not None else []
    steps += [f"while in {diagnosis.phase.replace('_', ' ')}"] if diagnosis.phase else []
    if steps:
        yield item("curves", "training", " · ".join(steps))


def _unknown(snapshot: IncidentSnapshot) -> Iterator[Item]:
    if snapshot.job_unknown:
        yield item("evidence", StyledText("unknown", "warning"), snapshot.job_unknown)


def _cited(diagnosis: Diagnosis) -> Iterator[Item]:
    yield heading("Lines that prove it")
    if not diagnosis.root_cause:
        yield item("evidence", "none", StyledText("No line was cited: the verdict rests on the evidence as a whole.", "dim"))
    for number, cited in enumerate(diagnosis.root_cause):
        yield _line(f"cite:{number}", cited)


def _line(key: str, cited: Citation) -> Item:
    about_it = (StyledText(cited.role, ROLES.get(cited.role, "")), StyledText(f" · {cited.rule}", "dim"))
    return item(key, StyledText(f"{cited.file}:{cited.line}", "accent"), cited.text, about_it)


def _nodes(diagnosis: Diagnosis) -> Iterator[Item]:
    if diagnosis.nodes:
        yield heading("Nodes to blame")
    for number, finding in enumerate(diagnosis.nodes):
        yield item(f"nodes:{finding.node}", StyledText(finding.node, "error"), finding.why)
        for place, cited in enumerate(finding.citations):
            if cited not in diagnosis.root_cause:
                yield _line(f"node:{number}:{place}", cited)
    if diagnosis.patterns:
        yield heading("Across nodes")
    for number, pattern in enumerate(diagnosis.patterns):
        odds = f"by chance {pattern.chance:.1g}" if pattern.chance is not None else ""
        incidents_text = f"incidents {', '.join(map(str, pattern.incidents))}" if pattern.incidents else ""
        yield item(
            f"pattern:{number}",
            str(pattern.kind),
            pattern.text,
            StyledText(" · ".join(filter(None, (odds, incidents_text))), "dim"),
        )


def _rival(number: int, rival: Rival) -> Item:
    parts = [(StyledText(f"{name} ", "dim"), StyledText(text)) for name, text in weighed(rival) if text]
    return item(f"rival:{number}", f"{rival.confidence:.2f}", StyledText(rival.reason, "bold"), *parts)


def weighed(rival: Rival) -> tuple[tuple[str, str], ...]:
    """Return what speaks for an explanation, what against it, and what would decide."""
    return ("for", rival.speaks_for), ("against", rival.speaks_against), ("would decide", rival.test)


def _recall(recall: Recall, snapshot: IncidentSnapshot) -> Item:
    similarity_text = f"{recall.reason}, similarity {recall.similarity:.2f}, {age(recall.at, snapshot.at)} ago"
    shared = f"shares {', '.join(recall.shared)}" if recall.shared else ""
    cure = f"cured by {recall.cure}" if recall.cure else "what cured it is not known"
    return item(
        f"incident:{recall.incident}",
        f"incident {recall.incident}",
        similarity_text,
        StyledText(shared, "dim"),
        StyledText(cure, "success"),
    )


def _related(snapshot: IncidentSnapshot) -> Iterator[Item]:
    parent = snapshot.incident.parent
    if parent is not None or snapshot.followers or snapshot.restarts:
        yield heading("Before and after")
    if parent is not None:
        yield item(f"incident:{parent}", f"incident {parent}", "this job was its restart")
    for job in snapshot.restarts:
        yield item(f"job:{job.id}", f"job {job.id}", f"the restart: {job.state}")
    for follower in snapshot.followers:
        yield item(f"incident:{follower}", f"incident {follower}", "a restart of this one failed as well")


# What the verdict rests on: every fact that was gathered, folded to its first lines; each opens whole.

SHOWN_LINES = 3


class EvidenceView(Openable):
    """Show the lines that prove a diagnosis."""

    def __init__(self) -> None:
        super().__init__(label_width=12)

    def tell(self, snapshot: IncidentSnapshot) -> None:
        """Show the evidence."""
        self.show(list(evidence_items(snapshot)))


def evidence_items(snapshot: IncidentSnapshot) -> Iterator[Item]:
    """Yield the evidence and the readings of the playbook. Keys: `evidence:ID`, `call:ID`."""
    if not snapshot.evidence:
        yield heading("No evidence yet")
    else:
        yield heading(f"Evidence ({len(snapshot.evidence)})")
    for record in snapshot.evidence:
        yield _fact(record, snapshot)
    looks = [record for record in snapshot.calls if record.risk is Risk.READ and record.call.step is not None]
    if looks:
        yield heading(f"What the playbook looked at ({len(looks)})")
    for look in looks:
        text = value_text(look)
        head = (StyledText(look.call.step or "", "bold"), StyledText(f"  {look.call.tool}", "dim"))
        yield item(f"call:{look.call.id}", StyledText(clock(look.call.at, snapshot.at), "dim"), head, *_folded(text))


def _fact(evidence: Evidence, snapshot: IncidentSnapshot) -> Item:
    unknown = evidence.facts.get("known") is False
    count = readable(evidence.text).count("\n") + 1
    head = (
        StyledText(f"#{evidence.id} ", "dim"),
        StyledText(evidence.source, "bold warning" if unknown else "bold"),
        StyledText(f"  {count:,} line{'s' * (count != 1)}", "dim"),
    )
    return item(
        f"evidence:{evidence.id}", StyledText(clock(evidence.at, snapshot.at), "dim"), head, *_folded(readable(evidence.text))
    )


def readable(text: str) -> str:
    """Return evidence as people read it: of a value that was kept as it was printed, the text in it."""
    if not text.startswith("{"):
        return text
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text  # it was cut at its end, or is no value
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return str(value["text"])
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _folded(text: str) -> list[StyledText]:
    """Return the first lines of a text, each cut, and how many are left."""
    lines = [line for line in text.splitlines() if line.strip()]
    parts = [StyledText(head_of(line, 239, "…"), "dim") for line in lines[:SHOWN_LINES]]
    remaining = len(lines) - len(parts)
    return [*parts, StyledText(f"… {remaining:,} more line{'s' * (remaining != 1)}: Enter", "accent")] if remaining else parts


def value_text(call_entry: CallEntry) -> str:
    """Return what a call returned, as text for people."""
    outcome = call_entry.outcome
    if outcome is None:
        return f"{call_entry.call.status}: nothing is known of its outcome"
    if not outcome.ok:
        return f"failed: {outcome.error}"
    if isinstance(outcome.value, str):
        return outcome.value
    return json.dumps(outcome.value, indent=2, ensure_ascii=False, default=str)


# The playbook of an incident: its steps with what each found, where it stands, what comes next, what is left of its budget.

STEP_SIGNS = {
    At.DONE: ("✓", "success"),
    At.FAILED: ("✗", "error"),
    At.NOW: ("▸", "accent"),
    At.WAITS: ("?", "accent"),
    At.SKIPPED: ("–", "dim"),
    At.NEXT: ("·", "dim"),
}
STANDING = {At.NOW: "here it stands", At.WAITS: "waits for a yes: press a", At.SKIPPED: "not taken"}


class PlaybookView(Openable):
    """Show the steps of a playbook and how far it has come."""

    def __init__(self) -> None:
        super().__init__(label_width=16)

    def tell(self, snapshot: IncidentSnapshot) -> None:
        """Show the steps of the playbook."""
        self.show(list(playbook_items(snapshot.play)))


def playbook_items(play: Play) -> Iterator[Item]:
    """Yield steps, verifies and limits. Keys: `step:NAME`, `file`."""
    if not play.name:
        yield heading("No playbook")
        yield item("none", "why", play.note)
        return
    yield heading("Playbook" if play.has_begun else "The playbook that would be taken")
    yield item("file", StyledText(play.name, "bold"), play.title, StyledText(play.note, "warning"))
    yield heading("Steps")
    yield from (_step(step, play) for step in play.steps if not step.verify)
    if any(step.verify for step in play.steps):
        yield heading("How it is verified")
    yield from (_step(step, play) for step in play.steps if step.verify)
    yield heading("Limits")
    if play.budget is not None:
        remaining = max(0, play.budget.limit - play.budget.used)
        yield item("budget", f"{remaining} left", play.budget.why)
    elif play.limits is not None:
        yield item("budget", "restarts", StyledText("This playbook restarts nothing.", "dim"))
    yield item("ends", "end", play.ends)


def _step(step: StepEntry, play: Play) -> Item:
    sign, look = STEP_SIGNS[step.at]
    state = STANDING.get(step.at, "" if step.at is At.NEXT else str(step.at)) if play.has_begun else ""
    head = (StyledText(step.tool, "dim"), StyledText(f"  {state}" if state else "", f"bold {look}"))
    parts = (StyledText(step.why, "dim" if step.at in (At.SKIPPED, At.NEXT) else ""), StyledText(step.expects, "dim"))
    result = (StyledText("found ", "dim"), StyledText(step.outcome)) if step.outcome else StyledText("")
    return item(f"step:{step.name}", StyledText(f"{sign} {step.name}", look), head, *parts, result)


# What was changed: the exact command, who allowed it, what came of it, how it is taken back.

CALL_SIGNS = {
    CallStatus.DONE: ("✓", "success"),
    CallStatus.FAILED: ("✗", "error"),
    CallStatus.DENIED: ("✗", "error"),
    CallStatus.PENDING: ("?", "accent"),
    CallStatus.INTENT: ("▸", "warning"),
    CallStatus.UNDONE: ("–", "dim"),
}
VERDICTS = {Verdict.ALLOW: "allowed by", Verdict.ASK: "a person is asked, says", Verdict.DENY: "refused by"}


class ChangesView(Openable):
    """Show the changes that were made for an incident."""

    def __init__(self) -> None:
        super().__init__(label_width=12)

    def tell(self, snapshot: IncidentSnapshot) -> None:
        """Show the changes."""
        self.show(list(change_items(snapshot)))

    @property
    def call(self) -> int | None:
        """The call that the cursor is on."""
        kind, _, number = self.key_at_cursor.partition(":")
        return int(number) if kind == "call" else None


def change_items(snapshot: IncidentSnapshot) -> Iterator[Item]:
    """Yield the changes, oldest first. Keys: `call:ID`."""
    if not snapshot.changes:
        yield heading("Nothing was changed")
        return
    yield heading(f"Changes ({len(snapshot.changes)})")
    for call_entry in snapshot.changes:
        yield _change(call_entry, snapshot)


def _change(call_entry: CallEntry, snapshot: IncidentSnapshot) -> Item:
    call, outcome, decided = call_entry.call, call_entry.outcome, call_entry.decision
    sign, look = CALL_SIGNS[call.status]
    at = outcome.at if outcome is not None else call.at
    state = "failed" if outcome is not None and not outcome.ok else str(call.status)
    allowed = f"{VERDICTS[decided.verdict]} {decided.by} ({decided.rule})" if decided is not None else "not decided"
    parts: list[StyledText | tuple[StyledText, ...]] = [
        StyledText(call.preview or f"{call.tool} {dict(call.arguments)}", "bold"),
        (StyledText(state, look), StyledText(f" at {clock(at, snapshot.at)} · {allowed} · {RISKS[call_entry.risk][0]}", "dim")),
        (StyledText("why ", "dim"), StyledText(f"{call.why}  ({call.by})")),
    ]
    if outcome is not None and not outcome.ok:
        parts.append((StyledText("error ", "dim"), StyledText(outcome.error, "error")))
    if call_entry.can_be_undone:
        parts.append((StyledText("undo ", "dim"), StyledText(f"nightshift undo {call.id}, or press u")))
    elif call.status is CallStatus.UNDONE:
        parts.append(StyledText("taken back", "dim"))
    return item(f"call:{call.id}", StyledText(f"{sign} call {call.id}", look), *parts)


# What happened in an incident, oldest first, with the time that each stage took.

_LOOKS = {
    "recovered": "success",
    "escalated": "error",
    "done": "success",
    "failed": "error",
    "denied": "error",
    "pending": "accent",
}


SHORT = 50
"""Characters of a text that stands beside its stage instead of below."""


class TimelineView(Openable):
    """The timeline."""

    def __init__(self) -> None:
        super().__init__(label_width=12)

    def tell(self, snapshot: IncidentSnapshot) -> None:
        """Show the timeline."""
        self.show(list(timeline_items(snapshot)))


def timeline_items(snapshot: IncidentSnapshot) -> Iterator[Item]:
    """Yield what happened. Keys: `evidence`, `changes`, `verdict` and so on: the tab that tells more, with a number behind it."""
    yield heading("How long it took")
    figures = stage_times(snapshot)
    for name, text in figures:
        yield item(f"playbook:{name}", name, text)
    if not figures:
        yield item("playbook:none", "nothing yet", StyledText("No stage has ended.", "dim"))
    yield heading("What happened")
    previous: datetime | None = None
    for number, moment in enumerate(snapshot.moments):
        later = f"+{span((moment.at - previous).total_seconds())}" if previous is not None and moment.at > previous else ""
        head = [StyledText(moment.stage.replace("_", " "), f"bold {_LOOKS.get(moment.stage, '')}")]
        head += [StyledText(f"  {later}", "dim")] if later else []
        is_short = len(moment.text) < SHORT
        head += [StyledText(f"  {moment.text}")] if is_short else []
        text_below = "" if is_short else moment.text
        yield item(f"{_tab(moment.stage)}:{number}", StyledText(clock(moment.at, snapshot.at), "dim"), tuple(head), text_below)
        previous = moment.at


def stage_times(snapshot: IncidentSnapshot) -> list[tuple[str, str]]:
    """Return the durations of the stages that have ended, and what was lost, by name."""
    times = snapshot.times
    stages = (
        ("detected", times.detect_s, "after the failure"),
        ("diagnosed", times.diagnose_s, "after the opening"),
        ("resubmitted", times.resubmit_s, "after the diagnosis"),
        ("recovered", times.recover_s, "after the failure"),
    )
    rows = [(name, f"{span(seconds)} {origin}") for name, seconds, origin in stages if seconds is not None]
    if times.steps_lost is not None:
        rows.append(("lost", f"{times.steps_lost:,} steps: restarted from step {times.restart_step:,}"))
    return rows


def span(seconds: float) -> str:
    """Return a duration: `no time`, `0.4 s`, `42 s`, `3 m 20 s`, `5 h 02 m`."""
    if seconds < 0.05:
        return "no time"
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, seconds_left = divmod(round(seconds), 60)
    if not minutes:
        return f"{seconds_left} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} m" if hours else f"{minutes} m {seconds_left:02} s"


def _tab(stage: str) -> str:
    if stage in set(CallStatus):
        return "changes"
    return {"diagnosed": "verdict", "planned": "playbook", "restarted": "playbook"}.get(stage, "evidence")
