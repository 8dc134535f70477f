"""Whether network file systems (NFS, Lustre, GPFS, BeeGFS, Ceph) are mounted, answer, and have room."""

from __future__ import annotations

from collections.abc import Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight, ok, unknown
from assistant.tools.probes._mounts import mounts_probe, read
from assistant.tools.probes.disk import full

REMEDY = "look at the server and the network; with other nodes well, remount or reboot this one"


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Judge what is mounted and what fstab wants mounted."""
    reading = read(reply)
    if reading is None:
        return [unknown("the file systems could not be listed")]
    remote = [mount for mount in reading.mounts if mount.network]
    found: list[Finding] = []
    for mount in remote:
        if mount.stopped or not mount.answered:
            # it was asked and was silent: seen, yet silence convicts no node
            text = f"{mount.place} ({mount.kind}) did not answer within 2 s"
            found.append(Finding(Health.CRITICAL, text, 2, 2, "s", REMEDY, Weight.NEVER))
        else:
            found += full(mount, circumstances)
    places = {mount.place for mount in reading.mounts}
    for kind, place in reading.wanted:
        if place not in places:
            found.append(
                Finding(Health.CRITICAL, f"{place} ({kind}) stands in fstab and is not mounted", place, remedy=f"mount {place}")
            )
    if reading.lustre and reading.lustre != "healthy":
        found.append(Finding(Health.CRITICAL, f"Lustre says: {reading.lustre}", reading.lustre, "healthy", remedy=REMEDY))
    return found or [ok(f"{len(remote)} network file systems answer" if remote else "no network file system", len(remote))]


PROBE = mounts_probe("mounts", parse, "limits of our own: an answer within 2 s, 90 % and 98 %")
