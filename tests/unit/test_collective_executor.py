"""Real collectives between virtual nodes on this machine, with real failures: killed, hung, wrong, slow, unreachable, not there."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from assistant.ports import Reply
from assistant.recover.collective.commands import Terms, load_terms
from assistant.recover.collective.executor import Ran, Runner, run_test
from assistant.recover.collective.planner import Outcome, Verdict
from assistant.transports.local import LocalTransport

# virtual nodes share this machine's cores, so only what is far too slow counts; the connect time must outlast a busy machine's
# start of a few interpreters
TERMS = replace(load_terms(), block_mib=1, repeats=2, slow_share=0.02, connect_s=4.0, deadline_s=5.0, margin_s=5.0)
Spoil = Callable[[list[str]], list[str]]


class Spoiled:
    """The local transport with nodes that do something else than they are told."""

    name = "local"

    def __init__(self, folder: Path, spoiled: Mapping[str, Spoil]) -> None:
        self.inner, self.spoiled = LocalTransport(folder), spoiled

    def run(self, nodes: Sequence[str], command: Sequence[str], *, timeout_s: float) -> Mapping[str, Reply]:
        (node,) = nodes
        return self.inner.run(nodes, self.spoiled.get(node, list)(list(command)), timeout_s=timeout_s)


def retold(**changes: object) -> Spoil:
    """Change a node's task."""
    return lambda command: [*command[:-1], json.dumps({**json.loads(command[-1]), **changes})]


def says_instead(*words: str) -> Spoil:
    return lambda command: list(words)


def other_seed(command: list[str]) -> list[str]:
    task = json.loads(command[-1])
    return retold(seeds=[seed + (rank == task["rank"]) for rank, seed in enumerate(task["seeds"])])(command)


def other_ports(command: list[str]) -> list[str]:
    """Listen where nobody looks, as behind a firewall."""
    task = json.loads(command[-1])
    peers = [
        [address, [port - 8000 for port in ports] if rank == task["rank"] else ports]
        for rank, (address, ports) in enumerate(task["peers"])
    ]
    return retold(peers=peers)(command)


def no_ports(command: list[str]) -> list[str]:
    task = json.loads(command[-1])
    return retold(peers=[[address, ports if rank != task["rank"] else []] for rank, (address, ports) in enumerate(task["peers"])])(
        command
    )


def tried(
    folder: Path, spoiled: Mapping[str, Spoil], *, count: int = 4, terms: Terms = TERMS, busy: Sequence[str] = ()
) -> tuple[Verdict, list[Ran]]:
    names = [f"node{number:02}" for number in range(1, count + 1)]
    for name in names:
        (folder / name).mkdir()
    runner = Runner(
        Spoiled(folder, spoiled),
        terms,
        random.SystemRandom(),
        lambda _: "127.0.0.1",
        lambda nodes: [node for node in nodes if node in busy],
    )
    return run_test(names, runner)


def test_good_nodes_are_good_after_two_rounds(tmp_path: Path) -> None:
    verdict, ran = tried(tmp_path, {})
    assert verdict.good == ("node01", "node02", "node03", "node04"), verdict
    assert verdict.rounds == 2
    assert all(world.result.mib_s and world.result.mib_s > 1 for world in ran)


def test_an_odd_node_makes_a_world_of_three(tmp_path: Path) -> None:
    verdict, ran = tried(tmp_path, {}, count=3)
    assert [world.world for world in ran] == [("node01", "node02", "node03")]
    assert len(verdict.good) == 3, verdict


FAULTS = {
    "killed": (says_instead("sh", "-c", "kill -9 $$"), "killed by signal 9"),
    "killed inside a shell": (says_instead("sh", "-c", "sh -c 'kill -9 $$'; exit $?"), "killed by signal 9"),
    "wrong content": (other_seed, "content: the block of rank"),
    "refused ports": (other_ports, "connect: no connection to 127.0.0.1"),
    "stops half-way": (retold(most_mib_s=0.0001), "timeout: took"),
    "an impostor": (retold(token="0" * 32), "connect:"),
}


SLOW_FAULTS = ("killed inside a shell", "stops half-way", "an impostor")


@pytest.mark.parametrize("fault", [pytest.param(fault, marks=pytest.mark.slow if fault in SLOW_FAULTS else []) for fault in FAULTS])
def test_a_broken_node_is_found_and_nobody_else_is_blamed(tmp_path: Path, fault: str) -> None:
    spoil, said = FAULTS[fault]
    verdict, _ = tried(tmp_path, {"node03": spoil})
    assert verdict.faulty == ("node03",), verdict
    assert verdict.good == ("node01", "node02", "node04"), verdict
    assert any(said in why for why in verdict.why.values()), verdict.why


SILENCES = {
    "hangs": (says_instead("sleep", "60"), "did not end within"),
    "no interpreter": (says_instead("python3.nowhere"), "cannot run there"),
    "wrong interpreter": (says_instead("sh", "-c", "echo 'SyntaxError: invalid syntax' >&2; exit 1"), "SyntaxError"),
    "a banner and nothing else": (says_instead("echo", "Welcome to node02! \x1b[1m***"), "printed no report"),
    "no free port": (no_ports, "none of the ports"),
}


@pytest.mark.parametrize("silence", SILENCES)
def test_a_node_that_says_nothing_is_unreached_never_faulty(tmp_path: Path, silence: str) -> None:
    spoil, said = SILENCES[silence]
    terms = replace(TERMS, margin_s=0.5) if silence == "hangs" else TERMS
    verdict, _ = tried(tmp_path, {"node02": spoil}, terms=terms)
    assert verdict.unreached == ("node02",), verdict
    assert verdict.good == ("node01", "node03", "node04"), verdict
    assert said in verdict.why["node02"]


def test_a_dead_node_is_unreached(tmp_path: Path) -> None:
    (tmp_path / "node01").mkdir()
    (tmp_path / "node01" / "down").touch()
    runner = Runner(LocalTransport(tmp_path), TERMS, random.SystemRandom(), lambda _: "127.0.0.1", lambda nodes: ())
    verdict, _ = run_test(["node01"], runner)
    assert verdict.unreached == ("node01",)
    assert "No route to host" in verdict.why["node01"]


def test_a_slow_node_is_found_by_its_bandwidth(tmp_path: Path) -> None:
    # slow enough for a busy machine, on which the others are slow as well
    verdict, _ = tried(tmp_path, {"node04": retold(most_mib_s=0.4)}, terms=replace(TERMS, deadline_s=20.0))
    assert verdict.slow == ("node04",), verdict
    assert verdict.good == ("node01", "node02", "node03"), verdict
    assert "MiB/s, limit" in verdict.why["node04"]


def test_a_banner_before_the_report_does_no_harm(tmp_path: Path) -> None:
    def greets(command: list[str]) -> list[str]:
        return ["sh", "-c", 'echo "*** authorised use only ***"; exec "$@"', "sh", *command]

    verdict, _ = tried(tmp_path, {"node01": greets})
    assert len(verdict.good) == 4, verdict


def test_a_node_that_got_a_job_meanwhile_is_left_alone_and_not_blamed(tmp_path: Path) -> None:
    asked: list[str] = []

    def refuses(command: list[str]) -> list[str]:
        asked.append(command[0])
        return command

    verdict, _ = tried(tmp_path, {"node03": refuses}, busy=["node03"])
    assert verdict.unreached == ("node03",), verdict
    assert verdict.good == ("node01", "node02", "node04"), verdict
    assert not asked
    assert "a job has been placed on it" in verdict.why["node03"]


@pytest.mark.slow
def test_worlds_run_in_batches_where_there_are_many_nodes(tmp_path: Path) -> None:
    terms = replace(TERMS, side_by_side=8)
    verdict, ran = tried(tmp_path, {}, count=12, terms=terms)
    assert len(verdict.good) == 12, verdict
    assert max(len(world.world) for world in ran) == 6


def test_with_all_nodes_broken_none_is_blamed(tmp_path: Path) -> None:
    kill = says_instead("sh", "-c", "kill -9 $$")
    verdict, ran = tried(tmp_path, {"node01": kill, "node03": kill})
    assert verdict.fabric_wide
    assert verdict.faulty == ()
    assert {world.result.outcome for world in ran} == {Outcome.FAIL}
