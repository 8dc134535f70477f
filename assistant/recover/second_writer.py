"""Whether somebody else saves into the checkpoint folder of a run: by the times and the owners of what lies there.

Whatever is known of other jobs: where saves appear that cannot be those of the attempt, somebody writes there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from assistant.accounts import name_of, uid_of
from assistant.errors import ToolError
from assistant.records import Checkpoint, Job
from assistant.recover.checkpoints.inventory import inventory
from assistant.untrusted import is_folder, status_of

__all__ = ["save_after", "save_beside"]

TEAR_DOWN = timedelta(seconds=60)
"""For which processes of a job may still save after the scheduler called it ended: KillWait, background saves, clocks apart."""
AHEAD = timedelta(minutes=5)
"""A file from further ahead than that tells of a clock, not of a writer."""
DIGITS = re.compile(r"\d+")


def save_after(job: Job, folder: Path, *, ended: datetime, now: datetime) -> str:
    """Return which save in a folder is later than an attempt that has ended; empty where none is.

    A save of another account counts at once, one of its own after `TEAR_DOWN`. Runs that share a folder differ in their names.

    Args:
        job: The attempt.
        folder: Where it saves.
        ended: When it did.
        now: Files of a time far ahead are not believed.

    Raises:
        Unavailable: The storage did not answer.
    """
    saves = _saves(folder, now)
    own = _own_accounts(job, saves, ended)
    forms = {_form(one) for one in saves if one.saved_at <= ended + TEAR_DOWN}
    for one in reversed(saves):
        if not ended < one.saved_at < now + AHEAD or (forms and _form(one) not in forms):
            continue
        uid = _owner(one.path)
        foreign = bool(own) and uid is not None and uid not in own
        if foreign or one.saved_at > ended + TEAR_DOWN:
            who = f" by {name_of(uid)}" if foreign and uid is not None else ""
            when = f"{one.saved_at:%H:%M:%S} UTC"
            return f"{one.path} was saved{who} at {when}, after job {job.id} had ended ({ended:%H:%M:%S})"
    return ""


def save_beside(restart: Job, folder: Path, *, before: Job | None, now: datetime) -> str:
    """Return which save in a folder somebody else began since a restart did; empty where none is known.

    A file keeps its owner when another account writes over it, so that only new ones count: by the time of their own folder.

    Args:
        restart: The restarted job.
        folder: Where it saves.
        before: The attempt before it, which shows whose name its files bear.
        now: Files of a time far ahead are not believed.

    Raises:
        Unavailable: The storage did not answer.
    """
    begun = restart.started
    if begun is None:
        return ""
    saves = _saves(folder, now)
    own = _own_accounts(before, saves, before.ended or begun) if before is not None else set()
    own |= {uid for uid in (uid_of(restart.user),) if uid is not None}
    for one in reversed(saves):
        uid = _owner(one.path)
        if not own or uid is None or uid in own or not begun < _changed(one) < now + AHEAD:
            continue
        return f"{one.path} was saved by {name_of(uid)} at {_changed(one):%H:%M:%S} UTC, and job {restart.id} is of {restart.user}"
    return ""


def _saves(folder: Path, now: datetime) -> Sequence[Checkpoint]:
    try:
        return inventory(folder, now=now).checkpoints if is_folder(folder) else ()
    except ToolError:
        return ()


def _own_accounts(job: Job, saves: Sequence[Checkpoint], ended: datetime) -> set[int]:
    """Return the accounts in whose name the files of an attempt appear: its user's, and that of what it saved while it ran.

    A storage may show all files as those of one account.
    """
    uid = uid_of(job.user)
    begun = job.started
    during = [one for one in saves if begun is not None and begun <= one.saved_at <= ended]
    return {one for one in (uid, *(_owner(save.path) for save in during)) if one is not None}


def _form(save: Checkpoint) -> str:
    return DIGITS.sub("#", save.path.name)


def _owner(path: Path) -> int | None:
    try:
        return status_of(path).st_uid
    except OSError:
        return None


def _changed(save: Checkpoint) -> datetime:
    try:
        return datetime.fromtimestamp(status_of(save.path).st_mtime, UTC)
    except (OSError, ValueError, OverflowError):
        return save.saved_at
