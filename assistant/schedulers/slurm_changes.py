"""Render each change of jobs, nodes and reservations as commands of Slurm, from what Slurm showed of them. Pure.

A change is rendered once. What is compared with the commands that were allowed is what then runs: nothing is asked in between.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from assistant.errors import ToolError
from assistant.nodeset import fold
from assistant.schedulers.cordons import OWN, must_cordon, must_uncordon
from assistant.schedulers.slurm_jobs import SlurmRow, moved
from assistant.schedulers.slurm_nodes import NodeFacts
from assistant.schedulers.slurm_run import me

LONGEST_REASON = 300
DRAIN_RIGHTS = (
    "only Slurm's own user and administrators may change nodes: set slurm.admin to words such as sudo -n, or let one run"
    " `sacctmgr modify user NAME set AdminLevel=Administrator` (docs/slurm.md)"
)
JOB_RIGHTS = "only its owner and Slurm's operators may change a job: run Nightshift as its owner (docs/slurm.md)"


class SlurmCommand(NamedTuple):
    """One command of Slurm."""

    program: str
    words: tuple[str, ...]
    before: tuple[str, ...] = ()
    """Words before the program, such as `sudo -n`."""


class SlurmChange(NamedTuple):
    """A change with its commands fixed."""

    commands: tuple[SlurmCommand, ...]
    purpose: str
    """For the message of a refusal: `to end job 7`."""
    remedy: str
    """What to do where the right is missing."""
    due: Callable[[], bool] = lambda: True
    """Whether there is anything to do; raises ToolError where the change is not allowed."""
    came_about: Callable[[], bool] = lambda: False
    """Whether what a command refused to do holds anyway; asked after a refusal."""
    silent: bool = False
    """Whether a word on standard error is a refusal, too."""
    renamed: Callable[[Mapping[str, str]], tuple[SlurmCommand, ...]] | None = None
    """The same commands with other names for job ids; None where no job that is yet to be submitted can stand in them."""

    def with_names(self, names: Mapping[str, str]) -> tuple[SlurmCommand, ...]:
        """Return the commands with other names for job ids."""
        return self.renamed(names) if self.renamed is not None else self.commands


def of_job(method: str, job_id: str, before: Sequence[str] = ()) -> SlurmCommand:
    """Return the command that ends (`cancel`) or releases a job."""
    program, words = ("scancel", (job_id,)) if method == "cancel" else ("scontrol", ("release", job_id))
    return SlurmCommand(program, words, tuple(before))


def cancel(row: SlurmRow, has_ended: Callable[[], bool]) -> SlurmChange:
    """End a job: the waiting part of an array without its limit, a heterogeneous job as a whole."""
    job_id = re.sub(r"%\d+\]$", "]", row.job.id).partition("+")[0]
    return SlurmChange(
        (of_job("cancel", job_id),),
        f"to end job {row.job.id}",
        JOB_RIGHTS,
        due=lambda: not row.job.state.ended,
        came_about=has_ended,
    )


def end_at_once(row: SlurmRow, steps: Sequence[str], before: Sequence[str], has_ended: Callable[[], bool]) -> SlurmChange:
    """End a job without SIGTERM: its script is stopped, so that it starts nothing more, then steps and script are killed.

    A plain scancel sends SIGTERM first and lets the processes go on for KillWait seconds, `--signal=KILL --full` too (22.05): many
    programs save a checkpoint on it. The last command only names the end: a script that was killed counts as cancelled by it.

    Args:
        row: The job.
        steps: Ids of its steps, without that of the batch script.
        before: Words by which its owner's rights are used.
        has_ended: Asks whether the job is over.
    """
    job_id = row.job.id.partition("+")[0]
    words = [("--signal=STOP", "--full", job_id), *([("--signal=KILL", *steps)] if steps else [])]
    words += [("--batch", "--signal=KILL", job_id), (job_id,)]
    return SlurmChange(
        tuple(SlurmCommand("scancel", arguments, tuple(before)) for arguments in words),
        f"to end job {row.job.id}",
        JOB_RIGHTS,
        due=lambda: not row.job.state.ended,
        came_about=has_ended,
    )


def release(job_id: str, row: SlurmRow, before: Sequence[str]) -> SlurmChange:
    """Let a held job begin that was asked for by `job_id`; `before` are the words by which its owner's rights are used."""

    def due() -> bool:
        if row.job.state.ended:
            raise ToolError(f"job {row.job.id} cannot be released: it is {row.job.state}")
        return row.job.held

    return SlurmChange(
        (of_job("release", row.raw_id, before),),
        f"to release job {row.job.id}",
        JOB_RIGHTS,
        due=due,
        renamed=lambda names: (of_job("release", names.get(job_id, row.raw_id), before),),
    )


def requeue(row: SlurmRow, *, hold: bool) -> SlurmChange:
    """Queue a job again under its own id."""
    words = ("requeuehold" if hold else "requeue", row.raw_id)
    return SlurmChange((SlurmCommand("scontrol", words),), f"to queue job {row.job.id} again", JOB_RIGHTS, silent=True)


def requeue_changed(row: SlurmRow, exclude: Sequence[str], comment: str, before: Sequence[str], *, hold: bool) -> SlurmChange:
    """Queue a job that has ended again under its own id, with other excluded nodes and comment, which are set while it is held.

    Args:
        row: The job; one that carries the comment already, since a call was interrupted, is only changed and released.
        exclude: All nodes to stay away from.
        comment: The whole comment.
        before: Words by which its owner's rights are used.
        hold: Whether it stays held.
    """
    update = ["update", f"JobId={row.raw_id}", *([f"ExcNodeList={','.join(exclude)}"] if exclude else []), f"Comment={comment}"]
    words = [("requeuehold", row.raw_id), tuple(update), *(() if hold else [("release", row.raw_id)])]
    # Slurm refuses to queue a job again that waits held: whoever else held it meanwhile keeps it, and no comment is written
    marked = row.job.requeued_held and comment and row.job.comment == comment
    commands = tuple(SlurmCommand("scontrol", arguments, tuple(before)) for arguments in (words[1:] if marked else words))
    return SlurmChange(commands, f"to queue job {row.job.id} again", JOB_RIGHTS, silent=True)


def move_dependent(row: SlurmRow, old: str, new: str, siblings: Sequence[str], before: Sequence[str]) -> SlurmChange:
    """Let a pending job wait for another job than before.

    Args:
        row: The pending job.
        old: Id of the job that it waited for.
        new: Id of the one that took its place; the same where that was queued again: Slurm keeps what it took for failed.
        siblings: Tasks of the old one's array that have not ended well, without itself.
        before: Words by which its owner's rights are used.
    """

    def commands(names: Mapping[str, str]) -> tuple[SlurmCommand, ...]:
        dependency = moved(row.dependency, old, names.get(new, new), siblings=siblings)
        # a task that still waits together with others of its array has no id of its own
        number = row.job.id if re.fullmatch(r"\d+_\d+", row.job.id) else row.raw_id
        return (SlurmCommand("scontrol", ("update", f"JobId={number}", f"Dependency={dependency}"), tuple(before)),)

    return SlurmChange(commands({}), f"to let job {row.job.id} wait for {new}", JOB_RIGHTS, renamed=commands)


def cordon(node: NodeFacts, reason: str, admin: Sequence[str]) -> SlurmChange:
    """Drain a node; on one that Slurm took for dead its own reason is kept behind ours."""
    reason_text = " ".join(reason.split())[:LONGEST_REASON]
    was = f" (was: {node.reason})" if node.dead and node.reason and not node.out else ""
    return SlurmChange(
        (_update(node, admin, "State=DRAIN", f"Reason={reason_text}{was}"),),
        f"to change node {node.name}",
        DRAIN_RIGHTS,
        due=lambda: must_cordon(node.name, node.cordon, reason_text) or not node.out,
    )


def uncordon(node: NodeFacts, admin: Sequence[str]) -> SlurmChange:
    """Put a node back; a silent one only loses the drain and gets Slurm's reason back."""
    if not (node.dead and node.silent):
        commands: tuple[SlurmCommand, ...] = (_update(node, admin, "State=RESUME"),)
    else:
        # with its own reason there, Slurm takes the node back by itself when it answers again
        commands = tuple(_update(node, admin, word) for word in ("State=UNDRAIN", f"Reason={node.reason_before}"))
    due = lambda: must_uncordon(node.name, node.cordon) and node.out  # noqa: E731
    return SlurmChange(commands, f"to change node {node.name}", DRAIN_RIGHTS, due=due)


def _update(node: NodeFacts, admin: Sequence[str], *words: str) -> SlurmCommand:
    return SlurmCommand("scontrol", ("update", f"NodeName={node.name}", *words), tuple(admin))


def reserve(name: str, nodes: Sequence[str], admin: Sequence[str], *, minutes: int, users: Sequence[str] = ()) -> SlurmChange:
    """Keep idle nodes for users from now on."""

    def due() -> bool:
        if not name.startswith(OWN):
            raise ToolError(f"reservation {name!r}: the name must begin with {OWN}, so that people know whose it is")
        return True

    words = [f"ReservationName={name}", "StartTime=now", f"Duration={minutes}", f"Nodes={fold(nodes)}"]
    command = SlurmCommand("scontrol", ("create", "reservation", *words, f"Users={','.join(users or [me()])}"), tuple(admin))
    return SlurmChange((command,), f"to reserve {fold(nodes)}", DRAIN_RIGHTS, due=due)


def unreserve(name: str, admin: Sequence[str], stands: Callable[[], bool]) -> SlurmChange:
    """End a reservation of ours; it may also run out by itself."""

    def due() -> bool:
        if not name.startswith(OWN):
            raise ToolError(f"reservation {name!r} is not ours; ask who made it")
        return stands()

    command = SlurmCommand("scontrol", ("delete", f"ReservationName={name}"), tuple(admin))
    return SlurmChange((command,), f"to end reservation {name}", DRAIN_RIGHTS, due=due, came_about=lambda: not stands())
