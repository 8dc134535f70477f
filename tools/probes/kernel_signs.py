"""Probes of the kernel log by signs in its lines: broken hardware, network links, silent storage servers, killed processes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight, judged, ok
from assistant.tools.probes.kernel_log import KernelLine, kernel_lines, kernel_probe

REPLACE_PART = "drain the node; look at the board's event log (ipmitool sel list); have the part replaced"
HARDWARE_SIGNS: tuple[tuple[re.Pattern[str], Health, Weight, str, str], ...] = (
    (
        re.compile(
            r"mce: .{0,240}Uncorrected|Hardware Error.{0,240}: (?:Fatal|Uncorrected)|Machine check: Processor context corrupt|"
            r"Kernel panic.{0,240}[Mm]achine check"
        ),
        Health.CRITICAL,
        Weight.STRONG,
        "uncorrected machine check",
        REPLACE_PART,
    ),
    (
        re.compile(r"EDAC .{0,240}\b[1-9]\d* UE\b|EDAC .{0,240}: UE "),
        Health.CRITICAL,
        Weight.STRONG,
        "uncorrected error of host memory",
        REPLACE_PART,
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

HARDWARE_WORDS = (
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


def parse_hardware_log(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Say one thing for each kind of sign: how often, and the last line of it."""
    kept = kernel_lines(reply, circumstances, HARDWARE_WORDS)
    found: list[Finding] = []
    claimed: set[str] = set()
    for pattern, status, weight, text, remedy in HARDWARE_SIGNS:
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


HARDWARE_LOG = kernel_probe(
    "hardware_log",
    parse_hardware_log,
    "Linux: an uncorrected machine check or memory error is broken hardware; corrected: limit of our own, 100",
)


LINK_DOWN = re.compile(
    r"(?P<device>(?:mlx\d_core|bnxt_en|ice|i40e|ixgbe|hfi1|irdma) [\w:.]+)[^\n]{0,240}?(?:Link (?:is )?[Dd]own|Cable unplugged)"
)
ADAPTER_SIGNS = (
    (re.compile(r"Port module event.{0,240}High Temperature", re.I), "a transceiver is too hot", "look at airflow and transceiver"),
    (
        re.compile(r"[Ii]nsufficient power on the PCIe slot"),
        "an adapter gets too little power",
        "reseat it; look at slot and power cable",
    ),
    (
        re.compile(r"bond\d+: now running without any active interface"),
        "a bond has no link left",
        "look at its cables and switches",
    ),
    (
        re.compile(r"mlx5_core .{0,240}(?:health compromised|Fatal error|device's health)", re.I),
        "an adapter's firmware is ill",
        "power cycle the node",
    ),
)
CABLE = "reseat or replace cable and transceiver; look at the switch port"

NETWORK_WORDS = ("Link ", "unplugged", "High Temperature", "nsufficient power", "running without", "health", "Fatal error")
"""One of these stands in every line that is looked for."""


def parse_network_log(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Count links that went down, and name what else speaks against an adapter."""
    kept = kernel_lines(reply, circumstances, NETWORK_WORDS)
    downs = Counter(match["device"] for line in kept if (match := LINK_DOWN.search(line.text)))
    limits, found = circumstances.limits.node, []
    for device, count in downs.items():
        status = judged(count, limits.flaps_warning, limits.flaps_critical)
        if status is not Health.OK:
            found.append(Finding(status, f"{device}: link went down {count} times", count, limits.flaps_warning, "times", CABLE))
    for pattern, text, remedy in ADAPTER_SIGNS:
        said = [line for line in kept if pattern.search(line.text)]
        if said:
            events = tuple(line.identity for line in said)
            found.append(Finding(Health.CRITICAL, f"{text}: {said[-1].whole}", len(said), 0, "lines", remedy, events=events))
    return found or [ok("no network link went down", sum(downs.values()), limits.flaps_warning, "times")]


NETWORK_LOG = kernel_probe("network_log", parse_network_log, "arXiv 2403.07648, Table 3: Network Error; flaps: limits of our own")


SERVER_LOST = re.compile(
    r"nfs: server (?P<nfs>\S+) not responding|LustreError: .{0,240}?Connection to (?P<l1>\S+) .{0,240}was lost|"
    r"Lustre: .{0,240}?Connection to (?P<l2>\S+) .{0,240}was lost"
    r"|libceph: (?P<ceph>(?:osd|mon|mds)\d+) .{0,240}(?:socket closed|session lost)|ceph: (?P<mds>mds\d+) hung"
)
SERVER_BACK = re.compile(
    r"nfs: server (?P<nfs>\S+) OK|Connection restored to (?P<lustre>\S+)|libceph: (?P<ceph>(?:osd|mon|"
    r"mds)\d+) .{0,240}session established|ceph: (?P<mds>mds\d+) (?:reconnect|recovery)"
)
EVICTED = re.compile(
    r"This client was evicted by (?P<who>\S+)|GPFS.{0,240}(?:being expelled|unmounting file system)|"
    r"nfs4_reclaim_open_state: Lock reclaim failed"
)
SERVER_REMEDY = "look at the server and the path to it; with other nodes well, remount or reboot this one"

STORAGE_WORDS = ("nfs", "Lustre", "libceph", "ceph:", "GPFS", "evicted")
"""One of these stands in every line that is looked for."""


def parse_storage_log(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Pair what was lost with what came back; only the last word of each server counts."""
    silent: dict[str, KernelLine] = {}
    evicted: list[KernelLine] = []
    for line in kernel_lines(reply, circumstances, STORAGE_WORDS):
        lost, back = SERVER_LOST.search(line.text), SERVER_BACK.search(line.text)
        if lost:
            silent[_server(lost)] = line
        elif back:
            silent.pop(_server(back), None)
        elif EVICTED.search(line.text):
            evicted.append(line)
    found = [
        Finding(
            Health.CRITICAL,
            f"storage server {server} is silent: {line.whole}",
            server,
            remedy=SERVER_REMEDY,
            weight=Weight.NEVER,
            events=(line.identity,),
        )
        for server, line in silent.items()
    ]
    if evicted:
        text = f"a file system gave this node up: {evicted[-1].whole}"
        found.append(
            Finding(
                Health.WARNING,
                text,
                len(evicted),
                0,
                "lines",
                SERVER_REMEDY,
                Weight.NEVER,
                events=tuple(line.identity for line in evicted),
            )
        )
    return found or [ok("no storage server is silent", 0, 0, "servers")]


def _server(match: re.Match[str]) -> str:
    name = next(value for value in match.groupdict().values() if value)
    return name.rstrip(",.:").split("@")[0].strip("()")


STORAGE_LOG = kernel_probe(
    "storage_log", parse_storage_log, "arXiv 2403.07648, Table 3: S3 Storage Error; a silent server is not the node's fault"
)


KILLED = re.compile(
    r"(?P<group>Memory cgroup out of memory|"
    r"Out of memory)(?: \(.{0,240}?\))?: Kill(?:ed)? process (?P<pid>\d+),? (?:UID \d+, )?\(?(?P<name>[^),]+)"
)

OOM_WORDS = ("ut of memory",)
"""One of these stands in every line that is looked for."""


def parse_out_of_memory(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Name what was killed; a job over its own limit is the job's affair."""
    killed = [(line, match) for line in kernel_lines(reply, circumstances, OOM_WORDS) if (match := KILLED.search(line.text))]
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


OUT_OF_MEMORY = kernel_probe("out_of_memory", parse_out_of_memory, "Linux, mm/oom_kill.c")
