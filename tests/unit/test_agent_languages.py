"""German and Chinese questions come out as the English question that is meant, and English passes byte for byte."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from assistant.agent.answer import Answer, AnswerKind
from assistant.agent.languages.german_forms import lexicon, verb_forms
from assistant.agent.languages.glosses import PARTS, WordForm, WordTag, entries, tables
from assistant.agent.languages.sentence import Language, language_of, read_sentence

CASES = Path(__file__).parents[1] / "cases"
LANGUAGES = (("de", Language.GERMAN), ("zh", Language.CHINESE))


@cache
def turns(language: str) -> Mapping[str, Any]:
    return tomllib.loads((CASES / "agent_languages" / f"{language}.toml").read_text(encoding="utf-8"))


def english_questions() -> Iterator[str]:
    for path in sorted((CASES / "agent").glob("*.toml")):
        for case in tomllib.loads(path.read_text(encoding="utf-8")).get("case", ()):
            yield from case["ask"]


def test_every_english_question_of_the_cases_passes_byte_for_byte() -> None:
    questions = list(english_questions())
    assert len(questions) > 500
    changed = [question for question in questions if read_sentence(question).english != question]
    foreign = [question for question in questions if language_of(question) is not Language.ENGLISH]
    assert changed == []
    assert foreign == []


@pytest.mark.parametrize(("name", "language"), LANGUAGES)
def test_every_turn_is_read_in_its_language_and_whole(name: str, language: Language) -> None:
    wrong = [
        (turn, reading.english, reading.unknown)
        for case in turns(name)["case"]
        for turn in case["ask"]
        if (reading := read_sentence(turn)).language is not language or reading.unknown
    ]
    assert [row for row in wrong if row[0] not in _ENGLISH_ALREADY] == []


_ENGLISH_ALREADY = ("status node03",)


@pytest.mark.parametrize(("name", "language"), LANGUAGES)
def test_orders_are_told_from_questions(name: str, language: Language) -> None:
    wrong = [
        (case["ask"][-1], reading.english)
        for case in turns(name)["case"]
        if (reading := read_sentence(case["ask"][-1])).orders_change is not case.get("orders", False)
    ]
    assert wrong == []


@pytest.mark.parametrize(("name", "language"), LANGUAGES)
def test_a_negation_stands_before_its_verb_and_a_question_stays_one(name: str, language: Language) -> None:
    readings = {case["ask"]: read_sentence(case["ask"]).english for case in turns(name)["refused"]}
    assert readings == {case["ask"]: case["english"] for case in turns(name)["refused"]}


@pytest.mark.parametrize(("name", "language"), LANGUAGES)
def test_half_an_order_and_one_under_a_condition_are_refused(name: str, language: Language) -> None:
    for turn in turns(name)["doubted"]:
        refusal = read_sentence(turn).refusal("semantic")
        assert refusal is not None, turn
        assert refusal.kind is AnswerKind.UNKNOWN
        assert refusal.text.startswith('I read: "')
        assert "nothing was done" in refusal.text


@pytest.mark.parametrize(("name", "language"), LANGUAGES)
def test_every_intent_has_a_turn(name: str, language: Language) -> None:
    from assistant.agent.chooser import intents

    covered = {intent for case in turns(name)["case"] for intent in case["intent"]}
    assert set(intents()) - covered == set()


@pytest.mark.parametrize(("name", "language"), LANGUAGES)
def test_there_are_enough_words(name: str, language: Language) -> None:
    assert sum(len(words) for section in tables(name).values() for words in section.values()) >= 500
    assert set(PARTS[name]) <= {"verbs", "words", "closed", "phrases"}


@pytest.mark.parametrize(
    ("typed", "english"),
    [
        ("重启4821", "restart 4821"),
        ("把node07放回去", "put node07 back"),
        ("检查node[05-08]吧", "check node[05-08]"),
        ("node03,node04都下线", "take node03 node04 out of service"),
        ("看看/data/ckpt/step_400的状态", "show state of /data/ckpt/step_400"),
        ("重啟4821", "restart 4821"),
        ("过去两小时有哪些任务失败了", "which jobs failed the last 2 hours?"),
        ("最近三天挂了几个任务", "how many jobs failed the last 3 days?"),
        ("从第400步重启4821", "restart 4821 from step 400"),
        ("7号节点怎么样", "what is going on with node 7?"),
        ("不用node07重启4821", "restart 4821 without node07"),
        ("让4830继续跑", "leave 4830 running"),
        ("上一个呢", "what about the one before?"),
    ],
)
def test_names_and_numbers_stand_whole_between_chinese_signs(typed: str, english: str) -> None:
    assert read_sentence(typed).english == english


@pytest.mark.parametrize(
    ("typed", "english"),
    [
        ("Starte 4821 neu", "restart 4821"),
        ("4821 bitte neu starten", "restart 4821"),
        ("kannst du 4821 neustarten?", "can you restart 4821?"),
        ("Halte 4830 an", "stop 4830"),
        ("prüfe node[05-08]", "check node[05-08]"),
        ("pruefe node03", "check node03"),
        ("prufe node03", "check node03"),
        ("laeuft 4830 noch", "is 4830 still running?"),
        ("Knotenfehler auf node07", "node error on node07"),
        ("Sag mir, warum 4821 gestorben ist", "why has 4821 died?"),
        ("sind die gesperrten Knoten wieder da?", "are the cordoned nodes back?"),
        ("Starte 4821 ab Schritt 400 neu", "restart 4821 from step 400"),
        ("und der andere?", "and the other one?"),
        ("und der davor?", "and the one before?"),
        ("das zweite", "the second one"),
        ("4830 muss sofort gestoppt werden", "stop 4830 now"),
        ("lass 4830 laufen", "leave 4830 running"),
        ("Fehler im Log von 4821 seit gestern", "show the errors in the log of 4821 since yesterday"),
        ("warum ist 4821 abgestürtzt", "why has 4821 crashed?"),
    ],
)
def test_german_verbs_in_two_parts_endings_and_slips(typed: str, english: str) -> None:
    assert read_sentence(typed).english == english


@pytest.mark.parametrize(
    "sentence",
    [
        "status 4821",
        "node07",
        "stop",
        "cancel 4821",
        'search the log of 4821 for "Fehler beim Laden"',
        'search the log of 4821 for "错误"',
        "why did 4821 die",
        "was it the node",
        "is alice in",
        "log 4821",
        "Kill 4830",
        "so what now",
    ],
)
def test_what_may_be_english_is_left_alone(sentence: str) -> None:
    assert read_sentence(sentence).english == sentence


def test_a_known_name_is_no_unknown_word() -> None:
    without, with_name = read_sentence("zeig die Jobs von quentin"), read_sentence("zeig die Jobs von quentin", lambda: {"Quentin"})
    assert without.unknown == ("quentin",)
    assert with_name.unknown == ()
    assert with_name.english == without.english == "show the jobs of quentin"


def test_an_order_with_an_unknown_word_is_none_and_says_so() -> None:
    reading = read_sentence("starte 4821 schnurzpieps neu")
    refusal = reading.refusal("semantic")
    assert reading.unknown == ("schnurzpieps",)
    assert refusal is not None
    assert "not read: schnurzpieps" in refusal.text


def test_a_remark_stands_only_where_a_word_was_not_read() -> None:
    answer = Answer("Job 4821 failed.", AnswerKind.ANSWER, "semantic")
    assert read_sentence("warum ist 4821 tot").remarked(answer) == answer
    remarked = read_sentence("welche Fehler hat der schnurzpiepsige 4821").remarked(answer)
    assert remarked.text == "Job 4821 failed.\n(not read: schnurzpiepsige)"


def test_verb_forms_hold_what_is_typed() -> None:
    forms = {(form.word, form.form) for form in verb_forms("starten")}
    assert {
        ("starte", WordForm.IMPERATIVE),
        ("startet", WordForm.FINITE),
        ("gestartet", WordForm.PARTICIPLE),
        ("starten", WordForm.BASE),
    } <= forms
    assert ("nimm", WordForm.IMPERATIVE) in {(form.word, form.form) for form in verb_forms("nehmen")}


def test_no_entry_is_written_for_two_glosses_of_one_section() -> None:
    for name, _ in LANGUAGES:
        for section in WordTag:
            if section.value not in tables(name) or section in (WordTag.FILLER,):
                continue
            words = [word.lower() for word, _ in entries(name, section)]
            twice = sorted({word for word in words if words.count(word) > 1})
            assert twice == [], (name, section)


def test_the_tables_hold_only_letters_that_can_be_typed() -> None:
    for name, _ in LANGUAGES:
        for section, glosses in tables(name).items():
            if section == "irregular":
                continue
            for english, words in glosses.items():
                assert re.fullmatch(r"[A-Za-z0-9 '{}|,?+-]*", english), (section, english)
                assert all(word == word.strip() for word in words)
    assert lexicon().plain


@pytest.mark.parametrize(
    ("typed", "english"),
    [
        ("先检查node07再重启4821", "check node07, restart 4821"),
        ("停掉4830，重启4821", "stop 4830, restart 4821"),
        ("把它取消了", "cancel it"),
        ("4821取消了", "4821 cancelled"),
        ("把挂掉的任务都重启了", "restart failed jobs"),
        ("不要往node03上调度任务", "cordon node03"),
        ("在4822的log里搜一下OOM", 'search the log of 4822 for "OOM"'),
        ("一小时后重启4821", "restart 4821 in 1 hours"),
        ("brich 4830 ab und starte 4821 neu", "cancel 4830, and restart 4821"),
        ("grep mal nach OOM in 4822", 'search for "OOM" in 4822'),
        ("Suche im Log von 4821 nach Fehlern", "search the log of 4821 for error"),
        ("ab Checkpoint 300 neu starten", "restart from step 300"),
    ],
)
def test_what_an_order_says_beside_its_verb_comes_along(typed: str, english: str) -> None:
    assert read_sentence(typed).english == english
