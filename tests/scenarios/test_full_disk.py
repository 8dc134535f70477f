"""A write that is refused for want of space: the disk of one node alone is full, or what the job keeps lies there, or a share."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from assistant.ports import Reply
from assistant.records import IncidentState
from assistant.schedulers.simulated_run import Run
from assistant.tools.probes._shell import MOUNTS
from assistant.tools.storage import _PROGRAM
from tests.scenarios.scene import Scene

ENOSPC = (
    "Traceback (most recent call last):",
    '  File "/opt/train/pretrain.py", line 88, in save',
    "    torch.save(state, staged)",
    "OSError: [Errno 28] No space left on device{named}",
)
FULL, ROOMY = "4096 1000 0 100 50", "4096 1000 900 100 50"


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
    "what the job keeps lies there": Disk(place="{folder}", script="--stage {folder}/stage"),
}


def answering(disk: Disk, place: str, *, mounts: bool) -> Callable[[str], Reply]:
    def answer(node: str) -> Reply:
        numbers = disk.answers.get(node, ROOMY)
        if not numbers:
            return Reply(node, False, None, "", "no route to host")
        if mounts:
            return Reply(node, True, 0, f"mount {disk.kind} {place} rw\nanswer {place} 0 {numbers}\nend\n", "")
        path = disk.named.strip(": '") or place
        shown = f"mounts\ndev {place} {disk.kind} rw 0 0\npath {path}\nreal {path}\nstands {place}\nanswer {numbers}\n"
        return Reply(node, True, 0, shown, "")

    return answer


@pytest.mark.parametrize("name", CASES)
def test_a_job_goes_on_without_the_node_whose_own_disk_is_full(name: str, tmp_path: Path) -> None:
    disk = CASES[name]
    place = disk.place.format(folder=tmp_path)
    lines = tuple(line.format(named=disk.named) for line in ENOSPC)
    scene = Scene(tmp_path, run=Run(fails_at=50, lines=lines, only_on="node01"))
    asked = [place, disk.named.strip(": '")]
    scene.cluster.answers[shlex.join(MOUNTS)] = answering(disk, place, mounts=True)
    for path in filter(None, asked):
        words = ("sh", "-c", _PROGRAM, "sh", path)
        scene.cluster.answers[shlex.join(words)] = answering(disk, place, mounts=False)
    script = scene.spec.script.replace("train.py", f"train.py {disk.script.format(folder=tmp_path)}")
    scene.cluster.submit(replace(scene.spec, script=script))
    scene.watch(600)
    (incident,) = scene.engine.store.incidents()
    found = scene.engine.store.diagnosis(incident.id)
    assert found is not None
    assert found.reason == "os_error"
    assert found.faulty_nodes == ()
    assert scene.cluster.changes == (["submit 1", "submit 2"] if disk.restarts else ["submit 1"]), found.advice
    assert incident.state is (IncidentState.RECOVERED if disk.restarts else IncidentState.ESCALATED), incident.note
    remarks = [remark.text for remark in scene.engine.good_runs.taken_remarks()]
    if disk.restarts:
        assert "node01" not in scene.cluster.job("2").nodes
        assert any(f"{place} of node01 is full" in text for text in remarks), remarks
