"""A program, module or modulefile that a job did not find by its name: missing on its node alone, or on all nodes."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from assistant.ports import Reply
from assistant.records import IncidentState
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools.storage import _INSTALLED_PROGRAM as INSTALLED
from assistant.tools.storage import _PROGRAM as STORAGE
from tests.scenarios.scene import Scene
from tests.scenarios.test_one_node import SYSTEM, said

PROGRAM = "/opt/augsuite/2.3/bin/augment"
MODULE = "/opt/vision/lib/python3.11/site-packages/nvjpeg"
LINE = "/var/spool/slurmd/job00001/slurm_script: line 13: augment: command not found"
UNFOUND = "ModuleNotFoundError: No module named 'nvjpeg'"
OWNED = ("owner 3003 755 ada",) * 5 + ("owner 0 755 root",)
SITE = """module() {{
  [ "$1" = load ] || return 0
  case "$2" in
    augsuite/2.3) export AUGSUITE_HOME=/opt/augsuite/2.3; PATH=$AUGSUITE_HOME/bin:$PATH;;
  esac
}}
"""
LOADS = ". {folder}/init.sh\nmodule load augsuite/2.3\naugment --in raw.lst\n"
ACTIVATES = "source /opt/vision/bin/activate\n"


@dataclass(frozen=True)
class Case:
    """Which nodes have what the job did not find on node02, and what comes of it."""

    having: tuple[str, ...] = ("node01", "node03", "node04", "node05", "node06")
    """Nodes that have it."""
    path: str = PROGRAM
    line: str = LINE
    script: str = LOADS
    owners: tuple[str, ...] = SYSTEM
    silent: tuple[str, ...] = ()
    """Nodes that do not answer."""
    left_out: bool = False
    says: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


CASES = {
    "a program": Case(left_out=True, says=f"{PROGRAM} is missing on node02"),
    "a module of an environment": Case(
        path=MODULE, line=UNFOUND, script=ACTIVATES, left_out=True, says=f"{MODULE} is missing on node02"
    ),
    "a program of a modulefile": Case(
        script="module use {folder}/modules\nmodule load augsuite/2.3\naugment\n",
        files={"modules/augsuite/2.3": "#%Module\nset root /opt/augsuite/2.3\nprepend-path PATH $root/bin\n"},
        left_out=True,
        says="is missing on node02",
    ),
    "no node has it": Case(having=(), says="augment is on none of node01, node02"),
    "two nodes lack it": Case(having=("node01", "node04", "node05"), says="and not on node02, node03"),
    "the owner put it on the disks of some": Case(owners=OWNED, says="is there on node01"),
    "it is there by now": Case(having=("node02", "node01", "node03", "node04", "node05"), says="is there on node01, node02 now"),
    "no other node answers": Case(silent=("node01", "node03", "node04", "node05", "node06")),
    "the node itself does not answer": Case(silent=("node02",)),
    "nothing in the script names a folder with it": Case(having=(), script="augment\n", says="on none of"),
    "it runs in a container": Case(script="apptainer exec vision.sif augment --in raw.lst\n"),
}


ASKED = shlex.join(("sh", "-c", INSTALLED, "sh", ""))[:-2]


class Answers(dict[str, Callable[[str], Reply]]):
    """Answers of nodes by command; to a look for a name one that depends on the folders that are asked for."""

    def __init__(self, case: Case, commands: list[str]) -> None:
        super().__init__()
        self.case, self.commands = case, commands

    def __contains__(self, command: object) -> bool:
        return super().__contains__(command) or str(command).startswith(ASKED)

    def __missing__(self, command: str) -> Callable[[str], Reply]:
        self.commands.append(command)
        return lambda node: self.installed(shlex.split(command)[4:], node)

    def installed(self, words: list[str], node: str) -> Reply:
        """Return what a node has of a name in folders."""
        folder, name = self.case.path.rsplit("/", 1)
        kind = "program" if self.case.path == PROGRAM else "file"
        has = node in self.case.having and folder in words[1:] and words[0] == name
        silent = node in self.case.silent
        return Reply(node, not silent, 0, "" if silent else f"{kind} {self.case.path}\nend\n" if has else "end\n", "")


@pytest.mark.parametrize("name", CASES)
def test_a_job_goes_on_without_the_node_that_lacks_what_it_calls_by_name(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    scene = Scene(tmp_path, run=SimulatedRun(fails_at=0, lines=(case.line,), only_on="node02"))
    (tmp_path / "init.sh").write_text(SITE.format())
    for place, text in case.files.items():
        (tmp_path / place).parent.mkdir(parents=True)
        (tmp_path / place).write_text(text)
    commands: list[str] = []
    scene.cluster.answers = Answers(case, commands)

    def stored(node: str) -> Reply:
        stands = case.path if node in case.having else "/opt"
        return Reply(node, True, 0, said(case.path, stands=stands, owners=case.owners), "")

    scene.cluster.answers[shlex.join(("sh", "-c", STORAGE, "sh", case.path))] = stored
    script = scene.spec.script + case.script.format(folder=tmp_path)
    scene.cluster.submit(replace(scene.spec, user="ada", script=script))
    scene.watch(900)
    (incident,) = scene.engine.store.incidents()
    diagnosis = scene.engine.store.diagnosis(incident.id)
    assert diagnosis is not None
    assert case.says in diagnosis.summary
    assert scene.cluster.changes == (["submit 1", "submit 2"] if case.left_out else ["submit 1"]), diagnosis.advice
    assert diagnosis.faulty_nodes == ()
    remarks = [remark.text for remark in scene.engine.good_runs.taken_remarks()]
    if case.left_out:
        assert "node02" not in scene.cluster.job("2").nodes
        assert incident.state is IncidentState.RECOVERED, incident.note
        assert any(case.path in text and "node02" in text and "see to it" in text for text in remarks), remarks
    else:
        assert incident.state is IncidentState.ESCALATED, incident.note
        assert not remarks
    assert bool(commands) is ("container" not in name)
