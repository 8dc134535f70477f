"""Find what a job really saved, and say how; tell "never saved" from "saved, nobody knows where" and from "not known".

Only what is proven is said: a restart from zero follows `NEVER_SAVED` alone.
"""

from __future__ import annotations

import pwd
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from assistant.errors import InputError, ToolError
from assistant.records import Job
from assistant.recover.checkpoints.inventory import Inventory, inventory, with_save_ends
from assistant.recover.checkpoints.listed_saves import with_listed_saves, with_size_doubts
from assistant.recover.checkpoints.named_saves import with_places, with_turns
from assistant.recover.checkpoints.own_folders import OtherRuns, SeveralRuns, Walk, new_checkpoints, own_folder
from assistant.recover.checkpoints.ownership import histories_of, own_checkpoints
from assistant.recover.checkpoints.place import (
    Place,
    checkpoint_places,
    logged_places,
    named_folders,
    new_series,
    place_of,
    process_places,
    says_saved,
    series_place,
)
from assistant.recover.checkpoints.save_options import keeps_no_state, only_serves, save_folders, silent_programs
from assistant.recover.checkpoints.search_outcome import (
    CheckpointSearch,
    SaveState,
    changed_in_place,
    made_and_left_empty,
    never_saved_beside,
    save_ends,
    trains,
    unknown_layout,
    unmounted_folder,
    with_piece_work,
)
from assistant.recover.checkpoints.secured import folder_of
from assistant.recover.checkpoints.written_files import named_save, unexplained_files
from assistant.recover.job_program import JobProgram, programs_looking, programs_now, programs_of, saves_nothing
from assistant.recover.resume.pinned_folder import JOB_ID, as_another_job, moved_folder
from assistant.recover.resume.stages import Stage, Stages, failed_stage, running_now, stages_of, without_saves_of
from assistant.recover.shell.folders import CLOCKS_APART
from assistant.untrusted import reading_as, status_of

__all__ = ["CheckpointSearch", "SaveState", "folder_moves", "search_checkpoints"]

PROCESS_WALK_FOLDERS = 3
"""Folders below one another where a process was seen to write: what lies deeper, or beside it, is likely another run's."""
NAMED_S = 15.0  # for so long folders that a log names are looked through, one after another
MOST_PLACES, MOST_PROCESS_PLACES, MOST_FILES_NAMED = 12, 6, 3


def search_checkpoints(
    job: Job,
    settings: Mapping[str, Path],
    log_texts: Iterable[str],
    *,
    now: datetime,
    clock: Callable[[], float] = time.monotonic,
    claimed: Callable[[Path], bool] = lambda _: False,
) -> CheckpointSearch:
    """Return what a job saved and where.

    Args:
        job: With its spec.
        settings: The site's, as `checkpoint_places` takes them.
        log_texts: The job's log, in order.
        now: The time.
        clock: Seconds, for the limit of a walk.
        claimed: Tells whether another job that ran then names a folder: what is new there alone makes it nobody else's.

    Raises:
        Unavailable: The storage did not answer.
    """
    texts = list(log_texts)
    search = with_piece_work(job, _search(job, settings, texts, now=now, clock=clock, claimed=claimed))
    search = changed_in_place(job, _held_against_files(job, search, clock=clock, claimed=claimed))
    search = with_listed_saves(job, search, now=now)
    if search.inventory is None:
        return search
    names = search.place.forms if search.place is not None else frozenset()
    saves, histories = [text for text in texts if says_saved([text])], histories_of(search.inventory, job.account)
    own = own_checkpoints(search.inventory, job, texts, saves, histories)
    if not own.doubt:
        with reading_as(job.account):
            placed = with_places(with_turns(own.inventory, job, texts, now=now), job, texts, now=now)
            placed = with_size_doubts(placed, job, names)
            ends = save_ends(placed, job, texts, search.programs)
            return replace(search, inventory=with_save_ends(placed, ends, now=now, live=not job.state.ended))
    note = f"which checkpoints are of job {job.id} is not known: {own.doubt}"
    settle = "somebody who knows the run names the one to go on from; a folder for each run settles it for good"
    unsorted = (search.place, search.inventory) if search.place is not None else None
    return replace(search, state=SaveState.UNKNOWN, inventory=None, place=None, note=note, settle=settle, unsorted=unsorted)


def _held_against_files(
    job: Job, search: CheckpointSearch, *, clock: Callable[[], float], claimed: Callable[[Path], bool]
) -> CheckpointSearch:
    """Return a search that says "never saved" as one that does not know where the job wrote files that may be its state."""
    if search.state is not SaveState.NEVER_SAVED or search.pieces or search.stateless:
        return search
    files = [
        file
        for file in unexplained_files(job, search.programs, clock, claimed=claimed)
        if not any(file.path.is_relative_to(folder) for folder in search.foreign_folders)
        and not _is_of_sibling(job, search.programs, file.path.parent)
    ]
    if not files:
        return search
    names = ", ".join(file.words(job.work_dir) for file in files[:MOST_FILES_NAMED])
    more = f" and {len(files) - MOST_FILES_NAMED} more" if len(files) > MOST_FILES_NAMED else ""
    note = f"whether job {job.id} saved is not known: while it ran it wrote {names}{more}, over which a first start may write"
    settle = f"somebody who knows the program says whether that may be lost: if so, submit it in {job.work_dir} as the first time"
    return replace(
        search, state=SaveState.UNKNOWN, inventory=None, place=None, note=note, settle=f"{settle}; else {_settling(job)}"
    )


def _search(
    job: Job,
    settings: Mapping[str, Path],
    texts: Sequence[str],
    *,
    now: datetime,
    clock: Callable[[], float],
    claimed: Callable[[Path], bool],
) -> CheckpointSearch:
    """Return what lies where a job saves, whosever it is."""
    programs = tuple(programs_of(job))
    places = checkpoint_places(job, settings, texts, programs)
    # what a script finds in folders now is no proof of where it saved
    looked_up = checkpoint_places(job, settings, texts, programs_looking(job, programs))
    places = [*[replace(place, sure=False) for place in looked_up if place.folder not in {own.folder for own in places}], *places][
        :MOST_PLACES
    ]
    stated = bool(places) and places[0].stated
    places = places[:1] if stated else places
    seen_writing = [place for place in process_places(job) if place.witness not in (job.log, job.error_log)]
    no_state = not places and not seen_writing and (keeps_no_state(programs) or only_serves(programs, texts))
    if no_state and not says_saved(texts) and not trains(texts):
        names = ", ".join(program.name for program in programs[:3])
        note = f"{f'job {job.id}' if job.id else 'it'} saves nothing: {names} holds no call that saves, and its log shows no step"
        return CheckpointSearch(SaveState.NEVER_SAVED, None, None, note, "", programs, stateless=True)
    pipeline = stages_of(programs)
    if len(pipeline) > 1 and not stated:
        return _of_pipeline(job, programs, pipeline, texts, now=now, clock=clock)
    places_read: list[str] = []
    strange = ""
    finds: list[tuple[Place, Inventory]] = []
    unreadable = several = ""
    foreign_runs: OtherRuns | None = None
    with reading_as(job.account):
        for place in places:
            try:
                found_place, found_inventory = _inventory_below(place, job, texts, now=now, clock=clock)
            except SeveralRuns as error:
                places_read.append(f"{place.folder} ({place.how}): {error}")
                several = several or str(error)
                continue
            except OtherRuns as error:
                places_read.append(f"{place.folder} ({place.how}): {error}")
                foreign_runs = foreign_runs or error
                continue
            except ToolError as error:
                missing = "does not exist" in str(error) or "is a file" in str(error)
                places_read.append(f"{place.folder} ({place.how}): {'is no folder' if missing else 'cannot be judged'}")
                unreadable = unreadable or ("" if missing else str(error))
                continue
            places_read.append(f"{found_place.folder} ({found_place.how}): {len(found_inventory.checkpoints) or 'no'} checkpoints")
            finds += [(found_place, found_inventory)] if found_inventory.checkpoints else []
            strange = strange or unknown_layout(place.folder, job.started)
            if _saved_by(job, found_inventory):
                break
        walk = Walk((), stated)
        doubt = ""
        if not stated and not any(_saved_by(job, find) for _, find in finds) and not unreadable:
            written, doubt = _where_processes_wrote(
                job, {place.folder for place in places}, now=now, clock=clock, places_read=places_read
            )
            finds[:0] = written
        if not stated and not any(_saved_by(job, find) for _, find in finds) and not unreadable and not doubt:
            walk = new_checkpoints(job.work_dir, job.started, clock)
            own_folders = (folder for folder in walk.folders if not _is_of_sibling(job, programs, folder))
            walk = replace(walk, folders=tuple(folder for folder in own_folders if not claimed(folder)))
            folder = None
            try:
                folder = own_folder(walk, job, texts) if not several else None
            except SeveralRuns as error:
                several = str(error)
            except OtherRuns as error:
                foreign_runs = foreign_runs or error
            silent = foreign_runs.silent_folder if foreign_runs is not None else None
            earlier = _in_silent_folder(silent, now=now, live=not job.state.ended, clock=clock) if silent is not None else None
            if earlier is not None:
                finds.insert(0, earlier)
            elif folder is not None:
                place = Place(folder, "new files under the work folder since the job began")
                finds.insert(0, (place, inventory(folder, now=now, live=not job.state.ended)))
            elif not several:
                finds[:0] = _named_by_log(job, texts, now=now, places_read=places_read) or _in_named_folders(
                    job, texts, now=now, clock=clock, places_read=places_read
                )
    unreadable = unreadable or several or unmounted_folder(job, places)
    if doubt and not any(_saved_by(job, find) for _, find in finds):
        note = f"which checkpoints job {job.id} saved is not known: {doubt}"
        return CheckpointSearch(SaveState.SAVED_ELSEWHERE, None, None, note, _settling(job), programs, tuple(places_read))
    if finds:
        own = next((find for find in finds if _saved_by(job, find[1])), finds[0])
        note = f"{own[0].folder} ({own[0].how})"
        return CheckpointSearch(SaveState.FOUND, own[1], own[0], note, "", programs, tuple(places_read))
    if strange and not says_saved(texts) and not unreadable:
        note = f"whether job {job.id} saved is not known: {strange} was written since it began, and is of no layout that is known"
        settle = "somebody who knows the program says whether that is a checkpoint"
        return CheckpointSearch(SaveState.UNKNOWN, None, None, note, settle, programs, tuple(places_read))
    if foreign_runs is not None and not unreadable and not says_saved(texts):
        with reading_as(job.account):
            proof = never_saved_beside(foreign_runs, job, texts, clock)
        if proof:
            search = CheckpointSearch(SaveState.NEVER_SAVED, None, None, proof, "", programs, tuple(places_read))
            return replace(search, foreign_folders=foreign_runs.folders)
    state, note = _without(job, texts, programs, places, walk, unreadable)
    settle = "" if state is SaveState.NEVER_SAVED else _settling(job)
    with reading_as(job.account):
        series = new_series(job.work_dir, job.started, clock) if not stated else None
    if series is not None and not claimed(series.folder):
        state = SaveState.UNKNOWN if state is SaveState.NEVER_SAVED else state
        unsure = f"whether job {job.id} saved is not known" if state is SaveState.UNKNOWN else note
        note = f"{unsure}; likely its checkpoints are {series.sentence}"
        settle = _settling(job, str(series.folder))
    return CheckpointSearch(state, None, None, note, settle, programs, tuple(places_read))


def _of_pipeline(
    job: Job,
    programs: tuple[JobProgram, ...],
    pipeline: Sequence[Stage],
    texts: Sequence[str],
    *,
    now: datetime,
    clock: Callable[[], float],
) -> CheckpointSearch:
    """Return what the stage of a pipeline saved that the attempt failed in."""
    places_read: list[str] = []
    inventories: list[tuple[Place, Inventory] | None] = []
    stages_known: list[Stage] = []
    for stage in running_now(pipeline, programs_now(job, programs)):
        place = place_of(save_folders(stage.programs)[0])
        find, problem = None, ""
        try:
            with reading_as(job.account):
                find = _inventory_below(place, job, texts, now=now, clock=clock)
        except SeveralRuns as error:
            problem = str(error)
        except ToolError as error:
            problem = "" if "does not exist" in str(error) or "is a file" in str(error) else str(error)
        inside = find[1].checkpoints if find is not None else ()
        if inside and not inside[-1].healthy:
            problem = f"{inside[-1].path.name}: {'; '.join(inside[-1].problems)}"
        contents = problem or f"{len(inside) or 'no'} checkpoints"
        places_read.append(f"{place.folder} ({place.how}): {contents}")
        stages_known.append(replace(stage, held=len(inside), written=find is not None and _saved_by(job, find[1]), problem=problem))
        inventories.append(find if inside else None)
    failed = failed_stage(stages_known, texts, job.steps)
    stages = Stages(tuple(stages_known), failed.place, failed.how)
    search_facts = (programs, tuple(places_read), stages)
    resumed = stages.resumed
    if resumed is None:
        settle = "a person says which stage is to go on; a test of a file before each stage that is finished settles it for good"
        return CheckpointSearch(SaveState.UNKNOWN, None, None, f"job {job.id}: {stages.sentence}", settle, *search_facts)
    own, place = stages_known[resumed], place_of(save_folders(stages_known[resumed].programs)[0])
    resumed_find = inventories[resumed]
    if resumed_find is not None:
        return CheckpointSearch(
            SaveState.FOUND,
            resumed_find[1],
            resumed_find[0],
            f"{resumed_find[0].folder} ({resumed_find[0].how})",
            "",
            *search_facts,
        )
    own_texts = without_saves_of(texts, [stage for stage in stages_known if stage is not own])
    state, note = _without(job, own_texts, own.programs, [place], Walk((), True), own.problem)
    settle = "" if state is SaveState.NEVER_SAVED else _settling(job)
    return CheckpointSearch(state, None, None, f"{note}; {stages.sentence}", settle, *search_facts)


def _is_of_sibling(job: Job, programs: Sequence[JobProgram], folder: Path) -> bool:
    """Tell whether a folder is the one of another task of an array: the script names each task's own by its index."""
    task = re.fullmatch(r"(\d+)_(\d+)", job.id)
    own = {save.folder for save in save_folders(programs)}
    if task is None or any(place == folder or place in folder.parents for place in own):
        return False
    number = re.compile(rf"(?<!\d)0*{task[2]}(?!\d)")
    forms = {number.sub("\0", str(place)) for place in own if number.search(str(place))}
    shapes = [re.compile(re.escape(form).replace("\0", r"\d+")) for form in forms]
    return any(shape.fullmatch(str(path)) for shape in shapes for path in (folder, *folder.parents))


def _named_by_log(job: Job, texts: Sequence[str], *, now: datetime, places_read: list[str]) -> list[tuple[Place, Inventory]]:
    """Return what lies in the folders of paths that a log names and that were written while the job ran."""
    finds = []
    for place in logged_places(job, texts):
        named_inventory = inventory(place.folder, now=now, live=not job.state.ended, forms=place.forms)
        places_read.append(f"{place.folder} ({place.how}): {len(named_inventory.checkpoints) or 'no'} checkpoints")
        finds += [(place, named_inventory)] if named_inventory.checkpoints else []
    return finds


def _in_named_folders(
    job: Job, texts: Sequence[str], *, now: datetime, clock: Callable[[], float], places_read: list[str]
) -> list[tuple[Place, Inventory]]:
    """Return what was written while the job ran in the one folder that its log names and that has such; none of several."""
    finds: list[tuple[Place, Inventory]] = []
    end = clock() + NAMED_S
    for folder in named_folders(job, texts):
        if clock() > end:
            return []  # there may be another
        how = "the job's log names that folder, in which they were written while it ran"
        try:
            own = own_folder(new_checkpoints(folder, job.started, clock, depth=PROCESS_WALK_FOLDERS), job, texts)
            place = Place(own, how, sure=False) if own is not None else series_place(folder, job, clock, how)
        except (OtherRuns, SeveralRuns, OSError, InputError) as error:
            places_read.append(f"{folder} ({how}): {error}")
            continue
        if place is None or not _owner_matches(place.folder, job.account):
            continue
        listing = inventory(place.folder, now=now, live=not job.state.ended, forms=place.forms)
        places_read.append(f"{place.folder} ({place.how}): {len(listing.checkpoints) or 'no'} checkpoints")
        is_new = place.folder not in {known_place.folder for known_place, _ in finds}
        finds += [(place, listing)] if _saved_by(job, listing) and is_new else []
    return finds if len(finds) == 1 else []


def _settling(job: Job, folder: str = "FOLDER") -> str:
    return f"write `#NIGHTSHIFT checkpoints={folder}` into the script of job {job.id}, or [checkpoints] of the settings"


def _saved_by(job: Job, inventory: Inventory) -> bool:
    """Tell whether some checkpoint was written since the job began."""
    return job.started is not None and any(
        checkpoint.saved_at >= job.started - CLOCKS_APART for checkpoint in inventory.checkpoints
    )


def _inventory_below(
    place: Place, job: Job, texts: Sequence[str], *, now: datetime, clock: Callable[[], float]
) -> tuple[Place, Inventory]:
    """Return what a place holds, or a folder below it: Lightning's `lightning_logs/version_3/checkpoints`.

    Raises:
        ToolError: The place is missing or cannot be read.
        SeveralRuns: Checkpoints of several runs lie below it, and which are this job's is not known.
    """
    live = not job.state.ended
    found = inventory(place.folder, now=now, live=live, forms=place.forms)
    if found.checkpoints:
        inner = folder_of(found.checkpoints[-1].path)
        return (place if inner == place.folder else Place(inner, place.how, forms=place.forms)), found
    folder = own_folder(new_checkpoints(place.folder, job.started, clock, forms=place.forms), job, texts, place.forms)
    if folder is None:
        return place, found
    below = Place(folder, f"below {place.folder}: {place.how}", forms=place.forms)
    return below, inventory(folder, now=now, live=live, forms=place.forms)


def _in_silent_folder(folder: Path, *, now: datetime, live: bool, clock: Callable[[], float]) -> tuple[Place, Inventory] | None:
    """Return what a folder that a log names as its own holds of earlier attempts; None where there is nothing."""
    holders = new_checkpoints(folder, datetime.fromtimestamp(0, UTC), clock).folders
    if not holders:
        return None
    return Place(holders[0], "the job's log names it beside those of other runs"), inventory(holders[0], now=now, live=live)


def _where_processes_wrote(
    job: Job, folders_known: Collection[Path], *, now: datetime, clock: Callable[[], float], places_read: list[str]
) -> tuple[list[tuple[Place, Inventory]], str]:
    """Return the first place where a process wrote that holds checkpoints of the attempt; else why several leave it open."""
    doubt = ""
    for place in [place for place in process_places(job) if place.folder not in folders_known][:MOST_PROCESS_PLACES]:
        written = _written_below(place, job, clock)
        series = series_place(place.folder, job, clock, place.how) if not written and _is_there(place) else None
        if series is not None and _owner_matches(series.folder, job.account):
            listing = inventory(series.folder, now=now, live=not job.state.ended, forms=series.forms)
            if _saved_by(job, listing):
                places_read.append(f"{place.folder} ({place.how}): {len(listing.checkpoints)} checkpoints")
                return [(series, listing)], ""
        places_read.append(f"{place.folder} ({place.how}): {len(written) or 'no'} folders with new checkpoints")
        if len(written) > 1:
            several = " and ".join(str(folder) for folder in written[:2])
            doubt = doubt or f"{several} hold checkpoints written since it began, and which of them are its own is not known"
        elif written:
            written_inventory = inventory(written[0], now=now, live=not job.state.ended)
            if _saved_by(job, written_inventory):
                return [(Place(written[0], place.how), written_inventory)], ""
    return [], doubt


def _written_below(place: Place, job: Job, clock: Callable[[], float]) -> tuple[Path, ...]:
    """Return the folders at a place, or right below it, that hold checkpoints of the job's owner changed since it began.

    Empty where the place is not the one that the node saw: the same path may name another disk there.
    """
    if not _is_there(place):
        return ()
    written = []
    for folder in new_checkpoints(place.folder, job.started, clock, depth=PROCESS_WALK_FOLDERS).folders:
        try:
            if _owner_matches(folder, job.account):
                written.append(folder)
        except (OSError, InputError):
            continue
    return tuple(written)


def _is_there(place: Place) -> bool:
    """Tell whether a place is here what a node saw it to be."""
    try:
        return not place.inode or status_of(place.witness or place.folder).st_ino == place.inode
    except (OSError, InputError):
        return False


def _owner_matches(folder: Path, account: str) -> bool:
    """Tell whether a folder belongs to an account; one that this machine does not know cannot be compared."""
    try:
        return not account or status_of(folder).st_uid == pwd.getpwnam(account).pw_uid
    except KeyError:
        return True


def _without(
    job: Job, texts: Sequence[str], programs: Sequence[JobProgram], places: Sequence[Place], walk: Walk, unreadable: str
) -> tuple[SaveState, str]:
    """Return what follows where no checkpoint was found, with the evidence."""
    save_words = says_saved(texts)
    if save_words:
        return SaveState.SAVED_ELSEWHERE, f"job {job.id} says that it saved ({save_words.strip()[:160]!r}), and " + (
            unreadable or named_save(job, save_words) or "no checkpoint was found"
        )
    if unreadable:
        return SaveState.UNKNOWN, f"whether job {job.id} saved is not known: {unreadable}"
    if unread_words := next((program.unread_behind for program in programs if program.unread_behind), ""):
        return SaveState.UNKNOWN, f"whether job {job.id} saved is not known: of its script {unread_words}"
    definite = [place for place in places if "log" not in place.how and place.sure]
    if definite:
        place_words = ", ".join(f"{place.folder} ({place.how})" for place in definite[:2])
        words = f"the job never saved a checkpoint: there is none in {place_words}, and its log tells of no save"
        return SaveState.NEVER_SAVED, words
    if not programs and saves_nothing(job):
        return SaveState.NEVER_SAVED, "the job never saved a checkpoint: its script runs only commands that write no files"
    if not walk.complete and job.work_dir is not None and job.started is not None:
        return SaveState.UNKNOWN, f"whether job {job.id} saved is not known: {job.work_dir} is too large to be looked through"
    silent = silent_programs(programs)
    if programs and len(silent) == len(programs):
        names = ", ".join(program.name for program in silent[:3])
        return SaveState.NEVER_SAVED, f"the job never saved a checkpoint: {names} holds no call that saves"
    if proof := made_and_left_empty(job, texts, places):
        return SaveState.NEVER_SAVED, proof
    likely = ", ".join(f"{place.folder} ({place.how})" for place in places[:2])
    why = f"nothing of it lies where it seems to save: {likely}" if likely else "neither script nor log tells where it would save"
    return SaveState.UNKNOWN, f"whether job {job.id} saved a checkpoint is not known: {why}"


def folder_moves(job: Job, search: CheckpointSearch, *, same_id: bool = False) -> str:
    """Return why a new job would look in another folder, as each start names it anew, for people; empty if it would not.

    Args:
        job: With its spec.
        search: What was found of it.
        same_id: Whether it is queued again under its own id.

    Raises:
        Unavailable: The storage did not answer.
    """
    save_folder = search.place.folder if search.place is not None else None
    if job.spec is None or save_folder is None:
        return ""
    texts = [job.spec.script, *(source.text for program in search.programs for source in program.sources)]
    holds = {folder.folder for folder in save_folders(search.programs)} & {save_folder, *save_folder.parents}
    if holds and not same_id and any(map(JOB_ID.search, texts)):
        later = programs_of(as_another_job(job))  # what it writes anew under its id is not there yet, and tells nothing
        is_told = all(program.sources for program in later) or re.search(rf"\b{re.escape(job.id)}\b", str(save_folder))
        if is_told and not {folder.folder for folder in save_folders(later)} & holds:
            return f"the path of {save_folder} holds the job's id"
    if save_folder in holds:
        return ""
    return moved_folder(job, search.programs, save_folder, same_id=same_id)
