"""A program that ends itself where its loss is no number: its own exit code is named, and nothing else is asked for."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.engine.evidence.job_sources import with_deliberate_exit
from assistant.records import Action, Category, Citation, DecidedBy, Diagnosis, Job, JobSpec, JobState

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
TRIAL = """import math, sys
for n in range(160):
    loss = step(n)
    if {test}:
        print("diverged")
        {ends}
"""


@pytest.mark.parametrize(
    ("test", "ends", "code", "named"),
    [
        ("math.isnan(loss)", "sys.exit(7)", 7, True),
        ("not math.isfinite(loss)", "raise SystemExit(42)", 42, True),
        ("loss != loss", "os._exit(7)", 7, True),
        ("math.isnan(loss)", "sys.exit(7)", 3, False),  # another code
        ("math.isnan(loss)", "sys.exit(1)", 1, False),  # any failure has it
        ("n > 100", "sys.exit(7)", 7, False),  # for another reason
    ],
)
def test_the_exit_that_a_program_makes_for_a_lost_loss_is_named(
    test: str, ends: str, code: int, named: bool, tmp_path: Path
) -> None:
    (tmp_path / "trial.py").write_text(TRIAL.format(test=test, ends=ends))
    spec = JobSpec("sweep", "#!/bin/bash\nexec python3 -u trial.py\n", work_dir=tmp_path)
    job = Job("1_4", "sweep", "", JobState.FAILED, "", (), None, tmp_path, NOW, NOW, NOW, code, None, spec=spec)
    cited = Citation("job.log", 5, "iter 18: loss is nan", "loss_spike.nan_loss")
    found = Diagnosis(
        "loss_spike", Category.NONE, Action.ROLLBACK_AND_SKIP_DATA, 0.9, DecidedBy.RULE, (cited,), (), (), "Spike.", "Go back."
    )
    said = with_deliberate_exit(found, job)
    assert (f"ends itself there with exit code {code} (trial.py:6, where {test})" in said.summary) is named
    assert ("nothing has to be done" in said.advice) is named
    assert with_deliberate_exit(replace(found, reason="runtime_error"), job).advice == "Go back."
