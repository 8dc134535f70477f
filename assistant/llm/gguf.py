"""GGUF files: what the header says of a model, read without loading it; the sha256 of a model; and the memory that is left.

Pure Python; nothing of the file is executed. Counts and lengths are believed only as far as the file is long. Digests are
remembered, for reading a model takes seconds.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import math
import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from assistant.errors import InputError, UnreadableFile
from assistant.untrusted import open_regular, why_unreadable

MAGIC = b"GGUF"
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
VERSIONS = (2, 3)
LONGEST_KEPT = 64
"""Items of an array that are kept; a vocabulary has 150,000, of which nothing but the count is wanted."""
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LARGEST_TEXT = 16 << 20
_LARGEST_COUNT = 1 << 20
_BLOCKS = {
    **dict(enumerate([(1, 4), (1, 2), (32, 18), (32, 20)])),
    **dict(enumerate([(32, 22), (32, 24), (32, 34), (32, 36), (256, 84), (256, 110), (256, 144), (256, 176), (256, 210)], 6)),
    **dict(enumerate([(256, 292), (256, 66), (256, 74), (256, 98), (256, 50), (32, 18), (256, 110), (256, 82), (256, 136)], 15)),
    **dict(enumerate([(1, 1), (1, 2), (1, 4), (1, 8), (1, 8), (256, 56), (1, 2)], 24)),
    34: (256, 54),
    35: (256, 66),
    39: (32, 17),
}
"""By type of a tensor: how many weights a block has, and how many bytes. Source: ggml's type table (ggml.c, ggml-common.h)."""
_FIRST = (
    "F32",
    "F16",
    "Q4_0",
    "Q4_1",
    "",
    "",
    "",
    "Q8_0",
    "Q5_0",
    "Q5_1",
    "Q2_K",
    "Q3_K_S",
    "Q3_K_M",
    "Q3_K_L",
    "Q4_K_S",
    "Q4_K_M",
)
_QUANTISATIONS = dict(enumerate((*_FIRST, "Q5_K_S", "Q5_K_M", "Q6_K"))) | {24: "IQ1_S", 25: "IQ4_NL", 30: "IQ4_XS", 32: "BF16"}
"""Names of `general.file_type`; the usual ones."""


@dataclass(frozen=True)
class Gguf:
    """What the header of a model says."""

    path: Path
    size_bytes: int
    version: int
    tensors: int
    parameters: int
    """Weights of all tensors together."""
    values: Mapping[str, Any]
    """All keys; of a long array only how many items it has, under `KEY.count`."""

    @property
    def architecture(self) -> str:
        """Such as `llama` or `qwen2`."""
        return str(self.values.get("general.architecture", ""))

    @property
    def name(self) -> str:
        """What its makers call it; the file's name where they do not."""
        return str(self.values.get("general.name") or self.path.stem)

    @property
    def licence(self) -> str:
        """As the file says it; empty when it does not."""
        return str(self.values.get("general.license", ""))

    @property
    def quantisation(self) -> str:
        """Such as `Q4_K_M`; empty when unknown."""
        return _QUANTISATIONS.get(self.values.get("general.file_type", -1), "")

    @property
    def template(self) -> str:
        """The chat template, Jinja; empty for a model that is made to go on with text, not to answer."""
        return str(self.values.get("tokenizer.chat_template", ""))

    @property
    def context(self) -> int:
        """Tokens that the model was trained to see at once; 0 when unknown."""
        return self._number("context_length")

    def cache_bytes(self, context: int) -> int:
        """Return what the attention of so many tokens takes in memory, 16 bits a value; an upper bound, 0 when unknown."""
        layers, width, heads = self._number("block_count"), self._number("embedding_length"), self._number("attention.head_count")
        if not (layers and width and heads):
            return 0
        key = self._number("attention.key_length") or width // heads
        value = self._number("attention.value_length") or width // heads
        return context * layers * (self._number("attention.head_count_kv") or heads) * (key + value) * 2

    def _number(self, key: str) -> int:
        value = self.values.get(f"{self.architecture}.{key}", 0)
        if isinstance(value, list):
            value = max((item for item in value if isinstance(item, int)), default=0)
        return value if isinstance(value, int) and value > 0 else 0


def read_gguf(path: Path) -> Gguf:
    """Read a header.

    Raises:
        InputError: There is no such file, it is no GGUF, of an unknown version, broken, or cut short; the message says which.
    """
    try:
        with open_regular(path) as raw, io.BufferedReader(raw) as file:
            return _Reader(path, file, os.fstat(raw.fileno()).st_size).read()
    except UnreadableFile as error:
        hint = "; name the file in it" if path.is_dir() else ""
        kind = why_unreadable(error).removeprefix("is ").partition(",")[0]
        raise InputError(f"{path}: wanted a GGUF file, found {kind}{hint}") from error
    except OSError as error:
        raise InputError(f"{path}: wanted a GGUF file, found: {error.strerror}; see nightshift model list") from error


def parts_of(path: Path) -> list[Path]:
    """Return the files of a model that lies in several (`…-00001-of-00003.gguf`), itself among them.

    Raises:
        InputError: One is missing, or it is not the first that is named.
    """
    match = _PART.search(path.name)
    if match is None:
        return [path]
    parts = [path.with_name(f"{path.name[: match.start()]}-{n:05}-of-{match[2]}.gguf") for n in range(1, int(match[2]) + 1)]
    missing = [part.name for part in parts if not part.is_file()]
    if int(match[1]) != 1 or missing:
        reason = f"{missing[0]} is missing" if missing else f"{path.name} is not the first"
        raise InputError(f"{path}: wanted all {int(match[2])} parts of a model, {reason}; get them all and name the first")
    return parts


class _Reader:
    """Reads one file from its beginning."""

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self.path, self.file, self.size, self.at = path, file, size, 0

    def read(self) -> Gguf:
        magic = self.file.read(4)
        self.at = 4
        if magic != MAGIC:
            raise self.wrong(f"it begins with {magic!r}{_guess(magic)}, a GGUF file with {MAGIC!r}; name a .gguf file")
        (version,) = self.unpack("<I")
        if version not in VERSIONS:
            turned = " (it was written on a big-endian machine)" if version > 0xFFFF else ""
            raise self.wrong(f"it is of version {version}{turned}; known: {', '.join(map(str, VERSIONS))}; convert it anew")
        tensors, keys = self.unpack("<QQ")
        if tensors > _LARGEST_COUNT or keys > _LARGEST_COUNT:
            raise self.wrong(f"it claims {tensors:,} tensors and {keys:,} keys: the file is broken; get it again")
        values: dict[str, Any] = {}
        for _ in range(keys):
            key = self.text()
            (kind,) = self.unpack("<I")
            values |= self.value(key, kind)
        parameters, ends = self.tensors(tensors)
        self.whole(values, ends)
        return Gguf(self.path, self.size, version, tensors, parameters, values)

    def tensors(self, count: int) -> tuple[int, int]:
        """Return how many weights there are, and where the last tensor ends, from the beginning of the data."""
        parameters = ends = 0
        for _ in range(count):
            self.text()
            (dimensions,) = self.unpack("<I")
            if dimensions > 8:
                raise self.wrong(f"a tensor has {dimensions} dimensions: the file is broken; get it again")
            weights = math.prod(self.unpack(f"<{dimensions}Q"))
            kind, offset = self.unpack("<IQ")
            parameters += weights
            per_block, block_bytes = _BLOCKS.get(kind, (1, 0))
            ends = max(ends, offset + weights // per_block * block_bytes)
        return parameters, ends

    def whole(self, values: Mapping[str, Any], ends: int) -> None:
        alignment = values.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20:
            raise self.wrong(f"its alignment is {alignment!r}: the file is broken; get it again")
        needed_bytes = -(-self.at // alignment) * alignment + ends
        if needed_bytes > self.size:
            raise self.cut(f"its tensors end at {needed_bytes:,}")

    def value(self, key: str, kind: int) -> dict[str, Any]:
        if kind in _SCALARS:
            return {key: self.unpack("<" + _SCALARS[kind])[0]}
        if kind == _STRING:
            return {key: self.text()}
        if kind != _ARRAY:
            raise self.wrong(f"the value of {key[:80]!r} is of the unknown type {kind}: the file is broken; get it again")
        inner, count = self.unpack("<IQ")
        if inner in _SCALARS:
            width = struct.calcsize("<" + _SCALARS[inner])
            if count > LONGEST_KEPT:
                self.skip(count * width)
                return {f"{key}.count": count}
            return {key: list(self.unpack(f"<{count}{_SCALARS[inner]}"))}
        if inner != _STRING:
            raise self.wrong(f"the list {key[:80]!r} holds the unknown type {inner}: the file is broken; get it again")
        if count > (self.size - self.at) // 8:
            raise self.cut(f"the list {key[:80]!r} has {count:,} texts")
        if count > LONGEST_KEPT:
            for _ in range(count):
                self.skip(self.unpack("<Q")[0])
            return {f"{key}.count": count}
        return {key: [self.text() for _ in range(count)]}

    def text(self) -> str:
        (length,) = self.unpack("<Q")
        if length > _LARGEST_TEXT:
            raise self.wrong(f"it holds a text of {length:,} bytes in its header: the file is broken; get it again")
        return self.bytes(length).decode("utf-8", "replace")

    def unpack(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(form, self.bytes(struct.calcsize(form)))

    def bytes(self, count: int) -> bytes:
        if self.at + count > self.size:
            raise self.cut(f"its header goes on to {self.at + count:,}")
        block = self.file.read(count)
        self.at += count
        return block

    def skip(self, count: int) -> None:
        if self.at + count > self.size:
            raise self.cut(f"its header goes on to {self.at + count:,}")
        self.file.seek(count, 1)
        self.at += count

    def cut(self, why: str) -> InputError:
        return self.wrong(f"it is cut short: {why}, the file has {self.size:,} bytes; get the rest with nightshift model pull")

    def wrong(self, why: str) -> InputError:
        return InputError(f"{self.path}: wanted a GGUF file; {why}")


def _guess(magic: bytes) -> str:
    formats = {
        b"<!DO": " (a web page)",
        b"<htm": " (a web page)",
        b"PK\x03\x04": " (an archive)",
        b"vers": " (a pointer of Git LFS)",
    }
    return formats.get(magic, " (nothing)" if not magic else "")


logger = logging.getLogger(__name__)


def digest_of(path: Path) -> str:
    """Return the sha256 of a file; remembered by size and time of change, for a model takes seconds to read."""
    stat = path.stat()
    mark = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ino}"
    cache_path = _cache_file()
    digests = _cached_digests(cache_path)
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


def _cached_digests(path: Path) -> dict[str, str]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def available_bytes() -> int:
    """Return how much memory this process may still take: of the machine, and of its control group."""
    free_sizes = [_meminfo()]
    group = Path("/sys/fs/cgroup")
    try:
        limit, used_bytes = (group / "memory.max").read_text().strip(), int((group / "memory.current").read_text())
        free_sizes += [max(int(limit) - used_bytes, 0)] if limit.isdigit() else []
    except (OSError, ValueError):
        pass
    return min(free_sizes)


def _meminfo() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return 1 << 62
