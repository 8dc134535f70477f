"""What a person mended before asking to recover a job: the same questions as at its failure, and the answers held together."""

from __future__ import annotations

from typing import Any

import pytest

from assistant.engine.evidence.removed_causes import CauseNow, cause_now, judged_cause
from assistant.records import Action, Category, Citation, DecidedBy, Diagnosis, Job, JobState

FULL_ERROR = "OSError: [Errno 28] No space left on device"
MISSING = "FileNotFoundError: [Errno 2] No such file or directory: '/data/part-1'"
REFUSED = "PermissionError: [Errno 13] Permission denied: '/data/closed/x'"
STALE = "OSError: [Errno 116] Stale file handle: '/data/part-1'"


def row(used: float = 40.0, node: str = "n1", place: str = "/work", **changes: Any) -> dict[str, Any]:
    known = {"node": node, "place": place, "kind": "ext4", "source": "d", "options": "rw", "used_percent": used, "path": place}
    return {**known, "inodes_percent": 3.0, "silent": False, **changes}


def path(stands: str, real: str = "/data/part-1", **changes: Any) -> dict[str, Any]:
    return row(place="/data", path=real, real=real, stands=stands, **changes)


def closed(mode: str) -> dict[str, Any]:
    owners = ["ada:100 100:0644", f"eve:7 7:{mode}", "root:0 0:0755", "root:0 0:0755"]
    return path("/data/closed/x", "/data/closed/x", owners=owners)


JOB = Job("7", "a", "ada", JobState.FAILED, "p", ("n1",), None, None, None, None, None, 1, None)


@pytest.mark.parametrize(
    ("error", "before", "now", "gone", "still"),
    [
        (FULL_ERROR, row(100.0), row(38.0), "/work (ext4) was full on n1 when the job failed, and has room now (38 % in use)", ""),
        (FULL_ERROR, row(100.0), row(100.0), "", "/work (ext4) was full on n1 as it was"),
        (FULL_ERROR, row(100.0), row(97.0), "", ""),  # hardly any room
        (FULL_ERROR, row(100.0), row(38.0, node="n2"), "", ""),  # another node says nothing of this one
        (FULL_ERROR, row(60.0), row(38.0), "", ""),  # it was not seen to be full then
        (FULL_ERROR, row(100.0), row(38.0, silent=True), "", ""),
        (FULL_ERROR, row(100.0, place="/snap"), row(1.0, place="/snap"), "", ""),  # the job does not use it
        (FULL_ERROR, row(50.0, inodes_percent=100.0), row(50.0), "/work (ext4) was full on n1", ""),
        (
            MISSING,
            path("/data"),
            path("/data/part-1"),
            "/data/part-1 was not there on n1 when the job failed, and is there now",
            "",
        ),
        (MISSING, path("/data"), path("/data"), "", "/data/part-1 was not there on n1 as it was"),
        (MISSING, path("/data/part-1"), path("/data/part-1"), "", ""),
        (STALE, path("", silent=True), path("/data/part-1"), "/data/part-1 did not answer on n1", ""),
        (REFUSED, closed("0700"), closed("0755"), "/data/closed/x was closed to its owner on n1 when the job failed", ""),
        (REFUSED, closed("0700"), closed("0700"), "", "/data/closed/x was closed to its owner on n1 as it was"),
        ("ValueError: bad shape", row(100.0), row(38.0), "", ""),
    ],
)
def test_what_was_bad_then_is_gone_or_still_there(error: str, before: Any, now: Any, gone: str, still: str) -> None:
    cause = cause_now(error, [before], [now], JOB, ["/work/run", "/data/x"])
    assert [bool(cause.ended), bool(cause.still)] == [bool(gone), bool(still)]
    assert gone in "".join(cause.ended)
    assert still in "".join(cause.still)


def diagnosis() -> Diagnosis:
    line = Citation("job.log", 2, FULL_ERROR, "os_error.space")
    return Diagnosis(
        "os_error", Category.SCRIPT, Action.FIX_AND_RESUBMIT, 0.9, DecidedBy.RULE, (line,), (), (), "Full.", "Free space there."
    )


@pytest.mark.parametrize(
    ("cause", "action", "says"),
    [
        (CauseNow(("/work was full, and has room now",), ()), Action.RESTART_SAME_NODES, "The cause is gone: /work was full"),
        (CauseNow(("/work has room",), ("/data was full as it was",)), Action.FIX_AND_RESUBMIT, "/data was full as it was."),
        (CauseNow((), ()), Action.FIX_AND_RESUBMIT, "Free space there."),
    ],
)
def test_a_cause_is_gone_only_where_all_of_it_is(cause: CauseNow, action: Action, says: str) -> None:
    judged = judged_cause(diagnosis(), cause)
    assert judged.action is action
    assert says in judged.advice
    assert ("Free space" in judged.advice) is (action is Action.FIX_AND_RESUBMIT)
