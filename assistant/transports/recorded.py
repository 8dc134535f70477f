"""Answers from a file instead of nodes: for tests, and to try a playbook on what a cluster once said.

The file is TOML; `node` and `command` may be `*`, and the first entry that fits answers:

    [[reply]]
    node    = "node02"
    command = "dmesg -T"
    out     = "[Sat Nov 21 11:34:33 2026] NVRM: Xid (PCI:0000:0f:00): 79, ..."
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assistant.content.reading import build, read_toml
from assistant.ports import Reply


@dataclass(frozen=True)
class Recorded:
    """One recorded answer."""

    node: str = "*"
    command: str = "*"
    """As typed in a shell."""
    out: str = ""
    err: str = ""
    status: int = 0
    reached: bool = True


@dataclass(frozen=True)
class _Recording:
    reply: tuple[Recorded, ...] = ()


class RecordedTransport:
    """A transport that answers from a file."""

    name = "recorded"

    def __init__(self, replies: Sequence[Recorded]) -> None:
        """Answer with the first of `replies` that fits."""
        self.replies = replies
        self.calls: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
        """Every call so far: nodes and command."""

    @classmethod
    def from_file(cls, path: Path) -> RecordedTransport:
        """Read the answers.

        Raises:
            ContentError: The file is malformed.
        """
        return cls(build(_Recording, read_toml(path), path).reply)

    def run(self, nodes: Sequence[str], command: Sequence[str], *, timeout_s: float) -> Mapping[str, Reply]:
        """Return the recorded answers; a node for which there is none was not reached."""
        self.calls.append((tuple(nodes), tuple(command)))
        return {node: self._answer(node, shlex.join(command)) for node in nodes}

    def _answer(self, node: str, typed: str) -> Reply:
        for entry in self.replies:
            if entry.node in ("*", node) and entry.command in ("*", typed):
                return Reply(node, entry.reached, entry.status if entry.reached else None, entry.out, entry.err)
        return Reply(node, False, None, "", f"nothing is recorded for `{typed}` on {node}")
