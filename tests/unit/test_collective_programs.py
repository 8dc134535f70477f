"""What runs on the nodes, and how their words are read: cases in tests/cases/collective."""

from __future__ import annotations

import ast
import json
import random
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from assistant.content.reading import build, read_toml
from assistant.errors import ContentError
from assistant.ports import Reply
from assistant.recover.collective.commands import (
    Choice,
    Program,
    Report,
    Speeds,
    alone_command,
    choose_program,
    commands_of,
    cost_of,
    load_terms,
    program_text,
    report_of,
    report_of_table,
    result_of,
    seats_of,
)
from assistant.recover.collective.planner import Limits, Outcome, Result, Verdict, plan
from assistant.recover.collective.torch_program import interface_to

CASES = Path(__file__).parent.parent / "cases" / "collective"
TERMS = load_terms()


@dataclass(frozen=True)
class Said:
    name: str
    answered: bool
    out: str = ""
    err: str = ""
    status: int = 0
    reached: bool = True
    ok: bool = False
    text: str = ""
    mib_s: float | None = None


@dataclass(frozen=True)
class Look:
    name: str
    program: str
    seen: Mapping[str, str] = field(default_factory=dict)
    gpus: int = 0
    perf: bool = False
    lacking: Mapping[str, str] = field(default_factory=dict)


def cases(kind: type[Any], name: str) -> list[Any]:
    path = CASES / name
    made = [build(kind, table, path) for table in read_toml(path)["case"]]
    return [pytest.param(case, id=case.name) for case in made]


def read_as(case: Said, parse: Callable[[Reply], Report]) -> Report:
    return parse(Reply("node01", case.reached, case.status if case.reached else None, case.out, case.err))


@pytest.mark.parametrize("case", cases(Said, "reports.toml"))
def test_a_reply_is_read_as_the_case_says(case: Said) -> None:
    assert read_as(case, report_of) == Report("node01", case.answered, case.ok, case.text, case.mib_s)


@pytest.mark.parametrize("case", cases(Said, "tables.toml"))
def test_a_table_of_nccl_tests_is_read_as_the_case_says(case: Said) -> None:
    assert read_as(case, report_of_table) == Report("node01", case.answered, case.ok, case.text, case.mib_s)


@pytest.mark.parametrize("case", cases(Look, "looks.toml"))
def test_the_best_program_that_all_nodes_have_is_chosen(case: Look) -> None:
    assert choose_program(case.seen) == Choice(Program(case.program), case.gpus, case.perf, case.lacking)


@pytest.mark.parametrize("name", ["ring_program", "torch_program"])
def test_what_travels_is_understood_by_old_interpreters_and_imports_the_standard_library(name: str) -> None:
    tree = ast.parse(program_text(name), feature_version=(3, 6))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported <= set(sys.stdlib_module_names)
    # one argument of a command may be 128 KiB long
    assert len(program_text(name)) < 32_000


def test_every_rank_of_the_ring_gets_the_same_task_but_for_its_place() -> None:
    chance = random.Random(1)
    ((*seats,),) = seats_of([("a", "b", "c")], TERMS, chance, lambda node: f"{node}.site")
    commands = commands_of(Choice(), seats, TERMS, chance, python=("/opt/python3",))
    tasks = [json.loads(command[-1]) for command in commands]
    assert [command[:2] for command in commands] == [["/opt/python3", "-c"]] * 3
    assert [task.pop("rank") for task in tasks] == [0, 1, 2]
    assert tasks[0] == tasks[1] == tasks[2]
    assert [address for address, _ in tasks[0]["peers"]] == ["a.site", "b.site", "c.site"]


def test_no_two_nodes_of_a_round_share_a_port_and_all_lie_in_the_range() -> None:
    for seed in range(50):
        worlds = [(f"a{number}", f"b{number}") for number in range(TERMS.side_by_side // 2)]
        seats = seats_of(worlds, TERMS, random.Random(seed), str)
        ports = [port for world in seats for seat in world for port in seat.ports]
        assert len(set(ports)) == len(ports) == TERMS.side_by_side * TERMS.tries
        assert TERMS.first_port <= min(ports)
        assert max(ports) <= TERMS.last_port


def test_torchrun_starts_one_process_for_each_gpu_of_its_own_node_and_the_nodes_meet_at_the_first() -> None:
    chance = random.Random(1)
    ((*seats,),) = seats_of([("a", "b")], TERMS, chance, lambda node: f"{node}.site")
    commands = commands_of(Choice(Program.NCCL, 8), seats, TERMS, chance, python=("/opt/python3",))
    for command in commands:
        assert command[:4] == ["timeout", "--kill-after=40", "47.5", "torchrun"]
        assert {"--nnodes=1", "--nproc_per_node=8", "--master_addr=127.0.0.1"} <= set(command)
        assert command[-5:-2] == ["--no_python", "/opt/python3", "-c"]
    first, second = (json.loads(command[-1]) for command in commands)
    assert (first.pop("node"), second.pop("node")) == (0, 1)
    assert first == second
    assert (first["backend"], first["peers"], first["port"]) == ("nccl", ["a.site", "b.site"], seats[0].ports[0])


def test_the_torch_program_is_ended_before_the_transport_gives_up() -> None:
    ((*seats,),) = seats_of([("a", "b")], TERMS, random.Random(1), str)
    seconds = float(commands_of(Choice(Program.GLOO), seats, TERMS, random.Random(1))[0][2])
    assert TERMS.deadline_s < seconds < TERMS.deadline_s + TERMS.margin_s


def test_nccl_tests_check_the_content_of_one_size_on_all_gpus() -> None:
    assert " ".join(alone_command(8, deadline_s=40.0)) == (
        "timeout --kill-after=5 40 all_gather_perf --minbytes 256M --maxbytes 256M --ngpus 8 --iters 20 --check 1"
    )


def reports(*speeds: float) -> list[Report]:
    return [Report(f"node{number}", True, True, "", speed) for number, speed in enumerate(speeds)]


def test_a_world_is_slow_below_the_share_of_the_median_of_its_size() -> None:
    speeds = Speeds(0.5)
    for value in (1000.0, 1100.0, 450.0):
        speeds.add(("a", "b"), value)
    assert result_of(("a", "b"), reports(1000, 450), speeds).outcome is Outcome.SLOW
    assert result_of(("a", "b"), reports(1000, 550), speeds).outcome is Outcome.PASS
    # a world of eight is compared with none of two
    assert result_of(tuple("abcdefgh"), reports(*[100.0] * 8), speeds).outcome is Outcome.PASS


def test_one_world_alone_is_never_slow() -> None:
    speeds = Speeds(0.5)
    speeds.add(("a", "b"), 1.0)
    assert result_of(("a", "b"), reports(1, 1), speeds).outcome is Outcome.PASS


def test_a_node_that_said_nothing_makes_its_world_unreached_whatever_the_others_say() -> None:
    said = [Report("a", False, False, "no answer"), Report("b", True, False, "connect: refused")]
    found = result_of(("a", "b"), said, Speeds(0.5))
    assert (found.outcome, found.silent) == (Outcome.UNREACHED, ("a",))


def rounds_when_all_is_well(nodes: int) -> int:
    planned = plan([str(number) for number in range(nodes)])
    worlds = next(planned)
    try:
        while True:
            worlds = planned.send([Result(Outcome.PASS)] * len(worlds))
    except StopIteration as stop:
        verdict: Verdict = stop.value
        return verdict.rounds


@pytest.mark.parametrize(("nodes", "rounds"), [(2, 1), (3, 1), (4, 2), (16, 2), (64, 2), (65, 2), (66, 3), (2000, 3)])
def test_the_cost_says_how_many_rounds_it_will_be(nodes: int, rounds: int) -> None:
    cost = cost_of(nodes, TERMS, Limits())
    assert cost.rounds == rounds == rounds_when_all_is_well(nodes)
    assert 0 < cost.seconds < cost.most_seconds
    assert cost.node_mib >= TERMS.block_mib * TERMS.repeats


def test_a_large_world_moves_smaller_blocks() -> None:
    chance = random.Random(1)
    for count, wanted in ((2, TERMS.block_mib << 20), (5, TERMS.block_mib << 18), (32, 1 << 20)):
        ((*seats,),) = seats_of([tuple(str(number) for number in range(count))], TERMS, chance, str)
        assert json.loads(commands_of(Choice(), seats, TERMS, chance)[0][-1])["block_bytes"] == wanted


@pytest.mark.parametrize(
    "wrong", ["block_mib = 0", "slow_share = 1.5", "first_port = 80", "last_port = 21001", "side_by_side = 2", 'repeats = "many"']
)
def test_terms_that_make_no_sense_are_refused(tmp_path: Path, wrong: str) -> None:
    shipped = {key: getattr(TERMS, key) for key in TERMS.__dataclass_fields__}
    key, _, value = wrong.partition(" = ")
    path = tmp_path / "knowledge" / "collective.toml"
    path.parent.mkdir()
    path.write_text("\n".join(f"{name} = {value if name == key else own}" for name, own in shipped.items()))
    with pytest.raises(ContentError, match=r"collective\.toml"):
        load_terms(tmp_path)


def ring_process(task: Mapping[str, Any]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program_text("ring_program"), json.dumps(task)], stdout=subprocess.PIPE, text=True
    )


def test_a_taken_port_is_passed_over_and_a_stranger_on_it_is_not_mistaken_for_a_peer() -> None:
    terms = replace(TERMS, block_mib=1, repeats=1)
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        taken = [server.getsockname()[1] for server in (first, second)]
        with socket.create_server(("127.0.0.1", 0)) as a, socket.create_server(("127.0.0.1", 0)) as b:
            fresh = [server.getsockname()[1] for server in (a, b)]
        peers = [["127.0.0.1", [mine, free]] for mine, free in zip(taken, fresh, strict=True)]
        shared = {"peers": peers, "token": "x" * 32, "seeds": [1, 2], "block_bytes": 1 << 20, "repeats": 1}
        times = {"connect_s": 20, "deadline_s": terms.deadline_s}
        ranks = [ring_process({"rank": rank, **shared, **times}) for rank in range(2)]
        said = [rank.communicate(timeout=60)[0] for rank in ranks]
    assert all('"ok": true' in one for one in said), said


def test_the_torch_program_without_torch_says_that_it_lacks_it_and_blames_no_node() -> None:
    ((*seats,),) = seats_of([("a", "b")], TERMS, random.Random(1), str)
    words = commands_of(Choice(Program.GLOO), seats, TERMS, random.Random(1), python=(sys.executable, "-I", "-S"))[0]
    alone = words[words.index(sys.executable) :]
    done = subprocess.run(alone, capture_output=True, text=True, timeout=60, check=False)
    said = report_of(Reply("a", True, done.returncode, done.stdout, done.stderr))
    assert (said.answered, said.text) == (False, "setup: No module named 'torch'")


@pytest.mark.parametrize(("address", "name"), [("127.0.0.1", "lo"), ("no.such.host.invalid", "")])
def test_gloo_is_told_the_interface_to_its_peer_where_it_can_be_found(address: str, name: str) -> None:
    assert interface_to(address) == name
