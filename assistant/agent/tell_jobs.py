"""Answers about jobs: why one failed, how it stands and what it is at, how two differ, which failed, their logs and checkpoints."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from assistant.agent.answer import (
    AnswerKind,
    AnswerSource,
    count_text,
    cut_text,
    one_line,
    time_text,
    without_quote,
    without_repeats,
)
from assistant.agent.dialogue import QuestionTurn
from assistant.agent.evidence_times import own_lines
from assistant.content.reasons import reasons
from assistant.nodeset import fold
from assistant.records import JobState
from assistant.redact import redact_lines, tail_of

MOST_ROWS = 20
"""Rows of a list; the rest is counted."""
WORTH_TELLING = 0.15
"""Confidence of a rival from which on it is told; `show` prints all of them."""
_STANDS = {
    "failed": "failed",
    "completed": "completed",
    "cancelled": "was cancelled",
    "timeout": "ran into its time limit (timeout)",
}
_LOSS = re.compile(r"\bloss['\"]?[:=]?\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?\d+)?)")
_OF = re.compile(r"\b(?:step|iteration|iter)s?['\"]?[:=]?\s*\d+\s*/\s*(\d+)", re.IGNORECASE)
FAILED = {str(state) for state in JobState if state.failed}
ENDED = {str(state) for state in JobState if state.ended}
ALL_JOBS = 100_000


def explain_job(turn: QuestionTurn) -> Iterator[str]:
    """Tell why a job failed."""
    job = turn.request.job
    status = turn.look("show_job", job=job)
    if status.error:
        yield failed(turn, status)
        return
    if (why := pending_told(turn, job)) and not _has_incident(turn, job):
        yield why
        return
    if status.value["state"] == "completed" and not _has_incident(turn, job):
        yield f"Job {job} ({one_line(status.value['name'], 60)}) has not failed: it is {status.value['state']} [{status.number}]."
        return
    explained = turn.look("explain_job", job=job)
    if explained.error:
        yield f"Job {job} is {status.value['state']} [{status.number}], but why could not be found out: {explained.error}"
        return
    if status.value["state"] == "running" and explained.value["reason"] == "no_failure":
        yield f"Job {job} is running [{status.number}]; nothing that it left so far points to a failure [{explained.number}]."
        for line in explained.value["root_cause"][:1]:
            yield f"  {line['file']}:{line['line']}  {one_line(line['text'], 160)}"
        return
    if status.value["state"] == "running":
        yield f"Job {job} is still running [{status.number}]; this is what its log shows so far."
    yield from diagnosis_told(turn, explained, f"Job {job}")


def pending_told(turn: QuestionTurn, job: str) -> str:
    """Return why a job is pending, as far as the scheduler says; empty where it is not pending."""
    status = turn.look("show_job", job=job)
    if status.error or status.value["state"] != "pending":
        return ""
    mark = f"[{status.number}]"
    if status.value["reason"]:
        return f"The scheduler says {one_line(status.value['reason'], 160)}: for that job {job} is pending {mark}."
    nodes = turn.look("node_states")
    idle = sum(node["state"] == "idle" for node in nodes.value or ())
    free = f"; {count_text(idle, 'node')} {'is' if idle == 1 else 'are'} idle [{nodes.number}]" if not nodes.error else ""
    return f"Not known: job {job} is pending, and the scheduler gives no reason for it {mark}{free}."


def diagnosis_told(turn: QuestionTurn, source: AnswerSource, about: str) -> Iterator[str]:
    """Tell a diagnosis with its proof."""
    diagnosis: Mapping[str, Any] = source.value
    mark = f"[{source.number}]"
    if diagnosis.get("incident") is not None:
        turn.incidents.append(diagnosis["incident"])
    turn.evidence += [number for number in diagnosis.get("evidence", ()) if isinstance(number, int)]
    code = f"{diagnosis['reason']}: {diagnosis['category']}, {diagnosis['confidence']:.2f} sure, by {diagnosis['by']}"
    proof = own_lines(turn, diagnosis, str(diagnosis.get("job") or ""))
    quote = one_line(diagnosis["root_cause"][0]["text"], 200) if diagnosis["root_cause"] else ""
    summary = without_quote(one_line(diagnosis["summary"], 400), quote)
    yield f"{about}: {summary.rstrip('. ') or _title(diagnosis['reason'])} {mark}. ({code})"
    if diagnosis["reason"] == "unknown":
        yield "Nothing that is known here explains it; look at the end of the log and at the nodes."
    lines = [f"  {entry['file']}:{entry['line']}  {one_line(entry['text'], 200)}" for entry in proof[:4]]
    if lines:
        yield "\n".join([f"What shows it {mark}:", *lines])
    for entry in diagnosis["nodes"]:
        why = one_line(entry["why"], 200)
        shortened = without_quote(why, quote)
        why = why if shortened == why else f"{shortened.rstrip('.')} so"
        if len(proof) < len(diagnosis["root_cause"]):
            why = "by lines of another time as well, which are left out here"
        yield f"To blame: {entry['node']} {mark}: {why}."
    for entry in diagnosis["seen_before"][:2]:
        cure = f"; cured by {one_line(entry['cure'], 120)}" if entry["cure"] else ""
        yield f"Seen before in incident {entry['incident']} ({entry['reason']}, similarity {entry['similarity']:.2f}{cure}) {mark}."
    for rival in [entry for entry in diagnosis["rivals"][:1] if entry["confidence"] >= WORTH_TELLING]:
        against, test = one_line(rival["against"], 160).rstrip("."), one_line(rival["test"], 160)
        weighed = f"{rival['reason']} ({rival['confidence']:.2f})"
        yield f"Weighed and not chosen: {weighed}; against it: {against}; what would decide it: {test}"
    if diagnosis["advice"]:
        yield f"What to do: {without_repeats(one_line(diagnosis['advice'], 420))}"
    if diagnosis.get("incident") is not None:
        number = diagnosis["incident"]
        yield f"This is incident {number} ({diagnosis['state']}); the whole report: nightshift explain {number}"


def _title(reason: str) -> str:
    """Return what a reason is called in words."""
    entry = reasons().get(reason)
    return entry.title if entry is not None else reason.replace("_", " ")


def job_status(turn: QuestionTurn) -> Iterator[str]:
    """Tell how a job stands."""
    source = turn.look("show_job", job=turn.request.job)
    if source.error:
        yield failed(turn, source)
        return
    job, mark = source.value, f"[{source.number}]"
    nodes = f" on {fold(job['nodes'])} ({count_text(len(job['nodes']), 'node')})" if job["nodes"] else ""
    about = f"{one_line(job['name'], 60)} of {job['user']}"
    stands = _STANDS.get(job["state"], f"is {job['state']}")
    yield f"Job {job['job']} ({about}) {stands}{nodes}, partition {job['partition']} {mark}."
    if job["state"] == "running":
        reached = turn.look("job_progress", job=job["job"], timeout_s=0.0)
        if not reached.error and isinstance((reached.value or {}).get("step"), int):
            yield f"It is at step {reached.value['step']} [{reached.number}]."
    times = [f"{name} {time_text(job[name], turn.now)}" for name in ("submitted", "started", "ended") if job.get(name)]
    if times:
        yield f"It was {'; '.join(times)} {mark}."
    if job["exit_code"] is not None or job["signal"]:
        signal = f", signal {job['signal']}" if job["signal"] else ""
        yield f"Exit code {job['exit_code']}{signal} {mark}."
    if job["reason"]:
        yield f"The scheduler says: {one_line(job['reason'], 160)} {mark}."
    incidents = turn.look("list_incidents", job=turn.request.job, limit=3)
    for incident in incidents.value or ():
        turn.incidents.append(incident["incident"])
        reason = incident["reason"] or f"not diagnosed yet{f' ({one_line(note, 160)})' if (note := incident.get('note')) else ''}"
        yield f"Incident {incident['incident']} is about it: {reason}, {incident['state']} [{incidents.number}]."
    if job["state"] in FAILED:
        yield f"Why, and what shows it: ask why {job['job']} failed"


def progress(turn: QuestionTurn) -> Iterator[str]:
    """Tell how far a job is."""
    status = turn.look("show_job", job=turn.request.job)
    if status.error:
        yield failed(turn, status)
        return
    source = turn.look("job_progress", job=turn.request.job, timeout_s=0.0)
    state = status.value["state"]
    yield f"Job {turn.request.job} {_STANDS.get(state, 'is ' + state)} [{status.number}]."
    if source.error:
        yield failed(turn, source)
        return
    step = source.value.get("step")
    lines = turn.look("search_log", job=turn.request.job, pattern="loss", most=3)
    last = str(lines.value).splitlines()[-1] if not lines.error and "\n" in str(lines.value) else ""
    total = _OF.search(last)
    if step is None:
        yield f"No step of training was seen in its log yet [{source.number}]. {one_line(source.value['note'], 200)}"
    elif total and int(total[1]) >= step > 0:
        yield f"It reached step {step} of {total[1]}, {step / int(total[1]):.0%} [{source.number}]."
    else:
        yield f"It reached step {step} [{source.number}]."
    if loss := _LOSS.search(last):
        yield f"The last loss in its log is {float(loss[1]):.4g} [{lines.number}]: {one_line(last, 160)}"


def compare_jobs(turn: QuestionTurn) -> Iterator[str]:
    """Tell what two jobs have in common."""
    both = (turn.request.job, turn.request.other_job)
    jobs = [turn.look("show_job", job=job) for job in both]
    unreadable = next((source for source in jobs if source.error), None)
    if unreadable is not None:
        yield failed(turn, unreadable)
        return
    why = [turn.look("explain_job", job=job) for job in both]
    for job, status, explained in zip(both, jobs, why, strict=True):
        reason = explained.value["reason"] if explained.value else f"not known ({explained.error})"
        ran = fold(status.value["nodes"]) or "no node"
        yield f"Job {job}: {status.value['state']} on {ran} [{status.number}], {reason} [{explained.number}]."
        if explained.value:
            turn.incidents += [explained.value["incident"]] if explained.value.get("incident") is not None else []
            for line in own_lines(turn, explained.value, job)[:1]:
                yield f"  {line['file']}:{line['line']}  {one_line(line['text'], 180)}"
    reasons = [explained.value["reason"] if explained.value else None for explained in why]
    if None not in reasons:
        is_same = reasons[0] == reasons[1]
        yield f"Same reason: {'yes' if is_same else 'no'} ({reasons[0]}" + ("" if is_same else f" and {reasons[1]}") + ")."
    shared = [node for node in jobs[0].value["nodes"] if node in jobs[1].value["nodes"]]
    blamed = {entry["node"] for explained in why if explained.value for entry in explained.value["nodes"]}
    guilty = [node for node in shared if node in blamed]
    yield f"Nodes in common: {fold(shared) or 'none'}" + (f"; to blame among them: {fold(guilty)}" if guilty else "") + "."


def failed_jobs(turn: QuestionTurn) -> Iterator[str]:
    """Tell which jobs failed, how many, and of what."""
    hours, span = turn.request.names.hours, turn.request.names.span
    listed = turn.look("list_jobs", limit=ALL_JOBS)
    if listed.error:
        yield failed(turn, listed)
        return
    since = _start_of_span(turn, hours)
    jobs = [job for job in listed.value if job["state"] in FAILED and _ended_after(job, since)]
    users = turn.request.names.users
    jobs = [job for job in jobs if not users or job["user"] in users]
    of = f" of {', '.join(users)}" if users else ""
    within = f" in {span}" if span else ""
    yield (
        f"{len(jobs)} jobs{of} failed{within} [{listed.number}]."
        if len(jobs) != 1
        else f"1 job{of} failed{within} [{listed.number}]."
    )
    incidents = turn.look("list_incidents", limit=400)
    reasons = {incident["job"]: incident for incident in reversed(incidents.value or ())}
    yield from _rows([_job_row(job, reasons.get(job["job"])) for job in jobs[:MOST_ROWS]], len(jobs), f"[{listed.number}]")
    counts = Counter(str(reasons[job["job"]]["reason"]) for job in jobs if job["job"] in reasons and reasons[job["job"]]["reason"])
    if len(counts) > 1 or (counts and len(jobs) > 1):
        yield f"By reason [{incidents.number}]: {', '.join(f'{reason} x {count}' for reason, count in counts.most_common())}."


def list_jobs(turn: QuestionTurn) -> Iterator[str]:
    """Tell which jobs there are, by state and user."""
    listed = turn.look("list_jobs", limit=ALL_JOBS)
    if listed.error:
        yield failed(turn, listed)
        return
    words, users = turn.request.question.lower(), turn.request.names.users
    wanted_state = next((state for word, state in _STATES.items() if re.search(rf"\b(?:{word})\b", words)), "")
    if not wanted_state and not users and re.search(r"\b(?:now|currently|moment|busy)\b", words):
        wanted_state = "running"
    since = _start_of_span(turn, turn.request.names.hours)
    jobs = [
        job
        for job in listed.value
        if (not wanted_state or job["state"] == wanted_state)
        and (not users or job["user"] in users)
        and _ended_after(job, since, running=True)
    ]
    of = f" of {', '.join(users)}" if users else ""
    counts = Counter(job["state"] for job in jobs)
    states = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    yield f"{len(jobs)} {'job' if len(jobs) == 1 else 'jobs'}{of}{f' {wanted_state}' if wanted_state else ''}" + (
        f": {states} [{listed.number}]." if jobs and not wanted_state else f" [{listed.number}]."
    )
    yield from _rows([_job_row(job, None) for job in jobs[:MOST_ROWS]], len(jobs), f"[{listed.number}]")


_STATES = {
    r"pending|waits?|waiting|queued?": "pending",
    r"(?:what|who|that|which job) runs|runs (?:now|at|right)|running|active|computing|trained": "running",
    r"cancell?ed": "cancelled",
    r"completed?|finish(?:ed)?|done": "completed",
    "preempted": "preempted",
    "timed out": "timeout",
}
"""Words that ask for jobs of one state."""


def _job_row(job: Mapping[str, Any], incident: Mapping[str, Any] | None) -> str:
    nodes = fold(job["nodes"]) or "-"
    about = f"; incident {incident['incident']}: {incident['reason'] or 'not diagnosed'}, {incident['state']}" if incident else ""
    return f"  {job['job']}  {one_line(job['name'], 40)}  {job['user']}  {job['state']}  {nodes}{about}"


def _rows(rows: Sequence[str], total: int, mark: str) -> Iterator[str]:
    if rows:
        yield "\n".join(rows)
    if total > len(rows):
        yield f"… and {total - len(rows)} more {mark}."


def _has_incident(turn: QuestionTurn, job: str) -> bool:
    return job in turn.inventory.incidents.values()


def _start_of_span(turn: QuestionTurn, hours: float | None) -> datetime | None:
    return turn.now - timedelta(hours=hours) if hours else None


def _ended_after(job: Mapping[str, Any], since: datetime | None, *, running: bool = False) -> bool:
    if since is None:
        return True
    ended = job.get("ended")
    return datetime.fromisoformat(ended) >= since if ended else running


def failed(turn: QuestionTurn, source: AnswerSource) -> str:
    """Return how a failed call is told."""
    turn.kind = AnswerKind.UNKNOWN
    return f"That is not known now: {source.error} [{source.number}]"


LINES = 30
MOST_LINES = 400
ERRORS = r"\b(?:error|exception|traceback|fatal|xid|failed|killed|oom|abort\w*|timeout)\b"
CHARACTERS = 6_000
"""Of a log in an answer; `show 1` gives all of it."""


def show_log(turn: QuestionTurn) -> Iterator[str]:
    """Show the end of a log."""
    count = min(turn.request.names.lines or LINES, MOST_LINES)
    source = turn.look("tail_log", job=turn.request.job, lines=count)
    if source.error:
        yield failed(turn, source)
        return
    text = str(source.value)
    lines = text.splitlines()
    yield f"The last {len(lines)} lines of the log of job {turn.request.job} [{source.number}]:"
    # the end of it is what was asked for, so a long one is cut at its beginning
    yield (
        _block(tail_of("\n".join(one_line(line, 400) for line in redact_lines(lines)), CHARACTERS * 4))
        if lines
        else "  (nothing yet)"
    )


def log_errors(turn: QuestionTurn) -> Iterator[str]:
    """Show what counts in a log."""
    source = turn.look("search_log", job=turn.request.job, pattern=ERRORS, most=12)
    if source.error:
        yield failed(turn, source)
        return
    first, *lines = str(source.value).splitlines()
    number = re.match(r"[\d,]+", first)
    total = number.group() if number else "0"
    if total == "0":
        yield f"No line of the log of job {turn.request.job} speaks of an error [{source.number}]."
    else:
        speak = (
            "1 line of the log of job {} speaks of an error"
            if total == "1"
            else f"{total} lines of the log of job {{}} speak of errors"
        )
        yield f"{speak.format(turn.request.job)} [{source.number}]:"
        yield _block("\n".join(one_line(line, 260) for line in lines))
    why = turn.look("explain_job", job=turn.request.job)
    for line in (why.value or {}).get("root_cause", ())[:1]:
        place = f"{line['file']}:{line['line']}"
        yield f"The one that counts [{why.number}]: {place}  {one_line(line['text'], 260)} ({why.value['reason']})"
    short = turn.look("compress_log", job=turn.request.job, budget=CHARACTERS)
    if not short.error:
        yield f"A short version of the whole log is source {short.number}: show {short.number}"


def search_log(turn: QuestionTurn) -> Iterator[str]:
    """Show the lines of a log that hold a text."""
    texts = turn.request.names.texts
    if not texts:
        turn.kind = AnswerKind.ASKS_BACK
        yield f'What shall be searched for in the log of job {turn.request.job}? Put it in quotes: "NCCL".'
        return
    source = turn.look("search_log", job=turn.request.job, pattern=re.escape(texts[0]), most=10)
    if source.error:
        yield failed(turn, source)
        return
    first, *lines = str(source.value).splitlines()
    number = re.match(r"[\d,]+", first)
    count = number.group() if number else "0"
    hold = "line holds" if count == "1" else "lines hold"
    yield f'In the log of job {turn.request.job} {count} {hold} "{one_line(texts[0], 80)}" [{source.number}].'
    if lines:
        yield _block("\n".join(one_line(line, 260) for line in lines))


def scheduler_log(turn: QuestionTurn) -> Iterator[str]:
    """Show what the controller logged about a job."""
    source = turn.look("scheduler_log", job=turn.request.job)
    if source.error:
        yield failed(turn, source)
        return
    lines = str(source.value["text"]).splitlines()
    number = count_text(len(lines), "line")
    yield f"The scheduler's log has {number} about job {turn.request.job} and its nodes [{source.number}]; the last:"
    yield _block("\n".join(one_line(line, 260) for line in lines[-15:])) if lines else "  (none)"


def checkpoints(turn: QuestionTurn) -> Iterator[str]:
    """Tell which checkpoints a job has and which of them may be loaded."""
    source = turn.look("list_checkpoints", job=turn.request.job)
    if source.error:
        yield failed(turn, source)
        return
    saved, mark = source.value["checkpoints"], f"[{source.number}]"
    good = [checkpoint for checkpoint in saved if checkpoint["healthy"]]
    doubt = one_line(str(source.value.get("doubt", "")), 300)
    subject = "Several runs save" if doubt else f"Job {turn.request.job} has {len(saved)} checkpoints"
    count = f": {len(saved)} checkpoints" if doubt else ""
    yield f"{subject} in {source.value['folder']}{count}, {len(good)} of them healthy {mark}."
    if doubt:
        yield f"{doubt[:1].upper()}{doubt[1:]} {mark}."
    rows = [_checkpoint_row(checkpoint, turn.now) for checkpoint in saved[-15:]]
    if rows:
        yield "\n".join(rows)
    if good and not doubt:
        yield f"The newest healthy one is of step {good[-1]['step']} {mark}: {good[-1]['path']}"


def newest_checkpoint(turn: QuestionTurn) -> Iterator[str]:
    """Tell from which checkpoint a job would be restarted."""
    source = turn.look("choose_checkpoint", job=turn.request.job)
    if source.error:
        yield failed(turn, source)
        return
    choice, mark = source.value, f"[{source.number}]"
    if choice["restart_from"] == "none":
        note = one_line(choice["note"], 200)
        yield f"Job {turn.request.job} never saved a checkpoint; it would begin at the start {mark}. {note}"
        return
    if not choice["restart_from"]:
        is_open = any(checkpoint.get("undecided") for checkpoint in choice["refused"])
        none = "It is not known whether a checkpoint" if is_open else "No checkpoint"
        yield f"{none} of job {turn.request.job} may be loaded {mark}: {one_line(choice['note'], 300)}"
        return
    yield f"Job {turn.request.job} would restart from step {choice['step']} {mark}: {choice['path']}"
    for checkpoint in choice["refused"]:
        word = "not judged" if checkpoint.get("undecided") else "refused"
        yield f"  {word}: step {checkpoint['step']}: {one_line('; '.join(checkpoint['problems']), 200)}"
    reached = turn.look("job_progress", job=turn.request.job, timeout_s=0.0)
    step = (reached.value or {}).get("step")
    if isinstance(step, int) and step > choice["step"]:
        yield f"It had reached step {step} [{reached.number}], so {step - choice['step']} steps would be done again."


def _checkpoint_row(checkpoint: Mapping[str, Any], now: datetime) -> str:
    size = checkpoint["size_bytes"] / 1e6
    problems = one_line("; ".join(checkpoint["problems"]), 160)
    refused = problems if checkpoint.get("undecided") else f"not to be loaded: {problems}"
    healthy_text = (
        f"not judged, others of its series speak for it: {one_line(checkpoint['unread'], 120)}"
        if checkpoint.get("unread")
        else "healthy"
    )
    state = healthy_text if checkpoint["healthy"] else refused
    return f"  step {checkpoint['step']}  {size:,.1f} MB  saved {time_text(checkpoint['saved_at'], now)}  {state}"


def _block(text: str) -> str:
    return "\n".join(f"  {line}" for line in cut_text(text, CHARACTERS * 4).splitlines())


MOST_NODES = 8
"""Nodes or classes of ranks that are told; the rest is counted."""


def gpu_use(turn: QuestionTurn) -> Iterator[str]:
    """Tell whether the GPUs of a job compute, wait or idle."""
    source = turn.look("gpu_activity", job=turn.request.job)
    if source.error:
        yield failed(turn, source)
        return
    mark = f"[{source.number}]"
    yield f"GPUs of job {turn.request.job}: {one_line(source.value['text'], 400)} {mark}."
    nodes = source.value["nodes"]
    for node, activity in list(nodes.items())[:MOST_NODES]:
        gpus = ", ".join(f"{gpu['gpu']} {gpu['state']}" for gpu in activity["gpus"])
        yield f"  {node}: {one_line(gpus, 200)} {mark}"
    if len(nodes) > MOST_NODES:
        yield f"  and {count_text(len(nodes) - MOST_NODES, 'more node')} {mark}"


def stacks(turn: QuestionTurn) -> Iterator[str]:
    """Tell where the ranks of a job stand, and which stand apart."""
    source = turn.look("stack_classes", job=turn.request.job)
    if source.error:
        yield failed(turn, source)
        return
    mark = f"[{source.number}]"
    yield f"Ranks of job {turn.request.job}: {one_line(source.value['text'] or 'no stack was seen', 600)} {mark}."
    unknown = source.value.get("unknown") or {}
    for node, why in list(unknown.items())[:MOST_NODES]:
        yield f"  {node}: not known, {one_line(why, 160)} {mark}"
