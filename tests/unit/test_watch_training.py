"""The watch's judgements of training itself: losses that run away, a pace that drops, checkpoints that fall behind."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.records import MetricPoint
from assistant.watch.hang import HangLimits
from assistant.watch.progress import BLOCK, LossTrack, PaceLimits, PaceTrack, SaveLimits, SaveTrack, SpikeLimits, tells_of_save

START = datetime(2026, 1, 5, 2, 0, tzinfo=UTC)
LIMITS = HangLimits(silent_s=1800, factor=5)
SPIKE = SpikeLimits(persist_steps=20)


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def losses(values: list[float], *, norm: float = 0.4, first: int = 1) -> list[MetricPoint]:
    return [MetricPoint(step, value, norm, step) for step, value in enumerate(values, first)]


NOISE = random.Random(1)
LEVEL = [2.3 + NOISE.gauss(0, 0.02) for _ in range(200)]


@pytest.mark.parametrize(
    ("later", "noticed"),
    [
        ([6.9] * 15, False),
        ([1600 * 0.9**step for step in range(15)], True),
        ([60.0] * 6 + [2.3] * 30, False),
        ([6.9] * 25, True),
        ([math.nan] * 3, False),
        ([math.nan] * 6, True),
        ([math.nan, 2.3] * 20, False),
        ([math.inf] * 6, True),
        ([6.9 - 0.18 * step for step in range(25)], False),
        ([6.9 - 0.18 * step for step in range(25)] + [2.35] * 30, False),
        ([2.6] * 60, False),
        ([2.3 + 0.004 * step for step in range(60)], False),
        ([12.0], False),
    ],
    ids=[
        "young",
        "blown_up_and_falling",
        "blown_up_and_back",
        "lasting",
        "nan_twice",
        "nan",
        "nan_skipped",
        "inf",
        "falling",
        "came_back",
        "other_data",
        "drift",
        "one_step",
    ],
)
def test_a_loss_is_called_lost_only_when_it_stays_away(later: list[float], noticed: bool) -> None:
    track = LossTrack(SPIKE)
    found = None
    for point in losses(LEVEL + later):
        found = track.add([point]) or found
    assert (found is not None) is noticed
    if found is not None:
        assert abs(found.step - 201) <= 1


@pytest.mark.parametrize("together", [1, 3, 8, 15, 200])
def test_a_loss_that_fell_fast_and_came_half_back_is_lost_however_the_steps_are_looked_at(together: int) -> None:
    fell = [0.4 + 5 * math.exp(-step / 20) for step in range(66)]
    later = [6.4 - 0.2 * step for step in range(8)] + [2.1 - 1.3 * math.exp(-step / 12) for step in range(60)]
    points, track = losses(fell + later), LossTrack(SpikeLimits(8))
    found = [track.add(points[at : at + together]) for at in range(0, len(points), together)]
    assert found[-1] is not None
    assert found[-1].step == 67


LOST = [(0.0, math.nan)]
"""What Hugging Face's Trainer logs of a loss that is no number: its filter shows 0."""
FALLING = [(2.3 * 0.97 ** (step / 5), math.nan) for step in range(60)]


@pytest.mark.parametrize(
    ("later", "step"),
    [
        (LOST * 6, 201),
        (LOST * 3, None),
        ([*LOST, (2.3, 0.4)] * 20, None),
        ([(2.1, 0.4), *LOST * 8], 202),
        ([(0.0, 0.4)] * 30, None),
        ([(0.0, 0.0)] * 30, None),
        ([(0.0, None)] * 30, None),
        ([(2.3, math.nan)] * 30, 201),
        ([(2.4, math.nan)] * 15 + [(2.3, 0.4)] * 30, None),
        ([(2.3, math.nan), (2.3, 0.4)] * 30, None),
        ([(2.3, math.inf)] * 30, None),
        ([(2.3, None)] * 30, None),
        (FALLING, None),
    ],
    ids=[
        *(
            "shown_as_zero",
            "zero_thrice",
            "zero_between",
            "zero_after_a_step",
            "a_loss_of_zero",
            "nothing_to_learn",
            "no_norm_logged",
        ),
        *("no_gradients", "scaler_settles", "every_second", "overflow", "norms_end", "still_falling"),
    ],
)
def test_gradients_that_are_no_numbers_are_a_lost_loss_whatever_the_loss_shows(
    later: list[tuple[float, float | None]], step: int | None
) -> None:
    track, found = LossTrack(SPIKE), None
    points = losses(LEVEL) + [MetricPoint(at, loss, norm, at) for at, (loss, norm) in enumerate(later, len(LEVEL) + 1)]
    for point in points:
        found = track.add([point]) or found
    assert (found.step if found is not None else None) == step


def test_a_run_that_goes_back_and_is_lost_again_is_noticed_before_it_is_as_far_as_it_was() -> None:
    track = LossTrack(SPIKE)
    assert track.add(losses([*LEVEL, *[math.nan] * 3])) is None
    again = [MetricPoint(step, math.nan, 0.4, step + 100) for step in range(150, 160)]
    assert track.add(again) is not None


def test_norms_that_never_were_numbers_say_nothing_of_the_training() -> None:
    assert LossTrack(SPIKE).add(losses(LEVEL, norm=math.nan)) is None


def test_a_loss_that_grows_little_with_its_gradient_norm_is_lost() -> None:
    track = LossTrack(SPIKE)
    track.add(losses(LEVEL))
    found = track.add(losses([2.9] * 30, norm=9.0, first=201))
    assert found is not None
    assert found.grad_norm_rose


@given(st.integers(0, 10_000), st.floats(0.005, 0.06))
def test_a_healthy_loss_is_never_called_lost(seed: int, noise: float) -> None:
    rng, track = random.Random(seed), LossTrack(SPIKE)
    values = [(1.8 + 6 * math.exp(-step / 100)) * (1 + rng.gauss(0, noise)) for step in range(500)]
    assert track.add(losses(values)) is None


def paced(*blocks: tuple[int, float]) -> tuple[PaceTrack, float]:
    track, at = PaceTrack(PaceLimits()), 0.0
    for count, seconds in blocks:
        for _ in range(count * BLOCK):
            at += seconds
            track.add(seconds, after(at))
    return track, at


def test_a_job_that_becomes_slow_is_told_with_what_it_lost() -> None:
    track, at = paced((20, 2.0), (30, 4.0))
    slow = track.slow(after(at))
    assert slow is not None
    assert (slow.ratio, slow.against) == (2.0, "itself")
    assert slow.since == after(20 * BLOCK * 2.0)
    assert slow.lost_s == pytest.approx(30 * BLOCK * 4.0 / 2)
    assert slow.worth_restarting(slow.lost_s - 1)
    assert not slow.worth_restarting(slow.lost_s + 1)


@pytest.mark.parametrize(
    "blocks",
    [
        ((20, 2.0), (5, 4.0)),
        ((20, 2.0), (40, 2.5)),
        ((20, 2.0), (30, 4.0), (1, 2.0)),
        ((3, 2.0), (60, 4.0)),
    ],
    ids=["for_minutes", "by_little", "again_well", "from_the_start"],
)
def test_what_passes_or_matters_little_is_not_slow(blocks: tuple[tuple[int, float], ...]) -> None:
    track, at = paced(*blocks)
    assert track.slow(after(at)) is None


def test_a_job_is_slow_from_the_start_by_its_peers() -> None:
    track, at = paced((60, 4.0))
    assert track.slow(after(at), [2.0]) is None  # one peer may be another thing
    slow = track.slow(after(at), [2.0, 2.1, 1.9])
    assert slow is not None
    assert slow.against == "peers"


def test_stalls_of_single_steps_are_not_slow() -> None:
    track, at = PaceTrack(PaceLimits()), 0.0
    for step in range(2000):
        spent = 60.0 if step % 12 == 0 else 2.0
        at += spent
        track.add(spent, after(at))
    assert track.slow(after(at)) is None


def saved(*steps: int, newest: int, every_s: float = 100.0) -> SaveTrack:
    track = SaveTrack()
    for place, step in enumerate(steps):
        track.stepped(step)
        track.saved(f"successfully saved checkpoint at iteration {step} to /ckpt", step, after(place * every_s))
    track.stepped(newest)
    return track


def test_checkpoints_fall_behind_by_their_own_interval() -> None:
    late = saved(100, 200, 300, newest=650).late(SaveLimits(), after(700))
    assert late is not None
    assert (late.last_step, late.steps_since, late.every_steps) == (300, 350, 100)
    assert saved(100, 200, 300, newest=550).late(SaveLimits(), after(700)) is None
    assert saved(100, 200, newest=5000).late(SaveLimits(), after(9000)) is None
    assert saved(100, 200, 300, newest=650).late(SaveLimits(), after(250)) is None  # not by time


def test_an_announcement_alone_is_no_checkpoint_where_others_were_confirmed() -> None:
    track = saved(100, 200, 300, newest=300)
    for step in (400, 500, 600, 650):
        track.stepped(step)
        track.saved(f"saving checkpoint at iteration {step} to /ckpt", step, after(step))
    assert track.late(SaveLimits(), after(900)) is not None


def test_configurations_are_no_checkpoints() -> None:
    assert tells_of_save("Saving model checkpoint to /ckpt/checkpoint-500")
    assert not tells_of_save("Configuration saved in /ckpt/checkpoint-500/config.json")
    assert not tells_of_save("tokenizer config file saved in /ckpt/checkpoint-500/tokenizer_config.json")


def best_only(*lines: str, every_s: float = 100.0) -> tuple[SaveTrack, datetime]:
    """Return the track of a log with a line a step, and the time behind it: `save` stands for a checkpoint."""
    track, at = SaveTrack(), after(0)
    for step, text in enumerate(lines):
        at = after(every_s * step)
        track.stepped(10 * step)
        track.evaluated(text)
        if tells_of_save(text):
            track.saved(text, 10 * step, at)
    return track, at


FALLS = [line for loss in (0.9, 0.8, 0.7, 0.6) for line in (f"validation loss: {loss}", "saving checkpoint")]
RISES = [line for score in (0.5, 0.6, 0.7) for line in (f"eval/accuracy = {score}", "checkpoint saved")]


@pytest.mark.parametrize(
    ("lines", "late"),
    [
        ([*FALLS, *["validation loss: 0.65"] * 20], False),
        ([*FALLS, *["val_loss=nan"] * 20], False),
        ([*RISES, *["eval/accuracy = 0.69"] * 20], False),
        (["saved new best model, val 0.9", "step"] * 4 + ["step"] * 20, False),
        (
            [line for loss in (3.2, 3.1, 3.0) for line in (f"valid on 'valid' subset | loss {loss} | ppl 9", "saved checkpoint")]
            + ["valid on 'valid' subset | loss 3.3 | ppl 9"] * 20,
            False,
        ),
        ([*FALLS, *["validation loss: 0.65"] * 5, "validation loss: 0.55", *["validation loss: 0.65"] * 20], True),
        ([*FALLS, *["train loss 0.5"] * 20], True),
        (["validation loss: 0.7", "saving checkpoint"] * 4 + ["validation loss: 0.9"] * 20, True),
        ([*RISES, *["eval/accuracy = 0.69"] * 3, "checkpoint saved", *["eval/accuracy = 0.69"] * 30], True),
    ],
    ids=lambda value: "" if isinstance(value, list) else str(value),
)
def test_a_job_that_saves_only_what_is_better_is_not_late_while_nothing_is(lines: list[str], late: bool) -> None:
    track, at = best_only(*lines)
    assert (track.late(SaveLimits(), at) is not None) is late
