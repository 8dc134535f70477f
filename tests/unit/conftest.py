"""What tests of several files start from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.ports import JumpingClock
from assistant.records import Event, EventKind
from assistant.schedulers.simulated import SimulatedCluster
from assistant.store import Store
from tests.unit.gate_world import SPEC, START, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    clock = JumpingClock(START)
    with Store(tmp_path / "s.db", clock) as store:
        cluster = SimulatedCluster(clock, tmp_path, nodes=["n1", "n2", "n3", "n4"])
        store.open_incident(Event(EventKind.JOB_ENDED, cluster.submit(SPEC), None, START))
        cluster.changes.clear()
        yield World(store, cluster, clock)
