"""What the kernel says about processors, memory, PCIe, disks and AMD GPUs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight, ok
from assistant.tools.probes._kernel import kernel_probe, lines

REPLACE = "drain the node; look at the board's event log (ipmitool sel list); have the part replaced"
SIGNS: tuple[tuple[re.Pattern[str], Health, Weight, str, str], ...] = (
    (
        re.compile(
            r"mce: .{0,240}Uncorrected|Hardware Error.{0,240}: (?:Fatal|Uncorrected)|Machine check: Processor context corrupt|"
            r"Kernel panic.{0,240}[Mm]achine check"
        ),
        Health.CRITICAL,
        Weight.STRONG,
        "uncorrected machine check",
        REPLACE,
    ),
    (
        re.compile(r"EDAC .{0,240}\b[1-9]\d* UE\b|EDAC .{0,240}: UE "),
        Health.CRITICAL,
        Weight.STRONG,
        "uncorrected error of host memory",
        REPLACE,
    ),
    (
        re.compile(
            r"amdgpu .{0,240}(?:[1-9]\d* uncorrectable hardware errors|GPU reset begin|ring \w+ timeout|RAS.{0,240}poison)", re.I
        ),
        Health.CRITICAL,
        Weight.COUNTS,
        "AMD GPU in trouble",
        "drain the node and reboot it; have the GPU replaced on repetition",
    ),
    (
        re.compile(
            r"AER: .{0,240}(?:Uncorrect\w{0,60} \(?(?:Fatal|Non-Fatal)|Multiple Uncorrect)"
            r"|PCIe Bus Error: severity=Uncorrect\w{0,60}",
            re.I,
        ),
        Health.CRITICAL,
        Weight.COUNTS,
        "uncorrected PCIe error",
        "power cycle the node; then reseat the card",
    ),
    (
        re.compile(
            r"Buffer I/O error on dev|blk_update_request: (?:critical medium|I/O) error|critical medium error|"
            r"nvme\d+: .{0,240}(?:timeout, reset|controller is down)|I/O error, dev (?:nvme|sd)"
        ),
        Health.CRITICAL,
        Weight.COUNTS,
        "disk error",
        "drain the node; smartctl -a; replace the disk",
    ),
    (
        re.compile(
            r"Remounting filesystem read-only|EXT4-fs error|XFS .{0,240}(?:Corruption|Shutting down|shutdown)|BTRFS error|"
            r"Btrfs: forced readonly",
            re.I,
        ),
        Health.CRITICAL,
        Weight.COUNTS,
        "damaged file system",
        "drain the node; check the file system before it is used again",
    ),
    (
        re.compile(
            r"watchdog: BUG: soft lockup|hard LOCKUP|rcu_\w{1,30} (?:self-)?detected (?:expedited )?stall|"
            r"blocked for more than \d+ seconds"
        ),
        Health.WARNING,
        Weight.NEVER,
        "processes hang in the kernel",
        "look for a dead storage server or driver; drain and reboot the node if it stays",
    ),
    (
        re.compile(
            r"EDAC .{0,240}\bCE\b|mce: .{0,240}corrected|Hardware Error.{0,240}: Corrected|AER: .{0,240}Correct\w{0,60} error|"
            r"severity=Corrected",
            re.I,
        ),
        Health.OK,
        Weight.NEVER,
        "corrected hardware errors",
        "watch it",
    ),
    (
        re.compile(
            r"(?:cpu|CPU)\d+: (?:Core|Package) temperature (?:is )?above threshold|thermal.{0,240}critical temperature", re.I
        ),
        Health.WARNING,
        Weight.NEVER,
        "a processor is too hot",
        "look at fans and inlet temperature",
    ),
)
CORRECTED_LIMIT = 100

WORDS = (
    "mce: ",
    "Hardware Error",
    "achine check",
    "EDAC",
    "amdgpu",
    "AER: ",
    "PCIe Bus Error",
    "I/O error",
    "medium error",
    "nvme",
    "read-only",
    "EXT4-fs",
    "XFS",
    "BTRFS",
    "Btrfs",
    "lockup",
    "LOCKUP",
    "detected",
    "blocked for",
    "temperature",
)
"""One of these stands in every line that is looked for."""


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Say one thing for each kind of sign: how often, and the last line of it."""
    kept = lines(reply, circumstances, WORDS)
    found: list[Finding] = []
    claimed: set[str] = set()
    for pattern, status, weight, text, remedy in SIGNS:
        said = [line for line in kept if line.identity not in claimed and pattern.search(line.text)]
        claimed.update(line.identity for line in said)
        level = Health.WARNING if status is Health.OK and len(said) >= CORRECTED_LIMIT else status
        if said and level is not Health.OK:
            whole = f"{text}, {len(said)} lines: {said[-1].whole}"
            limit = CORRECTED_LIMIT if status is Health.OK else 0
            found.append(
                Finding(level, whole, len(said), limit, "lines", remedy, weight, events=tuple(line.identity for line in said))
            )
    return found or [ok("no error of the hardware", 0, 0, "lines")]


PROBE = kernel_probe(
    "hardware_log",
    parse,
    "Linux: an uncorrected machine check or memory error is broken hardware; corrected: limit of our own, 100",
)
