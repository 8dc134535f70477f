"""Retries that were used up: the attempts say why, not the exception with which the program gave up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from assistant.records import Diagnosis

STEPS = "".join(f"[2026-11-02 11:00:{i:02d}] step {i} loss {2.5 - i / 50:.3f}\n" for i in range(1, 31))
ATTEMPTS = "".join(
    f"WARNING scorer: POST http://node07:8000/score failed, attempt {n}: [Errno 111] Connection refused\n" for n in (1, 2, 3)
)
SLOW = 3 * "Unexpected failure, will try again: <urlopen error timed out> (http://10.1.2.3:5000/reward)\n"
GAVE_UP = """Traceback (most recent call last):
  File "/home/kim/rl/train.py", line 71, in main
    scores = client.score(batch)
  File "/home/kim/rl/scorer.py", line 33, in score
    raise RuntimeError("no answer")
RuntimeError: no answer after 3 attempts
"""
SHAPES = """Traceback (most recent call last):
  File "/home/kim/rl/train.py", line 71, in main
    loss = head(hidden)
ValueError: expected 4 rows
"""
EXITED = "srun: error: node03: task 0: Exited with exit code 1\n"


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


@pytest.fixture
def ask(tmp_path: Path, knowledge: Knowledge) -> Callable[[str], Diagnosis]:
    def diagnosed(log: str) -> Diagnosis:
        (tmp_path / "job.log").write_text(log)
        return diagnose(Case.from_parts(tmp_path / "job.log", "", "", None, None, None), knowledge)

    return diagnosed


@pytest.mark.parametrize("attempts", [ATTEMPTS, SLOW], ids=["refused", "timed out"])
@pytest.mark.parametrize("end", [GAVE_UP + EXITED, EXITED, GAVE_UP], ids=["raised and exited", "exited", "raised"])
def test_attempts_that_were_used_up_are_the_cause(attempts: str, end: str, ask: Callable[[str], Diagnosis]) -> None:
    diagnosis = ask(STEPS + attempts + end)
    assert diagnosis.reason == "connection_error"
    assert diagnosis.root_cause[0].text == attempts.splitlines()[-1]
    assert diagnosis.step == 30


@pytest.mark.parametrize(
    "log",
    [
        STEPS + ATTEMPTS + SHAPES,  # what it raised is not about asking
        STEPS + ATTEMPTS + STEPS.replace("step ", "step 3") + GAVE_UP,  # it went on
        STEPS + ATTEMPTS.splitlines(keepends=True)[0] + GAVE_UP,  # once is no retry
        STEPS + ATTEMPTS.replace("scorer", "wandb") + GAVE_UP,  # a tracker retries beside the training
        STEPS + ATTEMPTS + "".join(f"batch {n} is prepared\n" for n in range(30)) + GAVE_UP,  # long before
        STEPS + ATTEMPTS,  # nothing shows that it ended
    ],
    ids=["another error", "went on", "one attempt", "tracker", "long before", "no end"],
)
def test_attempts_that_need_not_be_the_cause_are_not_told_as_it(log: str, ask: Callable[[str], Diagnosis]) -> None:
    assert not ask(log).root_cause or "retries" not in ask(log).root_cause[0].rule
