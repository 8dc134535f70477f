"""Settling cordons that ran out, from the shell, on the embedded scheduler: probes and ring test are real."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.cli.output import Exit
from assistant.config import load
from assistant.ports import SystemClock
from assistant.records import NodeState
from assistant.recover.identity import lease
from assistant.schedulers.local import LocalScheduler
from assistant.wiring import local_folder, open_store
from tests.own_cordons import earlier_cordon

Run = Callable[..., Any]

XID_79 = "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
TERMS = {"block_mib = 16": "block_mib = 1", "repeats   = 5": "repeats = 1", "slow_share = 0.5": "slow_share = 0.01"}


@pytest.fixture
def scheduler(home: Path) -> LocalScheduler:
    """The embedded scheduler of the command line, whose node02 is out by a cordon that ran out long ago."""
    terms = (Path(__file__).parents[2] / "knowledge" / "collective.toml").read_text()
    for old, new in TERMS.items():
        assert old in terms
        terms = terms.replace(old, new)
    (home / "site" / "knowledge").mkdir(parents=True)
    (home / "site" / "knowledge" / "collective.toml").write_text(terms)
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "nightshift" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'content = "{home / "site"}"\n[commands]\nkernel_log = ["cat", "kernel.log"]\n')
    made = LocalScheduler(local_folder(load().settings), SystemClock())
    for node in made.nodes():
        (made.node_folder(node.name) / "kernel.log").touch()
    long_ago = datetime(2026, 1, 1, tzinfo=UTC)
    with open_store(load().settings) as store:
        made.cordon("node02", lease(earlier_cordon(store, "node02"), "ecc_error", "cli:bob", long_ago).render())
    return made


def state(scheduler: LocalScheduler) -> NodeState:
    return next(one.state for one in scheduler.nodes() if one.name == "node02")


def test_a_healthy_node_is_put_back(cli: Run, scheduler: LocalScheduler) -> None:
    said = cli("nodes", "leases", "--settle", "--yes")
    assert said.code == Exit.DONE, said
    assert said.out.startswith("node02 lifted: collective test with node[01,")
    assert state(scheduler) is NodeState.IDLE
    assert cli("nodes", "leases", "--settle").out == "no cordon of ours has run out\n"


def test_a_broken_node_is_kept_and_its_lease_runs_again(cli: Run, scheduler: LocalScheduler) -> None:
    (scheduler.node_folder("node02") / "kernel.log").write_text(XID_79)
    (found,) = cli("nodes", "leases", "--settle", "--yes", "--json").objects
    assert (found["node"], found["ending"]) == ("node02", "renewed")
    assert "XID 79" in found["note"]
    assert state(scheduler) is NodeState.DRAINED
    (row,) = cli("nodes", "leases", "--json").objects
    assert (row["expired"], row["incident"], row["by"], row["why"]) == (False, None, "bob", "ecc_error")
    assert "XID 79" in cli("audit", "show", "--json").out


def test_without_a_yes_it_waits_for_one(cli: Run, scheduler: LocalScheduler) -> None:
    said = cli("nodes", "leases", "--settle")
    assert said.code == Exit.WAITS
    assert said.out.startswith("node02 waits: ")
    (waiting,) = cli("approvals", "--json").objects
    assert cli("approve", "1", "--digest", waiting["digest"]).code == Exit.DONE
    assert state(scheduler) is NodeState.IDLE


def test_a_dry_run_shows_both_commands_and_does_nothing(cli: Run, scheduler: LocalScheduler) -> None:
    said = cli("nodes", "leases", "--settle", "--dry-run")
    assert said.code == Exit.WAITS
    lines = said.out.splitlines()
    tag = next(one.reason for one in scheduler.nodes() if one.name == "node02").split()[0]
    assert lines[0].startswith(f"would run: scontrol update NodeName=node02 State=RESUME  # was: {tag} ecc_error")
    assert "after its probes and a collective test with node[01," in lines[0]
    renewal = f"  or, when it does not pass: scontrol update NodeName=node02 State=DRAIN Reason='{tag} ecc_error until="
    assert lines[2].startswith(renewal)
    assert cli("nodes", "leases", "--settle", "--dry-run", "--json").objects[0]["verdict"] == "ask"
    assert state(scheduler) is NodeState.DRAINED
    assert cli("audit", "show", "--json").out.count("\n") == 1  # the earlier cordon


def test_the_watch_in_observe_mode_leaves_it_and_says_so(cli: Run, scheduler: LocalScheduler) -> None:
    said = cli("watch", "--once")
    assert said.code == Exit.DONE
    assert "node=node02 cordon ran out, refused" in said.err
    assert "node02" not in cli("watch", "--once").err
    assert state(scheduler) is NodeState.DRAINED


@pytest.mark.parametrize("words", [["--dry-run"], ["--yes"]])
def test_options_of_settling_are_refused_without_it(cli: Run, words: list[str]) -> None:
    said = cli("nodes", "leases", *words)
    assert said.code == Exit.USAGE
    assert "nodes leases --settle" in said.err
