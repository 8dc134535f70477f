"""Data that was there and is not: a folder that is gone with all that was saved or read there, a file that was copied in part.

A file is cut short when its siblings are longer and alike: the files of the same name in the folders beside its own (`shard0`,
`shard1`, …), else those beside it whose names differ in numbers alone. The last of a series may be shorter by nature.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.diagnose.readers.rounds import last_count
from assistant.engine.evidence.file_systems import NodeFault
from assistant.engine.gather import ask, caused_outside
from assistant.errors import InputError, NightshiftError, ToolError, Unavailable
from assistant.records import Action, Category, Diagnosis, Incident, Job, JobState, Whereabouts
from assistant.recover.checkpoints.names import name_form
from assistant.recover.checkpoints.place import saved_into
from assistant.recover.joblog import log_lines
from assistant.recover.situation import AWAY
from assistant.untrusted import LOOK_S, is_folder, is_regular, list_folder, reading_as, status_of, within
from assistant.watch.outages import NOT_THERE, PATH, unescaped_lines

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

MISSING_DATA = frozenset({"file_not_found_error", "dataset_loading_error", "os_error"})
"""Reasons of a file of data that was not found."""
MOST_SHOWN_JOBS = 8
"""Jobs beside another one that are asked for one by one."""
MOST_NODES_NAMED = 4
FEWEST_ROUNDS = 2
"""Of what a job counts itself, from which on it had done some of its work."""
LEAST_NUMBER = 2
"""Of a file of a series: those before it had been read."""
_RELATIVE = re.compile(r"""['"`](?:\./)?([\w@%+=~-][\w.@%+=~-]{0,255}(?:/[\w.@%+=,~-]{1,255}){1,40})['"`]""")
_NUMBER = re.compile(r"\d+")
_WRITES = re.compile(
    r"\b(?:cannot|could not|can't|failed to|unable to) (?:create|open .{0,300} for writing|write|save|move|copy)\b|\bfor writing\b"
)
"""Of a file that was to be made: nothing had been read there."""
_CHANGES_FOLDER = re.compile(r"(?:^|[;&|(]|\bthen|\bdo)\s*(?:cd|pushd)\b|--chdir\b|\s-D\b", re.MULTILINE)


def relative_paths(job: Job, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the quoted paths without a leading slash that lines say are not there, as seen from the folder of a job.

    None where the script changes the folder: which one a program ran in is not known then.
    """
    folder = job.work_dir or (job.spec.work_dir if job.spec is not None else None)
    if folder is None or not folder.is_absolute() or job.spec is None or _CHANGES_FOLDER.search(job.spec.script):
        return ()
    matches = [match for text in unescaped_lines(texts) if NOT_THERE.search(text) for match in _RELATIVE.findall(text)]
    return tuple(dict.fromkeys(str(PurePosixPath(folder) / match) for match in matches if ".." not in match))[:8]


def missing_folder(state: Mapping[str, Any]) -> str:
    """Return the highest folder of a path that does not stand; empty where only its last part is missing, or that is not known.

    Args:
        state: A row of `storage_state`.
    """
    path, real, stands = (PurePosixPath(str(state.get(name) or "")) for name in ("path", "real", "stands"))
    if not path.is_absolute() or not stands.is_absolute() or not real.is_relative_to(stands):
        return ""
    missing = min(len(real.parts) - len(stands.parts), len(path.parts) - 1)
    return str(PurePosixPath(*path.parts[: len(path.parts) - missing + 1])) if missing > 1 else ""


def lost_saves(state: Mapping[str, Any], job: Job) -> str:
    """Return that a folder into which a job had saved is not there now, seen from a node; empty where that is not proven."""
    folder = missing_folder(state)
    if not folder or state.get("silent"):
        return ""
    try:
        proof = saved_into((line.text for line in log_lines(job)), folder, str(state["path"]))
    except (NightshiftError, OSError):
        return ""
    stands = f"The folder {folder} is gone on {state['node']}, where no more than {state['stands']} stands"
    return f"{stands}; the job had saved into it: {proof}." if proof else ""


def with_lost_saves(diagnosis: Diagnosis, loss: str) -> Diagnosis:
    """Return a diagnosis of storage that was there and is gone: nothing is made or started by anybody before it is back."""
    advice = (
        f"Do not restart yet, and make no folder. {loss} Look whether its file system is still mounted there and what may have "
        "removed it, and bring it back first: a start now would begin at step 0 in an empty folder."
    )
    summary = f"{diagnosis.summary} {loss}"
    if diagnosis.action is Action.WAIT_AND_RETRY:
        return replace(diagnosis, summary=summary)
    return replace(diagnosis, category=Category.INFRASTRUCTURE, action=Action.FIX_AND_RESUBMIT, summary=summary, advice=advice)


def without_its_data(diagnosis: Diagnosis, states: Sequence[Mapping[str, Any]]) -> Diagnosis | None:
    """Return a diagnosis by which a job waits for the folder of the files that it was reading; None where it had not read there.

    It had where it trained, and the missing file is a later one of a series (`shard-00006.tar`), of which the whole folder is gone
    on all of its nodes that answered: the files before it had been read there.

    Args:
        diagnosis: Of a file that was not found.
        states: Rows of `storage_state` about that file, one of each node of the job.
    """
    answered = [state for state in states if not state.get("silent") and state.get("stands")]
    folders = {missing_folder(state) for state in answered}
    writes = is_written([cited.text for cited in diagnosis.root_cause])
    if diagnosis.step is None or writes or len(folders) != 1 or not (folder := folders.pop()):
        return None
    path = PurePosixPath(str(answered[0]["path"]))
    numbers = [int(number) for number in _NUMBER.findall(path.stem)]
    if not numbers or max(numbers) < LEAST_NUMBER:
        return None
    nodes = ", ".join(dict.fromkeys(str(state["node"]) for state in answered))
    loss = (
        f"The folder {folder} is gone on {nodes}, where no more than {answered[0]['stands']} stands; "
        f"the job had read the files before {path.name} there until step {diagnosis.step}."
    )
    advice = f"Start again when {folder} is there. {loss} Look whether its file system is still mounted, and who moved it."
    return caused_outside(diagnosis, loss, Action.WAIT_AND_RETRY, advice, Whereabouts(f"{AWAY} {folder}"))


def is_written(texts: Sequence[str]) -> bool:
    """Tell whether lines say that a file was to be made: nothing had been read there."""
    return any(_WRITES.search(text) for text in texts)


def progress_words(diagnosis: Diagnosis, job: Job) -> str:
    """Return how far a job had come: its step, else what it counts itself; empty where it shows neither."""
    if diagnosis.step is not None:
        return f"step {diagnosis.step}"
    try:
        count = last_count(log_lines(job))
    except (NightshiftError, OSError):
        return ""
    return str(count) if count is not None and count.number >= FEWEST_ROUNDS else ""


def with_absent_folder(diagnosis: Diagnosis, states: Sequence[Mapping[str, Any]], job: Job) -> Diagnosis:
    """Return a diagnosis that says that the whole folder is gone of a file that was missing behind a step; else as it is."""
    answered = [state for state in states if not state.get("silent") and state.get("stands")]
    folders = {missing_folder(state) for state in answered}
    if len(folders) != 1 or not (folder := folders.pop()) or not progress_words(diagnosis, job):
        return diagnosis
    nodes = nodes_in_words(list(dict.fromkeys(str(state["node"]) for state in answered)))
    stands = f"where no more than {answered[0]['stands']} stood"
    sentence = f"Not that file alone: the whole folder {folder} was not there on {nodes}, {stands}."
    return replace(diagnosis, summary=f"{diagnosis.summary} {sentence}", advice=f"{sentence} {diagnosis.advice}")


def with_file_back(diagnosis: Diagnosis, states: Sequence[Mapping[str, Any]], job: Job) -> Diagnosis | None:
    """Return a diagnosis of a file that was away for a moment: the job goes on once more. None where that is not what was seen.

    It is there on all nodes of the job now, and the job had trained, or counted what it did: neither its path nor its folder can
    have been wrong for all that. Of a job that failed before its first step nothing tells whether it looked in another folder or
    in a container.

    Args:
        diagnosis: Of a file that was not found.
        states: Rows of `storage_state` about that file.
        job: The attempt.
    """
    own = [state for state in states if state.get("node") in job.nodes]
    standing = [state for state in own if not state.get("silent") and state.get("stands") and state["stands"] == state["real"]]
    nodes = {str(state["node"]) for state in standing}
    complete = nodes == {*job.nodes} and len(standing) == len(own)
    if diagnosis.action is not Action.FIX_AND_RESUBMIT or not complete or not (reached := progress_words(diagnosis, job)):
        return None
    path = standing[0]["path"]
    words = f"{path} was not there when the job asked for it behind {reached}, and is there again now"
    places = f"{', '.join(sorted(nodes)[:4])}{' and others' if len(nodes) > 4 else ''}"
    advice = (
        f"Restart from the last healthy checkpoint: {words}, on {places}. Nothing has to be changed in the job; if it is away "
        "again, ask who publishes or moves it."
    )
    return caused_outside(diagnosis, f"{words} (on {places}): it was away for a moment.", Action.RESTART_SAME_NODES, advice)


def nodes_in_words(nodes: Sequence[str]) -> str:
    """Return names of nodes, the first few of many."""
    more = f" and {len(nodes) - MOST_NODES_NAMED} more" if len(nodes) > MOST_NODES_NAMED else ""
    return f"{', '.join(nodes[:MOST_NODES_NAMED])}{more}"


class PartialCopy(NamedTuple):
    """A path on nodes' own disks that is there on some nodes of a job and missing on others."""

    path: str
    lacking: tuple[str, ...]
    holding: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """For people: which nodes lack it."""
        lacking, holding = (nodes_in_words(nodes) for nodes in (self.lacking, self.holding))
        return f"{self.path} is missing on {lacking} and is there on {holding}: each node has a disk of its own there."


def on_some_nodes(states: Sequence[Mapping[str, Any]]) -> PartialCopy | None:
    """Return a path that some nodes of a job have and others lack; None where all that answered agree.

    Args:
        states: Rows of `storage_state` about one path, one of each node of the job.
    """
    answered = [state for state in states if not state.get("silent") and state.get("stands") and state.get("real")]
    holding = tuple(str(state["node"]) for state in answered if state["stands"] == state["real"])
    lacking = tuple(str(state["node"]) for state in answered if state["stands"] != state["real"])
    return PartialCopy(str(answered[0]["path"]), lacking, holding) if holding and lacking else None


def with_partial_copy(diagnosis: Diagnosis, partial: PartialCopy) -> Diagnosis:
    """Return a diagnosis of a file that was put on some nodes only: its path is right, and what makes it has to run on each."""
    later = [sentence for sentence in re.split(r"(?<=\.) ", diagnosis.advice) if partial.path not in sentence]
    advice = (
        "Let the step that puts it there run on each node of the job, such as srun --ntasks-per-node=1 in front of it (what stands "
        f"in a batch script without srun runs on the first node only), or read it from where all nodes see it: {partial.sentence}"
    )
    return replace(diagnosis, summary=f"{diagnosis.summary} {partial.sentence}", advice=" ".join([advice, *later]))


def is_shared(engine: EnginePort, incident: Incident, job: Job, fault: NodeFault) -> bool:
    """Tell whether a file system is shared although its kind may be a node's own disk (a bind mount, tmpfs of a small cluster).

    It is where this machine reads there what the job has written since its start, and nodes that it never ran on have that, too.
    """
    log, strangers = job.log, [node for node in fault.fine if node not in job.nodes]
    if log is None or job.started is None or not strangers or not log.is_relative_to(fault.subject):
        return False
    written = _written_at(log, job.account)
    if written is None:
        return False
    answer = ask(engine.store, engine.gate, incident, "storage_state", {"nodes": strangers, "paths": [str(log)]}) or {}
    rows = [row for row in answer.get("states") or () if not row.get("silent") and row["stands"] == row["real"]]
    seen_by = {str(row["node"]) for row in rows if row["place"] == fault.subject}
    return written >= job.started.timestamp() and seen_by == {*strangers}


def served_there(engine: EnginePort, job: Job, node: str, place: str) -> bool:
    """Tell whether the output of a job shows that a node had a file system mounted a while ago: it lies there.

    Slurm opens the output on the first node before anything of the script runs. Only what ran to its own end counts, whosever it
    is: of a job that was ended before its launch anybody may have written such a file elsewhere.
    """
    candidates = [entry for entry in engine.watcher.jobs if entry.id != job.id and entry.nodes[:1] == (node,)]
    return any(_opened_output(entry, node, place) for entry in (job, *shown_jobs(engine, job, candidates)))


def _opened_output(job: Job, node: str, place: str) -> bool:
    ran = job.state in (JobState.COMPLETED, JobState.FAILED) and not job.signal and job.nodes[:1] == (node,)
    return ran and job.log is not None and job.log.is_relative_to(place) and wrote_log(job)


def shown_jobs(engine: EnginePort, job: Job, jobs: Sequence[Job]) -> list[Job]:
    """Return jobs as the scheduler shows each of them, with its log and folders: those that began next to it, not all."""
    at = job.started or job.ended
    apart = [
        (abs(entry.started - at), entry.id) for entry in jobs if entry.started is not None and at is not None and entry.id != job.id
    ]
    listing = []
    for _, number in sorted(apart)[:MOST_SHOWN_JOBS]:
        try:
            listing.append(engine.scheduler.job(number))
        except (ToolError, Unavailable):
            continue
    return listing


def wrote_log(job: Job) -> bool:
    """Tell whether a job's log is there, with the rights of its owner, written since it began."""
    log = job.log
    if log is None or job.started is None:
        return False
    written = _written_at(log, job.account)
    return written is not None and (not job.dated_logs or written >= int(job.started.timestamp()))


def _written_at(log: Path, account: str) -> float | None:
    """Return when a log was last written, with the rights of its owner; None where that cannot be read."""
    try:
        with reading_as(account):
            return within(LOOK_S, lambda: status_of(log).st_mtime, f"{log}")
    except (OSError, NightshiftError):
        return None


READ_REASONS = frozenset(
    "value_error dataset_loading_error model_loading_error os_error runtime_error assertion_error index_error type_error".split()
)
"""Reasons whose lines may name a file that could be opened and whose content was refused."""
MOST_ENTRIES = 2_000
MOST_PATHS = 4
FEWEST_SIBLINGS = 2
ALIKE_SHARE = 0.95
"""Share of a size: siblings that differ less are alike, and what is below that of all of them is short."""
_LAST_READ = re.compile(r"The last file that the log says it read is (\S+) \(")


class CutFile(NamedTuple):
    """A file that is shorter than its siblings, which are alike."""

    path: Path
    size_bytes: int
    siblings: tuple[Path, ...]
    sibling_bytes: int
    """Of the smallest of them."""

    @property
    def sentence(self) -> str:
        """For people: what was seen and what to do."""
        same = all(sibling.name == self.path.name for sibling in self.siblings)
        names = [sibling.parent.name if same else sibling.name for sibling in self.siblings]
        list_text = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        siblings = f"that of {list_text}" if same else list_text
        return (
            f"{self.path} has {self.size_bytes:,} bytes, and {siblings} at least {self.sibling_bytes:,}: it looks cut short, as by "
            "a copy that broke off. Compare it with its source, and copy it again."
        )


def with_cut_file(diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis of data that could not be read with the file that is cut short; as it is where none is seen to be.

    Reads with the rights that are in force: those of the job's owner.
    """
    if (
        job is None
        or job.work_dir is None
        or diagnosis.reason not in READ_REASONS
        or diagnosis.action is not Action.FIX_AND_RESUBMIT
    ):
        return diagnosis
    paths = [*_LAST_READ.findall(diagnosis.summary), *(path for cited in diagnosis.root_cause for path in PATH.findall(cited.text))]
    for text in list(dict.fromkeys(paths))[:MOST_PATHS]:
        cut = cut_file(job.work_dir / text)
        if cut is not None:
            return replace(diagnosis, summary=f"{diagnosis.summary} {cut.sentence}", advice=f"{cut.sentence} {diagnosis.advice}")
    return diagnosis


def cut_file(path: Path) -> CutFile | None:
    """Return the file that is cut short of those that a path means: itself, or what begins with it (`train.en` for `.en.bin`)."""
    try:
        for file in (
            [path] if is_regular(path) else [entry for entry in _neighbours(path) if entry.name.startswith(f"{path.name}.")]
        ):
            size = status_of(file).st_size
            for siblings in (_in_folders_beside(file), _of_its_form(file)):
                sizes = {sibling: status_of(sibling).st_size for sibling in siblings}
                if len(sizes) >= FEWEST_SIBLINGS:
                    if _is_short(size, sizes):
                        return CutFile(file, size, tuple(sizes), min(sizes.values()))
                    break
    except (OSError, InputError):
        return None
    return None


def _is_short(size: int, sizes: Mapping[Path, int]) -> bool:
    smallest, largest = min(sizes.values()), max(sizes.values())
    return smallest >= ALIKE_SHARE * largest and size < ALIKE_SHARE * smallest


def _neighbours(path: Path) -> list[Path]:
    return [entry for entry in list_folder(path.parent, MOST_ENTRIES) if entry != path]


def _in_folders_beside(file: Path) -> list[Path]:
    """Return the files of the same name in folders whose names differ in numbers alone; none where its own is the last of them."""
    folder = file.parent
    folders = [entry for entry in _neighbours(folder) if name_form(entry.name) == name_form(folder.name)]
    if all(_order(sibling.name) < _order(folder.name) for sibling in folders):
        return []
    return [sibling / file.name for sibling in folders if is_folder(sibling) and is_regular(sibling / file.name)]


def _of_its_form(file: Path) -> list[Path]:
    """Return the files beside one whose names differ from its own in numbers alone; none where it is the last of them."""
    files = [entry for entry in _neighbours(file) if name_form(entry.name) == name_form(file.name) and is_regular(entry)]
    return [] if all(_order(sibling.name) < _order(file.name) for sibling in files) else files


def _order(name: str) -> list[int]:
    return [int(number[:18]) for number in _NUMBER.findall(name)]
