"""A watch as a process of its own that stops itself with SIGSTOP right before one of its changes: run by test_two_watches.py.

python -m tests.scenarios.sleeper FOLDER [CHANGE]     the first is 1
"""

from __future__ import annotations

import dataclasses
import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection

from assistant.content.faults import find_fault
from assistant.daemon.loop import Watchdog
from assistant.demo.job import arm, demo_job
from assistant.demo.rehearsal import demo_settings
from assistant.engine.ownership import owner_name
from assistant.policy import Mode, load_policy
from assistant.ports import SystemClock
from assistant.schedulers import local_jobs
from assistant.schedulers.local import LocalScheduler
from assistant.schedulers.local_jobs import locked
from assistant.store import Store
from assistant.wiring import build, local_folder

LEASE_S = 12.0
"""Of an incident; a site's are longer, since its calls take longer."""
POLL_S = 0.5


NO_LOCK_HELD = threading.RLock()
"""Held by a thread while it holds the store's write lock or that of the embedded scheduler."""


@contextmanager
def cluster_locked(folder: Path, wait_s: float = 10.0) -> Iterator[None]:
    with NO_LOCK_HELD, locked(folder, wait_s):
        yield


class SleepyStore(Store):
    """A store whose process falls asleep where the gate asks for the last time whether it still leads.

    No thread of it holds a lock of the store then: a process that is stopped in a write keeps everybody out until it is killed
    (docs/watchdog.md), and the threads that renew leases write at any moment.
    """

    sleeps_at = 0
    changes = 0

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        with NO_LOCK_HELD, super().transaction() as connection:
            yield connection

    def must_lead(self) -> None:
        self.changes += 1
        if self.changes == self.sleeps_at:
            with NO_LOCK_HELD:
                # one sent to the process may be taken by another thread, and this one goes on, into a lock, until that is stopped
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        super().must_lead()


def main(folder: Path, sleeps_at: int) -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    settings, clock = dataclasses.replace(demo_settings(folder / "state"), lease_s=LEASE_S), SystemClock()
    cluster = LocalScheduler(local_folder(settings), clock, nodes=6)
    store = SleepyStore(settings.store, clock)
    policy = dataclasses.replace(load_policy(), mode=Mode.ACT)
    engine = build(settings, clock=clock, scheduler=cluster, policy=policy, store=store)
    if not cluster.jobs():
        spec = demo_job(folder / "run", steps=40, save_interval=4, step_ms=20)
        arm(dataclasses.replace(find_fault("ecc"), at_step=20), cluster, spec)
        cluster.submit(spec)
    store.sleeps_at = sleeps_at
    local_jobs.locked = cluster_locked
    # a pass that waits for its changes keeps what happens before the sleep in one order
    dog = Watchdog(engine, owner_name("watch"), POLL_S, patience_s=30.0 if sleeps_at else 2.0)
    signal.signal(signal.SIGTERM, lambda *_: dog.stop())
    dog.run()
    dog.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
