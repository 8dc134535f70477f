"""A rank whose exception srun lost: its job goes on where the path that its last line opens is at fault on its node alone."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.ports import Reply
from assistant.records import Diagnosis, IncidentState
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools.holders import _CHANGED as LISTING
from assistant.tools.storage import _PROGRAM as STORAGE
from tests.scenarios.scene import START, Scene
from tests.scenarios.test_one_node import MOUNT, said

PILE, TAR = "/lustre/data/pile", "/lustre/data/pile/3.tar"
SHARDS = 'import os\nfor n in range(9):\n    data = open("/lustre/data/pile/%d.tar" % n, "rb").read()\n'
WHOLE = 'import os\nif True:\n    data = open("/lustre/data/pile/3.tar", "rb").read()\n'
SAVES = 'import os\nif True:\n    open("/lustre/data/pile/3.tar", "wb").write(b"")\n'
COMPUTES = 'import os\nif True:\n    data = compute("/lustre/data/pile/3.tar")\n'
FRAME = '  File "{folder}/reader.py", line 3, in <module>'
END = (
    "srun: error: {node}: task {task}: Exited with exit code 1",
    "srun: launch/slurm: _step_signal: Terminating StepId=1.0",
    "slurmstepd: error: *** STEP 1.0 ON node01 CANCELLED AT 2026-11-27T03:39:01 ***",
    "srun: error: node01: task 0: Terminated",
    "srun: Force Terminated StepId=1.0",
)
OPEN = ("owner 0 755 root",) * 4
FINE_FOLDER, FINE = said(PILE, stands=PILE, mount=MOUNT, owners=OPEN), said(TAR, stands=TAR, mount=MOUNT)
STOOD, LOST = said(PILE, stands=PILE), said(TAR, stands=PILE)
HAS = f"file 10 1000.0 root {TAR}\0file 10 1000.0 root {PILE}/notes.txt\0now 5\0end\0"
SILENT = FINE_FOLDER.replace("stands", "gone")


@dataclass(frozen=True)
class Case:
    """What the log and the nodes say, and what comes of it."""

    source: str = SHARDS
    folders: Mapping[str, str] = field(default_factory=lambda: {"node02": STOOD, "*": FINE_FOLDER})
    """What nodes say of the folder; `*` stands for all others."""
    files: Mapping[str, str] = field(default_factory=lambda: {"node02": LOST, "*": FINE})
    """The same of the file."""
    listing: str = HAS
    frame: str = FRAME
    node: str = "node02"
    """Who exited first."""
    touched: bool = False
    """Whether the source was changed while the job ran."""
    changes: tuple[str, ...] = ()
    reason: str = "unknown"
    says: str = "exited first, with exit code 1"


AWAY = ("cordon node02", "submit 2")
CASES = {
    "a share is not mounted on the node of the rank that exited first": Case(
        changes=AWAY, reason="file_not_found_error", says="/lustre/data is not mounted on node02"
    ),
    "its whole path stands in the line": Case(
        WHOLE, changes=AWAY, reason="file_not_found_error", says="/lustre/data is not mounted on node02"
    ),
    "a write counts like a read": Case(SAVES, changes=AWAY, reason="file_not_found_error", says="is not mounted on node02"),
    "the share does not answer on that node": Case(
        folders={"node02": SILENT, "*": FINE_FOLDER}, changes=("submit 2",), reason="os_error", says="does not answer on node02"
    ),
    "nothing is wrong with it": Case(
        folders={"*": FINE_FOLDER}, files={"*": FINE}, says="nothing is proven to be wrong with that on node02"
    ),
    "it lies on another disk there, and is there": Case(files={"*": FINE}, says="nothing is proven to be wrong"),
    "it is missing on all nodes": Case(WHOLE, files={"*": LOST}, says="nothing is proven to be wrong"),
    "another node lacks it than the one that exited first": Case(
        folders={"node01": STOOD, "*": FINE_FOLDER}, files={"node01": LOST, "*": FINE}, says="nothing is proven to be wrong"
    ),
    "two nodes lack it": Case(
        folders={"node02": STOOD, "node03": STOOD, "*": FINE_FOLDER}, files={"node02": LOST, "node03": LOST, "*": FINE}
    ),
    "no other node answers": Case(folders={"node02": STOOD, "*": ""}, files={"node02": LOST, "*": ""}),
    "nobody may list that folder but its owner": Case(
        folders={"node02": STOOD, "*": said(PILE, stands=PILE, mount=MOUNT, owners=("owner 0 700 root",))}
    ),
    "the folder holds nothing of that name": Case(listing=f"file 10 1000.0 root {PILE}/notes.txt\0now 5\0end\0"),
    "the source has changed since": Case(touched=True),
    "the line opens nothing": Case(COMPUTES),
    "the frame is of another function": Case(frame=FRAME.replace("<module>", "load")),
    "the frame is not whole": Case(frame=FRAME.removesuffix(", in <module>")),
    "the traceback is lost wholly": Case(frame="", says="nothing in this log surely says why"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_path_at_fault_on_the_node_of_who_exited_first_is_the_cause(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    scene, found, state = played(case, tmp_path)
    assert found.reason == case.reason, found.summary
    assert case.says in found.summary
    assert scene.cluster.changes == ["submit 1", *case.changes], found.advice
    assert state is (IncidentState.RECOVERED if case.changes else IncidentState.ESCALATED)
    assert found.faulty_nodes == (("node02",) if "cordon node02" in case.changes else ())
    assert "cancelled" not in f"{found.summary} {[rival.reason for rival in found.rivals]}"
    if case.changes:
        assert "exception itself was lost" in found.summary
        assert "node02" not in scene.cluster.job("2").nodes
        (line,) = [evidence.text for evidence in scene.engine.store.evidence(1) if evidence.source == "source line"]
        assert line.startswith(f"{tmp_path}/reader.py:3: ")


def played(case: Case, folder: Path) -> tuple[Scene, Diagnosis, IncidentState]:
    """Play a case to its end; return the scene, the diagnosis and the state of the incident."""
    source = folder / "reader.py"
    source.write_text(case.source)
    traceback = ("Traceback (most recent call last):", case.frame.format(folder=folder)) if case.frame else ()
    end = tuple(line.format(node=case.node, task=2) for line in END)
    scene = Scene(folder, run=SimulatedRun(fails_at=50, lines=(*traceback, *end), only_on="node02"))
    # files of this test are as old as the real time says
    scene.clock.sleep((datetime.now(UTC) - START).total_seconds() + 3600)

    def answering(answers: Mapping[str, str], node: str) -> Reply:
        text = answers.get(node, answers.get("*", ""))
        return Reply(node, True, 0, text, "") if text else Reply(node, False, None, "", "no route to host")

    answers = scene.cluster.answers
    answers[shlex.join(("sh", "-c", STORAGE, "sh", PILE))] = lambda node: answering(case.folders, node)
    answers[shlex.join(("sh", "-c", STORAGE, "sh", TAR))] = lambda node: answering(case.files, node)
    answers[shlex.join(("sh", "-c", LISTING, "sh", "0", PILE))] = lambda node: answering({"*": case.listing}, node)
    scene.cluster.submit(replace(scene.spec, user="ada"))
    if case.touched:
        at = scene.clock.now().timestamp() + 30
        os.utime(source, (at, at))
    scene.watch(900)
    (incident,) = scene.engine.store.incidents()
    found = scene.engine.store.diagnosis(incident.id)
    assert found is not None
    return scene, found, incident.state
