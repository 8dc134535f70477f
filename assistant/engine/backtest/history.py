"""The cluster as it was at a moment of its history: the accounting answers for it, and what is done to it happens nowhere.

The tools are those that playbooks name, with their own arguments, risks and action classes, so that the gate and the policy see
what they would see. Only what they do is another: nothing reaches a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from assistant.content.playbooks import Playbook
from assistant.engine.backtest.accounts import NodeEvents
from assistant.engine.backtest.attempts import Attempt, Runs
from assistant.engine.backtest.traces import Trace
from assistant.errors import ToolError
from assistant.ports import Clock, Reply
from assistant.records import Job, JobSpec, Node, NodeState, Risk
from assistant.recover.leases import HOURS
from assistant.recover.restart import restart_problem
from assistant.rendering import method_lines
from assistant.tooling import Context, Tool, find_tool

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
        for one in attempts:
            for node in one.job.nodes:
                if node not in partitions:
                    partitions[node] = one.job.partition.partition(",")[0]
        self._fleet = [Node(name, NodeState.ALLOCATED, partition) for name, partition in sorted(partitions.items())]
        self.out: dict[str, datetime] = {}
        """Nodes that would have been cordoned, each until when."""
        self._shown: tuple[frozenset[str], list[Node]] = (frozenset(), self._fleet)
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
        others = self._runs.live(self._attempt, self._clock.now())
        return [self._job, *(replace(job, work_dir=self._job.work_dir) for job in others)]

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
        if self._shown[0] != out:
            drained = [replace(node, state=NodeState.DRAINED) if node.name in out else node for node in self._fleet]
            self._shown = (out, drained)
        return self._shown[1]

    def command_lines(self, method: str, /, *arguments: Any, **named: Any) -> tuple[str, ...]:
        """Return a change in Slurm's words."""
        return method_lines(method, arguments, named)

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
        self._known: dict[str, Tool] = {}

    def find(self, name: str) -> Tool:
        """Return a tool by its name.

        Raises:
            UsageError: There is none.
        """
        if name not in self._known:
            tool = find_tool(name)
            if name not in _AS_THEY_ARE:
                own = getattr(self, f"_{name}", None) or self._other(tool)
                tool = replace(tool, run=own, show=None, find=None, take_back=None, standing=None)
            self._known[name] = tool
        return self._known[name]

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

    def _other(self, tool: Tool) -> Callable[..., object]:
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
