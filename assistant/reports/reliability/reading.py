"""From a source and a store's incidents to the runs and nodes of a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from assistant.reports.figures import FigureTable
from assistant.reports.job_arrays import without_names
from assistant.reports.reading import ReadRequest, opened_jobs
from assistant.reports.reliability.nodes import NodeFailures, node_table
from assistant.reports.reliability.runs import JoinedRuns, read_runs

if TYPE_CHECKING:
    from assistant.reports.reliability.incident_facts import IncidentFacts


@dataclass(frozen=True, slots=True)
class ReadRuns:
    """The runs of a source with their incidents, and what was left out."""

    runs: JoinedRuns
    nodes: NodeFailures
    left_out: FigureTable
    form: str


def read_failures(
    request: ReadRequest,
    facts: Sequence[IncidentFacts] | None,
    *,
    slices: Iterable[str] | None = None,
    progress: Callable[[str], None] = lambda text: None,
    folder: Path | None = None,
) -> ReadRuns:
    """Read a source and join the incidents; arguments and errors are those of `opened_jobs`.

    Args:
        request: What is read.
        facts: Incidents of the store; None where there is none.
        slices: As in `opened_jobs`.
        progress: As in `opened_jobs`.
        folder: As in `opened_jobs`.
    """
    with opened_jobs(request, slices=slices, progress=progress, folder=folder) as opened:
        progress("runs are joined with incidents")
        runs = read_runs(opened.connection, facts)
        nodes = node_table(opened.connection, runs)
    if request.anonymous:
        runs = replace(runs, jobs=without_names(runs.jobs))
        nodes = replace(nodes, nodes=tuple(replace(node, name=f"node {place}") for place, node in enumerate(nodes.nodes, 1)))
    return ReadRuns(runs, nodes, opened.left_out, opened.form)
