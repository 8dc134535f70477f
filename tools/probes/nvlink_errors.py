"""Error counters of NVLinks since the last reset."""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, judged, merged, ok, unknown
from assistant.tooling import Probe
from assistant.tools.probes._nvidia_smi import PACKAGE

GPU = re.compile(r"^GPU (\d+):", re.MULTILINE)
COUNTER = re.compile(r"^\s*Link (?P<link>\d+): (?P<kind>[^:\n]*Errors?[^:\n]*): (?P<count>\d+)", re.MULTILINE | re.IGNORECASE)
REMEDY = "watch it; drain the node and reset its GPUs when it grows; look for XID 74"


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Read `nvidia-smi nvlink -e`; what the newer generations count besides is judged alike."""
    heads = list(GPU.finditer(reply.out))
    if not heads:
        return [unknown("nvidia-smi nvlink -e printed no report that can be read")]
    limits = circumstances.limits.node
    ends = [head.start() for head in heads[1:]] + [len(reply.out)]
    found: list[tuple[str, Finding]] = []
    read = 0
    for head, end in zip(heads, ends, strict=True):
        for counter in COUNTER.finditer(reply.out, head.end(), end):
            read += 1
            kind, count = counter["kind"].strip().casefold(), int(counter["count"])
            # a link that had to recover was gone for a moment
            warning = 1 if "recovery" in kind else limits.nvlink_errors_warning
            status = judged(count, warning, limits.nvlink_errors_critical)
            if status is not Health.OK:
                text = f"{{}}: NVLink {counter['link']}: {count} {kind}"
                found.append((f"GPU {head[1]}", Finding(status, text, count, warning, "errors", REMEDY)))
    return merged(found) or [ok(f"{read} NVLink error counters are low", read)]


PROBE = Probe(
    name="nvlink_errors",
    command=("nvidia-smi", "nvlink", "-e"),
    needs="nvidia-smi",
    parse=parse,
    source="arXiv 2403.07648, Table 3: NVLink Error; limits: knowledge/limits.toml",
    package=PACKAGE,
    witness="nvml",
    hardware="nvidia",
)
