"""Say what a check of the job's own code wants, by the form of its condition: a list that is empty, a path, two values, a choice.

`assert` prints at most its message. The condition stands in the line of source, and where the message is made of its parts it has
their values.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from assistant.diagnose.advice.decisive import filled_fields
from assistant.diagnose.advice.demands import demand_of
from assistant.diagnose.answer import cut
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import named_setting
from assistant.diagnose.readers.origin import message_of, origin_of
from assistant.records import Citation
from assistant.recover.source.trainer_source import UNPARSED, syntax_tree

SHOWN_OF_VALUE, MOST_CHOICES, MOST_OF_SOURCE = 160, 8, 400
"""Characters of a value that are shown, choices of a list, and characters of a line of source that are read."""
ANY_CHECK = "The check `"
"""With which the entry begins that fits any check."""
_PATH = re.compile(r"(?:^|[\s'\"(=:])((?:\.{0,2}/|~/)?[\w.@+~-]{1,80}(?:/[\w.@+=~-]{1,80})+/?)(?=$|[\s'\"),;:.])")
_EXISTS = {
    "exists": "nothing",
    "isfile": "no file",
    "is_file": "no file",
    "isdir": "no folder",
    "is_dir": "no folder",
    "lexists": "nothing",
}
_COUNT = ast.Gt | ast.NotEq | ast.GtE


class _Check(NamedTuple):
    condition: ast.expr
    message: ast.expr | None


def asserted(cited: Citation, facts: Facts) -> str:
    """Return what a check of the job's own code wants changed; empty where its condition has no form that tells it."""
    origin = origin_of(cited, facts)
    if origin is None or not origin.own or not origin.code.startswith("assert "):
        return ""
    check = _parsed(origin.code[:MOST_OF_SOURCE])
    if check is None:
        return ""
    place = f"{origin.file}:{origin.line}" + (f" in {origin.function}()" if origin.function.isidentifier() else "")
    message = " ".join(message_of(cited, facts)[:2]).partition("AssertionError")[2].lstrip(": ").strip()
    for form in (_empty, _absent, _gpu, _choice, _compared):
        if words := form(check, message, place, cited, facts):
            return words
    return ""


def _parsed(code: str) -> _Check | None:
    """Return condition and message of an `assert`; of one that goes on in the next line what stands in this one."""
    for text in (code, code.rstrip(", \\("), f"{code.rstrip(', ')})", code.rpartition(",")[0]):
        try:
            statement = syntax_tree(text).body
        except UNPARSED:
            continue
        if statement and isinstance(statement[0], ast.Assert):
            return _Check(statement[0].test, statement[0].msg)
    return None


def _empty(check: _Check, message: str, place: str, _cited: Citation, _facts: Facts) -> str:
    """Return what to look for where the length of something has to be more than nothing."""
    node: ast.expr = check.condition
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], _COUNT):
        bound = node.comparators[0]
        least = 1 if isinstance(node.ops[0], ast.GtE) else 0
        node = node.left if isinstance(bound, ast.Constant) and bound.value == least else node
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len" and len(node.args) == 1):
        return ""
    path = _PATH.search(message)
    search_place = (
        f"list {path[1]} (ls): it holds none of what is looked for there"
        if path
        else "list the folder or print the source that fills it"
    )
    quoted = f" ({cut(message, SHOWN_OF_VALUE)})" if message else ""
    return (
        f"`{ast.unparse(node.args[0])}` is empty at {place}{quoted}: {search_place}, or the pattern, filter or split by "
        "which it is chosen fits nothing. Correct the path or the pattern, or let the step run first that makes it."
    )


def _absent(check: _Check, message: str, place: str, cited: Citation, facts: Facts) -> str:
    """Return which path has to be there."""
    call = check.condition
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _EXISTS):
        return ""
    argument = call.args[0] if call.args else call.func.value
    name = ast.unparse(argument)
    path = _PATH.search(message)
    path_there = path[1] if path else ""
    setting = (
        named_setting(facts, name.rpartition(".")[2], cited.line) if not path_there and re.fullmatch(r"[\w.]{2,80}", name) else None
    )
    name_there = f"{path_there} ({name})" if path_there else f"`{name}`"
    by = f", which is {setting.value} (job.log:{setting.line})" if setting is not None else ""
    return (
        f"There is {_EXISTS[call.func.attr]} at {name_there}{by}, as {place} checks: correct the option or variable that gives it, "
        f"put there what "
        "is missing, or let the step run first that makes it. A relative path is seen from the folder in which the program "
        "was started."
    )


def _gpu(check: _Check, _message: str, place: str, _cited: Citation, _facts: Facts) -> str:
    """Return what to look at where the program wants a GPU and PyTorch sees none."""
    if ast.unparse(check.condition) not in ("torch.cuda.is_available()", "cuda.is_available()"):
        return ""
    return (
        f"PyTorch sees no GPU, and {place} wants one: ask for one (--gres=gpu:1), and look in the job at nvidia-smi, at "
        "CUDA_VISIBLE_DEVICES, and at python -c 'import torch; print(torch.version.cuda)', which says None of a build for the "
        "CPU, and has "
        "to be no newer than what the driver takes."
    )


def _choice(check: _Check, message: str, place: str, _cited: Citation, _facts: Facts) -> str:
    """Return which values a choice allows, and the one that was given."""
    test = check.condition
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.In)):
        return ""
    if not isinstance(test.comparators[0], ast.Tuple | ast.List | ast.Set):
        return ""
    choices = [ast.unparse(item) for item in test.comparators[0].elts][:MOST_CHOICES]
    value = _value_of(test.left, check, message)
    is_now = f"; it is {cut(value, SHOWN_OF_VALUE)}" if value else ""
    return f"Set {ast.unparse(test.left)} to one of {', '.join(choices)}{is_now}: {place} takes no other."


def _compared(check: _Check, message: str, place: str, cited: Citation, facts: Facts) -> str:
    """Return the two sides of a comparison with their values; empty where the message has neither."""
    test = check.condition
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1) or demand_of(cited, facts):
        return ""  # the message itself says which number is beyond which
    left_side, right_side = test.left, test.comparators[0]
    multiple = (
        isinstance(left_side, ast.BinOp)
        and isinstance(left_side.op, ast.Mod)
        and isinstance(right_side, ast.Constant)
        and right_side.value == 0
    )
    sides = [left_side.left, left_side.right] if multiple and isinstance(left_side, ast.BinOp) else [left_side, right_side]
    values = [(ast.unparse(side), _value_of(side, check, message)) for side in sides]
    shown_values = [f"{name} is {cut(value, SHOWN_OF_VALUE)}" for name, value in values if value]
    if not shown_values:
        return ""
    if multiple and isinstance(test.ops[0], ast.Eq):
        want = f"{values[0][0]} has to be a multiple of {values[1][0]}"
    else:
        want = f"`{ast.unparse(test)}` has to hold"
    return (
        f"{want}, and {' and '.join(shown_values)} ({place}): change the one that is not as it was meant, where it is set or made."
    )


def _value_of(side: ast.expr, check: _Check, message: str) -> str:
    """Return the value that the message shows of an expression; empty where it shows none."""
    if check.message is None or not message:
        return ""
    if ast.unparse(check.message) == ast.unparse(side):
        return message
    if not isinstance(check.message, ast.JoinedStr):
        return ""
    fields = {_plain(field.expression): field.value for field in filled_fields(f"({ast.unparse(check.message)})", message)}
    return fields.get(_plain(ast.unparse(side)), "")


def _plain(expression: str) -> str:
    return re.sub(r"[\s'\"]|[:!][^\[\](){}]{1,12}$", "", expression)
