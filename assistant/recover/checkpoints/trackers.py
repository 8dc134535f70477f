"""Names that lead to a checkpoint: tracker files, and second names of the same content.

Trackers are small files by which training programs know their newest finished checkpoint; they can be set to another. That of
TensorFlow is the text form of a message of Protocol Buffers; the others hold a step or a name.

Whoever loads `last.pth.tar` may load `checkpoint-5.pth.tar`: timm and the examples of PyTorch keep such names as hard links or
copies, others save the same state twice. Device and inode tell them, else content: the checksums of all members of a zip of
PyTorch, or every byte of a small file. A file of the same size or time alone is another checkpoint. Links in the folder itself are
read by `layout.links`.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
import zlib
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from assistant.errors import OwnerDenied, UnreadableFile
from assistant.recover.checkpoints.bundles import bundle_prefix
from assistant.recover.checkpoints.entry import Entry, FileStat
from assistant.recover.checkpoints.files import CHUNK_BYTES, ZIP_HEAD, ZipSource
from assistant.recover.checkpoints.layout import UNKNOWN_STEP, could_be_checkpoint, file_stat, is_second_link, step_in_name
from assistant.recover.checkpoints.names import SUFFIXES
from assistant.untrusted import MOST_ENTRIES, is_folder, is_regular, list_folder, open_regular, read_start


@dataclass(frozen=True, slots=True)
class Tracker:
    """A small file that names the newest finished checkpoint."""

    path: Path
    step: int | None
    """None when its content is no step: empty, cut short, or the word `release`."""
    text: str
    """What names the checkpoint: all that stands there, of TensorFlow's the path alone."""
    content: str = ""
    """All that stands in TensorFlow's; empty of the others."""


_PATH_OR_STEP = re.compile(r"(?:\S{0,2000}/)?[A-Za-z_=-]{0,40}(\d{1,18})(?:\.\w{1,16})?/?")
TRACKERS = {
    "latest": re.compile(
        r"(?:global_?)?step_?(\d{1,18})"
    ),  # before Megatron's: Megatron-DeepSpeed writes both, and loads by this one
    "latest_checkpointed_iteration.txt": re.compile(r"(\d{1,18})"),
    "latest_checkpointed_iteration.json": re.compile(r'\{\s*"latest_checkpointed_iteration":\s*(\d{1,18})\s*\}'),
    "latest.txt": _PATH_OR_STEP,
    "last_checkpoint": _PATH_OR_STEP,
    "last_checkpoint.txt": _PATH_OR_STEP,
}
TENSORFLOW_TRACKER = "checkpoint"
"""TensorFlow's, beside files of its checkpoints; elsewhere a file of that name may be anything."""
TRACKER_NAMES = (*TRACKERS, TENSORFLOW_TRACKER)
TRACKER_BYTES = 16_384
"""TensorFlow's names every checkpoint that is kept."""
STATE_PATH = "model_checkpoint_path"
STATE_PATHS = "all_model_checkpoint_paths"
STATE_TIMES = "all_model_checkpoint_timestamps"
STATE_PRESERVED = "last_preserved_timestamp"
STATE_FIELD = re.compile(
    r"""(?P<space>[\s,;]++|\#[^\n]*+)|(?P<name>[a-z_]{1,64})\s*+:\s*+(?:(?P<texts>(?:(?:"(?:[^"\\\n]|\\.)*+"|'(?:[^'\\\n]|\\.)*+')\s*+)++)|(?P<number>[-+.\w]{1,40}))"""
)
_QUOTED = re.compile(r""""((?:[^"\\\n]|\\.)*+)"|'((?:[^'\\\n]|\\.)*+)'""")
_ESCAPE = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.DOTALL)
_ESCAPED = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


def tracker(folder: Path) -> Tracker | None:
    """Return the file that names the newest finished checkpoint, when the folder has one."""
    of_own_form = _tensorflow_tracker(folder)
    if of_own_form is not None:
        return of_own_form
    for name, pattern in TRACKERS.items():
        path = folder / name
        linked = is_second_link(path) and could_be_checkpoint(path.resolve().name, folder=False)
        if linked or is_folder(path):  # a checkpoint of that name, or a link to one: `links` has it
            continue
        try:
            text = read_start(path, TRACKER_BYTES).decode("utf-8", "replace")[:200].strip()
        except FileNotFoundError:
            continue
        except (UnreadableFile, OwnerDenied) as error:
            return Tracker(path, None, f"unreadable: {error}")
        match = pattern.fullmatch(text)
        candidate = Tracker(path, int(match[1]) if match else None, text)
        if match is None and name == "latest" and of_own_form is None:
            of_own_form = candidate  # of somebody's own form: Megatron's beside it counts more
            continue
        return candidate
    return of_own_form


def _tensorflow_tracker(folder: Path) -> Tracker | None:
    path = folder / TENSORFLOW_TRACKER
    if is_folder(path):
        return None
    try:
        text = read_start(path, TRACKER_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except (UnreadableFile, OwnerDenied) as error:
        return Tracker(path, None, f"unreadable: {error}")
    state = checkpoint_state(text)
    if state is None and STATE_PATH not in text and not any(bundle_prefix(child.name) for child in list_folder(folder)):
        return None
    target = state.path if state is not None else text[:200].strip()
    return Tracker(path, step_in_name(PurePosixPath(target).name) if state is not None else None, target, text)


class CheckpointState(NamedTuple):
    """What TensorFlow's tracker says."""

    path: str
    """The prefix of the checkpoint that is loaded, absolute or from the folder of the file."""
    paths: tuple[str, ...]
    """Those that are listed, oldest first."""
    times: tuple[str, ...]
    """When each of these was saved, in seconds since 1970; empty where the file does not say."""
    further: tuple[tuple[str, str], ...]
    """Further fields, as written."""


def checkpoint_state(text: str) -> CheckpointState | None:
    """Return what a tracker of TensorFlow says; None where TensorFlow would read none out of it: it is empty, or was cut short.

    Source: tensorflow/python/checkpoint/checkpoint_management.py, get_checkpoint_state(); checkpoint_state.proto.
    """
    paths: list[str] = []
    listed: list[str] = []
    times: list[str] = []
    further: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = STATE_FIELD.match(text, at)
        if match is None:
            return None
        at = match.end()
        if match["space"]:
            continue
        name, value = match["name"], match["number"] or ""
        if (name in (STATE_PATH, STATE_PATHS)) != bool(match["texts"]):
            return None
        if name == STATE_PATH:
            paths.append(_unquoted(match["texts"]))
        elif name == STATE_PATHS:
            listed.append(_unquoted(match["texts"]))
        elif name == STATE_TIMES:
            times.append(value)
        elif name == STATE_PRESERVED:
            further.append((name, value))
        else:
            return None
    if not paths or not paths[-1] or "\n" in paths[-1] or "\0" in paths[-1]:
        return None
    return CheckpointState(paths[-1], tuple(listed), tuple(times) if len(times) == len(listed) else (), tuple(further))


def state_naming(tracker: Tracker | None, checkpoint: Path, saved_at_s: float, *, moved_away: Collection[str]) -> str:
    """Return what has to stand in TensorFlow's tracker so that a program loads a checkpoint; all else in it stays as it is.

    Args:
        tracker: The file as it is; None where there is none.
        checkpoint: The prefix; it lies beside the file.
        saved_at_s: When it was saved, in seconds since 1970.
        moved_away: Names of those that are moved away, which the file shall not name any more.
    """
    state = checkpoint_state(tracker.content) if tracker is not None else None
    absolute = state is not None and PurePosixPath(state.path).is_absolute()
    prefix = str(checkpoint) if absolute else checkpoint.name
    times = state.times if state is not None else ()
    entries = [
        (path, times[place] if times else "")
        for place, path in enumerate(state.paths if state is not None else ())
        if (name := PurePosixPath(path).name) not in moved_away and name != checkpoint.name
    ]
    own = next(
        (place for place, path in enumerate(state.paths if state else ()) if PurePosixPath(path).name == checkpoint.name), None
    )
    # TensorFlow takes the last one for the newest
    entries.append((prefix, (times[own] if own is not None else f"{saved_at_s:.6f}") if times else ""))
    lines = [f"{STATE_PATH}: {_quoted(prefix)}", *(f"{STATE_PATHS}: {_quoted(path)}" for path, _ in entries)]
    lines += [f"{STATE_TIMES}: {time}" for _, time in entries if time]
    lines += [f"{name}: {value}" for name, value in (state.further if state is not None else ())]
    return "\n".join(lines) + "\n"


def _unquoted(texts: str) -> str:
    raw = "".join(match[1] or match[2] or "" for match in _QUOTED.finditer(texts)).encode()
    return _ESCAPE.sub(_unescaped, raw).decode("utf-8", "replace")


def _unescaped(escape: re.Match[bytes]) -> bytes:
    if escape[1] or escape[2]:
        return bytes([int(escape[1] or escape[2], 8 if escape[1] else 16) & 255])
    return _ESCAPED.get(escape[3], escape[3])


def _quoted(path: str) -> str:
    plain = path.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
    return f'"{plain}"'


NEAREST = 3
"""Checkpoints whose content is compared with that of one name: those that were written at nearly the same time."""
MOST_NAMES = 12
"""Names of one folder that are compared by content."""
SMALL_BYTES = 64 << 20
"""Of a file without checksums of its own, that is read to be compared."""
DERIVED = ".data/serialization_id"
"""A member of PyTorch's zip that is computed from the others."""


def second_names(entries: Sequence[Entry]) -> dict[Path, Path]:
    """Return the other names of checkpoints that are one file each, with the checkpoint that each of them is.

    A name with a number is the checkpoint's own; of the others those count that are written again at each save, and any file of
    weights beside them.

    Args:
        entries: The checkpoints of a folder, from `layout.entries`.

    Raises:
        OSError: The folder cannot be read.
    """
    single = [entry for entry in entries if len(entry.files) == 1 and entry.path.name in entry.files and not entry.temporary]
    numbered = [entry for entry in single if step_in_name(entry.path.name) is not None]
    rolling = [entry for entry in single if step_in_name(entry.path.name) is None]
    names: dict[Path, Path] = {}
    content = lru_cache(maxsize=None)(_content)
    for place, (path, stat) in enumerate([*((entry.path, _stat(entry)) for entry in rolling), *_files_beside(single)]):
        candidates = numbered if any(path == entry.path for entry in rolling) else single
        own = next((entry for entry in candidates if stat.inode != (0, 0) and _stat(entry).inode == stat.inode), None)
        near = sorted(candidates, key=lambda entry: abs(_stat(entry).mtime - stat.mtime))[:NEAREST] if place < MOST_NAMES else []
        own = own or next((entry for entry in near if _is_copy(content, path, stat, entry)), None)
        if own is not None:
            names[path] = own.path
    return names


def with_common_steps(entries: Sequence[Entry], names: dict[Path, Path]) -> list[Entry]:
    """Return checkpoints in order, where one that tells no step has that of the other name which it lies under.

    Of one step the checkpoint's own name comes behind its other names: the last one is chosen.
    """
    by_path = {entry.path: entry for entry in entries}
    for name, own in names.items():
        for path, twin in ((name, by_path.get(own)), (own, by_path.get(name))):
            if path in by_path and twin is not None and by_path[path].step == UNKNOWN_STEP:
                by_path[path] = replace(by_path[path], step=twin.step, format=twin.format)
    return sorted(
        by_path.values(),
        key=lambda entry: (entry.step, entry.temporary, "-last" not in entry.path.name, entry.path not in names, entry.path.name),
    )


def _stat(entry: Entry) -> FileStat:
    return entry.files[entry.path.name]


def _files_beside(single: Sequence[Entry]) -> Iterator[tuple[Path, FileStat]]:
    """Yield files of weights beside checkpoints that are none by their name, as `model_best.pth.tar`."""
    candidates = {entry.path for entry in single}
    for folder in dict.fromkeys(entry.path.parent for entry in single):
        for path in list_folder(folder):
            if path not in candidates and path.name.endswith(SUFFIXES) and not is_second_link(path) and is_regular(path):
                yield path, file_stat(path)


def _is_copy(content: Callable[[Path, int], Hashable | None], path: Path, stat: FileStat, entry: Entry) -> bool:
    own = content(path, stat.size)
    return own is not None and own == content(entry.path, _stat(entry).size)


def _content(path: Path, size: int) -> Hashable | None:
    """Return what is the same of two files only where their content is; None where that cannot be told cheaply."""
    try:
        if read_start(path, len(ZIP_HEAD)) == ZIP_HEAD:
            return _checksums(path)
        return _digest(path) if 0 < size <= SMALL_BYTES else None
    except (OSError, UnreadableFile, zipfile.BadZipFile, ValueError, RuntimeError, OverflowError, IndexError, zlib.error, EOFError):
        return None


def _checksums(path: Path) -> Hashable | None:
    """Return names, checksums and sizes of all members of a zip without its topmost folder, which PyTorch calls as the file."""
    with ZipSource(path) as source, zipfile.ZipFile(source) as archive:
        members = archive.infolist()
    # with torch.serialization.set_crc32_options(False) none was written
    if not members or len(members) > MOST_ENTRIES or any(entry.file_size and not entry.CRC for entry in members):
        return None
    return tuple(
        (entry.filename.partition("/")[2], entry.CRC, entry.file_size) for entry in members if not entry.filename.endswith(DERIVED)
    )


def _digest(path: Path) -> Hashable:
    digest = hashlib.sha256()
    with open_regular(path) as stream:
        while block := stream.read(CHUNK_BYTES):
            digest.update(block)
    return digest.digest()
