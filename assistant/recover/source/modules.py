"""The modules of a program: what a Python file binds its names to, scope by scope, and the files that it imports.

Of imported files those functions count that a run may come to. Pure but for `read`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from assistant.recover.source.trainer_source import UNPARSED, TrainerSource, dotted, parse_source, syntax_tree

Scope = ast.FunctionDef | ast.AsyncFunctionDef | None
"""The function that something stands in; None for the module."""


class ScopedNames:
    """What the names of one file are given, scope by scope."""

    def __init__(self, source: TrainerSource) -> None:
        self.assigned: dict[tuple[int, str], list[ast.expr]] = {}
        self.changed: set[tuple[int, str]] = set()
        """Names that a `with`, or an assignment that cannot be taken apart, gives a value in a scope."""
        self.counted: set[tuple[int, str]] = set()
        """Names that a loop or `+=` changes in a scope."""
        self.counted_attributes: set[str] = set()
        self.attributes: dict[str, list[tuple[ast.expr, Scope]]] = {}
        """What attributes of objects are given, by name."""
        self.parents: dict[int, Scope] = {}
        self.classes: dict[int, str] = {}
        """The class that a function is a method of, by the function's identity."""
        self.calls: list[tuple[ast.Call, Scope]] = []
        self.looped: set[int] = set()
        """The calls, by identity, that stand in the body of a loop of their function."""
        self.returned: dict[int, list[ast.expr]] = {}
        """What the functions give back, by their identity."""
        self.aliases: dict[str, str] = {}
        """Names that stand for modules, with the dotted module."""
        self.imported: dict[str, tuple[str, str]] = {}
        """Names that come out of a module, with the module and their name there."""
        self.functions: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
        self.tree = ast.Module([], [])
        """The tree whose nodes are meant: a file that is parsed again gives others."""
        try:
            self.tree = syntax_tree(source.text)
            self._walk(self.tree.body, None, "", looped=False)
        except (*UNPARSED,):
            return

    def _walk(self, nodes: Iterable[ast.AST], scope: Scope, holder: str, *, looped: bool) -> None:
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.parents[id(node)] = scope
                self.functions.setdefault(node.name, []).append(node)
                if holder:
                    self.classes[id(node)] = holder
                defaults = [*node.args.defaults, *(item for item in node.args.kw_defaults if item is not None)]
                self._walk([*node.decorator_list, *defaults], scope, "", looped=looped)
                self._walk(node.body, node, "", looped=False)
                continue
            if isinstance(node, ast.ClassDef):
                self._walk([*node.bases, *node.decorator_list], scope, "", looped=looped)
                self._walk(node.body, scope, node.name, looped=looped)
                continue
            self._note(node, scope)
            if looped and isinstance(node, ast.Call):
                self.looped.add(id(node))
            if isinstance(node, ast.Return) and node.value is not None:
                self.returned.setdefault(id(scope), []).append(node.value)
            inner = holder if isinstance(node, ast.stmt) else ""
            if isinstance(node, ast.For | ast.AsyncFor | ast.While):
                first = node.test if isinstance(node, ast.While) else node.iter
                self._walk([first], scope, inner, looped=looped)
                self._walk([*node.body, *node.orelse], scope, inner, looped=True)
            else:
                self._walk(ast.iter_child_nodes(node), scope, inner, looped=looped)

    def _note(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Import):
            self.aliases |= {item.asname or item.name.partition(".")[0]: item.name for item in node.names}
        elif isinstance(node, ast.ImportFrom):
            self.imported |= {item.asname or item.name: (node.module or "", item.name) for item in node.names}
        elif isinstance(node, ast.Call):
            self.calls.append((node, scope))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._give(target, node.value, scope)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            self._give(node.target, node.value, scope)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.AugAssign | ast.comprehension):
            names = [item for item in ast.walk(node.target) if isinstance(item, ast.Name)]
            if isinstance(node.target, ast.Attribute):
                self.counted_attributes.add(node.target.attr)
            else:
                self.counted |= {(id(scope), item.id) for item in names}
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._change(node.optional_vars, scope)

    def _give(self, target: ast.expr, value: ast.expr, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            self.assigned.setdefault((id(scope), target.id), []).append(value)
        elif isinstance(target, ast.Attribute):
            self.attributes.setdefault(target.attr, []).append((value, scope))
        elif (
            isinstance(target, ast.Tuple | ast.List)
            and isinstance(value, ast.Tuple | ast.List)
            and len(target.elts) == len(value.elts)
        ):
            for inner, item in zip(target.elts, value.elts, strict=True):
                self._give(inner, item, scope)
        else:
            self._change(target, scope)

    def _change(self, target: ast.expr, scope: Scope) -> None:
        self.changed |= {(id(scope), item.id) for item in ast.walk(target) if isinstance(item, ast.Name)}


MOST_MODULES = 24
MOST_ABOVE = 4
"""Folders of packages inside one another, from that of the program on."""
INSTALLED = frozenset("torch numpy transformers accelerate lightning pytorch_lightning datasets jax os sys re".split())
"""Of which no file beside a program is looked for."""
BY_NAME = frozenset("eval exec globals locals vars import_module __import__ load_source spec_from_file_location".split())
"""Calls by which a program may come to a function that no line of it names."""


def imported_modules(source: TrainerSource, read: Callable[[str], str | None]) -> list[TrainerSource]:
    """Return the Python files beside a program that it imports, and those that these import; without calls that no run comes to."""
    return _reached(source, list(_modules(source, read)))


def _modules(source: TrainerSource, read: Callable[[str], str | None]) -> Iterator[TrainerSource]:
    folder = PurePosixPath(source.path).parent
    waiting, names, count = [*source.modules], set(), 0
    while waiting and count < MOST_MODULES:
        name = waiting.pop(0).lstrip(".")
        if not name or name in names or name.partition(".")[0] in INSTALLED:
            continue
        names.add(name)
        file, text = _found(folder, name, read) if source.path.startswith("/") else ("", None)
        if text is None:
            continue
        count += 1
        module = parse_source(text, path=file, environment=source.environment)
        waiting += module.modules
        yield module


def _found(folder: PurePosixPath, name: str, read: Callable[[str], str | None]) -> tuple[str, str | None]:
    """Return the file of a module and its text: beside the program, or in the package that the program itself is part of."""
    top = name.partition(".")[0]
    roots = [folder, *(above.parent for above in (folder, *folder.parents)[:MOST_ABOVE] if above.name == top)]
    for root in roots:
        file = f"{root / name.replace('.', '/')}.py"
        if (text := read(file)) is not None:
            return file, text
    return "", None


class _Part:
    """A function or a method of a module, or what the module runs when it is imported."""

    def __init__(self, module: int, name: str, node: ast.AST, *, is_open: bool) -> None:
        self.module, self.name, self.is_open = module, name, is_open
        """`is_open`: whether it is run by the import itself, or by a library that the text does not show."""
        self.names = frozenset(_mentioned(node))
        first: int = getattr(node, "lineno", 0)
        self.lines: tuple[int, int] = (first, getattr(node, "end_lineno", None) or first)


def _reached(source: TrainerSource, modules: Sequence[TrainerSource]) -> list[TrainerSource]:
    """Return modules without the calls in functions that nothing which is run refers to.

    As they are where a program may come to functions that it does not name.
    """
    if not modules or not source.parsed or any(not module.parsed for module in modules):
        return list(modules)
    if any(
        call.method in BY_NAME or _is_named_at_run(call.name, call.positional) for part in (source, *modules) for call in part.calls
    ):
        return list(modules)
    try:
        parts = [part for place, module in enumerate(modules) for part in _parts(place, syntax_tree(module.text))]
        names = set(_mentioned(syntax_tree(source.text)))
    except UNPARSED:
        return list(modules)
    waiting = parts
    while due := [part for part in waiting if part.is_open or part.name in names]:
        names |= {name for part in due for name in part.names}
        waiting = [part for part in waiting if part not in due]
    idle = {place: [part.lines for part in waiting if part.module == place] for place in range(len(modules))}
    return [
        replace(module, calls=[call for call in module.calls if not _stands_in(call.line, idle[place])])
        for place, module in enumerate(modules)
    ]


def _is_named_at_run(name: str, positional: Sequence[ast.expr]) -> bool:
    return name == "getattr" and len(positional) > 1 and not isinstance(positional[1], ast.Constant)


def _stands_in(line: int, spans: Sequence[tuple[int, int]]) -> bool:
    return any(first <= line <= last for first, last in spans)


def _parts(place: int, tree: ast.Module) -> Iterator[_Part]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield _Part(place, node.name, node, is_open=bool(node.decorator_list))
        elif isinstance(node, ast.ClassDef):
            yield from _of_class(place, node)
        else:
            yield _Part(place, "", node, is_open=True)


def _of_class(place: int, holder: ast.ClassDef) -> Iterator[_Part]:
    """Yield the methods of a class; those that a library or the language calls count with the class itself."""
    inherits = any(dotted(base).rpartition(".")[2] != "object" for base in holder.bases) or bool(holder.decorator_list)
    for node in holder.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield _Part(place, holder.name, node, is_open=False)
            continue
        special = inherits or bool(node.decorator_list) or (node.name.startswith("__") and node.name.endswith("__"))
        yield _Part(place, holder.name if special else node.name, node, is_open=False)


def _mentioned(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id
        elif isinstance(inner, ast.Attribute):
            yield inner.attr
        elif isinstance(inner, ast.Constant) and isinstance(inner.value, str) and inner.value.isidentifier():
            yield inner.value
        elif isinstance(inner, ast.ImportFrom):
            yield from (item.name for item in inner.names if item.asname)
