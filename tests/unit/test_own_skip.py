"""Programs that leave out data by an option of their own: which option that is, and that nobody else fills it."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.records import JobSpec
from assistant.recover.job_program import programs_of
from assistant.recover.restart import must_skip_by_hand, own_skip_option
from tests.unit.logged_job import job_in

PROGRAM = (
    "import argparse\np = argparse.ArgumentParser()\np.add_argument('{}', default='')\np.add_argument('--lr')\na = p.parse_args()\n"
)


@pytest.mark.parametrize(
    ("option", "known"),
    [
        ("--skip-shards", True),
        ("--skip_batches", True),
        ("--exclude-files", True),
        ("--ignore_sample_ids", True),
        ("--skip_data_range", True),
        ("--bad-indices", True),
        ("--shards-to-skip", True),
        ("--skip-eval-batches", False),
        ("--ignore_data_skip", False),
        ("--drop-last-batch", False),
        ("--skip-checks", False),
        ("--save-steps", False),
    ],
)
def test_an_option_that_leaves_out_data_is_told_from_others(option: str, known: bool, tmp_path: Path) -> None:
    (tmp_path / "fit.py").write_text(PROGRAM.format(option))
    job = job_in(tmp_path, "python fit.py --lr 1")
    words = f"--{option.removeprefix('--').replace('_', '-')} of fit.py"
    assert own_skip_option(programs_of(job)) == (words if known else "")


def test_a_script_that_takes_our_skip_needs_nobody(tmp_path: Path) -> None:
    (tmp_path / "fit.py").write_text(PROGRAM.format("--skip-shards"))
    job = job_in(tmp_path, "python fit.py --lr 1")
    programs = programs_of(job)
    assert "--skip-shards of fit.py" in must_skip_by_hand(JobSpec("a", "python fit.py"), programs)
    assert must_skip_by_hand(JobSpec("a", "python fit.py --skip-shards $NIGHTSHIFT_SKIP_FROM_STEP"), programs) == ""
