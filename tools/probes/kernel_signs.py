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
    """Return a finding for each kind of sign: how many lines show it, and the last of them."""
    log = kernel_lines(reply, circumstances, HARDWARE_WORDS)
    findings: list[Finding] = []
    claimed: set[str] = set()
    for pattern, status, weight, text, remedy in HARDWARE_SIGNS:
        matches = [line for line in log if line.identity not in claimed and pattern.search(line.text)]
        claimed.update(line.identity for line in matches)
        level = Health.WARNING if status is Health.OK and len(matches) >= CORRECTED_LIMIT else status
        if matches and level is not Health.OK:
            summary = f"{text}, {len(matches)} lines: {matches[-1].full_text}"
            limit = CORRECTED_LIMIT if status is Health.OK else 0
            findings.append(
                Finding(
                    level, summary, len(matches), limit, "lines", remedy, weight, events=tuple(line.identity for line in matches)
                )
            )
    return findings or [ok("no error of the hardware", 0, 0, "lines")]


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
    """Count links that went down, and report heat, lack of power and broken firmware of adapters."""
    log = kernel_lines(reply, circumstances, NETWORK_WORDS)
    downs = Counter(match["device"] for line in log if (match := LINK_DOWN.search(line.text)))
    limits, findings = circumstances.limits.node, []
    for device, count in downs.items():
        status = judged(count, limits.flaps_warning, limits.flaps_critical)
        if status is not Health.OK:
            findings.append(Finding(status, f"{device}: link went down {count} times", count, limits.flaps_warning, "times", CABLE))
    for pattern, text, remedy in ADAPTER_SIGNS:
        matches = [line for line in log if pattern.search(line.text)]
        if matches:
            events = tuple(line.identity for line in matches)
            findings.append(
                Finding(Health.CRITICAL, f"{text}: {matches[-1].full_text}", len(matches), 0, "lines", remedy, events=events)
            )
    return findings or [ok("no network link went down", sum(downs.values()), limits.flaps_warning, "times")]


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
    """Report servers whose last line says that they are lost; those that came back since are well."""
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
    findings = [
        Finding(
            Health.CRITICAL,
            f"storage server {server} is silent: {line.full_text}",
            server,
            remedy=SERVER_REMEDY,
            weight=Weight.NEVER,
            events=(line.identity,),
        )
        for server, line in silent.items()
    ]
    if evicted:
        text = f"a file system gave this node up: {evicted[-1].full_text}"
        findings.append(
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
    return findings or [ok("no storage server is silent", 0, 0, "servers")]


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
    """Report processes that were killed for lack of memory, of the node or within the limit of a job."""
    killed = [(line, match) for line in kernel_lines(reply, circumstances, OOM_WORDS) if (match := KILLED.search(line.text))]
    if not killed:
        return [ok("nothing was killed for its memory", 0, 0, "kills")]
    of_node = [match for _, match in killed if match["group"].startswith("Out")]
    last = (of_node or [match for _, match in killed])[-1]
    cause = "the node ran out of memory" if of_node else "a job's memory limit was reached"
    text = f"{cause}: {len(killed)} processes killed, last {last['name']} ({last['pid']})"
    events = tuple(line.identity for line, _ in killed)
    remedy = (
        "see which job or service used the memory; give jobs a limit" if of_node else "give the job more memory, or fewer workers"
    )
    return [Finding(Health.WARNING, text, len(killed), 0, "kills", remedy, Weight.NEVER, events=events)]


OUT_OF_MEMORY = kernel_probe("out_of_memory", parse_out_of_memory, "Linux, mm/oom_kill.c")
