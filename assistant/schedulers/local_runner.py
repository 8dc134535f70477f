"""The supervisor of one job of the embedded scheduler: `python -m assistant.schedulers.local_runner JOB_FOLDER`.

It starts a process per rank, merges their output by lines into the job's log, ends the rest when one failed, and writes how it
all ended into `end.json`. It lives in a session of its own and needs nobody: the program that submitted the job may go away.
"""

from __future__ import annotations

import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

from assistant import processes
from assistant.nodeset import fold
from assistant.private_files import append_private
from assistant.schedulers import slurm_text
from assistant.schedulers.local_jobs import claim, read_json, say, started_ticks, write_json

POLL_S = 0.05
AFTER_FAILURE_S = 3.0
"""How long the other ranks may go on after one failed, as with `srun --kill-on-bad-exit --wait`."""
AFTER_TERM_S = 2.0
"""Between SIGTERM and SIGKILL: Slurm's KillWait, shorter."""
AFTER_NODE_S = 1.0
"""How long the others may go on after a node died: they print what they saw."""


@dataclass
class Rank:
    """One process of the job."""

    number: int
    node: str
    process: subprocess.Popen[bytes]
    buffer: bytearray = field(default_factory=bytearray)
    status: int | None = None


def _now() -> datetime:
    return datetime.now(UTC)


class Supervisor:
    """Runs one job to its end."""

    def __init__(self, job_folder: Path) -> None:
        self.folder = job_folder
        self.cluster = job_folder.parent.parent
        self.job = job_folder.name
        launch = read_json(job_folder / "launch.json")
        if launch is None:
            raise SystemExit(f"local_runner: {job_folder} holds no launch.json; it must be started by the scheduler")
        self.launch: dict[str, Any] = launch
        self.nodes: list[str] = launch["nodes"]
        self.ranks: list[Rank] = []
        self.selector = selectors.DefaultSelector()
        self.log: IO[bytes]
        self.state = ""
        self.reason = ""
        self.first_bad: Rank | None = None
        self.end_at: float | None = None
        self.term_sent: float | None = None
        self.kernel_sizes = {node: self._kernel(node).stat().st_size for node in self.nodes}

    def _open_log(self, log: Path) -> IO[bytes]:
        """Open the job's log for appending: private in our folder, as the user's umask says where the job names another."""
        if log.parent == self.folder:
            return append_private(log, "ab", buffering=0)
        log.parent.mkdir(parents=True, exist_ok=True)
        return log.open("ab", buffering=0)

    def _kernel(self, node: str) -> Path:
        return self.cluster / "nodes" / node / "kernel.log"

    def run(self) -> None:
        """Start the ranks, watch them, write the end; go at once when another supervisor has the job."""
        me = os.getpid()
        if not claim(self.folder / "claim.json", {"supervisor": [me, started_ticks(me)]}):
            return
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        log = Path(self.launch["log"])
        with self._open_log(log) as self.log:
            try:
                self._start()
            except OSError as error:
                self._finish_unstarted(error)
                return
            deadline = self.launch["time_limit_s"] and time.monotonic() + self.launch["time_limit_s"]
            while any(rank.status is None for rank in self.ranks) or self.selector.get_map():
                self._merge()
                self._reap()
                self._look_at_orders(deadline)
                self._end_the_rest()
            self._finish()

    def _start(self) -> None:
        per_node = self.launch["ranks_per_node"]
        world = per_node * len(self.nodes)
        for number in range(world):
            node = self.nodes[number // per_node]
            process = processes.start(
                ["bash", str(self.folder / "script.sh")],
                cwd=self.launch["work_dir"],
                environment=self._environment(number, world, per_node, node),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            rank = Rank(number, node, process)
            self.ranks.append(rank)
            if process.stdout is not None:
                os.set_blocking(process.stdout.fileno(), False)
                self.selector.register(process.stdout, selectors.EVENT_READ, rank)
        groups = [[rank.process.pid, started_ticks(rank.process.pid)] for rank in self.ranks]
        write_json(self.folder / "runner.json", {"groups": groups})

    def _environment(self, number: int, world: int, per_node: int, node: str) -> dict[str, str]:
        port = str(20000 + int(self.job) % 20000)
        return {
            **os.environ,
            **self.launch["environment"],
            "PYTHONUNBUFFERED": "1",
            "SLURM_JOB_ID": self.job,
            "SLURM_JOB_NAME": self.launch["name"],
            "SLURM_JOB_NODELIST": fold(self.nodes),
            "SLURM_NNODES": str(len(self.nodes)),
            "SLURM_NTASKS": str(world),
            "SLURM_PROCID": str(number),
            "SLURM_LOCALID": str(number % per_node),
            "SLURM_NODEID": str(number // per_node),
            "SLURMD_NODENAME": node,
            "NIGHTSHIFT_NODE_DIR": str(self.cluster / "nodes" / node),
            "NIGHTSHIFT_RENDEZVOUS": str(self.folder / "rendezvous"),
            "RANK": str(number),
            "LOCAL_RANK": str(number % per_node),
            "WORLD_SIZE": str(world),
            "LOCAL_WORLD_SIZE": str(per_node),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }

    def _merge(self) -> None:
        """Copy whole lines of every rank to the log."""
        for key, _ in self.selector.select(POLL_S):
            rank: Rank = key.data
            block = os.read(key.fd, 1 << 16)
            rank.buffer += block
            cut = rank.buffer.rfind(b"\n") + 1
            if not block:
                self.selector.unregister(key.fileobj)
                if rank.buffer:
                    rank.buffer += b"\n"
                cut = len(rank.buffer)
            if cut:
                self.log.write(bytes(rank.buffer[:cut]))
                del rank.buffer[:cut]
        if not self.selector.get_map():
            time.sleep(POLL_S / 5)

    def _print(self, line: str) -> None:
        self.log.write(line.encode() + b"\n")

    def _reap(self) -> None:
        for rank in self.ranks:
            if rank.status is None and (status := rank.process.poll()) is not None:
                rank.status = status
                self._signal(rank, signal.SIGKILL)  # children it left behind hold the pipe open
                if status != 0 and self.first_bad is None:
                    self.first_bad = rank
                    if self.end_at is None:
                        self.end_at = time.monotonic() + AFTER_FAILURE_S

    def _look_at_orders(self, deadline: float | None) -> None:
        """See whether the job is cancelled, too old, or a node of it died."""
        if self.state:
            return
        head, at = self.nodes[0], _now()
        dead = [node for node in self.nodes if (self.cluster / "nodes" / node / "down").exists()]
        if dead:
            self.state, self.reason = "node_fail", f"NodeDown: {fold(dead)}"
            for rank in self.ranks:
                if rank.node in dead:
                    self._signal(rank, signal.SIGKILL)
            self.end_at = time.monotonic() + AFTER_NODE_S
            self._print(f"srun: error: Node failure on {fold(dead)}")
            survivor = next((node for node in self.nodes if node not in dead), head)
            self._print(slurm_text.step_cancelled(self.job, survivor, at, "NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS"))
        elif (self.folder / "cancel").exists():
            self.state, self.reason, self.end_at = "cancelled", "cancelled", time.monotonic()
            self._print(slurm_text.job_cancelled(self.job, head, at))
            self._print("srun: Job step aborted: Waiting up to 2 seconds for job step to finish.")
        elif deadline and time.monotonic() > deadline and any(rank.status is None for rank in self.ranks):
            self.state, self.reason, self.end_at = "timeout", "TimeLimit", time.monotonic()
            self._print(slurm_text.step_cancelled(self.job, head, at, "TIME LIMIT"))

    def _end_the_rest(self) -> None:
        """Once it is time, ask the ranks that still run to stop, then make them."""
        running = [rank for rank in self.ranks if rank.status is None]
        if self.end_at is None or not running or time.monotonic() < self.end_at:
            return
        if self.term_sent is None:
            self.term_sent = time.monotonic()
            if not self.state:
                self._print(f"srun: Terminating StepId={self.job}.0")
                self._print(slurm_text.step_cancelled(self.job, self.nodes[0], _now()))
            for rank in running:
                self._signal(rank, signal.SIGTERM)
        elif time.monotonic() > self.term_sent + AFTER_TERM_S:
            for rank in running:
                self._signal(rank, signal.SIGKILL)

    def _signal(self, rank: Rank, number: signal.Signals) -> None:
        """Signal a rank with all its children."""
        try:
            os.killpg(rank.process.pid, number)
        except (ProcessLookupError, PermissionError):
            return

    def _oom_kills(self) -> int:
        """Count what the kernels of our nodes killed for the job's own memory limit since it started."""
        count = 0
        for node, size in self.kernel_sizes.items():
            with self._kernel(node).open("rb") as file:
                file.seek(size)
                count += file.read().count(b"constraint=CONSTRAINT_MEMCG")
        return count

    def _finish(self) -> None:
        ended = {rank.number: rank.status or 0 for rank in self.ranks}
        bad = self.first_bad
        kills = self._oom_kills()
        if kills:
            self._print(slurm_text.oom_killed(self.job, kills))
            self.state = self.state or "out_of_memory"
        for line in slurm_text.task_lines(ended, {rank.number: rank.node for rank in self.ranks}):
            self._print(line)
        self.state = self.state or ("failed" if bad else "completed")
        self.reason = self.reason or ("NonZeroExitCode" if bad else "")
        status = (bad.status or 0) if bad else 0
        self._write_end(max(status, 0), -status if status < 0 else None)

    def _finish_unstarted(self, error: OSError) -> None:
        """Say why nothing could be started; what had been started is ended."""
        for rank in self.ranks:
            self._signal(rank, signal.SIGKILL)
            rank.process.wait()
        self._print(f"slurmstepd: error: execve(): {error.filename or 'bash'}: {error.strerror}")
        self.state, self.reason = "failed", "NonZeroExitCode"
        self._write_end(2, None)

    def _write_end(self, exit_code: int, ended_by: int | None) -> None:
        at = _now()
        words = "done" if self.state == "completed" else f"WTERMSIG {ended_by}" if ended_by else f"WEXITSTATUS {exit_code}"
        if self.state == "node_fail":
            say(
                self.cluster,
                at - timedelta(milliseconds=1),
                f"error: Nodes {self.reason.partition(': ')[2]} not responding, setting DOWN",
            )
            words = "NODE_FAIL"
        say(self.cluster, at, f"_job_complete: JobId={self.job} {words}")
        end = {"state": self.state, "reason": self.reason, "exit_code": exit_code, "signal": ended_by, "ended": at.isoformat()}
        write_json(self.folder / "end.json", end)


if __name__ == "__main__":
    Supervisor(Path(sys.argv[1])).run()
