"""What the programs of a trial's sandbox see of the files that a script wrote, and the network that it has."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from assistant.recover.trial.changes_program import differences, saves_of
from assistant.recover.trial.deadline_program import LOGGED_STEP, TrialDeadline, work_of
from assistant.recover.trial.network_program import interfaces_of
from assistant.recover.trial.trial import sandbox_text


@dataclass
class FakeLayer:
    """Two folders in the place of an overlay."""

    root: str
    below: Path
    above: Path
    hidden: tuple[str, ...] = ()
    lower: int = field(init=False)
    upper: int = field(init=False)

    def __post_init__(self) -> None:
        self.lower, self.upper = (os.open(folder, os.O_RDONLY) for folder in (self.below, self.above))

    def was_there(self, name: str) -> os.stat_result | None:
        is_hidden = any(f"{self.root}/{name}".startswith(path) for path in self.hidden)
        return (self.below / name).stat() if (self.below / name).exists() and not is_hidden else None

    def entries(self) -> list[tuple[str, os.stat_result]]:
        return [(str(path.relative_to(self.above)), path.stat()) for path in sorted(self.above.rglob("*"))]


@pytest.fixture
def layer(tmp_path: Path) -> FakeLayer:
    for side in ("below", "above"):
        (tmp_path / side).mkdir()
    return FakeLayer("/w/ckpt", tmp_path / "below", tmp_path / "above")


def put(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("name", "below", "above", "hidden", "saves"),
    [
        ("step_60/model.bin", "", "weights", (), True),
        ("step_60/model.bin", "older", "weights", (), True),
        ("step_60/model.bin", "weights", "weights", (), False),
        ("step_60/model.bin", "weights", "weights", ("/w/ckpt/step_60",), True),
        ("metrics.jsonl", "older", "newer", (), False),
        ("rank0.txt", "a line", "a line and more", (), False),
    ],
    ids=["new", "written over", "only opened", "hidden before, so it is new", "no number in its name", "only added to"],
)
def test_what_was_written_over_counts_as_a_save_where_its_name_has_a_number(
    layer: FakeLayer, name: str, below: str, above: str, hidden: tuple[str, ...], *, saves: bool
) -> None:
    if below:
        put(layer.below, name, below)
    put(layer.above, name, above)
    layer.hidden = hidden
    found = list(saves_of({"watched": ["/w/ckpt"]}, [layer], {layer.root: set()}))
    assert found == ([f"/w/ckpt/{name}"] if saves else [])


def test_a_file_that_was_hidden_and_is_written_anew_had_not_been_there(layer: FakeLayer) -> None:
    put(layer.below, "step_60.pt", "weights")
    put(layer.above, "step_60.pt", "weights")
    layer.hidden = ("/w/ckpt/step_60.pt",)
    request = {"hidden": ["/w/ckpt/step_60.pt"], "written": {}}
    changed, removed, _, _ = differences([layer], {layer.root: set()}, request)
    assert [(item["path"], item["was"]) for item in changed] == [("/w/ckpt/step_60.pt", None)]
    assert removed == []


def test_the_text_that_travels_holds_all_that_it_imports(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-c", sandbox_text(), "no request", "5"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout.startswith("NIGHTSHIFT-TRIAL {"), ended.stderr
    assert "impossible" in ended.stdout


def test_the_loopback_is_no_interface_that_is_copied() -> None:
    assert "lo" not in {name for name, _ in interfaces_of()}


IDLE, IMPORTS, READS = (0.05, 1000), (0.6, 1000), (0.05, 400_000)
"""Processor time and bytes read in a second."""


@pytest.mark.parametrize(
    ("each_second", "at_start", "ends"),
    [(IDLE, True, 30), (IMPORTS, True, 90), (READS, True, 90), (IMPORTS, False, 30)],
    ids=["it waits for something", "it computes", "it reads its modules", "it computes behind its start"],
)
def test_only_a_trial_that_works_at_its_start_goes_on_beyond_its_time(
    each_second: tuple[float, int], at_start: bool, ends: int
) -> None:
    deadline, second = TrialDeadline(1000.0, 30, 90), 0
    while not deadline.is_over(1000.0 + second, at_start):
        second += 1
        deadline.note(1000.0 + second, (each_second[0] * second / (20 if each_second[0] < 0.5 else 1), each_second[1] * second))
    assert second == ends


def test_a_trial_whose_imports_come_to_a_stop_ends_soon() -> None:
    deadline, second = TrialDeadline(1000.0, 30, 900), 0
    while not deadline.is_over(1000.0 + second, at_start=True):
        second += 1
        deadline.note(1000.0 + second, (float(min(second, 60)), 0))
    assert 60 < second <= 81


def test_the_work_of_a_process_is_that_of_all_that_descend_from_it(tmp_path: Path) -> None:
    def process(number: int, parent: int, ticks: int, read: int) -> None:
        (tmp_path / str(number)).mkdir()
        (tmp_path / f"{number}/stat").write_text(
            f"{number} (a) b (c)) S {parent} 1 1 0 -1 0 9 9 9 9 {ticks} 0 0 {ticks} 20 0 1 0\n"
        )
        (tmp_path / f"{number}/io").write_text(f"rchar: {read}\nwchar: 1\n")

    process(1, 0, 5000, 9)
    process(40, 1, 100, 10)
    process(41, 40, 50, 20)
    process(42, 41, 25, 30)
    process(50, 1, 900, 40)
    (tmp_path / "42/io").unlink()
    (tmp_path / "uptime").write_text("1 2\n")
    seconds, read = work_of(40, str(tmp_path))
    assert (seconds, read) == (2 * 175 / os.sysconf("SC_CLK_TCK"), 30)
    assert work_of(os.getpid())[1] > 0


@pytest.mark.parametrize(
    ("line", "logs"),
    [(b"step 3/90 Loss: 2.71 lr 1e-3", True), (b"it=4 train_loss=nan", True), (b"using loss cross_entropy", False)],
)
def test_a_step_is_known_by_its_loss(line: bytes, *, logs: bool) -> None:
    assert (LOGGED_STEP.search(line) is not None) is logs
