"""Beat for the watchdog: one small file that is replaced at each step and phase. For any training loop; needs nothing else.

    heart = Heartbeat.of_environment()
    heart.beat(step, "training")        # also "evaluation", "checkpoint", "loading", "end"

The file is `$NIGHTSHIFT_HEARTBEAT`, else `heartbeat-<job>.json` in the folder where the job runs. Only rank 0 writes. Between two
beats at least a quarter of a second passes unless the phase changes, and a file that cannot be written never stops the training.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

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
