"""The form of a question, and the sentence that answers it first: yes or no, a number, a name, a time; then why.

The sentence is made from what the answer looked up already. Where its sources do not bear it, there is none, or it says that it is
not known; a scheduler that gives no answer is never a no.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from assistant.agent.answer import AnswerSource, count_text, one_line, time_text
from assistant.agent.changes_asked import change_made
from assistant.agent.dialogue import QuestionTurn
from assistant.agent.node_leads import (
    BAD,
    GOOD,
    MOVES,
    OUT,
    STUCK,
    health_yes_no,
    node_person,
    node_when,
    node_yes_no,
    nodes_how_many,
    nodes_yes_no,
    says,
    source_of,
    upper,
)
from assistant.agent.tell_jobs import FAILED, pending_told
from assistant.nodeset import fold

QUIET_MIN = 15
"""Minutes without a line in its log, from which on a running job is not said to move."""
MOST_WHYS = 3


class QuestionForm(StrEnum):
    """What the first sentence of an answer has to be."""

    YES_NO = "yes_no"
    HOW_MANY = "how_many"
    PERSON = "who"
    WHEN = "when"
    HOW_LONG = "how_long"
    FREE = "other"


_GREETING = (
    r"^\W*(?:(?:hi|hey|hello|(?:good )?(?:morning|evening|afternoon)|ok|okay|so|and|but|now|well|please|tell me(?: if"
    r"| whether)?|do you know (?:if|whether))\b[\s,]*)*"
)
_FORMS = (
    (
        QuestionForm.HOW_LONG,
        re.compile(
            rf"{_GREETING}(?:for )?(?:how long|how (?:many|much) (?:seconds|secs|minutes|mins|hours|hrs|days|time)"
            rf"|what (?:was|is) the (?:duration|run ?time))\b"
        ),
    ),
    (QuestionForm.HOW_MANY, re.compile(rf"{_GREETING}(?:how many|how much|what is the number of|count)\b")),
    (QuestionForm.WHEN, re.compile(rf"{_GREETING}(?:since |until |at )?(?:when|what time)\b|\bsince when\s*\??$")),
    (QuestionForm.PERSON, re.compile(rf"{_GREETING}(?:who|whose)\b")),
    (
        QuestionForm.YES_NO,
        re.compile(
            rf"{_GREETING}(?:is|are|was|were|did|does|do|has|have|had|isn't|aren't|didn't|doesn't|hasn't|am|any|anything|"
            r"(?:can|could|may|should|will|would) (?!you\b))\b"
        ),
    ),
)


def form_of(sentence: str) -> QuestionForm:
    """Return the form of a question."""
    text = sentence.lower()
    return next((form for form, pattern in _FORMS if pattern.search(text)), QuestionForm.FREE)


_SUPPOSES = re.compile(r"\b(?:would|could|might|should)\b.*\bhave\b|\bhad (?:i|we|you|they|it)\b|\bif .* had\b")


def first_sentence(turn: QuestionTurn) -> str:
    """Return the sentence that answers the form of a question from what was looked up for it; empty where there is none."""
    sketch = turn.request.form_text or turn.request.names.sketch
    form, text = form_of(sketch), sketch.lower()
    if form is QuestionForm.YES_NO and _SUPPOSES.search(text):
        # how things stand is no yes or no to what would have been
        return ""
    lead = _LEADS.get((form, turn.request.intent))
    if lead is None and turn.request.job and form in _OF_A_JOB and turn.request.intent in _ABOUT_A_JOB:
        # when, and how long, is in the record of the job, whatever else was looked up
        turn.look("show_job", job=turn.request.job)
        lead = _LEADS[form, "job_status"]
    return lead(turn, text) if lead is not None else ""


# Jobs


def _job_yes_no(turn: QuestionTurn, text: str) -> str:
    source = source_of(turn, "show_job")
    if source is None:
        return ""
    job, mark = source.value, f"[{source.number}]"
    state, name = job["state"], f"job {job['job']}"
    ended = f", {time_text(job['ended'], turn.now)}" if job["ended"] else ""
    if says(text, STUCK):
        return stuck_text(turn, job, wants_stuck=not says(text, MOVES))
    state_asked = _wanted_state(text)
    if state_asked:
        is_so = (
            state in FAILED
            if state_asked == "failed"
            else state == state_asked or (state_asked == "ended" and state not in ("running", "pending"))
        )
        word = {"failed": "it failed", "completed": "it completed"}.get(state, f"it is {state}")
        return f"{'Yes' if is_so else 'No'}: {word}{ended} ({name}) {mark}."
    if says(text, GOOD):
        if state == "running":
            return f"Yes, as far as the scheduler tells: {name} is running {mark}."
        return f"{'Yes' if state == 'completed' else 'No'}: {name} is {state}{ended} {mark}."
    return ""


def _wanted_state(text: str) -> str:
    states = (
        ("completed", "completed|succeeded|successful|successfully"),
        ("ended", "finished|done|over|ended|finish"),
        ("failed", "failed|fail|crashed|crash|died|dead|broken|broke|killed"),
        ("running", "running|run|still|active|started"),
        ("pending", "pending|queued|waiting"),
        ("cancelled", "cancelled|canceled"),
    )
    return next((state for state, words in states if says(text, words)), "")


_STAMP = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)")


def stuck_text(turn: QuestionTurn, job: Mapping[str, Any], *, wants_stuck: bool = True) -> str:
    """Return whether a job moves: by an open incident about a hang, else by the time of the last line of its log."""
    name = f"job {job['job']}"
    if job["state"] == "pending":
        submitted = f" since {time_text(job['submitted'], turn.now)}" if job["submitted"] else ""
        return f"It has not started: {name} waits{submitted}. {pending_told(turn, job['job'])}"
    if job["state"] != "running":
        yes = "No" if wants_stuck or job["state"] != "completed" else "No longer"
        ended = f" since {time_text(job['ended'], turn.now)}" if job["ended"] else ""
        return f"{yes}: {name} does not run, it is {job['state']}{ended}."
    incidents = turn.look("list_incidents", job=job["job"], open_only=True)
    hang = next((row for row in incidents.value or () if "hang" in f"{row['reason']} {row['kind']} {row['summary']}"), None)
    if hang is not None:
        opened = time_text(hang["opened"], turn.now)
        return (
            f"{'Yes' if wants_stuck else 'No'}: {name} hangs, noticed {opened} (incident {hang['incident']}) [{incidents.number}]."
        )
    tail = turn.look("tail_log", job=job["job"], lines=40)
    stamps = _STAMP.findall(str(tail.value or ""))
    if not stamps:
        return f"Not known: the log of {name} has no times, and no open incident speaks of a hang [{tail.number}]."
    at = datetime.fromisoformat(f"{stamps[-1][0]}T{stamps[-1][1]}+00:00")
    quiet_min = (turn.now - at).total_seconds() / 60
    if quiet_min < QUIET_MIN:
        step = turn.look("job_progress", job=job["job"], timeout_s=0.0)
        at_step = f" at step {step.value['step']} [{step.number}]" if step.value and step.value.get("step") is not None else ""
        return f"{'No' if wants_stuck else 'Yes'}: its log moved {time_text(at.isoformat(), turn.now)}{at_step} [{tail.number}]."
    last_change = time_text(at.isoformat(), turn.now)
    return f"Perhaps: nothing new stands in its log since {last_change} [{tail.number}]; no incident is open about it."


def _job_who(turn: QuestionTurn, text: str) -> str:
    source = source_of(turn, "show_job")
    if source is None or not says(text, "who|whose") or says(text, "killed|cancelled|stopped|broke|crashed|acknowledged|approved"):
        return ""
    return f"{source.value['user']}: job {source.value['job']} ({one_line(source.value['name'], 60)}) is theirs [{source.number}]."


def _job_when(turn: QuestionTurn, text: str) -> str:
    source = source_of(turn, "show_job")
    if source is None:
        return ""
    job, mark = source.value, f"[{source.number}]"
    if says(text, "finish|finished|done|complete|ready") and job["state"] == "running":
        return _remaining(turn, job)
    for words, key, verb in (
        ("end|ended|fail|failed|crash|crashed|die|died|stop|stopped|finish|finished|killed|cancelled|done", "ended", "ended"),
        ("submit|submitted|queued|wait|waiting|pending", "submitted", "was submitted"),
        ("start|started|begin|began|run|running|since", "started", "started"),
    ):
        if says(text, words):
            if not job[key]:
                return f"Not yet, or not known: job {job['job']} is {job['state']}, and no such time is recorded {mark}."
            return f"{upper(time_text(job[key], turn.now))}: job {job['job']} {verb} then {mark}."
    return ""


_TOTAL = re.compile(r"\b(?:step|iteration|iter)s?\W{0,12}(\d+)\s*/\s*(\d+)", re.IGNORECASE)
_MS = re.compile(r"(?:elapsed )?time per iteration \(ms\)\W{0,12}([0-9.]+)", re.IGNORECASE)


def _remaining(turn: QuestionTurn, job: Mapping[str, Any]) -> str:
    """Return when a running job would be done at the speed of its last steps."""
    tail = turn.look("tail_log", job=job["job"], lines=40)
    lines = [line for line in str(tail.value or "").splitlines() if _TOTAL.search(line)]
    speeds = [float(match[1]) / 1000 for line in lines[-20:] if (match := _MS.search(line))]
    if not lines or not speeds or not (total := _TOTAL.search(lines[-1])):
        return (
            f"Not known: the log of job {job['job']} does not say how many steps it makes and how long one takes [{tail.number}]."
        )
    steps_left = int(total[2]) - int(total[1])
    seconds = steps_left * sum(speeds) / len(speeds)
    speed, doubt = sum(speeds) / len(speeds), ""
    if (by_clock := _seconds_by_clock(lines)) and not 0.75 < by_clock / speed < 1.33:
        doubt = f" by the times of its log, which itself says {speed:.3g} s"
        speed, seconds = by_clock, steps_left * by_clock
    at = time_text((turn.now + timedelta(seconds=seconds)).isoformat(), turn.now)
    return f"About {at}: {steps_left:,} of {int(total[2]):,} steps are left at {speed:.3g} s each{doubt} [{tail.number}]."


def step_seconds(turn: QuestionTurn, job: str) -> tuple[float, int]:
    """Return how long a step of a running job took lately, 0 where its log does not tell, and the number of the source."""
    tail = turn.look("tail_log", job=job, lines=40)
    lines = [line for line in str(tail.value or "").splitlines() if _TOTAL.search(line)]
    speeds = [float(match[1]) / 1000 for line in lines[-20:] if (match := _MS.search(line))]
    mean = sum(speeds) / len(speeds) if speeds else 0.0
    return _seconds_by_clock(lines) or mean, tail.number


def _seconds_by_clock(lines: Sequence[str]) -> float:
    """Return how long a step took by the times that stand before the steps of a log; 0 where that is not told."""
    points = [
        (int(step[1]), datetime.fromisoformat(f"{stamp[1]}T{stamp[2]}+00:00"))
        for line in lines
        if (step := _TOTAL.search(line)) and (stamp := _STAMP.search(line))
    ]
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return 0.0
    return (points[-1][1] - points[0][1]).total_seconds() / (points[-1][0] - points[0][0])


def _job_how_long(turn: QuestionTurn, text: str) -> str:
    source = source_of(turn, "show_job")
    if source is None:
        return ""
    job, mark = source.value, f"[{source.number}]"
    if says(text, "left|remaining|until|take|will|still|to go") and job["state"] == "running":
        return _remaining(turn, job)
    start, end, word = job["started"], job["ended"], "ran"
    if says(text, "wait|waited|waiting|queue|queued|pending"):
        start, end, word = job["submitted"], job["started"], "waited"
    elif says(text, "down|dead|gone|out"):
        start, end, word = job["ended"], None, "has been ended for"
    if not start:
        return f"Not known: of job {job['job']} no such time is recorded {mark}."
    seconds = ((datetime.fromisoformat(end) if end else turn.now) - datetime.fromisoformat(start)).total_seconds()
    if match := re.search(r"\bhow many (seconds|secs|minutes|mins)\b", text):
        unit, length = ("seconds", 1) if match[1].startswith("s") else ("minutes", 60)
        return (
            f"{seconds / length:,.0f} {unit}, {span_text(seconds)}: job {job['job']}"
            f" {word}{'' if word.startswith('has') else ' that long'} {mark}."
        )
    so_far = "" if end or word.startswith("has") else " so far"
    return f"{span_text(seconds)}{so_far}: job {job['job']} {word}{'' if word.startswith('has') else ' that long'} {mark}."


def span_text(seconds: float) -> str:
    """Return a length of time as it is told: `2 days 3 h`."""
    hours, minutes = divmod(round(seconds / 60), 60)
    days, hours = divmod(hours, 24)
    parts = [
        f"{days} days" if days else "",
        f"{hours} h" if hours else "",
        f"{minutes} min" if minutes or not (hours or days) else "",
    ]
    return " ".join(part for part in parts if part)


# Lists, incidents, approvals, changes


def _listed_yes_no(turn: QuestionTurn, text: str) -> str:
    source = source_of(turn, "list_jobs")
    if source is None:
        return ""
    rows, users, mark = source.value, turn.request.names.users, f"[{source.number}]"
    rows = [row for row in rows if not users or row["user"] in users]
    state_asked = _wanted_state(text) or "running"
    if turn.request.names.hours and state_asked != "running":
        return ""
    hits = [row for row in rows if (row["state"] in FAILED if state_asked == "failed" else row["state"] == state_asked)]
    names = f": {', '.join(row['job'] for row in hits[:6])}" if hits else ""
    return f"{'Yes' if hits else 'No'}, {count_text(len(hits), 'job')} {state_asked}{names} {mark}."


def _approvals_yes_no(turn: QuestionTurn, text: str) -> str:
    source = source_of(turn, "list_approvals")
    if source is None or says(text, "carried out|executed|performed|applied|approved|granted|went through|gone through|ran"):
        return ""
    waiting = len(source.value)
    changes = f"{count_text(waiting, 'change')} {'waits' if waiting == 1 else 'wait'}"
    return f"{'Yes' if waiting else 'No'}: {changes} for a yes or no [{source.number}]."


def _incidents_yes_no(turn: QuestionTurn, text: str) -> str:
    source = source_of(turn, "list_incidents")
    if source is None:
        return ""
    return f"{'Yes' if source.value else 'No'}: {count_text(len(source.value), 'incident')} [{source.number}]."


def _incident_yes_no(turn: QuestionTurn, text: str) -> str:
    source = source_of(turn, "show_incident")
    if source is None or not says(text, "solved|resolved|over|closed|done|finished|fixed|recovered|open|still|ongoing"):
        return ""
    row, mark = source.value, f"[{source.number}]"
    wants_open = says(text, "open|still|ongoing")
    if row["state"] == "escalated":
        return (
            f"No: incident {row['incident']} was handed to a person (escalated) {mark}."
            if not wants_open
            else (f"Yes: incident {row['incident']} was handed to a person (escalated), nobody has closed it {mark}.")
        )
    return f"{'Yes' if row['ended'] != wants_open else 'No'}: incident {row['incident']} is {row['state']} {mark}."


def _incident_when(turn: QuestionTurn, text: str) -> str:
    source = source_of(turn, "show_incident")
    if source is None:
        return ""
    row, mark = source.value, f"[{source.number}]"
    key = "closed" if says(text, "closed|end|ended|solved|resolved|over|finished") else "opened"
    return (
        f"{upper(time_text(row[key], turn.now))}: incident {row['incident']} was {key} then {mark}."
        if row[key]
        else (f"Not yet: incident {row['incident']} is {row['state']} {mark}.")
    )


def _changes_yes_no(turn: QuestionTurn, text: str) -> str:
    source = source_of(turn, "recent_changes")
    if source is None:
        return ""
    if says(text, "work|worked|succeed|succeeded|help|helped|successful|back"):
        return _restart_worked(turn, source)
    return change_made(turn, source, text)


def _restart_worked(turn: QuestionTurn, source: AnswerSource) -> str:
    """Return whether the newest restart brought its job back, by the incident that it was made for."""
    job = turn.request.names.jobs[0] if turn.request.names.jobs else turn.spoken_job
    incidents = turn.look("list_incidents", limit=400, **({"job": job} if job else {}))
    restarts = [row["incident"] for row in source.value if re.match(r"submit|sbatch|requeue|scontrol requeue", row["change"])]
    rows = [row for row in incidents.value or () if row["job"]]
    rows = [row for row in rows if not job and row["incident"] in restarts] or rows
    mark = f"[{incidents.number}]"
    if incidents.error or not rows:
        return f"Not known: no incident about {f'job {job}' if job else 'a job'} is recorded [{incidents.number}]."
    row = rows[0]
    about = f"incident {row['incident']} about job {row['job']}"
    turn.incidents.append(row["incident"])
    if row["state"] == "recovered":
        return f"Yes: {about} is recovered, {one_line(row['note'], 160)} {mark}."
    if row["state"] == "waiting":
        return f"Not yet: {about} waits, nothing was restarted ({one_line(row['note'], 120)}) {mark}."
    if row["ended"]:
        return f"No: {about} is {row['state']}, {one_line(row['note'], 160)} {mark}."
    return f"Not known yet: {about} is {row['state']} {mark}."


def _overview_yes_no(turn: QuestionTurn, text: str) -> str:
    """Return whether something happened, or whether all is well: by failures, incidents and what waits."""
    jobs, opened = source_of(turn, "list_jobs"), source_of(turn, "list_incidents")
    waiting, nodes = source_of(turn, "list_approvals"), source_of(turn, "node_states")
    if jobs is None or opened is None or waiting is None or nodes is None:
        return ""
    since = turn.now - timedelta(hours=turn.request.names.hours or 24.0)
    failures = [row["job"] for row in jobs.value if row["state"] in FAILED and row["ended"] and _at(row["ended"]) >= since]
    incidents, out = opened.value, sum(node["state"] in OUT for node in nodes.value)
    parts = [f"{count_text(len(failures), 'job')} failed ({', '.join(failures[:6])}) [{jobs.number}]"] if failures else []
    parts += [f"{count_text(len(incidents), 'incident')} open [{opened.number}]"] if incidents else []
    escalated = next((row for row in turn.sources if row.arguments.get("unacknowledged") and row.value), None)
    parts += [f"{count_text(len(escalated.value), 'incident')} for a person [{escalated.number}]"] if escalated is not None else []
    parts += [f"{count_text(len(waiting.value), 'change')} to answer [{waiting.number}]"] if waiting.value else []
    parts += [f"{count_text(out, 'node')} out of service [{nodes.number}]"] if out else []
    wants_good = says(text, GOOD + "|quiet|calm|smooth|smoothly|normal|in order") and not says(text, f"{BAD}|anything|something")
    if not parts:
        return (
            f"{'Yes' if wants_good else 'No'}: no job failed, nothing is open and no node is out [{jobs.number}][{nodes.number}]."
        )
    return f"{'No' if wants_good else 'Yes'}: {', '.join(parts)}."


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _gpus_how_many(turn: QuestionTurn, text: str) -> str:
    """Say that GPUs are not counted: the nodes of the job are what is recorded."""
    if not says(text, "gpus?|cards?|accelerators?"):
        return ""
    source = turn.look("show_job", job=turn.request.job)
    if source.error:
        return ""
    nodes = source.value["nodes"]
    ran = f"job {source.value['job']} has {count_text(len(nodes), 'node')} ({fold(nodes)})" if nodes else "it has no nodes yet"
    return f"Not known: the records count nodes, not GPUs; {ran} [{source.number}]."


def _seen_yes_no(turn: QuestionTurn, text: str) -> str:
    source = source_of(turn, "explain_job") or source_of(turn, "show_incident")
    if source is None:
        return ""
    diagnosis = source.value.get("diagnosis") or source.value
    earlier = diagnosis.get("seen_before") or ()
    listed = source_of(turn, "list_incidents")
    incident = diagnosis.get("incident", source.value.get("incident"))
    same = [
        row for row in (listed.value if listed else ()) if row["reason"] == diagnosis.get("reason") and row["incident"] != incident
    ]
    if earlier or same:
        return f"Yes: {count_text(len({row['incident'] for row in (*earlier, *same)}), 'other incident')} [{source.number}]."
    return f"No: nothing like it is recorded [{source.number}]."


def _checkpoints_yes_no(turn: QuestionTurn, text: str) -> str:
    source = source_of(turn, "list_checkpoints")
    if source is None or source.value.get("doubt"):
        return ""
    saved = source.value["checkpoints"]
    healthy = [row for row in saved if row["healthy"]]
    state_asked = healthy if says(text, "healthy|good|usable|valid|intact|fine|ok") else saved
    counts = f"{count_text(len(saved), 'checkpoint')}, {len(healthy)} of them healthy"
    return f"{'Yes' if state_asked else 'No'}: {counts} [{source.number}]."


def _checkpoints_how_many(turn: QuestionTurn, text: str) -> str:
    source = source_of(turn, "list_checkpoints")
    if source is None or source.value.get("doubt"):
        return ""
    saved = source.value["checkpoints"]
    return (
        f"{count_text(len(saved), 'checkpoint')}, {sum(bool(row['healthy']) for row in saved)} of them healthy [{source.number}]."
    )


def _listed_who(turn: QuestionTurn, text: str) -> str:
    source = source_of(turn, "list_jobs")
    if source is None:
        return ""
    state_asked = _wanted_state(text) or "running"
    users = dict.fromkeys(
        row["user"] for row in source.value if (row["state"] in FAILED if state_asked == "failed" else row["state"] == state_asked)
    )
    return f"{', '.join(users) or 'Nobody'}: of {state_asked} jobs [{source.number}]."


_OF_A_JOB = frozenset({QuestionForm.WHEN, QuestionForm.HOW_LONG})
_ABOUT_A_JOB = frozenset({"show_log", "log_errors", "stacks", "gpu_use", "scheduler_log", "failed_jobs", "list_jobs", "plan"})
Lead = Callable[[QuestionTurn, str], str]
_LEADS: Mapping[tuple[QuestionForm, str], Lead] = {
    **{(QuestionForm.YES_NO, intent): _job_yes_no for intent in ("job_status", "progress", "explain_job", "stacks")},
    **{(QuestionForm.WHEN, intent): _job_when for intent in ("job_status", "progress", "explain_job")},
    **{(QuestionForm.HOW_LONG, intent): _job_how_long for intent in ("job_status", "progress", "explain_job")},
    **{(QuestionForm.PERSON, intent): _job_who for intent in ("job_status", "progress")},
    (QuestionForm.YES_NO, "node_state"): node_yes_no,
    (QuestionForm.WHEN, "node_state"): node_when,
    (QuestionForm.HOW_LONG, "node_state"): node_when,
    (QuestionForm.PERSON, "node_state"): node_person,
    (QuestionForm.YES_NO, "overview"): _overview_yes_no,
    (QuestionForm.HOW_MANY, "gpu_use"): _gpus_how_many,
    (QuestionForm.YES_NO, "check_node"): health_yes_no,
    (QuestionForm.YES_NO, "bad_nodes"): nodes_yes_no,
    (QuestionForm.HOW_MANY, "bad_nodes"): nodes_how_many,
    (QuestionForm.YES_NO, "list_jobs"): _listed_yes_no,
    (QuestionForm.PERSON, "list_jobs"): _listed_who,
    (QuestionForm.YES_NO, "approvals"): _approvals_yes_no,
    (QuestionForm.YES_NO, "incidents"): _incidents_yes_no,
    (QuestionForm.YES_NO, "explain_incident"): _incident_yes_no,
    (QuestionForm.WHEN, "explain_incident"): _incident_when,
    (QuestionForm.YES_NO, "changes"): _changes_yes_no,
    (QuestionForm.YES_NO, "seen_before"): _seen_yes_no,
    (QuestionForm.YES_NO, "checkpoints"): _checkpoints_yes_no,
    (QuestionForm.HOW_MANY, "checkpoints"): _checkpoints_how_many,
}
