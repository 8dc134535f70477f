"""Whether a training program reads a tracker file: a small file of the file system that names the checkpoint to go on from.

The name of the tracker is followed through assignments, `with … as`, attributes and parameters to a call that opens a file for
reading. What is read from a URL, a socket, a process or standard input is no tracker, and neither is a file that is only written.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from assistant.recover.trainer_source import UNPARSED, TrainerSource, dotted, syntax_tree

TRACKER_NAME = re.compile(
    r"(?:^|/)(?:latest_checkpointed_iteration(?:\.txt)?|latest(?:\.txt|_step(?:\.txt)?)?|last_checkpoint(?:\.txt)?|checkpoint\.meta\.json)$"
)
HINT = re.compile(r"latest|last_checkpoint|checkpoint\.meta")
OPENS = frozenset("open io.open codecs.open fsspec.open gfile.GFile tf.io.gfile.GFile gzip.open linecache.getline".split())
FILE_METHODS = frozenset(("read_text", "read_bytes", "readlink"))
"""Methods that only paths have."""
PATH_READERS = frozenset(("np.loadtxt", "numpy.loadtxt", "np.genfromtxt", "os.readlink", "np.fromfile"))
MOST_ROUNDS = 8
"""Assignments in a row through which a name is followed."""


def reads_tracker(source: TrainerSource) -> bool:
    """Tell whether a program opens a tracker file for reading."""
    if not source.parsed or not HINT.search(source.text):
        return False
    try:
        return _Flow(syntax_tree(source.text)).reads()
    except UNPARSED:
        return False


class _Flow:
    """Which names and functions of a program hold the path of a tracker."""

    def __init__(self, tree: ast.Module) -> None:
        self.nodes = list(ast.walk(tree))
        self.holders: set[tuple[str, str]] = set()
        """Function and name; of the module the function is empty, of an attribute a point."""
        self.functions = {node.name: node for node in self.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        self.scopes = {id(inner): name for name, function in self.functions.items() for inner in ast.walk(function)}
        self.bound = list(self._bound())
        for _ in range(MOST_ROUNDS):
            before = len(self.holders)
            self._spread()
            if len(self.holders) == before:
                break

    def reads(self) -> bool:
        return any(isinstance(node, ast.Call) and self._is_read(node) for node in self.nodes)

    def _is_read(self, call: ast.Call) -> bool:
        name = dotted(call.func)
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if name in OPENS and call.args:
            return self._holds(call.args[0]) and _for_reading(call, 1)
        if name in PATH_READERS:
            return bool(call.args) and self._holds(call.args[0])
        if method == "open" and isinstance(call.func, ast.Attribute):  # of a path
            return self._holds(call.func.value) and _for_reading(call, 0)
        return method in FILE_METHODS and isinstance(call.func, ast.Attribute) and self._holds(call.func.value)

    def _bound(self) -> Iterator[tuple[ast.expr, ast.expr]]:
        """Yield each name or attribute with an expression that it is given."""
        for node in self.nodes:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    yield from _paired(target, node.value)
            elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                yield node.target, node.value
            elif isinstance(node, ast.For | ast.AsyncFor):
                yield node.target, node.iter

    def _key(self, node: ast.expr) -> tuple[str, str]:
        if isinstance(node, ast.Attribute):
            return ".", node.attr
        return (self.scopes.get(id(node), ""), node.id) if isinstance(node, ast.Name) else ("", "")

    def _spread(self) -> None:
        for target, value in self.bound:
            if isinstance(target, ast.Attribute | ast.Name) and self._holds(value):
                self.holders.add(self._key(target))
        for node in self.nodes:
            if isinstance(node, ast.Call) and (function := self.functions.get(dotted(node.func).rpartition(".")[2])) is not None:
                self._into(function, node)
        for name, function in self.functions.items():
            returned = (node for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None)
            if any(self._holds(node.value) for node in returned if node.value is not None):
                self.holders |= {("", name), (".", name)}

    def _into(self, function: ast.FunctionDef | ast.AsyncFunctionDef, call: ast.Call) -> None:
        names = [one.arg for one in function.args.args]
        names = names[1:] if names[:1] in (["self"], ["cls"]) else names
        given = [*zip(names, call.args, strict=False), *((one.arg, one.value) for one in call.keywords if one.arg)]
        self.holders |= {(function.name, name) for name, value in given if self._holds(value)}

    def _holds(self, node: ast.expr) -> bool:
        """Tell whether an expression is the path of a tracker, as far as the text shows."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str) and TRACKER_NAME.search(inner.value):
                return "://" not in inner.value
            if isinstance(inner, ast.Name) and (self._key(inner) in self.holders or ("", inner.id) in self.holders):
                return True
            if isinstance(inner, ast.Attribute) and self._key(inner) in self.holders:
                return True
        return False


def _paired(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield what each name of an assignment is given; of `a, b = c, d` its own part."""
    if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List) and len(target.elts) == len(value.elts):
        yield from zip(target.elts, value.elts, strict=True)
    else:
        yield target, value


def _for_reading(call: ast.Call, place: int) -> bool:
    node = next((one.value for one in call.keywords if one.arg == "mode"), call.args[place] if len(call.args) > place else None)
    mode = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "r"
    return not set(mode) & set("wax") or "+" in mode
