"""A job that diverges, trains on, and removes its older checkpoints: the last healthy one is secured before it is gone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from assistant.policy import Mode, Policy, PolicyInForce
from assistant.records import CallStatus, IncidentState, Verdict
from assistant.schedulers.simulated_run import SimulatedRun
from tests.scenarios.scene import Scene

PATH = "nightshift-secured/checkpoints/of-iter_0000060/iter_0000060"


class AskingScene(Scene):
    """A cluster on which a person is asked before a job is ended."""

    def policy(self) -> Policy | PolicyInForce:
        shipped = super().policy()
        assert isinstance(shipped, Policy)
        asked = dataclasses.replace(shipped.kind["cancel"], mode=Mode.PROPOSE)
        return dataclasses.replace(shipped, kind={**shipped.kind, "cancel": asked})


def diverging(**changes: object) -> SimulatedRun:
    """Return a run whose loss is off from step 67 on, and which keeps its newest three checkpoints, 20 steps apart."""
    return SimulatedRun(steps=100_000, step_s=5.0, spikes_at=67, keeps=3, **changes)  # type: ignore[arg-type]


def ticks(scene: Scene, number: int) -> None:
    for _ in range(number):
        scene.clock.sleep(10)
        scene.engine.tick(owner="watch")


def test_while_a_person_is_asked_the_last_healthy_one_stays_and_the_run_goes_on_from_it(tmp_path: Path) -> None:
    scene = AskingScene(tmp_path, run=diverging())
    scene.cluster.submit(scene.spec)
    ticks(scene, 150)
    saved = {path.name for path in (tmp_path / "checkpoints").glob("iter_*")}
    assert min(saved) > "iter_0000060", "every healthy one was removed by the job"
    assert (tmp_path / PATH / "manifest.json").is_file()
    [secured] = [call for call in scene.engine.store.calls() if call.tool == "secure_checkpoint"]
    assert secured.status is CallStatus.DONE
    assert secured.preview.startswith(f"cp -alT {tmp_path}/checkpoints/iter_0000060 {tmp_path}/{PATH} FILES[")
    [approval] = scene.engine.store.approvals()
    assert scene.engine.store.call(approval.call).tool == "cancel_job"
    assert scene.engine.store.answer(approval.id, Verdict.ALLOW, "ada")
    ticks(scene, 60)
    [incident] = scene.engine.store.incidents()
    assert incident.state in (IncidentState.RECOVERED, IncidentState.VERIFYING), incident.note
    assert scene.cluster.changes == ["submit 1", "cancel 1", "submit 2"]
    again = scene.cluster.job("2")
    assert again.spec is not None
    assert again.spec.environment["NIGHTSHIFT_RESUME_FROM"] == str(tmp_path / PATH)


def test_observe_proposes_it_and_makes_no_link(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=diverging(), mode=Mode.OBSERVE)
    scene.cluster.submit(scene.spec)
    ticks(scene, 90)
    assert not (tmp_path / "nightshift-secured").exists()
    [secured] = [call for call in scene.engine.store.calls() if call.tool == "secure_checkpoint"]
    assert secured.status is not CallStatus.DONE
    assert scene.cluster.changes == ["submit 1"]


@pytest.mark.parametrize("resumes", ["newest", "no"])
def test_a_person_is_told_when_the_last_healthy_one_goes_and_where_it_stays(tmp_path: Path, resumes: str) -> None:
    scene = Scene(tmp_path, run=diverging())
    script = scene.spec.script.replace(" format=nightshift", f" format=nightshift resumes={resumes}")
    scene.cluster.submit(dataclasses.replace(scene.spec, script=script.replace("${NIGHTSHIFT_RESUME_FROM:-}", "")))
    ticks(scene, 150)
    [incident] = scene.engine.store.incidents()
    told = incident.note if resumes == "no" else "\n".join(call.why for call in scene.engine.store.calls())
    assert (tmp_path / PATH / "manifest.json").is_file()
    if resumes == "no":
        assert incident.state is IncidentState.ESCALATED
        assert f"iter_0000060 is secured: it has a second name (hard links), {tmp_path / PATH}" in told
    assert [call for call in scene.engine.store.calls() if call.tool == "secure_checkpoint"]


def test_where_no_checkpoint_is_from_before_nothing_is_secured(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=diverging(cut=(20, 40, 60)))
    scene.cluster.submit(scene.spec)
    ticks(scene, 90)
    assert not [call for call in scene.engine.store.calls() if call.tool == "secure_checkpoint"]
    assert not (tmp_path / "nightshift-secured").exists()
