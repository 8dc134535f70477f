"""Folders and files as a script, a container and the owner of a job see them.

A script sees entries, patterns of names and orders of names; the owner's looks have the rights of the owner and are never waited
for long.

A container has folders of the host behind its mount points: read off the options of docker, podman, apptainer, singularity, pyxis
(`srun --container-mounts`), enroot, shifter, sarus and Charliecloud. The longest mount point that holds a path counts. Source: the
manuals of these programs; pyxis takes `SRC:DST[:FLAGS]`, a lone `SRC` is mounted where it lies.
"""

from __future__ import annotations

import fnmatch
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from assistant.errors import InputError
from assistant.records import Job
from assistant.untrusted import LOOK_S, is_folder, list_folder, reading_as, status_of, within

UNRESOLVED = "\ufffc"
"""Stands in a word for what cannot be told without running the script."""

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
        listing = self.listing(folder)
        if listing is None:
            raise Unresolved(folder)
        return [entry for entry in listing if joined(folder, entry.name) not in self.hidden]

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
            reached = [
                f"{path}/" for path in reached if (reached_entry := self.entry(absolute(path, folder))) and reached_entry.folder
            ]
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
            is_shown = not entry.name.startswith(".") or part.startswith(".")
            if is_shown and name_matches(entry.name, part):
                yield f"{before}{entry.name}"


def name_matches(name: str, pattern: str) -> bool:
    """Tell whether a name matches a pattern of a shell, of which some characters may be protected."""
    pieces = re.split(r"([\ue010-\ue012])", pattern)
    return fnmatch.fnmatchcase(name, "".join(f"[{plain(piece)}]" if piece in PROTECTED.values() else piece for piece in pieces))


def trimmed(value: str, sign: str, pattern: str) -> str:
    """Return a text without its beginning (`#`, `##`) or end (`%`, `%%`) that a pattern matches, the shortest or the longest."""
    lengths = range(len(value) + 1) if len(sign) == 1 else range(len(value), -1, -1)
    for length in lengths:
        cut = value[:length] if sign[0] == "#" else value[len(value) - length :]
        if name_matches(cut, pattern):
            return value[length:] if sign[0] == "#" else value[: len(value) - length]
    return value


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


DOCKERS = frozenset(("docker", "podman", "podman-hpc", "nerdctl"))
APPTAINERS = frozenset(("apptainer", "singularity"))
OTHERS = frozenset(("shifter", "sarus", "ch-run", "enroot"))
RUNTIMES = DOCKERS | APPTAINERS | OTHERS
PYXIS = re.compile(r"--container-(?:image|mounts|name|workdir)(?:=|$)")
BIND_OPTIONS = ("--bind", "-B", "-b", "--volume", "-v", "-V", "--container-mounts")
MOUNT_OPTIONS = ("--mount", "-m")
FOLDER_OPTIONS = ("--workdir", "-w", "--pwd", "--cwd", "--container-workdir", "--cd", "-c")
PROGRAMS = re.compile(r"python[\d.]*|torchrun|accelerate|deepspeed|bash|sh|zsh|\S+\.(?:py|sh)")
"""Programs that are run in containers: what stands behind them are options of their own."""
BIND_VARIABLES = ("APPTAINER_BIND", "APPTAINER_BINDPATH", "SINGULARITY_BIND", "SINGULARITY_BINDPATH")


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder of the host that a container sees."""

    outside: str
    """Absolute, or with `UNRESOLVED`."""
    inside: str
    writable: bool = True


@dataclass(frozen=True, slots=True)
class Container:
    """What a container sees of the host."""

    mounts: tuple[Mount, ...]
    folder: str = ""
    """Where its program begins, as seen inside; empty where the image decides."""
    same: tuple[str, ...] = ()
    """Folders of the host that lie at the same path inside."""

    def outside(self, path: str, folder: str = "") -> Path | None:
        """Return where a path of the container lies on the host; None where that is not known, or in the image.

        Args:
            path: As the program is given it.
            folder: What a relative one is seen from, inside; its first folder where it is empty.
        """
        whole = self._whole(path, folder or self.folder)
        if not whole:
            return None
        for mount in sorted(self.mounts, key=lambda mount_point: len(mount_point.inside), reverse=True):
            if _below(whole, mount.inside):
                source_known = UNRESOLVED not in mount.outside
                return Path(mount.outside + whole[len(mount.inside.rstrip("/")) :]) if source_known else None
        return Path(whole) if any(_below(whole, shared_folder) for shared_folder in self.same) else None

    def inside(self, path: Path) -> str | None:
        """Return where a folder or file of the host lies in the container; None where it does not see it."""
        for mount in sorted(self.mounts, key=lambda mount_point: len(mount_point.outside), reverse=True):
            if _below(str(path), mount.outside) and UNRESOLVED not in mount.outside:
                return mount.inside.rstrip("/") + str(path)[len(mount.outside.rstrip("/")) :] or "/"
        return str(path) if any(_below(str(path), shared_folder) for shared_folder in self.same) else None

    def _whole(self, path: str, folder: str) -> str:
        if not path or UNRESOLVED in path or path.startswith("~"):
            return ""
        if not path.startswith("/") and (not folder.startswith("/") or UNRESOLVED in folder):
            return ""
        return absolute(path, folder or "/")


def _below(path: str, folder: str) -> bool:
    return PurePosixPath(folder) in (PurePosixPath(path), *PurePosixPath(path).parents)


def container_of(words: Sequence[str], folder: str, variables: Mapping[str, str]) -> Container | None:
    """Return the container that a command runs its program in; None where it uses none.

    Args:
        words: Of the command, expanded.
        folder: Where it runs, on the host.
        variables: Of its shell.
    """
    names = [PurePosixPath(word).name for word in words]
    begin = next((place for place, name in enumerate(names) if place and PROGRAMS.fullmatch(name)), len(words))
    words, names = words[:begin], names[:begin]
    runtime = next((place for place, name in enumerate(names[:40]) if name in RUNTIMES), None)
    pyxis = next((True for word in words[:60] if PYXIS.match(word)), False) if "srun" in names[:3] else False
    if runtime is None and not pyxis:
        return None
    program = names[runtime] if runtime is not None else "srun"
    mounts: list[Mount] = []
    begins = ""
    for name, value in _options(words[(runtime or 0) + 1 :]):
        if runtime is None and not name.startswith("--container-"):
            continue  # -w, -m and -v of srun mean something else
        if name in MOUNT_OPTIONS and "=" in value:
            mounts += _of_fields(value)
        elif name in BIND_OPTIONS or name in MOUNT_OPTIONS:
            if name in ("-v", "-V", "-b") and program in APPTAINERS:
                continue
            mounts += [colon for part in value.split(",") for colon in _of_colons(part)]
        elif name in FOLDER_OPTIONS and not (name == "-c" and program != "ch-run") and not (name == "-w" and program in APPTAINERS):
            begins = value
    same: tuple[str, ...] = ()
    if program in APPTAINERS:
        mounts += [colon for name in BIND_VARIABLES for part in variables.get(name, "").split(",") for colon in _of_colons(part)]
        contained = any(word in ("--contain", "--containall", "-c", "-C", "--no-home") for word in words[: (runtime or 0) + 30])
        same = () if contained else tuple(path for path in (folder, variables.get("HOME", ""), "/tmp") if path.startswith("/"))
        begins = begins or folder
    return Container(tuple(_placed(mount, folder) for mount in mounts), begins, same)


def pyxis_options(script: str) -> list[str]:
    """Return the options for containers of the `#SBATCH` lines, as words of a command of srun."""
    return ["srun", *re.findall(r"^#SBATCH[ \t]+(--container-(?:mounts|image|workdir)=\S{1,4000})", script, re.MULTILINE)]


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield options with their values, of both forms: `--bind=A:B` and `--bind A:B`; of short ones also `-vA:B`."""
    options_known = (*BIND_OPTIONS, *MOUNT_OPTIONS, *FOLDER_OPTIONS)
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if equals and name in options_known and name.startswith("--"):
            yield name, value
        elif word in options_known and place + 1 < len(words):
            yield word, words[place + 1]
        elif re.match(r"-[vBbwm][/$.\w]", word) and not word.startswith("--"):
            yield word[:2], word[2:]


def _of_colons(text: str) -> Iterator[Mount]:
    """Yield the mount of `SRC:DST[:FLAGS]`, or of a lone path that lies at the same place inside."""
    source, _, colon_rest = text.strip().partition(":")
    target, _, flags = colon_rest.partition(":")
    if not source or (target and not target.startswith("/")):
        return
    if not source.startswith(("/", ".", "~", UNRESOLVED)) and "/" not in source:
        return  # a volume that docker keeps, which lies nowhere that is known
    readonly = bool({"ro", "readonly"} & set(re.split(r"[,+]", flags)))
    yield Mount(source, target or source, writable=not readonly)


def _of_fields(text: str) -> Iterator[Mount]:
    """Yield the mount of `type=bind,source=A,target=B[,readonly]`."""
    fields = {part.partition("=")[0].strip(): part.partition("=")[2].strip() for part in text.split(",")}
    source = next((fields[key] for key in ("source", "src") if fields.get(key)), "")
    target = next((fields[key] for key in ("target", "destination", "dst") if fields.get(key)), "")
    if source and target.startswith("/") and fields.get("type", "bind") == "bind":
        readonly = any(key in fields and fields[key] not in ("false", "0") for key in ("readonly", "ro"))
        yield Mount(source, target, writable=not readonly)


def _placed(mount: Mount, folder: str) -> Mount:
    """Return a mount whose paths are absolute: sources are seen from where the command runs."""
    outside = mount.outside
    if UNRESOLVED not in outside + folder and not outside.startswith("~"):
        outside = absolute(outside, folder or "/")
    elif not outside.startswith("/") or outside.startswith("~"):
        outside = UNRESOLVED
    return Mount(outside, absolute(mount.inside, "/"), mount.writable)


MOST_LISTED = 20_000
CLOCKS_APART = timedelta(seconds=120)
"""How far the clocks of a file server and of the scheduler may lie apart."""


def listed_folder(account: str, folder: str) -> tuple[FolderEntry, ...] | None:
    """Return what a folder holds, with the rights of a job's owner: nothing where there is none, None where that is not known."""

    def look() -> tuple[FolderEntry, ...]:
        return tuple(_entry(child) for child in list_folder(Path(folder), MOST_LISTED))

    try:
        with reading_as(account):
            return within(LOOK_S, look, folder)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except (OSError, InputError, ValueError):
        return None


def _entry(path: Path) -> FolderEntry:
    about = path.lstat()
    link = str(path.readlink()) if stat.S_ISLNK(about.st_mode) else ""
    return FolderEntry(path.name, is_folder(path) if link else stat.S_ISDIR(about.st_mode), about.st_mtime_ns, about.st_size, link)


def file_test(account: str, hidden: frozenset[str], letter: str, path: str) -> bool | None:
    """Answer `[ -f PATH ]` with the rights of a job's owner; None where that cannot be told."""
    if any(str(parent) in hidden for parent in (PurePosixPath(path), *PurePosixPath(path).parents)):
        return False

    def look() -> bool:
        if letter in "hL":
            return Path(path).is_symlink()
        status = status_of(Path(path))
        kinds = {"d": stat.S_ISDIR(status.st_mode), "f": stat.S_ISREG(status.st_mode), "s": status.st_size > 0}
        return kinds.get(letter, True)

    try:
        with reading_as(account):
            return within(LOOK_S, look, path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, InputError, ValueError):
        return None


def table_text(job: Job, read: Callable[[str], str | None], path: str) -> str | None:
    """Return the text of a file that a script reads; None for a table of several lines that was changed since the job began.

    Args:
        job: Its start is what counts.
        read: Returns a file's text by its absolute path.
        path: Absolute.

    Raises:
        Unavailable: The storage did not answer.
    """
    text = read(path)
    if text is None or "\n" not in text.rstrip("\n") or job.started is None:
        return text
    try:
        with reading_as(job.account):
            changed = within(LOOK_S, lambda: status_of(Path(path)).st_mtime, path)
    except (OSError, InputError, ValueError):
        return text
    return text if changed <= (job.started + CLOCKS_APART).timestamp() else None
