"""Probes of the operating system of a node: it answers, its boot, load, memory, processes, daemons and clock."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight, judged, ok, unknown
from assistant.tooling import Probe

UPTIME_COMMAND = ("cat", "/proc/uptime")


def boot_time(reply: Reply, now: datetime) -> datetime | None:
    """Return when a node was booted, by its /proc/uptime as read at a time; None for a reply that cannot be read."""
    match = re.match(r"(\d+\.\d+) \d+\.\d+\s*$", reply.out)
    return (now - timedelta(seconds=float(match.group(1)))).astimezone(UTC) if match else None


def parse_reachable(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Return ok: an answer is the proof."""
    return [ok("it answers")]


REACHABLE = Probe(
    name="reachable", command=("true",), needs="true", parse=parse_reachable, source="none: it answers or it does not"
)


BOOT_SLACK_S = 5


def parse_reboot(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Compare the boot with the start of the job; without one only say when it was."""
    boot = boot_time(reply, circumstances.now)
    if boot is None:
        return [unknown("uptime could not be read")]
    boot_text = f"{boot:%Y-%m-%dT%H:%M:%SZ}"
    start = circumstances.job_started
    if start is not None and (boot - start).total_seconds() > BOOT_SLACK_S:
        text = f"booted at {boot_text}, after the job began at {start:%Y-%m-%dT%H:%M:%SZ}"
        return [
            Finding(Health.CRITICAL, text, boot_text, f"{start:%Y-%m-%dT%H:%M:%SZ}", "", "find out why: last -x; ipmitool sel list")
        ]
    return [ok(f"up since {boot_text}", boot_text)]


REBOOT = Probe(
    name="reboot", command=UPTIME_COMMAND, needs="cat", parse=parse_reboot, source="none: a boot is a fact", reading="uptime"
)


def parse_load(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Read /proc/loadavg, and after it the list of processors that are in use; high load is never more than a warning."""
    load = re.match(r"([\d.]+) ([\d.]+) ([\d.]+) \d+/\d+ \d+", reply.out)
    if load is None:
        return [unknown("loadavg could not be read")]
    cpus = _listed_processors(reply.out) or len(re.findall(r"^processor\s*:", reply.out, re.MULTILINE))
    five, limit = float(load.group(2)), circumstances.limits.node.load_warning_per_cpu
    per_cpu = five / max(1, cpus)
    text = f"load {five:g} over five minutes on {cpus or 'unknown'} processors"
    if per_cpu < limit:
        return [ok(text, round(per_cpu, 2), limit, "tasks per processor")]
    remedy = "see what runs: ps -eo state,pid,user,comm --sort=state"
    return [Finding(Health.WARNING, text, round(per_cpu, 2), limit, "tasks per processor", remedy, Weight.NEVER)]


def _listed_processors(text: str) -> int:
    """Return how many processors a list such as `0-3,8` names."""
    match = re.search(r"^(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*)$", text, re.MULTILINE)
    if match is None:
        return 0
    ranges = (part.split("-") for part in match.group(1).split(","))
    return sum(int(ends[-1]) - int(ends[0]) + 1 for ends in ranges)


LOAD = Probe(
    name="load",
    # a list, not cpuinfo: that grows to hundreds of kilobytes on large nodes
    command=("cat", "/proc/loadavg", "/sys/devices/system/cpu/online"),
    needs="cat",
    parse=parse_load,
    source="limit of our own: 4 tasks a processor over five minutes",
)


MEMORY_REMEDY = "see what uses it: ps aux --sort=-rss | head; look at /dev/shm"


def parse_memory(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Read /proc/meminfo: MemAvailable over MemTotal."""
    kib_by_name = {name: int(kib) for name, kib in re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB", reply.out, re.MULTILINE)}
    total, available = kib_by_name.get("MemTotal", 0), kib_by_name.get("MemAvailable")
    if not total or available is None:
        return [unknown("meminfo holds no MemTotal and MemAvailable")]
    limits = circumstances.limits.node
    share = available / total
    text = f"{share:.0%} of {total / 2**20:.0f} GiB is available"
    if share >= limits.memory_warning_share:
        return [ok(text, round(share, 4), limits.memory_warning_share, "share")]
    critical = share < limits.memory_critical_share
    limit = limits.memory_critical_share if critical else limits.memory_warning_share
    status = Health.CRITICAL if critical else Health.WARNING
    return [Finding(status, text, round(share, 4), limit, "share", MEMORY_REMEDY, Weight.NEVER)]


MEMORY = Probe(
    name="memory",
    command=("cat", "/proc/meminfo"),
    needs="cat",
    parse=parse_memory,
    source="limits of our own: 5 % and 1 % available",
)


PROCESSES_COMMAND = (
    "sh",
    "-c",
    "ps -eo pid=,ppid=,stat=,etimes=,comm= || exit $?; echo again; sleep 1; ps -eo pid=,ppid=,stat=,etimes=,comm=; echo end",
)
"""All processes at two looks, a second apart."""


PROCESS_LINE = re.compile(
    r"^\s*(?P<pid>\d+)\s+(?P<parent>\d+)\s+(?P<state>[A-Za-z])\S*\s+(?P<age>\d+)\s+(?P<name>.*\S)", re.MULTILINE
)
KTHREADD = "2"


def parse_processes(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Report processes in state D at both looks, and many zombies; threads of the kernel itself may wait for ever."""
    first, separator, second = reply.out.partition("\nagain\n")
    before, after = list(PROCESS_LINE.finditer(first)), list(PROCESS_LINE.finditer(second))
    if not before or not separator or not after:
        return [unknown("the processes could not be listed")]
    waiting = {(process["pid"], process["name"]) for process in before if process["state"] == "D"}
    stuck = [
        process
        for process in after
        if process["state"] == "D"
        and (process["pid"], process["name"]) in waiting
        and KTHREADD not in (process["pid"], process["parent"])
    ]
    zombies = [process for process in after if process["state"] == "Z"]
    limits, findings = circumstances.limits.node, []
    status = judged(len(stuck), limits.stuck_warning, limits.stuck_critical)
    if status is not Health.OK:
        listing = ", ".join(f"{process['pid']} ({process['name']}, {process['age']} s old)" for process in stuck[:4])
        text = f"{len(stuck)} processes hang in the kernel: {listing}"
        limit = limits.stuck_critical if status is Health.CRITICAL else limits.stuck_warning
        remedy = "see what they wait for: cat /proc/PID/stack; they cannot be killed: drain and reboot when they stay"
        findings.append(Finding(status, text, len(stuck), limit, "processes", remedy, Weight.COUNTS))
    if len(zombies) >= limits.zombies_warning:
        text = f"{len(zombies)} zombies, for instance {zombies[0]['pid']} ({zombies[0]['name']}) of {zombies[0]['parent']}"
        findings.append(
            Finding(Health.WARNING, text, len(zombies), limits.zombies_warning, "processes", "end their parents", Weight.NEVER)
        )
    return findings or [ok(f"none of {len(after)} processes hangs", 0, limits.stuck_warning, "processes")]


PROCESSES = Probe(
    name="processes",
    command=PROCESSES_COMMAND,
    needs="ps",
    parse=parse_processes,
    source="limits of our own: 1 and 8 stuck processes, 50 zombies",
    package="procps",
)


DAEMONS_COMMAND = (
    "sh",
    "-c",
    "[ -r /etc/slurm/slurm.conf ] && command -v slurmd >/dev/null && printf 'wanted slurmd\\nwanted munged\\n'; "
    "command -v nv-fabricmanager >/dev/null && grep -qs 0x0680 /sys/bus/pci/devices/*/class && echo wanted nv-fabricmanager; "
    "[ -x /usr/lpp/mmfs/bin/mmfsd ] && echo wanted mmfsd; command -v chronyd >/dev/null && echo wanted chronyd; "
    "ps -eo comm= || exit $?; echo end",
)
"""`wanted NAME` for each daemon whose program and configuration are there, then the names of all processes, then `end`."""


SERVICES = {"slurmd": "slurmd", "munged": "munge", "nv-fabricmanager": "nvidia-fabricmanager", "mmfsd": "gpfs"}
"""Daemons without which no job runs right, with the names of their services."""
COMM_LENGTH = 15
"""The kernel cuts names of processes."""


def parse_daemons(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Report the daemons that are set up and do not run."""
    lines = [line.strip() for line in reply.out.split("\n") if line.strip()]
    if not lines or lines[-1] != "end":
        return [unknown("the processes could not be listed")]
    expected = [line.split()[1] for line in lines if line.startswith("wanted ") and len(line.split()) == 2]
    running = {line[:COMM_LENGTH] for line in lines if not line.startswith("wanted ")}
    findings = []
    for name in expected:
        if name[:COMM_LENGTH] not in running:
            service = SERVICES.get(name, name)
            status = Health.CRITICAL if name in SERVICES else Health.WARNING
            remedy = f"systemctl restart {service}; journalctl -u {service} -n 50"
            findings.append(Finding(status, f"{name} is set up and does not run", "stopped", "running", "", remedy, Weight.NEVER))
    return findings or [
        ok(f"all {len(expected)} daemons run" if expected else "no daemon of the cluster is set up here", len(expected))
    ]


DAEMONS = Probe(
    name="daemons",
    command=DAEMONS_COMMAND,
    needs="ps",
    parse=parse_daemons,
    source="what is installed and configured should run",
    package="procps",
)


CLOCK_COMMAND = (
    "sh",
    "-c",
    "date +%s.%N; command -v chronyc >/dev/null 2>&1 && timeout 1 chronyc -c -n tracking 2>/dev/null; exit 0",
)
"""Seconds since 1970; then, where chrony runs, its state as comma-separated values."""


CLOCK_REMEDY = "systemctl restart chronyd; chronyc tracking; collectives and credentials fail when clocks differ"
LEAP_LOST = "Not synchronised"


def parse_clock(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Report a clock outside of the time between question and answer, and a chrony without a source."""
    match = re.match(r"(\d{9,11})(\.\d+)?", reply.out.strip())
    if match is None:
        return [unknown("date printed no time")]
    node = datetime.fromtimestamp(float(match.group()), UTC)
    asked_at = circumstances.asked or circumstances.now
    skew = max(0.0, (asked_at - node).total_seconds(), (node - circumstances.now).total_seconds())
    limits = circumstances.limits.node
    status = judged(skew, limits.skew_warning_s, limits.skew_critical_s)
    if status is not Health.OK:
        limit = limits.skew_critical_s if status is Health.CRITICAL else limits.skew_warning_s
        way = "behind" if node < asked_at else "ahead"
        return [Finding(status, f"clock is {skew:.1f} s {way}", round(skew, 3), limit, "s", CLOCK_REMEDY, Weight.NEVER)]
    fields = reply.out.strip().splitlines()[-1].split(",")
    if len(fields) >= 14 and fields[13].strip() == LEAP_LOST:
        return [Finding(Health.WARNING, "chrony has no time source", "Not synchronised", "Normal", "", CLOCK_REMEDY, Weight.NEVER)]
    return [ok("clock goes right", round(skew, 3), limits.skew_warning_s, "s")]


CLOCK = Probe(
    name="clock",
    command=CLOCK_COMMAND,
    needs="date",
    parse=parse_clock,
    source="limits of our own: 1 s and 10 s",
    package="coreutils",
)
