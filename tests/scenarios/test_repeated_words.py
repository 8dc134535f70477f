"""That two tries of a job end with the same words is told as a fact: nothing of what is done or asked changes by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.engine.evidence import repeated_words
from assistant.records import Diagnosis, Incident, IncidentState
from assistant.schedulers.simulated_run import SimulatedRun
from tests.scenarios.scene import Scene

EXIT = "srun: error: node01: task 0: Exited with exit code 4"
WORDS = "burgers: step 64: CFL number 1.007 exceeds 1, solution is no longer stable; stopping"


def watched(folder: Path, first: str, second: str) -> tuple[Incident, Diagnosis, list[str]]:
    """Return the incident, its diagnosis and the changes of a job whose two tries ended with some words."""
    folder.mkdir()
    scene = Scene(folder, run=SimulatedRun(fails_at=50, lines=(first, EXIT, "run.sh: once more", "burgers: at u.60", second, EXIT)))
    scene.cluster.submit(scene.spec)
    scene.watch(300)
    incident = scene.engine.store.incidents()[-1]
    diagnosis = scene.engine.store.diagnosis(incident.id)
    assert diagnosis is not None
    return incident, diagnosis, list(scene.cluster.changes)


@pytest.mark.parametrize(
    "words", [WORDS, "all seats of the mesher are taken, giving up", "mesh server is busy, try later", "storage node went away"]
)
def test_the_same_last_words_twice_are_told_and_change_nothing_else(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    incident, diagnosis, changes = watched(tmp_path / "told", words, words)
    fact = f'It ended twice with the same words and exit code, two tries of job 1 in a row: "{words}".'
    assert fact in diagnosis.advice
    assert fact in incident.note
    for claim in ("at each start", "A restart alone does not help", "has to be changed first"):
        assert claim not in f"{diagnosis.advice} {incident.note}"
    monkeypatch.setattr(repeated_words, "with_repeated_words", lambda engine, incident, diagnosis, job: diagnosis)
    plain_incident, plain, plain_changes = watched(tmp_path / "plain", words, words)
    assert (incident.state, changes) == (plain_incident.state, plain_changes)
    for field in ("reason", "category", "action", "confidence", "faulty_nodes"):
        assert getattr(diagnosis, field) == getattr(plain, field)


def test_other_words_are_not_told(tmp_path: Path) -> None:
    incident, diagnosis, changes = watched(tmp_path / "scene", WORDS, WORDS.replace("64", "71"))
    assert incident.state is IncidentState.ESCALATED
    assert changes == ["submit 1"]
    assert "the same words" not in f"{diagnosis.advice} {incident.note}"
