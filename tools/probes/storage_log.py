"""What the kernel says about network file systems: servers that went silent and did not come back."""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight, ok
from assistant.tools.probes._kernel import KernelLine, kernel_probe, lines

LOST = re.compile(
    r"nfs: server (?P<nfs>\S+) not responding|LustreError: .{0,240}?Connection to (?P<l1>\S+) .{0,240}was lost|"
    r"Lustre: .{0,240}?Connection to (?P<l2>\S+) .{0,240}was lost"
    r"|libceph: (?P<ceph>(?:osd|mon|mds)\d+) .{0,240}(?:socket closed|session lost)|ceph: (?P<mds>mds\d+) hung"
)
BACK = re.compile(
    r"nfs: server (?P<nfs>\S+) OK|Connection restored to (?P<lustre>\S+)|libceph: (?P<ceph>(?:osd|mon|"
    r"mds)\d+) .{0,240}session established|ceph: (?P<mds>mds\d+) (?:reconnect|recovery)"
)
EVICTED = re.compile(
    r"This client was evicted by (?P<who>\S+)|GPFS.{0,240}(?:being expelled|unmounting file system)|"
    r"nfs4_reclaim_open_state: Lock reclaim failed"
)
REMEDY = "look at the server and the path to it; with other nodes well, remount or reboot this one"

WORDS = ("nfs", "Lustre", "libceph", "ceph:", "GPFS", "evicted")
"""One of these stands in every line that is looked for."""


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Pair what was lost with what came back; only the last word of each server counts."""
    silent: dict[str, KernelLine] = {}
    evicted: list[KernelLine] = []
    for line in lines(reply, circumstances, WORDS):
        lost, back = LOST.search(line.text), BACK.search(line.text)
        if lost:
            silent[_server(lost)] = line
        elif back:
            silent.pop(_server(back), None)
        elif EVICTED.search(line.text):
            evicted.append(line)
    found = [
        Finding(
            Health.CRITICAL,
            f"storage server {server} is silent: {line.whole}",
            server,
            remedy=REMEDY,
            weight=Weight.NEVER,
            events=(line.identity,),
        )
        for server, line in silent.items()
    ]
    if evicted:
        text = f"a file system gave this node up: {evicted[-1].whole}"
        found.append(
            Finding(
                Health.WARNING,
                text,
                len(evicted),
                0,
                "lines",
                REMEDY,
                Weight.NEVER,
                events=tuple(line.identity for line in evicted),
            )
        )
    return found or [ok("no storage server is silent", 0, 0, "servers")]


def _server(match: re.Match[str]) -> str:
    name = next(value for value in match.groupdict().values() if value)
    return name.rstrip(",.:").split("@")[0].strip("()")


PROBE = kernel_probe("storage_log", parse, "arXiv 2403.07648, Table 3: S3 Storage Error; a silent server is not the node's fault")
