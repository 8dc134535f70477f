"""The sha256 of models, remembered: reading a model takes seconds."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path

logger = logging.getLogger(__name__)


def digest_of(path: Path) -> str:
    """Return the sha256 of a file; remembered by size and time of change, for a model takes seconds to read."""
    stat = path.stat()
    mark = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ino}"
    kept = _cache_file()
    known = _known(kept)
    if mark in known:
        return known[mark]
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        new = kept.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps({**known, mark: found}), encoding="utf-8")
        new.replace(kept)
    except OSError:
        logger.debug("cache=%s cannot be written", kept)
    return found


def _cache_file() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return folder / "nightshift" / "model_digests.json"


def _known(path: Path) -> dict[str, str]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
