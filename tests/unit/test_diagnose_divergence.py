"""A spike that a watch saw counts, wherever the loss has gone since."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from assistant.records import Event, EventKind


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
