"""What must hold whatever goes wrong: looked at when a change takes effect, after every step, and when all is over."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from assistant.content.playbooks import playbooks
from assistant.policy import Policy
from assistant.records import Diagnosis, EventKind, IncidentState, Job, JobState, tag_of
from assistant.recover.directives import fingerprint, read_directives
from assistant.store import Store
from assistant.store.standing_decisions import why_open
from tests.chaos.judge_nodes import one_sided, same_nodes
from tests.chaos.unreliable_cluster import SimulatedChange

if TYPE_CHECKING:
    from tests.chaos.world import World

TOOLS = {
    "submit": ("resubmit_job",),
    "release": ("resubmit_job",),
    "withdraw": ("resubmit_job",),
    "cancel": ("cancel_job", "stop_restart"),
    "cordon": ("cordon_node", "renew_cordon"),
    "uncordon": ("uncordon_node",),
}
CLASSES = {
    "resubmit_job": "resubmit",
    "cancel_job": "cancel",
    "stop_restart": "stop_restart",
    "cordon_node": "cordon",
    "renew_cordon": "renew",
    "uncordon_node": "uncordon",
}
PATIENCE = timedelta(hours=26)
"""An incident that is older must have come to something: the longest verify of a playbook waits for 24 hours."""
NOTICED = (JobState.FAILED, JobState.NODE_FAIL, JobState.OUT_OF_MEMORY, JobState.TIMEOUT, JobState.PREEMPTED)


@dataclass(frozen=True)
class Effect:
    """A change that took effect, with the call that made it."""

    change: SimulatedChange
    tool: str
    incident: int | None
    at: datetime
    run: str = ""
    """Name of the job that was submitted: its id may be another's later."""


@dataclass
class Judge:
    """Keeps what was done, and what should not have been."""

    world: World
    wrong: list[str] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    restarts: list[Effect] = field(default_factory=list)
    """Releases of jobs that were submitted held: from then on a run is alive again."""

    def made(self, change: SimulatedChange) -> None:
        """Look at a change at the moment at which it took effect."""
        world, now = self.world, self.world.clock.now()
        if change.kind == "withdraw":
            # a job that never began goes again: allowed at any time, for the call that submitted it, whatever became of that since
            if self._call_of(change, ("intent", "pending", "denied", "failed", "done", "undone")) is None:
                self._say(f"{change} without an intent that was written before")
            return
        if world.stop_file.exists():
            self._say(f"{change} while the kill switch was set")
        if any(window.open_at(now) for window in world.windows):
            self._say(f"{change} within a maintenance window")
        if world.actor != "person" and why_open(world.door.store) is not None:
            self._say(f"{change} by {world.actor} while the breaker was open")
        if change.target in world.protected:
            self._say(f"{change} of a protected node")
        self._look_at_leader(change)
        call = self._call_of(change)
        if call is None:
            self._say(f"{change} without an intent that was written before")
            return
        effect = Effect(change, call["tool"], call["incident"], now, world.name_of(change.target))
        if change.kind == "release":
            self.restarts.append(effect)
            self._look_at_restart(effect)
            return
        self.effects.append(effect)
        self._look_at_decision(effect, call)
        if effect.tool == "cordon_node" and str(call["by"]).startswith("playbook:") and effect.incident is not None:
            with Store(world.path, world.clock) as store:
                self._say_if(one_sided(store, effect.incident, change.target))
        if change.kind == "cancel" and call["undoes"] is not None:
            world.note_cancelled(change.target)
        elif change.kind == "cancel":
            self._look_at_cancel(effect)

    def step(self) -> None:
        """Look at what must hold at any time."""
        for node, reason in self.world.drained.items():
            found = self.world.cluster.reason_of(node)
            if found != reason:
                self._say(f"the drain of {node} by a person ({reason!r}) is now {found!r}")
        for dog in self.world.all_dogs:
            while dog.bugs:
                self._say(f"unexpected error in {dog.owner}: {dog.bugs.pop()}")

    def end(self) -> None:
        """Look at where everything stands when the faults are over and time has passed."""
        with Store(self.world.path, self.world.clock) as store:
            for incident in store.incidents(limit=100_000):
                waits = incident.state is IncidentState.WAITING and any(
                    approval.pending(self.world.clock.now()) and store.call(approval.call).incident == incident.id
                    for approval in store.approvals()
                )
                if not (incident.state.ended or waits) and incident.opened < self.world.clock.now() - PATIENCE:
                    self._say(f"limbo: incident {incident.id} of job {incident.job} is {incident.state}: {incident.note!r}")
            for row in self._rows("SELECT * FROM calls WHERE status = 'intent' AND kind != 'read'"):
                self._say(f"call {row['id']} {row['tool']} step={row['step']} of incident {row['incident']} was never looked up")
            broken = store.verify()
            if broken is not None:
                self._say(f"the audit is broken: {broken}")
            self._look_for_missed(store)

    def _look_for_missed(self, store: Store) -> None:
        for job in self.world.cluster.true_jobs():
            about = [one for one in store.incidents(job=job.id) if job.submitted is None or one.opened >= job.submitted]
            if job.state in NOTICED and not any(one.attempt == job.attempt for one in about):
                self._say(f"missed: job {job.id} attempt {job.attempt} is {job.state} and has no incident")

    def _look_at_leader(self, change: SimulatedChange) -> None:
        actor = self.world.actor
        if actor == "person":
            return
        led = self._rows("SELECT owner FROM leaders WHERE name = 'watch'")
        if not led or led[0]["owner"] != actor:
            self._say(f"{change} by {actor} although {led[0]['owner'] if led else 'nobody'} leads")

    def _call_of(self, change: SimulatedChange, statuses: Sequence[str] = ("intent",)) -> sqlite3.Row | None:
        """Return the call that the change belongs to, of those that were allowed and have one of the statuses."""
        for call in self._rows("SELECT * FROM calls WHERE id IN (SELECT call FROM decisions WHERE verdict = 'allow')"):
            if call["tool"] not in TOOLS[change.kind] or call["status"] not in statuses:
                continue
            given: dict[str, Any] = json.loads(call["arguments"])
            if change.kind in ("submit", "release", "withdraw"):
                if tag_of(self._store_id(), call["incident"], call["id"]) in change.text.split():
                    return call
            elif change.target in (given.get("node"), given.get("job")):
                return call
        return None

    def _store_id(self) -> str:
        return str(self._rows("SELECT value FROM properties WHERE name = 'store_id'")[0]["value"])

    def _look_at_decision(self, effect: Effect, call: sqlite3.Row) -> None:
        decisions = self._rows("SELECT * FROM decisions WHERE call = ? ORDER BY id DESC LIMIT 1", call["id"])
        if not decisions or decisions[0]["verdict"] != "allow":
            self._say(f"{effect.change}: call {call['id']} was not allowed")
            return
        rule, policy, kind = decisions[0]["rule"], self.world.policy_of_actor(), CLASSES[effect.tool]
        if rule == "mode.act":
            if str(policy.mode_of(kind)) != "act":
                self._say(f"{effect.change}: made by itself in mode {policy.mode_of(kind)}")
            self._look_at_limits(effect, policy, "soft")
        elif rule == "approved":
            answers = self._rows("SELECT * FROM approvals WHERE call = ? AND verdict = 'allow'", call["id"])
            if not answers and not str(decisions[0]["by"]).startswith("cli:"):
                self._say(f"{effect.change}: nobody approved call {call['id']}")
        else:
            self._say(f"{effect.change}: allowed by {rule}")
        self._look_at_limits(effect, policy, "hard")

    def _look_at_limits(self, effect: Effect, policy: Policy, name: str) -> None:
        kind = CLASSES[effect.tool]
        own, everything = getattr(policy.terms(kind), name), getattr(policy, name)
        for hours, span in ((1, "hour"), (24, "day")):
            recent = [one for one in self.effects if one.at > effect.at - timedelta(hours=hours)]
            same = sum(CLASSES[one.tool] == kind for one in recent)
            total = sum(policy.terms(CLASSES[one.tool]).in_totals for one in recent)
            limit, most = getattr(own, f"per_{span}"), getattr(everything, f"per_{span}")
            if limit is not None and same > limit:
                self._say(f"{effect.change}: {same} within the last {span}, {limit} allowed ({name})")
            if most is not None and policy.terms(kind).in_totals and total > most:
                self._say(f"{effect.change}: {total} changes within the last {span}, {most} allowed ({name})")

    def _look_at_cancel(self, effect: Effect) -> None:
        incident = self._rows("SELECT * FROM incidents WHERE id = ?", effect.incident)[0]
        job = self.world.cluster.true_job(effect.change.target)
        assert job is not None
        if job.id == incident["job"] and not self._is_meant(incident, job):
            self._say(f"{effect.change}: incident {effect.incident} is about another attempt of that id")

    def _is_meant(self, incident: sqlite3.Row, job: Job) -> bool:
        opened = datetime.fromisoformat(incident["opened"])
        return job.attempt == incident["attempt"] and (job.submitted is None or job.submitted <= opened)

    def _look_at_restart(self, effect: Effect) -> None:
        world, number = self.world, effect.incident
        incident = self._rows("SELECT * FROM incidents WHERE id = ?", number)[0]
        again = Counter(one.incident for one in self.restarts)
        if again[number] > 1:
            self._say(f"incident {number} was answered with {again[number]} submissions")
        old, new = world.cluster.true_job(incident["job"]), world.cluster.true_job(effect.change.target)
        assert new is not None
        if old is None:
            self._say(f"{effect.change}: job {incident['job']} is not there any more")
            return
        if (old.id, old.submitted, old.attempt) in world.cancelled:
            self._say(f"{effect.change}: a person had cancelled job {old.id} (incident {number})")
        elif not old.state.ended or old.state is JobState.COMPLETED:
            self._say(f"{effect.change}: job {old.id} is {old.state} (incident {number})")
        if not self._is_meant(incident, old):
            self._say(f"{effect.change}: incident {number} is about another attempt of job {old.id}")
        directives = read_directives(old.spec.script if old.spec is not None else "")
        if directives.act == "never":
            self._say(f"{effect.change}: the owner of job {old.id} says act=never")
        since = [job.id for job in world.cluster.true_jobs() if job.name == new.name and self._is_between(old, job, new)]
        if since:
            self._say(f"{effect.change}: the run of job {old.id} went on as {', '.join(since)} before (incident {number})")
        alive = [job.id for job in world.cluster.true_jobs() if job.name == new.name and not job.state.ended]
        if len(alive) > 1:
            self._say(f"{effect.change}: jobs {', '.join(alive)} of {new.name} are alive at once")
        with Store(world.path, world.clock) as store:
            diagnosis = store.diagnosis(number or 0)
        self._say_if(same_nodes(diagnosis, old, new, world.cluster.out_of_service()))
        self._look_at_budget(effect, new.name, directives.restarts)

    def _is_between(self, old: Job, job: Job, new: Job) -> bool:
        began = job.started is not None or not job.state.ended  # a claim that was withdrawn never ran
        later = old.ended is not None and job.submitted is not None and job.submitted > old.ended
        return job.id not in (old.id, new.id) and began and later

    def _look_at_budget(self, effect: Effect, name: str, said: int | None) -> None:
        cause = self._cause(effect)
        if cause is None:
            self._say(f"{effect.change}: incident {effect.incident} has no diagnosis")
            return
        found, playbook = cause
        limits = playbooks(None)[playbook].limits
        progress = self._rows("SELECT max(at) AS at FROM attempts WHERE progress")[0]["at"]
        since = effect.at - timedelta(hours=limits.within_h)
        if progress is not None:
            since = max(since, datetime.fromisoformat(progress))
        used = [one for one in self.restarts if one.at > since and one.run == name]
        same = [one for one in used if (other := self._cause(one)) is not None and other[0] == found]
        limit = limits.attempts if said is None else min(limits.attempts, said)
        if len(same) > limit:
            self._say(f"{effect.change}: restart {len(same)} of {name} for {found}, {limit} allowed by {playbook}")

    def _cause(self, effect: Effect) -> tuple[str, str] | None:
        with Store(self.world.path, self.world.clock) as store:
            diagnosis: Diagnosis | None = store.diagnosis(effect.incident or 0)
            incident = store.incident(effect.incident or 0)
        return None if diagnosis is None or incident.playbook is None else (fingerprint(diagnosis), incident.playbook)

    def _rows(self, sql: str, *given: object) -> list[sqlite3.Row]:
        """Ask for what is committed, beside all stores."""
        connection = sqlite3.connect(f"file:{self.world.path}?mode=ro", uri=True)
        connection.row_factory = sqlite3.Row
        try:
            return connection.execute(sql, given).fetchall()
        finally:
            connection.close()

    def _say_if(self, what: str) -> None:
        if what:
            self._say(what)

    def _say(self, what: str) -> None:
        said = f"{self.world.clock.now():%d %H:%M:%S} {what}"
        self.wrong.append(said)
        self.world.story.append(f"WRONG {said}")


def counted(store: Store) -> Counter[str]:
    """Return how incidents ended."""
    return Counter(
        f"{incident.state}{' (outage)' if incident.kind is EventKind.OUTAGE else ''}" for incident in store.incidents(limit=100_000)
    )
