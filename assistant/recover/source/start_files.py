"""Files that a training program reads and removes when it starts. Pure.

A tracker is a small file that names the checkpoint to go on from. A link that leads to the checkpoint is one as well: what a
program that knows links reads below `latest/` is the checkpoint.

Of removals, retention is none: what is listed while the training runs, a part of a listing, what a test in the loop picks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from assistant.recover.checkpoints.save_options import save_folders
from assistant.recover.job_program import JobProgram
from assistant.recover.shell.folders import UNRESOLVED, normal
from assistant.recover.source.file_uses import FileUses, file_uses
from assistant.recover.source.load_calls import (
    BASE_NAMES,
    PRESENT,
    about_saves,
    is_after_training,
    is_for_beginning,
    training_functions,
)
from assistant.recover.source.newest_choice import DELETES, LISTS, is_repeated
from assistant.recover.source.paths import COUNTED, Caller, source_call
from assistant.recover.source.trainer_source import UNPARSED, SourceCall, TrainerSource, dotted, syntax_tree

TRACKER_NAME = re.compile(
    r"(?:^|/)(?:latest_checkpointed_iteration(?:\.txt)?|latest(?:\.txt|_step(?:\.txt)?)?|last_checkpoint(?:\.txt)?|checkpoint\.meta\.json)$"
)
BELOW_LINK = re.compile(r"(?:^|/)latest(?:_(?:ckpt|checkpoint|step))?(?:$|/[^/])")
LINKS = re.compile(r"\b(?:symlink|symlink_to|islink|is_symlink|readlink)\b")
"""What a program names for which `latest` is a link, and not a folder that each save writes anew."""
HINT = re.compile(r"latest|last_checkpoint|checkpoint\.meta|model_checkpoint_path")
TENSORFLOW = frozenset(("tensorflow", "keras", "tf_keras", "orbit"))
OTHERS_OF_ITS_WORDS = frozenset(("flax", "orbax", "jax"))
"""Libraries with a `latest_checkpoint` of their own, whose programs read their data by TensorFlow."""
STATE_HINT = "model_checkpoint_path"
"""What a program names that reads TensorFlow's file `checkpoint` by itself."""
STATE_NAME = re.compile(r"(?:^|/)checkpoint$")
LATEST_STATE = re.compile(r"\blatest_checkpoint\b|\bget_checkpoint_state\b")
RESTORES = ("restore", "load_weights", "restore_saveables", "read", "restore_checkpoint")
GOES_ON = ("train_and_evaluate", "MonitoredTrainingSession", "Supervisor", "train")
"""Calls that train and begin by themselves at the newest checkpoint of their folder; the last one of an Estimator alone."""
OPENS = frozenset("open io.open codecs.open fsspec.open gfile.GFile tf.io.gfile.GFile gzip.open linecache.getline".split())
FILE_METHODS = frozenset(("read_text", "read_bytes", "readlink"))
"""Methods that only paths have."""
PATH_READERS = frozenset(("np.loadtxt", "numpy.loadtxt", "np.genfromtxt", "os.readlink", "np.fromfile"))
STATE_READERS = frozenset(("torch.load", "load_file", "safetensors.torch.load_file", "np.load", "numpy.load", "paddle.load"))
"""Functions of libraries that load what lies at a path."""
MOST_ROUNDS = 8
"""Assignments in a row through which a name is followed."""


def reads_tracker(source: TrainerSource) -> bool:
    """Tell whether a program opens a tracker file for reading."""
    if not source.parsed or not HINT.search(source.text):
        return False
    try:
        return _Flow(syntax_tree(source.text), source.text).reads()
    except UNPARSED:
        return False


def restores_latest(program: JobProgram, source: TrainerSource, training: Collection[str]) -> bool:
    """Tell whether a program goes on from the checkpoint that TensorFlow's tracker names, before it trains.

    Sources: tensorflow/python/checkpoint/checkpoint_management.py, latest_checkpoint(), CheckpointManager.restore_or_initialize();
    tensorflow_estimator/python/estimator/estimator.py, Estimator.train(): "If there is a checkpoint in model_dir, it is loaded".

    Args:
        program: That the source belongs to.
        source: One of its files.
        training: From `training_functions`.
    """
    libraries = {name.partition(".")[0] for text in program.sources for name in text.modules}
    if not source.parsed or not libraries & TENSORFLOW or libraries & OTHERS_OF_ITS_WORDS:
        return False
    if any(not is_after_training(program, source, call.line, training) for call in source.called("restore_or_initialize")):
        return True
    for call in source.called(*RESTORES):
        written = " ".join(source.text_of(node) for node in (*call.positional, *call.keywords.values(), *call.conditions))
        if not LATEST_STATE.search(written) or BASE_NAMES.search(written):
            continue
        looks = source.called("latest_checkpoint", "get_checkpoint_state")
        if not is_after_training(program, source, call.line, training) and not any(
            from_elsewhere(program, source, look) for look in looks
        ):
            return True
    for call in source.called(*GOES_ON):
        base = source.names.get(call.name.partition(".")[0], [])
        estimator = any(isinstance(node, ast.Call) and "Estimator" in dotted(node.func) for node in base)
        if estimator if call.method == "train" else call.method != "train_and_evaluate" or "Estimator" in source.text:
            return True
    return False


def from_elsewhere(program: JobProgram, source: TrainerSource, call: SourceCall) -> bool:
    """Tell whether a call asks for the newest checkpoint of a folder that is known, and none that its program saves to."""
    value = source.value(next(iter(call.positional), call.keywords.get("checkpoint_dir")))
    if call.method not in ("latest_checkpoint", "get_checkpoint_state") or not isinstance(value, str) or UNRESOLVED in value:
        return False
    folder = program.launch.outside(value)
    saved = {Path(normal(str(save.folder))) for save in save_folders([program]) if UNRESOLVED not in str(save.folder)}
    if not saved or folder is None:
        return False
    asked_of = Path(normal(str(folder)))
    return not any(asked_of in (own, *own.parents) or own in asked_of.parents for own in saved)


class _Flow:
    """Which names and functions of a program hold the path of a tracker."""

    def __init__(self, tree: ast.Module, text: str) -> None:
        self.nodes = list(ast.walk(tree))
        self.follows_links = LINKS.search(text) is not None
        self.patterns = (
            TRACKER_NAME,
            *((STATE_NAME,) if STATE_HINT in text else ()),
            *((BELOW_LINK,) if self.follows_links else ()),
        )
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
        if name in PATH_READERS or (self.follows_links and name in STATE_READERS):
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
        names = [arg.arg for arg in function.args.args]
        names = names[1:] if names[:1] in (["self"], ["cls"]) else names
        arguments_passed = [
            *zip(names, call.args, strict=False),
            *((keyword.arg, keyword.value) for keyword in call.keywords if keyword.arg),
        ]
        self.holders |= {(function.name, name) for name, value in arguments_passed if self._holds(value)}

    def _holds(self, node: ast.expr) -> bool:
        """Tell whether an expression is the path of a tracker, as far as the text shows."""
        for inner in ast.walk(node):
            text = inner.value if isinstance(inner, ast.Constant) and isinstance(inner.value, str) else ""
            if text and any(pattern.search(text) for pattern in self.patterns):
                return "://" not in text
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
    node = next(
        (keyword.value for keyword in call.keywords if keyword.arg == "mode"), call.args[place] if len(call.args) > place else None
    )
    mode = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "r"
    return not set(mode) & set("wax") or "+" in mode


ORDERS = frozenset("sorted list tuple set reversed".split())
"""Functions that give all of a listing back."""
SHOWS = frozenset("len print log info debug warning truth sorted list enumerate bool any".split())
"""Calls that count, order or show what was listed, and take nothing in."""


class Removal(NamedTuple):
    """What a program removes when it starts."""

    path: str
    """Absolute; a folder, a file, or a pattern."""
    source: str
    """Path of the file in which the line stands."""
    line: int
    """1-based."""
    condition: str = ""
    """The test on which it depends, where the text does not tell whether it holds."""


def removed_by(program: JobProgram) -> Iterator[str]:
    """Yield the folders and patterns that a program itself removes when it starts, absolute, as far as its source tells them."""
    yield from (removal.path for removal in removals_of(program))


def removals_of(program: JobProgram) -> Iterator[Removal]:
    """Yield what a program itself removes when it starts, as far as its source tells it, with the lines."""
    for source in program.sources:
        for removal in source.called("rmtree"):
            node = removal.keywords.get("path") or (removal.positional[0] if removal.positional else None)
            value = source.value(node)
            for path in _outside(program, value if isinstance(value, str) else ""):
                yield Removal(path, source.path, removal.line, _condition(removal))
    uses = file_uses(program)
    training = training_functions(program)
    yield from _removed_by_name(program, uses, training)
    for caller in uses.calls:
        name = dotted(caller.node.func).rpartition(".")[2]
        call = source_call(caller.source, caller.node) if name in LISTS else None
        if call is None or is_repeated(caller.source, call) or uses.is_repeated(caller):
            continue
        if is_after_training(program, caller.source, caller.node.lineno, training):
            continue
        if not _is_all_removed(uses.reader.names_of(caller.source).tree, caller):
            continue
        for pattern in listed_patterns(uses, caller):
            for path in _outside(program, pattern):
                yield Removal(path, caller.source.path, caller.node.lineno, _condition(call))


def _removed_by_name(program: JobProgram, uses: FileUses, training: Collection[str]) -> Iterator[Removal]:
    """Yield what is removed by its path before the training, also by a function that is handed it."""
    for caller in uses.calls:
        name = dotted(caller.node.func)
        of_list = bool(caller.node.args) and name.partition(".")[0] not in ("os", "shutil") and "." in name  # `names.remove(one)`
        if name.rpartition(".")[2] not in DELETES or of_list or uses.is_repeated(caller):
            continue
        if is_after_training(program, caller.source, caller.node.lineno, training):
            continue
        first = caller.node.args[0] if caller.node.args else None
        node = caller.node.func.value if first is None and isinstance(caller.node.func, ast.Attribute) else first
        for text in sorted(uses.reader.texts(caller.source, node, caller.scope)):
            for path in _outside(program, text):
                condition = _condition(source_call(caller.source, caller.node))
                yield Removal(path, caller.source.path, caller.node.lineno, condition)


def _condition(call: SourceCall | None) -> str:
    tests = [test for test in call.conditions if not _asks_presence(test)] if call is not None else []
    test = ast.unparse(tests[-1]) if tests else ""
    return test if len(test) <= _LONGEST_TEST else f"{test[:_LONGEST_TEST]}…"


def _asks_presence(test: ast.expr) -> bool:
    """Tell whether a test only asks whether something lies there, as before each removal of it."""
    calls = [node for node in ast.walk(test) if isinstance(node, ast.Call)]
    return bool(calls) and all(PRESENT.fullmatch(dotted(call.func).rpartition(".")[2]) for call in calls)


_LONGEST_TEST = 80


def _outside(program: JobProgram, path: str) -> Iterator[str]:
    whole = program.launch.outside(path) if path and UNRESOLVED not in path and COUNTED not in path else None
    if whole is not None and UNRESOLVED not in str(whole):
        yield str(whole)


def listed_patterns(uses: FileUses, caller: Caller) -> Iterator[str]:
    """Yield what a call lists, as patterns: `out/step_*.pt` of a glob, `out/*` of a folder; nothing where that is not known."""
    node, method = caller.node, dotted(caller.node.func).rpartition(".")[2]
    of_path = isinstance(node.func, ast.Attribute) and dotted(node.func.value) not in ("glob", "os", "")
    above = (
        uses.reader.texts(caller.source, node.func.value, caller.scope)
        if of_path and isinstance(node.func, ast.Attribute)
        else ("",)
    )
    first = node.args[0] if node.args else None
    inner = uses.reader.texts(caller.source, first, caller.scope) if first is not None else ("",)
    for folder in above:
        for name in inner:
            path = "/".join(part.rstrip("/") or "/" for part in (folder, name) if part)
            path = path if method in ("glob", "iglob", "rglob") else f"{path or '.'}/*"
            if path and UNRESOLVED not in path:
                yield path


def removes_only(source: TrainerSource, call: SourceCall) -> bool:
    """Tell whether all that becomes of a listing is that it is removed, counted and shown: it is no look for a checkpoint."""
    tree = syntax_tree(source.text) if source.parsed else ast.Module([], [])
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.lineno == call.line)
    node = next((node for node in nodes if dotted(node.func) == call.name), None)
    if node is None or not _removals(tree, node):
        return False
    names = _names_of(tree, node)
    rounds = _rounds(tree, node, names)
    entries = {item.id for loop in rounds for item in ast.walk(loop.target) if isinstance(item, ast.Name)}
    harmless: set[int] = set()
    for holder in ast.walk(tree):
        name = dotted(holder.func).rpartition(".")[2] if isinstance(holder, ast.Call) else ""
        if isinstance(holder, ast.Call) and (name in DELETES or name in SHOWS or PRESENT.fullmatch(name)):
            harmless |= {id(inner) for inner in ast.walk(holder)}
        elif isinstance(holder, ast.If | ast.IfExp | ast.While):
            harmless |= {id(inner) for inner in ast.walk(holder.test)}
        elif isinstance(holder, ast.For | ast.comprehension):
            harmless |= {id(inner) for inner in ast.walk(holder.iter)}
    inside = {id(inner) for loop in rounds for inner in ast.walk(loop.node)}
    for inner in ast.walk(tree):
        if not isinstance(inner, ast.Name) or not isinstance(inner.ctx, ast.Load) or id(inner) in harmless:
            continue
        if inner.id in names or (inner.id in entries and id(inner) in inside):
            return False
    return True


class _Round(NamedTuple):
    """What is done with each element of a listing: the body of a loop, or the element of a comprehension."""

    target: ast.expr
    body: Sequence[ast.AST]
    node: ast.AST


def _is_all_removed(tree: ast.Module, listing: Caller) -> bool:
    """Tell whether a loop over a whole listing removes each of its elements, whatever it is."""
    reached = {(call.line, call.name) for call in listing.source.calls}
    removals = [pair for pair in _removals(tree, listing.node) if (pair[1].lineno, dotted(pair[1].func)) in reached]
    return any(_is_of_each(round_of, removal) for round_of, removal in removals)


def _removals(tree: ast.Module, listing: ast.Call) -> list[tuple[_Round, ast.Call]]:
    """Return the calls that remove an element of a listing, each with the loop."""
    removals = []
    for round_of in _rounds(tree, listing, _names_of(tree, listing)):
        entries = {item.id for item in ast.walk(round_of.target) if isinstance(item, ast.Name)}
        for node in (inner for part in round_of.body for inner in ast.walk(part) if isinstance(inner, ast.Call)):
            used = {item.id for item in ast.walk(node) if isinstance(item, ast.Name)}
            if dotted(node.func).rpartition(".")[2] in DELETES and used & entries:
                removals.append((round_of, node))
    return removals


def _is_of_each(round_of: _Round, removal: ast.Call) -> bool:
    for test in (node for part in round_of.body for node in ast.walk(part) if isinstance(node, ast.If | ast.IfExp)):
        if any(inner is removal for inner in ast.walk(test)) and not PRESENT.search(ast.unparse(test.test)):
            return False
    if any(isinstance(node, ast.comprehension) and node.ifs for node in ast.walk(round_of.node)):
        return False
    return not any(isinstance(node, ast.Continue | ast.Break) for part in round_of.body for node in ast.walk(part))


def _names_of(tree: ast.Module, listing: ast.Call) -> set[str]:
    """Return the names that hold all of a listing."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.NamedExpr) and _is_whole(node.value, listing, names):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def _rounds(tree: ast.Module, listing: ast.Call, names: set[str]) -> list[_Round]:
    """Return the loops and comprehensions over all of a listing."""
    rounds = []
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and _is_whole(node.iter, listing, names):
            rounds.append(_Round(node.target, node.body, node))
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp) and _is_whole(node.generators[0].iter, listing, names):
            rounds.append(_Round(node.generators[0].target, [node.elt], node))
    return rounds


def _is_whole(node: ast.expr, listing: ast.Call, names: set[str]) -> bool:
    """Tell whether an expression is a listing with all its elements."""
    while isinstance(node, ast.Call) and dotted(node.func) in ORDERS and node.args and node is not listing:
        node = node.args[0]
    return node is listing or (isinstance(node, ast.Name) and node.id in names)


COUNTS, COPIES = frozenset(("len", "any", "bool")), frozenset(("list", "tuple", "set", "sorted"))
"""Functions of a listing that choose none of it, and those that hand on all of it."""


def looks_for_saves(program: JobProgram, source: TrainerSource, call: SourceCall) -> bool:
    """Tell whether a listing may look for the checkpoint to begin at.

    Not one that is made while the training runs, of another folder, or for what is removed. Beside the program itself it has to
    stand in a function that is called so, or that is called once and gives back what it finds of the program's own saves.
    """
    if is_repeated(source, call) or from_elsewhere(program, source, call) or removes_only(source, call):
        return False
    if _is_only_counted(source, call):
        return False
    finds_own = _finds_saves(program, source, call)
    if not finds_own and not about_saves(source, call):
        return False
    return source is program.source or is_for_beginning(source, call) or (finds_own and _gives_back_once(program, source, call))


def _is_only_counted(source: TrainerSource, call: SourceCall) -> bool:
    """Tell whether a listing only says how many there are, or whether there is any (`any(out.iterdir())`): it chooses none."""
    tree = syntax_tree(source.text) if source.parsed else ast.Module([], [])
    for operand in (operand for node in ast.walk(tree) for operand in _counted_operands(node)):
        listing = operand
        while isinstance(listing, ast.Call) and dotted(listing.func) in COPIES and listing.args:
            listing = listing.args[0]
        if isinstance(listing, ast.Call) and listing.lineno == call.line and dotted(listing.func) == call.name:
            return True
    return False


def _counted_operands(node: ast.AST) -> list[ast.expr]:
    """Return the values of which an expression or statement asks only how many there are, or whether there is any."""
    if isinstance(node, ast.Call):
        return node.args[:1] if dotted(node.func) in COUNTS else []
    if isinstance(node, ast.UnaryOp):
        return [node.operand] if isinstance(node.op, ast.Not) else []
    if not isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
        return []
    # the last operand of `x = a or b` is handed on, those of a test are not
    waiting, operands = [node.test], []
    while waiting:
        test = waiting.pop()
        if isinstance(test, ast.BoolOp):
            waiting += test.values
        else:
            operands.append(test)
    return operands


def _finds_saves(program: JobProgram, source: TrainerSource, call: SourceCall) -> bool:
    """Tell whether a listing finds what the program itself saves, whatever that is called."""
    uses = file_uses(program)
    caller = uses.caller_of(source, call)
    return caller is not None and uses.lists_own(listed_patterns(uses, caller))


def _gives_back_once(program: JobProgram, source: TrainerSource, call: SourceCall) -> bool:
    uses = file_uses(program)
    caller = uses.caller_of(source, call)
    if caller is None or caller.scope is None or uses.is_repeated(caller):
        return False
    return bool(uses.reader.names_of(source).returned.get(id(caller.scope)))
