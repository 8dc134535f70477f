"""What a submission needs besides its script: the checkpoint that a word or a path names, and the copy of a configuration."""

from __future__ import annotations

import hashlib
from pathlib import Path

from assistant.errors import ToolError
from assistant.records import Checkpoint, Job
from assistant.recover.checkpoints.aside import write_tracker
from assistant.recover.checkpoints.inventory import examined, inventory
from assistant.recover.job_program import FileReader
from assistant.recover.resume_config import ConfigCopy
from assistant.rendering import command_line
from assistant.tooling import Context
from assistant.tools.checkpoints import choose_checkpoint, known_forms
from assistant.untrusted import reading_as

NEWEST = ("last", "last_healthy")


def copy_lines(copy: ConfigCopy | None) -> tuple[str, ...]:
    """Return the copy as one command, with the one key that is set and a digest of all of it; nothing where none is made."""
    if copy is None:
        return ()
    digest = hashlib.sha256(copy.text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return (
        command_line(["copy", str(copy.original), "to", str(copy.path), "with", f"{copy.key}={copy.value}", f"sha256:{digest}"]),
    )


def make_copy(context: Context, job: Job, copy: ConfigCopy) -> None:
    """Write the copy with the rights of the job's owner and the mode of the original; one that says the same is kept.

    Raises:
        ToolError: Something else lies there, or it is not the change that was allowed.
        Unavailable: The storage did not answer.
    """
    context.confirm(*copy_lines(copy))
    present = FileReader(job.account)(str(copy.path))
    if present == copy.text:
        return
    if present is not None:
        raise ToolError(
            f"{copy.path} is there and says something else: it is left as it is, and job {job.id} is not submitted again"
        )
    write_tracker(copy.path, copy.text, job.account, before="", mode=copy.mode)


def named_checkpoint(context: Context, job: Job, wanted: str, *, read: bool) -> Checkpoint | None:
    """Return the checkpoint that a word or a path names; its contents are read once more right before it is used.

    Raises:
        ToolError: There is none, or it must not be loaded.
        Unavailable: The storage did not answer.
    """
    if wanted == "none":
        return None
    if not wanted:
        raise ToolError(f"there is no checkpoint of job {job.id} to restart from; `none` would begin at the start")
    path = wanted
    if wanted in NEWEST:
        choice = choose_checkpoint(context, job.id, which=wanted)
        if choice["restart_from"] == "none":
            return None
        if not choice["path"]:
            raise ToolError(f"job {job.id} cannot be restarted from a checkpoint: {choice['note']}")
        path = choice["path"]
    now, forms = context.clock.now(), known_forms(context, job)
    with reading_as(job.account):
        found = inventory(Path(path).parent, now=now, forms=forms)
        listed = next((one for one in found.checkpoints if one.path == Path(path)), None)
        if listed is None:
            raise ToolError(f"checkpoint {path} is not there or is of no known format; list_checkpoints shows what is")
        judged = examined(found, listed, now=now) if read else listed
    if not judged.healthy:
        raise ToolError(f"checkpoint {path} must not be loaded: {'; '.join(judged.problems)}")
    return judged
