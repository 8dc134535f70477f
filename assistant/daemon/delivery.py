"""Bring notices to the places that are told: each at least once, in order, by a cursor over the audit in the store.

Each place has a thread of its own. What a place was told lately is held back and counted; many at once become one message; a place
that does not answer is tried again, ever later, and holds up neither the watch nor the other places. Services (Slack, mail,
PagerDuty, a webhook, a hundred more) are reached through Apprise, with deadlines; it is imported only where a sink is configured.
"""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from assistant.config.settings import About, NotifySettings, Settings, Severity, SinkSettings
from assistant.content.reading import read_trusted
from assistant.daemon.notifications import MOST_OPEN, Notice, grouped, notices, superseded
from assistant.daemon.pass_result import PassResult
from assistant.display import notice_line
from assistant.engine.intake import chain_of
from assistant.errors import ConfigError, ContentError, Fenced, NightshiftError, Unavailable
from assistant.records import EventKind, Incident, IncidentState
from assistant.redact import Mask, redact
from assistant.store import AuditRow, Count, Store
from assistant.store.watches import cursor_of
from assistant.watch.outages import FEWEST_JOBS, SETTLING, shared_by

logger = logging.getLogger(__name__)

PAGE = 5_000
"""Rows of the audit that are looked through at once."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 900.0
LOOK_S = 1.0
UNDECIDED_FOR = timedelta(seconds=90)
"""After so long an incident is told of alone, whatever it may share with others."""
UNDECIDED = (IncidentState.OPEN, IncidentState.DIAGNOSED, IncidentState.RECOVERING, IncidentState.VERIFYING)
"""States of an incident of which more is about to be known."""
CONTINUED_REASONS = frozenset({"time_limit", "preempted", "cancelled"})
"""Ends after which a run often goes on by itself: as the next job of a chain, or queued again by Slurm."""
CONTINUES_WITHIN = timedelta(seconds=20)
"""For so long such an end is not told of: what is told then says whether the run goes on."""

Send = Callable[[Notice], None]
"""Hands one notice to a service; raises `Unavailable` when it was not taken."""


def undecided(row: AuditRow, store: Store) -> bool:
    """Tell whether more of what a row tells is about to be known.

    It opened an incident that is being diagnosed, or may still turn out to be one of many of the same cause; or it ended one of a
    chain in which nothing is decided yet about a restart that failed, or about the incident whose restart its job was.
    """
    if row.incident is None or store.clock.now() - row.at > UNDECIDED_FOR:
        return False
    if row.what == "incident.state" and row.outcome == IncidentState.ESCALATED:
        return any(neighbour.state in UNDECIDED for neighbour in chain_of(store.incident(row.incident), store))
    if row.what != "incident.opened":
        return False
    incident = store.incident(row.incident)
    is_unread = incident.job is not None and store.diagnosis(incident.id) is None
    if incident.state is IncidentState.OPEN and (incident.owner is not None or is_unread):
        return True  # whoever is told now would read no more than that it is not diagnosed yet
    if incident.kind is not EventKind.JOB_ENDED or shared_by(store.events(incident.id)) is not None:
        return False
    if incident.state is IncidentState.DIAGNOSED:
        return SETTLING in store.stages(incident.id) or _may_continue(row, incident, store)
    if incident.state is not IncidentState.OPEN or store.open_states().get(IncidentState.OPEN, 0) < FEWEST_JOBS:
        return False
    # while somebody works through a storm, what shares a cause is not known yet
    return any(incident_open.owner is not None for incident_open in store.incidents(open_only=True, limit=MOST_OPEN))


def _may_continue(row: AuditRow, incident: Incident, store: Store) -> bool:
    """Tell whether a run may be going on by itself after an end of its kind, which a moment shows."""
    diagnosis = store.diagnosis(incident.id)
    is_continued = diagnosis is not None and diagnosis.reason in CONTINUED_REASONS
    return is_continued and store.clock.now() - row.at < CONTINUES_WITHIN


@dataclass
class DeliveryWorker:
    """Brings the notices of the audit to one sink."""

    name: str
    sink: SinkSettings
    terms: NotifySettings
    store: Store
    send: Send
    failures: int = 0
    """How often it failed in a row."""

    def begin(self) -> None:
        """Begin with what happens from now on, where the place was never told anything: history is no news."""
        if self.store.cursor(cursor_of(self.name)) is None:
            self.store.move_cursor(cursor_of(self.name), self.store.newest_row())

    def deliver(self, *, at_once: bool = False) -> bool:
        """Tell what is new; False while more is waited for, so that a storm becomes one message.

        Args:
            at_once: Wait for nothing.

        Raises:
            Unavailable: The service did not take it; what was sent before it is noted.
            StoreError: The store cannot be read or written; what was sent may be sent again.
        """
        self.begin()
        rows = self.store.audit_after(self.store.cursor(cursor_of(self.name)) or 0, PAGE)
        waiting = next((number for number, row in enumerate(rows) if undecided(row, self.store)), None) if not at_once else None
        rows = rows[:waiting]
        if not rows:
            return waiting is None
        now = self.store.clock.now()
        wanted_notices = [notice for notice in superseded(list(notices(rows, self.store))) if self._wants(notice)]
        if wanted_notices and not at_once:
            first = next(row.at for row in rows if row.id >= wanted_notices[0].row)
            if now - first < timedelta(seconds=self.terms.group_s):
                return False
        fresh, suppressed = self._fresh(wanted_notices)
        messages = list(self._messages(fresh))
        with self.store.transaction():
            pass  # a watch that slept and was fenced off ends here, before it repeats what another has said
        for number, (message, parts) in enumerate(messages, 1):
            self.send(message)
            self._note(
                parts, suppressed if number == len(messages) else (), rows[-1].id if number == len(messages) else parts[-1].row
            )
        if not messages:
            self._note((), suppressed, rows[-1].id)
        return True

    def _note(self, delivered: Sequence[Notice], suppressed: Sequence[str], row: int) -> None:
        counts = {"sent": int(bool(delivered)), "held": len(suppressed)}
        more = {self._count(outcome): many for outcome, many in counts.items() if many}
        now = self.store.clock.now()
        self.store.keep_tellings(self.name, {notice.fingerprint: now for notice in delivered}, suppressed, row, more)

    def _count(self, outcome: str) -> Count:
        return Count("notices", (("outcome", outcome), ("sink", self.name)))

    def _wants(self, notice: Notice) -> bool:
        if notice.severity.rank < self.sink.severity.rank or (self.sink.about and notice.about not in self.sink.about):
            return False
        if self.sink.owners:
            return notice.about is About.OWNER and self.sink.covers(notice.owner)
        return notice.about is not About.OWNER or About.OWNER in self.sink.about

    def _fresh(self, notices_due: Sequence[Notice]) -> tuple[list[Notice], list[str]]:
        """Return what is to be told, and the fingerprints of what was told lately or stands twice among these."""
        now, cooldown = self.store.clock.now(), timedelta(minutes=self.terms.cooldown_min)
        deliveries = self.store.tellings(self.name, [notice.fingerprint for notice in notices_due])
        fresh: list[Notice] = []
        suppressed: list[str] = []
        fingerprints: set[str] = set()
        for notice in notices_due:
            last = deliveries.get(notice.fingerprint)
            if notice.fingerprint in fingerprints or (last is not None and now - last.at < cooldown):
                suppressed.append(notice.fingerprint)
                continue
            fingerprints.add(notice.fingerprint)
            repetition = (
                f"\nheld back since {last.at:%H:%M}: {last.suppressed} of the same" if last is not None and last.suppressed else ""
            )
            fresh.append(replace(notice, text=notice.text + repetition))
        return fresh, suppressed

    def _messages(self, fresh: Sequence[Notice]) -> Iterator[tuple[Notice, Sequence[Notice]]]:
        """Yield each message and what it tells, in order: runs of what goes to the same owner, or to the operators."""
        for owner, run in groupby(fresh, key=lambda notice: notice.owner):
            batch = list(run)
            if len(batch) > self.terms.group_over:
                yield replace(grouped(batch, batch[-1].row), owner=owner), batch
            else:
                yield from ((notice, [notice]) for notice in batch)

    def attempt(self, *, at_once: bool = False) -> float:
        """Deliver, and return after how many seconds to look again."""
        try:
            is_done = self.deliver(at_once=at_once)
        except Fenced:
            return LOOK_S
        except (NightshiftError, OSError) as error:
            return self._failed(error)
        self.failures = 0
        return LOOK_S * 5 if is_done else LOOK_S

    def _failed(self, error: Exception) -> float:
        self.failures += 1
        pause = min(FIRST_PAUSE_S * 2.0 ** (self.failures - 1), LONGEST_PAUSE_S)
        logger.warning("notify=%s failed, %d in a row, again in %.0f s: %s", self.name, self.failures, pause, error)
        if isinstance(error, Unavailable):
            try:
                self.store.add_counts({self._count("failed"): 1})
            except NightshiftError as lost:
                logger.warning("notify=%s its failure was not counted: %s", self.name, lost)
        return pause


@dataclass
class Notifier:
    """Lets each delivery worker run on a thread of its own while this watch leads."""

    delivery_workers: Sequence[DeliveryWorker]
    _leads: bool = field(default=False, init=False)
    _closing: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._wakers = [threading.Event() for _ in self.delivery_workers]
        self._threads = [
            threading.Thread(target=self._work, args=pair, name=f"notify-{pair[0].name}", daemon=True)
            for pair in zip(self.delivery_workers, self._wakers, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def report(self, pass_result: PassResult) -> None:
        """Wake the delivery workers; never wait for them."""
        self._leads = pass_result.leads
        for waker in self._wakers:
            waker.set()

    def close(self) -> None:
        """Send what waits to be grouped, and wait for it as long as a service may take; the rest is told after the next start."""
        self._closing = True
        for waker in self._wakers:
            waker.set()
        until = time.monotonic() + max((delivery_worker.terms.timeout_s for delivery_worker in self.delivery_workers), default=0.0)
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0.0))

    def _work(self, delivery_worker: DeliveryWorker, waker: threading.Event) -> None:
        pause, next_at = LOOK_S, 0.0
        while True:
            waker.wait(pause)
            waker.clear()
            closing = self._closing
            if self._leads and (closing or time.monotonic() >= next_at):
                try:
                    pause = delivery_worker.attempt(at_once=closing)
                except Exception:
                    logger.exception("notify=%s stumbled", delivery_worker.name)
                    pause = LONGEST_PAUSE_S
                next_at = time.monotonic() + pause if delivery_worker.failures else 0.0
            if closing:
                return


_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""What may stand in a URL in the place of `{owner}`; the name comes from a user's own script."""
_TYPES = {Severity.INFO: "info", Severity.WARNING: "warning", Severity.CRITICAL: "failure"}


class Services:
    """All URLs of one sink."""

    def __init__(self, name: str, urls: Sequence[str], *, cluster: str, timeout_s: float) -> None:
        """Check the URLs.

        Args:
            name: Of the sink, for messages.
            urls: Apprise URLs; `{owner}` in them is replaced when something is sent.
            cluster: What messages begin with.
            timeout_s: For connecting, and for each answer.

        Raises:
            ConfigError: One is no URL that Apprise knows.
        """
        self._name, self._urls, self._cluster, self._timeout_s = name, tuple(urls), cluster, timeout_s
        for number, url in enumerate(urls, 1):
            if not self._opened([url.replace("{owner}", "somebody")]):
                kind = url.partition(":")[0]
                raise ConfigError(
                    f"notify.sinks.{name}: URL {number} ({kind}://…) is none that Apprise takes; see https://appriseit.com/services/"
                )

    def send(self, notice: Notice) -> None:
        """Hand a notice to every URL.

        Raises:
            Unavailable: One of them did not take it; the others may have.
        """
        urls = [url for url in (_addressed(url, notice.owner) for url in self._urls) if url]
        if not urls:
            logger.warning("notify=%s the name of owner %r is none that may stand in a URL", self._name, notice.owner)
            return
        services = self._opened(urls)
        body = f"{notice.text}\nid: {notice_line(notice.fingerprint)}"
        title = f"[{self._cluster}] {notice.title}" if self._cluster else notice.title
        if not services.notify(title=title, body=redact(body), notify_type=_TYPES[notice.severity], body_format="text"):
            raise Unavailable(f"notify.sinks.{self._name}: the service did not take {notice.title!r}")

    def _opened(self, urls: Sequence[str]) -> Any:
        with warnings.catch_warnings():
            # Apprise imports modules of Python that are on their way out
            warnings.simplefilter("ignore", DeprecationWarning)
            import apprise

            services = apprise.Apprise()
            services.add(list(urls))
        # it logs to nobody's handlers, and Python would print that to stderr
        quiet = logging.getLogger("apprise")
        if not quiet.handlers:
            quiet.addHandler(logging.NullHandler())
            quiet.propagate = False
        for service in services:
            service.socket_connect_timeout = service.socket_read_timeout = self._timeout_s
        return services


def masked(send: Callable[[Notice], None], mask: Callable[[], Mask]) -> Callable[[Notice], None]:
    """Return a sender that replaces the names of hosts and users by stand-ins."""

    def send_masked(notice: Notice) -> None:
        names = mask()
        names.learn(users=[notice.owner] if notice.owner else [])
        hidden_notice = replace(
            notice, title=names.hide(notice.title), text=names.hide(notice.text), fingerprint=names.hide(notice.fingerprint)
        )
        send(hidden_notice)

    return send_masked


def _addressed(url: str, owner: str) -> str:
    if "{owner}" not in url:
        return url
    return url.replace("{owner}", quote(owner, safe="")) if _OWNER.fullmatch(owner) else ""


# Read files that hold addresses: their URLs carry passwords and tokens, so nobody else may read them.


def urls_of(path: Path, setting: str) -> list[str]:
    """Return the URLs of a file, one a line; empty lines and those that begin with `#` are left out.

    Args:
        path: The file.
        setting: Its key, for messages.

    Raises:
        ConfigError: It cannot be read, everybody may read it, or it holds none.
    """
    try:
        if path.stat().st_mode & 0o007:
            raise ConfigError(f"{setting}: {path} can be read by everybody, and holds secrets; chmod 600 {path}")
        # who may write it chooses where everything is sent
        lines = read_trusted(path).decode("utf-8").splitlines()
    except ContentError as error:
        raise ConfigError(f"{setting}: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{setting}: {path} cannot be read: {error}") from error
    urls = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not urls:
        raise ConfigError(f"{setting}: {path} holds no URL; write one a line")
    return urls


def services_of(settings: Settings) -> dict[str, Services]:
    """Return what hands notices to each sink, by its name; their URLs are checked, nothing is sent.

    Raises:
        ConfigError: A file of URLs cannot be read, everybody may read it, or a URL is wrong.
    """
    terms, by_name = settings.notify, {}
    for name, sink in terms.sinks.items():
        cluster = terms.cluster or ("" if sink.mask else socket.gethostname())
        urls = urls_of(sink.url_file, f"notify.sinks.{name}.url_file")
        by_name[name] = Services(name, urls, cluster=cluster, timeout_s=terms.timeout_s)
    return by_name
