"""Which nodes of a job hold what it saved on their own disks, where that cannot be seen from here. Names are read, no contents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from assistant.errors import NightshiftError
from assistant.ports import Reply
from assistant.records import Job
from assistant.recover.checkpoints.layout import step_in_name
from assistant.recover.checkpoints.place import checkpoint_place
from assistant.recover.checkpoints.save_options import save_folders
from assistant.recover.job_program import JobProgram
from assistant.recover.joblog import log_lines
from assistant.recover.shell_words import UNRESOLVED
from assistant.tooling import Context

MOST_NODES = 16
MOST_FOLDERS = 4
MOST_NAMED = 4
LISTED = "nightshift-saves"
_PROGRAM = (
    'user=$1; shift; id -u -- "$user" >/dev/null 2>&1 || exit 1; for p; do printf "nightshift-saves %s\\n" "$p"; '
    'timeout -k 1 5 find "$p" -mindepth 1 -maxdepth 1 -user "$user" -newerct "@$since" -printf "entry %f\\n" 2>/dev/null '
    "| head -n 500; done"
)
ACCOUNT = re.compile(r"[a-z_][\w.@-]{0,63}\$?", re.IGNORECASE)


class NodeSaves(NamedTuple):
    """What a node's own disk holds of a job."""

    node: str
    folder: str
    names: tuple[str, ...]
    """Of what looks like a checkpoint and changed since the job began, by step, the newest last."""


def node_saves(context: Context, job: Job, programs: Sequence[JobProgram]) -> list[NodeSaves]:
    """Return what nodes of a job hold of its checkpoints, in folders that are not there on this machine.

    None where that is not known. Sixteen nodes are asked for the names in four folders, those of the job's user alone.

    Args:
        context: Of the call.
        job: The attempt.
        programs: What its script starts.
    """
    folders = _unseen_folders(job, programs)
    if not folders or not job.nodes or job.started is None or not ACCOUNT.fullmatch(job.account):
        return []
    command = ("sh", "-c", f"since={int(job.started.timestamp())}; {_PROGRAM}", "sh", job.account, *map(str, folders))
    try:
        replies = context.transport.run(list(job.nodes[:MOST_NODES]), command, timeout_s=min(30.0, context.command_timeout_s))
    except NightshiftError:
        return []
    return [saves for node, reply in replies.items() for saves in _read(node, reply, folders)]


def saves_in_words(saves: Sequence[NodeSaves], job: Job) -> str:
    """Return where the checkpoints of a job lie that only its nodes see, and what follows, for people; empty for none."""
    if not saves:
        return ""
    first = saves[0]
    places = "; ".join(
        f"{held_by.folder} on {held_by.node} holds {', '.join(reversed(held_by.names[-MOST_NAMED:]))}"
        for held_by in saves[:MOST_NAMED]
    )
    nodes = list(dict.fromkeys(saved.node for saved in saves))
    how = f"`--nodelist={first.node}`" if len(nodes) == 1 and len(job.nodes) == 1 else "the same nodes"
    return (
        f"{places}; that cannot be seen from here and was not judged. Elsewhere its script may begin at 0: "
        f"it goes on there only with {how}, or from a copy on a file system that all nodes have"
    )


def _unseen_folders(job: Job, programs: Sequence[JobProgram]) -> list[Path]:
    """Return the folders into which a job saves by script or log, those that are not there on this machine."""
    place = checkpoint_place(job, {}, [line.text for line in log_lines(job)])
    folders = [*([place.folder] if place is not None else []), *(place.folder for place in save_folders(programs))]
    plain = [path for path in dict.fromkeys(folders) if path.is_absolute() and not re.search(rf"[\n{UNRESOLVED}]", str(path))]
    return [path for path in plain if _is_missing(path)][:MOST_FOLDERS]


def _is_missing(path: Path) -> bool:
    """Tell whether a path is known not to be there; one that may not be looked at is not known."""
    try:
        path.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _read(node: str, reply: Reply, folders: Sequence[Path]) -> list[NodeSaves]:
    if not reply.reached or reply.status:
        return []
    names_by_folder: dict[str, list[tuple[int, str]]] = {}
    folder = ""
    for line in reply.out.splitlines():
        kind, _, text = line.partition(" ")
        if kind == LISTED:
            folder = text if Path(text) in folders else ""
        elif kind == "entry" and folder and (step := step_in_name(text)) is not None:
            names_by_folder.setdefault(folder, []).append((step, text))
    return [NodeSaves(node, path, tuple(name for _, name in sorted(names))) for path, names in names_by_folder.items()]
