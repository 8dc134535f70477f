"""A cluster, its people and two watchdogs, on which anything may go wrong; what happens is chosen from outside.

Every method that changes something is one thing that may happen; `story` tells what did. Nothing depends on real time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

from assistant.config import Settings, WatchSettings
from assistant.diagnose.knowledge import Knowledge
from assistant.engine import Engine
from assistant.errors import NightshiftError
from assistant.policy import Mode, Policy, load_policy
from assistant.policy.terms import Protected, Window
from assistant.ports import JumpingClock, Reply
from assistant.records import CallStatus, Job, JobSpec, JobState, Verdict
from assistant.store import Store
from assistant.store.standing_decisions import open_breaker, reset_breaker, why_open
from assistant.wiring import build
from tests.chaos.failures import runs_of
from tests.chaos.judge import Judge
from tests.chaos.unreliable_cluster import Loss, UnreliableCluster
from tests.chaos.watches import Blow, BrittleStore, PassingWatchdog
from tests.scenarios.scene import START, Killed

NODES = 24
NAMES = 12
"""Few enough that the same run is now and then submitted twice."""
PERSON = "cli:ada"
PAUSES_S = (25.0, 60.0, 400.0, 3000.0)
_SHIPPED: list[Knowledge] = []


class PeopleCluster(UnreliableCluster):
    """Lets the judge see how things really are."""

    def reason_of(self, node: str) -> str | None:
        return self._cordons.get(node)

    def out_of_service(self) -> set[str]:
        return {*self._cordons, *self._down}

    def true_jobs(self) -> list[Job]:
        return list(self._jobs.values())


class World:
    """Everything that there is."""

    cluster_of: type[PeopleCluster] = PeopleCluster
    dog_of: type[PassingWatchdog] = PassingWatchdog
    busy_s: float = 0.0
    """How long a store waits for another that writes."""

    def __init__(self, folder: Path, seed: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.path, self.seed = folder, folder / "nightshift.db", seed
        self.random = Random(seed)
        self.clock = JumpingClock(START)
        self.cluster = self.cluster_of(self.clock, folder, NODES, random=Random(seed + 1))
        self.cluster.answers["true"] = lambda node: Reply(node, True, 0, "", "")
        self.names = [node.name for node in self.cluster.nodes()]
        self.stop_file = folder / "stop"
        self.protected = {self.names[-1]}
        self.mode = Mode.ACT
        self.windows: list[Window] = []
        self.story: list[str] = []
        self.actor = "person"
        self.drained: dict[str, str] = {}
        """Reasons of drains by people."""
        self.cancelled: set[tuple[str, datetime | None, int]] = set()
        """Attempts that people cancelled."""
        self.job_names: dict[str, str] = {}
        self.all_dogs: list[PassingWatchdog] = []
        self.judge = Judge(self)
        self.cluster.on_change = self.judge.made
        self.cluster.on_request = self._asked
        self._dozing: tuple[str, int] | None = None
        self.pauses_s: tuple[float, ...] = PAUSES_S
        """How long a watch may sleep."""
        self._pausing = False
        self._policies: dict[str, Policy] = {}
        self._born = 0
        self.dogs = {name: self._started(name) for name in ("a", "b")}
        self.door = self._engine(Store(self.path, self.clock, busy_timeout_s=0.0))

    # Watches

    def passes(self, count: int = 1, *, every_s: float = 10.0, who: str = "ab") -> None:
        """Let time pass, with a look of some watches after each interval."""
        for _ in range(count):
            self.clock.sleep(every_s)
            for name in who:
                self._look(name)

    def hit(self, name: str, blow: Blow, due: int, lasts: int = 1) -> None:
        """Let a blow fall on a watch at one of its coming writes."""
        self._tell(f"{name}: {blow} at write {due}")
        self._store(name).hit(blow, due, lasts)

    def doze(self, name: str, due: int) -> None:
        """Let a watch sleep at one of its coming questions to the scheduler."""
        self._tell(f"{name}: sleeps at question {due}")
        self._dozing = (name, due)

    def _asked(self, method: str) -> None:
        # the very command comes right after the last look at who leads: nothing on this side can tell a sleep between the two
        if self._dozing is None or method not in ("jobs", "job") or self.actor != self.dogs[self._dozing[0]].owner:
            return
        name, due = self._dozing
        self._dozing = (name, due - 1) if due > 0 else None
        if due <= 0:
            self._meanwhile(name)

    def locked_pass(self) -> None:
        """Let another process hold the store during a pass."""
        self._tell("the store is locked for a pass")
        with Store(self.path, self.clock).transaction():
            self.passes()

    def change_policy(self, mode: Mode) -> None:
        """Set the mode of the policy and start the watches anew."""
        self._tell(f"mode {mode}")
        self.mode = mode
        self._all_anew()

    def open_window(self, minutes: int) -> None:
        """Begin maintenance of the whole cluster."""
        self._tell(f"maintenance for {minutes} min")
        now = self.clock.now()
        self.windows.append(Window(f"w{len(self.windows)}", start=now, end=now + timedelta(minutes=minutes)))
        self._all_anew()

    def _all_anew(self) -> None:
        for name in self.dogs:
            self._anew(name)
        self.door.store.close()
        self.door = self._engine(Store(self.path, self.clock, busy_timeout_s=0.0))

    def _look(self, name: str) -> None:
        dog = self.dogs[name]
        try:
            with self._acting(dog.owner):
                dog.look()
        except Killed:
            self._tell(f"{name} died")
            self._anew(name)
        self.judge.step()

    def _anew(self, name: str) -> None:
        self.dogs[name].engine.store.close()
        self.dogs[name] = self._started(name)

    def _started(self, name: str) -> PassingWatchdog:
        self._born += 1
        owner = f"watch@{name}:{self._born}.1"
        store = BrittleStore(self.path, self.clock, busy_timeout_s=self.busy_s)
        store.paused = lambda: self._meanwhile(name)
        dog = self.dog_of(self._engine(store), owner)
        self._policies[owner] = dog.engine.gate.policy
        self.all_dogs.append(dog)
        return dog

    def _meanwhile(self, name: str) -> None:
        """Let the other watch go on while one sleeps in the middle of what it does."""
        if self._pausing:
            return
        self._pausing = True
        seconds = self.random.choice(self.pauses_s)
        self._tell(f"{name} sleeps for {seconds:g} s")
        try:
            self.passes(4, every_s=seconds / 4, who="b" if name == "a" else "a")
        finally:
            self._pausing = False
        self._tell(f"{name} wakes")

    def _engine(self, store: Store) -> Engine:
        settings = Settings(
            state_folder=self.folder,
            store=self.path,
            commands={"kernel_log": ("dmesg",)},
            watch=WatchSettings(poll_s=10, hang_after_s=300),
        )
        engine = build(
            settings, clock=self.clock, scheduler=self.cluster, transport=self.cluster, policy=self._policy(), store=store
        )
        if not _SHIPPED:
            _SHIPPED.append(engine.shipped)
        engine.__dict__["shipped"] = _SHIPPED[0]
        return engine

    def _policy(self) -> Policy:
        guarded = Protected("the chaos suite says so", nodes=tuple(self.protected))
        return dataclasses.replace(
            load_policy(), mode=self.mode, kill_switch=(self.stop_file,), protected=(guarded,), window=tuple(self.windows)
        )

    def policy_of_actor(self) -> Policy:
        return self._policies.get(self.actor, self.door.gate.policy)

    def _store(self, name: str) -> BrittleStore:
        store = self.dogs[name].engine.store
        assert isinstance(store, BrittleStore)
        return store

    @contextmanager
    def _acting(self, who: str) -> Iterator[None]:
        before, self.actor = self.actor, who
        try:
            yield
        finally:
            self.actor = before

    # The cluster

    def lose(self, *losses: Loss) -> None:
        """Let the next changes, or their answers, get lost."""
        self._tell(f"the next changes: {', '.join(losses)}")
        self.cluster.losses += losses

    def set_outage(self, on: bool) -> None:
        """Let the scheduler go away or come back."""
        self._tell(f"outage {on}")
        self.cluster.outage = on

    def set_untidy(self, on: bool) -> None:
        """Let lists be out of order, with some jobs twice."""
        self._tell(f"untidy {on}")
        self.cluster.untidy = on

    def set_lag(self, seconds: float) -> None:
        """Let the accounting lag behind."""
        self._tell(f"lag {seconds:g} s")
        self.cluster.lag_s = seconds

    def set_mute(self, nodes: list[str]) -> None:
        """Let nodes not answer; those before do again."""
        self._tell(f"mute {nodes}")
        self.cluster.mute = set(nodes)

    def die(self, node: str) -> None:
        """Let a node die."""
        self._by_hand(f"{node} dies", lambda: self.cluster.set_down(node))

    def return_to_life(self, node: str) -> None:
        """Let a node come back."""
        self._by_hand(f"{node} comes back", lambda: self.cluster.set_up(node))

    # People

    def submit(self, kind: str, number: int, nodes: int, said: str) -> None:
        """Submit a job that will die of something."""
        name = f"run{number % NAMES}"
        checkpoints = self.folder / "checkpoints" / name
        self.cluster.plan(name, *runs_of(kind, self.random, self.names, checkpoints))
        script = (
            f"#NIGHTSHIFT checkpoints={checkpoints} format=nightshift {said}\n"
            f"srun python train.py ${{NIGHTSHIFT_RESUME_FROM:-}} ${{NIGHTSHIFT_ARGS:-}}\n"
        )
        work_dir = self.folder / name
        spec = JobSpec(name, script, nodes=nodes, ranks_per_node=2, work_dir=work_dir, log="job-%j.log")

        def submitted() -> None:
            alive = any(job.name == name and not job.state.ended for job in self.cluster.true_jobs())
            if not alive:
                job = self.cluster.submit_by_hand(spec)
                self._tell(f"job {job} {name}: {kind} {said}")

        self._by_hand("", submitted)

    def cancel(self, choice: int) -> None:
        """Cancel a job that is alive."""
        alive = [job for job in self.cluster.true_jobs() if not job.state.ended]
        if alive:
            job = alive[choice % len(alive)]

            def ended() -> None:
                self.cluster.set_cancelled(job.id)
                if not self._asks_to_cancel(job.id):
                    self.note_cancelled(job.id)

            self._by_hand(f"ada cancels job {job.id}", ended)

    def _asks_to_cancel(self, job_id: str) -> bool:
        """Whether a watch gave the same command a moment ago and got no answer: nobody can tell then whose it was."""
        store = self.door.store
        return any(
            call.arguments.get("job") == job_id and self.clock.now() - store.decisions(call.id)[-1].at < timedelta(minutes=4)
            for call in store.calls(status=CallStatus.INTENT)
            if call.tool == "cancel_job"
        )

    def note_cancelled(self, job_id: str) -> None:
        """Remember that a person cancelled a job."""
        job = self.cluster.true_job(job_id)
        if job is not None and job.state is JobState.CANCELLED:
            self.cancelled.add((job.id, job.submitted, job.attempt))

    def requeue(self, choice: int) -> None:
        """Queue a job that has ended again under its own id."""
        ended = [job for job in self.cluster.true_jobs() if job.state.ended]
        if ended:
            job = ended[choice % len(ended)]
            if not any(other.name == job.name and not other.state.ended for other in self.cluster.true_jobs()):
                self._by_hand(f"ada requeues job {job.id}", lambda: self.cluster.set_requeued(job.id))

    def use_id_again(self, choice: int) -> None:
        """Let the controller forget a job that has ended; the next one gets its id."""
        ended = [job for job in self.cluster.true_jobs() if job.state.ended]
        if ended:
            job = ended[choice % len(ended)]
            self._by_hand(f"job {job.id} is forgotten, its id is free", lambda: self.cluster.forget(job.id))

    def drain(self, node: str) -> None:
        """Take a node out with a person's reason, as long as few are out."""
        if node not in self.drained and self.cluster.reason_of(node) is None and len(self.drained) < NODES // 6:
            self.drained[node] = f"ada: fan of {node}"
            self._by_hand(f"ada drains {node}", lambda: self.cluster.set_cordon(node, self.drained[node]))

    def undrain(self, node: str) -> None:
        """Put a node back, whoever took it out."""
        self.drained.pop(node, None)
        self._by_hand(f"ada puts {node} back", lambda: self.cluster.set_uncordoned(node))

    def set_kill_switch(self, on: bool) -> None:
        """Stop everything, or let it go on."""
        self._tell(f"kill switch {on}")
        self.stop_file.touch() if on else self.stop_file.unlink(missing_ok=True)

    def set_breaker(self, on: bool) -> None:
        """Open the breaker by hand, or reset it: also one that opened by itself."""
        self._tell(f"breaker {on}")
        store = Store(self.path, self.clock, busy_timeout_s=0.0)
        with store:
            open_breaker(store, why="ada does not trust it", by=PERSON) if on else reset_breaker(store, why="", by=PERSON)

    def answer(self, choice: int, verdict: Verdict, *, go_on: bool) -> None:
        """Answer for a call that waits or waited: also late, also twice."""
        asked = self.door.store.approvals(pending_only=False)[-8:]
        if not asked:
            return
        approval = asked[choice % len(asked)]
        self._tell(f"ada says {verdict} to approval {approval.id}{' and goes on' if go_on else ''}")
        with self._acting("person"):
            try:
                won = self.door.store.answer(approval.id, verdict, PERSON)
                incident = self.door.store.call(approval.call).incident
                if won and go_on and incident is not None:
                    self.door.work(incident, owner=f"{PERSON}@backend:1.1", by=PERSON)
            except NightshiftError as error:
                self._tell(f"ada is told: {error}")

    def undo(self, choice: int) -> None:
        """Take a call back."""
        done = [call for call in self.door.store.calls(status=CallStatus.DONE) if call.tool in ("cordon_node", "resubmit_job")]
        if not done:
            return
        call = done[choice % len(done)]
        self._tell(f"ada takes back call {call.id} {call.tool}")
        with self._acting("person"):
            try:
                self.door.gate.undo(call.id, PERSON, approved_by=PERSON)
            except NightshiftError as error:
                self._tell(f"ada is told: {error}")

    def jump(self, seconds: float) -> None:
        """Let the clock jump."""
        self._tell(f"{seconds:g} s pass unwatched")
        self.clock.sleep(seconds)

    def name_of(self, job_id: str) -> str:
        """Return the name of a job that is or was."""
        job = self.cluster.true_job(job_id)
        return job.name if job is not None else ""

    # The end

    def settle(self) -> None:
        """Lift all faults, let a day pass, and look at where everything stands."""
        self._tell("all faults are lifted")
        self.cluster.outage = self.cluster.untidy = False
        self.cluster.lag_s, self.cluster.mute = 0.0, set()
        self.cluster.losses.clear()
        self.stop_file.unlink(missing_ok=True)
        self.set_breaker(on=False)
        for name in self.dogs:
            self._store(name).blow = None
        self._dozing = None
        for dead in [node.name for node in self.cluster.nodes()]:
            self.cluster.set_up(dead)
        self.passes(30, every_s=60.0)
        self.passes(28, every_s=3600.0)
        if why_open(self.door.store) is not None:
            # what all the faults had led to opened it once more, and whoever waits then waits for a person
            self.set_breaker(on=False)
            self.passes(3, every_s=60.0)
        self.judge.end()

    def close(self) -> None:
        """Close all stores."""
        for dog in self.all_dogs:
            dog.engine.store.close()
        self.door.store.close()

    def _by_hand(self, what: str, deed: Callable[[], object]) -> None:
        if what:
            self._tell(what)
        outage, self.cluster.outage = self.cluster.outage, False
        try:
            deed()
        finally:
            self.cluster.outage = outage

    def _tell(self, what: str) -> None:
        self.story.append(f"{self.clock.now():%d %H:%M:%S} {what}")
