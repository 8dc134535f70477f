"""Hand a job to sbatch as the user that it belongs to."""

from __future__ import annotations

import os
import pwd
import re
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack

from assistant.config import SlurmSettings
from assistant.errors import ToolError, Unavailable
from assistant.records import JobSpec
from assistant.schedulers.slurm_run import Commands, me, refused
from assistant.schedulers.slurm_spec import sbatch_words, with_carried

RIGHTS = "Slurm lets a user submit to partitions, accounts and QOS of that user only"


def submit(commands: Commands, settings: SlurmSettings, spec: JobSpec) -> str:
    """Submit a job and return its id.

    Args:
        commands: Slurm's.
        settings: Whose rights are used.
        spec: What to submit.

    Raises:
        ToolError: Slurm refused it, or we may not submit for that user.
        Unavailable: It is not known whether it was submitted.
    """
    before, by_name, environment = _as_user(settings, spec)
    words = sbatch_words(spec, settings.sbatch, by_name=by_name)
    script = with_carried(spec.script, spec.environment)
    # the work folder of another user may be closed to us
    folder = spec.work_dir if str(spec.work_dir) != "." and os.access(spec.work_dir / ".", os.X_OK) else None
    with ExitStack() as files:
        if not spec.arguments:
            done = commands.run("sbatch", *words, before=before, text=script, environment=environment, folder=folder)
        elif before:
            raise ToolError(f"the script of job {spec.name!r} takes arguments, which works only as its owner: run as {spec.user}")
        else:
            # sbatch reads a script from standard input only when it has no arguments
            file = files.enter_context(tempfile.NamedTemporaryFile("w", prefix="nightshift-", suffix=".sbatch", encoding="utf-8"))
            file.write(script)
            file.flush()
            done = commands.run("sbatch", *words, file.name, *spec.arguments, environment=environment, folder=folder)
    if done.status:
        raise refused(f"job {spec.name!r}", done, RIGHTS)
    found = re.search(r"^(\d+)(?:;\S+)?\s*$", done.out, re.MULTILINE)
    if found is None:
        raise Unavailable(f"sbatch printed no job id, so it is not known whether {spec.name!r} was submitted: {done.said}")
    task = next((word for word in spec.options if re.fullmatch(r"--array=\d+", word)), "").removeprefix("--array=")
    return f"{found.group(1)}_{task}" if task else found.group(1)


def _as_user(settings: SlurmSettings, spec: JobSpec) -> tuple[Sequence[str], bool, dict[str, str]]:
    """Return the words before sbatch, whether it will see our environment, and the environment of the job."""
    environment = dict(spec.environment)
    user = me()
    if spec.user in ("", user):
        return (), True, environment
    if settings.submit_as:
        return [word.replace("{user}", spec.user) for word in settings.submit_as], False, environment
    if os.geteuid() == 0:
        try:
            owner = pwd.getpwnam(spec.user)
        except KeyError:
            raise ToolError(f"job {spec.name!r} belongs to {spec.user}, a user that this machine does not know") from None
        home = {"HOME": owner.pw_dir, "USER": spec.user, "LOGNAME": spec.user, "SHELL": owner.pw_shell}
        return ("runuser", "-u", spec.user, "--"), True, {**home, **environment}
    raise ToolError(
        f"job {spec.name!r} belongs to {spec.user} and Nightshift runs as {user}: run it as {spec.user}, or set slurm.submit_as"
        " to words such as sudo -n -u {user} (docs/slurm.md)"
    )
