"""A job of which nothing is saved starts over only where its programs would append to nothing a second time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assistant.records import IncidentState
from assistant.schedulers.simulated_run import SimulatedRun
from tests.scenarios.scene import Scene
from tests.unit.test_repeated_writes import EVALUATES, LEDGER, SKIPS

NODE = "node01"


def played(folder: Path, source: str, script: str, *, written: bool = True) -> Scene:
    """Let the node of a job go away while its first program runs; return the scene afterwards."""
    scene = Scene(folder)
    for place in ("ledger.jsonl", "results/samples.jsonl"):
        (folder / place).parent.mkdir(exist_ok=True)
        (folder / place).write_text("{}\n" if written else "")
    (folder / "ingest.py").write_text(source)
    (folder / "train.py").write_text("print('step 1 loss 2.0')\n")
    scene.cluster.plan("llm", SimulatedRun(steps=0, fails_at=0, downs=NODE), SimulatedRun(steps=20))
    scene.cluster.submit(replace(scene.spec, script=script, options=("--no-requeue",)))
    scene.watch(900)
    return scene


@pytest.mark.parametrize("name", ["appends", "it is not written yet", "it passes over what is done", "it writes anew"])
def test_a_script_is_run_again_only_where_it_appends_nothing_twice(name: str, tmp_path: Path) -> None:
    source = {"it passes over what is done": SKIPS, "it writes anew": EVALUATES}.get(name, LEDGER)
    scene = played(tmp_path, source, "python3 ingest.py\n", written=name != "it is not written yet")
    incident = scene.engine.store.incidents()[-1]
    submitted = [change for change in scene.cluster.changes if change.startswith("submit")]
    if name == "appends":
        assert submitted == ["submit 1"]
        assert incident.state is IncidentState.ESCALATED
        assert "would append to ledger.jsonl" in incident.note, incident.note
        assert "--no-requeue" in incident.note
        assert "#NIGHTSHIFT checkpoints" not in incident.note
    else:
        assert submitted == ["submit 1", "submit 2"]
        assert incident.state is IncidentState.RECOVERED, incident.note


TRAINS = """import sys, torch
state = torch.load(sys.argv[1]) if len(sys.argv) > 1 else {}
for step in range(100):
    torch.save(state, f"checkpoints/iter_{step:07d}")
"""


@pytest.mark.parametrize(
    ("before", "restarts"), [("python3 ingest.py", False), ("[ -f done ] || python3 ingest.py", True), ("", True)]
)
def test_a_training_goes_on_only_where_what_its_script_runs_first_appends_nothing_twice(
    before: str, restarts: bool, tmp_path: Path
) -> None:
    scene = Scene(tmp_path)
    (tmp_path / "ingest.py").write_text(LEDGER)
    (tmp_path / "train.py").write_text(TRAINS)
    (tmp_path / "ledger.jsonl").write_text("{}\n")
    (tmp_path / "done").touch()
    train = scene.spec.script.replace("srun python train.py", "python3 train.py")
    scene.cluster.submit(replace(scene.spec, script=f"{before}\n{train}"))
    scene.watch(900)
    incident = scene.engine.store.incidents()[-1]
    assert ("submit 2" in scene.cluster.changes) is restarts, incident.note
    assert ("would append to ledger.jsonl" in incident.note) is not restarts


KEY_ERROR = ("Traceback (most recent call last):", '  File "ingest.py", line 4, in <module>', "KeyError: 'acc,none'")


@pytest.mark.parametrize(
    ("source", "words"),
    [(EVALUATES, "A rerun would empty results/samples.jsonl"), (LEDGER, "would append to ledger.jsonl"), (SKIPS, "")],
)
def test_an_owner_who_has_to_mend_a_program_reads_what_a_rerun_does_to_its_files(source: str, words: str, tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    for place in ("ledger.jsonl", "results/samples.jsonl"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text("{}\n")
    (tmp_path / "ingest.py").write_text(source)
    scene.cluster.plan("llm", SimulatedRun(steps=0, fails_at=0, lines=KEY_ERROR))
    scene.cluster.submit(replace(scene.spec, script="python3 ingest.py\n"))
    scene.watch(300)
    (incident,) = scene.engine.store.incidents()
    told = [scene.engine.store.outcome(call.id) for call in scene.engine.store.calls(incident.id) if call.tool == "tell_owner"]
    text = str(told[-1].value["text"]) if told and told[-1] is not None else ""
    assert text
    assert (words in text) if words else ("A rerun" not in text)
