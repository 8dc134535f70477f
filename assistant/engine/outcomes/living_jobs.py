"""Jobs that live: close their incident once they go on by themselves, say what they wait for, ask their nodes why they stand still.

What a job does is looked up in its own logs at each pass, right before each stage, and by `cancel_job` right before its command.
Of a job that is slow or waits for something outside of it nothing is changed: a person is told. Nodes are asked for GPU counters
and the stacks of all ranks in threads of their own, and the answer is there at one of the next looks: the watch does not wait.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from assistant.engine.evidence.own_servers import awaited_own_server
from assistant.engine.evidence.remote_hosts import awaited_address, event_of_server, server_at_fault
from assistant.engine.intake import UNPROVEN
from assistant.engine.retry_policy import AWAITS_ITSELF
from assistant.errors import NightshiftError, ToolError
from assistant.gate import Gate
from assistant.ports import Clock
from assistant.records import (
    Action,
    CallStatus,
    Category,
    Diagnosis,
    Event,
    EventKind,
    Incident,
    IncidentState,
    Job,
    JobState,
    Risk,
    Verdict,
)
from assistant.store import WENT_ON
from assistant.tooling import find_tool
from assistant.untrusted import LOOK_S, reading_as, within
from assistant.watch.attempts import SUDDEN
from assistant.watch.hang import WAITS, Suspicion
from assistant.watch.slowdown import SlowNodes
from assistant.watch.witness import Motion, Witness, WitnessVote, motion_since, witness_of

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

logger = logging.getLogger(__name__)

MOST_NAMED_NODES = 4


def sudden_slowdown(engine: EnginePort, incident: Incident) -> Event | None:
    """Return the event by which a job was seen to become several times slower; None for any other incident."""
    if incident.kind is not EventKind.SLOW_JOB:
        return None
    return next((event for event in reversed(engine.store.events(incident.id)) if event.detail.get(SUDDEN)), None)


def with_slowdown(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return the diagnosis of a living job that became several times slower as just that; any other as it is."""
    event = sudden_slowdown(engine, incident)
    if event is None or job is None or job.state.ended or job.attempt != incident.attempt:
        return diagnosis
    slowed = _slowdown_words(event.detail.get("slowed"))
    own = diagnosis.reason == "slow_job"
    return replace(
        diagnosis,
        reason="slow_job",
        category=Category.NONE,
        action=Action.CORDON_AND_RESTART if slowed else Action.NONE,
        nodes=diagnosis.nodes if own else (),
        root_cause=diagnosis.root_cause if own else (),
        rivals=(),
        summary=f"{_pace(job, event)} {slowed or _without_action(event.detail)}",
        advice=_advice(event.detail, slowed),
    )


def completed_meanwhile(engine: EnginePort, incident: Incident, job: Job) -> str:
    """Return that a job that became several times slower has completed by itself; empty where it has not."""
    if job.state is not JobState.COMPLETED or job.attempt != incident.attempt or sudden_slowdown(engine, incident) is None:
        return ""
    at = f" at {job.ended:%H:%M} UTC" if job.ended is not None else ""
    return f"it completed by itself{at}, slow as it was; it was left alone"


def _pace(job: Job, event: Event) -> str:
    detail = event.detail
    ratio, usual_s, now_s = (float(detail[name]) for name in ("ratio", "usual_s", "now_s"))
    since = datetime.fromisoformat(str(detail["since"]))
    at = f", behind step {detail['from_step']}" if detail.get("from_step") is not None else ""
    nodes = max(1, len(job.nodes))
    return (
        f"Job {job.id} makes its steps {ratio:.1f} times slower than before since {since:%H:%M} UTC{at}: "
        f"{_step_seconds(now_s)} a step instead of {_step_seconds(usual_s)}. "
        f"Each hour of it loses {60 * (1 - usual_s / now_s):.0f} min of {nodes} node{'s' * (nodes > 1)}."
    )


def _step_seconds(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


def _slowdown_words(words_by_node: object) -> str:
    if not isinstance(words_by_node, Mapping) or not words_by_node:
        return ""
    words = [f"{node}: {text}" for node, text in list(words_by_node.items())[:MOST_NAMED_NODES]]
    more = f"; and {len(words_by_node) - MOST_NAMED_NODES} more nodes" if len(words_by_node) > MOST_NAMED_NODES else ""
    return f"Its hardware holds it back: {'; '.join(words)}{more}."


def _without_action(detail: Mapping[str, Any]) -> str:
    parts = ["No GPU of it is held back by heat or power, as far as its nodes answer"]
    parts += [f"not seen: {detail['unseen']}"] if detail.get("unseen") else []
    links = detail.get("links") or {}
    parts += [f"{node}: {text} (since when is not known)" for node, text in list(links.items())[:2]]
    if slow_jobs := detail.get("others"):
        parts.append(
            f"jobs {', '.join(map(str, slow_jobs))} on other nodes became slow at the same time: look at storage and network"
        )
    return f"{'; '.join(parts)}."


def _advice(detail: Mapping[str, Any], slowed: str) -> str:
    if slowed:
        return (
            "See to what holds the node back. The job goes on, slowly: a move costs the steps since its last checkpoint and a "
            "start, and is best made right behind a checkpoint."
        )
    return (
        "Look at what it reads from and writes to, at other load on its nodes, and at the time of a step of each rank. It goes on "
        "by itself; nothing that was seen says that it would be faster on other nodes."
    )


LIVING_KINDS = (EventKind.HANG, EventKind.SLOW_JOB)
MOST_INCIDENTS = 1_000
"""Newest incidents among which those are that still stand."""
CHANGED_CALLS = (CallStatus.DONE, CallStatus.INTENT)
"""Of a change that was made, or may have been."""
MOST_NAMED_JOBS = 2
"""Ended jobs that are named as what a job may wait for."""


def close_resumed(engine: EnginePort) -> list[Incident]:
    """Close the incidents that were handed to a person and whose jobs go on by themselves; return them."""
    closed = []
    for incident in engine.store.incidents(limit=MOST_INCIDENTS, state=IncidentState.ESCALATED):
        if close_if_resumed(engine, incident):
            closed.append(engine.store.incident(incident.id))
    return closed


def close_if_resumed(engine: EnginePort, incident: Incident) -> bool:
    """Close an incident whose job goes on by itself, and withdraw what is asked about it; tell whether it was closed.

    An incident for which the job was ended or started again, or may have been, is about what came of that and stays.
    """
    try:
        note = _progress_since(engine, incident) if incident.kind in LIVING_KINDS else ""
    except (NightshiftError, OSError) as error:
        logger.info("incident=%s whether its job goes on is not known: %s", incident.id, error)
        return False
    if not note:
        return False
    store = engine.store
    mine = {call.id for call in store.calls(incident.id)}
    for waiting in store.approvals():
        if waiting.call in mine:
            store.answer(waiting.id, Verdict.DENY, "watch", why=note)
    store.mark_stage(incident.id, WENT_ON)
    store.set_state(incident.id, IncidentState.CLOSED, note=note)
    logger.warning("incident=%s %s", incident.id, note)
    return True


def _progress_since(engine: EnginePort, incident: Incident) -> str:
    """Return that the job of an incident goes on by itself, and what shows it; empty where that is not so."""
    if engine.replays or incident.job is None or _was_changed(engine, incident):
        return ""
    try:
        job = engine.scheduler.job(incident.job)
    except ToolError:
        return ""
    if completed := completed_meanwhile(engine, incident, job):
        return completed
    if job.state is not JobState.RUNNING or job.attempt != incident.attempt:
        return ""
    if incident.kind is EventKind.SLOW_JOB:
        return _pace_regained(engine, incident, job)
    moved = motion_of(engine, incident, job)
    if not moved.goes_on:
        return _waits_no_more(engine, incident, job)
    step_words = f": it is at step {moved.step}" if moved.step is not None else ": it makes steps again"
    stood = _stalled_step(engine, incident)
    return f"went on by itself{step_words}{stood}; it was left alone"


def _waits_no_more(engine: EnginePort, incident: Incident, job: Job) -> str:
    """Return that a job without steps that waited has gone on with other words; empty for any other."""
    event, view = _wait_of(engine, incident), engine.watcher.view(job.id, job.attempt)
    if event is None or event.detail.get("step") is not None or view is None or view.output_at is None or view.wait.last_at is None:
        return ""
    over = view.wait.waiting(engine.clock.now()) is None and view.output_at > view.wait.last_at
    return f"went on by itself: it waits no more, and had since {event.at:%H:%M} UTC; it was left alone" if over else ""


def motion_of(engine: EnginePort, incident: Incident, job: Job) -> Motion:
    """Return whether the job of a hang has moved since, by its logs.

    Raises:
        Unavailable: Its storage does not answer.
        OSError: A log cannot be read.
    """
    events = engine.store.events(incident.id)
    with reading_as(job.account):
        return within(LOOK_S, lambda: motion_since(job, events), f"the logs of job {job.id}")


def _stalled_step(engine: EnginePort, incident: Incident) -> str:
    hang = next((event for event in engine.store.events(incident.id) if event.kind is EventKind.HANG), None)
    step, since = (hang.detail.get("step"), hang.at) if hang is not None else (None, incident.opened)
    at = f"had stood at step {step}" if isinstance(step, int) else "had stood still"
    return f", and {at} since {since:%H:%M} UTC"


def _pace_regained(engine: EnginePort, incident: Incident, job: Job) -> str:
    view = engine.watcher.view(job.id, job.attempt)
    slow = next((event for event in reversed(engine.store.events(incident.id)) if event.kind is EventKind.SLOW_JOB), None)
    usual_s = slow.detail.get("usual_s") if slow is not None else None
    if view is None or not isinstance(usual_s, int | float):
        return ""
    sudden = sudden_slowdown(engine, incident) is not None
    if not (view.slowdown.is_usual_again(usual_s) if sudden else view.pace.is_usual_again(usual_s, since=incident.opened)):
        return ""
    at = f" at step {view.last_step}" if view.last_step is not None else ""
    return f"went on by itself: it makes its steps as fast as usual again{at}; it was left alone"


def _was_changed(engine: EnginePort, incident: Incident) -> bool:
    """Tell whether a change was made for an incident, or may have been, that its job does not outlive."""
    calls = [call for call in engine.store.calls(incident.id) if call.status in CHANGED_CALLS]
    return any(find_tool(call.tool).risk is Risk.DISRUPT or find_tool(call.tool).kind == "resubmit" for call in calls)


def waiting_job(engine: EnginePort, incident: Incident, job: Job | None) -> str:
    """Return that a living job waits, and for what, so that a person hears of it and nothing is ended; empty for any other.

    A person who asked for the recovery has looked. That no hang was proven is noted: the watch goes on looking.
    """
    event = _wait_of(engine, incident)
    if event is None or job is None or job.state.ended or job.attempt != incident.attempt:
        return ""
    own_server = awaited_own_server(engine, incident, job, event)
    diagnosis = engine.store.diagnosis(incident.id)
    if own_server is not None and own_server.dead and diagnosis is not None and diagnosis.reason == "hang":
        engine.store.mark_stage(incident.id, AWAITS_ITSELF)
        return ""
    engine.store.mark_stage(incident.id, UNPROVEN)
    step = event.detail.get("step")
    at = f" behind step {step}" if isinstance(step, int) else ""
    count = event.detail.get("waits_count")
    times = f"{count} times since {event.at:%H:%M} UTC" if count != 1 else f"with its last words, at {event.at:%H:%M} UTC"
    ended = f" {words}" if (words := _ended_there(engine, job, str(event.detail[WAITS]))) else ""
    server = server_at_fault(engine, incident, job, event) if own_server is None else None
    if server is not None:
        opened = engine.open(event_of_server(server, job, event))
        return (
            f"job {job.id} makes no steps{at}: it waits, and says so {times}: {event.detail[WAITS]!r}. {server.sentence}. That is "
            f"incident {opened.id}; job {job.id} was left running and goes on by itself once it is answered again"
        )
    wait_words = f"job {job.id} makes no steps{at}: it waits, and says so {times}: {event.detail[WAITS]!r}."
    if own_server is not None:
        return f"{wait_words} {own_server.sentence(job)}. It was left running. {own_server.remedy(_with_spec(engine, job))}"
    awaited = awaited_address(engine, incident, job, event)
    if awaited is not None and awaited.never_ends:
        way = f"scontrol requeue {job.id}, or scancel {job.id} and submit it again"
        return f"{wait_words} {awaited.sentence(job)}: {way}. It was left running"
    if awaited is not None and awaited.host_state:
        end = f"If nothing brings that back, end it: scancel {job.id}"
        return f"{wait_words} {awaited.sentence(job)} It was left running.{ended} {end}"
    return (
        f"{wait_words} It was left running and goes on by itself once that is there.{ended} If nothing brings that back, end it: "
        f"scancel {job.id}"
    )


def with_wait(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return the diagnosis of a living job that waits as just that; any other as it is.

    Nothing is done to it, unless it waits for a part of itself that has died.
    """
    event = _wait_of(engine, incident)
    if event is None or job is None or job.state.ended:
        return diagnosis
    words = f"No step since {event.at:%H:%M} UTC: the job waits and tries again, by its own words: {event.detail[WAITS]!r}."
    advice = (
        "Bring back what it waits for; the job goes on by itself then. Do not restart it: that loses its steps and mends nothing."
    )
    own_server = awaited_own_server(engine, incident, job, event)
    if own_server is not None:
        words, advice = f"{words} {own_server.sentence(job)}.", own_server.remedy(_with_spec(engine, job))
        if own_server.dead:
            hang = replace(diagnosis, reason="hang", category=Category.NONE, rivals=(), nodes=())
            return replace(hang, action=Action.RESTART_SAME_NODES, summary=words, advice=advice)
        return replace(diagnosis, action=Action.NONE, nodes=(), summary=words, advice=advice)
    awaited = awaited_address(engine, incident, job, event)
    if awaited is not None and (sentence := awaited.sentence(job)):
        words = f"{words} {sentence}{'.' * awaited.never_ends}"
        advice = (
            f"Start job {job.id} again (scontrol requeue {job.id}, or scancel {job.id} and submit it again): it then reads "
            f"{awaited.now_named} from {awaited.path}. Leave what runs at {awaited.now_named} alone."
            if awaited.never_ends
            else f"Bring {awaited.address.host} back, or start job {job.id} again with the address of what took its place."
        )
    server = server_at_fault(engine, incident, job, event)
    if server is not None:
        # what the kernel says there is no fault of the client
        diagnosis = replace(diagnosis, reason="connection_error", rivals=(), where=())
        words, advice = f"{words} {server.sentence}.", f"{server.sentence}. {advice}"
    return replace(diagnosis, action=Action.NONE, nodes=(), summary=words, advice=advice)


def _with_spec(engine: EnginePort, job: Job) -> Job:
    try:
        return engine.scheduler.job(job.id) if job.spec is None else job
    except NightshiftError:
        return job


def _wait_of(engine: EnginePort, incident: Incident) -> Event | None:
    events = engine.store.events(incident.id)
    if incident.kind is not EventKind.HANG or any(event.kind is EventKind.REQUESTED for event in events):
        return None
    last = next((event for event in reversed(events) if event.kind is EventKind.HANG), None)
    return last if last is not None and last.detail.get(WAITS) else None


def _ended_there(engine: EnginePort, job: Job, line: str) -> str:
    """Return which jobs of the same user ended since a job began, on a node that its line names; empty where none did."""
    hosts = {name.partition(".")[0].lower() for name in re.findall(r"[A-Za-z][\w.-]{0,100}", line)}
    ended = [
        peer
        for peer in engine.watcher.jobs
        if peer.user == job.user
        and peer.id != job.id
        and peer.ended_badly
        and peer.ended is not None
        and (job.started is None or peer.ended >= job.started)
        and any(node.partition(".")[0].lower() in hosts for node in peer.nodes)
    ]
    latest = sorted(ended, key=lambda peer: (peer.ended, peer.id))[-MOST_NAMED_JOBS:]
    return " ".join(
        f"Job {peer.id} ({peer.name}) ran on {', '.join(peer.nodes[:4])} and {peer.state} at {peer.ended:%H:%M} UTC."
        for peer in latest
    )


Answer = TypeVar("Answer")
MOST_JOBS = 4
"""Jobs that are asked at once; more than that at a time is an outage, and they come in turn."""
LOOK_PATIENCE = timedelta(minutes=3)
"""After so long without an answer nobody has seen anything."""
MOST_LOOKS_IN_MEMORY = 512
MOST_STACK_NODES = 16
"""Nodes whose processes are asked for."""
MOST_PROBED = 128
"""Nodes of a slow job that are probed beside the watch."""
PROBED_EVERY = timedelta(minutes=10)
"""Nodes of a job that stays slow are asked once more after so long: heat comes and goes."""
MOST_PROBES = 3


@dataclass
class _Look(Generic[Answer]):
    at: datetime
    times: int = 0
    answer: Answer | None = None


class _NodeLooks(Generic[Answer]):
    """Looks at the nodes of jobs by reading calls, a few at a time; of many answers the oldest are forgotten."""

    def __init__(self, gate: Gate, clock: Clock, *, threaded: bool = False) -> None:
        """Ask through a gate.

        Args:
            gate: Every question is a call, on the record.
            clock: For patience.
            threaded: Whether to ask in a thread; False waits for each answer, for single passes and where time jumps.
        """
        self._gate, self._clock, self.threaded = gate, clock, threaded
        self._looks: dict[Hashable, _Look[Answer]] = {}
        self._threads: list[threading.Thread] = []

    def _has_room(self) -> bool:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        return len(self._threads) < MOST_JOBS

    def _begin(self, key: Hashable, work: Callable[[], Answer], *, name: str) -> _Look[Answer]:
        """Begin a look, in a thread of that name where threads are used; a former answer stays until there is a new one."""
        look = self._looks.setdefault(key, _Look(self._clock.now()))
        look.at, look.times = self._clock.now(), look.times + 1
        while len(self._looks) > MOST_LOOKS_IN_MEMORY:
            del self._looks[next(iter(self._looks))]
        if self.threaded:
            thread = threading.Thread(target=self._finish, args=(look, work), daemon=True, name=name)
            thread.start()
            self._threads.append(thread)
        else:
            self._finish(look, work)
        return look

    @staticmethod
    def _finish(look: _Look[Answer], work: Callable[[], Answer]) -> None:
        look.answer = work()

    def _answered(self, look: _Look[Answer], otherwise: Answer) -> Answer | None:
        """Return the answer of a look; None while it is under way, and what stands for none once that takes too long."""
        if look.answer is None and self._clock.now() - look.at > LOOK_PATIENCE:
            return otherwise
        return look.answer

    def _value(self, name: str, job: Job, arguments: Mapping[str, Any], *, why: str) -> Mapping[str, Any] | None:
        """Return what a tool returned; None where it could not be called or failed."""
        try:
            outcome = self._gate.call(name, arguments, why=why, by="watch")
        except NightshiftError as error:
            logger.info("job=%s %s could not be asked: %s", job.id, name, error)
            return None
        return outcome.value if outcome.ok and isinstance(outcome.value, Mapping) else None


class NodeLook(_NodeLooks[Witness]):
    """A `SecondLook` by the tools `gpu_activity` and `stack_classes`."""

    def ask(self, job: Job, suspicion: Suspicion) -> Witness | None:
        """Return what was seen; None while the answer is under way.

        It is asked when a job is suspected, and again when its hang would be certain without an answer.
        """
        key = (job.id, job.attempt, suspicion.since, suspicion.certain)
        look = self._looks.get(key)
        if look is None:
            if not self._has_room():
                return None
            look = self._begin(key, partial(self._witness, job), name=f"second look at {job.id}")
        return self._answered(look, Witness(WitnessVote.UNKNOWN, "its nodes did not answer in time"))

    def _witness(self, job: Job) -> Witness:
        processes = self._tool("job_processes", job, most_nodes=MOST_STACK_NODES)
        witness = witness_of(self._tool("gpu_activity", job), self._tool("stack_classes", job), processes)
        logger.info("job=%s stands still; second look: %s, %s", job.id, witness.vote, witness.text)
        return witness

    def _tool(self, name: str, job: Job, **more: int) -> Mapping[str, Any] | None:
        return self._value(name, job, {"job": job.id, **more}, why="the job stands still: does it work or wait?")


class PaceNodeLook(_NodeLooks[SlowNodes]):
    """A `PaceLook` by the tool `check_nodes`; a few jobs at once, each a few times."""

    def ask(self, job: Job, since: datetime, lasted_s: float) -> SlowNodes | None:
        """Return what the nodes of a slow job show; None while the answer is under way. What does not answer shows nothing."""
        if not 0 < len(job.nodes) <= MOST_PROBED:
            return SlowNodes(unanswered=f"{len(job.nodes)} nodes were not asked")
        key, now = (job.id, job.attempt, since), self._clock.now()
        look = self._looks.get(key)
        is_due = look is None or (look.answer is not None and look.times < MOST_PROBES and now - look.at > PROBED_EVERY)
        if is_due and self._has_room():
            look = self._begin(key, partial(self._slow_nodes, job), name=f"look at the pace of {job.id}")
        if look is None:
            return None
        return self._answered(look, SlowNodes(unanswered="its nodes did not answer in time"))

    def _slow_nodes(self, job: Job) -> SlowNodes:
        arguments: dict[str, Any] = {"nodes": list(job.nodes)}
        if job.started is not None:
            arguments["job_started"] = job.started.isoformat()
        value = self._value("check_nodes", job, arguments, why="the job became several times slower: why?") or {}
        status_by_node = {node: answer.get("status") for node, answer in value.get("nodes", {}).items()}
        silent = [node for node in job.nodes if status_by_node.get(node, "unknown") == "unknown"]
        unanswered = f"{', '.join(silent[:4])}: no answer" if silent else ""
        slowed = dict(value.get("slowed_words", {}))
        logger.info("job=%s is slow; its nodes: %s", job.id, slowed or unanswered or "nothing is wrong with them")
        return SlowNodes(slowed, dict(value.get("link_words", {})), unanswered)
