"""Confirm what an incident was, by its recovery or by a person's word, and learn from it and from labelled logs.

A labelled log is diagnosed, and what the diagnosis gets wrong is taught as if a person had corrected it. It becomes a closed
incident of its own, so that an answer can name it ("seen before in incident 41"); the same log is the same incident.
"""

from __future__ import annotations

import difflib
import hashlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from assistant.diagnose.answer import advice, own_place
from assistant.diagnose.case import Case, Label
from assistant.diagnose.facts import Facts, gather
from assistant.diagnose.facts import gather as facts_of
from assistant.diagnose.learning.learn import Lesson, Taught, Teacher
from assistant.diagnose.readers.candidate_lines import cited_lines, guessed_line
from assistant.diagnose.verdict import diagnose
from assistant.engine.outcomes.completed_jobs import task_of
from assistant.errors import InputError, NightshiftError, Unavailable, UsageError
from assistant.logs.attempt import JobLogs
from assistant.logs.reading import open_log
from assistant.records import (
    Action,
    CallStatus,
    Citation,
    DecidedBy,
    Diagnosis,
    Event,
    EventKind,
    Incident,
    IncidentState,
    Job,
    Risk,
    Rival,
)
from assistant.recover.joblog import LOGS, noted_logs
from assistant.redact import head_of
from assistant.store import Store
from assistant.tooling import found as tools
from assistant.untrusted import READ_S, is_regular, list_folder, read_start, reading_as, status_of, within

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

logger = logging.getLogger(__name__)

LARGEST_LOG = 64 << 20
"""Bytes of a job log that is read once more when its incident is confirmed; of larger ones the cited lines have to do."""
MAKERS = {DecidedBy.MEMORY: "memory", DecidedBy.MODEL: "model"}
"""Diagnoses of these become signatures when they are confirmed; what the rules found, rules know already."""


@dataclass(frozen=True)
class Confirmation:
    """The confirmed reason of an incident, and what was learned from it."""

    diagnosis: Diagnosis
    taught: Taught
    lines: tuple[Citation, ...]
    """What it was learned from."""


def confirm(
    engine: EnginePort,
    incident_id: int,
    *,
    by: str,
    reason: str = "",
    action: str = "",
    lines: Sequence[str] = (),
    why: str = "",
    cure: str = "",
) -> Confirmation:
    """Take a person's word on what an incident was.

    Args:
        engine: Whose store, knowledge and memory.
        incident_id: Which.
        by: Who says so: `alice`.
        reason: What it was; empty: what was diagnosed.
        action: What is to be done about it; empty: what was diagnosed for that reason, else the reason's own.
        lines: What shows it, each `file:line` or a piece of a line; empty: the lines cited, or a guess where the reason is another.
        why: The person's words.
        cure: What brought the job back, in the person's words.

    Raises:
        UsageError: There is no such incident, no diagnosis to confirm, or the reason or action is unknown.
        InputError: A line does not stand in what the attempt left.
    """
    incident, before = engine.store.incident(incident_id), engine.store.diagnosis(incident_id)
    reason_name = _known_reason(engine, reason or (before.reason if before is not None else ""))
    deed = _known_action(action) or (before.action if before is not None and before.reason == reason_name else None)
    facts = _facts(engine, incident)
    changed = before is None or before.reason != reason_name or bool(lines) or (deed is not None and deed is not before.action)
    cited = _reason_lines(engine, facts, before, reason_name, lines, by)
    deed = deed or engine.knowledge.reasons[reason_name].action
    diagnosis = _corrected(engine, before, reason_name, deed, cited, by, why) if changed or before is None else before
    if diagnosis is not before:
        engine.store.add_diagnosis(incident_id, diagnosis)
    former_reason = before.reason if before is not None else ""
    maker = f"operator:{by}" if changed else MAKERS.get(diagnosis.by, "")
    lesson = _lesson(
        engine, incident, diagnosis, cited, facts, by=f"operator:{by}", maker=maker, why=why, former_reason=former_reason
    )
    return Confirmation(diagnosis, teacher_of(engine).teach(replace(lesson, cure=cure or lesson.cure)), cited)


def confirm_recovered(engine: EnginePort, incident: Incident, diagnosis: Diagnosis) -> None:
    """Take a verified recovery as the proof of its diagnosis; what cannot be learned now never holds up a recovery."""
    if engine.embedder is None or not diagnosis.root_cause or diagnosis.reason == "unknown":
        return
    try:
        memory = engine.store.memory(incident.id)
        if memory is not None and memory.by.startswith("operator:"):
            return
        facts = _facts(engine, incident)
        maker = MAKERS.get(diagnosis.by, "")
        lesson = _lesson(
            engine,
            incident,
            diagnosis,
            diagnosis.root_cause,
            facts,
            by="recovered",
            maker=maker,
            why="",
            former_reason=diagnosis.reason,
        )
        teacher_of(engine).teach(lesson)
    except (NightshiftError, OSError) as error:
        logger.warning("incident=%s was not remembered: %s", incident.id, error)


def take_back(engine: EnginePort, incident_id: int, *, by: str, why: str) -> bool:
    """Take a confirmation back; False when the incident was not confirmed."""
    engine.store.incident(incident_id)
    return teacher_of(engine).forget(incident_id, by=f"operator:{by}", why=why)


def teacher_of(engine: EnginePort, *, healthy: Sequence[str] = ()) -> Teacher:
    """Return what keeps the lessons of an engine.

    Raises:
        UsageError: The engine was built without memory.
    """
    if engine.embedder is None:
        raise UsageError("this engine has no memory: it was built without an embedder")
    return Teacher(engine.store, engine.embedder, lambda: engine.knowledge, site=engine.site, healthy=healthy)


def cure_of(store: Store, incident: Incident) -> str:
    """Return what was done that brought the job back, empty where nothing was changed."""
    changing = [
        call
        for call in store.calls(incident.id, status=CallStatus.DONE)
        if call.tool in tools() and tools()[call.tool].risk is not Risk.READ
    ]
    deeds = "; ".join(head_of(" ".join((call.preview or call.tool).split()), 120) for call in changing[:4])
    return f"playbook {incident.playbook}: {deeds}" if incident.playbook and deeds else deeds


def _known_reason(engine: EnginePort, reason: str) -> str:
    reasons = engine.knowledge.reasons
    if reason in reasons and reason != "unknown":
        return reason
    if reason in ("", "unknown"):
        raise UsageError("nothing is known to confirm: say what it was with `nightshift incident correct ID --reason REASON`")
    near = difflib.get_close_matches(reason, reasons, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known ones: {', '.join(sorted(reasons))}"
    raise UsageError(f"there is no reason {reason!r}; {hint}")


def _known_action(action: str) -> Action | None:
    try:
        return Action(action) if action else None
    except ValueError:
        raise UsageError(f"there is no action {action!r}; known ones: {', '.join(Action)}") from None


def _facts(engine: EnginePort, incident: Incident) -> Facts | None:
    """Return the facts of what the attempt left, read again from where the evidence says that it lies; None where it is gone."""
    log: Path | None = None
    logs: JobLogs | None = None
    kernel = account = ""
    for evidence in engine.store.evidence(incident.id):
        if evidence.source == "job log":
            log, account = Path(str(evidence.facts.get("path", ""))), str(evidence.facts.get("account", ""))
        elif evidence.source == LOGS:
            logs = noted_logs(evidence.facts)
        elif evidence.source == "dmesg.log":
            kernel = evidence.text
    try:
        with reading_as(account):
            return within(READ_S, lambda: _read_again(engine, log, logs, kernel), f"the log {log}")
    except (InputError, OSError, Unavailable) as error:
        logger.info("incident=%s its files cannot be read again: %s", incident.id, error)
        return None


def _read_again(engine: EnginePort, log: Path | None, logs: JobLogs | None, kernel: str) -> Facts | None:
    if logs is not None and (case := Case.from_parts(None, kernel, "", None, None, None).with_logs(logs)).logs:
        return facts_of(case, engine.knowledge)
    if log is not None and (not is_regular(log) or status_of(log).st_size > LARGEST_LOG):
        log = None
    if log is None and not kernel:
        return None
    return facts_of(Case.from_parts(log, kernel, "", None, None, None), engine.knowledge)


def _reason_lines(
    engine: EnginePort, facts: Facts | None, before: Diagnosis | None, reason: str, named_lines: Sequence[str], by: str
) -> tuple[Citation, ...]:
    """Return the lines that show the reason: those named, else those cited for it, else a guess."""
    if named_lines and facts is None:
        raise InputError("the job's log is gone: no line of it can be named any more; leave --line out")
    if named_lines and facts is not None:
        cited = cited_lines(facts, named_lines, f"named by {by}")
        return tuple(own_place(line, facts.combined.place, facts.combined.label_of) if facts.combined else line for line in cited)
    if before is not None and before.reason == reason:
        return before.root_cause
    return guessed_line(facts, reason, engine.knowledge) if facts is not None else ()


def _lesson(
    engine: EnginePort,
    incident: Incident,
    diagnosis: Diagnosis,
    cited: tuple[Citation, ...],
    facts: Facts | None,
    *,
    by: str,
    maker: str,
    why: str,
    former_reason: str,
) -> Lesson:
    job = _job(engine, incident)
    return Lesson(
        incident=incident.id,
        reason=diagnosis.reason,
        action=diagnosis.action,
        lines=cited,
        by=by,
        facts=facts,
        maker=maker,
        why=why,
        cure=cure_of(engine.store, incident),
        nodes=diagnosis.faulty_nodes,
        verdict=former_reason,
        task=task_of(job),
    )


def _job(engine: EnginePort, incident: Incident) -> Job | None:
    try:
        return engine.scheduler.job(incident.job) if incident.job is not None else None
    except NightshiftError:
        return None


def _corrected(
    engine: EnginePort, before: Diagnosis | None, reason: str, action: Action, cited: tuple[Citation, ...], by: str, why: str
) -> Diagnosis:
    """Return the diagnosis that a person gave, with the one before among the rivals."""
    reason_entry = engine.knowledge.reasons[reason]
    why_words = f": {why}" if why else ""
    rivals = (
        (
            Rival(
                before.reason,
                before.confidence,
                f"the {before.by} verdict: {head_of(before.summary, 200)}",
                f"{by} says otherwise{why_words}",
                "",
            ),
        )
        if before is not None and before.reason != reason
        else ()
    )
    nodes = before.nodes if before is not None and before.reason == reason else ()
    return Diagnosis(
        reason=reason,
        category=reason_entry.category,
        action=action,
        confidence=1.0,
        by=DecidedBy.OPERATOR,
        root_cause=cited,
        nodes=nodes,
        rivals=rivals,
        summary=f"{reason_entry.title}, by the word of {by}{why_words}.",
        advice=advice(reason_entry, action, nodes),
        step=before.step if before is not None else None,
        spike_step=before.spike_step if before is not None else None,
    )


HEALTHY_BYTES = 4 << 20
"""Of each healthy log that new signatures are held against."""


@dataclass(frozen=True)
class LearnedCase:
    """A labelled case: its diagnosis, its label, and what it taught."""

    label: Label
    before: Diagnosis | None
    """What was diagnosed before it was taught; None when it cannot be read."""
    incident: int | None
    taught: Taught | None
    problem: str = ""
    """Why it could not be used."""

    @property
    def was_right(self) -> bool:
        """Whether the diagnosis agreed with the label already."""
        return self.before is not None and self.before.reason in (self.label.reason, *self.label.also)


def learn_from(engine: EnginePort, labels: Sequence[Label], *, by: str) -> Iterator[LearnedCase]:
    """Diagnose labelled cases in turn and yield each with what it taught; later cases profit from earlier ones.

    Args:
        engine: Whose store and memory.
        labels: Healthy ones (`no_failure`) are what new signatures must not match.
        by: Who teaches: `alice`.
    """
    healthy = [line for label in labels if label.reason == "no_failure" for line in _healthy_lines(label.folder)]
    for label in labels:
        try:
            yield _teach(engine, label, by, healthy)
        except InputError as error:
            yield LearnedCase(label, None, None, None, str(error))


def _teach(engine: EnginePort, label: Label, by: str, healthy: Sequence[str]) -> LearnedCase:
    knowledge = engine.knowledge
    if label.reason not in knowledge.reasons:
        raise InputError(f"there is no reason {label.reason!r}; known ones: {', '.join(sorted(knowledge.reasons))}")
    case = Case.from_path(label.folder)
    before = diagnose(case, knowledge, engine.opinions)
    if label.reason in ("no_failure", "unknown"):
        return LearnedCase(label, before, None, None)
    facts = gather(case, knowledge)
    right = before.reason in (label.reason, *label.also)
    cited = cited_lines(facts, label.lines[:3], f"named by {by}")
    if not cited:
        cited = before.root_cause if before.reason == label.reason else guessed_line(facts, label.reason, knowledge)
    incident = _incident(engine, label)
    lesson = Lesson(
        incident=incident,
        reason=label.reason,
        action=_action(label, knowledge.reasons[label.reason].action),
        lines=cited,
        by=f"operator:{by}",
        facts=facts,
        maker="" if right and before.by == "rule" else f"operator:{by}",
        why=label.why or f"labelled in {label.folder}",
        nodes=label.nodes,
        verdict=before.reason,
    )
    return LearnedCase(label, before, incident, teacher_of(engine, healthy=healthy).teach(lesson))


def _incident(engine: EnginePort, label: Label) -> int:
    """Return the closed incident that stands for a labelled case."""
    name = f"lesson:{label.folder.name}:{_digest(label)}"
    incident, new = engine.store.open_incident(
        Event(EventKind.JOB_ENDED, name, None, engine.clock.now(), {"lesson": str(label.folder)}), by="learn"
    )
    if new:
        engine.store.set_state(incident.id, IncidentState.CLOSED, note=f"a labelled case: {label.reason}", by="learn")
    return incident.id


def _digest(label: Label) -> str:
    """Return a mark of a case by what it holds, so that the same case elsewhere is the same lesson."""
    digest = hashlib.sha256()
    for path in list_folder(label.folder):
        if is_regular(path) and path.suffix in (".log", ".gz", ".out"):
            digest.update(path.name.encode())
            digest.update(read_start(path, 1 << 20))
    return digest.hexdigest()[:10]


def _action(label: Label, usual: Action) -> Action:
    try:
        return Action(label.action) if label.action else usual
    except ValueError:
        raise InputError(f"{label.folder}: there is no action {label.action!r}; known ones: {', '.join(Action)}") from None


def _healthy_lines(folder: Path) -> list[str]:
    """Return the distinct lines of a healthy case's job log."""
    log = Case.from_path(folder).job_log
    if log is None:
        return []
    with open_log(log) as stream:
        return list(dict.fromkeys(stream.read(HEALTHY_BYTES).decode("utf-8", "replace").splitlines()))
