"""What an order is about and what it leaves out, what puts it right or takes it back, and that an answer tells what is recorded."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from assistant.agent.answer import AnswerSource
from assistant.agent.changes_asked import change_made
from assistant.agent.conditions import asked_end, condition_of, job_condition
from assistant.agent.corrections import corrected, takes_back
from assistant.agent.dialogue import Dialogue, QuestionRequest, QuestionTurn
from assistant.agent.orders import OrderKind, OrderReading, read_order
from assistant.agent.scope import names_in, order_scope, ordered_names, without
from assistant.agent.semantic import SemanticAgent
from assistant.agent.words import NameInventory, Names, read_names
from assistant.engine import Engine
from assistant.engine.intake import AgentRecovery
from tests.recorded_states import recorded_state

CASES = Path(__file__).parents[1] / "cases" / "agent"
DATA = tomllib.loads((CASES.parent / "agent_scope.toml").read_text(encoding="utf-8"))
KNOWN = NameInventory(
    jobs={"4790": "llm-7b", "4821": "llm-7b", "4830": "llm-13b", "4831": "eval-suite", "4822": "sft-chat"},
    users=frozenset({"alice", "dave"}),
    nodes=tuple(f"node{number:02}" for number in range(1, 21)),
    incidents={1: "4790", 2: "4821", 3: "4822"},
    owners={"4830": "alice", "4831": "dave"},
)
NOW = datetime(2026, 3, 1, 6, tzinfo=UTC)


def lines(key: str) -> list[str]:
    return [line for line in DATA[key].splitlines() if line]


def read(text: str) -> tuple[Names, OrderReading]:
    names = read_names(text, KNOWN)
    return names, read_order(names.masked.replace("{number}", "{job}"))


def of(case: dict[str, Any]) -> str:
    say = case["say"]
    return str(say) if isinstance(say, str) else " / ".join(say)


@pytest.mark.parametrize("case", DATA["scope"], ids=of)
def test_what_is_left_out_is_not_ordered(case: dict[str, Any]) -> None:
    scope = order_scope(case["say"], read)
    assert scope is not None
    assert names_in(scope.spared) == set(case["spared"])
    assert names_in(without(read_names(scope.order, KNOWN), scope.spared)) == set(case["order"])
    assert scope.many == case.get("many", "")


@pytest.mark.parametrize("sentence", lines("whole"))
def test_what_cannot_be_told_apart_stays_whole(sentence: str) -> None:
    assert order_scope(sentence, read) is None


@pytest.mark.parametrize("case", DATA["ordered"], ids=of)
def test_a_change_is_made_to_what_its_own_clause_names(case: dict[str, Any]) -> None:
    names = ordered_names(case["say"], read_names(case["say"], KNOWN), case["change"], read)
    assert names is not None
    assert [*names.jobs, *names.nodes] == case["things"]


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        *((OrderKind.HOLD, line) for line in lines("held")),
        *((OrderKind.SERVED, line) for line in lines("served")),
        *((OrderKind.STATEMENT, line) for line in lines("said")),
    ],
)
def test_what_was_renounced_is_held_and_an_interjection_is_no_verb(kind: OrderKind, sentence: str) -> None:
    assert read_order(sentence).kind is kind


@pytest.mark.parametrize("case", DATA["correction"], ids=of)
def test_a_correction_is_the_order_with_another_object(case: dict[str, Any]) -> None:
    dialogue = Dialogue(intent=case["intent"], order=case["before"])
    assert corrected(case["say"], dialogue, lambda text: read_names(text, KNOWN)) == case["becomes"]


@pytest.mark.parametrize(
    ("sentence", "is_so"), [*((line, True) for line in lines("takes_back")), *((line, False) for line in lines("goes_on"))]
)
def test_what_takes_an_order_back_is_known(sentence: str, is_so: bool) -> None:
    assert takes_back(sentence) is is_so


@pytest.mark.parametrize("case", DATA["number"], ids=of)
def test_a_number_is_what_the_words_beside_it_say(case: dict[str, Any]) -> None:
    names = read_names(case["say"], KNOWN)
    read_out = {
        "steps": list(names.quantities.steps),
        "jobs": list(names.jobs),
        "nodes": list(names.nodes),
        "approvals": list(names.approvals),
    }
    assert {key: read_out[key] for key in read_out if key in case} == {key: case[key] for key in read_out if key in case}
    assert names.strangers == ()


@pytest.mark.parametrize("case", DATA["end"], ids=of)
def test_an_end_is_a_limit_and_no_order_for_later(case: dict[str, Any]) -> None:
    end = asked_end(case["say"], NOW)
    assert (f"{end.at:%Y-%m-%d %H:%M}" if end else "") == case["at"]
    if end:
        assert condition_of(case["say"], read_names(case["say"], KNOWN), ends=True) == ""


@pytest.mark.parametrize("case", DATA["later"], ids=of)
def test_a_condition_is_told_in_the_words_of_the_question(case: dict[str, Any]) -> None:
    assert condition_of(case["say"], read_names(case["say"], KNOWN)) == case["condition"]


@pytest.mark.parametrize("case", DATA["state"], ids=of)
def test_a_condition_on_the_state_of_the_job_is_held_against_it(case: dict[str, Any]) -> None:
    condition = job_condition(case["say"])
    assert condition is not None
    assert (condition.holds("pending"), condition.holds("running")) == (case["pending"], case["running"])


CHANGES = [
    {"call": 8, "status": "pending", "at": NOW.isoformat(), "incident": 2, "change": "submit llm-7b (4 nodes) again from step 400"},
    {"call": 7, "status": "done", "at": NOW.isoformat(), "incident": 1, "change": "scontrol update NodeName=node07 State=DRAIN"},
]


@pytest.mark.parametrize("case", DATA["made"], ids=of)
def test_a_yes_needs_a_change_of_that_kind_on_that_thing(case: dict[str, Any]) -> None:
    names = read_names(case["say"], KNOWN)
    turn = QuestionTurn(cast("Any", None), KNOWN, QuestionRequest("changes", case["say"], names), NOW)
    source = AnswerSource(1, "recent_changes", {}, CHANGES)
    assert change_made(turn, source, names.sketch.lower()).startswith(case["says"])


@pytest.fixture
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with recorded_state(CASES / "states" / "night.toml", tmp_path_factory) as (engine, _):
        yield engine


@pytest.mark.parametrize("case", DATA["dialogue"], ids=of)
def test_an_answer_proposes_what_is_ordered_and_tells_what_is_recorded(case: dict[str, Any], engine: Engine) -> None:
    agent = SemanticAgent(engine.gate, engine.clock, recovery=AgentRecovery(engine))
    for sentence in case["say"]:
        answer = agent.ask(sentence)
    targets = [f"{made.tool} {made.arguments.get('job') or made.arguments.get('node')}" for made in answer.proposals]
    assert targets == case["proposes"]
    for words in case.get("says", ()):
        assert words in answer.text
    for words in case.get("never", ()):
        assert words not in answer.text
