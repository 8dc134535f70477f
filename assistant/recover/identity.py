"""Whose a job or a cordon is: a tag's claim, checked against the store's own rows and the scheduler's own fields.

A comment is written by whoever submits the job. What counts is what Slurm itself vouches for: the id, user, name, work folder and
time of submission of a job, and that only administrators write the reason of a node.

    nightshift:<store>:<incident>:<call> <reason> until=<time> by=<user>

This is a drain lease. One that has run out lifts nothing by itself: then the probes and a collective test decide whether it is
lifted or renewed (`engine.reconciliation`). The text is read from the scheduler, where people write too: only the exact form
counts, and only of this store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from assistant.errors import UsageError
from assistant.policy import sits_at_a_door
from assistant.records import Call, Job, JobState, Node, hold_mark, run_of, tags_in
from assistant.records.jobs import MARK, PATTERN
from assistant.tooling import Context, History

CLOCKS_APART = timedelta(seconds=60)
"""How far the clocks of the controller and of this machine may differ."""
RESTARTS = ("resubmit_job", "requeue_ended_job")
"""Tools that start a job again."""
LEFT_BEHIND = "left_behind"
"""Key of their value: which jobs wait for the failed attempt and could not be moved to the restart."""
MOVED = "moved"
"""Key of their value: which jobs waited for the failed attempt and wait for the restart now."""
LIVING = timedelta(hours=24)
"""A store whose tag was written that lately counts as one at work."""


def restart_of(history: History, job: Job) -> Call | None:
    """Return the call of this store that submitted a job; None for a job of anybody else, whatever its comment claims.

    A call with an outcome submitted exactly the job that the outcome names. One that was interrupted submitted a job of the same
    user, name and work folder, after it was allowed.
    """
    for tag in tags_in(job.comment):
        if tag.store not in ("", history.store_id):
            continue
        call = _call(history, tag.call)
        if call is None or call.tool not in RESTARTS or (call.incident or 0) != tag.incident:
            continue
        allowed = min((decision.at for decision in history.decisions(call.id) if decision.verdict == "allow"), default=None)
        if allowed is None or job.submitted is None or job.submitted < allowed - CLOCKS_APART:
            continue
        outcome = history.outcome(call.id)
        if outcome is not None:
            value = outcome.value if isinstance(outcome.value, Mapping) else {}
            if outcome.ok and value.get("job") == job.id and (job.attempt or job.submitted <= outcome.at + CLOCKS_APART):
                return call
            continue
        if tag.store and run_of(job) in history.runs_of(call.id):
            return call
    return None


def owns_cordon(history: History, node: str, reason: str) -> bool:
    """Return whether a call of this store wrote the reason of a node.

    A reason in the form from before stores had ids counts when a cordon of that node by that call is in this store.
    """
    tag = next(iter(tags_in(reason)), None)
    if tag is None or not reason.startswith(str(tag)) or tag.store not in ("", history.store_id):
        return False
    call = _call(history, tag.call)
    if call is None or (call.incident or 0) != tag.incident:
        return False
    return call.tool == "cordon_node" and call.arguments.get("node") == node


def other_store(history: History, text: str) -> str | None:
    """Return the id of another store that a comment or reason names; None where it names none or only this one."""
    return next((tag.store for tag in tags_in(text) if tag.store not in ("", history.store_id)), None)


def other_keeper(context: Context, job: Job) -> str:
    """Return why a job is left to another Nightshift; empty where it is not, and for a person's own call.

    The tag of another store on a job of the last day means that this store restarted it and watches it. A user who forges such a
    comment only keeps Nightshift from restarting the user's own job.
    """
    store = other_store(context.history, job.comment)
    lately = job.submitted is not None and context.clock.now() - job.submitted < LIVING
    if store is None or not lately or sits_at_a_door(context.by):
        return ""
    return (
        f"job {job.id} carries the tag of another Nightshift (store {store}), which looks after it; end one of the two watches, or "
        f"restart the job by hand: nightshift recover {job.id}"
    )


HELD_UNKNOWN = (
    "job {job} waits held, queued again under its own id, and whether Nightshift, its owner or an administrator holds it cannot be "
    "told; it is neither released nor ended: scontrol release {job}, or scancel {job}"
)
"""About a hold that carries no proof, with the id of the job."""


def is_held_by(job: Job, tag: str) -> bool:
    """Return whether a job waits held because the call with a tag has queued it again.

    Slurm refuses to queue a job again that waits already, so of all who try one succeeds; that one writes its tag and the attempt
    into the comment. A hold of before that mark, of a later attempt, or of another sort (`JobHeldUser`, `JobHeldAdmin`) is none of
    the call's.
    """
    words = job.comment.split()
    return bool(tag) and job.requeued_held and tag in words and hold_mark(job.attempt) in words


def is_watchs(context: Context) -> bool:
    """Return whether a call is made by a watch or an agent, and can so be put off; a person who makes one waits for its answer."""
    return not sits_at_a_door(context.by)


def is_claim(job: Job) -> bool:
    """Return whether a job is a restart that some store has submitted held, and neither released nor withdrawn."""
    return job.held and bool(tags_in(job.comment))


def is_withdrawn_claim(job: Job) -> bool:
    """Return whether a job is a restart that was withdrawn before it could begin: nothing of it ever ran."""
    return job.state is JobState.CANCELLED and not job.nodes and job.started is None and bool(tags_in(job.comment))


def _call(history: History, number: int) -> Call | None:
    try:
        return history.call(number)
    except UsageError:
        return None


HOURS = 24.0
"""How long a lease runs when nobody says."""
LONGEST_REASON = 200
MOST_RENEWALS = 7
"""A week of renewals without a person: then one must decide about the node."""

_OURS = re.compile(rf"(?P<tag>{PATTERN}|{MARK})(?: |$)")
_END = re.compile(r"(?:^| )until=(?P<until>\S+) by=(?P<by>\S+)$")


@dataclass(frozen=True, slots=True)
class Lease:
    """A cordon of our own."""

    tag: str
    """`nightshift:<store>:<incident>:<call>`, or `nightshift:` for one that no call made."""
    why: str
    until: datetime | None
    """When it runs out; None for one written without an end."""
    by: str

    @property
    def incident(self) -> int | None:
        """The incident it was made for; None for none."""
        return next((tag.incident or None for tag in tags_in(self.tag)), None)

    @property
    def set_at(self) -> datetime | None:
        """When it was set or last renewed, if it runs as long as usual; None where that cannot be told."""
        return self.until - timedelta(hours=HOURS) if self.until else None

    def expired(self, now: datetime) -> bool:
        """Whether it has run out; one without an end never does."""
        return self.until is not None and now >= self.until

    def renewed(self, now: datetime, hours: float = HOURS) -> Lease:
        """Return the same lease with a later end; never an earlier one."""
        later = _whole(now + timedelta(hours=hours))
        return replace(self, until=max(later, self.until) if self.until else later)

    def render(self) -> str:
        """Return the reason as it stands in the scheduler."""
        end = f"until={self.until.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ} by={self.by}" if self.until else ""
        return " ".join(part for part in (self.tag, self.why, end) if part)


def lease(tag: str, why: str, by: str, now: datetime, hours: float = HOURS) -> Lease:
    """Return a new lease.

    Args:
        tag: Of the call that makes it; empty for none.
        why: For people; what would spoil the form is taken out.
        by: Who made it: `cli:alice` becomes `alice`.
        now: When it begins.
        hours: How long it runs.
    """
    plain = " ".join("".join(letter if letter.isprintable() else " " for letter in why).replace('"', "'").split())[:LONGEST_REASON]
    user = re.sub(r"[^\w.:@-]", "_", by.removeprefix("cli:")) or "unknown"
    return Lease(tag or MARK, plain, _whole(now + timedelta(hours=hours)), user)


def ours(reason: str) -> bool:
    """Return whether a reason has the form of Nightshift's own; whose store wrote it, `identity.owns_cordon` tells."""
    return _OURS.match(reason) is not None


def parse(reason: str) -> Lease | None:
    """Return the lease that a reason holds; None for a foreign one."""
    text = reason.rstrip()
    head = _OURS.match(text)
    if head is None:
        return None
    tag, why = head["tag"], text[head.end() :]
    end = _END.search(why)
    until = _time(end["until"]) if end else None
    if end is None or until is None:
        return Lease(tag, why, None, "")
    return Lease(tag, why[: end.start()], until, end["by"])


def expired(nodes: Iterable[Node], now: datetime) -> list[tuple[Node, Lease]]:
    """Return the nodes whose lease of ours has run out, oldest first."""
    leases = [(node, own) for node in nodes if (own := parse(node.reason)) is not None and own.expired(now)]
    return sorted(leases, key=lambda pair: pair[1].until or now)


def _time(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def _whole(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(microsecond=0)
