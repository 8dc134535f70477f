"""A job that stands still, and whose log names a cause: it is ended as any hang is once more than its silence speaks for it."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import pytest

from assistant.ports import Reply
from assistant.records import IncidentState, JobState, NodeState
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools import stacks
from assistant.tools.probes.links import INFINIBAND_COMMAND
from assistant.tools.probes.system import REACHABLE
from tests.scenarios.scene import Scene

PORT_ERROR = ("node02:117:157 [0] NCCL WARN NET/IB : mlx5_0:1 Got async event : port error",)
NO_NODE = (
    "[rank0]:[E105 02:01:11 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=52, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600002 ms before timing out.",
)
PORTS = """\
port mlx5_0 1 hca_type MT4123
port mlx5_0 1 state {state}
port mlx5_0 1 phys_state {physical}
port mlx5_0 1 rate 200 Gb/sec (4X HDR)
port mlx5_0 1 link_layer InfiniBand
port mlx5_0 1 link_downed {downed}
end
"""
WORKS = "#nightshift cpu 1 100.0\n#nightshift cpu 1 4100 50\n#nightshift cpu 2 102.5\n#nightshift cpu 2 4100 125\n"


def standing_still(
    folder: Path, *, lines: tuple[str, ...] = PORT_ERROR, down: str = "", works: bool = False, cut: tuple[int, ...] = ()
) -> Scene:
    """Return a scene whose first job makes 50 steps, says the lines and then stands still.

    Args:
        folder: Of the scene.
        lines: The last ones of its log.
        down: The node whose InfiniBand port the probes find down.
        works: Whether a process of the job uses the CPU, so that idle GPUs prove nothing.
        cut: Steps whose checkpoints are damaged.
    """
    first = SimulatedRun(hangs_at=50, says_at=50, lines=lines, cut=cut)
    scene = Scene(folder, run=first)
    checkpoints = folder / "checkpoints"
    scene.cluster.plan("llm", dataclasses.replace(first, checkpoints=checkpoints), SimulatedRun(checkpoints=checkpoints))

    def ports(node: str) -> Reply:
        state = ("1: DOWN", "2: Polling", 1) if node == down else ("4: ACTIVE", "5: LinkUp", 0)
        return Reply(node, True, 0, PORTS.format(state=state[0], physical=state[1], downed=state[2]), "")

    scene.cluster.answers[shlex.join(REACHABLE.command)] = lambda node: Reply(node, True, 0, "", "")
    scene.cluster.answers[shlex.join(INFINIBAND_COMMAND)] = ports
    if works:
        typed = shlex.join(stacks.command("1"))
        scene.cluster.answers[typed] = lambda node: Reply(node, True, 0, f"{stacks.LISTED}\n{WORKS}", "")
    scene.cluster.submit(scene.spec)
    return scene


@pytest.mark.parametrize("works", [False, True], ids=["its GPUs are idle", "what its processes do proves nothing"])
def test_a_hang_with_a_port_that_is_down_is_ended_and_goes_on_without_the_node(works: bool, tmp_path: Path) -> None:
    scene = standing_still(tmp_path, down="node02", works=works)
    (incident,) = scene.watch(7200)
    diagnosis = scene.engine.store.diagnosis(incident.id)
    assert diagnosis is not None
    assert (diagnosis.reason, incident.state) == ("network_error", IncidentState.RECOVERED), incident.note
    assert scene.cluster.changes == ["submit 1", "cordon node02", "cancel 1", "submit 2"]
    assert "node02" not in scene.cluster.job("2").nodes


@pytest.mark.parametrize(
    ("lines", "reason"),
    [(PORT_ERROR, "network_error"), (NO_NODE, "nccl_timeout_error")],
    ids=["a node is named", "no node is named"],
)
def test_of_a_hang_of_which_its_own_log_alone_tells_a_person_is_told_checkpoint_and_command(
    lines: tuple[str, ...], reason: str, tmp_path: Path
) -> None:
    scene = standing_still(tmp_path, lines=lines)
    (incident,) = scene.watch(7200)
    assert (incident.state, scene.cluster.changes) == (IncidentState.ESCALATED, ["submit 1"])
    assert scene.cluster.job("1").state is JobState.RUNNING
    assert next(node for node in scene.cluster.nodes() if node.name == "node02").state is not NodeState.DRAINED
    for words in (f"job 1 stands still ({reason})", "scancel 1", "step 40"):
        assert words in incident.note
    assert "failed" not in incident.note


def test_a_hang_without_a_whole_checkpoint_is_not_ended(tmp_path: Path) -> None:
    scene = standing_still(tmp_path, down="node02", cut=(20, 40))
    (incident,) = scene.watch(7200)
    assert (incident.state, scene.cluster.changes) == (IncidentState.ESCALATED, ["submit 1", "cordon node02"])
    assert scene.cluster.job("1").state is JobState.RUNNING
