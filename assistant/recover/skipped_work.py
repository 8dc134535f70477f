"""Whether a program passes over the pieces of work that are there already, so that a rerun loses nothing of them. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from assistant.recover.job_program import JobProgram
from assistant.recover.listings import LISTS
from assistant.recover.load_calls import PRESENT
from assistant.recover.trainer_source import TrainerSource, dotted, syntax_tree

__all__ = ["marks_what_is_there", "skips_what_is_there"]

WRITES = re.compile(
    r"write\w*|save\w*|dump\w*|rename|replace|move|copy\w*|to_(?:csv|json|parquet)|savez\w*|tofile|symlink|run|check_call|call|Popen|main"
)
"""Calls that leave a piece of work behind."""
LISTINGS = LISTS | frozenset(("walk",))


def skips_what_is_there(programs: Sequence[JobProgram]) -> str:
    """Return the line by which a program passes over pieces that are there: `make_shards.py:16`; empty where none does."""
    for program in programs:
        for source in program.sources:
            line = next(_skips(source), None) if source.parsed else None
            if line is not None:
                return f"{PurePosixPath(source.path).name}:{line}"
    return ""


def _skips(source: TrainerSource) -> Iterator[int]:
    tree = syntax_tree(source.text)
    listed = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and any(_method(inner) in LISTINGS for inner in ast.walk(node.value))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for loop in (node for node in ast.walk(tree) if isinstance(node, ast.For)):
        own = {inner.id for inner in ast.walk(loop.target) if isinstance(inner, ast.Name)}
        for place, statement in enumerate(loop.body):
            own |= _made_of(statement, own)
            if not isinstance(statement, ast.If) or not _is_of(statement.test, own):
                continue
            present = _is_present(statement.test, listed)
            leaves = bool(statement.body) and isinstance(statement.body[-1], ast.Continue)
            passed = present is True and leaves and _writes(loop.body[place + 1 :])
            only_missing = present is False and not statement.orelse and _writes(statement.body)
            if passed or only_missing:
                yield statement.lineno


def marks_what_is_there(programs: Sequence[JobProgram]) -> str:
    """Return the line by which a program marks pieces that are there and starts only the others: `flow.py:61`; empty for none.

    `if exists(t["out"]): t["state"] = "done"`, and a start below `if t["state"] == "wait"`.
    """
    for program in programs:
        for source in program.sources:
            line = next(_marks(source), None) if source.parsed else None
            if line is not None:
                return f"{PurePosixPath(source.path).name}:{line}"
    return ""


def _marks(source: TrainerSource) -> Iterator[int]:
    tree = syntax_tree(source.text)
    guards = [node for node in ast.walk(tree) if isinstance(node, ast.If) and _writes(node.body)]
    awaited = {key for guard in guards for key in _compared_keys(guard.test)}
    for loop in (node for node in ast.walk(tree) if isinstance(node, ast.For)):
        own = {inner.id for inner in ast.walk(loop.target) if isinstance(inner, ast.Name)}
        for statement in loop.body:
            if (
                not isinstance(statement, ast.If)
                or not _is_of(statement.test, own)
                or _is_present(statement.test, set()) is not True
            ):
                continue
            marks = {(key, value) for inner in statement.body for key, value in _set_keys(inner, own)}
            if any(key == awaited_key and value != awaited_value for key, value in marks for awaited_key, awaited_value in awaited):
                yield statement.lineno


def _set_keys(statement: ast.stmt, names: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the keys or attributes of some names that a statement sets to a constant, with that."""
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
        for target in statement.targets:
            if _is_of(target, names) and (key := _key_of(target)):
                yield key, repr(statement.value.value)


def _compared_keys(test: ast.expr) -> Iterator[tuple[str, str]]:
    """Yield the keys or attributes that a test holds against a constant for equality, where all of the test has to hold."""
    for part in test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]:
        if not isinstance(part, ast.Compare) or len(part.ops) != 1 or not isinstance(part.ops[0], ast.Eq):
            continue
        value = part.comparators[0]
        if isinstance(value, ast.Constant) and (key := _key_of(part.left)):
            yield key, repr(value.value)


def _key_of(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return str(node.slice.value)
    return node.attr if isinstance(node, ast.Attribute) else ""


def _made_of(statement: ast.stmt, names: set[str]) -> set[str]:
    """Return the names that a statement makes of others."""
    if not isinstance(statement, ast.Assign) or not _is_of(statement.value, names):
        return set()
    return {target.id for target in statement.targets if isinstance(target, ast.Name)}


def _is_of(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(inner, ast.Name) and inner.id in names for inner in ast.walk(node))


def _is_present(test: ast.expr, listed: set[str]) -> bool | None:
    """Tell whether a test holds where a piece is there, or where it is not; None of any other test."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _is_present(test.operand, listed)
        return None if inner is None else not inner
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.In | ast.NotIn):
        of_listing = isinstance(test.comparators[0], ast.Name) and test.comparators[0].id in listed
        return isinstance(test.ops[0], ast.In) if of_listing else None
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return next((answer for value in test.values if (answer := _is_present(value, listed)) is not None), None)
    return True if isinstance(test, ast.Call) and PRESENT.search(dotted(test.func)) else None


def _method(node: ast.AST) -> str:
    return dotted(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""


def _writes(body: Sequence[ast.stmt]) -> bool:
    for node in (inner for statement in body for inner in ast.walk(statement)):
        name = _method(node)
        if WRITES.fullmatch(name):
            return True
        modes = (
            [*node.args[1:2], *(item.value for item in node.keywords if item.arg == "mode")] if isinstance(node, ast.Call) else []
        )
        if name == "open" and any(isinstance(mode, ast.Constant) and str(mode.value)[:1] in "wx" for mode in modes):
            return True
    return False
