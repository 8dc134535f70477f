"""What a scheduler and a trainer show: jobs, nodes, reservations, checkpoints, metrics, processes; and the tags of changing calls.

A `ProcessReport` is stored while the job lives and attached to its `Job` (`Job.processes`), so that it is there after the job died.
Every path and name in it was chosen by the job's owner and is untrusted.

A tag is the mark `nightshift:<store>:<incident>:<call>` that a changing call leaves in a job's comment or a node's reason. This
module is the only reader of tags. Anybody who may write a comment may write a tag, so a tag is a claim that has to be checked
against the store and the scheduler (`assistant.recover.identity`), never a key of a row.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from assistant.records.words import JobState, NodeState

Record = TypeVar("Record")


def quick_init(record: type[Record]) -> type[Record]:
    """Give a frozen dataclass with slots an `__init__` with the same parameters that assigns its fields.

    A frozen dataclass sets each of its fields by a call of `object.__setattr__`, which takes five times as long as an assignment; a
    look makes hundreds of thousands of records. Here `__init__` lends the new object to a subclass that is not frozen, assigns, and
    takes it back. Nobody else has the object then.

    Raises:
        TypeError: It has a field that is made by a function, is no parameter or must be named, or something follows its `__init__`.
    """
    own = fields(record)  # type: ignore[arg-type]
    if hasattr(record, "__post_init__") or any(f.default_factory is not MISSING or not f.init or f.kw_only for f in own):
        raise TypeError(f"{record.__name__} has more to its __init__ than fields with values")
    open_record = type(
        f"_Open{record.__name__}",
        (record,),
        {"__slots__": (), "__setattr__": object.__setattr__, "__delattr__": object.__delattr__, "__module__": record.__module__},
    )
    names: dict[str, Any] = {"_set": object.__setattr__, "_open": open_record, "_record": record}
    names |= {f"_default_{f.name}": f.default for f in own}
    parameters = ", ".join(f.name if f.default is MISSING else f"{f.name}=_default_{f.name}" for f in own)
    assignments = "".join(f"    self.{f.name} = {f.name}\n" for f in own)
    source = f"def __init__(self, {parameters}):\n    _set(self, '__class__', _open)\n{assignments}    self.__class__ = _record\n"
    exec(source, names)  # as `dataclass` does it: of the names of fields alone
    record.__init__ = wraps(record.__init__)(names["__init__"])  # type: ignore[method-assign]
    return record


MOST_FILES = 256
"""Open files of a job that are kept, over all looks."""
MOST_FOLDERS = 64
"""Working folders and variables of a job that are kept, over all looks."""
_MOST_INTEGER = 2**64
"""Inodes of parallel file systems take all 64 bits."""


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A regular file that a process of a job had open for writing."""

    path: Path
    """Absolute, as the node itself sees it (outside of a container)."""
    node: str
    pid: int
    at: datetime
    """When it was seen open for the last time."""
    inode: int
    size_bytes: int
    offset_bytes: int
    """Where the process writes next; with `appends` the end of the file counts."""
    appends: bool
    """Whether it was opened with O_APPEND: what stood in it before may still stand there."""
    write_only: bool = False
    created: datetime | None = None
    """Birth time of the file; None where the file system does not keep one."""
    shared: bool = False
    """Whether another job was seen to have it open as well: its lines are of both."""

    @property
    def source(self) -> str:
        """Say where the path comes from, for people."""
        return f"open file of process {self.pid} on {self.node} at {self.at:%H:%M}"


@dataclass(frozen=True, slots=True)
class ProcessFolder:
    """A folder that a process of a job works in, or that a variable of its environment names."""

    path: Path
    """Absolute, as the node itself sees it (outside of a container)."""
    node: str
    pid: int
    at: datetime
    variable: str = ""
    """Name of the variable; empty for the working folder."""
    inode: int = 0
    """Of the working folder; 0 where it is not known."""

    @property
    def source(self) -> str:
        """Say where the path comes from, for people."""
        location = f"{self.variable} in the environment" if self.variable else "working folder"
        return f"{location} of process {self.pid} on {self.node} at {self.at:%H:%M}"


NONE_THERE = "no process of the job was found"
"""Why nothing can be said of a node that was looked at with the right to see every process of the job."""


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """Files and folders that the processes of one attempt of a job were seen to use, over all looks."""

    at: datetime
    """Time of the last look."""
    looks: int = 1
    """How many looks were taken."""
    files: tuple[OpenFile, ...] = ()
    folders: tuple[ProcessFolder, ...] = ()
    unknown: Mapping[str, str] | None = None
    """Why nodes showed nothing at the last look, by node."""

    def merged(self, later: ProcessReport) -> ProcessReport:
        """Return this report with those of a later look: what is seen again replaces what was seen before."""
        files = {(file.node, file.path, file.inode): file for file in self.files}
        for file in later.files:
            before = files.get(key := (file.node, file.path, file.inode))
            files[key] = replace(file, shared=file.shared or (before is not None and before.shared))
        folders: dict[tuple[Path, str], ProcessFolder] = {}
        for folder in (*self.folders, *later.folders):
            folders.setdefault((folder.path, folder.variable), folder)
        return replace(
            later,
            looks=self.looks + later.looks,
            files=tuple(files.values())[-MOST_FILES:],
            folders=tuple(folders.values())[-MOST_FOLDERS:],
        )


def with_shared(report: ProcessReport, other_report: ProcessReport) -> ProcessReport:
    """Return a report in which the files are marked that the processes of another job had open as well."""
    other_files = {(file.path, file.inode) for file in other_report.files}
    files = tuple(replace(file, shared=True) if (file.path, file.inode) in other_files else file for file in report.files)
    return report if files == report.files else replace(report, files=files)


def report_of(value: Mapping[str, Any]) -> ProcessReport:
    """Return the report of a JSON object, as `tooling.to_json` writes it.

    Raises:
        ValueError: It is no report.
    """
    try:
        files = [_built(OpenFile, file) for file in _list(value["files"])]
        folders = [_built(ProcessFolder, folder) for folder in _list(value["folders"])]
        unknown = {str(node): str(why) for node, why in (value.get("unknown") or {}).items()}
        at, looks = datetime.fromisoformat(value["at"]), _integer(value["looks"])
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no report of processes: {error!r}") from error
    return ProcessReport(at, looks, tuple(files[:MOST_FILES]), tuple(folders[:MOST_FOLDERS]), unknown)


def _built(kind: type[Any], value: Mapping[str, Any]) -> Any:
    """Return a record of a JSON object, each field read as its annotation says."""
    readers: dict[str, Callable[[Any], Any]] = {
        "Path": _path,
        "datetime": datetime.fromisoformat,
        "datetime | None": _time,
        "int": _integer,
        "bool": bool,
        "str": str,
    }
    values = {field.name: readers[str(field.type)](value[field.name]) for field in fields(kind) if field.name in value}
    return kind(**values)


def _list(value: Any) -> Sequence[Any]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TypeError(f"a list was wanted, found {type(value).__name__}")
    return value


def _path(value: str) -> Path:
    if not value.startswith("/") or "\x00" in value:
        raise ValueError(f"no absolute path: {value[:200]!r}")
    return Path(value)


def _time(value: str | None) -> datetime | None:
    return None if value is None else datetime.fromisoformat(value)


def _integer(value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST_INTEGER:
        raise ValueError(f"no number of a file or process: {value!r}")
    return value


HELD_REASON = "JobHeld"
"""What Slurm's reasons for a held job begin with: `JobHeldUser`, `JobHeldAdmin`."""
REQUEUED_HELD = "job requeued in held state"
"""Slurm's reason for a job behind `scontrol requeuehold`; squeue writes it with underscores."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """All that is needed to submit a job, again and again."""

    name: str
    script: str
    """Text of the batch script; `#NIGHTSHIFT` lines in it speak to us."""
    nodes: int = 1
    ranks_per_node: int = 1
    work_dir: Path = Path()
    log: str | None = None
    """Path, may hold Slurm's `%j`; None lets the scheduler choose."""
    partition: str = ""
    user: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    comment: str = ""
    """Carries `nightshift:<store>:<incident>:<call>` on jobs that we submitted."""
    time_limit_s: int | None = None
    options: tuple[str, ...] = ()
    """More options of the scheduler's own submit command, as words; kept from the first submission."""
    arguments: tuple[str, ...] = ()
    """Arguments of the script."""
    hold: bool = False
    """Whether it waits, once submitted, until it is released: nothing of it runs before."""
    doubt: str = ""
    """Why a new submission would not be the same job, for people: the scheduler kept too little. Empty where it would be."""
    environment_lost: bool = False
    """Whether it was given variables of the shell that submitted it, of which the scheduler keeps none."""


OUTPUT_FAILED = 53
"""Signal that Slurm shows for a batch script whose output, input or error file it could not open."""
LAUNCH_FAILURE = "JobLaunchFailure"
"""Reason that Slurm gives such a job."""


@dataclass(frozen=True, slots=True)
class JobStep:
    """One `srun` of a job, as the accounting keeps it."""

    id: str
    """`12.0`, `12_3.1`, `12+1.0`; the batch script itself is none."""
    state: JobState
    exit_code: int | None
    signal: int | None
    command: str
    """The line that started it, its words joined by blanks; empty where the accounting does not keep it."""


@quick_init
@dataclass(frozen=True, slots=True)
class Job:
    """A job as the scheduler shows it."""

    id: str
    name: str
    user: str
    state: JobState
    partition: str
    nodes: tuple[str, ...]
    log: Path | None
    work_dir: Path | None
    submitted: datetime | None
    started: datetime | None
    ended: datetime | None
    exit_code: int | None
    signal: int | None
    attempt: int = 0
    comment: str = ""
    reason: str = ""
    """The scheduler's own words on why it is in this state."""
    spec: JobSpec | None = None
    step_exit_code: int | None = None
    """The highest of its steps; None where the scheduler does not tell. A script may go on behind a step that failed."""
    steps: tuple[JobStep, ...] = ()
    """Of an attempt that ended badly, in the order in which they began; empty where nobody keeps them."""
    account: str = ""
    """The account of this machine with whose rights its files are read; empty where its processes run with our own."""
    expected_start: datetime | None = None
    """When the scheduler expects a pending job to begin; None where it does not say."""
    raw_id: str = ""
    """The scheduler's id that each task of an array has for itself, as in `%j` and SLURM_JOB_ID; empty: the same as `id`."""
    error_log: Path | None = None
    """Standard error where it is not in `log`."""
    discards: tuple[str, ...] = ()
    """Streams that the scheduler writes to /dev/null: `standard output`, `standard error`."""
    appends: bool = False
    """Whether `log` and `error_log` keep what stood there before the attempt; Slurm cuts it off unless it is told to append."""
    site_logs: tuple[str, ...] = ()
    """Patterns of logs that the site's settings name for every job."""
    dependency: str = ""
    """Of a pending job, as the scheduler shows it: `afternotok:12(unfulfilled)`; empty where nothing of it is unfulfilled."""
    interactive: bool = False
    """Whether it is an allocation of salloc or srun, without a batch script: it cannot be submitted again."""
    dated_logs: bool = False
    """Whether times of files can be compared with `started` and `ended`: not where time is simulated or a job is replayed."""
    processes: ProcessReport | None = None
    """What its processes were seen to write in this attempt, as the store keeps it; None where no look was taken."""
    never_requeued: bool = False
    """Whether the scheduler never queues it again by itself: `--no-requeue`, or preempted for good; False where it does not say."""
    ended_by: str = ""
    """Who cancelled it, as the scheduler names them: an account, or `uid 2001`; empty where it does not say."""
    submit_host: str = ""
    """The machine on which it was submitted, as the scheduler names it; empty where it does not say."""
    submit_line: str = ""
    """The words of its submission joined by blanks, as typed but without quotes; empty where nobody keeps them."""
    hidden_failure: str = ""
    """What its log proves of a training that failed although the scheduler calls it completed; empty where nothing is known."""

    @property
    def ended_badly(self) -> bool:
        """Whether the scheduler or its log calls it failed in any way, or it ended by itself with a code that is not zero."""
        if self.state in (JobState.FAILED, JobState.NODE_FAIL, JobState.OUT_OF_MEMORY, JobState.TIMEOUT):
            return True
        return self.state is JobState.COMPLETED and bool(self.exit_code or self.signal or self.hidden_failure)

    @property
    def over(self) -> datetime | None:
        """When the last of it was over, as far as is known; None where it has not ended.

        That is `ended`, or the last look at processes that lived on after it: a scheduler that loses a node calls the job ended
        while its program may go on there.
        """
        if self.ended is None or self.processes is None:
            return self.ended
        return max(self.ended, self.processes.at)

    @property
    def held(self) -> bool:
        """Whether it waits until somebody releases it."""
        return self.state is JobState.PENDING and (self.reason.startswith(HELD_REASON) or self.requeued_held)

    @property
    def requeued_held(self) -> bool:
        """Whether it was queued again under its own id and waits until somebody releases it."""
        return self.state is JobState.PENDING and self.reason.replace("_", " ") == REQUEUED_HELD


def partition_names(text: str) -> tuple[str, ...]:
    """Return the names in a partition field of a node or a waiting job, which may be a list: `train,eval`."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the scheduler shows it."""

    name: str
    state: NodeState
    partition: str = ""
    reason: str = ""
    jobs: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    """The site's own words for what it has: `a100`, `rack7`."""
    window: bool = False
    """Whether it is out only for the time of a reservation, such as maintenance: jobs may wait for it."""

    @property
    def partitions(self) -> tuple[str, ...]:
        """Names of the partitions that the node belongs to; Slurm writes several as `train,eval`."""
        return partition_names(self.partition)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that the scheduler keeps for some users."""

    name: str
    nodes: tuple[str, ...]
    users: tuple[str, ...]
    start: datetime | None
    end: datetime | None
    active: bool


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on disk and what its files tell about it."""

    path: Path
    step: int
    format: str
    size_bytes: int
    saved_at: datetime
    healthy: bool
    problems: tuple[str, ...]
    """Why it must not be loaded, or why nobody can say that it may; empty when healthy."""
    unread: str = ""
    """What of it no reader knows, so that it was not judged; where it is healthy, `grounds` stand for that."""
    grounds: tuple[str, ...] = ()
    """What speaks for one that was not judged."""
    undecided: bool = False
    """Whether it was not judged and nothing stands for it: it is neither whole nor refused, and a person decides."""


@quick_init
@dataclass(frozen=True, slots=True)
class MetricPoint:
    """Training metrics of one optimiser step; NaN and inf are kept."""

    step: int
    loss: float | None
    grad_norm: float | None
    line: int
    """1-based line it stands on."""
    at: datetime | None = None
    seconds: float | None = None
    """Time the step took."""
    batch: int | None = None
    """Samples of the step over all ranks."""
    counted: bool = False
    """Whether the step was only counted on from line to line: it is not to be compared with that of a checkpoint."""
    epoch: int | None = None
    """Number of the epoch, as the line says it; None where it does not."""
    data: str = ""
    """Name of the data or the stage that the line says it trains on, `code` of `"phase": "code"`; empty where it names none."""


MARK = "nightshift:"
"""What every tag begins with; alone, it marks a cordon that no call made."""
PATTERN = r"nightshift:(?:[a-z0-9]{8,16}:)?[0-9]{1,15}:[0-9]{1,15}"
"""A tag as a regular expression without groups; ASCII only, and its numbers fit SQLite's 64 bits."""
_TAG = re.compile(
    r"(?<!\S)nightshift:(?:(?P<store>[a-z0-9]{8,16}):)?(?P<incident>[0-9]{1,15}):(?P<call>[0-9]{1,15})(?!\S)", re.ASCII
)
_HOLD_MARK = "nightshift-hold:"
_SPACED_TAG = re.compile(rf"\s{{0,16}}+(?<!\S)(?:{PATTERN}|{_HOLD_MARK}[0-9]{{1,9}})(?!\S)", re.ASCII)


class Tag(NamedTuple):
    """The store, incident and call that a tag names; a claim, until it is checked."""

    store: str
    """Id of the store; empty in the form that Nightshift wrote before stores had ids."""
    incident: int
    """0 where the call was made for none."""
    call: int

    def __str__(self) -> str:
        return ":".join(["nightshift", *([self.store] if self.store else []), str(self.incident), str(self.call)])


def tag_of(store: str, incident: int | None, call: int) -> str:
    """Return the tag of a call.

    Args:
        store: Id of the store that holds the call.
        incident: The incident it is made for.
        call: Its number.
    """
    return str(Tag(store, incident or 0, call))


def tags_in(text: str) -> list[Tag]:
    """Return the tags that stand as words of their own in a text, in their order; anything less exact is no tag."""
    return [Tag(match["store"] or "", int(match["incident"]), int(match["call"])) for match in _TAG.finditer(text)]


def without_tags(text: str) -> str:
    """Return a text without its tags and hold marks; other words stay as they are."""
    return _SPACED_TAG.sub("", text).strip()


def hold_mark(attempt: int) -> str:
    """Return the word that stands in the comment of a job which a call has queued again held, for the attempt that is held."""
    return f"{_HOLD_MARK}{attempt}"


def hold_comment(comment: str, tag: str, attempt: int) -> str:
    """Return the comment of a job that a call has queued again held: the user's words, the call's tag and the mark.

    Args:
        comment: As it is now; older tags and marks are dropped.
        tag: Of the call.
        attempt: The one that waits.
    """
    return f"{without_tags(comment)} {tag} {hold_mark(attempt)}".strip()


def run_of(job: Job) -> str:
    """Return the key of a job's run: the same for jobs of the same user, name and work folder, as the scheduler shows them.

    Letters only, so that no rule of redaction takes it for a secret.
    """
    text = "\0".join([job.user, job.name, str(job.work_dir or "")])
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]
    return "run-" + digest.translate(str.maketrans("0123456789", "ghijklmnop"))
