"""A cooperative scheduler of actors: every call of the cluster and every transaction of a store is a point where another goes on.

One actor runs at a time, so a schedule (which actor takes each step) fixes everything that happens and can be repeated.
"""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from sqlite3 import Connection, Row
from typing import Any

from assistant.errors import NightshiftError
from assistant.gate import Gate, Park
from assistant.policy import Mode, Policy
from assistant.ports import JumpingClock
from assistant.records import Call, CallStatus, Decision, Event, EventKind, Job, JobSpec, JobState, Verdict
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.simulated_run import Run
from assistant.store import Store
from assistant.tooling import Context, find_tool
from tests.scenarios.scene import START, Killed

WRITES = ("submit", "release", "withdraw", "cancel")
POINTS = ("jobs", "user_jobs", "job", "nodes", "submit", "release", "withdraw", "cancel")


@dataclass
class Actor:
    """A thread that goes on only when it is told to."""

    name: str
    work: Callable[[], object]
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    over: bool = False
    killed: bool = False
    end: object = None
    thread: threading.Thread | None = None


class Baton:
    """Hands the only right to run to one actor after the other."""

    def __init__(self) -> None:
        self.back = threading.Semaphore(0)
        self.actors: list[Actor] = []
        self.touched: set[tuple[str, bool]] = set()
        """What the step that is being taken has read (False) or written (True), by resource."""
        self._by_thread: dict[int, Actor] = {}

    def add(self, name: str, work: Callable[[], object]) -> Actor:
        actor = Actor(name, work)
        self.actors.append(actor)
        actor.thread = threading.Thread(target=self._run, args=(actor,), daemon=True)
        actor.thread.start()
        return actor

    def _run(self, actor: Actor) -> None:
        self._by_thread[threading.get_ident()] = actor
        actor.go.acquire()
        try:
            if not actor.killed:
                actor.end = actor.work()
        except NightshiftError as error:
            actor.end = error
        except Killed:
            actor.end = "killed"
        except BaseException as error:  # noqa: BLE001 - a bug of an actor fails the test that made it
            actor.end = error
        finally:
            actor.over = True
            self.back.release()

    def point(self) -> None:
        """Let somebody else go on; called by whoever has the baton, and without effect outside of actors."""
        actor = self._by_thread.get(threading.get_ident())
        if actor is None:
            return
        self.back.release()
        actor.go.acquire()
        if actor.killed:
            raise Killed

    def step(self, actor: Actor) -> frozenset[tuple[str, bool]]:
        """Let one actor go to its next point, and return what it has read and written on its way there."""
        self.touched = set()
        actor.go.release()
        self.back.acquire()
        return frozenset(self.touched)


class PointStore(Store):
    """A store that stops before each outermost transaction and after its commit."""

    def __init__(self, path: Path, clock: JumpingClock, baton: Baton) -> None:
        self._baton = baton
        super().__init__(path, clock)

    def _connection(self) -> Connection:
        connection = super()._connection()
        if not connection.in_transaction:
            connection.execute("PRAGMA synchronous = OFF")
        return connection

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        if getattr(self._local, "connection", None) is not None and self._connection().in_transaction:
            with super().transaction() as connection:
                yield connection
            return
        self._baton.point()
        self._baton.touched.add((str(self.path), True))
        with super().transaction() as connection:
            yield connection
        self._baton.point()

    def rows(self, sql: str, arguments: Sequence[Any] = ()) -> list[Row]:
        self._baton.touched.add((str(self.path), False))
        return super().rows(sql, arguments)


class PointCluster:
    """The cluster as one actor reaches it: each call is a point."""

    name = "simulated"

    def __init__(self, cluster: SimulatedCluster, baton: Baton, watch_over: Callable[[], None]) -> None:
        self._cluster, self._baton, self._watch_over = cluster, baton, watch_over

    def __dir__(self) -> list[str]:
        return dir(self._cluster)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cluster, name)
        if name not in POINTS:
            return found

        def call(*arguments: Any) -> Any:
            if name not in ("job", "nodes"):  # what they show here does not change before the end
                self._baton.point()
            self._baton.touched.add(("cluster", name in WRITES))
            answer = found(*arguments)
            self._watch_over()
            return answer

        return call


class Night:
    """A failed job on a cluster, the stores of those who want to restart it, and what must hold all the while."""

    def __init__(self, folder: Path, template: Path, stores: int = 1) -> None:
        self.folder, self.clock, self.baton = folder, JumpingClock(START), Baton()
        self.cluster = SimulatedCluster(self.clock, folder, nodes=4)
        self.cluster.plan("llm", Run(fails_at=1), Run(steps=100_000))
        self.old = self.cluster.submit(JobSpec("llm", "#!/bin/sh\nsrun python train.py\n", work_dir=folder, user="alice"))
        self.clock.sleep(60)
        assert self.cluster.job(self.old).state is JobState.FAILED
        self.wrong: list[str] = []
        self.paths: list[Path] = []
        for number in range(stores):
            self.paths.append(folder / f"store{number}.db")
            shutil.copy(template, self.paths[-1])
            with Store(self.paths[-1], self.clock) as store, store.transaction() as connection:
                connection.execute("UPDATE properties SET value = ? WHERE name = 'store_id'", [f"store00{number}"])
                incident, _ = store.open_incident(Event(EventKind.JOB_ENDED, self.old, None, self.clock.now()))
                assert incident.id == 1

    def alive(self) -> list[Job]:
        """Return the jobs of the run that run or may begin at any moment."""
        listed = self.cluster._jobs.values()
        return [job for job in listed if job.name == "llm" and not job.state.ended and not job.held]

    def held(self) -> list[Job]:
        return [job for job in self.cluster._jobs.values() if job.held]

    def look(self) -> None:
        if len(self.alive()) > 1:
            self.wrong.append(f"alive at once: {[(job.id, job.comment) for job in self.alive()]}")

    def gate(self, store: Store) -> Gate:
        cluster: Any = PointCluster(self.cluster, self.baton, self.look)

        def context_for(incident: int | None, tag: str) -> Context:
            return Context(cluster, self.cluster, self.clock, random.Random(0), store, incident=incident, tag=tag)

        return Gate(store, context_for, Policy(mode=Mode.ACT), Park(store, expires_after_s=86_400))

    def store(self, number: int) -> Store:
        return PointStore(self.paths[number], self.clock, self.baton)

    def restart(self, number: int = 0) -> object:
        """Restart the job as the step of a playbook, with one of the stores."""
        with self.store(number) as store:
            arguments = {"job": self.old, "checkpoint": "none"}
            return self.gate(store).call("resubmit_job", arguments, why="it failed", by="playbook:p", incident=1, step="restart")

    def approved(self, number: int = 0) -> Callable[[], object]:
        """Park a person's restart of the job, let it be allowed, and return what makes it."""
        now = self.clock.now()
        with Store(self.paths[number], self.clock) as store:
            given = find_tool("resubmit_job").checked({"job": self.old, "checkpoint": "none"})
            call = store.write_call(Call(0, None, "resubmit_job", given, "", "cli:bob", now, CallStatus.PENDING), kind="resubmit")
            asked = store.park(call.id, Decision(Verdict.ASK, "mode.propose", "policy", now), now + timedelta(days=1))
            assert store.answer(asked, Verdict.ALLOW, "cli:bob")

        def go_on() -> object:
            with self.store(number) as own:
                return self.gate(own).go_on(call.id)

        return go_on

    def play(
        self,
        works: Sequence[Callable[[], object]],
        schedule: Schedule,
        *,
        kill: tuple[int, int] | None = None,
        told: Callable[[frozenset[tuple[str, bool]]], None] = lambda _: None,
    ) -> list[int]:
        """Run the actors to their ends by a schedule, and return how many steps each took.

        Args:
            works: What each actor does.
            schedule: Says who takes each step.
            kill: Actor and the step at which it is killed instead.
            told: Hears after each step what it has read and written.
        """
        actors = [self.baton.add(str(number), work) for number, work in enumerate(works)]
        taken = [0] * len(actors)
        while running := [number for number, actor in enumerate(actors) if not actor.over]:
            number = schedule(sum(taken), running)
            actor = actors[number]
            if kill == (number, taken[number]):
                actor.killed = True
            told(self.baton.step(actor))
            taken[number] += 1
            self.look()
        for actor in actors:
            if actor.thread is not None:
                actor.thread.join(5)
            if isinstance(actor.end, BaseException) and not isinstance(actor.end, NightshiftError):
                raise AssertionError(f"actor {actor.name} failed") from actor.end
        return taken

    def resume(self) -> None:
        """Settle what is left as the next passes do: look up what was interrupted, go on with steps and approved calls."""
        for path in [*self.paths, *self.paths]:  # a call that had to wait for another is made by the pass after that
            with Store(path, self.clock) as store:
                gate = self.gate(store)
                for call in store.calls(status=CallStatus.INTENT):
                    self._try(partial(gate.resolve, call))
                for call in store.calls():
                    if store.outcome(call.id) is None:
                        self._try(partial(gate.go_on, call.id))

    @staticmethod
    def _try(work: Callable[[], object]) -> None:
        with suppress(NightshiftError):
            work()

    def judge(self) -> list[str]:
        """Return what does not hold at the end."""
        wrong = list(self.wrong)
        if self.held():
            wrong.append(f"left held: {[(job.id, job.comment) for job in self.held()]}")
        refusals = []
        for path in self.paths:
            with Store(path, self.clock) as store:
                for call in store.calls():
                    outcome = store.outcome(call.id)
                    if outcome is None:
                        wrong.append(f"call {call.id} of {path.name} is {call.status} and undecided")
                    elif not outcome.ok:
                        refusals.append(outcome.error)
        if not self.alive() and not (refusals and all(refusals)):
            wrong.append("the run is lost, and nobody says why")
        return wrong


Schedule = Callable[[int, Sequence[int]], int]


def switching(first: int, switches: dict[int, int]) -> Schedule:
    """Return the schedule in which one actor runs until a switch or its end.

    Args:
        first: The actor that begins.
        switches: The actor that goes on from a step on, by the number of the step.
    """
    current = [first]

    def choose(step: int, running: Sequence[int]) -> int:
        current[0] = switches.get(step, current[0])
        if current[0] not in running:
            current[0] = running[0]
        return current[0]

    return choose


def following(order: Sequence[int]) -> Schedule:
    """Return the schedule that takes the actors in an order; who is over is passed by."""

    def choose(step: int, running: Sequence[int]) -> int:
        return order[step] if step < len(order) and order[step] in running else running[0]

    return choose


Touched = frozenset[tuple[str, bool]]


@dataclass
class Choice:
    """A step of a run: who may take it, who need not be tried, and who takes it this time."""

    running: tuple[int, ...]
    asleep: dict[int, Touched]
    """Actors whose next step was tried before and commutes with all that was done since."""
    chosen: int
    touched: Touched = frozenset()
    tried: dict[int, Touched] = field(default_factory=dict)


def orders(play: Callable[[Schedule, Callable[[Touched], None]], object]) -> Iterator[bool]:
    """Run every order of the actors' steps that is not the same as an earlier one but for steps that commute.

    Depth-first search with sleep sets (Godefroid 1996): of orders that differ only in neighbouring steps which touch nothing in
    common, or only read what they have in common, one is run.

    Args:
        play: Makes a new world and plays it by a schedule, telling what each step touched.

    Yields:
        After each run whether it was a new order; one that turned out to be the same as an earlier one need not be judged.
    """
    path: list[Choice] = []
    steps: list[int] = []
    while True:
        fresh = [True]

        def choose(step: int, running: Sequence[int], fresh: list[bool] = fresh) -> int:
            steps.append(step)
            if step == len(path):
                before = path[-1] if path else None
                asleep = dict(before.asleep | before.tried) if before is not None else {}
                asleep = {
                    a: t for a, t in asleep.items() if before is not None and a != before.chosen and _commute(t, before.touched)
                }
                awake = [number for number in running if number not in asleep]
                fresh[0] = fresh[0] and bool(awake)
                path.append(Choice(tuple(running), asleep, (awake or list(running))[0]))
            return path[step].chosen

        def told(touched: Touched) -> None:
            path[steps[-1]].touched = touched

        play(choose, told)
        yield fresh[0]
        while path:
            last = path[-1]
            last.tried[last.chosen] = last.touched
            left = [number for number in last.running if number not in last.asleep and number not in last.tried]
            if left and last.chosen not in last.asleep:
                last.chosen = left[0]
                break
            path.pop()
        if not path:
            return


def _commute(one: Touched, other: Touched) -> bool:
    return not any(name == also and (writes or also_writes) for name, writes in one for also, also_writes in other)
