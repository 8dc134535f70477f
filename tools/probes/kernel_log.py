"""What the kernel says about GPUs: NVIDIA's XID errors, judged by the XID table of the knowledge."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from assistant.content.reasons import xids
from assistant.ports import Reply
from assistant.records import Action
from assistant.tooling import Probe

XID = re.compile(r"NVRM: (?:Xid \((?:PCI:)?(?P<device>[\w:.]+)\): (?P<code>\d+)|GPU (?P<lost>[\w:.]+): GPU has fallen off the bus)")
OFF_THE_BUS = 79


def parse(reply: Reply) -> Mapping[str, Any]:
    """Find XIDs; one that blames the node and asks for a cordon is critical, another root cause a warning."""
    seen: dict[int, str] = {}
    for line in reply.out.splitlines():
        match = XID.search(line)
        if match:
            seen[int(match["code"] or OFF_THE_BUS)] = line.strip()
    known = xids()
    bad = [code for code in seen if code in known and known[code].blames_node and known[code].action is Action.CORDON_AND_RESTART]
    odd = [code for code in seen if code not in bad and (code not in known or known[code].root)]
    if bad:
        return {"status": "critical", "text": f"Xid {bad[0]}: {seen[bad[0]]}", "xids": sorted(seen)}
    if odd:
        return {"status": "warning", "text": f"Xid {odd[0]}: {seen[odd[0]]}", "xids": sorted(seen)}
    return {"status": "ok", "text": "no XID that matters", "xids": sorted(seen)}


PROBE = Probe(name="kernel_log", command=("dmesg",), needs="dmesg", parse=parse, source="NVIDIA XID catalogue, knowledge/xid.toml")
