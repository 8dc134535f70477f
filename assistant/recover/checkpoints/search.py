"""Find what a job really saved, and say how; tell "never saved" from "saved, nobody knows where" and from "not known".

Only what is proven is said: a restart from zero follows `NEVER_SAVED` alone.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from assistant.errors import InputError, OwnerDenied, ToolError, UnreadableFile
from assistant.records import Job
from assistant.recover.checkpoints.inventory import Inventory, inventory
from assistant.recover.checkpoints.layout import EPOCH_WORD, SET_ASIDE, STEP_WORD, could_be_checkpoint, entries
from assistant.recover.checkpoints.place import Place, checkpoint_places, last_saved
from assistant.recover.checkpoints.save_options import save_folders
from assistant.recover.job_program import JobProgram, programs_of, saves_nothing
from assistant.untrusted import is_folder, list_folder, reading_as, status_of
from assistant.watch.saves import tells_of_save

WALK_S = 10.0
"""How long folders are walked through."""
WALK_ENTRIES = 40_000
WALK_FOLDERS = 6
"""Folders below one another."""
MOST_PLACES = 12
CLOCKS_APART = timedelta(seconds=120)
"""How far the clocks of a file server and of the scheduler may lie apart."""
PASSED_OVER = re.compile(
    r"\.(?:git|hg|svn|cache|ipynb_checkpoints|venv|conda|tox|mypy_cache|pytest_cache|Trash)|__pycache__|node_modules|site-packages|"
    rf"venv|env|conda|miniconda3?|anaconda3?|wandb|mlruns|\.?snapshot|{SET_ASIDE}"
)
"""Folders that hold no checkpoints of a job, or very many files."""
SAVES = re.compile(
    r"\bsav(?:e|es|ing|ed)\b.{0,80}?\b(?:check ?points?|ckpts?|(?:training |current )?states?|snapshots?)\b|"
    r"\b(?:check ?point|ckpt|snapshot)s?\b.{0,80}?\b(?:sav(?:ed|ing)|written|stored)\b|"
    r"(?:wrote|writing) (?:a )?(?:checkpoint|ckpt)",
    re.IGNORECASE,
)
NO_SAVE = re.compile(
    r"error|fail|cannot|could not|unable|not sav|no checkpoint|will be saved|saving is disabled|\bevery\b|--\w+", re.IGNORECASE
)
JOB_ID = re.compile(r"SLURM_(?:ARRAY_)?JOB_?ID")
OTHER_ID = "999999999"
NO_SAVE_SUFFIXES = (
    ".log",
    ".out",
    ".err",
    ".txt",
    ".csv",
    ".tsv",
    ".yaml",
    ".yml",
    ".toml",
    ".png",
    ".html",
    ".md",
    ".lock",
    ".sh",
    ".py",
)
"""Of files with a step in their name that no program loads."""
SAVE_CALLS = re.compile(
    r"(?:async_)?save\w*|save|write_checkpoint|dump|savez\w*|tofile|write_bytes|fit|train|checkpoint\w*|Trainer|\w+Trainer"
)
"""Calls by which a program may save; a program without any of them saves nothing."""


class SaveState(StrEnum):
    """What is known about a job's checkpoints."""

    FOUND = "found"
    NEVER_SAVED = "never saved"
    SAVED_ELSEWHERE = "saved, and where is not known"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CheckpointSearch:
    """What a search for a job's checkpoints came to."""

    state: SaveState
    inventory: Inventory | None
    """With FOUND."""
    place: Place | None
    """With FOUND: the folder that holds them, and how it was found."""
    note: str
    """The proof of NEVER_SAVED, the evidence of SAVED_ELSEWHERE, or what keeps it UNKNOWN; with FOUND how it was found."""
    settle: str
    """What would decide it; empty with FOUND and NEVER_SAVED."""
    programs: tuple[JobProgram, ...] = ()
    looked_at: tuple[str, ...] = ()
    """Each folder that was looked at, with how it was found and what was in it."""


@dataclass(frozen=True, slots=True)
class _Walk:
    """What a walk through folders found."""

    folders: tuple[Path, ...]
    """Those that hold checkpoints changed since the job began, the last changed first."""
    complete: bool
    """Whether all was seen."""


def search_checkpoints(
    job: Job, settings: Mapping[str, Path], log_texts: Iterable[str], *, now: datetime, clock: Callable[[], float] = time.monotonic
) -> CheckpointSearch:
    """Return what a job saved and where.

    Args:
        job: With its spec, where the scheduler keeps it.
        settings: The site's, as `checkpoint_places` takes them.
        log_texts: The job's log, in order.
        now: The time.
        clock: Seconds that pass, for the limit of a walk.

    Raises:
        Unavailable: The storage did not answer.
    """
    texts = list(log_texts)
    programs = tuple(programs_of(job))
    places = checkpoint_places(job, settings, texts, programs)[:MOST_PLACES]
    stated = bool(places) and places[0].stated
    places = places[:1] if stated else places
    looked: list[str] = []
    strange = ""
    finds: list[tuple[Place, Inventory]] = []
    unreadable = ""
    with reading_as(job.account):
        for place in places:
            try:
                where, held = _inventory_below(place, job, now=now, clock=clock)
            except ToolError as error:
                missing = "does not exist" in str(error) or "is a file" in str(error)
                looked.append(f"{place.folder} ({place.how}): {'is no folder' if missing else 'cannot be judged'}")
                unreadable = unreadable or ("" if missing else str(error))
                continue
            looked.append(f"{where.folder} ({where.how}): {len(held.checkpoints) or 'no'} checkpoints")
            finds += [(where, held)] if held.checkpoints else []
            strange = strange or _of_unknown_layout(place.folder, job.started)
            if _saved_by(job, held):
                break
        walk = _Walk((), stated)
        if not stated and not any(_saved_by(job, one) for _, one in finds) and not unreadable:
            walk = _new_checkpoints(job.work_dir, job.started, clock)
            for folder in walk.folders[:1]:
                place = Place(folder, "new files under the work folder since the job began")
                finds.insert(0, (place, inventory(folder, now=now, live=not job.state.ended)))
    if finds:
        own = next((one for one in finds if _saved_by(job, one[1])), finds[0])
        note = f"{own[0].folder} ({own[0].how})"
        return CheckpointSearch(SaveState.FOUND, own[1], own[0], note, "", programs, tuple(looked))
    if strange and not says_saved(texts) and not unreadable:
        note = f"whether job {job.id} saved is not known: {strange} was written since it began, and is of no layout that is known"
        settle = "somebody who knows the program says whether that is a checkpoint"
        return CheckpointSearch(SaveState.UNKNOWN, None, None, note, settle, programs, tuple(looked))
    state, note = _without(job, texts, programs, places, walk, unreadable)
    settle = "" if state is SaveState.NEVER_SAVED else _settling(job)
    return CheckpointSearch(state, None, None, note, settle, programs, tuple(looked))


def _of_unknown_layout(folder: Path, since: datetime | None) -> str:
    """Return a file with a step in its name that was written since a time into a folder of checkpoints; empty for none."""
    if since is None:
        return ""
    oldest = (since - CLOCKS_APART).timestamp()
    for child in list_folder(folder, WALK_ENTRIES):
        numbered = STEP_WORD.search(child.name) or EPOCH_WORD.search(child.name)
        noise = child.suffix in NO_SAVE_SUFFIXES or "tfevents" in child.name or could_be_checkpoint(child.name, folder=False)
        if numbered and not noise and not is_folder(child) and _changed(child, False) >= oldest:
            return str(child)
    return ""


def _settling(job: Job) -> str:
    return f"write `#NIGHTSHIFT checkpoints=FOLDER` into the script of job {job.id}, or [checkpoints] of the settings"


def _saved_by(job: Job, found: Inventory) -> bool:
    """Tell whether some checkpoint was written since the job began."""
    return job.started is not None and any(one.saved_at >= job.started - CLOCKS_APART for one in found.checkpoints)


def _inventory_below(place: Place, job: Job, *, now: datetime, clock: Callable[[], float]) -> tuple[Place, Inventory]:
    """Return what a place holds, or a folder below it: Lightning's `lightning_logs/version_3/checkpoints`.

    Raises:
        ToolError: The place is missing or cannot be read.
    """
    live = not job.state.ended
    found = inventory(place.folder, now=now, live=live)
    if found.checkpoints:
        inner = found.checkpoints[-1].path.parent
        return (place if inner == place.folder else Place(inner, place.how)), found
    walk = _new_checkpoints(place.folder, job.started, clock)
    if not walk.folders:
        return place, found
    return Place(walk.folders[0], f"below {place.folder}: {place.how}"), inventory(walk.folders[0], now=now, live=live)


def _without(
    job: Job, texts: Sequence[str], programs: Sequence[JobProgram], places: Sequence[Place], walk: _Walk, unreadable: str
) -> tuple[SaveState, str]:
    """Return what follows where no checkpoint was found, with the evidence."""
    said = says_saved(texts)
    if said:
        return SaveState.SAVED_ELSEWHERE, f"job {job.id} says that it saved ({said.strip()[:160]!r}), and no checkpoint was found"
    if unreadable:
        return SaveState.UNKNOWN, f"whether job {job.id} saved is not known: {unreadable}"
    definite = [place for place in places if "log" not in place.how]
    if definite:
        named = ", ".join(f"{place.folder} ({place.how})" for place in definite[:2])
        return SaveState.NEVER_SAVED, f"the job never saved a checkpoint: there is none in {named}, and its log tells of no save"
    if not programs and saves_nothing(job):
        return SaveState.NEVER_SAVED, "the job never saved a checkpoint: its script runs only commands that write no files"
    if not walk.complete and job.work_dir is not None and job.started is not None:
        return SaveState.UNKNOWN, f"whether job {job.id} saved is not known: {job.work_dir} is too large to be looked through"
    read = [one for one in programs if one.source is not None and one.source.parsed]
    silent = [one for one in read if not one.starts_others and not any(SAVE_CALLS.fullmatch(call.method) for call in one.calls)]
    if programs and len(silent) == len(programs):
        names = ", ".join(one.name for one in silent[:3])
        return SaveState.NEVER_SAVED, f"the job never saved a checkpoint: {names} holds no call that saves"
    return (
        SaveState.UNKNOWN,
        f"whether job {job.id} saved a checkpoint is not known: neither script nor log tells where it would save",
    )


def folder_moves(job: Job, search: CheckpointSearch) -> bool:
    """Tell whether the script names its folder by the job's id, so that a new job would look in another one.

    Raises:
        Unavailable: The storage did not answer.
    """
    script = job.spec.script if job.spec is not None else ""
    texts = [script, *(source.text for program in search.programs for source in program.sources)]
    if not any(JOB_ID.search(text) for text in texts):
        return False
    folders = {one.folder for one in save_folders(search.programs)}
    later = {one.folder for one in save_folders(programs_of(replace(job, id=re.sub(r"^\d+", OTHER_ID, job.id))))}
    where = search.place.folder if search.place is not None else None
    holds = [folder for folder in folders if where is not None and folder in (where, *where.parents)]
    return bool(holds) and not any(folder in later for folder in holds)


def says_saved(texts: Iterable[str]) -> str:
    """Return the last line of a log that tells of a save; empty where none does."""
    last = ""
    for text in texts:
        if len(text) < 4000 and (tells_of_save(text) or (SAVES.search(text) and not NO_SAVE.search(text)) or last_saved([text])):
            last = text
    return last


def _new_checkpoints(top: Path | None, since: datetime | None, clock: Callable[[], float]) -> _Walk:
    """Return the folders below `top` that hold checkpoints changed since a time; links are not followed."""
    if top is None or since is None:
        return _Walk((), False)
    end, budget, complete = clock() + WALK_S, WALK_ENTRIES, True
    newest: dict[Path, float] = {}
    waiting = [(top, 0)]
    oldest = (since - CLOCKS_APART).timestamp()
    while waiting:
        folder, depth = waiting.pop(0)
        if clock() > end or budget <= 0:
            complete = False
            break
        try:
            children = list_folder(folder, budget)
        except FileNotFoundError:
            continue
        except (UnreadableFile, OwnerDenied, OSError):
            complete = False
            continue
        budget -= len(children)
        for child in children:
            if PASSED_OVER.fullmatch(child.name) or child.is_symlink():
                continue
            inner = is_folder(child)
            if could_be_checkpoint(child.name, folder=inner) and (changed := _changed(child, inner)) >= oldest:
                newest[folder] = max(changed, newest.get(folder, 0.0))
            elif inner and depth + 1 < WALK_FOLDERS:
                waiting.append((child, depth + 1))
            elif inner:
                complete = False
    held = [folder for folder in sorted(newest, key=lambda one: -newest[one]) if _holds(folder)]
    return _Walk(tuple(held), complete)


def _changed(path: Path, folder: bool) -> float:
    try:
        times = [status_of(path).st_mtime]
        if folder:
            times += [status_of(inner).st_mtime for inner in list_folder(path, 2000)[:50]]
        return max(times)
    except (OSError, InputError):
        return 0.0


def _holds(folder: Path) -> bool:
    try:
        return bool(entries(folder, depth=0))
    except (OSError, InputError):
        return False
