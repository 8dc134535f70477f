"""Whether the kernel killed processes for their memory."""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight, ok
from assistant.tools.probes._kernel import kernel_probe, lines

KILLED = re.compile(
    r"(?P<group>Memory cgroup out of memory|"
    r"Out of memory)(?: \(.{0,240}?\))?: Kill(?:ed)? process (?P<pid>\d+),? (?:UID \d+, )?\(?(?P<name>[^),]+)"
)

WORDS = ("ut of memory",)
"""One of these stands in every line that is looked for."""


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Name what was killed; a job over its own limit is the job's affair."""
    killed = [(line, match) for line in lines(reply, circumstances, WORDS) if (match := KILLED.search(line.text))]
    if not killed:
        return [ok("nothing was killed for its memory", 0, 0, "kills")]
    whole = [match for _, match in killed if match["group"].startswith("Out")]
    last = (whole or [match for _, match in killed])[-1]
    where = "the node ran out of memory" if whole else "a job's memory limit was reached"
    text = f"{where}: {len(killed)} processes killed, last {last['name']} ({last['pid']})"
    events = tuple(line.identity for line, _ in killed)
    remedy = (
        "see which job or service used the memory; give jobs a limit" if whole else "give the job more memory, or fewer workers"
    )
    return [Finding(Health.WARNING, text, len(killed), 0, "kills", remedy, Weight.NEVER, events=events)]


PROBE = kernel_probe("out_of_memory", parse, "Linux, mm/oom_kill.c")
