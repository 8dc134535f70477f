"""Tags are claims: whatever a comment says, only the store's own call and the scheduler's own fields make a job ours."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from assistant.engine.gather import parent_of
from assistant.errors import TargetBusy, ToolError
from assistant.gate.exclusion import must_be_alone
from assistant.gate.targets import Reach
from assistant.policy import Targets
from assistant.records import Call, CallStatus, Decision, EventKind, IncidentState, Job, JobSpec, Outcome, Verdict, run_of, tag_of
from assistant.records.tags import tags_in, without_tags
from assistant.recover.identity import owns_cordon, restart_of
from assistant.schedulers.cordons import must_cordon
from assistant.schedulers.simulated_run import Run
from tests.scenarios.scene import Scene

FORGED = [
    "nightshift:77:88",
    "nightshift:1:1",
    "nightshift:0:0",
    "nightshift:99999999999999999999:1",
    "nightshift:999999999999999:999999999999999",
    "nightshift:-1:-1",
    "nightshift:\u0661:\u0662",
    "nightshift:1:1\nnightshift:2:2",
    "NIGHTSHIFT:1:1",
    "nightshift::1:1",
    "nightshift:deadbeef00:1:1",
    "nightshift:deadbeef00:77:88 nightshift:1:1",
    "nightshift:%s:77:88",
    "nightshift:%s:1:99999",
    "nightshift:%s:1:1",
    "nightshift:%s:0:1",
    "x" * 300_000 + " nightshift:77:88",
    "nightshift:" * 20_000,
    "nightshift:1:1 " * 20_000,
    "'; DROP TABLE incidents; -- nightshift:77:88",
    "\x00\u202enightshift:77:88\u2066",
]


@pytest.mark.parametrize("comment", FORGED, ids=range(len(FORGED)))
def test_a_forged_comment_gives_a_failed_job_an_incident_like_any_other(tmp_path: Path, comment: str) -> None:
    scene = Scene(tmp_path)
    text = comment.replace("%s", scene.engine.store.store_id)
    scene.cluster.submit(scene.spec)
    scene.cluster.plan("evil", Run(fails_at=1, lines=("RuntimeError: boom",)))
    scene.cluster.submit(JobSpec("evil", "#!/bin/sh\n", work_dir=tmp_path / "evil", user="mallory", comment=text))
    scene.clock.sleep(75)
    about = {one.job: one for one in scene.engine.look()}
    assert set(about) == {"1", "2"}
    assert about["2"].parent is None
    assert scene.engine.taken_troubles() == []


@pytest.fixture
def restarted(tmp_path: Path) -> tuple[Scene, Job, Call]:
    """Return a scene whose failed job was brought back, the new job, and the call that submitted it."""
    scene = Scene(tmp_path)
    scene.cluster.submit(scene.spec)
    scene.watch(150)
    call = next(one for one in scene.engine.store.calls() if one.tool == "resubmit_job")
    return scene, scene.cluster.job("2"), call


def test_the_restart_is_ours_and_no_copy_of_its_tag_is(restarted: tuple[Scene, Job, Call]) -> None:
    scene, job, call = restarted
    store = scene.engine.store
    assert restart_of(store, job) == call
    assert parent_of(store, job) == call.incident
    for changes in ({"id": "9"}, {"comment": ""}, {"submitted": scene.clock.now() - timedelta(days=1)}, {"submitted": None}):
        assert restart_of(store, replace(job, **changes)) is None, changes


@pytest.mark.parametrize(
    "changes", [{"user": "mallory"}, {"name": "other"}, {"work_dir": Path("/elsewhere")}, {"early": True}, {"store": "deadbeef00"}]
)
def test_an_interrupted_submission_is_known_by_more_than_its_tag(tmp_path: Path, changes: dict[str, object]) -> None:
    scene = Scene(tmp_path)
    store, now = scene.engine.store, scene.clock.now()
    scene.cluster.submit(scene.spec)
    old = scene.cluster.job("1")
    written = store.write_call(Call(0, None, "resubmit_job", {"job": "1"}, "", "cli:bob", now, CallStatus.PENDING), kind="resubmit")
    store.set_targets(written.id, {"jobs": ["1"], "runs": [run_of(old)]}, preview="sbatch")
    store.write_decision(written.id, Decision(Verdict.ALLOW, "approved", "cli:bob", now))
    store.move_call(written.id, CallStatus.PENDING, CallStatus.INTENT)
    own = replace(old, id="2", comment=tag_of(store.store_id, None, written.id), submitted=now)
    assert restart_of(store, own) is not None
    if changes.pop("early", False):
        changes["submitted"] = now - timedelta(minutes=5)
    if other := changes.pop("store", None):
        changes["comment"] = tag_of(str(other), None, written.id)
    assert restart_of(store, replace(own, **changes)) is None  # type: ignore[arg-type]


def test_another_users_job_with_the_victims_tag_is_not_booked_as_its_restart(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.cluster.submit(scene.spec)
    scene.watch(80)
    store = scene.engine.store
    call = next(one for one in store.calls() if one.tool == "resubmit_job")
    forged = JobSpec(
        "llm", "#!/bin/sh\n", work_dir=tmp_path, user="mallory", comment=tag_of(store.store_id, call.incident, call.id)
    )
    copy = scene.cluster.job(scene.cluster.submit(forged))
    assert parent_of(store, copy) is None
    outcome = store.outcome(call.id)
    assert outcome is not None
    assert outcome.value["job"] != copy.id


def test_stores_never_have_the_same_id_and_a_tag_names_one(tmp_path: Path) -> None:
    ids = set()
    for number in range(20):
        (tmp_path / str(number)).mkdir()
        ids.add(Scene(tmp_path / str(number)).engine.store.store_id)
    assert len(ids) == 20
    (tag,) = tags_in(f"for the paper {tag_of(min(ids), 3, 4)}")
    assert (tag.store, tag.incident, tag.call) == (min(ids), 3, 4)
    assert without_tags(f"for {tag} the paper nightshift:1:2") == "for the paper"


@pytest.mark.parametrize(
    ("reason", "is_ours"),
    [
        ("{tag} x", True),
        ("{old} x", True),
        ("x {tag}", False),
        ("{foreign} x", False),
        ("nightshift:0:77 x", False),
        ("nightshift: by hand", False),
        ("bob: disk", False),
    ],
)
def test_a_cordon_is_ours_only_by_a_call_on_that_node(tmp_path: Path, reason: str, is_ours: bool) -> None:
    store = Scene(tmp_path).engine.store
    call = Call(0, None, "cordon_node", {"node": "node01"}, "", "cli:bob", store.clock.now(), CallStatus.DONE)
    number = store.write_call(call, kind="cordon").id
    tags = {
        "tag": tag_of(store.store_id, None, number),
        "old": f"nightshift:0:{number}",
        "foreign": tag_of("deadbeef00", None, number),
    }
    assert owns_cordon(store, "node01", reason.format(**tags)) is is_ours
    assert not owns_cordon(store, "node02", reason.format(**tags))


def test_no_store_overwrites_the_cordon_of_another() -> None:
    with pytest.raises(ToolError, match="another store"):
        must_cordon("n1", "nightshift:deadbeef00:1:2 ecc", "nightshift:feedbeef00:1:2 ecc")
    assert must_cordon("n1", "nightshift:deadbeef00:1:2 ecc", "nightshift:deadbeef00:1:2 ecc until=2026-03-02T12:00:00Z by=bob")


def test_the_cordon_of_another_store_is_left_alone_and_told_of(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    reason = "nightshift:deadbeef00:1:2 ecc until=2026-01-01T00:00:00Z by=bob"
    scene.cluster.set_cordon("node05", reason)
    scene.watch(130)
    assert next(one.reason for one in scene.cluster.nodes() if one.name == "node05") == reason
    assert any("deadbeef00" in one.text for one in scene.engine.watcher.trouble)


def test_one_jobs_fault_costs_no_other_its_incident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path)
    scene.cluster.plan("bad", Run(fails_at=1, lines=("boom",)))
    scene.cluster.submit(JobSpec("bad", "#!/bin/sh\n", work_dir=tmp_path / "bad"))
    scene.cluster.submit(scene.spec)
    whole = scene.engine.diagnose

    def failing(incident: int) -> object:
        if scene.engine.store.incident(incident).job == "1":
            raise RecursionError("nested too deeply")
        return whole(incident)

    monkeypatch.setattr(scene.engine, "diagnose", failing)
    scene.clock.sleep(70)
    scene.watch(150)
    about = {one.job: one for one in scene.engine.store.incidents()}
    assert about["1"].state is IncidentState.ESCALATED
    assert "RecursionError" in about["1"].note
    assert about["2"].state is IncidentState.RECOVERED


def test_an_event_that_cannot_be_opened_is_tried_again_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene(tmp_path)
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(90)
    monkeypatch.setattr(scene.engine, "parents", lambda store, job: 1 // 0)
    assert scene.engine.look() == []
    assert ["ZeroDivisionError" in one.text for one in scene.engine.taken_troubles()] == [True]
    monkeypatch.undo()
    assert [one.job for one in scene.engine.look()] == ["1"]


@pytest.mark.parametrize(
    ("nodes", "jobs", "runs", "kind", "waits"),
    [
        (("node02",), (), (), "cordon", True),
        (("node03",), (), (), "cordon", False),
        ((), ("1",), (), "cancel", True),
        ((), ("5",), ("run-x",), "resubmit", True),
        ((), ("5",), ("run-y",), "resubmit", False),
    ],
)
def test_an_unfinished_change_excludes_every_other_of_its_target(
    tmp_path: Path, nodes: tuple[str, ...], jobs: tuple[str, ...], runs: tuple[str, ...], kind: str, waits: bool
) -> None:
    scene = Scene(tmp_path)
    store, now = scene.engine.store, scene.clock.now()
    begun = store.write_call(Call(0, None, "resubmit_job", {}, "", "watch", now, CallStatus.INTENT), kind="resubmit")
    store.set_targets(begun.id, {"nodes": ["node02"], "jobs": ["1"], "runs": ["run-x"]}, preview="sbatch")
    scene.clock.sleep(2)
    call = store.write_call(Call(0, None, "cordon_node", {}, "", "cli:bob", now, CallStatus.PENDING), kind=kind)
    reach = Reach(Targets((), nodes, (), ()), (), jobs, {}, runs)
    if waits:
        with pytest.raises(TargetBusy, match=r"watch is making call 1 on .*, 2 s ago .*approval is kept"):
            must_be_alone(store, call, kind, reach)
        store.write_outcome(Outcome(begun.id, False, None, "no", now))
    must_be_alone(store, call, kind, reach)


def test_an_approval_whose_change_stands_withdraws_itself(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    store, now = scene.engine.store, scene.clock.now()
    numbers = []
    for node in ("node05", "node99"):
        given = {"node": node, "reason": "ecc", "hours": 24.0}
        call = store.write_call(Call(0, None, "cordon_node", given, "", "playbook:p", now, CallStatus.PENDING), kind="cordon")
        numbers.append(call.id)
        store.park(call.id, Decision(Verdict.ASK, "cooldown", "policy", now), now + timedelta(days=1))
    scene.cluster.set_cordon("node05", "bob: disk")
    scene.engine.make_allowed()
    assert store.approvals() == []
    stands, gone = (store.outcome(number) for number in numbers)
    assert stands is not None
    assert gone is not None
    assert (stands.ok, stands.value["cordoned"], gone.ok) == (True, False, False)
    assert "node99" in gone.error
    assert store.verify() is None
    assert EventKind.NODE_KEPT_OUT not in {one.kind for one in store.incidents()}
