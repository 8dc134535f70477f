"""Held restarts after a kill or a refusal: each is released by its call or withdrawn, in an order that survives a crash."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.engine.reconciliation import withdraw_orphaned_jobs
from assistant.errors import ChangesStopped, Denied, Parked
from assistant.gate import Gate, Park
from assistant.policy import ChangeLimits, Mode, Policy
from assistant.records import CallStatus, JobState, Verdict
from tests.scenarios.scene import Killed, Scene

STEP: dict[str, Any] = {
    "tool_name": "resubmit_job",
    "arguments": {"job": "1", "checkpoint": "last_healthy"},
    "why": "it failed",
    "by": "playbook:p",
    "incident": 1,
    "step": "restart",
}


class Crash:
    """A scene in which the process was killed between the submission of a restart and its release."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, mode: Mode = Mode.ACT) -> None:
        self.scene = Scene(folder)
        self.cluster, self.store = self.scene.cluster, self.scene.engine.store
        self.cluster.submit(self.scene.spec)
        self.scene.clock.sleep(75)
        (self.incident,) = self.scene.engine.look()
        self.statuses: list[CallStatus] = []
        """Of the call, at each withdrawal."""
        if mode is Mode.PROPOSE:
            with pytest.raises(Parked):
                self.gate(Policy(mode=mode)).call(**STEP)
            assert self.store.answer(self.store.approvals()[0].id, Verdict.ALLOW, "cli:bob")
        monkeypatch.setattr(self.cluster, "release", self._killed)
        with pytest.raises(Killed):
            self.gate(Policy(mode=mode)).call(**STEP)
        monkeypatch.undo()
        (self.call,) = (call for call in self.store.calls() if call.tool == "resubmit_job")
        (self.claim,) = (job for job in self.cluster.jobs() if job.held)
        withdraw = self.cluster.withdraw

        def noted(job_id: str) -> None:
            self.statuses.append(self.store.call(self.call.id).status)
            withdraw(job_id)

        monkeypatch.setattr(self.cluster, "withdraw", noted)

    def _killed(self, job_id: str) -> None:
        raise Killed

    def gate(self, policy: Policy) -> Gate:
        """Return the gate of a new process."""
        return Gate(self.store, self.scene.engine.gate._context_for, policy, Park(self.store, expires_after_s=86_400))

    def ended(self) -> tuple[CallStatus, JobState]:
        return self.store.call(self.call.id).status, self.cluster.job(self.claim.id).state


@pytest.fixture
def crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crash:
    return Crash(tmp_path, monkeypatch)


@pytest.fixture
def approved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crash:
    return Crash(tmp_path, monkeypatch, Mode.PROPOSE)


def test_a_claim_whose_call_is_refused_after_a_crash_is_withdrawn_before_the_refusal_is_written(crash: Crash) -> None:
    with pytest.raises(Denied):
        crash.gate(Policy(mode=Mode.ACT, hard=ChangeLimits(per_hour=0))).call(**STEP)
    assert crash.statuses == [CallStatus.INTENT]
    assert crash.ended() == (CallStatus.DENIED, JobState.CANCELLED)


def test_a_claim_whose_release_is_refused_right_before_the_command_is_withdrawn(
    crash: Crash, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = crash.gate(Policy(mode=Mode.ACT))
    stricter = crash.gate(Policy(mode=Mode.ACT, hard=ChangeLimits(per_hour=0)))
    whole = gate._must_still_be_allowed

    def edited(*given: Any) -> None:
        gate.in_force = stricter.in_force
        whole(*given)

    monkeypatch.setattr(gate, "_must_still_be_allowed", edited)
    with pytest.raises(Denied):
        gate.call(**STEP)
    assert crash.statuses == [CallStatus.INTENT]
    assert crash.ended() == (CallStatus.DENIED, JobState.CANCELLED)


def test_a_kill_between_withdrawal_and_refusal_leaves_a_call_that_comes_again(
    crash: Crash, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = crash.gate(Policy(mode=Mode.ACT, hard=ChangeLimits(per_hour=0)))
    move = crash.store.move_call

    def killed(call: int, before: CallStatus, after: CallStatus, **more: Any) -> bool:
        if after is CallStatus.DENIED:
            raise Killed
        return move(call, before, after, **more)

    monkeypatch.setattr(crash.store, "move_call", killed)
    with pytest.raises(Killed):
        refusing.call(**STEP)
    assert crash.ended() == (CallStatus.INTENT, JobState.CANCELLED)
    monkeypatch.setattr(crash.store, "move_call", move)
    outcome = crash.gate(Policy(mode=Mode.ACT)).call(**STEP)
    assert outcome.ok
    assert [job.id for job in crash.cluster.jobs() if not job.state.ended] == [outcome.value["job"]]


@pytest.mark.parametrize("waits", [0, 3])
def test_an_approved_claim_stays_held_while_the_kill_switch_is_set_and_is_released_when_it_is_lifted(
    approved: Crash, tmp_path: Path, waits: int
) -> None:
    switch = tmp_path / "stop"
    switch.touch()
    policy = Policy(mode=Mode.PROPOSE, kill_switch=(switch,))
    for _ in range(1 + waits):
        with pytest.raises(ChangesStopped):
            approved.gate(policy).call(**STEP)
        approved.scene.clock.sleep(60)
        approved.scene.engine.look()
        approved.scene.engine.make_allowed()
        assert approved.ended() == (CallStatus.PENDING, JobState.PENDING)
        assert approved.cluster.job(approved.claim.id).held
    assert approved.statuses == []
    switch.unlink()
    outcome = approved.gate(policy).call(**STEP)
    assert (outcome.ok, outcome.value["job"]) == (True, approved.claim.id)
    assert approved.ended() == (CallStatus.DONE, JobState.RUNNING)
    assert approved.store.verify() is None


def test_an_approved_claim_is_withdrawn_under_the_kill_switch_when_its_restart_is_due_no_more(
    approved: Crash, tmp_path: Path
) -> None:
    switch = tmp_path / "stop"
    switch.touch()
    policy = Policy(mode=Mode.PROPOSE, kill_switch=(switch,))
    with pytest.raises(ChangesStopped):
        approved.gate(policy).call(**STEP)
    approved.scene.clock.sleep(5)
    by_hand = approved.cluster.submit(approved.scene.spec)
    outcome = approved.gate(policy).call(**STEP)
    assert not outcome.ok
    assert f"job {by_hand}" in outcome.error
    assert approved.ended() == (CallStatus.FAILED, JobState.CANCELLED)


def test_a_claim_that_nobody_approved_is_withdrawn_under_the_kill_switch(crash: Crash, tmp_path: Path) -> None:
    switch = tmp_path / "stop"
    switch.touch()
    with pytest.raises(Denied, match="kill_switch"):
        crash.gate(Policy(mode=Mode.ACT, kill_switch=(switch,))).call(**STEP)
    assert crash.statuses == [CallStatus.INTENT]
    assert crash.ended() == (CallStatus.DENIED, JobState.CANCELLED)


@pytest.mark.parametrize("answer", [Verdict.ALLOW, Verdict.DENY])
def test_an_approval_outlasts_the_kill_switch_and_its_claim_goes_with_the_answer(
    crash: Crash, tmp_path: Path, answer: Verdict
) -> None:
    with pytest.raises(Parked):
        crash.gate(Policy(mode=Mode.PROPOSE)).call(**STEP)
    (asked,) = crash.store.approvals()
    switch = tmp_path / "stop"
    switch.touch()
    stopped = Policy(mode=Mode.PROPOSE, kill_switch=(switch,))
    assert crash.store.answer(asked.id, answer, "cli:bob")
    with pytest.raises(Denied):
        crash.gate(stopped).call(**STEP)
    assert crash.cluster.job(crash.claim.id).held
    switch.unlink()
    withdraw_orphaned_jobs(crash.store, crash.cluster, [crash.claim])
    if answer is Verdict.ALLOW:
        assert crash.gate(Policy(mode=Mode.PROPOSE)).call(**STEP).value["job"] == crash.claim.id
    assert (
        crash.ended()
        == {
            Verdict.ALLOW: (CallStatus.DONE, JobState.RUNNING),
            Verdict.DENY: (CallStatus.DENIED, JobState.CANCELLED),
        }[answer]
    )


@pytest.mark.parametrize(
    ("changes", "goes"),
    [
        ({}, True),
        ({"user": "mallory"}, False),
        ({"name": "other"}, False),
        ({"work_dir": Path("/elsewhere")}, False),
        ({"comment": "nightshift:deadbeef00:1:1"}, False),
        ({"comment": ""}, False),
        ({"later_s": 3_600}, False),
        ({"submitted": None}, False),
        ({"held": False}, False),
    ],
)
def test_only_a_held_job_of_a_call_that_ended_without_it_is_withdrawn(crash: Crash, changes: dict[str, Any], goes: bool) -> None:
    assert withdraw_orphaned_jobs(crash.store, crash.cluster, [crash.claim]) == [], "its call comes again"
    crash.store.set_call_status(crash.call.id, CallStatus.DENIED)
    job = crash.claim
    if "later_s" in changes:
        job = replace(job, submitted=crash.scene.clock.now() + timedelta(seconds=changes["later_s"]))
    elif "held" in changes:
        crash.cluster.release(job.id)
    else:
        job = replace(job, **changes)
    assert (withdraw_orphaned_jobs(crash.store, crash.cluster, [job]) == [job.id]) is goes


def test_the_watch_withdraws_a_stray_in_its_next_pass_and_leaves_a_restart_that_a_person_holds(crash: Crash) -> None:
    outcome = crash.gate(Policy(mode=Mode.ACT)).call(**STEP)
    engine, cluster = crash.scene.engine, crash.cluster
    restart = cluster.job(outcome.value["job"])
    stray = cluster.submit(replace(crash.scene.spec, hold=True, comment=restart.comment))
    cluster._jobs[restart.id] = replace(restart, state=JobState.PENDING, nodes=(), started=None, reason="JobHeldUser")
    engine.look()
    engine.make_allowed()
    assert (cluster.job(stray).state, cluster.job(restart.id).state) == (JobState.CANCELLED, JobState.PENDING)
