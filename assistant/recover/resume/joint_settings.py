"""The settings by which a program goes on that has to be told so by two or more: that it is to load, and what.

`--init_from=resume --resume_ckpt=PATH`, `--resume --resume-from PATH`: the tests around each call that loads name the switches, the
path that it is handed names the choice. Each setting is an option of argparse or a global of the program that a configurator takes
from `--key=value`. It is read and never run, and what comes of it is a proposal: a trial start has to prove it. Pure.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from assistant.recover.job_program import JobProgram
from assistant.recover.restart import NOT_SAFE
from assistant.recover.resume.means import NO, SWITCH, LoadBranch
from assistant.recover.source.declared_settings import UNKNOWN
from assistant.recover.source.file_uses import LOADERS, FileUses, argument_of, file_uses
from assistant.recover.source.load_proof import gives_back_a_count
from assistant.recover.source.modules import Scope
from assistant.recover.source.paths import Caller
from assistant.recover.source.settings import Read, StartSetting, key_read, start_settings, variable_key
from assistant.recover.source.trainer_source import SourceCall, TrainerSource, dotted

MOST_FOLLOWED = 6
"""Names and functions through which a value, or a call, is followed."""
MOST_SWITCHES = 3
MOST_BRANCHES = 8
"""Calls of one program that load and are looked at."""
WHOLE_LOADS = {
    "dcp.load": ("checkpoint_id", 1),
    "load_checkpoint": ("load_dir", 0),
    "load_state": ("input_dir", 0),
    "restore_checkpoint": ("ckpt_dir", 0),
}
"""Calls of libraries that load a training, with the argument that names it, beside those of `file_uses`."""
WHOLE_METHODS = frozenset(name.rpartition(".")[2] for name in WHOLE_LOADS if name != "dcp.load")
GOES_ON = re.compile(r"resum|contin|restor|restart|reload|from_?(?:ckpt|checkpoint|last|latest)|load", re.IGNORECASE)
"""Values of a switch that say that a run goes on."""
CHOOSES = re.compile(r"ckpt|chkpt|check_?point|snapshot|resum|restor|load|step|iter|epoch|from", re.IGNORECASE)
"""Names of settings that choose what is loaded."""
OTHER_WEIGHTS = re.compile(r"pretrain|teacher|base_|init_w|vocab|token|data|encoder|finetune|lora", re.IGNORECASE)
"""Names of settings by which other weights than those of the run are loaded."""
PATH_JOINS = frozenset("os.path.join path.join osp.join Path pathlib.Path join joinpath".split())


class _Test(NamedTuple):
    """A test that stands around a call, and what it has to answer."""

    node: ast.expr
    holds: bool
    source: TrainerSource
    scope: Scope


@dataclass(frozen=True, slots=True)
class _Value:
    """What a switch has to be given."""

    setting: StartSetting
    text: str


def load_branch(program: JobProgram, read: Read) -> LoadBranch | None:
    """Return by which settings a program loads what a start can choose, where a start as it is does not; None where none is seen.

    Args:
        program: Of a job's script.
        read: Reads with the rights of its owner.

    Raises:
        Unavailable: The storage did not answer.
    """
    if program.source is None or any(True for source in program.sources for _ in source.called("add_subparsers")):
        return None
    settings = start_settings(program, read)
    if not settings:
        return None
    reading = _Reading(program, settings)
    branches = (branch for branch in map(reading.branch, reading.loads()) if branch is not None)
    return max(branches, key=lambda branch: len(branch.templates), default=None)


class _Reading:
    """The calls of one program that load, with the settings that stand around and in them."""

    def __init__(self, program: JobProgram, settings: dict[str, StartSetting]) -> None:
        self.program = program
        self.settings = settings
        self.uses: FileUses = file_uses(program)
        self.reader = self.uses.reader
        saved = (
            node
            for source in self.reader.sources
            for call, scope in self.reader.names_of(source).calls
            for node in self._saved_by(Caller(source, call, scope))
        )
        self.in_saves = {setting for source, node, scope in saved for setting, _ in self.leaves(source, node, scope)}

    def _saved_by(self, caller: Caller) -> Iterator[tuple[TrainerSource, ast.expr, Scope]]:
        node = self.uses.written_path(caller)
        if node is not None:
            yield caller.source, node, caller.scope
        elif dotted(caller.node.func).rpartition(".")[2] in ("makedirs", "mkdir"):
            yield from ((caller.source, item, caller.scope) for item in caller.node.args[:1])

    def loads(self) -> Iterator[tuple[Caller, ast.expr]]:
        """Yield the calls that load a state, whether a run as it is comes to them or not."""
        count = 0
        for source in self.reader.sources:
            for call, scope in self.reader.names_of(source).calls:
                caller = Caller(source, call, scope)
                node = self.uses.loaded_path(caller)
                name = dotted(call.func)
                whole = WHOLE_LOADS.get(name) or WHOLE_LOADS.get(name.rpartition(".")[2])
                if node is None and whole is not None and name not in LOADERS:
                    node = argument_of(call, *whole) or (call.args[0] if call.args else None)
                if node is not None and count < MOST_BRANCHES:
                    count += 1
                    yield caller, node

    def branch(self, load: tuple[Caller, ast.expr]) -> LoadBranch | None:
        """Return the settings by which one load is made of what a start names; None where they are not known, or nothing is due."""
        caller, node = load
        places = dict(self.leaves(caller.source, node, caller.scope))
        choices = [
            key
            for key in places
            if key not in self.in_saves and CHOOSES.search(key) and not OTHER_WEIGHTS.search(key) and self._is_free(key)
        ]
        call = SourceCall(dotted(caller.node.func), caller.node.lineno, tuple(caller.node.args), {})
        values = self._switches(caller)
        if values is None or len(values) > MOST_SWITCHES:
            return None
        switches = [value for value in values if value.setting.key not in choices]
        keys = (*choices, *(item.setting.key for item in switches))
        speaks = call.name == "dcp.load" or call.method in WHOLE_METHODS or any(SWITCH.search(key) for key in keys)
        if not (choices or switches) or not (speaks or gives_back_a_count(caller.source, call)):
            return None
        if any(OTHER_WEIGHTS.search(f"{item.setting.key} {item.text}") for item in switches):
            return None
        choice = next(iter(choices), "")
        templates = self._templates(choice, places.get(choice, ""), switches)
        settings = [*(item.setting for item in switches), *([self.settings[choice]] if choice else [])]
        place = f"{PurePosixPath(caller.source.path).name}:{caller.node.lineno}"
        return LoadBranch(
            place,
            tuple(dict.fromkeys(setting.flag for setting in settings)),
            " ".join(item.setting.assignment(item.text) for item in switches),
            templates if choice and len({setting.variable for setting in settings}) == 1 else (),
            tuple(setting.assignment(str(setting.value)) for setting in settings if setting.passed),
            by_variables=all(setting.variable for setting in settings),
        )

    def _is_free(self, key: str) -> bool:
        value = self.settings[key].value
        return value is None or (value is not UNKNOWN and (str(value).lower() in NO or value == -1))

    def _templates(self, choice: str, place: str, switches: Sequence[_Value]) -> tuple[str, ...]:
        if not choice:
            return ()
        setting = self.settings[choice]
        if setting.kind is int:
            kinds = ["{step}"]
        elif setting.kind is str:
            kinds = [place, *({"{name}": ["{checkpoint}"], "{checkpoint}": ["{name}"]}.get(place, []))]
        else:
            return ()
        first = [item.setting.assignment(item.text) for item in switches]
        return tuple(" ".join([*first, setting.assignment(kind)]) for kind in kinds)

    def leaves(
        self, source: TrainerSource, node: ast.expr, scope: Scope, place: str = "{checkpoint}", depth: int = 0
    ) -> Iterator[tuple[str, str]]:
        """Yield the settings of which an expression is made, each with what it stands for: a path, a name or a step."""
        if depth > MOST_FOLLOWED:
            return
        key = self.setting_of(source, node, scope)
        if key:
            yield key, place
            return
        if isinstance(node, ast.Name):
            for value, file, inner in self.values_of(source, node.id, scope):
                yield from self.leaves(file, value, inner, place, depth + 1)
        elif isinstance(node, ast.JoinedStr):
            before: Any = None
            for index, part in enumerate(node.values):
                following = node.values[index + 1] if index + 1 < len(node.values) else None
                if isinstance(part, ast.FormattedValue):
                    yield from self.leaves(source, part.value, scope, _place_in_text(before, following, place), depth + 1)
                before = part
        elif isinstance(node, ast.BinOp):
            yield from self.leaves(source, node.left, scope, place, depth + 1)
            right = "{name}" if isinstance(node.op, ast.Div) else place
            yield from self.leaves(source, node.right, scope, right, depth + 1)
        elif isinstance(node, ast.BoolOp):
            for item in node.values:
                yield from self.leaves(source, item, scope, place, depth + 1)
        elif isinstance(node, ast.IfExp):
            for item in (node.body, node.orelse):
                yield from self.leaves(source, item, scope, place, depth + 1)
        elif isinstance(node, ast.Call) and self.uses.loaded_path(Caller(source, node, scope)) is None:
            joins = dotted(node.func) in PATH_JOINS or dotted(node.func).endswith(".joinpath")
            for index, item in enumerate(node.args):
                yield from self.leaves(source, item, scope, "{name}" if joins and index else place, depth + 1)
            if isinstance(node.func, ast.Attribute) and not node.args:
                yield from self.leaves(source, node.func.value, scope, place, depth + 1)

    def setting_of(self, source: TrainerSource, node: ast.expr, scope: Scope) -> str:
        """Return the setting that an expression reads; empty for none."""
        name = source.value(key_read(source, node))
        if isinstance(name, str) and variable_key(name) in self.settings:
            return variable_key(name)
        key: Any = ""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            key = node.attr
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            key = node.slice.value
        elif isinstance(node, ast.Name) and source is self.program.source:
            names = self.reader.names_of(source)
            is_own = (id(scope), node.id) in names.assigned and scope is not None
            key = node.id if not is_own and node.id not in self._parameters(scope) else ""
            key = key if key in self.settings and self._is_global(key) else ""
        return key if isinstance(key, str) and key in self.settings else ""

    def _is_global(self, key: str) -> bool:
        """Tell whether a setting is a global of the program and no option."""
        return self.settings[key].flag == f"--{key}" and not any(True for source in self.program.sources if key in source.options)

    @staticmethod
    def _parameters(scope: Scope) -> set[str]:
        return (
            {item.arg for item in (*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs)}
            if scope is not None
            else set()
        )

    def values_of(self, source: TrainerSource, name: str, scope: Scope) -> Iterator[tuple[ast.expr, TrainerSource, Scope]]:
        """Yield what a plain name is given: in its function, by those that call it, else in the module."""
        names = self.reader.names_of(source)
        own = names.assigned.get((id(scope), name), [])
        yield from ((value, source, scope) for value in own)
        if scope is not None and name in self._parameters(scope):
            plain = [item.arg for item in (*scope.args.posonlyargs, *scope.args.args)]
            plain = plain[1:] if plain[:1] in (["self"], ["cls"]) else plain
            for caller in self._callers(source, scope):
                node = argument_of(caller.node, name, plain.index(name) if name in plain else None)
                if node is not None:
                    yield node, caller.source, caller.scope
        elif not own and scope is not None:
            yield from ((value, source, None) for value in names.assigned.get((id(None), name), []))

    def _callers(self, source: TrainerSource, scope: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Caller]:
        for file in self.reader.sources:
            for call, around in self.reader.names_of(file).calls:
                if dotted(call.func).rpartition(".")[2] != scope.name:
                    continue
                callee = self.reader.function_of(Caller(file, call, around))
                if callee is not None and callee[1] is scope:
                    yield Caller(file, call, around)

    def _switches(self, caller: Caller) -> list[_Value] | None:
        """Return what the settings around a call have to be given so that it is made; None where they contradict themselves."""
        values: dict[str, _Value] = {}
        for test in self._tests(caller, 0):
            for value in self._solved(test):
                former = values.setdefault(value.setting.key, value)
                if former.text != value.text:
                    return None
        return list(values.values())

    def _tests(self, caller: Caller, depth: int) -> Iterator[_Test]:
        """Yield the tests around a call, and around the first call of each function that it stands in."""
        tree = self.reader.names_of(caller.source).tree
        for node, holds in _around(caller.scope.body if caller.scope is not None else tree.body, caller.node):
            yield _Test(node, holds, caller.source, caller.scope)
        if caller.scope is not None and depth < MOST_FOLLOWED:
            above = next(self._callers(caller.source, caller.scope), None)
            if above is not None and above.scope is not caller.scope:
                yield from self._tests(above, depth + 1)

    def _solved(self, test: _Test) -> Iterator[_Value]:
        """Yield what makes a test answer as it has to, as far as settings decide it and do not do so already."""
        node, holds = test.node, test.holds
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield from self._solved(test._replace(node=node.operand, holds=not holds))
            return
        if isinstance(node, ast.BoolOp):
            parts = [list(self._solved(test._replace(node=item))) for item in node.values]
            if isinstance(node.op, ast.And) is holds:
                yield from (value for part in parts for value in part)
            elif all(parts):
                yield from min(parts, key=len)
            return
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            yield from self._compared(test, node)
            return
        key = self._read_setting(test, node)
        if key and holds and (setting := self.settings[key]).value is not UNKNOWN and not setting.value:
            text = self._word(setting, ()) if setting.kind is str else "True" if setting.kind is bool else ""
            text = text or ("1" if setting.variable else "")
            if text:
                yield _Value(setting, text)

    def _read_setting(self, test: _Test, node: ast.expr) -> str:
        """Return the setting that a part of a test reads, also by a name that is nothing else."""
        while isinstance(node, ast.Call) and dotted(node.func) in ("int", "bool", "str") and len(node.args) == 1:
            node = node.args[0]
        key = self.setting_of(test.source, node, test.scope)
        if key or not isinstance(node, ast.Name):
            return key
        keys = {self.setting_of(file, value, scope) for value, file, scope in self.values_of(test.source, node.id, test.scope)}
        return keys.pop() if len(keys) == 1 else ""

    def _compared(self, test: _Test, node: ast.Compare) -> Iterator[_Value]:
        key = self._read_setting(test, node.left)
        sign, right = node.ops[0], node.comparators[0]
        if not key:
            return
        setting = self.settings[key]
        constants = (
            [right] if isinstance(right, ast.Constant) else right.elts if isinstance(right, ast.Tuple | ast.List | ast.Set) else []
        )
        values = [item.value for item in constants if isinstance(item, ast.Constant)]
        if not values or len(values) != len(constants) or setting.value is UNKNOWN:
            return
        is_equal = isinstance(sign, ast.Eq | ast.In | ast.Is)
        if not is_equal and not isinstance(sign, ast.NotEq | ast.NotIn | ast.IsNot):
            return  # of a number that is compared otherwise the step of the checkpoint decides
        if (setting.value in values) is (is_equal is test.holds):
            return
        if is_equal is test.holds:
            fitting = [
                value for value in values if type(value) is setting.kind and str(value).strip() and not NOT_SAFE.search(str(value))
            ]
            fitting.sort(key=lambda value: GOES_ON.search(str(value)) is None)
            if fitting:
                yield _Value(setting, str(fitting[0]))
        elif setting.kind is str and (word := self._word(setting, tuple(map(str, values)))):
            yield _Value(setting, word)
        elif setting.kind is bool:
            yield _Value(setting, "True")

    def _word(self, setting: StartSetting, refused_words: Sequence[str]) -> str:
        """Return a text that says that a run goes on, of those that declaration, comment and comparisons name; empty for none."""
        compared = [
            item.value
            for source in self.reader.sources
            for node in ast.walk(self.reader.names_of(source).tree)
            if isinstance(node, ast.Compare) and dotted(node.left).rpartition(".")[2] == setting.key
            for comparator in node.comparators
            for item in ast.walk(comparator)
            if isinstance(item, ast.Constant) and isinstance(item.value, str)
        ]
        words = [word for word in (*compared, *setting.words) if word not in refused_words and not NOT_SAFE.search(word)]
        return next((word for word in words if GOES_ON.search(word)), "")


def _place_in_text(before: ast.expr | None, following: ast.expr | None, place: str) -> str:
    """Return what a part of an f-string stands for, by what is written around it."""
    text = str(before.value) if isinstance(before, ast.Constant) else ""
    follows = str(following.value) if isinstance(following, ast.Constant) else ""
    if (text and not text.endswith("/")) or (follows and not follows.startswith("/")):
        return "{step}"
    return "{name}" if text or isinstance(before, ast.FormattedValue) else place


def _around(body: Sequence[ast.stmt], call: ast.Call) -> Iterator[tuple[ast.expr, bool]]:
    """Yield the tests of the `if`s of a block that stand around a call, and whether each has to hold; a test itself is none."""
    for statement in body:
        if not statement.lineno <= call.lineno <= (statement.end_lineno or statement.lineno):
            if statement.lineno < call.lineno and isinstance(statement, ast.If) and not statement.orelse and _ends(statement.body):
                yield statement.test, False  # it leaves before
            continue
        if isinstance(statement, ast.If):
            inside = any(node is call for item in statement.body for node in ast.walk(item))
            outside = any(node is call for item in statement.orelse for node in ast.walk(item))
            if inside or outside:
                yield statement.test, inside
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(statement, name, [])
            if isinstance(inner, list) and any(node is call for item in inner for node in ast.walk(item)):
                yield from _around(inner, call)
        return


def _ends(body: Sequence[ast.stmt]) -> bool:
    return isinstance(body[-1], ast.Return)
