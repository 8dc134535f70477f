"""Run Slurm's commands, hand a job to sbatch as the user that it belongs to, and check what these rights allow.

A command is words and no shell, in one language, with one form of time and a deadline; it gives an answer or `Unavailable`.

A job's environment is its user's text: PATH, LD_PRELOAD or BASH_ENV in it decide what a program does. So no process on the way,
neither runuser nor sbatch, gets any of it. sbatch reads it as data from a file descriptor (`--export-file`), after the change of
user, and Slurm gives it to the job alone.

The check is for `nightshift doctor`: what works with this Slurm and these rights. It changes nothing.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import re
import shlex
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from assistant import processes
from assistant.config import SlurmSettings
from assistant.errors import ToolError, Unavailable
from assistant.records import JobSpec
from assistant.redact import head_of
from assistant.rendering import command_line, environment_digest, script_digest
from assistant.schedulers.slurm_spec import exported, sbatch_words, with_carried, without_lost_nodes, without_waiting

if TYPE_CHECKING:
    pass


DRAIN_RIGHTS = (
    "only Slurm's own user and administrators may change nodes: set slurm.admin to words such as sudo -n, or let one run"
    " `sacctmgr modify user NAME set AdminLevel=Administrator` (docs/slurm.md)"
)


JOB_RIGHTS = "only its owner and Slurm's operators may change a job: run Nightshift as its owner (docs/slurm.md)"


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
        return head_of(" ".join((self.err.strip() or self.out.strip() or f"exit status {self.status}").split()), 300)


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
        command_text = head_of(shlex.join([*before, program, *words]), 200)
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


RIGHTS = "Slurm lets a user submit to partitions, accounts and QOS of that user only"
LOGIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]{0,255}\$?")
"""What useradd and directory services give; nothing that begins with a dash, so that no program takes it for an option."""
USUAL_PATH = "/usr/local/bin:/usr/bin:/bin"


KEEP_DESCRIPTORS = ("runuser", "setpriv")
"""Programs that change the user and leave open files open. Source: their manual pages; sudo(8) closes all from `closefrom` on."""


class Submission(NamedTuple):
    """A job as it is handed to sbatch."""

    before: tuple[str, ...]
    """Words before sbatch that change the user."""
    words: tuple[str, ...]
    """Options of sbatch, all but `--export-file`."""
    script: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] | None
    """The job's environment, handed on as data; None where it is written out in `words`."""


def submit(commands: SlurmCommands, spec: JobSpec, submission: Submission) -> str:
    """Submit a job and return its id.

    Args:
        commands: Slurm's.
        spec: What to submit.
        submission: From `submission`.

    Raises:
        ToolError: Slurm refused it.
        Unavailable: It is not known whether it was submitted.
    """
    # the work folder of another user may be closed to us
    folder = spec.work_dir if str(spec.work_dir) != "." and os.access(spec.work_dir / ".", os.X_OK) else None
    with ExitStack() as files:
        words, descriptors = list(submission.words), []
        if submission.environment is not None:
            variables = (f"{name}={text}\0" for name, text in submission.environment.items())
            descriptors.append(files.enter_context(_as_descriptor("nightshift-environment", variables)))
            words.append(f"--export-file={descriptors[0]}")
        text: str | None = submission.script
        if submission.arguments:
            # sbatch reads a script from standard input only when it has no arguments; the owner may read no file of ours
            descriptors.append(files.enter_context(_as_descriptor("nightshift-script", [submission.script])))
            words, text = [*words, f"/proc/self/fd/{descriptors[-1]}", *submission.arguments], None
        completed = commands.run("sbatch", *words, before=submission.before, text=text, descriptors=descriptors, folder=folder)
    if completed.status:
        raise refused(f"job {spec.name!r}", completed, RIGHTS)
    match = re.search(r"^(\d+)(?:;\S+)?\s*$", completed.out, re.MULTILINE)
    if match is None:
        raise Unavailable(
            f"sbatch printed no job id, so it is not known whether {spec.name!r} was submitted: {completed.error_text}"
        )
    task = next((word for word in spec.options if re.fullmatch(r"--array=\d+", word)), "").removeprefix("--array=")
    return f"{match.group(1)}_{task}" if task else match.group(1)


def submission_line(commands: SlurmCommands, prepared: Submission) -> str:
    """Return the command that `submit` would run, with the script and the environment by their digests."""
    data = [f"--export-file={environment_digest(prepared.environment)}"] if prepared.environment is not None else []
    return commands.line(
        "sbatch", *prepared.words, *data, script_digest(prepared.script), *prepared.arguments, before=prepared.before
    )


def submission(settings: SlurmSettings, spec: JobSpec) -> Submission:
    """Return a job as it will be handed to sbatch.

    Raises:
        ToolError: We may not submit for that user, or something of it cannot be handed on.
    """
    if spec.doubt:
        raise ToolError(f"job {spec.name!r} cannot be submitted again as it was: {spec.doubt}")
    before, environment = _as_user(settings, spec)
    if before and (problem := arguments_problem(settings, spec)):
        raise ToolError(f"job {spec.name!r} cannot be submitted again: {problem}: run as {spec.user}")
    words = sbatch_words(spec, settings.sbatch, by_name=environment is not None, names=settings.job_environment)
    script = with_carried(without_lost_nodes(without_waiting(spec.script), spec.exclude), spec.environment)
    return Submission(before, tuple(words), script, tuple(spec.arguments), environment)


def arguments_problem(settings: SlurmSettings, spec: JobSpec) -> str:
    """Return that a script cannot be handed on with its arguments: sbatch reads it from a descriptor, and sudo closes them all."""
    wrapper = Path(settings.submit_as[0]).name if settings.submit_as else KEEP_DESCRIPTORS[0]
    if not spec.arguments or spec.user in ("", me()) or wrapper in KEEP_DESCRIPTORS:
        return ""
    return f"its script takes arguments, and is submitted anew with them only as {spec.user}"


def _as_user(settings: SlurmSettings, spec: JobSpec) -> tuple[tuple[str, ...], dict[str, str] | None]:
    """Return the words before sbatch, and the environment of the job where a descriptor reaches sbatch: sudo closes them all."""
    user = me()
    if spec.user in ("", user):
        # what one's own job is not known to have had, it gets of ours, as from one's own shell
        return (), exported(spec, processes.job_variables(processes.own_environment()), settings.job_environment)
    if not settings.submit_as and os.geteuid() != 0:
        raise ToolError(
            f"job {spec.name!r} belongs to {spec.user} and Nightshift runs as {user}: run it as {spec.user}, or set slurm.submit_as"
            " to words such as sudo -n -u {user} (docs/slurm.md)"
        )
    owner = _owner(settings, spec)
    if settings.submit_as:
        return tuple(word.replace("{user}", owner.pw_name) for word in settings.submit_as), None
    account = {"HOME": owner.pw_dir, "USER": owner.pw_name, "LOGNAME": owner.pw_name, "SHELL": owner.pw_shell}
    return ("runuser", "-u", owner.pw_name, "--"), exported(spec, {"PATH": USUAL_PATH, **account}, settings.job_environment)


def _owner(settings: SlurmSettings, spec: JobSpec) -> pwd.struct_passwd:
    """Return the account that a job belongs to.

    Raises:
        ToolError: It is no name of an account, unknown here, or one of the system's own accounts.
    """
    if not LOGIN_NAME.fullmatch(spec.user):
        raise ToolError(f"job {spec.name!r} belongs to {spec.user!r}, which is no name of an account: nothing is submitted for it")
    try:
        owner = pwd.getpwnam(spec.user)
    except KeyError:
        raise ToolError(f"job {spec.name!r} belongs to {spec.user}, a user that this machine does not know") from None
    if owner.pw_name != spec.user or owner.pw_uid < settings.lowest_uid:
        raise ToolError(
            f"job {spec.name!r} belongs to {owner.pw_name} (uid {owner.pw_uid}), and jobs of uids below {settings.lowest_uid} are"
            " not submitted by somebody else: run Nightshift as that user, or set slurm.lowest_uid"
        )
    return owner


@contextmanager
def _as_descriptor(name: str, texts: Iterable[str]) -> Iterator[int]:
    """Yield a descriptor from which sbatch reads texts, one behind the other; they lie in memory, and nobody can change them."""
    number = os.memfd_create(name, os.MFD_ALLOW_SEALING)
    try:
        with open(number, "wb", closefd=False) as file:
            file.writelines(text.encode("utf-8", "surrogateescape") for text in texts)
        os.fchmod(number, 0o444)
        fcntl.fcntl(number, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        os.lseek(number, 0, os.SEEK_SET)
        yield number
    finally:
        os.close(number)


OLDEST = (22, 5)
"""The oldest version that the tests hold outputs of."""
