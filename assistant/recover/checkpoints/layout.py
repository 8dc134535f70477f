"""How the training frameworks lay checkpoints out in a folder: which entries there are, of which step, in which format."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from assistant.errors import InputError, OwnerDenied, UnreadableFile
from assistant.recover.checkpoints.bundles import BUNDLE_FILE, SAVED_MODEL, bundle_prefix, bundle_saves
from assistant.recover.checkpoints.entry import Entry, FileStat, Format, in_own_form
from assistant.recover.checkpoints.inner_counts import epoch_inside, inner_count, step_inside
from assistant.recover.checkpoints.names import (
    OF_HUGGINGFACE,
    OF_INTERNEVO,
    OF_MEGATRON,
    OUR_FOLDERS,
    SUFFIXES,
    Unit,
    is_rolling,
    name_form,
    number_in,
    number_of_form,
    says_epoch,
    without_suffix,
)
from assistant.recover.checkpoints.slots import MOST_SLOTS, slot_form
from assistant.untrusted import is_folder, is_regular, list_folder, read_json, status_of, walk_files

TEMPORARY = re.compile(
    r"\.orbax-checkpoint-tmp[\w.-]{0,64}$|^(?:\.|tmp[-_.])+|(?:[._-](?:tmp|temp|part|partial|incomplete|unfinished|writing)[\w.-]{0,64})$",
    re.IGNORECASE,
)
# 18 digits fit into 64 bits; no training counts further
DIRECTORY_STEPS = {
    Format.MEGATRON: re.compile(r"iter_(\d{1,18})"),
    Format.DEEPSPEED: re.compile(r"global_?step_?(\d{1,18})"),
    Format.HUGGINGFACE: re.compile(r"checkpoint-(\d{1,18})"),
    Format.TORCHTITAN: re.compile(r"step-(\d{1,18})"),
    Format.INTERNEVO: re.compile(r"(\d{1,18})"),
}
FILES_OF = {Format.MEGATRON: OF_MEGATRON, Format.HUGGINGFACE: OF_HUGGINGFACE, Format.TORCHTITAN: re.compile(r"\.metadata$")}
LAST_NUMBER = re.compile(r"(?<!\d)(\d{1,18})(?!.{0,255}\d)")
DISTCP = re.compile(r"(?:^|/)__\d+_\d+\.distcp$")
KERAS_WEIGHTS, KERAS_STATE = "latest.weights.h5", "training_metadata.json"
"""The two files of Keras's backup, which it writes over at each save: weights, and the epoch that comes next."""
NOT_A_CHECKPOINT = re.compile(
    r"^(?:optim|opt_|sched|rng|random_states|tokenizer|dataset|train_|val_|tokens|shard|embed)|-of-\d+"
    r"|^\d+(?:_\d+)*_(?:submitted|result)\.pkl$",  # submitit, core/utils.py, JobPaths: pickled calls, named by the job's id
    re.IGNORECASE,
)
RANK_WORD = re.compile(r"[-_.]*(?:mp_?|dp_?)?rank[-_=]?(\d{1,9})", re.IGNORECASE)
UNNUMBERED = re.compile(
    r"(?:last|latest|ckpt|checkpoint|snapshot|state|train(?:ing|er)?[-_]?state)(?:[-_](?:last|latest|ckpt|checkpoint|state|model))?(?:-v\d{1,4})?",
    re.IGNORECASE,
)
"""Stems of files that are replaced at each save, so that the step stands only inside: `ckpt.pt`, `last.ckpt`."""
COMPOSER_FILE = re.compile(r"ep\d{1,18}-ba\d{1,18}(?:-rank\d{1,9})?(?:\.pt)?$")
ORBAX_FILE = re.compile(r"(?:^|/)(?:_CHECKPOINT_METADATA|_METADATA|manifest\.ocdbt|_sharding|commit_success\.txt)$")
UNKNOWN_STEP = 0  # of a file that tells its step neither in its name nor in its content; it is healthy only once it has a place
MOST_EPOCHS = 10**9
PLAIN_FOLDER = re.compile(
    r"(?:[a-z]{1,40}[-_.=])?(?:global[-_]?)?(?:step|iter(?:ation)?|ep(?:och)?|batch|ckpt|checkpoint|snapshot|save)s?[-_=.]?\d{1,18}(?:[-_].{0,100})?",
    re.IGNORECASE,
)
"""Folders of no known layout that hold a checkpoint where there are weights in them."""
NUMBER_ALONE = re.compile(r"^(?:checkpoint_metadata|model_config)\.json$|tp_rank_world_size=")
"""Files of nanotron and picotron, which name folders by the step alone; other such folders may be tasks or ranks."""
OURS = re.compile(r"\.npz$|^attempt-[0-9a-f]+-\d+/")
"""Files of assistant.training: the demo's shards, and the folder of one save of AsyncCheckpointer."""
NESTED = ("checkpoints", "checkpoint", "ckpts", "ckpt", "chief")
"""The last one is made by TensorFlow's BackupAndRestore."""


def step_in_name(name: str) -> int | None:
    """Return the step that the name of a checkpoint tells, else its epoch or number of saves; None where it has no such number."""
    stem = TEMPORARY.sub("", name)
    for layout, pattern in DIRECTORY_STEPS.items():
        if layout is not Format.INTERNEVO and (match := pattern.fullmatch(stem)):
            return int(match.group(1))
    number = number_in(RANK_WORD.sub("", stem))
    return number.number if number is not None else None


def names_step(name: str) -> bool:
    """Tell whether a name calls a number of its own a step."""
    number = number_in(RANK_WORD.sub("", TEMPORARY.sub("", name)))
    return number is not None and number.unit is Unit.STEP


def counts_steps(checkpoint_format: str, name: str) -> bool:
    """Tell whether the number of a checkpoint counts optimiser steps, and not epochs or saves."""
    if checkpoint_format in (Format.EPOCHS, Format.SAVES, Format.PLACED) or (not checkpoint_format and step_in_name(name) is None):
        return False  # of a file that is written again at each save only its content tells what it counts
    if checkpoint_format == Format.TENSORFLOW:
        return True  # the step stands inside, whatever the name counts
    return names_step(name) if checkpoint_format == Format.ACCELERATE else not says_epoch(name)


def rank_of(name: str) -> int | None:
    """Return the rank that a name tells: 1 of `ep0-ba40-rank1.pt`; None where it tells none."""
    match = RANK_WORD.search(name)
    return int(match[1]) if match is not None else None


def step_of_form(name: str, forms: Collection[str]) -> int | None:
    """Return the step in a name, finished or not, that a program is known to give its checkpoints: `names.number_of_form`."""
    return number_of_form(RANK_WORD.sub("", TEMPORARY.sub("", name)), forms) if forms else None


def could_be_checkpoint(name: str, *, folder: bool, forms: Collection[str] = ()) -> bool:
    """Tell whether a name alone lets an entry of a folder be a checkpoint, one of these forms as well; nothing is read."""
    stem = TEMPORARY.sub("", name)
    if step_of_form(name, forms) is not None:
        return True
    if name == KERAS_WEIGHTS or (not folder and bundle_prefix(name)):
        return not folder
    if folder:
        return stem.endswith(".ckpt") or stem.isdecimal() or "step=" in stem or PLAIN_FOLDER.fullmatch(stem) is not None
    if not stem.endswith(SUFFIXES) or NOT_A_CHECKPOINT.search(stem):
        return False
    if stem.endswith(".ckpt") or _replaced(stem):
        return True
    number = number_in(RANK_WORD.sub("", stem))
    worded = re.search("ckpt|checkpoint|model", stem, re.IGNORECASE) is not None
    return number is not None and (worded or number.unit is not Unit.UNNAMED)


def _replaced(name: str) -> bool:
    """Tell whether a file is written again at each save, so that its step stands only inside."""
    stem = without_suffix(name)
    return UNNUMBERED.fullmatch(stem) is not None or is_rolling(stem)


def entries(folder: Path, *, depth: int = 3, forms: Collection[str] = ()) -> list[Entry]:
    """Return every checkpoint in a folder, oldest step first; looks into `checkpoints/` and the like when it holds none itself.

    Args:
        folder: Where to look.
        depth: Folders named `checkpoints` and the like inside one another that are looked into.
        forms: Names that the program is known to give its checkpoints, as `step_of_form` takes them.

    Raises:
        OSError: The folder cannot be read.
    """
    children = [child for child in list_folder(folder) if child.name not in OUR_FOLDERS]
    listed = [entry for child in children if not is_second_link(child) and (entry := _reachable_entry(child, forms)) is not None]
    listed = [*map(_without_slot_number, listed, [listed] * len(listed)), *_torn_slots(children, listed)]
    listed = [*_joined_ranks(listed), *_bundles(folder, children)]
    slots = list_folder(folder / "snapshot") if is_folder(folder / "snapshot") else []
    listed += [entry for slot in slots if (entry := _snapshot(slot)) is not None]
    if not listed:
        nested = [folder / name for name in NESTED if depth and is_folder(folder / name)]
        listed = [entry for inner in nested for entry in entries(inner, depth=depth - 1, forms=forms)]
    if any(entry.format is Format.NIGHTSHIFT for entry in listed):
        # a save that was cut early on has nothing of its own yet that tells it from Megatron's
        listed = [replace(entry, format=Format.NIGHTSHIFT) if _bare(entry) else entry for entry in listed]
    listed = _with_epochs_inside(in_own_form(listed))
    stepped = [entry for entry in listed if entry.step != UNKNOWN_STEP and counts_steps(entry.format, entry.path.name)]
    if any(entry.format in (Format.PLAIN, Format.TENSORFLOW, Format.NEMO) for entry in stepped):
        # epochs and steps cannot be put in one order
        listed = [replace(entry, step=UNKNOWN_STEP) if entry.format is Format.EPOCHS else entry for entry in listed]
    return sorted(listed, key=lambda entry: (entry.step, entry.temporary, "-last" not in entry.path.name, entry.path.name))


def _bundles(folder: Path, children: Sequence[Path]) -> list[Entry]:
    """Return the checkpoints of TensorFlow among the children of a folder."""
    names = [
        child.name for child in children if BUNDLE_FILE.fullmatch(child.name) and not is_second_link(child) and not is_folder(child)
    ]
    formats = {Unit.STEP: Format.TENSORFLOW, Unit.EPOCH: Format.EPOCHS, Unit.UNNAMED: Format.SAVES}
    return [
        Entry(
            folder / save.prefix,
            UNKNOWN_STEP if save.step is None else save.step,
            formats[save.unit],
            {name: file_stat(folder / name) for name in save.names},
            temporary=save.temporary,
        )
        for save in bundle_saves(folder, names)
    ]


def _with_epochs_inside(listed: list[Entry]) -> list[Entry]:
    """Return checkpoints whose numbers are epochs where the newest of each form says so inside: timm's `checkpoint-5.pth.tar`.

    As they are where one of them tells a step: epochs and steps cannot be put in one order.
    """
    stepped = [entry for entry in listed if entry.format is Format.PLAIN and entry.step != UNKNOWN_STEP]
    newest = {name_form(entry.path.name): entry for entry in sorted(stepped, key=lambda entry: entry.step)}
    if not newest or not all(_counts_epochs(entry) for entry in newest.values()):
        return listed
    return [replace(entry, format=Format.EPOCHS) if entry.format is Format.PLAIN and entry.step else entry for entry in listed]


def _counts_epochs(entry: Entry) -> bool:
    """Tell whether the number in the name of one file is its epoch, by what it holds: that epoch, or the next, and no step."""
    number = number_in(TEMPORARY.sub("", entry.path.name))
    if entry.path.name not in entry.files or len(entry.files) > 1 or number is None or number.unit is not Unit.UNNAMED:
        return False
    epoch = epoch_inside(entry.path) if number.number == entry.step and step_inside(entry.path) is None else None
    return epoch is not None and abs(epoch - number.number) <= 1


def _marked(path: Path) -> bool:
    """Tell whether NeMo's marker lies beside a checkpoint: NVIDIA/NeMo, format_checkpoint_unfinished_marker_path()."""
    stems = {path.name, path.name.removesuffix(".ckpt").removesuffix("-EMA")}
    markers = [path.with_name(f"{stem}-unfinished") for stem in stems]
    return any(is_regular(marker) or is_folder(marker) for marker in markers)


def _torn_slots(children: Sequence[Path], listed: Sequence[Entry]) -> list[Entry]:
    """Return files that are written in turn with a checkpoint of the folder, as `ckpt_b.pt` with `ckpt_a.pt`, and tell no step."""
    slots = {_slot_form(entry.path.name) for entry in listed if entry.format is Format.PLAIN}
    paths = {entry.path for entry in listed}
    torn = [child for child in children if child not in paths and _slot_form(child.name) in slots and not is_folder(child)]
    return [Entry(child, UNKNOWN_STEP, Format.PLAIN, {child.name: file_stat(child)}) for child in torn]


def _without_slot_number(entry: Entry, listed: Sequence[Entry]) -> Entry:
    """Return a checkpoint without its step where that numbers a slot: another one of its form tells another step inside."""
    number = step_in_name(entry.path.name)
    if entry.format is not Format.PLAIN or number is None or entry.step != number or number >= MOST_SLOTS:
        return entry
    form = _slot_form(entry.path.name)
    same_form = [slot for slot in listed if slot.path != entry.path and _slot_form(slot.path.name) == form]
    inside = any(step_in_name(slot.path.name) not in (None, slot.step) for slot in same_form)
    return replace(entry, step=UNKNOWN_STEP) if inside else entry


def _slot_form(name: str) -> tuple[str, ...]:
    """Return a name with the word left out by which two files that are written in turn differ; its own where it has none."""
    return slot_form(name) if name.endswith(SUFFIXES) else (name, "")


def _reachable_entry(path: Path, forms: Collection[str] = ()) -> Entry | None:
    """Return the checkpoint at a path, None also for a link that leads in a circle: it costs the others nothing."""
    try:
        return entry_of(path) or _of_form(path, forms)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG):
            return None
        raise


def is_second_link(path: Path) -> bool:
    """Tell whether a path is a link to something in the same folder: Composer's `latest-rank0.pt`, Lightning's `last.ckpt`."""
    try:
        return path.is_symlink() and path.resolve().parent == path.parent.resolve()
    except (OSError, RuntimeError):
        return False


def links(folder: Path) -> list[tuple[Path, Path]]:
    """Return the links of a folder that lead to something else in it, with where each leads, also where nothing is there now."""
    return [(child, child.parent / child.resolve().name) for child in list_folder(folder) if is_second_link(child)]


def _joined_ranks(listed: list[Entry]) -> list[Entry]:
    """Join files of one step that differ only in the rank: together they are one checkpoint, named by the lowest rank's file."""
    joined: dict[str, Entry] = {}
    for entry in listed:
        key = str(entry.path)
        if len(entry.files) == 1 and entry.path.name in entry.files and RANK_WORD.search(entry.path.name):
            key = RANK_WORD.sub("", entry.path.name)
        first = joined.get(key)
        joined[key] = entry if first is None else replace(first, files={**first.files, **entry.files})
    return list(joined.values())


def _bare(entry: Entry) -> bool:
    has_name = DIRECTORY_STEPS[Format.MEGATRON].fullmatch(TEMPORARY.sub("", entry.path.name)) is not None
    return has_name and not any("/" in name or DISTCP.search(name) for name in entry.files)


def entry_of(path: Path) -> Entry | None:
    """Return the checkpoint that lies at a path, or None when it is none."""
    name = TEMPORARY.sub("", path.name)
    if not is_folder(path):
        return _file_entry(path, name)
    if not (could_be_checkpoint(path.name, folder=True) or LAST_NUMBER.search(name)):
        return None
    try:
        files, unreadable = stat_files(path), ""
    except UnreadableFile as error:
        files, unreadable = {}, str(error)
    recognised = _directory_format(name, files)
    if recognised is None:
        return None
    marked = recognised[0] is Format.NEMO and _marked(path)
    return Entry(path, recognised[1], recognised[0], files, name != path.name, unreadable, marked)


def _of_form(path: Path, forms: Collection[str]) -> Entry | None:
    """Return what lies at a path as a checkpoint where its name is one that the program is known to give; else None."""
    if path.name in forms and number_in(path.name) is None and is_regular(path):
        count = inner_count(path)  # its program writes it at each save, under this very name
        layout = Format.EPOCHS if count.is_epoch else Format.PLAIN
        return Entry(path, count.number or UNKNOWN_STEP, layout, {path.name: file_stat(path)})
    step = step_of_form(path.name, forms)
    folder = step is not None and is_folder(path)
    files = stat_files(path) if folder else {path.name: file_stat(path)} if step is not None and is_regular(path) else {}
    return Entry(path, step, Format.PLAIN, files, TEMPORARY.sub("", path.name) != path.name) if files and step is not None else None


def _keras_entry(path: Path) -> Entry:
    """Return Keras's backup: its epoch stands beside the weights, and where it does not Keras counts from 0."""
    state = path.with_name(KERAS_STATE)
    try:
        epoch = read_json(state).get("epoch")
    except (OSError, ValueError, AttributeError, InputError):
        epoch = None
    valid_epoch = isinstance(epoch, int) and not isinstance(epoch, bool) and 0 < epoch <= MOST_EPOCHS
    files = {path.name: file_stat(path)} | ({state.name: file_stat(state)} if is_regular(state) else {})
    return Entry(path, epoch, Format.EPOCHS, files) if valid_epoch else Entry(path, UNKNOWN_STEP, Format.PLAIN, files)


def _file_entry(path: Path, name: str) -> Entry | None:
    if path.name == KERAS_WEIGHTS:
        return _keras_entry(path)
    if not name.endswith(SUFFIXES):
        return None
    if name.endswith(".ckpt"):
        layout = Format.NEMO
    elif NOT_A_CHECKPOINT.search(name):
        return None
    else:
        layout = Format.COMPOSER if COMPOSER_FILE.match(name) else Format.PLAIN
    numbered = step_in_name(name)
    step = numbered if names_step(name) else None
    # `ckpt_0.pt` and `ckpt_1.pt` may be slots that are written in turn
    needs_content = step is None and (
        name.endswith(".ckpt") or says_epoch(name) or _replaced(name) or numbered is None or numbered < MOST_SLOTS
    )
    if needs_content and (_replaced(name) or not name.endswith((".bin", ".safetensors", ".pkl", ".msgpack"))):
        step = step_inside(path)
        if step is None and numbered is None and (epoch := epoch_inside(path)) is not None:
            step, layout = epoch, Format.EPOCHS
    if step is None and numbered is None and not (_replaced(name) or name.endswith(".ckpt")):
        return None  # weights of no known step: not written by a training loop, as far as the name tells
    if step is None and numbered is not None and layout is Format.PLAIN and says_epoch(name):
        layout = Format.EPOCHS
    step = step if step is not None else numbered if numbered is not None else UNKNOWN_STEP
    marked = layout is Format.NEMO and _marked(path)
    return Entry(path, step, layout, {path.name: file_stat(path)}, temporary=name != path.name, marked=marked)


def _directory_format(name: str, files: Mapping[str, FileStat]) -> tuple[Format, int] | None:
    """Return format and step of a directory, by its name first and by what is in it second."""
    distributed = ".metadata" in files or any(DISTCP.search(file) for file in files)
    if name.endswith(".ckpt") or (any(file.startswith("weights/") for file in files) and "step=" in name):
        return (Format.NEMO, step_in_name(name) or 0) if names_step(name) else None
    if any(re.match(r"random_states_\d+\.pkl$", file) for file in files) and (step := step_in_name(name)) is not None:
        return (Format.HUGGINGFACE if DIRECTORY_STEPS[Format.HUGGINGFACE].fullmatch(name) else Format.ACCELERATE), step
    if any(ORBAX_FILE.search(file) for file in files) and (step := step_in_name(name)) is not None:
        return Format.ORBAX, step
    for layout, pattern in DIRECTORY_STEPS.items():
        match = pattern.fullmatch(name)
        if match is None:
            continue
        step = int(match.group(1))
        if layout is Format.MEGATRON and any(file == "manifest.json" or OURS.search(file) for file in files):
            return Format.NIGHTSHIFT, step
        if layout is Format.INTERNEVO and not any(map(OF_INTERNEVO.match, files)):
            break
        if files and not distributed and layout in FILES_OF and not any(map(FILES_OF[layout].match, files)):
            return (Format.PLAIN, step) if layout is Format.HUGGINGFACE or _holds_weights(files) else None
        if layout is Format.DEEPSPEED and files and not any(file.endswith("_states.pt") for file in files):
            return (Format.DCP if distributed else Format.PLAIN), step  # verl names its folders alike
        return layout, step
    numbered = step_in_name(name)
    if numbered is None:
        return None
    if distributed:
        return (Format.COMPOSER if COMPOSER_FILE.match(name) else Format.DCP), numbered
    plain = PLAIN_FOLDER.fullmatch(name) or (name.isdecimal() and any(map(NUMBER_ALONE.search, files)))
    return (Format.PLAIN, numbered) if plain and _holds_weights(files) else None


def _holds_weights(files: Collection[str]) -> bool:
    if any(file.rpartition("/")[2] == SAVED_MODEL for file in files):
        return False  # an export of TensorFlow, from which no training goes on
    return any(file.endswith((*SUFFIXES, "/.zarray")) or bundle_prefix(file.rpartition("/")[2]) for file in files)


def _snapshot(slot: Path) -> Entry | None:
    """Return InternEvo's snapshot in one of its two slots; its step stands only in the marker's name, without which it is none."""
    if not is_folder(slot) or not re.fullmatch(r"[01]", slot.name):
        return None
    files = stat_files(slot)
    steps = [int(match[1]) for file in files if (match := re.fullmatch(r"(\d{1,18})\.step", file))]
    return Entry(slot, max(steps), Format.INTERNEVO, files) if steps else None


def stat_files(folder: Path) -> dict[str, FileStat]:
    """Return every file below a folder by its relative path.

    Raises:
        OSError: A folder in it cannot be read, leads back to one above it, or holds more files than any checkpoint.
    """
    return dict(sorted((str(walked.path.relative_to(folder)), _of_status(walked.status)) for walked in walk_files(folder)))


def file_stat(path: Path) -> FileStat:
    """Return what the file system says about a file, zeros of a link that leads nowhere."""
    try:
        return _of_status(status_of(path))
    except (FileNotFoundError, OwnerDenied):  # a link that leads nowhere
        return _of_status(None)


def _of_status(status: os.stat_result | None) -> FileStat:
    return FileStat(status.st_size, status.st_mtime, (status.st_dev, status.st_ino), status.st_uid) if status else FileStat(0, 0.0)
