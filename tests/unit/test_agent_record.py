"""Claims, pasted text, who did what and superlatives are answered from the record; what an order leaves out is never proposed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assistant.agent.claims.exceptions import all_but, left_out_names
from assistant.agent.claims.mentions import mentioned
from assistant.agent.claims.orders_weighed import everyday_order
from assistant.agent.claims.pasted import pasted_in
from assistant.agent.semantic import SemanticAgent
from assistant.agent.slurm_commands import slurm_request
from assistant.agent.words import NameInventory
from assistant.cli.measure.agent_bench import open_state
from assistant.engine import Engine

CASES = Path(__file__).parents[1] / "cases"
RECORD = [
    case
    for name in ("record.toml", "record_unseen.toml")
    for case in tomllib.loads((CASES / "agent_answers" / name).read_text(encoding="utf-8"))["case"]
]
PROPOSING = [case for case in RECORD if case.get("proposes")]
QUIET = [case for case in RECORD if not case.get("proposes")]
KNOWN = NameInventory(
    jobs={"4790": "llm-7b", "4821": "llm-7b", "4830": "llm-13b", "4831": "eval-suite"},
    users=frozenset({"alice", "dave"}),
    nodes=("node05", "node07", "node12"),
    owners={"4790": "alice", "4821": "alice", "4830": "alice", "4831": "dave"},
    states={"4790": "failed", "4821": "failed", "4830": "running", "4831": "pending"},
)


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine, _ = open_state(CASES / "agent" / "states" / "night.toml", tmp_path_factory.mktemp("night"))
    yield engine
    engine.store.close()


@pytest.mark.parametrize("case", QUIET, ids=[" / ".join(case["say"]) for case in QUIET])
def test_a_sentence_is_answered_from_the_record(case: dict[str, Any], night: Engine) -> None:
    assert_answered(case, night)


@pytest.mark.parametrize("case", PROPOSING, ids=[" / ".join(case["say"]) for case in PROPOSING])
def test_an_order_proposes_what_it_does_not_leave_out(case: dict[str, Any], tmp_path: Path) -> None:
    engine, _ = open_state(CASES / "agent" / "states" / "night.toml", tmp_path)
    try:
        assert_answered(case, engine)
    finally:
        engine.store.close()


def assert_answered(case: dict[str, Any], engine: Engine) -> None:
    agent = SemanticAgent(engine.gate, engine.clock)
    answers = [agent.ask(text) for text in case["say"]]
    text = answers[-1].text
    proposed = [
        f"{change.tool} {change.arguments.get('job') or change.arguments.get('node')}"
        for answer in answers
        for change in answer.proposals
        if change.approval is not None and not change.joined
    ]
    assert re.search(case.get("first", ""), "\n".join(text.splitlines()[:2])), text
    assert [part for part in case.get("lacks", ()) if part in text] == []
    assert proposed == case.get("proposes", [])


@pytest.mark.parametrize(
    ("order", "plain"),
    [
        ("restart all but alice's", "restart everything except alice"),
        ("除了4830,其他作业都取消", "cancel everything except 4830"),
        ("brich alles ab außer 4830 und 4831", "cancel everything except 4830 and 4831"),
        ("undrain all nodes except node12", "undrain all nodes except node12"),
        ("restart all but 4821 from step 300", ""),
        ("do not cancel everything except 4830", ""),
        ("which jobs run except 4830?", ""),
        ("cancel 4831, all but the log", ""),
    ],
)
def test_an_order_for_all_but_some_is_put_plainly(order: str, plain: str) -> None:
    assert all_but(order, KNOWN) == plain


def test_the_jobs_of_an_account_are_left_out_with_it() -> None:
    assert left_out_names("除了dave的作业,都重启", KNOWN) == {"4831"}
    assert left_out_names("restart 4821", KNOWN) == frozenset()


def test_an_order_in_everyday_words_is_one_where_it_can_be_about_one_job_only() -> None:
    assert everyday_order("get rid of dave's job", KNOWN) == ("cancel 4831", "")
    assert everyday_order("did you clear out dave's job?", KNOWN) == ("", "")
    assert everyday_order("do not bin dave's job", KNOWN) == ("", "")
    assert everyday_order("toss 4831, it blocks mine", KNOWN) == ("cancel 4831", "")


@pytest.mark.parametrize(
    "sentence",
    [
        "py-spy dump of 4831",
        "dump what 4831 wrote last",
        "clear the log of 4831",
        "the bin files of 4831",
        "boot log of dave's job",
        "wipe the cache of 4831",
        "throw away the checkpoints of 4831",
        "get rid of the warnings in dave's job",
        "kick off 4831 again",
        "is it clear why 4831 failed",
        "清理4831的日志",
        "räum die Checkpoints von 4831 auf",
    ],
)
def test_what_is_said_of_a_part_of_a_job_cancels_nothing(sentence: str) -> None:
    assert everyday_order(sentence, KNOWN) == ("", "")


@pytest.mark.parametrize(
    ("typed", "request_in_words"),
    [
        ("sinfo", "which nodes are drained or down"),
        ("sinfo -R", "which nodes are drained or down"),
        ("sinfo -Nl", "which nodes are drained or down"),
        ("sinfo -n node[07-08]", "status of node[07-08]"),
        ("sinfo -p train", ""),
        ('scontrol update nodename=node08 state=drain reason="bad cable"', "cordon node08"),
        ("sudo scontrol update State=RESUME NodeName=node08", "uncordon node08"),
        ("scontrol update nodename=node08 state=down reason=x", ""),
        ("scontrol update nodename=node08 state=drain weight=1", ""),
        ("scontrol update nodename=node08 state=drain state2", ""),
        ("scontrol update state=drain reason=x", ""),
        ("scontrol update jobid=4830 timelimit=1:00", ""),
        ("scontrol update nodename=node08 state=drain; reboot", ""),
        ("# scontrol update nodename=node08 state=drain", ""),
        ('scontrol update nodename=node08 state=drain reason="bad', ""),
        ("why does sinfo show node07", ""),
    ],
)
def test_a_slurm_command_is_put_in_words_where_all_of_it_is_understood(typed: str, request_in_words: str) -> None:
    assert slurm_request(typed) == request_in_words


def test_names_are_masked_with_their_kind() -> None:
    names = mentioned("is node07 why approval 3 of alice's 4821 waits, 9999?", KNOWN)
    assert names is not None
    assert names.text == "is {n1} why {a0} of {u4} {j2} waits, {k3} ?"


@pytest.mark.parametrize(
    ("sentence", "text"),
    [
        ("what does `scancel 4830` do?", "scancel 4830"),
        ("KeyError: 'x'  <- whose is it?", "KeyError: 'x'"),
        ('search the log of 4821 for "NCCL error"', None),
        ("why did 4821 fail?", None),
    ],
)
def test_pasted_text_is_told_from_what_is_asked(sentence: str, text: str | None) -> None:
    paste = pasted_in(sentence)
    assert (paste.text if paste is not None else None) == text
