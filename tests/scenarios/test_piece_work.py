"""The first job of a chain works through pieces and loses its node: it does what is missing, where that is proven."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from assistant.records import Incident, IncidentState, JobState
from assistant.schedulers.simulated_run import SimulatedRun
from tests.scenarios.scene import Scene

NODE = "node01"
PREPARES = """#!/bin/bash
cd "$SLURM_SUBMIT_DIR" || exit 2
. lib/common.sh
mkdir -p shards
for n in $(seq -w 0 31); do
    s=shards/plenar_$n
    if [ -e $s.done ]; then say "shard $n is there"; continue; fi
    gzip -c raw/$n.txt > $s.gz && date +%s > $s.done
    truth "prepare save $s.gz"
done
"""
COMMON = """say() { printf '%s\\n' "$*"; }
truth() { printf '%s\\n' "$*" >> truth.log; }
"""
AT_ONCE = PREPARES.replace("gzip -c raw/$n.txt > $s.gz && date +%s > $s.done", "gzip -c raw/$n.txt > $s.done")
APPENDS = PREPARES.replace('truth "prepare save', 'cat $s.gz >> shards/all.gz; truth "prepare save')


def played(folder: Path, script: str) -> tuple[Scene, Incident]:
    scene = Scene(folder)
    (folder / "lib").mkdir()
    (folder / "lib" / "common.sh").write_text(COMMON)
    (folder / "shards").mkdir()
    for number in range(13):
        (folder / "shards" / f"plenar_{number:02}.done").write_text("1\n")
    scene.cluster.plan("llm", SimulatedRun(steps=0, fails_at=0, downs=NODE), SimulatedRun(steps=20))
    scene.cluster.submit(replace(scene.spec, script=script, nodes=1, options=("--no-requeue",)))
    scene.watch(900)
    return scene, scene.engine.store.incidents()[-1]


def test_a_preparation_that_passes_over_finished_pieces_is_started_again_without_the_lost_node(tmp_path: Path) -> None:
    scene, incident = played(tmp_path, PREPARES)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert [change for change in scene.cluster.changes if change.startswith("submit")] == ["submit 1", "submit 2"]
    spec = scene.cluster.job("2").spec
    assert spec is not None
    assert spec.exclude == (NODE,)
    assert spec.script.replace(" ${NIGHTSHIFT_ARGS:-}", "") == PREPARES
    told = [
        scene.engine.store.outcome(call.id) for call in scene.engine.store.calls(incident.id) if call.tool == "choose_checkpoint"
    ]
    assert told[-1] is not None
    assert "it passes over the pieces that are finished (line 7 of its script)" in told[-1].value["note"]
    assert "does only what is missing" in told[-1].value["note"]


def test_a_program_of_which_nothing_is_known_may_save_checkpoints_all_the_same(tmp_path: Path) -> None:
    scene, incident = played(tmp_path, f"{PREPARES}srun ./train\n")
    assert incident.state is IncidentState.ESCALATED
    assert "line 11 of its script: what a second `train` does is not known" in incident.note
    assert "#NIGHTSHIFT checkpoints=" in incident.note
    assert [change for change in scene.cluster.changes if change.startswith("submit")] == ["submit 1"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (AT_ONCE, "line 8 of its script writes shards/plenar_$n.done itself: a half-written one would be taken for finished"),
        (APPENDS, "line 9 of its script appends to shards/all.gz, and a rerun would do so a second time"),
    ],
)
def test_what_is_not_proven_is_asked_with_its_line(script: str, words: str, tmp_path: Path) -> None:
    scene, incident = played(tmp_path, script)
    assert incident.state is IncidentState.ESCALATED
    assert words in incident.note
    assert "#NIGHTSHIFT checkpoints" not in incident.note
    assert [change for change in scene.cluster.changes if change.startswith("submit")] == ["submit 1"]


TOKENIZER = """import os
for part in range(50):
    path = f"stream/shard_{part:05d}.npy"
    if os.path.exists(path):
        continue
    with open(path + ".part", "wb") as file:
        file.write(make(part))
    os.replace(path + ".part", path)
"""


@pytest.mark.parametrize("many", [6, 0])
def test_a_piece_wise_run_that_its_limit_ended_goes_on_and_is_recovered_by_its_pieces(many: int, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    (tmp_path / "stream").mkdir()
    (tmp_path / "tokenize.py").write_text(TOKENIZER)
    limited = SimulatedRun(steps=1, launch_s=60, fails_at=0, state=JobState.TIMEOUT, exit_code=0)
    scene.cluster.plan("llm", limited, SimulatedRun(hangs_at=0))
    scene.cluster.submit(replace(scene.spec, script="#!/bin/bash\npython tokenize.py\n", nodes=1))
    for attempt in ("1", "2")[: 2 if many else 1]:
        scene.watch(20)
        started = scene.cluster.job(attempt).started
        assert started is not None
        for number in range(many):
            path = tmp_path / "stream" / f"shard_{number + 10 * int(attempt):05d}.npy"
            path.write_bytes(b"tokens")
            os.utime(path, ((started + timedelta(seconds=number)).timestamp(),) * 2)
        scene.watch(200)
    incident = scene.engine.store.incidents()[-1]
    submits = [change for change in scene.cluster.changes if change.startswith("submit")]
    if many:
        assert submits == ["submit 1", "submit 2"], incident.note
        assert incident.state is IncidentState.RECOVERED, incident.note
        assert incident.note.startswith("job 2 wrote 6 files like ")
    else:
        assert submits == ["submit 1"]
        assert "its limit may be too short for one" in incident.note
