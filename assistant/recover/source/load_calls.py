"""What the calls of a training program load: checkpoints of its own or something else, one file or what a run chooses.

`opened_paths` reads off which path a line opens, as far as constants, assignments and options tell it. The line is that of a frame
of a traceback, and counts only where it stands in the function that the frame names: else the text is not the one that ran. What
only a run knows (`"shard-%02d.bin" % n`, an f-string) is left open.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.recover.checkpoints.layout import could_be_checkpoint
from assistant.recover.job_program import JobProgram
from assistant.recover.shell.folders import UNRESOLVED
from assistant.recover.source.declared_settings import UNKNOWN
from assistant.recover.source.trainer_source import SourceCall, TrainerSource, dotted, syntax_tree

SAVED_NAMES = re.compile(
    r"ckpt|check_?point|step|iter|epoch|save|resume|latest|last|snapshot|state|get_last|\bout|model_\*|\.ckpt\b", re.IGNORECASE
)
BASE_NAMES = re.compile(r"pretrain|base_model|init_weights|teacher|vocab|token|dataset", re.IGNORECASE)
PRESENT = re.compile(r"\b(?:l?exists|isdir|isfile|islink|is_dir|is_file|is_symlink)\b")
"""Tests of what lies in a folder."""
SETTINGS = re.compile(r"conf|cfg|settings|hparams|hyperparam", re.IGNORECASE)


def only_file(source: TrainerSource, call: SourceCall) -> str:
    """Return the name of the one file that a call loads at each start; empty where it is not known before the run."""
    value = source.value(call.positional[0]) if call.positional else UNKNOWN
    if not isinstance(value, str) or UNRESOLVED in value:
        return ""
    name = PurePosixPath(value).name
    return name if could_be_checkpoint(name, folder=False) else ""


def about_saves(source: TrainerSource, call: SourceCall) -> bool:
    """Tell whether a call is about checkpoints, by how its object and its arguments are written: not about data or base weights."""
    nodes: list[ast.expr] = [*call.positional, *call.keywords.values()]
    nodes += source.names.get(call.name.partition(".")[0], [])
    written = " ".join([call.name, *(source.text_of(node) for node in nodes), *(str(source.value(node)) for node in nodes)])
    return SAVED_NAMES.search(written) is not None and BASE_NAMES.search(written) is None


def has_another_source(source: TrainerSource, call: SourceCall) -> bool:
    """Tell whether what a call loads is an option's value or, without it, something that the program itself looks up."""
    node = call.positional[0] if call.positional else None
    values = source.names.get(node.id, []) if isinstance(node, ast.Name) else []
    options = [value for value in values if isinstance(value, ast.Attribute)]
    other_values = [value for value in values if not isinstance(value, ast.Attribute | ast.Constant | ast.Name)]
    return bool(options and other_values)


def enclosing_functions(source: TrainerSource, line: int) -> list[tuple[str, frozenset[str]]]:
    """Return the functions that a line stands in, outermost first, each with the names of its parameters."""
    functions = [
        node
        for node in ast.walk(syntax_tree(source.text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    parameters = [[*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs] for node in functions]
    return [(node.name, frozenset(argument.arg for argument in own)) for node, own in zip(functions, parameters, strict=True)]


def only_if_there(source: TrainerSource, call: SourceCall) -> bool:
    """Tell whether a load is made where what it loads is there: by a test around it, before it, or of a name that it uses."""
    if any(PRESENT.search(source.text_of(test)) for test in call.conditions):
        return True
    tree = syntax_tree(source.text)
    function = innermost_function(tree, call.line)
    names = {
        inner.id if isinstance(inner, ast.Name) else inner.attr
        for node in (*call.positional, *call.keywords.values(), *call.conditions)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Name | ast.Attribute)
    } - {"self", "args", "cfg", "config", "os", "path"}
    for test in ast.walk(function or tree):
        if not isinstance(test, ast.If) or test.lineno > call.line or not PRESENT.search(ast.unparse(test.test)):
            continue
        about = {
            name_node.id if isinstance(name_node, ast.Name) else name_node.attr
            for name_node in ast.walk(test)
            if isinstance(name_node, ast.Name | ast.Attribute)
        }
        last = test.body[-1]
        if isinstance(last, ast.Return | ast.Raise | ast.Continue) and names & about:
            return True  # it leaves where nothing is there
        names_bound = {
            name_node.id for name_node in ast.walk(test) if isinstance(name_node, ast.Name) and isinstance(name_node.ctx, ast.Store)
        }
        if names & names_bound:
            return True
    return False


def in_loop(source: TrainerSource, line: int) -> bool:
    """Tell whether a line stands in a loop."""
    loops = (node for node in ast.walk(syntax_tree(source.text)) if isinstance(node, ast.For | ast.While))
    return any(node.lineno <= line <= (node.end_lineno or node.lineno) for node in loops)


def branch_of_a_path(choice: ast.IfExp, newest_words: Collection[str]) -> tuple[ast.expr | None, ast.expr | None]:
    """Return which side of `a if test else b` a path takes, and what the test asks for it; None and None where that is open.

    The other side is None, or is taken for a word that stands for the newest: `x if x != "latest" else newest()`.
    """
    sides = [side for side in (choice.body, choice.orelse) if not (isinstance(side, ast.Constant) and side.value is None)]
    if len(sides) == 1:
        return sides[0], None
    test = choice.test
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.comparators[0], ast.Constant):
        return None, None
    if str(test.comparators[0].value).lower() not in newest_words or not isinstance(test.ops[0], ast.Eq | ast.NotEq):
        return None, None
    return choice.body if isinstance(test.ops[0], ast.NotEq) else choice.orelse, test.left


MOST_CALLERS = 4
"""Functions through which a call is followed to where the program begins."""
STEPS = frozenset(("backward", "fit", "learn", "train_one_epoch"))
"""Calls that train, or go through one round of it."""


def is_after_training(program: JobProgram, source: TrainerSource, line: int, training: Collection[str], depth: int = 0) -> bool:
    """Tell whether a line is run only once the training is over: what it lists or loads is the result, and not where it begins.

    Proven where the training stands earlier in the same function, not within one loop with the line, or where each call of the
    function that the line stands in is.

    Args:
        program: That the source belongs to.
        source: That the line stands in.
        line: 1-based.
        training: From `training_functions`.
        depth: Callers that were followed.
    """
    if depth > MOST_CALLERS or not source.parsed:
        return False
    tree = syntax_tree(source.text)
    function = innermost_function(tree, line)
    if _trained_before(tree.body if function is None else function.body, line, training):
        return True
    if function is None:
        return False
    uses = [(source, call) for source in program.sources for call in source.called(function.name)]
    return bool(uses) and all(is_after_training(program, caller, call.line, training, depth + 1) for caller, call in uses)


def training_functions(program: JobProgram) -> frozenset[str]:
    """Return the names of the functions of a program that surely train; one of which there are two by that name is none."""
    functions: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
    for source in program.sources:
        for name, nodes in source.functions.items():
            functions.setdefault(name, []).extend(nodes)
    single = {name: nodes[0] for name, nodes in functions.items() if len(nodes) == 1 and name != "forward"}
    steps = frozenset(name for name, node in single.items() if any(_called(statement) & STEPS for statement in node.body)) | STEPS
    training: frozenset[str] = frozenset()
    for _ in range(MOST_CALLERS):
        trainers = frozenset(
            name for name, node in single.items() if any(_trains(statement, training, steps) for statement in node.body)
        )
        if trainers == training:
            break
        training = trainers
    return training


def innermost_function(tree: ast.Module, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the function that a line stands in, the innermost; None for one that stands in none."""
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return max(functions, key=lambda node: node.lineno, default=None)


def _trained_before(body: Sequence[ast.stmt], line: int, training: Collection[str]) -> bool:
    """Tell whether a block trains before a line of it, in a statement of its own or of a block around the line."""
    for statement in body:
        if statement.lineno > line:
            return False
        if line > (statement.end_lineno or statement.lineno):
            if _trains(statement, training, STEPS):
                return True
            continue
        if isinstance(statement, ast.For | ast.AsyncFor | ast.While):
            return False  # the next round begins after what stands below the line
        blocks = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
        return any(_trained_before(block, line, training) for block in blocks if isinstance(block, list))
    return False


def _trains(statement: ast.stmt, training: Collection[str], steps: Collection[str]) -> bool:
    """Tell whether a statement surely trains: a loop with steps, or a call of a function that does; no branch of an `if`."""
    if isinstance(statement, ast.If | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Match):
        return False
    called = _called(statement)
    looped = isinstance(statement, ast.For | ast.AsyncFor | ast.While)
    return bool(called & {"fit", "learn"}) or bool(called & set(training)) or (looped and bool(called & set(steps)))


def _called(node: ast.AST) -> set[str]:
    return {dotted(inner.func).rpartition(".")[2] for inner in ast.walk(node) if isinstance(inner, ast.Call)}


def known_at_run_only(source: TrainerSource, call: SourceCall) -> bool:
    """Tell whether what a call loads is chosen while it runs; weights of a model that are put in place are no load of their own."""
    if call.method == "load_state_dict":
        return False
    values = [source.value(node) for node in call.positional[:1] or list(call.keywords.values())[:1]]
    return not values or values[0] is UNKNOWN or (isinstance(values[0], str) and UNRESOLVED in values[0])


def reads_settings(source: TrainerSource, call: SourceCall) -> bool:
    """Tell whether a call loads a configuration: TOML and YAML hold no weights, and of JSON the words tell it."""
    library = call.name.partition(".")[0]
    written = " ".join([call.name, *(source.text_of(node) for node in call.positional)])
    return library in ("tomllib", "tomli", "toml", "yaml", "OmegaConf") or (
        library == "json" and SETTINGS.search(written) is not None
    )


TRAINS = frozenset("backward step fit learn train train_step train_epoch minimize update apply_gradients save_checkpoint".split())
"""Calls of which a program that trains has one at least: an evaluation loads checkpoints and has none."""
SAVES = frozenset(
    ("save", "save_checkpoint", "save_state", "save_pretrained", "save_model", "save_file", "save_weights", "async_save", "fit")
)
"""Calls of programs that leave something behind which a second run would write over."""
LOADS = frozenset(
    "load load_checkpoint load_state_dict load_state restore restore_checkpoint load_file loads load_model unpickle".split()
)
"""Calls that load something."""
BEGINS = re.compile(r"load|resum|restor|latest|last|newest|continue|\bmain\b|train", re.IGNORECASE)
"""Names of functions in which a program looks for where to begin."""


def is_for_beginning(source: TrainerSource, call: SourceCall) -> bool:
    """Tell whether the function that a listing stands in is one that looks for where to begin, and no test or tool beside it."""
    return any(BEGINS.search(name) for name, _ in enclosing_functions(source, call.line))


def free_words(program: JobProgram) -> list[str]:
    """Return the words behind a program that are no value of an option or of a setting in capitals: they may be options."""
    words = program.launch.arguments
    before = ("=", *words)
    return [
        word
        for word, word_before in zip(words, before, strict=False)
        if "=" in word_before or not (word_before.startswith("-") or word_before.isupper())
    ]


MOST_PATHS, MOST_CHARACTERS, FEWEST_PARTS = 4, 2_000, 3
"""Paths of one line; characters of one; parts of a folder, `/` included: above it everything lies."""
OPENS = re.compile(
    r"^(?:\w*open\w*|File|load\w*|\w+_load|read\w*|\w*read|memmap|mmap|from(?:file|txt|_\w+)|genfromtxt|listdir|scandir|iterdir"
    r"|l?stat|getsize|getmtime|chdir|copy\w*|parse)$"
)
"""Calls that fail where a path cannot be used; a test such as `exists` does not."""
_DIRECTIVE = re.compile(r"%(?:\(\w{1,80}\))?[-#0 +]{0,5}\d{0,4}(?:\.\d{1,4})?([a-zA-Z%])")
_FIELD = re.compile(r"\{\{|\}\}|\{[^{}]{0,200}\}")


class OpenedPath(NamedTuple):
    """A path that a line opens."""

    path: str
    """Absolute: all of it, or the folder above its first part that is known in part only."""
    name: tuple[str, ...] = ()
    """What is known of the entry of that folder: the texts before, between and behind what only a run knows. Empty where `path` is
    all of it, or the entry is a folder."""

    @property
    def pattern(self) -> str:
        """The path as people write it: `/data/shard-*.bin`."""
        return f"{self.path}/{'*'.join(self.name)}" if self.name else self.path

    def names(self, path: str) -> bool:
        """Tell whether a file of the folder may be the one that was opened."""
        entry = PurePosixPath(path)
        if not self.name or str(entry.parent) != self.path:
            return False
        begin, *between, end = self.name
        file_name = entry.name
        if not file_name.startswith(begin) or not file_name.endswith(end) or len(file_name) < len(begin) + len(end):
            return False
        middle, at = file_name[len(begin) : len(file_name) - len(end)], 0
        for text in between:
            at = middle.find(text, at) + len(text)
            if at < len(text):
                return False
        return True


def opened_paths(source: TrainerSource, line: int, function: str) -> tuple[OpenedPath, ...]:
    """Return the absolute paths that a line opens; none where it opens none, or does not stand in that function.

    Args:
        source: The program.
        line: 1-based, of a frame.
        function: As the frame names it: `<module>`, `load`, `Reader.__next__`.
    """
    if not source.parsed:
        return ()
    tree = syntax_tree(source.text)
    enclosing = innermost_function(tree, line)
    if not _stands_in(enclosing, function):
        return ()
    parameters = _parameters(enclosing) if enclosing is not None else set()
    unknown = {*parameters, *source.rebound}
    narrowed = replace(
        source,
        names={name: values for name, values in source.names.items() if name not in unknown},
        options={name: value for name, value in source.options.items() if name not in unknown},
    )
    texts = (text for call in _calls_at(tree, line) for node in _operands(call) if (text := _text_of(narrowed, node)))
    paths = (opened for text in texts if (opened := _opened(text)) is not None)
    return tuple(dict.fromkeys(paths))[:MOST_PATHS]


def _stands_in(enclosing: ast.FunctionDef | ast.AsyncFunctionDef | None, function: str) -> bool:
    name = function.rpartition(".")[2]
    if name == "<module>" or enclosing is None:
        return enclosing is None and name == "<module>"
    return name == enclosing.name or name.startswith("<")  # a comprehension or lambda stands in some function


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    arguments = function.args
    more = [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    return {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *more)}


def _calls_at(tree: ast.Module, line: int) -> Iterator[ast.Call]:
    """Yield the calls that begin at a line or whose name ends there: that is the line which a frame shows for them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and line in (node.lineno, node.func.end_lineno):
            method = node.func.attr if isinstance(node.func, ast.Attribute) else dotted(node.func)
            if OPENS.match(method.rpartition(".")[2]):
                yield node


def _operands(call: ast.Call) -> Iterator[ast.expr]:
    """Yield what may be the path of a call: its object (`Path(…).open()`), its first argument, its named ones."""
    if isinstance(call.func, ast.Attribute):
        yield call.func.value
    yield from call.args[:1]
    yield from (keyword.value for keyword in call.keywords if keyword.arg)


def _text_of(source: TrainerSource, node: ast.expr, depth: int = 0) -> str:
    """Return the text of an expression with `UNRESOLVED` for what only a run knows; empty where nothing of it is known."""
    value = source.value(node)
    if isinstance(value, str):
        return value[:MOST_CHARACTERS]
    if depth > 2 or value is not UNKNOWN:
        return ""
    if isinstance(node, ast.Name):
        texts = {_text_of(source, expression, depth + 1) for expression in source.names.get(node.id, [])}
        return texts.pop() if len(texts) == 1 else ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        text = _text_of(source, node.left, depth + 1)
        return _DIRECTIVE.sub(lambda match: "%" if match[1] == "%" else UNRESOLVED, text)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        text = _text_of(source, node.func.value, depth + 1)
        return _FIELD.sub(lambda match: match[0][0] if match[0] in ("{{", "}}") else UNRESOLVED, text)
    return ""


def _opened(text: str) -> OpenedPath | None:
    """Return the path that a text is; None for one that is not absolute, or of which too little is known."""
    if not text.startswith("/") or text.startswith("//") or "\n" in text or "\0" in text:
        return None
    certain, mark, _ = text.partition(UNRESOLVED)
    if not mark:
        return OpenedPath(str(PurePosixPath(text))) if len(PurePosixPath(text).parts) >= FEWEST_PARTS else None
    folder = certain.rpartition("/")[0]
    if len(PurePosixPath(folder).parts) < FEWEST_PARTS or ".." in PurePosixPath(folder).parts:
        return None
    name, deeper, _ = text[len(folder) + 1 :].partition("/")
    return OpenedPath(str(PurePosixPath(folder)), () if deeper else tuple(name.split(UNRESOLVED)))
