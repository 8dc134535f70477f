"""The job folders of the embedded scheduler: what was asked for, how it stands, and the start of its supervisor."""

from __future__ import annotations

import dataclasses
import getpass
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from assistant import processes
from assistant.private_files import append_private, create_private, private_folder
from assistant.records import Job, JobSpec, JobState
from assistant.schedulers import local_files as files
from assistant.schedulers.cordons import HELD_BY_USER

SOURCE = str(Path(__file__).resolve().parent.parent.parent)
"""Where `assistant` is imported from, for the supervisor and the ranks."""

_children: set[int] = set()
"""Supervisors that this process started and has not reaped."""


class JobFolders:
    """All jobs of a cluster; its lock must be held."""

    def __init__(self, folder: Path) -> None:
        """Look after the jobs in `folder`."""
        self.folder = folder

    def of(self, job_id: str) -> Path:
        """Return the folder of a job."""
        return self.folder / job_id

    def ids(self) -> list[str]:
        """Return the ids of all jobs, oldest first."""
        found = (path.name for path in self.folder.iterdir() if (path / "status.json").exists())
        return sorted(found, key=int)

    def exists(self, job_id: str) -> bool:
        """Whether there is a job of that id."""
        return job_id.isdecimal() and (self.of(job_id) / "status.json").exists()

    def status(self, job_id: str) -> dict[str, Any]:
        """Return how a job stands."""
        return files.read_json(self.of(job_id) / "status.json") or {}

    def set_status(self, job_id: str, status: Mapping[str, Any]) -> None:
        """Write how a job stands."""
        files.write_json(self.of(job_id) / "status.json", status)

    def spec(self, job_id: str) -> JobSpec:
        """Return what was submitted."""
        stored = files.read_json(self.of(job_id) / "spec.json") or {}
        lists = {name: tuple(stored.get(name, ())) for name in ("exclude", "options", "arguments")}
        return JobSpec(**{**stored, **lists, "work_dir": Path(stored["work_dir"])})

    def write(self, job_id: str, spec: JobSpec, at: datetime) -> None:
        """Write a new job down as pending."""
        folder = self.of(job_id)
        private_folder(folder.parent)
        folder.mkdir(mode=0o700)
        (folder / "rendezvous").mkdir(mode=0o700)
        with create_private(folder / "script.sh", encoding="utf-8") as file:
            file.write(spec.script)
        stored = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
        stored |= {"work_dir": str(spec.work_dir.absolute()), "environment": dict(spec.environment), "exclude": list(spec.exclude)}
        files.write_json(folder / "spec.json", stored)
        log = spec.work_dir.absolute() / spec.log.replace("%j", job_id) if spec.log else folder / "job.log"
        status: dict[str, Any] = {"state": "pending", "nodes": [], "log": str(log), "submitted": at.isoformat(), "started": None}
        self.set_status(job_id, {**status, "user": spec.user or getpass.getuser(), "reason": HELD_BY_USER if spec.hold else ""})

    def close(self, job_id: str, end: Mapping[str, Any], at: datetime) -> None:
        """Write that a job is over, and how."""
        unknown = {"ended": at.isoformat(), "exit_code": None, "signal": None}
        self.set_status(job_id, {**self.status(job_id), **unknown, **end})

    def launch_nodes(self, job_id: str) -> list[str] | None:
        """Return the nodes of a pending job whose start was cut short by a crash of ours; None when it was not begun."""
        launch = files.read_json(self.of(job_id) / "launch.json")
        return launch["nodes"] if launch is not None else None

    def supervisor(self, job_id: str) -> tuple[int, int]:
        """Return process id and start time of the supervisor that has the job: the first that claimed it."""
        claim = files.read_json(self.of(job_id) / "claim.json") or {}
        pid, ticks = claim.get("supervisor", self.status(job_id)["supervisor"])
        return pid, ticks

    def start(self, job_id: str, nodes: Sequence[str], at: datetime) -> None:
        """Start the supervisor of a pending job; it goes on when this process ends.

        A second supervisor of the same job, after a crash between start and note, finds the job claimed and goes.
        """
        folder, spec, status = self.of(job_id), self.spec(job_id), self.status(job_id)
        launch = {
            "name": spec.name,
            "nodes": list(nodes),
            "ranks_per_node": spec.ranks_per_node,
            "work_dir": str(spec.work_dir),
            "log": status["log"],
            "environment": dict(spec.environment),
            "time_limit_s": spec.time_limit_s,
        }
        files.write_json(folder / "launch.json", launch)
        pid = _spawn(folder)
        started = {"state": "running", "nodes": list(nodes), "started": at.isoformat()}
        self.set_status(job_id, {**status, **started, "supervisor": [pid, files.started_ticks(pid) or 0]})

    def read(self, job_id: str, partition: str) -> Job:
        """Return a job as the port shows it."""
        status, spec = self.status(job_id), self.spec(job_id)
        return Job(
            id=job_id,
            name=spec.name,
            user=status["user"],
            state=JobState(status["state"]),
            partition=spec.partition or partition,
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


def reap() -> None:
    """Let supervisors of ours that ended go, so that they do not stay as zombies."""
    for pid in list(_children):
        with suppress(ChildProcessError):
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                continue
        _children.discard(pid)


def _spawn(folder: Path) -> int:
    """Start a supervisor in a session of its own and return its process id."""
    path = os.pathsep.join(filter(None, [SOURCE, os.environ.get("PYTHONPATH")]))
    with append_private(folder / "supervisor.log", "ab") as output, Path(os.devnull).open("rb") as nothing:
        # posix_spawn and not Popen: nobody here waits for it, and Popen complains when it is dropped.
        pid = processes.spawn(
            [sys.executable, "-m", "assistant.schedulers.local_runner", str(folder)],
            environment=processes.own_environment({"PYTHONPATH": path}),
            file_actions=[
                (os.POSIX_SPAWN_DUP2, nothing.fileno(), 0),
                (os.POSIX_SPAWN_DUP2, output.fileno(), 1),
                (os.POSIX_SPAWN_DUP2, output.fileno(), 2),
            ],
            setsid=True,
        )
    _children.add(pid)
    return pid
