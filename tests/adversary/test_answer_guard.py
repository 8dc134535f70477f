"""What counts as an answer of a dialog: `AnswerGuard` with any keys and clicks at any times, and with sentences at any pace."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.gate.consent import AFTER_S, BEFORE_S
from assistant.tui.screens.changes import ApprovalScreen
from assistant.tui.screens.consent import TYPING_S, AnswerGuard, InputKind
from tests.adversary.typed_keys import CORPUS


@dataclass(frozen=True)
class Stroke:
    """A key or a click, and how long after the one before."""

    gap_s: float
    kind: InputKind


strokes = st.lists(
    st.builds(
        Stroke,
        st.floats(0.0, 3.0, allow_nan=False) | st.floats(0.0, BEFORE_S + 0.1),
        st.sampled_from(InputKind),
    ),
    max_size=30,
)


@settings(max_examples=400, deadline=None)
@given(strokes, st.floats(0.0, 5.0), st.floats(0.01, 1.0))
def test_only_an_answer_with_a_pause_on_both_sides_counts(some: list[Stroke], drawn_at: float, look_s: float) -> None:
    guard, at = AnswerGuard(), 0.0
    shown = False
    counted: list[int] = []
    begun = -1
    for number, stroke in enumerate([*some, Stroke(10.0, InputKind.NAVIGATION)]):
        until_s = at + stroke.gap_s
        while at < until_s:  # looks between two keys
            at = min(at + look_s, until_s)
            if not shown and at >= drawn_at:
                guard.draw(at)
                shown = True
            if at < until_s and guard.due(at):
                counted.append(begun)
        if guard.stands_alone(at, stroke.kind) and stroke.kind is InputKind.ANSWER:
            guard.begin("yes", at)
            begun = number
    gaps = [stroke.gap_s for stroke in some] + [10.0]
    for number in counted:
        assert some[number].kind is InputKind.ANSWER
        assert gaps[number] >= BEFORE_S - 1e-6 or number == 0
        assert gaps[number + 1] >= AFTER_S - 1e-6
        assert sum(gaps[: number + 1]) >= drawn_at + BEFORE_S - 1e-6


@settings(max_examples=150, deadline=None)
@given(st.floats(BEFORE_S + 0.01, 60.0), st.floats(0.01, 0.3))
def test_an_answer_that_stands_alone_always_counts_once(wait_s: float, look_s: float) -> None:
    guard = AnswerGuard()
    guard.draw(0.0)
    assert guard.stands_alone(wait_s, InputKind.ANSWER)
    guard.begin("yes", wait_s)
    answers = [guard.due(wait_s + number * look_s) for number in range(int(2 / look_s) + 3)]
    assert [answer for answer in answers if answer] == ["yes"]
    first = next(number for number, answer in enumerate(answers) if answer)
    assert first * look_s <= AFTER_S + 2 * look_s + 1e-6


def counted_of(sentence: str, pace_s: float) -> list[str]:
    """Return the letters of a sentence that count as answers of an approval, typed at an even pace after a long look."""
    guard, counted = AnswerGuard(), list[str]()
    guard.draw(-60.0)
    for number, letter in enumerate(sentence):
        at = number * pace_s
        kind = InputKind.ANSWER if letter in ApprovalScreen.ANSWER_KEYS else InputKind.TEXT
        if guard.stands_alone(at, kind) and kind is InputKind.ANSWER:
            guard.begin(letter, at)
        counted += [answer for look in range(1, 10) if (answer := guard.due(at + pace_s * look / 10))]
    return counted


@pytest.mark.parametrize("pace_s", [BEFORE_S + 0.01, 1.0, 1.5, TYPING_S - 0.01])
def test_no_letter_within_a_slow_sentence_answers(pace_s: float) -> None:
    # what begins with an answer is the one thing that a person at one key a second cannot be told apart by
    sentences = [one for one in CORPUS["sentences"] if one[0] not in ApprovalScreen.ANSWER_KEYS]
    assert len(sentences) > 100
    assert {one: found for one in sentences if (found := counted_of(one, pace_s))} == {}
    assert counted_of("y", pace_s * 2) == ["y"]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.builds(Stroke, st.floats(0.0, TYPING_S - 0.01), st.sampled_from(InputKind)), min_size=1, max_size=30))
def test_no_key_answers_until_typing_has_paused(some: list[Stroke]) -> None:
    guard, at = AnswerGuard(), 100.0
    guard.draw(0.0)
    guard.stands_alone(at, InputKind.TEXT)
    for stroke in some:
        at += stroke.gap_s
        assert not guard.stands_alone(at, stroke.kind)
    assert guard.stands_alone(at + TYPING_S + 1e-6, InputKind.ANSWER)
