"""Tell which Python a line of source is written for: what only newer ones know, and what only Python 2 took.

The running interpreter parses the line: what is in its tree tells the oldest Python that takes it ("What's New in Python", 3.0 to
3.12). A line that is the beginning of a longer statement is closed first. Types in annotations are valid syntax everywhere, and
fail as they are evaluated.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

from assistant.recover.source.trainer_source import UNPARSED, syntax_tree


class Written(NamedTuple):
    """What a line is written for."""

    feature: str
    """What an interpreter of another version refuses in it."""
    python: str
    """The oldest version that takes it, such as 3.8; `2` for what only Python 2 took."""


_OLD = (
    (re.compile(r"^\s*print\s+(?![=(.,\[])|^\s*print\s*>>"), "the print statement"),
    (re.compile(r"^\s*except\s+[\w.()]+\s*,\s*\w+\s*:"), "`except Error, name:`"),
    (re.compile(r"^\s*raise\s+[\w.]+\s*,"), "`raise Error, text`"),
    (re.compile(r"^\s*exec\s+['\"\w]"), "the exec statement"),
    (re.compile(r"[\w)\]]\s*<>\s*[\w(]"), "the operator <>"),
)
"""What only Python 2 took."""
_NEW = (
    (re.compile(r"^\s*except\s*\*"), Written("`except*`", "3.11")),
    (re.compile(r"^\s*type\s+\w+(?:\[.*\])?\s*=|^\s*(?:async )?(?:def|class)\s+\w+\["), Written("a type parameter", "3.12")),
    (re.compile(r"^\s*with\s*\(.* as \w+"), Written("a `with` in brackets", "3.10")),
    (re.compile(r"\bf['\"][^'\"]*\{[\w.]+=\}"), Written("`{name=}` in an f-string", "3.8")),
)
"""What shows in the text, and not in the tree of every Python."""
_UNION = re.compile(
    r"for \|: '(?:type|NoneType|_?\w*(?:GenericAlias|Meta|GenericMeta)|_SpecialForm)' and |for \|: '[^']{1,80}' "
    r"and '(?:type|NoneType)'"
)
_GENERIC = re.compile(r"\b(?:list|dict|tuple|set|frozenset|type)\[")
_ANNOTATES = re.compile(r"^\s*(?:(?:async )?def\b|\w[\w.]*\s*:|\w+:)|->|:\s*[\w.]+\s*\|")
_GOES_ON_FROM_ABOVE = ("else", "elif", "except", "finally", "case ", ")", "]", "}", "@", "#", "'", '"')
"""How lines begin that are no statement by themselves."""
_LACKS = (
    ("forgot a comma", "a comma between two of its values"),
    ("unterminated", "the quotation mark that ends its text"),
    ("Maybe you meant '=='", "a second = where it compares (==)"),
)
"""By words of the interpreter: what a line lacks."""
_BRACKETS = {"(": ")", "[": "]", "{": "}"}


def written_for(source: str, message: str) -> Written | None:
    """Return what a line has that an interpreter of another version refuses; None where it shows nothing of the kind.

    Args:
        source: The line that a SyntaxError or a TypeError shows.
        message: Of the exception.
    """
    if _UNION.search(message):
        return Written("a type written as X | Y", "3.10") if "|" in source else None
    if "'type' object is not subscriptable" in message:
        return Written("a built-in type with brackets such as list[int]", "3.9") if _GENERIC.search(source) else None
    if "call to 'print'" in message or "call to 'exec'" in message:
        return Written("the print statement" if "print" in message else "the exec statement", "2")
    if "invalid syntax" not in message and "multiple exception types" not in message:
        return None
    if (old := next((words for pattern, words in _OLD if pattern.search(source)), "")) and not message.endswith("(<unknown>"):
        return Written(old, "2")
    newest = [written for pattern, written in _NEW if pattern.search(source)]
    for text in _closed(source):
        try:
            newest += _in_tree(syntax_tree(text))
        except UNPARSED:
            continue
        break
    return max(newest, key=lambda written: int(written.python.partition(".")[2]), default=None)


def version_slots(text: str, source: str) -> dict[str, str]:
    """Return what a line has that the Python which read it does not know, and which one does; else what it lacks for any."""
    written = written_for(source, text)
    if written is None:
        return _complaint_slots(text, source)
    if written.python == "2":
        return {"older": source, "feature": written.feature}
    postponed = "from __future__ import annotations" if "TypeError" in text and _annotates(source) else ""
    return {"newer": source, "feature": written.feature, "python": written.python, "postponed": postponed}


def _complaint_slots(message: str, source: str) -> dict[str, str]:
    """Return what the running interpreter misses in a line that an older one only calls invalid, or that the line itself is right.

    A line that needs others before or behind it to be whole decides nothing.
    """
    line = source.strip()
    if "invalid syntax" not in message or not line or "…" in line or line.startswith(_GOES_ON_FROM_ABOVE):
        return {}
    complaint = _complaint(line)
    if not complaint:
        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        return {"sound": f"By itself that line is right (Python {python} takes it)"}
    if "expected ':'" in complaint and not _complaint(f"{line}:"):
        return {"line_lacks": "the colon at its end"}
    if (lacking := next((words for form, words in _LACKS if form in complaint), "")) and "was never closed" not in complaint:
        return {"line_lacks": lacking}
    return {}


def _complaint(line: str) -> str:
    """Return what is wrong with a line as the running interpreter says it; empty where it can stand in a program."""
    words = ""
    for text in (line, f"{line}\n    pass", f"def _():\n    {line}", f"async def _():\n    {line}", f"for _ in ():\n    {line}"):
        try:
            syntax_tree(text)
        except SyntaxError as error:
            words = words or str(error.msg)
        except UNPARSED:
            return ""
        else:
            return ""
    return words


def _annotates(source: str) -> bool:
    """Tell whether the type in a line is an annotation, which need not be evaluated."""
    return _ANNOTATES.search(source) is not None


def _closed(source: str) -> Iterator[str]:
    """Yield a line as a whole program: as it is, with its block, with its brackets closed, as a part of an `async def`."""
    opened: list[str] = []
    for letter in source:
        if letter in _BRACKETS:
            opened.append(_BRACKETS[letter])
        elif opened and letter == opened[-1]:
            opened.pop()
    line = re.sub(r"[^\w)\]}:]*…$", "", source.strip())  # a long line is cut
    closed = line + "".join(reversed(opened))
    for text in dict.fromkeys((line, closed, f"{closed}:")):
        yield text
        yield f"{text}\n    pass"
        yield f"{text}\n    case _:\n        pass"
        yield f"async def _():\n    {text}"
        yield f"async def _():\n    {text}\n        pass"


def _in_tree(tree: ast.Module) -> Iterator[Written]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Match):
            yield Written("a match statement", "3.10")
        elif isinstance(node, ast.NamedExpr):
            yield Written("the operator :=", "3.8")
        elif isinstance(node, ast.arguments) and node.posonlyargs:
            yield Written("a `/` among its parameters", "3.8")
        elif isinstance(node, ast.JoinedStr):
            yield Written("an f-string", "3.6")
        elif isinstance(node, ast.AnnAssign):
            yield Written("a variable with its type", "3.6")
        elif isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
            yield Written("the matrix operator @", "3.5")
        elif (isinstance(node, ast.AsyncFunctionDef) and node.name != "_") or isinstance(
            node, ast.Await | ast.AsyncFor | ast.AsyncWith
        ):
            yield Written("async or await", "3.5")
        elif isinstance(node, ast.YieldFrom):
            yield Written("yield from", "3.3")
        elif isinstance(node, ast.Nonlocal):
            yield Written("nonlocal", "3.0")
        elif isinstance(node, ast.FunctionDef) and (
            node.returns or any(arg.annotation for arg in ast.walk(node) if isinstance(arg, ast.arg))
        ):
            yield Written("types of its parameters", "3.0")
        elif isinstance(node, ast.arguments) and node.kwonlyargs:
            yield Written("a `*` among its parameters", "3.0")
