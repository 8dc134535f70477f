"""Report each pass to all that hear of it: the store, systemd, metrics, notifications, a heartbeat URL.

What the store keeps of a pass: its row for `nightshift status`, the counts, and the conditions that people hear of.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from assistant import __version__
from assistant.config import Settings
from assistant.content.reasons import reasons
from assistant.daemon.delivery import services_of, urls_of
from assistant.daemon.journal import Systemd
from assistant.daemon.pass_result import PassListener, PassResult
from assistant.engine.ownership import owner_name
from assistant.errors import ConfigError, StoreError
from assistant.gate.stops import stopped_by
from assistant.policy import PolicyInForce, PolicyStanding
from assistant.records import EventKind, IncidentState
from assistant.store import AuditRow, Count, Store

logger = logging.getLogger(__name__)

STANDBY_EVERY = timedelta(seconds=15)
"""How often a watch that stands by writes that it does."""


@dataclass
class PassRecorder:
    """Writes each pass down; what cannot be written is logged, and the pass counts all the same."""

    store: Store
    owner: str
    reasons: Callable[[], frozenset[str]]
    """Names of the reasons there are."""
    stopped_by: Callable[[], str | None] = lambda: None
    """Tells which kill switch is set."""
    blind_after: timedelta = timedelta(minutes=10)
    policy: Callable[[], PolicyStanding] | None = None
    """Tells which policy the gate of this process holds."""
    _digest: str | None = field(default=None, init=False)
    """Of the policy in the pass before; None before the first."""
    _whole_at: datetime | None = field(default=None, init=False)
    """When this watch last saw everything, or before that any other; when it began to lead, if none ever did."""
    _stood_by_at: datetime | None = field(default=None, init=False)

    def report(self, pass_result: PassResult) -> None:
        """Write the result of a pass into the store."""
        try:
            if not pass_result.leads:
                self._stands_by(pass_result)
            else:
                self._led(pass_result)
        except StoreError as error:
            logger.warning("the pass was not written down: %s", error)

    def close(self) -> None:
        """Do nothing: the recorder keeps nothing open."""

    def _stands_by(self, pass_result: PassResult) -> None:
        self._whole_at = None
        if self._stood_by_at is None or pass_result.at - self._stood_by_at >= STANDBY_EVERY:
            self._keep(pass_result)
            self._stood_by_at = pass_result.at

    def _led(self, pass_result: PassResult) -> None:
        self._stood_by_at = None
        result = Count("passes", (("result", "degraded" if pass_result.troubles else "whole"),))
        with self.store.transaction():
            if self._digest is None:
                # over a restart: what the watch that led last held
                self._digest = next((watch.policy for watch in self.store.watches() if watch.leads), None)
            self._keep(pass_result)
            self.store.add_counts({result: 1, **observed("pass_seconds", pass_result.seconds, PASS_BUCKETS)})
            self._note_blindness(pass_result)
            self._note_kill_switch()
            self._note_policy()
        catch_up(self.store, self.reasons())

    def _keep(self, pass_result: PassResult) -> None:
        in_force = self.policy() if self.policy is not None else None
        self.store.keep_pass(
            self.owner,
            at=pass_result.at,
            seconds=pass_result.seconds,
            leads=pass_result.leads,
            whole=pass_result.whole,
            trouble=pass_result.troubles,
            unfinished=pass_result.unfinished,
            in_flight=pass_result.in_flight,
            policy=in_force.digest if in_force is not None else "",
            mode=in_force.mode if in_force is not None else "",
            policy_problem=in_force.problem if in_force is not None else "",
            kill_switch=[str(path) for path in in_force.policy.kill_switch] if in_force is not None else (),
        )

    def _note_blindness(self, pass_result: PassResult) -> None:
        if pass_result.whole:
            self._whole_at = pass_result.at
        elif self._whole_at is None:
            whole_passes = [watch.whole_at for watch in self.store.watches() if watch.whole_at is not None]
            self._whole_at = max(whole_passes, default=pass_result.at)
        if pass_result.whole:
            self.store.set_flag("blind", False, why="a pass saw everything again", by=self.owner)
        elif pass_result.at - self._whole_at >= self.blind_after:
            since = f"{self._whole_at:%Y-%m-%dT%H:%M:%SZ}"
            why = f"no pass saw everything since {since}: {'; '.join(pass_result.trouble[:3])}"
            self.store.set_flag("blind", True, why=why, by=self.owner)

    def _note_kill_switch(self) -> None:
        switch = self.stopped_by()
        why = f"{switch} is set: nothing is changed until it is removed" if switch else "it was removed: changes are made again"
        self.store.set_flag("kill_switch", switch is not None, why=why, by=self.owner)

    def _note_policy(self) -> None:
        if self.policy is None:
            return
        in_force = self.policy()
        why = f"every change is refused: {in_force.problem}" if in_force.problem else f"it is whole, mode {in_force.mode}"
        self.store.set_flag("policy", bool(in_force.problem), why=why, by=self.owner)
        if self._digest is not None and self._digest != in_force.digest:
            detail = {"policy": in_force.digest, "before": self._digest}
            self.store.record("policy.changed", by=self.owner, why=f"mode {in_force.mode}", detail=detail)
        self._digest = in_force.digest


# Count what the audit tells: incidents, actions, approvals, how long recoveries took.
#
# The counts live in the store, so no restart and no change of hands sets one back.

READER = "tally"
"""Name of the cursor."""
PAGE = 2_000
PAGES = 10
"""Of the audit in one pass: what is left is counted by the next."""
PASS_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
RECOVERY_BUCKETS = (60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 14400.0, 43200.0, 86400.0)
OTHER_REASON = "other"
"""In place of a reason that the content does not know any more, so that the number of series is bounded."""


def catch_up(store: Store, reasons: Iterable[str]) -> None:
    """Count the rows of the audit that are new since the last time, whoever counted them then.

    Raises:
        StoreError: It cannot be read or written.
    """
    known_reasons = frozenset(reasons)
    for _ in range(PAGES):
        with store.transaction():
            rows = store.audit_after(store.cursor(READER) or 0, PAGE)
            if not rows:
                return
            store.add_counts(_counted(rows, store, known_reasons))
            store.move_cursor(READER, rows[-1].id)


def observed(name: str, value: float, buckets: Sequence[float]) -> dict[Count, float]:
    """Return what an observation adds to a histogram: one to each bucket that it fits into, and its value to the sum."""
    bounds = [f"{bound:g}" for bound in buckets if value <= bound] + ["+Inf"]
    return {**{Count(f"{name}_bucket", (("le", bound),)): 1 for bound in bounds}, Count(f"{name}_sum"): value}


def _counted(rows: Sequence[AuditRow], store: Store, reasons: frozenset[str]) -> dict[Count, float]:
    counts: dict[Count, float] = defaultdict(float)
    kinds = store.kinds_of([row.call for row in rows if row.call is not None])
    for row in rows:
        if row.what == "incident.opened":
            counts[Count("incidents_opened", (("kind", _kind(row)),))] += 1
        elif row.what == "diagnosis" and row.incident is not None and store.is_first(row):
            counts[Count("incidents", (("by", row.by), ("reason", _reason_label(row.outcome, reasons))))] += 1
        elif row.what == "incident.state" and _ends(row):
            _count_end(row, store, reasons, counts)
        elif row.what == "approval.answered":
            counts[Count("approvals", (("answer", row.outcome),))] += 1
        elif row.call is not None and kinds.get(row.call, "read") != "read" and (outcome := _outcome(row)):
            counts[Count("actions", (("kind", kinds[row.call]), ("outcome", outcome)))] += 1
    return counts


def _kind(row: AuditRow) -> str:
    word = row.why.partition(":")[0]
    return word if word in tuple(EventKind) else OTHER_REASON


def _reason_label(reason: str, reasons: frozenset[str]) -> str:
    return reason if reason in reasons else OTHER_REASON


def _ends(row: AuditRow) -> bool:
    before = str(row.detail.get("from", ""))
    return IncidentState(row.outcome).ended and not (before in tuple(IncidentState) and IncidentState(before).ended)


def _count_end(row: AuditRow, store: Store, reasons: frozenset[str], counts: dict[Count, float]) -> None:
    incident = store.incident(row.incident or 0)
    diagnosis = store.diagnosis(incident.id)
    reason = _reason_label(diagnosis.reason, reasons) if diagnosis is not None else "none"
    counts[Count("incidents_ended", (("reason", reason), ("state", row.outcome)))] += 1
    if row.outcome == IncidentState.RECOVERED:
        seconds = max((row.at - (incident.failed_at or incident.opened)).total_seconds(), 0.0)
        for count, value in observed("recovery_seconds", seconds, RECOVERY_BUCKETS).items():
            counts[count] += value


def _outcome(row: AuditRow) -> str:
    if row.what == "outcome":
        return "done" if row.outcome == "ok" else "failed"
    return {"call.denied": "denied", "call.undone": "undone", "approval.asked": "asked"}.get(row.what, "")


def pass_listeners(
    settings: Settings, store: Store, *, owner: str = "", in_force: PolicyInForce | None = None
) -> list[PassListener]:
    """Return what is told of each pass, in this order: what is kept, then what goes out, last the sign of life for systemd.

    Args:
        settings: Of the site; what they do not name is not made, and its library not imported.
        store: Where passes, counts and notices are kept.
        owner: Name of this watch, as it leads; that of this process when empty.
        in_force: What its gate holds; default: the policy of the settings' site.

    Raises:
        ConfigError: A file of URLs cannot be read, everybody may read it, or a URL is wrong.
    """
    site, in_force = settings.content, in_force or PolicyInForce(settings.content, record=store)
    listeners: list[PassListener] = [
        PassRecorder(
            store,
            owner or owner_name("watch"),
            lambda: frozenset(reasons(site)),
            lambda: stopped_by(in_force.policy.kill_switch),
            timedelta(minutes=settings.notify.blind_min),
            in_force.look,
        )
    ]
    # a new place begins with what happens after this moment, so places come before the first pass
    listeners += _notifier(settings, store)
    listeners += _metrics(settings, store, in_force)
    if settings.audit.anchor:
        from assistant.daemon.audit_anchors import AuditAnchors

        listeners.append(AuditAnchors(settings, store))
    listeners += _heartbeat(settings)
    if os.environ.get("NOTIFY_SOCKET"):
        listeners.append(Systemd())
    return listeners


def _notifier(settings: Settings, store: Store) -> list[PassListener]:
    terms = settings.notify
    if not terms.sinks:
        return []
    from assistant.daemon.delivery import DeliveryWorker, Notifier, masked
    from assistant.redact import Mask

    def mask() -> Mask:
        hosts, users = store.known_names()
        return Mask([*hosts, socket.gethostname()], users, key=store.mask_key())

    delivery_workers = []
    for name, services in services_of(settings).items():
        send = masked(services.send, mask) if terms.sinks[name].mask else services.send
        delivery_worker = DeliveryWorker(name, terms.sinks[name], terms, store, send)
        delivery_worker.begin()
        delivery_workers.append(delivery_worker)
    return [Notifier(delivery_workers)]


def _metrics(settings: Settings, store: Store, in_force: PolicyInForce) -> list[PassListener]:
    metric_settings = settings.metrics
    if metric_settings.textfile is None and not metric_settings.listen:
        return []
    from assistant.daemon.metrics import MetricsServer, WatchStanding

    def standing() -> WatchStanding:
        policy = in_force.look()
        switch, sinks = stopped_by(policy.policy.kill_switch), tuple(settings.notify.sinks)
        return WatchStanding(__version__, policy.mode, switch, sinks, policy.digest)

    return [MetricsServer(store, standing, metric_settings.textfile, metric_settings.listen)]


def _heartbeat(settings: Settings) -> list[PassListener]:
    heartbeat_settings = settings.heartbeat
    if heartbeat_settings.url_file is None:
        return []
    from assistant.daemon.journal import HeartbeatSender

    urls = urls_of(heartbeat_settings.url_file, "heartbeat.url_file")
    if len(urls) != 1 or not urls[0].startswith(("http://", "https://")):
        raise ConfigError(
            f"heartbeat.url_file: {heartbeat_settings.url_file} must hold one URL that begins with http:// or https://"
        )
    return [HeartbeatSender(urls[0], heartbeat_settings.method, heartbeat_settings.timeout_s)]
