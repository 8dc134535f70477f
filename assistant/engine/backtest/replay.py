"""Replay history: each failed attempt goes through the engine as it would have gone then, with its clock, policy and budgets.

The engine, the gate, the policy, the playbooks and the retry budgets are the real ones; the store is one of its own that is thrown
away. Only the cluster is the past one: the accounting answers for it, and what is done to it happens nowhere. Its tools are those
that playbooks name, with their own arguments, risks and action classes, so that the gate and the policy see what they would see.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from assistant.content.playbooks import Playbook
from assistant.diagnose.learning.ranked import RankerOpinion
from assistant.engine.backtest.accounts import NodeEvents
from assistant.engine.backtest.attempts import Attempt, Next, Runs, ran_s
from assistant.engine.backtest.traces import Trace, Traces, lost_s
from assistant.engine.dry_runs import silent_log
from assistant.engine.engine import Engine
from assistant.errors import NightshiftError, ToolError
from assistant.gate import Gate
from assistant.policy import Breaker, Policy
from assistant.ports import Clock, JumpingClock, Reply
from assistant.records import (
    Call,
    CallStatus,
    Decision,
    Diagnosis,
    Event,
    IncidentState,
    Job,
    JobSpec,
    JobState,
    Node,
    NodeState,
    Risk,
    Sighting,
    Verdict,
)
from assistant.recover.identity import HOURS
from assistant.recover.restart import restart_problem
from assistant.rendering import method_lines
from assistant.store import Store
from assistant.tooling import Context, Tool, find_tool
from assistant.watch.attempts import KnownIncidents, ended_badly
from assistant.watch.hang import HangLimits
from assistant.watch.progress import SpikeLimits
from assistant.watch.watcher import Watcher

NOWHERE = Path("/dev/null")
"""Below it nothing lies: what a work folder holds today is not what it held then."""
_AS_THEY_ARE = frozenset({"tell_owner", "escalate"})
"""Tools that only write what they were told."""


class HistoryCluster:
    """A scheduler and a transport that know one failed attempt, its run, and the nodes."""

    name = "history"

    def __init__(self, attempts: Iterable[Attempt], runs: Runs, clock: Clock, events: NodeEvents) -> None:
        """Learn the nodes from the attempts."""
        self._clock, self._runs, self._events = clock, runs, events
        partitions: dict[str, str] = {}
        for attempt in attempts:
            for node in attempt.job.nodes:
                if node not in partitions:
                    partitions[node] = attempt.job.partition.partition(",")[0]
        self._fleet = [Node(name, NodeState.ALLOCATED, partition) for name, partition in sorted(partitions.items())]
        self.out: dict[str, datetime] = {}
        """Nodes that would have been cordoned, each until when."""
        self._shown_nodes: tuple[frozenset[str], list[Node]] = (frozenset(), self._fleet)
        self._attempt: Attempt | None = None
        self._job: Job | None = None
        self.trace = Trace(None, "")

    def show(self, attempt: Attempt, trace: Trace) -> Job:
        """Let an attempt be the one that failed last.

        Args:
            attempt: Which.
            trace: What it left.
        """
        work_dir = attempt.job.work_dir
        inside = NOWHERE / str(work_dir).lstrip("/") if work_dir is not None else None
        self._attempt, self.trace = attempt, trace
        self._job = replace(attempt.job, log=trace.log, error_log=None, work_dir=inside, comment="", dated_logs=False)
        return self._job

    @property
    def is_out(self) -> frozenset[str]:
        """Nodes that would have been cordoned and still were."""
        now = self._clock.now()
        return frozenset(node for node, until in self.out.items() if until > now)

    @property
    def unusable(self) -> frozenset[str]:
        """Nodes that are out now, by our cordons or really."""
        return self.is_out | self._events.out_at(self._clock.now())

    def jobs(self) -> Sequence[Job]:
        """Return the failed attempt and what else of its run waited or ran then."""
        if self._job is None or self._attempt is None:
            return []
        living = self._runs.live(self._attempt, self._clock.now())
        return [self._job, *(replace(job, work_dir=self._job.work_dir) for job in living)]

    def job(self, job_id: str) -> Job:
        """Return the failed attempt.

        Raises:
            ToolError: It is another job.
        """
        if self._job is None or self._job.id != job_id:
            raise ToolError(f"job {job_id!r} is not the one that is replayed")
        return self._job

    def nodes(self) -> Sequence[Node]:
        """Return all nodes that the accounting names."""
        out = self.unusable
        if self._shown_nodes[0] != out:
            drained = [replace(node, state=NodeState.DRAINED) if node.name in out else node for node in self._fleet]
            self._shown_nodes = (out, drained)
        return self._shown_nodes[1]

    def command_lines(self, method: str, /, *arguments: Any, **keywords: Any) -> tuple[str, ...]:
        """Return a change in Slurm's words."""
        return method_lines(method, arguments, keywords)

    def submit(self, spec: JobSpec) -> str:
        """Promise a job."""
        return f"{self._job.id if self._job else ''}+restart"

    def user_jobs(self, user: str) -> Sequence[Job]:
        """Return the jobs of one user."""
        return [job for job in self.jobs() if job.user == user]

    def release(self, job_id: str) -> None:
        """Do nothing: a promised job never runs."""

    def withdraw(self, job_id: str) -> None:
        """Do nothing: a promised job never runs."""

    def cancel(self, job_id: str) -> None:
        """Do nothing: it has ended."""

    def cordon(self, node: str, reason: str) -> None:
        """Keep a node out for as long as a lease runs."""
        self.out[node] = self._clock.now() + timedelta(hours=HOURS)

    def uncordon(self, node: str) -> None:
        """Put a node back."""
        self.out.pop(node, None)

    def run(self, nodes: Sequence[str], command: Sequence[str], *, timeout_s: float) -> Mapping[str, Reply]:
        """Answer for no node: what it would have said then, nobody knows."""
        return {node: Reply(node, False, None, "", "not in the record") for node in nodes}

    def requeued(self) -> bool:
        """Whether the scheduler had queued the failed job again by now."""
        return self._attempt is not None and (
            self._attempt.requeued or any(self._job is not None and job.id == self._job.id for job in self.jobs()[1:])
        )


class HistoryTools:
    """Gives the tools of the playbooks, answered from history."""

    def __init__(self, cluster: HistoryCluster, playbook_of: Callable[[int], Playbook | None]) -> None:
        """Keep what answers.

        Args:
            cluster: The history.
            playbook_of: Gives the playbook that an incident runs.
        """
        self._cluster, self._playbook_of = cluster, playbook_of
        self._tools: dict[str, Tool] = {}

    def find(self, name: str) -> Tool:
        """Return a tool by its name.

        Raises:
            UsageError: There is none.
        """
        if name not in self._tools:
            tool = find_tool(name)
            if name not in _AS_THEY_ARE:
                own = getattr(self, f"_{name}", None) or self._any_tool(tool)
                tool = replace(tool, run=own, show=None, find=None, take_back=None, standing=None)
            self._tools[name] = tool
        return self._tools[name]

    def _kernel_log(self, context: Context, **_: Any) -> object:
        if not self._cluster.trace.kernel:
            raise ToolError("no kernel log of that time is in the record")
        return {"text": dict(self._cluster.trace.kernel), "unknown": {}}

    def _scheduler_log(self, context: Context, **_: Any) -> object:
        if not self._cluster.trace.scheduler:
            raise ToolError("no log of the controller is in the record")
        return {"text": self._cluster.trace.scheduler}

    def _choose_checkpoint(self, context: Context, **_: Any) -> object:
        return {"restart_from": "last_healthy", "step": 0, "note": "the newest healthy checkpoint, which is taken to be there"}

    def _resubmit_job(self, context: Context, *, job: str, exclude: list[str] | None, blamed: list[str] | None, **_: Any) -> object:
        failed = self._cluster.job(job)
        if self._cluster.requeued():
            raise ToolError(f"job {job} was not submitted again: the scheduler has queued it again itself")
        spec = JobSpec(
            failed.name,
            "",
            nodes=max(1, len(failed.nodes)),
            work_dir=failed.work_dir or Path(),
            partition=failed.partition.partition(",")[0],
            exclude=tuple(exclude or ()),
        )
        jobs, nodes = self._cluster.jobs(), self._cluster.nodes()
        problem = restart_problem(failed, spec, jobs=jobs if failed.name else (), nodes=nodes, blamed=blamed or ())
        if problem:
            raise ToolError(f"job {job} was not submitted again: {problem}")
        return {"job": self._cluster.submit(spec), "step": 0, "note": ""}

    def _cordon_node(self, context: Context, *, node: str, reason: str, **_: Any) -> object:
        if node in self._cluster.unusable:
            return {"node": node, "cordoned": False, "reason": reason, "note": "out of scheduling already"}
        self._cluster.cordon(node, reason)
        return {"node": node, "cordoned": True, "reason": reason, "note": ""}

    def _any_tool(self, tool: Tool) -> Callable[..., object]:
        def answer(context: Context, **_: Any) -> object:
            expected = self._expected(context.incident, tool.name)
            if expected:
                return {"status": expected, "note": "taken to be so"}
            if tool.risk is Risk.READ or tool.kind == "test":
                raise ToolError(f"{tool.name} cannot be asked about the past")
            return {"note": "taken to be done"}

        return answer

    def _expected(self, incident: int | None, tool: str) -> str:
        """Return the status that the playbook waits for from a tool; empty for none."""
        playbook = self._playbook_of(incident) if incident is not None else None
        entries = playbook.entries if playbook is not None else ()
        return next((entry.expect for entry in entries if entry.use == tool and entry.expect), "")


OWNER = "backtest"
TESTS = ("check_nodes", "two_round_test", "diagnose_gpus")
"""Tools by which playbooks look for the node at fault where no log names it."""
_STARTED_AGAIN = frozenset(state for state in JobState if state.failed or state is JobState.PREEMPTED)
_LONG_AGO = datetime(1980, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Decided:
    """What the policy said to one change."""

    kind: str
    """Action class: `cordon`, `resubmit`, …"""
    nodes: tuple[str, ...]
    verdict: Verdict
    """The first answer; after `ask` a person is taken to have said yes."""
    rule: str
    why: str
    done: bool
    """Whether it would have been made; False where the tool itself refused it."""
    error: str
    """Why not."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What would have come of one failed attempt."""

    number: int
    """Place among the attempts."""
    at: datetime
    """When Nightshift would have noticed."""
    diagnosis: Diagnosis | None
    playbook: str | None
    state: IncidentState | None
    """None where it could not be replayed."""
    note: str
    decided: tuple[Decided, ...]
    has_log: bool
    why_no_log: str
    has_kernel: bool
    after: Next | None
    """What really came next."""
    already_out: tuple[str, ...] = ()
    """Nodes of the attempt that would have been cordoned by then: it would have run elsewhere."""
    lost_s: float | None = None
    """Seconds of training since the last checkpoint; None where the log does not tell."""
    unasked: tuple[str, ...] = ()
    """Looks at the cluster that the playbook wanted and the past cannot answer: `check_nodes`, `two_round_test`."""

    @property
    def blamed(self) -> tuple[str, ...]:
        """Nodes that the diagnosis names."""
        return self.diagnosis.faulty_nodes if self.diagnosis is not None else ()

    @property
    def restart(self) -> Decided | None:
        """The restart that would have been made, None where none would."""
        change = self.change("resubmit")
        return change if change is not None and change.done else None

    def change(self, kind: str) -> Decided | None:
        """Return what was decided about a change of this class; of several the last one."""
        return next((decision for decision in reversed(self.decided) if decision.kind == kind), None)


class AssumedYes:
    """Says yes to whatever the policy asks: the report counts the questions and keeps what rests on them apart."""

    def ask(self, call: Call, decision: Decision) -> Decision:
        """Return a person's yes."""
        return Decision(Verdict.ALLOW, "answered", "somebody", decision.at, "taken to have said yes")


class _OwnStore(Store):
    """A store without the ledger of nodes: it decides nothing, and reading it grows with the square of the history."""

    def keep_sightings(self, incident: int, sightings: Iterable[Sighting]) -> None:
        """Keep nothing."""

    def sightings(self, since: datetime, node: str | None = None) -> list[Sighting]:
        """Return nothing."""
        return []


@dataclass
class Replay:
    """A history and an engine that lives through it."""

    attempts: Sequence[Attempt]
    """In order of their ends."""
    traces: Traces
    policy: Policy
    site: Path | None = None
    notice_s: float = 30.0
    """From the end of an attempt to when it is noticed."""
    events: NodeEvents = field(default_factory=NodeEvents)
    """When nodes really were out."""
    _parents: dict[int, int] = field(default_factory=dict, init=False)
    """Incidents by the number of the attempt that would have been their restart."""

    def run(
        self, wanted: Callable[[Attempt], bool] = lambda attempt: True, progress: Callable[[int], None] = lambda number: None
    ) -> Iterator[Replayed]:
        """Yield what would have come of each failed attempt, in order of time.

        Args:
            wanted: Whether an attempt belongs to the time that is replayed.
            progress: Called with the place of each attempt that was gone through.
        """
        runs = Runs(self.attempts)
        first = next((entry.job.ended for entry in self.attempts if entry.job.ended is not None), _LONG_AGO)
        clock = JumpingClock(first)
        with tempfile.TemporaryDirectory(prefix="nightshift-backtest-") as folder, silent_log():
            store = _OwnStore(Path(folder) / "store.db", clock)
            # nothing here has to survive a power cut
            store.rows("PRAGMA synchronous = OFF")
            cluster = HistoryCluster(self.attempts, runs, clock, self.events)
            engine = self._engine(store, cluster, clock)
            spoken: set[tuple[str, int]] = set()
            try:
                for number, attempt in enumerate(self.attempts):
                    progress(number)
                    if attempt.job.ended is None:
                        break
                    after = runs.next_of(number) if attempt.job.state in _STARTED_AGAIN else None
                    whole = (attempt.job.id.partition("+")[0], attempt.job.attempt)
                    if not wanted(attempt) or ("+" in attempt.job.id and whole in spoken):
                        continue
                    clock.sleep(max(0.0, (attempt.job.ended - clock.now()).total_seconds() + self.notice_s))
                    for event in ended_badly([attempt.job], known=KnownIncidents({}), since=_LONG_AGO, now=clock.now()):
                        spoken.add(whole)
                        trace = self.traces.of(attempt)
                        job = cluster.show(attempt, trace)
                        # a replayed job has the id of the person's restart, which no call of this store submitted
                        engine.parents = partial(_known_parent, self._parents.pop(number, None))
                        yield self._replayed(engine, cluster, number, event, job, trace, after)
            finally:
                store.close()

    def _engine(self, store: Store, cluster: HistoryCluster, clock: JumpingClock) -> Engine:
        def context_for(incident: int | None, tag: str) -> Context:
            return Context(cluster, cluster, clock, Random(tag), store, incident=incident, tag=tag, site=self.site)

        def playbook_of(incident: int) -> Playbook | None:
            return engine.playbooks.get(store.incident(incident).playbook or "")

        tools = HistoryTools(cluster, playbook_of)
        gate = Gate(store, context_for, replace(self.policy, breaker=Breaker()), AssumedYes(), find=tools.find)
        engine = Engine(
            store,
            gate,
            cluster,
            clock,
            Watcher(cluster, clock, hang=HangLimits(silent_s=1800, factor=5), spike=SpikeLimits(persist_steps=50), since=_LONG_AGO),
            site=self.site,
            replays=True,
        )
        engine.opinions = (RankerOpinion(self.site),)
        return engine

    def _replayed(
        self, engine: Engine, cluster: HistoryCluster, number: int, event: Event, job: Job, trace: Trace, after: Next | None
    ) -> Replayed:
        out = tuple(node for node in job.nodes if node in cluster.is_out)
        at = engine.clock.now()
        has = (trace.log is not None, trace.why, bool(trace.kernel))
        try:
            incident = engine.work(engine.open(event).id, owner=OWNER)
        except NightshiftError as error:
            return Replayed(number, at, None, None, None, f"could not be replayed: {error}", (), *has, after, out)
        decided = tuple(_decided(engine.store, incident.id))
        restart = next((decision for decision in decided if decision.kind == "resubmit" and decision.done), None)
        if restart is not None and after is not None:
            # the person's restart stands for ours: what came of it is what is known of it
            self._parents[after.number] = incident.id
        diagnosis = engine.store.diagnosis(incident.id)
        if diagnosis is not None:
            # of ten thousand failures not every rival can be kept
            diagnosis = replace(diagnosis, root_cause=diagnosis.root_cause[:1], rivals=(), seen_before=(), patterns=())
        steps = [call for call in engine.store.calls(incident.id) if call.step is not None]
        unasked = tuple(dict.fromkeys(call.tool for call in steps if call.tool in TESTS))
        lost = lost_s(job, ran_s(self.attempts[number]))
        return Replayed(
            number, at, diagnosis, incident.playbook, incident.state, incident.note, decided, *has, after, out, lost, unasked
        )


def _known_parent(parent: int | None, store: Store, job: Job | None) -> int | None:
    return parent


def _decided(store: Store, incident: int) -> Iterator[Decided]:
    for call in store.calls(incident):
        tool = find_tool(call.tool)
        if tool.risk is Risk.READ:
            continue
        decisions, outcome = store.decisions(call.id), store.outcome(call.id)
        nodes = _argument_names(call.arguments.get("node")) + _argument_names(call.arguments.get("nodes"))
        if not decisions:
            # the tool could not even be looked at: the policy was never asked
            yield Decided(tool.kind, nodes, Verdict.DENY, "", "", False, outcome.error if outcome is not None else "")
            continue
        first = decisions[0]
        value = outcome.value if outcome is not None else None
        idle = isinstance(value, dict) and value.get("cordoned") is False
        is_done = call.status is CallStatus.DONE and not idle
        error = "was out already" if idle else (outcome.error if outcome is not None else "")
        yield Decided(tool.kind, nodes, first.verdict, first.rule, first.why, is_done, error)


def _argument_names(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,) if value else ()
    return tuple(map(str, value)) if isinstance(value, (list, tuple)) else ()
