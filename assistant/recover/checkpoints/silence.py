"""What shows that a job saved nothing, and what looks as if it may have: proofs for a start from the beginning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from assistant.errors import InputError
from assistant.logs.lines import Line
from assistant.logs.metrics import metric_points
from assistant.records import Job
from assistant.recover.checkpoints.layout import NOT_A_CHECKPOINT, could_be_checkpoint
from assistant.recover.checkpoints.names import OTHER_WEIGHTS, SUFFIXES, Unit, number_in
from assistant.recover.checkpoints.own_folders import OtherRuns
from assistant.recover.checkpoints.place import Place
from assistant.recover.checkpoints.traces import new_series
from assistant.recover.checkpoints.walks import WALK_ENTRIES, changed_at
from assistant.recover.shell.folders import CLOCKS_APART
from assistant.untrusted import is_folder, list_folder, reading_as, status_of

__all__ = ["made_and_left_empty", "never_saved_beside", "trains", "unknown_layout", "unmounted_folder"]

NO_SAVE_SUFFIXES = tuple(".log .out .err .txt .csv .tsv .yaml .yml .toml .png .html .md .lock .sh .py".split())
"""Of files with a step in their name that no program loads."""


def unknown_layout(folder: Path, since: datetime | None) -> str:
    """Return a file with a step in its name that was written since a time into a folder of checkpoints; empty for none."""
    if since is None:
        return ""
    oldest = (since - CLOCKS_APART).timestamp()
    children = list_folder(folder, WALK_ENTRIES)
    # TensorFlow saves into a folder of that name below the one that it is told
    for child in [*children, *(one for inner in children if inner.name == "chief" for one in list_folder(inner, WALK_ENTRIES))]:
        number = number_in(child.name)
        # weights in a folder of checkpoints are what the training leaves behind, by whatever name
        numbered = (number is not None and number.unit is not Unit.UNNAMED) or (
            child.name.endswith((*SUFFIXES, *OTHER_WEIGHTS)) and not NOT_A_CHECKPOINT.search(child.name)
        )
        noise = child.suffix in NO_SAVE_SUFFIXES or "tfevents" in child.name or could_be_checkpoint(child.name, folder=False)
        if numbered and not noise and not is_folder(child) and changed_at(child, False) >= oldest:
            return str(child)
    return ""


def trains(texts: Sequence[str]) -> bool:
    """Tell whether a log shows steps of a training."""
    return bool(metric_points(Line(number, text) for number, text in enumerate(texts, 1)))


def unmounted_folder(job: Job, places: Sequence[Place]) -> str:
    """Return why what is missing proves nothing: this machine does not see where the job ran or saves; empty where it does.

    A file system that is mounted on the nodes alone looks from here like one on which nothing was saved.
    """
    if job.started is None or not job.dated_logs:
        return ""
    work_dir = [(job.work_dir, job.work_dir)] if job.work_dir is not None else []
    # of a place only the root folder counts: what lies deeper the job would have made itself
    roots = [(place.folder, Path(*place.folder.parts[:2])) for place in places]
    with reading_as(job.account):
        for folder, root in (*work_dir, *roots):
            try:
                status_of(root)
            except (FileNotFoundError, NotADirectoryError):
                return f"{folder} is not seen from this machine: {root} is not there; mount here what the nodes have there"
            except (OSError, InputError):
                continue
    return ""


def never_saved_beside(foreign_runs: OtherRuns, job: Job, texts: Sequence[str], clock: Callable[[], float]) -> str:
    """Return the proof that a job saved nothing where other runs beside it did; empty where there is none."""
    folder = foreign_runs.silent_folder
    if folder is not None:
        try:
            unknown = unknown_layout(folder, job.started) or new_series(folder, job.started, clock)
        except FileNotFoundError:
            unknown = None
        except (OSError, InputError):
            return ""
        return "" if unknown else f"the job never saved a checkpoint: {folder}, {foreign_runs.how}, holds none; {foreign_runs}"
    if "_" not in job.id or not any(text.strip() for text in texts) or trains(texts):
        return ""
    return f"the job never saved a checkpoint: its log tells of no step and no save; {foreign_runs}"


def made_and_left_empty(job: Job, texts: Sequence[str], places: Sequence[Place]) -> str:
    """Return the proof that a job saved nothing: it made the folder where it seems to save, which is empty, and shows no step.

    Empty where that is not seen, and where there are several such folders.
    """
    if job.started is None or len(places) != 1 or trains(texts) or not any(text.strip() for text in texts):
        return ""
    (place,) = places
    with reading_as(job.account):
        try:
            changed = status_of(place.folder).st_mtime
            is_empty = is_folder(place.folder) and not list_folder(place.folder, 1)
        except (OSError, InputError):
            return ""
    if not is_empty or changed < (job.started - CLOCKS_APART).timestamp():
        return ""
    folder = f"{place.folder} ({place.how})"
    return f"the job never saved a checkpoint: {folder} was made since it began and is empty, and its log shows no step"
