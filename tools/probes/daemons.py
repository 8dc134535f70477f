"""Whether the daemons run that a node has been set up for: slurmd, munged, fabric manager, GPFS, chrony."""

from __future__ import annotations

from collections.abc import Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight, ok, unknown
from assistant.tooling import Probe
from assistant.tools.probes._shell import DAEMONS

CRITICAL = {"slurmd": "slurmd", "munged": "munge", "nv-fabricmanager": "nvidia-fabricmanager", "mmfsd": "gpfs"}
"""Daemons without which no job runs right, with the names of their services."""
COMM_LENGTH = 15
"""The kernel cuts names of processes."""


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Name those that are set up and do not run."""
    lines = [line.strip() for line in reply.out.split("\n") if line.strip()]
    if not lines or lines[-1] != "end":
        return [unknown("the processes could not be listed")]
    wanted = [line.split()[1] for line in lines if line.startswith("wanted ") and len(line.split()) == 2]
    running = {line[:COMM_LENGTH] for line in lines if not line.startswith("wanted ")}
    found = []
    for name in wanted:
        if name[:COMM_LENGTH] not in running:
            service = CRITICAL.get(name, name)
            status = Health.CRITICAL if name in CRITICAL else Health.WARNING
            remedy = f"systemctl restart {service}; journalctl -u {service} -n 50"
            found.append(Finding(status, f"{name} is set up and does not run", "stopped", "running", "", remedy, Weight.NEVER))
    return found or [ok(f"all {len(wanted)} daemons run" if wanted else "no daemon of the cluster is set up here", len(wanted))]


PROBE = Probe(
    name="daemons", command=DAEMONS, needs="ps", parse=parse, source="what is installed and configured should run", package="procps"
)
