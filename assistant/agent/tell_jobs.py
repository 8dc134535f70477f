"""Answers about jobs: why one failed, how it stands, how two differ, which failed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from assistant.agent.answer import Kind, Source
from assistant.agent.phrasing import counted, once, when, without_quote
from assistant.agent.turn import Turn
from assistant.agent.wording import one_line
from assistant.nodeset import fold
from assistant.records import JobState

SHOWN = 20
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


def explain_job(turn: Turn) -> Iterator[str]:
    """Tell why a job failed."""
    job = turn.asked.job
    shown = turn.look("show_job", job=job)
    if shown.error:
        yield failed(turn, shown)
        return
    if shown.value["state"] in ("pending", "completed") and not _has_incident(turn, job):
        yield f"Job {job} ({one_line(shown.value['name'], 60)}) has not failed: it is {shown.value['state']} [{shown.number}]."
        return
    found = turn.look("explain_job", job=job)
    if found.error:
        yield f"Job {job} is {shown.value['state']} [{shown.number}], but why could not be found out: {found.error}"
        return
    if shown.value["state"] == "running" and found.value["reason"] == "no_failure":
        yield f"Job {job} is running [{shown.number}]; nothing that it left so far points to a failure [{found.number}]."
        for line in found.value["root_cause"][:1]:
            yield f"  {line['file']}:{line['line']}  {one_line(line['text'], 160)}"
        return
    if shown.value["state"] == "running":
        yield f"Job {job} is still running [{shown.number}]; this is what its log shows so far."
    yield from diagnosis_told(turn, found, f"Job {job}")


def diagnosis_told(turn: Turn, found: Source, about: str) -> Iterator[str]:
    """Tell a diagnosis with its proof."""
    told: Mapping[str, Any] = found.value
    mark = f"[{found.number}]"
    if told.get("incident") is not None:
        turn.incidents.append(told["incident"])
    turn.evidence += [number for number in told.get("evidence", ()) if isinstance(number, int)]
    sure = f"confidence {told['confidence']:.2f}, by {told['by']}"
    quote = one_line(told["root_cause"][0]["text"], 200) if told["root_cause"] else ""
    summary = without_quote(one_line(told["summary"], 400), quote)
    yield f"{about}: {told['reason']} ({told['category']}, {sure}) {mark}. {summary}"
    if told["reason"] == "unknown":
        yield "Nothing that is known here explains it; look at the end of the log and at the nodes."
    lines = [f"  {one['file']}:{one['line']}  {one_line(one['text'], 200)}" for one in told["root_cause"][:4]]
    if lines:
        yield "\n".join([f"What shows it {mark}:", *lines])
    for one in told["nodes"]:
        why = one_line(one["why"], 200)
        said = without_quote(why, quote)
        why = why if said == why else f"{said.rstrip('.')} so"
        yield f"To blame: {one['node']} {mark}: {why}."
    for one in told["seen_before"][:2]:
        cure = f"; cured by {one_line(one['cure'], 120)}" if one["cure"] else ""
        yield f"Seen before in incident {one['incident']} ({one['reason']}, similarity {one['similarity']:.2f}{cure}) {mark}."
    for rival in [one for one in told["rivals"][:1] if one["confidence"] >= WORTH_TELLING]:
        against, test = one_line(rival["against"], 160).rstrip("."), one_line(rival["test"], 160)
        weighed = f"{rival['reason']} ({rival['confidence']:.2f})"
        yield f"Weighed and not chosen: {weighed}; against it: {against}; what would decide it: {test}"
    if told["advice"]:
        yield f"What to do: {once(one_line(told['advice'], 420))}"
    if told.get("incident") is not None:
        yield f"This is incident {told['incident']} ({told['state']}); the whole report: nightshift explain {told['incident']}"


def job_status(turn: Turn) -> Iterator[str]:
    """Tell how a job stands."""
    shown = turn.look("show_job", job=turn.asked.job)
    if shown.error:
        yield failed(turn, shown)
        return
    job, mark = shown.value, f"[{shown.number}]"
    nodes = f" on {fold(job['nodes'])} ({counted(len(job['nodes']), 'node')})" if job["nodes"] else ""
    about = f"{one_line(job['name'], 60)} of {job['user']}"
    stands = _STANDS.get(job["state"], f"is {job['state']}")
    yield f"Job {job['job']} ({about}) {stands}{nodes}, partition {job['partition']} {mark}."
    times = [f"{name} {when(job[name], turn.now)}" for name in ("submitted", "started", "ended") if job.get(name)]
    if times:
        yield f"It was {'; '.join(times)} {mark}."
    if job["exit_code"] is not None or job["signal"]:
        signal = f", signal {job['signal']}" if job["signal"] else ""
        yield f"Exit code {job['exit_code']}{signal} {mark}."
    if job["reason"]:
        yield f"The scheduler says: {one_line(job['reason'], 160)} {mark}."
    incidents = turn.look("list_incidents", job=turn.asked.job, limit=3)
    for one in incidents.value or ():
        turn.incidents.append(one["incident"])
        reason = one["reason"] or "not diagnosed yet"
        yield f"Incident {one['incident']} is about it: {reason}, {one['state']} [{incidents.number}]."
    if job["state"] in FAILED:
        yield f"Why, and what shows it: ask why {job['job']} failed"


def progress(turn: Turn) -> Iterator[str]:
    """Tell how far a job is."""
    shown = turn.look("show_job", job=turn.asked.job)
    if shown.error:
        yield failed(turn, shown)
        return
    found = turn.look("job_progress", job=turn.asked.job, timeout_s=0.0)
    state = shown.value["state"]
    yield f"Job {turn.asked.job} {_STANDS.get(state, 'is ' + state)} [{shown.number}]."
    if found.error:
        yield failed(turn, found)
        return
    step = found.value.get("step")
    lines = turn.look("search_log", job=turn.asked.job, pattern="loss", most=3)
    last = str(lines.value).splitlines()[-1] if not lines.error and "\n" in str(lines.value) else ""
    whole = _OF.search(last)
    if step is None:
        yield f"No step of training was seen in its log yet [{found.number}]. {one_line(found.value['note'], 200)}"
    elif whole and int(whole[1]) >= step > 0:
        yield f"It reached step {step} of {whole[1]}, {step / int(whole[1]):.0%} [{found.number}]."
    else:
        yield f"It reached step {step} [{found.number}]."
    if last:
        loss = _LOSS.search(last)
        told = f" is {float(loss[1]):.4g}" if loss else ""
        yield f"The last loss in its log{told} [{lines.number}]: {one_line(last, 160)}"


def compare_jobs(turn: Turn) -> Iterator[str]:
    """Tell what two jobs have in common."""
    both = (turn.asked.job, turn.asked.other_job)
    jobs = [turn.look("show_job", job=job) for job in both]
    broken = next((source for source in jobs if source.error), None)
    if broken is not None:
        yield failed(turn, broken)
        return
    why = [turn.look("explain_job", job=job) for job in both]
    for job, shown, found in zip(both, jobs, why, strict=True):
        reason = found.value["reason"] if found.value else f"not known ({found.error})"
        ran = fold(shown.value["nodes"]) or "no node"
        yield f"Job {job}: {shown.value['state']} on {ran} [{shown.number}], {reason} [{found.number}]."
        if found.value:
            turn.incidents += [found.value["incident"]] if found.value.get("incident") is not None else []
            for line in found.value["root_cause"][:1]:
                yield f"  {line['file']}:{line['line']}  {one_line(line['text'], 180)}"
    reasons = [found.value["reason"] if found.value else None for found in why]
    if None not in reasons:
        same = reasons[0] == reasons[1]
        yield f"Same reason: {'yes' if same else 'no'} ({reasons[0]}" + ("" if same else f" and {reasons[1]}") + ")."
    shared = [node for node in jobs[0].value["nodes"] if node in jobs[1].value["nodes"]]
    blamed = {one["node"] for found in why if found.value for one in found.value["nodes"]}
    guilty = [node for node in shared if node in blamed]
    yield f"Nodes in common: {fold(shared) or 'none'}" + (f"; to blame among them: {fold(guilty)}" if guilty else "") + "."


def failed_jobs(turn: Turn) -> Iterator[str]:
    """Tell which jobs failed, how many, and of what."""
    hours, span = turn.asked.names.hours, turn.asked.names.span
    listed = turn.look("list_jobs", limit=ALL_JOBS)
    if listed.error:
        yield failed(turn, listed)
        return
    since = _since(turn, hours)
    jobs = [job for job in listed.value if job["state"] in FAILED and _ended_after(job, since)]
    users = turn.asked.names.users
    jobs = [job for job in jobs if not users or job["user"] in users]
    of = f" of {', '.join(users)}" if users else ""
    within = f" in {span}" if span else ""
    yield (
        f"{len(jobs)} jobs{of} failed{within} [{listed.number}]."
        if len(jobs) != 1
        else f"1 job{of} failed{within} [{listed.number}]."
    )
    incidents = turn.look("list_incidents", limit=400)
    reasons = {one["job"]: one for one in reversed(incidents.value or ())}
    yield from _rows([_job_row(job, reasons.get(job["job"])) for job in jobs[:SHOWN]], len(jobs), f"[{listed.number}]")
    counted = Counter(str(reasons[job["job"]]["reason"]) for job in jobs if job["job"] in reasons and reasons[job["job"]]["reason"])
    if len(counted) > 1 or (counted and len(jobs) > 1):
        yield f"By reason [{incidents.number}]: {', '.join(f'{reason} x {count}' for reason, count in counted.most_common())}."


def list_jobs(turn: Turn) -> Iterator[str]:
    """Tell which jobs there are, by state and user."""
    listed = turn.look("list_jobs", limit=ALL_JOBS)
    if listed.error:
        yield failed(turn, listed)
        return
    words, users = turn.asked.question.lower(), turn.asked.names.users
    wanted = next((state for word, state in _STATES.items() if re.search(rf"\b{word}\b", words)), "")
    if not wanted and not users and re.search(r"\b(?:now|currently|moment|busy)\b", words):
        wanted = "running"
    since = _since(turn, turn.asked.names.hours)
    jobs = [
        job
        for job in listed.value
        if (not wanted or job["state"] == wanted) and (not users or job["user"] in users) and _ended_after(job, since, running=True)
    ]
    of = f" of {', '.join(users)}" if users else ""
    counted = Counter(job["state"] for job in jobs)
    states = ", ".join(f"{count} {state}" for state, count in counted.most_common())
    yield f"{len(jobs)} {'job' if len(jobs) == 1 else 'jobs'}{of}{f' {wanted}' if wanted else ''}" + (
        f": {states} [{listed.number}]." if jobs and not wanted else f" [{listed.number}]."
    )
    yield from _rows([_job_row(job, None) for job in jobs[:SHOWN]], len(jobs), f"[{listed.number}]")


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


def _has_incident(turn: Turn, job: str) -> bool:
    return job in turn.known.incidents.values()


def _since(turn: Turn, hours: float | None) -> datetime | None:
    return turn.now - timedelta(hours=hours) if hours else None


def _ended_after(job: Mapping[str, Any], since: datetime | None, *, running: bool = False) -> bool:
    if since is None:
        return True
    ended = job.get("ended")
    return datetime.fromisoformat(ended) >= since if ended else running


def failed(turn: Turn, source: Source) -> str:
    """Return how a failed call is told."""
    turn.kind = Kind.UNKNOWN
    return f"That is not known now: {source.error} [{source.number}]"
