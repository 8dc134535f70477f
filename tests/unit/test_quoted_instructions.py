"""An instruction that is cut out of a message: what is typed stands as it was, closing quotes of what was left out do not."""

from __future__ import annotations

import pytest

from assistant.diagnose.advice.sentences import instruction_in, without_unopened


@pytest.mark.parametrize(
    ("message", "instruction"),
    [
        ('{"code": 7, "text": "grant is over; run `kx renew` to have a new one"}', "Run `kx renew` to have a new one"),
        ("(no shell here; run 'module load gcc' first)", "Run 'module load gcc' first"),
        ("[{'hint': 'quota used. Set QUOTA_GROUP=\"b\" in the job'}]", 'Set QUOTA_GROUP="b" in the job'),
        ("wrong form: use torch.load(path, weights_only=False)", "Use torch.load(path, weights_only=False)"),
        ('bad value: set mode="fast"', 'Set mode="fast"'),
    ],
)
def test_closing_quotes_and_brackets_that_nothing_opens_are_left_out(message: str, instruction: str) -> None:
    assert instruction_in(message) == instruction


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('new one"}', "new one"),
        ("f(x)", "f(x)"),
        ("f(x))", "f(x)"),
        ("the user's", "the user's"),
        ("don't use 'x'", "don't use 'x'"),
        ('"}])', ""),
        ("", ""),
    ],
)
def test_only_the_end_of_a_text_is_cut(text: str, left: str) -> None:
    assert without_unopened(text) == left
