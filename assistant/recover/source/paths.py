"""Which paths an expression of a training program may name, followed through parameters, modules, options and configurations.

Where `TrainerSource.value` gives one value or none, this gives all that the text allows: a parameter has what its callers hand it,
an attribute what it was given, a key what a configuration says, by its value and whatever it is called. Pure; nothing is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.recover.job_program import JobProgram, normalised
from assistant.recover.shell.folders import UNRESOLVED
from assistant.recover.source.modules import Scope, ScopedNames
from assistant.recover.source.trainer_source import SourceCall, TrainerSource, dotted, truth

MOST_TEXTS = 8
"""Values of one expression that are followed; where there are more it is not known."""
MOST_DEPTH = 14
MOST_CALLERS = 8
MOST_READ = 100_000
"""Expressions of one program that are read; what is asked for behind that is not known."""
JOINS = frozenset("os.path.join path.join osp.join Path pathlib.Path PurePath join joinpath".split())
SAME = frozenset("str int os.fspath fspath os.path.abspath abspath os.path.expanduser expanduser os.path.realpath realpath".split())
"""Functions of a path that name the same place."""
SAME_METHODS = frozenset("resolve absolute expanduser as_posix strip rstrip format_map zfill rjust ljust item".split())
HOLDS_SETTINGS = re.compile(r"conf|cfg|setting|args|opt|param|hp$|hparams|flags|einst|^e$|^c$|^a$|^s$", re.IGNORECASE)
"""Names of variables that hold a configuration."""
NOTHING = frozenset(("", "null", "none", "true", "false"))
"""Values of a configuration that name no path."""
PLACE = re.compile(r"%(?:\((\w+)\))?[-+ #0]*\d*(?:\.\d+)?[sdrifeg]|%%")
FIELD = re.compile(r"\{([^{}!:]*)(?:![rsa])?(?::[^{}]*)?\}")

COUNTED = "\ufffb"
"""Stands in a text for a number that the program counts up: a step, an epoch."""
SIGNS = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv)
Texts = frozenset[str]
UNKNOWN_TEXT: Texts = frozenset((UNRESOLVED,))
COUNT: Texts = frozenset((COUNTED,))


class Caller(NamedTuple):
    """A call of a function, and where it stands."""

    source: TrainerSource
    node: ast.Call
    scope: Scope


class PathReader:
    """Reads the paths that the expressions of one program may name."""

    def __init__(self, program: JobProgram) -> None:
        self.program = program
        self.sources = tuple(source for source in program.sources if source.parsed)
        self._names = {id(source): ScopedNames(source) for source in self.sources}
        self._stems = {PurePosixPath(source.path).stem: source for source in reversed(self.sources)}
        self._settings = {option.last: option.value for option in reversed(program.settings)}
        self._sections = {option.name: option.value for option in reversed(program.settings) if "." in option.name}
        self._open: list[tuple[int, str]] = []
        self._values: dict[tuple[int, int], Texts] = {}
        self._readings_allowed = MOST_READ
        self._by_name: dict[str, list[Caller]] = {}
        """The calls that a run may come to, by the last part of their names."""
        for caller in self.calls():
            self._by_name.setdefault(dotted(caller.node.func).rpartition(".")[2], []).append(caller)
        self._renamed = {
            alias: inner for names in self._names.values() for alias, (_, inner) in names.imported.items() if alias != inner
        }

    def names_of(self, source: TrainerSource) -> ScopedNames:
        """Return what the names of one file are given."""
        return self._names[id(source)]

    def calls(self) -> Iterator[Caller]:
        """Yield the calls that a run may come to, each with its function."""
        for source in self.sources:
            reached = {(call.line, call.name) for call in source.calls}
            for node, scope in self.names_of(source).calls:
                if (node.lineno, dotted(node.func)) in reached:
                    yield Caller(source, node, scope)

    def function_of(self, caller: Caller) -> tuple[TrainerSource, ast.FunctionDef | ast.AsyncFunctionDef] | None:
        """Return the function of the program or a module beside it that a call calls; None for others, and where several may be."""
        name = dotted(caller.node.func)
        first, _, last = name.rpartition(".")
        names = self.names_of(caller.source)
        if not first:
            module, inner = names.imported.get(name, ("", name))
            source = self._module(module) if name in names.imported else caller.source
            return self._single(source, inner) if source is not None else None
        root = first.partition(".")[0]
        if root in names.aliases or root in names.imported:
            dotted_module = names.aliases.get(root) or ".".join(part for part in names.imported[root] if part)
            source = self._module(dotted_module) or self._module(first)
            return self._single(source, last) if source is not None else None
        methods = [
            (source, node)
            for source in self.sources
            for node in self.names_of(source).functions.get(last, ())
            if id(node) in self.names_of(source).classes
        ]
        return methods[0] if len(methods) == 1 else None

    def _module(self, name: str) -> TrainerSource | None:
        return self._stems.get(name.lstrip(".").rpartition(".")[2]) if name else None

    def _single(self, source: TrainerSource, name: str) -> tuple[TrainerSource, ast.FunctionDef | ast.AsyncFunctionDef] | None:
        nodes = self.names_of(source).functions.get(name, ())
        return (source, nodes[0]) if len(nodes) == 1 else None

    def texts(self, source: TrainerSource, node: ast.expr | None, scope: Scope, depth: int = 0) -> Texts:
        """Return the texts that an expression may be; what is not known of one stands in it as `UNRESOLVED`.

        Empty where it is None or an empty text.
        """
        self._readings_allowed -= 1
        if node is None or depth > MOST_DEPTH or self._readings_allowed < 0:
            return UNKNOWN_TEXT
        earlier = self._values.get((id(node), id(scope)))
        if earlier is not None:
            return earlier
        result_texts = self._read(source, node, scope, depth + 1)
        result_texts = result_texts if len(result_texts) <= MOST_TEXTS else UNKNOWN_TEXT
        if not self._open and depth == 0:
            self._values[id(node), id(scope)] = result_texts
        return result_texts

    def _read(self, source: TrainerSource, node: ast.expr, scope: Scope, depth: int) -> Texts:
        if isinstance(node, ast.Constant):
            if node.value is None or node.value == "":
                return frozenset()
            return (
                frozenset((str(node.value),))
                if isinstance(node.value, str | int) and not isinstance(node.value, bool)
                else UNKNOWN_TEXT
            )
        if isinstance(node, ast.Name):
            return self._name(source, node.id, scope, depth)
        if isinstance(node, ast.Attribute):
            return self._attribute(source, node, scope, depth)
        if isinstance(node, ast.JoinedStr):
            return self._joined([self._piece(source, item, scope, depth) for item in node.values])
        if isinstance(node, ast.BinOp):
            return self._operation(source, node, scope, depth)
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            return self._first(source, node.values, scope, depth)
        if isinstance(node, ast.IfExp):
            answer = truth(source, node.test)
            branches = [node.body] * (answer is not False) + [node.orelse] * (answer is not True)
            return frozenset().union(*(self.texts(source, item, scope, depth) for item in branches))
        if isinstance(node, ast.Subscript):
            return self._element(source, node, scope, depth)
        if isinstance(node, ast.NamedExpr):
            return self.texts(source, node.value, scope, depth)
        return self._call(source, node, scope, depth) if isinstance(node, ast.Call) else UNKNOWN_TEXT

    def _joined(self, parts: Sequence[Texts], between: str = "") -> Texts:
        filled = [part or frozenset(("",)) for part in parts]
        count = 1
        for part in filled:
            count *= len(part)
        if count > MOST_TEXTS:
            filled = [part if len(part) == 1 else UNKNOWN_TEXT for part in filled]
        if not between:
            return frozenset("".join(pieces) for pieces in product(*filled))
        return frozenset(str(PurePosixPath(*pieces)) for pieces in product(*filled))

    def _piece(self, source: TrainerSource, node: ast.expr, scope: Scope, depth: int) -> Texts:
        if not isinstance(node, ast.FormattedValue):
            return self.texts(source, node, scope, depth)
        result_texts = self.texts(source, node.value, scope, depth)
        return result_texts if node.format_spec is None or not any(text.isdecimal() for text in result_texts) else UNKNOWN_TEXT

    def _operation(self, source: TrainerSource, node: ast.BinOp, scope: Scope, depth: int) -> Texts:
        left_texts = self.texts(source, node.left, scope, depth)
        if isinstance(node.op, ast.Mod):
            values = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
            return frozenset().union(*(self._filled(source, form, values, scope, depth) for form in left_texts))
        right = self.texts(source, node.right, scope, depth)
        numbers = all(text == COUNTED or text.isdecimal() for text in left_texts | right)
        if isinstance(node.op, SIGNS) and COUNT in (left_texts, right) and (numbers or not isinstance(node.op, ast.Add)):
            return COUNT
        if not isinstance(node.op, ast.Add | ast.Div):
            return UNKNOWN_TEXT
        return self._joined([left_texts, right], "/" if isinstance(node.op, ast.Div) else "")

    def _filled(self, source: TrainerSource, form: str, values: Sequence[ast.expr], scope: Scope, depth: int) -> Texts:
        """Return `"%s/step_%d" % (folder, step)`, where a number is written as the form says, with what stands in its places."""
        parts: list[Texts] = []
        end, place = 0, 0
        for match in PLACE.finditer(form):
            parts.append(frozenset((form[end : match.start()],)))
            end = match.end()
            if match[0] == "%%":
                parts.append(frozenset(("%",)))
            elif match[1] or place >= len(values):
                parts.append(UNKNOWN_TEXT)
            else:
                texts = self.texts(source, values[place], scope, depth)
                parts.append(texts if match[0] in ("%s", "%d") or texts == COUNT else UNKNOWN_TEXT)
                place += 1
        return self._joined([*parts, frozenset((form[end:],))])

    def _first(self, source: TrainerSource, values: Sequence[ast.expr], scope: Scope, depth: int) -> Texts:
        """Return what `a or b` may be: the first that is surely something ends it."""
        result_texts: Texts = frozenset()
        for value in values:
            texts = self.texts(source, value, scope, depth)
            result_texts |= texts
            if texts and UNRESOLVED not in texts:
                break
        return result_texts

    def _name(self, source: TrainerSource, name: str, scope: Scope, depth: int) -> Texts:
        names = self.names_of(source)
        key = (id(scope), name)
        if key in self._open:
            return UNKNOWN_TEXT
        if key in names.counted:
            return COUNT
        assigned = names.assigned.get(key, ())
        if assigned or key in names.changed:
            self._open.append(key)
            result_texts = frozenset().union(*(self.texts(source, value, scope, depth) for value in assigned[:MOST_TEXTS]))
            self._open.pop()
            return result_texts | (UNKNOWN_TEXT if key in names.changed or len(assigned) > MOST_TEXTS else frozenset())
        if scope is not None and name in _parameters(scope):
            self._open.append(key)
            result_texts = self._handed(source, scope, name, depth)
            self._open.pop()
            return result_texts
        if scope is not None:
            return self._name(source, name, names.parents.get(id(scope)), depth)
        if name == "__file__":
            return frozenset((source.path,))
        if name in names.imported:
            module, inner = names.imported[name]
            module_source = self._module(module)
            return (
                self._name(module_source, inner, None, depth)
                if module_source is not None and module_source is not source
                else UNKNOWN_TEXT
            )
        return UNKNOWN_TEXT

    def _handed(self, source: TrainerSource, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, depth: int) -> Texts:
        """Return what the callers of a function hand one of its parameters."""
        result_texts: Texts = frozenset()
        callers = list(self.callers(source, function))
        for caller in callers[:MOST_CALLERS]:
            node = argument_of(caller.node, function, name, bound=id(function) in self.names_of(source).classes)
            node, file, scope = (
                (node, caller.source, caller.scope) if node is not None else (_default(function, name), source, None)
            )
            result_texts |= self.texts(file, node, scope, depth) if node is not None else UNKNOWN_TEXT
        if not callers and (default := _default(function, name)) is not None:
            return self.texts(source, default, None, depth) | UNKNOWN_TEXT
        return result_texts if callers and len(callers) <= MOST_CALLERS else UNKNOWN_TEXT

    def callers(self, source: TrainerSource, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Caller]:
        """Yield the calls of a function that a run may come to."""
        holder = self.names_of(source).classes.get(id(function), "")
        if function.name == "__init__":
            yield from self._by_name.get(holder, ()) if holder else ()
            return
        for name in (function.name, *(alias for alias, inner in self._renamed.items() if inner == function.name)):
            for caller in self._by_name.get(name, ()):
                callee = self.function_of(caller)
                if callee is not None and callee[1] is function:
                    yield caller

    def _attribute(self, source: TrainerSource, node: ast.Attribute, scope: Scope, depth: int) -> Texts:
        names, root = self.names_of(source), dotted(node.value)
        if (module := self._module_named(source, root)) is not None:
            return self._name(module, node.attr, None, depth)
        if any(node.attr in self.names_of(item).counted_attributes for item in self.sources):
            return COUNT
        if root == "self" or root.startswith("self."):
            return self._of_object(node.attr, depth)
        if node.attr == "parent":
            return frozenset(_above(text) for text in self.texts(source, node.value, scope, depth))
        if (option := self._option(node.attr)) is not None:
            return option
        if root and HOLDS_SETTINGS.search(root.rpartition(".")[2]) and (setting := self._setting(node.attr)) is not None:
            return setting
        of_class = names.assigned.get((id(None), node.attr), ())
        if root[:1].isupper() and of_class:
            return frozenset().union(*(self.texts(source, value, None, depth) for value in of_class))
        return UNKNOWN_TEXT if node.attr in ("name", "stem", "suffix") else self._of_object(node.attr, depth)

    def _module_named(self, source: TrainerSource, root: str) -> TrainerSource | None:
        names = self.names_of(source)
        module = names.aliases.get(root) or (".".join(names.imported[root]) if root in names.imported else "")
        return self._module(module)

    def _of_object(self, attribute: str, depth: int) -> Texts:
        """Return what an attribute of the program's own objects is assigned anywhere."""
        key = (0, attribute)
        if key in self._open:
            return UNKNOWN_TEXT
        self._open.append(key)
        result_texts: Texts = frozenset()
        count = 0
        for source in self.sources:
            for value, scope in self.names_of(source).attributes.get(attribute, ()):
                count += 1
                result_texts |= self.texts(source, value, scope, depth)
        self._open.pop()
        return result_texts if count else UNKNOWN_TEXT

    def _option(self, key: str) -> Texts | None:
        """Return the value of an option of the program; None where it declares none of that name."""
        for source in self.sources:
            if key in source.options:
                value = source.options[key]
                if value is None or value == "":
                    return frozenset()
                return frozenset((str(value),)) if isinstance(value, str | int) and not isinstance(value, bool) else UNKNOWN_TEXT
        return None

    def _setting(self, key: str) -> Texts | None:
        """Return what a configuration says under a key, whatever that is called; None where it has no such key."""
        value = self._settings.get(normalised(key))
        if value is None:
            return None
        return frozenset((value,)) if value.lower() not in NOTHING else frozenset()

    def _element(self, source: TrainerSource, node: ast.Subscript, scope: Scope, depth: int) -> Texts:
        value = source.value(node)
        if isinstance(value, str) and UNRESOLVED not in value and dotted(node.value) in ("sys.argv", "os.environ", "environ"):
            return frozenset((value,)) if value else frozenset()
        if not isinstance(node.slice, ast.Constant) or not isinstance(node.slice.value, str):
            return UNKNOWN_TEXT
        return self._keyed(source, node.value, node.slice.value, scope, depth)

    def _keyed(self, source: TrainerSource, holder: ast.expr, key: str, scope: Scope, depth: int) -> Texts:
        """Return what stands under a key: of a table that the program writes itself, of its options, or of a configuration."""
        tables = self.names_of(source).assigned.get((id(None), holder.id), ()) if isinstance(holder, ast.Name) else ()
        for table in tables:
            for name, item in zip(table.keys, table.values, strict=True) if isinstance(table, ast.Dict) else ():
                if isinstance(name, ast.Constant) and name.value == key:
                    return self.texts(source, item, None, depth)
        option = self._option(key)
        setting = self._setting(key) if option is None else None
        return option if option is not None else setting if setting is not None else UNKNOWN_TEXT

    def _call(self, source: TrainerSource, node: ast.Call, scope: Scope, depth: int) -> Texts:
        name, method = dotted(node.func), dotted(node.func).rpartition(".")[2]
        of = node.func.value if isinstance(node.func, ast.Attribute) else None
        if name in SAME and node.args:
            return self.texts(source, node.args[0], scope, depth)
        if name in JOINS or (method == "joinpath" and of is not None):
            parts = [*([of] if method == "joinpath" and of is not None else []), *node.args]
            if any(isinstance(part, ast.Starred) for part in parts):
                return UNKNOWN_TEXT
            return self._joined([self.texts(source, part, scope, depth) for part in parts], "/")
        if name in ("os.environ.get", "os.getenv", "environ.get", "getenv") and node.args:
            return self._variable(source, node, scope, depth)
        if name == "getattr" and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            result_texts = self._option(str(node.args[1].value))
            return (
                result_texts
                if result_texts is not None
                else self.texts(source, node.args[2], scope, depth)
                if len(node.args) > 2
                else UNKNOWN_TEXT
            )
        if method == "format" and of is not None:
            return self._formatted(source, node, of, scope, depth)
        if method == "get" and (texts := self._of_section(node)) is not None:
            return texts
        if method == "get" and of is not None and node.args and isinstance(node.args[0], ast.Constant):
            result_texts = self._keyed(source, of, str(node.args[0].value), scope, depth)
            default = node.args[1] if len(node.args) > 1 else None
            return (
                result_texts
                if UNRESOLVED not in result_texts and result_texts
                else result_texts | self.texts(source, default, scope, depth)
            )
        if method in SAME_METHODS and of is not None:
            return self.texts(source, of, scope, depth)
        if method in ("dirname", "parent") and node.args:
            return frozenset(_above(text) for text in self.texts(source, node.args[0], scope, depth))
        return self._returned(Caller(source, node, scope), depth)

    def _of_section(self, node: ast.Call) -> Texts | None:
        """Return what configparser's `settings.get("section", "key")` gives; None where no configuration has such a key."""
        words = [item.value for item in node.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        key = ".".join(map(normalised, words)) if len(words) == len(node.args) == 2 else ""
        value = self._sections.get(key)
        return None if value is None else frozenset((value,)) if value.lower() not in NOTHING else frozenset()

    def _variable(self, source: TrainerSource, node: ast.Call, scope: Scope, depth: int) -> Texts:
        key = source.value(node.args[0])
        if isinstance(key, str) and source.environment.get(key):
            text = source.environment[key]
            return frozenset((text,))
        return self.texts(source, node.args[1], scope, depth) if len(node.args) > 1 else frozenset()

    def _formatted(self, source: TrainerSource, node: ast.Call, form: ast.expr, scope: Scope, depth: int) -> Texts:
        keywords: Mapping[str, ast.expr] = {item.arg: item.value for item in node.keywords if item.arg}
        result_texts: Texts = frozenset()
        for text in self.texts(source, form, scope, depth):
            parts: list[Texts] = []
            end = place = 0
            for match in FIELD.finditer(text):
                parts.append(frozenset((text[end : match.start()],)))
                end = match.end()
                value = keywords.get(match[1])
                if not match[1] or match[1].isdecimal():
                    at = int(match[1]) if match[1] else place
                    value = node.args[at] if at < len(node.args) else None
                    place += 1
                texts = self.texts(source, value, scope, depth) if value is not None else UNKNOWN_TEXT
                parts.append(texts if ":" not in match[0] or texts == COUNT else UNKNOWN_TEXT)
            result_texts |= self._joined([*parts, frozenset((text[end:],))])
        return result_texts

    def _returned(self, caller: Caller, depth: int) -> Texts:
        """Return what a function of the program may give back."""
        callee = self.function_of(caller)
        if callee is None or (id(callee[1]), "()") in self._open:
            return UNKNOWN_TEXT
        source, function = callee
        self._open.append((id(function), "()"))
        values = self.names_of(source).returned.get(id(function), [])
        result_texts = frozenset().union(*(self.texts(source, value, function, depth) for value in values[:MOST_TEXTS]))
        self._open.pop()
        return result_texts if values else UNKNOWN_TEXT


def argument_of(call: ast.Call, function: ast.FunctionDef | ast.AsyncFunctionDef, name: str, *, bound: bool) -> ast.expr | None:
    """Return what a call hands a parameter; None where it leaves that out, or hands on what cannot be told apart.

    Args:
        call: Of the function.
        function: That is called.
        name: Of its parameter.
        bound: Whether it is a method, whose first parameter is the object.
    """
    keyword = next((item.value for item in call.keywords if item.arg == name), None)
    if keyword is not None:
        return keyword
    positional = [item.arg for item in (*function.args.posonlyargs, *function.args.args)]
    positional = positional[1:] if bound and positional[:1] in (["self"], ["cls"]) else positional
    place = positional.index(name) if name in positional else len(call.args)
    starred = any(isinstance(item, ast.Starred) for item in call.args[: place + 1])
    return call.args[place] if place < len(call.args) and not starred else None


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    return {item.arg for item in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}


def _default(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> ast.expr | None:
    positional = [*function.args.posonlyargs, *function.args.args]
    pairs = dict(zip([item.arg for item in reversed(positional)], reversed(function.args.defaults), strict=False))
    keyword_pairs = zip((item.arg for item in function.args.kwonlyargs), function.args.kw_defaults, strict=True)
    return pairs.get(name) or next((value for key, value in keyword_pairs if key == name), None)


def _above(path: str) -> str:
    return str(PurePosixPath(path).parent)


def source_call(source: TrainerSource, node: ast.Call) -> SourceCall | None:
    """Return the call of a source that stands at a node; None for one that no run comes to."""
    name = dotted(node.func)
    return next((call for call in source.calls if call.line == node.lineno and call.name == name), None)
