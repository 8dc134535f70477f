"""What a person is told to change: every template of knowledge/advice.toml says what its examples expect, and no more."""

from __future__ import annotations

import re

import pytest

from assistant.content.reasons import SLOTS, Advice, AdviceExample, advices, reasons

EXAMPLES = [(entry, example) for entry in advices() for example in entry.examples]


@pytest.mark.parametrize(("entry", "example"), EXAMPLES, ids=[f"{entry.id}-{example.lines[0][:30]}" for entry, example in EXAMPLES])
def test_an_entry_says_what_its_example_expects(entry: Advice, example: AdviceExample) -> None:
    assert entry.fill(example.lines[0], example.lines, example.slots) == example.says


@pytest.mark.parametrize(("entry", "example"), EXAMPLES, ids=[f"{entry.id}-{example.lines[0][:30]}" for entry, example in EXAMPLES])
def test_no_entry_before_it_takes_the_line(entry: Advice, example: AdviceExample) -> None:
    for reason in entry.reasons or ("",):
        fitting = (other for other in advices() if not other.reasons or reason in other.reasons)
        first = next(other for other in fitting if other.fill(example.lines[0], example.lines, example.slots))
        assert first.id == entry.id, f"{reason}: {first.id} says {first.fill(example.lines[0], example.lines, example.slots)!r}"


def test_every_entry_has_an_example_and_reasons_that_exist() -> None:
    assert all(entry.examples for entry in advices())
    assert {reason for entry in advices() for reason in entry.reasons} <= set(reasons())
    assert len({entry.id for entry in advices()}) == len(advices())


@pytest.mark.parametrize("entry", advices(), ids=[entry.id for entry in advices()])
def test_no_word_of_an_entrys_own_patterns_is_filled_by_a_slot_of_that_name(entry: Advice) -> None:
    slots = {name: f"slot-{name}-of-the-case" for name in SLOTS}
    for example in entry.examples:
        for lines in (example.lines, example.lines[:1]):
            text = entry.fill(lines[0], lines, slots)
            assert [name for name in entry.groups if slots.get(name, "\0") in text] == []


FIELDS = {
    "embedding": r"embed|vocab|token",
    "vocabulary": r"vocab|classifier|embed",
    "tokenizer": r"token|BatchEncoding|pad",
    "learning rate": r"nan|inf|NaN|loss",
    "expandable_segments": r"PYTORCH",
    "collate_fn": r"collate",
    "num_labels": r"classifier|label",
    "linear layer": r"linear",
}
"""Words of one field with what the pattern of an entry has to ask for where no slot of the case stands for it."""
CONDITIONS = frozenset("embedding collated tokenized training serving evaluation nan rate workers linear recomputed".split())
"""Slots that only a case of the field fills."""


def test_words_of_one_field_are_said_only_where_the_case_shows_it() -> None:
    free: list[tuple[str, str]] = []
    for entry in advices():
        for clauses in (entry.clauses, *entry.variants):
            text = " ".join(clauses)
            conditioned = not CONDITIONS.isdisjoint(re.findall(r"\{(\w+)\}", text))
            words = [word for word, asks in FIELDS.items() if word in text and not re.search(asks, entry.pattern)]
            free += [(entry.id, word) for word in words if not conditioned]
    assert free == [], "give these a condition, or say what is true in any field"
