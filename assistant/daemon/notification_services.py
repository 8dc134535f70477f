"""Hand notices to services (Slack, mail, PagerDuty, a webhook, a hundred more) through Apprise, with deadlines.

Apprise is imported only where a sink is configured.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from assistant.config.outward import Severity
from assistant.content.trusted import read_trusted
from assistant.daemon.notifications import Notice
from assistant.display import notice_line
from assistant.errors import ConfigError, ContentError, Unavailable
from assistant.redact import Mask, redact

logger = logging.getLogger(__name__)

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
