"""How a trial start died: of an error of its own or of what the sandbox withholds, of which file, and what that says of it."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.trial.deaths import FileFacts, damage_words, death_of
from assistant.recover.trial.judgement import TrialAnswer, judge_trial
from tests.unit.test_trial import checkpoint

CASES = tomllib.loads((Path(__file__).parents[1] / "cases/trial_deaths.toml").read_text("utf-8"))["case"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_only_a_death_of_its_own_counts_and_what_it_read_then_may_be_refused(case: dict[str, Any]) -> None:
    death = death_of(case.get("exit"), case["texts"], case.get("read", ()), case.get("names", ()))
    if not case["died"]:
        assert death is None, death
        return
    assert death is not None
    assert death.error == case["died"].strip("-")
    assert death.file == case["file"]
    assert death.is_sure is case.get("sure", False)
    files = {path: FileFacts(size, mtime) for path, (size, mtime) in case["files"].items()}
    words = damage_words(death, files, 5.0)
    assert words.startswith(case["damage"])
    assert bool(words) is bool(case["damage"])
    assert damage_words(death, files, None) == "", "when the attempt began is not known"


@pytest.mark.parametrize(
    ("answer", "refuted"),
    [
        (TrialAnswer("", 1, 3.0, ("/w/ckpt/late.bin",), (), (), ("ValueError: late.bin: 10 bytes\n",)), True),
        (TrialAnswer("", 1, 3.0, ("/w/ckpt/step_40/a",), (), (), ("ValueError: bad magic in step_40/a\n",)), True),
        (
            TrialAnswer(
                "",
                1,
                3.0,
                ("/w/ckpt/step_40/a",),
                (),
                (),
                ("resuming from ckpt/step_40\nstep 41 loss 2\nstep 42 loss 2\nIndexError: list index out of range\n",),
            ),
            True,
        ),
        (TrialAnswer("", 1, 3.0, ("/w/ckpt/step_40/a",), (), (), ("OSError: [Errno 101] Network is unreachable\n",)), False),
        (TrialAnswer("", None, 90.0, ("/w/ckpt/step_40/a",), (), (), ("reading\n",)), False),
    ],
    ids=["of another file", "of the chosen one", "behind its load", "of the network", "cut off"],
)
def test_a_start_that_died_is_refuted_and_one_that_could_not_run_is_not(answer: TrialAnswer, *, refuted: bool) -> None:
    verdict = judge_trial(answer, checkpoint(40), Inventory(Path("/w/ckpt"), (checkpoint(20), checkpoint(40)), ()))
    assert not verdict.proven
    assert verdict.refuted is refuted, verdict.note


def test_with_fewer_ranks_or_devices_than_the_job_has_no_death_tells_anything() -> None:
    answer = TrialAnswer("", 1, 3.0, ("/w/ckpt/step_40/a",), (), (), ("ValueError: bad magic in step_40/a\n",))
    verdict = judge_trial(answer, checkpoint(40), Inventory(Path("/w/ckpt"), (checkpoint(40),), ()), fewer=True)
    assert (verdict.refuted, verdict.death) == (False, None)


def test_what_it_died_of_is_said() -> None:
    answer = TrialAnswer("", 1, 3.0, ("/w/ckpt/late.bin",), (), (), ("ValueError: late.bin: 10 bytes\n",))
    verdict = judge_trial(answer, checkpoint(40), Inventory(Path("/w/ckpt"), (checkpoint(40),), ()))
    assert verdict.note == "it read /w/ckpt/late.bin and died of its own error: 'ValueError: late.bin: 10 bytes'"
