"""Name the data file that is shorter than all its siblings, where a program could not read its data: a copy that broke off.

Siblings are the files of the same name in the folders beside its own (`shard0`, `shard1`, …), else those beside it whose names
differ in numbers alone. The last of a series may be shorter by nature, and says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from assistant.engine.changed_files import READ
from assistant.errors import InputError
from assistant.records import Action, Diagnosis, Job
from assistant.recover.checkpoints.names import name_form
from assistant.untrusted import is_folder, is_regular, list_folder, status_of
from assistant.watch.outages import PATH

MOST_ENTRIES = 2_000
MOST_PATHS = 4
FEWEST_SIBLINGS = 2
NEARLY = 0.95
"""Share of a size: siblings that differ less are alike, and what is below that of all of them is short."""
_LAST_READ = re.compile(r"The last file that the log says it read is (\S+) \(")
_NUMBER = re.compile(r"\d+")


class CutFile(NamedTuple):
    """A file that is shorter than its siblings, which are alike."""

    path: Path
    size_bytes: int
    siblings: tuple[Path, ...]
    sibling_bytes: int
    """Of the smallest of them."""

    @property
    def sentence(self) -> str:
        """For people: what was seen and what to do."""
        same = all(sibling.name == self.path.name for sibling in self.siblings)
        names = [sibling.parent.name if same else sibling.name for sibling in self.siblings]
        list_text = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        siblings = f"that of {list_text}" if same else list_text
        return (
            f"{self.path} has {self.size_bytes:,} bytes, and {siblings} at least {self.sibling_bytes:,}: it looks cut short, as by "
            "a copy that broke off. Compare it with its source, and copy it again."
        )


def with_cut_file(diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis of data that could not be read with the file that is cut short; as it is where none is seen to be.

    Reads with the rights that are in force: those of the job's owner.
    """
    if job is None or job.work_dir is None or diagnosis.reason not in READ or diagnosis.action is not Action.FIX_AND_RESUBMIT:
        return diagnosis
    paths = [*_LAST_READ.findall(diagnosis.summary), *(path for cited in diagnosis.root_cause for path in PATH.findall(cited.text))]
    for text in list(dict.fromkeys(paths))[:MOST_PATHS]:
        cut = cut_file(job.work_dir / text)
        if cut is not None:
            return replace(diagnosis, summary=f"{diagnosis.summary} {cut.sentence}", advice=f"{cut.sentence} {diagnosis.advice}")
    return diagnosis


def cut_file(path: Path) -> CutFile | None:
    """Return the file that is cut short of those that a path means: itself, or what begins with it (`train.en` for `.en.bin`)."""
    try:
        for file in (
            [path] if is_regular(path) else [entry for entry in _neighbours(path) if entry.name.startswith(f"{path.name}.")]
        ):
            size = status_of(file).st_size
            for siblings in (_in_folders_beside(file), _of_its_form(file)):
                sizes = {sibling: status_of(sibling).st_size for sibling in siblings}
                if len(sizes) >= FEWEST_SIBLINGS:
                    if _is_short(size, sizes):
                        return CutFile(file, size, tuple(sizes), min(sizes.values()))
                    break
    except (OSError, InputError):
        return None
    return None


def _is_short(size: int, sizes: Mapping[Path, int]) -> bool:
    smallest, largest = min(sizes.values()), max(sizes.values())
    return smallest >= NEARLY * largest and size < NEARLY * smallest


def _neighbours(path: Path) -> list[Path]:
    return [entry for entry in list_folder(path.parent, MOST_ENTRIES) if entry != path]


def _in_folders_beside(file: Path) -> list[Path]:
    """Return the files of the same name in folders whose names differ in numbers alone; none where its own is the last of them."""
    folder = file.parent
    folders = [entry for entry in _neighbours(folder) if name_form(entry.name) == name_form(folder.name)]
    if all(_order(sibling.name) < _order(folder.name) for sibling in folders):
        return []
    return [sibling / file.name for sibling in folders if is_folder(sibling) and is_regular(sibling / file.name)]


def _of_its_form(file: Path) -> list[Path]:
    """Return the files beside one whose names differ from its own in numbers alone; none where it is the last of them."""
    files = [entry for entry in _neighbours(file) if name_form(entry.name) == name_form(file.name) and is_regular(entry)]
    return [] if all(_order(sibling.name) < _order(file.name) for sibling in files) else files


def _order(name: str) -> list[int]:
    return [int(number[:18]) for number in _NUMBER.findall(name)]
