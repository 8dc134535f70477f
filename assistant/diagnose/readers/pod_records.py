"""Read how a job of containers stands: events and descriptions of Kubernetes, and the job records of AWS Batch and Google Batch.

Events are read in the order in which they stand; what a description says of the container's last state is of a start before the
one that its state is about.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from assistant.diagnose.readers.end_records import LINES_BEHIND, EndRecord, RecordState, last_of, reason_of_end, whole_number
from assistant.logs.lines import Line

MOST_OF_LINE = 600
_EVENT = re.compile(
    r"^\s*(?:\S{2,12}\s+(?:\(x\d{1,6} over \S{1,12}\)\s+)?)?(?P<kind>Normal|Warning)\s+(?P<reason>[A-Z]\w{2,60})\s+(?P<words>\S.*)$"
)
_STARTS = frozenset(("Scheduled", "Pulling", "Pulled", "Created", "Started", "SuccessfulCreate", "Resumed"))
_ENDS: Mapping[str, tuple[RecordState, str]] = {
    "Completed": (RecordState.WELL, "no_failure"),
    "BackOff": (RecordState.BAD, "unknown"),
    "BackoffLimitExceeded": (RecordState.BAD, "unknown"),
    "OOMKilling": (RecordState.BAD, "out_of_memory_error"),
    "DeadlineExceeded": (RecordState.BAD, "time_limit"),
    "NodeNotReady": (RecordState.WAITING, "node_failure"),
    "NodeLost": (RecordState.WAITING, "node_failure"),
    "Evicted": (RecordState.BAD, "preempted"),
    "Preempted": (RecordState.WAITING, "preempted"),
    "Suspended": (RecordState.ON_HOLD, "preempted"),
}
"""How a job stands behind an event; events that are not named here say nothing of it."""
_ASSIGNED = re.compile(r"Successfully assigned \S{1,255} to (\S{1,255})")
_SHORT_OF = re.compile(r"low on resource: ([\w-]{1,60})")
_STATE = re.compile(r"^\s{2,12}(?P<last>Last )?State:\s+(?P<state>Running|Waiting|Terminated)\s*$")
_POD_FIELD = re.compile(r"^\s{2,14}(?P<name>Reason|Exit Code|memory|Signal):\s+(?P<value>\S.{0,120})$")
_PHASE = re.compile(r"^Status:\s+(Running|Succeeded|Failed|Pending)\b")
_NODE = re.compile(r"^Node:\s+([\w.-]{1,255})/")
_JSON_FIELD = re.compile(
    r'"(?P<name>status|statusReason|exitCode|reason|jobName|memory)"\s*:\s*(?:"(?P<text>[^"]{0,300})"|(?P<number>-?\d{1,9}))'
)
_GOOGLE = re.compile(
    r"(?P<what>Job|Task) state is (?:set|updated) from (?P<before>[A-Z]{4,20}) to (?P<after>[A-Z]{4,20})\b(?P<words>.{0,300})"
)
_GOOGLE_CODES: Mapping[int, str] = {
    50001: "preempted",
    50002: "node_failure",
    50003: "node_failure",
    50004: "node_failure",
    50005: "time_limit",
}
"""Google Cloud, Batch, "Troubleshooting": reserved exit codes of tasks."""


class _Section(NamedTuple):
    """A state of a container as a description gives it."""

    line: Line
    state: str
    is_last: bool
    """Whether it is of the start before."""
    fields: dict[str, Line]


def of_containers(lines: Sequence[Line], total: int) -> EndRecord | None:
    """Return how the job of containers stands that the lines tell of; None where they tell of none, or of more behind it."""
    near = [Line(line.number, line.text[:MOST_OF_LINE]) for line in lines]
    readers = (_of_events, _of_description, _of_listing, _of_aws, _of_google)
    record = last_of([record for read in readers if (record := read(near)) is not None])
    return record if record is not None and total - max(record.texts) <= LINES_BEHIND else None


def _of_events(lines: Sequence[Line]) -> EndRecord | None:
    record, texts, node = None, set[int](), ""
    for line in lines:
        match = _EVENT.match(line.text)
        if match is None:
            continue
        texts.add(line.number)
        node = assigned[1] if (assigned := _ASSIGNED.search(line.text)) is not None else node
        if match["reason"] in _STARTS:
            record = EndRecord("kubernetes", RecordState.RUNNING, "no_failure", (line,))
        elif match["reason"] in _ENDS:
            state, reason = _ENDS[match["reason"]]
            short_of = _SHORT_OF.search(match["words"])
            if match["reason"] == "Evicted" and short_of is not None:
                reason = "out_of_memory_error" if short_of[1] == "memory" else "os_error"
            record = EndRecord("kubernetes", state, reason, (line,), match["words"], node if reason == "node_failure" else "")
        elif match["kind"] == "Warning" and record is not None and not record.is_bad:
            record = None  # what nothing here knows leaves open how the pod stands
    if record is not None and record.state is RecordState.RUNNING:
        texts = {number for number in texts if number <= record.lines[0].number}
    return _with_texts(record, texts)


def _of_description(lines: Sequence[Line]) -> EndRecord | None:
    """Return how the containers of the last `kubectl describe pod` stand."""
    start = next((place for place in range(len(lines) - 1, -1, -1) if lines[place].text.startswith("Name: ")), None)
    if start is None:
        return None
    records: list[EndRecord] = []
    texts, memory, node = set[int](), "", ""
    sections: list[_Section] = []
    for line in lines[start:]:
        if match := _STATE.match(line.text):
            sections.append(_Section(line, match["state"], match["last"] is not None, {}))
        elif (match := _POD_FIELD.match(line.text)) and sections:
            sections[-1].fields.setdefault(match["name"], line)
            memory = match["value"].strip() if match["name"] == "memory" and not memory else memory
        elif match := _NODE.match(line.text):
            node = match[1]
        elif not _PHASE.match(line.text):
            continue
        texts.add(line.number)
    for section, following in zip(sections, [*sections, None][1:], strict=True):
        if section.is_last:
            continue
        backs_off = section.state == "Waiting" and "BackOff" in _value(section.fields.get("Reason"))
        decisive = following if backs_off and following is not None and following.is_last else section
        if decisive.state == "Terminated" and "Reason" in decisive.fields:
            records.append(_terminated(decisive.fields, memory, node))
        elif decisive.state == "Running":
            records.append(EndRecord("kubernetes", RecordState.RUNNING, "no_failure", (decisive.line,)))
    record = _decisive(records)
    if record is not None and record.state is RecordState.RUNNING:  # its last state is that of the start before
        texts = {line.number for section in sections if section.is_last for line in section.fields.values()}
        texts |= {section.line.number for section in sections}
    return _with_texts(record, texts)


def _decisive(records: Sequence[EndRecord]) -> EndRecord | None:
    """Return the record that says how several pods or containers stand together: a bad one, else one that runs, else the last."""
    bad = [record for record in records if record.is_bad]
    running = [record for record in records if record.state is RecordState.RUNNING]
    return last_of(bad or running or records)


def _terminated(of_state: Mapping[str, Line], memory: str, node: str) -> EndRecord:
    words = _value(of_state.get("Reason"))
    code = whole_number(_value(of_state.get("Exit Code")))
    cited = tuple(of_state[name] for name in ("Reason", "Exit Code") if name in of_state)
    if words == "Completed" and not code:
        return EndRecord("kubernetes", RecordState.WELL, "no_failure", cited[:1], code=code)
    if words == "OOMKilled":
        return EndRecord("kubernetes", RecordState.BAD, "out_of_memory_error", cited, words, code=code, limit=memory)
    reason = "time_limit" if words == "DeadlineExceeded" else "preempted" if words == "Evicted" else reason_of_end(code, None)
    return EndRecord("kubernetes", RecordState.BAD, reason, cited[::-1], words, node, code=code)


def _value(line: Line | None) -> str:
    return line.text.partition(":")[2].strip() if line is not None else ""


_LISTED = re.compile(
    r"^(?:(?P<space>[a-z0-9-]{1,63})\s{2,})?(?P<pod>[a-z0-9][a-z0-9.-]{1,252})\s{2,}\d{1,3}/\d{1,3}\s{2,}(?P<status>[A-Z]\w{3,40})\s{2,}\d{1,6}\b"
)
_STATUSES: Mapping[str, tuple[RecordState, str]] = {
    "Completed": (RecordState.WELL, "no_failure"), "Succeeded": (RecordState.WELL, "no_failure"),
    "Running": (RecordState.RUNNING, "no_failure"), "OOMKilled": (RecordState.BAD, "out_of_memory_error"),
    "Evicted": (RecordState.BAD, "preempted"), "DeadlineExceeded": (RecordState.BAD, "time_limit"),
    "Preempting": (RecordState.WAITING, "preempted"), "NodeLost": (RecordState.WAITING, "node_failure"),
    "Error": (RecordState.BAD, "unknown"), "CrashLoopBackOff": (RecordState.BAD, "unknown"), "Failed": (RecordState.BAD, "unknown"),
}  # fmt: skip
"""How a pod stands by the status that `kubectl get pods` lists; others are on the way to one of these."""


def _of_listing(lines: Sequence[Line]) -> EndRecord | None:
    """Return how the pods of a list (`kubectl get pods`, also watched) stand: one that is bad in the end decides."""
    pods: dict[str, EndRecord] = {}
    texts = set[int]()
    for line in lines:
        match = _LISTED.match(line.text)
        if match is None:
            continue
        texts.add(line.number)
        state, reason = _STATUSES.get(match["status"], (RecordState.RUNNING, "no_failure"))
        pods[match["pod"]] = EndRecord("kubernetes", state, reason, (line,), match["status"])
    return _with_texts(_decisive(list(pods.values())), texts)


def _of_aws(lines: Sequence[Line]) -> EndRecord | None:
    """Return how a job of AWS Batch stands by `aws batch describe-jobs`."""
    fields_by_name: dict[str, tuple[str, Line]] = {}
    texts = set[int]()
    for line in lines:
        if '"' not in line.text:
            continue
        for match in _JSON_FIELD.finditer(line.text):
            fields_by_name[match["name"]] = (match["text"] or match["number"] or "", line)
            texts.add(line.number)
    if "status" not in fields_by_name or "statusReason" not in fields_by_name:
        return None
    status, status_line = fields_by_name["status"]
    words, words_line = fields_by_name["statusReason"]
    if status == "SUCCEEDED":
        return _with_texts(EndRecord("aws", RecordState.WELL, "no_failure", (status_line,)), texts)
    if status != "FAILED":
        running = EndRecord("aws", RecordState.RUNNING, "no_failure", (status_line,)) if status in ("RUNNING", "STARTING") else None
        return _with_texts(running, texts)
    why, why_line = fields_by_name.get("reason", ("", words_line))
    code = whole_number(fields_by_name.get("exitCode", ("", words_line))[0])
    memory = fields_by_name.get("memory", ("", words_line))[0]
    reason, cited, limit = reason_of_end(code, None), (words_line, status_line), ""
    if "OutOfMemory" in why:
        reason, cited, limit = "out_of_memory_error", (why_line, status_line), f"{memory} MB" if memory else ""
    elif "duration exceeded" in words:
        reason = "time_limit"
    elif re.search(r"Host EC2 .{0,120}terminated|Spot", words):
        reason = "preempted"
    elif re.search(r"[Cc]ancel|[Tt]erminated by|by user", words):
        reason = "cancelled"
    record = EndRecord("aws", RecordState.BAD, reason, cited, why or words, code=code, limit=limit)
    return _with_texts(record, texts)


def _of_google(lines: Sequence[Line]) -> EndRecord | None:
    """Return how a job of Google Batch stands by its status events."""
    record, why, texts = None, None, set[int]()
    for line in lines:
        match = _GOOGLE.search(line.text)
        if match is None:
            continue
        texts.add(line.number)
        if match["after"] in ("RUNNING", "SCHEDULED"):
            record = EndRecord("google", RecordState.RUNNING, "no_failure", (line,))
        elif match["after"] == "SUCCEEDED" and match["what"] == "Job":
            record = EndRecord("google", RecordState.WELL, "no_failure", (line,))
        elif match["after"] == "FAILED":
            code_match = re.search(r"exit code (\d{1,6})", match["words"])
            code = int(code_match[1]) if code_match is not None else None
            reason = _GOOGLE_CODES.get(code or 0) or reason_of_end(code, None)
            why = (line, code, reason) if match["what"] == "Task" or why is None else why
            cited = tuple(dict.fromkeys((why[0], line)))
            record = EndRecord("google", RecordState.BAD, why[2], cited, match["words"].strip(), code=why[1])
    return _with_texts(record, texts)


def _with_texts(record: EndRecord | None, texts: set[int]) -> EndRecord | None:
    return replace(record, texts=frozenset(texts)) if record is not None else None
