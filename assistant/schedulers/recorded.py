"""A cluster as it once stood: jobs, nodes and kernels from a record. Looking answers; a change is noted and nothing happens."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assistant.errors import ToolError, Unavailable
from assistant.ports import Reply
from assistant.records import Job, JobSpec, Node
from assistant.rendering import method_lines

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
