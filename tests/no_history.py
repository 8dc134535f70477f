"""A past in which nothing happened, for tools that are tested by themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from assistant.errors import UsageError
from assistant.records import Call, CallStatus, Decision, Diagnosis, Event, Evidence, Incident, Outcome, Sighting, Verdict
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

    def unacknowledged(self) -> Sequence[int]:
        return ()

    def diagnosis(self, incident: int, /) -> Diagnosis | None:
        return None

    def events(self, incident: int, /) -> Sequence[Event]:
        return ()

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


class MadeCalls(NoHistory):
    """A past in which some calls were made, allowed when each was asked for."""

    def __init__(self, *calls: Call, runs: Mapping[int, Sequence[str]] | None = None, ends: Sequence[Outcome] = ()) -> None:
        self.made = {call.id: call for call in calls}
        self.runs = runs or {}
        self.ends = {end.call: end for end in ends}

    def calls(self, incident: int | None = None, /) -> Sequence[Call]:
        return [call for call in self.made.values() if incident in (None, call.incident)]

    def call(self, call: int, /) -> Call:
        return self.made[call] if call in self.made else super().call(call)

    def runs_of(self, call: int, /) -> Sequence[str]:
        return self.runs.get(call, ())

    def outcome(self, call: int, /) -> Outcome | None:
        return self.ends.get(call)

    def decisions(self, call: int, /) -> Sequence[Decision]:
        return [Decision(Verdict.ALLOW, "mode.act", "policy", self.made[call].at)] if call in self.made else ()


def cordon_call(number: int, incident: int, node: str) -> Call:
    """Return the call that cordoned a node."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return Call(number, incident or None, "cordon_node", {"node": node, "reason": "x"}, "", "playbook:p", at, CallStatus.DONE)
