"""The two-round test between real nodes over real sshd and TCP, with nodes that are cut off, slow, broken, busy, or at odds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assistant.config import SshSettings
from assistant.ports import SystemClock
from assistant.records import JobSpec, JobState
from assistant.tooling import Context
from assistant.tools.collective import two_round_test
from assistant.transports.ssh import SshTransport
from tests.live.conftest import DevCluster, until
from tests.no_history import NoHistory

pytestmark = pytest.mark.live

TERMS = {
    "block_mib = 16": "block_mib = 1",
    "repeats   = 5": "repeats = 1",
    "connect_s  = 15.0": "connect_s = 6.0",
    "deadline_s = 40.0": "deadline_s = 60.0",
    "margin_s   = 15.0": "margin_s = 5.0",
    # all nodes of the development cluster share two cores
    "slow_share = 0.5": "slow_share = 0.05",
}


@pytest.fixture
def context(devcluster: DevCluster, tmp_path: Path) -> Iterator[Context]:
    text = (Path(__file__).parents[2] / "knowledge" / "collective.toml").read_text()
    for old, new in TERMS.items():
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "knowledge").mkdir()
    (tmp_path / "knowledge" / "collective.toml").write_text(text)
    with SshTransport(SshSettings(config=devcluster.ssh_config)) as transport:
        yield Context(
            devcluster.scheduler(), transport, SystemClock(), random.Random(3), NoHistory(), tag="nightshift:5:6", site=tmp_path
        )
    devcluster.settle()


def verdict_on(context: Context, devcluster: DevCluster) -> dict[str, Any]:
    told: dict[str, Any] = two_round_test(context, nodes=list(devcluster.nodes), program="ring")
    return told


def test_good_nodes_are_good_and_the_reservation_is_gone_afterwards(context: Context, devcluster: DevCluster) -> None:
    told = verdict_on(context, devcluster)
    assert told["good"] == list(devcluster.nodes), told
    assert told["rounds"] in (2, 3), "one more where a busy machine made a world look slow"
    assert told["reservation"] == "nightshift-test-5-6"
    assert "nightshift" not in devcluster.run("scontrol", "show", "reservation")
    assert all(world["mib_s"] > 1 for world in told["worlds"])


def test_a_node_whose_program_dies_is_faulty_and_only_it(context: Context, devcluster: DevCluster) -> None:
    broken = "/usr/local/bin/python3"
    devcluster.on("gpu003", "sh", "-c", f"printf '#!/bin/sh\\nkill -9 $$\\n' > {broken}; chmod 755 {broken}")
    try:
        told = verdict_on(context, devcluster)
    finally:
        devcluster.on("gpu003", "rm", broken)
    assert told["faulty"] == ["gpu003"], told
    assert told["good"] == ["gpu001", "gpu002", "gpu004"]


def test_a_node_whose_network_to_the_others_is_dead_is_faulty_and_only_it(context: Context, devcluster: DevCluster) -> None:
    addresses = [_address(devcluster, node) for node in devcluster.nodes if node != "gpu002"]
    for address in addresses:
        devcluster.on("gpu002", "ip", "route", "add", "unreachable", address)
    try:
        told = verdict_on(context, devcluster)
    finally:
        for address in addresses:
            devcluster.on("gpu002", "ip", "route", "del", "unreachable", address)
    assert told["faulty"] == ["gpu002"], told


def test_two_nodes_at_odds_are_a_bad_pair_and_nobody_is_faulty(context: Context, devcluster: DevCluster) -> None:
    address = _address(devcluster, "gpu002")
    devcluster.on("gpu001", "ip", "route", "add", "unreachable", address)
    try:
        told = verdict_on(context, devcluster)
    finally:
        devcluster.on("gpu001", "ip", "route", "del", "unreachable", address)
    assert told["faulty"] == [], told
    assert told["edges"] == [["gpu001", "gpu002"]]
    assert told["good"] == list(devcluster.nodes)


def test_a_slow_link_is_found_by_bandwidth(context: Context, devcluster: DevCluster) -> None:
    devcluster.fault("gpu004", "slow")
    try:
        told = verdict_on(context, devcluster)
    finally:
        devcluster.heal("gpu004")
    assert told["slow"] == ["gpu004"], told
    assert told["faulty"] == []


@pytest.mark.parametrize("how", ["link", "hang", "sshd"])
def test_a_node_that_does_not_answer_is_unreached_never_faulty(context: Context, devcluster: DevCluster, how: str) -> None:
    devcluster.fault("gpu001", how)
    try:
        told = verdict_on(context, devcluster)
    finally:
        devcluster.heal("gpu001")
    assert told["unreached"] == ["gpu001"], told
    assert told["faulty"] == []
    assert told["good"] == ["gpu002", "gpu003", "gpu004"]


def test_nodes_of_a_running_job_are_left_alone(context: Context, devcluster: DevCluster) -> None:
    scheduler = context.scheduler
    job = scheduler.submit(JobSpec("busy", "#!/bin/bash\nsleep 60\n", nodes=2, work_dir=devcluster.shared))
    until(lambda: scheduler.job(job).state is JobState.RUNNING, 20)
    told = verdict_on(context, devcluster)
    assert set(told["left_out"]) == set(scheduler.job(job).nodes)
    assert len(told["good"]) == 2, told
    assert scheduler.job(job).state is JobState.RUNNING


def _address(devcluster: DevCluster, node: str) -> str:
    return devcluster.on(node, "hostname", "-I").split()[0]
