"""The folders outside of its work folder that a job itself names to write below: a trial start has to have them writable, too.

A script may make a folder of its own on the node's disk (`mkdir -p /scratch/$USER.$SLURM_JOB_ID`), and its program spill into it.
The names come from the commands, variables and redirections of the script, from the sources of its programs and from what its
processes were seen to write; which of them stand on a node, and may be written by the job's owner, the sandbox finds out there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from assistant.errors import NightshiftError
from assistant.records import Job, JobSpec
from assistant.recover.job_program import FileReader, job_launches, programs_of

MOST_NAMED = 48
LONGEST_PATH = 1_000
_KNOWN_PART = re.compile(r"/[\w.@%+=,~/-]*")
"""The part of a path in front of what only a run knows, or a pattern."""
_QUOTED = re.compile(r"""['"](/[\w.@+=,~-]{1,255}(?:/[\w.@+=,~-]{1,255}){0,40}/?)(?=['"{%])""")
_OF_THE_MACHINE = re.compile(
    r"^/(?:usr|bin|sbin|lib|lib64|etc|proc|sys|dev|run|boot|var/(?:lib|run|log|spool|cache))(?:/|$)|^/(?:tmp|var/tmp)/?$"
)
"""Places of the machine, and those that a sandbox has anew in any case."""
_SEARCHED = re.compile(r"(?:^|_)(?:PATH|PATHS|DIRS?_LIST)$|PATH$|^(?:HOME|PWD|OLDPWD|SHELL|USER|LOGNAME|_)$")
"""Variables in which programs are looked for, and those of a shell."""


def named_folders(job: Job, spec: JobSpec) -> tuple[str, ...]:
    """Return absolute paths that a job names, as far as they are known, each once; empty where nothing can be read now.

    Args:
        job: The attempt that ended, with what its processes were seen to write.
        spec: What is to be started.
    """
    paths: list[str] = []
    if job.processes is not None:
        paths += [str(folder.path) for folder in job.processes.folders]
        paths += [str(PurePosixPath(file.path).parent) for file in job.processes.files]
    try:
        read = FileReader(job.account)
        for launch in job_launches(job, read):
            names = [
                *launch.words,
                *launch.writes,
                *(value for name, value in launch.variables.items() if not _SEARCHED.search(name)),
            ]
            paths += [path for name in names for path in _path_in(name)]
        sources = [source.text for program in programs_of(job, read) for source in program.sources]
    except (NightshiftError, OSError):
        sources = []
    paths += [value for name, value in spec.environment.items() if not _SEARCHED.search(name) and value.startswith("/")]
    paths += [match for text in sources for match in _QUOTED.findall(text)]
    return tuple(_outer(paths))[:MOST_NAMED]


def _path_in(word: str) -> Iterator[str]:
    """Yield the absolute path in a word of a command: the word, or the value of `--option=PATH` and `NAME=PATH`."""
    value = word[: LONGEST_PATH + 1] if word.startswith("/") else word[: LONGEST_PATH + 1].partition("=")[2]
    match = _KNOWN_PART.match(value)
    if match is None or len(value) > LONGEST_PATH:
        return
    path, cut = match[0], match.end() < len(value)
    if ":" in value[match.end() :][:1]:
        return  # a list of folders
    yield str(PurePosixPath(path).parent) if cut and not path.endswith("/") else path


def _outer(paths: Iterable[str]) -> Iterator[str]:
    """Yield each usable path once."""
    for path in dict.fromkeys(path.rstrip("/") for path in paths):
        if path and ".." not in PurePosixPath(path).parts and not _OF_THE_MACHINE.search(path):
            yield path
