"""Let a node check itself: as Slurm's HealthCheckProgram, Prolog or Epilog, where no Slurm command may be called.

It needs neither scheduler nor store nor SSH, and ends within ten seconds whatever hangs on the node. What counters stood at is kept
in a file of its own in the state folder.
"""

from __future__ import annotations

import os
import random
import re
import socket
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

from assistant.counting import Kept, Reading, from_text, to_text
from assistant.errors import StoreError, Unavailable
from assistant.private_files import private_folder

if TYPE_CHECKING:
    from assistant.config import Settings
    from assistant.ports import Scheduler
    from assistant.records import Incident
    from assistant.tooling import History


TIMEOUT_S = 8.0


class _NoScheduler:
    """Nobody is asked about jobs."""

    name = "none"

    def nodes(self) -> NoReturn:
        """Say that the scheduler is not asked."""
        raise Unavailable("a node that checks itself asks no scheduler")


class _NoHistory:
    """A history that is empty: a node that checks itself has no store."""

    def incidents(self, *, job: str | None = None, node: str | None = None, limit: int = 50) -> Sequence[Incident]:
        """Return none."""
        return ()


def check_itself(settings: Settings, arguments: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return what the probes say about this machine, by its name.

    Args:
        settings: For the site's own commands and limits.
        arguments: Further arguments of the tool `check_nodes`.

    Raises:
        ToolError: An argument is wrong.
    """
    from assistant.ports import SystemClock
    from assistant.tooling import Context, find_tool
    from assistant.transports.local import HereTransport

    node = os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]
    context = Context(
        scheduler=cast("Scheduler", _NoScheduler()),
        transport=HereTransport(),
        clock=SystemClock(),
        random=random.Random(0),
        history=cast("History", _NoHistory()),
        commands={name: tuple(words) for name, words in settings.commands.items()},
        command_timeout_s=TIMEOUT_S,
        site=settings.content,
        readings=ReadingsFile(settings.state_folder / f"readings.{re.sub(r'[^A-Za-z0-9_.-]', '_', node)}.json"),
    )
    result = find_tool("check_nodes").run(context, nodes=[node], **arguments)
    return dict(result["nodes"])


DEADLINE_S = 0.5
"""Slurm waits for the check: a home on a file server that hangs must not hold a prolog up."""


ReadResult = TypeVar("ReadResult")


class ReadingsFile:
    """The readings of one node."""

    def __init__(self, path: Path, *, deadline_s: float = DEADLINE_S) -> None:
        """Name the file; it need not be there."""
        self.path = path
        self._deadline_s = deadline_s

    def kept_readings(self, nodes: Sequence[str]) -> dict[str, Kept]:
        """Return what is kept of the node; one that cannot be read is none, and says why."""

        def read() -> Kept:
            try:
                return Kept(from_text(self.path.read_text(encoding="utf-8")))
            except FileNotFoundError:
                return Kept()
            except OSError as error:
                return Kept(why=f"{self.path}: {error.strerror}")
            except ValueError:
                return Kept(why=f"{self.path} is damaged and is written anew")

        return dict.fromkeys(nodes, _within(self._deadline_s, read, late=Kept(why=f"{self.path} does not answer")))

    def keep_readings(self, readings: Mapping[str, Sequence[Reading]]) -> None:
        """Replace the file.

        Raises:
            StoreError: It cannot be written.
        """
        (own,) = readings.values()
        text = to_text(own)

        def write() -> str:
            try:
                _replace(self.path, text)
            except OSError as error:
                return error.strerror or str(error)
            return ""

        result = _within(self._deadline_s, write, late="a disk that does not answer")
        if result:
            raise StoreError(f"{self.path}: wanted to keep counters, found: {result}; set state_folder to a local disk")


def _replace(path: Path, text: str) -> None:
    private_folder(path.parent)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        # no fsync: after a power cut the node has booted, and the readings are of no use
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _within(seconds: float, act: Callable[[], ReadResult], *, late: ReadResult) -> ReadResult:
    """Return what a function returns, or `late` when that takes too long; a thread that hangs is left behind."""
    results: list[ReadResult] = []
    thread = threading.Thread(target=lambda: results.append(act()), daemon=True)
    thread.start()
    thread.join(seconds)
    return results[0] if results else late
