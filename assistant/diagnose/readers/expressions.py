"""Find the expression that an error message speaks about in the line of source that a traceback shows.

A message names an attribute, a key or a function; the line of source says on which value. Since Python 3.11 marks below the line
show it too; where neither is certain, nothing is returned. NumPy and PyTorch only say which place of a list of operands is wrong
(the second of the arrays, the axis that is missing, the divisor); the line of source says what stands there.
"""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from keyword import kwlist, softkwlist

from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import setting
from assistant.recover.source.trainer_source import UNPARSED, syntax_tree

LONGEST_QUOTED = 100
"""Characters of an expression that is worth a quotation."""
_OPENING = {")": "(", "]": "[", "}": "{"}
_WORD = re.compile(r"[\w.]")
_MARKS = re.compile(r"\s*[~^]+\s*$")
_NO_LITERAL = re.compile(r"(?<=[\w)\]])\[(?!\s*(?:-?\d+|['\"][^'\"]*['\"])\s*\])")
_NO_NAME = re.compile(r"(?<=[\w)\]])\[(?!\s*['\"][^'\"]*['\"]\s*\])")
_ANY = re.compile(r"(?<=[\w)\]])\[")
"""Brackets that hold no literal, such that hold no text in quotes, and all."""
_NEVER = frozenset({"return", "in", "not", "and", "or", "if", "else", "for", "is", "lambda", "assert", "await", "yield", "from"})


def marked(source: str, marks: str) -> str:
    """Return the part of a line that `^` and `~` below it mark; empty where they mark none or all of it.

    Args:
        source: The line as printed, with its indent.
        marks: The line below it.
    """
    if not _MARKS.match(marks):
        return ""
    start, end = len(marks) - len(marks.lstrip()), len(marks.rstrip())
    part = source[start:end].strip()
    return part if part and part != source.strip() and len(part) <= LONGEST_QUOTED else ""


def names_taken(source: str) -> int:
    """Return how many names a loop takes at each turn, without those in brackets of their own; 0 for no loop."""
    match = re.match(r"\s*(?:async )?for (.{1,120}?) in ", source)
    target = match[1].strip() if match else ""
    if target.startswith("(") and target.endswith(")") and target.count("(") == 1:
        target = target[1:-1]
    while (flat := re.sub(r"\([^()]*\)", "_", target)) != target:
        target = flat
    return len([name for name in target.split(",") if name.strip()])


def receiver(source: str, attribute: str) -> str:
    """Return the expression in front of `.attribute`; empty where the line has none, or several that differ."""
    expressions = {_ending_at(source, match.start()) for match in re.finditer(rf"\.{re.escape(attribute)}\b", source)}
    return expressions.pop() if len(expressions) == 1 else ""


def subscripted(source: str, key: str = "", part: str = "", *, texts: bool = False) -> str:
    """Return the expression in front of `[…]`; empty where it is not certain which one.

    Args:
        source: A line of Python.
        key: What stands in the brackets, where it is known.
        part: What marks below the line mark.
        texts: Whether brackets that hold a text in quotes count, where no key is known.
    """
    if part.endswith("]"):
        return _ending_at(part, _opening(part, len(part) - 1))
    written = [f"[{quote}{key}{quote}]" for quote in ("'", '"')] if key else []
    places = [source.index(text) for text in written if text in source]
    if not places:
        places = [match.start() for match in (_NO_LITERAL if key else _ANY if texts else _NO_NAME).finditer(source)]
    expressions = {_ending_at(source, place) for place in places} - {""}
    return expressions.pop() if len(expressions) == 1 else ""


def called(source: str, function: str) -> str:
    """Return the call of a function with its arguments as far as the line shows them; empty where the line has none."""
    match = re.search(rf"(?<![\w]){re.escape(function)}\(", source)
    if match is None:
        return ""
    begin = match.start()
    if begin and source[begin - 1] == ".":
        begin -= 1 + len(_ending_at(source, begin - 1))
    depth = 0
    for place in range(match.end() - 1, len(source)):
        depth += {"(": 1, ")": -1}.get(source[place], 0)
        if not depth:
            return source[begin : place + 1] if place - begin < LONGEST_QUOTED else ""
    return ""


def assigned(source: str) -> str:
    """Return what the right side of a plain assignment is, or what a loop runs over; empty elsewhere."""
    source = re.sub(r"\s+#[^'\"]*$", "", source)
    loop = re.match(r"\s*for .{1,80}? in (.{1,100}?):\s*$", source)
    if loop:
        return loop[1]
    plain = re.match(r"\s*[\w\[\]().,* '\"]{1,80}?(?<![=!<>])=(?!=)\s*(.{1,200})$", source)
    value = plain[1].strip() if plain else ""
    return value if value.count("(") == value.count(")") and len(value) <= LONGEST_QUOTED else ""


def argument_named(source: str, name: str) -> str:
    """Return what a call in a line of source passes by a name; empty where it passes none, or the line is not whole."""
    for call in _calls(source):
        for keyword in call.keywords:
            if keyword.arg == name:
                return written(keyword.value, source)
    return ""


def arguments_placed(source: str) -> list[str]:
    """Return the first two arguments of the one call of a line of source; empty where there are several calls, or fewer of them."""
    calls = _calls(source)
    if len(calls) != 1 or len(calls[0].args) < 2 or any(isinstance(part, ast.Starred) for part in calls[0].args):
        return []
    return [written(part, source) for part in calls[0].args[:2]]


def left_of_sum(source: str) -> str:
    """Return the name on the left of the only `+` of a line of source; empty where that is none, or there are several."""
    sums = [node for node in nodes_of(source) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add)]
    operand = sums[0].left if len(sums) == 1 else None
    return written(operand, source) if isinstance(operand, (ast.Name, ast.Attribute, ast.Subscript)) else ""


def _calls(source: str) -> list[ast.Call]:
    return [node for node in nodes_of(source) if isinstance(node, ast.Call)]


def nodes_of(source: str) -> list[ast.AST]:
    """Return the nodes of a line of source, also of one that opens a block; none where it is not whole."""
    for body in (source, f"{source}\n    pass"):
        try:
            return list(ast.walk(syntax_tree(body)))
        except UNPARSED:
            continue
    return []


def written(node: ast.expr, source: str) -> str:
    """Return a node as its line of source writes it; empty where that is too long to be quoted."""
    text = ast.get_source_segment(source, node) or ""
    return text if len(text) <= LONGEST_QUOTED else ""


def _ending_at(source: str, end: int) -> str:
    """Return the name, call or element that ends in front of a place."""
    place = end
    while place > 0:
        letter = source[place - 1]
        if letter in _OPENING:
            opening = _opening(source, place - 1)
            if opening < 0:
                return ""
            place = opening
        elif _WORD.match(letter):
            place -= 1
        else:
            break
    text = source[place:end]
    return "" if len(text) > LONGEST_QUOTED or text in _NEVER or not re.match(r"[A-Za-z_(\[]", text) else text


def _opening(source: str, closing: int) -> int:
    """Return where the bracket opens that closes at a place; -1 where the line does not show it."""
    depth = 0
    for place in range(closing, -1, -1):
        depth += (source[place] in ")]}") - (source[place] in "([{")
        if not depth:
            return place
    return -1


ATTRIBUTE = re.compile(r"has no attribute '(\w{1,120})'")
KEY = re.compile(r"^(?:builtins\.)?KeyError: ['\"]?([^'\"]{1,120})")
_SUBSCRIPT = re.compile(
    r"subscriptable|indices must be|out of range|out of bounds|converted to an index|does not support item"
    r"|invalid index|too many indices"
)
UNPACKED = re.compile(r"values to unpack")
_CALLS = re.compile(r"([A-Za-z_][\w.]{0,80})\(")
_USED = re.compile(r"is not (?:iterable|callable|an iterator)")


def subject_named_in(text: str, source: str) -> str:
    """Return the expression on which a line of source itself looks for the attribute or key that the message names."""
    if match := ATTRIBUTE.search(text):
        return receiver(source, match[1])
    match = KEY.search(text)
    if match and match[1].isidentifier() and (settings := receiver(source, match[1])):
        return settings
    return subscripted(source, match[1]) if match and re.search(rf"\[['\"]{re.escape(match[1])}['\"]\]", source) else ""


def subject_of(text: str, source: str, part: str = "") -> str:
    """Return the expression of a line of source that a message complains of; empty where it is not certain.

    Args:
        text: The message.
        source: The line of source that raised it.
        part: What marks below the line mark of it.
    """
    if match := ATTRIBUTE.search(text):
        return receiver(part, match[1]) or receiver(source, match[1])
    if match := KEY.search(text):
        return subscripted(source, match[1], part)
    if _SUBSCRIPT.search(text):
        return subscripted(source, "", part, texts="subscriptable" in text)
    if "is not callable" in text and len(calls := _CALLS.findall(source)) == 1:
        return str(calls[0])
    if "has no len()" in text:
        return _measured(source)
    if UNPACKED.search(text):
        return assigned(source)
    return part if _USED.search(text) and part.isidentifier() else ""


def _measured(source: str) -> str:
    """Return what a line of source takes the length of; empty where it takes none, or several."""
    lengths = re.findall(r"\blen\(((?:[^()]|\([^()]{0,60}\)){1,80})\)", source)
    return lengths[0].strip() if len(lengths) == 1 else ""


_PLACES = re.compile(
    r"array at index (?P<a>\d{1,4})\D.{0,60}?array at index (?P<b>\d{1,4})\b|for tensor number (?P<one>\d{1,4}) in the list"
)
_JOINS = frozenset({"concatenate", "concat", "cat", "stack", "vstack", "hstack", "dstack", "column_stack", "row_stack"})
_AXIS = re.compile(r"\.(?:shape|size\(\))$")
_NAMES = re.compile(r"[A-Za-z_]\w*")
MOST_NAMES = 3
SIGNS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.In: "in"}


_OPERATION = re.compile(
    r"unsupported operand type\(s\) for (?P<sign>\*\*|\*|//|/|-|%)[\w() =]{0,10}: '(?P<left>\w{1,20})' and '(?P<right>\w{1,20})'"
)
_RIGHT = re.compile(r"\s*([A-Za-z_][\w.]{0,60}(?:\[[^\[\]]{0,60}\])?)(?!\w|\()")


def text_operand(text: str, source: str) -> str:
    """Return the side of an operation that is text where a number is wanted, as a line writes it; empty where it is not certain."""
    match = _OPERATION.search(text)
    if match is None or (match["left"] == "str") == (match["right"] == "str"):
        return ""
    places = [sign.start() for sign in re.finditer(rf"(?<![*/]){re.escape(match['sign'])}(?![*/=])", source)]
    if len(places) != 1:
        return ""
    if match["left"] == "str":
        end = len(source[: places[0]].rstrip())
        return _ending_at(source, end)
    right = _RIGHT.match(source, places[0] + len(match["sign"]))
    return right[1] if right is not None else ""


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
        slots |= _assertion_values(code)
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


def _assertion_values(source: str) -> dict[str, str]:
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


_TEXTS = re.compile(r"""[rbfuRBFU]{0,2}("(?:[^"\\]|\\.)*(?:"|$)|'(?:[^'\\]|\\.)*(?:'|$))|#.*""")
_KEYWORDS = frozenset((*kwlist, *softkwlist, "print", "exec"))
_SHELL = re.compile(r"://|\$\(|`|&&|;\s*(?:rm|curl|sudo|sh)\b|\|\s*(?:sudo|ba)?sh\b")
_TWO_WORDS = re.compile(r"(?<![\w.])([A-Za-z_]\w*) +([A-Za-z_]\w*)")


def is_source(text: str) -> bool:
    """Tell whether a line that stands where a traceback shows source may be Python: in prose two words follow one another.

    Whoever prints a traceback chooses what stands there, and it is quoted as the code that failed.
    """
    code = _TEXTS.sub(" 0 ", text)
    words = (match.groups() for match in _TWO_WORDS.finditer(code))
    is_prose = any(not {first, second} & _KEYWORDS for first, second in words)
    return not is_prose and not _SHELL.search(code)
