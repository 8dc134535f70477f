"""Checks of `nightshift doctor` that reach into the cluster: nodes over SSH, and jobs that run now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from assistant.cli.context import Door
from assistant.errors import NightshiftError

if TYPE_CHECKING:
    from assistant.cli.job_check import CheckedJob
    from assistant.records import Node

__all__ = ["EXAMPLE_POLICY", "NODES_TRIED", "running_jobs", "ssh_to_nodes"]

NODES_TRIED = 3
SSH_S = 15.0
JOBS_TRIED = 3
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


def running_jobs(door: Door) -> Iterator[tuple[bool, str, str]]:
    """Yield of a few running jobs what `job check` understands of them, read as this account: (works, text, what to do)."""
    from assistant.cli.job_check import checked_job
    from assistant.records import JobState

    scheduler = door.engine().scheduler
    running = [job for job in scheduler.jobs() if job.state is JobState.RUNNING]
    if not running:
        yield True, "no job runs now: its log and checkpoints could not be tried", ""
    for job in running[-JOBS_TRIED:]:
        try:
            checked = checked_job(door, scheduler.job(job.id))
        except (NightshiftError, OSError) as error:
            yield False, f"job {job.id}: {error}", f"nightshift job check {job.id}"
            continue
        yield _logs_of(job.id, checked)
        yield _checkpoints_of(job.id, checked)


def _logs_of(job_id: str, checked: CheckedJob) -> tuple[bool, str, str]:
    if checked.log_readable:
        return True, f"job {job_id}: of its logs {checked.log}", ""
    todo = "run as root or as the owner, or share the folder with a group of this account: docs/security.md"
    return False, f"job {job_id}: no log of it can be read: {checked.log}", todo


def _checkpoints_of(job_id: str, checked: CheckedJob) -> tuple[bool, str, str]:
    reading = checked.reading
    place = (
        f"saves into {reading.checkpoint_folder} ({reading.checkpoint_how})" if reading.checkpoint_folder else checked.search.note
    )
    text = f"job {job_id}: {reading.resume.sentence}; {place}" + (f"; there now: {checked.saved}" if checked.saved else "")
    blocks = next((gap for gap in reading.gaps if gap.weight == "blocks"), None)
    return blocks is None, text, "" if blocks is None else blocks.line or f"nightshift job check {job_id}"
