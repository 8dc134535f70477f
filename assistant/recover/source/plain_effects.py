"""Whether a second run of a Python program leaves the same behind as a first one, by a list of what it may do. Pure.

All that is not on the list is a doubt: a module of which nothing is known, a function that is looked up by its name, a file that is
added to or changed in place, one that is both read and written, a folder that is listed and written into. A program that computes
with numbers, texts and tables, reads files and writes others anew passes.
"""

from __future__ import annotations

import ast
import builtins
import os.path
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.recover.job_program import JobProgram
from assistant.recover.shell.folders import UNRESOLVED
from assistant.recover.source.continued_work import outside_path
from assistant.recover.source.file_uses import OPENS, FileUses, argument_of, file_uses
from assistant.recover.source.load_calls import PRESENT
from assistant.recover.source.paths import Caller, Texts
from assistant.recover.source.reruns import LOG_NAME
from assistant.recover.source.trainer_source import TrainerSource, dotted, syntax_tree

MODULES = frozenset(
    (
        "__future__ os sys re math cmath json csv time random argparse pathlib itertools functools collections glob gzip bz2 "
        "lzma zlib struct hashlib datetime logging statistics typing dataclasses textwrap string decimal fractions heapq bisect "
        "copy warnings enum abc array pickle tempfile shutil base64 io numbers uuid secrets platform unicodedata difflib numpy "
        "scipy pandas tqdm yaml tomllib"
    ).split()
)
"""Modules whose functions that change something are known here."""
ALLOWED = {
    "os": frozenset(
        (
            "path environ getenv makedirs replace rename listdir scandir walk getcwd sep linesep cpu_count getpid stat fspath "
            "fsync urandom PathLike pardir curdir name uname sched_getaffinity devnull"
        ).split()
    ),
    "shutil": frozenset("copy copy2 copyfile disk_usage which".split()),
    "sys": frozenset(
        (
            "exit argv stdout stderr stdin version version_info maxsize executable platform byteorder float_info getsizeof "
            "setrecursionlimit"
        ).split()
    ),
    "io": frozenset("StringIO BytesIO TextIOWrapper open SEEK_SET SEEK_END".split()),
    **dict.fromkeys(("gzip", "bz2", "lzma"), frozenset(("open", "compress", "decompress"))),
    "pickle": frozenset(("dump", "dumps", "HIGHEST_PROTOCOL")),
    "yaml": frozenset(("safe_load", "safe_dump", "dump", "YAMLError")),
    "tempfile": frozenset("mkdtemp gettempdir TemporaryDirectory".split()),
    "logging": frozenset(
        (
            "basicConfig getLogger info debug warning error exception critical INFO DEBUG WARNING ERROR CRITICAL StreamHandler "
            "Formatter Logger"
        ).split()
    ),
    "functools": frozenset("reduce lru_cache cache wraps cmp_to_key total_ordering cached_property".split()),
}
"""What may be used of a module that can do more."""
FROM = {
    "os": frozenset("path environ getenv cpu_count sep linesep".split()),
    "shutil": frozenset(("which",)),
    **dict.fromkeys(("io", "gzip", "bz2", "lzma", "numpy", "pandas", "scipy"), frozenset(("StringIO", "BytesIO"))),
}
"""What may be imported by its own name of a module whose functions are told by the name of the module."""
ALIASES = frozenset((("numpy", "np"), ("pandas", "pd"), ("scipy", "sp")))
NO_NAMES = frozenset("exec eval compile __import__ getattr setattr delattr globals locals vars breakpoint input".split())
NO_METHODS = frozenset(
    (
        "unlink rmdir symlink_to hardlink_to link_to chmod lchmod truncate HDFStore memmap open_memmap ExcelWriter ctypeslib f2py "
        "DataSource makefile sendall kill terminate extractall writestr read_pickle read_sql read_sql_query read_sql_table "
        "read_gbq read_hdf register_at_fork methodcaller exec eval FileType"
    ).split()
)
NO_FUNCTIONS = frozenset(
    "__exit__ __aexit__ __del__ __getattr__ __getattribute__ __setattr__ __init_subclass__ __set_name__".split()
)
DUNDERS = frozenset("__name__ __file__ __doc__ __version__ __init__ __len__ __class__".split())
DECORATORS = frozenset(
    "dataclass dataclasses.dataclass staticmethod classmethod property lru_cache functools.lru_cache functools.cache cache".split()
)
WRITES_FIRST = frozenset(
    (
        "save savez savez_compressed savetxt to_csv to_json to_parquet to_pickle to_feather to_excel to_string to_latex to_html "
        "to_markdown savemat save_npz tofile"
    ).split()
)
"""Functions and methods that write the file anew that their first argument names."""
OWN_PATH = frozenset(("write_text", "write_bytes", "touch"))
READS_OWN_PATH = frozenset("read_text read_bytes stat iterdir glob rglob".split())
READS_FIRST = re.compile(
    r"read_\w+|load|loadtxt|genfromtxt|fromfile|loadmat|load_npz|getsize|getmtime|stat|listdir|scandir|walk|i?glob"
)
LISTS = frozenset("listdir scandir walk iterdir rglob".split())
TURNS = frozenset(
    (
        "to_numpy to_list to_dict to_datetime to_numeric to_period to_timestamp to_frame to_records to_timedelta to_bytes "
        "to_series to_flat_index to_julian_date to_tuples to_array to_offset to_xarray"
    ).split()
)
MORE_EFFECTS = re.compile(
    r"(?:save|export|write_(?!row|rows)|writes?_to|dump|store|upload|publish|send|submit|push|commit|put|post|delete|drop_table|"
    r"execute|connect|remove_file|to_)\w*"
)
PLAIN_DUMPS = frozenset("json.dump json.dumps pickle.dump pickle.dumps yaml.dump yaml.safe_dump".split())
COPIES = frozenset(("shutil.copy", "shutil.copy2", "shutil.copyfile"))
EACH_TIME = frozenset("time datetime random uuid secrets tempfile".split())
"""Modules by which a name may be another one at each start."""
MOST_CALLS, MOST_ARGUMENTS = 4_000, 3


class _Path(NamedTuple):
    """A path that a call reads or writes, as an absolute pattern."""

    text: str
    place: str


class _Doubt(Exception):
    """What is not on the list, with its line."""


def effect_doubt(program: JobProgram, looked_for: Sequence[ast.Call], printed: Sequence[str] = ()) -> str:
    """Return why a second run of a program may leave something else behind than a first one; empty where it does not.

    Args:
        program: All of its sources are looked at.
        looked_for: The tests of the mark by which it ends at once: no other call may look at what it writes.
        printed: Files into which its script leads what it prints, as the script names them.
    """
    try:
        if not program.sources or not all(source.parsed for source in program.sources):
            raise _Doubt(f"{program.name} cannot be read")
        own = {PurePosixPath(source.path).stem for source in program.sources}
        functions = {
            node.name
            for source in program.sources
            for node in ast.walk(syntax_tree(source.text))
            if isinstance(node, ast.FunctionDef | ast.ClassDef)
        }
        for source in program.sources:
            _check_names(source, own, functions)
        _check_files(program, file_uses(program), functions, {(call.lineno, call.col_offset) for call in looked_for}, printed)
    except _Doubt as error:
        return str(error)
    return ""


def changes_in_place(call: ast.Call) -> bool:
    """Tell whether a call opens a file to change it in place, or adds to a store: `np.memmap(path, mode="r+")`, `to_hdf`."""
    name = dotted(call.func).rpartition(".")[2]
    if name in ("to_hdf", "to_sql", "HDFStore"):
        return not any(isinstance(mode, ast.Constant) and mode.value in ("r", "w") for mode in _modes(call))
    if name in ("memmap", "open_memmap", "load", "File", "open_array", "open_group", "ZipFile"):
        return any(isinstance(mode, ast.Constant) and mode.value in ("r+", "a", "w+", "rb+", "r+b") for mode in _modes(call))
    return False


def repeated_change(program: JobProgram) -> str:
    """Return what a program changes in place, or adds to, with its line; empty where none is seen, which proves nothing."""
    uses = file_uses(program)
    for caller in uses.calls:
        if changes_in_place(caller.node):
            place = f"{PurePosixPath(caller.source.path).name}:{caller.node.lineno}"
            return f"{place} changes a file in place, or adds to it: {ast.unparse(caller.node)[:120]}"
    return overwritten_input(uses)


def overwritten_input(uses: FileUses) -> str:
    """Return the line that writes over a file which the same function has read before: it is changed in place; empty for none.

    Told by how the source writes the path: where it writes it otherwise the second time, nothing is seen.
    """
    first_reads: dict[tuple[int, int, str], int] = {}
    calls = sorted(uses.calls, key=lambda caller: caller.node.lineno)
    for is_read in (True, False):
        for caller in calls:
            node = _touched(uses, caller, is_read=is_read)
            key = (id(caller.source), id(caller.scope), ast.unparse(node) if node is not None else "")
            if node is not None and is_read:
                first_reads.setdefault(key, caller.node.lineno)
            elif node is not None and first_reads.get(key, caller.node.lineno + 1) <= caller.node.lineno:
                line = f"{PurePosixPath(caller.source.path).name}:{caller.node.lineno}"
                return f"{line} writes over {key[2][:80]}, which it has read before"
    return ""


def _touched(uses: FileUses, caller: Caller, *, is_read: bool) -> ast.expr | None:
    """Return the path that a call reads, or writes anew; None of any other call."""
    call, name = caller.node, dotted(caller.node.func)
    method = call.func.attr if isinstance(call.func, ast.Attribute) else name
    holder = call.func.value if isinstance(call.func, ast.Attribute) else None
    if name in OPENS or (method == "open" and holder is not None):
        is_given = bool(call.args[1 if name in OPENS else 0 :]) or any(item.arg == "mode" for item in call.keywords)
        mode = uses.mode_of(caller) if is_given else "r"
        return (argument_of(call, "file", 0) if name in OPENS else holder) if mode[:1] == ("r" if is_read else "w") else None
    if is_read:
        if method in ("read_text", "read_bytes"):
            return holder
        of_library = name.partition(".")[0] in ("np", "numpy", "pd", "pandas", "torch", "joblib", "sf", "soundfile", "cv2", "Image")
        return call.args[0] if of_library and READS_FIRST.fullmatch(method) and call.args else None
    if method in ("write_text", "write_bytes"):
        return holder
    if name in ("torch.save", "joblib.dump") and len(call.args) > 1:
        return call.args[1]
    return call.args[0] if method in WRITES_FIRST and call.args else None


def _modes(call: ast.Call) -> list[ast.expr]:
    keywords = [item.value for item in call.keywords if item.arg in ("mode", "mmap_mode")]
    return [*keywords, *call.args[1:4]]


def _check_names(source: TrainerSource, own: set[str], functions: set[str]) -> None:
    """Make sure that a source uses nothing that is not followed.

    Raises:
        _Doubt: It does.
    """
    name, tree = PurePosixPath(source.path).name, syntax_tree(source.text)
    nodes = list(ast.walk(tree))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    imported: set[str] = set()
    for node in nodes:
        line = f"{name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import | ast.ImportFrom):
            imported |= set(_imported(node, own, line))
        elif isinstance(node, ast.AsyncFunctionDef | ast.Await):
            raise _Doubt(f"{line} runs things side by side")
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            if node.name in NO_FUNCTIONS or node.name in dir(builtins):
                raise _Doubt(f"{line} defines {node.name}, and what calls it is not followed")
            for decorator in node.decorator_list:
                if dotted(decorator.func if isinstance(decorator, ast.Call) else decorator) not in DECORATORS:
                    raise _Doubt(f"{line} wraps {node.name} by {ast.unparse(decorator)[:60]}, which is not followed")
        elif isinstance(node, ast.Attribute):
            _check_attribute(node, line, is_called=id(node) in called)
        elif isinstance(node, ast.Name) and (
            node.id in NO_NAMES
            or (node.id.startswith("__") and node.id not in DUNDERS)
            or (node.id == "open" and id(node) not in called)
        ):
            raise _Doubt(f"{line} uses {node.id}, and what that calls is not followed")
    defined_names = imported | functions | set(dir(builtins))
    for node in nodes:
        line = f"{name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in (imported | {"open", "print", "exit"}):
            raise _Doubt(f"{line} gives {node.id} another meaning")
        if isinstance(node, ast.arg) and node.arg in (imported | {"open"}):
            raise _Doubt(f"{line} gives {node.arg} another meaning")
        if not isinstance(node, ast.Call):
            continue
        if not isinstance(node.func, ast.Name | ast.Attribute) or (
            isinstance(node.func, ast.Name) and node.func.id not in defined_names
        ):
            raise _Doubt(f"{line} calls {ast.unparse(node.func)[:60]}, and what that is, is not followed")


def _imported(node: ast.Import | ast.ImportFrom, own: set[str], line: str) -> Iterator[str]:
    """Yield the names that an import binds.

    Raises:
        _Doubt: Of a module, or of a part of one, nothing is known.
    """
    if isinstance(node, ast.Import):
        for item in node.names:
            root, _, inner = item.name.partition(".")
            is_renamed = (
                item.asname is not None and (root, item.asname) not in ALIASES and root in (*ALLOWED, *FROM, "pathlib", "glob")
            )
            if root in own and root not in MODULES:
                yield item.asname or root
            elif root not in MODULES or root in own or is_renamed or inner not in ("", "path", "stats", "signal", "special"):
                raise _Doubt(f"{line} works with {item.name}: what a rerun changes there is not followed")
            yield item.asname or root
        return
    module = (node.module or "").partition(".")[0]
    if module in own and module not in MODULES:
        yield from (item.asname or item.name for item in node.names)
        return
    for item in node.names:
        allowed = FROM.get(module, ALLOWED.get(module))
        is_own_module = node.level and not node.module and item.name in own
        if is_own_module:
            yield item.asname or item.name
            continue
        of_io = (node.module or "").startswith(("scipy.io", "logging.", "pandas.", "numpy."))
        if (
            module not in MODULES
            or module in own
            or item.name == "*"
            or of_io
            or (allowed is not None and item.name not in allowed)
        ):
            raise _Doubt(f"{line} works with {node.module or ''}.{item.name}: what a rerun changes there is not followed")
        if item.asname is not None and item.name[:1].islower():
            raise _Doubt(f"{line} gives {item.name} another name, which is not followed")
        yield item.name


def _check_attribute(node: ast.Attribute, line: str, *, is_called: bool) -> None:
    name = dotted(node)
    root, _, inner_name = name.partition(".")
    first = inner_name.partition(".")[0]
    if root in ALLOWED and inner_name and first not in ALLOWED[root]:
        raise _Doubt(f"{line} uses {name}, which may change what is there")
    if name.startswith(("scipy.io", "sp.io", "pd.io", "pandas.io")) and not name.startswith(
        ("scipy.io.savemat", "scipy.io.loadmat")
    ):
        raise _Doubt(f"{line} uses {name}, which may change what is there")
    if node.attr in NO_METHODS or (node.attr.startswith("__") and node.attr not in DUNDERS):
        raise _Doubt(f"{line} uses {node.attr}, which may change what is there, or is not followed")
    is_effect = node.attr in WRITES_FIRST | OWN_PATH or node.attr in ("open", "replace", "rename", "makedirs")
    if is_effect and not is_called:
        raise _Doubt(f"{line} hands {name} on, and what calls it is not followed")


def _check_files(
    program: JobProgram, uses: FileUses, functions: set[str], looked_for: set[tuple[int, int]], printed: Sequence[str]
) -> None:
    """Make sure that what is written is written anew, and that nothing of it is read.

    Raises:
        _Doubt: It is not.
    """
    reads: list[_Path] = []
    writes = [_Path(os.path.normpath(outside_path(program, text) or "/*"), "its script") for text in printed]
    moves: list[_Path] = []
    count = 0
    for source in uses.reader.sources:
        for call, scope in uses.reader.names_of(source).calls:
            count += 1
            if count > MOST_CALLS:
                raise _Doubt(f"{program.name} is too long to be followed")
            is_test = source is program.source and (call.lineno, call.col_offset) in looked_for
            if is_test or dotted(call.func) in functions:
                continue
            _sort_call(program, uses, Caller(source, call, scope), reads, writes, moves)
    for path in moves:
        if not any(path.text == write.text for write in writes) or any(_may_be_same(path.text, read.text) for read in reads):
            raise _Doubt(f"{path.place} moves {path.text} away, which it has not written itself")
    for write in writes:
        if (read := next((read for read in reads if _may_be_same(read.text, write.text)), None)) is not None:
            raise _Doubt(
                f"{write.place} writes {write.text}, and {read.place} may read that: a second start meets what the first left"
            )


def _sort_call(
    program: JobProgram, uses: FileUses, caller: Caller, reads: list[_Path], writes: list[_Path], moves: list[_Path]
) -> None:
    """Add what a call reads, writes and moves away.

    Raises:
        _Doubt: It may do something else, or to which file is not known.
    """
    call, name = caller.node, dotted(caller.node.func)
    method = name.rpartition(".")[2] if name else call.func.attr if isinstance(call.func, ast.Attribute) else ""
    holder = call.func.value if isinstance(call.func, ast.Attribute) else None
    place = f"{PurePosixPath(caller.source.path).name}:{call.lineno}"
    texts_of = uses.reader.texts
    changes = any(module in EACH_TIME for source in program.sources for module in source.modules)

    def paths(node: ast.expr | None, inner: str = "") -> list[_Path]:
        texts: Texts = texts_of(caller.source, node, caller.scope)
        file_paths = [outside_path(program, text) for text in texts]
        if changes and any(UNRESOLVED in text for text in texts):
            raise _Doubt(f"{place}: the name {ast.unparse(node)[:80] if node is not None else ''} may be another one at each start")
        if not file_paths or not all(file_paths) or any("~" in path for path in file_paths):
            raise _Doubt(f"{place}: which file {ast.unparse(call)[:80]} names is not known")
        return [_Path(os.path.normpath(path) + inner, place) for path in file_paths]

    is_effect = method in WRITES_FIRST | OWN_PATH | LISTS | {"open", "replace", "rename", "glob", "rglob", "basicConfig"}
    options = {item.arg for item in call.keywords}
    is_starred = None in options or any(isinstance(item, ast.Starred) for item in call.args)
    if is_effect and (
        is_starred or options & {"root_dir", "dir_fd", "partition_cols", "opener"} or len(call.args) > MOST_ARGUMENTS
    ):
        raise _Doubt(f"{place} calls {name or method}() in a way that is not followed")
    if name in OPENS or (method == "open" and holder is not None):
        is_function = name in OPENS
        node = argument_of(call, "file", 0) if is_function else holder
        mode = _mode(uses, caller, 1 if is_function else 0)
        if set(mode) & set("x+"):
            raise _Doubt(f"{place} opens a file that must not be there yet, or changes it in place ({mode})")
        if "a" in mode:
            if not all(LOG_NAME.search(PurePosixPath(path.text).name) for path in paths(node)):
                raise _Doubt(f"{place} appends, and a rerun would do so a second time")
            mode = "w"  # what it reads of its own log it meets again
        (writes if "w" in mode else reads).extend(paths(node))
    elif name in ("os.replace", "os.rename") or (
        method in ("replace", "rename") and holder is not None and len(call.args) == 1 and not call.keywords
    ):
        source_node, target = (call.args[0], call.args[-1]) if name.startswith("os.") else (holder, call.args[0])
        moves.extend(paths(source_node))
        writes.extend(paths(target))
    elif name in COPIES and len(call.args) == 2:
        reads.extend(paths(call.args[0]))
        writes.extend([*paths(call.args[1]), *paths(call.args[1], "/*")])
    elif method in ("mkdir", "makedirs"):
        is_ready = any(
            item.arg == "exist_ok" and isinstance(item.value, ast.Constant) and item.value.value is True for item in call.keywords
        )
        if not is_ready:
            raise _Doubt(f"{place} makes a folder that must not be there yet")
    elif method in OWN_PATH and holder is not None:
        writes.extend(paths(holder))
    elif name in PLAIN_DUMPS:
        return
    elif method in WRITES_FIRST:
        modes = [item.value for item in call.keywords if item.arg in ("mode", "append", "if_exists")]
        if not all(isinstance(mode, ast.Constant) and mode.value == "w" for mode in modes):
            raise _Doubt(f"{place} writes in a mode that may add to what is there")
        node = argument_of(call, "path_or_buf", 0) or next((item.value for item in call.keywords if item.arg in PATHS), None)
        if node is not None:  # NumPy and SciPy add a suffix
            writes.extend(path for inner in ("", ".npy", ".npz", ".mat") for path in paths(node, inner))
    elif method == "basicConfig":
        nodes = [item.value for item in call.keywords if item.arg == "filename"]
        if not all(LOG_NAME.search(PurePosixPath(path.text).name) for node in nodes for path in paths(node)):
            raise _Doubt(f"{place} adds to a file that is no log by its name")
    elif (
        PRESENT.search(method) or (method in READS_OWN_PATH and not call.args and holder is not None) or method in ("glob", "rglob")
    ):
        of_module = name.startswith(("os.", "glob.")) or holder is None
        node = call.args[0] if of_module and call.args else holder
        reads.extend(
            paths(node, "" if of_module or PRESENT.search(method) or method in ("read_text", "read_bytes", "stat") else "/*")
        )
    elif READS_FIRST.fullmatch(method) and name.partition(".")[0] in ("np", "numpy", "pd", "pandas", "os", "scipy", "sp", "glob"):
        _check_load(call, place)
        node = call.args[0] if call.args else next((item.value for item in call.keywords if item.arg in PATHS), None)
        reads.extend(paths(node, "/*" if method in LISTS else ""))
    elif MORE_EFFECTS.fullmatch(method) and method not in TURNS and holder is not None:
        raise _Doubt(f"{place} calls {name or method}(), which may change what is there")


PATHS = frozenset("file fname filename path io filepath_or_buffer path_or_buf".split())


def _mode(uses: FileUses, caller: Caller, at: int) -> str:
    """Return the mode in which a call opens a file.

    Raises:
        _Doubt: It is not known.
    """
    call = caller.node
    is_given = len(call.args) > at or any(item.arg == "mode" for item in call.keywords)
    is_open = any(item.arg is None for item in call.keywords) or any(isinstance(item, ast.Starred) for item in call.args)
    mode = uses.mode_of(caller) if is_given else "r"
    if is_open or not mode:
        raise _Doubt(f"{PurePosixPath(caller.source.path).name}:{call.lineno} opens a file, and how is not known")
    return mode


def _check_load(call: ast.Call, place: str) -> None:
    modes = [*call.args[1:2], *(item.value for item in call.keywords if item.arg in ("mmap_mode", "allow_pickle"))]
    is_load = dotted(call.func).rpartition(".")[2] == "load"
    if is_load and not all(isinstance(mode, ast.Constant) and mode.value in ("r", "c", None, False) for mode in modes):
        raise _Doubt(f"{place} loads a file so that it may change it, or runs what stands in it")


def _may_be_same(first: str, second: str) -> bool:
    """Tell whether two patterns may name one file."""
    if fnmatchcase(first, second) or fnmatchcase(second, first):
        return True
    if "*" not in first or "*" not in second:
        return False
    begins = first.partition("*")[0], second.partition("*")[0]
    ends = first.rpartition("*")[2], second.rpartition("*")[2]
    begin_fits = begins[0].startswith(begins[1]) or begins[1].startswith(begins[0])
    return begin_fits and (ends[0].endswith(ends[1]) or ends[1].endswith(ends[0]))
