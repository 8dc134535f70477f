"""Files beside a run's checkpoints that its program takes into account when it looks for the newest: `states/emergency.lbm`.

A save in an emergency bears another name than the series, and its writer is ended while it writes. A program that takes the newest
of `states/*.lbm` takes it before all others, so it is one of the checkpoints. One that is shorter than all of them may be torn, or
be another state: its size alone does not tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from assistant.errors import InputError, OwnerDenied, ToolError, UnreadableFile
from assistant.records import Checkpoint, Job
from assistant.recover.checkpoints.inventory import Inventory, inventory
from assistant.recover.checkpoints.names import name_form, number_in
from assistant.recover.checkpoints.search_outcome import CheckpointSearch
from assistant.recover.job_program import programs_now
from assistant.recover.source.listing_order import listed_files
from assistant.untrusted import is_regular, reading_as

MOST_LISTED = 8
"""Files of other names than the series that are looked at."""
ALIKE = 0.9
"""The least share of the largest that files of one size make up; a shorter one is in doubt."""
FEWEST_ALIKE = 2


def with_listed_saves(job: Job, search: CheckpointSearch, *, now: datetime) -> CheckpointSearch:
    """Return a search whose inventory holds also what the program's own listing finds in that folder under other names.

    Args:
        job: With its spec.
        search: With an inventory.
        now: The time.

    Raises:
        Unavailable: The storage did not answer.
    """
    holdings, place = search.inventory, search.place
    if holdings is None or place is None or job.spec is None:
        return search
    listed = listed_files(programs_now(job, search.programs), job.account)
    paths = listed.paths if listed is not None else ()
    names = _other_names(holdings, paths, job.account)
    rolling = {entry.path.name for entry in holdings.entries if entry.path in paths and number_in(entry.path.name) is None}
    forms = place.forms | rolling
    if not names:
        return replace(search, place=replace(place, forms=forms))
    forms |= {name if number_in(name) is None else name_form(name).replace("[", "?") for name in names}
    try:
        with reading_as(job.account):
            read = inventory(place.folder, now=now, live=not job.state.ended, forms=forms)
    except ToolError:
        return search
    return replace(search, inventory=read, place=replace(place, forms=forms))


def _other_names(holdings: Inventory, listed: Sequence[Path], account: str) -> list[str]:
    """Return the names of listed files that no checkpoint of the folder has."""
    files = {entry.path.parent / name for entry in holdings.entries for name in entry.files} | {
        entry.path for entry in holdings.entries
    }
    own_folders = {entry.path.parent for entry in holdings.entries}
    second = {path for path, _ in holdings.links} | {*holdings.second_names}
    other_paths = [path for path in listed if path not in files | second and path.parent in own_folders][:MOST_LISTED]
    names = []
    for path in other_paths:
        try:
            with reading_as(account):
                names += [path.name] if is_regular(path) and not path.is_symlink() else []
        except (OSError, InputError, UnreadableFile, OwnerDenied):
            continue
    return names


def with_size_doubts(listing: Inventory, job: Job, names: frozenset[str]) -> Inventory:
    """Return an inventory in which a file of another name is undecided that was written last and is shorter than the rest.

    Args:
        listing: What the folder of the job holds.
        job: With the times of its attempt.
        names: Of the files that the program lists and that bear no number: exact forms of the place.
    """
    series = [save for save in listing.checkpoints if save.path.name not in names and save.path.suffix and not save.problems]

    def judged(save: Checkpoint) -> Checkpoint:
        siblings = [sibling for sibling in series if sibling.path.suffix == save.path.suffix and sibling.saved_at < save.saved_at]
        alike = [sibling.size_bytes for sibling in siblings]
        one_size = len(alike) >= FEWEST_ALIKE and min(alike) >= ALIKE * max(alike)
        if save.path.name not in names or save.healthy or not one_size or save.size_bytes >= ALIKE * min(alike):
            return save
        sizes = f"{save.size_bytes:,} bytes, each of the others at least {min(alike):,}"
        reason = f"may be torn, or another state: {sizes}, and it was written last"
        return replace(save, healthy=False, undecided=True, problems=(reason, *save.problems)) if save.undecided else save

    return replace(listing, checkpoints=tuple(map(judged, listing.checkpoints))) if names and job.state.ended else listing
