"""Read what Slurm recorded: a file of `sacct` (any columns, plain, gzip or `--json`), and events of nodes from `sacctmgr`.

Rows that cannot be read are named and left out. Events say when nodes were out of scheduling: then Slurm or people had taken them
out.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from assistant.engine.backtest.attempts import NEEDED, WANTED, Attempt, Get, attempt_of, getter
from assistant.errors import InputError
from assistant.logs.reading import open_log
from assistant.redact import head_of
from assistant.schedulers.sacct_records import BEGINS_RECORD, OddLine, SplitRecord, reach_of, split_records
from assistant.schedulers.slurm_jobs import nodes_of
from assistant.schedulers.slurm_text import GROUPED, moment

EVENTS_COMMAND = "ask for it with: sacctmgr -P show event Start=YYYY-MM-DD format=NodeName,TimeStart,TimeEnd,State,Reason,User"
_OUT = ("DOWN", "DRAIN", "FAIL", "MAINT")


@dataclass(frozen=True, slots=True)
class Out:
    """A time in which a node was out."""

    start: datetime
    end: datetime | None
    """None while it still is."""
    state: str
    reason: str


@dataclass(frozen=True)
class NodeEvents:
    """The times in which nodes were out, by node and in order."""

    of: Mapping[str, tuple[Out, ...]] = field(default_factory=dict)
    broken: int = 0
    """Rows that could not be read."""

    def out(self, node: str, at: datetime) -> Out | None:
        """Return the time in which a node was out at a moment, None where it was not."""
        return next(
            (outage for outage in self.of.get(node, ()) if outage.start <= at and (outage.end is None or outage.end > at)), None
        )

    def out_at(self, at: datetime) -> frozenset[str]:
        """Return the nodes that were out at a moment."""
        return frozenset(node for node in self.of if self.out(node, at) is not None)

    def taken_out(self, node: str, at: datetime, within: timedelta) -> Out | None:
        """Return the first time after a moment in which a node was taken out, None when it was not so soon."""
        listed = self.of.get(node, ())
        place = bisect_right([outage.start for outage in listed], at)
        next_outage = listed[place] if place < len(listed) else None
        return next_outage if next_outage is not None and next_outage.start <= at + within else None


def read_events(path: Path) -> NodeEvents:
    """Return what a file of sacctmgr holds.

    Raises:
        InputError: It is missing, empty, or lacks a column that is needed.
    """
    with open_log(path) as stream:
        lines = (line.decode("utf-8", "replace").rstrip("\r\n") for line in stream)
        columns = [name.strip().lower() for name in next(lines, "").split("|")]
        if "nodename" not in columns or "state" not in columns or not {"timestart", "start"} & set(columns):
            raise InputError(f"{path}: has not the columns NodeName, TimeStart and State; {EVENTS_COMMAND}")
        outages: dict[str, list[Out]] = {}
        broken = 0
        for line in filter(None, lines):
            fields = line.split("|")
            get = getter(dict(zip(columns, map(str.strip, fields), strict=False)))
            start = moment(get("timestart") or get("start"))
            if len(fields) != len(columns) or start is None:
                broken += 1
                continue
            if any(word in get("state").upper() for word in _OUT):
                ended = moment(get("timeend") or get("end"))
                for node in nodes_of(get("nodename")):
                    outages.setdefault(node, []).append(Out(start, ended, get("state"), get("reason")))
    return NodeEvents({node: tuple(sorted(those, key=lambda outage: outage.start)) for node, those in outages.items()}, broken)


_BEGINS = re.compile(BEGINS_RECORD)
NAMED = 20
"""Broken rows that are named; of the others the number is kept."""
JSON_BYTES = 256 << 20
"""`sacct --json` holds all steps with all counters: beyond this, `sacct -P` says the same in a hundredth of it."""
ACCOUNTS_COMMAND = f"ask for it with: sacct -P -D --allusers --starttime YYYY-MM-DD --format={WANTED}"


@dataclass
class Accounts:
    """What a file of the accounting holds."""

    attempts: list[Attempt] = field(default_factory=list)
    """Ended and running ones, in order of their ends, those without an end last."""
    columns: tuple[str, ...] = ()
    rows: int = 0
    """All rows but headers, steps and broken ones too."""
    steps: int = 0
    twice: int = 0
    """Rows that stood there already."""
    broken: int = 0
    problems: list[str] = field(default_factory=list)
    """The first broken rows, each with its line and why."""
    _earlier_attempts: dict[str, int] = field(default_factory=dict, repr=False)
    _rows: set[tuple[object, ...]] = field(default_factory=set, repr=False)

    def lacks(self, *names: str) -> bool:
        """Whether the file has none of these columns."""
        own = {name.lower() for name in self.columns}
        return not any(name.lower() in own for name in names)

    def take(self, get: Get, row: int) -> None:
        """Take one row."""
        self.rows += 1
        job_id = get("jobid") or get("jobidraw")
        if "." in job_id:
            self.steps += 1
            return
        if GROUPED.search(job_id):
            return
        attempt = attempt_of(get, row, earlier=self._earlier_attempts.get(job_id, 0))
        if isinstance(attempt, str):
            self.wrong(row, attempt)
            return
        key = (job_id, attempt.job.started, attempt.job.ended, attempt.job.state)
        if key in self._rows:
            self.twice += 1
            return
        self._rows.add(key)
        self._earlier_attempts[job_id] = self._earlier_attempts.get(job_id, 0) + 1
        self.attempts.append(attempt)

    def leave_out(self, row: int, why: str) -> None:
        """Note a row that is no record."""
        self.rows += 1
        self.wrong(row, why)

    def wrong(self, row: int, why: str) -> None:
        """Note a row that cannot be read."""
        self.broken += 1
        if len(self.problems) < NAMED:
            self.problems.append(f"line {row}: {why}")

    def finish(self) -> Accounts:
        """Put the attempts in order and let go of what was needed for reading."""
        self._earlier_attempts.clear()
        self._rows.clear()
        far = max((attempt.job.ended.timestamp() for attempt in self.attempts if attempt.job.ended), default=0.0) + 1
        self.attempts.sort(key=lambda attempt: attempt.job.ended.timestamp() if attempt.job.ended else far)
        return self


def read_accounts(path: Path) -> Accounts:
    """Return what a file of sacct holds.

    Raises:
        InputError: It is missing, empty, no table of sacct, or lacks a column that is needed; the message says what to do.
    """
    with open_log(path) as stream:
        head = stream.peek(64).lstrip()[:1]
        if head == b"{":
            text = stream.read(JSON_BYTES + 1)
            if len(text) > JSON_BYTES:
                raise InputError(f"{path}: more than {JSON_BYTES >> 20} MiB of JSON; {ACCOUNTS_COMMAND}")
            return _of_json(text, path)
    return _of_table(path)


def _of_table(path: Path) -> Accounts:
    numbered = _numbered_lines(path)
    first = next(numbered, None)
    if first is None:
        raise InputError(f"{path}: is empty; {ACCOUNTS_COMMAND}")
    between, columns = header_of(first[1], path)
    table = _Table(between, columns)
    # the file is read twice: which lines belong together is known only behind them
    spans = split_records(list(table.odd_lines(numbered)), len(columns) - 1, reach_of([name.lower() for name in columns]))
    places = {name.lower(): place for place, name in enumerate(columns)}
    accounts = Accounts(columns=tuple(columns))
    lines = _numbered_lines(path)
    next(lines, None)
    for number, fields in table.records(lines, spans, accounts):
        accounts.take(lambda name, fields=fields: fields[places[name]].strip() if name in places else "", number)  # type: ignore[misc]
    return accounts.finish()


def _numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that are not blank, with their numbers from 1."""
    with open_log(path) as stream:
        for number, raw in enumerate(stream, 1):
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            if line.strip():
                yield number, line


def header_of(line: str, path: Path) -> tuple[str, list[str]]:
    """Return the separator of a table and its columns.

    Raises:
        InputError: It is no header of sacct, or a column is missing that is needed.
    """
    line = line.lstrip("\ufeff")
    parted = re.match(r"\s*[A-Za-z]\w*(\W.*?)(?=[A-Za-z]\w*(?:\W|$))", line)
    names = re.findall(r"[A-Za-z]\w*", line)
    if not any(name.lower() in ("jobid", "jobidraw") for name in names) or parted is None:
        raise InputError(f"{path}: its first line is no header of sacct: {head_of(line, 80)!r}; {ACCOUNTS_COMMAND}")
    between = parted.group(1)
    if between.isspace() and "\t" not in between:
        raise InputError(f"{path}: is the table for people, whose columns are cut short; {ACCOUNTS_COMMAND}")
    columns = [name.strip() for name in line.split(between)]
    column_names = {name.lower() for name in columns} | ({"jobid"} if "jobidraw" in map(str.lower, columns) else set())
    missing = [name for name in NEEDED if name.lower() not in column_names]
    if missing:
        raise InputError(f"{path}: has no column {', '.join(missing)}, only {', '.join(filter(None, columns))}; {ACCOUNTS_COMMAND}")
    return between, columns


@dataclass(frozen=True)
class _Table:
    """How the lines of a file are read as records."""

    between: str
    columns: list[str]

    def _begins(self, line: str) -> bool:
        return self.columns[0].lower() not in ("jobid", "jobidraw") or _BEGINS.match(line) is not None

    def odd_lines(self, lines: Iterable[tuple[int, str]]) -> Iterator[OddLine]:
        """Yield the lines that are no whole record, or do not begin with an id where they should."""
        for number, line in lines:
            marks, begins = line.count(self.between), self._begins(line)
            if (marks != len(self.columns) - 1 or not begins) and line.split(self.between) != self.columns:
                yield OddLine(number, marks, begins)

    def records(
        self, lines: Iterable[tuple[int, str]], spans: Sequence[SplitRecord], accounts: Accounts
    ) -> Iterator[tuple[int, list[str]]]:
        """Yield the fields of each record with its first line; lines of which it is not sure that they are one are named."""
        waiting = list(reversed(spans))
        parts: list[str] = []
        for number, line in lines:
            while waiting and waiting[-1].last < number:
                waiting.pop()
            span = waiting[-1] if waiting and waiting[-1].first <= number else None
            fields = line.split(self.between)
            if fields == self.columns and (span is None or not span.is_complete):
                continue  # the header again: files that were put one behind the other
            if span is None:
                if len(fields) == len(self.columns):
                    yield number, fields
                else:
                    accounts.leave_out(number, self._why(line, len(fields)))
            elif not span.is_complete:
                count_words = f"{len(fields)} fields instead of {len(self.columns)}; " if len(fields) != len(self.columns) else ""
                accounts.leave_out(number, f"{count_words}a newline in a text of a job may have made it: {head_of(line, 60)!r}")
            else:
                parts.append(line)
                if number == span.last:
                    yield span.first, "\n".join(parts).split(self.between)
                    parts.clear()

    def _why(self, line: str, count: int) -> str:
        hint = f"does a name hold {self.between!r}?" if count > len(self.columns) else repr(head_of(line, 60))
        return f"{count} fields instead of {len(self.columns)}: {hint}"


def _of_json(text: bytes, path: Path) -> Accounts:
    try:
        jobs = json.loads(text)["jobs"]
        listed = [job for job in jobs if isinstance(job, Mapping)]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: begins as JSON and is not what sacct --json prints ({error}); {ACCOUNTS_COMMAND}") from error
    columns = ("JobID", "JobName", "User", "State", "Start", "End", "Submit", "NodeList", "AllocTRES", "WorkDir", "ExitCode")
    accounts = Accounts(columns=columns)
    for number, job in enumerate(listed, 1):
        accounts.take(getter(_fields_of(job)), number)
    return accounts.finish()


def _fields_of(job: Mapping[str, Any]) -> dict[str, str]:
    """Return a job of the JSON as the columns of a table; versions differ in how they write a number and a state."""
    time, state, array = _under(job, "time"), _under(job, "state"), _under(job, "array")
    task, exits, comment = _number(array.get("task_id")), _under(job, "exit_code"), job.get("comment")
    parent = _number(array.get("job_id"))
    words = state.get("current", "")
    counted = [
        f"{resource.get('type')}/{resource.get('name')}={resource.get('count')}"
        for resource in _under(job, "tres").get("allocated", ())
        if isinstance(resource, Mapping) and resource.get("type") == "gres"
    ]
    signal = _number(_under(exits, "signal").get("id", _under(exits, "signal").get("signal_id")))
    return {
        "jobid": f"{parent}_{task}" if parent and task != "" else _number(job.get("job_id")),
        "jobidraw": _number(job.get("job_id")),
        "jobname": str(job.get("name") or ""),
        "user": str(job.get("user") or _under(job, "association").get("user") or ""),
        "partition": str(job.get("partition") or ""),
        "state": str(words[0] if isinstance(words, list) and words else words or ""),
        "reason": str(state.get("reason") or ""),
        "exitcode": f"{_number(exits.get('return_code')) or 0}:{signal or 0}",
        "submit": _number(time.get("submission")),
        "start": _number(time.get("start")),
        "end": _number(time.get("end")),
        "nodelist": str(job.get("nodes") or ""),
        "alloctres": ",".join(counted) or "none",
        "workdir": str(job.get("working_directory") or ""),
        "submitline": str(job.get("submit_line") or ""),
        "stdout": str(job.get("stdout_expanded") or job.get("stdout") or ""),
        "restarts": _number(job.get("restart_cnt")),
        "comment": str(comment.get("job") or "") if isinstance(comment, Mapping) else str(comment or ""),
    }


def _under(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, Mapping) else {}


def _number(value: Any) -> str:
    """Return a number as text: plain, or as newer versions write it with whether it is set; empty for none."""
    if isinstance(value, Mapping):
        value = value.get("number") if value.get("set") else None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""
