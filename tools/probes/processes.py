"""Processes that hang in the kernel, and dead ones that nobody buries."""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight, judged, ok, unknown
from assistant.tooling import Probe
from assistant.tools.probes._shell import PROCESSES

LINE = re.compile(r"^\s*(?P<pid>\d+)\s+(?P<parent>\d+)\s+(?P<state>[A-Za-z])\S*\s+(?P<age>\d+)\s+(?P<name>.*\S)", re.MULTILINE)
KTHREADD = "2"


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Name those in state D at both looks; a thread of the kernel itself may wait for ever."""
    first, again, second = reply.out.partition("\nagain\n")
    before, after = list(LINE.finditer(first)), list(LINE.finditer(second))
    if not before or not again or not after:
        return [unknown("the processes could not be listed")]
    waiting = {(one["pid"], one["name"]) for one in before if one["state"] == "D"}
    stuck = [
        one
        for one in after
        if one["state"] == "D" and (one["pid"], one["name"]) in waiting and KTHREADD not in (one["pid"], one["parent"])
    ]
    zombies = [one for one in after if one["state"] == "Z"]
    limits, found = circumstances.limits.node, []
    status = judged(len(stuck), limits.stuck_warning, limits.stuck_critical)
    if status is not Health.OK:
        named = ", ".join(f"{one['pid']} ({one['name']}, {one['age']} s old)" for one in stuck[:4])
        text = f"{len(stuck)} processes hang in the kernel: {named}"
        limit = limits.stuck_critical if status is Health.CRITICAL else limits.stuck_warning
        remedy = "see what they wait for: cat /proc/PID/stack; they cannot be killed: drain and reboot when they stay"
        found.append(Finding(status, text, len(stuck), limit, "processes", remedy, Weight.COUNTS))
    if len(zombies) >= limits.zombies_warning:
        text = f"{len(zombies)} zombies, for instance {zombies[0]['pid']} ({zombies[0]['name']}) of {zombies[0]['parent']}"
        found.append(
            Finding(Health.WARNING, text, len(zombies), limits.zombies_warning, "processes", "end their parents", Weight.NEVER)
        )
    return found or [ok(f"none of {len(after)} processes hangs", 0, limits.stuck_warning, "processes")]


PROBE = Probe(
    name="processes",
    command=PROCESSES,
    needs="ps",
    parse=parse,
    source="limits of our own: 1 and 8 stuck processes, 50 zombies",
    package="procps",
)
