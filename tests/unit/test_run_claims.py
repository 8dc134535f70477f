"""Tasks of an array and jobs of a sweep that save side by side: whose a folder is, by what the logs of all of them name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assistant.records import Job, JobSpec, JobState
from assistant.recover.checkpoints.search import CheckpointSearch, SaveState, search_checkpoints

BEGAN = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
ENDED = BEGAN + timedelta(minutes=30)
STEPS = ("step 10 loss 1.72", "step 20 loss 1.43", "step 30 loss 1.21")


def written(path: Path, content: bytes, minutes: float = 29) -> None:
    """Write a file that was changed so many minutes after the array began."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    at = (BEGAN + timedelta(minutes=minutes)).timestamp()
    os.utime(path, (at, at))


def saved(folder: Path, minutes: float = 29) -> None:
    written(folder / "last.pt", b"\x80" + bytes(9000), minutes)


def search(
    work: Path, task: str, logs: Mapping[str, tuple[str, ...]], *, name: str = "sweep_{}.out", **changes: object
) -> CheckpointSearch:
    """Look for the checkpoints of a task whose siblings wrote logs beside its own."""
    for job_id, lines in logs.items():
        written(work / "logs" / name.format(job_id), "".join(f"{line}\n" for line in lines).encode(), 30)
    spec = JobSpec("sweep", "#!/bin/bash\npython3 sweep.py\n", work_dir=work)
    log = work / "logs" / name.format(task)
    job = Job(task, "sweep", "", JobState.FAILED, "train", ("n1",), log, work, BEGAN, BEGAN, ENDED, 1, None, spec=spec)
    return search_checkpoints(replace(job, dated_logs=True, **changes), {}, logs[task], now=ENDED + timedelta(minutes=1))  # type: ignore[arg-type]


def sweep_logs(*tasks: int, form: str = "task {0}: lr=0.{0} -> runs/t0{0}_lr0.{0}") -> dict[str, tuple[str, ...]]:
    return {f"1_{task}": (form.format(task), *STEPS) for task in tasks}


@pytest.mark.parametrize(
    "form",
    [
        "task {0}: lr=0.{0} -> runs/t0{0}_lr0.{0}",
        "hparams: lr=0.{0} root=/other/way/to/the/work/runs/t0{0}_lr0.{0}",
        "run t0{0}_lr0.{0} begins",
        "writing tensorboard events into ./runs/t0{0}_lr0.{0}/tb",
    ],
)
def test_of_folders_of_an_array_the_one_that_its_own_log_names_is_a_tasks_own(form: str, tmp_path: Path) -> None:
    for task in (0, 1, 2):
        saved(tmp_path / f"runs/t0{task}_lr0.{task}")
    found = search(tmp_path, "1_1", sweep_logs(0, 1, 2, form=form))
    assert found.place is not None, found.note
    assert found.place.folder == tmp_path / "runs/t01_lr0.1"


def test_the_folder_of_a_run_is_found_in_a_part_of_it(tmp_path: Path) -> None:
    for task in (0, 1, 2):
        saved(tmp_path / f"exp/lr0.00{task}/checkpoints")
    found = search(tmp_path, "1_2", sweep_logs(0, 1, 2, form=f"root={tmp_path}/exp/lr0.00{{0}}"), name="{}_0_log.out")
    assert found.place is not None, found.note
    assert found.place.folder == tmp_path / "exp/lr0.002/checkpoints"


def test_jobs_of_a_sweep_that_were_submitted_one_by_one_are_told_apart_as_well(tmp_path: Path) -> None:
    for task in (7, 8):
        saved(tmp_path / f"runs/seed-{task}0")
    logs = {str(task): (f"output folder: {tmp_path}/runs/seed-{task}0", *STEPS) for task in (7, 8)}
    found = search(tmp_path, "7", logs, name="slurm-{}.out")
    assert found.place is not None, found.note
    assert found.place.folder.name == "seed-70"


def test_the_name_of_a_job_and_its_arguments_name_its_folder(tmp_path: Path) -> None:
    saved(tmp_path / "runs/wd0.1")
    saved(tmp_path / "runs/wd0.2")
    spec = JobSpec("sweep", "#!/bin/bash\npython3 sweep.py\n", work_dir=tmp_path, arguments=("--run", "wd0.2"))
    job = Job("7", "sweep", "", JobState.FAILED, "train", ("n1",), None, tmp_path, BEGAN, BEGAN, ENDED, 1, None, spec=spec)
    found = search_checkpoints(job, {}, STEPS, now=ENDED)
    assert found.place is not None, found.note
    assert found.place.folder.name == "wd0.2"
    named = search_checkpoints(replace(job, name="wd0.1", spec=replace(spec, arguments=())), {}, STEPS, now=ENDED)
    assert named.place is not None
    assert named.place.folder.name == "wd0.1"


@pytest.mark.parametrize(
    ("own", "other"),
    [
        (STEPS, ("-> runs/t00_lr0.0", *STEPS)),  # its log names none
        (("-> runs/t00_lr0.0", "-> runs/t01_lr0.1"), ("a", *STEPS)),  # its log names both
        (("runs/t01_lr0.1 is compared with the best", *STEPS), STEPS),  # what it reads is not what it writes
        (("Loading weights from runs/t01_lr0.1/last.pt", *STEPS), STEPS),
        (("-> /else/where/t01_lr0.10", *STEPS), STEPS),  # another name
        (("-> runs/t01_lr0.1", *STEPS), ("-> runs/t01_lr0.1", *STEPS)),  # another attempt has it for itself
    ],
)
def test_folders_that_logs_do_not_tell_apart_are_nobodys(own: tuple[str, ...], other: tuple[str, ...], tmp_path: Path) -> None:
    for task in (0, 1):
        saved(tmp_path / f"runs/t0{task}_lr0.{task}")
    saved(tmp_path / "runs/t02_lr0.2")
    found = search(tmp_path, "1_1", {"1_0": other, "1_1": own})
    assert (found.state, found.inventory) == (SaveState.UNKNOWN, None)
    assert "checkpoints of several runs" in found.note


def test_a_task_that_never_came_to_save_beside_others_that_did_never_saved(tmp_path: Path) -> None:
    for task in (0, 1, 2):
        saved(tmp_path / f"runs/t0{task}_lr0.{task}")
    (tmp_path / "runs/t04_lr0.4").mkdir()
    logs = sweep_logs(0, 1, 2) | {"1_4": ("task 4: lr=0.4 -> runs/t04_lr0.4", "FileNotFoundError: '/mnt/data/train'")}
    found = search(tmp_path, "1_4", logs)
    assert found.state is SaveState.NEVER_SAVED
    assert f"{tmp_path}/runs/t04_lr0.4, which its log names, holds none" in found.note


def test_a_task_whose_log_shows_no_step_never_saved_where_all_that_lies_there_is_of_its_siblings(tmp_path: Path) -> None:
    for task in (0, 1):
        saved(tmp_path / f"runs/t0{task}_lr0.{task}")
    logs = sweep_logs(0, 1) | {"1_4": ("FileNotFoundError: '/mnt/data/train'",)}
    assert search(tmp_path, "1_4", logs).state is SaveState.NEVER_SAVED
    trained = sweep_logs(0, 1) | {"1_4": STEPS}
    assert search(tmp_path, "1_4", trained).state is SaveState.UNKNOWN, "it trained, and where it saves is not known"


def test_the_only_folder_that_was_written_is_not_a_tasks_own_where_the_log_of_a_sibling_names_it(tmp_path: Path) -> None:
    saved(tmp_path / "runs/t00_lr0.0")
    logs = sweep_logs(0) | {"1_4": ("task 4: lr=0.4 -> runs/t04_lr0.4", "RuntimeError: no data")}
    assert search(tmp_path, "1_4", logs).state is SaveState.NEVER_SAVED


def test_what_an_earlier_attempt_left_in_the_folder_that_its_log_names_is_a_tasks_own(tmp_path: Path) -> None:
    for task in (0, 1):
        saved(tmp_path / f"runs/t0{task}_lr0.{task}")
    saved(tmp_path / "runs/t04_lr0.4", minutes=-300)
    logs = sweep_logs(0, 1) | {"1_4": ("task 4: lr=0.4 -> runs/t04_lr0.4", "RuntimeError: no data")}
    found = search(tmp_path, "1_4", logs)
    assert found.place is not None, found.note
    assert found.place.folder.name == "t04_lr0.4"


def test_a_task_that_says_that_it_saved_is_not_started_anew(tmp_path: Path) -> None:
    for task in (0, 1):
        saved(tmp_path / f"runs/t0{task}_lr0.{task}")
    logs = sweep_logs(0, 1) | {"1_4": ("task 4: lr=0.4 -> runs/t04_lr0.4", "saved checkpoint to /gone/t04.pt")}
    assert search(tmp_path, "1_4", logs).state is SaveState.SAVED_ELSEWHERE


NO_STEP = ("Epoch 1/12", "FileNotFoundError: '/data/train'")


def folds(work: Path, *written_tasks: int, empty: tuple[int, ...] = (), first: int = 0) -> None:
    for task in written_tasks:
        saved(work / f"folds/fold{task + first}")
    for task in empty:
        (work / f"folds/fold{task + first}").mkdir(parents=True)


def fold_logs(*tasks: int) -> dict[str, tuple[str, ...]]:
    return {f"90_{task}": NO_STEP for task in tasks}


def test_folders_that_fit_the_tasks_of_an_array_one_to_one_are_theirs(tmp_path: Path) -> None:
    folds(tmp_path, 0, 1, 2, empty=(3,))
    found = search(tmp_path, "90_2", fold_logs(0, 1, 2, 3))
    assert found.place is not None, found.note
    assert found.place.folder.name == "fold2"
    silent = search(tmp_path, "90_3", fold_logs(0, 1, 2, 3))
    assert silent.state is SaveState.NEVER_SAVED, silent.note
    assert "fold3, by its name beside those of the other tasks, holds none" in silent.note


@pytest.mark.parametrize(
    ("first", "empty", "script"),
    [
        (1, (3,), "python3 sweep.py"),  # they count from one: whose each is, is not known
        (0, (), "python3 sweep.py"),  # one has none: they may count otherwise
        (0, (3,), "python3 sweep.py --fold $((3 - SLURM_ARRAY_TASK_ID))"),
        (0, (3,), "python3 sweep.py --fold ${ORDER[$SLURM_ARRAY_TASK_ID]}"),
    ],
)
def test_folders_whose_numbers_may_mean_something_else_are_nobodys(
    first: int, empty: tuple[int, ...], script: str, tmp_path: Path
) -> None:
    folds(tmp_path, 0, 1, 2, empty=empty, first=first)
    spec = JobSpec("sweep", f"#!/bin/bash\n{script}\n", work_dir=tmp_path)
    found = search(tmp_path, "90_2", fold_logs(0, 1, 2, 3), spec=spec)
    assert found.state is SaveState.UNKNOWN, found.note


def test_what_was_written_after_a_task_had_ended_is_not_its_own(tmp_path: Path) -> None:
    for task in (0, 1):
        saved(tmp_path / f"runs/x{task}y{task}", minutes=30.5)
    found = search(tmp_path, "90_4", {"90_4": NO_STEP})
    assert found.state is SaveState.NEVER_SAVED, found.note
    assert "were written after it had ended" in found.note
    unsure = search(tmp_path, "90_4", {"90_4": NO_STEP}, ended=ENDED - timedelta(minutes=1))
    assert unsure.state is SaveState.UNKNOWN, "the clocks of its log and of the scheduler may lie apart"


def test_a_folder_that_a_task_made_and_left_empty_shows_that_it_saved_nothing(tmp_path: Path) -> None:
    program = (
        "import sys, os\nd = f'folds/fold{sys.argv[1]}'\nos.makedirs(d)\nwith open(d + '/w.npz', 'wb') as f:\n    f.write(b'x')\n"
    )
    (tmp_path / "cv.py").write_text(program)
    folds(tmp_path, 0, 1, empty=(4,))
    at = BEGAN.timestamp() + 60
    os.utime(tmp_path / "folds/fold4", (at, at))
    spec = JobSpec("cv", "#!/bin/bash\npython3 cv.py $SLURM_ARRAY_TASK_ID\n", work_dir=tmp_path)
    found = search(tmp_path, "90_4", {"90_4": NO_STEP}, spec=spec)
    assert found.state is SaveState.NEVER_SAVED, found.note
    assert "fold4" in found.note
    trained = search(tmp_path, "90_4", {"90_4": STEPS}, spec=spec)
    assert trained.state is not SaveState.NEVER_SAVED, "it trained, and may have saved elsewhere"
    at = BEGAN.timestamp() - 3600
    os.utime(tmp_path / "folds/fold4", (at, at))
    older = search(tmp_path, "90_4", {"90_4": NO_STEP}, spec=spec)
    assert older.state is not SaveState.NEVER_SAVED, "who made that is not known"
