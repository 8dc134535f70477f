"""Make `report reliability`: goodput, times to failure, lemon nodes, and what people had to do.

The share of incidents that ended without a person stands beside the paper's, with what the others needed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assistant.reports.figures import (
    Cell,
    Figure,
    FigureGroup,
    FigureTable,
    IntervalValue,
    ReportFrame,
    TableColumn,
    UsageRemark,
    UsageReport,
)
from assistant.reports.intake import TimeRange
from assistant.reports.reliability.downtime import Downtime, downtime, downtime_table
from assistant.reports.reliability.failure_rates import (
    FailureRate,
    RestartCost,
    disagreement,
    failure_rate,
    model_table,
    rates_plot,
    rates_table,
    ratios_table,
    usual_queueing,
)
from assistant.reports.reliability.goodput import Goodput, goodput, waterfall_plot, waterfall_table, without_store
from assistant.reports.reliability.nodes import FALSE_DISCOVERIES, LEAST_FAILURES, NodeFailures
from assistant.reports.reliability.reading import ReadRuns
from assistant.reports.reliability.runs import JoinedRuns
from assistant.reports.wording import between, cell_text, quantity, share

if TYPE_CHECKING:
    from assistant.reports.reliability.incident_facts import IncidentFacts
from collections import defaultdict

import numpy as np

from assistant.reports.reliability.incident_facts import Handling, IncidentFacts
from assistant.reports.reliability.intervals import mean
from assistant.reports.statistics import median, share_of_count

MOST_NODES = 20


@dataclass(frozen=True, slots=True)
class _Measured:
    good: Goodput
    down: Downtime
    model: FailureRate
    machine_model: FailureRate
    wait_s: float


def reliability_report(read: ReadRuns, frame: ReportFrame, cost: RestartCost, period: TimeRange) -> UsageReport:
    """Return the report of reliability.

    Args:
        read: The runs.
        frame: What the report says of itself.
        cost: What a failure is taken to cost where nobody measured it.
        period: Incidents that were opened in it are counted by who handled them.
    """
    runs = read.runs
    down = downtime(runs)
    measured = _Measured(
        goodput(runs),
        down,
        failure_rate(runs, runs.broken),
        failure_rate(runs, runs.infrastructure),
        usual_queueing(runs),
    )
    groups = [_goodput(runs, measured), _rates(runs, measured, cost), _lemons(read.nodes)] if runs.jobs.on_gpus.any() else []
    facts = _within(runs, period)
    if runs.has_store:
        groups.append(_people(facts))
    return frame.report(
        "reliability",
        groups,
        facts=_facts(runs, cost),
        headline=_headline(runs, measured, cost, facts),
        remarks=_remarks(read, measured, facts),
        sources=("Model and ratio: arXiv 2410.21680. Share without a person: arXiv 2403.07648, 6.1.",),
    )


def _within(runs: JoinedRuns, period: TimeRange) -> Sequence[IncidentFacts]:
    """Return the incidents of a store that were opened in a period; none without a store."""
    since_s = period.since.timestamp() if period.since is not None else -math.inf
    until_s = period.until.timestamp() if period.until is not None else math.inf
    return [fact for fact in runs.facts if since_s <= fact.opened_s < until_s] if runs.has_store else []


def _facts(runs: JoinedRuns, cost: RestartCost) -> list[tuple[str, str]]:
    store = "not read, or without an incident of this time: nothing is known of hangs, rollbacks, reasons and people"
    if runs.has_store:
        store = f"{len(runs.facts):,} incidents, {len(runs.incidents):,} runs have one"
    return [
        ("jobs", f"{runs.jobs.count:,} that ran and ended"),
        ("store", store),
        (
            "taken, not measured",
            f"start {quantity(cost.start_s, 's')}, {quantity(cost.checkpoint_s, 's')} between checkpoints (--start-min, "
            "--checkpoint-min)",
        ),
    ]


def _headline(
    runs: JoinedRuns, measured: _Measured, cost: RestartCost, facts: Sequence[IncidentFacts]
) -> list[tuple[str, Cell, str]]:
    whole_nodes = 64
    headline: list[tuple[str, Cell, str]] = [
        ("allocated GPU hours", measured.good.whole_ms / 3_600_000, "GPU h"),
        ("known to be productive", measured.good.productive, "share"),
        ("failures that broke jobs off", int((runs.broken & runs.jobs.on_gpus).sum()), "count"),
        ("of them by machines", int((runs.infrastructure & runs.jobs.on_gpus).sum()), "count"),
        (f"time to failure, {whole_nodes} GPUs, model", measured.model.between(whole_nodes), "s"),
        (f"ETTR, {whole_nodes} GPUs, model", measured.model.ratio(whole_nodes, cost, measured.wait_s), "share"),
    ]
    if runs.has_store:
        from assistant.reports.reliability.reliability import share_alone

        headline.append(("without a person, of incidents", share_alone(facts), "share"))
    return headline


def _goodput(runs: JoinedRuns, measured: _Measured) -> FigureGroup:
    lead = (
        "Allocated GPU time of all runs with GPUs, divided; what is not known is a part of its own and is never called productive."
    )
    figures: tuple[Figure, ...] = (
        waterfall_plot(measured.good),
        waterfall_table(measured.good),
        downtime_table(runs, measured.down),
    )
    return FigureGroup("goodput_group", "Goodput", lead, figures)


def _rates(runs: JoinedRuns, measured: _Measured, cost: RestartCost) -> FigureGroup:
    lead = "How long jobs ran between failures, by size, and what a model of equal GPUs makes of it for sizes that never ran."
    figures: tuple[Figure, ...] = (
        rates_plot(runs, runs.broken, measured.model, "between_failures", "Time to failure, any cause"),
        rates_plot(runs, runs.infrastructure, measured.machine_model, "between_machine_failures", "Time to failure of machines"),
        rates_table(runs, measured.model, measured.machine_model),
        ratios_table(runs, measured.model, cost, measured.wait_s),
        model_table(measured.model, measured.machine_model, cost, measured.wait_s),
    )
    return FigureGroup("rates", "Times between failures", lead, figures)


def _lemons(table: NodeFailures) -> FigureGroup:
    lead = (
        "A node is called a lemon when it fails more than its time of jobs of each kind, size and age brings on its partition; "
        f"among those called so, {share(FALSE_DISCOVERIES)} are expected to be so by accident."
    )
    if not table.nodes:
        return FigureGroup("lemons", "Lemon nodes", "The source does not say on which nodes jobs ran: add the column NodeList.", ())
    columns = (
        TableColumn("node", "node"),
        TableColumn("lemon", "lemon"),
        TableColumn("q", "false discoveries", "share"),
        TableColumn("hours", "hours", "number"),
        TableColumn("failures", "failures on it alone", "count"),
        TableColumn("expected", "expected", "number"),
        TableColumn("machine_failures", "of machines", "count"),
        TableColumn("machine_expected", "expected", "number"),
        TableColumn("together", "failures with others", "count"),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            node.name,
            "yes" if node.lemon else "no",
            node.q,
            node.hours,
            node.failures,
            node.expected,
            node.machine_failures,
            node.machine_expected,
            node.together,
        )
        for node in table.nodes[:MOST_NODES]
    ]
    note = (
        f"{len(table.nodes):,} nodes were tested, of {table.listed_jobs:,} jobs; of {table.unread:,} no nodes are known. At least "
        f"{LEAST_FAILURES} failures. Failures with others name no node and are held against none."
    )
    return FigureGroup(
        "lemons", "Lemon nodes", lead, (FigureTable("lemon_nodes", "Nodes, most unlikely first", columns, tuple(rows), note),)
    )


def _people(facts: Sequence[IncidentFacts]) -> FigureGroup:
    from assistant.reports.reliability.reliability import handling_table, reasons_table, stages_table

    lead = f"{len(facts):,} incidents that were opened in the period."
    return FigureGroup("people", "Without a person", lead, (handling_table(facts), reasons_table(facts), stages_table(facts)))


def _remarks(read: ReadRuns, measured: _Measured, facts: Sequence[IncidentFacts]) -> list[UsageRemark]:
    runs = read.runs
    if not runs.jobs.count:
        return [UsageRemark("empty", "No job that ran and ended was counted: the table of what was left out says why.", "note")]
    if not runs.jobs.on_gpus.any():
        return [UsageRemark("no_gpus", f"None of the {runs.jobs.count:,} jobs is known to have had a GPU.", "note")]
    sentences = [] if runs.has_store else [without_store()]
    good = measured.good
    open_ms = sum(good.gpu_ms[key] for key in good.gpu_ms if key.endswith("_open"))
    productive = good.gpu_ms["productive"]
    if good.whole_ms:
        low, high = productive / good.whole_ms, (productive + open_ms) / good.whole_ms
        text = f"{share(low)} of the allocated GPU time was productive."
        if open_ms:
            text = (
                f"Between {share(low)} and {share(high)} of the allocated GPU time was productive; of {share(high - low)} nobody "
                "knows how much was saved."
            )
        sentences.append(UsageRemark("goodput", text, "note"))
    names = [node.name for node in read.nodes.lemons]
    if names:
        text = f"{len(names)} of {len(read.nodes.nodes):,} nodes fail more than their work explains: {', '.join(names[:8])}."
        sentences.append(UsageRemark("lemons", text))
    for mask, model, word in (
        (runs.broken, measured.model, "any cause"),
        (runs.infrastructure, measured.machine_model, "machines"),
    ):
        apart = [
            f"{size} GPUs every {quantity(gap.value, 's')} ({between(gap, 's')}, n = {gap.n:,}; model "
            f"{quantity(expected.value, 's')})"
            if gap.n
            else f"{size} GPUs not once, so less often than every {quantity(gap.low, 's')} (model {quantity(expected.value, 's')})"
            for size, gap, expected in disagreement(runs, mask, model)
        ]
        if apart:
            text = f"The model of GPUs that all fail at one rate does not hold here ({word}): jobs fail of {'; of '.join(apart)}."
            sentences.append(UsageRemark(f"model_{word.split()[0]}", text))
    if runs.has_store:
        sentences += _on_people(facts)
    return sentences or [UsageRemark("no_time", "The jobs with GPUs took no time, so there is nothing to divide.", "note")]


def _on_people(facts: Sequence[IncidentFacts]) -> list[UsageRemark]:
    from assistant.reports.reliability.reliability import PAPER_SHARE, share_alone

    alone = share_alone(facts)
    if not isinstance(alone, IntervalValue):
        return [UsageRemark("alone", "No incident of the period came to an end that needed something done.", "note")]
    word = "below" if alone.high < PAPER_SHARE else "above" if alone.low > PAPER_SHARE else "not to be told from"
    caution = " Few incidents stand behind this." if alone.small else ""
    level = "note" if alone.small or word.startswith("not") else "unusual"
    text = f"{cell_text(alone, 'share')} of {alone.n:,} incidents needed no person: {word} the paper's {PAPER_SHARE:.0%}.{caution}"
    return [UsageRemark("alone", text, level)]


PAPER_SHARE = 0.9
"""Of the interventions of people that the paper's diagnosis saved. Source: arXiv 2403.07648, section 6.1."""
MOST_REASONS = 15


def share_alone(facts: Sequence[IncidentFacts]) -> IntervalValue | None:
    """Return how many of the incidents that needed something done came to their end without a person."""
    alone = sum(fact.handling is Handling.ALONE for fact in facts)
    return share_of_count(alone, alone + sum(fact.handling.by_person for fact in facts))


def handling_table(facts: Sequence[IncidentFacts]) -> FigureTable:
    """Return all incidents by how they were handled; the rows sum to all incidents of the period."""
    columns = (
        TableColumn("handling", "how it ended"),
        TableColumn("incidents", "incidents", "count"),
        TableColumn("share", "of those that needed something", "share"),
        TableColumn("asked_s", "a person was asked for, median", "s"),
        TableColumn("asked_mean_s", "mean", "s"),
    )
    needed = sum(fact.handling is Handling.ALONE or fact.handling.by_person for fact in facts)
    rows: list[tuple[Cell, ...]] = []
    for handling in Handling:
        group = [fact for fact in facts if fact.handling is handling]
        counts = handling is Handling.ALONE or handling.by_person
        asked_s = np.sort(np.array([sum(wait.end_s - wait.begin_s for wait in fact.waits) for fact in group if fact.waits]))
        rows.append(
            (str(handling), len(group), share_of_count(len(group), needed) if counts else None, median(asked_s), mean(asked_s))
        )
    note = (
        f"The paper says {PAPER_SHARE:.0%} of the interventions of people were saved (6.1); it does not say how they were counted."
    )
    return FigureTable("handling", "Incidents by what a person had to do", columns, tuple(rows), note)


def reasons_table(facts: Sequence[IncidentFacts]) -> FigureTable:
    """Return by reason how often a person was needed."""
    by_reason: dict[str, list[IncidentFacts]] = defaultdict(list)
    for fact in facts:
        if fact.handling is Handling.ALONE or fact.handling.by_person:
            by_reason[fact.reason or "not diagnosed"].append(fact)
    columns = (
        TableColumn("reason", "reason"),
        TableColumn("incidents", "incidents", "count"),
        TableColumn("alone", "without a person", "share"),
        TableColumn("most", "what the rest needed most"),
    )
    rows: list[tuple[Cell, ...]] = []
    for reason, group in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0]))[:MOST_REASONS]:
        needs = [str(fact.handling) for fact in group if fact.handling.by_person]
        most = max(sorted(set(needs)), key=needs.count) if needs else ""
        rows.append((reason, len(group), share_alone(group), most))
    return FigureTable("handling_by_reason", "Without a person, by reason", columns, tuple(rows))


def stages_table(facts: Sequence[IncidentFacts]) -> FigureTable:
    """Return how long each stage took: to detect, diagnose, resubmit, verify."""
    columns = (
        TableColumn("stage", "stage"),
        TableColumn("incidents", "incidents", "count"),
        TableColumn("median_s", "median", "s"),
        TableColumn("mean_s", "mean", "s"),
        TableColumn("longest_s", "longest", "s"),
    )
    rows: list[tuple[Cell, ...]] = []
    for title, key in (
        ("to detect: from the failure to the incident", "detect_s"),
        ("to diagnose: from the incident", "diagnose_s"),
        ("to resubmit: from the diagnosis", "resubmit_s"),
        ("to verify: from the failure until training moved on", "recover_s"),
    ):
        seconds = np.sort(np.array([value for fact in facts if (value := getattr(fact.times, key)) is not None], dtype=np.float64))
        rows.append((title, len(seconds), median(seconds), mean(seconds), float(seconds[-1]) if len(seconds) else None))
    return FigureTable("stages", "Times of incidents", columns, tuple(rows))
