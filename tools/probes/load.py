"""Whether processes pile up on a node: tasks that wait, or that hang in the kernel, for each processor."""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight, ok, unknown
from assistant.tooling import Probe


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Read /proc/loadavg, and after it the list of processors that are in use; high load is never more than a warning."""
    load = re.match(r"([\d.]+) ([\d.]+) ([\d.]+) \d+/\d+ \d+", reply.out)
    if load is None:
        return [unknown("loadavg could not be read")]
    cpus = _count(reply.out) or len(re.findall(r"^processor\s*:", reply.out, re.MULTILINE))
    five, limit = float(load.group(2)), circumstances.limits.node.load_warning_per_cpu
    per_cpu = five / max(1, cpus)
    text = f"load {five:g} over five minutes on {cpus or 'unknown'} processors"
    if per_cpu < limit:
        return [ok(text, round(per_cpu, 2), limit, "tasks per processor")]
    remedy = "see what runs: ps -eo state,pid,user,comm --sort=state"
    return [Finding(Health.WARNING, text, round(per_cpu, 2), limit, "tasks per processor", remedy, Weight.NEVER)]


def _count(text: str) -> int:
    """Return how many processors a list such as `0-3,8` names."""
    match = re.search(r"^(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)$", text, re.MULTILINE)
    if match is None:
        return 0
    ranges = (part.split("-") for part in match.group(1).split(","))
    return sum(int(ends[-1]) - int(ends[0]) + 1 for ends in ranges)


PROBE = Probe(
    name="load",
    # a list, not cpuinfo: that grows to hundreds of kilobytes on large nodes
    command=("cat", "/proc/loadavg", "/sys/devices/system/cpu/online"),
    needs="cat",
    parse=parse,
    source="limit of our own: 4 tasks a processor over five minutes",
)
