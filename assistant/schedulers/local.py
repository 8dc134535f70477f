"""The embedded scheduler: real processes on this machine, virtual nodes, state in one folder that any process may open.

There is no daemon. Whoever asks (`jobs()`, `nodes()`, `submit()`) first makes one cheap scheduling pass under a lock: jobs whose
supervisor reported are closed, jobs whose supervisor vanished are given up, pending ones that fit are started in order of
submission. A job has its nodes for itself unless it asks for a share of one (see `local_sharing`).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from assistant.config import Settings
from assistant.errors import ToolError
from assistant.nodeset import expand, fold
from assistant.ports import Clock
from assistant.private_files import create_private, private_folder
from assistant.records import Job, JobSpec, Node
from assistant.records.jobs import ProcessReport
from assistant.rendering import method_lines
from assistant.schedulers import local_jobs as files
from assistant.schedulers.local_jobs import JobFolders, must_cordon, must_uncordon, node_of, reap

UP_SINCE = timedelta(days=9)
"""How long ago the virtual nodes booted: a boot right before a failure would be a finding."""


def open_scheduler(settings: Settings, clock: Clock) -> LocalScheduler:
    """Return the scheduler that `scheduler = "local"` names."""
    return LocalScheduler(settings.state_folder / "local", clock)


class LocalScheduler:
    """Jobs and virtual nodes in a folder."""

    name = "local"

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        nodes: int | Sequence[str] = 4,
        partition: str = "demo",
        *,
        gpus: int = 1,
        cpus: int = 4,
    ) -> None:
        """Open the cluster in `folder`, or make one there.

        Args:
            folder: Made when missing.
            clock: For times in the records; processes live in real time.
            nodes: How many nodes, or their names, of a new cluster; one that exists keeps its own.
            partition: The only one of a new cluster.
            gpus: Of each node of a new cluster, for jobs that share nodes.
            cpus: Likewise.
        """
        self.folder = folder.absolute()
        self.clock = clock
        self.recall_processes: Callable[[Job], ProcessReport | None] | None = None
        self._jobs = JobFolders(self.folder / "jobs")
        private_folder(self.folder / "jobs")
        with files.locked(self.folder):
            if files.read_json(self.folder / "cluster.json") is None:
                names = [f"node{number:02}" for number in range(1, nodes + 1)] if isinstance(nodes, int) else sorted(nodes)
                cluster = {"partition": partition, "nodes": names, "cordons": {}, "next_id": 1, "gpus": gpus, "cpus": cpus}
                files.write_json(self.folder / "cluster.json", cluster)
                for name in names:
                    self._make_node(name)

    def _make_node(self, name: str) -> None:
        folder = self.node_folder(name)
        private_folder(folder / "armed")
        at = (self.clock.now() - UP_SINCE).strftime("%a %b %e %H:%M:%S %Y")
        lines = (
            "Linux version 5.15.0-105-generic (buildd@lcy02) #115-Ubuntu SMP",
            "nvidia: loading out-of-tree module taints kernel.",
            "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024",
        )
        with create_private(folder / "kernel.log", encoding="utf-8") as file:
            file.writelines(f"[{at}] {line}\n" for line in lines)

    def node_folder(self, node: str) -> Path:
        """Return the folder that stands for a node: its kernel.log, its armed faults, and where commands run."""
        return self.folder / "nodes" / node

    def job_folder(self, job_id: str) -> Path:
        """Return the folder of a job."""
        return self._jobs.of(job_id)

    def controller_log(self, job_id: str | None = None) -> str:
        """Return slurmctld.log: all of it, or the lines of a job and of its nodes."""
        path = self.folder / "slurmctld.log"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if job_id is not None:
            nodes = self.job(job_id).nodes
            lines = [line for line in lines if f"JobId={job_id} " in f"{line} " or any(node in line for node in nodes)]
        return "\n".join(lines)

    # What the port asks for

    def jobs(self) -> Sequence[Job]:
        """Return all jobs, newest last."""
        with files.locked(self.folder):
            self._pass()
            partition = self._cluster()["partition"]
            return [self._jobs.read(job_id, partition) for job_id in self._jobs.ids()]

    def job(self, job_id: str) -> Job:
        """Return one job.

        Raises:
            ToolError: There is none of that id.
        """
        with files.locked(self.folder):
            self._known_job(job_id)
            self._pass()
            job = self._jobs.read(job_id, self._cluster()["partition"])
        return replace(job, processes=self.recall_processes(job)) if self.recall_processes else job

    def submit(self, spec: JobSpec) -> str:
        """Write the job down, start it when it fits, and return its id.

        Raises:
            ToolError: It could never run: more nodes than there are, or no such working folder.
        """
        with files.locked(self.folder):
            cluster = self._cluster()
            usable = [node for node in cluster["nodes"] if node not in spec.exclude]
            if not 1 <= spec.nodes <= len(usable) or spec.ranks_per_node < 1:
                raise ToolError(
                    f"job {spec.name!r} asks for {spec.nodes} nodes with {spec.ranks_per_node} ranks each; partition"
                    f" {cluster['partition']} has {len(usable)} that it may use"
                )
            if not spec.work_dir.is_dir():
                raise ToolError(f"job {spec.name!r}: working folder {spec.work_dir} does not exist; make it first")
            job_id = str(cluster["next_id"])
            files.write_json(self.folder / "cluster.json", {**cluster, "next_id": cluster["next_id"] + 1})
            at = self.clock.now()
            self._jobs.write(job_id, spec, at)
            files.say(self.folder, at, f"_slurm_rpc_submit_batch_job: JobId={job_id} InitPrio=1 usec=412")
            self._pass()
        return job_id

    def user_jobs(self, user: str) -> Sequence[Job]:
        """Return the jobs of one user, newest last."""
        return [job for job in self.jobs() if job.user == user]

    def release(self, job_id: str) -> None:
        """Let a held job begin; one that is not held is left alone.

        Raises:
            ToolError: There is none of that id, or it has ended.
        """
        with files.locked(self.folder):
            self._known_job(job_id)
            status = self._jobs.status(job_id)
            if status["state"] not in ("pending", "running"):
                raise ToolError(f"job {job_id} cannot be released: it is {status['state']}")
            if status["state"] == "pending" and status.get("reason"):
                self._jobs.set_status(job_id, {**status, "reason": ""})
            self._pass()

    def withdraw(self, job_id: str) -> None:
        """End a job that still waits; one that has begun is left alone."""
        with files.locked(self.folder):
            self._known_job(job_id)
            if self._jobs.status(job_id)["state"] == "pending":
                self._jobs.close(job_id, {"state": "cancelled", "reason": "withdrawn"}, self.clock.now())

    def cancel(self, job_id: str) -> None:
        """Ask the job's supervisor to end it; one that ended already is left alone."""
        with files.locked(self.folder):
            self._known_job(job_id)
            self._pass()
            state, at = self._jobs.status(job_id)["state"], self.clock.now()
            if state == "pending":
                self._jobs.close(job_id, {"state": "cancelled", "reason": "cancelled"}, at)
            elif state == "running":
                create_private(self.job_folder(job_id) / "cancel").close()
                files.say(self.folder, at, f"_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={job_id} uid {os.getuid()}")

    def nodes(self) -> Sequence[Node]:
        """Return all nodes in the order of their names."""
        with files.locked(self.folder):
            self._pass()
            cluster, busy = self._cluster(), self._busy()
        return [self._node(name, cluster, busy.get(name, ())) for name in cluster["nodes"]]

    def cordon(self, node: str, reason: str) -> None:
        """Take a node out of scheduling; a job on it goes on.

        Raises:
            ToolError: Unknown node, or cordoned by somebody else.
        """
        with files.locked(self.folder):
            cluster = self._known_node(node)
            if must_cordon(node, cluster["cordons"].get(node), reason):
                self._set_cordons(cluster, {**cluster["cordons"], node: reason})
                files.say(self.folder, self.clock.now(), f"update_node: node {node} reason set to: {reason}")
                files.say(self.folder, self.clock.now(), f"update_node: node {node} state set to DRAINING")

    def uncordon(self, node: str) -> None:
        """Put a node back that we cordoned; one that is not cordoned is left alone.

        Raises:
            ToolError: Unknown node, or its reason is not ours.
        """
        with files.locked(self.folder):
            cluster = self._known_node(node)
            if must_uncordon(node, cluster["cordons"].get(node)):
                self._set_cordons(cluster, {name: why for name, why in cluster["cordons"].items() if name != node})
                files.say(self.folder, self.clock.now(), f"update_node: node {node} state set to IDLE")

    def command_lines(self, method: str, /, *arguments: Any, **keywords: Any) -> tuple[str, ...]:
        """Return a change in Slurm's words, with all its arguments; this cluster has no programs of its own."""
        return method_lines(method, arguments, keywords)

    # What only this cluster can do

    def set_down(self, node: str, reason: str = "Not responding") -> None:
        """Let a node die: its ranks are killed, its job ends as `node_fail`, no command reaches it."""
        with files.locked(self.folder):
            self._known_node(node)
            with create_private(self.node_folder(node) / "down", encoding="utf-8") as file:
                file.write(reason)

    def set_up(self, node: str) -> None:
        """Let a dead node come back, empty."""
        with files.locked(self.folder):
            self._known_node(node)
            (self.node_folder(node) / "down").unlink(missing_ok=True)

    # The scheduling pass; the lock is held

    def _pass(self) -> None:
        reap()
        ids = self._jobs.ids()
        statuses = {job_id: self._jobs.status(job_id) for job_id in ids}
        for job_id, status in statuses.items():
            if status["state"] == "running":
                self._look_after(job_id)
        pending = [job_id for job_id in ids if statuses[job_id]["state"] == "pending" and not statuses[job_id].get("reason")]
        if not pending:
            return
        cluster = self._cluster()
        unusable = {*cluster["cordons"], *(name for name in cluster["nodes"] if self._is_down(name))}
        shares = self._shares()
        for job_id in pending:
            spec, started_nodes, share = self._jobs.spec(job_id), self._jobs.launch_nodes(job_id), share_of(self._jobs.spec(job_id))
            allowed = [
                name for name in cluster["nodes"] if name not in unusable and name not in spec.exclude and share.may_run_on(name)
            ]
            free = started_nodes or [
                name for name in allowed if share.fits(shares.get(name), cluster.get("gpus", 1), cluster.get("cpus", 4))
            ]
            if len(free) >= spec.nodes:
                self._start(job_id, spec, free[: spec.nodes])
                for name in free[: spec.nodes]:
                    shares[name] = shares.get(name, NodeShare()) + share
            elif share.whole:
                break  # first come, first served: a later, smaller job does not overtake

    def _start(self, job_id: str, spec: JobSpec, nodes: list[str]) -> None:
        at, cpus = self.clock.now(), spec.nodes * spec.ranks_per_node
        self._jobs.start(job_id, nodes, at)
        partition = self._cluster()["partition"]
        files.say(self.folder, at, f"sched: Allocate JobId={job_id} NodeList={fold(nodes)} #CPUs={cpus} Partition={partition}")

    def _look_after(self, job_id: str) -> None:
        """Close a running job whose supervisor reported or vanished."""
        folder, at = self.job_folder(job_id), self.clock.now()
        supervisor = self._jobs.supervisor(job_id)
        is_gone = not files.alive(*supervisor)
        end = files.read_json(folder / "end.json")  # read after the look at the process: it writes, then goes
        if end is not None:
            self._jobs.close(job_id, end, at)
        elif is_gone:
            runner = files.read_json(folder / "runner.json") or {"groups": []}
            for pid, ticks in runner["groups"]:
                if files.alive(pid, ticks):
                    os.killpg(pid, signal.SIGKILL)
            reason = f"the job's supervisor, process {supervisor[0]}, vanished"
            self._jobs.close(job_id, {"state": "node_fail", "reason": reason}, at)
            files.say(self.folder, at, f"_job_complete: JobId={job_id} NODE_FAIL batch job complete failure")

    # The cluster's own file

    def _cluster(self) -> dict[str, Any]:
        return files.read_json(self.folder / "cluster.json") or {}

    def _set_cordons(self, cluster: dict[str, Any], cordons: Mapping[str, str]) -> None:
        files.write_json(self.folder / "cluster.json", {**cluster, "cordons": dict(cordons)})

    def _known_node(self, node: str) -> dict[str, Any]:
        cluster = self._cluster()
        if node not in cluster["nodes"]:
            raise ToolError(f"node {node!r} is unknown; known: {fold(cluster['nodes'])}")
        return cluster

    def _known_job(self, job_id: str) -> None:
        if not self._jobs.exists(job_id):
            raise ToolError(f"job {job_id!r} is unknown to the local scheduler in {self.folder}")

    def _is_down(self, node: str) -> bool:
        return (self.node_folder(node) / "down").exists()

    def _busy(self) -> dict[str, tuple[str, ...]]:
        """Return the jobs that run on each node that has some."""
        jobs_by_node: dict[str, tuple[str, ...]] = {}
        for job_id in self._jobs.ids():
            status = self._jobs.status(job_id)
            for node in status["nodes"] if status["state"] == "running" else ():
                jobs_by_node[node] = (*jobs_by_node.get(node, ()), job_id)
        return jobs_by_node

    def _shares(self) -> dict[str, NodeShare]:
        """Return what the jobs on each node take of it."""
        shares = {}
        for node, jobs in self._busy().items():
            shares[node] = sum((share_of(self._jobs.spec(job_id)) for job_id in jobs), NodeShare())
        return shares

    def _node(self, name: str, cluster: Mapping[str, Any], jobs: tuple[str, ...]) -> Node:
        down = (self.node_folder(name) / "down").read_text(encoding="utf-8") if self._is_down(name) else None
        return node_of(name, cluster["partition"], jobs=jobs, cordon=cluster["cordons"].get(name), down=down)


# Jobs of the embedded scheduler that share a node: they say what they take of it, in the words of sbatch.
#
# `--gres=gpu:N` takes N of the node's GPUs, `--gres=none` none; either takes one CPU, or `--cpus-per-task=N`. `--nodelist=NAME`
# says
# where. A job that says nothing of `--gres` takes the whole node.


@dataclass(frozen=True, slots=True)
class NodeShare:
    """What jobs take of one node."""

    gpus: int = 0
    cpus: int = 0
    whole: bool = False
    nodes: tuple[str, ...] = ()
    """Where it may run; empty: anywhere."""

    def __add__(self, share: NodeShare) -> NodeShare:
        """Return what both take together."""
        return NodeShare(self.gpus + share.gpus, self.cpus + share.cpus, self.whole or share.whole)

    def fits(self, occupied: NodeShare | None, gpus: int, cpus: int) -> bool:
        """Whether it fits beside what is used of a node that has so many GPUs and CPUs."""
        if occupied is None:
            return self.whole or (self.gpus <= gpus and self.cpus <= cpus)
        return not (self.whole or occupied.whole) and occupied.gpus + self.gpus <= gpus and occupied.cpus + self.cpus <= cpus

    def may_run_on(self, node: str) -> bool:
        """Whether it was asked to run there, or anywhere."""
        return not self.nodes or node in self.nodes


def share_of(spec: JobSpec) -> NodeShare:
    """Return what a job takes of each of its nodes; options that sbatch has and we do not are left unread."""
    options = dict(word.removeprefix("--").split("=", 1) for word in spec.options if word.startswith("--") and "=" in word)
    nodes = tuple(expand(options["nodelist"])) if "nodelist" in options else ()
    if "gres" not in options:
        return NodeShare(whole=True, nodes=nodes)
    gpus = options["gres"].rpartition(":")[2] if options["gres"].startswith("gpu") else "0"
    return NodeShare(int(gpus) if gpus.isdecimal() else 1, int(options.get("cpus-per-task", "1")), nodes=nodes)
