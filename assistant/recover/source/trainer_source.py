"""Facts out of the source of a training program: what it calls, with which values. It is parsed, never imported or run."""

from __future__ import annotations

import ast
import re
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import eq, ge, gt, le, lt, ne
from pathlib import PurePosixPath
from typing import Any

from assistant.recover.shell.folders import UNRESOLVED
from assistant.recover.source.declared_settings import UNKNOWN, DeclaredOption, looped_names, note_declared, read_arguments

MOST_SOURCE_BYTES = 2 << 20
MOST_NODES = 400_000
MOST_DEPTH = 12
"""Expressions inside one another that are followed to their value."""
_PATH_CALLS = frozenset("os.path.join path.join osp.join Path pathlib.Path str os.path.abspath os.path.expanduser".split())


@dataclass(frozen=True, slots=True)
class SourceCall:
    """One call in a program."""

    name: str
    """Dotted, as written: `trainer.train`, `dcp.save`."""
    line: int
    positional: tuple[ast.expr, ...]
    keywords: Mapping[str, ast.expr]
    conditions: tuple[ast.expr, ...] = ()
    """Tests of the `if`s around it that cannot be answered from the text."""

    @property
    def method(self) -> str:
        """The last part of the name."""
        return self.name.rpartition(".")[2]


@dataclass(slots=True)
class TrainerSource:
    """A program that was parsed, and the arguments and variables that it is started with."""

    path: str
    text: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    is_main: bool = False
    """Whether it is the program that is started, and no module of it."""
    calls: list[SourceCall] = field(default_factory=list)
    """Those that a run comes to with these arguments, as far as the text tells."""
    unreached: list[SourceCall] = field(default_factory=list)
    """Those that it does not come to: under an option that is not given, in a function that nothing refers to."""
    names: dict[str, list[ast.expr]] = field(default_factory=dict)
    """The expressions that each plain name is given somewhere."""
    functions: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = field(default_factory=dict)
    """Its functions and methods by their plain names."""
    rebound: set[str] = field(default_factory=set)
    """Plain names that a loop, a `with`, `+=` or `del` gives values that `names` does not hold."""
    modules: list[str] = field(default_factory=list)
    """Modules that it imports, dotted."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of argparse: by destination, as given on the command line, else the default."""
    numbers: dict[str, str] = field(default_factory=dict)
    """Options of argparse that take one whole number, by destination, with their names on the command line."""
    open_names: set[str] = field(default_factory=set)
    """Names whose value is being worked out: one that is made from itself is not known."""
    parsed: bool = False
    """False where the text is no Python."""

    def value(self, node: ast.expr | None, depth: int = 0) -> Any:
        """Return the value of an expression as far as constants, assignments, arguments and variables tell it, else UNKNOWN.

        A text of which only a part is known holds `batch_script.UNRESOLVED` in the place of the rest.
        """
        if node is None or depth > MOST_DEPTH:
            return UNKNOWN
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.named(node.id, depth)
        if isinstance(node, ast.Attribute):
            return self.options.get(node.attr, UNKNOWN)
        if isinstance(node, ast.JoinedStr):
            parts = [self._formatted(value, depth) for value in node.values]
            return "".join(UNRESOLVED if part is UNKNOWN else str(part) for part in parts)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Div):
            first_operand, right = self.value(node.left, depth + 1), self.value(node.right, depth + 1)
            if not isinstance(first_operand, str):
                return UNKNOWN
            right = right if isinstance(right, str) else UNRESOLVED
            return first_operand + right if isinstance(node.op, ast.Add) else str(PurePosixPath(first_operand) / right)
        if isinstance(node, ast.Subscript):
            return self._subscript(node, depth)
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            return next(
                (value_there for value in node.values if (value_there := self.value(value, depth + 1)) not in (None, "", False)),
                None,
            )
        return self._call_value(node, depth) if isinstance(node, ast.Call) else UNKNOWN

    def _formatted(self, node: ast.expr, depth: int) -> Any:
        """Return the value of a part of an f-string; of a number that is padded, as it is written."""
        if not isinstance(node, ast.FormattedValue):
            return self.value(node, depth + 1)
        value = self.value(node.value, depth + 1)
        form = self.value(node.format_spec, depth + 1) if node.format_spec is not None else ""
        if form == "" or value is UNKNOWN:
            return value
        width = re.fullmatch(r"(0?)(\d{1,2})d?", form) if isinstance(form, str) else None
        is_number = isinstance(value, int) or (isinstance(value, str) and value.isdecimal())
        return str(value).rjust(int(width[2]), width[1] or " ") if width is not None and is_number else UNKNOWN

    def named(self, name: str, depth: int = 0) -> Any:
        """Return the value of a plain name; UNKNOWN where it is given several that differ."""
        nodes_bound = self.names.get(name)
        if not nodes_bound:
            return self.options.get(name, UNKNOWN)
        if name in self.open_names:
            return UNKNOWN
        self.open_names.add(name)
        try:
            values = [self.value(node_bound, depth + 1) for node_bound in nodes_bound[:8]]
        finally:
            self.open_names.discard(name)
        return values[0] if all(type(value) is type(values[0]) and value == values[0] for value in values) else UNKNOWN

    def _subscript(self, node: ast.Subscript, depth: int) -> Any:
        of, key = dotted(node.value), self.value(node.slice, depth + 1)
        if of == "sys.argv" and isinstance(key, int) and not isinstance(key, bool):
            return self.arguments[key - 1] if 0 < key <= len(self.arguments) else UNKNOWN
        if of.endswith("environ") and isinstance(key, str):
            return self.environment.get(key, UNKNOWN)
        return self.options.get(key, UNKNOWN) if isinstance(key, str) else UNKNOWN

    def _call_value(self, node: ast.Call, depth: int) -> Any:
        name = dotted(node.func)
        values = [self.value(arg, depth + 1) for arg in node.args]
        if name in _PATH_CALLS:
            path_known = bool(values) and isinstance(values[0], str)
            return (
                str(PurePosixPath(*(value if isinstance(value, str) else UNRESOLVED for value in values)))
                if path_known
                else UNKNOWN
            )
        if name in ("os.environ.get", "os.getenv", "environ.get") and values and isinstance(values[0], str):
            return self.environment.get(values[0], values[1] if len(values) > 1 else None)
        if name in ("int", "float", "bool") and len(values) == 1:
            return values[0]
        return UNKNOWN

    def text_of(self, node: ast.expr) -> str:
        """Return how an expression is written, with the names in it that were assigned elsewhere also as written there."""
        written = [ast.unparse(node)]
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id in self.names:
                written += [ast.unparse(name)[:2000] for name in self.names[inner.id][:8]]
        return " ".join(written)

    def called(self, *methods: str) -> Iterator[SourceCall]:
        """Yield the calls whose last part is one of these, in the order of the text."""
        return (call for call in self.calls if call.method in methods)


UNPARSED = (SyntaxError, ValueError, RecursionError, MemoryError, SystemError)
"""What `syntax_tree` raises of a text that is no program that can be read."""
_PARSING = threading.Lock()
MOST_KEPT_BYTES = 200_000
MOST_TREES_KEPT = 32
"""Trees that are kept, of files of at most that size: a program is asked many things."""


def syntax_tree(text: str) -> ast.Module:
    """Return the syntax tree of a program; one thread at a time, and nothing is printed about the text.

    CPython counts the depth of a tree in one place for all threads: two that parse at once get a SystemError
    (https://github.com/python/cpython/issues/106905), and `warnings` are of the whole process, too.

    Raises:
        One of UNPARSED: It is no program, or too deep.
    """
    return _parsed(text) if len(text) <= MOST_KEPT_BYTES else _parsed.__wrapped__(text)


def expression(text: str) -> ast.expr:
    """Return an expression that was written out by `ast.unparse`."""
    (statement,) = syntax_tree(text).body
    if not isinstance(statement, ast.Expr):
        raise ValueError(f"{text!r} is no expression")
    return statement.value


@lru_cache(maxsize=MOST_TREES_KEPT)
def _parsed(text: str) -> ast.Module:
    with _PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def parse_source(
    text: str, *, path: str, arguments: Sequence[str] = (), environment: Mapping[str, str] | None = None, is_main: bool = False
) -> TrainerSource:
    """Return the facts of a program's text; `parsed` is false and all is empty where it is no Python or too large.

    Args:
        text: Of one file.
        path: Where it lies.
        arguments: Words behind its name.
        environment: Variables that it is started with.
        is_main: Whether it is started itself, so that `__name__` is `__main__`; of a module that is imported this is not told.
    """
    source = TrainerSource(path, text[:MOST_SOURCE_BYTES], tuple(arguments), environment or {}, is_main=is_main)
    if len(text) > MOST_SOURCE_BYTES:
        return source
    try:
        tree = syntax_tree(text)
    except UNPARSED:
        return source
    source.parsed = True
    try:
        _collect(source, tree)
    except RecursionError:
        source.parsed = False
    return source


def _named_values(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that an assignment gives with their values, also of `out, base = sys.argv[1:3]`."""
    if isinstance(target, ast.Name):
        yield target.id, value
        return
    names = target.elts if isinstance(target, ast.Tuple | ast.List) else []
    values: list[ast.expr] = []
    if isinstance(value, ast.Tuple | ast.List):
        values = value.elts
    elif isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Slice) and value.slice.step is None:
        lower = value.slice.lower.value if isinstance(value.slice.lower, ast.Constant) else None
        if isinstance(lower, int) and lower >= 0:
            values = [ast.Subscript(value.value, ast.Constant(lower + place), ast.Load()) for place in range(len(names))]
    if len(values) == len(names):
        for name, value_bound in zip(names, values, strict=True):
            if isinstance(name, ast.Name):
                yield name.id, value_bound


def _bound_by(node: ast.For | ast.AsyncFor | ast.AugAssign | ast.withitem | ast.Delete) -> set[str]:
    """Return the names that a loop, a `with`, `+=` or `del` changes, also where it changes an element of them."""
    if isinstance(node, ast.Delete):
        targets = node.targets
    elif isinstance(node, ast.withitem):
        targets = [node.optional_vars] if node.optional_vars is not None else []
    else:
        targets = [node.target]
    return {inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)}


def _collect(source: TrainerSource, tree: ast.Module) -> None:
    positional: list[str] = []
    flags: dict[str, DeclaredOption] = {}
    looped: dict[int, tuple[str, tuple[str, ...]]] = {}
    for count, node in enumerate(ast.walk(tree)):
        if count > MOST_NODES:
            return
        if isinstance(node, ast.Import):
            source.modules += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            source.modules += [base, *(f"{base}.{name.name}" for name in node.names)]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            source.functions.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.AugAssign | ast.withitem | ast.Delete):
            source.rebound |= _bound_by(node)
            looped |= {id(call): (name, words) for call, name, words in (looped_names(node) if isinstance(node, ast.For) else ())}
        elif isinstance(node, ast.NamedExpr):
            source.names.setdefault(node.target.id, []).append(node.value)
        elif isinstance(node, ast.Assign):
            for name, value in (pair for target in node.targets for pair in _named_values(target, node.value)):
                source.names.setdefault(name, []).append(value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            source.names.setdefault(node.target.id, []).append(node.value)
        elif isinstance(node, ast.Call):
            keywords = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
            call = SourceCall(dotted(node.func), node.lineno, tuple(node.args), keywords)
            source.calls.append(call)
            if call.method == "add_argument":
                name, words = looped.get(id(node), ("", ("",)))
                for word in words:
                    note_declared(source, _with_name(source, call, name, word) if name else call, positional, flags)
    read_arguments(source, positional, flags)
    reached = _Reached(source, tree).conditions
    source.unreached = [call for call in source.calls if (call.line, call.name) not in reached]
    calls = (call for call in source.calls if (call.line, call.name) in reached)
    source.calls = sorted((replace(call, conditions=reached[call.line, call.name]) for call in calls), key=lambda call: call.line)


def _with_name(source: TrainerSource, call: SourceCall, name: str, word: str) -> SourceCall:
    """Return a call of argparse as a round of a loop makes it: `add_argument("--" + name)`."""
    names = [node for argument in call.positional for node in ast.walk(argument) if isinstance(node, ast.Name) and node.id == name]
    if not names:
        return call
    former = source.names.get(name)
    source.names[name] = [ast.Constant(word)]
    values = [source.value(argument) for argument in call.positional]
    if former is None:
        del source.names[name]
    else:
        source.names[name] = former
    return replace(call, positional=tuple(ast.Constant(value) for value in values if isinstance(value, str)))


class _Reached:
    """The calls that a run comes to, as far as the text and the options tell: nothing under `if args.resume:` without `--resume`.

    A function that is referred to from nowhere else is not run either; one that no line of the file refers to may be called by
    others.
    """

    def __init__(self, source: TrainerSource, tree: ast.Module) -> None:
        self._source = source
        self.conditions: dict[tuple[int, str], tuple[ast.expr, ...]] = {}
        self._functions: dict[str, list[tuple[Sequence[ast.stmt], tuple[ast.expr, ...]]]] = {}
        self._names: dict[str, list[tuple[ast.expr, ...]]] = {}
        """What is referred to, and under which conditions each time."""
        written = {
            node.id if isinstance(node, ast.Name) else node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Name | ast.Attribute)
        }
        self._block(tree.body, ())
        # a method is known by its name alone, and so is a function that is handed on
        while due := [name for name in self._functions if name in self._names or name not in written]:
            for name in due:
                around = min(self._names.get(name, [()]), key=len)
                for body, conditions in self._functions.pop(name):
                    self._block(body, (*conditions, *around))

    def _block(self, body: Sequence[ast.stmt], conditions: tuple[ast.expr, ...]) -> None:
        for statement in body:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                self._functions.setdefault(statement.name, []).append((statement.body, conditions))
                for node in (*statement.decorator_list, statement.args):
                    self._expression(node, conditions)
                if statement.decorator_list:
                    self._names.setdefault(statement.name, []).append(conditions)
            elif isinstance(statement, ast.If):
                self._expression(statement.test, conditions)
                answer = truth(self._source, statement.test)
                inner = (*conditions, statement.test) if answer is None else conditions
                if answer is not False:
                    self._block(statement.body, inner)
                    if answer and _leaves(statement.body):
                        return
                if answer is not True:
                    self._block(statement.orelse, inner)
            else:
                for field_name, value in ast.iter_fields(statement):
                    if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                        self._block(value, conditions)
                    elif field_name == "handlers":
                        for handler in value:
                            self._block(handler.body, conditions)
                    elif field_name == "cases":
                        for case in value:
                            self._block(case.body, (*conditions, statement.subject))  # type: ignore[attr-defined]
                    else:
                        for node in value if isinstance(value, list) else [value]:
                            if isinstance(node, ast.AST):
                                self._expression(node, conditions)

    def _expression(self, node: ast.AST, conditions: tuple[ast.expr, ...]) -> None:
        waiting: list[tuple[ast.AST, tuple[ast.expr, ...]]] = [(node, conditions)]
        while waiting:
            inner, around = waiting.pop()
            if isinstance(inner, ast.IfExp):
                answer = truth(self._source, inner.test)
                under = (*around, inner.test) if answer is None else around
                waiting.append((inner.test, around))
                waiting += [(inner.body, under)] * (answer is not False) + [(inner.orelse, under)] * (answer is not True)
                continue
            if isinstance(inner, ast.BoolOp) and truth(self._source, inner.values[0]) is isinstance(inner.op, ast.Or):
                inner = inner.values[0]  # the rest of `a and b` or `a or b` is not looked at
            if isinstance(inner, ast.Name):
                self._names.setdefault(inner.id, []).append(around)
            elif isinstance(inner, ast.Attribute):
                self._names.setdefault(inner.attr, []).append(around)
            elif isinstance(inner, ast.Call):
                self.conditions.setdefault((inner.lineno, dotted(inner.func)), around)
            waiting += [(child, around) for child in ast.iter_child_nodes(inner)]


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Tell whether what follows a block is not run: it returns, raises or goes to the next round."""
    last = body[-1] if body else None
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return dotted(last.value.func) in ("sys.exit", "exit", "quit")
    return isinstance(last, ast.Return | ast.Raise | ast.Continue | ast.Break)


OF_MAIN = frozenset(ast.dump(expression(text)) for text in ("__name__ == '__main__'", "'__main__' == __name__"))
"""How a file asks whether it is the program that was started."""


def truth(source: TrainerSource, test: ast.expr, depth: int = 0) -> bool | None:
    """Return whether a test holds in this run; None where the text does not tell."""
    if depth > MOST_DEPTH:
        return None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        answer = truth(source, test.operand, depth + 1)
        return None if answer is None else not answer
    if isinstance(test, ast.BoolOp):
        answers = [truth(source, value, depth + 1) for value in test.values]
        decides = isinstance(test.op, ast.Or)
        if decides in answers:
            return decides
        return None if None in answers else not decides
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        if source.is_main and ast.dump(test) in OF_MAIN:
            return True
        if isinstance(test.ops[0], ast.In | ast.NotIn):
            return _listed(source, test.left, test.ops[0], test.comparators[0])
        if source.is_main and ast.unparse(test.left) == "len(sys.argv)":
            return _counted_words(source, test.ops[0], source.value(test.comparators[0]))
        return _compared(source.value(test.left), test.ops[0], source.value(test.comparators[0]))
    if isinstance(test, ast.Call) and dotted(test.func) == "getattr" and len(test.args) >= 2:
        name = source.value(test.args[1])
        value = source.options.get(name, UNKNOWN) if isinstance(name, str) else UNKNOWN
    else:
        value = source.value(test)
    return None if value is UNKNOWN or (isinstance(value, str) and UNRESOLVED in value) else bool(value)


def _counted_words(source: TrainerSource, sign: ast.cmpop, count: Any) -> bool | None:
    """Return how `len(sys.argv)` compares with a number; None where a word of the command line is not known."""
    if type(sign) not in _ORDERS or not isinstance(count, int) or any(UNRESOLVED in word for word in source.arguments):
        return None
    return bool(_ORDERS[type(sign)](len(source.arguments) + 1, count))


_ORDERS = {ast.Gt: gt, ast.GtE: ge, ast.Lt: lt, ast.LtE: le, ast.Eq: eq, ast.NotEq: ne}


def _compared(first_operand: Any, sign: ast.cmpop, right: Any) -> bool | None:
    if any(operand is UNKNOWN or (isinstance(operand, str) and UNRESOLVED in operand) for operand in (first_operand, right)):
        return None
    if isinstance(sign, ast.Is | ast.Eq):
        return bool(first_operand == right)
    if isinstance(sign, ast.IsNot | ast.NotEq):
        return bool(first_operand != right)
    return None


def _listed(source: TrainerSource, operand: ast.expr, sign: ast.cmpop, right: ast.expr) -> bool | None:
    """Return whether a value is one of those that a test lists, as `resume in ("True", "latest")`; None where one is not known."""
    value = _value_before(source, operand)
    items = [source.value(item) for item in right.elts] if isinstance(right, ast.Tuple | ast.List | ast.Set) else None
    if source.is_main and ast.unparse(right) in ("sys.argv", "sys.argv[1:]"):
        items = list(source.arguments)
    if items is None or value is UNKNOWN:
        return None
    answers = [_compared(value, ast.Eq(), item) for item in items]
    if True not in answers and None in answers:
        return None
    return (True in answers) is isinstance(sign, ast.In)


def _value_before(source: TrainerSource, node: ast.expr) -> Any:
    """Return the value that a name of a function was given before a test of it that no loop repeats, else the value of all."""
    if not isinstance(node, ast.Name):
        return source.value(node)
    functions = [function for same_name in source.functions.values() for function in same_name]
    around = [function for function in functions if function.lineno <= node.lineno <= (function.end_lineno or function.lineno)]
    if not around or node.id in source.rebound:
        return source.value(node)
    inner = max(around, key=lambda function: function.lineno)
    loops = (item for item in ast.walk(inner) if isinstance(item, ast.For | ast.While))
    if any(loop.lineno <= node.lineno <= (loop.end_lineno or loop.lineno) for loop in loops):
        return source.value(node)
    bound = [value for value in source.names.get(node.id, []) if inner.lineno < value.lineno < node.lineno]
    return source.value(bound[0]) if len(bound) == 1 else source.value(node)


def dotted(node: ast.expr) -> str:
    """Return a name as written, `a.b.c`; what is called in between is left out."""
    parts: list[str] = []
    for _ in range(MOST_DEPTH):
        if isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            break
    if isinstance(node, ast.Name):
        parts.append(node.id)
    return ".".join(reversed(parts))
