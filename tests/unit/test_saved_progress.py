"""A restarted job whose log numbers no step: its own whole checkpoints tell how far it came, its losses that it trains."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assistant.records import Checkpoint, Job, JobState, MetricPoint
from assistant.recover.saved_progress import loss_of_lines, saved_progress, steps_between
from assistant.recover.verify import CONFIRM_S, Look, Restart, Seen, Standing, judge_restart

BEGAN = datetime(2026, 3, 4, 5, 0, tzinfo=UTC)
RUNNING = Job("9", "clm", "ada", JobState.RUNNING, "gpu", ("n3",), None, Path("/w"), BEGAN, BEGAN, None, None, None)
NAN = float("nan")


def save(step: int, after_s: float, *, healthy: bool = True, name: str = "") -> Checkpoint:
    path = Path(f"/w/out/{name or f'checkpoint-{step}'}")
    return Checkpoint(path, step, "hf-trainer", 10, BEGAN + timedelta(seconds=after_s), healthy=healthy, problems=())


def losses(*numbers: float) -> list[MetricPoint]:
    return [MetricPoint(place, loss, None, place, counted=True) for place, loss in enumerate(numbers, 1)]


OLD = [save(100, -40), save(120, -30)]


@pytest.mark.parametrize(
    ("checkpoints", "chosen", "step"),
    [
        ([*OLD, save(140, 60), save(160, 70)], 120, 160),
        (OLD, 120, None),  # nothing of its own
        ([*OLD, save(140, -5)], 120, None),  # the attempt before wrote it
        ([*OLD, save(140, 60, healthy=False)], 120, None),  # half a checkpoint proves no training
        ([save(100, -40), save(120, 60)], 120, None),  # the chosen one, written anew, is not past itself
        ([*OLD, save(110, 60)], 100, None),  # the attempt before had come to 120
        ([save(20, 60)], 0, 20),
    ],
)
def test_whole_checkpoints_of_later_steps_that_a_job_wrote_since_it_began_are_its_progress(
    checkpoints: list[Checkpoint], chosen: int, step: int | None
) -> None:
    progress = saved_progress(checkpoints, RUNNING, chosen_step=chosen, before=losses(4, 3.9), after=losses(3.8, 3.7))
    assert (progress.step if progress is not None else None) == step


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ((4.0, 3.9, 3.8), (3.7, 3.6), Look.CONTINUES),
        ((4.0, 3.9, 3.8), (9.1, 9.0), Look.JUMPED),
        ((4.0, 3.9, 3.8), (NAN,) * 40, Look.JUMPED),
        ((4.0, 3.9, 3.8), (), Look.WAITING),
    ],
)
def test_losses_of_lines_without_steps_go_on_or_not(before: tuple[float, ...], after: tuple[float, ...], status: Look) -> None:
    seen = loss_of_lines(losses(*before), losses(*after), chosen_step=120, ended=False)
    assert (seen.status, seen.step) == (status, None)


@pytest.mark.parametrize(
    ("loss", "passed_at", "standing"),
    [
        (Look.CONTINUES, BEGAN, Standing.RECOVERED),
        (Look.CONTINUES, None, Standing.RUNNING_AGAIN),  # it has to be there a while later, too
        (Look.WAITING, BEGAN, Standing.RUNNING_AGAIN),
        (Look.JUMPED, BEGAN, Standing.WRONG_START),
    ],
)
def test_a_running_job_recovers_by_its_saves_and_finite_losses(loss: Look, passed_at: datetime | None, standing: Standing) -> None:
    now = BEGAN + timedelta(seconds=CONFIRM_S + 1)
    restart = Restart(RUNNING, (), (), 120, None, now=now, passed_at=passed_at, saved_step=160, saved_loss=Seen(loss, "the loss"))
    verdict = judge_restart(restart)
    assert (verdict.standing, verdict.passed, verdict.step) == (standing, True, 160)


def test_a_completed_job_without_steps_is_not_said_to_have_logged_step_0() -> None:
    ended = replace(RUNNING, state=JobState.COMPLETED, exit_code=0)
    verdict = judge_restart(Restart(ended, losses(3.0), (), 0, 120, now=BEGAN, saved_step=600))
    assert "step 600" in verdict.note
    counted = judge_restart(Restart(ended, [MetricPoint(0, None, None, 1)], (), 0, 0, now=BEGAN, saved_step=600))
    assert "step 0" not in counted.note


@pytest.mark.parametrize(
    ("until_s", "steps"),
    [
        (-27.5, 5),  # 2 steps a second
        (-10, 19),  # the job's end, not the fault: fewer than lie between two saves all the same
        (-31, None),  # before the checkpoint: that clock tells nothing
    ],
)
def test_lost_steps_are_counted_by_the_time_between_the_saves(until_s: float, steps: int | None) -> None:
    saves = [save(80, -50), save(100, -40), save(120, -30), save(140, 60), save(160, 70)]
    assert steps_between(saves, Path("/w/out/checkpoint-120"), BEGAN + timedelta(seconds=until_s)) == steps
    assert steps_between(saves[2:4], Path("/w/out/checkpoint-120"), BEGAN) is None  # one gap, with the pause in it
