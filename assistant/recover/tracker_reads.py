"""Whether a training program reads a tracker file: a small file of the file system that names the checkpoint to go on from.

A link that leads to the checkpoint is one as well: what a program that knows links reads below `latest/` is of where it leads.

The name of the tracker is followed through assignments, `with … as`, attributes and parameters to a call that opens a file for
reading. What is read from a URL, a socket, a process or standard input is no tracker, and neither is a file that is only written.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from assistant.recover.checkpoints.save_options import save_folders
from assistant.recover.job_program import JobProgram
from assistant.recover.load_calls import BASE_NAMES, is_after_training
from assistant.recover.shell.folders import UNRESOLVED, normal
from assistant.recover.trainer_source import UNPARSED, SourceCall, TrainerSource, dotted, syntax_tree

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
        names = [one.arg for one in function.args.args]
        names = names[1:] if names[:1] in (["self"], ["cls"]) else names
        given = [*zip(names, call.args, strict=False), *((one.arg, one.value) for one in call.keywords if one.arg)]
        self.holders |= {(function.name, name) for name, value in given if self._holds(value)}

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
    node = next((one.value for one in call.keywords if one.arg == "mode"), call.args[place] if len(call.args) > place else None)
    mode = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "r"
    return not set(mode) & set("wax") or "+" in mode
