"""Who holds an incident: a name that says which process, so that the lease of a process that died can be taken at once."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assistant.store import Store


def owner_name(door: str) -> str:
    """Return the name under which this process holds incidents: `watch@login1:4821.1029384`.

    Args:
        door: Which door, with the person where there is one: `cli:alice`.
    """
    return f"{door}@{socket.gethostname()}:{os.getpid()}.{_started(os.getpid())}"


def is_gone(owner: str) -> bool:
    """Tell whether the process of an owner has surely ended: it ran on this host and its process is no more.

    False for any other host and for names of another form: only their lease's end frees what they hold.
    """
    _, at, place = owner.rpartition("@")
    host, colon, process = place.rpartition(":")
    pid, dot, started = process.partition(".")
    if not (at and colon and dot and pid.isdigit() and host == socket.gethostname()):
        return False
    return _started(int(pid)) != started


def _started(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot, empty when there is none of that id."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return ""
    # the second field, the command in parentheses, may hold blanks
    return text.rpartition(")")[2].split()[19]


@contextmanager
def kept_lease(store: Store, incident_id: int, owner: str, seconds: float) -> Iterator[bool]:
    """Hold an incident while the block runs, renewed in the background; False when somebody else holds it.

    The lease of a process of this host that has died is taken over.
    """
    if not _claimed(store, incident_id, owner, seconds):
        yield False
        return
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(seconds / 3):
            store.renew(incident_id, owner, seconds)

    keeper = threading.Thread(target=renew, name=f"lease-{incident_id}", daemon=True)
    keeper.start()
    try:
        yield True
    finally:
        ended.set()
        keeper.join()
        store.release(incident_id, owner)


def _claimed(store: Store, incident_id: int, owner: str, seconds: float) -> bool:
    if store.claim(incident_id, owner, seconds):
        return True
    holder = store.incident(incident_id).owner
    if holder is None or not is_gone(holder):
        return False
    return store.claim(incident_id, owner, seconds, gone=holder)
