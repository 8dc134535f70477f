"""Processes of jobs on their nodes: looks at running jobs, and programs that live on although the scheduler calls their job ended.

Looks keep what the processes write, for the time after they died; a node that does not answer leaves "not known", never a failed
pass. While a program outlives its job, nothing is started beside it: the incident is settled once it has finished, and its restart
goes on once it has died. A program of an earlier attempt beside a requeued job would be a second writer into one folder: a person
is told at once, with the commands, and nothing is ended.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from assistant.errors import Fenced, NightshiftError, StoreError, Unavailable
from assistant.records import Diagnosis, Evidence, Incident, IncidentState, Job, JobState, NodeState
from assistant.records.jobs import ProcessReport, report_of, with_shared
from assistant.recover.wrong_start import TEAR_DOWN

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

logger = logging.getLogger(__name__)

OUTLIVED = "outlived"
"""Stage of an incident whose job's program was seen alive after the scheduler had called the job ended."""
OUTLIVED_OVER = "outlived_over"
"""Stage of such an incident whose program says that it is through, and whose last save nobody knows: a person is asked."""
MOST_ASKED_NODES = 16
FIRST_PAUSE, FIRST_PAUSES_FOR, LATER_PAUSE = timedelta(seconds=30), timedelta(minutes=10), timedelta(minutes=5)
"""Between two looks at first, for how long, and between two later ones."""
MOST_INCIDENTS = 1_000
"""Newest incidents among which those are that are looked at again."""


def still_runs(engine: EnginePort, incident: Incident, job: Job | None, diagnosis: Diagnosis) -> str:
    """Return that the program of a job whose node went away still runs, so that it is not started again; empty for any other.

    Raises:
        Unavailable: The scheduler did not answer.
    """
    if engine.replays or job is None or not job.state.ended or job.attempt != incident.attempt:
        return ""
    if job.state is not JobState.NODE_FAIL and not (diagnosis.reason == "node_failure" and job.ended_badly):
        return ""
    down = {node.name for node in engine.scheduler.nodes() if node.state is NodeState.DOWN} | {*diagnosis.faulty_nodes}
    nodes = [node for node in job.nodes if node in down][:MOST_ASKED_NODES]
    if not nodes:
        return ""  # the daemons of all its nodes are there: they end what is left of it
    program = _processes_on_nodes(engine, incident, job, nodes)
    if not program.get("lives"):
        return ""
    engine.store.mark_stage(incident.id, OUTLIVED)
    return (
        f"{program['note']}. Do not start it again: that makes a second writer beside it. Only the daemon of the node (slurmd) "
        "seems to have died; once it is back it ends the program. It is looked at again: the incident is closed once the program "
        "has finished by itself, and the job is started again once it has died"
    )


def check_outliving_programs(engine: EnginePort) -> None:
    """Look again at a program that outlived its job, one a pass: close what finished, take up again what died."""
    waiting = engine.store.unacknowledged() if not engine.replays else frozenset()
    for incident in engine.store.incidents(limit=MOST_INCIDENTS, state=IncidentState.ESCALATED) if waiting else ():
        stages = engine.store.stages(incident.id) if incident.id in waiting else {}
        if incident.job is not None and OUTLIVED in stages and OUTLIVED_OVER not in stages:
            try:
                if _check_program(engine, incident, incident.job):
                    return  # a node that does not answer takes its time, and the others come in turn
            except NightshiftError as error:
                logger.info("incident=%s is not looked at again now: %s", incident.id, error)


def _check_program(engine: EnginePort, incident: Incident, job_id: str) -> bool:
    """Ask about an outliving program where that is due, and write down how it ended; tell whether it was due."""
    calls = [call for call in engine.store.calls(incident.id) if call.tool == "living_program"]
    last = engine.store.outcome(calls[-1].id) if calls else None
    now = engine.clock.now()
    if last is not None and now - last.at < (FIRST_PAUSE if now - incident.opened < FIRST_PAUSES_FOR else LATER_PAUSE):
        return False
    job = engine.scheduler.job(job_id)
    if job.attempt != incident.attempt or not job.state.ended:
        return False
    nodes = [str(node) for node in calls[-1].arguments.get("nodes") or job.nodes] if calls else list(job.nodes)
    program = _processes_on_nodes(engine, incident, job, nodes)
    if not program.get("gone"):
        return True
    _keep_look(engine, job, program)  # what it wrote since the look before is its own
    outcome = engine.gate.call("training_finished", {"job": job.id}, why="did it finish?", by="watch", incident=incident.id)
    end = outcome.value if outcome.ok and isinstance(outcome.value, Mapping) else {}
    if incident.id not in engine.store.unacknowledged():
        return True  # somebody has taken it meanwhile
    place, question = f"on {', '.join(nodes)} in spite of {job.state}", f"asked before: {incident.note}"
    if end.get("finished") or program.get("over"):
        words = end["note"] if end.get("finished") else program["note"]
        note = f"settled: the program of job {job.id} finished by itself {place}: {words}; {question}"
        engine.store.set_state(incident.id, IncidentState.CLOSED, note=note)
    elif program.get("says_over"):
        engine.store.mark_stage(incident.id, OUTLIVED_OVER)
        note = (
            f"the program of job {job.id} that lived on {place} has ended since, and its log says that it is through; whether its "
            f"last step was saved is not known, so it is not started again: {program['note']}"
        )
        engine.store.set_state(incident.id, IncidentState.ESCALATED, note=note)
    else:
        note = f"the program of job {job.id} that lived on {place} has ended since: {program['note']}"
        engine.store.set_state(incident.id, IncidentState.DIAGNOSED, note=note)
    logger.warning("incident=%s %s", incident.id, note)
    return True


def _processes_on_nodes(engine: EnginePort, incident: Incident, job: Job, nodes: list[str]) -> Mapping[str, Any]:
    """Return what a look at the nodes shows, and keep what its processes write; nothing where it could not be taken."""
    why = "does its program still live, though the scheduler calls the job ended?"
    arguments = {"job": job.id, "nodes": nodes}
    try:
        outcome = engine.gate.call("living_program", arguments, why=why, by="watch", incident=incident.id)
    except Unavailable as error:
        logger.info("incident=%s whether its program lives is not known: %s", incident.id, error)
        return {}
    if not outcome.ok or not isinstance(outcome.value, Mapping):
        logger.info("incident=%s whether its program lives is not known: %s", incident.id, outcome.error)
        return {}
    if outcome.value.get("living"):
        _keep_look(engine, job, outcome.value)
    return outcome.value


def _keep_look(engine: EnginePort, job: Job, value: Mapping[str, Any]) -> None:
    """Keep what a look saw, and when: until then the logs and saves of the job may be its own, see `Job.over`."""
    report, before = report_of(value), engine.store.process_report(job)
    engine.store.keep_process_report(job, before.merged(report) if before is not None else report)


RAN_ON = "ran_on"
"""Fact of the evidence of a requeue: all nodes of the attempt that ended."""
FORMER_PROGRAM = "former_program"
"""Stage of an incident that was handed to a person since a program of its attempt lives beside the next one."""
PAUSE, LONG_PAUSE = timedelta(seconds=30), timedelta(minutes=5)
"""Between two looks: until each node has answered or a person was told, and for `LOOKED_FOR`; and afterwards."""
LOOKED_FOR = timedelta(minutes=10)


@dataclass
class FormerProcesses:
    """Requeued jobs, and when their former nodes are asked next for programs of the attempt before."""

    next_looks: dict[tuple[str, int], datetime | None] = field(default_factory=dict)
    """By job and number of the present attempt; None where nothing lives any more."""

    def look(self, engine: EnginePort, jobs: Sequence[Job], source: str) -> None:
        """Ask the nodes that requeued jobs have left; one that fails is only logged.

        Args:
            engine: Its store holds the incidents of the attempts before.
            jobs: Of the scheduler's last answer.
            source: Of the evidence about a requeue.

        Raises:
            Fenced: Another watch leads.
        """
        requeued_jobs = {(job.id, job.attempt): job for job in jobs if job.attempt and job.state is not JobState.UNKNOWN}
        self.next_looks = {key: at for key, at in self.next_looks.items() if key in requeued_jobs}
        for key, job in requeued_jobs.items():
            due = self.next_looks.get(key, engine.clock.now())
            if engine.replays or due is None or due > engine.clock.now():
                continue
            try:
                self.next_looks[key] = _ask_nodes(engine, job, source)
            except Fenced:
                raise
            except NightshiftError as error:
                self.next_looks[key] = engine.clock.now() + PAUSE
                logger.info("job=%s whether a program of its former attempt lives is not known: %s", job.id, error)


def _ask_nodes(engine: EnginePort, job: Job, source: str) -> datetime | None:
    """Ask the former nodes of a job, write down the answer, and return when to ask next; None where that is over."""
    own = [incident for incident in engine.store.incidents(job=job.id) if incident.attempt == job.attempt - 1]
    records = [(incident, _requeue(engine, incident, source)) for incident in own]
    incident, evidence = next(((attempt, evidence) for attempt, evidence in records if evidence is not None), (None, None))
    if incident is None or evidence is None:
        return None
    now = engine.clock.now()
    is_told = FORMER_PROGRAM in engine.store.stages(incident.id)
    if job.state.ended:
        _settle(engine, incident, f"job {job.id} {job.state}") if is_told else None
        return None
    nodes = _left_nodes(evidence, job)
    if not nodes:
        return now + PAUSE if job.state is JobState.PENDING else None
    why = "does a program of the attempt before live beside this one?"
    arguments = {"job": job.id, "nodes": nodes}
    outcome = engine.gate.call("former_program", arguments, why=why, by="watch", incident=incident.id)
    program: Mapping[str, Any] = outcome.value if outcome.ok and isinstance(outcome.value, Mapping) else {}
    ended = datetime.fromisoformat(str(evidence.facts["ended"]))
    if program.get("gone"):
        _settle(engine, incident, f"it lives no more on {', '.join(nodes)}") if is_told else None
        return None
    ending = now - ended <= TEAR_DOWN and not evidence.facts.get("nodes")
    if program.get("lives") and not ending and incident.state is IncidentState.CLOSED and not is_told:
        _escalate_requeue(engine, incident, job, str(program["note"]))
    return now + (PAUSE if now - ended <= LOOKED_FOR else LONG_PAUSE)


def _requeue(engine: EnginePort, incident: Incident, source: str) -> Evidence | None:
    evidence = [entry for entry in engine.store.evidence(incident.id) if entry.source == source and entry.facts.get(RAN_ON)]
    return evidence[-1] if evidence else None


def _left_nodes(evidence: Evidence, job: Job) -> list[str]:
    """Return the nodes on which a job ran and runs no more, those that failed first."""
    failed = [str(node) for node in evidence.facts.get("nodes", ())]
    ran_on = [str(node) for node in evidence.facts.get(RAN_ON, ())]
    nodes = dict.fromkeys((*failed, *ran_on))
    return [node for node in nodes if job.state is JobState.PENDING or node not in job.nodes]


def _escalate_requeue(engine: EnginePort, incident: Incident, job: Job, processes: str) -> None:
    """Hand the incident of a requeue to a person: what lives, and which commands keep it from becoming a second writer."""
    node = processes.partition(" ")[0]
    if job.state is JobState.PENDING:
        advice = f"HOLD job {job.id} before it begins (scontrol hold {job.id}), or end what lives there"
        then = f"then scontrol release {job.id}"
    else:
        advice = f"two write over each other's checkpoints: END one of them, what lives on {node}, or scancel {job.id}"
        then = "look which of the saves since are whole"
    was = incident.note.removeprefix("settled elsewhere: ")
    note = (
        f"a program of the attempt before still runs on {processes}, beside job {job.id} ({job.state}), which was queued again: "
        f"{advice}; {then}. Nothing was ended: neither is a restart of ours. {was}"
    )
    engine.store.mark_stage(incident.id, FORMER_PROGRAM)
    engine.store.mark_stage(incident.id, "escalated")
    engine.store.set_state(incident.id, IncidentState.ESCALATED, note=note)
    logger.error("incident=%s needs a person: a program of job %s lives beside its next attempt", incident.id, job.id)


def _settle(engine: EnginePort, incident: Incident, words: str) -> None:
    if incident.state is IncidentState.ESCALATED and incident.id in engine.store.unacknowledged():
        note = f"settled elsewhere: of the program of the attempt before and the job that was queued again one is left: {words}"
        engine.store.set_state(incident.id, IncidentState.CLOSED, note=f"{note}; told before: {incident.note}")


LOOKS_AFTER = (timedelta(seconds=15), timedelta(minutes=3), timedelta(minutes=30), timedelta(hours=4), timedelta(hours=24))
"""After the start of a job: programs need a while until they open their logs, and change little later."""
JOBS_IN_A_PASS = 4
"""Jobs whose nodes are asked in one pass of the watch: the others have their turn in the next ones."""
PASS_S = 20.0
"""After so long in one pass no further job is asked about: nodes that hang cost each look its deadline."""
LOOKED_NODES = 2
"""Nodes that are asked of a job: names on the others follow the same pattern."""
MOST_SIBLINGS = 200
"""Running jobs of one user whose open files are compared."""
_MOST_ATTEMPTS = 20_000


@dataclass
class ProcessLooks:
    """How many looks at its processes each attempt of a job has had."""

    look_counts: dict[tuple[str, int], int] = field(default_factory=dict)
    """Of attempts: how many entries of `LOOKS_AFTER` had passed at the last look, also at one that nobody answered."""

    def look(self, engine: EnginePort, jobs: Sequence[Job]) -> list[str]:
        """Look at the processes of the jobs that are due, and return the ids of those that were asked about.

        A program that outlived its job is looked at, too, one a pass.

        Args:
            engine: Its gate is asked and its store keeps the answers.
            jobs: Of the scheduler's last answer.
        """
        check_outliving_programs(engine)
        now = engine.clock.now()
        running = {(job.id, job.attempt): job for job in jobs if job.state is JobState.RUNNING and job.nodes}
        if len(self.look_counts) > _MOST_ATTEMPTS:
            self.look_counts = {key: count for key, count in self.look_counts.items() if key in running}
        due: list[tuple[int, Job]] = []
        for key, job in running.items():
            passed = _looks_due(job, now)
            if not passed:
                continue
            if key not in self.look_counts:
                # a watch that was started again: what the store keeps of looks before counts
                report = engine.store.process_report(job)
                self.look_counts[key] = _looks_due(job, report.at) if report is not None else 0
            if passed > self.look_counts[key]:
                due.append((passed, job))
        # those that were never looked at first: what ends soon takes its names with it
        due.sort(key=lambda entry: self.look_counts[entry[1].id, entry[1].attempt])
        node_names: list[str] = []
        until = engine.clock.ticks() + PASS_S
        for passed, job in due[:JOBS_IN_A_PASS]:
            if engine.clock.ticks() > until:
                break
            self.look_counts[job.id, job.attempt] = passed
            node_names.append(job.id)
            if look_at_processes(engine, job) is not None:
                _mark_shared(engine, job, running.values())
        return node_names


def _looks_due(job: Job, now: datetime) -> int:
    """Return how many entries of `LOOKS_AFTER` have passed since a job began."""
    return sum(now - job.started >= after for after in LOOKS_AFTER) if job.started is not None else 0


def look_at_processes(engine: EnginePort, job: Job, *, incident: int | None = None) -> ProcessReport | None:
    """Look at the processes of a running job now and keep what is seen; None where nothing could be seen.

    Args:
        engine: Its gate is asked and its store keeps the answer.
        job: As the scheduler shows it.
        incident: The incident that the look is taken for.
    """
    why = "where does the job write its logs and checkpoints?"
    try:
        outcome = engine.gate.call(
            "job_processes", {"job": job.id, "most_nodes": LOOKED_NODES}, why=why, by="watch", incident=incident
        )
        if not outcome.ok:
            logger.info("job=%s its processes were not looked at: %s", job.id, outcome.error)
            return None
        report = report_of(outcome.value)
        if _tells_more(report, job):
            before = engine.store.process_report(job)
            engine.store.keep_process_report(job, before.merged(report) if before is not None else report)
        logger.info("job=%s %s", job.id, outcome.value.get("text", ""))
        return report
    except (NightshiftError, ValueError) as error:
        level = logging.WARNING if isinstance(error, StoreError) else logging.INFO
        logger.log(level, "job=%s what its processes write is not known: %s", job.id, error)
        return None


def _mark_shared(engine: EnginePort, job: Job, jobs: Iterable[Job]) -> None:
    """Mark, in the reports of a job and of its user's other running jobs, the files that two of them have open."""
    own = engine.store.process_report(job)
    siblings = [sibling for sibling in jobs if sibling.user == job.user and sibling.id != job.id][:MOST_SIBLINGS]
    for sibling in siblings if own is not None and own.files else ():
        theirs = engine.store.process_report(sibling)
        if own is None or theirs is None:
            continue
        marked, marked_theirs = with_shared(own, theirs), with_shared(theirs, own)
        if marked is not own:
            engine.store.keep_process_report(job, own := marked)
        if marked_theirs is not theirs:
            engine.store.keep_process_report(sibling, marked_theirs)


def _tells_more(report: ProcessReport, job: Job) -> bool:
    """Tell whether a report names anything that the scheduler does not name itself."""
    logs = (job.log, job.error_log)
    return any(file.path not in logs for file in report.files) or any(folder.path != job.work_dir for folder in report.folders)
