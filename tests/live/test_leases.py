"""A drain that ran out on a real cluster: renewed while the node is broken, lifted after a real ring test when it is well."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assistant.config import Settings, SshSettings
from assistant.engine import Engine
from assistant.engine.reconciliation import CordonEnding
from assistant.policy import KindTerms, Mode, Policy, load_policy
from assistant.records import JobSpec, JobState, NodeState
from assistant.recover.identity import parse
from assistant.transports.ssh import SshTransport
from assistant.wiring import build
from tests.live.conftest import until
from tests.live.test_two_round import TERMS

if TYPE_CHECKING:
    from tests.live.conftest import DevCluster

pytestmark = pytest.mark.live
NODE = "gpu002"
TINY_H = 0.0003
"""About a second."""


def policy() -> Policy:
    """Return the shipped policy in mode act, without the pace of a production cluster."""
    shipped = load_policy()
    kinds = {kind: KindTerms(takes_nodes=terms.takes_nodes, cooldown_min=0) for kind, terms in shipped.kind.items()}
    return replace(shipped, mode=Mode.ACT, kill_switch=(), kind=kinds, min_healthy_share=0.0)


@pytest.fixture
def engine(devcluster: DevCluster, tmp_path: Path) -> Iterator[Engine]:
    text = (Path(__file__).parents[2] / "knowledge" / "collective.toml").read_text()
    for old, new in TERMS.items():
        text = text.replace(old, new)
    (tmp_path / "site" / "knowledge").mkdir(parents=True)
    (tmp_path / "site" / "knowledge" / "collective.toml").write_text(text)
    settings = Settings(state_folder=tmp_path, store=tmp_path / "nightshift.db", content=tmp_path / "site")
    devcluster.settle()
    with SshTransport(SshSettings(config=devcluster.ssh_config)) as transport:
        yield build(settings, scheduler=devcluster.scheduler(), transport=transport, policy=policy())
    devcluster.inject(NODE, "clear")
    devcluster.settle()


def cordoned(engine: Engine) -> None:
    """Take the node out by a cordon that has run out when this returns."""
    done = engine.gate.call("cordon_node", {"node": NODE, "reason": "live test", "hours": TINY_H}, why="live", by="cli:live")
    assert done.ok, done.error
    until(lambda: shown(engine) in (NodeState.DRAINED, NodeState.DRAINING), 10)
    time.sleep(2)


def shown(engine: Engine) -> NodeState:
    return next(node.state for node in engine.scheduler.nodes() if node.name == NODE)


def run_out(engine: Engine) -> bool:
    own = parse(next(node.reason for node in engine.scheduler.nodes() if node.name == NODE))
    assert own is not None
    return own.expired(engine.clock.now())


def test_a_broken_node_is_renewed_and_a_healed_one_lifted_after_a_ring_test(engine: Engine, devcluster: DevCluster) -> None:
    devcluster.inject(NODE, "pcie", gpu=7, width=8)
    cordoned(engine)
    assert engine.tick(owner="live") == []
    assert shown(engine) is NodeState.DRAINED
    assert not run_out(engine)
    renewal = engine.store.calls()[-1]
    assert renewal.tool == "renew_cordon"
    assert "does not pass its probes" in renewal.why
    assert engine.settle_leases() == []
    devcluster.run("scontrol", "update", f"NodeName={NODE}", "State=RESUME")
    devcluster.inject(NODE, "clear")
    cordoned(engine)
    (one,) = engine.settle_leases(by="cli:live")
    assert one.ending is CordonEnding.LIFTED, one
    assert one.note == "collective test with gpu[001,003-004]: all 4 nodes are good (2 rounds)"
    until(lambda: shown(engine) is NodeState.IDLE, 20)
    assert "nightshift" not in devcluster.run("scontrol", "show", "reservation")
    job = engine.scheduler.submit(JobSpec("after", "#!/bin/bash\ntrue\n", nodes=4, work_dir=devcluster.shared))
    until(lambda: engine.scheduler.job(job).state is JobState.COMPLETED, 30)


def test_a_node_whose_network_to_its_partners_is_dead_is_renewed(engine: Engine, devcluster: DevCluster) -> None:
    addresses = [devcluster.on(node, "hostname", "-I").split()[0] for node in devcluster.nodes if node != NODE]
    cordoned(engine)
    for address in addresses:
        devcluster.on(NODE, "ip", "route", "add", "unreachable", address)
    try:
        (one,) = engine.settle_leases()
    finally:
        for address in addresses:
            devcluster.on(NODE, "ip", "route", "del", "unreachable", address)
    assert one.ending is CordonEnding.RENEWED
    assert "finds it faulty" in one.note
    assert not run_out(engine)


def test_a_node_that_is_cut_off_is_unknown_and_renewed(engine: Engine, devcluster: DevCluster) -> None:
    cordoned(engine)
    devcluster.fault(NODE, "sshd")
    try:
        (one,) = engine.settle_leases()
    finally:
        devcluster.heal(NODE)
    assert one.ending is CordonEnding.RENEWED
    assert "reachable" in one.note
    assert not run_out(engine)


def test_what_a_person_drained_is_left_alone(engine: Engine, devcluster: DevCluster) -> None:
    devcluster.run("scontrol", "update", f"NodeName={NODE}", "State=DRAIN", "Reason=bob: fan")
    assert engine.settle_leases(by="cli:live") == []
    assert next(node.reason for node in engine.scheduler.nodes() if node.name == NODE) == "bob: fan"
