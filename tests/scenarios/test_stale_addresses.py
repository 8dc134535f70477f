"""A client that waits for a server: whether that can end is said by what is known of the address; an idle server is no hang."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from assistant.records import IncidentState, JobState
from assistant.schedulers.simulated_run import SimulatedRun
from tests.scenarios.scene import Scene
from tests.scenarios.test_watch_on_cluster import stacks

OLD, NEW = "http://node07:18001", "http://node08:18001"


def client(
    folder: Path, *, writes: str = "", down: bool = True, lines: tuple[str, ...] = (f"endpoint {OLD}",)
) -> tuple[Scene, str]:
    """Let a client wait for ten minutes; return the scene and the note of its incident.

    Args:
        folder: Of the scene.
        writes: What the file of the address is changed to a minute behind the client's start.
        down: Whether the node of the old address is down.
        lines: What the client's log begins with.
    """
    scene = Scene(folder, run=SimulatedRun(steps=10, launch_s=1e7))
    (folder / "run").mkdir()
    endpoint = folder / "run" / "endpoint"
    endpoint.write_text(f"{OLD}\n")
    os.utime(endpoint, (scene.clock.now().timestamp() - 600,) * 2)
    scene.cluster.plan("client", SimulatedRun(steps=10, launch_s=1e7))
    script = "python client.py --endpoint-file run/endpoint\n"
    job = scene.cluster.submit(dataclasses.replace(scene.spec, name="client", script=script, nodes=1))
    log = scene.cluster.job(job).log
    assert log is not None
    if down:
        scene.cluster.set_down("node07")
    for number in range(60):
        if number == 6 and writes:
            endpoint.write_text(writes)
            os.utime(endpoint, (scene.clock.now().timestamp(),) * 2)
        with log.open("a") as file:
            file.writelines(f"{line}\n" for line in (lines if not number else ()))
            file.write(f"request 60 failed: <urlopen error [Errno 113] No route to host>; retry {number} in 4s\n")
        scene.clock.sleep(10)
        scene.engine.tick(owner="watch")
    (incident,) = scene.engine.store.incidents()
    assert incident.state is IncidentState.ESCALATED
    assert scene.cluster.changes == [f"submit {job}"]
    assert scene.cluster.job(job).state is JobState.RUNNING
    return scene, incident.note


def test_a_wait_for_an_address_that_nobody_gives_any_more_does_not_end(tmp_path: Path) -> None:
    scene, note = client(tmp_path, writes=f"{NEW}\n")
    assert f"It waits for {OLD}, and node07 is down" in note
    assert f"{tmp_path}/run/endpoint has named {NEW} since 02:01 UTC" in note
    assert "this wait does not end by itself" in note
    assert "scontrol requeue 1" in note
    found = scene.engine.store.diagnosis(1)
    assert found is not None
    assert "Do not restart" not in found.advice
    assert f"Leave what runs at {NEW} alone" in found.advice


def test_of_a_host_that_is_down_it_is_not_said_that_all_will_be_well(tmp_path: Path) -> None:
    _, note = client(tmp_path)
    assert f"It waits for {OLD}, and node07 is down (Not responding): it goes on only if that comes back there." in note
    assert "once that is there" not in note


@pytest.mark.parametrize("writes", ["", f"{OLD}\n", f"{NEW}\n{OLD}\n", "ready\n"])
def test_a_file_that_names_no_other_address_proves_nothing(tmp_path: Path, writes: str) -> None:
    _, note = client(tmp_path, writes=writes, down=False)
    assert "goes on by itself once that is there" in note
    assert "does not end by itself" not in note


def test_a_log_that_names_no_address_leaves_it_open(tmp_path: Path) -> None:
    _, note = client(tmp_path, writes=f"{NEW}\n", lines=("connected",))
    assert "goes on by itself once that is there" in note


@pytest.mark.parametrize("line", ["INFO:     Uvicorn running on http://0.0.0.0:18001 (Press CTRL+C to quit)", "training ..."])
def test_an_idle_service_is_no_hang_although_its_workers_wait_for_one_another(tmp_path: Path, line: str) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(steps=10, launch_s=1e7))
    job = scene.cluster.submit(scene.spec)
    log = scene.cluster.job(job).log
    assert log is not None
    log.write_text(f"{line}\n")
    stacks(scene, job, moves=False)
    for _ in range(60):
        scene.clock.sleep(20)
        scene.engine.tick(owner="watch")
    assert bool(scene.engine.store.incidents()) is ("training" in line)
