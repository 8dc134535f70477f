"""A failed job on a cluster and those who want to restart it, each access of whom is a point of the search (`explorer.py`)."""

from __future__ import annotations

import hashlib
import pickle
import random
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from sqlite3 import Connection, Row
from typing import Any

from assistant import untrusted
from assistant.engine.reconciliation import withdraw_orphaned_jobs
from assistant.errors import NightshiftError, ToolError
from assistant.gate import Gate, Park
from assistant.gate import gate as gate_module
from assistant.gate import running as running_module
from assistant.policy import Mode, Policy
from assistant.ports import JumpingClock
from assistant.records import Call, CallStatus, Decision, Event, EventKind, Job, JobSpec, JobState, Verdict, tag_of
from assistant.recover import job_program, joblog
from assistant.recover.checkpoints.search import search_checkpoints
from assistant.recover.resume.script import resume_way
from assistant.redact.text import redact
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.store import Store
from assistant.store.seals import mark_path
from assistant.tooling import Context, find_tool
from assistant.tools import resubmit
from tests.adversary.explorer import Actors
from tests.scenarios.scene import START

READS = {"jobs": "jobs", "user_jobs": "jobs", "nodes": "nodes"}
"""Calls of the cluster that only read, with what they show."""
WRITES = ("submit", "release", "withdraw", "cancel", "requeue")
PURE = ("command_lines",)
"""Calls that answer from their arguments alone."""
TABLE = re.compile(r"(?i)\b(?:FROM|JOIN|UPDATE|INTO)\s+(?:main\.)?\"?([a-z_]+)")
WRITTEN_TABLE = re.compile(r"(?i)^\s*(?:INSERT(?: OR \w+)? INTO|REPLACE INTO|UPDATE|DELETE FROM)\s+(?:main\.)?\"?([a-z_]+)")
READERS: tuple[tuple[Any, str], ...] = (
    (gate_module, "reach_of"),
    (gate_module, "rendered_change"),
    (running_module, "reach_of"),
    (Gate, "_moot"),
    (Gate, "_settle"),
    (Gate, "_must_still_be_allowed"),
    (resubmit, "plan_submission"),
    (resubmit, "_first_of_call"),
    (resubmit, "_must_win"),
)
"""Functions that read, and of whose reading nothing stays but the answer and, of the last look, its own record."""
FILE_READERS = (joblog.log_lines, joblog.log_points, job_program.programs_of, search_checkpoints, resume_way, redact)
"""Functions of their arguments and of files, which do not change while the search runs."""
ORDER_ONLY = {"hash", "min(id)"}
"""Columns by which a row of the audit is known: it has numbers and a chain that tell the order and decide nothing."""


class PointStore(Store):
    """A store that stops before each outermost transaction and before each read outside of one."""

    def __init__(self, path: Path, clock: JumpingClock, actors: Callable[[], Actors | None]) -> None:
        self._actors = actors
        super().__init__(path, clock)

    def close(self) -> None:
        """Stay open: the next play uses the same connections."""

    def _connection(self) -> Connection:
        connection = super()._connection()
        if getattr(self._local, "observed", None) is not connection:
            connection.execute("PRAGMA synchronous = OFF")
            connection.row_factory = self._observe
            connection.set_trace_callback(self._trace)
            self._local.observed = connection
        return connection

    def _observe(self, cursor: sqlite3.Cursor, values: tuple[Any, ...]) -> Row:
        actors = self._actors()
        if (
            actors is not None
            and not getattr(self._local, "prepares", False)
            and not ORDER_ONLY & {column[0] for column in cursor.description}
        ):
            actors.observes(repr(values))
        return Row(cursor, values)

    def _before_begin(self, connection: Connection) -> None:
        self._local.prepares = True  # what it reads of the schema is no reading of an actor
        super()._before_begin(connection)
        self._local.prepares = False

    def _after_begin(self, connection: Connection) -> None:
        """Compare no schema: nobody writes past the stores here, and each of those looks costs as much as a step."""

    def _foreign_or_broken_index(self, connection: Connection) -> str:
        """Compare no index, for the same reason."""
        return ""

    def written_since_check(self) -> bool:
        """Let every decision verify the store: whether somebody has written since is told by a number that no play repeats."""
        return True

    def _trace(self, sql: str) -> None:
        actors = self._actors()
        if actors is not None and (found := WRITTEN_TABLE.match(sql)) and found[1] != "audit":
            actors.uses(f"{self.path.name}.{found[1]}", writes=True)

    @property
    def _inside(self) -> bool:
        return getattr(self._local, "connection", None) is not None and self._connection().in_transaction

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        actors = self._actors()
        if actors is None or self._inside:
            with super().transaction() as connection:
                yield connection
            return
        actors.point(f"transaction of {self.path.name}", [self.path.name], writes=True)
        before = self._connection().total_changes
        with super().transaction() as connection:
            yield connection
        actors.observes(f"changed {self._connection().total_changes - before}")

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        if (actors := self._actors()) is not None and not self._inside:
            actors.point(f"snapshot of {self.path.name}", [self.path.name], writes=False)
        with super().snapshot() as connection:
            yield connection

    def changes_broken(self) -> str | None:
        """Verify the store without points: nobody writes past it here. Nothing is kept, for the world is reset between plays."""
        actors, self._actors = self._actors, lambda: None
        try:
            self._local.chain_check = None
            return super().changes_broken()
        finally:
            self._actors = actors

    def rows(self, sql: str, arguments: Sequence[Any] = ()) -> list[Row]:
        if (actors := self._actors()) is not None and not self._inside:
            tables = TABLE.findall(sql)
            actors.point(f"read {tables} of {self.path.name}", [f"{self.path.name}.{table}" for table in tables], writes=False)
        found = super().rows(sql, arguments)
        if actors is not None:
            actors.observes(f"{len(found)} rows")
        return found


class PointCluster:
    """The cluster as actors reach it: each call is a point."""

    name = "simulated"

    def __init__(self, cluster: SimulatedCluster, actors: Callable[[], Actors | None]) -> None:
        self._cluster, self._actors = cluster, actors

    def __dir__(self) -> list[str]:
        return dir(self._cluster)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._cluster, name)
        actors = self._actors()
        if actors is None or not callable(method) or name in PURE:
            return method

        def call(*arguments: Any, **named: Any) -> Any:
            actors.point(name, self._resources(name, arguments), writes=name in WRITES)
            try:
                answer = method(*arguments, **named)
            except NightshiftError as error:
                actors.observes(f"{name} {error!r}")
                raise
            actors.observes(f"{name} {answer!r}")
            return answer

        return call

    def _resources(self, name: str, arguments: Sequence[Any]) -> list[str]:
        if name in READS:
            return [READS[name]]
        if name == "job":
            return [f"job {arguments[0]}"]
        if name == "submit":
            return ["jobs", "nodes", f"job {self._cluster._new_id()}"]
        assert name in WRITES, f"{name} of the cluster is no known point"
        return ["jobs", "nodes", f"job {arguments[0]}"]


class RequeueCluster(SimulatedCluster):
    """A simulated cluster that can queue a job again under its own id, as Slurm can."""

    def requeue(self, job_id: str, *, hold: bool = False, exclude: Sequence[str] = (), comment: str = "") -> None:
        """Queue a job that has ended again; one that waits held is refused, as by Slurm, unless the comment is there already."""
        job = self.job(job_id)
        if not job.state.ended and not (job.requeued_held and job.comment == comment):
            raise ToolError(f"job {job_id} is pending execution")
        self.set_requeued(job_id, hold=hold)
        self._jobs[job_id] = replace(self.job(job_id), comment=comment)


class Night:
    """A job that failed, the stores of those who want to restart it, and what must hold all the while."""

    def __init__(self, folder: Path, stores: int = 1, *, may_give_up: str = "") -> None:
        """Prepare.

        Args:
            folder: For the stores and logs.
            stores: How many.
            may_give_up: Words of a refusal with which the run may end up not restarted at all; empty where it never may.
        """
        self.may_give_up = may_give_up
        self.folder, self.clock = folder, JumpingClock(START)
        self.actors: Actors | None = None
        self.cluster = RequeueCluster(self.clock, folder, nodes=4)
        self.cluster.plan("llm", SimulatedRun(fails_at=1), SimulatedRun(steps=100_000))
        self.now = START + timedelta(seconds=60)
        # the folder is named and empty: a start from the beginning is proven to lose nothing
        script = f"#!/bin/sh\n#NIGHTSHIFT checkpoints={folder}/checkpoints\nsrun python train.py\n"
        self.old = self.cluster.submit(JobSpec("llm", script, work_dir=folder, user="alice"))
        self.clock.sleep(60)
        assert self.cluster.job(self.old).state is JobState.FAILED
        self.port: Any = PointCluster(self.cluster, lambda: self.actors)
        self.paths = [folder / f"store{number}.db" for number in range(stores)]
        self._opened: list[PointStore] = []
        self.stores = [self._store(number) for number in range(stores)]
        self._tables = [
            row[0]
            for row in self.stores[0].rows("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
            if row[0] != "audit" and not row[0].startswith(("sqlite_", "_"))
        ]
        self._cluster_before = b""
        self._replaced: list[tuple[Any, str, Any]] = []
        self._beside: list[sqlite3.Connection] = []
        self._marks: dict[Path, bytes | None] = {}
        self._digests: dict[int, tuple[int, str]] = {}
        self._steps: dict[int, str] = {}
        """The tool of the playbook's step by the store whose watch makes it."""

    def _store(self, number: int) -> PointStore:
        store = PointStore(self.paths[number], self.clock, lambda: self.actors)
        self._opened.append(store)
        with store.transaction() as connection:
            connection.execute("UPDATE properties SET value = ? WHERE name = 'store_id'", [f"store00{number}"])
        store.open_incident(Event(EventKind.JOB_ENDED, self.old, None, self.clock.now()))
        return store

    # Actors

    def restart(self, number: int = 0, *, takes_over: bool = False, requeue: bool = False) -> Callable[[], object]:
        """Return a watch's restart of the job, as the step of a playbook, with one of the stores.

        Args:
            number: Of the store.
            takes_over: Whether it is a second watch, which takes the first one for gone and leads in its place; the first, asleep
                or slow until then, is fenced off and works on until it meets the fence. Without it the watch leads already.
            requeue: Whether the job is queued again under its own id instead of submitted again.
        """
        store = PointStore(self.paths[number], self.clock, lambda: self.actors)
        self._opened.append(store)
        gate = self.gate(store)
        if not takes_over:
            self._lead(store, "watch@a:1.1")

        tool = "requeue_ended_job" if requeue else "resubmit_job"
        self._steps[number] = tool

        def work() -> object:
            if takes_over:
                self._lead(store, "watch@b:1.1")
            return self._step(gate, tool)

        return work

    def _step(self, gate: Gate, tool: str) -> object:
        """Make the step of a playbook, as each pass of a watch does until it has an outcome."""
        arguments = {"job": self.old, "checkpoint": "none"}
        return gate.call(tool, arguments, why="it failed", by="playbook:p", incident=1, step="restart")

    @staticmethod
    def _lead(store: Store, owner: str) -> None:
        store.fence = None
        led = store.lead(owner, 86_400, gone=lambda _: True)
        assert led is not None
        store.fence_off(led)

    def approved(self, number: int = 0, *, requeue: bool = False) -> Callable[[], object]:
        """Park a person's restart of the job, let it be allowed, and return what makes it.

        Args:
            number: Of the store.
            requeue: Whether the job is to be queued again under its own id instead of submitted again.
        """
        store, now = PointStore(self.paths[number], self.clock, lambda: self.actors), self.clock.now()
        self._opened.append(store)
        tool = find_tool("requeue_job" if requeue else "resubmit_job")
        given = tool.checked({"job": self.old, **({} if requeue else {"checkpoint": "none"})})
        call = store.write_call(Call(0, None, tool.name, given, "", "cli:bob", now, CallStatus.PENDING), kind=tool.kind)
        asked = store.park(call.id, Decision(Verdict.ASK, "mode.propose", "policy", now), now + timedelta(days=1))
        assert store.answer(asked, Verdict.ALLOW, "cli:bob")
        gate = self.gate(store)
        return lambda: gate.go_on(call.id)

    def gate(self, store: Store) -> Gate:
        """Return a gate of a process of its own."""

        def context_for(incident: int | None, tag: str) -> Context:
            return Context(self.port, self.cluster, self.clock, random.Random(0), store, incident=incident, tag=tag)

        return Gate(store, context_for, Policy(mode=Mode.ACT), Park(store, expires_after_s=86_400))

    def begin(self, works: Sequence[Callable[[], object]]) -> Actors:
        """Keep how everything stands, and return the actors."""
        self._cluster_before = pickle.dumps({name: value for name, value in vars(self.cluster).items() if name != "clock"})
        for store in self.stores:
            before = sqlite3.connect(f"{store.path}.before")
            store._connection().backup(before)
            before.close()
            # a connection beside the store's own: it writes no audit, and its foreign keys are off
            self._beside.append(sqlite3.connect(store.path, isolation_level=None))
            self._beside[-1].execute("ATTACH DATABASE ? AS before", [f"{store.path}.before"])
            self._marks[mark_path(store.path)] = mark_path(store.path).read_bytes() if mark_path(store.path).exists() else None
        self.actors = Actors(works)
        # jobs that the actors submit: known from the start, so that the search need not begin again when it meets the last of them
        self.actors.shared.update(f"job {number}" for number in range(2, 3 + 2 * len(works)))
        for place, name in READERS:
            self._replaced.append((place, name, getattr(place, name)))
            setattr(place, name, self.actors.keeping_the_answer(getattr(place, name)))
        for reader in FILE_READERS:
            self._replace_everywhere(reader, self.actors.answering_once(reader))
        self._replace_everywhere(untrusted.within, lambda seconds, work, subject: work())  # these files hang nobody
        return self.actors

    def _replace_everywhere(self, function: Any, other: Any) -> None:
        for module in [module for name, module in sys.modules.items() if name.startswith("assistant.")]:
            for name in [name for name, value in vars(module).items() if value is function]:
                self._replaced.append((module, name, function))
                setattr(module, name, other)

    def close(self) -> None:
        """End the actors and close the stores."""
        if self.actors is not None:
            self.actors.close()
        for place, name, before in self._replaced:
            setattr(place, name, before)
        for connection in self._beside:
            connection.close()
        for store in self._opened:
            Store.close(store)

    # World

    def reset(self) -> None:
        """Bring cluster and stores back to the beginning."""
        vars(self.cluster).update(pickle.loads(self._cluster_before))
        self.clock.set(self.now)
        for connection in self._beside:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DROP TRIGGER IF EXISTS main.audit_keeps_rows")  # it refuses to forget the play before
            for table in (*self._tables, "audit", "sqlite_sequence"):
                connection.execute(f"DELETE FROM main.{table}")
                connection.execute(f"INSERT INTO main.{table} SELECT * FROM before.{table}")
            connection.execute("COMMIT")
        for path, mark in self._marks.items():
            path.unlink(missing_ok=True)
            if mark is not None:
                path.write_bytes(mark)
        self._digests.clear()

    def digest(self) -> str:
        """Return a key of all jobs, nodes and rows, those of the audit excepted."""
        return repr(
            (
                self.clock.now(),
                self.cluster._jobs,
                self.cluster._cordons,
                [self._rows_digest(number) for number in range(len(self.stores))],
            )
        )

    def _rows_digest(self, number: int) -> str:
        connection = self._beside[number]
        version = connection.execute("PRAGMA data_version").fetchone()[0]
        if number not in self._digests or self._digests[number][0] != version:
            content = [connection.execute(f"SELECT * FROM main.{table}").fetchall() for table in self._tables]
            self._digests[number] = version, hashlib.blake2b(repr(content).encode(errors="replace"), digest_size=16).hexdigest()
        return self._digests[number][1]

    def alive(self) -> list[Job]:
        """Return the jobs of the run that run or may begin at any moment."""
        return [job for job in self.cluster._jobs.values() if job.name == "llm" and not job.state.ended and not job.held]

    def problems(self) -> list[str]:
        """Return what must never hold: two jobs of the run alive, a second restart that began, two changes of it begun."""
        wrong = []
        if len(self.alive()) > 1:
            wrong.append(f"alive at once: {[(job.id, job.comment) for job in self.alive()]}")
        begun = [job.id for job in self.cluster._jobs.values() if job.started is not None and (job.id != self.old or job.attempt)]
        if len(begun) > 1:
            wrong.append(f"restarted more than once: {begun}")
        for store in self.stores:
            if len(unfinished := store.undecided()) > 1:
                wrong.append(f"begun at once in {store.path.name}: {[(call.call, call.by) for call in unfinished]}")
        return wrong

    def finish(self) -> list[str]:
        """Settle what is left as the next passes do: look up what was interrupted, go on with steps and approved calls."""
        for connection in self._beside:
            (trigger,) = connection.execute("SELECT sql FROM before.sqlite_master WHERE name = 'audit_keeps_rows'").fetchone()
            connection.execute(trigger)
        for store in [
            *self.stores,
            *self.stores,
            *self.stores,
        ]:  # a call that had to wait for another is made by the pass after that
            gate = self.gate(store)
            self._try(
                partial(withdraw_orphaned_jobs, store, self.cluster, [job for job in self.cluster._jobs.values() if job.held])
            )
            for call in store.calls(status=CallStatus.INTENT):
                self._try(partial(gate.resolve, call))
            for call in store.calls():
                if store.outcome(call.id) is None:
                    self._try(partial(gate.go_on, call.id))
            if (number := self.stores.index(store)) in self._steps:
                self._try(partial(self._step, gate, self._steps[number]))
        return self.problems() + self._left_over()

    @staticmethod
    def _try(work: Callable[[], object]) -> None:
        with suppress(NightshiftError):
            work()

    def _left_over(self) -> list[str]:
        wrong = []
        if held := [(job.id, job.comment) for job in self.cluster._jobs.values() if job.held]:
            wrong.append(f"left held: {held}")
        refusals = []
        for store in self.stores:
            for call in store.calls():
                outcome = store.outcome(call.id)
                if outcome is None:
                    wrong.append(f"call {call.id} of {store.path.name} is {call.status} and undecided")
                elif not outcome.ok:
                    refusals.append(outcome.error)
                elif (
                    call.tool == "resubmit_job"
                    and tag_of(store.store_id, call.incident, call.id) not in self.cluster.job(outcome.value["job"]).comment.split()
                ):
                    wrong.append(f"call {call.id} of {store.path.name} takes job {outcome.value['job']} of another for its own")
            if (broken := store.verify()) is not None:
                wrong.append(f"the audit of {store.path.name} is broken: {broken}")
        gave_up = self.may_give_up and any(self.may_give_up in error for error in refusals)
        if not self.alive() and not gave_up:
            wrong.append(f"the run is lost: {refusals}")
        return wrong
