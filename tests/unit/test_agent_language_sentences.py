"""German and Chinese sentences as data: the English they become, holds and orders, and what an unread word does."""

from __future__ import annotations

import gc
import tomllib
import tracemalloc
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from assistant.agent.answer import Answer, AnswerKind
from assistant.agent.languages import german_forms, glosses
from assistant.agent.languages.sentence import Language, read_sentence
from assistant.agent.semantic import SemanticAgent
from assistant.cli.measure.agent_bench import open_state
from assistant.engine import Engine

CASES = Path(__file__).parents[1] / "cases"
LANGUAGES = (("de", Language.GERMAN), ("zh", Language.CHINESE))
LEAST_SENTENCES = 120
MOST_BYTES = 12_000_000


@cache
def sentences(language: str) -> tuple[Mapping[str, Any], ...]:
    text = (CASES / "agent_languages" / f"{language}_sentences.toml").read_text(encoding="utf-8")
    return tuple(tomllib.loads(text)["sentence"])


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine, _ = open_state(CASES / "agent" / "states" / "night.toml", tmp_path_factory.mktemp("night"))
    yield engine
    engine.store.close()


def answer_to(night: Engine, sentence: str) -> Answer:
    return SemanticAgent(night.gate, night.clock).ask(sentence)


@pytest.mark.parametrize(("name", "language"), LANGUAGES)
def test_each_sentence_becomes_its_english(name: str, language: Language) -> None:
    rows = sentences(name)
    assert len(rows) >= LEAST_SENTENCES
    wrong = [
        (row["say"], reading.english, row["english"])
        for row in rows
        if (reading := read_sentence(row["say"])).english != row["english"] or reading.language is not language
    ]
    assert wrong == []


@pytest.mark.parametrize("name", ["de", "zh"])
def test_holds_orders_and_unread_words_are_what_the_data_say(name: str) -> None:
    wrong = []
    for row in sentences(name):
        reading = read_sentence(row["say"])
        act = "hold" if reading.is_hold else "order" if reading.orders_change else ""
        if act != row.get("act", "") or list(reading.unknown) != row.get("unread", []):
            wrong.append((row["say"], act, reading.unknown))
    assert wrong == []


@pytest.mark.parametrize("name", ["de", "zh"])
def test_no_change_is_read_out_of_a_hold_or_an_unread_word(name: str) -> None:
    doubtful = [row for row in sentences(name) if row.get("act") == "hold" or "unread" in row]
    assert len(doubtful) > 20
    assert [row["say"] for row in doubtful if read_sentence(row["say"]).may_propose] == []


@pytest.mark.parametrize(
    ("typed", "object_text", "word"),
    [
        ("lass node12 in ruhe, bob schnurzelt da noch", "node12 is to be left as it is", "schnurzelt"),
        ("node07 bitte nicht wieder reinnehmen, gnarf", "node07", "gnarf"),
        ("finger weg von 4830, der muffelt", "job 4830 is to be left as it is", "muffelt"),
        ("别碰node12，它还在饕餮", "node12 is to be left as it is", "饕餮"),
        ("先别重启4821，饕餮", "4821", "饕餮"),
    ],
)
def test_a_hold_is_acknowledged_although_a_word_was_not_read(night: Engine, typed: str, object_text: str, word: str) -> None:
    answer = answer_to(night, typed)
    assert answer.text.startswith("Understood: ")
    assert object_text in answer.text.splitlines()[0]
    assert f"(not read: {word})" in answer.text
    assert not answer.proposals


@pytest.mark.parametrize(
    ("typed", "nearest", "word"),
    [
        ("brich 4831 schnurzig ab", "cancel 4831", "schnurzig"),
        ("starte 4821 schnurzpieps neu", "restart 4821", "schnurzpieps"),
        ("把4831饕餮取消", "cancel 4831", "饕餮"),
    ],
)
def test_an_order_with_an_unread_word_is_refused_with_its_verb_and_object(
    night: Engine, typed: str, nearest: str, word: str
) -> None:
    answer = answer_to(night, typed)
    assert answer.kind is AnswerKind.UNKNOWN
    assert f'The nearest that was read: "{nearest}"' in answer.text
    assert f"not read: {word}" in answer.text
    assert not answer.proposals


@pytest.mark.parametrize(("typed", "word"), [("warum ist 4822 schnurzig gestorben", "schnurzig"), ("4822为什么饕餮挂了", "饕餮")])
def test_a_question_is_answered_without_its_unread_word(night: Engine, typed: str, word: str) -> None:
    answer = answer_to(night, typed)
    assert "4822" in answer.text.splitlines()[0]
    assert answer.text.splitlines()[-1] == f"(not read: {word})"
    assert answer.intent == "explain_job"


@pytest.mark.parametrize(
    ("typed", "native"),
    [
        ("finger weg vom 13b bis heut mittag", "nichts Neues vorgeschlagen"),
        ("ich will nicht, dass 4821 nochmal auf node07 läuft", "nichts Neues vorgeschlagen"),
        ("alice说node07要下线，你别听她的", "也没有新的提议"),
        ("先别批，等alice确认一下", "也没有新的提议"),
        ("node07维持原样", "也没有新的提议"),
    ],
)
def test_a_hold_is_answered_in_its_language_and_proposes_nothing(night: Engine, typed: str, native: str) -> None:
    answer = answer_to(night, typed)
    assert not answer.proposals
    assert answer.text.splitlines()[-1].count(native) == 1


@pytest.mark.parametrize(
    ("typed", "conditional"),
    [
        ("等4830跑完就重启4821", True),
        ("只要4830跑完了就把4831取消", True),
        ("wenn node07 wieder da ist starte 4821", True),
        ("starte 4821 neu falls 4830 stirbt", True),
        ("starte 4821 neu, nicht 4822", False),
    ],
)
def test_an_order_that_hangs_on_what_is_waited_for_is_refused(typed: str, conditional: bool) -> None:
    assert (read_sentence(typed).refusal("semantic") is not None) is conditional


@pytest.mark.parametrize("typed", ["carol说重启4822，有用吗", "老板让我取消4831", "bob meinte, node12 soll raus"])
def test_what_somebody_else_orders_is_reported_and_never_proposed(typed: str) -> None:
    reading = read_sentence(typed)
    assert reading.is_reported
    assert not reading.may_propose
    assert " says to " in reading.english or " meant to " in reading.english


def test_the_german_lexicon_keeps_no_index_of_slips() -> None:
    german_forms.lexicon.cache_clear()
    glosses.tables.cache_clear()
    gc.collect()
    tracemalloc.start()
    try:
        assert german_forms.lexicon().slip(german_forms.folded("gestorbne")) is not None
        assert tracemalloc.get_traced_memory()[0] < MOST_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "typed", ["alles stopp außer 4830", "bis auf 4830 alles abbrechen", "除了node07以外都放回去", "全部停掉，除了4830"]
)
def test_an_order_for_all_but_one_says_which_one_it_leaves_out(typed: str) -> None:
    reading = read_sentence(typed)
    assert reading.refusal("semantic") is None
    assert " except " in reading.english
