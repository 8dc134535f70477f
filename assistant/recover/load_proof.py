"""Whether the source of a program proves that it goes on from what an option, a key or a variable of it names.

It counts where that is handed to what restores a training: `fit(ckpt_path=…)`, `train(resume_from_checkpoint=…)`, or a load whose
file gives back a step or an epoch as well, wherever the option is given.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from assistant.recover.checkpoints.files import EPOCH_KEYS, STEP_KEYS
from assistant.recover.file_uses import LOADERS, file_uses
from assistant.recover.job_program import JobProgram
from assistant.recover.load_calls import enclosing_functions
from assistant.recover.trainer_options import file_name, imports
from assistant.recover.trainer_source import SourceCall, TrainerSource, dotted, syntax_tree

WHOLE = {"fit": "ckpt_path", "train": "resume_from_checkpoint"}
"""Calls that restore a training as a whole, with their argument."""
WHOLE_METHODS = (*WHOLE, "load_state")
HAS_WEIGHTS = frozenset(("state_dict", "parameters", "backward", "zero_grad", "load_state_dict"))
"""Calls of a program that has weights, which a load has to give back as well."""
MOST_PASSES = 4
PASSED_ON = frozenset(("Path", "str", "abspath", "expanduser", "realpath", "to_absolute_path", "resolve", "expandvars", "fspath"))
TESTED = frozenset("os path exists isfile isdir is_file is_dir Path len str lower strip not None".split())
"""Names in a test that asks whether there is a checkpoint to load."""


class ArgumentProof(NamedTuple):
    """That a program goes on by an argument."""

    call: str
    """For people: `fit() in train.py, line 12`."""
    files: bool
    """Whether what it loads must be one file."""
    folders: bool = False
    """Whether it must be a folder, of which the program loads files."""


def proof_of_load(
    program: JobProgram,
    key: str,
    settings: Mapping[str, str] | None = None,
    *,
    folders: bool = False,
    counted_on: bool = False,
) -> ArgumentProof | None:
    """Return the call of a program's source that restores a training from what an option, a key or a variable names; else None.

    Args:
        program: Started with it.
        key: Name of the option as the source reads it, or of the variable.
        settings: Of its configurations, by the last part of their keys.
        folders: Whether files of a folder that it names count as well.
        counted_on: Whether the step that the file gives back must be the one that is counted on from: a teacher has one, too.
    """
    settings = settings or {}
    has_no_weights = HAS_WEIGHTS.isdisjoint(call.method for call in program.calls)
    if any(is_set_again(source, key) for source in program.sources):
        return None
    for source in program.sources:
        for call in source.calls:
            node = checkpoint_argument(program, source, call)
            if node is None:
                continue
            folder = _folder_of(source, node) if folders else None
            if not comes_from(program, source, folder or node, key):
                continue
            if not _only_if_given(program, source, call, key, settings):
                continue
            place = f"{call.method}() in {file_name(source)}, line {call.line}"
            if call.method in WHOLE_METHODS:
                return ArgumentProof(place, files=False)
            if counted_on and not _is_counted_on(source, call):
                continue
            if gives_back_a_count(source, call, alone=has_no_weights and call.name not in LOADERS) or (
                folder is not None and _counts_by_name(program, key)
            ):
                return ArgumentProof(place, files=folder is None, folders=folder is not None)
    return None


def checkpoint_argument(program: JobProgram, source: TrainerSource, call: SourceCall) -> ast.expr | None:
    """Return the argument of a call that names what it loads; None of a call that loads no checkpoint."""
    if call.method == "fit" and any(imports(program, item) for item in ("lightning", "pytorch_lightning")):
        return call.keywords.get("ckpt_path")
    if call.method == "train" and any(imports(program, item) for item in ("transformers", "trl")):
        return call.keywords.get("resume_from_checkpoint")
    if call.method == "load_state" and imports(program, "accelerate"):
        return call.keywords.get("input_dir") or (call.positional[0] if call.positional else None)
    if call.name in ("torch.load", "paddle.load", "joblib.load"):
        return call.positional[0] if call.positional else call.keywords.get("f")
    own = (load for load in file_uses(program).loads if load.source is source and load.call is call)
    return next((load.node for load in own), None)


def _folder_of(source: TrainerSource, node: ast.expr) -> ast.expr | None:
    """Return the folder of which an expression names a file: `os.path.join(X, "a.pt")`, `X / "a.pt"`, `f"{X}/a.pt"`; else None."""
    while isinstance(node, ast.Name) and len(source.names.get(node.id, ())) == 1 and node.id not in source.rebound:
        node = source.names[node.id][0]
        if not isinstance(node, ast.Name):
            break
    tail: Sequence[ast.expr] = ()
    first: ast.expr | None = None
    if isinstance(node, ast.Call) and dotted(node.func) in ("os.path.join", "path.join", "osp.join", "join") and len(node.args) > 1:
        first, tail = node.args[0], node.args[1:]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        first, tail = node.left, (node.right,)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        right = node.right.left if isinstance(node.right, ast.BinOp) else node.right  # `X + "/part_%d.bin" % rank`
        if isinstance(right, ast.Constant) and str(right.value).startswith("/"):
            return node.left
    elif isinstance(node, ast.JoinedStr) and node.values and isinstance(node.values[0], ast.FormattedValue):
        first, tail = node.values[0].value, node.values[1:]
        if not tail or not (isinstance(tail[0], ast.Constant) and str(tail[0].value).startswith("/")):
            return None
    inside = [item.value for item in tail if isinstance(item, ast.Constant)]
    is_file_name = bool(inside) and all(isinstance(item, ast.Constant | ast.JoinedStr | ast.FormattedValue) for item in tail)
    return (
        first
        if is_file_name and not any(str(item).startswith("/") for item in inside if not isinstance(node, ast.JoinedStr))
        else None
    )


def _counts_by_name(program: JobProgram, key: str) -> bool:
    """Tell whether a program takes the step out of the name of what it goes on from: `int(X.rpartition("_")[2])`."""
    for source in program.sources:
        for node in ast.walk(syntax_tree(source.text)) if source.parsed else ():
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            for inner in ast.walk(node.value):
                if not isinstance(inner, ast.Call) or dotted(inner.func) != "int" or not inner.args:
                    continue
                parts = (part for part in ast.walk(inner.args[0]) if isinstance(part, ast.expr))
                if any(comes_from(program, source, part, key) for part in parts):
                    return True
    return False


def comes_from(program: JobProgram, source: TrainerSource, node: ast.expr, key: str, depth: int = 0) -> bool:
    """Tell whether an expression is the value of an option or a key and of nothing else, wherever it is given a value."""
    if depth > MOST_PASSES:
        return False
    if isinstance(node, ast.Attribute):
        return node.attr == key
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value == key
    if isinstance(node, ast.Call):
        method = dotted(node.func).rpartition(".")[2]
        if method == "getenv":
            return bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == key
        if method in ("get", "getattr"):
            return any(isinstance(item, ast.Constant) and item.value == key for item in node.args[: 1 + (method == "getattr")])
        inner = node.args[-1] if node.args and method in (PASSED_ON | {"join"}) else None
        return inner is not None and comes_from(program, source, inner, key, depth + 1)
    if isinstance(node, ast.IfExp):
        values = [node.body, node.orelse]
        assigned = [item for item in values if not (isinstance(item, ast.Constant) and item.value is None)]
        return len(assigned) == 1 and comes_from(program, source, assigned[0], key, depth + 1)
    if isinstance(node, ast.BoolOp):
        return isinstance(node.op, ast.Or) and comes_from(program, source, node.values[0], key, depth + 1)
    if not isinstance(node, ast.Name) or node.id in source.rebound:
        return False
    assigned = [item for item in source.names.get(node.id, []) if not (isinstance(item, ast.Constant) and item.value in (None, ""))]
    if assigned:
        return all(comes_from(program, source, item, key, depth + 1) for item in assigned)
    return _is_passed(program, node.id, source, key, depth)


def _is_passed(program: JobProgram, name: str, source: TrainerSource, key: str, depth: int) -> bool:
    """Tell whether all that call the function of a parameter hand it the value of an option."""
    functions = [function for function, nodes in source.functions.items() for node in nodes if name in parameters_of(node)]
    if len(functions) != 1:
        return False
    parameters = parameters_of(source.functions[functions[0]][0])
    place = parameters.index(name) - (parameters[:1] == ["self"])
    uses = [(item, call) for item in program.sources for call in item.called(functions[0])]
    values = [call.keywords.get(name) or (call.positional[place] if place < len(call.positional) else None) for _, call in uses]
    return bool(uses) and all(
        value is not None and comes_from(program, item, value, key, depth + 1)
        for (item, _), value in zip(uses, values, strict=True)
    )


def parameters_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the names of a function's parameters, in their order."""
    return [item.arg for item in (*node.args.posonlyargs, *node.args.args)]


def _only_if_given(
    program: JobProgram, source: TrainerSource, call: SourceCall, key: str, settings: Mapping[str, str], depth: int = 0
) -> bool:
    """Tell whether a call is made wherever the option is given: the tests around it, and around its function, ask nothing else."""
    if depth > MOST_PASSES or not all(asks_only(program, source, test, key, settings) for test in call.conditions):
        return False
    functions = [name for name, _ in enclosing_functions(source, call.line)]
    if not functions:
        return True
    uses = [(item, use) for item in program.sources for use in item.called(functions[-1])]
    if functions[-1] == "main" or any(node.decorator_list for node in source.functions.get(functions[-1], [])):
        return True
    return any(_only_if_given(program, item, use, key, settings, depth + 1) for item, use in uses)


def asks_only(program: JobProgram, source: TrainerSource, test: ast.expr, key: str, settings: Mapping[str, str]) -> bool:
    """Tell whether a test asks for an option alone, whether it is given and there, or for a setting that is known to hold."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return all(asks_only(program, source, item, key, settings) for item in test.values)
    roots = {
        node.value.id
        for node in ast.walk(test)
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.value, ast.Name)
    }
    names = []
    for node in ast.walk(test):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
        elif isinstance(node, ast.Name) and node.id not in roots:
            names.append(node.id)
        elif isinstance(node, ast.Constant) and node.value not in (None, ""):
            names.append(str(node.value))
    foreign_names = [name for name in names if name not in TESTED and name != key and name not in ("get", "getattr")]
    if len(foreign_names) == 1 and key not in names and settings.get(foreign_names[0], "").lower() == "true":
        return not isinstance(test, ast.UnaryOp | ast.Compare)
    return all(comes_from(program, source, ast.Name(name, ast.Load()), key) for name in foreign_names)


def gives_back_a_count(source: TrainerSource, call: SourceCall, *, alone: bool = False) -> bool:
    """Tell whether a step or an epoch is taken out of what a call loads, to go on from.

    Args:
        source: That the call stands in.
        call: That loads.
        alone: Whether it counts also where all else of what is loaded is dropped at once: `load(path)["step"]`.
    """

    def is_call(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and node.lineno == call.line and dotted(node.func) == call.name

    def is_dropped(node: ast.AST) -> bool:
        return alone and is_call(node)

    names = {name for name, values in source.names.items() if any(is_call(item) for item in values)}
    values = (
        node.value for node in ast.walk(syntax_tree(source.text)) if isinstance(node, ast.Assign | ast.AnnAssign | ast.Return)
    )
    return any(_is_count_of(inner, names, is_dropped) for value in values if value is not None for inner in ast.walk(value))


def _is_counted_on(source: TrainerSource, call: SourceCall) -> bool:
    """Tell whether a name to which what a call loads gives a step or an epoch is the one that the program counts on."""
    loaded = {
        name
        for name, values in source.names.items()
        if any(isinstance(item, ast.Call) and item.lineno == call.line and dotted(item.func) == call.name for item in values)
    }

    def is_load(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and node.lineno == call.line and dotted(node.func) == call.name

    counts = {
        name
        for name, values in source.names.items()
        if any(_is_count_of(inner, loaded, is_load) for value in values for inner in ast.walk(value))
    }
    for node in ast.walk(syntax_tree(source.text)):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id in counts:
            return True
        first = node.args[:1] if isinstance(node, ast.Call) and dotted(node.func) == "range" and len(node.args) > 1 else []
        if any(isinstance(inner, ast.Name) and inner.id in counts for item in first for inner in ast.walk(item)):
            return True
    return False


COUNTS = re.compile(r"(?:cur(?:rent)?_|global_|train_|last_)?(?:batch_idx|step|iter|iteration|epoch|update)s?(?:_train|_num|_idx)?")
"""Other keys under which programs keep how far they have come."""


def _is_count_of(node: ast.AST, names: Collection[str], is_load: Callable[[ast.AST], bool]) -> bool:
    """Tell whether an expression takes a step or an epoch out of one of some names, or out of the call itself."""
    base, key = None, None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        base, key = node.value, node.slice.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop") and node.args:
        first = node.args[0]
        base, key = node.func.value, first.value if isinstance(first, ast.Constant) else None
    is_loaded = base is not None and ((isinstance(base, ast.Name) and base.id in names) or is_load(base))
    return (
        is_loaded
        and isinstance(key, str)
        and (key.lower() in (*STEP_KEYS, *EPOCH_KEYS) or COUNTS.fullmatch(key.lower()) is not None)
    )


def is_set_again(source: TrainerSource, key: str) -> bool:
    """Tell whether a program gives the option or the key a value of its own: it may load something else then."""
    if not source.parsed:
        return True
    for node in ast.walk(syntax_tree(source.text)):
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AugAssign | ast.AnnAssign)
            else []
        )
        for target in targets:
            if isinstance(target, ast.Attribute) and target.attr == key:
                return True
            if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant) and target.slice.value == key:
                return True
    return False
