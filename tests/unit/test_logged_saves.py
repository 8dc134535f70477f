"""Checkpoints whose names count saves and no steps: the log says at which step each was saved, and which are before a rise."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from assistant.records import Job
from assistant.recover.checkpoints.inventory import is_before
from assistant.recover.checkpoints.search import search_checkpoints
from assistant.recover.saved_progress import logged_saves
from assistant.tools.checkpoints import lost_from
from tests.unit.logged_job import START, job_in, write

NUMBERED = "[rm] saved checkpoints/checkpoint_{} at step {}\n"
NAMED = "INFO - Saving current state to /x/checkpoints/checkpoint_{}\n"


def step(number: int, loss: float) -> str:
    return f"[rm] step {number:4d}/900  loss {loss:.4f}  grad_norm 9.000  lr 1.000e-04\n"


def run(folder: Path, save: str, losses: list[float]) -> Job:
    """Return a job that logs each fifth step and saves after each 25, with the newest four of its checkpoints."""
    lines = []
    for at, loss in enumerate(losses, 1):
        lines.append(step(5 * at, loss))
        if at % 5 == 0:
            lines.append(save.format(at // 5 - 1, 5 * at))
    for count in range(len(losses) // 5):
        if count >= len(losses) // 5 - 4:
            path = folder / f"checkpoints/checkpoint_{count}"
            write(path / "model.safetensors", "x" * 64, START + timedelta(seconds=25 * count + 25))
            write(path / "random_states_0.pkl", "x", START + timedelta(seconds=25 * count + 25))
            write(path / "trainer.json", json.dumps({"n": count}), START + timedelta(seconds=25 * count + 25))
    write(folder / "slurm-812.out", "".join(lines))
    return job_in(folder, "#NIGHTSHIFT checkpoints=checkpoints\npython fit.py")


@pytest.mark.parametrize(("save", "late"), [(NUMBERED, 0), (NAMED, 5)])
def test_the_step_of_a_save_is_that_of_its_line_or_the_next_that_was_logged(save: str, late: int, tmp_path: Path) -> None:
    job = run(tmp_path, save, [10.0] * 41)
    inventory = search_checkpoints(job, {}, (), now=START + timedelta(hours=1)).inventory
    assert inventory is not None
    save_steps = logged_saves(job, inventory)
    assert save_steps == {f"checkpoint_{count}": 25 * count + 25 + late for count in range(4, 8)}
    checkpoint = next(entry for entry in inventory.checkpoints if entry.path.name == "checkpoint_5")
    assert is_before(checkpoint, 151 + late, None, save_steps)
    assert not is_before(checkpoint, 150 + late, None, save_steps)
    assert not is_before(checkpoint, 900, None), "without the log nothing tells"


def test_numbers_are_lost_from_the_first_that_is_none_and_not_from_where_the_loss_began_to_rise(tmp_path: Path) -> None:
    losses = [10.0] * 40 + [30.0, 45.0, 60.0, 90.0, 200.0, 400.0, 900.0, 3000.0, *[float("nan")] * 6]
    assert lost_from(run(tmp_path, NUMBERED, losses)) == 5 * 49
