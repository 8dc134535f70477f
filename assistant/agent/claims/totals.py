"""The most of all jobs: which ran longest, which lost most, whether one had too little memory, how many node hours were lost."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from assistant.agent.answer import count_text, one_line
from assistant.agent.aspects import FAMILIES
from assistant.agent.claims.checks import FAILED_STATES, MOST_INCIDENTS, reason_text
from assistant.agent.claims.mentions import USER
from assistant.agent.claims.question import RecordQuestion

Row = Mapping[str, Any]
MOST_LOOKED_AT, MOST_NAMED = 8, 4
_WHICH = re.compile(r"\b(?:which|what|whose|welche[rsmn]?|wessen|name the|the job that)\b|哪个|哪一个|哪些|谁的")
_LONGEST = re.compile(
    r"\b(?:ran|run|runs|running|runtime|took|taken|lasted|lief|läuft|laufzeit|gelaufen|gedauert|dauerte)\b.*\b(?:longest"
    r"|most time|am längsten|längste)\b"
    r"|\blongest[ -](?:runtime|duration|run time|run\b(?!ning))|\blongest[ -]running\b(?! (?:job|one|run))"
    r"|\b(?:längste[nr]?) (?:laufzeit|lauf)\b|\blängsten (?:gelaufen|gebraucht)\b|(?:跑|运行).*(?:最久|最长)|(?:最久|最长).*(?:跑"
    r"|运行"
    r"|时间)"
)
_MOST_STEPS = re.compile(
    r"\bmost (?:steps|work|progress|iterations)\b|\b(?:meisten|größte\w*) (?:\w+ )?(?:schritte|arbeit|fortschritt)\b|步数?最多"
    r"|最多.{0,4}步|(?:丢|损失).{0,6}最(?:多|大)"
)
_LOST = re.compile(
    r"\b(?:lost|lose|loses|losing|wasted?|burn\w*|threw away|verloren|verliert|verlor|vergeudet|verschwendet)\b|丢|损失|浪费|白跑"
)
_MEMORY = re.compile(
    r"\bout of (?:gpu |host )?memory\b|\boom(?:ed|s|ing|-?killed)?\b|\b(?:too little|not enough"
    r"|insufficient) (?:gpu )?memory\b|\b(?:zu wenig|kein(?:en)?|nicht genug) (?:gpu-?)?speicher\b"
    r"|\bspeicher(?:mangel| voll| ausgegangen|überlauf)\b|内存不足|爆内存|显存不足|爆显存|内存溢出|内存不够|显存不够|没内存"
)
_HOURS = re.compile(
    r"\b(?:node|gpu|machine|compute|knoten|gpu)[- ]?(?:hours?|stunden|time)\b|\bhours?\b|\bstunden\b|节点小时|机时|卡时|小时"
)
_SPANS = (
    (
        re.compile(r"\blast night\b|\bover ?night\b|\btonight\b|\bletzte nacht\b|\bheute nacht\b|昨晚|昨夜|今晚|夜里"),
        16.0,
        "the last 16 hours",
    ),
    (re.compile(r"\btoday\b|\bheute\b|\bthis morning\b|今天|今早"), 24.0, "the last 24 hours"),
    (re.compile(r"\byesterday\b|\bgestern\b|昨天"), 48.0, "the last 48 hours"),
    (re.compile(r"\b(?:this|last|past) week\b|\b(?:diese|letzte) woche\b|这周|本周|上周"), 168.0, "the last 7 days"),
)


def totals(question: RecordQuestion) -> list[str]:
    """Answer a superlative or a sum over all jobs."""
    text = question.text
    names = question.mention
    if names.jobs or names.nodes or names.of_kind("k"):
        return []
    if (
        _MEMORY.search(text)
        and (question.asks or _WHICH.search(text))
        and not re.search(r"\b(?:mean|means|how (?:do|can|to)|bedeutet|what is)\b|什么意思|怎么", text)
    ):
        return _memory(question)
    if _MOST_STEPS.search(text) and _LOST.search(text) and _WHICH.search(text):
        return _most_steps(question)
    if _HOURS.search(text) and _LOST.search(text) and not re.search(r"\b(?:per|by|je|pro)\b|每", text):
        return _hours_lost(question)
    if (
        _LONGEST.search(text)
        and (_WHICH.search(text) or question.asks)
        and not re.search(r"\b(?:wait\w*|queue\w*|pending|longer than|wart\w*)\b|排队|等", text)
    ):
        return _longest(question)
    return []


def _span_of(question: RecordQuestion) -> tuple[float | None, str]:
    return next(((hours, words) for pattern, hours, words in _SPANS if pattern.search(question.text)), (None, ""))


def _rows(question: RecordQuestion) -> tuple[list[Row], str]:
    """Return the jobs of the users and the time that a question names, newest first, and the mark of their source."""
    turn = question.turn
    listed = turn.look("list_jobs", limit=100_000)
    users, (hours, _) = question.mention.of_kind(USER), _span_of(question)
    rows = [row for row in listed.value or () if not users or row["user"] in users]
    if hours is not None:
        since = turn.now - timedelta(hours=hours)
        rows = [
            row
            for row in rows
            if row["state"] in ("running", "pending") or (row["ended"] and datetime.fromisoformat(row["ended"]) >= since)
        ]
    return rows, f"[{listed.number}]"


def _hours(row: Row, now: datetime) -> float:
    if not row["started"]:
        return 0.0
    end = datetime.fromisoformat(row["ended"]) if row["ended"] else now
    return max(0.0, (end - datetime.fromisoformat(row["started"])).total_seconds() / 3600)


def _name(row: Row) -> str:
    return f"{row['job']} ({one_line(row['name'], 40)} of {row['user']}, {row['state']})"


def _longest(question: RecordQuestion) -> list[str]:
    rows, mark = _rows(question)
    now = question.turn.now
    timed = sorted(
        ((row, _hours(row, now)) for row in rows if row["started"]), key=lambda pair: (-pair[1], pair[0]["state"] == "running")
    )
    if not timed:
        return [f"None: no job that started is on record {mark}."]
    best = [row for row, hours in timed if abs(hours - timed[0][1]) < 1 / 60]
    names = " and ".join(f"{_name(row)}{' so far' if row['state'] == 'running' else ''}" for row in best[:MOST_NAMED])
    more = "; ".join(f"{row['job']} {hours:.1f} h" for row, hours in timed[len(best) : len(best) + 3])
    missing = [row["job"] for row in rows if not row["started"]]
    lines = [f"{names}: {timed[0][1]:.1f} h{' each' if len(best) > 1 else ''} {mark}{f'; next {more}' if more else ''}."]
    lines += (
        [
            f"Not counted: {', '.join(missing[:MOST_NAMED])} never started; of jobs that only an incident names no times "
            f"are recorded."
        ]
        if missing
        else []
    )
    return lines


def _loss(question: RecordQuestion, row: Row) -> tuple[int, int, int] | None:
    """Return the last step, the step of the checkpoint from which it goes on, and how many lie between."""
    turn = question.turn
    reached, choice = turn.look("job_progress", job=row["job"], timeout_s=0.0), turn.look("choose_checkpoint", job=row["job"])
    step, begin = (reached.value or {}).get("step"), (choice.value or {}).get("step")
    listed = turn.look("list_incidents", limit=MOST_INCIDENTS)
    note = next(
        (str(entry["note"]) for entry in listed.value or () if entry["job"] == row["job"] and entry["state"] == "recovered"), ""
    )
    restarted = re.search(r"restart step (\d+)", note)
    begin = int(restarted[1]) if restarted else begin
    if not isinstance(step, int) or not isinstance(begin, int):
        return None
    return step, begin, max(0, step - begin)


def _losses(
    question: RecordQuestion, states: frozenset[str]
) -> tuple[list[tuple[Row, tuple[int, int, int]]], list[Row], list[Row], str]:
    rows, mark = _rows(question)
    ended = [row for row in rows if row["state"] in states][:MOST_LOOKED_AT]
    losses = [(row, loss) for row in ended if (loss := _loss(question, row)) is not None]
    unknown = [row for row in ended if all(row is not entry for entry, _ in losses)]
    return losses, unknown, [row for row in rows if row["state"] == "running"], mark


def _most_steps(question: RecordQuestion) -> list[str]:
    losses, unknown, running, mark = _losses(question, FAILED_STATES | {"cancelled"})
    _, span = _span_of(question)
    if not losses:
        return [f"None: no job that failed or was cancelled{f' in {span}' if span else ''} has a step on record {mark}."]
    losses.sort(key=lambda pair: -pair[1][2])
    rows = [f"{_name(row)} {_loss_text(loss)}" for row, loss in losses]
    lines = [f"{rows[0]} {mark}{f', of {span}' if span else ''}."]
    lines += [f"Then: {'; '.join(rows[1:MOST_NAMED])}."] if rows[1:] else []
    return [*lines, *_left_out(unknown, running)]


def _loss_text(loss: tuple[int, int, int]) -> str:
    step, begin, lost = loss
    saved = f"newest whole checkpoint {begin}" if begin else "no checkpoint on record"
    return f"lost {count_text(lost, 'step')} (reached {step}, {saved})"


def _left_out(unknown: list[Row], running: list[Row]) -> list[str]:
    lines = [f"Not known, and left out: {', '.join(row['job'] for row in unknown)}."] if unknown else []
    return [
        *lines,
        *([f"Running, so nothing of it is lost: {', '.join(row['job'] for row in running[:MOST_NAMED])}."] if running else []),
    ]


def _hours_lost(question: RecordQuestion) -> list[str]:
    losses, unknown, running, mark = _losses(question, FAILED_STATES)
    now, users = question.turn.now, question.mention.of_kind(USER)
    of = f" of {', '.join(users)}" if users else ""
    if not losses:
        return [f"0 node hours are known to be lost: no failed job{of} has a step on record {mark}.", *_left_out(unknown, running)]
    parts: list[tuple[Row, float, float, tuple[int, int, int]]] = []
    for row, loss in losses:
        hours = _hours(row, now) * len(row["nodes"])
        parts.append((row, hours, hours * loss[2] / loss[0] if loss[0] else hours, loss))
    parts.sort(key=lambda part: -part[2])
    total, run = sum(part[2] for part in parts), sum(part[1] for part in parts)
    lead = ""
    if re.search(r"\bwhose\b|\bwessen\b|谁的", question.text):
        lead = f"{parts[0][0]['user']}'s job {parts[0][0]['job']} lost most. "
    rows = "; ".join(
        f"{row['job']} about {lost:.1f} of {hours:.1f} ({_loss_text(loss)})" for row, hours, lost, loss in parts[:MOST_NAMED]
    )
    return [
        f"{lead}About {total:.1f} node hours{of}, reckoned by steps: failed jobs ran {run:.1f}, what a checkpoint saved of "
        f"it is taken off {mark}.",
        f"By job: {rows}.",
        *_left_out(unknown, running),
    ]


def _memory(question: RecordQuestion) -> list[str]:
    turn = question.turn
    listed = turn.look("list_incidents", limit=MOST_INCIDENTS)
    if listed.error:
        return []
    rows, mark = list(listed.value), f"[{listed.number}]"
    hours, span = _span_of(question)
    if hours is not None:
        rows = [row for row in rows if datetime.fromisoformat(row["opened"]) >= turn.now - timedelta(hours=hours)]
    hits = [row for row in rows if row["reason"] in FAMILIES["out of memory"][1]]
    within = f" in {span}" if span else ""
    if hits:
        names = "; ".join(
            f"job {row['job']} (incident {row['incident']}, {reason_text(row['reason'])})" for row in hits[:MOST_NAMED]
        )
        return [f"{'' if _WHICH.search(question.text) else 'Yes: '}{names} {mark}."]
    other_failures = ", ".join(f"{row['job'] or row['node']} {reason_text(row['reason'])}" for row in rows[:MOST_NAMED])
    return [
        f"{'None' if _WHICH.search(question.text) else 'No'}, as far as recorded: no job ran out of memory{within} {mark}; "
        f"what failed: {other_failures or 'nothing'}."
    ]
