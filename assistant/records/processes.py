"""What the processes of a running job were seen to write and where they work: open files, working folders, variables.

A `ProcessReport` is stored while the job lives and attached to its `Job` (`Job.processes`), so that it is there after the job died.
Every path and name in it was chosen by the job's owner and is untrusted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

MOST_FILES = 256
"""Open files of a job that are kept, over all looks."""
MOST_FOLDERS = 64
"""Working folders and variables of a job that are kept, over all looks."""
_MOST_INTEGER = 2**64
"""Inodes of parallel file systems take all 64 bits."""


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A regular file that a process of a job had open for writing."""

    path: Path
    """Absolute, as the node itself sees it (outside of a container)."""
    node: str
    pid: int
    at: datetime
    """When it was seen open for the last time."""
    inode: int
    size_bytes: int
    offset_bytes: int
    """Where the process writes next; with `appends` the end of the file counts."""
    appends: bool
    """Whether it was opened with O_APPEND: what stood in it before may still stand there."""
    write_only: bool = False
    created: datetime | None = None
    """Birth time of the file; None where the file system does not keep one."""
    shared: bool = False
    """Whether another job was seen to have it open as well: its lines are of both."""

    @property
    def source(self) -> str:
        """Say where the path comes from, for people."""
        return f"open file of process {self.pid} on {self.node} at {self.at:%H:%M}"


@dataclass(frozen=True, slots=True)
class ProcessFolder:
    """A folder that a process of a job works in, or that a variable of its environment names."""

    path: Path
    """Absolute, as the node itself sees it (outside of a container)."""
    node: str
    pid: int
    at: datetime
    variable: str = ""
    """Name of the variable; empty for the working folder."""
    inode: int = 0
    """Of the working folder; 0 where it is not known."""

    @property
    def source(self) -> str:
        """Say where the path comes from, for people."""
        location = f"{self.variable} in the environment" if self.variable else "working folder"
        return f"{location} of process {self.pid} on {self.node} at {self.at:%H:%M}"


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """Files and folders that the processes of one attempt of a job were seen to use, over all looks."""

    at: datetime
    """Time of the last look."""
    looks: int = 1
    """How many looks were taken."""
    files: tuple[OpenFile, ...] = ()
    folders: tuple[ProcessFolder, ...] = ()
    unknown: Mapping[str, str] | None = None
    """Why nodes showed nothing at the last look, by node."""

    def merged(self, later: ProcessReport) -> ProcessReport:
        """Return this report with those of a later look: what is seen again replaces what was seen before."""
        files = {(file.node, file.path, file.inode): file for file in self.files}
        for file in later.files:
            before = files.get(key := (file.node, file.path, file.inode))
            files[key] = replace(file, shared=file.shared or (before is not None and before.shared))
        folders: dict[tuple[Path, str], ProcessFolder] = {}
        for folder in (*self.folders, *later.folders):
            folders.setdefault((folder.path, folder.variable), folder)
        return replace(
            later,
            looks=self.looks + later.looks,
            files=tuple(files.values())[-MOST_FILES:],
            folders=tuple(folders.values())[-MOST_FOLDERS:],
        )


def with_shared(report: ProcessReport, other_report: ProcessReport) -> ProcessReport:
    """Return a report in which the files are marked that the processes of another job had open as well."""
    other_files = {(file.path, file.inode) for file in other_report.files}
    files = tuple(replace(file, shared=True) if (file.path, file.inode) in other_files else file for file in report.files)
    return report if files == report.files else replace(report, files=files)


def report_of(value: Mapping[str, Any]) -> ProcessReport:
    """Return the report of a JSON object, as `tooling.to_json` writes it.

    Raises:
        ValueError: It is no report.
    """
    try:
        files = [_built(OpenFile, file) for file in _list(value["files"])]
        folders = [_built(ProcessFolder, folder) for folder in _list(value["folders"])]
        unknown = {str(node): str(why) for node, why in (value.get("unknown") or {}).items()}
        at, looks = datetime.fromisoformat(value["at"]), _integer(value["looks"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no report of processes: {error!r}") from error
    return ProcessReport(at, looks, tuple(files[:MOST_FILES]), tuple(folders[:MOST_FOLDERS]), unknown)


def _built(kind: type[Any], value: Mapping[str, Any]) -> Any:
    """Return a record of a JSON object, each field read as its annotation says."""
    readers: dict[str, Callable[[Any], Any]] = {
        "Path": _path,
        "datetime": datetime.fromisoformat,
        "datetime | None": _time,
        "int": _integer,
        "bool": bool,
        "str": str,
    }
    values = {field.name: readers[str(field.type)](value[field.name]) for field in fields(kind) if field.name in value}
    return kind(**values)


def _list(value: Any) -> Sequence[Any]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TypeError(f"a list was wanted, found {type(value).__name__}")
    return value


def _path(value: str) -> Path:
    if not value.startswith("/") or "\x00" in value:
        raise ValueError(f"no absolute path: {value[:200]!r}")
    return Path(value)


def _time(value: str | None) -> datetime | None:
    return None if value is None else datetime.fromisoformat(value)


def _integer(value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST_INTEGER:
        raise ValueError(f"no number of a file or process: {value!r}")
    return value
