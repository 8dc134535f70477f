"""The checkpoints of a folder, each with what speaks against loading it, and the choice among them.

Judging is cheap by default: names, sizes, markers, zip directories and headers. `examined` reads contents as well, for the one
checkpoint that is about to be loaded.
"""

from __future__ import annotations

import math
import re
import stat
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from assistant.errors import ToolError, Unavailable, UnreadableFile
from assistant.records import Checkpoint
from assistant.recover.checkpoints.arrays import array_problems, number_problem, shard_content_problems
from assistant.recover.checkpoints.entry import Entry, Format
from assistant.recover.checkpoints.forms import FileVerdict, ends_in_zeros, fails_alone, file_verdict, series_verdict
from assistant.recover.checkpoints.layout import UNKNOWN_STEP, counts_steps, entries, entry_of, links
from assistant.recover.checkpoints.names import SUFFIXES, number_in, run_prefix, says_epoch
from assistant.recover.checkpoints.secured import is_secured, secured_entries
from assistant.recover.checkpoints.shards import NO_STEP, missing_problems, shard_count_problem, size_problems
from assistant.recover.checkpoints.slots import is_of_series
from assistant.recover.checkpoints.trackers import (
    TENSORFLOW_TRACKER,
    Tracker,
    checkpoint_state,
    second_names,
    tracker,
    with_common_steps,
)
from assistant.redact import head_of
from assistant.untrusted import LOOK_S, READ_S, foreign_owner, is_folder, status_of, within

READ_BYTES = 1 << 30
"""How much of one checkpoint is read to compare checksums before it is loaded."""
SETTLE_S = 30.0
"""A checkpoint without a completeness marker that changed so recently may still be written by a live job, unless a later one is."""
MARKED = (Format.NIGHTSHIFT, Format.DCP, Format.TORCHTITAN, Format.INTERNEVO, Format.TENSORFLOW, Format.SAVES)
"""Formats that write a marker last, so that their age says nothing more."""

INDEXED = (Format.TENSORFLOW, Format.SAVES)
"""Formats whose index says how many files there are, and how long each is."""
TRACKED = (Format.MEGATRON, Format.DEEPSPEED)
"""Formats whose program updates a tracker file after each finished save."""
OWN_FORMS = (Format.PLAIN, Format.EPOCHS, Format.PLACED, Format.NEMO)
"""Formats of programs that may write any form; the others write PyTorch's files."""
MOST_UNREAD = 16
"""Files of one checkpoint that are compared with its series."""
WRITTEN_LAST = ("latest_checkpointed_iteration.txt", "latest_checkpointed_iteration.json")
"""Trackers that a program writes behind all files of a save, whatever their layout: verl, lm-engine."""


SHELL_LETTERS = re.compile(r"[;&|<>$`\\\"'*?\x00-\x1f\x7f]")
"""What no program puts into the name of a checkpoint, and what changes the command that it becomes a word of."""
FEWEST_EPOCHS = 2
"""By how much the number of a checkpoint's epoch must lie below that of a line of the log."""
MOST_SAMPLED = 12
"""Newest checkpoints of which a sample of values is read for a message."""
COMPARED = 50
"""Checkpoints before and behind one with which its sizes are compared."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """What lies in a checkpoint folder."""

    folder: Path
    checkpoints: tuple[Checkpoint, ...]
    """Oldest step first."""
    notes: tuple[str, ...]
    """What is strange about the folder as a whole: a tracker that is missing or names a step that is not there."""
    tracker: Tracker | None = None
    entries: tuple[Entry, ...] = ()
    """The files behind the checkpoints, in the same order."""
    links: tuple[tuple[Path, Path], ...] = ()
    """Links in the folder that lead to one of its checkpoints, with where they lead: `latest-rank0.pt`."""
    foreign: tuple[Checkpoint, ...] = ()
    """Checkpoints of other runs in the same folder, as far as they were told apart."""
    strange: Mapping[Path, str] = field(default_factory=dict)
    """What shows of some of them that the job did not come to them."""
    second_names: Mapping[Path, Path] = field(default_factory=dict)
    """Other names of its checkpoints, with the checkpoint that each is: `last.pth.tar` with `checkpoint-5.pth.tar`."""
    save_ends: Mapping[Path, str] = field(default_factory=dict)
    """What the job itself shows of its last saves, that they had ended: from `search_outcome`."""
    placed_by: Mapping[Path, str] = field(default_factory=dict)
    """What shows of those that tell no step which step they are of at least: from `named_saves`."""
    torn: Mapping[Path, str] = field(default_factory=dict)
    """Files that a trial start read and died of, with why they must not be loaded."""

    def later_untold(self, checkpoint: Checkpoint) -> str:
        """Return the name of a file that was written later than a checkpoint and whose only fault is that it tells no step."""
        later = (save for save in self.checkpoints if save.undecided and save.saved_at > checkpoint.saved_at)
        return next((save.path.name for save in later if all(problem.endswith(NO_STEP) for problem in save.problems)), "")

    def own_name(self, path: PurePosixPath) -> PurePosixPath:
        """Return a path that goes by another name of a checkpoint, or by a link to it, by the checkpoint's own name."""
        for name, own in (*self.links, *self.second_names.items()):
            if path.is_relative_to(name):
                path = PurePosixPath(own / path.relative_to(name))
        return path


@dataclass(frozen=True, slots=True)
class Choice:
    """A checkpoint to restart from, and those that were passed over."""

    checkpoint: Checkpoint | None
    refused: tuple[Checkpoint, ...]
    """Unhealthy ones newer than the choice, newest first; also those of which nobody can say whether they are whole."""


def inventory(folder: Path, *, now: datetime, live: bool = False, forms: Collection[str] = ()) -> Inventory:
    """Return every checkpoint of a folder, judged without reading its contents.

    Args:
        folder: Where the job saves.
        now: The time, to tell a save that goes on.
        live: Whether the job may still be writing.
        forms: Names that its program is known to give its checkpoints, as `SaveFolder.forms`.

    Raises:
        ToolError: The folder is missing, is a file, or may not be read; the message says what to do.
        Unavailable: The storage did not answer.
    """
    within(LOOK_S, partial(is_folder, folder), f"checkpoint folder {folder}")
    listing = within(READ_S, partial(_judged, folder, now=now, live=live, forms=forms), f"checkpoint folder {folder}")
    notes = _tracker_notes(listing.tracker, listing.entries) + _trap_notes(listing.tracker, listing.checkpoints)
    parent = next((entry.path.parent for entry in reversed(listing.entries) if not is_secured(entry.path)), folder)
    leading = within(LOOK_S, partial(links, parent), f"checkpoint folder {folder}") if listing.entries else []
    return replace(listing, notes=tuple(notes), links=tuple(leading))


def _judged(folder: Path, *, now: datetime, live: bool, forms: Collection[str]) -> Inventory:
    """Return what lies in a folder, without notes and links."""
    listed, names = _read(folder, forms)
    secured = secured_entries(listed[-1].path.parent if listed else folder, listed, forms)
    listed = sorted([*listed, *secured], key=lambda entry: entry.step) if secured else listed
    names_by_path = second_names(listed)
    listed = with_common_steps(listed, names_by_path)
    judged = (_judge(listed[n], _compared(listed, n), names, now=now, live=live, read=0) for n in range(len(listed)))
    return Inventory(folder, tuple(judged), (), names, tuple(listed), second_names=names_by_path)


def _compared(listed: Sequence[Entry], place: int) -> Sequence[Entry]:
    """Return a checkpoint and its neighbours: comparing each with all takes time with the square of their number."""
    return listed[max(0, place - COMPARED) : place + COMPARED + 1]


def examined(inventory: Inventory, checkpoint: Checkpoint, *, now: datetime, live: bool = False) -> Checkpoint:
    """Return one checkpoint of an inventory, judged again with its contents read (up to `READ_BYTES`)."""
    place = next(place for place, entry in enumerate(inventory.entries) if entry.path == checkpoint.path)
    entry, neighbours = inventory.entries[place], _compared(inventory.entries, place)
    end = inventory.save_ends.get(entry.path, "")
    judged = _judge(entry, neighbours, inventory.tracker, now=now, live=live, read=READ_BYTES, save_end=end)
    if judged.healthy and inventory.placed_by.get(entry.path):
        judged = replace(judged, unread=PLACED_ALONE, grounds=(inventory.placed_by[entry.path],))
    return _of_numbers(judged, entry)


def _of_numbers(judged: Checkpoint, entry: Entry) -> Checkpoint:
    """Return a checkpoint that is refused where its weights are no numbers, whatever else speaks for it."""
    problem = number_problem(entry) if judged.healthy or judged.undecided else ""
    if not problem:
        return judged
    return replace(judged, healthy=False, undecided=False, problems=(problem, *(() if judged.undecided else judged.problems)))


def without_lost_numbers(listing: Inventory) -> Inventory:
    """Return an inventory in which the newest checkpoints hold numbers: a sample of their values is read, back to one that does."""
    judged = list(listing.checkpoints)
    for place in [place for place in reversed(range(len(judged))) if judged[place].healthy][:MOST_SAMPLED]:
        judged[place] = _of_numbers(judged[place], listing.entries[place])
        if judged[place].healthy:
            break
    return replace(listing, checkpoints=tuple(judged))


def with_save_ends(listing: Inventory, save_ends: Mapping[Path, str], *, now: datetime, live: bool = False) -> Inventory:
    """Return an inventory that knows of some saves, by the path of the checkpoint, what shows that they had ended."""
    if not save_ends:
        return listing
    listing = replace(listing, save_ends=save_ends)
    judged = [
        _judge(
            entry, _compared(listing.entries, place), listing.tracker, now=now, live=live, read=0, save_end=save_ends[entry.path]
        )
        if checkpoint.undecided and entry.path in save_ends
        else checkpoint
        for place, (entry, checkpoint) in enumerate(zip(listing.entries, listing.checkpoints, strict=True))
    ]
    return replace(listing, checkpoints=tuple(judged))


PLACED_ALONE = "tells its step neither by its name nor inside"


def judged_anew(
    listing: Inventory, placed: Mapping[Path, Entry], grounds: Mapping[Path, str], *, now: datetime, live: bool = False
) -> Inventory:
    """Return an inventory in which some checkpoints, by their path, are judged as other entries, in the order of the steps.

    Args:
        listing: As it was read.
        placed: The entries that tell now of which step they are, or of which at least.
        grounds: What shows the least step of those that tell none themselves; empty of the others.
        now: The time.
        live: Whether the job may still be writing.
    """
    listed = [placed.get(entry.path, entry) for entry in listing.entries]
    listed.sort(key=lambda entry: (entry.step, entry.format is Format.PLACED))  # stable: else as it was
    judged_by_path = {checkpoint.path: checkpoint for checkpoint in listing.checkpoints}
    judged = []
    for place, entry in enumerate(listed):
        checkpoint = judged_by_path[entry.path]
        if entry.path in placed:
            checkpoint = _judge(entry, _compared(listed, place), listing.tracker, now=now, live=live, read=0)
            if checkpoint.healthy and grounds.get(entry.path):
                checkpoint = replace(checkpoint, unread=PLACED_ALONE, grounds=(grounds[entry.path],))
        judged.append(checkpoint)
    return replace(listing, entries=tuple(listed), checkpoints=tuple(judged), placed_by=dict(grounds))


def _read(folder: Path, forms: Collection[str]) -> tuple[list[Entry], Tracker | None]:
    label = f"checkpoint folder {folder}"
    try:
        if not stat.S_ISDIR(status_of(folder).st_mode):
            raise ToolError(f"{label} is a file; name the folder that holds the checkpoints")
        listed = entries(folder, forms=forms)
        own = entry_of(folder) if not listed else None
        parent = listed[-1].path.parent if listed else folder
        names = tracker(folder) or (tracker(parent) if parent != folder else None)
        return ([own] if own else listed), _by_name(names, listed)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ToolError(f"{label} does not exist; name the right one: #NIGHTSHIFT checkpoints=… in the script") from error
    except UnreadableFile as error:
        raise ToolError(f"{label} cannot be judged: {error}") from error
    except PermissionError as error:
        raise ToolError(f"{label} may not be read: {error.strerror} ({error.filename}); run as the job's user") from error
    except OSError as error:
        raise Unavailable(f"{label} cannot be read now: {error.strerror or error}; wait until the storage answers") from error


def _by_name(names: Tracker | None, listed: Sequence[Entry]) -> Tracker | None:
    """Return a tracker that names a file with the step of that file: MMEngine's `epoch_3.pth` is of step 900."""
    last = PurePosixPath(names.text).name if names is not None else ""
    entry = next((entry_named for entry_named in listed if entry_named.path.name == last), None)
    return replace(names, step=entry.step) if names is not None and entry is not None else names


def _tracker_notes(names: Tracker | None, listed: Sequence[Entry]) -> list[str]:
    if any(entry.format in INDEXED for entry in listed) and (names is None or names.path.name == TENSORFLOW_TRACKER):
        return _state_notes(names, listed)
    tracked = [entry for entry in listed if entry.format in TRACKED]
    if names is None:
        if not tracked:
            return []
        file = "latest" if tracked[0].format is Format.DEEPSPEED else "latest_checkpointed_iteration.txt"
        return [f"tracker {file} is missing: a restart that relies on it would begin with random weights"]
    if names.text == "release":
        return []
    if names.step is None:
        return [f"tracker {names.path.name} holds no step but {head_of(names.text, 40)!r}"]
    if not any(entry.step == names.step for entry in listed):
        return [f"tracker {names.path.name} names step {names.step}, which is not there"]
    return []


def _state_notes(names: Tracker | None, listed: Sequence[Entry]) -> list[str]:
    """Return what is strange about TensorFlow's tracker: a program that goes by it begins at the start where it names nothing."""
    file = f"tracker {TENSORFLOW_TRACKER}"
    if names is None:
        return [f"{file} is missing: a restart that relies on it would begin with random weights"]
    if checkpoint_state(names.content) is None:
        return [f"{file} names no checkpoint but holds {head_of(names.text, 40)!r}: it was cut short, or is none of TensorFlow's"]
    last = PurePosixPath(names.text).name
    if not any(entry.path.name == last for entry in listed):
        return [f"{file} names {last}, which is not there: a restart that relies on it would begin with random weights"]
    return []


def _trap_notes(names: Tracker | None, judged: Sequence[Checkpoint]) -> list[str]:
    """Return a note when a restart that follows the tracker would load a checkpoint that must not be loaded."""
    if names is None:
        return []
    trap = next(
        (judgement for judgement in judged if judgement.step == names.step and not judgement.healthy and not judgement.undecided),
        None,
    )
    return [f"tracker {names.path.name} names step {trap.step}, which must not be loaded: {trap.problems[0]}"] if trap else []


def _judge(
    entry: Entry, neighbours: Sequence[Entry], names: Tracker | None, *, now: datetime, live: bool, read: int, save_end: str = ""
) -> Checkpoint:
    """Return the record of one checkpoint with all that speaks against it, and of what was not judged all that speaks for it."""
    content = _Content()
    try:
        problems = _foreign_problems(entry) + missing_problems(entry, read_bytes=read) + size_problems(entry, neighbours)
        if entry.format is not Format.NIGHTSHIFT:
            problems += shard_count_problem(entry, neighbours) if entry.format not in INDEXED else []
            content = _content(entry, neighbours, read)
            problems += content.problems
            problems.sort(key=lambda problem: problem.endswith(NO_STEP))  # of a damaged file that follows from its damage
    except OSError as error:
        problems = [f"cannot be read: {error.strerror or error}"]
    if names is not None and names.step is not None and entry.step > names.step and _waits_for_tracker(entry, neighbours, names):
        problems.append(f"tracker {names.path.name} still names step {names.step}: this save was not finished")
    newest = max((stat.mtime for stat in entry.files.values()), default=None)
    saved_at = _moment(newest if newest is not None else _changed(entry.path))
    recent = live and entry.format not in MARKED and 0 <= (now - saved_at).total_seconds() < SETTLE_S
    is_followed = _is_followed(entry, neighbours, names)
    if recent and not is_followed:
        problems.append("changed within the last seconds: it may still be written")
    size = sum(stat.size for stat in entry.files.values())
    judged = Checkpoint(entry.path, entry.step, str(entry.format), size, saved_at, not problems, tuple(problems), content.unread)
    if problems and all(problem.endswith(NO_STEP) for problem in problems):
        return replace(judged, undecided=True)  # nothing is known against it but that nobody knows which step it is
    if problems or not content.unread:
        return judged
    end = "a later one was saved behind it" if is_followed else _named_by(names, entry) or save_end
    lacking = content.lacking or ("" if end else "nothing shows that its save had ended before the job did")
    if lacking:
        return replace(judged, healthy=False, problems=(f"cannot be judged: {content.unread}, and {lacking}",), undecided=True)
    return replace(judged, grounds=(*content.grounds, end))


def _foreign_problems(entry: Entry) -> list[str]:
    """Return that another account than the job's owner has put files there, or a name that a shell would take apart."""
    problems = []
    for name, stat_ in entry.files.items():
        if owner := foreign_owner(stat_.uid, folder=entry.path.parent):
            problems.append(f"{name} belongs to {owner}: what another account has put there is not loaded")
            break
    if SHELL_LETTERS.search(entry.path.name):
        problems.append("its name holds characters that a shell takes for commands")
    return problems


def _named_by(names: Tracker | None, entry: Entry) -> str:
    """Return that a tracker names a checkpoint, and was written behind it; empty where it was not."""
    if names is None or names.step != entry.step or entry.step == UNKNOWN_STEP:
        return ""
    last = max((stat.mtime for stat in entry.files.values()), default=math.inf)
    return f"tracker {names.path.name} names it" if _changed(names.path) >= last else ""


def _waits_for_tracker(entry: Entry, entries: Sequence[Entry], names: Tracker) -> bool:
    """Tell whether only the tracker file says that a save was finished.

    Megatron-Core writes `metadata.json` last; and a tracker of a step that is not there was cut short, or its checkpoint deleted.
    """
    if entry.format not in TRACKED and names.path.name not in WRITTEN_LAST:
        return False
    if entry.format is Format.MEGATRON and "metadata.json" in entry.files:
        return False
    return any(entry.step == names.step for entry in entries)


def _is_followed(entry: Entry, neighbours: Sequence[Entry], names: Tracker | None) -> bool:
    """Tell whether its run went on behind a save: it wrote all files of a later save after the last of this save."""
    if names is not None and names.step is not None and names.step > entry.step and _waits_for_tracker(entry, neighbours, names):
        return True
    last = max((stat.mtime for stat in entry.files.values()), default=math.inf)
    run = run_prefix(entry.path.name)
    alike = (save for save in neighbours if save.format is entry.format and run_prefix(save.path.name) == run)
    later = [save for save in [*alike, *filter(partial(is_of_series, entry), neighbours)] if save.step > entry.step]
    whole = (save for save in later if save.files and len(save.files) >= len(entry.files))
    return any(min(stat.mtime for stat in save.files.values()) > last for save in whole)


def _changed(path: Path) -> float:
    try:
        return status_of(path).st_mtime
    except OSError:  # removed since it was listed
        return 0.0


def _moment(seconds: float) -> datetime:
    """Return a time of a file, which its owner may set to any year."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class _Content:
    """What the contents of a checkpoint's files tell."""

    problems: tuple[str, ...] = ()
    unread: str = ""
    """The first file that no reader knows, and why; empty where all were judged."""
    lacking: str = ""
    """Why its series does not speak for what was not judged."""
    grounds: tuple[str, ...] = ()
    """What speaks for it."""


def _content(entry: Entry, neighbours: Sequence[Entry], read: int) -> _Content:
    """Return what the contents of a checkpoint tell, and what its series says of those that were not judged."""
    problems: list[str] = []
    unread: dict[str, str] = {}
    grounds: tuple[str, ...] = ()
    lacking, budget = "", read
    for name, about in entry.files.items():
        verdict = _file_verdict(entry, name, neighbours, budget) if about.size else FileVerdict()
        budget = max(0, budget - (0 if name.endswith(".distcp") else about.size))
        problems += [f"{name} {verdict.problem}"] if verdict.problem else []
        if verdict.problem or not (verdict.unread or verdict.is_partial) or len(unread) > MOST_UNREAD:
            continue
        if entry.format not in OWN_FORMS:
            problems += [f"{name} is no PyTorch file: it {verdict.unread}"] if verdict.unread else []
            continue
        series = series_verdict(entry, name, neighbours, read_bytes=read)
        problems += [f"{name} {series.damage}"] if series.damage else []
        if verdict.unread or series.differs:
            unread[name] = verdict.unread or "can be followed only in part"
            lacking, grounds = lacking or series.lacking, grounds or series.grounds
    problems += shard_content_problems(entry, budget) + array_problems(entry, read_bytes=budget)
    words = next((f"{name} {why}" for name, why in unread.items()), "")
    return _Content(tuple(problems), words, lacking, grounds)


def _file_verdict(entry: Entry, name: str, neighbours: Sequence[Entry], read: int) -> FileVerdict:
    """Return what is known of one file: what all of its series fail is no check, and zeros at the end of it alone are damage."""
    is_alone = entry.path.name == name and (number_in(name) is None or bool(entry.slot)) and entry.format in OWN_FORMS
    verdict = file_verdict(entry.file(name), read_bytes=read, any_form=is_alone)
    if verdict.is_doubtful and entry.format in OWN_FORMS and not fails_alone(entry, name, neighbours, read_bytes=read):
        return FileVerdict(unread="begins with a line of digits that are no digest of what follows, as in all of its series")
    if not verdict.problem and name.endswith(SUFFIXES) and ends_in_zeros(entry, name, neighbours):
        return FileVerdict("ends in zeros, where the same file of the others does not: its end was never written")
    return verdict


def last(inventory: Inventory) -> Checkpoint | None:
    """Return the newest checkpoint, healthy or not."""
    return inventory.checkpoints[-1] if inventory.checkpoints else None


def last_healthy(inventory: Inventory, *, now: datetime, live: bool = False) -> Choice:
    """Return the newest checkpoint that may be loaded; its contents are read before it is offered."""
    return _newest_healthy(inventory, inventory.checkpoints, now=now, live=live)


def before_step(
    inventory: Inventory,
    step: int,
    *,
    now: datetime,
    margin: int = 0,
    live: bool = False,
    epoch: int | None = None,
    save_steps: Mapping[str, int] = MappingProxyType({}),
) -> Choice:
    """Return the newest healthy checkpoint at least `margin` steps before a step, for instance before a loss spike.

    Args:
        inventory: What its folder holds.
        step: To stay before.
        now: The time.
        margin: Steps before it.
        live: Whether the job may still be writing.
        epoch: Number of the epoch of that step, as the log says it; None where it does not.
        save_steps: Steps at which the log tells of saves, by the names of checkpoints that count none.
    """
    end = step - max(margin, 1) + 1
    early = [checkpoint for checkpoint in inventory.checkpoints if is_before(checkpoint, end, epoch, save_steps)]
    return _newest_healthy(inventory, early, now=now, live=live)


def is_before(checkpoint: Checkpoint, step: int, epoch: int | None, save_steps: Mapping[str, int] = MappingProxyType({})) -> bool:
    """Tell whether a checkpoint was surely saved before a step.

    One that counts epochs is where two begin behind it at least: names and logs may count them from 0 or from 1. One that counts
    neither steps nor epochs is where the log tells the step of its save.
    """
    if counts_steps(checkpoint.format, checkpoint.path.name):
        return checkpoint.step < step
    if checkpoint.path.name in save_steps:
        return save_steps[checkpoint.path.name] < step
    counts_epochs = checkpoint.format == Format.EPOCHS or says_epoch(checkpoint.path.name)
    return counts_epochs and epoch is not None and checkpoint.step <= epoch - FEWEST_EPOCHS


def _newest_healthy(inventory: Inventory, among: Sequence[Checkpoint], *, now: datetime, live: bool) -> Choice:
    refused: list[Checkpoint] = []
    for candidate in reversed(among):
        is_open = candidate.healthy or candidate.undecided
        checkpoint = examined(inventory, candidate, now=now, live=live) if is_open else candidate
        if checkpoint.healthy:
            return Choice(checkpoint, tuple(refused))
        refused.append(checkpoint)
    return Choice(None, tuple(refused))
