"""What is recorded of a range of time, in its order: failures, ends, starts, changes, nodes that went, and what waits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from assistant.agent.answer import count_text, one_line, time_text
from assistant.agent.aspects import FAMILIES
from assistant.agent.dialogue import QuestionTurn
from assistant.agent.outright.sentence import OutrightReading, OutrightSentence, cause_text, incidents_by_job, job_text
from assistant.agent.outright.windows import TIME_PHRASE, TimeWindow, asked_window
from assistant.agent.tell_jobs import ALL_JOBS, FAILED
from assistant.agent.tell_jobs import failed as not_answered
from assistant.agent.words import read_names

MOST_EVENTS, MOST_NAMED = 12, 4
SLURM_TIME = re.compile(r"@(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\]")
_FAILS = (
    r"\b(?:break|broke|broken|fail\w*|crash\w*|die[ds]?|dead|went (?:wrong|down)|go(?:es|ne)? (?:wrong|down)|lost|abort\w*"
    r"|killed|blew up|wrong)\b"
)
_HAPPENS = re.compile(
    r"\bwhat(?: has| have| is| was| were)?(?: \w+)? (?:happen\w*|going on|up|new|occur\w*|changed)\b"
    r"|\banything (?:happen\w*|new|going on)"
    r"|\bwhat happen\w*|\bhappened\b|\bevents?\b"
)
_YOU_DID = re.compile(r"\b(?:what|which|anything|did|have|all)\b.*\byou (?:\w+ )?(?:do|did|done|change[d]?|touch\w*|make|made)\b")
_NOT_OF_JOBS = re.compile(
    r"\bhow (?:many|much|long)\b.*\b(?:hours|steps|nodes|gpus)\b|\bnodes?\b|\bwhose\b|\bwho\b|\bwhy\b"
    r"|\bper\b|\bby (?:user|reason)\b"
)


_NEWEST = re.compile(
    r"\b(?:which|what) (?:job|run|training|one) (?:has |was |is )?(?:failed|died|crashed|broke|went down)"
    r" (?:last|most recently|lately|latest)\b"
    r"|^\W*(?:what is |which is |show )?(?:the )?(?:newest|latest|last|most recent) (?:failure|failed (?:job|run)|crash)\W*$"
)
_FAMILY = re.compile(rf"\b(?:{'|'.join(pattern for name, (pattern, _) in FAMILIES.items() if name != 'code')})\b")


class RecordEvent(NamedTuple):
    """Something that is recorded with its time."""

    at: datetime
    text: str
    failed_job: str = ""
    """The job that failed; empty for anything else."""
    is_change: bool = False


def read_window(sentence: OutrightSentence) -> OutrightReading | None:
    """Read a question about what failed, happened or was changed in a range of time."""
    window = asked_window(sentence.words, sentence.now)
    names = read_names(TIME_PHRASE.sub(" ", sentence.words), sentence.inventory)
    names_thing = names.jobs or names.nodes or names.incidents or names.numbers or names.candidates or names.strangers
    if window is None or names_thing or sentence.says(_NOT_OF_JOBS) or sentence.says(_FAMILY):
        return None
    if sentence.says(_YOU_DID):
        return OutrightReading(partial(changes_of, window=window), "changes") if window.by_clock else None
    if sentence.says(_FAILS):
        return OutrightReading(partial(failures_of, window=window, users=names.users), "failed_jobs")
    if window.by_clock and (sentence.says(_HAPPENS) or len(sentence.bare.split()) <= 3):
        return OutrightReading(partial(events_of, window=window), "failed_jobs")
    return None


def read_newest_failure(sentence: OutrightSentence) -> OutrightReading | None:
    """Read which job failed last."""
    if not sentence.says(_NEWEST) or not sentence.names_nothing or sentence.names.span:
        return None
    return OutrightReading(partial(newest_failure_told, users=sentence.names.users), "explain_job")


def newest_failure_told(turn: QuestionTurn, users: Sequence[str] = ()) -> Iterator[str]:
    """Tell which job failed last, when and of what."""
    jobs = turn.look("list_jobs", limit=ALL_JOBS)
    if jobs.error:
        yield not_answered(turn, jobs)
        return
    by_job, mark = incidents_by_job(turn)
    rows = [row for row in jobs.value if row["state"] in FAILED and row["ended"] and (not users or row["user"] in users)]
    rows.sort(key=lambda row: str(row["ended"]), reverse=True)
    if not rows:
        yield f"None: no failed job is known [{jobs.number}]."
        return
    turn.about = {"job": rows[0]["job"]}
    cause = cause_text(by_job.get(rows[0]["job"]))
    ended = time_text(rows[0]["ended"], turn.now)
    yield f"Job {job_text(rows[0])} failed last, {ended}{f': {cause} {mark}' if cause else ''} [{jobs.number}]."
    if rows[1:]:
        before = "; ".join(f"{job_text(row)}, {time_text(row['ended'], turn.now)}" for row in rows[1:3])
        yield f"Before it: {before} [{jobs.number}]."


def failures_of(turn: QuestionTurn, window: TimeWindow, users: Sequence[str] = ()) -> Iterator[str]:
    """Tell which jobs failed in a range of time, each with its time and cause."""
    jobs = turn.look("list_jobs", limit=ALL_JOBS)
    if jobs.error:
        yield not_answered(turn, jobs)
        return
    by_job, mark = incidents_by_job(turn)
    rows = [row for row in jobs.value if row["state"] in FAILED and row["ended"] and (not users or row["user"] in users)]
    rows.sort(key=lambda row: str(row["ended"]))
    hits = [row for row in rows if window.holds(datetime.fromisoformat(row["ended"]))]
    of = f" of {', '.join(users)}" if users else ""
    if not hits:
        later = [row for row in rows if datetime.fromisoformat(row["ended"]) >= window.end]
        next_text = f"; the first after that: {job_text(later[0])} at {_time(later[0]['ended'], turn.now)}" if later else ""
        last_text = f"; the last before that: {job_text(rows[-1])} at {_time(rows[-1]['ended'], turn.now)}" if rows else ""
        yield f"No: no job{of} failed {window.text} [{jobs.number}]{next_text or last_text}."
        return
    parts = [
        f"{job_text(row)} at {_time(row['ended'], turn.now)}"
        + (f", {cause}" if (cause := cause_text(by_job.get(row["job"]))) else "")
        for row in hits[:MOST_NAMED]
    ]
    more = f"; and {len(hits) - MOST_NAMED} more" if len(hits) > MOST_NAMED else ""
    yield f"{count_text(len(hits), 'job')}{of} failed {window.text} [{jobs.number}]{mark}: {'; '.join(parts)}{more}."
    turn.about = {"job": hits[0]["job"]} if len(hits) == 1 else {}
    for row in reversed(hits[-MOST_EVENTS:]):
        incident = by_job.get(row["job"])
        if incident is not None:
            turn.incidents.append(incident["incident"])
            note = f": {one_line(incident['note'], 120)}" if incident["note"] else ""
            yield f"  {row['job']}  incident {incident['incident']}, {incident['state']}{note}"
    drains = [event for event in _events(turn) if event.is_change and window.holds(event.at)]
    for event in drains[:MOST_NAMED]:
        yield f"  {event.at:%H:%M}  {event.text}"


def events_of(turn: QuestionTurn, window: TimeWindow) -> Iterator[str]:
    """Tell all that is recorded of a range of time, failures first."""
    jobs = turn.look("list_jobs", limit=ALL_JOBS)
    if jobs.error:
        yield not_answered(turn, jobs)
        return
    events = sorted(event for event in _events(turn) if window.holds(event.at))
    failures = [event for event in events if event.failed_job]
    changes = [event for event in events if event.is_change]
    marks = "".join(f"[{source.number}]" for source in turn.sources[:4])
    if not events:
        yield f"Nothing is recorded {window.text} {marks}."
        return
    parts = [event.text for event in failures[:MOST_NAMED]] or [event.text for event in events[:2]]
    head = f"{count_text(len(failures), 'job')} failed {window.text}" if failures else f"No job failed {window.text}"
    if not failures and len(events) > len(changes):
        head = f"No job failed {window.text}; recorded is"
    changed = f"; {count_text(len(changes), 'change')} by Nightshift: {changes[0].text}" if changes else ""
    yield f"{head}: {'; '.join(parts)}{changed} {marks}."
    turn.about = {"job": failures[0].failed_job} if len(failures) == 1 else {}
    day = events[0].at.date()
    yield from (f"  {event.failed_job}  {event.at:%H:%M}  {event.text}" for event in reversed(failures[-MOST_EVENTS:]))
    events = [event for event in events if not event.failed_job]
    for event in events[:MOST_EVENTS]:
        yield f"  {event.at:{'%H:%M' if event.at.date() == day == turn.now.date() else '%Y-%m-%d %H:%M'}}  {event.text}"


def changes_of(turn: QuestionTurn, window: TimeWindow) -> Iterator[str]:
    """Tell which changes Nightshift made in a range of time, and what of it waits."""
    source = turn.look("recent_changes", hours=max(1.0, (turn.now - window.start) / timedelta(hours=1) + 1))
    if source.error:
        yield not_answered(turn, source)
        return
    rows = [row for row in source.value if window.holds(datetime.fromisoformat(row["at"]))]
    finished = [row for row in rows if row["status"] in ("done", "undone")]
    waiting = [row for row in rows if row["status"] == "pending"]
    parts = [f"{one_line(row['change'], 120)} at {_time(row['at'], turn.now)} (by {row['by']})" for row in finished[:MOST_NAMED]]
    yield f"{count_text(len(finished), 'change')} {window.text} [{source.number}]{': ' if parts else ''}{'; '.join(parts)}."
    for row in waiting:
        yield f"  only proposed, not done: {one_line(row['change'], 120)} (asked for at {_time(row['at'], turn.now)})"


def _events(turn: QuestionTurn) -> Iterator[RecordEvent]:
    """Yield what is recorded with a time, in no order."""
    jobs, by_job = turn.look("list_jobs", limit=ALL_JOBS), incidents_by_job(turn)[0]
    for row in jobs.value or ():
        for key, verb in (("submitted", "was submitted"), ("started", "started"), ("ended", "ended")):
            if not row[key] or (key == "submitted" and row["started"]):
                continue
            is_failure = key == "ended" and row["state"] in FAILED
            cause = f": {text}" if is_failure and (text := cause_text(by_job.get(row["job"]))) else ""
            verb_text = "failed" if is_failure else f"was {row['state']}" if key == "ended" else verb
            yield RecordEvent(
                datetime.fromisoformat(row[key]), f"job {job_text(row)} {verb_text}{cause}", row["job"] if is_failure else ""
            )
    changes = turn.look("recent_changes", hours=168.0)
    for row in changes.value or ():
        if row["status"] in ("done", "undone"):
            text = f"{one_line(row['change'], 120)} (by {row['by']}, {row['status']})"
            yield RecordEvent(datetime.fromisoformat(row["at"]), text, is_change=True)
    for node in turn.look("node_states").value or ():
        if (match := SLURM_TIME.search(str(node["reason"]))) is not None:
            yield RecordEvent(
                datetime.fromisoformat(f"{match[1]}+00:00"), f"{node['node']} was {node['state']}: {one_line(node['reason'], 80)}"
            )


def _time(text: str, now: datetime) -> str:
    at = datetime.fromisoformat(text)
    return f"{at:%H:%M}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M}"
