"""Let the record of a scheduler other than Slurm decide how a job ended, and say what its stated reason and amounts ask for.

A bad record never leaves a job called fine, and a good one outranks what the scheduler said before it. What a program prints of its
own failure tells more than the exit code that its scheduler records, so that it stays the cause.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from assistant.content.reasons import Reason
from assistant.diagnose.advice.amounts import memory_to_ask_for
from assistant.diagnose.answer import advice, cut, summary
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.batch_records import seconds_of
from assistant.diagnose.readers.end_records import EndRecord, RecordState, signal_name
from assistant.records import Action, Citation, DecidedBy, Diagnosis, NodeFinding

SHOWN_OF_WORDS, SHOWN_OF_HOLD = 160, 200
"""Characters of a scheduler's stated reason that are quoted."""
SURE, SURE_OF_STATE = 0.9, 0.8
"""Of what a record states, and of a job that runs by its record."""
MIB = 1024**2
_SIZE = re.compile(r"(?P<number>\d{1,14}(?:\.\d{1,6})?) ?(?P<unit>[KMGTkmgt])?i?[Bb]?(?:ytes)?")
_EVENT_LOGS = frozenset(("condor", "dagman"))
"""Systems whose records are a log of their own, beside which nothing of the program stands."""
_WEAK = frozenset(("killed", "cancelled", "called_process_error"))
"""Reasons that a limit or a lost node behind them explains."""
_STRONG = frozenset(("out_of_memory_error", "time_limit", "node_failure", "preempted"))
_OPTIONS: Mapping[str, tuple[str, str, str]] = {
    "condor": ("request_memory", "allowed_execute_duration or allowed_job_duration", "condor_q -better-analyze {job}"),
    "sge": ("-l h_vmem", "-l h_rt", "qacct -j {job}"),
    "pbs": ("-l mem, or mem of the select", "-l walltime", "qstat -xf {job}"),
    "lsf": ("-M and rusage[mem]", "-W", "bhist -l {job}"),
    "oar": ("more cores or another node", "-l walltime", "oarstat -fj {job}"),
    "flux": ("more cores or nodes", "--time-limit", "flux job eventlog {job}"),
    "loadleveler": ("resources = ConsumableMemory", "wall_clock_limit", "llsummary -l"),
    "cobalt": ("another queue", "-t", "the .cobaltlog"),
    "kubernetes": ("resources.limits.memory", "activeDeadlineSeconds", "kubectl logs --previous of the pod"),
    "aws": ("memory of resourceRequirements", "timeout.attemptDurationSeconds", "its stream in CloudWatch"),
    "google": ("memoryMib of computeResource", "maxRunDuration", "its logs in Cloud Logging"),
}
"""By system what memory and time are asked for with, and where more stands."""


def with_recorded_end(diagnosis: Diagnosis, facts: Facts, reasons: Mapping[str, Reason]) -> Diagnosis:
    """Return a diagnosis that agrees with the last record of a scheduler; as it is where there is none, or it tells more itself."""
    record = facts.end_record
    if record is None or (record.is_bad and record.reason == diagnosis.reason and record.system not in _EVENT_LOGS):
        return diagnosis
    reason = reasons.get(record.reason)
    if reason is None or not _outranks(record, diagnosis):
        return diagnosis
    action = _action(record, reason)
    cited = tuple(Citation("job.log", line.number, line.text, "last record") for line in record.lines)
    blamed = record.is_at_fault and action is Action.CORDON_AND_RESTART
    nodes = (NodeFinding(record.host, "each start on it ended before the job did anything", cited),) if blamed else ()
    words = summary(reason, _stands(record), nodes, cited, facts, None)
    if record.reason == "unknown":
        first = record.lines[0]
        words = f"It {_stands(record)}, and nothing tells why: {cut(first.text.strip(), SHOWN_OF_WORDS)} (job.log:{first.number})."
    sure = SURE_OF_STATE if record.state is RecordState.RUNNING else 0.1 if record.reason == "unknown" else SURE
    return replace(
        diagnosis, reason=reason.name, category=reason.category, action=action, confidence=sure, by=DecidedBy.RULE,
        root_cause=cited, nodes=nodes, rivals=(), summary=words, spike_step=None,
        advice=_advice(record, facts) or advice(reason, action, nodes),
    )  # fmt: skip


def with_amounts(diagnosis: Diagnosis, facts: Facts) -> Diagnosis:
    """Return a diagnosis whose advice gives the limit of a record, or the host that it lost, where it does not yet."""
    record = facts.end_record
    if record is None or record.reason != diagnosis.reason:
        return diagnosis
    words = ""
    if record.limit and record.limit not in diagnosis.advice:
        words = _amounts(record, facts)
    elif record.reason == "node_failure" and record.host and record.host not in diagnosis.advice:
        words = f"The node is {record.host}."
    return replace(diagnosis, advice=f"{diagnosis.advice} {words}".strip())


def _outranks(record: EndRecord, diagnosis: Diagnosis) -> bool:
    """Tell whether a record decides against what was made of the case so far."""
    cited = diagnosis.root_cause
    of_record = all(line.file == "job.log" and line.line in record.texts for line in cited)
    silent = diagnosis.reason == "unknown"
    if not record.is_bad:
        if diagnosis.reason == "no_failure":
            return False
        return (bool(cited) and of_record and not silent) or (silent and (of_record or record.state is RecordState.WELL))
    if diagnosis.reason == "no_failure" or silent:
        return True
    if record.system in _EVENT_LOGS:
        return of_record
    if record.reason == "unknown":
        return False
    return (of_record or diagnosis.reason in _WEAK) and record.reason in _STRONG


def _action(record: EndRecord, reason: Reason) -> Action:
    if record.reason == "no_failure" or record.reason == "unknown":
        return reason.action
    if record.state is RecordState.WAITING:
        return Action.WAIT_AND_RETRY
    if record.reason == "node_failure" and not record.is_at_fault:
        return Action.WAIT_AND_RETRY  # contact was lost once: that is no proof against the host
    must_change = record.state is RecordState.ON_HOLD and record.reason not in ("cancelled", "preempted")
    return Action.FIX_AND_RESUBMIT if must_change or record.reason == "out_of_memory_error" else reason.action


def _stands(record: EndRecord) -> str:
    if record.state is RecordState.BAD and record.signal is not None:
        return f"was ended by {signal_name(record.signal)}"
    if record.state is RecordState.BAD and record.code is not None:
        word = "return value" if record.system == "condor" else "exit code"
        return f"ended with {word} {record.code}"
    return {
        RecordState.WELL: "ended well",
        RecordState.BAD: "ended badly",
        RecordState.ON_HOLD: "is held",
        RecordState.WAITING: "was put back and has not been started since",
        RecordState.RUNNING: "runs by the last that its scheduler says",
    }[record.state]


def _advice(record: EndRecord, facts: Facts) -> str:
    """Return what to do about a bad end as its scheduler states it; empty of a good one."""
    if not record.is_bad:
        return ""
    job = f"Job {record.job}" if record.job else "The job"
    at = f"(job.log:{record.lines[0].number})"
    quoted = f' "{cut(record.words.strip(), SHOWN_OF_HOLD).rstrip(".")}"' if record.words else ""
    parts = [f"{job} {_stands(record)}{':' if quoted else ''}{quoted} {at}.", _by_reason(record, facts)]
    if record.state is RecordState.ON_HOLD and record.system in ("pbs", "lsf"):
        release = f"qrls {record.job or 'JOB'}" if record.system == "pbs" else "bresume JOB"
        parts.append(f"It waits for a person: {release} lets it go on, once whoever stopped it says so.")
    elif record.state is RecordState.ON_HOLD and record.system == "condor":
        parts.append(_release_words(record))
    return " ".join(part for part in parts if part)


def _release_words(record: EndRecord) -> str:
    job = record.job
    if record.reason == "cancelled":
        return f"It waits for whoever held it: condor_release {job} lets it go on, once that person says so."
    if record.reason == "preempted":
        return ""
    return (
        f"It waits for a person: mend that first (condor_qedit, or a new submission), then condor_release {job}; "
        "a release alone leads to the same hold."
    )


def _by_reason(record: EndRecord, facts: Facts) -> str:
    memory, _, more = _OPTIONS.get(record.system, ("", "", ""))
    host = f" on {record.host}" if record.host else ""
    match record.reason:
        case "out_of_memory_error" | "time_limit":
            return _amounts(record, facts)
        case "node_failure" if record.is_at_fault:
            return f'Keep it off {record.host} (requirements = Machine != "{record.host}") and tell those who run that host.'
        case "node_failure":
            return (
                f"Contact with it{host or ' on its node'} was lost: see whether that node answers before it is started there "
                "again; the system may put the job back by itself."
            )
        case "preempted":
            short = "Its place was taken, or it was stopped for somebody else"
            return f"{short}: it is not at fault. See whether the system starts it again by itself; if not, submit it again."
        case "cancelled":
            return "" if record.state is RecordState.ON_HOLD else "Somebody wanted it to end: ask them before it is started again."
        case "called_process_error" if record.part:
            rescue = (
                f": submit the same graph again, which takes {record.rescue} (its rescue file) and runs only what is left"
                if record.rescue
                else ""
            )
            return f"Of the graph {record.part} failed: read output and error file of that node, mend it{rescue}."
        case "killed":
            records = more.format(job=record.job or "JOB")
            return f"SIGKILL came from outside, mostly over memory: compare what it used with its limit ({memory}) in {records}."
        case "os_error" | "file_not_found_error" | "permission_error":
            return "Correct the path, the rights or the space that is named there; the same start ends at the same place."
        case _:
            return (
                f"The reason stands in the program's own output and error file, or in {more.format(job=record.job or 'JOB')}."
                if more
                else ""
            )


def _amounts(record: EndRecord, facts: Facts) -> str:
    """Return the limit that was reached with what was used, and with what more is asked for."""
    memory, time, _ = _OPTIONS.get(record.system, ("its limit of memory", "its limit of time", ""))
    used = f" (it used {record.used})" if record.used and record.used != record.limit else ""
    if record.reason == "time_limit":
        seconds = seconds_of(record.limit)
        plain = f", {seconds // 3600} h {seconds % 3600 // 60:02} min" if seconds else ""
        limit = f"Its limit of time was {record.limit}{plain}{used}" if record.limit else "It reached its limit of time"
        return f"{limit}: ask for more ({time}), or let it save and go on from what it saved."
    limit = f"Its limit of memory was {record.limit}{used}" if record.limit else f"It went beyond its memory{used}"
    size = _SIZE.fullmatch(record.limit.strip())
    unit = (size["unit"] or "").upper() if size is not None else ""
    number = float(size["number"]) if size is not None else 0.0
    if size is not None and not unit and number > MIB:
        number, unit = number / MIB, "M"  # a plain number is bytes
    more = memory_to_ask_for(facts, f"{number:g} {unit}B" if unit and number < MIB else "")
    proposal = f"{memory}: {more}" if more else memory
    return f"{limit}: ask for more ({proposal}), or let it hold less."
