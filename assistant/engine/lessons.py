"""Learn from labelled logs: each is diagnosed, and what the diagnosis gets wrong is taught as if a person had corrected it.

A labelled case becomes an incident of its own, closed, so that an answer can name it: "seen before in incident 41". The same case
again is the same incident.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from assistant.diagnose.case import Case, Label
from assistant.diagnose.facts import gather
from assistant.diagnose.learning.learn import Lesson, Taught
from assistant.diagnose.readers.candidate_lines import cited_lines, guessed_line
from assistant.diagnose.verdict import diagnose
from assistant.engine.confirm import teacher_of
from assistant.errors import InputError
from assistant.logs.reading import open_log
from assistant.records import Action, Diagnosis, Event, EventKind, IncidentState
from assistant.untrusted import is_regular, list_folder, read_start

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

HEALTHY_BYTES = 4 << 20
"""Of each healthy log that new signatures are held against."""


@dataclass(frozen=True)
class Learned:
    """What came of one labelled case."""

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


def learn_from(engine: Engine, labels: Sequence[Label], *, by: str) -> Iterator[Learned]:
    """Yield what came of each labelled case, in turn; later ones profit from earlier ones.

    Args:
        engine: Whose store and memory.
        labels: Healthy ones (`no_failure`) are what new signatures must not match.
        by: Who teaches: `alice`.
    """
    healthy = [line for label in labels if label.reason == "no_failure" for line in _lines(label.folder)]
    for label in labels:
        try:
            yield _taught(engine, label, by, healthy)
        except InputError as error:
            yield Learned(label, None, None, None, str(error))


def _taught(engine: Engine, label: Label, by: str, healthy: Sequence[str]) -> Learned:
    knowledge = engine.knowledge
    if label.reason not in knowledge.reasons:
        raise InputError(f"there is no reason {label.reason!r}; known ones: {', '.join(sorted(knowledge.reasons))}")
    case = Case.from_path(label.folder)
    before = diagnose(case, knowledge, engine.opinions)
    if label.reason in ("no_failure", "unknown"):
        return Learned(label, before, None, None)
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
    return Learned(label, before, incident, teacher_of(engine, healthy=healthy).teach(lesson))


def _incident(engine: Engine, label: Label) -> int:
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


def _lines(folder: Path) -> list[str]:
    """Return the distinct lines of a healthy case's job log."""
    log = Case.from_path(folder).job_log
    if log is None:
        return []
    with open_log(log) as stream:
        return list(dict.fromkeys(stream.read(HEALTHY_BYTES).decode("utf-8", "replace").splitlines()))
