"""Labelled cases: folders of logs with what an expert says of each.

Two forms, side by side or mixed. A case's own `label.toml`:

    reason = "ecc_error"
    action = "cordon_and_restart"     # optional: else the reason's own
    lines = ["dmesg.log:12", 40]      # optional: what shows it; a bare number is a line of job.log
    nodes = ["gpu-12"]                # optional: whose fault it was
    why = "replaced the DIMM"         # optional

Or one `labels.jsonl` beside the folders of the cases, an object a line with `id` (its last part, after `/` or `-`, is the folder),
`reason`, `action`, `root_cause_lines`, `faulty_nodes` and `also_acceptable`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assistant.errors import InputError, MalformedContent
from assistant.untrusted import is_folder, parse_json, read_toml_tables, read_whole, walk_files, why_unreadable

FILES = ("label.toml", "case.toml")
MOST_LABELS_BYTES = 256 << 20
"""Of a `labels.jsonl`: some 300,000 cases."""


@dataclass(frozen=True)
class Label:
    """What an expert says of a case."""

    folder: Path
    reason: str
    action: str = ""
    lines: tuple[str, ...] = ()
    """`file:line`, the most telling first."""
    nodes: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    """Other reasons that an answer may give."""
    why: str = ""


def read_labels(folder: Path) -> list[Label]:
    """Return every labelled case below a folder, in the order of paths.

    Raises:
        InputError: There is no such folder, no label in it, or a label cannot be read; the message names the file.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: wanted a folder of labelled logs, found {'a file' if folder.exists() else 'nothing'}")
    try:
        paths = sorted(file.path for file in walk_files(folder))
    except OSError as error:
        raise InputError(f"{folder}: cannot be listed: {error.strerror}") from error
    found = [label for path in paths if path.name in FILES for label in _of_toml(path)]
    found += [label for path in paths if path.name == "labels.jsonl" for label in _of_lines(path)]
    if not found:
        raise InputError(f"{folder}: holds no label; wanted label.toml in a case's folder, or labels.jsonl beside the cases")
    return sorted(found, key=lambda label: str(label.folder))


def _of_toml(path: Path) -> Iterator[Label]:
    try:
        table = read_toml_tables(path)
    except (OSError, InputError) as error:
        raise InputError(f"{path}: is no label: {why_unreadable(error)}") from error
    yield _label(path, path.parent, table, lines="lines", nodes="nodes", also="also")


def _of_lines(path: Path) -> Iterator[Label]:
    try:
        text = read_whole(path, MOST_LABELS_BYTES).decode("utf-8", "replace")
    except (OSError, InputError) as error:
        raise InputError(f"{path}: holds no labels: {why_unreadable(error)}") from error
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            table = parse_json(line)
        except MalformedContent as error:
            raise InputError(f"{path}:{number}: is no label: {error}") from error
        name = str(table.get("id", "")) if isinstance(table, dict) else ""
        folder = next((path.parent / part for part in (name.rpartition("/")[2], name.rpartition("-")[2]) if part), path.parent)
        folder = folder if is_folder(folder) else path.parent / name.rpartition("-")[2]
        if not name or not is_folder(folder):
            raise InputError(f"{path}:{number}: names no case: there is no folder for id {name[:80]!r}")
        yield _label(path, folder, table, lines="root_cause_lines", nodes="faulty_nodes", also="also_acceptable")


def _label(path: Path, folder: Path, table: Mapping[str, Any], *, lines: str, nodes: str, also: str) -> Label:
    reason = table.get("reason")
    if not isinstance(reason, str) or not reason:
        raise InputError(f"{path}: a label needs a reason")
    for key in (lines, nodes, also):
        if not isinstance(table.get(key, []), list):
            raise InputError(f"{path}: {key}: wanted a list, found {str(table[key])[:40]!r}")
    cited = tuple(str(line) if ":" in str(line) else f"job.log:{line}" for line in table.get(lines, ()))
    action, why = str(table.get("action") or ""), str(table.get("why") or "")
    return Label(folder, reason, action, cited, tuple(map(str, table.get(nodes, ()))), tuple(map(str, table.get(also, ()))), why)
