"""What people had to do: the share of incidents that ended without a person, beside the paper's, and what the rest needed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from assistant.reports.figures import Cell, FigureTable, IntervalValue, TableColumn
from assistant.reports.reliability.incident_facts import Handling, IncidentFacts
from assistant.reports.reliability.intervals import mean
from assistant.reports.statistics import median, share_of_count

PAPER_SHARE = 0.9
"""Of the interventions of people that the paper's diagnosis saved. Source: arXiv 2403.07648, section 6.1."""
MOST_REASONS = 15


def within(facts: Sequence[IncidentFacts], since_s: float | None, until_s: float | None) -> list[IncidentFacts]:
    """Return the incidents that were opened in a period."""
    return [
        fact for fact in facts if (since_s is None or fact.opened_s >= since_s) and (until_s is None or fact.opened_s < until_s)
    ]


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
