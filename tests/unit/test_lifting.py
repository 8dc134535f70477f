"""A cordon is lifted only after the probes and a collective test with healthy partners."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.errors import ToolError
from assistant.ports import JumpingClock, Reply
from assistant.records import JobSpec, NodeState, Reservation
from assistant.recover.collective.executor import partners_of
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tooling import Context
from assistant.tools.cordons import cordon_node, uncordon_node
from tests.no_history import MadeCalls, cordon_call

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Reserving(SimulatedCluster):
    """A cluster that can keep nodes free, as Slurm's."""

    others: tuple[str, ...] = ()

    def reservations(self) -> Sequence[Reservation]:
        return (Reservation("bench", self.others, ("bob",), None, None, active=True),) if self.others else ()

    def reserve(self, name: str, nodes: Sequence[str], *, minutes: int, users: Sequence[str] = ()) -> None:
        self.changes.append(f"reserve {','.join(nodes)}")

    def unreserve(self, name: str) -> None:
        self.changes.append("unreserve")


@pytest.fixture
def cluster(tmp_path: Path) -> Reserving:
    made = Reserving(JumpingClock(NOON), tmp_path, nodes=9)
    made.answers["true"] = lambda node: Reply(node, True, 0, "", "")
    return made


@pytest.fixture
def context(cluster: Reserving) -> Context:
    made = Context(
        cluster,
        cluster,
        cluster.clock,
        random.Random(1),
        MadeCalls(cordon_call(9, 3, "node02")),
        tag="nightshift:3:9",
        by="cli:alice",
    )
    cordon_node(made, node="node02", reason="x")
    cluster.changes.clear()
    return made


def state(cluster: SimulatedCluster) -> NodeState:
    return cluster.nodes()[1].state


def busy(cluster: SimulatedCluster, nodes: int) -> None:
    cluster.plan("llm", SimulatedRun(steps=10**6))
    cluster.submit(JobSpec("llm", "", nodes=nodes))
    cluster.changes.clear()


def test_it_is_tested_with_three_idle_nodes_which_are_kept_meanwhile(context: Context, cluster: Reserving) -> None:
    lifted = uncordon_node(context, node="node02")
    assert lifted["test"] == "collective test with node[01,04,07]: all 4 nodes are good (2 rounds)"
    assert cluster.changes == ["reserve node01,node04,node07", "unreserve", "uncordon node02"]
    assert state(cluster) is NodeState.IDLE


def test_a_node_that_fails_the_test_stays_out(context: Context, cluster: Reserving) -> None:
    cluster.unfit = {"node02"}
    wanted = r"stays out: the collective test with node\[01,04,07\] finds it faulty: fail in round 1 .*; repair it, or --force"
    with pytest.raises(ToolError, match=wanted):
        uncordon_node(context, node="node02")
    assert state(cluster) is NodeState.DRAINED
    uncordon_node(context, node="node02", force="I know better")
    assert state(cluster) is NodeState.IDLE


def test_a_bad_partner_does_not_keep_a_good_node_out(context: Context, cluster: Reserving) -> None:
    cluster.unfit = {"node01"}
    assert "faulty: node01" in uncordon_node(context, node="node02")["test"]


def test_what_the_test_cannot_tell_keeps_a_node_out(context: Context, cluster: Reserving) -> None:
    cluster.unfit = None
    with pytest.raises(ToolError, match=r"finds it unreached: .*look at it from its console"):
        uncordon_node(context, node="node02")
    cluster.unfit = {"node09"}
    busy(cluster, 7)
    with pytest.raises(ToolError, match=r"with node09 finds it ambiguous: .*try again with more idle partners, or --force"):
        uncordon_node(context, node="node02")
    assert state(cluster) is NodeState.DRAINED


def test_a_broken_fabric_keeps_it_out_without_blame(context: Context, cluster: Reserving) -> None:
    cluster.unfit = {node.name for node in cluster.nodes()}
    with pytest.raises(ToolError, match=r"ambiguous.*look at the fabric first"):
        uncordon_node(context, node="node02")


def test_without_an_idle_partner_it_stays_out_and_the_message_says_what_is_needed(context: Context, cluster: Reserving) -> None:
    busy(cluster, 8)
    with pytest.raises(ToolError, match="needs an idle node of partition simulated that is not cordoned, and there is none now"):
        uncordon_node(context, node="node02")
    assert state(cluster) is NodeState.DRAINED


def test_a_node_whose_job_goes_on_is_not_tested_inside_it(context: Context, cluster: Reserving) -> None:
    uncordon_node(context, node="node02", force="begin anew")
    busy(cluster, 2)
    cordon_node(context, node="node02", reason="x")
    with pytest.raises(ToolError, match="a job runs on it"):
        uncordon_node(context, node="node02")
    assert state(cluster) is NodeState.DRAINING


def test_partners_are_idle_in_service_of_the_partition_and_nobody_elses(context: Context, cluster: Reserving) -> None:
    cluster.set_cordon("node03", "bob: disk")
    cluster.set_down("node04")
    cluster.others = ("node05",)
    busy(cluster, 1)
    assert partners_of(cluster, "node02").nodes == ["node06", "node07", "node08"]
    elsewhere = [replace(node, partition="other") if node.name > "node06" else node for node in cluster.nodes()]
    cluster.nodes = lambda: elsewhere  # type: ignore[method-assign]
    assert partners_of(cluster, "node02") == (["node06"], "partition simulated")


def test_the_preview_says_that_it_will_be_tested(context: Context, cluster: Reserving) -> None:
    assert uncordon_node.show is not None
    shown = uncordon_node.show(context, node="node02")
    assert shown.note.endswith("; after its probes and a collective test with node[01,04,07] (about 6 s)")
    assert "collective" not in uncordon_node.show(context, node="node02", reason=cluster.nodes()[1].reason).text
    forced = uncordon_node.show(context, node="node02", force="new GPU")
    assert forced.note.endswith("; without the probes and the test: new GPU")
    busy(cluster, 8)
    assert "has no idle partner now: it would be refused" in uncordon_node.show(context, node="node02").note
