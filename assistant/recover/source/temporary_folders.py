"""Folders that a program removes by itself when it ends by a return or an exception: what it keeps lies elsewhere. Pure.

A kill runs no `finally`: what is still there then was left over, and whoever looks for saves looks there as well.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from assistant.recover.job_program import JobProgram
from assistant.recover.source.file_uses import file_uses
from assistant.recover.source.trainer_source import dotted, syntax_tree

REMOVERS = frozenset(("shutil.rmtree", "rmtree"))


def temporary_folders(program: JobProgram) -> frozenset[str]:
    """Return the folders that a program removes in a `finally` or by `atexit`, as it names them.

    One that is removed elsewhere, such as before the work begins, is none of them.
    """
    uses = file_uses(program)
    removals = {id(node) for source in program.sources if source.parsed for node in _last_removals(syntax_tree(source.text))}
    folders: set[str] = set()
    for caller in uses.calls:
        if id(caller.node) in removals:
            place = 1 if dotted(caller.node.func) == "atexit.register" else 0
            node = caller.node.args[place] if len(caller.node.args) > place else None
            folders |= uses.reader.texts(caller.source, node, caller.scope)
    return frozenset(folders)


def _last_removals(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            # under a test it may be kept
            calls = (statement.value for statement in node.finalbody if isinstance(statement, ast.Expr))
            yield from (call for call in calls if isinstance(call, ast.Call) and dotted(call.func) in REMOVERS)
        elif isinstance(node, ast.Call) and dotted(node.func) == "atexit.register":
            yield from [node] if node.args and dotted(node.args[0]) in REMOVERS else []
