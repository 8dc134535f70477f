"""Clusters in memory, each its own transport: one whose jobs do as their plans say, and one as a record has it.

    cluster = SimulatedCluster(clock, tmp_path, nodes=2000)
    cluster.plan("llm", Run(fails_at=42, lines=("CUDA error: ...",), only_on="node0003"), Run())
    job = cluster.submit(spec); clock.sleep(60); cluster.job(job).state

Time is the clock's: when it jumps, the next call makes everything happen that lies between. The object outlives an engine that is
thrown away and built anew, as a real cluster does. It serves tests, dry runs and tries of playbooks. A `RecordedCluster` answers
who looks; a change is noted and nothing happens.
"""

from __future__ import annotations

import getpass
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from assistant.config import Settings
from assistant.errors import ConfigError, ToolError, Unavailable
from assistant.nodeset import fold
from assistant.ports import Clock, Reply
from assistant.records import Job, JobSpec, JobState, Node
from assistant.records.jobs import LAUNCH_FAILURE, OUTPUT_FAILED, REQUEUED_HELD, ProcessReport
from assistant.rendering import method_lines
from assistant.schedulers.local_jobs import HELD_BY_USER, must_cordon, must_uncordon, node_of
from assistant.schedulers.simulated_run import SimulatedProgress, SimulatedRun, process_answer
from assistant.schedulers.slurm_text import controller_line, how_ended, job_cancelled, step_cancelled

CONNECTS = "/dev/tcp/"
COLLECTIVE = "NIGHTSHIFT-COLLECTIVE"
"""What the program of a collective test holds, and its answer begins with."""
PROCESSES = "#nightshift processes"
"""What the script of the tool `job_processes` prints first."""
STACKS = "#nightshift ranks"
"""What the script of the tool `stack_classes` prints first."""
ASLEEP = f"{STACKS}\n#nightshift cpu 1 100.0\n#nightshift cpu 1 4100 50\n#nightshift cpu 2 102.0\n#nightshift cpu 2 4100 50\n"
"""Its answer on a node of a job that hangs: a process that uses no CPU time, and no stacks."""
LONG_AGO_S = 10 * 365 * 86_400.0
IDLE_GPU = "# gpu pwr sm mem rxpci txpci\n    0 71 0 0 1 0\n"
"""What `nvidia-smi dmon` prints on a node of a job that hangs."""


def _service_of(words: Sequence[str]) -> str:
    """Return the `HOST:PORT` that a command connects to."""
    host, port = words[words.index("-c") + 2 :][:2]
    return f"{host}:{port}"


def open_scheduler(_settings: Settings, _clock: Clock) -> SimulatedCluster:
    """Refuse `scheduler = "simulated"`.

    Raises:
        ConfigError: Always.
    """
    raise ConfigError('scheduler = "simulated" lives in memory only, for tests and dry runs; known here: local, slurm')


class SimulatedCluster:
    """Nodes and jobs in memory; both a `Scheduler` and a `Transport`."""

    name = "simulated"

    def __init__(self, clock: Clock, folder: Path, nodes: int | Sequence[str] = 4, partition: str = "simulated") -> None:
        """Make an idle cluster.

        Args:
            clock: Everything happens in its time.
            folder: Logs of jobs that name no log are written there.
            nodes: How many, or their names.
            partition: Its only one.
        """
        self.clock, self.folder, self.partition = clock, folder, partition
        width = max(2, len(str(nodes))) if isinstance(nodes, int) else 0
        self._names = [f"node{n:0{width}}" for n in range(1, nodes + 1)] if isinstance(nodes, int) else sorted(nodes)
        self.recall_processes: Callable[[Job], ProcessReport | None] | None = None
        self._cordons: dict[str, str] = {}
        self._down: dict[str, str] = {}
        self._busy: dict[str, str] = {}
        self._jobs: dict[str, Job] = {}
        self._progress: dict[str, SimulatedProgress] = {}
        self._plans: dict[str, list[SimulatedRun]] = {}
        self.kernel: dict[str, list[str]] = {}
        """Lines of each node's kernel log."""
        self.answers: dict[str, Callable[[str], Reply]] = {}
        """What nodes answer to a command, by its text as typed."""
        self.services: dict[str, Callable[[str], Reply]] = {}
        """What nodes answer to a connection, by `HOST:PORT`."""
        self.unfit: set[str] | None = set()
        """Nodes that fail every collective; None when no node has the program for one."""
        self.controller: list[str] = []
        """Lines of slurmctld.log."""
        self.reachable: set[str] = set()
        """Nodes that answer although they are down: only the daemon of the scheduler died there."""
        self.outage = False
        """Whether every call raises `Unavailable`."""
        self.changes: list[str] = []
        """Every submit, cancel, cordon and uncordon that took effect, in order."""
        self.holds: list[str] = []
        """Every release and withdrawal of a job that was submitted held, in order."""

    def plan(self, job_name: str, *runs: SimulatedRun) -> None:
        """Tell what the jobs of a name do: each submission takes the next run, the last one repeats."""
        self._plans[job_name] = list(runs)

    # Scheduler

    def jobs(self) -> Sequence[Job]:
        """Return all jobs, newest last."""
        self._advance()
        return list(self._jobs.values())

    def job(self, job_id: str) -> Job:
        """Return one job.

        Raises:
            ToolError: There is none of that id.
        """
        self._advance()
        if job_id not in self._jobs:
            raise ToolError(f"job {job_id!r} is unknown to the simulated cluster")
        job = self._jobs[job_id]
        return replace(job, processes=self.recall_processes(job)) if self.recall_processes else job

    def submit(self, spec: JobSpec) -> str:
        """Submit a job and return its id.

        Raises:
            ToolError: It could never run.
        """
        self._advance()
        usable = len(self._names) - len(set(spec.exclude) & set(self._names))
        if not 1 <= spec.nodes <= usable or spec.ranks_per_node < 1:
            raise ToolError(
                f"job {spec.name!r} asks for {spec.nodes} nodes with {spec.ranks_per_node} ranks each; partition"
                f" {self.partition} has {usable} that it may use"
            )
        job_id, now = self._new_id(), self.clock.now()
        log = spec.work_dir / spec.log.replace("%j", job_id) if spec.log else self.folder / f"{job_id}.log"
        self._jobs[job_id] = Job(
            id=job_id,
            name=spec.name,
            user=spec.user or getpass.getuser(),
            state=JobState.PENDING,
            partition=spec.partition or self.partition,
            nodes=(),
            log=log,
            work_dir=spec.work_dir,
            submitted=now,
            started=None,
            ended=None,
            exit_code=None,
            signal=None,
            comment=spec.comment,
            reason=HELD_BY_USER if spec.hold else "",
            spec=spec,
            never_requeued="--no-requeue" in spec.options,
        )
        self.changes.append(f"submit {job_id}")
        self._place()
        return job_id

    def _new_id(self) -> str:
        return str(len(self._jobs) + 1)

    def user_jobs(self, user: str) -> Sequence[Job]:
        """Return the jobs of one user, newest last."""
        return [job for job in self.jobs() if job.user == user]

    def release(self, job_id: str) -> None:
        """Let a held job begin; one that is not held is left alone.

        Raises:
            ToolError: There is none of that id, or it has ended.
        """
        job = self.job(job_id)
        if job.state.ended:
            raise ToolError(f"job {job_id} cannot be released: it is {job.state}")
        if job.held:
            self._jobs[job_id] = replace(job, reason="")
            self.holds.append(f"release {job_id}")
            self._place()

    def withdraw(self, job_id: str) -> None:
        """End a job that still waits; one that has begun is left alone."""
        if self.job(job_id).state is JobState.PENDING:
            self.holds.append(f"withdraw {job_id}")
            self.set_cancelled(job_id)

    def cancel(self, job_id: str) -> None:
        """End a job; one that ended already is left alone."""
        if not self.job(job_id).state.ended:
            self.changes.append(f"cancel {job_id}")
            self.set_cancelled(job_id)

    def nodes(self) -> Sequence[Node]:
        """Return all nodes in the order of their names."""
        self._advance()
        return [self._node(name) for name in self._names]

    def cordon(self, node: str, reason: str) -> None:
        """Take a node out of scheduling; a job on it goes on.

        Raises:
            ToolError: Unknown node, or cordoned by somebody else.
        """
        self._require_node(node)
        if must_cordon(node, self._cordons.get(node), reason):
            self._cordons[node] = reason
            self.changes.append(f"cordon {node}")

    def uncordon(self, node: str) -> None:
        """Put a node back that we cordoned; one that is not cordoned is left alone.

        Raises:
            ToolError: Unknown node, or its reason is not ours.
        """
        self._require_node(node)
        if must_uncordon(node, self._cordons.get(node)):
            del self._cordons[node]
            self.changes.append(f"uncordon {node}")
            self._place()

    def command_lines(self, method: str, /, *arguments: Any, **keywords: Any) -> tuple[str, ...]:
        """Return a change in Slurm's words, with all its arguments; this cluster has no programs of its own."""
        return method_lines(method, arguments, keywords)

    def controller_log(self, job_id: str | None = None) -> str:
        """Return slurmctld.log: all of it, or the lines of a job and of its nodes."""
        nodes = self.job(job_id).nodes if job_id is not None else ()
        words = (f"JobId={job_id} ", *nodes) if job_id is not None else ("",)
        return "\n".join(line for line in self.controller if any(word in f"{line} " for word in words))

    # Transport

    def run(self, nodes: Sequence[str], command: Sequence[str], *, timeout_s: float) -> Mapping[str, Reply]:
        """Answer for the nodes: the kernel log for a command that reads it, `answers` for others, else status 127."""
        if self.outage:
            return {node: Reply(node, False, None, "", "outage") for node in nodes}
        self._advance()
        return {node: self._answer(node, shlex.join(command)) for node in nodes}

    def _answer(self, node: str, typed: str) -> Reply:
        if (node in self._down and node not in self.reachable) or node not in self._names:
            return Reply(node, False, None, "", f"ssh: connect to host {node} port 22: No route to host")
        if typed in self.answers:
            return self.answers[typed](node)
        if CONNECTS in typed and (answer := self.services.get(_service_of(shlex.split(typed)))) is not None:
            return answer(node)
        if PROCESSES in typed and (progress := self._progress.get(self._busy.get(node, ""))) is not None:
            return Reply(node, True, 0, process_answer(progress, progress.spec.work_dir, 4000 + self._names.index(node)), "")
        if COLLECTIVE in typed and self.unfit is not None:
            return self._collective(node, json.loads(shlex.split(typed)[-1]))
        if typed.startswith("nvidia-smi dmon") and (progress := self._progress.get(self._busy.get(node, ""))) and progress.hangs:
            return Reply(node, True, 0, IDLE_GPU, "")
        if STACKS in typed and (progress := self._progress.get(self._busy.get(node, ""))) and progress.hangs:
            return Reply(node, True, 0, ASLEEP, "")
        if "dmesg" in typed or "kernel.log" in typed:
            return Reply(node, True, 0, "".join(f"{line}\n" for line in self.kernel.get(node, ())), "")
        return Reply(node, True, 127, "", f"{shlex.split(typed)[0]}: No such file or directory")

    def _collective(self, node: str, task: Mapping[str, Any]) -> Reply:
        """Answer as the ring program does, for a world that fails as a whole when one of its nodes is unfit or dead."""
        bad = {*(self.unfit or ()), *self._down}
        peer = next((rank for rank, (name, _) in enumerate(task["peers"]) if name in bad), None)
        kind = "" if peer is None else "connect"
        outcome = {"ok": peer is None, "rank": task["rank"], "kind": kind, "peer": peer, "text": kind, "mib_s": 1000.0}
        return Reply(node, True, int(peer is not None), f"{COLLECTIVE} {json.dumps(outcome)}\n", "")

    # What a test may do to it

    def share(self, node: str) -> None:
        """Let further jobs begin on a node while those that run there go on."""
        self._require_node(node)
        self._busy.pop(node, None)

    def set_cordon(self, node: str, reason: str) -> None:
        """Cordon a node as a person would: any reason."""
        self._require_node(node)
        self._cordons[node] = reason

    def set_cancelled(self, job_id: str) -> None:
        """End a job as a person would, from elsewhere."""
        job = self.job(job_id)
        if not job.state.ended:
            self._say(job_id, [job_cancelled(job_id, (job.nodes or ("none",))[0], self.clock.now())])
            self._end(job_id, JobState.CANCELLED, reason="cancelled")
            self._place()

    def set_requeued(self, job_id: str, *, hold: bool = False) -> None:
        """Put a job that has ended back in the queue under its own id, as Slurm does after a preemption, or held until released."""
        job = self.job(job_id)
        if job.state.ended:
            pending = replace(
                job, state=JobState.PENDING, nodes=(), started=None, ended=None, exit_code=None, signal=None, reason=""
            )
            self._jobs[job_id] = replace(pending, attempt=job.attempt + 1, reason=REQUEUED_HELD if hold else "")
            self._place()

    def set_down(self, node: str, reason: str = "Not responding") -> None:
        """Let a node die with the job on it."""
        self._require_node(node)
        self._let_die(node, reason)

    def _let_die(self, node: str, reason: str) -> None:
        self._down[node] = reason
        self.controller.append(controller_line(self.clock.now(), f"error: Nodes {node} not responding, setting DOWN"))
        if job_id := self._busy.get(node):
            because = "NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"
            alive = next((name for name in self._jobs[job_id].nodes if name not in self._down), node)
            self._say(job_id, [f"srun: error: Node failure on {node}", step_cancelled(job_id, alive, self.clock.now(), because)])
            self._end(job_id, JobState.NODE_FAIL, reason=f"NodeDown: {node}")

    def set_up(self, node: str) -> None:
        """Let a dead node come back."""
        self._down.pop(node, None)
        self._place()

    # Time

    def _require_node(self, node: str) -> None:
        self._advance()
        if node not in self._names:
            raise ToolError(f"node {node!r} is unknown; known: {fold(self._names)}")

    def _advance(self) -> None:
        if self.outage:
            raise Unavailable("simulated cluster: Unable to contact slurm controller (connect failure)")
        for job_id, progress in list(self._progress.items()):
            limit_s = progress.spec.time_limit_s
            deadline = progress.started + timedelta(seconds=limit_s if limit_s is not None else LONG_AGO_S)
            if progress.advance(min(self.clock.now(), deadline)):
                self._finish(job_id, progress)
            elif self.clock.now() >= deadline:
                self._say(job_id, [step_cancelled(job_id, progress.nodes[0], deadline, "TIME LIMIT")])
                self._end(job_id, JobState.TIMEOUT, reason="TimeLimit")
        self._place()

    def _finish(self, job_id: str, progress: SimulatedProgress) -> None:
        run = progress.run
        if not progress.fails:
            self._end(job_id, JobState.COMPLETED, exit_code=0)
            return
        if not run.opens_output:
            self._end(job_id, JobState.FAILED, exit_code=0, signal=OUTPUT_FAILED, reason=LAUNCH_FAILURE)
            return
        at = progress.time_of(progress.step)
        self._say(job_id, run.lines, run.own_log)
        for node, lines in run.kernel.items():
            self.kernel.setdefault(node, []).extend(f"[{at:%a %b %e %H:%M:%S %Y}] {line}" for line in lines)
        if run.downs is not None:
            self._let_die(run.downs, "Not responding")
            return
        if run.state is JobState.FAILED:
            status = -run.signal if run.signal else run.exit_code or 1
            culprit = run.only_on or progress.nodes[0]
            task = progress.nodes.index(culprit) * progress.spec.ranks_per_node
            self._say(job_id, [f"srun: error: {culprit}: task {task}: {how_ended(status)}"])
        self._end(job_id, run.state, exit_code=run.exit_code, signal=run.signal, reason="NonZeroExitCode")

    def _end(
        self, job_id: str, state: JobState, *, reason: str = "", exit_code: int | None = None, signal: int | None = None
    ) -> None:
        progress = self._progress.pop(job_id, None)
        now = self.clock.now()
        at = min(now, progress.time_of(progress.step)) if progress and state in (JobState.COMPLETED, JobState.FAILED) else now
        job = self._jobs[job_id]
        self._jobs[job_id] = replace(job, state=state, ended=at, exit_code=exit_code, signal=signal, reason=reason)
        self.controller.append(controller_line(at, f"_job_complete: JobId={job_id} {state.value.upper()}"))
        self._busy = {node: owner for node, owner in self._busy.items() if owner != job_id}

    def _place(self) -> None:
        """Start pending jobs in order of submission."""
        for job in [job for job in self._jobs.values() if job.state is JobState.PENDING and not job.held]:
            spec = job.spec or JobSpec(job.name, "")
            unusable = {*self._busy, *self._cordons, *self._down, *spec.exclude}
            nodes = tuple(name for name in self._names if name not in unusable)[: spec.nodes]
            if len(nodes) < spec.nodes:
                return
            now, runs = self.clock.now(), self._plans.get(job.name) or [SimulatedRun()]
            run = runs.pop(0) if len(runs) > 1 else runs[0]
            self._progress[job.id] = SimulatedProgress(run, spec, nodes, job.log or self.folder / f"{job.id}.log", now)
            self._jobs[job.id] = replace(job, state=JobState.RUNNING, nodes=nodes, started=now)
            self._busy |= dict.fromkeys(nodes, job.id)
            self.controller.append(controller_line(now, f"sched: Allocate JobId={job.id} NodeList={fold(nodes)}"))

    def _say(self, job_id: str, lines: Sequence[str], own_log: Path | None = None) -> None:
        log = own_log or self._jobs[job_id].log
        if log is not None and lines:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("a", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in lines)

    def _node(self, name: str) -> Node:
        jobs = (self._busy[name],) if name in self._busy else ()
        return node_of(name, self.partition, jobs=jobs, cordon=self._cordons.get(name), down=self._down.get(name))


NO_PROGRAM = 127


@dataclass
class RecordedCluster:
    """Both a `Scheduler` and a `Transport`: for recorded states, evaluation and tests."""

    recorded_jobs: Sequence[Job]
    recorded_nodes: Sequence[Node]
    kernel: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Lines of each node's kernel log."""
    controller: Sequence[str] = ()
    """Lines of the controller's log."""
    outage: bool = False
    """Whether nothing answers."""
    changes: list[str] = field(default_factory=list)
    """What was asked for; none of it happened."""
    name: str = "recorded"

    def jobs(self) -> Sequence[Job]:
        """Return all jobs, newest last."""
        self._answers()
        return list(self.recorded_jobs)

    def job(self, job_id: str) -> Job:
        """Return one job.

        Raises:
            ToolError: There is none of that id.
        """
        self._answers()
        recorded = next((job for job in self.recorded_jobs if job.id == job_id), None)
        if recorded is None:
            raise ToolError(f"job {job_id!r} is unknown to the record")
        return recorded

    def nodes(self) -> Sequence[Node]:
        """Return all nodes."""
        self._answers()
        return list(self.recorded_nodes)

    def controller_log(self, job_id: str | None = None) -> str:
        """Return the lines about a job, or all of them."""
        self._answers()
        return "\n".join(line for line in self.controller if job_id is None or f"JobId={job_id} " in f"{line} ")

    def submit(self, spec: JobSpec) -> str:
        """Note a submission."""
        self.changes.append(f"submit {spec.name}")
        return str(len(self.changes))

    def user_jobs(self, user: str) -> Sequence[Job]:
        """Return the recorded jobs of one user."""
        return [job for job in self.jobs() if job.user == user]

    def release(self, job_id: str) -> None:
        """Note a release."""
        self.changes.append(f"release {job_id}")

    def withdraw(self, job_id: str) -> None:
        """Note a withdrawal."""
        self.changes.append(f"withdraw {job_id}")

    def cancel(self, job_id: str) -> None:
        """Note a cancel."""
        self.changes.append(f"cancel {job_id}")

    def cordon(self, node: str, reason: str) -> None:
        """Note a cordon."""
        self.changes.append(f"cordon {node}")

    def uncordon(self, node: str) -> None:
        """Note an uncordon."""
        self.changes.append(f"uncordon {node}")

    def command_lines(self, method: str, /, *arguments: Any, **keywords: Any) -> tuple[str, ...]:
        """Return a change in Slurm's words, with all its arguments; this cluster has no programs of its own."""
        return method_lines(method, arguments, keywords)

    def run(self, nodes: Sequence[str], command: Sequence[str], *, timeout_s: float) -> Mapping[str, Reply]:
        """Answer with the recorded kernel log; any other program is not there."""
        return {node: self._reply(node, shlex.join(command)) for node in nodes}

    def _reply(self, node: str, typed: str) -> Reply:
        if self.outage or node not in {recorded.name for recorded in self.recorded_nodes}:
            return Reply(node, False, None, "", "no answer in the record")
        if "dmesg" in typed:
            return Reply(node, True, 0, "".join(f"{line}\n" for line in self.kernel.get(node, ())), "")
        return Reply(node, True, NO_PROGRAM, "", f"{shlex.split(typed)[0]}: not in the record")

    def _answers(self) -> None:
        if self.outage:
            raise Unavailable("the recorded scheduler does not answer: Unable to contact slurm controller (connect failure)")
