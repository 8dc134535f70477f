"""Checks of `nightshift doctor` that reach into the cluster: nodes over SSH, and the log and checkpoints of a job that runs now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from assistant.doors.cli.door import Door
from assistant.errors import NightshiftError

if TYPE_CHECKING:
    from assistant.records import Job, Node

__all__ = ["EXAMPLE_POLICY", "NODES_TRIED", "running_job", "ssh_to_nodes"]

NODES_TRIED = 3
SSH_S = 15.0
JOBS_TRIED = 3
READ_BYTES = 64 << 10
EXAMPLE_POLICY = """extends = "shipped"
mode = "propose"               # asks before each change: nightshift approve N
[kind.resubmit]
mode = "act"                   # restarts go by themselves, within the limits below
hard = { per_hour = 4 }
[[protected]]
partitions = ["prod*"]         # everything but the canary partition
why = "first only in the canary partition"
kinds = ["cordon", "resubmit", "cancel", "requeue"]
[end]
"""
"""A first policy of a site, as docs/from_observe_to_act.md builds it up."""


def ssh_to_nodes(door: Door) -> Iterator[tuple[bool, str, str]]:
    """Yield for a few nodes that are up whether a command ran there: (works, text, what to do)."""
    from assistant.records import NodeState
    from assistant.wiring import transport_of

    if door.settings.transport != "ssh":
        return
    up = [node for node in door.engine().scheduler.nodes() if node.state not in (NodeState.DOWN, NodeState.UNKNOWN)]
    if not up:
        yield False, "no node is up to be asked", "look at the scheduler's states: nightshift nodes"
        return
    names = [node.name for node in _spread(up)]
    replies = transport_of(door.settings).run(names, ("true",), timeout_s=SSH_S)
    for name in names:
        reply = replies.get(name)
        if reply is not None and reply.reached and reply.status == 0:
            yield True, f"{name} answers", ""
        else:
            why = (reply.err.strip().splitlines() or [f"status {reply.status}"])[-1] if reply is not None else "no reply"
            yield False, f"{name} does not answer: {why}", f"ssh {name} true, as this account; docs/ssh.md"


def _spread(nodes: list[Node]) -> list[Node]:
    """Return the first, the middle and the last of some nodes: racks and images differ."""
    places = sorted({0, len(nodes) // 2, len(nodes) - 1})
    return [nodes[place] for place in places][:NODES_TRIED]


def running_job(door: Door) -> Iterator[tuple[bool, str, str]]:
    """Yield for one running job whether its log and its checkpoint folder can be read as this account."""
    from assistant.records import JobState

    jobs = [job for job in door.engine().scheduler.jobs() if job.state is JobState.RUNNING]
    if not jobs:
        yield True, "no job runs now: its log and checkpoints could not be tried", ""
        return
    with_log = [job for job in jobs if job.log is not None]
    for job in (with_log or jobs)[-JOBS_TRIED:]:
        said = [*_log_of(job), *_checkpoints_of(door, job)]
        if all(works for works, _, _ in said):
            yield from said
            return
    yield from said


def _log_of(job: Job) -> Iterator[tuple[bool, str, str]]:
    from functools import partial

    from assistant.untrusted import LOOK_S, read_end, reading_as, why_unreadable, within

    if job.log is None:
        yield False, f"job {job.id}: the scheduler names no log of it", f"nightshift job check {job.id}"
        return
    try:
        with reading_as(job.account):
            raw = within(LOOK_S, partial(read_end, job.log, READ_BYTES), str(job.log)).raw
    except (OSError, NightshiftError) as error:
        todo = "run as root or as the owner, or share the folder with a group of this account: docs/security.md"
        yield False, f"job {job.id}: its log {job.log} cannot be read: {why_unreadable(error)}", todo
        return
    yield True, f"job {job.id}: its log {job.log} can be read, {len(raw.splitlines()):,} lines of its end", ""


def _checkpoints_of(door: Door, job: Job) -> Iterator[tuple[bool, str, str]]:
    from functools import partial

    from assistant.recover.checkpoints.place import checkpoint_place
    from assistant.recover.joblog import log_lines
    from assistant.untrusted import LOOK_S, list_folder, reading_as, why_unreadable, within

    place = checkpoint_place(job, door.settings.checkpoints, [line.text for line in log_lines(job)])
    if place is None:
        yield False, f"job {job.id}: where it saves checkpoints is not known", f"nightshift job check {job.id}"
        return
    try:
        with reading_as(job.account):
            many = len(within(LOOK_S, partial(list_folder, place.folder), str(place.folder)))
    except (OSError, NightshiftError) as error:
        text = f"job {job.id}: its checkpoint folder {place.folder} ({place.how}) cannot be listed: {why_unreadable(error)}"
        yield False, text, f"nightshift job check {job.id}"
        return
    yield True, f"job {job.id}: its checkpoint folder {place.folder} ({place.how}) can be listed, {many} entries", ""
