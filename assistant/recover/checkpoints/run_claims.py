"""Which of the folders that several runs write side by side is a job's own, by what the logs of these runs name.

A task of an array, or a job of a sweep, often says in one line where it saves (`task 1: … -> runs/t01_lr0.1`), and its checkpoints
have the same name in each folder. A folder is a job's own where its log, name or arguments name it and no log of another attempt
has it for itself. Logs of other attempts are those that lie beside its own, have its name but for the numbers of the job, and were
written since it began.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from assistant.errors import InputError
from assistant.logs.attempt import STREAMS
from assistant.records import Job
from assistant.recover.checkpoints.names import name_form
from assistant.recover.joblog import logs_of
from assistant.recover.shell.folders import CLOCKS_APART
from assistant.untrusted import is_folder, list_folder, read_end_from, read_start, status_of

PART_BYTES = 64 << 10
"""Of a log that are read from its beginning, and from its end."""
MOST_LOGS = 256
"""Logs of other attempts that are read."""
MOST_LISTED = 20_000
MOST_CHARACTERS = 4_000
"""Of a line: a longer one is no sentence about a folder."""
FEWEST_CHARACTERS = 4
"""Of the name of a folder that counts without the folder above it; shorter ones are words and numbers of any log."""
LOADS = re.compile(
    r"\b(?:load\w*|init\w*|warm\w*|start\w*|fine.?tun\w*)\b.{0,80}\bfrom\b|\bloading\b|pre-?trained|teacher|baseline|\bcompar|reference",
    re.IGNORECASE,
)
"""Lines about what a run reads: another run's folder may be named there."""
NEVER = re.compile(r"(?!)")
_ARRAY_TASK = re.compile(r"(\d{1,18})_(\d{1,18})")
_TOKEN = r"[^\s'\"`,;:()\[\]{}<>|]{1,255}"


@dataclass(frozen=True, slots=True)
class RunClaims:
    """Which folders of runs are whose, as far as logs name them."""

    own: frozenset[Path]
    """Those that the job names, and that no other attempt has for itself."""
    foreign: frozenset[Path]
    """Those that are the only one of them in the log of another attempt, and not named by the job alone."""
    silent_folder: Path | None
    """A folder beside them that the job names, and that holds none of the new checkpoints; None where it names none."""


def run_claims(job: Job, folders: Collection[Path], texts: Sequence[str]) -> RunClaims:
    """Return which folders of runs are a job's own, and which are those of other attempts.

    Args:
        job: With its logs, where it has any.
        folders: Of one run each; none lies in another.
        texts: Lines of its log, in order.

    Raises:
        Unavailable: The storage did not answer.
    """
    top = Path(os.path.commonpath(folders)) if len(folders) > 1 else next(iter(folders)).parent
    if top in folders:
        return RunClaims(frozenset(), frozenset(), None)
    patterns = {folder: _pattern(top, folder) for folder in folders}
    own_lines = [*_lines_of_job(job), *(text for text in texts if _tells(text))]
    own = {folder for folder, pattern in patterns.items() if any(pattern.search(line) for line in own_lines)}
    foreign: set[Path] = set()
    for lines in _other_logs(job, same_array=len(folders) == 1):
        claims = {folder for folder, pattern in patterns.items() if any(pattern.search(line) for line in lines)}
        foreign |= claims if len(claims) == 1 else set()
    return RunClaims(frozenset(own - foreign), frozenset(foreign), _silent_folder(top, folders, own_lines))


def _pattern(top: Path, folder: Path) -> re.Pattern[str]:
    """Return what names a folder in a line: its path from the folder above all of them on, or its name where that says enough."""
    name = str(folder.relative_to(top))
    end = r"(?![\w-]|\.\w)"
    forms = [rf"(?<![\w.-]){re.escape(top.name)}/{re.escape(name)}{end}"] if top.name else []
    if len(name) >= FEWEST_CHARACTERS and re.search(r"\d", name) and re.search(r"[^\W\d_]", name):
        forms.append(rf"(?<![\w/+-])(?<!\w\.)(?:\./)?{re.escape(name)}{end}")
    return re.compile("|".join(forms)) if forms else NEVER


def _tells(text: str) -> bool:
    return len(text) <= MOST_CHARACTERS and LOADS.search(text) is None


def _lines_of_job(job: Job) -> Iterator[str]:
    """Yield what a job was given, and the lines at the beginning and the end of its logs."""
    if job.spec is not None:
        yield from job.spec.arguments
    if not _ARRAY_TASK.fullmatch(job.id):
        yield job.name
    for file in logs_of(job).readable:
        yield from _lines_of(file.path, begin=file.begin)


def _lines_of(path: Path, begin: int = 0) -> list[str]:
    """Return the lines at the beginning and at the end of a log that tell of folders; none where it cannot be read."""
    try:
        start = read_start(path, begin + PART_BYTES)[begin:] if begin < PART_BYTES else b""
        raw = start + b"\n" + read_end_from(path, begin, PART_BYTES).raw
    except (OSError, InputError):
        return []
    return [line for line in raw.decode("utf-8", "replace").splitlines() if _tells(line)]


def _other_logs(job: Job, *, same_array: bool) -> Iterator[list[str]]:
    """Yield the lines of each log of another attempt that was written since a job began.

    Args:
        job: Its own logs, and those of other attempts of the same task of an array, are left out.
        same_array: Whether only tasks of its own array count.
    """
    if job.started is None:
        return
    own = [file.path for file in logs_of(job).readable if file.origin in STREAMS or file.rank is not None]
    read, oldest = set(own), (job.started - CLOCKS_APART).timestamp()
    for log in own:
        for path in _logs_beside(job, log, same_array=same_array):
            try:
                if path in read or len(read) > MOST_LOGS or status_of(path).st_mtime < oldest:
                    continue
            except (OSError, InputError):
                continue
            read.add(path)
            yield _lines_of(path)


def _logs_beside(job: Job, log: Path, *, same_array: bool) -> Iterator[Path]:
    """Yield the files beside a log that have its name but for the numbers of the job in it."""
    task = _ARRAY_TASK.fullmatch(job.id)
    array, index = (task[1], task[2]) if task is not None else ("", "")
    numbers = {number for number in (array, index, job.raw_id, job.id) if number.isdecimal()}
    parts = re.split(r"(\d+)", log.name)
    places = [place for place in range(1, len(parts), 2) if _number(parts[place]) in {_number(number) for number in numbers}]
    if not places or (same_array and not array):
        return
    shape = re.compile("".join(r"(\d+)" if place in places else re.escape(part) for place, part in enumerate(parts)))
    try:
        names = [path for path in list_folder(log.parent, MOST_LISTED) if path != log]
    except (OSError, InputError):
        return
    for path in names:
        match = shape.fullmatch(path.name)
        if match is None or (same_array and _number(array) not in map(_number, match.groups())):
            continue
        of_task = task is not None and len(places) > 1 and _number(match.groups()[-1]) == _number(index)
        if not of_task:
            yield path


def _number(digits: str) -> int:
    return int(digits[:18])


def _silent_folder(top: Path, folders: Collection[Path], lines: Iterable[str]) -> Path | None:
    """Return the folder beside those of runs that lines name in their way, where it is none of them; None for none or several."""
    depths = {len(folder.relative_to(top).parts) for folder in folders}
    forms = {name_form(folder.name) for folder in folders}
    if len(depths) != 1 or not top.name:
        return None
    pattern = re.compile(rf"(?<![\w.-]){re.escape(top.name)}/({_TOKEN})")
    names = {"/".join(match[1].rstrip(".").split("/")[: min(depths)]) for line in lines for match in pattern.finditer(line)}
    siblings = {top / name for name in names if name and ".." not in name.split("/")} - set(folders)
    siblings = {folder for folder in siblings if name_form(folder.name) in forms or is_folder(folder)}
    return siblings.pop() if len(siblings) == 1 else None
