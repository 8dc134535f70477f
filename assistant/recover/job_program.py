"""The training programs that a job starts: their options, from the command line and the files it names, and their source.

All of it is read with the rights of the job's owner, bounded in bytes, files and seconds, and never run.
"""

from __future__ import annotations

import ast
import contextlib
import posixpath
import pwd
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import Any

from assistant.errors import InputError
from assistant.records import Job
from assistant.recover.batch_script import Launch, absolute, launches_of
from assistant.recover.script_removals import removed_at_start, removed_by_command
from assistant.recover.shell.branches import FileTest
from assistant.recover.shell.folders import UNRESOLVED, FolderView, file_test, listed_folder, table_text
from assistant.recover.shell.words import ASSIGNMENT, ReadingLimit
from assistant.recover.source.declared_settings import INI_SUFFIXES, ini_tables
from assistant.recover.source.modules import imported_modules
from assistant.recover.source.trainer_source import SourceCall, TrainerSource, dotted, parse_source, syntax_tree
from assistant.untrusted import LOOK_S, parse_json, parse_toml, read_whole, reading_as, within

ARGS = "NIGHTSHIFT_ARGS"
MOST_FILE_BYTES = 2 << 20
MOST_FILES = 80
"""Of one job: scripts, programs, modules beside them, configurations."""
MOST_PROGRAMS = 20
MOST_KEYS = 5000
CONFIGS = frozenset((".yaml", ".yml", ".toml", ".json"))
QUIET = frozenset(
    "echo printf mkdir rm cp mv ls cat sleep wait date hostname module ulimit set source test [ [[ true false exit trap ln".split()
)
HARMLESS = frozenset(
    "echo printf date seq sleep exit test [ [[ true false hostname wait set trap ulimit shift local return break continue kill "
    "read unset nvidia-smi env printenv uname id pwd module let : ((".split()
)
"""Commands that leave no files behind."""
INTERPOLATION = re.compile(r"\$\{([A-Za-z][\w.]{0,200})\}")
TESTS_FILES = re.compile(r"(?:\[|\btest)\s[^\n\]]{0,40}?-[defhLrs]\s")
LOOKS = re.compile(r"\$\(|`|=\(")
"""What may look into folders."""
MOST_ROUNDS = 64
OPTION = re.compile(r"(?:--|\+{0,2})([A-Za-z][\w./-]{0,100})=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a program."""

    name: str
    """Lower case, with underscores, without leading dashes; dotted where the file or the command line nests it."""
    value: str
    """`true` for a switch without a value."""
    where: str
    """For people: `--save on the command line`, `checkpoint.folder in llama.toml`."""
    file: str = ""
    """Path of the configuration that says it; empty for the command line."""

    @property
    def last(self) -> str:
        """The last part of its name."""
        return self.name.rpartition(".")[2]


STARTS = re.compile(
    r"(?:^|\.)(?:Popen|check_call|check_output|getoutput|getstatusoutput|exec[lv]p?e?|spawn[lv]p?e?|posix_spawn)$"
    r"|^(?:subprocess|sp|sh|asyncio)\.|^os\.(?:system|popen)$|^(?:runpy|submitit)\.|^(?:call|run|system)$"
)
"""Calls by which a Python program starts another one."""


ASKS = frozenset(
    "nvidia-smi rocm-smi hostname uname df du free uptime lscpu lspci id whoami date nproc squeue scontrol sinfo sacct".split()
)
"""Commands that tell about a machine or a job, and load and save nothing."""


def only_asks(call: SourceCall) -> bool:
    """Tell whether a call starts a command of `ASKS`, written as a list of words, and hands it to no shell."""
    words = call.positional[0].elts if call.positional and isinstance(call.positional[0], ast.List | ast.Tuple) else []
    first = words[0].value if words and isinstance(words[0], ast.Constant) else ""
    writes = any(isinstance(word, ast.Constant) and str(word.value).startswith(("-f", "--filename")) for word in words)
    output = ast.unparse(call.keywords["stdout"]).rpartition(".")[2] if "stdout" in call.keywords else "PIPE"
    return PurePosixPath(str(first)).name in ASKS and "shell" not in call.keywords and output in ("PIPE", "DEVNULL") and not writes


@dataclass(frozen=True, slots=True)
class JobProgram:
    """One program of a job's script."""

    launch: Launch
    options: tuple[Option, ...]
    """Those of the command line first: they outrank files."""
    source: TrainerSource | None
    """None where its file could not be read."""
    modules: tuple[TrainerSource, ...] = ()
    """Python files beside it that it imports."""
    removed: tuple[str, ...] = ()
    """Absolute paths and patterns that the script deletes or moves away before it starts this program."""
    unread_behind: str = ""
    """Why the script is not read to its end, so that what follows this program is not known; empty where it is."""
    rounds: tuple[JobProgram, ...] = ()
    """The same program as the script would start it if what it looks for and finds were not there, again and again."""
    settings: tuple[Option, ...] = ()
    """What configurations say that its command line or its source names: the first of a name counts."""

    def option(self, *names: str) -> Option | None:
        """Return the first option of one of these names; a name with a dot must match whole, another also as the last part."""
        for name in names:
            found = next((one for one in self.options if one.name == name or ("." not in name and one.last == name)), None)
            if found is not None:
                return found
        return None

    def unread(self, *names: str) -> str:
        """Return the configuration file that an option names and of which nothing is known; empty where there is none."""
        given = self.option(*names)
        name = Path(given.value).name if given is not None else ""
        return given.value if given is not None and not any(one.where.endswith(f" in {name}") for one in self.options) else ""

    @property
    def calls(self) -> list[SourceCall]:
        """All calls of its source and of the modules beside it."""
        return [call for part in self.sources for call in part.calls]

    @property
    def starts_others(self) -> bool:
        """Whether its source starts other programs: what these load and save stands elsewhere."""
        return any(STARTS.search(call.name) and not only_asks(call) for call in self.calls)

    @property
    def sources(self) -> tuple[TrainerSource, ...]:
        """Its own source first, then those of the modules beside it."""
        return ((self.source,) if self.source is not None else ()) + self.modules

    @property
    def name(self) -> str:
        """Its file's or module's name, for people."""
        return PurePosixPath(self.launch.program).name or PurePosixPath(self.launch.words[0]).name


@dataclass(slots=True)
class FileReader:
    """Reads small files of one owner, each at most once, until its allowance is used up."""

    account: str
    texts: dict[str, str | None] = field(default_factory=dict)

    def __call__(self, path: str) -> str | None:
        """Return a file's text; None where it cannot be read, is too large or no text.

        Raises:
            Unavailable: The storage did not answer.
        """
        if path not in self.texts:
            self.texts[path] = self._read(path) if len(self.texts) < MOST_FILES else None
        return self.texts[path]

    def _read(self, path: str) -> str | None:
        try:
            with reading_as(self.account):
                raw = within(LOOK_S, partial(read_whole, Path(path), MOST_FILE_BYTES), path)
        except (OSError, InputError, ValueError):
            return None
        return raw.decode("utf-8", "replace") if b"\0" not in raw[:4096] else None


def job_environment(job: Job) -> dict[str, str]:
    """Return the variables that a job's script begins with, as far as they are known: its own, and those that Slurm sets."""
    task = re.fullmatch(r"(\d+)_(\d+)", job.id)
    folder = str(job.work_dir or (job.spec.work_dir if job.spec else "") or "")
    known = {
        "SLURM_JOB_ID": job.id.partition("_")[0],
        "SLURM_JOBID": job.id.partition("_")[0],
        "SLURM_JOB_NAME": job.name,
        "SLURM_SUBMIT_DIR": folder,
        "USER": job.user,
        "LOGNAME": job.user,
    }
    if task is not None:
        known |= {"SLURM_ARRAY_JOB_ID": task[1], "SLURM_ARRAY_TASK_ID": task[2]}
    with contextlib.suppress(KeyError, ValueError):
        known["HOME"] = pwd.getpwnam(job.user).pw_dir if job.user else ""
    # the next attempt is given arguments of its own
    own = {name: text for name, text in (job.spec.environment if job.spec else {}).items() if name != ARGS}
    return {**{name: value for name, value in known.items() if value}, **own}


def programs_of(
    job: Job, read: Callable[[str], str | None] | None = None, *, exists: FileTest | None = None, view: FolderView | None = None
) -> list[JobProgram]:
    """Return the programs that a job's script starts, in order; none where the scheduler keeps no script.

    Args:
        job: With its spec.
        read: Returns a file's text by its absolute path; reads with the rights of the job's owner when None.
        exists: Answers the file tests of its script; where it is None both branches of each `if` count.
        view: Of the folders that its script looks into; None: what it finds there is not known.

    Raises:
        Unavailable: The storage did not answer.
    """
    read = read or FileReader(job.account)
    limit = ReadingLimit()
    launches = job_launches(job, read, exists=exists, view=view, limit=limit)
    programs: list[JobProgram] = []
    removed: list[str] = []
    for launch in launches:
        removed += removed_by_command(launch)
        if len(programs) < MOST_PROGRAMS and PurePosixPath(launch.words[0]).name not in QUIET and _starts_something(launch):
            programs.append(replace(launched_program(launch, read), removed=tuple(removed)))
    return [replace(program, unread_behind=limit.reached) for program in programs]


def job_launches(
    job: Job,
    read: Callable[[str], str | None],
    *,
    exists: FileTest | None = None,
    unanswered: bool | None = None,
    view: FolderView | None = None,
    limit: ReadingLimit | None = None,
) -> list[Launch]:
    """Return the commands of a job's script in order, as `launches_of` does with these arguments; none where no script is kept."""
    if job.spec is None or not job.spec.script:
        return []
    return launches_of(
        job.spec.script,
        environment=job_environment(job),
        work_dir=str(job.work_dir or job.spec.work_dir),
        arguments=job.spec.arguments or (None if job.spec.doubt else ()),
        read=read,
        exists=exists,
        unanswered=unanswered,
        view=view,
        limit=limit,
        read_table=partial(table_text, job, read),
    )


def script_removals(job: Job, programs: Sequence[JobProgram]) -> tuple[str, ...]:
    """Return what a script itself takes away before its work begins, where none of its programs can be read to tell that.

    Its tests of files are answered by what is there now.
    """
    if programs:
        return ()
    with contextlib.suppress(InputError, OSError):
        return removed_at_start(job_launches(job, FileReader(job.account), exists=partial(file_test, job.account, frozenset())))
    return ()


def programs_now(job: Job, programs: Sequence[JobProgram]) -> list[JobProgram]:
    """Return the programs that a job's script would start if it ran now: its tests of files are answered by what is there.

    What it looks for in folders (`$(ls -t out | head -1)`) is worked out as well, and each program's `rounds` with it.

    Args:
        job: With its spec.
        programs: From `programs_of`; given back where the script tests no file.

    Raises:
        Unavailable: The storage did not answer.
    """
    script = job.spec.script if job.spec is not None else ""
    calls_scripts = any(word.endswith(".sh") for program in programs for word in program.launch.words)
    if not TESTS_FILES.search(script) and not calls_scripts and not LOOKS.search(script):
        return list(programs)
    listing = lru_cache(maxsize=None)(partial(listed_folder, job.account))
    read = FileReader(job.account)
    hidden: frozenset[str] = frozenset()
    rounds: list[list[JobProgram]] = []
    while len(rounds) < MOST_ROUNDS:
        view = FolderView(listing, hidden)
        rounds.append(programs_of(job, read, exists=partial(file_test, job.account, hidden), view=view))
        if view.origins <= hidden or len(rounds[-1]) != len(rounds[0]):
            break
        hidden |= view.origins
    alike = [later for later in rounds[1:] if len(later) == len(rounds[0])]
    return [replace(program, rounds=tuple(later[place] for later in alike)) for place, program in enumerate(rounds[0])]


def programs_looking(job: Job, programs: Sequence[JobProgram]) -> list[JobProgram]:
    """Return the programs of a job with what its script finds in folders filled in: which configuration is the third of `*.yaml`.

    Args:
        job: With its spec.
        programs: From `programs_of`; given back where nothing of their words is unknown.

    Raises:
        Unavailable: The storage did not answer.
    """
    if not any(UNRESOLVED in word for program in programs for word in program.launch.words):
        return list(programs)
    return programs_of(job, view=FolderView(lru_cache(maxsize=None)(partial(listed_folder, job.account))))


def saves_nothing(job: Job, read: Callable[[str], str | None] | None = None, *, programs: Sequence[JobProgram] = ()) -> bool:
    """Tell whether a script consists, besides some programs, of plain commands of a shell that write nothing but logs."""
    if job.spec is None or not job.spec.script:
        return False
    folder = str(job.work_dir or job.spec.work_dir)
    limit, read = ReadingLimit(), read or FileReader(job.account)
    launches = launches_of(
        job.spec.script, environment=job_environment(job), work_dir=folder, arguments=job.spec.arguments, read=read, limit=limit
    )
    functions = set(re.findall(r"^[ \t]*(?:function[ \t]+)?([\w-]{1,80})[ \t]*\(\)", job.spec.script, re.MULTILINE))
    read_launches = {program.launch.words for program in programs}
    return not limit.reached and all(launch.words in read_launches or _writes_nothing(launch, functions) for launch in launches)


def _writes_nothing(launch: Launch, functions: set[str]) -> bool:
    logs = all(target.startswith("/dev/") or PurePosixPath(target).suffix in (".log", ".out", ".err") for target in launch.writes)
    words = [PurePosixPath(word).name for word in launch.words]
    while words and (words[0] in ("srun", "exec") or words[0].startswith("-") or words[0].isdecimal()):
        words = words[1:]
    return logs and (not words or words[0] in HARMLESS or words[0] in functions or ASSIGNMENT.match(words[0]) is not None)


def _starts_something(launch: Launch) -> bool:
    if launch.program:
        return True
    # the text of `bash -c` is no name, also where it ends with a path: what it starts is a launch of its own
    names = [place for place, word in enumerate(launch.words) if " " not in word and PurePosixPath(word).name.startswith("python")]
    if names and (launch.stdin or "-c" in launch.words[names[0] :]):
        return True
    plain = not any(any(letter.isspace() for letter in word) for word in launch.words)
    return plain and any(word.startswith("--") or Path(word).suffix in CONFIGS for word in launch.words[1:])


def launched_program(launch: Launch, read: Callable[[str], str | None]) -> JobProgram:
    """Return the program that a command starts, with its options and what of its source can be read."""
    path, text = _source_text(launch, read)
    source = None
    modules: list[TrainerSource] = []
    if text is not None:
        source = parse_source(text, path=path, arguments=launch.arguments, environment=launch.variables, is_main=True)
        modules = imported_modules(source, read)
    configured = list(_files(launch, source, read))
    program = JobProgram(launch, (*_command_line(launch), *configured), source, tuple(modules))
    return replace(program, settings=(*configured, *_own_settings(program, read)))


def _source_text(launch: Launch, read: Callable[[str], str | None]) -> tuple[str, str | None]:
    if not launch.program:
        inline = launch.words[launch.words.index("-c") + 1 : launch.words.index("-c") + 2] if "-c" in launch.words else ()
        return "the script", launch.stdin or (inline[0] if inline else None)
    names = [launch.program]
    if launch.module:
        base = launch.program.replace(".", "/")
        names = [f"{base}.py", f"{base}/__main__.py"]
    for name in names:
        path = launch.outside(name)
        text = read(str(path)) if path is not None else None
        if text is not None:
            return str(path), text
    return names[0], None


def _command_line(launch: Launch) -> Iterator[Option]:
    words = launch.arguments
    for place, word in enumerate(words):
        match = OPTION.fullmatch(word)
        if match is not None:
            shown = word.partition("=")[0]
            yield Option(normalised(match[1]), match[2].strip("'\""), f"{shown} on the command line")
        elif word.startswith("--") and len(word) > 2:
            following = words[place + 1] if place + 1 < len(words) else "--"
            value = "true" if following.startswith("--") else following
            value = "" if word in launch.emptied else value
            yield Option(normalised(word), value, f"{word} on the command line")


def normalised(name: str) -> str:
    """Return an option's name as it is compared."""
    return name.lstrip("-+").replace("-", "_").lower()


def _files(launch: Launch, source: TrainerSource | None, read: Callable[[str], str | None]) -> Iterator[Option]:
    """Yield what the configuration files say that a command line names."""
    hydra: dict[str, str] = {}
    for place, word in enumerate(launch.arguments):
        name, equals, value = word.partition("=")
        value = value if equals else word
        if name in ("--config-name", "--config-path", "--config-dir", "-cn", "-cp", "-cd"):
            hydra[name[-4:]] = value if equals else " ".join(launch.arguments[place + 1 : place + 2])
        suffix = Path(value).suffix
        if suffix in CONFIGS | INI_SUFFIXES or (suffix == ".py" and value != launch.program):
            yield from _file(launch.outside(value), read)
    config = hydra.get("name") or hydra.get("-cn")
    if config:
        base = str(PurePosixPath(source.path).parent) if source is not None else launch.folder
        folder = hydra.get("path") or hydra.get("-cp") or hydra.get("-dir") or hydra.get("-cd") or "."
        yield from _file(absolute(f"{folder}/{config.removesuffix('.yaml')}.yaml", base), read)


def configured_keys(program: JobProgram, read: Callable[[str], str | None]) -> list[tuple[str, str]]:
    """Return the keys of a program's configurations with their values: of its command line, then of the files that it names.

    Args:
        program: From `programs_of`.
        read: Returns a file's text by its absolute path.
    """
    return [(option.name, option.value) for option in (*program.options, *_own_settings(program, read))]


def _own_settings(program: JobProgram, read: Callable[[str], str | None]) -> Iterator[Option]:
    """Yield what the configurations say that a program's source names."""
    if program.source is None or not program.source.path.startswith("/"):
        return
    folders = (str(PurePosixPath(program.source.path).parent), program.launch.folder)
    for name in dict.fromkeys(name for source in program.sources for name in _named_configs(source)):
        below = [f"{folder}{name}" for folder in folders if name.startswith("/")]  # `HERE + "/conf/net.json"`
        paths = (Path(posixpath.normpath(path)) for path in (*(posixpath.join(folder, name) for folder in folders), *below))
        yield from next((values for path in paths if (values := list(_file(path, read)))), [])


def _named_configs(source: TrainerSource) -> Iterator[str]:
    """Yield the configurations that a program itself names: by a text that ends so, and Hydra's of `hydra.main`."""
    for node in ast.walk(syntax_tree(source.text)) if source.parsed else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _names_config(node.value):
            yield node.value
        elif isinstance(node, ast.Call) and dotted(node.func) == "hydra.main":
            words = {keyword.arg: source.value(keyword.value) for keyword in node.keywords if keyword.arg}
            folder, name = words.get("config_path") or ".", words.get("config_name")
            if isinstance(folder, str) and isinstance(name, str):
                yield f"{folder}/{name.removesuffix('.yaml')}.yaml"


def _names_config(text: str) -> bool:
    return len(text) < 4_096 and PurePosixPath(text).suffix in CONFIGS | INI_SUFFIXES


def _file(path: Path | None, read: Callable[[str], str | None]) -> Iterator[Option]:
    text = read(str(path)) if path is not None else None
    if path is None or text is None:
        return
    values = config_values(path, text)
    known = dict(values)
    for name, value in values:
        yield Option(name, _interpolated(value, known), f"{name} in {path.name}", str(path))


def config_values(path: Path, text: str) -> list[tuple[str, str]]:
    """Return the plain values of a configuration by their dotted names, in its order; none of one that cannot be parsed."""
    try:
        return list(_flat(_parsed(path, text)))
    except (ValueError, InputError, RecursionError):
        return []


def _interpolated(value: str, known: Mapping[str, str]) -> str:
    """Return a value with OmegaConf's `${other.key}` replaced from the same file; what asks for more only a run can tell."""
    filled = INTERPOLATION.sub(lambda match: known.get(normalised(match[1]), match[0]), value)
    return UNRESOLVED if "${" in filled else filled


def _parsed(path: Path, text: str) -> Any:
    if path.suffix == ".toml":
        return parse_toml(text)
    if path.suffix == ".json":
        return parse_json(text)
    if path.suffix in INI_SUFFIXES:
        return ini_tables(text)
    if path.suffix == ".py":
        source = parse_source(text, path=str(path))
        return {name: source.named(name) for name in source.names}
    import yaml  # type: ignore[import-untyped]

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is no YAML: {error}") from error


def _flat(value: Any, above: str = "", left: list[int] | None = None) -> Iterator[tuple[str, str]]:
    """Yield the plain values of nested tables, each by its dotted name; at most `MOST_KEYS`, also where a file repeats itself."""
    left = left if left is not None else [MOST_KEYS]
    for key, inner in value.items() if isinstance(value, Mapping) else ():
        left[0] -= 1
        if left[0] < 0:
            return
        name = f"{above}{normalised(str(key))}"
        if isinstance(inner, Mapping):
            yield from _flat(inner, f"{name}.", left)
        elif isinstance(inner, bool):
            yield name, "true" if inner else "false"
        elif isinstance(inner, str | int | float):
            yield name, str(inner)
        elif inner is None:
            yield name, "null"
