"""Settings that a program declares: options of argparse with what its command line gives them, and INI files. Pure.

INI files are read as Python's `configparser` reads them: sections of plain values; nothing is expanded twice.
"""

from __future__ import annotations

import ast
import configparser
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.recover.shell.folders import UNRESOLVED

if TYPE_CHECKING:
    from assistant.recover.source.trainer_source import SourceCall, TrainerSource


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
    names = [
        node_positional.value
        for node_positional in call.positional
        if isinstance(node_positional, ast.Constant) and isinstance(node_positional.value, str)
    ]
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


INI_SUFFIXES = frozenset((".ini", ".cfg", ".conf"))
MOST_CHARACTERS = 4_096
"""Of one value with what it refers to filled in; a longer one is no path."""
_REFERENCE = re.compile(r"%\(([^()]{1,200})\)s|%%")


def ini_tables(text: str) -> dict[str, dict[str, str]]:
    """Return the values of an INI file by section and key, with `%(key)s` of the same section or of DEFAULT filled in.

    A value that refers to one which refers further is `UNRESOLVED`: only a run can tell it.

    Raises:
        ValueError: The text is no INI file.
    """
    parser = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ValueError(f"no INI file: {type(error).__name__}") from error
    tables = {}
    for section in parser.sections():
        values = {key: value for key, value in parser.items(section) if value is not None}
        tables[section] = {key: _filled(value, values) for key, value in values.items()}
    return tables


def _filled(value: str, values: Mapping[str, str]) -> str:
    if "%" not in value:
        return value
    unknown = False

    def fill(match: re.Match[str]) -> str:
        nonlocal unknown
        if match[1] is None:
            return "%"
        inner = values.get(match[1].lower(), UNRESOLVED)
        unknown |= _REFERENCE.search(inner) is not None or len(inner) > MOST_CHARACTERS
        return inner if not unknown else ""

    filled = _REFERENCE.sub(fill, value[:MOST_CHARACTERS])
    return UNRESOLVED if unknown or len(filled) > MOST_CHARACTERS else filled
