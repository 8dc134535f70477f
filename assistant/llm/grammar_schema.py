"""From a JSON schema, as LangChain makes it of a tool's arguments, to the tree of `grammar`.

What comes out is JSON in one line that validates against the schema: the order of an object's keys is fixed (required ones
first), properties that the schema does not name never appear, strings, arrays and numbers have an end even where the schema
has none. A keyword that cannot be held is refused, never ignored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from assistant.errors import ModelError
from assistant.llm.grammar import (
    LARGEST_REPEAT,
    Chars,
    Node,
    Repeat,
    Text,
    but,
    choice,
    longest,
    of_pattern,
    one_of,
    optional,
    repeat,
    seq,
    shortest,
)

LONGEST_TEXT = 400
"""Characters of a string whose schema has no maxLength; 400 cost llama.cpp nothing to speak of, 2,000 cost 3 ms a token."""
MOST_ITEMS = 32
MOST_PAIRS = 8
MOST_NAMES = 1_000
"""Values of an enum."""
MOST_PLACES = 4_000
"""Schemas inside one another, counted each time they are used: what keeps a bomb of references from going off."""
DEEPEST = 24
ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "format", "deprecated", "$defs", "definitions", "$schema", "$id", "readOnly"}
)
_KEYWORDS_BY_TYPE = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "minItems", "maxItems"},
    "string": {"minLength", "maxLength", "pattern"},
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "boolean": set(),
    "null": set(),
}
_SIGN = choice(
    [
        but((34, 34), (92, 92), (127, 127)),
        seq("\\", Chars(((34, 34), (47, 47), (92, 92), (98, 98), (102, 102), (110, 110), (114, 114), (116, 116)))),
    ]
)
"""A character of a JSON string. No \\u: what it writes has a form of its own, and half a surrogate pair has none."""
_GAP = Repeat(Text(" "), 0, 1)


def of_schema(schema: Mapping[str, Any], *, longest_text: int = LONGEST_TEXT) -> Node:
    """Return what a schema allows.

    Args:
        schema: Of any type; references must stay inside it.
        longest_text: Characters of a string without maxLength.

    Raises:
        ModelError: It uses what a grammar cannot hold, contains itself, or is too large; the message has the place.
    """
    return _Builder(schema, longest_text).node(schema, "", 0)


def text_in_quotes(least: int, most: int | None) -> Node:
    """Return a JSON string of so many characters, None for no end."""
    return seq('"', _several(_SIGN, least, most), '"')


def object_of(pairs: Sequence[tuple[str, Node]], required: Iterable[str]) -> Node:
    """Return a JSON object with these keys, required ones first."""
    required_names = set(required)
    first = [_pair(name, node) for name, node in pairs if name in required_names]
    optional_pairs = [_pair(name, node) for name, node in pairs if name not in required_names]
    comma = seq(",", _GAP)
    if first:
        inside = first[0]
        for pair in first[1:]:
            inside = seq(inside, comma, pair)
        return seq("{", inside, *(optional(seq(comma, pair)) for pair in optional_pairs), "}")
    begins = [
        seq(pair, *(optional(seq(comma, later)) for later in optional_pairs[n + 1 :])) for n, pair in enumerate(optional_pairs)
    ]
    return seq("{", optional(choice(begins)), "}") if begins else Text("{}")


def _pair(name: str, node: Node) -> Node:
    return seq(_json(name), ":", _GAP, node)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


@lru_cache(maxsize=32)
def _names(values: tuple[str, ...]) -> Node:
    """Return one of these strings; many tools take the same names."""
    try:
        "".join(values).encode()
    except UnicodeEncodeError as error:
        raise ModelError(f"a name among {values[0][:40]!r}, … is no JSON: half a character") from error
    return one_of(map(_json, values))


def _several(node: Node, least: int, most: int | None) -> Node:
    # where a schema allows more than llama.cpp counts, less is said
    return repeat(node, least, None if most is None else min(most, max(least, LARGEST_REPEAT)))


class _Builder:
    """Turns one schema; knows its references and counts its parts."""

    def __init__(self, root: Mapping[str, Any], longest_text: int) -> None:
        self.root, self.longest_text, self.places = root, longest_text, 0

    def node(self, schema: Any, place: str, depth: int) -> Node:
        self.places += 1
        if self.places > MOST_PLACES or depth > DEEPEST:
            raise _refused(
                place, f"it is too large (over {MOST_PLACES} parts) or nested too deep (over {DEEPEST}), or it contains itself"
            )
        if schema is True:
            schema = {}
        if not isinstance(schema, Mapping):
            raise _refused(place, f"a schema is a table, not {str(schema)[:40]!r}")
        if "$ref" in schema:
            return self.node(self.referred(schema, place), place, depth + 1)
        if "const" in schema:
            return Text(self.literal(schema["const"], place))
        if "enum" in schema:
            return self.listed(schema, place)
        for key in ("anyOf", "allOf"):
            if key in schema:
                return self.combined(schema, key, place, depth)
        return self.typed(schema, place, depth)

    def referred(self, schema: Mapping[str, Any], place: str) -> Any:
        reference = schema["$ref"]
        if set(schema) - ANNOTATIONS - {"$ref"}:
            raise _refused(place, "keys beside $ref cannot be held")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            raise _refused(place, f"the reference {str(reference)[:60]!r} leads out of the schema")
        node: Any = self.root
        for key in reference[2:].split("/"):
            node = node.get(key) if isinstance(node, Mapping) else None
        if node is None:
            raise _refused(place, f"the reference {reference[:60]!r} leads nowhere")
        return node

    def literal(self, value: object, place: str) -> str:
        try:
            text = _json(value)
            text.encode()
        except (TypeError, ValueError) as error:
            raise _refused(place, f"the value {str(value)[:40]!r} is no JSON") from error
        return text

    def listed(self, schema: Mapping[str, Any], place: str) -> Node:
        values = schema["enum"]
        extra_keywords = set(schema) - ANNOTATIONS - {"enum", "type"}
        if extra_keywords:
            raise _refused(place, f"{_words(extra_keywords)} beside an enum cannot be held")
        if not isinstance(values, Sequence) or isinstance(values, str) or not values or len(values) > MOST_NAMES:
            raise _refused(place, f"an enum has 1 to {MOST_NAMES} values")
        if schema.get("type", "string") == "string" and all(type(value) is str for value in values):
            return _placed(place, lambda: _names(tuple(values)))
        return one_of(self.literal(value, place) for value in values if _is_of(value, schema.get("type")))

    def combined(self, schema: Mapping[str, Any], key: str, place: str, depth: int) -> Node:
        options = schema[key]
        extra_keywords = set(schema) - ANNOTATIONS - {key}
        if extra_keywords or not isinstance(options, Sequence) or (key == "allOf" and len(options) != 1):
            raise _refused(place, f"{key} with {_words(extra_keywords) or 'several parts'} cannot be held")
        return choice(self.node(option, f"{place}/{key}", depth + 1) for option in options)

    def typed(self, schema: Mapping[str, Any], place: str, depth: int) -> Node:
        kinds = schema.get("type")
        if kinds is None:
            kinds = (
                "object" if "properties" in schema else "array" if "items" in schema else ["string", "integer", "boolean", "null"]
            )
        several = [kinds] if isinstance(kinds, str) else list(kinds)
        if any(kind not in _KEYWORDS_BY_TYPE for kind in several):
            raise _refused(place, f"the type {kinds!r} is unknown; known: {', '.join(_KEYWORDS_BY_TYPE)}")
        unknown = set(schema) - ANNOTATIONS - {"type"} - set().union(*(_KEYWORDS_BY_TYPE[kind] for kind in several))
        if unknown:
            raise _refused(place, f"{_words(unknown)} cannot be held by a grammar")
        return choice(self.of_kind(kind, schema, place, depth) for kind in several)

    def of_kind(self, kind: str, schema: Mapping[str, Any], place: str, depth: int) -> Node:
        match kind:
            case "object":
                return self.object(schema, place, depth)
            case "array":
                return self.array(schema, place, depth)
            case "string":
                return self.string(schema, place)
            case "integer":
                return _placed(place, lambda: integers(*_steps(schema, place, 0)))
            case "number":
                return _placed(place, lambda: numbers(*_steps(schema, place, DECIMALS)))
            case "boolean":
                return one_of(("true", "false"))
            case _:
                return Text("null")

    def object(self, schema: Mapping[str, Any], place: str, depth: int) -> Node:
        properties = schema.get("properties") or {}
        required = schema.get("required") or []
        more = schema.get("additionalProperties")
        if not isinstance(properties, Mapping) or not set(required) <= set(properties):
            raise _refused(place, "a required property is not among the properties")
        if not properties and isinstance(more, Mapping):
            pair = seq(text_in_quotes(1, 64), ":", _GAP, self.node(more, f"{place}/*", depth + 1))
            return seq("{", optional(seq(pair, _several(seq(",", _GAP, pair), 0, MOST_PAIRS - 1))), "}")
        pairs = [(str(name), self.node(inner, f"{place}/{name}", depth + 1)) for name, inner in properties.items()]
        return object_of(pairs, required)

    def array(self, schema: Mapping[str, Any], place: str, depth: int) -> Node:
        item = self.node(schema.get("items", {}), f"{place}/items", depth + 1)
        least = _count(schema, "minItems", 0, place)
        most = _count(schema, "maxItems", max(least, MOST_ITEMS), place)
        if least > most:
            raise _refused(place, f"an array of {least} to {most} items was wanted: there is none")
        if most == 0:
            return Text("[]")
        more = repeat(seq(",", _GAP, item), max(0, least - 1), most - 1)
        inside = seq(item, more)
        return seq("[", inside if least else optional(inside), "]")

    def string(self, schema: Mapping[str, Any], place: str) -> Node:
        least = _count(schema, "minLength", 0, place)
        most = _count(schema, "maxLength", max(least, self.longest_text), place)
        if least > most:
            raise _refused(place, f"a text of {least} to {most} characters was wanted: there is none")
        if "pattern" not in schema:
            return _placed(place, lambda: text_in_quotes(least, most))
        inside = _placed(place, lambda: of_pattern(str(schema["pattern"]), most=most))
        # an escaped sign counts as two here: at worst a pattern that would just fit is refused
        reach = longest(inside)
        if ("maxLength" in schema and (reach is None or reach > most)) or shortest(inside) < least:
            raise _refused(place, f"the pattern allows texts outside of {least} to {most} characters; give its counts limits")
        return seq('"', inside, '"')


def _placed(place: str, build: Any) -> Node:
    try:
        node: Node = build()
    except ModelError as error:
        raise _refused(place, str(error)) from error
    return node


def _refused(place: str, why: str) -> ModelError:
    return ModelError(f"a schema was wanted as a grammar; at {place[:120] or '/'}: {why}")


def _words(names: Iterable[str]) -> str:
    return ", ".join(sorted(map(str, names)))


def _count(schema: Mapping[str, Any], key: str, fallback: int, place: str) -> int:
    value = schema.get(key, fallback)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _refused(place, f"{key} must be a count, not {str(value)[:40]!r}")
    return value


def _steps(schema: Mapping[str, Any], place: str, decimals: int) -> tuple[int, int]:
    """Return the limits of a number, both included, in units of its last decimal."""
    step, low, high = 10**decimals, -WIDEST, WIDEST
    for key in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"):
        value = schema.get(key, 0)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
            raise _refused(place, f"{key} must be a number, not {str(value)[:40]!r}")
        if key not in schema:
            continue
        exact = Fraction(str(value)) * step
        match key:
            case "minimum":
                low = max(low, math.ceil(exact))
            case "exclusiveMinimum":
                low = max(low, math.floor(exact) + 1)
            case "maximum":
                high = min(high, math.floor(exact))
            case _:
                high = min(high, math.ceil(exact) - 1)
    return low, high


def _is_of(value: object, kinds: object) -> bool:
    if kinds is None:
        return True
    names = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
        "object": dict,
        "array": list,
    }
    kind_names = [kinds] if isinstance(kinds, str) else list(kinds) if isinstance(kinds, Sequence) else []
    return any(isinstance(value, names.get(kind, ())) and (kind == "boolean" or not isinstance(value, bool)) for kind in kind_names)  # type: ignore[arg-type]


# Numbers within limits, as patterns of their digits: the only way in which a grammar can hold a range.

WIDEST = 10**15 - 1
"""The limit where a schema has none: any JSON reader keeps such an integer exactly."""
DECIMALS = 6
_STEP = 10**DECIMALS
_DIGIT = Chars(((48, 57),))


def integers(low: int, high: int) -> Node:
    """Return the integers from low to high, both included, written without leading zeros.

    Raises:
        ModelError: There is none.
    """
    if low > high:
        raise ModelError(f"an integer from {low} to {high} was wanted: there is none; turn the limits round")
    options: list[Node] = []
    if low < 0:
        options += [seq("-", node) for node in _not_negative(max(1, -high), -low)]
    if high >= 0:
        options += _not_negative(max(0, low), high)
    return choice(options)


def numbers(low: int, high: int) -> Node:
    """Return the numbers from low to high, both in millionths and included; written with at most six decimals.

    Raises:
        ModelError: There is none.
    """
    if low > high:
        raise ModelError(f"a number from {low} to {high} millionths was wanted: there is none; turn the limits round")
    options: list[Node] = []
    if low < 0:
        options += [seq("-", node) for node in _decimals(max(1, -high), -low)]
    if high >= 0:
        options += _decimals(max(0, low), high)
    return choice(options)


def _not_negative(low: int, high: int) -> Iterator[Node]:
    for width in range(len(str(low)), len(str(high)) + 1):
        first = max(low, 10 ** (width - 1) if width > 1 else 0)
        last = min(high, 10**width - 1)
        yield _padded(str(first), str(last))


def _padded(low: str, high: str) -> Node:
    """Return the digit strings from low to high, which are as long as one another."""
    if not low:
        return Text("")
    if low == "0" * len(low) and high == "9" * len(high):
        return repeat(_DIGIT, len(low), len(low))
    if low[0] == high[0]:
        return seq(low[0], _padded(low[1:], high[1:]))
    tail_length = len(low) - 1
    options, first, last = [], ord(low[0]), ord(high[0])
    if low[1:] != "0" * tail_length:
        options.append(seq(low[0], _padded(low[1:], "9" * tail_length)))
        first += 1
    upper: list[Node] = []
    if high[1:] != "9" * tail_length:
        upper.append(seq(high[0], _padded("0" * tail_length, high[1:])))
        last -= 1
    if first <= last:
        options.append(seq(Chars(((first, last),)), _padded("0" * tail_length, "9" * tail_length)))
    return choice([*options, *upper])


def _decimals(low: int, high: int) -> Iterator[Node]:
    """Yield the numbers from low to high, in millionths: whole ones may have decimals where all of these fit."""
    first, last = -(-low // _STEP), high // _STEP
    if first > last:
        yield seq(str(low // _STEP), _fraction(low % _STEP, high % _STEP))
        return
    if low % _STEP:
        yield seq(str(low // _STEP), _fraction(low % _STEP, _STEP - 1))
    if first < last:
        yield seq(integers(first, last - 1), optional(seq(".", repeat(_DIGIT, 1, DECIMALS))))
    yield Text(str(last))
    if high % _STEP:
        yield seq(str(last), _fraction(0, high % _STEP))


def _fraction(low: int, high: int) -> Node:
    """Return the point and the decimals, one to six of them, of what lies between, in millionths."""
    options: list[Node] = []
    for width in range(1, DECIMALS + 1):
        unit = 10 ** (DECIMALS - width)
        first, last = -(-low // unit), high // unit
        if first <= last and last < 10**width:
            options.append(_padded(f"{first:0{width}}", f"{last:0{width}}"))
    return seq(".", choice(options))
