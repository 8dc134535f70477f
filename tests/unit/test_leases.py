"""Drain leases: their text, what is ours, and the tools that set, renew and lift them."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.errors import ToolError
from assistant.ports import JumpingClock, Reply
from assistant.records import Node, NodeState
from assistant.recover.identity import Lease, expired, lease, ours, parse
from assistant.schedulers.simulated import SimulatedCluster
from assistant.tooling import Context
from assistant.tools.cordons import cordon_leases, cordon_node, renew_cordon, uncordon_node
from tests.no_history import MadeCalls, cordon_call

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def test_a_lease_reads_as_operators_expect() -> None:
    own = lease("nightshift:7:9", "ecc_error, incident 7", "cli:alice", NOON, 24)
    assert own.render() == "nightshift:7:9 ecc_error, incident 7 until=2026-03-02T12:00:00Z by=alice"
    assert parse(own.render()) == own
    assert (own.incident, own.set_at) == (7, NOON)


@given(why=st.text(max_size=300), by=st.text(max_size=30), hours=st.floats(0.1, 700))
def test_whatever_the_reason_it_is_found_again(why: str, by: str, hours: float) -> None:
    own = lease("nightshift:3:4", why, by, NOON, hours)
    text = own.render()
    found = parse(text)
    assert found is not None
    assert (found.tag, found.until, found.by, found.why) == (own.tag, own.until, own.by, own.why)
    assert text.isprintable()
    assert '"' not in text


def test_a_reason_cannot_lengthen_its_own_lease() -> None:
    own = lease("nightshift:3:4", "bad until=2099-01-01T00:00:00Z by=root", "alice", NOON, 1)
    found = parse(own.render())
    assert found is not None
    assert (found.until, found.by) == (NOON + timedelta(hours=1), "alice")


@pytest.mark.parametrize(
    "reason",
    [
        "",
        "alice: new DIMM",
        "Not responding",
        "HC: nightshift:1:2 said so",
        "nightshift-ops moves racks until=2026-03-02T12:00:00Z by=bob",
        "nightshifters:1:2 x",
        "nightshift:1 x",
        "nightshift:a:b x",
        " nightshift",
        "nightshift",
        "Nightshift:1:2 x",
    ],
)
def test_what_others_wrote_is_never_ours(reason: str) -> None:
    assert not ours(reason)
    assert parse(reason) is None


@pytest.mark.parametrize("reason", ["nightshift:1:2 ecc_error", "nightshift: by hand", "nightshift:", "nightshift:1:2"])
def test_a_lease_of_an_older_version_has_no_end(reason: str) -> None:
    found = parse(reason)
    assert found is not None
    assert (found.until, found.expired(NOON), found.render()) == (None, False, reason)


@pytest.mark.parametrize("until", ["tomorrow", "2026-13-01T00:00:00Z", "2026-03-01T12:00:00"])
def test_an_end_that_cannot_be_read_never_comes(until: str) -> None:
    found = parse(f"nightshift:1:2 x until={until} by=alice")
    assert found is not None
    assert not found.expired(NOON + timedelta(days=999))


def test_a_renewal_never_shortens() -> None:
    own = lease("nightshift:1:2", "x", "alice", NOON, 72)
    assert own.renewed(NOON, 24).until == own.until
    assert own.renewed(NOON, 96).until == NOON + timedelta(hours=96)
    assert Lease("nightshift:1:2", "x", None, "").renewed(NOON).until == NOON + timedelta(hours=24)


def test_the_oldest_of_what_ran_out_comes_first() -> None:
    nodes = [
        Node(f"n{hours}", NodeState.DRAINED, reason=lease("nightshift:1:2", "x", "a", NOON, hours).render()) for hours in (5, 1, 30)
    ]
    found = expired([*nodes, Node("n9", NodeState.DRAINED, reason="bob: disk")], NOON + timedelta(hours=10))
    assert [node.name for node, _ in found] == ["n1", "n5"]


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    made = SimulatedCluster(JumpingClock(NOON), tmp_path)
    made.answers["true"] = lambda node: Reply(node, True, 0, "", "")
    return made


@pytest.fixture
def context(cluster: SimulatedCluster) -> Context:
    return Context(
        cluster,
        cluster,
        cluster.clock,
        random.Random(1),
        MadeCalls(cordon_call(9, 3, "node02"), cordon_call(11, 4, "node02")),
        tag="nightshift:3:9",
        by="cli:alice",
    )


def reason(cluster: SimulatedCluster) -> str:
    return cluster.nodes()[1].reason


def test_a_node_goes_back_when_nothing_new_speaks_against_it(context: Context, cluster: SimulatedCluster) -> None:
    cluster.kernel["node02"] = [
        f"[{NOON - timedelta(days=2):%a %b %e %H:%M:%S %Y}] NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus."
    ]
    cordon_node(context, node="node02", reason="cuda_error")
    cluster.clock.sleep(3600)
    assert uncordon_node(context, node="node02")["reason_before"].startswith("nightshift:3:9 cuda_error until=")
    assert cluster.nodes()[1].state is NodeState.IDLE


def test_a_node_with_a_new_fault_stays_out_unless_forced(context: Context, cluster: SimulatedCluster) -> None:
    cordon_node(context, node="node02", reason="cuda_error")
    cluster.clock.sleep(3600)
    cluster.kernel["node02"] = [
        f"[{cluster.clock.now():%a %b %e %H:%M:%S %Y}] NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus."
    ]
    with pytest.raises(ToolError, match="does not pass its probes and stays out: kernel_log: XID 79"):
        uncordon_node(context, node="node02")
    uncordon_node(context, node="node02", force="the GPU was replaced")
    assert cluster.nodes()[1].state is NodeState.IDLE


def test_a_node_that_does_not_answer_stays_out(context: Context, cluster: SimulatedCluster) -> None:
    cordon_node(context, node="node02", reason="x")
    cluster.answers["true"] = lambda node: Reply(node, False, None, "", "timed out")
    with pytest.raises(ToolError, match="reachable: timed out"):
        uncordon_node(context, node="node02")


@pytest.mark.parametrize("standing", ["alice: new DIMM", "nightshift-ops moves racks"])
def test_what_somebody_else_took_out_stays_out_even_by_force(context: Context, cluster: SimulatedCluster, standing: str) -> None:
    cluster.set_cordon("node02", standing)
    for arguments in ({}, {"force": "I say so"}):
        with pytest.raises(ToolError, match="somebody else"):
            uncordon_node(context, node="node02", **arguments)
    with pytest.raises(ToolError, match="holds no lease of ours"):
        renew_cordon(context, node="node02")
    assert reason(cluster) == standing


def test_an_undo_finds_its_cordon_also_after_a_renewal(context: Context, cluster: SimulatedCluster) -> None:
    written = cordon_node(context, node="node02", reason="x")["reason"]
    cluster.clock.sleep(3600)
    assert renew_cordon(context, node="node02", hours=48)["reason"] == "nightshift:3:9 x until=2026-03-03T13:00:00Z by=alice"
    uncordon_node(context, node="node02", reason=written)
    assert cluster.nodes()[1].state is NodeState.IDLE


def test_an_undo_leaves_the_cordon_of_a_later_incident(context: Context, cluster: SimulatedCluster) -> None:
    written = cordon_node(context, node="node02", reason="x")["reason"]
    uncordon_node(context, node="node02", reason=written)
    cordon_node(replace(context, tag="nightshift:4:11"), node="node02", reason="y")
    with pytest.raises(ToolError, match="another reason now"):
        uncordon_node(context, node="node02", reason=written)


def test_leases_that_ran_out_are_listed_and_nothing_is_lifted(context: Context, cluster: SimulatedCluster) -> None:
    cordon_node(context, node="node02", reason="x", hours=2)
    cluster.set_cordon("node03", "bob: disk")
    assert cordon_leases(context)["expired"] == []
    cluster.clock.sleep(3 * 3600)
    found = cordon_leases(context)
    assert (found["expired"], [one["node"] for one in found["leases"]]) == (["node02"], ["node02"])
    assert cluster.nodes()[1].state is NodeState.DRAINED


def test_a_renewal_is_found_again_while_most_of_it_is_to_come(context: Context, cluster: SimulatedCluster) -> None:
    assert renew_cordon.find is not None
    cordon_node(context, node="node02", reason="x", hours=2)
    assert renew_cordon.find(context, "nightshift:0:8", node="node02") is None
    written = renew_cordon(context, node="node02")["reason"]
    cluster.clock.sleep(3600)
    assert renew_cordon.find(context, "nightshift:0:8", node="node02")["reason"] == written
    cluster.set_cordon("node02", "bob: disk")
    assert renew_cordon.find(context, "nightshift:0:8", node="node02") is None


@pytest.mark.parametrize("hours", [0.0, -1.0, 1e9, float("nan")])
def test_a_lease_has_a_sensible_length(context: Context, hours: float) -> None:
    with pytest.raises(ToolError, match="a lease runs for"):
        cordon_node(context, node="node02", reason="x", hours=hours)


def test_a_preview_is_the_command_and_says_what_would_be_refused(context: Context, cluster: SimulatedCluster) -> None:
    cluster.set_cordon("node02", "bob: disk")
    assert uncordon_node.show is not None
    assert renew_cordon.show is not None
    assert uncordon_node.show(context, node="node02").text.endswith("# was: bob: disk (not ours: it would be refused)")
    assert renew_cordon.show(context, node="node02").text == "node node02 holds no lease of ours: nothing is done"
