"""What a model is given of a long conversation fits, loses the oldest first, and never holds a call without its result."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from assistant.agent.toolbox import LEAST, shortened


def exchange(number: int, size: int, calls: int = 1) -> list[BaseMessage]:
    messages: list[BaseMessage] = [HumanMessage(f"question {number}?")]
    for call in range(calls):
        identity = f"c{number}.{call}"
        messages.append(
            AIMessage("", tool_calls=[{"name": "tail_log", "args": {"job": str(number)}, "id": identity, "type": "tool_call"}])
        )
        messages.append(ToolMessage(f"[{number}]\n{'x' * size}", tool_call_id=identity, name="tail_log"))
    return [*messages, AIMessage(f"answer {number} [{number}]. More of it.")]


def size_of(messages: list[Any]) -> int:
    return sum(len(str(one.text)) for one in messages)


def test_what_fits_is_left_as_it_is() -> None:
    messages = [*exchange(1, 100), HumanMessage("and now?")]
    assert shortened(messages, 5_000) == messages


def test_the_oldest_results_go_first_and_the_newest_stay_whole() -> None:
    messages = [*exchange(1, 3_000), *exchange(2, 3_000), *exchange(3, 3_000), HumanMessage("and now?")]
    given_ = shortened(messages, 8_000)
    results = [str(one.text) for one in given_ if isinstance(one, ToolMessage)]
    assert results[0] == "[1] (cleared to make room; make the call again to read it)"
    assert [len(text) for text in results[1:]] == [3_004, 3_004]
    assert len(given_) == len(messages)


def test_old_questions_shrink_to_a_line_each_with_what_was_answered() -> None:
    messages = [message for number in range(30) for message in exchange(number, 1_000)]
    first, *rest = shortened([*messages, HumanMessage("and now?")], 6_000)
    oldest = next(number for number in range(30) if str(rest[0].text) == f"question {number}?")
    assert str(first.text).endswith(f"- asked: question {oldest - 1}? / answered: answer {oldest - 1} [{oldest - 1}]. More of it.")
    assert str(rest[-1].text) == "and now?"
    assert size_of([first, *rest]) <= 6_000


def test_a_call_that_broke_off_is_left_out() -> None:
    lost = AIMessage("", tool_calls=[{"name": "tail_log", "args": {}, "id": "lost", "type": "tool_call"}])
    assert shortened([HumanMessage("a"), lost, HumanMessage("b")], 5_000) == [HumanMessage("a"), HumanMessage("b")]


@given(st.lists(st.tuples(st.integers(0, 9_000), st.integers(0, 4)), max_size=12), st.integers(LEAST, 30_000))
def test_it_always_fits_ends_with_the_question_and_keeps_calls_and_results_together(talk: list[tuple[int, int]], most: int) -> None:
    messages = [message for number, (size, calls) in enumerate(talk) for message in exchange(number, size, calls)]
    given_ = shortened([*messages, HumanMessage("and now?")], most)
    assert str(given_[-1].text) == "and now?"
    assert size_of(given_) <= most + 1_000
    made = [call["id"] for one in given_ if isinstance(one, AIMessage) for call in one.tool_calls]
    assert made == [one.tool_call_id for one in given_ if isinstance(one, ToolMessage)]


@pytest.mark.parametrize("most", [LEAST, 6_000])
def test_the_results_of_the_newest_question_are_cut_where_nothing_else_is_left(most: int) -> None:
    given_ = shortened(exchange(1, 9_000, calls=2)[:-1], most)
    assert size_of(given_) <= most + 500
    assert any("cut to make room" in str(one.text) for one in given_ if isinstance(one, ToolMessage))
