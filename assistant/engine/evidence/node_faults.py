"""Compare a node with others for what a failed job needed there: an opened path, a program or library, what its start needs.

The path of a lost exception is read from the source, with the rights of the job's owner, where the last line of the traceback
opens it. Programs are looked for in the folders of the job's own shell; where no node has one, its owner hears which folders
those are. A file system that is mounted on the other nodes alone takes the node out of service. Where a job never began and
nothing is proven on its node, but jobs of its owner began elsewhere, the restart stays away from the node and no more.
Where nothing is proven nothing is claimed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from assistant.accounts import account_of
from assistant.diagnose.answer import DEEDS
from assistant.diagnose.weighing.first_failure import FIRST_EXIT, LAST_FRAME, UNKNOWN, LastFrame, frame_of
from assistant.engine.evidence.file_systems import NodeFault, PathFault, held_elsewhere, node_fault
from assistant.engine.evidence.missing_data import shown_jobs, wrote_log
from assistant.engine.evidence.storage import MOST_ASKED, MOST_OTHERS, comparable_nodes, nodes_of_cluster, without_node
from assistant.engine.gather import ask, caused_outside
from assistant.errors import NightshiftError
from assistant.records import Action, Category, Diagnosis, Incident, Job, Whereabouts
from assistant.recover.directives import launch_paths, never_began
from assistant.recover.failure_origins import Lookup, LookupKind, MissingName, lookup_of, missing_name
from assistant.recover.job_program import MOST_FILE_BYTES, FileReader, programs_of
from assistant.recover.shell.folders import RUNTIMES, Container
from assistant.recover.situation import AVOIDED
from assistant.recover.source.load_calls import OpenedPath, opened_paths
from assistant.recover.source.trainer_source import parse_source
from assistant.redact import head_of
from assistant.untrusted import LOOK_S, read_whole, reading_as, status_of, within
from assistant.watch.attempts import Remark
from assistant.watch.outages import ENDED_BY_ITSELF, is_of_system

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

SOURCE_LINE = "source line"
"""Of the evidence that holds the line which was read."""
CONFIDENCE = 0.75
"""The line and the node's state are seen; that the lost exception was about this path is concluded."""
MOST_OF_LINE = 160
_IN_CONTAINER = re.compile(rf"--container\b|\b(?:{'|'.join(map(re.escape, sorted(RUNTIMES)))})\b")
_REASONS = {PathFault.SILENT: "os_error"}
"""Of what is wrong with a path; any other is a file that is not found."""


@dataclass(frozen=True)
class SourceLine:
    """A line of a program as it ran, and what it opens."""

    path: str
    """Of the program's file, on the host."""
    number: int
    text: str
    opened: tuple[OpenedPath, ...]


def with_lost_path(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis by which a path that the last line opens is at fault on the node of who exited first; else as it is."""
    if diagnosis.reason != "unknown" or job is None or not job.state.ended:
        return diagnosis
    frames = [frame for cited in diagnosis.root_cause if cited.rule == LAST_FRAME and (frame := frame_of(cited.text)) is not None]
    node = next((place.node for place in diagnosis.where if place.why.startswith(FIRST_EXIT) and place.node in job.nodes), None)
    lines = (source_line(job, frame) for frame in frames) if node is not None else ()
    line = next((line for line in lines if line is not None and line.opened), None)
    if line is None or node is None:
        return diagnosis
    numbered_line = f"{line.path}:{line.number}: {line.text}"
    engine.store.add_evidence(incident.id, SOURCE_LINE, numbered_line, {"paths": [opened.pattern for opened in line.opened]})
    for opened in line.opened:
        fault = _fault_of_node(engine, incident, job, opened, node)
        if fault is not None and fault.node == node:
            return without_node(engine, incident, _with_fault(engine, diagnosis, fault, line), job, fault)
    paths = ", ".join(opened.pattern for opened in line.opened)
    words = (
        f"Line {line.number} of {PurePosixPath(line.path).name} opens {paths}; nothing is proven to be wrong with that on {node}."
    )
    return replace(diagnosis, summary=f"{diagnosis.summary} {words}")


def source_line(job: Job, frame: LastFrame) -> SourceLine | None:
    """Return the line of source that a frame names; None where it cannot be read, or its file has changed since the job started.

    Reads with the rights of the job's owner.
    """
    if job.started is None or job.spec is None:
        return None
    started_s = job.started.timestamp()
    try:
        programs = programs_of(job, FileReader(job.account))
        containers = [program.launch.container for program in programs]
        container = containers[0] if containers else None
        unread = container is None and _IN_CONTAINER.search(job.spec.script) is not None
        if unread or any(entry != container for entry in containers):
            return None  # from where the frame's path is seen is not known
        path = _path_on_host(frame.file, container, job)
        if path is None:
            return None
        with reading_as(job.account):
            text = within(LOOK_S, partial(_unchanged, path, started_s), str(path))
    except (NightshiftError, OSError, ValueError):
        return None
    lines = text.splitlines() if text is not None else []
    if text is None or frame.line > len(lines):
        return None
    own = [source for program in programs for source in program.sources if source.path == str(path) and source.text == text]
    source = own[0] if own else parse_source(text, path=str(path))
    paths = _on_host(opened_paths(source, frame.line, frame.function), container)
    return SourceLine(str(path), frame.line, head_of(lines[frame.line - 1].strip(), MOST_OF_LINE), paths)


def _path_on_host(file: str, container: Container | None, job: Job) -> Path | None:
    """Return where the file of a frame lies on the host; None where that is not known."""
    if container is not None:
        return container.outside(file)
    path = Path(file) if file.startswith("/") else (job.work_dir / file if job.work_dir is not None else None)
    return path if path is not None and path.is_absolute() and ".." not in path.parts else None


def _unchanged(path: Path, started_s: float) -> str | None:
    """Return the text of a file that nobody has touched since a time, which the scheduler tells in whole seconds; else None."""
    before = status_of(path)
    raw = read_whole(path, MOST_FILE_BYTES)
    after = status_of(path)
    changed_s = max(before.st_mtime, before.st_ctime, after.st_mtime, after.st_ctime)
    return raw.decode("utf-8", "replace") if int(changed_s) <= int(started_s) and b"\0" not in raw else None


def _on_host(opened: Sequence[OpenedPath], container: Container | None) -> tuple[OpenedPath, ...]:
    """Return paths as the host has them; those of the machine itself, and of an image, are left out."""
    places = [(path, container.outside(path.path) if container is not None else Path(path.path)) for path in opened]
    return tuple(path._replace(path=str(place)) for path, place in places if place is not None and not is_of_system(str(place)))


def _fault_of_node(engine: EnginePort, incident: Incident, job: Job, opened: OpenedPath, node: str) -> NodeFault | None:
    """Return what is proven to be wrong with an opened path on one node alone of those that answer; None where nothing is."""
    nodes = [node, *comparable_nodes(nodes_of_cluster(engine), job, node, most=MOST_OTHERS)]
    rows = _rows(engine, incident, nodes, opened.path)
    fault = node_fault("", rows, job.user)
    if fault is not None or not opened.name:
        return fault
    file = _file_in(engine, incident, job, opened, [row for row in rows if row["node"] != node])
    return node_fault("", _rows(engine, incident, nodes, file), job.user) if file else None


def _rows(engine: EnginePort, incident: Incident, nodes: Sequence[str], path: str) -> list[Mapping[str, Any]]:
    answer = ask(engine.store, engine.gate, incident, "storage_state", {"nodes": list(nodes), "paths": [path]}) or {}
    return [row for row in answer.get("states") or () if row["path"] == path]


def _file_in(engine: EnginePort, incident: Incident, job: Job, opened: OpenedPath, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a file that may have been opened, as another node shows it; empty where none does, or its owner may not list it."""
    others_rows = [row for row in rows if not row.get("silent") and row.get("stands") == row.get("real")]
    others_rows = [row for row in others_rows if may_list(row.get("owners") or (), job)]
    others_rows.sort(key=lambda row: -len(str(row["place"])))  # where more is mounted
    request = {"nodes": [str(row["node"]) for row in others_rows], "paths": [opened.path], "since_s": 0}
    answer = (ask(engine.store, engine.gate, incident, "files_changed", request) if others_rows else None) or {}
    return min((str(row["path"]) for row in answer.get("files") or () if opened.names(str(row["path"]))), default="")


def may_list(owners: Sequence[str], job: Job) -> bool:
    """Tell whether the owner of a job may list a folder: what lies in another's is shown to nobody.

    Args:
        owners: Of the folder and each above it, as `USER:GROUP NUMBER:MODE`.
        job: Whose owner it is.
    """
    account = account_of(job.account)
    groups = {str(group) for group in (account.gid, *account.groups)} if account is not None else set()
    needed_rights = 0o5
    for owner in owners:
        words = owner.rsplit(":", 2)
        if len(words) != 3:
            return False
        mode = int(words[2], 8)
        shift = 6 if words[0] == job.user else 3 if words[1] in groups else 0
        if (mode >> shift) & needed_rights != needed_rights:
            return False
        needed_rights = 0o1
    return bool(owners)


def _with_fault(engine: EnginePort, diagnosis: Diagnosis, fault: NodeFault, line: SourceLine) -> Diagnosis:
    """Return the diagnosis of a path that could not be used, before what is done about its node."""
    name = _REASONS.get(fault.fault, "file_not_found_error")
    reason = engine.knowledge.reasons.get(name)
    title = reason.title if reason is not None else name
    line_words = f"Line {line.number} of {line.path} is `{line.text}`."
    return replace(
        diagnosis,
        reason=name,
        category=Category.INFRASTRUCTURE,
        action=Action.FIX_AND_RESUBMIT,
        confidence=CONFIDENCE,
        rivals=(),
        summary=f"{title}{diagnosis.summary.removeprefix(UNKNOWN)} {line_words}",
        advice=f"{DEEDS[Action.FIX_AND_RESUBMIT]} {fault.sentence}",
    )


MOST_SHOWN = 4
FILE_SUFFIXES = {
    LookupKind.PROGRAM: ("",),
    LookupKind.MODULE: ("", ".py", ".so"),
    LookupKind.LIBRARY: ("",),
    LookupKind.MODULEFILE: ("", ".lua"),
}
"""Of a file that makes a name known; `installed_files` shows files with any suffix."""

FileRow = Mapping[str, Any]
"""Of `installed_files`, about one file on one node."""


def with_missing_program(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
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
        return _missing_everywhere(diagnosis, missing, lookup, paths, accused)
    states = (ask(engine.store, engine.gate, incident, "storage_state", {"nodes": nodes, "paths": [path]}) or {}).get("states")
    rows = [row for row in states or () if row["path"] == path]
    fault = node_fault("", rows, job.user)
    if fault is not None and fault.node in accused:
        return without_node(engine, incident, diagnosis, job, fault)
    words = held_elsewhere(rows)
    return replace(diagnosis, summary=f"{diagnosis.summary} {words}", advice=f"{diagnosis.advice} {words}") if words else diagnosis


def matching_paths(rows: Iterable[FileRow], missing: MissingName) -> tuple[str, ...]:
    """Return the paths of files that would have been taken for what was looked for. Pure."""
    fit = []
    for row in rows:
        behind_name = str(row["path"]).rpartition(missing.name)[2]
        ending = f".{behind_name.rpartition('.')[2]}" if behind_name else ""
        runs = bool(row.get("program")) or missing.kind is not LookupKind.PROGRAM
        if runs and ending in FILE_SUFFIXES[missing.kind]:
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


def _missing_everywhere(
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


ONE_CAUSE_WITHIN = timedelta(minutes=1)
"""Between failed launches that count as of one cause."""
START_ELSEWHERE_WITHIN = timedelta(minutes=10)
"""Between a failed launch and a start elsewhere that shows the folders to be usable."""
FEWEST_LAUNCHES = 2
"""Jobs that never began on a node, before a start elsewhere speaks against the node."""
ABSENT = "No such file or directory"
"""What a launch meets whose folder is not there."""


def with_failed_launch(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis of a job that never began by which its node is at fault, where that is seen; else as it is."""
    if job is None or not never_began(job) or not job.nodes or diagnosis.faulty_nodes:
        return diagnosis
    node = job.nodes[0]  # the batch script is launched on the first
    peers = comparable_nodes(nodes_of_cluster(engine), replace(job, nodes=(node,)), node, most=MOST_OTHERS)
    for path in launch_paths(job) if peers else ():
        arguments = {"nodes": [node, *peers], "paths": [str(path)]}
        states: Sequence[Mapping[str, Any]] = (ask(engine.store, engine.gate, incident, "storage_state", arguments) or {}).get(
            "states"
        ) or ()
        fault = node_fault(ABSENT, [row for row in states if row["path"] == str(path)], job.user)
        if fault is not None and fault.node == node:
            return without_node(engine, incident, diagnosis, job, fault)
    candidates = starts_elsewhere(job, shown_jobs(engine, job, [entry for entry in engine.watcher.jobs if entry.user == job.user]))
    return _without_launches(engine, diagnosis, job, node, candidates) if candidates else diagnosis


def starts_elsewhere(job: Job, jobs: Sequence[Job]) -> tuple[Job, ...]:
    """Return jobs that began on other nodes when a job never did on its own, with the same folders; none where that shows nothing.

    Args:
        job: That never began.
        jobs: Of its owner. All of those that never began about that time have to be of its node, two at least.
    """
    failed = [
        entry for entry in jobs if never_began(entry) and entry.nodes and _time_apart(entry.ended, job.ended) <= ONE_CAUSE_WITHIN
    ]
    first = job.nodes[0]
    if len({entry.id for entry in (*failed, job)}) < FEWEST_LAUNCHES or any(entry.nodes[0] != first for entry in failed):
        return ()
    folders = launch_paths(job)
    return tuple(
        entry
        for entry in jobs
        if entry.started is not None
        and entry.nodes
        and entry.nodes[0] != first
        and not never_began(entry)
        and launch_paths(entry) == folders
        and _time_apart(entry.started, job.ended) <= START_ELSEWHERE_WITHIN
        and wrote_log(entry)
    )


def _without_launches(engine: EnginePort, diagnosis: Diagnosis, job: Job, node: str, candidates: Sequence[Job]) -> Diagnosis:
    names = ", ".join(f"{entry.id} on {entry.nodes[0]}" for entry in candidates[:3])
    owner = job.user or "its owner"
    words = f"Several jobs of {owner} never began on {node} in one minute, while others with the same folders began: {names}."
    text = (
        f"Slurm opens no output of jobs on {node}, and jobs of {job.user} failed by that: see to it there, other jobs will meet it"
    )
    engine.good_runs.remarks.append(Remark(f"launches on {node}", text))
    advice = f"Start it on other nodes than {node}. {words} Somebody has to see to it there."
    place = Whereabouts(f"{AVOIDED} jobs never begin there, and others do elsewhere", node)
    return caused_outside(diagnosis, words, Action.RESTART_SAME_NODES, advice, place)


def _time_apart(entry: datetime | None, candidate: datetime | None) -> timedelta:
    return abs(entry - candidate) if entry is not None and candidate is not None else timedelta.max
