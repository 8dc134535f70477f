"""How people speak at night: what a slip is corrected to, what holds a change off, which numbers are nodes, what is asked."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assistant.agent.aspects import read_aspect
from assistant.agent.corrections import amended_yes
from assistant.agent.dialogue import Dialogue
from assistant.agent.holds import holds_off
from assistant.agent.languages.source_phrases import did_you, plain_source
from assistant.agent.orders import OrderKind, OrderReading, read_order
from assistant.agent.plain_english import plain_text, plain_words, renounced
from assistant.agent.scope import joined_plainly, names_in, order_scope, without
from assistant.agent.semantic import SemanticAgent
from assistant.agent.slips import SlipKind, bare_correction, read_slip
from assistant.agent.speech import conditional_order, held_question, reported_order
from assistant.agent.words import NameInventory, Names, read_names
from assistant.engine import Engine
from assistant.engine.intake import AgentRecovery
from tests.recorded_states import recorded_state

CASES = Path(__file__).parents[1] / "cases" / "agent"
DATA = tomllib.loads((CASES.parent / "agent_speech.toml").read_text(encoding="utf-8"))
KNOWN = NameInventory(
    jobs={"4790": "llm-7b", "4821": "llm-7b", "4830": "llm-13b", "4831": "eval-suite", "4822": "sft-chat"},
    users=frozenset({"alice", "dave"}),
    nodes=tuple(f"node{number:02}" for number in range(1, 21)),
    incidents={1: "4790", 2: "4821", 3: "4822"},
    owners={"4830": "alice", "4831": "dave"},
)


def lines(key: str) -> list[str]:
    return [line for line in DATA[key].splitlines() if line]


def read(text: str) -> tuple[Names, OrderReading]:
    names = read_names(text, KNOWN)
    return names, read_order(names.masked.replace("{number}", "{job}"))


def of(case: dict[str, Any]) -> str:
    say = case["say"]
    return str(say) if isinstance(say, str) else " / ".join(say)


@pytest.mark.parametrize("case", DATA["slip"], ids=of)
def test_the_last_name_takes_the_place_of_the_one_that_it_corrects(case: dict[str, Any]) -> None:
    slip = read_slip(case["say"])
    assert slip is not None
    assert (slip.kind, slip.text) == (SlipKind.MENDED, case["becomes"])


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [*((SlipKind.HOLD, line) for line in lines("taken_back")), *((SlipKind.UNCLEAR, line) for line in lines("unclear"))],
)
def test_a_sentence_that_takes_itself_back_or_leaves_open_what_it_means_is_known(kind: SlipKind, sentence: str) -> None:
    slip = read_slip(sentence)
    assert slip is not None
    assert slip.kind is kind


@pytest.mark.parametrize("sentence", lines("no_slip"))
def test_two_names_in_a_sentence_are_no_slip(sentence: str) -> None:
    assert read_slip(sentence) is None


@pytest.mark.parametrize("case", DATA["bare"], ids=of)
def test_a_correction_by_itself_names_what_was_meant(case: dict[str, Any]) -> None:
    assert bare_correction(case["say"]) == case["becomes"]


@pytest.mark.parametrize("sentence", lines("held"))
def test_an_idiom_holds_a_change_off(sentence: str) -> None:
    assert read_order(sentence).kind is OrderKind.HOLD


@pytest.mark.parametrize("sentence", lines("not_held"))
def test_what_only_sounds_like_an_idiom_holds_nothing_off(sentence: str) -> None:
    assert not holds_off(renounced(plain_text(sentence)))


@pytest.mark.parametrize("case", DATA["nodes"], ids=of)
def test_numbers_are_nodes_where_only_nodes_can_be_meant(case: dict[str, Any]) -> None:
    assert list(read_names(case["say"], KNOWN).nodes) == case["nodes"]


@pytest.mark.parametrize("case", DATA["scope"], ids=of)
def test_what_a_list_leaves_out_is_not_ordered(case: dict[str, Any]) -> None:
    scope = order_scope(plain_words(case["say"], KNOWN), read)
    assert scope is not None
    assert names_in(scope.spared) == set(case["spared"])
    assert list(scope.spared.users) == case.get("users", [])
    assert names_in(without(read_names(scope.order, KNOWN), scope.spared)) == set(case["order"])
    assert scope.many == case.get("many", "")


@pytest.mark.parametrize(
    ("sentence", "joined"), [*((line, True) for line in lines("joined")), *((line, False) for line in lines("not_joined"))]
)
def test_several_things_are_taken_only_where_nothing_sets_them_apart(sentence: str, *, joined: bool) -> None:
    names, order = read(sentence)
    assert order.kind is OrderKind.SERVED
    assert joined_plainly(names, order.change) is joined


@pytest.mark.parametrize("case", DATA["plain"], ids=of)
def test_what_its_end_takes_back_is_left_out_of_a_sentence(case: dict[str, Any]) -> None:
    assert plain_words(case["say"], KNOWN) == case["becomes"]


@pytest.mark.parametrize("case", DATA["source"], ids=of)
def test_a_phrase_is_put_in_words_that_the_tables_know(case: dict[str, Any]) -> None:
    chinese = any("\u3400" <= letter <= "\u9fff" for letter in case["say"])
    assert plain_source(case["say"], chinese=chinese) == case["becomes"]


@pytest.mark.parametrize("case", DATA["asked_of_nightshift"], ids=of)
def test_who_did_it_is_asked_and_nothing_is_ordered(case: dict[str, Any]) -> None:
    assert did_you(case["say"]) == case["becomes"]


@pytest.mark.parametrize("case", DATA["aspect"], ids=of)
def test_what_is_asked_of_a_change_is_known(case: dict[str, Any]) -> None:
    aspect = read_aspect(read_names(case["say"], KNOWN), Dialogue(subject="node", nodes=("node09",)), KNOWN)
    assert (aspect.aspect if aspect is not None else "") == case["aspect"]


@pytest.mark.parametrize("case", DATA["reported"], ids=of)
def test_an_order_that_somebody_else_gives_is_told_apart(case: dict[str, Any]) -> None:
    assert reported_order(case["say"]) == case["order"]


@pytest.mark.parametrize("case", DATA["conditional"], ids=of)
def test_the_condition_of_an_order_is_told_apart(case: dict[str, Any]) -> None:
    it = "job" if "{job}" in case["say"] else "node"
    condition, _ = conditional_order(case["say"], lambda text: read_order(text, it).kind is OrderKind.SERVED)
    assert condition == case["condition"]


@pytest.mark.parametrize("case", DATA["amended"], ids=of)
def test_a_yes_may_ask_for_more(case: dict[str, Any]) -> None:
    assert amended_yes(case["say"]) == case["wish"]


@pytest.mark.parametrize("case", DATA["held_question"], ids=of)
def test_a_question_behind_a_hold_is_one(case: dict[str, Any]) -> None:
    assert held_question(case["say"]) == case["rest"]


@pytest.fixture
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with recorded_state(CASES / "states" / "night.toml", tmp_path_factory) as (engine, _):
        yield engine


@pytest.mark.parametrize("case", DATA["dialogue"], ids=of)
def test_what_is_said_at_night_proposes_what_is_meant(case: dict[str, Any], engine: Engine) -> None:
    agent = SemanticAgent(engine.gate, engine.clock, recovery=AgentRecovery(engine))
    for sentence in case["say"]:
        answer = agent.ask(sentence)
    targets = [f"{made.tool} {made.arguments.get('job') or made.arguments.get('node')}" for made in answer.proposals]
    assert targets == case["proposes"]
    text = answer.text
    assert text.startswith(case.get("begins", ""))
    for words in case.get("says", ()):
        assert words in text
    for words in case.get("never", ()):
        assert words not in text
