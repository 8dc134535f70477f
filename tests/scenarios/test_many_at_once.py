"""Many failures at once on the simulated cluster: one incident and one message for one cause, and none for two."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from assistant.daemon.notifications import Notice, notices, superseded
from assistant.errors import Unavailable
from assistant.policy import Policy, load_policy
from assistant.policy.terms import ChangeLimits
from assistant.records import EventKind, Incident, IncidentState
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.watch.outages import members_of, shared_by
from tests.scenarios.scene import Scene

MISSING = (
    "Traceback (most recent call last):",
    '  File "/opt/train/data.py", line 41, in open_shard',
    '    return open(path, "rb")',
    "FileNotFoundError: [Errno 2] No such file or directory: '{}'",
)
STALE = ("OSError: [Errno 116] Stale file handle: '{}'",)
SHELL = ("/var/spool/slurmd/job00007/slurm_script: line 9: {}: No such file or directory",)


def lines(form: tuple[str, ...], path: Path) -> tuple[str, ...]:
    return tuple(line.format(path) for line in form)


class WideScene(Scene):
    """A scene whose policy lets more than six restarts go within an hour."""

    def policy(self) -> Policy:
        policy = load_policy()
        many = ChangeLimits(per_hour=100, per_day=200)
        kind = {**policy.kind, "resubmit": dataclasses.replace(policy.terms("resubmit"), soft=many, hard=many)}
        return dataclasses.replace(policy, mode=self.mode, kill_switch=(self.folder / "stop",), kind=kind, soft=many, hard=many)


def submit(scene: Scene, name: str, *runs: SimulatedRun) -> str:
    folder = scene.folder / name
    folder.mkdir(exist_ok=True)
    checkpoints = folder / "checkpoints"
    scene.cluster.plan(
        name, *(dataclasses.replace(run, checkpoints=checkpoints) for run in runs), SimulatedRun(checkpoints=checkpoints)
    )
    script = scene.spec.script.replace(str(scene.folder / "checkpoints"), str(checkpoints))
    return scene.cluster.submit(dataclasses.replace(scene.spec, name=name, script=script, work_dir=folder, nodes=1))


def losing(scene: Scene, path: Path, names: list[str], *, form: tuple[str, ...] = MISSING, at: int = 50) -> list[str]:
    return [
        submit(scene, name, SimulatedRun(fails_at=at + number % 3, lines=lines(form, path))) for number, name in enumerate(names)
    ]


def watched(scene: Scene, seconds: float, *, every: float = 10) -> None:
    """Let the watch make a pass every few seconds, also while nothing is open."""
    for _ in range(int(seconds / every)):
        scene.clock.sleep(every)
        scene.engine.tick(owner="watch")


def told(scene: Scene) -> list[Notice]:
    """What the operators are told of incidents, as one sink that sends every row would."""
    rows = scene.engine.store.audit_after(0, 100_000)
    return [
        one for one in superseded(list(notices(rows, scene.engine.store))) if one.incident is not None and one.about != "action"
    ]


def shared(scene: Scene) -> list[Incident]:
    return [one for one in scene.engine.store.incidents(limit=500) if one.kind is EventKind.OUTAGE]


def restarts(scene: Scene) -> list[datetime]:
    return sorted(call.at for call in scene.engine.store.calls() if call.tool == "resubmit_job" and call.status == "done")


def data_of(scene: Scene) -> Path:
    """A shared folder that does not exist (any more), below one that does."""
    (scene.folder / "shared").mkdir(exist_ok=True)
    return scene.folder / "shared" / "pile"


@pytest.mark.slow
def test_thirty_jobs_that_lose_one_path_are_one_incident_with_one_message_and_restart_apart(tmp_path: Path) -> None:
    scene = WideScene(tmp_path, nodes=32)
    data = data_of(scene)
    names = [f"team{number}" for number in range(30)]
    for number, name in enumerate(names):
        form = (MISSING, STALE, SHELL)[number % 3]  # three reasons of two categories
        losing(scene, data / f"shard_{number:05}.bin", [name], form=form)
    watched(scene, 160, every=20)
    (outage,) = shared(scene)
    assert outage.service == str(data)
    assert len(members_of(scene.engine.store.events(outage.id))) == 30
    assert [one.incident for one in told(scene)] == [outage.id]
    assert "30 jobs" in told(scene)[0].title
    assert restarts(scene) == []
    assert not [call for call in scene.engine.store.calls() if call.tool == "tell_owner"]
    data.mkdir()
    for number in range(30):
        (data / f"shard_{number:05}.bin").touch()
    watched(scene, 720, every=20)
    times = restarts(scene)
    assert len(times) == 30
    assert all((after - before).total_seconds() >= 20 for before, after in pairwise(times)), times
    assert shared(scene)[0].state is IncidentState.RECOVERED, shared(scene)[0].note
    assert {one.incident for one in told(scene)} == {outage.id}


class NightScene(Scene):
    """The shipped limits in act, and those for a shared cause that a site has added."""

    SHARED_CAUSE = ChangeLimits(per_hour=20, per_day=40)

    def policy(self) -> Policy:
        policy = load_policy()
        terms = dataclasses.replace(policy.terms("resubmit"), shared_cause=self.SHARED_CAUSE)
        kind = {**policy.kind, "resubmit": terms}
        return dataclasses.replace(policy, mode=self.mode, kill_switch=(self.folder / "stop",), kind=kind)


class ShippedScene(NightScene):
    """The shipped limits in act, and nothing else."""

    SHARED_CAUSE = ChangeLimits()


@pytest.mark.slow
@pytest.mark.timeout(900)  # a night of thirty jobs
@pytest.mark.parametrize(("jobs", "made", "kind", "asked"), [(30, 30, NightScene, 0), (9, 6, ShippedScene, 3)])
def test_a_night_with_limits_for_a_shared_cause_asks_nobody_and_passes_no_hard_limit(
    tmp_path: Path, jobs: int, made: int, kind: type[Scene], asked: int
) -> None:
    scene = kind(tmp_path, nodes=32)
    data = data_of(scene)
    losing(scene, data / "shard.bin", [f"team{number}" for number in range(jobs)])
    watched(scene, 160, every=20)
    data.mkdir()
    (data / "shard.bin").touch()
    approvals = []
    for _ in range(100):
        watched(scene, 60, every=60)
        approvals += [one.call for one in scene.engine.store.approvals()]
    times = restarts(scene)
    assert (len(times), len({*approvals})) == (made, asked)
    for first in times:
        assert sum(first <= at < first + timedelta(hours=1) for at in times) <= 20, "the hard limit of an hour"
    rules = {
        decision.rule
        for call in scene.engine.store.calls()
        if call.tool == "resubmit_job"
        for decision in scene.engine.store.decisions(call.id)
    }
    assert rules == ({"mode.act", "shared_cause"} if not asked else {"mode.act", "kind.resubmit.soft.per_hour"})
    assert scene.engine.gate.breaker is None


@pytest.mark.slow
def test_jobs_of_several_owners_that_lose_one_mount_wait_for_it_also_while_the_controller_is_away(tmp_path: Path) -> None:
    scene = WideScene(tmp_path)
    path = tmp_path / "nfs" / "index.bin"
    spec = scene.spec
    for number, owner in enumerate(("ada", "bob", "cleo", "dora")):
        scene.spec = dataclasses.replace(spec, user=owner)
        form = STALE if number % 2 else MISSING
        losing(scene, path, [f"job-{owner}"], form=form, at=50 + number)
    watched(scene, 300)
    first = len(scene.cluster.jobs())
    scene.cluster.outage = True
    for _ in range(5):
        with pytest.raises(Unavailable):
            watched(scene, 60)
    scene.cluster.outage = False
    watched(scene, 300)
    (outage,) = shared(scene)
    assert not outage.state.ended
    assert len(scene.cluster.jobs()) == first == 4, "nothing starts into a path that is away"
    assert [one.incident for one in told(scene)] == [outage.id], "one message stands for all"
    path.parent.mkdir()
    path.write_text("here again")
    watched(scene, 2400)
    assert {one.state for one in scene.engine.store.incidents()} == {IncidentState.RECOVERED}
    assert len(scene.cluster.jobs()) == 8


def test_two_unrelated_causes_at_once_are_two_incidents(tmp_path: Path) -> None:
    scene = Scene(tmp_path, nodes=12)
    pile, other = data_of(scene), scene.folder / "weights" / "llama"
    other.parent.mkdir()
    losing(scene, pile / "a.bin", ["one", "two", "three"])
    losing(scene, other / "model.safetensors", ["four", "five", "six"])
    watched(scene, 200)
    assert sorted(one.service or "" for one in shared(scene)) == sorted([str(pile), str(other)])
    assert all(len(members_of(scene.engine.store.events(one.id))) == 3 for one in shared(scene))


def test_a_job_that_fails_later_of_the_same_cause_joins_and_nobody_is_told_again(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    data = data_of(scene)
    losing(scene, data / "a.bin", ["one", "two", "three"])
    watched(scene, 200)
    (outage,) = shared(scene)
    before = [one.incident for one in told(scene)]
    (late,) = losing(scene, data / "below" / "z.bin", ["late"], form=STALE, at=20)
    watched(scene, 200)
    (incident,) = scene.engine.store.incidents(job=late)
    assert shared_by(scene.engine.store.events(incident.id)) == outage.id
    assert before == [outage.id] == [one.incident for one in told(scene)]


def test_jobs_that_miss_different_files_of_an_emptied_folder_wait_for_their_own_files(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    data = data_of(scene)
    data.mkdir()  # the mount point without its mount
    files = [data / name for name in ("shard_1.bin", "vocab.json", "val/shard_9.bin")]
    for file, name in zip(files, ("one", "two", "three"), strict=True):
        losing(scene, file, [name])
    watched(scene, 160)
    (outage,) = shared(scene)
    assert (outage.service, [one.incident for one in told(scene)]) == (str(data), [outage.id])
    assert all(word in outage.note for word in ("shard_1.bin", "vocab.json", "val/shard_9.bin", "failed for 3 jobs (1, 2, 3"))
    (data / "README").touch()
    files[0].touch()
    watched(scene, 200)
    assert restarts(scene) == [], "a folder with something in it is not what they lost"
    files[1].touch()
    files[2].parent.mkdir()
    watched(scene, 400)
    assert len(restarts(scene)) == 3, "the third missed a folder, which is there"


@pytest.mark.slow
def test_a_cause_that_never_answers_is_escalated_once_and_nothing_restarts(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    losing(scene, data_of(scene) / "a.bin", ["one", "two", "three", "four"])
    for _ in range(160):
        scene.clock.sleep(60)
        scene.engine.tick(owner="watch")
    (outage,) = shared(scene)
    assert (outage.state, restarts(scene)) == (IncidentState.ESCALATED, [])
    assert "has not answered for" in outage.note
    assert {one.state for one in scene.engine.store.incidents()} == {IncidentState.ESCALATED}
    assert [one.incident for one in told(scene)] == [outage.id]


def test_jobs_that_share_only_a_library_path_and_generic_lines_are_cases_of_their_own(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    library = '  File "/shared/env/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1553, in _wrapped_call_impl'
    for number, name in enumerate(("one", "two", "three", "four")):
        error = f"TypeError: unsupported operand type(s) for +: 'float' and 'NoneType' in layer {number}"
        submit(scene, name, SimulatedRun(fails_at=50, lines=("Traceback (most recent call last):", library, error)))
    watched(scene, 200)
    assert shared(scene) == []
    owners = [call for call in scene.engine.store.calls() if call.tool == "tell_owner"]
    assert len(owners) == 4


@pytest.mark.slow
def test_a_crash_between_two_restarts_repeats_none(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    data = data_of(scene)
    losing(scene, data / "a.bin", ["one", "two", "three"])
    watched(scene, 150)
    data.mkdir()
    (data / "a.bin").touch()
    for _ in range(60):
        scene.clock.sleep(10)
        scene.started().tick(owner="watch")
    times = restarts(scene)
    assert len(times) == 3
    assert all((after - before).total_seconds() >= 20 for before, after in pairwise(times)), times


@pytest.mark.parametrize(("rates", "restarted"), [(("1e-5", "2e-4", "5e-1"), False), (("2e-4", "2e-4", "2e-4"), True)])
def test_a_point_of_a_sweep_that_diverges_by_its_own_rate_is_its_owners(
    tmp_path: Path, rates: tuple[str, ...], restarted: bool
) -> None:
    scene = Scene(tmp_path)
    runs = [
        SimulatedRun(steps=400, checkpoints=tmp_path / f"ckpt{point}", spikes_at=67 if point == 2 else None) for point in range(3)
    ]
    scene.cluster.plan("sweep", *runs, SimulatedRun(steps=400, checkpoints=tmp_path / "ckpt2"))
    for point, rate in enumerate(rates):
        script = scene.spec.script.replace(str(scene.folder / "checkpoints"), str(tmp_path / f"ckpt{point}"))
        spec = dataclasses.replace(scene.spec, name="sweep", script=script, nodes=1, arguments=("--lr", rate))
        scene.cluster.submit(spec)
    watched(scene, 240)
    (incident,) = scene.engine.store.incidents()
    changes = [call.tool for call in scene.engine.store.calls(incident.id) if call.tool in ("cancel_job", "resubmit_job")]
    assert bool(changes) is restarted, incident.note
    assert (
        "learning rate is 0.5; jobs 1 (1e-05), 2 (0.0002) of the same sweep went past step 67" in incident.note
    ) is not restarted
