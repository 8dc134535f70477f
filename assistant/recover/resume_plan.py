"""What a restart needs first so that the job loads the chosen checkpoint, or why it must not be started. Pure."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from assistant.records import Checkpoint
from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.checkpoints.layout import RANK_WORD, Entry, Format
from assistant.recover.resume_means import SETTLE, ResumeMeans, ResumeWay

NEED_METADATA = (Format.TORCHTITAN,)
"""Formats whose program passes over a folder without `.metadata` by itself."""
LATEST_LINK = re.compile(r"latest|last|newest|current|resume", re.IGNORECASE)
"""Names of links that a program follows to go on; one named otherwise, as `best`, means something else."""
OWN_CHOICE = (Format.NIGHTSHIFT,)
"""Formats whose loader verifies what it loads and falls back by itself."""


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """What a restart needs first."""

    refusal: str = ""
    """Why it must not be started; empty where it may."""
    set_aside: tuple[Path, ...] = ()
    """Checkpoints that would be loaded instead of the chosen one, or met when their step is saved again; newest first."""
    tracker: Path | None = None
    """The tracker file, or the link, that has to name the chosen one; None where it does or where none counts."""
    tracker_text: str = ""
    """What has to stand in it."""

    @property
    def ready(self) -> bool:
        """Whether the job may be started as things are."""
        return not self.refusal and not self.set_aside and self.tracker is None


def resume_plan(way: ResumeWay, found: Inventory | None, chosen: Checkpoint | None, *, moves: bool = False) -> ResumePlan:
    """Return what is needed before a job may be started again.

    Args:
        way: How its script resumes.
        found: What its checkpoint folder holds; None where it proved to hold nothing.
        chosen: Where it is to go on; None to begin at the start.
        moves: Whether a new job would look in another folder, from `folder_moves`.
    """
    held = found.checkpoints if found is not None else ()
    if way.repeats:
        return ResumePlan(way.repeats)
    if chosen is None:
        if not held:
            return ResumePlan()
        folder = found.folder if found is not None else ""
        return ResumePlan(
            f"it would start at 0 over the {len(held)} checkpoints in {folder}; move them away first if that is meant"
        )
    lost = next((path for path in way.removed if _covers(path, chosen.path)), None)
    if lost is not None:
        return ResumePlan(
            f"its script removes {lost} when it starts, and {chosen.path.name} lies there: take that line out, or {SETTLE}"
        )
    by_itself = way.means in (ResumeMeans.TRACKER, ResumeMeans.NEWEST)
    if by_itself and moves:
        return ResumePlan(
            f"the path of {chosen.path.parent} holds the job's id: a new job would look elsewhere and start at 0; {SETTLE}"
        )
    match way.means:
        case ResumeMeans.ARGUMENT:
            return ResumePlan()
        case ResumeMeans.NONE:
            return ResumePlan(f"{way.sentence}, over the checkpoints in {chosen.path.parent}; {SETTLE}")
        case ResumeMeans.UNKNOWN:
            return ResumePlan(f"{way.sentence}, and it might start at 0 over those in {chosen.path.parent}; {SETTLE}")
        case ResumeMeans.FIXED:
            same = chosen.path.name in PurePosixPath(way.path).parts
            return ResumePlan() if same else ResumePlan(f"{way.sentence}, and {chosen.path.name} was chosen; {SETTLE}")
        case ResumeMeans.TRACKER:
            return _tracked(way, found, chosen)
    if way.prefix:
        return _prefixed(way, found, chosen)
    newer = _newer(found, chosen)
    return _linked(found, chosen, newer, exact=False) or ResumePlan(set_aside=newer)


def _linked(found: Inventory | None, chosen: Checkpoint, later: tuple[Path, ...], *, exact: bool) -> ResumePlan | None:
    """Return what a link of the folder that leads elsewhere than to the chosen one needs; None where no link does.

    Args:
        found: What the folder holds.
        chosen: Where the job is to go on.
        later: What is set aside in any case.
        exact: Whether the script follows the link, so that an older one is wrong, too.
    """
    steps = [(link, target, _step_of(target, found)) for link, target in found.links] if found is not None else []
    due = [(link, target) for link, target, step in steps if step is not None and step > chosen.step]
    if exact and not due:
        due = [(link, target) for link, target, step in steps if LATEST_LINK.search(link.name) and step != chosen.step]
    if not due:
        return None
    link, target = due[0]
    if len(due) > 1 or not LATEST_LINK.search(link.name) or RANK_WORD.search(link.name) or link.parent != chosen.path.parent:
        return ResumePlan(f"the link {link} leads to {target.name}, and {chosen.path.name} was chosen: point it there by hand")
    return ResumePlan(set_aside=later, tracker=link, tracker_text=chosen.path.name)


def _step_of(target: Path, found: Inventory | None) -> int | None:
    """Return the step of a checkpoint that a link leads to, by its name where it was moved away."""
    for entry in found.entries if found is not None else ():
        if target == entry.path or (target.parent == entry.path.parent and target.name in entry.files):
            return entry.step
    number = re.search(r"(\d{1,18})\D*$", RANK_WORD.sub("", target.name))
    return int(number[1]) if number else None


def _covers(pattern: str, path: Path) -> bool:
    """Tell whether a path, or a pattern of a shell, means a checkpoint or a folder above it."""
    return any(fnmatch.fnmatchcase(str(one), pattern.rstrip("/")) for one in (path, *path.parents))


def _prefixed(way: ResumeWay, found: Inventory | None, chosen: Checkpoint) -> ResumePlan:
    """Return what is needed where a program sees only names that begin in one way: with the last one moved away it starts at 0."""
    seen = [one for one in found.checkpoints if one.path.name.startswith(way.prefix)] if found is not None else []
    newest = max(seen, key=lambda one: one.saved_at, default=None)
    if newest is not None and newest.healthy and newest.step == chosen.step:
        return ResumePlan()
    lies = f"that is {newest.path.name} of step {newest.step}" if newest is not None else "there is none: it would start at 0"
    return ResumePlan(f"{way.sentence}, {lies}, and {chosen.path.name} was chosen; {SETTLE}")


def _newer(found: Inventory | None, chosen: Checkpoint) -> tuple[Path, ...]:
    """Return the checkpoints that a program which takes the newest would take instead, newest first."""
    if found is None:
        return ()
    refused = {held.path for held in found.checkpoints if not held.healthy}
    others = [entry for entry in reversed(found.entries) if entry.path != chosen.path]
    return tuple(entry.path for entry in others if _taken_before(entry, chosen, refused=entry.path in refused))


def _taken_before(entry: Entry, chosen: Checkpoint, *, refused: bool) -> bool:
    if entry.temporary or (refused and entry.format in OWN_CHOICE):
        return False
    if entry.format in NEED_METADATA and ".metadata" not in entry.files and not entry.unreadable:
        return False
    return entry.step > chosen.step


def _tracked(way: ResumeWay, found: Inventory | None, chosen: Checkpoint) -> ResumePlan:
    folder = chosen.path.parent
    if way.path and PurePosixPath(way.path).is_absolute() and Path(way.path) not in (folder, *folder.parents):
        return ResumePlan(f"{way.sentence}: it loads from {way.path}, and {chosen.path} was chosen; {SETTLE}")
    tracker = found.tracker if found is not None else None
    linked = any(LATEST_LINK.search(link.name) for link, _ in found.links) if found is not None else False
    # the job comes to these steps again: it would write over them, or fail because their folders are there
    later = tuple(entry.path for entry in reversed(found.entries) if entry.step > chosen.step) if found is not None else ()
    plan = _linked(found, chosen, later, exact=tracker is None)
    if plan is not None and (plan.refusal or tracker is None or tracker.step == chosen.step):
        return plan
    if tracker is not None and plan is not None:
        return ResumePlan(f"{plan.tracker} and {tracker.path} both name another checkpoint than {chosen.path.name}; {SETTLE}")
    if (tracker is not None and tracker.step == chosen.step) or (tracker is None and linked):
        return ResumePlan(set_aside=later)
    if tracker is not None:
        shaped = re.sub(r"\d+(?=\D*$)", str(chosen.step), tracker.text) if tracker.step is not None else ""
        text = shaped or (str(chosen.step) if tracker.path.name.endswith("iteration.txt") else chosen.path.name)
        return ResumePlan(set_aside=later, tracker=tracker.path, tracker_text=text)
    if chosen.format == Format.MEGATRON:
        return ResumePlan(set_aside=later, tracker=folder / "latest_checkpointed_iteration.txt", tracker_text=str(chosen.step))
    if chosen.format == Format.DEEPSPEED:
        return ResumePlan(set_aside=later, tracker=folder / "latest", tracker_text=chosen.path.name)
    return ResumePlan(f"{way.sentence}, and there is no tracker file of a known form in {folder}; {SETTLE}")
