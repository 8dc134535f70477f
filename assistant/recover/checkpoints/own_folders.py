"""Which folder of new checkpoints belongs to a job, where several runs write side by side.

A walk lists the checkpoints that changed since a job began: bounded in seconds, entries and depth, past all links.

A task of an array, or a job of a sweep, often says in one line where it saves (`task 1: … -> runs/t01_lr0.1`), and its checkpoints
have the same name in each folder. A folder belongs to a job where its log, name or arguments name it and no log of another attempt
has it for itself. Logs of other attempts are those that lie beside its own, have its name but for the numbers of the job, and were
written since it began.

Names of sibling folders, and the clock, count where they and the tasks of the array fit one to one: folders of one form have one
number each, those of the tasks that wrote them.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from assistant.errors import InputError, OwnerDenied, ToolError, UnreadableFile
from assistant.logs.attempt import STREAMS
from assistant.records import Job
from assistant.recover.checkpoints.layout import could_be_checkpoint, entries
from assistant.recover.checkpoints.names import OUR_FOLDERS, name_form
from assistant.recover.joblog import logs_of
from assistant.recover.shell.folders import CLOCKS_APART
from assistant.untrusted import is_folder, list_folder, read_end_from, read_start, status_of

WALK_S = 10.0
"""How long folders are walked through."""
WALK_ENTRIES = 40_000
WALK_FOLDERS = 6
"""Folders below one another."""
PASSED_OVER = re.compile(
    r"\.(?:git|hg|svn|cache|ipynb_checkpoints|venv|conda|tox|mypy_cache|pytest_cache|Trash)|__pycache__|node_modules|site-packages|"
    rf"venv|env|conda|miniconda3?|anaconda3?|wandb|mlruns|\.?snapshot|{'|'.join(OUR_FOLDERS)}"
)
"""Folders that hold no checkpoints of a job, or very many files."""


@dataclass(frozen=True, slots=True)
class Walk:
    """What a walk through folders found."""

    folders: tuple[Path, ...]
    """Those that hold checkpoints changed since the job began, the last changed first."""
    complete: bool
    """Whether all was seen."""
    changed: Mapping[Path, float] = field(default_factory=dict)
    """When the newest checkpoint of each was changed, in seconds of the file server's clock."""


def new_checkpoints(
    top: Path | None,
    since: datetime | None,
    clock: Callable[[], float] = time.monotonic,
    *,
    depth: int = WALK_FOLDERS,
    forms: Collection[str] = (),
) -> Walk:
    """Return the folders below a folder that hold checkpoints changed since a time.

    Args:
        top: Where to begin; None for nowhere.
        since: The time.
        clock: Seconds that pass.
        depth: Folders below one another that are looked into.
        forms: Names that the program is known to give its checkpoints.
    """
    if top is None or since is None:
        return Walk((), False)
    end, budget, complete = clock() + WALK_S, WALK_ENTRIES, True
    newest: dict[Path, float] = {}
    waiting = [(top, 0)]
    oldest = (since - CLOCKS_APART).timestamp()
    while waiting:
        folder, level = waiting.pop(0)
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
            if could_be_checkpoint(child.name, folder=inner, forms=forms) and (changed := changed_at(child, inner)) >= oldest:
                newest[folder] = max(changed, newest.get(folder, 0.0))
            elif inner and level + 1 < depth:
                waiting.append((child, level + 1))
            elif inner:
                complete = False
    holders = [folder for folder in sorted(newest, key=lambda folder: -newest[folder]) if _holds(folder, forms)]
    return Walk(tuple(holders), complete, newest)


def changed_at(path: Path, folder: bool) -> float:
    """Return when a file, or what lies in a folder, was last changed, in seconds of its server's clock; 0 where nobody knows."""
    try:
        times = [status_of(path).st_mtime]
        if folder:
            times += [status_of(inner).st_mtime for inner in list_folder(path, 2000)[:50]]
        return max(times)
    except (OSError, InputError):
        return 0.0


def _holds(folder: Path, forms: Collection[str]) -> bool:
    try:
        return bool(entries(folder, depth=0, forms=forms))
    except (OSError, InputError):
        return False


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


MOST_SIBLINGS = 5_000
MOST_DIGITS = 18
ENDS_WITHIN = timedelta(seconds=5)
"""Between the end of a task and its log's last line, where both are of one moment by clocks that agree."""
TEAR_DOWN_S = 10.0
"""For which a process may write behind the end of its task."""
_TASK = re.compile(rf"(\d{{1,{MOST_DIGITS}}})_(\d{{1,{MOST_DIGITS}}})")
_CHANGED = re.compile(
    r"\$?\(\([^)\n]{0,200}ARRAY_TASK_ID|\[[^\]\n]{0,80}ARRAY_TASK_ID|ARRAY_TASK_ID[^\n]{0,8}?\s?[-+*/%]\s?\d"
    r"|ARRAY_TASK_ID\W{0,4}[})\]]{0,4}\s{0,4}[-+*/%]{1,2}\s{0,4}\d|\bsed\b[^\n]{0,80}ARRAY_TASK_ID|NR\s?==[^\n]{0,80}ARRAY_TASK_ID"
)
"""Lines that make another number, or a word of a list, of the task's."""


def folder_of_task(job: Job, folders: Collection[Path]) -> Path | None:
    """Return the folder that is a task's by the names of it and its siblings, whether it is there or not among some; else None.

    Args:
        job: A task of an array, with its log.
        folders: Of runs, as they were seen.

    Raises:
        Unavailable: The storage did not answer.
    """
    task = _TASK.fullmatch(job.id)
    tops, forms = {folder.parent for folder in folders}, {name_form(folder.name) for folder in folders}
    script = job.spec.script if job.spec is not None else ""
    if task is None or len(tops) != 1 or len(forms) != 1 or job.spec is None or _CHANGED.search(script):
        return None
    try:
        siblings = [path for path in list_folder(tops.pop(), MOST_SIBLINGS) if name_form(path.name) in forms and is_folder(path)]
    except (OSError, InputError):
        return None
    by_number: dict[int, Path] = {}
    for path in siblings:
        digits = re.findall(r"\d+", path.name)
        if len(digits) != 1 or len(digits[0]) > MOST_DIGITS or int(digits[0]) in by_number:
            return None
        by_number[int(digits[0])] = path
    if len(by_number) < 2 or set(by_number) != _logged_tasks(job, int(task[1]), int(task[2])):
        return None
    return by_number.get(int(task[2]))


def _logged_tasks(job: Job, array: int, index: int) -> set[int]:
    """Return the numbers of the tasks of a job's array that wrote logs beside its own; empty where the names do not tell them."""
    for file in logs_of(job).readable:
        parts = re.split(r"(\d+)", file.path.name)
        numbers = {place: int(parts[place]) for place in range(1, len(parts), 2) if len(parts[place]) <= MOST_DIGITS}
        own = [place for place, number in numbers.items() if number == index]
        arrays = [place for place, number in numbers.items() if number == array]
        if array == index or len(own) != 1 or not arrays:
            continue  # without the array's number the logs may be those of another submission
        shape = re.compile("".join(r"(\d+)" if place == own[0] else re.escape(part) for place, part in enumerate(parts)))
        try:
            names = [path.name for path in list_folder(file.path.parent, MOST_SIBLINGS)]
        except (OSError, InputError):
            return set()
        return {int(match[1][:MOST_DIGITS]) for name in names if (match := shape.fullmatch(name)) is not None}
    return set()


def late_margin_s(job: Job, folder: Path) -> float:
    """Return for how long behind its end, in seconds, a file may be a task's own, as the clocks of scheduler and file server go.

    Where the task's log, on the same file system, was last written at its end by both clocks, these agree.
    """
    if job.ended is None or _TASK.fullmatch(job.id) is None or job.log is None:
        return CLOCKS_APART.total_seconds()
    try:
        log, target = status_of(job.log), status_of(folder)
    except (OSError, InputError):
        return CLOCKS_APART.total_seconds()
    apart_s = abs(log.st_mtime - job.ended.timestamp())
    if log.st_dev != target.st_dev or apart_s > ENDS_WITHIN.total_seconds():
        return CLOCKS_APART.total_seconds()
    return TEAR_DOWN_S + 2 * apart_s


MOST_SHOWN = 3
"""Folders that an error names."""
PART_OF_RUN = re.compile(
    r"check_?points?|ckpts?|models?|weights?|saves?|states?|best|last|latest|final|top_?\d*|ema|rank[-_]?\d+|(?:epoch|step|iter)[-_=]?\d+",
    re.IGNORECASE,
)
"""Folders below the one of a run, of which one run may have several."""


ARRAY_TASK = re.compile(r"\d{1,18}_\d{1,18}")


class SeveralRuns(ToolError):
    """Checkpoints of several runs were found where those of one were looked for."""


class OtherRuns(ToolError):
    """All checkpoints that were found where a job saves are those of other runs, by their own logs."""

    def __init__(
        self, message: str, folders: Collection[Path], silent_folder: Path | None, how: str = "which its log names"
    ) -> None:
        super().__init__(message)
        self.folders, self.silent_folder, self.how = tuple(folders), silent_folder, how


def own_folder(walk: Walk, job: Job, texts: Sequence[str], forms: Collection[str] = ()) -> Path | None:
    """Return the folder of new checkpoints that is this job's, None where there is none: several runs may write side by side.

    Folders of one run (`best` and `last` beside each other) count as one, of which the last changed is taken. Of several runs
    those that were still written after the job had ended are out, and the others where its log names the newest checkpoint of some,
    or one folder, and no log of another attempt has that for itself.

    Raises:
        SeveralRuns: More than one is left.
        OtherRuns: Each is another run's.
    """
    end = job.ended.timestamp() if job.ended is not None and job.state.ended else float("inf")
    own = [folder for folder in walk.folders if walk.changed.get(folder, 0.0) <= end + late_margin_s(job, folder)]
    if len({_run_folder(folder) for folder in own}) > 1:
        own = [folder for folder in own if _named_in(folder, texts, forms)] or own
    runs, run_folders = {_run_folder(folder) for folder in own}, {_run_folder(folder) for folder in walk.folders}
    if not run_folders:
        return None
    claims = run_claims(job, run_folders, texts)
    if walk.complete and run_folders <= claims.foreign:
        sentence = f"the checkpoints written since job {job.id} began are other runs', by their logs: in {_listed(run_folders)}"
        raise OtherRuns(sentence, run_folders, claims.silent_folder)
    task_folder = folder_of_task(job, run_folders)
    if task_folder is not None and task_folder not in claims.foreign and claims.own <= {task_folder}:
        if walk.complete and task_folder not in run_folders:
            sentence = f"the checkpoints written since job {job.id} began lie in those of other tasks: in {_listed(run_folders)}"
            raise OtherRuns(sentence, run_folders, task_folder, "by its name beside those of the other tasks")
        own = [folder for folder in own if _run_folder(folder) == task_folder]
        if own:
            return own[0]
    if walk.complete and not own and task_folder is None and ARRAY_TASK.fullmatch(job.id):
        sentence = f"the checkpoints written since job {job.id} began were written after it had ended: in {_listed(run_folders)}"
        raise OtherRuns(sentence, run_folders, None)
    own = [folder for folder in own if _run_folder(folder) not in claims.foreign]
    runs -= claims.foreign
    if len(runs) > 1 or (claims.own and not runs & claims.own):
        if len(runs & claims.own) != 1:
            raise SeveralRuns(f"checkpoints of several runs were written since job {job.id} began: in {_listed(run_folders)}")
        own = [folder for folder in own if _run_folder(folder) in claims.own]
    return own[0] if own else None


def _listed(folders: Collection[Path]) -> str:
    return ", ".join(sorted(map(str, folders))[:MOST_SHOWN]) + (", …" if len(folders) > MOST_SHOWN else "")


def _run_folder(folder: Path) -> Path:
    """Return the folder of a run, without the parts below it that one run has several of."""
    while PART_OF_RUN.fullmatch(folder.name) and folder.name:
        folder = folder.parent
    return folder


def _named_in(folder: Path, texts: Sequence[str], forms: Collection[str]) -> bool:
    """Tell whether a log names the newest checkpoint of a folder: the other runs of a script are at other steps."""
    newest = re.compile(rf"(?<![\w.]){re.escape(entries(folder, depth=0, forms=forms)[-1].path.name)}(?!\d)")
    return any(newest.search(text) for text in texts)
