"""What failed in the minutes before a watch began: told of once, without an incident and without any change."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.policy import Mode
from assistant.schedulers.simulated_run import SimulatedRun
from tests.scenarios.scene import ECC, XID, Scene


@pytest.mark.parametrize("mode", [Mode.ACT, Mode.OBSERVE])
def test_a_job_that_failed_before_the_watch_began_is_told_of_and_never_restarted(mode: Mode, tmp_path: Path) -> None:
    scene = Scene(tmp_path, mode=mode, run=SimulatedRun(fails_at=50, lines=ECC, kernel={"node02": XID}, only_on="node02"))
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(120)
    scene.cluster.jobs()
    with scene.store() as store, store.transaction() as connection:
        connection.execute("UPDATE properties SET value = ? WHERE name = 'made_at'", (scene.clock.now().isoformat(),))
    told: list[str] = []
    for _ in range(3):  # and a watch that is started again tells of it at most once more
        scene.started()
        for _ in range(4):
            scene.clock.sleep(10)
            scene.engine.tick(owner="watch")
            told += [remark.text for remark in scene.engine.watcher.remarks if "before this watch began" in remark.text]
    assert len(told) == 3
    assert "1 (llm of " in told[0]
    assert scene.engine.store.incidents() == []
    assert scene.cluster.changes == ["submit 1"]
