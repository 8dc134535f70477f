"""Ids that are given again, copies of the store, and the word of one user make nothing ours and end nothing of others."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from assistant.errors import ToolError
from assistant.gate.targets import reach_of
from assistant.policy.terms import Protected
from assistant.ports import JumpingClock, Scheduler
from assistant.records import (
    Call,
    Citation,
    Job,
    NodeFinding,
    tag_of,
)
from assistant.tooling import Context
from assistant.tools.jobs import cancel_job
from assistant.tools.nodes import _blamed_before
from assistant.tools.resubmit import resubmit_job
from tests.scenarios.scene import START, Scene


@pytest.fixture
def restarted(tmp_path: Path) -> tuple[Scene, Job, Call]:
    """Return a scene whose failed job was brought back, the new job, and the call that submitted it."""
    scene = Scene(tmp_path)
    scene.cluster.submit(scene.spec)
    scene.watch(100)
    call = next(one for one in scene.engine.store.calls() if one.tool == "resubmit_job")
    return scene, scene.cluster.job("2"), call


def test_the_undo_of_a_restart_ends_no_job_that_got_its_id(
    restarted: tuple[Scene, Job, Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, job, call = restarted
    context = Context(
        scene.cluster, scene.cluster, scene.clock, random.Random(1), scene.engine.store, incident=call.incident, by="cli:root"
    )
    real = scene.cluster.job
    later = scene.clock.now() + timedelta(days=1)
    for changes in (
        {"user": "mallory"},
        {"name": "other"},
        {"work_dir": Path("/elsewhere")},
        {"comment": ""},
        {"comment": job.comment.replace(":1:", ":2:")},
        {"submitted": later},
    ):
        monkeypatch.setattr(scene.cluster, "job", lambda number, changes=changes: replace(real(number), **changes))
        with pytest.raises(ToolError, match=f"not the one that call {call.id} submitted"):
            cancel_job(context, job.id)
    monkeypatch.setattr(scene.cluster, "job", real)
    assert not scene.cluster.job(job.id).state.ended
    assert cancel_job(context, job.id)["cancelled"]


@pytest.mark.parametrize(("ended", "user", "made_again"), [(True, "", False), (False, "", False), (True, "mallory", True)])
def test_a_store_that_was_restored_makes_no_restart_twice(
    restarted: tuple[Scene, Job, Call], monkeypatch: pytest.MonkeyPatch, ended: bool, user: str, made_again: bool
) -> None:
    scene, job, call = restarted
    if ended:
        scene.cluster.cancel(job.id)
    listed = scene.cluster.user_jobs
    if user:
        others = lambda name: [replace(one, user=user) if one.id == job.id else one for one in listed(name)]  # noqa: E731
        monkeypatch.setattr(scene.cluster, "user_jobs", others)
    tag = tag_of(scene.engine.store.store_id, call.incident, call.id)
    # the older copy knows of no outcome; nothing but the scheduler does
    monkeypatch.setattr(type(scene.engine.store), "outcome", lambda *_: None)
    context = Context(scene.cluster, scene.cluster, scene.clock, random.Random(1), scene.engine.store, tag=tag, by="cli:root")
    before = len(scene.cluster.jobs())
    if made_again:
        resubmit_job(context, "1")
    else:
        # the call's own row is there, without its outcome: what it submitted is its answer
        assert resubmit_job(context, "1")["job"] == job.id
        # without the row nothing but the tag tells that it was made
        monkeypatch.setattr("assistant.tools.restarts.restart_of", lambda *_: None)
        with pytest.raises(ToolError, match="was not submitted again"):
            resubmit_job(context, "1")
    assert len(scene.cluster.jobs()) - before == made_again


@pytest.mark.parametrize(
    ("users", "witness", "enough"),
    [
        (("mallory", "mallory", "alice"), "job.log", False),
        (("mallory", "mallory", "alice"), "dmesg.log", True),
        (("mallory", "alice", "alice"), "job.log", True),
        (("alice", "alice", "alice"), "job.log", True),
        (("", "mallory", "alice"), "job.log", False),
        (("mallory", "", "alice"), "job.log", False),
    ],
)
def test_the_word_of_one_user_twice_is_one_witness(users: tuple[str, str, str], witness: str, enough: bool) -> None:
    """Users of the earlier job, of this one and of one that runs elsewhere; an empty user was forgotten by the scheduler."""
    known = {str(number): user for number, user in enumerate(users, 1) if user}
    lines = (Citation(witness, 1, "Xid 79", "node"),)
    blamed = SimpleNamespace(nodes=(NodeFinding("n1", "it says so", lines),), root_cause=())

    def job(number: str) -> SimpleNamespace:
        if number not in known:
            raise ToolError("forgotten")
        return SimpleNamespace(user=known[number])

    context = SimpleNamespace(
        incident=2,
        clock=JumpingClock(START),
        scheduler=SimpleNamespace(job=job, jobs=lambda: [SimpleNamespace(user=user) for user in known.values()]),
        history=SimpleNamespace(
            sightings=lambda since, node: [SimpleNamespace(blamed=True, incident=1)],
            incident=lambda number: SimpleNamespace(job=str(number)),
            diagnosis=lambda number: blamed,
        ),
    )
    assert _blamed_before(cast("Context", context), "n1") is enough


def test_who_protects_an_array_protects_its_tasks(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.cluster.submit(scene.spec)
    job = scene.cluster.job("1")
    for own in ("12_3", "12+1", "12_[3-5]"):
        scheduler = SimpleNamespace(nodes=tuple, job=lambda _, own=own: replace(job, id=own))
        targets = reach_of({"job": own}, cast("Scheduler", scheduler)).targets
        assert Protected("x", jobs=("12",)).covers(targets, "cancel") == own
        assert Protected("x", jobs=("1",)).covers(targets, "cancel") is None
