"""Start processes: the only module that does, so that program and environment of each are chosen in one place.

A program is named by an absolute path before it starts. As root only files count that nobody but root can change: neither the PATH
of the caller nor that of a job decides what runs with uid 0. The environment is never inherited silently; a caller names one of

    clean_environment()   a fixed small set: Slurm's commands, sudo and runuser, ssh's ProxyCommand, probes, programs of the site
    own_environment()     this process's own, without what makes programs load foreign code: further processes of Nightshift

What a user's job brought along is in neither: it goes as data to a process that runs as that user (`schedulers.slurm_submit`).
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from assistant.way import steps_to

__all__ = [
    "UnsafeProgram",
    "clean_environment",
    "job_variables",
    "own_environment",
    "program_path",
    "replace_itself",
    "run",
    "spawn",
    "start",
]

SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
PASSED_ON = (
    "TZ", "TMPDIR", "SLURM_CONF", "SSH_AUTH_SOCK", "KRB5CCNAME", "XDG_RUNTIME_DIR", "TERM", "LANG",
    "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
)  # fmt: skip
"""Variables of this process that a clean environment keeps: none of them makes a program load or run something."""
LOADS_CODE = re.compile(
    r"LD_.*|DYLD_.*|GLIBC_TUNABLES|GCONV_PATH|LOCPATH|NLSPATH|RES_OPTIONS|HOSTALIASES|MALLOC_.*|"
    r"BASH_ENV|ENV|BASH_FUNC_.*|BASHOPTS|SHELLOPTS|PS4|PROMPT_COMMAND|IFS|CDPATH|GLOBIGNORE|"
    r"PYTHON(?:STARTUP|INSPECT|HOME|EXECUTABLE|BREAKPOINT|WARNINGS|USERBASE)|"
    r"PERL5?(?:OPT|DB|LIB)|RUBY(?:OPT|LIB)|NODE_OPTIONS|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS"
)
"""Variables by which a program loads or runs what somebody else chose. LD_LIBRARY_PATH is one, too; see `job_variables`."""
OPTIONS_IN_DISGUISE = re.compile(
    r"(?:SLURM|SLURMD|SBATCH|SALLOC|SRUN|SQUEUE|SACCT|SACCTMGR|SCONTROL|SINFO|SCANCEL|SPANK|PMI|PMIX|PMI2)_.*"
)
RESOURCE_LIMIT = re.compile(r"SLURM_RLIMIT_[A-Z]{1,16}=U?[0-9]{1,20}")
"""How sbatch remembers the user's soft limits (`ulimit`): the one kind of Slurm's variables that is the job's own and no option."""
SCRIPT_LINE_BYTES = 256
"""Of a script's first line the kernel reads so much. Source: BINPRM_BUF_SIZE in linux/binfmts.h."""
MOST_INTERPRETERS = 5
"""Scripts whose interpreter is a script. Source: exec_binprm() in fs/exec.c refuses more."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LONGEST_VARIABLE = 128 * 1024 - 1
"""Bytes of name and value: what the kernel takes for one string (MAX_ARG_STRLEN)."""


class UnsafeProgram(OSError):
    """A program that root was to run can be changed by somebody else."""


def program_path(program: str, folders: Sequence[str] | None = None) -> str:
    """Return the absolute path of a program.

    Args:
        program: A name to look for, or a path.
        folders: Where to look; without them the caller's PATH and then the system's folders. As root only those folders of PATH
            count that only root can change.

    Raises:
        FileNotFoundError: It lies in none of them.
        UnsafeProgram: This process is root, and the file or a folder above it can be changed by another user.
    """
    if os.sep in program:
        path: str | None = str(Path(program).absolute())
    else:
        path = shutil.which(program, path=os.pathsep.join(search_folders() if folders is None else folders))
    if path is None:
        raise FileNotFoundError(2, "No such file or directory", program)
    if os.geteuid() == 0 and path != sys.executable and (problem := changeable(path)):
        raise UnsafeProgram(1, f"root does not run it, since {problem}; let root own it, and nobody else write there", path)
    return path


def search_folders() -> list[str]:
    """Return where programs are looked for: PATH, as root only what nobody else can change of it, then the system's folders."""
    folders = [folder for folder in os.get_exec_path() if Path(folder).is_absolute()]
    if os.geteuid() == 0:
        folders = [folder for folder in folders if not changeable(folder)]
    return list(dict.fromkeys([*folders, *SYSTEM_FOLDERS]))


def changeable(path: str, trusted: Collection[int] = (0,)) -> str:
    """Return how somebody other than the trusted uids, by default root, could change what lies at a path; empty: nobody can.

    Each folder and link on the way is looked at, and, where the file is a script, the program that its first line names. A folder
    with the sticky bit, as /tmp, counts as safe: what root owns in there cannot be replaced. What is missing cannot be run.
    """
    pending, looked_at = [path], 0
    while pending:
        place = pending.pop()
        problem = _changeable_way(place, trusted)
        if problem:
            return problem
        looked_at += 1
        if looked_at > MOST_INTERPRETERS:
            return f"{path} is a script of a script of a script"
        pending += _interpreters(place)
    return ""


def _changeable_way(path: str, trusted: Collection[int]) -> str:
    try:
        for place, look in steps_to(path):
            if look.st_uid not in trusted:
                return f"{place} belongs to uid {look.st_uid}"
            open_to_others = look.st_mode & stat.S_IWOTH or (look.st_mode & stat.S_IWGRP and look.st_gid != 0)
            sticky = stat.S_ISDIR(look.st_mode) and look.st_mode & stat.S_ISVTX
            if open_to_others and not stat.S_ISLNK(look.st_mode) and not sticky:
                return f"{place} may be written by others"
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"{error.filename or path} cannot be looked at ({error.strerror})"
    return ""


def _interpreters(path: str) -> list[str]:
    """Return the programs that the first line of a script names by path, as `/usr/bin/env -S /opt/site/python` does; else none."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        begin = os.read(handle, SCRIPT_LINE_BYTES) if stat.S_ISREG(os.fstat(handle).st_mode) else b""
    except OSError:
        return []
    finally:
        os.close(handle)
    words = begin.split(b"\n", 1)[0][2:].split() if begin.startswith(b"#!") else []
    return [os.fsdecode(word) for word in words if word.startswith(b"/")]


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a small fixed environment: who we are, PATH, English words, and the few variables of `PASSED_ON`."""
    passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    try:
        account = pwd.getpwuid(os.geteuid())
        identity = {
            "HOME": account.pw_dir,
            "USER": account.pw_name,
            "LOGNAME": account.pw_name,
            "SHELL": account.pw_shell or "/bin/sh",
        }
    except KeyError:
        identity = {"HOME": "/"}
    if os.geteuid() != 0 and "HOME" in os.environ:
        identity["HOME"] = os.environ["HOME"]
    return {**passed_on, **identity, "PATH": os.pathsep.join(search_folders()), "LC_ALL": "C", **(extra or {})}


def own_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's own environment without what makes programs load foreign code; LD_LIBRARY_PATH stays for CUDA."""
    own = {name: text for name, text in os.environ.items() if name == "LD_LIBRARY_PATH" or not LOADS_CODE.fullmatch(name)}
    return {**own, **(extra or {})}


def job_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what of a job's environment is handed on to the job, as data; no process before the job itself gets it.

    Kept are plain names with values that fit into an environment. PATH, LD_LIBRARY_PATH and PYTHONPATH are kept, since a job does
    not find its programs without them; what makes shells and programs run foreign code, and Slurm's options in disguise, are not.
    """
    needed = ("LD_LIBRARY_PATH",)
    return {
        name: text
        for name, text in environment.items()
        if NAME.fullmatch(name)
        and "\0" not in text
        and len(f"{name}={text}".encode("utf-8", "surrogateescape")) <= LONGEST_VARIABLE
        and (name in needed or not LOADS_CODE.fullmatch(name))
        and (not OPTIONS_IN_DISGUISE.fullmatch(name) or RESOURCE_LIMIT.fullmatch(f"{name}={text}"))
    }


def start(words: Sequence[str], *, environment: Mapping[str, str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a program and return its process.

    Args:
        words: Program and arguments; never text for a shell.
        environment: All variables that it gets.
        options: As `subprocess.Popen` takes them.

    Raises:
        OSError: It is not there, may not be run, or is not safe to be run by root (`UnsafeProgram`).
    """
    return subprocess.Popen([program_path(words[0]), *words[1:]], env=dict(environment), **options)


def run(words: Sequence[str], *, environment: Mapping[str, str], **options: Any) -> subprocess.CompletedProcess[Any]:
    """Run a program to its end and return what it left; options as `subprocess.run` takes them, errors also as of `start`."""
    check = options.pop("check", False)
    return subprocess.run([program_path(words[0]), *words[1:]], env=dict(environment), check=check, **options)


def replace_itself(words: Sequence[str]) -> NoReturn:
    """Execute a program in the place of this process, with its own environment.

    Raises:
        OSError: As `start`.
    """
    os.execve(program_path(words[0]), list(words), own_environment())


def spawn(words: Sequence[str], *, environment: Mapping[str, str], **options: Any) -> int:
    """Start a program that nobody here waits for and return its process id; the options are those of `os.posix_spawn`."""
    path = program_path(words[0])
    return os.posix_spawn(path, [path, *words[1:]], dict(environment), **options)
