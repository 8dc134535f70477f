"""What the grammars let through is JSON that validates; what they cannot hold is refused before llama.cpp sees it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.errors import ModelError
from assistant.llm.grammar import Alternatives, Chars, Node, Repeat, Seq, Text, accepts, one_of, to_gbnf
from assistant.llm.grammar_schema import integers, numbers, of_schema
from assistant.llm.worker import check_grammar

CASES = tomllib.loads((Path(__file__).parents[1] / "cases" / "llm" / "schemas.toml").read_text(encoding="utf-8"))
Schema = Mapping[str, Any]


def valid(value: Any, schema: Schema) -> bool:
    """Tell whether a value validates: a reader of its own, so that the emitter is not its own witness."""
    if "anyOf" in schema:
        return any(valid(value, option) for option in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return value in schema.get("enum", [schema.get("const")])
    kind = schema["type"]
    kinds: dict[str, Any] = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    if not isinstance(value, kinds[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return False
    if kind == "object":
        properties = schema["properties"]
        known = all(name in properties and valid(item, properties[name]) for name, item in value.items())
        return known and set(schema.get("required", [])) <= set(value)
    if kind == "array":
        sizes = schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
        return sizes and all(valid(item, schema["items"]) for item in value)
    if kind == "string":
        sizes = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
        return sizes and re.search(schema.get("pattern", ""), value) is not None
    if kind in ("integer", "number"):
        inside: bool = schema.get("minimum", value) <= value <= schema.get("maximum", value)
        return inside and schema.get("exclusiveMinimum", value - 1) < value < schema.get("exclusiveMaximum", value + 1)
    return True


_LIMIT = st.integers(-(10**7), 10**7)
_PATTERNS = [
    "^gpu[0-9]{3}$",
    "^[A-Za-z0-9_.-]{1,24}$",
    r"^\d+(?:_\d{1,3})?$",
    '^["\\\\/]{2}[^a-z]?$',
    "^(?:rack|row)[^\\s\\d]x*$",
    "^.{3}$",
    "^é[☃-☆]?$",
]


@st.composite
def _numbers(draw: st.DrawFn) -> dict[str, Any]:
    low, high = sorted([draw(_LIMIT), draw(_LIMIT)])
    if draw(st.booleans()):
        return {"type": "integer", "minimum": low, "maximum": high}
    scale = draw(st.sampled_from([1, 10, 1000, 100_000]))
    return {"type": "number", "minimum": low / scale, "maximum": high / scale}


@st.composite
def _strings(draw: st.DrawFn) -> dict[str, Any]:
    if draw(st.booleans()):
        return {"type": "string", "pattern": draw(st.sampled_from(_PATTERNS))}
    least = draw(st.integers(0, 5))
    return {"type": "string", "minLength": least, "maxLength": least + draw(st.integers(0, 20))}


_SCALARS = st.one_of(
    _numbers(),
    _strings(),
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 2}]),
    st.lists(st.one_of(st.text(max_size=8), st.integers()), min_size=1, max_size=12, unique_by=str).map(
        lambda values: {"enum": values}
    ),
)


def _containers(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    arrays = st.tuples(inner, st.integers(0, 3), st.integers(0, 3)).map(
        lambda three: {"type": "array", "items": three[0], "minItems": three[1], "maxItems": three[1] + three[2]}
    )
    choices = st.lists(inner, min_size=1, max_size=3).map(lambda options: {"anyOf": options})
    objects = st.tuples(st.dictionaries(st.text(max_size=6), inner, max_size=4), st.integers(0, 4)).map(
        lambda two: {"type": "object", "properties": two[0], "required": sorted(two[0])[: two[1]]}
    )
    return st.one_of(arrays, choices, objects)


SCHEMAS = st.recursive(_SCALARS, _containers, max_leaves=5)


@st.composite
def said_by(draw: st.DrawFn, node: Node) -> str:
    match node:
        case Text(text):
            return text
        case Chars(ranges):
            return chr(draw(st.integers(*draw(st.sampled_from(ranges)))))
        case Seq(parts):
            return "".join(draw(said_by(part)) for part in parts)
        case Alternatives(options):
            return draw(said_by(draw(st.sampled_from(options))))
        case Repeat(inner, least, most):
            count = draw(st.integers(least, min(least + 3, least + 3 if most is None else most)))
            return "".join(draw(said_by(inner)) for _ in range(count))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_whatever_a_grammar_lets_through_validates_against_its_schema(data: st.DataObject) -> None:
    schema = data.draw(SCHEMAS)
    node = of_schema(schema)
    check_grammar(to_gbnf(node))
    text = data.draw(said_by(node))
    assert accepts(node, text)
    assert valid(json.loads(text), schema), (schema, text)


@settings(max_examples=200, deadline=None)
@given(_LIMIT, _LIMIT, st.integers(-(10**8), 10**8))
def test_an_integer_passes_exactly_when_it_is_in_the_range(one: int, other: int, value: int) -> None:
    low, high = sorted([one, other])
    node = integers(low, high)
    for tried in (value, low, high, low - 1, high + 1, 0, -value):
        assert accepts(node, str(tried)) == (low <= tried <= high), tried
    assert not accepts(node, f"0{abs(value)}")
    assert not accepts(node, "-0")


@settings(max_examples=200, deadline=None)
@given(_LIMIT, _LIMIT, st.integers(-(10**8), 10**8))
def test_a_number_passes_only_when_it_is_in_the_range(one: int, other: int, value: int) -> None:
    low, high = sorted([one, other])
    node = numbers(low, high)
    for tried in (value, low, high, low - 1, high + 1):
        text = f"{'-' if tried < 0 else ''}{abs(tried) // 10**6}.{abs(tried) % 10**6:06}"
        assert accepts(node, text) <= (low <= tried <= high), text
        if low <= tried <= high and tried:
            assert accepts(node, text) or accepts(node, text.rstrip("0").rstrip(".")), text


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=6), min_size=1, max_size=30), st.text(max_size=6))
def test_a_choice_of_names_lets_exactly_these_through(names: list[str], other: str) -> None:
    node = one_of(names)
    assert all(accepts(node, name) for name in names)
    assert accepts(node, other) == (other in names)


@pytest.mark.parametrize("case", CASES["said"], ids=lambda case: case["name"])
def test_a_schema_lets_through_and_holds_back(case: dict[str, Any]) -> None:
    node = of_schema(json.loads(case["schema"]))
    check_grammar(to_gbnf(node))
    assert [text for text in case["yes"] if not accepts(node, text)] == []
    assert [text for text in case.get("no", []) if accepts(node, text)] == []


@pytest.mark.parametrize("case", CASES["refused"], ids=lambda case: case["name"])
def test_a_schema_that_cannot_be_held_is_refused_with_its_place(case: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=re.escape(case["why"])):
        of_schema(json.loads(case["schema"]))


@pytest.mark.parametrize("case", CASES["broken"], ids=lambda case: case["name"])
def test_a_grammar_that_llama_cpp_may_not_survive_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=re.escape(case["why"])):
        check_grammar(case["gbnf"])


def bomb_of_references(depth: int) -> dict[str, Any]:
    steps = {
        f"s{n}": {"anyOf": [{"$ref": f"#/$defs/s{n + 1}"}, {"type": "array", "items": {"$ref": f"#/$defs/s{n + 1}"}}]}
        for n in range(depth)
    }
    return {"$defs": {**steps, f"s{depth}": {"type": "integer"}}, "$ref": "#/$defs/s0"}


@pytest.mark.parametrize(
    "schema",
    [
        bomb_of_references(60),
        bomb_of_references(11),
        {"enum": [f"node{n}" for n in range(5_000)]},
        {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(9_000)}},
        {"type": "array", "minItems": 10**9, "items": {"type": "string"}},
        {"type": "string", "pattern": "^" + "(" * 500 + "a" + ")" * 500 + "$"},
        {"type": "string", "pattern": "^(?:(?:a{0,9}){0,9}){0,9999}$"},
    ],
    ids=["references", "doubling", "names", "properties", "items", "groups", "counts"],
)
def test_a_bomb_is_refused_at_once(schema: dict[str, Any]) -> None:
    with pytest.raises(ModelError):
        check_grammar(to_gbnf(of_schema(schema)))


def test_a_long_grammar_is_refused() -> None:
    with pytest.raises(ModelError, match="400,000 are the limit"):
        check_grammar("root ::= " + '"a" ' * 200_000)


def test_strings_without_a_limit_end_where_the_caller_says() -> None:
    node = of_schema({"type": "string"}, longest_text=3)
    assert accepts(node, '"abc"')
    assert not accepts(node, '"abcd"')
