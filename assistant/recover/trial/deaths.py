"""How a trial start died by itself, of which file, and what that says about the file. Pure.

A program that ended with an error of its own does the same outside the sandbox. What the sandbox itself withholds (network, peers,
writable disks, GPUs, its memory), what the node lacks, a signal and a time that was over say nothing of the start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from assistant.redact import head_of

ERROR_LINE = re.compile(r"(?:\[?(?:rank)?\d{1,6}\]?:? ?)?(?:\w{1,60}\.){0,6}\w{0,60}(?:Error|Exception|BadZipFile)\b:? ")
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
    r"network|unreachable|name resolution|resolve|getaddrinfo|connect|socket|rendezvous|rdzv|c10d|tcpstore|diststore|nccl|gloo|"
    r"\bmpi|\bpeers?\b|cuda|\bgpus?\b|nvidia|\bdevices?\b|\bdrivers?\b|read-?only|no space|quota|memory|alloc|permission|"
    r"not permitted|denied|timed? ?out|munge|slurm|\bsrun\b|module|import|command not found|shared (?:object|librar)|licen[cs]e|"
    r"https?://|wandb|"
    r"(?<![\w.])/(?:tmp|scratch|local\w*|dev|run|var|proc|sys|nvme\w*)/",
    re.IGNORECASE,
)
"""Words of errors that the sandbox, or what a single node lacks, may be the reason of."""
OF_ITS_DISKS = re.compile(r"read-?only|no space|quota|memory|permission|not permitted|denied|cuda|\bgpus?\b", re.IGNORECASE)
"""The same of an error that names a file which the start read."""
STARTED_NOTHING = 126
"""From this exit status on a shell says that a command was not found, could not be run, or was ended by a signal."""
MOST_LINES = 25
"""Last lines of a text in which an error and its file are looked for."""


class TrialDeath(NamedTuple):
    """How a start ended by an error of its own."""

    error: str
    """The line that says so; empty where its exit status alone does."""
    file: str
    """The file of the checkpoint folder that it read then; empty where that is not known."""

    @property
    def words(self) -> str:
        """For people."""
        read = f"read {self.file} and " if self.file else ""
        return f"it {read}died of its own error" + (f": {self.error!r}" if self.error else "")


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
    line = error_line(texts)
    raised = ERROR_LINE.match(line) is not None and any("Traceback (most recent call last)" in text for text in texts)
    swallowed = exit_code == 0 and raised and any(line in "\n".join(text.splitlines()[-MOST_LINES:]) for text in texts)
    if exit_code is None or not (exit_code or swallowed) or (exit_code >= STARTED_NOTHING and not raised):
        return None
    paths = list(dict.fromkeys((*read, *names)))
    bare = line
    for folder in sorted({str(Path(path).parent) for path in paths}, key=len, reverse=True):
        bare = bare.replace(folder, "")
    if (OF_ITS_DISKS if _named_in(line, paths) else OF_SANDBOX).search(bare):
        return None
    is_error = ERROR_LINE.match(line) is not None or ERROR_WORDS.search(line) is not None
    return TrialDeath(line if is_error else "", _file_read_last(texts, line, read, paths))


def _file_read_last(texts: Sequence[str], error: str, read: Sequence[str], paths: Sequence[str]) -> str:
    """Return the file that a program read when it died: that its error or one of its last lines names, else the only one read."""
    if path_named := _named_in(error, paths):
        return path_named
    for text in texts:
        for line in reversed(text.splitlines()[-MOST_LINES:]):
            if path_named := _named_in(line, read):
                return path_named
    return read[0] if len(read) == 1 else ""


def _named_in(line: str, paths: Sequence[str]) -> str:
    """Return the one path that a line names by its last parts; empty for none, or several."""
    for parts in (2, 1):
        ends = {path: "/".join(PurePosixPath(path).parts[-parts:]) for path in paths}
        paths_named = [path for path, end in ends.items() if re.search(rf"(?<![\w.-]){re.escape(end)}(?![\w-]|\.\w)", line)]
        if len(paths_named) == 1:
            return paths_named[0]
    return ""


class FileFacts(NamedTuple):
    """Size and time of a file."""

    size: int
    mtime: float


def damage_words(death: TrialDeath, files: Mapping[str, FileFacts]) -> str:
    """Return why a file that a start died of must not be loaded; empty where neither its size nor its time speaks against it.

    Args:
        death: Of the start.
        files: All files of its folder, by their paths: those with its suffix are its siblings.
    """
    facts = files.get(death.file)
    if facts is None or not death.error:
        return ""
    suffix = PurePosixPath(death.file).suffix
    siblings = [sibling for path, sibling in files.items() if path != death.file and PurePosixPath(path).suffix == suffix]
    reason = f"a start of its script read it in a sandbox and died: {death.error!r}"
    least = min((sibling.size for sibling in siblings), default=0)
    if facts.size < least:
        return f"torn: {facts.size:,} bytes, each of the others at least {least:,}; {reason}"
    if siblings and facts.mtime > max(sibling.mtime for sibling in siblings):
        return f"torn or of no use: it is the newest, and {reason}"
    return ""
