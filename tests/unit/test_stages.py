"""Stages of one batch script: what was resumed is told by the stage that loaded it, not by the first step of another one."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.logs.lines import Lines
from assistant.records import Checkpoint
from assistant.recover.stages import resumed_stage, stages_in

CHOSEN = Checkpoint(Path("/w/runs/t/rm/step_0015.pt"), 15, "plain", 0, datetime(2026, 1, 1, tzinfo=UTC), healthy=True, problems=())
TAGGED = "2026-11-30 {at:02}:10:{step:02} | {stage} | step {step}/30 | loss {loss} | 0.90s"
PLAIN = "step {step} loss {loss}"
LOAD = "{stage} | resuming stage from runs/t/rm/step_0015.pt (step 15)"


def steps(form: str, stage: str, first: int, last: int, hour: int = 19) -> list[str]:
    return [form.format(stage=stage, step=step, loss=round(0.3 + 1 / step, 4), at=hour) for step in range(first, last + 1)]


def log(*parts: list[str]) -> Lines:
    return Lines([(1, "\n".join(line for part in parts for line in part).encode())])


RESUMED = [LOAD.format(stage="RM"), *steps(TAGGED, "RM", 16, 30)]
ANEW = steps(TAGGED, "RM", 1, 30)
POLICY = steps(TAGGED, "PPO", 1, 7, 20)
FIRST = steps(TAGGED, "SFT", 1, 20, 18)
HEADINGS = (["##### 19:01:34 stage 2 reward model #####"], ["##### 19:02:34 stage 3 policy #####"])


@pytest.mark.parametrize(
    ("logs", "first_step"),
    [
        ([log(RESUMED, POLICY)], 16),
        ([log(POLICY), log(RESUMED, POLICY)], 16),
        ([log(POLICY), log(RESUMED)], 16),
        ([log(FIRST, RESUMED, POLICY)], None),  # the first stage was trained anew over what it had left
        ([log(FIRST), log(RESUMED)], None),
        ([log(RESUMED), log(POLICY)], 16),
        ([log(HEADINGS[0], [RESUMED[0]], steps(PLAIN, "", 16, 30), HEADINGS[1], steps(PLAIN, "", 1, 9))], 16),
        ([log(FIRST, ANEW, POLICY)], None),  # nothing was resumed
        ([log(FIRST, [LOAD.format(stage="RM")], ANEW)], None),  # it loaded it and counts anew
        ([log(RESUMED)], None),  # a single stage: the log tells all
        ([log(["PPO | resuming from runs/t/ppo/step_0015.pt (step 15)"], steps(TAGGED, "PPO", 16, 20), POLICY)], None),
        ([log([RESUMED[0]], steps(TAGGED, "RM", 26, 30), POLICY)], None),  # it went on from a later one
        ([log()], None),
    ],
)
def test_the_stage_that_resumed_a_checkpoint_is_told_apart(logs: list[Lines], first_step: int | None) -> None:
    stage = resumed_stage(logs, CHOSEN)
    assert (stage.points[0].step if stage is not None else None) == first_step


@pytest.mark.parametrize(
    "lines",
    [
        log(steps(PLAIN, "", 1, 9), steps(PLAIN, "", 5, 9)),  # a job that went back
        log([line for step in range(1, 9) for line in (f"train step {step} loss 2.0", f"valid step {step - 1} loss 2.1")]),
        log(["=== epoch 1 ==="], steps(PLAIN, "", 1, 9), ["=== epoch 2 ==="], steps(PLAIN, "", 1, 9)),
        log(steps(PLAIN, "", 1, 9)),
        log(),
    ],
)
def test_what_is_one_stage_is_not_cut(lines: Lines) -> None:
    assert len(stages_in(lines)) == 1


def test_each_stage_has_the_lines_behind_the_last_step_before_it() -> None:
    first, second, third = stages_in(log(FIRST, RESUMED, POLICY))
    assert [len(stage.points) for stage in (first, second, third)] == [20, 15, 7]
    assert second.lines[0].text == RESUMED[0]
