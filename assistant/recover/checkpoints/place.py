"""Where a job saves its checkpoints: named by the site, by its script or environment, else read off its log.

Where no layout and no source shows its saves, log and work folder may: names in lines of any language, and series. Words of a line
are not understood: it counts for the path in it. `saved_into` tells whether a job had saved into a folder that it misses now: that
is lost, and no folder to be made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path

from assistant.errors import InputError, OwnerDenied, UnreadableFile
from assistant.records import Job
from assistant.recover.checkpoints.entry import Format
from assistant.recover.checkpoints.layout import DIRECTORY_STEPS, LAST_NUMBER, PLAIN_FOLDER, names_step, step_of_form
from assistant.recover.checkpoints.named_saves import former_saves, named_saves, numbered_saves
from assistant.recover.checkpoints.names import name_form
from assistant.recover.checkpoints.own_folders import PASSED_OVER, WALK_ENTRIES, WALK_FOLDERS, WALK_S
from assistant.recover.checkpoints.save_options import SaveFolder, save_folders
from assistant.recover.directives import read_directives
from assistant.recover.job_program import JobProgram
from assistant.recover.shell.folders import CLOCKS_APART, UNRESOLVED, normal
from assistant.redact import head_of
from assistant.untrusted import is_folder, is_regular, list_folder, status_of
from assistant.watch.progress import tells_of_save

ENVIRONMENT = "NIGHTSHIFT_CHECKPOINTS"
SAVE_VARIABLES = ("CHECKPOINT_DIR", "CHECKPOINTS_DIR", "CHECKPOINT_PATH", "CKPT_DIR", "SAVE_DIR", "OUTPUT_DIR", "OUT_DIR")
"""Variables by which scripts name the folder to their programs."""

_PATH = r"[`'\"]?(?:local:|file://)?(?P<path>(?:/|\./|\.\./|[\w.-]+/)[^\s`'\",;\]]*)"
SAVED = (
    # Megatron-LM, Megatron-DeepSpeed, assistant.training
    re.compile(rf"(?:saving|saved) checkpoint (?:at|from) iteration\s+\d+ (?:to|in) {_PATH}", re.IGNORECASE),
    # DeepSpeed: [Torch] Saving /ckpt/global_step100/mp_rank_00_model_states.pt...
    re.compile(rf"\[Torch\] Sav(?:ing|ed) {_PATH}"),
    # Hugging Face Trainer, Accelerate, NeMo, InternEvo, torchtune: some form of "saving … checkpoint to PATH"
    re.compile(
        rf"(?:sav(?:ing|ed)|writing|wrote|stor(?:ing|ed))\b[^/\n]{{0,60}}?\b(?:to|in|at|into|as)\b:? {_PATH}", re.IGNORECASE
    ),
    # Lightning: …, saving model to '/runs/a/epoch=0-step=100.ckpt' as top 1
    re.compile(rf"saving model to {_PATH}", re.IGNORECASE),
    re.compile(rf"sav(?:ing|ed) (?:model |training )?(?:checkpoint|state)s?:? {_PATH}", re.IGNORECASE),
    # TensorFlow's guide, and loops after it: "Saved checkpoint for step 10: ./tf_ckpts/ckpt-1"
    re.compile(rf"sav(?:ing|ed) checkpoints? for (?:step|epoch|iteration) \d{{1,18}}:? {_PATH}", re.IGNORECASE),
)
SPOKE = re.compile(r"sav(?:ing|ed)|writ(?:ing|ten)|wrote|stor(?:ing|ed)", re.IGNORECASE)
ABOUT = re.compile(r"checkpoint|ckpt|\bmodel\b|\bstates?\b|global_step|\.(?:pt|pth|npz|safetensors)\b", re.IGNORECASE)
SAVES = re.compile(
    r"\bsav(?:e|es|ing|ed)\b.{0,80}?\b(?:check ?points?|ckpts?|(?:training |current )?states?|snapshots?)\b|"
    r"\b(?:check ?point|ckpt|snapshot)s?\b.{0,80}?\b(?:sav(?:ed|ing)|written|stored)\b|"
    r"(?:wrote|writing) (?:a )?(?:checkpoint|ckpt)",
    re.IGNORECASE,
)
WRITES_STATE = re.compile(
    r"\b(?:restart(?: file| dump)?|check-?point|snapshot|backup|state|dump)\s{0,4}(?:->|=>|→|>>)\s{0,4}[\w./~-]*\w"
    r"|\b(?:restart file|restart dump|snapshot|backup|state|journal)\b.{0,60}\b(?:stored|kept|flushed|committed|dumped|written)\b",
    re.IGNORECASE,
)
"""How programs of other trades tell that they wrote down where they are."""
NO_SAVE = re.compile(
    r"error|fail|cannot|could not|unable|not sav|no checkpoint|will be saved|saving is disabled|\bevery\b|--\w+", re.IGNORECASE
)
FAILED = re.compile(r"error|fail|cannot|could not|unable|traceback", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Place:
    """A checkpoint folder and how it was found."""

    folder: Path
    how: str
    """For people: `#NIGHTSHIFT checkpoints= in the script`."""
    stated: bool = False
    """Whether owner or site say so in as many words: then nothing else is looked for."""
    sure: bool = True
    """False where the program may put another folder before it: that nothing lies there proves nothing."""
    inode: int = 0
    """Of the witness, else of the folder, as a node saw it: what has another one here lies on a disk of that node; 0: not known."""
    witness: Path | None = None
    """The file that was seen open in the folder or below it; None for a folder that was seen itself."""
    forms: frozenset[str] = frozenset()
    """How its checkpoints are named, as `SaveFolder.forms`; empty where only known layouts count."""


def place_of(save: SaveFolder) -> Place:
    """Return a folder that programs save into as a place."""
    return Place(save.folder, save.how, sure=save.sure, forms=save.forms)


def checkpoint_place(
    job: Job, folders: Mapping[str, Path], log_lines: Iterable[str] = (), programs: Sequence[JobProgram] = ()
) -> Place | None:
    """Return the surest place where a job saves, or None when nothing tells one; nothing is looked at.

    Args: as `checkpoint_places`.
    """
    return next(iter(checkpoint_places(job, folders, log_lines, programs)), None)


def checkpoint_places(
    job: Job, folders: Mapping[str, Path], log_lines: Iterable[str] = (), programs: Sequence[JobProgram] = ()
) -> list[Place]:
    """Return the places where a job may save, the surest first, each once.

    The order: the directive in its script, the site's setting, `NIGHTSHIFT_CHECKPOINTS`, command line and configuration of its
    programs, its log, other variables of its environment.

    Args:
        job: With its spec, where the scheduler keeps it.
        folders: The site's settings: folder by job id, or by a glob of job names.
        log_lines: Of the job's log, in order.
        programs: What its script starts, from `programs_of`.
    """
    places: list[Place] = []
    spec = job.spec
    directives = read_directives(spec.script) if spec is not None else None
    if directives is not None and directives.checkpoints:
        places.append(Place(_absolute(directives.checkpoints, job), "#NIGHTSHIFT checkpoints= in the script", stated=True))
    setting = folders.get(job.id) or next((path for glob, path in folders.items() if fnmatchcase(job.name, glob)), None)
    if setting is not None:
        places.append(Place(setting, "said by the settings", stated=True))
    if spec is not None and spec.environment.get(ENVIRONMENT):
        places.append(Place(_absolute(spec.environment[ENVIRONMENT], job), f"{ENVIRONMENT} in the job's environment", stated=True))
    exported = next((text for program in programs if (text := program.launch.variables.get(ENVIRONMENT))), "")
    if not places and exported and UNRESOLVED not in exported:
        places.append(Place(_absolute(exported, job), f"{ENVIRONMENT} in the script", stated=True))
    if places:
        return places
    places += map(place_of, save_folders(programs))
    logged = last_saved(log_lines)
    if logged:
        boxed = (program.launch for program in programs if program.launch.container is not None)
        outside_paths = (path for launch in boxed if (path := launch.outside(logged)) is not None)
        places.append(Place(next(outside_paths, None) or _absolute(logged, job), "the job's log"))
    if spec is not None:
        variables_set = [name for name in SAVE_VARIABLES if spec.environment.get(name)]
        places += [Place(_absolute(spec.environment[name], job), f"{name} in the job's environment") for name in variables_set]
    return list({place.folder: place for place in reversed(places)}.values())[::-1]


def process_places(job: Job) -> list[Place]:
    """Return the folders where processes of a job were seen to write, the surest first, each once; nothing is looked at.

    The order: variables of their environment, working folders other than the job's, folders of files that they held open. A folder
    that holds the work folder of the job belongs to more than this job and is left out, as is one right below the root.
    """
    if job.processes is None:
        return []
    variables = [folder for folder in job.processes.folders if folder.variable]
    working = [folder for folder in job.processes.folders if not folder.variable]
    places = [Place(variable.path, variable.source) for variable in variables]
    places += [Place(process_folder.path, process_folder.source, inode=process_folder.inode) for process_folder in working]
    for file in job.processes.files:
        name = file.path.parent.name
        inside = any(pattern.fullmatch(name) for layout, pattern in DIRECTORY_STEPS.items() if layout is not Format.INTERNEVO)
        folder = file.path.parent.parent if inside else file.path.parent
        places.append(Place(folder, file.source, witness=file.path, inode=file.inode))
    work = job.work_dir
    own = [place for place in places if len(place.folder.parts) > 2 and (work is None or place.folder not in (work, *work.parents))]
    return list({place.folder: place for place in reversed(own)}.values())[::-1]


def last_saved(log_lines: Iterable[str]) -> str | None:
    """Return the folder of the last checkpoint that a log says was saved; None when it tells of none with its path."""
    found = None
    for line in log_lines:
        if not SPOKE.search(line) or not ABOUT.search(line) or FAILED.search(line):
            continue
        path = next((match.group("path") for pattern in SAVED if (match := pattern.search(line))), None)
        if path is not None:
            found = _folder_of(path.rstrip("."))
    return found


def says_saved(texts: Iterable[str]) -> str:
    """Return the last line of a log that tells of a save; empty where none does."""
    last = ""
    for text in texts:
        if len(text) < 4000 and (
            tells_of_save(text)
            or ((SAVES.search(text) or WRITES_STATE.search(text)) and not NO_SAVE.search(text))
            or last_saved([text])
        ):
            last = text
    return last


def _folder_of(path: str) -> str:
    """Cut a path before the part that names one checkpoint; a file leaves its folder."""
    parts = path.rstrip("/").split("/")
    for place, part in enumerate(parts):
        if place and any(pattern.fullmatch(part) for layout, pattern in DIRECTORY_STEPS.items() if layout is not Format.INTERNEVO):
            return "/".join(parts[:place])
    if len(parts) > 1 and (parts[-1].isdecimal() or re.search(r"\.(?:ckpt|pt|pth|npz|bin|safetensors)$", parts[-1])):
        if names_step(parts[-1]):
            return "/".join(parts[:-1])  # the file is the checkpoint: `run/ckpt5/step_000010.npz` lies in `run/ckpt5`
        parts = parts[:-1]
    if len(parts) > 1 and PLAIN_FOLDER.fullmatch(parts[-1]):
        parts = parts[:-1]
    return "/".join(parts)


def _absolute(path: str, job: Job) -> Path:
    folder = Path(path).expanduser()
    return folder if folder.is_absolute() or job.work_dir is None else job.work_dir / folder


MOST_LINES = 2_000
"""Last lines of a log that are looked through."""
MOST_PATHS = 200
"""Paths in them that are looked at, the last first."""
MOST_FORMS = 4
HEAD_LINES = 400
"""First and last lines of a log in which folders are looked for."""
MOST_PER_LINE, MOST_NAMED_FOLDERS, FEWEST_PARTS = 8, 6, 3
"""Paths of one line; folders that are looked into; parts of a path, `/` included: above it everything lies."""
FEWEST_NUMBERS = 3
"""Numbers that make a series."""
FEWEST_BYTES = 1024
"""Of a file that holds a state, and of the largest file of a folder."""
PATH = re.compile(r"(?<![\w./~-])(?:[\w.~@+=-]{0,100}/){0,12}[\w.@+=-]{1,150}/?", re.UNICODE)
FOLDER = re.compile(r"(?<![\w./~-])(?:/|\.{1,2}/)?(?:[\w.~@+=-]{1,100}/){1,12}[\w.@+=-]{0,150}", re.UNICODE)
"""A path of two parts and more."""
LOADS = re.compile(r"load|init|pretrain|teacher|resum|restor|warm.?start|\bfrom\b", re.IGNORECASE)
"""Words of lines that name what a job reads."""
NO_STATE = tuple(
    (
        ".log .out .err .txt .csv .tsv .json .jsonl .yaml .yml .toml .png .jpg .jpeg .gif .svg .pdf .html .md .lock .sh .py .mp4 "
        ".wav .flac .parquet .arrow .tar .xml .ini .cfg .conf .pid .npy"
    ).split()
)
"""Suffixes of logs, results, pictures and data."""
LOGS = (".log", ".out", ".err", ".sh", ".py", ".lock", ".pid")
TELLS_OF_SAVE = re.compile(r"\b(?:sav(?:ed|ing)|wrote|written|checkpoint(?:ed)?|snapshot|dumped|stored)\b", re.IGNORECASE)
"""Words of lines that tell of a save."""
MOST_SAVED_NAMES, MOST_CHILDREN = 20, 200
TRACE = re.compile(r'^\s*File "|Traceback|^\s*at ')


@dataclass(frozen=True, slots=True)
class Series:
    """Files or folders of one form of name that were written since a job began."""

    folder: Path
    first: str
    last: str
    count: int

    @property
    def sentence(self) -> str:
        """For people: what it is and where."""
        return f"{self.first} to {self.last} in {self.folder}, {self.count} of that form that were written since it began"


def logged_places(job: Job, texts: Sequence[str]) -> list[Place]:
    """Return the folders of paths in the last lines of a log that are there, have a number, and were written while the job ran.

    Args:
        job: With work folder and the times of its attempt.
        texts: Lines of its log, in order.
    """
    if job.work_dir is None or job.started is None:
        return []
    places: dict[tuple[Path, str], Place] = {}
    work = Path(normal(str(job.work_dir)))
    for text in list(dict.fromkeys(_paths(texts)))[:MOST_PATHS]:
        whole = Path(normal(str(work / text)))
        for path in (whole, *whole.parents):
            if path == work or work not in path.parents or len(places) >= MOST_FORMS:
                break
            form = name_form(path.name)
            if (path.parent, form) not in places and _is_numbered(path.name) and _is_written(path, job):
                how = f"the job's log names {path.name} there, which was written while it ran"
                places[path.parent, form] = Place(path.parent, how, sure=False, forms=frozenset((form.replace("[", "?"),)))
    return list(places.values()) or list(_saved_places(job, work, texts))[:MOST_FORMS] or _named_places(job, texts)


def _named_places(job: Job, texts: Sequence[str]) -> list[Place]:
    """Return the folders of files that a log tells of as saved, and of whose names no rule knows a number that counts."""
    how = "the job's log names {} there, which was written while it ran"
    numbered = numbered_saves(job, texts).items()
    places = [Place(folder, how.format(form), sure=False, forms=frozenset((form,))) for folder, form in numbered]
    names: dict[Path, list[str]] = {}
    for path in named_saves(job, texts):
        names.setdefault(path.parent, []).extend(file.name for file in (path, *former_saves(path, job)))
    return places or [Place(top, how.format(files[0]), sure=False, forms=frozenset(files)) for top, files in names.items()]


def _saved_places(job: Job, work: Path, texts: Sequence[str]) -> Iterator[Place]:
    """Yield the folders right below the work folder that hold, written while the job ran, what its log says by name that it saved.

    A line that says so is a second witness: here a text may be a state as well, `part0.json`.
    """
    names = list(dict.fromkeys(_saved_names(texts)))[:MOST_SAVED_NAMES]
    try:
        children = [child for child in list_folder(work, MOST_CHILDREN) if not PASSED_OVER.fullmatch(child.name)] if names else []
    except (OSError, InputError, UnreadableFile, OwnerDenied):
        return
    forms: set[tuple[Path, str]] = set()
    for name in names:
        for path in (child / name for child in children):
            place = path.parent, name_form(name)
            if place not in forms and _is_numbered(name) and _is_written(path, job, texts=True):
                forms.add(place)
                how = f"the job's log says that it saved {name}, which was written there while it ran"
                yield Place(path.parent, how, sure=False, forms=frozenset((place[1].replace("[", "?"),)))


def _saved_names(texts: Sequence[str]) -> Iterator[str]:
    """Yield the names without a folder that lines of a log say were saved, the last first."""
    for text in reversed(texts[-MOST_LINES:]):
        if (
            len(text) < 1000
            and TELLS_OF_SAVE.search(text)
            and not (TRACE.search(text) or FAILED.search(text) or LOADS.search(text))
        ):
            yield from (match[0] for match in PATH.finditer(text) if "/" not in match[0] and any(map(str.isdigit, match[0])))


def named_folders(job: Job, texts: Sequence[str]) -> list[Path]:
    """Return the folders that the first and last lines of a log name, the first named first: where a job may write.

    The work folder and what holds it belong to more than this job, and a line that tells of a load names another run's.
    """
    if job.work_dir is None:
        return []
    work = Path(normal(str(job.work_dir)))
    folders: dict[Path, None] = {}
    for text in [*texts[:HEAD_LINES], *texts[HEAD_LINES:][-HEAD_LINES:]]:
        if len(text) >= 4000 or TRACE.search(text) or FAILED.search(text) or LOADS.search(text):
            continue
        for match in list(FOLDER.finditer(text))[:MOST_PER_LINE]:
            key, _, value = match[0].partition("=")
            written = value if value and "/" not in key else match[0]  # `folder=/results/a`
            path = Path(normal(str(work / written.rstrip("./"))))
            if len(path.parts) >= FEWEST_PARTS and path != work and path not in work.parents:
                folders.setdefault(path)
    present = []
    for path in list(folders)[:MOST_PATHS]:
        try:
            present += [path] if is_folder(path) else []
        except (OSError, InputError, UnreadableFile, OwnerDenied):
            continue
    return present[:MOST_NAMED_FOLDERS]


def series_place(folder: Path, job: Job, clock: Callable[[], float], how: str) -> Place | None:
    """Return a folder as a place where a series of evenly spaced numbers in it was written since a job began; None for none."""
    series = new_series(folder, job.started, clock, depth=1)
    if series is None or series.folder != folder:
        return None
    return Place(folder, how, sure=False, forms=frozenset((name_form(series.last).replace("[", "?"),)))


def _paths(texts: Sequence[str]) -> Iterator[str]:
    for text in reversed(texts[-MOST_LINES:]):
        if len(text) < 4000 and not TRACE.search(text) and not FAILED.search(text):
            yield from (match[0].rstrip("./") for match in PATH.finditer(text) if any(letter.isdigit() for letter in match[0]))


def _is_numbered(name: str) -> bool:
    """Tell whether a name has a number that orders it among its like: none of a run, a rank, a part, or a date."""
    return step_of_form(name, (name_form(name).replace("[", "?"),)) is not None and not name.endswith(NO_STATE)


def _is_written(path: Path, job: Job, *, texts: bool = False) -> bool:
    """Tell whether a file or folder that may hold a state was written while a job ran; with `texts` a text may be one."""
    try:
        changed = _state_changed(path, folder=is_folder(path), no_state=NO_STATE if not texts else LOGS)
    except (OSError, InputError, UnreadableFile, OwnerDenied):
        return False
    if changed is None:
        return False
    end = (job.ended + CLOCKS_APART).timestamp() if job.ended is not None and job.state.ended else float("inf")
    return job.started is not None and (job.started - CLOCKS_APART).timestamp() <= changed <= end


def _state_changed(path: Path, *, folder: bool, no_state: tuple[str, ...] = NO_STATE) -> float | None:
    """Return when the newest file of a state was written; None where nothing there may be one."""
    files = [child for child in list_folder(path, 200) if not child.is_symlink() and is_regular(child)] if folder else [path]
    stats = [status_of(file) for file in files if not file.name.endswith(no_state)]
    large = any(stat.st_size >= FEWEST_BYTES for stat in stats)
    return max(stat.st_mtime for stat in stats) if large else None


def new_series(top: Path | None, since: datetime | None, clock: Callable[[], float], *, depth: int = WALK_FOLDERS) -> Series | None:
    """Return the longest series of names with evenly spaced numbers that was written below a folder since a time; None for none.

    Args:
        top: The work folder of a job.
        since: When the job began.
        clock: Seconds that pass.
        depth: Folders below one another that are looked into.
    """
    if top is None or since is None:
        return None
    oldest, end, budget = (since - CLOCKS_APART).timestamp(), clock() + WALK_S, WALK_ENTRIES
    waiting, series = [(top, 0)], list[Series]()
    while waiting and clock() < end and budget > 0:
        folder, level = waiting.pop(0)
        try:
            children = [child for child in list_folder(folder, budget) if not child.is_symlink()]
        except (FileNotFoundError, UnreadableFile, OwnerDenied, OSError):
            continue
        budget -= len(children)
        forms: dict[str, dict[int, Path]] = {}
        for child in children:
            number = LAST_NUMBER.search(child.name) if _is_numbered(child.name) else None
            if number is not None:
                forms.setdefault(name_form(child.name), {})[int(number[1])] = child
            if not PASSED_OVER.fullmatch(child.name) and level + 1 < depth and is_folder(child):
                waiting.append((child, level + 1))
        series += [numbered for members in forms.values() if (numbered := _series(folder, members, oldest)) is not None]
    return max(series, key=lambda numbered: numbered.count, default=None)


def _series(folder: Path, members: dict[int, Path], oldest: float) -> Series | None:
    """Return the members of one form as a series where they are new, hold something, and their numbers are evenly spaced."""
    if len(members) < FEWEST_NUMBERS:
        return None
    new = {}
    for number, path in sorted(members.items())[-50:]:
        try:
            changed = _state_changed(path, folder=is_folder(path))
            if changed is not None and changed >= oldest:
                new[number] = path
        except (OSError, InputError, UnreadableFile, OwnerDenied):
            continue
    numbers = list(new)
    if len(numbers) < FEWEST_NUMBERS or len({later - earlier for earlier, later in pairwise(numbers)}) > 1:
        return None
    return Series(folder, new[numbers[0]].name, new[numbers[-1]].name, len(numbers))


_BELOW = re.compile(r"(?:/[^\s'\"`,;:)\]]{0,300})?(?=[\s'\"`,;:)\].]|$)")
_NUMBER = re.compile(r"\d+")
_STEP = re.compile(r"(?:iteration|iter|step|epoch|batch)[ :=_#-]{0,12}(\d{1,18})", re.IGNORECASE)


def saved_into(texts: Iterable[str], folder: str, missing: str) -> str:
    """Return the last line that proves that a job had saved into a folder; empty where none does.

    A save that is only announced proves nothing by itself, for it may be the one that failed: it has to be of another step than
    what is missing, or followed by one of another.

    Args:
        texts: The log before the failure, in order.
        folder: The folder in question.
        missing: The path at or below it that was not there.
    """
    proof, before = "", ("", list[str]())
    missing_parts = _parts(missing.removeprefix(folder))
    for text in (line[:2000] for line in texts):
        at = text.find(folder)
        if at < 0 or FAILED.search(text) or not (tells_of_save(text) or last_saved([text])):
            continue
        below = _BELOW.match(text, at + len(folder))
        if below is None:
            continue  # the name of another folder goes on there
        step = _STEP.search(text[:at])
        parts = [*_parts(below[0]), *([step[1]] if step is not None else [])]
        if before[0] and _differ(before[1], parts):
            proof = before[0]
        if _differ(missing_parts, parts):
            proof = text
        before = (text, parts)
    return head_of(proof.strip(), 200)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part.strip(".")]


def _differ(some: Sequence[str], other_parts: Sequence[str]) -> bool:
    """Tell whether two paths part at names of two steps: neither may be the other one with a number of a process behind it."""
    parted = next((pair for pair in zip(some, other_parts, strict=False) if pair[0] != pair[1]), ("", ""))
    numbers, other_numbers = (frozenset(int(number) for number in _NUMBER.findall(name)) for name in parted)
    return bool(numbers and other_numbers) and not (numbers <= other_numbers or other_numbers <= numbers)
