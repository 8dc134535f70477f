"""What a job's script would see of folders and files, looked at with the rights of the job's owner and never waited for long."""

from __future__ import annotations

import stat
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path, PurePosixPath

from assistant.errors import InputError
from assistant.records import Job
from assistant.recover.shell_folders import FolderEntry
from assistant.untrusted import LOOK_S, is_folder, list_folder, reading_as, status_of, within

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
    if any(str(one) in hidden for one in (PurePosixPath(path), *PurePosixPath(path).parents)):
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
