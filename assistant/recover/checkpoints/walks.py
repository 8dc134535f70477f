"""Walks through folders for checkpoints that changed since a job began: bounded in seconds, entries and depth, past all links."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from assistant.errors import InputError, OwnerDenied, UnreadableFile
from assistant.recover.checkpoints.layout import SET_ASIDE, could_be_checkpoint, entries
from assistant.recover.shell.folders import CLOCKS_APART
from assistant.untrusted import is_folder, list_folder, status_of

WALK_S = 10.0
"""How long folders are walked through."""
WALK_ENTRIES = 40_000
WALK_FOLDERS = 6
"""Folders below one another."""
PASSED_OVER = re.compile(
    r"\.(?:git|hg|svn|cache|ipynb_checkpoints|venv|conda|tox|mypy_cache|pytest_cache|Trash)|__pycache__|node_modules|site-packages|"
    rf"venv|env|conda|miniconda3?|anaconda3?|wandb|mlruns|\.?snapshot|{SET_ASIDE}"
)
"""Folders that hold no checkpoints of a job, or very many files."""


@dataclass(frozen=True, slots=True)
class Walk:
    """What a walk through folders found."""

    folders: tuple[Path, ...]
    """Those that hold checkpoints changed since the job began, the last changed first."""
    complete: bool
    """Whether all was seen."""
    changed: Mapping[Path, float] = field(default_factory=dict)
    """When the newest checkpoint of each was changed, in seconds of the file server's clock."""


def new_checkpoints(
    top: Path | None,
    since: datetime | None,
    clock: Callable[[], float] = time.monotonic,
    *,
    depth: int = WALK_FOLDERS,
    forms: Collection[str] = (),
) -> Walk:
    """Return the folders below a folder that hold checkpoints changed since a time.

    Args:
        top: Where to begin; None for nowhere.
        since: The time.
        clock: Seconds that pass.
        depth: Folders below one another that are looked into.
        forms: Names that the program is known to give its checkpoints.
    """
    if top is None or since is None:
        return Walk((), False)
    end, budget, complete = clock() + WALK_S, WALK_ENTRIES, True
    newest: dict[Path, float] = {}
    waiting = [(top, 0)]
    oldest = (since - CLOCKS_APART).timestamp()
    while waiting:
        folder, level = waiting.pop(0)
        if clock() > end or budget <= 0:
            complete = False
            break
        try:
            children = list_folder(folder, budget)
        except FileNotFoundError:
            continue
        except (UnreadableFile, OwnerDenied, OSError):
            complete = False
            continue
        budget -= len(children)
        for child in children:
            if PASSED_OVER.fullmatch(child.name) or child.is_symlink():
                continue
            inner = is_folder(child)
            if could_be_checkpoint(child.name, folder=inner, forms=forms) and (changed := changed_at(child, inner)) >= oldest:
                newest[folder] = max(changed, newest.get(folder, 0.0))
            elif inner and level + 1 < depth:
                waiting.append((child, level + 1))
            elif inner:
                complete = False
    holders = [folder for folder in sorted(newest, key=lambda folder: -newest[folder]) if _holds(folder, forms)]
    return Walk(tuple(holders), complete, newest)


def changed_at(path: Path, folder: bool) -> float:
    """Return when a file, or what lies in a folder, was last changed, in seconds of its server's clock; 0 where nobody knows."""
    try:
        times = [status_of(path).st_mtime]
        if folder:
            times += [status_of(inner).st_mtime for inner in list_folder(path, 2000)[:50]]
        return max(times)
    except (OSError, InputError):
        return 0.0


def _holds(folder: Path, forms: Collection[str]) -> bool:
    try:
        return bool(entries(folder, depth=0, forms=forms))
    except (OSError, InputError):
        return False
