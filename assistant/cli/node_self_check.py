"""Let a node check itself: as Slurm's HealthCheckProgram, Prolog or Epilog, where no Slurm command may be called.

It needs neither scheduler nor store nor SSH, and ends within ten seconds whatever hangs on the node. What counters stood at is kept
in a file of its own in the state folder.
"""

from __future__ import annotations

import os
import random
import re
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, cast

from assistant.errors import Unavailable

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
    """Nothing is remembered."""

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
    from assistant.cli.readings_file import ReadingsFile
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
