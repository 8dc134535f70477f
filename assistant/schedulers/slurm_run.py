"""Run Slurm's commands: words and no shell, one language, one form of time, a deadline, and an answer or `Unavailable`."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from assistant import processes
from assistant.errors import ToolError, Unavailable
from assistant.rendering import command_line

USUAL_FOLDERS = ("/usr/bin", "/usr/local/bin", "/opt/slurm/bin", "/usr/local/slurm/bin", "/opt/slurm/current/bin")
"""Where Slurm is looked for when PATH, as in cron, does not have it."""
NO_ANSWER = re.compile(
    r"Unable to contact|Socket timed out|Connection (?:refused|timed out|reset)|connect failure|Zero Bytes were transmitted|"
    r"Unable to establish|Communication (?:connection|error)|Resource temporarily unavailable|Munge|authentication error|"
    r"Insane message|Protocol authentication|Slurm backup controller in standby|Connection to slurmdbd|slurm_persist|"
    r"(?:DNS|name) (?:lookup|resolution)|Slurm temporarily unable|Database connection|Unspecified error|Transport endpoint",
    re.IGNORECASE,
)
NO_SUCH_JOB = re.compile(r"Invalid job id|job script retrieval failed: Invalid", re.IGNORECASE)
NO_RIGHT = re.compile(
    r"permission denied|Invalid user id|access denied|Authentication credential|not authorized|not allowed to|"
    r"a password is required|sudo: |must be (?:super user|root)|Operation not permitted",
    re.IGNORECASE,
)
WAY_OF_SPEAKING = {"LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}
GRACE_S = 2.0
"""Seconds after a kill for the pipes to close; a process in the kernel's hands may keep them longer."""

CONF_FILES = re.compile(r"^\s*(?:include\s+|(?:PluginDir|PlugStackConfig)\s*=\s*)(\S+)", re.IGNORECASE | re.MULTILINE)
"""What of a slurm.conf names further files and folders that programs of Slurm read or load. Source: slurm.conf(5)."""
MOST_CONF_FILES = 64
MOST_CONF_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class CompletedCommand:
    """What a command that ended left."""

    status: int
    out: str
    err: str

    @property
    def error_text(self) -> str:
        """Its own words on what went wrong, on one line."""
        return " ".join((self.err.strip() or self.out.strip() or f"exit status {self.status}").split())[:300]


class SlurmCommands:
    """Slurm's programs on this machine."""

    def __init__(self, *, folder: Path | None, conf: Path | None, timeout_s: float) -> None:
        """Find the programs in `folder`, in PATH or where they usually lie; `conf` is the slurm.conf to use."""
        self._folder, self._conf, self._timeout_s = folder, conf, timeout_s

    def path(self, program: str) -> str:
        """Return where a program of Slurm lies.

        Raises:
            Unavailable: Nowhere, or where others than root could change it while we are root.
        """
        folders = [str(self._folder)] if self._folder is not None else [*processes.search_folders(), *USUAL_FOLDERS]
        try:
            return processes.program_path(program, folders)
        except processes.UnsafeProgram as error:
            raise Unavailable(f"{error.filename}: {error.strerror}") from error
        except FileNotFoundError:
            place = str(self._folder) if self._folder is not None else "PATH"
            raise Unavailable(f"{program} is not in {place}; set slurm.folder to the folder of Slurm's commands") from None

    def words(self, program: str, *words: str, before: Sequence[str] = ()) -> list[str]:
        """Return a command as `run` starts it, its programs by absolute paths.

        Raises:
            Unavailable: A program is not there, or not safe to be run by root.
        """
        try:
            wrapper = [processes.program_path(before[0]), *before[1:]] if before else []
            for word in before[1:]:
                # sudo, env, nice and the like run a program that a further word names
                if word.startswith("/") and Path(word).is_file():
                    processes.program_path(word)
        except OSError as error:
            raise Unavailable(f"{before[0]} cannot be run: {error.strerror} ({error.filename})") from error
        return [*wrapper, self.path(program), *words]

    def line(self, program: str, *words: str, before: Sequence[str] = ()) -> str:
        """Return a command as `run` starts it, as text on one line."""
        return command_line(self.words(program, *words, before=before))

    def run(
        self,
        program: str,
        *words: str,
        before: Sequence[str] = (),
        text: str | None = None,
        descriptors: Sequence[int] = (),
        folder: Path | None = None,
    ) -> CompletedCommand:
        """Run a program to its end.

        Args:
            program: `squeue`, `scontrol` and so on.
            words: Its arguments.
            before: Words to put before it, such as `sudo -n`.
            text: What it reads; nothing when None.
            descriptors: Open files that it gets, under the same numbers.
            folder: Where it runs.

        Raises:
            Unavailable: It could not be started, did not end in time, or the other side did not answer.
        """
        command = self.words(program, *words, before=before)
        command_text = shlex.join([*before, program, *words])[:200]
        try:
            process = processes.start(
                command,
                environment=self._environment(),
                cwd=folder,
                pass_fds=tuple(descriptors),
                stdin=subprocess.PIPE if text is not None else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise Unavailable(f"{command_text} could not be started: {error.strerror} ({error.filename})") from error
        out, err = self._output_of(process, text, command_text)
        completed = CompletedCommand(process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))
        if NO_ANSWER.search(completed.err) and (completed.status or not completed.out.strip()):
            raise Unavailable(f"Slurm did not answer {command_text}: {completed.error_text}")
        return completed

    def _output_of(self, process: subprocess.Popen[bytes], text: str | None, command_text: str) -> tuple[bytes, bytes]:
        try:
            return process.communicate(text.encode() if text is not None else None, timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            _kill_group(process.pid)
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=GRACE_S)
            raise Unavailable(f"Slurm did not answer {command_text} within {self._timeout_s:g} s, so nothing is known") from None
        except BaseException:
            _kill_group(process.pid)
            raise
        finally:
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()

    def _environment(self) -> dict[str, str]:
        # SBATCH_*, SQUEUE_* and so on are options in disguise: what the caller's shell prefers is not what we ask for
        conf = {"SLURM_CONF": str(self._conf)} if self._conf is not None else {}
        conf_path = conf.get("SLURM_CONF") or os.environ.get("SLURM_CONF", "")
        # Slurm's programs load the plugins that this file names; Slurm's own daemons trust its own account with it, too
        if conf_path and os.geteuid() == 0 and (problem := _conf_problem(conf_path, _slurm_accounts())):
            raise Unavailable(
                f"{conf_path}: root does not use this slurm.conf, since {problem}; let root or slurm own it and nobody else write"
            )
        return processes.clean_environment({**WAY_OF_SPEAKING, **conf})


def _conf_problem(conf: str, trusted: frozenset[int]) -> str:
    """Return how others could change a slurm.conf, a file that it includes, or where its plugins lie; empty when they could not."""
    waiting, read = [conf], 0
    while waiting:
        place = waiting.pop()
        problem = processes.changeable(place, trusted)
        if problem:
            return problem
        read += 1
        if read > MOST_CONF_FILES:
            return f"{conf} names more than {MOST_CONF_FILES} files"
        try:
            text = Path(place).read_bytes()[:MOST_CONF_BYTES].decode("utf-8", "replace") if Path(place).is_file() else ""
        except OSError as error:
            return f"{place} cannot be read ({error.strerror})"
        for match in CONF_FILES.finditer(text):
            waiting += [str(Path(place).parent / name) for name in match[1].strip('"').split(":") if name]
    return ""


def _slurm_accounts() -> frozenset[int]:
    try:
        return frozenset({0, pwd.getpwnam("slurm").pw_uid})
    except KeyError:
        return frozenset({0})


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def me() -> str:
    """Return the user that Nightshift runs as: the name, or the number where this machine has no name for it."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def refused(request: str, completed: CompletedCommand, remedy: str = "") -> ToolError:
    """Return the error for something that Slurm would not do, with the right that is missing where that is why."""
    advice = remedy if NO_RIGHT.search(completed.error_text) and remedy else ""
    return ToolError(f"{request} was refused by Slurm: {completed.error_text}{f'; {advice}' if advice else ''}")
