"""Turn patterns into one Hyperscan database, kept in the user's cache between runs.

All patterns are compiled with MULTILINE and without DOTALL, so `^`, `$` and `.` mean one line of a block. The cache file is named
after the digest of the patterns and of Hyperscan's version; a file that is missing, damaged or not writable costs time, never an
error. It holds no pickle: a checksum and the bytes that Hyperscan serialised.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from assistant.errors import ContentError

logger = logging.getLogger(__name__)

MOST_KEPT = 64
"""Compiled files that stay in the cache, those used last: each version of the rules makes one of up to 5 MB."""


class Expression(NamedTuple):
    """One pattern as Hyperscan gets it."""

    name: str
    """Id of the signature, herring or filter, for messages."""
    pattern: str
    caseless: bool


def cache_folder() -> Path:
    """Return where compiled patterns are kept; it need not exist."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(root) if Path(root).is_absolute() else Path.home() / ".cache") / "nightshift"


def database(expressions: Sequence[tuple[int, Expression]], folder: Path | None = None) -> Any:
    """Return a Hyperscan database of numbered expressions.

    Args:
        expressions: At least one.
        folder: Where to keep the compiled form; `cache_folder()` when None.

    Raises:
        ContentError: Hyperscan refuses a pattern; the message names its id and why.
    """
    import hyperscan

    folder = cache_folder() if folder is None else folder
    text = repr([(number, expression.pattern, expression.caseless) for number, expression in expressions])
    key = hashlib.sha256(f"2 {version('hyperscan')} {_platform()} {text}".encode()).hexdigest()[:32]
    path = folder / f"patterns-{key}.hs"
    compiled = _load(path)
    if compiled is None:
        compiled = _compile(expressions)
        _save(path, hyperscan.dumpb(compiled))
    return compiled


def compiled_alone(expression: Expression) -> Any:
    """Return a database of one expression that is kept nowhere: to see whether Hyperscan takes it.

    Raises:
        ContentError: Hyperscan refuses it; the message says why.
    """
    return _compile([(0, expression)])


def flags_of(expression: Expression) -> int:
    """Return the Hyperscan flags of a pattern: `.` stays in its line, `^` and `$` mean lines."""
    import hyperscan

    return int(hyperscan.HS_FLAG_MULTILINE | (hyperscan.HS_FLAG_CASELESS if expression.caseless else 0))


def _platform() -> str:
    import platform

    # a home directory may be shared by machines of several kinds
    return f"{platform.machine()} {platform.node()}"


def _compile(expressions: Sequence[tuple[int, Expression]]) -> Any:
    import hyperscan

    try:
        return _compiled(expressions)
    except hyperscan.error as error:
        for number, expression in expressions:
            try:
                _compiled([(number, expression)])
            except hyperscan.error as refusal:
                raise ContentError(
                    f"pattern of {expression.name!r} cannot be used: {refusal} "
                    "(no look-around and no back-reference; it must not match the empty text)"
                ) from refusal
        raise ContentError(f"the patterns cannot be compiled together: {error}") from error


def _compiled(expressions: Sequence[tuple[int, Expression]]) -> Any:
    import hyperscan

    compiled = hyperscan.Database()
    compiled.compile(
        expressions=[expression.pattern.encode() for _, expression in expressions],
        ids=[number for number, _ in expressions],
        flags=[flags_of(expression) for _, expression in expressions],
    )
    return compiled


def _load(path: Path) -> Any | None:
    import hyperscan

    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, serialised = content[:32], content[32:]
    if hashlib.sha256(serialised).digest() != digest:
        logger.debug("cache=%s is damaged, compiling again", path)
        return None
    try:
        loaded = hyperscan.loadb(serialised, hyperscan.HS_MODE_BLOCK)
        loaded.scratch = hyperscan.Scratch(loaded)
    except hyperscan.error as error:
        logger.debug("cache=%s cannot be used: %s", path, error)
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # used now: others are forgotten first
    return loaded


def _save(path: Path, serialised: bytes) -> None:
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(serialised).digest() + serialised)
        Path(temporary).replace(path)
        _forget_oldest(path.parent)
    except OSError as error:
        logger.debug("cache=%s cannot be written: %s", path, error)
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()


def _forget_oldest(folder: Path) -> None:
    by_age = sorted(folder.glob("patterns-*.hs"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in by_age[MOST_KEPT:]:
        path.unlink(missing_ok=True)
