"""Follow a number that was refused back to where the job has it from: a key of a configuration, or a line of its source.

`size mismatch ... [256] ... [512]` is a key that holds 512 now and held 256 when the run began; `the number of total steps is 160`
is the line that hands on `total_steps=`. Read are the head of the log, the configurations that the job names, and its sources.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from assistant.errors import InputError, NightshiftError
from assistant.records import Job
from assistant.recover.job_program import FileReader, JobProgram, Option, normalised
from assistant.recover.joblog import logs_of
from assistant.recover.source.trainer_source import TrainerSource, dotted, syntax_tree
from assistant.untrusted import LOOK_S, read_start, reading_as, status_of, within

__all__ = ["RefusedSetting", "refused_numbers", "refused_words", "settings_of"]

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


def refused_numbers(error: str) -> tuple[str, ...]:
    """Return the whole numbers of two digits and more that an error names, without those of lines, times and addresses."""
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
        yield f"{place} was changed at {changed:%Y-%m-%d %H:%M:%S} UTC, after the run began."


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
            line = _line_of(read(option.file) or "", option)
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
        words += f", which was changed at {setting.changed:%Y-%m-%d %H:%M:%S} UTC, after the run began"
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


def _line_of(text: str, option: Option) -> int:
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
