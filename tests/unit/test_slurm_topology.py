"""The network between the nodes, as Slurm tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.config import SlurmSettings
from assistant.errors import ToolError
from assistant.ports import SystemClock, Topology
from assistant.schedulers.slurm import SlurmScheduler
from assistant.schedulers.slurm_nodes import switches
from tests.unit.test_slurm_commands import program

TREE = """\
SwitchName=spine Level=1 LinkSpeed=1 Nodes=gpu[001-004] Switches=leaf[1-2]
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=gpu[001-002]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=gpu003,gpu[004]
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param(TREE, {"gpu001": "leaf1", "gpu002": "leaf1", "gpu003": "leaf2", "gpu004": "leaf2"}, id="tree"),
        pytest.param("BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\n", {"n1": "b1", "n2": "b1"}, id="blocks"),
        pytest.param("SwitchName=empty Level=0 LinkSpeed=1 Nodes=(null)\n", {}, id="a switch without nodes"),
        pytest.param("No topology information available\n", {}, id="none"),
        pytest.param("\x00\xff garbage SwitchName\n", {}, id="garbage"),
    ],
)
def test_each_node_has_the_lowest_switch_above_it(text: str, found: dict[str, str]) -> None:
    assert switches(text) == found


def test_a_cluster_without_a_network_plan_says_so(tmp_path: Path) -> None:
    program(tmp_path, "scontrol", "case $2 in config) printf 'SLURM_VERSION = 22.05.8\\nTopologyPlugin = topology/none\\n';; esac")
    scheduler = SlurmScheduler(SlurmSettings(folder=tmp_path), SystemClock())
    assert isinstance(scheduler, Topology)
    with pytest.raises(ToolError, match=r"topology\.conf"):
        scheduler.switches()
