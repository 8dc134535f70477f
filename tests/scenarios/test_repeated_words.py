"""A job whose two tries end with the same words at the same step is its owner's to answer, and is not started again."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.records import IncidentState
from assistant.schedulers.simulated_run import SimulatedRun
from tests.scenarios.scene import Scene

EXIT = "srun: error: node01: task 0: Exited with exit code 4"
WORDS = "burgers: step 64: CFL number 1.007 exceeds 1, solution is no longer stable; stopping"


@pytest.mark.parametrize("second", [WORDS, WORDS.replace("64", "71")], ids=["the same step", "another step"])
def test_the_same_last_words_twice_are_told(second: str, tmp_path: Path) -> None:
    lines = (WORDS, EXIT, "run.sh: once more from u.60", "burgers: at u.60", second, EXIT)
    scene = Scene(tmp_path, run=SimulatedRun(fails_at=50, lines=lines))
    scene.cluster.submit(scene.spec)
    scene.watch(300)
    incident = scene.engine.store.incidents()[-1]
    assert incident.state is IncidentState.ESCALATED
    assert scene.cluster.changes == ["submit 1"]
    is_told = f'with the same words at the same place, two tries of job 1 in a row: "{WORDS}"' in incident.note
    assert is_told is (second == WORDS)
    assert ("nothing explains why" in incident.note) is not is_told
    assert ("A restart alone does not help." in incident.note) is is_told
