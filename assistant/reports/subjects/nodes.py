"""Make `report node`: what ran on a node, how its failures stand to the fleet's, and when it was out of service."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from assistant.errors import UsageError
from assistant.nodeset import expand
from assistant.redact import redact
from assistant.reports.figures import (
    SMALL_N,
    Cell,
    FigureGroup,
    FigureTable,
    IntervalValue,
    ReportFrame,
    TableColumn,
    UsageRemark,
    UsageReport,
)
from assistant.reports.job_arrays import without_names
from assistant.reports.reading import ReadRequest, opened_jobs
from assistant.reports.reliability.goodput import without_store
from assistant.reports.reliability.intervals import poisson_interval
from assistant.reports.reliability.nodes import NO_LIST, NodeHours, node_table
from assistant.reports.reliability.runs import JoinedRuns, Places, read_runs
from assistant.reports.statistics import Mask, share_of_count
from assistant.reports.subjects.cordons import Cordon
from assistant.reports.subjects.run_totals import failure_group, state_table
from assistant.reports.wording import between, cell_text, moment, quantity, share

if TYPE_CHECKING:
    import duckdb

    from assistant.reports.reliability.incident_facts import IncidentFacts

MOST_INCIDENTS = 50
MOST_TEXT = 300
"""Characters of a summary in a table."""


@dataclass(frozen=True, slots=True)
class NodeRuns:
    """The runs of a source, and what is known of one node."""

    name: str
    """As it may be shown."""
    runs: JoinedRuns
    ran_here: Mask
    """Runs that had the node, alone or with others."""
    listed: Mask
    """Runs whose nodes are known."""
    hours: NodeHours | None
    """None where no job with GPUs ran on it."""
    nodes: int
    """Nodes of the source that had jobs with GPUs."""
    facts: Sequence[IncidentFacts]
    """Incidents that are about the node, blame it, or are about a run on it, oldest first."""
    blames: frozenset[int]
    """Ids of those that are about the node or blame it."""
    cordons: Sequence[Cordon] | None
    """None without a store."""
    with_texts: bool
    left_out: FigureTable
    form: str


def read_node(
    request: ReadRequest,
    node: str,
    facts: Sequence[IncidentFacts] | None,
    cordons: Sequence[Cordon] | None,
    *,
    slices: Iterable[str] | None = None,
    progress: Callable[[str], None] = lambda text: None,
    folder: Path | None = None,
) -> NodeRuns:
    """Read a source for the report of a node.

    Args:
        request: What is read.
        node: Its name.
        facts: Incidents of the store; None where there is none.
        cordons: Of the node, by Nightshift; None without a store.
        slices: As in `opened_jobs`.
        progress: As in `opened_jobs`.
        folder: As in `opened_jobs`.

    Raises:
        UsageError: Neither the source nor the store knows the node.
    """
    with opened_jobs(request, slices=slices, progress=progress, folder=folder) as opened:
        runs = read_runs(opened.connection, facts)
        table = node_table(opened.connection, runs)
        lists = _lists(opened.connection)
        rows_here = _rows(opened.connection, [text for text, names in lists.items() if node in names])
        rows_listed = _rows(opened.connection, [text for text, names in lists.items() if names])
    ran_here, listed = (np.isin(runs.jobs.row, rows) for rows in (rows_here, rows_listed))
    blamed = [fact for fact in runs.facts if node == fact.node or node in fact.blamed]
    places = {number for place in np.flatnonzero(ran_here).tolist() for number in runs.incidents.get(place, ())}
    about = {fact.id: fact for fact in (*blamed, *(runs.facts[number] for number in places))}
    if not ran_here.any() and not about and not cordons:
        node_names = sorted({name for names in lists.values() for name in names})
        raise UsageError(_unknown(node, node_names, request, has_store=facts is not None))
    place = next((place for place, entry in enumerate(table.nodes, 1) if entry.name == node), 0)
    shown_name = (f"node {place}" if place else "a node") if request.anonymous else node
    if request.anonymous:
        runs = replace(runs, jobs=without_names(runs.jobs))
    return NodeRuns(
        shown_name,
        runs,
        ran_here,
        listed,
        table.nodes[place - 1] if place else None,
        len(table.nodes),
        sorted(about.values(), key=lambda fact: (fact.failed_s, fact.id)),
        frozenset(fact.id for fact in blamed),
        cordons,
        not request.anonymous,
        opened.left_out,
        opened.form,
    )


def _lists(connection: duckdb.DuckDBPyConnection) -> dict[str, frozenset[str]]:
    """Return the nodes of each list of nodes of the counted jobs; none of one that nobody can read."""
    lists: dict[str, frozenset[str]] = {}
    for (text,) in connection.execute("SELECT DISTINCT node_list FROM counted WHERE node_list IS NOT NULL").fetchall():
        try:
            lists[text] = frozenset(expand(text)) if text and text not in NO_LIST else frozenset()
        except UsageError:
            lists[text] = frozenset()
    return lists


def _rows(connection: duckdb.DuckDBPyConnection, lists: Sequence[str]) -> Places:
    fetched = connection.execute(
        "SELECT row FROM counted WHERE node_list IN (SELECT unnest(?::VARCHAR[]))", [list(lists)]
    ).fetchall()
    return np.array([row for (row,) in fetched], dtype=np.int64)


def _unknown(node: str, names: Sequence[str], request: ReadRequest, *, has_store: bool) -> str:
    absence = f"neither in {request.source} nor in the store" if has_store else f"not in {request.source}"
    if not names:
        return f"node {node} is {absence}; the source says of no job on which nodes it ran: add the column NodeList"
    near = [] if request.anonymous else get_close_matches(node, names, 3)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    return f"node {node} is {absence}; wanted one of the {len(names):,} nodes on which jobs ran{hint} (--since reaches back)"


def node_report(read: NodeRuns, frame: ReportFrame, *, first_s: float, last_s: float) -> UsageReport:
    """Return the report of one node.

    Args:
        read: What is known of it.
        frame: What the report says of itself.
        first_s: From when on time out of service counts, seconds since 1970; that of the first counted start where it is later.
        last_s: Until when.
    """
    runs, ran_here = read.runs, read.ran_here
    groups = []
    if runs.jobs.count:
        first_s = max(first_s, float(runs.jobs.start_s.min()))
    if ran_here.any():
        lead = (
            f"{int(ran_here.sum()):,} jobs that had this node, alone or with others; their GPU hours are those of all their nodes."
        )
        groups.append(FigureGroup("work", "What ran on it", lead, (state_table(runs, ran_here),)))
        groups.append(FigureGroup("fleet", "Beside the fleet", _FLEET_LEAD, _fleet_tables(read)))
        groups.append(failure_group(runs, ran_here, frame.zone))
    if read.facts:
        lead = (
            "Incidents about this node, that blame it, or of a job that ran on it; the last say nothing against it by themselves."
        )
        groups.append(FigureGroup("causes", "Incidents", lead, (_incident_table(read, frame.zone),)))
    if read.cordons is not None:
        groups.append(_away(read, frame.zone, first_s, last_s))
    away_s = None if read.cordons is None else sum(cordon.away_s(first_s, last_s) for cordon in read.cordons)
    headline: list[tuple[str, Cell, str]] = [
        ("jobs on it", int(ran_here.sum()), "count"),
        ("hours of jobs with GPUs", read.hours.hours if read.hours is not None else 0.0, "number"),
        ("broken off, of jobs on it", _broken_share(read, ran_here), "share"),
        ("of jobs elsewhere", _broken_share(read, ~ran_here), "share"),
        ("incidents that blame it", len(read.blames) if read.runs.has_store or read.facts else None, "count"),
        ("out of service, by Nightshift", away_s, "s"),
        ("lemon", _verdict(read), ""),
    ]
    facts = [("node", read.name), ("jobs", f"{int(ran_here.sum()):,} of {runs.jobs.count:,} that ran and ended")]
    return frame.report("node", groups, facts=facts, headline=headline, remarks=_remarks(read))


_FLEET_LEAD = (
    "Expected is what its time of jobs of each kind, size and age brings on any node of its partition, as in report reliability."
)


def _verdict(read: NodeRuns) -> str:
    if read.hours is None:
        return "not judged: no job with GPUs ran on it"
    return "yes" if read.hours.lemon else "no"


def _broken_share(read: NodeRuns, among: Mask) -> IntervalValue | None:
    """Return which share of jobs with GPUs and known nodes a failure broke off."""
    with_nodes = among & read.listed & read.runs.jobs.on_gpus
    return share_of_count(int((with_nodes & read.runs.broken).sum()), int(with_nodes.sum()))


def failure_ratio(count: int, expected: float) -> IntervalValue | None:
    """Return failures ÷ expected with the exact interval of the count; None where nothing was to be expected.

    Source:
        Garwood 1936 for the count; what is expected is taken as known.
    """
    if expected <= 0:
        return None
    low, high = poisson_interval(count)
    return IntervalValue(count / expected, low / expected, high / expected, count, float(count))


def _fleet_tables(read: NodeRuns) -> tuple[FigureTable, ...]:
    columns = (
        TableColumn("jobs", "jobs with GPUs"),
        TableColumn("n", "n", "count"),
        TableColumn("broken", "broken off", "count"),
        TableColumn("share", "of them", "share"),
    )
    rows: list[tuple[Cell, ...]] = []
    for title, mask in (("on this node", read.ran_here), ("elsewhere", ~read.ran_here)):
        measured = _broken_share(read, mask)
        if measured is not None:
            rows.append((title, measured.n, round(measured.value * measured.n), measured))
    note = "A job on several nodes that failed is here whoever was to blame; large jobs fail more, wherever they run."
    shares = FigureTable("broken_off", "Jobs that a failure broke off", columns, tuple(rows), note)
    if read.hours is None:
        return (shares,)
    node = read.hours
    columns = (
        TableColumn("failures", "failures"),
        TableColumn("count", "count", "count"),
        TableColumn("expected", "expected", "number"),
        TableColumn("ratio", "count ÷ expected", "number"),
    )
    counts: tuple[tuple[Cell, ...], ...] = (
        ("of jobs on it alone", node.failures, node.expected, failure_ratio(node.failures, node.expected)),
        (
            "of machines, on it alone or blamed on it",
            node.machine_failures,
            node.machine_expected,
            failure_ratio(node.machine_failures, node.machine_expected),
        ),
    )
    note = (
        f"Of {read.nodes:,} nodes; of a user's jobs of one name the first failure of a day counts. Lemon: {_verdict(read)}; share "
        "of false discoveries at which it would be called so: "
        f"{share(node.q)}. Failures with others, of which no node is blamed: {node.together:,}, held against none."
    )
    return shares, FigureTable("expected", "Failures beside what was to be expected", columns, counts, note)


def _incident_table(read: NodeRuns, zone: str) -> FigureTable:
    columns = (
        TableColumn("incident", "incident", "count"),
        TableColumn("failed", "failed"),
        TableColumn("job", "job"),
        TableColumn("kind", "seen as"),
        TableColumn("reason", "reason"),
        TableColumn("blamed", "blames it"),
        TableColumn("state", "state"),
        TableColumn("summary", "diagnosis"),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            fact.id,
            moment(fact.failed_s, zone),
            (fact.job or "–") if read.with_texts else "–",
            str(fact.kind),
            fact.reason or "not diagnosed",
            "yes" if fact.id in read.blames else "no",
            str(fact.state),
            _text(fact.summary) if read.with_texts else "–",
        )
        for fact in read.facts[-MOST_INCIDENTS:]
    ]
    note = f"The last {MOST_INCIDENTS} of {len(read.facts):,}." if len(read.facts) > MOST_INCIDENTS else ""
    return FigureTable("incidents", "Incidents", columns, tuple(rows), note)


def _text(text: str) -> str:
    redacted = redact(text)
    return redacted if len(redacted) <= MOST_TEXT else f"{redacted[: MOST_TEXT - 1]}…"


def _away(read: NodeRuns, zone: str, first_s: float, last_s: float) -> FigureGroup:
    lead = "Cordons by Nightshift alone: what people or Slurm drained is not in its store."
    columns = (
        TableColumn("begin", "from"),
        TableColumn("end", "until"),
        TableColumn("away_s", "in the period", "s"),
        TableColumn("by", "by"),
        TableColumn("why", "why"),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            moment(cordon.begin_s, zone),
            moment(cordon.end_s, zone) if cordon.end_s is not None else "not put back",
            cordon.away_s(first_s, last_s),
            redact(cordon.by) if read.with_texts else "–",
            _text(cordon.why) if read.with_texts else "–",
        )
        for cordon in read.cordons or ()
    ]
    tables = (FigureTable("cordons", "Out of service", columns, tuple(rows)),) if rows else ()
    return FigureGroup("away", "Out of service", lead if rows else "Nightshift never cordoned it.", tables)


def _remarks(read: NodeRuns) -> list[UsageRemark]:
    runs = read.runs
    sentences = [] if runs.has_store else [without_store()]
    if not read.ran_here.any():
        text = "The source has no job that ran on it and ended; what is below is from the store alone."
        return [UsageRemark("no_run", text, "note")]
    node = read.hours
    if node is None:
        return [*sentences, UsageRemark("no_gpus", "No job with GPUs ran on it: failures are held against no node.", "note")]
    if node.lemon:
        sentences.append(UsageRemark("lemon", "It fails more than its work explains: a lemon, by the test of report reliability."))
    ratio = failure_ratio(node.failures, node.expected)
    if ratio is not None:
        word = "more than" if ratio.low > 1 else "fewer than" if ratio.high < 1 else "not to be told from"
        caution = f" Fewer than {SMALL_N} failures stand behind this." if ratio.small else ""
        times = quantity(ratio.value, "number")
        text = (
            f"{node.failures:,} failures of jobs on it alone (of a user's jobs of one name the first of a day), {word} the "
            f"{quantity(node.expected, 'number')} that its work brings on any node: {times} times as many "
            f"({between(ratio, 'number')}). Of many nodes some are so by accident.{caution}"
        )
        sentences.append(UsageRemark("ratio", text, "note"))
    on_node, elsewhere = _broken_share(read, read.ran_here), _broken_share(read, ~read.ran_here)
    if on_node is not None and elsewhere is not None:
        caution = " Few jobs stand behind this." if on_node.small or elsewhere.small else ""
        text = (
            f"Of {on_node.n:,} jobs on it {cell_text(on_node, 'share')} were broken off, of {elsewhere.n:,} elsewhere "
            f"{cell_text(elsewhere, 'share')}.{caution}"
        )
        sentences.append(UsageRemark("broken", text, "note"))
    return sentences
