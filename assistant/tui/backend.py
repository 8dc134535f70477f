"""What stands between the screens and Nightshift: asks everything that may block, on lanes, and posts what comes back.

The engine is built behind the first paint, on a lane. Nothing here runs on the thread of the screens but the asking itself.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, TypeVar

from assistant.errors import ChangesStopped, NightshiftError, Parked, Unavailable, UsageError
from assistant.overall_state import longest_gap
from assistant.ports import Clock
from assistant.records import Call, EventKind, IncidentState, Verdict
from assistant.tui.messages import (
    AgentReady,
    Answered,
    ApprovalSettled,
    ChatTrouble,
    ClusterRead,
    Drafted,
    EngineReady,
    KillSwitchRead,
    Lane,
    NotAnswered,
    Noted,
    SourceRead,
    StoreRead,
)
from assistant.tui.snapshot import (
    ApprovalEntry,
    ClusterSnapshot,
    StoreSnapshot,
    UndoSnapshot,
    cluster_snapshot_of,
    leave_undo,
    read_kill_switch,
)
from assistant.tui.store_reading import StoreFile, read_store
from assistant.tui.words import hindrance

if TYPE_CHECKING:
    from textual.message import Message

    from assistant.agent.answer import AnswerSource
    from assistant.content.playbooks import Playbook
    from assistant.engine import Engine
    from assistant.policy import Mode, Policy
    from assistant.ports import Scheduler
    from assistant.store import Store
    from assistant.wiring import Agent

logger = logging.getLogger(__name__)
ReadResult = TypeVar("ReadResult")

CLUSTER_S = 5.0
"""Seconds between two looks at the scheduler; a scheduler that is slow is asked again this long after its answer."""
LEAST_S = 1.0
"""Seconds between two looks at least, also when the store tells that something was done."""
STORE_S = 0.5
"""Seconds between two looks whether another process has written to the store."""
WATCH_GAP = longest_gap(30.0)
"""How long no pass of the watch may see everything, by the shipped settings."""
LOOK_S, AGAIN_S = 2.0, 10.0
"""Seconds until a restarted job is looked at again, and until a step that has to wait is tried again."""


def name_of(scheduler: Scheduler) -> str:
    """Return what Slurm calls the cluster, by its configuration, which is asked once; empty where that is not known (yet)."""
    config = getattr(scheduler, "config", None)
    try:
        return str(config().get("ClusterName", "")) if callable(config) else ""
    except Unavailable:
        return ""


class AnswerCancelled(NightshiftError):
    """The person waits for an answer no longer."""


class Starts(Protocol):
    """Builds what the chat stands on; called once, on a lane."""

    def engine(self) -> Engine:
        """Return an engine whose questions wait in the inbox."""
        ...

    def agent(self, engine: Engine, thread: str) -> tuple[Agent, str]:
        """Return what answers questions in a conversation, and in which mode: `words`, `embedded`, `model:<name>`."""
        ...


class ChatBackend:
    """Asks for the screens."""

    def __init__(
        self,
        starts: Starts,
        post: Callable[[Message], object],
        *,
        by: str,
        owner: str,
        clock: Clock,
        gap: timedelta = WATCH_GAP,
        configured: bool = True,
    ) -> None:
        """Take a seat; nothing is opened before `open`.

        Args:
            starts: Builds engine and agent.
            post: Takes messages from any thread.
            by: The person, `chat:alice`.
            owner: Under which name this process holds incidents.
            clock: For ages; sleeping is the lanes' own.
            gap: How long no pass of the watch may see everything.
            configured: Whether anybody has said where jobs run.
        """
        self._starts, self._post = starts, post
        self.by, self._owner, self.clock = by, owner, clock
        self.gap, self.configured = gap, configured
        self._engine: Engine | None = None
        self._store_file: StoreFile | None = None
        self._store_snapshot: StoreSnapshot | None = None
        self._cluster_name = ""
        self._engine_lock, self._closed = threading.Lock(), threading.Event()
        self._changed = threading.Event()
        self._playbooks: Mapping[str, Playbook] = {}
        self._agent: Agent | None = None
        self._unwanted: set[int] = set()
        """The calls that this person takes back, by the approvals that this waits for."""
        self.again_s = AGAIN_S
        self._cluster = ClusterSnapshot()
        self._version: tuple[object, ...] = ()
        self._mode: Mode | None = None
        self._lanes = {name: Lane(name, self._failed) for name in ("store", "cluster", "agent", "act", "read", "nodes", "stop")}
        self.thread = ""

    def open(self, thread: str = "") -> None:
        """Begin: build the engine, then look at the store and the scheduler again and again, and make the agent ready."""
        self.thread = thread
        self._lanes["store"].ask("watch", self._watch_store)
        self._lanes["cluster"].ask("watch", self._watch_cluster)
        self._lanes["agent"].ask("ready", self._ready)

    def close(self) -> None:
        """Stop looking. What hangs is not waited for."""
        self._closed.set()
        self._changed.set()
        for lane in self._lanes.values():
            lane.close()

    @property
    def engine(self) -> Engine:
        """The engine; call on a lane only.

        Raises:
            StoreError: Another file lies where its store was opened, or none.
        """
        engine = self._built()
        if self._store_file is not None:
            self._store_file.must_stand()
        return engine

    def _built(self) -> Engine:
        with self._engine_lock:
            if self._engine is None:
                self._engine = self._starts.engine()
                import_module("assistant.tui.widgets.exchange")  # here, and not while the first question is typed
                self._store_file = StoreFile(self._engine.store.path)
                self._playbooks = self._engine.playbooks
            return self._engine

    @property
    def playbooks(self) -> Mapping[str, Playbook]:
        """All playbooks by name; none before the engine stands."""
        return self._playbooks

    def now(self) -> datetime:
        """Return the time."""
        return self.clock.now()

    def read(
        self, kind: str, work: Callable[[Engine], ReadResult], to_message: Callable[[ReadResult], Message], *, lane: str = "read"
    ) -> None:
        """Read something and post the message made of it; a newer request of the same kind replaces one that waits.

        Args:
            kind: What it replaces.
            work: Reads; runs on the lane.
            to_message: Makes a message of what was read; runs on the lane.
            lane: `read`; `nodes` for what takes as long as machines take to answer; `act` for what changes something.
        """
        self._lanes[lane].ask(kind, lambda: self._tell(to_message(work(self.engine))))

    def leave_undo(self, undo: UndoSnapshot) -> None:
        """Withdraw the prepared call of an undo that the person has left."""
        # on the lane on which undos are prepared: one that is looked at next is prepared after this
        if undo.undo is not None:
            self._lanes["read"].ask(f"leave undo {undo.undo.id}", lambda: leave_undo(self.engine, undo, self.by))

    def ask(self, number: int, question: str) -> None:
        """Let the agent answer a question, and tell what it looks at and what it says meanwhile."""
        mark = time.monotonic()

        def listener(piece: AnswerSource | str) -> None:
            nonlocal mark
            self._refuse_unwanted(number)
            took_s, mark = time.monotonic() - mark, time.monotonic()
            if not isinstance(piece, str):
                self._tell(SourceRead(number, piece, took_s))
            elif piece:
                self._tell(Drafted(number, piece))

        def answer() -> None:
            nonlocal mark
            try:
                agent, mark = self._ready(), time.monotonic()
                self._refuse_unwanted(number)
                reply: Message = Answered(number, agent.ask(question, listener=listener))
            except Exception as error:
                if number not in self._unwanted:
                    self._tell(NotAnswered(number, str(error) or type(error).__name__))
                if not isinstance(error, NightshiftError):
                    raise
            else:
                if number not in self._unwanted:
                    self._tell(reply)

        self._lanes["agent"].ask(f"question {number}", answer)

    def unask(self, number: int) -> None:
        """Wait no longer for an answer: the agent stops at its next call or word, and what it says is dropped."""
        self._unwanted.add(number)

    def _refuse_unwanted(self, number: int) -> None:
        if number in self._unwanted:
            raise AnswerCancelled("the person waits for this answer no longer")

    def talk_in(self, thread: str) -> None:
        """Go on in another conversation: the agent remembers that one."""
        self.thread = thread

        def anew() -> None:
            self._agent = None
            self._ready()

        self._lanes["agent"].ask("ready", anew)

    def act(self, number: int, kind: str, work: Callable[[Engine], str]) -> None:
        """Do something that a person typed, and tell in the conversation what came of it, as Markdown, or why nothing did."""

        def tried() -> None:
            try:
                self._tell(Noted(number, work(self.engine)))
            except NightshiftError as error:
                self._tell(NotAnswered(number, hindrance(error)))

        self._lanes["act"].ask(kind, tried)

    def tell(self, message: Message) -> None:
        """Tell the screens something, from a lane."""
        self._tell(message)

    def settle(self, approval: int, verdict: Verdict, why: str = "", *, snapshot: ApprovalEntry | None = None) -> None:
        """Answer an approval, as this person; when it is a yes and nobody was faster, go on with what waited.

        Args:
            approval: Which.
            verdict: Allow or deny.
            why: For the audit.
            snapshot: The change as the person saw it: when it is another one by now, nothing is answered.
        """
        self._lanes["act"].ask(f"settle {approval}", lambda: self._settle(approval, verdict, why, snapshot))

    def stop(self, number: int, why: str) -> None:
        """Set the kill switch, on a lane that waits for no other work; tell in the conversation what came of it."""
        from assistant.gate.stops import set_kill_switch

        def work(store: Store, policy: Policy) -> str:
            path = set_kill_switch(store, policy, by=self.by, why=why)
            return (
                f"**Stopped.** Nightshift changes nothing while `{path}` exists; what waits for you stays. `/stop --lift` ends it."
            )

        self._switch(number, "set", work)

    def lift(self, number: int) -> None:
        """Lift the kill switch, and tell in the conversation what came of it."""
        from assistant.gate.stops import lift_kill_switch

        def work(store: Store, policy: Policy) -> str:
            lifted, still_set = lift_kill_switch(store, policy, by=self.by)
            sentences = [f"`{path}` was lifted." for path in lifted]
            sentences += [f"`{path}` is still set: {why}. While it exists nothing is changed." for path, why in still_set]
            return " ".join(sentences) or "No kill switch is set."

        self._switch(number, "lift", work)

    def _switch(self, number: int, kind: str, work: Callable[[Store, Policy], str]) -> None:
        def tried() -> None:
            engine = self._built()
            try:
                # a switch stops everything also where the store is gone, and then without a row in its audit
                store = engine.store if self._store_file is None else self._store_file.store_or_refusal(engine.store)
                self._tell(Noted(number, work(store, engine.gate.policy)))
            except NightshiftError as error:
                self._tell(NotAnswered(number, str(error)))
            self._look_at_kill_switch()

        self._lanes["stop"].ask(kind, tried)

    def go_on(self, incident: int, *, by_person: bool) -> None:
        """Work on an incident until it ends, waits for a person or can go no further; `by_person` says that a person wants it."""
        self._lanes["act"].ask(f"incident {incident}", lambda: self.drive(incident, by_person=by_person))

    def look_again(self) -> None:
        """Read the store now."""
        self._version = ()

    def _settle(self, approval: int, verdict: Verdict, why: str, approval_shown: ApprovalEntry | None) -> None:
        engine = self.engine
        switch = read_kill_switch(engine.gate.policy.kill_switch)
        if verdict is Verdict.ALLOW and switch is not None:
            # an answer given now would be used up by the gate's refusal
            text = f"approval {approval} was kept, not answered: the kill switch {switch.path} is set; /stop --lift, then allow it"
            self._tell(ApprovalSettled(approval, won=False, text=text, waits=True))
            return
        if approval_shown is not None and engine.store.call(approval_shown.call.id).preview != approval_shown.call.preview:
            text = f"approval {approval} was not answered: it is about another command now; look at it again"
            self._tell(ApprovalSettled(approval, won=False, text=text, waits=True))
            return
        from assistant.engine.reconciliation import outlives_incident  # brings the watch along: not before the first paint

        digest = (approval_shown.approval.digest or None) if approval_shown is not None else None
        try:
            won = engine.store.answer(approval, verdict, self.by, why=why, digest=digest)
        except UsageError as error:
            self._tell(ApprovalSettled(approval, won=False, text=f"not answered: {error}", waits=True))
            return
        settled = engine.store.approval(approval)
        call = engine.store.call(settled.call)
        change = call.preview or call.tool
        if not won:
            late = f"was answered already: {settled.verdict} by {settled.by}" if settled.verdict else "has expired"
            self._tell(ApprovalSettled(approval, won=False, text=f"approval {approval} {late}"))
            return
        self._tell(ApprovalSettled(approval, won=True, text=f"{'allowed' if verdict is Verdict.ALLOW else 'refused'}: {change}"))
        if call.incident is not None and call.step is not None and not outlives_incident(engine, call):
            self.drive(call.incident, by_person=engine.store.incident(call.incident).kind is EventKind.REQUESTED)
        elif verdict is Verdict.ALLOW:
            self._tell(self._carry_out(approval, call, change))

    def _carry_out(self, approval: int, call: Call, change: str) -> ApprovalSettled:
        """Make a call that was allowed, and return what came of it."""
        try:
            outcome = self.engine.gate.go_on(call.id)
        except NightshiftError as error:
            waits = isinstance(error, (ChangesStopped, Parked))
            return ApprovalSettled(approval, won=False, text=hindrance(error, "allowed, not done"), waits=waits)
        text = f"done: {change}" if outcome.ok else f"failed: {change}: {outcome.error}"
        return ApprovalSettled(approval, won=outcome.ok, text=text)

    def drive(self, incident: int, *, by_person: bool) -> None:
        """Work on an incident; where it only waits for a restarted job, look again on the lane, between other work.

        Where a watch holds it, that goes on with it; should the watch die meanwhile, this chat takes over.
        """
        end = self.engine.work(incident, owner=self._owner, by=self.by if by_person else None)
        wait = {IncidentState.VERIFYING: LOOK_S, IncidentState.RECOVERING: AGAIN_S}.get(end.state)
        if end.owner not in (None, self._owner) and not end.state.ended:
            wait = self.again_s
        if wait is not None and not self._closed.is_set():
            timer = threading.Timer(wait, partial(self.go_on, incident, by_person=by_person))
            timer.daemon = True
            timer.start()

    def _watch_store(self) -> None:
        engine = self._built()
        while not self._closed.is_set():
            self._look_at_kill_switch()
            try:
                policy = engine.gate.in_force.look()
                version = (*self.engine.store.version(), policy.digest, policy.problem)
                if version != self._version:
                    self._version = version
                    self._changed.set()
                    self._store_snapshot = read_store(engine.store, self.now(), policy, self._store_snapshot)
                    self._tell(StoreRead(self._store_snapshot))
            except NightshiftError as error:
                self._version = ()
                self._tell(ChatTrouble("store", str(error)))
            self._closed.wait(STORE_S)

    def _look_at_kill_switch(self) -> None:
        policy = self._built().gate.policy
        self._tell(KillSwitchRead(read_kill_switch(policy.kill_switch)))
        if policy.mode != self._mode:
            self._mode = policy.mode
            self._tell(EngineReady(str(policy.mode)))

    def _watch_cluster(self) -> None:
        scheduler = self._built().scheduler
        while not self._closed.is_set():
            try:
                jobs, nodes = scheduler.jobs(), scheduler.nodes()
                self._cluster_name = self._cluster_name or name_of(scheduler)
                name = self._cluster_name or scheduler.name
                self._cluster = cluster_snapshot_of(self.now(), jobs, nodes, name=name, configured=self.configured)
            except Unavailable as error:
                self._cluster = dataclasses.replace(self._cluster, trouble=str(error))
            self._tell(ClusterRead(self._cluster))
            if not self._closed.wait(LEAST_S):
                self._changed.wait(CLUSTER_S - LEAST_S)
                self._changed.clear()

    def _ready(self) -> Agent:
        engine = self.engine  # an answer from a store that is away would be about the past
        if self._agent is None:
            self._agent, mode = self._starts.agent(engine, self.thread)
            self._tell(AgentReady(mode))
        return self._agent

    def _failed(self, lane: str, error: Exception) -> None:
        if not isinstance(error, NightshiftError):
            logger.error("lane=%s stopped", lane, exc_info=error)
        self._tell(ChatTrouble(lane, str(error) or type(error).__name__))

    def _tell(self, message: Message) -> None:
        if not self._closed.is_set():
            self._post(message)
