"""What a person is told to change: every template of knowledge/advice.toml says what its examples expect, and no more."""

from __future__ import annotations

import pytest

from assistant.content.advice import SLOTS, Advice, AdviceExample, advices
from assistant.content.reasons import reasons

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
