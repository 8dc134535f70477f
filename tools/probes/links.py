"""Probes of links: InfiniBand and RoCE ports, NVLinks, the NVLink fabric, and the PCIe links of GPUs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from assistant.content.devices import GpuLimits, NodeLimits
from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, merged, ok, unknown
from assistant.tooling import Probe
from assistant.tools.probes._counters import Ceiling, Counter, counts_by, judge_counters
from assistant.tools.probes._nvidia_smi import NVIDIA_PACKAGE, Gpu, gpu_finding, gpu_probe

INFINIBAND_COMMAND = (
    "sh",
    "-c",
    "cd /sys/class/infiniband 2>/dev/null || { echo end; exit 0; }; for p in */ports/*; do [ -r $p/state ] ||"
    " continue; h=${p%%/*}; "
    "for f in $h/hca_type $p/state $p/phys_state $p/rate $p/link_layer $p/counters/symbol_error "
    "$p/counters/link_error_recovery "
    "$p/counters/link_downed $p/counters/port_rcv_errors $p/counters/port_xmit_discards "
    "$p/counters/local_link_integrity_errors "
    "$p/counters/excessive_buffer_overrun_errors $p/hw_counters/out_of_sequence $p/hw_counters/packet_seq_err "
    "$p/hw_counters/local_ack_timeout_err $p/hw_counters/rnr_nak_retry_err $h/device/net/*/carrier_changes; do "
    'x=; { [ -r $f ] && read -r x <$f; } 2>/dev/null; [ -n "$x" ] && echo port $h ${p##*/} ${f##*/} $x; done; done; echo end',
)
"""`port HCA NUMBER NAME VALUE` for each value of each port; then `end`."""


@dataclass(frozen=True, slots=True)
class Port:
    """One port and the values of its files."""

    hca: str
    number: str
    values: dict[str, str]

    @property
    def name(self) -> str:
        """As `ibstat` takes it."""
        return f"{self.hca}/{self.number}"

    @property
    def ethernet(self) -> bool:
        """Whether it speaks RoCE."""
        return self.values.get("link_layer", "") == "Ethernet"

    @property
    def up(self) -> bool:
        """Whether data may pass."""
        return "ACTIVE" in self.values.get("state", "")

    @property
    def rate_gb(self) -> float:
        """Gb/s; 0 where the kernel does not say."""
        word = (self.values.get("rate", "").split() or ["0"])[0]
        return float(word) if word.replace(".", "", 1).isdigit() else 0.0

    def count(self, name: str) -> int:
        """Return a counter; 0 where there is none."""
        word = self.values.get(name, "0")
        return int(word) if word.isdigit() else 0


def read_ports(reply: Reply) -> list[Port] | None:
    """Return the ports of a reading; None when it is none."""
    lines = reply.out.split("\n")
    if "end" not in (line.strip() for line in lines):
        return None
    ports_by_name: dict[tuple[str, str], Port] = {}
    for line in lines:
        words = line.split(maxsplit=4)
        if len(words) == 5 and words[0] == "port":
            port = ports_by_name.setdefault((words[1], words[2]), Port(words[1], words[2], {}))
            port.values[words[3]] = words[4].strip()
    return list(ports_by_name.values())


def infiniband_probe(name: str, parse: Callable[[Reply, Circumstances], Sequence[Finding]], source: str, **more: Any) -> Probe:
    """Return a probe that reads the ports."""
    return Probe(
        name=name, command=INFINIBAND_COMMAND, needs="sh", parse=parse, source=source, witness="sysfs", reading="infiniband", **more
    )


CABLE = "reseat or replace cable and transceiver; look at the switch port"


def parse_infiniband(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Judge each port; one that was never up since boot is taken for unused."""
    node_ports = read_ports(reply)
    if node_ports is None:
        return [unknown("the adapters could not be read")]
    if not node_ports:
        return [ok("no InfiniBand or RoCE adapter", 0, unit="ports")]
    best: dict[tuple[str, bool], float] = {}
    for port in node_ports:
        kind = (port.values.get("hca_type", ""), port.ethernet)
        best[kind] = max(best.get(kind, 0.0), port.rate_gb if port.up else 0.0)
    bad = [(port.name, finding) for port in node_ports if (finding := _judge_port(port, best)) is not None]
    up = [port for port in node_ports if port.up]
    if not up and not bad:
        return [Finding(Health.WARNING, f"none of {len(node_ports)} ports is active", 0, len(node_ports), "ports", CABLE)]
    return merged(bad) or [
        ok(f"{len(up)} of {len(node_ports)} ports are active at up to {max(p.rate_gb for p in up):g} Gb/s", len(up), unit="ports")
    ]


def _judge_port(port: Port, best: dict[tuple[str, bool], float]) -> Finding | None:
    state = port.values.get("state", "").split(":")[-1].strip() or "unknown"
    physical = port.values.get("phys_state", "").split(":")[-1].strip()
    if not port.up:
        was_up = port.count("link_downed") or (port.ethernet and port.count("carrier_changes") > 1)
        if was_up:
            text = f"port {{}} is {state} ({physical or 'physical state unknown'}) and was up since boot"
            return Finding(Health.CRITICAL, text, state, "ACTIVE", "", CABLE)
        if state in ("INIT", "ARMED"):
            return Finding(
                Health.WARNING, f"port {{}} is {state}: no subnet manager?", state, "ACTIVE", "", "look at the subnet manager"
            )
        return None
    most = best[(port.values.get("hca_type", ""), port.ethernet)]
    if port.rate_gb < most:
        text = f"port {{}} runs at {port.rate_gb:g} Gb/s, others of its kind at {most:g}"
        return Finding(Health.CRITICAL, text, port.rate_gb, most, "Gb/s", CABLE)
    return None


INFINIBAND = infiniband_probe(
    "infiniband", parse_infiniband, "arXiv 2403.07648, Table 3: Network Error; the node's other ports of the kind"
)


CABLE_OR_SWITCH = "reseat or replace cable and transceiver; compare with the switch port's counters"
LINK_ERRORS = (
    "port_rcv_errors",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "link_error_recovery",
    "packet_seq_err",
    "local_ack_timeout_err",
)


def parse_infiniband_errors(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Judge the counters of each port."""
    node_ports = read_ports(reply)
    if node_ports is None:
        return [unknown("the adapters could not be read")]
    counters = [counter for port in node_ports for counter in _port_counters(port, circumstances.limits.node)]
    bad = merged(judge_counters(counters, circumstances))
    return bad or [
        ok(f"error counters of {len(node_ports)} ports are low ({circumstances.past.told})", len(node_ports), unit="ports")
    ]


def _infiniband_counters(reply: Reply, circumstances: Circumstances) -> Iterator[Counter]:
    for port in read_ports(reply) or ():
        yield from _port_counters(port, circumstances.limits.node)


def _port_counters(port: Port, limits: NodeLimits) -> Iterator[Counter]:
    device, none = f"port {port.name}", Ceiling()
    symbols, links = Ceiling(limits.symbol_errors_per_hour), Ceiling(limits.link_errors_per_hour)
    name = f"{device} symbol_error"
    yield Counter(device, name, port.count("symbol_error"), "# symbol errors", none, symbols, CABLE_OR_SWITCH, averaged=True)
    for kind in LINK_ERRORS:
        yield Counter(device, f"{device} {kind}", port.count(kind), f"# {kind}", none, links, CABLE_OR_SWITCH, averaged=True)
    # a port that is down is for the probe of states
    judge = port.up
    total = Ceiling(limits.flaps_warning, limits.flaps_critical) if judge else none
    hourly = Ceiling(limits.flaps_per_hour, limits.flaps_critical_per_hour) if judge else none
    flaps = port.count("link_downed") or (port.count("carrier_changes") // 2 if port.ethernet else 0)
    yield Counter(device, f"{device} flaps", flaps, "went down # times", total, hourly, CABLE_OR_SWITCH, unit="times")


INFINIBAND_ERRORS = infiniband_probe(
    "infiniband_errors",
    parse_infiniband_errors,
    "InfiniBand specification: 120 symbol errors an hour; flaps: limits of our own",
    counts=counts_by(_infiniband_counters),
)


NVLINK_GPU = re.compile(r"^GPU (?P<index>\d+): (?P<model>.+?) \(UUID", re.MULTILINE)
NVLINK_STATE = re.compile(r"^\s*Link (?P<link>\d+): (?:(?P<speed>[\d.]+) GB/s|<?(?P<off>inactive)>?)", re.MULTILINE | re.IGNORECASE)
NVLINK_REMEDY = "drain the node, reset all its GPUs together; look for XID 74 and SXIDs; ask for a replacement when it stays"


def nvlink_probe(
    name: str, option: str, parse: Callable[[Reply, Circumstances], Sequence[Finding]], limits: str, **more: Any
) -> Probe:
    """Return a probe that reads `nvidia-smi nvlink` with an option."""
    return Probe(
        name=name,
        command=("nvidia-smi", "nvlink", option),
        needs="nvidia-smi",
        parse=parse,
        source=f"arXiv 2403.07648, Table 3: NVLink Error; {limits}",
        package=NVIDIA_PACKAGE,
        witness="nvml",
        hardware="nvidia",
        **more,
    )


def parse_nvlink(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Read `nvidia-smi nvlink -s`."""
    heads = list(NVLINK_GPU.finditer(reply.out))
    if not heads:
        return [unknown("nvidia-smi nvlink -s printed no report that can be read")]
    ends = [head.start() for head in heads[1:]] + [len(reply.out)]
    findings: list[tuple[str, Finding]] = []
    links = 0
    for head, end in zip(heads, ends, strict=True):
        limits = circumstances.limits.of(head["model"])
        gpu_links = list(NVLINK_STATE.finditer(reply.out, head.end(), end))
        links += len(gpu_links)
        findings += [(f"GPU {head['index']}", finding) for finding in _judge_nvlinks(gpu_links, limits)]
    return merged(findings) or [
        ok(f"{links} NVLinks of {len(heads)} GPUs are active" if links else "no NVLink is expected here", links)
    ]


def _judge_nvlinks(links: list[re.Match[str]], limits: GpuLimits) -> list[Finding]:
    """Judge number and speed of links; a model without a known number of links, such as a card with bridges, is not judged."""
    if not limits.nvlinks:
        return []
    speeds = {link["link"]: float(link["speed"]) for link in links if link["speed"]}
    if len(speeds) < limits.nvlinks:
        off = [link["link"] for link in links if link["off"]]
        which = f" (link {', '.join(off)})" if 0 < len(off) < limits.nvlinks else ""
        text = f"{{}}: {len(speeds)} of {limits.nvlinks} NVLinks are active{which}"
        return [Finding(Health.CRITICAL, text, len(speeds), limits.nvlinks, "links", NVLINK_REMEDY, source=limits.source)]
    slow = {link: speed for link, speed in speeds.items() if speed < 0.99 * limits.nvlink_gb_s}
    if slow:
        text = f"{{}}: NVLink {', '.join(slow)} at {min(slow.values()):g} GB/s of {limits.nvlink_gb_s:g}"
        return [Finding(Health.WARNING, text, min(slow.values()), limits.nvlink_gb_s, "GB/s", NVLINK_REMEDY, source=limits.source)]
    return []


NVLINK = nvlink_probe("nvlink", "-s", parse_nvlink, "number and speed of links: knowledge/limits.toml")


NVLINK_COUNTERS_GPU = re.compile(r"^GPU (?P<index>\d+):(?:.*\(UUID: (?P<uuid>[\w-]+)\))?", re.MULTILINE)
NVLINK_COUNTER = re.compile(
    r"^\s*Link (?P<link>\d+): (?P<kind>[^:\n]*Errors?[^:\n]*): (?P<count>\d+)", re.MULTILINE | re.IGNORECASE
)
NVLINK_ERRORS_REMEDY = "watch it; drain the node and reset its GPUs when it grows; look for XID 74"


def parse_nvlink_errors(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Read `nvidia-smi nvlink -e`, with all kinds of errors that a generation counts."""
    if not NVLINK_COUNTERS_GPU.search(reply.out):
        return [unknown("nvidia-smi nvlink -e printed no report that can be read")]
    counters = list(_nvlink_counters(reply, circumstances))
    bad = merged(judge_counters(counters, circumstances))
    return bad or [ok(f"{len(counters)} NVLink error counters are low ({circumstances.past.told})", len(counters))]


def _nvlink_counters(reply: Reply, circumstances: Circumstances) -> Iterator[Counter]:
    limits = circumstances.limits.node
    heads = list(NVLINK_COUNTERS_GPU.finditer(reply.out))
    ends = [head.start() for head in heads[1:]] + [len(reply.out)] * bool(heads)
    for head, end in zip(heads, ends, strict=True):
        for match in NVLINK_COUNTER.finditer(reply.out, head.end(), end):
            kind = match["kind"].strip().casefold()
            total, hourly = _nvlink_ceilings(kind, limits)
            link = f"NVLink {match['link']}"
            name = f"{head['uuid'] or head['index']} {link} {kind}"
            words, until = f"{link}: # {kind}", "since the last reset"
            yield Counter(
                f"GPU {head['index']}", name, int(match["count"]), words, total, hourly, NVLINK_ERRORS_REMEDY, until=until
            )


def _nvlink_ceilings(kind: str, limits: NodeLimits) -> tuple[Ceiling, Ceiling]:
    """Return the limits of a kind of error in all and in an hour."""
    if "crc" in kind:
        hourly = Ceiling(limits.nvlink_crc_per_hour, limits.nvlink_crc_critical_per_hour)
        return Ceiling(limits.nvlink_errors_warning, limits.nvlink_errors_critical), hourly
    # a link that had to recover was gone for a moment
    recovery = "recovery" in kind
    hourly = Ceiling(0 if recovery else limits.nvlink_errors_per_hour, limits.nvlink_errors_critical_per_hour)
    return Ceiling(1 if recovery else limits.nvlink_errors_warning, limits.nvlink_errors_critical), hourly


NVLINK_ERRORS = nvlink_probe(
    "nvlink_errors", "-e", parse_nvlink_errors, "limits: knowledge/limits.toml", counts=counts_by(_nvlink_counters)
)


FABRIC_MANAGER = "systemctl restart nvidia-fabricmanager; its version must be the driver's; read /var/log/fabricmanager.log"


def judge_fabric(gpu: Gpu, circumstances: Circumstances) -> Iterator[Finding]:
    """Judge state and status; a GPU without a fabric has neither."""
    state, status = gpu.text("fabric/state"), gpu.text("fabric/status")
    if state.casefold() == "in progress":
        yield gpu_finding(Health.WARNING, "{}: still joins the NVLink fabric", state, "Completed", "", FABRIC_MANAGER)
    elif state.casefold() == "not started":
        yield gpu_finding(Health.CRITICAL, "{}: has not joined the NVLink fabric", state, "Completed", "", FABRIC_MANAGER)
    elif state and status and status.casefold() != "success":
        # "Completed" with another status, such as "Insufficient Resources", is a GPU that cannot talk
        yield gpu_finding(
            Health.CRITICAL, f"{{}}: joining the NVLink fabric ended with {status}", status, "Success", "", FABRIC_MANAGER
        )


GPU_FABRIC = gpu_probe(
    "gpu_fabric", judge_fabric, "NVML fabric state: anything but Completed and Success", "NVLink fabric is joined, or there is none"
)


PCIE_LINK = "pci/pci_gpu_link_info/"
PCIE_BUSY_PERCENT = 20
RESEAT_GPU = "power cycle the node; then reseat the GPU or its riser"


def judge_pcie(gpu: Gpu, circumstances: Circumstances) -> Iterator[Finding]:
    """Compare the link with the best that device and slot can do."""
    width, widest = gpu.number(PCIE_LINK + "link_widths/current_link_width"), gpu.number(PCIE_LINK + "link_widths/max_link_width")
    if width and widest and width < widest:
        text = f"{{}}: PCIe width x{width:.0f} of x{widest:.0f}"
        yield gpu_finding(Health.CRITICAL, text, width, widest, "lanes", RESEAT_GPU)
    speed, fastest = gpu.number(PCIE_LINK + "pcie_gen/current_link_gen"), gpu.number(PCIE_LINK + "pcie_gen/max_link_gen")
    # an idle link may slow down to save power
    works = (gpu.number("utilization/gpu_util") or 0) >= PCIE_BUSY_PERCENT
    if speed and fastest and speed < fastest and works:
        text = f"{{}}: PCIe generation {speed:.0f} of {fastest:.0f} while it works"
        yield gpu_finding(Health.WARNING, text, speed, fastest, "generation", RESEAT_GPU)


def replay_counters(gpu: Gpu, circumstances: Circumstances) -> Iterator[Counter]:
    """Yield the counter of packets that were sent again over PCIe."""
    replays, limits = gpu.number("pci/replay_counter"), circumstances.limits.node
    if replays is not None:
        total, hourly = Ceiling(limits.pcie_replays_warning), Ceiling(limits.pcie_replays_per_hour)
        name, words, until = f"{gpu.identity} PCIe replays", "# PCIe replays", "since its last reset"
        yield Counter(gpu.name, name, int(replays), words, total, hourly, RESEAT_GPU, unit="replays", until=until)


GPU_PCIE = gpu_probe(
    "gpu_pcie",
    judge_pcie,
    "best link of device and slot, as nvidia-smi names it; replays: knowledge/limits.toml",
    "links are full",
    replay_counters,
)
