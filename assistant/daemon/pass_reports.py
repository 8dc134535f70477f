"""Make, from the settings, everything that is told of each pass: the store, systemd, metrics, notifications, a heartbeat URL."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import TYPE_CHECKING

from assistant import __version__
from assistant.config import Settings
from assistant.content.reasons import reasons
from assistant.daemon.heartbeat import Systemd
from assistant.daemon.notification_services import urls_of
from assistant.daemon.pass_records import PassRecorder
from assistant.daemon.pass_result import PassListener
from assistant.engine.lease import owner_name
from assistant.errors import ConfigError
from assistant.gate.stops import stopped_by
from assistant.policy import PolicyInForce
from assistant.store import Store

if TYPE_CHECKING:
    from assistant.daemon.notification_services import Services

__all__ = ["beats_of", "services_of"]


def beats_of(settings: Settings, store: Store, *, owner: str = "", in_force: PolicyInForce | None = None) -> list[PassListener]:
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
    beats: list[PassListener] = [
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
    beats += _notifier(settings, store)
    beats += _metrics(settings, store, in_force)
    if settings.audit.anchor:
        from assistant.daemon.audit_anchors import AuditAnchors

        beats.append(AuditAnchors(settings, store))
    beats += _heartbeat(settings)
    if os.environ.get("NOTIFY_SOCKET"):
        beats.append(Systemd())
    return beats


def services_of(settings: Settings) -> dict[str, Services]:
    """Return what hands notices to each sink, by its name; their URLs are checked, nothing is sent.

    Raises:
        ConfigError: A file of URLs cannot be read, everybody may read it, or a URL is wrong.
    """
    from assistant.daemon.notification_services import Services

    terms, by_name = settings.notify, {}
    for name, sink in terms.sinks.items():
        cluster = terms.cluster or ("" if sink.mask else socket.gethostname())
        urls = urls_of(sink.url_file, f"notify.sinks.{name}.url_file")
        by_name[name] = Services(name, urls, cluster=cluster, timeout_s=terms.timeout_s)
    return by_name


def _notifier(settings: Settings, store: Store) -> list[PassListener]:
    terms = settings.notify
    if not terms.sinks:
        return []
    from assistant.daemon.delivery import Courier, Notifier
    from assistant.daemon.notification_services import masked
    from assistant.redact import Mask

    def mask() -> Mask:
        hosts, users = store.known_names()
        return Mask([*hosts, socket.gethostname()], users, key=store.mask_key())

    couriers = []
    for name, services in services_of(settings).items():
        send = masked(services.send, mask) if terms.sinks[name].mask else services.send
        courier = Courier(name, terms.sinks[name], terms, store, send)
        courier.begin()
        couriers.append(courier)
    return [Notifier(couriers)]


def _metrics(settings: Settings, store: Store, in_force: PolicyInForce) -> list[PassListener]:
    metric_settings = settings.metrics
    if metric_settings.textfile is None and not metric_settings.listen:
        return []
    from assistant.daemon.figures import WatchStanding
    from assistant.daemon.metrics import MetricsServer

    def standing() -> WatchStanding:
        policy = in_force.look()
        switch, sinks = stopped_by(policy.policy.kill_switch), tuple(settings.notify.sinks)
        return WatchStanding(__version__, policy.mode, switch, sinks, policy.digest)

    return [MetricsServer(store, standing, metric_settings.textfile, metric_settings.listen)]


def _heartbeat(settings: Settings) -> list[PassListener]:
    heartbeat_settings = settings.heartbeat
    if heartbeat_settings.url_file is None:
        return []
    from assistant.daemon.heartbeat import HeartbeatSender

    urls = urls_of(heartbeat_settings.url_file, "heartbeat.url_file")
    if len(urls) != 1 or not urls[0].startswith(("http://", "https://")):
        raise ConfigError(
            f"heartbeat.url_file: {heartbeat_settings.url_file} must hold one URL that begins with http:// or https://"
        )
    return [HeartbeatSender(urls[0], heartbeat_settings.method, heartbeat_settings.timeout_s)]
