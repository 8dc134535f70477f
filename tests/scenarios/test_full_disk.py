"""A write that is refused for want of space: the disk of one node alone is full, or what the job keeps lies there, or a share."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from assistant.engine.evidence.file_systems import paths_used
from assistant.engine.evidence.storage import _kept_paths, sources_of
from assistant.ports import Reply
from assistant.records import IncidentState, Job, JobSpec, JobState
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools.probes.mounts import MOUNTS_COMMAND
from assistant.tools.storage import _HOLDERS, _PROGRAM, _SUMMED, _WRITTEN
from tests.scenarios.scene import Scene

ENOSPC = (
    "Traceback (most recent call last):",
    '  File "/opt/train/pretrain.py", line 88, in save',
    "    torch.save(state, staged)",
    "OSError: {error}{named}",
)
FULL, ROOMY, CROWDED = "4096 1000 0 100 50", "4096 1000 900 100 90", "4096 1000 140 100 90"


@dataclass(frozen=True)
class Disk:
    """What the nodes say of one mount point, and what the job does with it."""

    kind: str = "xfs"
    place: str = "/scratch"
    answers: Mapping[str, str] = field(default_factory=lambda: {"node01": FULL})
    """By node; the others have room."""
    script: str = "--stage /scratch/ada"
    named: str = ""
    restarts: bool = False
    error: str = "[Errno 28] No space left on device"
    options: Mapping[str, str] = field(default_factory=dict)
    """Of the mount, by node; `rw` on the others."""
    remark: str = "is full"
    written: Mapping[str, str] = field(default_factory=dict)
    """Blocks and files that its owner wrote since the job began, by node; none on the others, not to be seen where it is empty."""


GONE = "1 stat: cannot read file system information: Stale file handle"
EIO, EROFS, ESTALE = "[Errno 5] Input/output error", "[Errno 30] Read-only file system", "[Errno 116] Stale file handle"
CASES = {
    "one node alone, used by the script": Disk(restarts=True),
    "one node alone, named by the error": Disk(script="", named=": '/scratch/ada/step_40.pt'", restarts=True),
    "its inodes alone": Disk(answers={"node01": "4096 1000 900 100 0"}, restarts=True),
    "the other node is full, too": Disk(answers={"node01": FULL, "node02": FULL}),
    "the other node does not answer": Disk(answers={"node01": FULL, "node02": ""}),
    "a share": Disk(kind="lustre"),
    "the script does not use it": Disk(script="--stage /scratchpad/ada"),
    "the disk of the system": Disk(place="/", script="--stage /"),
    "space was freed since": Disk(answers={}),
    "the second node of the job alone, by a variable": Disk(script="", answers={"node02": FULL}, restarts=True, place="/nvme"),
    "the folder for temporary files, which nobody names": Disk(kind="tmpfs", place="/dev/shm", script="", restarts=True),
    "its own disk went read-only": Disk(error=EROFS, options={"node01": "ro"}, answers={}, restarts=True, remark="read-only"),
    "read-only on all nodes": Disk(error=EROFS, options={"node01": "ro", "node02": "ro"}, answers={}),
    "its own disk is gone": Disk(error=EIO, answers={"node01": GONE}, restarts=True, remark="does not answer"),
    "a share is stale on one node": Disk(
        "nfs4", "/data", {"node01": GONE}, "--data /data/pile", restarts=True, error=ESTALE, remark="does not answer"
    ),
    "the job itself has filled it": Disk(written={"node01": "7900 1"}),
    "by many small files": Disk(answers={"node01": "4096 1000 900 100 0"}, written={"node01": "400 95"}),
    "the job wrote a little": Disk(written={"node01": "800 3"}, restarts=True),
    "all ranks wrote as much, and others filled the rest": Disk(
        answers={"node01": FULL, "node02": "4096 1000 500 100 50"}, written={"node01": "3200 3", "node02": "3200 3"}, restarts=True
    ),
    "what the job wrote may not be seen": Disk(written={"node01": ""}),
    "the job has removed its own files since, and others' files are left": Disk(
        answers={"node01": CROWDED}, restarts=True, remark="has"
    ),
    "the same, named by the error": Disk(
        script="", named=": '/scratch/ada/step_40.pt'", answers={"node01": CROWDED}, restarts=True, remark="has"
    ),
    "all nodes are as crowded": Disk(answers={f"node0{number}": CROWDED for number in range(1, 5)}),
    "it is a share that is crowded": Disk(kind="lustre", answers={"node01": CROWDED}),
    "what the job keeps lies there": Disk(place="{folder}", script="--stage {folder}/stage"),
}


def answering(disk: Disk, place: str, *, mounts: bool) -> Callable[[str], Reply]:
    def answer(node: str) -> Reply:
        numbers, options = disk.answers.get(node, ROOMY), disk.options.get(node, "rw")
        if not numbers:
            return Reply(node, False, None, "", "no route to host")
        said = numbers if numbers == GONE else f"0 {numbers}"
        if mounts:
            return Reply(node, True, 0, f"mount {disk.kind} {place} {options}\nanswer {place} {said}\nend\n", "")
        path = disk.named.strip(": '") or place
        shown = f"mounts\ndev {place} {disk.kind} rw 0 0\npath {path}\nreal {path}\nstands {place}\nanswer {numbers}\n"
        return Reply(node, True, 0, shown, "")

    return answer


def writers(disk: Disk, node: str) -> Reply:
    """What a node says of files that the job's owner wrote there."""
    written, sizes = disk.written.get(node, "0 0"), disk.answers.get(node, ROOMY)
    blocks, _, files = written.partition(" ")
    largest = f"largest {blocks} {disk.place}/cache.bin\n" if files not in ("", "0") else ""
    return Reply(node, True, 0, f"disk {sizes}\nwritten {blocks or 0} {files or 0} {int(not written)}\n{largest}end\n", "")


@pytest.mark.parametrize("name", CASES)
def test_a_job_goes_on_without_the_node_whose_own_disk_is_full(name: str, tmp_path: Path) -> None:
    disk = CASES[name]
    place = disk.place.format(folder=tmp_path)
    lines = tuple(line.format(named=disk.named, error=disk.error) for line in ENOSPC)
    scene = Scene(
        tmp_path, run=SimulatedRun(fails_at=50, lines=lines, only_on=next(iter({**disk.answers, **disk.options}), "node01"))
    )
    asked = [place, disk.named.strip(": '")]
    scene.cluster.answers[shlex.join(MOUNTS_COMMAND)] = answering(disk, place, mounts=True)
    for path in filter(None, asked):
        words = ("sh", "-c", _PROGRAM, "sh", path)
        scene.cluster.answers[shlex.join(words)] = answering(disk, place, mounts=False)
    script = scene.spec.script.replace("train.py", f"train.py {disk.script.format(folder=tmp_path)}")
    environment = {**scene.spec.environment, "SPILL_DIR": "/nvme/ada"}
    scene.cluster.submit(replace(scene.spec, script=script, environment=environment))
    first = scene.cluster.job("1")
    assert first.started is not None
    looks = ("sh", "-c", _SUMMED, _WRITTEN, place, first.user, str(int(first.started.timestamp())))
    scene.cluster.answers[shlex.join(looks)] = partial(writers, disk)
    scene.watch(600)
    (incident,) = scene.engine.store.incidents()
    found = scene.engine.store.diagnosis(incident.id)
    assert found is not None
    assert found.reason in ("os_error", "s3_storage_error")
    assert found.faulty_nodes == ()
    assert scene.cluster.changes == (["submit 1", "submit 2"] if disk.restarts else ["submit 1"]), found.advice
    assert incident.state is (IncidentState.RECOVERED if disk.restarts else IncidentState.ESCALATED), incident.note
    remarks = [remark.text for remark in scene.engine.good_runs.taken_remarks()]
    if disk.restarts:
        bad = next(iter({**disk.answers, **disk.options}), "")
        assert bad not in scene.cluster.job("2").nodes
        assert any(f"{place} of {bad} {disk.remark}" in text for text in remarks if disk.remark != "read-only") or any(
            f"{place} of {bad} is mounted read-only" in text for text in remarks
        ), remarks


CUT = (
    *ENOSPC[:3],
    "RuntimeError: [enforce fail at inline_container.cc:858] . PytorchStreamWriter failed writing file data/2: file write failed",
)


@pytest.mark.parametrize("answers", [{"node01": FULL, "node02": FULL}, {}], ids=["full", "roomy"])
def test_a_write_that_was_cut_short_names_the_full_file_system_of_the_job(answers: dict[str, str], tmp_path: Path) -> None:
    disk = Disk(kind="lustre", answers=answers)
    scene = Scene(tmp_path, run=SimulatedRun(fails_at=50, lines=CUT))
    scene.cluster.answers[shlex.join(MOUNTS_COMMAND)] = answering(disk, disk.place, mounts=True)
    scene.cluster.submit(replace(scene.spec, script=scene.spec.script.replace("train.py", f"train.py {disk.script}")))
    scene.watch(600)
    (incident,) = scene.engine.store.incidents()
    found = scene.engine.store.diagnosis(incident.id)
    assert found is not None
    said = "Of what the job uses /scratch (lustre) is full (100 %) on node01, node02."
    assert (said in found.advice) is bool(answers), found
    assert incident.state is IncidentState.ESCALATED
    assert scene.cluster.changes == ["submit 1"]


def test_a_job_goes_on_without_the_node_whose_own_full_disk_cut_its_save_short(tmp_path: Path) -> None:
    disk = Disk()
    scene = Scene(tmp_path, run=SimulatedRun(fails_at=50, lines=CUT, only_on="node01"))
    scene.cluster.answers[shlex.join(MOUNTS_COMMAND)] = answering(disk, disk.place, mounts=True)
    scene.cluster.submit(replace(scene.spec, script=scene.spec.script.replace("train.py", f"train.py {disk.script}")))
    first = scene.cluster.job("1")
    assert first.started is not None
    looks = ("sh", "-c", _SUMMED, _WRITTEN, disk.place, first.user, str(int(first.started.timestamp())))
    scene.cluster.answers[shlex.join(looks)] = partial(writers, disk)
    scene.watch(600)
    (incident,) = scene.engine.store.incidents()
    diagnosis = scene.engine.store.diagnosis(incident.id)
    assert diagnosis is not None
    assert "Of what the job uses /scratch (xfs) is full (100 %) on node01." in diagnosis.summary
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert "node01" not in scene.cluster.job("2").nodes


def test_people_hear_of_a_crowded_disk_also_where_it_is_not_known_what_the_job_keeps(tmp_path: Path) -> None:
    disk = Disk(answers={"node01": CROWDED})
    lines = tuple(line.format(named=disk.named, error=disk.error) for line in ENOSPC)
    scene = Scene(tmp_path, run=SimulatedRun(fails_at=50, lines=lines))
    scene.cluster.answers[shlex.join(MOUNTS_COMMAND)] = answering(disk, disk.place, mounts=True)
    scene.cluster.submit(replace(scene.spec, script="srun python train.py --stage /scratch/ada\n"))
    scene.watch(600)
    (incident,) = scene.engine.store.incidents()
    found = scene.engine.store.diagnosis(incident.id)
    assert found is not None
    assert "Of /scratch (xfs) of node01 86 % is in use now" in found.advice, found
    assert scene.cluster.changes == ["submit 1"]


def test_people_hear_who_fills_the_disk_that_a_job_leaves(tmp_path: Path) -> None:
    disk = Disk()
    lines = tuple(line.format(named="", error=disk.error) for line in ENOSPC)
    scene = Scene(tmp_path, run=SimulatedRun(fails_at=50, lines=lines, only_on="node01"))
    scene.cluster.answers[shlex.join(MOUNTS_COMMAND)] = answering(disk, "/scratch", mounts=True)
    scene.cluster.submit(replace(scene.spec, script=scene.spec.script.replace("train.py", "train.py --stage /scratch/ada")))
    first = scene.cluster.job("1")
    assert first.started is not None
    looks = ("sh", "-c", _SUMMED, _WRITTEN, "/scratch", first.user, str(int(first.started.timestamp())))
    scene.cluster.answers[shlex.join(looks)] = partial(writers, disk)
    held = "held 131072 2044/kbrandt_featdump\nheld 8 root/lost+found\nend\n"
    scene.cluster.answers[shlex.join(("sh", "-c", _HOLDERS, "sh", "/scratch"))] = lambda node: Reply(node, True, 0, held, "")
    scene.watch(600)
    (incident,) = scene.engine.store.incidents()
    found = scene.engine.store.diagnosis(incident.id)
    assert found is not None
    said = "Most of what lies in /scratch is 64.0 MiB of uid 2044 in /scratch/kbrandt_featdump."
    assert said in found.advice, found
    assert any(said.rstrip(".").removeprefix("M") in place.why for place in found.where)
    assert any(said in remark.text for remark in scene.engine.good_runs.taken_remarks())


def test_what_a_job_keeps_is_known_from_the_checkpoints_that_lie_there_where_nothing_names_them(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    begun, over = scene.clock.now() - timedelta(hours=2), scene.clock.now() - timedelta(hours=1)
    saved = tmp_path / "output" / "convnext" / "checkpoint-3.pth.tar"
    saved.parent.mkdir(parents=True)
    saved.write_bytes(b"\x80" + bytes(9000))
    os.utime(saved, (over.timestamp(), over.timestamp()))
    spec = replace(scene.spec, script="srun ./trainer --cache /scratch/ada\n")
    job = Job("7", "cnv", "", JobState.FAILED, "train", ("node01",), None, tmp_path, begun, begun, over, 1, None, spec=spec)
    assert saved.parent in _kept_paths(scene.engine, job)


def test_where_a_program_writes_besides_its_checkpoints_is_nothing_that_a_restart_needs(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    begun, over = scene.clock.now() - timedelta(hours=2), scene.clock.now() - timedelta(hours=1)
    (tmp_path / "train.py").write_text(
        "import torch\nopen('/scratch/ada/cache.bin', 'wb').write(b'x')\ntorch.save(state, 'out/step_10.pt')\n"
    )
    spec = replace(scene.spec, script="srun python train.py\n")
    job = Job("7", "cnv", "", JobState.FAILED, "train", ("node01",), None, tmp_path, begun, begun, over, 1, None, spec=spec)
    (tmp_path / "out").mkdir()
    saved = tmp_path / "out" / "step_10.pt"
    saved.write_bytes(b"\x80" + bytes(9000))
    os.utime(saved, (over.timestamp(), over.timestamp()))
    kept = _kept_paths(scene.engine, job)
    assert saved.parent in kept
    assert not any(path.is_relative_to("/scratch") for path in kept)


def test_what_a_programs_own_settings_name_is_used(tmp_path: Path) -> None:
    (tmp_path / "ds_config.json").write_text('{"zero": {"offload": {"nvme_path": "/scratch"}}, "stage": 3}')
    (tmp_path / "train.py").write_text(
        "import json, torch\ncfg = json.load(open('ds_config.json'))\nswap = cfg['zero']['offload']['nvme_path']\n"
        "open(f'{swap}/bucket.swp', 'wb').write(b'x')\ntorch.save({}, 'out/step_10.pt')\n"
    )
    spec = JobSpec("z3", "#!/bin/bash\nsrun python train.py\n", work_dir=tmp_path)
    job = Job("7", "z3", "", JobState.FAILED, "train", ("node01",), None, tmp_path, None, None, None, 1, None, spec=spec)
    assert "/scratch" in paths_used(job, (), sources_of(job))


@pytest.mark.parametrize(
    ("holder", "drained"),
    [("jlee", True), ("ada", False), ("root", False), ("2044", False)],
    ids=["another", "own", "root", "unknown"],
)
def test_a_node_whose_disk_strangers_have_filled_is_set_aside_once_it_has_failed_a_second_job(
    holder: str, drained: bool, tmp_path: Path
) -> None:
    disk = Disk()
    lines = tuple(line.format(named="", error=disk.error) for line in ENOSPC)
    scene = Scene(tmp_path, nodes=4)
    scene.cluster.answers[shlex.join(MOUNTS_COMMAND)] = answering(disk, "/scratch", mounts=True)
    held = f"held 131072 {holder}/featdump\nend\n"
    scene.cluster.answers[shlex.join(("sh", "-c", _HOLDERS, "sh", "/scratch"))] = lambda node: Reply(node, True, 0, held, "")
    for number in range(2):
        script = scene.spec.script.replace(str(tmp_path / "checkpoints"), str(tmp_path / f"run{number}"))
        script = script.replace("train.py", f"train.py --stage /scratch/ada --run {number}")
        run = SimulatedRun(fails_at=5, lines=lines, only_on="node01", steps=20)
        scene.cluster.plan(f"llm-{number}", run, SimulatedRun(steps=20))
        spec = replace(scene.spec, name=f"llm-{number}", script=script, nodes=1, user="ada", log=f"{number}-%j.log")
        started = scene.cluster.job(scene.cluster.submit(spec)).started
        assert started is not None
        looks = ("sh", "-c", _SUMMED, _WRITTEN, "/scratch", "ada", str(int(started.timestamp())))
        scene.cluster.answers[shlex.join(looks)] = partial(writers, disk)
        for _ in range(12):
            scene.clock.sleep(10)
            scene.engine.tick(owner="watch")
        scene.clock.sleep(10)
    assert ("cordon node01" in scene.cluster.changes) is drained, [one.note for one in scene.engine.store.incidents()]
    if drained:
        assert "/scratch is full" in next(node.reason for node in scene.cluster.nodes() if node.name == "node01")
