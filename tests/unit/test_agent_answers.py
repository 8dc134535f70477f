"""How an answer begins: with what the form of the question asks for, and with what it cannot tell before what it can."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assistant.agent.answer import AnswerKind
from assistant.agent.chooser import ToolChooser
from assistant.agent.coverage import asked_attributes, attributes, uncovered
from assistant.agent.forms import QuestionForm, form_of
from assistant.agent.queries import read_query
from assistant.agent.semantic import SemanticAgent
from assistant.agent.tellers import TELLERS
from assistant.agent.words import NameInventory, read_names
from assistant.cli.measure.agent_bench import open_state
from assistant.engine import Engine
from assistant.wiring import chooser_for

CASES = Path(__file__).parents[1] / "cases"
QUESTIONS = tomllib.loads((CASES / "agent_answers" / "questions.toml").read_text(encoding="utf-8"))["case"]
KNOWN = NameInventory(jobs={"4821": "llm-7b"}, users=frozenset({"alice"}), nodes=("node07",), incidents={2: "4821"})


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine, _ = open_state(CASES / "agent" / "states" / "night.toml", tmp_path_factory.mktemp("night"))
    yield engine
    engine.store.close()


@pytest.mark.parametrize("case", QUESTIONS, ids=[case["ask"] for case in QUESTIONS])
def test_an_answer_begins_with_what_was_asked(case: dict[str, Any], night: Engine) -> None:
    answer = SemanticAgent(night.gate, night.clock).ask(case["ask"])
    assert answer.text.startswith(case["begins"]), answer.text
    assert [part for part in case.get("holds", ()) if part not in answer.text] == []
    assert [part for part in case.get("lacks", ()) if part in answer.text] == []


def test_whether_the_restart_worked_is_told_by_its_incident(night: Engine) -> None:
    agent = SemanticAgent(night.gate, night.clock)
    agent.ask("why did 4790 die")
    both = agent.ask("did you change anything and did the restart work?").text
    assert both.startswith("Yes: 1 change made")
    assert "Yes: job 4795 reached step 210, past restart step 100; incident 1 about job 4790 is recovered" in both
    assert (
        SemanticAgent(night.gate, night.clock).ask("did your changes work?").text.startswith("Not yet: incident 2 about job 4821")
    )


def test_a_scheduler_without_an_answer_is_no_no(tmp_path: Path) -> None:
    engine, _ = open_state(CASES / "agent" / "states" / "outage.toml", tmp_path)
    try:
        for question in (
            "are all nodes ok",
            "is anything running",
            "failed jobs per user",
            "how many GPU hours did failed jobs use",
        ):
            answer = SemanticAgent(engine.gate, engine.clock).ask(question)
            assert answer.kind is AnswerKind.UNKNOWN
            assert not answer.text.startswith(("No", "0", "None:")) or answer.text.startswith("Not known")
    finally:
        engine.store.close()


@pytest.mark.parametrize(
    ("sentence", "form"),
    [
        ("is it stuck?", QuestionForm.YES_NO),
        ("ok, did the restart work", QuestionForm.YES_NO),
        ("could you drain {node}", QuestionForm.FREE),
        ("how many jobs failed", QuestionForm.HOW_MANY),
        ("since when is {node} out", QuestionForm.WHEN),
        ("how long did it run", QuestionForm.HOW_LONG),
        ("who owns {job}", QuestionForm.PERSON),
        ("why did {job} die", QuestionForm.FREE),
    ],
)
def test_the_form_of_a_question_is_read(sentence: str, form: QuestionForm) -> None:
    assert form_of(sentence) is form


def test_an_attribute_names_only_intents_that_exist() -> None:
    assert {intent for row in attributes() for intent in row.intents} <= set(TELLERS)
    assert [row.name for row in asked_attributes("validation loss of {job}")] == ["scores of evaluations"]


@pytest.mark.parametrize(
    ("question", "intent", "missing"),
    [
        ("which nodes are out", "bad_nodes", []),
        ("temperature of node07", "node_state", ["temperatures"]),
        ("temperature of node07", "check_node", []),
        ("incidents of alice", "incidents", ["only of alice"]),
        ("which node failed this week", "node_history", ["the last 7 days"]),
        ("open incidents older than 2 hours", "approvals", ["older than 2 hours"]),
        ("what happened since 22:00", "overview", ["since 22:00"]),
    ],
)
def test_what_an_answer_cannot_tell_is_named(question: str, intent: str, missing: list[str]) -> None:
    assert uncovered(read_names(question, KNOWN), intent) == missing


@pytest.mark.parametrize(
    "question",
    ["why did 4821 die", "which jobs failed", "what does ecc_error mean", "the newest checkpoint of 4821", "list jobs", "help"],
)
def test_a_question_that_counts_nothing_is_no_query(question: str) -> None:
    assert read_query(read_names(question, KNOWN)) is None


DIALOGUES = tomllib.loads((CASES / "agent_answers" / "dialogues.toml").read_text(encoding="utf-8"))["case"]


@pytest.fixture(scope="module")
def chooser() -> ToolChooser:
    return chooser_for()


@pytest.mark.parametrize("case", DIALOGUES, ids=[" / ".join(case["say"]) for case in DIALOGUES])
def test_a_dialogue_is_answered_from_what_is_recorded(case: dict[str, Any], night: Engine, chooser: ToolChooser) -> None:
    agent = SemanticAgent(night.gate, night.clock, chooser)
    text = [agent.ask(sentence).text for sentence in case["say"]][-1]
    assert text.startswith(case.get("begins", "")), text
    assert [part for part in case.get("holds", ()) if part not in text] == [], text
    assert [part for part in case.get("lacks", ()) if part in text] == [], text


def test_a_node_is_put_back_with_what_speaks_against_it(tmp_path: Path, chooser: ToolChooser) -> None:
    engine, _ = open_state(CASES / "agent" / "states" / "night.toml", tmp_path)
    try:
        answer = SemanticAgent(engine.gate, engine.clock, chooser).ask("put node07 back in service")
    finally:
        engine.store.close()
    assert answer.kind is AnswerKind.PROPOSAL
    assert "Against it: incidents 2 (ecc_error, waiting), 1 (ecc_error, recovered) are about node07" in answer.text
