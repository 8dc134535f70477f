"""What a model is told in a turn, what it may say, and how its answer is read while it comes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

from assistant.errors import ModelError
from assistant.llm.chat import AnswerReader, bounded, fitting, offered_tools, plain, turn_of
from assistant.llm.grammar import accepts


def tool(name: str = "show_job", **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": "Show a job.", "parameters": parameters}}


TEXT = {"type": "string"}


LETTERS = st.characters(codec="utf-8", exclude_categories=["Cc"]) | st.sampled_from('\n\t\r"\\/u👩')


@given(st.text(alphabet=LETTERS), st.integers(1, 9), st.booleans())
def test_an_answer_in_pieces_is_the_answer(text: str, size: int, plain: bool) -> None:
    raw = json.dumps({"answer": text}, ensure_ascii=plain)
    reader = AnswerReader()
    assert "".join(reader.feed(raw[at : at + size]) for at in range(0, len(raw), size)) == text
    assert reader.answers


@pytest.mark.parametrize(
    ("escaped", "meant"),
    [(r"\ud83d\ude00", "😀"), (r"\ud83dx", "\ufffdx"), (r"\ud83d\u0041", "\ufffdA"), (r"\ude00", "\ufffd"), (r"\uzzzz", "\ufffd")],
)
def test_half_a_character_is_shown_as_lost(escaped: str, meant: str) -> None:
    assert AnswerReader().feed(f'{{"answer": "{escaped}"}}') == meant


def test_a_call_is_no_answer() -> None:
    reader = AnswerReader()
    assert reader.feed('{"tool": "answer", "args": {"answer": "x"}}') == ""
    assert not reader.answers


def test_a_turn_is_an_answer_or_a_call_and_nothing_else() -> None:
    node = turn_of([tool(job={"enum": ["4821"]})], answer=True)
    assert accepts(node, '{"answer": "It died.\\nXid 79"}')
    assert accepts(node, '{"tool":"show_job","args":{"job":"4821"}}')
    for other in ("It died.", '{"tool":"drop_all","args":{}}', '{"tool":"show_job","args":{"job":"9"}}', '{"answer":""}', "{}"):
        assert not accepts(node, other)
    assert not accepts(turn_of([tool(job=TEXT)], answer=False), '{"answer":"x"}')


def test_a_tool_that_no_grammar_holds_is_named() -> None:
    with pytest.raises(ModelError, match=r"tool show_job: .* at /n: multipleOf"):
        turn_of([tool(n={"type": "integer", "multipleOf": 7})], answer=True)


@pytest.mark.parametrize(
    ("schema", "bound"),
    [
        (TEXT, {"type": "string", "enum": ["7", "8"]}),
        ({"type": "integer"}, {"type": "integer", "enum": [7, 8]}),
        (
            {"type": "array", "items": TEXT, "minItems": 1},
            {"type": "array", "items": {"type": "string", "enum": ["7", "8"]}, "minItems": 1},
        ),
        ({"anyOf": [TEXT, {"type": "null"}]}, {"anyOf": [{"type": "string", "enum": ["7", "8"]}, {"type": "null"}]}),
        ({"type": "string", "enum": ["x"]}, {"type": "string", "enum": ["x"]}),
        ({"type": "boolean"}, {"type": "boolean"}),
    ],
)
def test_an_argument_is_bound_to_what_exists(schema: dict[str, Any], bound: dict[str, Any]) -> None:
    (limited,) = bounded([tool(job=schema, other=TEXT)], {"job": ["7", "8"], "other": []}, "")
    assert limited["function"]["parameters"]["properties"] == {"job": bound, "other": TEXT}


def test_of_too_many_names_those_that_were_said_stay() -> None:
    names = [f"node{number:04}" for number in range(3_000)]
    found = fitting(names, "is node2999 as bad as node151x?", 50)
    assert len(found) == 50
    assert {"node2999", "node0000"} <= set(found)
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("wanted", "names", "answer"),
    [
        (None, ["a", "b"], True),
        ("auto", ["a", "b"], True),
        ("none", [], True),
        ("any", ["a", "b"], False),
        (True, ["a", "b"], False),
        ("b", ["b"], False),
        ({"type": "function", "function": {"name": "b"}}, ["b"], False),
    ],
)
def test_the_choice_of_tools_is_kept_to(wanted: Any, names: list[str], answer: bool) -> None:
    tools, may_answer = offered_tools([tool("a"), tool("b")], wanted)
    assert ([one["function"]["name"] for one in tools], may_answer) == (names, answer)


def test_a_tool_that_is_not_bound_cannot_be_demanded() -> None:
    with pytest.raises(ModelError, match="'c' was to be called; bound are: a"):
        offered_tools([tool("a")], "c")


def test_a_conversation_is_told_in_one_form_for_all_models() -> None:
    call = {"name": "show_job", "args": {"job": "7"}, "id": "1", "type": "tool_call"}
    messages = [
        SystemMessage("Be short."),
        HumanMessage("why?"),
        AIMessage("", tool_calls=[call]),
        ToolMessage("Xid 79", tool_call_id="1", name="show_job"),
    ]
    told = plain(messages, [tool(job=TEXT)], answer=True)
    assert [one["role"] for one in told] == ["system", "user", "assistant", "user"]
    assert told[0]["content"].startswith("Be short.\n\nReply with one line of JSON")
    assert told[2]["content"] == '{"tool": "show_job", "args": {"job": "7"}}'
    assert told[3]["content"] == "Result of show_job:\nXid 79"
