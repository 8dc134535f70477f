"""Make `report job`: the life of one run over all its attempts, from the accounting and the store's incidents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from assistant.errors import InputError, UsageError
from assistant.nodeset import expand, fold
from assistant.redact import redact
from assistant.reports.figures import Cell, Figure, FigureGroup, FigureTable, ReportFrame, TableColumn, UsageRemark, UsageReport
from assistant.reports.reading import ReadRequest, opened_jobs
from assistant.reports.reliability.downtime import downtime, gaps_table
from assistant.reports.reliability.goodput import goodput, parts_table, waterfall_plot
from assistant.reports.reliability.nodes import NO_LIST
from assistant.reports.reliability.runs import RAN, Join, JoinedRuns, read_runs
from assistant.reports.wording import NOT_KNOWN, moment, quantity, share

if TYPE_CHECKING:
    import duckdb

    from assistant.reports.reliability.incident_facts import IncidentFacts

MOST_TEXT = 400
"""Characters of a summary in a table."""


class AttemptRow(NamedTuple):
    """One attempt as the accounting has it."""

    place: int
    id: str
    name: str | None
    user: str | None
    state: str | None
    exit: str | None
    node_list: str | None


@dataclass(frozen=True, slots=True)
class JobLife:
    """All attempts of a run, oldest first, and the incidents about it."""

    job: str
    runs: JoinedRuns
    attempts: Sequence[AttemptRow]
    facts: Sequence[IncidentFacts]
    """Of its attempts, and those about the job of which the source has no run."""
    left_out: FigureTable
    form: str


def read_life(
    request: ReadRequest,
    job: str,
    facts: Sequence[IncidentFacts] | None,
    *,
    slices: Iterable[str] | None = None,
    progress: Callable[[str], None] = lambda text: None,
    folder: Path | None = None,
) -> JobLife:
    """Read a source and return the life of the run that a job belongs to.

    Args:
        request: What is read.
        job: Its id, of any of its attempts: `4821`, `4821_3`.
        facts: Incidents of the store; None where there is none.
        slices: As in `opened_jobs`.
        progress: As in `opened_jobs`.
        folder: As in `opened_jobs`.

    Raises:
        UsageError: Neither the source nor the store knows the job.
    """
    with opened_jobs(request, slices=slices, progress=progress, folder=folder) as opened:
        runs = read_runs(opened.connection, facts)
        attempts = _attempts(opened.connection, runs, job)
        numbers = {number for attempt in attempts for number in runs.incidents.get(attempt.place, ())}
        ids = {job, *(attempt.id for attempt in attempts)}
        numbers |= {number for number in runs.unmatched if runs.facts[number].job in ids}
        if not attempts and not numbers:
            raise UsageError(_unknown(opened.connection, request.source, job, has_store=facts is not None))
    about = sorted((runs.facts[number] for number in numbers), key=lambda fact: (fact.failed_s, fact.id))
    return JobLife(job, runs, attempts, about, opened.left_out, opened.form)


def _unknown(connection: duckdb.DuckDBPyConnection, source: str, job: str, *, has_store: bool) -> str:
    rows = connection.execute(
        "SELECT id, fate FROM jobs WHERE id = ? OR starts_with(id, ? || '_') OR starts_with(id, ? || '+') ORDER BY id LIMIT 4",
        [job] * 3,
    ).fetchall()
    if rows and rows[0][0] == job:
        return f"job {job} is in {source}, but no run of it that ended: {rows[0][1]}"
    if rows:
        return f"job {job} is none by itself in {source}; name a part of it: {', '.join(row[0] for row in rows)}"
    sources_asked = f"neither in {source} nor in the store" if has_store else f"not in {source}"
    return (
        f"job {job} is {sources_asked}; wanted a job that ran and ended; without FILE those of the last 30 days are known (--since)"
    )


def _attempts(connection: duckdb.DuckDBPyConnection, runs: JoinedRuns, job: str) -> list[AttemptRow]:
    """Return the attempts that links join to the job, oldest first; of an id that was used twice those of its last run."""
    rows = [row for (row,) in connection.execute(f"SELECT row FROM jobs WHERE id = ? AND {RAN}", [job]).fetchall()]
    places: list[int] = np.flatnonzero(np.isin(runs.jobs.row, np.array(rows, dtype=np.int64))).tolist()
    if not places:
        return []
    before: dict[int, list[int]] = {}
    for former in np.flatnonzero(runs.next_place >= 0).tolist():
        before.setdefault(int(runs.next_place[former]), []).append(former)
    chain: set[int] = set()
    waiting = [places[-1]]
    while waiting:
        place = waiting.pop()
        if place not in chain:
            chain.add(place)
            waiting += before.get(place, [])
            if runs.next_place[place] >= 0:
                waiting.append(int(runs.next_place[place]))
    by_row = {int(runs.jobs.row[place]): place for place in chain}
    attempt_rows = connection.execute(
        'SELECT row, id, name, "user", state, exit, node_list FROM jobs WHERE row IN (SELECT unnest(?))', [list(by_row)]
    ).fetchall()
    attempts = [AttemptRow(by_row[row], *texts) for row, *texts in attempt_rows]
    return sorted(attempts, key=lambda attempt: (runs.jobs.start_s[attempt.place], attempt.place))


def life_report(life: JobLife, frame: ReportFrame) -> UsageReport:
    """Return the report of one run."""
    runs, places = life.runs, [attempt.place for attempt in life.attempts]
    among = np.zeros(runs.jobs.count, dtype=np.bool_)
    among[places] = True
    groups = []
    if places:
        good, down = goodput(runs, among), downtime(runs, among)
        attempts: list[Figure] = [_attempt_table(life, frame.zone), *_node_tables(life)]
        cost: list[Figure] = [waterfall_plot(good), parts_table(good)] if good.whole_ms else []
        if down.places.any():
            cost.append(gaps_table(runs, down))
        groups.append(FigureGroup("attempts_group", "Attempts", "Each time that the run began, oldest first.", tuple(attempts)))
        groups.append(FigureGroup("cost", "What it cost", "GPU hours of all attempts, and the time between them.", tuple(cost)))
    if life.facts:
        lead = "What Nightshift noticed and found; texts are those of logs."
        groups.append(FigureGroup("causes", "Causes", lead, (_incident_table(life, frame.zone), _text_table(life))))
    return frame.report(
        "job",
        groups,
        facts=_facts(life),
        headline=_headline(life),
        remarks=_remarks(life),
    )


def _facts(life: JobLife) -> list[tuple[str, str]]:
    if not life.attempts:
        return []
    first = life.attempts[0]
    facts = [("name", first.name or "–"), ("user", first.user or "–")]
    return [*facts, ("ids", ", ".join(dict.fromkeys(attempt.id for attempt in life.attempts)))]


def _headline(life: JobLife) -> list[tuple[str, Cell, str]]:
    jobs, places = life.runs.jobs, [attempt.place for attempt in life.attempts]
    if not places:
        return [("incidents", len(life.facts), "count")]
    begin = float(np.nanmin(np.fmin(jobs.submit_s[places], jobs.start_s[places])))
    beginning = "start" if np.isnan(jobs.submit_s[places[0]]) else "submission"
    lost = [fact.times.steps_lost for fact in life.facts if fact.times.steps_lost is not None]
    return [
        ("attempts", len(places), "count"),
        ("failures", int(life.runs.failed[places].sum()), "count"),
        ("incidents", len(life.facts) if life.runs.has_store or life.facts else NOT_KNOWN, "count"),
        (f"from {beginning} to last end", float(jobs.end_s[places].max()) - begin, "s"),
        ("running", float(jobs.run_s[places].sum()), "s"),
        ("GPU hours", float(np.nansum(jobs.gpu_s[places])) / 3600, "GPU h"),
        ("steps lost", sum(lost) if lost else None if life.runs.has_store or life.facts else NOT_KNOWN, "count"),
    ]


_JOINS = {Join.NONE: "", Join.STORE: "store", Join.ID: "id", Join.NAME: "name"}


def _joins(life: JobLife) -> list[Join]:
    """Return by what each attempt is joined to one before it, the surest where there are several; NONE of the first."""
    runs = life.runs
    joins: dict[int, Join] = {}
    for attempt in life.attempts:
        following, join = int(runs.next_place[attempt.place]), Join(int(runs.next_join[attempt.place]))
        joins[following] = min(join, joins.get(following, join))
    return [joins.get(attempt.place, Join.NONE) for attempt in life.attempts]


def _attempt_table(life: JobLife, zone: str) -> FigureTable:
    columns = (
        TableColumn("attempt", "attempt", "count"),
        TableColumn("job", "job"),
        TableColumn("started", "started"),
        TableColumn("ended", "ended"),
        TableColumn("run_s", "ran", "s"),
        TableColumn("queue_s", "queued", "s"),
        TableColumn("gpus", "GPUs", "number"),
        TableColumn("gpu_hours", "GPU hours", "GPU h"),
        TableColumn("state", "final state"),
        TableColumn("exit", "exit"),
        TableColumn("reason", "reason"),
        TableColumn("steps_lost", "steps lost", "count"),
        TableColumn("joined_by", "joined by"),
    )
    runs, joins = life.runs, _joins(life)
    rows: list[tuple[Cell, ...]] = []
    for number, attempt in enumerate(life.attempts, 1):
        place = attempt.place
        fact = runs.facts[runs.incident[place]] if runs.incident[place] >= 0 else None
        rows.append(
            (
                number,
                attempt.id,
                moment(float(runs.jobs.start_s[place]), zone),
                moment(float(runs.jobs.end_s[place]), zone),
                float(runs.jobs.run_s[place]),
                _number(runs.jobs.queue_s[place]),
                _number(runs.jobs.gpus[place]),
                None if np.isnan(runs.jobs.gpu_s[place]) else float(runs.jobs.gpu_s[place]) / 3600,
                attempt.state or "–",
                attempt.exit or "–",
                runs.reason.names[runs.reason.codes[place]] if runs.failed[place] else "",
                fact.times.steps_lost if fact is not None else None,
                _JOINS[joins[number - 1]],
            )
        )
    return FigureTable("attempts", "Attempts", columns, tuple(rows))


def _node_tables(life: JobLife) -> list[FigureTable]:
    """Return on which nodes each attempt ran, where the source says it."""
    columns = (
        TableColumn("attempt", "attempt", "count"),
        TableColumn("count", "nodes", "count"),
        TableColumn("nodes", "their names"),
        TableColumn("changed", "against the attempt before"),
    )
    rows: list[tuple[Cell, ...]] = []
    former: frozenset[str] = frozenset()
    for number, attempt in enumerate(life.attempts, 1):
        nodes = _nodes(attempt.node_list)
        rows.append((number, len(nodes) or None, fold(sorted(nodes)) if nodes else "–", _changed(former, nodes)))
        former = nodes
    return [FigureTable("attempt_nodes", "Nodes", columns, tuple(rows))] if any(row[1] for row in rows) else []


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _nodes(text: str | None) -> frozenset[str]:
    try:
        return frozenset(expand(text)) if text and text not in NO_LIST else frozenset()
    except (UsageError, InputError):
        return frozenset()


def _changed(former: frozenset[str], nodes: frozenset[str]) -> str:
    """Return which nodes an attempt had no more, and which anew."""
    if not former or not nodes:
        return ""
    parts = [f"{word} {fold(sorted(names))}" for word, names in (("without", former - nodes), ("with", nodes - former)) if names]
    return ", ".join(parts) or "the same"


def _incident_table(life: JobLife, zone: str) -> FigureTable:
    columns = (
        TableColumn("incident", "incident", "count"),
        TableColumn("job", "job"),
        TableColumn("failed", "failed"),
        TableColumn("kind", "seen as"),
        TableColumn("reason", "reason"),
        TableColumn("detect_s", "to detect", "s"),
        TableColumn("diagnose_s", "to diagnose", "s"),
        TableColumn("resubmit_s", "to resubmit", "s"),
        TableColumn("verify_s", "to verify", "s"),
        TableColumn("end_step", "last step", "count"),
        TableColumn("restart_step", "restart from", "count"),
        TableColumn("steps_lost", "steps lost", "count"),
        TableColumn("state", "state"),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            fact.id,
            f"{fact.job}, attempt {fact.attempt}" if fact.attempt else fact.job or "",
            moment(fact.failed_s, zone),
            str(fact.kind),
            f"{fact.reason} ({fact.category})" if fact.diagnosed else fact.reason or "not diagnosed",
            fact.times.detect_s,
            fact.times.diagnose_s,
            fact.times.resubmit_s,
            fact.times.recover_s,
            fact.end_step,
            fact.times.restart_step,
            fact.times.steps_lost,
            str(fact.state),
        )
        for fact in life.facts
    ]
    return FigureTable("incidents", "Incidents", columns, tuple(rows))


def _text_table(life: JobLife) -> FigureTable:
    columns = (
        TableColumn("incident", "incident", "count"),
        TableColumn("handled", "how it ended"),
        TableColumn("nodes", "nodes to blame"),
        TableColumn("summary", "diagnosis"),
        TableColumn("note", "note"),
    )
    rows: list[tuple[Cell, ...]] = [
        (fact.id, str(fact.handling), ", ".join(fact.blamed), _text(fact.summary), _text(fact.note)) for fact in life.facts
    ]
    return FigureTable("texts", "What was found", columns, tuple(rows))


def _text(text: str) -> str:
    redacted = redact(text)
    return redacted if len(redacted) <= MOST_TEXT else f"{redacted[: MOST_TEXT - 1]}…"


def _remarks(life: JobLife) -> list[UsageRemark]:
    runs, places = life.runs, [attempt.place for attempt in life.attempts]
    if not places:
        text = f"The source has no run of job {life.job} that ended; what is below is from the store's incidents alone."
        return [UsageRemark("no_run", text, "note")]
    sentences = []
    last = life.attempts[-1]
    subject = "The attempt" if len(places) == 1 else f"The last of {len(places)} attempts"
    text = f"{subject} ended {last.state or 'in a state that is not known'}"
    sentences.append(UsageRemark("last", f"{text}, after {quantity(float(runs.jobs.run_s[last.place]), 's')}.", "note"))
    if by_name := sum(join is Join.NAME for join in _joins(life)):
        text = (
            f"Of its {len(places)} attempts {by_name} {'is' if by_name == 1 else 'are'} joined to the one before by user, name and "
            "GPUs alone: a guess, for other work may have the same name. Whatever counts all attempts rests on it."
        )
        sentences.append(UsageRemark("by_name", text, "note"))
    if unclear := int((runs.parallel[places] & (runs.next_place[places] < 0)).sum()):
        word = "attempts" if unclear > 1 else "attempt"
        text = (
            f"Whether a run went on with {unclear} {word} cannot be known: runs of the same user, name and GPUs ran beside it, or "
            "it has no name. There may be more attempts than are counted here."
        )
        sentences.append(UsageRemark("parallel", text, "note"))
    among = np.zeros(runs.jobs.count, dtype=np.bool_)
    among[places] = True
    good = goodput(runs, among)
    if good.whole_ms:
        open_ms = sum(part for key, part in good.gpu_ms.items() if key.endswith("_open"))
        used_ms = good.gpu_ms["productive"] + good.gpu_ms["evaluation"]
        low, high = used_ms / good.whole_ms, (used_ms + open_ms) / good.whole_ms
        productive_share = f"between {share(low)} and {share(high)}" if open_ms else share(low)
        sentences.append(UsageRemark("productive", f"Of its GPU time {productive_share} had a result that was kept.", "note"))
    not_known = int((runs.failed[places] & (runs.incident[places] < 0)).sum())
    if not_known and runs.has_store:
        sentences.append(UsageRemark("not_diagnosed", f"{not_known} of its failures have no incident in the store.", "note"))
    return sentences
