"""Find what a rank met whose exception was lost: the path that the last line of its traceback opens, as the job's nodes show it.

The line is read from the source, with the rights of the job's owner. What is proven to be wrong with its path on the node of the
rank that exited first, and on no other, is the cause, as if the error had named it. Where nothing is proven nothing is claimed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from assistant.accounts import account_of
from assistant.diagnose.answer import DEEDS
from assistant.diagnose.weighing.first_failure import FIRST_EXIT, LAST_FRAME, UNKNOWN, LastFrame, frame_of
from assistant.engine.gather import ask
from assistant.engine.node_paths import NodeFault, PathFault, node_fault
from assistant.engine.storage import MOST_OTHERS, comparable_nodes, nodes_of_cluster, without_node
from assistant.errors import NightshiftError
from assistant.records import Action, Category, Diagnosis, Incident, Job
from assistant.recover.containers import RUNTIMES, Container
from assistant.recover.job_program import MOST_FILE_BYTES, FileReader, programs_of
from assistant.recover.opened_paths import OpenedPath, opened_paths
from assistant.recover.trainer_source import parse_source
from assistant.untrusted import LOOK_S, read_whole, reading_as, status_of, within
from assistant.watch.outages import is_of_system

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

__all__ = ["SourceLine", "may_list", "source_line", "with_lost_path"]

SOURCE = "source line"
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


def with_lost_path(engine: Engine, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
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
    engine.store.add_evidence(incident.id, SOURCE, numbered_line, {"paths": [opened.pattern for opened in line.opened]})
    for opened in line.opened:
        fault = _fault(engine, incident, job, opened, node)
        if fault is not None and fault.node == node:
            return without_node(engine, incident, _caused(engine, diagnosis, fault, line), job, fault)
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
        path = _outside(frame.file, container, job)
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
    return SourceLine(str(path), frame.line, lines[frame.line - 1].strip()[:MOST_OF_LINE], paths)


def _outside(file: str, container: Container | None, job: Job) -> Path | None:
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


def _fault(engine: Engine, incident: Incident, job: Job, opened: OpenedPath, node: str) -> NodeFault | None:
    """Return what is proven to be wrong with an opened path on one node alone of those that answer; None where nothing is."""
    nodes = [node, *comparable_nodes(nodes_of_cluster(engine), job, node, most=MOST_OTHERS)]
    rows = _rows(engine, incident, nodes, opened.path)
    fault = node_fault("", rows, job.user)
    if fault is not None or not opened.name:
        return fault
    file = _file_in(engine, incident, job, opened, [row for row in rows if row["node"] != node])
    return node_fault("", _rows(engine, incident, nodes, file), job.user) if file else None


def _rows(engine: Engine, incident: Incident, nodes: Sequence[str], path: str) -> list[Mapping[str, Any]]:
    answer = ask(engine.store, engine.gate, incident, "storage_state", {"nodes": list(nodes), "paths": [path]}) or {}
    return [row for row in answer.get("states") or () if row["path"] == path]


def _file_in(engine: Engine, incident: Incident, job: Job, opened: OpenedPath, rows: Sequence[Mapping[str, Any]]) -> str:
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


def _caused(engine: Engine, diagnosis: Diagnosis, fault: NodeFault, line: SourceLine) -> Diagnosis:
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
