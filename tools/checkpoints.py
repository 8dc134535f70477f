"""Look at a job's checkpoints: list them, judge one, choose the one to restart from. Nothing is loaded, moved or deleted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from assistant.errors import ToolError
from assistant.records import Checkpoint, Job, Risk
from assistant.recover.checkpoints.inventory import Choice, Inventory, before_step, examined, inventory, last, last_healthy
from assistant.recover.checkpoints.place import Place, checkpoint_place, last_saved
from assistant.recover.joblog import log_lines
from assistant.tooling import Context, tool
from assistant.untrusted import is_folder, reading_as

WHICH = ("last", "last_healthy", "before_step")


@tool(risk=Risk.READ)
def list_checkpoints(context: Context, job: str, folder: str = "") -> dict[str, Any]:
    """List a job's checkpoints, oldest first, each with what speaks against loading it; contents are not read.

    Args:
        job: Scheduler job id.
        folder: Where to look; found from the settings, the script or the log when empty.
    """
    shown = context.scheduler.job(job)
    place = _place(context, shown, folder)
    with reading_as(shown.account):
        found = inventory(place.folder, now=context.clock.now(), live=not shown.state.ended)
    return {
        "folder": str(place.folder),
        "found_by": place.how,
        "checkpoints": [about(checkpoint) for checkpoint in found.checkpoints],
        "notes": list(found.notes),
    }


@tool(risk=Risk.READ)
def verify_checkpoint(context: Context, path: str) -> dict[str, Any]:
    """Judge one checkpoint, with its contents read and checksums compared.

    Args:
        path: The checkpoint: an `iter_0000500` folder, a `.ckpt` file.
    """
    wanted = Path(path)
    found = inventory(wanted.parent, now=context.clock.now())
    checkpoint = next((c for c in found.checkpoints if c.path == wanted), None)
    if checkpoint is None:
        found = inventory(wanted, now=context.clock.now())
        checkpoint = next((c for c in found.checkpoints if c.path == wanted), None)
    if checkpoint is None:
        raise ToolError(f"{path} is no checkpoint of a known format; list the folder above it with list_checkpoints")
    return {**about(examined(found, checkpoint, now=context.clock.now())), "notes": list(found.notes)}


@tool(risk=Risk.READ)
def choose_checkpoint(context: Context, job: str, which: str = "last_healthy", step: int = 0, margin: int = 0) -> dict[str, Any]:
    """Choose the checkpoint to restart a job from, and say which newer ones were refused and why.

    `restart_from` is its path, `none` when the job never saved one and may begin at the start, and empty when checkpoints are there
    and none may be used. `fallback` is its path when newer ones were refused.

    Args:
        job: Scheduler job id.
        which: `last_healthy`, `before_step` (healthy too), or `last` (the newest, healthy or not).
        step: For `before_step`: the step to stay before.
        margin: For `before_step`: at least so many steps before it.
    """
    if which not in WHICH:
        raise ToolError(f"which must be one of {', '.join(WHICH)}, not {which!r}")
    if which == "before_step" and step < 1:
        raise ToolError("which=before_step needs the step to stay before")
    shown = context.scheduler.job(job)
    found = job_inventory(context, shown)
    if found is None:
        return _none(Choice(None, ()), "the job never saved a checkpoint", fresh=True, notes=())
    now, live = context.clock.now(), not shown.state.ended
    with reading_as(shown.account):
        if which == "last":
            choice = Choice(last(found), ())
        elif which == "last_healthy":
            choice = last_healthy(found, now=now, live=live)
        else:
            choice = before_step(found, step, now=now, margin=margin, live=live)
    if choice.checkpoint is None:
        words = f"none of {len(found.checkpoints)} checkpoints in {found.folder} " + (
            f"is healthy and {margin} steps before step {step}" if which == "before_step" else "may be loaded"
        )
        return _none(choice, words, fresh=False, notes=found.notes)
    chosen = about(choice.checkpoint)
    refused = [about(checkpoint) for checkpoint in choice.refused]
    start = {"restart_from": chosen["path"], "fallback": chosen["path"] if refused else ""}
    return {**chosen, **start, "refused": refused, "notes": list(found.notes), "note": _note(choice)}


def _note(choice: Choice) -> str:
    chosen = f"checkpoint of step {choice.checkpoint.step}" if choice.checkpoint is not None else "no checkpoint"
    refused = "; ".join(f"{checkpoint.path.name} refused: {checkpoint.problems[0]}" for checkpoint in choice.refused)
    return f"{chosen}; {refused}" if refused else chosen


def _none(choice: Choice, why: str, *, fresh: bool, notes: tuple[str, ...]) -> dict[str, Any]:
    refused = [about(checkpoint) for checkpoint in choice.refused]
    note = f"{why}; {_note(choice)}" if refused else why
    begin = "none" if fresh else ""
    return {"path": "", "step": 0, "restart_from": begin, "fallback": "", "refused": refused, "notes": list(notes), "note": note}


def about(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return a checkpoint as JSON values."""
    return {
        "path": str(checkpoint.path),
        "step": checkpoint.step,
        "format": checkpoint.format,
        "size_bytes": checkpoint.size_bytes,
        "saved_at": checkpoint.saved_at.isoformat(),
        "healthy": checkpoint.healthy,
        "problems": list(checkpoint.problems),
    }


def job_inventory(context: Context, job: Job) -> Inventory | None:
    """Return what a job's checkpoint folder holds; None when it surely never saved one.

    Raises:
        ToolError: The log tells of saves, but the folder is missing, empty or not to be found: its checkpoints may be lost.
        Unavailable: The storage did not answer.
    """
    place = checkpoint_place(job, context.checkpoint_folders, (line.text for line in log_lines(job)))
    saved = _says_saved(job)
    if place is None:
        if saved:
            raise ToolError(
                f"job {job.id} saved checkpoints, but not where: name the folder with #NIGHTSHIFT checkpoints=… in its script"
            )
        return None
    with reading_as(job.account):
        if not is_folder(place.folder) and not saved:
            return None
        found = inventory(place.folder, now=context.clock.now(), live=not job.state.ended)
    if not found.checkpoints and saved:
        raise ToolError(
            f"job {job.id} says it saved checkpoints, but {place.folder} ({place.how}) holds none: look where they went"
        )
    return found if found.checkpoints else None


def _says_saved(job: Job) -> bool:
    texts = [line.text for line in log_lines(job)]
    return last_saved(texts) is not None or any("successfully saved checkpoint" in text for text in texts)


def _place(context: Context, job: Job, folder: str) -> Place:
    if folder:
        return Place(Path(folder), "named")
    place = checkpoint_place(job, context.checkpoint_folders, (line.text for line in log_lines(job)))
    if place is None:
        raise ToolError(f"where job {job.id} saves is not known; name it: folder=…, or #NIGHTSHIFT checkpoints=… in its script")
    return place
