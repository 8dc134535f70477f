"""Jobs of the embedded scheduler that say what they take of a node share it; all others have it for themselves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.ports import SystemClock
from assistant.records import JobSpec, JobState
from assistant.schedulers.local import LocalScheduler, NodeShare, share_of


def spec(*options: str) -> JobSpec:
    return JobSpec("job", "sleep 30", options=options)


@pytest.mark.parametrize(
    ("options", "share"),
    [
        ((), NodeShare(whole=True)),
        (("--nodelist=n[1-2]",), NodeShare(whole=True, nodes=("n1", "n2"))),
        (("--gres=gpu:2",), NodeShare(2, 1)),
        (("--gres=gpu:a100:3", "--cpus-per-task=4"), NodeShare(3, 4)),
        (("--gres=gpu",), NodeShare(1, 1)),
        (("--gres=none", "--nodelist=n1", "--mem=5M", "-v"), NodeShare(0, 1, nodes=("n1",))),
    ],
)
def test_what_a_job_takes_stands_in_its_options(options: tuple[str, ...], share: NodeShare) -> None:
    assert share_of(spec(*options)) == share


@pytest.mark.parametrize(
    ("share", "used", "fits"),
    [
        (NodeShare(1, 1), None, True),
        (NodeShare(3, 1), None, False),
        (NodeShare(whole=True), None, True),
        (NodeShare(1, 1), NodeShare(1, 3), True),
        (NodeShare(1, 1), NodeShare(2, 2), False),
        (NodeShare(0, 1), NodeShare(2, 2), True),
        (NodeShare(0, 1), NodeShare(0, 4), False),
        (NodeShare(whole=True), NodeShare(0, 1), False),
        (NodeShare(0, 1), NodeShare(whole=True), False),
    ],
)
def test_it_fits_beside_what_others_take_of_two_gpus_and_four_cpus(share: NodeShare, used: NodeShare | None, fits: bool) -> None:
    assert share.fits(used, 2, 4) is fits


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalScheduler]:
    made = LocalScheduler(tmp_path / "cluster", SystemClock(), nodes=1, gpus=2, cpus=4)
    yield made
    for job in made.jobs():
        made.cancel(job.id)
    deadline = time.monotonic() + 15
    while any(not job.state.ended for job in made.jobs()) and time.monotonic() < deadline:
        time.sleep(0.03)


def test_a_third_trial_waits_while_a_metric_runs_beside_two_and_a_whole_job_waits_for_all(cluster: LocalScheduler) -> None:
    wanted = [("--gres=gpu:1",), ("--gres=gpu:1",), ("--gres=gpu:1",), ("--gres=none",), ()]
    ids = [cluster.submit(spec(*options)) for options in wanted]
    states = [cluster.job(job).state for job in ids]
    waits, runs = JobState.PENDING, JobState.RUNNING
    assert states == [runs, runs, waits, runs, waits]
    (node,) = cluster.nodes()
    assert node.jobs == (ids[0], ids[1], ids[3])
