"""The tool two_round_test: whom it may touch, what it tells, and a whole run on the embedded scheduler's nodes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.errors import ToolError, Unavailable
from assistant.ports import JumpingClock
from assistant.records import JobSpec, Reservation
from assistant.recover.collective.executor import busy, free_nodes, kept_free
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tooling import Context, to_json
from assistant.tools.collective import two_round_test
from assistant.transports.local import LocalTransport
from tests.no_history import NoHistory


class Reserving(SimulatedCluster):
    """A cluster that can keep nodes free, as Slurm's."""

    refuses = False

    def reservations(self) -> Sequence[Reservation]:
        return ()

    def reserve(self, name: str, nodes: Sequence[str], *, minutes: int, users: Sequence[str] = ()) -> None:
        if self.refuses:
            raise ToolError("only an operator may reserve nodes")
        self.changes.append(f"reserve {name} {minutes} {','.join(nodes)}")

    def unreserve(self, name: str) -> None:
        self.changes.append(f"unreserve {name}")


def made(kind: type[SimulatedCluster], folder: Path) -> SimulatedCluster:
    return kind(JumpingClock(datetime(2026, 1, 1, tzinfo=UTC)), folder)


def context_of(cluster: SimulatedCluster) -> Context:
    return Context(cluster, cluster, cluster.clock, random.Random(1), NoHistory(), tag="nightshift:3:9")


def submitted(cluster: SimulatedCluster, *, nodes: int) -> str:
    cluster.plan("llm", SimulatedRun())
    return cluster.submit(JobSpec("llm", "", nodes=nodes))


NAMES = ["node01", "node02", "node03", "node04"]


def test_nodes_that_run_a_job_are_left_out_and_why_is_said(tmp_path: Path) -> None:
    cluster = made(SimulatedCluster, tmp_path)
    submitted(cluster, nodes=2)
    free = free_nodes(cluster, [*NAMES, "node77"])
    assert free.nodes == ["node03", "node04"]
    assert free.left_out == {"node01": "job 1 runs on it", "node02": "job 1 runs on it", "node77": "unknown to simulated"}


def test_nodes_of_a_job_that_has_ended_may_be_tested(tmp_path: Path) -> None:
    cluster = made(SimulatedCluster, tmp_path)
    cluster.cancel(submitted(cluster, nodes=4))
    assert free_nodes(cluster, NAMES).nodes == NAMES


def test_with_fewer_than_two_free_nodes_the_test_is_refused(tmp_path: Path) -> None:
    cluster = made(SimulatedCluster, tmp_path)
    submitted(cluster, nodes=3)
    with pytest.raises(ToolError, match=r"needs 2 without a job; found node04 .*node01: job 1 runs on it"):
        two_round_test(context_of(cluster), nodes=NAMES)
    with pytest.raises(ToolError, match="found none"):
        two_round_test(context_of(cluster), nodes=[])


def test_what_cannot_be_looked_up_counts_as_running(tmp_path: Path) -> None:
    cluster = made(SimulatedCluster, tmp_path)
    assert busy(cluster, NAMES) == []
    cluster.outage = True
    assert busy(cluster, NAMES) == NAMES
    with pytest.raises(Unavailable):
        two_round_test(context_of(cluster), nodes=NAMES)


def test_an_unknown_program_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="known: auto, gloo, nccl, ring"):
        two_round_test(context_of(made(SimulatedCluster, tmp_path)), nodes=NAMES, program="mpi")


def test_a_program_that_the_nodes_lack_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"nccl was asked for, but the best that all of node\[01-04\] have is ring"):
        two_round_test(context_of(made(SimulatedCluster, tmp_path)), nodes=NAMES, program="nccl")


def test_nodes_without_an_interpreter_are_unreached_and_nobody_is_blamed(tmp_path: Path) -> None:
    cluster = made(SimulatedCluster, tmp_path)
    cluster.unfit = None
    told = two_round_test(context_of(cluster), nodes=["node[01-04]"])
    assert told["unreached"] == NAMES
    assert told["faulty"] == []
    assert to_json(told) == told


def test_nodes_are_reserved_for_the_time_of_the_test(tmp_path: Path) -> None:
    cluster = made(Reserving, tmp_path)
    told = two_round_test(context_of(cluster), nodes=NAMES)
    assert told["reservation"] == "nightshift-test-3-9"
    assert cluster.changes == ["reserve nightshift-test-3-9 11 node01,node02,node03,node04", "unreserve nightshift-test-3-9"]


def test_a_refused_reservation_does_not_stop_the_test(tmp_path: Path) -> None:
    cluster = made(Reserving, tmp_path)
    cluster.refuses = True  # type: ignore[attr-defined]
    told = two_round_test(context_of(cluster), nodes=NAMES)
    assert told["reservation"] == ""
    assert cluster.changes == []


def test_a_reservation_ends_when_the_test_breaks(tmp_path: Path) -> None:
    cluster = made(Reserving, tmp_path)
    with pytest.raises(ZeroDivisionError), kept_free(cluster, NAMES, 60, name="nightshift-test-1"):
        raise ZeroDivisionError
    assert cluster.changes[-1] == "unreserve nightshift-test-1"


def test_the_preview_says_who_how_long_and_who_not(tmp_path: Path) -> None:
    cluster = made(SimulatedCluster, tmp_path)
    submitted(cluster, nodes=1)
    assert two_round_test.show is not None
    shown = two_round_test.show(context_of(cluster), nodes=NAMES)
    assert shown.text == (
        "'two-round collective test' on 'node[02-04]' with auto"
        "  # without node01; 1 round, about 3 s and 80 MiB a node; 11 min at most"
    )


def test_after_a_crash_it_is_made_again(tmp_path: Path) -> None:
    assert two_round_test.find is not None
    assert two_round_test.find(context_of(made(SimulatedCluster, tmp_path)), "nightshift:3:9", nodes=NAMES) is None


@contextmanager
def killed_on(folder: Path, node: str) -> Iterator[None]:
    """Let `python3` on a node be a program that kills itself."""
    broken = folder / node / "python3"
    broken.write_text("#!/bin/sh\nkill -9 $$\n")
    broken.chmod(0o755)
    yield
    broken.unlink()


def test_a_node_whose_program_dies_is_faulty_and_the_others_are_good(tmp_path: Path) -> None:
    cluster = made(SimulatedCluster, tmp_path)
    for name in NAMES:
        (tmp_path / name).mkdir()
    site = tmp_path / "site" / "knowledge"
    site.mkdir(parents=True)
    shipped = (Path(__file__).parents[2] / "knowledge" / "collective.toml").read_text()
    times = {"block_mib = 16": "block_mib = 1", "connect_s  = 15.0": "connect_s = 4.0", "deadline_s = 40.0": "deadline_s = 5.0"}
    for old, new in times.items():
        assert old in shipped
        shipped = shipped.replace(old, new)
    (site / "collective.toml").write_text(shipped.replace("slow_share = 0.5", "slow_share = 0.02"))
    # a node's own folder comes first, as a node's own /usr/bin does
    finder = ("sh", "-c", 'if [ -x ./python3 ]; then exec ./python3 "$@"; fi; exec python3 "$@"', "sh")
    context = replace(context_of(cluster), transport=LocalTransport(tmp_path), commands={"python3": finder}, site=tmp_path / "site")
    with killed_on(tmp_path, "node02"):
        told = two_round_test(context, nodes=NAMES, program="ring")
    assert told["faulty"] == ["node02"], told
    assert told["good"] == ["node01", "node03", "node04"]
    assert told["note"] == "faulty: node02 (2 rounds)"
    assert {world["outcome"] for world in told["worlds"]} == {"pass", "fail"}
