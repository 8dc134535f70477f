"""Bring together what a plan needs: the lines of a log that count, and the arguments of the program that trains."""

from __future__ import annotations

import re
import shlex
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from assistant.errors import InputError
from assistant.logs.lines import Line
from assistant.memory_plan.arguments import (
    RunArguments,
    arguments_of_config,
    arguments_of_log,
    arguments_of_options,
    arguments_of_words,
    read_arguments,
)
from assistant.memory_plan.problems import GATE
from assistant.memory_plan.reader import RunArgument
from assistant.records import Job
from assistant.recover.batch_script import Launch, launches_of
from assistant.recover.job_program import JobProgram, job_launches, launched_program
from assistant.redact import head_of, redact

HEAD, TAIL, BETWEEN, AROUND = 8_000, 30_000, 20_000, 10
"""Lines of a log that are read: from its begin, of its end, and between them those that may tell of memory, with what follows."""
SETTINGS_LINES = 6_000
"""Lines from the begin of a log in which its arguments are looked for."""
MOST_PROGRAMS = 20
LONGEST_QUOTE = 80
"""Characters of a command line that a message shows."""
_FILE_NAME = re.compile(r"(?:\w{0,40}_)?config(?:_file|_path)?|deepspeed|hparams_file|yaml_cfg|fsdp")
"""Options that name a configuration."""
_GPUS = re.compile(r"--(?:gpus-per-node|gres)[= ](?:gpu:)?(?:[A-Za-z][\w.-]{0,30}:)?(\d{1,3})\b")
_ALL_GPUS = re.compile(r"(?:--gpus|-G)[= ](?:[A-Za-z][\w.-]{0,30}:)?(\d{1,6})\b")


def counted_lines(lines: Iterable[Line]) -> list[Line]:
    """Return of a log the lines that are read for a plan: all of a short one, both ends and what tells of memory of a long one."""
    head: list[Line] = []
    between: list[Line] = []
    tail: deque[Line] = deque(maxlen=TAIL)
    follows = 0
    for line in lines:
        if len(head) < HEAD:
            head.append(line)
            continue
        if len(tail) == TAIL:
            oldest = tail[0]
            follows = AROUND if GATE.search(oldest.text[:2000]) else follows - 1
            if follows > 0 and len(between) < BETWEEN:
                between.append(oldest)
        tail.append(line)
    return [*head, *between, *tail]


def run_of_command(
    command: str,
    read: Callable[[str], str | None],
    *,
    folder: str,
    files: Sequence[tuple[Path, str]] = (),
    lines: Sequence[Line] = (),
    gpus: int = 0,
    site: Path | None = None,
) -> RunArguments:
    """Return the arguments of a command line, a shell script's text, and of the files that it names.

    Args:
        command: As for a shell; of several commands the one that says most counts.
        read: Returns the text of a file by its absolute path.
        folder: In which the command runs.
        files: Configurations, which count behind the command line and before the files that it names.
        lines: Of the run's log, which may say more.
        gpus: Ranks, where they are known.
        site: Folder with a site's own knowledge.

    Raises:
        InputError: The line holds no command, a quote is not closed, or neither it nor `files` nor `lines` tell of a training.
    """
    if _open_quote(command):
        raise InputError(f"wanted a command line, found a quote that is not closed in {head_of(redact(command), LONGEST_QUOTE)!r}")
    launches = launches_of(command, environment={}, work_dir=folder, read=read)[:MOST_PROGRAMS]
    if not launches:
        raise InputError(f"wanted a command line, found none in {head_of(redact(command), LONGEST_QUOTE)!r}")
    programs = [(launch, launched_program(launch, read)) for launch in launches]
    run = _best(programs, read, files, lines, gpus, site)
    if any(launch.program for launch in launches) or any(argument.tells_of_training for argument in run.arguments):
        return run
    if lines:
        return replace(run, assumed=(*run.assumed, "the command line names no program that trains: the log alone counts"))
    raise InputError(
        f"wanted the command line of a training, found no Python program and no argument of one in "
        f"{head_of(redact(command), LONGEST_QUOTE)!r}; give it as it was started, or its configuration with --config"
    )


def _open_quote(command: str) -> bool:
    """Tell whether a single line ends inside of quotes; scripts, with their here-documents, are left to the shell."""
    if "\n" in command or "$'" in command:
        return False
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return True
    return False


def run_of_job(
    job: Job,
    read: Callable[[str], str | None],
    *,
    files: Sequence[tuple[Path, str]] = (),
    lines: Sequence[Line] = (),
    gpus: int = 0,
    site: Path | None = None,
) -> RunArguments:
    """Return the arguments of a job's training program; without a script those of `files` and its log alone.

    Args:
        job: With its spec.
        read: Returns the text of a file by its absolute path.
        files: Configurations, which count behind the command line and before the files that it names.
        lines: Of the run's log.
        gpus: Ranks, where somebody knows; 0: as the job asked for.
        site: Folder with a site's own knowledge.

    Raises:
        Unavailable: The storage did not answer.
    """
    launches = job_launches(job, read)[:MOST_PROGRAMS]
    programs = [(launch, launched_program(launch, read)) for launch in launches]
    return _best(programs, read, files, lines, gpus or job_gpus(job), site)


def job_gpus(job: Job) -> int:
    """Return how many GPUs a job has by what it asked for; 0 where nothing says it."""
    text = f"{job.submit_line} {job.spec.script[:20_000] if job.spec is not None else ''}"
    if match := _ALL_GPUS.search(text):
        return int(match[1])
    match = _GPUS.search(text)
    return int(match[1]) * max(1, len(job.nodes)) if match else 0


def run_of_configs(
    files: Sequence[tuple[Path, str]],
    read: Callable[[str], str | None],
    *,
    lines: Sequence[Line] = (),
    gpus: int = 0,
    site: Path | None = None,
) -> RunArguments:
    """Return the arguments of configurations, the first before the others; those of a log behind them."""
    return read_arguments([*_of_files(files), *_of_log(lines)], gpus=gpus, site=site, read=read)


def run_of_log(
    lines: Sequence[Line], read: Callable[[str], str | None] | None = None, *, gpus: int = 0, site: Path | None = None
) -> RunArguments:
    """Return the arguments that a log prints."""
    return read_arguments(_of_log(lines), gpus=gpus, site=site, read=read)


def _of_files(files: Sequence[tuple[Path, str]]) -> list[RunArgument]:
    return [argument for path, text in files for argument in arguments_of_config(path, text)]


def _of_log(lines: Sequence[Line]) -> list[RunArgument]:
    return arguments_of_log((line.number, line.text) for line in lines[:SETTINGS_LINES])


def _best(
    programs: Sequence[tuple[Launch, JobProgram]],
    read: Callable[[str], str | None],
    files: Sequence[tuple[Path, str]],
    lines: Sequence[Line],
    gpus: int,
    site: Path | None,
) -> RunArguments:
    log, configured = _of_log(lines), _of_files(files)
    runs = []
    for launch, program in programs:
        launcher = launch.words[: max(0, len(launch.words) - len(launch.arguments))]
        typed = arguments_of_options(option for option in program.options if not option.file)
        from_files = arguments_of_options(option for option in program.options if option.file)
        launched = arguments_of_words(launcher)
        of_launcher, unread = _named_files(launch, launched, typed, read)
        arguments = [*typed, *launched, *configured, *from_files, *of_launcher, *log]
        run = read_arguments(arguments, gpus=gpus, site=site, read=read)
        runs.append(replace(run, remarks=(*unread, *run.remarks)))
    if not runs:
        return read_arguments([*configured, *log], gpus=gpus, site=site, read=read)
    return max(runs, key=lambda run: (run.setup is not None, -len(run.missing), len(run.arguments)))


def _named_files(
    launch: Launch, launched: Sequence[RunArgument], typed: Sequence[RunArgument], read: Callable[[str], str | None]
) -> tuple[list[RunArgument], list[str]]:
    """Return what the configurations say that a launcher names (`accelerate launch --config_file`), and which files are unread."""
    arguments: list[RunArgument] = []
    unread: list[str] = []
    programs = [argument for argument in typed if _names_file(argument)]
    pending = [argument for argument in launched if _names_file(argument)]
    looked_at: set[str] = set()
    while (pending or programs) and len(looked_at) < MOST_PROGRAMS:
        of_launcher = bool(pending)
        argument = (pending or programs).pop(0)
        path = launch.outside(argument.value)
        if str(path) in looked_at:
            continue
        looked_at.add(str(path))
        text = read(str(path)) if path is not None else None
        values = arguments_of_config(path, text) if path is not None and text else []
        if not values:
            unread.append(f"{argument.value} ({argument.origin}) cannot be read or holds no settings: what it says does not count")
        elif of_launcher:
            arguments += values
            pending += [value for value in values if _names_file(value)]
    return arguments, unread


def _names_file(argument: RunArgument) -> bool:
    last = argument.name.rpartition(".")[2]
    return _FILE_NAME.fullmatch(last) is not None and argument.value.endswith((".json", ".yaml", ".yml", ".toml"))
