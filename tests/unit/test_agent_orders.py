"""Which words order a change, forbid one or order what Nightshift has no change for; the last two propose nothing."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.agent.answer import AnswerKind
from assistant.agent.orders import OrderKind, read_order
from assistant.agent.semantic import SemanticAgent
from assistant.engine import Engine
from assistant.engine.intake import AgentRecovery
from tests.recorded_states import recorded_state

CASES = Path(__file__).parents[1] / "cases"
SENTENCES = tomllib.loads((CASES / "agent_orders" / "sentences.toml").read_text(encoding="utf-8"))


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


@pytest.mark.parametrize("sentence", lines(SENTENCES["hold"]))
def test_what_is_forbidden_is_held(sentence: str) -> None:
    assert read_order(sentence).kind is OrderKind.HOLD


@pytest.mark.parametrize("sentence", lines(SENTENCES["unserved"]))
def test_a_verb_without_a_change_is_known_as_one(sentence: str) -> None:
    assert read_order(sentence).kind is OrderKind.UNSERVED
    assert read_order(sentence).does


@pytest.mark.parametrize(
    ("change", "sentence"), [(change, line) for change, text in SENTENCES["served"].items() for line in lines(text)]
)
def test_a_verb_with_its_own_kind_of_thing_is_its_change(change: str, sentence: str) -> None:
    reading = read_order(sentence)
    assert (reading.kind, reading.change) == (OrderKind.SERVED, change)


@pytest.mark.parametrize("sentence", lines(SENTENCES["open"]["any"]))
def test_what_orders_nothing_stays_open(sentence: str) -> None:
    assert read_order(sentence).kind is OrderKind.OPEN


@pytest.mark.parametrize("sentence", lines(SENTENCES["open"]["statement"]))
def test_what_is_not_so_orders_nothing(sentence: str) -> None:
    assert read_order(sentence).kind is OrderKind.STATEMENT


def test_it_is_of_the_kind_that_was_spoken_of() -> None:
    assert read_order("restart it", "node").kind is OrderKind.UNSERVED
    assert read_order("restart it", "job").change == "recover"


@pytest.fixture
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with recorded_state(CASES / "agent" / "states" / "night.toml", tmp_path_factory) as (engine, _):
        yield engine


@pytest.mark.parametrize(
    ("question", "kind", "says"),
    [
        ("do not touch job 4830", AnswerKind.ANSWER, "job 4830 is to be left as it is"),
        ("don't restart 4821 yet", AnswerKind.ANSWER, "Approval 1 still waits for it"),
        ("leave node05 alone tonight", AnswerKind.ANSWER, 'nodes = ["node05"]'),
        ("reboot node07", AnswerKind.REFUSED, "Nightshift restarts no machine"),
        ("run dcgmi diag on node02", AnswerKind.REFUSED, "which are not that test"),
        ("delete the checkpoints of 4821", AnswerKind.REFUSED, "deletes no file"),
        ("kill all jobs of alice", AnswerKind.REFUSED, "one named thing at a time"),
        ("no, not that one", AnswerKind.ANSWER, "Approval 1 still waits"),
        ("frobnicate node05", AnswerKind.ASKS_BACK, ""),
    ],
)
def test_an_order_that_cannot_be_served_proposes_nothing_and_says_why(
    question: str, kind: AnswerKind, says: str, engine: Engine
) -> None:
    before = engine.store.approvals()
    answer = SemanticAgent(engine.gate, engine.clock, recovery=AgentRecovery(engine)).ask(question)
    assert says in answer.text
    assert answer.kind is kind or not says
    assert (answer.proposals, engine.store.approvals()) == ((), before)
    assert "all that could be checked is well" not in answer.text


def test_it_after_an_order_that_came_to_nothing_is_what_that_named(engine: Engine) -> None:
    agent = SemanticAgent(engine.gate, engine.clock, recovery=AgentRecovery(engine))
    agent.ask("don't kill 4830 yet")
    answer = agent.ask("ok, kill it")
    assert [proposal.arguments for proposal in answer.proposals] == [{"job": "4830"}]
