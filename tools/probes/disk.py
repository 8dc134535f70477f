"""How full the file systems of a node itself are: space and inodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, Weight, judged, ok, unknown
from assistant.tools.probes._mounts import Mount, mounts_probe, read


def parse(reply: Reply, circumstances: Circumstances) -> Sequence[Finding]:
    """Judge each local file system; one that cannot be asked is broken, one that does not answer is unknown."""
    reading = read(reply)
    if reading is None:
        return [unknown("the file systems could not be listed")]
    own = [mount for mount in reading.mounts if not mount.network]
    bad = [finding for mount in own for finding in full(mount, circumstances)]
    fullest = max((mount for mount in own if mount.used_percent is not None), key=lambda one: one.used_percent or 0, default=None)
    if bad or fullest is None:
        return bad or [unknown("no local file system answered")]
    limit = circumstances.limits.node.disk_warning_percent
    used = round(fullest.used_percent or 0, 1)
    return [ok(f"{used:.0f} % of {fullest.place} is in use, the fullest of {len(own)}", used, limit, "%")]


def full(mount: Mount, circumstances: Circumstances) -> Iterator[Finding]:
    """Say what is wrong with one file system."""
    limits = circumstances.limits.node
    if mount.error:
        remedy = "look at dmesg; check the file system and mount it again"
        yield Finding(Health.CRITICAL, f"{mount.place} ({mount.kind}): {mount.error}", mount.error, remedy=remedy)
    elif mount.unasked:
        yield unknown("stat or timeout is not there", "install coreutils", missing=True)
    elif not mount.answered or mount.stopped:
        yield unknown(f"{mount.place} ({mount.kind}) did not answer within 2 s", "look for a hanging disk or server")
    for what, percent, warning, critical in (
        ("space", mount.used_percent, limits.disk_warning_percent, limits.disk_critical_percent),
        ("inodes", mount.inodes_percent, limits.inodes_warning_percent, limits.inodes_critical_percent),
    ):
        status = judged(percent or 0, warning, critical)
        if percent is not None and status is not Health.OK and "ro" not in mount.options.split(","):
            text = f"{percent:.0f} % of {'the inodes of ' if what == 'inodes' else ''}{mount.place} is in use"
            limit = critical if status is Health.CRITICAL else warning
            remedy = f"free {what}: du -x --{'inodes' if what == 'inodes' else 'max-depth=1'} {mount.place}"
            yield Finding(status, text, round(percent, 1), limit, "%", remedy, Weight.NEVER)


PROBE = mounts_probe("disk", parse, "limits of our own: 90 % and 98 %, knowledge/limits.toml")
