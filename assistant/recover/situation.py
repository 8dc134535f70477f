"""What a playbook and a page start from: the incident, the nodes that its diagnosis accuses, and what became of both. Pure.

A node is accused by witnesses who looked for themselves: the job's own output, the kernel of a node, the scheduler, the health
probes. Two lines of the same one are one signal; two independent ones are needed to take a node out. A line that shows the cause
counts for the node that another witness names for the same cause. What was saved after the hardware failed may hold what the faulty
device computed.

A diagnosis gives its advice before anything is done. What was done meanwhile, or cannot be done, is no advice any more: pages and
messages are worded from the rows of the calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from typing import Any

from assistant.records import Action, Call, CallStatus, Category, Checkpoint, Diagnosis, EventKind, Incident, IncidentState, Job
from assistant.recover.directives import directives_of
from assistant.recover.identity import MOVED, RESTARTS
from assistant.recover.restart import attempt_of
from assistant.store import WENT_ON
from assistant.tooling import History
from assistant.watch.outages import AwaitedService, awaited_by

ENOUGH = 2
WITNESSES: Mapping[str, str] = {
    "job.log": "job",
    "metrics.jsonl": "job",
    "dmesg.log": "kernel",
    "slurmctld.log": "scheduler",
    "scheduler": "scheduler",
    "probes.log": "probes",
}
"""Who speaks in each file of a case."""
_XID = re.compile(r"\b(S?Xid) \((?:PCI:)?[0-9a-fA-F:.]{1,64}\): (\d{1,6})\b")
_OF_NODE = re.compile(
    r"(\S{1,200} (?:is not mounted|is missing|is full|is mounted read-only|does not answer|has other owners or rights)) on "
)
"""How a finding about a path of a node begins."""


def witnesses(diagnosis: Diagnosis, node: str) -> frozenset[str]:
    """Return who speaks against a node in a diagnosis; empty for one that it does not name."""
    suspect = next((finding for finding in diagnosis.nodes if finding.node == node), None)
    if suspect is None:
        return frozenset()
    lines = [*suspect.citations, *(citation for citation in diagnosis.root_cause if citation.role == "root")]
    # every other file is one of the job: an error file or a rank's own log is no second witness beside job.log
    return frozenset(WITNESSES.get(line.file, "job") for line in lines)


def proven(diagnosis: Diagnosis) -> list[str]:
    """Return the nodes that two witnesses accuse."""
    return [node for node in diagnosis.faulty_nodes if len(witnesses(diagnosis, node)) >= ENOUGH]


def accused(diagnosis: Diagnosis) -> list[str]:
    """Return the nodes that only one witness accuses."""
    return [node for node in diagnosis.faulty_nodes if len(witnesses(diagnosis, node)) < ENOUGH]


_DEVICE = re.compile(r"\bXid \((?:PCI:)?([0-9a-fA-F:.]{1,64})\): \d{1,6}\b")
_GPU = re.compile(r"\bGPU[ #:]{0,2}\[?(\d{1,2})(?![\w-]|[.:]\w)")


def device_name(line: str) -> str:
    """Return which GPU a line with an XID names: `GPU 3`, else `GPU at 0000:4c:00`; empty for lines of anything else."""
    match = _DEVICE.search(line)
    if match is None:
        return ""
    gpu = _GPU.search(line)
    return f"GPU {gpu[1]}" if gpu is not None else f"GPU at {match[1]}"


def cause_words(diagnosis: Diagnosis) -> str:
    """Return what is wrong with the nodes that a diagnosis accuses, for whoever reads why they are out of service.

    `XID 79 GPU 3 (cuda_error)` where the kernel said so, `/data is not mounted (os_error)` where nodes were compared, else the
    reason.
    """
    codes = [match for cited in diagnosis.root_cause if cited.file == "dmesg.log" and (match := _XID.search(cited.text))]
    device = device_name(codes[0].string) if codes else ""
    words = f"{codes[0][1].upper()} {codes[0][2]}{f' {device}' if device else ''}" if codes else ""
    lost = [match[1] for finding in diagnosis.nodes if (match := _OF_NODE.match(finding.why))]
    words = words or (lost[0] if lost else "")
    return f"{words} ({diagnosis.reason})" if words else diagnosis.reason


SPOILS = re.compile(r"\bXid\b[^,]{0,60}?\b(?:48|63|64|92|94|95|140)\b|uncorrect|double.?bit|computes wrong", re.IGNORECASE)
"""What a line tells of a device whose results cannot be trusted any more. Source: NVIDIA, "Xid errors": those of its memory."""
AT = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,]\d{1,9})?\s?(Z|UTC|[+-]\d\d:?\d\d)")
CLOCKS_APART = timedelta(seconds=1)
"""By which the clock of a file server may be ahead of a node's."""
MOST_NAMED = 4
LONGEST = 4_000


def fault_time(diagnosis: Diagnosis | None) -> datetime | None:
    """Return when a device failed, by the kernel's lines that a diagnosis cites; None where none tells a time with its zone."""
    if diagnosis is None:
        return None
    lines = [cited.text for cited in diagnosis.root_cause]
    lines += [text for node in diagnosis.nodes for text in (node.why, *(cited.text for cited in node.citations))]
    times = [_moment(match) for line in lines if SPOILS.search(line[:LONGEST]) for match in AT.finditer(line[:LONGEST])]
    return min((time for time in times if time is not None), default=None)


def _moment(match: re.Match[str]) -> datetime | None:
    zone = "+00:00" if match[3] in ("Z", "UTC") else match[3]
    try:
        return datetime.fromisoformat(f"{match[1]}T{match[2]}{zone}").astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def suspect_words(checkpoints: Sequence[Checkpoint], fault: datetime | None) -> str:
    """Return which checkpoints were saved after a fault, and the newest whole one from before it; empty where none was.

    Args:
        checkpoints: Oldest step first, as judged.
        fault: From `fault_time`.
    """
    if fault is None:
        return ""
    later = [save for save in checkpoints if save.saved_at > fault + CLOCKS_APART]
    if not later:
        return ""
    before = [save for save in checkpoints if save.healthy and save not in later]
    names = ", ".join(save.path.name for save in later[:MOST_NAMED]) + (", …" if len(later) > MOST_NAMED else "")
    last = (
        f"the newest whole one from before it is {before[-1].path} (step {before[-1].step})" if before else "none is from before it"
    )
    return f"Saved after the fault of {fault:%H:%M:%S} UTC, and suspect: {names}; {last}."


AVOIDED = "a restart stays away from it:"
"""How a place of a diagnosis begins whose node a restart is to stay away from, though nobody is sure that it is broken."""
HELD = "what it needs there is held:"
"""The same where nothing is wrong with the node: somebody else has what the job needs of it."""
PASSED = "somebody else had taken what it lacked:"
"""How a place of a diagnosis begins where what a job lacked is there again, and it may start on the same node once more."""
AWAY = "a file system is away:"
"""How a place of a diagnosis begins that names the mount point which has to be there again before a restart."""
NOWHERE = "a name resolves nowhere:"
"""How a place of a diagnosis begins that names a host which has to be resolved again before a restart."""
WRITTEN = "somebody writes what it reads:"
"""How a place of a diagnosis begins that names a file which has to be written no more before a restart."""
WRITER = "it is written by job"
"""The same of the job that writes it."""
LOCKED = "somebody holds a lock on:"
"""How a place of a diagnosis begins that names a file which has to be free of locks before a restart."""
LONG_STEPS = 500
"""A run that trained for so many steps has shown its data, memory and checkpoints to work: what ended it may be the machine."""
LONG_MIN = 30.0


def situation(
    incident: Incident,
    diagnosis: Diagnosis,
    job: Job | None,
    *,
    now: datetime,
    refuted: bool = False,
) -> dict[str, Any]:
    """Return the values that every playbook may refer to, as plain JSON values.

    Args:
        incident: The case.
        diagnosis: Its latest diagnosis.
        job: As the scheduler shows it; None for an incident about a node.
        now: The time, for the length of a run that has not ended.
        refuted: Whether the restart before rested on the same theory and did not hold.
    """
    directives, about_job = directives_of(job), _job(incident, job)
    hangs = incident.kind is EventKind.HANG
    may_work = "" if hangs and _stands_on_a_fault(diagnosis, job) else about_job["running"]
    return {
        "incident": {
            "id": incident.id,
            "job": incident.job,
            "node": incident.node,
            "attempt": incident.attempt,
            "kind": str(incident.kind),
            "nodes": list(job.nodes) if job is not None else [incident.node] if incident.node else [],
        },
        "diagnosis": _about(diagnosis),
        "job": {
            **about_job,
            "may_work": may_work,
            "silent": may_work if hangs else "",
            "trouble": "stands still" if hangs and about_job["running"] else "failed",
        },
        "run": {
            **_run(diagnosis, job, now),
            "began": _began(incident, job),
            "refuted_on": list(job.nodes) if refuted and job is not None else [],
        },
        "directives": {
            "owner": directives.owner or (job.user if job is not None else ""),
            "act": directives.act,
            "auto": "yes" if directives.act == "auto" else "",
            "restarts": directives.restarts,
        },
    }


def _about(diagnosis: Diagnosis) -> Mapping[str, Any]:
    first = diagnosis.root_cause[0] if diagnosis.root_cause else None
    awaited = _awaited(diagnosis)
    return {
        "reason": diagnosis.reason,
        "cause": cause_words(diagnosis),
        "category": str(diagnosis.category),
        "action": str(diagnosis.action),
        "cordon": "yes" if diagnosis.action is Action.CORDON_AND_RESTART else "",
        "confidence": diagnosis.confidence,
        "faulty_nodes": list(diagnosis.faulty_nodes),
        "proven_nodes": proven(diagnosis),
        "accused_nodes": accused(diagnosis),
        "full_nodes": avoided(diagnosis),
        "hardware": "yes" if diagnosis.category is Category.INFRASTRUCTURE and avoided(diagnosis, AVOIDED) else "",
        "awaited": awaited.cause,
        "awaited_paths": list(awaited.paths),
        "awaited_answered": "yes" if awaited.answered else "",
        "written_files": _named_behind(diagnosis, WRITTEN),
        "writers": _named_behind(diagnosis, WRITER),
        "locked_files": _named_behind(diagnosis, LOCKED),
        "summary": diagnosis.summary,
        "advice": diagnosis.advice,
        "step": diagnosis.step,
        "spike_step": diagnosis.spike_step,
        "root_line": f"{first.file}:{first.line}: {first.text}" if first else "no line proves it",
    }


def avoided(diagnosis: Diagnosis, *causes: str) -> list[str]:
    """Return the nodes that a restart stays away from, though nobody is sure that they are broken.

    Args:
        diagnosis: Of the job.
        causes: `AVOIDED` for those that somebody has to see to, `HELD`; both when not given.
    """
    return [place.node for place in diagnosis.where if place.node is not None and place.why.startswith(causes or (AVOIDED, HELD))]


def _named_behind(diagnosis: Diagnosis, words: str) -> list[str]:
    return [place.why.removeprefix(words).strip() for place in diagnosis.where if place.why.startswith(words)]


def _awaited(diagnosis: Diagnosis) -> AwaitedService:
    """Return what has to be there again before a restart: what nodes showed to be away, else what lines name.

    A host that only single nodes do not reach is there, and so is a path on a disk of one node: the restart stays away from them.
    """
    away = next((name for words in (AWAY, NOWHERE) for name in _named_behind(diagnosis, words)), "")
    awaited = AwaitedService(away) if away else awaited_by(diagnosis.reason, [cited.text for cited in diagnosis.root_cause])
    host = awaited.cause.partition(":")[0]
    is_awaited = bool(host) and any(
        place.why.startswith(f"{AVOIDED} {host} ") or place.why.startswith(f"{AVOIDED} {host}:") for place in diagnosis.where
    )
    lies_there = awaited.cause.startswith("/") and any(
        PurePosixPath(awaited.cause).is_relative_to(words.partition(" ")[0])
        for words in _named_behind(diagnosis, AVOIDED)
        if words.startswith("/")
    )
    return AwaitedService() if is_awaited or lies_there else awaited


def _stands_on_a_fault(diagnosis: Diagnosis, job: Job | None) -> bool:
    """Tell whether something else than the own log of a job that stands still says that one of its nodes is at fault.

    It is ended then as any hang is, also where processes of it live: a rank that has met an error of its GPU may stay.
    """
    if job is None:
        return False
    return any(witnesses(diagnosis, node) - {"job"} for node in diagnosis.faulty_nodes if node in job.nodes)


def _job(incident: Incident, job: Job | None) -> Mapping[str, Any]:
    if job is None:
        return {"id": None, "name": "", "user": "", "state": "", "running": "", "nodes": [], "partition": "", "comment": ""}
    return {
        "id": job.id,
        "name": job.name,
        "user": job.user,
        "state": str(job.state),
        # a later attempt under the same id is a restart, which no step may take for the attempt that failed
        "running": "" if job.state.ended or job.attempt > incident.attempt else "yes",
        "nodes": list(job.nodes),
        "partition": job.partition,
        "comment": job.comment,
    }


def _run(diagnosis: Diagnosis, job: Job | None, now: datetime) -> Mapping[str, Any]:
    end = (job.ended or now) if job is not None else now
    minutes = (end - job.started).total_seconds() / 60 if job is not None and job.started is not None else 0.0
    restarts = attempt_of(job.spec) if job is not None and job.spec is not None else 0
    long = (diagnosis.step or 0) >= LONG_STEPS or (diagnosis.step is None and minutes >= LONG_MIN)
    # it lasted with these settings, or what was missing is there elsewhere or again
    once_more = long or bool(avoided(diagnosis, AVOIDED, HELD, PASSED))
    return {
        "step": diagnosis.step,
        "minutes": round(minutes, 1),
        "long": "yes" if long else "",
        "again": "yes" if once_more else "",
        "restarts": restarts,
    }


def _began(incident: Incident, job: Job | None) -> str | None:
    """Return when the attempt began; None where the job as shown is a later one, requeued under the same id."""
    started = job.started if job is not None else None
    if started is None or started > (incident.failed_at or incident.opened):
        return None
    return started.isoformat()


_RESTARTS = re.compile(
    r"\b(?:re-?start|re-?submit|start(?:s|ed)? (?:it )?again|submit(?:s|ted)? (?:it )?again|begin (?:it )?again)", re.I
)
_OF_A_LIVING_JOB = re.compile(r"\bbefore (?:the job|it) is (?:cancelled|ended|killed)|\bwhile it (?:hangs|runs|stands)", re.I)
_HOLDS = re.compile(r"\s?\bJob \S{1,64} is still running and holds \d{1,6} nodes?(?: \([^()]{1,2000}\))?\.")
"""What a diagnosis says of a program that failed while its batch script lived on."""
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])")
ASKED = ("restart_prospect", "choose_checkpoint")


@dataclass(frozen=True)
class PageFacts:
    """What was done about an incident, as far as it counts for what is left to do."""

    ended: bool = False
    """Whether Nightshift ended its job."""
    restarted_as: str = ""
    """The job that Nightshift started again for it; empty where it has not."""
    no_restart: bool = False
    """Whether a restart was asked about and cannot be made as things stand."""
    undrained: tuple[str, ...] = ()
    """Sentences about nodes that were to be taken out of service and were not, or that only the restart stays away from."""
    saved: str = ""
    """What the job left to go on from; empty where nobody asked, or nothing is known of it."""
    moved: tuple[str, ...] = ()
    """Sentences about jobs that waited for the failed one and were let wait for its restart."""
    drained: tuple[str, ...] = ()
    """Nodes that were drained for it."""


def facts_of_page(store: History, incident: int) -> PageFacts:
    """Return what was done about an incident."""
    calls = store.calls(incident)
    call_values = [(call, _value(store, call)) for call in calls if call.status is CallStatus.DONE]
    ended = any(call.tool == "cancel_job" and value.get("cancelled") for call, value in call_values)
    restarts = [str(value["job"]) for call, value in call_values if call.tool in RESTARTS and value.get("job")]
    failed = any(call.tool in RESTARTS and call.status in (CallStatus.FAILED, CallStatus.DENIED) for call in calls)
    restart_requests = [value for call, value in call_values if call.tool in ASKED and "restart_from" in value]
    finished = any(call.tool == "training_finished" and value.get("finished") for call, value in call_values)
    refused = failed or finished or (bool(restart_requests) and not restart_requests[-1]["restart_from"])
    saved = next((str(value["saved"]) for _, value in reversed(call_values) if value.get("saved")), "")
    undrained = [*_undrained(store, calls), *_in_service(store, calls, incident)]
    moves = [value.get(MOVED) for _, value in call_values]
    moved = [str(sentence) for those in moves if isinstance(those, list | tuple) for sentence in those]
    as_job = restarts[-1] if restarts else ""
    drained = tuple(str(call.arguments.get("node", "")) for call, _ in call_values if call.tool == "cordon_node")
    return PageFacts(ended, as_job, refused and not restarts, tuple(undrained), saved, tuple(dict.fromkeys(moved)), drained)


def summary_now(summary: str, facts: PageFacts) -> str:
    """Return the summary of a diagnosis without what it said of a job that lived then and was ended since."""
    return _HOLDS.sub("", summary).strip() if facts.ended or facts.restarted_as else summary


def advice_left(advice: str, facts: PageFacts, incident: Incident, store: History) -> str:
    """Return what of a diagnosis' advice is left to do; empty where nothing is.

    Nobody is told to start a job that Nightshift has started, is at work on, or could not start for a reason that is given.
    """
    if incident.state is IncidentState.RECOVERED or WENT_ON in store.stages(incident.id):
        return ""
    ours = not incident.state.ended or incident.state is IncidentState.CLOSED or facts.no_restart or bool(facts.restarted_as)
    is_over = facts.ended or bool(facts.restarted_as)
    advice_kept = [
        sentence
        for sentence in _SENTENCE.split(_HOLDS.sub("", advice) if is_over else advice)
        if not (ours and _RESTARTS.search(sentence)) and not (is_over and _OF_A_LIVING_JOB.search(sentence))
    ]
    return " ".join(advice_kept).strip()


def _undrained(store: History, calls: Sequence[Call]) -> list[str]:
    """Return a sentence for each node whose drain was refused, failed or waits, and that no later call took out."""
    words_by_node: dict[str, str] = {}
    for call in calls:
        node = str(call.arguments.get("node", ""))
        if call.tool != "cordon_node" or not node:
            continue
        if call.status is CallStatus.DONE:
            words_by_node.pop(node, None)
        elif call.status is CallStatus.DENIED:
            last = store.decisions(call.id)[-1:]
            why = f" ({last[0].rule}: {last[0].why})" if last else ""
            words_by_node[node] = (
                f"node {node} is NOT drained{why}: other jobs may land on it; to take it out: nightshift nodes cordon {node}"
            )
        elif call.status is CallStatus.FAILED:
            outcome = store.outcome(call.id)
            words_by_node[node] = f"node {node} is NOT drained ({outcome.error if outcome is not None else 'the call failed'})"
    return list(words_by_node.values())


def _in_service(store: History, calls: Sequence[Call], incident: int) -> list[str]:
    """Return a sentence for each node that a restart stays away from and of whose drain no call speaks."""
    diagnosis = store.diagnosis(incident)
    cordoned = {str(call.arguments.get("node", "")) for call in calls if call.tool == "cordon_node"}
    restarts = [call for call in calls if call.tool in RESTARTS and call.status is CallStatus.DONE]
    excluded_nodes = {str(node) for call in restarts for node in call.arguments.get("exclude") or ()}
    faulty = [node for node in (diagnosis.faulty_nodes if diagnosis is not None else ()) if node in excluded_nodes - cordoned]
    sentences = [
        f"node {node} is not drained: the restart alone stays away from it, and other jobs may land on it; to take it out: "
        f"nightshift nodes cordon {node}"
        for node in faulty
    ]
    places = [place for place in (diagnosis.where if diagnosis is not None else ()) if place.why.startswith(AVOIDED)]
    return sentences + [
        f"node {place.node} still takes jobs, though {place.why.removeprefix(AVOIDED).strip()}: see to it"
        for place in places
        if place.node is not None and place.node not in cordoned and place.node not in faulty
    ]


def _value(store: History, call: Call) -> Mapping[str, object]:
    outcome = store.outcome(call.id)
    return outcome.value if outcome is not None and outcome.ok and isinstance(outcome.value, Mapping) else {}
