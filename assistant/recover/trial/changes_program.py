"""What the overlays of a trial's sandbox show that a script did: its saves, and what it wrote, removed and printed into files.

It travels as text with `sandbox_program.py`, so it imports nothing but the standard library and runs on Python 3.6.
"""

# What a newer Python would write does not run on the nodes' 3.6.
# ruff: noqa: PTH118, PTH123, UP006, UP031, UP035, UP045

import os
import stat
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

Request = Dict[str, Any]
Layer = Any
"""Of `sandbox_program.py`."""
MOST_ENTRIES = 4000
MOST_LOG = 32 * 1024
MOST_RECORDS = 16


def saves_of(request: Request, layers: Sequence[Layer], before: Dict[str, Any]) -> Iterator[str]:
    """Yield what was written below the folders that are watched and did not lie there, or was written over what has a number."""
    for layer in layers:
        for name, about in layer.entries():
            path = os.path.join(layer.root, name)
            inner = next((path[len(top) :] for top in request["watched"] if path.startswith(top.rstrip("/") + "/")), "")
            is_new = stat.S_ISREG(about.st_mode) and about.st_size and name not in before[layer.root]
            if not inner or not is_new or path.endswith((".tmp", ".log", ".out", ".err")):
                continue
            old = layer.was_there(name)
            if old is None or (any(map(str.isdigit, inner)) and not begins_as_before(layer, name, about, old)):
                yield path


def is_whiteout(about: os.stat_result) -> bool:
    """Tell whether an entry of an overlay stands for a file that was removed."""
    return stat.S_ISCHR(about.st_mode) and about.st_rdev == 0


def differences(layers: Sequence[Layer], before: Dict[str, Any], request: Request) -> Tuple[List[Any], List[str], Any, List[str]]:
    """Return what was written, what was removed, the text of files that a person would read, and what was asked of Slurm."""
    changed, removed, logs, records = [], [], {}, []  # type: List[Any], List[str], Dict[str, str], List[str]
    for layer in layers:
        for name, about in layer.entries():
            path, old = os.path.join(layer.root, name), layer.was_there(name)
            is_file = stat.S_ISREG(about.st_mode)
            ours = "nightshift-trial-" in name or (path in request["hidden"] and not is_file) or path in request["written"]
            if ours and "/record-" in name and name.endswith(".json") and is_file and len(records) < MOST_RECORDS:
                records.append(read_of(layer.upper, name, 1 << 20).decode("utf-8", "replace"))
            if ours or len(changed) + len(removed) >= MOST_ENTRIES:
                continue
            if is_whiteout(about):
                removed.append(path)
            elif stat.S_ISDIR(about.st_mode):
                if old is not None and "user.overlay.opaque" in os.listxattr("/proc/self/fd/%d/%s" % (layer.upper, name)):
                    removed.append(path)  # and made anew
            else:
                grown = old is not None and is_file and begins_as_before(layer, name, about, old)
                if old is None or not grown or about.st_size != old.st_size:
                    was = old.st_size if old is not None else None
                    changed.append({"path": path, "size": about.st_size, "was": was, "grown": grown})
                    text = grown_text(layer, name, about, old)
                    if text and len(logs) < 12:
                        logs[path] = text
    return changed, removed, logs, records


def read_of(folder: int, name: str, size: int, begin: int = 0) -> bytes:
    """Return what stands in a file of a layer."""
    with open("/proc/self/fd/%d/%s" % (folder, name), "rb") as file:
        file.seek(begin)
        return file.read(size)


def begins_as_before(layer: Layer, name: str, about: os.stat_result, old: os.stat_result) -> bool:
    """Tell whether a file still holds what it held: it was only opened to write, touched, or added to."""
    size = old.st_size
    if about.st_size < size or size > 1 << 24 or not stat.S_ISREG(old.st_mode):
        return False
    return read_of(layer.upper, name, size) == read_of(layer.lower, name, size)


def grown_text(layer: Layer, name: str, about: os.stat_result, old: Optional[os.stat_result]) -> str:
    """Return what was written to a file, where it is text: of one that was there what is behind its old end."""
    if not stat.S_ISREG(about.st_mode) or not about.st_size:
        return ""
    begin = old.st_size if old is not None and old.st_size < about.st_size else 0
    text = read_of(layer.upper, name, MOST_LOG, begin).decode("utf-8", "replace")
    return text if "\0" not in text and text.count("\ufffd") * 50 < len(text) else ""
