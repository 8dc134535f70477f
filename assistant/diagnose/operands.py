"""Name the operands that a message only counts: the second of the arrays, the axis that is missing, the divisor, what is asserted.

NumPy and PyTorch say which place of a list is wrong; the line of source says what stands there.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache

from assistant.diagnose.expressions import nodes_of, written
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import setting

_PLACES = re.compile(
    r"array at index (?P<a>\d{1,4})\D.{0,60}?array at index (?P<b>\d{1,4})\b|for tensor number (?P<one>\d{1,4}) in the list"
)
_JOINS = frozenset({"concatenate", "concat", "cat", "stack", "vstack", "hstack", "dstack", "column_stack", "row_stack"})
_AXIS = re.compile(r"\.(?:shape|size\(\))$")
_NAMES = re.compile(r"[A-Za-z_]\w*")
MOST_NAMES = 3
SIGNS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.In: "in"}


def operands_of(text: str, code: str, subject: str, line: int, facts: Facts) -> dict[str, str]:
    """Return what the line of source that raised an error says of the things that its message counts or compares.

    Args:
        text: The message, its class in front.
        code: The line of source that raised it.
        subject: The expression that it complains of, or empty.
        line: Of the message in the log.
        facts: Of the case.
    """
    slots: dict[str, str] = {}
    if (match := _PLACES.search(text)) and (parts := _joined(code)):
        places = [int(match[name]) for name in ("a", "b", "one") if match[name]]
        operands = [parts[place] for place in places if place < len(parts)]
        if len(operands) == len(places):
            slots |= {"odd_operand": operands[-1], "even_operand": operands[0] if len(operands) > 1 else parts[0]}
    if "index out of range" in text and _AXIS.search(subject):
        slots["axes_of"] = _AXIS.sub("", subject)
    if "by zero" in text and (divisor := _divisor(code)):
        slots["divisor"] = divisor
        printed = (setting(facts, _number_pattern(name), line) for name in _NAMES.findall(divisor)[:MOST_NAMES])
        slots["divisor_printed"] = ", ".join(str(value) for value in printed if value is not None)
    if "AssertionError" in text:
        slots |= _asserted(code)
    return {name: value for name, value in slots.items() if value}


@lru_cache(maxsize=64)
def _number_pattern(name: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?<![\w.-])(?P<name>{re.escape(name)})['\"]?\s{{0,2}}[:=]\s{{0,2}}['\"]?(?P<value>-?\d[\d.]{{0,12}})(?![\w.])"
    )


def _joined(source: str) -> list[str]:
    """Return the elements of the list that a line of source joins, as written; empty where it joins no list that stands there."""
    for node in nodes_of(source):
        if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], (ast.List, ast.Tuple)):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            elements = node.args[0].elts
            if name in _JOINS and not any(isinstance(part, ast.Starred) for part in elements):
                return [written(part, source) for part in elements]
    return []


def absolute_part(path: str, source: str) -> str:
    """Return the part that a line of source joins to others although it begins with /, if a path begins with it; else empty."""
    for node in nodes_of(source) or nodes_of(f"({source}"):
        if isinstance(node, ast.Call) and len(node.args) > 1 and getattr(node.func, "attr", "") == "join":
            for part in node.args[1:]:
                value = part.value if isinstance(part, ast.Constant) else None
                if isinstance(value, str) and len(value) > 1 and value.startswith("/") and path.startswith(value):
                    return value
    return ""


def _divisor(source: str) -> str:
    """Return the one expression that a line of source divides by; empty where it divides by none, or by several."""
    divisions = [
        node for node in nodes_of(source) if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.FloorDiv, ast.Mod))
    ]
    divisors = {written(node.right, source) for node in divisions if not isinstance(node.right, ast.Constant)}
    return divisors.pop() if len(divisors) == 1 else ""


def _asserted(source: str) -> dict[str, str]:
    """Return the condition of an assertion, and what its sides are where it compares two; none for any other line."""
    check = next((node for node in nodes_of(source) if isinstance(node, ast.Assert)), None)
    if check is None or isinstance(check.test, ast.Tuple):
        return {}
    slots = {"condition": written(check.test, source)}
    test = check.test
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in SIGNS:
        slots |= {
            "left": written(test.left, source),
            "sign": SIGNS[type(test.ops[0])],
            "right": written(test.comparators[0], source),
        }
        if isinstance(test.ops[0], ast.Eq) and isinstance(test.left, ast.Call) and getattr(test.left.func, "id", "") == "len":
            slots["counted"] = written(test.left.args[0], source) if test.left.args else ""
    return slots
