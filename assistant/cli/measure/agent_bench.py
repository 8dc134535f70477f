"""`nightshift bench agent`: score the agent on recorded states of a cluster, without a judge.

A case is a question about a state, which is read from a file with an engine on it. What counts: the tools that were used, the
facts that were named, what must not be said, and the sources.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from assistant.agent.answer import Answer, AnswerKind
from assistant.config import Settings
from assistant.content.reading import build, read_toml
from assistant.content.reading import build as built
from assistant.engine import Engine
from assistant.errors import InputError, NightshiftError
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
from assistant.schedulers.simulated import RecordedCluster
from assistant.schedulers.simulated_run import write_checkpoint
from assistant.training.heartbeat import StepReport, iteration_line, saved_line, saving_line


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
    watched: bool = True
    """Whether a watch made a pass a moment ago."""


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
            _date_files(folder, step, at)
            if step not in row.cut:
                yield saved_line(step, folder)
    yield from row.lines


def _date_files(folder: Path, step: int, at: datetime) -> None:
    """Give the files of a checkpoint the time at which it was saved."""
    for path in [folder, *folder.glob(f"*{step}"), *(path for place in folder.glob(f"*{step}") for path in place.rglob("*"))]:
        os.utime(path, (at.timestamp(), at.timestamp()))


def _fill(engine: Engine, state: State, now: datetime, clock: JumpingClock) -> None:
    """Write the past into the store, oldest first; the diagnoses are our own."""
    store = engine.store
    todo: list[tuple[float, Any]] = [(row.opened_h, row) for row in state.incident]
    todo += [(change.hours, change) for change in state.change]
    for hours, row in sorted(todo, key=lambda pair: -pair[0]):
        clock.sleep(max(0.0, (now - timedelta(hours=hours) - clock.now()).total_seconds()))
        if isinstance(row, CallRow):
            call = _call(engine, row, CallStatus.INTENT)
            store.write_outcome(Outcome(call.id, True, dict(row.arguments), "", clock.now()), undo=f"nightshift undo {call.id}")
            continue
        incident, _ = store.open_incident(Event(EventKind.JOB_ENDED, row.job, None, clock.now()))
        store.mark_stage(incident.id, "opened")
        engine.diagnose(incident.id)
        store.set_state(incident.id, row.state, note=row.note)
    for approval_row in state.approval:
        call = _call(engine, approval_row, CallStatus.PENDING)
        why = Decision(Verdict.ASK, "mode.propose", "policy", clock.now(), "a person must say yes")
        store.park(call.id, why, now + timedelta(days=1))
    if state.watched:
        trouble = ("the scheduler does not answer",) if state.outage else ()
        at, policy = now - timedelta(seconds=10), engine.gate.in_force.look()
        store.keep_pass(
            WATCH, at=at, seconds=0.4, leads=True, whole=not trouble, trouble=trouble, policy=policy.digest, mode=policy.mode
        )


def _call(engine: Engine, row: CallRow, status: CallStatus) -> Call:
    by = "playbook:faulty_node"
    call = Call(
        0, row.incident, row.tool, dict(row.arguments), "as the playbook asks", by, engine.clock.now(), status, None, row.preview
    )
    return engine.store.write_call(call, kind="cordon" if row.tool == "cordon_node" else "resubmit")


STATES = "states"
WATCH = "watch@login1:4821.77"
"""That watches over the states."""
TOOLS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "explain_job": ("explain_job", "show_incident"),
        "explain_incident": ("show_incident",),
        "overview": ("list_incidents", "list_jobs", "node_states"),
        "approvals": ("list_approvals",),
        "incidents": ("list_incidents",),
        "bad_nodes": ("node_states",),
        "node_state": ("node_states", "check_nodes"),
        "node_history": ("node_ledger", "list_incidents"),
        "check_node": ("check_nodes",),
        "kernel_log": ("kernel_log",),
        "show_log": ("tail_log",),
        "log_errors": ("explain_job", "compress_log", "search_log"),
        "search_log": ("search_log",),
        "checkpoints": ("list_checkpoints",),
        "newest_checkpoint": ("choose_checkpoint", "list_checkpoints"),
        "seen_before": ("explain_job", "show_incident", "list_incidents"),
        "compare_jobs": ("show_job", "explain_job"),
        "failed_jobs": ("list_jobs", "list_incidents"),
        "list_jobs": ("list_jobs",),
        "job_status": ("show_job", "list_jobs"),
        "progress": ("job_progress", "tail_log", "search_log"),
        "gpu_use": ("gpu_activity",),
        "stacks": ("stack_classes",),
        "plan": ("plan_recovery",),
        "recover": ("propose_resubmit_job", "plan_recovery"),
        "cordon": ("propose_cordon_node",),
        "uncordon": ("propose_uncordon_node",),
        "cancel": ("propose_cancel_job",),
        "scheduler_log": ("scheduler_log",),
        "changes": ("recent_changes",),
        "meaning": ("look_up",),
    }
)
"""Tools of which a model must have used one where a question means this; for what is not here, none."""


@dataclass(frozen=True)
class AgentCase:
    """One question, or several in a row of which the last counts."""

    ask: tuple[str, ...]
    intent: tuple[str, ...] = ()
    """Any of these is the right reading; empty where that is not judged."""
    state: str = "night"
    tags: tuple[str, ...] = ("easy",)
    calls: tuple[str, ...] = ()
    """Tools that must have been used."""
    facts: tuple[str, ...] = ()
    """That the answer must name; `a|b` is either."""
    forbidden: tuple[str, ...] = ()
    kind: AnswerKind = AnswerKind.ANSWER
    cites: bool = True
    """Whether the answer must name a source."""
    mode: Mode | None = None
    """Of the policy, instead of the state's."""
    heldout: bool = False
    """Worded by itself, never used for tuning the choice of tools."""


@dataclass(frozen=True)
class _CaseFile:
    case: tuple[AgentCase, ...]


class QuestionAnswerer(Protocol):
    """Answers questions one after the other."""

    def ask(self, question: str, *, trusted: bool = True) -> Answer:
        """Answer a question."""
        ...


class CaseScore(NamedTuple):
    """How a case went."""

    case: AgentCase
    answer: Answer | None
    tool: bool
    """Whether the right tool was chosen."""
    faults: tuple[str, ...]
    """What is wrong; empty when the task succeeded."""
    seconds: float

    @property
    def by_model(self) -> bool:
        """Whether a language model answered."""
        return self.answer is not None and self.answer.mode.startswith("model:")


def load_cases(folder: Path) -> list[AgentCase]:
    """Return the cases of all files of a folder.

    Raises:
        InputError: There are none.
    """
    cases = [case for path in sorted(folder.glob("*.toml")) for case in build(_CaseFile, read_toml(path), path).case]
    if not cases:
        raise InputError(f"{folder}: holds no cases; they lie in tests/cases/agent of the sources")
    return cases


def run_cases(cases: Sequence[AgentCase], folder: Path, agent_of: Callable[[Engine], QuestionAnswerer]) -> list[CaseScore]:
    """Ask every case of a fresh agent; a state is built once, and anew for a case that may have changed its store.

    Args:
        cases: From `load_cases`.
        folder: Holds `states/`.
        agent_of: Makes the agent.
    """
    scored: list[CaseScore] = []
    with tempfile.TemporaryDirectory(prefix="nightshift-agent-") as name:
        engines: dict[tuple[str, Mode | None], tuple[Engine, Any]] = {}
        for number, case in enumerate(cases):
            key = (case.state, case.mode)
            if key not in engines:
                place = Path(name) / str(number)
                place.mkdir()
                engines[key] = open_state(folder / STATES / f"{case.state}.toml", place, mode=case.mode)
            engine, cluster = engines[key]
            scored.append(_scored(case, agent_of(engine)))
            answer = scored[-1].answer
            if cluster.changes:
                scored[-1] = scored[-1]._replace(faults=(*scored[-1].faults, f"changed the cluster: {cluster.changes[0]}"))
            if answer is None or answer.kind is AnswerKind.PROPOSAL or cluster.changes:
                engines.pop(key)[0].store.close()
        for engine, _ in engines.values():
            engine.store.close()
    return scored


def _scored(case: AgentCase, agent: QuestionAnswerer) -> CaseScore:
    start = time.perf_counter()
    try:
        answer = [agent.ask(question) for question in case.ask][-1]
    except NightshiftError as error:
        return CaseScore(case, None, False, (f"{type(error).__name__}: {error}",), time.perf_counter() - start)
    seconds = (time.perf_counter() - start) / len(case.ask)
    tools_used = {source.tool for source in answer.sources}
    tool = answer.intent in case.intent if answer.intent and case.intent else _used_right(case, tools_used)
    return CaseScore(case, answer, tool, tuple(_faults(case, answer, tools_used)), seconds)


def _used_right(case: AgentCase, tools_used: set[str]) -> bool:
    """Tell whether a model, which names no reading, used the tools of the right one."""
    expected = [TOOLS.get(intent, ()) for intent in case.intent]
    is_right = not expected or any(set(tools) & tools_used if tools else not tools_used for tools in expected)
    return is_right and set(case.calls) <= tools_used


def _faults(case: AgentCase, answer: Answer, tools_used: set[str]) -> Iterable[str]:
    text = answer.text.casefold()
    if answer.kind is not case.kind:
        yield f"kind {answer.kind}, wanted {case.kind}"
    for fact in case.facts:
        if not any(option.casefold() in text for option in fact.split("|")):
            yield f"does not name {fact!r}"
    for word in case.forbidden:
        if word.casefold() in text:
            yield f"says {word!r}"
    for name in case.calls:
        if name not in tools_used:
            yield f"did not use {name}"
    if case.cites and case.kind is AnswerKind.ANSWER and not any(f"[{source.number}]" in answer.text for source in answer.sources):
        yield "names no source"


class Share(NamedTuple):
    """How many of some cases went well."""

    name: str
    cases: int
    tool: float
    success: float
    by_model: float = 0.0
    """Answered by a model itself; the others by what stands in for it."""


def shares(scored: Sequence[CaseScore]) -> list[Share]:
    """Return the figures: of all cases, of the held-out wordings, and by tag."""
    tags = list(dict.fromkeys(tag for score in scored for tag in score.case.tags))
    groups = [("all", list(scored)), ("held-out wordings", [score for score in scored if score.case.heldout])]
    groups += [(tag, [score for score in scored if tag in score.case.tags]) for tag in tags]
    return [
        Share(
            name,
            len(group),
            sum(score.tool for score in group) / len(group),
            sum(not score.faults for score in group) / len(group),
            sum(score.by_model for score in group) / len(group),
        )
        for name, group in groups
        if group
    ]
