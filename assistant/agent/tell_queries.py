"""Answers that count, sum, average, group and order jobs and incidents, from the lists of the scheduler and of the store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from statistics import fmean
from typing import Any

from assistant.agent.answer import count_text, one_line, time_text
from assistant.agent.dialogue import QuestionTurn
from assistant.agent.quantities import clock_range
from assistant.agent.queries import RecordQuery, orders_groups
from assistant.agent.tell_jobs import ALL_JOBS, FAILED, _job_row, failed
from assistant.nodeset import fold

MOST_ROWS, MOST_GROUPS, MOST_LOOKED_AT = 5, 6, 8
"""Rows that are told; the rest is counted. Jobs whose steps are looked up one by one."""
MOST_INCIDENTS = 10_000
Row = Mapping[str, Any]


def query_told(turn: QuestionTurn, query: RecordQuery) -> Iterator[str]:
    """Tell what was asked of all jobs or incidents: the figure or the name first."""
    source = (
        turn.look("list_incidents", limit=MOST_INCIDENTS) if query.view == "incidents" else turn.look("list_jobs", limit=ALL_JOBS)
    )
    if source.error:
        yield failed(turn, source)
        return
    mark = f"[{source.number}]"
    reason_of = _reasons(turn) if query.view == "jobs" and (query.group == "reason" or query.reasons) else {}
    rows = [row for row in source.value if _matches(row, query, turn.now, reason_of)]
    tell = _VIEWS.get(query.measure, _count)
    if query.group:
        yield from _groups(turn, query, rows, mark, reason_of)
    else:
        yield from tell(turn, query, rows, mark)
    if query.view == "jobs" and (query.measure != "count" or query.group):
        yield f"Counted are the jobs that the scheduler still knows {mark}."


def _reasons(turn: QuestionTurn) -> Mapping[str, str]:
    listed = turn.look("list_incidents", limit=MOST_INCIDENTS)
    return {str(row["job"]): str(row["reason"]) for row in reversed(listed.value or ()) if row["job"] and row["reason"]}


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _hours(row: Row, now: datetime) -> float | None:
    """Return how long a job ran so far, or an incident was open; None where its start is not known."""
    start, end = _time(row.get("started") or row.get("opened")), _time(row.get("ended") or row.get("closed"))
    if "incident" in row:
        end = _time(row["closed"])
    return ((end or now) - start).total_seconds() / 3600 if start else None


def _moment(row: Row) -> datetime | None:
    """Return when a job ended, or began where it has not ended; when an incident was opened."""
    return _time(row["opened"]) if "incident" in row else _time(row["ended"] or row["started"] or row["submitted"])


def _matches(row: Row, query: RecordQuery, now: datetime, reason_of: Mapping[str, str]) -> bool:
    if query.view == "incidents":
        matches = not row["ended"] if query.state == "open" else True
        matches = matches and (not query.reasons or row["reason"] in query.reasons)
    else:
        matches = not query.state or (row["state"] in FAILED if query.state == "failed" else row["state"] == query.state)
        matches = matches and (not query.users or row["user"] in query.users)
        matches = matches and (not query.partition or row["partition"].lower() == query.partition)
        matches = matches and (not query.reasons or reason_of.get(row["job"]) in query.reasons)
    return matches and _in_range(row, query, now) and all(_within(row, bound, now) for bound in query.bounds)


def _in_range(row: Row, query: RecordQuery, now: datetime) -> bool:
    start, end = clock_range(query.clock, now)
    if query.hours is not None and start is None and end is None:
        start = now - timedelta(hours=query.hours)
    moment = _moment(row)
    if start is None and end is None:
        return True
    if moment is None:
        return False
    if query.view == "jobs" and row["state"] == "running" and query.state != "failed":
        return end is None or moment <= end
    return (start is None or moment >= start) and (end is None or moment <= end)


def _within(row: Row, bound: Any, now: datetime) -> bool:
    if bound.unit != "h":
        value: float | None = len(row.get("nodes", ()))
    elif bound.age:
        moment = _moment(row)
        value = (now - moment).total_seconds() / 3600 if moment else None
    else:
        value = _hours(row, now) if row.get("state") != "pending" else None
    return value is not None and (value > bound.value if bound.above else value < bound.value)


def _rows_text(query: RecordQuery, count: int) -> str:
    """Return how the rows are called: `2 failed jobs of alice in the last 7 days`."""
    noun = "incident" if query.view == "incidents" else "job"
    parts = [query.state, noun if count == 1 else f"{noun}s"]
    parts += [f"of {', '.join(query.users)}"] if query.users else []
    parts += [f"with {' or '.join(query.reasons)}"] if query.reasons else []
    parts += [f"in partition {query.partition}"] if query.partition else []
    parts += [f"{'' if bound.age else 'that ran ' if bound.unit == 'h' else 'with '}{bound.text}" for bound in query.bounds]
    parts += [f"{query.clock[2]} UTC"] if query.clock[2] else [f"in {query.span}"] if query.span else []
    return f"{count:,} {' '.join(part for part in parts if part)}"


def _count(turn: QuestionTurn, query: RecordQuery, rows: Sequence[Row], mark: str) -> Iterator[str]:
    yield f"{_rows_text(query, len(rows))} {mark}."
    yield from _listed(turn, rows, mark)


def _listed(turn: QuestionTurn, rows: Sequence[Row], mark: str) -> Iterator[str]:
    for row in rows[:MOST_ROWS]:
        if "incident" in row:
            turn.incidents.append(row["incident"])
            about = f"job {row['job']}" if row["job"] else f"node {row['node']}"
            opened = time_text(row["opened"], turn.now)
            yield f"  {row['incident']}  {row['state']}  {about}  {row['reason'] or row['kind']}  opened {opened}"
        else:
            hours = _hours(row, turn.now)
            yield _job_row(row, None) + (f"  {_span(hours)}" if hours is not None else "")
    if len(rows) > MOST_ROWS:
        yield f"… and {len(rows) - MOST_ROWS} more {mark}."


def _span(hours: float) -> str:
    return f"{hours * 60:.0f} min" if hours < 1 else f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"


def _node_hours(turn: QuestionTurn, query: RecordQuery, rows: Sequence[Row], mark: str) -> Iterator[str]:
    valued_rows = [
        (row, hours * len(row["nodes"])) for row in rows if (hours := _hours(row, turn.now)) is not None and row.get("nodes")
    ]
    yield f"{sum(value for _, value in valued_rows):,.1f} node hours, of {_rows_text(query, len(rows))} {mark}."
    yield "How many GPUs a node has is not in these records, so they are hours of nodes, not of GPUs."
    if query.state == "failed":
        yield "It is all the time of failed jobs; what a checkpoint saved of it is not taken off."
    if len(valued_rows) < len(rows):
        yield f"Left out, {count_text(len(rows) - len(valued_rows), 'job')}: start or nodes are not known {mark}."
    top = sorted(valued_rows, key=lambda pair: -pair[1])[:3]
    if len(valued_rows) > 1:
        names = [f"{row['job']} ({one_line(row['name'], 30)} of {row['user']}) {value:,.1f}" for row, value in top]
        yield f"Most of it: {', '.join(names)} {mark}."


def _extreme(value_of: Callable[[Row, datetime], float | None], unit: str) -> Callable[..., Iterator[str]]:
    def tell(turn: QuestionTurn, query: RecordQuery, rows: Sequence[Row], mark: str) -> Iterator[str]:
        valued_rows = [(row, value) for row in rows if (value := value_of(row, turn.now)) is not None]
        if not valued_rows:
            yield f"None: {_rows_text(query, len(rows))} {mark}{', and of none of them it is known' if rows else ''}."
            return
        if query.statistic == "average":
            values = [value for _, value in valued_rows]
            yield f"{_worded(fmean(values), unit)} on average, over {_rows_text(query, len(valued_rows))} {mark}."
            if len(values) > 1:
                yield f"The shortest {_worded(min(values), unit)}, the longest {_worded(max(values), unit)} {mark}."
            return
        valued_rows.sort(key=lambda pair: pair[1], reverse=query.statistic == "most")
        for row, value in valued_rows[: query.top]:
            turn.incidents += [row["incident"]] if "incident" in row else []
            yield (
                f"{_row_text(row)}: {_worded(value, unit)} {mark}."
                if query.top == 1
                else f"  {_key(row)}  {_row_text(row)}  {_worded(value, unit)}"
            )
        if query.top == 1 and len(valued_rows) > 1:
            yield f"Next: {'; '.join(f'{_row_text(row)}, {_worded(value, unit)}' for row, value in valued_rows[1:3])} {mark}."

    return tell


def _key(row: Row) -> str:
    return str(row["incident"] if "incident" in row else row["job"])


def _row_text(row: Row) -> str:
    if "incident" in row:
        about = f"job {row['job']}" if row["job"] else f"node {row['node']}"
        return f"Incident {row['incident']} about {about} ({row['reason'] or row['kind']}, {row['state']})"
    nodes = f", on {fold(row['nodes'])}" if row["nodes"] else ""
    return f"Job {row['job']} ({one_line(row['name'], 40)} of {row['user']}, {row['state']}{nodes})"


def _worded(value: float, unit: str) -> str:
    if unit == "nodes":
        return count_text(int(value), "node")
    if unit == "ago":
        return f"{_span(value)} ago"
    return _span(value)


def _age(row: Row, now: datetime) -> float | None:
    moment = _moment(row)
    return (now - moment).total_seconds() / 3600 if moment else None


def _wait(row: Row, now: datetime) -> float | None:
    start, end = _time(row.get("submitted")), _time(row.get("started"))
    return ((end or now) - start).total_seconds() / 3600 if start and (end or row.get("state") == "pending") else None


def _groups(turn: QuestionTurn, query: RecordQuery, rows: Sequence[Row], mark: str, reason_of: Mapping[str, str]) -> Iterator[str]:
    totals: dict[str, float] = defaultdict(float)
    for row in rows:
        hours = _hours(row, turn.now)
        value = hours * len(row.get("nodes", ())) if query.measure == "node_hours" and hours is not None else 1.0
        totals[_group_of(row, query, reason_of)] += value if query.measure == "node_hours" else 1.0
    unit = " node hours" if query.measure == "node_hours" else ""
    order = orders_groups(turn.request.question.lower())
    ordered = sorted(totals.items(), key=lambda pair: (pair[1] if order == "least" else -pair[1], pair[0]))
    groups_text = ", ".join(f"{name} {_amount(value)}" for name, value in ordered[:MOST_GROUPS])
    rest_text = f", and {len(ordered) - MOST_GROUPS} more" if len(ordered) > MOST_GROUPS else ""
    if not ordered:
        yield f"None: {_rows_text(query, 0)} {mark}."
    elif order:
        best = [name for name, value in ordered if value == ordered[0][1]]
        more = "the fewest" if order == "least" else "the most"
        figure = f"{_amount(ordered[0][1])}{unit}{' each' if len(best) > 1 else ''}"
        verb = "have" if len(best) > 1 else "has"
        yield f"{' and '.join(best)} {verb} {more}: {figure}, of {_rows_text(query, len(rows))} {mark}."
        if len(ordered) > len(best):
            yield f"By {query.group}: {groups_text}{rest_text} {mark}."
    else:
        yield f"{_rows_text(query, len(rows))}, by {query.group}{f', in{unit}' if unit else ''}: {groups_text}{rest_text} {mark}."


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def _group_of(row: Row, query: RecordQuery, reason_of: Mapping[str, str]) -> str:
    if query.group == "reason":
        return str(row["reason"] or "not diagnosed") if "incident" in row else reason_of.get(row["job"], "not diagnosed")
    if query.group == "day":
        moment = _moment(row)
        return f"{moment:%Y-%m-%d}" if moment else "no known day"
    return one_line(row.get(query.group) or f"no {query.group}", 60)


def _steps_lost(turn: QuestionTurn, query: RecordQuery, rows: Sequence[Row], mark: str) -> Iterator[str]:
    """Tell how many steps failed jobs must make again: those behind the checkpoint from which each would restart."""
    failures = [row for row in rows if row["state"] in FAILED]
    lost: list[tuple[Row, int]] = []
    unknown: list[str] = []
    marks = [mark]
    for row in failures[:MOST_LOOKED_AT]:
        reached = turn.look("job_progress", job=row["job"], timeout_s=0.0)
        choice = turn.look("choose_checkpoint", job=row["job"])
        step = (reached.value or {}).get("step")
        begin = 0 if (choice.value or {}).get("restart_from") == "none" else (choice.value or {}).get("step")
        if isinstance(step, int) and isinstance(begin, int):
            lost.append((row, max(0, step - begin)))
            marks += [f"[{reached.number}]", f"[{choice.number}]"]
        else:
            unknown.append(row["job"])
    of = _rows_text(
        query if query.state else RecordQuery("jobs", state="failed", users=query.users, hours=query.hours, span=query.span),
        len(failures),
    )
    total = f"{sum(steps for _, steps in lost):,} steps" if lost or not failures else "Not known how many steps"
    yield f"{total} lie behind the checkpoints from which {of} would restart {''.join(dict.fromkeys(marks))}."
    if lost:
        steps_of = [f"{row['job']} {steps:,}" for row, steps in sorted(lost, key=lambda pair: -pair[1])]
        yield f"By job: {', '.join(steps_of)}."
    if unknown:
        yield f"Not known, and left out: {', '.join(unknown)}."
    if len(failures) > MOST_LOOKED_AT:
        yield f"Only the newest {MOST_LOOKED_AT} were looked at."


_VIEWS: Mapping[str, Callable[..., Iterator[str]]] = {
    "node_hours": _node_hours,
    "steps_lost": _steps_lost,
    "duration": _extreme(lambda row, now: _hours(row, now) if row.get("state") != "pending" else None, "h"),
    "wait": _extreme(_wait, "h"),
    "nodes": _extreme(lambda row, now: len(row.get("nodes", ())) or None, "nodes"),
    "age": _extreme(_age, "ago"),
}
