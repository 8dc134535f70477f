"""A store in which a night happened, for the tests of what the watch tells others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from assistant.config.settings import NotifySettings, Severity, SinkSettings
from assistant.daemon.delivery import DeliveryWorker
from assistant.daemon.notifications import Notice
from assistant.daemon.pass_result import PassResult
from assistant.errors import Unavailable
from assistant.ports import JumpingClock
from assistant.records import (
    Action,
    Call,
    CallStatus,
    Category,
    Citation,
    DecidedBy,
    Decision,
    Diagnosis,
    Event,
    EventKind,
    IncidentState,
    NodeFinding,
    Outcome,
    Verdict,
)
from assistant.store import Store

NOON = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
NO_WAIT = NotifySettings(group_s=0)
EVERYTHING = SinkSettings(Path("unused"), severity=Severity.INFO)


def passed(clock: JumpingClock, **changed: object) -> PassResult:
    """A whole pass of a leader, but for what is changed."""
    return PassResult(**{"at": clock.now(), "seconds": 0.4, "leads": True, **changed})  # type: ignore[arg-type]


def diagnosis(reason: str = "ecc_error", node: str = "node042") -> Diagnosis:
    cited = Citation("job.log", 17, f"{node}: uncorrectable ECC error, password=hunter2hunter2", "kernel", "root")
    return Diagnosis(
        reason=reason,
        category=Category.INFRASTRUCTURE,
        action=Action.CORDON_AND_RESTART,
        confidence=0.97,
        by=DecidedBy.RULE,
        root_cause=(cited,),
        nodes=(NodeFinding(node, "it said so", (cited,)),),
        rivals=(),
        summary=f"{reason} on {node}",
        advice=f"replace the GPU of {node}",
        step=120,
        spike_step=None,
    )


class Place:
    """A service that takes what it is given, or does not."""

    def __init__(self) -> None:
        self.took: list[Notice] = []
        self.refuses = False

    def __call__(self, notice: Notice) -> None:
        if self.refuses:
            raise Unavailable("the service is down")
        self.took.append(notice)

    @property
    def titles(self) -> list[str]:
        return [notice.title for notice in self.took]


def courier(store: Store, place: Place, sink: SinkSettings = EVERYTHING, terms: NotifySettings = NO_WAIT) -> DeliveryWorker:
    made = DeliveryWorker("ops", sink, terms, store, place)
    made.begin()
    return made


class Night:
    """Makes things happen in a store."""

    def __init__(self, store: Store, clock: JumpingClock) -> None:
        self.store, self.clock = store, clock

    def fails(self, job: str, *, reason: str = "ecc_error", parent: int | None = None, node: str = "node042") -> int:
        """A job fails and is diagnosed; the incident's number."""
        event = Event(EventKind.JOB_ENDED, job, None, self.clock.now(), {"name": "llm-7b"})
        incident, _ = self.store.open_incident(event, parent=parent)
        self.store.add_diagnosis(incident.id, diagnosis(reason, node))
        return incident.id

    def ends(self, incident: int, state: IncidentState, note: str = "it is over") -> None:
        self.store.set_state(incident, state, note=note)

    def asks(self, incident: int, node: str = "node042") -> int:
        """A cordon waits for a person; the approval's number."""
        call = self._call(incident, node, CallStatus.PENDING)
        asked = Decision(Verdict.ASK, "mode.propose", "policy", self.clock.now(), "cordon is in mode propose")
        return self.store.park(call.id, asked, self.clock.now() + timedelta(hours=24))

    def cordons(self, incident: int, node: str = "node042", *, ok: bool = True) -> int:
        """A node is cordoned, or could not be; the call's number."""
        call = self._call(incident, node, CallStatus.INTENT)
        outcome = Outcome(call.id, ok, {"cordoned": True} if ok else None, "" if ok else "no rights", self.clock.now())
        self.store.write_outcome(outcome, undo=f"nightshift undo {call.id}" if ok else "")
        return call.id

    def uncordons(self, node: str = "node042") -> None:
        call = Call(0, None, "uncordon_node", {"node": node}, "it passes", "cli:ada", self.clock.now(), CallStatus.INTENT)
        written = self.store.write_call(call, kind="uncordon", targets={"nodes": [node]})
        self.store.write_outcome(Outcome(written.id, True, {"node": node}, "", self.clock.now()))

    def tells_owner(self, incident: int, owner: str = "ada") -> None:
        arguments = {"job": "7", "reason": "type_error", "advice": "fix line 3", "owner": owner}
        call = Call(0, incident, "tell_owner", arguments, "a bug", "playbook:owner", self.clock.now(), CallStatus.INTENT)
        written = self.store.write_call(call)
        text = f"{owner}: job 7 (llm-7b) failed: type_error.\nfix line 3"
        self.store.write_outcome(Outcome(written.id, True, {"owner": owner, "text": text}, "", self.clock.now()))

    def _call(self, incident: int, node: str, status: CallStatus) -> Call:
        preview = f"scontrol update NodeName={node} State=DRAIN"
        call = Call(
            0, incident, "cordon_node", {"node": node}, "ECC error", "playbook:ecc", self.clock.now(), status, None, preview
        )
        return self.store.write_call(call, kind="cordon", targets={"nodes": [node]})
