"""Whether a Python program proves that it passes over finished pieces of its work, and that a second run repeats nothing. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.recover.job_program import STARTS, JobProgram, only_asks
from assistant.recover.source.file_uses import OPENS, FileUses, file_uses
from assistant.recover.source.in_place import repeated_change
from assistant.recover.source.load_calls import PRESENT
from assistant.recover.source.paths import Caller
from assistant.recover.source.reruns import LOG_NAME, WRITES, WriteDeed, repeated_writes
from assistant.recover.source.start_files import removals_of
from assistant.recover.source.trainer_source import TrainerSource, dotted, expression, syntax_tree

__all__ = ["TRAINS", "Guard", "ProgramPieces", "mark_doubt", "mark_place", "pieces_of_program", "presence_test", "repeat_doubt"]

TRAINS = frozenset("backward step fit train train_step train_epoch minimize apply_gradients save_checkpoint zero_grad".split())
"""Calls of a program whose rounds build on one another."""
STORES = frozenset(
    "sqlite3 shelve dbm mmap ctypes psycopg2 psycopg pymongo redis sqlalchemy boto3 smtplib requests httpx wandb mlflow".split()
)
"""Modules by which a program changes something that is no file of its own."""
COLLECTS = frozenset(
    "append add extend insert update setdefault pop push put write writelines writerow writerows execute executemany commit send "
    "write_row add_row create_dataset".split()
)
"""Methods that change what they are called on."""
SPEAKS = re.compile(r"(?:^|\.)(?:print|log|info|debug|warning|error|exception|say|set_description|set_postfix|tqdm|write)$")
NAMES = re.compile(
    r"(?:^|\.)(?:str|Path|PurePath|dirname|basename|splitext|join|exists|isfile|is_file|fspath|relative_to|getsize|with_suffix|"
    r"with_name|with_stem|joinpath|makedirs|mkdir|format|len|repr)$"
)
"""Calls that only make another name of a path, look at it, or make its folder."""
REMOVES = re.compile(r"(?:^|\.)(?:rmtree|unlink|remove|removedirs|rmdir|truncate)$")
LATER = re.compile(r"(?:^|\.)(?:submit|apply_async|map_async|starmap_async|start|create_task|ensure_future|run_in_executor|Popen)$")
"""Calls that start work and do not wait for it."""
CONTAINERS = frozenset(("File", "ZipFile", "TarFile", "TarWriter", "ShardWriter", "ParquetWriter"))
"""Classes whose files are whole only when they are closed."""
PARTIAL = re.compile(r"tmp|(?<![a-z])temp(?!l|er)|(?<![a-z])part(?:ial)?(?![a-z])", re.IGNORECASE)
MARK = re.compile(
    r"(?<![a-z])(?:done|ok|finish(?:ed)?|completed?|success|stamp|ready|marker|flag)(?:\.\w{1,4})?['\")}]*(?:\.name\)*)?$",
    re.IGNORECASE,
)
"""How the source writes the end of a path that is only a mark: `f"out/{n}.done"`, `path.with_suffix(".done").name`."""
EXITS = frozenset(("sys.exit", "os._exit", "exit", "quit"))
MADE_ANEW = re.compile(r"(?:^|\.)mkdtemp$")
"""Calls that make a folder which nobody else has."""


class ProgramPieces(NamedTuple):
    """What a program proves of the pieces of its work."""

    guard_place: str = ""
    """The line that passes over finished ones: `cut.py:9`; empty where none does."""
    doubt: str = ""
    """Why a half-written one may be taken for finished, or a rerun leaves something else behind; empty where neither is so."""


class Guard(NamedTuple):
    """A test that passes over what is there, and the work that is done where it is not."""

    target: str
    """What it looks for, as the source writes it."""
    line: int
    work: list[ast.stmt]
    body: ast.For | ast.FunctionDef | ast.Module


def repeat_doubt(program: JobProgram) -> str:
    """Return what a second run of a program would repeat, or what keeps that from being known; empty where it repeats nothing."""
    name = program.name
    if not program.sources or not all(source.parsed for source in program.sources):
        return f"{name} cannot be read"
    imported = {module.lstrip(".").partition(".")[0] for source in program.sources for module in source.modules}
    if imported & STORES:
        return f"{name} works with {', '.join(sorted(imported & STORES))}: what a rerun changes there is not followed"
    uses = file_uses(program)
    for caller in uses.calls:
        line = f"{PurePosixPath(caller.source.path).name}:{caller.node.lineno}"
        called = dotted(caller.node.func)
        opened = called in OPENS or called.rpartition(".")[2] == "open"
        modes = (
            str(item.value.value) for item in caller.node.keywords if item.arg == "mode" and isinstance(item.value, ast.Constant)
        )
        mode = uses.mode_of(caller) if opened else next(modes, "")
        path_texts = uses.reader.texts(caller.source, _path_of(caller.node), caller.scope) if mode else frozenset()
        if mode and (mode[0] == "a" or "+" in mode) and not _is_log(path_texts):
            return f"{line} appends to {ast.unparse(_path_of(caller.node))[:120]}, and a rerun would do so a second time"
        if REMOVES.search(called) and not _is_partial(caller.node) and not _is_own_folder(program, uses, caller):
            return f"{line} removes {ast.unparse(caller.node)[:120]}"
    if doubt := repeated_change(program):
        return doubt
    if write := next((write for write in repeated_writes([program]) if write.deed is WriteDeed.APPENDS), None):
        return f"{write.how} appends to {write.path}, and a rerun would do so a second time"
    if removal := next((removal for removal in removals_of(program) if not _is_of_this_job(program, removal.path)), None):
        return f"{PurePosixPath(removal.source).name}:{removal.line} removes {removal.path}"
    calls = (call for source in program.sources for call in source.calls)
    started = next((call for call in calls if STARTS.search(call.name) and not only_asks(call)), None)
    if started is not None and not _is_checked(started.name, started.keywords):
        return f"{name}:{started.line} starts another program and does not see whether that fails"
    return f"{name}:{started.line} starts another program, of which nothing is known" if started is not None else ""


def pieces_of_program(program: JobProgram) -> ProgramPieces:
    """Return what a program's own source proves of the pieces that it passes over.

    A piece that is there is passed over by a test in a loop, or at the beginning of a function; what the test looks for is renamed
    into its place, or marked when all else of the round is done.
    """
    for source in program.sources:
        guards = list(_guards(syntax_tree(source.text))) if source.parsed else []
        if guards:
            name, line = PurePosixPath(source.path).name, guards[0].line
            # a test that looks for several files passes over a piece where all are there: one that is proven is enough
            doubts = [
                mark_doubt(source, guard) or _carried(syntax_tree(source.text), guard) for guard in guards if guard.line == line
            ]
            doubt = "" if "" in doubts else doubts[0]
            return ProgramPieces(f"{name}:{line}", f"{name}:{doubt}" if doubt else "")
    return ProgramPieces()


def _guards(tree: ast.AST) -> Iterator[Guard]:
    for body in ast.walk(tree):
        if not isinstance(body, ast.For | ast.FunctionDef):
            continue
        leaving = ast.Continue if isinstance(body, ast.For) else ast.Return
        own = (
            {node.id for node in ast.walk(body.target) if isinstance(node, ast.Name)}
            if isinstance(body, ast.For)
            else {argument.arg for argument in [*body.args.args, *body.args.kwonlyargs]}
        )
        for place, statement in enumerate(body.body):
            if isinstance(statement, ast.Assign) and _uses(statement.value, own):
                own |= {target.id for target in statement.targets if isinstance(target, ast.Name)}
            if not isinstance(statement, ast.If):
                continue
            targets, present = presence_test(statement.test)
            work = body.body[place + 1 :]
            for target in targets:
                if not _uses(target, own):
                    continue
                if present and not statement.orelse and isinstance(statement.body[-1], leaving) and _works(work):
                    yield Guard(ast.unparse(target), statement.lineno, work, body)
                elif not present and not statement.orelse and _works(statement.body):
                    yield Guard(ast.unparse(target), statement.lineno, [*statement.body, *work], body)


def _works(body: Sequence[ast.stmt]) -> bool:
    return any(isinstance(node, ast.Call) for statement in body for node in ast.walk(statement))


def _uses(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(inner, ast.Name) and inner.id in names for inner in ast.walk(node))


def presence_test(test: ast.expr) -> tuple[list[ast.expr], bool]:
    """Return the paths that a test looks for, and whether it holds where all are there; no paths of any other test."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        targets, present = presence_test(test.operand)
        return targets, not present
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        parts = [presence_test(value) for value in test.values]
        return [target for targets, present in parts if present for target in targets], True
    if not isinstance(test, ast.Call) or not PRESENT.search(dotted(test.func)):
        return [], True
    if test.args:
        return [test.args[0]], True
    return ([test.func.value], True) if isinstance(test.func, ast.Attribute) else ([], True)


def mark_place(source: TrainerSource, guard: Guard) -> int | None:
    """Return the place of the statement of a guard's work that makes what the test looks for; None where none does."""
    spellings = _spellings(guard)
    for place, statement in enumerate(guard.work):
        calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call)]
        if any(_deed(source, call, text) == "makes" for call in calls for text in spellings):
            return place
    return None


def mark_doubt(source: TrainerSource, guard: Guard) -> str:
    """Return why unfinished work may leave what a guard looks for, with its line first; empty where it leaves none."""
    made_at: int | None = None
    spellings = _spellings(guard)
    if line := _swallows(syntax_tree(source.text), guard):
        return f"{line} goes on after an error, and the piece is marked as finished all the same"
    for place, statement in enumerate(guard.work):
        for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call)):
            deed = next((deed for text in spellings if (deed := _deed(source, call, text))), "")
            if deed == "writes":
                return f"{call.lineno} writes {guard.target} itself: a half-written one would be taken for finished"
            if deed == "makes":
                if made_at is not None or _is_within_open(statement, call):
                    return f"{call.lineno}: when {guard.target} is made is not proven"
                if not _is_plain(statement, call):
                    return f"{call.lineno} makes {guard.target} only sometimes, or after an error"
                made_at = place
    if made_at is None:
        return f"{guard.line} looks for {guard.target}, and where that is written is not told"
    before = guard.work[:made_at]
    if any(_opens(statement) for statement in before):
        return f"{guard.work[made_at].lineno} marks the piece while a file may be open (no `with`)"
    later_calls = [call for statement in guard.work[made_at + 1 :] for call in ast.walk(statement) if isinstance(call, ast.Call)]
    for call in later_calls:
        name = dotted(call.func)
        if not SPEAKS.search(name) and (WRITES.fullmatch(name.rpartition(".")[2]) or name.rpartition(".")[2] == "open"):
            return f"{call.lineno} works on behind {guard.target}, by which a piece is passed over"
    return ""


def _spellings(guard: Guard) -> list[str]:
    """Return how a round may write the path that its test looks for: as the test does, and by names that are given the same."""
    nodes = [node for statement in guard.body.body for node in ast.walk(statement)]
    stores = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    values = {
        node.targets[0].id: node.value
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and stores.count(node.targets[0].id) == 1
    }
    path = values.get(guard.target) or expression(guard.target)
    changed = {node.id for part in guard.work for node in ast.walk(part) if isinstance(node, ast.Name) and node.id in stores}
    changed -= {name for name in values if values[name].lineno <= guard.line}
    calls = [node for node in ast.walk(path) if isinstance(node, ast.Call)]
    if _uses(path, changed) or not all(NAMES.search(dotted(call.func)) for call in calls):
        return [guard.target]
    text = ast.unparse(path)
    return list(dict.fromkeys((guard.target, text, *(name for name, value in values.items() if ast.unparse(value) == text))))


def _swallows(tree: ast.AST, guard: Guard) -> int:
    """Return the line at which a program goes on after an error, or does not wait for what it starts; 0 where none does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and (LATER.search(dotted(node.func)) or dotted(node.func).endswith("suppress")):
            return node.lineno
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == guard.target and node.lineno > guard.line:
            return node.lineno  # another piece from there on
        if not isinstance(node, ast.Try) or all(isinstance(part, ast.Import | ast.ImportFrom) for part in node.body):
            continue
        at_round = any(node is statement for statement in guard.work)
        for handler in node.handlers:
            last = handler.body[-1]
            if not isinstance(last, ast.Raise) and not _exits(last) and not (at_round and _leaves(handler.body)):
                return node.lineno
    return 0


def _exits(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and dotted(statement.value.func) in EXITS


def _leaves(body: Sequence[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Raise | ast.Continue | ast.Return)


def _is_plain(statement: ast.stmt, call: ast.Call) -> bool:
    """Tell whether a call is made whenever its statement is come to without an error."""
    if isinstance(statement, ast.Expr | ast.Assign):
        return True
    if isinstance(statement, ast.With):
        return any(_is_plain(inner, call) for inner in statement.body if any(node is call for node in ast.walk(inner))) or any(
            node is call for item in statement.items for node in ast.walk(item.context_expr)
        )
    if isinstance(statement, ast.Try):
        return any(_is_plain(inner, call) for inner in statement.body if any(node is call for node in ast.walk(inner)))
    return False


def _is_within_open(statement: ast.stmt, call: ast.Call) -> bool:
    """Tell whether a call is made within a `with` that holds another file open to write."""
    for node in ast.walk(statement):
        if isinstance(node, ast.With) and any(inner is call for part in node.body for inner in ast.walk(part)):
            contexts = [item.context_expr for item in node.items]
            if any(
                isinstance(inner, ast.Call) and _mode(inner)[:1] in ("w", "x")
                for context in contexts
                for inner in ast.walk(context)
            ):
                return True
    return False


def _opens(statement: ast.stmt) -> bool:
    """Tell whether a statement opens a file to write outside of a `with`."""
    in_with = {
        id(node) for inner in ast.walk(statement) if isinstance(inner, ast.With) for item in inner.items for node in ast.walk(item)
    }
    calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call) and id(node) not in in_with]
    return any(_mode(call)[:1] in ("w", "x") or dotted(call.func).rpartition(".")[2] in CONTAINERS for call in calls)


def _mode(call: ast.Call) -> str:
    name = dotted(call.func)
    if name.rpartition(".")[2] != "open":
        return ""
    is_method = isinstance(call.func, ast.Attribute) and name not in OPENS
    nodes = [*call.args[0 if is_method else 1 :], *(item.value for item in call.keywords if item.arg == "mode")]
    modes = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return modes[0] if modes else "w" if nodes and not all(isinstance(node, ast.Constant) for node in nodes) else ""


def _deed(source: TrainerSource, call: ast.Call, target: str) -> str:
    """Return what a call does to what the test looks for: `makes` it at once, `writes` it, or neither."""
    name, texts = dotted(call.func), [ast.unparse(node) for node in [*call.args, *(item.value for item in call.keywords)]]
    method = name.rpartition(".")[2]
    of_target = isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in (target, f"Path({target})")
    if of_target:
        if method in ("touch", "write_text") and _is_mark(source, target):
            return "makes"
        return "" if NAMES.search(f".{method}") or method in ("unlink", "stat", "read_text", "resolve") else "writes"
    if target not in texts:
        return ""
    if name in ("os.replace", "os.rename") and len(call.args) == 2 and texts[1] == target:
        return "makes"
    if method in ("replace", "rename") and len(texts) == 1 and isinstance(call.func, ast.Attribute):
        return "makes"
    if method == "open" and _mode(call)[:1] in ("w", "x") and _is_mark(source, target):
        return "makes"
    if NAMES.search(name) or SPEAKS.search(name):
        return ""
    place = texts.index(target)
    functions = source.functions.get(name, [])
    if len(functions) == 1 and place < len(call.args) and place < len(functions[0].args.args):
        return _deed_within(source, functions[0], functions[0].args.args[place].arg)
    return "writes"


def _is_mark(source: TrainerSource, target: str) -> bool:
    """Tell whether a path is only a mark, by how all that it is assigned ends."""
    values = [ast.unparse(node) for node in source.names.get(target, ())] if target not in source.rebound else []
    return all(MARK.search(text) for text in values) if values else not target.isidentifier() and MARK.search(target) is not None


def _deed_within(source: TrainerSource, function: ast.FunctionDef | ast.AsyncFunctionDef, parameter: str) -> str:
    """Return what a function does to a file that it is handed by a parameter."""
    leaf = [call for call in ast.walk(function) if isinstance(call, ast.Call) and dotted(call.func) not in source.functions]
    deeds = [_deed(source, call, parameter) for call in leaf]
    if any(
        parameter in [ast.unparse(node) for node in call.args]
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and dotted(call.func) in source.functions
    ):
        return "writes"  # handed on: not followed further
    if deeds.count("makes") != 1 or "writes" in deeds:
        return "writes" if {"makes", "writes"} & {*deeds} else ""
    last = function.body[-1]
    makes_it = any(isinstance(node, ast.Call) and _deed(source, node, parameter) == "makes" for node in ast.walk(last))
    open_before = any(_opens(statement) for statement in function.body[:-1])
    return "makes" if makes_it and isinstance(last, ast.Expr) and not open_before else "writes"


def _carried(tree: ast.AST, guard: Guard) -> str:
    """Return what a round hands to later ones, or to what follows them: a piece that is passed over is missing there."""
    body = guard.body
    if isinstance(body, ast.Module):
        return ""
    inside = {
        node.id: node.lineno
        for statement in body.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    if isinstance(body, ast.For):
        inside |= {node.id: body.lineno for node in ast.walk(body.target) if isinstance(node, ast.Name)}
    else:
        inside |= {argument.arg: body.lineno for argument in [*body.args.args, *body.args.kwonlyargs]}
    spoken = {
        id(node)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and SPEAKS.search(dotted(call.func)) and isinstance(call.func, ast.Name)
        for node in ast.walk(call)
    }
    modules = {
        (item.asname or item.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for item in node.names
    }

    def is_read(name: str) -> bool:
        loads = (
            node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        )
        return any(id(node) not in spoken for node in loads)

    for statement in guard.work:
        for node in ast.walk(statement):
            if isinstance(node, ast.Global | ast.Nonlocal):
                return f"{node.lineno} changes what is shared between rounds"
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and isinstance(body, ast.For):
                name = node.target.id
                first = min(
                    (
                        inner.lineno
                        for part in guard.work
                        for inner in ast.walk(part)
                        if isinstance(inner, ast.Assign) and any(ast.unparse(target) == name for target in inner.targets)
                    ),
                    default=None,
                )
                if first is None and is_read(name):
                    return f"{node.lineno} counts on in {name} over the rounds, and what is passed over is missing there"
            outer = _outer_of(node)
            if outer is not None and outer not in inside and outer not in modules and is_read(outer):
                line = node.lineno if isinstance(node, ast.expr) else guard.line
                return f"{line} adds to {outer} over the rounds, and what is passed over is missing there"
    if not isinstance(body, ast.For):
        return ""
    end = body.end_lineno or body.lineno
    later = {
        node.id: node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.lineno > end and id(node) not in spoken
    }
    stored_later = {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.lineno > end
    }
    if name := next((name for name in inside if name in later and name not in stored_later), ""):
        return f"{later[name]} uses {name} of the last round, which may be passed over"
    for statement in body.body:
        for node in ast.walk(statement):
            before = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in inside
            if before and isinstance(node, ast.Name) and node.lineno < _first_store(body, node.id) and id(node) not in spoken:
                return f"{node.lineno} uses {node.id} of the round before, which may be passed over"
    return ""


def _first_store(loop: ast.For, name: str) -> int:
    if any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(loop.target)):
        return 0
    stores = [
        node.lineno
        for statement in loop.body
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
    ]
    return min(stores, default=0)


def _outer_of(node: ast.AST) -> str | None:
    """Return the plain name of what a node changes in place: `rows` of `rows.append(x)` and `rows[key] = x`; None for nothing."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in COLLECTS:
        value: ast.expr = node.func.value
    elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
        value = node.value
    else:
        return None
    while isinstance(value, ast.Attribute | ast.Subscript):
        value = value.value
    return value.id if isinstance(value, ast.Name) else None


def _path_of(call: ast.Call) -> ast.expr:
    """Return the path that a call opens: its first argument, else what its method is called on."""
    name = dotted(call.func)
    if isinstance(call.func, ast.Attribute) and name.rpartition(".")[2] == "open" and name not in OPENS:
        return call.func.value
    return call.args[0] if call.args else call.func


def _is_log(texts: Iterator[str] | frozenset[str] | set[str]) -> bool:
    names = [PurePosixPath(text).name for text in texts]
    return bool(names) and all(LOG_NAME.search(name) for name in names)


def _is_partial(call: ast.Call) -> bool:
    return PARTIAL.search(ast.unparse(call)) is not None


def _is_own_folder(program: JobProgram, uses: FileUses, caller: Caller) -> bool:
    """Tell whether a call removes nothing but what this run has made for itself: a folder of its job's number, or one made anew."""
    node = _path_of(caller.node)
    body: ast.AST = caller.scope or uses.reader.names_of(caller.source).tree
    if isinstance(node, ast.Name):
        values = [
            inner.value
            for inner in ast.walk(body)
            if isinstance(inner, ast.Assign) and any(isinstance(name, ast.Name) and name.id == node.id for name in inner.targets)
        ]
        if values and all(isinstance(value, ast.Call) and MADE_ANEW.search(dotted(value.func)) for value in values):
            return True
    texts = uses.reader.texts(caller.source, node, caller.scope)
    return bool(texts) and all(_is_of_this_job(program, text) for text in texts)


def _is_of_this_job(program: JobProgram, text: str) -> bool:
    """Tell whether a path has the number of the job in it, as a script names what no other job shall have."""
    path, number = program.launch.outside(text), program.launch.variables.get("SLURM_JOB_ID", "")
    return bool(number) and path is not None and re.search(rf"(?<![^\W_]){re.escape(number)}(?![^\W_])", str(path)) is not None


def _is_checked(name: str, keywords: object) -> bool:
    return name.rpartition(".")[2] in ("check_call", "check_output") or (isinstance(keywords, dict) and "check" in keywords)
