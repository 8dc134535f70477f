"""A clock that jumps and a store that follows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.ports import JumpingClock
from assistant.store import Store
from tests.daemon.night import NOON


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock(NOON)


@pytest.fixture
def store(tmp_path: Path, clock: JumpingClock) -> Iterator[Store]:
    with Store(tmp_path / "nightshift.db", clock) as opened:
        yield opened
