"""By which key of the configuration that a script is given as its argument it goes on: `sbatch train.sh conf/a.json`.

The configuration itself is never changed. A restart is given a copy beside it, `conf/a.nightshift-step60.json`, in which one key
names the chosen checkpoint. It counts where the program, started with such a copy, is started in the very same way but for that
word, and its framework or its source proves that the key reaches what loads; what is home-made is proven by a trial start besides.
A file of somebody else, or a link, is not copied.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from assistant.accounts import account_of
from assistant.errors import InputError, ToolError
from assistant.records import Checkpoint, Job, JobSpec
from assistant.recover.batch_script import absolute
from assistant.recover.job_program import FileReader, JobProgram, config_values, normalised, programs_of
from assistant.recover.restart import COPIED, NOT_SAFE, copied_config
from assistant.recover.resume.argument import PROBE, is_named_so, saves
from assistant.recover.resume.means import NO, ResumeMeans, ResumeWay
from assistant.recover.resume.number import harm
from assistant.recover.source.declared_settings import INI_SUFFIXES
from assistant.recover.source.load_proof import proof_of_load
from assistant.untrusted import LOOK_S, reading_as, within

MOST_KEYS = 3
SUFFIXES = frozenset((".json", ".yaml", ".yml", ".toml")) | INI_SUFFIXES
SCALAR = r"(?:null|~|None|none|false|False|\"[^\"\n]{0,500}\"|'[^'\n]{0,500}'|[\w./~-]{0,500})"
FIRST_ARGUMENT = re.compile(r"\$\{1:?-(?P<default>[\w./-]{1,200})\}")
"""A script's first argument, with what counts where it was given none."""


class ConfigCopy(NamedTuple):
    """A copy of a configuration that names a checkpoint."""

    original: Path
    key: str
    value: str
    """What it names: the path of the checkpoint."""
    path: Path
    text: str
    mode: int
    """Of the original: what only its owner may read stays so."""


class GivenConfig(NamedTuple):
    """A copy of a configuration, and how a restart hands it to its script."""

    copy: ConfigCopy
    words: tuple[str, ...]
    """The arguments of the script, and behind them the path of the copy once more."""


def config_of(job: Job, way: ResumeWay, checkpoint: Checkpoint) -> GivenConfig:
    """Return the copy of its configuration that a script is given.

    Raises:
        ToolError: None can be made.
        Unavailable: The storage did not answer.
    """
    copy = config_copy(job, way, checkpoint)
    arguments = with_config(job.spec, _folder(job), copy.original, copy.path) if job.spec and isinstance(copy, ConfigCopy) else None
    if isinstance(copy, str) or arguments is None:
        problem = copy if isinstance(copy, str) else f"its script is not given {way.config} as one argument"
        raise ToolError(f"job {job.id} goes on by {way.config_key} of {way.config}, and {problem}")
    return GivenConfig(copy, (*arguments, str(copy.path)))


def config_way(job: Job, way: ResumeWay, programs: Sequence[JobProgram], way_of: Callable[[JobProgram], ResumeWay]) -> ResumeWay:
    """Return that a script goes on by a copy of the configuration that it is given, where that is proven; else the way.

    Args:
        job: With its spec.
        way: How it resumes without.
        programs: What its script starts, from `programs_of`.
        way_of: Tells how one program resumes.

    Raises:
        Unavailable: The storage did not answer.
    """
    trainers = [program for program in programs if saves(program)]
    if job.spec is None or job.spec.doubt or way.destroys or way.repeats or len(trainers) != 1 or trainers[0].unread_behind:
        return way
    read = FileReader(job.account)
    for config in _given_configs(job.spec, _folder(job)):
        text = read(str(config)) if _mode(config, job.account) is not None else None
        for key, value in _keys(trainers[0], config, text) if text is not None else ():
            copy = _edited(text or "", config.suffix, key, value, PROBE)
            proof = _proof(job, trainers[0], config, key, copy, way_of) if copy is not None else None
            if proof is not None:
                by = f"{key} in a copy of {config.name}, which Nightshift gives its script as its argument: {proof.by}"
                return replace(
                    way,
                    means=ResumeMeans.ARGUMENT,
                    by=by,
                    path="",
                    takes_files=proof.takes_files,
                    takes_folders=proof.takes_folders,
                    home_made=proof.home_made,
                    config=str(config),
                    config_key=key,
                    hint="",
                    trial_variables=(),
                    trial_arguments=(),
                    commands=(),
                )
    return way


def config_copy(job: Job, way: ResumeWay, checkpoint: Checkpoint) -> ConfigCopy | str:
    """Return the copy of a configuration that names a checkpoint; else why none can be made.

    Raises:
        Unavailable: The storage did not answer.
    """
    config, value = Path(way.config), str(checkpoint.path)
    mode, text = _mode(config, job.account), FileReader(job.account)(way.config)
    if mode is None or text is None:
        return f"{config} is no file of the owner's own any more"
    if NOT_SAFE.search(value):
        return f"{value!r} has characters that a configuration or a shell would change"
    before = dict(config_values(config, text)).get(way.config_key, "")
    edited = _edited(text, config.suffix, way.config_key, before, value)
    if edited is None:
        return f"{way.config_key} of {config.name} cannot be set to {value} so that all else stays as it is"
    return ConfigCopy(config, way.config_key, value, copied_config(config, checkpoint.step), edited, mode)


def with_config(spec: JobSpec, folder: str, config: Path, copy: Path) -> tuple[str, ...] | None:
    """Return the arguments of a script with a copy in the place of its configuration; None where it is given it in another way."""
    places = [place for place, word in enumerate(spec.arguments) if absolute(word, folder) == config]
    if len(places) == 1:
        return tuple(str(copy) if place == places[0] else word for place, word in enumerate(spec.arguments))
    defaults = {absolute(match["default"], folder) for match in FIRST_ARGUMENT.finditer(_code(spec.script))}
    return (str(copy),) if not spec.arguments and defaults == {config} else None


def _code(script: str) -> str:
    return "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("#"))


def _folder(job: Job) -> str:
    return str(job.work_dir or (job.spec.work_dir if job.spec is not None else "") or "")


def _given_configs(spec: JobSpec, folder: str) -> Iterator[Path]:
    """Yield the configurations that a script is given as arguments, or takes where it is given none."""
    words = list(spec.arguments) or [match["default"] for match in FIRST_ARGUMENT.finditer(_code(spec.script))]
    for word in dict.fromkeys(words):
        path = absolute(word, folder)
        if path is not None and path.suffix in SUFFIXES and ".." not in path.parts and not NOT_SAFE.search(str(path)):
            yield path


def _mode(path: Path, account: str) -> int | None:
    """Return the mode of a regular file of the job's owner, in a folder that no link leads to; None of anything else."""
    owner = account_of(account)

    def look() -> int | None:
        about = path.lstat()
        uid = owner.uid if owner is not None else os.geteuid()
        own = stat.S_ISREG(about.st_mode) and about.st_uid == uid and path.parent.stat().st_uid == uid
        return stat.S_IMODE(about.st_mode) & 0o777 if own and path.resolve(strict=True) == path else None

    try:
        with reading_as(account):
            return within(LOOK_S, look, str(path))
    except (OSError, InputError, ValueError):
        return None


def _keys(program: JobProgram, config: Path, text: str) -> Iterator[tuple[str, str]]:
    """Yield the keys of a configuration by which a program may go on, and that name nothing yet or were set by a copy of ours."""
    ours = COPIED.search(config.stem) is not None
    texts = "\n".join(source.text for source in program.sources)
    candidates = [
        (key, value)
        for key, value in config_values(config, text)
        if is_named_so(key.rpartition(".")[2]) and (value.lower() in NO or (ours and value.startswith("/")))
    ]
    yield from [(key, value) for key, value in candidates if key.rpartition(".")[2] in normalised(texts)][:MOST_KEYS]


def _edited(text: str, suffix: str, key: str, old: str, value: str) -> str | None:
    """Return a configuration with one key set to a value and all else as it is; None where that cannot be done for sure."""
    is_ini = suffix in INI_SUFFIXES
    quoted, last = value if is_ini else json.dumps(value), key.rpartition(".")[2]
    path = Path(f"config{suffix}")
    before = config_values(path, text)
    intended = [(name, value if name == key else text_before) for name, text_before in before]
    if is_ini and "%" in value:
        return None  # what configparser reads as a reference
    if not intended or [name for name, _ in before].count(key) != 1 or dict(before)[key] != old:
        return None
    lines = [_line_of(suffix, spelled) for spelled in dict.fromkeys((last, last.replace("_", "-")))]
    for match in (match for line in lines for match in line.finditer(text)):
        space = "" if match["head"][-1:].isspace() or (suffix not in (".yaml", ".yml") and not is_ini) else " "
        apart = " " if text[match.end() : match.end() + 1] == "#" else ""
        edited = f"{text[: match.start()]}{match['head']}{space}{quoted}{apart}{text[match.end() :]}"
        if config_values(path, edited) == intended:
            return edited
    return None


def _line_of(suffix: str, key: str) -> re.Pattern[str]:
    """Return what a key with a plain value looks like in a kind of configuration."""
    if suffix == ".json":
        return re.compile(rf"(?P<head>\"{re.escape(key)}\"\s*:\s*){SCALAR}(?=\s*[,}}\n])", re.IGNORECASE)
    if suffix in INI_SUFFIXES:
        return re.compile(rf"(?m)(?P<head>^{re.escape(key)}[ \t]*[=:][ \t]*){SCALAR}(?=[ \t]*$)", re.IGNORECASE)
    if suffix == ".toml":
        return re.compile(rf"(?m)(?P<head>^[ \t]*\"?{re.escape(key)}\"?[ \t]*=[ \t]*){SCALAR}(?=[ \t]*(?:#.*)?$)", re.IGNORECASE)
    return re.compile(
        rf"(?m)(?P<head>^[ \t]*[\"']?{re.escape(key)}[\"']?[ \t]*:(?:[ \t]+|(?=[ \t]*$))){SCALAR}(?=[ \t]*(?:#.*)?$)", re.IGNORECASE
    )


def _proof(
    job: Job, program: JobProgram, config: Path, key: str, text: str, way_of: Callable[[JobProgram], ResumeWay]
) -> ResumeWay | None:
    """Return how a program goes on that is started with a copy of its configuration; None where nothing proves that it does."""
    if job.spec is None:
        return None
    copy = copied_config(config, 0)
    arguments = with_config(job.spec, _folder(job), config, copy)
    if arguments is None:
        return None
    read = FileReader(job.account, {str(copy): text})
    started = [item for item in programs_of(replace(job, spec=replace(job.spec, arguments=arguments)), read) if saves(item)]
    if len(started) != 1 or not _differs_in_config_alone(program, started[0], config, copy, _folder(job)):
        return None
    way = way_of(started[0])
    if way.destroys or way.repeats or harm(started[0], program, key, PROBE):
        return None
    name = key.rpartition(".")[2]
    proof = proof_of_load(started[0], name, _settings(started[0]), folders=True)
    if way.means is ResumeMeans.FIXED and way.path.strip("'\"") == PROBE and (proof is not None or not way.home_made):
        by, files = (proof.call, proof.files) if proof is not None else (way.by, False)
        return ResumeWay(ResumeMeans.ARGUMENT, by, takes_files=files, home_made=way.home_made)
    if way.means is ResumeMeans.UNKNOWN and proof is not None:
        return ResumeWay(ResumeMeans.ARGUMENT, proof.call, takes_files=proof.files, takes_folders=proof.folders, home_made=True)
    return None


def _settings(program: JobProgram) -> Mapping[str, str]:
    return dict(reversed([(option.last, option.value) for option in (*program.options, *program.settings)]))


def _differs_in_config_alone(program: JobProgram, started: JobProgram, config: Path, copy: Path, folder: str) -> bool:
    """Tell whether a program is started in the same way but for the word that names its configuration."""
    first, second = program.launch, started.launch
    if (first.folder, first.container, first.writes, first.stdin) != (second.folder, second.container, second.writes, second.stdin):
        return False
    pairs = list(zip(first.words, second.words, strict=False))
    differing = [(before, after) for before, after in pairs if before != after]
    is_copy = [str(PurePosixPath(after.rpartition("=")[2])) == str(copy) for _, after in differing]
    before = [absolute(word.rpartition("=")[2], first.folder or folder) == config for word, _ in differing]
    return len(first.words) == len(second.words) and bool(differing) and all(is_copy) and all(before)
