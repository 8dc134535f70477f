"""Recoveries that words begin: the work of `nightshift recover`, in the agent's name, so that the policy asks about each change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assistant.agent.tellers import RecoveryState, WaitingChange
from assistant.engine.lease import owner_name
from assistant.store.approvals import SHORT_DIGEST
from assistant.tooling import find_tool

if TYPE_CHECKING:
    from assistant.engine.engine import Engine
    from assistant.records import Incident

BY = "agent"
"""In whose name the changes are asked for: no mode of the policy lets one of them through without a person."""


class RecoveryByWords:
    """Works incidents of one engine; an `agent.recovering.Recovery`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def standing(self, job: str) -> RecoveryState | None:
        """Return where the newest incident of a job stands; None where there is none."""
        found = self._engine.store.incidents(job=job, limit=1)
        return self._begun(found[0]) if found else None

    def begin(self, job: str) -> RecoveryState:
        """Go on with the incident of a job, opened where none is open, until a change waits for a person or it ends.

        Raises:
            ToolError: The scheduler knows no such job.
        """
        engine = self._engine
        unfinished = engine.store.incidents(job=job, open_only=True, limit=1)
        incident = unfinished[0] if unfinished else engine.open_for(job, by=BY)
        return self._begun(engine.work(incident.id, owner=owner_name(BY), by=BY))

    def _begun(self, incident: Incident) -> RecoveryState:
        store = self._engine.store
        asked = [(one, store.call(one.call)) for one in store.approvals()]
        waiting = tuple(
            WaitingChange(
                one.id,
                call.tool,
                call.preview or call.tool,
                call.why,
                find_tool(call.tool).undo is not None,
                one.digest[:SHORT_DIGEST],
            )
            for one, call in asked
            if call.incident == incident.id
        )
        return RecoveryState(incident.id, str(incident.state), incident.note, waiting)
