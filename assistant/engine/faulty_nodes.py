"""Nodes that fail one job after the other, and what failed jobs have in common.

A node that swallows jobs ("black hole") is cordoned before its incident's turn: being idle it takes the next job, too. The steps
are those of the playbook that the incident will run, which finds their outcome later; the gate decides about each as it would
then. A disk of a node that others than the owners of the failing jobs have filled counts once several jobs have failed of it.
"""

from __future__ import annotations

import logging
import pwd
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.content.playbooks import Playbook, Step
from assistant.diagnose.readers.candidate_lines import message_of, parts_of, words_kept
from assistant.engine import retry_policy
from assistant.engine.evidence.file_systems import LARGE_SHARE
from assistant.engine.evidence.storage import probe_line
from assistant.engine.gather import ask
from assistant.errors import NightshiftError, Unavailable
from assistant.logs.templates import steady_name
from assistant.records import Action, Diagnosis, Incident, Job, JobState, NodeFinding, NodeState, Outcome
from assistant.recover.joblog import log_lines
from assistant.recover.playbook import Wanted, calls_of
from assistant.recover.situation import AVOIDED, accused, avoided, proven
from assistant.redact import head_of
from assistant.untrusted import list_folder, reading_as, status_of, within
from assistant.watch.outages import JobFailure, paths_of, service_of

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

logger = logging.getLogger(__name__)

SWALLOWED_WITHIN = timedelta(minutes=1)
FEWEST_SWALLOWED = 2
"""Jobs that failed on a node within `SWALLOWED_WITHIN` before it counts as one that swallows jobs."""
MOST_INCIDENTS = 500
SAME_DISK_WITHIN = timedelta(minutes=15)
"""Between failures of jobs by the same full disk."""
DISK_RULE = "storage.full_of_others"
_FULL = re.compile(rf"{re.escape(AVOIDED)} (/\S{{1,200}}) (?:is full|has hardly any room left) there")
OUT_OF_SERVICE = (NodeState.DRAINING, NodeState.DRAINED, NodeState.DOWN)
PROVEN_NODES, ACCUSED_NODES = "{diagnosis.proven_nodes}", "{diagnosis.accused_nodes}"
"""Over what a step goes that needs no further look, and when one looks for a second witness."""
IF_CORDON = "{diagnosis.cordon}"
WITNESS_TOOL = "check_nodes"
MOST_WITNESS_LOOKS = 4
"""Looks for a second witness, of one incident, before it waits for others."""


def set_aside_at_once(engine: EnginePort, incident: Incident, diagnosis: Diagnosis) -> None:
    """Make the cordons of an incident's playbook before it waits for others, for nodes at fault that fail one job after the other.

    A node that two witnesses accuse needs no further look; of one that a single one accuses the playbook's own look for a second
    is made earlier. Who is not sure of a node, or is refused, waits as ever.
    """
    at = incident.failed_at or incident.opened
    failures = {node: failed_on(engine.watcher.jobs, node, at) for node in diagnosis.faulty_nodes}
    swallowing = {node: job_ids for node, job_ids in failures.items() if len(job_ids) >= FEWEST_SWALLOWED}
    if not swallowing:
        return
    nodes = [node.name for node in engine.scheduler.nodes() if node.name in swallowing and node.state not in OUT_OF_SERVICE]
    if not nodes:
        return
    job = engine.scheduler.job(incident.job) if incident.job is not None else None
    playbook, _ = engine.playbook_for(diagnosis, job)
    if playbook is not None:
        make_cordons(engine, incident, diagnosis, playbook, nodes, looks=max(len(swallowing[node]) for node in nodes))


def set_aside_proven(engine: EnginePort, incident: Incident, diagnosis: Diagnosis) -> None:
    """Make the cordons of an incident's playbook though its job is left to a driver: that may begin again on the very node."""
    nodes = [node.name for node in engine.scheduler.nodes() if node.name in proven(diagnosis) and node.state not in OUT_OF_SERVICE]
    job = engine.scheduler.job(incident.job) if incident.job is not None else None
    playbook, _ = engine.playbook_for(diagnosis, job) if nodes else (None, "")
    if playbook is not None:
        make_cordons(engine, incident, diagnosis, playbook, nodes)


def make_cordons(
    engine: EnginePort, incident: Incident, diagnosis: Diagnosis, playbook: Playbook, nodes: Collection[str], *, looks: int = 1
) -> None:
    """Make the cordons of a playbook for some nodes now, in the steps in which it would make them itself.

    Args:
        engine: Everything.
        incident: The calls are made for it.
        diagnosis: Accuses the nodes.
        playbook: Whose steps they are.
        nodes: Those that may be taken out.
        looks: Whether more is known than at the look for a second witness before: another number is another look.
    """
    job = engine.scheduler.job(incident.job) if incident.job is not None else None
    by, values = f"playbook:{playbook.name}", retry_policy.situation_of(engine.store, incident, diagnosis, job)
    second_looks = {step.name: step for step in playbook.step if step.use == WITNESS_TOOL and step.when == ACCUSED_NODES}
    for step in playbook.step:
        if step.use != "cordon_node" or step.when not in ("", IF_CORDON) or step.unless:
            continue
        if step.when == IF_CORDON and diagnosis.action is not Action.CORDON_AND_RESTART:
            continue
        look = next((second_looks[name] for name in second_looks if step.each == f"{{{name}.seconded}}"), None)
        if look is not None and {*nodes} & {*accused(diagnosis)}:
            values = {**values, look.name: _seconded_early(engine, incident, look, values, by=by, looks=looks)}
        elif step.each != PROVEN_NODES:
            continue
        for planned_call in calls_of(step, values):
            if planned_call.arguments.get("node") in nodes and not engine.gate.is_begun(incident.id, planned_call.key):
                _cordon(engine, incident, planned_call, by)


def _seconded_early(
    engine: EnginePort, incident: Incident, look: Step, values: Mapping[str, Any], *, by: str, looks: int
) -> Mapping[str, Any]:
    """Return what a playbook's look for a second witness gives now; the playbook makes its own later, when more may be known.

    Asked a few times at most.
    """
    key = f"{look.name}#{min(looks, MOST_WITNESS_LOOKS)}"
    nothing: Mapping[str, Any] = {"seconded": ()}
    if engine.gate.is_begun(incident.id, key):
        return nothing
    planned_call = replace(next(calls_of(look, values)), key=key)
    outcome = _cordon(engine, incident, planned_call, by)
    return outcome.value if outcome is not None and outcome.ok and isinstance(outcome.value, Mapping) else nothing


def swallows(jobs: Iterable[Job], node: str, at: datetime) -> bool:
    """Tell whether several jobs failed on a node within a minute of a time, whosever they are. Pure."""
    return len(failed_on(jobs, node, at)) >= FEWEST_SWALLOWED


def failed_on(jobs: Iterable[Job], node: str, at: datetime) -> frozenset[str]:
    """Return the jobs that failed on a node within a minute of a time. Pure."""
    bad = (JobState.FAILED, JobState.NODE_FAIL)
    return frozenset(
        entry.id
        for entry in jobs
        if entry.state in bad and node in entry.nodes and entry.ended and abs(entry.ended - at) <= SWALLOWED_WITHIN
    )


def _cordon(engine: EnginePort, incident: Incident, planned_call: Wanted, by: str) -> Outcome | None:
    try:
        return engine.gate.call(
            planned_call.tool, planned_call.arguments, why=planned_call.why, by=by, incident=incident.id, step=planned_call.key
        )
    except NightshiftError as error:
        logger.info("incident=%s %s is not set aside yet: %s", incident.id, planned_call.arguments.get("node"), error)
        return None


def with_swallowing_disk(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis that accuses a node whose own disk strangers have filled, where it failed several jobs; else as it is.

    Whoever fills a disk and lets jobs fail of it there accuses nobody but themselves: whose files they are is asked on the node.
    """
    if job is None or not job.user or diagnosis.faulty_nodes:
        return diagnosis
    full = [(place.node, match[1]) for place in diagnosis.where if place.node and (match := _FULL.match(place.why))]
    for node, disk in full:
        victims = _victims(engine, incident, node, disk)
        if not victims:
            continue
        rows = (ask(engine.store, engine.gate, incident, "space_holders", {"nodes": [node], "place": disk}) or {}).get("rows") or ()
        if not filled_by_strangers([row for row in rows if row["node"] == node], {job.user, *victims.values()}, _uid):
            continue
        names = ", ".join([job.id, *victims])
        words = f"{disk} is full on {node}, of files of others than the owners of jobs {names}, which failed of it there."
        lines = tuple(cited for cited in diagnosis.root_cause if cited.role == "root")[:1]
        finding = NodeFinding(node, words, (*lines, probe_line(engine, incident, words, DISK_RULE)))
        return replace(diagnosis, action=Action.CORDON_AND_RESTART, nodes=(finding,), summary=f"{diagnosis.summary} {words}")
    return diagnosis


def with_left_files(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, user: str) -> Diagnosis:
    """Return a diagnosis that accuses nodes whose own disk is full of files which others left; else as it is.

    Meant for jobs that nothing can keep away from the node but that it is out of service. Others left them where none of those who
    own them has a job there, so that no end of a job frees the space.
    """
    findings = []
    for place in diagnosis.where:
        match = _FULL.match(place.why) if place.node else None
        if match is None or place.node is None or place.node in diagnosis.faulty_nodes:
            continue
        answer = ask(engine.store, engine.gate, incident, "space_holders", {"nodes": [place.node], "place": match[1]}) or {}
        rows = [row for row in answer.get("rows") or () if row["node"] == place.node]
        users = {entry.user for entry in engine.watcher.jobs if place.node in entry.nodes and not entry.state.ended}
        if "" in users or not filled_by_strangers(rows, {user, *users}, _uid):
            continue
        words = f"{match[1]} is full on {place.node}, of files that others have left there."
        lines = tuple(cited for cited in diagnosis.root_cause if cited.role == "root")[:1]
        findings.append(NodeFinding(place.node, words, (*lines, probe_line(engine, incident, words, DISK_RULE))))
    if not findings:
        return diagnosis
    words = " ".join(finding.why for finding in findings)
    nodes = (*diagnosis.nodes, *findings)
    return replace(diagnosis, action=Action.CORDON_AND_RESTART, nodes=nodes, summary=f"{diagnosis.summary} {words}")


def filled_by_strangers(rows: Sequence[Mapping[str, Any]], users: Collection[str], uid_of: Callable[[str], int | None]) -> bool:
    """Tell whether those whose files take most of a disk are none of some users. Pure.

    Args:
        rows: Of `space_holders` for one node.
        users: Names of accounts.
        uid_of: Gives the number of an account; None where it is not known, and then no number counts as a stranger's.
    """
    total = sum(int(row["held_bytes"]) for row in rows)
    large = {str(row["user"]) for row in rows if int(row["held_bytes"]) >= LARGE_SHARE * total > 0}
    numbers = {uid_of(user) for user in users}
    unsure = None in numbers and any(holder.isdecimal() for holder in large)
    return bool(large) and not unsure and not large & {*users, *map(str, numbers), "root"}


def _victims(engine: EnginePort, incident: Incident, node: str, disk: str) -> dict[str, str]:
    """Return the other jobs that failed lately of the same disk of a node, with their users; none where a user is not known."""
    at = incident.failed_at or incident.opened
    victims = {}
    for candidate in engine.store.incidents(limit=MOST_INCIDENTS):
        if (
            candidate.id == incident.id
            or candidate.job in (None, incident.job)
            or abs((candidate.failed_at or candidate.opened) - at) > SAME_DISK_WITHIN
        ):
            continue
        earlier = engine.store.diagnosis(candidate.id)
        same = [place for place in (earlier.where if earlier is not None else ()) if place.node == node and _FULL.match(place.why)]
        if not any((match := _FULL.match(place.why)) and match[1] == disk for place in same):
            continue
        user = next((entry.user for entry in engine.watcher.jobs if entry.id == candidate.job), "")
        if not user:
            return {}
        victims[str(candidate.job)] = user
    return victims


def _uid(user: str) -> int | None:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


TAIL_LINES = 40
TAIL_BYTES = 64 << 10
PATH_LOOK_S = 5.0
MOST_ENTRIES = 2_000


def failure_of(incident: Incident, diagnosis: Diagnosis, job: Job | None) -> JobFailure:
    """Return what a failed job has in common with others, as far as its diagnosis, its log and the paths that it names tell.

    Args:
        incident: About the job.
        diagnosis: Of it.
        job: None where the scheduler does not know it any more.
    """
    texts = tuple(citation.text for citation in diagnosis.root_cause)
    at = incident.failed_at or incident.opened
    user = job.user if job is not None else ""
    task = f"{user}/{steady_name(job.name)}" if job is not None else incident.job or ""
    if not service_of(diagnosis.reason, texts) and not paths_of(diagnosis.reason, texts) and job is not None:
        tail = [line.text for line in log_lines(job, most_bytes=TAIL_BYTES)][-TAIL_LINES:]
        texts += tuple(text for text in tail if service_of(diagnosis.reason, [text]) or paths_of(diagnosis.reason, [text]))
    missing = [_missing_of_path(path, job) for path in paths_of(diagnosis.reason, texts)]
    missing_paths = tuple(dict.fromkeys(filter(None, (part.path for part in missing))))
    emptied = tuple(dict.fromkeys(filter(None, (part.emptied for part in missing))))
    message = message_of(diagnosis.root_cause[0].text) if diagnosis.root_cause else ""
    error = _error_of(message)
    left_out = avoided(diagnosis, AVOIDED)
    return JobFailure(
        incident.id,
        incident.job or "",
        task,
        at,
        diagnosis.reason,
        texts,
        user,
        tuple(dict.fromkeys((*diagnosis.faulty_nodes, *left_out))),
        error=error,
        gone=missing_paths,
        emptied=emptied,
        wording=head_of(message.strip(), 200),
        on_node=bool(left_out),
    )


def _error_of(message: str) -> str:
    """Return a line without what differs from run to run; empty where too few of its words are its own."""
    if not message or not words_kept([message]).specific:
        return ""
    return "".join(part.text if part.firm else {"space": " "}.get(part.kind, "#") for part in parts_of(message)).strip()[:200]


class MissingPath(NamedTuple):
    """What is missing of a path, as this machine sees it."""

    path: str = ""
    """The highest folder that is missing; empty where none is, or nothing can be told."""
    emptied: str = ""
    """The folder above it where that stands and holds nothing."""


def _missing_of_path(path: str, job: Job | None) -> MissingPath:
    """Return what is missing of a path."""
    above = [*reversed(PurePosixPath(path).parents), PurePosixPath(path)][1:]

    def look() -> MissingPath:
        for number, folder in enumerate(above):
            try:
                status_of(Path(folder))
            except FileNotFoundError:
                if not number:
                    return MissingPath()  # a machine without the first folder does not share the file system
                holding = Path(above[number - 1])
                return MissingPath(str(folder), "" if list_folder(holding, MOST_ENTRIES) else str(holding))
            except OSError:
                return MissingPath()
        return MissingPath()

    try:
        with reading_as(job.account if job is not None else ""):
            return within(PATH_LOOK_S, look, path)
    except (Unavailable, OSError):
        return MissingPath()
