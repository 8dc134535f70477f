"""Lines that look like a good end and tell of a failure: what they are of is never called no failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose

KNOWLEDGE = Knowledge.load()


@pytest.mark.parametrize(
    "text",
    [
        # a builder of images that gives the code of its last command
        "Step 3/9 : RUN pip install fernwood\nSending build context\n"
        "The command '/bin/sh -c pip install fernwood' returned a non-zero code: 2\n",
        # an engine of workflows calls a task completed that ended badly
        "Mar-01 12:00:01 [Task monitor] DEBUG n.p.TaskPollingMonitor - Task completed > TaskHandler[id: 3; name: SORT (a); status: "
        "COMPLETED; exit: 3; error: -; workDir: /w/ab/12]\n"
        "Mar-01 12:00:01 [Task monitor] DEBUG nextflow.Session - Session aborted -- Cause: Process `SORT (a)` terminated with an "
        "error exit status (3)\n"
        "Mar-01 12:00:02 [main] DEBUG nextflow.script.ScriptRunner - > Execution complete -- Goodbye\n",
        "copying 40 of 40\nreturn code: 7\n",
    ],
)
def test_a_code_that_is_not_zero_is_no_good_end(text: str, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(text)
    assert diagnose(Case.from_path(tmp_path / "job.log"), KNOWLEDGE).reason != "no_failure"


@pytest.mark.parametrize(
    "text", ["2249470        sft32b  COMPLETED      0:0\n", "Job 7: State=COMPLETED\n", "all 40 files copied\nexit code: 0\n"]
)
def test_a_good_end_stays_one(text: str, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(text)
    assert diagnose(Case.from_path(tmp_path / "job.log"), KNOWLEDGE).reason == "no_failure"
