"""Read the end of a job from what batch systems print of it: reports, mails, accounting records and epilogues.

Covers Grid Engine, PBS and Torque, LSF, OAR, Flux, LoadLeveler and Cobalt. Each prints some lines of a known form, in the output of
the job or alone; those that stand together are one record, and a record is judged by all of them: a limit that is named or was
reached tells more than the exit code that follows from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from assistant.diagnose.readers.end_records import (
    LINES_BEHIND,
    EndRecord,
    RecordState,
    last_of,
    reason_of_end,
    reason_of_errno,
    reason_of_words,
    signal_of_code,
)
from assistant.logs.lines import Line

MOST_OF_LINE = 400
APART = 120
"""Lines between two of one form from which on they are of two records."""
NEARLY = 0.97
"""Share of a limit of memory that counts as reached: the usage is sampled."""
_WALL = r"(?P<{name}>\d{{1,5}}:\d\d:\d\d(?::\d\d)?|\d{{1,9}}\b)"
_LIMIT, _USED = _WALL.format(name="time_limit"), _WALL.format(name="time_used")
_WHEN = r"\w{3} \w{3} {1,2}\d{1,2} \d\d:\d\d:\d\d(?: \d{4})?: "
_SIZE = r"\d[\d.]{0,12} ?[KMGTkmgt]?i?[Bb]?(?:ytes)?\b"

_FORMS: tuple[tuple[str, re.Pattern[str], str], ...] = (
    # Grid Engine: accounting(5), the mails of sge_execd
    (
        "sge",
        re.compile(
            r"^qname {2,}\S|^Job \d{1,12}(?:\.\d{1,9})? \([^)]{1,200}\) (?:(?P<aborted>Aborted)|(?P<well>Complete)|"
            r"(?P<held>Suspended))\s*$"
        ),
        "head",
    ),
    ("sge", re.compile(r"^failed {2,}(?P<failed>\d{1,3})(?: {0,8}: (?P<why>.{1,200}))?$"), ""),
    ("sge", re.compile(r"^exit_status {2,}(?P<code>\d{1,3})\b"), ""),
    ("sge", re.compile(r"^ ?Exit Status {1,12}= (?P<code>\d{1,3})\s*$"), ""),
    ("sge", re.compile(r"^ ?Signal {1,16}= (?P<signal>[A-Z]{2,8})\s*$"), ""),
    ("sge", re.compile(r"^ru_wallclock {1,4}(?P<time_used>\d{1,9})\b"), ""),
    ("sge", re.compile(rf"^(?:maxvmem| ?Max vmem {{1,12}}=) {{0,8}}(?P<mem_used>{_SIZE})"), ""),
    (
        "sge",
        re.compile(
            rf"^(?:category|hard_resources|granted_req\.?) {{1,8}}.{{0,200}}?(?=h_rt|h_vmem)"
            rf"(?:.{{0,200}}?h_rt={_LIMIT})?(?:.{{0,200}}?h_vmem=(?P<mem_limit>{_SIZE}))?"
        ),
        "",
    ),
    ("sge", re.compile(r"^(?:hostname {2,}| Host {1,16}= )(?P<host>[\w.-]{1,255})\s*$"), "follows"),
    ("sge", re.compile(r"^Job \d{1,12} caused action: .{0,80}set to ERROR"), "bad"),
    (
        "sge",
        re.compile(
            r"^failed (?P<why>(?:changing into|opening|assumedly|before|invalid|in|rescheduling|searching"
            r"|starting)\b.{1,200})"
        ),
        "detail",
    ),
    # PBS Pro, OpenPBS, Torque: mails, epilogues, what the daemon writes into the error file
    ("pbs", re.compile(r"^(?:PBS )?Job Id: (?P<job>\S{1,120})"), "head"),
    ("pbs", re.compile(r"^ {2,8}job_state = (?P<held>[HS])\s*$"), "follows"),
    ("pbs", re.compile(r"^ {2,8}comment = (?P<comment>.{1,200})"), "follows"),
    (
        "pbs",
        re.compile(rf"^ {{2,8}}resources_used\.walltime = {_USED}|^ {{2,8}}resources_used\.mem = (?P<mem_used>{_SIZE})"),
        "follows",
    ),
    (
        "pbs",
        re.compile(rf"^ {{2,8}}Resource_List\.walltime = {_LIMIT}|^ {{2,8}}Resource_List\.mem = (?P<mem_limit>{_SIZE})"),
        "follows",
    ),
    (
        "pbs",
        re.compile(
            r"=>> PBS: job killed: (?P<why>\w{1,16} (?P<amount>[\w.:]{1,30}) exceeded limit "
            r"(?P<allowed>[\w.:]{1,30}).{0,80})"
        ),
        "bad",
    ),
    ("pbs", re.compile(r"(?:^|\s)Exit_?[Ss]tatus ?[=:] ?(?P<code>-?\d{1,4})\b"), ""),
    (
        "pbs",
        re.compile(
            rf"^(?:Resource_?[ ]?List|Limits):.{{0,300}}?(?=walltime|mem=)(?:.{{0,200}}?\bmem=(?P<mem_limit>{_SIZE}))?"
            rf"(?:.{{0,300}}?walltime={_LIMIT})?"
        ),
        "",
    ),
    (
        "pbs",
        re.compile(rf"^[Rr]esources?[_ ][Uu]sed\b.{{0,300}}?(?:mem=(?P<mem_used>{_SIZE}).{{0,200}}?)?walltime={_USED}"),
        "",
    ),
    ("pbs", re.compile(rf"^resources_used\.mem=(?P<mem_used>{_SIZE})"), ""),
    ("pbs", re.compile(r"^Exit Code: ?(?P<code>-?\d{1,4})\s*$"), "follows"),
    (
        "pbs",
        re.compile(r"^(?:job|Job) deleted as requested by (?P<user>\S{1,120})|deleted as requested by (?P<user2>\S{1,120})"),
        "cancelled",
    ),
    ("pbs", re.compile(r"^Aborted by PBS Server|^Post job file processing error"), "follows"),
    (
        "pbs",
        re.compile(r"\b[Nn]ode (?P<host>[\w.-]{1,255}) (?:is|went|was) down\b|^Exec host: +(?P<host2>[\w.-]{1,255})/"),
        "follows",
    ),
    # LSF: the report of a job
    ("lsf", re.compile(r"^Sender: LSF System <[^>]{0,80}@(?P<host>[\w.-]{1,255})>"), "head"),
    ("lsf", re.compile(r"^Subject: Job \d{1,12}(?:\[\d{1,9}\])?: .{0,300} (?:(?P<well>Done)|Exited|Exit)\s*$"), "head"),
    ("lsf", re.compile(r"^(?P<well>Successfully completed\.)"), ""),
    ("lsf", re.compile(rf"^{_WHEN}(?P<well>Done successfully\.)"), "head"),
    ("lsf", re.compile(rf"^{_WHEN}(?P<held>Suspended by the user or the administrator)"), "head"),
    ("lsf", re.compile(rf"^{_WHEN}Completed <exit>; TERM_(?P<term>[A-Z_]{{2,30}})\b:?(?P<why>.{{0,200}})"), "bad"),
    ("lsf", re.compile(rf"^{_WHEN}(?:Started \d|Started on|Dispatched|Starting \(|Resumed)"), "start"),
    (
        "lsf",
        re.compile(
            rf"^(?:{_WHEN})?Exited with exit code (?P<code>\d{{1,3}})\b"
            rf"|^(?:{_WHEN})?Exited by signal (?P<number>\d{{1,3}})\b"
        ),
        "bad",
    ),
    ("lsf", re.compile(r"^TERM_(?P<term>[A-Z_]{2,30})\b:?(?P<why>.{0,200})"), "bad"),
    ("lsf", re.compile(rf"^ {{2,8}}Max Memory : {{2,60}}(?P<mem_used>{_SIZE})"), "follows"),
    ("lsf", re.compile(rf"^ {{2,8}}Total Requested Memory : {{2,60}}(?P<mem_limit>{_SIZE})"), "follows"),
    ("lsf", re.compile(r"^ {2,8}Run time : {2,60}(?P<time_used>\d{1,9}) sec"), "follows"),
    ("lsf", re.compile(r"^The output \(if any\) (?P<output>follows)"), "follows"),
    # OAR, Flux, LoadLeveler, Cobalt
    (
        "oar",
        re.compile(
            r"^#{1,3} ?OAR \[[^\]]{4,40}\] Job \d{1,12} (?:(?P<well>TERMINATED)|KILLED)(?P<why>.{0,120})|^#{1,3} ?Job "
            r"(?:\d{1,12} )?killed\b(?P<why2>.{0,120})"
        ),
        "bad",
    ),
    ("oar", re.compile(r"^#{1,3} ?.{0,80}\bOAR\b.{0,60}(?P<why>[Ww]alltime (?:is )?reached.{0,60})"), "bad"),
    (
        "flux",
        re.compile(
            r"^flux-job: task\(s\) exited with exit code (?P<code>\d{1,3})\b|^flux-job: task\(s\) (?P<why>Killed"
            r"|Terminated|Segmentation fault|Aborted)"
        ),
        "bad",
    ),
    ("flux", re.compile(r"job\.exception type=(?P<type>\w{1,30}) severity=0 ?(?P<why>.{0,200})"), "bad"),
    (
        "loadleveler",
        re.compile(
            r"^LoadL_starter: (?P<why>.{0,200}(?:exited because it received signal (?P<number>\d{1,3})|limit"
            r" exceeded).{0,200})"
        ),
        "bad",
    ),
    (
        "loadleveler",
        re.compile(
            r"^LoadL_starter: .{0,300}exited (?:normally and returned an )?(?:with )?exit code of (?P<code>-?\d{1,4})"
            r"|^The exit status of the job was (?P<code2>-?\d{1,4})"
        ),
        "",
    ),
    (
        "cobalt",
        re.compile(r"\bInfo: (?:task )?(?:completed )?(?:\w{1,12} )?with an exit code of (?P<code>-?\d{1,4}); initiating job"),
        "",
    ),
    ("cobalt", re.compile(r"\bInfo: (?P<why>maximum execution time exceeded); initiating job termination"), "bad"),
    (
        "cobalt",
        re.compile(
            r"\bInfo: user delete requested with signal \S{1,20}|\bInfo: job \d{1,12} (?:was )?(?:user )?deleted by "
            r"(?P<user>\S{1,80})"
        ),
        "cancelled",
    ),
)
"""System, form of a line, and what the line is: `head` begins a record, `bad` alone tells of a bad end, `follows` and `detail`
count inside a record only, a `detail` tells of a bad end there."""
_MARKS = re.compile(
    r"qname|failed|exit_status|[Ee]xit[ _]?[Ss]tatus|Signal|ru_wallclock|vmem|category|hard_res|granted|hostname| Host|Job |job "
    r"|PBS|job_state|comment|[Rr]esource|Limits|Exit Code|deleted|[Nn]ode |Exec host|LSF|Success|Done|Suspended|Completed|Start"
    r"|Dispatched|Resumed|Exited|TERM_|Max Mem|Total Req|Run time|The output|OAR|flux|job\.exception|LoadL|The exit|Info: "
)
"""Words without one of which a line has none of the forms: the search for these is cheap."""
_TERMS: Mapping[str, str] = {
    "MEMLIMIT": "out_of_memory_error", "SWAP": "out_of_memory_error", "RUNLIMIT": "time_limit", "CPULIMIT": "time_limit",
    "DEADLINE": "time_limit", "WINDOW": "time_limit", "OWNER": "cancelled", "FORCE_OWNER": "cancelled", "ADMIN": "cancelled",
    "FORCE_ADMIN": "cancelled", "REQUEUE_OWNER": "cancelled", "REQUEUE_ADMIN": "cancelled", "PREEMPT": "preempted",
    "LOAD": "preempted", "ZOMBIE": "node_failure", "UNKNOWN_HOST": "node_failure", "EXTERNAL_SIGNAL": "killed",
}  # fmt: skip
"""IBM Spectrum LSF, "Termination reasons displayed by bacct, bhist and bjobs"."""
_PBS_CODES: Mapping[int, str] = {
    -29: "time_limit", -28: "time_limit", -27: "out_of_memory_error", -26: "out_of_memory_error",
}  # fmt: skip
"""OpenPBS, job.h: JOB_EXEC_KILL_WALLTIME, _CPUT, _MEM, _VMEM."""
_SGE_FAILURES: Mapping[int, str] = {37: "time_limit", 26: "os_error", 27: "os_error", 28: "os_error"}
"""Grid Engine, sge_status(5): run time enforced by the master; files and folders that cannot be opened."""
_FLUX_TYPES: Mapping[str, str] = {"timeout": "time_limit", "cancel": "cancelled", "preempt": "preempted"}
_SIGNALS: Mapping[str, int] = {"KILL": 9, "TERM": 15, "SEGV": 11, "ABRT": 6, "BUS": 7, "XCPU": 24, "FPE": 8, "INT": 2, "Killed": 9}
_UNITS: Mapping[str, float] = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}
_HOST_LOST = re.compile(r"losing contact with host <?(?P<host>[\w.-]{1,255})|\bhost (?P<host2>[\w.-]{1,255}) is unavailable")


@dataclass(slots=True)
class _Block:
    """The lines of one record, with the fields that they give."""

    system: str
    lines: list[Line] = field(default_factory=list)
    texts: set[int] = field(default_factory=set)
    fields: dict[str, str] = field(default_factory=dict)
    field_lines: dict[str, Line] = field(default_factory=dict)
    """By field the line that gives it."""
    is_bad: bool = False

    @property
    def is_over(self) -> bool:
        """Tell whether what begins a record begins another one; the epilogue of PBS follows what its daemon says of a kill."""
        return self.has_end and (self.system != "pbs" or "code" in self.fields or "held" in self.fields)

    @property
    def has_end(self) -> bool:
        """Tell whether a line of it says how the job ended."""
        return self.is_bad or not {"well", "held", "code", "number", "signal", "failed"}.isdisjoint(self.fields)


def of_batch_systems(lines: Sequence[Line], total: int) -> EndRecord | None:
    """Return the last record of a batch system, where no other run stands behind it; None without one.

    Args:
        lines: The lines of the log that are kept.
        total: Number of its last line.
    """
    blocks = [block for block in _blocks(lines) if block.has_end]
    records = [record for block in blocks if (record := _record_of(block)) is not None]
    record = last_of(records)
    if record is None:
        return None
    block = next(block for block in reversed(blocks) if record.lines[0].number in block.texts)
    announced = "output" in block.fields and block.lines[-1].text.startswith("The output")
    return record if announced or total - max(block.texts) <= LINES_BEHIND else None


def _blocks(lines: Sequence[Line]) -> Iterator[_Block]:
    current: dict[str, _Block] = {}
    for line in lines:
        text = line.text[:MOST_OF_LINE]
        if _MARKS.search(text) is None:
            continue
        for system, form, kind in _FORMS:
            if (match := form.search(text)) is None:
                continue
            if kind == "start":  # what was said before it is of an earlier start
                current.pop(system, None)
                break
            block = current.get(system)
            stale = block is not None and line.number - max(block.texts) > APART
            if block is None or stale or (kind == "head" and block.is_over):
                if block is not None:
                    yield current.pop(system)
                if kind in ("follows", "detail"):
                    break
                block = current[system] = _Block(system)
            _take(block, line, match, kind)
            break
    yield from current.values()


def _take(block: _Block, line: Line, match: re.Match[str], kind: str) -> None:
    block.lines.append(line)
    block.texts.add(line.number)
    for name, value in match.groupdict().items():
        if value:
            block.fields[name.rstrip("2")] = value.strip()
            block.field_lines[name.rstrip("2")] = line
    if kind == "cancelled":
        block.fields["reason"], block.field_lines["reason"] = "cancelled", line
    if (kind in ("bad", "detail", "cancelled") or match.groupdict().get("aborted")) and not match.groupdict().get("well"):
        block.is_bad = True
        block.field_lines.setdefault("bad", line)


def _record_of(block: _Block) -> EndRecord | None:
    fields = block.fields
    code = int(fields["code"]) if "code" in fields else None
    number = int(fields["number"]) if "number" in fields else _SIGNALS.get(fields.get("signal", fields.get("why", "")))
    reason, cited = _limit_of(block, code)
    well = ("well" in fields or code == 0) and not reason and not code and int(fields.get("failed", 0)) == 0
    if well and not block.is_bad:
        line = block.field_lines.get("code") or block.field_lines["well"]
        line = block.field_lines.get("well", line) if block.system == "lsf" else line
        return EndRecord(block.system, RecordState.WELL, "no_failure", (line,), code=code, texts=frozenset(block.texts))
    if "held" in fields:
        line = block.field_lines["held"]
        by_person = fields["held"] == "H" or fields["held"].startswith("Suspended by")
        return EndRecord(
            block.system, RecordState.ON_HOLD, "cancelled" if by_person else "preempted", (line,), fields.get("comment", ""),
            job=fields.get("job", ""), texts=frozenset(block.texts),
        )  # fmt: skip
    if not reason:
        reason = reason_of_end(code, number)
        cited = [block.field_lines[name] for name in ("code", "number", "signal", "failed", "bad") if name in block.field_lines]
    if not cited:
        return None
    is_memory = reason == "out_of_memory_error"
    is_time = reason == "time_limit"
    limit = fields.get("allowed") or fields.get("mem_limit" if is_memory else "time_limit", "")
    used = fields.get("amount") or fields.get("mem_used" if is_memory else "time_used", "")
    if block.system == "pbs" and is_time:
        limit = fields.get("time_limit") or limit
    if reason == "node_failure" and (lost := _HOST_LOST.search(fields.get("why", ""))):
        fields["host"] = lost["host"] or lost["host2"]
    return EndRecord(
        block.system, RecordState.BAD, reason, tuple(dict.fromkeys(cited))[:4], fields.get("why", ""), fields.get("host", ""),
        code=code, signal=number or signal_of_code(code), limit=limit if is_memory or is_time else "",
        used=used if is_memory or is_time else "", job=fields.get("job", ""), texts=frozenset(block.texts),
    )  # fmt: skip


def _limit_of(block: _Block, code: int | None) -> tuple[str, list[Line]]:
    """Return the reason that a record names or shows, with the lines that show it; empty where only an exit code is left."""
    fields, lines = block.fields, block.field_lines
    for name, table in (("reason", {"cancelled": "cancelled"}), ("term", _TERMS), ("type", _FLUX_TYPES)):
        if (reason := table.get(fields.get(name, ""))) is not None:
            return reason, [lines[name], *([lines["code"]] if "code" in lines else [])]
    if block.system == "pbs" and re.search(r"\b[Nn]ode \S{1,255} (?:is|went|was) down\b", " ".join(x.text for x in block.lines)):
        return "node_failure", [line for line in block.lines if "down" in line.text][:1]
    if "why" in fields and (reason := reason_of_errno(fields["why"]) or reason_of_words(fields["why"])):
        return reason, [lines["why"]]
    if block.system == "pbs" and code is not None and code in _PBS_CODES:
        return _PBS_CODES[code], [lines["code"]]
    if block.system == "sge" and (reason := _SGE_FAILURES.get(int(fields.get("failed", 0)))) is not None:
        return reason, [lines["failed"]]
    if code == 0 or ("well" in fields and code is None):
        return "", []
    size, most = _bytes(fields.get("mem_used", "")), _bytes(fields.get("mem_limit", ""))
    if most and size >= NEARLY * most:
        return "out_of_memory_error", [lines["mem_used"], lines["mem_limit"], *([lines["code"]] if "code" in lines else [])]
    took, allowed = seconds_of(fields.get("time_used", "")), seconds_of(fields.get("time_limit", ""))
    if allowed and took >= allowed:
        return "time_limit", [lines["time_used"], lines["time_limit"], *([lines["code"]] if "code" in lines else [])]
    return "", []


def seconds_of(text: str) -> int:
    """Return the seconds of a duration as batch systems write it, `02:00:00` or `7200`; 0 where there is none."""
    if not text or not re.fullmatch(r"[\d:]{1,20}", text):
        return 0
    units = (1, 60, 3600, 24 * 3600)
    return sum(int(part or 0) * unit for part, unit in zip(reversed(text.split(":")), units, strict=False))


def _bytes(text: str) -> float:
    match = re.match(r"(\d{1,14}(?:\.\d{1,6})?) ?([KMGT]?)", text.upper())
    return float(match[1]) * _UNITS[match[2]] if match is not None else 0.0
