"""Cost of sealed rows: incidents written with seals and without, in the same run; and what `audit verify` takes for them.

    python -m bench.audit [--incidents 200] [--rounds 3]

One incident is what a night writes: an event, three pieces of evidence, stages, a call with its decision and outcome, the end.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import Connection
from unittest import mock

from assistant.ports import JumpingClock
from assistant.records import Call, CallStatus, Decision, Event, EventKind, IncidentState, Outcome, Verdict
from assistant.store import Store, audit

START = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
LIMIT = 2.0
"""Times the CPU of the same work without seals."""
TEXT = "node042: NVRM: Xid (PCI:0000:41:00): 48, Double Bit ECC Error\n" * 40


class Unsealed(Store):
    """A store whose connections list nothing that they write."""

    def _before_begin(self, connection: Connection) -> None:
        self._local.sealed = {}

    def _before_commit(self, connection: Connection) -> None:
        pass


def write(store: Store, incidents: int) -> None:
    """Write incidents from their beginning to their end."""
    for number in range(incidents):
        incident, _ = store.open_incident(Event(EventKind.JOB_ENDED, str(number), None, START))
        for source in ("dmesg", "job", "controller"):
            store.add_evidence(incident.id, source, TEXT)
        for stage in ("opened", "diagnosed", "recovering"):
            store.mark_stage(incident.id, stage)
        asked = Call(0, incident.id, "cordon_node", {"node": "n1"}, "ecc", "playbook:ecc", START, CallStatus.INTENT, "aside", "n1")
        call = store.write_call(asked, kind="cordon")
        store.write_decision(call.id, Decision(Verdict.ALLOW, "mode.act", "policy", START, "within all limits"))
        store.write_outcome(Outcome(call.id, True, "done", "", START))
        store.set_state(incident.id, IncidentState.RECOVERED)


def cpu_and_wall(kind: type[Store], incidents: int) -> tuple[float, float, float]:
    """Return CPU and wall seconds of writing, and wall seconds of verifying (0 without seals)."""

    def nothing(*_: object) -> Mapping[str, object]:
        return {}

    with tempfile.TemporaryDirectory(prefix="nightshift-audit-") as folder:
        path = Path(folder) / "store.db"
        Store(path, JumpingClock(START)).close()
        with kind(path, JumpingClock(START)) as store:
            cpu, wall = time.process_time(), time.perf_counter()
            if kind is Unsealed:
                with mock.patch.object(audit, "touched_seals", nothing):
                    write(store, incidents)
            else:
                write(store, incidents)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            began = time.perf_counter()
            if kind is Unsealed:
                return cpu, wall, 0.0
            if (broken := store.verify()) is not None:
                raise SystemExit(f"the audit does not hold: {broken.why}")
            return cpu, wall, time.perf_counter() - began


def main() -> int:
    """Measure, print, and return 1 when sealing costs more than twice the CPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--incidents", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rounds = [(cpu_and_wall(Unsealed, options.incidents), cpu_and_wall(Store, options.incidents)) for _ in range(options.rounds)]
    plain, sealed = min(one[0][0] for one in rounds), min(one[1][0] for one in rounds)
    ratio = sealed / plain
    each = 1000 / options.incidents
    spent = f"without seals {plain * each:6.2f} ms  with {sealed * each:6.2f} ms"
    print(f"an incident written, CPU     {spent}  {ratio:.2f} x  limit {LIMIT} x")
    walls = min(one[0][1] for one in rounds), min(one[1][1] for one in rounds)
    print(f"an incident written, wall    without seals {walls[0] * each:6.2f} ms  with {walls[1] * each:6.2f} ms")
    print(f"audit verify, {options.incidents} incidents   {min(one[1][2] for one in rounds) * 1000:.0f} ms")
    return int(ratio > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
