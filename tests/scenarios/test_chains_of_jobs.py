"""Chains of jobs of one run: an incident is closed onto a link that lives; one incident tells of a run whose links all failed."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.records import Incident, IncidentState, JobState
from tests.scenarios.placed_jobs import begin, end, place, quiet, save, ticks, write
from tests.scenarios.scene import Scene

CASES = tomllib.loads((Path(__file__).parents[1] / "cases" / "chains" / "links.toml").read_text())["case"]
SCRIPT = "#!/bin/bash\n#SBATCH -o run-%j.out\npython3 -u train.py config.py\n"


def losses(parts: list[dict[str, Any]]) -> list[str]:
    values: list[str] = []
    for part in parts:
        if "well" in part:
            count, first, last = part["well"]
            values += [f"{first + (last - first) * at / max(1, count - 1) + (at % 3) * 0.01:.4f}" for at in range(int(count))]
        values += part.get("values", [])
    return values


def lines_of(case: dict[str, Any], link: dict[str, Any], folder: Path, at: float) -> list[str]:
    """Return what a link logs, and write what it saves."""
    lines = [case["resumes"].format(step=link["from"])] if link["from"] else ["Initializing a new model from scratch"]
    for step, loss in enumerate(losses(link["parts"]), link["from"] + 1):
        lines.append(case["line"].format(step=step, loss=loss))
        if step % case["every"] == 0:
            lines.append(case["saving"].format(step=step))
            save(path := folder / case["file"].format(step=step))
            os.utime(path, (at, at))
            for name, text in case.get("beside", {}).items():
                (path.parent / name).write_text(text.replace("STEP", str(step)))
                os.utime(path.parent / name, (at, at))
    return [*lines, case["last"]]


def played(case: dict[str, Any], tmp_path: Path, *, seconds_a_link: float, watched_while_running: int = 0) -> Scene:
    """Let all links of a chain run and fail, with the watch at work."""
    scene = quiet(tmp_path)
    links = case["links"]
    submitted = 0

    def submit() -> None:
        nonlocal submitted
        if submitted < len(links):
            submitted += 1
            place(scene, str(submitted), SCRIPT, dependency="singleton" if submitted > 1 else "")

    submit()
    while case["next"] == "before" and submitted < len(links):
        submit()
    for number, link in enumerate(links, 1):
        begin(scene, str(number))
        if case["next"] == "running":
            submit()
        ticks(scene, 1, every_s=seconds_a_link)
        write(scene, str(number), lines_of(case, link, scene.folder, scene.clock.now().timestamp() - seconds_a_link / 2))
        ticks(scene, watched_while_running, every_s=2)
        end(scene, str(number))
        if case["next"] == "after":
            ticks(scene, 3)
            submit()
        ticks(scene, round(seconds_a_link / 20))
    ticks(scene, 10)
    return scene


def of_job(scene: Scene) -> dict[str, Incident]:
    return {str(incident.job): incident for incident in reversed(scene.engine.store.incidents())}


@pytest.mark.parametrize("seconds_a_link", [4, 120], ids=["the links fail one upon the other", "each is closed before the next"])
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_one_incident_tells_of_a_run_whose_links_have_all_failed(
    case: dict[str, Any], seconds_a_link: float, tmp_path: Path
) -> None:
    scene = played(case, tmp_path, seconds_a_link=seconds_a_link)
    incidents, last = of_job(scene), str(len(case["links"]))
    assert scene.cluster.changes == []
    told = incidents[last]
    assert told.state is IncidentState.ESCALATED, told.note
    assert f"since step {case['spike']}" in told.note, told.note
    assert f"job {case.get('origin', 1)}, an earlier link of the same run" in told.note
    newest = told.note.partition("Its newest checkpoint from before step ")[2]
    assert case["good"] in newest, told.note
    assert case["bad"] not in told.note
    assert "no checkpoint of this run helps" not in told.note
    if case["next"] != "after":
        assert [job for job, incident in incidents.items() if incident.state is IncidentState.ESCALATED] == [last]


def test_the_incident_of_a_link_stays_closed_while_the_next_one_trains(tmp_path: Path) -> None:
    scene = quiet(tmp_path)
    place(scene, "1", SCRIPT)
    place(scene, "2", SCRIPT, dependency="singleton")
    begin(scene, "1")
    case = CASES[0] | {"last": "slurmstepd: error: *** JOB 1 ON node01 CANCELLED AT 2026-01-05T02:00:20 DUE TO TIME LIMIT ***"}
    write(scene, "1", lines_of(case, {"from": 0, "parts": [{"well": [36, 3.9, 3.2]}]}, tmp_path, scene.clock.now().timestamp()))
    ticks(scene, 1)
    end(scene, "1", JobState.TIMEOUT, 0)
    begin(scene, "2")
    write(
        scene, "2", lines_of(case, {"from": 30, "parts": [{"well": [5, 3.2, 3.1]}]}, tmp_path, scene.clock.now().timestamp())[:-1]
    )
    ticks(scene, 3)
    incident = of_job(scene)["1"]
    assert incident.state is IncidentState.CLOSED
    assert "the run of job 1 goes on as job 2 (running), submitted before" in incident.note
