"""Recorded states of a cluster for tests: their past is diagnosed once in a process; each test gets a store as it was then."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from assistant.cli.measure import agent_bench
from assistant.engine import Engine
from assistant.schedulers.simulated import RecordedCluster

_FOLDERS: dict[Path, Path] = {}


def filled(state: Path, folders: pytest.TempPathFactory) -> Path:
    """Return a folder with the files of a store in which the past of a state has been written and diagnosed.

    Records name files by their whole paths, so that the place of a state is the same for all tests of a process.
    """
    if state not in _FOLDERS:
        folder = folders.mktemp("state")
        place, store = folder / "place", folder / "store"
        place.mkdir(mode=0o700)
        engine, _ = agent_bench.open_state(state, place)
        engine.store.close()
        store.mkdir(mode=0o700)
        for path in place.iterdir():
            if path.is_file():
                shutil.copy2(path, store)
        _FOLDERS[state] = folder
    return _FOLDERS[state]


@contextmanager
def recorded_state(state: Path, folders: pytest.TempPathFactory) -> Iterator[tuple[Engine, RecordedCluster]]:
    """Open a state as `open_state` does, for one test at a time; what it changes, the next test does not see."""
    folder = filled(state, folders)
    place = folder / "place"
    shutil.rmtree(place)
    shutil.copytree(folder / "store", place)
    with patch.object(agent_bench, "_fill"):
        engine, cluster = agent_bench.open_state(state, place)
    try:
        yield engine, cluster
    finally:
        engine.store.close()
