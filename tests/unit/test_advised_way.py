"""What a diagnosis has decided holds for the words of the parts that add to its page."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from assistant.records import Action, Category, DecidedBy, Diagnosis, NodeFinding, Whereabouts
from assistant.recover.advised_way import SPIKE_MARGIN, advised_way, contested, damaged_from, newest_before
from assistant.recover.situation import AVOIDED, HELD
from assistant.tools.report import saved_state
from tests.no_history import NoHistory
from tests.scenarios.consistency import contradictions
from tests.unit.test_saved_state import context, hugging_face


def diagnosis(*places: Whereabouts, faulty: tuple[str, ...] = ()) -> Diagnosis:
    nodes = tuple(NodeFinding(node, "it says so", ()) for node in faulty)
    made = Diagnosis(
        "loss_spike", Category.SCRIPT, Action.FIX_AND_RESUBMIT, 0.9, DecidedBy.RULE, (), nodes, (), "It went off.", "Go back."
    )
    return replace(made, where=places)


class DiagnosedHistory(NoHistory):
    """A past that holds one diagnosis."""

    made: Diagnosis

    def diagnosis(self, incident: int) -> Diagnosis | None:
        return self.made


def of_incident(folder: Path, made: Diagnosis) -> tuple[Any, Any]:
    job = hugging_face(folder)
    world = context(job)
    world.incident, world.history = 1, DiagnosedHistory()
    world.history.made = made
    return world, job


def test_nodes_steps_and_folders_of_several_diagnoses_count_together() -> None:
    first = diagnosis(Whereabouts(f"{HELD} port 1", "n2"), damaged_from(40), faulty=("n1",))
    second = diagnosis(Whereabouts(f"{AVOIDED} /scratch is full", "n3"), damaged_from(33), contested(Path("/out/base")))
    way = advised_way(first, None, second)
    assert way.excluded == ("n1", "n2", "n3")
    assert way.damaged_from == 33
    assert way.contests(Path("/out/base/step_10"))
    assert not way.contests(Path("/out/base7"))
    assert advised_way(None).excluded == ()


def test_no_checkpoint_is_named_that_may_hold_the_damage(tmp_path: Path) -> None:
    world, job = of_incident(tmp_path, diagnosis(damaged_from(115)))
    said = saved_state(world, job)
    assert re.search(r"The newest whole checkpoint is \S+/checkpoint-100 \(step 100\)", said)
    assert re.search(r"not to be loaded: .*checkpoint-140", said)
    page = "Whatever was saved from step 115 on holds the damage. "
    assert not list(contradictions(page + said))
    assert list(contradictions(page + saved_state(*of_incident(tmp_path, diagnosis()))))
    assert "checkpoint-120: is not known to be from before step 115" in said


def test_where_all_may_hold_it_that_is_what_is_said(tmp_path: Path) -> None:
    world, job = of_incident(tmp_path, diagnosis(damaged_from(50)))
    said = saved_state(world, job)
    assert said.startswith("No checkpoint of it is known to be from before the damage")
    assert "newest whole" not in said


def test_nothing_is_ordered_in_a_folder_of_two_runs(tmp_path: Path) -> None:
    world, job = of_incident(tmp_path, diagnosis(contested(tmp_path / "out")))
    said = saved_state(world, job)
    assert "The newest whole checkpoint is" in said
    for words in ("Submitted as it is", "moved", "move ", "started again"):
        assert words not in said


@pytest.mark.parametrize("step", [37, 41, 64])
def test_the_newest_one_from_before_and_what_may_be_damaged_leave_nothing_between(step: int, tmp_path: Path) -> None:
    saves = [cast("Any", type("Save", (), {"step": number, "path": tmp_path / str(number)})()) for number in range(0, 80, 2)]
    words = newest_before(saves, step)
    way = advised_way(diagnosis(damaged_from(step - SPIKE_MARGIN + 1)))
    assert way.damaged_from is not None
    newest = max(save.step for save in saves if save.step < way.damaged_from)
    assert words.endswith(f"(step {newest}).")
