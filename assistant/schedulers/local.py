"""The embedded scheduler: real processes on this machine, virtual nodes, state in one folder that any process may open.

There is no daemon. Whoever asks (`jobs()`, `nodes()`, `submit()`) first makes one cheap scheduling pass under a lock: jobs whose
supervisor reported are closed, jobs whose supervisor vanished are given up, pending ones that fit are started in order of
submission.
"""

from __future__ import annotations

import dataclasses
import getpass
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assistant.errors import ToolError
from assistant.ports import Clock
from assistant.records import Job, JobSpec, JobState, Node, NodeState
from assistant.schedulers import local_files as files
from assistant.schedulers.slurm_words import folded

OWN = "nightshift"
"""What the reasons of our own cordons start with."""

_children: list[subprocess.Popen[bytes]] = []


class LocalScheduler:
    """Jobs and virtual nodes in a folder."""

    name = "local"

    def __init__(self, folder: Path, clock: Clock, nodes: int | Sequence[str] = 4, partition: str = "demo") -> None:
        """Open the cluster in `folder`, or make one there.

        Args:
            folder: Made when missing.
            clock: For times in the records; processes live in real time.
            nodes: How many nodes, or their names, of a new cluster; one that exists keeps its own.
            partition: The only one of a new cluster.
        """
        self.folder = folder.absolute()
        self.clock = clock
        (self.folder / "jobs").mkdir(parents=True, exist_ok=True)
        with files.locked(self.folder):
            if files.read_json(self.folder / "cluster.json") is None:
                names = [f"node{number:02}" for number in range(1, nodes + 1)] if isinstance(nodes, int) else sorted(nodes)
                cluster = {"partition": partition, "nodes": names, "cordons": {}, "next_id": 1}
                files.write_json(self.folder / "cluster.json", cluster)
                for name in names:
                    self._make_node(name)

    def _make_node(self, name: str) -> None:
        folder = self.node_folder(name)
        (folder / "armed").mkdir(parents=True, exist_ok=True)
        at = self.clock.now().strftime("%a %b %e %H:%M:%S %Y")
        lines = (
            "Linux version 5.15.0-105-generic (buildd@lcy02) #115-Ubuntu SMP",
            "nvidia: loading out-of-tree module taints kernel.",
            "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024",
        )
        (folder / "kernel.log").write_text("".join(f"[{at}] {line}\n" for line in lines), encoding="utf-8")

    def node_folder(self, node: str) -> Path:
        """Return the folder that stands for a node: its kernel.log, its armed faults, and where commands run."""
        return self.folder / "nodes" / node

    def job_folder(self, job_id: str) -> Path:
        """Return the folder of a job."""
        return self.folder / "jobs" / job_id

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
            return [self._read(job_id) for job_id in self._ids()]

    def job(self, job_id: str) -> Job:
        """Return one job.

        Raises:
            ToolError: There is none of that id.
        """
        with files.locked(self.folder):
            self._known_job(job_id)
            self._pass()
            return self._read(job_id)

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
            self._write_job(job_id, spec)
            self._pass()
        return job_id

    def cancel(self, job_id: str) -> None:
        """Ask the job's supervisor to end it; one that ended already is left alone."""
        with files.locked(self.folder):
            self._known_job(job_id)
            self._pass()
            status = self._status(job_id)
            if status["state"] == "pending":
                self._close(job_id, status, {"state": "cancelled", "reason": "cancelled"})
            elif status["state"] == "running":
                (self.job_folder(job_id) / "cancel").touch()
                files.say(self.folder, self.clock.now(), f"_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={job_id} uid {os.getuid()}")

    def nodes(self) -> Sequence[Node]:
        """Return all nodes in the order of their names."""
        with files.locked(self.folder):
            self._pass()
            cluster, busy = self._cluster(), self._busy()
        return [self._node(name, cluster, busy.get(name)) for name in cluster["nodes"]]

    def cordon(self, node: str, reason: str) -> None:
        """Take a node out of scheduling; a job on it goes on.

        Raises:
            ToolError: Unknown node, or cordoned by somebody else.
        """
        with files.locked(self.folder):
            cluster = self._known_node(node)
            before = cluster["cordons"].get(node)
            if before is not None and before != reason and not before.startswith(OWN):
                raise ToolError(f"node {node} is cordoned already by somebody else ({before!r}); their reason was left as it is")
            if before != reason:
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
            before = cluster["cordons"].get(node)
            if before is None:
                return
            if not before.startswith(OWN):
                raise ToolError(f"node {node} was cordoned by somebody else ({before!r}); ask them")
            self._set_cordons(cluster, {name: why for name, why in cluster["cordons"].items() if name != node})
            files.say(self.folder, self.clock.now(), f"update_node: node {node} state set to IDLE")

    # What only this cluster can do

    def set_down(self, node: str, reason: str = "Not responding") -> None:
        """Let a node die: its ranks are killed, its job ends as `node_fail`, no command reaches it."""
        with files.locked(self.folder):
            self._known_node(node)
            (self.node_folder(node) / "down").write_text(reason, encoding="utf-8")

    def set_up(self, node: str) -> None:
        """Let a dead node come back, empty."""
        with files.locked(self.folder):
            self._known_node(node)
            (self.node_folder(node) / "down").unlink(missing_ok=True)

    # The scheduling pass; the lock is held

    def _pass(self) -> None:
        _children[:] = [child for child in _children if child.poll() is None]
        open_jobs = [(job_id, self._status(job_id)) for job_id in self._ids()]
        for job_id, status in open_jobs:
            if status["state"] == "running":
                self._look_after(job_id, status)
        cluster, busy = self._cluster(), self._busy()
        down = {name for name in cluster["nodes"] if (self.node_folder(name) / "down").exists()}
        for job_id, status in open_jobs:
            if status["state"] != "pending":
                continue
            spec = self._spec(job_id)
            unusable = {*busy, *cluster["cordons"], *down, *spec.exclude}
            free = [name for name in cluster["nodes"] if name not in unusable]
            if len(free) < spec.nodes:
                break  # first come, first served: a later, smaller job does not overtake
            self._start(job_id, status, spec, free[: spec.nodes])
            busy |= dict.fromkeys(free[: spec.nodes], job_id)

    def _look_after(self, job_id: str, status: dict[str, Any]) -> None:
        """Close a running job whose supervisor reported or vanished."""
        folder = self.job_folder(job_id)
        runner = files.read_json(folder / "runner.json")
        lost = not files.alive(*status["supervisor"])
        end = files.read_json(folder / "end.json")  # read after the look at the process: it writes, then goes
        if end is not None:
            self._close(job_id, status, end)
        elif lost:
            for pid, ticks in (runner or {}).get("groups", ()):
                if files.alive(pid, ticks):
                    os.killpg(pid, signal.SIGKILL)
            self._close(job_id, status, {"state": "node_fail", "reason": f"supervisor {status['supervisor'][0]} vanished"})
            files.say(self.folder, self.clock.now(), f"_job_complete: JobId={job_id} NODE_FAIL batch job complete failure")

    def _start(self, job_id: str, status: dict[str, Any], spec: JobSpec, nodes: list[str]) -> None:
        folder, log = self.job_folder(job_id), Path(status["log"])
        launch = {
            "name": spec.name,
            "nodes": nodes,
            "ranks_per_node": spec.ranks_per_node,
            "work_dir": str(spec.work_dir.absolute()),
            "log": str(log),
            "environment": dict(spec.environment),
            "time_limit_s": spec.time_limit_s,
        }
        files.write_json(folder / "launch.json", launch)
        with (folder / "supervisor.log").open("ab") as output:
            child = subprocess.Popen(
                [sys.executable, "-m", "assistant.schedulers.local_runner", str(folder)],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [_source_folder(), os.environ.get("PYTHONPATH")]))},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        _children.append(child)
        at = self.clock.now()
        supervisor = [child.pid, files.started_ticks(child.pid) or 0]
        started = {"state": "running", "nodes": nodes, "started": at.isoformat(), "supervisor": supervisor}
        status |= started
        files.write_json(folder / "status.json", status)
        partition = self._cluster()["partition"]
        cpus = spec.nodes * spec.ranks_per_node
        files.say(self.folder, at, f"sched: Allocate JobId={job_id} NodeList={folded(nodes)} #CPUs={cpus} Partition={partition}")

    def _close(self, job_id: str, status: dict[str, Any], end: Mapping[str, Any]) -> None:
        ended = {"ended": self.clock.now().isoformat(), "exit_code": None, "signal": None, **end}
        status |= ended
        files.write_json(self.job_folder(job_id) / "status.json", status)

    # Reading and writing of the files

    def _cluster(self) -> dict[str, Any]:
        return files.read_json(self.folder / "cluster.json") or {}

    def _set_cordons(self, cluster: dict[str, Any], cordons: Mapping[str, str]) -> None:
        files.write_json(self.folder / "cluster.json", {**cluster, "cordons": dict(cordons)})

    def _known_node(self, node: str) -> dict[str, Any]:
        cluster = self._cluster()
        if node not in cluster["nodes"]:
            raise ToolError(f"node {node!r} is unknown; known: {folded(cluster['nodes'])}")
        return cluster

    def _known_job(self, job_id: str) -> None:
        if not job_id.isdecimal() or not (self.job_folder(job_id) / "status.json").exists():
            raise ToolError(f"job {job_id!r} is unknown to the local scheduler in {self.folder}")

    def _ids(self) -> list[str]:
        found = (path.name for path in (self.folder / "jobs").iterdir() if (path / "status.json").exists())
        return sorted(found, key=int)

    def _status(self, job_id: str) -> dict[str, Any]:
        return files.read_json(self.job_folder(job_id) / "status.json") or {}

    def _busy(self) -> dict[str, str]:
        """Return the job that runs on each node that has one."""
        statuses = ((job_id, self._status(job_id)) for job_id in self._ids())
        return {node: job_id for job_id, status in statuses if status["state"] == "running" for node in status["nodes"]}

    def _spec(self, job_id: str) -> JobSpec:
        stored = files.read_json(self.job_folder(job_id) / "spec.json") or {}
        return JobSpec(**{**stored, "work_dir": Path(stored["work_dir"]), "exclude": tuple(stored["exclude"])})

    def _write_job(self, job_id: str, spec: JobSpec) -> None:
        folder = self.job_folder(job_id)
        (folder / "rendezvous").mkdir(parents=True)
        (folder / "script.sh").write_text(spec.script, encoding="utf-8")
        stored = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
        stored |= {"work_dir": str(spec.work_dir.absolute()), "environment": dict(spec.environment), "exclude": list(spec.exclude)}
        files.write_json(folder / "spec.json", stored)
        log = spec.work_dir.absolute() / spec.log.replace("%j", job_id) if spec.log else folder / "job.log"
        at = self.clock.now()
        status = {"state": "pending", "nodes": [], "log": str(log), "submitted": at.isoformat(), "started": None}
        files.write_json(folder / "status.json", {**status, "user": spec.user or getpass.getuser()})
        files.say(self.folder, at, f"_slurm_rpc_submit_batch_job: JobId={job_id} InitPrio=1 usec=412")

    def _read(self, job_id: str) -> Job:
        status, spec = self._status(job_id), self._spec(job_id)
        return Job(
            id=job_id,
            name=spec.name,
            user=status["user"],
            state=JobState(status["state"]),
            partition=spec.partition or self._cluster()["partition"],
            nodes=tuple(status["nodes"]),
            log=Path(status["log"]),
            work_dir=spec.work_dir,
            submitted=files.to_time(status["submitted"]),
            started=files.to_time(status["started"]),
            ended=files.to_time(status.get("ended")),
            exit_code=status.get("exit_code"),
            signal=status.get("signal"),
            comment=spec.comment,
            reason=status.get("reason", ""),
            spec=spec,
        )

    def _node(self, name: str, cluster: Mapping[str, Any], job_id: str | None) -> Node:
        reason = cluster["cordons"].get(name, "")
        down = self.node_folder(name) / "down"
        if down.exists():
            state, reason = NodeState.DOWN, reason or down.read_text(encoding="utf-8")
        elif name in cluster["cordons"]:
            state = NodeState.DRAINING if job_id else NodeState.DRAINED
        else:
            state = NodeState.ALLOCATED if job_id else NodeState.IDLE
        return Node(name, state, cluster["partition"], reason, (job_id,) if job_id else ())


def _source_folder() -> str:
    """Return the folder from which `assistant` is imported, for the supervisor and the ranks."""
    return str(Path(__file__).resolve().parent.parent.parent)
