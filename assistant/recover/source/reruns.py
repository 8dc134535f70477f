"""What a second run of a program repeats: the work that it passes over, and the files that it writes again.

A program that counts what is done and passes over it repeats nothing and loses nothing; logs and metrics may be appended to by any
run. Anything else that a rerun from the beginning would append to a second time, or empty, speaks against it.
"""

from __future__ import annotations

import ast
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from assistant.errors import InputError
from assistant.records import Job
from assistant.recover.job_program import JobProgram
from assistant.recover.joblog import log_lines
from assistant.recover.source.continued_work import continued_work, deciding_reads, outside_path, passes_over
from assistant.recover.source.file_uses import ARCHIVES, OPENS, FileUses, argument_of, file_uses
from assistant.recover.source.load_calls import PRESENT
from assistant.recover.source.newest_choice import LISTS
from assistant.recover.source.paths import Caller
from assistant.recover.source.trainer_source import TrainerSource, dotted, syntax_tree
from assistant.untrusted import LOOK_S, list_folder, reading_as, status_of, within

WRITES = re.compile(
    r"write\w*|save\w*|dump\w*|rename|replace|move|copy\w*|to_(?:csv|json|parquet)|savez\w*|tofile|symlink|run|check_call|call|Popen|main"
)
"""Calls that leave a piece of work behind."""
LISTINGS = LISTS | frozenset(("walk",))


def skips_what_is_there(programs: Sequence[JobProgram]) -> str:
    """Return the line by which a program passes over pieces that are there: `make_shards.py:16`; empty where none does."""
    for program in programs:
        for source in program.sources:
            line = next(_skips(source), None) if source.parsed else None
            if line is not None:
                return f"{PurePosixPath(source.path).name}:{line}"
    return ""


def _skips(source: TrainerSource) -> Iterator[int]:
    tree = syntax_tree(source.text)
    listed = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and any(_method(inner) in LISTINGS for inner in ast.walk(node.value))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for loop in (node for node in ast.walk(tree) if isinstance(node, ast.For)):
        own = {inner.id for inner in ast.walk(loop.target) if isinstance(inner, ast.Name)}
        for place, statement in enumerate(loop.body):
            own |= _made_of(statement, own)
            if not isinstance(statement, ast.If) or not _is_of(statement.test, own):
                continue
            present = _is_present(statement.test, listed)
            leaves = bool(statement.body) and isinstance(statement.body[-1], ast.Continue)
            passed = present is True and leaves and _writes(loop.body[place + 1 :])
            only_missing = present is False and not statement.orelse and _writes(statement.body)
            if passed or only_missing:
                yield statement.lineno


def marks_what_is_there(programs: Sequence[JobProgram]) -> str:
    """Return the line by which a program marks pieces that are there and starts only the others: `flow.py:61`; empty for none.

    `if exists(t["out"]): t["state"] = "done"`, and a start below `if t["state"] == "wait"`.
    """
    for program in programs:
        for source in program.sources:
            line = next(_marks(source), None) if source.parsed else None
            if line is not None:
                return f"{PurePosixPath(source.path).name}:{line}"
    return ""


def _marks(source: TrainerSource) -> Iterator[int]:
    tree = syntax_tree(source.text)
    guards = [node for node in ast.walk(tree) if isinstance(node, ast.If) and _writes(node.body)]
    awaited = {key for guard in guards for key in _compared_keys(guard.test)}
    for loop in (node for node in ast.walk(tree) if isinstance(node, ast.For)):
        own = {inner.id for inner in ast.walk(loop.target) if isinstance(inner, ast.Name)}
        for statement in loop.body:
            if (
                not isinstance(statement, ast.If)
                or not _is_of(statement.test, own)
                or _is_present(statement.test, set()) is not True
            ):
                continue
            marks = {(key, value) for inner in statement.body for key, value in _set_keys(inner, own)}
            if any(key == awaited_key and value != awaited_value for key, value in marks for awaited_key, awaited_value in awaited):
                yield statement.lineno


def _set_keys(statement: ast.stmt, names: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the keys or attributes of some names that a statement sets to a constant, with that."""
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
        for target in statement.targets:
            if _is_of(target, names) and (key := _key_of(target)):
                yield key, repr(statement.value.value)


def _compared_keys(test: ast.expr) -> Iterator[tuple[str, str]]:
    """Yield the keys or attributes that a test holds against a constant for equality, where all of the test has to hold."""
    for part in test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]:
        if not isinstance(part, ast.Compare) or len(part.ops) != 1 or not isinstance(part.ops[0], ast.Eq):
            continue
        value = part.comparators[0]
        if isinstance(value, ast.Constant) and (key := _key_of(part.left)):
            yield key, repr(value.value)


def _key_of(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    return node.attr if isinstance(node, ast.Attribute) else ""


def _made_of(statement: ast.stmt, names: set[str]) -> set[str]:
    """Return the names that a statement makes of others."""
    if not isinstance(statement, ast.Assign) or not _is_of(statement.value, names):
        return set()
    return {target.id for target in statement.targets if isinstance(target, ast.Name)}


def _is_of(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(inner, ast.Name) and inner.id in names for inner in ast.walk(node))


def _is_present(test: ast.expr, listed: set[str]) -> bool | None:
    """Tell whether a test holds where a piece is there, or where it is not; None of any other test."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _is_present(test.operand, listed)
        return None if inner is None else not inner
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.In | ast.NotIn):
        of_listing = isinstance(test.comparators[0], ast.Name) and test.comparators[0].id in listed
        return isinstance(test.ops[0], ast.In) if of_listing else None
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return next((answer for value in test.values if (answer := _is_present(value, listed)) is not None), None)
    return True if isinstance(test, ast.Call) and PRESENT.search(dotted(test.func)) else None


def _method(node: ast.AST) -> str:
    return dotted(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""


def _writes(body: Sequence[ast.stmt]) -> bool:
    for node in (inner for statement in body for inner in ast.walk(statement)):
        name = _method(node)
        if WRITES.fullmatch(name):
            return True
        modes = (
            [*node.args[1:2], *(item.value for item in node.keywords if item.arg == "mode")] if isinstance(node, ast.Call) else []
        )
        if name == "open" and any(isinstance(mode, ast.Constant) and str(mode.value)[:1] in "wx" for mode in modes):
            return True
    return False


FRAMES = frozenset(("to_csv", "to_json", "to_parquet"))
"""Methods of tables that take a mode."""
LOG_NAME = re.compile(
    r"(?:^|[._-])(?:logs?|metrics?|loss(?:es)?|history|events?|progress|status|trace|truth|heartbeat|timings?|stats?|debug|stderr|stdout)"
    r"(?:[._-]|$)|\.(?:log|out|err)$|tfevents",
    re.IGNORECASE,
)
LOG_FOLDERS = frozenset(("log", "logs", "tb", "tensorboard", "wandb", "mlruns"))
PASSING = ("/dev", "/proc")
MOST_LISTED = 2_000
LOG_BYTES = 256 << 10
"""Of the end of a log, in which the exception stands that ended a program."""
MOST_LINES, MOST_OF_LINE = 400, 600
"""Last lines that may hold it; characters of one."""
OWN_LEVEL = re.compile(r'File "([^"]{1,400})", line (\d{1,9}), in <module>')
MOST_WRITES = 40
MOST_NAMED = 3


class WriteDeed(StrEnum):
    """What a run does to a file that is there."""

    APPENDS = "append"
    EMPTIES = "empty"


class RepeatedWrite(NamedTuple):
    """A file that each run opens to write."""

    deed: WriteDeed
    path: str
    """Absolute; a pattern where only a run knows all of it."""
    how: str
    """Where the program opens it, for people."""
    program: str
    """Name of the program; empty where it was seen open in a process."""
    size_bytes: int = 0


def lines_reached(texts: Sequence[str]) -> dict[str, int]:
    """Return by file name the furthest line of a program's own level at which it ended by an exception; empty where it did not.

    Args:
        texts: Lines of the log, in order; its last ones count.
    """
    reached: dict[str, int] = {}
    for text in texts[-MOST_LINES:]:
        if (match := OWN_LEVEL.search(text[:MOST_OF_LINE])) is not None:
            name = PurePosixPath(match[1]).name
            reached[name] = max(int(match[2]), reached.get(name, 0))
    return reached


def repeated_writes(programs: Sequence[JobProgram], reached: Mapping[str, int] | None = None) -> list[RepeatedWrite]:
    """Return the files that programs append to without passing over what is done, and those that they empty at each start. Pure.

    Args:
        programs: Of a job.
        reached: From `lines_reached`: what stands behind that at the program's own level was not run.
    """
    writes: list[RepeatedWrite] = []
    for program in programs:
        uses = file_uses(program)
        reads = deciding_reads(uses)
        for caller in uses.calls:
            opened = _opened(uses, caller)
            if opened is None:
                continue
            if _is_behind(uses, caller, reached or {}):
                continue
            node, deed = opened
            texts = uses.reader.texts(caller.source, node, caller.scope)
            if deed is WriteDeed.APPENDS and passes_over(reads, texts):
                continue
            line = f"{dotted(caller.node.func)}() in {PurePosixPath(caller.source.path).name}, line {caller.node.lineno}"
            for text in sorted(texts):
                path = outside_path(program, text)
                if path and not is_log(path):
                    writes.append(RepeatedWrite(deed, path, line, program.name))
    return list(dict.fromkeys(writes))[:MOST_WRITES]


def writes_of_job(job: Job, programs: Sequence[JobProgram], *, seen_open: bool = True) -> list[RepeatedWrite]:
    """Return what a rerun of a job would append to or empty, of what its last attempt has written; with the owner's rights.

    Args:
        job: The attempt that ended.
        programs: Those that its script would start now.
        seen_open: Whether what its processes were seen to append to counts as well, whatever the sources tell.
    """
    failed = job.state.ended and bool(job.exit_code)
    texts = [line.text for line in log_lines(job, most_bytes=LOG_BYTES)] if failed else []
    writes = repeated_writes(programs, lines_reached(texts))
    logs = {str(path) for path in (job.log, job.error_log) if path is not None}
    # what a program reads first, to pass over what stands in it, it does not write a second time
    read_first = [work.path for work in continued_work(programs) if work.path]
    for file in job.processes.files if seen_open and job.processes is not None else ():
        path = str(file.path)
        continues = any(fnmatchcase(path, pattern) for pattern in read_first)
        if file.appends and path not in logs and not is_log(path) and not continues:
            writes.append(RepeatedWrite(WriteDeed.APPENDS, path, file.source, ""))
    return present_writes(writes, partial(_state_of, job.account), partial(_names_in, job.account), began=job.started)


def present_writes(
    writes: Iterable[RepeatedWrite],
    look: Callable[[str], tuple[int, datetime] | None],
    names: Callable[[str], Sequence[str]],
    *,
    began: datetime | None,
) -> list[RepeatedWrite]:
    """Return the writes whose file is there, is not empty, and was written since a time. Pure but for what it is given.

    Args:
        writes: From `repeated_writes`.
        look: Returns size and time of change of a file; None where there is none, or it cannot be seen.
        names: Returns the names in a folder.
        began: When the attempt began; None counts all.
    """
    present: dict[tuple[str, WriteDeed], RepeatedWrite] = {}
    for write in writes:
        folder, pattern = str(PurePosixPath(write.path).parent), PurePosixPath(write.path).name
        if "*" in folder:
            continue
        paths = [f"{folder}/{name}" for name in names(folder) if fnmatchcase(name, pattern)] if "*" in pattern else [write.path]
        for path in paths:
            state = look(path) if not is_log(path) else None
            if state is not None and state[0] and (began is None or state[1] >= began):
                present.setdefault((path, write.deed), write._replace(path=path, size_bytes=state[0]))
    appended = {path for path, deed in present if deed is WriteDeed.APPENDS}
    return [write for (path, deed), write in present.items() if deed is WriteDeed.APPENDS or path not in appended]


def rerun_words(writes: Sequence[RepeatedWrite], folder: Path | None) -> str:
    """Return what a rerun from the beginning would do to files, in sentences; empty where it would do nothing to any."""
    sentences = []
    appended = [write for write in writes if write.deed is WriteDeed.APPENDS]
    emptied = [write for write in writes if write.deed is WriteDeed.EMPTIES]
    if appended:
        files = _in_words(appended, folder)
        sentences.append(
            f"A rerun from the beginning would append to {files} a second time what this attempt has written there: take that out, "
            "or move the file away, first."
        )
    if emptied:
        sentences.append(
            f"A rerun would empty {_in_words(emptied, folder)} at its start and write it anew: copy what is wanted of it first."
        )
    return " ".join(sentences)


def _in_words(writes: Sequence[RepeatedWrite], folder: Path | None) -> str:
    def name_of(path: str) -> str:
        inside = folder is not None and PurePosixPath(path).is_relative_to(folder)
        return str(PurePosixPath(path).relative_to(folder)) if inside and folder is not None else path

    words = [f"{name_of(write.path)} ({_size(write.size_bytes)}; {write.how})" for write in writes[:MOST_NAMED]]
    more = f" and {len(writes) - MOST_NAMED} more" if len(writes) > MOST_NAMED else ""
    return f"{', '.join(words)}{more}"


def _size(size_bytes: int) -> str:
    for unit, factor in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size_bytes >= 1 << factor:
            return f"{size_bytes / (1 << factor):.1f} {unit}"
    return f"{size_bytes} bytes"


def _is_behind(uses: FileUses, caller: Caller, reached: Mapping[str, int]) -> bool:
    """Tell whether a call stands in a later statement of a program than the one in which its exception left it."""
    last_line = reached.get(PurePosixPath(caller.source.path).name)
    tree = uses.reader.names_of(caller.source).tree
    if last_line is None or not isinstance(tree, ast.Module):
        return False

    def statement_at(line: int) -> int | None:
        places = (place for place, node in enumerate(tree.body) if node.lineno <= line <= (node.end_lineno or node.lineno))
        return next(places, None)

    ended_at, written_at = statement_at(last_line), statement_at(caller.node.lineno)
    return ended_at is not None and written_at is not None and ended_at < written_at


def _opened(uses: FileUses, caller: Caller) -> tuple[ast.expr, WriteDeed] | None:
    """Return the path that a call opens to write, and what that does to a file that is there; None of any other call."""
    call, name = caller.node, dotted(caller.node.func)
    method = name.rpartition(".")[2]
    if name == "os.open" and len(call.args) > 1:
        flags = ast.unparse(call.args[1])
        deed = WriteDeed.APPENDS if "O_APPEND" in flags else WriteDeed.EMPTIES if "O_TRUNC" in flags else None
        return (call.args[0], deed) if deed is not None else None
    if name in OPENS | ARCHIVES:
        node = argument_of(call, "file", 0)
    elif method == "open" and isinstance(call.func, ast.Attribute):
        node = call.func.value
    elif method in FRAMES:
        node = argument_of(call, "path_or_buf", 0)
    else:
        return None
    mode = _mode_of_table(call) if method in FRAMES else uses.mode_of(caller)
    if node is None or not mode or (uses.reader.function_of(caller) is not None):
        return None
    if mode[0] == "a":
        return node, WriteDeed.APPENDS
    return (node, WriteDeed.EMPTIES) if mode[0] == "w" and method not in FRAMES else None


def _mode_of_table(call: ast.Call) -> str:
    value = next((item.value for item in call.keywords if item.arg == "mode"), None)
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def is_log(path: str) -> bool:
    """Tell whether a file is a log, metrics or a state by its name or folder: what a rerun writes there costs nothing."""
    parts = PurePosixPath(path)
    below = any(parts.is_relative_to(place) for place in PASSING)
    return below or LOG_NAME.search(parts.name) is not None or bool(LOG_FOLDERS & {part.lower() for part in parts.parts[:-1]})


def _state_of(account: str, path: str) -> tuple[int, datetime] | None:
    def look() -> tuple[int, datetime] | None:
        status = status_of(Path(path))
        return (status.st_size, datetime.fromtimestamp(status.st_mtime, UTC)) if stat.S_ISREG(status.st_mode) else None

    try:
        with reading_as(account):
            return within(LOOK_S, look, path)
    except (OSError, InputError, ValueError):
        return None


def _names_in(account: str, folder: str) -> Sequence[str]:
    try:
        with reading_as(account):
            return within(LOOK_S, lambda: [child.name for child in list_folder(Path(folder), MOST_LISTED)], folder)
    except (OSError, InputError, ValueError):
        return ()
