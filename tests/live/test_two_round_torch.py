"""The two-round test with torch and gloo between real nodes: good, slow, corrupting, hanging, killed, cut off.

`NIGHTSHIFT_TORCH` names a virtual environment with torch, else it is `.venv-torch`, which `make deps-torch` makes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from assistant.errors import ToolError
from assistant.recover.collective.commands import Choice, Program, Terms, load_terms
from assistant.recover.collective.executor import Runner
from assistant.recover.collective.planner import Outcome, Result
from assistant.tooling import Context
from assistant.tools.collective import two_round_test
from tests.live.conftest import TORCH, DevCluster
from tests.live.test_two_round import context

__all__ = ["context"]

pytestmark = pytest.mark.live

PYTHON = "/usr/local/bin/python3"
TORCHRUN = "/usr/local/bin/torchrun"
TASK = "*block_bytes*"
"""What a program's argument holds, and no other command's."""


def install(devcluster: DevCluster, node: str, *lines: str) -> None:
    """Let a node's python3 be the one that has torch, after some lines of shell."""
    text = "\n".join(["#!/bin/sh", *lines, f'exec {TORCH}/bin/python3 "$@"', ""])
    devcluster.on(node, "sh", "-c", 'printf %s "$1" > "$2"; chmod 755 "$2"', "sh", text, PYTHON)
    devcluster.on(node, "ln", "-sf", f"{TORCH}/bin/torchrun", TORCHRUN)


@pytest.fixture(autouse=True)
def torch_everywhere(devcluster: DevCluster) -> Iterator[None]:
    if not (TORCH / "bin/torchrun").is_file():
        pytest.skip(f"there is no torch in {TORCH}: make deps-torch, or NIGHTSHIFT_TORCH")
    for node in devcluster.nodes:
        install(devcluster, node)
    try:
        yield
    finally:
        for node in devcluster.nodes:
            devcluster.on(node, "rm", "-f", PYTHON, TORCHRUN)


def verdict_on(context: Context, devcluster: DevCluster, program: str = "gloo") -> dict[str, Any]:
    told: dict[str, Any] = two_round_test(context, nodes=list(devcluster.nodes), program=program)
    return told


def one_world(context: Context, devcluster: DevCluster, *nodes: str, terms: Terms | None = None) -> Result:
    """Return what comes of one world of gloo, without the rounds around it."""
    addresses = {node: devcluster.on(node, "hostname", "-I").split()[0] for node in nodes}
    runner = Runner(
        context.transport,
        terms or load_terms(context.site),
        context.random,
        addresses.__getitem__,
        lambda _: (),
        Choice(Program.GLOO),
    )
    (result,) = runner.run([nodes])
    return result


def test_gloo_is_chosen_by_itself_and_finds_its_way_where_hosts_call_themselves_loopback(
    context: Context, devcluster: DevCluster
) -> None:
    for node in devcluster.nodes:
        devcluster.on(node, "sh", "-c", "cp /etc/hosts /etc/hosts.kept; sed -i '1i 127.0.1.1 '$(hostname) /etc/hosts")
    try:
        told = verdict_on(context, devcluster, "auto")
    finally:
        for node in devcluster.nodes:
            devcluster.on(node, "sh", "-c", "cat /etc/hosts.kept > /etc/hosts")
    assert told["program"] == "gloo"
    assert told["good"] == list(devcluster.nodes), told
    assert told["rounds"] in (2, 3), "one more where a busy machine made a world look slow"
    assert all(world["mib_s"] > 1 for world in told["worlds"])


def test_a_slow_link_is_found_by_gloo_as_by_the_ring(context: Context, devcluster: DevCluster) -> None:
    devcluster.fault("gpu004", "slow")
    try:
        told = verdict_on(context, devcluster)
    finally:
        devcluster.heal("gpu004")
    assert told["slow"] == ["gpu004"], told
    assert told["faulty"] == []
    assert told["good"] == ["gpu001", "gpu002", "gpu003"]


def test_a_node_that_sends_wrong_bytes_is_faulty_and_only_it(context: Context, devcluster: DevCluster) -> None:
    # its program is given another seed than the others
    install(devcluster, "gpu003", f"""case "$3" in {TASK}) set -- -c "$2" "$(printf %s "$3" | sed 's/"seed": /&1/')";; esac""")
    told = verdict_on(context, devcluster)
    assert told["faulty"] == ["gpu003"], told
    assert told["good"] == ["gpu001", "gpu002", "gpu004"]
    assert any("content: the block of rank" in world["detail"] for world in told["worlds"]), told


def test_a_world_of_three_passes_as_one_of_two(context: Context, devcluster: DevCluster) -> None:
    result = one_world(context, devcluster, "gpu001", "gpu002", "gpu003")
    assert result.outcome is Outcome.PASS, result
    assert result.mib_s


def test_a_pair_that_cannot_connect_fails_after_the_time_to_connect(context: Context, devcluster: DevCluster) -> None:
    address = devcluster.on("gpu001", "hostname", "-I").split()[0]
    devcluster.on("gpu002", "ip", "route", "add", "unreachable", address)
    try:
        result = one_world(context, devcluster, "gpu001", "gpu002")
    finally:
        devcluster.on("gpu002", "ip", "route", "del", "unreachable", address)
    assert result.outcome is Outcome.FAIL, result
    assert result.detail.count("connect: ") == 2, result


HUNG = {
    "in the collective": """set -- -c "$(printf %s "$2" | sed 's/dist.all_gather(.*)/time.sleep(600)/')" "$3";;""",
    "before it begins": "exec sleep 600;;",
}


@pytest.mark.parametrize("where", list(HUNG))
def test_a_rank_that_hangs_costs_its_deadline(context: Context, devcluster: DevCluster, where: str) -> None:
    install(devcluster, "gpu003", f'case "$3" in {TASK}) {HUNG[where]} esac')
    terms, began = replace(load_terms(context.site), deadline_s=15.0, margin_s=30.0), time.monotonic()
    result = one_world(context, devcluster, "gpu001", "gpu003", terms=terms)
    assert result.outcome is Outcome.FAIL, result
    assert "gpu003: timeout: " in result.detail, result
    assert time.monotonic() - began < 15 + 30


def test_a_rank_that_is_killed_fails_its_world_and_is_told(context: Context, devcluster: DevCluster) -> None:
    install(devcluster, "gpu003", f"""case "$3" in {TASK}) kill -9 $$;; esac""")
    result = one_world(context, devcluster, "gpu001", "gpu003")
    assert result.outcome is Outcome.FAIL, result
    assert "gpu003: the program was killed by signal 9" in result.detail, result


def test_one_node_without_torchrun_makes_all_run_the_ring_and_is_named(context: Context, devcluster: DevCluster) -> None:
    devcluster.on("gpu002", "rm", TORCHRUN)
    told = verdict_on(context, devcluster, "auto")
    assert told["program"] == "ring"
    assert told["good"] == list(devcluster.nodes), told
    assert "it has no torchrun, so the test ran ring" in told["why"]["gpu002"], told
    with pytest.raises(ToolError, match=r"gloo was asked for, but the best that all of .* have is ring"):
        verdict_on(context, devcluster)
