"""Whether all NVLinks of a GPU are active, at full speed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.content.devices import GpuLimits
from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, merged, ok, unknown
from assistant.tooling import Probe
from assistant.tools.probes._nvidia_smi import PACKAGE

GPU = re.compile(r"^GPU (?P<index>\d+): (?P<model>.+?) \(UUID", re.MULTILINE)
LINK = re.compile(r"^\s*Link (?P<link>\d+): (?:(?P<speed>[\d.]+) GB/s|<?(?P<off>inactive)>?)", re.MULTILINE | re.IGNORECASE)
REMEDY = "drain the node, reset all its GPUs together; look for XID 74 and SXIDs; ask for a replacement when it stays"


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Read `nvidia-smi nvlink -s`."""
    heads = list(GPU.finditer(reply.out))
    if not heads:
        return [unknown("nvidia-smi nvlink -s printed no report that can be read")]
    ends = [head.start() for head in heads[1:]] + [len(reply.out)]
    found: list[tuple[str, Finding]] = []
    links = 0
    for head, end in zip(heads, ends, strict=True):
        limits = circumstances.limits.of(head["model"])
        own = list(LINK.finditer(reply.out, head.end(), end))
        links += len(own)
        found += [(f"GPU {head['index']}", finding) for finding in _judge(own, limits)]
    return merged(found) or [
        ok(f"{links} NVLinks of {len(heads)} GPUs are active" if links else "no NVLink is expected here", links)
    ]


def _judge(links: list[re.Match[str]], limits: GpuLimits) -> list[Finding]:
    """A model for which no number of links is known, such as a card with bridges, is not judged."""
    if not limits.nvlinks:
        return []
    speeds = {link["link"]: float(link["speed"]) for link in links if link["speed"]}
    if len(speeds) < limits.nvlinks:
        off = [link["link"] for link in links if link["off"]]
        which = f" (link {', '.join(off)})" if 0 < len(off) < limits.nvlinks else ""
        text = f"{{}}: {len(speeds)} of {limits.nvlinks} NVLinks are active{which}"
        return [Finding(Health.CRITICAL, text, len(speeds), limits.nvlinks, "links", REMEDY, source=limits.source)]
    slow = {link: speed for link, speed in speeds.items() if speed < 0.99 * limits.nvlink_gb_s}
    if slow:
        text = f"{{}}: NVLink {', '.join(slow)} at {min(slow.values()):g} GB/s of {limits.nvlink_gb_s:g}"
        return [Finding(Health.WARNING, text, min(slow.values()), limits.nvlink_gb_s, "GB/s", REMEDY, source=limits.source)]
    return []


PROBE = Probe(
    name="nvlink",
    command=("nvidia-smi", "nvlink", "-s"),
    needs="nvidia-smi",
    parse=parse,
    source="arXiv 2403.07648, Table 3: NVLink Error; number and speed of links: knowledge/limits.toml",
    package=PACKAGE,
    witness="nvml",
    hardware="nvidia",
)
