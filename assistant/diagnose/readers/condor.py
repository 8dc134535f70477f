"""Read the user log of HTCondor (the job event log) and the log of its DAGMan: how the jobs in it stand at their last event.

One file holds the events of many jobs: those of one cluster, and those of earlier submissions. What counts are the jobs of the
newest cluster, and of the others what ended badly after it was submitted; of the tries of one node of a graph only the last.
Form and numbers of the events: HTCondor manual, "Job Event Log Codes"; codes of a hold: "Hold Reason Codes" of its job attributes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from assistant.diagnose.readers.end_records import (
    EndRecord,
    RecordState,
    reason_of_end,
    reason_of_errno,
    reason_of_words,
    whole_number,
)
from assistant.logs.lines import Line

_HEAD = re.compile(
    r"^(?P<event>\d{3}) \((?P<cluster>\d{1,12})\.(?P<proc>\d{1,9})\.\d{1,9}\) "
    r"\d{2,4}[-/]\d\d(?:[-/]\d\d)? \d\d:\d\d:\d\d\S* (?P<text>.*)"
)
_NORMAL = re.compile(r"Normal termination \(return value (-?\d{1,9})\)")
_ABNORMAL = re.compile(r"Abnormal termination \(signal (\d{1,3})\)")
_SLOT = re.compile(
    r"\bslot[\w-]{0,40}@(?P<slot>[\w.-]{1,255})|\balias=(?P<alias>[\w.-]{1,255})|\w{1,60}@(?P<other>[\w-]{1,80}\.[\w.-]{1,170})"
)
_USAGE = re.compile(r"^\s+(\d{1,12})  -  MemoryUsage of job \(MB\)")
_TABLE = re.compile(r"^\s+Memory \(MB\)\s+:\s+(?P<used>\d{1,12})\s+(?P<asked>\d{1,12})\b")
_SLOT_MEMORY = re.compile(r"^\s+Memory = (\d{1,12})\s*$")
_LIMIT = re.compile(r"\blimit (?:of|is)? ?(\d{1,12}) ?(megabytes|MB|MiB|GB)|\bRequestMemory\b")
_DURATION = re.compile(r"duration of (\d{1,5}\+\d\d:\d\d:\d\d|\d{1,9} s\w*)")
_GRAPH_NODE = re.compile(r"^\s+DAG Node: (\S{1,200})")
_BY_USER = re.compile(r"\bvia condor_(?:hold|rm) \(by user (\S{1,80})\)")
_HOLD_CODE = re.compile(r"^\s+Code (\d{1,4}) Subcode (-?\d{1,9})")
_REASON_OF_HOLD = {34: "out_of_memory_error", 46: "time_limit", 47: "time_limit", 1: "cancelled"}
_OF_FILES = re.compile(
    r"\btransfer|\bsend file|\breceive file|Failed to (?:execute|open)|Cannot access|initial working directory", re.IGNORECASE
)
FEWEST_STARTS = 3
"""Starts that end on one host before the job did anything, which are the host's doing and no chance."""
SHARE_OF_EVENTS = 0.8
"""Of the lines of a log, from which on it is a log of events and not the output of a job that shows some."""


@dataclass(slots=True)
class _Job:
    """One job of the log with what its events said so far."""

    name: str
    cluster: int
    graph_node: str = ""
    state: RecordState = RecordState.RUNNING
    reason: str = "no_failure"
    lines: tuple[Line, ...] = ()
    words: str = ""
    host: str = ""
    code: int | None = None
    number: int | None = None
    used_mb: int = 0
    asked_mb: int = 0
    limit: str = ""
    failed_hosts: list[str] = field(default_factory=list)
    by_user: bool = False


class _Event(NamedTuple):
    event: str
    head: Line
    body: tuple[Line, ...]
    match: re.Match[str]

    @property
    def text(self) -> str:
        """The words of the event with those of its body."""
        return " ".join(line.text.strip() for line in (self.head, *self.body))


def of_event_log(lines: Sequence[Line]) -> EndRecord | None:
    """Return how the jobs of a user log stand; None where the lines are no such log."""
    events = list(_events(lines))
    if not events:
        return None
    texts = frozenset(line.number for event in events for line in (event.head, *event.body))
    texts |= {line.number for line in lines if line.text.strip() == "..."}
    written = [line for line in lines if line.text.strip()]
    if sum(line.number in texts for line in written) < SHARE_OF_EVENTS * len(written):
        return None
    jobs: dict[tuple[int, str], _Job] = {}
    for event in events:
        key = (int(event.match["cluster"]), event.match["proc"])
        job = jobs.setdefault(key, _Job(f"{key[0]}.{int(key[1])}", key[0]))
        _apply(event, job)
    decisive = _decisive(list(jobs.values()), events)
    if decisive is None or not decisive.lines:
        return None
    return EndRecord(
        "condor", decisive.state, decisive.reason, decisive.lines, decisive.words, decisive.host,
        is_at_fault=decisive.reason == "node_failure" and _same_host(decisive), code=decisive.code, signal=decisive.number,
        limit=decisive.limit, used=f"{decisive.used_mb} MB" if decisive.used_mb else "", job=decisive.name,
        part=decisive.graph_node, texts=texts,
    )  # fmt: skip


def _events(lines: Sequence[Line]) -> Iterator[_Event]:
    head: Line | None = None
    match: re.Match[str] | None = None
    body: list[Line] = []
    for line in lines:
        start = _HEAD.match(line.text) if line.text[:3].isdigit() else None
        if start is not None or line.text.strip() == "...":
            if head is not None and match is not None:
                yield _Event(match["event"], head, tuple(body), match)
            head, match, body = (line, start, []) if start is not None else (None, None, [])
        elif head is not None and line.text.strip():
            body.append(line)
    if head is not None and match is not None:
        yield _Event(match["event"], head, tuple(body), match)


def _decisive(jobs: Sequence[_Job], events: Sequence[_Event]) -> _Job | None:
    """Return the job that tells how the whole stands: the last bad one, else one that runs, else the last."""
    submits = [event for event in events if event.event == "000"] or events[-1:]
    newest = int(submits[-1].match["cluster"])
    since = next(event.head.number for event in submits if int(event.match["cluster"]) == newest)
    last_of_node = {job.graph_node: job.cluster for job in sorted(jobs, key=lambda job: job.cluster) if job.graph_node}
    jobs = [job for job in jobs if job.lines and last_of_node.get(job.graph_node, job.cluster) == job.cluster]
    later = [job for job in jobs if job.lines[0].number > since and not job.by_user]
    current_jobs = [job for job in jobs if job.cluster == newest or job.graph_node or job in later]
    current_jobs = current_jobs or list(jobs)
    by_line = sorted(current_jobs, key=lambda job: job.lines[0].number)
    for states in ((RecordState.BAD, RecordState.ON_HOLD, RecordState.WAITING), (RecordState.RUNNING,), (RecordState.WELL,)):
        if matching := [job for job in by_line if job.state in states]:
            return matching[-1]
    return None


def _apply(event: _Event, job: _Job) -> None:
    """Let an event change what is known of its job."""
    _read_memory(event, job)
    body = next(iter(event.body), event.head)
    if event.event in ("000", "001", "011", "023"):
        job.graph_node = next((match[1] for line in event.body if (match := _GRAPH_NODE.match(line.text))), job.graph_node)
        job.host = _host(event) or job.host if event.event == "001" else job.host
        job.state, job.reason, job.words, job.lines = RecordState.RUNNING, "no_failure", "", (event.head,)
        job.code = job.number = None
    elif event.event in ("005", "016"):
        _end(event, job, body)
    elif event.event == "006":
        job.failed_hosts.clear()
        if job.state is RecordState.RUNNING:
            job.lines = (event.head,)
    elif event.event == "010":
        _set(job, RecordState.ON_HOLD, "preempted", event, body)
    elif event.event == "004":
        _set(job, RecordState.WAITING, "preempted", event, event.head)
    elif event.event in ("022", "024"):
        _lose_contact(event, job)
    elif event.event in ("002", "007", "021"):
        _fail_start(event, job, body)
    elif event.event == "012":
        _hold(event, job, body)
    elif event.event == "009":
        _remove(event, job, body)


def _read_memory(event: _Event, job: _Job) -> None:
    for line in event.body:
        if match := _USAGE.match(line.text):
            job.used_mb = max(job.used_mb, int(match[1]))
        elif match := _SLOT_MEMORY.match(line.text):
            job.asked_mb = int(match[1])
        elif match := _TABLE.match(line.text):
            job.used_mb, job.asked_mb = max(job.used_mb, int(match["used"])), int(match["asked"])


def _set(job: _Job, state: RecordState, reason: str, event: _Event, cited: Line, *, words: str = "") -> None:
    lines = (cited, event.head) if cited is not event.head else (event.head,)
    # the same said again and again is told by its first line, too
    same = [line for line in job.lines if job.reason == reason and line.number not in {entry.number for entry in lines}]
    job.state, job.reason, job.lines, job.words = state, reason, (*lines[:1], *same[:4], *lines[1:])[:6], words
    job.by_user = False


def _end(event: _Event, job: _Job, body: Line) -> None:
    normal, abnormal = _NORMAL.search(event.text), _ABNORMAL.search(event.text)
    cited = next((line for line in event.body if _NORMAL.search(line.text) or _ABNORMAL.search(line.text)), body)
    job.code = int(normal[1]) if normal is not None else None
    job.number = int(abnormal[1]) if abnormal is not None else None
    if normal is not None and job.code == 0:
        _set(job, RecordState.WELL, "no_failure", event, cited)
        return
    reason = reason_of_end(job.code, job.number)
    if reason == "killed" and job.asked_mb and job.used_mb >= job.asked_mb:
        reason, job.limit = "out_of_memory_error", f"{job.asked_mb} MB"
    _set(job, RecordState.BAD, reason, event, cited, words=cited.text.strip())


def _lose_contact(event: _Event, job: _Job) -> None:
    job.host = _host(event) or job.host
    is_lost = event.event == "024"
    cited = next((line for line in event.body if "reconnect to" in line.text), event.head)
    _set(job, RecordState.WAITING, "node_failure", event, cited, words=event.text.split(" ", 4)[-1])
    job.lines = (event.head, *(line for line in job.lines if line is not event.head)) if is_lost else job.lines


def _fail_start(event: _Event, job: _Job, body: Line) -> None:
    """Take up that a start failed: over files and programs by the job's doing, on one host again and again by that host's."""
    host = _host(event)
    job.host = host or job.host
    reason = reason_of_errno(event.text) or ("permission_error" if event.event == "002" else "")
    if host and not reason and not _OF_FILES.search(event.text):
        job.failed_hosts.append(host)
    if not reason:
        reason = "node_failure" if _same_host(job) else reason_of_words(event.text) or "unknown"
    _set(job, RecordState.BAD, reason, event, body, words=body.text.strip())


def _same_host(job: _Job) -> bool:
    return len(job.failed_hosts) >= FEWEST_STARTS and len(set(job.failed_hosts[-FEWEST_STARTS:])) == 1


def _hold(event: _Event, job: _Job, body: Line) -> None:
    code = next((int(match[1]) for line in event.body if (match := _HOLD_CODE.match(line.text))), 0)
    words = " ".join(line.text.strip() for line in event.body if not _HOLD_CODE.match(line.text)) or event.head.text
    reason = _stated(words, code) or "unknown"
    job.host = _host(event) or job.host
    if reason == "out_of_memory_error":
        match = _LIMIT.search(words)
        job.limit = f"{match[1]} {'GB' if match[2] == 'GB' else 'MB'}" if match is not None and match[1] else ""
        job.limit = job.limit or (f"{job.asked_mb} MB" if job.asked_mb else "")
    elif reason == "time_limit" and (match := _DURATION.search(words)) is not None:
        job.limit = match[1]
    _set(job, RecordState.ON_HOLD, reason, event, body, words=words)


def _stated(words: str, code: int) -> str:
    """Return the reason that the words and the code of a hold or a removal stand for; empty where they stand for none."""
    reason = _REASON_OF_HOLD.get(code) or ("cancelled" if _BY_USER.search(words) else "") or reason_of_errno(words)
    return reason or ("" if _OF_FILES.search(words) else reason_of_words(words))


def _remove(event: _Event, job: _Job, body: Line) -> None:
    """Take up that a job was removed: by a person, who may only clear away what was held, or by an expression of its policy."""
    by_user = _BY_USER.search(event.text) is not None
    if job.state is RecordState.ON_HOLD and job.reason != "cancelled":
        job.by_user = by_user
        return
    reason = ("" if by_user else reason_of_words(event.text)) or "cancelled"
    _set(job, RecordState.BAD, reason, event, body, words=body.text.strip())
    job.by_user = by_user


def _host(event: _Event) -> str:
    match = next((match for line in (*event.body, event.head) if (match := _SLOT.search(line.text)) is not None), None)
    return (match["slot"] or match["alias"] or match["other"] or "") if match is not None else ""


_ATTRIBUTE = re.compile(r"^\s*(?P<name>\w{1,60}) = (?P<value>\S.{0,600})$")
_AD_STATES: Mapping[str, RecordState] = {
    "1": RecordState.WAITING, "2": RecordState.RUNNING, "3": RecordState.BAD, "4": RecordState.WELL, "5": RecordState.ON_HOLD,
    "7": RecordState.ON_HOLD,
}  # fmt: skip
"""HTCondor manual, "Job ClassAd Attributes": JobStatus."""


def of_attributes(lines: Sequence[Line]) -> EndRecord | None:
    """Return how the last job stands whose attributes are listed (`condor_q -l`, `condor_history -l`); None without any."""
    by_name: dict[str, tuple[str, Line]] = {}
    texts = set[int]()
    for line in lines:
        match = _ATTRIBUTE.match(line.text)
        if match is not None:
            if match["name"] in by_name and match["name"] == "ClusterId":
                by_name = {}
            by_name[match["name"]] = (match["value"].strip().strip('"'), line)
            texts.add(line.number)
    if not {"ClusterId", "JobStatus"} <= by_name.keys() or by_name["JobStatus"][0] not in _AD_STATES:
        return None
    values = {name: value for name, (value, _) in by_name.items()}
    state, line = _AD_STATES[values["JobStatus"]], by_name["JobStatus"][1]
    code = whole_number(values.get("ExitCode", ""))
    number = whole_number(values.get("ExitSignal", "")) if values.get("ExitBySignal") == "true" else None
    reason, words, cited = "no_failure", "", line
    if state is RecordState.WELL and (code or number):
        state, reason = RecordState.BAD, reason_of_end(code, number)
        cited = by_name["ExitCode" if code else "ExitSignal"][1]
    elif values["JobStatus"] in ("3", "5"):
        name = "HoldReason" if values["JobStatus"] == "5" else "RemoveReason"
        words, cited = by_name.get(name, ("", line))
        hold_code = whole_number(values.get("HoldReasonCode", "")) if name == "HoldReason" else None
        reason = _stated(words, hold_code or 0) or ("cancelled" if name == "RemoveReason" else "unknown")
    elif values["JobStatus"] == "7":
        reason = "preempted"
    elif state is RecordState.WAITING:
        state = RecordState.RUNNING
    limit = (
        f"{values['RequestMemory']} MB" if reason == "out_of_memory_error" and whole_number(values.get("RequestMemory", "")) else ""
    )
    job = f"{values['ClusterId']}.{values.get('ProcId', '0')}"
    return EndRecord(
        "condor", state, reason, tuple(dict.fromkeys((cited, line))), words, code=code, signal=number, limit=limit, job=job,
        texts=frozenset(texts),
    )  # fmt: skip


_GRAPH_LINE = re.compile(r"^\d\d/\d\d(?:/\d\d)?(?:\d\d)? \d\d:\d\d:\d\d(?:\.\d{1,6})? (?P<text>.*)")
_GRAPH_ENDS = re.compile(r"\(condor_DAGMAN\) pid \d{1,10} EXITING WITH STATUS (\d{1,3})", re.IGNORECASE)
_GRAPH_STARTS = re.compile(r"\(CONDOR_DAGMAN\) STARTING UP", re.IGNORECASE)
_NODE_FAILED = re.compile(
    r"Node (\S{1,200}) job proc \([\d.]{1,40}\) failed with (?:status|signal) (-?\d{1,9})|Node Name: (\S{1,200})"
)
_NODE_RETRIED = re.compile(r"Retrying node (\S{1,200})|Node (\S{1,200}) job (?:proc \([\d.]{1,40}\) )?completed")
_RESCUE = re.compile(r"Writing Rescue DAG to (\S{1,300})")
_REMOVED = re.compile(r"Received SIGUSR1|DAG was removed|[Aa]borting DAG .{0,40}condor_rm")


def of_graph_log(lines: Sequence[Line]) -> EndRecord | None:
    """Return how a graph of jobs ended by the log of DAGMan (`NAME.dag.dagman.out`); None where the lines are no such log."""
    graph_lines = [line for line in lines if _GRAPH_LINE.match(line.text)]
    if not any(_GRAPH_ENDS.search(line.text) or _GRAPH_STARTS.search(line.text) for line in graph_lines):
        return None
    failed: dict[str, Line] = {}
    end, removed, rescue, start = None, None, "", graph_lines[0]
    for line in graph_lines:
        if _GRAPH_STARTS.search(line.text):
            failed, end, removed, rescue, start = {}, None, None, "", line
        elif match := _NODE_FAILED.search(line.text):
            failed.setdefault(match[1] or match[3], line)
        elif match := _NODE_RETRIED.search(line.text):
            failed.pop(match[1] or match[2], None)
        elif match := _RESCUE.search(line.text):
            rescue = match[1].rstrip(".")
        elif _REMOVED.search(line.text):
            removed = line
        elif _GRAPH_ENDS.search(line.text):
            end = line
    texts = frozenset(line.number for line in graph_lines)
    if end is None:
        return EndRecord("dagman", RecordState.RUNNING, "no_failure", (graph_lines[-1] if not failed else start,), texts=texts)
    match = _GRAPH_ENDS.search(end.text)
    code = int(match[1]) if match is not None else 0
    if code == 0:
        return EndRecord("dagman", RecordState.WELL, "no_failure", (end,), code=0, texts=texts)
    reason = "cancelled" if removed is not None and not failed else "called_process_error"
    cited = (*list(failed.values())[:3], *((removed,) if removed is not None else ()), end)
    return EndRecord(
        "dagman", RecordState.BAD, reason, cited, code=code, part=", ".join(list(failed)[:3]), rescue=rescue, texts=texts
    )
