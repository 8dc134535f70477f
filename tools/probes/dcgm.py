"""What DCGM has seen in passing; its watches must have been set: `dcgmi health -g 0 -s a`."""

from __future__ import annotations

from collections.abc import Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, merged, ok, unknown
from assistant.tooling import Probe
from assistant.tools.probes._dcgm import PACKAGE, loaded, troubles


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Read `dcgmi health -c -j`."""
    report = loaded(reply.out)
    if not isinstance(report, dict) or "Overall Health" not in reply.out:
        return [unknown("dcgmi health printed no report that can be read", "set its watches: dcgmi health -g 0 -s a")]
    found = []
    for place, verdict, text in troubles(report):
        status = Health.CRITICAL if verdict == "Failure" else Health.WARNING
        gpu = next((word for word in place if word.isdigit()), "")
        said = f"{place[-1]}: {text or verdict}"
        finding = Finding(status, f"{{}}: {said}", verdict, "Healthy", "", "dcgmi diag -r 2 when the node is drained")
        found.append((f"GPU {gpu}" if gpu else "node", finding))
    return merged(found) or [ok("DCGM says healthy", "Healthy", "Healthy")]


PROBE = Probe(
    name="dcgm",
    command=("dcgmi", "health", "-g", "0", "-c", "-j"),
    needs="dcgmi",
    parse=parse,
    source="NVIDIA DCGM, health monitoring",
    package=PACKAGE,
    witness="nvml",
    hardware="nvidia",
)
