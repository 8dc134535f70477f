"""What lets a job begin that waits for others to end well, of which more than one has failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from assistant.errors import ToolError
from assistant.records import Job, JobState
from assistant.recover.drivers import never_begin
from assistant.schedulers.slurm_jobs import moved, waits_for
from tests.unit.logged_job import job_in


class Queue:
    """A scheduler with jobs, and one that waits."""

    def __init__(self, dependency: str, jobs: Sequence[Job]) -> None:
        self.listed = [*jobs]
        self.waiting = replace(jobs[0], id="50", name="fit", state=JobState.PENDING, dependency=dependency)

    def jobs(self) -> list[Job]:
        return self.listed

    def job(self, job_id: str) -> Job:
        for job in self.listed:
            if job.id == job_id:
                return job
        raise ToolError(f"job {job_id} is unknown")

    def dependents(self, job_id: str) -> list[Job]:
        return [self.waiting] if waits_for(self.waiting.dependency, job_id) else []

    def lost_dependents(self, job_id: str) -> list[Job]:
        return []

    def move_dependent(self, dependent: str, old: str, new: str) -> None:
        raise AssertionError("it is only told")

    def command_lines(self, method: str, *arguments: str) -> tuple[str, ...]:
        dependent, old, new = arguments
        base = old.partition("_")[0]
        siblings = [job.id for job in self.listed if job.id.startswith(f"{base}_") and job.id != old]
        siblings = [name for name in siblings if self.job(name).state is not JobState.COMPLETED]
        return (f"scontrol update JobId={dependent} Dependency={moved(self.waiting.dependency, old, new, siblings=siblings)}",)


def jobs_in(folder: Path, **states: JobState) -> list[Job]:
    return [replace(job_in(folder), id=name.removeprefix("j"), user="ada", state=state) for name, state in states.items()]


FAILED, DONE, RUNS = JobState.FAILED, JobState.COMPLETED, JobState.RUNNING


@pytest.mark.parametrize("ended", ["30_2", "30_10"])
def test_tasks_of_an_array_that_failed_together_are_waited_for_as_one_job(tmp_path: Path, ended: str) -> None:
    queue = Queue("afterok:30_*(failed)", jobs_in(tmp_path, j30_1=DONE, j30_2=FAILED, j30_7=RUNS, j30_10=FAILED))
    words = never_begin(queue, ended)  # type: ignore[arg-type]
    assert "once the tasks 30_2, 30_10 go on as job NEW" in words
    assert "scontrol update JobId=50 Dependency=afterok:30_7,afterok:NEW, or scancel 50" in words
    assert "failed too" not in words


def test_a_task_that_failed_alone_leaves_its_siblings_in_the_dependency(tmp_path: Path) -> None:
    queue = Queue("afterok:30_*(unfulfilled)", jobs_in(tmp_path, j30_1=DONE, j30_2=FAILED, j30_7=RUNS))
    words = never_begin(queue, "30_2")  # type: ignore[arg-type]
    assert "once the run goes on as job NEW" in words
    assert "Dependency=afterok:30_7,afterok:NEW," in words


def test_another_job_that_failed_too_is_named_with_what_has_to_stand_in_its_place(tmp_path: Path) -> None:
    queue = Queue("afterok:30(failed),afterok:31(failed)", jobs_in(tmp_path, j30=FAILED, j31=FAILED, j32=FAILED))
    words = never_begin(queue, "30")  # type: ignore[arg-type]
    assert "Dependency=afterok:NEW,afterok:31" in words
    assert "it waits for 31 as well, which failed too" in words


def test_the_owners_restart_of_one_task_takes_the_place_of_that_task_alone(tmp_path: Path) -> None:
    queue = Queue("afterok:30_*(failed)", jobs_in(tmp_path, j30_1=FAILED, j30_2=FAILED, j44=RUNS))
    words = never_begin(queue, "30_2", "44")  # type: ignore[arg-type]
    assert "Dependency=afterok:30_1,afterok:44" in words
    assert "it waits for 30_1 as well, which failed too" in words
