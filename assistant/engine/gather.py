"""Bring the evidence of one attempt together, by reading calls through the gate, and name who ended the job.

`ask` is the reading call that the modules of `evidence/` make, too: its answer is kept as evidence of the incident.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from assistant.diagnose.case import Case
from assistant.diagnose.facts import Facts
from assistant.diagnose.facts import gather as facts_of
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.weighing.external_findings import as_text
from assistant.diagnose.weighing.training_failure import RESULT_LIES
from assistant.errors import NightshiftError, ToolError, Unavailable
from assistant.gate import Gate
from assistant.logs.attempt import JobLogs
from assistant.ports import Scheduler
from assistant.records import (
    Action,
    Category,
    Diagnosis,
    Event,
    EventKind,
    Incident,
    Job,
    NodePattern,
    PatternKind,
    Whereabouts,
)
from assistant.recover.advised_way import NEWEST_BEFORE, SPIKE_MARGIN, damaged_from, newest_before
from assistant.recover.checkpoints.search import CheckpointSearch, SaveState, search_checkpoints
from assistant.recover.directives import gpu_hours
from assistant.recover.identity import RESTARTS, restart_of
from assistant.recover.joblog import LOGS, log_lines, logs_of, marks_before, noted
from assistant.recover.loaded import LoadedCheckpoint, loaded_checkpoint
from assistant.recover.start_costs import ONE_PIECE_LOST, cost_of_beginning, without_checkpoint
from assistant.redact import head_of, tail_of
from assistant.schedulers.slurm_jobs import killer_in
from assistant.store import Store
from assistant.untrusted import LOOK_S, READ_S, is_regular, status_of, within

logger = logging.getLogger(__name__)

KEPT_CHARACTERS = 100_000
"""Of each text that is kept as evidence, from its end."""
KERNEL_LINES = 500
"""Of each node: a failure stands near the end, and a job may have a thousand nodes."""

FIRST_STEPS = 2
"""A loss that is off within so many steps of the checkpoint that was loaded came with it."""
_STEP = re.compile(r"\b(?:iteration|global[_ ]step|step|iter)\b[ =:#]{1,3}(\d{1,9})\b", re.IGNORECASE)
MOST_PROBED = 256
"""Nodes that are probed before a diagnosis: of larger jobs the playbook probes in its own time."""


def parent_of(store: Store, job: Job | None) -> int | None:
    """Return the incident of this store whose restart a job was, None for a job that anybody else submitted."""
    call = restart_of(store, job) if job is not None else None
    return call.incident if call is not None else None


def gather(store: Store, gate: Gate, incident: Incident, job: Job | None, jobs: Sequence[Job] = ()) -> Case:
    """Return everything that the attempt left behind, and keep it as evidence.

    What cannot be read now is noted as unknown and leaves the case poorer, never wrong.

    Args:
        store: Where the evidence is kept.
        gate: Through which everything is read.
        incident: Of the attempt.
        job: The attempt as the scheduler shows it.
        jobs: All that the scheduler shows: some may have run on the same nodes.
    """
    job = with_all_parts(job, jobs)
    nodes = list(job.nodes) if job is not None else [incident.node] if incident.node else []
    kernel = ask(store, gate, incident, "kernel_log", {"nodes": nodes, "lines": KERNEL_LINES}) if nodes else None
    scheduler = ask(store, gate, incident, "scheduler_log", {"job": incident.job}) if incident.job else None
    log = job.log if job is not None else None
    logs = _logs(store, incident, job)
    if log is not None:
        size, size_words = _size_of(log, job)
        facts = {"path": str(log), "size_bytes": size, "account": job.account if job is not None else ""}
        store.add_evidence(incident.id, "job log", size_words, facts)
    event = _strongest(store.events(incident.id))
    if event is not None and event.kind is EventKind.HANG and job is not None and not job.state.ended:
        _keep_second_look(store, gate, incident, event)
    kernel_text = _sections(kernel)
    if kernel_text:
        # the text that citations of dmesg.log count the lines of
        store.add_evidence(incident.id, "dmesg.log", tail_of(kernel_text, KEPT_CHARACTERS), {"nodes": nodes})
    scheduler_text = lines_of_attempt(str((scheduler or {}).get("text", "")), job, incident.attempt)
    try:
        case = within(LOOK_S, lambda: Case.from_parts(log, kernel_text, scheduler_text, _metrics(job), job, event), f"{log}")
        case = replace(case, neighbours=neighbours_of(job, jobs))
        return case.with_logs(logs) if logs is not None else case
    except Unavailable as error:
        store.add_evidence(incident.id, "job log unread", f"unknown: {error}", {"known": False})
        return Case.from_parts(None, kernel_text, scheduler_text, None, job, event)


def lines_of_attempt(text: str, job: Job | None, attempt: int | None = None) -> str:
    """Return what the controller logged about one attempt of a job that was queued again: what ended another one is not its.

    Args:
        text: Of the controller's log, times in this machine's zone.
        job: As the scheduler shows it; where it has not begun, everything counts.
        attempt: The one that is looked into; the last one when not given. Of one before it the lines up to the last start count.
    """
    if job is None or not job.attempt or job.started is None:
        return text
    began = f"[{job.started.astimezone():%Y-%m-%dT%H:%M:%S}"
    is_earlier = attempt is not None and attempt < job.attempt
    return "\n".join(
        line for line in text.splitlines() if not line.startswith("[2") or (line[: len(began)] >= began) is not is_earlier
    )


def with_all_parts(job: Job | None, jobs: Sequence[Job]) -> Job | None:
    """Return a job with the nodes of all parts of its attempt, where it is one of a heterogeneous job; any other as it is.

    What ends one part ends all of them, and the evidence lies on the nodes of the one that failed first.
    """
    base, plus, _ = job.id.partition("+") if job is not None else ("", "", "")
    if job is None or not plus:
        return job
    parts = [part for part in jobs if part.id.partition("+")[:2] == (base, plus) and part.attempt == job.attempt]
    return replace(job, nodes=tuple(dict.fromkeys((*job.nodes, *(node for part in parts for node in part.nodes)))))


def neighbours_of(job: Job | None, jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Return the jobs that ran on nodes of a job while it ran."""
    if job is None or job.started is None:
        return ()
    nodes, ended = {*job.nodes}, job.ended
    neighbours = [
        neighbour for neighbour in jobs if neighbour.id != job.id and neighbour.started is not None and nodes & {*neighbour.nodes}
    ]
    return tuple(
        neighbour
        for neighbour in neighbours
        if neighbour.started is not None
        and (ended is None or neighbour.started <= ended)
        and (neighbour.ended is None or neighbour.ended >= job.started)
    )


def read_facts(store: Store, incident: Incident, case: Case, knowledge: Knowledge) -> Facts:
    """Return the facts of a case; of a job log or metrics that cannot be read, the evidence says why, and the others count.

    A log that hangs, is none, or breaks what reads it must leave its incident diagnosed: `unknown` is a diagnosis.
    """
    attempts = [case, case.without_log(), replace(case, metrics=None)]
    for attempt in attempts if case.metrics is not None else attempts[:1]:
        if not attempt.has_log and attempt.metrics is None:
            continue
        try:
            return within(READ_S, partial(facts_of, attempt, knowledge), f"the log {attempt.job_log or attempt.metrics}")
        except Unavailable as error:  # it hangs: what lies beside it would, too
            _keep_unread(store, incident, attempt, str(error))
            break
        except (NightshiftError, OSError) as error:
            why = str(error)
        except Exception as error:
            logger.exception("incident=%s %s broke what reads it", incident.id, attempt.job_log or attempt.metrics)
            why = f"it broke what reads it: {error!r}"
        _keep_unread(store, incident, attempt, why)
    return facts_of(replace(case.without_log(), metrics=None), knowledge)


def _logs(store: Store, incident: Incident, job: Job | None) -> JobLogs | None:
    """Return the logs of an attempt, and keep which there are and how long; None where nobody can tell now."""
    if job is None:
        return None
    try:
        logs = logs_of(job, marks_before(store, job))
    except (Unavailable, OSError) as error:
        store.add_evidence(incident.id, f"{LOGS} unknown", f"unknown: {error}", {"known": False})
        return None
    text = "\n".join([*(file.described() for file in logs.files), *logs.problems]) or "no log is known"
    store.add_evidence(
        incident.id, LOGS, head_of(text, KEPT_CHARACTERS), {**noted(logs, store.clock.now()), "account": job.account}
    )
    return logs


def keep_log_ends(store: Store, scheduler: Scheduler, incident: Incident) -> None:
    """Keep how long the logs of a job are that was still running when it was looked at: its restart may append to them."""
    notes = [evidence for evidence in store.evidence(incident.id) if evidence.source == LOGS]
    if incident.job is None or not notes or any(call.tool in RESTARTS for call in store.calls(incident.id)):
        return
    try:
        job = scheduler.job(incident.job)
    except (ToolError, Unavailable):
        return
    if job.over is not None and notes[-1].at <= job.over:
        _logs(store, incident, job)


def _keep_unread(store: Store, incident: Incident, case: Case, why: str) -> None:
    source = "job log" if case.has_log else "metrics.jsonl"
    logger.warning("incident=%s its %s cannot be read: %s", incident.id, source, why)
    store.add_evidence(incident.id, f"{source} unread", head_of(f"unknown: {why}", KEPT_CHARACTERS), {"known": False})


def _size_of(log: Path, job: Job | None) -> tuple[int | None, str]:
    """Return the size of a job's log in bytes, where it has one, and a sentence about it."""
    try:
        status = within(LOOK_S, lambda: status_of(log), f"{log}")
    except FileNotFoundError:
        return None, f"{log}: does not exist"
    except (OSError, Unavailable) as error:
        return None, f"unknown: {log}: {error}"
    return status.st_size, f"{log}: {status.st_size} bytes"


def _keep_second_look(store: Store, gate: Gate, incident: Incident, event: Event) -> None:
    """Keep where the ranks of a job stand that hangs: once it is ended nobody can look any more."""
    if "stacks" not in event.detail and "witness" not in event.detail:
        ask(store, gate, incident, "stack_classes", {"job": event.job})
        return
    facts = {
        name: event.detail[name] for name in ("votes", "suspects", "gpus", "stacks", "stopped", "unrun") if name in event.detail
    }
    if not any(evidence.source == "second look" for evidence in store.evidence(incident.id)):
        store.add_evidence(incident.id, "second look", str(event.detail.get("witness", "")), facts)


def suspected(diagnosis: Diagnosis, event: Event | None) -> Diagnosis:
    """Return a diagnosis with the nodes whose ranks stand apart in a hang: where to look first, never a reason to cordon."""
    nodes = (
        tuple(str(node) for node in event.detail.get("suspects", ())) if event is not None and event.kind is EventKind.HANG else ()
    )
    if not nodes or event is None:
        return diagnosis
    apart = NodePattern(PatternKind.DIFFERS, nodes, str(event.detail.get("witness", "")))
    unrun = str(event.detail.get("unrun") or "")
    summary = f"{diagnosis.summary} {unrun[0].upper()}{unrun[1:]}." if unrun else diagnosis.summary
    return replace(diagnosis, patterns=(*diagnosis.patterns, apart), summary=summary)


def with_held_nodes(diagnosis: Diagnosis, event: Event | None, job: Job | None) -> Diagnosis:
    """Return a diagnosis that says that the program of a job failed and that its batch script still holds the nodes."""
    silent = event is not None and event.kind is EventKind.HANG
    if not silent or event is None or job is None or job.state.ended or diagnosis.reason in ("hang", "slow_job", "no_failure"):
        return diagnosis
    programs = event.detail.get("programs") or {}
    program_words = "; ".join(f"{node}: {', '.join(names)}" for node, names in list(programs.items())[:2])
    nodes = f"{len(job.nodes)} node{'s' * (len(job.nodes) != 1)}"
    if event.detail.get("gone"):
        sentence = f"No program of job {job.id} runs any more ({program_words}): its batch script waits, and holds {nodes}."
    else:
        sentence = f"Job {job.id} is still running and holds {nodes}" + (f" ({program_words})." if program_words else ".")
    return replace(diagnosis, summary=f"{diagnosis.summary} {sentence}", advice=f"{sentence} {diagnosis.advice}")


def with_no_checkpoint(diagnosis: Diagnosis, job: Job | None, folders: Mapping[str, Path], now: datetime) -> Diagnosis:
    """Return a diagnosis whose advice says what a restart costs where the job is proven to have saved nothing.

    Where the training is over it says where the result lies, if the log has not said so.
    """
    if job is None or job.spec is None or not job.state.ended or diagnosis.reason == "no_failure":
        return diagnosis
    try:
        search = search_checkpoints(job, folders, (line.text for line in log_lines(job)), now=now)
    except (NightshiftError, OSError):
        return diagnosis
    if diagnosis.tail:
        return _with_result(diagnosis, search)
    if diagnosis.reason == "loss_spike":
        return _with_checkpoint_before(diagnosis, search, loaded_checkpoint(log_lines(job)))
    if search.state is not SaveState.NEVER_SAVED:
        return diagnosis
    if search.stateless:
        return without_checkpoint(diagnosis, "It keeps no state: a restart loses only what it was at.")
    if search.pieces:
        words = f"It needs no checkpoint ({search.pieces}). {ONE_PIECE_LOST}"
        without_save = without_checkpoint(diagnosis, words)
        return replace(without_save, advice=without_save.advice.replace("Restart from the start", "Restart", 1))
    cost = cost_of_beginning(job, diagnosis.step, gpu_hours(job, now), search.programs, diagnosis.action)
    return without_checkpoint(diagnosis, f"It never saved a checkpoint. {cost}")


def _with_result(diagnosis: Diagnosis, search: CheckpointSearch) -> Diagnosis:
    newest = (
        max(search.inventory.checkpoints, key=lambda checkpoint: checkpoint.step, default=None)
        if search.inventory is not None
        else None
    )
    if newest is None:
        sentence = "" if RESULT_LIES in diagnosis.summary else "Where its result lies is not known."
    else:
        sentence = f"Its newest checkpoint is {newest.path}."
    return replace(diagnosis, summary=f"{diagnosis.summary} {sentence}".strip(), advice=f"{diagnosis.advice} {sentence}".strip())


def _with_checkpoint_before(diagnosis: Diagnosis, search: CheckpointSearch, loaded: LoadedCheckpoint) -> Diagnosis:
    """Return a loss spike with the newest checkpoint from before the step that it names: a person may want to go on from there.

    Where the loss was off from the first step behind a checkpoint that the job loaded, that one may hold the damage already. A step
    from before its first is that of an earlier link of its run, and counts as it is.
    """
    step_match = _STEP.search(diagnosis.root_cause[0].text) if diagnosis.root_cause else None
    step = diagnosis.spike_step or (int(step_match[1]) if step_match is not None else diagnosis.step)
    checkpoints = search.inventory.checkpoints if search.inventory is not None else ()
    margin = SPIKE_MARGIN if diagnosis.spike_step else 1
    loaded_step = next((load.step for load in reversed(loaded.loads) if load.step), None)
    before_it = loaded.first_step is not None and diagnosis.spike_step is not None and diagnosis.spike_step < loaded.first_step
    if step is not None and loaded_step is not None and step <= loaded_step + FIRST_STEPS and not before_it:
        step, margin = loaded_step, 1
    if step is None:
        return diagnosis
    words = newest_before(checkpoints, step, margin) if NEWEST_BEFORE not in diagnosis.advice else ""
    places = (*diagnosis.where, damaged_from(step - margin + 1))
    return replace(diagnosis, advice=f"{diagnosis.advice} {words}".rstrip(), where=places)


def probe(store: Store, gate: Gate, incident: Incident, job: Job) -> str:
    """Return what the health probes find wrong on the nodes of an attempt, as lines of `probes.log`; empty when nothing is."""
    arguments: dict[str, Any] = {"nodes": list(job.nodes)}
    if job.started is not None and job.attempt == incident.attempt:
        arguments["job_started"] = job.started.isoformat()
    checked = ask(store, gate, incident, "check_nodes", arguments)
    text = as_text(checked) if checked is not None else ""
    if text:
        store.add_evidence(incident.id, "probes.log", tail_of(text, KEPT_CHARACTERS), {"nodes": list(job.nodes)})
    return text


def ask(store: Store, gate: Gate, incident: Incident, tool: str, arguments: dict[str, Any]) -> Mapping[str, Any] | None:
    """Return what a reading call says, kept as evidence; None where it could not be made now."""
    argument_words = ", ".join(f"{name}={value}" for name, value in arguments.items())
    try:
        outcome = gate.call(tool, arguments, why="evidence for the diagnosis", by="engine", incident=incident.id)
    except (ToolError, Unavailable) as error:
        store.add_evidence(incident.id, f"{tool}({argument_words})", f"unknown: {error}", {"known": False})
        return None
    except NightshiftError:
        logger.exception("incident=%s %s could not be asked", incident.id, tool)
        return None
    if not outcome.ok or tool not in ("kernel_log", "check_nodes"):
        text = outcome.error if not outcome.ok else str(outcome.value)
        store.add_evidence(incident.id, f"{tool}({argument_words})", tail_of(text, KEPT_CHARACTERS), {"known": outcome.ok})
    return outcome.value if outcome.ok and isinstance(outcome.value, Mapping) else None


def caused_outside(diagnosis: Diagnosis, sentence: str, action: Action, advice: str, *places: Whereabouts) -> Diagnosis:
    """Return a diagnosis whose cause lies outside of the job: a sentence that says it, and what is done about it where."""
    return replace(
        diagnosis,
        category=Category.INFRASTRUCTURE,
        action=action,
        summary=f"{diagnosis.summary} {sentence}",
        advice=advice,
        where=(*diagnosis.where, *places),
    )


def _sections(kernel: Mapping[str, Any] | None) -> str:
    """Return the kernel logs of several nodes as one text with a header for each."""
    texts = (kernel or {}).get("text")
    if not isinstance(texts, Mapping):
        return ""
    return "\n".join(f"# {node}\n{text}" for node, text in texts.items() if text)


def _metrics(job: Job | None) -> Path | None:
    path = job.work_dir / "metrics.jsonl" if job is not None and job.work_dir is not None else None
    return path if path is not None and is_regular(path) else None


def _strongest(events: list[Event]) -> Event | None:
    """Return the first event: what was noticed about the attempt before anybody touched it."""
    return events[0] if events else None


def worth_probing(diagnosis: Diagnosis, job: Job) -> bool:
    """Tell whether a look at the nodes could decide: a machine may be behind it, and none is named."""
    open_ended = diagnosis.category is Category.INFRASTRUCTURE or diagnosis.reason in ("unknown", "hang", "slow_job")
    return open_ended and not diagnosis.faulty_nodes and 0 < len(job.nodes) <= MOST_PROBED


def with_sender(diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return the diagnosis of a cancelled job with who did it; as it is where no cited line of the controller says so."""
    sender = _sender(diagnosis, job)
    if not sender or job is None:
        return diagnosis
    if sender == job.user:
        sentence = f"Its owner {sender} ended it"
        advice = f"{sentence}; it is not started again by itself. Where that was not meant, {sender} submits it again."
    else:
        sentence = f"{sender} ended it, not its owner {job.user}" if job.user else f"{sender} ended it"
        advice = f"{sentence}; it is not started again before {sender} says why."
    return replace(diagnosis, summary=f"{diagnosis.summary} {sentence}.", advice=advice)


def in_spite_of_its_end(diagnosis: Diagnosis, job: Job) -> str:
    """Return why a job that the scheduler says has failed is not left alone by a diagnosis by which nothing is broken."""
    sender = _sender(diagnosis, job)
    if not sender:
        return f"the scheduler says that job {job.id} {job.state}; {diagnosis.reason} does not explain that"
    of = "its owner " if sender == job.user else ""
    return f"{of}{sender} ended job {job.id} by a signal, and the scheduler says that it {job.state}: is it to go on?"


def _sender(diagnosis: Diagnosis, job: Job | None) -> str:
    if diagnosis.reason != "cancelled" or job is None:
        return ""
    return killer_in("\n".join(line.text for line in diagnosis.root_cause if line.file == "slurmctld.log"), job)
