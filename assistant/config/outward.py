"""What the watch tells the world outside: notifications, metrics, a sign of life. All of it is off until a site names where to.

Addresses hold secrets (a Slack token, a mail password, the id of a heartbeat), so the settings name files that hold them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

__all__ = [
    "About",
    "AuditSettings",
    "HeartbeatSettings",
    "MetricsSettings",
    "NotifySettings",
    "Severity",
    "SinkSettings",
    "above",
    "one_of",
]


class Severity(StrEnum):
    """How much something matters, mildest first."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """Higher is worse."""
        return list(Severity).index(self)


class About(StrEnum):
    """What a notification is about."""

    OPENED = "opened"
    """An incident was opened."""
    RECOVERED = "recovered"
    ESCALATED = "escalated"
    """An incident needs a person."""
    APPROVAL = "approval"
    """A call waits for `nightshift approve`."""
    ACTION = "action"
    """Something was changed, or could not be."""
    OWNER = "owner"
    """The owner of a job must change something."""
    BREAKER = "breaker"
    KILL_SWITCH = "kill_switch"
    POLICY = "policy"
    """The policy cannot be read whole, so every change is refused; or it is whole again."""
    BLIND = "blind"
    """No pass of the watch saw everything for a while."""
    LEADER = "leader"
    """Another watch took over."""


@dataclass(frozen=True)
class SinkSettings:
    """One place that is told."""

    url_file: Path
    """File of Apprise URLs, one a line, readable by Nightshift alone: `slack://…`, `mailtos://…`, `pagerduty://…`, `jsons://…`."""
    severity: Severity = Severity.WARNING
    """The mildest that is told: `info`, `warning` or `critical`."""
    about: tuple[About, ...] = ()
    """Only these; none for all."""
    owners: tuple[str, ...] = ()
    """Globs of job owners. Such a sink gets what their owners must do and nothing else; `{owner}` in a URL is the owner's name."""
    mask: bool = False
    """Whether host and user names are replaced by stand-ins, because the service is not the site's own."""

    def covers(self, owner: str) -> bool:
        """Tell whether it is for an owner."""
        from fnmatch import fnmatchcase

        return any(fnmatchcase(owner, pattern) for pattern in self.owners)


@dataclass(frozen=True)
class NotifySettings:
    """Who is told of what the watch does."""

    sinks: Mapping[str, SinkSettings] = field(default_factory=dict)
    """Places by name: `[notify.sinks.oncall]` with `url_file`, and `severity`, `about`, `owners`, `mask` where wanted."""
    cluster: str = ""
    """Name in front of each message; default: this host's name."""
    cooldown_min: float = 60.0
    """Minutes for which the same thing is told only once."""
    group_s: float = 15.0
    """Seconds to wait for more to tell, so that a storm becomes one message."""
    group_over: int = 3
    """Of more than so many at once one message is made."""
    timeout_s: float = 10.0
    """Seconds that a service may take; then it is tried again, ever later, up to every 15 minutes."""
    blind_min: float = 10.0
    """Minutes without a pass that saw everything, after which that is told."""

    def __post_init__(self) -> None:
        above("notify.cooldown_min", self.cooldown_min, -1)
        above("notify.group_s", self.group_s, -1)
        above("notify.group_over", self.group_over, 0)
        above("notify.timeout_s", self.timeout_s, 0)
        above("notify.blind_min", self.blind_min, 0)


@dataclass(frozen=True)
class AuditSettings:
    """Where the head of the audit goes, so that a rewritten or older store shows."""

    anchor: tuple[str, ...] = ()
    """Places: `syslog` (journald takes it, too), `file:/PATH`, `ssh:HOST:/PATH`, `sink:NAME` of [notify.sinks]."""
    anchor_every_min: float = 10.0
    """Minutes between two heads while the audit grows; after a change of the cluster one goes out with the next pass."""

    def __post_init__(self) -> None:
        above("audit.anchor_every_min", self.anchor_every_min, 0)
        for place in self.anchor:
            kind, _, target = place.partition(":")
            host, _, path = target.partition(":")
            right = {
                "syslog": place == "syslog",
                "file": target.startswith("/"),
                "ssh": host and path.startswith("/"),
                "sink": target,
            }
            if not right.get(kind):
                raise ValueError(f"audit.anchor: wanted syslog, file:/PATH, ssh:HOST:/PATH or sink:NAME, found {place!r}")


@dataclass(frozen=True)
class MetricsSettings:
    """Figures for Prometheus."""

    textfile: Path | None = None
    """File for node_exporter's textfile collector, such as /var/lib/prometheus/node-exporter/nightshift.prom."""
    listen: str = ""
    """Address of an own /metrics, such as 127.0.0.1:9469; it knows no passwords, so keep it on this host."""

    def __post_init__(self) -> None:
        host, colon, port = self.listen.rpartition(":")
        if self.listen and not (host and colon and port.isdecimal() and int(port) < 65536):
            raise ValueError(f"metrics.listen: must be an address and a port such as 127.0.0.1:9469, not {self.listen!r}")


@dataclass(frozen=True)
class HeartbeatSettings:
    """A sign of life for a service that raises the alarm when it stops."""

    url_file: Path | None = None
    """File that holds the URL alone; it is asked for after each pass that saw everything."""
    method: str = "GET"
    """How it is asked for: GET or POST."""
    timeout_s: float = 5.0
    """Seconds that the service may take."""

    def __post_init__(self) -> None:
        one_of("heartbeat.method", self.method, ("GET", "POST"))
        above("heartbeat.timeout_s", self.timeout_s, 0)


# What values of settings are held against; a message begins with the setting's key, to which the loader adds file and line.


def above(key: str, value: float, limit: float) -> None:
    """Refuse a number that is not above a limit.

    Raises:
        ValueError: It is not, or is NaN.
    """
    # turned round, so that NaN is refused too
    if not value > limit:
        raise ValueError(f"{key}: must be above {limit:g}, not {value:g}")


def one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a word that is not known.

    Raises:
        ValueError: It is not; the message has the nearest one.
    """
    import difflib

    if value not in allowed:
        near = difflib.get_close_matches(value, allowed, n=1)
        hint = f" did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{key}: {value!r} is unknown;{hint} known: {', '.join(allowed)}")
