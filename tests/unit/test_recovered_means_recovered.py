"""What a restart has come to, when training is over, and which jobs are one run: tables of situations."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assistant.records import Job, JobSpec, JobState, MetricPoint
from assistant.recover.comparison import training_end
from assistant.recover.restart import live_double, same_run
from assistant.recover.verify import CONFIRM_S, Restart, Standing, judge_restart

NOW = datetime(2026, 1, 5, 3, 0, tzinfo=UTC)
LONG_AGO = NOW - timedelta(seconds=CONFIRM_S + 1)


def job(state: JobState, **changes: object) -> Job:
    plain = Job("8", "llm", "ada", state, "gpu", ("node01",), None, Path("/w"), NOW, NOW, None, None, None)
    return replace(plain, **changes)  # type: ignore[arg-type]


def steps(first: int, last: int, loss: float = 2.0) -> list[MetricPoint]:
    return [MetricPoint(step, loss, None, step) for step in range(first, last + 1)]


R, P, C = JobState.RUNNING, JobState.PENDING, JobState.COMPLETED


@pytest.mark.parametrize(
    ("state", "changes", "own", "passed_at", "standing"),
    [
        (P, {}, [], None, Standing.QUEUED),
        (P, {"reason": "Priority", "expected_start": NOW}, [], None, Standing.QUEUED),
        (P, {}, steps(41, 70), LONG_AGO, Standing.QUEUED),  # a file of the same name is no line of a job that waits
        (P, {"reason": "ReqNodeNotAvail, Reserved for maintenance"}, [], None, Standing.WAITS_FOR_WINDOW),
        (P, {"reason": "ReqNodeNotAvail, UnavailableNodes:gpu002"}, [], None, Standing.QUEUED),  # down or drained: no window
        (P, {"reason": "Reservation"}, [], None, Standing.WAITS_FOR_WINDOW),
        (JobState.UNKNOWN, {}, steps(41, 70), LONG_AGO, Standing.UNKNOWN),
        (R, {}, [], None, Standing.RUNNING_AGAIN),
        (R, {}, steps(41, 50), None, Standing.RUNNING_AGAIN),  # not past the step where the last attempt ended
        (R, {}, steps(41, 51), None, Standing.RUNNING_AGAIN),  # past it, not confirmed yet
        (R, {}, steps(41, 51), NOW, Standing.RUNNING_AGAIN),
        (R, {}, steps(41, 51), LONG_AGO, Standing.RECOVERED),
        (R, {}, [*steps(300, 300), *steps(41, 45)], LONG_AGO, Standing.RUNNING_AGAIN),  # how many are meant, and no step of its own
        (C, {}, [*steps(300, 300), *steps(41, 45)], None, Standing.ENDED_AGAIN),
        (R, {}, [*steps(41, 60), *steps(55, 58)], LONG_AGO, Standing.RECOVERED),  # it went back by itself
        (R, {}, steps(41, 70, 9.0), LONG_AGO, Standing.WRONG_START),
        (R, {}, steps(41, 70, float("nan")), LONG_AGO, Standing.WRONG_START),
        (JobState.CANCELLED, {}, steps(41, 343), LONG_AGO, Standing.CANCELLED),
        (JobState.FAILED, {}, steps(41, 70), LONG_AGO, Standing.ENDED_AGAIN),
        (JobState.TIMEOUT, {}, steps(41, 70), LONG_AGO, Standing.ENDED_AGAIN),
        (JobState.NODE_FAIL, {}, [], None, Standing.ENDED_AGAIN),
        (JobState.OUT_OF_MEMORY, {}, steps(41, 70), None, Standing.ENDED_AGAIN),
        (JobState.PREEMPTED, {}, steps(41, 70), None, Standing.ENDED_AGAIN),
        (C, {}, steps(41, 70), None, Standing.RECOVERED),
        (C, {}, steps(41, 50), None, Standing.RECOVERED),
        (C, {}, steps(41, 45), None, Standing.ENDED_AGAIN),
        (C, {}, [], None, Standing.ENDED_AGAIN),
        (C, {"exit_code": 1}, steps(41, 70), None, Standing.ENDED_AGAIN),
    ],
)  # fmt: skip
def test_a_restart_is_named_as_what_it_has_come_to(
    state: JobState, changes: dict[str, object], own: list[MetricPoint], passed_at: datetime | None, standing: Standing
) -> None:
    restart = Restart(job(state, **changes), own, steps(1, 50), 40, 50, now=NOW, passed_at=passed_at)
    verdict = judge_restart(restart)
    assert verdict.standing is standing, verdict.note
    assert "job 8" in verdict.note


def test_another_checkpoint_than_the_chosen_one_is_no_recovery() -> None:
    restart = Restart(
        job(R), steps(81, 120), steps(1, 90), 60, 90, now=NOW, passed_at=LONG_AGO, load_problem="loaded checkpoint-80"
    )
    assert judge_restart(restart).standing is Standing.WRONG_START


def test_a_short_job_is_confirmed_within_a_share_of_its_limit() -> None:
    short = job(R, spec=JobSpec("llm", "", time_limit_s=60))
    restart = Restart(short, steps(41, 60), steps(1, 50), 40, 50, now=NOW, passed_at=NOW - timedelta(seconds=7))
    assert judge_restart(restart).standing is Standing.RECOVERED


@pytest.mark.parametrize(
    ("text", "over", "saved"),
    [
        ("{'train_runtime': 812.4, 'train_loss': 2.1}\nModel weights saved in out/model.safetensors", True, True),
        ("Saving model checkpoint to out/checkpoint-500\n{'train_runtime': 812.4}", True, True),
        ("Saving model checkpoint to out/checkpoint-450\n{'loss': 2.1, 'epoch': 1.0}\n{'train_runtime': 812.4}", True, False),
        ("`Trainer.fit` stopped: `max_steps=100` reached.", True, False),
        (" iteration      500/     500 | lm loss: 2.1\n  successfully saved checkpoint at iteration     500 to /ckpt", True, True),
        (" iteration      500/     500 | lm loss: 2.1", True, False),
        (" iteration      499/     500 | lm loss: 2.1", False, False),
        ("epoch 1/3 step 100/100 loss 2.0", False, False),
        ("epoch 3/3 step 100/100 loss 2.0\nsaved checkpoint out/final.pt", True, True),
        ("step 100/100 loss 2.0\nstep 41/100 loss 2.2", False, False),
        ("Training completed", True, False),
        ("will say training is done when the training ends\nstep 3/9", False, False),
        ("step 3 loss 2.0", False, False),
        ("step:160 - actor/pg_loss:0.004 - actor/grad_norm:0.26\nFinal validation metrics: {'acc': 0.71}", True, False),
        ("Final validation metrics: {'acc': 0.7}\nstep:41 - actor/pg_loss:0.004 - actor/grad_norm:0.26", False, False),
        ("Final test results: 0.71", True, False),
        ("the final validation metrics are written at the end", False, False),
        ("", False, False),
    ],
)
def test_a_log_says_that_training_is_over_or_does_not(text: str, over: bool, saved: bool) -> None:
    end = training_end(text.splitlines())
    assert (end is not None, end is not None and end.saved_after) == (over, saved)


SCRIPT = "#!/bin/bash\npython x.py\n"


def attempt(job_id: str, state: JobState = R, *, script: str = SCRIPT, **spec: object) -> Job:
    made = JobSpec("llm", script, **spec)  # type: ignore[arg-type]
    return replace(job(state, id=job_id), spec=made)


OF_NAME = "#!/bin/bash\npython x.py --out runs/$SLURM_JOB_NAME\n"
OF_OUTSIDE = "#!/bin/bash\npython x.py --lr $LR\n"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (attempt("8"), attempt("9"), True),
        (attempt("8"), replace(attempt("9"), spec=None), True),  # nothing is known of it: two would write over each other
        (attempt("8"), replace(attempt("9"), name="run:2"), True),  # the next link of a chain: the very same commands
        (attempt("8"), replace(attempt("9", arguments=("--lr", "2")), name="run:2"), False),
        (attempt("8", environment={"LR": "1"}), replace(attempt("9", environment={"LR": "2"}), name="other"), False),
        (attempt("8", script=OF_NAME), replace(attempt("9", script=OF_NAME), name="other"), False),
        (attempt("8", script=OF_OUTSIDE), replace(attempt("9", script=OF_OUTSIDE), name="other"), False),  # nobody knows $LR
        (attempt("8"), replace(attempt("9"), work_dir=Path("/v")), False),
        (attempt("8_1"), attempt("8_2"), False),
        (attempt("8_1"), attempt("8_[2-5]"), False),
        (attempt("8_1"), attempt("12_1"), True),
        (attempt("8", arguments=("--lr", "1")), attempt("9", arguments=("--lr", "2")), False),
        (attempt("8", arguments=("--lr", "1")), attempt("9", arguments=("--lr", "1")), True),
        (attempt("8"), attempt("9", script=SCRIPT.replace("x.py", "x.py ${NIGHTSHIFT_ARGS:-}")), True),
        (attempt("8"), attempt("9", script="#!/bin/bash\npython y.py\n"), False),
        (attempt("8", options=("--export=ALL,LR=1",)), attempt("9", options=("--export=ALL,LR=2",)), False),
        (attempt("8", environment={"LR": "1"}, options=("--export=ALL",)), attempt("9", options=("--export=ALL,LR=2",)), False),
        (attempt("8", environment={"LR": "1"}), attempt("9", options=("--export=ALL,LR=1",)), True),
    ],
)
def test_jobs_are_one_run_by_task_arguments_and_script(one: Job, other: Job, same: bool) -> None:
    assert (same_run(one, other), same_run(other, one)) == (same, same)
    assert (live_double(one, [one, other]) is other) is same


def test_checkpoint_folders_decide_where_both_are_known() -> None:
    one, other = attempt("8_1"), attempt("8_2")
    assert same_run(one, other, folder=Path("/ckpt"), other_folder=Path("/ckpt"))
    assert not same_run(attempt("8"), attempt("9"), folder=Path("/a"), other_folder=Path("/b"))
    assert same_run(attempt("8"), attempt("9"), folder=Path("/a"), other_folder=None)
