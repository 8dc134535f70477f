"""What a training loop shows to those who watch it: a heartbeat file, for any loop, and the lines that Megatron-LM prints.

The heartbeat is one small file that is replaced at each step and phase; it needs nothing else of this package:

    heart = Heartbeat.of_environment()
    heart.beat(step, "training")        # also "evaluation", "checkpoint", "loading", "end"

The file is `$NIGHTSHIFT_HEARTBEAT`, else `heartbeat-<job>.json` in the folder where the job runs. Only rank 0 writes. Between two
beats at least a quarter of a second passes unless the phase changes, and a file that cannot be written never stops the training.

The lines are those of Megatron-LM's training.py (training_log and evaluate_and_print_results).
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

SHORTEST_S = 0.25


class Heartbeat:
    """Writes beats of one attempt."""

    def __init__(self, path: Path | None, job: str = "", attempt: int = 0) -> None:
        """Beat into a file.

        Args:
            path: The file; None beats nowhere.
            job: Scheduler job id, so that another job's old file is not taken for this one's.
            attempt: How often the job was requeued.
        """
        self.path, self.job, self.attempt = path, job, attempt
        self._last, self._phase = 0.0, ""

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] = os.environ) -> Heartbeat:
        """Return the heartbeat of this process: it beats on rank 0 of a job, and nowhere else."""
        rank = environment.get("RANK", environment.get("SLURM_PROCID", "0"))
        job = _job_id(environment)
        path_text = environment.get("NIGHTSHIFT_HEARTBEAT", "").replace("%j", job)
        if rank != "0" or not (path_text or job):
            return cls(None)
        attempt = environment.get("SLURM_RESTART_COUNT", "0")
        return cls(Path(path_text or f"heartbeat-{job}.json").absolute(), job, int(attempt) if attempt.isdecimal() else 0)

    def beat(self, step: int, phase: str = "training") -> None:
        """Say where training stands."""
        now = time.monotonic()
        if self.path is None or (phase == self._phase and now - self._last < SHORTEST_S):
            return
        self._last, self._phase = now, phase
        record = {"job": self.job, "attempt": self.attempt, "step": step, "phase": phase, "at": datetime.now(UTC).isoformat()}
        part_path = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            part_path.write_text(json.dumps(record) if self.job else json.dumps({k: record[k] for k in ("step", "phase", "at")}))
            part_path.replace(self.path)
        except OSError:
            return  # a full disk is the watchdog's to notice, not the training's to die of


def _job_id(environment: Mapping[str, str]) -> str:
    """Return the id as the scheduler shows it: `18_3` for a task of an array."""
    array, task = environment.get("SLURM_ARRAY_JOB_ID", ""), environment.get("SLURM_ARRAY_TASK_ID", "")
    return f"{array}_{task}" if array and task else environment.get("SLURM_JOB_ID", "")


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
