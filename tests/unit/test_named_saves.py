"""Checkpoints whose name has no number: what they hold, what the log says of them, and their place among those that have one."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.records import Checkpoint, Job, JobSpec, JobState
from assistant.recover.checkpoints.inner_counts import epoch_inside, step_inside
from assistant.recover.checkpoints.inventory import Choice, before_step, inventory, last_healthy
from assistant.recover.checkpoints.search import CheckpointSearch, SaveState, search_checkpoints
from assistant.recover.resume.means import ResumeMeans, ResumeWay
from assistant.recover.resume.plan import resume_plan

NOW = datetime.now(UTC).replace(microsecond=0)
BEGAN = NOW - timedelta(hours=1)


class Progress:
    """An object of a program's own, which nothing here may make again."""

    def __init__(self, step: int) -> None:
        self.iteration = step

    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('unpickled')",))


class Runner:
    """Another one, pickled by its attributes."""

    def __init__(self, done: int) -> None:
        self.completed_steps = done
        self.options = {"step": 9000}


def legacy(path: Path, state: dict[str, Any]) -> None:
    magic = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
    parts: tuple[Any, ...] = (1001, {"little_endian": True}, state, [])
    path.write_bytes(magic + b"".join(pickle.dumps(part, 2) for part in parts))


def zipped(path: Path, content: dict[str, Any]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(content))
        archive.writestr("archive/data/0", os.urandom(3000))


def dumped(path: Path, content: object, protocol: int = 4) -> None:
    path.write_bytes(pickle.dumps(content, protocol))


@pytest.mark.parametrize(
    ("write", "step", "epoch"),
    [
        (lambda path: dumped(path, {"weights": [0.5] * 900, "global_step": 77, "epoch": 3}), 77, 3),
        (lambda path: dumped(path, {"weights": [0.5] * 900, "iter_num": 77}, 0), 77, None),
        (lambda path: dumped(path, {"net": {}, "round": 12, "opt": {"step": 5000}}, 2), 12, None),
        (lambda path: dumped(path, OrderedDict(step=41, args={"step": 8000, "steps": 8000})), 41, None),
        (lambda path: dumped(path, {"loop": {"global_step": 9}, "args": {"steps": 70}}), 9, None),
        (lambda path: dumped(path, {"args": {"step": 70}, "net": [1, 2]}), None, None),
        (lambda path: dumped(path, {"steps": 300, "net": [1, 2]}), None, None),
        (lambda path: dumped(path, {"step": True}), None, None),
        (lambda path: dumped(path, {"epoch": 6}), None, 6),
        (lambda path: dumped(path, Runner(31)), 31, None),
        (lambda path: dumped(path, {"progress": Progress(4), "step": 44}), 44, None),
        (lambda path: path.write_bytes(pickle.dumps({"step": 44, "net": [0.1] * 99})[:-40]), None, None),
        (lambda path: path.write_bytes(gzip.compress(pickle.dumps({"sweep": 8}))), 8, None),
        (lambda path: legacy(path, {"iteration": 510, "model": {}}), 510, None),
        (lambda path: path.write_text(json.dumps({"round": 60, "w": [0.25] * 40})), 60, None),
        (lambda path: path.write_text(json.dumps({"progress": {"global_step": 60, "step": 3}, "w": []})), 60, None),
        (lambda path: path.write_text(json.dumps({"w": [1], "round": 60})[:-2]), None, None),
        (lambda path: path.write_text("# state of relax\nsweep = 35\nw = 0.25 0.5\n"), 35, None),
        (lambda path: path.write_text("step = 35\nstep = 40\n"), None, None),
    ],
)  # fmt: skip
def test_a_file_of_any_form_tells_the_step_that_it_holds(
    write: Callable[[Path], object], step: int | None, epoch: int | None, tmp_path: Path
) -> None:
    write(path := tmp_path / "last.ckpt")
    assert (step_inside(path), epoch_inside(path)) == (step, epoch)


def job(folder: Path, *, script: str = "#!/bin/bash\nsrun ./solver run.in\n", ended_s: float = 1) -> Job:
    spec = JobSpec("relax", script, work_dir=folder)
    return Job(
        "31", "relax", "", JobState.FAILED, "", (), None, folder, None, BEGAN, NOW - timedelta(seconds=ended_s), 1, None, spec=spec
    )


def put(path: Path, content: object, before_s: float) -> Path:
    """Write a file that was last written so many seconds before the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        path.write_text(content, "utf-8")
    else:
        dumped(path, content)
    at = (NOW - timedelta(seconds=before_s)).timestamp()
    os.utime(path, (at, at))
    return path


def search(folder: Path, log: str, **about: Any) -> CheckpointSearch:
    return search_checkpoints(job(folder, **about), {}, log.splitlines(), now=NOW)


def choice_of(found: CheckpointSearch) -> Choice:
    assert found.inventory is not None, found.note
    return last_healthy(found.inventory, now=NOW)


def chosen(found: CheckpointSearch) -> Checkpoint:
    choice = choice_of(found)
    assert choice.checkpoint is not None, choice.refused
    return choice.checkpoint


TRAINS = "\n".join(f"step {step} loss 0.{90 - step // 10}" for step in range(10, 330, 10))
NUMBERED = {"step=98-val=0.4": 400, "step=140-val=0.3": 300}


@pytest.mark.parametrize(
    ("content", "step"),
    [({"global_step": 308, "net": [1.0] * 50}, 308), ({"net": [1.0] * 50}, 140), ({"epoch": 21, "net": [1.0] * 50}, 140)],
)
def test_the_file_that_is_written_at_each_save_is_chosen_before_older_best_ones(
    content: dict[str, Any], step: int, tmp_path: Path
) -> None:
    for name, before_s in NUMBERED.items():
        put(tmp_path / "ckpt" / f"{name}.ckpt", {"net": [1.0] * 50, "global_step": int(name[5:].partition("-")[0])}, before_s)
    put(tmp_path / "ckpt" / "last.ckpt", content, 20)
    checkpoint = chosen(search(tmp_path, TRAINS))
    assert (checkpoint.path.name, checkpoint.step) == ("last.ckpt", step)


def test_a_file_that_only_its_time_places_is_never_taken_for_one_before_a_divergence(tmp_path: Path) -> None:
    for name, before_s in NUMBERED.items():
        put(tmp_path / "ckpt" / f"{name}.ckpt", {"net": [1.0] * 50, "global_step": int(name[5:].partition("-")[0])}, before_s)
    put(tmp_path / "ckpt" / "last.ckpt", {"net": [1.0] * 50}, 20)
    found = search(tmp_path, TRAINS)
    assert found.inventory is not None
    before = before_step(found.inventory, 200, now=NOW).checkpoint
    assert before is not None
    assert before.path.name == "step=140-val=0.3.ckpt"


@pytest.mark.parametrize("kind", ["torn", "of an earlier attempt", "older than the best"])
def test_a_file_without_a_step_is_not_placed_where_it_is_torn_or_its_time_says_nothing(kind: str, tmp_path: Path) -> None:
    for name, before_s in NUMBERED.items():
        put(tmp_path / "ckpt" / f"{name}.ckpt", {"net": [1.0] * 50, "global_step": int(name[5:].partition("-")[0])}, before_s)
    raw = pickle.dumps({"net": [1.0] * 500})
    age_s = {"torn": 20.0, "of an earlier attempt": 5000.0, "older than the best": 350.0}[kind]
    put(tmp_path / "ckpt" / "last.ckpt", raw[:-200] if kind == "torn" else raw, age_s)
    assert chosen(search(tmp_path, TRAINS)).path.name == "step=140-val=0.3.ckpt"


def test_a_person_is_told_of_a_later_file_that_tells_no_step(tmp_path: Path) -> None:
    put(tmp_path / "ckpt" / "step=140.ckpt", {"net": [1.0] * 50, "global_step": 140}, 9000)
    put(tmp_path / "ckpt" / "last.ckpt", {"net": [1.0] * 50}, 20)
    found = search(tmp_path, "Epoch 3\n")
    checkpoint = chosen(found)
    assert checkpoint.path.name == "step=140.ckpt"
    plan = resume_plan(ResumeWay(ResumeMeans.NONE, "no option"), found.inventory, checkpoint)
    assert "last.ckpt was written later and tells no step" in plan.refusal
    given = ResumeWay(ResumeMeans.ARGUMENT, "--from={checkpoint}", argument="--from={checkpoint}")
    assert "last.ckpt was written later" in resume_plan(given, found.inventory, checkpoint).refusal  # a start may write over it


@pytest.mark.parametrize("line", ["batch 7 of 14\nsaved ckpt/last.ckpt", "saved ckpt/last.ckpt, batch 7", "wrote ckpt/last.ckpt"])
def test_what_a_log_counts_otherwise_does_not_place_a_file_before_older_ones(line: str, tmp_path: Path) -> None:
    for name, before_s in NUMBERED.items():
        put(tmp_path / "ckpt" / f"{name}.ckpt", {"net": [1.0] * 50, "global_step": int(name[5:].partition("-")[0])}, before_s)
    put(tmp_path / "ckpt" / "last.ckpt", {"net": [1.0] * 50}, 20)
    assert chosen(search(tmp_path, f"{TRAINS}\n{line}\n")).path.name == "last.ckpt"


def test_a_line_without_a_count_places_a_save_behind_the_last_one_that_was_counted(tmp_path: Path) -> None:
    put(tmp_path / "pop" / "state.json", json.dumps({"pop": [0.5] * 400}), 25)
    log = "\n".join(f"generation {n} fit 0.{n:02}" + ("\nstored pop/state.json" if n % 20 == 0 else "") for n in range(1, 48))
    checkpoint = chosen(search(tmp_path, log))
    assert (checkpoint.path.name, checkpoint.step, checkpoint.format) == ("state.json", 40, "placed")


def test_a_script_that_takes_the_newest_by_a_rule_of_its_own_is_not_taken_to_load_what_only_its_time_places(tmp_path: Path) -> None:
    for name, before_s in NUMBERED.items():
        put(tmp_path / "ckpt" / f"{name}.ckpt", {"net": [1.0] * 50, "global_step": int(name[5:].partition("-")[0])}, before_s)
    put(tmp_path / "ckpt" / "last.ckpt", {"net": [1.0] * 50}, 20)
    found = search(tmp_path, TRAINS)
    newest = ResumeWay(ResumeMeans.NEWEST, "the newest")
    plan = resume_plan(newest, found.inventory, chosen(found))
    assert "last.ckpt" in plan.refusal
    assert not plan.set_aside
    given = ResumeWay(ResumeMeans.ARGUMENT, "--from={checkpoint}", argument="--from={checkpoint}")
    assert resume_plan(given, found.inventory, chosen(found)).ready
    assert found.inventory is not None
    older = found.inventory.checkpoints[0]
    assert "last.ckpt" in resume_plan(newest, found.inventory, older).refusal


ROUNDS = "\n".join(f"round {number}/200 accuracy 0.{500 + number}" for number in range(5, 75, 5))


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("work/model.json", json.dumps({"w": [0.5] * 90}), "10:15:02 work/model.json saved, round 60"),
        ("work/model.json", json.dumps({"round": 60, "w": [0.5] * 90}), "10:15:02 work/model.json saved"),
        ("state.npz", b"", "wrote state.npz after 60 rounds"),
        ("out/restart.pickle", pickle.dumps([0.5] * 90), "round 60: dumped the state to out/restart.pickle"),
        ("run/solver.dat", gzip.compress(b"x" * 5000, mtime=0), "checkpoint run/solver.dat written (round=60)"),
    ],
)
def test_a_save_that_the_log_names_is_found_with_its_round(name: str, content: Any, line: str, tmp_path: Path) -> None:
    path = put(tmp_path / name, content or b"-", 30)
    if name.endswith(".npz"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("w.npy", bytes(900))
        os.utime(path, ((NOW - timedelta(seconds=30)).timestamp(),) * 2)
    found = search(tmp_path, f"{ROUNDS}\n{line}\nround 65/200 accuracy 0.565\n")
    assert found.state is SaveState.FOUND, found.note
    checkpoint = chosen(found)
    assert (checkpoint.path, checkpoint.step) == (path, 60)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("work/model.json", '{"w": [0.5, 0.25'),
        ("work/model.json", ""),
        ("work/model.bin", bytes(4096)),
        ("state.gz", gzip.compress(random.Random(7).randbytes(4000), mtime=0)[:-900]),
        ("model.txt", "w 0.25 0.5\nb 0.125\n"),
    ],
)
def test_a_named_save_that_is_torn_or_that_no_reader_knows_is_not_chosen(name: str, content: Any, tmp_path: Path) -> None:
    put(tmp_path / name, content, 30)
    found = search(tmp_path, f"{ROUNDS}\n{name} saved, round 60\n")
    assert found.state is not SaveState.NEVER_SAVED
    assert found.inventory is None or choice_of(found).checkpoint is None


@pytest.mark.parametrize(
    "line",
    [
        "figure saved to out/curve.png, round 60", "saved work/config.json, round 60", "loading work/model.json, round 60",
        "could not save work/model.json, round 60", "wrote work/table.json",
    ],
)  # fmt: skip
def test_what_is_no_state_or_was_not_saved_makes_no_checkpoint(line: str, tmp_path: Path) -> None:
    for name in ("out/curve.png", "work/config.json", "work/model.json", "work/table.json"):
        put(tmp_path / name, json.dumps({"w": [0.5] * 90}), 30)
    assert search(tmp_path, f"{ROUNDS}\n{line}\n").state is not SaveState.FOUND


def test_a_file_that_an_earlier_attempt_wrote_is_none_of_this_ones_saves(tmp_path: Path) -> None:
    put(tmp_path / "work" / "model.json", json.dumps({"w": [0.5] * 90}), 8000)
    assert search(tmp_path, f"{ROUNDS}\nwork/model.json saved, round 60\n").state is not SaveState.FOUND


def test_a_whole_file_of_unknown_step_is_not_called_damaged(tmp_path: Path) -> None:
    put(tmp_path / "ckpt.pt", {"net": [1.0] * 400}, 30)
    [checkpoint] = inventory(tmp_path, now=NOW).checkpoints
    assert checkpoint.undecided
    assert not checkpoint.healthy


BOOSTS = "\n".join(
    f"[{number:4}] logloss 0.{700 - number} eta 0.3"
    + (f"\n[model] models/plum-2031q2.r{number:04}.json" if number % 30 == 0 else "")
    for number in range(5, 105, 5)
)


def test_a_series_whose_rising_number_only_the_log_shows_is_found(tmp_path: Path) -> None:
    for number in (30, 60, 90):
        put(tmp_path / "models" / f"plum-2031q2.r{number:04}.json", json.dumps({"trees": [number] * number}), 200 - number)
    checkpoint = chosen(search(tmp_path, BOOSTS))
    assert (checkpoint.path.name, checkpoint.step) == ("plum-2031q2.r0090.json", 90)


def test_the_newest_of_such_a_series_is_passed_over_where_it_is_torn(tmp_path: Path) -> None:
    for number in (30, 60, 90):
        text = json.dumps({"trees": [number] * number})
        put(tmp_path / "models" / f"plum-2031q2.r{number:04}.json", text[:-9] if number == 90 else text, 200 - number)
    assert chosen(search(tmp_path, BOOSTS)).step == 60


def test_results_that_a_log_names_one_after_another_are_no_checkpoints(tmp_path: Path) -> None:
    lines = []
    for number in (30, 60, 90):
        put(tmp_path / "out" / f"answers.q{number:04}.json", json.dumps({"trees": [number] * number}), 200 - number)
        lines.append(f"wrote out/answers.q{number:04}.json")
    assert search(tmp_path, "\n".join(lines)).state is not SaveState.FOUND
