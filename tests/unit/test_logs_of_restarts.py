"""Logs that a program makes under names of its own: a restart that nobody looked at while it ran writes them as the one before."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from assistant.logs.attempt import job_logs
from assistant.logs.program_logs import LIKE_BEFORE
from assistant.logs.tail import LogMark
from assistant.records import Job, JobState
from assistant.recover.joblog import _marks, log_points, noted
from tests.unit.logged_job import START, job_in, write

BEFORE = START - timedelta(minutes=30)
ENDED = START + timedelta(minutes=1)


def lines(*steps: int, bad: int = 999) -> str:
    return "".join(
        f"[INFO] global_step={step}/90 train/loss={'nan' if step >= bad else f'{3 - step / 90:.4f}'}\n" for step in steps
    )


def put(path: Path, text: str, at: object) -> None:
    write(path, text)
    os.utime(path, (at.timestamp(),) * 2)  # type: ignore[attr-defined]


def restart(folder: Path) -> Job:
    put(folder / "slurm-812.out", "log goes to a file of its own\n", ENDED)
    job = job_in(folder, "python3 fit.py", state=JobState.FAILED, ended=ENDED)
    return replace(job, started=START, dated_logs=True)


def mark(path: Path, *, by_program: bool = True) -> LogMark:
    status = path.stat()
    return LogMark(str(path), status.st_ino, status.st_size, BEFORE + timedelta(minutes=5), by_program=by_program)


def test_the_file_that_the_attempt_before_wrote_is_read_behind_its_old_end(tmp_path: Path) -> None:
    log = tmp_path / "outputs/fit-a/train.log"
    put(log, lines(60, 65, 70, 75, bad=71), BEFORE)
    before = mark(log)
    with log.open("a") as file:
        file.write(lines(60, 65, 70, 75, 80, bad=71))
    os.utime(log, (ENDED.timestamp(),) * 2)
    job = restart(tmp_path)
    assert str(log) not in [str(file.path) for file in job_logs(job).readable], "nothing tells of it without a mark"
    points = log_points(job, marks=[before], sure=True)
    assert [point.step for point in points] == [60, 65, 70, 75, 80]
    assert log_points(job, marks=[replace(before, by_program=False)], sure=True) == [], "it may be anybody's"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("outputs/2026-03-01/04-10-22/train.log", "outputs/2026-03-01/05-00-03/train.log"),
        ("lightning_logs/version_3/run.log", "lightning_logs/version_4/run.log"),
        ("logs/fit_20260301-041022.log", "logs/fit_20260301-050003.log"),
    ],
)
def test_a_new_file_whose_name_differs_in_numbers_is_read_and_proves_nothing(old: str, new: str, tmp_path: Path) -> None:
    put(tmp_path / old, lines(60, 65, 70, 75, bad=71), BEFORE)
    put(tmp_path / new, lines(65, 70, 75, 80, bad=71), ENDED)
    job, marks = restart(tmp_path), [mark(tmp_path / old)]
    logs = job_logs(job, marks=marks)
    assert [(file.path, file.sure) for file in logs.readable if file.path.name != "slurm-812.out"] == [(tmp_path / new, False)]
    assert LIKE_BEFORE in logs.readable[-1].note
    assert [point.step for point in log_points(job, marks=marks)] == [65, 70, 75, 80]
    assert log_points(job, marks=marks, sure=True) == []


def test_of_two_new_files_none_is_taken(tmp_path: Path) -> None:
    old = tmp_path / "outputs/2026-03-01/04-10-22/train.log"
    put(old, lines(60), BEFORE)
    for minute in (1, 2):
        put(tmp_path / f"outputs/2026-03-01/05-0{minute}-03/train.log", lines(60), ENDED)
    assert [file.path.name for file in job_logs(restart(tmp_path), marks=[mark(old)]).readable] == ["slurm-812.out"]


@pytest.mark.parametrize("at", [BEFORE, ENDED + timedelta(minutes=20)])
def test_what_was_written_at_another_time_is_of_another_job(at: object, tmp_path: Path) -> None:
    old = tmp_path / "outputs/2026-03-01/04-10-22/train.log"
    put(old, lines(60), BEFORE)
    put(tmp_path / "outputs/2026-03-01/05-00-03/train.log", lines(65), at)
    assert [file.path.name for file in job_logs(restart(tmp_path), marks=[mark(old)]).readable] == ["slurm-812.out"]


def test_the_evidence_of_the_attempt_before_says_which_of_its_logs_a_process_wrote(tmp_path: Path) -> None:
    log = tmp_path / "outputs/2026-03-01/04-10-22/train.log"
    put(log, lines(60), BEFORE)
    new = tmp_path / "outputs/2026-03-01/05-00-03/train.log"
    put(new, lines(65), ENDED)
    first = job_logs(restart(tmp_path), marks=[mark(log)])
    marks = _marks(noted(first, ENDED))
    assert [Path(item.path).name for item in marks if item.by_program] == ["train.log"]
