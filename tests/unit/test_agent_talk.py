"""Slips, orders and questions, and what `it` and `the second one` stand for."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.agent.answer import count_text, time_text, without_quote, without_repeats
from assistant.agent.chooser import spelling
from assistant.agent.dialogue import Dialogue, choose_option, keep, recall
from assistant.agent.moods import CHANGING, excluded_intents
from assistant.agent.pointers import resolve_pointers, variants
from assistant.agent.words import NameInventory, read_names

KNOWN = NameInventory(
    jobs={"4790": "llm-7b", "4812": "tokenise", "4821": "llm-7b"},
    nodes=("node01", "node02", "node07"),
    incidents={1: "4790", 2: "4821"},
)
AFTER_JOB = Dialogue("explain_job", ("4821",), ("node07",), 2, subject="job")
AFTER_LIST = Dialogue("failed_jobs", listed=("4821", "4790"), listed_kind="job")


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("why did it crahs", "why did it crash"),
        ("chekpoints of {job}", "checkpoints of {job}"),
        ("teh log of {job}", "the log of {job}"),
        ("y did {job} die", "why did {job} die"),
        ("status of {node} pls", "status of {node} please"),
        ("xylophone", "xylophone"),
        ("show the log", "show the log"),
    ],
)
def test_slips_are_mended_and_words_are_left(typed: str, read: str) -> None:
    assert spelling().mended(typed) == read


@pytest.mark.parametrize(
    "question",
    [
        "is {node} back in the pool",
        "{node} again??",
        "restart step for {job}?",
        "since when is {node} out",
        "should we restart {job}?",
    ],
)
def test_a_question_is_no_order(question: str) -> None:
    assert excluded_intents(question) >= CHANGING


@pytest.mark.parametrize("order", ["restart {job}", "restart {job}?", "could you drain {node}?", "please cancel it", "stop it?"])
def test_an_order_may_be_asked_politely(order: str) -> None:
    assert not excluded_intents(order) & CHANGING


def test_an_order_that_names_a_checkpoint_asks_for_none() -> None:
    assert "newest_checkpoint" in excluded_intents("restart {job} from its last good checkpoint")
    assert "newest_checkpoint" not in excluded_intents("show the checkpoint from which {job} restarts")


@pytest.mark.parametrize(
    ("said", "before", "names"),
    [
        ("and the one before?", AFTER_JOB, ("4790",)),
        ("why did the second one fail", AFTER_LIST, ("4790",)),
        ("explain the last one", AFTER_LIST, ("4790",)),
        ("the fifth one?", AFTER_LIST, ()),
        ("the first checkpoint", AFTER_LIST, ()),
        ("the one before 4812", AFTER_JOB, ("4812",)),
    ],
)
def test_places_in_a_list_and_neighbours_stand_for_names(said: str, before: Dialogue, names: tuple[str, ...]) -> None:
    assert resolve_pointers(read_names(said, KNOWN), before, KNOWN).jobs == names


def test_it_is_what_was_spoken_of_last_and_perhaps_something_else() -> None:
    found = dict(variants(read_names("and its log?", KNOWN), AFTER_JOB))
    assert found["and {job}'s log?"] == 1.0
    assert 0 < found["and {node}'s log?"] < 1.0
    assert dict(variants(read_names("cordon the node", KNOWN), AFTER_JOB)).keys() == {"cordon {node}"}
    assert list(variants(read_names("why did 4790 die", KNOWN), AFTER_JOB)) == []


@pytest.mark.parametrize(("said", "meant"), [("the second", "b?"), ("1", "a?"), ("yes", "a?"), ("other one", "b?"), ("no", "no")])
def test_one_of_two_readings_is_chosen_by_its_place(said: str, meant: str) -> None:
    assert choose_option(said, Dialogue(options=("a?", "b?"))) == meant
    assert choose_option(said, Dialogue()) == said


def test_of_many_conversations_the_newest_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "conversations.db"
    for number in range(45):
        keep(path, str(number), AFTER_JOB)
    assert recall(path, "44") == AFTER_JOB
    assert recall(path, "1") == Dialogue()


def test_times_counts_and_sentences_are_said_as_people_read_them() -> None:
    now = datetime(2026, 3, 1, 6, tzinfo=UTC)
    assert time_text("2026-03-01T02:00:00+00:00", now) == "2026-03-01 02:00 UTC, 4 h ago"
    assert time_text("2026-03-03T06:00:00+00:00", now) == "2026-03-03 06:00 UTC, in 2 days"
    assert time_text("soon", now) == "soon"
    assert (count_text(1, "line"), count_text(2000, "line")) == ("1 line", "2,000 lines")
    assert without_repeats("Do nothing. Do nothing.") == "Do nothing."
    assert without_quote("Key error: KeyError: 'losses' (job.log:16).", "KeyError: 'losses'") == "Key error."
