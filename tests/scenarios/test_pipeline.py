"""The pipeline on the simulated cluster: what becomes of an incident under each policy, and when it must stop."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import pytest

from assistant.errors import Unavailable
from assistant.policy import Mode
from assistant.ports import Reply
from assistant.records import CallStatus, IncidentState, JobSpec, JobState, Verdict
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools import stacks
from tests.scenarios.scene import ECC, XID, Scene

BUG = (
    "Traceback (most recent call last):",
    '  File "/opt/train/pretrain.py", line 12, in <module>',
    "    main()",
    '  File "/opt/train/pretrain.py", line 88, in main',
    "    loss = model(batch) + None",
    "TypeError: unsupported operand type(s) for +: 'float' and 'NoneType'",
)
TIMEOUT = (
    "[rank1]:[E105 02:01:11.12 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=51, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600097 milliseconds before "
    "timing out.",
)


def test_observe_changes_nothing_and_says_what_it_would_have_done(tmp_path: Path) -> None:
    scene = Scene(tmp_path, mode=Mode.OBSERVE)
    scene.cluster.submit(scene.spec)
    (incident,) = scene.watch(600)
    assert scene.cluster.changes == ["submit 1"]
    assert incident.state is IncidentState.ESCALATED
    assert "would have done" in incident.note
    (denied,) = scene.engine.store.calls(incident.id, status=CallStatus.DENIED)
    assert "node02" in denied.preview


def test_propose_waits_for_each_change_and_goes_on_exactly_there(tmp_path: Path) -> None:
    scene = Scene(tmp_path, mode=Mode.PROPOSE)
    scene.cluster.submit(scene.spec)
    changes = []
    for _ in range(6):
        (incident,) = scene.watch(100)
        changes.append(list(scene.cluster.changes))
        for approval in scene.engine.store.approvals():
            assert scene.engine.store.answer(approval.id, Verdict.ALLOW, "ada")
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert changes[0] == ["submit 1"]
    assert changes[1] == ["submit 1", "cordon node02"]
    assert scene.cluster.changes == ["submit 1", "cordon node02", "submit 2"]


def test_a_refused_change_ends_with_a_person(tmp_path: Path) -> None:
    scene = Scene(tmp_path, mode=Mode.PROPOSE)
    scene.cluster.submit(scene.spec)
    scene.watch(100)
    (approval,) = scene.engine.store.approvals()
    scene.engine.store.answer(approval.id, Verdict.DENY, "ada", why="node02 is needed")
    (incident,) = scene.watch(100)
    assert incident.state is IncidentState.ESCALATED
    assert "node02 is needed" in incident.note
    assert scene.cluster.changes == ["submit 1"]


def test_the_kill_switch_stops_every_change(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    (tmp_path / "stop").touch()
    scene.cluster.submit(scene.spec)
    (incident,) = scene.watch(600)
    assert scene.cluster.changes == ["submit 1"]
    assert "kill switch" in incident.note


def test_a_bug_of_the_script_is_not_restarted(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(fails_at=50, lines=BUG))
    scene.cluster.submit(scene.spec)
    (incident,) = scene.watch(600)
    diagnosis = scene.engine.store.diagnosis(incident.id)
    assert diagnosis is not None
    assert (diagnosis.reason, incident.state) == ("type_error", IncidentState.ESCALATED)
    assert scene.cluster.changes == ["submit 1"]


def test_the_same_failure_at_the_same_step_is_a_crash_loop(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(fails_at=50, lines=TIMEOUT, save_every=10))
    scene.cluster.submit(scene.spec)
    scene.watch(7200)
    states = [incident.state for incident in scene.engine.store.incidents()]
    assert len(scene.cluster.jobs()) <= 4, "three restarts at most"
    assert states[0] is IncidentState.ESCALATED
    assert "crash loop" in scene.engine.store.incidents()[0].note or "no restart is left" in scene.engine.store.incidents()[0].note


def test_an_incident_knows_the_one_whose_restart_failed(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(fails_at=50, lines=TIMEOUT, save_every=10))
    scene.cluster.submit(scene.spec)
    scene.watch(7200)
    second, first = scene.engine.store.incidents()[-2:]
    assert (first.id, second.parent) == (1, 1)


def test_a_scheduler_that_does_not_answer_is_unknown_not_gone(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(30)
    scene.cluster.outage = True
    with pytest.raises(Unavailable):
        scene.engine.tick(owner="watch")
    assert scene.engine.store.incidents() == []
    scene.cluster.outage = False
    (incident,) = scene.watch(600)
    assert incident.state is IncidentState.RECOVERED


def test_an_outage_in_the_middle_of_a_recovery_only_delays_it(tmp_path: Path) -> None:
    scene = Scene(tmp_path, mode=Mode.PROPOSE)
    scene.cluster.submit(scene.spec)
    scene.watch(100)
    (approval,) = scene.engine.store.approvals()
    scene.engine.store.answer(approval.id, Verdict.ALLOW, "ada")
    scene.cluster.outage = True
    (incident,) = scene.engine.resume(owner="watch")
    assert not incident.state.ended
    scene.cluster.outage = False
    scene.mode = Mode.ACT
    scene.engine.store.close()
    scene.started()
    (incident,) = scene.watch(600)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert scene.cluster.changes == ["submit 1", "cordon node02", "submit 2"]


def test_a_hung_job_is_cancelled_and_goes_on(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(hangs_at=50))
    scene.cluster.plan(
        "llm", SimulatedRun(hangs_at=50, checkpoints=tmp_path / "checkpoints"), SimulatedRun(checkpoints=tmp_path / "checkpoints")
    )
    scene.cluster.submit(scene.spec)
    (incident,) = scene.watch(3600)
    diagnosis = scene.engine.store.diagnosis(incident.id)
    assert diagnosis is not None
    assert (diagnosis.reason, incident.state) == ("hang", IncidentState.RECOVERED)
    assert scene.cluster.changes == ["submit 1", "cancel 1", "submit 2"]


@pytest.mark.parametrize(
    "ticks",
    [
        "#nightshift cpu 1 100.0\n#nightshift cpu 1 4100 50\n#nightshift cpu 2 102.5\n#nightshift cpu 2 4100 125\n",  # it shuffles
        "",  # no process of it was found
    ],
    ids=["works", "not_found"],
)
def test_a_silent_job_with_idle_gpus_is_not_ended_while_it_works_or_may_work_on_the_cpu(ticks: str, tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(hangs_at=50))
    scene.cluster.submit(scene.spec)
    typed = shlex.join(stacks.command("1"))
    scene.cluster.answers[typed] = lambda node: Reply(node, True, 0, f"{stacks.LISTED}\n{ticks}", "")
    (incident,) = scene.watch(3600)
    assert (incident.state, scene.cluster.changes) == (IncidentState.ESCALATED, ["submit 1"])
    assert scene.cluster.job("1").state is JobState.RUNNING
    assert ("nothing shows that it hangs" if ticks else "is not proven") in incident.note


BOBS = "#NIGHTSHIFT checkpoints={folder}\nsrun python train.py --lr 1e-4\n"


def shared_scene(tmp_path: Path) -> Scene:
    """Return a scene whose checkpoint folder is open to colleagues."""
    scene = Scene(tmp_path, run=SimulatedRun(fails_at=50, lines=TIMEOUT))
    folder = tmp_path / "checkpoints"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o2777)
    scene.cluster.plan("bobs", SimulatedRun(checkpoints=folder))
    scene.cluster.plan("llm", SimulatedRun(fails_at=50, lines=TIMEOUT, checkpoints=folder), SimulatedRun(checkpoints=folder))
    return scene


def bobs(scene: Scene, tmp_path: Path) -> JobSpec:
    script = BOBS.format(folder=tmp_path / "checkpoints")
    return JobSpec("bobs", script, nodes=1, work_dir=tmp_path, log="bob-%j.log", user="bob")


def test_a_run_with_which_a_colleague_goes_on_in_the_shared_folder_is_left_to_him(tmp_path: Path) -> None:
    scene = shared_scene(tmp_path)
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(70)
    assert scene.cluster.job("1").state.ended
    scene.cluster.submit(bobs(scene, tmp_path))
    (incident,) = scene.watch(600)
    assert (incident.state, scene.cluster.changes) == (IncidentState.CLOSED, ["submit 1", "submit 2"])
    assert "bob submitted the run of job 1 again as job 2" in incident.note


def test_a_restart_beside_which_a_colleague_begins_in_its_folder_is_not_recovered(tmp_path: Path) -> None:
    scene = shared_scene(tmp_path)
    scene.cluster.submit(scene.spec)
    for _ in range(60):
        scene.watch(10)
        if "submit 2" in scene.cluster.changes:
            break
    scene.cluster.submit(bobs(scene, tmp_path))
    (incident,) = scene.watch(900)
    assert incident.state is IncidentState.ESCALATED, incident.note
    assert "job 3 of bob (running) saves where job 2 does" in incident.note
    assert scene.cluster.changes == ["submit 1", "submit 2", "submit 3"]


def test_a_restart_beside_which_the_owner_queues_the_failed_job_again_is_not_recovered(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.cluster.submit(scene.spec)
    for _ in range(60):
        scene.watch(10)
        if "submit 2" in scene.cluster.changes:
            break
    scene.cluster.set_requeued("1")
    found = [one for one in scene.watch(900) if one.attempt == 0]
    assert [one.state for one in found] == [IncidentState.ESCALATED], found
    assert "job 1 was queued again under its own id meanwhile" in found[0].note
    assert [one for one in scene.cluster.changes if one.startswith("submit")] == ["submit 1", "submit 2"]


def test_a_person_who_cancels_a_job_is_left_alone(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun())
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(30)
    scene.cluster.cancel("1")
    assert scene.watch(300) == []
    assert scene.cluster.job("1").state is JobState.CANCELLED


def test_a_foreign_drain_is_never_touched(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.cluster.submit(scene.spec)
    scene.cluster.set_cordon("node02", "ada: replacing a fan")
    (incident,) = scene.watch(600)
    assert incident.state is IncidentState.RECOVERED, incident.note
    node = next(node for node in scene.cluster.nodes() if node.name == "node02")
    assert node.reason == "ada: replacing a fan"
    assert scene.cluster.changes == ["submit 1", "submit 2"]


def test_two_engines_never_work_on_the_same_incident(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(60)
    first = scene.engine
    assert [event.kind for event in first.watcher.look(known=())] == ["job_ended"]
    for event in first.watcher.look(known=()):
        first.open(event)
    second = scene.started()
    assert first.store.claim(1, "watch@elsewhere:1.2", 300)
    second.tick(owner="another")
    assert second.store.incident(1).state is IncidentState.OPEN
    assert scene.cluster.changes == ["submit 1"]
    assert dataclasses.asdict(scene.spec)["name"] == "llm"


def test_old_failures_are_history(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(fails_at=5, lines=ECC, kernel={"node02": XID}))
    scene.engine.store.close()
    (tmp_path / "nightshift.db").unlink()
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(3600)
    scene.cluster.jobs()
    scene.started()
    assert scene.watch(100) == []


def test_a_loss_that_is_no_number_at_once_is_asked_about_with_the_checkpoint_before_it(tmp_path: Path) -> None:
    nan = "RuntimeError: Rank 0, node node01, device 0, iteration 64: Unexpected result nan (message='found NaN in forward loss')"
    scene = Scene(tmp_path, run=SimulatedRun(fails_at=63, lines=("Traceback (most recent call last):", nan)))
    scene.cluster.submit(scene.spec)
    (incident,) = scene.watch(600)
    assert incident.state is IncidentState.ESCALATED
    assert "step 64 is" in incident.note, incident.note
    assert "iter_0000060" in incident.note or "(step 60)" in incident.note
    assert not [call for call in scene.engine.store.calls(incident.id) if call.tool in ("cancel_job", "resubmit_job")]
