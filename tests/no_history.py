"""A past in which nothing happened, for tools that are tested by themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from assistant.errors import UsageError
from assistant.records import Call, Decision, Diagnosis, Evidence, Incident, Outcome, Sighting
from assistant.tooling import Question


class NoHistory:
    """No incident was ever opened."""

    def incidents(
        self, *, job: str | None = None, node: str | None = None, open_only: bool = False, limit: int = 50
    ) -> Sequence[Incident]:
        return ()

    store_id = "teststore"

    def runs_of(self, call: int, /) -> Sequence[str]:
        return ()

    def incident(self, incident: int, /) -> Incident:
        raise UsageError(f"there is no incident {incident}")

    def diagnosis(self, incident: int, /) -> Diagnosis | None:
        return None

    def evidence(self, incident: int, /) -> Sequence[Evidence]:
        return ()

    def stages(self, incident: int, /) -> Mapping[str, datetime]:
        return {}

    def calls(self, incident: int | None = None, /) -> Sequence[Call]:
        return ()

    def call(self, call: int, /) -> Call:
        raise UsageError(f"there is no call {call}")

    def outcome(self, call: int, /) -> Outcome | None:
        return None

    def decisions(self, call: int, /) -> Sequence[Decision]:
        return ()

    def sightings(self, since: datetime, node: str | None = None) -> Sequence[Sighting]:
        return ()

    def approvals(self) -> Sequence[Question]:
        return ()
