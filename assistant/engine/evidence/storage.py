"""Name the file system that a failure met: where the path lies, on which node, how full, read-only or silent it is now."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assistant.diagnose.answer import DEEDS
from assistant.diagnose.readers.exceptions import network_disk
from assistant.engine.evidence.file_systems import (
    FULL_PERCENT,
    LOCAL_TYPES,
    DiskFault,
    NodeFault,
    OwnFiles,
    crowded_disk,
    filled_words,
    full_disk_words,
    full_words,
    held_elsewhere,
    holders_in_words,
    is_full,
    located,
    mount_of,
    node_fault,
    own_files,
    paths_used,
    size_words,
    system_paths,
    unnamed_disk,
)
from assistant.engine.evidence.missing_data import (
    MISSING_DATA,
    is_shared,
    lost_saves,
    missing_folder,
    on_some_nodes,
    relative_paths,
    served_there,
    with_absent_folder,
    with_file_back,
    with_lost_saves,
    with_partial_copy,
    without_its_data,
)
from assistant.engine.evidence.permissions import with_closed_path
from assistant.engine.gather import ask
from assistant.errors import NightshiftError, Unavailable
from assistant.records import Action, Category, Citation, Diagnosis, Incident, Job, Node, NodeFinding, NodeState, Whereabouts
from assistant.recover.checkpoints.search import SaveState, search_checkpoints
from assistant.recover.job_program import FileReader, configured_keys, programs_of
from assistant.recover.joblog import log_lines
from assistant.recover.runs import SaveFolders
from assistant.recover.situation import AVOIDED, AWAY
from assistant.untrusted import reading_as
from assistant.watch.attempts import Remark
from assistant.watch.outages import NOT_THERE, paths_of

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

STORAGE_REASONS = frozenset(
    {
        "os_error", "s3_storage_error", "file_not_found_error", "permission_error", "dataset_loading_error", "model_loading_error",
        "runtime_error", "import_error", "called_process_error", "output_file_error",
    }
)  # fmt: skip
"""Reasons whose lines may name a path that could not be used."""
RETRY_ACTIONS = (Action.WAIT_AND_RETRY, Action.RESTART_SAME_NODES)
OPEN_STATES = (SaveState.UNKNOWN, SaveState.SAVED_ELSEWHERE)
MOST_ASKED = 32
"""Nodes of the job that are asked about all their file systems."""
MOST_OTHERS = 4
"""Other nodes that are asked whether it is the same there."""
PROBES = "probes.log"
COMPARED = "storage.on_one_node"
"""What made a line of the probes count: the same path, asked on several nodes."""
_CITED = re.compile(r"[\w./-]{1,80}\.(?:log|out|err|txt):\d{1,12}: (.{20,120})")
"""Of what speaks for another explanation: a line with its place."""
_SPACE = re.compile(r"No space left|Errno 28\b|ENOSPC|os error 28\b|code: 28\b", re.IGNORECASE)
_QUOTA = re.compile(r"quota|Errno 122\b|EDQUOT", re.IGNORECASE)
_CUT_SHORT = re.compile(
    r"file write failed|failed writing file|PytorchStreamWriter|unexpected pos \d+ vs \d+|\bshort write|\bwrite (?:failed|error)\b"
    r"|could not (?:write|be written)|inline_container",
    re.IGNORECASE,
)
"""Of a write that did not come to its end, and does not say why."""
_ABSENT = re.compile(r"No such file|not found|does not exist|Permission denied", re.IGNORECASE)
_SILENT = re.compile(
    r"Input/output error|Stale (?:NFS )?file handle|Transport endpoint|Host is down|Remote I/O error|os error (?:5|107|116)\b"
    r"|Errno (?:5|107|108|112|116|121)\b|\b(?:EIO|ESTALE)\b",
    re.IGNORECASE,
)
_READ_ONLY = re.compile(r"Read-only file system|Errno 30\b|EROFS", re.IGNORECASE)


def with_storage(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis that names the file system of the path that a job could not use; as it is where none is named or seen."""
    texts = [cited.text for cited in diagnosis.root_cause]
    error = " ".join(texts)
    paths = _paths(diagnosis, job) if job is not None and diagnosis.reason in STORAGE_REASONS else ()
    if job is None or not job.nodes:
        return diagnosis
    if not paths:
        return _with_unnamed(engine, incident, diagnosis, job, error)
    first = next((place.node for place in diagnosis.where if place.node in job.nodes), job.nodes[0])
    answer = ask(engine.store, engine.gate, incident, "storage_state", {"nodes": [first], "paths": list(paths[:1])})
    states: Sequence[Mapping[str, Any]] = (answer or {}).get("states") or ()
    words = storage_words(states[0], error) if states else ""
    before_words, diagnosis = diagnosis, replace(diagnosis, summary=f"{diagnosis.summary} {words}") if words else diagnosis
    compared = _compared(engine, incident, diagnosis, job, states[0]) if states else diagnosis
    if compared.where != diagnosis.where:
        return compared
    if states and diagnosis.reason in MISSING_DATA and NOT_THERE.search(error) and states[0].get("kind") in LOCAL_TYPES:
        rows = [*states, *_states_beside(engine, incident, job, states[0])]
        if (partial_copy := on_some_nodes(rows)) is not None:
            return with_partial_copy(before_words, partial_copy)
    diagnosis = with_closed_path(compared, states[0], job, error) if states else compared
    if states and (loss := lost_saves(states[0], job)):
        return with_lost_saves(diagnosis, loss)
    away = bool(states) and NOT_THERE.search(error) is not None and bool(missing_folder(states[0]))
    rows = [states[0], *_states_beside(engine, incident, job, states[0], most=MOST_OTHERS)] if away else []
    if away:
        return without_its_data(diagnosis, rows) or with_absent_folder(diagnosis, rows, job)
    if states and not away and NOT_THERE.search(error) and diagnosis.reason in MISSING_DATA and incident.parent is None:
        rows = [*states, *_states_beside(engine, incident, job, states[0])]
        if (restart := with_file_back(diagnosis, rows, job)) is not None:
            return restart
    if states and fault_of(error) is DiskFault.FULL and not is_full(states[0]):
        return _with_crowded(engine, incident, diagnosis, job, all_states(engine, incident, job.nodes[:MOST_ASKED]), [first], paths)
    if states and _met_full_disk(states[0], error) and _is_only_there(engine, incident, states[0], job):
        return restart_elsewhere(engine, incident, diagnosis, (str(states[0]["place"]), first, DiskFault.FULL), job, words)
    return _without_restart(diagnosis, words) if states and still_read_only(states[0], error) else diagnosis


def _paths(diagnosis: Diagnosis, job: Job) -> tuple[str, ...]:
    """Return the paths that the root cause names, else those of another explanation that the same file system would explain."""
    texts = [cited.text for cited in diagnosis.root_cause]
    paths = paths_of(diagnosis.reason, texts) or system_paths(diagnosis.reason, texts) or relative_paths(job, texts)
    if paths or fault_of(" ".join(texts)) is not None:
        return paths
    for rival in diagnosis.rivals:
        match = _CITED.match(rival.speaks_for) if rival.reason in STORAGE_REASONS else None
        lines = _whole_lines(job, match[1]) if match is not None else []
        if rival_paths := paths_of(rival.reason, lines) or system_paths(rival.reason, lines):
            return rival_paths
    return ()


def _states_beside(
    engine: EnginePort, incident: Incident, job: Job, first: Mapping[str, Any], *, most: int = MOST_ASKED
) -> Sequence[Mapping[str, Any]]:
    """Return what the other nodes of a job say of the path that one of them was asked about."""
    other_nodes = [node for node in job.nodes if node != first["node"]][:most]
    arguments = {"nodes": other_nodes, "paths": [str(first["path"])]}
    answer = ask(engine.store, engine.gate, incident, "storage_state", arguments) if other_nodes else None
    return (answer or {}).get("states") or ()


def _whole_lines(job: Job, begin: str) -> list[str]:
    """Return the first line of a job's log that begins so, as it stands there; none where it cannot be read."""
    try:
        return [text for line in log_lines(job) if (text := line.text.strip()).startswith(begin)][:1]
    except (NightshiftError, OSError):
        return []


def _compared(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job, first: Mapping[str, Any]) -> Diagnosis:
    """Return a diagnosis by which one node is at fault that cannot use a path as others can; as it is where that is not proven."""
    error = " ".join(cited.text for cited in diagnosis.root_cause)
    placed = any(place.node in job.nodes for place in diagnosis.where)
    if not (suspicious(first, error) or (not placed and len(job.nodes) > 1)):
        return diagnosis
    all_nodes = nodes_of_cluster(engine)
    peers = comparable_nodes(all_nodes, job, str(first["node"]), most=MOST_ASKED if not placed else MOST_OTHERS)
    if not peers:
        return diagnosis
    answer = ask(engine.store, engine.gate, incident, "storage_state", {"nodes": peers, "paths": [str(first["path"])]}) or {}
    rows = [first, *(row for row in answer.get("states") or () if row["path"] == first["path"])]
    fault = node_fault(error, rows, job.user)
    if fault is None or fault.node not in job.nodes:
        owner_words = held_elsewhere(rows)
        return (
            replace(diagnosis, summary=f"{diagnosis.summary} {owner_words}")
            if owner_words and diagnosis.action not in RETRY_ACTIONS
            else diagnosis
        )
    return without_node(engine, incident, diagnosis, job, fault)


def suspicious(state: Mapping[str, Any], error: str) -> bool:
    """Tell whether what a node says of a path may be its own fault: a look at other nodes is worth while."""
    missing = bool(state.get("stands")) and state["stands"] != state["real"]
    denied = "ermission denied" in error and state.get("kind") in LOCAL_TYPES
    return missing or bool(state.get("silent")) or still_read_only(state, error) or denied


def nodes_of_cluster(engine: EnginePort) -> Sequence[Node]:
    """Return all nodes; none where the scheduler does not answer."""
    try:
        return engine.scheduler.nodes()
    except Unavailable:
        return ()


def comparable_nodes(all_nodes: Sequence[Node], job: Job, first: str, *, most: int) -> list[str]:
    """Return nodes to compare one with: those of its job, then those in service of the same partition and features."""
    own = [node for node in job.nodes if node != first][:most]
    first_node = next((node for node in all_nodes if node.name == first), None)
    in_service = [
        node for node in all_nodes if node.state in (NodeState.IDLE, NodeState.ALLOCATED) and job.partition in node.partitions
    ]
    like = [node.name for node in in_service if first_node is None or {*node.features} == {*first_node.features}]
    more = [name for name in like if name not in job.nodes][: max(0, MOST_OTHERS - len(own))]
    return [*own, *more]


def _of_same_kind(all_nodes: Sequence[Node], fault: NodeFault) -> bool:
    """Tell whether the nodes without a fault are of the kind of the one with it, by their features."""
    features = {node.name: {*node.features} for node in all_nodes}
    return fault.node in features and all(features.get(node) == features[fault.node] for node in fault.fine)


def without_node(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job, fault: NodeFault) -> Diagnosis:
    """Return a diagnosis by which the job goes on without a node; as it is where what it needs lies there and nowhere else.

    A node that lost a whole file system is accused: the job's line and its mount table are two witnesses where the job had trained
    on it, or the output of a job there shows that it had it, else its fstab has to be the second. Any other is only left out.
    """
    keeps_there = fault.own and any(path.is_relative_to(fault.subject) for path in _kept_paths(engine, job))
    if keeps_there and not is_shared(engine, incident, job, fault):
        return diagnosis
    victim = f"job {job.id} of {job.user}" if job.user else f"job {job.id}"
    text = f"{fault.subject} {fault.fault} on {fault.node}, and {victim} failed by that: see to it there, other jobs will meet it"
    engine.good_runs.remarks.append(Remark(f"{fault.subject} of {fault.node}", text))
    advice = f"Restart from the last healthy checkpoint on other nodes than {fault.node}: {fault.sentence} "
    advice += "Somebody has to see to it there."
    diagnosis = replace(diagnosis, category=Category.INFRASTRUCTURE, summary=f"{diagnosis.summary} {fault.sentence}", advice=advice)
    places = (*diagnosis.where, Whereabouts(f"{AVOIDED} {fault.subject} {fault.fault} there", fault.node))
    if not fault.lost_mount or not _of_same_kind(nodes_of_cluster(engine), fault):
        return replace(diagnosis, action=Action.RESTART_SAME_NODES, where=places)
    lines = tuple(cited for cited in diagnosis.root_cause if cited.role == "root")[:1]
    had_it = diagnosis.step is not None or served_there(engine, job, fault.node, fault.subject)
    probe_lines = (probe_line(engine, incident, fault.sentence, COMPARED),) if had_it else ()
    finding = NodeFinding(fault.node, fault.sentence, (*lines, *probe_lines))
    return replace(diagnosis, action=Action.CORDON_AND_RESTART, nodes=(finding,), where=places)


def probe_line(engine: EnginePort, incident: Incident, text: str, rule: str) -> Citation:
    """Return a citation of what nodes said, and keep it below what the probes have said of this incident."""
    earlier = [evidence.text for evidence in engine.store.evidence(incident.id) if evidence.source == PROBES]
    lines = [*(earlier[-1].splitlines() if earlier else ()), text]
    engine.store.add_evidence(incident.id, PROBES, "\n".join(lines), {"compared": True})
    return Citation(PROBES, len(lines), text, rule)


def _with_unnamed(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job, error: str) -> Diagnosis:
    """Return a diagnosis with the file system that an error without a path met, as the nodes of the job show it."""
    fault = fault_of(error)
    if fault is None and not _QUOTA.search(error) and not _CUT_SHORT.search(error):
        return diagnosis
    first = [place.node for place in diagnosis.where if place.node in job.nodes]
    nodes = list(dict.fromkeys(node for node in (*first, *job.nodes) if node is not None))[:MOST_ASKED]
    states = all_states(engine, incident, nodes)
    kept_paths = _kept_paths(engine, job)
    used = paths_used(job, map(str, kept_paths), sources_of(job))
    if fault is None and not _QUOTA.search(error):
        full = unnamed_disk(DiskFault.FULL, states, used)
        if full is None:
            return diagnosis
        words = full_disk_words(full, states)
        diagnosis = replace(diagnosis, summary=f"{diagnosis.summary} {words}", advice=located(diagnosis.advice, words))
        if first and first[0] not in full.nodes:
            return diagnosis
        fault = DiskFault.FULL
    elif fault in (None, DiskFault.FULL):
        sentence = full_words(states)
        summary = f"{diagnosis.summary} {sentence}"
        diagnosis = replace(diagnosis, summary=summary, advice=located(diagnosis.advice, sentence)) if sentence else diagnosis
    disk = unnamed_disk(fault, states, used) if fault is not None else None
    if fault is DiskFault.FULL and disk is None and not any(is_full(state) for state in states):
        return _with_crowded(engine, incident, diagnosis, job, states, first or nodes)
    if fault is None or disk is None:
        return diagnosis
    sentence = f"The error names no path; of what the job uses {disk.place} ({disk.kind}) {fault} on {', '.join(disk.nodes)}"
    sentence += f", and not on {', '.join(disk.fine[:4])}." if disk.fine else "."
    if fault is not DiskFault.FULL:
        diagnosis = replace(diagnosis, summary=f"{diagnosis.summary} {sentence}")
    mounts = {str(state["place"]) for state in states if state["node"] == disk.nodes[0]}
    stays = bool(kept_paths) and not any(mount_of(str(path), mounts) == disk.place for path in kept_paths)
    alone = len(disk.nodes) == 1 and len(disk.fine) + 1 == len(nodes)
    if alone and ((disk.local and stays) or (not disk.local and disk.fine and fault is not DiskFault.FULL)):
        return restart_elsewhere(engine, incident, diagnosis, (disk.place, disk.nodes[0], fault), job, sentence)
    if not disk.local and fault is DiskFault.SILENT and not alone:
        whereabouts = (*diagnosis.where, Whereabouts(f"{AWAY} {disk.place}"))
        advice = f"Start again when {disk.place} answers on {', '.join(disk.nodes)}. {sentence}"
        return replace(diagnosis, category=Category.INFRASTRUCTURE, action=Action.WAIT_AND_RETRY, advice=advice, where=whereabouts)
    return _without_restart(diagnosis, sentence) if fault is not DiskFault.FULL else diagnosis


def all_states(engine: EnginePort, incident: Incident, nodes: Sequence[str]) -> Sequence[Mapping[str, Any]]:
    """Return what nodes say of all their file systems; empty where none answered."""
    answer = ask(engine.store, engine.gate, incident, "storage_state", {"nodes": list(nodes)}) or {}
    return answer.get("states") or ()


def _with_crowded(
    engine: EnginePort,
    incident: Incident,
    diagnosis: Diagnosis,
    job: Job,
    states: Sequence[Mapping[str, Any]],
    nodes: Sequence[str],
    error_paths: Sequence[str] = (),
) -> Diagnosis:
    """Return a diagnosis by which a job leaves the node whose own disk has hardly any room, where others of its kind have much.

    Args:
        engine: Whose scheduler knows nodes of the same kind.
        incident: Of the job.
        diagnosis: Of a write that met a full disk.
        job: Whose write it was.
        states: Of all file systems of its nodes, as they are now; none of them is full.
        nodes: Of the job, on which the error may have been raised.
        error_paths: That the error names.
    """
    answered = {str(state["node"]) for state in states}
    peers = [name for name in comparable_nodes(nodes_of_cluster(engine), job, nodes[0], most=MOST_OTHERS) if name not in answered]
    rows = [*states, *(all_states(engine, incident, peers) if peers else ())]
    paths = _kept_paths(engine, job)
    disk = crowded_disk(rows, nodes, paths_used(job, [*error_paths, *map(str, paths)], sources_of(job)))
    if disk is None:
        return diagnosis
    (node,) = disk.nodes
    shares = {str(row["node"]): f"{row['used_percent']:.0f} %" for row in rows if row["place"] == disk.place}
    peer_words = ", ".join(f"{shares[name]} on {name}" for name in disk.fine[:4])
    words = f"Of {disk.place} ({disk.kind}) of {node} {shares[node]} is in use now, behind the job's end, and {peer_words}."
    diagnosis = replace(diagnosis, summary=f"{diagnosis.summary} {words}")
    apart = not any(path.is_relative_to(disk.place) for path in paths)
    moved = (
        restart_elsewhere(engine, incident, diagnosis, (disk.place, node, DiskFault.CROWDED), job, words) if apart else diagnosis
    )
    # where the job stays, people hear which disk it is all the same
    return moved if moved.where != diagnosis.where else replace(moved, advice=located(moved.advice, words))


def fault_of(error: str) -> DiskFault | None:
    """Return what an error says of the file system that it met; None where it says nothing of one, or of a quota."""
    if _QUOTA.search(error):
        return None
    forms = ((_SPACE, DiskFault.FULL), (_READ_ONLY, DiskFault.READ_ONLY), (_SILENT, DiskFault.SILENT))
    return next((fault for form, fault in forms if form.search(error)), None)


def _kept_paths(engine: EnginePort, job: Job) -> frozenset[Path]:
    """Return where the job keeps what a restart needs: its checkpoints, work folder and log; empty where its saves are not known.

    A program may write much else: where its checkpoints lie, or that it saved none, goes before folders that it may save to.
    """
    texts = (line.text for line in log_lines(job))
    with reading_as(job.account):
        try:
            search = search_checkpoints(job, engine.checkpoint_folders, texts, now=engine.clock.now())
            folders = SaveFolders(job, engine.checkpoint_folders)
            likely = {*folders.named, folders.certain} - {None} if search.state in OPEN_STATES else set()
        except (NightshiftError, OSError):
            return frozenset()
    saves = {search.place.folder} if search.place is not None else likely
    is_known = bool(saves) or search.state is SaveState.NEVER_SAVED
    own = {*saves, job.work_dir, job.log} if is_known else ()
    return frozenset(path for path in own if path is not None)


def sources_of(job: Job) -> tuple[str, ...]:
    """Return the texts of a job's programs and its settings, which may name where it writes; none where they cannot be read."""
    try:
        with reading_as(job.account):
            programs, read = programs_of(job), FileReader(job.account)
            settings = [value for program in programs for _, value in configured_keys(program, read) if value.startswith("/")]
            return (*(source.text for program in programs for source in program.sources), *(f"'{value}'" for value in settings))
    except (NightshiftError, OSError):
        return ()


def _met_full_disk(state: Mapping[str, Any], error: str) -> bool:
    """Tell whether the file system of a path is full and a node's own, as a write says that it is."""
    if fault_of(error) is not DiskFault.FULL or not is_full(state) or state.get("silent"):
        return False
    return state["kind"] in LOCAL_TYPES and state["place"] != "/"  # `/` holds the system, too, and paths of mounts that are missing


def _is_only_there(engine: EnginePort, incident: Incident, full: Mapping[str, Any], job: Job) -> bool:
    """Tell whether nothing that the job keeps lies on a full disk, and that disk is full on no other of its nodes."""
    place, kept_paths = str(full["place"]), _kept_paths(engine, job)
    if any(path.is_relative_to(place) for path in kept_paths):
        return False
    peers = [node for node in job.nodes if node != full["node"]][:MOST_OTHERS]
    if not peers:
        return True
    answer = ask(engine.store, engine.gate, incident, "storage_state", {"nodes": peers, "paths": [place]}) or {}
    rows = [row for row in answer.get("states") or () if row.get("place") == place]
    return {row["node"] for row in rows} == set(peers) and not any(is_full(row) or row.get("silent") for row in rows)


def _own_files(engine: EnginePort, incident: Incident, job: Job, place: str, node: str) -> OwnFiles:
    """Return what the job wrote onto a full disk of a node, and whether it would fill that of another node as well."""
    rows: Sequence[Mapping[str, Any]] = ()
    if job.user and job.started is not None:
        nodes = [node, *(name for name in job.nodes if name != node)][: MOST_OTHERS + 1]
        details = {"nodes": nodes, "place": place, "user": job.user, "since_s": int(job.started.timestamp())}
        rows = (ask(engine.store, engine.gate, incident, "space_written", details) or {}).get("rows") or ()
    return own_files(rows, node, place)


def restart_elsewhere(
    engine: EnginePort, incident: Incident, diagnosis: Diagnosis, disk: tuple[str, str, DiskFault], job: Job, words: str
) -> Diagnosis:
    """Return a diagnosis by which the job goes on elsewhere: the node is left out and not blamed, and people hear of its disk.

    As it was, with what the job wrote there, where its own files filled the disk: they would fill that of another node, too.
    """
    place, node, fault = disk
    holders = ""
    if fault in (DiskFault.FULL, DiskFault.CROWDED):
        written = _own_files(engine, incident, job, place, node)
        if written.fills_another:
            return _without_restart(replace(diagnosis, summary=f"{diagnosis.summary} {written.sentence}"), written.sentence)
        rows = (ask(engine.store, engine.gate, incident, "space_holders", {"nodes": [node], "place": place}) or {}).get(
            "rows"
        ) or ()
        holders = holders_in_words(rows, place)
    owner = f"job {job.id} of {job.user}" if job.user else f"job {job.id}"
    todo = "see to it" if fault in (DiskFault.READ_ONLY, DiskFault.SILENT) else "free space"
    text = f"{place} of {node} {fault}, and {owner} failed by that: {todo} there, other jobs will meet it"
    text += f". {holders}" if holders else ""
    engine.good_runs.remarks.append(Remark(f"{'lost' if todo == 'see to it' else 'full'} disk {place} of {node}", text))
    advice = f"Restart from the last healthy checkpoint on other nodes than {node}: {words or f'{place} {fault} there.'} "
    advice += f"That is so on {node} alone, and the job needs nothing of it elsewhere. Somebody has to {todo} there."
    advice += f" {holders}" if holders else ""
    who_fills_it = f" ({holders[0].lower()}{holders[1:].rstrip('.')})" if holders else ""
    places = (*diagnosis.where, Whereabouts(f"{AVOIDED} {place} {fault} there{who_fills_it}", node))
    return replace(diagnosis, category=Category.INFRASTRUCTURE, action=Action.RESTART_SAME_NODES, advice=advice, where=places)


def still_read_only(state: Mapping[str, Any], error: str) -> bool:
    """Tell whether a file system that refused a write is mounted read-only now, so that a restart is refused the same way."""
    return _READ_ONLY.search(error) is not None and "ro" in str(state.get("options", "")).split(",")


def _without_restart(diagnosis: Diagnosis, sentence: str) -> Diagnosis:
    if diagnosis.action not in RETRY_ACTIONS:
        return diagnosis
    advice = f"{DEEDS[Action.FIX_AND_RESUBMIT]} {sentence} {diagnosis.advice.removeprefix(DEEDS[diagnosis.action]).strip()}"
    return replace(diagnosis, action=Action.FIX_AND_RESUBMIT, advice=advice)


def storage_words(state: Mapping[str, Any], error: str) -> str:
    """Return one sentence about the file system of a path; empty where it is not known.

    Args:
        state: A row of `storage_state`.
        error: The lines that prove the failure.
    """
    place, path, kind = str(state.get("place", "")), str(state.get("path", "")), str(state.get("kind", ""))
    if not place:
        return ""
    source = str(state.get("source", ""))
    of = f"{kind}, {source}" if source and source not in ("none", kind) else kind
    place_words = f"{path} lies on {place} ({of}) of {state['node']}"
    if state.get("silent"):
        return f"{place_words}, which does not answer there now."
    if kind in LOCAL_TYPES and network_disk(path) and place == "/":
        return f"{path} lies on / of {state['node']}: no file system is mounted there now."
    if place == "/" and _ABSENT.search(error):
        return ""  # of a file that is not there it tells nothing that it would lie on the node's own disk
    return f"{place_words}{_condition(state, error)}."


def _condition(state: Mapping[str, Any], error: str) -> str:
    used, inodes, free = state.get("used_percent"), state.get("inodes_percent"), state.get("free_bytes")
    read_only = "ro" in str(state.get("options", "")).split(",")
    if _READ_ONLY.search(error):
        return ", mounted read-only now" if read_only else ", mounted for writing now"
    if read_only:
        return ", mounted read-only"
    room = ", ".join(filled_words(used, inodes))
    if _QUOTA.search(error):
        return f", of which {room}: the quota is less than that" if room else ""
    if not _SPACE.search(error):
        return ""
    if inodes is not None and inodes >= FULL_PERCENT and (used is None or used < FULL_PERCENT):
        return f", of whose inodes {inodes:.0f} % are in use: files have to go, not bytes"
    if used is not None and used >= FULL_PERCENT:
        return f", of which {used:.0f} % is in use ({size_words(free)} free)"
    return f", of which {room} now: space was freed since, or a quota of the folder or project was met" if room else ""
