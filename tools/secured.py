"""Keep the last healthy checkpoint of a job that goes on behind it from being rotated away: hard links beside its folder. Undoable.

Nothing is copied and nothing of the job is touched: data that have two names stay when its program removes one of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from assistant.errors import InputError, NightshiftError, ToolError
from assistant.logs.spikes import last_run
from assistant.records import Checkpoint, Job, Risk
from assistant.recover.checkpoints.aside import lies_at
from assistant.recover.checkpoints.entry import Entry
from assistant.recover.checkpoints.inventory import Inventory, examined, last_healthy
from assistant.recover.checkpoints.rotation import Rotation, rotation_of
from assistant.recover.checkpoints.second_names import (
    Links,
    free_bytes,
    is_begun,
    link_all,
    linked_content,
    planned_links,
    secured_folder,
    unlink_all,
    withdraw_links,
)
from assistant.recover.checkpoints.secured import folder_of, is_secured, names_of, obstacle_of
from assistant.recover.joblog import log_points
from assistant.rendering import RenderedChange, command_line
from assistant.tooling import Context, tool
from assistant.tools.checkpoints import checkpoint_before, refused_from_log, search_of
from assistant.tools.preconditions import must_be_the_same_job
from assistant.untrusted import reading_as

MIB = 1 << 20


@tool(risk=Risk.READ)
def checkpoint_rotation(context: Context, job: str, step: int = 0, margin: int = 0, path: str = "") -> dict[str, Any]:
    """Tell whether and when the newest healthy checkpoint of a job is rotated away by its own saves, and whether it can be secured.

    `kept`, `saves_left` and `gone_at` are 0 and empty where what lies there does not show them. `goes_on` is `yes` of a job that
    has not ended and has such a checkpoint. `secure` is `yes` where a job that goes on may remove it and nothing speaks against a
    second name, `secure_for_restart` where the job has ended and was seen to remove older ones; `obstacle` says what speaks against
    it, `second_name` where it has one already. `words` tells people all of it behind a semicolon.

    Args:
        job: Scheduler job id.
        step: The step to stay before; 0: the newest healthy one counts.
        margin: At least so many steps before it.
        path: The checkpoint, where it was chosen already; nothing is judged then.
    """
    job_record = context.scheduler.job(job)
    empty = {
        "path": path,
        "step": 0,
        "kept": 0,
        "saves_left": 0,
        "gone_at": "",
        "secure": "",
        "secure_for_restart": "",
        "goes_on": "",
    }
    nothing: dict[str, Any] = {**empty, "obstacle": "", "second_name": "", "words": ""}
    saves = search_of(context, job_record).inventory
    if saves is None:
        return nothing
    saves = refused_from_log(job_record, saves)
    checkpoint = _checkpoint_of(context, job_record, saves, step, margin, path)
    if checkpoint is None:
        words = f"; {Path(path).name} is gone: its program has removed it" if path else ""
        return {**nothing, "words": words}
    points = last_run(log_points(job_record))
    first_step = min((point.step for point in points), default=None)
    rotation = rotation_of(saves.checkpoints, checkpoint.path, first_step=first_step)
    second, obstacle = _second_name(context, job_record, saves, checkpoint)
    may_secure = "" if second or obstacle else "yes"
    return {
        **nothing,
        "path": str(checkpoint.path),
        "step": checkpoint.step,
        "kept": rotation.limit if rotation is not None else 0,
        "saves_left": rotation.saves_left if rotation is not None else 0,
        "gone_at": rotation.gone_at.isoformat() if rotation is not None and rotation.gone_at is not None else "",
        "goes_on": "yes" if not job_record.state.ended else "",
        "secure": may_secure if not job_record.state.ended else "",
        "secure_for_restart": may_secure if job_record.state.ended and rotation is not None else "",
        "obstacle": obstacle,
        "second_name": second,
        "words": _words(job_record, checkpoint, rotation, second, obstacle),
    }


@tool(risk=Risk.CHANGE, kind="secure", undo="release_checkpoint")
def secure_checkpoint(context: Context, job: str, path: str) -> dict[str, Any]:
    """Give a healthy checkpoint of a job a second name in `nightshift-secured` beside its folder, where its rotation does not look.

    Hard links are made with the rights of the job's owner, all or none; nothing is copied, and the job is not touched. It refuses
    what is not healthy, tells no step in its name, lies on another file system than that place, or is another user's. `path` of the
    answer is the second name.

    Args:
        job: Scheduler job id; it may run or have ended.
        path: The checkpoint.
    """
    job_record = context.scheduler.job(job)
    must_be_the_same_job(context, job_record)
    links = _links(context, job_record, Path(path))
    lines = dict(zip(links.sources, _lines(links), strict=True))

    def last_look(source: Path | None) -> None:
        context.confirm(*([lines[source]] if source is not None else ()))

    link_all(links, job_record.account, context.tag, last_look)
    return _answer(job, Path(path), links.folder, links.content)


@secure_checkpoint.lookup
def was_secured(context: Context, tag: str, job: str, path: str) -> dict[str, Any] | None:
    """Return the answer when the second name is in place: it comes into place whole or not at all."""
    del tag
    job_record = context.scheduler.job(job)
    folder = secured_folder(Path(path), job_record.account)
    content = linked_content(folder, job_record.account)
    return _answer(job, Path(path), folder, content) if content is not None else None


@secure_checkpoint.stands
def is_secured_already(context: Context, job: str, path: str) -> dict[str, Any] | None:
    """Return the answer when the checkpoint has that second name already."""
    job_record = context.scheduler.job(job)
    folder = secured_folder(Path(path), job_record.account)
    content = linked_content(folder, job_record.account)
    if content is None or content != _links(context, job_record, Path(path)).content:
        return None
    return _answer(job, Path(path), folder, content)


@secure_checkpoint.withdraw
def not_secured(context: Context, tag: str, job: str, path: str) -> None:
    """Remove what was linked and not put in place."""
    account = context.scheduler.job(job).account
    withdraw_links(secured_folder(Path(path), account), account, tag)


@secure_checkpoint.preview
def securing(context: Context, job: str, path: str) -> RenderedChange:
    """Return the links."""
    links = _links(context, context.scheduler.job(job), Path(path))
    return RenderedChange(
        _lines(links), "hard links: nothing is copied, and the data stay when the job's own saves remove their first name"
    )


@tool(risk=Risk.CHANGE, kind="secure")
def release_checkpoint(context: Context, job: str, path: str, content: str = "") -> dict[str, Any]:
    """Remove the second name of a checkpoint that `secure_checkpoint` made, with the rights of the job's owner.

    It refuses where other files lie there than were linked, and where its program has removed the first name: no data go with it.

    Args:
        job: Scheduler job id whose checkpoint it is.
        path: The second name, in `nightshift-secured`.
        content: What must lie there, as the answer of `secure_checkpoint` says it; empty: anything that has another name.
    """
    account = context.scheduler.job(job).account
    folder = _place_of_second_name(path)
    context.confirm(_release_line(folder, content))
    unlink_all(folder, content, account, _release_tag(folder))
    return {"job": job, "path": path, "content": content, "note": f"{folder.name} is removed, and the data have their other name"}


@release_checkpoint.lookup
def was_released(context: Context, tag: str, job: str, path: str, content: str = "") -> dict[str, Any] | None:
    """Return the answer when nothing of it is left."""
    del tag
    account, folder = context.scheduler.job(job).account, _place_of_second_name(path)
    if linked_content(folder, account) is not None or is_begun(folder, account, _release_tag(folder)):
        return None
    return {"job": job, "path": path, "content": content, "note": "removed"}


@release_checkpoint.preview
def releasing(context: Context, job: str, path: str, content: str = "") -> RenderedChange:
    """Return the removal."""
    del context, job
    return RenderedChange((_release_line(_place_of_second_name(path), content),), "only names that the data do not need")


def _checkpoint_of(context: Context, job: Job, saves: Inventory, step: int, margin: int, path: str) -> Checkpoint | None:
    if path:
        return next((save for save in saves.checkpoints if Path(path) in (save.path, _first_name(save.path))), None)
    with reading_as(job.account):
        if step:
            return checkpoint_before(context, job, saves, step, margin).checkpoint
        return last_healthy(saves, now=context.clock.now(), live=not job.state.ended).checkpoint


def _first_name(path: Path) -> Path:
    return folder_of(path) / path.name


def _second_name(context: Context, job: Job, saves: Inventory, checkpoint: Checkpoint) -> tuple[str, str]:
    """Return the second name that a checkpoint has, or why it can be given none; both empty where it can."""
    if is_secured(checkpoint.path):
        return str(checkpoint.path), ""
    try:
        links = _links(context, job, checkpoint.path, saves)
        content = linked_content(links.folder, job.account)
    except (NightshiftError, InputError, OSError) as error:
        return "", str(error)
    if content == links.content:
        return str(links.folder / checkpoint.path.name), ""
    return "", f"{links.folder} holds other files" if content is not None else ""


def _words(job: Job, checkpoint: Checkpoint, rotation: Rotation | None, second: str, obstacle: str) -> str:
    """Return what people are told of a checkpoint that may go, each sentence behind a semicolon."""
    name = f"{checkpoint.path.name}, the last healthy one,"
    rotated = rotation is not None and not job.state.ended and not is_secured(checkpoint.path)
    parts = [rotation.words(name)] if rotation is not None and rotated else []
    if is_secured(checkpoint.path):
        parts.append(f"its program has removed {checkpoint.path.name}; it was secured before and lies at {second}")
    elif second:
        parts.append(f"{checkpoint.path.name} is secured: it has a second name (hard links), {second}, and stays there")
    elif obstacle and not job.state.ended:
        parts.append(f"it was not secured: {obstacle}")
    return "".join(f"; {part}" for part in parts)


def _links(context: Context, job: Job, path: Path, saves: Inventory | None = None) -> Links:
    """Return the second names of a checkpoint of a job.

    Raises:
        ToolError: It is not there, is no healthy checkpoint of the job, or cannot be given a second name.
        Unavailable: The storage did not answer.
    """
    if saves is None:
        inventory_now = search_of(context, job).inventory
        saves = refused_from_log(job, inventory_now) if inventory_now is not None else None
    entry = next((entry for entry in saves.entries if entry.path == path), None) if saves is not None else None
    save = next((save for save in saves.checkpoints if save.path == path), None) if saves is not None else None
    if saves is None or entry is None or save is None:
        return _links_made(context, job, path)
    if save.undecided:
        with reading_as(job.account):
            save = examined(saves, save, now=context.clock.now(), live=not job.state.ended)
    if not save.healthy:
        raise ToolError(f"{path} must not be loaded, so it is not secured: {'; '.join(save.problems)}")
    if problem := obstacle_of(entry):
        raise ToolError(f"{path} is not secured: {problem}")
    links = planned_links(path, _names(job, entry, saves), job.account, context.tag)
    _must_have_room(job, path, save.size_bytes)
    return links


def _links_made(context: Context, job: Job, path: Path) -> Links:
    """Return the second names of what is gone from its folder, or is no checkpoint of the job, as an earlier call made them.

    Raises:
        ToolError: None did.
        Unavailable: The storage did not answer.
    """
    if lies_at(path, job.account):
        raise ToolError(f"{path} is no checkpoint of job {job.id} that is known")
    return planned_links(path, (), job.account, context.tag)


def _names(job: Job, entry: Entry, saves: Inventory | None) -> list[str]:
    try:
        with reading_as(job.account):
            return names_of(entry, saves.entries if saves is not None else ())
    except OSError as error:
        raise ToolError(f"{entry.path.parent} cannot be listed: {error.strerror}") from error


def _must_have_room(job: Job, path: Path, size: int) -> None:
    """Make sure that the file system has room for the data once the program takes them for removed.

    Raises:
        ToolError: It has not.
    """
    free = free_bytes(path, job.account)
    if free < size:
        raise ToolError(
            f"{path} is not secured: it would go on holding {size // MIB:,} MiB that its program counts on, and {free // MIB:,} "
            "MiB are free"
        )


def _lines(links: Links) -> tuple[str, ...]:
    """Return the links as a person would make them; the last line has what they were decided on."""
    lines = [command_line(["cp", "-alT", str(source), str(links.folder / source.name)]) for source in links.sources]
    return (*lines[:-1], f"{lines[-1]} FILES[{links.content}]")


def _answer(job: str, path: Path, folder: Path, content: str) -> dict[str, Any]:
    second = folder / path.name
    return {
        "job": job,
        "path": str(second),
        "content": content,
        "note": f"{path.name} has a second name, {second} ({content.rpartition(', ')[0]}), which its program does not remove",
    }


def _place_of_second_name(path: str) -> Path:
    """Return the folder that holds a second name.

    Raises:
        ToolError: The path is none.
    """
    second = Path(path)
    if ".." in second.parts or not is_secured(second):
        raise ToolError(f"{path} is no second name: it does not lie in a folder nightshift-secured")
    return second.parent


def _release_line(folder: Path, content: str) -> str:
    return f"{command_line(['rm', '-r', str(folder)])} FILES[{content or 'with another name each'}]"


def _release_tag(folder: Path) -> str:
    return f"release {folder.name}"
