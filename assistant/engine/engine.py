"""Drive one incident from its opening to its end, as far as it can go now."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property, partial
from itertools import chain
from pathlib import Path

from assistant.content.playbooks import Playbook, choose_playbook, playbooks
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import judge
from assistant.diagnose.weighing.rivals import Opinion
from assistant.engine import reconciliation, retry_policy
from assistant.engine.cluster_evidence import with_cluster_evidence
from assistant.engine.evidence.array_tasks import reconsidered
from assistant.engine.evidence.returned_files import with_returned_file
from assistant.engine.gather import (
    gather,
    in_spite_of_its_end,
    parent_of,
    probe,
    read_facts,
    suspected,
    with_held_nodes,
    worth_probing,
)
from assistant.engine.intake import check_writable, hand_over, open_or_join
from assistant.engine.learning import confirm_recovered
from assistant.engine.node_ledger import record_in_ledger, with_patterns
from assistant.engine.outages import Outages, Turn, tried_by_restart
from assistant.engine.outcomes import failed_restarts, settlement, standing_notes
from assistant.engine.outcomes.completed_jobs import (
    CompletedJobs,
    GoodRuns,
    count_folded,
    task_of,
    with_hidden_end,
    with_hidden_failure,
)
from assistant.engine.outcomes.job_processes import ProcessLooks, still_runs
from assistant.engine.outcomes.living_jobs import close_if_resumed, close_resumed, waiting_job
from assistant.engine.outcomes.requeues import RequeueRecords
from assistant.engine.outcomes.restart_verdict import verified_end
from assistant.engine.outcomes.waiting_clients import ClientTurn, client_turn
from assistant.engine.ownership import kept_lease
from assistant.errors import (
    Denied,
    Fenced,
    NightshiftError,
    Parked,
    StoreBusy,
    StoreError,
    TargetBusy,
    ToolError,
    Unavailable,
    UsageError,
)
from assistant.gate import Gate
from assistant.gate.stops import open_if_due
from assistant.policy import sits_at_a_door
from assistant.ports import Clock, Embedder, Scheduler
from assistant.process_memory import collected_seldom
from assistant.records import Diagnosis, Event, EventKind, Incident, IncidentState, Job, Outcome
from assistant.recover.directives import Budget, directives_of, failing_step, restart_budget
from assistant.recover.drivers import never_begin
from assistant.recover.identity import RESTARTS
from assistant.recover.playbook import Ended, run_playbook
from assistant.recover.restart import interactive_note
from assistant.store import Store
from assistant.store.standing_decisions import why_open
from assistant.untrusted import reading_as
from assistant.watch.attempts import KnownIncidents, Trouble
from assistant.watch.watcher import Watcher

logger = logging.getLogger(__name__)

TASKS_IN_MEMORY = 16
"""Tasks whose compiled rules are kept."""


@dataclass
class Engine:
    """The pipeline, with all that it needs; `wiring.build` makes one."""

    store: Store
    gate: Gate
    scheduler: Scheduler
    clock: Clock
    watcher: Watcher
    site: Path | None = None
    lease_s: float = 300.0
    """Longer than the longest deadline of one call, so that a lease runs out only when its owner is gone."""
    opinions: Sequence[Opinion] = ()
    """Asked where the rules are silent or doubtful."""
    embedder: Embedder | None = None
    """Finds past incidents again; None: nothing is remembered."""
    escalated: settlement.EscalatedIncidents = field(default_factory=settlement.EscalatedIncidents)
    notes: standing_notes.StandingNotes = field(default_factory=standing_notes.StandingNotes)
    good_runs: GoodRuns = field(default_factory=GoodRuns)
    completed: CompletedJobs = field(default_factory=CompletedJobs)
    process_looks: ProcessLooks = field(default_factory=ProcessLooks)
    requeues: RequeueRecords = field(default_factory=RequeueRecords)
    outages: Outages = field(default_factory=Outages)
    checkpoint_folders: Mapping[str, Path] = field(default_factory=dict)
    replays: bool = False
    """Whether it replays recorded jobs: none lives that could show what became of it."""
    parents: Callable[[Store, Job | None], int | None] = parent_of
    """Gives the incident whose restart a job was."""
    troubles: list[Trouble] = field(default_factory=list, init=False)
    """What the last `look` and `resume` could not do about single events and incidents."""
    _unopened: dict[tuple[str, int], Event] = field(default_factory=dict, init=False, repr=False)
    _known_at: tuple[int, KnownIncidents] | None = field(default=None, init=False, repr=False)
    _learned: dict[tuple[str, str], Knowledge] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def shipped(self) -> Knowledge:
        """The knowledge about failures that is shipped or in files of the site, compiled."""
        return Knowledge.load(self.site)

    @property
    def knowledge(self) -> Knowledge:
        """All knowledge about failures: that of files, and the rules that were learned for any task."""
        return self.knowledge_of("")

    def knowledge_of(self, task: str) -> Knowledge:
        """Return what is known about failures of a task: without what was learned for other tasks only; all for an empty one."""
        key = (self.store.rules_version(), task)
        if key not in self._learned:
            if len(self._learned) == TASKS_IN_MEMORY:
                self._learned.clear()
            self._learned[key] = self.shipped.with_learned(self.store.rules(counting=True), task)
        return self._learned[key]

    @property
    def playbooks(self) -> Mapping[str, Playbook]:
        """All playbooks by name."""
        return playbooks(self.site)

    def open(self, event: Event) -> Incident:
        """Return the incident of an event: a new one, or the one that it joins."""
        incident, new = open_or_join(self.store, event, job := self._job(event.job), parent=self.parents(self.store, job))
        if not new:
            return retry_policy.proven_since(self.store, incident, event)
        self.store.mark_stage(incident.id, "opened")
        if settled := failed_restarts.stopped_here(self.store, incident, event):
            self.store.set_state(incident.id, IncidentState.CLOSED, note=settled)
            return self.store.incident(incident.id)
        logger.info("incident=%s opened kind=%s job=%s node=%s", incident.id, event.kind, event.job, event.node)
        return self.store.incident(incident.id) if hand_over(self.store, incident, event) else incident

    def open_for(self, job_id: str, *, by: str) -> Incident:
        """Return the incident of a job at a person's request, opened where there is none.

        Raises:
            ToolError: The scheduler knows no such job.
        """
        job = self.scheduler.job(job_id)
        at = job.ended or self.clock.now()
        return self.open(Event(EventKind.REQUESTED, job_id, None, at, {"by": by, "state": str(job.state)}, job.attempt))

    def tick(self, *, owner: str) -> list[Incident]:
        """Make one pass: look, open an incident for what is new, work on everything unfinished, settle cordons that ran out.

        Raises:
            Unavailable: The scheduler did not answer: the pass was blind, and nothing may be concluded from it.
        """
        self.look()
        self.make_allowed()
        ends = self.resume(owner=owner)
        for look in self.looks().values():
            look()
        try:
            settled = self.settle_leases()
        except Unavailable as error:
            logger.warning("cordons that ran out stay as they are: %s", error)
            return ends
        return ends + [self.store.incident(cordon.incident) for cordon in settled if cordon.incident is not None]

    def looks(self) -> Mapping[str, Callable[[], object]]:
        """Return what each pass looks at besides, by name: `tick` takes one after the other, the daemon gives them to threads."""
        return {
            "outages": lambda: self.outages.look(self),
            "good runs": lambda: self.good_runs.look(self),
            "escalated": lambda: self.escalated.look(self, self.watcher.jobs),
            "notes": lambda: self.notes.look(self, self.watcher.jobs),
            "processes": lambda: self.process_looks.look(self, self.watcher.jobs),
        }

    @collected_seldom()
    def look(self) -> list[Incident]:
        """Look at the cluster once and return the incidents that were opened for what is new.

        Raises:
            Unavailable: The scheduler did not answer: the look was blind, and nothing may be concluded from it.
        """
        before = {incident.id for incident in self.store.incidents(open_only=True, limit=10_000)}
        events = chain(list(self._unopened.values()), self.watcher.found(known=self._known_incidents()))
        incidents = [incident for event in events if (incident := self._opened(event)) is not None]
        if self._unopened and not incidents:
            check_writable(self.store)
        self.requeues.look(self, self.watcher.jobs)
        close_resumed(self)
        open_if_due(self.store, self.gate.policy)
        return list({incident.id: incident for incident in incidents if incident.id not in before}.values())

    def _opened(self, event: Event) -> Incident | None:
        """Return the incident of an event; None when it cannot be opened, which is told and tried again at the next look."""
        subject = f"{event.kind} of {f'job {event.job}' if event.job else event.node or event.service}"
        try:
            incident = self.open(event)
        except (Fenced, Unavailable):
            raise
        except Exception as error:
            logger.exception("%s: its incident could not be opened", subject)
            self._unopened[subject, event.attempt] = event
            self.troubles.append(Trouble(subject, f"{subject}: its incident could not be opened: {type(error).__name__}: {error}"))
            return None
        self._unopened.pop((subject, event.attempt), None)
        return incident

    def taken_troubles(self) -> list[Trouble]:
        """Return what single events and incidents failed at since the last call of this."""
        troubles, self.troubles = self.troubles, []
        return troubles

    def make_allowed(self) -> list[Outcome]:
        """Make the calls that a person allowed in an interface that did not go on with them, and with which no playbook goes on."""
        self.troubles += reconciliation.reconcile_orphans(self.store, self.gate, self.scheduler, self.watcher.held_jobs)
        outcomes = self.gate.review_approvals()
        for call in [*self.store.allowed(), *filter(partial(reconciliation.outlives_incident, self), self.store.allowed_steps())]:
            try:
                outcomes.append(self.gate.go_on(call.id))
            except (Denied, Parked, Unavailable, StoreBusy, UsageError) as error:
                logger.warning("call=%s was allowed and not made: %s", call.id, error)
        return outcomes

    def settle_leases(self, *, by: str = reconciliation.WATCH) -> list[reconciliation.SettledCordon]:
        """Lift or renew the cordons of this store that have run out, and return how each was settled.

        Args:
            by: The person who asks for it, `cli:alice`; they are told of every node, the watch only of what is new.
        """
        if by == reconciliation.WATCH and why_open(self.store):
            return []
        return reconciliation.CordonLeases(self.store, self.gate, self.scheduler, self.clock, by).settle()

    def resume(self, *, owner: str) -> list[Incident]:
        """Work on every unfinished incident, oldest first, and return where each stands now.

        One that fails costs no other its turn: `taken_troubles` tells of it.

        Raises:
            NightshiftError: Not a single one could be worked on.
        """
        worked: list[Incident] = []
        failed: list[NightshiftError] = []
        for incident in reversed(self.store.incidents(open_only=True, limit=10_000)):
            try:
                worked.append(self.attend(incident.id, owner=owner))
            except Fenced:
                raise
            except Exception as error:
                logger.exception("incident=%s could not be worked on", incident.id)
                self.troubles.append(Trouble(f"incident {incident.id}", f"incident {incident.id}: {type(error).__name__}: {error}"))
                failed += [error] if isinstance(error, NightshiftError) else []
        if failed and not worked:
            raise failed[0]
        return worked

    def attend(self, incident_id: int, *, owner: str, until: Callable[[], bool] = lambda: False) -> Incident:
        """Work on an incident as `work` does; one that fails in a way nobody foresaw is handed to a person.

        Raises:
            NightshiftError: It could not be worked on now: the next pass tries again.
            Exception: The fault, after its incident was escalated: no other incident is touched by it.
        """
        try:
            return self.work(incident_id, owner=owner, until=until)
        except NightshiftError:
            raise
        except Exception as error:
            self._escalate(self.store.incident(incident_id), f"Nightshift failed at it: {type(error).__name__}: {error}")
            raise

    def work(self, incident_id: int, *, owner: str, by: str | None = None, until: Callable[[], bool] = lambda: False) -> Incident:
        """Take one incident as far as it can go now and return where it stands.

        It stops when the incident has ended, waits for an approval, waits for a restarted job, when something did not answer, or
        when somebody else holds it. Calling it again goes on exactly there.

        Args:
            incident_id: Which.
            owner: Who takes the lease, from `owner_name`.
            by: The person who asked for it, `cli:alice`: the policy then asks them instead of refusing in observe mode.
            until: Asked between two stages; it stops there when true, and goes on exactly there the next time.
        """
        with kept_lease(self.store, incident_id, owner, self.lease_s) as has_lease:
            try:
                if has_lease:
                    reconciliation.settle_interrupted_calls(self, incident_id)
                while has_lease and not until() and self._advance(self.store.incident(incident_id), by):
                    pass
            except (Unavailable, TargetBusy) as error:
                logger.warning("incident=%s waits: %s", incident_id, error)
        return self.store.incident(incident_id)

    def diagnose(self, incident_id: int) -> Diagnosis:
        """Gather evidence, diagnose and keep the diagnosis."""
        incident = self.store.incident(incident_id)
        job = self._job(incident.job)
        with reading_as(job.account if job is not None else ""):
            case = gather(self.store, self.gate, incident, job, self.watcher.jobs)
            knowledge = self.knowledge_of(task_of(job))
            facts = read_facts(self.store, incident, case, knowledge)
        diagnosis = judge(facts, knowledge, self.opinions)
        if job is not None and worth_probing(diagnosis, job) and (probe_lines := probe(self.store, self.gate, incident, job)):
            facts = replace(facts, case=replace(case, probes=probe_lines))
            diagnosis = judge(facts, knowledge, self.opinions)
        count_folded(self.store, facts)
        diagnosis = with_held_nodes(suspected(diagnosis, case.event), case.event, job)
        diagnosis = with_cluster_evidence(self, incident, diagnosis, job)
        diagnosis = with_hidden_end(with_patterns(self.store, self.scheduler, incident, diagnosis, job), job)
        self.store.add_diagnosis(incident_id, diagnosis)
        record_in_ledger(self.store, self.scheduler, incident, diagnosis, job)
        self.store.mark_stage(incident_id, "diagnosed")
        words = f"reason={diagnosis.reason} confidence={diagnosis.confidence:.2f} by={diagnosis.by}"
        logger.info("incident=%s diagnosed %s", incident_id, words)
        return diagnosis

    def playbook_for(self, diagnosis: Diagnosis, job: Job | None) -> tuple[Playbook | None, str]:
        """Return the playbook for a diagnosis, or None and why there is none to run."""
        playbook = choose_playbook(diagnosis, self.playbooks)
        if playbook is None:
            return None, f"no playbook handles {diagnosis.reason}"
        if job is not None and job.ended_badly and job.interactive:
            return None, interactive_note(job)
        if job is not None and job.ended_badly and not playbook.step and str(playbook.ends) == str(IncidentState.CLOSED):
            # whatever its log says: nobody but a person closes the incident of a job that failed
            return None, in_spite_of_its_end(diagnosis, job)
        if not playbook.restarts:
            return playbook, ""
        budget = self.budget(playbook, diagnosis, job)
        return (playbook, "") if budget.allowed else (None, budget.why)

    def budget(self, playbook: Playbook, diagnosis: Diagnosis, job: Job | None) -> Budget:
        """Return how many restarts a playbook has left for the root cause of a diagnosis."""
        since = self.clock.now() - timedelta(hours=playbook.limits.within_h)
        past = self.store.attempts(retry_policy.cause_key(diagnosis, job), since)
        return restart_budget(diagnosis, past, playbook.limits, now=self.clock.now(), directives=directives_of(job))

    def _advance(self, incident: Incident, by: str | None) -> bool:
        """Take the next stage; False when it must stop here for now."""
        if incident.kind is EventKind.OUTAGE:
            return False  # its members are worked on
        if incident.state is IncidentState.OPEN:
            return self._diagnosed(incident)
        if not incident.state.ended and (self._stopped(incident, by) or close_if_resumed(self, incident)):
            return False
        if incident.state is IncidentState.DIAGNOSED:
            return self._planned(incident, by)
        return not incident.state.ended and self._recovered(incident, by)

    def _stopped(self, incident: Incident, by: str | None) -> bool:
        """Hold an incident while the breaker is open, drop it once it was reset; a person at an interface may go on with it."""
        left_over = retry_policy.left_since(self.store, incident) is not None
        if by is not None and sits_at_a_door(by):
            if left_over or why_open(self.store):
                self.store.mark_stage(incident.id, retry_policy.TAKEN_UP_BY_PERSON)
            return False
        if left_over:
            job = self._job(incident.job)
            state, note = retry_policy.state_after_reset(incident, job, self.scheduler.jobs())
            retry_policy.deny_after_reset(self.store, incident)
            if state is IncidentState.ESCALATED:
                self._escalate(incident, note)
            else:
                self.store.set_state(incident.id, state, note=note)
            return True
        if note := retry_policy.held_by(self.store, incident):
            self.store.mark_stage(incident.id, retry_policy.HELD_BY_BREAKER)
            self._note_state(incident, incident.state, note)
        return bool(note)

    def _diagnosed(self, incident: Incident) -> bool:
        diagnosis = self.diagnose(incident.id)
        self.store.set_state(incident.id, IncidentState.DIAGNOSED, note=diagnosis.summary)
        return True

    def _planned(self, incident: Incident, by: str | None) -> bool:
        job = self._job(incident.job)
        diagnosis = reconsidered(self, incident, self._diagnosis(incident), job)
        if settled := settlement.settled_elsewhere(self, incident, diagnosis):
            self.store.set_state(incident.id, IncidentState.CLOSED, note=settled)
            return False
        turn = self.outages.turn(self, incident, diagnosis) if by is None else Turn()
        if turn.settled:
            self.store.set_state(incident.id, IncidentState.CLOSED, note=turn.settled)
            return False
        over = settlement.lost_training(self, incident, job) or failed_restarts.wrong_start_before(self.store, incident)
        client = client_turn(self, incident, diagnosis, job) if by is None and not turn.note else ClientTurn()
        over = over or client.over or (waiting_job(self, incident, job) if client == ClientTurn() else "") or turn.over
        if not client.waits and (over := over or still_runs(self, incident, job, diagnosis)):
            self._escalate(incident, over)
            return False
        if note := turn.note or client.waits:
            self._note_state(incident, IncidentState.DIAGNOSED, note)
            return False
        diagnosis = with_returned_file(self, incident, diagnosis, job)
        retry_policy.credit_progress(self.store, incident, diagnosis, job)
        if (training := settlement.finished_training(self, incident, job, diagnosis)).note:
            if training.needs_owner:
                self._escalate(incident, training.note)
            else:
                self.store.set_state(incident.id, IncidentState.CLOSED, note=f"settled: {training.note}")
            return False
        shared, (playbook, why) = turn.incident, self.outages.playbook_of(self, turn, diagnosis, job)
        if playbook is not None and playbook.restarts and by is None:
            objection = retry_policy.unproven_hang(self.store, incident, diagnosis, job) if not self.replays else ""
            if not objection and not playbook.can_move and not tried_by_restart(shared):
                objection = retry_policy.refutation(self.store, incident, diagnosis)
            playbook, why = (None, objection) if objection else (playbook, why)
        if playbook is None:
            self._escalate(incident, why)
            return False
        budget = self.budget(playbook, diagnosis, job)
        waits = retry_policy.back_off(budget, self.clock.now()) if by is None and playbook.restarts else ""
        if waits or (shared is not None and playbook.restarts and (waits := self.outages.take_turn(self, shared))):
            self._note_state(incident, IncidentState.DIAGNOSED, waits)
            return False
        note = f"playbook {playbook.name}: {playbook.title}"
        self.store.set_state(incident.id, IncidentState.RECOVERING, note=note, playbook=playbook.name, digest=playbook.digest)
        self.store.mark_stage(incident.id, "planned")
        return True

    def _recovered(self, incident: Incident, by: str | None) -> bool:
        diagnosis, job = self._diagnosis(incident), self._job(incident.job)
        playbook = self.playbooks.get(incident.playbook or "")
        if playbook is None or playbook.digest != incident.playbook_digest:
            self._escalate(incident, f"playbook {incident.playbook} changed or vanished while it ran; go on by hand")
            return False
        values = retry_policy.situation_of(self.store, incident, diagnosis, job)
        try:
            # one look and no waiting: whoever calls decides when to look again
            way = partial(retry_policy.before_restart, self.store, self.scheduler, incident)
            ended = run_playbook(incident, playbook, values, self.gate, self.clock, by=by, look_s=0, patience_s=0, way=way)
            ended = verified_end(self, incident, diagnosis, ended, by=by or f"playbook:{playbook.name}")
        except Parked as parked:
            self._note_state(incident, IncidentState.WAITING, str(parked))
            return False
        if ended.state is not IncidentState.ESCALATED or not close_if_resumed(self, incident):
            self._settle(incident, diagnosis, job, ended)
        return False

    def _settle(self, incident: Incident, diagnosis: Diagnosis, job: Job | None, ended: Ended) -> None:
        """Write down where a playbook stands or how it ended."""
        if any(call.tool in RESTARTS and call.status == "done" for call in self.store.calls(incident.id)):
            self.store.mark_stage(incident.id, "restarted")
            self.store.add_attempt(retry_policy.cause_key(diagnosis, job), incident=incident.id, step=failing_step(diagnosis))
        if ended.state is IncidentState.RECOVERED:
            self.store.mark_stage(incident.id, "recovered")
            confirm_recovered(self, incident, diagnosis)
        self._note_state(incident, ended.state, ended.note)
        if ended.state.ended:
            record_in_ledger(self.store, self.scheduler, incident, diagnosis, job)  # with what the probes read meanwhile
        logger.info("incident=%s %s: %s", incident.id, ended.state, ended.note)

    def _escalate(self, incident: Incident, why: str) -> None:
        self.store.mark_stage(incident.id, "escalated")
        self.store.set_state(incident.id, IncidentState.ESCALATED, note=f"{why}{never_begin(self.scheduler, incident.job)}")
        logger.error("incident=%s needs a person: %s", incident.id, why)

    def _note_state(self, incident: Incident, state: IncidentState, note: str) -> None:
        if (state, note) != (incident.state, incident.note):
            self.store.set_state(incident.id, state, note=note)

    def _diagnosis(self, incident: Incident) -> Diagnosis:
        diagnosis = self.store.diagnosis(incident.id)
        if diagnosis is None:
            raise StoreError(f"incident {incident.id} is {incident.state} and has no diagnosis: run `nightshift audit verify`")
        return diagnosis

    def _job(self, job_id: str | None) -> Job | None:
        """Return the job; None when the scheduler surely knows none of that id."""
        if job_id is None:
            return None
        try:
            return with_hidden_failure(self.store, self.scheduler.job(job_id))
        except ToolError:
            return None

    def _known_incidents(self) -> KnownIncidents:
        """Return which attempts have an incident; read anew only when something has happened since."""
        mark = self.store.audit_mark()
        if self._known_at is None or self._known_at[0] != mark:
            self._known_at = (mark, retry_policy.known_incidents(self.store))
        return self._known_at[1]
