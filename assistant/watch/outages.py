"""Find one cause behind failures of several jobs: a service, a path, a node, or the same error, whatever their categories.

Pure. A cause is read off the lines that prove each failure, and only off words that say what could not be reached: a frame of a
traceback, a path of a Python library, a page of a manual and `exit code 1` are no causes. Jobs of one task alone count as one
cause only where they failed within a minute: each of them may have its own fault. An error of jobs of one owner is one cause where
the whole line is the same, whatever it says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.records import Event, EventKind

WINDOW = timedelta(minutes=15)
"""From one failure to the next of the same service, path or node: clients retry for minutes before they give up."""
AT_ONCE = timedelta(minutes=1)
"""The same for jobs of one task, and for an error that names nothing which could be asked."""
SETTLING = "settling"
"""Stage of an incident that waits a moment for others of the same cause; people are told of it when it is decided."""
FEWEST_JOBS = 3
FEWEST_ON_A_NODE = 2
MOST_CHARACTERS = 2_000
"""Of one line: what a user writes is read in bounded time."""
MOST_PARTS = 400
"""Lines of a traceback in one line of JSON."""
_TRACEBACK_AS_JSON = re.compile(r'\\n\s*File \\"')
FEWEST_TASKS = 2
FEWEST_PARTS = 3
"""Of a folder by which a file system is asked for: `/` and the folders in it may hold others."""
FIRST_PROBE_S = 15.0
PROBE_SHARE = 0.05
"""Of the time waited so far: the longer it lasts the rarer it is asked."""
RAREST_PROBE_S = 300.0

_REACHED = re.compile(
    r"connect|resolv|refused|timed? ?out|retries|unreachable|unavailable|endpoint|reset by peer|no route|HTTP ?Error|\b50[0-4]\b"
    r"|name (?:or service not known|resolution)|(?:Get|Put|Head|List|Upload)\w*Objects?\b|Errno 11[013]",
    re.IGNORECASE,
)
_HTTP_STATUS = re.compile(r"\b(?:429|50[0-4])\b|HTTP ?Error", re.IGNORECASE)
_MANUAL = re.compile(
    r"\b(?:see|visit|docs?|documentation|refer to|more info(?:rmation)?|report (?:it|this)|help)\b[^'\"]{0,40}https?://", re.I
)
_URL = re.compile(r"\b(?:https?|s3|gs|tcp|nfs|ssh|redis|grpc)://([^\s/'\":,)\]@]{1,255}(?::\d{1,5})?)", re.IGNORECASE)
_NAME = r"[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}"
_HOST_WORD = re.compile(
    r"\bhost='([^'\s]{1,255})'(?:, port=(\d{1,5}))?"
    r"|\bserver at \"([\w.-]{1,255})\"(?: \([^)]{1,64}\))?,? port (\d{1,5})"
    rf"|(?:connect(?:ion)? to|resolve host|reach)[: ]+(?:(?:remote )?host |server )?['\"\[]?({_NAME})"
    r"(?::(\d{1,5})|['\"]? port (\d{1,5}))?"
    rf"|(?:name resolution|name or service not known)[^'\"]{{0,20}}['\"]({_NAME})['\"]"
    rf"|\bmysql server on ['\"]({_NAME})(?::(\d{{1,5}}))?",
    re.IGNORECASE,
)
_LICENCE_SERVER = re.compile(r"\b(\d{2,5})@([\w-]{1,63}(?:\.[\w-]{1,63}){0,8})")
"""As FlexLM names one; an address of mail has no number before its sign."""
_PORTS = {"https": "443", "http": "80", "redis": "6379", "nfs": "2049", "ssh": "22", "s3": "443", "gs": "443"}
"""The port of a URL that names none."""
_ADDRESS = re.compile(r"(?<![\d.])(\d{1,3}(?:\.\d{1,3}){3}:\d{1,5})\b")
_S3_CODE = re.compile(r"\((SlowDown|ServiceUnavailable|InternalError|RequestTimeout|503)\)")
_OWN_HOST = re.compile(r"^(?:localhost|127\.|0\.0\.0\.0|\[?::1)")
OBJECT_STORAGE = "object storage"

_PATH_FAILED = re.compile(
    r"no such file or directory|does not exist|input/output error|stale (?:nfs )?file handle|not connected|permission denied"
    r"|cannot (?:open|access|create|stat|read|find)|can't open|could not open|failed to open|unable to open|no space left"
    r"|read-only file system|remote i/o error|host is down|shutdown|quota exceeded|connection timed out|not a directory"
    r"|\berrno \d+|not found",
    re.IGNORECASE,
)
NOT_THERE = re.compile(r"no such file or directory|does not exist|\bnot found\b|Errno 2\b", re.IGNORECASE)
_STORAGE_FAILED = re.compile(
    r"input/output error|stale (?:nfs )?file handle|not connected|remote i/o|host is down|shutdown|read-only file system"
    r"|no space left|Errno (?:5|28|30|107|108|112|116|121)\b",
    re.IGNORECASE,
)
PATH = re.compile(r"(?<![\w.:/$}-])(/[\w.@%+=,~-]{1,255}(?:/[\w.@%+=,~-]{1,255}){1,40})")
_FROM_TO = re.compile(r"(['\"])/[^'\"\n]{1,1000}\1\s{0,4}->\s{0,4}(?=['\"])")
"""What was copied or moved, in front of where to, as Python tells both of `OSError`."""
_NOT_WRITTEN = re.compile(r"no space left|read-only file system|quota exceeded|Errno (?:28|30|122)\b", re.IGNORECASE)
_TEMPORARY = frozenset(map(PurePosixPath, ("/tmp", "/var/tmp", "/dev/shm")))
"""Folders whose files nobody brings back once their program has ended."""
_NUMBER = re.compile(r"\d+")
FRAME = re.compile(r'^\W*(?:\[?\w+\]?:)?\s*File "[^"]*", line \d+')
_NO_CAUSE = re.compile(
    r"^/(?:proc|sys|dev|run|etc|boot|usr/(?:lib|lib64|bin|sbin|include|share)|lib|lib64|bin|sbin|var/(?:spool|run|log))(?:/|$)"
    r"|/(?:site|dist)-packages(?:/|$)|/lib(?:64)?/python\d|/__pycache__/"
)
_HOME = re.compile(r"^/(?:home|users|u)/[^/]+$", re.IGNORECASE)
"""What a user's own jobs have in common and nobody else's."""
_HOLD_MOUNTS = frozenset({"mnt", "media", "nfs", "net", "vol", "volumes", "srv", "tmp", "opt", "var", "usr", "root"})
"""Folders at the top that hold mounts, or the machine's own files, and are none themselves."""

ENDED_BY_ITSELF = frozenset({"preempted", "cancelled", "time_limit", "no_failure", "hang", "slow_job", "loss_spike"})
"""Reasons that no shared cause stands behind, or that another rule looks after."""
OWN_CODE = frozenset(
    {
        "type_error", "name_error", "attribute_error", "key_error", "index_error", "syntax_error", "value_error",
        "assertion_error", "zero_division_error", "argument_error", "out_of_memory_error", "dataloader_killed", "killed", "unknown",
        "called_process_error", "nccl_timeout_error", "nccl_remote_error",
    }
)  # fmt: skip
"""Reasons whose wording is the same in unrelated jobs: only in jobs of one owner is an equal line a sign of an equal cause."""


OF_ONE_OWNER = " (jobs of"
"""Stands in the name of an error that is one cause in jobs of one owner only."""


class CauseKind(StrEnum):
    """What several jobs lost."""

    SERVICE = "service"
    PATH = "path"
    NODE = "node"
    ERROR = "error"


@dataclass(frozen=True, slots=True, order=True)
class SharedCause:
    """What several jobs may have failed of."""

    kind: CauseKind
    name: str
    """`minio.local:9000`, `/lustre/pile`, `node07`, or a line without what differs from run to run."""

    @property
    def title(self) -> str:
        """The name as incidents keep it: a service as it is, a path by its slash, others behind their kind."""
        return self.name if self.kind in (CauseKind.SERVICE, CauseKind.PATH) else f"{self.kind} {self.name}"

    @classmethod
    def of_title(cls, title: str) -> SharedCause:
        """Return the cause that a title stands for."""
        if title.startswith("/"):
            return cls(CauseKind.PATH, title)
        kind, _, name = title.partition(" ")
        if kind in (CauseKind.NODE, CauseKind.ERROR) and name:
            return cls(CauseKind(kind), name)
        return cls(CauseKind.SERVICE, title)


@dataclass(frozen=True, slots=True)
class JobFailure:
    """One job that failed, as far as a shared cause is concerned."""

    incident: int
    job: str
    task: str
    """User and name without run numbers: runs of one task fail together for reasons of their own."""
    at: datetime
    reason: str
    texts: tuple[str, ...]
    """Lines that prove it."""
    user: str = ""
    nodes: tuple[str, ...] = ()
    """Nodes that its diagnosis blames."""
    error: str = ""
    """Its first line without what differs from run to run; empty where that says too little to know a failure by."""
    gone: tuple[str, ...] = ()
    """Of each path that its lines name and that is missing now: the highest folder that is missing."""
    wording: str = ""
    """Its first line, word by word: enough to know failures of one owner at one time by."""
    emptied: tuple[str, ...] = ()
    """Folders that stand, in which something of `gone` is missing, and that hold nothing now: mount points without their mount."""
    on_node: bool = False
    """Whether other nodes were seen to have what it lost: then its nodes are the cause, and neither path nor words of it."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A cause that several jobs failed of."""

    cause: SharedCause
    since: datetime
    until: datetime
    """The last failure of it."""
    members: tuple[JobFailure, ...]
    """In order of their incidents."""

    @property
    def service(self) -> str:
        """The name as the incident keeps it."""
        return self.cause.title


def service_of(reason: str, texts: Sequence[str]) -> str:
    """Return the name of the service that lines say could not be reached; empty where they name none."""
    if reason in ENDED_BY_ITSELF:
        return ""
    for line in texts:
        text = line[:MOST_CHARACTERS]
        if FRAME.match(text) or not _REACHED.search(text) or _MANUAL.search(text):
            continue
        for pattern in (_URL, _HOST_WORD, _LICENCE_SERVER, _ADDRESS):
            if match := pattern.search(text):
                words = [word.lower() for word in match.groups() if word]
                if pattern is _LICENCE_SERVER:
                    words.reverse()
                if not _OWN_HOST.match(words[0]):
                    return ":".join(words[:2])
    return (
        OBJECT_STORAGE
        if reason == "s3_storage_error" and _S3_CODE.search("\n".join(line[:MOST_CHARACTERS] for line in texts))
        else ""
    )


def port_of(texts: Sequence[str], host: str) -> str:
    """Return the port of a host that lines name by a URL without one; empty where nothing tells it."""
    for text in (line[:MOST_CHARACTERS] for line in texts):
        for scheme in re.findall(rf"\b([a-z0-9]{{2,8}})://{re.escape(host)}(?![\w.:-])", text.lower()):
            if scheme in _PORTS:
                return _PORTS[scheme]
    return ""


class AwaitedService(NamedTuple):
    """What a restart of one job would meet again while it is away."""

    cause: str = ""
    """A path, or `HOST:PORT`, or `HOST` where nothing tells the port; empty where the lines name nothing."""
    paths: tuple[str, ...] = ()
    """Of a path: those that the lines name at or below it."""
    answered: bool = False
    """Whether lines show an answer of the service, such as HTTP 503."""


def awaited_by(reason: str, texts: Sequence[str]) -> AwaitedService:
    """Return what lines that prove the failure of one job say was away: a service, or a file system by a path in it."""
    service = service_of(reason, texts)
    if service and service != OBJECT_STORAGE:
        answered = any(_HTTP_STATUS.search(text[:MOST_CHARACTERS]) for text in texts)
        return AwaitedService(
            service if ":" in service else ":".join(filter(None, (service, port_of(texts, service)))), answered=answered
        )
    for text in texts:
        if (paths := paths_of(reason, (text,))) and _STORAGE_FAILED.search(text[:MOST_CHARACTERS]):
            folder = PurePosixPath(paths[0]).parent
            own = len(folder.parts) < FEWEST_PARTS and folder not in _TEMPORARY
            return AwaitedService(paths[0] if own else str(folder), paths[:1])
    return AwaitedService()


def probe_pause_s(waited_s: float) -> float:
    """Return how many seconds to leave between two questions whether something is back: the longer it lasts the rarer."""
    return min(max(FIRST_PROBE_S, waited_s * PROBE_SHARE), RAREST_PROBE_S)


def unescaped_lines(texts: Iterable[str]) -> list[str]:
    """Return lines, each cut to `MOST_CHARACTERS`; of a traceback that one line of JSON holds, each of its own lines."""
    lines: list[str] = []
    for text in texts:
        parts = text.split("\\n")[:MOST_PARTS] if _TRACEBACK_AS_JSON.search(text) else [text]
        lines += [(part.replace('\\"', '"') if len(parts) > 1 else part)[:MOST_CHARACTERS] for part in parts]
    return lines


def paths_of(reason: str, texts: Sequence[str]) -> tuple[str, ...]:
    """Return the paths that lines say could not be used, each once; library paths and those of the machine itself left out.

    Of a file that could not be copied or moved for want of space, or onto a file system that is read-only, only where to counts.
    """
    if reason in ENDED_BY_ITSELF:
        return ()
    matches = [
        match.rstrip(".,")
        for text in unescaped_lines(texts)
        if _PATH_FAILED.search(text) and not FRAME.match(text)
        for match in PATH.findall(_FROM_TO.sub("", text) if _NOT_WRITTEN.search(text) else text)
    ]
    return tuple(dict.fromkeys(path for path in matches if not _NO_CAUSE.search(path)))[:8]


def is_of_system(path: str) -> bool:
    """Tell whether a path is the machine's own or an installed package's, and none of a job's data."""
    return _NO_CAUSE.search(path) is not None


def causes_of(failure: JobFailure) -> tuple[SharedCause, ...]:
    """Return what a job may have failed of, the most telling first: service, paths, the longest first, node, error."""
    if failure.reason in ENDED_BY_ITSELF:
        return ()
    if failure.on_node:
        return tuple(SharedCause(CauseKind.NODE, node) for node in failure.nodes)
    causes: list[SharedCause] = []
    if service := service_of(failure.reason, failure.texts):
        causes.append(SharedCause(CauseKind.SERVICE, service))
    for path in sorted(_places(failure), key=lambda path: (-path.count("/"), path)):
        causes.append(SharedCause(CauseKind.PATH, path))
    causes += [SharedCause(CauseKind.NODE, node) for node in failure.nodes]
    if failure.error and failure.reason not in OWN_CODE:
        causes.append(SharedCause(CauseKind.ERROR, failure.error))
    if failure.wording and failure.user:
        causes.append(SharedCause(CauseKind.ERROR, f"{failure.wording}{OF_ONE_OWNER} {failure.user})"))
    return tuple(dict.fromkeys(causes))


def _places(failure: JobFailure) -> set[str]:
    places: set[str] = set()
    for text in failure.texts:
        for path in paths_of(failure.reason, (text,)):
            pure_path = PurePosixPath(path)
            missing = next((top for top in failure.gone if path == top or path.startswith(f"{top}/")), "")
            if missing:
                places.add(missing)
                places.update({_folder_of(missing)} & {*failure.emptied})
                continue
            places.add(path)
            folders = [str(parent) for parent in pure_path.parents if len(parent.parts) > 2]
            places.update(folder for folder in folders[:1] if not _HOME.match(folder))
            if _STORAGE_FAILED.search(text):
                # the file system itself, near its mount
                places.update(folders[-1:])
                places.update([f"/{pure_path.parts[1]}"] if pure_path.parts[1] not in _HOLD_MOUNTS else [])
    return {place for place in places if not _NO_CAUSE.search(place)}


def _folder_of(missing: str) -> str:
    """Return the folder in which something is missing; empty where unrelated things lie side by side."""
    parent = PurePosixPath(missing).parent
    is_shared_folder = (
        len(parent.parts) < 2 or (len(parent.parts) == 2 and parent.parts[1] in _HOLD_MOUNTS) or bool(_HOME.match(str(parent)))
    )
    return "" if is_shared_folder else str(parent)


def _with_lost_series(failures: Sequence[JobFailure]) -> list[JobFailure]:
    """Return failures that count a folder as emptied of which jobs of several owners miss files whose names differ in numbers only.

    Jobs of one owner may all have been given wrong names.
    """
    series: dict[tuple[str, str], dict[str, str]] = {}
    of_failure: list[set[tuple[str, str]]] = []
    for failure in failures:
        own = {
            (folder, _NUMBER.sub("#", PurePosixPath(missing).name)) for missing in failure.gone if (folder := _folder_of(missing))
        }
        of_failure.append({(folder, form) for folder, form in own if "#" in form})
        for key in of_failure[-1]:
            series.setdefault(key, {})[failure.job] = failure.user
    lost_series = {key for key, jobs in series.items() if len(jobs) >= FEWEST_JOBS and len({*jobs.values()}) >= FEWEST_TASKS}
    return [
        replace(failure, emptied=tuple({*failure.emptied, *(folder for folder, _ in own & lost_series)}))
        for failure, own in zip(failures, of_failure, strict=True)
    ]


def files_missed(failures: Iterable[JobFailure]) -> list[str]:
    """Return the files that jobs missed and must have back: those they did not find though the folders above stand.

    Of a file below a folder that is gone nothing can be told: a job may have wanted to make it.
    """
    missed: list[str] = []
    for failure in failures:
        for text in failure.texts:
            paths = paths_of(failure.reason, (text,)) if NOT_THERE.search(text) else ()
            missed += [path for path in paths if not any(path.startswith(f"{top}/") for top in failure.gone)]
    return list(dict.fromkeys(missed))


def joins(cause: SharedCause, failure: JobFailure) -> bool:
    """Tell whether a later failure is of a cause that stands: it names the same, or a path below it."""
    if cause.kind is not CauseKind.PATH or failure.on_node:
        return cause in causes_of(failure)
    own = (*paths_of(failure.reason, failure.texts), *failure.gone)
    return any(path == cause.name or path.startswith(f"{cause.name}/") for path in own)


def outages(failures: Sequence[JobFailure]) -> list[Outage]:
    """Return the shared causes of failures, the oldest first; what shares none is left out, and a failure belongs to one at most.

    Args:
        failures: Of any time and order; a job counts once for a cause.
    """
    remaining = sorted(_with_lost_series(failures), key=lambda failure: (failure.at, failure.incident))
    shared: list[Outage] = []
    while True:
        groups = [group for cause, those in _by_cause(remaining).items() for group in _groups(cause, those)]
        if not groups:
            return sorted(shared, key=lambda outage: (outage.since, outage.service))
        best = max(
            groups, key=lambda group: (len(group.members), -_RANK[group.cause.kind], len(group.cause.name), group.cause.name)
        )
        shared.append(best)
        jobs = {member.job for member in best.members}
        remaining = [failure for failure in remaining if failure.job not in jobs]


_RANK = {CauseKind.SERVICE: 0, CauseKind.PATH: 1, CauseKind.NODE: 2, CauseKind.ERROR: 3}
"""Of causes that explain as many jobs the one is named that can be asked."""


def _by_cause(failures: Iterable[JobFailure]) -> dict[SharedCause, list[JobFailure]]:
    by_cause: dict[SharedCause, list[JobFailure]] = {}
    for failure in failures:
        for cause in causes_of(failure):
            by_cause.setdefault(cause, []).append(failure)
    return by_cause


def _groups(cause: SharedCause, failures: Sequence[JobFailure]) -> list[Outage]:
    """Return the outages of one cause: runs of failures without a long gap between two of them."""
    groups: list[Outage] = []
    tasks = {failure.task for failure in failures}
    window = WINDOW if len(tasks) >= FEWEST_TASKS and cause.kind is not CauseKind.ERROR else AT_ONCE
    run: list[JobFailure] = []
    ends: list[JobFailure | None] = [*failures, None]
    for failure in ends:
        if failure is not None and (not run or failure.at - run[-1].at <= window):
            run.append(failure)
            continue
        groups += _outage(cause, run)
        run = [failure] if failure is not None else []
    return groups


def _outage(cause: SharedCause, run: Sequence[JobFailure]) -> list[Outage]:
    members = {failure.job: failure for failure in reversed(run)}
    fewest = FEWEST_ON_A_NODE if cause.kind is CauseKind.NODE else FEWEST_JOBS
    owners = {failure.user or failure.task for failure in run}
    if len(members) < fewest or (cause.kind is CauseKind.ERROR and len(owners) < FEWEST_TASKS and OF_ONE_OWNER not in cause.name):
        return []
    if len({failure.task for failure in run}) < FEWEST_TASKS and run[-1].at - run[0].at > len(members) * AT_ONCE:
        return []
    return [Outage(cause, run[0].at, run[-1].at, tuple(sorted(members.values(), key=lambda failure: failure.incident)))]


def shared_by(events: Sequence[Event]) -> int | None:
    """Return the incident of the shared cause that an incident belongs to, by its events; None for one of its own."""
    return next((int(event.detail["incident"]) for event in events if _attaches(event)), None)


def _attaches(event: Event) -> bool:
    return event.kind is EventKind.OUTAGE and event.job is not None and "incident" in event.detail


def members_of(events: Sequence[Event]) -> list[int]:
    """Return the incidents that belong to a shared cause, by its events, in the order in which they joined."""
    outage_events = [event for event in events if event.kind is EventKind.OUTAGE and event.job is None]
    return list(dict.fromkeys(int(number) for event in outage_events for number in event.detail.get("incidents", ())))
