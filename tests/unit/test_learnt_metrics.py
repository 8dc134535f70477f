"""What logs of no known form teach of their own steps and losses, and how two attempts are compared by it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.content.reading import read_toml
from assistant.logs.attempt import job_logs
from assistant.logs.lines import Lines
from assistant.logs.metrics import metric_points
from assistant.logs.phases import learn_series, read_series
from assistant.logs.tail import LogMark
from assistant.records import Job, JobState
from assistant.recover.checkpoints.inventory import inventory
from assistant.recover.comparison import AttemptLog, aborted_at_exit, compared_by_form, saved_end
from assistant.recover.joblog import _marks, noted
from assistant.recover.verify import Look, Restart, Standing, judge_restart, loss_seen
from tests.unit.logged_job import START, job_in, write

CASES = read_toml(Path(__file__).parents[1] / "cases/learnt_metrics/forms.toml")["case"]
LATER = START + timedelta(hours=1)


def lines_of(text: str) -> Lines:
    return Lines([(1, text.encode())])


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_what_a_log_teaches_of_its_steps(case: dict[str, Any]) -> None:
    series = learn_series(lines_of(case["log"]))
    if "unit" not in case:
        assert series is None
        return
    assert series is not None
    steps = [point.step for point in series.points]
    assert (series.form.unit, steps[0], steps[-1], len(steps)) == (case["unit"], case["first"], case["last"], len(set(steps)))
    assert (series.form.loss_at is not None, series.total) == (case["loss"], case.get("total"))


def test_one_row_of_the_next_attempt_is_read_by_the_form_that_the_first_one_taught() -> None:
    series = learn_series(lines_of("".join(f"tick {step} kimg {step}.5\n" for step in range(1, 9))))
    assert series is not None
    assert learn_series(lines_of("tick 9 kimg 9.5\n")) is None
    later = read_series(lines_of("Resuming\ntick 9 kimg 9.5\n"), series.form)
    assert later is not None
    assert [point.step for point in later.points] == [9]


# Attempts


def flax(first: int, last: int) -> str:
    return "".join(
        f"I1127 04:13:27.1 155 t.py:77] [{step}] loss={3 / step:.5f}, uptime={step}\n" for step in range(first, last + 1, 10)
    )


def probe(layer: int, last: int) -> str:
    return "".join(f"probe layer{layer}: epoch {epoch}/100 top1 43.{epoch}\n" for epoch in range(10, last + 1, 10))


def parts(job: Job, texts: dict[str, str]) -> list[AttemptLog]:
    return [AttemptLog(Path("/w/logs") / name, lines_of(text)) for name, text in texts.items()]


FAILED, AGAIN = job_in(Path("/w"), id="2", raw_id="2"), job_in(Path("/w"), id="3", raw_id="3", nodes=("gpu004",))
SKIPPED = "probe: already done, skipped\n"
PACKED = {f"p-2-layer{layer}.out": probe(layer, 40 if layer == 9 else 100) for layer in (3, 6, 9, 12)}


@pytest.mark.parametrize(
    ("before", "after", "chosen", "reached", "came_to", "began"),
    [
        ({"u.gpu001.2.out": flax(10, 100)}, {"u.gpu004.3.out": flax(100, 200)}, 90, 100, 200, 90),
        ({"u.gpu001.2.out": flax(10, 100)}, {"u.gpu004.3.out": "Restoring\n"}, 90, 100, None, 90),
        ({"u.2.out": flax(10, 100)}, {"u.3.out": flax(10, 30)}, 4000, 100, 30, 0),  # its checkpoints count something else
        (PACKED, {name.replace("-2-", "-3-"): SKIPPED for name in PACKED} | {"p-3-layer9.out": probe(9, 100)}, 0, 40, 100, 0),
        (PACKED, {name.replace("-2-", "-3-"): SKIPPED for name in PACKED}, 0, 40, None, 0),  # the one that had failed shows nothing
        (
            PACKED | {"p-2-layer6.out": probe(6, 50)},
            {"p-3-layer9.out": probe(9, 100), "p-3-layer6.out": probe(6, 40)},
            0,
            50,
            40,
            0,
        ),  # of two that had failed the one that is behind
        ({"a-2-26-11-27_03.log": flax(10, 60)}, {"a-3-26-11-28_09.log": flax(50, 80)}, 40, 60, 80, 40),
    ],
)
def test_two_attempts_are_compared_by_what_the_first_one_teaches(
    before: dict[str, str], after: dict[str, str], chosen: int, reached: int, came_to: int | None, began: int
) -> None:
    comparison = compared_by_form(parts(FAILED, before), parts(AGAIN, after), failed=FAILED, job=AGAIN, chosen_step=chosen)
    assert comparison is not None
    assert (comparison.reached, comparison.began) == (reached, began)
    assert max((point.step for point in comparison.after), default=None) == came_to


def test_logs_that_count_nothing_are_not_compared() -> None:
    words = {"u.2.out": "reading\nwriting\n"}
    assert (
        compared_by_form(parts(FAILED, words), parts(AGAIN, {"u.3.out": flax(1, 90)}), failed=FAILED, job=AGAIN, chosen_step=0)
        is None
    )


def test_a_loss_in_a_form_of_its_own_goes_on_or_jumps() -> None:
    before, good = learn_series(lines_of(flax(10, 100))), learn_series(lines_of(flax(100, 200)))
    jumped = learn_series(lines_of("".join(f"[{step}] loss=9.{step}, uptime=3\n" for step in range(100, 200, 10))))
    assert before is not None
    assert good is not None
    assert jumped is not None
    assert loss_seen(before.points, good.points, restart_step=90, ended=True).status is Look.CONTINUES
    assert loss_seen(before.points, jumped.points, restart_step=90, ended=True).status is Look.JUMPED


# Whose lines


TEE = "srun -l x 2>&1 | tee -a logs/g_$(date +%s).log"


def test_an_appended_log_that_was_not_there_before_the_attempt_is_all_its_own(tmp_path: Path) -> None:
    job = job_in(tmp_path, TEE, log=None)
    write(tmp_path / "logs/g_1.log", "iteration 5/ 9 | lm loss: 2\n", START - timedelta(hours=1))
    marks = _marks(json.loads(json.dumps(noted(job_logs(job), START - timedelta(minutes=1)))))
    write(tmp_path / "logs/g_2.log", "iteration 6/ 9 | lm loss: 2\n")
    assert [file.sure for file in job_logs(job).readable] == [False]
    assert [(file.path.name, file.sure, file.begin) for file in job_logs(job, marks=marks).readable] == [("g_2.log", True, 0)]
    late = [replace(mark, at=START + timedelta(minutes=1)) for mark in marks]
    assert [file.sure for file in job_logs(job, marks=late).readable] == [False]
    write(tmp_path / "logs/g_1.log", "iteration 5/ 9 | lm loss: 2\niteration 7/ 9 | lm loss: 2\n")
    known = {file.path.name: file.sure for file in job_logs(job, marks=marks).readable}
    assert not known.get("g_1.log", False)


def test_an_appended_file_of_a_fixed_name_that_was_missing_before_is_all_its_own(tmp_path: Path) -> None:
    job = job_in(tmp_path, "python x >> run.log", log=None)
    marks = _marks(noted(job_logs(job), START - timedelta(minutes=1)))
    write(tmp_path / "run.log", "step 1 loss 2\n")
    assert [file.sure for file in job_logs(job, marks=marks).readable] == [True]
    there = LogMark(str(tmp_path / "run.log"), (tmp_path / "run.log").stat().st_ino, 4, START - timedelta(seconds=30))
    assert [file.begin for file in job_logs(job, marks=[*marks, there]).readable] == [4]  # the newest look counts


def test_the_steps_of_a_resumed_trainer_follow_from_what_it_loads_and_saves() -> None:
    lines = ["Checkpoint detected, resuming training at out/checkpoint-40.", "***** Running training *****"]
    epochs = (0.11, 0.12, 0.14, 0.15, 0.16, 0.17, 0.19, 0.2)
    logged = [f"{{'loss': {2 - epoch:.2f}, 'epoch': {epoch}}}" for epoch in epochs]
    lines += [*logged[:4], "Saving model checkpoint to out/checkpoint-60"]
    lines += [*logged[4:], "Saving model checkpoint to out/checkpoint-80"]
    points = metric_points(lines_of("\n".join([*lines, "{'loss': 1.79, 'epoch': 0.21}", ""])))
    assert [point.step for point in points] == [45, 50, 55, 60, 65, 70, 75, 80, 85]
    assert not any(point.counted for point in points)
    # saves that do not fit to what it says that it loads prove nothing
    other = metric_points(lines_of("\n".join(lines).replace("checkpoint-40", "checkpoint-70") + "\n"))
    assert all(point.counted for point in other)


# A job that completed


@pytest.mark.parametrize(
    ("saved", "has_lines", "standing"),
    [
        (60, True, Standing.RECOVERED),
        (60, False, Standing.RECOVERED),
        (40, True, Standing.ENDED_AGAIN),  # the chosen one, and none behind it
        (None, True, Standing.ENDED_AGAIN),  # its lines can be read, and show no step
        (None, False, Standing.COMPLETED_UNPROVEN),
    ],
)
def test_a_completed_job_is_proven_by_what_it_saved_or_not_at_all(saved: int | None, has_lines: bool, standing: Standing) -> None:
    job = job_in(Path("/w"), state=JobState.COMPLETED, exit_code=0, ended=LATER)
    before = list((learn_series(lines_of(flax(1, 50))) or pytest.fail("no series")).points)
    verdict = judge_restart(Restart(job, (), before, 40, 50, now=LATER, saved_step=saved, has_lines=has_lines))
    assert verdict.standing is standing, verdict.note


@pytest.mark.parametrize(("saved", "step"), [(240, 240), (9, 9), (None, 9)])
def test_a_checkpoint_behind_the_last_line_says_how_far_a_job_came_whose_lines_count_epochs(saved: int | None, step: int) -> None:
    job = job_in(Path("/w"), state=JobState.COMPLETED, exit_code=0, ended=LATER)
    epochs = metric_points(lines_of("".join(f"epoch {epoch} step {epoch} loss {2 - epoch / 10}\n" for epoch in range(1, 10))))
    verdict = judge_restart(Restart(job, epochs, epochs[:4], 0, 4, now=LATER, saved_step=saved))
    assert (verdict.standing, verdict.step) == (Standing.RECOVERED, step), verdict.note
    assert f"step {step}" in verdict.note


# A training that is over


def student(folder: Path, *, step: int, last: int, model_at: timedelta | None) -> Job:
    out = folder / "student"
    checkpoint = out / "checkpoint-120"
    write(checkpoint / "trainer_state.json", json.dumps({"global_step": step, "max_steps": last}))
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    tensors = len(header).to_bytes(8, "little") + header + bytes(4)
    for name in ("checkpoint-120/model.safetensors", *(["model.safetensors"] if model_at is not None else [])):
        (out / name).write_bytes(tensors)
        at = START + (timedelta(minutes=1) if "/" in name else model_at or timedelta())
        os.utime(out / name, (at.timestamp(),) * 2)
    return job_in(folder, state=JobState.FAILED, signal=6, ended=LATER, log=folder / "out.log")


@pytest.mark.parametrize(
    ("step", "last", "model_at", "proof"),
    [
        (120, 120, None, "checkpoint-120 is of its last step (trainer_state.json: step 120 of 120)"),
        (120, 240, None, ""),
        (120, 240, timedelta(minutes=2), "model.safetensors was written after its last checkpoint"),
        (120, 240, timedelta(seconds=30), ""),  # before the checkpoint
        (120, 240, timedelta(minutes=70), ""),  # after the job
        (80, 80, None, ""),  # the state is another checkpoint's
    ],
)
def test_the_end_of_a_training_is_saved_by_what_lies_there(
    step: int, last: int, model_at: timedelta | None, proof: str, tmp_path: Path
) -> None:
    job = student(tmp_path, step=step, last=last, model_at=model_at)
    assert saved_end(job, inventory(tmp_path / "student", now=LATER)) == proof
    earlier = replace(job, started=START + timedelta(minutes=5))  # all of it is of an attempt before
    assert saved_end(earlier, inventory(tmp_path / "student", now=LATER)) == ""


END = "{'train_runtime': 41.2, 'epoch': 3.0}"
ABORT = ["terminate called after throwing an instance of 'c10::Error'", "  what():  driver shutting down"]


@pytest.mark.parametrize(
    ("behind", "is_at_exit"),
    [
        (["Model saved to student", *ABORT, "srun: error: gpu001: task 0: Aborted (core dumped)"], True),
        (["Segmentation fault (core dumped)"], True),
        ([*ABORT, "frame #0: c10::Error::Error + 0x57 (0x7f in libc10.so)", "Fatal Python error: Aborted"], True),
        (["free(): invalid pointer"], True),
        (["***** Running Evaluation *****", *ABORT], False),  # it was at something else
        (["Pushing to the hub", *ABORT], False),
        (["Traceback (most recent call last):", "RuntimeError: upload failed"], False),
        (["Traceback (most recent call last):", "RuntimeError: x", *ABORT], False),
        ([], False),
        (["merging the shards", "done"], False),
    ],
)
def test_an_abort_at_the_exit_is_told_from_a_failure_behind_the_training(behind: list[str], is_at_exit: bool) -> None:
    job = job_in(Path("/w"), state=JobState.FAILED, signal=6, ended=LATER)
    lines = ["{'loss': 0.5, 'epoch': 3.0}", "Training completed.", END, *behind]
    assert bool(aborted_at_exit(job, [lines], END)) == is_at_exit
    assert aborted_at_exit(replace(job, state=JobState.TIMEOUT), [lines], END) == ""
    if is_at_exit:
        assert aborted_at_exit(job, [lines[:3], ["a warning of the start", *behind]], END)  # standard error is another file
        assert not aborted_at_exit(job, [lines, ["Traceback (most recent call last):"]], END)
        assert not aborted_at_exit(job, [lines], "another line")
