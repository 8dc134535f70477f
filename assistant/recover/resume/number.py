"""By which number a program goes on from a chosen checkpoint: `--start-batch 80` of one that loads `checkpoint-80.pt`. Pure.

The program is read with a number that no checkpoint has. It counts where that stands in the name of the one file that it loads
before it trains, in nothing that it writes or deletes, and where a step or an epoch comes out of that file or is the number.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.recover.checkpoints.save_options import save_folders
from assistant.recover.job_program import JobProgram
from assistant.recover.shell.folders import UNRESOLVED, normal
from assistant.recover.source.load_calls import innermost_function, is_after_training, training_functions
from assistant.recover.source.load_proof import (
    asks_only,
    checkpoint_argument,
    comes_from,
    file_name,
    gives_back_a_count,
    imports,
    is_set_again,
    parameters_of,
)
from assistant.recover.source.start_files import removed_by
from assistant.recover.source.trainer_source import SourceCall, TrainerSource, syntax_tree, truth

NUMBER = "7654321"
"""Of a checkpoint that no script has of its own."""
NUMBERED = re.compile(
    r"(?:start|begin|resume|load|from|restore|continue|ckpt|checkpoint)_?(?:at_|from_|ckpt_|checkpoint_)?(?:batch|step|iter|iteration|epoch|update)"
    r"|(?:batch|step|iter|iteration|epoch|update)_to_(?:load|resume|restore)|resume|resume_from|load_from"
)
"""Names of options by which programs are told at which step they go on; whether they do is for their source to prove."""
WRITES = frozenset(
    (
        "save save_checkpoint save_state save_pretrained save_model save_file save_weights async_save makedirs mkdir rmtree remove "
        "unlink rename renames move copy copy2 copyfile copytree write_text write_bytes symlink symlink_to rmdir touch dump "
        "savetxt system popen"
    ).split()
)
"""Calls that change what they are given."""
HAS_WEIGHTS = frozenset(("state_dict", "parameters", "backward", "zero_grad"))
"""Calls of a program that has weights, which a load has to give back as well."""
DIGITS = re.compile(r"\d+")
MOST_PASSES = 4
_Position = tuple[int, int]


class NumberProof(NamedTuple):
    """That a program goes on from a checkpoint by its number."""

    call: str
    """For people: `load() in train.py, line 12`."""
    path: str
    """Absolute, of what it loads, with `{step}` in the place of the number."""


class _Unsettled(Exception):
    """What a name stands for at one place only a run can tell."""


def number_proof(started: JobProgram, base: JobProgram, key: str, number: str = NUMBER) -> NumberProof | str:
    """Return what proves that a program goes on from the checkpoint of a number; else what is missing.

    Args:
        started: As it is started with the number.
        base: As it is started without.
        key: Name of the option as the source reads it, or of the variable.
        number: That it is started with.
    """
    if problem := harm(started, base, key, number):
        return problem
    if any(not source.parsed or is_set_again(source, key) for source in started.sources) or not started.sources:
        return f"{started.name} cannot be read, or gives {key} a value of its own"
    if any(call.method == "chdir" for call in started.calls):
        return f"{started.name} changes its folder"
    training = training_functions(started)
    proofs: dict[str, NumberProof] = {}
    methods = {call.method for call in started.calls}
    restores_weights = "load_state_dict" in methods or methods.isdisjoint(HAS_WEIGHTS)
    counted = _is_counted(started, key)
    for source, call, node in _loads(started):
        path = _settled_text(started, source, node)
        if path is None or not holds(path, number) or _is_padded(path, number):  # of a path that it is given the number is all
            continue
        after = is_after_training(started, source, call.line, training)
        whole_state = call.method == "load_checkpoint" and "optimizer" in call.keywords
        goes_on = whole_state or counted or gives_back_a_count(source, call, alone=restores_weights)
        if after or not goes_on or not _is_reached(started, source, call, key):
            continue
        whole = started.launch.outside(path)
        name = DIGITS.sub(lambda match: "{step}" if _is_padded(match[0], number) else match[0], PurePosixPath(path).name)
        if whole is None or name.count("{step}") != 1 or NUMBER in str(whole.parent):
            continue
        pattern = f"{normal(str(whole.parent))}/{name}"
        proofs.setdefault(pattern, NumberProof(f"{call.method}() in {file_name(source)}, line {call.line}", pattern))
    return next(iter(proofs.values())) if len(proofs) == 1 else f"{key} of {started.name}: what its number means is not proven"


def leads_to(pattern: str, step: int, path: str) -> bool:
    """Tell whether a program that is given a step loads what lies at a path; its number may be padded with zeros there.

    Args:
        pattern: From `NumberProof.path`.
        step: That it is given.
        path: Absolute.
    """
    start, _, end = pattern.partition("{step}")
    plain = normal(path)
    between = plain[len(start) : len(plain) - len(end)]
    return plain == f"{start}{between}{end}" and _is_padded(between, str(step))


def _is_padded(digits: str, number: str) -> bool:
    """Tell whether digits are a number, with zeros before it or without."""
    return digits.isascii() and digits.isdecimal() and digits.lstrip("0") == number.lstrip("0")


def _loads(program: JobProgram) -> Iterator[tuple[TrainerSource, SourceCall, ast.expr]]:
    """Yield the calls that load a checkpoint, each with the argument that names it."""
    for source in program.sources:
        for call in source.calls:
            node = checkpoint_argument(program, source, call)
            if node is None and call.method == "load_checkpoint" and imports(program, "icefall"):
                node = call.keywords.get("filename") or (call.positional[0] if call.positional else None)
            if node is not None:
                yield source, call, node


def harm(started: JobProgram, base: JobProgram, name: str, value: str) -> str:
    """Return what else a program does with an option or a variable set: save elsewhere, delete, write; empty where nothing is seen.

    Args:
        started: As it is started with it.
        base: As it is started without.
        name: Of the option or variable, for people.
        value: That it holds; empty for a word that names no checkpoint.
    """
    folders = [{str(place.folder) for place in save_folders([program])} for program in (base, started)]
    if folders[0] != folders[1]:
        return f"with {name} set {started.name} saves into another folder"
    if {*removed_by(started)} - {*removed_by(base)}:
        return f"with {name} set {started.name} deletes something else"
    for source in started.sources if value else ():
        for call in source.calls:
            writes = call.method in WRITES or (call.method == "open" and opens_to_write(source, call.positional, call.keywords))
            nodes = (*call.positional, *call.keywords.values()) if writes else ()
            values = [source.value(node) for node in nodes if not (value.isdecimal() and _counts_on(source, node))]
            if any(isinstance(text, str) and holds(text, value) for text in values):
                return f"{call.method}() in {file_name(source)}, line {call.line}, writes to what {name} names"
    return ""


def holds(text: str, value: str) -> bool:
    """Tell whether a text names what a variable holds; a number must stand alone."""
    return value in text if not value.isdecimal() else any(_is_padded(digits, value) for digits in DIGITS.findall(text))


def opens_to_write(source: TrainerSource, positional: Sequence[ast.expr], keywords: Mapping[str, ast.expr]) -> bool:
    """Tell whether `open` with these arguments writes, or may."""
    node = keywords.get("mode") or (positional[1] if len(positional) > 1 else None)
    mode = source.value(node) if node is not None else "r"
    return not isinstance(mode, str) or bool(set(mode) & set("wax+"))


def _counts_on(source: TrainerSource, node: ast.expr) -> bool:
    """Tell whether an expression is made from a name that the program counts on: it holds the number only where it begins."""
    return any(isinstance(inner, ast.Name) and inner.id in source.rebound for inner in ast.walk(node))


def _is_counted(program: JobProgram, key: str) -> bool:
    """Tell whether a program counts on from the number itself: `step = args.start_step`, `range(args.start_step, …)`."""
    for source in program.sources:
        for node in ast.walk(syntax_tree(source.text)):
            values: list[ast.expr] = []
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                values = (
                    [node.value] if any(isinstance(target, ast.Name) and target.id in source.rebound for target in targets) else []
                )
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range" and len(node.args) > 1:
                values = [node.args[0]]
            if any(_is_number_of(program, source, value, key) for value in values):
                return True
    return False


def _is_number_of(program: JobProgram, source: TrainerSource, node: ast.expr, key: str) -> bool:
    """Tell whether an expression is the number, or the one behind it."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and isinstance(node.right, ast.Constant):
        node = node.left
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "int" and len(node.args) == 1:
        node = node.args[0]
    return comes_from(program, source, node, key)


def _is_reached(program: JobProgram, source: TrainerSource, call: SourceCall, key: str, depth: int = 0) -> bool:
    """Tell whether a call is made where the number is given: tests around it hold then, or ask only whether the file is there."""
    if depth > MOST_PASSES:
        return False
    for test in call.conditions:
        if _answer(program, source, test) is not True and not asks_only(program, source, test, key, {}):
            return False
    function = innermost_function(syntax_tree(source.text), call.line)
    if function is None or function.name == "main" or function.decorator_list:
        return True
    uses = [(item, use) for item in program.sources for use in item.called(function.name)]
    return any(_is_reached(program, item, use, key, depth + 1) for item, use in uses)


def _answer(program: JobProgram, source: TrainerSource, test: ast.expr) -> bool | None:
    """Return whether a test holds, also one that compares whole numbers by their order; None where the text does not tell."""
    answer = truth(source, test)
    if answer is not None or not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return answer
    first, second = (_number(source.value(node)) for node in (test.left, test.comparators[0]))
    if first is None or second is None:
        return None
    match test.ops[0]:
        case ast.Gt():
            return first > second
        case ast.GtE():
            return first >= second
        case ast.Lt():
            return first < second
        case ast.LtE():
            return first <= second
    return None


def _number(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value) else None


def _settled_text(program: JobProgram, source: TrainerSource, node: ast.expr) -> str | None:
    """Return the text that an expression has where it stands; None where the program does not tell all of it."""
    try:
        value = source.value(_settled(program, source, node, 0))
    except _Unsettled:
        return None
    return value if isinstance(value, str) and UNRESOLVED not in value else None


def _settled(program: JobProgram, source: TrainerSource, node: ast.expr, depth: int) -> ast.expr:
    """Return an expression with each name in it replaced by what the program has given it right before.

    Raises:
        _Unsettled: What that is only a run can tell.
    """
    if depth > MOST_PASSES:
        raise _Unsettled

    class SettledNames(ast.NodeTransformer):
        def visit_Attribute(self, inner: ast.Attribute) -> ast.expr:
            return inner  # of an option the last part counts

        def visit_Call(self, inner: ast.Call) -> ast.expr:
            arguments = [self.visit(argument) for argument in inner.args]
            return ast.copy_location(ast.Call(inner.func, arguments, inner.keywords), inner)

        def visit_Name(self, inner: ast.Name) -> ast.expr:
            return _value_before(program, source, inner, depth)

    settled = SettledNames().visit(deepcopy(node))
    if not isinstance(settled, ast.expr):
        raise _Unsettled
    return settled


def _value_before(program: JobProgram, source: TrainerSource, name: ast.Name, depth: int) -> ast.expr:
    """Return what a name has been given right before the place where it stands: there, by all callers, or once in the file."""
    position = (name.lineno, name.col_offset)
    tree = syntax_tree(source.text)
    function = innermost_function(tree, name.lineno)
    value = _last_in(program, source, function.body if function is not None else tree.body, name.id, position)
    if value is not None:
        return _settled(program, source, value, depth + 1)
    if function is not None and name.id in parameters_of(function):
        return _handed(program, source, function, name.id, depth)
    if function is None or len(source.names.get(name.id, ())) != 1 or name.id in source.rebound:
        raise _Unsettled
    return _settled(program, source, source.names[name.id][0], depth + 1)


def _handed(
    program: JobProgram, source: TrainerSource, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, depth: int
) -> ast.expr:
    """Return what all callers of a function hand it."""
    place = parameters_of(function).index(name) - (parameters_of(function)[:1] == ["self"])
    texts = set()
    for item in program.sources:
        for call in item.called(function.name):
            node = call.keywords.get(name) or (call.positional[place] if 0 <= place < len(call.positional) else None)
            value = item.value(_settled(program, item, node, depth + 1)) if node is not None else None
            texts.add(value if isinstance(value, str) else None)
    if len(texts) != 1 or (text := texts.pop()) is None:
        raise _Unsettled
    return ast.Constant(text)


def _last_in(
    program: JobProgram, source: TrainerSource, body: Sequence[ast.stmt], name: str, position: _Position | None
) -> ast.expr | None:
    """Return what a name was given last in a block before a place, or in all of it; None where the block gives it nothing.

    Raises:
        _Unsettled: That hangs on a loop, or on a test that only a run answers.
    """
    last: ast.expr | None = None
    for statement in body:
        if position is not None and (statement.lineno, statement.col_offset) > position:
            break
        around = position is not None and position < (statement.end_lineno or 0, statement.end_col_offset or 0)
        blocks = [block for part in ("body", "orelse", "finalbody") if isinstance(block := getattr(statement, part, None), list)]
        if around and not (isinstance(statement, ast.For | ast.While) and _gives(statement, name)):
            inner = [_last_in(program, source, block, name, position) for block in blocks if _stands_in(block, position)]
            return next((value for value in inner if value is not None), last)
        if not _gives(statement, name) or isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(statement, ast.Assign | ast.AnnAssign) and _is_plain(statement, name):
            last = statement.value
        elif isinstance(statement, ast.If) and not around and (answer := _answer(program, source, statement.test)) is not None:
            last = _last_in(program, source, statement.body if answer else statement.orelse, name, None) or last
        else:
            raise _Unsettled
    return last


def _stands_in(body: Sequence[ast.stmt], position: _Position | None) -> bool:
    """Tell whether a place stands in a block."""
    return position is not None and any(
        (statement.lineno, statement.col_offset) <= position < (statement.end_lineno or 0, statement.end_col_offset or 0)
        for statement in body
    )


def _gives(statement: ast.stmt, name: str) -> bool:
    return any(
        isinstance(inner, ast.Name) and inner.id == name and isinstance(inner.ctx, ast.Store | ast.Del)
        for inner in ast.walk(statement)
    )


def _is_plain(statement: ast.Assign | ast.AnnAssign, name: str) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id == name and statement.value is not None
