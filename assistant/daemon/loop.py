"""The daemon: passes until a signal ends it; each leads or stands by, looks, has incidents worked on, and reports its result.

A pass never waits for an incident that hangs (a silent node, a slow probe): each is worked on by a thread of a small pool, the pass
goes on and says what is still in flight. Nothing is concluded from what could not be seen, and a pass that could not see everything
is no sign of life (see `pass_result`).

One pass from cron is told to all that hear of a daemon's passes: the status, notifications, a heartbeat, a textfile.
"""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from types import FrameType
from typing import Any, NoReturn, ParamSpec, TypeVar

from assistant import processes
from assistant.config import Settings
from assistant.daemon.journal import Systemd
from assistant.daemon.pass_reports import pass_listeners
from assistant.daemon.pass_result import JudgedTroubles, PassListener, PassResult, TroubleJudge
from assistant.engine import Engine
from assistant.engine.ownership import SEEK_S, Leader, owner_name
from assistant.errors import Fenced, NightshiftError, StoreError, Unavailable
from assistant.policy import short_digest
from assistant.records import Incident
from assistant.store import Store
from assistant.watch.attempts import Extent, Remark, Trouble

logger = logging.getLogger(__name__)

WORKERS = 8
"""Incidents that are worked on side by side."""
HANGS_S = 900.0
"""Work that takes longer is told of: every question has a deadline, but a read from a storage that hangs has none."""
PATIENCE_S = 2.0
"""How long a pass waits for the incidents it gave out, before it goes on without them; a quarter of the poll where that is less."""


@dataclass
class Watchdog:
    """Watches a cluster until it is told to stop."""

    engine: Engine
    owner: str
    """Under which name this process leads and holds incidents."""
    poll_s: float
    listeners: Sequence[PassListener] = ()
    workers: int = WORKERS
    patience_s: float = -1.0
    """How long a pass waits; negative: as PATIENCE_S says."""
    leader: Leader = field(init=False)

    def __post_init__(self) -> None:
        if self.patience_s < 0:
            # the next look must not be late because something is worked on
            self.patience_s = min(PATIENCE_S, self.poll_s / 4)
        self.leader = Leader(self.engine.store, self.owner, clock=self.engine.clock)
        self._pool = IncidentWorkers(self.workers)
        self._flying: dict[int | str, Future[object]] = {}
        self._stopping = threading.Event()
        self._judge = TroubleJudge(self.engine.store, self.owner)
        self._troubles: list[Trouble] = []
        self._remarks: list[Remark] = []
        self._lock = threading.Lock()

    def run(self) -> None:
        """Make passes until `stop`, then finish the calls that are being made."""
        try:
            while not self._stopping.is_set():
                pass_result = self.look()
                interval_s = self.poll_s if pass_result.leads else min(SEEK_S, self.poll_s)
                self._stopping.wait(max(interval_s - pass_result.seconds, interval_s / 4))
        finally:
            self.finish()

    def stop(self) -> None:
        """Let the pass that is being made be the last; safe to call from a signal handler."""
        self._stopping.set()

    def finish(self) -> None:
        """Wait for the calls that are being made; nothing new is begun."""
        self._stopping.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def close(self) -> None:
        """Finish, give leadership back, and tell the listeners that the watch ends on purpose."""
        self.finish()
        try:
            self.leader.resign()
        except StoreError as error:
            logger.warning("leadership was not given back, its lease runs out by itself: %s", error)
        for listener in self.listeners:
            listener.close()

    def look(self) -> PassResult:
        """Make one pass and return what came of it; raises nothing that a later pass may survive."""
        began, at = time.monotonic(), self.engine.clock.now()
        opened: list[Incident] = []
        try:
            leads = self.leader.seek()
        except StoreError as error:
            leads = False
            self._note(Trouble("the store", str(error), Extent.ALL))
        if leads:
            opened = self._noticed()
            self._give_out()
        judged = self._judged(at, leads=leads)
        pass_result = PassResult(
            at,
            time.monotonic() - began,
            leads,
            judged.trouble,
            tuple(incident.id for incident in opened),
            len(self._unfinished()) if leads else 0,
            len(self._flying),
            judged.announced,
        )
        for listener in self.listeners:
            listener.report(pass_result)
        return pass_result

    def _noticed(self) -> list[Incident]:
        """Open an incident for what is new."""
        try:
            opened = self.engine.look()
            self._note(*self.engine.watcher.trouble)
            self._note(*self.engine.taken_troubles())
            self._remark(*self.engine.watcher.remarks)
            return opened
        except Unavailable as error:
            self._note(Trouble("the scheduler", str(error), Extent.ALL))
        except Fenced as error:
            logger.warning("%s", error)
        except NightshiftError as error:
            logger.exception("the look at the cluster failed")
            self._note(Trouble("the look", str(error), Extent.ALL))
        except Exception as error:
            # the daemon outlives a fault that nobody foresaw; the pass is no sign of life
            logger.exception("the look at the cluster failed")
            self._note(Trouble("the look", f"{type(error).__name__}: {error}", Extent.ALL))
        return []

    def _give_out(self) -> None:
        """Let every unfinished incident be worked on that is not in flight, and wait a little for them."""
        self._pool.relieve()
        for incident in self._unfinished():
            self._fly(incident.id, partial(self.engine.attend, incident.id, owner=self.owner, until=self._stopping.is_set))
        self._fly("allowed calls", self.engine.make_allowed)
        self._fly("leases", self.engine.settle_leases)
        for name, look in self.engine.looks().items():
            self._fly(name, look)
        wait(list(self._flying.values()), self.patience_s)
        self._flying = {work_name: flight for work_name, flight in self._flying.items() if not flight.done()}
        busy_s = self._pool.busy_s()
        for work_name, flight in self._flying.items():
            if (for_s := busy_s.get(flight, 0.0)) > HANGS_S:
                self._note(
                    Trouble(
                        _work_label(work_name),
                        f"{_work_label(work_name)}: in work for {for_s / 60:.0f} min, what it waits for may hang",
                    )
                )

    def _fly(self, work_name: int | str, work: Callable[[], object]) -> None:
        if work_name not in self._flying and not self._stopping.is_set():
            self._flying[work_name] = self._pool.submit(self._complete, work_name, work)

    def _complete(self, work_name: int | str, work: Callable[[], object]) -> None:
        """Do a piece of work; whatever goes wrong with it is told by the next pass and tried again by it."""
        try:
            work()
        except Fenced as error:
            logger.warning("%s", error)
        except NightshiftError as error:
            self._note(Trouble(_work_label(work_name), f"{_work_label(work_name)}: {error}"))
        except Exception as error:
            logger.error("%s could not be worked on", work_name, exc_info=error)
            self._note(Trouble(_work_label(work_name), f"{_work_label(work_name)}: {type(error).__name__}: {error}"))

    def _unfinished(self) -> list[Incident]:
        try:
            return list(reversed(self.engine.store.incidents(open_only=True, limit=10_000)))
        except StoreError as error:
            self._note(Trouble("the store", str(error), Extent.ALL))
            return []

    def _note(self, *troubles: Trouble) -> None:
        with self._lock:
            self._troubles += troubles

    def _remark(self, *remarks: Remark) -> None:
        with self._lock:
            self._remarks += remarks

    def _judged(self, at: datetime, *, leads: bool) -> JudgedTroubles:
        """Return what this pass did not see; only a leader tells of it."""
        with self._lock:
            troubles, self._troubles = list(dict.fromkeys(self._troubles)), []
            remarks, self._remarks = self._remarks, []
        for trouble in troubles:
            logger.log(logging.DEBUG if trouble.extent is Extent.SET_ASIDE else logging.WARNING, "%s", trouble.text)
        if not leads:
            return JudgedTroubles(tuple(trouble.text for trouble in troubles))
        self._judge.keep([*remarks, *self.engine.good_runs.taken_remarks()], at)
        return self._judge.judge(troubles, at)


def _work_label(work: int | str) -> str:
    return work if isinstance(work, str) else f"incident {work}"


# Threads that work on incidents, and are not all kept by work that never ends.
#
# A read from a storage that hangs cannot be broken off: its thread is left to it, and after a while another one takes its place,
# so that eight incidents whose logs lie there keep no others waiting. When the process ends nobody waits for such threads.

P = ParamSpec("P")
T = TypeVar("T")

RELIEF_S = 60.0
"""Work that takes longer keeps its thread and no place: most work takes seconds, and what takes minutes waits for something."""
MOST_THREADS = 64
"""Threads, the ones that hang included."""


class IncidentWorkers(Executor):
    """An executor of threads that gives the place of a thread that hangs to another one."""

    def __init__(self, places: int, *, relief_s: float = RELIEF_S, most: int = MOST_THREADS) -> None:
        """Let so many work side by side, that many of them at most counted as at work."""
        self._places, self._relief_s, self._most = places, relief_s, most
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._busy: dict[threading.Thread, tuple[Future[Any], float]] = {}
        self._idle = 0
        self._threads = 0
        self._closed = False

    def submit(self, work: Callable[P, T], /, *args: P.args, **keywords: P.kwargs) -> Future[T]:
        """Let a piece of work be done when there is a place."""
        future: Future[T] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError("the workers have been shut down")
            self._waiting.append((future, lambda: work(*args, **keywords)))
            self._hire()
        return future

    def relieve(self) -> None:
        """Replace those who hang, where something waits; call it now and then."""
        with self._changed:
            for _ in self._waiting:
                self._hire()

    def busy_s(self) -> dict[Future[Any], float]:
        """Return for how long each piece of work is being done."""
        now = time.monotonic()
        with self._changed:
            return {future: now - began for future, began in self._busy.values()}

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take nothing more; wait for what is being done, but not for what hangs."""
        with self._changed:
            self._closed = True
            if cancel_futures:
                for future, _ in self._waiting:
                    future.cancel()
                self._waiting.clear()
            self._changed.notify_all()
            while wait and (self._waiting or self._at_work()):
                self._changed.wait(0.5)

    def _at_work(self) -> int:
        """Return how many are busy and do not hang."""
        now = time.monotonic()
        return sum(now - began < self._relief_s for _, began in self._busy.values())

    def _hire(self) -> None:
        hang = len(self._busy) - self._at_work()
        if self._idle >= len(self._waiting):
            self._changed.notify()
        elif self._threads - hang < self._places and self._threads < self._most:
            self._threads += 1
            threading.Thread(target=self._work, daemon=True, name=f"incident-{self._threads}").start()

    def _work(self) -> None:
        me = threading.current_thread()
        while True:
            with self._changed:
                while not self._waiting or self._at_work() >= self._places:
                    if self._closed and not self._waiting:
                        self._threads -= 1
                        return
                    self._idle += 1
                    self._changed.wait(self._relief_s if self._waiting else None)
                    self._idle -= 1
                future, work = self._waiting.popleft()
                if not future.set_running_or_notify_cancel():
                    continue
                self._busy[me] = (future, time.monotonic())
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - whoever waits for the result gets it
                self._complete(me)
                future.set_exception(error)
            else:
                self._complete(me)
                future.set_result(result)
            del work, future

    def _complete(self, me: threading.Thread) -> None:
        with self._changed:
            del self._busy[me]
            self._changed.notify_all()


# Be the service: passes until SIGTERM or SIGINT, with new settings after SIGHUP.
#
# A reload is a new start of the same process. The new settings, policy and content are checked by `nightshift config check`
# first, and what is wrong with them is said while the old ones go on. Then the calls that are being made are finished and the
# program is executed anew under the same process id: it is the same owner, so it goes on leading, and nothing of the old settings
# is left.

CHECK_S = 60.0


def serve(settings: Settings, engine: Engine, *, options: Sequence[str], program: Sequence[str]) -> None:
    """Watch until told to stop; returns when the last call is finished.

    Args:
        settings: That hold now.
        engine: Built from them, with an approver that parks.
        options: Global options of this command, for the check and the new start: `--config FILE`.
        program: The command that runs Nightshift, as words.
    """
    owner = owner_name("watch")
    listeners = pass_listeners(settings, engine.store, owner=owner, in_force=engine.gate.in_force)
    dog = Watchdog(engine, owner, settings.watch.poll_s, listeners)
    signals: list[int] = []

    def on_signal(number: int, _: FrameType | None) -> None:
        signals.append(number)
        dog.stop()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    policy = engine.gate.in_force.look()
    logger.info("watches every %g s as %s, mode %s", settings.watch.poll_s, owner, policy.mode)
    if policy.problem:
        logger.error("policy: cannot be obeyed, every change is refused until it is whole: %s", policy.problem)
    logger.info("policy: digest %s, from %s", short_digest(policy.digest), ", ".join(map(str, policy.files)) or "no file")
    try:
        while True:
            dog.run()
            if signal.SIGHUP not in signals or len(set(signals)) > 1:
                return
            signals.clear()
            if _right([*program, *options]):
                _restart([*program, *options, "watch"], [listener for listener in listeners if isinstance(listener, Systemd)])
            dog = Watchdog(engine, owner, settings.watch.poll_s, listeners)
    finally:
        dog.close()
        for number, handler in before.items():
            signal.signal(number, handler)
        logger.info("the watch has ended")


def _right(program: Sequence[str]) -> bool:
    """Tell whether the new settings, policy and content are right; what is wrong is logged."""
    try:
        check = processes.run(
            [*program, "config", "check"],
            environment=processes.own_environment(),
            capture_output=True,
            text=True,
            timeout=CHECK_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        logger.error("the new settings could not be checked, the old ones stay: %s", error)
        return False
    if check.returncode:
        logger.error("the new settings are wrong, the old ones stay: %s", check.stderr.strip())
    return check.returncode == 0


def _restart(command: Sequence[str], systemd: Sequence[Systemd]) -> NoReturn:
    """Execute the program anew; the store, the leadership and the incidents' leases wait for it."""
    for speaker in systemd:
        speaker.reloading()
    logger.info("reads its settings again")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    processes.replace_itself(command)


def pass_once(
    tick: Callable[[], Sequence[Incident]], settings: Settings, store: Store, engine: Engine | None = None
) -> Sequence[Incident]:
    """Make a pass, tell of it, and return what it worked on.

    Args:
        tick: Makes the pass: `Engine.tick`.
        settings: Say who is told; no server is opened for a moment.
        store: Of the engine.
        engine: Says what the pass could not see, and what is worth a remark.

    Raises:
        NightshiftError: What the pass raised, when that was told.
    """
    # one name for all passes of this host: each is a process of its own
    quiet = replace(settings, metrics=replace(settings.metrics, listen=""))
    owner = f"once@{socket.gethostname()}"
    listeners, trouble_judge = (
        pass_listeners(quiet, store, owner=owner, in_force=engine.gate.in_force if engine is not None else None),
        TroubleJudge(store, owner),
    )
    began, at, failure = time.monotonic(), store.clock.now(), "the pass was broken off"
    try:
        worked = tick()
        failure = ""
    except NightshiftError as error:
        failure = str(error)
        raise
    finally:
        troubles = [Trouble("the pass", failure, Extent.ALL)] if failure else []
        remarks: list[Remark] = []
        if engine is not None:
            troubles += [*engine.watcher.trouble, *engine.taken_troubles()]
            remarks += [*engine.watcher.remarks, *engine.good_runs.taken_remarks()]
        trouble_judge.keep(remarks, at)
        judged = trouble_judge.judge(troubles, at)
        pass_result = PassResult(
            at, time.monotonic() - began, True, judged.trouble, unfinished=_unfinished(store), announced=judged.announced
        )
        _tell(listeners, pass_result)
    return worked


def _unfinished(store: Store) -> int:
    try:
        return len(store.incidents(open_only=True, limit=10_000))
    except StoreError:
        # what the pass itself raised says more
        return 0


def _tell(listeners: Sequence[PassListener], pass_result: PassResult) -> None:
    for listener in listeners:
        listener.report(pass_result)
    for listener in listeners:
        listener.close()
