"""How a trial start died by itself, of which file, and what that says about the file. Pure.

Only what the program itself said last counts: the last line of its last traceback, or its last line. That start is refuted where
the error is surely of the program's own, and nothing in it speaks of what the sandbox or a single node lacks: network, services,
locks, disks, accelerators, ranks, paths and variables of the site. A file is refused only where its form or length is the error,
the load of that very file failed, and its size speaks against it, too. That it is the newest is no evidence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.recover.checkpoints.names import name_form
from assistant.recover.checkpoints.trackers import TRACKER_NAMES
from assistant.redact import head_of

OF_RANK = re.compile(r"\[?(?:rank)?\d{1,6}\]?:? ?")
"""What some launchers put before each line."""
ERROR_LINE = re.compile(
    r"(?:\[?(?:rank)?\d{1,6}\]?:? ?)?(?:\w{1,60}\.){0,6}"
    r"(?:\w{0,60}(?:Error|Exception|BadZipFile|BadGzipFile)\b|(?<=\.)error\b)(?:: |:?$| )"
)
"""The last line of a traceback, with the rank that some launchers put before it."""
ERROR_WORDS = re.compile(
    r"\b(?:errors?|fatal|fail(?:ed|ure)?|cannot|can't|could not|unable|unexpected|invalid|illegal|corrupt\w*|truncat\w*|mismatch|"
    r"incomplete|too short|damaged|panic(?:ked)?|abort(?:ed|ing)?|not an? |no such|refus\w+|usage:|terminate called|stop)\b",
    re.IGNORECASE,
)
"""Words by which programs of other languages say why they end."""
OF_LAUNCHER = re.compile(
    r"\b(?:CalledProcessError|ChildFailedError)\b|\bsrun: error\b|\bexit(?:ed)?\b.{0,20}\b(?:code|status)\b|\brc ?[=:]",
    re.IGNORECASE,
)
"""Says only that a process that was started ended badly."""
OF_SANDBOX = re.compile(
    r"network|unreachable|resol(?:ve|ution)|getaddrinfo|connect|socket|rendezvous|rdzv|c10d|tcpstore|diststore|nccl|rccl|gloo|\bucx|"
    r"\bmpi|\bpeers?\b|\brpc|grpc|\bhost|service|servers?\b|daemon|database|sqlite|psycopg|redis|mongo|\bkafka|\bport\b|address|"
    r"\block|errno|input/output|not implemented|"
    r"cuda|\bgpus?\b|nvidia|\bhip\b|rocm|\bamd|\bxla|\btpus?\b|\bnpus?\b|\bhpus?\b|\bxpus?\b|accelerat|\bdevices?\b|\bdrivers?\b|"
    r"ranks?\b|world.?size|\bprocesses\b|\bworkers?\b|\bnodes?\b|\btasks?\b|\bpartition|\bshard|\bparallel|"
    r"read-?only|no space|quota|memory|alloc|permission|not permitted|denied|time[d-]? ?out|deadline|munge|slurm|"
    r"\bsrun\b|module|import|"
    r"command not found|shared (?:object|librar)|licen[cs]e|flexlm|lmgrd|token|credential|"
    r"certificate|\bssl|\bauth|environ|variable|"
    r"https?://|wandb|mlflow|\bsignal|killed|no such file|does not exist|not found|missing|"
    r"(?<![\w.])/[\w.-]+/",
    re.IGNORECASE,
)
"""Words of errors that the sandbox, or what a single node lacks, may cause; an absolute path is none of the job's."""
OF_ENVIRONMENT = re.compile(r"KeyError: ['\"]?[A-Z][A-Z0-9_]*['\"]?$")
"""A variable of the environment that is not set."""
OF_PROGRAM = re.compile(
    r"(?:\[?(?:rank)?\d{1,6}\]?:? ?)?(?:\w{1,60}\.){0,6}"
    r"(?:ValueError|AssertionError|TypeError|AttributeError|IndexError|KeyError|ZeroDivisionError)\b"
)
"""Errors that Python raises for what a program does with its values, and not for what surrounds it."""
OF_FORM = re.compile(
    r"\b(?:EOFError|UnpicklingError|BadZipFile|BadGzipFile|LZMAError|JSONDecodeError|SafetensorError)\b|\b(?:struct|zlib)\.error\b|"
    r"\b(?:unexpected|premature) (?:end|eof)\b|\bend of file\b|truncat|too short|short read|incomplete|corrupt|\bheader says\b|"
    r"\bexpected [\d,]+ (?:bytes|values|items)\b|[\d,]+ (?:bytes )?of [\d,]+ bytes|"
    r"\b[\d,]+ bytes\b.{0,30}\b(?:wanted|expected|needed)\b|"
    r"\b(?:bad|wrong|invalid) (?:magic|header|length|size|checksum|crc)\b|magic number|\bchecksum|\bcrc\b|\bparse|"
    r"file signature|not a (?:valid )?(?:zip|hdf5|npy|npz|gzip|pickle) ?",
    re.IGNORECASE,
)
"""Errors of the form, the length or the checksum of what is read."""
OF_LOAD = re.compile(
    r"\b\w*(?:load|read|fetch|restore|unpack|unpickle|parse|decode|from_?file|from_?buffer|open)\w*\s*\(", re.IGNORECASE
)
"""A call by which a file is read, in the line of a frame."""
TRACEBACK = "Traceback (most recent call last)"
STARTED_NOTHING = 126
"""From this exit status on a shell says that a command was not found, could not be run, or was ended by a signal."""
MOST_LINES = 25
"""Last lines of a text in which an error and its file are looked for."""
INNER_LINES, LINES_BEHIND = 7, 2
"""Lines of the innermost frames; lines that a script that ends with 0 may print behind the error."""
TEXT_FORMS = frozenset(".json .jsonl .yaml .yml .toml .txt .cfg .ini .conf .csv .tsv .log .md .rst .xml .html .py .sh".split())
"""Suffixes of files that are no save."""
ALIKE = 0.9
"""The least share of the largest that siblings of one form make up: only then a shorter one is unlike them."""


class TrialDeath(NamedTuple):
    """How a start ended by an error of its own."""

    error: str
    """The line that says so; empty where its exit status alone does."""
    file: str
    """The file of the checkpoint folder that it read then; empty where that is not known."""
    is_sure: bool = False
    """Whether the error is surely of the program's own, so that the start is refuted; else whether it may go on is not known."""
    of_form: bool = False
    """Whether it is the form, length or checksum of that very file of which it died."""
    is_read: bool = False
    """Whether that file was seen to be read; an empty one never is."""

    @property
    def words(self) -> str:
        """For people."""
        read = f"read {self.file} and " if self.file else ""
        reason = "of its own error" if self.is_sure else "of an error that may be of the sandbox"
        return f"it {read}died {reason}" + (f": {self.error!r}" if self.error else "")


class _Ending(NamedTuple):
    """What a text says last."""

    line: str
    """The error where it is one, else the last line of the program's own."""
    inner: tuple[str, ...] = ()
    """The lines of the innermost frames of its traceback."""
    lines_after: int = 0
    """Lines of the program's own behind the error."""


def error_line(texts: Iterable[str]) -> str:
    """Return by which line a program that ended badly tells why: its own error rather than that of the launcher around it."""
    last = ""
    worded = ""
    for text in texts:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        own = [line for line in lines if not OF_LAUNCHER.search(line)]
        if error := next((line for line in reversed(own) if ERROR_LINE.match(line)), ""):
            return head_of(error, 200)
        worded = worded or next((line for line in reversed(own[-MOST_LINES:]) if ERROR_WORDS.search(line)), "")
        last = last or next(reversed(own or lines), "")
    return head_of(worded or last, 200)


def death_of(exit_code: int | None, texts: Sequence[str], read: Sequence[str], names: Iterable[str] = ()) -> TrialDeath | None:
    """Return how a start died by itself; None where it did not, or where the sandbox may be the reason.

    Args:
        exit_code: Of the script; None where the trial ended it. A script that goes on behind its dead program ends with 0: then the
            traceback in its last lines tells.
        texts: What it printed, and its logs.
        read: Files of the checkpoint folder that it read, in the order in which each was read first.
        names: Absolute paths of what lies in that folder: one that is empty is never seen to be read.
    """
    if exit_code is None:
        return None
    paths = list(dict.fromkeys((*read, *names)))
    endings = [ending for ending in map(_ending, texts) if ending.line]
    if any(_is_an_error(ending.line) and _is_of_sandbox(ending.line, paths) for ending in endings):
        return None
    errors = [ending for ending in endings if ERROR_LINE.match(ending.line) or OF_FORM.search(ending.line)]
    raised = [ending for ending in errors if ERROR_LINE.match(ending.line) and ending.inner]
    if (exit_code == 0 or exit_code >= STARTED_NOTHING) and not raised:
        return None
    lines = {ending.line for ending in errors}
    ending = errors[0] if len(lines) == 1 else _Ending("")
    is_last = ending.lines_after == 0 and exit_code != 0
    of_form = OF_FORM.search(ending.line) is not None
    is_sure = (of_form or OF_PROGRAM.match(ending.line) is not None) and (is_last or (exit_code == 0 and bool(raised)))
    read_file = _named_in(ending.line, paths) or (read[-1] if read and _is_in_load(ending) else "")
    file_for_people = read_file or (read[0] if len(read) == 1 else "")
    worded = next((item.line for item in reversed(endings) if ERROR_WORDS.search(item.line)), "")
    error = head_of(ending.line or worded, 200)
    return TrialDeath(error, file_for_people, is_sure, of_form and is_last and bool(read_file), read_file in read)


def _ending(text: str) -> _Ending:
    """Return what a program says last in a text, and where its last traceback says that it stood then."""
    lines = [line for line in text.splitlines() if line.strip()]
    starts = [place for place, line in enumerate(lines) if TRACEBACK in line]
    while starts and any(OF_LAUNCHER.search(line) and ERROR_LINE.match(line.strip()) for line in lines[starts[-1] :]):
        lines = lines[: starts.pop()]
    own = [line for line in lines if not OF_LAUNCHER.search(line)]
    if not own:
        return _Ending("")
    begin = max((place for place, line in enumerate(own) if TRACEBACK in line), default=None)
    if begin is None:
        return _Ending(own[-1].strip())
    error = max((place for place, line in enumerate(own) if place > begin and ERROR_LINE.match(line)), default=None)
    if error is None or len(own) - 1 - error > LINES_BEHIND:
        return _Ending(own[-1].strip())
    inner = tuple(own[begin:error][-INNER_LINES:])
    return _Ending(own[error].strip(), inner, len(own) - 1 - error)


def _is_an_error(line: str) -> bool:
    return any(pattern.search(line) for pattern in (ERROR_LINE, ERROR_WORDS, OF_FORM))


def _is_of_sandbox(line: str, paths: Sequence[str]) -> bool:
    """Tell whether what a text says last may be the fault of the sandbox; names of the job's own saves say nothing."""
    bare = line[rank.end() :] if (rank := OF_RANK.match(line)) else line
    folders = {str(parent) for path in paths for parent in list(PurePosixPath(path).parents)[:1]}
    for word in sorted({*paths, *folders, *(PurePosixPath(path).name for path in paths)}, key=len, reverse=True):
        bare = bare.replace(word, "") if len(word) > 1 else bare
    return OF_SANDBOX.search(bare) is not None or OF_ENVIRONMENT.search(bare) is not None


def _is_in_load(ending: _Ending) -> bool:
    return any(OF_LOAD.search(line) for line in ending.inner if not line.lstrip().startswith(("File ", "Traceback")))


def _named_in(line: str, paths: Sequence[str]) -> str:
    """Return the one path that a line names by its last parts; empty for none, or several."""
    for parts in (2, 1):
        ends = {path: "/".join(PurePosixPath(path).parts[-parts:]) for path in paths}
        paths_named = [path for path, end in ends.items() if re.search(rf"(?<![\w.-]){re.escape(end)}(?![\w-]|\.\w)", line)]
        if parts == 1:  # a name in another folder is another file
            paths_named = [path for path in paths_named if f"/{ends[path]}" not in line]
        if len(paths_named) == 1:
            return paths_named[0]
    return ""


class FileFacts(NamedTuple):
    """Size and time of a file."""

    size: int
    mtime: float


def damage_words(death: TrialDeath, files: Mapping[str, FileFacts], since: float | None) -> str:
    """Return why a file that a start died of must not be loaded; empty where that is not sure.

    Args:
        death: Of the start.
        files: All files of its folder, by their paths.
        since: When the attempt began, seconds since the epoch; None where that is not known: then no file is refused.
    """
    facts, path = files.get(death.file), PurePosixPath(death.file)
    if facts is None or not (death.is_sure and death.of_form) or since is None or facts.mtime < since:
        return ""
    if facts.size and not death.is_read:
        return ""
    if path.name in TRACKER_NAMES or path.suffix.lower() in TEXT_FORMS:
        return ""
    sizes = [sibling.size for name, sibling in files.items() if name != death.file and _is_alike(path, PurePosixPath(name))]
    least = min(sizes, default=0)
    if facts.size >= least or least < ALIKE * max(sizes, default=0):
        return ""
    reason = f"a start of its script read it in a sandbox and died: {death.error!r}"
    return f"torn: {facts.size:,} bytes, each of the others at least {least:,}; {reason}"


def _is_alike(path: PurePosixPath, sibling: PurePosixPath) -> bool:
    """Tell whether two files are of one form by their names, or of one name in two checkpoints."""
    return (
        path.name == sibling.name
        or (bool(path.suffix) and path.suffix == sibling.suffix)
        or name_form(path.name) == name_form(sibling.name)
    )
