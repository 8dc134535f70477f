"""Follow a name that a job lacks, or a number that was refused, back to where the job has it from.

A program, module or library is looked up in the folders that the script gives, followed as a shell would (`PATH`, `PYTHONPATH`,
`LD_LIBRARY_PATH`, sourced files, environments, modulefiles of Tcl and Lua); nothing is run.

`size mismatch ... [256] ... [512]` is a key that holds 512 now and held 256 when the run began; `the number of total steps is 160`
is the line that hands on `total_steps=`. Read are the head of the log, the configurations that the job names, and its sources.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from assistant.errors import InputError, NightshiftError
from assistant.records import Job
from assistant.recover.batch_script import Launch
from assistant.recover.job_program import FileReader, JobProgram, Option, job_environment, job_launches, normalised
from assistant.recover.joblog import logs_of
from assistant.recover.shell.folders import RUNTIMES, UNRESOLVED
from assistant.recover.source.trainer_source import TrainerSource, dotted, syntax_tree
from assistant.untrusted import LOOK_S, read_start, reading_as, status_of, within
from assistant.watch.outages import MOST_CHARACTERS

DEFAULT_FOLDERS = (
    "/usr/share/modulefiles",
    "/etc/modulefiles",
    "/usr/share/Modules/modulefiles",
    "/usr/share/modules/modulefiles",
    "/opt/modulefiles",
)
"""Source: the packages environment-modules and Lmod of Debian and of Enterprise Linux."""
COMMANDS = frozenset(("module", "ml"))
_TCL_NAME = re.compile(r"^\s*set\s+(\w{1,40})\s+[\"']?(/[^\s\"';]{1,200})", re.MULTILINE)
_LUA_NAME = re.compile(r"^\s*(?:local\s+)?(\w{1,40})\s*=\s*[\"'](/[^\"'\n]{1,200})[\"']", re.MULTILINE)
_TCL_PREPENDED = re.compile(r"^\s*(?:prepend|append)-path\s+(\w{1,40})\s+[\"']?([^\s\"';]{1,300})", re.MULTILINE)
_LUA_PREPENDED = re.compile(r"\b(?:prepend|append)_path\s*\(\s*[\"'](\w{1,40})[\"']\s*,\s*([^\n]{1,300})", re.MULTILINE)
_TCL_USED = re.compile(r"\$\{?(\w{1,40})\}?")
_LUA_PART = re.compile(r"\s*(?:pathJoin\s*\(|[\"']([^\"'\n]{0,200})[\"']|([A-Za-z_]\w{0,40})|\.\.|,|\))")


class VariableFolder(NamedTuple):
    """A folder that a modulefile puts into a variable such as PATH."""

    variable: str
    folder: str


def modulefile_folders(launches: Iterable[Launch], module_path: Iterable[str]) -> Iterator[str]:
    """Yield the folders in which modulefiles of a script are looked for: those it uses, those of MODULEPATH, the usual ones."""
    for words in _module_words(launches):
        if "use" in words:
            yield from (word for word in words[words.index("use") + 1 :] if word.startswith("/"))
    yield from module_path
    yield from DEFAULT_FOLDERS


def modulefile_settings(
    launches: Iterable[Launch], folders: Iterable[str], read: Callable[[str], str | None]
) -> Iterator[VariableFolder]:
    """Yield what the modules that a script loads add to variables, as far as their files can be read.

    Args:
        launches: Commands of the script.
        folders: From `modulefile_folders`.
        read: Returns a file's text by its absolute path, None where it cannot be read.
    """
    places = [folder.rstrip("/") for folder in dict.fromkeys(folders) if folder.startswith("/") and UNRESOLVED not in folder]
    for words in _module_words(launches):
        names = words[words.index("load") + 1 :] if "load" in words else words if "use" not in words else ()
        for name in (name for name in names if not name.startswith(("-", "/", ".")) and UNRESOLVED not in name):
            for place in places:
                if (text := read(f"{place}/{name}.lua")) is not None:
                    yield from _of_lua(text)
                elif (text := read(f"{place}/{name}")) is not None:
                    yield from _of_tcl(text)


def _module_words(launches: Iterable[Launch]) -> Iterator[Sequence[str]]:
    return (launch.words[1:] for launch in launches if launch.words[0] in COMMANDS)


def _of_tcl(text: str) -> Iterator[VariableFolder]:
    names = dict(_TCL_NAME.findall(text))
    for variable, word in _TCL_PREPENDED.findall(text):
        folder = _TCL_USED.sub(lambda match: names.get(match[1], UNRESOLVED), word)
        yield from (VariableFolder(variable, part) for part in folder.split(":") if part.startswith("/") and UNRESOLVED not in part)


def _of_lua(text: str) -> Iterator[VariableFolder]:
    names = dict(_LUA_NAME.findall(text))
    for variable, expression in _LUA_PREPENDED.findall(text):
        folder, place, joined = "", 0, "pathJoin" in expression
        while (part := _LUA_PART.match(expression, place)) is not None and part.end() > place:
            word = part[1] if part[1] is not None else names.get(part[2], UNRESOLVED) if part[2] else ""
            folder += f"/{word.strip('/')}" if joined and word else word
            place = part.end()
        if folder.startswith("/") and UNRESOLVED not in folder:
            yield VariableFolder(variable, folder)


MOST_FOLDERS = 96
SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin")
SYSTEM_LIBRARIES = ("/usr/local/lib", "/usr/local/lib64", "/usr/lib64", "/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib", "/lib")
SYSTEM_PREFIXES = ("/usr", "/usr/local")
PYTHONS = tuple(f"python3.{minor}" for minor in range(8, 15))
"""Versions whose folders of packages are looked into."""
_NAME = r"\w[\w.+-]{0,80}"
_QUOTE = r"['\"`\u2018\u2019]?"
_ACTIVATED = re.compile(r"(/[\w.@+/-]{1,200})/bin/(?:activate|python[\d.]*)\b")
_CONDA_ROOT = re.compile(r"(/[\w.@+/-]{1,200})/(?:etc/profile\.d/conda\.sh|bin/(?:conda|mamba|activate))\b")
_CONDA_NAMES = re.compile(r"\b(?:conda|mamba|micromamba|bin/)\s?activate\s+[\"']?([\w.@+/-]{1,200})")


class LookupKind(StrEnum):
    """What was looked for."""

    PROGRAM = "program"
    MODULE = "module of Python"
    LIBRARY = "library"
    MODULEFILE = "modulefile"


class MissingName(NamedTuple):
    """What a line says was not found by its name."""

    kind: LookupKind
    name: str
    certain: bool = True
    """Whether the line surely speaks of such a thing; a file that is opened by a bare name may be data."""


class Lookup(NamedTuple):
    """Where a job's shell looks for something."""

    folders: tuple[str, ...]
    whole: bool
    """Whether these are all folders."""


_FORMS: tuple[tuple[LookupKind, str, bool], ...] = (
    (LookupKind.MODULEFILE, rf"[Uu]nable to locate a modulefile for {_QUOTE}([\w.+/-]{{1,120}})", True),
    (LookupKind.MODULEFILE, r"module\(s\) are unknown: \"([\w.+/-]{1,120})\"", True),
    (LookupKind.MODULE, rf"No module named {_QUOTE}([A-Za-z_]\w{{0,80}})", True),
    (LookupKind.LIBRARY, r"(lib[\w.+-]{1,80}\.so[\w.]{0,20}): cannot open shared object file", True),
    (LookupKind.PROGRAM, rf"(?:^|[:\s])({_NAME}): (?:command )?not found\s*$", True),
    (LookupKind.PROGRAM, rf"command not found: ({_NAME})\s*$", True),
    (LookupKind.PROGRAM, rf"\benv: {_QUOTE}({_NAME}){_QUOTE}: No such file or directory", True),
    (LookupKind.PROGRAM, rf"execve\(\): ({_NAME}): No such file or directory", True),
    (LookupKind.PROGRAM, rf'exec: "({_NAME})": executable file not found', True),
    (LookupKind.PROGRAM, rf"No such file or directory: '({_NAME})'", False),
)
_COMPILED = tuple((kind, re.compile(form), certain) for kind, form, certain in _FORMS)


def missing_name(lines: Iterable[str]) -> MissingName | None:
    """Return what the first line that says so did not find by its name; None where none does. Pure."""
    for line in (line[:MOST_CHARACTERS].rstrip() for line in lines):
        for kind, form, certain in _COMPILED:
            if match := form.search(line):
                return MissingName(kind, match[1], certain)
    return None


@dataclass(frozen=True)
class _Shell:
    """What a script sets for the programs that it starts."""

    launches: tuple[Launch, ...]
    environment: dict[str, str]
    text: str
    """Of the script and of all files that it reads."""
    settings: tuple[VariableFolder, ...]
    """Of the modulefiles that it loads."""

    def folders(self, variable: str) -> Iterator[str]:
        """Yield the parts of a variable such as PATH, wherever it is set in the script."""
        for variables in (self.environment, *(launch.variables for launch in self.launches)):
            yield from filter(None, variables.get(variable, "").split(":"))
        yield from (setting.folder for setting in self.settings if setting.variable == variable)

    def environments(self) -> Iterator[str]:
        """Yield the folders of environments of Python that a script activates, or whose interpreter it calls."""
        yield from self.folders("VIRTUAL_ENV")
        yield from self.folders("CONDA_PREFIX")
        roots: list[str] = _CONDA_ROOT.findall(self.text)
        for name in _CONDA_NAMES.findall(self.text):
            yield from [name] if name.startswith("/") else (f"{root}/envs/{name}" for root in roots)
        yield from _ACTIVATED.findall(self.text)
        yield from roots

    def packages(self) -> Iterator[str]:
        """Yield the folders in which the interpreters that a script may call look for modules."""
        own = list(self.environments())
        bins = [folder.removesuffix("/bin") for folder in self.folders("PATH") if folder.endswith("/bin")]
        # an environment does not see what the system has
        prefixes = [
            *own,
            *(prefix for prefix in bins if not own or prefix not in SYSTEM_PREFIXES),
            *(() if own else SYSTEM_PREFIXES),
        ]
        for prefix in dict.fromkeys(prefixes):
            if prefix in SYSTEM_PREFIXES:
                yield f"{prefix}/lib/python3/dist-packages"
            for python in PYTHONS:
                yield f"{prefix}/lib/{python}/site-packages"
                if prefix in SYSTEM_PREFIXES:
                    yield f"{prefix}/lib/{python}/dist-packages"


def lookup_of(job: Job, kind: LookupKind) -> Lookup:
    """Return the folders in which a job's shell looks for something; none where it runs in a container, or no script is kept.

    Raises:
        Unavailable: The storage did not answer.
    """
    shell = _shell_of(job)
    if shell is None:
        return Lookup((), whole=False)
    if kind is LookupKind.MODULEFILE:
        folders = list(modulefile_folders(shell.launches, shell.folders("MODULEPATH")))
    elif kind is LookupKind.LIBRARY:
        folders = [*shell.folders("LD_LIBRARY_PATH"), *SYSTEM_LIBRARIES]
    elif kind is LookupKind.PROGRAM:
        folders = [*shell.folders("PATH"), *(f"{prefix}/bin" for prefix in shell.environments()), *SYSTEM_PATH]
    else:
        folders = [*shell.folders("PYTHONPATH"), *shell.packages()]
    folder_names = dict.fromkeys(folder.rstrip("/") for folder in folders if folder.startswith("/") and UNRESOLVED not in folder)
    certain = kind is LookupKind.PROGRAM and bool(shell.environment.get("PATH")) and len(folder_names) <= MOST_FOLDERS
    whole = certain and not any(UNRESOLVED in folder for folder in folders)
    return Lookup(tuple(folder for folder in folder_names if folder)[:MOST_FOLDERS], whole=whole)


def _shell_of(job: Job) -> _Shell | None:
    """Return what a job's script sets; None where it runs in a container, or no script is kept."""
    read = FileReader(job.account)
    launches = job_launches(job, read)
    contained = any(launch.container is not None or PurePosixPath(launch.words[0]).name in RUNTIMES for launch in launches)
    if job.spec is None or not launches or contained:
        return None
    environment = job_environment(job)
    module_path = [folder for launch in launches for folder in launch.variables.get("MODULEPATH", "").split(":")]
    places = list(modulefile_folders(launches, [*environment.get("MODULEPATH", "").split(":"), *module_path]))
    settings = tuple(modulefile_settings(launches, places, read))
    text = "\n".join([job.spec.script, *(text for text in read.texts.values() if text)])
    return _Shell(tuple(launches), environment, text, settings)


MOST_NUMBERS, MOST_SETTINGS, MOST_KEYS_NAMED = 6, 3, 4
HEAD_BYTES = 256 << 10
"""Of a log, in whose first lines a program prints its settings."""
MOST_LOGS, MOST_SOURCES = 2, 2
LONGEST = 4_000
_PLACES = re.compile(r"""\bline \d+|[\w./-]+\.\w{1,5}:\d+|\d{1,4}[-:/]\d\d[-:/]\d\d\S*|\b0x[0-9a-f]+""", re.IGNORECASE)
"""Numbers of lines, times and addresses."""
_NUMBER = re.compile(r"(?<![\w.:/-])(\d{2,12})(?![\w/%]|\.\d|:\d)")
OF_A_MODEL = re.compile(r"state_dict|size mismatch|(?:missing|unexpected) key", re.IGNORECASE)
"""What is said of a model that is not the one of the checkpoint, whatever of it was changed."""
_WORD = re.compile(r"[a-z]{3,}")


class RefusedSetting(NamedTuple):
    """A key that holds a number which was refused."""

    option: Option
    line: int
    """Of its file; 0 where it is not known."""
    changed: datetime | None
    """When its file was last changed; None where nobody can tell."""
    before: str
    """The value that the log shows first under that key, where it is another one; else empty."""


_SHAPES = re.compile(r"torch\.Size\(\[([\d, ]{1,80})\]\).{1,80}?torch\.Size\(\[([\d, ]{1,80})\]\)")
"""Two shapes of one tensor, as `load_state_dict` names them."""


def refused_numbers(error: str) -> tuple[str, ...]:
    """Return the whole numbers of two digits and more that an error names, without those of lines, times and addresses.

    Of two shapes only the numbers that differ count: the others are not refused.
    """
    pairs = [tuple(shape.replace(" ", "").split(",") for shape in match.groups()) for match in _SHAPES.finditer(error[:LONGEST])]
    axes = [axis for saved, built in pairs if len(saved) == len(built) for axis in zip(saved, built, strict=True)]
    if differing := [number for axis in axes if axis[0] != axis[1] for number in axis if len(number) > 1]:
        return tuple(dict.fromkeys(differing))[:MOST_NUMBERS]
    return tuple(dict.fromkeys(_NUMBER.findall(_PLACES.sub(" ", error[:LONGEST]))))[:MOST_NUMBERS]


def refused_words(job: Job, programs: Sequence[JobProgram], error: str, *, began: datetime | None) -> str:
    """Return where a refused number comes from, in sentences for the owner of a job; empty where nothing tells it.

    Args:
        job: The attempt that failed.
        programs: What its script starts.
        error: The line that refuses it, and what the diagnosis says of it.
        began: When its run first began, as far as is known; a file that was changed later is told as that.
    """
    numbers = refused_numbers(error)
    if not numbers:
        return ""
    settings = settings_of(job, programs, numbers, _heads(job))
    sentences = [_setting_words(setting, programs, began) for setting in settings[:MOST_SETTINGS]]
    sentences += [words for program in programs for words in _handed_on(program, error)][:1]
    if not any(_changed_since(setting.changed, began) for setting in settings):
        sentences += list(_changed_sources(job, programs, error, began))[:MOST_SOURCES]
    return " ".join(sentences)


def _changed_since(changed: datetime | None, began: datetime | None) -> bool:
    """Tell whether a file was changed after a time; schedulers tell whole seconds, and files parts of them."""
    return changed is not None and began is not None and changed >= began + timedelta(seconds=1)


def _after(began: datetime | None) -> str:
    """Say since when a run goes on: of one that several jobs made, the first of them counts."""
    return f"after its run first began at {began:%Y-%m-%d %H:%M:%S}" if began is not None else "after its run began"


def _changed_sources(job: Job, programs: Sequence[JobProgram], error: str, began: datetime | None) -> Iterator[str]:
    """Yield the sources of programs that were changed since their run began, each with the line that holds a refused number."""
    numbers = refused_numbers(error)
    paths: set[str] = set()
    for source in (source for program in programs for source in program.sources if source.path.startswith("/")):
        changed = _changed(job.account, source.path) if source.path not in paths else None
        paths.add(source.path)
        if not _changed_since(changed, began):
            continue
        constant = next(
            (
                node
                for node in _nodes(source)
                if isinstance(node, ast.Constant) and type(node.value) is int and str(node.value) in numbers
            ),
            None,
        )
        if constant is None and not OF_A_MODEL.search(error):
            continue
        place = f"{source.path}:{constant.lineno}, which holds {constant.value!r}," if constant is not None else source.path
        yield f"{place} was changed at {changed:%Y-%m-%d %H:%M:%S} UTC, {_after(began)}."


def settings_of(job: Job, programs: Sequence[JobProgram], numbers: Sequence[str], heads: Sequence[str]) -> list[RefusedSetting]:
    """Return the keys of a job's configurations that hold one of some numbers, those that changed since the run began first.

    Args:
        job: Whose files they are.
        programs: With their settings.
        numbers: As text.
        heads: First lines of its logs.
    """
    read = FileReader(job.account)
    settings: dict[tuple[str, str], RefusedSetting] = {}
    for option in (option for program in programs for option in program.settings if option.file and option.value in numbers):
        if (option.file, option.name) not in settings and not option.file.endswith(".py"):
            before = next((value for value in _logged_values(option.last, heads) if value != option.value), "")
            line = line_of_option(read(option.file) or "", option)
            settings[option.file, option.name] = RefusedSetting(option, line, _changed(job.account, option.file), before)
    candidates = list(settings.values())
    # a key that the log shows with the other refused number is the one; any key may hold a number by chance
    certain = [setting for setting in candidates if setting.before in numbers]
    return certain or [setting for setting in candidates if setting.before] or candidates


def _setting_words(setting: RefusedSetting, programs: Sequence[JobProgram], began: datetime | None) -> str:
    option = setting.option
    place = f"{option.file}:{setting.line}" if setting.line else option.file
    words = f"{option.name} is {option.value} ({place}"
    if setting.changed is not None and _changed_since(setting.changed, began):
        words += f", which was changed at {setting.changed:%Y-%m-%d %H:%M:%S} UTC, {_after(began)}"
    words += ")"
    words += f", and was {setting.before} when the log begins" if setting.before else ""
    used = next((f"{path}:{line}" for program in programs for path, line in _uses(program, option.last)), "")
    words += f"; {used} takes it in" if used else ""
    return f"{words}."


def _logged_values(key: str, heads: Sequence[str]) -> Iterator[str]:
    """Yield the values that the head of a log shows under a key, in order."""
    pattern = re.compile(rf"(?<![\w.]){re.escape(key)}['\"]?\s{{0,4}}[:=]\s{{0,4}}['\"]?([\w.+-]{{1,40}})", re.IGNORECASE)
    for head in heads:
        yield from (match[1] for match in pattern.finditer(head))


def _heads(job: Job) -> list[str]:
    """Return the first lines of a job's logs, of whatever attempt they are."""
    try:
        files = logs_of(job).readable[:MOST_LOGS]
        with reading_as(job.account):
            raws = [within(LOOK_S, partial(read_start, file.path, HEAD_BYTES), str(file.path)) for file in files]
    except (NightshiftError, OSError, ValueError):
        return []
    return [raw.decode("utf-8", "replace") for raw in raws]


def line_of_option(text: str, option: Option) -> int:
    """Return the line on which a file gives a key its value; 0 where none does. Keys are compared as options are."""
    value = re.compile(rf"(?<![\w.]){re.escape(option.value)}(?!\w)")
    for number, line in enumerate(text.splitlines(), 1):
        for key in re.finditer(r"[\w-]{1,200}", line[:LONGEST]):
            if normalised(key[0]) == option.last and value.search(line[:LONGEST], key.end()):
                return number
    return 0


def _changed(account: str, path: str) -> datetime | None:
    try:
        with reading_as(account):
            seconds = within(LOOK_S, lambda: status_of(Path(path)).st_mtime, path)
        return datetime.fromtimestamp(seconds, UTC)
    except (OSError, InputError, ValueError, OverflowError):
        return None


def _uses(program: JobProgram, key: str) -> Iterator[tuple[str, int]]:
    """Yield the places of a program's sources that take a key of a configuration."""
    for source in program.sources:
        for node in _nodes(source):
            by_text = isinstance(node, ast.Constant) and node.value == key
            by_name = isinstance(node, ast.Attribute) and node.attr == key and isinstance(node.ctx, ast.Load)
            if (by_text or by_name) and isinstance(node, ast.Constant | ast.Attribute):
                yield source.path, node.lineno


def _nodes(source: TrainerSource) -> Iterable[ast.AST]:
    return ast.walk(syntax_tree(source.text)) if source.parsed else ()


def _handed_on(program: JobProgram, error: str) -> Iterator[str]:
    """Yield the line that hands a library what it refused, by an argument whose name the error says: `total_steps=`."""
    error_words = set(_WORD.findall(error.lower()))
    for source in program.sources:
        for call in source.calls:
            for keyword, node in call.keywords.items():
                words = set(keyword.lower().split("_"))
                if len(words) < 2 or not words <= error_words:
                    continue
                sentence = f"{source.path}:{call.line} makes it: {call.method}({keyword}={ast.unparse(node)[:160]})"
                keys = [f"{option.name} = {option.value}" for option in _settings_in(program, source, node)]
                sentence += f", with {', '.join(keys)} ({PurePosixPath(_file_of(program, keys)).name})" if keys else ""
                load_line = _loaded_into(source, call.line)
                if load_line:
                    sentence += f"; line {load_line} loads it from the checkpoint as well: the line alone mends no run that goes on"
                yield f"{sentence}."


def _file_of(program: JobProgram, keys: Sequence[str]) -> str:
    return next((option.file for option in program.settings if f"{option.name} = {option.value}" in keys), "")


def _settings_in(program: JobProgram, source: TrainerSource, node: ast.expr) -> list[Option]:
    """Return the settings that an expression is made of, also through names that were assigned once."""
    nodes = [
        node,
        *(
            source.names[inner.id][0]
            for inner in ast.walk(node)
            if isinstance(inner, ast.Name) and len(source.names.get(inner.id, ())) == 1
        ),
    ]
    keys = [
        inner.value if isinstance(inner, ast.Constant) else inner.attr if isinstance(inner, ast.Attribute) else ""
        for part in nodes
        for inner in ast.walk(part)
    ]
    options = [
        next((option for option in program.settings if option.last == key), None) for key in keys if isinstance(key, str) and key
    ]
    return list(dict.fromkeys(option for option in options if option is not None))[:MOST_KEYS_NAMED]


def _loaded_into(source: TrainerSource, line: int) -> int:
    """Return the line that loads a saved state into what a line makes; 0 where none does."""
    names = {
        dotted(target)
        for node in _nodes(source)
        if isinstance(node, ast.Assign) and node.lineno <= line <= (node.end_lineno or node.lineno)
        for target in node.targets
    }
    return next((call.line for call in source.called("load_state_dict") if call.name.rpartition(".")[0] in names - {""}), 0)
