"""Whether a program takes the newest of what it saved: one out of an ordered listing of a folder. Pure.

Followed through assignments, list comprehensions and functions of the same file. What is not proven is no newest: the first of an
ascending order, the best by a loss, text order of numbers that are not padded, a folder that nothing is saved to.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path

from assistant.recover.checkpoints.save_options import save_folders
from assistant.recover.job_program import JobProgram
from assistant.recover.shell.folders import UNRESOLVED, normal
from assistant.recover.source.load_calls import BASE_NAMES, enclosing_functions, in_loop
from assistant.recover.source.trainer_source import MOST_DEPTH, SourceCall, TrainerSource, dotted, syntax_tree

LISTS = frozenset("glob rglob iglob listdir iterdir scandir get_last_checkpoint latest_step latest_checkpoint".split())
NAME_TESTS = frozenset("match fullmatch search findall startswith endswith removeprefix removesuffix split rsplit".split())
"""Calls by which a program judges or takes apart the name of a file."""
SAVE_FORM = re.compile(r"step|iter|epoch|ckpt|check_?point", re.IGNORECASE)
DELETES = frozenset("rmtree unlink remove rmdir removedirs".split())
TIDIES = re.compile(r"purge|prune|delet|remov|rotat|clean|retain", re.IGNORECASE)
"""Names of functions that look for what they delete."""
GOES_ON = re.compile(r"^range$|^open$|load|restor|resum|read", re.IGNORECASE)
"""Calls that begin a loop at a step, or take in what lies at a path."""
MOST_ROUNDS = 3
"""Assignments in a row through which the newest is followed."""

Loop = ast.For | ast.comprehension


def newest_picks(program: JobProgram) -> list[tuple[TrainerSource, SourceCall]]:
    """Return the calls by which a program lists its own folder, matches names of checkpoints and goes on from the newest.

    A listing of another folder than it saves to, or of which anything is deleted afterwards, counts for nothing.
    """
    folders = [folder.folder for folder in save_folders([program])]
    return [
        (source, call)
        for source in program.sources
        for call in source.called(*LISTS)
        if _picks_newest(program, source, call, folders)
    ]


def _picks_newest(program: JobProgram, source: TrainerSource, call: SourceCall, folders: Sequence[Path]) -> bool:
    if is_repeated(source, call):
        return False
    tree = syntax_tree(source.text)
    for holder in ast.walk(tree):
        for loop in _loops(holder):
            listing = _listing(loop.iter, call)
            if listing is not None and _own_folder(program, source, listing, folders) and _matches_saves(source, loop, holder):
                names = _collected(tree, loop, holder)
                return not _deletes(tree, holder, names) and _goes_on_there(tree, _newest_of(tree, holder, names))
    return False


def is_repeated(source: TrainerSource, call: SourceCall) -> bool:
    """Tell whether a call is made while the training runs, or to tidy up: it does not look for where to begin."""
    if not source.parsed:
        return True
    functions = [name for name, _ in enclosing_functions(source, call.line)]
    uses = list(source.called(functions[-1])) if functions else []
    if any(TIDIES.search(name) for name in functions) or (uses and all(in_loop(source, use.line) for use in uses)):
        return True
    loops = (node for node in ast.walk(syntax_tree(source.text)) if isinstance(node, ast.For | ast.While))
    around = (node for node in loops if node.lineno <= call.line <= (node.end_lineno or node.lineno))
    return any(_listing(node.iter if isinstance(node, ast.For) else node.test, call) is None for node in around)


def _own_folder(program: JobProgram, source: TrainerSource, listing: ast.Call, folders: Sequence[Path]) -> bool:
    """Tell whether the folder that is listed may be the one of the run: one that is known has to be."""
    node = listing.args[0] if listing.args else listing.func.value if isinstance(listing.func, ast.Attribute) else None
    if node is None or BASE_NAMES.search(source.text_of(node)):
        return False
    value = source.value(node)
    if not isinstance(value, str) or UNRESOLVED in value or not folders:
        return True
    plain = value.partition("*")[0]
    folder = program.launch.outside(plain if plain == value else f"{plain}x".rpartition("/")[0] or ".")
    return folder is None or any(folder == own or folder in own.parents or own in folder.parents for own in folders)


def _loops(node: ast.AST) -> Iterator[Loop]:
    if isinstance(node, ast.For):
        yield node
    elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
        yield from node.generators


def _listing(node: ast.AST, call: SourceCall) -> ast.Call | None:
    calls = (inner for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return next((inner for inner in calls if inner.lineno == call.line and dotted(inner.func) == call.name), None)


def _named(node: ast.AST) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}


def _matches_saves(source: TrainerSource, loop: Loop, holder: ast.AST) -> bool:
    """Tell whether the names in a loop are held against a text that names checkpoints."""
    entry = _named(loop.target)
    for test in ast.walk(holder):
        if not isinstance(test, ast.Call) or dotted(test.func).rpartition(".")[2] not in NAME_TESTS or not _named(test) & entry:
            continue
        values = [source.value(node) for node in [*test.args, *([test.func.value] if isinstance(test.func, ast.Attribute) else [])]]
        forms = [value for value in values if isinstance(value, str)]
        if any(SAVE_FORM.search(form) and not BASE_NAMES.search(form) for form in forms):
            return True
    return False


def _collected(tree: ast.AST, loop: Loop, holder: ast.AST) -> set[str]:
    """Return the names under which what a loop finds is kept."""
    if isinstance(loop, ast.For):
        functions = (node.func for node in ast.walk(loop) if isinstance(node, ast.Call))
        lists = (
            function.value for function in functions if isinstance(function, ast.Attribute) and function.attr in ("append", "add")
        )
        return {node.id for node in lists if isinstance(node, ast.Name)}
    assigns = (node for node in ast.walk(tree) if isinstance(node, ast.Assign) and holder in ast.walk(node.value))
    return {target.id for node in assigns for target in node.targets if isinstance(target, ast.Name)}


def _deletes(tree: ast.AST, holder: ast.AST, names: set[str]) -> bool:
    """Tell whether a loop over what was listed deletes files."""
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For) and (node is holder or _named(node.iter) & names)]
    calls = (inner for loop in loops for inner in ast.walk(loop) if isinstance(inner, ast.Call))
    return any(dotted(inner.func).rpartition(".")[2] in DELETES for inner in calls)


def _newest_of(tree: ast.AST, holder: ast.AST, names: set[str]) -> list[ast.expr]:
    """Return the expressions that take the largest or the last of what was listed."""
    newest: list[ast.expr] = []
    for node in ast.walk(tree):
        picked_from: list[ast.expr] = []
        if isinstance(node, ast.Call) and dotted(node.func) == "max":
            picked_from = node.args
        elif isinstance(node, ast.Subscript) and ast.unparse(node.slice) == "-1":
            picked_from = [node.value]
        if isinstance(node, ast.expr) and any(_named(part) & names or holder in ast.walk(part) for part in picked_from):
            newest.append(node)
    return newest


def _goes_on_there(tree: ast.AST, newest: Sequence[ast.expr]) -> bool:
    """Tell whether the newest is where a loop begins or what a call loads; one that is only shown is neither."""
    names_held: set[str] = set()

    def holds(node: ast.AST) -> bool:
        names = {
            ref.id if isinstance(ref, ast.Name) else ref.attr for ref in ast.walk(node) if isinstance(ref, ast.Name | ast.Attribute)
        }
        return bool(names & names_held) or any(inner is pick for inner in ast.walk(node) for pick in newest)

    for _ in range(MOST_ROUNDS):
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and holds(node.value):
                names_held |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.FunctionDef) and any(
                isinstance(inner, ast.Return) and inner.value is not None and holds(inner.value) for inner in ast.walk(node)
            ):
                names_held.add(node.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.While) and holds(node.test):
            return True
        if isinstance(node, ast.Call) and GOES_ON.search(dotted(node.func).rpartition(".")[2]):
            arguments_passed = [*node.args, *(keyword.value for keyword in node.keywords)]
            if any(holds(argument) for argument in arguments_passed):
                return True
    return False


BY_AGE = re.compile(r"int|getmtime|getctime|st_mtime|st_ctime|st_mtime_ns")
"""Functions and fields that give the step or the time of a save."""
MUTATIONS = frozenset("pop reverse append appendleft insert remove extend clear".split())
BY_QUALITY = re.compile(r"loss|metric|score|best|\bacc|eval|float", re.IGNORECASE)
ONE_ONLY = re.compile(r"best|final|ema|\binit|base|pretrain", re.IGNORECASE)
"""Parts of names that are no step of a run."""
PADDED = re.compile(r":0\d+d?\}|\bzfill\(|%0\d+d")
"""Names whose numbers have the same length, so that their text order is their order."""
WILDCARD = re.compile(r"[*?\[{]")


class Kind(Enum):
    """What an expression stands for."""

    LISTING = auto()
    ASCENDING = auto()
    DESCENDING = auto()
    NEWEST = auto()
    NOTHING = auto()
    """No checkpoint: None or an empty text."""


@dataclass(frozen=True)
class Choice:
    """What an expression chooses from a listing."""

    kind: Kind
    folders: tuple[str, ...] = ()
    """Which it looks into and joins with it, as the program sees them."""
    prefix: str = ""
    """How the names begin that it looks at; empty where any are."""
    numbers: bool = False
    """Whether its elements are numbers: steps taken out of the names."""

    @property
    def placed(self) -> bool:
        """Whether all folders are known."""
        return UNRESOLVED not in self.folders


NONE_CHOSEN = Choice(Kind.NOTHING)
Bound = Mapping[str, ast.expr]


def newest_choice(program: JobProgram, source: TrainerSource, node: ast.expr) -> Choice | None:
    """Return the choice that an expression makes where it is surely the newest of a listing; else None.

    Each folder that is known is one that the program saves to; whether all are known says `Choice.placed`.
    """
    choice = _Reader(source).read(node, {})
    if choice is None or choice.kind is not Kind.NEWEST or not choice.folders:
        return None
    saved = {Path(normal(str(folder.folder))) for folder in save_folders([program])}
    outside = [program.launch.outside(folder) for folder in choice.folders if folder != UNRESOLVED]
    if any(folder is None or Path(normal(str(folder))) not in saved for folder in outside):
        return None
    return None if any(BASE_NAMES.search(folder) for folder in choice.folders) else choice


class _Reader:
    def __init__(self, source: TrainerSource, before: Mapping[str, Choice] | None = None) -> None:
        self._source = source
        self._before = before or {}
        """What names stood for before they are given again: in `dirs = sorted(dirs)`."""
        self._open: list[str] = []
        """Names and functions that are being followed."""

    def read(self, node: ast.expr, bound: Bound, depth: int = 0) -> Choice | None:
        """Return what an expression chooses; None where that is not proven."""
        if depth > MOST_DEPTH:
            return None
        if isinstance(node, ast.Constant):
            return NONE_CHOSEN if node.value is None or node.value == "" else None
        if isinstance(node, ast.Name):
            return self._name(node.id, bound, depth)
        if isinstance(node, ast.Attribute) and node.attr in ("name", "path"):
            return self.read(node.value, bound, depth + 1)
        if isinstance(node, ast.IfExp):
            return _agreed([self.read(branch, bound, depth + 1) for branch in (node.body, node.orelse)])
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp):
            return self._comprehension(node, bound, depth)
        if isinstance(node, ast.Subscript):
            return self._element(node, bound, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            return self._joined([node.left, node.right], bound, depth)
        if isinstance(node, ast.JoinedStr):
            return self._formatted(node, bound, depth)
        return self._call(node, bound, depth) if isinstance(node, ast.Call) else None

    def _name(self, name: str, bound: Bound, depth: int) -> Choice | None:
        if name in self._before:
            return self._before[name]
        if name in bound:
            return self.read(bound[name], {}, depth + 1)
        values = self._source.names.get(name, [])
        if not values or name in self._open or len(values) > 8 or name in self._source.rebound:
            return None
        if any(call.name.rpartition(".")[0] == name and call.method in MUTATIONS for call in self._source.calls):
            return None
        self._open.append(name)
        read = [self.read(value, bound, depth + 1) for value in values if not _made_from(name, value)]
        self._open.pop()
        choice = _agreed(read) if read else None
        for value in values:
            if choice is not None and _made_from(name, value):
                choice = self._again(name, value, choice, bound, depth)
        sorts = [call for call in self._source.calls if call.name == f"{name}.sort"]
        if choice is None or not sorts:
            return choice
        if choice.kind is not Kind.LISTING:
            return None
        return _agreed([self._ordered(choice, call.keywords) for call in sorts])

    def _again(self, name: str, value: ast.expr, choice: Choice, bound: Bound, depth: int) -> Choice | None:
        """Return a choice behind `dirs = sorted(dirs)`: the same expression with what the name was before."""
        reader = _Reader(self._source, {**self._before, name: choice})
        return reader.read(value, bound, depth + 1)

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp, bound: Bound, depth: int) -> Choice | None:
        generator = node.generators[0]
        listed = self.read(generator.iter, bound, depth + 1)
        if len(node.generators) > 1 or listed is None or listed.kind is Kind.NEWEST or not isinstance(generator.target, ast.Name):
            return None
        element, name = node.elt, generator.target.id
        if isinstance(element, ast.Tuple) or not _made_from(name, element):
            return None
        for test in generator.ifs:
            prefix = _filter_prefix(test)
            if prefix is None:
                return None
            listed = replace(listed, prefix=prefix or listed.prefix)
        numbers = listed.numbers or (isinstance(element, ast.Call) and dotted(element.func) == "int")
        if isinstance(element, ast.Call) and dotted(element.func).endswith("join"):
            listed = replace(listed, folders=(*listed.folders, *self._folders(element.args[:-1], bound)))
        return replace(listed, numbers=numbers)

    def _element(self, node: ast.Subscript, bound: Bound, depth: int) -> Choice | None:
        listed, place = self.read(node.value, bound, depth + 1), self._place(node.slice)
        if listed is not None and (listed.kind, place) in ((Kind.ASCENDING, -1), (Kind.DESCENDING, 0)):
            return replace(listed, kind=Kind.NEWEST)
        return None

    def _place(self, node: ast.expr) -> int | None:
        negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
        inner = node.operand if isinstance(node, ast.UnaryOp) else node
        value = inner.value if isinstance(inner, ast.Constant) and isinstance(inner.value, int) else None
        return None if value is None else -value if negative else value

    def _joined(self, parts: Sequence[ast.expr], bound: Bound, depth: int) -> Choice | None:
        """Return the choice in `os.path.join(folder, newest, …)`, of which what stands before it is its folder."""
        for place, part in enumerate(parts):
            choice = self.read(part, bound, depth + 1)
            if choice is None or choice.kind is not Kind.NEWEST:
                continue
            return replace(choice, folders=(*choice.folders, *(self._folders(parts[:place], bound) if place else ())))
        return None

    def _formatted(self, node: ast.JoinedStr, bound: Bound, depth: int) -> Choice | None:
        """Return the choice in `f"{folder}/step_{newest}"`."""
        parts = [value.value if isinstance(value, ast.FormattedValue) else value for value in node.values]
        choices = [self.read(part, bound, depth + 1) for part in parts]
        newest_places = [place for place, choice in enumerate(choices) if choice is not None and choice.kind is Kind.NEWEST]
        if len(newest_places) != 1:
            return None
        before = self._text(ast.JoinedStr(node.values[: newest_places[0]]), bound)
        choice = choices[newest_places[0]]
        if choice is None:
            return None
        if before is None:
            return replace(choice, folders=(*choice.folders, UNRESOLVED)) if newest_places[0] else choice
        folder = before.rpartition("/")[0]
        return replace(choice, folders=(*choice.folders, folder)) if folder else choice

    def _call(self, node: ast.Call, bound: Bound, depth: int) -> Choice | None:
        name, method = dotted(node.func), dotted(node.func).rpartition(".")[2]
        keywords = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
        if method in ("glob", "iglob", "rglob", "listdir", "iterdir", "scandir"):
            return self._listing(node, method, bound)
        if name in ("list", "str", "Path", "pathlib.Path", "os.path.abspath", "os.fspath") and len(node.args) == 1:
            return self.read(node.args[0], bound, depth + 1)
        if name.endswith("path.join") or name in ("osp.join", "Path", "pathlib.Path"):
            return self._joined(node.args, bound, depth)
        if name in ("sorted", "max") and len(node.args) == 1:
            listed = self.read(node.args[0], bound, depth + 1)
            if listed is None or listed.kind in (Kind.NEWEST, Kind.NOTHING):
                return None
            ordered = self._ordered(listed, keywords)
            if ordered is None or name == "sorted":
                return ordered
            default = keywords.get("default")
            empty = default is None or self.read(default, bound, depth + 1) == NONE_CHOSEN
            return replace(ordered, kind=Kind.NEWEST) if ordered.kind is Kind.ASCENDING and empty else None
        return self._function(node, keywords, bound, depth)

    def _listing(self, node: ast.Call, method: str, bound: Bound) -> Choice | None:
        of_path = isinstance(node.func, ast.Attribute) and dotted(node.func.value) not in ("glob", "os")
        if of_path and isinstance(node.func, ast.Attribute):
            folder = self._text(node.func.value, bound)
            pattern = self._text(node.args[0], bound) if node.args else ""
            path = f"{folder}/{pattern}" if folder and pattern and method != "rglob" else folder if not node.args else None
        else:
            path = self._text(node.args[0], bound) if node.args else "."
        if not path:
            return Choice(Kind.LISTING, (UNRESOLVED,)) if node.args or of_path else None
        if method in ("listdir", "iterdir", "scandir"):
            return Choice(Kind.LISTING, (path,))
        above, _, last = path.rstrip("/").rpartition("/")
        start = WILDCARD.search(last)
        if WILDCARD.search(above) or start is None:
            return None
        return Choice(Kind.LISTING, (above or ".",), last[: start.start()])

    def _function(self, node: ast.Call, keywords: Mapping[str, ast.expr], bound: Bound, depth: int) -> Choice | None:
        """Return what a function of the same file returns, wherever it does."""
        called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(node.func, ast.Attribute) else ""
        functions = self._source.functions.get(called, [])
        if len(functions) != 1 or f"{functions[0].name}()" in self._open:
            return None
        function = functions[0]
        names = [node.arg for node in (*function.args.posonlyargs, *function.args.args) if node.arg not in ("self", "cls")]
        bindings = {**dict(zip(names, node.args, strict=False)), **keywords}
        inner = {name: _with(value, bound) for name, value in bindings.items()}
        returns = [part.value for part in ast.walk(function) if isinstance(part, ast.Return)]
        self._open.append(f"{function.name}()")
        read = [NONE_CHOSEN if one is None else self.read(one, inner, depth + 1) for one in returns]
        self._open.pop()
        return _agreed(read) if read else None

    def _ordered(self, listed: Choice, keywords: Mapping[str, ast.expr]) -> Choice | None:
        """Return a listing in its order; None where that is not surely one of steps or times."""
        key, reverse = keywords.get("key"), keywords.get("reverse")
        if reverse is not None and not (isinstance(reverse, ast.Constant) and isinstance(reverse.value, bool)):
            return None
        down = isinstance(reverse, ast.Constant) and reverse.value is True
        if key is None:
            if not listed.numbers and not PADDED.search(self._source.text):
                return None
        else:
            functions = self._source.functions.get(key.id, []) if isinstance(key, ast.Name) else []
            written = ast.unparse(functions[0] if len(functions) == 1 else key)
            if len(functions) == 1:
                results = [inner.value for inner in ast.walk(functions[0]) if isinstance(inner, ast.Return)]
            else:
                results = [key.body] if isinstance(key, ast.Lambda) else [ast.Call(key, [], [])]
            directions = {_direction(result) for result in results if result is not None}
            if BY_QUALITY.search(written) or None in results or directions not in ({1}, {-1}):
                return None
            down = down != (directions == {-1})
        return replace(listed, kind=Kind.DESCENDING if down else Kind.ASCENDING)

    def _folders(self, parts: Sequence[ast.expr], bound: Bound) -> tuple[str, ...]:
        texts = [self._text(part, bound) for part in parts]
        return ("/".join(text.rstrip("/") or "/" for text in texts if text) if all(texts) else UNRESOLVED,)

    def _text(self, node: ast.expr, bound: Bound) -> str | None:
        value = self._source.value(_with(node, bound))
        return value if isinstance(value, str) and value and UNRESOLVED not in value else None


def _agreed(choices: Collection[Choice | None]) -> Choice | None:
    """Return the choice that several values of a name all make; those that choose nothing are passed over."""
    choices_made = {choice for choice in choices if choice is not None and choice.kind is not Kind.NOTHING}
    if None in choices or len(choices_made) > 1:
        return None
    return choices_made.pop() if choices_made else NONE_CHOSEN


def _direction(key: ast.expr) -> int | None:
    """Return 1 for the value of a key that grows with step or time, -1 for one that falls; None where that is not proven."""
    if isinstance(key, ast.IfExp):
        branches = [branch for branch in (key.body, key.orelse) if not isinstance(branch, ast.Constant | ast.UnaryOp)]
        return _direction(branches[0]) if len(branches) == 1 else None
    if isinstance(key, ast.Tuple):
        return _direction(key.elts[0]) if key.elts else None
    if isinstance(key, ast.UnaryOp) and isinstance(key.op, ast.USub):
        inner = _direction(key.operand)
        return -inner if inner is not None else None
    name = dotted(key.func) if isinstance(key, ast.Call) else key.attr if isinstance(key, ast.Attribute) else ""
    return 1 if BY_AGE.fullmatch(name.rpartition(".")[2]) else None


def _made_from(name: str, node: ast.expr) -> bool:
    """Tell whether an expression uses a name."""
    return any(isinstance(inner, ast.Name) and inner.id == name for inner in ast.walk(node))


def _filter_prefix(test: ast.expr) -> str | None:
    """Return how the names begin that a filter lets through, empty where it does not say; None where it may choose one."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return ""
    if isinstance(test, ast.BoolOp):
        parts = [_filter_prefix(value) for value in test.values]
        if not isinstance(test.op, ast.And) or None in parts:
            return None
        return next((part for part in parts if part), "")
    if isinstance(test, ast.Compare):
        if isinstance(test.ops[0], ast.NotIn):
            return ""
        return "" if isinstance(test.ops[0], ast.In) and not ONE_ONLY.search(ast.unparse(test)) else None
    if isinstance(test, ast.Call):
        text = test.args[0].value if test.args and isinstance(test.args[0], ast.Constant) else None
        if dotted(test.func).endswith("startswith"):
            return text if isinstance(text, str) and not ONE_ONLY.search(text) else None
        if dotted(test.func).endswith("endswith"):
            return "" if isinstance(text, str) and text.startswith(".") else None
        return None if ONE_ONLY.search(ast.unparse(test)) else ""
    return None


def _with(node: ast.expr, bound: Bound) -> ast.expr:
    """Return an expression with the values of a function's parameters in their place."""
    if not bound:
        return node

    class Replaced(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.expr:
            return bound.get(name.id, name)

    result = Replaced().visit(copy.deepcopy(node))
    return result if isinstance(result, ast.expr) else node
