"""Two runs that save into one folder and remove each other's saves: a person is told, and nothing is started there."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.records import IncidentState, JobSpec
from tests.scenarios.placed_jobs import begin, end, place, quiet, ticks, write

CASES = tomllib.loads((Path(__file__).parents[1] / "cases" / "chains" / "shared_folders.toml").read_text())["case"]


@pytest.mark.parametrize("ends_first", [False, True], ids=["the other one runs", "the other one has ended since"])
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_who_removed_the_saves_of_a_job_is_told_and_whether_both_save_there(
    case: dict[str, Any], ends_first: bool, tmp_path: Path
) -> None:
    scene = quiet(tmp_path)
    for number, name in (("1", "alpha"), ("2", "beta")):
        row = case["first" if number == "1" else "second"]
        work = tmp_path / row["work"]
        work.mkdir(exist_ok=True)
        script = f"#!/bin/bash\npython3 -u train.py --tag {name}\n"
        spec = JobSpec(name, script, nodes=1, user=row["user"], work_dir=work)
        place(scene, number, script, user=row["user"], work_dir=work, name=name, spec=spec)
        begin(scene, number, f"node0{number}")
        ticks(scene, 3)
        if number == "2":
            write(scene, "1", [line.format(folder=tmp_path) for line in case["first"]["lines"]])
            write(scene, "2", [line.replace("{folder}", str(tmp_path)) for line in row["lines"]])
    end(scene, "2")
    if ends_first:
        scene.clock.sleep(5)
        end(scene, "1", type(scene.cluster.job("1").state).COMPLETED, 0)
    ticks(scene, 12)
    incident = next(entry for entry in scene.engine.store.incidents() if entry.job == "2")
    assert incident.state is IncidentState.ESCALATED, incident.note
    assert scene.cluster.changes == []
    for words in case["says"]:
        if not (ends_first and "still runs" in words):
            assert words.format(folder=tmp_path) in incident.note
    assert ("neither the path nor" in incident.note) is (bool(case["says"]) and not case["shared"])
    assert ("Two runs save into one folder" in incident.note) is case["shared"]
    assert ("removed" in incident.note) is bool(case["says"])
