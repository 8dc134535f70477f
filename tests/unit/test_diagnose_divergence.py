"""A spike that a watch saw counts, wherever the loss has gone since."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from assistant.engine.evidence.loss_divergence import Sibling, own_divergence, rate_near
from assistant.records import Event, EventKind, MetricPoint


def log_of(folder: Path, losses: list[float]) -> Path:
    path = folder / "job.log"
    lines = [f" iteration {step:8d}/ 1000 | lm loss: {loss:.6E} | grad norm: 0.3 |" for step, loss in enumerate(losses, 1)]
    path.write_text("\n".join(lines) + "\n")
    return path


def spike_event(step: int) -> Event:
    return Event(EventKind.LOSS_SPIKE, "1", None, datetime(2026, 1, 1, tzinfo=UTC), {"step": step, "level": 2.0, "height": "4.0"})


def test_the_onset_that_the_watch_saw_is_kept_when_the_loss_has_wandered(tmp_path: Path) -> None:
    losses = [2.0 - 0.001 * step for step in range(60)] + [4.0] * 10 + [1.9] * 10
    case = Case.from_parts(log_of(tmp_path, losses), "", "", None, None, spike_event(61))
    found = diagnose(case, Knowledge.load())
    assert (found.reason, found.spike_step) == ("loss_spike", 61)
    assert [cited.line for cited in found.root_cause[:3]] == [61, 62, 63]


def test_the_earlier_of_two_onsets_counts(tmp_path: Path) -> None:
    losses = [2.0 - 0.001 * step for step in range(60)] + [2.1] * 10 + [5.0] * 20
    case = Case.from_parts(log_of(tmp_path, losses), "", "", None, None, spike_event(61))
    assert diagnose(case, Knowledge.load()).spike_step == 61


def lines_without_steps(*, saves: bool) -> str:
    lines = ["***** Running training *****"]
    for count in range(1, 19):
        loss, norm = (2.9 - 0.05 * count, "0.9") if count < 16 else (0.0, "nan")
        lines.append(f"{{'loss': {loss:.4f}, 'grad_norm': {norm}, 'learning_rate': 2e-05, 'epoch': {count / 50:.2f}}}")
        lines += [f"Saving model checkpoint to /ckpt/sft/checkpoint-{count * 5}"] if saves and count % 4 == 0 else []
    return "\n".join([*lines, "ValueError: grad_norm is nan for 3 logs in a row, aborting"]) + "\n"


@pytest.mark.parametrize(("saves", "spike_step", "step"), [(True, 80, 90), (False, None, None)])
def test_counted_lines_are_taken_for_steps_only_where_it_is_proven(
    tmp_path: Path, *, saves: bool, spike_step: int | None, step: int | None
) -> None:
    path = tmp_path / "job.log"
    path.write_text(lines_without_steps(saves=saves))
    found = diagnose(Case.from_parts(path, "", "", None, None, None), Knowledge.load())
    assert (found.reason, found.spike_step, found.step) == ("loss_spike", spike_step, step)
    assert "step 16" not in found.summary


@pytest.mark.parametrize(
    ("losses", "action"),
    [
        ([9.0 + 0.4 * step + 0.01 * step**2 for step in range(40)] + [math.nan] * 5, "fix_and_resubmit"),  # rose from its begin
        ([9.0 - 0.1 * step for step in range(40)] + [math.nan] * 5, "rollback_and_skip_data"),  # had learned
        ([9.0 - 0.1 * step for step in range(20)] + [7.0 + step for step in range(20)], "rollback_and_skip_data"),
        ([2.1, 2.05, 2.2] + [2.15, 2.0, 2.1] * 12 + [9.0] * 10, "rollback_and_skip_data"),  # flat, then a jump
    ],
)
def test_a_loss_that_rose_from_its_first_steps_is_no_matter_of_data(tmp_path: Path, losses: list[float], action: str) -> None:
    found = diagnose(Case.from_parts(log_of(tmp_path, losses), "", "", None, None, None), Knowledge.load())
    assert (found.reason, found.action) == ("loss_spike", action), found.summary
    assert ("The loss never fell" in found.summary) is (action == "fix_and_resubmit")


def sibling(job: str, *, rate: float | None = None, setting: str = "", steps: int = 120, nan_from: int = 0) -> Sibling:
    losses = [math.nan if nan_from and step >= nan_from else 4.0 - 0.01 * step for step in range(1, steps + 1)]
    return Sibling(job, setting, rate, [MetricPoint(step, loss, None, step) for step, loss in enumerate(losses, 1)])


@pytest.mark.parametrize(
    ("own", "others", "blamed"),
    [
        ({"rate": 0.5}, [{"rate": 1e-5}, {"rate": 2e-4}], True),
        ({"rate": 2e-4}, [{"rate": 1e-5}, {"rate": 2e-4}], False),  # another point with its rate is well
        ({"rate": 0.5}, [{"rate": 1e-5, "nan_from": 80}], False),  # both went off where they read the same data
        ({"rate": 0.5}, [{"rate": 1e-5, "steps": 60}], False),  # not there yet
        ({"setting": "--beta2 0.9"}, [{"setting": "--beta2 0.95"}, {"setting": "--beta2 0.99"}], True),
        ({"setting": "--seed 1"}, [{"setting": "--seed 1"}], False),  # what it ran with is no other
        ({}, [{"rate": 1e-5}], False),
        ({"rate": 0.5}, [], False),
    ],
)
def test_siblings_show_whether_its_own_setting_threw_a_loss_off(
    own: dict[str, Any], others: list[dict[str, Any]], blamed: bool
) -> None:
    siblings = [sibling(f"9_{number}", **other) for number, other in enumerate(others)]
    assert bool(own_divergence(sibling("9_7", nan_from=75, **own), siblings, 75)) is blamed


def test_a_learning_rate_is_compared_where_the_loss_went_off_and_not_at_the_end_of_its_schedule() -> None:
    megatron = [
        f" iteration {step:8d}/ 1000 | learning rate: {3e-4 * (1 - step / 1000):.6E} | lm loss: 2.0 |" for step in range(1, 1000)
    ]
    assert rate_near(megatron, 75) == pytest.approx(3e-4 * 0.925)
    bar = [
        text
        for step in range(1, 90)
        for text in (f" 9%|# | {step}/300 [00:17<02:13]", f"{{'loss': 2.0, 'learning_rate': {step / 100}}}")
    ]
    assert rate_near(bar, 75) == 0.75
    assert rate_near(megatron[:20], 500) is None
    assert rate_near(["lr 0.5", "loss 2.0"], 75) is None
