"""Which checkpoint a log says was loaded, and whether that is the chosen one."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.logs.lines import Line
from assistant.records import Checkpoint, Job, JobSpec, JobState
from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.job_program import programs_of
from assistant.recover.loaded import LoadVerdict, compare_loaded, loaded_checkpoint
from assistant.recover.resume.script import resume_way

CASES: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parents[1] / "cases" / "checkpoints" / "loaded.toml").read_text(encoding="utf-8")
)["case"]
LAST_ATTEMPTS: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parents[1] / "cases" / "checkpoints" / "last_attempt.toml").read_text(encoding="utf-8")
)["case"]


def log(*texts: str) -> list[Line]:
    return [Line(number, text) for number, text in enumerate(texts, 1)]


def chosen(step: int = 40, name: str = "iter_0000040", form: str = "megatron") -> Checkpoint:
    return Checkpoint(Path("/ckpt") / name, step, form, 1, datetime(2026, 1, 1, tzinfo=UTC), True, ())


def steps(first: int, apart: int = 1, count: int = 3) -> list[str]:
    return [f"step {first + apart * n} loss 2.5" for n in range(count)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["line"][-60:])
def test_a_line_tells_what_was_loaded(case: dict[str, Any]) -> None:
    loads = loaded_checkpoint(log(case["line"])).loads
    wanted = [(case.get("path", ""), case.get("step"))] if "path" in case or "step" in case else []
    assert [(load.path, load.step) for load in loads] == wanted


@pytest.mark.parametrize(
    ("texts", "verdict"),
    [
        ([" loading checkpoint from /ckpt at iteration 40", *steps(41)], LoadVerdict.CHOSEN),
        ([" loading checkpoint from /ckpt at iteration 60", *steps(61)], LoadVerdict.OTHER),
        (["Loading the checkpoint from /ckpt/step-80.", *steps(81)], LoadVerdict.OTHER),
        # a base model first, then the run's own
        (["loading checkpoint from /b/iter_005", "loading checkpoint from /ckpt/iter_0000040", *steps(41)], LoadVerdict.CHOSEN),
        (["will not load any checkpoints and will start from random", *steps(1)], LoadVerdict.FROM_START),
        (["training from scratch"], LoadVerdict.FROM_START),
        (steps(1), LoadVerdict.FROM_START),
        (steps(0, 10), LoadVerdict.FROM_START),
        (steps(10, 10), LoadVerdict.FROM_START),
        (steps(21), LoadVerdict.OTHER),
        (steps(41), LoadVerdict.CHOSEN),
        (steps(40), LoadVerdict.CHOSEN),
        (steps(50, 10), LoadVerdict.CHOSEN),
        (steps(81), LoadVerdict.OTHER),
        # says one thing and does another
        (["loading checkpoint from /ckpt/iter_0000040", *steps(1)], LoadVerdict.FROM_START),
        (["loading checkpoint from /ckpt/iter_0000040", *steps(81)], LoadVerdict.OTHER),
        # a summary of what is meant stands before the first step
        (["restored the state of step 40", "final: steps: 300 | lr: 0.1 | mbs: 4", *steps(41)], LoadVerdict.CHOSEN),
        (["Loading checkpoint from /ckpt/iter_0000040", "best: step 300 loss 1.9", *steps(41)], LoadVerdict.CHOSEN),
        (["train_steps: 300 | mbs: 8 | lr: 0.1", *steps(81)], LoadVerdict.OTHER),
        (["train_steps: 300 | mbs: 8 | lr: 0.1", *steps(1)], LoadVerdict.FROM_START),
        (["best: step 300 loss 1.9", *steps(41, count=1)], LoadVerdict.UNKNOWN),
        (["step 90 loss 2.5"], LoadVerdict.UNKNOWN),
        (["hello"], LoadVerdict.UNKNOWN),
        ([], LoadVerdict.UNKNOWN),
    ],
)  # fmt: skip
def test_what_was_loaded_is_compared_with_what_was_chosen(texts: list[str], verdict: LoadVerdict) -> None:
    assert compare_loaded(chosen(), loaded_checkpoint(log(*texts))).verdict is verdict


def test_a_load_after_the_first_step_is_another_matter() -> None:
    loaded = loaded_checkpoint(log(*steps(41), "Loading checkpoint from /ckpt/iter_0000020"))
    assert loaded.loads == ()
    assert compare_loaded(chosen(), loaded).verdict is LoadVerdict.CHOSEN


def test_a_start_without_a_checkpoint_is_compared_as_well() -> None:
    assert compare_loaded(None, loaded_checkpoint(log(*steps(1)))).verdict is LoadVerdict.CHOSEN
    assert compare_loaded(None, loaded_checkpoint(log("resumed from step 40", *steps(41)))).verdict is LoadVerdict.OTHER


def test_a_name_that_counts_epochs_is_not_compared_with_steps() -> None:
    epoch = chosen(3, "model_epoch_3.pth", "plain")
    assert compare_loaded(epoch, loaded_checkpoint(log(*steps(901)))).verdict is LoadVerdict.UNKNOWN


def test_steps_that_a_progress_bar_tells_only_roughly_are_compared_with_slack() -> None:
    losses = [
        f"{{'loss': '3.1', 'grad_norm': '8.2', 'learning_rate': '1.25e-05', 'epoch': '{3.8 + n / 16:.3f}'}}" for n in range(8)
    ]
    bar = " 84%|########4 | 66/80 [00:00<00:00, 62.19it/s]"
    loaded = loaded_checkpoint(log(*losses, bar, losses[0]))
    assert not loaded.exact
    assert compare_loaded(chosen(60, "checkpoint-60", "huggingface"), loaded).verdict is LoadVerdict.CHOSEN
    assert compare_loaded(chosen(40, "checkpoint-40", "huggingface"), loaded).verdict is LoadVerdict.OTHER


def test_a_bar_that_runs_into_the_metrics_of_another_step_names_no_step_of_theirs() -> None:
    def losses(first: int, count: int) -> list[str]:
        return [f"{{'loss': '2.1', 'learning_rate': '1e-05', 'epoch': '{step / 16:.3f}'}}" for step in range(first, first + count)]

    def bars(first: int, last: int) -> list[str]:
        return [f" {step}%|####    | {step}/80 [00:00<00:00, 765.12it/s]" for step in range(first, last + 1)]

    # standard output comes in blocks, behind bars that are drawn further: the lines of steps 41 to 49 behind the bar of step 57
    text: list[str] = []
    for shown, behind in ((57, 41), (66, 50), (75, 59)):
        *drawn_before, last_bar = bars(41 if shown == 57 else shown - 8, shown)
        first, *others = losses(behind, 9)
        text += [*drawn_before, last_bar + first, *others]
    loaded = loaded_checkpoint(log(*text, *bars(76, 80), *losses(68, 13)))
    assert compare_loaded(chosen(40, "checkpoint-40", "huggingface"), loaded).verdict is LoadVerdict.UNKNOWN


def test_steps_that_nothing_names_are_not_compared() -> None:
    losses = ["{'loss': '3.1', 'epoch': '1'}", "{'loss': '3.0', 'epoch': '2'}"]
    assert compare_loaded(chosen(), loaded_checkpoint(log(*losses))).verdict is LoadVerdict.UNKNOWN


@pytest.mark.parametrize("case", LAST_ATTEMPTS, ids=lambda case: case["name"])
def test_a_load_proves_that_a_script_resumes_only_where_it_was_its_own_checkpoint(case: dict[str, Any]) -> None:
    work = Path("/work")
    spec = JobSpec("llm", f"#!/bin/bash\n{case['script']}", work_dir=work)
    job = Job("7", "llm", "", JobState.FAILED, "", (), None, work, None, None, None, 1, None, spec=spec)
    folder = Path(case["folder"])
    saved = Inventory(folder, tuple(replace(chosen(step), path=folder / f"step_{step}") for step in case["steps"]), ())
    programs = programs_of(job, case.get("files", {}).get)
    way = resume_way(job, programs, loaded_checkpoint(log(*case["log"])), saved=saved)
    assert str(way.means) == case["resumes"], way.sentence


def apart(first: int, count: int, every: int) -> list[str]:
    """Lines of a Trainer whose progress bar stands in another file: they name no step."""
    return [f"{{'loss': 3.1, 'epoch': {(first + n * every) / 200:.3f}}}" for n in range(count)]


def drawn(*steps: int) -> list[str]:
    return [f"  5%|4         | {step}/800 [00:20<06:40,  2.00it/s]" for step in steps]


@pytest.mark.parametrize("every", [1, 5])
def test_lines_that_name_no_step_are_no_proof_of_another_checkpoint(every: int) -> None:
    texts = ["***** Running training *****", *apart(40 + every, 18, every)]
    loaded = loaded_checkpoint(log(*texts, *drawn(41, 42, 40 + 18 * every)))
    assert loaded.first_step is None
    assert compare_loaded(chosen(40, "checkpoint-40", "huggingface"), loaded).verdict is LoadVerdict.UNKNOWN


@pytest.mark.parametrize("every", [1, 5])
def test_where_a_run_goes_on_and_the_bar_of_another_file_tell_the_steps_of_its_lines(every: int) -> None:
    texts = ["***** Running training *****", "  Continuing training from global step 40", *apart(40 + every, 18, every)]
    loaded = loaded_checkpoint(log(*texts, *drawn(41, 42, 40 + 18 * every)))
    assert (loaded.first_step, loaded.interval) == (40 + every, every)
    assert compare_loaded(chosen(40, "checkpoint-40", "huggingface"), loaded).verdict is LoadVerdict.CHOSEN
