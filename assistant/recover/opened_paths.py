"""Read off the source of a program which path a line of it opens, as far as constants, assignments and options tell it. Pure.

The line is that of a frame of a traceback. It counts only where it stands in the function that the frame names: else the text is
not the one that ran. What only a run knows (`"shard-%02d.bin" % n`, an f-string) is left open.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.recover.declared_options import UNKNOWN
from assistant.recover.load_calls import innermost_function
from assistant.recover.shell.folders import UNRESOLVED
from assistant.recover.trainer_source import TrainerSource, dotted, syntax_tree

__all__ = ["OpenedPath", "opened_paths"]

MOST_PATHS, MOST_CHARACTERS, FEWEST_PARTS = 4, 2_000, 3
"""Paths of one line; characters of one; parts of a folder, `/` included: above it everything lies."""
OPENS = re.compile(
    r"^(?:\w*open\w*|File|load\w*|\w+_load|read\w*|\w*read|memmap|mmap|from(?:file|txt|_\w+)|genfromtxt|listdir|scandir|iterdir"
    r"|l?stat|getsize|getmtime|chdir|copy\w*|parse)$"
)
"""Calls that fail where a path cannot be used; a test such as `exists` does not."""
_DIRECTIVE = re.compile(r"%(?:\(\w{1,80}\))?[-#0 +]{0,5}\d{0,4}(?:\.\d{1,4})?([a-zA-Z%])")
_FIELD = re.compile(r"\{\{|\}\}|\{[^{}]{0,200}\}")


class OpenedPath(NamedTuple):
    """A path that a line opens."""

    path: str
    """Absolute: all of it, or the folder above its first part that is known in part only."""
    name: tuple[str, ...] = ()
    """What is known of the entry of that folder: the texts before, between and behind what only a run knows. Empty where `path` is
    all of it, or the entry is a folder."""

    @property
    def pattern(self) -> str:
        """The path as people write it: `/data/shard-*.bin`."""
        return f"{self.path}/{'*'.join(self.name)}" if self.name else self.path

    def names(self, path: str) -> bool:
        """Tell whether a file of the folder may be the one that was opened."""
        entry = PurePosixPath(path)
        if not self.name or str(entry.parent) != self.path:
            return False
        begin, *between, end = self.name
        file_name = entry.name
        if not file_name.startswith(begin) or not file_name.endswith(end) or len(file_name) < len(begin) + len(end):
            return False
        middle, at = file_name[len(begin) : len(file_name) - len(end)], 0
        for text in between:
            at = middle.find(text, at) + len(text)
            if at < len(text):
                return False
        return True


def opened_paths(source: TrainerSource, line: int, function: str) -> tuple[OpenedPath, ...]:
    """Return the absolute paths that a line opens; none where it opens none, or does not stand in that function.

    Args:
        source: The program.
        line: 1-based, of a frame.
        function: As the frame names it: `<module>`, `load`, `Reader.__next__`.
    """
    if not source.parsed:
        return ()
    tree = syntax_tree(source.text)
    enclosing = innermost_function(tree, line)
    if not _stands_in(enclosing, function):
        return ()
    parameters = _parameters(enclosing) if enclosing is not None else set()
    unknown = {*parameters, *source.rebound}
    narrowed = replace(
        source,
        names={name: values for name, values in source.names.items() if name not in unknown},
        options={name: value for name, value in source.options.items() if name not in unknown},
    )
    texts = (text for call in _calls_at(tree, line) for node in _operands(call) if (text := _text_of(narrowed, node)))
    paths = (opened for text in texts if (opened := _opened(text)) is not None)
    return tuple(dict.fromkeys(paths))[:MOST_PATHS]


def _stands_in(enclosing: ast.FunctionDef | ast.AsyncFunctionDef | None, function: str) -> bool:
    name = function.rpartition(".")[2]
    if name == "<module>" or enclosing is None:
        return enclosing is None and name == "<module>"
    return name == enclosing.name or name.startswith("<")  # a comprehension or lambda stands in some function


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    arguments = function.args
    more = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    return {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *more)}


def _calls_at(tree: ast.Module, line: int) -> Iterator[ast.Call]:
    """Yield the calls that begin at a line or whose name ends there: that is the line which a frame shows for them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and line in (node.lineno, node.func.end_lineno):
            method = node.func.attr if isinstance(node.func, ast.Attribute) else dotted(node.func)
            if OPENS.match(method.rpartition(".")[2]):
                yield node


def _operands(call: ast.Call) -> Iterator[ast.expr]:
    """Yield what may be the path of a call: its object (`Path(…).open()`), its first argument, its named ones."""
    if isinstance(call.func, ast.Attribute):
        yield call.func.value
    yield from call.args[:1]
    yield from (keyword.value for keyword in call.keywords if keyword.arg)


def _text_of(source: TrainerSource, node: ast.expr, depth: int = 0) -> str:
    """Return the text of an expression with `UNRESOLVED` for what only a run knows; empty where nothing of it is known."""
    value = source.value(node)
    if isinstance(value, str):
        return value[:MOST_CHARACTERS]
    if depth > 2 or value is not UNKNOWN:
        return ""
    if isinstance(node, ast.Name):
        texts = {_text_of(source, expression, depth + 1) for expression in source.names.get(node.id, [])}
        return texts.pop() if len(texts) == 1 else ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        text = _text_of(source, node.left, depth + 1)
        return _DIRECTIVE.sub(lambda match: "%" if match[1] == "%" else UNRESOLVED, text)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        text = _text_of(source, node.func.value, depth + 1)
        return _FIELD.sub(lambda match: match[0][0] if match[0] in ("{{", "}}") else UNRESOLVED, text)
    return ""


def _opened(text: str) -> OpenedPath | None:
    """Return the path that a text is; None for one that is not absolute, or of which too little is known."""
    if not text.startswith("/") or text.startswith("//") or "\n" in text or "\0" in text:
        return None
    certain, mark, _ = text.partition(UNRESOLVED)
    if not mark:
        return OpenedPath(str(PurePosixPath(text))) if len(PurePosixPath(text).parts) >= FEWEST_PARTS else None
    folder = certain.rpartition("/")[0]
    if len(PurePosixPath(folder).parts) < FEWEST_PARTS or ".." in PurePosixPath(folder).parts:
        return None
    name, deeper, _ = text[len(folder) + 1 :].partition("/")
    return OpenedPath(str(PurePosixPath(folder)), () if deeper else tuple(name.split(UNRESOLVED)))
