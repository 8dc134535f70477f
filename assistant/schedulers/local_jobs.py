"""The folders of the embedded scheduler: its state, its jobs with their supervisors, and the rules of cordons.

    cluster.json            partition, node names, cordons with their reasons, the next job id
    lock                    held during every change
    slurmctld.log           what the controller says
    nodes/<name>/           kernel.log (what `dmesg -T` shows); down (why it is dead; absent while it lives); armed/ (faults)
    jobs/<id>/              spec.json script.sh status.json (scheduler), runner.json end.json (supervisor), job.log

Every file has exactly one writer: the scheduler under the lock, or the job's supervisor. The simulated cluster
keeps the same rules of cordons: what people set is never touched.
"""

from __future__ import annotations

import dataclasses
import fcntl
import getpass
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assistant import processes
from assistant.errors import ToolError, Unavailable
from assistant.private_files import append_private, create_private, private_folder
from assistant.records import Job, JobSpec, JobState, Node, NodeState, tags_in
from assistant.schedulers.slurm_text import controller_line

OWN = "nightshift"
"""What the reasons of our own cordons start with."""
HELD_BY_USER = "JobHeldUser"
"""Slurm's reason of a job that was submitted held, or held by its owner."""


def must_cordon(node: str, before: str | None, reason: str) -> bool:
    """Return whether a cordon has to be written; False when that very one is there.

    Args:
        node: Its name.
        before: The reason that stands now; None when the node is not cordoned.
        reason: The one to set.

    Raises:
        ToolError: Somebody else cordoned it with another reason, or Nightshift with another store did.
    """
    if before is None or before == reason:
        return before is None
    if not before.startswith(OWN):
        raise ToolError(f"node {node} is cordoned already by somebody else ({before!r}); their reason was left as it is")
    current_store, own_store = store_in(before), store_in(reason)
    if current_store and current_store != own_store:
        raise ToolError(f"node {node} is cordoned already by Nightshift with another store ({before!r}); it was left as it is")
    return True


def store_in(reason: str) -> str:
    """Return the id of the store that a reason names; empty for none, and for the tags from before stores had ids."""
    return next((tag.store for tag in tags_in(reason)), "")


def must_uncordon(node: str, before: str | None) -> bool:
    """Return whether a cordon has to be lifted; False when there is none.

    Raises:
        ToolError: Somebody else set it.
    """
    if before is not None and not before.startswith(OWN):
        raise ToolError(
            f"node {node} was cordoned by somebody else ({before!r}); ask them, or lift it with the scheduler's own command"
        )
    return before is not None


def node_of(name: str, partition: str, *, jobs: tuple[str, ...], cordon: str | None, down: str | None) -> Node:
    """Return a node as the port shows it.

    Args:
        name: Its name.
        partition: Its partition.
        jobs: The jobs that run on it.
        cordon: The reason of its cordon.
        down: Why it is dead.
    """
    if down is not None:
        state = NodeState.DOWN
    elif cordon is not None:
        state = NodeState.DRAINING if jobs else NodeState.DRAINED
    else:
        state = NodeState.ALLOCATED if jobs else NodeState.IDLE
    return Node(name, state, partition, cordon or down or "", jobs)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return what a file holds; None when there is no such file."""
    try:
        content: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise Unavailable(f"local scheduler: {path} is damaged ({error}); restore it or remove its folder") from error
    return content


def write_json(path: Path, value: object) -> None:
    """Replace a file as a whole: a reader sees the old or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    _write(temporary, value)
    temporary.replace(path)


def claim(path: Path, value: object) -> bool:
    """Write a file unless it is there already; return whether we did. Of several at once exactly one does."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    _write(temporary, value)
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    return True


def _write(path: Path, value: object) -> None:
    with create_private(path, encoding="utf-8") as file:
        json.dump(value, file)


def append_line(path: Path, line: str) -> None:
    """Add a line in one write, so that lines of several processes never mix."""
    with append_private(path, "ab", buffering=0) as file:
        file.write(line.encode() + b"\n")


def say(folder: Path, at: datetime, text: str) -> None:
    """Add a line to the controller's log."""
    append_line(folder / "slurmctld.log", controller_line(at, text))


@contextmanager
def locked(folder: Path, wait_s: float = 10.0) -> Iterator[None]:
    """Hold the cluster's lock.

    Raises:
        Unavailable: Another process held it for longer than `wait_s`.
    """
    with append_private(folder / "lock") as file:
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Unavailable(f"local scheduler: {folder / 'lock'} is held by another process since {wait_s:g} s") from None
                time.sleep(0.005)
            else:
                break
        yield


def started_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None when it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def alive(pid: int, ticks: int) -> bool:
    """Whether this very process still runs: a pid alone may have been given to another."""
    return started_ticks(pid) == ticks


def to_time(text: str | None) -> datetime | None:
    """Return a stored time, aware, UTC."""
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


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
        names = (path.name for path in self.folder.iterdir() if (path / "status.json").exists())
        return sorted(names, key=int)

    def exists(self, job_id: str) -> bool:
        """Whether there is a job of that id."""
        return job_id.isdecimal() and (self.of(job_id) / "status.json").exists()

    def status(self, job_id: str) -> dict[str, Any]:
        """Return how a job stands."""
        return read_json(self.of(job_id) / "status.json") or {}

    def set_status(self, job_id: str, status: Mapping[str, Any]) -> None:
        """Write how a job stands."""
        write_json(self.of(job_id) / "status.json", status)

    def spec(self, job_id: str) -> JobSpec:
        """Return what was submitted."""
        stored = read_json(self.of(job_id) / "spec.json") or {}
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
        write_json(folder / "spec.json", stored)
        log = spec.work_dir.absolute() / spec.log.replace("%j", job_id) if spec.log else folder / "job.log"
        status: dict[str, Any] = {"state": "pending", "nodes": [], "log": str(log), "submitted": at.isoformat(), "started": None}
        self.set_status(job_id, {**status, "user": spec.user or getpass.getuser(), "reason": HELD_BY_USER if spec.hold else ""})

    def close(self, job_id: str, end: Mapping[str, Any], at: datetime) -> None:
        """Write that a job is over, and how."""
        unknown = {"ended": at.isoformat(), "exit_code": None, "signal": None}
        self.set_status(job_id, {**self.status(job_id), **unknown, **end})

    def launch_nodes(self, job_id: str) -> list[str] | None:
        """Return the nodes of a pending job whose start was cut short by a crash of ours; None when it was not begun."""
        launch = read_json(self.of(job_id) / "launch.json")
        return launch["nodes"] if launch is not None else None

    def supervisor(self, job_id: str) -> tuple[int, int]:
        """Return process id and start time of the supervisor that has the job: the first that claimed it."""
        claim = read_json(self.of(job_id) / "claim.json") or {}
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
        write_json(folder / "launch.json", launch)
        pid = _spawn(folder)
        started = {"state": "running", "nodes": list(nodes), "started": at.isoformat()}
        self.set_status(job_id, {**status, **started, "supervisor": [pid, started_ticks(pid) or 0]})

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
            submitted=to_time(status["submitted"]),
            started=to_time(status["started"]),
            ended=to_time(status.get("ended")),
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
