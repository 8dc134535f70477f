"""Tell which program, module or library a job did not find by its name, and in which folders its shell would have looked for it.

The folders are read from the script as a shell would follow it (`PATH`, `PYTHONPATH`, `LD_LIBRARY_PATH`, sourced files,
environments, modulefiles); nothing is run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.records import Job
from assistant.recover.batch_script import Launch
from assistant.recover.job_program import FileReader, job_environment, job_launches
from assistant.recover.modulefiles import VariableFolder, modulefile_folders, modulefile_settings
from assistant.recover.shell.folders import RUNTIMES, UNRESOLVED
from assistant.watch.outages import MOST_CHARACTERS

__all__ = ["Lookup", "LookupKind", "MissingName", "lookup_of", "missing_name"]

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
