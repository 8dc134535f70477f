"""Commands for the machine that Nightshift itself runs on: a node that looks at itself, without SSH and without a scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from assistant.ports import Reply
from assistant.transports.local import run_command


class HereTransport:
    """Runs every command on this machine, for whichever node it is asked."""

    name = "here"

    def run(self, nodes: Sequence[str], command: Sequence[str], *, timeout_s: float) -> Mapping[str, Reply]:
        """Run a command once for each node; one that does not end in time is killed with all its children.

        Args:
            nodes: The names under which the answers are given.
            command: Program and arguments; no shell.
            timeout_s: For each.
        """
        return {node: run_command(node, list(command), Path("/"), timeout_s) for node in nodes}
