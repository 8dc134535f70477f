"""The folders that a script looks into, as its commands would see them: entries, patterns of names, orders of names."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import NamedTuple

Collation = Callable[[str], tuple[str, ...]]


class Unresolved(Exception):
    """What a command prints can only be told by running it."""


class FolderEntry(NamedTuple):
    """What a folder holds by one name."""

    name: str
    folder: bool
    """Whether it is a folder, or a link to one."""
    changed_ns: int
    """Of the entry itself, since 1970."""
    size: int
    link: str = ""
    """Where it leads, as written; empty for what is no link."""


List = Callable[[str], Sequence[FolderEntry] | None]
"""Returns what a folder holds, by its absolute path: nothing where there is none, None where that cannot be told."""
MOST_FOUND = 20_000
MOST_LINKS = 16
MAGIC = re.compile(r"[*?\[]")
PROTECTED = {"*": "\ue010", "?": "\ue011", "[": "\ue012"}
"""How characters of patterns are written that the script quotes."""


def protected(text: str) -> str:
    """Return a text in which no character means a pattern."""
    return text.translate({ord(key): value for key, value in PROTECTED.items()})


def plain(text: str) -> str:
    """Return a text as it was before `protected`."""
    return text.translate({ord(value): key for key, value in PROTECTED.items()})


def by_bytes(text: str) -> tuple[str, ...]:
    """Order names as `LC_ALL=C` does."""
    return (text,)


def by_letters(text: str) -> tuple[str, ...]:
    """Order names as languages do: punctuation and capitals count last."""
    return (re.sub(r"[^0-9a-z]+", "", text.lower()), text.lower(), text.swapcase())


def version_key(text: str) -> tuple[object, ...]:
    """Order names as `ls -v` and `sort -V` do: numbers in them by their value.

    Source: gnulib, filevercmp.c: suffixes of files count last, a tilde first, letters before other characters.
    """
    stem = re.sub(r"(?:\.[A-Za-z~][A-Za-z0-9~]{0,80}){0,8}$", "", text)
    return (_numbered(stem or text), _numbered(text), text)


def _numbered(text: str) -> tuple[object, ...]:
    parts = re.split(r"(\d+)", text)
    return tuple(
        int(part[:1000] or 0) if place % 2 else (*(_weight(letter) for letter in part), 0) for place, part in enumerate(parts)
    )


def _weight(letter: str) -> int:
    return -1 if letter == "~" else ord(letter) if letter.isalpha() else ord(letter) + 1000


@dataclass
class FolderView:
    """What commands see of folders; some paths may be left out, as if they had been moved away."""

    listing: List
    hidden: frozenset[str] = frozenset()
    used: set[str] = field(default_factory=set)
    """Paths that a command which lists folders came to."""
    origins: set[str] = field(default_factory=set)
    """Files that the script chose by looking into folders."""
    matched: set[str] = field(default_factory=set)
    """Paths that a pattern in an array meant: which of them is chosen is told later."""
    open: bool = True
    """False: nothing is known of folders, and files that a run may write are not believed."""

    @classmethod
    def closed(cls) -> FolderView:
        """Return the view of one who may not look into folders."""
        return cls(lambda _: None, open=False)

    def entries(self, folder: str) -> list[FolderEntry]:
        """Return what a folder holds.

        Raises:
            Unresolved: It cannot be told.
        """
        held = self.listing(folder)
        if held is None:
            raise Unresolved(folder)
        return [entry for entry in held if joined(folder, entry.name) not in self.hidden]

    def entry(self, path: str) -> FolderEntry | None:
        """Return what lies at an absolute path; None where nothing does."""
        pure = PurePosixPath(path)
        if len(pure.parts) < 2:
            return FolderEntry("/", True, 0, 0)
        return next((entry for entry in self.entries(str(pure.parent)) if entry.name == pure.name), None)

    def real(self, path: str) -> str:
        """Return an absolute path with its links followed, as `readlink -f` does."""
        for _ in range(MOST_LINKS):
            parts = PurePosixPath(path).parts
            for count in range(2, len(parts) + 1):
                entry = self.entry(str(PurePosixPath(*parts[:count])))
                if entry is not None and entry.link:
                    above = str(PurePosixPath(*parts[: count - 1]))
                    path = normal(joined(above, entry.link), *parts[count:])
                    break
                if entry is None:
                    return path
            else:
                return path
        raise Unresolved(path)

    def matching(self, pattern: str, folder: str, order: Collation) -> list[str]:
        """Return the paths that a pattern of a shell means, as the shell writes them; none where none matches.

        Raises:
            Unresolved: A folder cannot be read, or the pattern is of a kind that is not followed.
        """
        if re.search(r"\{[^{}]*(?:,|\.\.)[^{}]*\}|\[\[?[:.=]|[@!+]\(", pattern):
            raise Unresolved(pattern)
        start, parts = ("/", pattern.strip("/").split("/")) if pattern.startswith("/") else ("", pattern.rstrip("/").split("/"))
        reached = [start]
        for part in parts:
            reached = [path for base in reached for path in self._step(base, part, folder)]
            if len(reached) > MOST_FOUND:
                raise Unresolved(pattern)
        if pattern.endswith("/"):
            reached = [f"{path}/" for path in reached if (held := self.entry(absolute(path, folder))) and held.folder]
        return sorted(reached, key=order)

    def _step(self, base: str, part: str, folder: str) -> Iterator[str]:
        if not part or part in (".", ".."):
            yield f"{base}{part}" if base in ("", "/") else f"{base}/{part}"
            return
        above = absolute(base or ".", folder)
        before = base if base in ("", "/") else f"{base}/"
        if not MAGIC.search(part):
            if self.entry(joined(above, plain(part))) is not None:
                yield f"{before}{plain(part)}"
            return
        for entry in self.entries(above):
            shown = not entry.name.startswith(".") or part.startswith(".")
            if shown and name_matches(entry.name, part):
                yield f"{before}{entry.name}"


def name_matches(name: str, pattern: str) -> bool:
    """Tell whether a name matches a pattern of a shell, of which some characters may be protected."""
    pieces = re.split(r"([\ue010-\ue012])", pattern)
    return fnmatch.fnmatchcase(name, "".join(f"[{plain(piece)}]" if piece in PROTECTED.values() else piece for piece in pieces))


def joined(folder: str, path: str) -> str:
    """Return a path as it is seen from a folder."""
    return str(PurePosixPath(folder) / path)


def absolute(path: str, folder: str) -> str:
    """Return a path of a script as an absolute one, without `.` and `..`."""
    return normal(joined(folder, path))


def normal(path: str, *more: str) -> str:
    """Return a path without `.` and `..`."""
    parts: list[str] = []
    for part in PurePosixPath(path, *more).parts:
        if part == "..":
            parts = parts[:-1] if len(parts) > 1 else parts
        elif part != ".":
            parts.append(part)
    return str(PurePosixPath(*parts)) if parts else "."
