"""Bring together what a plan needs: the lines of a log that count, and the arguments of the program that trains."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from assistant.errors import InputError
from assistant.logs.lines import Line
from assistant.memory_plan.arguments import (
    RunArgument,
    RunArguments,
    arguments_of_config,
    arguments_of_log,
    arguments_of_options,
    arguments_of_words,
    read_arguments,
)
from assistant.memory_plan.problems import GATE
from assistant.records import Job
from assistant.recover.batch_script import Launch, launches_of
from assistant.recover.job_program import JobProgram, job_launches, launched_program

HEAD, TAIL, BETWEEN, AROUND = 8_000, 30_000, 20_000, 10
"""Lines of a log that are read: from its begin, of its end, and between them those that may tell of memory, with what follows."""
SETTINGS_LINES = 6_000
"""Lines from the begin of a log in which its arguments are looked for."""
MOST_PROGRAMS = 20
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
    lines: Sequence[Line] = (),
    gpus: int = 0,
    site: Path | None = None,
) -> RunArguments:
    """Return the arguments of a command line, a shell script's text, and of the files that it names.

    Args:
        command: As for a shell; of several commands the one that says most counts.
        read: Returns the text of a file by its absolute path.
        folder: In which the command runs.
        lines: Of the run's log, which may say more.
        gpus: Ranks, where they are known.
        site: Folder with a site's own knowledge.

    Raises:
        InputError: The line holds no command.
    """
    launches = launches_of(command, environment={}, work_dir=folder, read=read)[:MOST_PROGRAMS]
    if not launches:
        raise InputError(f"wanted a command line, found none in {command[:80]!r}")
    programs = [(launch, launched_program(launch, read)) for launch in launches]
    return _best(programs, read, lines, gpus, site)


def run_of_job(
    job: Job, read: Callable[[str], str | None], *, lines: Sequence[Line] = (), site: Path | None = None
) -> RunArguments:
    """Return the arguments of a job's training program; without a script those of its log alone.

    Raises:
        Unavailable: The storage did not answer.
    """
    launches = job_launches(job, read)[:MOST_PROGRAMS]
    programs = [(launch, launched_program(launch, read)) for launch in launches]
    return _best(programs, read, lines, job_gpus(job), site)


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
    arguments = [argument for path, text in files for argument in arguments_of_config(path, text)]
    return read_arguments([*arguments, *_of_log(lines)], gpus=gpus, site=site, read=read)


def run_of_log(
    lines: Sequence[Line], read: Callable[[str], str | None] | None = None, *, gpus: int = 0, site: Path | None = None
) -> RunArguments:
    """Return the arguments that a log prints."""
    return read_arguments(_of_log(lines), gpus=gpus, site=site, read=read)


def _of_log(lines: Sequence[Line]) -> list[RunArgument]:
    return arguments_of_log((line.number, line.text) for line in lines[:SETTINGS_LINES])


def _best(
    programs: Sequence[tuple[Launch, JobProgram]],
    read: Callable[[str], str | None],
    lines: Sequence[Line],
    gpus: int,
    site: Path | None,
) -> RunArguments:
    log = _of_log(lines)
    runs = []
    for launch, program in programs:
        launcher = launch.words[: max(0, len(launch.words) - len(launch.arguments))]
        arguments = [*arguments_of_options(program.options), *arguments_of_words(launcher)]
        runs.append(read_arguments([*arguments, *log], gpus=gpus, site=site, read=read))
    if not runs:
        return read_arguments(log, gpus=gpus, site=site, read=read)
    return max(runs, key=lambda run: (run.setup is not None, -len(run.missing), len(run.arguments)))
