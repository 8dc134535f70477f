"""Who ended a job, by the controller's log: its owner, somebody else, or nobody that is named."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from assistant.engine.gather import in_spite_of_its_end, with_sender
from assistant.records import Action, Category, Citation, DecidedBy, Diagnosis, Job, JobState

LINE = "[2026-03-02T00:00:00.000] _slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={} uid {}"
ADVICE = "sacct -j 27 says by which user."


def job(user: str) -> Job:
    return Job("27", "x", user, JobState.FAILED, "", (), None, None, datetime(2026, 3, 1, tzinfo=UTC), None, None, None, None)


def cancelled(text: str, *, file: str = "slurmctld.log", reason: str = "cancelled") -> Diagnosis:
    cited = (Citation(file, 3, text, "cancelled.scancel", "root"),)
    return Diagnosis(reason, Category.NONE, Action.NONE, 0.9, DecidedBy.RULE, cited, (), (), "Cancelled.", ADVICE)


@pytest.mark.parametrize(
    ("found", "user", "says", "asks"),
    [
        (cancelled(LINE.format("27", 0)), "root", "Its owner root ended it", "its owner root ended job 27 by a signal"),
        (cancelled(LINE.format("27", 0)), "ada", "root ended it, not its owner ada", "root ended job 27 by a signal"),
        (cancelled(LINE.format("27", 4_000_000)), "ada", "uid 4000000 ended it", "uid 4000000 ended job 27 by a signal"),
        (cancelled(LINE.format("28", 0)), "ada", "", "cancelled does not explain that"),
        (cancelled(LINE.format("27", 0), file="job.log"), "ada", "", "cancelled does not explain that"),
        (cancelled(LINE.format("27", 0), reason="no_failure"), "ada", "", "no_failure does not explain that"),
    ],
)
def test_the_sender_of_a_signal_is_named_where_the_controller_names_them(found: Diagnosis, user: str, says: str, asks: str) -> None:
    after = with_sender(found, job(user))
    assert says in after.summary
    assert (after == found) is (not says)
    assert ("by which user" in after.advice) is (not says)
    assert asks in in_spite_of_its_end(found, job(user))
