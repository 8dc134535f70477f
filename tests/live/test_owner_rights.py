"""Jobs of other users on real Slurm, Nightshift as root: their files change with their rights, their holds stay theirs."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from assistant.errors import ToolError
from assistant.gate import AnswersFrom, Gate
from assistant.policy import Mode, Policy
from assistant.ports import SystemClock
from assistant.records import JobSpec, JobState, hold_comment
from assistant.recover.identity import is_held_by
from assistant.schedulers.slurm import SlurmScheduler
from assistant.store import Store
from assistant.tooling import Context, find_tool
from tests.live.conftest import DevCluster, until
from tests.live.test_slurm_rights import acting_as

pytestmark = pytest.mark.live

ALICE, BOB = "daemon", "games"
"""Users that this machine and the nodes have alike."""
SAVES = """#!/bin/bash
#NIGHTSHIFT checkpoints={saved} resumes=tracker
umask 027
for step in 20 40 60; do
  mkdir -p {saved}/iter_$(printf %07d $step)/mp_rank_00
  head -c 9000 /dev/zero > {saved}/iter_$(printf %07d $step)/mp_rank_00/model_optim_rng.pt
  printf %s $step > {saved}/latest_checkpointed_iteration.txt
done
exit 1
"""
TRACKER = "latest_checkpointed_iteration.txt"


@pytest.fixture
def slurm(devcluster: DevCluster) -> Iterator[SlurmScheduler]:
    yield devcluster.scheduler(lowest_uid=1)
    devcluster.settle()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "s.db", SystemClock()) as made:
        yield made


def folder_of(devcluster: DevCluster, name: str, user: str, mode: int) -> Path:
    made = devcluster.shared / name
    made.mkdir()
    os.chown(made, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
    made.chmod(mode)
    return made


def context_of(slurm: SlurmScheduler, store: Store, tag: str = "") -> Context:
    no_nodes: Any = None
    return Context(slurm, no_nodes, SystemClock(), Random(0), store, tag=tag)


def gate_of(slurm: SlurmScheduler, store: Store) -> Gate:
    return Gate(store, lambda _, tag: context_of(slurm, store, tag), Policy(mode=Mode.ACT), AnswersFrom([]))


def failed(slurm: SlurmScheduler, user: str, folder: Path, saved: Path) -> str:
    spec = JobSpec("saves", SAVES.format(saved=saved), work_dir=folder, log="%j.log", user=user)
    job = slurm.submit(spec)
    until(lambda: slurm.job(job).state.ended, 40)
    assert slurm.job(job).state is JobState.FAILED
    return job


def owners(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in folder.rglob("*")}


def test_her_checkpoints_are_set_aside_and_put_back_with_her_rights(
    devcluster: DevCluster, slurm: SlurmScheduler, store: Store
) -> None:
    home = folder_of(devcluster, "alice-closed", ALICE, 0o700)
    saved, gate = home / "ckpt", gate_of(slurm, store)
    job = failed(slurm, ALICE, home, saved)
    assert slurm.job(job).account == ALICE
    given = {"job": job, "paths": [str(saved / "iter_0000060")]}
    aside = gate.call("set_aside_checkpoints", given, why="refused", by="cli:root")
    assert aside.ok, aside.error
    made = gate.call("set_tracker", {"job": job, "tracker": str(saved / TRACKER), "text": "40"}, why="x", by="cli:root")
    assert made.ok, made.error
    assert (saved / TRACKER).read_text() == "40"
    assert (saved / "nightshift-refused/iter_0000060/mp_rank_00/model_optim_rng.pt").is_file()
    assert owners(saved) == {pwd.getpwnam(ALICE).pw_uid}
    assert (saved / TRACKER).stat().st_mode & 0o777 == 0o640
    for call in (made.call, aside.call):
        undone = gate.undo(call, "cli:root")
        assert undone.ok, undone.error
    assert (saved / TRACKER).read_text() == "60"
    assert (saved / "iter_0000060").is_dir()
    assert owners(saved) == {pwd.getpwnam(ALICE).pw_uid}


@pytest.mark.parametrize("how", ["link", "shared", "sticky"])
def test_what_is_bobs_stays_where_a_job_of_alice_names_it(
    devcluster: DevCluster, slurm: SlurmScheduler, store: Store, how: str
) -> None:
    home = folder_of(devcluster, f"alice-{how}", ALICE, 0o755)
    bobs = folder_of(devcluster, f"bob-{how}", BOB, 0o1777 if how == "sticky" else 0o777)
    if how == "link":
        saved = home / "ckpt"
        failed(slurm, BOB, bobs, bobs)
        saved.symlink_to(bobs)
    elif how == "sticky":
        saved = bobs
        failed(slurm, BOB, bobs, bobs)
    else:
        home.chmod(0o777)
        saved = home
        failed(slurm, BOB, bobs, saved)
    quick = slurm.submit(JobSpec("names", "#!/bin/bash\nexit 1\n", work_dir=home, log="%j.log", user=ALICE))
    until(lambda: slurm.job(quick).state.ended, 40)
    before = {path: path.lstat().st_mtime_ns for path in saved.resolve().rglob("iter_*")} | {saved: 0}
    gate = gate_of(slurm, store)
    for tool, given in (
        ("set_aside_checkpoints", {"paths": [str(saved / "iter_0000060")]}),
        ("set_tracker", {"tracker": str(saved / TRACKER), "text": "40"}),
    ):
        outcome = gate.call(tool, {"job": quick, **given}, why="x", by="cli:root")
        assert not outcome.ok
        assert "belongs to uid" in outcome.error or "may not be" in outcome.error, outcome.error
    assert (saved / TRACKER).read_text() == "60"
    assert {path: path.lstat().st_mtime_ns for path in saved.resolve().rglob("iter_*")} | {saved: 0} == before
    assert not (saved / "nightshift-refused").exists()


@pytest.mark.parametrize("limit", ["no inode left", "read-only"])
def test_a_full_or_read_only_file_system_leaves_everything_as_it_was(
    devcluster: DevCluster, slurm: SlurmScheduler, store: Store, limit: str
) -> None:
    home = folder_of(devcluster, f"alice-{limit[:4].strip()}", ALICE, 0o755)
    job = failed(slurm, ALICE, home, home / "ckpt")
    full = folder_of(devcluster, f"alice-{limit[:4].strip()}-fs", ALICE, 0o755)
    alice = pwd.getpwnam(ALICE)
    options = f"size=1m,nr_inodes=6,mode=755,uid={alice.pw_uid},gid={alice.pw_gid}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(full)], check=True)
    try:
        part = full / "iter_0000060/mp_rank_00/model_optim_rng.pt"
        part.parent.mkdir(parents=True)
        part.write_bytes(b"\x80" + bytes(9000))
        (full / TRACKER).write_text("60")
        for path in (full / "iter_0000060", part.parent, part, full / TRACKER):
            os.chown(path, alice.pw_uid, alice.pw_gid)
        if limit == "read-only":
            subprocess.run(["mount", "-o", "remount,ro", str(full)], check=True)
        else:
            (full / "last").touch()
        gate = gate_of(slurm, store)
        for tool, given in (
            ("set_aside_checkpoints", {"paths": [str(full / "iter_0000060")]}),
            ("set_tracker", {"tracker": str(full / TRACKER), "text": "40"}),
        ):
            outcome = gate.call(tool, {"job": job, **given}, why="x", by="cli:root")
            assert not outcome.ok
            assert ("No space left" if limit == "no inode left" else "Read-only") in outcome.error
        assert (full / TRACKER).read_text() == "60"
        assert sorted(path.name for path in full.iterdir()) == sorted(
            ["iter_0000060", TRACKER, *(["last"] if limit == "no inode left" else [])]
        )
    finally:
        subprocess.run(["umount", str(full)], check=True)


def ended(slurm: SlurmScheduler, devcluster: DevCluster, name: str) -> str:
    home = folder_of(devcluster, name, ALICE, 0o755)
    job = slurm.submit(JobSpec(name, "#!/bin/bash\nexit 1\n", work_dir=home, log="%j.log", user=ALICE))
    until(lambda: slurm.job(job).state.ended, 40)
    return job


@pytest.mark.parametrize("who", [ALICE, "root"])
@pytest.mark.parametrize("tool", ["requeue_job", "requeue_ended_job"])
def test_a_hold_of_its_owner_or_of_an_administrator_is_never_released_or_ended(
    devcluster: DevCluster, slurm: SlurmScheduler, store: Store, tool: str, who: str
) -> None:
    job = ended(slurm, devcluster, f"held-{who}-{tool}")
    tag = f"nightshift:{store.store_id}:0:1"
    with acting_as(who):
        devcluster.run("scontrol", "requeuehold", job)
    until(lambda: slurm.job(job).requeued_held, 20)
    made, context = find_tool(tool), context_of(slurm, store, tag)
    with pytest.raises(ToolError, match="waits held"):
        made.run(context, job=job)
    assert made.take_back is not None
    made.take_back(context, tag, job=job)
    assert slurm.job(job).requeued_held
    outcome = gate_of(slurm, store).call(tool, {"job": job}, why="x", by="cli:root")
    assert not outcome.ok or outcome.value.get("state_before") == "pending", "what waits in the queue is left there"
    assert slurm.job(job).requeued_held


@pytest.mark.parametrize("tool", ["requeue_job", "requeue_ended_job"])
def test_an_owner_who_holds_the_job_between_look_and_command_keeps_it(
    devcluster: DevCluster, slurm: SlurmScheduler, store: Store, tool: str
) -> None:
    job = ended(slurm, devcluster, f"race-{tool}")
    tag = f"nightshift:{store.store_id}:0:1"
    requeue = slurm.requeue

    def overtaken(*given: Any, **named: Any) -> None:
        with acting_as(ALICE):
            devcluster.run("scontrol", "requeuehold", job)
        requeue(*given, **named)

    slurm.requeue = overtaken  # type: ignore[method-assign]
    made, context = find_tool(tool), context_of(slurm, store, tag)
    given = {"checkpoint": "none"} if tool == "requeue_ended_job" else {}
    with pytest.raises(ToolError, match="pending execution"):
        made.run(context, job=job, **given)
    assert made.take_back is not None
    made.take_back(context, tag, job=job)
    now = slurm.job(job)
    assert (now.requeued_held, tag in now.comment) == (True, False)


def test_its_own_hold_is_known_after_a_crash_and_released(devcluster: DevCluster, slurm: SlurmScheduler, store: Store) -> None:
    job = ended(slurm, devcluster, "crash")
    tag = f"nightshift:{store.store_id}:0:1"
    before = slurm.job(job)
    slurm.requeue(job, hold=True, comment=hold_comment(before.comment, tag, before.attempt + 1))
    until(lambda: is_held_by(slurm.job(job), tag), 20)
    assert not is_held_by(slurm.job(job), f"nightshift:{store.store_id}:0:2")
    assert find_tool("requeue_job").run(context_of(slurm, store, tag), job=job)["job"] == job
    until(lambda: not slurm.job(job).held, 20)
    until(lambda: slurm.job(job).state.ended, 60)
    with acting_as(ALICE):
        devcluster.run("scontrol", "requeuehold", job)
    until(lambda: slurm.job(job).requeued_held, 20)
    assert not is_held_by(slurm.job(job), tag), "a later attempt, held by its owner, with the old tag still there"
