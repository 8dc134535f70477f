"""What the programs of a trial's sandbox see of the files that a script wrote, and the network that it has."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from assistant.recover.trial.changes_program import differences, saves_of
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
