"""Checkpoints with a second name where the rotation of their program does not look: how they are named and found.

`run/ckpt/step_200` lies as `run/nightshift-secured/ckpt/of-step_200/step_200` too. No name on the way down to it is one that a
program takes for its newest checkpoint, and `layout.entries` passes over the folder. The data stay until both names are gone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from assistant.errors import InputError
from assistant.recover.checkpoints.entry import Entry
from assistant.recover.checkpoints.layout import entries, step_in_name
from assistant.recover.checkpoints.names import SECURED, Unit, number_in
from assistant.recover.checkpoints.slots import MOST_SLOTS
from assistant.untrusted import is_folder, is_regular, list_folder, status_of

PREFIX = "of-"
"""Before the name of a checkpoint, in the name of the folder that holds its second name."""
MOST_SECURED = 200
"""Second names of checkpoints of one folder."""
COMPANION_S = 600.0
"""Within this time a file with the step of a checkpoint in its name was written by the same save."""
NO_COMPANION = re.compile(r"\.(?:log|out|err|txt|pid|lock)$|tfevents", re.IGNORECASE)
"""Files that are written on, whatever number their names hold."""


def obstacle_of(entry: Entry) -> str:
    """Return why a checkpoint cannot be given a second name, as far as its name tells; empty where it can.

    A file that its program writes again at each save would be written again under its second name, too.
    """
    name = entry.path.name
    number = number_in(name)
    if entry.temporary or entry.marked:
        return f"{name} is marked as not finished"
    if number is None or step_in_name(name) is None:
        return f"{name} tells no step in its name: its program writes it again at each save, and a second name would change with it"
    if number.unit is Unit.UNNAMED and number.number < MOST_SLOTS and entry.step != number.number:
        return f"{name} is written in turn with others: a second name would change with it"
    return ""


def is_secured(path: Path) -> bool:
    """Tell whether a path is the second name of a checkpoint."""
    return len(path.parts) > 4 and path.parents[2].name == SECURED


def folder_of(path: Path) -> Path:
    """Return the folder of its run in which a checkpoint lies, or of which it is a second name."""
    return path.parents[3] / path.parents[1].name if is_secured(path) else path.parent


def secured_entries(folder: Path, listed: Sequence[Entry], forms: Collection[str] = ()) -> list[Entry]:
    """Return the checkpoints of a folder that are gone from it and have a second name still; call it inside `reading_as`.

    Args:
        folder: Of the run.
        listed: What lies in it.
        forms: As `layout.entries` takes them.
    """
    own, names = folder.parent / SECURED / folder.name, {entry.path.name for entry in listed}
    secured: list[Entry] = []
    with suppress(OSError, InputError):
        for place in list_folder(own, MOST_SECURED) if is_folder(own) else []:
            name = place.name.removeprefix(PREFIX)
            if name == place.name or name in names or place.is_symlink():
                continue
            secured += [entry for entry in entries(place, depth=0, forms=forms) if entry.path == place / name]
    return secured


def names_of(entry: Entry, listed: Sequence[Entry]) -> list[str]:
    """Return the names in its folder that make up a checkpoint: its own, those of a file a rank, and files named by its step.

    `model_000100.pt` goes with `optim_000100_rank0.pt` and `meta_000100.json`. Call it inside `reading_as`.

    Args:
        entry: The checkpoint.
        listed: The checkpoints of the folder.

    Raises:
        OSError: The folder cannot be listed.
    """
    own = [file.name for file in reversed(entry.loose_files)] or [entry.path.name]
    foreign = {path.name for sibling in listed if sibling.path != entry.path for path in (sibling.path, *sibling.loose_files)}
    digits = next((word for word in re.findall(r"\d+", entry.path.name) if int(word) == entry.step), "")
    if len(digits) < 2 or not entry.files:
        return own
    step = re.compile(rf"(?<!\d){re.escape(digits)}(?!\d)")
    saved_at = max(file.mtime for file in entry.files.values())
    for file in list_folder(entry.path.parent):
        if file.name in (*own, *foreign) or step.search(file.name) is None or NO_COMPANION.search(file.name):
            continue
        if not file.is_symlink() and is_regular(file) and abs(status_of(file).st_mtime - saved_at) <= COMPANION_S:
            own.append(file.name)
    return own
