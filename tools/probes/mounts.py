"""Probes of file systems: how full the local ones are, and whether network ones are mounted, answer and have room.

Each is asked in a process of its own, so that one that hangs keeps nothing else from answering.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight, judged, ok, unknown
from assistant.tooling import Probe

MOUNTS_COMMAND = (
    "sh",
    "-c",
    'ask() { r=$(timeout -k 1 2 stat -f -c \'%S %b %a %c %d\' -- "$(printf %b "$1")" 2>&1); s=$?; printf \'answer %s '
    '%s %s\\n\' "$1" $s "$r"; }; '
    "[ -r /sys/fs/lustre/health_check ] && { read -r h </sys/fs/lustre/health_check; echo lustre $h; }; "
    "while read -r s t m o r; do case $s in '#'*|'') continue ;; esac; case $m in nfs|nfs4|lustre|gpfs|beegfs|"
    "ceph) ;; *) continue ;; esac; "
    "case ,$o, in *,noauto,*|"
    '*,x-systemd.automount,*) ;; *) printf \'wanted %s %s\\n\' "$m" "$t" ;; esac; done </etc/fstab 2>/dev/null; '
    "while read -r s t m o r; do case $m in nfs|nfs4|lustre|gpfs|beegfs|ceph|cifs|fuse.*|ext[234]|xfs|btrfs|zfs|"
    "overlay|tmpfs) ;; *) continue ;; esac; "
    "case $m:$t in overlay:/|tmpfs:/dev/shm) ;; "
    "overlay:*|tmpfs:/dev|tmpfs:/run/*|tmpfs:/sys/*|tmpfs:/proc/*|*:/var/lib/docker/*|*:/var/lib/kubelet/*|*:/snap/*) continue ;; "
    "esac; "
    'printf \'mount %s %s %s\\n\' "$m" "$t" "$o"; ask "$t" & done </proc/mounts; wait; echo end',
)
"""`wanted TYPE PLACE` (fstab), `mount TYPE PLACE OPTIONS`, `answer PLACE STATUS SIZE BLOCKS FREE INODES FREE`; `end`
when none hangs."""


NETWORK = ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs")


@dataclass(slots=True)
class Mount:
    """One mounted file system."""

    kind: str
    place: str
    options: str
    answered: bool = False
    error: str = ""
    """Why it could not be asked, in the kernel's words."""
    stopped: bool = False
    """Whether it did not answer in time."""
    unasked: bool = False
    """Whether the program that asks is not there."""
    used_percent: float | None = None
    inodes_percent: float | None = None

    @property
    def network(self) -> bool:
        """Whether its server is elsewhere."""
        return self.kind in NETWORK or self.kind.startswith("fuse.")


@dataclass(frozen=True, slots=True)
class Reading:
    """The file systems of a node, as it showed them."""

    mounts: list[Mount]
    listed_in_fstab: list[tuple[str, str]]
    """Kind and place of network file systems that fstab wants mounted."""
    lustre: str


def read_mounts(reply: Reply) -> Reading | None:
    """Return the file systems of a reply; None for a reply without any."""
    mounts: dict[str, Mount] = {}
    listed_in_fstab: list[tuple[str, str]] = []
    lustre = ""
    for line in reply.out.split("\n"):
        words = line.split()
        if words[:1] == ["mount"] and len(words) == 4:
            mounts[words[2]] = Mount(words[1], words[2], words[3])
        elif words[:1] == ["answer"] and len(words) >= 3 and words[1] in mounts:
            _add_answer(mounts[words[1]], words[2], words[3:])
        elif words[:1] == ["wanted"] and len(words) == 3:
            listed_in_fstab.append((words[1], words[2]))
        elif words[:1] == ["lustre"] and len(words) == 2:
            lustre = words[1]
    return Reading(list(mounts.values()), listed_in_fstab, lustre) if mounts else None


def _add_answer(mount: Mount, status: str, words: list[str]) -> None:
    mount.answered = True
    if status in ("124", "137"):
        mount.stopped = True
    elif status in ("126", "127"):
        mount.unasked = True
    elif status != "0" or len(words) != 5 or not all(re.fullmatch(r"\d+", word) for word in words):
        mount.error = " ".join(words).rpartition(": ")[2] or f"status {status}"
    else:
        _, blocks, free, inodes, inodes_free = (int(word) for word in words)
        mount.used_percent = 100 * (1 - free / blocks) if blocks else None
        mount.inodes_percent = 100 * (1 - inodes_free / inodes) if inodes else None


def mounts_probe(name: str, parse: Callable[[Reply, Circumstances], Sequence[Finding]], source: str) -> Probe:
    """Return a probe that reads the file systems."""
    return Probe(
        name=name,
        command=MOUNTS_COMMAND,
        needs="sh",
        parse=parse,
        source=source,
        package="coreutils",
        reading="mounts",
        reads_failures=True,
    )


def parse_disk(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Judge each local file system; one that cannot be asked is broken, one that does not answer is unknown."""
    reading = read_mounts(reply)
    if reading is None:
        return [unknown("the file systems could not be listed")]
    local = [mount for mount in reading.mounts if not mount.network]
    bad = [finding for mount in local for finding in judge_file_system(mount, circumstances)]
    fullest = max(
        (mount for mount in local if mount.used_percent is not None), key=lambda mount: mount.used_percent or 0, default=None
    )
    if bad or fullest is None:
        return bad or [unknown("no local file system answered")]
    limit = circumstances.limits.node.disk_warning_percent
    used = round(fullest.used_percent or 0, 1)
    return [ok(f"{used:.0f} % of {fullest.place} is in use, the fullest of {len(local)}", used, limit, "%")]


def judge_file_system(mount: Mount, circumstances: Circumstances) -> Iterator[Finding]:
    """Yield the findings of a file system: it cannot be asked, does not answer, or is full."""
    limits = circumstances.limits.node
    if mount.error:
        remedy = "look at dmesg; check the file system and mount it again"
        yield Finding(Health.CRITICAL, f"{mount.place} ({mount.kind}): {mount.error}", mount.error, remedy=remedy)
    elif mount.unasked:
        yield unknown("stat or timeout is not there", "install coreutils", missing=True)
    elif not mount.answered or mount.stopped:
        yield unknown(f"{mount.place} ({mount.kind}) did not answer within 2 s", "look for a hanging disk or server")
    for resource, percent, warning, critical in (
        ("space", mount.used_percent, limits.disk_warning_percent, limits.disk_critical_percent),
        ("inodes", mount.inodes_percent, limits.inodes_warning_percent, limits.inodes_critical_percent),
    ):
        status = judged(percent or 0, warning, critical)
        if percent is not None and status is not Health.OK and "ro" not in mount.options.split(","):
            text = f"{percent:.0f} % of {'the inodes of ' if resource == 'inodes' else ''}{mount.place} is in use"
            limit = critical if status is Health.CRITICAL else warning
            remedy = f"free {resource}: du -x --{'inodes' if resource == 'inodes' else 'max-depth=1'} {mount.place}"
            yield Finding(status, text, round(percent, 1), limit, "%", remedy, Weight.NEVER)


DISK = mounts_probe("disk", parse_disk, "limits of our own: 90 % and 98 %, knowledge/limits.toml")


SERVER_REMEDY = "look at the server and the network; with other nodes well, remount or reboot this one"


def parse_mounts(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Judge what is mounted and what fstab wants mounted."""
    reading = read_mounts(reply)
    if reading is None:
        return [unknown("the file systems could not be listed")]
    remote = [mount for mount in reading.mounts if mount.network]
    findings: list[Finding] = []
    for mount in remote:
        if mount.stopped or not mount.answered:
            # it was asked and was silent: seen, yet silence convicts no node
            text = f"{mount.place} ({mount.kind}) did not answer within 2 s"
            findings.append(Finding(Health.CRITICAL, text, 2, 2, "s", SERVER_REMEDY, Weight.NEVER))
        else:
            findings += judge_file_system(mount, circumstances)
    places = {mount.place for mount in reading.mounts}
    for kind, place in reading.listed_in_fstab:
        if place not in places:
            findings.append(
                Finding(Health.CRITICAL, f"{place} ({kind}) stands in fstab and is not mounted", place, remedy=f"mount {place}")
            )
    if reading.lustre and reading.lustre != "healthy":
        findings.append(Finding(Health.CRITICAL, f"Lustre says: {reading.lustre}", reading.lustre, "healthy", remedy=SERVER_REMEDY))
    return findings or [ok(f"{len(remote)} network file systems answer" if remote else "no network file system", len(remote))]


MOUNTS = mounts_probe("mounts", parse_mounts, "limits of our own: an answer within 2 s, 90 % and 98 %")
