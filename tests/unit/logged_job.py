"""A job of two nodes and the files that it wrote, for the tests of its logs, its processes and its checkpoints."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from assistant.records import Job, JobSpec, JobState

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def job_in(folder: Path, script: str = "", **changes: object) -> Job:
    """Return job 812 of ada, which began at `START` and runs."""
    made = Job(
        id="812",
        name="llm",
        user="ada",
        state=JobState.RUNNING,
        partition="train",
        nodes=("gpu001", "gpu002"),
        log=folder / "slurm-812.out",
        work_dir=folder,
        submitted=START,
        started=START,
        ended=None,
        exit_code=None,
        signal=None,
        raw_id="812",
        dated_logs=True,
        spec=JobSpec("llm", f"#!/bin/bash\n{script}\n", arguments=("big", "3")),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def write(path: Path, text: str, at: datetime = START + timedelta(minutes=1)) -> Path:
    """Write a file, and its folders, as if that had been at some time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    os.utime(path, (at.timestamp(), at.timestamp()))
    return path
