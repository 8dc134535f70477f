"""Checking nodes as Nagios and Slurm ask for it, and leases of cordons, from the shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assistant.cli.output import Exit, Nagios
from assistant.config import load
from assistant.ports import SystemClock
from assistant.records import NodeState
from assistant.recover.identity import lease
from assistant.schedulers.local import LocalScheduler
from assistant.wiring import local_folder, open_store
from tests.own_cordons import earlier_cordon

Run = Callable[..., Any]

FIRST_LINE = re.compile(
    r"NIGHTSHIFT NODES (OK|WARNING|CRITICAL|UNKNOWN) - .+ \| nodes=\d+ ok=\d+ warning=\d+ critical=\d+ unknown=\d+ faulty=\d+"
)
XID_79 = "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"


@pytest.fixture
def scheduler(home: Path, monkeypatch: pytest.MonkeyPatch) -> LocalScheduler:
    """The embedded scheduler of the command line, whose nodes have kernel logs of their own."""
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "nightshift" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[commands]\nkernel_log = ["cat", "kernel.log"]\n')
    folder = local_folder(load().settings)
    made = LocalScheduler(folder, SystemClock())
    for node in ("node01", "node02"):
        (made.node_folder(node) / "kernel.log").touch()
    return made


def state(scheduler: LocalScheduler, node: str) -> NodeState:
    return next(one.state for one in scheduler.nodes() if one.name == node)


def test_a_node_checks_itself_for_little_cpu_and_without_anything_else() -> None:
    before = os.times()
    done = subprocess.run(
        [sys.executable, "-m", "assistant", "nodes", "check", "--local"],
        env={"SLURMD_NODENAME": "gpu007"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    after = os.times()
    # CPU and not the clock: Slurm gives a health check 60 s, and beside a busy node's jobs it has to come to its end
    assert sum(after[2:4]) - sum(before[2:4]) < 10, "seconds of CPU"
    assert FIRST_LINE.fullmatch(done.stdout.splitlines()[0]), done
    assert "(gpu007)" in done.stdout
    assert done.returncode in (Nagios.OK, Nagios.WARNING, Nagios.CRITICAL, Nagios.UNKNOWN)


def test_it_neither_opens_nor_makes_a_store(cli: Run, home: Path) -> None:
    said = cli("nodes", "check", "--local", "--json")
    assert len(said.objects) == 1
    assert {"node", "status", "faulty", "probes"} <= set(said.objects[0])
    assert not list(home.rglob("*.db"))


@pytest.mark.parametrize(
    ("level", "code"),
    [("", Nagios.CRITICAL), ("critical", Nagios.CRITICAL), ("faulty", Nagios.CRITICAL), ("warning", Nagios.CRITICAL)],
)
def test_a_lost_gpu_fails_at_every_level(cli: Run, scheduler: LocalScheduler, level: str, code: Nagios) -> None:
    (scheduler.node_folder("node02") / "kernel.log").write_text(XID_79)
    said = cli("nodes", "check", "node02", *(["--fail-on", level] if level else []))
    assert said.code == code
    assert FIRST_LINE.fullmatch(said.out.splitlines()[0])
    assert "1 CRITICAL (node02); faulty: node02 |" in said.out
    assert "node02: CRITICAL kernel_log: XID 79 on 0000:05:00" in said.out
    assert "-> drain the node and power cycle it" in said.out


@pytest.mark.parametrize(("level", "code"), [("faulty", Nagios.OK), ("critical", Nagios.OK)])
def test_what_a_prolog_should_not_drain_for_is_zero(cli: Run, scheduler: LocalScheduler, level: str, code: Nagios) -> None:
    (scheduler.node_folder("node02") / "kernel.log").write_text("NVRM: Xid (PCI:0000:05:00): 31, pid=1, name=python\n")
    (scheduler.node_folder("node01") / "down").touch()
    said = cli("nodes", "check", "node[01-02]", "--fail-on", level)
    assert said.code == code
    assert "node01: UNKNOWN reachable" in said.out


@pytest.mark.parametrize(
    "words", [["--fail-on", "anything"], ["--local", "node01"], ["--since", "yesterday"], ["--local", "--since", "x"], ["node99"]]
)
def test_a_check_that_is_asked_wrongly_is_unknown(cli: Run, scheduler: LocalScheduler, words: list[str]) -> None:
    said = cli("nodes", "check", *words)
    assert said.code == Nagios.UNKNOWN
    assert said.out.startswith("NIGHTSHIFT NODES UNKNOWN - ")


def test_a_bar_in_a_text_does_not_begin_figures(cli: Run, scheduler: LocalScheduler) -> None:
    (scheduler.node_folder("node02") / "kernel.log").write_text("NVRM: Xid (PCI:0000:05:00): 31, pid=1, name=a|b=9\n")
    said = cli("nodes", "check", "node02")
    assert said.out.count("|") == 1


def test_nodes_with_the_same_trouble_stand_on_one_line(cli: Run, scheduler: LocalScheduler) -> None:
    for node in ("node01", "node02"):
        (scheduler.node_folder(node) / "kernel.log").write_text(XID_79)
    assert "node[01-02]: CRITICAL kernel_log" in cli("nodes", "check", "node[01-02]").out


def test_a_node_goes_back_only_after_its_probes_pass_or_by_force(cli: Run, scheduler: LocalScheduler) -> None:
    cli("nodes", "cordon", "node02", "--yes", "--hours", 3)
    (found,) = cli("nodes", "leases", "--json").objects
    assert (found["node"], found["expired"], found["incident"]) == ("node02", False, None)
    (scheduler.node_folder("node02") / "kernel.log").write_text(XID_79)
    said = cli("nodes", "uncordon", "node02", "--yes")
    assert said.code == Exit.ERROR
    assert "does not pass its probes" in said.err
    assert state(scheduler, "node02") is NodeState.DRAINED
    assert cli("nodes", "uncordon", "node02", "--force", "--yes").code == Exit.USAGE
    said = cli("nodes", "uncordon", "node02", "--force", "--why", "GPU replaced", "--yes")
    assert said.code == Exit.DONE
    assert state(scheduler, "node02") is NodeState.IDLE
    assert "GPU replaced" in cli("audit", "show", "--json").out


def test_a_foreign_cordon_stays_even_by_force(cli: Run, scheduler: LocalScheduler, home: Path) -> None:
    scheduler.cordon("node02", "alice: new DIMM")
    said = cli("nodes", "uncordon", "node02", "--force", "--why", "I want to", "--yes")
    assert said.code == Exit.ERROR
    assert "somebody else" in said.err
    assert state(scheduler, "node02") is NodeState.DRAINED
    assert "would be refused" in cli("nodes", "uncordon", "node02", "--dry-run").out


def test_a_lease_that_ran_out_is_shown_and_can_be_renewed(cli: Run, scheduler: LocalScheduler) -> None:
    from datetime import UTC, datetime

    with open_store(load().settings) as store:
        tag = earlier_cordon(store, "node02")
    scheduler.cordon("node02", lease(tag, "ecc_error", "cli:bob", datetime(2026, 1, 1, tzinfo=UTC)).render())
    lines = cli("nodes", "leases").out.splitlines()
    assert lines[1].split() == ["node02", "drained", "2026-01-02T00:00:00Z", "yes", "bob", "-", "ecc_error"]
    assert f"Reason='{tag} ecc_error until=" in cli("nodes", "renew", "node02", "--dry-run").out
    assert cli("nodes", "renew", "node02", "--yes").code == Exit.DONE
    assert cli("nodes", "leases", "--json").objects[0]["expired"] is False


def test_a_dry_run_prints_the_exact_command_with_the_lease(cli: Run, scheduler: LocalScheduler) -> None:
    said = cli("nodes", "cordon", "node02", "--why", "fan is loud", "--dry-run")
    wanted = r"would run: scontrol update NodeName=node02 State=DRAIN Reason='nightshift:… fan is loud until=\S+Z by=\w+'"
    assert re.search(wanted, said.out)
