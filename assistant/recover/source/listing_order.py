"""Which file a program takes now that lists a folder and goes on from the last one by time, name or number.

That a program takes "the newest" says `newest_choice`; which file that is, one of another name among them, says the listing itself:
its pattern, the tests of its names and its order, held against what lies there. What is not surely told (an order of the program's
own, a pattern of folders, a listing that is changed in between, two files of one time) is no listing.
"""

from __future__ import annotations

import ast
import fnmatch
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath

from assistant.errors import ContentError, InputError, OwnerDenied, UnreadableFile
from assistant.linear_patterns import LinearPattern, holds, linear_pattern
from assistant.recover.job_program import JobProgram
from assistant.recover.shell.folders import UNRESOLVED
from assistant.recover.source.newest_choice import LISTS, MUTATIONS, WILDCARD, is_repeated
from assistant.recover.source.trainer_source import MOST_DEPTH, UNPARSED, TrainerSource, dotted, syntax_tree
from assistant.untrusted import list_folder, reading_as, status_of

MOST_FILES = 4000
NUMBERS = re.compile(r"\d+")
MODIFIED = frozenset(("getmtime", "st_mtime", "st_mtime_ns"))
CHANGED = frozenset(("getctime", "st_ctime", "st_ctime_ns"))


class ListingOrder(StrEnum):
    """By what a listing is put in order."""

    MODIFIED = "time"
    CHANGED = "time of its last change"
    NAME = "name"
    NUMBER = "number"


@dataclass(frozen=True, slots=True)
class Listing:
    """What a program lists, and which of it it takes."""

    patterns: tuple[str, ...]
    """Paths as the program sees them, with a wildcard in the last part."""
    tests: tuple[tuple[str, str], ...] = ()
    """Of the names: how (`endswith`, `startswith`, `in`, `not in`, `match`, `search`, `fullmatch`), and with what."""
    order: ListingOrder | None = None
    falls: bool = False
    """Whether the largest comes first."""
    is_newest: bool = False
    """Whether one is taken: the largest."""

    def takes(self, name: str) -> bool:
        """Tell whether a name passes all tests."""
        return all(_passes(name, how, text) for how, text in self.tests)


@dataclass(frozen=True, slots=True)
class ListedFiles:
    """What a program's listing finds now."""

    paths: tuple[Path, ...]
    """In the order in which it would take them: the first is what it goes on from."""
    words: str
    """How it lists, for people: `newest by time of states/*.lbm`."""


def listed_files(programs: Sequence[JobProgram], account: str) -> ListedFiles | None:
    """Return what the programs of a job would take now as the newest of a listing; None where no listing, or several, tell that.

    Args:
        programs: What its script starts.
        account: As whom to look.

    Raises:
        Unavailable: The storage did not answer.
    """
    listings = {listing: program.launch for program in programs for source in program.sources for listing in _listings(source)}
    if len(listings) != 1:
        return None
    listing, launch = next(iter(listings.items()))
    paths = [launch.outside(pattern) for pattern in listing.patterns]
    if any(path is None for path in paths):
        return None
    with reading_as(account):
        ordered = _in_order(listing, [path for path in paths if path is not None])
    return ListedFiles(tuple(ordered), f"newest by {listing.order} of {' and '.join(listing.patterns)}") if ordered else None


def _in_order(listing: Listing, patterns: Sequence[Path]) -> list[Path]:
    """Return the files of a listing, the one that is taken first; none where their order is not known for sure."""
    keys: dict[Path, tuple[float, str]] = {}
    for pattern in patterns:
        try:
            children = list_folder(pattern.parent, MOST_FILES)
        except (OSError, InputError, UnreadableFile, OwnerDenied):
            return []
        hides = not pattern.name.startswith(".")
        for child in children:
            is_listed = fnmatch.fnmatchcase(child.name, pattern.name) and not (hides and child.name.startswith("."))
            key = _key(listing, child) if is_listed and listing.takes(child.name) else ()
            if key is None:
                return []
            if key:
                keys[child] = key
    ordered = sorted(keys, key=lambda path: keys[path], reverse=True)
    return ordered if len(ordered) < 2 or keys[ordered[0]] != keys[ordered[1]] else []


def _key(listing: Listing, path: Path) -> tuple[float, str] | None:
    """Return by what a file is put in order; None where that is not known."""
    try:
        status = status_of(path)
    except (OSError, InputError, UnreadableFile, OwnerDenied):
        return None
    if listing.order is ListingOrder.MODIFIED:
        return status.st_mtime, ""
    if listing.order is ListingOrder.CHANGED:
        return status.st_ctime, ""
    if listing.order is ListingOrder.NAME:
        return 0.0, str(path)
    numbers = NUMBERS.findall(path.name)
    return (float(numbers[0]), "") if len(numbers) == 1 else None  # which of several counts, its program alone knows


def _passes(name: str, how: str, text: str) -> bool:
    match how:
        case "endswith":
            return name.endswith(text)
        case "startswith":
            return name.startswith(text)
        case "in":
            return text in name
        case "not in":
            return text not in name
    pattern = _pattern(how, text)
    return pattern is not None and holds(pattern, name)


def _pattern(how: str, text: str) -> LinearPattern | None:
    """Return the pattern of a program's own test of names, None where it is none or does what no linear pattern can."""
    anchored = {"match": rf"\A(?:{text})", "fullmatch": rf"\A(?:{text})\z", "search": text}[how]
    try:
        return linear_pattern(anchored, multiline=False)
    except ContentError:
        return None


def _listings(source: TrainerSource) -> Iterator[Listing]:
    """Yield the listings of a program of which it takes the largest, before it trains."""
    calls = [call for call in source.called(*LISTS) if not is_repeated(source, call)]
    lines = {call.line for call in calls}
    try:
        tree = syntax_tree(source.text)
    except UNPARSED:
        return
    if not lines:
        return
    reader = _ListingReader(source, lines)
    for node in ast.walk(tree):
        is_largest = isinstance(node, ast.Call) and dotted(node.func) == "max"
        if is_largest or isinstance(node, ast.Subscript):
            listing = reader.read(node) if isinstance(node, ast.expr) else None
            if listing is not None and listing.is_newest:
                yield listing


class _ListingReader:
    """Reads expressions of a program as listings."""

    def __init__(self, source: TrainerSource, lines: Collection[int]) -> None:
        self._source, self._lines = source, lines
        self._open: list[str] = []

    def read(self, node: ast.expr, names: Mapping[str, Listing] | None = None, depth: int = 0) -> Listing | None:
        """Return what an expression lists; None where that is not surely told."""
        names = names or {}
        if depth > MOST_DEPTH:
            return None
        if isinstance(node, ast.Name):
            return names.get(node.id) or self._of_name(node.id, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            first_half, second_half = self.read(node.left, names, depth + 1), self.read(node.right, names, depth + 1)
            if (
                first_half is None
                or second_half is None
                or first_half.order
                or second_half.order
                or first_half.tests != second_half.tests
            ):
                return None
            return replace(first_half, patterns=(*first_half.patterns, *second_half.patterns))
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp):
            return self._filtered(node, names, depth)
        if isinstance(node, ast.Subscript):
            listing, place = self.read(node.value, names, depth + 1), ast.unparse(node.slice)
            is_largest = (
                listing is not None and listing.order is not None and (listing.falls, place) in ((False, "-1"), (True, "0"))
            )
            return replace(listing, is_newest=True) if listing is not None and is_largest and not listing.is_newest else None
        return self._call(node, names, depth) if isinstance(node, ast.Call) else None

    def _of_name(self, name: str, depth: int) -> Listing | None:
        values = self._source.names.get(name, [])
        changes = [call for call in self._source.calls if call.name.rpartition(".")[0] == name and call.method in MUTATIONS]
        if not values or name in self._open or name in self._source.rebound or changes:
            return None
        self._open.append(name)
        first = [value for value in values if not _uses(value, name)]
        listing = self.read(first[0], depth=depth + 1) if len(first) == 1 else None
        for value in values:
            if listing is not None and _uses(value, name):
                listing = self.read(value, {name: listing}, depth + 1)
        self._open.pop()
        for call in self._source.calls:
            if listing is not None and call.name == f"{name}.sort":
                listing = _ordered(self._source, listing, call.keywords)
        return listing

    def _filtered(
        self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, names: Mapping[str, Listing], depth: int
    ) -> Listing | None:
        generator = node.generators[0]
        listing = self.read(generator.iter, names, depth + 1)
        if listing is None or listing.order or len(node.generators) > 1 or not isinstance(generator.target, ast.Name):
            return None
        variable = generator.target.id
        if not _is_path_of(node.elt, variable):
            return None
        for test in generator.ifs:
            tests = self._tests(test, variable)
            if tests is None:
                return None
            listing = replace(listing, tests=(*listing.tests, *tests))
        return listing

    def _tests(self, test: ast.expr, variable: str) -> tuple[tuple[str, str], ...] | None:
        """Return a filter of names as tests; None where it is none of a known form."""
        if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
            parts = [self._tests(part, variable) for part in test.values]
            return None if None in parts else tuple(item for part in parts if part is not None for item in part)
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and _uses(test.comparators[0], variable):
            text = self._source.value(test.left)
            how = "in" if isinstance(test.ops[0], ast.In) else "not in" if isinstance(test.ops[0], ast.NotIn) else ""
            return ((how, text),) if how and isinstance(text, str) and UNRESOLVED not in text else None
        if not isinstance(test, ast.Call):
            return None
        method = dotted(test.func).rpartition(".")[2]
        if method in ("isfile", "is_file", "exists", "isdir", "is_dir"):
            return ()
        if method in ("endswith", "startswith") and test.args and isinstance(test.func, ast.Attribute):
            text = self._source.value(test.args[0])
            return ((method, text),) if isinstance(text, str) and UNRESOLVED not in text else None
        if method in ("match", "search", "fullmatch") and dotted(test.func) == f"re.{method}" and len(test.args) == 2:
            pattern = self._source.value(test.args[0])
            is_known = isinstance(pattern, str) and UNRESOLVED not in pattern and _pattern(method, pattern) is not None
            return ((method, pattern),) if is_known else None
        return None

    def _call(self, node: ast.Call, names: Mapping[str, Listing], depth: int) -> Listing | None:
        name, method = dotted(node.func), dotted(node.func).rpartition(".")[2]
        keywords = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        if method in ("glob", "iglob", "listdir", "iterdir", "scandir"):
            return self._listed(node, method) if node.lineno in self._lines else None
        if name in ("list", "tuple", "set", "str", "Path", "pathlib.Path") and len(node.args) == 1:
            return self.read(node.args[0], names, depth + 1)
        if name in ("sorted", "max") and len(node.args) == 1:
            listing = self.read(node.args[0], names, depth + 1)
            if listing is None or listing.order is not None:
                return None
            ordered = _ordered(self._source, listing, keywords)
            if ordered is None or name == "sorted":
                return ordered
            return replace(ordered, is_newest=True) if not ordered.falls else None
        functions = self._source.functions.get(name.rpartition(".")[2], []) if not node.args and not node.keywords else []
        returns = [part.value for function in functions for part in ast.walk(function) if isinstance(part, ast.Return)]
        if len(functions) != 1 or len(returns) != 1 or returns[0] is None:
            return None
        return self.read(returns[0], depth=depth + 1)

    def _listed(self, node: ast.Call, method: str) -> Listing | None:
        of_path = isinstance(node.func, ast.Attribute) and dotted(node.func.value) not in ("glob", "os")
        pattern_text = self._source.value(node.args[0]) if node.args else ""
        if of_path and isinstance(node.func, ast.Attribute):
            folder = self._source.value(node.func.value)
            pattern_text = f"{folder}/{pattern_text or '*'}" if isinstance(folder, str) and isinstance(pattern_text, str) else None
        elif method in ("listdir", "scandir"):
            pattern_text = f"{pattern_text or '.'}/*" if isinstance(pattern_text, str) else None
        if not isinstance(pattern_text, str) or UNRESOLVED in pattern_text:
            return None
        path = PurePosixPath(pattern_text)
        plain = WILDCARD.search(str(path.parent)) is None and WILDCARD.search(path.name) is not None and "**" not in path.name
        return Listing((str(path),)) if plain else None


def _uses(node: ast.AST, name: str) -> bool:
    return any(isinstance(inner, ast.Name) and inner.id == name for inner in ast.walk(node))


def _is_path_of(node: ast.expr, variable: str) -> bool:
    """Tell whether an element of a list is the file itself, alone or below its folder: `os.path.join(folder, name)`."""
    if isinstance(node, ast.Name):
        return node.id == variable
    if isinstance(node, ast.Attribute):
        return node.attr == "path" and _is_path_of(node.value, variable)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return _is_path_of(node.right, variable)
    if isinstance(node, ast.Call) and node.args:
        method = dotted(node.func).rpartition(".")[2]
        return method in ("join", "Path", "str", "fspath") and _is_path_of(node.args[-1], variable)
    return False


def _ordered(source: TrainerSource, listing: Listing, keywords: Mapping[str, ast.expr]) -> Listing | None:
    """Return a listing in the order of a sort; None where its key is none of a known form."""
    key, reverse = keywords.get("key"), keywords.get("reverse")
    falls = isinstance(reverse, ast.Constant) and reverse.value is True
    if reverse is not None and not isinstance(reverse, ast.Constant):
        return None
    if key is None:
        return replace(listing, order=ListingOrder.NAME, falls=falls)
    functions = source.functions.get(key.id, []) if isinstance(key, ast.Name) else []
    parts = [part for function in functions for part in ast.walk(function) if isinstance(part, ast.Return)]
    returns = [part.value for part in parts if part.value is not None]
    body = key.body if isinstance(key, ast.Lambda) else returns[0] if len(returns) == 1 else key if not functions else None
    if body is None:
        return None
    if isinstance(body, ast.UnaryOp) and isinstance(body.op, ast.USub):
        body, falls = body.operand, not falls
    name = dotted(body.func) if isinstance(body, ast.Call) else body.attr if isinstance(body, ast.Attribute) else dotted(body)
    last = name.rpartition(".")[2]
    if last in MODIFIED:
        return replace(listing, order=ListingOrder.MODIFIED, falls=falls)
    if last in CHANGED:
        return replace(listing, order=ListingOrder.CHANGED, falls=falls)
    return replace(listing, order=ListingOrder.NUMBER, falls=falls) if last == "int" and isinstance(body, ast.Call) else None
