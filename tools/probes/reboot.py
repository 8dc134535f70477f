"""Whether a node was booted after the job on it had begun."""

from __future__ import annotations

from collections.abc import Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, ok, unknown
from assistant.tooling import Probe
from assistant.tools.probes._boot import COMMAND, booted

SLACK_S = 5


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Compare the boot with the start of the job; without one only say when it was."""
    boot = booted(reply, circumstances.now)
    if boot is None:
        return [unknown("uptime could not be read")]
    said = f"{boot:%Y-%m-%dT%H:%M:%SZ}"
    start = circumstances.job_started
    if start is not None and (boot - start).total_seconds() > SLACK_S:
        text = f"booted at {said}, after the job began at {start:%Y-%m-%dT%H:%M:%SZ}"
        return [Finding(Health.CRITICAL, text, said, f"{start:%Y-%m-%dT%H:%M:%SZ}", "", "find out why: last -x; ipmitool sel list")]
    return [ok(f"up since {said}", said)]


PROBE = Probe(name="reboot", command=COMMAND, needs="cat", parse=parse, source="none: a boot is a fact", reading="uptime")
