"""How much the commands of one round on many nodes may say: each up to a limit, all together up to a common one.

Nodes that shout must not cost the memory of this machine, nor cost a quiet node its answer: whoever stays below an equal share is
always heard, and beyond it the common room counts.
"""

from __future__ import annotations

from threading import Lock
from typing import NamedTuple

LEAST_SHARE_BYTES = 64 << 10
"""What every node may say, however many there are: a kernel log of 500 lines."""


class OutputLimits(NamedTuple):
    """Bytes that commands may say."""

    each_bytes: int
    """One command on one node, on each of its two outputs."""
    all_bytes: int
    """All nodes of a round together, beyond their shares."""


class OutputRoom:
    """The bytes that the commands of one round may still say; counts what running commands and their answers hold."""

    def __init__(self, limits: OutputLimits, nodes: int) -> None:
        """Begin a round of so many nodes."""
        self.limits = limits
        self._share = max(LEAST_SHARE_BYTES, limits.all_bytes // max(nodes, 1))
        self._remaining = limits.all_bytes
        self._lock = Lock()

    def place(self) -> Output:
        """Return where one command's output goes."""
        return Output(self)

    def take(self, count: int, current: int) -> bool:
        """Take room for more bytes of a command that holds some already; False where there is none."""
        with self._lock:
            if current + count > self._share and count > self._remaining:
                return False
            self._remaining -= count
            return True

    def give_back(self, count: int) -> None:
        """Give back the room of an answer that was dropped."""
        with self._lock:
            self._remaining += count


class Output:
    """The output of one command so far."""

    def __init__(self, room: OutputRoom) -> None:
        """Begin without output."""
        self._room = room
        self._pieces: tuple[list[bytes], list[bytes]] = ([], [])
        self._sizes = [0, 0]

    def add(self, stream: int, block: bytes) -> bool:
        """Keep a block of output 0 or 1 (standard error); False, and the block is dropped, where that is beyond a limit."""
        if self._sizes[stream] + len(block) > self._room.limits.each_bytes or not self._room.take(len(block), sum(self._sizes)):
            return False
        self._pieces[stream].append(block)
        self._sizes[stream] += len(block)
        return True

    def text_of(self, stream: int) -> bytes:
        """Return what one output said."""
        pieces = self._pieces[stream]
        if len(pieces) > 1:
            pieces[:] = [b"".join(pieces)]
        return pieces[0] if pieces else b""

    def start(self, stream: int, most: int = 4096) -> bytes:
        """Return the first bytes of one output, joining no more than needed."""
        beginning = b""
        for piece in self._pieces[stream]:
            beginning += piece[: most - len(beginning)]
            if len(beginning) >= most:
                break
        return beginning

    def last(self, stream: int, most: int) -> bytes:
        """Return the last bytes of one output, of its last block."""
        return self._pieces[stream][-1][-most:] if self._pieces[stream] else b""

    def drop(self) -> None:
        """Forget everything and give the room back."""
        self._room.give_back(sum(self._sizes))
        self._pieces, self._sizes = ([], []), [0, 0]

    def too_much(self, label: str) -> str:
        """Return why a command was ended that said too much."""
        limits = self._room.limits
        return (
            f"the command on {label} said more than {limits.each_bytes:,} bytes, or all nodes together more than "
            f"{limits.all_bytes:,}, and was ended; ask for less, or raise ssh.output_limit_bytes or ssh.output_total_bytes"
        )
