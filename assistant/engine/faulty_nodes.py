"""Nodes that fail jobs: the ledger of what incidents say of each node, and early cordons of nodes that fail job after job.

A node that swallows jobs ("black hole") is cordoned before its incident's turn: being idle it takes the next job, too. The steps
are those of the playbook that the incident will run, which finds their outcome later; the gate decides about each as it would
then. A disk of a node that others than the owners of the failing jobs have filled counts once several jobs have failed of it.
"""

from __future__ import annotations

import logging
import pwd
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from assistant.content.playbooks import Playbook, Step
from assistant.diagnose.learning.ledger import WINDOW, patterns
from assistant.engine import retry_policy
from assistant.engine.evidence.file_systems import LARGE_SHARE
from assistant.engine.evidence.storage import probe_line
from assistant.engine.gather import ask
from assistant.errors import NightshiftError, ToolError, Unavailable
from assistant.ports import Scheduler, Topology
from assistant.records import Action, Category, Diagnosis, Incident, Job, JobState, Node, NodeFinding, NodeState, Outcome, Sighting
from assistant.recover.playbook import Wanted, calls_of
from assistant.recover.signals import accused, proven
from assistant.recover.situation import AVOIDED
from assistant.store import Store

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

logger = logging.getLogger(__name__)

TRAITS: Mapping[str, re.Pattern[str]] = {
    "rack": re.compile(r"(?i)(?:rack|cabinet|row)[-_]?\w+"),
    "switch": re.compile(r"(?i)(?:leaf|switch|sw|rail|pod|su)[-_]?\d\w*"),
    "driver": re.compile(r"(?i)(?:driver|nvidia|rocm)[-_]?v?\d[\w.]*"),
}
"""What a site's features of a node are called; one feature is one trait."""
BLAMEABLE = frozenset({"hang", "slow_job"})
"""Beside infrastructure: what may be a node's fault although nobody can tell."""
TEMPERATURES = {"gpu_temperature": "gpu", "inlet": "inlet"}


def traits_of(nodes: Sequence[Node], switches: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return what nodes may share, by node and trait: partition, rack, switch, driver; only what is known.

    Args:
        nodes: As the scheduler shows them.
        switches: Of each node, where the scheduler knows the network.
    """
    traits: dict[str, dict[str, str]] = {}
    for node in nodes:
        own = {"partition": node.partition} if node.partition else {}
        for feature in node.features:
            kind = next((kind for kind, form in TRAITS.items() if form.fullmatch(feature)), None)
            if kind is not None:
                own.setdefault(kind, feature)
        if node.name in switches:
            own["switch"] = switches[node.name]
        traits[node.name] = own
    return traits


def record_in_ledger(store: Store, scheduler: Scheduler, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> None:
    """Write down what an incident says of the nodes of its job; one that is no machine's fault leaves nothing."""
    store.keep_sightings(incident.id, list(_sightings(store, _fleet(scheduler), incident, diagnosis, job)))


def with_patterns(store: Store, scheduler: Scheduler, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis with what the ledger adds to it; as it is for what is no machine's fault."""
    if job is None or not job.nodes or not _counts(diagnosis):
        return diagnosis
    now = store.clock.now()
    before = [pattern for pattern in store.sightings(now - WINDOW) if pattern.incident != incident.id]
    traits = known_traits(_fleet(scheduler), before)
    sightings = [*before, *_sightings(store, traits, incident, diagnosis, job)]
    added = patterns(sightings, job.nodes, traits, now, incident.id)
    about = {*job.nodes}
    own_patterns = tuple(pattern for pattern in added if about & {*pattern.nodes})
    return replace(diagnosis, patterns=(*diagnosis.patterns, *own_patterns))


def fleet(scheduler: Scheduler) -> dict[str, dict[str, str]]:
    """Return the traits of all nodes.

    Raises:
        Unavailable: The scheduler did not answer.
    """
    switches: Mapping[str, str] = {}
    if isinstance(scheduler, Topology):
        try:
            switches = scheduler.switches()
        except ToolError as error:
            logger.info("the network is not known: %s", error)
    return traits_of(scheduler.nodes(), switches)


def known_traits(now: Mapping[str, Mapping[str, str]], sightings: Sequence[Sighting]) -> dict[str, Mapping[str, str]]:
    """Return the traits of all nodes: as the scheduler names them, and what was read on them when they were last seen.

    Args:
        now: From `fleet`.
        sightings: Oldest first.
    """
    traits: dict[str, Mapping[str, str]] = dict(now)
    for sighting in sightings:
        if sighting.node in traits:
            traits[sighting.node] = {**traits[sighting.node], **sighting.traits, **now[sighting.node]}
    return traits


def _fleet(scheduler: Scheduler) -> dict[str, dict[str, str]]:
    try:
        return fleet(scheduler)
    except Unavailable as error:
        logger.warning("traits of nodes are not known now: %s", error)
        return {}


def _counts(diagnosis: Diagnosis) -> bool:
    return diagnosis.category is Category.INFRASTRUCTURE or diagnosis.reason in BLAMEABLE


def _sightings(
    store: Store, node_traits: Mapping[str, Mapping[str, str]], incident: Incident, diagnosis: Diagnosis, job: Job | None
) -> Iterator[Sighting]:
    nodes = job.nodes if job is not None else (incident.node,) if incident.node else ()
    if not _counts(diagnosis):
        return
    blamed, read = {*diagnosis.faulty_nodes}, dict(_probe_readings(store, incident.id))
    blamed |= {node for call in store.calls(incident.id) if call.tool == "cordon_node" and (node := call.arguments.get("node"))}
    for node in dict.fromkeys((*nodes, *sorted(blamed))):
        at = incident.failed_at or incident.opened
        heat, traits = read.get(node, ({}, {}))
        about = {**node_traits.get(node, {}), **traits}
        yield Sighting(node, incident.id, at, diagnosis.reason, node in blamed, len(nodes) or 1, about, heat)


def _probe_readings(store: Store, incident: int) -> Iterator[tuple[str, tuple[dict[str, float], dict[str, str]]]]:
    """Yield the temperatures and traits that the probes of an incident read, by node."""
    for call in store.calls(incident):
        outcome = store.outcome(call.id) if call.tool == "check_nodes" else None
        nodes: Any = outcome.value.get("nodes") if outcome is not None and isinstance(outcome.value, Mapping) else None
        for node, rows in nodes.items() if isinstance(nodes, Mapping) else ():
            heat: dict[str, float] = {}
            traits: dict[str, str] = {}
            for row in rows.get("probes", ()):
                kind, celsius = TEMPERATURES.get(row.get("probe")), row.get("value")
                if kind is not None and row.get("unit") == "C" and isinstance(celsius, int | float):
                    heat[kind] = max(float(celsius), heat.get(kind, 0.0))
                elif row.get("probe") == "gpu_driver" and isinstance(celsius, str):
                    traits["driver"] = celsius
            if heat or traits:
                yield node, (heat, traits)


SWALLOWED_WITHIN = timedelta(minutes=1)
FEWEST_SWALLOWED = 2
"""Jobs that failed on a node within `AT_ONCE` before it counts as one that swallows jobs."""
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


def set_aside_at_once(engine: Engine, incident: Incident, diagnosis: Diagnosis) -> None:
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


def set_aside_proven(engine: Engine, incident: Incident, diagnosis: Diagnosis) -> None:
    """Make the cordons of an incident's playbook though its job is left to a driver: that may begin again on the very node."""
    nodes = [node.name for node in engine.scheduler.nodes() if node.name in proven(diagnosis) and node.state not in OUT_OF_SERVICE]
    job = engine.scheduler.job(incident.job) if incident.job is not None else None
    playbook, _ = engine.playbook_for(diagnosis, job) if nodes else (None, "")
    if playbook is not None:
        make_cordons(engine, incident, diagnosis, playbook, nodes)


def make_cordons(
    engine: Engine, incident: Incident, diagnosis: Diagnosis, playbook: Playbook, nodes: Collection[str], *, looks: int = 1
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
    engine: Engine, incident: Incident, look: Step, values: Mapping[str, Any], *, by: str, looks: int
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


def _cordon(engine: Engine, incident: Incident, planned_call: Wanted, by: str) -> Outcome | None:
    try:
        return engine.gate.call(
            planned_call.tool, planned_call.arguments, why=planned_call.why, by=by, incident=incident.id, step=planned_call.key
        )
    except NightshiftError as error:
        logger.info("incident=%s %s is not set aside yet: %s", incident.id, planned_call.arguments.get("node"), error)
        return None


def with_swallowing_disk(engine: Engine, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
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


def with_left_files(engine: Engine, incident: Incident, diagnosis: Diagnosis, user: str) -> Diagnosis:
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


def _victims(engine: Engine, incident: Incident, node: str, disk: str) -> dict[str, str]:
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
