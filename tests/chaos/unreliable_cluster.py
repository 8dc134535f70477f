"""A simulated cluster on which nothing can be relied: answers get lost, lists are untidy, nodes are mute, ids are used again.

What fails is told in advance, so that a run of it can be repeated. The people's hands (`set_...`) are not disturbed by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import TypeVar

from assistant.errors import Unavailable
from assistant.ports import Clock, Failure, Reply
from assistant.records import Job, JobSpec, JobState
from assistant.schedulers.simulated import SimulatedCluster

Answer = TypeVar("Answer")


class Loss(StrEnum):
    """What becomes of a change that is asked for."""

    NONE = "none"
    REQUEST = "asked"
    """The question got lost: nothing changes, and nobody answers."""
    ANSWER = "answer"
    """It changes, and the answer gets lost."""


@dataclass(frozen=True, slots=True)
class SimulatedChange:
    """A change that took effect."""

    kind: str
    """submit, release, withdraw, cancel, cordon or uncordon."""
    target: str
    """Job or node."""
    text: str
    """Comment of the job, or reason of the cordon; empty for what has none."""


class UnreliableCluster(SimulatedCluster):
    """A cluster in memory that fails as it is told to."""

    def __init__(self, clock: Clock, folder: Path, nodes: int | Sequence[str] = 4, *, random: Random) -> None:
        """Make an idle cluster on which all is well.

        Args:
            clock: As for the simulated cluster.
            folder: As there.
            nodes: As there.
            random: Shuffles untidy lists.
        """
        super().__init__(clock, folder, nodes)
        self._random = random
        self.losses: list[Loss] = []
        """What becomes of the next changes, in order; all is well after the last."""
        self.mute: set[str] = set()
        """Nodes that take a connection and say nothing until the deadline."""
        self.untidy = False
        """Whether lists of jobs are out of order and hold some jobs twice."""
        self.lag_s = 0.0
        """For how long a job that ended is still shown as running."""
        self.on_change: Callable[[SimulatedChange], None] = lambda _: None
        """Told of every change that took effect, not of those of people's hands."""
        self.on_request: Callable[[str], None] = lambda _: None
        """Told before every question and change, by the name of the method; what it raises is the answer."""
        self._freed: list[str] = []
        self._newest = 0

    # Scheduler

    def jobs(self) -> Sequence[Job]:
        """Return all jobs; newest last, if lists are tidy."""
        self.on_request("jobs")
        listed = [self._accounted(job) for job in super().jobs()]
        if self.untidy and listed:
            listed += self._random.choices(listed, k=min(3, len(listed)))
            self._random.shuffle(listed)
        return listed

    def job(self, job_id: str) -> Job:
        """Return one job."""
        self.on_request("job")
        return self._accounted(super().job(job_id))

    def submit(self, spec: JobSpec) -> str:
        """Submit a job and return its id."""
        self.on_request("submit")
        return self._change("submit", "", spec.comment, lambda: super(UnreliableCluster, self).submit(spec))

    def user_jobs(self, user: str) -> Sequence[Job]:
        """Return the jobs of one user, as untidy as all."""
        return [job for job in self.jobs() if job.user == user]

    def release(self, job_id: str) -> None:
        """Let a held job begin."""
        self.on_request("release")
        self._change("release", job_id, self._jobs[job_id].comment, lambda: self._released(job_id))

    def withdraw(self, job_id: str) -> None:
        """End a job that still waits."""
        self.on_request("withdraw")
        self._change("withdraw", job_id, self._jobs[job_id].comment, lambda: self._withdrawn(job_id))

    def cancel(self, job_id: str) -> None:
        """End a job; one that ended already is left alone."""
        self.on_request("cancel")
        self._change("cancel", job_id, "", lambda: self._cancelled(job_id))

    def cordon(self, node: str, reason: str) -> None:
        """Take a node out of scheduling."""
        self.on_request("cordon")
        self._change("cordon", node, reason, lambda: super(UnreliableCluster, self).cordon(node, reason))

    def uncordon(self, node: str) -> None:
        """Put a node back that we cordoned."""
        self.on_request("uncordon")
        self._change("uncordon", node, "", lambda: super(UnreliableCluster, self).uncordon(node))

    # Transport

    def run(self, nodes: Sequence[str], command: Sequence[str], *, timeout_s: float) -> Mapping[str, Reply]:
        """Answer for the nodes that are not mute; for the others the whole deadline passes."""
        mute = [node for node in nodes if node in self.mute]
        if mute:
            self.clock.sleep(timeout_s)
        replies = dict(super().run([node for node in nodes if node not in mute], command, timeout_s=timeout_s))
        return replies | {node: Reply(node, False, None, "", f"no answer within {timeout_s:g} s", Failure.SILENT) for node in mute}

    # What a test may do to it

    def submit_by_hand(self, spec: JobSpec) -> str:
        """Submit a job as a person would."""
        with self._undisturbed():
            return super().submit(spec)

    def true_job(self, job_id: str) -> Job | None:
        """Return a job as it really is; None when its id was given back."""
        return self._jobs.get(job_id)

    def set_cancelled(self, job_id: str) -> None:
        """End a job as a person would, from elsewhere."""
        with self._undisturbed():
            super().set_cancelled(job_id)

    def set_requeued(self, job_id: str, *, hold: bool = False) -> None:
        """Put a job that has ended back in the queue under its own id."""
        with self._undisturbed():
            super().set_requeued(job_id, hold=hold)

    def set_uncordoned(self, node: str) -> None:
        """Put a node back as a person would, whoever took it out."""
        if self._cordons.pop(node, None) is not None and not self.outage:
            self._place()

    def forget(self, job_id: str) -> None:
        """Drop a job that has ended, as a controller does whose counter began anew: the next submission gets its id."""
        job = self._jobs[job_id]
        if job.state.ended:
            del self._jobs[job_id]
            self._freed.append(job_id)
            if job.log is not None:
                job.log.unlink(missing_ok=True)

    def _new_id(self) -> str:
        if self._freed:
            return self._freed.pop(0)
        self._newest += 1
        return str(self._newest)

    def _released(self, job_id: str) -> None:
        with self._undisturbed():
            super().release(job_id)

    def _withdrawn(self, job_id: str) -> None:
        with self._undisturbed():
            super().withdraw(job_id)

    def _cancelled(self, job_id: str) -> None:
        with self._undisturbed():
            super().cancel(job_id)

    def _change(self, kind: str, target: str, text: str, act: Callable[[], Answer]) -> Answer:
        self._advance()
        loss = self.losses.pop(0) if self.losses else Loss.NONE
        if loss is Loss.REQUEST:
            raise Unavailable(f"simulated cluster: {kind} was not answered: connection timed out")
        count_before = len(self.changes) + len(self.holds)
        answer = act()
        if len(self.changes) + len(self.holds) > count_before:
            self.on_change(SimulatedChange(kind, target or str(answer), text))
        if loss is Loss.ANSWER:
            raise Unavailable(f"simulated cluster: {kind} was not answered: connection timed out")
        return answer

    def _accounted(self, job: Job) -> Job:
        """Return a job as the accounting shows it."""
        if job.ended is None or job.started is None or self.clock.now() >= job.ended + timedelta(seconds=self.lag_s):
            return job
        return replace(job, state=JobState.RUNNING, ended=None, exit_code=None, signal=None, reason="")

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """Let the block see things as they are."""
        lag_s, outage, on_request = self.lag_s, self.outage, self.on_request
        self.lag_s, self.outage, self.on_request = 0.0, False, lambda _: None
        try:
            yield
        finally:
            self.lag_s, self.outage, self.on_request = lag_s, outage, on_request
