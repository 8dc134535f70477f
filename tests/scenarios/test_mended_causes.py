"""A person mends what ended a job and asks to recover it: the cause is asked for anew, and the job goes on where it is gone."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from assistant.ports import Reply
from assistant.records import IncidentState
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools.probes.mounts import MOUNTS_COMMAND
from tests.scenarios.scene import Scene

LINES = (
    "Traceback (most recent call last):",
    '  File "/opt/train/pretrain.py", line 88, in save',
    "    file.write(state)",
    "OSError: [Errno 28] No space left on device",
)
FULL, ROOMY = "4096 1000 0 100 50", "4096 1000 620 100 90"


@pytest.mark.parametrize("mended", [True, False])
def test_a_recovery_that_a_person_asks_for_looks_whether_the_cause_is_gone(mended: bool, tmp_path: Path) -> None:
    saved = tmp_path / "checkpoints"
    scene = Scene(tmp_path)
    scene.cluster.plan("llm", SimulatedRun(fails_at=50, lines=LINES, checkpoints=saved), SimulatedRun(checkpoints=saved))
    numbers = [FULL]

    def mounts(node: str) -> Reply:
        return Reply(node, True, 0, f"mount ext4 /work rw\nanswer /work 0 {numbers[0]}\nend\n", "")

    scene.cluster.answers[shlex.join(MOUNTS_COMMAND)] = mounts
    scene.cluster.submit(replace(scene.spec, script=scene.spec.script.replace("train.py", "train.py --spill /work/parts")))
    scene.watch(600)
    (first,) = scene.engine.store.incidents()
    assert first.state is IncidentState.ESCALATED
    numbers[0] = ROOMY if mended else FULL
    second = scene.engine.open_for("1", by="cli:ada")
    for _ in range(60):
        second = scene.engine.work(second.id, owner="cli", by="cli:ada")
        if second.state.ended:
            break
        scene.clock.sleep(10)
    diagnosis = scene.engine.store.diagnosis(second.id)
    assert diagnosis is not None
    assert second.id != first.id
    if mended:
        assert "The cause is gone: /work (ext4) was full on node01 when the job failed, and has room now" in diagnosis.summary
        assert "Free space" not in diagnosis.advice
        assert second.state is IncidentState.RECOVERED, second.note
        assert scene.cluster.changes == ["submit 1", "submit 2"]
    else:
        assert "was full on node01 as it was" in diagnosis.advice
        assert second.state is IncidentState.ESCALATED
        assert scene.cluster.changes == ["submit 1"]
