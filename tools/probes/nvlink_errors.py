"""Error counters of NVLinks: how fast they grow, or what came together since the last reset."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from assistant.content.devices import NodeLimits
from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, merged, ok, unknown
from assistant.tooling import Probe
from assistant.tools.probes._counters import Ceiling, Counter, counts, judged
from assistant.tools.probes._nvidia_smi import PACKAGE

GPU = re.compile(r"^GPU (?P<index>\d+):(?:.*\(UUID: (?P<uuid>[\w-]+)\))?", re.MULTILINE)
COUNTER = re.compile(r"^\s*Link (?P<link>\d+): (?P<kind>[^:\n]*Errors?[^:\n]*): (?P<count>\d+)", re.MULTILINE | re.IGNORECASE)
REMEDY = "watch it; drain the node and reset its GPUs when it grows; look for XID 74"


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Read `nvidia-smi nvlink -e`; what the newer generations count besides is judged alike."""
    if not GPU.search(reply.out):
        return [unknown("nvidia-smi nvlink -e printed no report that can be read")]
    every = list(_counters(reply, circumstances))
    bad = merged((one.device, finding) for one in every if (finding := judged(one, circumstances)) is not None)
    return bad or [ok(f"{len(every)} NVLink error counters are low ({circumstances.past.told})", len(every))]


def _counters(reply: Reply, circumstances: Circumstances) -> Iterator[Counter]:
    limits = circumstances.limits.node
    heads = list(GPU.finditer(reply.out))
    ends = [head.start() for head in heads[1:]] + [len(reply.out)] * bool(heads)
    for head, end in zip(heads, ends, strict=True):
        for found in COUNTER.finditer(reply.out, head.end(), end):
            kind = found["kind"].strip().casefold()
            total, hourly = _ceilings(kind, limits)
            link = f"NVLink {found['link']}"
            name = f"{head['uuid'] or head['index']} {link} {kind}"
            words, until = f"{link}: # {kind}", "since the last reset"
            yield Counter(f"GPU {head['index']}", name, int(found["count"]), words, total, hourly, REMEDY, until=until)


def _ceilings(kind: str, limits: NodeLimits) -> tuple[Ceiling, Ceiling]:
    """Return the limits of a kind of error in all and in an hour."""
    if "crc" in kind:
        hourly = Ceiling(limits.nvlink_crc_per_hour, limits.nvlink_crc_critical_per_hour)
        return Ceiling(limits.nvlink_errors_warning, limits.nvlink_errors_critical), hourly
    # a link that had to recover was gone for a moment
    recovery = "recovery" in kind
    hourly = Ceiling(0 if recovery else limits.nvlink_errors_per_hour, limits.nvlink_errors_critical_per_hour)
    return Ceiling(1 if recovery else limits.nvlink_errors_warning, limits.nvlink_errors_critical), hourly


PROBE = Probe(
    name="nvlink_errors",
    command=("nvidia-smi", "nvlink", "-e"),
    needs="nvidia-smi",
    parse=parse,
    source="arXiv 2403.07648, Table 3: NVLink Error; limits: knowledge/limits.toml",
    package=PACKAGE,
    witness="nvml",
    hardware="nvidia",
    counts=counts(_counters),
)
