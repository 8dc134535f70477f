"""What a search for the checkpoints of a job comes to, with the proofs for a start from the beginning.

A job that works through pieces needs no checkpoint where it passes over finished ones. Else it takes proof that a job saved
nothing, and a look at what seems as if it may have.

That each save had ended before the job did is needed only of files that no reader knows, where nothing was saved behind them.
Compared are times of one file system: when the checkpoint was last written to, and the log.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path, PurePosixPath

from assistant.errors import InputError
from assistant.logs.lines import Line
from assistant.logs.metrics import metric_points
from assistant.records import Checkpoint, Job, MetricPoint
from assistant.recover.checkpoints.inventory import Inventory, is_before
from assistant.recover.checkpoints.layout import NOT_A_CHECKPOINT, could_be_checkpoint
from assistant.recover.checkpoints.names import OTHER_WEIGHTS, SUFFIXES, Unit, number_in
from assistant.recover.checkpoints.own_folders import WALK_ENTRIES, OtherRuns, changed_at
from assistant.recover.checkpoints.place import NO_SAVE, Place, new_series
from assistant.recover.checkpoints.written_files import unexplained_files
from assistant.recover.job_program import HARMLESS, QUIET, FileReader, JobProgram, job_launches
from assistant.recover.resume.stages import Stages
from assistant.recover.shell.folders import CLOCKS_APART
from assistant.recover.shell.words import joined_path
from assistant.recover.source.continued_work import continued_work
from assistant.recover.source.file_uses import file_uses
from assistant.recover.source.finished_pieces import pieces_of_script
from assistant.recover.source.in_place import repeated_change
from assistant.recover.source.script_appends import script_appends
from assistant.recover.source.trainer_source import SourceCall, TrainerSource
from assistant.untrusted import is_folder, list_folder, reading_as, status_of


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
    stages: Stages | None = None
    """Of a script that trains several times; None of any other."""
    stateless: bool = False
    """With NEVER_SAVED: its programs keep no state, so that a restart loses nothing."""
    pieces: str = ""
    """With NEVER_SAVED: the line by which its script is proven to pass over finished pieces, so that it does what is missing."""
    foreign_folders: tuple[Path, ...] = ()
    """Folders that other runs wrote into while it ran."""
    unsorted: tuple[Place, Inventory] | None = None
    """With UNKNOWN, of a folder of several runs: where it is and all that it holds, whosever it is."""


UNKNOWN = ("is not known", "cannot be read", "cannot be told", "is not followed")
"""Words of doubts about a command or a program, and not about its pieces."""


def with_piece_work(job: Job, search: CheckpointSearch) -> CheckpointSearch:
    """Return a search as one without a checkpoint where the job is proven to do only what is missing when it runs again.

    Where it passes over pieces and something keeps that from being proven, the line is named. What the owner states of the
    folder of its checkpoints counts more than any reading.

    Args:
        job: With its spec.
        search: By its script, its log and its folders.

    Raises:
        Unavailable: The storage did not answer.
    """
    stated = search.place is not None and search.place.stated
    if job.spec is None or search.stateless or stated or search.stages is not None:
        return search
    read, work_dir = FileReader(job.account), str(job.work_dir or job.spec.work_dir or "")
    open_states = (SaveState.UNKNOWN, SaveState.NEVER_SAVED)
    if search.state in open_states and (place := continued_place(job, search, read)):
        note = f"job {job.id} needs no checkpoint: its program goes on behind what it has written ({place})"
        return replace(search, state=SaveState.NEVER_SAVED, note=note, settle="", pieces=place)
    if search.state is SaveState.NEVER_SAVED:
        return search

    def read_sourced(path: str) -> str | None:
        plain = path.replace("$SLURM_SUBMIT_DIR", work_dir).replace("$PWD", work_dir)
        return read(joined_path(work_dir, plain)) if work_dir and "$" not in plain else None

    work = pieces_of_script(job.spec.script, search.programs, read_sourced)
    if work.proven:
        note = f"job {job.id} needs no checkpoint: it passes over the pieces that are finished ({work.guard_place})"
        return replace(
            search, state=SaveState.NEVER_SAVED, inventory=None, place=None, note=note, settle="", pieces=work.guard_place
        )
    if not work.guard_place or search.state is not SaveState.UNKNOWN:
        return search
    pieces = f"it passes over what is there ({work.guard_place}), but {work.doubt}"
    note = f"whether job {job.id} may run again as it is is not known: {pieces}"
    settle = f"if it may all the same, submit it in {work_dir} as the first time"
    if any(words in work.doubt for words in UNKNOWN):
        settle = f"{settle}; or {search.settle}"  # what it starts may save checkpoints all the same
    return replace(search, note=note, settle=settle)


def changed_in_place(job: Job, search: CheckpointSearch) -> CheckpointSearch:
    """Return a search that says "never saved" as one that does not know where a second run would change something a second time.

    A file that a program changes in place, a store that it adds to, an input that it writes over: a start from the beginning meets
    what the first one has left. What the script itself appends to a file of results is told as well.

    Args:
        job: With its spec.
        search: With `pieces` it is proven, and stays as it is.
    """
    if search.state is not SaveState.NEVER_SAVED or search.pieces:
        return search
    doubts = (repeated_change(program) for program in search.programs if program.sources)
    doubt = next(filter(None, doubts), "") or (script_appends(job.spec.script) if job.spec is not None else "")
    if not doubt:
        return search
    note = f"whether job {job.id} may run again from its beginning is not known: {doubt}, and a rerun would do that a second time"
    settle = f"somebody who knows the program puts back what was there before, and submits it in {job.work_dir} as the first time"
    return replace(search, state=SaveState.UNKNOWN, note=note, settle=settle, stateless=False)


STORE_SUFFIXES = ("", "-journal", "-wal", "-shm")
"""What SQLite adds to the name of a store for files beside it."""
_LEARNS = re.compile(r"\bbackward\s*\(|\boptim(?:izer)?\b(?!ize)|\.fit\s*\(|\b(?:torch|tensorflow|jax|lightning|transformers)\b")
_OTHER_COMMANDS = HARMLESS | QUIET - frozenset(("rm", "mv", "cp", "ln", "source", "."))


def continued_place(job: Job, search: CheckpointSearch, read: FileReader) -> str:
    """Return the line by which the only program of a job goes on behind what it has written; empty where that is not all it wrote.

    It trains nothing, starts no other program and saves no state of a known kind; each file that the attempt wrote and that may
    hold results is one that the program reads first.

    Raises:
        Unavailable: The storage did not answer.
    """
    programs = search.programs
    if len(programs) != 1 or search.unsorted is not None or programs[0].starts_others or programs[0].unread_behind:
        return ""
    program = programs[0]
    commands = {PurePosixPath(launch.words[0]).name for launch in job_launches(job, read) if launch.words != program.launch.words}
    is_read = bool(program.sources) and all(source.parsed for source in program.sources)
    if not is_read or commands - _OTHER_COMMANDS - {"cd"} or any(_LEARNS.search(source.text) for source in program.sources):
        return ""
    work = [entry for entry in continued_work(programs) if entry.path and "*" not in entry.path and not entry.adds]
    paths = {f"{entry.path}{suffix}" for entry in work for suffix in (STORE_SUFFIXES if entry.is_store else ("",))}
    if not work or file_uses(program).saves or any(path in paths for path in program.removed):
        return ""
    written = unexplained_files(job, programs)
    is_all = bool(written) and all(str(file.path) in paths for file in written)
    return work[0].place if is_all else ""


NO_SAVE_SUFFIXES = tuple(".log .out .err .txt .csv .tsv .yaml .yml .toml .png .html .md .lock .sh .py".split())
"""Of files with a step in their name that no program loads."""


def unknown_layout(folder: Path, since: datetime | None) -> str:
    """Return a file with a step in its name that was written since a time into a folder of checkpoints; empty for none."""
    if since is None:
        return ""
    oldest = (since - CLOCKS_APART).timestamp()
    children = list_folder(folder, WALK_ENTRIES)
    # TensorFlow saves into a folder of that name below the one that it is told
    for child in [
        *children,
        *(inner_child for inner in children if inner.name == "chief" for inner_child in list_folder(inner, WALK_ENTRIES)),
    ]:
        number = number_in(child.name)
        # weights in a folder of checkpoints are what the training leaves behind, by whatever name
        numbered = (number is not None and number.unit is not Unit.UNNAMED) or (
            child.name.endswith((*SUFFIXES, *OTHER_WEIGHTS)) and not NOT_A_CHECKPOINT.search(child.name)
        )
        noise = child.suffix in NO_SAVE_SUFFIXES or "tfevents" in child.name or could_be_checkpoint(child.name, folder=False)
        if numbered and not noise and not is_folder(child) and changed_at(child, False) >= oldest:
            return str(child)
    return ""


def trains(texts: Sequence[str]) -> bool:
    """Tell whether a log shows steps of a training."""
    return bool(metric_points(Line(number, text) for number, text in enumerate(texts, 1)))


def unmounted_folder(job: Job, places: Sequence[Place]) -> str:
    """Return why what is missing proves nothing: this machine does not see where the job ran or saves; empty where it does.

    A file system that is mounted on the nodes alone looks from here like one on which nothing was saved.
    """
    if job.started is None or not job.dated_logs:
        return ""
    work_dir = [(job.work_dir, job.work_dir)] if job.work_dir is not None else []
    # of a place only the root folder counts: what lies deeper the job would have made itself
    roots = [(place.folder, Path(*place.folder.parts[:2])) for place in places]
    with reading_as(job.account):
        for folder, root in (*work_dir, *roots):
            try:
                status_of(root)
            except (FileNotFoundError, NotADirectoryError):
                return f"{folder} is not seen from this machine: {root} is not there; mount here what the nodes have there"
            except (OSError, InputError):
                continue
    return ""


def never_saved_beside(foreign_runs: OtherRuns, job: Job, texts: Sequence[str], clock: Callable[[], float]) -> str:
    """Return the proof that a job saved nothing where other runs beside it did; empty where there is none."""
    folder = foreign_runs.silent_folder
    if folder is not None:
        try:
            unknown = unknown_layout(folder, job.started) or new_series(folder, job.started, clock)
        except FileNotFoundError:
            unknown = None
        except (OSError, InputError):
            return ""
        return "" if unknown else f"the job never saved a checkpoint: {folder}, {foreign_runs.how}, holds none; {foreign_runs}"
    if "_" not in job.id or not any(text.strip() for text in texts) or trains(texts):
        return ""
    return f"the job never saved a checkpoint: its log tells of no step and no save; {foreign_runs}"


def made_and_left_empty(job: Job, texts: Sequence[str], places: Sequence[Place]) -> str:
    """Return the proof that a job saved nothing: it made the folder where it seems to save, which is empty, and shows no step.

    Empty where that is not seen, and where there are several such folders.
    """
    if job.started is None or len(places) != 1 or trains(texts) or not any(text.strip() for text in texts):
        return ""
    (place,) = places
    with reading_as(job.account):
        try:
            changed = status_of(place.folder).st_mtime
            is_empty = is_folder(place.folder) and not list_folder(place.folder, 1)
        except (OSError, InputError):
            return ""
    if not is_empty or changed < (job.started - CLOCKS_APART).timestamp():
        return ""
    folder = f"{place.folder} ({place.how})"
    return f"the job never saved a checkpoint: {folder} was made since it began and is empty, and its log shows no step"


QUIET_S = 10.0
"""Nothing was written to a file for so long while its job went on: a save that goes on writes."""
FLUSHED_S = 60.0
"""After so long a file that was renamed lies on the disk, also where its writer did not wait for that."""
SAVED = re.compile(r"\b(?:saved|wrote|written|stored)\b", re.IGNORECASE)
TEMPORARY = re.compile(r"te?mp|part|\bnew|unfinished|incomplete|staging", re.IGNORECASE)
BINARY = re.compile(r"[wx]b\+?|[wx]\+?b")
WRITES = re.compile(r"save|dump|write_bytes|savez|savez_compressed")


def save_ends(listing: Inventory, job: Job, texts: Sequence[str], programs: Sequence[JobProgram]) -> Mapping[Path, str]:
    """Return of the checkpoints of an inventory that nobody can judge what shows that their saves had ended, in plain words.

    Args:
        listing: The job's own checkpoints.
        job: The job.
        texts: Lines of the log of its last attempt, in order.
        programs: Those of its script.
    """
    undecided = [checkpoint for checkpoint in listing.checkpoints if checkpoint.undecided]
    last_sign = _last_sign(job) if undecided and job.dated_logs else None
    if last_sign is None:
        return {}
    points = list(metric_points(Line(number, text) for number, text in enumerate(texts, 1)))
    renames = any(_puts_in_place(program.sources) for program in programs)
    proofs = {checkpoint.path: _end(checkpoint, texts, points, last_sign=last_sign, renames=renames) for checkpoint in undecided}
    return {path: words for path, words in proofs.items() if words}


def _last_sign(job: Job) -> datetime | None:
    """Return when the log was last written to; None where that is not known. A scheduler may notice an end minutes later."""
    if job.log is None:
        return None
    try:
        with reading_as(job.account):
            return datetime.fromtimestamp(status_of(job.log).st_mtime, UTC)
    except (OSError, InputError, ValueError, OverflowError):
        return None


def _end(checkpoint: Checkpoint, texts: Sequence[str], points: Sequence[MetricPoint], *, last_sign: datetime, renames: bool) -> str:
    quiet_s = (last_sign - checkpoint.saved_at).total_seconds()
    if quiet_s < QUIET_S:
        return ""
    name = re.compile(rf"(?<![\w.]){re.escape(checkpoint.path.name)}(?!\w)")
    if any(name.search(text) and SAVED.search(text) and not NO_SAVE.search(text) for text in texts):
        return f"the job's log says that it was saved, and went on for {quiet_s:.0f} s"
    later = next(
        (point for point in reversed(points) if not point.counted and is_before(checkpoint, point.step, point.epoch)), None
    )
    if later is not None:
        return f"the job went on behind it to step {later.step}, for {quiet_s:.0f} s"
    return (
        f"its program puts each file in place by a rename, {quiet_s:.0f} s before the log ended"
        if renames and quiet_s >= FLUSHED_S
        else ""
    )


def _puts_in_place(sources: Sequence[TrainerSource]) -> bool:
    """Tell whether all that a program writes as bytes is written under another name and put in place by a rename."""
    own = {
        f"{owner}{name}" for source in sources for name in source.functions for owner in ("", "self.", f"{Path(source.path).stem}.")
    }
    writing: list[list[SourceCall]] = []
    for source in sources:
        functions = [function for same_name in source.functions.values() for function in same_name]
        bodies = [[call for call in source.calls if _lies_in(call, function)] for function in functions]
        bodies.append([call for call in source.calls if not any(_lies_in(call, function) for function in functions)])
        writing += [calls for calls in bodies if any(_writes(call) for call in calls if call.name not in own)]
    read = bool(sources) and all(source.parsed for source in sources)
    return read and bool(writing) and all(any(map(_renames, calls)) for calls in writing)


def _lies_in(call: SourceCall, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return function.lineno <= call.line <= (function.end_lineno or function.lineno)


def _writes(call: SourceCall) -> bool:
    if call.method == "open":
        modes = [*call.positional[:2], *(value for name, value in call.keywords.items() if name == "mode")]
        return any(
            isinstance(mode, ast.Constant) and isinstance(mode.value, str) and BINARY.fullmatch(mode.value) for mode in modes
        )
    return WRITES.fullmatch(call.method) is not None and call.name not in ("json.dump", "yaml.dump")


def _renames(call: SourceCall) -> bool:
    """Tell whether a call renames a temporary file: `os.replace(tmp, path)`, `tmp.rename(path)`."""
    owner = call.name.rpartition(".")[0]
    by_module = owner in ("os", "shutil", "") and call.method in ("replace", "rename", "renames", "move")
    # of a path, which takes the new name alone; of a text `replace` takes two words
    by_path = bool(owner) and call.method in ("replace", "rename") and len(call.positional) == 1
    return (by_module or by_path) and TEMPORARY.search(" ".join([owner, *map(ast.unparse, call.positional)])) is not None
