"""Which files a training program writes and loads, also through functions of its own and of the modules beside it. Pure.

A writer of its own (`open(part, "wb")`, then `os.replace(part, path)`) counts as a call of a library does. What is opened as text,
or to append, is a log or a result and no state.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.recover.checkpoints.layout import TEMPORARY
from assistant.recover.checkpoints.names import name_form
from assistant.recover.job_program import JobProgram
from assistant.recover.shell.folders import UNRESOLVED
from assistant.recover.source.load_calls import LOADS
from assistant.recover.source.modules import Scope
from assistant.recover.source.paths import COUNTED, Caller, PathReader, Texts, source_call
from assistant.recover.source.trainer_source import SourceCall, TrainerSource, dotted

OPENS = frozenset(
    "open io.open gzip.open bz2.open lzma.open xz.open codecs.open fsspec.open zstandard.open smart_open.open".split()
)
PACKED = frozenset(("gzip.open", "bz2.open", "lzma.open", "xz.open", "zstandard.open"))
"""Of which a mode without a letter for it is of bytes as well."""
WRITERS = {
    "torch.save": ("f", 1),
    "paddle.save": ("path", 1),
    "torch.jit.save": ("f", 1),
    "np.save": ("file", 0),
    "numpy.save": ("file", 0),
    "np.savez": ("file", 0),
    "numpy.savez": ("file", 0),
    "np.savez_compressed": ("file", 0),
    "numpy.savez_compressed": ("file", 0),
    "jnp.savez": ("file", 0),
    "jnp.save": ("file", 0),
    "joblib.dump": ("filename", 1),
    "save_file": ("filename", 1),
    "safetensors.torch.save_file": ("filename", 1),
    "safetensors.numpy.save_file": ("filename", 1),
    "dcp.save": ("checkpoint_id", None),
    "dcp.async_save": ("checkpoint_id", None),
}
"""Functions of libraries that write a state, with the argument that names it."""
WRITING_METHODS = {
    "save_pretrained": ("save_directory", 0),
    "save_state": ("output_dir", 0),
    "save_checkpoint": ("filepath", 0),
    "save_weights": ("filepath", 0),
    "save_model": ("filepath", 0),
}
ARCHIVES = frozenset(("ZipFile", "zipfile.ZipFile", "tarfile.open", "h5py.File", "TarFile"))
LOADERS = {
    "torch.load": ("f", 0),
    "paddle.load": ("path", 0),
    "joblib.load": ("filename", 0),
    "np.load": ("file", 0),
    "numpy.load": ("file", 0),
    "jnp.load": ("file", 0),
    "load_file": ("filename", 0),
    "safetensors.torch.load_file": ("filename", 0),
    "safetensors.numpy.load_file": ("filename", 0),
}
MOVES = frozenset("os.replace os.rename os.renames shutil.move shutil.copy shutil.copy2 shutil.copyfile shutil.copytree".split())
PATH_MOVES = frozenset(("rename", "replace"))
LOGS = frozenset((".log", ".out", ".err"))
"""Suffixes of files that hold lines for people."""
MOST_ABOVE = 3
"""Functions through which a call is followed to where a run begins."""
MOST_USES = 200
"""Calls of one program that are looked at."""
MODE = re.compile(r"[rwxa][bt+U|:gzx2]{0,4}")
IN_TEXT = re.compile(r"[^\W\d_]")


class StateFile(NamedTuple):
    """A file that a program writes a state into."""

    source: TrainerSource
    line: int
    method: str
    texts: Texts
    """What its path may be, with `COUNTED` in the place of a step, and `UNRESOLVED` of what else only a run can tell."""


class StateLoad(NamedTuple):
    """A call that loads what an argument names."""

    source: TrainerSource
    call: SourceCall
    node: ast.expr
    """The argument."""
    texts: Texts


class SavePlace(NamedTuple):
    """A folder that a program writes states into."""

    folder: str
    """As the program sees it."""
    how: str
    forms: frozenset[str]
    """The names that it gives them, as patterns: each number that it counts as a 0, `model-0.mdl`, what is not known as `*`."""


def is_opener(node: ast.expr) -> bool:
    """Tell whether a call opens the file that its first argument, or the object before it, names."""
    name = dotted(node.func) if isinstance(node, ast.Call) else ""
    return name in OPENS or name in ("os.open", "os.fdopen") or name.rpartition(".")[2] == "open"


class FileUses:
    """The states that one program writes and loads."""

    def __init__(self, program: JobProgram) -> None:
        self.program = program
        self.reader = PathReader(program)
        self.calls = list(self.reader.calls())[: MOST_USES * 50]
        self._moved_away: Texts = frozenset()
        self._parameters: dict[int, str] = {}
        """The parameters by which functions name what they read, by the identity of the function."""
        self.saves = list(self._saves())[:MOST_USES]

    @cached_property
    def log_lines(self) -> list[SourceCall]:
        """The calls that write to a file which is a log by its name: `os.write(fd, …)`, `out.write(…)` of `with open(…) as out`."""
        opened = [caller for caller in self.calls if self._opens_log(caller)]
        logs = {(id(caller.source), id(caller.scope), name) for caller in opened for name in self._result_names(caller)}
        log_calls = []
        for caller in self.calls:
            holder = [caller.node.func.value] if isinstance(caller.node.func, ast.Attribute) else []
            of = caller.node.args[:1] if dotted(caller.node.func) == "os.write" else holder
            is_log = any(isinstance(item, ast.Name) and (id(caller.source), id(caller.scope), item.id) in logs for item in of)
            call = source_call(caller.source, caller.node) if is_log else None
            log_calls += [call] if call is not None else []
        return log_calls

    @cached_property
    def handles(self) -> frozenset[tuple[int, int, str]]:
        """The names that hold opened files, by the identities of source and scope: `f` of `with open(path) as f`."""
        opened = [caller for caller in self.calls if is_opener(caller.node)]
        places = {(id(caller.source), id(caller.scope), name) for caller in opened for name in self._result_names(caller)}
        return frozenset(
            (source, scope, name)
            for source, scope, name in places
            if all(
                isinstance(value, ast.Call) and is_opener(value)
                for caller in opened
                if id(caller.source) == source
                for value in self.reader.names_of(caller.source).assigned.get((scope, name), ())
            )
        )

    def _opens_log(self, caller: Caller) -> bool:
        if dotted(caller.node.func) not in (*OPENS, "os.open") or not caller.node.args:
            return False
        texts = self.reader.texts(caller.source, caller.node.args[0], caller.scope)
        return bool(texts) and all(PurePosixPath(text).suffix in LOGS for text in texts)

    def _result_names(self, caller: Caller) -> Iterator[str]:
        """Yield the names that hold what a call gives back."""
        for (scope, name), values in self.reader.names_of(caller.source).assigned.items():
            if scope == id(caller.scope) and len(values) == 1 and values[0] is caller.node:
                yield name
        for node in ast.walk(caller.scope or self.reader.names_of(caller.source).tree):
            if isinstance(node, ast.withitem) and node.context_expr is caller.node and isinstance(node.optional_vars, ast.Name):
                yield node.optional_vars.id

    def places(self) -> Iterator[SavePlace]:
        """Yield the folders that the program writes states into, as far as it tells them."""
        for save in self.saves:
            name = PurePosixPath(save.source.path).name
            for text in sorted(save.texts - self._moved_away):
                folder, forms = folder_and_forms(text)
                if folder:
                    yield SavePlace(folder, f"what it writes by {save.method}() in {name}, line {save.line}", forms)

    @cached_property
    def loads(self) -> tuple[StateLoad, ...]:
        """The calls that load a state, of libraries and of functions of the program itself."""
        return tuple(self._loads())

    def _loads(self) -> Iterator[StateLoad]:
        for caller in self.calls:
            node = self.loaded_path(caller)
            call = source_call(caller.source, caller.node) if node is not None else None
            if node is not None and call is not None:
                yield StateLoad(caller.source, call, node, self.reader.texts(caller.source, node, caller.scope))

    @cached_property
    def starting_loads(self) -> list[tuple[TrainerSource, SourceCall]]:
        """The calls that load something, without those that are made at each save, to look at what is written over."""
        calls = [(source, call) for source in self.program.sources for call in source.called(*LOADS)]
        calls += [(load.source, load.call) for load in self.loads]
        starting: list[tuple[TrainerSource, SourceCall]] = []
        for source, call in calls:
            if all(call is not starting_call for _, starting_call in starting) and self._may_begin(source, call, ()):
                starting.append((source, call))
        return starting

    def _may_begin(self, source: TrainerSource, call: SourceCall, above: tuple[int, ...]) -> bool:
        caller = self.caller_of(source, call)
        function = caller.scope if caller is not None else None
        if caller is None or function is None or id(function) in above or len(above) > MOST_ABOVE:
            return True
        callers = list(self.reader.callers(source, function))
        writes = any(save.source is source and _stands_in(save.line, function) for save in self.saves)
        if writes and callers and all(self.is_repeated(part) for part in callers):
            return False
        if not callers or source is self.program.source or not self._read_parameter(source, function, ()):
            return True
        inner = [(part.source, outer) for part in callers if (outer := source_call(part.source, part.node)) is not None]
        return any(self._may_begin(file, outer, (*above, id(function))) for file, outer in inner)

    def caller_of(self, source: TrainerSource, call: SourceCall) -> Caller | None:
        """Return a call of a source with its node and the function that it stands in."""
        same = (item for item in self.calls if item.source is source and item.node.lineno == call.line)
        return next((item for item in same if dotted(item.node.func) == call.name), None)

    def is_repeated(self, caller: Caller, depth: int = 0) -> bool:
        """Tell whether a call is made in the rounds of a loop, also where all calls of its function are."""
        if id(caller.node) in self.reader.names_of(caller.source).looped:
            return True
        if caller.scope is None or depth > MOST_ABOVE:
            return False
        callers = list(self.reader.callers(caller.source, caller.scope))
        return bool(callers) and all(self.is_repeated(part, depth + 1) for part in callers)

    def named_in_loads(self) -> Iterator[str]:
        """Yield the options and keys by whose value a load of the program names what it loads, whether a run comes to it or not."""
        for source in self.reader.sources:
            for node, scope in self.reader.names_of(source).calls:
                path = self.loaded_path(Caller(source, node, scope))
                for inner in ast.walk(path) if path is not None else ():
                    if isinstance(inner, ast.Attribute):
                        yield inner.attr
                    elif isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Constant):
                        yield str(inner.slice.value)

    def lists_own(self, patterns: Iterable[str]) -> bool:
        """Tell whether one of some patterns finds what the program writes."""
        written = {text for save in self.saves for text in save.texts if _is_told(text)}
        examples = [text.replace(COUNTED, "0").replace(UNRESOLVED, "0").removeprefix("./") for text in written]
        above = {str(parent) for text in examples for parent in PurePosixPath(text).parents}
        paths = [*examples, *above]
        return any(
            fnmatchcase(path, pattern.removeprefix("./")) for pattern in patterns for path in paths if path not in (".", "/")
        )

    def loads_own(self, load: StateLoad) -> bool:
        """Tell whether what is loaded is a file that the program itself writes, or one of those."""
        own = {text for save in self.saves for text in save.texts if _is_told(text)}
        return any(text in own for text in load.texts if _is_told(text))

    def loads_own_file(self, source: TrainerSource, call: SourceCall) -> bool:
        """Tell whether a call loads a file that the program itself writes."""
        return any(load.source is source and load.call is call and self.loads_own(load) for load in self.loads)

    def _saves(self) -> Iterator[StateFile]:
        written: list[StateFile] = []
        for caller in self.calls:
            if (node := self.written_path(caller)) is not None:
                written.append(self._file(caller, node))
        yield from written
        texts = {text for file in written for text in file.texts if _is_told(text)}
        for caller in self.calls:
            moved = _moved(caller.node)
            first = self.reader.texts(caller.source, moved[0], caller.scope) & texts if moved is not None else frozenset()
            if moved is not None and first:
                self._moved_away |= first if "copy" not in dotted(caller.node.func) else frozenset()
                yield self._file(caller, moved[1])

    def _file(self, caller: Caller, node: ast.expr) -> StateFile:
        texts = self.reader.texts(caller.source, node, caller.scope)
        return StateFile(caller.source, caller.node.lineno, dotted(caller.node.func).rpartition(".")[2], texts)

    def written_path(self, caller: Caller) -> ast.expr | None:
        """Return the path of a file that a call writes as bytes, and not to append; None of any other call."""
        call, name = caller.node, dotted(caller.node.func)
        method = name.rpartition(".")[2]
        mode = self.mode_of(caller) if name in OPENS | ARCHIVES or method == "open" else ""
        if name in OPENS:
            is_bytes = "b" in mode or (name in PACKED and "t" not in mode)
            return argument_of(call, "file", 0) if is_bytes and set(mode) & set("wx") else None
        if name == "os.open" and len(call.args) > 1:
            flags = ast.unparse(call.args[1])
            return call.args[0] if re.search(r"O_(?:WRONLY|RDWR)", flags) and "O_APPEND" not in flags else None
        if name in ARCHIVES:
            return argument_of(call, "file", 0) if set(mode[:1]) & set("wx") else None
        if name in WRITERS:
            return argument_of(call, *WRITERS[name])
        if not isinstance(call.func, ast.Attribute) or self.reader.function_of(caller) is not None:
            return None
        if method == "write_bytes" or (method == "open" and "b" in mode and set(mode) & set("wx")):
            return call.func.value
        return argument_of(call, *WRITING_METHODS[method]) if method in WRITING_METHODS else None

    def mode_of(self, caller: Caller) -> str:
        """Return the mode in which a call opens a file; empty where it says none that is known."""
        call = caller.node
        place = 0 if dotted(call.func) not in OPENS | ARCHIVES else 1
        node = next((item.value for item in call.keywords if item.arg == "mode"), None)
        node = node if node is not None else call.args[place] if place < len(call.args) else None
        if node is None:
            return ""
        texts = self.reader.texts(caller.source, node, caller.scope)
        mode = next(iter(texts)) if len(texts) == 1 else ""
        return mode if MODE.fullmatch(mode) else ""

    def loaded_path(self, caller: Caller) -> ast.expr | None:
        """Return the argument by which a call names the state that it loads; None of a call that loads none."""
        name = dotted(caller.node.func)
        if name in LOADERS:
            return argument_of(caller.node, *LOADERS[name])
        callee = self.reader.function_of(caller)
        if callee is None:
            return None
        source, function = callee
        parameter = self._read_parameter(source, function, ())
        if not parameter or not self.reader.names_of(source).returned.get(id(function)):
            return None
        bound = id(function) in self.reader.names_of(source).classes
        positional = [item.arg for item in (*function.args.posonlyargs, *function.args.args)]
        positional = positional[1:] if bound and positional[:1] in (["self"], ["cls"]) else positional
        return argument_of(caller.node, parameter, positional.index(parameter) if parameter in positional else None)

    def _read_parameter(
        self, source: TrainerSource, function: ast.FunctionDef | ast.AsyncFunctionDef, above: tuple[int, ...]
    ) -> str:
        """Return the parameter of a function that names a file which it reads as a state; empty for none."""
        if id(function) in above or len(above) > MOST_ABOVE:
            return ""
        if id(function) not in self._parameters:
            self._parameters[id(function)] = self._parameter_that_is_read(source, function, above)
        return self._parameters[id(function)]

    def _parameter_that_is_read(
        self, source: TrainerSource, function: ast.FunctionDef | ast.AsyncFunctionDef, above: tuple[int, ...]
    ) -> str:
        parameters = {item.arg for item in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
        for node in ast.walk(function):
            if not isinstance(node, ast.Call):
                continue
            caller = Caller(source, node, function)
            path = self._read_here(caller)
            if path is None and (callee := self.reader.function_of(caller)) is not None and callee[1] is not function:
                inner = self._read_parameter(*callee, (*above, id(function)))
                positional = [item.arg for item in (*callee[1].args.posonlyargs, *callee[1].args.args)]
                path = argument_of(node, inner, positional.index(inner) if inner in positional else None) if inner else None
            if path is not None and (own := self._parameter_in(source, path, function, parameters)):
                return own
        return ""

    def _read_here(self, caller: Caller) -> ast.expr | None:
        """Return the path of a file that a call reads as bytes."""
        call, name = caller.node, dotted(caller.node.func)
        if name in LOADERS:
            return argument_of(call, *LOADERS[name])
        mode = self.mode_of(caller) if name in OPENS | ARCHIVES or name.endswith(".open") else ""
        if name in OPENS:
            is_bytes = "b" in mode or (name in PACKED and "t" not in mode)
            return argument_of(call, "file", 0) if is_bytes and not set(mode) & set("wxa") else None
        if name in ARCHIVES:
            return argument_of(call, "file", 0) if not set(mode) & set("wxa") else None
        if isinstance(call.func, ast.Attribute) and (call.func.attr == "read_bytes" or (call.func.attr == "open" and mode == "rb")):
            return call.func.value
        return None

    def _parameter_in(self, source: TrainerSource, node: ast.expr, scope: Scope, parameters: set[str]) -> str:
        """Return the parameter that an expression is made from, also through names that the function gives."""
        names = self.reader.names_of(source)
        waiting, visited = [node], set[str]()
        while waiting:
            for inner in ast.walk(waiting.pop()):
                if not isinstance(inner, ast.Name) or inner.id in visited:
                    continue
                visited.add(inner.id)
                if inner.id in parameters and inner.id not in ("self", "cls"):
                    return inner.id
                waiting += names.assigned.get((id(scope), inner.id), ())[:4]
        return ""


def _moved(call: ast.Call) -> tuple[ast.expr, ast.expr] | None:
    """Return what a call moves or copies, and where to; None of any other call."""
    if dotted(call.func) in MOVES and len(call.args) >= 2:
        return call.args[0], call.args[1]
    of_path = isinstance(call.func, ast.Attribute) and call.func.attr in PATH_MOVES and len(call.args) == 1 and not call.keywords
    return (call.func.value, call.args[0]) if of_path and isinstance(call.func, ast.Attribute) else None


def _stands_in(line: int, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return function.lineno <= line <= (function.end_lineno or function.lineno)


def argument_of(call: ast.Call, keyword: str, place: int | None) -> ast.expr | None:
    """Return an argument of a call by its keyword, else by its place; None where it is not there."""
    value = next((item.value for item in call.keywords if item.arg == keyword), None)
    return value if value is not None or place is None or place >= len(call.args) else call.args[place]


def _is_told(text: str) -> bool:
    """Tell whether something of a path is known: its name, or the folder that it lies in."""
    return IN_TEXT.search(_without_holes(text)) is not None


def _without_holes(text: str) -> str:
    return text.replace(UNRESOLVED, "").replace(COUNTED, "")


def folder_and_forms(path: str) -> tuple[str, frozenset[str]]:
    """Return the folder of a state, and the forms of the names from there on; an empty folder where it is not known.

    `out/model-{step}.mdl` lies in `out` as `model-0.mdl`, `out/stand_{step}/weights.bin` in `out` as `stand_0`.
    """
    parts = PurePosixPath(path).parts
    cut = next((place for place, part in enumerate(parts) if _without_holes(part) != part), len(parts) - 1)
    if not parts or parts[:cut] == ("/",) or (cut == 0 and len(parts) > 1 and UNRESOLVED in parts[0]):
        return "", frozenset()
    if cut == 0 and not IN_TEXT.search(PurePosixPath(_without_holes(parts[0])).stem):
        return "", frozenset()
    filled = [part.replace(COUNTED, "0") for part in parts[cut:] if COUNTED in part]
    lasting = (name for name in filled if not TEMPORARY.search(name.replace(UNRESOLVED, "x")))
    patterns = (name_form(name).replace(UNRESOLVED, "*") for name in lasting)
    return (str(PurePosixPath(*parts[:cut])) if cut else "."), frozenset(patterns)


_RECENT: list[FileUses] = []
MOST_RECENT = 8


def file_uses(program: JobProgram) -> FileUses:
    """Return the states that a program writes and loads; those of the last few programs are kept, since they are asked often."""
    for uses in list(_RECENT):
        read = uses.program
        if read.source is program.source and read.modules is program.modules and read.settings == program.settings:
            return uses
    uses = FileUses(program)
    _RECENT.insert(0, uses)
    del _RECENT[MOST_RECENT:]
    return uses
