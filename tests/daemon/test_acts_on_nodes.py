"""How it acts: two independent signals before a node is taken out, and leases that never touch what is not ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.ports import Reply
from assistant.records import IncidentState, NodeState
from assistant.recover.identity import parse
from assistant.schedulers.simulated_run import SimulatedRun
from tests.chaos.failures import NCCL
from tests.daemon.shift import Shift, broken_gpu
from tests.scenarios.scene import XID

TOLD = ("srun: error: Node failure on node02",)
BROKEN = SimulatedRun(fails_at=50, lines=TOLD)


def cordons(shift: Shift) -> list[str]:
    return [change for change in shift.changes if change.startswith("cordon")]


def told_once(tmp_path: Path, *, nodes: int = 8) -> Shift:
    """Return a shift in which the job's log alone names node02."""
    shift = Shift(tmp_path, nodes=nodes)
    shift.submit("a", BROKEN, SimulatedRun())
    shift.people_are_done()
    return shift


# two signals


def test_what_the_log_alone_says_takes_no_node_out_and_the_restart_stays_away_from_it(tmp_path: Path) -> None:
    shift = told_once(tmp_path)
    (incident,) = shift.until_over()
    assert shift.found(incident).faulty_nodes == ("node02",)
    assert cordons(shift) == []
    assert "node02" not in shift.cluster.job("2").nodes
    assert incident.state is IncidentState.RECOVERED


def test_log_and_kernel_together_do(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    shift.submit("a", broken_gpu("node02"), SimulatedRun())
    shift.people_are_done()
    shift.until_over()
    assert cordons(shift) == ["cordon node02"]


def test_so_does_a_node_that_is_silent_while_others_answer(tmp_path: Path) -> None:
    shift = told_once(tmp_path)
    shift.cluster.answers["true"] = lambda node: Reply(
        node, node != "node02", 0 if node != "node02" else None, "", "no route to host"
    )
    shift.until_over()
    assert cordons(shift) == ["cordon node02"]


def test_silence_of_all_nodes_is_no_second_signal(tmp_path: Path) -> None:
    shift = told_once(tmp_path)
    shift.cluster.answers["true"] = lambda node: Reply(node, False, None, "", "the way to them is cut")
    shift.until_over()
    assert cordons(shift) == []


def test_so_does_the_same_node_a_second_time(tmp_path: Path) -> None:
    shift = told_once(tmp_path)
    shift.until_over()
    assert cordons(shift) == []
    shift.submit("b", BROKEN, SimulatedRun())
    shift.passes(900)
    assert "cordon node02" in shift.changes


def test_a_timeout_of_a_collective_takes_no_node_out(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    shift.submit("a", SimulatedRun(fails_at=50, lines=NCCL), SimulatedRun())
    shift.people_are_done()
    shift.until_over()
    assert cordons(shift) == []


# leases


def test_a_cordon_says_whose_it_is_for_which_incident_and_until_when(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    shift.submit("a", broken_gpu("node02"), SimulatedRun())
    (incident,) = shift.until_over()
    (reason,) = [node.reason for node in shift.cluster.nodes() if node.reason]
    lease = parse(reason)
    assert lease is not None
    assert lease.incident == incident.id
    assert lease.by == "playbook:faulty_node"
    assert lease.until is not None
    assert lease.until > shift.clock.now()


@pytest.mark.parametrize("reason", ["ada: replacing a fan", "NHC: check_hw_ib failed", "nightshiftish: mine"])
def test_a_foreign_reason_is_neither_overwritten_nor_cleared(tmp_path: Path, reason: str) -> None:
    shift = Shift(tmp_path)
    shift.submit("a", broken_gpu("node02"), SimulatedRun())
    shift.cluster.set_cordon("node02", reason)
    shift.people_are_done()
    shift.until_over()
    shift.clock.sleep(3 * 86400)
    shift.passes(3600, every=600)
    assert {node.reason for node in shift.cluster.nodes() if node.name == "node02"} == {reason}
    assert not [change for change in shift.changes if "node02" in change]


def test_it_puts_back_only_what_passes_its_checks(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    shift.submit("a", broken_gpu("node02"), SimulatedRun())
    shift.until_over()
    shift.people_are_done()
    shift.clock.sleep(25 * 3600)
    shift.cluster.kernel["node02"] = [f"{shift.clock.now():%Y-%m-%dT%H:%M:%S} {XID[0]}"]
    shift.passes(600)
    states = {node.name: node.state for node in shift.cluster.nodes()}
    assert states["node02"] is NodeState.DRAINED
    assert "uncordon node02" not in shift.changes


def test_it_puts_back_its_own_node_once_the_lease_has_run_out_and_the_checks_pass(tmp_path: Path) -> None:
    shift = Shift(tmp_path)
    shift.submit("a", broken_gpu("node02"), SimulatedRun())
    shift.until_over()
    shift.cluster.kernel["node02"] = []  # its GPU was changed
    shift.clock.sleep(23 * 3600)
    shift.passes(600)
    assert "uncordon node02" not in shift.changes, "the lease runs"
    shift.clock.sleep(2 * 3600)
    shift.passes(600)
    assert "uncordon node02" in shift.changes
