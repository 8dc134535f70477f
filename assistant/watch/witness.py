"""What others saw of a job that stands still, and what that is worth: GPU counters and stacks have a vote, silence has none.

Pure. Nobody's word is needed: what could not be asked is no vote. A witness may also excuse a job: one whose GPUs compute, or whose
ranks move on between two looks, is at work, whatever its log does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from assistant.records import Job
from assistant.watch.hang import Suspicion


class WitnessVote(StrEnum):
    """What a witness says."""

    HUNG = "hung"
    WORKING = "working"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Witness:
    """What was seen beside the log."""

    vote: WitnessVote
    text: str
    """One or a few sentences for people."""
    suspects: tuple[str, ...] = ()
    """Nodes of ranks that are somewhere else than all others; a place to look, no proof."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """JSON values, to be kept with the incident."""


class SecondLook(Protocol):
    """Asks the nodes of a job that stands still."""

    beside: bool
    """Whether it asks beside the watch, which goes on; else each answer is waited for."""

    def ask(self, job: Job, suspicion: Suspicion) -> Witness | None:
        """Return what was seen; None while the answer is under way. What cannot be asked is a witness that votes UNKNOWN."""
        ...


BUSY_SHARE = 0.03
"""Of one core, from which on a process of a job works: threads that only look at a clock take less."""
SLOW_WORK = ("checkpoint save", "checkpoint load", "evaluation", "compiling", "start-up", "data preparation")
"""Places in which one rank may be for long while all others wait for it, in a job that is well."""


def gpu_vote(activity: Mapping[str, Any]) -> WitnessVote:
    """Return the vote of the GPUs' counters, from what the tool `gpu_activity` returned."""
    states = [str(gpu.get("state", "")) for node in activity.get("nodes", {}).values() for gpu in node.get("gpus", ())]
    states_known = [state for state in states if state in ("computing", "spinning", "idle")]
    if not states_known:
        return WitnessVote.UNKNOWN
    if 2 * states_known.count("computing") >= len(states_known):
        return WitnessVote.WORKING
    return WitnessVote.HUNG if 5 * states_known.count("spinning") >= 4 * len(states_known) else WitnessVote.UNKNOWN


def stack_vote(stacks: Mapping[str, Any]) -> WitnessVote:
    """Return the vote of the ranks' stacks, from what the tool `stack_classes` returned."""
    rank_count, moved = int(stacks.get("seen", 0)), int(stacks.get("moved", 0))
    classes = stacks.get("classes", ())
    if not rank_count or 2 * rank_count < int(stacks.get("expected") or rank_count) or not classes:
        return WitnessVote.UNKNOWN
    at_work = any(stack_class.get("where") in SLOW_WORK for stack_class in classes)
    if 2 * moved > rank_count or (moved and at_work):
        return WitnessVote.WORKING
    if at_work or moved or int(stacks.get("busy", 0)):
        return WitnessVote.UNKNOWN
    waiting = sum(int(stack_class["ranks"]) for stack_class in classes if stack_class.get("waits"))
    return WitnessVote.HUNG if 2 * waiting >= rank_count else WitnessVote.UNKNOWN


def _idle(activity: Mapping[str, Any]) -> bool:
    """Tell whether all GPUs that were seen do nothing, on half of the nodes at least."""
    nodes = activity.get("nodes", {})
    states = [str(gpu.get("state", "")) for node in nodes.values() for gpu in node.get("gpus", ())]
    return bool(states) and set(states) == {"idle"} and len(nodes) >= len(activity.get("unknown", ()))


def _stand(stacks: Mapping[str, Any]) -> bool:
    """Tell whether at least half of the ranks were seen, and each of them at the same place twice, at nothing that takes long."""
    rank_count, classes = int(stacks.get("seen", 0)), stacks.get("classes", ())
    enough = bool(rank_count and classes) and 2 * rank_count >= int(stacks.get("expected") or rank_count)
    return enough and not int(stacks.get("moved", 0)) and not _at_work(stacks)


def _at_work(stacks: Mapping[str, Any]) -> bool:
    return any(stack_class.get("where") in SLOW_WORK for stack_class in stacks.get("classes", ()))


def _works(stacks: Mapping[str, Any]) -> bool:
    """Tell whether a process of the job used the CPU between two looks."""
    return bool(stacks.get("busy")) or any(float(share) >= BUSY_SHARE for share in stacks.get("cpu", {}).values())


def _quiet(gpus: Mapping[str, Any], stacks: Mapping[str, Any]) -> bool:
    """Tell whether the job's processes were found on each node whose GPUs were seen, and none of them works."""
    nodes = set(stacks.get("cpu", {}))
    return bool(nodes) and nodes >= set(gpus.get("nodes", {})) and not _works(stacks)


def proofs_of_hang(suspicion: Suspicion, witness: Witness | None) -> tuple[str, ...]:
    """Return what speaks for a hang beside the silence; nothing where nothing does, or where anything speaks against it.

    GPUs that do nothing and stacks that stand prove nothing in a phase that may take that long. Neither do they while a process of
    the job uses the CPU, and idle GPUs prove nothing where its processes were not found.
    """
    facts = witness.facts if witness is not None else {}
    gpus, stacks = facts.get("gpus") or {}, facts.get("stacks") or {}
    votes = (gpu_vote(gpus), stack_vote(stacks))
    if WitnessVote.WORKING in votes or _at_work(stacks):
        return ()
    weighs = not suspicion.plausible
    proofs = {
        "GPUs spin in a kernel that waits": votes[0] is WitnessVote.HUNG,
        "ranks wait for others": votes[1] is WitnessVote.HUNG,
        "GPUs do nothing": weighs and _idle(gpus) and _quiet(gpus, stacks),
        "no rank moves": weighs and votes[1] is not WitnessVote.HUNG and _stand(stacks) and not _works(stacks),
        "no program of it runs": bool(facts.get("gone")),
        "a process of it is stopped while others are not": bool(facts.get("stopped")),
        "its heartbeat says that it trains, and stands still": suspicion.beat_stopped,
    }
    return tuple(text for text, holds in proofs.items() if holds)


def unseen(witness: Witness | None) -> str:
    """Return what could not be looked at and why, for people; empty where all was seen."""
    parts = []
    for name, label in (("gpus", "GPUs"), ("stacks", "stacks")):
        facts = (witness.facts if witness is not None else {}).get(name)
        missed = [f"{node}: {why}" for node, why in list((facts or {}).get("unknown", {}).items())[:2]]
        if facts is None or missed:
            parts.append(f"{label} ({', '.join(missed) or 'they could not be asked'})")
    return "; ".join(parts)


def joined(votes: Mapping[str, WitnessVote]) -> WitnessVote:
    """Return one vote of several; who contradict one another leave it open."""
    votes_cast = {vote for vote in votes.values() if vote is not WitnessVote.UNKNOWN}
    return votes_cast.pop() if len(votes_cast) == 1 else WitnessVote.UNKNOWN


def witness_of(
    activity: Mapping[str, Any] | None, stacks: Mapping[str, Any] | None, processes: Mapping[str, Any] | None = None
) -> Witness:
    """Return what GPUs and stacks say together.

    Args:
        activity: What `gpu_activity` returned; None where it could not be asked.
        stacks: What `stack_classes` returned; None where it could not be asked.
        processes: What `job_processes` returned; it has no vote: a script may wait on purpose.
    """
    votes = {"gpus": gpu_vote(activity or {}), "stacks": stack_vote(stacks or {})}
    parts = [str(answer.get("text", "")) for answer in (activity, stacks) if answer is not None]
    parts += [str((processes or {}).get(name, "")) for name in ("left", "unrun")]
    odd = [str(entry.get("node", "")) for entry in (*(stacks or {}).get("odd", ()), *(processes or {}).get("stopped", ()))]
    keys = ("programs", "gone", "left", "stopped", "unrun")
    running = {name: processes[name] for name in keys if name in processes} if processes is not None else {}
    facts = {"votes": {name: str(vote) for name, vote in votes.items()}, "gpus": activity, "stacks": stacks, **running}
    text = "; ".join(part for part in parts if part) or "neither GPUs nor stacks could be looked at"
    vote = joined(votes)
    if vote is WitnessVote.HUNG and _at_work(stacks or {}):
        vote = WitnessVote.UNKNOWN  # GPUs spin while they wait for a rank that saves or evaluates
    return Witness(vote, text, tuple(dict.fromkeys(filter(None, odd))), facts)
