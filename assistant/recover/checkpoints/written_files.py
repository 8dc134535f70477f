"""Files that a job wrote while it ran and that may hold what it needs or made: what speaks against "it never saved".

Words of a source prove little about a program in C, R or a shell, and nothing about a binary. What lies in its folders does: a
file that changed while the job ran, and that is no log, picture, cache or record of settings, may be a state, or results that a
start from the beginning writes over. Of a Python program that is read whole, a file that it only ever writes, and never asks for,
reads, moves or lists, is a result that it makes again; one that it only ever reads was written by somebody else; and one that it
makes only where there is none, such as a cache, is left as it is by a start.
"""

from __future__ import annotations

import ast
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from enum import Enum, auto
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from assistant.accounts import NOBODY, account_of
from assistant.errors import InputError, OwnerDenied, UnreadableFile
from assistant.records import Job
from assistant.recover.checkpoints.own_folders import PASSED_OVER, WALK_ENTRIES, WALK_FOLDERS, WALK_S
from assistant.recover.job_program import JobProgram, programs_of, saves_nothing
from assistant.recover.shell.folders import CLOCKS_APART, UNRESOLVED
from assistant.recover.source.file_uses import ARCHIVES, LOADERS, OPENS, WRITERS, FileUses, file_uses, is_opener
from assistant.recover.source.paths import COUNTED, Caller
from assistant.recover.source.trainer_source import dotted, syntax_tree
from assistant.untrusted import is_folder, is_regular, list_folder, reading_as, status_of

MOST_NAMED = 12
"""Paths outside of the work folder, named by script and command lines, that are looked at."""
FEWEST_PARTS = 3
"""Parts of such a path, `/` included: above it everything lies."""
FOLDERS_BELOW_NAMED = 3
NAMED_PATH = re.compile(r"(?<![\w./~$}-])/(?:[\w.@+=-]{1,100}/){1,12}[\w.@+=%-]{0,150}")
SAVED_PATH = re.compile(r"(?<![\w./~-])[\w./~@+=-]{0,200}\w\.\w{1,12}\b")
OF_THE_SYSTEM = re.compile(r"/(?:usr|opt|etc|proc|dev|sys|bin|sbin|lib|lib64|run|boot|snap)(?:/|$)")
NO_RESULT = re.compile(
    # logs and metrics by a word of their name, or by their suffix
    r"(?:^|[._-])(?:logs?|metrics?|loss(?:es)?|events?|stderr|stdout|debug|timings?|heartbeat|profile[rd]?|nohup)(?:[._-]|$)"
    r"|\.(?:log|out|err|[oe]\d+|lock|pid|sock|nfs\w*|tfevents\S*|nsys-rep|qdrep|ncu-rep)$|tfevents|trace\.json"
    # sources, which their owner may edit while the job runs, and what is built of them
    r"|\.(?:py|pyc|pyi|sh|bash|sbatch|slurm|c|cc|cpp|cu|cuh|h|hpp|f|f90|f95|r|jl|m|go|rs|java|ipynb|md|rst|o|so|class)$"
    # pictures, and settings as they were at the start
    r"|\.(?:png|jpe?g|gif|svg|pdf|html)$|(?:^|[._-])(?:config|cfg|hparams|args|arguments|params|settings|hostfile|machinefile|nodelist)"
    r"(?:[._-]\w{0,40})?(?:\.(?:json|ya?ml|toml|txt|ini|cfg))?$|^core(?:\.\d+)?$|~$",
    re.IGNORECASE,
)
NO_RESULT_FOLDERS = re.compile(r"\.hydra|logs?|tb|tensorboard|runs/\w*events|\.triton|\.nv|hs_err\w*", re.IGNORECASE)
MARKS = re.compile(r"done|finish|complete|success|ready|\bok\b|stage|step|flag", re.IGNORECASE)
"""Names of empty files that tell what is done."""
TAKES_NO_LOOK = frozenset(
    "print mkdir makedirs Path PurePath join joinpath str repr format info debug warning error log add_argument append "
    "write writelines writerow writerows dumps pack "
    "abspath realpath dirname basename expanduser normpath relpath splitext fspath absolute resolve with_suffix with_name".split()
)
"""Calls that take a path and neither read nor move what lies there."""
PATH_METHODS = frozenset(
    "open exists is_file stat touch unlink rename replace read_text read_bytes write_text write_bytes glob rglob iterdir".split()
)
WRITES_BY_NAME = frozenset(
    "savefig savetxt imwrite imsave to_csv to_json to_parquet to_excel to_pickle to_hdf write_text write_bytes write_table".split()
)
"""Methods that write a whole file anew, by its name."""
READS_BY_NAME = frozenset(
    "read_csv read_parquet read_json read_table read_text read_bytes loadtxt genfromtxt fromfile".split()
    + "exists isfile is_file getsize stat".split()
)
"""Methods that read a whole file, or look at it, and change nothing."""
SHELL_READS = r"(?:\b(?:cat|head|tail|test|source|read|grep|awk|sed|cut|cp|mv|rm|wc|ls|find|stat|jq)\s|\[|<)"
"""Words of a shell by which a script looks at a file, or moves it."""
ARRAY_TASK = re.compile(r"(\d{1,18})_(\d{1,18})")
OTHER_TASK = "8675309421"
"""The index of a task that no array has, to see where the script puts its own."""
WRITE_MODES = frozenset("wx")
READ_MODES = frozenset(("r", "rb", "rt"))


class FileOfAttempt(NamedTuple):
    """A file that a job wrote while it ran, and that nothing shows to be harmless."""

    path: Path
    size_bytes: int
    before_end: timedelta
    """How long before the end of the attempt it was last written."""
    how: str
    """Where it was seen, for people: `in its work folder`."""

    def words(self, folder: Path | None) -> str:
        """Return what it is, for people: `run/state.sav (3 KiB, in its work folder)`."""
        inside = folder is not None and self.path.is_relative_to(folder)
        name = str(self.path.relative_to(folder)) if inside and folder is not None else str(self.path)
        size = f"{self.size_bytes / 1024:,.0f} KiB" if self.size_bytes >= 1024 else f"{self.size_bytes} bytes"
        return f"{name} ({size}, {self.how})"


def unexplained_files(
    job: Job,
    programs: Sequence[JobProgram],
    clock: Callable[[], float] = time.monotonic,
    *,
    claimed: Callable[[Path], bool] = lambda _: False,
) -> list[FileOfAttempt]:
    """Return the files that a job wrote while it ran and that may be a state or results, the last written first.

    Looked at are its work folder, the folders and files outside of it that its script and its programs' command lines name, and
    what its processes were seen to hold open. What another job names as its own, and what lies behind the limits of a walk, does
    not count: that nothing is returned proves nothing by itself.

    Args:
        job: An attempt, with its times; nothing is looked at where these cannot be compared with those of files.
        programs: Those of its script.
        clock: Seconds that pass, for the limit of the walk.
        claimed: Tells whether another job that ran at the same time names a folder.

    Raises:
        Unavailable: The storage did not answer.
    """
    if job.started is None or not job.dated_logs:
        return []
    written: dict[Path, FileOfAttempt] = {}
    owner = account_of(job.account)
    siblings = _Siblings(job, programs)
    with reading_as(job.account):
        for path, how in _candidates(job, programs, clock):
            known_log = path in (job.log, job.error_log) or any(path == Path(pattern) for pattern in job.site_logs)
            if (
                path not in written
                and not known_log
                and not claimed(path.parent)
                and not siblings.name(path)
                and (file := _written(path, job, how, owner.uid if owner is not None and owner.uid != NOBODY else None))
            ):
                written[path] = file
    explained = _Explanations(job, programs) if written else None
    return sorted(
        (file for file in written.values() if explained is None or not explained.covers(file.path)),
        key=lambda file: file.before_end,
    )


def named_save(job: Job, line: str) -> str:
    """Return the file that a line of a log names as saved, where it is there, for people; empty where there is none.

    Args:
        job: With its work folder.
        line: That tells of a save.
    """
    if job.work_dir is None:
        return ""
    with reading_as(job.account):
        for match in SAVED_PATH.finditer(line[:2_000]):
            path = job.work_dir / match[0].removeprefix("./").rstrip(".")
            if is_regular(path) and (file := _written(path, job, "of a form that no reader knows, so not judged", None)):
                return f"{file.words(job.work_dir)} is there"
    return ""


def _candidates(job: Job, programs: Sequence[JobProgram], clock: Callable[[], float]) -> Iterator[tuple[Path, str]]:
    for file in job.processes.files if job.processes is not None else ():
        yield file.path, file.source
    end = clock() + WALK_S
    if job.work_dir is not None:
        yield from ((path, "in its work folder") for path in _files_below(job.work_dir, end, clock, WALK_FOLDERS))
    for path in _named_paths(job, programs):
        if job.work_dir is not None and path.is_relative_to(job.work_dir):
            continue
        try:
            if is_folder(path):
                yield from (
                    (inner, f"in {path}, which its script names") for inner in _files_below(path, end, clock, FOLDERS_BELOW_NAMED)
                )
            else:
                yield path, "which its script names"
        except (OSError, InputError):
            continue


def _named_paths(job: Job, programs: Sequence[JobProgram]) -> list[Path]:
    """Return the paths outside of the system that the script and the command lines of its programs name."""
    texts = [job.spec.script] if job.spec is not None else []
    texts += [" ".join(program.launch.words) for program in programs]
    texts += [option.value for program in programs for option in program.options]
    paths: dict[Path, None] = {}
    for text in texts:
        for match in NAMED_PATH.finditer(text[:200_000]):
            path = Path(match[0].rstrip("/."))
            home = len(path.parts) == FEWEST_PARTS and path.parts[1] == "home"
            if len(path.parts) >= FEWEST_PARTS and not home and not OF_THE_SYSTEM.match(str(path)) and "%" not in path.name:
                paths.setdefault(path)
    return list(paths)[:MOST_NAMED]


def _files_below(top: Path, end: float, clock: Callable[[], float], depth: int) -> Iterator[Path]:
    budget = WALK_ENTRIES
    waiting = [(top, 0)]
    while waiting and clock() < end and budget > 0:
        folder, level = waiting.pop(0)
        try:
            children = list_folder(folder, budget)
        except (UnreadableFile, OwnerDenied, OSError):
            continue
        budget -= len(children)
        for child in children:
            if child.is_symlink() or PASSED_OVER.fullmatch(child.name):
                continue
            if is_folder(child):
                if level + 1 < depth and not NO_RESULT_FOLDERS.fullmatch(child.name):
                    waiting.append((child, level + 1))
            else:
                yield child


def _written(path: Path, job: Job, how: str, uid: int | None) -> FileOfAttempt | None:
    """Return a file as written by a job while it ran; None where its name, its owner or its times say that it was not."""
    if NO_RESULT.search(path.name) or NO_RESULT_FOLDERS.fullmatch(path.parent.name) or path.suffix == ".log":
        return None
    try:
        if not is_regular(path):
            return None
        status = status_of(path)
    except (OSError, InputError):
        return None
    if uid is not None and status.st_uid != uid:
        return None
    if not status.st_size and not MARKS.search(path.name):
        return None
    ended = job.ended if job.ended is not None and job.state.ended else None
    if job.started is None or status.st_mtime < job.started.timestamp():
        return None
    if ended is not None and status.st_mtime > (ended + CLOCKS_APART).timestamp():
        return None
    before_end = timedelta(seconds=max(0.0, ended.timestamp() - status.st_mtime)) if ended is not None else timedelta()
    return FileOfAttempt(path, status.st_size, before_end, how)


class _Siblings:
    """Says which files the script gives to other tasks of the same array, by their index, and not to this one."""

    def __init__(self, job: Job, programs: Sequence[JobProgram]) -> None:
        task = ARRAY_TASK.fullmatch(job.id)
        self._task_paths = {path for _, path in _arguments(programs)}
        self._shapes: list[re.Pattern[str]] = []
        if task is not None:
            sibling_programs = programs_of(replace(job, id=f"{task[1]}_{OTHER_TASK}"))
            paths = sorted({path for word, path in _arguments(sibling_programs) if OTHER_TASK in word})
            self._shapes = [re.compile(r"\d+".join(map(re.escape, path.split(OTHER_TASK)))) for path in paths]

    def name(self, path: Path) -> bool:
        """Tell whether a file, or a folder in which it lies, is one that the script names for another task."""
        places = [str(place) for place in (path, *path.parents)]
        return self._task_paths.isdisjoint(places) and any(shape.fullmatch(place) for shape in self._shapes for place in places)


def _arguments(programs: Sequence[JobProgram]) -> Iterator[tuple[str, str]]:
    """Yield what programs are given on their command lines, each as it stands there and as an absolute path."""
    for program in programs:
        texts = [*program.launch.words[1:], *(option.value for option in program.options)]
        for text in [part for word in texts for part in (word, word.partition("=")[2]) if part]:
            if UNRESOLVED not in text and (path := program.launch.outside(text)) is not None:
                yield text, str(path)


class Naming(Enum):
    """Whether a call of a program names a file."""

    NONE = auto()
    POSSIBLE = auto()
    """By a path of which nothing is known."""
    CERTAIN = auto()


class _Explanations:
    """Says of which files programs that are read whole only ever write them anew, or only ever read them."""

    def __init__(self, job: Job, programs: Sequence[JobProgram]) -> None:
        self._script = job.spec.script if job.spec is not None else ""
        is_read = bool(programs) and all(
            program.sources
            and all(source.parsed for source in program.sources)
            and not program.unread_behind
            and not program.starts_others
            for program in programs
        )
        is_read = is_read and saves_nothing(job, programs=programs)
        self._uses = [(program, file_uses(program)) for program in programs] if is_read else []

    def covers(self, path: Path) -> bool:
        """Tell whether nothing of a file is lost by a start: the programs only write it, and whole, or only read it."""
        if not self._uses or re.search(rf"{SHELL_READS}[^\n]{{0,300}}{re.escape(path.name)}", self._script):
            return False
        writes = reads = makes = possible_reads = 0
        for program, uses in self._uses:
            for caller in uses.calls:
                method = dotted(caller.node.func).rpartition(".")[2]
                naming = self._names(program, uses, caller, path) if method not in TAKES_NO_LOOK else Naming.NONE
                if naming is Naming.NONE:
                    continue
                if naming is Naming.CERTAIN and (_creates(uses, caller) or self._is_absent(program, uses, caller, path)):
                    makes += 1
                elif _writes_whole(uses, caller):
                    writes += 1
                elif _only_reads(uses, caller):
                    reads += naming is Naming.CERTAIN
                    possible_reads += naming is Naming.POSSIBLE
                else:
                    return False
        if makes and not writes:
            return True
        if writes:
            return not (reads or possible_reads or makes)
        return reads > 0 and self._is_given_alone(path)

    def _is_absent(self, program: JobProgram, uses: FileUses, caller: Caller, path: Path) -> bool:
        """Tell whether a call that writes a file is reached only where the file is not there: `if not p.exists(): save(p)`."""
        if not _writes_whole(uses, caller):
            return False
        tests = [
            test
            for test, statements in _absent_branches(syntax_tree(caller.source.text))
            if any(node is caller.node for statement in statements for node in ast.walk(statement))
        ]
        return any(
            self._names(program, uses, look, path) is Naming.CERTAIN
            for look in uses.calls
            if look.source is caller.source and any(look.node is test for test in tests)
        )

    def _is_given_alone(self, path: Path) -> bool:
        """Tell whether the script names a file only as an argument of the programs that are read."""
        mentions = len(re.findall(re.escape(path.name), self._script))
        words = sum(word.count(path.name) for program, _ in self._uses for word in program.launch.words)
        in_variable = re.search(rf"^\s*(?:export\s+)?\w+=\S*{re.escape(path.name)}", self._script, re.MULTILINE)
        written = re.search(rf">[^\n]{{0,300}}{re.escape(path.name)}", self._script)
        return mentions <= words and in_variable is None and written is None

    def _names(self, program: JobProgram, uses: FileUses, caller: Caller, path: Path) -> Naming:
        if uses.reader.function_of(caller) is not None:
            return Naming.NONE  # what it does with its arguments is told by the calls inside
        of_path = isinstance(caller.node.func, ast.Attribute) and caller.node.func.attr in PATH_METHODS
        holder = [caller.node.func.value] if of_path and isinstance(caller.node.func, ast.Attribute) else []
        nodes: list[ast.expr] = [*caller.node.args, *(item.value for item in caller.node.keywords), *holder]
        for node in nodes:
            handle = (id(caller.source), id(caller.scope), node.id) if isinstance(node, ast.Name) else None
            if is_opener(node) or handle in uses.handles:
                continue  # an opened file: the call that opens it names it
            for text in uses.reader.texts(caller.source, node, caller.scope):
                if not text.strip(UNRESOLVED + COUNTED):
                    # a path of which nothing is known may be any file: only where a call opens or loads by it does that matter
                    if node is not None and _takes_path(caller) and node in caller.node.args[:1]:
                        return Naming.POSSIBLE
                    continue
                path_text = text if UNRESOLVED in text else str(program.launch.outside(text) or text)
                pattern = re.sub(f"[{UNRESOLVED}{COUNTED}]+", "*", path_text.removeprefix("./"))
                if fnmatchcase(str(path), pattern if pattern.startswith("/") else f"*/{pattern}"):
                    return Naming.CERTAIN
        return Naming.NONE


def _absent_branches(tree: ast.AST) -> Iterator[tuple[ast.Call, list[ast.stmt]]]:
    """Yield the calls that ask whether a file is there, each with the statements that are run only where it is not."""
    for node in ast.walk(tree):
        for block in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if not isinstance(block, list):
                continue
            for place, statement in enumerate(block):
                if not isinstance(statement, ast.If):
                    continue
                negated = isinstance(statement.test, ast.UnaryOp) and isinstance(statement.test.op, ast.Not)
                look = statement.test.operand if isinstance(statement.test, ast.UnaryOp) else statement.test
                if isinstance(look, ast.Call) and dotted(look.func).rpartition(".")[2] in ("exists", "isfile", "is_file"):
                    leaves = isinstance(statement.body[-1], ast.Return | ast.Continue | ast.Raise)
                    yield look, statement.body if negated else [*statement.orelse, *(block[place + 1 :] if leaves else [])]


def _creates(uses: FileUses, caller: Caller) -> bool:
    """Tell whether a call makes a file and fails where there is one."""
    name = dotted(caller.node.func)
    if name == "os.open":
        return "O_EXCL" in ast.unparse(caller.node)
    return (name in OPENS or name.rpartition(".")[2] == "open") and uses.mode_of(caller).startswith("x")


def _takes_path(caller: Caller) -> bool:
    name = dotted(caller.node.func)
    return name in OPENS | ARCHIVES or name.rpartition(".")[2] in (
        "load",
        "read_csv",
        "read_text",
        "read_bytes",
        "loadtxt",
        "listdir",
        "glob",
    )


def _writes_whole(uses: FileUses, caller: Caller) -> bool:
    """Tell whether a call writes a file anew, by its name."""
    name = dotted(caller.node.func)
    method = PurePosixPath(name.replace(".", "/")).name
    if name in OPENS | ARCHIVES or method == "open":
        return set(uses.mode_of(caller)[:1]) <= WRITE_MODES and bool(uses.mode_of(caller))
    if method in WRITES_BY_NAME:
        mode = next((item.value for item in caller.node.keywords if item.arg == "mode"), None)
        return mode is None or (isinstance(mode, ast.Constant) and mode.value == "w")
    return name in WRITERS


def _only_reads(uses: FileUses, caller: Caller) -> bool:
    """Tell whether a call reads a file that it names, or looks at it, and cannot change it."""
    name = dotted(caller.node.func)
    method = PurePosixPath(name.replace(".", "/")).name
    if name in OPENS or method in ("open", "memmap") or name in ARCHIVES:
        place = 0 if method == "open" and name not in OPENS | ARCHIVES else 1
        has_mode = len(caller.node.args) > place or any(item.arg == "mode" for item in caller.node.keywords)
        if has_mode and method == "memmap":
            return any(item.arg == "mode" and ast.unparse(item.value) == "'r'" for item in caller.node.keywords)
        return uses.mode_of(caller) in READ_MODES if has_mode else method == "open"
    mapped = next((item.value for item in caller.node.keywords if item.arg == "mmap_mode"), None)
    if mapped is not None and ast.unparse(mapped) not in ("None", "'r'", "'c'"):
        return False
    return name in LOADERS or method in READS_BY_NAME
