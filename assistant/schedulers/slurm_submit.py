"""Hand a job to sbatch as the user that it belongs to.

A job's environment is its user's text: PATH, LD_PRELOAD or BASH_ENV in it decide what a program does. So no process on the way,
neither runuser nor sbatch, gets any of it. sbatch reads it as data from a file descriptor (`--export-file`), after the change of
user, and Slurm gives it to the job alone.
"""

from __future__ import annotations

import os
import pwd
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from assistant import processes
from assistant.config import SlurmSettings
from assistant.errors import ToolError, Unavailable
from assistant.records import JobSpec
from assistant.rendering import environment_digest, script_digest
from assistant.schedulers.slurm_run import SlurmCommands, me, refused
from assistant.schedulers.slurm_spec import exported, sbatch_words, with_carried, without_lost_nodes, without_waiting

RIGHTS = "Slurm lets a user submit to partitions, accounts and QOS of that user only"
LOGIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]{0,255}\$?")
"""What useradd and directory services give; nothing that begins with a dash, so that no program takes it for an option."""
USUAL_PATH = "/usr/local/bin:/usr/bin:/bin"


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
            descriptors.append(files.enter_context(_as_descriptor(submission.environment)))
            words.append(f"--export-file={descriptors[0]}")
        text: str | None = submission.script
        if submission.arguments:
            # sbatch reads a script from standard input only when it has no arguments
            file = files.enter_context(tempfile.NamedTemporaryFile("w", prefix="nightshift-", suffix=".sbatch", encoding="utf-8"))
            file.write(submission.script)
            file.flush()
            words, text = [*words, file.name, *submission.arguments], None
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
    if before and (problem := arguments_problem(spec)):
        raise ToolError(f"job {spec.name!r} cannot be submitted again: {problem}: run as {spec.user}")
    words = sbatch_words(spec, settings.sbatch, by_name=environment is not None, names=settings.job_environment)
    script = with_carried(without_lost_nodes(without_waiting(spec.script), spec.exclude), spec.environment)
    return Submission(before, tuple(words), script, tuple(spec.arguments), environment)


def arguments_problem(spec: JobSpec) -> str:
    """Return that a script cannot be handed on with its arguments: sbatch reads one with arguments from a file, as its owner."""
    if not spec.arguments or spec.user in ("", me()):
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
def _as_descriptor(environment: Mapping[str, str]) -> Iterator[int]:
    """Yield a descriptor from which sbatch reads an environment: NAME=value, each ended by a zero byte, in memory only."""
    number = os.memfd_create("nightshift-environment", 0)
    try:
        with open(number, "wb", closefd=False) as file:
            file.writelines(f"{name}={text}\0".encode("utf-8", "surrogateescape") for name, text in environment.items())
        os.lseek(number, 0, os.SEEK_SET)
        yield number
    finally:
        os.close(number)
