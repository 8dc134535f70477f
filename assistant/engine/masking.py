"""Which names must not leave the site: those of all nodes, of the users with jobs, of this host and of who runs Nightshift."""

from __future__ import annotations

import getpass
import logging
import socket
from collections.abc import Callable
from datetime import datetime, timedelta

from assistant.config import Settings
from assistant.errors import Unavailable
from assistant.ports import Scheduler
from assistant.redact import Mask
from assistant.store import Store

__all__ = ["mask_for"]

logger = logging.getLogger(__name__)

AGAIN = timedelta(minutes=5)
"""How long a mask serves before the scheduler is asked for new names; hosts numbered like known ones are hidden anyway."""


def mask_for(settings: Settings, store: Store, scheduler: Scheduler | None = None) -> Callable[[], Mask] | None:
    """Return what gives the mask for the configured model; None where nothing leaves this machine, or the site wants none.

    Args:
        settings: Name the model.
        store: Keeps the key of stand-ins, and names of earlier incidents.
        scheduler: Knows the nodes and users; None: only what the store knows.
    """
    from assistant.llm.sse import is_here

    if not settings.model.url or not settings.model.mask or is_here(settings.model.url):
        return None
    made: list[tuple[datetime, Mask]] = []

    def mask() -> Mask:
        now = store.clock.now()
        if not made or now - made[-1][0] >= AGAIN:
            hosts, users = _names(store, scheduler)
            if made:
                made[-1][1].learn(hosts, users)
            made[:] = [(now, made[-1][1] if made else Mask(hosts, users, key=store.mask_key()))]
        return made[-1][1]

    return mask


def _names(store: Store, scheduler: Scheduler | None) -> tuple[list[str], list[str]]:
    hosts, users = store.known_names()
    hosts.append(socket.gethostname())
    try:
        users.append(getpass.getuser())
    except (KeyError, OSError):
        logger.debug("this user has no name")
    if scheduler is not None:
        try:
            hosts += [node.name for node in scheduler.nodes()]
            users += [job.user for job in scheduler.jobs() if job.user]
        except Unavailable as error:
            logger.warning("names of nodes and users that incidents did not name are not masked: %s", error)
    return hosts, users
