"""Read files of content and of the site: into frozen dataclasses, strictly, and only where their writers are trusted.

An unknown key, a missing key or a wrong type of a TOML file names its place.

A policy, a settings file, a playbook or a program that another account may write is that account's way to act with the rights of
Nightshift. The check covers the file and every folder and link on the way to it, as sshd checks authorized_keys.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import os
import pwd
import re
import stat
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from assistant.errors import ContentError, MalformedContent, UnreadableFile
from assistant.untrusted import read_toml_tables
from assistant.way import steps_to

MOST_BYTES = 4 << 20
"""Of a file: larger ones are no text that a person wrote."""
_SORTS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def read_trusted(path: Path, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file that only root or this account may write; never waits for a pipe.

    Raises:
        ContentError: It is missing, no regular file, too large, cannot be read, or others may write it or a folder above it.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError as error:
        problem = "is a link that points to nothing" if path.is_symlink() else "does not exist"
        raise ContentError(f"{path}: {problem}") from error
    except (OSError, ValueError) as error:
        raise ContentError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        status = os.fstat(handle)
        why = _untrusted_file(path, status) or _untrusted_way(path)
        if why:
            raise ContentError(why)
        if status.st_size > most_bytes:
            raise ContentError(f"{path}: has {status.st_size} bytes; at most {most_bytes} are read")
        content = b""
        # one byte more: a file that grows meanwhile is not taken as if it ended there
        while (piece := os.read(handle, most_bytes + 1 - len(content))) and len(content) <= most_bytes:
            content += piece
    except OSError as error:
        raise ContentError(f"{path}: cannot be read: {error.strerror}") from error
    finally:
        os.close(handle)
    if len(content) > most_bytes:
        raise ContentError(f"{path}: has more than {most_bytes} bytes, and grows")
    return content


def must_be_trusted(path: Path) -> None:
    """Do nothing for a regular file that only root or this account may write.

    Raises:
        ContentError: Others may write it, or a folder above it; it is no regular file; it cannot be looked at.
    """
    why = untrusted_because(path)
    if why:
        raise ContentError(why)


def untrusted_because(path: Path) -> str:
    """Return why an existing file is not to be used, with what to do; empty where only root and this account may write it."""
    try:
        return _untrusted_file(path, path.stat()) or _untrusted_way(path)
    except (OSError, ValueError) as error:
        return f"{path}: cannot be looked at: {getattr(error, 'strerror', None) or error}"


def untrusted_folder_because(folder: Path) -> str:
    """Return why others could remove or replace what lies in a folder, with what to do; empty where they could not.

    A folder that does not exist is judged by the part of its way that does.
    """
    try:
        return _untrusted_way(folder)
    except FileNotFoundError:
        return untrusted_folder_because(folder.parent) if folder != folder.parent else ""
    except (OSError, ValueError) as error:
        return f"{folder}: cannot be looked at: {getattr(error, 'strerror', None) or error}"


def shared_folder_because(path: Path) -> str:
    """Return why others could make a file before we do, and so own it and remove it, with what to do; empty where they could not.

    In a folder that others may write the sticky bit guards a file of ours, and none that does not exist yet.
    """
    try:
        if os.path.lexists(path) and path.lstat().st_uid in (0, os.geteuid()):
            return ""
        folder = next(folder for folder in path.parents if os.path.lexists(folder))
        mode = stat.S_IMODE(folder.stat().st_mode)
    except (OSError, ValueError) as error:
        return f"{path}: cannot be looked at: {getattr(error, 'strerror', None) or error}"
    if mode & 0o022:
        return (
            f"{folder}: others may write it (mode {mode:04o}), and so make the file first; name a folder that only "
            f"{_owners_allowed()} may write"
        )
    return ""


def _untrusted_file(path: Path, status: os.stat_result) -> str:
    if not stat.S_ISREG(status.st_mode):
        sort = next((name for fits, name in _SORTS if fits(status.st_mode)), "something else")
        return f"{path}: is {sort}, wanted a regular file"
    return _writable_by_others(path, status)


def _writable_by_others(path: Path, status: os.stat_result) -> str:
    if status.st_uid not in (0, os.geteuid()):
        return (
            f"{path}: belongs to {_name(status.st_uid)}, who could change what Nightshift does; wanted "
            f"{_owners_allowed()}: chown {_name(os.geteuid())} {path}"
        )
    # with the sticky bit, as on /tmp, others may add files to a folder but neither rename nor remove those of ours
    sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    if status.st_mode & 0o022 and not sticky:
        mode = stat.S_IMODE(status.st_mode)
        return f"{path}: others may write it (mode {mode:04o}), and so change what Nightshift does: chmod go-w {path}"
    return ""


def _untrusted_way(path: Path) -> str:
    """Return what is wrong with the folders and links that lead to a file, empty when nothing is."""
    for step, status in steps_to(path):
        if stat.S_ISLNK(status.st_mode):
            # its mode says nothing; who owns it may point it elsewhere
            if status.st_uid not in (0, os.geteuid()):
                return f"{step}: the link belongs to {_name(status.st_uid)}, wanted {_owners_allowed()}"
        elif stat.S_ISDIR(status.st_mode):
            why = _writable_by_others(step, status)
            if why:
                return why
    return ""


def _owners_allowed() -> str:
    return " or ".join(dict.fromkeys((_name(0), _name(os.geteuid()))))


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


Record = TypeVar("Record")


def shipped(area: str) -> Path:
    """Return the folder of shipped content, such as `knowledge/reasons`."""
    return Path(str(files("assistant"))) / area


def content_files(area: str, site: Path | None = None, suffix: str = ".toml") -> Iterator[Path]:
    """Yield the files of an area by name, the site's file instead of a shipped one of the same name.

    Raises:
        ContentError: Others than root and this account may write a file of the site, or it is no regular file.
    """
    files = {path.name: path for path in shipped(area).glob(f"*{suffix}")}
    if site is not None and (site / area).is_dir():
        own = {path.name: path for path in (site / area).glob(f"*{suffix}")}
        for path in own.values():
            must_be_trusted(path)
        files |= own
    yield from (files[name] for name in sorted(files))


def knowledge_file(name: str, site: Path | None = None) -> Path:
    """Return a file of knowledge/: the site's where it has one, else the shipped one.

    Raises:
        ContentError: Others than root and this account may write the site's file, or it is no regular file.
    """
    own = site / "knowledge" / name if site is not None else None
    if own is None or not os.path.lexists(own):
        return shipped("knowledge") / name
    must_be_trusted(own)
    return own


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a file.

    Raises:
        ContentError: It cannot be read or is no TOML; the message says where.
    """
    try:
        return read_toml_tables(path)
    except OSError as error:
        raise ContentError(f"{path}: cannot be read: {error.strerror}") from error
    except MalformedContent as error:
        raise ContentError(f"{path}: {error}") from error
    except UnreadableFile as error:
        raise ContentError(str(error)) from error


def line_of(path: Path, key: str, occurrence: int = 0, start: int = 1) -> int:
    """Return the 1-based line on which a key (or a `[[table]]`) stands for the n-th time from a line on; that line when nowhere."""
    word = re.escape(key)
    pattern = re.compile(rf"^\s*(?:\[{{1,2}}\s*)?(?:[\w.-]+\.)?[\"']?{word}[\"']?\s*(?:=|\]|\.)|[{{,]\s*{word}\s*=")
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    hits = [number for number, line in lines if number >= start and pattern.search(line)]
    return hits[min(occurrence, len(hits) - 1)] if hits else start


Trail = tuple[tuple[str, int], ...]
"""From the top of a file down to a table: each table's key, and which of its list it is."""


def _start(path: Path, trail: Trail) -> int:
    """Return the line on which a table begins: its own `[[key]]` or `[key]`, else the line of the list that it stands in."""
    lines = path.read_text(encoding="utf-8").splitlines()
    start = 1
    for key, number in trail:
        first = line_of(path, key, 0, start)
        header = re.compile(rf"^\s*\[\[\s*(?:[\w.-]+\.)?{re.escape(key)}\s*\]\]")
        heads = [n for n, line in enumerate(lines, 1) if n >= first and header.match(line)]
        start = heads[number] if heads and heads[0] == first and number < len(heads) else first
    return start


def wrong(path: Path, key: str, problem: str, *, occurrence: int = 0, trail: Trail = ()) -> ContentError:
    """Return the error for a key of a file."""
    return ContentError(f"{path}:{line_of(path, key, occurrence, _start(path, trail))}: {key}: {problem}")


def build(kind: type[Record], table: Mapping[str, Any], path: Path, *, trail: Trail = ()) -> Record:
    """Make a dataclass of a TOML table.

    Args:
        kind: A dataclass whose fields are str, int, float, bool, enums, Path, tuples of these, mappings, or dataclasses again.
        table: The table as tomllib gives it.
        path: The file, for messages.
        trail: Where in the file the table stands, for messages.

    Raises:
        ContentError: A key is unknown, missing or of the wrong type.
    """
    known_fields = _FIELDS.get(kind) or _FIELDS.setdefault(kind, _fields(kind))
    for key in table:
        if key not in known_fields:
            near = difflib.get_close_matches(key, known_fields, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise wrong(path, key, f"unknown key{hint} known: {', '.join(sorted(known_fields))}", trail=trail)
    values: dict[str, Any] = {}
    for name, (hint_type, required) in known_fields.items():
        if name in table:
            values[name] = _value(hint_type, table[name], path, name, trail)
        elif required:
            place = f"{path}:{_start(path, trail)}" if trail else str(path)
            raise ContentError(f"{place}: key {name!r} is missing{f' in [{trail[-1][0]}]' if trail else ''}")
    try:
        return kind(**values)
    except ValueError as error:
        raise ContentError(f"{path}:{_start(path, trail)}: {error}") from error


_FIELDS: dict[type, dict[str, tuple[Any, bool]]] = {}


def _fields(kind: type) -> dict[str, tuple[Any, bool]]:
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"{kind} is no dataclass")
    hints = typing.get_type_hints(kind)
    return {
        f.name: (hints[f.name], f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING)
        for f in dataclasses.fields(kind)
        if f.init and not f.name.startswith("_")
    }


def _value(expected: Any, value: Any, path: Path, key: str, trail: Trail) -> Any:
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin in (typing.Union, types.UnionType):
        return _value(next(a for a in arguments if a is not type(None)), value, path, key, trail)
    if origin is tuple:
        if not isinstance(value, list):
            raise wrong(path, key, f"must be a list, not {value!r}", trail=trail)
        return tuple(_item(arguments[0], item, path, key, trail, n) for n, item in enumerate(value))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise wrong(path, key, f"must be a table, not {value!r}", trail=trail)
        return {str(k): _value(arguments[1], v, path, str(k), (*trail, (key, 0))) for k, v in value.items()}
    if dataclasses.is_dataclass(expected) and isinstance(expected, type):
        if not isinstance(value, dict):
            raise wrong(path, key, f"must be a table, not {value!r}", trail=trail)
        return build(expected, value, path, trail=(*trail, (key, 0)))
    return _scalar(expected, value, path, key, trail)


def _item(expected: Any, value: Any, path: Path, key: str, trail: Trail, number: int) -> Any:
    """Return one item of a list; a table among them begins on a line of its own."""
    if dataclasses.is_dataclass(expected) and isinstance(expected, type) and isinstance(value, dict):
        return build(expected, value, path, trail=(*trail, (key, number)))
    return _value(expected, value, path, key, trail)


def _scalar(expected: Any, value: Any, path: Path, key: str, trail: Trail) -> Any:
    if expected is Any or expected is object:
        return value
    if isinstance(expected, type) and issubclass(expected, enum.StrEnum):
        try:
            return expected(value)
        except ValueError:
            near = difflib.get_close_matches(str(value), [str(m) for m in expected], n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            listed = ", ".join(str(m) for m in expected)
            raise wrong(path, key, f"{value!r} is none of: {listed}{hint}", trail=trail) from None
    if expected is Path and isinstance(value, str):
        return Path(value).expanduser()
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(expected, type) and isinstance(value, expected) and (expected is bool or not isinstance(value, bool)):
        return value
    raise wrong(path, key, f"must be {getattr(expected, '__name__', expected)}, not {value!r}", trail=trail)


# Wordings that the line ranker is trained on: how real programs tell of each reason, and what only looks like it.

AREA = "knowledge/ranker"


@dataclass(frozen=True)
class Wordings:
    """Lines of one reason; `{host}`, `{path}`, `{n}` and the like stand for what differs from run to run."""

    reason: str
    """One of the known reasons, or `none` for lines that speak for no reason."""
    root: str = ""
    """One a line: what an expert would cite."""
    symptom: str = ""
    """Names the reason, but follows from something else as often as not."""
    quiet: str = ""
    """Speaks for no reason, though it holds its words: warnings, recovered trouble, teardown, healthy lines."""

    def lines(self, kind: str) -> tuple[str, ...]:
        """Return the wordings of a kind."""
        return tuple(line for line in getattr(self, kind).split("\n") if line.strip())


@cache
def wordings(site: Path | None = None) -> Mapping[str, Wordings]:
    """Return the wordings by reason, the site's files over the shipped ones.

    Raises:
        ContentError: A file is malformed or not named after its reason.
    """
    wordings_by_reason: dict[str, Wordings] = {}
    for path in content_files(AREA, site):
        entry = build(Wordings, read_toml(path), path)
        if entry.reason != path.stem:
            raise ContentError(f"{path}:1: reason: is {entry.reason!r}, but the file is named {path.stem!r}")
        wordings_by_reason[entry.reason] = entry
    return wordings_by_reason


# The Filter Rules of log compression: patterns of routine lines, in knowledge/filters/*.toml.


@dataclass(frozen=True)
class Filter:
    """A pattern of routine lines of one program.

    It must match each line at one place only (anchor it), compile in Hyperscan and `re`, and match no line of the protected corpus.
    """

    id: str
    pattern: str
    examples: tuple[str, ...]
    folds: str
    """What the lines are, for `… 1,204 lines of <folds>`."""
    metric: bool = False
    """Whether the line carries loss or step: hidden from people, read by the watches."""


@dataclass(frozen=True)
class _FilterFile:
    program: str
    source: str
    filter: tuple[Filter, ...]


@cache
def filters(site: Path | None = None) -> tuple[Filter, ...]:
    """Return every filter, in the order of file and place.

    Raises:
        ContentError: A file is malformed or an id is used twice.
    """
    filters_by_id: dict[str, Filter] = {}
    for path in content_files("knowledge/filters", site):
        for entry in build(_FilterFile, read_toml(path), path).filter:
            if entry.id in filters_by_id:
                raise ContentError(f"{path}: id {entry.id!r} is used twice")
            filters_by_id[entry.id] = entry
    return tuple(filters_by_id.values())


# Names that libraries took away, and packages that are named otherwise than their module: knowledge/renames.toml.


@dataclass(frozen=True)
class Rename:
    """A name that a library no longer has, and what replaced it."""

    old: str
    """Attribute, argument, module or function."""
    library: str
    now: str
    """What stands in its place."""
    since: str
    """First version of the library for which that holds."""
    of: str = ""
    """Words that the message has to hold besides, where the name alone may mean something else."""


@dataclass(frozen=True)
class _File:
    rename: tuple[Rename, ...]
    package: Mapping[str, str]
    """What to install, by the module that is missing."""


@cache
def _renames_file() -> _File:
    path: Path = knowledge_file("renames.toml")
    return build(_File, read_toml(path), path)


def successor_of(name: str, message: str) -> Rename | None:
    """Return what became of a name that a message complains of; None where that is not known."""
    return next((rename for rename in _renames_file().rename if rename.old == name and rename.of in message), None)


def package_for(module: str) -> str:
    """Return the package that holds a module, where its name differs; else empty."""
    packages = _renames_file().package
    return packages.get(module) or packages.get(module.partition(".")[0], "")
