"""Slurm, by its own commands.

One `squeue` brings all jobs, one `scontrol show node` all nodes. What the controller has forgotten comes from the accounting, where
there is one, or from the job completion log. A command that fails or does not end raises `Unavailable`; only Slurm's own words
that a job or node does not exist mean that it does not.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from assistant.config import Settings, SlurmSettings
from assistant.errors import ToolError, Unavailable
from assistant.nodeset import fold
from assistant.ports import Clock, PlannedChange
from assistant.records import Job, JobSpec, JobState, Node, Reservation
from assistant.records.jobs import ProcessReport
from assistant.rendering import NEW_JOB
from assistant.schedulers import slurm_nodes as changes
from assistant.schedulers import slurm_nodes as nodes_text
from assistant.schedulers.slurm_history import SlurmHistory, peak_memory
from assistant.schedulers.slurm_jobs import (
    NEVER_SATISFIED,
    SlurmRow,
    controller_lines,
    killer_in,
    nodes_of,
    queue_format,
    queue_rows,
    tasks_of,
    waiting_row,
)
from assistant.schedulers.slurm_nodes import SlurmChange, SlurmCommand
from assistant.schedulers.slurm_run import (
    JOB_RIGHTS,
    NO_RIGHT,
    NO_SUCH_JOB,
    SlurmCommands,
    arguments_problem,
    me,
    refused,
    submission,
    submission_line,
    submit,
)
from assistant.schedulers.slurm_specs import Specs
from assistant.schedulers.slurm_text import UNKNOWN_USER, Marks, owner_of, records, user_word

logger = logging.getLogger(__name__)

JOB_ID = re.compile(r"(\d+)(?:_\d+|_\[[\d,:%-]+\]|\+\d+)?")
SETTLE_S, SETTLE_POLL_S = 5.0, 0.3
"""How long a refused end of a job is looked at, and how often: Slurm refuses signals to a job that begins or ends just then."""
STEP = re.compile(r"(?P<job>\d+(?:_\d+)?)(?:\+\d+)?\.\d+")


def open_scheduler(settings: Settings, clock: Clock) -> SlurmScheduler:
    """Return the scheduler that `scheduler = "slurm"` names."""
    return SlurmScheduler(settings.slurm, clock)


class SlurmScheduler:
    """The cluster that Slurm's commands on this machine belong to."""

    name = "slurm"

    def __init__(self, settings: SlurmSettings, clock: Clock) -> None:
        """Reach Slurm as the settings say; nothing is asked yet."""
        self.settings = settings
        self.commands = SlurmCommands(folder=settings.folder, conf=settings.conf, timeout_s=settings.timeout_s)
        self._config: dict[str, str] = {}
        self._owners: dict[str, str] = {}
        """Of jobs whose owner this machine does not know, by the id that is a task's own."""
        self.history = SlurmHistory(self.commands, clock, self.config, users=self._users(), hours=settings.history_h)
        self._specs = Specs(self.commands, self.history, self.config)
        self.recall_processes: Callable[[Job], ProcessReport | None] | None = None

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
        rows = self.history.with_steps(rows)
        return [row.job for row in sorted([*old, *rows], key=lambda row: (len(row.raw_id), row.raw_id))]

    def job(self, job_id: str) -> Job:
        """Return one job of anybody, with all that a new submission needs.

        Raises:
            ToolError: Neither the controller nor the accounting knows it.
            Unavailable: One of them did not answer, so nobody can tell.
        """
        row = self._row(job_id)
        job = self._specs.with_spec(row)
        if job.state is JobState.CANCELLED and not job.ended_by:
            job = replace(job, ended_by=self._canceller(row))
        if job.state.ended and job.state is not JobState.COMPLETED:
            job = replace(job, steps=self.history.steps(row))
        return replace(job, site_logs=self.settings.logs, processes=self.recall_processes(job) if self.recall_processes else None)

    def _canceller(self, row: SlurmRow) -> str:
        """Return who cancelled a job: by the accounting, else by the controller's log; empty where neither says so."""
        try:
            if name := self.history.canceller(row):
                return name
            return killer_in(self.controller_log(), row.job)
        except (ToolError, Unavailable):
            return ""

    def peak_memory_bytes(self, job_id: str) -> int | None:
        """Return the most that a task of an ended job held, by the accounting's samples; None where it keeps none."""
        if JOB_ID.fullmatch(job_id) is None or not self.history.accounted:
            return None
        completed = self.commands.run("sacct", "--noheader", "--parsable2", "--format=JobID,MaxRSS", "--jobs", job_id)
        return peak_memory(completed.out) if not completed.status else None

    def submit(self, spec: JobSpec) -> str:
        """Hand a job to sbatch and return its id.

        Raises:
            ToolError: Slurm refused it; the message has its words.
            Unavailable: Nobody can tell whether it was submitted: look for its comment.
        """
        return str(self.planned("submit", [spec], {}).give())

    def user_jobs(self, user: str) -> Sequence[Job]:
        """Return all jobs of one user, newest last; of one that the settings leave out, what the controller still knows."""
        if "*" in self._users() or user in self._users():
            return [job for job in self.jobs() if job.user == user]
        return [row.job for row in self._queue("--all", f"--user={user_word(user)}")]

    def release(self, job_id: str) -> None:
        """Let a job begin that was submitted held; one that is not held is left alone.

        Raises:
            ToolError: It has ended, or the right to do it is missing.
        """
        self.planned("release", [job_id], {}).give()

    def withdraw(self, job_id: str) -> None:
        """End a job that still waits; Slurm itself leaves it alone when it has begun meanwhile.

        Raises:
            ToolError: The right to do it is missing.
        """
        row = self._row(job_id)
        if row.job.state is JobState.PENDING:
            completed = self.commands.run("scancel", "--state=PENDING", row.job.id, before=self._as_owner(row.job.user))
            if completed.status and self._row(job_id).job.state is JobState.PENDING:
                raise refused(f"to withdraw job {job_id}", completed, JOB_RIGHTS)

    def _as_owner(self, user: str) -> Sequence[str]:
        """Return the words by which the site lets us submit for a user: the same rights end or release what was submitted so."""
        return [word.replace("{user}", user) for word in self.settings.submit_as] if user not in ("", me()) else ()

    def cancel(self, job_id: str) -> None:
        """End a job; one that has ended already is left alone."""
        self.planned("cancel", [job_id], {}).give()

    def nodes(self) -> Sequence[Node]:
        """Return all nodes in the order of their names, with the jobs that this user may see."""
        facts = nodes_text.node_facts(self.commands.run("scontrol", "show", "node", "-o").out)
        marks = Marks()
        columns = f"JobArrayID:0{marks.between},NodeList:0{marks.record_end}"
        text = self.commands.run("squeue", "--all", "--states=RUNNING,COMPLETING,SUSPENDED,CONFIGURING", "-O", columns).out
        jobs: dict[str, list[str]] = {}
        for job_id, listed in records(text, marks, 2):
            for node in nodes_of(listed):
                jobs.setdefault(node, []).append(job_id)
        return [node.as_node(jobs.get(node.name, ())) for node in facts]

    def cordon(self, node: str, reason: str) -> None:
        """Drain a node; jobs on it go on. A reason of somebody else is never overwritten.

        Raises:
            ToolError: Unknown node, drained or set down by somebody else, or the right to do it is missing.
        """
        self.planned("cordon", [node, reason], {}).give()

    def uncordon(self, node: str) -> None:
        """Put a node back that we drained; one that is not drained is left alone, one that is silent only loses the drain.

        Raises:
            ToolError: Unknown node, its reason is not ours, or the right to do it is missing.
        """
        self.planned("uncordon", [node], {}).give()

    # What not every scheduler can do

    def requeue(self, job_id: str, *, hold: bool = False, exclude: Sequence[str] = (), comment: str = "") -> None:
        """Queue a job again under its own id; a running one is ended first.

        With `exclude` or `comment` it is held until both are written down, with `hold` until it is released.

        Raises:
            ToolError: It was submitted with --no-requeue, or the right to do it is missing.
        """
        self.planned("requeue", [job_id], {"hold": hold, "exclude": exclude, "comment": comment}).give()

    def end_at_once(self, job_id: str) -> None:
        """End a job by SIGKILL alone, so that nothing of it saves on its way out; one that has ended is left alone.

        Raises:
            ToolError: The right to do it is missing.
        """
        self.planned("end_at_once", [job_id], {}).give()

    def submission_problem(self, spec: JobSpec) -> str:
        """Return why a job cannot be submitted anew as it was: the arguments of another user's script, through sudo."""
        return arguments_problem(self.settings, spec)

    def differences(self, job_id: str, claim: str, spec: JobSpec) -> Sequence[str]:
        """Return what a held job has otherwise than the job that it repeats, but for what a restart means to change.

        Raises:
            Unavailable: Slurm did not answer, so nobody can tell.
        """
        repeated = submission(self.settings, spec)
        return self._specs.differences(self._row(job_id), self._row(claim), spec, repeated.script)

    def dependents(self, job_id: str) -> Sequence[Job]:
        """Return the pending jobs that wait for a job to end well; of a task of an array also those that wait for all its tasks."""
        waiting = (waiting_row(row, job_id) for row in self._queue("--all", "--states=PENDING"))
        return [row.job for row in waiting if row is not None]

    def lost_dependents(self, job_id: str) -> Sequence[Job]:
        """Return the jobs that Slurm cancelled since they waited for a job to end well (`--kill-on-invalid-dep`)."""
        waiting = (waiting_row(row, job_id) for row in self._queue("--all", "--states=CANCELLED"))
        return [row.job for row in waiting if row is not None and row.job.reason == NEVER_SATISFIED]

    def move_dependent(self, dependent: str, old: str, new: str) -> None:
        """Let a pending job wait for another job than before.

        Raises:
            ToolError: The right to do it is missing, or the new job does not exist.
        """
        self.planned("move_dependent", [dependent, old, new], {}).give()

    def reservations(self) -> Sequence[Reservation]:
        """Return all reservations, of anybody."""
        return nodes_text.reservations(self.commands.run("scontrol", "show", "reservation", "-o").out)

    def reserve(self, name: str, nodes: Sequence[str], *, minutes: int, users: Sequence[str] = ()) -> None:
        """Keep idle nodes for users from now on.

        Raises:
            ToolError: The name is not ours, a job runs on one of the nodes, or the right to do it is missing.
        """
        self.planned("reserve", [name, nodes], {"minutes": minutes, "users": users}).give()

    def unreserve(self, name: str) -> None:
        """End a reservation of ours; one that is over is left alone."""
        self.planned("unreserve", [name], {}).give()

    def switches(self) -> Mapping[str, str]:
        """Return the lowest switch above each node.

        Raises:
            ToolError: Slurm knows no network: topology.conf is missing.
        """
        completed = self.commands.run("scontrol", "show", "topology")
        by_node = nodes_text.switches(completed.out)
        if not by_node and not self.config().get("TopologyPlugin", "").endswith(("tree", "block")):
            raise ToolError("Slurm knows no network between the nodes: it has no topology.conf")
        return by_node

    def _reserved(self, name: str) -> bool:
        return any(reservation.name == name for reservation in self.reservations())

    def controller_log(self, job_id: str | None = None) -> str:
        """Return slurmctld.log: the end of it, or the lines of a job and its nodes.

        Raises:
            ToolError: This machine or user cannot read it.
        """
        path = self.settings.controller_log or Path(self.config().get("SlurmctldLogFile", "") or "slurmctld.log")
        return controller_lines(path, self._row(job_id).job if job_id is not None else None)

    def command_lines(self, method: str, /, *arguments: Any, **keywords: Any) -> tuple[str, ...]:
        """Return the commands that a changing method would run now, with the programs, wrappers and words that it uses.

        Raises:
            ToolError: What the arguments name does not exist.
            Unavailable: Slurm did not answer, or its programs are not there.
        """
        match method, list(arguments):
            case "submit", [JobSpec() as spec]:
                return (submission_line(self.commands, submission(self.settings, spec)),)
            case "cancel" | "release", [str() as job_id] if job_id == NEW_JOB:
                owner = self._as_owner(str(keywords.get("user", ""))) if method == "release" else ()
                return self._lines([changes.of_job(method, NEW_JOB, owner)])
        return self._lines(self._change(method, arguments, keywords).commands)

    def planned(
        self, method: str, arguments: Sequence[Any], keywords: Mapping[str, Any], shown_as: Mapping[str, str] | None = None
    ) -> PlannedChange:
        """Ask Slurm what a changing method needs to know, and fix its commands.

        Raises:
            ToolError: The change is refused: an unknown job or node, somebody else's cordon.
            Unavailable: Slurm did not answer.
        """
        match method, list(arguments):
            case "submit", [JobSpec() as spec]:
                prepared = submission(self.settings, spec)
                return PlannedChange((submission_line(self.commands, prepared),), lambda: submit(self.commands, spec, prepared))
        change = self._change(method, arguments, keywords)
        if not change.due():
            return PlannedChange((), lambda: None)
        return PlannedChange(self._lines(change.with_names(shown_as or {})), lambda: self._give(change))

    def _change(self, method: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> SlurmChange:
        """Render a change from one look at Slurm."""
        match method, list(arguments):
            case "cancel", [job_id]:
                return changes.cancel(self._row(job_id), lambda: self._row(job_id).job.state.ended)
            case "end_at_once", [job_id]:
                row = self._row(job_id)
                owner = self._as_owner(row.job.user)
                return changes.end_at_once(row, self._steps(row), owner, lambda: self._over(job_id))
            case "release", [job_id]:
                row = self._row(job_id)
                return changes.release(job_id, row, self._as_owner(row.job.user))
            case "requeue", [job_id]:
                row, exclude, comment = self._row(job_id), keywords.get("exclude", ()), str(keywords.get("comment", ""))
                hold = bool(keywords.get("hold"))
                if not exclude and not comment:
                    return changes.requeue(row, hold=hold)
                return changes.requeue_changed(row, exclude, comment, self._as_owner(row.job.user), hold=hold)
            case "cordon", [node, reason]:
                return changes.cordon(self._node(node), reason, self.settings.admin)
            case "uncordon", [node]:
                return changes.uncordon(self._node(node), self.settings.admin)
            case "move_dependent", [dependent, old, new]:
                row = self._row(dependent)
                return changes.move_dependent(row, old, new, self._siblings(old), self._as_owner(row.job.user))
            case "reserve", [name, nodes]:
                return changes.reserve(name, nodes, self.settings.admin, **keywords)
            case "unreserve", [name]:
                return changes.unreserve(name, self.settings.admin, lambda: self._reserved(name))
        raise ToolError(f"{method}{tuple(arguments)} is no change that Slurm's commands can make")

    def _lines(self, commands: Sequence[SlurmCommand]) -> tuple[str, ...]:
        return tuple(self.commands.line(command.program, *command.words, before=command.before) for command in commands)

    def _give(self, change: SlurmChange) -> None:
        for command in change.commands:
            completed = self.commands.run(command.program, *command.words, before=command.before)
            if not completed.status and not (change.silent and completed.err.strip()):
                continue
            # a later command may do what one that came too early or too late could not
            goes_on = change.insists and not NO_RIGHT.search(completed.error_text)
            is_last = command is change.commands[-1]
            if not change.came_about() and not (goes_on and (not is_last or self._comes_about(change))):
                raise refused(change.purpose, completed, change.remedy)

    def _comes_about(self, change: SlurmChange) -> bool:
        """Ask for a moment whether a refused change holds anyway: the controller may be about to clear what it names."""
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            time.sleep(SETTLE_POLL_S)
            if change.came_about():
                return True
        return False

    # Asking Slurm

    def _steps(self, row: SlurmRow) -> list[str]:
        """Return the ids of a running job's steps, in all its parts, without the batch script and what Slurm itself runs."""
        job_id = row.job.id.partition("+")[0]
        parts = [job_id]
        if "+" in row.job.id:  # each part has its steps under an id of its own
            parts = [part.raw_id for part in self._queue("--all", f"--jobs={job_id}") if part.job.id.startswith(f"{job_id}+")]
        completed = self.commands.run("squeue", "--all", "--noheader", "--steps", f"--jobs={','.join(parts)}", "--format=%i")
        if completed.status and not NO_SUCH_JOB.search(completed.err):
            raise Unavailable(f"squeue failed, so the steps of job {row.job.id} are not known: {completed.error_text}")
        # the answer names what will be killed, so a step counts only by the id of its job, or of a part of a heterogeneous one
        steps = [(STEP.fullmatch(word), word) for word in completed.out.split()]
        return sorted(word for match, word in steps if match is not None and match["job"] in parts)

    def _siblings(self, job_id: str) -> list[str]:
        """Return the tasks of a task's array that have not ended well, without itself, as the controller still knows them."""
        base, _, task = job_id.partition("_")
        if not task:
            return []
        rows = [row for row in self._queue("--all", f"--jobs={base}") if row.job.state is not JobState.COMPLETED]
        return [f"{base}_{index}" for row in rows for index in tasks_of(row.job.id) if index != task]

    def _over(self, job_id: str) -> bool:
        """Tell whether a job has ended, or is about to: its processes were killed and its nodes are being cleared."""
        return self._row(job_id).job.state.ended or "COMPLETING" in self.commands.run("squeue", "-h", "-j", job_id, "-o", "%T").out

    def _queue(self, *words: str) -> list[SlurmRow]:
        marks = Marks()
        states = () if any(word.startswith("--states=") for word in words) else ("--states=all",)
        completed = self.commands.run("squeue", *words, *states, "-O", queue_format(marks))
        if completed.status:
            raise Unavailable(f"squeue failed, so nothing is known: {completed.error_text}")
        return self._with_owners(queue_rows(completed.out, marks))

    def _with_owners(self, rows: list[SlurmRow]) -> list[SlurmRow]:
        """Return rows in which a user whom this machine does not know is named by their number: squeue writes `nobody` for each.

        The number is asked for once a job; where it cannot be, the row stays as it is.
        """
        new = [row for row in rows if row.job.user == UNKNOWN_USER and row.raw_id not in self._owners]
        if new:
            marks = Marks()
            columns = f"JobID:0{marks.between},UserID:0{marks.record_end}"
            ids = f"--jobs={','.join(dict.fromkeys(row.raw_id for row in new))}"
            completed = self.commands.run("squeue", "--all", "--states=all", ids, "-O", columns)
            try:
                numbers = dict(records(completed.out, marks, 2)) if not completed.status else {}
            except Unavailable as error:
                logger.warning("owners of jobs are not known by their number: %s", error)
                numbers = {}
            self._owners |= {row.raw_id: owner_of(row.job.user, numbers.get(row.raw_id, "")) for row in new if numbers}
        return [
            row._replace(job=replace(row.job, user=owner, account=owner))
            if row.job.user == UNKNOWN_USER and (owner := self._owners.get(row.raw_id, ""))
            else row
            for row in rows
        ]

    def _row(self, job_id: str) -> SlurmRow:
        match = JOB_ID.fullmatch(job_id)
        if match is None:
            raise ToolError(f"job {job_id!r} is unknown to Slurm: an id looks like 4821, 4821_3 or 4821+1")
        marks = Marks()
        words = ("--all", "--states=all", f"--jobs={match.group(1)}", "-O", queue_format(marks))
        completed = self.commands.run("squeue", *words)
        if completed.status and not NO_SUCH_JOB.search(completed.err):
            raise Unavailable(f"squeue failed, so nothing is known of job {job_id}: {completed.error_text}")
        rows = self._with_owners(queue_rows(completed.out, marks)) if not completed.status else []
        row = _row_of(rows, job_id)
        if row is None and (not rows or job_id != match.group(1)):
            # not while the controller knows an array by its tasks: the accounting may still hold a row of the whole, never to end
            row = self.history.last(job_id)
        if row is None:
            hint = f"; tasks and parts of it: {', '.join(row.job.id for row in rows[:5])}" if rows else ""
            raise ToolError(f"job {job_id!r} is unknown to Slurm{hint or ': it never was, or was forgotten'}")
        return row

    def _node(self, name: str) -> nodes_text.NodeFacts:
        facts = nodes_text.node_facts(self.commands.run("scontrol", "show", "node", "-o").out)
        matching = next((node for node in facts if node.name == name), None)
        if matching is None:
            raise ToolError(f"node {name!r} is unknown to Slurm; known: {fold(node.name for node in facts)}")
        return matching


def _row_of(rows: Sequence[SlurmRow], job_id: str) -> SlurmRow | None:
    """Return the row of an id; a heterogeneous job's first part answers for the whole, an array's waiting rest for its tasks."""
    base, _, task = job_id.partition("_")
    for row in rows:
        if row.job.id in (job_id, f"{job_id}+0"):
            return row
        if row.job.id.startswith(f"{base}_[") and (not task or task in tasks_of(row.job.id)):
            return row._replace(job=replace(row.job, id=job_id)) if task else row
    return None
