"""Make `report user`: all users beside one another, or what one user's jobs were, how they ended, and what was lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from assistant.errors import UsageError
from assistant.redact import redact
from assistant.reports.figures import (
    Cell,
    FigureGroup,
    FigureTable,
    IntervalValue,
    ReportFrame,
    TableColumn,
    UsageRemark,
    UsageReport,
)
from assistant.reports.job_arrays import largest, without_names
from assistant.reports.reading import ReadRequest, opened_jobs
from assistant.reports.reliability.goodput import goodput, without_store
from assistant.reports.reliability.runs import JoinedRuns, read_runs
from assistant.reports.statistics import Mask
from assistant.reports.subjects.run_totals import (
    TOTAL_COLUMNS,
    failure_group,
    gpu_hours,
    lost_group,
    queueing_table,
    run_totals,
    state_table,
)
from assistant.reports.wording import cell_text, moment, share

if TYPE_CHECKING:
    from assistant.reports.reliability.incident_facts import IncidentFacts

ALL = "ALL"
"""In place of a name: every user, by Slurm's own word for all."""
MOST_USERS = 50
MOST_JOBS = 20


@dataclass(frozen=True, slots=True)
class UserRuns:
    """The runs of a source, and whose the report is."""

    runs: JoinedRuns
    user: int | None
    """Code of the user; None for all."""
    largest_jobs: Sequence[tuple[int, str, str]]
    """Place, id and name of the user's runs with the most GPU time, those first; ids and names are empty where asked so."""
    left_out: FigureTable
    form: str

    @property
    def name(self) -> str:
        """Name of the user, as it may be shown."""
        return "all users" if self.user is None else self.runs.jobs.by["user"].names[self.user]


def read_user(
    request: ReadRequest,
    user: str,
    facts: Sequence[IncidentFacts] | None,
    *,
    slices: Iterable[str] | None = None,
    progress: Callable[[str], None] = lambda text: None,
    folder: Path | None = None,
) -> UserRuns:
    """Read a source for the report of a user.

    Args:
        request: What is read.
        user: A name, or `ALL`.
        facts: Incidents of the store; None where there is none.
        slices: As in `opened_jobs`.
        progress: As in `opened_jobs`.
        folder: As in `opened_jobs`.

    Raises:
        UsageError: No counted job is of that user.
    """
    with opened_jobs(request, slices=slices, progress=progress, folder=folder) as opened:
        runs = read_runs(opened.connection, facts)
        users = runs.jobs.by["user"]
        if user != ALL and user not in users.names:
            raise UsageError(_unknown(user, users.names, request))
        code = None if user == ALL else users.names.index(user)
        jobs: list[tuple[int, str, str]] = []
        if code is not None:
            places = np.flatnonzero(users.codes == code)
            places = places[np.argsort(-np.nan_to_num(runs.jobs.gpu_s[places]), kind="stable")][:MOST_JOBS]
            texts = opened.connection.execute(
                "SELECT row, id, name FROM counted WHERE row IN (SELECT unnest(?))", [runs.jobs.row[places].tolist()]
            ).fetchall()
            by_row = {row: ("", "") if request.anonymous else (job, redact(name or "")) for row, job, name in texts}
            jobs = [(int(place), *by_row[int(runs.jobs.row[place])]) for place in places]
    if request.anonymous:
        runs = _anonymous(runs)
    return UserRuns(runs, code, jobs, opened.left_out, opened.form)


def _anonymous(runs: JoinedRuns) -> JoinedRuns:
    from dataclasses import replace

    return replace(runs, jobs=without_names(runs.jobs))


def _unknown(user: str, names: Sequence[str], request: ReadRequest) -> str:
    near = [] if request.anonymous else get_close_matches(user, names, 3)
    hint = f"; did you mean {', '.join(near)}?" if near else f"; {len(names):,} others have: nightshift report user {ALL}"
    return f"user {user}: wanted one who has a job that ran and ended, found none in {request.source}{hint} (--since reaches back)"


def user_report(read: UserRuns, frame: ReportFrame) -> UsageReport:
    """Return the report of one user, or of all."""
    runs = read.runs
    if read.user is None:
        everybody = np.ones(runs.jobs.count, dtype=np.bool_)
        groups = [FigureGroup("users_group", "Users", _LEAD, (users_table(runs),))] if runs.jobs.count else []
        return _framed(read, frame, everybody, groups)
    among: Mask = runs.jobs.by["user"].codes == read.user
    work = (state_table(runs, among), queueing_table(runs, {"of this user": among, "of all others": ~among}))
    lead = f"{int(among.sum()):,} jobs that ran and ended, with and without GPUs; queueing is of those with GPUs."
    groups = [
        FigureGroup("work", "What it was and how it ended", lead, work),
        failure_group(runs, among, frame.zone),
        lost_group(runs, among),
        FigureGroup("jobs", "Largest jobs", "By GPU time.", (_jobs_table(read, frame.zone),)),
    ]
    return _framed(read, frame, among, groups)


_LEAD = "Those with the most GPU time first; the rows sum to the cluster."


def users_table(runs: JoinedRuns) -> FigureTable:
    """Return the totals of each user; those beyond `MOST_USERS` are one row, and the rows sum to the last one, the cluster."""
    users = runs.jobs.by["user"]
    codes = largest(users, runs.jobs.gpu_s, MOST_USERS)
    rows: list[tuple[Cell, ...]] = [(users.names[code], *run_totals(runs, users.codes == code)) for code in codes]
    remaining_users = ~np.isin(users.codes, np.array(codes, dtype=np.int32))
    if remaining_users.any():
        rows.append((f"{len(users.names) - len(codes):,} others", *run_totals(runs, remaining_users)))
    rows.append(("all", *run_totals(runs, np.ones(runs.jobs.count, dtype=np.bool_))))
    return FigureTable("users", "Users", (TableColumn("user", "user"), *TOTAL_COLUMNS), tuple(rows))


def _jobs_table(read: UserRuns, zone: str) -> FigureTable:
    columns = (
        TableColumn("job", "job"),
        TableColumn("name", "name"),
        TableColumn("state", "final state"),
        TableColumn("reason", "reason"),
        TableColumn("gpus", "GPUs", "number"),
        TableColumn("run_s", "ran", "s"),
        TableColumn("gpu_hours", "GPU hours", "GPU h"),
        TableColumn("share", "of the user's", "share"),
        TableColumn("ended", "ended"),
    )
    runs = read.runs
    jobs, state = runs.jobs, runs.jobs.by["state"]
    user_s = float(np.nansum(jobs.gpu_s[jobs.by["user"].codes == read.user]))
    rows: list[tuple[Cell, ...]] = []
    for number, (place, job, name) in enumerate(read.largest_jobs, 1):
        gpus, gpu_s = float(jobs.gpus[place]), float(jobs.gpu_s[place])
        rows.append(
            (
                job or f"job {number}",
                name or "–",
                state.names[state.codes[place]],
                runs.reason.names[runs.reason.codes[place]] if runs.failed[place] else "",
                None if np.isnan(gpus) else gpus,
                float(jobs.run_s[place]),
                None if np.isnan(gpu_s) else gpu_s / 3600,
                None if np.isnan(gpu_s) or not user_s else gpu_s / user_s,
                moment(float(jobs.end_s[place]), zone),
            )
        )
    return FigureTable("largest_jobs", "Jobs with the most GPU time", columns, tuple(rows))


def _framed(read: UserRuns, frame: ReportFrame, among: Mask, groups: Sequence[FigureGroup]) -> UsageReport:
    runs = read.runs
    totals, good = run_totals(runs, among), goodput(runs, among)
    headline: list[tuple[str, Cell, str]] = [
        ("jobs", totals.jobs, "count"),
        ("GPU hours", totals.gpu_hours, "GPU h"),
        ("failed, of jobs with GPUs", totals.failed, "share"),
        ("failures", totals.failures, "count"),
        ("GPU hours of failures", totals.failure_hours, "GPU h"),
        ("known to be lost", totals.lost_hours, "GPU h"),
        ("known to be productive", good.productive, "share"),
        ("median queueing, with GPUs", totals.queueing, "s"),
    ]
    facts = [("user", read.name), ("jobs", f"{totals.jobs:,} of {runs.jobs.count:,} that ran and ended")]
    return frame.report("user", groups, facts=facts, headline=headline, remarks=_remarks(read, among))


def _remarks(read: UserRuns, among: Mask) -> list[UsageRemark]:
    runs = read.runs
    if not runs.jobs.count:
        return [UsageRemark("empty", "No job that ran and ended was counted: the table of what was left out says why.", "note")]
    sentences = [] if runs.has_store else [without_store()]
    if read.user is None:
        return [*sentences, UsageRemark("users", f"{len(runs.jobs.by['user'].names):,} users had jobs.", "note")]
    user_totals, remainder = run_totals(runs, among), run_totals(runs, ~among)
    if isinstance(user_totals.failed, IntervalValue) and isinstance(remainder.failed, IntervalValue):
        word = _comparison(user_totals.failed, remainder.failed)
        caution = " Few jobs stand behind this." if user_totals.failed.small or remainder.failed.small else ""
        text = (
            f"{cell_text(user_totals.failed, 'share')} of {user_totals.failed.n:,} jobs with GPUs failed, {word} that of all "
            f"others, {cell_text(remainder.failed, 'share')} of {remainder.failed.n:,}.{caution}"
        )
        sentences.append(UsageRemark("failed", text, "note" if caution or word.startswith("not") else "unusual"))
    cluster_hours = gpu_hours(runs.jobs.gpu_s)
    if cluster_hours:
        sentences.append(
            UsageRemark(
                "part", f"{share(user_totals.gpu_hours / cluster_hours)} of the GPU time of the cluster was this user's.", "note"
            )
        )
    return sentences or [UsageRemark("no_gpus", "None of these jobs is known to have had a GPU.", "note")]


def _comparison(measured: IntervalValue, reference: IntervalValue) -> str:
    """Return how a share stands to another one, by their intervals."""
    if measured.low > reference.high:
        return "above"
    return "below" if measured.high < reference.low else "not to be told from"
