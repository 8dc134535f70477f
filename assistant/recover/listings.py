"""Whether a program that lists a folder sorts out checkpoints there and takes the newest of them, as its source shows. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from assistant.recover.checkpoints.save_options import save_folders
from assistant.recover.job_program import JobProgram
from assistant.recover.load_calls import BASE_NAMES, enclosing_functions, in_loop
from assistant.recover.shell.folders import UNRESOLVED
from assistant.recover.trainer_source import SourceCall, TrainerSource, dotted, syntax_tree

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
    folders = [one.folder for one in save_folders([program])]
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
        calls = (inner for inner in ast.walk(loop) if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute))
        return {
            inner.func.value.id
            for inner in calls
            if isinstance(inner.func, ast.Attribute)
            and inner.func.attr in ("append", "add")
            and isinstance(inner.func.value, ast.Name)
        }
    assigned = (
        node for node in ast.walk(tree) if isinstance(node, ast.Assign) and any(one is holder for one in ast.walk(node.value))
    )
    return {target.id for node in assigned for target in node.targets if isinstance(target, ast.Name)}


def _deletes(tree: ast.AST, holder: ast.AST, names: set[str]) -> bool:
    """Tell whether a loop over what was listed deletes files."""
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For) and (node is holder or _named(node.iter) & names)]
    calls = (inner for loop in loops for inner in ast.walk(loop) if isinstance(inner, ast.Call))
    return any(dotted(inner.func).rpartition(".")[2] in DELETES for inner in calls)


def _newest_of(tree: ast.AST, holder: ast.AST, names: set[str]) -> list[ast.expr]:
    """Return the expressions that take the largest or the last of what was listed."""
    newest: list[ast.expr] = []
    for node in ast.walk(tree):
        taken: list[ast.expr] = []
        if isinstance(node, ast.Call) and dotted(node.func) == "max":
            taken = node.args
        elif isinstance(node, ast.Subscript) and ast.unparse(node.slice) == "-1":
            taken = [node.value]
        if isinstance(node, ast.expr) and any(
            _named(one) & names or any(inner is holder for inner in ast.walk(one)) for one in taken
        ):
            newest.append(node)
    return newest


def _goes_on_there(tree: ast.AST, newest: Sequence[ast.expr]) -> bool:
    """Tell whether the newest is where a loop begins or what a call loads; one that is only shown is neither."""
    held: set[str] = set()

    def holds(node: ast.AST) -> bool:
        names = {
            one.id if isinstance(one, ast.Name) else one.attr for one in ast.walk(node) if isinstance(one, ast.Name | ast.Attribute)
        }
        return bool(names & held) or any(inner is one for inner in ast.walk(node) for one in newest)

    for _ in range(MOST_ROUNDS):
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and holds(node.value):
                held |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            elif isinstance(node, ast.FunctionDef) and any(
                isinstance(inner, ast.Return) and inner.value is not None and holds(inner.value) for inner in ast.walk(node)
            ):
                held.add(node.name)
    for node in ast.walk(tree):
        if isinstance(node, ast.While) and holds(node.test):
            return True
        if isinstance(node, ast.Call) and GOES_ON.search(dotted(node.func).rpartition(".")[2]):
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            if any(holds(one) for one in given):
                return True
    return False
