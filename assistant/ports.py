"""The edges of the engine: what it needs from the outside, as small as it can be asked for.

Each port has a real implementation and a fake that ships: `local` and `slurm` beside `simulated` for the scheduler, `local`
and `ssh` beside `recorded` for the transport. A port never guesses: when the other side does not answer it raises
`errors.Unavailable`, and nobody may read that as "no jobs" or "node dead".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable

from assistant.records import Call, Decision, Job, JobSpec, Node, Reservation
from assistant.records.jobs import ProcessReport


class Scheduler(Protocol):
    """Where jobs run."""

    name: str

    def jobs(self) -> Sequence[Job]:
        """Return all jobs that the scheduler still knows, newest last.

        Raises:
            Unavailable: The scheduler did not answer.
        """
        ...

    def job(self, job_id: str) -> Job:
        """Return one job.

        Raises:
            ToolError: The scheduler answered that it knows no such job.
            Unavailable: The scheduler did not answer.
        """
        ...

    def submit(self, spec: JobSpec) -> str:
        """Submit a job and return its id."""
        ...

    def release(self, job_id: str) -> None:
        """Let a job begin that was submitted held; one that is not held is left alone.

        Raises:
            ToolError: It has ended, or the right to do it is missing.
            Unavailable: Nobody can tell whether it was released.
        """
        ...

    def withdraw(self, job_id: str) -> None:
        """End a job that still waits; one that has begun or ended is left alone, so that no work can be lost.

        Raises:
            ToolError: The right to do it is missing.
            Unavailable: Nobody can tell whether it was ended.
        """
        ...

    def user_jobs(self, user: str) -> Sequence[Job]:
        """Return all jobs of one user that the scheduler still knows, also of a user whom `jobs` leaves out; newest last."""
        ...

    def cancel(self, job_id: str) -> None:
        """End a job; a job that has ended already is left alone."""
        ...

    def nodes(self) -> Sequence[Node]:
        """Return all nodes in the order of their names."""
        ...

    def cordon(self, node: str, reason: str) -> None:
        """Take a node out of scheduling, jobs on it go on.

        Raises:
            ToolError: Unknown node, or cordoned by somebody else with another reason, which is left untouched.
        """
        ...

    def uncordon(self, node: str) -> None:
        """Put a node back that we cordoned.

        Raises:
            ToolError: Unknown node, or its reason is not ours.
        """
        ...

    def command_lines(self, method: str, /, *arguments: Any, **named: Any) -> tuple[str, ...]:
        """Return the exact commands that a changing method would run with these arguments now; nothing is changed.

        Equal lines mean equal commands. Scripts and environments stand in a line by their digest, the id of a job that is yet to be
        submitted as `rendering.NEW_JOB`.

        Args:
            method: `submit`, `cancel`, `cordon`, `uncordon`, or a changing method of an optional port that this scheduler has.
            arguments: Of the method.
            named: Its keyword arguments.

        Raises:
            ToolError: What the arguments name does not exist, or cannot be written as a command.
            Unavailable: The scheduler did not answer.
        """
        ...


class PlannedChange(NamedTuple):
    """A change whose commands are fixed: what the cluster does after it was planned alters them no more."""

    lines: tuple[str, ...]
    """Its commands as `Scheduler.command_lines` renders them; empty where nothing is left to be done."""
    give: Callable[[], Any]
    """Runs exactly these commands and returns what the method returns; it raises what the method raises."""


@runtime_checkable
class PlansChanges(Protocol):
    """A scheduler whose commands depend on what it reads first, and that can read, render and run in separate steps."""

    def planned(
        self, method: str, arguments: Sequence[Any], named: Mapping[str, Any], shown_as: Mapping[str, str] | None = None
    ) -> PlannedChange:
        """Read what a changing method needs to know and fix its commands; nothing is changed before `give`.

        Args:
            method: As `command_lines` takes it.
            arguments: Of the method.
            named: Its keyword arguments.
            shown_as: Job ids that stand under another name in the lines, such as `rendering.NEW_JOB`.

        Raises:
            ToolError: The change is refused: unknown job or node, somebody else's cordon.
            Unavailable: The scheduler did not answer.
        """
        ...


@runtime_checkable
class RecallsProcesses(Protocol):
    """A scheduler whose `job` attaches what the job's processes were seen to write (`Job.processes`)."""

    recall_processes: Callable[[Job], ProcessReport | None] | None
    """Gives what the store keeps of an attempt; None until an engine is built around the scheduler."""


@runtime_checkable
class ControllerLog(Protocol):
    """A scheduler that can show what its controller logged; not every one can."""

    def controller_log(self, job_id: str | None = None) -> str:
        """Return the lines about a job and its nodes, or all of them, oldest first."""
        ...


@runtime_checkable
class MeasuresMemory(Protocol):
    """A scheduler whose accounting knows how much host memory the processes of an ended job held."""

    def peak_memory_bytes(self, job_id: str) -> int | None:
        """Return the most that one step of a job held, as far as it was sampled; None where that is not kept."""
        ...


class Failure(StrEnum):
    """Why a node was not reached; none of these says that the node is unhealthy."""

    UNRESOLVED = "unresolved"
    """No address is known for the name."""
    UNREACHABLE = "unreachable"
    """No route, or no answer to the attempt to connect."""
    REFUSED = "refused"
    """The machine answered that nobody listens."""
    SILENT = "silent"
    """The connection stands, but the other side says nothing: a hung machine or sshd."""
    TIMEOUT = "timeout"
    """The command ran and did not end in time."""
    LOST = "lost"
    """The connection broke while the command ran: how far it came is unknown."""
    UNKNOWN_KEY = "unknown_key"
    KEY_MISMATCH = "key_mismatch"
    KEY_REVOKED = "key_revoked"
    AUTHENTICATION = "authentication"
    """The account does not let us in."""
    PROTOCOL = "protocol"
    """What answers speaks no SSH that we speak, or its shell does not run commands."""
    PROXY = "proxy"
    """The way there is broken: a jump host or a ProxyCommand."""
    OUTPUT = "output"
    """The command said more than the limit and was ended."""
    CONFIG = "config"
    """Settings on this side forbid or prevent it: ssh_config, no more file descriptors."""


@runtime_checkable
class Requeues(Protocol):
    """A scheduler that can start a job again under its own id, with the options and environment of its submission."""

    def requeue(self, job_id: str, *, hold: bool = False, exclude: Sequence[str] = (), comment: str = "") -> None:
        """End a job if it runs, and queue it again; with `hold` it waits until somebody releases it.

        Args:
            job_id: The job; of a heterogeneous one any part stands for the whole.
            hold: Whether it waits then.
            exclude: All nodes to stay away from; empty leaves what it had.
            comment: The whole comment; empty leaves what it had.
        """
        ...


@runtime_checkable
class EndsAtOnce(Protocol):
    """A scheduler that can end a job without the notice (SIGTERM) on which many programs save once more."""

    def end_at_once(self, job_id: str) -> None:
        """End a running job by SIGKILL alone; one that has ended is left alone."""
        ...


@runtime_checkable
class LimitsSubmissions(Protocol):
    """A scheduler that may be unable to submit somebody's job anew although it can queue it again."""

    def submission_problem(self, spec: JobSpec) -> str:
        """Return why a job cannot be submitted anew as it was, with these rights; empty where it can, as far as that is known."""
        ...


@runtime_checkable
class ReadsBack(Protocol):
    """A scheduler that can show what it made of a held job."""

    def differences(self, job_id: str, claim: str, spec: JobSpec) -> Sequence[str]:
        """Return what a held job has otherwise than the job that it repeats, but for what a restart means to change.

        Args:
            job_id: The job that ended.
            claim: The held one.
            spec: What was submitted.

        Returns:
            One sentence for each difference: shape, script, arguments, environment, limits, paths; empty where there is none.

        Raises:
            Unavailable: The scheduler did not answer, so nobody can tell.
        """
        ...


@runtime_checkable
class Dependents(Protocol):
    """A scheduler whose jobs may wait for other jobs."""

    def dependents(self, job_id: str) -> Sequence[Job]:
        """Return the pending jobs that wait for a job to end well."""
        ...

    def lost_dependents(self, job_id: str) -> Sequence[Job]:
        """Return the jobs that were cancelled by the scheduler since they waited for a job to end well."""
        ...

    def move_dependent(self, dependent: str, old: str, new: str) -> None:
        """Let a pending job wait for another job than before, or anew for the same one after it was queued again.

        Raises:
            ToolError: It may not be changed by us, or the scheduler has no words for it.
        """
        ...


@runtime_checkable
class Reserves(Protocol):
    """A scheduler that can keep nodes free for a while."""

    def reservations(self) -> Sequence[Reservation]:
        """Return all reservations, of anybody."""
        ...

    def reserve(self, name: str, nodes: Sequence[str], *, minutes: int, users: Sequence[str] = ()) -> None:
        """Keep idle nodes for users from now on; the name must begin with `nightshift`."""
        ...

    def unreserve(self, name: str) -> None:
        """End a reservation of ours; one that is over is left alone."""
        ...


@dataclass(frozen=True, slots=True)
class Reply:
    """One node's answer to a command."""

    node: str
    reached: bool
    """False when the command did not run or did not end in time: the node's state is unknown."""
    status: int | None
    """Exit status; None when not reached."""
    out: str
    err: str
    """Standard error, or why the node was not reached."""
    failure: str = ""
    """Why it was not reached, one of `Failure`, where the transport can tell; empty when reached."""


class Transport(Protocol):
    """How a command gets to nodes."""

    name: str

    def run(self, nodes: Sequence[str], command: Sequence[str], *, timeout_s: float) -> Mapping[str, Reply]:
        """Run one command on every node side by side and return a reply for each; never raises for a node."""
        ...


class Approver(Protocol):
    """Who answers when the policy says `ask`."""

    def ask(self, call: Call, decision: Decision) -> Decision:
        """Return the person's decision.

        Raises:
            Parked: Nobody can answer now; the call waits in the inbox.
        """
        ...


class Clock(Protocol):
    """Time, so that tests can jump."""

    def now(self) -> datetime:
        """Return the time, aware, UTC."""
        ...

    def ticks(self) -> float:
        """Return seconds since some moment: they only grow, also when somebody sets the time of day."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait for some seconds."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """Return the time, aware, UTC."""
        from datetime import UTC

        return datetime.now(UTC)

    def ticks(self) -> float:
        """Return seconds since the machine was started."""
        import time

        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait for some seconds."""
        import time

        time.sleep(seconds)


class JumpingClock:
    """A clock for tests and dry runs: sleeping jumps ahead and costs nothing."""

    def __init__(self, start: datetime) -> None:
        self._now = start
        self._ticks = 0.0

    def now(self) -> datetime:
        """Return the time it was set to, plus all sleeps."""
        return self._now

    def ticks(self) -> float:
        """Return the sum of all sleeps."""
        return self._ticks

    def set(self, now: datetime) -> None:
        """Set the time of day, as an administrator or NTP does: no time passes."""
        self._now = now

    def sleep(self, seconds: float) -> None:
        """Jump ahead."""
        from datetime import timedelta

        self._now += timedelta(seconds=seconds)
        self._ticks += seconds


@runtime_checkable
class Topology(Protocol):
    """A scheduler that knows the network between its nodes."""

    def switches(self) -> Mapping[str, str]:
        """Return the switch next to each node.

        Raises:
            ToolError: No network is configured.
            Unavailable: The scheduler did not answer.
        """
        ...


class Embedder(Protocol):
    """Turns texts into vectors that lie close where the meaning is close."""

    @property
    def name(self) -> str:
        """With its version: vectors of different names are never compared."""
        ...

    @property
    def dims(self) -> int:
        """Numbers of a vector."""
        ...

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return one vector of length 1 for each text; the zero vector for a text without words."""
        ...


@dataclass(frozen=True)
class LineScore:
    """A ranker's judgement of one line."""

    root: float
    """0..1: how likely it is the line that an expert would cite."""
    reasons: Mapping[str, float]
    """0..1 for each reason, the likeliest first, at least three of them; they sum to at most 1."""


class Ranker(Protocol):
    """Judges lines that no signature knows."""

    name: str
    """With its version and training data's digest."""

    def rank(self, lines: Sequence[str]) -> Sequence[LineScore]:
        """Return a score for each line, judged without the others."""
        ...


class RuleWriter(Protocol):
    """Proposes patterns for groups of routine lines; several proposals vote, and the winner has to be proven."""

    name: str
    """For the provenance of rules: `model:<name>` is what they are kept under."""

    def propose(self, lines: Sequence[str]) -> str:
        """Return a regular expression that describes whole lines like these; asked again it may answer otherwise."""
        ...


@dataclass(frozen=True)
class Described:
    """A language model's description of an excerpt."""

    reason: str
    """One of the reasons it was given."""
    lines: tuple[int, ...]
    """Numbers of the lines that show it, as given with the excerpt."""
    rivals: tuple[str, ...] = ()
    """Reasons that were thought of as well."""


class Describer(Protocol):
    """Describes a failure that neither rules nor memory know, in a fixed form; it decides nothing."""

    name: str

    def describe(self, excerpt: Sequence[str], reasons: Sequence[str]) -> Described | None:
        """Return what an excerpt speaks for; None when there is no answer in time, or none of that form.

        Args:
            excerpt: Lines; the first has number 1.
            reasons: What may be named.
        """
        ...
