"""Each run of the accounting with its incident, the reason why it failed, and the run that went on with it.

An incident belongs to the run of its job within which it happened (id, then time, then number of the attempt). The run that goes on
with another is the one that the store started, else the next of the same id, else the next of the same user, name and number of
GPUs, where no other of that name ran at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from assistant.reports.job_arrays import NO_NAME, Dimension, JobArrays, job_arrays
from assistant.reports.statistics import Mask, Values

if TYPE_CHECKING:
    import duckdb

    from assistant.reports.reliability.incident_facts import IncidentFacts

Places = npt.NDArray[np.int64]

BEFORE_START_S = 60.0
AFTER_END_S = 600.0
"""So far off a run's start and end may the time of its incident be: clocks differ, and Slurm writes an end late."""
LONGEST_GAP_S = 3 * 86400.0
"""A run that begins later than so long after another does not go on with it, as far as name or id tell; a weekend is less."""
RAN = "fate IN ('counted', 'outside the period')"
NOT_DIAGNOSED = "not diagnosed"
INFRASTRUCTURE = "infrastructure"
ENDED_WELL = "completed"


class Join(IntEnum):
    """By what it is known which run went on with another, in the order in which that is sure."""

    NONE = 0
    STORE = 1
    """The store submitted it."""
    ID = 2
    """It has the same id."""
    NAME = 3
    """It has the same user, name and number of GPUs: a guess."""


@dataclass(frozen=True, slots=True)
class JoinedRuns:
    """All counted jobs, one place a run, as in `JobArrays`."""

    jobs: JobArrays
    failed: Mask
    """Those that failed: by their final state, or since an incident was diagnosed as a failure although somebody cancelled them."""
    reason: Dimension
    """Why, for runs that failed; -1 for others."""
    categories: tuple[str, ...]
    """Of each reason: infrastructure, framework, script, or none, as for a hang; empty where it was not diagnosed."""
    exit: Dimension
    """Exit status of runs that failed; -1 for others."""
    incident: Places
    """Place in `facts` of the incident that says why the run ended; -1 where there is none."""
    incidents: dict[int, tuple[int, ...]]
    """All incidents of a run, as places in `facts`, oldest first."""
    facts: Sequence[IncidentFacts]
    next_place: Places
    """The run that went on with it; -1 where it is not known, or not counted."""
    next_start_s: Values
    """When it began, also where it is not counted; NaN where there is none or it is not known."""
    next_submit_s: Values
    next_join: npt.NDArray[np.int8]
    """A `Join` for each run: by what the next one is known."""
    parallel: Mask
    """Runs of which it cannot be known, since others of the same name ran beside them."""
    unmatched: tuple[int, ...]
    """Incidents about a job of which the source has no run at that time, as places in `facts`."""
    has_store: bool
    """Whether the store has an incident of the time of the jobs: without one it is not known what it would have seen."""

    @property
    def infrastructure(self) -> Mask:
        """Which runs failed of the machines: lost nodes, and what was diagnosed as such."""
        category = np.array([name == INFRASTRUCTURE for name in self.categories] + [False])
        lost = self.jobs.by["state"].names.index("node_fail") if "node_fail" in self.jobs.by["state"].names else -2
        mask: Mask = self.failed & (category[self.reason.codes] | (self.jobs.by["state"].codes == lost))
        return mask

    @property
    def joined_by_name(self) -> Mask:
        """Of which runs the next one is guessed, by user, name and number of GPUs alone."""
        mask: Mask = self.next_join == Join.NAME
        return mask

    @property
    def broken(self) -> Mask:
        """Which runs were broken off by a failure: all that failed, but those that only met their time limit."""
        limit = self.jobs.by["state"].names.index("timeout") if "timeout" in self.jobs.by["state"].names else -2
        # an incident that names another reason than the limit says that the run would have failed without it
        hung = np.array([bool(fact.is_failure) for fact in self.facts] + [False])[self.incident]
        mask: Mask = self.failed & ((self.jobs.by["state"].codes != limit) | hung)
        return mask


class _Links(NamedTuple):
    next_row: Places
    next_start_s: Values
    next_submit_s: Values
    next_join: npt.NDArray[np.int8]
    parallel: Mask


def read_runs(connection: duckdb.DuckDBPyConnection, facts: Sequence[IncidentFacts] | None) -> JoinedRuns:
    """Return the runs of a source that was judged.

    Args:
        connection: With the tables `jobs` and `counted`.
        facts: Incidents of the store; None where there is no store.
    """
    jobs = job_arrays(connection)
    places = _PlacesOfRows(jobs.row)
    links = _links(connection, jobs.row, places)
    incidents: dict[int, tuple[int, ...]] = {}
    unmatched: tuple[int, ...] = ()
    if facts:
        _load(connection, facts)
        incidents, unmatched = _matched(connection, places, facts)
        _link_by_store(connection, places, links)
    incident = np.full(jobs.count, -1, dtype=np.int64)
    for place, numbers in incidents.items():
        at_end = [number for number in numbers if facts and not facts[number].over_before(float(jobs.end_s[place]))]
        diagnosed = [number for number in at_end if facts and facts[number].diagnosed]
        failures = [number for number in diagnosed if facts and facts[number].is_failure]
        incident[place] = (failures or diagnosed or at_end or [-1])[-1]
    has_store = bool(facts) and _reaches(jobs, facts or ())
    failed, reason, categories = _reasons(jobs, facts if has_store else None, incident)
    next_place = places.of(links.next_row)
    # jobs stand in order of their ends: a link back, between runs of a moment, would make a circle
    next_place[next_place <= np.arange(jobs.count)] = -1
    return JoinedRuns(
        jobs=jobs,
        failed=failed,
        reason=reason,
        categories=categories,
        exit=_exits(connection, jobs, places),
        incident=incident,
        incidents=incidents,
        facts=facts or (),
        next_place=next_place,
        next_start_s=links.next_start_s,
        next_submit_s=links.next_submit_s,
        next_join=links.next_join,
        parallel=links.parallel,
        unmatched=unmatched,
        has_store=has_store,
    )


def _reaches(jobs: JobArrays, facts: Sequence[IncidentFacts]) -> bool:
    """Return whether an incident is of the time in which the counted jobs ran."""
    if not jobs.count:
        return True
    first_s, last_s = float(jobs.start_s.min()) - BEFORE_START_S, float(jobs.end_s.max()) + AFTER_END_S
    return any(first_s <= fact.failed_s <= last_s or first_s <= fact.opened_s <= last_s for fact in facts)


class _PlacesOfRows:
    """Finds the place of a row of the source among the counted jobs."""

    def __init__(self, rows: Places) -> None:
        self._order = np.argsort(rows)
        self._sorted = rows[self._order]

    def of(self, rows: Places) -> Places:
        """Return the place of each row, -1 where it is not counted."""
        if not len(self._sorted):
            return np.full(len(rows), -1, dtype=np.int64)
        near = np.minimum(np.searchsorted(self._sorted, rows), len(self._sorted) - 1)
        matches: Places = np.where(self._sorted[near] == rows, self._order[near], -1)
        return matches


def _links(connection: duckdb.DuckDBPyConnection, rows: Places, places: _PlacesOfRows) -> _Links:
    """Return which run went on with each by the accounting alone; none where a run completed."""
    ahead = ", ".join(
        f"lead({column}) OVER {window} AS {window}_{name}"
        for window in ("by_id", "by_name")
        for column, name in (("row", "row"), ("start_s", "start"), ("submit_s", "submit"))
    )
    fits = "({0}_start >= end_s - 1 AND {0}_start <= end_s + " + repr(LONGEST_GAP_S) + ")"
    connection.execute(
        "CREATE TEMP TABLE linked AS WITH ahead AS ("
        f'SELECT row, id, name, "user", start_s, end_s, outcome, {ahead}, max(end_s) OVER (PARTITION BY "user", name, gpus '
        "ORDER BY start_s, end_s, id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_end "
        f'FROM jobs WHERE {RAN} WINDOW by_id AS (PARTITION BY id, "user" ORDER BY start_s, end_s), '
        'by_name AS (PARTITION BY "user", name, gpus ORDER BY start_s, end_s, id)), judged AS ('
        f'SELECT *, {fits.format("by_id")} AS id_fits, name IS NOT NULL AND "user" IS NOT NULL AS named, '
        "coalesce(before_end > start_s + 1, false) OR coalesce(by_name_start < end_s - 1, false) AS beside, "
        f"{fits.format('by_name')} AS name_fits FROM ahead WHERE outcome <> '{ENDED_WELL}') "
        "SELECT row, CASE WHEN id_fits THEN by_id_row WHEN named AND NOT beside AND name_fits THEN by_name_row END AS next_row, "
        "CASE WHEN id_fits THEN by_id_start WHEN named AND NOT beside AND name_fits THEN by_name_start END AS next_start, "
        "CASE WHEN id_fits THEN by_id_submit WHEN named AND NOT beside AND name_fits THEN by_name_submit END AS next_submit, "
        f"CASE WHEN id_fits THEN {Join.ID:d} WHEN named AND NOT beside AND name_fits THEN {Join.NAME:d} "
        f"ELSE {Join.NONE:d} END AS next_join, "
        "NOT coalesce(id_fits, false) AND (NOT named OR beside) AS parallel FROM judged"
    )
    fetched = connection.execute(
        "SELECT row::BIGINT AS row, coalesce(next_row, -1)::BIGINT AS next_row, next_start::DOUBLE AS next_start, "
        "next_submit::DOUBLE AS next_submit, next_join::TINYINT AS next_join, parallel FROM linked"
    ).fetchnumpy()
    at = places.of(np.ma.filled(fetched["row"], -1).astype(np.int64))
    linked = at >= 0
    links = _Links(
        np.full(len(rows), -1, dtype=np.int64),
        np.full(len(rows), np.nan),
        np.full(len(rows), np.nan),
        np.full(len(rows), Join.NONE, dtype=np.int8),
        np.zeros(len(rows), dtype=np.bool_),
    )
    links.next_row[at[linked]] = np.ma.filled(fetched["next_row"], -1)[linked]
    links.next_start_s[at[linked]] = np.ma.filled(fetched["next_start"].astype(np.float64), np.nan)[linked]
    links.next_submit_s[at[linked]] = np.ma.filled(fetched["next_submit"].astype(np.float64), np.nan)[linked]
    links.next_join[at[linked]] = np.ma.filled(fetched["next_join"], Join.NONE)[linked]
    links.parallel[at[linked]] = np.ma.filled(fetched["parallel"], False)[linked]
    return links


def _load(connection: duckdb.DuckDBPyConnection, facts: Sequence[IncidentFacts]) -> None:
    connection.execute("CREATE TEMP TABLE facts (number INTEGER, job VARCHAR, attempt INTEGER, at_s DOUBLE, restart_job VARCHAR)")
    listed = [(place, fact.job, fact.attempt, fact.failed_s, fact.restart_job) for place, fact in enumerate(facts) if fact.job]
    if listed:
        columns = [list(column) for column in zip(*listed, strict=True)]
        connection.execute("INSERT INTO facts SELECT unnest(?), unnest(?), unnest(?), unnest(?), unnest(?)", columns)


def _matched(
    connection: duckdb.DuckDBPyConnection, places: _PlacesOfRows, facts: Sequence[IncidentFacts]
) -> tuple[dict[int, tuple[int, ...]], tuple[int, ...]]:
    """Return the incidents of each counted run, and those without any run in the source."""
    connection.execute(
        "CREATE TEMP TABLE matched AS SELECT f.number, f.restart_job, r.row, r.end_s FROM facts f JOIN (SELECT row, id, start_s, "
        "end_s, coalesce(restarts, row_number() OVER (PARTITION BY id ORDER BY start_s, end_s) - 1) AS place FROM jobs WHERE "
        f"{RAN} AND id IN (SELECT job FROM facts)) r ON r.id = f.job AND f.at_s BETWEEN r.start_s - {BEFORE_START_S} AND r.end_s "
        f"+ {AFTER_END_S} QUALIFY row_number() OVER (PARTITION BY f.number ORDER BY greatest(0, r.start_s - f.at_s, f.at_s - "
        "r.end_s), r.place <> f.attempt, r.start_s, r.end_s) = 1"
    )
    pairs = connection.execute("SELECT number, row FROM matched ORDER BY number").fetchall()
    by_place: dict[int, list[int]] = {}
    for number, place in zip(
        (number for number, _ in pairs), places.of(np.array([row for _, row in pairs], dtype=np.int64)), strict=True
    ):
        if place >= 0:
            by_place.setdefault(int(place), []).append(int(number))
    present = {number for number, _ in pairs}
    unmatched = tuple(place for place, fact in enumerate(facts) if fact.job and place not in present)
    in_order = {
        place: tuple(sorted(numbers, key=lambda number: (facts[number].failed_s, number))) for place, numbers in by_place.items()
    }
    return in_order, unmatched


def _link_by_store(connection: duckdb.DuckDBPyConnection, places: _PlacesOfRows, links: _Links) -> None:
    """Let the restarts that the store knows of count before what names tell."""
    matches = connection.execute(
        "SELECT m.row, arg_min(r.row, r.start_s), min(r.start_s), arg_min(r.submit_s, r.start_s) FROM matched m JOIN jobs r "
        f"ON r.id = m.restart_job AND r.row <> m.row AND r.start_s >= m.end_s - 1 AND r.{RAN} GROUP BY m.row ORDER BY m.row"
    ).fetchall()
    for place, (_, next_row, start_s, submit_s) in zip(
        places.of(np.array([row for row, *_ in matches], dtype=np.int64)), matches, strict=True
    ):
        if place >= 0:
            links.next_row[place] = next_row
            links.next_start_s[place] = start_s
            links.next_submit_s[place] = np.nan if submit_s is None else submit_s
            links.next_join[place] = Join.STORE
            links.parallel[place] = False


def _reasons(jobs: JobArrays, facts: Sequence[IncidentFacts] | None, incident: Places) -> tuple[Mask, Dimension, tuple[str, ...]]:
    """Return which runs failed, of what, and the category of each reason."""
    outcome, state = jobs.by["outcome"], jobs.by["state"]
    failed: Mask = (outcome.codes == outcome.names.index("failed")).copy()
    word = f"{NOT_DIAGNOSED}, " if facts is not None else ""
    names = [f"{word}{name}" for name in state.names]
    categories = [""] * len(names)
    codes = np.where(failed, state.codes, -1).astype(np.int32)
    code_of_reason: dict[tuple[str, str], int] = {}
    completed = outcome.names.index(ENDED_WELL)
    for place in np.flatnonzero(incident >= 0):
        fact = facts[incident[place]] if facts else None
        if fact is None or not fact.diagnosed or outcome.codes[place] == completed:
            continue
        if not failed[place] and not fact.is_failure:
            continue
        key = (fact.reason, fact.category)
        if key not in code_of_reason:
            code_of_reason[key] = len(names)
            names.append(fact.reason)
            categories.append(fact.category)
        failed[place] = True
        codes[place] = code_of_reason[key]
    return failed, Dimension(tuple(names), codes), tuple(categories)


def _exits(connection: duckdb.DuckDBPyConnection, jobs: JobArrays, places: _PlacesOfRows) -> Dimension:
    """Return the exit status of runs that failed by their final state."""
    condition = "outcome = 'failed' AND fate = 'counted'"
    names = tuple(
        name for (name,) in connection.execute(
            f"SELECT DISTINCT coalesce(exit, '{NO_NAME}') AS name FROM jobs WHERE {condition} ORDER BY name"
        ).fetchall()
    )  # fmt: skip
    fetched = connection.execute(
        f"SELECT row::BIGINT AS row, (dense_rank() OVER (ORDER BY coalesce(exit, '{NO_NAME}')) - 1)::INTEGER AS code "
        f"FROM jobs WHERE {condition}"
    ).fetchnumpy()
    codes = np.full(jobs.count, -1, dtype=np.int32)
    codes[places.of(np.ma.filled(fetched["row"], -1).astype(np.int64))] = np.ma.filled(fetched["code"], -1)
    return Dimension(names, codes)
