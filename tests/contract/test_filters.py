"""Every filter, shipped or new: it compiles, knows its examples, hides no error, does not care about digits."""

from __future__ import annotations

import pytest

from assistant.content.reading import Filter, filters
from assistant.rules.learned import hidden_errors, own_mistakes, swallowed_errors
from assistant.rules.loading import load_patterns
from assistant.rules.matching import Patterns, matches, protected_lines


@pytest.fixture(scope="module")
def patterns() -> Patterns:
    return load_patterns()


@pytest.mark.parametrize("entry", filters(), ids=lambda entry: entry.id)
class TestFilter:
    def test_it_hides_its_own_examples_whatever_their_digits(self, entry: Filter, patterns: Patterns) -> None:
        assert not own_mistakes(entry, patterns)

    def test_it_hides_no_line_of_the_protected_corpus(self, entry: Filter, patterns: Patterns) -> None:
        assert not hidden_errors(entry, protected_lines(), patterns)

    def test_it_hides_no_error_that_is_glued_to_one_of_its_lines(self, entry: Filter) -> None:
        assert not swallowed_errors(entry, protected_lines())

    def test_it_matches_each_example_at_one_place_only(self, entry: Filter, patterns: Patterns) -> None:
        for example in entry.examples:
            own = [number for number in patterns.routine(example.encode())[0::2] if patterns.entry(number) == entry]
            assert len(own) == 1

    def test_re_and_hyperscan_agree_on_its_examples(self, entry: Filter, patterns: Patterns) -> None:
        for example in entry.examples:
            assert matches(entry, example)
            assert entry in patterns.match_line(example)


def test_no_protected_line_is_hidden_by_all_filters_together(patterns: Patterns) -> None:
    assert [line for line in protected_lines() if patterns.hides(line)] == []


def test_nearly_every_protected_line_is_known_to_a_signature_or_an_alarm_word(patterns: Patterns) -> None:
    lines = protected_lines()
    silent = [line for line in lines if not patterns.telling(line.encode())]
    assert len(silent) <= len(lines) // 50, silent
