"""Write the copy of a configuration that a restart gives its script, as the owner's file beside the original."""

from __future__ import annotations

import hashlib

from assistant.errors import ToolError
from assistant.records import Job
from assistant.recover.checkpoints.aside import write_tracker
from assistant.recover.job_program import FileReader
from assistant.recover.resume_config import ConfigCopy
from assistant.rendering import command_line
from assistant.tooling import Context


def copy_lines(copy: ConfigCopy | None) -> tuple[str, ...]:
    """Return the copy as one command, with the one key that is set and a digest of all of it; nothing where none is made."""
    if copy is None:
        return ()
    digest = hashlib.sha256(copy.text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return (command_line(["copy", str(copy.original), "to", str(copy.path), "with", f"{copy.key}={copy.value}", f"sha256:{digest}"]),)


def make_copy(context: Context, job: Job, copy: ConfigCopy) -> None:
    """Write the copy with the rights of the job's owner, with the mode of the original; one that lies there and says the same is kept.

    Raises:
        ToolError: Something else lies there, or it is not the change that was allowed.
        Unavailable: The storage did not answer.
    """
    context.confirm(*copy_lines(copy))
    present = FileReader(job.account)(str(copy.path))
    if present == copy.text:
        return
    if present is not None:
        raise ToolError(f"{copy.path} is there and says something else: it is left as it is, and job {job.id} is not submitted again")
    write_tracker(copy.path, copy.text, job.account, before="", mode=copy.mode)
