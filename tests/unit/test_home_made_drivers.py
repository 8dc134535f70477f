"""Which jobs a home-made driver has submitted: by the machine from which they were submitted, or by what its log speaks of."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from assistant.recover.drivers import is_worker_of, mentioned_jobs, submits_jobs
from assistant.schedulers.slurm_spec import shown_details
from tests.unit.logged_job import START, job_in

LATER = START + timedelta(minutes=3)


@pytest.mark.parametrize(
    ("line", "ids"),
    [
        ("I1127 12:37:24.324011 116 driver.py] attempt 1: job 2 from step 0 exclude=[]", {"2"}),
        ("JOB=4711 queued", {"4711"}),
        ("resubmitted as job id: 4712", {"4712"}),
        ("job 3 of 12 is prepared", set()),
        ("job 40% done, step 2", set()),
        ("jobs 17 left", set()),
    ],
)
def test_a_job_is_mentioned_by_its_id_alone(line: str, ids: set[str]) -> None:
    assert mentioned_jobs([line]) == ids


@pytest.mark.parametrize(
    ("host", "mentioned", "changes", "is_worker"),
    [
        ("gpu001", (), {}, True),
        ("gpu001.cluster.local", (), {}, True),
        ("login1", ("900",), {}, False),  # a person submitted it by hand
        ("", ("900",), {}, True),
        ("", ("901",), {}, False),
        ("gpu001", ("900",), {"user": "eve"}, False),
        ("gpu001", ("900",), {"work_dir": Path("/elsewhere")}, False),
        ("gpu001", ("900",), {"submitted": START - timedelta(hours=1)}, False),
    ],
)
def test_a_worker_was_submitted_from_its_driver_s_node_or_stands_in_its_log(
    host: str, mentioned: tuple[str, ...], changes: dict[str, object], is_worker: bool, tmp_path: Path
) -> None:
    driver = job_in(tmp_path, "sbatch worker.sh")
    worker = job_in(tmp_path, "srun train", **{"id": "900", "submitted": LATER, "submit_host": host, **changes})
    assert is_worker_of(worker, driver, frozenset(mentioned)) is is_worker


def test_who_calls_no_sbatch_submits_nothing() -> None:
    assert submits_jobs(['cmd = ["sbatch", "--parsable"]'])
    assert not submits_jobs(["# sbatch worker.sh", "exec python driver.sbatch.py"])


def test_the_controller_tells_from_which_machine_a_job_was_submitted() -> None:
    record = "JobId=3 JobName=a2 UserId=ada(1) Partition=train AllocNode:Sid=gpu001:111 NumNodes=2 Command=w.sh WorkDir=/x"
    assert shown_details(record, "a2", command="w.sh")["AllocNode:Sid"] == "gpu001:111"
