"""Signs that a job is alive besides its log: its heartbeat file, the files that it writes, GPU counters and stacks.

Signs of life: only what was written since counts, so that the answer is the same after a restart of the watch and right before a
change is made. Witnesses of a job that stands still: GPU counters and stacks have a vote, silence has none; what could not be asked
is no vote. A witness may also excuse a job: one whose GPUs compute, or whose ranks move on between two looks, is at work, whatever
its log does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from assistant.errors import MalformedContent
from assistant.logs.lines import Line, clean
from assistant.logs.metrics import metric_points
from assistant.logs.phases import LogPhase, counts_of
from assistant.records import Event, EventKind, Job
from assistant.untrusted import parse_json, read_end_from, read_start, status_of, whole_number
from assistant.watch.hang import Suspicion

READ_UP_TO = "read_up_to"
"""Key of an event's detail: bytes of each log that had been read when it was raised, by path."""
MOST_BYTES = 4 << 20
"""Of one log, from its end: newer lines tell more."""


@dataclass(frozen=True, slots=True)
class Motion:
    """How far a job has moved since it was seen to stand still."""

    goes_on: bool = False
    """Whether it makes steps again."""
    step: int | None = None
    """The newest step beyond the one at which it stood; None where none is known by its number."""
    steps_shown: bool = False
    """Whether it wrote lines with steps since, be it of steps that it had made before."""


def motion_since(job: Job, events: Sequence[Event]) -> Motion:
    """Return what a job has done since the last event of a hang; nothing where that cannot be told.

    A step that it had shown before counts as nothing: another rank may have written it late.

    Args:
        job: As the scheduler shows it.
        events: Of the incident, oldest first.

    Raises:
        OSError: A log cannot be read now.
        Unavailable: Its storage does not answer.
    """
    hang = next((event for event in reversed(events) if event.kind is EventKind.HANG and event.attempt == job.attempt), None)
    if hang is None:
        return Motion()
    stood_at = _number(hang.detail.get("step"))
    marks: Any = hang.detail.get(READ_UP_TO)
    motion = _beaten(job, hang.detail, stood_at)
    for path, begin in marks.items() if isinstance(marks, Mapping) else ():
        motion = _joined(motion, _motion_in_log(Path(str(path)), _number(begin), stood_at))
    return motion


def _joined(first: Motion, second: Motion) -> Motion:
    steps = [motion.step for motion in (first, second) if motion.step is not None]
    return Motion(first.goes_on or second.goes_on, max(steps, default=None), first.steps_shown or second.steps_shown)


def _motion_in_log(path: Path, begin: int | None, stood_at: int | None) -> Motion:
    """Return what was written to a log behind a place; nothing where it is shorter now, so that it is another file."""
    try:
        size = status_of(path).st_size
    except (FileNotFoundError, NotADirectoryError):
        return Motion()
    if begin is None or size <= begin:
        return Motion()
    lines = [
        Line(number, clean(raw_line))
        for number, raw_line in enumerate(read_end_from(path, begin, MOST_BYTES).raw.split(b"\n")[:-1], 1)
    ]
    points = metric_points(lines)
    if not points and stood_at is None and counts_of(lines) is not None:
        return Motion(goes_on=True, steps_shown=True)
    newer = [point.step for point in points if not point.counted and (stood_at is None or point.step > stood_at)]
    counted = stood_at is None and any(point.counted for point in points)
    return Motion(bool(newer) or counted, max(newer, default=None), bool(points))


def _beaten(job: Job, detail: Mapping[str, Any], stood_at: int | None) -> Motion:
    """Return whether the heartbeat has gone on; nothing where there is none."""
    stood, path = _number(detail.get("beat_step")), detail.get("heartbeat")
    beat = last_beat(Path(str(path)), job) if path and stood is not None else None
    if beat is None or stood is None or beat.step <= max(stood, stood_at or 0):
        return Motion()
    return Motion(goes_on=True, step=beat.step, steps_shown=True)


def _number(value: object) -> int | None:
    try:
        return whole_number(value)
    except (MalformedContent, TypeError, ValueError):
        return None


# Read the heartbeat of a job that has one: a small file that its training loop replaces at each step and phase.
#
#     {"job": "4821", "attempt": 0, "step": 1200, "phase": "training", "at": "2026-01-05T02:00:00+00:00"}
#
# `NIGHTSHIFT_HEARTBEAT` in the job's environment, `heartbeat=` in its `#NIGHTSHIFT` lines, or a line `heartbeat: PATH` of its log
# name the file; else it is `heartbeat-<job>.json` in the work folder. `assistant.training.heartbeat` writes it.

HEARTBEAT_VARIABLE = "NIGHTSHIFT_HEARTBEAT"
LARGEST_HEARTBEAT = 4096
"""Bytes; a larger file is no heartbeat."""
_DIRECTIVE = re.compile(r"^\s*#\s?NIGHTSHIFT\b.*?\bheartbeat=(?:\"([^\"]+)\"|'([^']+)'|(\S+))", re.MULTILINE)
_IN_LOG = re.compile(r"(?:^|\s)heartbeat: (/\S+)\s*$")


@dataclass(frozen=True, slots=True)
class HeartbeatReading:
    """The content of a heartbeat file."""

    step: int
    phase: LogPhase | None
    """None where it names one that is not known."""
    stamp: str
    """What changes with every beat: compared, never computed with, since the node's clock may be wrong."""


def heartbeat_path(job: Job) -> Path | None:
    """Return where the heartbeat of a job would lie; None where that cannot be told."""
    spec, folder = job.spec, job.work_dir
    path_text = ""
    if spec is not None:
        match = _DIRECTIVE.search(spec.script)
        path_text = spec.environment.get(HEARTBEAT_VARIABLE, "") or (next(filter(None, match.groups()), "") if match else "")
    if not path_text and folder is None:
        return None
    path = Path((path_text or f"heartbeat-{job.id}.json").replace("%j", job.id))
    return path if path.is_absolute() else (folder / path if folder is not None else None)


def path_in(text: str) -> Path | None:
    """Return the path of a heartbeat that a line of a log names."""
    match = _IN_LOG.search(text) if "heartbeat: /" in text else None
    return Path(match[1]) if match else None


def read_beat(text: str, job: Job) -> HeartbeatReading | None:
    """Return what a heartbeat file says; None where it is another job's, another attempt's, or no heartbeat."""
    try:
        fields = parse_json(text)
        step, phase, at = whole_number(fields["step"]), str(fields.get("phase", "")), str(fields["at"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    if str(fields.get("job", job.id)) != job.id or fields.get("attempt", job.attempt) != job.attempt:
        return None
    return HeartbeatReading(step, LogPhase(phase) if phase in tuple(LogPhase) else None, f"{at} {step} {phase}")


def last_beat(path: Path | None, job: Job) -> HeartbeatReading | None:
    """Return the last beat of a job; None where it has no heartbeat.

    Raises:
        OSError: There is one, and it cannot be read now: that is unknown, not silent.
    """
    if path is None:
        return None
    try:
        raw = read_start(path, LARGEST_HEARTBEAT + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return read_beat(raw.decode("utf-8", "replace"), job) if len(raw) <= LARGEST_HEARTBEAT else None


class WitnessVote(StrEnum):
    """A witness's vote on a job that stands still."""

    HUNG = "hung"
    WORKING = "working"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Witness:
    """The votes of GPU counters and stacks on a job that stands still."""

    vote: WitnessVote
    text: str
    """One or a few sentences for people."""
    suspects: tuple[str, ...] = ()
    """Nodes of ranks that are somewhere else than all others; a place to look, no proof."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """JSON values, to be kept with the incident."""


class SecondLook(Protocol):
    """Asks the nodes of a job that stands still."""

    threaded: bool
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


IDLE_PROOFS = frozenset({"GPUs do nothing", "no rank moves"})
"""Proofs of `proofs_of_hang` that hold of a job as well that works elsewhere, or waits for a service between two answers."""


def has_lost_its_program(witness: Witness | None) -> bool:
    """Tell whether the nodes of a job show that its program is gone, or stopped while others are not."""
    return witness is not None and bool(witness.facts.get("gone") or witness.facts.get("stopped"))


def unobserved(witness: Witness | None) -> str:
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
