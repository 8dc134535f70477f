"""What the source of a program adds to its end: an exit that it makes for a lost loss, the evaluation in which memory ran out."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.engine.evidence.job_sources import with_deliberate_exit, with_memory_phase
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


FINE_TUNING = """from transformers import Trainer, TrainingArguments
args = TrainingArguments(output_dir="out", {interval}, logging_steps=10)
Trainer(model, args, compute_metrics=accuracy).train()
"""


@pytest.mark.parametrize(
    ("interval", "command", "step", "words"),
    [
        ("eval_steps=100", "", 200, "It came behind step 200, where the program evaluates (eval_steps=100 in tune.py:2)"),
        ("eval_steps=100", "", 230, ""),  # in a step of the training
        ("save_steps=100", "", 200, ""),
        ("save_steps=100", "--eval_interval 50", 150, "where the program evaluates (--eval_interval on the command line (50))"),
    ],
)
def test_memory_that_ran_out_in_an_evaluation_is_told_with_it(
    interval: str, command: str, step: int, words: str, tmp_path: Path
) -> None:
    (tmp_path / "tune.py").write_text(FINE_TUNING.format(interval=interval))
    spec = JobSpec("tune", f"#!/bin/bash\nsrun python3 tune.py {command}\n", work_dir=tmp_path)
    job = Job("7", "tune", "", JobState.OUT_OF_MEMORY, "", (), None, tmp_path, NOW, NOW, NOW, 0, 9, spec=spec)
    cited = Citation("job.log", 5, "exceeded memory limit (2706223104 > 2621440000), being killed", "root")
    memory = Diagnosis(
        "out_of_memory_error", Category.SCRIPT, Action.FIX_AND_RESUBMIT, 0.9, DecidedBy.RULE, (cited,), (), (), "Memory.",
        "Ask for more. Used were 2706223104 of 2621440000.", step=step,
    )  # fmt: skip
    diagnosed = with_memory_phase(memory, job, {}, NOW)
    assert words in diagnosed.advice
    assert ("evaluat" in diagnosed.advice) is bool(words)
    assert "It was ended as it passed the limit of 2.4 GiB" in diagnosed.advice
    assert with_memory_phase(replace(memory, reason="time_limit"), job, {}, NOW).advice == memory.advice


@pytest.mark.parametrize(("epoch", "evaluates"), [("0.67", True), ("0.62", False)])
def test_memory_that_ran_out_in_an_evaluation_is_told_by_the_epochs_of_a_log(epoch: str, evaluates: bool, tmp_path: Path) -> None:
    (tmp_path / "tune.py").write_text(FINE_TUNING.format(interval="eval_steps=100"))
    saved = tmp_path / "out" / "checkpoint-75"
    saved.mkdir(parents=True)
    (saved / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
    (saved / "trainer_state.json").write_text(json.dumps({"global_step": 75, "epoch": 0.5}))
    log = tmp_path / "tune.log"
    log.write_text(f"{{'loss': '7.91', 'epoch': '0.53'}}\n{{'loss': '7.67', 'epoch': '{epoch}'}}\n")
    spec = JobSpec("tune", "#!/bin/bash\nsrun python3 tune.py\n", work_dir=tmp_path)
    job = Job("7", "tune", "", JobState.OUT_OF_MEMORY, "", (), log, tmp_path, NOW, NOW, NOW, 0, 9, spec=spec)
    memory = Diagnosis(
        "out_of_memory_error", Category.SCRIPT, Action.FIX_AND_RESUBMIT, 0.9, DecidedBy.RULE, (), (), (), "Memory.", "Ask for more."
    )
    diagnosed = with_memory_phase(memory, job, {}, NOW)
    assert ("It came behind step 100, where the program evaluates" in diagnosed.advice) is evaluates
    assert ("preprocess_logits_for_metrics" in diagnosed.advice) is evaluates
