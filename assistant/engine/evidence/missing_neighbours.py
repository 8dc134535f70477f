"""What lies where a path is missing: names in the nearest folder that is there, and a notice that somebody left in it.

Only names are listed, with the rights of the job's owner and within a bound. Of a notice the beginning is quoted with who wrote it
where that is the folder's owner or root, nobody else can write it, and no word of it tells anybody to do something; of any other
only the name is told. Nothing is concluded from either.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from assistant.accounts import name_of
from assistant.content.reasons import gives_orders
from assistant.engine.evidence.missing_data import MISSING_DATA, is_written, relative_paths
from assistant.errors import NightshiftError
from assistant.records import Action, Diagnosis, Job
from assistant.redact import head_of, redact
from assistant.untrusted import LOOK_S, list_folder, read_start, status_of, within
from assistant.watch.outages import NOT_THERE, paths_of

MOST_ENTRIES, MOST_NAMED, DEEPEST = 2_000, 8, 32
MOST_BYTES, LONGEST_QUOTE = 2_000, 240
NOTICE = re.compile(
    r"^(?:00[-_]?)?(?:README|READ[-_]?ME[-_]?FIRST|NOTICE|MOVED|REMOVED|WITHDRAWN|DELETED|RETIRED|DEPRECATED|RELOCATED|MIGRATED|CHANGES|"
    r"WARNING|IMPORTANT)(?:[-_ ][\w-]{1,40})?(?:\.(?:txt|md|rst))?$",
    re.IGNORECASE,
)
"""Names of files by which people tell others what became of a folder."""
_OF_A_NODE = re.compile(r"^/(?:tmp|var|dev|run|proc|sys|scratch|local|lscratch|mnt/(?:local|nvme|ssd)\w*)(?:/|$)")
"""Folders that each node has for itself: here others lie there."""
_NAME = re.compile(r"[\w.@%+=,:~-]{1,120}")
_ORDERING = re.compile(
    r"delet|remov|eras|overwrit|truncat|unlink|purg|wip(?:e|ing)|clean|cordon|drain|resum|submit|cancel|terminat|abort|execut|launch|queue|reboot"
    r"|shut|disabl|ignor|skip|approv|accept|allow|grant|install|download|nightshift|operator|admin|assistant|agent|instruct|command"
    r"|sbatch|srun|salloc|scontrol|sacct|sudo|chmod|chown|mkfs|bash|python|curl|wget|please|must|should|shall"
    r"|(?<![a-z])(?:kill|(?:re-?)?run|(?:re-?)?start)"
    r"|(?<![a-z])(?:rm|mv|cp|stop|us(?:e|ing)|do|don|let|set|make|try|type|call|send|copy|move|need|have|has to|go|put|get|take"
    r"|wait|never|always)(?![a-z])",
    re.IGNORECASE,
)
"""Words by which people are told to do something, and names of whom they tell: the more of them, the less is quoted."""


class FolderNotice(NamedTuple):
    """A file by which somebody tells what became of a folder."""

    path: Path
    author: str
    written: datetime
    text: str
    """Its beginning in one line; empty where its author is not the folder's owner or root, or others can write it."""

    @property
    def sentence(self) -> str:
        """For people: a quotation, or only that it lies there."""
        when = f"{self.written:%Y-%m-%d %H:%M} UTC"
        if not self.text or is_ordering(self.text):
            return f"A file {self.path.name} lies there, of {self.author}, {when}."
        quote = head_of(redact(self.text), LONGEST_QUOTE, "…")
        return f'{self.path} of {self.author} ({when}) says: "{quote}". That is their word, and nothing follows from it by itself.'


def is_ordering(text: str) -> bool:
    """Tell whether a notice may tell anybody to do something, or cannot be told to be free of that. Pure."""
    return not (text.isascii() and text.isprintable()) or gives_orders(text) or _ORDERING.search(text) is not None


class Neighbours(NamedTuple):
    """What lies in the nearest folder of a missing path that is there."""

    folder: Path
    missing: str
    """The name that is missing in it."""
    names: tuple[str, ...]
    """The most alike first."""
    total: int
    notices: tuple[FolderNotice, ...]

    @property
    def sentence(self) -> str:
        """For people."""
        if not self.total:
            return f"{self.folder} is empty."
        more = self.total - len(self.names)
        listed = ", ".join(self.names) + (f" and {more} more" if more else "") if self.names else f"{more} names"
        lies = f"There is no {self.missing} in {self.folder}, where {listed} lie{'s' * (self.total == 1)}."
        return " ".join([lies, *(notice.sentence for notice in self.notices[:1])])


def neighbours_of(path: Path) -> Neighbours | None:
    """Return what lies in the nearest folder of a missing path that is there; None where the path is there, or nothing is seen.

    Reads with the rights that are in force.

    Raises:
        OSError: The folder cannot be listed.
        NightshiftError: It holds more than `MOST_ENTRIES` entries, or the storage does not answer.
    """
    if not path.is_absolute() or ".." in path.parts or len(path.parts) > DEEPEST or _OF_A_NODE.match(f"{path}/"):
        return None
    for folder, missing in zip(path.parents, (path, *path.parents), strict=False):
        if _is_there(missing):
            return None
        if len(folder.parts) < 3:
            return None  # the root and its folders are everybody's
        if not _is_there(folder):
            continue
        entries = within(LOOK_S, partial(list_folder, folder, MOST_ENTRIES), str(folder))
        plain = [entry.name for entry in entries if _NAME.fullmatch(entry.name)]
        plain.sort(key=lambda name: -difflib.SequenceMatcher(None, name, missing.name).ratio())
        owner = within(LOOK_S, partial(status_of, folder), str(folder)).st_uid
        notices = [notice for entry in entries if NOTICE.match(entry.name) and (notice := _notice(entry, owner)) is not None]
        return Neighbours(folder, missing.name, tuple(plain[:MOST_NAMED]), len(entries), tuple(notices[:2]))
    return None


def _is_there(path: Path) -> bool:
    """Tell whether a path is there; what cannot be seen is."""
    try:
        within(LOOK_S, partial(status_of, path), str(path))
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        return False
    return True


def _notice(path: Path, owner: int) -> FolderNotice | None:
    """Return a notice in a folder; without its text where that may be another's than the folder's owner's or root's."""
    try:
        status = within(LOOK_S, partial(status_of, path), str(path))
        if not stat.S_ISREG(status.st_mode):
            return None
        is_link = stat.S_ISLNK(within(LOOK_S, partial(os.lstat, path), str(path)).st_mode)
        trusted = not is_link and status.st_uid in (owner, 0) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        text = within(LOOK_S, partial(read_start, path, MOST_BYTES), str(path)).decode(errors="replace") if trusted else ""
    except (OSError, NightshiftError):
        return None
    written = datetime.fromtimestamp(status.st_mtime, UTC)
    return FolderNotice(path, name_of(status.st_uid), written, " ".join(text.split()))


def with_neighbours(diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis of a missing path with what lies where it is missing; any other as it is.

    Reads with the rights that are in force: those of the job's owner.
    """
    texts = [cited.text for cited in diagnosis.root_cause]
    if (
        job is None
        or diagnosis.reason not in MISSING_DATA
        or not any(NOT_THERE.search(text) for text in texts)
        or is_written(texts)
    ):
        return diagnosis
    if diagnosis.action not in (Action.FIX_AND_RESUBMIT, Action.WAIT_AND_RETRY):
        return diagnosis
    paths: Sequence[str] = paths_of(diagnosis.reason, texts) or relative_paths(job, texts)
    try:
        neighbours = neighbours_of(Path(paths[0])) if paths else None
    except (OSError, NightshiftError, ValueError):
        return diagnosis
    if neighbours is None:
        return diagnosis
    return replace(diagnosis, advice=f"{diagnosis.advice} {neighbours.sentence}".strip())
