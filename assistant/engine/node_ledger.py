"""Keep the ledger of nodes: what each incident says of the nodes of its job, and what all of them say of one."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from assistant.diagnose.learning.ledger import WINDOW, patterns
from assistant.errors import ToolError, Unavailable
from assistant.ports import Scheduler, Topology
from assistant.records import Category, Diagnosis, Incident, Job, Node, Sighting
from assistant.store import Store

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
