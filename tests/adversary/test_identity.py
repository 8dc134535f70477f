"""Tags are claims: whatever a comment says, only the store's own call and the scheduler's own fields make a job ours."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.engine.gather import parent_of
from assistant.errors import TargetBusy, ToolError
from assistant.evaluation.files import RunFolder, write_json
from assistant.evaluation.jobs import by_number
from assistant.evaluation.jobs import tag_of as evaluation_tag
from assistant.gate.targets import Reach, must_be_alone
from assistant.policy import Targets
from assistant.ports import JumpingClock
from assistant.records import (
    Call,
    CallStatus,
    Decision,
    EventKind,
    IncidentState,
    Job,
    JobSpec,
    Outcome,
    Verdict,
    run_of,
    tag_of,
)
from assistant.records.jobs import tags_in, without_tags
from assistant.recover.identity import lease, owns_cordon, restart_of
from assistant.schedulers.local_jobs import must_cordon
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.store import Store
from assistant.tooling import Context
from assistant.tools.jobs import requeue_job, requeue_stands
from assistant.tools.resubmit import _gives_way, resubmit_job
from tests.scenarios.scene import START, Scene

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


def test_a_forged_comment_gives_a_failed_job_an_incident_like_any_other(tmp_path: Path) -> None:
    scene = Scene(tmp_path, nodes=len(FORGED) + 2)
    forged = {}
    for comment in FORGED:
        text = comment.replace("%s", scene.engine.store.store_id)
        spec = JobSpec("evil", "#!/bin/sh\n", work_dir=tmp_path / "evil", user="mallory", comment=text)
        scene.cluster.plan("evil", SimulatedRun(fails_at=1, lines=("RuntimeError: boom",)))
        forged[scene.cluster.submit(spec)] = comment
    scene.cluster.plan("llm", SimulatedRun(fails_at=1))
    victim = scene.cluster.submit(scene.spec)
    scene.clock.sleep(75)
    about = {one.job: one for one in scene.engine.look()}
    assert set(about) == {victim, *forged}
    assert {job: one.parent for job, one in about.items() if one.parent is not None} == {}
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
        with Store(tmp_path / f"{number}.db", JumpingClock(START)) as store:
            ids.add(store.store_id)
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
    scene.cluster.plan("bad", SimulatedRun(fails_at=1, lines=("boom",)))
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


@pytest.mark.parametrize(
    ("changes", "is_ours"),
    [
        ({}, True),
        ({"comment": "for the paper {tag}"}, True),
        ({"work_dir": None}, True),
        ({"user": "mallory"}, False),
        ({"name": "evaluate-metric"}, False),
        ({"name": "llm"}, False),
        ({"work_dir": Path("/elsewhere")}, False),
        ({"submitted": START - timedelta(minutes=5)}, False),
        ({"submitted": None}, False),
        ({"comment": "nightshift-evaluate:other:1"}, False),
        ({"comment": "nightshift-evaluate:{run}:2"}, False),
        ({"comment": "nightshift-evaluate:{run}:" + "9" * 5_000}, False),
        ({"comment": "nightshift-evaluate:{run}:\u0661"}, False),
    ],
)
def test_a_job_of_an_evaluation_is_known_by_more_than_its_comment(
    tmp_path: Path, changes: dict[str, object], is_ours: bool
) -> None:
    folder = RunFolder(tmp_path / "run7")
    write_json(folder.job(1) / "job.json", {"kind": "trial", "number": 1, "at": START.timestamp()})
    cluster = Scene(tmp_path).cluster
    tag = evaluation_tag(folder.id, 1)
    own = cluster.job(cluster.submit(JobSpec("evaluate-trial", "#!/bin/sh\n", work_dir=folder.path, comment=tag)))
    if "comment" in changes:
        changes["comment"] = str(changes["comment"]).format(tag=tag, run=folder.id)
    forged = replace(own, **changes)  # type: ignore[arg-type]
    assert (by_number([forged], folder) == {1: forged}) is is_ours
    both = replace(forged, id="99")
    assert by_number([own, both], folder).get(1) == (both if is_ours else own)


def test_a_renewal_that_stands_is_not_asked_about(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    store, now = scene.engine.store, scene.clock.now()
    done = store.write_call(Call(0, None, "cordon_node", {"node": "node05"}, "", "cli:bob", now, CallStatus.DONE), kind="cordon")
    tag = tag_of(store.store_id, None, done.id)
    cases = {"stands": 48, "due": 2, "gone": 0}
    for case, left_h in cases.items():
        node = {"stands": "node05", "due": "node05", "gone": "node03"}[case]
        reason = lease(tag, "ecc", "cli:bob", now, left_h).render() if left_h else ""
        if reason:
            scene.cluster.set_cordon(node, reason)
        given = {"node": node, "hours": 24.0}
        call = store.write_call(Call(0, None, "renew_cordon", given, "", "watch", now, CallStatus.PENDING), kind="renew")
        asked = store.park(call.id, Decision(Verdict.ASK, "mode.propose", "policy", now), now + timedelta(days=1))
        scene.engine.make_allowed()
        outcome = store.outcome(call.id)
        waits = [one.id for one in store.approvals()]
        assert (asked in waits, outcome is not None and outcome.ok) == {
            "stands": (False, True),
            "due": (True, False),
            "gone": (False, False),
        }[case]


class Requeueing:
    """A simulated cluster that can queue a job again under its own id, as Slurm can."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def requeue(self, job_id: str, *, hold: bool = False, exclude: Sequence[str] = (), comment: str = "") -> None:
        self._cluster.set_requeued(job_id, hold=hold)

    def command_lines(self, command: str, /, *arguments: Any, **named: Any) -> tuple[str, ...]:
        if command == "requeue":
            return (f"scontrol requeue {arguments[0]}",)
        return self._cluster.command_lines(command, *arguments, **named)


def test_a_requeue_that_stands_is_not_asked_about_and_never_doubles_a_run(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.cluster.plan("llm", SimulatedRun(fails_at=1), SimulatedRun(steps=10_000))
    old = scene.cluster.submit(scene.spec)
    scene.clock.sleep(75)
    cluster: Any = Requeueing(scene.cluster)
    context = Context(cluster, scene.cluster, scene.clock, random.Random(0), scene.engine.store, tag="")
    assert requeue_stands(context, old) is None
    restart = scene.cluster.submit(scene.spec)
    with pytest.raises(ToolError, match="same run"):
        requeue_stands(context, old)
    with pytest.raises(ToolError, match="same run"):
        requeue_job(context, old)
    assert scene.cluster.job(old).state.ended
    scene.cluster.cancel(restart)
    held = replace(scene.spec, hold=True)
    waiting = scene.cluster.submit(held)
    stands = requeue_stands(context, waiting)
    assert stands is not None


def test_a_restart_gives_way_to_its_old_job_that_was_queued_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.cluster.plan("llm", SimulatedRun(fails_at=1), SimulatedRun(steps=100_000), SimulatedRun(steps=100_000))
    old = scene.cluster.submit(scene.spec)
    submit = scene.cluster.submit

    def overtaken(spec: JobSpec) -> str:
        new = submit(spec)
        scene.cluster.set_requeued(old)  # by its owner, while sbatch works
        return new

    scene.clock.sleep(75)
    scene.cluster.submit = overtaken  # type: ignore[method-assign]
    context = Context(
        scene.cluster, scene.cluster, scene.clock, random.Random(0), scene.engine.store, tag=tag_of("deadbeef00", None, 1)
    )
    with pytest.raises(ToolError, match="queued again under its own id"):
        resubmit_job(context, old, "none")
    assert [(job.id, job.held) for job in scene.cluster.jobs() if not job.state.ended] == [(old, False), ("2", True)]


@pytest.mark.parametrize(
    ("other", "claim", "first"),
    [("7", "9", False), ("9", "7", True), ("67043327", "1", False), ("1", "67043327", True), ("12_3", "12", False)],
)
def test_of_two_claims_the_one_given_first_is_released_also_where_ids_begin_again(
    tmp_path: Path, other: str, claim: str, first: bool
) -> None:
    cluster = Scene(tmp_path).cluster
    spec = JobSpec("llm", "#!/bin/sh\n", work_dir=tmp_path, comment="nightshift:deadbeef00:1:2", hold=True)
    assert _gives_way(replace(cluster.job(cluster.submit(spec)), id=other), claim) is first
