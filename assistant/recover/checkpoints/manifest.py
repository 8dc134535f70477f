"""Checkpoints of assistant.training: the manifest, written last, says which files there must be, of which size and checksum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assistant.recover.checkpoints.files import crc32_of
from assistant.recover.checkpoints.layout import Entry
from assistant.untrusted import open_regular, read_json, whole_number

NAME = "manifest.json"
NEWEST_VERSION = 2
XXH3 = "xxh3_64"


def manifest_problems(entry: Entry, read_bytes: int) -> list[str]:
    """Check size and checksum of every file that a manifest lists.

    Args:
        entry: The checkpoint.
        read_bytes: How much of its content may be read to compare checksums.
    """
    if NAME not in entry.files:
        return [f"has no {NAME}: the save did not finish, it is written last"]
    try:
        said = read_json(entry.file(NAME))
        version = whole_number(said.get("version", 1))
        files: dict[str, Mapping[str, Any]] = {str(name): dict(about) for name, about in said["files"].items()}
        sizes = {name: whole_number(about["size"]) for name, about in files.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return [f"{NAME} cannot be read: the save did not finish"]
    if version > NEWEST_VERSION:
        return [f"{NAME} is of version {version}, known is {NEWEST_VERSION}: update Nightshift, or load it with what saved it"]
    problems = []
    for name, size in sizes.items():
        have = entry.files.get(name)
        if have is None:
            problems.append(f"{name} is missing")
        elif have.size != size:
            problems.append(f"{name} has {have.size:,} bytes, its manifest says {size:,}")
        elif size <= read_bytes:
            read_bytes -= size
            problems += _content_problem(entry, name, files[name])
    return problems


def saves_of(entry: Entry) -> Mapping[str, Any]:
    """Return what a manifest says of the save's cost; empty where it says nothing.

    Keys: `blocked_s` of the training, `persist_s` in the background, `saved_at` in seconds since 1970.
    """
    try:
        said = read_json(entry.file(NAME)).get("save", {})
    except (OSError, ValueError, AttributeError):
        return {}
    return said if isinstance(said, dict) else {}


def _content_problem(entry: Entry, name: str, about: Mapping[str, Any]) -> list[str]:
    if "crc32" in about:
        return [] if crc32_of(entry.file(name)) == about["crc32"] else [_damaged(name, "CRC-32")]
    if XXH3 in about:
        from assistant.training.checkpoints.files import of_stream

        with open_regular(entry.file(name)) as stream:
            value = of_stream(stream, XXH3)
        if value is None:
            return [f"{name} cannot be compared: its checksum is {XXH3}; pip install xxhash"]
        return [] if value == about[XXH3] else [_damaged(name, XXH3)]
    return [f"{name} has no checksum in {NAME} that is known here"]


def _damaged(name: str, checksum: str) -> str:
    return f"{name} is damaged: its {checksum} is not the one in the manifest"
