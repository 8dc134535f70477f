"""What was noticed, and what was done about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from assistant.records.words import CallStatus, EventKind, IncidentState, Verdict


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a watch or a person noticed about a job, a node or a service."""

    kind: EventKind
    job: str | None
    node: str | None
    at: datetime
    detail: Mapping[str, Any] = field(default_factory=dict)
    """JSON values only."""
    attempt: int = 0
    """How often the same job id had been requeued before; 0 for the first run."""
    service: str | None = None
    """What failed for several jobs at once: a host, a bucket, a path, `node NAME`, `error LINE`."""


@dataclass(frozen=True, slots=True)
class Incident:
    """An open case about one job attempt, one node, or one service that failed for several jobs."""

    id: int
    state: IncidentState
    job: str | None
    attempt: int
    node: str | None
    kind: EventKind
    opened: datetime
    failed_at: datetime | None
    """When the failure happened, as far as the scheduler or the log tells."""
    closed: datetime | None
    owner: str | None
    """Who holds the lease; None when nobody works on it."""
    lease_until: datetime | None
    playbook: str | None
    playbook_digest: str | None
    note: str
    """Why it stands where it stands, for people."""
    parent: int | None = None
    """The earlier incident whose restart this job was; None for a first failure."""
    service: str | None = None
    """As in `Event.service`."""

    @property
    def subject(self) -> str:
        """What it is about, in words: `job 4821`, `node gpu007`, `service minio.local:9000`, `path /lustre/pile`."""
        if self.job is not None:
            return f"job {self.job}"
        if self.service is None:
            return f"node {self.node}"
        kind = "path " if self.service.startswith("/") else "" if self.service.startswith(("node ", "error ")) else "service "
        return f"{kind}{self.service}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One fact that a reading call brought."""

    id: int
    incident: int
    source: str
    """Which call brought it: `kernel_log(nodes=node02)`."""
    text: str
    facts: Mapping[str, Any]
    at: datetime


@dataclass(frozen=True, slots=True)
class Call:
    """A tool, its arguments, why, and for which incident."""

    id: int
    incident: int | None
    tool: str
    arguments: Mapping[str, Any]
    why: str
    by: str
    """The door or component that asked: `cli:alice`, `playbook:ecc_error`, `agent`."""
    at: datetime
    status: CallStatus
    step: str | None = None
    """Name of the playbook step it belongs to, unique within an incident."""
    preview: str = ""
    """The exact commands, frozen when the call was first decided; behind ` # ` stand notes for people."""
    digest: str = ""
    """SHA-256 (hex) of the frozen commands and of `preview`; empty until the call was decided for the first time."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Who allowed or refused a call, and by which rule."""

    verdict: Verdict
    rule: str
    """Name of the policy rule, as in knowledge/policy.toml."""
    by: str
    """`policy`, or the person who answered."""
    at: datetime
    why: str = ""
    policy: str = ""
    """Digest of the policy that it was decided under; empty for a person's answer, and where no policy could be read whole."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a call."""

    call: int
    ok: bool
    value: Any
    """JSON value: a playbook reads it with `{step.key}`."""
    error: str
    at: datetime
