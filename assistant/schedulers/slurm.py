"""Slurm, by its own commands.

One `squeue` brings all jobs, one `scontrol show node` all nodes. What the controller has forgotten comes from the accounting, where
there is one, or from the job completion log. A command that fails or does not end raises `Unavailable`; only Slurm's own words
that a job or node does not exist mean that it does not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assistant.config import SlurmSettings
from assistant.errors import ToolError, Unavailable
from assistant.nodeset import fold
from assistant.ports import Clock
from assistant.records import Job, JobSpec, JobState, Node, Reservation
from assistant.rendering import NEW_JOB
from assistant.schedulers import slurm_nodes as nodes_text
from assistant.schedulers.cordons import OWN, must_cordon, must_uncordon
from assistant.schedulers.slurm_controller import controller_lines
from assistant.schedulers.slurm_history import History
from assistant.schedulers.slurm_jobs import Row, moved, nodes_of, queue_format, queue_rows, waits_for
from assistant.schedulers.slurm_run import NO_SUCH_JOB, Commands, me, refused
from assistant.schedulers.slurm_specs import Specs
from assistant.schedulers.slurm_submit import submission_line, submit
from assistant.schedulers.slurm_text import Marks, records

JOB_ID = re.compile(r"(\d+)(?:_\d+|_\[[\d,:%-]+\]|\+\d+)?")
LONGEST_REASON = 300
DRAIN_RIGHTS = (
    "only Slurm's own user and administrators may change nodes: set slurm.admin to words such as sudo -n, or let one run"
    " `sacctmgr modify user NAME set AdminLevel=Administrator` (docs/slurm.md)"
)
JOB_RIGHTS = "only its owner and Slurm's operators may change a job: run Nightshift as its owner (docs/slurm.md)"


class SlurmScheduler:
    """The cluster that Slurm's commands on this machine belong to."""

    name = "slurm"

    def __init__(self, settings: SlurmSettings, clock: Clock) -> None:
        """Reach Slurm as the settings say; nothing is asked yet."""
        self.settings = settings
        self.commands = Commands(folder=settings.folder, conf=settings.conf, timeout_s=settings.timeout_s)
        self._config: dict[str, str] = {}
        self.history = History(self.commands, clock, self.config, users=self._users(), hours=settings.history_h)
        self._specs = Specs(self.commands, self.history, self.config)

    def config(self) -> dict[str, str]:
        """Return Slurm's configuration; it is asked once.

        Raises:
            Unavailable: The controller did not answer.
        """
        if not self._config:
            self._config = dict(nodes_text.configuration(self.commands.run("scontrol", "show", "config").out))
        return self._config

    def _users(self) -> tuple[str, ...]:
        return self.settings.users or (me(),)

    # What the port asks for

    def jobs(self) -> Sequence[Job]:
        """Return the jobs of the users that the settings name, newest last; the last attempt of each."""
        users = self._users()
        rows = self._queue("--all") if "*" in users else self._queue("--all", f"--user={','.join(users)}")
        old = self.history.recent(rows)
        return [row.job for row in sorted([*old, *rows], key=lambda row: (len(row.raw_id), row.raw_id))]

    def job(self, job_id: str) -> Job:
        """Return one job of anybody, with all that a new submission needs.

        Raises:
            ToolError: Neither the controller nor the accounting knows it.
            Unavailable: One of them did not answer, so nobody can tell.
        """
        return self._specs.with_spec(self._row(job_id))

    def submit(self, spec: JobSpec) -> str:
        """Hand a job to sbatch and return its id.

        Raises:
            ToolError: Slurm refused it; the message has its words.
            Unavailable: Nobody can tell whether it was submitted: look for its comment.
        """
        return submit(self.commands, self.settings, spec)

    def user_jobs(self, user: str) -> Sequence[Job]:
        """Return all jobs of one user, newest last; of one that the settings leave out, what the controller still knows."""
        if "*" in self._users() or user in self._users():
            return [job for job in self.jobs() if job.user == user]
        return [row.job for row in self._queue("--all", f"--user={user}")]

    def release(self, job_id: str) -> None:
        """Let a job begin that was submitted held; one that is not held is left alone.

        Raises:
            ToolError: It has ended, or the right to do it is missing.
        """
        row = self._row(job_id)
        if row.job.state.ended:
            raise ToolError(f"job {job_id} cannot be released: it is {row.job.state}")
        if row.job.held:
            done = self.commands.run("scontrol", "release", row.raw_id, before=self._as_owner(row.job.user))
            if done.status:
                raise refused(f"to release job {job_id}", done, JOB_RIGHTS)

    def withdraw(self, job_id: str) -> None:
        """End a job that still waits; Slurm itself leaves it alone when it has begun meanwhile.

        Raises:
            ToolError: The right to do it is missing.
        """
        row = self._row(job_id)
        if row.job.state is JobState.PENDING:
            done = self.commands.run("scancel", "--state=PENDING", row.job.id, before=self._as_owner(row.job.user))
            if done.status and self._row(job_id).job.state is JobState.PENDING:
                raise refused(f"to withdraw job {job_id}", done, JOB_RIGHTS)

    def _as_owner(self, user: str) -> Sequence[str]:
        """Return the words by which the site lets us submit for a user: the same rights end or release what was submitted so."""
        return [word.replace("{user}", user) for word in self.settings.submit_as] if user not in ("", me()) else ()

    def cancel(self, job_id: str) -> None:
        """End a job; one that has ended already is left alone."""
        row = self._row(job_id)
        if row.job.state.ended:
            return
        done = self.commands.run("scancel", _cancelled_id(row.job.id))
        if done.status and not self._row(job_id).job.state.ended:
            raise refused(f"to end job {job_id}", done, JOB_RIGHTS)

    def nodes(self) -> Sequence[Node]:
        """Return all nodes in the order of their names, with the jobs that this user may see."""
        facts = nodes_text.node_facts(self.commands.run("scontrol", "show", "node", "-o").out)
        marks = Marks()
        wanted = f"JobArrayID:0{marks.between},NodeList:0{marks.behind}"
        text = self.commands.run("squeue", "--all", "--states=RUNNING,COMPLETING,SUSPENDED,CONFIGURING", "-O", wanted).out
        jobs: dict[str, list[str]] = {}
        for job_id, listed in records(text, marks, 2):
            for node in nodes_of(listed):
                jobs.setdefault(node, []).append(job_id)
        return [one.shown(jobs.get(one.name, ())) for one in facts]

    def cordon(self, node: str, reason: str) -> None:
        """Drain a node; jobs on it go on. A reason of somebody else is never overwritten.

        Raises:
            ToolError: Unknown node, drained or set down by somebody else, or the right to do it is missing.
        """
        facts, reason = self._node(node), _written_reason(reason)
        if must_cordon(node, facts.cordon, reason) or not facts.out:
            for words in _cordon_words(facts, reason):
                self._admin(f"to change node {node}", *words)

    def uncordon(self, node: str) -> None:
        """Put a node back that we drained; one that is not drained is left alone, one that is silent only loses the drain.

        Raises:
            ToolError: Unknown node, its reason is not ours, or the right to do it is missing.
        """
        facts = self._node(node)
        if must_uncordon(node, facts.cordon) and facts.out:
            for words in _uncordon_words(facts):
                self._admin(f"to change node {node}", *words)

    # What not every scheduler can do

    def requeue(self, job_id: str, *, hold: bool = False) -> None:
        """Queue a job again under its own id; a running one is ended first.

        Raises:
            ToolError: It was submitted with --no-requeue, or the right to do it is missing.
        """
        row = self._row(job_id)
        done = self.commands.run("scontrol", "requeuehold" if hold else "requeue", row.raw_id)
        if done.status or done.err.strip():
            raise refused(f"to queue job {job_id} again", done, JOB_RIGHTS)

    def dependents(self, job_id: str) -> Sequence[Job]:
        """Return the pending jobs that wait for a job to end well."""
        return [row.job for row in self._queue("--all", "--states=PENDING") if _waits(row, job_id)]

    def move_dependent(self, dependent: str, old: str, new: str) -> None:
        """Let a pending job wait for another job than before.

        Raises:
            ToolError: The right to do it is missing, or the new job does not exist.
        """
        row = self._row(dependent)
        done = self.commands.run("scontrol", *_move_words(row, old, new))
        if done.status:
            raise refused(f"to let job {dependent} wait for {new}", done, JOB_RIGHTS)

    def reservations(self) -> Sequence[Reservation]:
        """Return all reservations, of anybody."""
        return nodes_text.reservations(self.commands.run("scontrol", "show", "reservation", "-o").out)

    def reserve(self, name: str, nodes: Sequence[str], *, minutes: int, users: Sequence[str] = ()) -> None:
        """Keep idle nodes for users from now on.

        Raises:
            ToolError: The name is not ours, a job runs on one of the nodes, or the right to do it is missing.
        """
        if not name.startswith(OWN):
            raise ToolError(f"reservation {name!r}: the name must begin with {OWN}, so that people know whose it is")
        self._admin(f"to reserve {fold(nodes)}", *_reserve_words(name, nodes, minutes=minutes, users=users))

    def unreserve(self, name: str) -> None:
        """End a reservation of ours; one that is over is left alone."""
        if not name.startswith(OWN):
            raise ToolError(f"reservation {name!r} is not ours; ask who made it")
        if not self._reserved(name):
            return
        try:
            self._admin(f"to end reservation {name}", *_unreserve_words(name))
        except ToolError:
            if self._reserved(name):  # else it ran out between the two questions
                raise

    def switches(self) -> Mapping[str, str]:
        """Return the lowest switch above each node.

        Raises:
            ToolError: Slurm knows no network: topology.conf is missing.
        """
        done = self.commands.run("scontrol", "show", "topology")
        found = nodes_text.switches(done.out)
        if not found and not self.config().get("TopologyPlugin", "").endswith(("tree", "block")):
            raise ToolError("Slurm knows no network between the nodes: it has no topology.conf")
        return found

    def _reserved(self, name: str) -> bool:
        return any(one.name == name for one in self.reservations())

    def controller_log(self, job_id: str | None = None) -> str:
        """Return slurmctld.log: the end of it, or the lines of a job and its nodes.

        Raises:
            ToolError: This machine or user cannot read it.
        """
        path = self.settings.controller_log or Path(self.config().get("SlurmctldLogFile", "") or "slurmctld.log")
        return controller_lines(path, self._row(job_id).job if job_id is not None else None)

    def command_lines(self, method: str, /, *arguments: Any, **named: Any) -> tuple[str, ...]:
        """Return the commands that a changing method would run now, with the programs, wrappers and words that it uses.

        Raises:
            ToolError: What the arguments name does not exist.
            Unavailable: Slurm did not answer, or its programs are not there.
        """
        admin, line = self.settings.admin, self.commands.line
        match method, list(arguments):
            case "submit", [JobSpec() as spec]:
                return (submission_line(self.commands, self.settings, spec),)
            case "cancel", [job_id]:
                return (line("scancel", job_id if job_id == NEW_JOB else _cancelled_id(self._row(job_id).job.id)),)
            case "release", [job_id]:
                row = None if job_id == NEW_JOB else self._row(job_id)
                owner = self._as_owner(row.job.user) if row is not None else ()
                return (line("scontrol", "release", row.raw_id if row is not None else NEW_JOB, before=owner),)
            case "requeue", [job_id]:
                return (line("scontrol", "requeuehold" if named.get("hold") else "requeue", self._row(job_id).raw_id),)
            case "cordon", [node, reason]:
                return tuple(line("scontrol", *words, before=admin) for words in _cordon_words(self._node(node), reason))
            case "uncordon", [node]:
                return tuple(line("scontrol", *words, before=admin) for words in _uncordon_words(self._node(node)))
            case "move_dependent", [dependent, old, new]:
                return (line("scontrol", *_move_words(self._row(dependent), old, new)),)
            case "reserve", [name, nodes]:
                return (line("scontrol", *_reserve_words(name, nodes, **named), before=admin),)
            case "unreserve", [name]:
                return (line("scontrol", *_unreserve_words(name), before=admin),)
        raise ToolError(f"{method}{tuple(arguments)} is no change that Slurm's commands can make")

    # Asking Slurm

    def _queue(self, *words: str) -> list[Row]:
        marks = Marks()
        states = () if any(word.startswith("--states=") for word in words) else ("--states=all",)
        done = self.commands.run("squeue", *words, *states, "-O", queue_format(marks))
        if done.status:
            raise Unavailable(f"squeue failed, so nothing is known: {done.said}")
        return queue_rows(done.out, marks)

    def _row(self, job_id: str) -> Row:
        named = JOB_ID.fullmatch(job_id)
        if named is None:
            raise ToolError(f"job {job_id!r} is unknown to Slurm: an id looks like 4821, 4821_3 or 4821+1")
        marks = Marks()
        words = ("--all", "--states=all", f"--jobs={named.group(1)}", "-O", queue_format(marks))
        done = self.commands.run("squeue", *words)
        if done.status and not NO_SUCH_JOB.search(done.err):
            raise Unavailable(f"squeue failed, so nothing is known of job {job_id}: {done.said}")
        rows = queue_rows(done.out, marks) if not done.status else []
        found = _chosen(rows, job_id)
        if found is None and (not rows or job_id != named.group(1)):
            # not while the controller knows an array by its tasks: the accounting may still hold a row of the whole, never to end
            found = self.history.last(job_id)
        if found is None:
            others = f"; tasks and parts of it: {', '.join(row.job.id for row in rows[:5])}" if rows else ""
            raise ToolError(f"job {job_id!r} is unknown to Slurm{others or ': it never was, or was forgotten'}")
        return found

    def _node(self, name: str) -> nodes_text.NodeFacts:
        facts = nodes_text.node_facts(self.commands.run("scontrol", "show", "node", "-o").out)
        found = next((one for one in facts if one.name == name), None)
        if found is None:
            raise ToolError(f"node {name!r} is unknown to Slurm; known: {fold(one.name for one in facts)}")
        return found

    def _admin(self, what: str, *words: str) -> None:
        done = self.commands.run("scontrol", *words, before=self.settings.admin)
        if done.status:
            raise refused(what, done, DRAIN_RIGHTS)


def _cancelled_id(job_id: str) -> str:
    """Return how scancel names a job: the waiting part of an array without its limit, a heterogeneous job as a whole."""
    return re.sub(r"%\d+\]$", "]", job_id).partition("+")[0]


def _cordon_words(facts: nodes_text.NodeFacts, reason: str) -> list[list[str]]:
    """Return the words for scontrol that drain a node; on one that Slurm took for dead its own reason is kept behind ours."""
    was = f" (was: {facts.reason})" if facts.dead and facts.reason and not facts.out else ""
    return [["update", f"NodeName={facts.name}", "State=DRAIN", f"Reason={_written_reason(reason)}{was}"]]


def _written_reason(reason: str) -> str:
    return " ".join(reason.split())[:LONGEST_REASON]


def _uncordon_words(facts: nodes_text.NodeFacts) -> list[list[str]]:
    """Return the words for scontrol that put a node back; a silent one only loses the drain and gets Slurm's reason back."""
    if not (facts.dead and facts.silent):
        return [["update", f"NodeName={facts.name}", "State=RESUME"]]
    # with its own reason there, Slurm takes the node back by itself when it answers again
    return [["update", f"NodeName={facts.name}", word] for word in ("State=UNDRAIN", f"Reason={facts.reason_before}")]


def _move_words(row: Row, old: str, new: str) -> list[str]:
    return ["update", f"JobId={row.raw_id}", f"Dependency={moved(row.dependency, old, new)}"]


def _reserve_words(name: str, nodes: Sequence[str], *, minutes: int, users: Sequence[str] = ()) -> list[str]:
    words = [f"ReservationName={name}", "StartTime=now", f"Duration={minutes}", f"Nodes={fold(nodes)}"]
    return ["create", "reservation", *words, f"Users={','.join(users or [me()])}"]


def _unreserve_words(name: str) -> list[str]:
    return ["delete", f"ReservationName={name}"]


def _chosen(rows: Sequence[Row], job_id: str) -> Row | None:
    """Return the row of an id; a heterogeneous job's first part answers for the whole, an array's waiting rest for its tasks."""
    base, _, task = job_id.partition("_")
    for row in rows:
        if row.job.id in (job_id, f"{job_id}+0"):
            return row
        tasks = re.fullmatch(rf"{base}_\[([\d,:-]+)(?:%\d+)?\]", row.job.id)
        if tasks and (not task or f"x{task}" in nodes_of(f"x[{tasks.group(1).replace(':', '/')}]")):
            return row._replace(job=replace(row.job, id=job_id)) if task else row
    return None


def _waits(row: Row, job_id: str) -> bool:
    return row.job.state is JobState.PENDING and bool(waits_for(row.dependency, job_id))
