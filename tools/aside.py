"""Let a restart load the checkpoint that was chosen: move refused ones out of the way, or set the tracker file. Undoable."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assistant.errors import ToolError
from assistant.records import Job, Risk
from assistant.recover.checkpoints.aside import Move, is_link, move, moves_aside, moves_back, original, tracker_text, write_tracker
from assistant.recover.checkpoints.inventory import inventory
from assistant.recover.checkpoints.layout import TRACKERS
from assistant.rendering import RenderedChange, command_line
from assistant.tooling import Context, tool
from assistant.tools._meant import must_be_alone_of_its_run, must_be_meant
from assistant.untrusted import reading_as


@tool(risk=Risk.CHANGE, kind="set_aside", undo="put_back_checkpoints")
def set_aside_checkpoints(context: Context, job: str, paths: list[str]) -> dict[str, Any]:
    """Rename checkpoints into a folder `nightshift-refused` beside them, so that a job that takes the newest does not load them.

    Nothing is deleted or copied. It refuses while a job of the run is alive, and what is no checkpoint. `paths` of the answer is
    where they lie then.

    Args:
        job: Scheduler job id of the attempt that ended, whose checkpoints they are.
        paths: The checkpoints.
    """
    shown = _ended(context, job)
    changes = _aside(context, shown, paths)
    _make(context, changes, shown)
    names = ", ".join(one.source.name for one in changes)
    return {"job": job, "paths": [str(one.target) for one in changes], "note": f"set aside: {names}"}


@set_aside_checkpoints.lookup
def were_set_aside(context: Context, tag: str, job: str, paths: list[str]) -> dict[str, Any] | None:
    """Return the answer when none of the checkpoints lies where it did."""
    account = context.scheduler.job(job).account
    with reading_as(account):
        if not paths or any(_there(Path(path)) for path in paths):
            return None
    return {"job": job, "paths": [str(_where(Path(path))) for path in paths], "note": "set aside"}


@set_aside_checkpoints.stands
def stand_aside(context: Context, job: str, paths: list[str]) -> dict[str, Any] | None:
    """Return the answer when there is nothing to move."""
    return {"job": job, "paths": [], "note": "nothing was to be set aside"} if not paths else None


@set_aside_checkpoints.preview
def setting_aside(context: Context, job: str, paths: list[str]) -> RenderedChange:
    """Return the renames."""
    changes = _aside(context, context.scheduler.job(job), paths)
    return RenderedChange(tuple(map(_line, changes)), "a restart would load them instead of the chosen one")


@tool(risk=Risk.CHANGE, kind="set_aside")
def put_back_checkpoints(context: Context, job: str, paths: list[str]) -> dict[str, Any]:
    """Rename checkpoints that were set aside back to where they lay.

    Args:
        job: Scheduler job id whose checkpoints they are.
        paths: Where they lie now, in `nightshift-refused`.
    """
    shown = _ended(context, job)
    changes = moves_back([Path(path) for path in paths])
    _make(context, changes, shown)
    return {"job": job, "paths": [str(one.target) for one in changes], "note": "put back"}


@put_back_checkpoints.lookup
def were_put_back(context: Context, tag: str, job: str, paths: list[str]) -> dict[str, Any] | None:
    """Return the answer when none of them lies aside any more."""
    with reading_as(context.scheduler.job(job).account):
        if any(_there(Path(path)) for path in paths):
            return None
    return {"job": job, "paths": [str(original(Path(path))) for path in paths], "note": "put back"}


@put_back_checkpoints.preview
def putting_back(context: Context, job: str, paths: list[str]) -> RenderedChange:
    """Return the renames."""
    return RenderedChange(tuple(map(_line, moves_back([Path(path) for path in paths]))))


@tool(risk=Risk.CHANGE, kind="set_tracker", undo="restore_tracker")
def set_tracker(context: Context, job: str, tracker: str, text: str) -> dict[str, Any]:
    """Set a tracker to the checkpoint that a restart is to load: a file (`latest_checkpointed_iteration.txt`, `latest`) or a link.

    It refuses while a job of the run is alive. `text` of the answer is what stood there before.

    Args:
        job: Scheduler job id of the attempt that ended, whose tracker it is.
        tracker: The file.
        text: What is to stand in it: a step, or the name of a folder.
    """
    return _set(context, job, tracker, text)


@set_tracker.lookup
def tracker_was_set(context: Context, tag: str, job: str, tracker: str, text: str) -> dict[str, Any] | None:
    """Return nothing: what stood there before would be lost, and to write the same once more changes nothing."""
    return None


@set_tracker.preview
def setting_tracker(context: Context, job: str, tracker: str, text: str) -> RenderedChange:
    """Return the write."""
    before = tracker_text(Path(tracker), context.scheduler.job(job).account).strip()
    linked = is_link(Path(tracker), context.scheduler.job(job).account)
    now = f"it {'leads to' if linked else 'says'} {before[:80]!r} now" if before else "it is not there now"
    return RenderedChange((_write_line(tracker, text, link=linked),), now)


@tool(risk=Risk.CHANGE, kind="set_tracker")
def restore_tracker(context: Context, job: str, tracker: str, text: str) -> dict[str, Any]:
    """Write into a tracker file what stood in it before; removes it where there was none.

    Args:
        job: Scheduler job id whose tracker it is.
        tracker: The file.
        text: What stood in it; empty: there was none.
    """
    return _set(context, job, tracker, text)


@restore_tracker.lookup
def tracker_was_restored(context: Context, tag: str, job: str, tracker: str, text: str) -> dict[str, Any] | None:
    """Return the answer when the file says so."""
    now = tracker_text(Path(tracker), context.scheduler.job(job).account)
    return {"job": job, "tracker": tracker, "text": text, "note": "restored"} if now == text else None


@restore_tracker.preview
def restoring_tracker(context: Context, job: str, tracker: str, text: str) -> RenderedChange:
    """Return the write, or the removal."""
    linked = is_link(Path(tracker), context.scheduler.job(job).account)
    return RenderedChange((_write_line(tracker, text, link=linked),))


def _set(context: Context, job: str, tracker: str, text: str) -> dict[str, Any]:
    shown = _ended(context, job)
    path = Path(tracker)
    linked = path.is_absolute() and is_link(path, shown.account)
    if not path.is_absolute() or not (path.name in TRACKERS or linked):
        raise ToolError(f"{tracker} is no tracker file and no link; known files: {', '.join(TRACKERS)}")
    if linked and (path.parent / text).parent != path.parent:
        raise ToolError(f"{tracker} is a link: it may lead only to a checkpoint beside it, not to {text!r}")
    before = tracker_text(path, shown.account)
    context.confirm(_write_line(tracker, text, link=linked))
    write_tracker(path, text, shown.account)
    return {
        "job": job,
        "tracker": tracker,
        "text": before,
        "note": f"{path.name} says {text.strip()!r}, before {before.strip()[:80]!r}",
    }


def _ended(context: Context, job: str) -> Job:
    shown = context.scheduler.job(job)
    if not shown.state.ended:
        raise ToolError(f"job {job} is {shown.state}: its checkpoints are left alone while it may use them")
    must_be_meant(context, shown)
    must_be_alone_of_its_run(context, shown, by_name=True)
    return shown


def _aside(context: Context, job: Job, paths: Sequence[str]) -> list[Move]:
    """Return the renames of checkpoints, and of the further files of one that has a file a rank.

    Raises:
        ToolError: A path is no checkpoint.
    """
    changes: list[Move] = []
    with reading_as(job.account):
        for path in map(Path, paths):
            if not path.is_absolute():
                raise ToolError(f"{path} is no absolute path")
            if not _there(path):
                target = _where(path)
                if not _there(target):
                    raise ToolError(f"{path} is not there")
                changes.append(Move(path, target))
                continue
            entry = next((one for one in inventory(path.parent, now=context.clock.now()).entries if one.path == path), None)
            if entry is None:
                raise ToolError(f"{path} is no checkpoint of a known form; nothing else is moved")
            files = [path] if path.is_dir() else [entry.file(name) for name in entry.files]
            changes += moves_aside(files)
    return changes


def _make(context: Context, changes: Sequence[Move], job: Job) -> None:
    for change in changes:
        context.confirm(_line(change))
        move([change], job.account)


def _there(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _where(path: Path) -> Path:
    """Return where a checkpoint lies that was set aside; the last one of its name."""
    folder = moves_aside([path])[0].target.parent
    number = int(folder.name) if folder.name.isdecimal() else 1
    top = folder.parent if folder.name.isdecimal() else folder
    return top / path.name if number <= 2 else top / str(number - 1) / path.name


def _line(change: Move) -> str:
    return command_line(["mv", "-nT", str(change.source), str(change.target)])


def _write_line(tracker: str, text: str, *, link: bool) -> str:
    if not text:
        return command_line(["rm", "-f", tracker])
    if link:
        return command_line(["ln", "-sfnT", text, tracker])
    return f"{command_line(['printf', '%s', text])} > {command_line([tracker])}"
