"""A process that looks after a failing job and kills itself with SIGKILL at one of its writes: run by test_kill_for_real.py.

python mortal.py FOLDER WRITE     0 never dies
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection

from assistant.content.faults import find_fault
from assistant.demo.job import arm, demo_job
from assistant.demo.rehearsal import demo_settings
from assistant.engine.ownership import owner_name
from assistant.policy import Mode, load_policy
from assistant.ports import SystemClock
from assistant.schedulers.local import LocalScheduler
from assistant.store import Store
from assistant.wiring import build, local_folder

PATIENCE_S = 60


class MortalStore(Store):
    """A store that takes the process with it, in the middle of a write."""

    dies_at = 0
    writes = 0
    depth = 0

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        self.depth += 1
        try:
            with super().transaction() as connection:
                yield connection
                self.writes += self.depth == 1
                if self.depth == 1 and self.writes == self.dies_at:
                    os.kill(os.getpid(), signal.SIGKILL)
        finally:
            self.depth -= 1


def main(folder: Path, write: int) -> int:
    settings, clock = demo_settings(folder / "state"), SystemClock()
    cluster = LocalScheduler(local_folder(settings), clock, nodes=6)
    store = MortalStore(settings.store, clock)
    store.writes, store.dies_at = 0, write
    policy = dataclasses.replace(load_policy(), mode=Mode.ACT)
    engine = build(settings, clock=clock, scheduler=cluster, policy=policy, store=store)
    if not cluster.jobs():
        fault = dataclasses.replace(find_fault("ecc"), at_step=20)
        spec = demo_job(folder / "run", steps=40, save_interval=4, step_ms=20)
        arm(fault, cluster, spec)
        cluster.submit(spec)
    owner, began = owner_name("mortal"), time.monotonic()
    while time.monotonic() - began < PATIENCE_S:
        engine.tick(owner=owner)
        incidents = store.incidents()
        if incidents and all(i.state.ended for i in incidents) and all(j.state.ended for j in cluster.jobs()):
            break
        time.sleep(0.1)
    for incident in store.incidents():
        print(incident.state, incident.note)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
