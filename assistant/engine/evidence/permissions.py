"""Folders above a path that keep the owner of a job out, as the rights that a node shows of them prove it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from assistant.accounts import account_of
from assistant.diagnose.answer import DEEDS
from assistant.records import Action, Diagnosis, Job

REFUSED = re.compile(r"Permission denied|Errno 13\b|EACCES|os error 13\b|not permitted to access", re.IGNORECASE)
ENTER = 0o1
OF_OTHERS = 0o011


def with_closed_path(diagnosis: Diagnosis, state: Mapping[str, Any], job: Job, error: str) -> Diagnosis:
    """Return a diagnosis that names the closed folder above a refused path, in place of advice on the path itself.

    As it is where no folder is proven to be closed.

    Args:
        diagnosis: Of a path that was refused.
        state: A row of `storage_state` about it.
        job: Whose owner was refused.
        error: The lines that prove the failure.
    """
    sentence = closed_folder(state, job) if REFUSED.search(error) else ""
    if not sentence:
        return diagnosis
    advice = f"{DEEDS[Action.FIX_AND_RESUBMIT]} {sentence}"
    return replace(diagnosis, action=Action.FIX_AND_RESUBMIT, summary=f"{diagnosis.summary} {sentence}", advice=advice)


def closed_folder(state: Mapping[str, Any], job: Job) -> str:
    """Return which folder above a path a job's owner may not enter, and who can open it; empty where none is proven to be closed.

    Args:
        state: A row of `storage_state`.
        job: With its user and, where it is known on this machine, its account.
    """
    owners = [str(owner).rsplit(":", 2) for owner in state.get("owners") or ()]
    if not owners or not job.user or job.user == "root" or any(len(words) != 3 for words in owners):
        return ""
    account = account_of(job.account)
    groups = {str(group) for group in (account.gid, *account.groups)} if account is not None else None
    stands = PurePosixPath(str(state.get("stands") or "/"))
    folders = [stands, *stands.parents]
    above = 0 if stands != PurePosixPath(str(state.get("real") or stands)) else 1
    # from / downwards: what lies below the first closed folder cannot be seen by its owner either
    for folder, (owner, group, mode_words) in reversed(list(zip(folders, owners, strict=False))[above:]):
        mode = int(mode_words, 8)
        if groups is None:
            is_open = owner == job.user or bool(mode & OF_OTHERS)
        else:
            shift = 6 if owner == job.user else 3 if group in groups else 0
            is_open = bool(mode >> shift & ENTER)
        if is_open:
            continue
        key = "u+x" if owner == job.user else "g+x" if groups is not None and group in groups else "o+x"
        return (
            f"{job.user} may not enter the folder {folder} (owner {owner}, mode {mode:04o}) of {state['node']}, whatever the "
            f"rights of what lies below it: {owner} has to open it (chmod {key} {folder}), or what the job needs is put elsewhere."
        )
    return ""
