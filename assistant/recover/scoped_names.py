"""What the names and attributes of one Python file are given, scope by scope. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from assistant.recover.trainer_source import UNPARSED, TrainerSource, syntax_tree

Scope = ast.FunctionDef | ast.AsyncFunctionDef | None
"""The function that something stands in; None for the module."""


class ScopedNames:
    """What the names of one file are given, scope by scope."""

    def __init__(self, source: TrainerSource) -> None:
        self.given: dict[tuple[int, str], list[ast.expr]] = {}
        self.changed: set[tuple[int, str]] = set()
        """Names that a `with`, or an assignment that cannot be taken apart, gives a value in a scope."""
        self.counted: set[tuple[int, str]] = set()
        """Names that a loop or `+=` changes in a scope."""
        self.counted_attributes: set[str] = set()
        self.attributes: dict[str, list[tuple[ast.expr, Scope]]] = {}
        """What attributes of objects are given, by name."""
        self.scopes: dict[int, Scope] = {}
        self.parents: dict[int, Scope] = {}
        self.classes: dict[int, str] = {}
        """The class that a function is a method of, by the function's identity."""
        self.calls: list[tuple[ast.Call, Scope]] = []
        self.aliases: dict[str, str] = {}
        """Names that stand for modules, with the dotted module."""
        self.imported: dict[str, tuple[str, str]] = {}
        """Names that come out of a module, with the module and their name there."""
        try:
            self._walk(syntax_tree(source.text).body, None, "")
        except (*UNPARSED,):
            return

    def _walk(self, nodes: Iterable[ast.AST], scope: Scope, holder: str) -> None:
        for node in nodes:
            self.scopes[id(node)] = scope
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.parents[id(node)] = scope
                if holder:
                    self.classes[id(node)] = holder
                self._walk(node.decorator_list, scope, "")
                self._walk([*node.args.defaults, *(item for item in node.args.kw_defaults if item is not None)], scope, "")
                self._walk(node.body, node, "")
                continue
            if isinstance(node, ast.ClassDef):
                self._walk([*node.bases, *node.decorator_list], scope, "")
                self._walk(node.body, scope, node.name)
                continue
            self._note(node, scope)
            self._walk(ast.iter_child_nodes(node), scope, holder if isinstance(node, ast.stmt) else "")

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
            self.given.setdefault((id(scope), target.id), []).append(value)
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
