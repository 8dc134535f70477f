"""What several files of attacks share: a policy of a site, a world that it guards, and folders of one's own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.ports import JumpingClock
from assistant.schedulers.simulated import SimulatedCluster
from assistant.store import Store
from tests.unit.gate_world import START, World

ACT = """\
extends = "shipped"
mode = "act"
min_healthy_share = 0.0
cooldown_min = 0
replace = ["kill_switch"]
kill_switch = ["{stop}"]
[[protected]]
nodes = ["n2"]
why = "the site's own"
[end]
"""


def write(site: Path, text: str | bytes) -> Path:
    path = site / "knowledge" / "policy.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    write(folder, ACT.format(stop=tmp_path / "stop"))
    return folder


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    clock = JumpingClock(START)
    with Store(tmp_path / "nightshift.db", clock) as store:
        yield World(store, SimulatedCluster(clock, tmp_path / "cluster", nodes=["n1", "n2", "n3", "n4"]), clock)


@pytest.fixture
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep what a test writes and logs away from those of the account, and of other tests."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("NO_COLOR", "1")
    yield
    ours = logging.getLogger("assistant")
    ours.handlers.clear()
    ours.setLevel(logging.NOTSET)
