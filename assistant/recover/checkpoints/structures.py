"""Whether a file whose parts tell their own lengths goes on to its end: pickles, MessagePack, NumPy arrays, tar archives, JSON.

Only lengths are followed; what lies between them is passed over, and nothing is built from it. A file that was cut anywhere lacks
its end. A bit that flipped inside a part is not noticed.

Source: pickletools of Python; the MessagePack specification; numpy.lib.format; POSIX.1-1988 (ustar).
"""

from __future__ import annotations

import io
import json
import math
import pickletools
import re
import struct

from assistant.recover.checkpoints.files import storage_widths, texts_of_pickle
from assistant.recover.checkpoints.streams import StreamVerdict
from assistant.untrusted import MOST_CONTAINERS

PICKLE_PROTOCOLS = b"\x02\x03\x04\x05"
MOST_PICKLES = 64
"""In one file: old files of PyTorch hold five, loops that append hold one a save."""
MOST_OPCODES = 2_000_000
MOST_ITEMS = 2_000_000
LEGACY_HEAD = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""The first pickle of an old file of PyTorch: torch/serialization.py, MAGIC_NUMBER."""
LEGACY_PICKLES = 5
"""Magic number, version, kind of machine, the state, and the keys of its tensors."""
LEGACY_BYTES = 64 << 20
RAW_ARRAYS = b"NumpyArrayWrapper"
"""The class behind whose pickle joblib puts the bytes of an array among the opcodes."""
NPY_MAGIC = b"\x93NUMPY"
NPY_HEAD = re.compile(rb"'descr':\s*(?:'([^']{1,40})'|(\[)).*?'shape':\s*\(([\d, L]*)\)", re.DOTALL)
NPY_ITEM = re.compile(r"[<>|=]?([a-zA-Z])(\d{1,6})")
NPY_HEAD_BYTES = 1 << 16
TAR_BLOCK = 512
TAR_MARK = b"ustar"
MOST_MEMBERS = 200_000
LONGEST_PADDING = 12 << 10
"""Zeros by which an archive is filled up: to 10 KiB by default."""
JSON_BYTES = 64 << 20
OPCODES = {ord(opcode.code): opcode for opcode in pickletools.opcodes}
LENGTHS = {
    pickletools.TAKEN_FROM_ARGUMENT1: "<B",
    pickletools.TAKEN_FROM_ARGUMENT4: "<i",
    pickletools.TAKEN_FROM_ARGUMENT4U: "<I",
    pickletools.TAKEN_FROM_ARGUMENT8U: "<Q",
}
MSGPACK_BYTES = {
    0xC4: "B", 0xC5: "H", 0xC6: "I", 0xC7: "Bx", 0xC8: "Hx", 0xC9: "Ix", 0xD9: "B", 0xDA: "H", 0xDB: "I",
}  # fmt: skip
"""Heads whose length is that of the bytes behind it; of an extension one more stands between."""
MSGPACK_FIXED = {
    0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
    0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip
MSGPACK_COUNTS = {0xDC: (">H", 1), 0xDD: (">I", 1), 0xDE: (">H", 2), 0xDF: (">I", 2)}
CUT = "was cut short: its {} does not end"


class _Cut(Exception):
    """The file ends inside a part."""


class _Foreign(Exception):
    """What stands there is no part of this kind."""


class _Walker:
    """Follows lengths through a file, a block at a time; long parts are passed over."""

    def __init__(self, file: io.FileIO, size: int) -> None:
        self._file, self._size = file, size
        self._block, self._begin, self.at = b"", 0, 0

    def take(self, count: int) -> bytes:
        """Return the next bytes, of which there must be so many."""
        start = self.at - self._begin
        if not 0 <= start <= len(self._block) - count:
            self._file.seek(self.at)
            self._block, self._begin, start = self._file.read(max(count, 1 << 16)), self.at, 0
        piece = self._block[start : start + count]
        if len(piece) < count:
            raise _Cut
        self.at += count
        return piece

    def skip(self, count: int) -> None:
        """Pass over bytes, of which there must be so many."""
        if self.at + count > self._size:
            raise _Cut
        self.at += count

    @property
    def is_at_end(self) -> bool:
        """Whether all of the file was passed."""
        return self.at >= self._size


def pickle_verdict(file: io.FileIO, size: int) -> StreamVerdict:
    """Follow the pickles at the beginning of a file to their end; what a pickle names is never made.

    Behind them any other bytes may follow, which are not judged; of an old file of PyTorch its tensors must.
    """
    walker = _Walker(file, size)
    places = [0]
    try:
        for _ in range(MOST_PICKLES):
            if not _pass_pickle(walker):
                return _joblib_verdict(file, size)
            places.append(walker.at)
            if walker.is_at_end:
                return StreamVerdict(is_partial=len(places) > 2)  # between two of them it may have been cut
            if size - walker.at < 2 or walker.take(2) not in [b"\x80" + bytes([protocol]) for protocol in PICKLE_PROTOCOLS]:
                break
            walker.at = places[-1]
    except _Cut:
        return StreamVerdict(CUT.format("pickle"))
    except _Foreign:
        pass
    file.seek(0)
    if len(places) > LEGACY_PICKLES and file.read(len(LEGACY_HEAD)) == LEGACY_HEAD:
        return _legacy_verdict(file, size, places)
    if len(places) > 1:
        return StreamVerdict(unread="holds other bytes behind a whole pickle")
    return StreamVerdict(unread="begins like a pickle, and cannot be followed to its end")


def _joblib_verdict(file: io.FileIO, size: int) -> StreamVerdict:
    """Return what is known of a pickle that has bytes of arrays among its opcodes: its last byte is an opcode again."""
    file.seek(size - 1)
    return (
        StreamVerdict(is_partial=True)
        if file.read(1) == b"."
        else StreamVerdict(unread="is a pickle of joblib that does not end like one")
    )


def _legacy_verdict(file: io.FileIO, size: int, places: list[int]) -> StreamVerdict:
    """Follow the tensors behind the five pickles of an old file of PyTorch, each with the number of its items before it."""
    _, _, _, state, keys, end = places[: LEGACY_PICKLES + 1]
    if end - state > LEGACY_BYTES:
        return StreamVerdict(unread="is an old file of PyTorch with too long a pickle to be followed")
    file.seek(state)
    widths = storage_widths(file.read(keys - state))
    file.seek(keys)
    at = end
    for key in texts_of_pickle(file.read(end - keys)):
        file.seek(at)
        count = int.from_bytes(file.read(8), "little")
        if at + 8 > size:
            return StreamVerdict("was cut short: a tensor behind its pickles is missing")
        if key not in widths:
            return StreamVerdict(unread="is an old file of PyTorch with tensors of a type that is not known")
        at += 8 + count * widths[key]
        if at > size:
            return StreamVerdict(f"was cut short: a tensor behind its pickles needs {at:,} bytes, the file has {size:,}")
    return (
        StreamVerdict(unread=f"is an old file of PyTorch with {size - at:,} other bytes behind it")
        if at < size
        else StreamVerdict()
    )


def _pass_pickle(walker: _Walker) -> bool:
    """Pass over one pickle; False where bytes may follow inside it that are no opcodes."""
    for _ in range(MOST_OPCODES):
        opcode = OPCODES.get(walker.take(1)[0])
        if opcode is None:
            raise _Foreign
        if opcode.name == "STOP":
            return True
        argument = opcode.arg
        if argument is None:
            continue
        if argument.n >= 0:
            walker.skip(argument.n)
        elif argument.n in LENGTHS:
            form = LENGTHS[argument.n]
            (length,) = struct.unpack(form, walker.take(struct.calcsize(form)))
            if length < 0:
                raise _Foreign
            if length == len(RAW_ARRAYS) and walker.take(length) == RAW_ARRAYS:
                return False
            if length != len(RAW_ARRAYS):
                walker.skip(length)
        else:
            for _ in range(2 if opcode.name in ("GLOBAL", "INST") else 1):
                _pass_line(walker)
    raise _Foreign


def _pass_line(walker: _Walker) -> None:
    for _ in range(1 << 16):
        if walker.take(1) == b"\n":
            return
    raise _Foreign


def msgpack_begins(head: bytes) -> bool:
    """Tell whether a file begins with a map of MessagePack whose first key is a text, as flax writes its states."""
    if not head:
        return False
    at = {0xDE: 3, 0xDF: 5}.get(head[0], 1 if 0x81 <= head[0] <= 0x8F else 0)
    key = head[at] if 0 < at < len(head) else 0
    if 0xA1 <= key <= 0xBF:
        text = head[at + 1 : at + 1 + (key & 0x1F)]
    elif key == 0xD9:
        text = head[at + 2 : at + 2 + head[at + 1]] if at + 1 < len(head) else b""
    else:
        return False
    return bool(text) and all(0x20 <= byte < 0x7F for byte in text)


def msgpack_verdict(file: io.FileIO, size: int) -> StreamVerdict:
    """Follow the objects of MessagePack in a file to its end."""
    walker = _Walker(file, size)
    waiting, count = 1, 0
    try:
        while count < MOST_ITEMS:
            if not waiting:
                if walker.is_at_end:
                    return StreamVerdict()
                return StreamVerdict(unread="holds other bytes behind a whole object of MessagePack")
            waiting, count = waiting - 1 + _pass_item(walker), count + 1
    except _Cut:
        return StreamVerdict(CUT.format("object of MessagePack"))
    except _Foreign:
        return StreamVerdict(unread="begins like MessagePack, and is none")
    return StreamVerdict(unread="is MessagePack of too many parts to be followed")


def _pass_item(walker: _Walker) -> int:
    """Pass over one head of MessagePack and its bytes, and return how many objects it says to follow inside."""
    head = walker.take(1)[0]
    if head < 0x80 or head >= 0xE0:
        return 0
    if head < 0x90:
        return 2 * (head & 0x0F)
    if head < 0xA0:
        return head & 0x0F
    if head < 0xC0:
        walker.skip(head & 0x1F)
        return 0
    if head in MSGPACK_FIXED:
        walker.skip(MSGPACK_FIXED[head])
        return 0
    if head in MSGPACK_BYTES:
        form = ">" + MSGPACK_BYTES[head]
        walker.skip(struct.unpack(form, walker.take(struct.calcsize(form)))[0])
        return 0
    if head in MSGPACK_COUNTS:
        form, times = MSGPACK_COUNTS[head]
        return times * int(struct.unpack(form, walker.take(struct.calcsize(form)))[0])
    raise _Foreign


def npy_verdict(file: io.FileIO, size: int) -> StreamVerdict:
    """Compare the arrays of NumPy in a file with the shapes in their heads."""
    at = count = 0
    while at < size:
        file.seek(at)
        head, count = file.read(12), count + 1
        if head[:6] != NPY_MAGIC:
            return (
                StreamVerdict(unread="holds other bytes behind a whole array of NumPy")
                if at
                else StreamVerdict("is no array of NumPy")
            )
        width = 2 if head[6:7] == b"\x01" else 4
        length = int.from_bytes(head[8 : 8 + width], "little")
        if len(head) < 12 or at + 8 + width + length > size:
            return StreamVerdict(CUT.format("head of an array of NumPy"))
        file.seek(at + 8 + width)
        match = NPY_HEAD.search(file.read(min(length, NPY_HEAD_BYTES)))
        item = NPY_ITEM.fullmatch(match[1].decode("latin-1")) if match is not None and match[1] else None
        if match is None or item is None:
            return StreamVerdict(unread="holds an array of NumPy of a kind whose length is not known")
        shape = [int(side) for side in re.findall(rb"\d{1,18}", match[3])]
        at += 8 + width + length + math.prod(shape) * int(item[2]) * (4 if item[1] == "U" else 1)
        if at > size:
            return StreamVerdict(f"was cut short: its array of NumPy needs {at:,} bytes, the file has {size:,}")
    return StreamVerdict(is_partial=count > 1)


def is_tar(head: bytes) -> bool:
    """Tell whether a file begins with the head of a member of a tar archive."""
    return head[257:262] == TAR_MARK and _tar_length(head[:TAR_BLOCK]) is not None


def tar_verdict(file: io.FileIO, size: int) -> StreamVerdict:
    """Follow the members of a tar archive to the two blocks of zeros at its end."""
    at = 0
    for _ in range(MOST_MEMBERS):
        file.seek(at)
        head = file.read(TAR_BLOCK)
        if len(head) < TAR_BLOCK:
            return StreamVerdict(CUT.format("tar archive"))
        if not any(head):
            if size - at > LONGEST_PADDING:
                return StreamVerdict(unread=f"is a tar archive that ends at byte {at:,} of {size:,}")
            return StreamVerdict()
        length = _tar_length(head)
        if length is None:
            return StreamVerdict(f"is damaged: the head of a member of its tar archive, at byte {at:,}, has another checksum")
        at += TAR_BLOCK + -(-length // TAR_BLOCK) * TAR_BLOCK
        if at > size:
            return StreamVerdict(CUT.format("tar archive"))
    return StreamVerdict(unread="is a tar archive of too many members to be followed")


def _tar_length(head: bytes) -> int | None:
    """Return the length of a member of tar by its head; None where that is none, or its checksum differs."""
    try:
        checksum = int(head[148:156].strip(b" \0") or b"0", 8)
        raw = head[124:136]
        length = int.from_bytes(raw[1:], "big") if raw[0] & 0x80 else int(raw.strip(b" \0") or b"0", 8)
    except (ValueError, IndexError):
        return None
    return length if sum(head) - sum(head[148:156]) + 8 * 0x20 == checksum else None


def json_verdict(raw: bytes) -> StreamVerdict:
    """Follow the values of JSON in a text to its end: one, or one a line. Other text or bytes may follow whole ones.

    An object that says nothing but that something failed is no checkpoint.
    """
    text = raw.decode("utf-8", "surrogateescape").removeprefix("\ufeff").rstrip()
    if text.count("[") + text.count("{") > MOST_CONTAINERS:
        return StreamVerdict(unread="is JSON of too many lists and objects to be followed")
    decoder, at, values = json.JSONDecoder(parse_int=str, parse_float=str), 0, 0
    last: object = None
    while at < len(text):
        try:
            last, at = decoder.raw_decode(text, at)
        except RecursionError:
            return StreamVerdict(unread="is JSON that nests too deep to be followed")
        except json.JSONDecodeError as error:
            open_end = error.pos >= len(text) - 6 or error.msg.startswith("Unterminated string")
            plain = open_end and not re.search("[\udc80-\udcff\0]", text)
            if plain and (text[at] in "[{" or not values):
                return StreamVerdict(CUT.format("JSON"))
            return StreamVerdict(unread="holds other bytes behind whole JSON" if values else "begins like JSON, and is none")
        values += 1
        at += len(text[at : at + 4096]) - len(text[at : at + 4096].lstrip())
    if values == 1 and isinstance(last, dict) and last and {str(key).lower() for key in last} <= ERROR_KEYS:
        return StreamVerdict("is no checkpoint but the message of an error")
    return StreamVerdict(is_partial=values > 1)


ERROR_KEYS = frozenset(
    "error errors message messages detail details code status success reason request_id requestid title type".split()
)
"""Keys of what a server answers in the place of a file."""
