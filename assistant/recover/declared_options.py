"""Options that a program declares with argparse, and what its command line gives them. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from assistant.recover.trainer_source import SourceCall, TrainerSource


class WordCount(StrEnum):
    """How many words an argument of argparse takes from the command line."""

    NONE = "none"
    ONE = "one"
    OPTIONAL = "one or none"
    SEVERAL = "several"


class _Unknown:
    """The value of an expression that only a run can tell."""

    def __repr__(self) -> str:
        return "?"


UNKNOWN = _Unknown()


def looped_names(node: ast.For) -> Iterator[tuple[ast.Call, str, tuple[str, ...]]]:
    """Yield the calls of argparse in a loop over words, each with the loop's variable and its words: `for k in ("a", "b"):`."""
    row = node.iter.elts if isinstance(node.iter, ast.Tuple | ast.List) else []
    words = [item.value for item in row if isinstance(item, ast.Constant)]
    if not isinstance(node.target, ast.Name) or len(words) != len(row):
        return
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr == "add_argument":
            yield inner, node.target.id, tuple(word for word in words if isinstance(word, str))


class DeclaredOption(NamedTuple):
    """An option as `add_argument` declares it."""

    key: str
    words: WordCount = WordCount.ONE
    constant: Any = None
    """The value of the option where it takes no word."""


def note_declared(source: TrainerSource, call: SourceCall, positional: list[str], flags: dict[str, DeclaredOption]) -> None:
    """Note one argument of argparse."""
    names = [one.value for one in call.positional if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if not names:
        return
    dest = call.keywords.get("dest")
    long = next((name for name in names if name.startswith("--")), names[0])
    key = str(dest.value) if isinstance(dest, ast.Constant) else long.lstrip("-").replace("-", "_")
    if not names[0].startswith("-"):
        positional.append(key)
        return
    node = call.keywords.get("action")
    action = node.value if isinstance(node, ast.Constant) else ast.unparse(node).rpartition(".")[2] if node is not None else "store"
    argument = _argument(source, call, key, action)
    default = call.keywords.get("default")
    absent = {"store_true": False, "store_false": True}.get(str(action))
    source.options.setdefault(key, source.value(default) if default is not None else absent)
    kind = call.keywords.get("type")
    if argument.words is WordCount.ONE and action == "store" and isinstance(kind, ast.Name) and kind.id == "int":
        source.numbers.setdefault(key, long)
    flags.update(dict.fromkeys(names, argument))
    if action == "BooleanOptionalAction":
        negated = (name.replace("--", "--no-", 1) for name in names if name.startswith("--"))
        flags.update(dict.fromkeys(negated, argument._replace(constant=False)))


def _argument(source: TrainerSource, call: SourceCall, key: str, action: Any) -> DeclaredOption:
    """Return what an option takes and means. Source: https://docs.python.org/3/library/argparse.html#the-add-argument-method."""
    constant = source.value(call.keywords["const"]) if "const" in call.keywords else None
    if action in ("store_true", "store_false", "BooleanOptionalAction"):
        return DeclaredOption(key, WordCount.NONE, action != "store_false")
    if action == "store_const":
        return DeclaredOption(key, WordCount.NONE, constant)
    if action in ("count", "append_const", "help", "version"):
        return DeclaredOption(key, WordCount.NONE, UNKNOWN)
    nargs = call.keywords.get("nargs")
    if nargs is None:
        return DeclaredOption(key)
    number = source.value(nargs)
    return DeclaredOption(key, WordCount.OPTIONAL if number == "?" else WordCount.SEVERAL, constant)


def read_arguments(source: TrainerSource, positional: list[str], flags: Mapping[str, DeclaredOption]) -> None:
    """Read the command line as argparse would with the arguments that were declared; an option counts by its beginning, too."""
    plain: list[str] = []
    words = list(source.arguments)
    while words:
        word = words.pop(0)
        name, equals, value = word.partition("=")
        argument = flags.get(name) or _abbreviated(name, flags)
        if argument is None:
            plain += [word] * (not word.startswith("-"))
        elif equals:
            source.options[argument.key] = value
        elif argument.words is WordCount.NONE:
            source.options[argument.key] = argument.constant
        elif argument.words is WordCount.SEVERAL:
            source.options[argument.key] = UNKNOWN
            while words and not _is_option(words[0]):
                words.pop(0)
        elif argument.words is WordCount.OPTIONAL and (not words or _is_option(words[0])):
            source.options[argument.key] = argument.constant
        else:
            source.options[argument.key] = words.pop(0) if words else ""
    source.options.update(zip(positional, plain, strict=False))


def _abbreviated(name: str, flags: Mapping[str, DeclaredOption]) -> DeclaredOption | None:
    """Return the one option that begins so; None where none does, or several do."""
    if not name.startswith("--") or len(name) < 3:
        return None
    fitting = {argument for flag, argument in flags.items() if flag.startswith(name)}
    return fitting.pop() if len(fitting) == 1 else None


def _is_option(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not word[1:].replace(".", "", 1).isdigit()
