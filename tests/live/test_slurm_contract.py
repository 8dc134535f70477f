"""The behaviours that every scheduler has, by real Slurm.

Left out: a job that waits keeps later ones waiting (Slurm fills gaps), limits of seconds (Slurm counts minutes), a spec of another
user, and our own schedulers' words for a job that can never run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.test_schedulers import (
    SCRIPTS,
    Bench,
    test_a_cancelled_job_is_cancelled_once_and_for_all,
    test_a_cordon_of_somebody_else_is_never_touched,
    test_a_job_that_ends_badly_keeps_its_exit_code_and_its_words,
    test_a_job_that_ends_well_is_completed,
    test_a_job_that_is_killed_keeps_the_signal,
    test_a_pending_job_can_be_cancelled,
    test_a_running_job_goes_on_while_its_node_is_cordoned,
    test_an_unknown_job_is_an_answer_not_an_outage,
    test_an_unknown_node_is_refused,
    test_cancelling_what_has_ended_changes_nothing,
    test_ids_increase_and_jobs_come_oldest_first,
    test_nothing_starts_on_a_cordoned_node_until_it_is_put_back,
    test_the_job_on_a_node_that_dies_ends_as_a_node_failure,
    test_the_same_cordon_again_changes_nothing_and_our_reason_may_be_renewed,
    test_uncordoning_a_node_that_is_not_cordoned_changes_nothing,
)
from tests.live.conftest import DevCluster

__all__ = [
    "test_a_cancelled_job_is_cancelled_once_and_for_all",
    "test_a_cordon_of_somebody_else_is_never_touched",
    "test_a_job_that_ends_badly_keeps_its_exit_code_and_its_words",
    "test_a_job_that_ends_well_is_completed",
    "test_a_job_that_is_killed_keeps_the_signal",
    "test_a_pending_job_can_be_cancelled",
    "test_a_running_job_goes_on_while_its_node_is_cordoned",
    "test_an_unknown_job_is_an_answer_not_an_outage",
    "test_an_unknown_node_is_refused",
    "test_cancelling_what_has_ended_changes_nothing",
    "test_ids_increase_and_jobs_come_oldest_first",
    "test_nothing_starts_on_a_cordoned_node_until_it_is_put_back",
    "test_the_job_on_a_node_that_dies_ends_as_a_node_failure",
    "test_the_same_cordon_again_changes_nothing_and_our_reason_may_be_renewed",
    "test_uncordoning_a_node_that_is_not_cordoned_changes_nothing",
]

pytestmark = pytest.mark.live


@pytest.fixture
def bench(devcluster: DevCluster) -> Iterator[Bench]:
    folder = devcluster.shared / "contract"
    folder.mkdir(exist_ok=True)
    dead: list[str] = []

    def set_down(node: str) -> None:
        dead.append(node)
        devcluster.fault(node, "power")

    def foreign(node: str, reason: str) -> None:
        devcluster.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}")

    yield Bench(
        scheduler=devcluster.scheduler(sbatch=("--exclusive", "--no-requeue")),
        folder=Path(folder),
        wait=lambda _: time.sleep(0.2),
        set_down=set_down,
        foreign=foreign,
        nodes=devcluster.nodes,
        scripts={**SCRIPTS, "badly": "echo oh no; srun sh -c 'exit 3'", "long": "srun sleep 60"},
    )
    for node in dead:
        devcluster.heal(node)
    devcluster.settle()
