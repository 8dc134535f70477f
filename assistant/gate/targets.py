"""What a call would change, that nothing else is changing it, and the question to a person with its preview.

Targets are read from the arguments and looked up at the scheduler, so that the policy knows users and partitions. Exclusion: while
a change of a node, job or run has begun and is undecided, no other change of it begins. Where the policy asks, an `Approver`
answers: a person, or who stands for one where nobody sits.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.accounts import both_names
from assistant.errors import NightshiftError, Parked, TargetBusy, ToolError, Unavailable, UsageError
from assistant.nodeset import expand, fold
from assistant.policy import Request, Targets
from assistant.policy.names import job_names
from assistant.ports import Scheduler, Topology
from assistant.records import Call, Decision, Node, Verdict, partition_names, run_of
from assistant.rendering import NEW_JOB, RenderedChange
from assistant.store import Store
from assistant.store.calls import PastCall
from assistant.tooling import Context, Tool

if TYPE_CHECKING:
    from assistant.store import Store

__all__ = [
    "JOB_ARGUMENTS",
    "NODE_ARGUMENTS",
    "AnswersFrom",
    "Park",
    "Preview",
    "Reach",
    "must_be_alone",
    "reach_of",
    "rendered_change",
    "request_of",
    "shared_arguments",
    "undo_text",
]


NODE_ARGUMENTS = ("node", "nodes")
JOB_ARGUMENTS = ("job", "jobs")
"""Names that an argument of a changing tool must have for the policy to see what it changes."""
_RACK = re.compile(r"(?i)(?:rack|cabinet|row)[-_]?\w+")
"""What a site's features of a node call its rack."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a call reaches."""

    targets: Targets
    fleet: tuple[Node, ...]
    job_ids: tuple[str, ...]
    racks: Mapping[str, str] = field(default_factory=dict)
    """The rack of each node; where features name none, the switch next to it."""
    runs: tuple[str, ...] = ()
    """Keys of the jobs' runs, as `records.run_of` makes them."""

    def counted(self) -> dict[str, Sequence[str]]:
        """Return what limits, cooldowns, exclusion and the breaker know it by: ids of jobs, not the names they share."""
        targets = self.targets
        return {
            "nodes": targets.nodes,
            "jobs": self.job_ids,
            "users": targets.users,
            "partitions": targets.partitions,
            "runs": self.runs,
        }


def reach_of(arguments: Mapping[str, Any], scheduler: Scheduler) -> Reach:
    """Return what the arguments `node`, `nodes`, `job` and `jobs` of a call name.

    Raises:
        ToolError: A node or job does not exist.
        Unavailable: The scheduler did not answer, so nobody can tell.
    """
    fleet = tuple(scheduler.nodes())
    nodes = tuple(_nodes(arguments, fleet))
    jobs = [scheduler.job(name) for name in _listed(arguments, JOB_ARGUMENTS)]
    partitions = [name for node in fleet if node.name in nodes for name in node.partitions]
    partitions += [name for job in jobs for name in partition_names(job.partition)]
    targets = Targets(
        jobs=tuple(dict.fromkeys(name for job in jobs for name in job_names(job))),
        nodes=nodes,
        users=tuple(dict.fromkeys(both_names(job.user) for job in jobs)),
        partitions=tuple(dict.fromkeys(partitions)),
    )
    runs = tuple(dict.fromkeys(run_of(job) for job in jobs))
    return Reach(targets, fleet, tuple(job.id for job in jobs), _racks(fleet, scheduler) if nodes else {}, runs)


def _racks(fleet: Sequence[Node], scheduler: Scheduler) -> dict[str, str]:
    switches: Mapping[str, str] = {}
    if isinstance(scheduler, Topology):
        try:
            switches = scheduler.switches()
        except (ToolError, Unavailable):
            switches = {}  # the limits of a rack then hold where features name it
    racks = {node.name: next(filter(_RACK.fullmatch, node.features), switches.get(node.name, "")) for node in fleet}
    return {node: rack for node, rack in racks.items() if rack}


def _nodes(arguments: Mapping[str, Any], fleet: Sequence[Node]) -> Iterator[str]:
    node_names = _listed(arguments, NODE_ARGUMENTS)
    known_nodes = [node.name for node in fleet]
    for name in expand(",".join(node_names)) if node_names else ():
        if name not in known_nodes:
            near = difflib.get_close_matches(name, known_nodes, n=1)
            hint = f" did you mean {near[0]!r}?" if near else ""
            raise ToolError(f"node {name!r} is unknown to the scheduler;{hint} known: {fold(known_nodes) or 'none'}")
        yield name


def _listed(arguments: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    listed_names: list[str] = []
    for name in names:
        value = arguments.get(name)
        listed_names += [str(item) for item in value] if isinstance(value, (list, tuple)) else [str(value)] if value else []
    return listed_names


STARTING = frozenset({"resubmit", "requeue"})
"""Action classes that bring a run back: two of them on one run would write over the same checkpoints."""


def must_be_alone(store: Store, call: Call, kind: str, reach: Reach) -> None:
    """Make sure that no other call is changing what a call would change; ask inside the transaction that writes its intent.

    A person's approved call is refused, too: its approval stands, and it can be asked for again.

    Raises:
        TargetBusy: Another call has begun and has no outcome.
    """
    for undecided_call in store.undecided():
        if undecided_call.call == call.id:
            continue
        shared = _shared(undecided_call, kind, reach)
        if shared:
            age_s = max(0.0, (store.clock.now() - undecided_call.at).total_seconds())
            begun_call = store.call(undecided_call.call)
            raise TargetBusy(
                f"call {call.id} ({call.preview or call.tool}) must wait: "
                f"{undecided_call.by} is making call {undecided_call.call} on {shared}, "
                f"{_ago(age_s)} ago ({begun_call.preview or begun_call.tool}), "
                f"and what came of it is not known yet. Nothing was changed and "
                "an approval is kept: ask again. If that process is gone, `nightshift resume` finds out what it did"
            )


def _shared(undecided_call: PastCall, kind: str, reach: Reach) -> str:
    """Return what two calls would both change, for people; empty where nothing is."""
    nodes = sorted({*reach.targets.nodes} & {*undecided_call.targets.get("nodes", ())})
    jobs = sorted({*reach.job_ids} & {*undecided_call.targets.get("jobs", ())})
    if nodes or jobs:
        return ", ".join([*nodes, *(f"job {job}" for job in jobs)])
    same_run = {*reach.runs} & {*undecided_call.targets.get("runs", ())}
    if same_run and STARTING & {kind, undecided_call.kind}:
        return f"the run of job {', '.join(undecided_call.targets.get('jobs', ()))}"
    return ""


def _ago(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


class Park:
    """Puts the call into the inbox and goes on: for the watchdog and for commands without a terminal."""

    def __init__(self, store: Store, *, expires_after_s: float) -> None:
        """Name the inbox that calls are put into.

        Args:
            store: Holds it.
            expires_after_s: How long a question stays open; later the world may look different.
        """
        self._store = store
        self._expires_after = timedelta(seconds=expires_after_s)

    def ask(self, call: Call, decision: Decision) -> Decision:
        """Put the call into the inbox and raise `Parked`: a person answers later.

        Raises:
            Parked: Always, with the id to answer to.
        """
        now = self._store.clock.now()
        approval = self._store.park(call.id, decision, now + self._expires_after, asked_at=now)
        raise Parked(
            f"{call.preview or call.tool} waits for approval {approval} ({decision.rule}: {decision.why}); "
            f"nightshift approve {approval}, or deny {approval}",
            approval,
        )


class AnswersFrom:
    """Answers from a list, first question first: for tests and rehearsals."""

    def __init__(self, verdicts: Sequence[Verdict], *, by: str = "rehearsal") -> None:
        self._verdicts = list(verdicts)
        self._by = by
        self.questions: list[tuple[Call, Decision]] = []
        """What was asked so far."""

    def ask(self, call: Call, decision: Decision) -> Decision:
        """Return the next answer.

        Raises:
            UsageError: The list is used up.
        """
        self.questions.append((call, decision))
        if not self._verdicts:
            raise UsageError(f"no answer is left for {call.preview or call.tool} ({decision.rule})")
        return Decision(self._verdicts.pop(0), "answered", self._by, decision.at, "from the list")


class Preview(NamedTuple):
    """What a call would do, and what the policy says to it now."""

    text: str
    """The exact command or change."""
    decision: Decision


def request_of(tool: Tool, by: str, reach: Reach | None, approved_by: str | None, shared_cause: int | None = None) -> Request:
    """Return the question to the policy; without a reach it is a reading call.

    Args:
        tool: What is called.
        by: Who calls it.
        reach: What it would change.
        approved_by: The person who has said yes to it.
        shared_cause: From `answered_cause` of the call's incident.
    """
    if reach is None:
        return Request(tool.risk, tool.kind, by)
    return Request(tool.risk, tool.kind, by, reach.targets, approved_by, shared_cause)


def rendered_change(tool: Tool, context: Context, checked: Mapping[str, Any]) -> RenderedChange:
    """Return the exact commands of a call, as its tool states them; a tool that states none may give none."""
    if tool.show is not None:
        return tool.show(context, **checked)
    return RenderedChange(
        note=f"{tool.name}({', '.join(f'{name}={value!r}' for name, value in checked.items() if value is not None)})"
    )


def undo_text(undo: Tool, context: Context, arguments: Mapping[str, Any], value: Any) -> str:
    """Return the commands that would take a call back, as text; empty where they cannot be told now.

    Args:
        undo: The tool that takes it back.
        context: Of the call.
        arguments: Of the call.
        value: What the call returned; None for one that was not made yet, whose new job then has no id.
    """
    try:
        if value is None and undo.kind == "cancel":
            return "; ".join(context.scheduler.command_lines("cancel", NEW_JOB))
        return rendered_change(undo, context, undo.checked(shared_arguments(undo, arguments, value))).text
    except NightshiftError:
        return ""


def shared_arguments(undo: Tool, arguments: Mapping[str, Any], value: Any) -> dict[str, Any]:
    """Return the arguments for an undo: of the call that is taken back, or, where it has the name, of what that call returned."""
    prepared = value if isinstance(value, Mapping) else {}
    both = {**arguments, **{name: item for name, item in prepared.items() if item is not None}}
    return {name: both[name] for name in undo.arguments if name in both}
