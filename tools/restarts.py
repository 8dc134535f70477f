"""Parts of a restart: nodes left out, its checkpoint and configuration, by which tag it is known, the jobs that wait for it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from assistant.errors import ToolError, Unavailable
from assistant.ports import Dependents
from assistant.records import Checkpoint, Job, JobSpec, JobState, Risk, run_of, tag_of
from assistant.recover.checkpoints.aside import write_tracker
from assistant.recover.checkpoints.inventory import Inventory, examined, inventory
from assistant.recover.checkpoints.secured import folder_of
from assistant.recover.identity import LEFT_BEHIND, MOVED, is_claim, is_withdrawn_claim, restart_of
from assistant.recover.job_program import FileReader
from assistant.recover.restart import elsewhere, too_few_nodes
from assistant.recover.resume.config import ConfigCopy
from assistant.rendering import RenderedChange, command_line
from assistant.tooling import Context, tool
from assistant.tools.checkpoints import choose_checkpoint, search_of
from assistant.tools.trial_results import with_trial_results
from assistant.untrusted import reading_as

CORDON = "cordon_node"
HALF_THE_IDS = 1 << 25
"""Of job ids. Source: slurm.conf(5), MaxJobId: 67,043,328 by default."""


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


def away_from_suspects(context: Context, spec: JobSpec, not_all_of: Sequence[str] = ()) -> JobSpec:
    """Return a planned job that stays away from every suspected node of the cluster.

    Args:
        context: Of the call.
        spec: The planned job.
        not_all_of: Nodes of which one is at fault and nobody knows which: it does not run on all of them.
    """
    if suspected := {suspect.node for suspect in suspects(context)} - {*spec.exclude}:
        present = [node.name for node in context.scheduler.nodes() if node.name in suspected]
        spec = replace(spec, exclude=(*spec.exclude, *sorted(present)))
    if not not_all_of:
        return spec
    return replace(spec, exclude=(*spec.exclude, *elsewhere(spec, not_all_of, context.scheduler.nodes())))


def without_nodes(context: Context, spec: JobSpec, problem: str) -> str:
    """Return why a planned job cannot be placed, with the suspects that would have made it possible."""
    listed = {suspect.node: suspect.why for suspect in reversed(suspects(context)) if suspect.node in spec.exclude}
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
    present = FileReader(job.account)(str(copy.path))
    context.confirm(*copy_lines(copy))
    if present == copy.text:
        return
    if present is not None:
        raise ToolError(
            f"{copy.path} is there and says something else: it is left as it is, and job {job.id} is not submitted again"
        )
    write_tracker(copy.path, copy.text, job.account, before="", mode=copy.mode)


def named_checkpoint(context: Context, job: Job, name: str, *, read: bool) -> Checkpoint | None:
    """Return the checkpoint that a word or a path names; its contents are read once more right before it is used.

    Raises:
        ToolError: There is none, or it must not be loaded.
        Unavailable: The storage did not answer.
    """
    if name == "none":
        return None
    if not name:
        raise ToolError(f"there is no checkpoint of job {job.id} to restart from; `none` would begin at the start")
    path = name
    if name in NEWEST:
        choice = choose_checkpoint(context, job.id, which=name)
        if choice["restart_from"] == "none":
            return None
        if not choice["path"]:
            raise ToolError(f"job {job.id} cannot be restarted from a checkpoint: {choice['note']}")
        path = choice["path"]
    now, saves = context.clock.now(), saves_beside(context, job, Path(path))
    with reading_as(job.account):
        listed = next((save for save in saves.checkpoints if save.path == Path(path)), None)
        if listed is None:
            raise ToolError(f"checkpoint {path} is not there or is of no known format; list_checkpoints shows what is")
        judged = examined(saves, listed, now=now) if read and listed.healthy else listed
    if not judged.healthy:
        raise ToolError(f"checkpoint {path} must not be loaded: {'; '.join(judged.problems)}")
    return judged


def saves_beside(context: Context, job: Job, path: Path) -> Inventory:
    """Return what the folder of a checkpoint holds, judged as the choice judges it: by the job's log and by trial starts as well.

    Raises:
        ToolError: The folder cannot be judged.
        Unavailable: The storage did not answer.
    """
    search = search_of(context, job)
    saves = search.inventory
    if saves is None or path not in [save.path for save in saves.checkpoints]:
        forms = search.place.forms if search.place is not None else frozenset()
        with reading_as(job.account):
            saves = inventory(folder_of(path), now=context.clock.now(), forms=forms)
    return with_trial_results(context, job, saves)


class DependentMoves(NamedTuple):
    """What became of the jobs that wait for a restarted one, in sentences."""

    moved: tuple[str, ...]
    left_behind: tuple[str, ...]
    """Those that wait for what cannot come any more, or were cancelled: a person must see to them."""

    @property
    def text(self) -> str:
        """All sentences, each behind a semicolon."""
        return "".join(f"; {sentence}" for sentence in (*self.moved, *self.left_behind))

    def added_to(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of a restart with what became of the jobs that wait for it."""
        behind_values = {LEFT_BEHIND: list(self.left_behind)} if self.left_behind else {}
        moved = {MOVED: list(self.moved)} if self.moved else {}
        return {**answer, "note": f"{answer['note']}{self.text}", **behind_values, **moved}


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
    moved, unmoved = [], []
    try:
        for waiting in scheduler.dependents(old):
            try:
                scheduler.move_dependent(waiting.id, old, new)
                moved.append(f"job {waiting.id} ({waiting.name} of {waiting.user}) waits for job {new}{' anew' * (new == old)} now")
            except ToolError as error:
                unmoved.append(
                    f"job {waiting.id} of {waiting.user} still waits for {old}, which failed, and not for {new}: {error}"
                )
        unmoved += _lost(scheduler, old, new)
    except Unavailable as error:
        unmoved.append(f"whether other jobs wait for {old} is not known: {error}")
    return DependentMoves(tuple(moved), tuple(unmoved))


def remaining_dependents(context: Context, old: str, new: str) -> DependentMoves:
    """Return what an interrupted restart may have left behind: jobs that wait for the old one, with what would move each."""
    scheduler = context.scheduler
    if not isinstance(scheduler, Dependents):
        return DependentMoves((), ())
    try:
        waiting, lost = scheduler.dependents(old), _lost(scheduler, old, new)
    except Unavailable as error:
        return DependentMoves((), (f"whether other jobs wait for {old} is not known: {error}",))
    unmoved = [
        f"job {dependent.id} of {dependent.user} still waits for {old}, which failed, and not for {new}: "
        + "; ".join(scheduler.command_lines("move_dependent", dependent.id, old, new))
        for dependent in waiting
    ]
    return DependentMoves((), (*unmoved, *lost))


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
    return tuple(line for dependent in waiting for line in scheduler.command_lines("move_dependent", dependent.id, old, new))


def carries_tag(tag: str, job: Job, old: Job) -> bool:
    """Return whether a job of the same run carries a tag and was released: the call was made, whatever the store says."""
    if not tag or tag not in job.comment.split() or job.id == old.id or run_of(job) != run_of(old):
        return False
    return not is_claim(job) and not is_withdrawn_claim(job)


def is_of_call(context: Context, tag: str, job: Job) -> bool:
    """Return whether a call submitted a job, as far as its own rows and the scheduler's fields tell."""
    if tag not in job.comment.split():
        return False
    call = restart_of(context.history, job)
    return call is not None and tag_of(context.history.store_id, call.incident, call.id) == tag


def is_later_id(job_id: str, other_id: str) -> bool:
    """Return whether an id was given after another one."""
    ahead = _id_number(job_id) - _id_number(other_id)
    # Slurm begins again at FirstJobId behind MaxJobId: of two ids that far apart the larger one was given first
    return ahead > 0 if abs(ahead) < HALF_THE_IDS else ahead < 0


def _id_number(job_id: str) -> int:
    return int(re.match(r"\d*", job_id, re.ASCII)[0] or 0)  # type: ignore[index]


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
    return None if _waiting(context, job) else remaining_dependents(context, job, restart).added_to(_answer(job, restart))


@let_dependents_wait.stands
def is_moved(context: Context, job: str, restart: str) -> dict[str, Any] | None:
    """Return the answer when nothing waits for the failed job any more.

    Raises:
        ToolError: The restart is not one of this Nightshift, or has ended badly.
    """
    if not _waiting(context, job):
        return remaining_dependents(context, job, restart).added_to(_answer(job, restart))
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
    restarted_job = context.scheduler.job(restart)
    if restarted_job.state.ended and restarted_job.state is not JobState.COMPLETED:
        raise ToolError(f"job {restart} is {restarted_job.state}: nothing is let wait for it")
    call = restart_of(context.history, restarted_job)
    if call is None or call.arguments.get("job") != job or (context.incident is not None and call.incident != context.incident):
        raise ToolError(f"job {restart} is no restart of job {job} by this Nightshift: what waits for {job} is left alone")
