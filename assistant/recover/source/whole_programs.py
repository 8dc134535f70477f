"""Whether a Python program in one piece may run again from its beginning: it leaves a mark behind its work, and ends where it is.

Proven is that unfinished work leaves no mark, and that a second run of the whole leaves the same behind as a first one. What was
made is then made again; nothing of it is lost but time. Whether the mark is there now is for the caller to look at. Pure.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.recover.job_program import JobProgram
from assistant.recover.shell.folders import UNRESOLVED
from assistant.recover.source.continued_work import outside_path
from assistant.recover.source.file_uses import file_uses
from assistant.recover.source.paths import COUNTED
from assistant.recover.source.piece_programs import EXITS, SPEAKS, Guard, mark_doubt, mark_place, presence_test, repeat_doubt
from assistant.recover.source.plain_effects import effect_doubt
from assistant.recover.source.trainer_source import TrainerSource, dotted, expression, syntax_tree

STAMP_CALLS = frozenset("open write close touch write_text print Path".split())
"""Calls of the statement that makes a mark."""
TELLS_TIME = frozenset("len str time ctime strftime isoformat now today time.time time.ctime time.strftime".split())
"""Calls of which a mark may hold the result."""
QUIET_CALLS = frozenset("format len str repr round time perf_counter monotonic join close".split())


class WholeProgram(NamedTuple):
    """What a program in one piece proves."""

    guard_place: str = ""
    """The line that ends it where its mark is there: `report.py:4`; empty where none does."""
    doubt: str = ""
    """Why a second run is not proven to be harmless; empty where it is."""
    mark: str = ""
    """The file that it looks for, absolute; with a proof alone."""


class _Whole(NamedTuple):
    guard: Guard
    tests: list[ast.Call]
    scope: ast.FunctionDef | None
    last_statements: list[ast.stmt]
    """What is done when its body has ended."""


def whole_program(program: JobProgram, printed: Sequence[str] = ()) -> WholeProgram:
    """Return what a program in one piece proves: the first test that proves all, else the first one with its doubt.

    Args:
        program: All of it is read.
        printed: Files into which its script leads what it prints.
    """
    source = program.source
    if source is None or not source.parsed:
        return WholeProgram()
    first = WholeProgram()
    for whole in _wholes(program, source):
        place = f"{PurePosixPath(source.path).name}:{whole.guard.line}"
        mark = _mark_path(program, source, whole)
        doubt = _doubt(program, source, whole, printed) or ("" if mark else f"{place}: which file it looks for is not known")
        if not doubt:
            return WholeProgram(place, "", mark)
        first = first if first.guard_place else WholeProgram(place, doubt)
    return first


def _wholes(program: JobProgram, source: TrainerSource) -> Iterator[_Whole]:
    """Yield the tests by which a program ends at once: at its own level, or in the one function that this calls."""
    tree = syntax_tree(source.text)
    top = [inner for statement in tree.body for inner in _unwrapped(statement)]
    yield from _guards(tree, top, None, [])
    for function in (statement for statement in top if isinstance(statement, ast.FunctionDef)):
        calls = [
            node
            for part in program.sources
            for node in ast.walk(syntax_tree(part.text))
            if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] == function.name
        ]
        places = [at for at, statement in enumerate(top) if len(calls) == 1 and _only_calls(statement, calls[0])]
        if places and not function.decorator_list:
            yield from _guards(function, function.body, function, top[places[0] + 1 :])


def _unwrapped(statement: ast.stmt) -> list[ast.stmt]:
    """Return what stands in `if __name__ == "__main__":`, and any other statement itself."""
    if isinstance(statement, ast.If) and not statement.orelse and ast.unparse(statement.test) == "__name__ == '__main__'":
        return statement.body
    return [statement]


def _only_calls(statement: ast.stmt, call: ast.Call) -> bool:
    """Tell whether a statement is a call and no more: `main()`, `sys.exit(main())`, `code = main()`."""
    if isinstance(statement, ast.Raise):
        value = statement.exc
    else:
        value = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
    if isinstance(value, ast.Call) and value is not call and dotted(value.func) in (*EXITS, "SystemExit"):
        value = value.args[0] if len(value.args) == 1 else None
    return value is call


def _guards(
    body: ast.Module | ast.FunctionDef,
    statements: Sequence[ast.stmt],
    scope: ast.FunctionDef | None,
    last_statements: list[ast.stmt],
) -> Iterator[_Whole]:
    for place, statement in enumerate(statements):
        if not isinstance(statement, ast.If) or statement.orelse:
            continue
        targets, is_present = presence_test(statement.test)
        tests = [node for node in ast.walk(statement.test) if isinstance(node, ast.Call)]
        if len(targets) != 1:
            continue
        target, later = ast.unparse(targets[0]), [*statements[place + 1 :]]
        if is_present and _ends(statement.body, scope):
            yield _Whole(Guard(target, statement.lineno, later, body), tests, scope, last_statements)
        elif not is_present and not _ends(statement.body, scope):
            yield _Whole(Guard(target, statement.lineno, statement.body, body), tests, scope, [*later, *last_statements])


def _ends(body: Sequence[ast.stmt], scope: ast.FunctionDef | None) -> bool:
    """Tell whether a branch ends the program, or the function that is all of it."""
    last = body[-1]
    if isinstance(last, ast.Raise) or (isinstance(last, ast.Return) and scope is not None):
        return True
    return isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) and dotted(last.value.func) in EXITS


def _mark_path(program: JobProgram, source: TrainerSource, whole: _Whole) -> str:
    """Return the one file that a test looks for; empty where a run alone knows which."""
    statement = next(test for test in whole.tests)
    holder = statement.func.value if isinstance(statement.func, ast.Attribute) and not statement.args else None
    node = statement.args[0] if statement.args else holder
    texts = file_uses(program).reader.texts(source, node, whole.scope)
    text = next(iter(texts)) if len(texts) == 1 else ""
    return outside_path(program, text) if text and UNRESOLVED not in text and COUNTED not in text else ""


def _doubt(program: JobProgram, source: TrainerSource, whole: _Whole, printed: Sequence[str]) -> str:
    name, guard = PurePosixPath(source.path).name, whole.guard
    if len(whole.tests) != 1 or sum(isinstance(node, ast.Call) for node in ast.walk(expression(guard.target))) > 1:
        return f"{name}:{guard.line} looks for more than one file, or makes its name anew"
    if doubt := mark_doubt(source, guard):
        return f"{name}:{doubt}"
    at = mark_place(source, guard)
    if at is None:
        return f"{name}:{guard.line} looks for {guard.target}, and where that is written is not told"
    if work := _work_within(source, guard.work[at]):
        return f"{name}:{work.lineno} works while {guard.target} is made, by which it ends at once"
    for statement in (*guard.work[at + 1 :], *whole.last_statements):
        if not _is_quiet(statement):
            return f"{name}:{statement.lineno} works on behind {guard.target}, by which it ends at once"
    if handler := _passed_over(program):
        return f"{handler} goes on after an error"
    return repeat_doubt(program) or effect_doubt(program, whole.tests, printed)


def _work_within(source: TrainerSource, statement: ast.stmt) -> ast.Call | ast.stmt | None:
    """Return a call that works while the statement that makes a mark does so; None where all that it hands over is there already.

    What a rename, or a function of the program, is given is made before it begins.
    """
    whole = statement.value if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) else None
    name = dotted(whole.func) if whole is not None else ""
    if name.rpartition(".")[2] in ("replace", "rename") or name in source.functions:
        return None
    for node in ast.walk(statement):
        if isinstance(node, ast.For | ast.While | ast.comprehension | ast.If | ast.Try):
            return statement
        if isinstance(node, ast.Call):
            method = node.func.attr if isinstance(node.func, ast.Attribute) else dotted(node.func)
            holds = node.args if method in ("write", "write_text", "print") else []
            is_short = all(isinstance(item, ast.Constant | ast.JoinedStr | ast.Call) for item in holds)
            if method not in STAMP_CALLS | TELLS_TIME or dotted(node.func) in source.functions or not is_short:
                return node
            of_text = [part for item in holds for part in ast.walk(item) if isinstance(part, ast.FormattedValue)]
            if not all(isinstance(part.value, ast.Call) for part in of_text):
                return node  # what is written there may be the result, and half of it be taken for all
    return None


def _is_quiet(statement: ast.stmt) -> bool:
    """Tell whether a statement only speaks, ends, or defines something."""
    if isinstance(statement, ast.FunctionDef):
        at_once = [*statement.decorator_list, *statement.args.defaults, *filter(None, statement.args.kw_defaults)]
        return not any(isinstance(node, ast.Call) for expression in at_once for node in ast.walk(expression))
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            speaks = SPEAKS.search(name) is not None and not name.endswith("write")
            if not (speaks or name in (*EXITS, "SystemExit", "sys.stdout.write") or name.rpartition(".")[2] in QUIET_CALLS):
                return False
        elif isinstance(node, ast.With | ast.Delete | ast.Global | ast.ClassDef | ast.Import | ast.ImportFrom):
            return False
    return True


def _passed_over(program: JobProgram) -> str:
    """Return the line of a handler that neither raises again nor ends the program; empty where there is none but around imports."""
    for source in program.sources:
        for node in ast.walk(syntax_tree(source.text)):
            if not isinstance(node, ast.Try | ast.TryStar):
                continue
            is_import = all(isinstance(part, ast.Import | ast.ImportFrom) for part in node.body)
            for handler in () if is_import else node.handlers:
                last = handler.body[-1]
                ends = isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) and dotted(last.value.func) in EXITS
                if not isinstance(last, ast.Raise) and not ends:
                    return f"{PurePosixPath(source.path).name}:{handler.lineno}"
    return ""
