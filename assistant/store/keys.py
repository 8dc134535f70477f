"""The store's key: a file beside the store, never in it, by which audit rows are vouched for.

Who may write the database but not read this file cannot add an audit row that holds. A key that is gone is replaced, which the
audit records: rows from before then hold by their chain alone.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from assistant.errors import StoreError
from assistant.private_files import open_private

__all__ = ["StoreKey", "copy_key", "key_path", "make_key", "read_key"]


class StoreKey(NamedTuple):
    """A key, and from which audit row on it vouches."""

    secret: bytes
    since: int


def key_path(store: Path) -> Path:
    """Return where the key of a store lies."""
    return store.with_name(f"{store.name}.key")


def read_key(path: Path) -> StoreKey | None:
    """Return a store's key, None where there is none.

    Raises:
        StoreError: It cannot be read, or is no key.
    """
    try:
        content = json.loads(path.read_text(encoding="ascii"))
        return StoreKey(bytes.fromhex(content["key"]), int(content["since"]))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path}: wanted the store's key, found: {error.strerror}; run as the user who owns the store") from error
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{path}: wanted the store's key, found something else; bring the file back from a backup, or move it away: "
            "a new one is made, and approvals that were given before count no more"
        ) from error


def copy_key(store: Path, copy: Path) -> None:
    """Let a copy of a store have its key, so that what was approved in it counts there; without a key nothing is copied.

    Raises:
        StoreError: The key cannot be read, or the copy's cannot be written.
    """
    key = read_key(key_path(store))
    if key is not None:
        _write(key_path(copy), key)


def make_key(path: Path, since: int) -> StoreKey:
    """Make a key that vouches for audit rows from a number on; the caller holds the store's write lock.

    Raises:
        StoreError: It cannot be written.
    """
    key = StoreKey(os.urandom(32), since)
    _write(path, key)
    return key


def _write(path: Path, key: StoreKey) -> None:
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        descriptor = open_private(new, os.O_WRONLY | os.O_TRUNC)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            json.dump({"key": key.secret.hex(), "since": key.since}, file)
            file.flush()
            os.fsync(descriptor)
        new.replace(path)
    except OSError as error:
        raise StoreError(f"{path}: wanted to write the store's key, found: {error.strerror}") from error
