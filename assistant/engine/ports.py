"""The engine as its parts see it: what they may ask of it, without importing it. `engine.Engine` is the one that runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from assistant.content.playbooks import Playbook
    from assistant.diagnose.knowledge import Knowledge
    from assistant.diagnose.weighing.rivals import Opinion
    from assistant.gate import Gate
    from assistant.ports import Clock, Embedder, Scheduler
    from assistant.records import Diagnosis, Event, Incident, Job
    from assistant.recover.directives import Budget
    from assistant.store import Store
    from assistant.watch.attempts import Remark
    from assistant.watch.watcher import Watcher


class RemarkList(Protocol):
    """Takes remarks for people, which the next pass tells."""

    remarks: list[Remark]


class CompletedLook(Protocol):
    """Looks at jobs that ended well."""

    def look(self, engine: EnginePort, jobs: Sequence[Job]) -> list[Remark]:
        """Open incidents for trainings that failed all the same, and return remarks on others."""


class StuckLook(Protocol):
    """Knows jobs that were queued again and do not begin."""

    def overdue(self, engine: EnginePort, job: Job) -> str:
        """Return why a job is overdue; empty when it is not."""


class RequeueLook(Protocol):
    """Follows jobs that were queued again."""

    @property
    def stuck(self) -> StuckLook:
        """Of these, those that do not begin."""


class FailureCache(Protocol):
    """Remembers what failures of incidents share."""

    def forget(self, incident: int) -> None:
        """Read the failure of an incident anew the next time."""


class EnginePort(Protocol):
    """What the parts of the engine ask of it."""

    store: Store
    gate: Gate
    scheduler: Scheduler
    clock: Clock
    watcher: Watcher
    site: Path | None
    lease_s: float
    opinions: Sequence[Opinion]
    embedder: Embedder | None
    checkpoint_folders: Mapping[str, Path]
    replays: bool

    @property
    def parents(self) -> Callable[[Store, Job | None], int | None]:
        """Gives the incident whose restart a job was."""

    @property
    def good_runs(self) -> RemarkList:
        """Takes remarks."""

    @property
    def completed(self) -> CompletedLook:
        """Jobs that ended well."""

    @property
    def requeues(self) -> RequeueLook:
        """Jobs that were queued again."""

    @property
    def outages(self) -> FailureCache:
        """Failures with one cause."""

    @property
    def knowledge(self) -> Knowledge:
        """All knowledge about failures."""

    @property
    def playbooks(self) -> Mapping[str, Playbook]:
        """All playbooks by name."""

    def knowledge_of(self, task: str) -> Knowledge:
        """Return what is known about failures of a task."""

    def open(self, event: Event) -> Incident:
        """Return the incident of an event: a new one, or the one that it joins."""

    def open_for(self, job_id: str, *, by: str) -> Incident:
        """Return the incident of a job at a person's request, opened where there is none."""

    def work(self, incident_id: int, *, owner: str, by: str | None = None, until: Callable[[], bool] = ...) -> Incident:
        """Take one incident as far as it can go now and return where it stands."""

    def playbook_for(self, diagnosis: Diagnosis, job: Job | None) -> tuple[Playbook | None, str]:
        """Return the playbook for a diagnosis, or None and why there is none to run."""

    def budget(self, playbook: Playbook, diagnosis: Diagnosis, job: Job | None) -> Budget:
        """Return how many restarts a playbook has left for the root cause of a diagnosis."""
