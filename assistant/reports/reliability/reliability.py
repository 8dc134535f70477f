"""Make `report reliability`: goodput, times to failure, lemon nodes, and what people had to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from assistant.reports.cluster import ReportFrame
from assistant.reports.figures import Cell, Figure, FigureGroup, FigureTable, IntervalValue, TableColumn, UsageRemark, UsageReport
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
    return UsageReport(
        kind="reliability",
        title=frame.title,
        facts=(*frame.facts, *_facts(runs, cost), ("hours and days", f"of the zone {frame.zone}")),
        headline=tuple(_headline(runs, measured, cost, facts)),
        remarks=tuple(_remarks(read, measured, facts)),
        groups=tuple(groups),
        left_out=frame.left_out,
        sources=("Model and ratio: arXiv 2410.21680. Share without a person: arXiv 2403.07648, 6.1.",),
    )


def _within(runs: JoinedRuns, period: TimeRange) -> Sequence[IncidentFacts]:
    if not runs.has_store:
        return ()
    from assistant.reports.reliability.by_hand import within

    def seconds(moment: datetime | None) -> float | None:
        return None if moment is None else moment.timestamp()

    return within(runs.facts, seconds(period.since), seconds(period.until))


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
        from assistant.reports.reliability.by_hand import share_alone

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
    from assistant.reports.reliability.by_hand import handling_table, reasons_table, stages_table

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
            f"{size} GPUs every {quantity(own.value, 's')} ({between(own, 's')}, n = {own.n:,}; model "
            f"{quantity(expected.value, 's')})"
            if own.n
            else f"{size} GPUs not once, so less often than every {quantity(own.low, 's')} (model {quantity(expected.value, 's')})"
            for size, own, expected in disagreement(runs, mask, model)
        ]
        if apart:
            text = f"The model of GPUs that all fail at one rate does not hold here ({word}): jobs fail of {'; of '.join(apart)}."
            sentences.append(UsageRemark(f"model_{word.split()[0]}", text))
    if runs.has_store:
        sentences += _on_people(facts)
    return sentences or [UsageRemark("no_time", "The jobs with GPUs took no time, so there is nothing to divide.", "note")]


def _on_people(facts: Sequence[IncidentFacts]) -> list[UsageRemark]:
    from assistant.reports.reliability.by_hand import PAPER_SHARE, share_alone

    alone = share_alone(facts)
    if not isinstance(alone, IntervalValue):
        return [UsageRemark("alone", "No incident of the period came to an end that needed something done.", "note")]
    word = "below" if alone.high < PAPER_SHARE else "above" if alone.low > PAPER_SHARE else "not to be told from"
    few = " Few incidents stand behind this." if alone.small else ""
    level = "note" if alone.small or word.startswith("not") else "unusual"
    text = f"{cell_text(alone, 'share')} of {alone.n:,} incidents needed no person: {word} the paper's {PAPER_SHARE:.0%}.{few}"
    return [UsageRemark("alone", text, level)]
