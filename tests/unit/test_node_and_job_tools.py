"""The tools for nodes and jobs on the simulated cluster."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.errors import ToolError
from assistant.ports import JumpingClock, Reply
from assistant.records import JobSpec, JobState, NodeState
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tooling import Context, find_tool
from assistant.tools.cordons import cordon_node, uncordon_node
from assistant.tools.jobs import cancel_job, list_jobs, show_job
from assistant.tools.nodes import check_nodes, kernel_log, node_states
from tests.no_history import MadeCalls, cordon_call


@pytest.fixture
def cluster(tmp_path: Path) -> SimulatedCluster:
    made = SimulatedCluster(JumpingClock(datetime(2026, 1, 1, tzinfo=UTC)), tmp_path)
    made.answers["true"] = lambda node: Reply(node, True, 0, "", "")
    made.kernel["node02"] = ["first", "NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus."]
    return made


@pytest.fixture
def context(cluster: SimulatedCluster) -> Context:
    commands = {"kernel_log": ("dmesg", "-T")}
    return Context(
        cluster,
        cluster,
        cluster.clock,
        random.Random(1),
        MadeCalls(cordon_call(9, 3, "node02")),
        commands=commands,
        tag="nightshift:3:9",
        by="cli:alice",
    )


def test_every_tool_is_found_with_a_description_of_each_argument() -> None:
    for name in ("node_states", "kernel_log", "check_nodes", "cordon_node", "uncordon_node", "list_jobs", "show_job", "cancel_job"):
        found = find_tool(name)
        assert found.doc
        assert all(argument.doc for argument in found.arguments.values()), name


def test_a_cordon_carries_the_tag_and_is_found_by_it(context: Context, cluster: SimulatedCluster) -> None:
    assert cordon_node.find is not None
    assert cordon_node.find(context, "nightshift:3:9", node="node02", reason="ecc_error") is None
    answer = cordon_node(context, node="node02", reason="ecc_error")
    assert answer["cordoned"]
    assert cluster.nodes()[1].reason == "nightshift:3:9 ecc_error until=2026-01-02T00:00:00Z by=alice"
    assert cordon_node.find(context, "nightshift:3:9", node="node02", reason="ecc_error") == answer
    assert cordon_node.find(context, "nightshift:3:99", node="node02", reason="ecc_error") is None


def test_a_node_that_somebody_took_out_is_left_with_their_reason(context: Context, cluster: SimulatedCluster) -> None:
    cluster.set_cordon("node02", "alice: new DIMM")
    answer = cordon_node(context, node="node02", reason="ecc_error")
    assert not answer["cordoned"]
    assert answer["note"] == "out of scheduling already: alice: new DIMM"
    assert cluster.nodes()[1].reason == "alice: new DIMM"
    with pytest.raises(ToolError, match="another reason now"):
        uncordon_node(context, node="node02", reason=answer["reason"])
    with pytest.raises(ToolError, match="somebody else"):
        uncordon_node(context, node="node02")


def test_the_undo_of_a_cordon_puts_the_node_back(context: Context, cluster: SimulatedCluster) -> None:
    answer = cordon_node(context, node="node02", reason="ecc_error")
    assert uncordon_node.find is not None
    assert uncordon_node.find(context, "nightshift:3:10", node="node02") is None
    uncordon_node(context, node="node02", reason=answer["reason"])
    assert cluster.nodes()[1].state is NodeState.IDLE
    assert uncordon_node.find(context, "nightshift:3:10", node="node02") is not None


def test_previews_are_what_a_person_would_type(context: Context, cluster: SimulatedCluster) -> None:
    job = cluster.submit(JobSpec("llm", "", user="alice"))
    for tool, arguments, wanted in (
        (
            cordon_node,
            {"node": "node02", "reason": "ecc"},
            "scontrol update NodeName=node02 State=DRAIN Reason='nightshift:3:9 ecc until=2026-01-02T00:00:00Z by=alice'",
        ),
        (uncordon_node, {"node": "node02"}, "scontrol update NodeName=node02 State=RESUME  # was: not cordoned"),
        (cancel_job, {"job": job}, f"scancel {job}  # llm of alice, running on 1 nodes"),
    ):
        assert tool.show is not None
        assert tool.show(context, **arguments).text == wanted
    assert cluster.changes == [f"submit {job}"]


def test_a_cordon_without_a_call_still_says_whose_it_is(context: Context, cluster: SimulatedCluster) -> None:
    cordon_node(replace(context, tag=""), node="node01", reason="by hand")
    assert cluster.nodes()[0].reason == "nightshift: by hand until=2026-01-02T00:00:00Z by=alice"


def test_an_unknown_node_is_refused(context: Context) -> None:
    with pytest.raises(ToolError, match="'node77' is unknown to the simulated scheduler"):
        cordon_node(context, node="node77", reason="x")


def test_the_kernel_log_is_given_by_node_and_a_dead_node_is_unknown(context: Context, cluster: SimulatedCluster) -> None:
    cluster.set_down("node03")
    answer = kernel_log(context, nodes=["node01", "node02", "node03"], lines=1)
    assert answer["text"] == {"node01": "", "node02": "NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus."}
    assert list(answer["unknown"]) == ["node03"]
    with pytest.raises(ToolError, match=r"commands\.kernel_log"):
        kernel_log(replace(context, commands={}), nodes=["node01"])


def test_a_check_tells_bad_from_unknown(context: Context, cluster: SimulatedCluster) -> None:
    cluster.set_down("node03")
    found = check_nodes(context, nodes=["node02", "node03"])["nodes"]
    assert found["node02"]["status"] == "critical"
    by_name = {one["probe"]: one["status"] for one in found["node02"]["probes"]}
    shown = {name: by_name[name] for name in ("reachable", "disk", "kernel_log", "load", "memory")}
    assert shown == {"reachable": "ok", "disk": "unknown", "kernel_log": "critical", "load": "unknown", "memory": "unknown"}
    assert found["node03"]["status"] == "unknown"
    assert [one["probe"] for one in found["node03"]["probes"]] == ["reachable"]


def test_states_of_nodes_are_listed_with_their_jobs(context: Context, cluster: SimulatedCluster) -> None:
    job = cluster.submit(JobSpec("llm", "", nodes=2))
    assert [(one["node"], one["state"], one["jobs"]) for one in node_states(context, nodes=["node01", "node04"])] == [
        ("node01", "allocated", [job]),
        ("node04", "idle", []),
    ]


def test_jobs_are_listed_newest_first_and_by_state(context: Context, cluster: SimulatedCluster) -> None:
    cluster.plan("bad", SimulatedRun(fails_at=1))
    bad, good = cluster.submit(JobSpec("bad", "")), cluster.submit(JobSpec("llm", "", user="alice"))
    cluster.clock.sleep(20)
    assert [one["job"] for one in list_jobs(context)] == [good, bad]
    assert [one["job"] for one in list_jobs(context, state="failed")] == [bad]
    assert [one["job"] for one in list_jobs(context, user="alice")] == [good]
    assert show_job(context, job=bad)["asked"]["nodes"] == 1


def test_a_cancel_is_found_again_only_when_the_job_is_over(context: Context, cluster: SimulatedCluster) -> None:
    job = cluster.submit(JobSpec("llm", ""))
    assert cancel_job.find is not None
    assert cancel_job.find(context, "nightshift:3:9", job=job) is None
    assert cancel_job(context, job=job) == {"job": job, "state_before": "running", "cancelled": True}
    assert cluster.job(job).state is JobState.CANCELLED
    assert cancel_job.find(context, "nightshift:3:9", job=job) is not None
    assert cancel_job(context, job=job)["cancelled"] is False
