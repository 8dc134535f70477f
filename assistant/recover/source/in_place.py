"""What a Python program changes in place, or adds to, so that a second run does it a second time. Pure.

What is seen is a doubt; that nothing is seen proves nothing.
"""

from __future__ import annotations

import ast
import re
from pathlib import PurePosixPath

from assistant.recover.job_program import JobProgram
from assistant.recover.source.file_uses import OPENS, FileUses, argument_of, file_uses
from assistant.recover.source.paths import Caller
from assistant.recover.source.trainer_source import dotted

WRITES_FIRST = frozenset(
    (
        "save savez savez_compressed savetxt to_csv to_json to_parquet to_pickle to_feather to_excel to_string to_latex to_html "
        "to_markdown savemat save_npz tofile"
    ).split()
)
READS_FIRST = re.compile(
    r"read_\w+|load|loadtxt|genfromtxt|fromfile|loadmat|load_npz|getsize|getmtime|stat|listdir|scandir|walk|i?glob"
)


def changes_in_place(call: ast.Call) -> bool:
    """Tell whether a call opens a file to change it in place, or adds to a store: `np.memmap(path, mode="r+")`, `to_hdf`."""
    name = dotted(call.func).rpartition(".")[2]
    if name in ("to_hdf", "to_sql", "HDFStore"):
        return not any(isinstance(mode, ast.Constant) and mode.value in ("r", "w") for mode in _modes(call))
    if name in ("memmap", "open_memmap", "load", "File", "open_array", "open_group", "ZipFile"):
        return any(isinstance(mode, ast.Constant) and mode.value in ("r+", "a", "w+", "rb+", "r+b") for mode in _modes(call))
    return False


def repeated_change(program: JobProgram) -> str:
    """Return what a program changes in place, or adds to, with its line; empty where none is seen, which proves nothing."""
    uses = file_uses(program)
    for caller in uses.calls:
        if changes_in_place(caller.node):
            place = f"{PurePosixPath(caller.source.path).name}:{caller.node.lineno}"
            return f"{place} changes a file in place, or adds to it: {ast.unparse(caller.node)[:120]}"
    return overwritten_input(uses)


def overwritten_input(uses: FileUses) -> str:
    """Return the line that writes over a file which the same function has read before: it is changed in place; empty for none.

    Told by how the source writes the path: where it writes it otherwise the second time, nothing is seen.
    """
    first_reads: dict[tuple[int, int, str], int] = {}
    calls = sorted(uses.calls, key=lambda caller: caller.node.lineno)
    for is_read in (True, False):
        for caller in calls:
            node = _touched(uses, caller, is_read=is_read)
            key = (id(caller.source), id(caller.scope), ast.unparse(node) if node is not None else "")
            if node is not None and is_read:
                first_reads.setdefault(key, caller.node.lineno)
            elif node is not None and first_reads.get(key, caller.node.lineno + 1) <= caller.node.lineno:
                line = f"{PurePosixPath(caller.source.path).name}:{caller.node.lineno}"
                return f"{line} writes over {key[2][:80]}, which it has read before"
    return ""


def _touched(uses: FileUses, caller: Caller, *, is_read: bool) -> ast.expr | None:
    """Return the path that a call reads, or writes anew; None of any other call."""
    call, name = caller.node, dotted(caller.node.func)
    method = call.func.attr if isinstance(call.func, ast.Attribute) else name
    holder = call.func.value if isinstance(call.func, ast.Attribute) else None
    if name in OPENS or (method == "open" and holder is not None):
        is_given = bool(call.args[1 if name in OPENS else 0 :]) or any(item.arg == "mode" for item in call.keywords)
        mode = uses.mode_of(caller) if is_given else "r"
        return (argument_of(call, "file", 0) if name in OPENS else holder) if mode[:1] == ("r" if is_read else "w") else None
    if is_read:
        if method in ("read_text", "read_bytes"):
            return holder
        of_library = name.partition(".")[0] in ("np", "numpy", "pd", "pandas", "torch", "joblib", "sf", "soundfile", "cv2", "Image")
        return call.args[0] if of_library and READS_FIRST.fullmatch(method) and call.args else None
    if method in ("write_text", "write_bytes"):
        return holder
    if name in ("torch.save", "joblib.dump") and len(call.args) > 1:
        return call.args[1]
    return call.args[0] if method in WRITES_FIRST and call.args else None


def _modes(call: ast.Call) -> list[ast.expr]:
    keywords = [item.value for item in call.keywords if item.arg in ("mode", "mmap_mode")]
    return [*keywords, *call.args[1:4]]
