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
    cache_path = _cache_file()
    digests = _known(cache_path)
    if mark in digests:
        return digests[mark]
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        cache_path.parent.mkdir(parents=True, exist_ok=True)
        new = cache_path.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps({**digests, mark: digest}), encoding="utf-8")
        new.replace(cache_path)
    except OSError:
        logger.debug("cache=%s cannot be written", cache_path)
    return digest


def _cache_file() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return folder / "nightshift" / "model_digests.json"


def _known(path: Path) -> dict[str, str]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}
