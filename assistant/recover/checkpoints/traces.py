"""What log and work folder of a job show of its saves where no layout and no source does: names in lines of any language, series.

Words of a line are not understood: a line counts for the path in it, where that is there, has a number, and was written while the
job ran. A series that nothing speaks of is only likely: it is told, and nothing is done by it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from assistant.errors import InputError, OwnerDenied, UnreadableFile
from assistant.records import Job
from assistant.recover.checkpoints.layout import LAST_NUMBER, step_of_form
from assistant.recover.checkpoints.names import name_form
from assistant.recover.checkpoints.place import FAILED, Place
from assistant.recover.checkpoints.walks import PASSED_OVER, WALK_ENTRIES, WALK_FOLDERS, WALK_S
from assistant.recover.shell.folders import CLOCKS_APART, normal
from assistant.untrusted import is_folder, is_regular, list_folder, status_of

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
    return list(places.values())


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


def _is_written(path: Path, job: Job) -> bool:
    """Tell whether a file or folder that may hold a state was written while a job ran."""
    try:
        changed = _state_changed(path, folder=is_folder(path))
    except (OSError, InputError, UnreadableFile, OwnerDenied):
        return False
    if changed is None:
        return False
    end = (job.ended + CLOCKS_APART).timestamp() if job.ended is not None and job.state.ended else float("inf")
    return job.started is not None and (job.started - CLOCKS_APART).timestamp() <= changed <= end


def _state_changed(path: Path, *, folder: bool) -> float | None:
    """Return when the newest file of a state was written; None where nothing there may be one."""
    files = [child for child in list_folder(path, 200) if not child.is_symlink() and is_regular(child)] if folder else [path]
    stats = [status_of(file) for file in files if not file.name.endswith(NO_STATE)]
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
