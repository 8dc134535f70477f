"""Tell whether a program, module or library that a job did not find by its name is missing on its node alone, or on all nodes.

The folders that the job's shell looks into are compared on the node and on others of its kind. A node that lacks what others have
is left out by the restart and told of; where no node has it, its owner hears in which folders it was looked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from assistant.engine.gather import ask
from assistant.engine.node_paths import held_elsewhere, node_fault
from assistant.engine.storage import MOST_ASKED, MOST_OTHERS, comparable_nodes, nodes_of_cluster, without_node
from assistant.errors import NightshiftError
from assistant.records import Diagnosis, Incident, Job
from assistant.recover.lookup_folders import Lookup, LookupKind, MissingName, lookup_of, missing_name
from assistant.untrusted import reading_as
from assistant.watch.outages import ENDED_BY_ITSELF

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

__all__ = ["first_elsewhere", "matching_paths", "with_missing_program"]

MOST_SHOWN = 4
ENDINGS = {
    LookupKind.PROGRAM: ("",),
    LookupKind.MODULE: ("", ".py", ".so"),
    LookupKind.LIBRARY: ("",),
    LookupKind.MODULEFILE: ("", ".lua"),
}
"""Of a file that makes a name known; `installed_files` shows files with any suffix."""

Row = Mapping[str, Any]
"""Of `installed_files`, about one file on one node."""


def with_missing_program(engine: Engine, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis that says which nodes have what a job did not find by its name; as it is where nothing is proven."""
    if job is None or not job.nodes or not job.state.ended or diagnosis.reason in ENDED_BY_ITSELF or diagnosis.faulty_nodes:
        return diagnosis
    missing = missing_name(cited.text for cited in diagnosis.root_cause)
    if missing is None:
        return diagnosis
    try:
        with reading_as(job.account):
            lookup = lookup_of(job, missing.kind)
    except (NightshiftError, OSError):
        return diagnosis
    if not lookup.folders:
        return diagnosis
    placed = [place.node for place in diagnosis.where if place.node in job.nodes]
    first = placed[0] if placed and placed[0] is not None else job.nodes[0]
    peers = comparable_nodes(nodes_of_cluster(engine), job, first, most=MOST_OTHERS if placed else MOST_ASKED)
    nodes = [first, *peers][:MOST_ASKED]
    arguments = {"nodes": nodes, "name": missing.name, "folders": list(lookup.folders)}
    answer = ask(engine.store, engine.gate, incident, "installed_files", arguments) or {}
    paths = {node: matching_paths(rows, missing) for node, rows in (answer.get("files") or {}).items()}
    accused = [first] if placed else list(job.nodes[:MOST_ASKED])
    path = first_elsewhere(paths, accused, lookup.folders)
    if path is None:
        return _nowhere(diagnosis, missing, lookup, paths, accused)
    states = (ask(engine.store, engine.gate, incident, "storage_state", {"nodes": nodes, "paths": [path]}) or {}).get("states")
    rows = [row for row in states or () if row["path"] == path]
    fault = node_fault("", rows, job.user)
    if fault is not None and fault.node in accused:
        return without_node(engine, incident, diagnosis, job, fault)
    words = held_elsewhere(rows)
    return replace(diagnosis, summary=f"{diagnosis.summary} {words}", advice=f"{diagnosis.advice} {words}") if words else diagnosis


def matching_paths(rows: Iterable[Row], missing: MissingName) -> tuple[str, ...]:
    """Return the paths of files that would have been taken for what was looked for. Pure."""
    fit = []
    for row in rows:
        behind_name = str(row["path"]).rpartition(missing.name)[2]
        ending = f".{behind_name.rpartition('.')[2]}" if behind_name else ""
        runs = bool(row.get("program")) or missing.kind is not LookupKind.PROGRAM
        if runs and ending in ENDINGS[missing.kind]:
            fit.append(str(row["path"]))
    return tuple(fit)


def first_elsewhere(paths: Mapping[str, Sequence[str]], accused: Sequence[str], folders: Sequence[str]) -> str | None:
    """Return the path that others have and a node without any does not, the one that is looked for first; None where there is none.

    Args:
        paths: By node that answered, what it has of the name.
        accused: Nodes of the job on which it may have been missing.
        folders: In the order in which they are looked into.
    """
    if not any(node in paths and not paths[node] for node in accused):
        return None
    elsewhere = {path for node_paths in paths.values() for path in node_paths}
    order = {folder: place for place, folder in enumerate(folders)}
    return min(elsewhere, key=lambda path: (order.get(str(PurePosixPath(path).parent), len(order)), path), default=None)


def _nowhere(
    diagnosis: Diagnosis, missing: MissingName, lookup: Lookup, paths: Mapping[str, Sequence[str]], accused: Sequence[str]
) -> Diagnosis:
    """Return a diagnosis that tells its owner that no node has it, or that its nodes have it by now; else as it is."""
    if missing.kind is LookupKind.PROGRAM and all(paths.get(node) for node in accused):
        node_names = ", ".join(accused[:MOST_SHOWN])
        words = (
            f"{missing.name} is there on {node_names} now: {paths[accused[0]][0]}; that folder may not have been on the PATH there."
        )
        return replace(diagnosis, summary=f"{diagnosis.summary} {words}", advice=f"{diagnosis.advice} {words}")
    if not missing.certain or len(paths) < 2 or any(paths.values()) or not {*accused} <= {*paths}:
        return diagnosis
    node_names = ", ".join(list(paths)[:MOST_SHOWN])
    if missing.kind is LookupKind.PROGRAM:
        folders = ", ".join(lookup.folders[:MOST_SHOWN])
        more = f" and {len(lookup.folders) - MOST_SHOWN} more" if len(lookup.folders) > MOST_SHOWN else ""
        searched = (
            f"the folders of its PATH ({folders}{more})"
            if lookup.whole
            else f"the folders that its script tells of ({folders}{more})"
        )
        words = f"{missing.name} is on none of {node_names}, in none of {searched}: no single node is at fault."
    elif missing.kind is LookupKind.MODULEFILE:
        words = f"The modulefile {missing.name} is on none of {node_names}."
    else:
        return diagnosis
    return replace(diagnosis, summary=f"{diagnosis.summary} {words}", advice=f"{diagnosis.advice} {words}")
