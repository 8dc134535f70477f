"""A made-up site: rows of sacct with nodes, and a store whose incidents are about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from assistant.engine.report import Times
from assistant.ports import JumpingClock
from assistant.records import (
    Action,
    Call,
    CallStatus,
    Category,
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
from assistant.reports.figures import ReportFrame
from assistant.reports.intake import TimeRange
from assistant.reports.reading import NO_LIMIT, ReadRequest
from assistant.reports.reliability.incident_facts import Handling, IncidentFacts, Wait, read_incidents
from assistant.reports.reliability.reading import ReadRuns, read_failures
from assistant.reports.workload_types import type_rules
from assistant.store import Store
from tests.unit.reports_here import NOW

HEADER = "JobID|JobName|User|Account|Partition|State|ExitCode|Submit|Start|End|NNodes|NCPUS|AllocTRES|NodeList"
ZERO_S = 1_767_225_600
"""2026-01-01 00:00 UTC."""


@dataclass(frozen=True)
class Row:
    """One run; times in seconds since `ZERO_S`."""

    id: str
    start: float
    end: float
    state: str = "COMPLETED"
    gpus: int = 8
    name: str = "train"
    user: str = "ann"
    nodes: str = "node01"
    submit: float | None = None
    exit: str = "0:0"
    partition: str = "big"

    @property
    def line(self) -> str:
        """As sacct prints it."""
        submit = self.start - 10 if self.submit is None else self.submit
        times = "|".join(f"{ZERO_S + moment:.0f}" for moment in (submit, self.start, self.end))
        tres = f"gres/gpu={self.gpus}" if self.gpus else "cpu=4"
        return f"{self.id}|{self.name}|{self.user}|team|{self.partition}|{self.state}|{self.exit}|{times}|1|8|{tres}|{self.nodes}"


@dataclass(frozen=True)
class Case:
    """One incident; times in seconds since `ZERO_S`."""

    job: str | None
    failed: float
    opened: float
    reason: str = "nvlink_error"
    category: Category = Category.INFRASTRUCTURE
    action: Action = Action.CORDON_AND_RESTART
    attempt: int = 0
    kind: EventKind = EventKind.JOB_ENDED
    state: IncidentState = IncidentState.RECOVERED
    diagnosed: float | None = None
    step: int | None = None
    phase: str = "training"
    restart: tuple[str, float, int] | None = None
    """New job, when it was submitted, from which step."""
    asked: tuple[float, float] | None = None
    """When a person was asked, and answered."""
    blamed: tuple[str, ...] = ()
    closed_by: str = "engine"
    summary: str = "a summary"
    stages: Sequence[tuple[str, float]] = field(default=())


def at(seconds: float) -> datetime:
    """Return a moment of the site."""
    return datetime.fromtimestamp(ZERO_S, UTC) + timedelta(seconds=seconds)


def text_of(rows: Sequence[Row]) -> str:
    """Return the rows as a file of sacct."""
    return "\n".join([HEADER, *(row.line for row in rows)]) + "\n"


def fill(store: Store, clock: JumpingClock, cases: Sequence[Case]) -> None:
    """Write incidents into a store as the engine does."""
    for case in cases:
        clock.set(at(case.opened))
        node = case.blamed[0] if case.job is None and case.blamed else None
        incident, _ = store.open_incident(Event(case.kind, case.job, node, at(case.failed), attempt=case.attempt))
        store.mark_stage(incident.id, "opened")
        diagnosed = case.opened + 20 if case.diagnosed is None else case.diagnosed
        if case.reason:
            findings = tuple(NodeFinding(name, "it said so") for name in case.blamed)
            words = (case.reason, case.category, case.action, 0.9, DecidedBy.RULE)
            diagnosis = Diagnosis(*words, (), findings, (), case.summary, "", case.step, phase=case.phase)
            store.add_diagnosis(incident.id, diagnosis, at(diagnosed))
            store.mark_stage(incident.id, "diagnosed", at(diagnosed))
        if case.asked is not None:
            asked = Call(0, incident.id, "cordon_node", {}, "why", "playbook:x", at(case.asked[0]), CallStatus.PENDING, "cordon")
            call = store.write_call(asked, kind="cordon")
            approval = store.park(
                call.id, Decision(Verdict.ASK, "r", "policy", at(case.asked[0])), at(1e8), asked_at=at(case.asked[0])
            )
            store.answer(approval, Verdict.ALLOW, "cli:ann", at(case.asked[1]))
        if case.restart is not None:
            job, submitted, step = case.restart
            wish = Call(0, incident.id, "resubmit_job", {}, "why", "playbook:x", at(submitted), CallStatus.INTENT, "restart")
            call = store.write_call(wish, kind="restart")
            store.write_outcome(Outcome(call.id, True, {"job": job, "step": step}, "", at(submitted)))
        for stage, moment in case.stages:
            store.mark_stage(incident.id, stage, at(moment))
        if case.state.ended:
            store.set_state(incident.id, case.state, closed=at(case.opened + 600), by=case.closed_by)


def facts_of(cases: Sequence[Case], folder: Path) -> list[IncidentFacts]:
    """Return what a store says of incidents."""
    clock = JumpingClock(at(0))
    with Store(folder / "store.db", clock) as store:
        fill(store, clock, cases)
        return read_incidents(store)


def plain_facts(cases: Sequence[Case]) -> list[IncidentFacts]:
    """Return incidents without a store, for traces of many."""
    facts = []
    for number, case in enumerate(cases, 1):
        submitted = ZERO_S + case.restart[1] if case.restart else None
        from_step = case.restart[2] if case.restart else None
        lost = max(0, case.step - from_step) if case.step is not None and from_step is not None else None
        times = Times(None, None, None, None, lost, from_step)
        waits = (Wait(ZERO_S + case.asked[0], ZERO_S + case.asked[1]),) if case.asked else ()
        facts.append(
            IncidentFacts(
                number, case.job, case.attempt, case.kind, case.state, ZERO_S + case.opened, ZERO_S + case.failed,
                ZERO_S + case.opened, submitted, case.reason, str(case.category), case.phase, case.step,
                case.restart[0] if case.restart else None, times, waits, Handling.ALONE, case.blamed, "", "",
            )
        )  # fmt: skip
    return facts


def runs_of(
    rows: Sequence[Row] | str,
    folder: Path,
    cases: Sequence[Case] | None = None,
    *,
    facts: Sequence[IncidentFacts] | None = None,
    period: TimeRange = NO_LIMIT,
    zone: str = "UTC",
    anonymous: bool = False,
) -> ReadRuns:
    """Return the runs of rows, with a store's incidents where there are any."""
    path = folder / "rows.txt"
    path.write_text(rows if isinstance(rows, str) else text_of(rows))
    request = ReadRequest(str(path), type_rules(None), zone, NOW, period, None, anonymous)
    return read_failures(request, facts if cases is None else facts_of(cases, folder), folder=folder)


def frame_of(read: ReadRuns, zone: str = "UTC") -> ReportFrame:
    """Return a frame."""
    return ReportFrame("A report", zone, (), read.left_out)


SITE_ROWS = (
    # a run of 64 GPUs: NVLink fails at step 1000, restarted from 900; a hang at 1900 noticed after 600 s; then it completes
    Row("100", 0, 10_000, "FAILED", 64, "pretrain", nodes="node[01-08]", exit="1:0"),
    Row("101", 10_400, 20_400, "CANCELLED by 0", 64, "pretrain", nodes="node[01-07,09]", submit=10_300),
    Row("102", 21_000, 41_000, "COMPLETED", 64, "pretrain", nodes="node[01-07,09]", submit=20_900),
    # a script that fails at its start, and is never diagnosed the second time
    Row("200", 500, 560, "FAILED", 8, "debug", "bob", "node10", exit="2:0"),
    Row("201", 700, 760, "FAILED", 8, "debug", "bob", "node10", exit="2:0"),
    Row("202", 3000, 6000, "COMPLETED", 8, "debug", "bob", "node10"),
    # an evaluation that fails, one that completes
    Row("300", 100, 400, "FAILED", 1, "eval_7b", "eve", "node11", exit="1:0"),
    Row("301", 500, 900, "COMPLETED", 1, "eval_7b", "eve", "node11"),
    # a node is lost under a job that nobody restarts
    Row("400", 0, 7200, "NODE_FAIL", 8, "sft", "cid", "node12"),
    # requeued under its own id
    Row("500", 0, 1000, "FAILED", 8, "rq", "dan", "node13", exit="1:0"),
    Row("500", 1200, 5000, "COMPLETED", 8, "rq", "dan", "node13", submit=1005),
)
SITE_CASES = (
    Case("100", 10_000, 10_030, step=1000, restart=("101", 10_300, 900), blamed=("node08",), stages=(("recovered", 11_000),)),
    Case("200", 560, 570, "type_error", Category.SCRIPT, Action.FIX_AND_RESUBMIT, state=IncidentState.ESCALATED, phase="start"),
    Case(
        "101", 18_400, 19_000, "hang", Category.NONE, kind=EventKind.HANG, step=1900, restart=("102", 20_900, 1800),
        asked=(19_100, 20_100), stages=(("recovered", 22_000),),
    ),
    Case("500", 1000, 1010, "ecc_error", step=500, restart=("500", 1100, 400)),
    Case("999", 50, 60, "network_error"),
)  # fmt: skip
