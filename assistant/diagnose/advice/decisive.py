"""Read what stands elsewhere in a log, or in the line of source, and decides between remedies of one message.

GPUs that nvidia-smi shows against processes that are started, a setting that came in as text, a list that is empty, an option
that a script lost, values in a message that the program made, and a set-up that had failed before. Nothing is told that no
line shows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import Setting, named_setting
from assistant.diagnose.readers.expressions import argument_named, arguments_placed, left_of_sum, subscripted
from assistant.diagnose.readers.origin import LIBRARY, Origin, raised_at
from assistant.diagnose.readers.tracebacks import SourceFrame
from assistant.linear_patterns import linear_pattern
from assistant.logs.lines import Line
from assistant.records import Citation

MOST_OF_LINE = 400
MOST_PAIRS, MOST_LOST = 4, 6
_GPU_ROW = re.compile(r"^\|\s{1,4}(\d{1,2})\s{1,6}\S.{0,60}\b(?:On|Off|N/A)\s{0,3}\|")
_GPU_LISTED = re.compile(r"^GPU (\d{1,2}): .{1,80}\(UUID")
_TABLE = re.compile(r"NVIDIA-SMI \d|^\|\s{1,4}0\s|^GPU 0: ")
_A_GPU = re.compile(
    r"\b(\d{1,4}) (?:(?:MPI )?proc(?:ess(?:es)?)?(?:\(s\))?|ranks?|tasks?)(?: are sharing| sharing)? (?:per|an?"
    r"|each|every|one) (?:device|GPU)",
    re.I,
)
_GPU_OF_PROCESS = re.compile(
    r"\b(?:[Dd]evice|GPU) (?:ID )?(\d{1,2}) (?:on|for|by|to) (?:MPI )?(?:core|rank|process|task|proc)s? (\d{1,5})\b"
)
_GPUS_OF_TASKS = re.compile(r"[Mm]apping of GPU IDs to the \d{1,4} GPU tasks.{0,60}?((?:(?:PP|PME):\d,?){2,200})")
_PROCESSES = re.compile(
    r"(?<![\w-])(?P<name>(?:--)?nproc[-_]per[-_]node|(?:--)?num[-_]processes|--num[-_]gpus|[Nn]um[ _][Pp]rocesses)"
    r"['\"]?(?:\s{0,2}[:=]\s{0,2}|\s)['\"]?(?P<value>[1-9]\d{0,3})(?![\w.])"
)
_TEXT_NUMBER = re.compile(r"[+-]?\d{1,6}[eE]-?\d{1,3}")
"""A number that YAML 1.1 reads as text, for it wants a point in it."""
_NAME = re.compile(r"[A-Za-z_]\w{1,40}")
_FIRST = re.compile(r"\b([A-Za-z_][\w.]{0,60})\[(?:0|-1)\](?!\s*\])")
_NO_LISTS = frozenset({"ax", "axs", "axes"})
"""Names that matplotlib's users give to arrays of axes, which complain of an index in other words than a list."""
_LOST = re.compile(r"line (\d{1,6}): (--?[A-Za-z][\w-]{0,80})(?:=\S{0,80})?: (?:command )?not found")
_PIECES = re.compile(r"""\bf(?P<mark>['"])(?P<text>.{3,200}?)(?P=mark)""")
_FIELD = re.compile(r"\{([^{}!:=]{1,60})[^{}]{0,20}\}")
_INNER = re.compile(r"(?P<outer>/.{1,200}?)/(?P<inner>scripts?|examples?|launch|slurm|jobs|bin|run|experiments)/(?=.+/)")
_SET_UP = re.compile(
    r"CondaError: Run 'conda init'|shell has not been properly configured to use 'conda"
    r"|(?:conda|mamba|micromamba|module|ml): (?:command )?not found"
    r"|EnvironmentNameNotFound|Could not find conda environment|EnvironmentLocationNotFound"
    r"|Lmod has detected the following error|Unable to locate a modulefile"
    r"|bin/activate: No such file|(?:torchrun|accelerate|deepspeed|python3?|mpirun): (?:command )?not found"
    r"|line \d{1,5}: \S{1,200}(?:conda\.sh|profile\.sh|rc|activate|env\.sh|setup\.sh|modules\.sh|init\.sh): No such file"
)


_NO_GPU = re.compile(
    r"driver on your system is too old|GPU available: False|CUDA initialization: (?!.*fork)|auto-detected: no CUDA"
    r"|Found no NVIDIA driver"
)
"""What PyTorch and Lightning say; TensorFlow says the like in programs that only import it."""
_ON_GPU = re.compile(r"\bcuda:\d|CUDA out of memory|GPU available: True|HIP out of memory")
_MISSED = re.compile(r"No such file|not found|does not exist|[Cc]annot open|[Cc]an't open")
_HAD = re.compile(
    r"\b(?:load(?:ing|ed)|read(?:ing)?|open(?:ing|ed)|sav(?:ing|ed)|wrote|writ(?:ing|ten)|creat(?:ing|ed)|using)\b", re.IGNORECASE
)
_NOT_OPENED = re.compile(r"can't open file '([^']{1,300})'")
_GCC = {
    f"GLIBCXX_3.4.{minor}": compiler
    for minor, compiler in {
        18: "4.8", 19: "4.8.3", 20: "4.9", 21: "5.1", 22: "6.1", 23: "7.1", 24: "7.2", 25: "8.1", 26: "9.1", 27: "9.2", 28: "9.3",
        29: "11.1", 30: "12.1", 31: "13.1", 32: "13.2", 33: "14.1",
    }.items()
}  # fmt: skip
"""From the ABI history in the manual of libstdc++."""
_NO_NAMES = frozenset({"value", "is", "values", "result", "output", "default", "dtype"})
"""Words before a NaN that name no value."""
_CANCELLED = re.compile(r"JOB (\d{2,12}) ON \S{1,80} CANCELLED AT (\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\d)")
TOGETHER_S = 10
"""Seconds between the ends of jobs that one hand ended."""
_RECOMPUTING = re.compile(r"\bgradient[_ ]checkpointing\b(?!\W{1,4}(?:False|false|0|off)\b)|\bLoRA\b|\bpeft\b", re.IGNORECASE)
STACK_LINES = 60
"""Lines behind an abort among which its stack is printed."""
_WHAT_LINE = re.compile(r"^\s*what\(\):\s{1,4}(\S.{0,200})")
_NATIVE = re.compile(
    r"^\s*(?:@\s+0x[0-9a-f]{1,16}\s+([A-Za-z_~][\w:~<>, ]{1,120}\([^()]{0,80}\))"
    r"|#\d{1,3}\s+0x[0-9a-f]{1,16} in ([\w:~<>, ]{2,120}) ?\()"
)
_RUNTIME = re.compile(r"std::|__|_Z|gsignal|raise|abort|operator|google::|(?:gnu|c10)::|start_thread|clone|main\b")
"""Functions of the runtime that only carry an exception on."""
_NO_SAMPLES = re.compile(r"inconsistent numbers of samples: \[\d{1,12}, \d{1,12}\]|x and y must have same first dimension")
_READERS = {
    "geojson": "read_file", "shp": "read_file", "gpkg": "read_file", "csv": "read_csv", "tsv": "read_csv", "json": "read_json",
    "jsonl": "read_json", "feather": "read_feather", "xlsx": "read_excel", "pkl": "read_pickle",
}  # fmt: skip
"""By the end of a file's name: what reads it in pandas, and in geopandas where that has it."""
_READ_PARQUET = re.compile(r"\b((?:gpd|geopandas|pd|pandas))\.read_parquet\(")
_COLUMNS_OF = re.compile(r"\b([A-Za-z_][\w.]{0,60})(?:\.loc\[[^\[\]]{0,40})?\[\[")
_MAPPED = re.compile(r"\.starmap(?:_async)?\([\w.]{1,80}, ?([A-Za-z_]\w{0,60})\b")
_PROCESS_SIZE = re.compile(r'[Pp]rocess "?([\w./-]{1,80})"?, pid \d{1,10}, rss (\d{4,18})')
ERRORS_BEFORE, SAME_PREFIX = 40, 40
"""Lines before an exception in which logged errors count, and characters of a message by which another line repeats it."""
_LOGGED_ERROR = re.compile(r"(?:^|[\s\[|:-])(?:ERROR|CRITICAL|FATAL|SEVERE)\b(?!.{0,40}(?:Unable to register|Traceback))")
_NOT_A_NUMBER = re.compile(
    r"(?<![\w./-])(?P<name>[A-Za-z][\w./-]{0,40}?)['\"]?\s{0,2}[:=]\s{0,2}['\"]?(?:tensor\()?-?(?:nan|NaN)\b(?!\s{0,2}[:=])"
)


def without_gpu(facts: Facts, end: int) -> Line | None:
    """Return the first line of the last attempt that says that the program runs without a GPU; None without one.

    Args:
        facts: Of the case.
        end: Line up to which is looked.
    """
    lines = [line for line in facts.lines if facts.progress.leg <= line.number <= end]
    notice = next((line for line in lines if len(line.text) < 2 * MOST_OF_LINE and _NO_GPU.search(line.text)), None)
    ran_on_gpu = notice is not None and any(
        _ON_GPU.search(line.text[:MOST_OF_LINE]) for line in lines if line.number > notice.number
    )
    return notice if notice is not None and notice.number < end and not ran_on_gpu else None


def error_before(cited: Citation, facts: Facts) -> Line | None:
    """Return the first of the errors that a program logged shortly before an exception, outside of tracebacks; None without one."""
    first = next((episode.first for episode in facts.episodes if episode.first <= cited.line <= episode.last), cited.line)
    message = facts.streams.body(cited.text).text.partition(": ")[2][:SAME_PREFIX]
    for line in facts.between(max(facts.progress.leg, first - ERRORS_BEFORE), first - 1):
        inside = any(episode.first <= line.number <= episode.last for episode in facts.episodes)
        if (
            len(line.text) < 2 * MOST_OF_LINE
            and _LOGGED_ERROR.search(line.text)
            and not inside
            and not (message and message in line.text)
        ):
            return line
    return None


def first_nan(facts: Facts, end: int) -> tuple[str, int] | None:
    """Return the name of the first value of the last attempt that the log prints as NaN, with its line; None without one."""
    for line in facts.lines:
        if line.number >= end:
            return None
        if line.number >= facts.progress.leg and ("nan" in line.text or "NaN" in line.text):
            match = _NOT_A_NUMBER.search(line.text[: 4 * MOST_OF_LINE])
            if match is not None and match["name"].strip().lower() not in _NO_NAMES:
                return match["name"].strip(), line.number
    return None


def gpus_shown(facts: Facts) -> str:
    """Return how many GPUs the last table of nvidia-smi in the log shows, with its first line; empty where it holds none."""
    gpus: set[int] = set()
    first = 0
    for line in facts.lines:
        if "|" not in line.text[:1] and not line.text.startswith("GPU "):
            continue
        text = line.text[:MOST_OF_LINE]
        match = _GPU_ROW.match(text) or _GPU_LISTED.match(text)
        if match is None:
            continue
        if int(match[1]) in gpus:
            gpus, first = set(), 0
        gpus.add(int(match[1]))
        first = first or line.number
    return f"{len(gpus)} GPU{'s' * (len(gpus) != 1)} (job.log:{first})" if gpus else ""


def gpu_shared(facts: Facts) -> str:
    """Return how many processes the last attempt says that share one GPU, with its line; empty where it says it of none."""
    by_device: dict[str, set[str]] = {}
    last_line = 0
    for line in facts.lines:
        text = line.text[:MOST_OF_LINE]
        if line.number < facts.progress.leg or ("evice" not in text and "GPU" not in text):
            continue
        if (match := _A_GPU.search(text)) and int(match[1]) > 1:
            return f"{match[1]} processes share one (job.log:{line.number})"
        if match := _GPU_OF_PROCESS.search(text):
            by_device.setdefault(match[1], set()).add(match[2])
            last_line = line.number
        if (match := _GPUS_OF_TASKS.search(text)) and (count := max(match[1].count(f":{number}") for number in "01234567")) > 1:
            return f"{count} processes share one (job.log:{line.number})"
    most = max((len(processes) for processes in by_device.values()), default=0)
    return f"{most} processes share one (job.log:{last_line})" if most > 1 else ""


def processes_started(facts: Facts) -> str:
    """Return how many processes of a node the last attempt was started with, as the log prints it; empty where it does not."""
    for line in facts.lines:
        if line.number >= facts.progress.leg and (match := _PROCESSES.search(line.text[:2000])):
            return str(Setting(match["name"].lstrip("-"), match["value"], line.number))
    return ""


def text_setting(origin: Origin, cited: Citation, facts: Facts) -> str:
    """Return the setting named in the lines that raised whose printed value YAML reads as text, such as 1e-4; empty without one."""
    for name in dict.fromkeys(_NAME.findall(f"{origin.code} {origin.deepest}")):
        value = named_setting(facts, name, cited.line)
        if value is not None and _TEXT_NUMBER.fullmatch(value.value):
            return str(value)
    return ""


def empty_list(origin: Origin) -> str:
    """Return the expression of the job's own line whose first or last element is not there; empty where another index was."""
    own = set(_FIRST.findall(origin.code))
    if origin.own and not origin.library:
        counted = len(_FIRST.findall(origin.code)) == origin.code.count("[")
        lists = {name for name in own if name not in _NO_LISTS}
        return lists.pop() if len(lists) == 1 and counted else ""
    names = set(_FIRST.findall(origin.deepest))
    if len(names) != 1 or "list" in origin.deepest:
        return ""
    passed = re.search(rf"\b{re.escape(names.pop().rpartition('.')[2])}\s*=\s*([A-Za-z_][\w.]{{0,60}})(?=\s*[,)])", origin.code)
    return passed[1] if passed else ""


_FIELDS = re.compile(
    r"^(?:\w{1,40}, ?)?\w{1,40} = ((?:\w{0,30}_)?(?:split\w{0,6}|fields|columns|cols|parts|row|tokens|items|line)"
    r"\w{0,10})\[[1-9]\]"
)


def fields_of_row(origin: Origin) -> str:
    """Return the fields of a row of the data of which the job's own code takes one that is not there; empty for other lists."""
    match = _FIELDS.match(origin.code) if origin.own and origin.function in ("__getitem__", "__iter__", "collate_fn") else None
    return match[1] if match is not None else ""


def lost_options(cited: Citation, facts: Facts) -> str:
    """Return the other options of one script that the shell took for commands, with their lines in the script."""
    other_lines = [
        f"{match[2]} (line {match[1]})"
        for line in facts.lines
        if line.number != cited.line and "not found" in line.text and (match := _LOST.search(line.text[:MOST_OF_LINE]))
    ]
    return ", ".join(dict.fromkeys(other_lines[:MOST_LOST]))


class FilledField(NamedTuple):
    """What a program put into a message that it made."""

    expression: str
    value: str


def filled_fields(source: str, message: str) -> list[FilledField]:
    """Return the expressions of an f-string in a line of source with their values in the message; none where they do not fit."""
    match = _PIECES.search(source)
    if match is None:
        return []
    fields = _FIELD.findall(match["text"])
    pieces = _FIELD.sub("\0", match["text"]).split("\0")
    if not 0 < len(fields) <= MOST_PAIRS:
        return []
    form = "(.{1,120}?)".join(re.escape(piece) for piece in pieces)  # of a log: matched in linear time
    values = linear_pattern(f"{form}$" if not pieces[-1] else form).search(message.encode("utf-8", "replace"))
    if values is None:
        return []
    texts = [value.decode("utf-8", "replace") for value in values.groups()]
    return [FilledField(name.strip(), text) for name, text in zip(fields, texts, strict=True)]


def outer_folder(path: str) -> tuple[str, str]:
    """Return the folder above that of scripts from which a path was built, and that folder; two empty texts for other paths."""
    match = _INNER.match(path)
    return (match["outer"], f"{match['outer']}/{match['inner']}") if match else ("", "")


def failed_set_up(facts: Facts, before: int) -> Line | None:
    """Return the first line of the last attempt, before a line, that says that its environment was not set up; None without one."""
    if facts.combined is not None:
        return None
    for line in facts.lines:
        if line.number >= before:
            return None
        if line.number >= facts.progress.leg and len(line.text) < MOST_OF_LINE and _SET_UP.search(line.text):
            return line
    return None


def hosts_apart(path: str, facts: Facts) -> tuple[str, str]:
    """Return the hosts that miss a file and one of those that have it, with its line; two empty texts where that is not shown.

    Launchers of several nodes put the host before each line: one that only names the path reads or made the file.
    """
    missed: dict[str, None] = {}
    had: dict[str, int] = {}
    for line in facts.lines:
        if line.number < facts.progress.leg or path not in line.text:
            continue
        host = facts.streams.body(line.text).host
        if host and _MISSED.search(line.text):
            missed[host] = None
        elif host and _HAD.search(line.text):
            had.setdefault(host, line.number)
    if not missed or not had or missed.keys() & had.keys():
        return "", ""
    host, number = next(iter(had.items()))
    return ", ".join(list(missed)[:MOST_PAIRS]), f"{host} (job.log:{number})"


def resolved_folder(file: str, top: str, facts: Facts) -> str:
    """Return the folder above a folder of the job's own code, where a frame of the log names a file in it by its whole path.

    Args:
        file: A file as a traceback names it, absolute or not.
        top: The folder that an import begins with.
        facts: Of the case.
    """
    files = [frame.file for episode in facts.episodes for raised in episode.raised for frame in raised.frames]
    for name in (file, *files):
        parts = name.split("/")
        if name.startswith("/") and top in parts[:-1] and (name == file or name.endswith(f"/{file}")):
            return "/".join(parts[: parts.index(top)])
    return ""


def file_not_opened(facts: Facts, before: int) -> str:
    """Return the first program file of the last attempt, before a line, that Python could not open, with its line."""
    for line in facts.lines:
        if line.number >= before:
            return ""
        if line.number >= facts.progress.leg and (match := _NOT_OPENED.search(line.text[:MOST_OF_LINE])):
            return f"{match[1]} (job.log:{line.number})"
    return ""


def compiler_of(version: str) -> str:
    """Return the version of GCC that first had a version of libstdc++ (`GLIBCXX_3.4.20`); empty for one that is not listed."""
    return _GCC.get(version, "")


def launched_by_torch(facts: Facts) -> bool:
    """Tell whether a traceback of the log passes through the launcher of PyTorch (torchrun, torch.distributed.launch)."""
    frames = (frame for episode in facts.episodes for raised in episode.raised for frame in raised.frames)
    return any(frame.file.endswith(("torch/distributed/run.py", "torch/distributed/launch.py")) for frame in frames)


def cancelled_with(cited: Citation, facts: Facts) -> str:
    """Return how many other jobs of Slurm the log says were cancelled within `TOGETHER_S` of a cited one; empty for none."""
    own = _CANCELLED.search(cited.text)
    if own is None:
        return ""
    at = _moment(own[2])
    matches = (_CANCELLED.search(line.text[:MOST_OF_LINE]) for line in facts.lines if "CANCELLED AT" in line.text)
    ends = [(match[1], _moment(match[2])) for match in matches if match is not None]
    near = {job for job, end in ends if at is not None and end is not None and abs((end - at).total_seconds()) <= TOGETHER_S}
    count = len(near - {own[1]})
    return f"{count} other job{'s' * (count > 1)}" if count else ""


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def program_folder(cited: Citation, facts: Facts) -> str:
    """Return the folder of the program whose traceback a cited line ends; empty where no whole path of it is shown."""
    raised = raised_at(cited, facts)
    frames = raised[1].frames if raised is not None else ()
    own = next((frame for frame in frames if frame.line and not LIBRARY.search(frame.file)), None)
    return str(PurePosixPath(own.file).parent) if own is not None and own.file.startswith("/") else ""


def root_of_code(path: str, frames_of: Sequence[str]) -> str:
    """Return the folder from which a relative path leads to where the code lies, as `data/x` beside `/w/data/y.py`; or empty.

    Args:
        path: Relative path that was not there.
        frames_of: Files of the traceback, as it names them.
    """
    top = PurePosixPath(path).parts[0] if path else ""
    for file in frames_of:
        parts = PurePosixPath(file).parts
        if file.startswith("/") and len(PurePosixPath(path).parts) > 1 and top in parts[1:-1] and not LIBRARY.search(file):
            return str(PurePosixPath(*parts[: parts.index(top)]))
    return ""


def native_abort(cited: Citation, facts: Facts) -> str:
    """Return in which function of a native program an uncaught exception arose, and what it had said last; empty without a stack.

    The stack is one that glog, gdb or the C library print: `@ 0x7f… name(…)`, `#3 0x… in name (…)`.
    """
    if cited.file != "job.log" or "terminate called" not in cited.text:
        return ""
    lines_after = facts.between(cited.line + 1, cited.line + STACK_LINES)
    message = next((match[1].strip() for line in lines_after[:3] if (match := _WHAT_LINE.search(line.text))), "")
    frames = ((match[1] or match[2], line.number) for line in lines_after if (match := _NATIVE.search(line.text[:MOST_OF_LINE])))
    frame = next(((name, number) for name, number in frames if not _RUNTIME.match(name)), None)
    if frame is None:
        return ""
    before = next((line for line in reversed(facts.between(max(1, cited.line - 3), cited.line - 1)) if line.text.strip()), None)
    last = ""
    if before is not None and len(before.text) <= MOST_OF_LINE:
        last = f", right after job.log:{before.number}: {facts.streams.body(before.text).text.strip().rstrip('.')}"
    quoted = f" ({message})" if message else ""
    return f"It aborted in {frame[0]} (job.log:{frame[1]}){quoted}{last}. Check first what that reads or is given there."


def environment_with(module: str, cited: Citation, facts: Facts) -> str:
    """Return an environment of Python in whose packages the log shows a module, with its line; empty without one.

    It is another one than that of the traceback which misses the module.
    """
    raised = raised_at(cited, facts)
    files = [frame.file for frame in raised[1].frames] if raised is not None else []
    pattern = re.compile(rf"(/[^\s'\":]{{1,200}})/lib/python\d[\d.]{{0,4}}/site-packages/{re.escape(module)}/")
    for line in facts.lines:
        if module in line.text and (match := pattern.search(line.text[:MOST_OF_LINE])):
            return "" if any(file.startswith(f"{match[1]}/") for file in files) else f"{match[1]} (job.log:{line.number})"
    return ""


def module_holder(top: str, frames: Sequence[SourceFrame]) -> tuple[str, str]:
    """Return how to start a program of a package of its own code as a module, or the folder that holds that; two empty texts else.

    Args:
        top: Name of the package.
        frames: Of the traceback, the outermost first.
    """
    files = [frame.file for frame in frames if not LIBRARY.search(frame.file)]
    if files and files[0].startswith(f"{top}/"):
        return f"python -m {files[0].removesuffix('.py').replace('/', '.')}", ""
    inside = next((file for file in files if f"/{top}/" in file), "")
    return "", inside[: inside.index(f"/{top}/")] if inside else ""


def recomputing(facts: Facts, end: int) -> str:
    """Return the first words of the last attempt, up to a line, that tell of recomputed activations or adapters; empty without."""
    for line in facts.lines:
        if facts.progress.leg <= line.number <= end and (match := _RECOMPUTING.search(line.text[:MOST_OF_LINE])):
            return f"{match[0]} (job.log:{line.number})"
    return ""


def handed_over(text: str, origin: Origin) -> dict[str, str]:
    """Return what the job's own call hands over, where the message is about one of its arguments or its parts."""
    if not origin.own:
        return {}
    slots: dict[str, str] = {}
    if "can only concatenate" in text and not origin.library:
        slots["operand"] = left_of_sum(origin.code)
    if _NO_SAMPLES.search(text) and len(placed := arguments_placed(origin.code)) == 2:
        slots |= {"first_argument": placed[0], "second_argument": placed[1]}
    if "list indices must be" in text and origin.library and (name := subscripted(origin.deepest)):
        slots |= {"handed": argument_named(origin.code, name), "handed_as": name}
    if "[columns]" in text or "not in index" in text:
        tables = set(_COLUMNS_OF.findall(origin.code))
        slots |= {"subject": tables.pop()} if len(tables) == 1 else {}
    if "required positional argument" in text and (mapped := _MAPPED.search(origin.code)):
        slots["mapped"] = mapped[1]
    if "Parquet magic" in text and (match := _READ_PARQUET.search(origin.code)):
        reader = _READERS.get(text.partition("': Parquet")[0].rpartition(".")[2], "")
        geo = match[1] in ("gpd", "geopandas")
        slots["reader"] = f"{match[1]}.{reader}" if reader and geo == (reader == "read_file") else ""
    return slots


def largest_process(facts: Facts) -> str:
    """Return which of the processes that PBS lists at a kill held most memory, with its line; empty where it lists none."""
    rows = [(int(m[2]), m[1], line.number) for line in facts.lines if (m := _PROCESS_SIZE.search(line.text[:MOST_OF_LINE]))]
    if not rows:
        return ""
    size, name, number = max(rows)
    return f"{name} held {size / 1024**3:.1f} GiB (job.log:{number})"
