"""Move checkpoints out of the way and set tracker files, with the rights of the job's owner; both can be taken back."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from assistant.accounts import account_of, as_account
from assistant.errors import ToolError, Unavailable
from assistant.recover.checkpoints.layout import SET_ASIDE, TRACKER_BYTES
from assistant.untrusted import LOOK_S, read_start, reading_as, within

MOST_NUMBERS = 100
"""Times that a checkpoint of the same name may be set aside."""


class Move(NamedTuple):
    """One rename."""

    source: Path
    target: Path


def moves_aside(paths: Sequence[Path]) -> list[Move]:
    """Return where checkpoints would be moved to: into `nightshift-refused` beside them, or a numbered folder in there."""
    return [Move(path, _free(path.parent / SET_ASIDE, path.name)) for path in paths]


def moves_back(paths: Sequence[Path]) -> list[Move]:
    """Return where checkpoints that were set aside came from.

    Raises:
        ToolError: A path does not lie in a folder `nightshift-refused`.
    """
    return [Move(path, original(path)) for path in paths]


def original(path: Path) -> Path:
    """Return where a checkpoint lay before it was set aside.

    Raises:
        ToolError: It was not set aside.
    """
    above = next((folder for folder in path.parents if folder.name == SET_ASIDE), None)
    if above is None:
        raise ToolError(f"{path} was not set aside: it lies in no folder {SET_ASIDE}")
    return above.parent / path.name


def _free(folder: Path, name: str) -> Path:
    places = [folder / name, *(folder / str(number) / name for number in range(2, MOST_NUMBERS))]
    return next((place for place in places if not os.path.lexists(place)), places[-1])


def move(moves: Sequence[Move], account: str) -> None:
    """Rename each, in order; one that was renamed before a crash is left as it is.

    Args:
        moves: From `moves_aside` or `moves_back`.
        account: With whose rights; empty: our own.

    Raises:
        ToolError: A target is taken, or the owner may not rename there; what was renamed before stays so.
        Unavailable: The storage did not answer.
    """

    def rename() -> None:
        with as_account(account_of(account)):
            for source, target in moves:
                if not os.path.lexists(source) and os.path.lexists(target):
                    continue
                if os.path.lexists(target):
                    raise ToolError(f"{source} was not moved: {target} is taken")
                target.parent.mkdir(parents=True, exist_ok=True)
                source.rename(target)

    try:
        with reading_as(account):
            within(LOOK_S, rename, str(moves[0].source.parent) if moves else "")
    except PermissionError as error:
        raise ToolError(f"{error.filename} may not be moved: {error.strerror}") from error
    except OSError as error:
        raise Unavailable(f"{error.filename or ''} cannot be moved now: {error.strerror or error}") from error


def is_link(path: Path, account: str) -> bool:
    """Tell whether a tracker is a link (`latest -> step_40`) and no file, also where it leads nowhere."""
    with as_account(account_of(account)):
        return path.is_symlink()


def write_tracker(path: Path, text: str, account: str) -> None:
    """Replace a tracker at one stroke: a link by a link to `text`, a file by one that holds it; an empty text removes it.

    Raises:
        ToolError: The owner may not write there, or a folder lies there.
        Unavailable: The storage did not answer.
    """

    def replace() -> None:
        with as_account(account_of(account)):
            if not text:
                path.unlink(missing_ok=True)
                return
            new = path.with_name(f".{path.name}.nightshift")
            new.unlink(missing_ok=True)
            if path.is_symlink():
                new.symlink_to(text)
                new.rename(path)
                return
            if path.is_dir():
                raise ToolError(f"{path} is a folder and no tracker file: it is left alone")
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o664)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            new.rename(path)

    try:
        with reading_as(account):
            within(LOOK_S, replace, str(path))
    except PermissionError as error:
        raise ToolError(f"{path} may not be written: {error.strerror}") from error
    except OSError as error:
        raise Unavailable(f"{path} cannot be written now: {error.strerror or error}") from error


def tracker_text(path: Path, account: str) -> str:
    """Return what stands in a tracker file, or where a tracker that is a link leads; empty where there is none."""
    if is_link(path, account):
        with as_account(account_of(account)):
            return str(path.readlink())
    with reading_as(account):
        try:
            return read_start(path, TRACKER_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            return ""
