"""Decide about a call: pure, and always with the name of the rule that said so.

The order is the order of strength. What nobody can override comes first: kill switch, a policy that is not whole, protections,
maintenance windows, hard limits, the healthy share; and the breaker, which lets only a person act who sits at a door. A person's
approval satisfies everything after that: mode, cooldown, soft limits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from assistant.policy.terms import ChangeLimits, Mode, PlaceLimits, Policy, Targets
from assistant.records import Decision, Node, NodeState, Risk, Verdict

__all__ = ["PriorChange", "Request", "Situation", "decide", "hourly_hard_limit", "sits_at_a_door"]

_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_PERSONS = ("cli:", "chat:")
"""Doors behind which a person sits; `by` of a call starts with one of them."""
_AGENT = "agent"
"""`by` of a call starts with it when words made it, a person's or a model's: it is asked about in every mode but observe."""


class PriorChange(Protocol):
    """A change that was made, or may have been."""

    @property
    def kind(self) -> str:
        """Action class."""
        ...

    @property
    def targets(self) -> Mapping[str, Sequence[str]]:
        """Names by `jobs`, `nodes`, `users`, `partitions`."""
        ...

    @property
    def at(self) -> datetime:
        """When the change was made."""
        ...


@dataclass(frozen=True, slots=True)
class Request:
    """A change that the policy is asked about."""

    risk: Risk
    kind: str
    """Action class of the tool."""
    by: str
    """As in `Call.by`."""
    targets: Targets = field(default_factory=Targets)
    approved_by: str | None = None
    """The person who has said yes to exactly this call."""
    shared_cause: int | None = None
    """The incident of a shared cause that answers again, where the call is about one of its members."""


@dataclass(frozen=True, slots=True)
class Situation:
    """Facts that a decision of the policy rests on besides the request."""

    now: datetime
    fleet: Sequence[Node] = ()
    """All nodes, as the scheduler shows them."""
    past: Sequence[PriorChange] = ()
    """Changes of the last day at least."""
    stopped_by: str | None = None
    """The kill switch file that exists, None when there is none."""
    breaker: str | None = None
    """Why the breaker is open, None when it is not."""
    racks: Mapping[str, str] = field(default_factory=dict)
    """The rack of each node, where it is known."""
    policy_problem: str = ""
    """Why the policy could not be read whole; empty when it could."""
    failed_by_user: Mapping[str, int] = field(default_factory=dict)
    """How many changes for the jobs of each user failed, or brought nothing back, within the last hour."""
    store_problem: str = ""
    """Why the store does not know what was changed last; empty when it does."""


class _Answer(NamedTuple):
    verdict: Verdict
    rule: str
    why: str


def sits_at_a_door(by: str) -> bool:
    """Tell whether a call is a person's own, as `Call.by` says."""
    return by.startswith(_PERSONS)


def decide(request: Request, policy: Policy, situation: Situation) -> Decision:
    """Return whether a call may run, must be asked about, or is refused, and which rule says so."""
    answer = _first_answer(request, policy, situation)
    by = request.approved_by if answer.rule == "approved" and request.approved_by else "policy"
    digest = "" if situation.policy_problem else policy.digest
    return Decision(answer.verdict, answer.rule, by, situation.now, answer.why, digest)


def _first_answer(request: Request, policy: Policy, situation: Situation) -> _Answer:
    if request.risk is Risk.READ:
        return _Answer(Verdict.ALLOW, "read", "it changes nothing")
    refusal = next(_refusals(request, policy, situation), None)
    if refusal is not None:
        return refusal
    if request.approved_by is not None:
        return _Answer(Verdict.ALLOW, "approved", f"{request.approved_by} said yes")
    return _by_mode(request, policy, situation)


def _refusals(request: Request, policy: Policy, situation: Situation) -> Iterator[_Answer]:
    if situation.stopped_by is not None:
        why = f"the kill switch {situation.stopped_by} is set: nothing is changed until that file is removed"
        yield _Answer(Verdict.DENY, "kill_switch", why)
    if situation.policy_problem:
        why = f"no policy is in force, and nothing is changed until it is whole: {situation.policy_problem}"
        yield _Answer(Verdict.DENY, "policy", why)
    if situation.store_problem:
        yield _Answer(
            Verdict.DENY, "audit", f"nothing is changed until a person has looked at the store: {situation.store_problem}"
        )
    if situation.breaker is not None and not sits_at_a_door(request.by):
        why = f"the breaker is open ({situation.breaker}): nothing is changed until a person resets it: nightshift breaker reset"
        yield _Answer(Verdict.DENY, "breaker", why)
    for number, entry in enumerate(policy.protected, 1):
        target = entry.covers(request.targets, request.kind)
        if target is not None:
            yield _Answer(Verdict.DENY, f"protected.{number}", f"{target} is protected: {entry.why}")
    for window in policy.window:
        if window.open_at(situation.now) and window.covers(request.targets):
            why = f"maintenance window {window.name!r} is open" + (f": {window.why}" if window.why else "")
            yield _Answer(Verdict.DENY, f"window.{window.name}", why)
    exceeded = _beyond("hard", request, policy, situation)
    if exceeded is not None:
        yield _Answer(Verdict.DENY, *exceeded)
    if policy.terms(request.kind).takes_nodes:
        yield from _unhealthy(request, policy, situation)


def _by_mode(request: Request, policy: Policy, situation: Situation) -> _Answer:
    mode = policy.mode_of(request.kind)
    if mode is Mode.OBSERVE and not sits_at_a_door(request.by):
        why = f'mode of {request.kind} is observe: this is what it would have done. Set mode = "propose" or "act" in policy.toml'
        return _Answer(Verdict.DENY, "mode.observe", why)
    if mode is not Mode.ACT:
        return _Answer(Verdict.ASK, f"mode.{mode}", f"mode of {request.kind} is {mode}: a person must say yes")
    if request.by.startswith(_AGENT):
        return _Answer(Verdict.ASK, "agent", "the agent proposes, a person must say yes")
    in_vain = _in_vain(request, policy, situation)
    if in_vain:
        return _Answer(Verdict.ASK, "breaker.user", in_vain)
    cooling = _cooling(request, policy, situation)
    if cooling is not None:
        return _Answer(Verdict.ASK, "cooldown", cooling)
    exceeded = _beyond("soft", request, policy, situation)
    if exceeded is not None:
        return _of_shared_cause(request, policy, situation) or _Answer(Verdict.ASK, *exceeded)
    return _Answer(Verdict.ALLOW, "mode.act", f"mode of {request.kind} is act, within all limits")


def _in_vain(request: Request, policy: Policy, situation: Situation) -> str:
    """Return that as many changes for the jobs of one user failed as open the breaker where they are of several; else empty."""
    most = policy.breaker.failed_actions
    if most is None:
        return ""
    counts = {user: situation.failed_by_user.get(user, 0) for user in request.targets.users}
    user, count = max(counts.items(), key=lambda item: item[1], default=("", 0))
    if count < most:
        return ""
    return f"{count} changes for jobs of {user} failed or brought nothing back within an hour: a person must say yes"


def _of_shared_cause(request: Request, policy: Policy, situation: Situation) -> _Answer | None:
    """Return the answer by the limits for restarts of a shared cause; None where it is none or the policy names none.

    They count every change of the class, not those of this cause alone.
    """
    limits = policy.terms(request.kind).shared_cause
    if request.shared_cause is None or limits == ChangeLimits():
        return None
    same_kind = [past for past in situation.past if past.kind == request.kind]
    place = f"kind.{request.kind}.shared_cause"
    exceeded = _beyond_limits(place, limits, same_kind, request, situation)
    if exceeded is not None:
        return _Answer(Verdict.ASK, *exceeded)
    why = f"the shared cause of incident {request.shared_cause} answers again, within {place} and all hard limits"
    return _Answer(Verdict.ALLOW, "shared_cause", why)


def hourly_hard_limit(kind: str, policy: Policy, situation: Situation) -> str:
    """Return which hard limit of an hour one more change of an action class would pass, and why; empty where none."""
    exceeded = _beyond("hard", Request(Risk.CHANGE, kind, ""), policy, situation)
    return f"{exceeded[0]}: {exceeded[1]}" if exceeded is not None and exceeded[0].endswith("_hour") else ""


def _beyond(name: str, request: Request, policy: Policy, situation: Situation) -> tuple[str, str] | None:
    """Return rule and reason of the first limit that the call would pass."""
    own: ChangeLimits = getattr(policy.terms(request.kind), name)
    total_limits: ChangeLimits = getattr(policy, name)
    same_kind = [past for past in situation.past if past.kind == request.kind]
    total = [past for past in situation.past if policy.terms(past.kind).in_totals]
    if not policy.terms(request.kind).in_totals:
        total_limits = ChangeLimits()
    return _beyond_limits(f"kind.{request.kind}.{name}", own, same_kind, request, situation) or _beyond_limits(
        name, total_limits, total, request, situation
    )


def _beyond_limits(
    place: str, limits: ChangeLimits, past: Sequence[PriorChange], request: Request, situation: Situation
) -> tuple[str, str] | None:
    """Return rule and reason of the first of some limits that the call would pass, counted with earlier changes."""
    for span, hours in (("hour", _HOUR), ("day", _DAY)):
        recent = [call for call in past if call.at > situation.now - hours]
        why = _too_many(getattr(limits, f"per_{span}"), request, recent) or _too_large_a_share(
            getattr(limits, f"share_per_{span}"), request, recent, situation
        )
        if why is not None:
            return f"{place}.{why[0]}_{span}", f"{why[1]} within the last {span}"
        for sort, crowded in (("partition", limits.partition), ("rack", limits.rack)):
            full = _too_many_of_a_place(crowded, sort, span, request, recent, situation)
            if full is not None:
                return f"{place}.{sort}.{full[0]}_{span}", f"{full[1]} within the last {span}"
    return None


def _too_many_of_a_place(
    limits: PlaceLimits, sort: str, span: str, request: Request, recent: Sequence[PriorChange], situation: Situation
) -> tuple[str, str] | None:
    """Return which limit and why, when too many different nodes of one partition or rack would have been changed."""
    most, share = getattr(limits, f"per_{span}"), getattr(limits, f"share_per_{span}")
    if most is None and share is None:
        return None
    if sort == "partition":
        places = {node.name: node.partitions for node in situation.fleet}
    else:
        places = {name: (rack,) for name, rack in situation.racks.items()}
    touched = {node for past in recent for node in past.targets.get("nodes", ())} | set(request.targets.nodes)
    for place in sorted({place for name in request.targets.nodes for place in places.get(name, ())}):
        count, size = (sum(place in places.get(name, ()) for name in names) for names in (touched, places))
        if most is not None and count > most:
            return "per", f"{count} nodes of {place}, {most} allowed"
        if share is not None and count > _share_of(share, size):
            return "share_per", f"{count} of {size} nodes of {place}, {_share_of(share, size)} allowed ({share:.0%})"
    return None


def _too_many(limit: int | None, request: Request, recent: Sequence[PriorChange]) -> tuple[str, str] | None:
    if limit is None:
        return None
    used_amount = sum(max(1, len(past.targets.get("nodes", ()))) for past in recent)
    request_amount = request.targets.amount
    if used_amount + request_amount <= limit:
        return None
    return "per", f"{used_amount} done, {request_amount} more wanted, {limit} allowed"


def _too_large_a_share(
    share: float | None, request: Request, recent: Sequence[PriorChange], situation: Situation
) -> tuple[str, str] | None:
    if share is None:
        return None
    touched = {node for past in recent for node in past.targets.get("nodes", ())} | set(request.targets.nodes)
    for partition, nodes in _partitions(request, situation).items():
        count = sum(node.name in touched for node in nodes)
        allowed = _share_of(share, len(nodes))
        if count > allowed:
            amount = f"{count} of {len(nodes)} nodes{f' of {partition}' if partition else ''}, {allowed} allowed ({share:.0%})"
            return "share_per", amount
    return None


def _unhealthy(request: Request, policy: Policy, situation: Situation) -> Iterator[_Answer]:
    leaving = set(request.targets.nodes)
    for partition, nodes in _partitions(request, situation).items():
        out = {node.name for node in nodes if node.state not in (NodeState.IDLE, NodeState.ALLOCATED)}
        if leaving <= out:
            continue
        after = len(out | {node.name for node in nodes if node.name in leaving})
        allowed = min(_share_of(1 - policy.min_healthy_share, len(nodes)), len(nodes) - 1)
        if after > allowed:
            scope = f" of {partition}" if partition else ""
            why = f"{len(nodes) - after} of {len(nodes)} nodes{scope} would stay usable; at least {len(nodes) - allowed} must"
            yield _Answer(Verdict.DENY, "min_healthy_share", why)


def _partitions(request: Request, situation: Situation) -> dict[str, list[Node]]:
    """Return the nodes of each partition that a target node belongs to; a node without one is in the partition ``."""
    concerned = {name for node in situation.fleet if node.name in request.targets.nodes for name in _places(node)}
    return {name: [node for node in situation.fleet if name in _places(node)] for name in sorted(concerned)}


def _places(node: Node) -> tuple[str, ...]:
    return node.partitions or ("",)


def _share_of(share: float, size: int) -> int:
    # a percentage of a small partition would round to nothing, which nobody means who writes 5 %
    return max(1, math.floor(share * size + 1e-9)) if share > 0 else 0


def _cooling(request: Request, policy: Policy, situation: Situation) -> str | None:
    own = policy.terms(request.kind).cooldown_min
    minutes = policy.cooldown_min if own is None else own
    names = {*request.targets.nodes, *request.targets.jobs}
    for past in situation.past:
        repeated = names & {*past.targets.get("nodes", ()), *past.targets.get("jobs", ())}
        if past.kind == request.kind and repeated and past.at > situation.now - timedelta(minutes=minutes):
            since = (situation.now - past.at).total_seconds() / 60
            return f"{request.kind} of {min(repeated)} was done {since:.0f} min ago; the cooldown is {minutes:g} min"
    return None
