"""Whether a restarted job goes on: steps and loss."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from assistant.records import Job, JobSpec, JobState, MetricPoint
from assistant.recover.verify import Look, Standing, loss_seen, progress_seen, queue_note


def job(state: JobState) -> Job:
    return Job("8", "llm", "ada", state, "gpu", ("node01",), None, None, None, None, None, 0, None)


def points(*steps_and_losses: tuple[int, float | None]) -> list[MetricPoint]:
    return [MetricPoint(step, loss, None, line) for line, (step, loss) in enumerate(steps_and_losses, 1)]


def curve(first: int, last: int, start: float = 4.0, slope: float = -0.01, wiggle: float = 0.0) -> list[MetricPoint]:
    return points(*((step, start + slope * step + wiggle * (-1) ** step) for step in range(first, last + 1)))


@pytest.mark.parametrize(
    ("state", "steps", "status"),
    [
        (JobState.PENDING, [], Look.WAITING),
        (JobState.RUNNING, [], Look.WAITING),
        (JobState.RUNNING, [40], Look.WAITING),
        (JobState.RUNNING, [40, 41], Look.PAST_RESTART_STEP),
        (JobState.UNKNOWN, [], Look.WAITING),
        (JobState.FAILED, [40], Look.FAILED),
        (JobState.FAILED, [], Look.FAILED),
        (JobState.FAILED, [55], Look.FAILED),
        (JobState.COMPLETED, [120], Look.PAST_RESTART_STEP),
        (JobState.COMPLETED, [], Look.PAST_RESTART_STEP),
        (JobState.CANCELLED, [], Look.FAILED),
        (JobState.CANCELLED, [343], Look.FAILED),
        (JobState.TIMEOUT, [55], Look.FAILED),
        (JobState.PENDING, [40, 41], Look.WAITING),
    ],
)
def test_a_job_has_to_pass_the_step_it_restarted_from(state: JobState, steps: list[int], status: Look) -> None:
    assert progress_seen(job(state), 40, points(*((step, 2.0) for step in steps))).status is status


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        (curve(1, 60), curve(41, 60), Look.CONTINUES),
        (curve(1, 60, wiggle=0.4), curve(41, 60, wiggle=-0.4), Look.CONTINUES),
        (curve(1, 60), curve(41, 60, start=10.0), Look.JUMPED),
        (curve(1, 60), points((41, 3.6), (42, math.nan)), Look.WAITING),
        (curve(1, 60), points((41, 3.6), *((step, math.nan) for step in range(42, 47))), Look.JUMPED),
        (curve(1, 60), points((41, 3.6), (42, math.nan), (43, math.nan), (44, 3.6), (45, 3.6)), Look.CONTINUES),
        (curve(1, 60), [MetricPoint(step, 0.0, math.nan, step) for step in range(41, 61)], Look.JUMPED),
        (curve(1, 60), curve(41, 50) + curve(51, 70, start=12.0), Look.JUMPED),
        (curve(1, 60), points((41, 3.6)), Look.WAITING),
        (curve(1, 60), [], Look.WAITING),
        (curve(45, 60), curve(41, 60, start=9.0), Look.CONTINUES),
        ([], curve(41, 60), Look.CONTINUES),
        (curve(1, 40) + curve(41, 60, start=90.0), curve(41, 60), Look.CONTINUES),
    ],
    ids=[
        "same",
        "noisy",
        "random weights",
        "nan once",
        "nan",
        "a skipped step or two",
        "nan shown as zero",
        "jumps later",
        "too early",
        "nothing yet",
        "no overlap",
        "no log",
        "after a spike",
    ],
)
def test_the_loss_has_to_go_on_from_where_it_was(before: list[MetricPoint], after: list[MetricPoint], status: Look) -> None:
    assert loss_seen(before, after, restart_step=40, ended=False).status is status


@pytest.mark.parametrize(("after", "status"), [([], Look.UNKNOWN), (points((41, 3.6)), Look.CONTINUES)])
def test_a_job_that_is_over_is_judged_by_what_it_logged(after: list[MetricPoint], status: Look) -> None:
    assert loss_seen(curve(1, 60), after, restart_step=40, ended=True).status is status


def steps_alone(first: int, last: int, norm: float | None = None) -> list[MetricPoint]:
    return [MetricPoint(step, None, norm, step) for step in range(first, last + 1)]


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        (steps_alone(1, 51, 0.2), steps_alone(41, 160, 0.3), Look.CONTINUES),
        (steps_alone(1, 51), steps_alone(41, 160), Look.CONTINUES),
        (steps_alone(1, 51), steps_alone(1, 30), Look.UNKNOWN),
        (steps_alone(1, 51), steps_alone(40, 40), Look.UNKNOWN),
        (steps_alone(1, 51, 0.2), steps_alone(41, 160, math.nan), Look.UNKNOWN),
        (curve(1, 51), steps_alone(41, 160), Look.UNKNOWN),
        ([], steps_alone(41, 160), Look.UNKNOWN),
        (steps_alone(1, 51), [], Look.UNKNOWN),
    ],
    ids=["norms", "steps", "below", "at it", "no number", "a loss before", "no log before", "no log"],
)
def test_a_job_that_never_logs_a_loss_goes_on_by_its_steps(
    before: list[MetricPoint], after: list[MetricPoint], status: Look
) -> None:
    assert loss_seen(before, after, restart_step=40, ended=True).status is status
    running = loss_seen(before, after, restart_step=40, ended=False).status
    assert running is (Look.WAITING if status is Look.UNKNOWN else status)


def test_from_the_start_there_is_nothing_to_compare() -> None:
    seen = loss_seen(curve(1, 60), curve(1, 5, start=10.0), restart_step=0, ended=False)
    assert (seen.status, seen.note) == (Look.CONTINUES, "there is no earlier loss to compare with; the loss is finite")


@pytest.mark.parametrize(
    ("reason", "exclude", "way_out"),
    [
        ("Resources", (), ""),
        ("Resources", ("node01", "node02"), "stays away from node[01-02]: `scontrol update JobId=8 ExcNodeList=`"),
        ("QOSMaxJobsPerUserLimit", (), "starts when others of ada end"),
        ("AssocGrpGRES", (), "starts when others of ada end"),
        ("QOSMaxWallDurationPerJobLimit", (), "cannot start there"),
        ("PartitionTimeLimit", (), "cannot start there"),
        ("ReqNodeNotAvail, UnavailableNodes:node03", (), "`sinfo -R`"),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", (), "`sinfo -R`"),
        ("DependencyNeverSatisfied", ("node01",), "never starts: `scontrol update JobId=8 Dependency=`"),
        ("JobHeldAdmin", (), "`scontrol release 8`"),
    ],
)
def test_a_restart_that_waits_is_told_as_waiting_with_a_way_out(reason: str, exclude: tuple[str, ...], way_out: str) -> None:
    waiting = replace(job(JobState.PENDING), reason=reason, spec=JobSpec("llm", "", exclude=exclude))
    standing, note = queue_note(waiting)
    assert standing is Standing.QUEUED
    assert note.startswith(f"job 8 waits in the queue ({reason})")
    assert note.endswith(")") if not way_out else way_out in note
    assert progress_seen(waiting, 40, []).status is Look.WAITING
