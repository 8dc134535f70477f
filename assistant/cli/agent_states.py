"""A recorded state of a cluster, from a file, with an engine on it: what questions are asked about in `nightshift bench agent`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from assistant.config import Settings
from assistant.content.reading import build as built
from assistant.content.reading import read_toml
from assistant.engine import Engine
from assistant.nodeset import expand
from assistant.policy import Mode, load_policy
from assistant.ports import JumpingClock
from assistant.records import (
    Call,
    CallStatus,
    Decision,
    Event,
    EventKind,
    IncidentState,
    Job,
    JobSpec,
    JobState,
    Node,
    NodeState,
    Outcome,
    Verdict,
)
from assistant.schedulers.recorded import RecordedCluster
from assistant.schedulers.simulated_run import write_checkpoint
from assistant.training.megatron import StepReport, iteration_line, saved_line, saving_line


@dataclass(frozen=True)
class NodeRow:
    """Nodes of one kind."""

    names: str
    """As operators write them; a later row overrules an earlier one."""
    partition: str = ""
    state: NodeState = NodeState.IDLE
    reason: str = ""


@dataclass(frozen=True)
class JobRow:
    """A job: its log is made of steps and the lines at its end."""

    id: str
    name: str
    user: str
    state: JobState
    nodes: str = ""
    submitted_h: float | None = None
    """Hours before `now`."""
    started_h: float | None = None
    ended_h: float | None = None
    exit_code: int | None = None
    steps: int = 0
    every: int = 0
    """Steps between two checkpoints; 0 saves none."""
    cut: tuple[int, ...] = ()
    """Steps whose checkpoint was not finished."""
    lines: tuple[str, ...] = ()
    kernel: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    controller: tuple[str, ...] = ()


@dataclass(frozen=True)
class IncidentRow:
    """An incident; its diagnosis is made from the record when the state is built."""

    job: str
    state: IncidentState
    opened_h: float
    note: str = ""


@dataclass(frozen=True)
class CallRow:
    """A change that was made, or waits."""

    tool: str
    arguments: Mapping[str, str]
    preview: str
    incident: int | None = None
    hours: float = 1.0


@dataclass(frozen=True)
class State:
    """A file of a recorded state."""

    now: str
    mode: Mode
    node: tuple[NodeRow, ...] = ()
    job: tuple[JobRow, ...] = ()
    incident: tuple[IncidentRow, ...] = ()
    change: tuple[CallRow, ...] = ()
    approval: tuple[CallRow, ...] = ()
    outage: bool = False


def open_state(path: Path, folder: Path, *, mode: Mode | None = None) -> tuple[Engine, RecordedCluster]:
    """Return an engine on a recorded state.

    Args:
        path: The state's file.
        folder: An empty folder for its logs, checkpoints and store.
        mode: Another mode of the policy than the state's.

    Raises:
        ContentError: The file is malformed.
    """
    from assistant.wiring import build

    state = built(State, read_toml(path), path)
    now = datetime.fromisoformat(state.now)
    clock = JumpingClock(now - timedelta(days=30))
    jobs = [_job(row, folder, now) for row in state.job]
    cluster = RecordedCluster(
        sorted(jobs, key=lambda job: job.submitted or now),
        _nodes(state.node, state.job),
        _kernels(state.job),
        [f"[{state.now}] {line}" for row in state.job for line in row.controller],
    )
    policy = replace(load_policy(), mode=mode or state.mode, kill_switch=(folder / "stop",))
    settings = Settings(state_folder=folder, store=folder / "state.db", commands={"kernel_log": ("dmesg",)})
    engine = build(settings, clock=clock, scheduler=cluster, transport=cluster, policy=policy)
    _fill(engine, state, now, clock)
    clock.sleep((now - clock.now()).total_seconds())
    cluster.outage = state.outage
    return engine, cluster


def _nodes(rows: tuple[NodeRow, ...], jobs: tuple[JobRow, ...]) -> list[Node]:
    nodes = {name: Node(name, row.state, row.partition, row.reason) for row in rows for name in expand(row.names)}
    for job in jobs:
        for name in expand(job.nodes) if job.nodes and job.state is JobState.RUNNING else ():
            nodes[name] = replace(nodes[name], state=NodeState.ALLOCATED, jobs=(*nodes[name].jobs, job.id))
    return list(nodes.values())


def _kernels(jobs: tuple[JobRow, ...]) -> dict[str, list[str]]:
    kernels: dict[str, list[str]] = {}
    for job in reversed(jobs):
        for node, lines in job.kernel.items():
            kernels.setdefault(node, []).extend(lines)
    return kernels


def _job(row: JobRow, folder: Path, now: datetime) -> Job:
    def ago(hours: float | None) -> datetime | None:
        return now - timedelta(hours=hours) if hours is not None else None

    place = folder / row.id
    log = place / "job.log" if row.started_h is not None else None
    script = (
        f"#NIGHTSHIFT checkpoints={place}/checkpoints format=nightshift\n"
        f"srun python train.py ${{NIGHTSHIFT_RESUME_FROM:-}} ${{NIGHTSHIFT_ARGS:-}}\n"
    )
    if log is not None:
        log.parent.mkdir(parents=True)
        log.write_text("".join(f"{line}\n" for line in _log(row, place / "checkpoints", now)), encoding="utf-8")
    nodes = tuple(expand(row.nodes)) if row.nodes else ()
    return Job(
        id=row.id,
        name=row.name,
        user=row.user,
        state=row.state,
        partition="train",
        nodes=nodes,
        log=log,
        work_dir=place,
        submitted=ago(row.submitted_h if row.submitted_h is not None else (row.started_h or 0.0) + 0.1),
        started=ago(row.started_h),
        ended=ago(row.ended_h),
        exit_code=row.exit_code,
        signal=None,
        spec=JobSpec(row.name, script, nodes=max(1, len(nodes)), work_dir=place, user=row.user),
    )


def _log(row: JobRow, folder: Path, now: datetime) -> Iterator[str]:
    begin = now - timedelta(hours=row.started_h or 0.0)
    hours = (row.started_h or 0.0) - (row.ended_h or 0.0)
    for step in range(1, row.steps + 1):
        at = begin + timedelta(hours=hours * step / (row.steps + 1))
        loss = 2.0 + 1.5 / (1 + step / 50)
        yield iteration_line(StepReport(step, max(row.steps * 2, 100), 32 * step, 9.0, 1e-4, 32, loss, loss / 10), at)
        if row.every and step % row.every == 0:
            yield saving_line(step, folder)
            write_checkpoint(folder, step, whole=step not in row.cut)
            if step not in row.cut:
                yield saved_line(step, folder)
    yield from row.lines


def _fill(engine: Engine, state: State, now: datetime, clock: JumpingClock) -> None:
    """Write the past into the store, oldest first; the diagnoses are our own."""
    store = engine.store
    todo: list[tuple[datetime, Any]] = [(now - timedelta(hours=row.opened_h), row) for row in state.incident]
    for at, row in sorted(todo, key=lambda pair: pair[0]):
        clock.sleep(max(0.0, (at - clock.now()).total_seconds()))
        incident, _ = store.open_incident(Event(EventKind.JOB_ENDED, row.job, None, clock.now()))
        store.mark_stage(incident.id, "opened")
        engine.diagnose(incident.id)
        store.set_state(incident.id, row.state, note=row.note)
    for change in sorted(state.change, key=lambda change: -change.hours):
        clock.sleep(max(0.0, (now - timedelta(hours=change.hours) - clock.now()).total_seconds()))
        call = _call(engine, change, CallStatus.INTENT)
        store.write_outcome(Outcome(call.id, True, dict(change.arguments), "", clock.now()), undo=f"nightshift undo {call.id}")
    for approval_row in state.approval:
        call = _call(engine, approval_row, CallStatus.PENDING)
        why = Decision(Verdict.ASK, "mode.propose", "policy", clock.now(), "a person must say yes")
        store.park(call.id, why, now + timedelta(days=1))


def _call(engine: Engine, row: CallRow, status: CallStatus) -> Call:
    by = "playbook:faulty_node"
    call = Call(
        0, row.incident, row.tool, dict(row.arguments), "as the playbook asks", by, engine.clock.now(), status, None, row.preview
    )
    return engine.store.write_call(call, kind="cordon" if row.tool == "cordon_node" else "resubmit")
