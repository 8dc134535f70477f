"""The lines that Megatron-LM prints about training (training.py, training_log and evaluate_and_print_results)."""

from __future__ import annotations

import math
from datetime import datetime
from typing import NamedTuple


class StepReport(NamedTuple):
    """The metrics of one optimiser step."""

    step: int
    steps: int
    consumed: int
    """Samples so far, left-out ones among them."""
    step_s: float
    rate: float
    per_step: int
    loss: float
    grad_norm: float
    not_numbers: int = 0
    """Iterations so far whose loss was not a number."""


def iteration_line(report: StepReport, at: datetime) -> str:
    """Return the line for a step; `at` prints as it is."""
    return (
        f" [{at:%Y-%m-%d %H:%M:%S}] iteration {report.step:8d}/{report.steps:8d} | consumed samples: {report.consumed:12d} |"
        f" elapsed time per iteration (ms): {report.step_s * 1000:.1f} | learning rate: {report.rate:.6E} |"
        f" global batch size: {report.per_step:5d} | lm loss: {report.loss:.6E} | loss scale: 1.0 |"
        f" grad norm: {report.grad_norm:.3f} | number of skipped iterations:   0 |"
        f" number of nan iterations: {report.not_numbers:3d} |"
    )


def validation_line(step: int, loss: float) -> str:
    """Return the line for an evaluation."""
    return f" validation loss at iteration {step} | lm loss value: {loss:.6E} | lm loss PPL: {math.exp(min(loss, 50)):.6E} |"


def saving_line(step: int, folder: object) -> str:
    """Return the line before a checkpoint is written."""
    return f"saving checkpoint at iteration {step:7d} to {folder}"


def saved_line(step: int, folder: object) -> str:
    """Return the line after a checkpoint was written."""
    return f"  successfully saved checkpoint at iteration {step:7d} to {folder}"


def loaded_line(step: int, folder: object) -> str:
    """Return the line after a checkpoint was read."""
    return f"  successfully loaded checkpoint from {folder} [ t 0, p 0 ] at iteration {step}"
