"""Jobs that never began: a node is set aside where it lacks what others have, and never for what owners did."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from assistant.daemon.notifications import notices
from assistant.engine.evidence import file_systems
from assistant.ports import Reply
from assistant.records import EventKind, IncidentState, JobSpec
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools.storage import _PROGRAM as STORAGE
from tests.scenarios.scene import Scene
from tests.scenarios.test_one_node import said

SHARE = "nas:/share {} lustre rw 0 0"


@pytest.fixture(autouse=True)
def no_passing_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_systems, "TRANSIENT", ())  # what a test writes lies below /tmp


def tasks(scene: Scene, many: int, run: SimulatedRun, *, user: str = "ada", good: int = 0) -> None:
    """Submit jobs of one node with a common folder; the first of them run anywhere."""
    for number in range(many):
        name = f"eval-{number}"
        spec = JobSpec(name, f"python3 score.py {number}\n", nodes=1, user=user, work_dir=scene.folder / "work", log="out/%j.txt")
        scene.cluster.plan(name, SimulatedRun(steps=30) if number < good else run, SimulatedRun(steps=30))
        scene.cluster.submit(spec)


def mounts(scene: Scene, lacking: tuple[str, ...], fails: tuple[str, ...] = ()) -> None:
    """Let nodes say where the folders of the jobs lie: on a share that some lack."""
    share = str(scene.folder)
    for path in (scene.folder / "work", scene.folder / "work" / "out"):
        has, gone = said(str(path), stands=str(path), mount=SHARE.format(share)), said(str(path), stands=share)

        def answer(node: str, has: str = has, gone: str = gone) -> Reply:
            return Reply(node, node not in fails, 0, gone if node in lacking else has, "")

        scene.cluster.answers[shlex.join(("sh", "-c", STORAGE, "sh", str(path)))] = answer


NEVER = SimulatedRun(steps=30, fails_at=0, launch_s=1.0, opens_output=False, only_on="node03", exit_code=0)


def test_a_node_that_lost_a_share_and_swallows_tasks_is_set_aside_at_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path, nodes=6)
    mounts(scene, ("node03",))
    tasks(scene, 16, NEVER, good=3)
    scene.watch(30)
    for _ in range(12):
        scene.clock.sleep(2)  # the node takes one task after the other between two looks of the watch
        scene.cluster.jobs()
    scene.watch(20)
    assert len({one.job for one in scene.engine.store.incidents()}) > 2
    drained = [change for change in scene.cluster.changes if change.startswith("cordon")]
    assert drained == ["cordon node03"], [one.note for one in scene.engine.store.incidents()]
    scene.watch(1800)
    store = scene.engine.store
    (shared,) = [one for one in store.incidents() if one.kind is EventKind.OUTAGE]
    members = [one for one in store.incidents() if one.kind is EventKind.JOB_ENDED]
    assert shared.service == "node node03"
    assert len(members) >= 2
    assert {one.state for one in members} == {IncidentState.RECOVERED}, [one.note for one in members]
    assert [change for change in scene.cluster.changes if change.startswith("cordon")] == ["cordon node03"]
    assert "is not mounted" in next(node for node in scene.cluster.nodes() if node.name == "node03").reason
    messages = [one.text for one in notices(store.audit(), store) if one.incident == shared.id]
    assert not any("they restart" in text for text in messages), messages


NFS = ("nfs: server nas not responding, timed out", "NFS: state manager: lease expired failed on NFSv4 server nas with error 5")


def test_a_node_that_swallows_tasks_of_a_lost_share_is_set_aside_as_soon_as_a_second_witness_is_there(tmp_path: Path) -> None:
    scene = Scene(tmp_path, nodes=6)
    path, share = "/data/retina/shard-00004", "/data/retina"
    has, gone = said(path, stands=path, mount=SHARE.format(share)), said(path, stands=share)
    scene.cluster.answers[shlex.join(("sh", "-c", STORAGE, "sh", path))] = lambda node: Reply(
        node, True, 0, gone if node == "node03" else has, ""
    )
    lost = ("Traceback (most recent call last):", f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'")
    tasks(scene, 16, SimulatedRun(fails_at=0, launch_s=1.0, lines=lost, kernel={"node03": NFS}, only_on="node03"))
    for _ in range(6):
        scene.clock.sleep(2)
        scene.cluster.jobs()
    scene.watch(30)
    assert len(scene.engine.store.incidents()) > 1
    notes = [one.note for one in scene.engine.store.incidents()]
    assert "cordon node03" in scene.cluster.changes, notes
    calls = [call for one in scene.engine.store.incidents() for call in scene.engine.store.calls(one.id)]
    assert any((call.step or "").startswith("second#") for call in calls), "one witness alone took it out"


@pytest.mark.parametrize(
    ("lacking", "fails", "only_on"),
    [
        (("node01", "node02", "node03", "node04", "node05", "node06"), (), None),  # its owner named a folder that nobody has
        (("node02", "node03"), (), "node03"),  # two lack it: no fault of one
        ((), ("node01", "node02", "node04", "node05", "node06"), "node03"),  # nobody to compare it with
    ],
)
def test_a_node_is_not_set_aside_for_launches_that_fail_without_a_fault_of_it_alone(
    lacking: tuple[str, ...], fails: tuple[str, ...], only_on: str | None, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, nodes=6)
    mounts(scene, lacking, fails)
    tasks(scene, 8, replace(NEVER, only_on=only_on), user="mallory")
    scene.watch(150)
    assert not [change for change in scene.cluster.changes if change.startswith("cordon")]


def test_twenty_jobs_of_one_user_that_fail_on_one_node_by_their_own_error_do_not_drain_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path, nodes=6)
    mounts(scene, ("node01",))  # the share is away there, and no job needs it
    bug = ("Traceback (most recent call last):", '  File "score.py", line 3, in <module>', "KeyError: 'lr'")
    tasks(scene, 20, SimulatedRun(fails_at=0, launch_s=1.0, lines=bug, only_on="node01"), user="mallory")
    scene.watch(100)
    assert not [change for change in scene.cluster.changes if change.startswith("cordon")]
    assert not any(found.faulty_nodes for one in scene.engine.store.incidents() if (found := scene.engine.store.diagnosis(one.id)))
