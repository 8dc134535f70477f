"""Time of the health probes: all of them on this machine, the parsing for many nodes, and real nodes over SSH where asked.

    python -m bench.probes [--ssh-config FILE --nodes SET]

With --ssh-config the nodes of that file are asked, all at once, over kept connections; the development cluster writes such a file.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from assistant.config import SshSettings
from assistant.errors import Unavailable
from assistant.nodeset import expand
from assistant.ports import Reply, SystemClock, Transport
from assistant.tooling import Context
from assistant.tools.nodes import check_nodes
from assistant.tools.probes import probes
from assistant.transports.local import HereTransport
from assistant.transports.ssh import SshTransport

TARGET_S = 3.0
"""All probes on one node."""
PARSED_NODES = 64


class _NoScheduler:
    name = "none"

    def nodes(self) -> None:
        raise Unavailable("none here")


class _Again:
    """Gives the answers that another transport gave, without waiting."""

    name = "again"

    def __init__(self, real: Transport) -> None:
        self.real = real
        self.said: dict[tuple[str, ...], Reply] = {}

    def run(self, nodes: Sequence[str], command: Sequence[str], *, timeout_s: float) -> Mapping[str, Reply]:
        key = tuple(command)
        if key not in self.said:
            self.said[key] = self.real.run(nodes[:1], command, timeout_s=timeout_s)[nodes[0]]
        return dict.fromkeys(nodes, self.said[key])


def _timed(transport: Transport, nodes: Sequence[str]) -> float:
    context = Context(_NoScheduler(), transport, SystemClock(), random.Random(0), None)  # type: ignore[arg-type]
    begun = time.perf_counter()
    check_nodes(context, nodes=list(nodes))
    return time.perf_counter() - begun


def main() -> int:
    """Print the times; return 1 when all probes of this machine take longer than the target."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--ssh-config", type=Path)
    arguments.add_argument("--nodes", default="gpu001")
    arguments.add_argument("--runs", type=int, default=5)
    given = arguments.parse_args()
    here = [_timed(HereTransport(), ["here"]) for _ in range(given.runs)]
    usual = f"median {statistics.median(here):.2f} s, worst {max(here):.2f} s"
    print(f"{len(probes())} probes on this machine: {usual} (target {TARGET_S:g} s)")
    again = _Again(HereTransport())
    nodes = [f"n{number}" for number in range(PARSED_NODES)]
    _timed(again, nodes)
    print(f"judging {PARSED_NODES} nodes' answers: {min(_timed(again, nodes) for _ in range(3)):.2f} s")
    if given.ssh_config is not None:
        asked = expand(given.nodes)
        with SshTransport(SshSettings(config=given.ssh_config)) as transport:
            first = _timed(transport, asked)
            kept = [_timed(transport, asked) for _ in range(given.runs)]
        usual = f"median {statistics.median(kept):.2f} s, worst {max(kept):.2f} s"
        print(f"{len(asked)} nodes over SSH: first {first:.2f} s, then {usual}")
    return int(statistics.median(here) > TARGET_S)


if __name__ == "__main__":
    sys.exit(main())
