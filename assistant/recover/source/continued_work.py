"""Which files a program reads at its start so that it goes on behind what it has made: results, lists, stores. Pure.

Python is read as syntax: a file that the program appends to and reads, where a test by what it read passes over work; an SQL store
of which a query bounds the work; a study that is loaded if it exists. Of other languages only forms of lines are known.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.recover.job_program import JobProgram
from assistant.recover.shell.folders import UNRESOLVED
from assistant.recover.source.declared_settings import UNKNOWN
from assistant.recover.source.file_uses import OPENS, FileUses, argument_of, file_uses
from assistant.recover.source.load_calls import PRESENT
from assistant.recover.source.paths import COUNTED, Caller, Texts
from assistant.recover.source.trainer_source import TrainerSource, dotted, syntax_tree

READ_METHODS = frozenset(("read_text", "read_bytes"))
READ_TABLES = frozenset("read_csv read_table read_json read_parquet loadtxt genfromtxt".split())
FILLS = frozenset("add append update extend setdefault".split())
GATHERS = frozenset("set frozenset list dict tuple sorted len sum max Counter".split())
"""Calls whose result tells the same as what they are given."""
_REMOVALS = frozenset("os.remove os.unlink os.truncate os.removedirs shutil.rmtree rmtree".split())
IDLE = frozenset("print len int float str repr format range enumerate zip sum max min abs round sorted list set dict tuple".split())
"""Calls of a loop that make nothing."""
_EACH_TIME = re.compile(
    r"(?:^|\.)(?:time|time_ns|now|utcnow|today|perf_counter|monotonic|random|randint|randrange|choice|uuid\d?|token_hex|getpid"
    r"|gethostname|uname|urandom)$|^(?:random|uuid|secrets)\."
)
"""Calls whose result no later start gets again."""
QUERIES = frozenset("execute executemany executescript read_sql read_sql_query".split())
_SELECT = re.compile(r"\s{0,40}select\b.{0,400}?\bfrom\s{1,8}[\"'`\[]?(?P<table>\w{1,80})", re.IGNORECASE | re.DOTALL)
_CHANGES = re.compile(
    r"\s{0,40}(?:insert(?:\s{1,8}or\s{1,8}\w{1,10})?\s{1,8}into|replace\s{1,8}into|update)\s{1,8}[\"'`\[]?(?P<table>\w{1,80})",
    re.IGNORECASE,
)
_SET = re.compile(r"\bset\s(?P<values>.{1,2000}?)(?:\swhere\b|$)", re.IGNORECASE | re.DOTALL)
_ASSIGNED = re.compile(r"(?P<name>\w{1,80})[\"'`\]]?\s{0,8}=(?!=)(?P<value>[^,]{0,400})")
_SQL_TEXT = re.compile(r"'(?:[^']|'')*'")
_EMPTIES = re.compile(r"\b(?:drop\s+table|delete\s+from|truncate)\b", re.IGNORECASE)
_EXITS = re.compile(r"^(?:(?:sys|os)\._?exit|exit|quit|SystemExit|\w*\.error)$")
_STORE_URL = re.compile(r"sqlite:/{3}(?P<path>[^?]{1,400})")
DEEPEST = 2
"""Functions through which what was read is handed back."""


class ContinuedWork(NamedTuple):
    """A file that a program reads first, to go on behind what stands in it."""

    path: str
    """Absolute; a pattern where only a run knows all of it; empty where nothing of it is known."""
    place: str
    """The line that reads it: `evaluate.py:11`."""
    is_store: bool = False
    """Whether it is a data base, whose lines nobody counts."""
    adds: str = ""
    """The line that makes its full number again at each start, beside what is there; empty where it goes on behind that."""


class DecidingRead(NamedTuple):
    """A call that reads a file, and by whose result work is passed over."""

    caller: Caller
    texts: Texts
    """What its path may be."""


def continued_work(programs: Iterable[JobProgram]) -> list[ContinuedWork]:
    """Return what programs in Python read first, to go on behind it: what they append to, and stores."""
    work: list[ContinuedWork] = []
    for program in programs:
        uses = file_uses(program)
        appended = frozenset(text for caller in uses.calls for text in _appended(uses, caller))
        lost = frozenset(text for caller in uses.calls for text in _destroyed(uses, caller))
        if not all(map(is_known, lost)):
            continue  # what it removes may be any file
        for read in deciding_reads(uses):
            work += [_work(program, read.caller, text) for text in sorted((read.texts & appended) - lost) if is_known(text)]
        for caller, texts in _stores(uses):
            adds = _added_anew(uses, caller) if dotted(caller.node.func).endswith("create_study") else ""
            work += [_work(program, caller, text)._replace(is_store=True, adds=adds) for text in sorted(texts - lost)[:1]]
    return list(dict.fromkeys(work))


def _work(program: JobProgram, caller: Caller, text: str) -> ContinuedWork:
    place = f"{PurePosixPath(caller.source.path).name}:{caller.node.lineno}"
    return ContinuedWork(outside_path(program, text), place)


def passes_over(reads: Iterable[DecidingRead], texts: Texts) -> bool:
    """Tell whether a program reads one of some paths and passes over work by that; False where nothing of them is known."""
    paths_known = bool(texts) and all(map(is_known, texts))
    return paths_known and any(read.texts & texts for read in reads)


def deciding_reads(uses: FileUses) -> list[DecidingRead]:
    """Return the calls of a program that read a file and by whose result it passes over work."""
    reads = []
    for caller in uses.calls:
        node = _path_read(uses, caller)
        if node is not None and _result_decides(uses, caller):
            reads.append(DecidingRead(caller, uses.reader.texts(caller.source, node, caller.scope)))
    return reads


def is_known(text: str) -> bool:
    """Tell whether something of a path is known."""
    return re.search(r"[^\W\d_]", text.replace(UNRESOLVED, "").replace(COUNTED, "")) is not None


def outside_path(program: JobProgram, text: str) -> str:
    """Return a path as an absolute one, with `*` for what only a run knows; empty where nothing of it is known."""
    pattern = re.sub(f"[{UNRESOLVED}{COUNTED}]+", "*", text.replace("*", "?"))
    if not re.search(r"[^\W\d_]", pattern.replace("*", "")):
        return ""
    path = program.launch.outside(pattern)
    return str(path) if path is not None else ""


def _path_read(uses: FileUses, caller: Caller) -> ast.expr | None:
    """Return the path of a file that a call reads; None of any other call."""
    call, name = caller.node, dotted(caller.node.func)
    method = name.rpartition(".")[2]
    if name in OPENS:
        return argument_of(call, "file", 0) if not set(uses.mode_of(caller)) & set("wxa") else None
    if method in READ_TABLES:
        return call.args[0] if call.args else None
    if not isinstance(call.func, ast.Attribute) or name == "os.open" or uses.reader.function_of(caller) is not None:
        return None
    if method in READ_METHODS or (method == "open" and not set(uses.mode_of(caller)) & set("wxa")):
        return call.func.value
    return None


def _appended(uses: FileUses, caller: Caller) -> Texts:
    """Return the paths that a call opens to append."""
    call, name = caller.node, dotted(caller.node.func)
    method = name.rpartition(".")[2]
    is_open = name in OPENS or (method == "open" and isinstance(call.func, ast.Attribute))
    if is_open and uses.mode_of(caller)[:1] == "a":
        holder = call.func.value if name not in OPENS and isinstance(call.func, ast.Attribute) else argument_of(call, "file", 0)
        return uses.reader.texts(caller.source, holder, caller.scope)
    mode = next((item.value for item in call.keywords if item.arg == "mode"), None)
    if method == "to_csv" and isinstance(mode, ast.Constant) and mode.value == "a":
        return uses.reader.texts(caller.source, argument_of(call, "path_or_buf", 0), caller.scope)
    return frozenset()


def _destroyed(uses: FileUses, caller: Caller) -> Texts:
    """Return the paths that a call empties, removes or puts another file in the place of."""
    call, name = caller.node, dotted(caller.node.func)
    method = name.rpartition(".")[2]
    is_method = isinstance(call.func, ast.Attribute) and name.split(".")[0] not in ("os", "shutil", "io")
    holder = call.func.value if is_method and isinstance(call.func, ast.Attribute) else None
    if name in OPENS or (method == "open" and is_method):
        node = argument_of(call, "file", 0) if name in OPENS else holder
        texts = uses.reader.texts(caller.source, node, caller.scope) if uses.mode_of(caller)[:1] == "w" else frozenset()
        return frozenset(filter(is_known, texts))
    if method in ("replace", "rename", "move", "renames") and len(call.args) == 2 and not is_method:
        return frozenset(text for node in call.args for text in uses.reader.texts(caller.source, node, caller.scope))
    if name in _REMOVALS:
        return uses.reader.texts(caller.source, argument_of(call, "path", 0), caller.scope)
    if is_method and method in ("unlink", "write_text", "write_bytes"):
        return frozenset(filter(is_known, uses.reader.texts(caller.source, holder, caller.scope)))
    return frozenset()


def _result_decides(uses: FileUses, caller: Caller, depth: int = 0) -> bool:
    """Tell whether work is passed over by what a call gives back, also where its function hands that on."""
    tree = uses.reader.names_of(caller.source).tree
    body: ast.AST = caller.scope or tree
    names = _names_from(body, caller.node)
    if any(decides(tree, name) if "." in name else decides(body, name, caller.node.lineno) for name in names):
        return True
    if caller.scope is None or depth >= DEEPEST:
        return False
    returned = uses.reader.names_of(caller.source).returned.get(id(caller.scope), ())
    hands_on = any(inner is caller.node or _name_of(inner) in names for expression in returned for inner in ast.walk(expression))
    return hands_on and any(_result_decides(uses, outer, depth + 1) for outer in uses.reader.callers(caller.source, caller.scope))


def _name_of(node: ast.AST) -> str:
    """Return a plain name, or `self.done`; empty of any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    return dotted(node) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) else ""


def _targets(node: ast.expr) -> Iterator[str]:
    """Yield the names that an assignment gives a value: of `seen[key]` the one that holds it."""
    if isinstance(node, ast.Tuple | ast.List):
        for item in node.elts:
            yield from _targets(item)
    elif isinstance(node, ast.Subscript | ast.Starred):
        yield from _targets(node.value)
    elif name := _name_of(node):
        yield name


def _names_from(body: ast.AST, call: ast.Call) -> set[str]:
    """Return the names that hold what a call has read: assigned from it, filled in its `with` or `for`, or made of such a name."""
    names: set[str] = set()
    for node in ast.walk(body):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
            if node.value is not None and any(inner is call for inner in ast.walk(node.value)):
                names |= _assigned(node)
        elif isinstance(node, ast.With | ast.For):
            heads = [item.context_expr for item in node.items] if isinstance(node, ast.With) else [node.iter]
            if any(inner is call for head in heads for inner in ast.walk(head)):
                names |= _filled(node.body)
                handles = [item.optional_vars for item in node.items] if isinstance(node, ast.With) else []
                names |= {name for handle in handles if handle is not None for name in _targets(handle)}
    for _ in range(DEEPEST):
        for node in ast.walk(body):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and _tells_the_same(node.value, names):
                names |= _assigned(node)
            elif isinstance(node, ast.For) and _tells_the_same(node.iter, names):
                names |= {name for name in _filled(node.body) if name not in names}
    return names


def _assigned(node: ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {name for target in targets for name in _targets(target)}


def _filled(body: Iterable[ast.stmt]) -> set[str]:
    names: set[str] = set()
    for statement in body:
        for inner in ast.walk(statement):
            if isinstance(inner, ast.Assign | ast.AugAssign):
                names |= _assigned(inner)
            elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in FILLS:
                names |= {_name_of(inner.func.value)} - {""}
    return names


def _tells_the_same(node: ast.expr, names: set[str]) -> bool:
    """Tell whether an expression holds what one of some names holds: `set(rows)`, `rows["id"]`, `{row["id"] for row in rows}`."""
    if _name_of(node) in names:
        return True
    if isinstance(node, ast.SetComp | ast.ListComp | ast.DictComp | ast.GeneratorExp):
        return any(_tells_the_same(part.iter, names) for part in node.generators)
    if isinstance(node, ast.Subscript | ast.Attribute):
        return _tells_the_same(node.value, names)
    if isinstance(node, ast.Call):
        of_method = isinstance(node.func, ast.Attribute) and _tells_the_same(node.func.value, names)
        return of_method or (dotted(node.func) in GATHERS and any(_tells_the_same(item, names) for item in node.args))
    return False


def decides(body: ast.AST, name: str, read_line: int = 0) -> bool:
    """Tell whether what a name holds passes over the item of a loop that works, or chooses which items it goes through.

    A test that has nothing to do with the item, a summary of what was read, or a loop over it, decides nothing.

    Args:
        body: A function, or a whole program.
        name: The name.
        read_line: The line that reads, 1-based; loops before it are not decided by it.
    """
    for node in ast.walk(body):
        if isinstance(node, ast.For | ast.While) and node.lineno > read_line and _works(node.body):
            if isinstance(node, ast.For) and (_goes_on_from(node.iter, name) or _passes_items(node, name)):
                return True
            if isinstance(node, ast.While) and _counts_on(node, name):
                return True
        elif isinstance(node, ast.comprehension):
            items = set(_targets(node.target))
            if any(_item_test(test, name, items) is ast.NotIn for test in node.ifs):
                return True
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and _name_of(node.right) == name:
            return isinstance(node.left, ast.Name | ast.Call)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
            if any(isinstance(inner, ast.Call) and _is_argument(inner, name, ("isin",)) for inner in ast.walk(node.operand)):
                return True
        elif isinstance(node, ast.Call) and _is_argument(node, name, ("difference",)):
            return True
    return False


def _is_argument(call: ast.Call, name: str, methods: tuple[str, ...]) -> bool:
    return dotted(call.func).rpartition(".")[2] in methods and any(_name_of(item) == name for item in call.args)


def _works(body: Iterable[ast.stmt]) -> bool:
    """Tell whether a loop does more than to print, count and convert."""
    calls = (inner for statement in body for inner in ast.walk(statement) if isinstance(inner, ast.Call))
    return any(dotted(call.func) not in IDLE or any(item.arg == "file" for item in call.keywords) for call in calls)


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(_name_of(inner) in names for inner in ast.walk(node) if isinstance(inner, ast.Name | ast.Attribute))


def _changes_each_time(node: ast.AST) -> bool:
    """Tell whether an expression holds the time, chance or the process: no later start makes the same of it."""
    calls = (dotted(inner.func) for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return any(_EACH_TIME.search(call) for call in calls)


def _passes_items(loop: ast.For, name: str) -> bool:
    """Tell whether a loop passes over its item where the name holds it, or works only where it does not."""
    items = set(_targets(loop.target))
    changing: set[str] = set()
    for node in (inner for statement in loop.body for inner in ast.walk(statement)):
        if isinstance(node, ast.Assign) and (_changes_each_time(node.value) or _mentions(node.value, changing)):
            changing |= _assigned(node)
        elif isinstance(node, ast.Assign) and _mentions(node.value, items):
            items |= _assigned(node)
    items -= changing
    for node in (inner for statement in loop.body for inner in ast.walk(statement)):
        if not isinstance(node, ast.If):
            continue
        relation = _item_test(node.test, name, items)
        if relation is ast.In and isinstance(node.body[-1], ast.Continue):
            return True
        if relation is ast.NotIn and _works(node.body):
            return True
    return False


def _item_test(test: ast.expr, name: str, items: set[str]) -> type[ast.cmpop] | None:
    """Return how a test asks for an item in a name: `ast.In`, `ast.NotIn`; None of any other test."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _item_test(test.operand, name, items)
        return {ast.In: ast.NotIn, ast.NotIn: ast.In}.get(inner) if inner is not None else None
    if isinstance(test, ast.BoolOp):
        # behind `or` an item may be passed over for another reason, and behind `and` worked on less often: both pass what is done
        passing = ast.In if isinstance(test.op, ast.Or) else ast.NotIn
        relations = [_item_test(value, name, items) for value in test.values]
        return passing if passing in relations else None
    if isinstance(test, ast.Call) and dotted(test.func) == f"{name}.get" and test.args:
        return ast.In if _mentions(test.args[0], items) and not _changes_each_time(test.args[0]) else None
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.In | ast.NotIn):
        return None
    holder = test.comparators[0]
    holder = holder.func.value if isinstance(holder, ast.Call) and isinstance(holder.func, ast.Attribute) else holder
    is_item = _mentions(test.left, items) and not _changes_each_time(test.left)
    return type(test.ops[0]) if _name_of(holder) == name and is_item else None


def _goes_on_from(iterated: ast.expr, name: str) -> bool:
    """Tell whether a loop begins behind as many items as a name holds: `items[len(rows):]`, `range(made, 40)`."""
    for node in ast.walk(iterated):
        if isinstance(node, ast.Slice) and node.lower is not None and _mentions(node.lower, {name}):
            return True
        called = dotted(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and called in ("range", "islice") and len(node.args) >= 2:
            return _mentions(node.args[0 if called == "range" else 1], {name})
    return False


def _counts_on(loop: ast.While, name: str) -> bool:
    """Tell whether a loop counts a name up to a limit: `while made < 40: …; made += 1`."""
    test = loop.test
    bounded = isinstance(test, ast.Compare) and _name_of(test.left) == name and isinstance(test.ops[0], ast.Lt | ast.LtE)
    steps = (inner for statement in loop.body for inner in ast.walk(statement) if isinstance(inner, ast.AugAssign))
    return bounded and any(_name_of(step.target) == name and isinstance(step.op, ast.Add) for step in steps)


def _stores(uses: FileUses) -> Iterator[tuple[Caller, Texts]]:
    """Yield the calls that open a store by whose contents a program goes on, with its paths."""
    texts_of = uses.reader.texts
    statements = [caller for caller in uses.calls if _sql(caller.node)]
    changed = {match["table"].lower() for caller in statements if (match := _CHANGES.match(_sql(caller.node))) is not None}
    if any(_rewrites(_sql(caller.node)) for caller in statements):
        return  # a value made of its own former one is another one after each start
    if any(_is_open_statement(caller.node) for caller in uses.calls):
        return  # what only a run knows may do so as well
    empties = any(_EMPTIES.search(_sql(caller.node)) for caller in statements)
    queries = [caller for caller in statements if (match := _SELECT.match(_sql(caller.node))) and match["table"].lower() in changed]
    for caller in uses.calls:
        call, method = caller.node, dotted(caller.node.func).rpartition(".")[2]
        if dotted(call.func) == "sqlite3.connect" and changed and not empties:
            node = argument_of(call, "database", 0)
            query = next((query for query in queries if _result_decides(uses, query) or _fetches_decide(uses, query)), None)
            if node is not None and query is not None and not _refuses(caller.source, node):
                yield query, texts_of(caller.source, node, caller.scope)
        elif method == "create_study" and caller.source.value(argument_of(call, "load_if_exists", None)) is True:
            storages = texts_of(caller.source, argument_of(call, "storage", None), caller.scope)
            paths = frozenset(match["path"] for text in storages if (match := _STORE_URL.match(text)) is not None)
            if paths:
                yield caller, paths


def _added_anew(uses: FileUses, created: Caller) -> str:
    """Return the line by which a study makes as many trials again as it is told; empty where it makes only those that are missing.

    `n_trials` counts those of one call: optuna, Study.optimize. What bounds the study is the number that it has, or a callback.
    """
    scope: ast.AST = created.scope or uses.reader.names_of(created.source).tree
    studies = _names_from(scope, created.node)
    for caller in uses.calls:
        call = caller.node
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "optimize":
            continue
        place = f"{PurePosixPath(caller.source.path).name}:{call.lineno}"
        if _name_of(call.func.value) not in studies or caller.source is not created.source or caller.scope is not created.scope:
            return place
        options = {item.arg: item.value for item in call.keywords}
        number = options.get("n_trials", call.args[1] if len(call.args) > 1 else None)
        callbacks = ast.walk(options["callbacks"]) if "callbacks" in options else iter(())
        is_bounded = any(isinstance(node, ast.Call) and dotted(node.func).endswith("MaxTrialsCallback") for node in callbacks)
        if not (is_bounded or _is_rest(scope, number, studies) or _is_awaited(scope, call, studies)):
            return place
    return ""


def _is_rest(scope: ast.AST, number: ast.expr | None, studies: set[str]) -> bool:
    """Tell whether a number is what is missing to a limit: `50 - len(study.trials)`, also by a name that it is given once."""
    if isinstance(number, ast.Name):
        values = [node.value for node in ast.walk(scope) if isinstance(node, ast.Assign) and number.id in _assigned(node)]
        number = values[0] if len(values) == 1 else None
    if isinstance(number, ast.Call) and dotted(number.func) == "max" and len(number.args) == 2:
        number = next((item for item in number.args if not isinstance(item, ast.Constant)), None)
    if not isinstance(number, ast.BinOp) or not isinstance(number.op, ast.Sub) or _mentions(number.left, studies):
        return False
    return isinstance(number.right, ast.Call) and dotted(number.right.func) == "len" and _mentions(number.right, studies)


def _is_awaited(scope: ast.AST, call: ast.Call, studies: set[str]) -> bool:
    """Tell whether a call makes one trial in a loop that ends when a study has enough: `while len(study.trials) < 50`."""
    number = next((item.value for item in call.keywords if item.arg == "n_trials"), None)
    is_one = isinstance(number, ast.Constant) and number.value == 1
    for node in ast.walk(scope):
        if isinstance(node, ast.While) and any(inner is call for inner in ast.walk(node)):
            test = node.test
            if not is_one or not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Lt):
                return False
            return len(test.ops) == 1 and isinstance(test.left, ast.Call) and _mentions(test.left, studies)
    return False


def _sql(call: ast.Call) -> str:
    """Return the constant text of a call that asks or changes a store; empty of any other call."""
    first = call.args[0] if call.args and dotted(call.func).rpartition(".")[2] in QUERIES else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""


def _rewrites(sql: str) -> bool:
    """Tell whether a statement makes a value of columns that it changes itself, or of a query."""
    for match in _SET.finditer(_SQL_TEXT.sub("''", sql)):
        pairs = [(part["name"].lower(), part["value"].lower()) for part in _ASSIGNED.finditer(match["values"])]
        names = {name for name, _ in pairs}
        if any("select" in value or names & set(re.findall(r"\w+", value)) for _, value in pairs):
            return True
    return False


def _is_open_statement(call: ast.Call) -> bool:
    """Tell whether a call runs a statement that does not stand in the source."""
    is_run = dotted(call.func).rpartition(".")[2] in ("execute", "executemany", "executescript")
    return is_run and not (call.args and isinstance(call.args[0], ast.Constant))


def _fetches_decide(uses: FileUses, query: Caller) -> bool:
    """Tell whether work is passed over by what is fetched of a query's cursor: `cursor.execute(…)`, then `cursor.fetchall()`."""
    holder = _name_of(query.node.func.value) if isinstance(query.node.func, ast.Attribute) else ""
    fetches = [
        caller
        for caller in uses.calls
        if caller.source is query.source
        and caller.scope is query.scope
        and dotted(caller.node.func) in {f"{holder}.{method}" for method in ("fetchall", "fetchone", "fetchmany")}
        and caller.node.lineno >= query.node.lineno
    ]
    return bool(holder) and any(_result_decides(uses, fetch) for fetch in fetches[:1])


def _refuses(source: TrainerSource, path: ast.expr) -> bool:
    """Tell whether a program may end at once where a path is there, with the options that it is given."""
    for node in ast.walk(syntax_tree(source.text)):
        if not isinstance(node, ast.If) or not node.body:
            continue
        last = node.body[-1]
        ends = isinstance(last, ast.Raise) or (
            isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) and _EXITS.match(dotted(last.value.func)) is not None
        )
        parts = node.test.values if isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And) else [node.test]
        looks = any(
            isinstance(part, ast.Call) and PRESENT.search(dotted(part.func)) and ast.unparse(path) in ast.unparse(part)
            for part in parts
        )
        if ends and looks and not any(_is_false(source, part) for part in parts):
            return True
    return False


def _is_false(source: TrainerSource, test: ast.expr) -> bool:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        value = source.value(test.operand)
        return value is not UNKNOWN and bool(value)
    value = source.value(test) if isinstance(test, ast.Name | ast.Attribute) else UNKNOWN
    return value is not UNKNOWN and not value
