"""The tests by which a program passes over finished pieces of its work: in a loop, in a function, or of the program as a whole.

A program that makes one piece at each start, as each task of an array does, ends at once where its piece is there. It may be a long
computation, too: what it saves within its rounds would be lost or written over by a start from the beginning.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from assistant.recover.source.load_calls import PRESENT
from assistant.recover.source.trainer_source import dotted

__all__ = ["Guard", "exits", "guards_of", "has_name", "presence_test", "saves_in_rounds"]

EXITS = frozenset(("sys.exit", "os._exit", "exit", "quit"))
SAVES = re.compile(r"(?:^|\.|_)(?:save\w*|dump|dumps?_all|tofile|to_\w+|write_text|write_bytes|imsave|savefig|create_dataset)$")
"""Calls that write a result or a state as a whole."""


class Guard(NamedTuple):
    """A test that passes over what is there, and the work that is done where it is not."""

    target: str
    """What it looks for, as the source writes it."""
    line: int
    work: list[ast.stmt]
    body: ast.For | ast.FunctionDef | ast.Module


def guards_of(tree: ast.AST) -> list[Guard]:
    """Return the tests of a program that pass over pieces: those of loops and functions, and behind them those of the whole."""
    return [*_guards(tree), *_whole_program_guards(tree)]


def saves_in_rounds(tree: ast.AST) -> int:
    """Return the line at which a program opens or saves a file within a loop, itself or by a function of its own; 0 for none."""
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    savers = {name for name, node in functions.items() if any(_saves(call, frozenset()) for call in _calls(node))}
    for _ in functions:
        callers = {name for name, node in functions.items() if any(_saves(call, savers) for call in _calls(node))}
        if callers <= savers:
            break
        savers |= callers
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For | ast.While | ast.AsyncFor)]
    return next((call.lineno for loop in loops for call in _calls(loop) if _saves(call, savers)), 0)


def _calls(node: ast.AST) -> list[ast.Call]:
    return [inner for inner in ast.walk(node) if isinstance(inner, ast.Call)]


def _saves(call: ast.Call, savers: frozenset[str] | set[str]) -> bool:
    name = dotted(call.func)
    last = name.rpartition(".")[2]
    if last in savers or SAVES.search(name):
        return True
    modes = [*call.args, *(item.value for item in call.keywords if item.arg == "mode")]
    texts = [node.value for node in modes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return last == "open" and any(re.fullmatch(r"[rbt]*[wxa+][rwxbt+]*", text) for text in texts)


def _guards(tree: ast.AST) -> Iterator[Guard]:
    for body in ast.walk(tree):
        if not isinstance(body, ast.For | ast.FunctionDef):
            continue
        leaving = ast.Continue if isinstance(body, ast.For) else ast.Return
        own = (
            {node.id for node in ast.walk(body.target) if isinstance(node, ast.Name)}
            if isinstance(body, ast.For)
            else {argument.arg for argument in [*body.args.args, *body.args.kwonlyargs]}
        )
        for place, statement in enumerate(body.body):
            if isinstance(statement, ast.Assign) and has_name(statement.value, own):
                own |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
            if not isinstance(statement, ast.If):
                continue
            targets, present = presence_test(statement.test)
            work = body.body[place + 1 :]
            for target in targets:
                if not has_name(target, own):
                    continue
                if present and not statement.orelse and isinstance(statement.body[-1], leaving) and _works(work):
                    yield Guard(ast.unparse(target), statement.lineno, work, body)
                elif not present and not statement.orelse and _works(statement.body):
                    yield Guard(ast.unparse(target), statement.lineno, [*statement.body, *work], body)


def _whole_program_guards(tree: ast.AST) -> Iterator[Guard]:
    """Yield the tests by which a program that makes one piece at each start ends at once where that is there."""
    bodies = [tree] if isinstance(tree, ast.Module) else []
    for body in bodies:
        for place, statement in enumerate(body.body):
            if not isinstance(statement, ast.If) or statement.orelse or not exits(statement.body[-1]):
                continue
            targets, present = presence_test(statement.test)
            work = list(_in_order(body.body[place + 1 :]))
            if present and _works(work):
                yield from (Guard(ast.unparse(target), statement.lineno, work, body) for target in targets)


def _in_order(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements as they run where nothing fails: those within a `try` that handles no error stand for it."""
    for statement in statements:
        if isinstance(statement, ast.Try) and not statement.handlers:
            yield from _in_order([*statement.body, *statement.orelse, *statement.finalbody])
        else:
            yield statement


def _works(body: Sequence[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Call) for statement in body for node in ast.walk(statement))


def has_name(node: ast.AST, names: set[str]) -> bool:
    """Tell whether an expression holds one of some names."""
    return any(isinstance(inner, ast.Name) and inner.id in names for inner in ast.walk(node))


def presence_test(test: ast.expr) -> tuple[list[ast.expr], bool]:
    """Return the paths that a test looks for, and whether it holds where all are there; no paths of any other test."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        targets, present = presence_test(test.operand)
        return targets, not present
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        parts = [presence_test(value) for value in test.values]
        return [target for targets, present in parts if present for target in targets], True
    if not isinstance(test, ast.Call) or not PRESENT.search(dotted(test.func)):
        return [], True
    if test.args:
        return [test.args[0]], True
    return ([test.func.value], True) if isinstance(test.func, ast.Attribute) else ([], True)


def exits(statement: ast.stmt) -> bool:
    """Tell whether a statement ends the program."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and dotted(statement.value.func) in EXITS
