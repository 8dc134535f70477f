"""What a restart takes along: suspected nodes left out, its checkpoint, a copy of its configuration, the jobs that wait for it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from assistant.errors import ToolError, Unavailable
from assistant.ports import Dependents
from assistant.records import Checkpoint, Job, JobSpec, JobState, Risk
from assistant.recover.checkpoints.aside import write_tracker
from assistant.recover.checkpoints.inventory import examined, inventory
from assistant.recover.identity import LEFT_BEHIND, MOVED, restart_of
from assistant.recover.job_program import FileReader
from assistant.recover.restart import too_few_nodes
from assistant.recover.resume_config import ConfigCopy
from assistant.rendering import RenderedChange, command_line
from assistant.tooling import Context, tool
from assistant.tools.checkpoints import choose_checkpoint, known_forms
from assistant.untrusted import reading_as

CORDON = "cordon_node"


class Suspect(NamedTuple):
    """A node and why it is suspected, for people."""

    node: str
    why: str


def suspects(context: Context) -> list[Suspect]:
    """Return the nodes whose drain waits for an answer, and those that the call's own incident blames or wanted to take out."""
    waiting = {question.call: question.id for question in context.history.approvals()}
    listed = []
    for number, approval in waiting.items():
        call = context.history.call(number)
        if call.tool == CORDON:
            why = f"its drain waits for approval {approval}, of incident {call.incident}"
            listed.append(Suspect(str(call.arguments.get("node")), why))
    if context.incident is None:
        return listed
    diagnosis = context.history.diagnosis(context.incident)
    own = f"incident {context.incident} suspects it"
    listed += [Suspect(node, own) for node in (diagnosis.faulty_nodes if diagnosis is not None else ())]
    calls = [call for call in context.history.calls(context.incident) if call.tool == CORDON]
    return [*listed, *(Suspect(str(call.arguments.get("node")), own) for call in calls)]


def away_from_suspects(context: Context, spec: JobSpec) -> JobSpec:
    """Return a planned job that stays away from every suspected node of the cluster."""
    if not (named := {one.node for one in suspects(context)} - {*spec.exclude}):
        return spec
    known = [node.name for node in context.scheduler.nodes() if node.name in named]
    return replace(spec, exclude=(*spec.exclude, *sorted(known)))


def without_nodes(context: Context, spec: JobSpec, problem: str) -> str:
    """Return why a planned job cannot be placed, with the suspects that would have made it possible."""
    listed = {one.node: one.why for one in reversed(suspects(context)) if one.node in spec.exclude}
    spared: Sequence[str] = [node for node in spec.exclude if node not in listed]
    if not listed or not problem or too_few_nodes(replace(spec, exclude=tuple(spared)), context.scheduler.nodes()):
        return problem
    return f"{problem}; left out: {'; '.join(f'{node} ({why})' for node, why in listed.items())}"


NEWEST = ("last", "last_healthy")


def copy_lines(copy: ConfigCopy | None) -> tuple[str, ...]:
    """Return the copy as one command, with the one key that is set and a digest of all of it; nothing where none is made."""
    if copy is None:
        return ()
    digest = hashlib.sha256(copy.text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return (
        command_line(["copy", str(copy.original), "to", str(copy.path), "with", f"{copy.key}={copy.value}", f"sha256:{digest}"]),
    )


def make_copy(context: Context, job: Job, copy: ConfigCopy) -> None:
    """Write the copy with the rights of the job's owner and the mode of the original; one that says the same is kept.

    Raises:
        ToolError: Something else lies there, or it is not the change that was allowed.
        Unavailable: The storage did not answer.
    """
    context.confirm(*copy_lines(copy))
    present = FileReader(job.account)(str(copy.path))
    if present == copy.text:
        return
    if present is not None:
        raise ToolError(
            f"{copy.path} is there and says something else: it is left as it is, and job {job.id} is not submitted again"
        )
    write_tracker(copy.path, copy.text, job.account, before="", mode=copy.mode)


def named_checkpoint(context: Context, job: Job, wanted: str, *, read: bool) -> Checkpoint | None:
    """Return the checkpoint that a word or a path names; its contents are read once more right before it is used.

    Raises:
        ToolError: There is none, or it must not be loaded.
        Unavailable: The storage did not answer.
    """
    if wanted == "none":
        return None
    if not wanted:
        raise ToolError(f"there is no checkpoint of job {job.id} to restart from; `none` would begin at the start")
    path = wanted
    if wanted in NEWEST:
        choice = choose_checkpoint(context, job.id, which=wanted)
        if choice["restart_from"] == "none":
            return None
        if not choice["path"]:
            raise ToolError(f"job {job.id} cannot be restarted from a checkpoint: {choice['note']}")
        path = choice["path"]
    now, forms = context.clock.now(), known_forms(context, job)
    with reading_as(job.account):
        found = inventory(Path(path).parent, now=now, forms=forms)
        listed = next((one for one in found.checkpoints if one.path == Path(path)), None)
        if listed is None:
            raise ToolError(f"checkpoint {path} is not there or is of no known format; list_checkpoints shows what is")
        judged = examined(found, listed, now=now) if read else listed
    if not judged.healthy:
        raise ToolError(f"checkpoint {path} must not be loaded: {'; '.join(judged.problems)}")
    return judged


class DependentMoves(NamedTuple):
    """What became of the jobs that wait for a restarted one, in sentences."""

    moved: tuple[str, ...]
    left_behind: tuple[str, ...]
    """Those that wait for what cannot come any more, or were cancelled: a person must see to them."""

    @property
    def text(self) -> str:
        """All sentences, each behind a semicolon."""
        return "".join(f"; {one}" for one in (*self.moved, *self.left_behind))

    def added_to(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of a restart with what became of the jobs that wait for it."""
        left = {LEFT_BEHIND: list(self.left_behind)} if self.left_behind else {}
        moved = {MOVED: list(self.moved)} if self.moved else {}
        return {**answer, "note": f"{answer['note']}{self.text}", **left, **moved}


def move_dependents(context: Context, old: str, new: str) -> DependentMoves:
    """Let the jobs that wait for a job wait for its restart; the restart stands whatever comes of it.

    Args:
        context: Of the call.
        old: Id of the job that failed.
        new: Id of its restart; the same where it was queued again: Slurm holds on to a dependency that it took for failed.
    """
    scheduler = context.scheduler
    if not isinstance(scheduler, Dependents):
        return DependentMoves((), ())
    moved, left = [], []
    try:
        for waiting in scheduler.dependents(old):
            try:
                scheduler.move_dependent(waiting.id, old, new)
                moved.append(f"job {waiting.id} ({waiting.name} of {waiting.user}) waits for job {new}{' anew' * (new == old)} now")
            except ToolError as error:
                left.append(f"job {waiting.id} of {waiting.user} still waits for {old}, which failed, and not for {new}: {error}")
        left += _lost(scheduler, old, new)
    except Unavailable as error:
        left.append(f"whether other jobs wait for {old} is not known: {error}")
    return DependentMoves(tuple(moved), tuple(left))


def dependents_left(context: Context, old: str, new: str) -> DependentMoves:
    """Return what an interrupted restart may have left behind: jobs that wait for the old one, with what would move each."""
    scheduler = context.scheduler
    if not isinstance(scheduler, Dependents):
        return DependentMoves((), ())
    try:
        waiting, lost = scheduler.dependents(old), _lost(scheduler, old, new)
    except Unavailable as error:
        return DependentMoves((), (f"whether other jobs wait for {old} is not known: {error}",))
    left = [
        f"job {one.id} of {one.user} still waits for {old}, which failed, and not for {new}: "
        + "; ".join(scheduler.command_lines("move_dependent", one.id, old, new))
        for one in waiting
    ]
    return DependentMoves((), (*left, *lost))


def _lost(scheduler: Dependents, old: str, new: str) -> list[str]:
    return [
        f"job {lost.id} of {lost.user} was cancelled by the scheduler since {old} failed, and has to be submitted again: "
        f"--dependency=afterok:{new}"
        for lost in scheduler.lost_dependents(old)
    ]


def dependent_lines(context: Context, old: str, new: str) -> tuple[str, ...]:
    """Return the commands that let pending jobs wait for a restart."""
    scheduler = context.scheduler
    waiting = scheduler.dependents(old) if isinstance(scheduler, Dependents) else ()
    return tuple(line for one in waiting for line in scheduler.command_lines("move_dependent", one.id, old, new))


@tool(risk=Risk.CHANGE, kind="move_dependents")
def let_dependents_wait(context: Context, job: str, restart: str) -> dict[str, Any]:
    """Let the jobs that still wait for a failed job to end well wait for its restart, which this Nightshift submitted.

    It takes up what a restart could not finish that was interrupted behind the release of the new job. Whatever waits for the
    restart already is left as it is; called again, it changes nothing.

    Args:
        job: Scheduler job id of the attempt that failed.
        restart: Scheduler job id of the job that took its place.
    """
    _must_be_own(context, job, restart)
    return move_dependents(context, job, restart).added_to(_answer(job, restart))


@let_dependents_wait.lookup
def waits_for_restart(context: Context, tag: str, job: str, restart: str) -> dict[str, Any] | None:
    """Return the answer when nothing waits for the failed job any more; None lets the call be made again for what is left."""
    del tag
    return None if _waiting(context, job) else dependents_left(context, job, restart).added_to(_answer(job, restart))


@let_dependents_wait.stands
def is_moved(context: Context, job: str, restart: str) -> dict[str, Any] | None:
    """Return the answer when nothing waits for the failed job any more.

    Raises:
        ToolError: The restart is not one of this Nightshift, or has ended badly.
    """
    if not _waiting(context, job):
        return dependents_left(context, job, restart).added_to(_answer(job, restart))
    _must_be_own(context, job, restart)
    return None


@let_dependents_wait.preview
def moving(context: Context, job: str, restart: str) -> RenderedChange:
    """Return the commands, one for each job that waits."""
    lines = dependent_lines(context, job, restart)
    return RenderedChange(lines, f"{len(lines)} that wait for job {job}, which failed, wait for its restart {restart}")


def _waiting(context: Context, job: str) -> bool:
    scheduler = context.scheduler
    return isinstance(scheduler, Dependents) and bool(scheduler.dependents(job))


def _answer(job: str, restart: str) -> dict[str, Any]:
    return {"job": job, "restart": restart, "note": f"what waited for job {job} waits for {restart}"}


def _must_be_own(context: Context, job: str, restart: str) -> None:
    """Make sure that a call of this store returned one job as the restart of the other, and that it has not ended badly.

    Raises:
        ToolError: None did, or what would wait for the restart could not begin either.
    """
    shown = context.scheduler.job(restart)
    if shown.state.ended and shown.state is not JobState.COMPLETED:
        raise ToolError(f"job {restart} is {shown.state}: nothing is let wait for it")
    call = restart_of(context.history, shown)
    if call is None or call.arguments.get("job") != job or (context.incident is not None and call.incident != context.incident):
        raise ToolError(f"job {restart} is no restart of job {job} by this Nightshift: what waits for {job} is left alone")
