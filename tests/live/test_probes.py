"""The probes on real nodes over real SSH; only GPU tools, InfiniBand files and the kernel log are stand-ins."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from assistant.config import SshSettings
from assistant.errors import ToolError
from assistant.ports import SystemClock
from assistant.store import Store
from assistant.tooling import Context
from assistant.tools.cordons import cordon_node, uncordon_node
from assistant.tools.nodes import check_nodes, diagnose_gpus
from assistant.transports.ssh import SshTransport
from tests.own_cordons import earlier_cordon

if TYPE_CHECKING:
    from tests.live.conftest import DevCluster

pytestmark = pytest.mark.live
NODE = "gpu002"
ALL_PROBES_S = 3.0


@pytest.fixture(scope="module")
def context(devcluster: DevCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    store = Store(tmp_path_factory.mktemp("probes") / "s.db", SystemClock())
    with store, SshTransport(SshSettings(config=devcluster.ssh_config)) as transport:
        tag = earlier_cordon(store, NODE)
        yield Context(devcluster.scheduler(), transport, SystemClock(), random.Random(1), store, tag=tag, by="cli:live")


@pytest.fixture(autouse=True)
def _well(devcluster: DevCluster) -> Iterator[None]:
    yield
    devcluster.inject(NODE, "clear")


def statuses(found: dict[str, Any], node: str = NODE) -> dict[str, str]:
    return {one["probe"]: one["status"] for one in reversed(found["nodes"][node]["probes"])}


def test_a_healthy_cluster_is_found_healthy(context: Context, devcluster: DevCluster) -> None:
    found = check_nodes(context, nodes=list(devcluster.nodes))
    assert found["faulty"] == []
    for node in devcluster.nodes:
        said = statuses(found, node)
        # the machine of the test may be under load
        assert {probe for probe, status in said.items() if status != "ok"} <= {"load", "memory", "disk"}


def test_all_probes_of_a_node_take_less_than_three_seconds(context: Context) -> None:
    check_nodes(context, nodes=[NODE])
    begun = time.monotonic()
    check_nodes(context, nodes=[NODE])
    assert time.monotonic() - begun < ALL_PROBES_S


@pytest.mark.parametrize(
    ("fault", "values", "probe", "status", "faulty"),
    [
        ("xid", {"code": 79, "gpu": 3}, "kernel_log", "critical", True),
        ("xid", {"code": 79, "gpu": 3}, "gpu_count", "critical", True),
        ("xid", {"code": 48, "gpu": 5}, "gpu_memory", "critical", True),
        ("xid", {"code": 31, "gpu": 2, "pid": 77}, "kernel_log", "warning", False),
        ("xid", {"code": 74, "gpu": 6}, "nvlink", "critical", True),
        ("ecc", {"gpu": 1, "corrected": 5000}, "gpu_memory", "warning", False),
        ("hot", {"gpu": 2}, "gpu_temperature", "critical", False),
        ("hot", {"gpu": 2}, "gpu_clocks", "critical", False),
        ("pcie", {"gpu": 7, "width": 8}, "gpu_pcie", "critical", False),
        ("ib-down", {"hca": "mlx5_1"}, "infiniband", "critical", False),
        ("ib-errors", {"hca": "mlx5_2", "by": 90_000_000}, "infiniband_errors", "warning", False),
        ("smi", {"state": "hang"}, "gpu_count", "unknown", False),
        ("smi", {"state": "no-driver"}, "gpu_count", "critical", False),
        ("kmsg", {"text": "nfs: server nas1 not responding, timed out"}, "storage_log", "critical", False),
    ],
)
def test_a_fault_is_found_and_judged(
    context: Context, devcluster: DevCluster, fault: str, values: dict[str, Any], probe: str, status: str, faulty: bool
) -> None:
    devcluster.inject(NODE, fault, **values)
    found = check_nodes(context, nodes=[NODE, "gpu001"])
    assert statuses(found)[probe] == status
    assert found["faulty"] == ([NODE] if faulty else [])


def test_a_full_disk_is_found(context: Context, devcluster: DevCluster) -> None:
    devcluster.on(NODE, "sh", "-c", "dd if=/dev/zero of=/scratch/full bs=1M 2>/dev/null; true")
    try:
        said = [one for one in check_nodes(context, nodes=[NODE])["nodes"][NODE]["probes"] if one["status"] == "critical"]
    finally:
        devcluster.on(NODE, "rm", "-f", "/scratch/full")
    assert [(one["probe"], one["text"]) for one in said] == [("disk", "100 % of /scratch is in use")]


def test_a_dead_slurmd_is_found(context: Context, devcluster: DevCluster) -> None:
    devcluster.fault(NODE, "slurmd")
    try:
        assert statuses(check_nodes(context, nodes=[NODE]))["daemons"] == "critical"
    finally:
        devcluster.heal(NODE)


@pytest.mark.parametrize("how", ["link", "hang", "sshd"])
def test_a_node_that_does_not_answer_is_unknown_and_keeps_no_other_waiting(
    context: Context, devcluster: DevCluster, how: str
) -> None:
    from dataclasses import replace

    devcluster.fault(NODE, how)
    try:
        with SshTransport(SshSettings(config=devcluster.ssh_config)) as fresh:
            begun = time.monotonic()
            found = check_nodes(replace(context, transport=fresh, command_timeout_s=4.0), nodes=["gpu001", NODE])
        assert found["nodes"][NODE]["status"] == "unknown"
        assert found["faulty"] == []
        assert statuses(found, "gpu001")["gpu_count"] == "ok"
        assert time.monotonic() - begun < 15
    finally:
        devcluster.heal(NODE)
        devcluster.settle()


def test_a_drained_node_goes_back_when_it_is_well_again(context: Context, devcluster: DevCluster) -> None:
    devcluster.settle()
    devcluster.inject(NODE, "xid", code=79, gpu=3)
    cordon_node(context, node=NODE, reason="cuda_error")
    reason = next(node.reason for node in context.scheduler.nodes() if node.name == NODE)
    assert reason.startswith(f"{context.tag} cuda_error until=")
    assert reason.endswith(" by=live")
    with pytest.raises(ToolError, match="does not pass its probes"):
        uncordon_node(context, node=NODE)
    devcluster.inject(NODE, "clear")
    uncordon_node(context, node=NODE)
    devcluster.settle()


def test_a_diagnostic_names_the_gpu_that_failed(context: Context, devcluster: DevCluster) -> None:
    devcluster.inject(NODE, "xid", code=63, gpu=5)
    found = diagnose_gpus(context, nodes=[NODE, "gpu001"])
    assert found["failed"] == [NODE]
    assert "GPU 5 has a pending row remapping" in found["nodes"][NODE]["tests"][0]["text"]
