"""Whatever lies at the path of a kill switch stops every change, and setting one writes nowhere else."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from assistant.errors import Denied
from assistant.gate.stops import lift_kill_switch, set_kill_switch
from assistant.policy import Mode, Policy
from tests.unit.gate_world import World, cordon


@pytest.mark.parametrize("sort", ["file", "folder", "dangling link", "pipe"])
def test_whatever_lies_where_a_kill_switch_would_counts_as_set(sort: str, world: World, tmp_path: Path) -> None:
    switch = tmp_path / "stop"
    makers: dict[str, Callable[[], None]] = {
        "file": switch.touch,
        "folder": switch.mkdir,
        "dangling link": lambda: switch.symlink_to("/nowhere"),
        "pipe": lambda: os.mkfifo(switch),
    }
    makers[sort]()
    with pytest.raises(Denied, match="kill_switch"):
        cordon(world.gate(Policy(mode=Mode.ACT, kill_switch=(switch,))), by="cli:ada", approved_by="ada")


def test_setting_a_kill_switch_follows_no_link(world: World, tmp_path: Path) -> None:
    target = tmp_path / "target"
    (tmp_path / "stop").symlink_to(target)
    policy = Policy(kill_switch=(tmp_path / "stop",))
    assert set_kill_switch(world.store, policy, by="cli:ada", why="\x1b[2Jboo\nsecond line") == tmp_path / "stop"
    assert not target.exists()
    lift_kill_switch(world.store, policy, by="cli:ada")
    set_kill_switch(world.store, policy, by="cli:ada", why="a reason\nand a forged line")
    assert len((tmp_path / "stop").read_text().splitlines()) == 1
    assert stat.S_IMODE((tmp_path / "stop").stat().st_mode) & 0o022 == 0
