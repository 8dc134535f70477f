"""Let a restart load the checkpoint that was chosen: move refused ones out of the way, or set the tracker file. Undoable.

Each command states what it was decided on: the files of a checkpoint, by number, size and digest, and what stands in a tracker.
When that changes between the decision and the command, the command is another one and is not given.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from assistant.errors import PartlyMade, ToolError, Unavailable, UsageError
from assistant.records import Job, Risk, tags_in
from assistant.recover.checkpoints.aside import (
    Move,
    is_link,
    lies_at,
    move,
    moves_aside,
    moves_back,
    original,
    prefix_files,
    resolved,
    tracker_text,
    where_aside,
    write_tracker,
)
from assistant.recover.checkpoints.entry import Entry
from assistant.recover.checkpoints.inventory import Inventory, inventory
from assistant.recover.checkpoints.layout import RANK_WORD, rank_of
from assistant.recover.checkpoints.trackers import TRACKER_NAMES
from assistant.recover.resume.lookups import MOST_LINKS
from assistant.redact import MASK, redact
from assistant.rendering import RenderedChange, command_line
from assistant.tooling import Context, tool
from assistant.tools.checkpoints import known_forms
from assistant.tools.preconditions import must_be_alone_of_its_run, must_be_meant
from assistant.tools.trial_results import with_trial_results
from assistant.untrusted import LOOK_S, list_folder, reading_as, within

_RENAMES = re.compile(r"mv -nT (.*?) FILES\[")
_LINKS = re.compile(r'ln -sfnT (.*?) REPLACES\[("(?:[^"\\]|\\.)*")\]')
_REPLACED = re.compile(r' REPLACES\[(nothing|"(?:[^"\\]|\\.)*")\](?:$|  # )')


@tool(risk=Risk.CHANGE, kind="set_aside", undo="put_back_checkpoints")
def set_aside_checkpoints(context: Context, job: str, paths: list[str]) -> dict[str, Any]:
    """Rename checkpoints into a folder `nightshift-refused` beside them, so that a job that takes the newest does not load them.

    Nothing is deleted or copied. It refuses while a job of the run is alive, what is no checkpoint, and what belongs to another
    user than the owner of the job, with whose rights it renames. `paths` of the answer is where they lie then.

    Args:
        job: Scheduler job id of the attempt that ended, whose checkpoints they are.
        paths: The checkpoints.
    """
    ended_job = _ended_job(context, job)
    changes = _moves_aside(context, ended_job, paths)
    _rename_all(context, changes, ended_job)
    names = ", ".join(change.source.name for change in changes)
    return {"job": job, "paths": [str(change.target) for change in changes], "note": f"set aside: {names}"}


@set_aside_checkpoints.lookup
def were_set_aside(context: Context, tag: str, job: str, paths: list[str]) -> dict[str, Any] | None:
    """Return the answer when each of the checkpoints lies aside; None when one lies where it did.

    Raises:
        ToolError: One lies in neither place: somebody moved or deleted it.
    """
    account = context.scheduler.job(job).account
    places: list[str] = []
    for path in map(Path, paths):
        if lies_at(path, account) or prefix_files(path, account):
            return None
        aside = [place] if (place := where_aside(path, account)) is not None else prefix_files(path, account, aside=True)
        if not aside:
            raise ToolError(f"{path} lies neither there nor aside: somebody else moved or deleted it")
        places += map(str, aside)
    return {"job": job, "paths": places, "note": "set aside"} if places else None


@set_aside_checkpoints.partly
def were_partly_set_aside(context: Context, tag: str, job: str, paths: list[str]) -> PartlyMade | None:
    """Return which of the renames an interrupted call has made."""
    del paths
    return _partly_renamed(context, tag, job)


@set_aside_checkpoints.stands
def stand_aside(context: Context, job: str, paths: list[str]) -> dict[str, Any] | None:
    """Return the answer when there is nothing to move."""
    return {"job": job, "paths": [], "note": "nothing was to be set aside"} if not paths else None


@set_aside_checkpoints.preview
def setting_aside(context: Context, job: str, paths: list[str]) -> RenderedChange:
    """Return the renames."""
    changes = _moves_aside(context, context.scheduler.job(job), paths)
    return RenderedChange(tuple(map(_line, changes)), "a restart would load them, or meet them where it saves that step again")


@tool(risk=Risk.CHANGE, kind="set_aside")
def put_back_checkpoints(context: Context, job: str, paths: list[str]) -> dict[str, Any]:
    """Rename checkpoints that were set aside back to where they lay, with the rights of the job's owner.

    Args:
        job: Scheduler job id whose checkpoints they are.
        paths: Where they lie now, in `nightshift-refused`.
    """
    ended_job = _ended_job(context, job)
    changes = moves_back([Path(path) for path in paths], ended_job.account)
    _rename_all(context, changes, ended_job)
    return {"job": job, "paths": [str(change.target) for change in changes], "note": "put back"}


@put_back_checkpoints.lookup
def were_put_back(context: Context, tag: str, job: str, paths: list[str]) -> dict[str, Any] | None:
    """Return the answer when none of them lies aside any more and each lies where it did before."""
    account = context.scheduler.job(job).account
    places = [original(Path(path)) for path in paths]
    if any(lies_at(Path(path), account) for path in paths):
        return None
    if missing := [place for place in places if not lies_at(place, account)]:
        raise ToolError(f"{missing[0]} lies neither there nor aside: somebody else moved or deleted it")
    return {"job": job, "paths": [str(place) for place in places], "note": "put back"}


@put_back_checkpoints.partly
def were_partly_put_back(context: Context, tag: str, job: str, paths: list[str]) -> PartlyMade | None:
    """Return which of the renames an interrupted call has made."""
    del paths
    return _partly_renamed(context, tag, job)


@put_back_checkpoints.preview
def putting_back(context: Context, job: str, paths: list[str]) -> RenderedChange:
    """Return the renames."""
    account = context.scheduler.job(job).account
    return RenderedChange(tuple(map(_line, moves_back([Path(path) for path in paths], account))))


@tool(risk=Risk.CHANGE, kind="set_tracker", undo="restore_tracker")
def set_tracker(context: Context, job: str, tracker: str, text: str) -> dict[str, Any]:
    """Set a tracker to the checkpoint that a restart is to load: a file (`latest_checkpointed_iteration.txt`, `latest`) or a link.

    It refuses while a job of the run is alive, a link that would lead elsewhere than beside itself, and a tracker of another user
    than the owner of the job. `text` of the answer is what stood there before. With a link of one rank (`latest-rank0.pt`) those of
    all ranks are set alike, each to the file of its rank; they must have led to files of one checkpoint.

    Args:
        job: Scheduler job id of the attempt that ended, whose tracker it is.
        tracker: The file.
        text: What is to stand in it: a step, or the name of a file or folder.
    """
    if not text:
        raise ToolError("set_tracker removes no tracker: it needs a text to write")
    return {**_write_tracker_text(context, job, tracker, text), "written": text}


@set_tracker.lookup
def tracker_was_set(context: Context, tag: str, job: str, tracker: str, text: str) -> dict[str, Any] | None:
    """Return the answer when the file says so; what stood there before is read from the command that was decided on.

    Raises:
        ToolError: It says so, and the store does not tell what stood there before.
    """
    if tracker_text(Path(tracker), context.scheduler.job(job).account) != text:
        return None
    before = _text_before(context, tag)
    if before is None:
        raise ToolError(f"{tracker} says {text!r}, and what stood there before is not known")
    return {"job": job, "tracker": tracker, "text": before, "written": text, "note": f"{Path(tracker).name} says {text.strip()!r}"}


@set_tracker.partly
def tracker_was_partly_set(context: Context, tag: str, job: str, tracker: str, text: str) -> PartlyMade | None:
    """Return which of the links of ranks an interrupted call has set."""
    account, own = context.scheduler.job(job).account, _own_links(context, tag)
    completed = [(link, new, old) for link, (new, old) in own.items() if tracker_text(link, account) == new != old]
    return _partly_set(job, completed, len(own), "set") if completed else None


@set_tracker.preview
def setting_tracker(context: Context, job: str, tracker: str, text: str) -> RenderedChange:
    """Return the write."""
    return _write_change(context, job, tracker, text)


@tool(risk=Risk.CHANGE, kind="set_tracker")
def restore_tracker(context: Context, job: str, tracker: str, text: str, written: str = "") -> dict[str, Any]:
    """Write into a tracker file what stood in it before; removes it where there was none.

    Args:
        job: Scheduler job id whose tracker it is.
        tracker: The file.
        text: What stood in it; empty: there was none.
        written: What must stand in it now, so that no later save of the job is forgotten; empty: anything.
    """
    return _write_tracker_text(context, job, tracker, text, written)


@restore_tracker.lookup
def tracker_was_restored(context: Context, tag: str, job: str, tracker: str, text: str, written: str = "") -> dict[str, Any] | None:
    """Return the answer when the file says so."""
    now = tracker_text(Path(tracker), context.scheduler.job(job).account)
    return {"job": job, "tracker": tracker, "text": text, "note": "restored"} if now == text else None


@restore_tracker.preview
def restoring_tracker(context: Context, job: str, tracker: str, text: str, written: str = "") -> RenderedChange:
    """Return the write, or the removal."""
    return _write_change(context, job, tracker, text, written)


def _write_change(context: Context, job: str, tracker: str, text: str, written: str = "") -> RenderedChange:
    job_record = context.scheduler.job(job)
    path = _tracker(tracker, job_record)
    before = _tracker_text(path, job_record, written)
    linked = is_link(path, job_record.account)
    now = f"it {'leads to' if linked else 'says'} {before[:80]!r} now" if before else "it is not there now"
    own = _own_links(context, context.tag)
    lines = [_write_line(*write, link=True) for write in _of_other_ranks(path, text, before, job_record, own)] if linked else []
    return RenderedChange((*lines, _write_line(path, text, before, link=linked)), now)


def _write_tracker_text(context: Context, job: str, tracker: str, text: str, written: str = "") -> dict[str, Any]:
    ended_job = _ended_job(context, job)
    path = _tracker(tracker, ended_job)
    before = _tracker_text(path, ended_job, written)
    linked = is_link(path, ended_job.account)
    # the one that was asked for comes last: while it leads where it did, the call is not done
    own = _own_links(context, context.tag)
    writes = [*(_of_other_ranks(path, text, before, ended_job, own) if linked else ()), (path, text, before)]
    completed: list[tuple[Path, str, str]] = []
    try:
        for file, new, old in writes:
            context.confirm(_write_line(file, new, old, link=linked))
            if file == path or tracker_text(file, ended_job.account) != new:
                write_tracker(file, new, ended_job.account, before=old, link=linked)
            completed.append((file, new, old))
    except ToolError as error:
        if not completed:
            raise
        raise _partly_set(job, completed, len(writes), f"{error}; set before it") from error
    return {
        "job": job,
        "tracker": tracker,
        "text": before,
        "note": f"{path.name} says {text.strip()!r}, before {before.strip()[:80]!r}",
    }


def _partly_set(job: str, completed: Sequence[tuple[Path, str, str]], of: int, words: str) -> PartlyMade:
    link, new, old = completed[-1]
    names = ", ".join(file.name for file, *_ in completed)
    # one link of a rank that is set back takes all those with it that lead to the same save
    value = {"job": job, "tracker": str(link), "text": old, "written": new, "note": f"{len(completed)} of {of} were set"}
    return PartlyMade(f"{words}, and not set back: {names}", value)


def _of_other_ranks(path: Path, text: str, old_target: str, job: Job, own: Collection[Path]) -> list[tuple[Path, str, str]]:
    """Return the links of the other ranks that are to be set with one of a rank: path, text, and where it leads now.

    One that leads to its new place already is left out, unless it is one of the call's own, which a crash has interrupted.

    Raises:
        ToolError: One leads to another checkpoint than the one that is to be set.
    """
    rank = rank_of(path.name)
    if rank is None:
        return []
    with reading_as(job.account):
        siblings = [link for link in within(LOOK_S, partial(list_folder, path.parent), f"{path.parent}") if link != path]
    ranks = {
        link: link_rank
        for link in siblings
        if (link_rank := rank_of(link.name)) is not None and _with_rank(path.name, link_rank) == link.name
    }
    writes = []
    for link, link_rank in ranks.items():
        if not is_link(link, job.account):
            continue
        if rank_of(text) != rank or rank_of(old_target) != rank:
            raise ToolError(f"{path} is one of several links of ranks, and does not lead to a file of its rank: set them by hand")
        new, old, now = _with_rank(text, link_rank), _with_rank(old_target, link_rank), tracker_text(link, job.account)
        if now not in (new, old):
            raise ToolError(
                f"{link} leads to {now[:80]!r} and {path.name} to {old_target[:80]!r}, of another save: set them by hand"
            )
        writes += [(link, new, old)] if now != new or link in own else []
    if len(writes) > MOST_LINKS:
        raise ToolError(f"{len(writes)} links of ranks lie beside {path.name}: more than {MOST_LINKS} are set by hand")
    return writes


def _tracker(tracker: str, job: Job) -> Path:
    """Return the path of a tracker without links but for its last part.

    Raises:
        ToolError: It is no tracker file.
    """
    path = resolved(Path(tracker), job.account)
    if path.name not in TRACKER_NAMES and not is_link(path, job.account):
        raise ToolError(f"{tracker} is no tracker file and no link; known files: {', '.join(TRACKER_NAMES)}")
    return path


def _tracker_text(path: Path, job: Job, written: str) -> str:
    """Return what stands in a tracker.

    Raises:
        ToolError: It is not what must stand there.
    """
    before = tracker_text(path, job.account)
    if redact(before) != before:
        raise ToolError(f"{path} holds what looks like a secret, which is not kept and could not be put back: set it by hand")
    if written and before != written:
        raise ToolError(
            f"{path} says {before[:80]!r} and not {written[:80]!r} any more: the job has saved since, or somebody else has set it; "
            "it stays as it is"
        )
    return before


def _preview(context: Context, tag: str) -> str:
    """Return the commands of a call as it was decided on; empty where they hold what was masked as a secret, or are not known."""
    for call_tag in tags_in(tag):
        with suppress(UsageError):
            preview = context.history.call(call_tag.call).preview
            return preview if MASK not in preview else ""
    return ""


def _words(line: str) -> list[str]:
    """Return the words of a command; none of one that a name with our own marks in it has cut off."""
    with suppress(ValueError):
        return shlex.split(line)
    return []


def _own_links(context: Context, tag: str) -> dict[Path, tuple[str, str]]:
    """Return the links of the commands of a call as it was decided on: where each is to lead, and where it led then."""
    lines = [(_words(line), str(json.loads(before))) for line, before in _LINKS.findall(_preview(context, tag))]
    return {Path(words[1]): (words[0], before) for words, before in lines if len(words) == 2}


def _text_before(context: Context, tag: str) -> str | None:
    """Return what stood in a tracker when a call was decided on, from the call's own command; None where it does not tell."""
    match = _REPLACED.search(_preview(context, tag))
    return None if match is None else "" if match[1] == "nothing" else str(json.loads(match[1]))


def _ended_job(context: Context, job: str) -> Job:
    job_record = context.scheduler.job(job)
    if not job_record.state.ended:
        raise ToolError(f"job {job} is {job_record.state}: its checkpoints are left alone while it may use them")
    must_be_meant(context, job_record)
    must_be_alone_of_its_run(context, job_record, by_name=True)
    return job_record


def _moves_aside(context: Context, job: Job, paths: Sequence[str]) -> list[Move]:
    """Return the renames of checkpoints, and of all files of one that has a file a rank or is a prefix of TensorFlow.

    The path that was asked for, or the index of a prefix, comes last: while it lies where it did, the call is not done.

    Raises:
        ToolError: A path is no checkpoint.
    """
    changes: list[Move] = []
    for asked_path in map(Path, paths):
        path = resolved(asked_path, job.account)
        files = [path]
        if lies_at(path, job.account) or prefix_files(path, job.account):
            entry = _entry_at(context, job, path, ()) or _entry_at(context, job, path, known_forms(context, job))
            entry = entry or _died_of(context, job, path)
            with reading_as(job.account):
                if entry is None:
                    raise ToolError(f"{path} is no checkpoint of a known form; nothing else is moved")
                files = entry.loose_files or files
        changes += moves_aside(files, job.account)
    return changes


def _entry_at(context: Context, job: Job, path: Path, forms: Collection[str]) -> Entry | None:
    """Return the checkpoint at a path; None where it is none of a known layout, nor of one of these forms of names."""
    with reading_as(job.account):
        holdings = inventory(path.parent, now=context.clock.now(), forms=forms)
    return next((entry for entry in holdings.entries if entry.path == path), None)


def _died_of(context: Context, job: Job, path: Path) -> Entry | None:
    """Return a file that a trial start of this incident died of as a checkpoint; None for any other."""
    holdings = with_trial_results(context, job, Inventory(path.parent, (), ()))
    return next((entry for entry in holdings.entries if entry.path == path), None)


def _rename_all(context: Context, changes: Sequence[Move], job: Job) -> None:
    """Make the renames; where one is refused, those before it are taken back as long as anything may be changed.

    Raises:
        ToolError: One was refused, and nothing is changed.
        PartlyMade: The same, and what was renamed before it stays where it is.
        Unavailable: Whether one was made is not known; what was made before it stays.
    """
    completed: list[Move] = []
    try:
        for change in changes:
            context.confirm(_line(change))
            if move(change, job.account):
                completed.append(change)
    except ToolError as error:
        stay = [change for change in reversed(completed) if not _moved_back(context, change, job)][::-1]
        if stay:
            raise _renamed(job.id, [change.target for change in stay], len(changes), f"{error}; renamed before it") from error
        raise


def _partly_renamed(context: Context, tag: str, job: str) -> PartlyMade | None:
    account, completed = context.scheduler.job(job).account, []
    lines = _RENAMES.findall(_preview(context, tag))
    for source, target in (map(Path, words) for line in lines if len(words := _words(line)) == 2):
        if lies_at(target, account) and not lies_at(source, account):
            completed.append(target)
    return _renamed(job, completed, len(lines), "renamed") if completed else None


def _renamed(job: str, completed: Sequence[Path], of: int, words: str) -> PartlyMade:
    value = {"job": job, "paths": [str(path) for path in completed], "note": f"{len(completed)} of {of} were renamed"}
    return PartlyMade(f"{words}, and not put back: {', '.join(map(str, completed))}", value)


def _moved_back(context: Context, change: Move, job: Job) -> bool:
    """Rename once more to where something lay; False where nothing may be changed any more, or the rename is refused."""
    try:
        context.confirm()
        return move(Move(change.target, change.source, change.content), job.account)
    except (ToolError, Unavailable):
        return False


def _line(change: Move) -> str:
    return f"{command_line(['mv', '-nT', str(change.source), str(change.target)])} FILES[{change.content}]"


def _write_line(tracker: Path, text: str, before: str, *, link: bool) -> str:
    if link:
        return f"{command_line(['ln', '-sfnT', text, str(tracker)])} REPLACES[{json.dumps(before)}]"
    words = (
        [command_line(["printf", "%s", text]), ">", command_line([str(tracker)])]
        if text
        else ["rm", "-f", command_line([str(tracker)])]
    )
    return f"{' '.join(words)} REPLACES[{json.dumps(before) if before else 'nothing'}]"


def _with_rank(name: str, rank: int) -> str:
    """Return a name of one rank as that of another rank would be called, with as many digits at least."""
    return RANK_WORD.sub(lambda match: match[0].removesuffix(match[1]) + str(rank).zfill(len(match[1])), name, count=1)
