"""Read kernel lines that mean one thing or another by what stands around them: boots, and whom the OOM killer took."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from assistant.content.reasons import Role
from assistant.diagnose.facts import Facts
from assistant.diagnose.findings import Finding

_BOOT = re.compile(r"Linux version \d|Command line: (?:BOOT_IMAGE|root)=|Booting (?:Linux|paravirtualized kernel)")
BACK_UP = timedelta(minutes=45)
"""A big server is up again by then; who boots it later does so for another reason."""
RECENT_BOOT = timedelta(minutes=30)
_VICTIM = re.compile(r"Killed process (\d{1,18}) \(([^)]{1,60})\)|\btask=([^,]{1,60}),pid=(\d{1,18})")
_WORKER_PIDS = re.compile(r"\bpid(?:s|\(s\))?:? ?(\d[\d, ]*)")
_WORKER_NAMES = ("pt_data_worker", "data_worker", "dataloader", "tf_data_", "DataLoader")


def is_boot(text: str) -> bool:
    """Tell whether a kernel line is the banner of a boot."""
    return _BOOT.search(text) is not None


def booted_within(finding: Finding, at: datetime | None, facts: Facts) -> bool:
    """Tell whether a boot lies after the first output of the attempt, so that the node went down under it.

    Every kernel log begins with a boot. Where the job printed no time, only a boot right at the end counts, of a log that knew the
    machine before.
    """
    start = facts.span.start
    if at is not None and start is not None:
        return start < at <= (facts.span.end or start) + BACK_UP
    own = [line for line in facts.kernel if line.host == finding.host]
    if not any(line.number < finding.line and not is_boot(line.text) and line.text.strip(" #=-") for line in own[1:]):
        return False
    latest = max((line.at for line in own if line.at), default=None)
    return at is None or latest is None or latest - at <= RECENT_BOOT


def confirm_workers(findings: Sequence[Finding]) -> None:
    """Let the OOM killer's records speak for a killed data worker where a data worker is all that it took."""
    killed = [finding for finding in findings if finding.reason == "dataloader_killed" and finding.factor > 0.1]
    records = [f for f in findings if f.reason == "out_of_memory_error" and f.file == "dmesg.log"]
    pids = {pid for finding in killed for found in _WORKER_PIDS.findall(finding.text) for pid in re.findall(r"\d+", found)}
    victims = {victim for record in records for victim in _victims(record.text)}
    if not killed or not victims or not all(pid in pids or name.startswith(_WORKER_NAMES) for pid, name in victims):
        return
    for record in records:
        record.reason, record.role, record.factor = "dataloader_killed", Role.CONFIRMATION, 0.8
        record.note = "the kernel killed the data worker"


def _victims(text: str) -> list[tuple[str, str]]:
    return [(m.group(1) or m.group(4), m.group(2) or m.group(3)) for m in _VICTIM.finditer(text)]
