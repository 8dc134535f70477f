"""What would have been: a drain that might have saved a job, a cancel at an earlier time, a restart on a node that was to blame."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta

from assistant.agent.answer import time_text
from assistant.agent.claims.checks import check_job, incident_of, job_fact, node_fact, reason_text, waiting_about
from assistant.agent.claims.lexicon import ASKS_WHO, HOW_OFTEN, SAVES, WHEN, WHY, WOULD, change_in
from assistant.agent.claims.question import RecordQuestion
from assistant.agent.tell_counsel import aspect_told
from assistant.nodeset import fold

_MIDNIGHT = re.compile(r"midnight|mitternacht|零点|半夜|午夜|凌晨零点")
_CLOCK = re.compile(
    r"(?:\bat|\bum|\bgegen|在)\s*(?P<hour>\d{1,2})(?:[:.](?P<minute>\d\d))?\s*(?P<half>am|pm)?(?:\s*uhr|点)?|(?P<han>\d{1,2})点"
)
_PAST = re.compile(
    r"\b(?:had|have|hätten?|gewesen|wäre|been)\b|\b(?:would|could)\b.*\b(?:saved?|rescued?|helped|prevented|avoided|survived)\b|当时|早|本来|之前|那时"
)
_COSTS = re.compile(r"\b(?:steps?|lost|lose|gone|loss|work|progress|schritte?|verloren|verlust|weg)\b|步|丢|损失")


def supposed(question: RecordQuestion) -> list[str]:
    """Answer a question about what would have been, or would be, by what the record bears."""
    text = question.text
    if not WOULD.search(text) or not question.asks or ASKS_WHO.search(text) or HOW_OFTEN.search(text):
        return []
    change = change_in(text)
    if (
        change == "cordon"
        and question.job
        and question.node
        and (SAVES.search(text) or re.search(r"crash|fail|die|abgestürzt|失败|崩|挂", text))
    ):
        return _drain_and_job(question)
    if change == "recover" and question.job and question.node:
        return _restart_on(question)
    if change == "cancel" and question.job:
        return _cancel_at(question)
    return []


def _drain_and_job(question: RecordQuestion) -> list[str]:
    turn, job, node = question.turn, question.job, question.node
    incident, mark = incident_of(turn, job)
    _, fact = job_fact(turn, job)
    if incident is None:
        return [f"No sign of it: no failure of job {job} is on record; {fact}."]
    blamed = incident["nodes_to_blame"]
    if node in blamed:
        return [
            f"Likely yes, by the record: incident {incident['incident']} blames {node} for it "
            f"({reason_text(incident['reason'])}) {mark}; whether it would have ended well elsewhere nobody knows."
        ]
    cause = (
        f"{reason_text(incident['reason'])} on {fold(blamed)}"
        if blamed
        else f"{reason_text(incident['reason'])}, blamed on no node"
    )
    ran = turn.look("show_job", job=job)
    among = f"{node} was one of its nodes and" if node in (ran.value or {}).get("nodes", ()) else f"it did not run on {node}, which"
    return [
        f"No sign of it: job {job} ended by {cause} (incident {incident['incident']}) {mark}; {among} is blamed for nothing "
        f"there [{ran.number}]."
    ]


def _restart_on(question: RecordQuestion) -> list[str]:
    turn, job, node = question.turn, question.job, question.node
    _, fact = node_fact(turn, node)
    incident, mark = incident_of(turn, job)
    result = check_job(turn, job, "restarted")
    if incident is not None and node in incident["nodes_to_blame"]:
        return [f"No: {fact}; job {job} failed there of {reason_text(incident['reason'])} {mark}{waiting_about(turn, job)}."]
    if result.holds is False:
        return [f"Not known that it would help: {fact}; {result.fact}."]
    return []


def _cancel_at(question: RecordQuestion) -> list[str]:
    turn, job = question.turn, question.job
    status = turn.look("show_job", job=job)
    at = moment_in(question.text, turn.now)
    if status.error:
        return []
    if at is not None:
        start, ended = (datetime.fromisoformat(status.value[key]) if status.value[key] else None for key in ("started", "ended"))
        _, fact = job_fact(turn, job)
        at_text = f"{at:%Y-%m-%d %H:%M} UTC"
        if start is None or start > at:
            began = f"it started {time_text(status.value['started'], turn.now)}" if start else "it has not started yet"
            return [f"It was not running at {at_text}: {began} [{status.number}]; {fact}."]
        if ended is not None and ended < at:
            return [f"It was over at {at_text}: {fact}."]
        return [f"Not known at which step it was at {at_text}; it ran then: {fact}."]
    if not _COSTS.search(question.text) or WHEN.match(question.text) or WHY.search(question.text):
        return []
    request = replace(turn.request, aspect="what_if:cancel", job=job)
    before, turn.request = turn.request, request
    text = aspect_told(turn)
    turn.request = before
    match = re.search(r"(\d[\d,]*) steps? would be lost", text)
    return [f"{match[1] if match else 'Not known how many'} steps, as far as recorded: {text}"] if text else []


def moment_in(text: str, now: datetime) -> datetime | None:
    """Return the last moment before now that a clock time in a text names; None where it names none."""
    if _MIDNIGHT.search(text):
        return now.replace(hour=0, minute=0, second=0, microsecond=0)
    match = _CLOCK.search(text)
    if match is None:
        return None
    hour = int(match["hour"] or match["han"])
    hour += 12 if match["half"] == "pm" and hour < 12 else 0
    if hour > 23 or int(match["minute"] or 0) > 59:
        return None
    at = now.replace(hour=hour, minute=int(match["minute"] or 0), second=0, microsecond=0)
    return at if at <= now else at - timedelta(days=1)
